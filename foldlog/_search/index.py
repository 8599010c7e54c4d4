"""The search index of a store: made from its events, updated before each search, and free of erased text."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, cast

from foldlog._derived import Changes, Derived
from foldlog._kinds import kind_words, label, narrowed
from foldlog._observed import tell
from foldlog._search.hits import Hit, IndexDamaged, IndexedText, SearchRefused, SearchTables, Wanted, terms_of
from foldlog._words.texts import storable, text_of
from foldlog._words.times import told_at
from foldlog.eventstore import (
    Entry,
    EventStoreError,
    EventTime,
    InvalidArgument,
    KeyChanged,
    KeyUnavailable,
    Recorded,
    Store,
    check_text,
    check_time,
    check_whole,
    event_microseconds,
    has_content,
)

if TYPE_CHECKING:
    from foldlog._search.postgres_tables import PostgresTables
    from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder

_BATCH = 4_000
"""Events in one transaction: with 1,000 the first search takes a third longer, because FTS5 merges more often."""
_CODE = "8"
"""The version of an index's content. An index of another version is rebuilt."""
_REBUILD = "search --rebuild"
_ENCRYPTED = (
    "this store is encrypted, so an index of its texts is made in memory only, with its keys; open it with them, "
    "for the command in FOLDLOG_KEY_FILE"
)


def index_path(store: Store) -> str | None:
    """Return the file of a store's index, beside the store's own; None where the store is in no file."""
    return None if store.path is None else f"{store.path}.search"


class SearchIndex(Derived[IndexedText]):
    """Full-text search over a store. Thread-safe. Any number of processes may use the index of one store.

    For a SQLite store the index is a file beside it, with mode 0600; for a PostgreSQL store it is tables in its schema;
    otherwise, for a store with keys, and where the folder or the tables may not be written, it is in memory. It can be
    deleted at any time. With ``rebuild`` it begins empty, and a damaged file is replaced.

    Raises ``IndexDamaged`` where the file is damaged, and ``SearchRefused`` where one that is kept cannot be written,
    to ``rebuild`` it or for the command ``kept_for``: the error names the command for its owner. For a store with keys,
    an index that was made before is removed.
    """

    batch_size = _BATCH

    def __init__(self, store: Store, *, rebuild: bool = False, kept_for: str = "") -> None:
        super().__init__(store)
        self._kept_for = _REBUILD if rebuild else kept_for
        try:
            self._open(rebuild=rebuild)
        except IndexDamaged:
            if not rebuild:
                raise
            remove_index(store)
            self._open(rebuild=False)

    def _open(self, *, rebuild: bool) -> None:
        self.tables = tables = _opened(self.store, self._kept_for)
        try:
            if tables.value("code") not in (_CODE, ""):  # empty for a new index; another one has other tables
                tables.close()
                remove_index(self.store)
                self.tables = tables = _opened(self.store, self._kept_for)
            is_ours = (tables.value("store"), tables.value("code")) == (self.store.database.uuid, _CODE)
            if rebuild or not is_ours or tables.position() > self.store.database.last_position:
                self.rebuild()
        except BaseException:
            tables.close()
            raise

    @property
    def position(self) -> int:
        """The position in the store up to which the index is complete."""
        return self.tables.position()

    @property
    def unread(self) -> int:
        """The number of events that could not be read and are not in the index."""
        return int(self.tables.value("unread") or 0)

    def search(
        self,
        words: str,
        *,
        conversation: str | None = None,
        kinds: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 20,
    ) -> tuple[Hit, ...]:
        """Return the events that have all the words, best first: see ``Histories.search``. Accents, upper and lower
        case and English endings make no difference.
        """
        terms = terms_of(check_text("words", words))
        if not terms:
            raise InvalidArgument(f"there is no word to search for in {words!r}")
        wanted = Wanted(
            terms,
            () if conversation is None else tuple(self._lineage(conversation)),
            narrowed(kind_words(kinds)),
            None if since is None else event_microseconds(check_time("since", since)),
            None if until is None else event_microseconds(check_time("until", until)),
            sys.maxsize if limit is None else check_whole("limit", limit, 0),
        )
        self.catch_up()
        return tuple(self.tables.find(wanted))

    def _lineage(self, conversation: str) -> Iterator[tuple[str, int | None]]:
        """Yield a conversation, and those whose events it shares, with the id that these events are below."""
        yield conversation, None
        for border in reversed(self.store.query(conversation, lambda read: read.lineage)):
            yield border.parent, border.version

    def catch_up(self, on_events: Callable[[int], object] = lambda added: None) -> int:
        """Apply what is new in the store: add its events, remove what was erased. Return how many events are new.

        Several processes may do this at the same time: each event is added once.
        """
        try:
            with self.tables.lock:
                return super().catch_up(on_events)
        except KeyUnavailable as error:
            remove_index(self.store)
            raise SearchRefused(f"a search needs the keys of all conversations: {error}") from error

    def meet(self, entry: Entry) -> None:
        """Remove the index of a store that is encrypted now. Raises ``SearchRefused``."""
        is_encrypted = isinstance(entry, KeyChanged) and entry.key_id is not None
        if is_encrypted and not _encrypts(self.store) and self.store.database.recorder.value("key_ids"):
            remove_index(self.store)
            raise SearchRefused(_ENCRYPTED)

    def row_of(self, recorded: Recorded) -> IndexedText | None:
        return indexed(recorded) if has_content(recorded.event) else None

    def write(self, changes: Changes[IndexedText], position: int, *, after: int) -> int | None:
        refused = self.tables.apply(changes, position, after=after)
        if refused is None:
            return None
        left_out = Counter((one.conversation, one.problem) for one in (*changes.left_out, *refused))
        for (conversation, problem), events in left_out.items():
            tell("foldlog.follower.left_out", conversation=conversation, events=events, problem=problem)
        return len(changes.rows) - len(refused)

    def begin_again(self) -> None:
        self.rebuild()

    def rebuild(self) -> None:
        """Empty the index. The next search rebuilds it from the log."""
        self.tables.clear({"store": self.store.database.uuid, "code": _CODE})

    def refresh(self) -> None:
        """Do nothing: bytes of removed texts stay until the store is vacuumed."""

    def close(self) -> None:
        """Close the index. The store stays open."""
        self.tables.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def still_in_index(store: Store) -> tuple[str, ...]:
    """Remove erased events from the store's search index, if it has one. Return why it may hold them still, if so."""
    try:
        erase_from_index(store)
    except (EventStoreError, OSError) as error:
        return (f"search index: {error}",)
    return ()


def erase_from_index(store: Store, *, and_bytes: bool = False) -> None:
    """Do what ``still_in_index`` does. Raises ``SearchRefused`` and ``StoreUnavailable`` where the index cannot be
    changed. Cost: what is new in the store since the index was updated; with ``and_bytes``, the whole index.

    As in the store, bytes of removed texts stay in the file until a vacuum: to remove them, the whole index is
    rewritten. ``and_bytes`` does this, if there are any; on a server the vacuum of the store does it.
    """
    path, tables = index_path(store), _on_server(store)
    exists = tables is not None and tables.exist() if path is None else os.path.exists(path)
    if _encrypts(store) or not exists:
        remove_index(store)
        return
    with SearchIndex(store, kept_for="vacuum") as index:
        if index.tables.position():
            index.catch_up()
        if and_bytes:
            index.tables.purge()


def remove_index(store: Store) -> None:
    """Remove the index, if there is one, of a store whose texts must no longer be in an index.

    Raises ``SearchRefused`` where this role may not remove its tables on a server.
    """
    path, tables = index_path(store), _on_server(store)
    if path is not None:
        for ending in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + ending)
    elif tables is not None:
        tables.drop()


def indexed(recorded: Recorded) -> IndexedText:
    """Return an event as it goes into the index."""
    position, conversation, recorded_at, event = recorded
    at = told_at(event, recorded_at)
    return IndexedText(
        position,
        conversation,
        event.id,
        label(event),
        None if at is None else event_microseconds(at),
        at is not None and at.tzinfo is None,
        event_microseconds(EventTime(recorded_at)),
        storable(text_of(event)),
    )


def _opened(store: Store, kept_for: str) -> SearchTables:
    path = index_path(store)
    if _encrypts(store):
        remove_index(store)
        path = None
    elif (tables := _on_server(store, kept_for or _REBUILD)) is not None:
        try:
            tables.prepare()
        except SearchRefused:
            if kept_for:
                raise
        else:
            return tables
    elif path is not None and not os.access(path if os.path.exists(path) else os.path.dirname(path) or ".", os.W_OK):
        if kept_for:
            raise SearchRefused(f"{path} may not be changed by this user; delete it, or let its owner do this")
        path = None
    from foldlog._search.sqlite_tables import SQLiteTables

    return SQLiteTables(path)


def _on_server(store: Store, command: str = _REBUILD) -> PostgresTables | None:
    """Return the tables of an index on a server, made or not; None without one. Their owner can run ``command``."""
    if not store.database.recorder.on_server:
        return None
    from foldlog._search.postgres_tables import PostgresTables

    return PostgresTables(cast("PostgresRecorder", store.database.recorder), command)


def _encrypts(store: Store) -> bool:
    """Return whether the store was opened with keys, so that what it appends is encrypted."""
    return store.database.settings.keys is not None
