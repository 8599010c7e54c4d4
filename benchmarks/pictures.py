"""Draw pictures of the demo, in light and dark colours: ``python -m benchmarks.pictures``.

``view.svg`` shows the View of the demo's history at three versions. ``dropped.svg`` shows the
answers to a coding agent about its compaction.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from html import escape
from pathlib import Path

import foldlog
from foldlog._app.cli.printing.demo import LIVE
from foldlog._app.coding_agents.asked_conversation import Asking
from foldlog._app.coding_agents.mcp_tools import Answers
from foldlog._reports.words.gist import id_words

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_DB = "foldlog-demo.db"
_STYLE = """
  .back { fill: #ffffff } text { fill: #1f2933 } .soft { fill: #5f6b7a }
  .shown { fill: #00796b } .gone { fill: #dfe3e8 } .summary { fill: #b7791f }
  @media (prefers-color-scheme: dark) {
    .back { fill: #14181d } text { fill: #e6e9ed } .soft { fill: #a3adb9 }
    .shown { fill: #2dd4bf } .gone { fill: #2c343d } .summary { fill: #ecc94b }
  }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
"""


def _svg(width: int, height: int, about: str, style: str, body: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    back = f'<rect class="back" width="{width}" height="{height}" rx="8"/>'
    lines = [
        f'{head} aria-label="{escape(about)}">',
        f"<style>{style}</style>",
        back,
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def view_svg(history: foldlog.History) -> str:
    """Draw three Views: before the first condensation, after it, and now. Each event of the log is
    a stroke.
    """
    first = min(
        event.id for event in history.events() if isinstance(event, foldlog.CondensationAction)
    )
    width = 860
    left = 16
    step = 828 / len(history)
    body = []
    sentences = []
    for row, (version, words) in enumerate(
        ((first, "before it forgets"), (first + 1, "after it forgot"), (len(history), "now"))
    ):
        top = 20 + 84 * row
        view = history.at(version)
        ids = {event.id for event in view}
        sentences.append(
            f"At version {version} the log has {version} events and the View shows {len(view)}"
        )
        body.append(f'<text x="{left}" y="{top + 12}">{sentences[-1]}, {words}</text>')
        for kind, columns in (("shown", ids), ("gone", {*range(version)} - ids)):
            strokes = "".join(
                f"M{left + step * n:.1f} {top + 22}h{step * 0.8:.1f}v26h-{step * 0.8:.1f}z"
                for n in columns
            )
            body.append(f'<path class="{kind}" d="{strokes}"/>')
        for at, summary in ((n, event) for n, event in enumerate(view) if event.id < 0):
            before, after = (view[index].id for index in (at - 1, at + 1))
            x = left + step * (before + 1)
            y = top + 52
            body.append(
                f'<rect class="summary" x="{x:.1f}" y="{y}"'
                f' width="{step * (after - before - 1):.1f}" height="5"/>'
            )
            body.append(
                f'<text class="soft" x="{x:.1f}" y="{y + 18}">summary {id_words(summary.id)}'
                " replaces these</text>"
            )
    return _svg(width, 276, "; ".join(sentences), _STYLE, body)


def dropped_svg(histories: foldlog.Histories) -> str:
    """Draw the answers of two tools of ``foldlog mcp`` about the demo's history."""
    answers = Answers(histories.store, Asking(histories.store, {}, None, may_import=True))
    style = (
        f"{_STYLE}  text {{ font: 12px ui-monospace, Menlo, Consolas, monospace; white-space: pre"
        " }\n"
    )
    exchanges = (
        ("dropped(compaction=84)", answers.dropped(LIVE, 84), (1, 2)),
        ('why("BadLine")', answers.why("BadLine", LIVE), (0,)),
    )
    body = []
    top = 30
    for call, answer, lines in exchanges:
        wrapped = [
            line for n in lines for line in textwrap.wrap(answer.splitlines()[n].strip(), 112)[:4]
        ]
        for kind, line in [("soft", f"the agent asks: {call}"), *(("", line) for line in wrapped)]:
            body.append(f'<text class="{kind}" x="16" y="{top}">{escape(line)}</text>')
            top += 18
        top += 12
    return _svg(
        860, top, "What a coding agent asks about its compaction, and the answers", style, body
    )


def main() -> None:
    """Draw the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "foldlog", "demo", "--db", _DB], cwd=folder, check=True
        )
        with foldlog.open(f"{folder}/{_DB}") as histories:
            (PICTURES / "view.svg").write_text(view_svg(histories[LIVE]))
            (PICTURES / "dropped.svg").write_text(dropped_svg(histories))


if __name__ == "__main__":
    main()
