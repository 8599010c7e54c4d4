"""V1 records to events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from foldlog._formats.calls import Recent
from foldlog._formats.format import Options, Past, RecordDecoder
from foldlog._formats.members import PROMPT_REPLACED, Members
from foldlog._formats.openhands_v1.branches import Branches, Place, ShownEvent
from foldlog._formats.openhands_v1.contents import content_of, observed
from foldlog._formats.openhands_v1.writing import ANSWERS, NAME, PROMPT_UPDATE, SUMMARY
from foldlog._formats.record import NotAnEvent, described, dict_or_empty, read_time, text_or_empty, text_or_none
from foldlog._formats.told import parts_in
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
_REJECTED = "The action was rejected, and no reason was given."
"""The text for a rejection without a reason: "no output" would say that the action was done."""
_OF_NO_RECORD = (
    "this condensation forgets an id of no record. OpenHands' SDK before 1.10 showed its model the newest summary "
    "alone, under a new id each time; the View here shows older ones too"
)
_CAUSES_MAX = 10_000
"""An action waits for its result during this many events; after that the two are not paired."""


class OpenHandsV1Decoder(RecordDecoder):
    """Records of one history to events, one record after the other.

    Without ``branches`` all of them are on the active branch.
    """

    def __init__(self, options: Options, branches: Branches | None = None) -> None:
        super().__init__(options)
        self._branches, self._findings = branches, options.findings
        self._event_ids: Recent[str, int] = Recent(_CAUSES_MAX)
        self._callers: Recent[str, int] = Recent(_CAUSES_MAX)
        self._record_number = -1
        self._past = past = options.past if options.first_id else None
        self._shown = Members(None if past is None else partial(_earlier_members, past))
        self._requested: bool | None = None if past is not None else False
        """Whether a condensation is requested; None before the View was asked."""

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
        here = Place(self.next_id, bool(self._requested))
        active = self._branches.after(record, self._record_number, here)
        return [*switch, *events, *([] if active is None else self._gone_to(active))]

    def _gone_to(self, place: Place) -> list[Event]:
        """Return the retraction to a place on another branch. An open request on the branch that is left is declined
        first: otherwise it would stay open after the retraction.
        """
        declined = self._requested and not place.requested
        self._requested = place.requested
        events: list[Event] = [Retraction(id=self.next_id, version=place.version, origin=Origin(format=NAME))]
        self._shown.follow(events[0], ShownEvent())
        if declined:
            metadata = {"outcome": "declined", "reason": "the source left the branch that requested it"}
            events.append(
                CondensationAction(
                    id=self.next_id + 1, origin=Origin(format=NAME), forgotten_event_ids=(), metadata=metadata
                )
            )
        self.next_id += len(events)
        return events

    def _read(self, kind: str, record: dict[str, Any]) -> list[Event]:
        replaced = self._replaced() if kind == PROMPT_UPDATE else []
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=NAME, id=record.get("id"), time=time)
        source = record.get("source")
        fields: dict[str, Any] = {
            "id": self.next_id,
            "timestamp": timestamp,
            "origin": origin,
            "source": (_SOURCES.get(source) if type(source) is str else None) or _USUAL_SOURCE.get(kind, "environment"),
            "shown": True,
        }
        event = self._built(kind, record, fields)
        self.next_id += 1
        if type(origin.id) is str and type(event) is not Annotation:  # most events are bookkeeping
            self._event_ids[origin.id] = event.id
        self._follow(event, origin.id)
        return [*replaced, event]

    def _follow(self, event: Event, source_id: Any) -> None:
        if event.shown or isinstance(event, CondensationAction):
            self._shown.follow(event, _known(event, source_id))
        if isinstance(event, Action) and event.call_id is not None:
            self._callers[event.call_id] = event.id
        elif isinstance(event, CondensationRequest | CondensationAction):
            self._requested = isinstance(event, CondensationRequest)

    def _replaced(self) -> list[Event]:
        """Return the event that forgets the system prompt before an update: a model is shown only the last one.

        Return none while a request is open: a condensation would fulfil it.
        """
        if self._requested is None and self._past is not None:
            self._requested = self._past.view().unhandled_condensation_request
        prompt = next((event_id for event_id, known in self._shown.newest_first() if known.is_prompt), None)
        if prompt is None or self._requested:
            return []
        event = CondensationAction(
            id=self.next_id,
            origin=Origin(format=NAME),
            forgotten_event_ids=(prompt,),
            metadata={**PROMPT_REPLACED},
        )
        self._shown.follow(event, ShownEvent())
        self.next_id += 1
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
        call_id = text_or_none(record.get("tool_call_id"))
        action_id = record.get("action_id")
        cause = self._event_ids.get(action_id) if type(action_id) is str else None
        fields["cause"] = self._caller(call_id) if cause is None else cause
        fields["call_id"] = call_id
        fields["tool"] = text_or_empty(record.get("tool_name"))
        if kind != "ObservationEvent":
            answer = text_or_empty(record.get(ANSWERS[kind]))
            if kind == "UserRejectObservation" and not answer.strip():
                answer = _REJECTED
            return Observation(content=answer, is_error=kind == "AgentErrorEvent", **fields)
        observation = record.get("observation")
        if type(observation) is not dict:
            return Observation(content="", **fields)
        content, extras, is_error = observed(observation)
        return Observation(content=content, extras=extras, is_error=is_error, **fields)

    def _caller(self, call_id: str | None) -> int | None:
        caller = None if call_id is None else self._callers.get(call_id)
        if caller is not None or call_id is None:
            return caller
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
        for _, known in self._shown.newest_first():
            if known.call_id == call_id:
                return known.is_answer
        return isinstance(next(self._earlier(call_id), None), Observation)

    def _condensation(self, record: dict[str, Any], fields: dict[str, Any]) -> CondensationAction:
        """Return the condensation in our ids: every earlier event with a forgotten id, and the summary of X for
        "X-summary".
        """
        forgotten = record.get("forgotten_event_ids")
        names = [name for name in forgotten if type(name) is str] if type(forgotten) is list else []
        named: dict[str, list[int]] = {name: [] for name in names}
        stays = False
        for event_id, known in self._shown.all():
            if known.source_id in named:
                named[known.source_id].append(event_id)
            elif event_id < 0:
                stays = True
        if stays and any(not ids and self._event_ids.get(name) is None for name, ids in named.items()):
            self._findings.append(_OF_NO_RECORD)
        summary, offset = record.get("summary"), record.get("summary_offset")
        if type(summary) is str and type(offset) is int:
            fields["summary"], fields["summary_offset"] = summary, offset
        ids = tuple(event_id for of_name in named.values() for event_id in of_name)
        return CondensationAction(forgotten_event_ids=ids, **fields)


def _earlier_members(past: Past, version: int | None) -> Iterator[tuple[int, ShownEvent]]:
    for event in past.view(version):
        source_id = None if event.origin is None else event.origin.id
        if event.id < 0:
            source_id = past.source_id(summary_of(event.id))
        yield event.id, _known(event, source_id)


def _known(event: Event, source_id: Any) -> ShownEvent:
    """Return what is known of an event; of a condensation or its summary, what is known of the summary."""
    call_id = event.call_id if isinstance(event, Action | Observation) else None
    if type(source_id) is not str:
        source_id = None
    elif event.id < 0 or isinstance(event, CondensationAction):
        source_id += SUMMARY
    return ShownEvent(source_id, call_id, isinstance(event, Observation), isinstance(event, SystemMessage))


def _answers(record: dict[str, Any]) -> str | None:
    said = dict_or_empty(record.get("llm_message"))
    return text_or_none(said.get("tool_call_id")) if said.get("role") == "tool" else None


def _message(record: dict[str, Any], fields: dict[str, Any]) -> Message:
    said = dict_or_empty(record.get("llm_message"))
    if type(record.get("source")) is not str:
        fields["source"] = _SPEAKERS.get(text_or_none(said.get("role")), "environment")
    return Message(content=_extended(said.get("content"), record.get("extended_content")), **fields)


def _system(record: dict[str, Any], fields: dict[str, Any]) -> SystemMessage:
    content, tools = _extended([record.get("system_prompt")], [record.get("dynamic_context")]), record.get("tools")
    return SystemMessage(content=content, tools=tuple(tools) if type(tools) is list else (), **fields)


def _extended(blocks: Any, more: Any) -> Content:
    """Return the content of blocks, with more behind it."""
    content, behind = content_of(blocks), content_of(more)
    return (*parts_in(content), *parts_in(behind)) if behind else content


def _action(record: dict[str, Any], fields: dict[str, Any]) -> Action:
    call, thinking = dict_or_empty(record.get("tool_call")), record.get("thinking_blocks")
    arguments = call.get("arguments")
    if type(arguments) is not str:
        arguments = dict_or_empty(call.get("function")).get("arguments")
    if type(arguments) is not str:
        done = record.get("action")
        arguments = {key: value for key, value in done.items() if key != "kind"} if type(done) is dict else None
    return Action(
        tool=text_or_empty(record.get("tool_name")),
        arguments=arguments,
        call_id=text_or_none(record.get("tool_call_id")),
        response_id=text_or_none(record.get("llm_response_id")),
        thought=content_of(record.get("thought")),
        thinking=tuple(thinking) if type(thinking) is list and all(type(block) is dict for block in thinking) else (),
        **fields,
    )
