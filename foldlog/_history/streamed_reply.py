"""A reply while its model writes it. Each chunk is in the store before the program passes it on.
The complete reply is appended in the transaction that closes its stream.

Chunks are stored as deltas (``foldlog.formats.deltas``) in the stream ``reply`` of the conversation
(``foldlog.eventstore.log.streams``). The lease fences them as it fences appends.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    EventStoreError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Recorded,
    StreamConflict,
    VersionConflict,
)
from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.codec_json import whole_pairs
from foldlog.eventstore.errors import count
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.streams import REPLY
from foldlog.formats.deltas import (
    AboutDelta,
    CallDelta,
    Delta,
    Draft,
    EndDelta,
    decode_deltas,
    encode_deltas,
)
from foldlog.formats.replies import plain_data
from foldlog.formats.reply_streams import ReplyReader, failure_in, finish_reason_of, reader_for
from foldlog.projections.units import begins_reply

if TYPE_CHECKING:
    from foldlog._history.log import HistoryLog
    from foldlog.eventstore import ReadTransaction
    from foldlog.eventstore.log.writing import WriteTransaction
    from foldlog.eventstore.recorders.base import Transaction
    from foldlog.eventstore.recorders.types import Stream

T = TypeVar("T")
Also: TypeAlias = "Callable[[WriteTransaction], object]"
"""Writes further data in the transaction of an append."""

CUT: Final = "cut"
"""The field in ``meta`` of a reply whose end is missing."""
_NOT_RUN: Final = (
    "not begun: the reply was cut off before its end, so this call did not run; call again if it is"
    " still needed"
)
"""The result of each call of a reply that was cut."""
_VIEW: Final = "view"
"""The field in the state of a stream that has the version of the View that the model answers."""
_IS_OF_PROGRAM: Final = "is_of_program"
"""The field in the state of a stream that says that a Python program began it."""
_NO_MESSAGE: Final = "a reply answers a message: append the user's message first"
_PAGE: Final = 256
_POLL_S: Final = 0.005
_POLL_ON_SERVER_S: Final = 0.01
"""How often a reader asks the store for new chunks. On a server, each question is a round trip."""
_REFUSED: Final = (InvalidEvent, InvalidArgument, IdempotencyConflict, VersionConflict)
"""The errors of an append that refuses this reply for good."""
_read_offset: Final = re.compile(r"(\d{1,19})_(\d{1,19})").fullmatch


Method = TypeVar("Method", bound=Callable[..., Any])


class ReplyFailed(EventStoreError):
    """The provider of the model said in a chunk that the reply has failed. ``problem`` is its
    message. What was read before is appended as cut: ask the model again.
    """

    def __init__(self, conversation: str, problem: str) -> None:
        super().__init__(
            f"conversation {conversation!r}: the model's provider ended the reply with an error:"
            f" {problem}"
        )
        self.conversation = conversation
        self.problem = problem


def _one_at_a_time(method: Method) -> Method:
    """Decorate a method that another thread may call too, for example because a user stops the
    reply. No two such methods of a reply run at the same time.
    """

    @wraps(method)
    def call(self: StreamedReply, *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    return call  # type: ignore[return-value]


def check_source(source: object) -> None:
    """Raise ``TypeError`` if the source of a reply is a whole reply or text."""
    if isinstance(source, Mapping | str | bytes):
        raise TypeError(
            f"the source of a reply yields its chunks, and is not one {type(source).__name__}; pass"
            " what the SDK returns with stream=True, or a list of texts. A complete reply goes to"
            " history.append_reply"
        )


class StreamedReply:
    """A reply that a model is writing. ``History.stream_reply`` makes it. Thread-safe.

    ``recorded`` has the events of the reply after its end.
    """

    def __init__(
        self,
        history: HistoryLog,
        source: Iterable[Any] | None,
        options: Mapping[str, Any],
        unfinished: UnfinishedReply | None = None,
    ) -> None:
        check_source(source)
        if hasattr(source, "__aiter__"):
            raise TypeError(
                f"the source is async ({type(source).__name__}); open the store with"
                " foldlog.aio.open, whose histories take it"
            )
        self._history = history
        self._database = history._store.database
        self._source = source
        self._options = options
        self._reader: ReplyReader | None = None
        self._draft = Draft()
        self._number: int | None = None
        self._end = 0
        self._lock = threading.RLock()
        self._is_closed = False
        self._has_failed = False
        """Whether the store of a chunk failed. The source has yielded the chunk, so no later chunk
        may follow.
        """
        self._uncertain: tuple[list[Delta], bytes] | None = None
        """The deltas of the chunk whose store failed, and their bytes. It is unknown whether the
        stream has them.
        """
        self._divided = _DividedCharacters()
        self._is_repeated = False
        """Whether an earlier reply used the idempotency key, so that nothing is written."""
        self.recorded: tuple[Recorded, ...] = ()
        if unfinished is not None:
            self._number = unfinished._stream.number
            self._end = unfinished._stream.end
            self._draft = unfinished._draft
            self._reader = _ContinuedReader(self._draft)

    # -- writing

    def __enter__(self) -> StreamedReply:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: Any
    ) -> None:
        if self._is_closed:
            return
        if error is None:
            self.end()
        else:
            self._end_after(error)

    def __iter__(self) -> Iterator[Any]:
        """Yield the chunks of the source, each after it is in the store, until the source ends or
        somebody ends the reply.
        """
        if self._source is None:
            raise self._no_source()
        if not self._open():
            return
        try:
            for chunk in self._source:
                if not self._store_next(chunk):
                    return
                yield chunk
        except BaseException as error:
            self._end_after(error)
            raise
        self._end_source()

    def _no_source(self) -> InvalidArgument:
        return InvalidArgument(
            f"conversation {self._history.id!r}: this reply has no source; write"
            " history.stream_reply(source), or call feed for each chunk"
        )

    @_one_at_a_time
    def _open(self) -> bool:
        """Begin the stream. Return False, and begin none, if an earlier reply used the idempotency
        key: ``recorded`` then has its events.
        """
        if self._number is None and not self._is_closed:
            self._is_repeated = self._find_repeated()
            self._is_closed = self._is_repeated
            if not self._is_repeated:
                self.begin()
        return not self._is_repeated

    def _find_repeated(self) -> bool:
        """Return whether an earlier reply used the idempotency key, and set ``recorded`` to its
        events. Raises ``IdempotencyConflict`` if other events used the key.
        """
        key = self._options.get("idempotency_key")
        earlier = () if key is None else self._history.recorded(key)
        if not earlier:
            return False
        if not any(begins_reply(recorded.event) for recorded in earlier):
            raise IdempotencyConflict(self._history.id, str(key), earlier[0].id)
        self.recorded = earlier
        return True

    def begin(self) -> int:
        """Begin the stream, if it has not begun, and return its number."""
        if self._number is not None:
            return self._number
        try:
            stream = self._transact(self._begin_in)
        except ConversationNotFound as missing:
            missing.add_note(_NO_MESSAGE)
            raise
        except StreamConflict as conflict:
            conflict.add_note(
                "a worker left this reply unfinished, or still writes it; call"
                " history.unfinished_reply(), and append_cut() or drop() what it returns"
            )
            raise
        self._number = stream.number
        return stream.number

    def _begin_in(self, writing: WriteTransaction) -> Stream:
        """Begin the stream in a transaction, and return it. Its state names the View that the model
        was sent, in case another worker appends the reply, and says that a Python program writes
        it, so that no program writes to it over HTTP without the lease.
        """
        request = self._options.get("request")
        view_version = self._options.get("view_version")
        if view_version is None and request is not None:
            view_version = request.version
        if view_version is None:
            view_version = self._history._asked_at
        if view_version is None:
            view_version = writing.version
        state = json.dumps({_VIEW: view_version, _IS_OF_PROGRAM: True}).encode()
        return streams.begin(writing, REPLY, streams.JSON, state)

    @_one_at_a_time
    def _store_next(self, chunk: Any) -> bool:
        """Store a chunk of the source. Return False if the reply has ended in the meantime."""
        if self._is_closed:
            return False
        self.feed(chunk)
        return True

    @_one_at_a_time
    def _end_source(self) -> None:
        """End the reply when its source has ended, if it has not ended before."""
        if not self._is_closed:
            self.end()

    @_one_at_a_time
    def feed(self, chunk: Any) -> None:
        """Store a chunk: what the SDK of OpenAI, Anthropic or litellm yields, a text, or a delta.

        Raises ``InvalidArgument`` for any other chunk, ``ReplyFailed`` if the chunk reports an
        error of the provider, ``StreamConflict`` if another program closed the reply, and the
        errors of ``append``. After an error of the store, the reply accepts no more chunks: end it
        with ``cancel``. Durability: when the method returns, the chunk survives the end of this
        process. In a file, it is on the disk 0.1 s later.
        """
        if self._number is None and not self._open():
            return
        self._check_open()
        if self._has_failed:
            raise InvalidArgument(
                f"conversation {self._history.id!r}: an earlier chunk of this reply could not be"
                " stored; call reply.cancel(), or leave the block and go on with"
                " history.unfinished_reply()"
            )
        number = self.begin()
        deltas, body = self._read(chunk)
        if not deltas:
            return
        work = partial(
            streams.append, number=number, begins=self._end, units=len(deltas), body=body
        )
        self._has_failed = True
        self._uncertain = deltas, body
        try:
            self._transact(work, durable=False)
        except StreamConflict:  # another program wrote to the stream, and this chunk is not in it
            self._uncertain = None
            raise
        self._has_failed = False
        self._uncertain = None
        self._take(deltas)

    def _take(self, deltas: Sequence[Delta]) -> None:
        """Add deltas that are in the stream to the reply so far."""
        self._end += len(deltas)
        for delta in deltas:
            self._draft.add(delta)

    def _read(self, chunk: Any) -> tuple[list[Delta], bytes]:
        """Return the deltas of a chunk as the stream gets them, and their bytes there. Raises
        ``ReplyFailed``, and ``InvalidArgument`` if the chunk has an unknown form.
        """
        try:
            fields = chunk if isinstance(chunk, str | Delta) else plain_data(chunk)
            problem = failure_in(fields) if isinstance(fields, dict) else None
            if problem is not None:
                raise ReplyFailed(self._history.id, problem)
            if self._reader is None:
                self._reader = reader_for(fields)
            return self._divided.storable(self._reader.read(fields))
        except (InvalidArgument, LookupError, TypeError, AttributeError, RecursionError) as error:
            why = "it is nested too deep" if isinstance(error, RecursionError) else error
            raise InvalidArgument(
                f"conversation {self._history.id!r}: a chunk of the reply cannot be read: {why}"
            ) from error

    # -- the end

    @_one_at_a_time
    def end(self) -> tuple[Recorded, ...]:
        """Append the complete reply, and close its stream in the same transaction. If the provider
        has not said that the reply is complete, or a chunk could not be stored, append what there
        is, as ``cancel`` does.
        """
        if not self._open():
            return self.recorded
        self._check_open()
        reader = self._reader
        if reader is None or not reader.is_complete or self._has_failed:
            return self._append_cut()
        try:
            return self._append(reader.reply(), self._options)
        except IdempotencyConflict:
            # Another worker appended its reply while this one was written.
            if not self._find_repeated():
                raise
            return self.recorded

    @_one_at_a_time
    def cancel(self) -> tuple[Recorded, ...]:
        """Append what was read, marked as cut (``meta["cut"]``), without calls whose arguments are
        incomplete, and close the stream. The calls of the reply do not run: each gets a result that
        says so. Return the recorded events, which are none if the reply has neither a text nor a
        complete call. If the store refuses the append, the stream stays open. A second call after
        the end changes nothing.
        """
        if self._open() and not self._is_closed:
            self._append_cut()
        return self.recorded

    @property
    def text(self) -> str:
        """The text so far."""
        return self._draft.text

    @_one_at_a_time
    def drop(self) -> None:
        """Close the stream, and append nothing. A second call changes nothing."""
        if not self._is_closed:
            self._settle_uncertain()
            self._close()

    @_one_at_a_time
    def _end_after(self, error: BaseException) -> None:
        """Append what was read before an error, as ``cancel`` does. If this fails too, for example
        because the lease is lost, the reply stays unfinished, and a note of ``error`` says why.
        """
        if self._is_closed or self._number is None:
            return
        try:
            self._append_cut()
        except EventStoreError as problem:
            error.add_note(
                f"foldlog: the reply of conversation {self._history.id!r} {self._fate()}: {problem}"
            )

    def _fate(self) -> str:
        """Return what became of a reply that this object could not end."""
        number = self.begin()
        try:
            stream = self._history._store.query(
                self._history.id, lambda reading: reading.stream(number)
            )
        except (ConversationNotFound, ConversationErased):
            return "was deleted with the conversation"
        except EventStoreError:
            return "was not appended; history.unfinished_reply() says whether it is unfinished"
        if stream is None:
            return "was deleted"
        if stream.closed_at is None:
            return "stays unfinished, see history.unfinished_reply()"
        if stream.event is None:
            return "was closed without an event"
        return f"became event {stream.event}"

    def _append_cut(self, key: str | None = None) -> tuple[Recorded, ...]:
        """Append what was written of the reply, marked as cut, or close the stream if nothing
        was. A call that is repeated with its idempotency ``key`` appends only once. If the store
        refuses the append, the stream stays open: only the stream has the text.
        """
        self._settle_uncertain()
        if self._draft.is_empty:
            self._close()
            return ()
        meta = {**(self._options.get("meta") or {}), CUT: True}
        options = {**self._options, "meta": meta}
        # A retry under the key of the complete reply appends that reply.
        options["idempotency_key"] = key
        options["not_run"] = _NOT_RUN
        return self._append_draft(options)

    def _append_draft(self, options: Mapping[str, Any]) -> tuple[Recorded, ...]:
        """Append the reply that the stream has, and close the stream. If the append raises an
        error, the stream stays open.
        """
        return self._end_with(partial(self._history._append_reply, self._draft.reply(), **options))

    def _settle_uncertain(self) -> None:
        """Find out whether the stream has the chunk whose store failed."""
        if self._uncertain is None:
            return
        deltas, body = self._uncertain
        number = self.begin()

        def read(reading: ReadTransaction) -> list[bytes]:
            stream = reading.stream(number)
            chunks = [] if stream is None else reading.chunks(stream, self._end, 1)
            return [chunk.body for chunk in chunks]

        is_stored = self._history._store.query(self._history.id, read) == [body]
        self._uncertain = None
        if is_stored:
            self._take(deltas)

    def _append(self, reply: Any, options: Mapping[str, Any]) -> tuple[Recorded, ...]:
        """Append a reply that the caller has, and close its stream. If the store refuses the reply
        for good, close the stream without it, and raise the error.
        """
        append = partial(self._history._append_reply, reply, **options)
        try:
            return self._end_with(append)
        except IdempotencyConflict as conflict:
            self._close(self._history.recorded(conflict.key))
            raise
        except _REFUSED:
            self._close()
            raise

    @_one_at_a_time
    def _end_with(
        self, append: Callable[..., tuple[Recorded, ...]], also: Also | None = None
    ) -> tuple[Recorded, ...]:
        """Append events that the reply became, and close its stream in the same transaction.
        ``append`` gets the argument ``also``, which writes further data in its transaction. If it
        raises an error, the stream stays open.
        """
        number = self.begin()
        closed = False

        def close(writing: WriteTransaction) -> None:
            nonlocal closed
            if also is not None:
                also(writing)
            streams.close(writing, number, end=self._end)
            closed = True

        self.recorded = append(also=close)
        if not closed:
            # The idempotency key was used before, so the events were in the log already.
            self._close(self.recorded)
        self._is_closed = True
        return self.recorded

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _close(self, became: Sequence[Recorded] = ()) -> None:
        """Close the stream without an append. ``became`` are events that are in the log already."""
        ids = range(became[0].id, became[-1].id + 1) if became else range(0)
        number = self.begin()
        self._transact(partial(streams.close, number=number, end=self._end, became=ids))
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidArgument(
                f"conversation {self._history.id!r}: this reply has ended; begin the next one with"
                " history.stream_reply()"
            )

    def _transact(self, work: Callable[[WriteTransaction], T], *, durable: bool = True) -> T:
        return transact(self._history, work, durable=durable)


class _ContinuedReader:
    """Reads the rest of a reply whose beginning another worker wrote."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._rest: ReplyReader | None = None

    def read(self, chunk: Any) -> list[Delta]:
        if self._rest is None:
            self._rest = reader_for(chunk)
        return self._rest.read(chunk)

    @property
    def is_complete(self) -> bool:
        has_ended = self._rest is not None and self._rest.is_complete
        return has_ended and not self._draft.has_half_call

    def reply(self) -> Any:
        reply = self._draft.reply()
        reason = None if self._rest is None else finish_reason_of(self._rest.reply())
        if reason is not None:
            reply["choices"][0]["finish_reason"] = reason
        return reply


class UnfinishedReply:
    """A reply whose worker ended while the model wrote it: the ``text`` and the ``reasoning`` so
    far, and the complete ``calls`` in the form of chat completions. The model began to write it at
    ``began_at``. ``message`` is the reply so far as a chat message.

    Call the methods only if no worker writes the reply any more, for example in a lease. If one
    does, they or its next chunk raise ``StreamConflict``.
    """

    def __init__(self, history: HistoryLog, stream: Stream, draft: Draft) -> None:
        self._history = history
        self._stream = stream
        self._draft = draft

    @property
    def text(self) -> str:
        return self._draft.text

    @property
    def reasoning(self) -> str:
        return self._draft.reasoning

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self._draft.calls

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = self._draft.reply()["choices"][0]["message"]
        return message

    @property
    def began_at(self) -> datetime:
        return from_microseconds(self._stream.began_at)

    def append(self, reply: Any = None, **options: Any) -> tuple[Recorded, ...]:
        """Append the complete reply, and close its stream in the same transaction. Without
        ``reply``, the reply is what was written so far; if nothing was, or if the arguments of a
        call are incomplete, ``append`` does as ``append_cut``. ``options`` are the arguments of
        ``History.append_reply``. If the store refuses what was written so far, the stream stays
        open, so that another call can append it.
        """
        options = self._with_view(options)
        streamed = StreamedReply(self._history, None, options, self)
        if reply is None and (self._draft.is_empty or self._draft.has_half_call):
            return streamed.cancel()
        if reply is None:
            return streamed._append_draft(options)
        return streamed._append(reply, options)

    def append_cut(self, *, meta: Mapping[str, Any] | None = None) -> tuple[Recorded, ...]:
        """Append the reply so far, marked as cut, and close its stream: see
        ``StreamedReply.cancel``.
        """
        return self._append_cut({"meta": meta or {}})

    def _append_cut(self, options: Mapping[str, Any]) -> tuple[Recorded, ...]:
        """Append the reply so far as ``append_cut`` does, with arguments of
        ``History.append_reply``.
        """
        streamed = StreamedReply(self._history, None, self._with_view(options), self)
        return streamed._append_cut(options.get("idempotency_key"))

    def _with_view(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the append, with the version of the View that the model of the
        killed worker was sent, if the options name none and the worker noted it.
        """
        if options.get("view_version") is not None or options.get("request") is not None:
            return {**options}
        return {**options, "view_version": json.loads(self._stream.state).get(_VIEW)}

    def drop(self) -> None:
        """Close the stream, and append nothing."""
        work = partial(streams.close, number=self._stream.number, end=self._stream.end)
        transact(self._history, work)

    def continue_with(self, source: Iterable[Any] | None = None, **options: Any) -> StreamedReply:
        """Continue the reply in the same stream, so that its readers read on. ``source`` yields the
        chunks of a model that was sent ``message`` as the beginning of its reply; not every server
        takes one. ``options`` are the arguments of ``History.append_reply``.

        Raises ``InvalidArgument`` if the reply has begun a tool call: append it as cut then.
        """
        if self._draft.has_calls:
            raise InvalidArgument(
                f"conversation {self._history.id!r}: the unfinished reply has a tool call, which no"
                " model continues; call append_cut() or drop()"
            )
        # Otherwise, the model that continues was sent the View of ``_asked_at``.
        if self._history._asked_at is None:
            options = self._with_view(options)
        return StreamedReply(self._history, source, options, self)

    def __repr__(self) -> str:
        return f"<UnfinishedReply of {self._history.id!r} since {self.began_at}: {self.text!r:.40}>"


class ReplyPart(NamedTuple):
    """A delta of a reply, and the offset behind it, from which ``follow_reply(after=offset)`` reads
    on.
    """

    offset: str
    delta: Delta | EndDelta


def transact(
    history: HistoryLog,
    work: Callable[[WriteTransaction], T],
    *,
    durable: bool = True,
    is_of_worker: bool = False,
) -> T:
    """Run ``work`` in a write transaction of the conversation, under the lease of ``history``. If
    ``history`` has no lease and ``is_of_worker`` is true, the function raises ``LeaseTaken`` while
    a worker has the lease.
    """
    from foldlog._history.lease import check_free

    database = history._store.database
    fence = history._fence
    if fence is None and is_of_worker:
        fence = partial(check_free, database, history.id)

    def in_transaction(transaction: Transaction) -> tuple[T, int]:
        writing = streams.open_stream_writing(database, transaction, history.id, fence)
        result = work(writing)
        writing.end()
        return result, writing.key

    result, key = database.recorder.transact(in_transaction, any_thread=True, durable=durable)
    if database.binding is not None:
        database.binding.key = key  # only after the commit does the history mean this conversation
    return result


def find_unfinished(
    history: HistoryLog, name: str = REPLY, *, with_deltas: bool = True
) -> UnfinishedReply | None:
    """Return the open reply of a conversation, whose stream has this name, or None. Without
    ``with_deltas``, its text is left empty, which is faster.
    """

    def read(reading: ReadTransaction) -> UnfinishedReply | None:
        stream = streams.newest(reading, name)
        if stream is None or stream.closed_at is not None:
            return None
        draft = Draft()
        if not with_deltas:
            return UnfinishedReply(history, stream, draft)
        end = 0
        while chunks := reading.chunks(stream, end, _PAGE):
            for chunk in chunks:
                for delta in _deltas_in(history.id, chunk.body):
                    draft.add(delta)
            end = chunks[-1].ends
        return UnfinishedReply(history, stream._replace(end=end), draft)

    try:
        return history._store.query(history.id, read)
    except ConversationNotFound:
        return None


class ReplyFollower:
    """Reads a reply from an offset on. ``page`` returns the parts since the last call, and
    ``is_ended`` is true after the page with the end.
    """

    def __init__(self, history: HistoryLog, after: str | None) -> None:
        self._history = history
        self._database = history._store.database
        self._place = None if after is None else read_offset(after)
        self._version: int | None = None
        self.is_ended = False
        is_on_server = self._database.recorder.on_server
        self.poll_s = _POLL_ON_SERVER_S if is_on_server else _POLL_S

    def page(self) -> list[ReplyPart]:
        """Return the next parts. Return none, without a query, if nothing was committed since the
        last call.
        """
        version = self._database.data_version()
        if version == self._version:
            return []
        read = partial(_read_parts, place=self._place)
        try:
            parts, self._place = self._history._store.query(self._history.id, read)
        except ConversationNotFound as missing:
            missing.add_note(_NO_MESSAGE)
            raise
        self.is_ended = self._place is None or bool(parts and isinstance(parts[-1].delta, EndDelta))
        if len(parts) < _PAGE:  # otherwise, there may be more parts
            self._version = version
        return parts


def _read_parts(
    reading: ReadTransaction, place: tuple[int, int] | None
) -> tuple[list[ReplyPart], tuple[int, int] | None]:
    """Return the parts behind a place, and the place behind them. Without a place, begin with the
    open reply. Return no place if no reply is open.
    """
    if place is None:
        newest = streams.newest(reading, REPLY)
        if newest is None or newest.closed_at is not None:
            return [], None
        place = newest.number, 0
    number, end = place
    stream = streams.find(reading, number)
    if end > stream.end:
        raise InvalidArgument(
            f"conversation {reading.conversation!r}: the offset is behind delta {end}, but the"
            f" reply has {count(stream.end, 'delta')} so far"
        )
    parts: list[ReplyPart] = []
    for chunk in reading.chunks(stream, end, _PAGE):
        deltas = _deltas_in(reading.conversation, chunk.body)
        for unit, delta in enumerate(deltas, chunk.begins + 1):
            if unit > end:
                parts.append(ReplyPart(write_offset(number, unit), delta))
        end = chunk.ends
    if stream.closed_at is not None and end >= stream.end:
        parts.append(ReplyPart(write_offset(number, end), EndDelta(stream.event)))
    return parts, (number, end)


def follow(follower: ReplyFollower) -> Iterator[ReplyPart]:
    """Yield the parts of a reply until its end, and wait for new parts."""
    while True:
        parts = follower.page()
        yield from parts
        if follower.is_ended:
            return
        if not parts:
            time.sleep(follower.poll_s)


def write_offset(stream: int, unit: int) -> str:
    """Return the offset behind a unit of a stream. Offsets of a stream sort as texts."""
    return f"{stream:019}_{unit:019}"


def read_offset(offset: str) -> tuple[int, int]:
    """Return the stream and the unit of an offset. Raises ``InvalidArgument`` for another text."""
    if not isinstance(offset, str):
        raise TypeError(
            f"after is {offset!r:.60}; pass the offset of a part that follow_reply yielded, a text"
        )
    match = _read_offset(offset)
    place = (0, 0) if match is None else (int(match[1]), int(match[2]))
    if match is None or max(place) > NUMBER_MAX:
        raise InvalidArgument(
            f"{offset!r} is not an offset of a reply; pass the offset of a part that follow_reply"
            " yielded"
        )
    return place


class _DividedCharacters:
    """Joins characters that a provider divided between two chunks. JSON in UTF-8 cannot hold half
    of a surrogate pair, so a first half at the end of a chunk waits for the next text of its place.
    A half that stays alone becomes a replacement character; at the end of a reply it is left out.
    """

    def __init__(self) -> None:
        self._halves: dict[tuple[type, int], str] = {}

    def storable(self, deltas: list[Delta]) -> tuple[list[Delta], bytes]:
        """Return deltas with whole characters, and their bytes as a chunk of a stream."""
        if not self._halves:
            try:
                return deltas, encode_deltas(deltas)
            except UnicodeEncodeError:
                pass
        joined = [self._join(delta) for delta in deltas]
        body = encode_deltas(whole_pairs(msgspec.to_builtins(joined), alone="replace"))
        return decode_deltas(body), body

    def _join(self, delta: Delta) -> Delta:
        """Put the waiting half of a place before its next text, and take off a half at its end."""
        if isinstance(delta, AboutDelta):
            return delta
        field = "arguments" if isinstance(delta, CallDelta) else "text"
        place = type(delta), delta.at
        text = self._halves.pop(place, "") + getattr(delta, field)
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[place] = text[-1]
            text = text[:-1]
        return msgspec.structs.replace(delta, **{field: text})


def _deltas_in(conversation: str, body: bytes) -> list[Delta]:
    """Return the deltas in a chunk of a stream. Raises ``InvalidArgument`` for a chunk of another
    form.
    """
    try:
        return decode_deltas(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"conversation {conversation!r}: the stream {REPLY!r} has a chunk that is not a delta"
            f" of a reply: {error}; read or delete the stream over HTTP"
        ) from error
