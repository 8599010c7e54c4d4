"""Strategies side by side, over the same history: the figures of each, and a plot of their Views over time."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from condensers.replays import Replay
from eventstore.errors import EventStoreError
from eventstore.whole_file import whole_file

__all__ = ["PlotRefused", "check_plot", "comparison", "plot_comparison"]


class PlotRefused(EventStoreError, ValueError):
    """A plot cannot be drawn: matplotlib is not installed, or it knows no such kind of file. The message says which."""


def comparison(replays: Mapping[str, Replay], asks: Collection[int]) -> list[dict[str, Any]]:
    """Return one row of figures for each strategy, as JSON: what the model was shown, what it cost, what was lost.

    ``asks`` are the ids of the user's messages in the history. Figures that could not be counted are None.
    """
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
            "condenser_failures": replay.condenser_failures,
            "events_hidden_last": replay.turns[-1].hidden if replay.turns else 0,
            "events_summarized": len(replay.summarized),
            "events_lost": len(replay.lost),
            "user_messages_lost": sorted(set(asks).intersection(replay.lost)),
        }
        for name, replay in replays.items()
    ]


def check_plot(path: Path) -> None:
    """Whether a plot can be drawn into this file: asked first, since a replay may be long, or cost something.

    Raises ``PlotRefused``, and ``OSError`` where there is no such folder.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise PlotRefused("a plot needs matplotlib; install it with: pip install 'foldlog[plot]'") from error
    known = sorted(FigureCanvasBase.filetypes)
    if path.suffix.removeprefix(".").lower() not in known:
        raise PlotRefused(f"a plot cannot be drawn into {path}: its name must end in one of .{', .'.join(known)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def plot_comparison(replays: Mapping[str, Replay], path: Path, *, title: str = "") -> None:
    """Draw the size of the View at each call of the agent's model, in events and in tokens, into an image file.

    Raises as ``check_plot`` does, and ``OSError`` where the file cannot be written.
    """
    check_plot(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    in_events, in_tokens = figure.subplots(2, 1, sharex=True)
    lines = []
    for place, (name, replay) in enumerate(replays.items()):
        # What is drawn first is the widest, so that it is seen beneath what goes the same way.
        style = {"color": _COLOURS[place % len(_COLOURS)], "linewidth": 1.2 + 0.9 * (len(replays) - 1 - place)}
        (line,) = in_events.plot([turn.events for turn in replay.turns], **style)
        lines.append((line, _caption(name, replay)))
        in_tokens.plot([math.nan if turn.tokens is None else turn.tokens for turn in replay.turns], **style)
        calls = {turn.event_id: call for call, turn in enumerate(replay.turns)}
        marks = sorted({calls[made.event_id] for made in replay.condensations})
        in_events.plot(marks, [replay.turns[call].events for call in marks], "k.", zorder=3)
    for axes in (in_events, in_tokens):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    in_events.set_ylabel("events shown")
    in_tokens.set_ylabel("tokens in the prompt")
    in_tokens.set_xlabel("calls of the agent's model")
    figure.suptitle(title, parse_math=False)
    legend = figure.legend(
        *zip(*lines, strict=True),
        loc="outside lower left",
        frameon=False,
        title="a dot: a condensation",
        alignment="left",
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may have dollar signs
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix.removeprefix(".") or "png")


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by eyes that see fewer colours, too (Okabe and Ito)."""


def _caption(name: str, replay: Replay) -> str:
    sent = "" if replay.tokens_sent is None else f"{replay.tokens_sent:,} tokens sent in all, "
    lost = f"{len(replay.summarized):,} events in a summary, {len(replay.lost):,} lost"
    return f"{name}: {sent}{len(replay.condensations)} condensations, {lost}"
