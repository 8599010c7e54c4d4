"""V0 records to events."""

from __future__ import annotations

from collections.abc import Container
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
)
from foldlog.formats.calls import REJECTED
from foldlog.formats.delta import object_delta
from foldlog.formats.openhands_v0.writing import NAME, OBSERVED_BOOKKEEPING, Before, Marks, predicted, usual_naming
from foldlog.formats.record import NotAnEvent, described, read_time

__all__ = ["Decoder"]

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment"}
_BOOKKEEPING = OBSERVED_BOOKKEEPING | {"change_agent_state"}
_STRUCTURAL = frozenset({"condensation", "condensation_request"})

_ENVELOPE = frozenset(
    (
        *("id", "timestamp", "source", "cause", "message", "action", "observation", "args", "extras"),
        *("tool_call_metadata", "llm_metrics", "timeout"),
    )
)
"""Keys of a record that belong to every event. In a flat record what is not one of these is an argument or an extra."""
_OBSERVED = _ENVELOPE | {"content", "success"}


class Decoder:
    """Records of one history to events, one record after the other.

    ``outside`` says which records, by their number, stand outside the agent's history (``outside_history``).
    """

    def __init__(self, *, as_history: bool = False, outside: Container[int] = ()) -> None:
        self._as_history = as_history
        self._outside = outside
        self._before = Before()
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

    def _event(self, record: dict[str, Any], is_action: bool, outside: bool, marks: Marks) -> Event:
        before = self._before
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=NAME, id=record.get("id"), time=time)
        cause = self._cause(record, is_action)
        fields: dict[str, Any] = {"id": before.next_id, "timestamp": timestamp, "origin": origin, "cause": cause}
        source = record.get("source")
        if type(source) is str and source in _SOURCES:
            fields["source"] = _SOURCES[source]
        build = self._action if is_action else self._observation
        event = build(record, fields, outside, marks)
        difference = object_delta(predicted(event, marks, before), record)
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

    def _action(self, record: dict[str, Any], fields: dict[str, Any], outside: bool, marks: Marks) -> Event:
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

    def _observation(self, record: dict[str, Any], fields: dict[str, Any], outside: bool, marks: Marks) -> Event:
        name = record["observation"]
        extras = _payload(record, "extras", _OBSERVED, marks)
        fields["shown"] = self._as_history or not (outside or name in _BOOKKEEPING or extras.get("hidden") is True)
        if name in OBSERVED_BOOKKEEPING and not self._as_history:
            return _annotation("observation", record, fields, marks)
        content = _text(record.get("content"))
        if name == "condense":
            return CondensationSummary(content=content, **fields)
        if name == "user_rejected" and not content.strip():
            content = REJECTED
        call_id, _ = _call(record)
        return Observation(
            tool=name, content=content, extras=extras, call_id=call_id, is_error=name == "error", **fields
        )


def _is_action(record: Any) -> bool:
    if type(record) is not dict:
        raise NotAnEvent(f"expected an event object, found {described(record)}")
    if type(record.get("action")) is str:
        return True
    if type(record.get("observation")) is str:
        return False
    raise NotAnEvent("an event has a text under 'action' or 'observation', this object has neither")


def _payload(record: dict[str, Any], key: str, envelope: frozenset[str], marks: Marks) -> dict[str, Any]:
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


def _message(args: dict[str, Any], fields: dict[str, Any], marks: Marks) -> Message:
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


def _annotation(naming: str, record: dict[str, Any], fields: dict[str, Any], marks: Marks) -> Annotation:
    marks.pop("flat", None)
    name = record[naming]
    if naming != usual_naming(name):
        marks["as"] = naming
    taken = ("id", "timestamp", "source", "cause", naming)
    return Annotation(name=name, data={key: value for key, value in record.items() if key not in taken}, **fields)


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
