"""The tables of a search index in a SQLite file of their own, with FTS5."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from foldlog._derived import REFUSED_BY_SQLITE, Changes, OmittedEvent, Removal, add_each
from foldlog._search.hits import (
    MARK_END,
    MARK_START,
    Hit,
    IndexDamaged,
    IndexedText,
    SearchRefused,
    SearchTables,
    Term,
    Wanted,
    conditions_of,
    hit_of,
)
from foldlog.eventstore import StoreUnavailable
from foldlog.eventstore.recorders.sqlite import process_forks
from foldlog.eventstore.recorders.types import utf8

_APPLICATION_ID = 0x666C7378
_PATIENCE_S = 60.0
_WORDS_OF_A_SNIPPET = 24
_SEGMENTS = 16
"""The number of segments of one size that are merged: each batch of events adds one. With FTS5's default, 4, merging
takes a third longer, and a query takes the same time.
"""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""SQLite's codes for a damaged file. Our statements are valid, so for the last one a table of the file is damaged."""
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS conversations (key INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS texts (
        position INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, id INTEGER NOT NULL, kind TEXT NOT NULL,
        at INTEGER, is_local INTEGER NOT NULL, recorded_at INTEGER NOT NULL, text TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS texts_by_conversation ON texts (conversation);
    CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
        text, content = 'texts', content_rowid = 'position', tokenize = 'porter unicode61 remove_diacritics 2'
    );
"""
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_FIND = f"""
    SELECT c.id, t.id, t.kind, t.at, t.is_local, t.recorded_at,
        snippet(words, 0, '{MARK_START}', '{MARK_END}', '…', {_WORDS_OF_A_SNIPPET}), -rank
    FROM words JOIN texts t ON t.position = words.rowid JOIN conversations c ON c.key = t.conversation
    WHERE words MATCH ? {{conditions}} ORDER BY rank LIMIT ?
"""


class SQLiteTables(SearchTables):
    """See ``SearchTables``. ``path`` is None for an index in memory. Raises ``SearchRefused`` where the file is another
    program's, or this SQLite has no FTS5.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._path = path
        self._open: sqlite3.Connection | None = None
        self._is_closed = False
        with self._used():
            _ = self._connection

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            if self._is_closed:
                raise sqlite3.ProgrammingError(
                    "it was closed, or in use in another thread when this process was forked"
                )
            self._open = self._connected()
        return self._open

    def _connected(self) -> sqlite3.Connection:
        path = self._path
        if path is not None:
            if not os.path.exists(path):
                with suppress(FileExistsError):  # another process makes it at the same time
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            process_forks.check_not_inherited(path)
        connection = sqlite3.connect(
            path or ":memory:", timeout=_PATIENCE_S, check_same_thread=False, isolation_level=None
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        execute = connection.execute
        # Asked in this order: another process that prepares the file at the same time writes the id before the tables.
        tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            if tables:
                raise SearchRefused(
                    f"{self._path} is a database of another program; move it away, since the search index has this name"
                )
            execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the newest rows: they are added again
        execute("PRAGMA secure_delete = ON")
        if self._path is None:
            execute("PRAGMA temp_store = MEMORY")  # of an encrypted store no text comes to a disk
        try:
            connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            if "fts5" not in str(error):
                raise
            raise SearchRefused("search needs SQLite with FTS5, which this Python does not have") from error
        if execute("SELECT 1 FROM words_config WHERE k = 'automerge'").fetchone() is None:
            execute(f"INSERT INTO words (words, rank) VALUES ('automerge', {_SEGMENTS})")

    # -- the seam -----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        with self._used():
            row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def apply(self, changes: Changes[IndexedText], position: int, *, after: int) -> list[OmittedEvent] | None:
        with self._transaction() as execute:
            if self.position() != after:
                return None
            for removal in changes.removals:
                if not removal.is_record:
                    self._remove(removal)
            refused = add_each(changes.rows, self._add, self._savepoint, REFUSED_BY_SQLITE)
            self._set("position", str(position))
            execute(
                "INSERT INTO facts VALUES ('unread', ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                (len(changes.left_out) + len(refused),),
            )
        return refused

    def _add(self, texts: Sequence[IndexedText]) -> None:
        keys = {name: self._key(name) for name in {text.conversation for text in texts}}
        self._connection.executemany(
            "INSERT INTO texts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(one.position, keys[one.conversation], *one[2:]) for one in texts],
        )
        self._connection.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, ?)", [(one.position, one.text) for one in texts]
        )

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT texts")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO texts")
            raise
        finally:
            self._connection.execute("RELEASE texts")

    def _remove(self, removal: Removal) -> None:
        execute = self._connection.execute
        found = execute("SELECT key FROM conversations WHERE id = ?", (utf8(removal.conversation),)).fetchone()
        if found is None:
            return
        condition, values = "conversation = ? AND position < ?", (*found, removal.position)
        for event_id in (None,) if removal.ids is None else removal.ids:
            if event_id is not None:
                condition, values = "conversation = ? AND position < ? AND id = ?", (*found, removal.position, event_id)
            execute(
                f"INSERT INTO words (words, rowid, text) SELECT 'delete', position, text FROM texts WHERE {condition}",
                values,
            )
            if execute(f"DELETE FROM texts WHERE {condition}", values).rowcount:
                self._set("pending", "bytes")
        execute("DELETE FROM conversations WHERE key = ? AND key NOT IN (SELECT conversation FROM texts)", found)

    def purge(self) -> None:
        """Remove the bytes from the index, from free pages and from the log. Cost: the whole index."""
        if self.value("pending"):
            self._purge()
            with self._transaction():
                self._set("pending", "")

    def find(self, wanted: Wanted) -> list[Hit]:
        conditions, values = conditions_of(wanted, "c.id", "?")
        query = _FIND.format(conditions=conditions)
        with self._used():
            rows = self._connection.execute(query, (_match(wanted.terms), *values, wanted.limit)).fetchall()
        return list(map(hit_of, rows))

    def clear(self, facts: Mapping[str, str]) -> None:
        with self._transaction() as execute:
            execute("INSERT INTO words (words) VALUES ('delete-all')")
            for table in ("texts", "conversations", "facts"):
                execute(f"DELETE FROM {table}")
            for name, value in facts.items():
                self._set(name, value)
        self._purge()

    def size(self) -> int:
        with self._used():
            return int(*self._connection.execute(_SIZE).fetchone())

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self._disconnect()

    def rest(self, patience_s: float) -> bool:
        rests = super().rest(patience_s)
        if rests and self._path is not None:
            self._disconnect()
        return rests

    def renew_in_child(self, *, inherited: bool) -> None:
        super().renew_in_child(inherited=inherited)
        if inherited:
            self._of_parent, self._open, self._is_closed = self._open, None, True
            if self._path is not None:
                process_forks.refuse(self._path)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _disconnect(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _purge(self) -> None:
        with self._used():
            execute = self._connection.execute
            execute("INSERT INTO words (words) VALUES ('optimize')")
            execute("VACUUM")
            (busy, *_) = execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreUnavailable(
                f"{self._path} is being read, so text that was erased is still in its log; try again when its readers "
                f"have ended",
                kind="read",
            )

    def _key(self, conversation: str) -> int:
        execute = self._connection.execute
        name = utf8(conversation)
        row = execute("SELECT key FROM conversations WHERE id = ?", (name,)).fetchone()
        return int(row[0] if row else execute("INSERT INTO conversations (id) VALUES (?)", (name,)).lastrowid or 0)

    def _set(self, name: str, value: str) -> None:
        self._connection.execute(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, value)
        )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._used():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self.lock:
            try:
                yield
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                    raise IndexDamaged(
                        f"the search index {self._path} is damaged: {error}; 'foldlog search --rebuild' replaces it",
                        kind="disk",
                    ) from error
                raise StoreUnavailable(
                    f"the search index {self._path or 'in memory'} cannot be used: {error}; it may be deleted, because "
                    f"it is rebuilt from the store",
                    kind="disk",
                ) from error


def _match(terms: Sequence[Term]) -> str:
    """Return terms in the language of FTS5, each in quotes, so that no part of a term is an operator."""
    return " AND ".join(f'"{term.text}"{"*" if term.prefix else ""}' for term in terms)
