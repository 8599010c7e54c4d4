"""Compaction: a boundary line, then a line with a summary. After it a model is shown the summary and later lines.

Newer releases keep some messages, which the boundary names: all by their ids, or the first and the last. They are
placed after their *anchor*: the summary, or the boundary, if the messages are a beginning that the summary follows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog._formats.format import Past
from foldlog.eventstore import CondensationAction, Event, Retraction, summary_id, summary_of


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


_Member = tuple["_Member | Earlier | None", int, str | None]
"""The previous list, the id of an event or a summary, and the id of the line that it came from."""


class Earlier:
    """The members of an earlier version: read from the View when they are needed."""

    def __init__(self, past: Past, version: int) -> None:
        self._past, self._version = past, version
        self._members: list[tuple[int, str | None]] | None = None

    def members(self) -> list[tuple[int, str | None]]:
        if self._members is None:
            self._members = [
                (event.id, _text(None if event.origin is None else event.origin.id))
                for event in self._past.view(self._version)
            ]
        return self._members


class ShownMembers:
    """The present content of a View, in order: ids of events and of summaries, with the ids of their lines.

    It is as large as the View.
    """

    def __init__(self, newest: _Member | Earlier | None = None) -> None:
        self._newest = newest

    def copy(self) -> ShownMembers:
        """Return the present members, which later changes do not affect. Cost: none; the members are shared."""
        return ShownMembers(self._newest)

    def follow(self, event: Event, uuid: Any) -> None:
        """Add ``event``, which came from the line ``uuid``."""
        if isinstance(event, CondensationAction):
            gone = set(event.forgotten_event_ids or ())
            members = [member for member in self._members if member[0] not in gone]
            if event.summary_offset is not None:
                members.insert(max(event.summary_offset, 0), (summary_id(event.id), None))
            self._stand(members)
        elif isinstance(event, Retraction):
            self._stand([member for member in self._members if max(member[0], summary_of(member[0])) < event.version])
        elif event.shown:
            self._newest = (self._newest, event.id, _text(uuid))

    def _stand(self, members: list[tuple[int, str | None]]) -> None:
        self._newest = None
        for event_id, uuid in members:
            self._newest = (self._newest, event_id, uuid)

    @property
    def _members(self) -> list[tuple[int, str | None]]:
        members: list[tuple[int, str | None]] = []
        member = self._newest
        while member is not None:
            if isinstance(member, Earlier):
                return member.members() + members[::-1]
            member, event_id, uuid = member
            members.append((event_id, uuid))
        return members[::-1]

    def parted(self, kept: Kept) -> tuple[tuple[int, ...], int]:
        """Return the ids that a compaction forgets, and the number of events that stay."""
        members, places = self._members, range(0)
        if kept.first is not None and kept.last is not None:
            names = [uuid for _, uuid in members]
            if kept.first in names and kept.last in names:
                places = range(names.index(kept.first), len(names) - names[::-1].index(kept.last))
        gone = tuple(
            event_id for place, (event_id, uuid) in enumerate(members) if place not in places and uuid not in kept.ids
        )
        return gone, len(members) - len(gone)

    def lines_without(self, gone: frozenset[int]) -> list[str]:
        """Return the ids of the lines that are still in the View when the events ``gone`` are forgotten."""
        return list(
            dict.fromkeys(uuid for event_id, uuid in self._members if uuid is not None and event_id not in gone)
        )
