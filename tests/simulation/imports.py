"""The steps that import the history of another agent, and a log that changes."""

import json
import os

from tests.foldlog.imports.imports import Failed, Import
from tests.simulation import model
from tests.simulation.checks import check_equal, made_words, name_of
from tests.simulation.conversion import to_model
from tests.simulation.model import refusal_of
from tests.simulation.runner import STOPPED, Runner, model_version, to_products
from tests.simulation.world import NAMES, Finding

_LOGS_MAX = 4
"""A store with so many conversations of logs gets no more of them."""
_TEXT_FIELDS = {"message": "content", "observation": "content", "condensation": "summary"}


class ImportSteps(Runner):
    def ingest(self, rng, process):
        """Import a history that grows."""
        site = process.site
        sources = self.world.sources
        if not sources or rng.random() < 0.2:
            sources.append([])
        number = rng.randrange(len(sources))
        source = sources[number]
        if not source or (len(source) < 30 and rng.random() < 0.5):
            self._grow(rng, number, source)
        name = rng.choice(NAMES) if rng.random() < 0.3 else NAMES[number % len(NAMES)]
        self.focus = name
        events = self._draw_changed(rng, source, site.model.living.get(name))
        self.trace(f"  {name} {len(events)} events of source {number}")

        def refusal():
            return refusal_of(lambda: site.model.check_importable(name, events))

        refusals = {refusal()}

        def update_model():
            """Copy into the model what is stored by now: nothing of a new history, or the first
            events of a history that has grown.
            """
            before = model_version(site.model, name)
            version = self.stored_version(site, name)
            is_longer = None not in (version, before) and version > before
            if is_longer and (before or version == len(events)):
                refusal_of(lambda: site.model.ingest(name, events[:version], self.world.now))
            if version != model_version(site.model, name):
                detail = f"{name} has {version} events; {before}, and some of {len(events)}"
                raise Finding("half an import", detail)
            refusals.add(refusal())

        _, error = self.call_product(
            process, lambda: process.store.ingest(name, to_products(events)), update_model
        )
        if error in STOPPED:
            site.staged_words.update(made_words(events))
        if self.interleaved:
            refusals.add("HistoryDiverged")
            if error == "VersionConflict":
                error = "HistoryDiverged"
        # An event that is redacted in another conversation must not come back. Where this history
        # diverges, this conversation may be the reason too.
        origins = [event["origin"] for event in events]
        if any(
            event["redacted"] and event["was"] in origins
            for conversation in site.model.living.values()
            if conversation.name != name or "HistoryDiverged" in refusals
            for event in conversation.events
        ):
            refusals.add("WasRedacted")
        if error not in STOPPED and error not in refusals:
            raise Finding("ingest: error", f"{name}: {error}, expected {refusals}")
        if error is None and not self.interleaved:
            version = site.model.version(name)
            if version < len(events) or None not in refusals:
                raise Finding("ingest", f"{name} has {version} events of {len(events)}")
        return name

    def import_log(self, rng, process):
        """Import a log that was appended to, rewritten, cut, copied or rotated."""
        if process.site is not self.world.sites[0]:
            return
        site = process.site
        path, texts = self._change_log(rng, site)
        self.trace(f"  {path.name} {texts}")
        outcomes, error = self.call_product(
            process, lambda: [*Import(process.store, [path])], lambda: self._learn_logs(site)
        )
        if error in STOPPED:
            site.staged_words.update(made_words(texts))
            return
        (outcome,) = outcomes
        if isinstance(outcome, Failed):
            refusals = {"VersionConflict": self.interleaved, "StoreUnavailable": self.fault}
            error = name_of(outcome.error)
            has_erased = any(row.erased_at for row in process.store.iter_conversations())
            may_be_refused = has_erased or site.erased_words or site.unfinished
            if not refusals.get(error, may_be_refused):
                raise Finding("import: error", f"{path.name}: {outcome}")
        elif not self.interleaved:
            events = site.model.get(outcome.conversation).events
            stored = [event["content"] for event in filter(model.is_of_log, events)]
            # a file without new lines may be older than the conversation
            check_equal("import", stored if outcome.added else stored[: len(texts)], texts)
            return outcome.conversation

    def _change_log(self, rng, site):
        """Write a log, new or changed in one way, and return its path and the texts of its records."""
        logs = self.world.logs
        free = self.world.folder / f"{len(logs)}.jsonl"
        path = rng.choice([*logs, free][-4:])
        session, texts = logs.get(path, (self.unique("log"), []))
        changes = ["append"] * 3 + ["cut"]
        if sum(name.startswith("log") for name in site.model.living) < _LOGS_MAX:
            changes += ["rewrite", "copy", "rotate"]  # each makes another conversation
        place = rng.randrange(len(texts) or 1)
        change = rng.choice(changes) if texts else "append"
        match change:
            case "append":
                texts = [*texts, *(self.text(rng) for _ in range(rng.randrange(1, 4)))]
            case "rewrite":
                texts = [*texts[:place], self.text(rng), *texts[place + 1 :]]
            case "cut":
                texts = texts[: place + 1]
            case "copy":
                path = free
            case "rotate":
                path.rename(free)
                logs[free] = session, texts
                session = self.unique("log")
                texts = [self.text(rng)]
        logs[path] = session, texts
        with path.open("w") as file:
            for number, text in enumerate(texts):
                line = {
                    "type": "user",
                    "uuid": f"{session} {number}",
                    "sessionId": session,
                    "timestamp": f"2026-01-01T00:00:{number % 60:02}Z",
                    "message": {"role": "user", "content": text},
                }
                file.write(json.dumps(line) + "\n")
        # A run must not depend on the clock, so the time of the file is the number of words so far.
        os.utime(path, ns=(self.world.words, self.world.words))
        return path, texts

    def _learn_logs(self, site):
        """Copy into the model the events that an import has made."""
        store = site.processes[0].store
        for row in [*store.iter_conversations()]:
            name = row.id
            if not name.startswith("log") or row.erased_at is not None:
                continue
            version = store.version(name)  # makes the events that the import has not made yet
            if row.parent is not None and name not in site.model.living:
                site.model.fork(row.parent, row.parent_version, name, replace_erased=True)
            conversation = site.model.get_or_new(name)
            site.model.living[name] = conversation
            new = [*map(to_model, store.events(name, conversation.version, version))]
            site.model._record(conversation, new, self.world.now)

    def _draw_changed(self, rng, source, conversation):
        """Draw the events to import: the source, or its beginning, or with an event changed, or
        with a redacted event again.
        """
        events = list(source)
        if rng.random() < 0.1:
            events = events[: rng.randrange(1, len(events) + 1)]
        if rng.random() < 0.08:
            place = rng.randrange(len(events))
            field = _TEXT_FIELDS.get(events[place]["kind"])
            change = {"meta": {"x": 1}} if field is None else {field: self.text(rng)}
            events[place] = events[place] | change
        stored = [] if conversation is None else conversation.events
        redacted_origins = [event["was"] for event in stored if event["redacted"]]
        redacted = [event for event in events if event["origin"] in redacted_origins]
        if redacted and rng.random() < 0.3:
            events.append(rng.choice(redacted) | {"cause": None})
        return events

    def _grow(self, rng, number, source):
        """Add events to a history that is to be imported."""
        for _ in range(rng.randrange(1, 6)):
            event_id = len(source)
            origin_id = (event_id, f"e{event_id}", f"event {event_id}")[event_id % 3]
            origin = {"origin": (f"import{number}", origin_id)}
            source.append(self._draw_source_event(rng, source) | origin)

    def _draw_source_event(self, rng, source):
        draw = rng.random()
        if draw < 0.5 or not source:
            return model.message(self.text(rng), rng.choice(("user", "agent")))
        if 0.9 < draw < 0.95:
            ids = rng.sample(range(len(source)), 1)
            return model.condensation(ids, summary=self.text(rng), offset=rng.randrange(2))
        if draw < 0.7:
            arguments = {"q": self.text(rng)}
            return model.action("tool", arguments, self.unique("call"), self.unique("response"))
        last = source[-1]
        if draw < 0.9 and last["kind"] == "action":
            cause = len(source) - 1
            return model.observation(self.text(rng), last["call_id"], "tool", cause=cause)
        return model.annotation("note", {"text": self.text(rng)})
