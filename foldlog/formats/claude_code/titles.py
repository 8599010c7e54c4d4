"""What a session is called: by its user, by a model, or by the summary of its conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Titles", "own_leaves"]

_SOURCES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines that bring a title, the weakest first, and the field that it stands in."""
_RANKS = {kind: rank for rank, kind in enumerate(_SOURCES)}


def own_leaves(records: Iterable[Any]) -> frozenset[str]:
    """Return the ids of lines that summaries are about. A log begins with the summaries of other sessions, too.

    ``records`` is read twice where there are summaries, so it is no one-shot iterator.
    """
    wanted = {record.get("leafUuid") for record in records if _is_summary(record)}
    if not wanted:
        return frozenset()
    ids = (record.get("uuid") for record in records if type(record) is dict)
    return frozenset(uuid for uuid in ids if type(uuid) is str and uuid in wanted)


def _is_summary(record: Any) -> bool:
    return type(record) is dict and record.get("type") == "summary" and type(record.get("leafUuid")) is str


class Titles:
    """Tells which lines bring a title that no stronger one came before. ``leaves`` are ``own_leaves``."""

    def __init__(self, leaves: frozenset[str]) -> None:
        self._leaves = leaves
        self._rank = 0

    def of(self, record: dict[str, Any]) -> str | None:
        """Return the title that a line brings."""
        kind = record.get("type")
        rank = _RANKS.get(kind, -1) if type(kind) is str else -1
        if rank < self._rank or (kind == "summary" and not self._is_own(record.get("leafUuid"))):
            return None
        title = record.get(_SOURCES[str(kind)])
        if type(title) is not str or not title.strip():
            return None
        self._rank = rank
        return title

    def _is_own(self, leaf: Any) -> bool:
        return type(leaf) is str and leaf in self._leaves
