"""Choose the conversations of a list, and describe them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import prices_hint
from foldlog._app.cli.options import LISTED_MAX
from foldlog._app.cli.selection import pairs
from foldlog._app.cli.stores import iter_rows
from foldlog._history.to_resume import to_resume
from foldlog._reports.answers.conversations import ConversationDocument
from foldlog._reports.figures.documents import document_of
from foldlog._reports.figures.of_store import PAGE, FiguresOfStore
from foldlog._reports.figures.overview import NATIVE
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.search_line import chosen_by, is_filter
from foldlog._reports.figures.spending import models_without_price
from foldlog._reports.figures.stats import Behind
from foldlog._reports.figures.tables import Where
from foldlog._reports.words.gist import count
from foldlog.eventstore import ConversationRow, CorruptEvent, Store
from foldlog.eventstore.lists.pages import check_no_key_is_missing
from foldlog.eventstore.times import EventTime, in_utc, parse_event_time
from foldlog.projections.conversations.companions import companion_of

if TYPE_CHECKING:
    from datetime import datetime

_FEW = 50
_FEW_EVENTS = 20_000
"""By default, a list shows the columns of ``--long`` if it has at most ``_FEW`` conversations, and
if these have at most this number of events in total.
"""
_COUNTED = 10_000
"""The maximum number of conversations that a list counts but does not show."""
_OTHER_FILTERS = "; to name a store, use --db STORE; to find ids and titles, use --match TEXT"


class Filters(NamedTuple):
    """Which conversations a list has.

    ``match``          a text in the id, the title or the format
    ``here``           only conversations of the current folder
    ``after``          only conversations that were active from this time on
    ``to_be_resumed``  only conversations that a worker left
    ``every``          also conversations that runtimes use internally
    ``is_complete``    count all new events first
    """

    words: Sequence[str] = ()
    """The filters on the command line: attributes such as ``team=blue``, and facts such as
    ``has:error`` and ``tool:Bash``.
    """
    match: str | None = None
    here: bool = False
    after: datetime | None = None
    to_be_resumed: bool = False
    every: bool = False
    is_complete: bool = False

    @property
    def attributes(self) -> list[str]:
        """Return the filters by attributes."""
        return [word for word in self.words if not is_filter(word)]

    @property
    def line(self) -> str:
        """Return the filters by facts as a search line."""
        return " ".join(filter(is_filter, self.words))


class ListOptions(NamedTuple):
    """How a list shows its conversations.

    ``limit``        the maximum number of conversations, or None for all or the first hundred
    ``long``         whether a line shows more figures, or None for a short list only
    ``is_complete``  count all new events first
    """

    sort: str
    reverse: bool
    limit: int | None
    long: bool | None
    is_complete: bool = False

    @property
    def is_sorted(self) -> bool:
        """Return whether a figure decides the order."""
        return self.sort != "id" or self.reverse

    @property
    def is_cut(self) -> bool:
        """Return whether the list is for a person, who reads at most ``LISTED_MAX`` lines."""
        return self.limit is None and not terminal.prints_json() and terminal.has_edge()

    @property
    def most(self) -> int | None:
        """Return the maximum number of conversations, or None for all."""
        return LISTED_MAX if self.is_cut else self.limit


class ListNotes:
    """The facts for the notes below a list: which conversations it leaves out, and which figures
    are unknown.

    ``locked``    for each conversation whose key is missing, the problem
    ``unpriced``  for each conversation whose cost is unknown, its models without a price
    ``own``       the number of conversations that runtimes use internally
    ``left``      the number of conversations beyond the limit, if SQL selected the first rows
    ``unsorted``  the number of conversations without the figure that sorts the list
    ``behind``    what the figures lack by which the filters chose conversations
    """

    def __init__(self) -> None:
        self.locked: dict[str, str] = {}
        self.unpriced: list[set[str]] = []
        self.own = 0
        self.left = 0
        self.unsorted = 0
        self.behind = Behind(0, None)

    def without_own(self, rows: Iterator[ConversationRow]) -> Iterator[ConversationRow]:
        """Yield the rows of conversations. Conversations that runtimes use internally are left out,
        and are counted in ``own``.
        """
        for row in rows:
            if companion_of(row.id):
                self.own += 1
            else:
                yield row

    def say_cut(self, rows: Iterator[ConversationRow]) -> None:
        """Print the number of conversations if the list does not show all ``rows``."""
        rest_count = self.left or sum(1 for _ in islice(rows, _COUNTED))
        if rest_count:
            total = f"{LISTED_MAX + rest_count:,}{' or more' if rest_count == _COUNTED else ''}"
            how = "-n N shows more, and --sort recorded --reverse begins with the newest"
            terminal.note(f"{LISTED_MAX:,} of {total} are shown: {how}")

    def say(self, sort: str, *, with_costs: bool) -> None:
        """Print the notes below the list."""
        if self.unsorted:
            what = count(self.unsorted, "conversation")
            terminal.note(f"{what} without a value for --sort {sort} always come last")
        if self.own:
            terminal.note(
                f"not shown: {count(self.own, 'conversation')} for a runtime's own use; --all shows"
                " all"
            )
        if self.locked:
            problem = next(iter(self.locked.values()))
            locked = count(len(self.locked), "conversation")
            terminal.note(f"of {locked}, only what needs no key is shown: {problem}")
        if with_costs:
            self._say_costs()

    def _say_costs(self) -> None:
        """Print why costs are unknown."""
        named = [models for models in self.unpriced if models]
        if named:
            models = ", ".join(sorted(set().union(*named)))
            what = f"{count(len(named), 'unknown cost')}: the models have no price"
            terminal.note(f"{what} ({models}): {prices_hint()}")
        silent = len(self.unpriced) - len(named)
        if silent:
            terminal.note(
                f"{count(silent, 'unknown cost')}: no recorded call has a model and usage"
            )


def select_rows(store: Store, filters: Filters, notes: ListNotes) -> Iterator[ConversationRow]:
    """Yield the conversations that pass all filters."""
    rows: Iterator[ConversationRow] = iter_rows(store)
    if not filters.every:
        rows = notes.without_own(rows)
    groups = [*_chosen_ids(store, filters, notes)]
    rows = (row for row in rows if all(row.id in ids for ids in groups))
    if filters.match is not None:
        rows = _matching(store, rows, filters.match.lower(), notes)
    if filters.after is not None:
        rows = _active_since(store, rows, filters.after)
    if filters.to_be_resumed:
        from foldlog.projections import Views

        rows = to_resume(
            store, Views(store), rows, lambda **of: terminal.unread(terminal.about(*of.values()))
        )
    return rows


def _chosen_ids(store: Store, filters: Filters, notes: ListNotes) -> Iterator[set[str]]:
    """Yield the ids of the conversations that match the attributes, the facts such as
    ``has:error``, and the folder.
    """
    if filters.attributes:
        # slow to import: it loads the code for audit databases
        from foldlog._privacy.erasing import ids_with

        damaged = dict[str, CorruptEvent]()
        with terminal.working("listing"):
            ids = ids_with(store, pairs(filters.attributes, _OTHER_FILTERS), damaged)
        _say_damaged(damaged, "may have the attributes too")
        yield ids
    if filters.line:
        from foldlog._app.server.notes import conversations_with_notes

        where = chosen_by(
            filters.line,
            find_ids=lambda words: (),
            noted=lambda: conversations_with_notes(store),
        )
        if where.conditions():
            check_no_key_is_missing(store.database, "more conversations may match")
        figures = FiguresOfStore(store, is_quick=not filters.is_complete)
        with terminal.working("reading conversations"):
            figures.refresh()
        notes.behind = figures.behind()
        yield figures.ids(where._replace(companions=True))
    if filters.here:
        from foldlog._reports.figures.source_places import in_folder, places

        damaged = dict[str, CorruptEvent]()
        yield {*in_folder(places(store, damaged), os.path.realpath("."), below=True)}
        _say_damaged(damaged, "may be of this folder too")


def _say_damaged(damaged: Mapping[str, CorruptEvent], doubt: str) -> None:
    """Name each conversation that a filter left out because its source is damaged."""
    for name, error in damaged.items():
        terminal.unread(
            f"conversation {name!r} {doubt}, but its source is damaged ({error.problem})"
        )


def _active_since(
    store: Store, rows: Iterator[ConversationRow], since: datetime
) -> Iterator[ConversationRow]:
    """Yield the conversations whose last event is not older than ``since``.

    An import whose source has no times is left out. For any other conversation without a time, use
    the time when it was stored.
    """
    for row, figures in FiguresOfStore(store).of(rows, whole=False):
        more = figures.overview
        at = parse_event_time(more.last_event_at)
        if at is None and more.format in (None, NATIVE):
            at = EventTime(row.updated_at)
        if at is not None and in_utc(at) >= since:
            yield row


def _matching(
    store: Store, rows: Iterator[ConversationRow], text: str, notes: ListNotes
) -> Iterator[ConversationRow]:
    """Yield the conversations whose id, title or format contains ``text``. ``text`` is in lower
    case. The page of conversations searches in the same three fields.
    """
    for row, figures in FiguresOfStore(store).of(rows, whole=False):
        more = figures.overview
        if more.problem is not None and more.needs_key:
            notes.locked[row.id] = more.problem
        if text in f"{more.title or ''} {row.id} {more.format or ''}".lower():
            yield row


class ListResult(NamedTuple):
    """The conversations of a list, which are read while they are printed.

    ``documents``  the first conversations, up to the limit of the list
    ``rows``       the conversations beyond the limit
    ``is_long``    whether a line shows more figures (``--long``)
    ``figures``    say what the figures of the list lack, once the documents were read
    """

    documents: Iterator[ConversationDocument]
    rows: Iterator[ConversationRow]
    is_long: bool
    figures: FiguresOfStore

    def behind(self, notes: ListNotes) -> Behind:
        """Return what the figures lack that chose, sorted or described the conversations."""
        return max(self.figures.behind(), notes.behind, key=lambda behind: behind.conversations)


def read_list(
    store: Store, filters: Filters, options: ListOptions, table: Prices, notes: ListNotes
) -> ListResult:
    """Return the list, of which nothing was read yet."""
    figures = FiguresOfStore(store, prices=table, is_quick=not options.is_complete)
    rows, is_long = _choose_rows(store, figures, filters, options, notes)
    sizes = is_long or options.is_sorted
    first = islice(rows, options.most)
    documents = _describe_rows(notes, figures, table, first, sizes=sizes)
    return ListResult(documents, rows, is_long, figures)


def _choose_rows(
    store: Store, figures: FiguresOfStore, filters: Filters, options: ListOptions, notes: ListNotes
) -> tuple[Iterator[ConversationRow], bool]:
    """Return the rows, and whether the list shows more figures (``--long``)."""
    if options.is_sorted:
        rows = _sorted_by_figure(store, notes, figures, filters, options)
        is_for_people = terminal.has_edge() and not terminal.prints_json()
        return rows, is_for_people if options.long is None else options.long
    rows = select_rows(store, filters, notes)
    if options.long is not None or terminal.prints_json() or not terminal.has_edge():
        return rows, bool(options.long)
    return _is_short(rows, options.limit)


def _is_short(
    rows: Iterator[ConversationRow], limit: int | None
) -> tuple[Iterator[ConversationRow], bool]:
    """Return all rows, and whether the list has so few conversations and events that it shows the
    columns of ``--long``.
    """
    first = list(islice(rows, _FEW + 1))
    shown_rows = first if limit is None else first[:limit]
    short = len(first) <= _FEW and sum(row.version for row in shown_rows) <= _FEW_EVENTS
    return chain(first, rows), short


def _describe_rows(
    notes: ListNotes,
    stored: FiguresOfStore,
    table: Prices,
    rows: Iterable[ConversationRow],
    *,
    sizes: bool,
) -> Iterator[ConversationDocument]:
    """Yield the documents of conversations. If ``sizes`` is false, a document has no figures about
    the View and the calls.
    """
    described = stored.of(rows, whole=sizes)
    while page := list(islice(described, PAGE)):
        tasks = stored.tasks([figures for _, figures in page]) if sizes else {}
        for row, figures in page:
            more = figures.overview
            if more.problem is not None and more.needs_key:
                notes.locked[row.id] = more.problem
            elif more.problem is not None:
                terminal.unread(terminal.about(row.id, more.problem))
            if not sizes:
                yield ConversationDocument.of_row(
                    row,
                    attributes=more.attributes,
                    title=more.title,
                    format=more.format,
                    events=more.events,
                    last_event_at=more.last_event_at,
                    problem=more.problem,
                    needs_key=more.needs_key,
                )
                continue
            document = document_of(row, figures, table, tasks.get(row.id, UNSET))
            if document.spent and document.spent.cost is None:
                notes.unpriced.append(models_without_price(figures.calls, table))
            yield document


def _sorted_by_figure(
    store: Store, notes: ListNotes, figures: FiguresOfStore, filters: Filters, options: ListOptions
) -> Iterator[ConversationRow]:
    """Yield conversations sorted by a figure. Conversations without the figure come after all
    others, and erased conversations come last.

    If the list has a limit and no filter, SQL selects the first rows.
    """
    sort = options.sort
    reverse = options.reverse
    limit = options.most
    with terminal.working("reading conversations"):
        figures.refresh()
    if limit is not None and filters == Filters(every=filters.every):
        page = figures.page(
            Where(companions=filters.every), sort=sort, reverse=reverse, limit=limit
        )
        notes.unsorted = page.unknown
        is_cut = len(page.rows) == limit
        notes.left = page.total - limit if is_cut else 0
        if is_cut and not filters.every:
            notes.own = figures.count() - page.total
        yield from (row for row, _ in page.rows)
        other_rows: Iterator[ConversationRow] = iter(())
        if not is_cut:
            other_rows = select_rows(store, filters, notes)
    else:
        there = {row.id: row for row in select_rows(store, filters, notes)}
        names, notes.unsorted = figures.ids_in_order(sort, reverse=reverse, among=there)
        yield from (there.pop(name) for name in names if name in there)
        other_rows = iter(there.values())
    yield from (row for row in other_rows if row.erased_at is not None)
