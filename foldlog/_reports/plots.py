"""Plots in image files, drawn with matplotlib."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldlog._whole_file import whole_file
from foldlog.eventstore import EventStoreError, install_command

if TYPE_CHECKING:
    from foldlog._reports.stats import Stats
    from foldlog.condensers import Replay


class PlotRefused(EventStoreError, ValueError):
    """A plot cannot be drawn: matplotlib is not installed, or it knows no such kind of file. The message says which."""


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn into this file, before a replay that may take long or cost money.

    Raises ``PlotRefused``, and ``OSError`` where there is no such folder.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise PlotRefused(f"a plot needs matplotlib; install it with: {install_command('plot')}") from error
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
        # The first line is the widest, so that it can be seen beneath lines with the same values.
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
"""Colours that colour-blind people can distinguish, too (Okabe and Ito)."""


_MODELS_MAX = 6
"""The most models that a plot distinguishes."""


def _caption(name: str, replay: Replay) -> str:
    sent = "" if replay.tokens_sent is None else f"{replay.tokens_sent:,} tokens sent in all, "
    lost = f"{len(replay.summarized):,} events in a summary, {len(replay.lost):,} lost"
    return f"{name}: {sent}{len(replay.condensations)} condensations, {lost}"


def plot_stats(stats: Stats, path: Path, *, title: str = "") -> None:
    """Draw the figures of conversations into an image file: events by kind and by day, tokens by model and day, and the
    size of the View. Plots without data are left out.

    Raises as ``check_plot`` does, and ``OSError`` where the file cannot be written.
    """
    check_plot(path)
    from matplotlib.figure import Figure

    panels = [_draw_kinds, _draw_days]
    panels += [_draw_models] if stats.models else []
    panels += [_draw_view] if stats.view_tokens else []
    figure = Figure(figsize=(10, 3 * len(panels)), layout="constrained")
    for axes, draw in zip(figure.subplots(len(panels), 1), panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        draw(axes, stats)
    figure.suptitle(title, parse_math=False)
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix.removeprefix(".") or "png")


def _draw_kinds(axes: Any, stats: Stats) -> None:
    kinds = stats.events.most_common()[::-1]
    axes.barh([kind for kind, _ in kinds], [number for _, number in kinds], color=_COLOURS[0])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("events by kind")


def _draw_days(axes: Any, stats: Stats) -> None:
    days = sorted(stats.days.items())
    axes.bar(range(len(days)), [number for _, number in days], color=_COLOURS[5])
    _name_days(axes, [day for day, _ in days])
    axes.set_ylabel("events by day")


def _draw_models(axes: Any, stats: Stats) -> None:
    days = sorted({day for day, _ in stats.models})
    tokens: dict[str, list[int]] = {}
    for (day, model), one in stats.models.items():
        tokens.setdefault(model, [0] * len(days))[days.index(day)] += one.prompt_tokens + one.completion_tokens
    largest = sorted(tokens, key=lambda model: -sum(tokens[model]))
    drawn = {model: tokens[model] for model in largest[:_MODELS_MAX]}
    if others := largest[_MODELS_MAX:]:
        drawn[f"{len(others)} others"] = [sum(column) for column in zip(*(tokens[one] for one in others), strict=True)]
    below = [0] * len(days)
    for (model, column), colour in zip(drawn.items(), _COLOURS, strict=False):
        bars = axes.bar(range(len(days)), column, bottom=below, color=colour)
        bars.set_label(model.lstrip("_") or model)  # a leading underscore would hide it
        below = [one + more for one, more in zip(below, column, strict=True)]
    _name_days(axes, days)
    axes.set_ylabel("tokens by model and day")
    legend = axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=3, fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may have dollar signs


def _draw_view(axes: Any, stats: Stats) -> None:
    axes.plot(stats.view_tokens, color=_COLOURS[1], linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("version")
    axes.set_ylabel("tokens of the View")


def _name_days(axes: Any, days: list[str]) -> None:
    step = max(1, -(-len(days) // 7))
    axes.set_xticks(range(0, len(days), step), days[::step])
    axes.yaxis.set_major_formatter("{x:,.0f}")
