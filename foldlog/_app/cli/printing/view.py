"""Print a View for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.pager import page_output
from foldlog._app.cli.printing.events import (
    DAMAGED_STYLE,
    LABEL_COLUMNS,
    damaged_spans,
    event_spans,
)
from foldlog._reports.sent_events import sent_of, states_of
from foldlog._reports.words.gist import events_and_summaries, gist
from foldlog.eventstore import CondensationSummary, summary_of

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


def show_view(name: str, prompt: Sent, start: int, problems: Mapping[int, str]) -> None:
    """Print the View from the index ``start`` on. An event has one line, and a summary is printed
    in full. ``problems`` maps the ids of damaged events to their problems.
    """
    view = prompt.view
    states = states_of(prompt)
    amount = events_and_summaries(*sent_of(prompt))
    if prompt.is_known:
        summary = f"the model is sent {amount or 'no events'}"
    else:
        summary = "foldlog does not know what the model is sent"
    title = f"{name} at version {view.version:,}: {summary}"
    for state in ("masked", "shortened", "hidden", "pending", "unsent"):
        # Masked and shortened events are sent; the other events are counted in addition.
        whose = "more" if state in {"hidden", "pending", "unsent"} else "of them"
        if state in states:
            title += f"; {states.count(state):,} {whose} {state}"
    if prompt.rules:
        title += f"; by {prompt.rules}"
    if view.unhandled_condensation_request:
        title += "; a condensation is requested"
    with page_output():
        terminal.say_wrapped((title, "bold"))
        lines = terminal.PrintedLines()
        damaged = sorted(problems)
        for event, state in zip(view[start:], states[start:], strict=True):
            while damaged and damaged[0] < event.id:
                _write_damaged(lines, damaged.pop(0), problems)
            mark = ("" if state == "sent" else f"{state}: ", "dim")
            if isinstance(event, CondensationSummary):
                if event.id < 0:  # a condensation of this history made the summary
                    origin = f"condensation {summary_of(event.id)} forgot"
                else:  # the summary was imported
                    origin = "was forgotten"
                lines.write(*event_spans(event), mark, (f"replaces what {origin}:", "dim"))
                terminal.print_summary(event.content, LABEL_COLUMNS + 8)
            else:
                lines.write(*event_spans(event), mark, (gist(event, lines.width), ""))
        for event_id in damaged:
            _write_damaged(lines, event_id, problems)


def _write_damaged(
    lines: terminal.PrintedLines, event_id: int, problems: Mapping[int, str]
) -> None:
    """Print a damaged event at its place."""
    lines.write(*damaged_spans(event_id), ("", "dim"), (problems[event_id], DAMAGED_STYLE))
