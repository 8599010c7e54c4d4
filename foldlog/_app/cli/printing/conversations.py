"""Print a list of conversations for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import UnsetType

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command, store_name
from foldlog._app.cli.pager import page_output
from foldlog._app.cli.stores import ShortIds, iter_rows
from foldlog._app.cli.tables import COST, Column, print_rows
from foldlog._history.lease import ends_of_leases
from foldlog._reports.words.gist import compact, count, number_words, spent_words
from foldlog._reports.words.times import duration_words, time_words
from foldlog.eventstore import Store
from foldlog.formats.record import INCOMPLETE

if TYPE_CHECKING:
    from foldlog._app.cli.listing import Filters, ListOptions
    from foldlog._reports.answers.conversations import ConversationDocument

_TITLE_MAX = 160
"""The maximum number of characters of a format and a title. ``--json`` shows the whole title."""
_PAGE = 1_000
"""A list with fewer conversations than this number shows forks under their parents. A longer list
is printed while the conversations are being read.
"""
_OWN_COLUMNS = ("program", "cwd", "branch", "model")
"""Attributes that imports set, and that a list for people does not show."""
_Line = tuple["ConversationDocument", int]
"""A conversation, and its depth in the tree of forks."""
_Figure = tuple[Column, Callable[["ConversationDocument"], str]]
"""A column, and the text of its cell for a conversation."""


def print_conversations(
    store: Store,
    conversations: Iterator[ConversationDocument],
    options: ListOptions,
    *,
    in_full: bool,
) -> bool:
    """Print the conversations while they are read. Return whether any conversation was printed. On
    a terminal, a short list that is not sorted shows forks under their parents. In a pipe, the
    columns do not depend on the conversations: a figure that sorts the list comes last.
    """
    lines = ((conversation, 0) for conversation in conversations)
    page = list(islice(lines, _PAGE))
    if not page:
        return False
    if not options.is_sorted and len(page) < _PAGE and terminal.has_edge():
        page = _as_tree([conversation for conversation, _ in page])
    short = ShortIds(store)
    room = terminal.columns()
    id_column = Column("conversation", least=min(40, room // 3))
    title: _Figure = Column("title", least=min(32, room // 3)), partial(_title_cell, short)
    names = _LONG if in_full else _SHORT
    if terminal.has_edge():
        with_tasks = any(conversation.task for conversation, _ in page)
        figures = [*_figures_for_people(names, options.sort, with_tasks=with_tasks), title]
    else:
        figures = [*_figures_for_programs(names, title, options.sort)]
    columns = [id_column, *(column for column, _ in figures)]
    cells = partial(_cells, short, figures)
    with page_output():
        print_rows(columns, map(cells, chain(page, lines)), tabs=True)
    return True


def _figures_for_people(names: Sequence[str], sort: str, *, with_tasks: bool) -> Iterator[_Figure]:
    """Yield the columns on a terminal. The figure that sorts the list comes first."""
    if sort in _FIGURES:
        column, text_of = _FIGURES[sort]
        yield column._replace(may_go=False), text_of
    for name in (*names, "task") if with_tasks else names:
        if name != sort:
            yield _FIGURES[name]


def _figures_for_programs(names: Sequence[str], title: _Figure, sort: str) -> Iterator[_Figure]:
    """Yield the columns in a pipe. The figure that sorts the list comes last."""
    for name in names:
        yield _FIGURES[name]
    if names is _LONG:
        yield _FIGURES["task"]
    yield title
    if sort in _FIGURES and sort not in names:
        yield _FIGURES[sort]


def _as_tree(conversations: Sequence[ConversationDocument]) -> list[_Line]:
    """Return the lines of the list, with each fork under its parent, if the list has the parent."""
    created = {conversation.conversation: conversation.created_at for conversation in conversations}
    forks: dict[str | None, list[ConversationDocument]] = {}
    # The loop below takes forks from the end of each list, so the lists are made in reverse.
    for conversation in reversed(conversations):
        parent = conversation.parent
        # A conversation that is newer than its fork has the id of the erased parent. Such a fork
        # has no parent in the list.
        if parent not in created or created[parent] > conversation.created_at:
            parent = None
        forks.setdefault(parent, []).append(conversation)
    ordered = list[_Line]()
    stack = [(conversation, 0) for conversation in forks.pop(None, [])]
    while stack:
        conversation, depth = stack.pop()
        ordered.append((conversation, depth))
        stack += [(fork, depth + 1) for fork in forks.pop(conversation.conversation, ())]
    if len(ordered) < len(conversations):
        # In a damaged store, a conversation may be its own ancestor: show a plain list.
        return [(conversation, 0) for conversation in conversations]
    return ordered


def _cells(short: ShortIds, figures: Sequence[_Figure], line: _Line) -> list[str]:
    """Return the cells of a line. A fork is indented."""
    conversation, depth = line
    id_text = "  " * depth + terminal.typed_id(short(conversation.conversation))
    return [id_text, *[text_of(conversation) for _, text_of in figures]]


def _title_cell(short: ShortIds, conversation: ConversationDocument) -> str:
    """Return the title for a list, cut."""
    return terminal.cut(_title(short, conversation), _TITLE_MAX)


def _title(short: ShortIds, conversation: ConversationDocument) -> str:
    """Return what describes a conversation: its parent, format, title, problem and attributes."""
    if conversation.erased_at is not None:
        return f"erased {time_words(conversation.erased_at)}"
    attributes = dict(conversation.attributes or {})
    attributes.pop("title", None)
    incomplete = attributes.pop(INCOMPLETE, "")
    problem = "encrypted" if conversation.needs_key else conversation.problem
    origin = ""
    if conversation.parent is not None:
        parent = terminal.typed_id(short(conversation.parent))
        origin = f"fork of {parent} at {conversation.parent_version}"
    parts = [
        origin,
        conversation.format or "",
        f"({compact(incomplete)})" if incomplete else "",
        conversation.title or "",
        f"({problem})" if problem else "",
    ]
    attribute_texts = [
        f"{name}={compact(value)}" for name, value in attributes.items() if name not in _OWN_COLUMNS
    ]
    return "  ".join([": ".join(filter(None, parts)), *attribute_texts])


# -- figures; the keys of _FIGURES are the values of --sort ----------------------------------------


def _events(conversation: ConversationDocument) -> str:
    """Return the number of counted events, or of all events while they are not counted."""
    if conversation.erased_at is not None:
        return ""
    return f"{conversation.version if conversation.events is None else conversation.events:,}"


def _sent(conversation: ConversationDocument) -> str:
    """Return the events of the next prompt, and its summaries."""
    if conversation.erased_at is not None or conversation.sent_events is None:
        return ""
    if conversation.sent_summaries:
        return f"{conversation.sent_events:,} + {conversation.sent_summaries:,}"
    return f"{conversation.sent_events:,}"


def _duration(conversation: ConversationDocument) -> str:
    """Return the time between the first and the last event. It is unknown if one of the two has a
    zone, and the other has none.
    """
    if not (conversation.first_event_at and conversation.last_event_at):
        return ""
    first = datetime.fromisoformat(conversation.first_event_at)
    last = datetime.fromisoformat(conversation.last_event_at)
    if (first.tzinfo is None) != (last.tzinfo is None):
        return ""
    return duration_words((last - first).total_seconds())


def _number(number: int | UnsetType | None) -> str:
    """Return a figure, or nothing for one that is not known."""
    return f"{number:,}" if isinstance(number, int) else ""


def _known_number(conversation: ConversationDocument, number: int | UnsetType | None) -> str:
    """Return a number as text. Return ``unknown`` if the source does not record the number. Return
    an empty text if no event could be read.
    """
    if not conversation.spent:
        return ""
    return number_words(number if isinstance(number, int) else None)


def _task(conversation: ConversationDocument) -> str:
    """Return the cost of a task and the number of its sub-agents. If some are no longer reached,
    the text also has how many there were.
    """
    task = conversation.task
    if not task:
        return ""
    lost = task.sub_agents_erased + task.sub_agents_unreached
    of_all = f" of {task.sub_agents + lost:,}" if lost else ""
    return f"{spent_words(task.spent)} ({task.sub_agents:,}{of_all})"


def _figure(
    heading: str, text_of: Callable[[ConversationDocument], str], *, is_text: bool = False
) -> _Figure:
    """Return a column that a narrow terminal may leave out."""
    return Column(heading, "left" if is_text else "right", may_go=True), text_of


_FIGURES: dict[str, _Figure] = {
    "recorded": _figure(
        "last recorded", lambda row: time_words(row.last_recorded_at), is_text=True
    ),
    "activity": _figure(
        "last activity", lambda row: time_words(row.last_event_at or ""), is_text=True
    ),
    "started": _figure("started", lambda row: time_words(row.first_event_at or ""), is_text=True),
    "duration": _figure("duration", _duration),
    "state": _figure("ends with", lambda row: (row.state or "").replace("_", " "), is_text=True),
    "events": _figure("events", _events),
    "errors": _figure("errors", lambda row: _known_number(row, row.errors)),
    "wait": _figure(
        "longest wait", lambda row: duration_words(row.longest_wait_s) if row.longest_wait_s else ""
    ),
    "sent": _figure("sent+sum.", _sent),
    "view": _figure("≈ tokens", lambda row: _number(row.tokens)),
    "prompt": _figure("last prompt", lambda row: _number(row.last_prompt_tokens)),
    "condensations": _figure("condensed", lambda row: _known_number(row, row.condensations)),
    "saved": _figure("tokens saved", lambda row: _number(row.tokens_saved)),
    "tokens": _figure("tokens spent", lambda row: _number(row.spent.tokens) if row.spent else ""),
    "cost": (COST, lambda row: spent_words(row.spent) if row.spent else ""),
    "task": _figure("with sub-agents", _task),
}
"""The columns by the values of ``--sort``."""
_SHORT = ("events", "activity")
_LONG = ("events", "activity", "errors", "cost", "condensations", "sent", "view", "tokens")


def show_none(db: str, store: Store, filters: Filters, limit: int | None) -> None:
    """Say why the list is empty."""
    total = sum(1 for _ in iter_rows(store))
    if not total:
        terminal.say(
            f"No conversations in {store_name(db)}. Import some: {command('import', 'PATH')}"
        )
        return
    if limit == 0:
        reason = "is listed: --limit is 0"
    else:
        reason = "waits for a worker" if filters.to_be_resumed else "matches"
    text = f"None of {count(total, 'conversation')} {reason}."
    lease_ends = ends_of_leases(store) if filters.to_be_resumed else []
    if lease_ends:
        first_end = time_words(lease_ends[0])
        workers = "Still leased, perhaps by workers that were killed"
        text += f" {workers}: {len(lease_ends):,}; the first lease ends at {first_end}."
    if filters.attributes:
        command_line = command("attributes", "ID", "--set", "NAME=VALUE")
        text += f" '{command_line}' sets an attribute. --match finds titles and formats."
    terminal.say(text)
