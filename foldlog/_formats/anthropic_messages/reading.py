"""Messages of Anthropic's API to events."""

from __future__ import annotations

from typing import Any

from foldlog._formats.calls import OpenCalls
from foldlog._formats.claude_code.blocks import THINKING, kind_of, part_of
from foldlog._formats.claude_code.reading import usage_in
from foldlog._formats.format import Options, RecordDecoder
from foldlog._formats.members import Members
from foldlog._formats.record import NotAnEvent, described, text_or_empty, time_at
from foldlog._formats.record_events import RecordEvents
from foldlog.eventstore import Action, CondensationAction, Event, Observation, Origin, Source

NAME = "anthropic-messages"
DELETED = "conversationHistoryDeletedRange"
"""Where Cline says which messages it no longer sends: the number of the first and of the last one."""

_ALWAYS_SENT = 2
"""The number of the first messages that Cline never deletes."""
_ADDED = "<environment_details>"
"""The beginning of what Cline and Roo Code add to what the user says."""


def accepts(record: Any) -> bool:
    """Return whether ``record`` has the role of a user or an assistant, and content."""
    return type(record) is dict and record.get("role") in ("user", "assistant") and "content" in record


class AnthropicDecoder(RecordDecoder):
    """Messages of one history, and marks of deletions, to events."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls = OpenCalls()
        self._shown = Members[tuple[int, Any]]()
        """What is shown: of each event the number of its message, and the truncation that hides it."""
        self._count = 0

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next message or mark. Raises ``NotAnEvent`` where it is neither."""
        if type(record) is not dict:
            raise NotAnEvent(f"expected a message object, found {described(record)}")
        if not accepts(record) and DELETED not in record:
            raise NotAnEvent("the object has no content, or no 'role' of a user or an assistant")
        events = self._condensation(record) or self._read(record)
        for event in events:
            if type(event) is Action:
                self._calls.open(event)
            self._shown.follow(event, (self._count, record.get("truncationParent")))
        self._count += DELETED not in record
        self.next_id += len(events)
        return events

    def _condensation(self, record: dict[str, Any]) -> list[Event]:
        """Return the condensation that a record tells of: a summary, a truncation or a deletion."""
        members, summary = self._shown.all(), _text(record)
        match record:
            case {"isSummary": True} if summary:
                first = 0 if record["role"] == "user" else 1  # in 2025 an assistant's summary stood behind the task
                gone = [event_id for event_id, (place, _) in members if place >= first]
            case {"isTruncationMarker": True, "truncationId": str(marker)} if summary:
                gone = [event_id for event_id, (_, hidden_by) in members if hidden_by == marker]
            case {"conversationHistoryDeletedRange": [int(), int(last)]}:
                gone = [event_id for event_id, (place, _) in members if _ALWAYS_SENT <= place <= last]
            case _:
                return []
        if not gone and not summary:
            return []
        offset = len(members) - len(gone) if summary else None
        entry = _entry(record, self.next_id)
        entry.add(CondensationAction, forgotten_event_ids=tuple(gone), summary=summary or None, summary_offset=offset)
        return entry.events

    def _read(self, record: dict[str, Any]) -> list[Event]:
        entry, is_agent = _entry(record, self.next_id), record.get("role") == "assistant"
        for block in _blocks(record.get("content")):
            kind, part = kind_of(block), _part(block)
            if part is not None:
                entry.parts.append(part)
            elif kind in THINKING:
                entry.thinking.append(block)
            elif kind == "tool_use":
                entry.call(block.get("name"), block.get("input"), block.get("id"))
            elif kind == "tool_result":
                entry.say(_speaker(entry.parts, is_agent))
                call_id, cause, tool = self._calls.close(block.get("tool_use_id"))
                content = block.get("content")
                entry.add(
                    Observation,
                    content=_parts(content) if type(content) is list else text_or_empty(content),
                    tool=tool,
                    call_id=call_id,
                    cause=cause,
                    is_error=block.get("is_error") is True,
                )
        entry.say(_speaker(entry.parts, is_agent), as_text=is_agent or type(record.get("content")) is str)
        return entry.close("message", record.get("content", record.get(DELETED)))


def _entry(record: dict[str, Any], first_id: int) -> RecordEvents:
    milliseconds = record.get("ts")
    time = time_at(milliseconds / 1000) if type(milliseconds) is int else None
    entry = RecordEvents(first_id, Origin(format=NAME, id=record.get("id")), time)
    entry.meta = usage_in(record)
    model, metrics = record.get("modelInfo"), record.get("metrics")
    model, metrics = model if type(model) is dict else {}, metrics if type(metrics) is dict else {}
    cost, tokens = metrics.get("cost"), metrics.get("tokens")
    if tokens is not None:
        names = {"cached_tokens": "cached", "completion_tokens": "completion"}
        entry.tell(model.get("modelId"), cost, tokens, prompt_tokens=("prompt", "cached"), **names)
    elif metrics or model:  # Cline 4: the tokens of the cache are part of the prompt
        named = model.get("modelId", model.get("id"))
        names = {"prompt_tokens": "inputTokens", "cached_tokens": "cacheReadTokens"}
        names |= {"cache_write_tokens": "cacheWriteTokens", "completion_tokens": "outputTokens"}
        entry.tell(named, cost, metrics, **names)
    return entry


def _speaker(parts: list[dict[str, Any]], is_agent: bool) -> Source:
    if is_agent:
        return "agent"
    is_added = all(text_or_empty(part.get("text")).lstrip().startswith(_ADDED) for part in parts)
    return "environment" if is_added else "user"


def _blocks(content: Any) -> list[Any]:
    return content if type(content) is list else [{"type": "text", "text": content}] if content else []


def _part(block: Any) -> dict[str, Any] | None:
    """Return a text, an image or a file as a part; Cline 4 has the last two in forms of its own."""
    match block:
        case {"type": "image", "data": str(data), "mediaType": str(media_type)}:
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
        case {"type": "file", "content": str(text), "path": str(path)}:
            return {"type": "text", "text": f'<file_content path="{path}">\n{text}\n</file_content>'}
    return part_of(block)


def _parts(blocks: list[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(part for block in blocks if (part := _part(block)) is not None)


def _text(record: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in _parts(_blocks(record.get("content"))) if "text" in part)
