"""A ``Database`` finds conversations through a recorder, makes the codecs for their rows, and
caches the state of the conversation to which it last appended.

A recorder stores rows as bytes. Code that reads or inserts rows has to apply the codec of the
conversation. In a store without keys, the codec only adds and checks a checksum.

See docs/internals/decisions/0037-views-that-grow.md and
docs/internals/decisions/0066-row-codec-in-transactions.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from foldlog.eventstore.arguments import to_microseconds
from foldlog.eventstore.errors import (
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    EventsNotMade,
    KeyUnavailable,
)
from foldlog.eventstore.log.keys import DataKey, KeyRing, key_missing
from foldlog.eventstore.log.ledger import enter_restoring
from foldlog.eventstore.log.row import NotAsWritten, from_microseconds, present
from foldlog.eventstore.log.seal import NOTHING_PENDING, Mark, RowCodec, WriteSettings, read_mark
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.types import Conversation, ListedConversation, Row

T = TypeVar("T")


class LastConversation(NamedTuple):
    """The state and the codec of the conversation to which a connection last appended. The salt is
    decrypted.

    In SQLite, the writing connection remembers the state of one conversation until another program
    commits. So neither the next append nor the next View of the conversation needs a query. On a
    server, the next append sends the state that it expects. The server compares the expected state
    with the stored state, without a further round trip.

    ``settings`` are the settings of the ``Database`` that made the codec. ``rows`` contains the
    newest rows, decrypted. ``before`` is the state before the first of these rows was appended.
    """

    state: Conversation
    codec: RowCodec
    settings: WriteSettings
    before: Conversation
    rows: tuple[Row, ...] = ()
    size: int = 0
    """The total size of the bodies of ``rows``, in bytes."""

    def rows_since(self, earlier: Conversation) -> Sequence[Row] | None:
        """Return the rows that were appended to the conversation after the state ``earlier``.
        Return None if one of the appended rows is not in memory, or if content was redacted.

        Also return None if the conversation has another head at the version of ``earlier``, because
        events of ``earlier`` were then rolled back.
        """
        present = self.state
        before = self.before
        if (earlier.key, earlier.redactions) != (present.key, present.redactions):
            return None
        grown = earlier.version - before.version
        if not 0 <= grown <= len(self.rows):
            return None
        head = before.head if grown == 0 else self.rows[grown - 1].head
        if head != earlier.head:
            return None
        return self.rows[grown:]


class Late(NamedTuple):
    """The list entries that this process has read and could not write.

    ``base``      the progress of the stored list when this process began to read
    ``progress``  the progress of the stored list and ``listings`` together
    ``listings``  maps the key of a conversation to its entry
    """

    base: object
    progress: Any
    listings: Mapping[int, ListedConversation]


NOTHING_LATE = Late(None, None, {})
_WRITTEN_MAX: Final = 200
_NEWEST_EVENTS: Final = 500
"""The number of events in which ``Database.newest_changed`` looks for conversations."""


class Binding(Struct):
    """Binds a database to a conversation. An erased conversation and later conversations may have
    the same id, but not the same key. ``key`` is the key of the first conversation that the
    database reads or appends to under ``id``, and None before. From then on, the database finds no
    other conversation under this id. See docs/internals/decisions/0036-generations.md.

    If ``replaces_erased`` is true and the conversation is erased, an append begins a new
    conversation with the same id.
    """

    id: str
    key: int | None = None
    replaces_erased: bool = False

    def check(self, reader: Reader, state: Conversation, *, binds: bool) -> None:
        """Raise ``ConversationErased`` or ``ConversationNotFound`` if ``state`` is another
        conversation with the id. A transaction does not bind, because it may be rolled back.
        """
        if self.key is None:
            if binds and state.erasure is None and not isinstance(reader, Transaction):
                self.key = state.key
        elif self.key != state.key:
            check_not_erased(reader.conversation(self.key), state)
            raise ConversationNotFound(self.id)


class Database:
    """A recorder, the settings with which this process writes rows, and the codecs of the
    recorder's conversations. Thread-safe.
    """

    def __init__(
        self,
        recorder: Recorder,
        settings: WriteSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.recorder = recorder
        recorder.on_copy = enter_restoring
        if clock is None:
            self.now = present
        else:
            self.now = lambda: to_microseconds(clock(), "what the clock returns")
        self.settings = settings or WriteSettings()
        self.binding: Binding | None = None
        """The conversation to which the database of one ``History`` is bound."""
        self.last_conversation: LastConversation | None = None
        """Used only if the store is on a server: the conversation to which this object last
        appended, with its state. The next append expects that the conversation still has this
        state.
        """
        self._is_contended = False
        """Used only if the store is on a server: whether other writers have written to
        ``last_conversation``. If ``_is_contended`` is true, the next append reads the
        conversation's state before it writes.
        """
        self._opened_last: tuple[Conversation | None, RowCodec | None] = None, None
        """The conversation that was found last, and its codec."""
        self.late = NOTHING_LATE
        """The list entries that this process has read and could not write."""
        self.written = deque[int](maxlen=_WRITTEN_MAX)
        """The keys of the conversations that this process wrote last, which lists show at once."""

    @property
    def uuid(self) -> str:
        """The name of the store: a UUID that is made with the store. Moving the store's file does
        not change the name.
        """
        return self.recorder.value("uuid")

    @property
    def last_position(self) -> int:
        """The highest position that this store has given to an event. A follower with a higher
        position has read events that the store has lost.
        """
        return self.recorder.position(self.recorder.value("last_position"))

    @property
    def bytes_pending(self) -> bool:
        """Whether the store's file may still contain bytes of erased events, or unencrypted bytes
        of events that are encrypted now. ``vacuum`` removes all of these bytes.
        """
        return self.recorder.value("bytes_pending") != ""

    def cached_state(self, conversation: str) -> LastConversation | None:
        """Return the present state of the conversation if no query is needed. Return None if this
        process's last append was to another conversation, or if another program has committed since
        then. Cost: a few system calls.
        """
        last = self.last_conversation_in(self.recorder, conversation)
        if last is None or self.binding is None or self.binding.key == last.state.key:
            return last
        return None

    def data_version(self) -> int:
        return int(self.recorder.value("data_version"))

    # -- conversations

    def newest_changed(self, reader: Reader) -> list[int]:
        """Return the keys of the conversations that changed last: those that this process has
        written, and those with the newest events. Lists and figures begin with these if more have
        changed than a reader waits for.
        """
        own = dict.fromkeys(reversed(self.written))
        return [*dict.fromkeys([*own, *reader.newest_touched(_NEWEST_EVENTS)])]

    def find(
        self, reader: Reader, conversation: str, *, as_stored: bool = False, binds: bool = True
    ) -> Conversation | None:
        """Return the conversation with this id, or None if it does not exist. If this process has
        the conversation's key, the returned salt is decrypted.

        Raises ``EventsNotMade`` if the conversation's source has records without events, unless
        ``as_stored`` is true. After ``EventsNotMade``, the recorder makes the missing events and
        runs the work again. Raises ``StoreDamaged`` or ``CorruptEvent`` if the stored row of the
        conversation is damaged, and the errors of ``Binding.check``. If ``binds`` is false, the
        ``Binding`` stays unchanged.
        """
        if type(conversation) is not str:
            raise TypeError(f"the id of a conversation must be a text, not {conversation!r}")
        state: Conversation | None
        last = self.last_conversation_in(reader, conversation)
        if last is not None:
            self._opened_last = last.state, last.codec
            state = last.state
        elif self.last_conversation is not None and self.last_conversation.state.id == conversation:
            state = self._compare(reader, self.last_conversation)
        else:
            state = self.with_salt(reader.conversation(conversation))
        if state is None:
            return None
        if state.unmade and not as_stored:
            raise EventsNotMade(conversation, state.unmade, state.archived)
        if self.binding is not None and self.binding.id == conversation:
            self.binding.check(reader, state, binds=binds)
        return state

    def last_conversation_in(
        self, transaction: Reader | Recorder, conversation: str
    ) -> LastConversation | None:
        """Return the conversation of the last append, if it has this id and was written with the
        same settings.
        """
        last: LastConversation | None = transaction.last_conversation
        is_present = last is not None and (last.state.id, last.settings) == (
            conversation,
            self.settings,
        )
        return last if is_present else None

    def find_key(self, reader: Reader, key: str | int) -> Conversation | None:
        """Return the conversation with this key (a number) or id (a text). The returned
        conversation may be staged, and its source may have records without events.
        """
        return self.with_salt(reader.conversation(key))

    # -- codecs

    def codec_of(self, conversation: Conversation) -> RowCodec:
        """Return the codec for the rows of a conversation. Raises ``KeyUnavailable`` if its key is
        missing, and ``CorruptEvent`` if its mark does not match its row.
        """
        last_opened, codec = self._opened_last
        if conversation is last_opened and codec is not None:
            return codec
        data_key = self.data_key(conversation)
        mark = NOTHING_PENDING
        if data_key is not None and conversation.erasure is None:
            try:
                mark = read_mark(data_key, conversation)
            except NotAsWritten as error:
                raise CorruptEvent(
                    conversation.id,
                    conversation.version - 1,
                    f"{error}: a program without the key removed events after this one, or changed"
                    " the conversation's row",
                ) from error
        return RowCodec(conversation.id, data_key, mark)

    def data_key(self, conversation: Conversation) -> DataKey | None:
        """Return the decrypted data key of a conversation, or None if it is not encrypted."""
        if conversation.sealed_key is None:
            return None
        if self.settings.keys is None:
            raise key_missing(
                f"conversation {conversation.id!r} is encrypted", conversation.key_id, None
            )
        return self.settings.keys.unwrap(
            conversation.id, conversation.key_id or "", conversation.sealed_key
        )

    # -- steps

    def _compare(self, reader: Reader, last: LastConversation) -> Conversation | None:
        """Return the conversation to which this object last appended. On a server, the query may be
        left out, because the append later compares the expected state with the stored state.
        """
        if last.codec.data_key is None:
            expected = last.state
        else:
            expected = last.state._replace(salt=b"")
        state = reader.conversation(expected.id, None if self._is_contended else expected)
        self._is_contended = state != expected
        if self._is_contended:
            return self.with_salt(state)
        self._opened_last = last.state, last.codec
        return last.state

    def with_salt(self, conversation: Conversation | None) -> Conversation | None:
        """Return a conversation with its decrypted salt. Without the key, the salt stays encrypted:
        the conversation can be found, but not read.
        """
        if conversation is None or conversation.sealed_key is None:
            return conversation
        try:
            codec = self.codec_of(conversation)
        except KeyUnavailable:
            return conversation
        if codec.data_key is not None:
            conversation = conversation._replace(salt=codec.data_key.salt)
        self._opened_last = conversation, codec
        return conversation


def check_not_erased(
    conversation: Conversation | None, successor: Conversation | None = None
) -> Conversation | None:
    """Return ``conversation`` unchanged. Raises ``ConversationErased`` if it is erased. Then
    ``successor`` is the conversation that has its id now.
    """
    if conversation is not None and (erasure := conversation.erasure) is not None:
        when = from_microseconds(erasure.erased_at)
        is_replaced = successor is not None and successor.erasure is None
        raise ConversationErased(
            conversation.id, when.isoformat(), erasure.reason, is_replaced=is_replaced
        )
    return conversation


def begun(conversation: Conversation | None) -> Conversation | None:
    """Return ``conversation`` unchanged. A damaged conversation must not look empty, so
    ``CorruptEvent`` is raised if the conversation has lost its events.
    """
    is_whole = conversation is not None and (conversation.head or conversation.lacks_events)
    if conversation is None or (is_whole and conversation.erasure is None):
        return conversation
    check_not_erased(conversation)
    raise CorruptEvent(
        conversation.id,
        max(conversation.begins, 1) - 1,
        "the event is missing, and so are all later events",
    )


def start_after(conversation: str | None) -> str:
    """Return the least id after an id. A list after None begins with the first id."""
    return "" if conversation is None else conversation + "\0"


def iter_pages(
    page: Callable[[str | None], Sequence[T]],
    name: Callable[[T], str],
    size: int,
    after: str | None = None,
) -> Iterator[T]:
    """Yield the items of all pages. ``page`` returns up to ``size`` items after a name."""
    while True:
        items = page(after)
        yield from items
        if len(items) < size:
            return
        after = name(items[-1])


def behind(reader: Reader, position: int) -> list[str]:
    """Return the names of the read models that have not reached a position."""
    return [
        name for name, reached in reader.trackings() if not reader.has_reached(reached, position)
    ]


def give_data_key(conversation: Conversation, keys: KeyRing) -> tuple[Conversation, DataKey, Mark]:
    """Give the conversation a new data key. Return the conversation, the data key, and a mark that
    says that the rows stored so far are unencrypted.
    """
    secret = DataKey.new_secret(conversation.salt)
    wrapped = keys.wrap(conversation.id, secret)
    renewed = conversation._replace(salt=b"", key_id=keys.current, sealed_key=wrapped)
    return renewed, DataKey(conversation.id, secret), Mark(0, 0, conversation.version)
