"""Messages of Anthropic's API to events."""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import THINKING, kind_of, part_of
from foldlog._formats.claude_code.reading import usage_in
from foldlog._formats.format import Options
from foldlog._formats.record import NotAnEvent, described, text_or_empty, time_at
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog.eventstore import CondensationAction, Origin, Source

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


class AnthropicDecoder(FollowingDecoder):
    """Messages of one history, and marks of deletions, to events.

    Of what is shown it knows the number of the message, and the truncation that hides it.
    """

    format = NAME

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._count = 0

    def check(self, record: Any) -> None:
        if type(record) is not dict:
            raise NotAnEvent(f"expected a message object, found {described(record)}")
        if not accepts(record) and DELETED not in record:
            raise NotAnEvent("the object has no content, or no 'role' of a user or an assistant")

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        read.known = (self._count, record.get("truncationParent"))
        if not self._condense(read, record):
            self._read_blocks(read, record)
        self._count += DELETED not in record

    def begun(self, record: dict[str, Any]) -> RecordEvents:
        milliseconds = record.get("ts")
        time = time_at(milliseconds / 1000) if type(milliseconds) is int else None
        read = RecordEvents(self, Origin(format=NAME, id=record.get("id")), time)
        _tell(read, record)
        return read

    def _condense(self, read: RecordEvents, record: dict[str, Any]) -> bool:
        """Add the condensation that a record tells of, if it does: a summary, a truncation or a deletion."""
        members, summary = self.shown.all(), _text(record)
        match record:
            case {"isSummary": True} if summary:
                first = 0 if record["role"] == "user" else 1  # in 2025 an assistant's summary stood behind the task
                gone = [event_id for event_id, (place, _) in members if place >= first]
            case {"isTruncationMarker": True, "truncationId": str(marker)} if summary:
                gone = [event_id for event_id, (_, hidden_by) in members if hidden_by == marker]
            case {"conversationHistoryDeletedRange": [int(), int(last)]}:
                gone = [event_id for event_id, (place, _) in members if _ALWAYS_SENT <= place <= last]
            case _:
                return False
        if gone or summary:
            offset = len(members) - len(gone) if summary else None
            read.add(
                CondensationAction, forgotten_event_ids=tuple(gone), summary=summary or None, summary_offset=offset
            )
        return bool(read.events)

    def _read_blocks(self, read: RecordEvents, record: dict[str, Any]) -> None:
        is_agent = record.get("role") == "assistant"
        for block in _blocks(record.get("content")):
            kind, part = kind_of(block), _part(block)
            if part is not None:
                read.parts.append(part)
            elif kind in THINKING:
                read.thinking.append(block)
            elif kind == "tool_use":
                read.call(block.get("name"), block.get("input"), block.get("id"))
            elif kind == "tool_result":
                read.say(_speaker(read.parts, is_agent))
                content = block.get("content")
                told = _parts(content) if type(content) is list else text_or_empty(content)
                read.answer(block.get("tool_use_id"), told, is_error=block.get("is_error") is True)
        read.say(_speaker(read.parts, is_agent), as_text=is_agent or type(record.get("content")) is str)
        read.close("message", record.get("content", record.get(DELETED)))


def _tell(read: RecordEvents, record: dict[str, Any]) -> None:
    read.meta = usage_in(record)
    model, metrics = record.get("modelInfo"), record.get("metrics")
    model, metrics = model if type(model) is dict else {}, metrics if type(metrics) is dict else {}
    cost, tokens = metrics.get("cost"), metrics.get("tokens")
    if tokens is not None:
        names = {"cached_tokens": "cached", "completion_tokens": "completion"}
        read.tell(model.get("modelId"), cost, tokens, prompt_tokens=("prompt", "cached"), **names)
    elif metrics or model:  # Cline 4: the tokens of the cache are part of the prompt
        named = model.get("modelId", model.get("id"))
        names = {"prompt_tokens": "inputTokens", "cached_tokens": "cacheReadTokens"}
        names |= {"cache_write_tokens": "cacheWriteTokens", "completion_tokens": "outputTokens"}
        read.tell(named, cost, metrics, **names)


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
