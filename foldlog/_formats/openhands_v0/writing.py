"""Encode events as V0 records: the fields that an event gives, and the record itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from foldlog._formats.format import RecordEncoder
from foldlog._formats.pairs import arguments_of
from foldlog._formats.record import joined_text
from foldlog._formats.told import OF_THE_STORE, call_id_of, id_of_source, parts_in, stamp_of, url_in
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
from foldlog.projections import arguments_of as arguments_shown

NAME = "openhands-v0"

OBSERVED_BOOKKEEPING = frozenset({"null", "agent_state_changed"})
"""Observations that are bookkeeping in a stream."""


class OpenHandsEncoder(RecordEncoder):
    """Events of one history to records, one for each, which get ids of their own."""

    def __init__(self) -> None:
        self.source_ids: dict[int, Any] = {}
        """The ids of the records, by those of the events."""
        self.free_id = 0
        """The first number after those that are ids."""

    def records(self, event: Event) -> list[Any] | None:
        if isinstance(event, OF_THE_STORE):
            return None
        known = id_of_source(event)
        record = self.written(event, self.own_id(event) if known is None else known)
        self._remember(event.id, record["id"])
        return [record]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        for event in events:
            self._remember(event.id, id_of_source(event))

    def _remember(self, event_id: int, source_id: Any) -> None:
        self.source_ids[event_id] = source_id
        if type(source_id) is int:
            self.free_id = max(self.free_id, source_id + 1)

    def own_id(self, event: Event) -> Any:
        """Return the id of the record of an event that has none."""
        return self.free_id

    @abstractmethod
    def written(self, event: Event, source_id: Any) -> dict[str, Any]:
        """Return the record of an event, with this id."""


class OpenHandsV0Encoder(OpenHandsEncoder):
    def written(self, event: Event, source_id: Any) -> dict[str, Any]:
        cause = None if event.cause is None else self.source_ids.get(event.cause)
        record: dict[str, Any] = {"source": event.source, "id": source_id}
        record |= ({} if cause is None else {"cause": cause}) | stamp_of(event)
        payload = self._write_body(event, record)
        if payload is not None:
            record["args" if "action" in record else "extras"] = payload
        return record

    def _write_body(self, event: Event, record: dict[str, Any]) -> dict[str, Any] | None:
        """Add the fields of this kind of event to ``record``. Return its arguments or extras."""
        match event:
            case Action():
                return _write_action(event, record)
            case Observation():
                record["observation"] = "mcp"  # an error would tell the model more than the result
                record["content"] = joined_text(event.content)
                if event.call_id is not None:
                    record["tool_call_metadata"] = {"tool_call_id": call_id_of(event)}
                return event.extras
            case Message() | SystemMessage():
                record["action"], args, record["message"] = _said(event)
                return args
            case Annotation(origin=None):
                record["observation"], record["content"] = "null", ""
                return {"name": event.name, "data": event.data}
            case Annotation():
                record["observation" if event.name in OBSERVED_BOOKKEEPING else "action"] = event.name
                record.update(event.data if isinstance(event.data, dict) else {"content": event.data})
            case CondensationAction():
                record["action"] = "condensation"
                if event.summary is not None:
                    record["message"] = f"Summary: {event.summary}"
                return self._forgetting(event)
            case CondensationSummary():
                record["observation"], record["content"] = "condense", event.content
                return {}
            case CondensationRequest():
                record["action"] = "condensation_request"
                return {}
        return None

    def _forgetting(self, event: CondensationAction) -> dict[str, Any]:
        """Return the arguments of a condensation. Older summaries have no id in V0, which shows only the newest."""
        ids = [self.source_ids.get(i) for first, last in event.forgotten.intervals for i in range(first, last + 1)]
        args: dict[str, Any] = {"forgotten_event_ids": [each for each in ids if each is not None]}
        if event.summary is not None:
            args["summary"], args["summary_offset"] = event.summary, event.summary_offset
        return args


def _write_action(event: Action, record: dict[str, Any]) -> dict[str, Any]:
    """Write a call as that of a tool which V0 does not have, with the model's words: no name or argument is V0's."""
    known = {**arguments_of(event)}
    if event.source != "agent" and event.call_id is None:
        record["action"] = event.tool
        return {**known, "thought": event.thought} if event.thought else known
    given = {"name": event.tool, "arguments": arguments_shown(event)}
    call = {"id": call_id_of(event), "type": "function", "function": given}
    said = {"role": "assistant", "content": event.thought, "tool_calls": [call]}
    response = {"id": event.response_id, "choices": [{"message": said}]}
    named = {"function_name": event.tool, "tool_call_id": call["id"]}
    record["action"], record["tool_call_metadata"] = "call_tool_mcp", {**named, "model_response": response}
    return {"name": event.tool, "arguments": known, "thought": joined_text(event.thought)}


def _said(event: Message | SystemMessage) -> tuple[str, dict[str, Any], str]:
    """Return the action's name, its arguments, and the text that the record's ``message`` repeats."""
    images = [url for part in parts_in(event.content) if (url := url_in(part))]
    text = joined_text(event.content)
    if type(event) is SystemMessage:
        return "system", {"content": text, "tools": list(event.tools)}, text
    return "message", {"content": text, **({"image_urls": images} if images else {})}, text
