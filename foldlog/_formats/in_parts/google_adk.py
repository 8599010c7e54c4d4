"""Events of Google's Agent Development Kit, as ``event.model_dump(exclude_none=True)`` writes them.

    {"content": {"parts": [{"text": "hi"}], "role": "user"}, "invocation_id": …, "author": "user", "actions": {…}, …}

The parts of an event's content, and the events of foldlog that they become:

    text                  Message, from the user or the agent that is the author
    function_call         Action; the calls of an event share their ``response_id``
    function_response     Observation
    inline_data           Message, where it is an image
    a thought             Annotation that stays with the next part of its event
    every other part      Annotation; so is an event without parts, such as a change of state, which is not shown

    actions.compaction                    CondensationAction: it forgets what happened between its two times
    actions.rewind_before_invocation_id   Retraction of that invocation and of all since, after the Annotation

A compaction within the times of an earlier one changes nothing, as in the SDK, and is an Annotation.
Each part is one event of foldlog: see ``parts.py``. An adapter keeps bytes as ``{"$bytes": base64}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from foldlog._formats.format import Options, Past
from foldlog._formats.in_parts.parts import (
    PartsDecoder,
    bytes_of_image,
    image_of_bytes,
    in_parts,
    text_of,
)
from foldlog._formats.members import Members
from foldlog._formats.record import NotAnEvent, count_in, described, time_at, usage_told
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
    summary_id,
)

NAME = "google-adk"

_NO_PARTS = "event"
"""The name of the annotation for an event without parts."""
_NO_ACTIONS: dict[str, Any] = {
    key: {} for key in ("state_delta", "artifact_delta", "requested_auth_configs", "requested_tool_confirmations")
}


def accepts(record: Any) -> bool:
    """Return whether ``record`` names its author and its invocation, and has parts if it has content."""
    if type(record) is not dict or any(type(record.get(key)) is not str for key in ("author", "invocation_id")):
        return False
    content = record.get("content")
    return content is None or (
        type(content) is dict
        and (content.get("parts") is None or type(content["parts"]) is list)
        and all(type(part) is dict for part in content.get("parts") or ())
    )


class _Span(NamedTuple):
    """When a member of the View happened; a summary tells of what happened between two times."""

    first: datetime
    last: datetime


class _Decoder(PartsDecoder):
    """Reads events, and what compactions and rewinds do to the events before them."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, self._made_of, _source_id, _usage_in)
        self._past = past = options.past if options.first_id else None
        self._shown = Members(None if past is None else partial(_earlier_members, past), options.first_id)
        self._invocations: dict[str, int] = {}
        """The version before each invocation."""

    def events(self, record: Any) -> list[Event]:
        if not accepts(record):
            found = "this object does not" if type(record) is dict else f"found {described(record)}"
            raise NotAnEvent(f"an event names its author and its invocation_id, and its parts are objects, {found}")
        rewound = _action(record, "rewind_before_invocation_id")
        version = self._version_before(rewound) if type(rewound) is str else None
        self._invocations.setdefault(record["invocation_id"], self.next_id)
        events = super().events(record)
        if version is not None:
            origin, time = Origin(format=NAME), time_at(record.get("timestamp"))
            events.append(Retraction(id=self.next_id, version=version, timestamp=time, origin=origin))
            self._shown.follow(events[-1], None)
            self.next_id += 1
        return events

    def _version_before(self, invocation: str) -> int | None:
        """Return the version before an invocation; None where there is none."""
        for record, events in () if self._past is None else self._past.records():
            if record.get("invocation_id") == invocation:
                return events[0].id
        return self._invocations.get(invocation)

    def _made_of(self, record: dict[str, Any], first_id: int) -> list[Event]:
        condensation = self._condensation(record, first_id)
        events: list[Event] = _events(record, first_id) if condensation is None else [condensation]
        time = time_at(record.get("timestamp"))
        for event in events:
            known = _span_of(event) if event is condensation else None if time is None else _Span(time, time)
            self._shown.follow(event, known)
        return events

    def _condensation(self, record: dict[str, Any], event_id: int) -> CondensationAction | None:
        """Return what a compaction does: as in the SDK, its summary stands where its last event happened."""
        compaction = _action(record, "compaction")
        span = _span_in(compaction)
        content = None if span is None else compaction.get("compacted_content")
        if span is None or type(content) is not dict:
            return None
        gone, offset, last = list[int](), 0, datetime.min.replace(tzinfo=UTC)
        for member_id, known in self._shown.all():
            first, last = known or _Span(last, last)
            if member_id < 0 and first <= span.first and last >= span.last and (first, last) != span:
                return None
            if span.first <= first and last <= span.last:
                gone.append(member_id)
            elif last <= span.last:
                offset += 1
        return CondensationAction(
            id=event_id,
            forgotten_event_ids=tuple(gone),
            summary=_text_in(content),
            summary_offset=offset,
            metadata={key: compaction[key] for key in _TIMES},
            timestamp=time_at(record.get("timestamp")),
            origin=Origin(format=NAME),
        )


_TIMES = ("start_timestamp", "end_timestamp")


def _action(record: dict[str, Any], name: str) -> Any:
    actions = record.get("actions")
    return actions.get(name) if type(actions) is dict else None


def _span_in(compaction: Any) -> _Span | None:
    """Return the times of a compaction, also as a condensation has them."""
    times = compaction if type(compaction) is dict else {}
    first, last = (time_at(times.get(name)) for name in _TIMES)
    return None if first is None or last is None else _Span(first, last)


def _span_of(condensation: Event) -> _Span | None:
    return _span_in(getattr(condensation, "metadata", None))


def _earlier_members(past: Past, version: int | None) -> Iterator[tuple[int, _Span | None]]:
    view = past.view(version)
    spans = {summary_id(each.id): _span_of(each) for each in view.condensations}
    for event in view:
        time = event.timestamp
        yield event.id, spans.get(event.id) if event.id < 0 else None if time is None else _Span(time, time)


def _text_in(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    texts = (part.get("text") for part in parts or () if type(part) is dict and part.get("thought") is not True)
    return "\n".join(text for text in texts if type(text) is str)


def _usage_in(record: dict[str, Any]) -> dict[str, Any]:
    usage = record.get("usage_metadata")
    names = {
        "prompt_tokens": ("prompt_token_count",),
        "cached_tokens": ("cached_content_token_count",),
        "completion_tokens": ("candidates_token_count", "thoughts_token_count"),
        "reasoning_tokens": ("thoughts_token_count",),
    }
    counts = {ours: count_in(usage, *theirs) for ours, theirs in names.items()}
    return usage_told(counts, model=record.get("model_version"))


def _source_id(record: Any) -> Any:
    return record.get("id") if type(record) is dict else None


def _events(record: dict[str, Any], first_id: int) -> list[Event]:
    parts = (record.get("content") or {}).get("parts") or []
    event_id = record.get("id")
    common: dict[str, Any] = {"timestamp": time_at(record.get("timestamp")), "origin": Origin(format=NAME)}
    response_id = event_id if type(event_id) is str and event_id else f"event-{first_id}"
    source: Source = "user" if record["author"] == "user" else "agent"
    if not parts:
        return [Annotation(id=first_id, name=_NO_PARTS, source=source, **common)]
    return [
        _event(part, {"id": first_id + place, **common}, source, response_id, is_last=place + 1 == len(parts))
        for place, part in enumerate(parts)
    ]


def _event(part: dict[str, Any], common: dict[str, Any], source: Any, response_id: str, *, is_last: bool) -> Event:
    text, call, response = part.get("text"), part.get("function_call"), part.get("function_response")
    if type(text) is str and part.get("thought") is not True:
        return Message(content=text, source=source, **common)
    if type(call) is dict and type(call.get("name")) is str:
        arguments, call_id = call.get("args"), call.get("id")
        return Action(
            tool=call["name"],
            arguments=arguments if type(arguments) is dict else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=response_id,
            **common,
        )
    if type(response) is dict and type(response.get("name")) is str:
        result, call_id = response.get("response"), response.get("id")
        return Observation(
            content=text_of(result),
            tool=response["name"],
            call_id=call_id if type(call_id) is str else None,
            is_error=type(result) is dict and "error" in result,
            **common,
        )
    data = part.get("inline_data")
    if type(data) is dict and (image := image_of_bytes(data.get("data"), data.get("mime_type"))) is not None:
        return Message(content=(image,), source=source, **common)
    is_thought = type(text) is str and source == "agent"
    name = "thought" if type(text) is str else next(iter(part), "part")
    stays = is_thought and not is_last
    return Annotation(name=name, data=part, source=source, shown=True, stays_with_next=stays, **common)


def _written(event: Event) -> dict[str, Any]:
    is_agent = getattr(event, "source", None) == "agent" and not isinstance(event, SystemMessage)
    record: dict[str, Any] = {
        "content": {"parts": [_part(event)], "role": "model" if is_agent else "user"},
        "invocation_id": "",
        "author": "agent" if is_agent or isinstance(event, Observation) else "user",
        "actions": _NO_ACTIONS,
        "node_info": {"path": ""},
    }
    if event.timestamp is not None:
        record["timestamp"] = event.timestamp.timestamp()
    return record


def _part(event: Event) -> dict[str, Any]:
    match event:
        case Message() | SystemMessage() | CondensationSummary():
            if isinstance(event.content, str):
                return {"text": event.content}
            for part in event.content:
                if part.get("type") == "image_url" and (image := bytes_of_image(str(part["image_url"].get("url")))):
                    return {"inline_data": {"data": image[0], "mime_type": image[1]}}
            return {"text": "".join(part.get("text", "") for part in event.content)}
        case Action():
            call = {"id": event.call_id or f"call_{event.id}", "args": event.arguments, "name": event.tool}
            return {"function_call": {key: value for key, value in call.items() if value is not None}}
        case Observation():
            call_id = event.call_id or (None if event.cause is None else f"call_{event.cause}")
            result = event.content if isinstance(event.content, str) else list(event.content)
            outcome = {"error" if event.is_error else "result": result}
            response = {"id": call_id, "name": event.tool, "response": outcome}
            return {"function_response": {key: value for key, value in response.items() if value is not None}}
    return {}


FORMAT = in_parts(
    NAME,
    accepts=accepts,
    matches=lambda record: accepts(record) and type(record.get("actions")) is dict,
    decoder=_Decoder,
    written=_written,
    source_id=_source_id,
)
