"""What a session is called: by its user, by a model, or by the summary of its conversation."""

from __future__ import annotations

from typing import Any

__all__ = ["Titles"]

_SOURCES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines that bring a title, the weakest first, and the field that it stands in."""
_RANKS = {kind: rank for rank, kind in enumerate(_SOURCES)}


class Titles:
    """Tells which lines give the log a title: those with a title at least as strong as all titles before them.

    A log begins with summaries of other sessions, too: a summary is of this one if the line that it names is in it.
    If that line comes later, it brings the title. So what a line brings depends on lines before it only, and a log
    that grows is read as before.
    """

    def __init__(self) -> None:
        self._rank = 0
        self._lines: set[str] = set()
        self._awaiting: dict[str, str] = {}

    def is_title(self, record: dict[str, Any]) -> bool:
        """Return whether a line brings a title of this session or of another one."""
        kind = record.get("type")
        return type(kind) is str and kind in _SOURCES

    def complete(self, earlier: Titles) -> None:
        """Add what the lines before those that are known brought."""
        self._rank = max(self._rank, earlier._rank)
        self._lines |= earlier._lines
        self._awaiting = {leaf: title for leaf, title in earlier._awaiting.items() if leaf not in self._lines} | (
            self._awaiting
        )

    def of(self, record: dict[str, Any]) -> str | None:
        """Return the title that the next line brings."""
        kind, uuid = record.get("type"), record.get("uuid")
        awaited = None
        if type(uuid) is str:
            self._lines.add(uuid)
            awaited = self._awaiting.pop(uuid, None)
        rank = _RANKS.get(kind, -1) if type(kind) is str else -1
        title = record.get(_SOURCES[str(kind)]) if rank >= self._rank else None
        if type(title) is not str or not title.strip():
            return awaited if self._rank == 0 else None
        if rank == 0:
            return self._summary(title, record.get("leafUuid"))
        self._rank = rank
        return title

    def _summary(self, title: str, leaf: Any) -> str | None:
        if type(leaf) is not str:
            return None
        if leaf in self._lines:
            return title
        self._awaiting[leaf] = title
        return None
