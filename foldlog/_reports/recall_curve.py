"""This module plots recall at retained tokens. Recall is the share of the needed terms that a
strategy shows. Each strategy is measured at several sizes.

The plot has a curve for each strategy. A strategy with a higher curve shows more needed terms for
the same number of tokens. The recorded condensations are one point of the plot.
``docs/internals/COMPACTION.md`` defines recall and retained tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import chain
from pathlib import Path

from foldlog._base.values import named_in, parse
from foldlog._reports.answers.comparison import CurvePointDocument
from foldlog._reports.replays import Replay
from foldlog.condensers import AgentModel, Condenser, Step, condenser_from_config
from foldlog.condensers.selection import after_system_prompt
from foldlog.eventstore import Action, CondensationSummary, Event, Message
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.projections import View

RECORDED = "as recorded"
"""The name of the recorded condensations in place of a strategy."""
_PATH = re.compile(r".*path|file(?:name)?")
_SIZES: Mapping[str, tuple[Callable[[int], Condenser], Sequence[int]]] = {
    "digest": (
        lambda size: condenser_from_config({"type": "digest", "max_size": size}),
        (20, 40, 80, 160),
    ),
    "recent": (
        lambda size: condenser_from_config({"type": "recent_events", "max_events": size}),
        (10, 20, 40, 80, 160),
    ),
    "observation_masking": (
        lambda size: condenser_from_config(
            {"type": "observation_masking", "attention_window": size}
        ),
        (3, 10, 40, 100),
    ),
    "requests, files, last turns": (lambda size: RequestsAndFiles(size), (3, 8, 15, 30, 60)),
    "everything": (lambda size: condenser_from_config({"type": "noop"}), (0,)),
}


class RequestsAndFiles(Condenser):
    """The simple strategy that a digest must beat. The strategy shows all messages of the user, the
    names of files in the arguments of calls, and the last turns.
    """

    type = "requests_and_files"

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        points = view.cut_points
        if len(points) <= self.turns + 1:
            return Step(view)
        cut = points[-1 - self.turns]
        head = after_system_prompt(view)
        older = view[head:cut]
        files = dict.fromkeys(chain.from_iterable(map(_paths, older)))
        requests = [
            event for event in older if isinstance(event, Message) and event.source == "user"
        ]
        notes = []
        if files:
            # The id of a summary must be below -1. This summary is never stored, so any such id
            # will do.
            notes.append(CondensationSummary(id=-2, content=f"Files: {', '.join(files)}"))
        return Step(view.with_events([*view[:head], *requests, *notes, *view[max(head, cut) :]]))


def _paths(event: Event) -> Iterable[str]:
    """Yield the names of files in the arguments of a call."""
    if isinstance(event, Action):
        yield from (
            text for name, text in named_in(parse(event.arguments)) if _PATH.fullmatch(name)
        )


def strategies() -> dict[tuple[str, int | None], Condenser | None]:
    """Return the condensers to compare, by the name of the strategy and its size. The recorded
    condensations have no condenser and no size.
    """
    condensers: dict[tuple[str, int | None], Condenser | None] = {(RECORDED, None): None}
    for name, (make_condenser, sizes) in _SIZES.items():
        condensers |= {(name, size): make_condenser(size) for size in sizes}
    return condensers


def points(replays: Mapping[tuple[str, int | None], Replay]) -> list[CurvePointDocument]:
    """Return the points of the replays in which the agent needed a term again. ``replays`` has the
    keys of ``strategies``.
    """
    curve_points = []
    for (name, size), replay in replays.items():
        calls = len(replay.turns)
        sent = replay.tokens_sent
        terms = replay.needed_shown
        facts = replay.facts_shown
        if terms is not None and sent is not None:
            curve_points.append(
                CurvePointDocument(
                    strategy=name, size=size, tokens=sent // calls, terms=terms, facts=facts
                )
            )
    return curve_points


# --- the plot ---

# The sizes of the drawing and its two panels, and the space around the panels, in pixels.
_WIDTH = 920
_HEIGHT = 430
_PANEL = 360
_LEFT = 50
_TOP = 60
_BOTTOM = 50
_COLOURS = ("#00796b", "#2b6cb0", "#c53030", "#805ad5", "#5f6b7a", "#b7791f")


def write_plot(path: Path, title: str, curve_points: Sequence[CurvePointDocument]) -> None:
    """Write the plot as an SVG file. ``title`` names the history."""
    with whole_file(path) as file:
        file.write(_svg(title, curve_points).encode("utf-8", "backslashreplace"))


def _svg(title: str, curve_points: Sequence[CurvePointDocument]) -> str:
    """Return the plot as SVG: a panel for terms, and one for facts."""
    names = list(dict.fromkeys(point.strategy for point in curve_points))
    colours = dict(zip(names, _COLOURS, strict=False))
    elements = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
            ' font-size="12" font-family="system-ui, sans-serif"><title>Recall at retained tokens:'
            f" {escape(title)}</title>"
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    for index, (figure, words) in enumerate((("terms", "terms shown"), ("facts", "facts shown"))):
        left = _LEFT + index * (_PANEL + _LEFT)
        elements += _panel(
            left,
            f"{title}: {words}",
            [(point, getattr(point, figure)) for point in curve_points],
            colours,
        )
    for index, (name, colour) in enumerate(colours.items()):
        elements.append(
            f'<text x="{_LEFT + 140 * index}" y="{_HEIGHT - 8}" fill="{colour}">●'
            f" {escape(name[:22])}</text>"
        )
    return "\n".join([*elements, "</svg>", ""])


def _panel(
    left: int,
    title: str,
    panel_points: Sequence[tuple[CurvePointDocument, float | None]],
    colours: Mapping[str, str],
) -> list[str]:
    """Return the SVG elements of one panel: its scale, and a curve for each strategy.
    ``panel_points`` has each point with its percentage, which may be unknown.
    """
    shown_points = [(point, share) for point, share in panel_points if share is not None]
    most_tokens = max((point.tokens for point, _ in shown_points), default=1)
    lowest = min((share for _, share in shown_points), default=0) // 10 * 10

    def y_of(percent: float) -> float:
        """Return the place of a share. The scale ends a little above 100, so that it is not empty
        if all points are at 100.
        """
        height = (percent - lowest) / (100.1 - lowest)
        return _HEIGHT - _BOTTOM - height * (_HEIGHT - _TOP - _BOTTOM)

    def position(point: CurvePointDocument, share: float) -> tuple[str, str]:
        x = left + point.tokens / most_tokens * (_PANEL - 20)
        return f"{x:.1f}", f"{y_of(share):.1f}"

    elements = [f'<text x="{left}" y="30" font-weight="600">{escape(title[:52])}</text>']
    for percent in range(int(lowest), 101, 10):
        y = y_of(percent)
        elements.append(f'<path d="M{left} {y:.1f}h{_PANEL - 20}" stroke="#ddd"/>')
        elements.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
    elements.append(
        f'<text x="{left}" y="{_HEIGHT - 32}">0 to {most_tokens:,} tokens a prompt</text>'
    )
    for name, colour in colours.items():
        of_strategy = [(point, share) for point, share in shown_points if point.strategy == name]
        curve = sorted(of_strategy, key=lambda pair: pair[0].tokens)
        line = " ".join(",".join(position(point, share)) for point, share in curve)
        elements.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        for point, share in curve:
            x, y_text = position(point, share)
            label = f"{name} {point.size or ''}: {share:.1f} % at {point.tokens:,} tokens"
            elements.append(
                f'<circle cx="{x}" cy="{y_text}" r="4"'
                f' fill="{colour}"><title>{escape(label)}</title></circle>'
            )
    return elements
