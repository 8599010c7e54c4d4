"""The steps: each draws what it does from its own seed and from the model, does it, and tells the model.

A step that is killed, or refused by its disk, has happened as a whole or not at all: what the recorder committed tells
which. Of those that take several transactions, what is left is asked for, and must be a beginning of what was to come.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import foldlog.eventstore as es
from foldlog import History
from foldlog.condensers import Condensation, NoCondensationAvailable
from foldlog.eventstore.opening import restore_store
from tests.simulation import checks, model
from tests.simulation.checks import same
from tests.simulation.findings import OPEN
from tests.simulation.plain import as_stored, built, expected, said
from tests.simulation.seam import Killed
from tests.simulation.world import NAMES, WORDS, Finding, Process, Site, World

Step = tuple[str, int]


class Steps:
    def __init__(self, world: World) -> None:
        self.world = world
        self.nested = False
        self.fault = ""

    def take(self, step: Step) -> None:
        """Take one step, with the faults and the steps of other processes that its seed draws."""
        kind, seed = step
        rng = random.Random(seed)
        site = self.world.sites[0] if rng.random() < 0.93 else self.world.sites[1]
        process = rng.choice(site.processes)
        self.world.now += rng.randrange(1, 2_000_000)
        self.fault = ""
        seam = process.seam
        draw = rng.random()
        seam.arm()
        if draw < 0.05 and kind in _FAULTY:
            self.fault = "killed"
            seam.arm(kill_at=rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 15, 20)))
        elif draw < 0.08 and kind in _FAULTY:
            self.fault = "refused"
            seam.arm(refuse_at=rng.choice((1, 1, 1, 2, 3)))
        elif draw < 0.2 and kind in _INTERLEAVED:
            self._interleave(site, process, rng, kind in _NEUTRAL)
        self.tell(f"{site.name}.{site.processes.index(process)} {kind}" + (f" ({self.fault})" if self.fault else ""))
        try:
            getattr(self, kind)(rng, site, process)
        finally:
            self.nested = False
            for each in self.world.sites:
                self.calm(each)

    def tell(self, line: str) -> None:
        self.world.told.append("  " * self.nested + line)

    def _interleave(self, site: Site, process: Process, rng: random.Random, neutral: bool) -> None:
        """Have another process take a step before one of the transactions of this one."""
        others = [each for each in site.processes if each is not process]
        if not others:
            return
        other, at, seed = rng.choice(others), rng.choice((1, 1, 2, 2, 3, 4, 6)), rng.randrange(2**32)
        kind = rng.choice(_BETWEEN)
        count = 0

        def stop() -> None:
            nonlocal count
            count += 1
            if count != at or (process.seam.commits and not neutral):
                return
            process.seam.at_transaction = None
            other.seam.arm()
            self.nested = True
            self.tell(f"{site.name}.{site.processes.index(other)} {kind} between")
            getattr(self, kind)(random.Random(seed), site, other)
            self.nested = False

        process.seam.at_transaction = stop

    # ---------------------------------------------------------------- doing it, and telling the model

    def both(
        self,
        process: Process,
        label: str,
        product: Callable[[], Any],
        told: Callable[[], Any],
        compare: Callable[[Any, Any], None] = lambda got, want: None,
        *,
        name: str,
    ) -> Any:
        """Do it, in one transaction, and tell the model; compare what they return, or the errors that they raise."""
        before = process.seam.commits
        got: Any = None
        error: Exception | None = None
        try:
            got = product()
        except Killed:
            committed = process.seam.commits > before
            self.tell(f"  killed, {'committed' if committed else 'not committed'}")
            self.calm(process.site)
            if committed and self._version(process.site, name) == _version_of(process.site.model, name):
                committed = False  # a question committed too, such as one that stored what it folded
            if committed:
                told()
            return None
        except es.EventStoreError as raised:
            error = raised
        if isinstance(error, es.StoreUnavailable) and self._refused(process):
            self.tell("  refused")
            return None
        refusal: str | None = None
        want: Any = None
        try:
            want = told()
        except model.Refused as refused:
            refusal = refused.args[0]
        names = [each.__name__ for each in type(error).__mro__] if error is not None else [None]
        if refusal not in names:
            raise Finding(f"{label}: error", f"got {error!r}, expected {refusal}")
        if error is None:
            compare(got, want)
        self.tell(f"  {label}: {refusal or 'done'}")
        return got if error is None else None

    @staticmethod
    def _version(site: Site, name: str) -> int | None:
        try:
            return site.processes[0].store.version(name)
        except es.ConversationErased:
            return None

    @staticmethod
    def _refused(process: Process) -> bool:
        return 0 < process.seam.refuse_at <= process.seam.transactions

    @staticmethod
    def calm(site: Site) -> None:
        """End the faults of this step."""
        for number, process in enumerate(site.processes):
            process.seam.arm()
            if process.seam.dead:
                site.reopen(number)

    def look(self, rng: random.Random, process: Process, name: str) -> None:
        """Compare, in this process or another one, briefly or whole."""
        if self.nested:
            return
        self.calm(process.site)
        process = rng.choice(process.site.processes)
        if rng.random() < 0.03:
            checks.whole(process, name, rng)
        else:
            checks.quick(process, name, tail=rng.random() < 0.3)

    def name(self, rng: random.Random, site: Site, *, living: bool = True) -> str:
        names = list(site.model.living)
        return rng.choice(names) if names and (living or rng.random() < 0.7) else rng.choice(NAMES)

    def history(self, rng: random.Random, process: Process, name: str) -> tuple[History, int | None]:
        """A handle: one that this process has held for long, or a new one."""
        if rng.random() < 0.6:
            if name not in process.held:
                process.held[name] = (process.histories[name], None)
            return process.held[name]
        return process.histories[name], None

    def met(self, process: Process, name: str, history: History) -> None:
        """The handle has met the conversation that has this id now."""
        held = process.held.get(name)
        if held is not None and held[0] is history and held[1] is None and name in process.site.model.living:
            process.held[name] = (history, process.site.model.living[name].tag)

    # ---------------------------------------------------------------- appends

    def text(self, rng: random.Random) -> str:
        return f"{self.world.token()} {rng.choice(WORDS)}"

    def unique(self, what: str) -> str:
        return f"{what}-{self.world.token()[4:]}"

    def turn(self, rng: random.Random, found: model.Conversation | None, version: int) -> list[model.Event]:
        """What an agent's loop records next, at this version."""
        draw = rng.random()
        if found is not None and draw < 0.5 and (open_calls := found.open_calls(found.shown())):
            calls = rng.sample(open_calls, rng.randrange(1, len(open_calls) + 1))
            actions = [found.events[each] for each in calls]
            return [
                model.observation(
                    self.text(rng), each["call_id"], each["tool"], cause=each["id"], is_error=rng.random() < 0.1
                )
                for each in actions
            ]
        if draw < 0.6:
            response, thinking = self.unique("response"), rng.choice(("", "", "hm"))
            made = []
            for number in range(rng.choice((1, 1, 2, 3))):
                call = rng.choice((self.unique("call"), "again")) if rng.random() < 0.9 else None
                arguments = {"q": self.text(rng)}
                thought = self.text(rng) if number == 0 and rng.random() < 0.3 else ""
                made.append(model.action("tool", arguments, call, response, thought=thought, thinking=thinking))
                thinking = ""
            if rng.random() < 0.5:
                for number, each in enumerate(list(made)):
                    made.append(model.observation(self.text(rng), each["call_id"], "tool", cause=version + number))
            return made
        if draw < 0.68:
            return [model.annotation("note", {"text": self.text(rng)})]
        if draw < 0.72:
            return [model.observation(self.text(rng), "nobody", "tool")]
        content: Any = self.text(rng)
        if rng.random() < 0.1:
            content = (content, rng.choice((b"\0\xff", b"picture" * 50)))
        return [
            model.message(content, rng.choice(("user", "user", "agent", "environment")), meta={"n": rng.randrange(3)})
        ]

    def append(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site, living=False)
        found = site.model.living.get(name)
        if found is not None and found.version > self.world.long:
            return
        history, handle = self.history(rng, process, name)
        version = 0 if found is None else found.version
        events = self.turn(rng, found, version)
        if rng.random() < 0.25:
            events += self.turn(rng, None, version + len(events))
        options: dict[str, Any] = {}
        documents: dict[str, Any] = {}
        draw = rng.random()
        if draw < 0.15:
            options["expected"] = rng.choice((version, version, max(0, version - 1), version + 1, 0))
        if draw < 0.03 and events[0]["kind"] == "message":
            events[0]["cause"] = version + rng.randrange(5)
            options.pop("expected")
        elif 0.15 < draw < 0.3:
            key = options["key"] = f"k{rng.randrange(3)}"
            known = {} if found is None else found.keys
            if key in known:
                payload, first, count = known[key]
                hidden = any(event["redacted"] for event in found.events[first : first + count])  # type: ignore[union-attr]
                if hidden or rng.random() < 0.7:
                    events, documents = payload
                    events = [dict(event) for event in events]
                    options["expected"] = rng.choice((None, 0, version))
        elif 0.3 < draw < 0.4:
            options["dedupe"] = found is None or found.own_from == 0 or "dedupe on a fork" not in OPEN
            numbers = rng.sample(range(6), rng.randrange(1, 4))
            events = [model.message(self.text(rng), origin=("src", n if n % 2 else f"s{n}")) for n in numbers]
        elif 0.4 < draw < 0.45:
            documents = self.values(rng)
        elif draw > 0.99:
            events = []
        same_events = [dict(event) for event in events]

        def product() -> Any:
            given: dict[str, Any] = {"documents": _given(documents)} if documents else {}
            if options.get("expected") is not None:
                given["expected_version"] = options["expected"]
            if options.get("dedupe"):
                given["dedupe"] = "origin"
            made = [built(event) for event in same_events]
            return history.append(made, idempotency_key=options.get("key"), **given)

        def told() -> Any:
            return site.model.append(name, same_events, self.world.at, documents=documents, handle=handle, **options)

        self.tell(f"  {name} {options} {[_brief(each) for each in events]} {documents or ''}")
        if self.both(process, "append", product, told, self.recorded, name=name) is not None:
            self.met(process, name, history)
        self.look(rng, process, name)

    def recorded(self, got: Any, want: Sequence[model.Event]) -> None:
        same("recorded", [said(each.event) for each in got], [expected(each) for each in want])
        same("recorded at", [self.world.at_of(each.recorded_at) for each in got], [each["at"] for each in want])

    def forget(self, rng: random.Random, site: Site, process: Process) -> None:
        """Append a condensation that names what it likes."""
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        view = found.shown()
        version = found.version
        summary, offset = (self.text(rng), rng.randrange(4)) if rng.random() < 0.6 else (None, None)
        draw = rng.random()
        if draw < 0.4 and view.ids:
            ids: list[int] = rng.sample(view.ids, rng.randrange(1, min(len(view.ids), 5) + 1))
            event = model.condensation(ids, None, summary, offset)
        elif draw < 0.7:
            first = rng.randrange(version)
            last = min(version - 1, first + rng.randrange(6))
            event = model.condensation(None, (first, last), summary, offset)
        elif draw < 0.8:
            event = model.condensation([version + rng.randrange(3)], None, summary, offset)
        elif draw < 0.9:
            event = model.condensation([-(rng.randrange(version + 2) + 2)], None, summary, offset)
        else:
            event = model.condensation([], None, summary, offset)
        history, handle = self.history(rng, process, name)

        def told() -> Any:
            return site.model.append(name, [event], self.world.at, handle=handle)

        self.tell(f"  {name} {_brief(event)}")
        if (
            self.both(process, "forget", lambda: history.append(built(event)), told, self.recorded, name=name)
            is not None
        ):
            self.met(process, name, history)
        self.look(rng, process, name)

    def request(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        told = lambda: site.model.append(name, [model.request("drawn")], self.world.at)  # noqa: E731
        self.tell(f"  {name}")
        product = lambda: (process.histories[name].request_condensation("drawn"),)  # noqa: E731
        self.both(process, "request", product, told, self.recorded, name=name)
        self.look(rng, process, name)

    def retract(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        version = rng.randrange(found.version + 2)
        told = lambda: site.model.append(name, [model.retraction(version, "drawn")], self.world.at)  # noqa: E731
        self.tell(f"  {name} to {version}")
        self.both(
            process,
            "retract",
            lambda: (process.histories[name].retract(version, "drawn"),),
            told,
            self.recorded,
            name=name,
        )
        self.look(rng, process, name)

    def pop(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        count = rng.randrange(1, 4)
        self.tell(f"  {name} {count}")

        def ids() -> list[int]:
            taken: list[int] = []
            for each in reversed(site.model.get(name).shown().ids):
                if each < 0 or len(taken) == count:
                    break
                taken.insert(0, each)
            return taken

        def told() -> list[int]:
            popped = ids()
            if popped:
                site.model.append(name, [model.retraction(popped[0], "drawn")], self.world.at)
            return popped

        def compare(got: Any, want: list[int]) -> None:
            same("popped", [event.id for event in got], want, name)

        self.both(process, "pop", lambda: process.histories[name].pop(count, "drawn"), told, compare, name=name)
        self.look(rng, process, name)

    def values(self, rng: random.Random) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in rng.sample(("state", "title", "log"), rng.randrange(1, 3)):
            values[name] = rng.choice(
                (
                    rng.randrange(9),
                    "t" * rng.randrange(4),
                    {"a": [1, 2, {"b": None}], "n": rng.randrange(4)},
                    model.DELETED,
                )
            )
            if name == "log" and rng.random() < 0.7:
                values[name] = list(range(rng.randrange(1, 40)))
        return values

    def document(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        values = self.values(rng)
        self.tell(f"  {name} {values}")
        product = lambda: process.histories[name].append([], documents=_given(values))  # noqa: E731
        told = lambda: site.model.append(name, [], self.world.at, documents=values)  # noqa: E731
        self.both(process, "document", product, told, self.recorded, name=name)
        self.look(rng, process, name)

    def attributes(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version > self.world.long:
            return
        changed = {
            key: rng.choice(values)
            for key, values in (("app", ("x", "y", None)), ("tags", (["t"], ["t", "u"], None)), ("n", (1, 2, None)))
            if rng.random() < 0.5
        }
        self.tell(f"  {name} {changed}")

        def told() -> dict[str, Any]:
            now = dict(site.model.get(name).documents().get("attributes", {}))
            now |= changed
            now = {key: value for key, value in now.items() if value is not None}
            site.model.append(name, [], self.world.at, documents={"attributes": now})
            return now

        def compare(got: Any, want: Any) -> None:
            same("attributes", got, want, name)

        self.both(
            process, "attributes", lambda: process.histories[name].set_attributes(**changed), told, compare, name=name
        )
        self.look(rng, process, name)

    def create(self, rng: random.Random, site: Site, process: Process) -> None:
        gone = [name for name in NAMES if name not in site.model.living and site.model.tombs.get(name)]
        name = rng.choice(gone) if gone and rng.random() < 0.7 else rng.choice(NAMES)
        replace = rng.random() < 0.8
        attributes = rng.choice(({"app": "x"}, {"app": "y", "tags": ["t"]}, {"n": 1}))
        self.tell(f"  {name} {attributes} {replace=}")
        product = lambda: process.histories.create(name, attributes, replace_erased=replace)  # noqa: E731
        told = lambda: site.model.create(name, attributes, self.world.at, replace=replace)  # noqa: E731
        self.both(process, "create", product, told, name=name)
        self.look(rng, process, name)

    # ---------------------------------------------------------------- what the store decides by itself

    def adopt(self, site: Site, name: str, start: int) -> list[model.Event]:
        """Take over into the model what the product appended of itself."""
        self.calm(site)
        found = site.model.living.get(name)
        if found is None:
            return []
        process = site.processes[0]
        added = []
        for each in process.store.log(name, start):
            event = as_stored(each.event) | {"at": site.world.at_of(each.recorded_at), "tag": model.new_tag()}
            added.append(event)
        found.events += added
        return added

    def on_its_own(self, process: Process, name: str, call: Callable[[], Any]) -> tuple[Any, list[model.Event]]:
        site = process.site
        start = site.model.version(name)
        got: Any = None
        try:
            got = call()
        except Killed:
            self.tell("  killed")
            site.bury(process)
        except es.StoreUnavailable:
            if not self._refused(process):
                raise
            self.tell("  refused")
        except NoCondensationAvailable:
            self.tell("  no condensation is available")
        return got, self.adopt(site, name, start)

    def step(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None:
            return
        before = found.shown()
        asked = rng.random() < 0.4
        history = process.histories[name]
        self.tell(f"  {name} {asked=}")
        got, added = self.on_its_own(process, name, lambda: history.condense("drawn") if asked else history.step())
        kinds = [event["kind"] for event in added]
        if asked and got is not None:
            same("condense", kinds[0], "condensation_request", name)
        if isinstance(got, Condensation) and not self.fault:
            same("condensed", kinds[-1], "condensation", name)
            gone = set(before.ids) - set(found.shown().ids)
            if not gone:
                raise Finding("condensed", f"{name}: the digest forgot nothing that was shown")
            if not gone <= set(before.ids):
                raise Finding("condensed", f"{name}: it forgot what was not shown")
            after = found.shown()
            waiting = {one for batch in found.batches(before) if batch & set(found.open_calls(before)) for one in batch}
            if set(after.left) - set(before.left) - waiting:
                raise Finding("condensed", f"{name}: it took a call from its answer: {after.left}")
            if len(after.ids) > len(before.ids):
                raise Finding("condensed", f"{name}: {len(before.ids)} events became {len(after.ids)}")
        self.look(rng, process, name)

    def interrupt(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None:
            return
        calls = found.open_calls(found.shown())
        got, added = self.on_its_own(process, name, lambda: process.histories[name].interrupt("drawn"))
        self.tell(f"  {name} {calls}")
        if got is not None or added:
            told = [(event["kind"], event["cause"], event["is_error"]) for event in added]
            same("interrupt", told, [("observation", call, True) for call in calls], name)
            if calls:
                same("interrupted", found.open_calls(found.shown()), [], name)
        self.look(rng, process, name)

    # ---------------------------------------------------------------- forks, redaction, erasure

    def fork(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site, living=rng.random() < 0.95)
        found = site.model.living.get(name)
        at = rng.randrange(0, found.version + 2) if found is not None else 1
        new, replace = rng.choice(NAMES), rng.random() < 0.5
        self.tell(f"  {name} at {at} as {new} {replace=}")
        self.both(
            process,
            "fork",
            lambda: process.store.fork(name, at, new, replace_erased=replace),
            lambda: site.model.fork(name, at, new, replace=replace),
            lambda got, want: same("fork", (got.version, got.parent), (at, want.parent.name)),
            name=new,
        )
        self.look(rng, process, new)

    def redact(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None:
            return
        event_id = rng.randrange(found.version + (rng.random() < 0.05))
        if found.own_from < found.version and rng.random() < 0.8:
            event_id = rng.randrange(found.own_from, found.version)
        summaries = rng.random() < 0.5
        self.tell(f"  {name} {event_id} with_summaries={summaries}")
        refusal: str | None = None
        surely: set[int] = set()
        perhaps: set[int] = set()
        try:
            site.model.check_redactable(name, event_id)
            surely, perhaps = found.quotes(event_id)
        except model.Refused as refused:
            refusal = refused.args[0]
        history, receipt, error, gone = process.histories[name], None, None, False
        before = {each.name: each.version for each in site.model.living.values()}
        try:
            receipt = history.redact(event_id, reason="asked", by="sim", with_summaries=summaries)
        except Killed:
            self.tell("  killed")
            site.bury(process)
            gone = True
        except es.EventStoreError as raised:
            error = type(raised).__name__
            if isinstance(raised, es.StoreUnavailable) and self._refused(process):
                self.tell("  refused")
                error, gone = None, True
        if refusal is None and error == "CannotRedact" and self._built_upon(found, event_id):
            self.tell("  cannot be redacted yet")
            return
        if not gone:
            same("redact: error", error, refusal, name)
        if refusal is None:
            self._redacted(site, found, event_id, before, (surely, perhaps), summaries=summaries, whole=not gone)
        if receipt is not None and refusal is None:
            quotes = {each.event_id for each in receipt.quotes if each.conversation == name}
            if not surely - quotes <= {event_id} or not quotes <= perhaps | {event_id}:
                raise Finding("quotes", f"{name} {event_id}: got {quotes}, at least {surely}, at most {perhaps}")
        self.look(rng, process, name)

    @staticmethod
    def _built_upon(found: model.Conversation, event_id: int) -> bool:
        event = found.events[event_id]
        if event["kind"] != "document_changes":
            return False
        return any(each["kind"] == "document_changes" for each in found.events[event_id + 1 :])

    def _redacted(
        self,
        site: Site,
        found: model.Conversation,
        event_id: int,
        before: dict[str, int],
        quoted: tuple[set[int], set[int]],
        *,
        summaries: bool,
        whole: bool,
    ) -> None:
        """Take over the receipts, which say what was redacted, and hold them against what should be."""
        self.calm(site)
        process = site.processes[0]
        family = [each for each in site.model.living.values() if each is found or _shares(each, found, event_id)]
        hidden = found.events[event_id]["redacted"]
        for each in family:
            receipts = list(process.store.log(each.name, before[each.name]))
            surely, perhaps = quoted if each is found else each.quotes(event_id)
            surely = {one for one in surely if one >= each.own_from and not each.events[one]["redacted"]}
            must = ({event_id} if each is found and not hidden else set()) | (surely if summaries else set())
            may = must | (perhaps if summaries else set())
            got: set[int] = set()
            for one in receipts:
                if not isinstance(one.event, es.Redaction):
                    raise Finding("redact", f"{each.name}: {one.event}")
                got |= set(one.event.event_ids)
                site.gone |= _said_in(each, one.event.event_ids)
                at = site.world.at_of(one.recorded_at)
                site.model.redact(each.name, one.event.event_ids, at, one.event.by, one.event.reason)
            if not got <= may or (whole and not must <= got):
                raise Finding("redacted", f"{each.name}: {got}, at least {must}, at most {may}")

    def erase(self, rng: random.Random, site: Site, process: Process, seed: int | None = None) -> None:
        seed = rng.randrange(2**32) if seed is None else seed
        rng = random.Random(seed)
        name = self.name(rng, site, living=rng.random() < 0.9)
        found = site.model.living.get(name)
        way = rng.choice(("", "with_forks", "detach_forks"))
        self.tell(f"  {name} {way}")
        options: dict[str, Any] = {way: True} if way else {}
        doomed = [name, *(each.name for each in _descendants(site.model, found))] if found else []
        words = _said(site.model, doomed)
        ended_as = {(each, site.model.living[each].tag) for each in doomed if each in site.model.living}
        ended = {tag for _, tag in ended_as} | {
            tomb.tag for tomb in site.model.tombs.get(name, [])[-1:] if found is None
        }
        forks = [] if found is None else site.model.forks(found)
        got: Any = None
        error, stopped = None, False
        try:
            got = process.histories.erase(name, reason="asked", **options)
        except Killed:
            stopped = True
            site.bury(process)
        except es.EventStoreError as raised:
            error = type(raised).__name__
            stopped = isinstance(raised, es.StoreUnavailable) and self._refused(process)
        if stopped:
            self.tell("  stopped")
            self._half_erased(site, found, forks)
            site.gone |= words - _said(site.model, site.model.living)
            site.unfinished |= ended_as
            if way == "detach_forks" and "half a detachment" in OPEN and name in site.model.living:
                self.erase(rng, site, rng.choice(site.processes), seed)
            return
        self._detached(site, forks)
        try:
            site.model.erase(name, "asked", with_forks=way == "with_forks", detach=way == "detach_forks")
            refusal = None
        except model.Refused as refused:
            refusal = refused.args[0]
        same("erase: error", error, refusal, name)
        if error is None:
            same(
                "tombstone",
                (got.version, got.erased_reason.split(";")[0]),
                (site.model.tombs[name][-1].version, "asked"),
                name,
            )
        site.gone |= words - _said(site.model, site.model.living)
        if error is None:
            site.unfinished = {each for each in site.unfinished if each[1] not in ended}
        self.tell(f"  erase: {refusal or 'done'}")
        self.look(rng, process, name)

    def _detached(self, site: Site, forks: Sequence[model.Conversation]) -> None:
        """Take over which forks have left their parent."""
        self.calm(site)
        for each in forks:
            if site.model.living.get(each.name) is each and each.parent is not None:
                row = site.processes[0].store.conversation(each.name)
                if row.erased_at is None and row.parent is None:
                    site.model.detach(each)

    def _half_erased(self, site: Site, found: model.Conversation | None, forks: Sequence[model.Conversation]) -> None:
        """Take over what was erased or detached before the process was killed."""
        self.calm(site)
        if found is None:
            return
        self._detached(site, forks)
        for each in [*_descendants(site.model, found)[::-1], found]:
            is_living = site.model.living.get(each.name) is each
            if is_living and site.processes[0].store.conversation(each.name).erased_at is not None:
                site.model.erase(each.name, "asked")

    # ---------------------------------------------------------------- imports, other stores

    def ingest(self, rng: random.Random, site: Site, process: Process) -> None:
        sources = self.world.sources
        if not sources or rng.random() < 0.2:
            sources.append([])
        number = rng.randrange(len(sources))
        source = sources[number]
        if not source or (len(source) < 30 and rng.random() < 0.5):
            self._grow(rng, number, source)
        name = rng.choice(NAMES) if rng.random() < 0.3 else NAMES[number % len(NAMES)]
        given = list(source)
        if rng.random() < 0.1:
            given = given[: rng.randrange(1, len(given) + 1)]
        if rng.random() < 0.08:
            place = rng.randrange(len(given))
            given[place] = given[place] | (
                {"content": self.text(rng)} if "content" in given[place] else {"meta": {"x": 1}}
            )
        stored = site.model.living[name].events if name in site.model.living else []
        hidden = [event for event in given if any(event["origin"] == each.get("was", 0) for each in stored)]
        if hidden and rng.random() < 0.3:
            given.append(rng.choice(hidden) | {"cause": None})
        self.tell(f"  {name} {len(given)} events of source {number}")
        was = site.model.version(name) if name in site.model.living else 0
        try:
            got: Any = process.store.ingest(name, [built(event) for event in given])
            error = None
        except Killed:
            self.tell("  killed")
            site.bury(process)
            return self._half_imported(site, name, given, was)
        except es.EventStoreError as raised:
            error = type(raised).__name__
            if isinstance(raised, es.StoreUnavailable) and self._refused(process):
                return self._half_imported(site, name, given, was)
        refusal, added = None, 0
        try:
            added = site.model.ingest(name, given, self.world.at)
        except model.Refused as refused:
            refusal = refused.args[0]
        same("ingest: error", error, refusal, name)
        if error is None:
            same("ingest", (got.added, got.version), (added, site.model.version(name)), name)
        self.tell(f"  ingest: {refusal or f'{added} added'}")
        self.look(rng, process, name)

    def _grow(self, rng: random.Random, number: int, source: list[model.Event]) -> None:
        for _ in range(rng.randrange(1, 6)):
            place = len(source)
            origin = (f"import{number}", place if place % 2 else f"e{place}")
            draw = rng.random()
            if draw < 0.5 or not source:
                event = model.message(self.text(rng), rng.choice(("user", "agent")))
            elif draw < 0.7:
                event = model.action("tool", {"q": self.text(rng)}, self.unique("call"), self.unique("response"))
            elif draw < 0.9 and source[-1]["kind"] == "action":
                event = model.observation(self.text(rng), source[-1]["call_id"], "tool", cause=place - 1)
            elif draw < 0.95:
                event = model.condensation(rng.sample(range(place), 1), None, self.text(rng), rng.randrange(2))
            else:
                event = model.annotation("note", {"text": self.text(rng)})
            source.append(event | {"origin": origin})

    def _half_imported(self, site: Site, name: str, given: Sequence[model.Event], was: int) -> None:
        self.calm(site)
        try:
            version = site.processes[0].store.version(name)
        except es.ConversationErased:
            return
        if version == was:
            return
        if was == 0:
            same("half an import", version, len(given), name)
        receipts = version - was
        stored = len(given)
        for count in range(1, stored + 1):
            trial = site.model.snapshot()
            try:
                trial.ingest(name, given[:count], self.world.at)
            except model.Refused:
                continue
            if trial.version(name) == version:
                site.model.ingest(name, given[:count], self.world.at)
                return
        raise Finding("half an import", f"{name} has {receipts} new events of {stored}")

    def copy(self, rng: random.Random, site: Site, process: Process) -> None:
        """Copy the source to the copy, and what a second run then adds is nothing."""
        source, target = self.world.sites
        if "copy into another history" in OPEN and _redacts_another(source.model, target.model):
            return
        process, writing = rng.choice(source.processes), target.processes[0]
        moved = None
        try:
            moved = list(writing.histories.maintenance.copy_from(process.store, jobs=1))
        except Killed:
            self.tell("  killed")
        except es.StoreUnavailable:
            self.tell("  refused")
        for each in self.world.sites:
            self.calm(each)
        writing, process = target.processes[0], rng.choice(source.processes)
        if moved is None or rng.random() < 0.3:  # what a second run adds is nothing
            moved = list(writing.histories.maintenance.copy_from(process.store, jobs=1))
        problems = {each.conversation for each in moved if each.problem is not None}
        want = target.model.copy_from(source.model)
        target.gone |= source.gone
        if problems != want or rng.random() < 0.3:
            differ = {each.conversation for each in writing.histories.maintenance.differences_from(process.store)}
            differ = {name for name in differ if name in source.model.living or name in target.model.living}
            same("copied", sorted(problems | differ), sorted(want))
        self.tell(f"  copied {len(moved)}, problems {problems}")
        for name in NAMES:
            checks.quick(writing, name, tail=False)
        checks.whole(writing, rng.choice(NAMES), rng)

    def back_up(self, rng: random.Random, site: Site, process: Process) -> None:
        if site.path is None:
            return
        path = site.path.with_name(f"{site.name}-{self.world.token()}.backup")
        try:
            process.histories.maintenance.back_up(str(path))
        except Killed:
            site.bury(process)
            return
        site.backups.append((path, site.model.snapshot(), site.ring))

    def restore(self, rng: random.Random, site: Site, process: Process) -> None:
        backups = [each for each in site.backups if each[2] == site.ring]
        if not backups or site.path is None:
            return
        path, then, _ = rng.choice(backups[-3:])
        keys = process.store.database.settings.keys
        restored = restore_store(site.url, str(path), keys=keys)
        again = {name for name, each in then.living.items() if _is_gone(site.model, name, each)}
        named = set(restored.erased_since)
        if "restore names too many" in OPEN:
            named &= again
        same("erased since", sorted(named), sorted(again))
        for kept in site.path.parent.glob(f"{site.path.name}.replaced-*"):
            kept.unlink()
        refused = checks.error_of(lambda: process.histories["a"].append(built(model.message("late"))))
        same("append to a file that was replaced", refused in ("StoreUnavailable", "ConversationErased"), True, refused)
        site.model = then.snapshot()
        site.gone.clear()
        site.restored = True
        site.reopen()
        self.tell(f"  {path.name}")

    # ---------------------------------------------------------------- the form of what is stored

    def rekey(self, rng: random.Random, site: Site, process: Process) -> None:
        form = rng.choice(("key", "key", "other key", "decrypt", "compress"))
        wanted = site.ring
        match form:
            case "key" | "other key":
                new = "a" if form == "key" else "b"
                wanted = (new,)
                site.ring = (new, *(each for each in site.ring if each != new))
            case "decrypt" if site.ring:
                wanted = ()
            case _:
                form = "compress"
                site.compression = rng.choice(("none", "zlib", "zstd"))
        at_transaction = process.seam.at_transaction
        kill_at, refuse_at = process.seam.kill_at, process.seam.refuse_at
        number = site.processes.index(process)
        site.reopen()
        process = site.processes[number]
        process.seam.arm(kill_at, refuse_at)
        del at_transaction
        self._interleave(site, process, rng, neutral=True)
        self.tell(f"  {form}, with {site.ring}")
        try:
            list(process.histories.maintenance.rekey(decrypt=form == "decrypt"))
        except Killed:
            self.tell("  killed")
            site.bury(process)
            return
        except es.StoreUnavailable:
            if not self._refused(process):
                raise
            return
        process.seam.arm()
        site.ring = wanted
        site.reopen()

    def vacuum(self, rng: random.Random, site: Site, process: Process) -> None:
        if site.path is None:
            return
        try:
            process.histories.maintenance.vacuum()
        except Killed:
            site.bury(process)
            return
        except es.StoreUnavailable:
            if not self._refused(process):
                raise
            return
        site.unfinished.clear()
        said = _said(site.model, site.model.living)
        files = [path for path in site.path.parent.iterdir() if path.name.startswith(site.path.name)]
        for path in files:
            data = path.read_bytes()
            for word in site.gone - said:
                if word.encode() in data:
                    raise Finding("bytes left", f"{word} in {path.name}")

    def rebuild(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site)
        if name in site.model.living:
            process.histories.views.rebuild(name)
            checks.whole(process, name, rng)

    # ---------------------------------------------------------------- reads

    def search(self, rng: random.Random, site: Site, process: Process) -> None:
        checks.search(process, rng)

    def recent(self, rng: random.Random, site: Site, process: Process) -> None:
        checks.recent(process, rng)

    def follow(self, rng: random.Random, site: Site, process: Process) -> None:
        checks.follow(process, anew=rng.random() < 0.3)

    def audit(self, rng: random.Random, site: Site, process: Process) -> None:
        checks.audited(process, rng)

    def verify(self, rng: random.Random, site: Site, process: Process) -> None:
        checks.verified(process)
        checks.rows(process)

    def read(self, rng: random.Random, site: Site, process: Process) -> None:
        name = self.name(rng, site, living=False)
        checks.whole(process, name, rng)
        checks.rows(process)

    def reopen(self, rng: random.Random, site: Site, process: Process) -> None:
        site.reopen(site.processes.index(process))

    def jump(self, rng: random.Random, site: Site, process: Process) -> None:
        before = self.world.now
        self.world.now = max(0, self.world.now + rng.choice((-1, -60, -86_400, 3_600, 86_400)) * 1_000_000)
        self.world.ran_back |= self.world.now < before


def _given(documents: dict[str, Any]) -> dict[str, Any]:
    return {name: es.DELETED if value == model.DELETED else value for name, value in documents.items()}


def _version_of(store: model.Store, name: str) -> int | None:
    return None if name not in store.living and store.tombs.get(name) else store.version(name)


def _brief(event: model.Event) -> str:
    plain = {
        "redacted": False,
        "meta": {},
        "cause": None,
        "origin": None,
        "thinking": "",
        "thought": "",
        "tool": "tool",
    }
    told = {key: value for key, value in event.items() if key not in plain or value != plain[key]}
    return " ".join(f"{key}={value!r}" for key, value in told.items() if value is not None and key != "shown")


def _redacts_another(source: model.Store, target: model.Store) -> bool:
    """Whether a copy went on by itself, and its source has redacted events since."""
    for name, ours in target.living.items():
        theirs = source.living.get(name)
        if theirs is not None and theirs.tag == ours.tag:
            both = list(zip(ours.events, theirs.events, strict=False))
            grown = ours.version > theirs.version or any(a["tag"] != b["tag"] for a, b in both)
            if grown and any(b["redacted"] and not a["redacted"] for a, b in both):
                return True
    return False


def _shares(each: model.Conversation, found: model.Conversation, event_id: int) -> bool:
    return each.version > event_id and each.events[event_id] is found.events[event_id]


def _descendants(store: model.Store, found: model.Conversation) -> list[model.Conversation]:
    below: list[model.Conversation] = []
    for each in store.forks(found):
        below += [each, *_descendants(store, each)]
    return below


def _words_of(event: model.Event) -> set[str]:
    return {word for word in checks.split(event) if word.startswith("word")}


def _said_in(found: model.Conversation, ids: Sequence[int]) -> set[str]:
    return {word for each in ids for word in _words_of(found.events[each])}


def _said(store: model.Store, names: Any) -> set[str]:
    return {
        word
        for name in names
        if name in store.living
        for event in store.living[name].events
        if not event["redacted"]
        for word in _words_of(event)
    }


def _is_gone(store: model.Store, name: str, each: model.Conversation) -> bool:
    return any(tomb.tag == each.tag for tomb in store.tombs.get(name, []))


WEIGHTS = {
    "append": 34, "forget": 8, "request": 2, "retract": 3, "pop": 2, "document": 5, "attributes": 4, "create": 3,
    "step": 3, "interrupt": 2, "fork": 6, "redact": 4, "erase": 3, "ingest": 4, "copy": 0.7, "back_up": 0.7,
    "restore": 0.7, "rekey": 0.4, "vacuum": 0.5, "rebuild": 0.5, "search": 1, "recent": 2, "follow": 2, "audit": 1,
    "verify": 0.5, "read": 2, "reopen": 2, "jump": 2,
}  # fmt: skip
_FAULTY = {
    *("append", "forget", "request", "retract", "pop", "document", "attributes", "create", "step", "interrupt"),
    *("fork", "redact", "erase", "ingest", "copy", "rekey", "vacuum"),
}
_INTERLEAVED = {*("append", "forget", "request", "pop", "document", "attributes", "create", "fork", "vacuum", "copy")}
_NEUTRAL = {"vacuum", "copy"}
_BETWEEN = ("append", "append", "forget", "document", "attributes", "fork", "redact", "erase", "create", "retract")


def drawn(seed: str, count: int, without: frozenset[str] = frozenset()) -> list[Step]:
    rng = random.Random(f"steps {seed}")
    kinds = [kind for kind in WEIGHTS if kind not in without]
    chosen = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=count)
    return [(kind, rng.randrange(2**48)) for kind in chosen]
