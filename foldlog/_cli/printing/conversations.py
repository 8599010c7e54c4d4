"""A list of conversations, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from foldlog._cli import terminal
from foldlog._cli.pager import paged
from foldlog._cli.tables import COST, Column, print_rows
from foldlog._words.gist import compact, number_words, spent_words

if TYPE_CHECKING:
    from foldlog._documents import ConversationDocument
from collections.abc import Iterable
from typing import TYPE_CHECKING

from foldlog._cli.hints import command, store_name
from foldlog._cli.stores import listed
from foldlog._words.gist import count
from foldlog.eventstore import Store

if TYPE_CHECKING:
    from datetime import datetime


_TOLD_MAX = 160
"""Characters of a format and a title. ``--json`` has the whole title."""
_PAGE = 1_000
"""A list of fewer conversations has each fork under its parent; a longer one is printed while it is read."""
_OF_PLACE = ("program", "cwd", "branch", "model")
"""Attributes of an import that a list for people does not show."""
_NAIVE = " (local)"
"""Stands behind a time whose source names no zone."""
_Line = tuple["ConversationDocument", int]
"""A conversation, and the number of its ancestors that the list shows above it."""


def print_conversations(described: Iterator[ConversationDocument], sort: str, *, is_tree: bool, in_full: bool) -> bool:
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
_SORTED_BY = {"events": _NAME[1], "activity": _ACTIVITY, "errors": _ERRORS, "tokens": _SPENT, "cost": COST}
"""The columns by which a list is sorted."""


def _columns(sort: str, *, in_full: bool) -> list[Column]:
    """Return the columns; that by which the list is sorted is there, and does not go."""
    kept = _SORTED_BY.get(sort)
    shown = _LONG if in_full else _SHORT if kept is None or kept in _SHORT else (*_SHORT, kept)
    return [each._replace(may_go=False) if each is kept else each for each in shown]


def _short_cells(sort: str, line: _Line) -> list[str]:
    kept, (activity, below) = _SORTED_BY.get(sort), _last_cells(line)
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


def show_none(
    db: str, store: Store, limit: int | None, leased: Sequence[datetime] | None, attributes: Iterable[str]
) -> None:
    """Say why a list is empty. ``leased`` are the ends of leases, where only conversations without a worker were
    asked for.
    """
    there = sum(1 for _ in listed(store))
    if not there:
        terminal.say(f"No conversations in {store_name(db)}. Import some: {command('import', 'PATH')}")
        return
    why = "matches" if leased is None else "waits for a worker"
    said = f"None of {count(there, 'conversation')} {'is listed: --limit is 0' if limit == 0 else why}."
    if leased:
        ends = leased[0].isoformat(timespec="seconds")
        workers = "Still leased, perhaps by workers that were killed"
        said += f" {workers}: {len(leased):,}; the first lease ends at {ends}."
    if unknown := _attributes_of_none(store, attributes):
        how = command("attributes", "ID", "--set", "NAME=VALUE")
        named = ", ".join(sorted(unknown))
        said += f" None has an attribute {named}: an application sets it, or '{how}'. --match finds titles and formats."
    terminal.say(said)


def _attributes_of_none(store: Store, attributes: Iterable[str]) -> set[str]:
    """Return the attributes that no conversation has."""
    from foldlog._figures.stored import FiguresOfStore

    unknown = {*attributes}
    for _, figures in FiguresOfStore(store).of(listed(store), whole=False) if unknown else ():
        unknown.difference_update(figures.overview.attributes or ())
    return unknown
