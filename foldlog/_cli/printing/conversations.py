"""A list of conversations, as people read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import UnsetType

from foldlog._cli import terminal
from foldlog._cli.hints import command, store_name
from foldlog._cli.pager import paged
from foldlog._cli.selection import pairs
from foldlog._cli.stores import ShortIds, listed
from foldlog._cli.tables import COST, Column, print_rows
from foldlog._history.lease import ends_of_leases
from foldlog._words.gist import compact, count, number_words, spent_words
from foldlog._words.times import duration_words, time_words
from foldlog.eventstore import Store

if TYPE_CHECKING:
    from foldlog._cli.listing import Filters, ListOptions
    from foldlog._documents import ConversationDocument

_TITLE_MAX = 160
"""Characters of a format and a title. ``--json`` has the whole title."""
_PAGE = 1_000
"""A list of fewer conversations has each fork under its parent; a longer one is printed while it is
read.
"""
_OF_PLACE = ("program", "cwd", "branch", "model")
"""Attributes of an import that a list for people does not show."""
_Line = tuple["ConversationDocument", int]
"""A conversation, and the number of its ancestors that the list shows above it."""
_Figure = tuple[Column, Callable[["ConversationDocument"], str]]


def print_conversations(
    store: Store,
    described: Iterator[ConversationDocument],
    options: ListOptions,
    *,
    in_full: bool,
) -> bool:
    """Print the lines while they are read; on a terminal a short list in order of ids is a tree.
    Return whether there are any.
    """
    sort = options.sort
    lines = ((one, 0) for one in described)
    if not (page := list(islice(lines, _PAGE))):
        return False
    if not options.is_sorted and len(page) < _PAGE and terminal.has_edge():
        page = _as_tree([one for one, _ in page])
    names = _LONG if in_full else _SHORT
    figures = [_FIGURES[name] for name in names if name != sort]
    if sort in _FIGURES:
        column, words = _FIGURES[sort]
        figures.insert(0, (column._replace(may_go=False), words))
    room = terminal.columns()
    name = Column("conversation", least=min(40, room // 3))
    title = Column("title", least=min(32, room // 3))
    columns = [name, *(column for column, _ in figures), title]
    cells = partial(_cells, ShortIds(store), figures)
    with paged():
        print_rows(columns, map(cells, chain(page, lines)), tabs=True)
    return True


def _as_tree(listed: Sequence[ConversationDocument]) -> list[_Line]:
    """Return the lines with each fork under its parent, where the parent is one of them. A
    conversation that is newer than the fork has the id of the erased parent.
    """
    created = {one.conversation: one.created_at for one in listed}
    forks: dict[str | None, list[ConversationDocument]] = {}
    for one in reversed(listed):
        if one.parent in created and created[one.parent] <= one.created_at:
            parent = one.parent
        else:
            parent = None
        forks.setdefault(parent, []).append(one)
    ordered = list[_Line]()
    stack = [(one, 0) for one in forks.pop(None, [])]
    while stack:
        one, depth = line = stack.pop()
        ordered.append(line)
        stack += [(fork, depth + 1) for fork in forks.pop(one.conversation, ())]
    is_whole = len(ordered) == len(listed)  # else damaged: a conversation is its own ancestor
    return ordered if is_whole else [(one, 0) for one in listed]


def _cells(short: ShortIds, figures: Sequence[_Figure], line: _Line) -> list[str]:
    one, depth = line
    name = "  " * depth + terminal.typed_id(short(one.conversation))
    return [
        name,
        *(words(one) for _, words in figures),
        terminal.cut(_title(short, one), _TITLE_MAX),
    ]


def _title(short: ShortIds, one: ConversationDocument) -> str:
    """Return the format and the title; for a conversation that cannot be read, why its figures are
    missing.
    """
    if one.erased_at is not None:
        return f"erased {time_words(one.erased_at)}"
    from foldlog._formats.record import INCOMPLETE

    attributes = {name: value for name, value in (one.attributes or {}).items() if name != "title"}
    incomplete = attributes.pop(INCOMPLETE, "")
    problem = "encrypted" if one.needs_key else one.problem
    parts = [
        (
            ""
            if one.parent is None
            else f"fork of {terminal.typed_id(short(one.parent))} at {one.parent_version}"
        ),
        one.format or "",
        f"({compact(incomplete)})" if incomplete else "",
        one.title or "",
        f"({problem})" if problem else "",
    ]
    named = [
        f"{name}={compact(value)}" for name, value in attributes.items() if name not in _OF_PLACE
    ]
    return "  ".join([": ".join(part for part in parts if part), *named])


# -- figures, each by the name that --sort has for it
# -----------------------------------------------


def _events(one: ConversationDocument) -> str:
    if one.erased_at is not None:
        return ""
    return f"{one.version if one.events is None else one.events:,}"


def _sent(one: ConversationDocument) -> str:
    if one.erased_at is not None or one.sent_events is None:
        return ""
    return f"{one.sent_events:,}" + (f" + {one.sent_summaries:,}" if one.sent_summaries else "")


def _duration(one: ConversationDocument) -> str:
    if not (one.first_event_at and one.last_event_at):
        return ""
    first, last = map(datetime.fromisoformat, (one.first_event_at, one.last_event_at))
    if (first.tzinfo is None) != (last.tzinfo is None):
        return ""
    return duration_words((last - first).total_seconds())


def _number(number: int | UnsetType | None) -> str:
    return f"{number:,}" if isinstance(number, int) else ""


def _known(one: ConversationDocument, number: int | UnsetType | None) -> str:
    """Return a number, ``unknown`` where the source does not have it, and nothing where no event
    could be read.
    """
    if not one.spent:
        return ""
    return number_words(number if isinstance(number, int) else None)


def _figure(
    heading: str, words: Callable[[ConversationDocument], str], *, is_text: bool = False
) -> _Figure:
    return Column(heading, "left" if is_text else "right", may_go=True), words


_FIGURES: dict[str, _Figure] = {
    "recorded": _figure(
        "last recorded", lambda one: time_words(one.last_recorded_at), is_text=True
    ),
    "activity": _figure(
        "last activity", lambda one: time_words(one.last_event_at or ""), is_text=True
    ),
    "started": _figure("started", lambda one: time_words(one.first_event_at or ""), is_text=True),
    "duration": _figure("duration", _duration),
    "state": _figure("ends with", lambda one: (one.state or "").replace("_", " "), is_text=True),
    "events": _figure("events", _events),
    "errors": _figure("errors", lambda one: _known(one, one.errors)),
    "wait": _figure(
        "longest wait", lambda one: duration_words(one.longest_wait_s) if one.longest_wait_s else ""
    ),
    "sent": _figure("sent+sum.", _sent),
    "view": _figure("≈ tokens", lambda one: _number(one.tokens)),
    "prompt": _figure("last prompt", lambda one: _number(one.last_prompt_tokens)),
    "condensations": _figure("condensed", lambda one: _known(one, one.condensations)),
    "saved": _figure("tokens saved", lambda one: _number(one.tokens_saved)),
    "tokens": _figure("tokens spent", lambda one: _number(one.spent.tokens) if one.spent else ""),
    "cost": (COST, lambda one: spent_words(one.spent) if one.spent else ""),
}
_SHORT = ("events", "activity")
_LONG = ("events", "activity", "errors", "cost", "condensations", "sent", "view", "tokens")


def show_none(db: str, store: Store, filters: Filters, limit: int | None) -> None:
    """Say why a list is empty."""
    there = sum(1 for _ in listed(store))
    if not there:
        terminal.say(
            f"No conversations in {store_name(db)}. Import some: {command('import', 'PATH')}"
        )
        return
    why = "waits for a worker" if filters.to_be_resumed else "matches"
    said = (
        f"None of {count(there, 'conversation')}"
        f" {'is listed: --limit is 0' if limit == 0 else why}."
    )
    leased = ends_of_leases(store) if filters.to_be_resumed else []
    if leased:
        ends = time_words(leased[0])
        workers = "Still leased, perhaps by workers that were killed"
        said += f" {workers}: {len(leased):,}; the first lease ends at {ends}."
    if unknown := _attributes_of_none(store, pairs([*filters.attributes])):
        how = command("attributes", "ID", "--set", "NAME=VALUE")
        named = ", ".join(sorted(unknown))
        said += (
            f" None has an attribute {named}: an application sets it, or '{how}'. --match finds"
            " titles and formats."
        )
    terminal.say(said)


def _attributes_of_none(store: Store, attributes: Iterable[str]) -> set[str]:
    """Return the attributes that no conversation has."""
    from foldlog._figures.stored import FiguresOfStore

    unknown = {*attributes}
    for _, figures in FiguresOfStore(store).of(listed(store), whole=False) if unknown else ():
        unknown.difference_update(figures.overview.attributes or ())
    return unknown
