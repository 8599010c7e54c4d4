"""Write events as V1 records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

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
    summary_of,
)
from foldlog.formats.event_fields import (
    STORE_EVENTS,
    call_id_of,
    id_of_source,
    stamp_of,
    text_part,
)
from foldlog.formats.format import RecordEncoder
from foldlog.formats.openhands_v1.contents import blocks_of
from foldlog.formats.record import Fields, joined_text
from foldlog.projections import arguments_of, contains
from foldlog.projections.refusals import REJECTION_SOURCE

NAME = "openhands-v1"

ANSWERS = {
    "ObservationEvent": "observation",
    "UserRejectObservation": "rejection_reason",
    "AgentErrorEvent": "error",
}
"""The kinds of records that answer an action, and their fields with the answer."""
PROMPT_UPDATE = "SystemPromptUpdateEvent"
"""The kind of a system prompt that replaces the earlier system prompt."""
SUMMARY = "-summary"
"""The id of a summary is the id of its condensation, followed by this text."""


class OpenHandsV1Encoder(RecordEncoder):
    """Writes records with the ids of the source. The record of an event that has no such id gets a
    new id.
    """

    def __init__(self) -> None:
        self._source_ids: dict[int, Any] = {}
        self._new_ids: list[tuple[int, int]] = []
        """The ids of the events whose records got a new id, as intervals. ``_new_id`` computes the
        new id from the id of the event.
        """

    def records(self, event: Event) -> list[Any] | None:
        if isinstance(event, STORE_EVENTS):
            return None
        source_id = id_of_source(event)
        is_noted = False
        if source_id is None:
            source_id = _new_id(event.id)
            is_noted = self._add_new_id(event.id)
        if not is_noted:
            self._source_ids[event.id] = source_id
        return [self._record(event, source_id)]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        for event in events:
            self._source_ids[event.id] = id_of_source(event)

    def _add_new_id(self, event_id: int) -> bool:
        """Remember that the record of an event got a new id. The events must come in order: for an
        event before the last one, return False, and remember nothing.
        """
        first, last = self._new_ids[-1] if self._new_ids else (event_id, event_id - 1)
        if event_id <= last:
            return False
        if event_id == last + 1:
            del self._new_ids[-1:]
        else:
            first = event_id
        self._new_ids.append((first, event_id))
        return True

    def _id_of(self, event_id: int) -> Any:
        """Return the id of an event's record, or None if the event has no record."""
        if contains(self._new_ids, event_id):
            return _new_id(event_id)
        return self._source_ids.get(event_id)

    def _record(self, event: Event, source_id: Any) -> Fields:
        """Return the record of an event, with this id."""
        record: Fields = {"source": event.source, "id": source_id, **stamp_of(event)}
        match event:
            case Action():
                _write_action(event, record)
            case Observation():
                self._write_observation(event, record)
            case Message():
                record["kind"] = "MessageEvent"
                role = "assistant" if event.source == "agent" else "user"
                record["llm_message"] = {"role": role, "content": blocks_of(event.content)}
                record["extended_content"] = []
            case SystemMessage():
                record["kind"] = "SystemPromptEvent"
                record["tools"] = list(event.tools)
                if prompt := joined_text(event.content):
                    record["system_prompt"] = text_part(prompt)
            case Annotation():
                record["kind"] = event.name
                record.update(event.data if isinstance(event.data, dict) else {"value": event.data})
            case CondensationAction():
                record["kind"] = "Condensation"
                record["forgotten_event_ids"] = self._forgotten(event)
                if event.summary is not None:
                    record["summary"] = event.summary
                    record["summary_offset"] = event.summary_offset
            case CondensationSummary():
                record["kind"] = "CondensationSummaryEvent"
                record["summary"] = event.content
            case CondensationRequest():
                record["kind"] = "CondensationRequest"
        return record

    def _write_observation(self, event: Observation, record: Fields) -> None:
        """Add the fields of a result. A redacted result and an error are written as an
        ``AgentErrorEvent``: to read any other kind of result, the SDK needs the class of the
        result, which is unknown after a redaction. And the SDK adds a text for the model to all
        other kinds.
        """
        record["kind"] = "ObservationEvent"
        record["tool_name"] = event.tool
        record["tool_call_id"] = call_id_of(event)
        is_rejection = REJECTION_SOURCE in event.extras
        if event.redacted is not None or (event.is_error and not is_rejection):
            record["kind"] = "AgentErrorEvent"
            record["error"] = joined_text(event.content)
            return
        action_id = None if event.cause is None else self._id_of(event.cause)
        if action_id is not None:
            record["action_id"] = action_id
        if is_rejection:
            record["kind"] = "UserRejectObservation"
            record["rejection_reason"] = joined_text(event.content)
            record[REJECTION_SOURCE] = event.extras[REJECTION_SOURCE]
            return
        record["observation"] = {**event.extras, "content": blocks_of(event.content)}

    def _forgotten(self, event: CondensationAction) -> list[Any]:
        """Return the ids of the records and summaries that a condensation forgets."""
        intervals, summaries = event.forgotten
        event_ids = chain.from_iterable(range(first, last + 1) for first, last in intervals)
        condensations = map(summary_of, summaries)
        return [
            *filter(None, map(self._id_of, event_ids)),
            *(f"{self._id_of(condensation)}{SUMMARY}" for condensation in condensations),
        ]


def _new_id(event_id: int) -> str:
    """Return the id of a record whose event has none: a UUID with the id of the event."""
    return f"{event_id:08x}-0000-4000-8000-000000000000"


def _write_action(event: Action, record: Fields) -> None:
    """Add the fields of a call."""
    record["kind"] = "ActionEvent"
    record["tool_name"] = event.tool
    record["thought"] = blocks_of(event.thought)
    if thinking := [block for block in event.thinking if block.get("type") != "reasoning"]:
        record["thinking_blocks"] = thinking
    if event.response_id is not None:
        record["llm_response_id"] = event.response_id
    record["tool_call_id"] = call_id_of(event)
    if isinstance(event.arguments, dict):
        record["action"] = dict(event.arguments) if event.redacted is None else None
    if event.arguments is not None:
        called = {"name": event.tool, "arguments": arguments_of(event)}
        record["tool_call"] = {"id": call_id_of(event), "origin": "completion", **called}
