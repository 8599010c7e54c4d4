"""The tables of figures in a store: written with a conversation or a source, deleted with its words, asked in SQL.

Numbers are columns, also in an encrypted store. Texts are sealed there: a name is then a keyed digest, by which SQL
adds up and chooses, and the sealed texts have the name of each digest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import astuple

from foldlog._companions import companion_of
from foldlog._documents import CondensationsDocument
from foldlog._figures.counting import Figures
from foldlog._figures.counts import Counts
from foldlog._figures.overview import Overview
from foldlog._formats.record import INCOMPLETE
from foldlog._formats.summed_calls import USAGE, Calls, hashes_in
from foldlog.eventstore import InvalidArgument, KeyUnavailable
from foldlog.eventstore.inside import EventTime, event_microseconds
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.keys import DataKey, KeyRing
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.base import Columns, Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, as_text, utf8

CODE: Final = 1
"""The version of what makes figures: those of another one are made again."""
WITHOUT_KEY: Final = "(encrypted)"
"""Stands for a name whose key is not given."""
STATES: Final = ("error", "open_call", "result", "request", "answer")
SORTS: Final = (
    *("id", "recorded", "activity", "started", "duration", "state", "events", "errors", "wait", "view", "prompt"),
    *("tokens", "cost", "condensations", "saved"),
)
"""What conversations can be sorted by."""
SAVED: Final = ("condensations", "tokens_saved", "cost")
"""What is counted of condensations by their reasons."""

FIRST_IS_LOCAL: Final = 1
LAST_IS_LOCAL: Final = 2
_SEALED: Final = 1
_DIGEST_BYTES: Final = 16
_DIGEST: Final = "\x1f"
"""Precedes the digest of a name."""
_NAME_MAX: Final = 300
_COUNT_MAX: Final = 10**15
"""The highest number of tokens of a call: SQL cannot add up any numbers."""
NO_CALLS: Final = Calls("", "", {}, None, 0)
"""Of a reply that is not found again."""
_CONDENSED: Final = CondensationsDocument.__struct_fields__


class Where(NamedTuple):
    """Which conversations are chosen: all that have these figures.

    ``tool`` is one with errors; ``since`` and ``until`` are of the last activity; ``only`` are ids. ``companions``:
    also those that runtimes keep for themselves.
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
        named = {"state": self.state, "program": self.program, "tool errors": self.tool, "model": self.model}
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


# -- written -----------------------------------------------------------------------------------------------------------


def put_figures(
    transaction: Transaction, found: Conversation, data_key: DataKey | None, keys: KeyRing | None, figures: Figures
) -> None:
    """Write the figures of a conversation as it was found, in the place of those that are there."""
    names = _Names(found, data_key, keys)
    key = found.key
    transaction.forget_figures(key)
    counts = {(what, names.of(name)): number for what, name, number in _counts(figures)}
    transaction.write_rows("put_figure_calls", key, [_row_of(call, names) for call in figures.calls])
    transaction.write_rows("put_figure_counts", key, [(*pair, number) for pair, number in counts.items()])
    texts = json.dumps(names.with_texts(figures)).encode()
    sealed = texts if data_key is None else data_key.encrypt(texts, _place(key))
    encoding = 0 if data_key is None else _SEALED
    numbers = json.dumps(_numbers(found, figures))
    transaction.write_sources("put_figures", key, found.id, encoding, sealed, figures.hashes, numbers)


def put_replies(
    transaction: Transaction,
    found: Conversation,
    data_key: DataKey | None,
    keys: KeyRing | None,
    replies: Mapping[int, Calls],
) -> None:
    """Write what replies of a conversation used, by their hashes: those that others have too."""
    names = _Names(found, data_key, keys)
    rows = [(_signed(hashed), *_row_of(call, names)) for hashed, call in replies.items()]
    transaction.write_rows("put_figure_replies", found.key, rows)


class _Names:
    """The names of tools, models and other things in the figures of one conversation, and their digests."""

    def __init__(self, found: Conversation, data_key: DataKey | None, keys: KeyRing | None) -> None:
        self._key_id, self._keys = found.key_id or "", None if data_key is None else keys
        self._of_digests = dict[str, str]()

    def of(self, name: str) -> str:
        name = _storable(name)
        if self._keys is None:
            return name
        digest = _digest(self._keys, self._key_id, name)
        self._of_digests[digest] = name
        return digest

    def with_texts(self, figures: Figures) -> dict[str, Any]:
        overview = figures.overview
        texts = {
            "title": overview.title,
            "attributes": overview.attributes,
            "problem": overview.problem,
            "needs_key": overview.needs_key,
            "last": None if figures.counts.last_at else overview.last_event_at,
            "first_error": figures.counts.first_error,
            "context": figures.context,
            "findings": figures.counts.findings,
            "names": self._of_digests,
        }
        return {name: value for name, value in texts.items() if value}


def _digest(keys: KeyRing, key_id: str, name: str) -> str:
    return _DIGEST + keys.digest(key_id, name.encode(), _DIGEST_BYTES).hex()


def _storable(name: str) -> str:
    """Return a name without what a column of text may not hold."""
    name = name[:_NAME_MAX].replace("\0", "\ufffd").replace(_DIGEST, "\ufffd")
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _signed(hashed: int) -> int:
    """Return a hash as SQL has whole numbers."""
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _row_of(call: Calls, names: _Names) -> tuple[Any, ...]:
    usage = (call.usage.get(name) for name in USAGE)
    tokens = (None if count is None else min(count, _COUNT_MAX) for count in usage)
    counted = call.above, int(call.by_condenser), min(call.calls, _COUNT_MAX)
    return call.day, names.of(call.model), *counted, *tokens, call.cost


def _numbers(found: Conversation, figures: Figures) -> list[Any]:
    overview, counts, saved = figures.overview, figures.counts, figures.saved()
    tokens = [call.tokens for call in figures.calls]
    recorded_at = found.updated_at or found.created_at
    ends = (counts.first_at, counts.last_at)
    is_local = [at is not None and at.tzinfo is None for at in ends]
    return [
        *(CODE, found.version, int(bool(companion_of(found.id))), recorded_at),
        FIRST_IS_LOCAL * is_local[0] + LAST_IS_LOCAL * is_local[1],
        None if counts.first_at is None else event_microseconds(counts.first_at),
        None if counts.last_at is None else event_microseconds(counts.last_at),
        *(counts.longest_wait_s, overview.events, figures.errors, overview.tokens),
        *(overview.sent_events, overview.sent_summaries),
        figures.last_prompt_tokens and min(figures.last_prompt_tokens, _COUNT_MAX),
        min(sum(tokens), _COUNT_MAX) if any(tokens) else None,
        *(saved.condensations if figures.is_sound else None, saved.tokens_saved),
        *(overview.format and _storable(overview.format), counts.state),
    ]


def _counts(figures: Figures) -> Iterable[tuple[str, str, float | None]]:
    """Yield what is counted, under which name, and the number."""
    counts, overview = figures.counts, figures.overview
    yield from _events_counted(counts)
    for name, saving in figures.reasons.items():
        for field in SAVED:
            yield f"reason {field}", name, getattr(saving, field)
    for call in figures.calls:
        yield "model", call.model, 1
    if counts.state is not None:
        yield "state", counts.state, 1
    if overview.format is not None:
        yield "program", overview.format, 1
    if figures.errors:
        yield "errors", "any", figures.errors
    for name, value in (overview.attributes or {}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if name not in ("title", INCOMPLETE) and isinstance(one, str | int):
                yield "attribute", f"{name}={one}", 1


def _events_counted(counts: Counts) -> Iterable[tuple[str, str, float | None]]:
    for what, numbers in (("kind", counts.events), ("day", counts.days)):
        for name, number in numbers.items():
            yield what, name, number
    for name, tool in counts.tools.items():
        yield "tool", name, tool.calls
        yield "tool errors", name, None if counts.errors is None else tool.errors
    for name, condensed in counts.condensations.items():
        for field, number in zip(_CONDENSED, astuple(condensed), strict=True):
            yield f"condensations {field}", name, number


def _place(key: int) -> bytes:
    return b"figures\0%d" % key


# -- read --------------------------------------------------------------------------------------------------------------


class FigureTables:
    """Asks the tables of a store, and of a second recorder for figures that the store could not keep."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.aside: dict[str, int] = {}
        """The conversations whose figures are in the second recorder alone, by their ids, with their keys."""
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
        """Ask about the chosen conversations. The answer has the rows of each store: they have to be joined."""
        since, until = (None if at is None else event_microseconds(EventTime(at)) for at in (where.since, where.until))
        having = [(what, self.alike(name)) for what, name in where.having()]
        only = None if where.only is None else json.dumps(self._keys(where.only))
        asked: tuple[Any, ...] = (json.dumps(having), since, until, int(where.companions), only)
        found = self._asked(self.database.recorder, statement, *asked, json.dumps([*self.aside.values()]), *parameters)
        if self.aside:
            found += self._asked(self._second, statement, *asked, "[]", *parameters)
        return found

    def _asked(self, recorder: Any, statement: str, *parameters: Any) -> list[Columns]:
        answer: list[Columns] = recorder.query(lambda reader: reader.ask_sources(statement, *parameters))
        return answer

    def alike(self, name: str) -> list[str]:
        """Return a name as conversations may have it: plain, and its digest under each key."""
        name, keys = _storable(name), self.database.settings.keys
        digests = [] if keys is None else [_digest(keys, key_id, name) for key_id in keys.names]
        return [name, *digests]

    def _keys(self, conversations: Collection[str]) -> list[int]:
        def read(reader: Reader) -> list[int]:
            found = (self.database.find(reader, name, pending=True) for name in conversations)
            return [each.key for each in found if each is not None]

        return self.database.recorder.query(read)

    def to_count(self) -> dict[str, bool]:
        """Return the ids of conversations whose figures are missing, or of another version; and which are missing."""
        found = self._asked(self.database.recorder, "figures_to_count", CODE)
        return {text_of(name): is_missing == 1 for name, is_missing in found}

    def replies_to_read(self) -> dict[int, list[int]]:
        """Return the hashes of replies that several conversations have, and of which it is not stored what they used,
        by the keys of the conversations.
        """
        rows = self._asked(self.database.recorder, "hashes_of_replies")
        stored = [(key, {*hashes_in(hashes)}) for key, hashes in rows]
        seen, repeated = set[int](), set[int]()
        for _, hashes in stored:
            repeated |= seen & hashes
            seen |= hashes
        known = {(key, hashed % (1 << 64)) for key, hashed in self._asked(self.database.recorder, "figure_replies")}
        found: dict[int, list[int]] = {}
        for key, hashes in stored if repeated else ():
            if to_read := [hashed for hashed in hashes & repeated if (key, hashed) not in known]:
                found[key] = to_read
        return found

    def between(self, first: str, last: str) -> dict[str, StoredFigures]:
        """Return the figures of conversations with an id from ``first`` to ``last``, by their ids, without calls."""
        found = self._asked(self.database.recorder, "figures_between", first, last)
        read = self._read([columns for columns in found if text_of(columns[1]) not in self.aside])
        ours = [key for name, key in self.aside.items() if utf8(first) <= utf8(name) <= utf8(last)]
        aside = self._read(self._asked(self._second, "figures_of", json.dumps(ours))) if ours else {}
        return {figures.id: figures for figures in (read | aside).values()}

    def of_keys(self, keys: Sequence[int]) -> dict[int, StoredFigures]:
        """Return the figures of conversations with their calls, by their keys."""
        aside = {*self.aside.values()}
        asked = [
            (self.database.recorder, json.dumps([key for key in keys if key not in aside])),
            (self._second, json.dumps([key for key in keys if key in aside])),
        ]
        found, calls = dict[int, StoredFigures](), dict[int, list[Calls]]()
        for recorder, some in asked[: 2 if self.aside else 1]:
            found |= self._read(self._asked(recorder, "figures_of", some))
            for key, *columns in self._asked(recorder, "figure_calls_of", some):
                calls.setdefault(key, []).append(self.calls(key, columns))
        return {key: figures._replace(calls=calls.get(key, ())) for key, figures in found.items()}

    def calls(self, key: int, columns: Sequence[Any]) -> Calls:
        """Return the calls in the columns of a row."""
        day, model, above, by_condenser, number, *usage, cost = columns
        tokens = {name: int(count) for name, count in zip(USAGE, usage, strict=True) if count is not None}
        told = None if cost is None else round(cost, 12)
        return Calls(text_of(day), self.name(model, key), tokens, told, number, above, bool(by_condenser))

    def name(self, column: bytes | str, key: int) -> str:
        """Return a name that is stored with the conversation of this key."""
        stored = text_of(column)
        if not stored.startswith(_DIGEST):
            return stored
        if stored not in self._names:
            self._read(self._asked(self.database.recorder, "figures_of", json.dumps([key])))
        return self._names.get(stored, WITHOUT_KEY)

    def _read(self, rows: Iterable[Columns]) -> dict[int, StoredFigures]:
        return {row[0]: self._figures(*row) for row in rows}

    def _figures(self, key: int, name: bytes, encoding: int, sealed: bytes, *numbers: Any) -> StoredFigures:
        (_, version, _, _, is_local, first_at, last_at, wait, events, errors, view_tokens, sent_events, sent_summaries,
         last_prompt, tokens, condensations, saved, format, state) = numbers  # fmt: skip
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
        if encoding & _SEALED:
            found = self.database.recorder.query(lambda reader: self.database.find_key(reader, key))
            data_key = None if found is None else self.database.codec_of(found).data_key
            if data_key is None:
                raise KeyUnavailable(f"the figures of conversation number {key} are encrypted")
            sealed = data_key.decrypt(sealed, _place(key))
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
