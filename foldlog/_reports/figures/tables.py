"""Read the figures of conversations from the tables of a store, by SQL, for lists and totals.

If the store cannot write a figure, for example on a full disk, the figure is put *aside*: into a
database in memory that has the same tables. Each query reads both databases.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, convert
from msgspec.json import Decoder

from foldlog._base.json_types import JsonObject
from foldlog._reports.figures.agent_trees import Trees
from foldlog._reports.figures.blocks import SUMMED, Blocks
from foldlog._reports.figures.overview import Overview
from foldlog._reports.figures.sort_keys import SORTS as SORTS
from foldlog._reports.figures.tools_of_replies import ToolCalls
from foldlog._reports.figures.writing import (
    CODE,
    DIGEST,
    FIRST_IS_LOCAL,
    LAST_IS_LOCAL,
    OF_A_TOOL,
    SEALED,
    FigureColumns,
    as_unsigned,
    digest_of,
    name_of_attribute,
    place_of_texts,
    put_figures,
    put_replies,
    storable,
)
from foldlog.eventstore import CorruptEvent, InvalidArgument, KeyUnavailable
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.base import Columns, Reader, Recorder, Transaction
from foldlog.eventstore.recorders.types import Conversation, as_text, utf8
from foldlog.eventstore.times import EventTime, event_microseconds
from foldlog.formats.summed_calls import USAGE, Calls

if TYPE_CHECKING:
    from foldlog._reports.figures.counting import Figures

WITHOUT_KEY: Final = "(encrypted)"
UNREADABLE: Final = "its stored figures cannot be read"
_OUTDATED: Final = -1
"""The version of figures that cannot be read, so that readers count them again."""
_ORPHANS_MAX: Final = 1_000
"""With more sub-agents whose parent is missing, totals read the rows of all conversations."""
_BY_CONDENSER: Final = 3
"""The place of ``by_condenser`` in the columns of calls."""
STATES: Final = ("error", "refused", "open_call", "result", "request", "answer")
"""The states of a conversation: see ``Counts.state``."""


class Repetitions(NamedTuple):
    """What several conversations count, and a total must count once: calls of models, and calls of
    tools by name.
    """

    calls: list[Calls]
    tools: dict[str, ToolCalls]

    @property
    def errors(self) -> int:
        return sum(tool.errors for tool in self.tools.values())


class Where(NamedTuple):
    """Chooses conversations by their figures.

    ``state``, ``program``, ``model``, ``attributes``, ``has_error``  values of the conversation
    ``tool``        a tool that the conversation called; with ``has_error``, a tool that failed
    ``since``, ``until``  the period of the last activity
    ``only``        the ids of the conversations that may be chosen
    ``is_partial``  whether ``only`` may lack conversations, because a search did not read all
    ``companions``  whether conversations that runtimes use internally may be chosen
    ``sub_agents``  whether conversations that another conversation began may be chosen
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
    is_partial: bool = False
    companions: bool = True
    sub_agents: bool = True

    @property
    def is_of_store(self) -> bool:
        """Whether the conversations are chosen by what they are, and not by their values."""
        return self._replace(companions=True, sub_agents=True) == Where()

    def conditions(self) -> list[tuple[str, str]]:
        """Return the kinds and names of the counts that a chosen conversation must have: see
        ``writing.py``.
        """
        names = {
            "state": self.state,
            "program": self.program,
            "tool errors" if self.has_error else "tool": self.tool,
            "model": self.model,
            "errors": "any" if self.has_error else None,
        }
        pairs = [(what, name) for what, name in names.items() if name is not None]
        return pairs + [
            ("attribute", name_of_attribute(name, value)) for name, value in self.attributes.items()
        ]


_UNCOUNTED = FigureColumns._make([0] * 5 + [None] * (len(FigureColumns._fields) - 5))
"""The columns of a conversation without figures. Only the first five may not be None."""


class FigureTexts(Struct, frozen=True):
    """The texts of a row of figures, as ``put_figures`` stores them: empty ones are missing.

    ``last``            the time of the last event, if no column has it
    ``first_error_at``  the time of the first error, as ISO 8601
    ``context``         the tokens of prompts
    ``names``           maps digests to names; only in an encrypted conversation
    """

    title: str | None = None
    attributes: JsonObject | None = None
    problem: str | None = None
    needs_key: bool = False
    last: str | None = None
    first_error: str | None = None
    first_error_at: str | None = None
    context: tuple[int, ...] = ()
    begun: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    names: dict[str, str] = {}


_NO_TEXTS: Final = FigureTexts()
_decode_texts: Final = Decoder(FigureTexts).decode


class StoredFigures(NamedTuple):
    """The figures of a conversation. A list shows few figures of many conversations, so most
    figures stay in ``columns`` and ``texts`` until they are used.
    """

    key: int
    id: str
    version: int
    overview: Overview
    columns: FigureColumns = _UNCOUNTED
    texts: FigureTexts = _NO_TEXTS
    calls: Sequence[Calls] = ()

    @property
    def state(self) -> str | None:
        return None if self.columns.state is None else text_of(self.columns.state)

    @property
    def first_error(self) -> str | None:
        return self.texts.first_error

    @property
    def begun(self) -> Sequence[str]:
        """The ids of the sub-agents that the conversation recorded when it began them."""
        return self.texts.begun

    @property
    def first_at(self) -> EventTime | None:
        columns = self.columns
        is_local = bool(columns.local_times & FIRST_IS_LOCAL)
        return _time(columns.first_at, is_local=is_local)

    @property
    def last_at(self) -> EventTime | None:
        return _last_at(self.columns)

    @property
    def is_sound(self) -> bool:
        """Whether all events could be read, so that the figures are complete."""
        return self.columns.condensations is not None


class FigureTables:
    """Queries over the figures in the store and in memory. For the conversations whose figures are
    in memory, ``aside`` maps their ids to their keys.
    """

    def __init__(self, database: Database, blocks_at_once: int | None = None) -> None:
        """With ``blocks_at_once``, a total of the store sums up only so many changed blocks."""
        self.database = database
        self.aside: dict[str, int] = {}
        self._memory: Recorder | None = None
        """The database with the figures that are aside, since the first ones were."""
        self._names: dict[str, str] = {}
        self.blocks = Blocks(database, blocks_at_once)
        self._trees: tuple[tuple[int, int], Trees] | None = None
        """The state of the store when the trees were last read, and the trees."""

    def put_aside(self, conversation: Conversation, figures: Figures) -> None:
        """Put figures aside, because the store cannot write them."""
        from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

        memory = self._memory
        if memory is None:
            memory = self._memory = MemoryRecorder()

        def put(transaction: Transaction) -> None:
            put_figures(transaction, conversation, None, None, figures)
            put_replies(transaction, conversation, None, None, figures.replies)

        memory.transact(put)
        self.aside[conversation.id] = conversation.key

    def forget_aside(self, conversation: str) -> None:
        """Delete figures from the database in memory, because the store has newer figures."""
        key = self.aside.pop(conversation, None)
        if key is not None and self._memory is not None:
            self._memory.transact(lambda transaction: transaction.delete_figures(key))

    def ask(self, statement: str, where: Where, *parameters: Any) -> list[Columns]:
        """Run a statement over the chosen conversations, in the store and in memory. The rows of
        several databases or blocks are separate sums, so the caller must add up the rows.
        """
        rows = self._sums(statement, where, *parameters) if where.is_of_store else None
        return self._ask_all(statement, where, *parameters) if rows is None else rows

    def _sums(self, statement: str, where: Where, *parameters: Any) -> list[Columns] | None:
        """Return the rows of a statement for the whole store from the sums of its blocks. Return
        None if there are no sums.
        """
        if statement not in SUMMED or self.aside or self.database.recorder.store_count > 1:
            return None
        # A conversation whose parent is not in the store is no sub-agent.
        orphans = frozenset[str]() if where.sub_agents else self.trees().orphans
        if len(orphans) > _ORPHANS_MAX:
            return None
        rows = self.blocks.rows(statement, companions=where.companions, sub_agents=where.sub_agents)
        if rows is None:
            return None
        wanted = json.loads(parameters[0]) if parameters else ()
        rows = [row for row in rows if not parameters or row[0] in wanted]
        if orphans:
            rows += self._ask_all(statement, where._replace(only=orphans), *parameters)
        return rows

    def _ask_all(self, statement: str, where: Where, *parameters: Any) -> list[Columns]:
        """Run a statement over the rows of the chosen conversations, without sums of blocks."""
        conditions = [(what, self.stored_forms(name)) for what, name in where.conditions()]
        choice = (
            json.dumps(conditions),
            None if where.since is None else event_microseconds(EventTime(where.since)),
            None if where.until is None else event_microseconds(EventTime(where.until)),
            int(where.companions),
            None if where.only is None else json.dumps(self._keys(where.only)),
        )
        # Conversations with figures in memory are left out of the query to the store, because their
        # figures in the store are older.
        sub_agents = [] if where.sub_agents else [*self.trees().keys.values()]
        left_out = json.dumps([*self.aside.values(), *sub_agents])
        rows = self._run(self.database.recorder, statement, *choice, left_out, *parameters)
        if self.aside and self._memory is not None:
            left_out = json.dumps(sub_agents)
            rows += self._run(self._memory, statement, *choice, left_out, *parameters)
        return rows

    def _run(self, recorder: Recorder, statement: str, *parameters: Any) -> list[Columns]:
        rows: list[Columns] = recorder.query(lambda reader: reader.ask_all(statement, *parameters))
        return rows

    def stored_forms(self, name: str) -> list[str]:
        """Return the values that a column may contain for a name: the name as plain text, and its
        digest under each key.
        """
        name = storable(name)
        keys = self.database.settings.keys
        if keys is None:
            return [name]
        return [name, *(digest_of(keys, key_id, name) for key_id in keys.names)]

    def _keys(self, conversations: Collection[str]) -> list[int]:
        """Return the keys of the conversations that the store has."""

        def read(reader: Reader) -> list[int]:
            conversations_found = (
                self.database.find(reader, name, as_stored=True) for name in conversations
            )
            keys = (row.key for row in conversations_found if row is not None)
            return sorted(keys)  # the statements read the conversations from the first to the last

        return self.database.recorder.query(read)

    def to_count(self, keys: Sequence[int] | None = None) -> dict[str, bool]:
        """Return the conversations to count, of all or of those with these ``keys``, in the order
        of the keys. The result maps a conversation without figures to True, and a conversation with
        outdated figures to False.
        """
        recorder = self.database.recorder
        if keys is None:
            rows = self._run(recorder, "figures_to_count", CODE)
        else:
            place = {key: number for number, key in enumerate(keys)}
            among = self._run(recorder, "figures_to_count_among", CODE, json.dumps([*place]))
            among.sort(key=lambda columns: place[columns[2]])
            rows = [columns[:2] for columns in among]
        return {text_of(name): is_missing == 1 for name, is_missing in rows}

    def versions(self, statement: str) -> dict[int, tuple[int, int]]:
        """Run a statement that returns versions of conversations. The result maps the key of a
        conversation to its version, and to its number of counted events or records. If no event of
        a source is made yet, its version is 0.
        """
        rows = (row for recorder in self._recorders() for row in self._run(recorder, statement))
        return {key: (version, events or 0) for key, version, events in rows}

    def hashes(self, keys: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the hashes of all replies of each conversation, packed in one byte string."""
        for recorder in self._recorders():
            yield from self._run(recorder, "hashes_of_replies", json.dumps([*keys]))

    def stored_replies(self, keys: Collection[int]) -> dict[int, set[int]]:
        """Return the hashes of the replies whose usage is stored one by one, for each of the
        conversations with these ``keys``.
        """
        stored = dict[int, set[int]]()
        for recorder in self._recorders():
            for key in keys:
                rows: list[Columns] = recorder.query(methodcaller("ask", "figure_replies_of", key))
                stored.setdefault(key, set()).update(as_unsigned(column) for (column,) in rows)
        return stored

    def repeated(self, where: Where) -> Repetitions:
        """Return the replies that are in several of the chosen conversations, so that a sum over
        the conversations can subtract them.
        """
        return self._repetitions(self.ask("figure_replies_chosen", where))

    def repeated_among(self, keys: Sequence[int]) -> Repetitions:
        """Return what ``repeated`` returns, for the conversations with these keys."""
        rows = [
            row
            for recorder, keys_text in self._split(keys)
            for row in self._run(recorder, "figure_replies_among", keys_text)
        ]
        return self._repetitions(rows)

    def _repetitions(self, rows: Iterable[Columns]) -> Repetitions:
        """Return what is counted twice, because several conversations have the same reply."""
        repetitions = Repetitions([], {})
        usage_by_hash = dict[int, Calls]()
        for reply_hash, key, *columns in rows:
            call = self.calls(key, columns)
            counted = usage_by_hash.setdefault(reply_hash, call)
            if counted is call:
                continue
            # The copy with fewer tokens may be cut short, so the copy with more tokens counts.
            if call.tokens > counted.tokens:
                usage_by_hash[reply_hash] = call
                call = counted
            if columns[_BY_CONDENSER] == OF_A_TOOL:
                calls, errors = repetitions.tools.get(call.model, ToolCalls())
                repetitions.tools[call.model] = ToolCalls(
                    calls + call.calls, errors + call.usage.get("prompt_tokens", 0)
                )
            else:
                repetitions.calls.append(call)
        return repetitions

    def trees(self) -> Trees:
        """Return the relation of the sub-agents whose parent is in the store. Cost: if the store
        has changed since the last call, the method reads a row of each conversation.
        """
        state = self.database.data_version(), len(self.aside)
        if self._trees is None or self._trees[0] != state:
            self._trees = state, self._read_trees()
        return self._trees[1]

    def _read_trees(self) -> Trees:
        """Return which conversation began which other one, as the table says."""
        sub_agents = {
            text_of(child): (key, text_of(parent))
            for recorder in self._recorders()
            for key, child, parent in self._run(recorder, "figure_parents")
        }
        created = self.created({parent for _, parent in sub_agents.values()})
        # A later conversation with the id of an erased parent did not begin the sub-agent.
        of_later = self.created(
            {child for child, (_, parent) in sub_agents.items() if created.get(parent, (0, 0))[1]}
        )
        return Trees(
            {
                child: (key, parent)
                for child, (key, parent) in sub_agents.items()
                if parent in created
                and (child not in of_later or of_later[child] >= created[parent])
            },
            {child: parent for child, (_, parent) in sub_agents.items()},
        )

    def erased_among(self, names: Collection[str]) -> set[str]:
        """Return the conversations that were erased. Cost: the method reads a row of each name."""
        rows = {
            name: self.database.recorder.query(
                partial(self.database.find, conversation=name, as_stored=True)
            )
            for name in names
        }
        return {name for name, row in rows.items() if row is not None and row.erasure is not None}

    def created(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return, for the conversations that exist, when they were created, and whether their id
        had an earlier conversation. Cost: one statement.
        """
        if not names:
            return {}
        rows = self._run(self.database.recorder, "existing_ids", json.dumps([*names]))
        return {text_of(name): (at, has_earlier) for name, at, has_earlier in rows}

    def _split(self, keys: Iterable[int]) -> Iterator[tuple[Recorder, str]]:
        """Yield each database with those of ``keys`` that it has, as JSON for a statement."""
        keys_aside = {*self.aside.values()}
        for recorder in self._recorders():
            is_in_memory = recorder is self._memory
            yield recorder, json.dumps([key for key in keys if (key in keys_aside) == is_in_memory])

    def _recorders(self) -> list[Recorder]:
        """Return the databases that have figures: the store, and memory if figures are aside."""
        if self.aside and self._memory is not None:
            return [self.database.recorder, self._memory]
        return [self.database.recorder]

    def between(self, first: str, last: str) -> dict[str, StoredFigures]:
        """Return the figures of the conversations from the id ``first`` to the id ``last``, without
        their calls.
        """
        rows = self._run(self.database.recorder, "figures_between", first, last)
        if self.aside:
            rows = [columns for columns in rows if text_of(columns[1]) not in self.aside]
        figures_of_store = self.read_rows(rows)
        keys_aside = [
            key for name, key in self.aside.items() if utf8(first) <= utf8(name) <= utf8(last)
        ]
        figures_aside = {}
        if keys_aside and self._memory is not None:
            rows = self._run(self._memory, "figures_of", json.dumps(keys_aside))
            figures_aside = self.read_rows(rows)
        return {figures.id: figures for figures in (figures_of_store | figures_aside).values()}

    def of_keys(self, keys: Sequence[int]) -> dict[int, StoredFigures]:
        """Return the figures of the conversations with these keys, with their calls."""
        figures_by_key = dict[int, StoredFigures]()
        for recorder, keys_text in self._split(keys):
            figures_by_key |= self.read_rows(self._run(recorder, "figures_of", keys_text))
        calls = self.calls_of(keys)
        return {
            key: figures._replace(calls=calls.get(key, ()))
            for key, figures in figures_by_key.items()
        }

    def calls_of(self, keys: Sequence[int]) -> dict[int, list[Calls]]:
        """Return the calls of models of the conversations with these keys."""
        calls = dict[int, list[Calls]]()
        for recorder, keys_text in self._split(keys):
            for key, *columns in self._run(recorder, "figure_calls_of", keys_text):
                calls.setdefault(key, []).append(self.calls(key, columns))
        return calls

    def calls(self, key: int, columns: Sequence[Any]) -> Calls:
        """Return the calls in a row. ``key`` is a conversation that has the row's model."""
        day, model, above, by_condenser, call_count, *usage, cost = columns
        tokens = {
            name: int(count) for name, count in zip(USAGE, usage, strict=True) if count is not None
        }
        return Calls(
            day=text_of(day),
            model=self.name(model, key),
            usage=tokens,
            cost=None if cost is None else round(cost, 12),
            calls=call_count,
            above=above,
            by_condenser=bool(by_condenser),
        )

    def name(self, column: bytes | str, key: int) -> str:
        """Return the name in a column. If the column has a digest of the name, read the encrypted
        texts of the conversation ``key``, which has the name. Without the key of encryption, the
        name is ``WITHOUT_KEY``.
        """
        stored = text_of(column)
        if not stored.startswith(DIGEST):
            return stored
        if stored not in self._names:
            self.read_rows(self._run(self.database.recorder, "figures_of", json.dumps([key])))
        return self._names.get(stored, WITHOUT_KEY)

    def read_rows(self, rows: Iterable[Columns]) -> dict[int, StoredFigures]:
        """Decrypt and decode rows of figures. If the key of a row is missing, or if its texts are
        damaged, its overview has the problem. Damaged figures have a version of no conversation.
        """
        figures = {}
        for key, conversation, encoding, sealed_texts, *numbers in rows:
            columns = FigureColumns._make(numbers)
            try:
                texts = self._texts(key, encoding, sealed_texts)
            except KeyUnavailable as error:
                texts = FigureTexts(problem=str(error), needs_key=True)
            except (ValueError, RecursionError, CorruptEvent):
                texts = FigureTexts(problem=UNREADABLE)
                columns = columns._replace(version=_OUTDATED)
            self._names |= texts.names
            figures[key] = _figures_of_row(key, text_of(conversation), columns, texts)
        return figures

    def _texts(self, key: int, encoding: int, sealed: bytes) -> FigureTexts:
        """Return the texts of a row, decrypted. Raises ``KeyUnavailable`` if their key is missing,
        and ``ValueError``, ``RecursionError`` or ``CorruptEvent`` if they are damaged.
        """
        if encoding & SEALED:
            conversation = self.database.recorder.query(
                lambda reader: self.database.find_key(reader, key)
            )
            data_key = None
            if conversation is not None:
                data_key = self.database.codec_of(conversation).data_key
            if data_key is None:
                raise KeyUnavailable(
                    f"the figures of conversation number {key} are encrypted, and their key is"
                    " missing; open the store with its keys"
                )
            sealed = data_key.decrypt(sealed, place_of_texts(key))
        try:
            return _decode_texts(sealed)
        except ValueError:  # damaged, or half a surrogate pair, which only ``json`` reads
            return convert(json.loads(sealed.decode()), FigureTexts)


def _figures_of_row(
    key: int, conversation: str, columns: FigureColumns, texts: FigureTexts
) -> StoredFigures:
    """Return the figures in a row of the table, with the texts that are stored apart."""
    last_at = _last_at(columns)
    overview = Overview(
        attributes=texts.attributes or (None if texts.problem else {}),
        title=texts.title,
        format=None if columns.format is None else text_of(columns.format),
        events=columns.events,
        sent_events=columns.sent_events,
        sent_summaries=columns.sent_summaries,
        tokens=columns.view_tokens,
        last_event_at=texts.last if last_at is None else last_at.isoformat(),
        problem=texts.problem,
        needs_key=texts.needs_key,
    )
    return StoredFigures(key, conversation, columns.version, overview, columns, texts)


def text_of(column: bytes | str) -> str:
    """Return the text of a column. Some databases return texts as bytes."""
    return column if isinstance(column, str) else as_text(column)


def _last_at(columns: FigureColumns) -> EventTime | None:
    return _time(columns.last_at, is_local=bool(columns.local_times & LAST_IS_LOCAL))


def _time(microseconds: int | None, *, is_local: bool) -> EventTime | None:
    """Return the time of a column, without a zone if ``is_local``, or None for an empty column."""
    if microseconds is None:
        return None
    time = from_microseconds(microseconds)
    return EventTime(time.replace(tzinfo=None) if is_local else time)


def check_sort(sort: str) -> None:
    if sort not in SORTS:
        raise InvalidArgument(f"sort is {sort!r}; use one of {', '.join(SORTS)}")
