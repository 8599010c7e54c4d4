"""Leases, on every recorder: at most one worker drives a conversation, and a worker that was
overtaken appends nothing.
"""

import os
import threading
import traceback
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from operator import methodcaller

import pytest

import foldlog
from foldlog import (
    Action,
    CondensationRequest,
    ConversationErased,
    Histories,
    History,
    LeaseTaken,
    Store,
)
from foldlog.aio import PendingAppend
from foldlog.errors import IdempotencyConflict, InvalidArgument, InvalidEvent, StoreRefused
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.backup import restore
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.types import Record
from tests.conformance.conftest import ENCRYPTS, noted, unrenewed_lease
from tests.said import said, texts
from tests.sound import assert_sound
from tests.stored_rows import execute
from tests.waiting import until

CALL = Action(tool="deploy", call_id="k", response_id="r")


@pytest.fixture
def workers(recorder):
    """A function that makes the history "c" of a worker, as if each worker were a process."""
    return lambda: Histories(Store(recorder), condenser="digest")["c"]


@pytest.fixture
def worker(workers):
    return workers()


@pytest.fixture
def other(workers):
    return workers()


def to_resume(history):
    return list(history._histories.to_resume())


# -- one at a time
# --------------------------------------------------------------------------------------------------


def test_a_refusal_names_another_history_of_this_process(worker, other):
    wording = r"UTC \(the lease belongs to another History object of this process\); wait"
    with worker.lease(), pytest.raises(LeaseTaken, match=wording):
        other.lease(wait_s=0).__enter__()


def test_a_block_that_got_no_lease_is_not_entered_again(worker, other):
    block = other.lease(wait_s=0)
    with worker.lease(), pytest.raises(LeaseTaken):
        block.__enter__()
    with pytest.raises(InvalidArgument, match=r"this lease\(\) block of 'c' has ended"):
        block.__enter__()
    with other.lease() as lease:
        assert lease.held


@pytest.mark.parametrize("events", [0, 1])
def test_one_worker_drives_and_the_next_waits(workers, events):
    first = workers()
    second = workers()
    user = workers()
    if events:
        first.append([said("hi")] * events)
    with first.lease(worker="one") as lease:
        current = second.current_lease()
        assert (lease.held, current.held, current.worker) == (True, True, "one")
        with pytest.raises(
            LeaseTaken, match=r"conversation 'c': a worker drives it: 'one' has it until .* UTC"
        ) as raised:
            second.lease(wait_s=0).__enter__()
        assert (raised.value.conversation, raised.value.worker) == ("c", "one")
        assert raised.value.until == second.current_lease().until
        assert second._fence is None, "it may append without a lease"
        first.append(said("from the worker"))
        user.append(said("from a user"))
        block = second.lease(wait_s=60, worker="two")
        waiting = threading.Thread(target=block.__enter__)
        waiting.start()
        until(lambda: block._seen[0])  # it has found the lease of the first worker
    waiting.join()
    assert not lease.held
    assert first.current_lease().worker == "two"
    assert texts(user._store, "c")[events:] == ["from the worker", "from a user"]
    second._lease_block.leave()
    assert first.current_lease() is None


def test_a_lease_is_renewed(worker):
    with worker.lease(ttl_s=0.3) as lease:
        first = lease.until
        until(lambda: lease.until > first)


APPENDS = [
    lambda history: history.append(said("late")),
    lambda history: history.append((), documents={"state": 2}),
    lambda history: history.set_attributes(user="ann"),
    lambda history: history.append_reply({"role": "assistant", "content": "late"}),
    lambda history: history.append_records(
        [{"role": "user", "content": "x"}], format="openai-chat"
    ),
    lambda history: history.retract(1),
    History.pop,
    History.close_open_calls,
    History.step,
]


@pytest.fixture
def still(workers):
    """The history of a worker that stands still while another one overtakes it. A call is open."""
    still = workers()
    still.append([*[said("hi")] * 3, CALL, CondensationRequest()], documents={"state": 1})
    return still


@contextmanager
def overtaken(still, other, *, is_free):
    """Let ``other`` take the lease of ``still``, and give it back if ``is_free``."""
    with unrenewed_lease(still, "still") as lease, ExitStack() as blocks:
        blocks.enter_context(other.lease(worker="other"))
        if is_free:
            blocks.close()
        yield lease


OVERTAKEN = pytest.mark.parametrize("is_free", [False, True], ids=["taken over", "free again"])


@OVERTAKEN
def test_a_worker_that_was_overtaken_appends_nothing(still, other, is_free, caplog):
    version = still.version()
    ended = "'still' has ended; not" if is_free else "'still' has ended: 'other' has it until"
    with overtaken(still, other, is_free=is_free) as lease:
        assert "'other' takes over from 'still'" in caplog.text
        for append in APPENDS:
            with pytest.raises(LeaseTaken, match=ended):
                append(still)
        assert still.version() == version
        assert not lease.held
        assert not still._lease_block.renew()
    still.append(said("outside of the block, as any program may"))


@OVERTAKEN
def test_a_worker_that_was_overtaken_records_an_outcome_once(still, other, is_free):
    version = still.version()
    with overtaken(still, other, is_free=is_free):
        with pytest.raises(InvalidEvent, match="the View shows no open call 'x'"):
            still.append_tool_result("x", "of no call")
        other.append_tool_result("k", "closed")
        again = {"extras": {"took_s": 3}, "idempotency_key": "key"}
        for _ in range(2):
            with pytest.raises(
                LeaseTaken, match=r"'still' has ended.*; the outcome was still recorded"
            ):
                still.append_tool_result("k", "late", **again)
        for call_id, outcome in (("k", "later"), ("another call", "late")):
            with pytest.raises(IdempotencyConflict):
                still.append_tool_result(call_id, outcome, **again)
        assert other.append_tool_result("k", "late", **again).event.id == version + 1
        assert still.version() == version + 2
        (late,) = still.tail(1)
        assert late.content.endswith("ended: late")
        assert late.meta["took_s"] == 3
        assert [(effect.state, effect.outcome) for effect in still.effects()] == [("done", "late")]


@OVERTAKEN
def test_a_worker_that_was_overtaken_gives_back_no_lease_of_another(still, other, is_free):
    with overtaken(still, other, is_free=is_free):
        still._lease_block.leave()
        assert (other.current_lease() is None) is is_free


def test_an_ended_lease_without_a_takeover_is_valid(worker):
    still = worker
    with unrenewed_lease(still, "still") as lease:
        until(lambda: not lease.held)
        still.append(said("late, and alone"))
        assert still._lease_block.renew()


def test_an_append_after_its_block_is_refused(worker):
    """A task that was cancelled leaves its block while a thread still has its append."""
    history = worker
    with history.lease(worker="one"):
        late = PendingAppend(history, said("late")).prepare()
    with pytest.raises(LeaseTaken, match="'one' has ended; nothing"):
        history._store.database.recorder.transact(late)


def test_wrong_arguments_of_a_lease_are_refused(worker):
    history = worker
    with (
        history.lease(),
        pytest.raises(InvalidArgument, match=r"make another History: histories\['c'\]"),
    ):
        history.lease().__enter__()
    with pytest.raises(InvalidArgument, match=r"ttl_s is 0; use a number of seconds from 0[.]01"):
        history.lease(ttl_s=0)
    for wrong in ({"wait_s": "1"}, {"worker": 7}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            history.lease(**wrong)
    block = history.lease()
    with block:
        pass
    with pytest.raises(InvalidArgument, match="has ended; call"), block:
        pass


# -- open calls
# --------------------------------------------------------------------------------------------------


def test_calls_of_a_living_worker_stay_open(worker, other):
    with worker.lease(worker="one"):
        worker.append([said("hi"), CALL])
        assert to_resume(other) == []
        with pytest.raises(
            LeaseTaken,
            match=r"'one' has it until .*; nothing was appended; let this worker finish its calls",
        ):
            other.close_open_calls()
        assert len(worker.open_calls()) == 1
    assert to_resume(worker) == to_resume(other) == ["c"]
    assert other.close_open_calls(older_than=timedelta(hours=1)) == ()
    with pytest.raises(TypeError, match="older_than"):
        other.close_open_calls(older_than=3600)
    [closed] = other.close_open_calls(older_than=timedelta(0))
    assert other._binding.key is not None, "it knows which conversation it met"
    assert closed.event.cause == 1
    assert to_resume(worker) == []


def test_a_dead_worker_without_calls_is_resumed(workers, other):
    still = workers()
    still.append(said("hi"))
    with unrenewed_lease(still, "still") as lease:
        until(lambda: not lease.held and other.current_lease() is None)
        assert to_resume(other) == ["c"]
        with other.lease():
            assert to_resume(still) == []
    assert to_resume(still) == []


def test_a_reply_that_was_begun_without_a_lease_is_resumed(worker, other, monkeypatch):
    worker.append(said("hi"))
    worker.stream_reply().feed("A toy")
    with other.lease():
        pass
    assert to_resume(other) == [], "its worker may still write it"
    monkeypatch.setattr(streams, "LEFT_S", -1)
    assert to_resume(other) == ["c"]
    with other.lease():
        assert to_resume(other) == []
        other.unfinished_reply().append_cut()
    assert to_resume(other) == []


def test_a_reply_that_is_still_written_is_not_resumed(recorder):
    time = datetime(2026, 1, 1, tzinfo=UTC)
    worker, other = (Histories(Store(recorder, clock=lambda: time))["c"] for _ in range(2))
    worker.append(said("hi"))
    reply = worker.stream_reply()
    for passed_s in (0, 5, 15, 285, 500, 580):
        time += timedelta(seconds=passed_s)
        reply.feed("A ")
        assert to_resume(other) == []
    time += timedelta(seconds=streams.LEFT_S - 1)
    assert to_resume(other) == []
    time += timedelta(seconds=2)
    assert to_resume(other) == ["c"]
    reply.end()
    assert to_resume(other) == []
    assert worker.view()[-1].content == "A " * 6


def test_a_reply_that_is_written_for_longer_than_a_week_stays(recorder):
    time = datetime(2026, 1, 1, tzinfo=UTC)
    store = Store(recorder, clock=lambda: time)
    worker = Histories(store)["c"]
    worker.append(said("hi"))
    reply = worker.stream_reply()
    for _ in range(9):
        reply.feed("A ")
        time += timedelta(days=1)
        streams.sweep_all(store.database)
    assert worker.unfinished_reply().text == "A " * 9
    time += timedelta(seconds=streams.ABANDONED_S)
    streams.sweep_all(store.database)
    assert worker.unfinished_reply() is None


@pytest.mark.parametrize("state", [b"{", b"[]", b"7", b'{"wrote_at": "noon"}'])
def test_an_unreadable_state_of_a_reply_stops_no_other(tmp_path, monkeypatch, state):
    with foldlog.open(tmp_path / "s.db") as histories:
        for name in ("a", "b"):
            histories[name].append(said("hi"))
            histories[name].stream_reply().feed("A toy")
    execute(
        tmp_path / "s.db", f"UPDATE streams SET state = x'{state.hex()}' WHERE conversation = 1"
    )
    monkeypatch.setattr(streams, "LEFT_S", -1)
    with foldlog.open(tmp_path / "s.db") as histories:
        assert [*histories.to_resume()] == ["a", "b"]


def test_conversations_to_resume_are_found_with_one_read_of_the_streams(worker, monkeypatch):
    for number in range(5):
        worker._histories[f"c{number}"].append([said("a question")])
        worker._histories[f"c{number}"].stream_reply().feed("A toy")
    monkeypatch.setattr("foldlog._history.to_resume.PAGE", 2)
    monkeypatch.setattr(streams, "LEFT_S", -1)
    read = noted(monkeypatch, streams, "conversations_with_left_reply")
    assert {f"c{number}" for number in range(5)} <= {*to_resume(worker)}
    assert len(read) == 1


def test_a_redacted_call_is_interrupted(worker):
    history = worker
    history.append([said("hi"), CALL])
    assert len(history.open_calls()) == 1
    assert to_resume(history) == ["c"]
    history.redact(1, reason="asked to")
    assert history.open_calls() == ()
    assert to_resume(history) == ["c"]
    with history.lease():
        (closed,) = history.tail(1)
        history.append([CALL, CALL])
        history.redact(4, reason="asked to")
    assert closed.content == "interrupted: the call was redacted before it had a result"
    assert closed.cause == 1
    with history.lease():
        assert [call.id for call in history.view().open_calls] == [5]


def test_an_unreadable_conversation_is_reported(recorder, caplog):
    Histories(Store(recorder, ENCRYPTS))["c"].append([said("hi"), CALL])
    assert list(Histories(Store(recorder)).to_resume()) == []
    assert "conversation 'c' is left out of the list to resume: " in caplog.text


# -- crossed with other features
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("met", [True, False])
def test_a_lease_does_not_outlive_an_erasure(worker, other, met):
    if met:
        other.append(said("hi"))
    with worker.lease(worker="one") as lease:
        other.append(said("and then"))
        other._histories.erase("c", reason="asked to")
        assert (lease.held, worker._lease_block.renew(), lease.held) == (True, False, False)
        if met:
            with pytest.raises(ConversationErased):
                worker.append(said("late"))
        again = other._histories.create("c", replace_erased=True)
        assert again.current_lease() is None
        again.append(CALL)
        assert to_resume(other) == ["c"]
        version = again.version()
        with again.lease(wait_s=0, worker="two"):
            assert to_resume(other) == []
            assert not worker._lease_block.renew()
            assert again.current_lease().worker == "two"
            with pytest.raises(ConversationErased if met else LeaseTaken):
                worker.append(said("late"))
    assert (again.version(), again.current_lease()) == (version, None)


def test_other_operations_do_not_end_a_lease(worker, other, recorder):
    worker.append([said("hi"), said("secret")])
    other.fork(1, "f")
    with worker.lease(worker="one"):
        other.fork(2, "g")
        other.redact(1, reason="asked to")
        with foldlog.open("memory:") as target:
            list(copy_store(other._store, target.store))
            assert (target["c"].current_lease(), target["c"].version()) == (None, 3)
        assert_sound(other._store)
        assert len(list(rekey(Store(recorder, ENCRYPTS)))) == 3
        for store in (worker._store, worker._histories.store):
            store.database.settings = ENCRYPTS
        with worker._histories["f"].lease(wait_s=0):
            pass
        worker.append(said("goes on"))
        assert worker.current_lease().worker == "one"


def test_a_damaged_lease_is_none(worker, other, recorder):
    damaged = Record(1, 1, b'{"token":1,"worker":"?","until":9e18,"ttl":1}', 0, 7)
    with worker.lease():
        [taken] = recorder.query(lambda reader: reader.newest_records(0, 9))
        put = methodcaller("put_records", 0, taken.projection, [damaged], replace_all=True)
        recorder.transact(put)
        with pytest.raises(LeaseTaken):
            worker.append(said("late"))
        with other.lease(wait_s=0):
            other.append(said("next"))


def test_a_restored_file_refuses_later_leases(tmp_path):
    with foldlog.open(tmp_path / "a.db") as histories:
        history = histories["c"]
        with history.lease(ttl_s=0.3, worker="one"):
            history.append(said("hi"))
            histories.maintenance.back_up(tmp_path / "b.db")
            restore(str(tmp_path / "b.db"), str(tmp_path / "a.db"), WriteSettings())
            with pytest.raises(StoreRefused, match="another file took the place"):
                history.append(said("late"))
            with foldlog.open(tmp_path / "a.db") as restored, restored["c"].lease():
                restored["c"].append(said("goes on"))
                assert restored["c"].version() == 2


_REFUSED = 7
"""The exit code of a child process whose append was refused."""


def _exit_after_append_and_leave(history):
    """End this child process, whatever happens: it must not go on with the tests of its parent."""
    code = 1
    try:
        try:
            history.append(said("of the child"))
        except LeaseTaken:
            code = _REFUSED
        history._lease_block.leave()
    except BaseException:  # noqa: BLE001 - the exit code tells the parent
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def test_a_child_process_does_not_inherit_leases(tmp_path):
    with foldlog.open(tmp_path / "a.db") as histories:
        history = histories["c"]
        with history.lease() as lease:
            child = os.fork()
            if child == 0:
                _exit_after_append_and_leave(history)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == _REFUSED
            assert lease.held
            assert history.version() == 0
            history.append(said("of the parent"))
