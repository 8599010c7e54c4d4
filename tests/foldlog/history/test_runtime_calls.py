"""``foldlog.effect`` around tools that another runtime runs, whichever runtime it is."""

import asyncio
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter

import pytest

import foldlog
from foldlog import Action, Observation, aio
from foldlog._history import runtime_calls, started_calls
from foldlog._history.effects import MARK, EffectRule, end_elsewhere
from foldlog._history.started_calls import StartedCalls
from foldlog._history.threads import ThreadPool
from foldlog.errors import InvalidArgument
from foldlog.runtimes import CURRENT, RuntimeCall, note_left_behind
from tests.said import said


@pytest.fixture
def restarted(histories):
    """A function after which the next calls seem to come from another process."""

    def restart():
        histories._started_calls = StartedCalls()

    return restart


@contextmanager
def calling(histories, call_id, **attributes):
    """Do what an adapter does around a tool."""
    call = RuntimeCall(
        histories, "c", call_id, "pay", {"to": "ann"}, aio.face_of(histories).pool, attributes
    )
    before = CURRENT.set(call)
    try:
        yield
    finally:
        CURRENT.reset(before)


def tool(paid, **rule):
    @foldlog.effect(**rule)
    def pay(to: str, key: str) -> str:
        if key not in paid:
            paid.append(key)
        return f"paid {to}"

    return pay


def states(histories):
    return [(effect.state, effect.attempts) for effect in histories["c"].effects()]


def test_marked_tool_hides_its_key():
    pay = tool([])
    assert (str(inspect.signature(pay)), pay.__name__, [*pay.__annotations__]) == (
        "(to: str) -> str",
        "pay",
        ["to", "return"],
    )
    for marked in (pay, foldlog.effect()(partial(tool))):
        with pytest.raises(InvalidArgument, match="was called without a runtime"):
            marked("ann")


def test_new_call_and_beginning_are_one_append(histories):
    paid = []
    with calling(histories, "k", user="u7"):
        assert tool(paid)("ann") == "paid ann"
    (effect,) = histories["c"].effects()
    assert (paid, effect.call.tool, effect.call.arguments) == ([effect.key], "pay", {"to": "ann"})
    assert (len(histories["c"]), histories["c"].attributes()) == (2, {"user": "u7"})
    histories["c"].append(
        [Action(tool="pay", call_id="k"), Observation(content="paid ann", call_id="k")]
    )
    assert states(histories) == [("done", 1)]


def test_only_calls_with_effects_are_marked(histories):
    histories["c"].append([said("x"), Action(tool="pay", call_id="k")])
    with calling(histories, "k"):
        tool([], repeat="safe")("ann")
        assert len(histories["c"]) == 2
        tool([])("ann")
    assert (len(histories["c"]), states(histories)) == (3, [("unknown", 1)])


def test_repeated_call_runs_only_with_same_key(histories):
    paid = []
    with calling(histories, "k"):
        tool(paid)("ann")
        assert tool(paid)("ann").startswith('unknown: pay {"to": "ann"} may have run, key ')
        assert (states(histories), len(paid)) == ([("unknown", 1)], 1)
        assert tool(paid, repeat="same key")("ann") == "paid ann"
    assert (states(histories), len(paid)) == ([("unknown", 2)], 1)


@pytest.mark.parametrize(
    "known_result, answer, attempts", [("it is paid", "it is paid", 1), (None, "paid ann", 2)]
)
def test_call_is_looked_up_after_restart(histories, known_result, answer, attempts, restarted):
    paid = []
    with calling(histories, "k"):
        tool(paid)("ann")
        restarted()
        result = tool(paid, check=lambda key, call: known_result)("ann")
    assert result == answer
    assert states(histories)[0][1] == attempts


def test_call_runs_once_however_often_repeated(histories, restarted):
    paid = []
    with calling(histories, "k"):
        tool(paid)("ann")
        for _ in range(2):
            restarted()
            assert "may have run" in tool(paid)("ann")
            assert "may have run" in tool(paid)("ann")
        restarted()
        for _ in range(2):
            tool(paid, repeat="same key")("ann")
    assert len(paid) == 1


def test_only_one_of_two_processes_runs_a_call(histories, monkeypatch):
    here = RuntimeCall(histories, "c", "k", "pay", {"to": "ann"}, None, {})
    there = replace(here, histories=foldlog.Histories(histories.store))
    look = runtime_calls._read_left_behind

    def look_before_the_other(*looked):
        found = look(*looked)
        monkeypatch.setattr(runtime_calls, "_read_left_behind", look)
        there.begin(EffectRule())
        return found

    monkeypatch.setattr(runtime_calls, "_read_left_behind", look_before_the_other)
    assert "may have run" in here.begin(EffectRule())[1]


def test_new_conversation_lacks_calls_of_erased_one(histories):
    paid = []
    with calling(histories, "k", user="u7"):
        for _ in range(2):
            assert tool(paid)("ann") == "paid ann"
            histories.erase("c", reason="the user asked")
            histories.create("c", replace_erased=True)
    assert len(paid) == 2


def test_restart_is_reported_once_before_another_effect(histories, restarted):
    paid = []
    with calling(histories, "k1"):
        tool(paid)("ann")
    restarted()
    note_left_behind(histories, "c")
    histories["c"].append(Observation(content="interrupted", call_id="k1", is_error=True))
    assert states(histories) == [("unknown", 1)]
    with calling(histories, "k2"):
        assert f"may have run, key {paid[0]}" in tool(paid)("ann")
    with calling(histories, "k3"):
        assert tool(paid)("ann") == "paid ann"
    assert (len(paid), states(histories)) == (2, [("unknown", 1), ("unknown", 1)])
    histories["c"].settle(paid[0], "paid, says the bank")
    assert states(histories)[0] == ("done", 1)
    restarted()
    with calling(histories, "k3"):
        assert "may have run" in tool(paid)("ann")
    assert len(paid) == 2


def test_an_async_tool_asks_in_a_thread(histories):
    @foldlog.effect()
    async def pay(to):
        await asyncio.sleep(0)
        return f"paid {to}"

    async def run():
        with calling(histories, "k"):
            assert await pay("ann") == "paid ann"
            assert (await pay("ann")).startswith("unknown: ")

    asyncio.run(run())
    assert states(histories) == [("unknown", 1)]


@pytest.mark.parametrize(
    "known_result, answer, attempts", [("it is paid", "it is paid", 1), (None, "paid ann", 2)]
)
def test_an_async_check_runs_in_the_loop_of_its_tool(
    histories, known_result, answer, attempts, restarted
):
    loops = []

    async def look(key, call):
        loops.append(asyncio.get_running_loop())
        return known_result

    @foldlog.effect(check=look)
    async def pay(to):
        return f"paid {to}"

    async def run():
        with calling(histories, "k"):
            await pay("ann")
            restarted()
            assert await pay("ann") == answer
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(run())
    assert states(histories)[0][1] == attempts


@pytest.fixture
def one_thread():
    pool = ThreadPool("one", 1)
    yield pool
    pool.close()


def test_an_async_check_holds_no_thread(histories, restarted, one_thread):
    """Otherwise checks of many calls would wait for threads that wait for them."""

    async def look(key, call):
        return await one_thread.run(lambda: f"{call.tool} is known")

    @foldlog.effect(check=look)
    async def pay(to):
        return f"paid {to}"

    async def run():
        with calling(histories, "k"):
            CURRENT.set(replace(CURRENT.get(), pool=one_thread))
            await pay("ann")
            restarted()
            assert await pay("ann") == "pay is known"

    asyncio.run(run())


def test_a_cancellation_reaches_an_async_check(histories, restarted):
    cancelled = []

    async def look(key, call):
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled.append(call.tool)
            raise

    @foldlog.effect(check=look)
    async def pay(to):
        return f"paid {to}"

    async def run():
        with calling(histories, "k"):
            await pay("ann")
            restarted()
            await pay("ann")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert cancelled == ["pay"]
    assert states(histories) == [("unknown", 1)]


def test_an_async_check_of_a_sync_tool_is_refused(histories, restarted):
    async def look(key, call):
        return None

    with calling(histories, "k"):
        tool([])("ann")
        restarted()
        with pytest.raises(TypeError, match="the check is async and did not run"):
            tool([], check=look)("ann")
    assert states(histories) == [("unknown", 1)]


@pytest.fixture
def threads_switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_remember_few_calls(threads_switch_often, monkeypatch):
    monkeypatch.setattr(started_calls, "_REMEMBERED_MAX", 5)
    started = StartedCalls()

    def remember(thread):
        for number in range(3_000):
            started.remember(("c", 1), f"{thread}.{number}", number)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(remember, range(8))] == [None] * 8
    # The last call of all is the last call of a thread, so at least this one is remembered.
    known = [started.intent_of(("c", 1), f"{thread}.2999") for thread in range(8)]
    assert 1 <= len([intent for intent in known if intent is not None]) <= 5


@pytest.mark.parametrize("named", [attrgetter("id"), attrgetter("call_id")])
def test_an_outcome_from_elsewhere_has_the_key_of_the_earlier_intent(histories, named):
    history = histories["c"]

    @foldlog.effect()
    def pay(to: str) -> str:
        raise KeyboardInterrupt

    with calling(histories, "k"), pytest.raises(KeyboardInterrupt):
        pay("ann")
    (begun,) = history.effects("unknown")
    (appended,) = history.append(Action(tool="pay", arguments={"to": "ann"}, call_id="k"))
    call = appended.event
    recorded = end_elsewhere(history, named(call), "paid", False, None)
    assert recorded.event.extras[MARK] == {"key": begun.key}
    assert not history.open_calls()
    (ended,) = history.effects()
    assert (ended.state, ended.key, ended.outcome) == ("done", begun.key, "paid")
