"""Show histories, Views and reports as tables, in a notebook.

The text of events never becomes markup, and control characters are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from foldlog.eventstore import Event
from foldlog.projections import Difference, View, Why
from foldlog.projections.conversations.labels import label

T = TypeVar("T")
_LENGTH = 160
"""The maximum number of characters of the text of an event."""
_HEAD = 10
_TAIL = 20
"""How many first and last events a long table shows."""


class Table(NamedTuple):
    """A heading, and rows of cells. If ``columns`` is empty, the columns have no names."""

    heading: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    def html(self) -> str:
        """Return the table as HTML, with all markup in its texts escaped."""
        parts = [f"<div><strong>{_escape(self.heading)}</strong>"]
        if self.rows:
            parts.append('<table style="text-align: left">')
            if self.columns:
                parts.append(
                    f"<tr>{''.join(f'<th>{_escape(name)}</th>' for name in self.columns)}</tr>"
                )
            cells = '<td style="text-align: left">'
            parts += [
                f"<tr>{''.join(f'{cells}<bdi>{_escape(cell)}</bdi></td>' for cell in row)}</tr>"
                for row in self.rows
            ]
            parts.append("</table>")
        return "".join([*parts, "</div>"])


def show_as_table(kind: type[T], table: Callable[[T], Table]) -> None:
    """Let a notebook show the values of a class as tables."""
    # ``setattr``, because a type checker refuses an assignment to an attribute that it lacks.
    setattr(kind, "_repr_html_", lambda self: table(self).html())  # noqa: B010


def view_table(view: View) -> Table:
    """Return the events of a View as a table."""
    return Table(repr(view)[1:-1], ("id", "kind", "text"), rows_of(view.events))


def _why_table(why: Why) -> Table:
    """Return an explanation as a table: the event, what forgot it, and its summaries."""
    rows = [["event", *event_row(why.event)]]
    for name, event in (
        ("by", why.by),
        ("its summary", why.summary),
        ("replaced now by", why.stands_in),
    ):
        if event is not None:
            rows.append([name, *event_row(event)])
    return Table(
        f"{why.fate} at version {why.version}: {why.reason}", ("", "id", "kind", "text"), rows
    )


def _difference_table(difference: Difference) -> Table:
    """Return a difference between two Views as a table of the events that entered and left."""
    heading = (
        f"from version {difference.before} to {difference.after}: "
        f"{len(difference.entered)} entered, {len(difference.left)} left"
    )
    rows = [*rows_of(difference.entered, "+"), *rows_of(difference.left, "−")]
    return Table(heading, ("", "id", "kind", "text"), rows)


def rows_of(events: Sequence[Event], mark: str = "") -> list[list[str]]:
    """Return a row for each event. If there are more than 31 events, return rows for the first 10
    and the last 20 events.
    """
    mark_cells = [mark] if mark else []
    if len(events) <= _HEAD + _TAIL + 1:
        return [[*mark_cells, *event_row(event)] for event in events]
    left_out = len(events) - _HEAD - _TAIL
    between = [*mark_cells, "…", "", f"{left_out:,} more events"]
    shown: Iterable[Event] = (*events[:_HEAD], *events[-_TAIL:])
    rows = [[*mark_cells, *event_row(event)] for event in shown]
    return [*rows[:_HEAD], between, *rows[_HEAD:]]


def event_row(event: Event) -> list[str]:
    """Return the id, the kind and the gist of an event."""
    # imported here, because opening a store does not need the words of events
    from foldlog._reports.words.gist import gist

    return [str(event.id), label(event), gist(event, _LENGTH)]


def _escape(text: str) -> str:
    """Return a text as HTML that shows it."""
    from html import escape  # few processes make HTML

    from foldlog._reports.words.safe_text import printable

    return escape(printable(text, one_line=True))


show_as_table(View, view_table)
show_as_table(Why, _why_table)
show_as_table(Difference, _difference_table)
