"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command, existing_db, prices_hint, store_name
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, PricesFile
from foldlog._cli.outcome import Refused
from foldlog._cli.pager import paged
from foldlog._cli.selection import given_moment, pairs
from foldlog._cli.stores import listed, open_existing
from foldlog._cli.tables import COST, Column, print_rows
from foldlog._companions import companion_of
from foldlog._history.lease import ends_of_leases, to_resume
from foldlog._words.gist import compact, count, number_words, spent_words
from foldlog.eventstore import ConversationRow, Store
from foldlog.projections import Views

if TYPE_CHECKING:
    from datetime import datetime

    from foldlog._documents import ConversationDocument, FollowersDocument

_TOLD_MAX = 160
"""Characters of a format and a title. ``--json`` has the whole title."""
_SHOWN = 100
"""A list for people has this many conversations by default, and says how many there are."""
_FEW, _FEW_EVENTS = 50, 20_000
"""A list of up to this many conversations, or of conversations with up to this many events, is long by default."""

_PAGE = 1_000
"""A list of fewer conversations has each fork under its parent; a longer one is printed while it is read."""

_SORTS: dict[str, Callable[[ConversationRow], Any]] = {
    "id": lambda row: row.id.encode("utf-8", "surrogatepass"),
    "last": lambda row: row.updated_at,
}
_FIGURES = (
    *("activity", "started", "duration", "state", "events", "errors", "wait", "view", "prompt", "tokens", "cost"),
    *("condensations", "saved"),
)
"""Orders by figures."""
_OF_PLACE = ("program", "cwd", "branch", "model")
"""Attributes of an import that a list for people does not show."""
_OF_VIEW = ("sent_events", "sent_summaries", "tokens")
"""What a short list lacks of an overview."""
_COLUMNS = (*_SORTS, *_FIGURES)
_MORE = "-n N shows more, --sort last --reverse the newest first"
_NAIVE = " (local)"
"""Stands behind a time whose source names no zone."""


_Line = tuple["ConversationDocument", int]
"""A conversation, and the number of its ancestors that the list shows above it."""


def run(
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE", help="Your attributes to have: see foldlog attributes.", show_default="any"
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="TEXT", help="Only those whose id, title or format contains it, in any case."),
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Only those that a program wrote in this folder, or below it.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only those with events recorded, or imported, since: 2026-03-01, 2h.",
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help=f"{', '.join(_COLUMNS)}.", show_default="id")
    ] = "id",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The largest or newest first.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="Only the first N.",
            show_default=f"{_SHOWN}; with --json all",
        ),
    ] = None,
    long: Annotated[
        bool | None,
        typer.Option(
            "--long/--short",
            "-l/-s",
            help="With or without errors, tokens, condensations and cost: they take reading what is new.",
            show_default="long where the list is short",
        ),
    ] = None,
    to_be_resumed: Annotated[
        bool,
        typer.Option(
            "--to-resume", help="Only those that a worker left: open calls and no lease, or a lease that ended."
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that runtimes keep for themselves, such as shared states.")
    ] = False,
    followers: Annotated[
        bool,
        typer.Option("--followers", help="Of a PostgreSQL store: how far its followers are behind, and why."),
    ] = False,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """List the conversations of a store, or some of them: id, number of events, time of the last event, format and
    title.

    sent+sum. and ≈ tokens are the events and summaries that the model is sent now; errors, results that their source
    marks so. Tokens spent and cost are what calls of models tell, or the price of their tokens. A fork counts only
    what it did itself.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    if followers:
        return _list_followers(db)
    if sort not in _COLUMNS:
        raise Refused(f"--sort {sort!r} is not a column; give one of {', '.join(_COLUMNS)}")
    after = given_moment("--since", since)
    aside = _Aside()
    with open_existing(db) as store:
        rows: Iterator[ConversationRow] = listed(store)
        if not every:
            rows = aside.without_own(rows)
        if attributes:
            from foldlog._maintenance import ids_with  # which imports what writes audit databases

            with terminal.working("listing"):
                found = ids_with(store, pairs(attributes))
            rows = (row for row in rows if row.id in found)
        if here:
            rows = _here(store, rows)
        if match is not None:
            rows = _matching(store, rows, match.lower(), aside)
        if after is not None:
            rows = (row for row in rows if row.updated_at >= after)
        if to_be_resumed:
            rows = to_resume(store, Views(store), rows, lambda **of: terminal.unread(terminal.about(*of.values())))
        long = True if long is None and prices is not None else long
        if long is None and not as_json:
            rows, long = _is_short(rows, limit)
        sizes = bool(long or sort in _FIGURES)
        in_full = sizes and long is not False
        if sort in _SORTS and (sort != "id" or reverse):
            rows = iter(sorted(rows, key=_SORTS[sort], reverse=reverse))
        is_cut = limit is None and not as_json
        most = _SHOWN if is_cut else limit
        if sort in _FIGURES:
            rows = _sorted(store, aside, prices, rows, sort, reverse=reverse)
            described = (one for _, one in _described(store, aside, prices, islice(rows, most), sizes=True))
        else:
            described = (one for _, one in _described(store, aside, prices, islice(rows, most), sizes=sizes))
        if as_json:
            from foldlog._documents import ListDocument, streamed

            terminal.emit_list(ListDocument(db=existing_db(db), conversations=streamed(described)))
            return
        if not _print(described, sort, is_tree=sort == "id" and not reverse, in_full=in_full):
            _show_none(db, store, limit, ends_of_leases(store) if to_be_resumed else None, pairs(attributes or ()))
        if is_cut and (left := sum(1 for _ in rows)):
            terminal.note(f"{_SHOWN:,} of {_SHOWN + left:,} are shown: {_MORE}")
    aside.say(sort, with_costs=in_full or sort == "cost")


class _Aside:
    """What a list leaves out or does not know, and says below its lines.

    ``locked``    conversations whose figures need a key, with the problem
    ``unpriced``  of each conversation of unknown cost: its models without a price
    ``own``       the ids of those that runtimes keep for themselves
    ``unsorted``  how many have no value of what the list is sorted by
    """

    def __init__(self) -> None:
        self.locked: dict[str, str] = {}
        self.unpriced: list[set[str]] = []
        self.own: list[str] = []
        self.unsorted = 0

    def without_own(self, rows: Iterator[ConversationRow]) -> Iterator[ConversationRow]:
        """Yield the rows of conversations that no runtime keeps for itself."""
        for row in rows:
            if companion_of(row.id):
                self.own.append(row.id)
            else:
                yield row

    def say(self, sort: str, *, with_costs: bool) -> None:
        if self.unsorted:
            what = count(self.unsorted, "conversation")
            terminal.note(f"{what} cannot be sorted by {sort}: the last ones in either order")
        if self.own:
            terminal.note(f"{count(len(self.own), 'conversation')} that runtimes keep for themselves: --all shows them")
        if self.locked:
            problem = next(iter(self.locked.values()))
            terminal.note(f"the figures of {count(len(self.locked), 'conversation')} are not shown: {problem}")
        if with_costs and (named := [models for models in self.unpriced if models]):
            models = ", ".join(sorted({model for each in named for model in each}))
            what = f"{count(len(named), 'unknown cost')}: the models have no price"
            terminal.note(f"{what} ({models}): {prices_hint()}")
        if with_costs and (silent := self.unpriced.count(set())):
            terminal.note(f"{count(silent, 'unknown cost')}: no call records model and usage")


def _print(described: Iterator[ConversationDocument], sort: str, *, is_tree: bool, in_full: bool) -> bool:
    """Print the lines while they are read, a short list as a tree if asked. Return whether there are any."""
    lines = ((one, 0) for one in described)
    if not (page := list(islice(lines, _PAGE))):
        return False
    if is_tree and len(page) < _PAGE:
        page = _as_tree([one for one, _ in page])
    with paged():
        cells = _long_cells if in_full else partial(_short_cells, sort)
        print_rows(_columns(sort, in_full=in_full), map(cells, chain(page, lines)))
    return True


def _matching(store: Store, rows: Iterator[ConversationRow], text: str, aside: _Aside) -> Iterator[ConversationRow]:
    """Yield the conversations whose id, title or format contains a text in lower case, as the page finds them."""
    from foldlog._figures.stored import FiguresOfStore

    for row, one in FiguresOfStore(store).of(rows, whole=False):
        more = one.overview
        if more.problem is not None and more.needs_key:
            aside.locked[row.id] = more.problem
        if text in f"{more.title or ''} {row.id} {more.format or ''}".lower():
            yield row


def _here(store: Store, rows: Iterator[ConversationRow]) -> Iterator[ConversationRow]:
    """Yield the conversations that a program wrote in this folder, or below it."""
    from foldlog._figures.places import in_folder, places

    found = {*in_folder(places(store), os.path.realpath("."), below=True)}
    return (row for row in rows if row.id in found)


def _is_short(rows: Iterator[ConversationRow], limit: int | None) -> tuple[Iterator[ConversationRow], bool]:
    """Return whether the list is short enough to read events for each of its lines; and all rows."""
    first = list(islice(rows, _FEW + 1))
    wanted = first if limit is None else first[:limit]
    short = len(first) <= _FEW and sum(row.version for row in wanted) <= _FEW_EVENTS
    return chain(first, rows), short


def _described(
    store: Store, aside: _Aside, prices: Path | None, rows: Iterable[ConversationRow], *, sizes: bool
) -> Iterator[tuple[ConversationRow, ConversationDocument]]:
    from foldlog._documents import ConversationDocument
    from foldlog._figures.prices import Prices
    from foldlog._figures.spending import unpriced
    from foldlog._figures.stored import FiguresOfStore, document_of

    table = Prices(prices)
    for row, figures in FiguresOfStore(store).of(rows, whole=sizes):
        more = figures.overview
        if more.problem is not None and more.needs_key:
            aside.locked[row.id] = more.problem
        elif more.problem is not None:
            terminal.unread(terminal.about(row.id, more.problem))
        if not sizes:
            near = {name: value for name, value in more._asdict().items() if name not in _OF_VIEW}
            yield row, ConversationDocument.of_row(row, **near)
            continue
        one = document_of(row, figures, table)
        if one.spent and one.spent.cost is None:
            aside.unpriced.append(unpriced(figures.calls, table))
        yield row, one


def _sorted(
    store: Store, aside: _Aside, prices: Path | None, rows: Iterable[ConversationRow], sort: str, *, reverse: bool
) -> Iterator[ConversationRow]:
    """Yield conversations in the order of a figure, in either order those last of which it is not known, and then
    erased ones.
    """
    from foldlog._figures.prices import Prices
    from foldlog._figures.stored import FiguresOfStore

    there = {row.id: row for row in rows}
    figures = FiguresOfStore(store, prices=Prices(prices))
    with terminal.working("reading conversations"):
        figures.refresh()
        names, aside.unsorted = figures.sorted(sort, reverse=reverse, among=there)
    yield from (there.pop(name) for name in names if name in there)
    yield from (row for row in there.values() if row.erased_at is not None)


# -- for people -------------------------------------------------------------------------------------------------------


def _show_none(
    db: str, store: Store, limit: int | None, leased: Sequence[datetime] | None, attributes: Iterable[str]
) -> None:
    from foldlog._figures.stored import FiguresOfStore

    there = sum(1 for _ in listed(store))
    if there:
        why = "matches" if leased is None else "waits for a worker"
        why = "is listed: --limit is 0" if limit == 0 else why
        said = f"None of {count(there, 'conversation')} {why}."
        if leased:
            ends = leased[0].isoformat(timespec="seconds")
            said += (
                f" Still leased, perhaps by workers that were killed: {len(leased):,}; the first lease ends at {ends}."
            )
        unknown = {*attributes}
        for _, one in FiguresOfStore(store).of(listed(store), whole=False) if unknown else ():
            unknown.difference_update(one.overview.attributes or ())
        if unknown:
            named = ", ".join(sorted(unknown))
            how = command("attributes", "ID", "--set", "NAME=VALUE")
            said += (
                f" None has an attribute {named}: an application sets it, or '{how}'. --match finds titles and formats."
            )
    else:
        said = f"No conversations in {store_name(db)}. Import some: {command('import', 'PATH')}"
    terminal.say(said)


def _as_tree(listed: Sequence[ConversationDocument]) -> list[_Line]:
    """Return the lines with each fork under its parent, where the parent is one of them. A conversation that is newer
    than the fork has the id of the erased parent.
    """
    created = {one.conversation: one.created_at for one in listed}
    forks: dict[str | None, list[ConversationDocument]] = {}
    for one in reversed(listed):
        parent = one.parent if one.parent in created and created[one.parent] <= one.created_at else None
        forks.setdefault(parent, []).append(one)
    ordered, stack = list[_Line](), [(one, 0) for one in forks.pop(None, [])]
    while stack:
        one, depth = line = stack.pop()
        ordered.append(line)
        stack += [(fork, depth + 1) for fork in forks.pop(one.conversation, ())]
    is_whole = len(ordered) == len(listed)  # else damaged: a conversation is its own ancestor
    return ordered if is_whole else [(one, 0) for one in listed]


_NAME = (Column("conversation", least=12), Column("events", "right", may_go=True))
_ACTIVITY = Column("last activity (UTC)", may_go=True)
_SHORT = (*_NAME, Column("first recorded (UTC)", may_go=True), _ACTIVITY)
_ERRORS = Column("errors", "right", may_go=True)
_SENT, _TOKENS, _CONDENSED = (
    Column(heading, "right", may_go=True) for heading in ("sent+sum.", "≈ tokens", "condensed")
)
_SPENT = Column("tokens spent", "right", may_go=True)
_LONG = (*_NAME, _ACTIVITY, _ERRORS, _SENT, _TOKENS, _CONDENSED, _SPENT, COST)


_SORTED = {"events": _NAME[1], "activity": _ACTIVITY, "errors": _ERRORS, "tokens": _SPENT, "cost": COST}
"""The columns by which a list is sorted."""


def _columns(sort: str, *, in_full: bool) -> list[Column]:
    """Return the columns; that by which the list is sorted is there, and does not go."""
    kept = _SORTED.get(sort)
    shown = _LONG if in_full else _SHORT if kept is None or kept in _SHORT else (*_SHORT, kept)
    return [each._replace(may_go=False) if each is kept else each for each in shown]


def _short_cells(sort: str, line: _Line) -> list[str]:
    kept, (activity, below) = _SORTED.get(sort), _last_cells(line)
    more = [] if kept is None or kept in _SHORT else [_long_cells(line)[_LONG.index(kept)]]
    return [*_name_cells(line), line[0].created_at[:19].replace("T", " "), activity, *more, below]


def _long_cells(line: _Line) -> list[str]:
    one, _ = line
    if one.erased_at is not None or one.sent_events is None:
        sent = ""
    else:
        sent = f"{one.sent_events:,}" + (f" + {one.sent_summaries:,}" if one.sent_summaries else "")
    tokens, cost = "", spent_words(one.spent) if one.spent else ""
    if one.spent and one.spent.tokens is not None:
        tokens = number_words(one.spent.tokens)
    counted: list[Any] = [one.errors, one.condensations] if one.spent else []
    errors, condensed = map(number_words, counted) if counted else ("", "")
    view = "" if one.tokens is None else f"{one.tokens:,}"
    activity, below = _last_cells(line)
    return [*_name_cells(line), activity, errors, sent, view, condensed, tokens, cost, below]


def _name_cells(line: _Line) -> list[str]:
    one, depth = line
    left = "" if one.parent is None else f" (fork of {terminal.typed_id(one.parent)} at {one.parent_version})"
    name = "  " * depth + terminal.typed_id(one.conversation) + left
    return [name, "erased" if one.erased_at is not None else f"{one.version if one.events is None else one.events:,}"]


def _last_cells(line: _Line) -> list[str]:
    """Return when something happened last, and what stands below the line."""
    one, _ = line
    if one.erased_at is not None:
        return ["", ""]
    at = one.last_event_at or ""
    activity = at.replace("T", " ", 1)[:16]
    activity += "" if not at or at.endswith("+00:00") else _NAIVE
    return [activity, terminal.cut(_told(one), _TOLD_MAX)]


def _told(one: ConversationDocument) -> str:
    """Return the format and the title; for a conversation that cannot be read, why its figures are missing."""
    problem = "encrypted" if one.needs_key else one.problem
    from foldlog._formats.record import INCOMPLETE

    attributes = {name: value for name, value in (one.attributes or {}).items() if name != "title"}
    incomplete = attributes.pop(INCOMPLETE, "")
    parts = [
        one.format or "",
        f"({compact(incomplete)})" if incomplete else "",
        one.title or "",
        f"({problem})" if problem else "",
    ]
    named = [f"{name}={compact(value)}" for name, value in attributes.items() if name not in _OF_PLACE]
    return "  ".join([": ".join(part for part in parts if part), *named])


def _list_followers(db: str) -> None:
    """Show how far the followers of a PostgreSQL store lag, and which transaction holds them back."""
    from foldlog._copies import is_a_copy
    from foldlog._documents import FollowerDocument, FollowersDocument, HolderDocument
    from foldlog.eventstore import follower_status

    with open_existing(db) as store:
        status = follower_status(store)
    lags = [lag for lag in status.followers if not is_a_copy(lag.follower)]
    holder = status.held_by
    document = FollowersDocument.of(
        status,
        horizon=str(status.horizon),
        last_position=str(status.last_position),
        held_by=None if holder is None else HolderDocument.of(holder),
        synchronous_standby_names=status.standbys,
        followers=tuple(FollowerDocument.of(lag, position=str(lag.position)) for lag in lags),
    )
    terminal.answer(document, lambda: _show_followers(document))


def _show_followers(status: FollowersDocument) -> None:
    holder = status.held_by
    standbys = status.synchronous_standby_names or "no standby"
    terminal.say(f"a commit waits for: {standbys} (synchronous_commit {status.synchronous_commit})", wraps=True)
    held = (
        f"{count(status.held_back, 'event')} held back by a transaction {count(status.horizon_age, 'transaction')} old"
    )
    terminal.say(held if status.horizon_age else "nothing is held back", wraps=True)
    if holder is not None:
        terminal.say(
            f"  it is of {holder.application or '?'}, pid {holder.pid or '-'}, {holder.state}, and began "
            f"{holder.age_s:,.1f} s ago",
            wraps=True,
        )
    for lag in status.followers:
        terminal.say(f"follower {lag.follower}: {count(lag.events, 'event')} behind, {lag.seconds:,.1f} s", wraps=True)
