"""A tool does not run twice: at every point at which a worker is killed, and whatever becomes of
the conversation.
"""

import itertools
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

import foldlog
from foldlog import Action, Histories, LeaseTaken, Message, Observation, Store
from foldlog.errors import InvalidArgument, InvalidEvent
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.projections import View
from foldlog.projections.call_states import MARK, trace
from foldlog.runtimes import CURRENT, RuntimeCall, note_left_behind
from tests.between import Between, Killed
from tests.conformance.conftest import ENCRYPTS, unrenewed_lease
from tests.crash.effects import MODES, Payments
from tests.how_many import WHOLE
from tests.privacy import erased
from tests.said import said
from tests.waiting import until

PAYEES = ("ann", "bob")


class Bank(Payments):
    """The outside system, which outlives the workers. ``reached`` is called at each point of a
    payment.
    """

    def __init__(self):
        self.paid = []
        self.reached = lambda point: None

    def look_up(self, key, call):
        return next((f"paid {to}" for to, other in self.paid if other == key), None)

    def _book(self, to, key, *, refuses_keys=False):
        self.reached("before the payment")
        if not (refuses_keys and (to, key) in self.paid):
            self.paid.append((to, key))
        self.reached("after the payment")
        return f"paid {to}"


def reply(*calls):
    """Return the reply of a model that calls tools: an id, a tool and its arguments each."""
    tool_calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for call_id, tool, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def pay_reply(history, to):
    """Return the reply of a model that pays somebody."""
    return reply((f"call-{len(history)}", "pay", {"to": to}))


def work(history, bank, mode):
    """Pay everybody, from wherever an earlier worker stopped, as docs/RESUMING.md says."""
    tool, how = MODES[mode](bank)
    with unrenewed_lease(history, "worker"):
        if not len(history):
            history.append(said("Pay ann and bob."))
        while True:
            for call in history.open_calls():
                history.run(call, tool, **how)
            begun = {str(effect.call.arguments) for effect in history.effects()}
            missing = [to for to in PAYEES if str({"to": to}) not in begun]
            if not missing:
                return
            history.append_reply(pay_reply(history, missing[0]))


def killed_at(recorder, name, bank, mode, point):
    """Have a worker of a conversation pay that is killed at a point: before a transaction, or in
    the tool. Return whether it was.
    """
    reached = -1

    def reach(_):
        nonlocal reached
        reached += 1
        if reached >= point:
            raise Killed

    bank.reached = reach
    store = Store(Between(recorder, reach, ("transact", "query")))
    try:
        work(Histories(store)[name], bank, mode)
    except Killed:
        return True
    finally:
        bank.reached = lambda point: None
    return False


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_worker_pays_nothing_twice(mode, open_recorder):
    kills = doubts = 0
    recorder = open_recorder()
    for point in itertools.count(0, 1 if WHOLE in os.environ else 3):
        name = f"pay {point}"
        bank = Bank()
        if not killed_at(recorder, name, bank, mode, point):
            break
        kills += 1
        history = Histories(Store(recorder))[name]
        work(history, bank, mode)
        assert set(Counter(bank.paid).values()) <= {1}, f"killed at point {point}"
        unknown = {effect.call.arguments["to"] for effect in history.effects("unknown")}
        assert {to for to, _ in bank.paid} | unknown == set(PAYEES), f"killed at point {point}"
        assert not unknown or mode == "never"
        doubts += len(unknown)
    assert kills > 5
    assert (doubts > 0) is (mode == "never")


# -- what becomes of a call
# --------------------------------------------------------------------------------------------


def die(to):
    raise Killed


@pytest.fixture
def history(recorder):
    return Histories(
        Store(recorder), condenser={"type": "amortized", "max_size": 10, "keep_first": 1}
    )["pay"]


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture
def call(history):
    return called(history)


@pytest.fixture
def killed(history):
    """A call whose worker died in its tool."""
    return killed_in_its_tool(history)


def called(history, to="ann"):
    """The open call of a new reply."""
    history.append_reply(pay_reply(history, to))
    return history.open_calls()[-1]


def killed_in_its_tool(history, to="ann"):
    call = called(history, to)
    with suppress(Killed):
        run(history, call, die)
    return call


def run(history, call, tool, **how):
    """Run a call under a new lease, and return the event of its outcome."""
    with history.lease():
        return history.run(call, tool, **how).event


def talk(history):
    """Let the condenser come to 40 messages."""
    for n in range(20):
        history.append([said(f"{n}"), Message(source="agent", content=f"{n}")])
        history.prepare()


def states(history):
    return [effect.state for effect in history.effects()]


def test_an_effect_costs_one_append(history, call, bank):
    assert states(history) == ["intended"]
    with history.lease():
        history.run(
            call,
            lambda to: (bank.pay(to), *states(history)),
            by="carol",
            reason="it is her invoice",
        )
        assert history.version() == 3
        history.run(called(history), bank.pay, repeat="safe")
    assert history.version() == 5
    outcomes = [(effect.state, effect.attempts, effect.outcome) for effect in history.effects()]
    assert outcomes == [("done", 1, '["paid ann", "begun"]'), ("done", 0, "paid ann")]
    mark = list(history.events())[1]
    assert (mark.name, mark.cause, mark.shown) == (MARK, call.id, False)
    data = {"attempt": 1, "by": "carol", "reason": "it is her invoice"}
    assert mark.data.items() >= data.items()


def test_an_unknown_call_is_settled_by_key(history, killed, bank):
    (effect,) = history.effects("unknown")
    assert (effect.call.id, effect.attempts, effect.outcome) == (killed.id, 1, None)
    assert history.open_calls() == (killed,)
    outcome = run(history, killed, bank.pay)
    assert outcome.is_error
    assert outcome.content.startswith(f"unknown: this call may have run, key {effect.key}")
    late = history.settle(effect.key, "paid, says the bank", by="carol").event
    assert states(history) == ["done"]
    assert history.effects()[0].outcome == "paid, says the bank"
    prompt = [message["content"] for message in history.view().to_messages()]
    assert prompt[-2:] == [outcome.content, late.content]
    assert late.content.endswith("ended: paid, says the bank")
    with pytest.raises(InvalidArgument, match="no effect with key 'x'"):
        history.settle("x", "paid")


def test_an_open_call_is_settled_by_its_observation(history, killed):
    [(key, _, _)] = ledger(history)
    settled = history.settle(key, "the bank knows nothing of it", is_error=True).event
    assert (settled.cause, settled.is_error, history.open_calls()) == (killed.id, True, ())
    assert states(history) == ["failed"]


def test_closing_open_calls_says_which_had_begun(history):
    calls = [("1", "pay", {"to": "ann"}), ("2", "pay", {"to": "bob"}), ("3", "look", {})]
    history.append_reply(reply(*calls))
    with suppress(Killed), history.lease():
        history.run(history.open_calls()[0], die)
    key = history.effects()[0].key
    outcomes = [recorded.event.content for recorded in history.close_open_calls("a restart")]
    assert outcomes == [
        f"unknown: this call may have run, key {key}: check before you repeat it (a restart)",
        "not begun: a restart",
        "interrupted: a restart",
    ]
    assert states(history) == ["unknown", "failed", "failed"]


class Unsayable(Exception):
    def __str__(self):
        raise ValueError("it has no text")


def raising(error):
    def tool(to):
        raise error

    return tool


async def coroutine(to):
    raise AssertionError("it does not run")


@pytest.mark.parametrize(
    "tool, state, content",
    [
        (lambda to: {"id": 7}, "done", '{"id": 7}'),
        (lambda to: None, "done", "null"),
        (lambda to: object, "done", "<class 'object'>"),
        (lambda to: {("t",): 1}, "done", "{('t',): 1}"),
        (lambda to: [{"type": "text"}], "done", '[{"type": "text"}]'),
        (lambda to: Unsayable(), "done", "a Unsayable that has no text"),
        (lambda to: "x" * 2**24, "done", "its result cannot be stored"),
        (raising(ValueError("no such account")), "failed", "ValueError: no such account (key "),
        (raising(Unsayable()), "failed", "Unsayable: a Unsayable that has no text (key "),
        (raising(TimeoutError("no answer")), "unknown", "(TimeoutError: no answer)"),
        (lambda amount: "paid", "failed", "not begun: "),
        (lambda to: coroutine(to), "failed", "did not run"),
    ],
)
def test_results_and_errors_of_tools_are_recorded(history, tool, state, content):
    recorded = run(history, called(history), tool)
    assert content in recorded.content
    assert recorded.is_error is (state != "done")
    (effect,) = history.effects()
    assert (effect.state, effect.attempts) == (state, 0 if "not begun" in content else 1)


def test_running_needs_a_lease(history, call, bank):
    with pytest.raises(InvalidArgument, match="an effect needs a lease"):
        history.run(call, bank.pay)
    assert bank.paid == []


def test_running_needs_an_open_call(history, call, bank):
    with history.lease():
        history.run(call, bank.pay)
        with pytest.raises(InvalidEvent, match="already has a result"):
            history.run(call, bank.pay)
        with pytest.raises(TypeError, match="needs a call"):
            history.run("call-0", bank.pay)
    assert bank.paid == [("ann", None)]


def test_a_wrong_tool_or_rule_is_refused(history, call, bank):
    def streamed(to):
        yield f"paid {to}"

    with history.lease():
        with pytest.raises(InvalidArgument, match="takes no argument 'key'"):
            history.run(call, bank.pay, repeat="same key")
        with pytest.raises(InvalidArgument, match="repeat is 'often'"):
            history.run(call, bank.pay, repeat="often")
        with pytest.raises(TypeError, match="is a generator"):
            history.run(call, streamed)
        with pytest.raises(TypeError, match="max> has no signature"):
            history.run(call, max)
    assert bank.paid == []


def test_an_unknown_state_is_refused(history):
    with pytest.raises(InvalidArgument, match="the state of an effect is one of"):
        history.effects("lost")


def test_the_decorator_says_how_to_repeat(history, killed, bank):
    class Tools:
        @foldlog.effect(repeat="same key")
        def pay(self, to, key):
            return bank.pay_once(to, key)

    assert run(history, killed, Tools().pay).content == "paid ann"
    (effect,) = history.effects()
    assert (bank.paid, effect.attempts) == ([("ann", effect.key)], 2)


def test_where_a_check_fails_nothing_is_recorded(history, killed, bank):
    def look(key, call):
        raise ConnectionError("the bank is closed")

    with pytest.raises(ConnectionError):
        run(history, killed, bank.pay, check=look)
    assert (states(history), history.open_calls()) == (["unknown"], (killed,))


def test_a_coroutine_of_a_check_is_no_outcome(history, killed, bank):
    async def look(key, call):
        return None

    with pytest.raises(TypeError, match="the check returned a coroutine and did not run"):
        run(history, killed, bank.pay, check=lambda key, call: look(key, call))
    assert (states(history), history.open_calls()) == (["unknown"], (killed,))


def test_two_threads_begin_a_call_once(history, call, bank):
    def pay_while_another_thread_comes(to, key):
        with (
            ThreadPoolExecutor(1) as threads,
            pytest.raises(InvalidEvent, match="another thread runs call 0"),
        ):
            threads.submit(history.run, call, bank.pay_noting, check=bank.look_up).result()
        return bank.pay_noting(to, key)

    outcome = run(history, call, pay_while_another_thread_comes, check=bank.look_up)
    assert outcome.content == "paid ann"
    assert len(bank.paid) == 1


# -- a worker that stood still
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("still", ["before the payment", "after the payment"])
@pytest.mark.parametrize("mode", ["never", "same key"])
def test_a_worker_wakes_after_the_takeover(still, mode, recorder, bank):
    others = Bank()
    others.paid = bank.paid
    first, second = (Histories(Store(recorder))["pay"] for _ in range(2))
    call = called(first)
    tool, how = MODES[mode](bank)
    others_tool, _ = MODES[mode](others)
    outcomes = []

    def taken_over(point):
        if point == still:
            until(lambda: first.current_lease() is None)
            with unrenewed_lease(second, "worker"):
                outcomes.append(second.run(second.open_calls()[0], others_tool, **how).event)

    bank.reached = taken_over
    with pytest.raises(LeaseTaken), unrenewed_lease(first, "worker"):
        first.run(call, tool, **how)
    assert len(bank.paid) == 1
    assert outcomes[0].is_error is (mode == "never")
    (effect,) = first.effects()
    assert (effect.state, effect.outcome) == ("done", "paid ann")
    assert first.view()[-1].content.endswith("ended: paid ann")


# -- what a conversation goes through
# ----------------------------------------------------------------------------------


def ledger(history):
    """Return the key, the state and the number of attempts of each effect."""
    return [(effect.key, effect.state, effect.attempts) for effect in history.effects()]


@pytest.mark.usefixtures("killed")
def test_copies_and_rekey_keep_effects(history, recorder, open_recorder):
    called(history, "bob")
    before = ledger(history)
    assert [entry[1:] for entry in before] == [("unknown", 1), ("intended", 0)]
    encrypted = Store(recorder, ENCRYPTS)
    assert len(list(rekey(encrypted))) == 1
    assert ledger(Histories(encrypted)["pay"]) == before
    copy = Store(open_recorder(), ENCRYPTS)
    assert [moved.problem for moved in copy_store(encrypted, copy)] == [None]
    copied = Histories(copy)["pay"]
    assert ledger(copied) == before
    assert run(copied, copied.open_calls()[0], Bank().pay).is_error


def test_forks_share_effect_keys(history, call, bank):
    forks = [history.fork(), history.fork()]
    assert [ledger(fork) for fork in forks] == [ledger(history)] * 2
    for sharing in (history, *forks):
        run(sharing, sharing.open_calls()[0], bank.pay_once, repeat="same key")
    assert bank.paid == [("ann", history.effects()[0].key)]
    never = history.fork(call.id + 1)
    assert run(never, never.open_calls()[0], bank.pay).is_error
    assert run(never, called(never, "bob"), bank.pay).content == "paid bob"
    called(history, "eve")
    for sharing in (history.fork(), history):
        run(sharing, sharing.open_calls()[0], bank.pay_noting, check=bank.look_up)
    assert Counter(to for to, _ in bank.paid) == {"ann": 1, "bob": 1, "eve": 1}
    before = ledger(forks[0])
    erased(history._store, history.id, detach_forks=True)
    assert ledger(history._histories[forks[0].id]) == before


def test_a_detached_fork_runs_no_shared_call(history, call, bank):
    fork = history.fork()
    run(history, call, bank.pay)
    erased(history._store, history.id, detach_forks=True)
    assert run(fork, call, bank.pay).is_error
    assert len(bank.paid) == 1


def test_an_intent_stored_before_its_call_counts(history, bank):
    history.append(said("pay"))
    begun = RuntimeCall(history._histories, "pay", "call-1", "pay", {"to": "ann"}, None, {})
    begun._mark(history, None, 1)
    begun._mark(history, None, 1)  # Some models make the same id again.
    history.append_reply(reply(("call-1", "pay", {"to": "ann"})))
    call = history.open_calls()[-1]
    assert run(history, call, bank.pay).is_error
    assert bank.paid == []
    history.retract(call.id)
    assert "may have run" in history.view()[-1].content


def run_by_runtime(call):
    """Return what a marked tool answers a runtime that makes this call."""
    marked = CURRENT.set(call)
    try:
        return foldlog.effect()(Bank().pay)(**call.arguments)
    finally:
        CURRENT.reset(marked)


def test_an_id_of_two_calls_names_the_newer_one(history):
    """Only an intent waits for the call that it announced."""
    first, second = history.append([Action(tool=tool, call_id="c") for tool in ("look", "pay")])
    history.append(Observation(content="paid", call_id="c"))
    traces = trace((event, bytes([event.id]) * 32) for event in history.events())
    assert traces[first.id].observation is None
    assert traces[second.id].observation.content == "paid"


def test_a_call_begun_by_another_process(history):
    here = RuntimeCall(history._histories, "pay", "call-1", "pay", {"to": "ann"}, None, {})
    there = replace(here, histories=Histories(history._store))
    history.append(said("pay"))
    note_left_behind(here.histories, "pay")
    assert run_by_runtime(there) == "paid ann"
    assert "may have run" in run_by_runtime(here)


def test_a_newer_outcome_replaces_a_retracted_one(history):
    history.append(said("pay"))
    call = killed_in_its_tool(history)
    outcome = run(history, call, Bank().pay)
    history.retract(outcome.id)
    history.settle(history.effects()[0].key, "paid")
    assert states(history) == ["done"]


def test_a_call_runs_after_its_retracted_refusal(history, bank):
    history.append(said("pay"))
    call = called(history)
    (closed,) = history.close_open_calls()
    history.retract(closed.id)
    assert run(history, call, bank.pay).content == "paid ann"


def test_a_redacted_doubt_stays_unknown(history, killed, bank):
    outcome = run(history, killed, bank.pay)
    history.redact(outcome.id, reason="a test")
    assert states(history) == ["unknown"]


def test_tool_and_check_get_the_same_key(history, bank):
    history.append_reply(reply(("k", "pay", {"to": "ann", "key": "of the model"})))
    run(history, history.open_calls()[0], bank.pay_noting, check=bank.look_up)
    assert bank.paid == [("ann", history.effects()[0].key)]


def test_a_new_generation_has_other_keys(recorder):
    histories = Histories(Store(recorder))
    called(histories["pay"])
    (before,) = ledger(histories["pay"])
    erased(histories.store, "pay")
    again = histories.create("pay", replace_erased=True)
    called(again)
    (after,) = ledger(again)
    assert after[0] != before[0]


def test_condensations_keep_effects_in_doubt(history):
    history.append(said("go"))
    settled = called(history)
    run(history, settled, Bank().pay)
    doubtful = killed_in_its_tool(history, "bob")
    open_call = killed_in_its_tool(history, "carol")
    run(history, doubtful, Bank().pay)
    before = ledger(history)
    talk(history)
    shown = {event.id for event in history.view()}
    assert {doubtful.id, open_call.id} <= shown
    assert settled.id not in shown
    assert history.view().condensations
    assert ledger(history) == before
    history.settle(before[1][0], "paid")
    history.settle(before[2][0], "paid")
    talk(history)
    assert not {doubtful.id, open_call.id} & {event.id for event in history.view()}
    assert states(history) == ["done"] * 3


@pytest.mark.parametrize(
    "condenser",
    [
        {"type": "recent_events", "max_events": 4},
        {"type": "observation_masking", "attention_window": 1},
        {"type": "digest", "max_size": 10},
        {"type": "conversation_window"},
    ],
    ids=lambda condenser: condenser["type"],
)
def test_each_condenser_shows_a_doubt(condenser):
    history = foldlog.open("memory:", condenser=condenser)["pay"]
    history.append(said("go"))
    run(history, called(history), Bank().pay)
    outcome = run(history, killed_in_its_tool(history, "bob"), Bank().pay).content
    talk(history)
    shown = [message["content"] for message in history.sent().to_messages()]
    assert outcome in shown


def test_a_retraction_names_its_effects(history, bank):
    history.append(said("pay"))
    first = called(history)
    run(history, first, bank.pay)
    killed_in_its_tool(history, "bob")
    called(history, "carol")
    (ann, *_), (bob, *_), _ = ledger(history)
    retraction = history.retract(1)
    assert history.view()[-1].content == (
        f'Taken back, but it had run: pay {{"to": "ann"}} (key {ann}): paid ann\n'
        f'Taken back, but it may have run: pay {{"to": "bob"}} (key {bob}): null'
    )
    assert states(history) == ["done", "unknown", "intended"]
    history.retract(retraction.id)
    assert history.view()[-1].id < retraction.id
    # Only the call for ann is open again. Its outcome is known, so its tool does not run.
    history.retract(first.id + 1, "only its result")
    assert run(history, history.open_calls()[0], bank.pay).content == "paid ann"
    assert len(bank.paid) == 1


@pytest.mark.usefixtures("killed")
def test_states_equal_a_fold_of_all_events(history):
    assert View.from_events(history.events()) == history.view()
    assert history.at(1).to_messages() == history.view().to_messages() == []


# -- once
# --------------------------------------------------------------------------------------------------


def test_work_is_done_once_for_its_key(history):
    answers = iter("ab")

    def ask():
        return {"role": "assistant", "content": next(answers)}

    assert history.recorded("turn") == ()
    first = history.once("turn", ask)
    assert history.once("turn", ask) == first == history.recorded("turn")
    assert (first[-1].event.content, first[-1].id) == ("a", 0)
    assert next(answers) == "b"


def test_work_may_return_several_events(history):
    two = history.once("note", lambda: [said("x"), {"role": "user", "content": "y"}])
    assert [recorded.event.content for recorded in two] == ["x", "y"]
    assert history.recorded("note") == two


def test_work_that_another_worker_did_first_returns_its_reply(history):
    def overtaken():
        history.append_reply({"role": "assistant", "content": "quicker"}, idempotency_key="turn")
        return {"role": "assistant", "content": "slower"}

    assert history.once("turn", overtaken)[0].event.content == "quicker"


def test_an_empty_reply_after_another_worker_did_the_work_is_not_refused(history):
    def overtaken():
        history.append(said("z"), idempotency_key="turn")
        return {"role": "assistant", "content": ""}

    assert history.once("turn", overtaken)[0].event.content == "z"
