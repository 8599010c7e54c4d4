"""Write a line again after a redaction deleted its content. Claude Code's SDK can read the new
line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog.eventstore import Action, Annotation, CondensationAction, Event, Message, Observation
from foldlog.eventstore.usage import PLACED_FROM
from foldlog.formats.blocks import as_anthropic, blocks_of, result_of, use_of
from foldlog.formats.claude_code.branches import is_side
from foldlog.formats.claude_code.lines import ENVELOPE
from foldlog.formats.event_fields import REDACTED, id_of_source, stamp_of
from foldlog.formats.format import RecordEncoder
from foldlog.formats.record import Fields, pick


class RemainsEncoder(RecordEncoder):
    """Writes a line for each imported event. An event that was appended after the import gets no
    line.
    """

    def __init__(self) -> None:
        self._last_line: Any = None
        self._envelope: Fields = {}

    def records(self, event: Event) -> list[Any] | None:
        if event.origin is None or PLACED_FROM in event.meta:
            return None
        line = {
            **self._envelope,
            "parentUuid": self._last_line,
            "uuid": id_of_source(event),
            **stamp_of(event),
        }
        line |= _line_fields(event)
        self._remember(line)
        return [line]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        line = record or {}
        # an event that was appended later never belongs to a sub-agent
        if not is_side(line) or any(event.shown for event in events):
            self._remember(line)

    def _remember(self, line: Fields) -> None:
        if line.get("uuid") is not None:
            self._last_line = line["uuid"]
            self._envelope = pick(line, ENVELOPE)


def _line_fields(event: Event) -> Fields:
    """Return the fields of a line with the content of an event."""
    match event:
        case Annotation(name="user" | "assistant" as role):
            if isinstance(event.data, list):
                content = event.data
            else:
                content = blocks_of(REDACTED)
            return {"type": role, "message": {"role": role, "content": content}}
        case Annotation(name=name, data=data):
            return {"type": name, **(data if isinstance(data, dict) else {"value": data})}
        case CondensationAction():
            summary = {
                "type": "user",
                "message": {"role": "user", "content": event.summary or REDACTED},
            }
            return {**summary, "isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        case Action():
            return _response(event, [*blocks_of(event.thought), use_of(event)], event.response_id)
        case Observation():
            return {"type": "user", "message": {"role": "user", "content": [result_of(event)]}}
        case Message(source="agent"):
            return _response(event, blocks_of(event.content), None)
        case Message():
            is_meta = {"isMeta": True} if event.source == "environment" else {}
            return {
                "type": "user",
                "message": {"role": "user", "content": as_anthropic(event.content)},
                **is_meta,
            }
    return {"type": "system", "content": REDACTED}


def _response(event: Action | Message, blocks: list[Any], response_id: str | None) -> Fields:
    """Return the fields of a line with a part of a response. Only thinking that a server would
    accept is written.
    """
    thinking = [block for block in event.thinking if block.get("signature") or "data" in block]
    message: Fields = {
        "type": "message",
        "role": "assistant",
        "content": [*thinking, *blocks],
    }
    return {
        "type": "assistant",
        "message": message if response_id is None else {**message, "id": response_id},
    }
