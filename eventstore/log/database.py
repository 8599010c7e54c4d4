"""A recorder, the codecs of the conversations in it, and the state in which the last append left
one of them.

A recorder keeps rows as bytes. The store, and everything that maintains a store, applies the codec
of a conversation to its rows after a read and before an insert. In a store without keys a codec is
a checksum, and nothing is encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from foldlog.eventstore.arguments import to_microseconds
from foldlog.eventstore.errors import CorruptEvent, EventsNotMade, KeyUnavailable
from foldlog.eventstore.log.keys import DataKey, KeyRing, key_missing
from foldlog.eventstore.log.ledger import enter_restoring
from foldlog.eventstore.log.row import NotAsWritten, present
from foldlog.eventstore.log.seal import NOTHING_PENDING, Mark, RowCodec, WriteSettings, read_mark
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.types import Conversation, ListedConversation, Row

T = TypeVar("T")


class Left(NamedTuple):
    """A conversation as the last append of a connection left it, with its salt decrypted, and its
    codec.

    SQLite keeps one with the connection that writes, for as long as no other program has committed:
    then the next append to the conversation asks nothing, and its View grows without a question.
    On a server it is what the next append expects, and the server compares it in the round trip of
    the append.

    ``settings`` are those of the database object that opened the codec. ``rows`` are the newest
    rows, plain, appended one after another to ``before``.
    """

    found: Conversation
    codec: RowCodec
    settings: WriteSettings
    before: Conversation
    rows: tuple[Row, ...] = ()
    size: int = 0
    """The bytes of the bodies of ``rows``."""

    def rows_since(self, earlier: Conversation) -> Sequence[Row] | None:
        """Return the rows by which the conversation has grown since it was found ``earlier``. None
        where some of them are not in memory, or content was redacted.

        The events of ``earlier`` may belong to a transaction that was rolled back. Its head reveals
        that: every head depends on all events before it.
        """
        found = self.found
        before = self.before
        if (earlier.key, earlier.redactions) != (found.key, found.redactions):
            return None
        grown = earlier.version - before.version
        if not 0 <= grown <= len(self.rows):
            return None
        head = before.head if grown == 0 else self.rows[grown - 1].head
        if head != earlier.head:
            return None
        return self.rows[grown:]


class Late(NamedTuple):
    """The conversations that a list could not write: the ``data_version`` at which it was so, the
    position up to which it looked, their keys and versions, and what it read of them.
    """

    moment: int | None
    until: int
    left: Sequence[tuple[int, int]]
    read: Mapping[int, ListedConversation]


class Database:
    """A recorder, how this process writes rows to it, and the codecs of its conversations.
    Thread-safe.
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
            self.now = lambda: to_microseconds(clock(), "what the clock gives")
        self.settings = settings or WriteSettings()
        self.left: Left | None = None
        """On a server: how the last append by this object left a conversation, and what the next
        one expects.
        """
        self._is_contended = False
        """On a server: whether others wrote to that conversation since. Then the next append
        asks.
        """
        self._opened_last: tuple[Conversation | None, RowCodec | None] = None, None
        self.late = Late(None, 0, (), {})
        """What the last list could not write."""

    @property
    def uuid(self) -> str:
        """The name of this store, wherever its file is moved."""
        return self.recorder.value("uuid")

    @property
    def last_position(self) -> int:
        """The highest position that this store has given. Who has followed further has read what
        the store lost.
        """
        return self.recorder.position(self.recorder.value("last_position"))

    @property
    def bytes_pending(self) -> bool:
        """Whether bytes of what was erased or encrypted may still be in the store's file:
        ``vacuum`` removes them.
        """
        return self.recorder.value("bytes_pending") != ""

    def as_left(self, conversation: str) -> Left | None:
        """Return the conversation as it is now, where no question is needed: the last append of
        this process was to it, and no other program has committed since. Else None. Cost: some
        system calls.
        """
        return self.left_in(self.recorder, conversation)

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed: cheap to poll before
        following again.
        """
        return int(self.recorder.value("data_version"))

    # -- conversations
    # ----------------------------------------------------------------------------------------------

    def find(
        self, reader: Reader, conversation: str, *, pending: bool = False
    ) -> Conversation | None:
        """Return the conversation with this id, its salt decrypted where its key is given.

        Raises ``EventsNotMade`` for one whose source has records without events, unless
        ``pending``: the recorder has them made then and runs the work again. So every read, append
        and fork finds a whole conversation, and no caller has to remember to make events. Raises
        ``CorruptEvent`` where its columns cannot be what was written, or its mark is of another
        state.
        """
        if type(conversation) is not str:
            raise TypeError(f"the id of a conversation is a text, not {conversation!r}")
        left = self.left_in(reader, conversation)
        if left is not None:
            self._opened_last = left.found, left.codec
            return left.found
        if self.left is not None and self.left.found.id == conversation:
            found = self._compared(reader, self.left)
        else:
            found = self._opened(reader.conversation(conversation))
        if found is not None and found.pending and not pending:
            raise EventsNotMade(conversation, found.pending)
        return found

    def left_in(self, transaction: Reader | Recorder, conversation: str) -> Left | None:
        """Return the conversation if the last append of the transaction's connection left it as it
        is now.
        """
        left: Left | None = transaction.left
        is_right = left is not None and (left.found.id, left.settings) == (
            conversation,
            self.settings,
        )
        return left if is_right else None

    def find_key(self, reader: Reader, key: str | int) -> Conversation | None:
        """Return the conversation with this key, staged or visible, or with this id, as ``find``
        does.
        """
        return self._opened(reader.conversation(key))

    # -- codecs
    # ----------------------------------------------------------------------------------------------

    def codec_of(self, found: Conversation) -> RowCodec:
        """Return the codec of a conversation as it was found.

        Raises ``KeyUnavailable`` where it is encrypted and its key is not in the ring, and
        ``CorruptEvent`` where its mark is of another state.
        """
        last, codec = self._opened_last
        if found is last and codec is not None:
            return codec
        data_key = self.data_key(found)
        mark = NOTHING_PENDING
        if data_key is not None and found.erasure is None:
            try:
                mark = read_mark(data_key, found)
            except NotAsWritten as error:
                raise CorruptEvent(
                    found.id,
                    found.version - 1,
                    f"{error}: events after this one were removed, or the conversation's row was"
                    " changed, without the key",
                ) from error
        return RowCodec(found.id, data_key, mark)

    def data_key(self, found: Conversation) -> DataKey | None:
        """Return the key of a conversation; None where it is not encrypted. Raises
        ``KeyUnavailable``.
        """
        if found.sealed_key is None:
            return None
        if self.settings.keys is None:
            raise key_missing(f"conversation {found.id!r} is encrypted", found.key_id, None)
        return self.settings.keys.unwrap(found.id, found.key_id or "", found.sealed_key)

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _compared(self, reader: Reader, left: Left) -> Conversation | None:
        """Return the conversation that was appended to last, as it is now; from a server perhaps
        unasked.
        """
        if left.codec.data_key is None:
            expected = left.found
        else:
            expected = left.found._replace(salt=b"")
        found = reader.conversation(expected.id, None if self._is_contended else expected)
        self._is_contended = found != expected
        if self._is_contended:
            return self._opened(found)
        self._opened_last = left.found, left.codec
        return left.found

    def _opened(self, found: Conversation | None) -> Conversation | None:
        """Return the conversation with its salt decrypted. Without its key it can be found, but not
        read.
        """
        if found is None or found.sealed_key is None:
            return found
        try:
            codec = self.codec_of(found)
        except KeyUnavailable:
            return found
        if codec.data_key is not None:
            found = found._replace(salt=codec.data_key.salt)
        self._opened_last = found, codec
        return found


def start_after(conversation: str | None) -> str:
    """Return the id that follows one at once, from which a list goes on; None for the beginning."""
    return "" if conversation is None else conversation + "\0"


def paged(
    page: Callable[[str | None], Sequence[T]],
    name: Callable[[T], str],
    size: int,
    after: str | None = None,
) -> Iterator[T]:
    """Yield the items of all pages. ``page(after)`` returns at most ``size`` items with names after
    ``after``.
    """
    while True:
        items = page(after)
        yield from items
        if len(items) < size:
            return
        after = name(items[-1])


def behind(reader: Reader, position: int) -> list[str]:
    """Return the read models and projections that have not reached a position."""
    trackings = json.loads(reader.value("trackings"))
    return [name for name, reached in trackings if not reader.has_reached(reached, position)]


def encrypted(found: Conversation, keys: KeyRing) -> tuple[Conversation, DataKey, Mark]:
    """Return a plain conversation with a new data key, and a mark that none of its rows is
    encrypted yet.
    """
    secret = DataKey.new_secret(found.salt)
    wrapped = keys.wrap(found.id, secret)
    renewed = found._replace(salt=b"", key_id=keys.current, sealed_key=wrapped)
    return renewed, DataKey(found.id, secret), Mark(0, 0, found.version)
