"""The async interface: ``open``, ``Histories`` and ``History`` of ``foldlog``, for asyncio.

    import foldlog.aio

    async with foldlog.aio.open("sqlite:///history.db") as histories:
        history = histories["c1"]
        await history.append(Message(source="user", content="hi"))
        view = await history.view()
        async for event in history.events():
            ...

Each call runs the sync method in a thread that foldlog manages. Steps that may condense run in
separate threads, so a slow model never delays an append.

If a task is cancelled during a write, the write is finished before the cancellation is raised. The
attribute ``outcome`` of the cancellation, an ``Outcome``, has the result of the write. A call that
has not begun, or that only reads, is cancelled at once, and the cancellation has no ``outcome``.

``docs/internals/decisions/0023-async-appends.md`` gives the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial, update_wrapper
from inspect import iscoroutine, iscoroutinefunction, signature
from itertools import islice
from threading import Lock
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    cast,
)

from foldlog._history import effects, histories as sync
from foldlog._history.history import ExpectedVersion, History as SyncHistory
from foldlog._history.once import append_once
from foldlog._history.threads import SharingPool, ThreadPool
from foldlog._reports.search.recall_tool import RecallTool
from foldlog.eventstore import ANY_VERSION, Action, Event, Recorded, Store, StoreRefused
from foldlog.eventstore.log import appending
from foldlog.eventstore.log.appending import Appending
from foldlog.eventstore.recorders.types import Outcome
from foldlog.eventstore.store import prepare_append
from foldlog.projections import View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from foldlog._history.lease import Lease, LeaseBlock
    from foldlog._history.streamed_reply import ReplyPart, StreamedReply, UnfinishedReply

_C = TypeVar("_C", bound=Callable[..., Any])
_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")

_PAGE = 500
"""The number of items that an async iterator reads at a time."""
_THREADS = 32
"""The maximum number of threads for all calls except steps, which may wait for a model."""
_STEPPING_THREADS = 256
"""The maximum number of threads for steps. A step that is waiting for a model uses 50 KB of memory.
"""
_POLL_S = 0.005
"""How long ``follow`` waits at first for new events. The wait is doubled each time."""
_POLL_MAX_S = 0.1
"""How long ``follow`` waits at most."""
_EVENTS_MAX: Final = 100
"""The maximum number of events in an append that shares a commit. Encoding 100 events delays the
commit by about a millisecond.
"""
_faces_lock = Lock()
"""Held while the one ``AsyncHistories`` of open histories is made."""


class _Opening:
    """The return value of ``foldlog.aio.open``. Await it to get the open histories, or use it in
    ``async with``.
    """

    def __init__(self, opened: Callable[[], sync.Histories]) -> None:
        self._opened = opened
        self._histories: AsyncHistories | None = None

    def __await__(self) -> Generator[Any, Any, AsyncHistories]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncHistories:
        self._histories = await self._open()
        return self._histories

    async def __aexit__(self, *error: object) -> None:
        assert self._histories is not None  # the block was entered
        await self._histories.close()

    async def _open(self) -> AsyncHistories:
        pool = ThreadPool("foldlog", _THREADS)
        try:
            return AsyncHistories(await pool.run(self._opened, finish=True), pool)
        except BaseException as error:
            outcome = getattr(error, "outcome", None)
            if outcome is not None and outcome.value is not None:
                outcome.value.close()  # no other code closes a store that was opened and cancelled
            pool.close()
            raise


def _method(
    method: Callable[Concatenate[_S, _P], _T], *, writes: bool = False, steps: bool = False
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Return the async form of a method. A method that ``writes`` is finished even if its task is
    cancelled. ``steps`` is for methods that may wait for a model.
    """

    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]:
        histories: AsyncHistories = self._histories
        work = partial(method, self.sync, *args, **kwargs)
        pool = histories._stepping if steps else histories.pool
        return pool.run(work, finish=writes or steps)

    return _describe(call, method)


def _pages(
    method: Callable[Concatenate[_S, _P], Iterator[_T]],
) -> Callable[Concatenate[Any, _P], _Pages[_T]]:
    """Return the async form of a method that returns an iterator."""

    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _Pages[_T]:
        return _Pages(self._histories.pool, partial(method, self.sync, *args, **kwargs))

    return _describe(call, method)


def _append(
    method: Callable[Concatenate[SyncHistory, _P], _T],
) -> Callable[Concatenate[AsyncHistory, _P], Coroutine[Any, Any, _T]]:
    """Return the async form of ``History.append``. Appends that wait at the same time share a
    commit.
    """

    def call(
        self: AsyncHistory, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Coroutine[Any, Any, Any]:
        arguments: Mapping[str, Any] = kwargs
        append = PendingAppend(self.sync, *args, **arguments)
        histories = self._histories
        pool = histories._appending if append.is_short else histories.pool
        return pool.run(append, finish=True)

    return _describe(call, method)


def _describe(call: _C, method: Callable[..., Any]) -> _C:
    """Return ``call`` with the name and the docstring of ``method``."""
    update_wrapper(call, method, assigned=("__name__", "__doc__"))
    if "." in method.__qualname__:
        call.__qualname__ = f"Async{method.__qualname__}"
    else:
        call.__qualname__ = method.__qualname__
    return call


def _opening(opened: Callable[_P, sync.Histories]) -> Callable[_P, _Opening]:
    """Return the async form of a function that opens a store."""
    opening_signature = signature(opened)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _Opening:
        # A wrong argument raises its error here. Otherwise it would raise it only at the await.
        opening_signature.bind(*args, **kwargs)
        return _Opening(partial(opened, *args, **kwargs))

    return _describe(call, opened)


open = _opening(sync.open)
open.__doc__ = """Open a store: ``async with foldlog.aio.open(url) as histories``, or
``histories = await foldlog.aio.open(url)`` and ``await histories.close()`` at the end. The
arguments and errors are the same as for ``foldlog.open``.
"""


@dataclass(eq=False)
class PendingAppend:
    """The arguments of an append that waits."""

    history: SyncHistory
    events: Any
    _: KW_ONLY
    expected_version: ExpectedVersion = ANY_VERSION
    idempotency_key: str | None = None
    documents: Mapping[str, Any] | None = None
    dedupe: Literal["origin"] | None = None

    def __call__(self) -> tuple[Recorded, ...]:
        return self.history.append(
            self.events,
            expected_version=self.expected_version,
            idempotency_key=self.idempotency_key,
            documents=self.documents,
            dedupe=self.dedupe,
        )

    @property
    def is_short(self) -> bool:
        """Whether the append may share a commit. Appends that share a commit must be short, because
        each of them waits for all others.
        """
        if type(self.history._store) is not Store:
            return False  # The store observes each append, with a span of its own.
        if self.documents is not None or self.dedupe is not None:
            return False
        if self.history._asked_at is not None:
            return False  # The append may be a reply, which may have to be appended a second time.
        events = self.events
        if isinstance(events, Event):
            return True
        if type(events) not in (list, tuple) or len(events) > _EVENTS_MAX:
            return False
        # Chat messages may need the View.
        return not any(isinstance(event, Mapping) for event in events)

    def prepare(self) -> Appending:
        """Check and encode the events. Return the append, which only has to be committed."""
        history = self.history
        return prepare_append(
            history._store,
            history.id,
            history._appendable(self.events, None),
            self.expected_version,
            self.idempotency_key,
            fence=history._fence,
        )


def append_all(
    store: Store, appends: Sequence[PendingAppend]
) -> list[Outcome[tuple[Recorded, ...]]]:
    """Run short appends in order, and return the outcome of each append. If an append fails, all
    other appends are still made.
    """
    prepared = [Outcome.of(append.prepare) for append in appends]
    works = [outcome.value for outcome in prepared if outcome.value is not None]
    appended = iter(appending.append_all(store.database, works))
    return [
        Outcome(error=before.error) if before.value is None else next(appended)
        for before in prepared
    ]


def _only_async_for(self: object) -> Any:
    """Raise ``TypeError``, because ``for`` would otherwise look up the histories 0, 1, 2 and so on,
    without an end.
    """
    raise TypeError(
        f"a {type(self).__name__} of foldlog.aio cannot be iterated over with 'for' or 'list';"
        " write 'async for', or '[item async for item in …]'"
    )


class _Pages(Generic[_T]):
    """An async iterator that reads the items of a blocking iterator in pages.

    A cancelled ``__anext__`` loses no item, because the page stays in memory. This class is not an
    async generator, because an async generator can be closed only in its own event loop.
    """

    def __init__(self, pool: ThreadPool, iterate: Callable[[], Iterator[_T]]) -> None:
        self._pool = pool
        self._iterate = iterate
        self._iterator: Iterator[_T] | None = None
        self._page: Iterator[_T] = iter(())
        self._read_ahead: Outcome[list[_T]] | None = None
        self._reading = Lock()
        self._is_closed = False

    __iter__ = _only_async_for

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        for item in self._page:
            return item
        if self._is_closed:
            raise StopAsyncIteration
        outcome = await self._pool.run(self._read, finish=False)
        self._read_ahead = None
        self._page = iter(outcome.unwrap())
        for item in self._page:
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration and drop the page in memory. No transaction needs to be closed, because
        none is open between two pages.
        """
        self._is_closed = True
        self._page = iter(())
        self._iterator = None
        self._read_ahead = None

    def _read(self) -> Outcome[list[_T]]:
        with self._reading:  # a cancelled step may still read
            if self._read_ahead is None:
                self._read_ahead = Outcome.of(self._next_page)
            return self._read_ahead

    def _next_page(self) -> list[_T]:
        if self._iterator is None:
            self._iterator = self._iterate()
        return list(islice(self._iterator, _PAGE))


class _Following(_Pages[Recorded]):
    """An endless async iterator over all events that are recorded after a position.

    ``_read_version`` is the version of the store's data at which no later event existed, or None.
    While the store still has this version, it is not read again.
    """

    def __init__(self, pool: ThreadPool, store: Store, after_position: int) -> None:
        super().__init__(pool, lambda: store.follow(self._position))
        self._data_version = store.database.data_version
        self._position = after_position
        self._read_version: int | None = None

    async def __anext__(self) -> Recorded:
        wait_s = _POLL_S
        while not self._is_closed:
            with suppress(StopAsyncIteration):
                return await super().__anext__()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _POLL_MAX_S)
        raise StopAsyncIteration

    def _next_page(self) -> list[Recorded]:
        version = self._data_version()
        if version == self._read_version:
            return []
        page = list(islice(self._iterate(), _PAGE))
        if page:
            self._position = page[-1].position
        else:
            self._read_version = version
        return page


class _FollowedReply(_Pages["ReplyPart"]):
    """The parts of a reply that is being written, until its end."""

    def __init__(self, pool: ThreadPool, history: SyncHistory, after: str | None) -> None:
        from foldlog._history.streamed_reply import ReplyFollower

        self._follower = ReplyFollower(history, after)
        super().__init__(pool, lambda: iter(()))

    async def __anext__(self) -> ReplyPart:
        while True:
            with suppress(StopAsyncIteration):
                return await super().__anext__()
            if self._is_closed or self._follower.is_ended:
                raise StopAsyncIteration
            await asyncio.sleep(self._follower.poll_s)

    def _next_page(self) -> list[ReplyPart]:
        return [] if self._follower.is_ended else self._follower.page()


def _hint_for_missing(of: type, remedy: str) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__`` that always raises ``AttributeError``. If the sync class ``of`` has
    the attribute, the error shows how to reach it from async code.
    """

    def missing(self: object, name: str) -> Any:
        hint = f"; write '{remedy.format(name)}'" if hasattr(of, name) else ""
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self
        )

    return missing


def face_of(histories: sync.Histories) -> AsyncHistories:
    """Return the async interface of open histories. Repeated calls for the same histories return
    the same object.

    Closing the interface closes the histories, and closing the histories closes the interface. The
    interface starts threads when its methods are first called.
    """
    with _faces_lock:
        face: AsyncHistories | None = histories._async_face
        return face or AsyncHistories(histories, ThreadPool("foldlog", _THREADS))


_created = _method(sync.Histories.create, writes=True)
_forked = _method(SyncHistory.fork, writes=True)
_begun = _method(SyncHistory.begin_child, writes=True)


class AsyncHistories:
    """The histories of a store, by their ids. ``sync`` is the same ``Histories`` with sync methods.

    Many tasks, in many event loops, may use the same ``AsyncHistories``. To use ``sync`` in a
    function ``work``, call ``await histories.pool.run(work)``. The pool runs ``work`` in a thread,
    as ``ThreadPool.run`` describes.
    """

    def __init__(self, histories: sync.Histories, pool: ThreadPool) -> None:
        self.sync = histories
        self.pool = pool
        self._stepping = ThreadPool("foldlog-steps", _STEPPING_THREADS)
        self._appending = pool
        store = histories.store
        # On a server, each append has a connection of its own.
        if not store.database.recorder.on_server:
            self._appending = SharingPool("foldlog-appends", partial(append_all, store))
        histories._async_face = self

    @property
    def _histories(self) -> AsyncHistories:
        return self

    def __getitem__(self, conversation: str) -> AsyncHistory:
        return AsyncHistory(self, conversation)

    __iter__ = _only_async_for

    def __contains__(self, conversation: object) -> bool:
        raise TypeError(
            "'in' cannot be awaited; use 'await histories[id].version()', which is 0 if there is "
            "no event"
        )

    def __len__(self) -> int:
        raise TypeError("'len' cannot be awaited; count with 'len([id async for id in histories])'")

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:
        __getattr__ = _hint_for_missing(
            sync.Histories, "await histories.pool.run(lambda: histories.sync.{}…)"
        )

    def __aiter__(self) -> _Pages[str]:
        """Yield the ids of all histories with events, in the order of their UTF-8 bytes."""
        return _Pages(self.pool, lambda: iter(self.sync))

    def follow(self, after_position: int = 0, *, forever: bool = True) -> _Pages[Recorded]:
        """Yield the events of all histories after a position, in the order of their positions.

        With ``forever``, the iteration waits for more events. Without ``forever``, the iteration
        ends where ``Store.follow`` ends. To resume without a missed or repeated event, store the
        last position and begin after it. Raises the errors of ``Store.follow``.

        Cost: while the iteration waits, it makes a query of some microseconds every 5 to 100 ms.
        """
        follow = self.sync.store.follow
        if not forever:
            return _Pages(self.pool, partial(follow, after_position))
        return _Following(self.pool, self.sync.store, after_position)

    find = _method(sync.Histories.find)
    import_ = _method(sync.Histories.import_, writes=True)
    erase = _method(sync.Histories.erase, writes=True)
    list = _method(sync.Histories.list)
    search = _method(sync.Histories.search)
    to_resume = _pages(sync.Histories.to_resume)

    async def create(
        self,
        conversation: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        replace_erased: bool = False,
    ) -> AsyncHistory:
        history = self[conversation]
        history.sync = await _created(self, conversation, attributes, replace_erased=replace_erased)
        return history

    create.__doc__ = sync.Histories.create.__doc__

    async def close(self) -> None:
        """Wait for the running calls, then close the store."""
        pool = ThreadPool("foldlog-close", 1)  # no thread may wait for the end of its own pool
        await pool.run(self._close, may_withdraw=False)
        pool.close(wait=False)

    def _close(self) -> None:
        self._end_threads(wait=True)
        self.sync.close()

    def _end_threads(self, *, wait: bool) -> None:
        for pool in {self._stepping, self._appending, self.pool}:
            pool.close(wait=wait)

    def __repr__(self) -> str:
        return f"<async {self.sync!r}>"


class AsyncRecallTool:
    """The tool ``recall`` of one conversation. ``sync`` is the ``RecallTool`` with the same
    ``schema`` and ``hint``.
    """

    def __init__(self, pool: ThreadPool, tool: RecallTool) -> None:
        self._pool = pool
        self.sync = tool
        self.schema = tool.schema
        self.hint = tool.hint
        self.name = tool.name

    async def __call__(self, call: Action | Mapping[str, Any] | str) -> str:
        return await self._pool.run(lambda: self.sync(call), finish=False)

    async def recall(self, query: str = "", ids: list[int] | None = None, path: str = "") -> str:
        return await self._pool.run(lambda: self.sync.recall(query, ids, path), finish=False)

    recall.__doc__ = RecallTool.recall.__doc__


class AsyncStreamedReply:
    """A reply that a model is writing, made by ``AsyncHistory.stream_reply``: ``async for chunk in
    history.stream_reply(source)``, or ``async with history.stream_reply() as reply`` and ``await
    reply.feed(chunk)``. ``sync`` is the ``StreamedReply``.
    """

    def __init__(self, pool: ThreadPool, reply: StreamedReply, source: Any) -> None:
        self._pool = pool
        self._source = source
        self.sync = reply

    __iter__ = _only_async_for

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        return self.sync.recorded

    @property
    def text(self) -> str:
        return self.sync.text

    @property
    def is_closed(self) -> bool:
        return self.sync.is_closed

    async def __aenter__(self) -> Self:
        await self._write(self.sync._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        await self._end(partial(self.sync.__exit__, kind, error, trace))

    async def __aiter__(self) -> AsyncIterator[Any]:
        if self._source is None:
            raise self.sync._no_source()
        if not await self._write(self.sync._open):
            return
        try:
            if hasattr(self._source, "__aiter__"):
                async for chunk in self._source:
                    if not await self._write(partial(self.sync._store_next, chunk)):
                        return
                    yield chunk
            else:
                for chunk in self._source:
                    if not await self._write(partial(self.sync._store_next, chunk)):
                        return
                    yield chunk
        except BaseException as error:
            await self._end(partial(self.sync._end_after, error))
            raise
        await self._end(self.sync._end_source)

    async def feed(self, chunk: Any) -> None:
        """Store a chunk, as ``StreamedReply.feed`` does."""
        await self._write(partial(self.sync.feed, chunk))

    async def cancel(self) -> tuple[Recorded, ...]:
        """Append what was read, marked as cut, as ``StreamedReply.cancel`` does."""
        return await self._write(self.sync.cancel)

    async def end(self) -> tuple[Recorded, ...]:
        """Append the complete reply, as ``StreamedReply.end`` does."""
        return await self._write(self.sync.end)

    async def drop(self) -> None:
        """Close the stream and append nothing, as ``StreamedReply.drop`` does."""
        await self._write(self.sync.drop)

    async def _write(self, work: Callable[[], _T]) -> _T:
        """Run ``work``. It is finished even if the task is cancelled, unless it has not begun."""
        return await self._pool.run(work, finish=True)

    async def _end(self, work: Callable[[], object]) -> None:
        """Run ``work`` in any case, even if the task was cancelled before it began."""
        await self._pool.run(work, finish=True, may_withdraw=False)


class AsyncUnfinishedReply:
    """A reply that a worker left unfinished: see ``UnfinishedReply``, which is ``sync``. What was
    written is in memory, so its properties need no ``await``.
    """

    def __init__(self, pool: ThreadPool, reply: UnfinishedReply) -> None:
        self._pool = pool
        self.sync = reply

    @property
    def text(self) -> str:
        return self.sync.text

    @property
    def reasoning(self) -> str:
        return self.sync.reasoning

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.sync.calls

    @property
    def message(self) -> dict[str, Any]:
        return self.sync.message

    @property
    def began_at(self) -> datetime:
        return self.sync.began_at

    async def append(self, reply: Any = None, **options: Any) -> tuple[Recorded, ...]:
        """Append the complete reply, as ``UnfinishedReply.append`` does."""
        return await self._pool.run(partial(self.sync.append, reply, **options), finish=True)

    async def append_cut(self, *, meta: Mapping[str, Any] | None = None) -> tuple[Recorded, ...]:
        """Append what was written, marked as cut, as ``UnfinishedReply.append_cut`` does."""
        return await self._pool.run(partial(self.sync.append_cut, meta=meta), finish=True)

    async def drop(self) -> None:
        """Close the stream and append nothing, as ``UnfinishedReply.drop`` does."""
        await self._pool.run(self.sync.drop, finish=True)

    def continue_with(self, source: Any = None, **options: Any) -> AsyncStreamedReply:
        """Continue the reply in its stream, as ``UnfinishedReply.continue_with`` does."""
        from foldlog._history.streamed_reply import check_source

        check_source(source)
        return AsyncStreamedReply(self._pool, self.sync.continue_with(**options), source)


class _AsyncLeaseBlock:
    """The async form of ``LeaseBlock``. A task that waits for the lease uses no thread. The lease
    is released even if the task is cancelled.
    """

    def __init__(self, pool: ThreadPool, block: LeaseBlock) -> None:
        self._pool = pool
        self._block = block

    async def __aenter__(self) -> Lease:
        try:
            while (pause_s := await self._pool.run(self._block.attempt, finish=True)) is not None:
                await asyncio.sleep(pause_s)
            await self._pool.run(self._block.close_redacted_calls, finish=True)
        except BaseException:
            await self.__aexit__()
            raise
        return self._block.lease

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._pool.run(self._block.leave, finish=True, may_withdraw=False)
        except StoreRefused:
            # The store was closed, so ``leave`` writes nothing. The error or the cancellation of
            # the block must not be lost.
            self._block.leave()


class AsyncHistory:
    """One conversation. ``sync`` is the conversation's ``History``, and ``History`` describes every
    method.
    """

    def __init__(self, histories: AsyncHistories, conversation: str) -> None:
        self._histories = histories
        self.sync = histories.sync[conversation]
        self.id = conversation

    def __len__(self) -> int:
        raise TypeError("'len' cannot be awaited; use 'await history.version()'")

    def __bool__(self) -> bool:
        return True

    append = _append(SyncHistory.append)
    append_records = _method(SyncHistory.append_records, writes=True)
    append_reply = _method(SyncHistory.append_reply, writes=True)
    append_tool_result = _method(SyncHistory.append_tool_result, writes=True)
    settle = _method(SyncHistory.settle, writes=True)
    ask_approval = _method(SyncHistory.ask_approval, writes=True)
    decide = _method(SyncHistory.decide, writes=True)
    close_open_calls = _method(SyncHistory.close_open_calls, writes=True)
    request_condensation = _method(SyncHistory.request_condensation, writes=True)
    retract = _method(SyncHistory.retract, writes=True)
    redact = _method(SyncHistory.redact, writes=True)
    pop = _method(SyncHistory.pop, writes=True)
    step = _method(SyncHistory.step, writes=True, steps=True)
    prepare = _method(SyncHistory.prepare, writes=True, steps=True)
    condense = _method(SyncHistory.condense, writes=True, steps=True)
    current_lease = _method(SyncHistory.current_lease)
    effects = _method(SyncHistory.effects)
    recorded = _method(SyncHistory.recorded)
    at = _method(SyncHistory.at)
    sent = _method(SyncHistory.sent)
    sent_request = _method(SyncHistory.sent_request)
    version = _method(SyncHistory.version)
    attributes = _method(SyncHistory.attributes)
    open_calls = _method(SyncHistory.open_calls)
    tail = _method(SyncHistory.tail)
    set_attributes = _method(SyncHistory.set_attributes, writes=True)
    document = _method(SyncHistory.document)
    documents = _method(SyncHistory.documents)
    why = _method(SyncHistory.why)
    fact = _method(SyncHistory.fact)
    dropped = _method(SyncHistory.dropped)
    hand_overs = _method(SyncHistory.hand_overs)
    continue_in = _method(SyncHistory.continue_in, writes=True)
    difference = _method(SyncHistory.difference)
    stats = _method(SyncHistory.stats)
    lifetimes = _method(SyncHistory.lifetimes)
    events = _pages(SyncHistory.events)
    export = _pages(SyncHistory.export)

    def lease(
        self, *, ttl_s: float = 30.0, wait_s: float = 60.0, worker: str | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        block = self.sync.lease(ttl_s=ttl_s, wait_s=wait_s, worker=worker)
        return _AsyncLeaseBlock(self._histories.pool, cast("LeaseBlock", block))

    lease.__doc__ = SyncHistory.lease.__doc__

    async def run(
        self,
        call: Action,
        tool: Callable[..., Any],
        *,
        repeat: Literal["never", "same key", "safe"] | None = None,
        check: Callable[[str, Action], Any] | None = None,
        by: str | None = None,
        reason: str = "",
        needs_approval: bool = False,
    ) -> Recorded:
        tool, rule = effects.rule_for(tool, repeat, check, needs_approval)
        pool = self._histories.pool
        if not (iscoroutinefunction(tool) or iscoroutinefunction(rule.check)):
            work = partial(effects.run, self.sync, call, tool, rule, by, reason)
            return await self._histories._stepping.run(work, finish=True)
        with effects.alone(self.sync, call):
            attempt = await pool.run(
                partial(effects.Attempt, self.sync, call, tool, rule, by, reason)
            )
            ended = await pool.run(attempt.ended_before)
            if ended is None and rule.check is not None and attempt.needs_check:
                outcome = await self._call(partial(rule.check, attempt.key, call))
                ended = await pool.run(partial(attempt.checked, outcome), may_withdraw=False)
            ended = ended or await pool.run(attempt.begin)
            if ended is not None:
                return ended
            if not iscoroutinefunction(tool):
                # The call that runs the tool also records its outcome, even if the task is
                # cancelled meanwhile.
                return await self._histories._stepping.run(attempt.run_tool)
            try:
                content = await tool(**attempt.arguments)
            except Exception as error:  # noqa: BLE001 - any error of the tool is its outcome
                return await pool.run(partial(attempt.failed, error), may_withdraw=False)
            # The call has run, even if the task was cancelled.
            return await pool.run(partial(attempt.end, content), may_withdraw=False)

    run.__doc__ = SyncHistory.run.__doc__

    async def once(self, idempotency_key: str, work: Callable[[], Any]) -> tuple[Recorded, ...]:
        if done := await self.recorded(idempotency_key):
            return done
        append = partial(append_once, self.sync, idempotency_key)

        def work_and_append() -> Any:
            result = work()
            return result if iscoroutine(result) else append(result)

        if iscoroutinefunction(work):
            result = await work()
        else:
            # The call that does the work also appends its result, even if the task is cancelled
            # meanwhile.
            result = await self._histories._stepping.run(work_and_append)
            if not iscoroutine(result):
                return cast("tuple[Recorded, ...]", result)
            result = await result
        # The work is done, even if the task was cancelled.
        return await self._histories.pool.run(partial(append, result), may_withdraw=False)

    once.__doc__ = SyncHistory.once.__doc__

    async def _call(self, work: Callable[[], Any]) -> Any:
        """Return the result of ``work``. A coroutine function is awaited. Any other function is
        called in a thread, and if it returns a coroutine, the coroutine is awaited.
        """
        if iscoroutinefunction(work):
            return await work()
        result = await self._histories._stepping.run(work)
        return await result if iscoroutine(result) else result

    def stream_reply(self, source: Any = None, **options: Any) -> AsyncStreamedReply:
        from foldlog._history.streamed_reply import check_source

        check_source(source)
        reply = self.sync.stream_reply(**options)
        return AsyncStreamedReply(self._histories.pool, reply, source)

    stream_reply.__doc__ = SyncHistory.stream_reply.__doc__

    async def unfinished_reply(self) -> AsyncUnfinishedReply | None:
        pool = self._histories.pool
        unfinished = await pool.run(self.sync.unfinished_reply, finish=False)
        return None if unfinished is None else AsyncUnfinishedReply(pool, unfinished)

    unfinished_reply.__doc__ = SyncHistory.unfinished_reply.__doc__

    def follow_reply(self, after: str | None = None) -> _Pages[ReplyPart]:
        return _FollowedReply(self._histories.pool, self.sync, after)

    follow_reply.__doc__ = SyncHistory.follow_reply.__doc__

    def recall_tool(self, *, max_tokens: int = 2_000) -> AsyncRecallTool:
        return AsyncRecallTool(self._histories.pool, self.sync.recall_tool(max_tokens=max_tokens))

    recall_tool.__doc__ = SyncHistory.recall_tool.__doc__

    async def view(self) -> View:
        return await self._histories.pool.run(self.sync.view, finish=False)

    view.__doc__ = SyncHistory.view.__doc__

    async def fork(
        self, at: int | None = None, id: str | None = None, *, at_source: str | int | None = None
    ) -> AsyncHistory:
        forked = await _forked(self, at, id, at_source=at_source)
        return self._histories[forked.id]

    fork.__doc__ = SyncHistory.fork.__doc__

    async def begin_child(
        self,
        call: Action,
        id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> AsyncHistory:
        child = await _begun(self, call, id, attributes)
        return self._histories[child.id]

    begin_child.__doc__ = SyncHistory.begin_child.__doc__

    def __repr__(self) -> str:
        return f"<AsyncHistory {self.id!r}>"


__all__ = ["AsyncHistories", "AsyncHistory", "Outcome", "face_of"]

# The classes also have the names of their sync forms.
History = AsyncHistory
Histories = AsyncHistories
