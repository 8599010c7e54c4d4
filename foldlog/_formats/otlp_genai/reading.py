"""Spans to events."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.calls import OpenCalls
from foldlog._formats.format import Options, RecordDecoder
from foldlog._formats.otlp_genai.spans import (
    AGENT,
    NAME,
    attributes_of,
    messages_in,
    nanoseconds,
    operation_of,
    span_of,
)
from foldlog._formats.packing import json_of
from foldlog._formats.record import NotAnEvent, text_or_empty, time_at, usage_told
from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
)

_USAGE = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "cache_write_tokens": ("gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
}
_NAMED = {
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
    "reply": ("gen_ai.response.id",),
}
_SOURCES: dict[str, Source] = {"user": "user", "assistant": "agent", "model": "agent"}


class SpanDecoder(RecordDecoder):
    """Spans of one history to events."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls = OpenCalls()
        self._said: list[tuple[bytes, int]] = []
        """What was said on the branch that is shown: the gist of each message, and the version after it."""

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next span. Raises ``NotAnEvent``."""
        span = span_of(record)
        if span is None:
            raise NotAnEvent("a record of OpenTelemetry is an object with one span: {'resourceSpans': […]}")
        attributes = attributes_of(span)
        found = {} if operation_of(attributes) == AGENT else messages_in(span, attributes)
        told, reply = [*found.get("system", ()), *found.get("input", ())], found.get("output", [])
        began, ended = (time_at(nanoseconds(span.get(key)) / 1e9) for key in ("startTimeUnixNano", "endTimeUnixNano"))
        same = self._same(told)
        first_id = self.next_id
        events: list[Event] = []
        if told and same < len(self._said):
            version = self._said[same - 1][1] if same else 0
            events.append(Retraction(id=first_id, version=version, origin=Origin(format=NAME)))
            self._said = self._said[:same]
        before = len(events)
        for message in told[same:]:
            events += self._read(message, first_id + len(events), began)
        sent = len(events)
        for message in reply:
            events += self._read(message, first_id + len(events), ended)
        if len(events) == sent:
            name = text_or_empty(span.get("name"))
            events.append(
                Annotation(id=first_id + sent, name="span", data=name, timestamp=began, origin=Origin(format=NAME))
            )
        origin = Origin(format=NAME, id=span.get("spanId"))
        force_setattr(events[before], "origin", origin)  # no other code has them before they are returned
        if operation_of(attributes) != AGENT:  # it tells what its spans told, once more
            force_setattr(events[sent], "meta", _told(attributes))
        self.next_id += len(events)
        return events

    def _same(self, told: list[Any]) -> int:
        """Return the number of first messages that were said before."""
        for place, (message, (gist, _)) in enumerate(zip(told, self._said, strict=False)):
            if _gist(message) != gist:
                return place
        return min(len(told), len(self._said))

    def _read(self, message: dict[str, Any], first_id: int, at: datetime | None) -> list[Event]:
        """Return the events of a message: none if it tells nothing."""
        events: list[Event] = []
        role, parts = message.get("role"), _parts(message)
        content = tuple(part for each in parts if (part := _content(each)) is not None)
        said: Content = content[0]["text"] if len(content) == 1 and "text" in content[0] else content or ""

        def common() -> dict[str, Any]:
            return {"id": first_id + len(events), "timestamp": at, "origin": Origin(format=NAME)}

        for part in parts:
            call_id = part.get("id")
            if part.get("type") == "tool_call":
                arguments = part.get("arguments")
                call = Action(
                    tool=text_or_empty(part.get("name")),
                    arguments=arguments if type(arguments) in (str, dict) else None,
                    call_id=call_id if type(call_id) is str else None,
                    response_id=f"message-{first_id}",
                    thought="" if events else said,
                    **common(),
                )
                self._calls.open(call)
                events.append(call)
            elif part.get("type") == "tool_call_response":
                call_id, cause, tool = self._calls.close(call_id)
                answer = part.get("response", part.get("result"))
                text = answer if type(answer) is str else "" if answer is None else json_of(answer).decode()
                events.append(Observation(content=text, tool=tool, call_id=call_id, cause=cause, **common()))
        if said and not any(isinstance(event, Action) for event in events):
            if role in ("system", "developer"):
                events.append(SystemMessage(content=said, **common()))
            else:
                events.append(Message(content=said, source=_SOURCES.get(str(role), "environment"), **common()))
        self._said.append((_gist(message), first_id + len(events)))
        return events


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts")
    if type(parts) is not list:
        return [{"type": "text", "content": text_or_empty(message.get("content"))}]
    return [part for part in parts if type(part) is dict]


def _content(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return a text or an image; a text for another file; None for what is neither."""
    kind, is_image = part.get("type"), part.get("modality") == "image"
    text = part.get("content", part.get("text"))
    match kind:
        case "text":
            return {"type": "text", "text": text} if type(text) is str and text else None
        case "blob" if is_image:
            url = f"data:{text_or_empty(part.get('mime_type'))};base64,{text_or_empty(text)}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "uri" if is_image:
            return {"type": "image_url", "image_url": {"url": text_or_empty(part.get("uri"))}}
        case "blob" | "uri" | "file":
            place = text_or_empty(part.get("uri", part.get("file_id")))
            return {"type": "text", "text": f"[{text_or_empty(part.get('modality')) or 'file'} {place}]"}
    return None


def _gist(message: dict[str, Any]) -> bytes:
    """Return what two messages have in common that say the same. Reasoning is not sent again."""
    keys = ("type", "content", "text", "id", "name", "arguments", "response", "result", "uri", "file_id")
    parts = [[part.get(key) for key in keys] for part in _parts(message) if part.get("type") != "reasoning"]
    return blake2b(json_of([message.get("role"), parts]), digest_size=16).digest()


def _told(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the model and the tokens of a reply as events have them."""

    def first(keys: tuple[str, ...], kind: type) -> Any:
        return next((attributes[key] for key in keys if type(attributes.get(key)) is kind), None)

    told = {name: first(keys, str) for name, keys in _NAMED.items()}
    used = usage_told({name: first(keys, int) for name, keys in _USAGE.items()})
    return {name: value for name, value in {**told, **used}.items() if value is not None}
