"""The answers as a picture: how each ratio stands to its target, and how opening a View grows with the history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frame import Answer

_OPENED = re.compile(r"cold open of a View, ([\d,]+) events")
_GOOD, _BAD, _OURS, _RAW = "#3a7d44", "#b23a48", "#1f4e79", "#9a9a9a"


def plot(answers: Sequence[Answer], path: Path) -> None:
    """Write a PNG. A bar reaches as far as the ratio is from its target; to the left of 1 the target holds."""
    from matplotlib.figure import Figure

    opened = sorted((int(found[1].replace(",", "")), a) for a in answers if (found := _OPENED.match(a.question)))
    figure = Figure(figsize=(11, max(4.0, 1.6 + 0.34 * len(answers))), layout="constrained")
    panels = figure.subplots(
        1, 2 if len(opened) > 1 else 1, squeeze=False, width_ratios=[2, 1][: 1 + (len(opened) > 1)]
    )[0]
    _bars(panels[0], answers)
    if len(opened) > 1:
        panel = panels[1]
        lengths = [length for length, _ in opened]
        panel.plot(lengths, [a.ours for _, a in opened], "o-", color=_OURS, label="foldlog")
        panel.plot(lengths, [a.raw for _, a in opened], "o--", color=_RAW, label="by hand, sqlite3")
        panel.set(xscale="log", xlabel="events in the history", ylabel="ms", title="opening a View, cold")
        panel.set_ylim(bottom=0)
        panel.legend(frameon=False)
    figure.savefig(path, dpi=110)


def _bars(panel, answers: Sequence[Answer]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - matplotlib's own
    names = [a.question for a in answers]
    reached = [a.ratio / a.target if a.better == "at most" else a.target / a.ratio for a in answers]
    panel.barh(names, reached, color=[_GOOD if a.holds else _BAD for a in answers], height=0.6)
    panel.axvline(1, color="black", linewidth=1)
    panel.set(xscale="log", title="measured, as a part of what the target allows (left of 1: holds)")
    for place, answer in enumerate(answers):
        sign = "≤" if answer.better == "at most" else "≥"
        panel.text(
            reached[place] * 1.05, place, f"{answer.ratio:.2f} ({sign} {answer.target:.2g})", va="center", fontsize=8
        )
    panel.invert_yaxis()
    panel.margins(x=0.25)
    panel.spines[["top", "right"]].set_visible(False)
