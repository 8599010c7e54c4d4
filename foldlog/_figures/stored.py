"""Lists and totals of the conversations of a store, from the tables of figures, which are brought up to date first."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from foldlog._documents import ConversationDocument, ModelDocument, SavingsDocument
from foldlog._figures.counting import Figures, figures_of
from foldlog._figures.overview import Overview, near_the_ends
from foldlog._figures.prices import Prices
from foldlog._figures.sizes import event_tokens
from foldlog._figures.spending import priced, spent_by, sum_up
from foldlog._figures.stats import TOTALS, Stats
from foldlog._figures.tables import (
    CODE,
    NO_CALLS,
    SAVED,
    FigureTables,
    StoredFigures,
    Where,
    check_sort,
    put_figures,
    put_replies,
    text_of,
)
from foldlog._formats.summed_calls import Calls, add_up
from foldlog._kept import kept_records, value_of
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.inside import Record, WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import as_text, utf8
from foldlog.projections import Views

Row = tuple[ConversationRow, StoredFigures]

_PROJECTION = "figures"
"""Under which name the store keeps what figures are counted on from."""
_PAGE = 1_000
_TOGETHER = 200
"""Conversations in one transaction."""
_FEW = 100
"""Conversations that are asked for one by one."""
_ALL = 2**31
_EVERYTHING = Where()


class Page(NamedTuple):
    """Some of the chosen conversations in an order, and how many are chosen."""

    rows: Sequence[Row]
    total: int


class Facet(NamedTuple):
    """How many of the chosen conversations have a name in their figures, and the sum of what is counted under it."""

    what: str
    name: str
    conversations: int
    number: int


class Day(NamedTuple):
    """The chosen conversations whose last activity was on a day, their errors, and how many ended with one."""

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class FiguresOfStore:
    """The figures of the conversations of a store. Thread-safe.

    Call ``refresh`` or ``bring_up_to_date`` first: a question is answered from what is counted. Their cost: where the
    store has changed since, a look at each conversation's version, and what ``figures_of`` costs of each that has
    changed, once. Cost of a question: SQL over the rows of the chosen conversations.
    """

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        prices: Prices | None = None,
        *,
        on_events: Callable[[int], object] = lambda count: None,
    ) -> None:
        """``prices`` are for calls that tell no cost; without them those of a table that is installed."""
        self._store, self._views, self._on_events = store, views or Views(store), on_events
        self._prices = prices or Prices()
        self._tables = FigureTables(store.database)
        self._lock = threading.RLock()
        self._seen: int | None = None
        self.missing = 0
        self._aside: dict[str, tuple[ConversationRow, Figures]] = {}
        """The figures that the store does not keep, or not yet, with the conversations as they were then."""

    # -- brought up to date --------------------------------------------------------------------------------------------

    def refresh(self, most: int | None = None) -> int:
        """Count conversations that are not counted as they are now, at ``most`` this many. Return how many are left.
        Until they are counted, sums are of their last figures; ``missing`` of them have none.
        """
        with self._lock:
            version = self._store.database.data_version()
            if version == self._seen:
                return 0
            self._write_aside()
            to_count = self._tables.to_count()
            waiting = [row for row in self._rows(to_count) if not self._is_aside(row)]
            counted, left = waiting[:most], [row.id for row in waiting[len(waiting[:most]) :]]
            self._count(counted)
            self._read_replies()
            self.missing = sum(to_count[name] for name in left)
            self._seen = version if not left else None
            return len(left)

    def bring_up_to_date(self, where: Where = _EVERYTHING) -> None:
        """Count the chosen conversations that are not counted as they are now."""
        if where.only is None:
            self.refresh()
            return
        rows = (self._store.conversation(name, pending=True) for name in where.only)
        deque(self.of(rows), 0)
        if len(where.only) > 1:
            with self._lock:
                self._read_replies()

    def _rows(self, names: Iterable[str]) -> Iterator[ConversationRow]:
        for name in names:
            with suppress(ConversationNotFound):  # since it was listed
                row = self._store.conversation(name, pending=True)
                if row.erased_at is None:
                    yield row

    def _count(self, rows: Iterable[ConversationRow]) -> None:
        """Count conversations, and have the store keep their figures."""
        ahead = iter(rows)
        while some := list(islice(ahead, _TOGETHER)):
            counted = {row.id: (row, figures) for row in some if (figures := self._counted(row)) is not None}
            written = self._written(counted)
            for name, (row, figures) in counted.items():
                if name not in written:
                    self._put_aside(row, figures)

    def _read_replies(self) -> None:
        """Read what replies used that several histories have, so that totals count each once. Where the store cannot
        keep it, these conversations are counted in memory. Cost: the hashes of all replies, and those histories once.
        """
        database, keys = self._store.database, self._store.database.settings.keys
        to_read = self._tables.replies_to_read()
        if not to_read:
            return
        from foldlog._figures.of_sources import replies_of_source  # loads all formats

        for key, hashes in to_read.items():
            found = database.recorder.query(partial(database.find_key, key=key))
            if found is None or found.id in self._aside:
                continue
            try:
                row = self._store.conversation(found.id, pending=True)
                if row.pending:
                    used = replies_of_source(self._store, found.id, {*hashes})
                else:
                    used = (self._counted(row) or Figures()).replies
                data_key = database.codec_of(found).data_key
            except EventStoreError:  # the list names the problem
                continue
            replies = {hashed: used.get(hashed, NO_CALLS) for hashed in hashes}
            write = partial(put_replies, found=found, data_key=data_key, keys=keys, replies=replies)
            if not database.recorder.offer(write):
                figures = self._counted(row)
                if figures is not None:
                    figures.replies |= replies
                    self._put_aside(row, figures)

    def _counted(self, row: ConversationRow) -> Figures | None:
        """Return the figures of a conversation as it is now; None where it was erased since it was listed."""
        try:
            if row.pending:
                from foldlog._figures.of_sources import pending_figures  # loads all formats

                figures = pending_figures(self._store, row.id)
                figures.version = row.version
                return figures
            before = kept_records(self._store, _PROJECTION, row.id, row.id).get(row.id, (0, None))[1]
            known = None if before is None or before.code != CODE else value_of(before.body, Figures)
            return figures_of(self._store, self._views, row, known, on_events=self._on_events)
        except (ConversationErased, ConversationNotFound):
            return None
        except EventStoreError as error:
            return Figures(
                row.version, overview=Overview(problem=str(error), needs_key=isinstance(error, KeyUnavailable))
            )

    def _written(self, counted: Mapping[str, tuple[ConversationRow, Figures]]) -> set[str]:
        """Write figures, and return whose were written. Others are not: another process writes, the store only reads,
        its disk is full, or a conversation has changed or is still to be encrypted.
        """
        database, written = self._store.database, set[str]()
        sound = {name: each for name, each in counted.items() if each[1].is_sound}

        def write(transaction: Transaction) -> None:
            written.clear()
            for name in sorted(sound, key=utf8):
                with suppress(ConversationErased, CorruptEvent, KeyUnavailable):
                    found = database.find(transaction, name, pending=True)
                    row, figures = sound[name]
                    if found is None or (found.sealed_key is None and database.settings.keys is not None):
                        continue
                    now = found.version, (found.head or b"").hex(), found.redactions, found.pending
                    if now != (row.version, row.head, row.redactions, row.pending):
                        continue
                    writing = WriteTransaction(transaction, found, database)
                    if not found.pending:
                        body = json.dumps(to_builtins(figures.to_count_on(), str_keys=True)).encode()
                        record = Record(row.version, CODE, body)
                        writing.put_records(_PROJECTION, [record], replace_all=True)
                    put_figures(transaction, found, database.codec_of(found).data_key, database.settings.keys, figures)
                    writing.end()
                    written.add(name)

        if not sound or not database.recorder.offer(write):
            return set()
        for name in written:
            self._aside.pop(name, None)
            self._tables.forget_aside(name)
        return written

    def _write_aside(self) -> None:
        """Have the store keep what it could not keep before."""
        if self._aside and self._store.database.recorder.writable:
            self._written(self._aside)

    def _is_aside(self, row: ConversationRow) -> bool:
        return row.id in self._aside and self._aside[row.id][0] == row

    def _put_aside(self, row: ConversationRow, figures: Figures) -> None:
        database = self._store.database
        found = database.recorder.query(lambda reader: database.find(reader, row.id, pending=True))
        if found is not None and found.erasure is None:
            self._aside[row.id] = row, figures
            self._tables.put_aside(found._replace(version=row.version), figures)

    # -- conversations -------------------------------------------------------------------------------------------------

    def of(self, rows: Iterable[ConversationRow], *, whole: bool = True) -> Iterator[Row]:
        """Yield each conversation with its figures, in this order; unless ``whole``, of those that are not counted as
        they are now an overview alone. One that was erased since it was listed is yielded as an erased one.
        """
        ahead = iter(rows)
        with self._lock:
            self._write_aside()
        while page := list(islice(ahead, _PAGE)):
            there = self._there(page)
            missing = [row for row in page if row.erased_at is None and row.id not in there]
            if whole and missing:
                with self._lock:
                    self._count(missing)
                there |= self._there(missing)
            calls = self._tables.of_keys([figures.key for figures in there.values()]) if whole else {}
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
            and (row.id not in self._aside or self._is_aside(row))
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
        """Return ``limit`` of the chosen conversations after the first ``start`` of them, in the order of a figure;
        unknown ones come last in either order. Raises ``InvalidArgument`` for another sort than those of ``SORTS``.
        """
        found = self._sorted(where, sort, reverse=reverse, most=start + limit)
        keys = [key for key, *_ in found[start:]]
        figures = self._tables.of_keys(keys)
        rows = [(self._row(figures[key]), figures[key]) for key in keys if key in figures]
        return Page([(row, one) for row, one in rows if row is not None], self.count(where))

    def sorted(self, sort: str, *, reverse: bool, among: Collection[str]) -> tuple[list[str], int]:
        """Return the ids of these conversations in the order of a figure, and of how many of them it is not known."""
        found = self._sorted(_EVERYTHING, sort, reverse=reverse, most=_ALL)
        named = [(as_text(name), figure) for _, figure, name in found]
        chosen = [(name, figure) for name, figure in named if name in among]
        return [name for name, _ in chosen], sum(figure is None for _, figure in chosen)

    def _sorted(self, where: Where, sort: str, *, reverse: bool, most: int) -> Sequence[Sequence[Any]]:
        """Return the key of each of the first ``most`` chosen conversations in this order, its figure, and its id."""
        check_sort(sort)
        direction = -1 if reverse else 1
        if sort == "cost":
            found = self._tables.ask("figures_by_cost", where, direction, most, self._price_rows(where))
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

    def count(self, where: Where = _EVERYTHING) -> int:
        """Return how many conversations are chosen, of those that are counted."""
        return sum(columns[1] for columns in self._tables.ask("figure_sums", where))

    def needs_key(self, where: Where = _EVERYTHING) -> int:
        """Return how many of the chosen conversations are not counted because their keys are not given."""
        aside = self._chosen_aside(where)
        return sum(figures.overview.needs_key for figures in aside)

    # -- totals --------------------------------------------------------------------------------------------------------

    def totals(self, where: Where = _EVERYTHING) -> Stats:
        """Return the totals of the chosen conversations. A reply that several of them have counts once."""
        stats = Stats()
        for columns in self._tables.ask("figure_sums", where):
            stats.add_sums(*columns)
        for what, name, number in self._named(self._tables.ask("figure_totals", where, json.dumps(TOTALS))):
            stats.add_count(what, name, number)
        calls = self._calls(where)
        stats.models = priced(calls, self._prices)
        stats.unpriced = {call.model for call in calls if self._has_no_price(call)}
        stats.without_cost = self._without_cost(where, stats.unpriced)
        stats.findings = self._findings(where)
        return stats

    def _named(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str, float | None]]:
        for what, name, key, _, number in rows:
            yield text_of(what), self._tables.name(name, key), number

    def _calls(self, where: Where) -> list[Calls]:
        found = self._tables.ask("figure_spending", where)
        return add_up(call for key, *columns in found if (call := self._tables.calls(key, columns)).calls > 0)

    def _has_no_price(self, call: Calls) -> bool:
        return call.cost is None and call.tokens > 0 and self._prices.cost(call.model, call.usage, call.above) is None

    def _without_cost(self, where: Where, unpriced: Iterable[str]) -> int:
        names = json.dumps([each for model in unpriced for each in self._tables.alike(model)])
        return sum(number for (number,) in self._tables.ask("figures_without_cost", where, names))

    def _findings(self, where: Where) -> list[str]:
        """Return what could not be read of the chosen conversations."""
        return [finding for figures in self._chosen_aside(where) for finding in figures.findings]

    def _chosen_aside(self, where: Where) -> list[StoredFigures]:
        """Return the figures of chosen conversations that the store does not keep."""
        keys = {*self._tables.aside.values()}
        chosen = self._tables.ask("figures_sorted", where, "id", 1, _ALL) if keys else []
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
        whats: Sequence[str] = ("state", "program", "tool errors", "model", "attribute"),
    ) -> list[Facet]:
        """Return how many of the chosen conversations have each state, program, tool with errors, model and attribute,
        the most frequent first.
        """
        wanted, found = json.dumps(whats), dict[tuple[str, str], list[float]]()
        for what, name, key, conversations, number in self._tables.ask("figure_totals", where, wanted):
            if number:
                sums = found.setdefault((text_of(what), self._tables.name(name, key)), [0, 0])
                sums[0] += conversations
                sums[1] += number
        facets = [Facet(*named, int(count), int(number)) for named, (count, number) in found.items()]
        return sorted(facets, key=lambda facet: (whats.index(facet.what), -facet.conversations, facet.name))

    def days(self, where: Where = _EVERYTHING) -> list[Day]:
        """Return the chosen conversations by the day of their last activity, in UTC or local, the first day first."""
        found: dict[int, list[int]] = {}
        for day, *numbers in self._tables.ask("figures_by_day", where):
            sums = found.setdefault(day, [0, 0, 0])
            found[day] = [total + (number or 0) for total, number in zip(sums, numbers, strict=True)]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return [Day((epoch + timedelta(days=day)).date().isoformat(), *found[day]) for day in sorted(found)]


def document_of(row: ConversationRow, figures: StoredFigures, prices: Prices) -> ConversationDocument:
    """Return a conversation with its figures. Of an erased one they are None, and unknown ones too."""
    fields: dict[str, Any] = {**figures.overview._asdict(), "errors": None, "condensations": None, "spent": None}
    if row.erased_at is None:
        for name in ("errors", "last_prompt_tokens", "longest_wait_s", "tokens_saved", "state", "first_error"):
            fields[name] = getattr(figures, name)
        fields["first_event_at"] = None if figures.first_at is None else figures.first_at.isoformat()
        fields["context"] = tuple(figures.context)
        if figures.is_sound:
            fields["condensations"] = figures.condensations
            fields["spent"] = spent_by(figures.calls, prices)
    return ConversationDocument.of_row(row, **fields)


def models_of(store: Store, conversation: str, prices: Prices) -> tuple[ModelDocument, ...]:
    """Return the calls of one conversation by model, those of most tokens first; nothing where an event cannot be read.
    Cost: see ``FiguresOfStore.of``.
    """
    ((_, figures),) = FiguresOfStore(store).of([store.conversation(conversation, pending=True)])
    by_model: dict[str, ModelDocument] = {}
    for calls in priced(figures.calls, prices).values() if figures.is_sound else ():
        sum_up(by_model, {calls.model: replace(calls, day="")})
    return tuple(sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model)))


def collect_stats(
    store: Store,
    conversations: Sequence[str] | None,
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
    prices: Prices | None = None,
) -> Stats:
    """Return the figures of conversations, None for all. A fork counts what it did itself. An event that cannot be read
    is a finding, and the rest is counted.

    Calls that tell no cost are counted at ``prices``, else at those of a table that is installed. Raises
    ``ConversationNotFound``, ``ConversationErased``, ``KeyUnavailable``. Cost: see ``FiguresOfStore``; of one
    conversation alone also the sizes of its Views, every event once.
    """
    figures = FiguresOfStore(store, views, prices, on_events=on_events)
    rows = None if conversations is None else [_existing(store, each) for each in conversations]
    _check_keys(store, conversations)
    where = Where(only=conversations)
    figures.bring_up_to_date(where)
    stats = figures.totals(where)
    if rows is not None and len(rows) == 1 and not rows[0].pending:
        try:
            stats.view_tokens = views.lifetimes(rows[0].id, event_tokens).sizes
        except EventStoreError as error:
            problem = f"conversation {rows[0].id!r}: the sizes of its View are not counted: {error}"
            stats.findings += [problem] if problem not in stats.findings else []
    return stats


def _check_keys(store: Store, conversations: Sequence[str] | None) -> None:
    """Raise ``KeyUnavailable`` where one of these conversations is encrypted, and its key is not given."""
    database, keys = store.database, store.database.settings.keys
    if {*database.recorder.value("key_ids").split()} <= {*(keys.names if keys else ())}:
        return
    names = [row.id for row in store.iter_conversations()] if conversations is None else conversations
    for name in names:
        found = database.recorder.query(partial(database.find, conversation=name, pending=True))
        if found is not None and found.erasure is None:
            database.codec_of(found)


def _existing(store: Store, conversation: str) -> ConversationRow:
    row = store.conversation(conversation, pending=True)
    if row.erased_at is not None:
        store.version(conversation)  # raises: of an erased one nothing is counted
    return row
