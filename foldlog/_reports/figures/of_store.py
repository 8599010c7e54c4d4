"""The lists and totals of the conversations in a store. Both come from the tables of figures, which
the caller must bring up to date first.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.figures import SavingsDocument, SpentDocument, TaskDocument
from foldlog._reports.figures.agent_trees import Trees
from foldlog._reports.figures.blocks import REASONS
from foldlog._reports.figures.keeping_up import FigureCounter
from foldlog._reports.figures.overview import Overview, near_the_ends, read_ends
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.spending import models_without_price, price_calls, spent
from foldlog._reports.figures.stats import FACETS, TOTALS, Behind, Stats
from foldlog._reports.figures.tables import FigureTables, StoredFigures, Where, check_sort, text_of
from foldlog._reports.figures.writing import CODE
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.log.database import begun
from foldlog.eventstore.log.results import row_of
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import as_text, utf8
from foldlog.formats.summed_calls import Calls, add_up

if TYPE_CHECKING:
    from foldlog.projections import Views

Row = tuple[ConversationRow, StoredFigures]

PAGE = 1_000
"""The number of conversations that ``of`` reads together."""
_BLOCKS_AT_ONCE = 8
"""The number of blocks of conversations that a reader sums up at most, if it does not wait for
complete figures. The next three numbers are bounds for the same readers. With all of them, a reader
needs a few tenths of a second.
"""
_COUNTED_AT_ONCE = 128
"""The number of changed conversations that such a reader counts at most."""
_EVENTS_AT_ONCE = 16_000
"""Such a reader counts no further conversation after this number of events."""
_SECONDS_AT_ONCE = 0.1
"""Such a reader counts no further conversation after this time, because each query may take long.
"""
_EVENTS_OF_CONVERSATION = 60
"""To count a conversation takes as long as to count this number of events, and then its events."""
_FEW = 100
"""The maximum number of conversations that are read one by one. Above this number, all
conversations from the first id to the last are read as one range.
"""
_ALL = 2**31
"""A limit for queries that should return all conversations: no store has so many."""
_EVERYTHING = Where()
"""Chooses all conversations."""


class Page(NamedTuple):
    """A page of the chosen conversations, sorted by a figure.

    ``unknown``  the number of conversations on the page without the figure that sorts it
    ``total``    the number of chosen conversations
    """

    rows: Sequence[Row]
    unknown: int
    total: int


class Facet(NamedTuple):
    """A name, such as the name of a tool, and the number of chosen conversations in which it
    occurs. ``number`` counts all occurrences, such as the calls of the tool.
    """

    what: str
    name: str
    conversations: int
    number: int


class Day(NamedTuple):
    """A day, and the number of chosen conversations whose last activity was on this day."""

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class FiguresOfStore:
    """The figures of the conversations in a store. Many threads may use a single
    ``FiguresOfStore``.

    Call ``refresh`` or ``bring_up_to_date`` first, because all other methods read only counted
    figures. With ``is_quick``, these methods count, and totals sum up, only what takes a few tenths
    of a second, and ``behind`` says what the figures lack.

    Cost: if the store has changed, ``refresh`` and ``bring_up_to_date`` read what came after the
    position that the last complete ``refresh`` stored, or the versions of all conversations if that
    is much, and call ``figures_of`` for changed conversations. All other methods read the rows of
    the chosen conversations by SQL.
    """

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        prices: Prices | None = None,
        *,
        on_events: Callable[[int], object] = lambda count: None,
        is_quick: bool = False,
    ) -> None:
        self._store = store
        self._on_events = on_events
        self._prices = prices or Prices()
        self._is_quick = is_quick
        self._uncounted = 0
        """The number of conversations that ``of`` has yielded with an overview only, since the last
        ``refresh`` or ``bring_up_to_date``.
        """
        self._tables = FigureTables(store.database, _BLOCKS_AT_ONCE if is_quick else None)
        self._counter = FigureCounter(store, self._tables, views, on_events)

    # -- brought up to date -----------------------------------------------------------------------

    def refresh(self, most: int | None = None) -> int:
        """Count up to ``most`` conversations that have changed. Return the number of conversations
        that are known to have changed and are not counted. The number is at least 1 if another
        thread counts longer than the method waits.
        """
        self._uncounted = 0
        self._tables.blocks.begin()
        if not self._is_quick:
            return self._counter.refresh(most)
        return self._counter.refresh(
            _COUNTED_AT_ONCE if most is None else most, _EVENTS_AT_ONCE, _SECONDS_AT_ONCE
        )

    def keep_up(self) -> None:
        """Count all conversations that have changed, and sum up their figures, so that no reader
        has to. Readers that do not wait show the time of the last call.
        """
        self.refresh()
        if self.sum_up():
            self.note_complete()

    def sum_up(self) -> bool:
        """Sum up the figures, and return whether all were summed up."""
        self.count()
        return not self._tables.blocks.changes_left

    def note_complete(self) -> None:
        """Store the time of the last ``refresh``, if it has counted all changes, for readers that
        do not wait.
        """
        if self._counter.has_counted or self._counter.stored_as_of() is None:
            self._counter.note_complete()

    def behind(self) -> Behind:
        """Return what the figures and sums that were read last lack."""
        behind = self._counter.behind()
        changes = max(behind.conversations, self._uncounted) + self._tables.blocks.changes_left
        if not changes:
            return behind
        return Behind(changes, self._counter.stored_as_of())

    @property
    def missing(self) -> int:
        """The number of conversations that had no figures at the last ``refresh``."""
        return self._counter.missing

    def bring_up_to_date(self, where: Where = _EVERYTHING) -> None:
        """Count the conversations in ``where.only``, or all conversations that have changed if it
        is None.
        """
        if where.only is None:
            self.refresh()
            return
        self._uncounted = 0
        rows = (self._store.conversation(name, as_stored=True) for name in where.only)
        deque(self.of(rows, on_stored=self._on_events), 0)
        if len(where.only) > 1:
            self._counter.store_replies()

    # -- conversations ----------------------------------------------------------------------------

    def of(
        self,
        rows: Iterable[ConversationRow],
        *,
        whole: bool = True,
        on_stored: Callable[[int], object] = lambda count: None,
    ) -> Iterator[Row]:
        """Yield each row with its figures. Conversations without present figures are counted first.
        If ``whole`` is false, they are not counted, and only have an overview. The same holds with
        ``is_quick`` after some have been counted; ``behind`` then says how many were not. A
        conversation that was erased after it was listed is yielded as erased.

        The rows are read in pages of 1,000. For each page, before anything is counted,
        ``on_stored`` is called with the total number of events in the conversations whose figures
        are stored.
        """
        remaining = iter(rows)
        self._counter.write_aside()
        budget = _Budget() if self._is_quick else None
        while page := list(islice(remaining, PAGE)):
            present = self._present_figures(page)
            missing: Sequence[ConversationRow] = [
                row for row in page if row.erased_at is None and row.id not in present
            ]
            on_stored(sum(row.version for row in page if row.id in present))
            if whole and missing:
                counted, missing = self._count_missing(missing, budget)
                present |= self._present_figures(counted)
            calls: Mapping[int, Sequence[Calls]] = {}
            if whole:
                calls = self._tables.calls_of([figures.key for figures in present.values()])
            ends = {} if whole and not self._is_quick else self._ends_of_page(missing)
            for row in page:
                figures = present.get(row.id)
                if figures is not None:
                    yield (
                        row,
                        figures._replace(calls=calls.get(figures.key, ())) if calls else figures,
                    )
                elif row.id in ends:
                    yield row, StoredFigures(0, row.id, row.version, ends[row.id])
                else:
                    yield self._ends_of(row)

    def _count_missing(
        self, missing: Sequence[ConversationRow], budget: _Budget | None
    ) -> tuple[Sequence[ConversationRow], Sequence[ConversationRow]]:
        """Count conversations, only as many as ``budget`` allows if there is one. Return those that
        were to be counted, and those that are still not counted.
        """
        if budget is None:
            self._counter.count_now(missing)
            return missing, []
        allowed = budget.take(missing)
        late = self._counter.count_now(allowed, _SECONDS_AT_ONCE)
        if late:
            budget.end()
        uncounted = [*late, *missing[len(allowed) :]]
        self._uncounted += len(uncounted)
        return allowed, uncounted

    def _ends_of_page(self, rows: Sequence[ConversationRow]) -> dict[str, Overview]:
        """Read the ends of conversations in one transaction. A conversation that is not plain (it
        is a fork, erased, damaged, changed since it was listed, or its events are not made) is
        left out.
        """
        database = self._store.database
        listed = {row.id: row for row in rows if row.parent is None and row.archived == 0}
        if len(listed) < 2:
            return {}

        def read(reader: Reader) -> dict[str, Overview]:
            ends = {}
            has_sources = bool(reader.ask_all("any_source"))
            after = min(listed, key=utf8)
            for state in reader.conversations(after, len(rows)):
                row = listed.get(state.id)
                if row is None or state.lacks_events or state.erasure or state.parent is not None:
                    continue
                try:
                    conversation = database.with_salt(begun(state))
                    if conversation is not None and conversation.version == row.version:
                        ends[row.id] = read_ends(
                            database, reader, conversation, has_sources=has_sources
                        )
                except EventStoreError:
                    continue  # ``_ends_of`` reads it alone, and reports the problem
            return ends

        try:
            return database.recorder.query(read)
        except EventStoreError:  # the conversations are then read one by one
            return {}

    def _present_figures(self, page: Sequence[ConversationRow]) -> dict[str, StoredFigures]:
        """Return the figures of the conversations whose figures are up to date, by their ids."""
        ids = sorted((row.id for row in page), key=utf8)
        spans = zip(ids, ids, strict=True) if len(ids) <= _FEW else [(ids[0], ids[-1])]
        stored: dict[str, StoredFigures] = {}
        for first, last in spans:
            stored |= self._tables.between(first, last)
        return {
            row.id: stored[row.id]
            for row in page
            if row.id in stored
            and stored[row.id].version == row.version
            # An archived conversation keeps its figures, because its events are not here.
            and (stored[row.id].columns.code == CODE or row.archived)
            and (row.id not in self._counter.aside or self._counter.is_aside(row))
        }

    def _ends_of(self, row: ConversationRow) -> Row:
        """Return a conversation with an overview from its first and last events only. The overview
        of an erased conversation is empty. If the events cannot be read, the overview has the
        problem.
        """
        empty = StoredFigures(0, row.id, row.version, Overview())
        if row.erased_at is not None:
            return row, empty
        try:
            return row, empty._replace(overview=near_the_ends(self._store, row))
        except ConversationErased:
            return self._store.conversation(row.id), empty
        except EventStoreError as error:
            problem = Overview(problem=str(error), needs_key=isinstance(error, KeyUnavailable))
            return row, empty._replace(overview=problem)

    def page(
        self,
        where: Where = _EVERYTHING,
        *,
        sort: str = "recorded",
        reverse: bool = True,
        start: int = 0,
        limit: int = 100,
    ) -> Page:
        """Return a page of the conversations that ``where`` chooses. Conversations without the
        figure ``sort`` always come last. Raises ``InvalidArgument`` if ``sort`` is not in
        ``SORTS``.
        """
        sorted_rows = self._sort(where, sort, reverse=reverse, most=start + limit)[start:]
        rows = self._rows_of([key for key, *_ in sorted_rows])
        unknown = 0
        if sort != "id":
            unknown = sum(figure is None for _, figure, _ in sorted_rows)
        return Page(rows, unknown, self.count(where))

    def first(self, where: Where, *, sort: str, reverse: bool, limit: int) -> Sequence[Row]:
        """Return the first rows of ``page``, without its counts."""
        return self._rows_of(
            [key for key, *_ in self._sort(where, sort, reverse=reverse, most=limit)]
        )

    def _rows_of(self, keys: Sequence[int]) -> list[Row]:
        """Return the conversations with these keys, except those that were erased meanwhile."""
        figures = self._tables.of_keys(keys)
        in_order = [figures[key] for key in keys if key in figures]
        plain = self._plain_rows(in_order)
        rows = [
            (plain.get(row_figures.id) or self._row(row_figures), row_figures)
            for row_figures in in_order
        ]
        return [(row, row_figures) for row, row_figures in rows if row is not None]

    def _plain_rows(self, figures: Sequence[StoredFigures]) -> dict[str, ConversationRow]:
        """Read conversations in one transaction. A conversation that was erased, or whose id was
        used before, is left out.
        """
        database = self._store.database

        def read(reader: Reader) -> dict[str, ConversationRow]:
            rows = {}
            for row_figures in figures:
                try:
                    state = database.find(reader, row_figures.id, as_stored=True)
                except EventStoreError:
                    continue
                if state is not None and state.erasure is None and state.replaces is None:
                    rows[row_figures.id] = row_of(state)
            return rows

        try:
            return database.recorder.query(read) if figures else {}
        except EventStoreError:  # the conversations are then read one by one
            return {}

    def ids_in_order(
        self, sort: str, *, reverse: bool, among: Collection[str]
    ) -> tuple[list[str], int]:
        """Return the ids in ``among`` in the order of the figure ``sort``, and how many of them do
        not have the figure. These come last.
        """
        rows = self._sort(_EVERYTHING, sort, reverse=reverse, most=_ALL)
        ids = [(as_text(name), figure) for _, figure, name in rows]
        in_group = [(name, figure) for name, figure in ids if name in among]
        return [name for name, _ in in_group], sum(figure is None for _, figure in in_group)

    def _sort(
        self, where: Where, sort: str, *, reverse: bool, most: int
    ) -> Sequence[Sequence[Any]]:
        """Return the key, the figure ``sort`` and the id of the first ``most`` chosen
        conversations. Raises ``InvalidArgument`` if ``sort`` is not in ``SORTS``.
        """
        check_sort(sort)
        direction = -1 if reverse else 1
        if sort == "cost":
            rows = self._tables.ask(
                "figures_by_cost", where, direction, most, self._price_rows(where)
            )
        else:
            rows = self._tables.ask("figures_sorted", where, sort, direction, most)
        # The second sort is stable, so conversations with the same figure stay sorted by their ids.
        rows.sort(key=lambda columns: columns[2], reverse=reverse and sort == "id")
        rows.sort(key=lambda columns: (columns[1] is None, (columns[1] or 0) * direction))
        return rows[:most]

    def _row(self, figures: StoredFigures) -> ConversationRow | None:
        """Return the row of a conversation, or None if it was erased."""
        try:
            row = self._store.conversation(figures.id, as_stored=True)
        except ConversationNotFound:
            return None
        return row if row.erased_at is None else None

    def ids(self, where: Where) -> set[str]:
        """Return the ids of the conversations that ``where`` chooses."""
        rows = self._sort(where, "id", reverse=False, most=_ALL)
        return {as_text(name) for _, _, name in rows}

    @property
    def trees(self) -> Trees:
        """Which conversation began which: see ``FigureTables.trees``."""
        return self._tables.trees()

    def tasks(
        self, conversations: Iterable[StoredFigures], *, has_agents: bool = False
    ) -> dict[str, TaskDocument]:
        """Return the tasks of the conversations that have or had sub-agents, by the id of the
        conversation. Cost: the method reads the figures of the sub-agents.
        """
        chosen = [*conversations]
        if not self.trees.parents and not any(figures.begun for figures in chosen):
            return {}
        from foldlog._reports.figures.tasks import read_tasks  # most stores have no sub-agents

        return {
            task.agents[0].figures.id: task.document(self._prices, has_agents=has_agents)
            for task in read_tasks(self._tables, chosen)
        }

    def count(self, where: Where = _EVERYTHING) -> int:
        """Return the number of conversations that ``where`` chooses."""
        return sum(columns[1] for columns in self._tables.ask("figure_sums", where))

    def needs_key(self, where: Where = _EVERYTHING) -> int:
        """Return the number of chosen conversations that cannot be counted without a missing key.
        Their figures are never written, so they are aside.
        """
        aside = self._chosen_aside(where)
        return sum(figures.overview.needs_key for figures in aside)

    # -- totals -----------------------------------------------------------------------------------

    def totals(self, where: Where = _EVERYTHING) -> Stats:
        """Return the totals of the chosen conversations. A reply that several of them contain
        counts once.
        """
        stats = self.counts(where)
        calls = self._calls(where)
        stats.models = price_calls(calls, self._prices)
        stats.unpriced = models_without_price(calls, self._prices)
        stats.without_cost = self._without_cost(where, stats.unpriced)
        stats.findings = self._findings(where)
        stats.behind = self.behind()
        return stats

    def add_sub_agents(self, stats: Stats, where: Where) -> None:
        """Add to totals the number of sub-agents among the chosen conversations, and what the
        others spent.
        """
        alone = where._replace(sub_agents=False)
        stats.sub_agents = stats.conversations - self.count(alone)
        if stats.sub_agents:
            stats.spent_alone = self.spent(alone)

    def spent(self, where: Where) -> SpentDocument:
        """Return the usage and cost of the chosen conversations."""
        return spent(price_calls(self._calls(where), self._prices).values())

    def counts(self, where: Where = _EVERYTHING, whats: Sequence[str] = TOTALS) -> Stats:
        """Return the totals without usage and cost. ``whats`` has the kinds of counts to add up,
        such as ``tool``.
        """
        stats = Stats()
        for columns in self._tables.ask("figure_sums", where):
            stats.add_sums(*columns)
        for what, name, number in self._names_of(
            self._tables.ask("figure_totals", where, json.dumps(whats))
        ):
            stats.add_count(what, name, number)
        stats.leave_out(self._tables.repeated(where).tools)
        return stats

    def _names_of(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str, float | None]]:
        for what, name, key, _, number in rows:
            yield text_of(what), self._tables.name(name, key), number

    def _calls(self, where: Where) -> list[Calls]:
        """Return the sums of all calls of models. A reply that is repeated counts once."""
        rows = self._tables.ask("figure_spending", where)
        calls = [self._tables.calls(key, columns) for key, *columns in rows]
        repeated = [call.negative() for call in self._tables.repeated(where).calls]
        return [call for call in add_up(calls + repeated) if call.calls > 0]

    def _without_cost(self, where: Where, unpriced: Iterable[str]) -> int:
        """Return the number of chosen conversations with a call whose cost is unknown. ``unpriced``
        has the models without a price.
        """
        forms = {None, *(form for model in unpriced for form in self._tables.stored_forms(model))}
        return sum(
            number
            for models, number in self._tables.ask("figures_without_cost", where)
            if not forms.isdisjoint(json.loads(models))
        )

    def _findings(self, where: Where) -> list[str]:
        """Return the problems of events that could not be read. Figures with such problems are
        never written, so they are aside.
        """
        aside = self._chosen_aside(where)
        return [finding for figures in aside for finding in figures.texts.findings]

    def _chosen_aside(self, where: Where) -> list[StoredFigures]:
        """Return the figures of the chosen conversations that are in memory only: see
        ``FigureTables``.
        """
        keys = {*self._tables.aside.values()}
        if not keys:
            return []
        chosen = self._tables.ask("figures_sorted", where, "id", 1, _ALL)
        figures_aside = self._tables.of_keys([key for key, *_ in chosen if key in keys]).values()
        return sorted(figures_aside, key=lambda figures: figures.id)

    def _price_rows(self, where: Where) -> str:
        """Return the prices of the models of the chosen conversations, as JSON for SQL: for each
        model and length of prompts, the prices of ``Price.of_each``.
        """
        rows = []
        for key, model, above in self._tables.ask("figure_models", where):
            price = self._prices.of(self._tables.name(model, key))
            if price is not None:
                rows.append((text_of(model), above, *price.at(above + 1).of_each()))
        return json.dumps([*dict.fromkeys(rows)])

    def reasons(self, where: Where = _EVERYTHING) -> dict[str, SavingsDocument]:
        """Return the savings and the cost of condensations, by reason."""
        whats = json.dumps(REASONS)
        fields_by_reason: dict[str, JsonObject] = {}
        for what, name, number in self._names_of(self._tables.ask("figure_totals", where, whats)):
            fields = fields_by_reason.setdefault(name, {})
            field = what.removeprefix("reason ")
            if number is not None:
                fields[field] = fields.get(field, 0) + (number if field == "cost" else int(number))
        return {name: SavingsDocument(**fields) for name, fields in fields_by_reason.items()}

    def facets(
        self,
        where: Where = _EVERYTHING,
        whats: Sequence[str] = FACETS,
    ) -> list[Facet]:
        """Return the names that occur in the chosen conversations, for the kinds in ``whats``: by
        kind, the most frequent names first. A call of a tool that is in several conversations
        counts once.
        """
        whats_text = json.dumps(whats)
        sums_by_name = dict[tuple[str, str], list[float]]()
        for what, name, key, conversations, number in self._tables.ask(
            "figure_totals", where, whats_text
        ):
            if number:
                sums = sums_by_name.setdefault(
                    (text_of(what), self._tables.name(name, key)), [0, 0]
                )
                sums[0] += conversations
                sums[1] += number
        for name, (calls, errors) in self._tables.repeated(where).tools.items():
            for what, repeated in (("tool", calls), ("tool errors", errors)):
                if (what, name) in sums_by_name:
                    sums_by_name[what, name][1] -= repeated
        facets = [
            Facet(*what_and_name, int(count), int(number))
            for what_and_name, (count, number) in sums_by_name.items()
        ]
        return sorted(
            facets, key=lambda facet: (whats.index(facet.what), -facet.conversations, facet.name)
        )

    def days(self, where: Where = _EVERYTHING) -> list[Day]:
        """Return the days on which chosen conversations were active last. The days are in UTC, or
        in local time for conversations whose source names no zone.
        """
        sums_by_day: dict[int, list[int]] = {}
        for day, *numbers in self._tables.ask("figures_by_day", where):
            sums = sums_by_day.setdefault(day, [0, 0, 0])
            sums_by_day[day] = [
                total + (number or 0) for total, number in zip(sums, numbers, strict=True)
            ]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return [
            Day((epoch + timedelta(days=day)).date().isoformat(), *sums_by_day[day])
            for day in sorted(sums_by_day)
        ]


class _Budget:
    """What a reader may still count that does not wait for complete figures, in events."""

    def __init__(self) -> None:
        self._events_left = _EVENTS_AT_ONCE
        self._is_unused = True

    def take(self, rows: Sequence[ConversationRow]) -> Sequence[ConversationRow]:
        """Return the first rows that the budget allows. Of all rows, the budget always allows the
        first, however many events it has, so that each reader counts a conversation.
        """
        for number, row in enumerate(rows):
            cost = _EVENTS_OF_CONVERSATION + row.version
            if cost > self._events_left and not self._is_unused:
                return rows[:number]
            self._events_left -= cost
            self._is_unused = False
        return rows

    def end(self) -> None:
        """Allow nothing more."""
        self._events_left = 0
