"""The tables of a search index in the schema of a PostgreSQL store, with ``tsvector``."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from foldlog.eventstore import StoreUnavailable
from foldlog.eventstore.recorders.postgres.setup import command_of_owner
from foldlog.search.hits import (
    Hit,
    IndexedText,
    SearchRefused,
    SearchTables,
    Term,
    Wanted,
    conditions_of,
    hit_of,
    id_bytes,
    id_of,
    marked,
)

_LONGEST = 250_000
"""The number of characters of an event that are searched: a ``tsvector`` holds less than a megabyte."""
_NO_WORD = re.compile(r"[\W_]+")
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS {schema}.search_facts (name text PRIMARY KEY, value text NOT NULL);
    CREATE TABLE IF NOT EXISTS {schema}.search_texts (
        position bigint PRIMARY KEY, conversation bytea NOT NULL, id bigint NOT NULL, kind text NOT NULL, at bigint,
        recorded_at bigint NOT NULL, text text NOT NULL, words tsvector NOT NULL
    );
    CREATE TEXT SEARCH DICTIONARY {schema}.search_stems (TEMPLATE = snowball, Language = english);
    CREATE TEXT SEARCH CONFIGURATION {schema}.search_words (COPY = simple);
    ALTER TEXT SEARCH CONFIGURATION {schema}.search_words
        ALTER MAPPING FOR asciiword, word, asciihword, hword, hword_asciipart, hword_part WITH {schema}.search_stems;
    CREATE INDEX IF NOT EXISTS search_texts_words ON {schema}.search_texts USING gin (words);
    CREATE INDEX IF NOT EXISTS search_texts_conversation ON {schema}.search_texts (sha256(conversation));
"""
_MAY_USE = """
    SELECT bool_and(has_table_privilege(c.oid, right_)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) right_
    WHERE n.nspname = {name} AND c.relname IN ('search_facts', 'search_texts')
"""
_ADD = """
    INSERT INTO {schema}.search_texts VALUES (%s, %s, %s, %s, %s, %s, %s, to_tsvector(%s::regconfig, %s))
"""
_FIND = """
    WITH asked AS (SELECT {query} AS words), best AS (
        SELECT t.*, ts_rank_cd(t.words, asked.words, 1) AS score FROM {schema}.search_texts t, asked
        WHERE t.words @@ asked.words {conditions} ORDER BY score DESC, position DESC LIMIT %s
    )
    SELECT conversation, id, kind, at, recorded_at, left(text, %s), score
    FROM best ORDER BY score DESC, position DESC
"""
_DELETE = """
    DELETE FROM {schema}.search_texts WHERE sha256(conversation) = sha256(%s) AND conversation = %s
"""
_DELETE_EVENT = """
    DELETE FROM {schema}.search_texts WHERE sha256(conversation) = sha256(%s) AND conversation = %s AND id = %s
"""
_SET = """
    INSERT INTO {schema}.search_facts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class PostgresTables(SearchTables):
    """See ``SearchTables``. ``connect`` gives a connection of psycopg's, and the name of the store's schema."""

    def __init__(self, connect: Callable[[], tuple[psycopg.Connection[Any], str]]) -> None:
        self._connect = connect
        self._lock = threading.RLock()
        self._open: psycopg.Connection[Any] | None = None
        try:
            with self._used() as connection:
                if not self._is_there(connection):
                    with connection.transaction():
                        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
                        connection.execute(lock, (self._schema,))
                        if not self._is_there(connection):
                            connection.execute(self._sql(_SCHEMA))
        except BaseException:
            self.close()
            raise

    def _is_there(self, connection: psycopg.Connection[Any]) -> bool:
        found = connection.execute("SELECT to_regclass(%s)", (f"{self._schema}.search_texts",)).fetchone()
        return found != (None,)

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._name), name=sql.Literal(self._name))

    @property
    def _schema(self) -> str:
        return sql.Identifier(self._name).as_string(None)

    @property
    def _words(self) -> str:
        """Name the text search configuration: English endings make no difference, and no word is left out."""
        return f"{self._schema}.search_words"

    # -- the seam -----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        with self._used() as connection:
            row = connection.execute(
                self._sql("SELECT value FROM {schema}.search_facts WHERE name = %s"), (name,)
            ).fetchone()
        return "" if row is None else str(row[0])

    def set_values(self, values: Mapping[str, str]) -> None:
        with self._transaction() as connection:
            connection.cursor().executemany(self._sql(_SET), list(values.items()))

    def add(
        self, texts: Sequence[IndexedText], unread: int, position: int, *, after: int | None, removals: str
    ) -> bool:
        with self._transaction() as connection:
            if not self.takes(position, after, removals):
                return False
            rows = [
                (one.position, id_bytes(one.conversation), *one[2:6], text, self._words, _plain(text[:_LONGEST]))
                for one in texts
                for text in [one.text.replace("\x00", " ")]
            ]
            connection.cursor().executemany(self._sql(_ADD), rows)
            values = {"position": str(position), "unread": str(int(self.value("unread") or 0) + unread)}
            connection.cursor().executemany(self._sql(_SET), list(values.items()))
        return True

    def conversations(self) -> Iterable[str]:
        with self._used() as connection:
            found = connection.execute(self._sql("SELECT DISTINCT conversation FROM {schema}.search_texts"))
            return [id_of(row[0]) for row in found]

    def remove(self, conversations: Iterable[str], removals: str) -> None:
        gone = 0
        with self._transaction() as connection:
            for name in conversations:
                gone += connection.execute(self._sql(_DELETE), (id_bytes(name), id_bytes(name))).rowcount
            connection.execute(self._sql(_SET), ("removals", removals))
        if gone:
            self._purge()

    def remove_events(self, events: Iterable[tuple[str, int]]) -> None:
        gone = 0
        with self._transaction() as connection:
            for name, event_id in events:
                gone += connection.execute(
                    self._sql(_DELETE_EVENT), (id_bytes(name), id_bytes(name), event_id)
                ).rowcount
        if gone:
            self._purge()

    def find(self, wanted: Wanted) -> list[Hit]:
        query = sql.SQL(" && ").join([sql.SQL(_QUERIES[term.prefix]) for term in wanted.terms])
        conditions, values = conditions_of(wanted, "t.conversation", "%s")
        whole = sql.SQL(_FIND).format(schema=sql.Identifier(self._name), query=query, conditions=sql.SQL(conditions))
        asked = [part for term in wanted.terms for part in (self._words, _as_query(term))]
        with self._used() as connection:
            rows = connection.execute(whole, (*asked, *values, wanted.limit, _LONGEST)).fetchall()
        return [hit_of((*rest, marked(text, wanted.terms), score)) for *rest, text, score in rows]

    def clear(self) -> None:
        with self._transaction() as connection:
            connection.execute(self._sql("TRUNCATE {schema}.search_texts, {schema}.search_facts"))

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    # -- steps --------------------------------------------------------------------------------------------------------

    def _purge(self) -> None:
        """Delete the removed rows from the table's pages; for copies elsewhere on a server, see docs/PRIVACY.md."""
        with self._used() as connection:
            connection.execute(self._sql("VACUUM {schema}.search_texts"))

    @contextmanager
    def _used(self) -> Iterator[psycopg.Connection[Any]]:
        with self._lock:
            try:
                if self._open is None or self._open.closed:
                    self._open, self._name = self._connect()
                yield self._open
            except psycopg.errors.InsufficientPrivilege as error:
                raise SearchRefused(self._lacks_rights()) from error
            except psycopg.Error as error:
                raise StoreUnavailable(f"the search index cannot be used: {error}") from error

    def _lacks_rights(self) -> str:
        """Say what the owner has to run where this role may not make or change the index."""
        assert self._open is not None  # the server refused a statement of this connection
        info, is_there = self._open.info, self._is_there(self._open)
        if is_there and self._open.execute(self._sql(_MAY_USE)).fetchone() != (True,):
            grant = self._sql("{schema}.search_facts, {schema}.search_texts TO ").as_string(None)
            role = sql.Identifier(info.user).as_string(None)
            return (
                f"the role {info.user!r} may not use the tables of the search index; as their owner, run in psql: "
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {grant}{role}"
            )
        problem = "may not change the search index" if is_there else "may not make the search index that is missing"
        return f"the role {info.user!r} {problem}; {command_of_owner(self._open, self._name, 'search --rebuild')}"

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self._used() as connection, connection.transaction():
            connection.execute(self._sql("LOCK TABLE {schema}.search_facts IN SHARE ROW EXCLUSIVE MODE"))
            yield connection


_QUERIES = {False: "phraseto_tsquery(%s::regconfig, %s)", True: "to_tsquery(%s::regconfig, %s)"}


def _as_query(term: Term) -> str:
    """Return the parameters of a term in a query."""
    words = _plain(term.text).split()
    return " <-> ".join([f"'{word}'" for word in words]) + ":*" if term.prefix and words else " ".join(words)


def _plain(text: str) -> str:
    """Return words without accents and with spaces between them: PostgreSQL would take a path or a tag for one word."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join([character for character in apart if not unicodedata.combining(character)])
    return _NO_WORD.sub(" ", text)
