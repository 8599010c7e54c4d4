"""Print the events of a conversation for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foldlog._app.cli import terminal
from foldlog._app.cli.log_reading import LogReading
from foldlog._app.cli.printing.events import LABEL_COLUMNS, STYLES, event_moment, show_event
from foldlog._reports.words.gist import gist
from foldlog._reports.words.times import duration_words
from foldlog.eventstore import Border, Logged
from foldlog.eventstore.events import is_structural
from foldlog.projections.conversations.labels import label

_UNCOUNTED = "(not counted) "
"""Stands before an event that figures leave out."""


def show_log(
    events: Iterable[Logged],
    borders: list[Border],
    reading: LogReading,
    stop: int | None,
    waits: Mapping[int, float],
    *,
    full: bool,
) -> None:
    """Print the events, and a line where a fork begins. With ``waits``, also print the wait for a
    model or a tool before each event.
    """
    lines = terminal.PrintedLines()
    write = lines.write
    width = lines.width

    def pass_borders(version: int) -> None:
        while borders and borders[0].version <= version:
            border = borders.pop(0)
            write((f"{'':>8}fork of {border.parent} at version {border.version:,}", "bold"))

    for recorded_at, stored_event in events:
        event = reading.in_own_ids(stored_event)
        pass_borders(event.id)
        uncounted = reading.is_uncounted(event)
        if full:
            show_event(event, recorded_at, is_uncounted=uncounted)
            continue
        kind = label(event)
        is_usual = (event.shown or is_structural(event)) and not uncounted
        style = "" if is_usual else "dim "
        back = _UNCOUNTED if uncounted else ""
        write(
            (f"{event.id:>6}  {event_moment(event, recorded_at):<19}  ", "dim"),
            (f"{duration_words(waits[event.id]):>9}  " if event.id in waits else "", "bold"),
            (f"{kind:<{LABEL_COLUMNS}}", f"{style}{STYLES[kind]}"),
            (f"{back}{gist(event, max(0, width - len(back)))}", style),
        )
    if not waits:
        pass_borders(reading.end(stop))
