"""A comparison of strategies as one HTML page: verdict, figures, and the Views over time. No script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from foldlog._whole_file import whole_file

if TYPE_CHECKING:
    from foldlog._reports.replays import Replay

_WIDTH, _HEIGHT, _LEFT = 900, 220, 70
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#777777")
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "1 4", "12 5", "4 8")
"""Lines have different dashes too, for eyes that see fewer colours."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --faint: #666; --paper: #fff; --line: #ddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --faint: #aaa; --paper: #161616; --line: #3a3a3a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 960px; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict p:first-child { font-size: 1.2rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 1.5rem; list-style: none; padding: 0; }
.legend svg { width: 40px; height: 10px; }
footer { color: var(--faint); margin-top: 2rem; }
"""


def write_page(
    path: Path,
    *,
    title: str,
    verdict: Sequence[str],
    figures: Sequence[Sequence[str]],
    replays: Mapping[str, Replay],
) -> None:
    """Write the page to a file that only its owner can read. ``figures`` is a table of texts, headings first; none of
    them is taken for markup. Raises ``OSError`` where the file cannot be written.
    """
    heading, *rows = figures
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heading)
    body = "".join(
        f'<tr><th scope="row">{escape(name.strip())}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    events = {name: [turn.events for turn in replay.turns] for name, replay in replays.items()}
    tokens = {
        name: [turn.tokens for turn in replay.turns if turn.tokens is not None] for name, replay in replays.items()
    }
    plots = _plot("Events in the View", events) + _plot("Tokens in the prompt", tokens)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}: condensers compared</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}: condensers compared</h1>
<section class="verdict">{"".join(f"<p>{escape(line)}</p>" for line in verdict)}</section>
<h2>Figures</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{plots}{_legend(list(replays))}
<footer>Made by foldlog compare. The history was replayed and not changed.</footer>
</body></html>
"""
    with whole_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))


def _plot(heading: str, lines: Mapping[str, Sequence[int]]) -> str:
    """Return a plot of lines over the calls of the agent's model; nothing where there is nothing to draw."""
    largest = max((max(values) for values in lines.values() if values), default=0)
    calls = max(map(len, lines.values()), default=0)
    if not largest or calls < 2:
        return ""
    drawn = []
    for place, values in enumerate(lines.values()):
        points = " ".join(
            f"{_LEFT + (_WIDTH - _LEFT) * n / (calls - 1):.1f},{_HEIGHT - _HEIGHT * value / largest:.1f}"
            for n, value in enumerate(values)
        )
        drawn.append(f'<polyline points="{points}" {_stroke(place)}/>')
    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="currentColor" stroke-opacity=".15"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{round(largest * share):,}</text>'
        for share in (0, 0.5, 1)
        for y in [_HEIGHT - _HEIGHT * share]
    )
    return (
        f"<h2>{escape(heading)}</h2>"
        f'<svg viewBox="0 -10 {_WIDTH + 10} {_HEIGHT + 35}" role="img" aria-label="{escape(heading)}, by call">'
        f'{marks}{"".join(drawn)}<text x="{_WIDTH}" y="{_HEIGHT + 20}" text-anchor="end">calls of the agent&#39;s '
        f"model: {calls:,}</text></svg>"
    )


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 40 10" aria-hidden="true"><line x1="0" x2="40" y1="5" y2="5" {_stroke(place)}/></svg> '
        f"{escape(name)}</li>"
        for place, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _stroke(place: int) -> str:
    colour, dashes = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
    return f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
