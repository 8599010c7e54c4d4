"""The async face: the sync one's names, on asyncio; a slow step delays nobody; what has
begun is finished.
"""

import asyncio
import inspect
import os
import threading
from contextlib import aclosing, asynccontextmanager
from functools import partial

import anyio
import anyio.abc
import psutil
import pytest
from msgspec.structs import replace

import foldlog
import foldlog.aio
from foldlog import Action, aio as _aio
from foldlog._history.threads import ThreadPool
from foldlog.aio import Outcome
from foldlog.condensers import Condenser
from foldlog.eventstore import InvalidArgument, InvalidEvent, StoreRefused, VersionConflict
from foldlog.eventstore.log import appending
from foldlog.eventstore.log.appending import append_all
from tests.said import all_said, ids, said

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def histories(tmp_path):
    async with foldlog.aio.open(f"sqlite:///{tmp_path}/history.db") as histories:
        yield histories


async def noting(raised, call):
    """Await a call, and note what it raises."""
    try:
        await call
    except BaseException as error:
        raised.append(error)
        raise


class Gate:
    """Holds a thread in the middle of a call until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.held = []

    def pass_through(self):
        self.held.append(1)
        self.reached.set()
        assert self.opened.wait(60)

    @asynccontextmanager
    async def holding(self, *call):
        """A block of a program in which a call is held, and further tasks may begin."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(*call)
            await until(self.reached.is_set)
            yield tasks
            self.opened.set()


async def until(holds):
    with anyio.fail_after(60):
        while not holds():
            await anyio.sleep(0.001)


async def test_a_history_is_written_and_read(histories):
    history = histories["c1"]
    assert len(await history.view()) == 0
    [recorded] = await history.append(said("hi"), expected_version=0)
    assert recorded.id == 0
    await history.append(all_said("a", "b"))
    assert [event.content async for event in history.events(1)] == ["a", "b"]
    assert (await history.why(1)).fate == "shown"
    assert ids(await history.at(2)) == [0, 1]
    assert [event.id async for event in history.events(reverse=True)] == [2, 1, 0]
    assert ids(await history.pop(2)) == [1, 2]
    assert ids(await history.view()) == [0]
    with pytest.raises(VersionConflict):
        await history.append(said("late"), expected_version=0)


async def test_following_waits_for_what_comes(histories):
    history = histories["c1"]
    await history.append(all_said("a", "b"))
    assert [entry.event.content async for entry in histories.follow(forever=False)] == ["a", "b"]
    heard = []
    async with anyio.create_task_group() as group:

        async def listen():
            async for recorded in histories.follow(after_position=1):
                heard.append(recorded.event.content)
                if len(heard) == 3:
                    return

        group.start_soon(listen)
        await until(lambda: heard == ["b"])
        await history.append(all_said("c", "d"))
    assert heard == ["b", "c", "d"]


async def test_early_stop_closes_the_reader(histories):
    await histories["c1"].append(all_said("0", "1", "2"))
    for events in (histories["c1"].events(), histories.follow(), histories):
        async with aclosing(aiter(events)) as reading:
            assert await anext(reading)
        assert [event async for event in reading] == []


class Slow(Condenser):
    def __init__(self, gate):
        self.gate = gate

    def condense(self, view, agent_llm=None):
        if view:
            self.gate.pass_through()
        return view


async def test_call_without_a_thread_is_refused(histories, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for call in (histories["c1"].append(said("lost")), histories["c1"].step()):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await call
    await histories["c1"].append(said("hi"))
    assert [event.content async for event in histories["c1"].events()] == ["hi"]


async def test_slow_step_delays_no_other_call(tmp_path):
    gate = Gate()
    async with foldlog.aio.open(f"sqlite:///{tmp_path}/h.db", condenser=Slow(gate)) as histories:
        quick = histories["quick"]
        slow = [histories[f"c{n}"] for n in range(40)]
        for history in (quick, *slow):
            await history.append(said("hi"))
        await quick.retract(0)
        async with gate.holding(slow[0].step) as tasks:
            for history in slow[1:]:
                tasks.start_soon(history.step)
            assert not await quick.prepare()
            for history in slow:
                await history.append(said("while the model thinks"))


class Groups:
    """The numbers of appends that the thread for appends made together, after the first, which it
    holds.
    """

    def __init__(self, histories, monkeypatch):
        self.gate = Gate()
        self.sizes = []
        self._histories = histories
        monkeypatch.setattr(appending, "append_all", self._note)

    def _note(self, database, works):
        self.sizes.append(len(works))
        return append_all(database, works)

    def holding(self):
        """Return a block in which the thread for appends is held."""
        append = partial(self._histories._appending.run, finish=True)
        return self.gate.holding(append, self.gate.pass_through)

    async def wait(self, count):
        """Wait until so many calls wait for the thread, which is held."""
        await until(lambda: len(self._histories._appending._waiting) == count)


@pytest.fixture
def groups(histories, monkeypatch):
    return Groups(histories, monkeypatch)


async def test_waiting_appends_are_made_together(histories, groups):
    async def work(n):
        for version in range(3):
            await histories[f"c{n}"].append(said("hi"), expected_version=version)

    async with groups.holding() as tasks:
        for n in range(31):
            tasks.start_soon(work, n)
        await groups.wait(31)
    assert groups.sizes[0] == 31
    assert [await histories[f"c{n}"].version() for n in range(31)] == [3] * 31


async def test_waiting_appends_keep_their_order(histories, groups):
    history = histories["c1"]
    outcomes = []

    async def work(event, expected_version):
        try:
            outcomes.append(ids(await history.append(event, expected_version=expected_version)))
        except Exception as error:  # noqa: BLE001  it is the outcome
            outcomes.append(type(error))

    async with groups.holding() as tasks:
        for count, (event, version) in enumerate(
            (
                (said("a"), 0),
                (replace(said("x"), source="no"), 1),
                (all_said("b", "c"), 1),
                (said("stale"), 0),
                (said("d"), 3),
            ),
            start=1,
        ):
            tasks.start_soon(work, event, version)
            await groups.wait(count)
    expected = [InvalidEvent, [0], [1, 2], VersionConflict, [3]]
    assert sorted(map(str, outcomes)) == sorted(map(str, expected))
    assert [event.content async for event in history.events()] == ["a", "b", "c", "d"]


async def test_cancelled_append_is_withdrawn_or_finished(histories, groups, monkeypatch):
    """Cancel some appends before their group begins, and others while it runs."""
    middle = Gate()

    def held(database, works):
        middle.pass_through()
        return append_all(database, works)

    monkeypatch.setattr(appending, "append_all", held)
    raised = [[] for _ in range(6)]

    async def work(n, scope):
        with scope:
            await noting(raised[n], histories[f"c{n}"].append(said("hi"), expected_version=0))

    scopes = [anyio.CancelScope() for _ in range(6)]
    async with groups.holding() as tasks:
        for n, scope in enumerate(scopes):
            tasks.start_soon(work, n, scope)
        await groups.wait(6)
        for scope in scopes[:2]:
            scope.cancel()
        await until(lambda: all(raised[:2]))
        groups.gate.opened.set()
        await until(middle.reached.is_set)
        for scope in scopes[2:4]:
            scope.cancel()
        await anyio.sleep(0.01)  # the tasks learn of it while their appends run
        middle.opened.set()
    outcomes = [[hasattr(error, "outcome") for error in errors] for errors in raised]
    assert outcomes == [[False], [False], [True], [True], [], []]
    assert [raised[n][0].outcome.unwrap()[0].id for n in (2, 3)] == [0, 0]
    assert [await histories[f"c{n}"].version() for n in range(6)] == [0, 0, 1, 1, 1, 1]


async def test_long_append_delays_no_other(histories):
    gate = Gate()

    def slowly():
        gate.pass_through()
        yield said("late")

    async with gate.holding(histories["c1"].append, slowly()):
        await histories["c2"].append(said("hi"))
    assert [await histories[name].version() for name in ("c1", "c2")] == [1, 1]


@pytest.mark.parametrize("url", ["memory:", "postgresql"])
async def test_many_tasks_append_to_other_databases(url, request):
    async with foldlog.aio.open(
        request.getfixturevalue("postgres_url")() if url == "postgresql" else url
    ) as histories:

        async def work(n):
            for version in range(5):
                await histories[f"c{n}"].append(said("hi"), expected_version=version)
            with pytest.raises(VersionConflict):
                await histories[f"c{n}"].append(said("late"), expected_version=0)

        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(work, n)
        assert [await histories[f"c{n}"].version() for n in range(8)] == [5] * 8
        positions = set()
        with anyio.fail_after(60):  # a transaction of somebody else may hold some back for a while
            async for recorded in histories.follow():
                positions.add(recorded.position)
                if len(positions) == 40:
                    break


async def test_read_cancelled_before_its_begin_is_withdrawn():
    pool = ThreadPool("one", 1)
    gate = Gate()
    begun = []
    async with gate.holding(pool.run, gate.pass_through):
        with anyio.move_on_after(0):
            await pool.run(lambda: begun.append(1), finish=False)
        gate.opened.set()
    pool.close()
    assert begun == []


async def test_cancelled_read_raises_at_once(histories):
    gate = Gate()
    read = partial(histories.pool.run, finish=False)
    with anyio.CancelScope() as scope:
        async with gate.holding(read, gate.pass_through):
            scope.cancel()
            await anyio.sleep_forever()
    gate.opened.set()


@pytest.mark.parametrize("fails", [False, True])
async def test_cancelled_iteration_loses_no_page(histories, monkeypatch, fails):
    gate = Gate()
    read = foldlog.Store.events
    numbers = list(range(1_200))
    await histories["c1"].append([said(f"{number}") for number in numbers])

    def held(self, *arguments, **options):
        yield from read(self, "c1", 0, 700)
        gate.pass_through()
        if fails:
            raise ValueError("no")
        yield from read(self, "c1", 700)

    monkeypatch.setattr(foldlog.Store, "events", held)
    pages = histories["c1"].events()
    ids = [(await anext(pages)).id for _ in range(500)]
    async with anyio.create_task_group() as group:
        group.start_soon(anext, pages)
        await until(gate.reached.is_set)
        group.cancel_scope.cancel()
    gate.opened.set()
    if fails:
        with pytest.raises(ValueError, match="no"):
            await anext(pages)
    else:
        assert ids + [event.id async for event in pages] == numbers


async def test_error_of_a_cancelled_call_is_its_outcome(histories):
    gate = Gate()
    raised = []

    def fail():
        gate.pass_through()
        raise ValueError("no")

    async with anyio.create_task_group() as group:
        group.start_soon(noting, raised, histories.pool.run(fail, finish=True))
        await until(gate.reached.is_set)
        group.cancel_scope.cancel()
        threading.Timer(0.05, gate.opened.set).start()
    with pytest.raises(ValueError, match="no"):
        raised[0].outcome.unwrap()


def test_face_has_the_names_of_the_sync_one():
    for sync, asynchronous in (
        (foldlog.History, foldlog.aio.History),
        (foldlog.Histories, foldlog.aio.Histories),
    ):
        names = {name for name in vars(sync) if not name.startswith("_")}
        without = {"condenser", "handler", "maintenance", "recording"}
        assert names <= {*dir(asynchronous)} | without
        for name in names & set(vars(asynchronous)) - {"close"}:
            method = getattr(sync, name)
            if inspect.isfunction(method):
                assert getattr(asynchronous, name).__doc__ == method.__doc__
    assert (
        inspect.signature(foldlog.aio.open).parameters == inspect.signature(foldlog.open).parameters
    )


async def test_sync_protocols_name_their_async_form(histories):
    await histories["c"].append(said("hi"))
    assert [name async for name in histories] == ["c"]
    for pages in (histories, histories["c"].events()):
        with pytest.raises(TypeError, match="write 'async for'"):
            iter(pages)
    with pytest.raises(TypeError, match="'in' cannot be awaited; use 'await"):
        _ = "c" in histories
    assert (await histories["c"].version(), await histories["d"].version()) == (1, 0)
    with pytest.raises(TypeError, match="a text, not 3"):
        histories[3]
    assert bool(histories["d"])
    for object, remedy in ((histories, "async for"), (histories["c"], "await history.version()")):
        with pytest.raises(TypeError, match=f"'len' cannot be awaited; .*{remedy}"):
            len(object)
        assert object
    with pytest.raises(
        AttributeError,
        match=r"write 'await histories.pool.run\(lambda: histories.sync.maintenance…\)'",
    ):
        _ = histories.maintenance
    assert not hasattr(histories, "unheard")
    with pytest.raises(TypeError, match="'condensers'"):
        foldlog.aio.open("memory:", condensers="digest")


async def test_close_waits_for_begun_calls(histories):
    await histories["c1"].append(said("hi"))
    gate = Gate()
    versions = []

    def read_late():
        gate.pass_through()
        versions.append(histories.sync["c1"].version())

    async with gate.holding(partial(histories.pool.run, read_late, finish=False)) as tasks:
        tasks.start_soon(histories.close)
        await anyio.sleep(0.1)  # a close that does not wait closes the store before the read
    assert versions == [1]


async def test_face_closes_after_the_sync_one(histories):
    await histories["c1"].append(said("hi"))
    histories.sync.close()
    await histories.close()


async def test_a_closed_face_says_so(histories):
    history = histories["c1"]
    await history.append(said("hi"))
    await histories.close()
    for call in (history.append(said("hi")), history.view(), history.step(), history.version()):
        with pytest.raises(StoreRefused, match="is closed; open the store again"):
            await call


@pytest.mark.parametrize("times", [10, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("close", ["sync", "async"])
async def test_close_ends_threads_and_connections(tmp_path, close, times):
    async def use():
        opened = foldlog.open(tmp_path / "history.db")
        face = foldlog.aio.face_of(opened)
        assert foldlog.aio.face_of(face.sync) is face
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(face[f"c{number}"].append, said("hi"))
                tasks.start_soon(face[f"c{number}"].version)
        await face["c1"].prepare()
        if close == "sync":
            opened.close()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(face.close)
            tasks.start_soon(face.close)

    def ours():
        return sum(thread.name.startswith("foldlog") for thread in threading.enumerate())

    before = ours()
    await use()
    process = psutil.Process()
    files = process.num_fds()
    for _ in range(times):
        await use()
    with anyio.fail_after(60):
        await until(lambda: ours() <= before)
    assert process.num_fds() <= files


async def test_forked_process_has_its_own_threads(histories):
    await histories["c1"].append(said("parent"))
    child = os.fork()
    if child == 0:
        # The child is in the middle of its parent's loop, so it runs a loop of its own in another
        # thread.
        add = threading.Thread(
            target=lambda: asyncio.run(histories["c1"].append(said("child"))), daemon=True
        )
        add.start()
        add.join(60)
        os._exit(add.is_alive())
    assert os.waitpid(child, 0)[1] == 0
    assert [event.content async for event in histories["c1"].events()] == ["parent", "child"]


def test_cancelled_task_finishes_its_call(tmp_path):
    """``task.cancel()`` and ``asyncio.timeout`` reach a call that has begun; it is finished all the
    same.
    """

    async def main():
        async with foldlog.aio.open(f"sqlite:///{tmp_path}/h.db") as histories:
            gate = Gate()
            task = asyncio.create_task(histories.pool.run(lambda: gate.pass_through() or 7))
            await until(gate.reached.is_set)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
            gate.opened.set()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert raised.value.outcome == Outcome(7)
            # The call ends after the timeout, however late the loop comes to both.
            after_the_timeout = threading.Event()
            asyncio.get_running_loop().call_later(0.1, after_the_timeout.set)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await histories.pool.run(lambda: after_the_timeout.wait(60))

    asyncio.run(main())


async def test_cancelled_task_releases_its_lease(histories):
    """One task holds the lease, and more tasks wait than there are threads. No other call waits."""
    history = histories["c"]
    entered = anyio.Event()

    async def drive():
        async with history.lease() as lease:
            assert lease.held
            entered.set()
            await anyio.sleep_forever()

    async def wait():
        async with histories["c"].lease():
            raise AssertionError("two have the lease")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await entered.wait()
        for _ in range(_aio._THREADS + 8):
            tasks.start_soon(wait)
        await histories["c"].append(said("from a user"))
        assert (await histories["c"].current_lease()).held
        assert [name async for name in histories.to_resume()] == []
        tasks.cancel_scope.cancel()
    assert await histories["c"].current_lease() is None
    async with history.lease(wait_s=0):
        await history.append(said("the next one"))
    assert await history.version() == 2

    async def fail_after_a_close():
        async with history.lease():
            await histories.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_a_close()


# -- effects
# --------------------------------------------------------------------------------------------------


def _calls(*names):
    return [
        Action(tool="pay", arguments={"to": name}, call_id=name, response_id="r") for name in names
    ]


async def _open_call(history, name):
    await history.append(_calls(name))
    (call,) = await history.open_calls()
    return call


async def test_tools_of_one_reply_run_concurrently(histories):
    history = histories["c"]
    both = anyio.Event()
    await history.append(_calls("ann", "bob"))
    paid = []

    async def pay(to, key):
        paid.append(to)
        if len(paid) == 2:
            both.set()
        await both.wait()
        return f"paid {to} under {key}"

    async with history.lease(), anyio.create_task_group() as tasks:
        for call in await history.open_calls():
            tasks.start_soon(partial(history.run, call, pay, repeat="same key"))
    effects = await history.effects()
    assert sorted(paid) == ["ann", "bob"]
    assert [effect.outcome for effect in effects] == [
        f"paid {effect.call.call_id} under {effect.key}" for effect in effects
    ]


async def test_cancelled_tool_may_have_run(histories):
    history = histories["c"]
    begun = anyio.Event()
    call = await _open_call(history, "ann")

    async def pay(to):
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    async def look(key, call):
        return f"{key} is paid"

    async def drive():
        async with history.lease():
            await history.run(call, pay)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await begun.wait()
        tasks.cancel_scope.cancel()
    (effect,) = await history.effects("unknown")
    async with history.lease():
        recorded = await history.run(call, lambda to: to, check=look)
        assert recorded.event.content == f"{effect.key} is paid"
        failed = await history.run(await _open_call(history, "bob"), lambda to: 1 / 0)
    assert failed.event.content.startswith("ZeroDivisionError")
    assert (await history.settle(effect.key, "paid twice, says the bank")).event.cause == call.id


class BusyPool:
    """Takes all threads of the histories, and cancels a task that then needs one."""

    def __init__(self, histories):
        self.scope = anyio.CancelScope()
        self._pool = histories.pool
        self._gate = Gate()

    async def take_all_and_cancel(self, tasks):
        """Cancel ``scope``. The threads are free again when the task waits for one."""
        for _ in range(_aio._THREADS):
            tasks.start_soon(partial(self._pool.run, self._gate.pass_through, finish=True))
        await until(lambda: len(self._gate.held) == _aio._THREADS)
        tasks.start_soon(self._free_them)
        self.scope.cancel()

    async def _free_them(self):
        await until(lambda: self.scope.cancel_called)
        for _ in range(10):
            await anyio.sleep(0)
        self._gate.opened.set()


async def test_outcome_of_a_cancelled_task_is_recorded(histories):
    history = histories["c"]
    call = await _open_call(history, "ann")
    busy = BusyPool(histories)

    async with history.lease(), anyio.create_task_group() as tasks:

        async def pay(to):
            await busy.take_all_and_cancel(tasks)
            return "paid"

        with busy.scope:
            await history.run(call, pay)
    assert [(effect.state, effect.outcome) for effect in await history.effects()] == [
        ("done", "paid")
    ]


async def test_work_of_a_cancelled_task_is_recorded(histories):
    history = histories["c"]
    busy = BusyPool(histories)

    async with anyio.create_task_group() as tasks:

        async def ask():
            await busy.take_all_and_cancel(tasks)
            return {"role": "assistant", "content": "yes"}

        with busy.scope:
            await history.once("turn", ask)
    (recorded,) = await history.recorded("turn")
    assert recorded.event.content == "yes"


async def cancelled_in_its_thread(call, gate):
    """Cancel a call whose thread is held by the gate, and then let the thread go on."""
    task = asyncio.create_task(call)
    await until(gate.reached.is_set)
    task.cancel()
    for _ in range(10):  # the task is told before its thread has ended
        await anyio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    return cancelled.value.outcome.unwrap()


async def test_outcome_of_a_tool_in_a_thread_is_recorded_after_a_cancellation(histories):
    history = histories["c"]
    call = await _open_call(history, "ann")
    gate = Gate()

    def pay(to):
        gate.pass_through()
        return "paid"

    async def look(key, call):
        return None

    async with history.lease():
        recorded = await cancelled_in_its_thread(history.run(call, pay, check=look), gate)
    assert recorded.event.content == "paid"
    assert [(effect.state, effect.outcome) for effect in await history.effects()] == [
        ("done", "paid")
    ]


async def test_work_in_a_thread_is_recorded_after_a_cancellation(histories):
    history = histories["c"]
    gate = Gate()

    def ask():
        gate.pass_through()
        return {"role": "assistant", "content": "yes"}

    recorded = await cancelled_in_its_thread(history.once("turn", ask), gate)
    assert recorded == await history.recorded("turn")
    assert [entry.event.content for entry in recorded] == ["yes"]


async def test_a_loop_over_a_reply_without_a_source_is_refused(histories):
    history = histories["c"]
    await history.append(said("hi"))
    with pytest.raises(InvalidArgument, match="has no source"):
        await anext(aiter(history.stream_reply()))
    assert await history.unfinished_reply() is None


async def test_a_text_is_no_source_for_the_rest_of_a_reply(histories):
    history = histories["c"]
    await history.append(said("hi"))
    await history.stream_reply().feed("A toy")
    unfinished = await history.unfinished_reply()
    with pytest.raises(TypeError, match="the source of a reply yields its chunks"):
        unfinished.continue_with(" that flies")


async def test_an_async_work_is_done_once(histories):
    history = histories["c"]

    async def ask():
        await anyio.sleep(0)
        return {"role": "assistant", "content": "yes"}

    first = await history.once("turn", ask)
    assert await history.once("turn", lambda: 1 / 0) == first == await history.recorded("turn")
    (other,) = await history.once("other turn", lambda: ask())
    assert other.event.content == "yes"
