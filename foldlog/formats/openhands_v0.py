"""OpenHands V0: action and observation objects with integer ids.

A stream holds more than the agent's history (bookkeeping, hidden commands, what a delegate did): that is kept and not
shown, and a condensation in it changes nothing. With ``as_history`` the records are the history itself.

What a record says, and where it goes:

    message, finish            Message; finish says the agent's last words
    system                     SystemMessage
    condensation               CondensationAction, with the source's ids (dialect "batch"); a malformed one: Annotation
    condensation_request       CondensationRequest
    condense (observation)     CondensationSummary, an ordinary event
    null, change_agent_state, agent_state_changed    Annotation; in a history their observations are Observations
    every other action         Action: its tool is the action's name
    every other observation    Observation

The oldest files nest an action and its observation in an array; resolver files have neither ids nor ``args``: there an
observation answers the action just before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable
from typing import Any

from msgspec.structs import force_setattr

from eventstore.events import (
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
    Source,
    SystemMessage,
    UnknownEvent,
)
from foldlog.formats.delta import apply, object_delta
from foldlog.formats.recent import Recent
from foldlog.formats.record import NotAnEvent, described, read_time, rest_of, time_text

__all__ = ["FORMAT", "Decoder", "Encoder", "outside_history"]

FORMAT = "openhands-v0"

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment"}
_BOOKKEEPING = frozenset({"null", "change_agent_state", "agent_state_changed"})
_OBSERVED_BOOKKEEPING = frozenset({"null", "agent_state_changed"})
_STRUCTURAL = frozenset({"condensation", "condensation_request"})

_ENVELOPE = frozenset(
    (
        *("id", "timestamp", "source", "cause", "message", "action", "observation", "args", "extras"),
        *("tool_call_metadata", "llm_metrics", "timeout"),
    )
)
"""Keys of a record that belong to every event. In a flat record what is not one of these is an argument or an extra."""
_OBSERVED = _ENVELOPE | {"content", "success"}

_CAUSES_MAX = 10_000
"""An answer that comes more than so many events after its action is not paired with it."""
_RESPONSES_MAX = 32
"""A model response is stored with the first event that carries it; events that repeat it soon after refer to it."""

_Marks = dict[str, Any]
"""What of ``origin.rest`` is no difference but says how to predict the record:

    list    this event and the next n-1 stand in one array
    flat    arguments or extras stand beside the other keys
    text    a finish: the name of the argument that is the Message's content
    images  the argument's name, in its old spelling
    as      an Annotation: whether an action or an observation, where its name does not tell
"""
_MARKS = ("list", "flat", "text", "images", "as")


class _Before:
    """What decoding and encoding both know of the events before: enough to say again what a record repeats of them."""

    def __init__(self) -> None:
        self.next_id = 0
        self.free_source_id = 0
        self.event_ids: Recent[int | str, int] = Recent(_CAUSES_MAX)
        self._source_ids: Recent[int, int | str] = Recent(_CAUSES_MAX)
        self._calls: Recent[str, dict[str, Any]] = Recent(_RESPONSES_MAX)
        self._responses: Recent[str, Any] = Recent(_RESPONSES_MAX)

    def source_id(self, event_id: int) -> int | str | None:
        return self._source_ids.get(event_id)

    def call_metadata(self, event: Action | Observation) -> dict[str, Any] | None:
        """The ``tool_call_metadata`` that the record of ``event`` most likely has."""
        if event.call_id is None:
            return None
        if type(event) is Observation:
            return self._calls.get(event.call_id) or {"tool_call_id": event.call_id}
        response_id = event.response_id  # type: ignore[union-attr]
        if response_id is None:
            return {"tool_call_id": event.call_id}
        response = self._responses.get(response_id) or {"id": response_id}
        return {"tool_call_id": event.call_id, "model_response": response}

    def add(self, event: Event, record: dict[str, Any]) -> None:
        """Remember ``event``, whose record is ``record``."""
        if type(event) is Action and event.call_id is not None:
            metadata = record["tool_call_metadata"]
            self._calls[event.call_id] = metadata
            if event.response_id is not None:
                self._responses[event.response_id] = metadata["model_response"]
        source_id = record.get("id")
        if type(source_id) is int or type(source_id) is str:
            self._source_ids[self.next_id] = source_id
            self.event_ids[source_id] = self.next_id
        if type(source_id) is int:
            self.free_source_id = max(self.free_source_id, source_id + 1)
        self.next_id += 1


class Decoder:
    """Records of one history to events, one record after the other.

    ``outside`` says which records, by their number, stand outside the agent's history (``outside_history``).
    """

    def __init__(self, *, as_history: bool = False, outside: Container[int] = ()) -> None:
        self._as_history = as_history
        self._outside = outside
        self._before = _Before()
        self._last_action: int | None = None
        self._record_number = -1

    def events(self, record: Any) -> list[Event]:
        """The events of the next record: one, or for an array one for each of its objects.

        Raises ``NotAnEvent`` where it is none; nothing of it is taken then.
        """
        self._record_number += 1
        outside = not self._as_history and self._record_number in self._outside
        if type(record) is not list:
            return [self._event(record, _is_action(record), outside, {})]
        if not record:
            raise NotAnEvent("expected an event object or an array of them, found an empty array")
        are_actions = [_is_action(member) for member in record]
        events: list[Event] = []
        for member, is_action in zip(record, are_actions, strict=True):
            events.append(self._event(member, is_action, outside, {} if events else {"list": len(record)}))
        return events

    def _event(self, record: dict[str, Any], is_action: bool, outside: bool, marks: _Marks) -> Event:
        before = self._before
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=FORMAT, id=record.get("id"), time=time)
        cause = self._cause(record, is_action)
        fields: dict[str, Any] = {"id": before.next_id, "timestamp": timestamp, "origin": origin, "cause": cause}
        source = record.get("source")
        if type(source) is str and source in _SOURCES:
            fields["source"] = _SOURCES[source]
        build = self._action if is_action else self._observation
        event = build(record, fields, outside, marks)
        difference = object_delta(_predicted(event, marks, before), record)
        if marks or difference:
            force_setattr(origin, "rest", {**marks, **(difference or {})})  # it is ours alone until it is returned
        before.add(event, record)
        self._last_action = event.id if is_action else None
        return event

    def _cause(self, record: dict[str, Any], is_action: bool) -> int | None:
        cause = record.get("cause")
        if type(cause) is int or type(cause) is str:
            return self._before.event_ids.get(cause)
        if is_action or "cause" in record or "id" in record:
            return None
        return self._last_action

    def _action(self, record: dict[str, Any], fields: dict[str, Any], outside: bool, marks: _Marks) -> Event:
        name = record["action"]
        args = _payload(record, "args", _ENVELOPE, marks)
        fields["shown"] = self._as_history or not (outside or name in _BOOKKEEPING or args.get("hidden") is True)
        if name == "message":
            return _message(args, fields, marks)
        if name == "finish":
            marks["text"] = key = "final_thought" if args.get("final_thought") or "thought" not in args else "thought"
            return Message(content=_text(args.get(key)), **{"source": "agent", **fields})
        if name == "system":
            tools = args.get("tools")
            return SystemMessage(
                content=_text(args.get("content")), tools=tuple(tools) if type(tools) is list else (), **fields
            )
        if name in _BOOKKEEPING or (name in _STRUCTURAL and outside):
            return _annotation("action", record, fields, marks)
        if name in _STRUCTURAL:
            fields["shown"] = False
            if name == "condensation_request":
                return CondensationRequest(**fields)
            forgets = _forgets(args)
            if forgets is None:
                return _annotation("action", record, fields, marks)
            return CondensationAction(**forgets, **fields)
        call_id, response_id = _call(record)
        thought = args.get("thought")
        if type(thought) is str and thought:
            args = {key: value for key, value in args.items() if key != "thought"}
        else:
            thought = ""
        has_args = "flat" in marks or type(record.get("args")) is dict
        return Action(
            tool=name,
            arguments=args if has_args else None,
            thought=thought,
            call_id=call_id,
            response_id=response_id,
            **fields,
        )

    def _observation(self, record: dict[str, Any], fields: dict[str, Any], outside: bool, marks: _Marks) -> Event:
        name = record["observation"]
        extras = _payload(record, "extras", _OBSERVED, marks)
        fields["shown"] = self._as_history or not (outside or name in _BOOKKEEPING or extras.get("hidden") is True)
        if name in _OBSERVED_BOOKKEEPING and not self._as_history:
            return _annotation("observation", record, fields, marks)
        content = _text(record.get("content"))
        if name == "condense":
            return CondensationSummary(content=content, **fields)
        call_id, _ = _call(record)
        return Observation(
            tool=name, content=content, extras=extras, call_id=call_id, is_error=name == "error", **fields
        )


class Encoder:
    """Events of one history to records, as ``Decoder`` read them. Events that were added since get the next ids."""

    def __init__(self) -> None:
        self._before = _Before()
        self._source_ids: list[Any] = []
        self._array: list[dict[str, Any]] = []
        self._missing = 0

    def records(self, event: Event) -> list[Any]:
        """The records that are complete with ``event``: one, or none while an array is not."""
        rest = rest_of(event, FORMAT)
        marks = {mark: rest[mark] for mark in _MARKS if mark in rest}
        predicted = _predicted(event, marks, self._before)
        if type(event) is CondensationAction and event.origin is None:
            predicted["args"]["forgotten_event_ids"] = self._forgotten(event)
        record = apply(predicted, rest)
        self._before.add(event, record)
        self._source_ids.append(record.get("id"))
        if "list" in marks:
            self._missing = marks["list"]
        if not self._missing:
            return [record]
        self._array.append(record)
        self._missing -= 1
        if self._missing:
            return []
        array, self._array = self._array, []
        return [array]

    def _forgotten(self, event: CondensationAction) -> list[Any]:
        """What a condensation of ours forgets, in the source's ids. Older summaries have none: V0 shows the newest."""
        return [self._source_ids[i] for first, last in event.forgotten.intervals for i in range(first, last + 1)]

    def end(self) -> list[Any]:
        """Nothing; raises ``ValueError`` where an array's last events are missing."""
        if self._array:
            raise ValueError(f"an array lacks its last {self._missing} events; an export needs the whole history")
        return []


def outside_history(records: Iterable[Any]) -> Container[int]:
    """Numbers of the records that a delegate left in its parent's stream.

    They stand strictly between a ``delegate`` action and the ``delegate`` observation that answers it, the innermost
    first; a delegation without an answer leaves none. Cost: one pass over the records.
    """
    open_at: list[int] = []
    spans: list[tuple[int, int]] = []
    for number, record in enumerate(records):
        for member in record if type(record) is list else (record,):
            if type(member) is not dict:
                continue
            if member.get("action") == "delegate":
                open_at.append(number)
            elif type(member.get("action")) is not str and member.get("observation") == "delegate" and open_at:
                start = open_at.pop()
                while spans and spans[-1][0] > start:
                    spans.pop()  # an inner delegation is outside with the rest of the outer one's
                spans.append((start, number))
    return _Between(spans)


class _Between:
    """The numbers strictly inside some disjoint, ascending spans."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and self._starts[place] < number < self._ends[place]


def _is_action(record: Any) -> bool:
    if type(record) is not dict:
        raise NotAnEvent(f"expected an event object, found {described(record)}")
    if type(record.get("action")) is str:
        return True
    if type(record.get("observation")) is str:
        return False
    raise NotAnEvent("an event has a text under 'action' or 'observation', this object has neither")


def _payload(record: dict[str, Any], key: str, envelope: frozenset[str], marks: _Marks) -> dict[str, Any]:
    """Arguments or extras, from where the record has them."""
    if key in record:
        payload = record[key]
        return payload if type(payload) is dict else {}
    payload = {name: value for name, value in record.items() if name not in envelope}
    if payload:
        marks["flat"] = True
    return payload


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _message(args: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Message:
    content: Content = _text(args.get("content"))
    spellings = [name for name in ("image_urls", "images_urls") if args.get(name)]
    if len(spellings) == 1 and type(args.get("content")) is str and _is_texts(args[spellings[0]]):
        images = ({"type": "image_url", "image_url": {"url": url}} for url in args[spellings[0]])
        content = ({"type": "text", "text": content}, *images)
        if spellings[0] == "images_urls":
            marks["images"] = "images_urls"
    if "source" not in fields:
        # The oldest files do not say who speaks; only the agent waits for a response.
        fields["source"] = "agent" if args.get("wait_for_response") is True else "user"
    return Message(content=content, **fields)


def _is_texts(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _annotation(naming: str, record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Annotation:
    marks.pop("flat", None)
    name = record[naming]
    if naming != _usual_naming(name):
        marks["as"] = naming
    taken = ("id", "timestamp", "source", "cause", naming)
    return Annotation(name=name, data={key: value for key, value in record.items() if key not in taken}, **fields)


def _usual_naming(name: str) -> str:
    return "observation" if name in _OBSERVED_BOOKKEEPING else "action"


def _forgets(args: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a CondensationAction, or None where the arguments are none.

    As the reference has it: a list of ids (one end of a range beside it is ignored) or both ends of a range, not both;
    a summary and its offset, or neither.
    """
    ids, summary, offset = args.get("forgotten_event_ids"), args.get("summary"), args.get("summary_offset")
    start, end = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    if (summary is None) != (offset is None) or (ids is None) == (start is None or end is None):
        return None
    fields: dict[str, Any] = {}
    if ids is not None:
        if type(ids) is not list or not all(type(event_id) is int for event_id in ids):
            return None
        fields["forgotten_event_ids"] = tuple(ids)
    elif type(start) is int and type(end) is int:
        fields["forgotten_events_start_id"], fields["forgotten_events_end_id"] = start, end
    else:
        return None
    if summary is not None:
        if type(summary) is not str or type(offset) is not int:
            return None
        fields["summary"], fields["summary_offset"] = summary, offset
    return fields


def _call(record: dict[str, Any]) -> tuple[str | None, str | None]:
    """The ids of the tool call and of the model response that it stands in."""
    metadata = record.get("tool_call_metadata")
    if type(metadata) is not dict or type(metadata.get("tool_call_id")) is not str:
        return None, None
    response = metadata.get("model_response")
    response_id = response.get("id") if type(response) is dict else None
    return metadata["tool_call_id"], response_id if type(response_id) is str else None


def _predicted(event: Event, marks: _Marks, before: _Before) -> dict[str, Any]:
    """The record that ``event`` seems to come from, as far as its fields and the events before it tell."""
    record: dict[str, Any] = {"source": event.source}
    origin = event.origin
    source_id = before.free_source_id if origin is None else origin.id
    if source_id is not None:
        record["id"] = source_id
        cause = None if event.cause is None else before.source_id(event.cause)
        if cause is not None:
            record["cause"] = cause
    time = time_text(event.timestamp, origin)
    if time is not None:
        record["timestamp"] = time
    payload = _predict_body(event, marks, before, record)
    if payload is None:
        return record
    if "flat" in marks:
        record.update(payload)
    else:
        record["args" if "action" in record else "extras"] = payload
    return record


def _predict_body(event: Event, marks: _Marks, before: _Before, record: dict[str, Any]) -> dict[str, Any] | None:
    """Adds to ``record`` what its kind of event has; its arguments or extras are the answer."""
    match event:
        case Action():
            record["action"] = event.tool
            metadata = before.call_metadata(event)
            if metadata is not None:
                record["tool_call_metadata"] = metadata
            args = dict(event.arguments) if isinstance(event.arguments, dict) else None
            return {**(args or {}), "thought": event.thought} if event.thought else args
        case Observation():
            record["observation"], record["content"] = event.tool, event.content
            metadata = before.call_metadata(event)
            if metadata is not None:
                record["tool_call_metadata"] = metadata
            return event.extras
        case Message() | SystemMessage():
            record["action"], args, text = _said(event, marks)
            if "flat" not in marks:
                record["message"] = text
            return args
        case Annotation():
            record[marks.get("as") or _usual_naming(event.name)] = event.name
            record.update(event.data if isinstance(event.data, dict) else {"content": event.data})
            return None
        case CondensationAction():
            record["action"] = "condensation"
            if event.summary is not None:
                record["message"] = f"Summary: {event.summary}"
            return _forgetting(event)
        case CondensationSummary():
            record["observation"], record["content"] = "condense", event.content
            return {}
        case CondensationRequest():
            record["action"] = "condensation_request"
            return {}
        case UnknownEvent():
            return None


def _said(event: Message | SystemMessage, marks: _Marks) -> tuple[str, dict[str, Any], str]:
    """The action's name, its arguments, and the text that the record's ``message`` repeats."""
    images: list[str] = []
    if isinstance(event.content, str):
        text = event.content
    else:
        images = [part["image_url"]["url"] for part in event.content if part.get("type") == "image_url"]
        text = "".join(part["text"] for part in event.content if part.get("type") == "text")
    if type(event) is SystemMessage:
        return "system", {"content": text, "tools": list(event.tools)}, text
    if "text" in marks:
        return "finish", {marks["text"]: text}, text
    args: dict[str, Any] = {"content": text}
    if images:
        args[marks.get("images", "image_urls")] = images
    return "message", args, text


def _forgetting(event: CondensationAction) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.forgotten_event_ids is not None:
        args["forgotten_event_ids"] = list(event.forgotten_event_ids)
    elif event.origin is not None:
        args["forgotten_events_start_id"] = event.forgotten_events_start_id
        args["forgotten_events_end_id"] = event.forgotten_events_end_id
    if event.summary is not None:
        args["summary"], args["summary_offset"] = event.summary, event.summary_offset
    return args
