"""How a step is run: with a fault, with a step of another process within it, and compared with the
model.

A step that is killed, or refused by its disk, has happened as a whole or not at all: the version
that is stored tells which. A step of several transactions may have happened in part. Then the model
is brought up to what is stored, which must be a beginning of the step.
"""

import random

import foldlog.eventstore as es
from tests.simulation import checks, model
from tests.simulation.checks import check_equal
from tests.simulation.conversion import to_product
from tests.simulation.draws import Draws
from tests.simulation.seam import Killed
from tests.simulation.table import BETWEEN, FAULTY, GROWING, MEETS
from tests.simulation.world import Finding

STOPPED = ("Killed", "Refused")
"""What ``call_product`` returns as the error of a step that a fault has stopped."""


class Runner(Draws):
    """Runs steps in a world. The kinds of steps are methods of a class that derives from it. They
    return the name of the conversation that is to be checked after them, or None.
    """

    def __init__(self, world):
        super().__init__(world)
        self.fault = ""
        self.interleaved = False
        """Whether another process took a step within the present one."""
        self.update_model = None
        """Brings the model up to what a step of several transactions has stored by now."""
        self.earlier_model = None
        """The model before the step of the other process."""

    def run_step(self, step, kill_at=0):
        """Run one step, with the faults and the steps of other processes that its seed draws; or
        kill its process before a statement.
        """
        kind, seed = step
        rng = random.Random(seed)
        site = self.world.sites[0] if rng.random() < 0.93 else self.world.sites[1]
        process = rng.choice(site.processes)
        self.world.now += rng.randrange(1, 2_000_000)
        self.fault = ""
        self.interleaved = False
        self.focus = None
        self.update_model = None
        self.earlier_model = None
        self._arrange_fault(kind, rng, process, kill_at)
        fault = f" ({self.fault})" if self.fault else ""
        self.trace(f"{self._label(process)} {kind}{fault}")
        try:
            self._run_kind(kind, rng, process)
        finally:
            self.nested = False
            for each_site in self.world.sites:
                self.end_faults(each_site)

    def _arrange_fault(self, kind, rng, process, kill_at):
        draw = rng.random()
        seam = process.seam
        seam.arm(kill_at)
        if kill_at:
            self.fault = "killed"
        elif draw < 0.05 and kind in FAULTY:
            self.fault = "killed"
            seam.arm(kill_at=rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 15, 20)))
        elif draw < 0.08 and kind in FAULTY:
            self.fault = "refused"
            seam.arm(refuse_at=rng.choice((1, 1, 1, 2, 3)))
        elif draw < MEETS[kind]:
            self.interleave(process, rng)

    def _run_kind(self, kind, rng, process):
        """Run a kind of step, and check the conversation that it names, if it names one."""
        arguments = [rng, process]
        if kind in GROWING:
            conversation = self.draw_growing(rng, process.site)
            if conversation is None:
                return
            arguments.append(conversation)
        name = getattr(self, kind)(*arguments)
        if name is not None:
            self.check(rng, process, name)

    def trace(self, line):
        self.world.trace.append("  " * self.nested + line)

    @staticmethod
    def _label(process):
        return f"{process.site.name}.{process.site.processes.index(process)}"

    def interleave(self, process, rng):
        """Have another process take a step before a transaction or query of this process."""
        site = process.site
        others = [other for other in site.processes if other is not process]
        if not others:
            return
        other = rng.choice(others)
        calls_left = rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 8, 11))
        seed = rng.randrange(2**32)
        kind = rng.choice(BETWEEN)

        def at_transaction():
            nonlocal calls_left
            calls_left -= 1
            if calls_left:
                return
            process.seam.at_transaction = None
            update_model, self.update_model = self.update_model, None
            if update_model is None and process.seam.commits:
                return  # the step is committed, and the model does not have it yet
            other.seam.arm()
            self.nested = True
            if update_model is not None:
                update_model()
            else:
                self.earlier_model = site.model.snapshot()
            self.trace(f"{self._label(other)} {kind} between")
            self._run_kind(kind, random.Random(seed), other)
            self.nested = False
            self.interleaved = True
            self.update_model = update_model

        process.seam.at_transaction = at_transaction

    def call_product(self, process, call, update_model=None):
        """Call the product; return the result, and the name of the error.

        A call of several transactions comes with ``update_model``. It is called after the call,
        even if that fails, and before the step of another process.
        """
        result = None
        error = None
        self.update_model = update_model
        try:
            result = call()
        except Killed:
            error = "Killed"
        except es.EventStoreError as raised:
            seam = process.seam
            is_refused = 0 < seam.refuse_at <= seam.transactions
            is_refused = is_refused and isinstance(raised, es.StoreUnavailable)
            error = "Refused" if is_refused else checks.name_of(raised)
        self.update_model = None
        if error is not None:
            self.trace(f"  {error}")
        if update_model is not None or error == "Killed":
            commits = process.seam.commits
            self.end_faults(process.site)
            process.seam.commits = commits
        if update_model is not None:
            update_model()
        return result, error

    def compare(
        self, process, label, call, call_model, check=lambda result, expected: None, *, name
    ):
        """Make a change of one transaction in the product and in the model, and compare the results
        or the errors. Return the result of the product.
        """
        site = process.site
        commits = process.seam.commits
        result, error = self.call_product(process, call)
        if error == "Killed":
            is_committed = process.seam.commits > commits
            self.trace(f"  killed, {'committed' if is_committed else 'not committed'}")
            # a query commits too if it stores what it has computed
            if is_committed and self.is_changed(site, name):
                call_model()
            return None
        if error == "Refused":
            return None
        if self.earlier_model is not None and not self.is_changed(site, name):
            # It appended nothing, so its answer may be from the moment before the step of the other
            # process.
            present_model, site.model = site.model, self.earlier_model
            try:
                self.compare_outcome(label, result, error, call_model, check)
                return result
            except Finding:
                pass
            finally:
                site.model = present_model
        self.compare_outcome(label, result, error, call_model, check)
        return result

    def compare_outcome(self, label, result, error, call_model, check):
        expected = None
        refusal = None
        try:
            expected = call_model()
        except model.Refused as refused:
            refusal = refused.args[0]
        check_equal(f"{label}: error", error, refusal)
        if error is None:
            check(result, expected)
        self.trace(f"  {label}: {refusal or 'done'}")

    def compare_append(self, process, name, call, events, **options):
        """Append events with a new history, and compare what was recorded. Return the name."""
        self.trace(f"  {name} {[brief(event) for event in events]} {options or ''}")
        self.compare(
            process,
            "change",
            lambda: call(process.histories[name]),
            lambda: process.site.model.append(name, events, self.world.now, **options),
            self.check_recorded,
            name=name,
        )
        return name

    def check_recorded(self, rows, events):
        checks.check_rows(self.world, rows, events, "recorded")

    def check(self, rng, process, name):
        """Compare a conversation, briefly or all of it, as this process or another one reads it."""
        if self.nested:
            return
        self.end_faults(process.site)
        draw = rng.random()
        was_killed = process not in process.site.processes
        if draw < 0.3 or was_killed:
            process = rng.choice(process.site.processes)
        if draw < 0.02:
            checks.check_conversation(process, name, rng)
        else:
            checks.check_view(process, name, tail=draw < 0.15)

    @staticmethod
    def end_faults(site):
        """Inject no further faults in this step, and start killed processes again."""
        for number, process in enumerate(site.processes):
            process.seam.arm()
            if process.seam.dead:
                site.reopen(number)

    @staticmethod
    def stored_version(site, name):
        """Return the version of a conversation in the store; None if it is erased."""
        try:
            return site.processes[0].store.version(name)
        except es.ConversationErased:
            return None

    def is_changed(self, site, name):
        """Return whether the store has another version of a conversation than the model."""
        return self.stored_version(site, name) != model_version(site.model, name)


def model_version(store, name):
    """Return the version of a conversation in the model; None if it is erased."""
    return None if name not in store.living and store.tombs.get(name) else store.version(name)


def brief(event):
    """Return the fields of an event that are not the usual ones, as text."""
    usual = {
        "redacted": False,
        "meta": {},
        "cause": None,
        "origin": None,
        "thinking": "",
        "thought": "",
        "tool": "tool",
        "shown": event["shown"],
    }
    return " ".join(
        f"{name}={value!r}"
        for name, value in event.items()
        if value is not None and (name not in usual or value != usual[name])
    )


def to_products(events):
    return [to_product(event) for event in events]
