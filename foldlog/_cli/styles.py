"""The styles of events, ids and summaries on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog._cli.terminal import has_edge
from foldlog._words import gist
from foldlog._words.safe_text import printable

STYLES = {
    "system": "dim",
    "user": "bold green",
    "agent": "bold cyan",
    "action": "cyan",
    "observation": "default",
    "error": "red",
    "environment": "dim",
    "annotation": "dim",
    "documents": "dim",
    "request": "bold yellow",
    "condensation": "bold yellow",
    "retraction": "bold yellow",
    "redaction": "bold yellow",
    "summary": "bold magenta",
    "unknown": "red",
}
"""The style for rich of each label."""

LABEL_COLUMNS = max(map(len, STYLES)) + 1


def interval_words(intervals: Sequence[tuple[int, int]], most: int = gist.INTERVALS_MAX) -> str:
    """Return intervals of ids as people write them: ``3-9, 12, 40-77``; on a terminal ``most`` of them at most."""
    return gist.interval_words(intervals, most if has_edge() else gist.UNLIMITED)


def summary_text(text: str) -> str:
    """Return a summary's text with its own line breaks."""
    return "\n".join(printable(text).splitlines())
