"""The steps: each draws what it does from its own seed and from the model, does it, and tells the
model.

A step that is killed, or refused by its disk, has happened as a whole or not at all: what the
recorder committed tells which. Of those that take several transactions, what is left is asked for,
and must be a beginning of what was to come.
"""

import json
import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import foldlog.eventstore as es
from foldlog import _aio
from foldlog._aio import PendingAppend
from foldlog.condensers import Condensation, NoCondensationAvailable
from foldlog.eventstore.opening import restore_store
from tests.simulation import checks, model, plain
from tests.simulation.checks import same
from tests.simulation.plain import as_stored, built, expected, said
from tests.simulation.seam import Killed
from tests.simulation.world import NAMES, WORDS, Finding, Process

Step = tuple[str, int]


class Steps:
    """Takes the steps of one world. ``met``: another process took a step within the present one."""

    def __init__(self, world):
        self.world = world
        self.nested = self.met = False
        self.fault = ""
        self.about = None
        self.settle = None
        self.earlier = None

    def take(self, step, kill_at=0):
        """Take one step, with the faults and the steps of other processes that its seed draws; or
        kill its process before a statement.
        """
        kind, seed = step
        rng = random.Random(seed)
        site = self.world.sites[0] if rng.random() < 0.93 else self.world.sites[1]
        process = rng.choice(site.processes)
        self.world.now += rng.randrange(1, 2_000_000)
        self.fault, self.met, self.about, self.settle, self.earlier = "", False, None, None, None
        seam = process.seam
        draw = rng.random()
        seam.arm(kill_at)
        if kill_at:
            self.fault = "killed"
        elif draw < 0.05 and kind in FAULTY:
            self.fault = "killed"
            seam.arm(kill_at=rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 15, 20)))
        elif draw < 0.08 and kind in FAULTY:
            self.fault = "refused"
            seam.arm(refuse_at=rng.choice((1, 1, 1, 2, 3)))
        elif draw < _MEETS[kind]:
            self._interleave(site, process, rng)
        self.tell(
            f"{site.name}.{site.processes.index(process)} {kind}"
            + (f" ({self.fault})" if self.fault else "")
        )
        try:
            self.do(kind, rng, site, process)
        finally:
            self.nested = False
            for each in self.world.sites:
                self.calm(each)

    def do(self, kind, rng, site, process):
        """Do what a step does; if it makes a conversation longer, in one that may become longer."""
        if kind not in _GROWING:
            getattr(self, kind)(rng, site, process)
            return
        found = self.growing(rng, site)
        if found is not None:
            getattr(self, kind)(rng, process, found)

    def tell(self, line):
        self.world.told.append("  " * self.nested + line)

    def _interleave(self, site, process, rng):
        """Have another process take a step before one of the transactions and questions of this
        one.
        """
        others = [each for each in site.processes if each is not process]
        if not others:
            return
        other, left, seed = (
            rng.choice(others),
            rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 8, 11)),
            rng.randrange(2**32),
        )
        kind = rng.choice(_BETWEEN)

        def stop():
            nonlocal left
            left -= 1
            if left:
                return
            process.seam.at_transaction = None
            settle, self.settle = self.settle, None
            if settle is None and process.seam.commits:
                return  # it has happened, and the model is told afterwards
            other.seam.arm()
            self.nested = True
            if settle is not None:
                settle()
            else:
                self.earlier = site.model.snapshot()
            self.tell(f"{site.name}.{site.processes.index(other)} {kind} between")
            self.do(kind, random.Random(seed), site, other)
            self.nested, self.met, self.settle = False, True, settle

        process.seam.at_transaction = stop

    # ---------------------------------------------------------------- doing it, and telling the
    # model

    def both(self, process, label, product, told, compare=lambda got, want: None, *, name):
        """Do it, in one transaction, and tell the model; compare what they return, or the errors
        that they raise.
        """
        site = process.site
        before = process.seam.commits
        got, error = self.through(process, product)
        if error == "Killed":
            committed = process.seam.commits > before
            self.tell(f"  killed, {'committed' if committed else 'not committed'}")
            if committed and self._version(site, name) == _version_of(site.model, name):
                # a question committed too, such as one that stored what it folded
                committed = False
            if committed:
                told()
            return None
        if error == "Refused":
            return None
        if self.earlier is not None and self._version(site, name) == _version_of(site.model, name):
            # It appended nothing, so its answer may be that of the moment before the other
            # process's step.
            now, site.model = site.model, self.earlier
            try:
                self._agree(label, got, error, told, compare)
                return got
            except Finding:
                pass
            finally:
                site.model = now
        self._agree(label, got, error, told, compare)
        return got

    def change(self, rng, process, found, product, events, **options):
        """Append to a conversation; compare what was recorded, and then the conversation."""
        name = found.name
        self.tell(f"  {name} {[_brief(each) for each in events]} {options or ''}")
        self.both(
            process,
            "change",
            lambda: product(process.histories[name]),
            lambda: process.site.model.append(name, events, self.world.at, **options),
            self.recorded,
            name=name,
        )
        self.look(rng, process, name)

    def _agree(self, label, got, error, told, compare):
        want, refusal = None, None
        try:
            want = told()
        except model.Refused as refused:
            refusal = refused.args[0]
        same(f"{label}: error", error, refusal)
        if error is None:
            compare(got, want)
        self.tell(f"  {label}: {refusal or 'done'}")

    def through(self, process, call, settle=None):
        """Call it; return its answer, and its error. What takes several transactions gives
        ``settle``, which tells the model what has happened by now: it is called at its end,
        whatever it is, and before another process's step.
        """
        got = None
        error = None
        self.settle = settle
        try:
            got = call()
        except Killed:
            error = "Killed"
        except es.EventStoreError as raised:
            refused = isinstance(raised, es.StoreUnavailable) and self._refused(process)
            error = "Refused" if refused else checks.name_of(raised)
        self.settle = None
        if error is not None:
            self.tell(f"  {error}")
        if settle is not None or error == "Killed":
            commits = process.seam.commits
            self.calm(process.site)
            process.seam.commits = commits
        if settle is not None:
            settle()
        return got, error

    @staticmethod
    def _version(site, name):
        try:
            return site.processes[0].store.version(name)
        except es.ConversationErased:
            return None

    def _state(self, site, name):
        version = self._version(site, name)
        events = site.processes[0].store.events(name) if version else ()
        return version, [event.id for event in events if event.redacted is not None]

    @staticmethod
    def _refused(process):
        return 0 < process.seam.refuse_at <= process.seam.transactions

    @staticmethod
    def calm(site):
        """End the faults of this step."""
        for number, process in enumerate(site.processes):
            process.seam.arm()
            if process.seam.dead:
                site.reopen(number)

    def look(self, rng, process, name):
        """Compare, in this process or another one, briefly or whole."""
        if self.nested:
            return
        self.calm(process.site)
        draw = rng.random()
        if draw < 0.5 or process not in process.site.processes:  # it was killed
            process = rng.choice(process.site.processes)
        if draw < 0.03:
            checks.whole(process, name, rng)
        else:
            checks.quick(process, name, tail=draw < 0.25)

    def name(self, rng, site, *, living=True, forked=False):
        """Draw a conversation; within another step often the one that it is about. ``forked``: half
        of the time one that has forks.
        """
        names = list(site.model.living)
        if forked and rng.random() < 0.5:
            names = [each.parent.name for each in site.model.living.values() if each.parent]
        if self.nested and self.about is not None and rng.random() < 0.6:
            return self.about
        name = rng.choice(names) if names and (living or rng.random() < 0.7) else rng.choice(NAMES)
        if not self.nested:
            self.about = name
        return name

    def growing(self, rng, site):
        """Draw a conversation that may become longer."""
        name = self.name(rng, site)
        found = site.model.living.get(name)
        if found is None or found.version <= self.world.long or self.nested:
            return found
        some = [each for each in site.model.living.values() if each.version <= self.world.long]
        if not some:
            self.world.long += 6
            return found
        found = rng.choice(some)
        self.about = found.name
        return found

    def history(self, rng, process, name):
        """A handle: one that this process has held for long, or a new one."""
        if rng.random() < 0.6:
            if name not in process.held:
                process.held[name] = (process.histories[name], None)
            return process.held[name]
        return process.histories[name], None

    def hold(self, process, name, history, *, done):
        """A handle that was used for the first time has met the conversation that has this id now.
        If it was refused, nothing tells whether it read the conversation: it is let go.
        """
        if process.held.get(name) != (history, None):
            return
        if done and name in process.site.model.living:
            process.held[name] = (history, process.site.model.living[name].tag)
        else:
            del process.held[name]

    # ---------------------------------------------------------------- appends

    def text(self, rng):
        return f"{self.world.token()} {rng.choice(WORDS)}"

    def unique(self, what):
        return f"{what}-{self.world.token()[4:]}"

    def turn(self, rng, found, version):
        """What an agent's loop records next, at this version."""
        draw = rng.random()
        if found is not None and draw < 0.5 and (open_calls := found.open_calls(found.shown())):
            calls = rng.sample(open_calls, rng.randrange(1, len(open_calls) + 1))
            actions = [found.events[each] for each in calls]
            return [
                plain.observation(
                    self.text(rng),
                    each["call_id"],
                    each["tool"],
                    cause=each["id"],
                    is_error=rng.random() < 0.1,
                )
                for each in actions
            ]
        if draw < 0.6:
            response, thinking = self.unique("response"), rng.choice(("", "", "hm"))
            made = [plain.reasoning("hm") for _ in range(rng.choice((0, 0, 1, 2)))]
            if rng.random() < 0.3:
                made.append(plain.message(self.text(rng), "agent", meta={"reply": response}))
            calls = len(made)
            for number in range(rng.choice((1, 1, 2, 3))):
                call = rng.choice((self.unique("call"), "again")) if rng.random() < 0.9 else None
                arguments = {"q": self.text(rng)}
                thought = self.text(rng) if number == 0 and rng.random() < 0.3 else ""
                made.append(
                    plain.action(
                        "tool", arguments, call, response, thought=thought, thinking=thinking
                    )
                )
                thinking = ""
            if rng.random() < 0.5:
                for number, each in enumerate(made[calls:], calls):
                    made.append(
                        plain.observation(
                            self.text(rng), each["call_id"], "tool", cause=version + number
                        )
                    )
            return made
        if draw < 0.68:
            return [plain.annotation("note", {"text": self.text(rng)})]
        if draw < 0.72:
            return [plain.observation(self.text(rng), "nobody", "tool")]
        content = self.text(rng)
        if rng.random() < 0.1:
            content = (content, rng.choice((b"\0\xff", b"picture" * 50)))
        return [
            plain.message(
                content,
                rng.choice(("user", "user", "agent", "environment")),
                meta=rng.choice(({}, {"n": 1}, {"model": "m", "usage": {}, "cost": 0.5})),
            )
        ]

    def append(self, rng, site, process):
        found = self.growing(rng, site) if rng.random() < 0.7 else None
        name = found.name if found is not None else self.name(rng, site, living=False)
        found = site.model.living.get(name)
        history, handle = self.history(rng, process, name)
        version = 0 if found is None else found.version
        events = self.turn(rng, found, version)
        if rng.random() < 0.25:
            events += self.turn(rng, None, version + len(events))
        options = {}
        documents = {}
        draw = rng.random()
        if draw < 0.15:
            options["expected"] = rng.choice(
                (version, version, max(0, version - 1), version + 1, 0)
            )
        if draw < 0.03 and events[0]["kind"] == "message":
            events[0]["cause"] = version + rng.randrange(5)
            options.pop("expected")
        elif 0.15 < draw < 0.3:
            key = options["key"] = f"k{rng.randrange(3)}"
            known = {} if found is None else found.keys
            if key in known:
                payload, hidden = known[key][0], found is not None and found.hides(key)
                # of a redacted event the store knows only the size
                if hidden or rng.random() < 0.7:
                    events, documents = payload
                    events = [dict(event) for event in events]
                    options["expected"] = rng.choice((None, 0, version))
                else:  # longer, for another process may redact it before
                    events = [plain.message(f"{self.text(rng)} {self.text(rng)}")]
        elif 0.3 < draw < 0.4:
            options["dedupe"] = True
            numbers = rng.sample(range(6), rng.randrange(1, 4))
            events = [
                plain.message(self.text(rng), origin=("src", n if n % 2 else f"s{n}"))
                for n in numbers
            ]
        elif 0.4 < draw < 0.45:
            documents = self.values(rng, found)
        elif draw > 0.99:
            events = []
        same_events = [dict(event) for event in events]

        def product():
            given = {"documents": _given(documents)} if documents else {}
            if options.get("expected") is not None:
                given["expected_version"] = options["expected"]
            if options.get("dedupe"):
                given["dedupe"] = "origin"
            made = [built(event) for event in same_events]
            return history.append(made, idempotency_key=options.get("key"), **given)

        def told():
            return site.model.append(
                name, same_events, self.world.at, documents=documents, handle=handle, **options
            )

        self.tell(f"  {name} {options} {[_brief(each) for each in events]} {documents or ''}")
        done = self.both(process, "append", product, told, self.recorded, name=name) is not None
        self.hold(process, name, history, done=done)
        self.look(rng, process, name)

    def together(self, rng, site, process):
        """Make appends that share transactions, as those of many tasks do."""
        pending, told = [], []
        for _ in range(rng.randrange(2, 5)):
            name = self.name(rng, site, living=False)
            found = site.model.living.get(name)
            version = 0 if found is None else found.version
            options = {}
            if rng.random() < 0.4:
                options["expected"] = version + rng.choice((0, 0, 1))
            if rng.random() < 0.3:
                key = f"k{rng.randrange(3)}"
                options |= {} if found is not None and found.hides(key) else {"key": key}
            events = self.turn(rng, None, version)
            self.tell(f"  {name} {options} {[_brief(each) for each in events]}")
            given = {"idempotency_key": options.get("key")}
            if "expected" in options:
                given["expected_version"] = options["expected"]
            pending.append(
                PendingAppend(process.histories[name], [built(each) for each in events], **given)
            )
            told.append(partial(site.model.append, name, events, self.world.at, **options))
        for outcome, tell in zip(_aio.append_all(process.store, pending), told, strict=True):
            error = None if outcome.error is None else checks.name_of(outcome.error)
            self._agree("together", outcome.value, error, tell, self.recorded)
        self.look(rng, process, self.name(rng, site, living=False))

    def recorded(self, got, want):
        same("recorded", [said(each.event) for each in got], [expected(each) for each in want])
        same(
            "recorded at",
            [self.world.at_of(each.recorded_at) for each in got],
            [each["at"] for each in want],
        )

    def forget(self, rng, process, found):
        """Append a condensation that names what it likes."""
        name = found.name
        view = found.shown()
        version = found.version
        summary, offset = (self.text(rng), rng.randrange(4)) if rng.random() < 0.6 else (None, None)
        draw = rng.random()
        if draw < 0.4 and view.ids:
            ids = rng.sample(view.ids, rng.randrange(1, min(len(view.ids), 5) + 1))
            event = plain.condensation(ids, None, summary, offset)
        elif draw < 0.7:
            first = rng.randrange(version)
            last = min(version - 1, first + rng.randrange(6))
            event = plain.condensation(None, (first, last), summary, offset)
        elif draw < 0.8:
            event = plain.condensation([version + rng.randrange(3)], None, summary, offset)
        elif draw < 0.9:
            event = plain.condensation([-(rng.randrange(version + 2) + 2)], None, summary, offset)
        else:
            event = plain.condensation([], None, summary, offset)
        history, handle = self.history(rng, process, name)

        def told():
            return process.site.model.append(name, [event], self.world.at, handle=handle)

        self.tell(f"  {name} {_brief(event)}")
        answer = self.both(
            process, "forget", lambda: history.append(built(event)), told, self.recorded, name=name
        )
        self.hold(process, name, history, done=answer is not None)
        self.look(rng, process, name)

    def request(self, rng, process, found):
        self.change(
            rng,
            process,
            found,
            lambda history: (history.request_condensation("drawn"),),
            [plain.request("drawn")],
        )

    def retract(self, rng, process, found):
        version = rng.randrange(found.version + 2)
        self.change(
            rng,
            process,
            found,
            lambda history: (history.retract(version, "drawn"),),
            [plain.retraction(version, "drawn")],
        )

    def pop(self, rng, process, found):
        site, name = process.site, found.name
        count = rng.randrange(1, 4)
        self.tell(f"  {name} {count}")

        def ids():
            taken = []
            for each in reversed(site.model.get(name).shown().ids):
                if each < 0 or len(taken) == count:
                    break
                taken.insert(0, each)
            return taken

        def told():
            popped = ids()
            if popped:
                site.model.append(name, [plain.retraction(popped[0], "drawn")], self.world.at)
            return popped

        def compare(got, want):
            same("popped", [event.id for event in got], want, name)

        self.both(
            process,
            "pop",
            lambda: process.histories[name].pop(count, "drawn"),
            told,
            compare,
            name=name,
        )
        self.look(rng, process, name)

    def values(self, rng, found):
        """Draw new values of documents: others, or what they are with a part of it changed."""
        now = {} if found is None else found.documents()
        values = {}
        for name in rng.sample(("state", "title", "log", "\ud83d"), rng.randrange(1, 3)):
            if name in now and rng.random() < 0.5:
                values[name] = _edited(now[name], rng)
            elif name == "log" and rng.random() < 0.7:
                values[name] = list(range(rng.randrange(1, 40)))
            else:
                values[name] = rng.choice(_VALUES)
        return values

    def document(self, rng, process, found):
        values = self.values(rng, found)
        self.change(
            rng,
            process,
            found,
            lambda history: history.append([], documents=_given(values)),
            [],
            documents=values,
        )

    def attributes(self, rng, process, found):
        site, name = process.site, found.name
        changed = {
            key: rng.choice(values) for key, values in _ATTRIBUTES.items() if rng.random() < 0.5
        }
        self.tell(f"  {name} {changed}")

        def told():
            now = dict(site.model.get(name).documents().get("attributes", {}))
            now |= model.checked(changed)
            now = {key: value for key, value in now.items() if value is not None}
            site.model.append(name, [], self.world.at, documents={"attributes": now})
            return now

        def compare(got, want):
            same("attributes", got, want, name)

        self.both(
            process,
            "attributes",
            lambda: process.histories[name].set_attributes(**changed),
            told,
            compare,
            name=name,
        )
        self.look(rng, process, name)

    def create(self, rng, site, process):
        gone = [
            name for name in NAMES if name not in site.model.living and site.model.tombs.get(name)
        ]
        name = rng.choice(gone) if gone and rng.random() < 0.7 else rng.choice(NAMES)
        replace = rng.random() < 0.8
        attributes = rng.choice(
            ({"app": "x"}, {"app": "y", "tags": ["t"]}, {"n": 1}, {"n": 0.5}, {})
        )
        self.tell(f"  {name} {attributes} {replace=}")
        product = lambda: process.histories.create(name, attributes, replace_erased=replace)  # noqa: E731
        told = lambda: site.model.create(name, attributes, self.world.at, replace=replace)  # noqa: E731
        self.both(process, "create", product, told, name=name)
        self.look(rng, process, name)

    # ---------------------------------------------------------------- what the store decides by
    # itself

    def on_its_own(self, process, name, call):
        """Call it, and take over into the model what the store appended of itself."""
        site = process.site
        added = []

        def settle():
            found = site.model.living.get(name)
            for each in () if found is None else site.processes[0].store.log(name, found.version):
                event = as_stored(each.event) | {
                    "at": self.world.at_of(each.recorded_at),
                    "tag": model.new_tag(),
                }
                found.events.append(event)
                added.append(event)

        got, error = self.through(process, call, settle)
        if error not in _STOPPED and not (self.met and name not in site.model.living):
            same("on its own: error", error, None, name)
        return got, error, added

    def step(self, rng, process, found):
        name, before, asked = found.name, found.shown(), rng.random() < 0.4
        history = process.histories[name]
        self.tell(f"  {name} {asked=}")

        def call():
            with suppress(NoCondensationAvailable):
                return history.condense("drawn") if asked else history.step()

        got, error, added = self.on_its_own(process, name, call)
        kinds = [event["kind"] for event in added]
        if asked and got is not None:
            same("condense", kinds[0], "condensation_request", name)
        if isinstance(got, Condensation) and error is None and not self.met:
            same("condensed", kinds[-1], "condensation", name)
            after = found.shown()
            gone = set(before.ids) - set(after.ids)
            if not gone:
                raise Finding("condensed", f"{name}: the digest forgot nothing that was shown")
            waiting = {
                one
                for batch in found.batches(before)
                if batch & set(found.open_calls(before))
                for one in batch
            }
            if set(after.left) - set(before.left) - waiting:
                raise Finding("condensed", f"{name}: it took a call from its answer: {after.left}")
            if len(after.ids) > len(before.ids):
                raise Finding(
                    "condensed", f"{name}: {len(before.ids)} events became {len(after.ids)}"
                )
        self.look(rng, process, name)

    def close_open_calls(self, rng, process, found):
        name, calls = found.name, found.open_calls(found.shown())
        self.tell(f"  {name} {calls}")
        _, error, added = self.on_its_own(
            process, name, lambda: process.histories[name].close_open_calls("drawn")
        )
        if not self.met and (error is None or added):
            told = [(event["kind"], event["cause"], event["is_error"]) for event in added]
            same("close_open_calls", told, [("observation", call, True) for call in calls], name)
            same("closed", found.open_calls(found.shown()), [], name)
        self.look(rng, process, name)

    # ---------------------------------------------------------------- forks, redaction, erasure

    def fork(self, rng, site, process):
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

    def refused(self, call):
        try:
            call()
        except model.Refused as refused:
            return str(refused.args[0])
        return None

    def redact(self, rng, site, process):
        name = self.name(rng, site, forked=True)
        found = site.model.living.get(name)
        if found is None:
            return
        event_id = rng.randrange(found.version + (rng.random() < 0.05))
        if found.own_from < found.version and rng.random() < 0.8:
            event_id = rng.randrange(found.own_from, found.version)
        summaries = rng.random() < 0.5
        self.tell(f"  {name} {event_id} with_summaries={summaries}")
        refusals = set()
        taken = {}
        must = {}
        surely = set()

        def family():
            if event_id >= found.version:
                return []
            return [
                each
                for each in site.model.living.values()
                if each is found or _shares(each, found, event_id)
            ]

        def settle():
            """Take over the receipts, which say what was redacted."""
            refusals.add(self.refused(lambda: site.model.check_redactable(name, event_id)))
            if any(self._built_upon(each, event_id) for each in family()):
                refusals.add("CannotRedact")
            for each in family():
                for one in list(site.processes[0].store.log(each.name, each.version)):
                    if not isinstance(one.event, es.Redaction):
                        raise Finding("redact", f"{each.name}: {one.event}")
                    taken.setdefault(each, set()).update(one.event.event_ids)
                    site.gone |= _said_in(each, one.event.event_ids)
                    at = self.world.at_of(one.recorded_at)
                    site.model.redact(
                        each.name, one.event.event_ids, at, one.event.by, one.event.reason
                    )

        if self.refused(lambda: site.model.check_redactable(name, event_id)) is None:
            for each in family():
                quotes, _ = each.quotes(event_id)
                surely = quotes if each is found else surely
                quotes = {
                    one
                    for one in quotes
                    if one >= each.own_from and not each.events[one]["redacted"]
                }
                hidden = found.events[event_id]["redacted"]
                must[each] = ({event_id} if each is found and not hidden else set()) | (
                    quotes if summaries else set()
                )
        history = process.histories[name]
        receipt, error = self.through(
            process,
            lambda: history.redact(event_id, reason="asked", by="sim", with_summaries=summaries),
            settle,
        )
        if error not in _STOPPED and error not in refusals:
            raise Finding("redact: error", f"{name}: got {error}, expected {refusals}")
        for each, got in taken.items():
            may = ({event_id} if each is found else set()) | (
                each.quotes(event_id)[1] if summaries else set()
            )
            if not got <= may:
                raise Finding("redacted", f"{each.name}: {got}, at most {may}")
        if error is None and not self.met:
            for each, wanted in must.items():
                if not wanted <= taken.get(each, set()):
                    raise Finding("redacted", f"{each.name}: {taken.get(each)}, at least {wanted}")
            quotes = {each.event_id for each in receipt.quotes if each.conversation == name}
            perhaps = found.quotes(event_id)[1]
            if not surely - quotes <= {event_id} or not quotes <= perhaps | {event_id}:
                raise Finding(
                    "quotes",
                    f"{name} {event_id}: got {quotes}, at least {surely}, at most {perhaps}",
                )
        if (
            error is None
            and site.model.living.get(name) is found
            and not found.events[event_id]["redacted"]
        ):
            raise Finding("redacted", f"{name}: event {event_id} was not")
        self.look(rng, process, name)

    @staticmethod
    def _built_upon(found, event_id):
        """Whether a later change of a document may be told as a difference from this one."""
        kinds = [each["kind"] == "document_changes" for each in found.events[event_id:]]
        return bool(kinds) and kinds[0] and any(kinds[1:])

    def erase(self, rng, site, process):
        name = self.name(rng, site, living=rng.random() < 0.9, forked=True)
        found = site.model.living.get(name)
        way = rng.choice(("", "with_forks", "detach_forks"))
        self.tell(f"  {name} {way}")
        doomed = [] if found is None else [*_descendants(site.model, found)[::-1], found]
        words = _said(doomed)
        began = {(each.name, each.tag) for each in doomed or site.model.tombs.get(name, [])[-1:]}
        refusal = lambda: self.refused(lambda: site.model.check_erasable(name, forks=bool(way)))  # noqa: E731
        refusals = {refusal()}

        def settle():
            """Take over what was erased or detached by now."""
            refusals.add(refusal())
            meant = found or site.model.living.get(name)
            now = [] if meant is None else [*_descendants(site.model, meant)[::-1], meant]
            for each in [*now, *doomed]:  # also forks that another process has detached meanwhile
                if site.model.living.get(each.name) is not each:
                    continue
                row = site.processes[0].store.conversation(each.name)
                if row.erased_at is not None and (each is meant or way == "with_forks"):
                    site.model.erase(each, "asked")
                elif each.parent is meant and row.parent is None and way == "detach_forks":
                    site.model.detach(each)

        options = {way: True} if way else {}
        got, error = self.through(
            process, lambda: process.histories.erase(name, reason="asked", **options), settle
        )
        if any(site.model.living.get(each.name) is not each for each in doomed):
            site.gone |= words - _said(site.model.living.values())
        if error in _STOPPED:
            site.unfinished |= {each for each in began if self.is_gone(site, *each)}
        elif error not in refusals:
            raise Finding("erase: error", f"{name}: got {error}, expected {refusals}")
        elif error is None:
            site.unfinished -= began
            if site.model.living.get(name) is found is not None:
                raise Finding("erased", f"{name}: it was not")
            if not self.met:
                tomb = site.model.tombs[name][-1]
                same(
                    "tombstone",
                    (got.version, got.erased_reason.split(";")[0]),
                    (tomb.version, "asked"),
                    name,
                )
        self.look(rng, process, name)

    @staticmethod
    def is_gone(site, name, tag):
        return any(tomb.tag == tag for tomb in site.model.tombs.get(name, []))

    # ---------------------------------------------------------------- imports, other stores

    def ingest(self, rng, site, process):
        """Import a history that grows: events, or a file of OpenHands, V0 or V1."""
        sources = self.world.sources
        if not sources or rng.random() < 0.2:
            sources.append(("", []))
        number = rng.randrange(len(sources))
        form, source = sources[number]
        if not source or (len(source) < 30 and rng.random() < 0.5):
            self._grow(rng, form, number, source)
        name = self.about = rng.choice(NAMES) if rng.random() < 0.3 else NAMES[number % len(NAMES)]
        given = list(source)
        if rng.random() < 0.1:
            given = given[: rng.randrange(1, len(given) + 1)]
        if rng.random() < 0.08:
            place = rng.randrange(len(given))
            name_of = {"message": "content", "observation": "content", "condensation": "summary"}
            changed = name_of.get(given[place]["kind"])
            given[place] = given[place] | (
                {"meta": {"x": 1}} if changed is None else {changed: self.text(rng)}
            )
        stored = site.model.living[name].events if name in site.model.living else []
        hidden = [
            event
            for event in given
            if any(event["origin"] == each.get("was", 0) for each in stored)
        ]
        if hidden and not form and rng.random() < 0.3:
            given.append(rng.choice(hidden) | {"cause": None})
        self.tell(f"  {name} {len(given)} events of source {number} {form}")
        refusal = lambda: self.refused(lambda: site.model.places(name, given, form))  # noqa: E731
        refusals, whole = {refusal()}, len(given)

        def settle():
            """Take over what is there by now: nothing of a new history, a beginning of one that
            grows.
            """
            version, was = self._version(site, name), _version_of(site.model, name)
            if version is not None and was is not None and version > was:
                events = site.model.living[name].events if was else []
                count = sum(not model.is_of_others(event, form) for event in events) + version - was
                if not self.refused(
                    lambda: site.model.ingest(name, given[:count], self.world.at, form)
                ):
                    was = site.model.version(name) if count == whole or was else None
            if version != was:
                raise Finding(
                    "half an import", f"{name} has {version} events; {was}, and some of {whole}"
                )
            refusals.add(refusal())

        path = self.world.folder / f"source{number}.jsonl"
        if form:
            path.write_text("".join(json.dumps(plain.record(each, form)) + "\n" for each in given))
        call = (
            partial(process.histories.import_, path, conversation=name, format=form)
            if form
            else partial(process.store.ingest, name, [built(each) for each in given])
        )
        _, error = self.through(process, call, settle)
        if error == "AnotherHistory" and any(event["redacted"] for event in stored):
            # the files that were imported first tell more than what is left of redacted events
            refusals.add(error)
        elif error in ("AnotherHistory", "ReadOtherwise") or (
            error == "VersionConflict" and self.met
        ):
            error = "HistoryDiverged"
        if self.met:
            refusals.add("HistoryDiverged")
        origins = [event["origin"] for event in given]
        # What was redacted must not come back, here or under another name. Where this history goes
        # on otherwise, the refusal may be that one.
        held = [
            each
            for each in site.model.living.values()
            if each.name != name or "HistoryDiverged" in refusals
        ]
        if any(
            event["redacted"] and event["was"] in origins for each in held for event in each.events
        ):
            refusals.add("WasRedacted")
        if error not in _STOPPED and error not in refusals:
            raise Finding("ingest: error", f"{name}: got {error}, expected {refusals}")
        if (
            error is None
            and not self.met
            and (site.model.version(name) < whole or None not in refusals)
        ):
            raise Finding("ingest", f"{name} has {site.model.version(name)} events of {whole}")
        self.look(rng, process, name)

    def _grow(self, rng, form, number, source):
        for _ in range(rng.randrange(1, 6)):
            place = len(source)
            draw = rng.random()
            forgotten = [each for event in source for each in event.get("forgotten_event_ids", ())]
            shown = [
                each
                for each in range(place)
                if source[each]["kind"] == "message" and each not in forgotten
            ]
            if (
                draw < 0.5
                or not source
                or form == "openhands-v0"
                or (form and (draw < 0.8 or not shown))
            ):
                event = plain.message(self.text(rng), rng.choice(("user", "agent")))
            elif form or 0.9 < draw < 0.95:
                ids = rng.sample(shown if form else range(place), 1)
                event = plain.condensation(ids, None, self.text(rng), rng.randrange(2))
            elif draw < 0.7:
                event = plain.action(
                    "tool", {"q": self.text(rng)}, self.unique("call"), self.unique("response")
                )
            elif draw < 0.9 and source[-1]["kind"] == "action":
                event = plain.observation(
                    self.text(rng), source[-1]["call_id"], "tool", cause=place - 1
                )
            else:
                event = plain.annotation("note", {"text": self.text(rng)})
            origin = {"openhands-v0": place, "openhands-v1": f"event-{place}"}.get(form)
            if origin is None:
                origin = (place, f"e{place}", f"event {place}")[place % 3]
            if form and event["kind"] == "condensation":
                event["source"] = "environment"
            source.append(event | {"origin": (form or f"import{number}", origin)})

    def copy(self, rng, site, process):
        """Copy the source to the copy, and what a second run then adds is nothing."""
        source, target = self.world.sites
        process, writing = rng.choice(source.processes), target.processes[0]

        def copied():
            return writing.histories.maintenance.copy_from(process.store, jobs=1)

        def settle():
            """Take over what is copied by now, where another process is about to change the
            source.
            """
            for name in source.model.names() if self.nested else ():
                partly = [writing.store.version(name)] if name in target.model.living else []
                for until in (None, *partly):
                    trial = target.model.snapshot()
                    trial.copy(name, source.model, until)
                    if self._state(target, name) == _state_of(trial, name):
                        target.model = trial
                        break

        moved, error = self.through(process, copied, settle)
        self.calm(target)
        if error is not None or self.met or rng.random() < 0.3:  # what a second run adds is nothing
            writing, process = target.processes[0], rng.choice(source.processes)
            moved = copied()
        problems = {each.conversation for each in moved if each.problem is not None}
        want = target.model.copy_from(source.model)
        target.gone |= source.gone
        if problems != want or rng.random() < 0.3:
            differ = {
                each.conversation
                for each in writing.histories.maintenance.differences_from(process.store)
            }
            differ = {
                name
                for name in differ
                if name in source.model.living or name in target.model.living
            }
            same("copied", sorted(problems | differ), sorted(want))
        self.tell(f"  copied {len(moved)}, problems {sorted(problems)}")
        for name in NAMES:
            checks.quick(writing, name, tail=False)
        checks.whole(writing, rng.choice(NAMES), rng)

    def back_up(self, rng, site, process):
        if site.path is None:
            return
        path = site.path.with_name(f"{site.name}-{self.world.token()}.backup")
        _, error = self.through(
            process, lambda: process.histories.maintenance.back_up(str(path)), lambda: None
        )
        if error is None and not self.met:  # else it may be of the moment before, or after
            site.backups.append((path, site.model.snapshot(), site.ring))

    def restore(self, rng, site, process):
        backups = [each for each in site.backups if each[2] == site.ring]
        if not backups or site.path is None:
            return
        path, then, _ = rng.choice(backups[-3:])
        keys = process.store.database.settings.keys
        restored = restore_store(site.url, str(path), keys=keys)
        tombs = site.model.tombs
        erased = {
            name
            for name, each in then.living.items()
            if each.tag in {tomb.tag for tomb in tombs.get(name, ())}
        }
        same("erased since", list(restored.erased_since), sorted(erased))
        for kept in site.path.parent.glob(f"{site.path.name}.replaced-*"):
            kept.unlink()
        refused = checks.error_of(
            lambda: process.histories["a"].append(built(plain.message("late")))
        )
        same(
            "append to a file that was replaced",
            refused in ("StoreUnusable", "ConversationErased"),
            True,
            refused,
        )
        site.model = then.snapshot()
        site.gone.clear()
        site.reopen()
        self.tell(f"  {path.name}")

    def lose_power(self, rng, site, process):
        """Take some steps, and lose the end of the log that SQLite had not synced: the newest
        commits, whole ones.
        """
        if site.path is None:
            return
        log = Path(f"{site.path}-wal")
        states = [(_length(log), site.model.snapshot())]
        on_disk = site.path.stat()
        for _ in range(rng.randrange(1, 4)):
            kind = rng.choice(
                ("append", "append", "document", "create", "fork", "forget", "search", "report")
            )
            self.tell(f"  {kind}")
            process = rng.choice(site.processes)
            self.do(kind, random.Random(rng.randrange(2**32)), site, process)
            states.append((_length(log), site.model.snapshot()))
        now = site.path.stat()
        lengths = [length for length, _ in states]
        grew = lengths == sorted(lengths) and lengths[0] < lengths[-1]
        if (now.st_mtime_ns, now.st_size) != (on_disk.st_mtime_ns, on_disk.st_size) or not grew:
            return  # SQLite has synced what was before, and begun its log again
        left = rng.randrange(lengths[0], lengths[-1] + 1)
        stored, logged = site.path.read_bytes(), log.read_bytes()[:left]
        for each in site.processes:
            each.close()
        with site.path.open("r+b") as file:
            file.truncate(len(stored))
            file.write(stored)
        log.write_bytes(logged)
        # positions are given again: it is made again
        for each in site.path.parent.glob(f"{site.name}.audit*"):
            each.unlink()
        kept = sum(length <= left for length in lengths) - 1
        self.tell(f"  {kept} of {len(states) - 1} steps are kept")
        site.position, site.followed, site.forks = 0, {}, {}
        site.processes = [Process(site) for _ in site.processes]
        rows = site.processes[0].store.iter_conversations()
        there = {row.id: row.version for row in rows if row.erased_at is None}
        for _, then in states[kept : kept + 2]:  # the end of a step may be what was derived from it
            site.model = then
            if there == {each.name: each.version for each in then.living.values()}:
                break
        checks.rows(site.processes[0])
        for name in NAMES:
            checks.quick(site.processes[-1], name)

    # ---------------------------------------------------------------- the form of what is stored

    def rekey(self, rng, site, process):
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
        number, kill_at, refuse_at = (
            site.processes.index(process),
            process.seam.kill_at,
            process.seam.refuse_at,
        )
        site.reopen()
        process = site.processes[number]
        process.seam.arm(kill_at, refuse_at)
        if not self.fault:
            self._interleave(site, process, rng)
        self.tell(f"  {form}, with {site.ring}")
        call = partial(process.histories.maintenance.rekey, decrypt=form == "decrypt")
        _, error = self.through(process, call, lambda: None)
        if error is not None:
            same("rekey: error", error in _STOPPED, True, error)
            return
        if self.met:  # what another process began meanwhile may have the old form
            call()
        site.ring = wanted
        site.reopen()

    def vacuum(self, rng, site, process):
        if site.path is None:
            return
        before = checks.erased(site)
        _, error = self.through(
            process, lambda: process.histories.maintenance.vacuum(), lambda: None
        )
        if error is not None:
            same("vacuum: error", error in _STOPPED, True, error)
            return
        site.unfinished.clear()
        words = checks.erased(site)
        # another process redacted or erased after the rewriting
        if site.processes[0].store.database.bytes_pending:
            same("bytes pending", self.met, True)
            words &= before
        for path in site.path.parent.iterdir():
            data = path.read_bytes() if path.name.startswith(f"{site.path.name}") else b""
            for word in words:
                if word.encode() in data:
                    raise Finding("bytes left", f"{word} in {path.name}")

    def rebuild(self, rng, site, process):
        name = self.name(rng, site)
        if name in site.model.living:
            process.histories.views.rebuild(name)
            checks.whole(process, name, rng)

    # ---------------------------------------------------------------- reads

    def search(self, rng, site, process):
        checks.search(process, rng)

    def recent(self, rng, site, process):
        checks.recent(process, rng)

    def follow(self, rng, site, process):
        checks.follow(process, anew=rng.random() < 0.3)

    def audit(self, rng, site, process):
        checks.audited(process)

    def serve(self, rng, site, process):
        # a page that is kept is more often the same one
        again = min(site.model.living, default="a")
        checks.served(
            process, again if rng.random() < 0.5 else self.name(rng, site, living=False), rng
        )

    def report(self, rng, site, process):
        checks.derived(process, rng)

    def verify(self, rng, site, process):
        checks.verified(process)
        checks.rows(process)

    def read(self, rng, site, process):
        name = self.name(rng, site, living=False)
        checks.whole(process, name, rng)
        checks.rows(process)

    def reopen(self, rng, site, process):
        site.reopen(site.processes.index(process))

    def jump(self, rng, site, process):
        self.world.now = max(
            0, self.world.now + rng.choice((-1, -60, -86_400, 3_600, 86_400)) * 1_000_000
        )


_VALUES = (
    *(
        7,
        True,
        None,
        1.5,
        -0.25,
        2**53 + 1,
        "",
        "ttt",
        "\ud800",
        "\u00e9\u2028\0",
        b"",
        b"\0\xff",
        float("inf"),
        [],
        {},
    ),
    *(
        {"a": [1, 2, {"b": None}], "n": 3},
        {"a": [1, 2, {"b": b"b"}], "": {"": [[]]}},
        ["t" * 300] * 3,
        model.DELETED,
    ),
)
_ATTRIBUTES = {
    "app": ("x", "y", "", "\u00e9\ud800", None),
    "tags": (["t"], ["t", "u"], [], ["u", 1], None),
    "n": (1, 2, True, -(2**70), 0.5, {"deep": 1}, None),
}


def _edited(value, rng):
    match value:
        case list() if value:
            place = rng.randrange(len(value))
            instead = rng.choice(
                ([], [rng.randrange(9)], [_edited(value[place], rng)], [value[place], "x"])
            )
            return [*value[:place], *instead, *value[place + 1 :]]
        case dict() if value:
            name = rng.choice(sorted(value))
            rest = {key: each for key, each in value.items() if key != name}
            return rng.choice(
                (rest, value | {name: _edited(value[name], rng)}, value | {"more": 1})
            )
        case str() | bytes():
            return value + value[:1]
    return rng.choice((0, 1, True, [value], {"is": value}))


def _given(documents):
    return {
        name: es.DELETED if value == model.DELETED else value for name, value in documents.items()
    }


def _version_of(store, name):
    return None if name not in store.living and store.tombs.get(name) else store.version(name)


def _state_of(store, name):
    events = store.living[name].events if name in store.living else []
    return _version_of(store, name), [event["id"] for event in events if event["redacted"]]


def _brief(event):
    usual = {
        "redacted": False,
        "meta": {},
        "cause": None,
        "origin": None,
        "thinking": "",
        "thought": "",
        "tool": "tool",
    }
    told = {key: value for key, value in event.items() if key not in usual or value != usual[key]}
    return " ".join(
        f"{key}={value!r}" for key, value in told.items() if value is not None and key != "shown"
    )


def _length(path):
    return path.stat().st_size if path.exists() else 0


def _shares(each, found, event_id):
    return each.version > event_id and each.events[event_id] is found.events[event_id]


def _descendants(store, found):
    below = []
    for each in store.forks(found):
        below += [each, *_descendants(store, each)]
    return below


def _said_in(found, ids):
    return {word for each in ids for word in checks.tokens(found.events[each])}


def _said(some):
    return {
        word
        for each in some
        for event in each.events
        if not event["redacted"]
        for word in checks.tokens(event)
    }


_TABLE = [
    line.replace("-", "0").split()
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines()[3:]
]
"""The steps: see ``steps.txt``."""
WEIGHTS = {kind: float(weight) for kind, weight, *_ in _TABLE}
FAULTY = {kind for kind, _, fault, *_ in _TABLE if fault == "yes"}
_MEETS = {kind: float(meets) for kind, _, _, meets, *_ in _TABLE}
_BETWEEN = [kind for kind, *_, times, _ in _TABLE for _ in range(int(times))]
_GROWING = {kind for kind, *_, grows in _TABLE if grows == "yes"}
_STOPPED = ("Killed", "Refused")


def crowd():
    """From now on, another process takes a step within each step that allows it: most often a
    redaction or an erasure.
    """
    _MEETS.update((kind, 1.0) for kind, meets in _MEETS.items() if meets)
    _BETWEEN.extend(["redact"] * 8 + ["erase"] * 4 + ["fork"] * 2)


def drawn(seed, count):
    rng = random.Random(f"steps {seed}")
    chosen = rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=count)
    return [(kind, rng.randrange(2**48)) for kind in chosen]
