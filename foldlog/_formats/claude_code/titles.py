"""The title of a session: by its user, by a model, or from the summary of its conversation."""

from __future__ import annotations

from typing import Any

_SOURCES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with a title, the weakest first, and the field of the title."""
_RANKS = {kind: rank for rank, kind in enumerate(_SOURCES)}


class Titles:
    """Finds the lines that give the log a title: those with a title at least as strong as all earlier titles.

    A log may begin with summaries of other sessions: a summary is of this session if the line that it names is in it.
    If that line comes later, it gives the title. So the title of a line depends only on earlier lines, and a log that
    grows is read in the same way.
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
        """Add the titles of the lines before the known ones."""
        self._rank = max(self._rank, earlier._rank)
        self._lines |= earlier._lines
        self._awaiting = {leaf: title for leaf, title in earlier._awaiting.items() if leaf not in self._lines} | (
            self._awaiting
        )

    def of(self, record: dict[str, Any]) -> str | None:
        """Return the title that the next line gives."""
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
