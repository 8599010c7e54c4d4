"""The store joins the codec, the rules of conversations, and a recorder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

from foldlog.eventstore.append_rules import State, check_version
from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.codec import Encoded, encode, encode_all
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import (
    ConversationNotFound,
    InvalidArgument,
    InvalidEvent,
)
from foldlog.eventstore.events import NOT_RECORDED, Event, summary_of
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.appending import (
    Appending,
    DocumentsUnchanged,
    ExpectedVersion,
    Seen,
    begin_fork,
    position_of,
    version_of,
)
from foldlog.eventstore.log.database import (
    Binding,
    Database,
    begun,
    behind,
    iter_pages,
    start_after,
)
from foldlog.eventstore.log.finding import (
    PAGE,
    Fence,
    events_back,
    find_begun,
    find_existing,
    forks_that_share,
    pages,
    read_existing,
    tombstones_before,
)
from foldlog.eventstore.log.following import follow
from foldlog.eventstore.log.importing import ingest, project_batch
from foldlog.eventstore.log.origins import check_own_key
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import ConversationRow, Ingested, Logged, Recorded, row_of
from foldlog.eventstore.log.row import LONG_BODY, dense_events, from_microseconds, with_sums
from foldlog.eventstore.log.seal import EVENT_BYTES_MAX, WriteSettings
from foldlog.eventstore.log.writing import InlineProjection, WriteTransaction, list_changes
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.recorders.writers import note_committed

T = TypeVar("T")

_is_structural = attrgetter("structural")
_kind = attrgetter("kind")
_DOCUMENT_CHANGES: Final = "document_changes"


class Store:
    """A store of conversations. A conversation is an append-only log of events. Any number of
    threads may use one store.

    In a ``with`` statement, a store closes its database at the end of the block.
    """

    def __init__(
        self,
        recorder: Recorder,
        settings: WriteSettings | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
        event_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        """Make a store that reads and writes its rows through ``recorder``. ``settings`` determines
        how new rows are compressed and encrypted. By default, they are neither compressed nor
        encrypted.
        """
        check_whole("event_bytes_max", event_bytes_max, 1)
        self._recorder = recorder
        self.database = Database(recorder, settings, clock)
        self.path = recorder.path
        """The file of the store, or None for a store on a server or in memory."""
        self._event_bytes_max = event_bytes_max
        self._has_default_clock = clock is None
        self._projections: dict[str, InlineProjection] = {}
        self.last_documents: OrderedDict[str, Any] = OrderedDict()
        """The values of documents that ``Documents`` caches, by conversation."""

    # -- writing

    def append(
        self,
        conversation: str,
        events: Event | Iterable[Event],
        *,
        expected_version: ExpectedVersion,
        idempotency_key: str | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: Callable[[ReadTransaction], object] | None = None,
        fence: Fence | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one or several events, all or none.

        Args:
            conversation: The id of the conversation. The first append begins it.
            events: One event, or several.
            expected_version: The version at which the caller decided to append, 0 for a new
                conversation, or ``ANY_VERSION``. A ``Seen`` also refuses the append if an event
                was redacted since the caller read the conversation.
            idempotency_key: If the key was used before for equal events, nothing is appended, and
                the earlier events are returned, even if the expected version is outdated.
            dedupe: ``"origin"`` leaves out the events whose source id (``origin.format`` and
                ``origin.id``) the conversation already has.
            guard: Called in the transaction if the conversation exists. If it raises an exception,
                ``append`` raises this exception and appends nothing. Other writers wait while
                ``guard`` runs.
            fence: Called first in the transaction. If it raises an exception, ``append`` raises
                this exception and appends nothing, even for a key that was used before.
            together: Appends to other conversations, from ``Documents.prepare``. Either all appends
                happen, or none. If nothing is left to append, because of ``dedupe`` or of a key
                that was used before, they do not happen either. If they have keys too, all keys
                must be new, or all must have been used before.
            also: Called in the transaction of the events. It may write further data.

        Returns:
            The recorded events in their order, with their ids. With ``dedupe``, only the appended
            events, possibly none.

        Raises:
            VersionConflict: The version differs. Read the new events before you append again.
            InvalidEvent: An event breaks a rule, which the message names.
            IdempotencyConflict: The key was used for other events.
            ConversationErased, StoreUnavailable, TypeError: As everywhere in a store.

        Durability: the events are on disk when ``append`` returns.

        Cost: writing the events, whatever the length of the conversation.
        """
        work = prepare_append(
            self,
            conversation,
            events,
            expected_version,
            idempotency_key,
            dedupe,
            guard,
            fence,
            together,
            also,
        )
        return self._commit(work)

    def _commit(self, work: Appending) -> tuple[Recorded, ...]:
        """Append in one transaction. If origins must be known that are not indexed yet, index them
        first.
        """
        while True:
            try:
                self._recorder.transact(work, any_thread=work.any_thread)
            except origins.NotIndexed:
                origins.index(self.database, work.conversation)
                continue
            try:
                return work.recorded()
            except BaseException as error:
                note_committed(error)
                raise

    def ingest(self, conversation: str, events: Iterable[Event | Encoded]) -> Ingested:
        """Import a history without changes. ``ingest`` checks only whether the events can be
        stored.

        The events have the ids 0, 1, 2, …, or no ids. Some events may be encoded already. The first
        events are compared with the stored events, and only the later events are added. Importing
        twice adds nothing, and importing a longer source adds only its new events. A new
        conversation appears completely or not at all. A long new conversation is staged in small
        transactions, so that other writers need not wait.

        Raises ``HistoryDiverged`` if an event differs from the stored event, or if the stored event
        was redacted. Raises ``InvalidEvent``, ``ConversationErased``, ``StoreUnavailable``, and the
        errors of the iterable. If an error interrupts the import of a new conversation, nothing is
        imported. If an error interrupts an import into an existing conversation, some of the new
        events may stay, and the next import continues after them. Durability: the events are on
        disk when the method returns. Cost: reading all events of the history.
        """
        history = self._encode_all(_in_order(events), "the history", finite=False)
        return Ingested(*ingest(self.database, conversation, history, self._project))

    def extend(
        self,
        conversation: str,
        events: Sequence[Event | Encoded],
        *,
        expected_version: int | Seen,
        also: Callable[[WriteTransaction], object],
        recorded_at: int | None = None,
        secret: bytes | None = None,
    ) -> int:
        """Append the events of a source's records. ``extend`` checks only whether the events can be
        stored. The events may belong to records that the conversation already has.

        Args:
            conversation: The id of an existing conversation.
            events: The events, some of which may be encoded already.
            expected_version: The version of the conversation, or what the caller read of it.
            also: Called in the transaction of the events. It may write further data.
            recorded_at: The time of the events in microseconds since 1970, or None for the present
                time. If an earlier event of the conversation has a later time, its time is used.
            secret: The salts of the events are computed from it, so that another copy of the source
                gets equal heads. Without ``secret``, the salts are random.

        Returns:
            The new version.

        Raises:
            VersionConflict, ConversationNotFound: The conversation is not as expected.
            InvalidEvent: An event cannot be stored.

        Durability: the events are on disk when the method returns.

        Cost: writing the events.
        """
        batch = [self._with_sums(encoded) for encoded in encode_all(events)]
        database = self.database

        def append_records(transaction: Transaction) -> int:
            state = begun(database.find(transaction, conversation, as_stored=True))
            if state is None:
                raise ConversationNotFound(conversation)
            if isinstance(expected_version, Seen):
                expected_version.check(state)
            check_version(State(conversation, state.version), version_of(expected_version))
            writing = WriteTransaction(transaction, state, database)
            if batch:
                now = database.now() if recorded_at is None else recorded_at
                _, appended_at = writing.append(batch, now, secret)
                project_batch(writing, batch, state.version, appended_at, self._project)
            list_changes(writing, events)
            also(writing)
            writing.end()
            return writing.version

        return self._recorder.transact(append_records)

    def fork(
        self, conversation: str, at: int, new_id: str, *, replace_erased: bool = False
    ) -> ConversationRow:
        """Begin the fork ``new_id``, a conversation that shares the events of ``conversation`` up
        to version ``at``.

        The ids of the fork's own events begin at ``at``. The fork has its own expected versions and
        idempotency keys. Appends to the fork and appends to its parent do not affect each other.
        The head of the fork's first own event depends on its parent's head at ``at``. If
        ``replace_erased`` is true, ``new_id`` may be the id of an erased conversation, and the
        tombstone stays.

        Raises ``ConversationNotFound``, ``ConversationErased`` or ``StoreUnavailable``. Raises
        ``InvalidArgument`` if the conversation does not have the version ``at``, and
        ``VersionConflict`` if ``new_id`` exists. Durability: the fork is on disk when the method
        returns. Cost: writing two rows, whatever the length of the fork's past. If an event of the
        conversation was redacted, the source ids of the shared events are copied, too.
        """
        fork = self._recorder.transact(
            lambda transaction: begin_fork(
                self.database,
                transaction,
                conversation,
                at,
                new_id,
                replaces_erased=replace_erased,
            )
        )
        (row,) = self._listed([fork])
        return row

    def register(self, projection: InlineProjection) -> None:
        """From now on, call ``projection`` in the transaction of every append with structural
        events. ``projection`` replaces an earlier projection with the same name.
        """
        self._projections[projection.name] = projection

    # -- reading

    def events(
        self, conversation: str, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Event]:
        """Yield the events with ``start <= id < stop`` in the order of their ids. If ``stop`` is
        None, yield all events from ``start`` on. If ``reverse`` is true, the newest event comes
        first.

        Raises ``ConversationNotFound`` or ``ConversationErased`` when ``events`` is called, before
        the first event is read. Raises ``ConversationErased`` if the conversation is erased while
        the events are read. Raises ``CorruptEvent`` if an event is missing or unreadable, so an
        incomplete history always ends with an error. Cost: reading the yielded events by pages.
        """
        read = events_back if reverse else dense_events
        return chain.from_iterable(
            pages(self.database, conversation, *_range(start, stop), read, reverse=reverse)
        )

    def log(self, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[Logged]:
        """Yield the same events as ``events``, with the times at which the store recorded them."""
        return chain.from_iterable(
            pages(self.database, conversation, *_range(start, stop), logged_in)
        )

    def version(self, conversation: str) -> int:
        """Return the number of events, which is the next id. For an unknown conversation, return 0.
        Raises ``ConversationErased`` if the conversation is erased. No query is sent if the last
        append of this process was to this conversation.
        """
        cached = self.database.cached_state(conversation)
        if cached is not None and not cached.state.lacks_events:
            return cached.state.version
        state = self._recorder.query(lambda reader: find_begun(self.database, reader, conversation))
        return 0 if state is None else state.version

    def conversations(
        self, after: str | None = None, limit: int = 100
    ) -> tuple[ConversationRow, ...]:
        """Return at most ``limit`` conversations with ids after ``after``, sorted by the UTF-8
        bytes of their ids.

        To get the next page, pass the last id of a page as ``after``. Cost: reading the rows of the
        returned conversations.
        """
        size = max(check_whole("limit", limit), 0)
        page = self._recorder.query(lambda reader: reader.conversations(start_after(after), size))
        return self._listed(page)

    def iter_conversations(self, after: str | None = None) -> Iterator[ConversationRow]:
        """Yield every conversation with an id after ``after``, sorted by the UTF-8 bytes of their
        ids.

        Cost: reading the rows of the yielded conversations by pages, and memory for one page.
        """
        return iter_pages(partial(self.conversations, limit=PAGE), attrgetter("id"), PAGE, after)

    def conversation(self, conversation: str, *, as_stored: bool = False) -> ConversationRow:
        """Return the row of one conversation, even of an erased conversation. If ``as_stored`` is
        true, missing events of an import are not made. Raises ``ConversationNotFound`` if the
        conversation does not exist.
        """
        find = partial(self.database.find, conversation=conversation, as_stored=as_stored)
        state = self._recorder.query(find)
        if state is None:
            raise ConversationNotFound(conversation)
        return self._listed([state])[0]

    def forks_sharing(self, conversation: str, event_id: int) -> list[str]:
        """Return the ids of the forks that share an event of a conversation. If ``event_id`` is the
        negative id of a summary, return the forks that share the summary's condensation.

        Raises ``ConversationNotFound`` or ``ConversationErased``. Cost: reading the rows of the
        forks.
        """
        database = self.database
        own_id = summary_of(event_id) if event_id < NOT_RECORDED else event_id

        def read(reader: Reader) -> list[str]:
            state = find_existing(database, reader, conversation, as_stored=True)
            forks = forks_that_share(database, reader, state.key, [own_id])
            return [fork.id for fork, _ in forks]

        return self._recorder.query(read)

    def recorded(self, conversation: str, idempotency_key: str) -> tuple[Recorded, ...]:
        """Return the events that were appended under an idempotency key, or an empty tuple for an
        unknown key.

        Raises ``ConversationNotFound`` or ``ConversationErased``, and ``CorruptEvent`` if the
        events or their position cannot be found. Cost: reading the returned events.
        """
        check_own_key(idempotency_key)

        def read(reading: ReadTransaction) -> tuple[Recorded, ...]:
            recalled = reading.recall(idempotency_key)
            if recalled is None:
                return ()
            position = position_of(conversation, recalled)
            logged = iter_logged(reading, recalled.first_id, recalled.first_id + recalled.events)
            return tuple(
                Recorded(position + index, conversation, recorded_at, event)
                for index, (recorded_at, event) in enumerate(logged)
            )

        return self.query(conversation, read)

    def follow(self, after_position: int | str = 0, limit: int | None = None) -> Iterator[Recorded]:
        """Yield the events of all conversations after a position, in the order of positions, up to
        now. On PostgreSQL, ``follow`` stops before the oldest transaction that is still writing. A
        later call yields the events of that transaction.

        Remember the last position, and pass it to the next call of ``follow``. No event is missed
        or repeated, because no later commit gets an earlier position. If several stores are joined
        (``?stores=``), a position contains one number for each of these stores, and only the events
        of one store are in order. Remember the text ``str(recorded.position)``, and pass the text.

        Raises ``CorruptEvent`` at a damaged event. After ``CorruptEvent``, continue after the
        ``position`` of the error. Raises ``StoreRefused`` if SQLite cannot read a page of the
        file. ``foldlog store copy --damaged`` copies the readable pages of a damaged file. Cost:
        reading the yielded events by pages.
        """
        if not isinstance(after_position, str):
            check_whole("after_position", after_position)
        after = check_whole(
            "after_position", self._recorder.position(after_position), maximum=NUMBER_MAX - 1
        )
        if limit is not None:
            check_whole("limit", limit)
        return follow(self.database, after, limit)

    def query(self, conversation: str, work: Callable[[ReadTransaction], T]) -> T:
        """Run ``work`` on the newest state of a conversation, and return the result of ``work``.

        All reads of ``work`` show the conversation at one moment. If the connection to a server
        breaks, ``work`` runs again, so ``work`` must have no effects. Raises
        ``ConversationNotFound``, ``ConversationErased`` or ``StoreUnavailable``.
        """
        return self._recorder.query(partial(read_existing, self.database, conversation, work))

    def project(self, conversation: str, work: Callable[[WriteTransaction], T]) -> T:
        """Run ``work`` on the newest state of a conversation in a write transaction, and return the
        result of ``work``. ``work`` may write records beside the events.

        ``work`` may run more than once, so its writes must be its only effects. Raises
        ``ConversationNotFound`` or ``ConversationErased``. Raises ``StoreUnavailable`` if the store
        cannot be written now, and ``StoreRefused`` if the store is read-only.
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
        """Close the database. After ``close``, using the store raises ``StoreRefused``."""
        self._recorder.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- steps

    def _encode(self, event: Event | Encoded, *, finite: bool = True) -> Encoded:
        """Return an event in its stored form. Raises ``InvalidEvent`` for one that is too large or
        that JSON cannot hold.
        """
        encoded = event if type(event) is Encoded else encode(event, finite=finite)  # type: ignore[arg-type]
        return self._with_sums(encoded)

    def _with_sums(self, encoded: Encoded) -> Encoded:
        """Return an encoded event, a long one with its sums. Raises ``InvalidEvent`` for one that
        is too large.
        """
        body = encoded.body
        size = len(body) if type(body) is bytes else size_of(body)
        if size > self._event_bytes_max:
            raise InvalidEvent(
                f"this {encoded.kind} takes {size:,} bytes; the maximum for one event is"
                f" {self._event_bytes_max:,}; divide the event, or raise event_bytes_max of"
                " open_store"
            )
        return encoded if size < LONG_BODY else with_sums(encoded)

    def _encode_all(
        self, events: Iterable[Event | Encoded], source: str, *, finite: bool = True
    ) -> Iterator[Encoded]:
        """Yield events in their stored form. An error names the place of the event in
        ``source``.
        """
        for index, event in enumerate(events):
            try:
                encoded = self._encode(event, finite=finite)
            except InvalidEvent as error:
                raise InvalidEvent(f"event {index} of {source}: {error}") from None
            yield encoded

    def _listed(self, page: Sequence[Conversation]) -> tuple[ConversationRow, ...]:
        """Return a page of conversations as rows, with what only further questions to the store
        answer.
        """
        if all(row.erasure is None and row.replaces is None for row in page):
            return tuple(map(row_of, page))

        def read(reader: Reader) -> tuple[ConversationRow, ...]:
            pending = reader.value("bytes_pending") != ""
            unconfirmed = [
                () if row.erasure is None else behind(reader, row.erasure.position or 0)
                for row in page
            ]
            generations = [len(tombstones_before(reader, row)) for row in page]
            return tuple(
                map(partial(row_of, bytes_pending=pending), page, generations, unconfirmed)
            )

        return self._recorder.query(read)

    def _project(self, writing: WriteTransaction, events: Sequence[Event]) -> None:
        for projection in list(self._projections.values()):
            projection.project(writing, events)


def bind(
    store: Store, conversation: str, *, replaces_erased: bool = False
) -> tuple[Binding, Store]:
    """Return the ``Binding`` to one conversation under this id, and a store that is bound by it."""
    own = copy(store)
    own.database = copy(store.database)
    own.database.binding = binding = Binding(conversation, replaces_erased=replaces_erased)
    return binding, own


def prepare_append(
    store: Store,
    conversation: str,
    events: Event | Iterable[Event],
    expected_version: ExpectedVersion,
    idempotency_key: str | None = None,
    dedupe: Literal["origin"] | None = None,
    guard: Callable[[ReadTransaction], object] | None = None,
    fence: Fence | None = None,
    together: Sequence[Appending] = (),
    also: Callable[[WriteTransaction], object] | None = None,
) -> Appending:
    """Check the arguments of ``Store.append``, encode the events, and return the work that appends
    them in a transaction.
    """
    if type(conversation) is not str:
        raise TypeError(f"the id of a conversation must be a text, not {conversation!r}")
    if idempotency_key is not None:
        check_own_key(idempotency_key)
    if dedupe is not None:
        if dedupe != "origin":
            raise InvalidArgument(f"dedupe is {dedupe!r}; use 'origin', or leave it out")
        if idempotency_key is not None:
            raise InvalidArgument(
                "an append accepts either dedupe or an idempotency_key, not both: with dedupe, the"
                " source ids of the events are the keys"
            )
    if isinstance(events, Event):
        batch = [store._encode(events)]
    else:
        batch = [*store._encode_all(events, "this append")]
    structural = any(map(_is_structural, batch))
    has_options = idempotency_key or dedupe or guard or also or together
    is_plain = not (has_options or structural or _DOCUMENT_CHANGES in map(_kind, batch))
    project = store._project if structural and store._projections else None
    # Another thread may run the work only if the work calls nothing but foldlog's own code.
    calls_foreign_code = not is_plain and (
        project or also or together or not (guard is None or isinstance(guard, DocumentsUnchanged))
    )
    return Appending(
        store.database,
        conversation,
        batch,
        expected_version,
        fence,
        idempotency_key,
        dedupe,
        guard,
        together,
        also,
        project,
        is_plain=is_plain,
        any_thread=store._has_default_clock and not calls_foreign_code,
    )


def _in_order(events: Iterable[Event | Encoded]) -> Iterator[Event | Encoded]:
    """Yield the events of a whole history. Raises ``InvalidEvent`` for an id that is not the place
    of the event.
    """
    for index, event in enumerate(events):
        # ``encode`` refuses an object that is not an event, and an encoded event has no id.
        event_id = getattr(event, "id", NOT_RECORDED)
        if event_id not in (index, NOT_RECORDED):
            raise InvalidEvent(
                f"event {index} of the history has id {event_id}; give the ids 0, 1, 2, …, or"
                " no ids"
            )
        yield event


def _range(start: int, stop: int | None) -> tuple[int, int]:
    first = max(check_whole("start", start), 0)
    return first, NUMBER_MAX if stop is None else check_whole("stop", stop)


def iter_logged(reading: ReadTransaction, start: int, stop: int) -> Iterator[Logged]:
    return logged_in(reading.conversation, reading.rows(start, stop), start, stop)


def logged_in(conversation: str, rows: Sequence[Row], start: int, stop: int) -> Iterator[Logged]:
    events = dense_events(conversation, rows, start, stop)
    return (
        Logged(from_microseconds(row.recorded_at), event)
        for event, row in zip(events, rows, strict=True)
    )
