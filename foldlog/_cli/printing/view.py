"""A View, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foldlog._cli import terminal
from foldlog._cli.events import DAMAGED_STYLE, LABEL_COLUMNS, damaged_spans, event_spans
from foldlog._cli.pager import paged
from foldlog._reports.sent import sent_of, states_of
from foldlog._words.gist import events_and_summaries, gist
from foldlog.eventstore import CondensationSummary, summary_of

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


def show_view(name: str, found: Sent, start: int, problems: Mapping[int, str]) -> None:
    """Print the View from ``start`` on for people: one line for each event, summaries whole."""
    view = found.view
    states = states_of(found)
    amount = events_and_summaries(*sent_of(found))
    if found.known:
        said = f"the model is sent {amount or 'no events'}"
    else:
        said = "what the model is sent is not known"
    title = f"{name} at version {view.version:,}: {said}"
    for state in ("masked", "shortened", "hidden", "pending", "unsent"):
        of = "more" if state in {"hidden", "pending", "unsent"} else "of them"
        title += f"; {states.count(state):,} {of} {state}" if state in states else ""
    title += f"; by {found.rules}" if found.rules else ""
    title += "; a condensation is asked for" if view.unhandled_condensation_request else ""
    with paged():
        terminal.say((title, "bold"), wraps=True)
        lines = terminal.PrintedLines()
        damaged = sorted(problems)
        for event, state in zip(view[start:], states[start:], strict=True):
            while damaged and damaged[0] < event.id:
                _write_damaged(lines, damaged.pop(0), problems)
            mark = ("" if state == "sent" else f"{state}: ", "dim")
            if isinstance(event, CondensationSummary):
                if event.id < 0:
                    by = f"condensation {summary_of(event.id)} forgot"
                else:
                    by = "was forgotten"
                lines.write(*event_spans(event), mark, (f"replaces what {by}:", "dim"))
                terminal.print_summary(event.content, LABEL_COLUMNS + 8)
            else:
                lines.write(*event_spans(event), mark, (gist(event, lines.width), ""))
        for event_id in damaged:
            _write_damaged(lines, event_id, problems)


def _write_damaged(
    lines: terminal.PrintedLines, event_id: int, problems: Mapping[int, str]
) -> None:
    lines.write(*damaged_spans(event_id), ("", "dim"), (problems[event_id], DAMAGED_STYLE))
