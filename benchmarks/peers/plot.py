"""Draw the picture of the README: the time to open a history, by the length of the history.
``python -m benchmarks.peers.plot``.

Both axes are logarithmic. The SVG has its own background, and colours for light and for dark.
"""

from __future__ import annotations

import math
from html import escape

from benchmarks.peers.environments import PEERS, ROOT
from benchmarks.peers.report import Runs, lengths, open_ms, read_published

PICTURE = ROOT / "docs" / "pictures" / "peers.svg"
_WIDTH = 860
_HEIGHT = 440
_LEFT = 76
_RIGHT = 236
_TOP = 54
_BOTTOM = 52
_LABEL = 17
"""The minimum distance between two labels."""
_LINES = {
    "foldlog": ("ours", "foldlog"),
    "sqlite3 by hand": ("hand", "sqlite3 by hand"),
    "LangGraph": ("a", "LangGraph SqliteSaver"),
    "eventsourcing, snapshots": ("b", "eventsourcing, snapshots"),
    "eventsourcing": ("c", "eventsourcing"),
    "OpenAI Agents": ("d", "OpenAI Agents SQLiteSession"),
    "Google ADK": ("e", "Google ADK SQLite"),
    "OpenHands": ("f", "OpenHands files"),
}
_STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2933 } .soft { fill: #5f6b7a } .grid { stroke: #dfe3e8 }
  .ours { --c: #00796b } .hand { --c: #7b8794 } .a { --c: #b7791f } .b { --c: #805ad5 } .c { --c: #553c9a }
  .d { --c: #2b6cb0 } .e { --c: #c53030 } .f { --c: #97266d }
  @media (prefers-color-scheme: dark) {
    .back { fill: #14181d } .text { fill: #e6e9ed } .soft { fill: #a3adb9 } .grid { stroke: #2c343d }
    .ours { --c: #2dd4bf } .hand { --c: #9aa5b1 } .a { --c: #ecc94b } .b { --c: #b794f4 } .c { --c: #9f7aea }
    .d { --c: #63b3ed } .e { --c: #fc8181 } .f { --c: #f687b3 }
  }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
  .title { font-size: 16px; font-weight: 600 }
  polyline { fill: none; stroke: var(--c); stroke-width: 2 } .ours polyline { stroke-width: 4 }
  .hand polyline { stroke-dasharray: 5 4 } circle { fill: var(--c) } .label { fill: var(--c) }
  .ours .label { font-weight: 700 }
"""


def svg(runs: Runs) -> str:
    """Return the picture, with a line for each peer that was measured at two or more lengths."""
    lines = {name: open_ms(runs, name) for name in _LINES if len(open_ms(runs, name)) > 1}
    longest = lengths(runs)[-1]
    shortest = lengths(runs)[0]
    times = [time for line in lines.values() for time in line.values()]
    low = math.floor(math.log10(min(times)))
    high = math.ceil(math.log10(max(times)))

    def x(length: float) -> float:
        part = math.log10(length / shortest) / math.log10(longest / shortest)
        return round(_LEFT + 12 + part * (_WIDTH - _LEFT - _RIGHT - 12), 1)

    def y(time: float) -> float:
        part = (math.log10(time) - low) / (high - low)
        return round(_HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM), 1)

    drawn = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(describe_runs(runs))}">'
        ),
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        (
            f'<text class="text title" x="{_LEFT}" y="28">Time to open a history and have what the'
            " model is shown</text>"
        ),
    ]
    for power in range(low, high + 1):
        drawn.append(f'<path class="grid" d="M{_LEFT} {y(10**power)}H{_WIDTH - _RIGHT}"/>')
        drawn.append(
            f'<text class="soft" x="{_LEFT - 8}" y="{y(10**power) + 4}"'
            f' text-anchor="end">{_time(power)}</text>'
        )
    for length in lengths(runs):
        drawn.append(f'<path class="grid" d="M{x(length)} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        drawn.append(
            f'<text class="soft" x="{x(length)}" y="{_HEIGHT - _BOTTOM + 20}"'
            f' text-anchor="middle">{length:,}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(
        f'<text class="soft" x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">events in the'
        " history</text>"
    )
    places = _apart({name: y(line[max(line)]) + 4 for name, line in lines.items()})
    for name, line in reversed(lines.items()):  # ours is drawn last, over the others
        shade, label = _LINES[name]
        points = " ".join(f"{x(length)},{y(time)}" for length, time in line.items())
        dots = "".join(
            f'<circle cx="{x(length)}" cy="{y(time)}" r="3.5"/>' for length, time in line.items()
        )
        written = (
            f'<text class="label" x="{x(max(line)) + 10}" y="{places[name]}">{escape(label)}</text>'
        )
        drawn.append(f'<g class="{shade}"><polyline points="{points}"/>{dots}{written}</g>')
    return "\n".join([*drawn, "</svg>", ""])


def describe_runs(runs: Runs) -> str:
    """Return the picture in words."""
    spans = []
    for name, (_, label) in _LINES.items():
        line = open_ms(runs, name)
        if len(line) > 1:
            spans.append(f"{label} from {line[min(line)]:.3g} to {line[max(line)]:.3g} ms")
    return f"Time to open from {lengths(runs)[0]:,} to {lengths(runs)[-1]:,} events: {'; '.join(spans)}"


def _time(power: int) -> str:
    return f"{10 ** (power - 3):,} s" if power >= 3 else f"{10**power:g} ms"


def _apart(heights: dict[str, float]) -> dict[str, float]:
    """Move each label below the label above it, if they overlap."""
    places: dict[str, float] = {}
    lowest = 0.0
    for name in sorted(heights, key=lambda name: heights[name]):
        lowest = max(heights[name], lowest + _LABEL)
        places[name] = round(lowest, 1)
    return places


def main() -> None:
    PICTURE.write_text(svg(read_published()), encoding="utf-8")


assert set(_LINES) <= {peer.name for peer in PEERS}

if __name__ == "__main__":
    main()
