"""The store joins the codec, the aggregate and a recorder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.conversation import AnyVersion
from foldlog.eventstore.errors import ConversationNotFound, InvalidArgument, InvalidEvent
from foldlog.eventstore.events import NOT_RECORDED, Event, summary_of
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.appending import Appending, Besides, DocumentsUnchanged, begin_fork
from foldlog.eventstore.log.database import Database, behind, paged, start_after
from foldlog.eventstore.log.finding import (
    PAGE,
    Generation,
    events_back,
    find_begun,
    find_existing,
    forks_that_share,
    pages,
    read_existing,
    tombstones_before,
)
from foldlog.eventstore.log.following import follow
from foldlog.eventstore.log.importing import extend, ingest
from foldlog.eventstore.log.origins import check_own_key
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import ConversationRow, Ingested, Logged, Recorded, listed
from foldlog.eventstore.log.row import dense_events, from_microseconds
from foldlog.eventstore.log.seal import EVENT_BYTES_MAX, WriteSettings
from foldlog.eventstore.log.writing import InlineProjection, WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.group_commit import note_committed
from foldlog.eventstore.recorders.types import Conversation

T = TypeVar("T")

_is_structural = attrgetter("structural")
_kind = attrgetter("kind")
_DOCUMENT_CHANGES: Final = "document_changes"


class Store:
    """A store of conversations. Each conversation is an append-only log of events. Any number of
    threads may use one store.

    As a context manager, a store closes its database at the end.
    """

    def __init__(
        self,
        recorder: Recorder,
        settings: WriteSettings | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
        event_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        """Open a store on a recorder. ``settings`` says how new rows are compressed and encrypted;
        by default new rows are plain.
        """
        check_whole("event_bytes_max", event_bytes_max, 1)
        self._recorder = recorder
        self.database = Database(recorder, settings, clock)
        self.path = recorder.path
        """The file of the store; None for a store on a server or in memory."""
        self._event_bytes_max = event_bytes_max
        self._own_clock = clock is None
        self._projections: dict[str, InlineProjection] = {}
        self.last_documents: OrderedDict[str, Any] = OrderedDict()
        """The documents of conversations after the last appends of this store, for
        ``Documents``.
        """

    # -- writing

    def append(
        self,
        conversation: str,
        events: Event | Iterable[Event],
        *,
        expected_version: int | Literal[AnyVersion.ANY_VERSION],
        idempotency_key: str | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: Callable[[ReadTransaction], object] | None = None,
        generation: Generation | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one event or several, all or none. Return the recorded events in order; they have
        the next ids.

        ``expected_version`` is the version at which the caller decided to append, 0 for a new
        conversation, or ``ANY_VERSION``. If equal events were appended under this
        ``idempotency_key`` before, nothing is appended, and the events recorded then are returned,
        even if the expected version is stale. ``dedupe="origin"`` leaves out the events whose
        source id (``origin.format`` and ``origin.id``) the conversation has already, and returns
        the appended events, which may be none. ``guard`` is called in the transaction if the
        conversation exists: if ``guard`` raises an exception, ``append`` raises this exception and
        appends nothing. Other writers wait while ``guard`` runs. ``generation`` names one of the
        conversations that had this id: once that conversation is erased, the append raises
        ``ConversationErased``, even if another conversation has the id now. ``together`` has
        appends to other conversations, from ``Documents.prepare``. Either the appends to all
        conversations happen, or no append happens. No append happens if the idempotency key or
        ``dedupe`` leaves nothing to append. ``also`` is called in the transaction of the events and
        may write data beside them.

        Raises ``VersionConflict`` (read again, decide again), ``InvalidEvent`` (an event breaks a
        rule; the message names the rule), ``IdempotencyConflict`` (the key stands for other
        events), ``ConversationErased``, ``StoreUnavailable``; ``TypeError`` if an argument has a
        wrong type. Durability: the events are on disk when ``append`` returns. Cost: writing the
        events, however long the conversation is.
        """
        work = prepare_append(
            self,
            conversation,
            events,
            expected_version,
            idempotency_key,
            dedupe,
            guard,
            generation,
            together,
            also,
        )
        while True:
            try:
                self._recorder.transact(work, any_thread=work.any_thread)
            except origins.NotIndexed:
                origins.index(self.database, conversation)
                continue
            try:
                return work.recorded()
            except BaseException as error:
                note_committed(error)
                raise

    def ingest(self, conversation: str, events: Iterable[Event | Encoded]) -> Ingested:
        """Import a history unchanged. The rules about the form of an event apply to its events, but
        no other rules for new events.

        The events have ids 0, 1, 2, … in order, or no ids; some may be encoded. The first events
        are compared with the events that the conversation already has, and only the later events
        are added. So importing twice adds nothing, and a source that has grown adds its new events.
        A new conversation appears whole or not at all. A long new conversation is staged in small
        transactions, so that other writers need not wait.

        Raises ``HistoryDiverged`` if an event differs from the stored event, or if the content of
        the stored event was redacted; ``InvalidEvent``, ``ConversationErased``,
        ``StoreUnavailable``, and the errors of the iterable. After an error nothing is imported,
        except the first part of a long tail, which the next import continues. Durability: the
        events are on disk when the method returns. Cost: reading all events of the history.
        """
        history = self._encode_all(_in_order(events), "the history", finite=False)
        return Ingested(*ingest(self.database, conversation, history, self._project))

    def extend(
        self,
        conversation: str,
        events: Sequence[Event | Encoded],
        *,
        expected_version: int,
        also: Callable[[WriteTransaction], object],
        recorded_at: int | None = None,
        secret: bytes | None = None,
    ) -> int:
        """Append the events of a source's records, and return the new version. ``also`` is called
        in the transaction of the events and may write data beside them. The events are recorded
        now, or at ``recorded_at``, in microseconds since 1970, if no event of the conversation was
        recorded later. The events' salts are random, or made from ``secret``: with ``secret``,
        another copy of the source gets the same heads.

        The rules about the form of an event apply to the events, but no other rules for new events.
        The conversation may have records without events, and the appended events may belong to
        these records. Raises ``VersionConflict``, ``ConversationNotFound``, ``InvalidEvent``.
        Durability: the events are on disk when the method returns. Cost: writing the events.
        """
        batch = [self._encode(event, finite=False) for event in events]
        work = partial(
            extend,
            self.database,
            conversation,
            expected_version,
            batch,
            self._project,
            also,
            recorded_at,
            secret,
        )
        return self._recorder.transact(work)

    def fork(
        self, conversation: str, at: int, new_id: str, *, replace_erased: bool = False
    ) -> ConversationRow:
        """Begin the conversation ``new_id``, a fork, which shares the events of ``conversation`` up
        to version ``at``.

        The fork's ids continue from ``at``. The fork has its own expected versions and idempotency
        keys; an append to the fork does not change its parent, and an append to the parent does not
        change the fork. The fork's first event commits to its parent's head at ``at``. With
        ``replace_erased``, ``new_id`` may be the id of an erased conversation; the tombstone stays.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``InvalidArgument`` if the
        conversation does not have that version, ``VersionConflict`` if ``new_id`` exists,
        ``StoreUnavailable``. Durability: the fork is on disk when the method returns. Cost: writing
        two rows, however long the fork's past is.
        """
        generation = Generation(replaces_erased=replace_erased)
        begin = partial(
            begin_fork,
            self.database,
            conversation=conversation,
            at=at,
            new_id=new_id,
            generation=generation,
        )
        return listed(self._recorder.transact(begin))

    def register(self, projection: InlineProjection) -> None:
        """From now on, call ``projection`` in the transaction of every append with structural
        events. ``projection`` replaces an earlier projection of its name.
        """
        self._projections[projection.name] = projection

    # -- reading

    def events(
        self, conversation: str, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Event]:
        """Yield events with ``start <= id < stop``, in order; the present version limits ``stop``.
        With ``reverse`` the newest event comes first.

        Raises ``ConversationNotFound`` or ``ConversationErased`` at once. Raises
        ``ConversationErased`` also if the conversation is erased while the events are read. Raises
        ``CorruptEvent`` if an event is missing or unreadable: a history is never returned
        incomplete without an error. Cost: reading the yielded events, a page at a time.
        """
        read = events_back if reverse else ReadTransaction.page
        return chain.from_iterable(
            pages(self.database, conversation, *_range(start, stop), read, reverse=reverse)
        )

    def log(self, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[Logged]:
        """Yield the events that ``events`` yields, each with the store's clock when it was
        recorded.
        """
        return chain.from_iterable(
            pages(self.database, conversation, *_range(start, stop), _logged)
        )

    def version(self, conversation: str) -> int:
        """Return the number of events, which is the next id; 0 for an unknown conversation. Raises
        ``ConversationErased``. The method sends no query if the last append of this process was to
        the conversation.
        """
        cached = self.database.cached_state(conversation)
        if cached is not None and not cached.state.pending:
            return cached.state.version
        state = self.database.recorder.query(
            lambda reader: find_begun(self.database, reader, conversation)
        )
        return 0 if state is None else state.version

    def conversations(
        self, after: str | None = None, limit: int = 100
    ) -> tuple[ConversationRow, ...]:
        """Return at most ``limit`` conversations with ids after ``after``, in the order of their
        ids' UTF-8 bytes.

        Pass the last id of a page as ``after`` to get the next page. Cost: reading the rows of the
        returned conversations.
        """
        size = max(check_whole("limit", limit), 0)
        page = self.database.recorder.query(
            lambda reader: reader.conversations(start_after(after), size)
        )
        return self._listed(page)

    def iter_conversations(self, after: str | None = None) -> Iterator[ConversationRow]:
        """Yield every conversation with an id after ``after``, in the order of their ids' UTF-8
        bytes.

        Cost: reading the rows of the yielded conversations, a page at a time, and memory for one
        page.
        """
        return paged(partial(self.conversations, limit=PAGE), attrgetter("id"), PAGE, after)

    def conversation(self, conversation: str, *, pending: bool = False) -> ConversationRow:
        """Return the row of one conversation, even of an erased conversation. With ``pending``, the
        events of an import that are not made yet stay unmade. Raises ``ConversationNotFound``.
        """
        find = partial(self.database.find, conversation=conversation, pending=pending)
        state = self.database.recorder.query(find)
        if state is None:
            raise ConversationNotFound(conversation)
        return self._listed([state])[0]

    def forks_sharing(self, conversation: str, event_id: int) -> list[str]:
        """Return the ids of the forks that share an event of a conversation. With the (negative) id
        of a summary, return the forks that share the summary's condensation.

        Raises ``ConversationNotFound``, ``ConversationErased``. Cost: reading the rows of the
        forks.
        """
        database = self.database
        own_id = summary_of(event_id) if event_id < NOT_RECORDED else event_id

        def read(reader: Reader) -> list[str]:
            state = find_existing(database, reader, conversation, pending=True)
            forks = forks_that_share(database, reader, state.key, [own_id])
            return [fork.id for fork, _ in forks]

        return self._recorder.query(read)

    def recorded(self, conversation: str, idempotency_key: str) -> tuple[Recorded, ...]:
        """Return the events that were appended under an idempotency key; an empty tuple for an
        unknown key.

        Raises ``ConversationNotFound``, ``ConversationErased``. Cost: reading the returned events.
        """
        check_own_key(idempotency_key)

        def read(reading: ReadTransaction) -> tuple[Recorded, ...]:
            recalled = reading.recall(idempotency_key)
            if recalled is None or recalled.position is None:
                return ()
            position = recalled.position
            logged = _logged(reading, recalled.first_id, recalled.first_id + recalled.events)
            return tuple(
                Recorded(position + index, conversation, recorded_at, event)
                for index, (recorded_at, event) in enumerate(logged)
            )

        return self.query(conversation, read)

    def follow(self, after_position: int | str = 0, limit: int | None = None) -> Iterator[Recorded]:
        """Yield all events recorded after a position, over all conversations, in the order of
        positions, up to the present. On PostgreSQL, the events end before the oldest transaction
        that still writes on the server: a later call yields the events of this transaction and of
        later ones.

        Keep the last position and continue after that position later: no event is missed or comes
        twice, and no later commit gets an earlier position. If the store has several members
        (``?stores=``), a position has a number for each member, and only the events of one member
        come in order. In a store with several members, keep ``str(recorded.position)``, and pass
        this text.

        Raises ``CorruptEvent`` at a damaged event; continue after the error's ``position``. Raises
        ``StoreUnusable`` if SQLite cannot read a page of the file: ``foldlog store copy --damaged``
        copies the other pages. Cost: reading the yielded events, a page at a time.
        """
        if not isinstance(after_position, str):
            check_whole("after_position", after_position)
        after = self._recorder.position(after_position)
        if limit is not None:
            check_whole("limit", limit)
        return follow(self.database, after, limit)

    def query(self, conversation: str, work: Callable[[ReadTransaction], T]) -> T:
        """Run ``work`` on the newest state of a conversation, and return the result of ``work``.

        All reads of ``work`` show the conversation at one moment. ``work`` is run again if the
        connection to a server breaks, so it must have no other effects. Raises
        ``ConversationNotFound``, ``ConversationErased``, ``StoreUnavailable``.
        """
        return self._recorder.query(partial(read_existing, self.database, conversation, work))

    def project(self, conversation: str, work: Callable[[WriteTransaction], T]) -> T:
        """Run ``work`` on the newest state of a conversation, in a write transaction. ``work`` may
        write records beside the events.

        ``work`` may be run again, so it must have no other effects. Raises
        ``ConversationNotFound``, ``ConversationErased``, ``StoreUnavailable`` (also if the store is
        open for reading only).
        """
        database = self.database

        def in_transaction(transaction: Transaction) -> T:
            writing = WriteTransaction(
                transaction, find_existing(database, transaction, conversation), database
            )
            result = work(writing)
            writing.end()
            return result

        return self._recorder.transact(in_transaction)

    # -- the end

    def close(self) -> None:
        """Close the database. Any later use of the store raises ``StoreUnusable``."""
        self._recorder.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- steps

    def _encode(self, event: Event | Encoded, *, finite: bool = True) -> Encoded:
        encoded = event if type(event) is Encoded else encode(event, finite=finite)  # type: ignore[arg-type]
        body = encoded.body
        size = len(body) if type(body) is bytes else size_of(body)
        if size > self._event_bytes_max:
            raise InvalidEvent(
                f"this {encoded.kind} takes {size:,} bytes; the most for one event is "
                f"{self._event_bytes_max:,} (open_store's event_bytes_max)"
            )
        return encoded

    def _encode_all(
        self, events: Iterable[Event | Encoded], source: str, *, finite: bool = True
    ) -> Iterator[Encoded]:
        """Encode events. An error names the event by its index in ``source``, the name of what
        holds the events.
        """
        for index, event in enumerate(events):
            try:
                encoded = self._encode(event, finite=finite)
            except InvalidEvent as error:
                raise InvalidEvent(f"event {index} of {source}: {error}") from None
            yield encoded

    def _listed(self, page: Sequence[Conversation]) -> tuple[ConversationRow, ...]:
        if all(row.erasure is None and row.replaces is None for row in page):
            return tuple(map(listed, page))

        def read(reader: Reader) -> tuple[ConversationRow, ...]:
            pending = reader.value("bytes_pending") != ""
            unconfirmed = [
                () if row.erasure is None else behind(reader, row.erasure.position or 0)
                for row in page
            ]
            generations = [len(tombstones_before(reader, row)) for row in page]
            return tuple(
                map(partial(listed, bytes_pending=pending), page, generations, unconfirmed)
            )

        return self.database.recorder.query(read)

    def _project(self, writing: WriteTransaction, events: Sequence[Event]) -> None:
        for projection in list(self._projections.values()):
            projection.project(writing, events)


def prepare_append(
    store: Store,
    conversation: str,
    events: Event | Iterable[Event],
    expected_version: int | Literal[AnyVersion.ANY_VERSION],
    idempotency_key: str | None = None,
    dedupe: Literal["origin"] | None = None,
    guard: Callable[[ReadTransaction], object] | None = None,
    generation: Generation | None = None,
    together: Sequence[Appending] = (),
    also: Callable[[WriteTransaction], object] | None = None,
) -> Appending:
    """Encode the events of an append, and return the work to run in a transaction. Raises the
    errors that ``Store.append`` raises before it writes.
    """
    if type(conversation) is not str:
        raise TypeError(f"the id of a conversation must be a text, not {conversation!r}")
    if idempotency_key is not None:
        check_own_key(idempotency_key)
    if dedupe not in (None, "origin"):
        raise InvalidArgument(f"dedupe is {dedupe!r}; use 'origin', or leave it out")
    if dedupe is not None and idempotency_key is not None:
        raise InvalidArgument(
            "an append accepts either dedupe or an idempotency_key, not both: with dedupe, the"
            " source ids of the events are the keys"
        )
    if isinstance(events, Event):
        batch = [store._encode(events)]
    else:
        batch = [*store._encode_all(events, "this append")]
    structural = any(map(_is_structural, batch))
    work = Appending(
        store.database,
        conversation,
        batch,
        expected_version,
        generation,
        any_thread=store._own_clock,
    )
    has_options = (
        idempotency_key is not None
        or dedupe is not None
        or guard is not None
        or also is not None
        or together
    )
    # Most appends need none of this, and are faster without it.
    if has_options or structural or _DOCUMENT_CHANGES in map(_kind, batch):
        project = store._project if structural and store._projections else None
        work.besides = Besides(idempotency_key, guard, dedupe, project, together, also)
        # Another thread may run the work only if the work calls nothing but foldlog's own code.
        calls_foreign_code = (
            project
            or also
            or together
            or not (guard is None or isinstance(guard, DocumentsUnchanged))
        )
        work.any_thread = store._own_clock and not calls_foreign_code
    return work


def _in_order(events: Iterable[Event | Encoded]) -> Iterator[Event | Encoded]:
    """Yield the events of a history. Raises ``InvalidEvent`` if an event has an id that is not its
    index.
    """
    for index, event in enumerate(events):
        if not isinstance(event, Encoded) and event.id not in (index, NOT_RECORDED):
            raise InvalidEvent(
                f"event {index} of the history has id {event.id}; give the ids 0, 1, 2, …, or none"
            )
        yield event


def _logged(reading: ReadTransaction, start: int, stop: int) -> Iterator[Logged]:
    rows = reading.rows(start, stop, stop - start)
    events = dense_events(reading.conversation, rows, start, stop)
    return (
        Logged(from_microseconds(row.recorded_at), event)
        for event, row in zip(events, rows, strict=True)
    )


def _range(start: int, stop: int | None) -> tuple[int, int]:
    """Check and return a range of ids. The range goes up to the end of the conversation if ``stop``
    is None.
    """
    return max(check_whole("start", start), 0), (
        NUMBER_MAX if stop is None else check_whole("stop", stop)
    )
