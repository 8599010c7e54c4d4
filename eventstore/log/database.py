"""A recorder, the codecs of the conversations in it, the one cache of them, and observers of what is appended.

A recorder keeps rows as bytes. The store, and everything that maintains a store, applies the codec of a conversation to
its rows after a read and before an insert. In a store without keys a codec is a checksum, and nothing is encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar
from weakref import ref

from msgspec import Struct, structs

from foldlog.eventstore.arguments import to_microseconds
from foldlog.eventstore.errors import CorruptEvent, EventsNotMade, KeyUnavailable
from foldlog.eventstore.log.keys import DataKey, KeyRing, key_missing
from foldlog.eventstore.log.ledger import enter_restoring
from foldlog.eventstore.log.row import NotAsWritten, present
from foldlog.eventstore.log.seal import NOTHING_PENDING, Mark, RowCodec, WriteSettings, have_bytes, read_mark
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.types import Conversation, ListedConversation, Row

T = TypeVar("T")

_KNOWN_MAX: Final = 10_000


class Known(Struct, frozen=True):
    """A conversation as this process found or left it: as stored, with its salt decrypted, and its codec.

    ``era`` is that of the write transaction which found or left it so (``Reader.era``), None for a read transaction.
    ``foreign``: another process has written to it since this one left it, and may do so again.
    """

    stored: Conversation
    plain: Conversation
    codec: RowCodec
    era: int | None = None
    foreign: bool = False


class Observer(Protocol):
    """Something that is told what this process appends, for example to go on from a state in memory."""

    def appended(self, before: Conversation, after: Conversation, rows: Sequence[Row], /) -> None:
        """Take the plain rows by which a transaction lets a conversation grow. Rows with attachments are left out.

        The transaction may still be rolled back, and other writers append too. Heads tell: rows belong to a
        conversation only where they lead from one head of it to another. It must not ask the store, nor raise.
        """


class KnownConversations:
    """The conversations that this process found or left last, by id. Any number of threads may use it.

    Where a transaction was rolled back after it noted how it leaves a conversation, nothing is wrong: no transaction
    has its era any more, and the conversation that is found then is another one.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Known] = {}
        self.get = self._by_id.get
        self._observers: tuple[ref[Observer], ...] = ()

    def note(self, known: Known) -> None:
        """Note how a conversation was found, or how a transaction of this process leaves it. A staged one is left out:
        several may have the same id.
        """
        if known.stored.visible:
            if len(self._by_id) >= _KNOWN_MAX:
                self._by_id.clear()
            self._by_id[known.plain.id] = known

    def forget(self, conversation: str) -> None:
        """Forget a conversation that a transaction noted and the database then refused to keep: on a server the next
        one would begin with a state that never was, which a guard would be shown before the server refuses it.
        """
        self._by_id.pop(conversation, None)

    def observe(self, observer: Observer) -> None:
        """From now on tell an observer what is appended, for as long as other code holds it."""
        self._observers = (*[each for each in self._observers if each() is not None], ref(observer))

    def tell(self, before: Conversation, after: Conversation, rows: Sequence[Row]) -> None:
        """Tell the observers what a transaction appends, unless bytes stand beside its bodies."""
        for each in self._observers if self._observers and not have_bytes(rows) else ():
            observer = each()
            if observer is not None:
                observer.appended(before, after, rows)


class Database:
    """A recorder, how this process writes rows to it, and the codecs of its conversations. Thread-safe.

    It remembers each conversation as it was found. The mark of one that is still the same need not be read again.
    """

    def __init__(
        self, recorder: Recorder, settings: WriteSettings | None = None, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.recorder = recorder
        recorder.on_copy = enter_restoring
        self.now = present if clock is None else lambda: to_microseconds(clock(), "what the clock gives")
        self.settings = settings or WriteSettings()
        self.known = KnownConversations()
        self.late: tuple[int | None, Sequence[tuple[int, int]], Mapping[int, ListedConversation]] = None, (), {}
        """At which ``data_version`` a list could not write which conversations, and what it read of these."""

    @property
    def uuid(self) -> str:
        """The name of this store, wherever its file is moved."""
        return self.recorder.value("uuid")

    @property
    def last_position(self) -> int:
        """The highest position that this store has given. Who has followed further has read what the store lost."""
        return int(self.recorder.value("last_position"))

    @property
    def bytes_pending(self) -> bool:
        """Whether bytes of what was erased or encrypted may still be in the store's file: ``vacuum`` removes them."""
        return self.recorder.value("bytes_pending") != ""

    def last_version(self, conversation: str) -> int | None:
        """Return the version of a conversation when this process found or left it last; None where it did not."""
        known = self.known.get(conversation)
        return None if known is None else known.stored.version

    def as_left(self, conversation: str) -> Conversation | None:
        """Return a conversation as it is now, where no question is needed: as this process left it, and no
        other has committed since. Else None. Cost: some system calls.
        """
        known = self.known.get(conversation)  # first: a transaction may begin now and note what it takes back
        if known is None or known.era is None:
            return None
        return known.plain if self.recorder.value("era") == str(known.era) else None

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed: cheap to poll before following again."""
        return int(self.recorder.value("data_version"))

    # -- conversations ------------------------------------------------------------------------------------------------

    def find(self, reader: Reader, conversation: str, *, pending: bool = False) -> Conversation | None:
        """Return the conversation with this id, its salt decrypted where its key is given.

        Raises ``EventsNotMade`` for one whose source has records without events, unless ``pending``: the recorder has
        them made then and runs the work again. So every read, append and fork finds a whole conversation, and no caller
        has to remember to make events. Raises ``CorruptEvent`` where its columns cannot be what was written, or its
        mark is of another state.
        """
        found = self._found(reader, conversation)
        if found is not None and found.pending and not pending:
            raise EventsNotMade(conversation, found.pending)
        return found

    def _found(self, reader: Reader, conversation: str) -> Conversation | None:
        if type(conversation) is not str:
            raise TypeError(f"the id of a conversation is a text, not {conversation!r}")
        era = reader.era(self.known)
        known = self.known.get(conversation)
        if known is not None and era is not None and known.era == era:
            return known.plain
        found = reader.conversation(conversation, None if known is None or known.foreign else known.stored)
        known = self.known.get(conversation)
        if known is not None and known.stored == found:
            if era is not None or known.foreign:
                self.known.note(structs.replace(known, era=era, foreign=False))
            return known.plain
        return self._opened(found, era, foreign=known is not None)

    def find_key(self, reader: Reader, key: str | int) -> Conversation | None:
        """Return the conversation with this key, staged or visible, or with this id, as ``find`` does."""
        return self._opened(reader.conversation(key), reader.era(self.known))

    # -- codecs -------------------------------------------------------------------------------------------------------

    def codec_of(self, found: Conversation) -> RowCodec:
        """Return the codec of a conversation as it was found.

        Raises ``KeyUnavailable`` where it is encrypted and its key is not in the ring, and ``CorruptEvent`` where its
        mark is of another state.
        """
        known = self.known.get(found.id)
        if known is not None and known.plain is found:
            return known.codec
        data_key, mark = self.data_key(found), NOTHING_PENDING
        if data_key is not None and found.erasure is None:
            try:
                mark = read_mark(data_key, found)
            except NotAsWritten as error:
                raise CorruptEvent(
                    found.id,
                    found.version - 1,
                    f"{error}: events after this one were removed, or the conversation's row was changed, without the "
                    f"key",
                ) from error
        return RowCodec(found.id, data_key, mark)

    def data_key(self, found: Conversation) -> DataKey | None:
        """Return the key of a conversation; None where it is not encrypted. Raises ``KeyUnavailable``."""
        if found.sealed_key is None:
            return None
        if self.settings.keys is None:
            raise key_missing(f"conversation {found.id!r} is encrypted", found.key_id, None)
        return self.settings.keys.unwrap(found.id, found.key_id or "", found.sealed_key)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _opened(self, found: Conversation | None, era: int | None, *, foreign: bool = False) -> Conversation | None:
        """Return the conversation with its salt decrypted. Without its key it can be found, but not read."""
        if found is None:
            return None
        try:
            codec = self.codec_of(found)
        except KeyUnavailable:
            return found
        plain = found if codec.data_key is None else found._replace(salt=codec.data_key.salt)
        self.known.note(Known(found, plain, codec, era, foreign))
        return plain


def start_after(conversation: str | None) -> str:
    """Return the id that follows one at once, from which a list goes on; None for the beginning."""
    return "" if conversation is None else conversation + "\0"


def paged(
    page: Callable[[str | None], Sequence[T]], name: Callable[[T], str], size: int, after: str | None = None
) -> Iterator[T]:
    """Yield the items of all pages. ``page(after)`` returns at most ``size`` items with names after ``after``."""
    while True:
        items = page(after)
        yield from items
        if len(items) < size:
            return
        after = name(items[-1])


def behind(reader: Reader, position: int) -> list[str]:
    """Return the read models and projections that have not reached a position."""
    return [name for name, reached in json.loads(reader.value("trackings")) if reached < position]


def encrypted(found: Conversation, keys: KeyRing) -> tuple[Conversation, DataKey, Mark]:
    """Return a plain conversation with a new data key, and a mark that none of its rows is encrypted yet."""
    secret = DataKey.new_secret(found.salt)
    wrapped = keys.wrap(found.id, secret)
    renewed = found._replace(salt=b"", key_id=keys.current, sealed_key=wrapped)
    return renewed, DataKey(found.id, secret), Mark(0, 0, found.version)
