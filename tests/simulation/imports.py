"""The step that imports the history of another agent."""

from tests.simulation import model
from tests.simulation.model import refusal_of
from tests.simulation.runner import STOPPED, Runner, model_version, to_products
from tests.simulation.world import NAMES, Finding

_TEXT_FIELDS = {"message": "content", "observation": "content", "condensation": "summary"}


class ImportSteps(Runner):
    def ingest(self, rng, process):
        """Import a history that grows."""
        site, sources = process.site, self.world.sources
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
        refusal = lambda: refusal_of(lambda: site.model.check_importable(name, events))  # noqa: E731
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
        if self.interleaved:
            refusals.add("HistoryDiverged")
            error = "HistoryDiverged" if error == "VersionConflict" else error
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
        self.check(rng, process, name)

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
