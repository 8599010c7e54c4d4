"""Compaction: a boundary line, then a line with a summary. After it a model is shown the summary and later lines.

Newer releases keep some messages, which the boundary names: all by their ids, or the first and the last. They are
placed after their *anchor*: the summary, or the boundary, if the messages are a beginning that the summary follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


def is_boundary(record: dict[str, Any]) -> bool:
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def cleared_by(record: dict[str, Any]) -> list[str]:
    """Return the ids of the calls whose results a microcompaction cleared: their model sees a placeholder instead."""
    metadata = record.get("microcompactMetadata")
    if record.get("type") != "system" or record.get("subtype") != "microcompact_boundary" or type(metadata) is not dict:
        return []
    ids = metadata.get("compactedToolIds")
    return [call_id for call_id in ids if type(call_id) is str] if type(ids) is list else []


def is_summary(record: dict[str, Any]) -> bool:
    return record.get("type") == "user" and record.get("isCompactSummary") is True


def _compact_metadata(boundary: dict[str, Any]) -> dict[str, Any]:
    metadata = boundary.get("compactMetadata")
    return metadata if type(metadata) is dict else {}


_REASONS = {"auto": "tokens", "manual": "request"}
"""The cause of a compaction, in the words of our condensers."""
_TOKENS = {"preTokens": "tokens_before", "postTokens": "tokens_after"}


def metadata_of(boundary: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a condensation from its boundary: the source's own metadata, and the same in the words of
    our condensers.
    """
    metadata = {key: value for key, value in _compact_metadata(boundary).items() if not key.startswith("preserved")}
    trigger = metadata.get("trigger")
    if type(trigger) is str and trigger in _REASONS:
        metadata["reason"] = _REASONS[trigger]
    ours = {name: metadata[key] for key, name in _TOKENS.items() if type(metadata.get(key)) is int}
    return metadata | ours


class Kept(NamedTuple):
    """The messages that a compaction keeps: those with these ids, or those from ``first`` to ``last``."""

    ids: frozenset[str] = frozenset()
    first: str | None = None
    last: str | None = None
    anchor: str | None = None

    @classmethod
    def by(cls, boundary: dict[str, Any]) -> Kept:
        """Read the kept messages from the boundary's metadata."""
        metadata = _compact_metadata(boundary)
        messages, segment = metadata.get("preservedMessages"), metadata.get("preservedSegment")
        if type(messages) is dict:
            ids = messages.get("allUuids", messages.get("uuids"))
            names = frozenset(name for name in ids if type(name) is str) if type(ids) is list else frozenset()
            return cls(ids=names, anchor=_text(messages.get("anchorUuid")))
        if type(segment) is dict:
            first, last, anchor = (_text(segment.get(key)) for key in ("headUuid", "tailUuid", "anchorUuid"))
            return cls(first=first, last=last, anchor=anchor)
        return cls()

    def continues_from(self, parent: str) -> bool:
        """Return whether a line that follows the line ``parent`` continues the kept messages, and so the compaction."""
        return parent in self.ids or parent == self.last


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def parted(members: Sequence[tuple[int, str | None]], kept: Kept) -> tuple[tuple[int, ...], int]:
    """Return the ids that a compaction forgets of the members of a View, and the number of members that stay."""
    places = range(0)
    if kept.first is not None and kept.last is not None:
        names = [uuid for _, uuid in members]
        if kept.first in names and kept.last in names:
            places = range(names.index(kept.first), len(names) - names[::-1].index(kept.last))
    gone = tuple(
        event_id for place, (event_id, uuid) in enumerate(members) if place not in places and uuid not in kept.ids
    )
    return gone, len(members) - len(gone)
