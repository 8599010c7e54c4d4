"""Encode events as Claude Code's lines: the fields that the events of a line give, and the line itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._formats.blocks import blocks_of, given
from foldlog._formats.claude_code.branches import is_side
from foldlog._formats.claude_code.lines import TOOL
from foldlog._formats.format import RecordEncoder
from foldlog._formats.members import Members
from foldlog._formats.pairs import arguments_of
from foldlog._formats.record import joined_text, within
from foldlog._formats.told import OF_THE_STORE, REDACTED, call_id_of, id_of_source, stamp_of
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)

NAME = "claude-code"

ENVELOPE = ("isSidechain", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "agentId")
"""Fields that each line repeats."""
Shown = tuple[str | None, bool]
"""A member of the View: the id of its line, and whether it is a system prompt, which is sent before all messages."""


class ClaudeCodeEncoder(RecordEncoder):
    """Events of one history to lines, which follow the line before them."""

    def __init__(self) -> None:
        self._last_line: Any = None
        self._is_boundary = False
        self._envelope: dict[str, Any] = {}
        self._shown = Members[Shown]()

    def records(self, event: Event) -> list[Any] | None:
        uuid = id_of_source(event) or _line_id(event.id)
        self._shown.follow(event, (uuid, isinstance(event, SystemMessage)))
        lines = None if isinstance(event, OF_THE_STORE) else self._lines(event, uuid)
        if lines is None:
            return None
        for line in lines:
            self._remember(line)
        return lines

    def follow(self, events: Sequence[Event], record: Any) -> None:
        line = record or {}
        for event in events:
            self._shown.follow(event, (line.get("uuid"), isinstance(event, SystemMessage)))
        if not is_side(line) or any(event.shown for event in events):  # added events are not a sub-agent's
            self._remember(line)

    def _remember(self, line: dict[str, Any]) -> None:
        if line.get("uuid") is not None:
            self._last_line, self._is_boundary = line["uuid"], line.get("subtype") == "compact_boundary"
            self._envelope = {key: line[key] for key in ENVELOPE if key in line}

    def _lines(self, event: Event, uuid: str) -> list[Any] | None:
        line = {**self._envelope, "parentUuid": self._last_line, "uuid": uuid, **stamp_of(event)}
        if isinstance(event, CondensationAction):
            return self._compaction(event, line)
        return [line | _content(event)]

    def _compaction(self, event: CondensationAction, line: dict[str, Any]) -> list[Any] | None:
        """Return the lines of a condensation that foldlog made, which may keep any events. A condensation without a
        summary has no lines, and one whose boundary is the line before it, because its summary was redacted, has one.
        """
        if event.summary is None:
            return None
        said = {"type": "user", "message": {"role": "user", "content": event.summary}}
        after = {**line, **said, "isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        if self._is_boundary and event.origin is not None:
            return [after]
        boundary, summary = _line_id(event.id, 1), line["uuid"]
        shown = [each for _, each in self._shown.all()]
        kept = {uuid: is_prompt for uuid, is_prompt in shown if uuid not in (None, summary)}
        metadata: dict[str, Any] = {"trigger": "manual" if event.metadata.get("reason") == "request" else "auto"}
        if kept:
            is_last, place = shown[-1][0] == summary, max(event.summary_offset or 0, 0)
            self.misplaced += not (is_last or place == [*kept.values(), False].index(False))  # prompts come first
            metadata["preservedMessages"] = {"anchorUuid": boundary if is_last else summary, "uuids": list(kept)}
        before = {**self._envelope, "type": "system", "subtype": "compact_boundary", "uuid": boundary}
        before |= {"parentUuid": None, "logicalParentUuid": self._last_line, "compactMetadata": metadata}
        return [before, after | {"parentUuid": boundary}]


def _line_id(event_id: int, number: int = 0) -> str:
    """Return an id for a line of an event that did not come from a line."""
    return f"{event_id:08x}-0000-4000-8000-{number:012x}"


def _content(event: Event) -> dict[str, Any]:
    """Return the fields of the line of ``event`` that hold its content."""
    match event:
        case Annotation(name="user" | "assistant" as role) if event.redacted is not None:
            content = event.data if isinstance(event.data, list) else blocks_of(REDACTED)
            return {"type": role, "message": {"role": role, "content": content}}
        case Annotation(name=name, data=data):
            return {"type": name, **(data if isinstance(data, dict) else {"value": data})}
        case CondensationSummary():
            return {"type": "user", "message": {"role": "user", "content": event.content}}
        case SystemMessage():
            tools = [{key: within(tool, "function", ours) for key, ours in TOOL.items()} for tool in event.tools]
            prompt = {"type": "prompt_snapshot", "systemPrompt": [joined_text(event.content)], "tools": tools}
            return {"type": "attachment", "attachment": prompt}
        case CondensationRequest():
            return {"type": "system", "subtype": "condensation_request", "content": event.reason}
        case Action():
            return _response(event, [*blocks_of(event.thought), use_of(event)], event.response_id)
        case Observation():
            return {"type": "user", "message": {"role": "user", "content": [result_of(event)]}}
        case Message(source="agent"):
            return _response(event, blocks_of(event.content), None)
        case Message():
            is_meta = {"isMeta": True} if event.source == "environment" else {}
            return {"type": "user", "message": {"role": "user", "content": given(event.content)}, **is_meta}
    return {}


def _response(event: Action | Message, blocks: list[Any], response_id: str | None) -> dict[str, Any]:
    thinking = [block for block in event.thinking if block.get("signature") or "data" in block]
    message: dict[str, Any] = {"type": "message", "role": "assistant", "content": [*thinking, *blocks]}
    return {"type": "assistant", "message": message if response_id is None else {**message, "id": response_id}}


def use_of(action: Action) -> dict[str, Any]:
    return {"type": "tool_use", "name": action.tool, "input": arguments_of(action), "id": call_id_of(action)}


def result_of(observation: Observation) -> dict[str, Any]:
    result = {"type": "tool_result", "content": given(observation.content), "tool_use_id": call_id_of(observation)}
    return {**result, "is_error": True} if observation.is_error else result
