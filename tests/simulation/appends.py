"""The steps that append to a conversation, or begin a new one."""

from contextlib import suppress
from functools import partial

from foldlog import aio as _aio
from foldlog.aio import PendingAppend
from foldlog.condensers import Condensation, NoCondensationAvailable
from tests.simulation import checks, model
from tests.simulation.checks import check_equal
from tests.simulation.conversion import to_model, to_product
from tests.simulation.draws import ATTRIBUTES, to_documents
from tests.simulation.runner import STOPPED, Runner, brief, to_products
from tests.simulation.world import NAMES, Finding


class AppendSteps(Runner):
    def append(self, rng, process):
        site = process.site
        conversation = self.draw_growing(rng, site) if rng.random() < 0.7 else None
        if conversation is None:
            name = self.draw_name(rng, site, living=False)
            conversation = site.model.living.get(name)
        else:
            name = conversation.name
        history, tag = self.draw_writer(rng, process, name)
        version = 0 if conversation is None else conversation.version
        events = self.draw_turn(rng, conversation, version)
        if rng.random() < 0.25:
            events += self.draw_turn(rng, None, version + len(events))
        events, documents, options = self._draw_options(rng, conversation, version, events)
        self.trace(f"  {name} {options} {[brief(event) for event in events]} {documents or ''}")

        def call():
            arguments = {"idempotency_key": options.get("key")}
            if documents:
                arguments["documents"] = to_documents(documents)
            if options.get("expected") is not None:
                arguments["expected_version"] = options["expected"]
            if options.get("dedupe"):
                arguments["dedupe"] = "origin"
            return history.append(to_products(events), **arguments)

        def call_model():
            return site.model.append(
                name, events, self.world.now, documents=documents, handle=tag, **options
            )

        return self._compare_write(process, name, "append", history, call, call_model)

    def _draw_options(self, rng, conversation, version, events):
        """Draw the options of an append, and other events where an option needs them. Return the
        events, the documents and the options. The first of ``events`` may get a cause.
        """
        options = {}
        documents = {}
        draw = rng.random()
        if draw < 0.03 and events[0]["kind"] == "message":
            events[0]["cause"] = version + rng.randrange(5)
        elif draw < 0.15:
            options["expected"] = rng.choice(
                (version, version, max(0, version - 1), version + 1, 0)
            )
        elif draw < 0.3:
            key = options["key"] = f"k{rng.randrange(3)}"
            if conversation is not None and key in conversation.keys:
                # Of a redacted event the store knows only the size, so a key with redacted events
                # always comes with its own events. The other events have two words: another process
                # may redact the stored event first, and one word may have the same size.
                if conversation.has_redacted(key) or rng.random() < 0.7:
                    (events, documents), _, _ = conversation.keys[key]
                    options["expected"] = rng.choice((None, 0, version))
                else:
                    events = [model.message(f"{self.text(rng)} {self.text(rng)}")]
        elif draw < 0.4:
            options["dedupe"] = True
            numbers = rng.sample(range(6), rng.randrange(1, 4))
            events = [
                model.message(self.text(rng), origin=("src", n if n % 2 else f"s{n}"))
                for n in numbers
            ]
        elif draw < 0.45:
            documents = self.draw_documents(rng, conversation)
        elif draw > 0.99:
            events = []
        return events, documents, options

    def _compare_write(self, process, name, label, history, call, call_model):
        """Compare an append with a history that this process may have held for long. Return the
        name.
        """
        result = self.compare(process, label, call, call_model, self.check_recorded, name=name)
        if process.writers.get(name) == (history, None):
            # if the append was refused, the history may have read the conversation or not
            del process.writers[name]
            if result is not None and name in process.site.model.living:
                process.writers[name] = (history, process.site.model.living[name].tag)
        return name

    def together(self, rng, process):
        """Make appends that share transactions, like the appends of many tasks."""
        site = process.site
        pending = []
        model_calls = []
        for _ in range(rng.randrange(2, 5)):
            name = self.draw_name(rng, site, living=False)
            conversation = site.model.living.get(name)
            version = 0 if conversation is None else conversation.version
            options = {}
            if rng.random() < 0.4:
                options["expected"] = version + rng.choice((0, 0, 1))
            if rng.random() < 0.3:
                key = f"k{rng.randrange(3)}"
                if conversation is None or not conversation.has_redacted(key):
                    options["key"] = key
            events = self.draw_turn(rng, None, version)
            self.trace(f"  {name} {options} {[brief(event) for event in events]}")
            arguments = {"idempotency_key": options.get("key")}
            if "expected" in options:
                arguments["expected_version"] = options["expected"]
            pending.append(PendingAppend(process.histories[name], to_products(events), **arguments))
            model_calls.append(partial(site.model.append, name, events, self.world.now, **options))
        outcomes = _aio.append_all(process.store, pending)
        for outcome, call_model in zip(outcomes, model_calls, strict=True):
            error = None if outcome.error is None else checks.name_of(outcome.error)
            self.compare_outcome("together", outcome.value, error, call_model, self.check_recorded)
        return self.draw_name(rng, site, living=False)

    def forget(self, rng, process, conversation):
        """Append a condensation that names events, summaries, or ids that do not exist."""
        name = conversation.name
        event = self._draw_condensation(rng, conversation)
        history, tag = self.draw_writer(rng, process, name)
        self.trace(f"  {name} {brief(event)}")
        return self._compare_write(
            process,
            name,
            "forget",
            history,
            lambda: history.append(to_product(event)),
            lambda: process.site.model.append(name, [event], self.world.now, handle=tag),
        )

    def _draw_condensation(self, rng, conversation):
        shown = conversation.view().ids
        version = conversation.version
        summary = None
        offset = None
        if rng.random() < 0.6:
            summary = self.text(rng)
            offset = rng.randrange(4)
        draw = rng.random()
        ids = []
        span = (None, None)
        if draw < 0.4 and shown:
            ids = rng.sample(shown, rng.randrange(1, min(len(shown), 5) + 1))
        elif draw < 0.7:
            ids = None
            first = rng.randrange(version)
            span = (first, min(version - 1, first + rng.randrange(6)))
        elif draw < 0.8:
            ids = [version + rng.randrange(3)]
        elif draw < 0.9:
            ids = [model.summary_id(rng.randrange(version + 2))]
        return model.condensation(ids, span, summary, offset)

    def request(self, rng, process, conversation):
        return self.compare_append(
            process,
            conversation.name,
            lambda history: (history.request_condensation("drawn"),),
            [model.request("drawn")],
        )

    def retract(self, rng, process, conversation):
        version = rng.randrange(conversation.version + 2)
        return self.compare_append(
            process,
            conversation.name,
            lambda history: (history.retract(version, "drawn"),),
            [model.retraction(version, "drawn")],
        )

    def pop(self, rng, process, conversation):
        site = process.site
        name = conversation.name
        count = rng.randrange(1, 4)
        self.trace(f"  {name} {count}")

        def call_model():
            """Retract the last events of the View, up to a summary."""
            ids = list(site.model.get(name).view().ids)
            summaries = [index for index, item_id in enumerate(ids) if item_id < 0]
            popped = ids[max([-1, *summaries]) + 1 :][-count:]
            if popped:
                site.model.append(name, [model.retraction(popped[0], "drawn")], self.world.now)
            return popped

        self.compare(
            process,
            "pop",
            lambda: process.histories[name].pop(count, "drawn"),
            call_model,
            lambda events, ids: check_equal("popped", [event.id for event in events], ids, name),
            name=name,
        )
        return name

    def document(self, rng, process, conversation):
        values = self.draw_documents(rng, conversation)
        return self.compare_append(
            process,
            conversation.name,
            lambda history: history.append([], documents=to_documents(values)),
            [],
            documents=values,
        )

    def attributes(self, rng, process, conversation):
        site = process.site
        name = conversation.name
        changed = {
            key: rng.choice(values) for key, values in ATTRIBUTES.items() if rng.random() < 0.5
        }
        self.trace(f"  {name} {changed}")

        def call_model():
            attributes = site.model.get(name).documents().get("attributes", {})
            attributes = attributes | model.checked_attributes(changed)
            attributes = {key: value for key, value in attributes.items() if value is not None}
            site.model.append(name, [], self.world.now, documents={"attributes": attributes})
            return attributes

        self.compare(
            process,
            "attributes",
            lambda: process.histories[name].set_attributes(**changed),
            call_model,
            lambda result, attributes: check_equal("attributes", result, attributes, name),
            name=name,
        )
        return name

    def stream(self, rng, process, conversation):
        """Write a reply piece by piece. A reply that a kill left unfinished is ended first."""
        name = conversation.name
        pieces = [f"{self.text(rng)} " for _ in range(rng.randrange(1, 4))]
        ends_by = rng.choice(("append", "append_cut", "drop"))
        self.trace(f"  {name} {pieces}")
        expected = []

        def call():
            history = process.histories[name]
            unfinished = history.unfinished_reply()
            if unfinished is not None:
                if unfinished.text and ends_by != "drop":
                    expected.append(unfinished.text)
                getattr(unfinished, ends_by)()
            with history.stream_reply() as reply:
                for piece in pieces:
                    reply.feed(piece)
                    stored = history.unfinished_reply().text
                    check_equal("stored chunks", stored, "".join(pieces)[: len(stored)], name)
            expected.append("".join(pieces))

        _, error, appended = self._copy_appended(process, name, call)
        if error is None:
            contents = [event["content"] for event in appended]
            check_equal("streamed", contents, expected, name)
        return name

    def create(self, rng, process):
        site = process.site
        erased = [
            name for name in NAMES if name not in site.model.living and site.model.tombs.get(name)
        ]
        name = rng.choice(erased) if erased and rng.random() < 0.7 else rng.choice(NAMES)
        replace = rng.random() < 0.8
        attributes = rng.choice(
            ({"app": "x"}, {"app": "y", "tags": ["t"]}, {"n": 1}, {"n": 0.5}, {})
        )
        self.trace(f"  {name} {attributes} {replace=}")
        self.compare(
            process,
            "create",
            lambda: process.histories.create(name, attributes, replace_erased=replace),
            lambda: site.model.create(name, attributes, self.world.now, replace_erased=replace),
            name=name,
        )
        return name

    def fork(self, rng, process):
        site = process.site
        name = self.draw_name(rng, site, living=rng.random() < 0.95)
        conversation = site.model.living.get(name)
        at = rng.randrange(0, conversation.version + 2) if conversation is not None else 1
        new_name = rng.choice(NAMES)
        replace = rng.random() < 0.5
        self.trace(f"  {name} at {at} as {new_name} {replace=}")
        self.compare(
            process,
            "fork",
            lambda: process.store.fork(name, at, new_name, replace_erased=replace),
            lambda: site.model.fork(name, at, new_name, replace_erased=replace),
            lambda row, fork: check_equal(
                "fork", (row.version, row.parent), (at, fork.parent.name)
            ),
            name=new_name,
        )
        return new_name

    # ------------------------------------------------- events that the product itself decides on

    def _copy_appended(self, process, name, call):
        """Call the product, and copy the events that it appended into the model. Return the result,
        the error, and these events.
        """
        site = process.site
        appended = []

        def update_model():
            conversation = site.model.living.get(name)
            if conversation is None:
                return
            for row in site.processes[0].store.log(name, conversation.version):
                event = to_model(row.event)
                event |= {"at": self.world.microseconds(row.recorded_at), "tag": model.new_tag()}
                conversation.events.append(event)
                appended.append(event)

        result, error = self.call_product(process, call, update_model)
        was_erased = self.interleaved and name not in site.model.living
        if error not in STOPPED and not was_erased:
            check_equal("on its own: error", error, None, name)
        return result, error, appended

    def step(self, rng, process, conversation):
        """Let the condenser condense the conversation, if it is due or because it is asked to."""
        name = conversation.name
        before = conversation.view()
        asked = rng.random() < 0.4
        history = process.histories[name]
        self.trace(f"  {name} {asked=}")

        def call():
            with suppress(NoCondensationAvailable):
                return history.condense("drawn") if asked else history.step()

        result, error, appended = self._copy_appended(process, name, call)
        kinds = [event["kind"] for event in appended]
        if asked and result is not None:
            check_equal("condense", kinds[0], "condensation_request", name)
        if isinstance(result, Condensation) and error is None and not self.interleaved:
            check_equal("condensed", kinds[-1], "condensation", name)
            self._check_condensed(conversation, before)
        return name

    @staticmethod
    def _check_condensed(conversation, before):
        """Check what any condensation must hold to: it forgets something that was shown, leaves no
        call without its answer, and the View does not become longer.
        """
        after = conversation.view()
        waiting = set()
        for batch in conversation.batches(before):
            if not batch.isdisjoint(conversation.open_calls(before)):
                waiting |= batch
        if set(before.ids) <= set(after.ids):
            problem = "the condensation forgot nothing that was shown"
        elif after.left_behind - before.left_behind - waiting:
            problem = f"it took a call from its answer: {after.left_behind}"
        elif len(after.ids) > len(before.ids):
            problem = f"{len(before.ids)} events became {len(after.ids)}"
        else:
            return
        raise Finding("condensed", f"{conversation.name}: {problem}")

    def close_open_calls(self, rng, process, conversation):
        name = conversation.name
        calls = conversation.open_calls(conversation.view())
        self.trace(f"  {name} {calls}")
        _, error, appended = self._copy_appended(
            process, name, lambda: process.histories[name].close_open_calls("drawn")
        )
        if not self.interleaved and (error is None or appended):
            answers = [(event["kind"], event["cause"], event["is_error"]) for event in appended]
            expected = [("observation", call, True) for call in calls]
            check_equal("close_open_calls", answers, expected, name)
            check_equal("closed", conversation.open_calls(conversation.view()), [], name)
        return name
