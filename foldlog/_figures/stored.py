"""Lists and totals of the conversations of a store, from the tables of figures, which are brought
up to date first.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from foldlog._documents import SavingsDocument
from foldlog._figures.overview import Overview, near_the_ends
from foldlog._figures.prices import Prices
from foldlog._figures.spending import priced
from foldlog._figures.stats import TOTALS, Stats
from foldlog._figures.tables import FigureTables, StoredFigures, Where, check_sort, text_of
from foldlog._figures.updating import FigureCounter
from foldlog._figures.writing import SAVED
from foldlog._formats.summed_calls import Calls, add_up
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.recorders.types import as_text, utf8
from foldlog.projections import Views

Row = tuple[ConversationRow, StoredFigures]

FACETS = ("state", "program", "tool errors", "model", "attribute")
"""What is counted under the names that a list of conversations is chosen by."""
_PAGE = 1_000
_FEW = 100
"""Conversations that are asked for one by one."""
_ALL = 2**31
_EVERYTHING = Where()


class Page(NamedTuple):
    """Some of the chosen conversations in an order, of how many of them the figure is not known,
    and how many are chosen in all.
    """

    rows: Sequence[Row]
    unknown: int
    total: int


class Facet(NamedTuple):
    """How many of the chosen conversations have a name in their figures, and the sum of what is
    counted under it.
    """

    what: str
    name: str
    conversations: int
    number: int


class Day(NamedTuple):
    """The chosen conversations whose last activity was on a day, their errors, and how many ended
    with one.
    """

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class FiguresOfStore:
    """The figures of the conversations of a store. Thread-safe.

    Call ``refresh`` or ``bring_up_to_date`` first: a question is answered from what is counted.
    Their cost: where the store has changed since, a look at each conversation's version, and what
    ``figures_of`` costs of each that has changed, once. Cost of a question: SQL over the rows of
    the chosen conversations.
    """

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        prices: Prices | None = None,
        *,
        on_events: Callable[[int], object] = lambda count: None,
    ) -> None:
        """``prices`` are for calls that tell no cost; without them those of a table that is
        installed.
        """
        self._store = store
        self._on_events = on_events
        self._prices = prices or Prices()
        self._tables = FigureTables(store.database)
        self._counter = FigureCounter(store, self._tables, views, on_events)

    # -- brought up to date -----------------------------------------------------------------------

    def refresh(self, most: int | None = None) -> int:
        """Count conversations that are not counted as they are now, at ``most`` this many. Return
        how many are left. Until they are counted, sums are of their last figures; ``missing`` of
        them have none.
        """
        return self._counter.refresh(most)

    @property
    def missing(self) -> int:
        return self._counter.missing

    def bring_up_to_date(self, where: Where = _EVERYTHING) -> None:
        """Count the chosen conversations that are not counted as they are now."""
        if where.only is None:
            self.refresh()
            return
        rows = (self._store.conversation(name, pending=True) for name in where.only)
        deque(self.of(rows), 0)
        if len(where.only) > 1:
            self._counter.read_replies()

    # -- conversations ----------------------------------------------------------------------------

    def of(self, rows: Iterable[ConversationRow], *, whole: bool = True) -> Iterator[Row]:
        """Yield each conversation with its figures, in this order; unless ``whole``, of those that
        are not counted as they are now an overview alone. One that was erased since it was listed
        is yielded as an erased one.
        """
        ahead = iter(rows)
        self._counter.write_aside()
        while page := list(islice(ahead, _PAGE)):
            there = self._there(page)
            missing = [row for row in page if row.erased_at is None and row.id not in there]
            if whole and missing:
                self._counter.count_now(missing)
                there |= self._there(missing)
            if whole:
                calls = self._tables.of_keys([figures.key for figures in there.values()])
            else:
                calls = {}
            for row in page:
                figures = there.get(row.id)
                if figures is not None:
                    self._on_events(row.version)
                    yield row, calls.get(figures.key, figures)
                else:
                    yield self._near(row)

    def _there(self, page: Sequence[ConversationRow]) -> dict[str, StoredFigures]:
        """Return the figures of conversations that are counted as they are now, by their ids."""
        ids = sorted((row.id for row in page), key=utf8)
        spans = zip(ids, ids, strict=True) if len(ids) <= _FEW else [(ids[0], ids[-1])]
        found: dict[str, StoredFigures] = {}
        for first, last in spans:
            found |= self._tables.between(first, last)
        return {
            row.id: found[row.id]
            for row in page
            if row.id in found
            and found[row.id].version == row.version
            and (row.id not in self._counter.aside or self._counter.is_aside(row))
        }

    def _near(self, row: ConversationRow) -> Row:
        """Return a conversation with what its ends tell."""
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
        """Return ``limit`` of the chosen conversations after the first ``start`` of them, in the
        order of a figure; unknown ones come last in either order. Raises ``InvalidArgument`` for
        another sort than those of ``SORTS``.
        """
        found = self._sorted(where, sort, reverse=reverse, most=start + limit)[start:]
        rows = self._rows_of([key for key, *_ in found])
        if sort != "id":
            unknown = sum(figure is None for _, figure, _ in found)
        else:
            unknown = 0
        return Page(rows, unknown, self.count(where))

    def first(self, where: Where, *, sort: str, reverse: bool, limit: int) -> Sequence[Row]:
        """Return the first of the chosen conversations in the order of a figure, as ``page``
        does.
        """
        return self._rows_of(
            [key for key, *_ in self._sorted(where, sort, reverse=reverse, most=limit)]
        )

    def _rows_of(self, keys: Sequence[int]) -> list[Row]:
        figures = self._tables.of_keys(keys)
        rows = [(self._row(figures[key]), figures[key]) for key in keys if key in figures]
        return [(row, one) for row, one in rows if row is not None]

    def sorted(self, sort: str, *, reverse: bool, among: Collection[str]) -> tuple[list[str], int]:
        """Return the ids of these conversations in the order of a figure, and of how many of them
        it is not known.
        """
        found = self._sorted(_EVERYTHING, sort, reverse=reverse, most=_ALL)
        named = [(as_text(name), figure) for _, figure, name in found]
        chosen = [(name, figure) for name, figure in named if name in among]
        return [name for name, _ in chosen], sum(figure is None for _, figure in chosen)

    def _sorted(
        self, where: Where, sort: str, *, reverse: bool, most: int
    ) -> Sequence[Sequence[Any]]:
        """Return the key of each of the first ``most`` chosen conversations in this order, its
        figure, and its id.
        """
        check_sort(sort)
        direction = -1 if reverse else 1
        if sort == "cost":
            found = self._tables.ask(
                "figures_by_cost", where, direction, most, self._price_rows(where)
            )
        else:
            found = self._tables.ask("figures_sorted", where, sort, direction, most)
        found.sort(key=lambda columns: columns[2], reverse=reverse and sort == "id")
        found.sort(key=lambda columns: (columns[1] is None, (columns[1] or 0) * direction))
        return found[:most]

    def _row(self, figures: StoredFigures) -> ConversationRow | None:
        try:
            row = self._store.conversation(figures.id, pending=True)
        except ConversationNotFound:
            return None
        return row if row.erased_at is None else None

    def ids(self, where: Where) -> set[str]:
        """Return the ids of the chosen conversations, of those that are counted."""
        found = self._sorted(where, "id", reverse=False, most=_ALL)
        return {as_text(name) for _, _, name in found}

    def count(self, where: Where = _EVERYTHING) -> int:
        """Return how many conversations are chosen, of those that are counted."""
        return sum(columns[1] for columns in self._tables.ask("figure_sums", where))

    def needs_key(self, where: Where = _EVERYTHING) -> int:
        """Return how many of the chosen conversations are not counted because their keys are not
        given.
        """
        aside = self._chosen_aside(where)
        return sum(figures.overview.needs_key for figures in aside)

    # -- totals -----------------------------------------------------------------------------------

    def totals(self, where: Where = _EVERYTHING) -> Stats:
        """Return the totals of the chosen conversations. A reply that several of them have counts
        once.
        """
        stats = self.counts(where)
        calls = self._calls(where)
        stats.models = priced(calls, self._prices)
        stats.unpriced = {call.model for call in calls if self._has_no_price(call)}
        stats.without_cost = self._without_cost(where, stats.unpriced)
        stats.findings = self._findings(where)
        return stats

    def counts(self, where: Where = _EVERYTHING, whats: Sequence[str] = TOTALS) -> Stats:
        """Return the totals without calls of models; of ``whats`` alone where not all are
        wanted.
        """
        stats = Stats()
        for columns in self._tables.ask("figure_sums", where):
            stats.add_sums(*columns)
        for what, name, number in self._named(
            self._tables.ask("figure_totals", where, json.dumps(whats))
        ):
            stats.add_count(what, name, number)
        return stats

    def _named(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str, float | None]]:
        for what, name, key, _, number in rows:
            yield text_of(what), self._tables.name(name, key), number

    def _calls(self, where: Where) -> list[Calls]:
        found = self._tables.ask("figure_spending", where)
        calls = [self._tables.calls(key, columns) for key, *columns in found]
        repeated = [call.negative() for call in self._tables.repeated_elsewhere(where)]
        return [call for call in add_up(calls + repeated) if call.calls > 0]

    def _has_no_price(self, call: Calls) -> bool:
        return (
            call.cost is None
            and call.tokens > 0
            and self._prices.cost(call.model, call.usage, call.above) is None
        )

    def _without_cost(self, where: Where, unpriced: Iterable[str]) -> int:
        names = json.dumps([each for model in unpriced for each in self._tables.alike(model)])
        return sum(number for (number,) in self._tables.ask("figures_without_cost", where, names))

    def _findings(self, where: Where) -> list[str]:
        """Return what could not be read of the chosen conversations."""
        return [finding for figures in self._chosen_aside(where) for finding in figures.findings]

    def _chosen_aside(self, where: Where) -> list[StoredFigures]:
        """Return the figures of chosen conversations that the store does not keep."""
        keys = {*self._tables.aside.values()}
        if keys:
            chosen = self._tables.ask("figures_sorted", where, "id", 1, _ALL)
        else:
            chosen = []
        found = self._tables.of_keys([key for key, *_ in chosen if key in keys]).values()
        return sorted(found, key=lambda figures: figures.id)

    def _price_rows(self, where: Where) -> str:
        """Return the prices of the models that tell no cost, as SQL reads them."""
        rows = []
        for key, model, above in self._tables.ask("figure_models", where):
            price = self._prices.of(self._tables.name(model, key))
            if price is not None:
                rows.append((text_of(model), above, *price.at(above + 1).of_each()))
        return json.dumps([*dict.fromkeys(rows)])

    def reasons(self, where: Where = _EVERYTHING) -> dict[str, SavingsDocument]:
        """Return what condensations saved and cost, by their reasons."""
        wanted = json.dumps([f"reason {field}" for field in SAVED])
        found: dict[str, dict[str, Any]] = {}
        for what, name, number in self._named(self._tables.ask("figure_totals", where, wanted)):
            fields = found.setdefault(name, {})
            field = what.removeprefix("reason ")
            if number is not None:
                fields[field] = fields.get(field, 0) + (number if field == "cost" else int(number))
        return {name: SavingsDocument(**fields) for name, fields in found.items()}

    def facets(
        self,
        where: Where = _EVERYTHING,
        whats: Sequence[str] = FACETS,
    ) -> list[Facet]:
        """Return how many of the chosen conversations have each state, program, tool with errors,
        model and attribute, the most frequent first.
        """
        wanted = json.dumps(whats)
        found = dict[tuple[str, str], list[float]]()
        for what, name, key, conversations, number in self._tables.ask(
            "figure_totals", where, wanted
        ):
            if number:
                sums = found.setdefault((text_of(what), self._tables.name(name, key)), [0, 0])
                sums[0] += conversations
                sums[1] += number
        facets = [
            Facet(*named, int(count), int(number)) for named, (count, number) in found.items()
        ]
        return sorted(
            facets, key=lambda facet: (whats.index(facet.what), -facet.conversations, facet.name)
        )

    def days(self, where: Where = _EVERYTHING) -> list[Day]:
        """Return the chosen conversations by the day of their last activity, in UTC or local, the
        first day first.
        """
        found: dict[int, list[int]] = {}
        for day, *numbers in self._tables.ask("figures_by_day", where):
            sums = found.setdefault(day, [0, 0, 0])
            found[day] = [
                total + (number or 0) for total, number in zip(sums, numbers, strict=True)
            ]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return [
            Day((epoch + timedelta(days=day)).date().isoformat(), *found[day])
            for day in sorted(found)
        ]
