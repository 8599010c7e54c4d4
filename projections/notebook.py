"""Show Views and their answers as tables: in a notebook, and where rich prints.

The text of events never becomes markup, and control characters are shown as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eventstore import Event, events
from projections.messages.content import words_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE = 160
_HEAD, _TAIL = 10, 20
"""The number of events at the beginning and at the end of a long table."""
_STEERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


class Table(NamedTuple):
    """A heading, and rows of cells. ``columns`` are their names; none is shown where they are empty."""

    heading: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    def html(self) -> str:
        """Return the table as HTML, with all markup in its texts escaped."""
        parts = [f"<div><strong>{_escaped(self.heading)}</strong>"]
        if self.rows:
            parts.append('<table style="text-align: left">')
            if self.columns:
                parts.append(f"<tr>{''.join(f'<th>{_escaped(name)}</th>' for name in self.columns)}</tr>")
            cells = '<td style="text-align: left">'
            parts += [
                f"<tr>{''.join(f'{cells}<bdi>{_escaped(cell)}</bdi></td>' for cell in row)}</tr>" for row in self.rows
            ]
            parts.append("</table>")
        return "".join([*parts, "</div>"])

    def rich(self) -> RenderableType:
        """Return the table for rich."""
        from rich.table import Table as RichTable
        from rich.text import Text

        if not self.rows:
            return Text(_visible(self.heading))
        table = RichTable(
            title=Text(_visible(self.heading)), title_justify="left", box=None, show_header=bool(self.columns)
        )
        for place, name in enumerate(self.columns or [""] * max(map(len, self.rows), default=0)):
            table.add_column(name, justify="right" if name == "id" else "left", no_wrap=place + 1 < len(self.columns))
        for row in self.rows:
            table.add_row(*(Text(_visible(cell)) for cell in row))
        return table


class ShownAsTable:
    """Shows its ``_table`` in notebooks, and where rich prints."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._table().html()

    def __rich__(self) -> RenderableType:
        return self._table().rich()


def rows_of(events: Sequence[Event], mark: str = "") -> list[list[str]]:
    """Return a row for each event, or for the first and the last ones of many."""
    given = [mark] if mark else []
    if len(events) <= _HEAD + _TAIL + 1:
        return [[*given, *event_row(event)] for event in events]
    left_out = len(events) - _HEAD - _TAIL
    between = [*given, "…", "", f"{left_out:,} more events"]
    shown: Iterable[Event] = (*events[:_HEAD], *events[-_TAIL:])
    rows = [[*given, *event_row(event)] for event in shown]
    return [*rows[:_HEAD], between, *rows[_HEAD:]]


def event_row(event: Event) -> list[str]:
    """Return the id of an event, its kind, and the beginning of what it says."""
    return [str(event.id), _kind(event), _line(event)]


def _kind(event: Event) -> str:
    match event:
        case events.Message(source=source):
            return source
        case events.Observation(is_error=True):
            return "error"
        case events.UnknownEvent():
            return "unknown"
    return str(type(event).__struct_config__.tag).replace("condensation_", "")


def _line(event: Event) -> str:
    match event:
        case events.Action(tool=tool, arguments=arguments, thought=thought):
            text = f"{tool} {'' if arguments is None else arguments} {words_of(thought, ' ')}"
        case events.Observation(tool=tool, content=content):
            text = f"{tool}: {words_of(content, ' ')}" if tool else words_of(content)
        case events.SystemMessage(content=content) | events.Message(content=content):
            text = words_of(content)
        case events.CondensationAction(summary=summary):
            text = summary or "forgets events"
        case _:
            text = str(getattr(event, "content", None) or getattr(event, "name", ""))
    line = " ".join(text[: 4 * _LINE].split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _escaped(text: str) -> str:
    from html import escape  # its table of entities takes time, in each process, and few make HTML

    return escape(_visible(text))


def _visible(text: str) -> str:
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
