"""Ask the tables of figures in a store, in SQL: they are written with a conversation, and deleted
with its words.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from foldlog._figures.counting import Figures
from foldlog._figures.orders import SORTS as SORTS
from foldlog._figures.overview import Overview
from foldlog._figures.writing import (
    CODE,
    DIGEST,
    FIRST_IS_LOCAL,
    LAST_IS_LOCAL,
    SEALED,
    digest_of,
    place_of_texts,
    put_figures,
    put_replies,
    storable,
    unsigned,
)
from foldlog._formats.summed_calls import USAGE, Calls
from foldlog.eventstore import InvalidArgument, KeyUnavailable
from foldlog.eventstore.inside import EventTime, event_microseconds
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.base import Columns, Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, as_text, utf8

WITHOUT_KEY: Final = "(encrypted)"
"""Stands for a name whose key is not given."""
STATES: Final = ("error", "open_call", "result", "request", "answer")


class Where(NamedTuple):
    """Which conversations are chosen: all that have these figures.

    ``tool`` is one with errors; ``since`` and ``until`` are of the last activity; ``only`` are ids.
    ``companions``: also those that runtimes keep for themselves.
    """

    state: str | None = None
    program: str | None = None
    tool: str | None = None
    model: str | None = None
    attributes: Mapping[str, Any] = {}
    has_error: bool = False
    since: datetime | None = None
    until: datetime | None = None
    only: Collection[str] | None = None
    companions: bool = True

    def having(self) -> list[tuple[str, str]]:
        """Return which names have to be counted, of what."""
        named = {
            "state": self.state,
            "program": self.program,
            "tool errors": self.tool,
            "model": self.model,
        }
        named["errors"] = "any" if self.has_error else None
        pairs = [(what, name) for what, name in named.items() if name is not None]
        return pairs + [("attribute", f"{name}={value}") for name, value in self.attributes.items()]


class StoredFigures(NamedTuple):
    """The figures of one conversation, as they are stored."""

    key: int
    id: str
    version: int
    overview: Overview
    state: str | None = None
    first_error: str | None = None
    first_at: EventTime | None = None
    last_at: EventTime | None = None
    longest_wait_s: float | None = None
    errors: int | None = None
    last_prompt_tokens: int | None = None
    tokens: int | None = None
    condensations: int | None = None
    tokens_saved: int | None = None
    context: Sequence[int] = ()
    findings: Sequence[str] = ()
    calls: Sequence[Calls] = ()

    @property
    def is_sound(self) -> bool:
        """Whether every event could be read."""
        return self.condensations is not None


class FigureTables:
    """Asks the tables of a store, and of a second recorder for figures that the store could not
    keep.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.aside: dict[str, int] = {}
        """The conversations whose figures are in the second recorder alone, by their ids, with
        their keys.
        """
        self._second: Any = None
        self._names: dict[str, str] = {}

    def put_aside(self, found: Conversation, figures: Figures) -> None:
        """Keep figures in memory that the store cannot keep."""
        from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

        if self._second is None:
            self._second = MemoryRecorder()

        def put(transaction: Transaction) -> None:
            put_figures(transaction, found, None, None, figures)
            put_replies(transaction, found, None, None, figures.replies)

        self._second.transact(put)
        self.aside[found.id] = found.key

    def forget_aside(self, conversation: str) -> None:
        """Forget figures in memory: the store has newer ones."""
        key = self.aside.pop(conversation, None)
        if key is not None:
            self._second.transact(lambda transaction: transaction.forget_figures(key))

    def ask(self, statement: str, where: Where, *parameters: Any) -> list[Columns]:
        """Ask about the chosen conversations. The answer has the rows of each store: they have to
        be joined.
        """
        since, until = (
            None if at is None else event_microseconds(EventTime(at))
            for at in (where.since, where.until)
        )
        having = [(what, self.alike(name)) for what, name in where.having()]
        if where.only is None:
            only = None
        else:
            only = json.dumps(self._keys(where.only))
        asked: tuple[Any, ...] = (json.dumps(having), since, until, int(where.companions), only)
        found = self._asked(
            self.database.recorder,
            statement,
            *asked,
            json.dumps([*self.aside.values()]),
            *parameters,
        )
        if self.aside:
            found += self._asked(self._second, statement, *asked, "[]", *parameters)
        return found

    def _asked(self, recorder: Any, statement: str, *parameters: Any) -> list[Columns]:
        answer: list[Columns] = recorder.query(
            lambda reader: reader.ask_sources(statement, *parameters)
        )
        return answer

    def alike(self, name: str) -> list[str]:
        """Return a name as conversations may have it: plain, and its digest under each key."""
        name = storable(name)
        keys = self.database.settings.keys
        if keys is None:
            digests = []
        else:
            digests = [digest_of(keys, key_id, name) for key_id in keys.names]
        return [name, *digests]

    def _keys(self, conversations: Collection[str]) -> list[int]:
        def read(reader: Reader) -> list[int]:
            found = (self.database.find(reader, name, pending=True) for name in conversations)
            return [each.key for each in found if each is not None]

        return self.database.recorder.query(read)

    def to_count(self) -> dict[str, bool]:
        """Return the ids of conversations whose figures are missing, or of another version; and
        which are missing.
        """
        found = self._asked(self.database.recorder, "figures_to_count", CODE)
        return {text_of(name): is_missing == 1 for name, is_missing in found}

    def versions(self, statement: str) -> dict[int, tuple[int, int]]:
        """Return the versions and the numbers of events in an answer, by the keys. Of a source
        without events, the version is 0 and its records are counted.
        """
        rows = (row for recorder in self._recorders() for row in self._asked(recorder, statement))
        return {key: (version, events or 0) for key, version, events in rows}

    def hashes(self, keys: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield these conversations with the hashes of their replies."""
        for recorder in self._recorders():
            yield from self._asked(recorder, "hashes_of_replies", json.dumps([*keys]))

    def stored_replies(self, keys: Collection[int]) -> dict[int, set[int]]:
        """Return the hashes of replies of which it is stored what they used, by the keys of
        conversations.
        """
        stored = dict[int, set[int]]()
        for recorder in self._recorders():
            for key in keys:
                hashes = self._asked(recorder, "figure_replies_of", key)
                stored.setdefault(key, set()).update(unsigned(hashed) for (hashed,) in hashes)
        return stored

    def repeated_elsewhere(self, where: Where) -> Iterator[Calls]:
        """Yield what replies used that count in one store, and in another one too: the sums of each
        store have them.
        """
        if self.database.recorder.store_count == 1 and not self.aside:
            return
        counted = dict[int, Calls]()
        for hashed, key, *columns in self.ask("figure_replies_counted", where):
            call = self.calls(key, columns)
            other = counted.setdefault(hashed, call)
            if other is not call:
                counted[hashed], repeated = (
                    (call, other) if call.tokens > other.tokens else (other, call)
                )
                yield repeated

    def _recorders(self) -> list[Any]:
        if self.aside:
            return [self.database.recorder, self._second]
        return [self.database.recorder]

    def between(self, first: str, last: str) -> dict[str, StoredFigures]:
        """Return the figures of conversations with an id from ``first`` to ``last``, by their ids,
        without calls.
        """
        found = self._asked(self.database.recorder, "figures_between", first, last)
        read = self._read([columns for columns in found if text_of(columns[1]) not in self.aside])
        ours = [key for name, key in self.aside.items() if utf8(first) <= utf8(name) <= utf8(last)]
        if ours:
            aside = self._read(self._asked(self._second, "figures_of", json.dumps(ours)))
        else:
            aside = {}
        return {figures.id: figures for figures in (read | aside).values()}

    def of_keys(self, keys: Sequence[int]) -> dict[int, StoredFigures]:
        """Return the figures of conversations with their calls, by their keys."""
        aside = {*self.aside.values()}
        asked = [
            (self.database.recorder, json.dumps([key for key in keys if key not in aside])),
            (self._second, json.dumps([key for key in keys if key in aside])),
        ]
        found = dict[int, StoredFigures]()
        calls = dict[int, list[Calls]]()
        for recorder, some in asked[: 2 if self.aside else 1]:
            found |= self._read(self._asked(recorder, "figures_of", some))
            for key, *columns in self._asked(recorder, "figure_calls_of", some):
                calls.setdefault(key, []).append(self.calls(key, columns))
        return {key: figures._replace(calls=calls.get(key, ())) for key, figures in found.items()}

    def calls(self, key: int, columns: Sequence[Any]) -> Calls:
        """Return the calls in the columns of a row."""
        day, model, above, by_condenser, number, *usage, cost = columns
        tokens = {
            name: int(count) for name, count in zip(USAGE, usage, strict=True) if count is not None
        }
        told = None if cost is None else round(cost, 12)
        return Calls(
            text_of(day), self.name(model, key), tokens, told, number, above, bool(by_condenser)
        )

    def name(self, column: bytes | str, key: int) -> str:
        """Return a name that is stored with the conversation of this key."""
        stored = text_of(column)
        if not stored.startswith(DIGEST):
            return stored
        if stored not in self._names:
            self._read(self._asked(self.database.recorder, "figures_of", json.dumps([key])))
        return self._names.get(stored, WITHOUT_KEY)

    def _read(self, rows: Iterable[Columns]) -> dict[int, StoredFigures]:
        return {row[0]: self._figures(*row) for row in rows}

    def _figures(
        self, key: int, name: bytes, encoding: int, sealed: bytes, *numbers: Any
    ) -> StoredFigures:
        (
            _,
            version,
            _,
            _,
            is_local,
            first_at,
            last_at,
            wait,
            events,
            errors,
            view_tokens,
            sent_events,
            sent_summaries,
            last_prompt,
            tokens,
            condensations,
            saved,
            format,
            state,
        ) = numbers
        try:
            texts = self._texts(key, encoding, sealed)
        except KeyUnavailable as error:
            texts = {"problem": str(error), "needs_key": True}
        last = _time(last_at, is_local=is_local & LAST_IS_LOCAL > 0)
        self._names |= texts.get("names", {})
        overview = Overview(
            texts.get("attributes") or (None if texts.get("problem") else {}),
            texts.get("title"),
            None if format is None else text_of(format),
            events,
            sent_events,
            sent_summaries,
            view_tokens,
            texts.get("last") if last is None else last.isoformat(),
            texts.get("problem"),
            bool(texts.get("needs_key")),
        )
        return StoredFigures(
            key,
            text_of(name),
            version,
            overview,
            None if state is None else text_of(state),
            texts.get("first_error"),
            _time(first_at, is_local=is_local & FIRST_IS_LOCAL > 0),
            last,
            wait,
            errors,
            last_prompt,
            tokens,
            condensations,
            saved,
            texts.get("context", ()),
            texts.get("findings", ()),
        )

    def _texts(self, key: int, encoding: int, sealed: bytes) -> dict[str, Any]:
        """Return the texts of figures. Raises ``KeyUnavailable``."""
        if encoding & SEALED:
            found = self.database.recorder.query(lambda reader: self.database.find_key(reader, key))
            if found is None:
                data_key = None
            else:
                data_key = self.database.codec_of(found).data_key
            if data_key is None:
                raise KeyUnavailable(f"the figures of conversation number {key} are encrypted")
            sealed = data_key.decrypt(sealed, place_of_texts(key))
        texts: dict[str, Any] = json.loads(sealed)
        return texts


def text_of(column: bytes | str) -> str:
    """Return a text as a database gives it."""
    return column if isinstance(column, str) else as_text(column)


def _time(microseconds: int | None, *, is_local: bool) -> EventTime | None:
    if microseconds is None:
        return None
    time = from_microseconds(microseconds)
    return EventTime(time.replace(tzinfo=None) if is_local else time)


def check_sort(sort: str) -> None:
    """Raise ``InvalidArgument`` for a sort that there is not."""
    if sort not in SORTS:
        raise InvalidArgument(f"sort is {sort!r}; give one of {', '.join(SORTS)}")
