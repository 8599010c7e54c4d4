"""Draw the picture of docs/internals/RECALL.md: the recall of each condenser, by the tokens that it sends.

Each condenser has a dot for the terms that it shows, and a ring above for the terms that it shows
or names. Each group of histories has a panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "recall.svg"
_WIDTH, _HEIGHT, _PANEL, _GAP = 900, 470, 410, 20
_LEFT, _TOP, _BOTTOM, _RIGHT = 50, 64, 56, 14
_LABEL = 14
"""The minimum distance between two labels."""
_KINDS = {
    "digest": "ours",
    "llm": "a",
    "amortized": "b",
    "recent": "c",
    "observation_masking": "d",
    "clear_tool_uses": "e",
}
_STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2933 } .soft { fill: #5f6b7a } .grid { stroke: #dfe3e8 }
  .ours { --c: #00796b } .a { --c: #b7791f } .b { --c: #805ad5 } .c { --c: #2b6cb0 } .d { --c: #c53030 }
  .e { --c: #97266d } .f { --c: #5f6b7a }
  @media (prefers-color-scheme: dark) {
    .back { fill: #14181d } .text { fill: #e6e9ed } .soft { fill: #a3adb9 } .grid { stroke: #2c343d }
    .ours { --c: #2dd4bf } .a { --c: #ecc94b } .b { --c: #b794f4 } .c { --c: #63b3ed } .d { --c: #fc8181 }
    .e { --c: #f687b3 } .f { --c: #a3adb9 }
  }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
  .title { font-size: 15px; font-weight: 600 } .dot { fill: var(--c) } .label { fill: var(--c); font-size: 11px }
  .ring { fill: none; stroke: var(--c); stroke-width: 1.5 } .stem { stroke: var(--c); stroke-dasharray: 2 3 }
"""


def svg(groups: Mapping[str, Any]) -> str:
    """Return the picture of the first two groups."""
    about = "; ".join(f"{name}: {', '.join(_said(group))}" for name, group in [*groups.items()][:2])
    drawn = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(about)}">'
        ),
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        (
            f'<text class="text title" x="{_LEFT}" y="26">Needed again and shown (dot), or named'
            " for recall (ring)</text>"
        ),
    ]
    for place, (name, group) in enumerate([*groups.items()][:2]):
        drawn += _panel(name, group, place * (_PANEL + _GAP))
    return "\n".join([*drawn, "</svg>", ""])


def _said(group: Mapping[str, Any]) -> Iterator[str]:
    for name, row in group["rows"].items():
        yield (
            f"{name} shows {row['shown']:.1f} % and sends {row['tokens_sent'] / 1e6:.1f} million"
            " tokens"
        )


def _panel(name: str, group: Mapping[str, Any], left: int) -> Iterator[str]:
    rows = {
        name: row for name, row in group["rows"].items() if name not in ("noop", "clear_thinking")
    }
    most = group["rows"]["noop"]["tokens_sent"]
    low = min(row["shown"] for row in rows.values()) // 10 * 10
    right = max(100 * row["tokens_sent"] / most for row in rows.values()) * 1.05

    def x(part: float) -> float:
        return round(left + _LEFT + part / right * (_PANEL - _LEFT - _RIGHT), 1)

    def y(shown: float) -> float:
        return round(
            _HEIGHT - _BOTTOM - (shown - low) / (100 - low) * (_HEIGHT - _TOP - _BOTTOM), 1
        )

    yield f'<text class="text" x="{x(0)}" y="48">{escape(name)}</text>'
    for percent in range(int(low), 101, 5):
        yield f'<path class="grid" d="M{x(0)} {y(percent)}H{x(right)}"/>'
        yield (
            f'<text class="soft" x="{x(0) - 6}" y="{y(percent) + 4}" text-anchor="end">{percent}'
            " %</text>"
        )
    for percent in range(0, int(right) + 1, 20):
        yield f'<path class="grid" d="M{x(percent)} {y(100)}V{y(low)}"/>'
        yield (
            f'<text class="soft" x="{x(percent)}" y="{y(low) + 18}" text-anchor="middle">{percent}'
            " %</text>"
        )
    middle = (x(0) + x(right)) / 2
    yield (
        f'<text class="soft" x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">tokens sent'
        " (noop: 100 %)</text>"
    )
    labels: list[tuple[float, float]] = []
    for strategy, row in sorted(
        rows.items(), key=lambda name_and_row: name_and_row[1]["shown"], reverse=True
    ):
        at, shown, named = x(100 * row["tokens_sent"] / most), y(row["shown"]), y(row["named"])
        label = shown + 4
        while any(
            abs(label - other) < _LABEL and abs(at - beside) < 150 for beside, other in labels
        ):
            label += 1
        labels.append((at, label))
        stem = (
            f'<path class="stem" d="M{at} {shown}V{named}"/><circle class="ring" cx="{at}"'
            f' cy="{named}" r="4.5"/>'
        )
        words, anchor = (
            strategy.replace("observation_masking", "masking").replace("clear_tool_uses", "clear"),
            "start",
        )
        label_x = at + 8
        if at > left + _PANEL - 110:
            label_x, anchor = at - 8, "end"
        yield (
            f'<g class="{_KINDS.get(strategy.split()[0], "f")}">{stem if row["named"] > row["shown"] else ""}<circle'
            f' class="dot" cx="{at}" cy="{shown}" r="4"/><text class="label" x="{label_x}"'
            f' y="{label}" text-anchor="{anchor}">{escape(words)}</text></g>'
        )
