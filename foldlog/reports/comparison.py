"""Strategies side by side, over the same history: the figures of each, and a plot of their Views over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from condensers.compare import Replay
from eventstore import Event, Message

__all__ = ["MissingMatplotlib", "comparison", "plot_comparison"]


class MissingMatplotlib(ImportError):
    """A plot was asked for and matplotlib is not installed. Install it with: pip install matplotlib"""


def comparison(replays: Mapping[str, Replay], events: Iterable[Event]) -> list[dict[str, Any]]:
    """One row of figures for each strategy, as JSON: what the model was shown, what it cost, what was lost.

    ``events`` is the history that was replayed. Figures that nobody could count are None.
    """
    asks = {event.id for event in events if isinstance(event, Message) and event.source == "user"}
    return [
        {
            "strategy": name,
            "turns": len(replay.turns),
            "condensations": len(replay.condensations),
            "declined": replay.declined,
            "view_events_peak": max((turn.events for turn in replay.turns), default=0),
            "view_events_last": replay.turns[-1].events if replay.turns else 0,
            "tokens_sent": replay.tokens_sent,
            "tokens_peak": replay.tokens_peak,
            "condenser_tokens": replay.condenser_tokens,
            "condenser_cost": replay.condenser_cost,
            "events_hidden_last": replay.turns[-1].hidden if replay.turns else 0,
            "events_summarized": len(replay.summarized),
            "events_lost": len(replay.lost),
            "user_messages_lost": sorted(asks.intersection(replay.lost)),
        }
        for name, replay in replays.items()
    ]


def plot_comparison(replays: Mapping[str, Replay], path: Path) -> None:
    """Draw the size of the View at each call of the agent's model, in events and in tokens, into an image file.

    The file's suffix says what kind. Raises ``MissingMatplotlib``, and ``OSError`` where the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingMatplotlib("a plot needs matplotlib; install it with: pip install matplotlib") from error
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    in_events, in_tokens = figure.subplots(2, 1, sharex=True)
    for name, replay in replays.items():
        in_events.plot([turn.events for turn in replay.turns], label=name)
        counts = [turn.tokens for turn in replay.turns]
        in_tokens.plot([float("nan") if count is None else count for count in counts], label=name)
        calls = {turn.event_id: call for call, turn in enumerate(replay.turns)}
        marks = sorted({calls[made.event_id] for made in replay.condensations})
        in_events.plot(marks, [replay.turns[call].events for call in marks], "k.", markersize=4)
    in_events.set_ylabel("events shown")
    in_events.legend(title="a dot: a condensation", fontsize="small")
    in_tokens.set_ylabel("tokens in the prompt")
    in_tokens.set_xlabel("calls of the agent's model")
    figure.savefig(path, dpi=120)
