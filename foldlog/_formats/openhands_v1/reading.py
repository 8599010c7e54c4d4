"""V1 records to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from foldlog._formats.calls import REJECTED, OpenCalls
from foldlog._formats.format import Past
from foldlog._formats.openhands_v1.blocks import content_of, parts_of
from foldlog._formats.openhands_v1.branches import Branches, Place, Trunk
from foldlog._formats.openhands_v1.standing import StandingIds
from foldlog._formats.openhands_v1.writing import ANSWERS, NAME, PROMPT_UPDATE, SUMMARY
from foldlog._formats.recent import Recent
from foldlog._formats.record import NotAnEvent, described, read_time, text_or_empty
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
    summary_id,
    summary_of,
)

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment", "hook": "environment"}
_USUAL_SOURCE: dict[str, Source] = {
    "SystemPromptEvent": "agent",
    "ActionEvent": "agent",
    "AgentErrorEvent": "agent",
    "ACPToolCallEvent": "agent",
    "PauseEvent": "user",
    "InterruptEvent": "user",
}
_SPEAKERS: dict[Any, Source] = {"user": "user", "assistant": "agent"}
_CAUSES_MAX = 10_000
"""An action waits for its result during this many events; after that the two are not paired."""
_LOOKS_BACK = frozenset(("Condensation", PROMPT_UPDATE))
"""Kinds of records that may refer to events of any age."""


class OpenHandsV1Decoder:
    """Records of one history to events, one record after the other.

    ``branches`` are those of a log that branches: see ``find_branches``.
    """

    def __init__(self, *, branches: Branches | None = None, first_id: int = 0, past: Past | None = None) -> None:
        self._branches = branches
        self._next_id = first_id
        self._event_ids: Recent[str, int] = Recent(_CAUSES_MAX)
        self._callers: Recent[str, int] = Recent(_CAUSES_MAX)
        self._standing = StandingIds(keeps_notes=branches is not None)
        self._record_number = -1
        self._calls = OpenCalls(past)
        self._past = self._unread = past if first_id else None

    def skip_to(self, next_id: int) -> None:
        self._next_id = next_id

    def events(self, record: Any) -> list[Event]:
        """Return the event of the next record. Before it may come a retraction of the branch that it leaves, and a
        condensation of an event that it replaces.

        Raises ``NotAnEvent`` if the record is not an event.
        """
        self._record_number += 1
        if type(record) is not dict:
            raise NotAnEvent(f"expected an event object, found {described(record)}")
        kind = record.get("kind")
        if type(kind) is not str:
            raise NotAnEvent("the object has no text under 'kind', which every event of OpenHands V1 has")
        if self._branches is None:
            return self._read(kind, record)
        left = self._branches.before(record)
        switch = [] if left is None else self._gone_to(left)
        events = self._read(kind, record)
        active = self._branches.after(record, self._record_number, self._next_id, self._standing)
        return [*switch, *events, *([] if active is None else self._gone_to(active))]

    def _gone_to(self, place: Place) -> list[Event]:
        """Return the retraction to a place on another branch. An open request on the branch that is left is declined
        first: otherwise it would stay open after the retraction.
        """
        was_requested = self._standing.awaits_condensation
        self._standing = StandingIds(place.notes_from_root, requested=place.requested)
        origin = Origin(format=NAME)
        events: list[Event] = [Retraction(id=self._next_id, version=place.version, origin=origin)]
        if was_requested and not self._standing.awaits_condensation:
            reason = "the source left the branch that requested it"
            events.append(
                CondensationAction(
                    id=self._next_id + 1,
                    origin=Origin(format=NAME),
                    forgotten_event_ids=(),
                    metadata={"outcome": "declined", "reason": reason},
                )
            )
        self._next_id += len(events)
        return events

    def _read(self, kind: str, record: dict[str, Any]) -> list[Event]:
        """Return the events of a record itself."""
        if kind in _LOOKS_BACK:
            self._look_back()
        replaced = self._replaced() if kind == PROMPT_UPDATE else []
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=NAME, id=record.get("id"), time=time)
        source = record.get("source")
        fields: dict[str, Any] = {
            "id": self._next_id,
            "timestamp": timestamp,
            "origin": origin,
            "source": (_SOURCES.get(source) if type(source) is str else None) or _USUAL_SOURCE.get(kind, "environment"),
            "shown": True,
        }
        event = self._built(kind, record, fields)
        self._next_id += 1
        if type(origin.id) is str and type(event) is not Annotation:  # most events are bookkeeping
            self._event_ids[origin.id] = event.id
        if event.shown and type(origin.id) is str:
            self._standing.note("came", origin.id, event.id)
        self._follow(event)
        return [*replaced, event]

    def _follow(self, event: Event) -> None:
        if isinstance(event, Action):
            if event.call_id is not None:
                self._calls.open(event.call_id, event)
                self._callers[event.call_id] = event.id
        elif isinstance(event, Observation):
            if event.call_id is not None and event.shown:
                self._standing.note("answered", event.call_id)
                if event.cause is not None or self._callers.get(event.call_id) is not None:
                    self._calls.close(event.call_id)
        elif isinstance(event, SystemMessage) and event.shown:
            self._standing.note("prompt", event_id=event.id)
        elif isinstance(event, CondensationRequest):
            self._standing.note("requested")
        elif isinstance(event, CondensationAction):
            self._standing.note("condensed")

    def _look_back(self) -> None:
        """Read from the View the events before the first record that a record may name."""
        past, self._unread = self._unread, None
        if past is None:
            return
        view, prompt, forgettable = past.view(), None, dict[str, list[int]]()
        for event in view:
            source_id = None if event.origin is None else event.origin.id
            if event.id < 0:
                source_id = past.source_id(summary_of(event.id))
                source_id = source_id + SUMMARY if type(source_id) is str else None
            if type(source_id) is str:
                forgettable.setdefault(source_id, []).append(event.id)
            if isinstance(event, SystemMessage):
                prompt = event.id
        self._standing.begin_with(forgettable, prompt)
        if view.unhandled_condensation_request:
            self._standing.awaits_condensation = True

    def _replaced(self) -> list[Event]:
        """Return the event that forgets the system prompt before an update: a model is shown only the last one.

        Return none while a request is open: a condensation would fulfil it.
        """
        standing = self._standing
        if standing.prompt is None or standing.awaits_condensation:
            return []
        event = CondensationAction(
            id=self._next_id,
            origin=Origin(format=NAME),
            forgotten_event_ids=(standing.prompt,),
            metadata={"reason": "the system prompt was updated"},
        )
        self._next_id += 1
        return [event]

    def _built(self, kind: str, record: dict[str, Any], fields: dict[str, Any]) -> Event:
        match kind:
            case "MessageEvent" if (call_id := _answers(record)) is not None:
                return self._told(call_id, record, fields)
            case "MessageEvent":
                return _message(record, fields)
            case "ActionEvent":
                return _action(record, fields)
            case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
                return self._observation(kind, record, fields)
            case "SystemPromptEvent" | "SystemPromptUpdateEvent":
                return _system(record, fields)
            case "CondensationSummaryEvent":
                return CondensationSummary(content=text_or_empty(record.get("summary")), **fields)
            case "Condensation":
                return self._condensation(record, {**fields, "shown": False})
            case "CondensationRequest":
                return CondensationRequest(**{**fields, "shown": False})
        taken = ("kind", "id", "timestamp", "source")
        data = {key: value for key, value in record.items() if key not in taken}
        return Annotation(name=kind, data=data, **{**fields, "shown": False})

    def _observation(self, kind: str, record: dict[str, Any], fields: dict[str, Any]) -> Observation:
        call_id = record.get("tool_call_id")
        call_id = call_id if type(call_id) is str else None
        action_id = record.get("action_id")
        cause = self._event_ids.get(action_id) if type(action_id) is str else None
        fields["cause"] = self._caller(call_id) if cause is None else cause
        fields["call_id"] = call_id
        fields["tool"] = text_or_empty(record.get("tool_name"))
        if kind != "ObservationEvent":
            answer = text_or_empty(record.get(ANSWERS[kind]))
            if kind == "UserRejectObservation" and not answer.strip():
                answer = REJECTED
            return Observation(content=answer, is_error=kind == "AgentErrorEvent", **fields)
        observation = record.get("observation")
        if type(observation) is not dict:
            return Observation(content="", **fields)
        content, extras = _observed(observation)
        return Observation(content=content, extras=extras, is_error=observation.get("is_error") is True, **fields)

    def _caller(self, call_id: str | None) -> int | None:
        """Return the last action with this call id."""
        caller = None if call_id is None else self._callers.get(call_id)
        if caller is not None or call_id is None:
            return caller
        earlier = self._calls.first(call_id)
        if earlier is not None:
            return earlier[0]
        return next((event.id for event in self._earlier(call_id) if isinstance(event, Action)), None)

    def _earlier(self, call_id: str) -> Iterator[Event]:
        """Yield the last events before the first record that have this call id, the last one first."""
        last = () if self._past is None else islice(self._past.newest_first(), _CAUSES_MAX)
        return (event for event in last if isinstance(event, Action | Observation) and event.call_id == call_id)

    def _told(self, call_id: str, record: dict[str, Any], fields: dict[str, Any]) -> Event:
        """Return what a tool's message says. OpenHands-Tab writes such a message after the observation, with the same
        content.
        """
        if self._is_answered(call_id):
            return _message(record, {**fields, "shown": False})
        said = record["llm_message"]
        return Observation(
            content=content_of(said.get("content")),
            tool=text_or_empty(said.get("name")),
            call_id=call_id,
            cause=self._caller(call_id),
            **fields,
        )

    def _is_answered(self, call_id: str) -> bool:
        if self._callers.get(call_id) is not None or self._standing.is_answered(call_id):
            return self._standing.is_answered(call_id)
        return isinstance(next(self._earlier(call_id), None), Observation)

    def _condensation(self, record: dict[str, Any], fields: dict[str, Any]) -> CondensationAction:
        """Return the condensation in our ids: every earlier event with a forgotten id, and the summary of X for
        "X-summary".
        """
        forgotten = record.get("forgotten_event_ids")
        names = [name for name in forgotten if type(name) is str] if type(forgotten) is list else []
        ids = self._standing.forget(names)
        summary, offset = record.get("summary"), record.get("summary_offset")
        if type(summary) is str and type(offset) is int:
            fields["summary"], fields["summary_offset"] = summary, offset
            if type(record.get("id")) is str:
                self._standing.note("came", record["id"] + SUMMARY, summary_id(fields["id"]))
        return CondensationAction(forgotten_event_ids=tuple(ids), **fields)


class WholeHistoryDecoder:
    """The records of one history to events. As long as the log has one branch, nothing is kept of its branches: most
    logs have one. At the first record of another branch, the records before it are read again, with their branches.
    """

    def __init__(self, records: Iterable[Any]) -> None:
        self._records = records
        self._decoder = OpenHandsV1Decoder()
        self._trunk: Trunk | None = Trunk()
        self._records_read = 0

    def events(self, record: Any) -> list[Event]:
        """Do what ``OpenHandsV1Decoder.events`` does."""
        if self._trunk is not None and not self._trunk.takes(record):
            self._trunk, self._decoder = None, OpenHandsV1Decoder(branches=Branches())
            for earlier in islice(self._records, self._records_read):
                with suppress(NotAnEvent):
                    self._decoder.events(earlier)
        self._records_read += 1
        return self._decoder.events(record)


def _answers(record: dict[str, Any]) -> str | None:
    """Return the id of the call that a message answers."""
    said = record.get("llm_message")
    call_id = said.get("tool_call_id") if type(said) is dict and said.get("role") == "tool" else None
    return call_id if type(call_id) is str else None


def _message(record: dict[str, Any], fields: dict[str, Any]) -> Message:
    said = record.get("llm_message")
    said = said if type(said) is dict else {}
    content = content_of(said.get("content"))
    extended = content_of(record.get("extended_content"))
    if extended:
        content = (*parts_of(content), *parts_of(extended))
    if type(record.get("source")) is not str:
        role = said.get("role")
        fields["source"] = _SPEAKERS.get(role, "environment") if type(role) is str else "environment"
    return Message(content=content, **fields)


def _system(record: dict[str, Any], fields: dict[str, Any]) -> SystemMessage:
    content = content_of([record.get("system_prompt")])
    context = content_of([record.get("dynamic_context")])
    if context:
        content = (*parts_of(content), *parts_of(context))
    tools = record.get("tools")
    return SystemMessage(content=content, tools=tuple(tools) if type(tools) is list else (), **fields)


def _action(record: dict[str, Any], fields: dict[str, Any]) -> Action:
    call = record.get("tool_call")
    call = call if type(call) is dict else {}
    arguments = call.get("arguments")
    function = call.get("function")
    if type(arguments) is not str and type(function) is dict:
        arguments = function.get("arguments")
    if type(arguments) is not str:
        done = record.get("action")
        arguments = {key: value for key, value in done.items() if key != "kind"} if type(done) is dict else None
    call_id, response_id, thinking = (
        record.get("tool_call_id"),
        record.get("llm_response_id"),
        record.get("thinking_blocks"),
    )
    return Action(
        tool=text_or_empty(record.get("tool_name")),
        arguments=arguments,
        call_id=call_id if type(call_id) is str else None,
        response_id=response_id if type(response_id) is str else None,
        thought=content_of(record.get("thought")),
        thinking=tuple(thinking) if type(thinking) is list and all(type(block) is dict for block in thinking) else (),
        **fields,
    )


_TEXT_KEYS = ("content", "output", "stdout", "message")
"""The fields in which tools of different releases put the text for the model."""


def _observed(observation: dict[str, Any]) -> tuple[Content, dict[str, Any]]:
    """Return the content of an observation, and the rest of the observation."""
    for key in _TEXT_KEYS:
        value = observation.get(key)
        if type(value) is str or (type(value) is list and _is_blocks(value)):
            content = value if type(value) is str else content_of(value)
            return content, {name: item for name, item in observation.items() if name != key}
    try:
        content = msgspec.json.encode(observation).decode()
    except (ValueError, RecursionError):
        return "", observation  # text that is not Unicode has no JSON form
    return content, {}


def _is_blocks(value: list[Any]) -> bool:
    for block in value:  # noqa: SIM110  all() would make a generator for each event
        if type(block) is not dict or type(block.get("type")) is not str:
            return False
    return True
