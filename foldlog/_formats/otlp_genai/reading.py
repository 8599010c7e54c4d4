"""Spans to events."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.format import Options
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
from foldlog._formats.record import NotAnEvent, dicts_in, text_or_empty, time_at, usage_told
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog.eventstore import Annotation, Message, Origin, Retraction, Source, SystemMessage

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


class SpanDecoder(FollowingDecoder):
    """Spans of one history to events."""

    format = NAME

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._said: list[tuple[bytes, int]] = []
        """What was said on the branch that is shown: the gist of each message, and the version after it."""

    def check(self, record: Any) -> None:
        if span_of(record) is None:
            raise NotAnEvent("a record of OpenTelemetry is an object with one span: {'resourceSpans': […]}")

    def begun(self, record: dict[str, Any]) -> RecordEvents:
        span = span_of(record) or {}
        return RecordEvents(self, Origin(format=NAME, id=span.get("spanId")), _time(span, "startTimeUnixNano"))

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        span = span_of(record) or {}
        attributes, began = attributes_of(span), read.timestamp
        is_agent = operation_of(attributes) == AGENT  # it tells what its spans told, once more
        found = {} if is_agent else messages_in(span, attributes)
        told = [*found.get("system", ()), *found.get("input", ())]
        same = self._same(told)
        if told and same < len(self._said):
            version = self._said[same - 1][1] if same else 0
            read.add(Retraction, version=version, timestamp=None)
            self._said = self._said[:same]
        for message in told[same:]:
            self._read_message(read, message)
        sent = len(read.events)
        read.meta = {} if is_agent else _told(attributes)
        read.timestamp = _time(span, "endTimeUnixNano")
        for message in found.get("output", ()):
            self._read_message(read, message)
        if len(read.events) == sent:
            read.add(Annotation, name="span", data=text_or_empty(span.get("name")), timestamp=began)

    def _same(self, told: list[Any]) -> int:
        """Return the number of first messages that were said before."""
        for place, (message, (gist, _)) in enumerate(zip(told, self._said, strict=False)):
            if _gist(message) != gist:
                return place
        return min(len(told), len(self._said))

    def _read_message(self, read: RecordEvents, message: dict[str, Any]) -> None:
        """Add the events of a message: none if it tells nothing."""
        role, parts = message.get("role"), _parts(message)
        read.response = f"message-{read.version}"
        read.parts = [part for each in parts if (part := _content(each)) is not None]
        for part in parts:
            if part.get("type") == "tool_call":
                read.call(part.get("name"), part.get("arguments"), part.get("id"))
            elif part.get("type") == "tool_call_response":
                answer = part.get("response", part.get("result"))
                text = answer if type(answer) is str else "" if answer is None else json_of(answer).decode()
                read.answer(part.get("id"), text)
        if read.parts:
            is_system = role in ("system", "developer")
            source = {} if is_system else {"source": _SOURCES.get(str(role), "environment")}
            read.add(SystemMessage if is_system else Message, content=said(read.parts), **source)
            read.parts = []
        self._said.append((_gist(message), read.version))


def _time(span: dict[str, Any], key: str) -> datetime | None:
    return time_at(nanoseconds(span.get(key)) / 1e9)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts")
    if type(parts) is not list:
        return [{"type": "text", "content": text_or_empty(message.get("content"))}]
    return dicts_in(parts)


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
