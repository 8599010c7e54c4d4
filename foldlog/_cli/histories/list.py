"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command, store_name
from foldlog._cli.histories.attributes import pairs
from foldlog._cli.maintenance.followers import list_followers
from foldlog._cli.mistakes import is_like_a_store
from foldlog._cli.moments import given_moment, moment_words
from foldlog._cli.options import DEFAULT_DB, AsJson, Db
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.pager import paged
from foldlog._cli.stores import listed, open_existing
from foldlog._cli.tables import padded
from foldlog._histories import Histories
from foldlog._words.gist import UNLIMITED, compact, count
from foldlog.eventstore import ConversationRow, Store

if TYPE_CHECKING:
    from foldlog._documents import ConversationDocument
    from foldlog._reports.overview import Overview

_ROOMY = 80
"""Columns of a terminal that shows all columns of the list."""
_PAGE = 1_000
"""The number of conversations that are laid out together: the widest of them gives the width of each column."""
_GAP = "  "
_TOLD_MAX = 100
"""Characters of a format and a title where the output has no width. ``--json`` has the whole title."""
_FEW, _FEW_EVENTS = 50, 20_000
"""A list of up to this many conversations, or of conversations with up to this many events, is long by default."""

_SORTS: dict[str, Callable[[Any], Any]] = {
    "id": lambda line: line.row.id.encode("utf-8", "surrogatepass"),
    "events": lambda line: line.row.version,
    "first": lambda line: line.row.created_at,
    "last": lambda line: line.row.updated_at,
    "sent": lambda line: _number(line.more.sent_events) + _number(line.more.sent_summaries),
    "tokens": lambda line: _number(line.more.tokens),
    "condensations": lambda line: _number(line.more.condensations),
    "activity": lambda line: (line.more.last_event_at or "").replace("T", " "),
}
_OF_LONG = {"sent", "tokens", "condensations", "activity"}
"""Sorts that need the columns of a long list."""


class _Line(NamedTuple):
    row: ConversationRow
    more: Overview | None = None
    depth: int = 0
    """The number of its ancestors that the list shows above it."""


def run(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Attributes to have.", show_default="any")
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="Only conversations whose id contains this text.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only those with events recorded since: 2026-03-01, 2h."),
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help=f"One of {', '.join(_SORTS)}.", show_default="id")
    ] = "id",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The largest or newest first.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="Only the first N.", show_default="all")
    ] = None,
    long: Annotated[
        bool | None,
        typer.Option(
            "--long/--short",
            "-l/-s",
            help="With or without title, format, events sent, tokens, condensations and last activity: these columns "
            "take reading events.",
            show_default="long where the list is short",
        ),
    ] = None,
    followers: Annotated[
        bool,
        typer.Option("--followers", help="Of a PostgreSQL store: how far its followers are behind, and why."),
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """List the conversations of a store, or those that have all of these attributes: id, number of events, times of the
    first and last event.

    The first list by attributes reads each conversation once; later ones read those with new events. A long write
    transaction anywhere on a PostgreSQL server holds back all followers of its stores (--followers). Its age is the
    number of transactions that began after it.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    if followers:
        return list_followers(db, as_json=as_json)
    if sort not in _SORTS:
        raise Refused(f"--sort {sort!r} is not a column; give one of {', '.join(_SORTS)}")
    if sort in _OF_LONG and long is False:
        raise Refused(f"--sort {sort} needs the columns of --long; leave out --short")
    for each in filter(is_like_a_store, attributes or ()):
        raise Refused(f"an option names the store: '{command('list', '--db', each)}'")
    after = given_moment("--since", since)
    locked: list[str] = []
    with open_existing(db) as store:
        rows: Iterator[ConversationRow] = listed(store)
        if attributes:
            with terminal.working("listing"):
                found = _having(store, pairs(attributes))
            rows = (row for row in rows if row.id in found)
        if match is not None:
            rows = (row for row in rows if match in row.id)
        if after is not None:
            rows = (row for row in rows if row.updated_at >= after)
        if long is None and not as_json:
            rows, long = _is_short(rows, limit)
        describe = _described(store, locked) if long or sort in _OF_LONG else _Line
        with terminal.working("reading conversations") if sort in _OF_LONG else nullcontext():
            lines = _chosen(rows, describe, sort, limit, reverse=reverse)
        if as_json:
            terminal.emit_list({"db": db}, "conversations", map(_document, lines))
        elif page := list(islice(lines, _PAGE)):
            with paged():
                _show(page, lines, tree=sort == "id" and not reverse)
        else:
            _show_none(db, store, limit)
    if locked and not as_json:
        terminal.note(f"the figures of {count(len(locked), 'conversation')} are not shown: {locked[0]}")
    return DONE


def _having(store: Store, attributes: dict[str, Any]) -> set[str]:
    """Return the ids of the conversations that have all of these attributes."""
    histories, found, after = Histories(store), set[str](), None
    while True:
        page = histories.list(attributes, limit=_PAGE, after=after, age_max_s=0)
        found |= {one.id for one in page.conversations}
        if (after := page.after) is None:
            return found


def _is_short(rows: Iterator[ConversationRow], limit: int | None) -> tuple[Iterator[ConversationRow], bool]:
    """Return whether the list is short enough to read events for each of its lines; and all rows."""
    first = list(islice(rows, _FEW + 1))
    wanted = first if limit is None else first[:limit]
    short = len(first) <= _FEW and sum(row.version for row in wanted) <= _FEW_EVENTS
    return chain(first, rows), short


def _described(store: Store, locked: list[str]) -> Callable[[ConversationRow], _Line]:
    from foldlog._reports.overview import overview_of  # a short list reads no View
    from foldlog.projections import Views

    views = Views(store)

    def described(row: ConversationRow) -> _Line:
        more = overview_of(store, views, row)
        if more.problem is not None and more.needs_key:
            locked.append(more.problem)
        elif more.problem is not None:
            terminal.unread(terminal.about(row.id, more.problem))
        return _Line(row, more)

    return described


def _chosen(
    rows: Iterable[ConversationRow],
    describe: Callable[[ConversationRow], _Line],
    sort: str,
    limit: int | None,
    *,
    reverse: bool,
) -> Iterator[_Line]:
    """Yield the lines in their order. If no other column decides the order, only the shown lines are described."""
    if sort == "id" and not reverse:
        return map(describe, islice(rows, limit))
    key = _activity_key(reverse) if sort == "activity" else _SORTS[sort]
    candidates = map(describe, rows) if sort in _OF_LONG else map(_Line, rows)
    if limit is None:
        ordered = sorted(candidates, key=key, reverse=reverse)
    else:
        ordered = (heapq.nlargest if reverse else heapq.nsmallest)(limit, candidates, key=key)
    return iter(ordered) if sort in _OF_LONG else (describe(line.row) for line in ordered)


def _number(figure: float | None) -> float:
    return -1 if figure is None else figure


def _document(line: _Line) -> ConversationDocument:
    from foldlog._reports.overview import conversation_document

    return conversation_document(line.row, line.more)


# -- for people -------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    heading: str
    cell: Callable[[_Line], str]
    justify: Literal["left", "right"] = "left"


def _show_none(db: str, store: Store, limit: int | None) -> None:
    there = sum(1 for _ in listed(store))
    if there:
        why = "is listed: --limit is 0" if limit == 0 else "matches"
        said = f"None of {count(there, 'conversation')} {why}."
    else:
        where = terminal.printable(store_name(db))
        said = f"No conversations in {where}. Import some: {command('import', 'PATH')}"
    terminal.console().print(said, soft_wrap=True)


def _show(page: Sequence[_Line], lines: Iterator[_Line], *, tree: bool) -> None:
    if tree and len(page) < _PAGE:  # a longer list is printed while it is read, in the order of ids
        page = _as_tree(page)
    out = terminal.PrintedLines()
    columns = _columns(out.width, long=page[0].more is not None)
    widths = [len(column.heading) for column in columns]
    heading = True
    while page:
        cells = [[column.cell(line) for column in columns] for line in page]
        for place in range(1, len(widths)):
            widths[place] = max(widths[place], max(len(row[place]) for row in cells))
        room = out.width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)
        widest = max(widths[0], max(len(row[0]) for row in cells))
        widths[0] = max(len(columns[0].heading), min(room, widest))
        if heading:
            _write(out, [column.heading for column in columns], columns, widths, "bold")
            heading = False
        for line, row in zip(page, cells, strict=True):
            _write_line(out, line, row, columns, widths)
        page = list(islice(lines, _PAGE))


def _as_tree(lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines with each fork under its parent, where the parent is one of them. A conversation that is newer
    than the fork has the id of the erased parent.
    """
    created = {line.row.id: line.row.created_at for line in lines}
    forks: dict[str | None, list[_Line]] = {}
    for line in reversed(lines):
        parent, at = line.row.parent, line.row.created_at
        forks.setdefault(parent if parent in created and created[parent] <= at else None, []).append(line)
    ordered, stack = [], forks.pop(None, [])
    while stack:
        line = stack.pop()
        ordered.append(line)
        stack += [fork._replace(depth=line.depth + 1) for fork in forks.pop(line.row.id, ())]
    return ordered if len(ordered) == len(lines) else list(lines)  # damaged: a conversation is its own ancestor


def _columns(width: int, *, long: bool) -> list[_Column]:
    roomy = width >= _ROOMY
    columns = [
        _Column("conversation", _name),
        _Column("events", _events, "right"),
    ]
    if not long:
        last = _Column("last recorded (UTC)", lambda line: moment_words(line.row.updated_at))
        first = _Column("first recorded (UTC)", lambda line: moment_words(line.row.created_at))
        narrow = _Column("last", lambda line: str(line.row.updated_at.date()))
        return [*columns, first, last] if roomy else [*columns, narrow]
    columns.append(_Column("sent", _sent, "right"))
    if roomy:
        columns.append(_Column("≈ tokens", lambda line: _figure(line.more and line.more.tokens), "right"))
        columns.append(_Column("condensed", lambda line: _figure(line.more and line.more.condensations), "right"))
    columns.append(_Column("last activity" if roomy else "last", lambda line: _activity(line)[: 16 if roomy else 10]))
    return columns


def _name(line: _Line) -> str:
    """Return the id; of a fork also the conversation and the version that it left."""
    row = line.row
    left = "" if row.parent is None else f" (fork of {terminal.typed_id(row.parent)} at {row.parent_version})"
    return "  " * line.depth + terminal.typed_id(row.id) + left


def _write_line(
    out: terminal.PrintedLines, line: _Line, cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]
) -> None:
    row, more, _ = line
    if more is None and row.erased_at is None and len(cells[0]) <= widths[0] and cells[0].isascii():
        out.write_plain(_joined(cells, columns, widths))
        return
    erased = row.erased_at is not None
    told = "" if more is None or erased else terminal.printable(_told(more), one_line=True)
    if out.width == UNLIMITED:
        told = told if len(told) <= _TOLD_MAX else f"{told[: _TOLD_MAX - 1]}…"
        out.write((_joined(cells, columns, widths) + (_GAP + told if told else ""), ""))
        return
    _write(out, cells, columns, widths, "dim" if erased else "")
    if told:
        out.write((_GAP + told, "dim"))


def _write(
    out: terminal.PrintedLines, cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int], style: str
) -> None:
    """Write one row. An id that is wider than its column has its own line, whole, so that it can be copied."""
    name, figures = cells[0], _GAP + _joined(cells[1:], columns[1:], widths[1:])
    if len(padded(name, widths[0])) > widths[0]:
        out.write_plain(name)
        name = ""
    out.write((padded(name, widths[0]), style), (figures, style if style == "bold" else ""))


def _joined(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> str:
    parts = [
        cell.rjust(width) if column.justify == "right" else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return _GAP.join(parts).rstrip()


def _told(more: Overview) -> str:
    """Return the format and the title; for a conversation that cannot be read, why its figures are missing."""
    problem = "encrypted" if more.needs_key else more.problem
    parts = [more.format or "", more.title or "", f"({problem})" if problem else ""]
    named = [f"{name}={compact(value)}" for name, value in (more.attributes or {}).items() if name != "title"]
    return "  ".join([": ".join(part for part in parts if part), *named])


def _events(line: _Line) -> str:
    return "erased" if line.row.erased_at is not None else f"{line.row.version:,}"


def _sent(line: _Line) -> str:
    """Return how many events and summaries of its View a model is sent: ``19 + 1``."""
    more = line.more
    if more is None or more.sent_events is None:
        return ""
    return f"{more.sent_events:,}" + (f" + {more.sent_summaries:,}" if more.sent_summaries else "")


def _figure(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"


def _activity(line: _Line) -> str:
    at = "" if line.more is None else line.more.last_event_at or ""
    return terminal.printable(at, one_line=True).replace("T", " ", 1)[:19]


def _activity_key(reverse: bool) -> Callable[[Any], Any]:
    """Return the key that puts conversations without a time last, in either order."""
    last = _SORTS["activity"]
    return lambda line: (bool(last(line)) == reverse, last(line))
