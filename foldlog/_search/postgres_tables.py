"""The tables of a search index in the schema of a PostgreSQL store, with ``tsvector``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from foldlog._derived import Changes, OmittedEvent, add_each
from foldlog._search.hits import (
    Hit,
    IndexedText,
    SearchRefused,
    SearchTables,
    Term,
    Wanted,
    conditions_of,
    hit_of,
    marked,
)
from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder
from foldlog.eventstore.recorders.postgres.setup import command_of_owner
from foldlog.eventstore.recorders.types import utf8

T = TypeVar("T")
Connection = psycopg.Connection[Any]

_LONGEST = 250_000
"""The number of characters of an event that are searched: a ``tsvector`` holds less than a megabyte."""
_REFUSED = (psycopg.DataError, ValueError)
"""The errors by which the server, or its driver, blames a value of a row."""
_NO_WORD = re.compile(r"[\W_]+")
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS {schema}.search_facts (name text PRIMARY KEY, value text NOT NULL);
    CREATE TABLE IF NOT EXISTS {schema}.search_texts (
        position bigint PRIMARY KEY, conversation bytea NOT NULL, id bigint NOT NULL, kind text NOT NULL, at bigint,
        is_local boolean NOT NULL, recorded_at bigint NOT NULL, text text NOT NULL, words tsvector NOT NULL
    );
    CREATE TEXT SEARCH DICTIONARY {schema}.search_stems (TEMPLATE = snowball, Language = english);
    CREATE TEXT SEARCH CONFIGURATION {schema}.search_words (COPY = simple);
    ALTER TEXT SEARCH CONFIGURATION {schema}.search_words
        ALTER MAPPING FOR asciiword, word, asciihword, hword, hword_asciipart, hword_part WITH {schema}.search_stems;
    CREATE INDEX IF NOT EXISTS search_texts_words ON {schema}.search_texts USING gin (words);
    CREATE INDEX IF NOT EXISTS search_texts_conversation ON {schema}.search_texts (sha256(conversation));
"""
_DROP = """
    DROP TABLE {schema}.search_texts, {schema}.search_facts;
    DROP TEXT SEARCH CONFIGURATION {schema}.search_words;
    DROP TEXT SEARCH DICTIONARY {schema}.search_stems;
"""
_MAY_USE = """
    SELECT bool_and(has_table_privilege(c.oid, right_)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) right_
    WHERE n.nspname = {name} AND c.relname IN ('search_facts', 'search_texts', 'facts')
"""
_ADD = """
    INSERT INTO {schema}.search_texts VALUES (%s, %s, %s, %s, %s, %s, %s, %s, to_tsvector(%s::regconfig, %s))
"""
_FIND = """
    WITH asked AS (SELECT {query} AS words), best AS (
        SELECT t.*, ts_rank_cd(t.words, asked.words, 1) AS score FROM {schema}.search_texts t, asked
        WHERE t.words @@ asked.words {conditions} ORDER BY score DESC, position DESC LIMIT %s
    )
    SELECT conversation, id, kind, at, is_local, recorded_at, left(text, %s), score
    FROM best ORDER BY score DESC, position DESC
"""
_REMOVE = """
    DELETE FROM {schema}.search_texts WHERE sha256(conversation) = sha256(%s) AND conversation = %s AND position < %s
        AND (%s::bigint[] IS NULL OR id = ANY(%s::bigint[]))
"""
_LEAVE_BYTES = """
    INSERT INTO {schema}.facts VALUES ('bytes_pending search', pg_current_xact_id()::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_SET = """
    INSERT INTO {schema}.search_facts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class PostgresTables(SearchTables):
    """See ``SearchTables``. ``command`` is what the owner of the tables runs where this role may not change them."""

    def __init__(self, recorder: PostgresRecorder, command: str) -> None:
        super().__init__()
        self._recorder, self._command = recorder, command
        self._name = recorder.schema

    def prepare(self) -> None:
        """Make the tables if they are missing. Raises ``SearchRefused`` where this role may not make or change them."""

        def work(connection: Connection) -> None:
            if not self._is_there(connection):
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._schema,))
                    if not self._is_there(connection):
                        connection.execute(self._sql(_SCHEMA))
            if connection.execute(self._sql(_MAY_USE)).fetchone() != (True,):
                raise self._refused(connection)

        self._run(work)

    def _is_there(self, connection: Connection) -> bool:
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
        return self._run(lambda connection: self._value(connection, name))

    def apply(self, changes: Changes[IndexedText], position: int, *, after: int) -> list[OmittedEvent] | None:
        def work(connection: Connection) -> list[OmittedEvent] | None:
            with self._locked(connection):
                if int(self._value(connection, "position") or 0) != after:
                    return None
                for name, before, ids, is_record in changes.removals:
                    removed = None if ids is None else [*ids]
                    asked = (utf8(name), utf8(name), before, removed, removed)
                    if not is_record and connection.execute(self._sql(_REMOVE), asked).rowcount:
                        connection.execute(self._sql(_LEAVE_BYTES))
                add = partial(self._add, connection)
                refused = add_each(changes.rows, add, connection.transaction, _REFUSED)
                unread = int(self._value(connection, "unread") or 0) + len(changes.left_out) + len(refused)
                self._set(connection, {"position": str(position), "unread": str(unread)})
            return refused

        return self._run(work)

    def purge(self) -> None:
        """Do nothing: the bytes are pending in the store, whose vacuum removes them here too."""

    def find(self, wanted: Wanted) -> list[Hit]:
        query = sql.SQL(" && ").join([sql.SQL(_QUERIES[term.prefix]) for term in wanted.terms])
        conditions, values = conditions_of(wanted, "t.conversation", "%s")
        whole = sql.SQL(_FIND).format(schema=sql.Identifier(self._name), query=query, conditions=sql.SQL(conditions))
        asked = [part for term in wanted.terms for part in (self._words, _as_query(term))]
        given = (*asked, *values, wanted.limit, _LONGEST)
        rows = self._run(lambda connection: connection.execute(whole, given).fetchall())
        return [hit_of((*rest, marked(text, wanted.terms), score)) for *rest, text, score in rows]

    def clear(self, facts: Mapping[str, str]) -> None:
        def work(connection: Connection) -> None:
            with self._locked(connection):
                connection.execute(self._sql("TRUNCATE {schema}.search_texts, {schema}.search_facts"))
                self._set(connection, facts)

        self._run(work)

    def exist(self) -> bool:
        return self._run(self._is_there)

    def drop(self) -> None:
        """Remove the tables with all that they hold, if they are there."""

        def work(connection: Connection) -> None:
            if self._is_there(connection):
                connection.execute(self._sql(_DROP))

        self._run(work)

    def size(self) -> int:
        asked, table = "SELECT pg_total_relation_size(%s::regclass)", f"{self._schema}.search_texts"
        return self._run(lambda connection: int(*connection.execute(asked, (table,)).fetchone() or (0,)))

    def close(self) -> None:
        """Do nothing: the connections are the store's."""

    # -- steps --------------------------------------------------------------------------------------------------------

    def _add(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        rows = [
            (one.position, utf8(one.conversation), *one[2:7], text, self._words, _plain(text[:_LONGEST]))
            for one in texts
            for text in [one.text.replace("\x00", " ")]
        ]
        connection.cursor().executemany(self._sql(_ADD), rows)

    def _value(self, connection: Connection, name: str) -> str:
        asked = self._sql("SELECT value FROM {schema}.search_facts WHERE name = %s")
        row = connection.execute(asked, (name,)).fetchone()
        return "" if row is None else str(row[0])

    def _set(self, connection: Connection, facts: Mapping[str, str]) -> None:
        connection.cursor().executemany(self._sql(_SET), list(facts.items()))

    @contextmanager
    def _locked(self, connection: Connection) -> Iterator[None]:
        with connection.transaction():
            connection.execute(self._sql("LOCK TABLE {schema}.search_facts IN SHARE ROW EXCLUSIVE MODE"))
            yield

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one of the store's connections, and again on another one where that breaks."""

        def asked(connection: Connection) -> T:
            try:
                return work(connection)
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as error:
                raise self._refused(connection) from error

        return self._recorder.beside(asked)

    def _refused(self, connection: Connection) -> SearchRefused:
        role, of_owner = connection.info.user, command_of_owner(connection, self._name, self._command)
        return SearchRefused(f"the role {role!r} may not change the tables of the search index; {of_owner}")


_QUERIES = {False: "phraseto_tsquery(%s::regconfig, %s)", True: "to_tsquery(%s::regconfig, %s)"}


def _as_query(term: Term) -> str:
    words = _plain(term.text).split()
    return " <-> ".join([f"'{word}'" for word in words]) + ":*" if term.prefix and words else " ".join(words)


def _plain(text: str) -> str:
    """Return words without accents and with spaces between them: PostgreSQL would take a path or a tag for one word."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join([character for character in apart if not unicodedata.combining(character)])
    return _NO_WORD.sub(" ", text)
