"""Make events of V1 records."""

from __future__ import annotations

from typing import Any, NamedTuple

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
)
from foldlog.formats.event_fields import parts_in
from foldlog.formats.messages import SPEAKERS
from foldlog.formats.open_calls import Recent
from foldlog.formats.openhands_v1.contents import content_of, observation_content
from foldlog.formats.openhands_v1.writing import (
    ANSWERS,
    NAME,
    PROMPT_UPDATE,
    SUMMARY,
)
from foldlog.formats.prompt_changes import change_of_prompt
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    has,
    omit,
    strings_in,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.projections.refusals import REJECTION_SOURCE

_SOURCES: dict[str, Source] = {
    "user": "user",
    "agent": "agent",
    "environment": "environment",
    "hook": "environment",
}
_USUAL_SOURCE: dict[str, Source] = {
    "SystemPromptEvent": "agent",
    "ActionEvent": "agent",
    "AgentErrorEvent": "agent",
    "ACPToolCallEvent": "agent",
    "PauseEvent": "user",
    "InterruptEvent": "user",
}
_NOT_A_STEP = frozenset({"ConversationStateUpdateEvent", "ConversationErrorEvent"})
"""Kinds of records that are not steps, so no branch ends with them."""
_REJECTED = "The action was rejected, and no reason was given."
"""The text for a rejection without a reason. A model could mistake an empty text for the result of
the action.
"""
_FORGETS_NO_RECORD = (
    "this condensation forgets an id that no record has. OpenHands' SDK before 1.10 showed its"
    " model only the newest summary, and gave it a new id each time. foldlog's View also shows"
    " older summaries"
)
_CAUSES_MAX = 10_000
"""The largest distance between an action and its result, in events."""


class ShownEvent(NamedTuple):
    """The tag that a shown event gets. ``source_id`` is the id of the event in its source.
    ``call_id`` is the call that the event makes or answers. ``is_prompt`` is true for a system
    prompt.
    """

    source_id: str | None = None
    call_id: str | None = None
    is_answer: bool = False
    is_prompt: bool = False


class _Place(NamedTuple):
    """The end of a step: the version, and whether a condensation is requested there."""

    version: int
    requested: bool


accepts = has(kind=str)


class OpenHandsV1Decoder(FollowingDecoder):
    """Makes the events of a log of V1. The decoder needs about 100 bytes of memory for each record.

    A log is a tree: the ``parent_id`` of an event names the parent step. In old logs the parent of
    an event is the event in the line before. A step whose parent is not the newest step begins
    another branch. Before such a step, a retraction removes from the View all events after its
    parent. The View is the branch that ends in the newest step.
    """

    repeated = ("llm_message.tool_calls", "thought", "summary")

    def set_up(self) -> None:
        self._places: dict[str, _Place | None] = {}
        self._newest: _Place | None = None
        self._previous: _Place | None = None
        self._event_ids: Recent[str, int] = Recent(_CAUSES_MAX)
        self._is_requested = False
        self._last: Any = None

    def follow(self, event: Event) -> None:
        super().follow(event)
        if event.shown or event.structural:
            self._last = event

    def tag(self, event: Event, collected: RecordEvents) -> ShownEvent:
        """Return the tag of an event, or for a condensation the tag of its summary."""
        source_id = collected.origin.id
        call_id = event.call_id if isinstance(event, Action | Observation) else None
        if type(source_id) is not str:
            source_id = None
        elif event.id < 0 or isinstance(event, CondensationAction):
            source_id += SUMMARY
        return ShownEvent(
            source_id, call_id, isinstance(event, Observation), isinstance(event, SystemMessage)
        )

    def read(self, collected: RecordEvents, record: Fields) -> None:
        kind = record["kind"]
        own = (collected.origin, collected.timestamp)
        parent = record.get("parent_id")
        above = self._places.get(parent) if type(parent) is str else self._previous
        is_step = kind not in _NOT_A_STEP
        if is_step and self._newest is not None:
            self._go_to(collected, above)
        if kind == PROMPT_UPDATE:
            self._replace_prompt(collected)
        collected.begin(*own)
        source = record.get("source")
        event_source = _SOURCES.get(source) if type(source) is str else None
        event = self._add(
            collected, kind, record, event_source or _USUAL_SOURCE.get(kind, "environment")
        )
        # no record refers to bookkeeping, and most events are bookkeeping
        if type(event.origin.id) is str and type(event) is not Annotation:
            self._event_ids[event.origin.id] = event.id
        if isinstance(event, CondensationRequest | CondensationAction):
            self._is_requested = isinstance(event, CondensationRequest)
        self._previous = above
        if is_step:
            self._previous = _Place(collected.version, self._is_requested)
            self._newest = self._previous
        if type(record.get("id")) is str:
            self._places[record["id"]] = self._previous

    def _go_to(self, collected: RecordEvents, place: _Place | None) -> None:
        """If the parent of the next step is not the newest step, add a retraction, which removes
        from the View all events after the parent. ``place`` is the parent. If the old branch has an
        open request for a condensation, and the new branch has none, decline the request.
        """
        if place is self._newest:
            return
        place = place or _Place(0, requested=False)
        declined = self._is_requested and not place.requested
        self._is_requested = place.requested
        collected.begin(Origin(format=NAME), None)
        collected.add(Retraction, version=place.version)
        if declined:
            metadata = {
                "outcome": "declined",
                "reason": "the source left the branch that requested it",
            }
            collected.add(CondensationAction, forgotten_event_ids=(), metadata=metadata)

    def _replace_prompt(self, collected: RecordEvents) -> None:
        """Forget the present system prompt before a new one is added, because the model is shown
        only the newest. While a request for a condensation is open, forget nothing: any
        condensation would answer the request.
        """
        prompt = next(
            (event_id for event_id, member in self.shown.newest_first() if member.is_prompt), None
        )
        if prompt is not None and not self._is_requested:
            collected.begin(Origin(format=NAME), None)
            collected.put(change_of_prompt([prompt], [], "system prompt"))

    def _add(self, collected: RecordEvents, kind: str, record: Fields, source: Source) -> Any:
        """Add the event of a record, and return it. An unknown kind becomes an annotation."""
        match kind:
            case "MessageEvent":
                message = dict_or_empty(record, "llm_message")
                call_id = None
                if message.get("role") == "tool":
                    call_id = text_or_none(message, "tool_call_id")
                shown = (
                    member.is_answer
                    for _, member in self.shown.newest_first()
                    if member.call_id == call_id
                )
                if call_id is not None and not next(shown, False):
                    return collected.answer(
                        call_id,
                        content_of(message.get("content")),
                        tool=message.get("name"),
                        source=source,
                    )
                # OpenHands-Tab repeats an observation as the message of a tool, and writes a reply
                # before the calls of the reply
                collected.is_copy = call_id is not None
                collected.shown = call_id is None
                if source == "agent" and (calls := dicts_in(message, "tool_calls")):
                    collected.meta["reply"] = calls[0].get("id")
                return collected.add(Message, **_message(record, source))
            case "ActionEvent":
                return collected.add(
                    Action, **self._said_before(collected, _action(record)), source=source
                )
            case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
                return self._observation(collected, kind, record, source)
            case "SystemPromptEvent" | "SystemPromptUpdateEvent":
                content = _extend(
                    content_of([record.get("system_prompt")]), [record.get("dynamic_context")]
                )
                tools = record.get("tools")
                tool_list = tuple(tools) if type(tools) is list else ()
                return collected.add(SystemMessage, content=content, tools=tool_list, source=source)
            case "CondensationSummaryEvent":
                return collected.add(
                    CondensationSummary, content=text_or_empty(record, "summary"), source=source
                )
            case "Condensation":
                return self._condensation(collected, record, source)
            case "CondensationRequest":
                return collected.add(CondensationRequest, source=source)
        own_keys = ("kind", "id", "timestamp", "source")
        data = omit(record, *own_keys)
        return collected.add(Annotation, name=kind, data=data, source=source)

    def _said_before(self, collected: RecordEvents, action: Fields) -> Fields:
        """Return the fields of an action. If the message before the action has the same text as the
        action's thought, return the fields without the thought.
        """
        reply = action["call_id"]
        if (
            not isinstance(self._last, Message)
            or reply is None
            or self._last.meta.get("reply") != reply
        ):
            return action
        collected.meta["reply"] = reply
        if parts_in(action["thought"]) == parts_in(self._last.content):
            return {**action, "thought": ""}
        return action

    def _observation(
        self, collected: RecordEvents, kind: str, record: Fields, source: Source
    ) -> Any:
        """Add the result of an action, a rejection, or an error of the agent."""
        action_id = record.get("action_id")
        observation = record.get("observation")
        content: Content = ""
        extras = Fields()
        is_error = kind != "ObservationEvent"
        if kind != "ObservationEvent":
            content = text_or_empty(record.get(ANSWERS[kind]))
            if kind == "UserRejectObservation":
                if not content.strip():
                    content = _REJECTED
                extras[REJECTION_SOURCE] = record.get(REJECTION_SOURCE) or "user"
        elif type(observation) is dict:
            content, extras, is_error = observation_content(observation)
        content = _extend(content, record.get("extended_content"))
        cause = self._event_ids.get(action_id) if type(action_id) is str else None
        fields: Fields = {"source": source}
        if extras:
            fields["extras"] = extras
        name = record.get("tool_name")
        return collected.answer(
            record.get("tool_call_id"), content, is_error=is_error, tool=name, cause=cause, **fields
        )

    def _condensation(self, collected: RecordEvents, record: Fields, source: Source) -> Any:
        """Forget the events that the record names by their ids in the source. The id "X-summary"
        stands for the summary of the condensation X.
        """
        names = strings_in(record, "forgotten_event_ids")
        named: dict[str, list[int]] = {name: [] for name in names}
        stays = False
        for event_id, member in self.shown.all():
            if member.source_id in named:
                named[member.source_id].append(event_id)
            elif event_id < 0:
                stays = True
        if stays and any(
            not ids and self._event_ids.get(name) is None for name, ids in named.items()
        ):
            self.report(_FORGETS_NO_RECORD)
        summary = record.get("summary")
        offset = record.get("summary_offset")
        summary_fields: Fields = {}
        if type(summary) is str and type(offset) is int:
            summary_fields = {"summary": summary, "summary_offset": offset}
        ids = tuple(event_id for of_name in named.values() for event_id in of_name)
        return collected.add(
            CondensationAction, forgotten_event_ids=ids, source=source, **summary_fields
        )


def _message(record: Fields, source: Source) -> Fields:
    """Return the fields of a message. Without a source, its role says whose it is."""
    message = dict_or_empty(record, "llm_message")
    if type(record.get("source")) is not str:
        source = SPEAKERS.get(text_or_empty(message, "role"), "environment")
    return {
        "content": _extend(content_of(message.get("content")), record.get("extended_content")),
        "source": source,
    }


def _extend(content: Content, more: Any) -> Content:
    """Return a content with further blocks behind it."""
    behind = content_of(more)
    return (*parts_in(content), *parts_in(behind)) if behind else content


def _action(record: Fields) -> Fields:
    """Return the fields of an action. The arguments are the text that the model wrote, or if the
    record lacks it, the action.
    """
    call = dict_or_empty(record, "tool_call")
    thinking = record.get("thinking_blocks")
    arguments = call.get("arguments")
    if type(arguments) is not str:
        arguments = within(call, "function", "arguments")
    if type(arguments) is not str:
        action = record.get("action")
        arguments = omit(action, "kind") if type(action) is dict else None
    blocks = dicts_in(thinking)
    is_whole = type(thinking) is list and len(blocks) == len(thinking)
    return {
        "tool": text_or_empty(record, "tool_name"),
        "arguments": arguments,
        "call_id": text_or_none(record, "tool_call_id"),
        "response_id": text_or_none(record, "llm_response_id"),
        "thought": content_of(record.get("thought")),
        "thinking": tuple(blocks) if is_whole else (),
    }
