"""Spans of OpenTelemetry's GenAI conventions, as a collector writes them: ``{"resourceSpans": […]}``, also in lines.

A record is such an object with one span, so an export is again a file that a collector reads. The spans of a
conversation (``gen_ai.conversation.id``), else of a trace, are one history, in the order in which they began; those of
an agent that another one called are a history of their own. Spans without attributes of ``gen_ai`` or ``llm`` are not
part of one.

A span of a model repeats all that the model was sent. What it says like the spans before it is not read twice; where it
says something else, a retraction takes back what stood there. Then come the messages that are new, and the reply:

    system, user        SystemMessage, Message
    assistant           Message; an Action for each call
    tool                an Observation for each result
    any other span      Annotation: of a tool, of an agent, of a model without messages

Messages are read where these conventions have them: ``gen_ai.input.messages`` and ``gen_ai.output.messages`` of a span
or of its event, ``gen_ai.prompt.0.…`` of OpenLLMetry, ``llm.input_messages.0.…`` of OpenInference (Phoenix).

``spans.py`` finds the spans of a history and their messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.format import Format, Options
from foldlog._formats.openai_chat import OpenAIChatEncoder
from foldlog._formats.otlp_genai.spans import (
    AGENT,
    NAME,
    SpanFiles,
    attributes_of,
    is_ours,
    messages_in,
    nanoseconds,
    operation_of,
    span_of,
)
from foldlog._formats.packing import json_of
from foldlog._formats.record import dicts_in, joined_text, text_or_empty, time_at, usage_told
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.told import data_url, image_at, session_of
from foldlog.eventstore import Annotation, Event, Message, Origin, Retraction, Source, SystemMessage

__all__ = ["FORMAT"]

_USAGE = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "cache_write_tokens": ("gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total"),
}
_NAMED = {
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
    "reply": ("gen_ai.response.id",),
}
_SOURCES: dict[str, Source] = {"user": "user", "assistant": "agent", "model": "agent"}


# -- spans to events ---------------------------------------------------------------------------------------------------


class _Decoder(FollowingDecoder):
    """Spans of one history to events."""

    format, keeps_shown = NAME, False
    expected = "an object of OpenTelemetry with one span: {'resourceSpans': […]}"
    accepts = staticmethod(lambda record: span_of(record) is not None)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._said: list[tuple[bytes, int]] = []
        """What was said on the branch that is shown: the gist of each message, and the version after it."""

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
            return image_at(data_url(text_or_empty(part.get("mime_type")), text_or_empty(text)))
        case "uri" if is_image:
            return image_at(text_or_empty(part.get("uri")))
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


# -- events to spans ---------------------------------------------------------------------------------------------------


class _Encoder(OpenAIChatEncoder):
    """Events of one history to spans: one for each reply of a model, with all that it was sent, as a chat has it."""

    def __init__(self) -> None:
        super().__init__()
        self._sent: list[Any] = []
        self._newest: Event | None = None
        """What was said last, if it is not a reply."""
        self._trace = ""

    def records(self, event: Event) -> Sequence[Any] | None:
        self._trace = self._trace or session_of(event).replace("-", "")
        return super().records(event)

    def written(self, events: Sequence[Any]) -> Sequence[Any]:
        """Return a span for a message of the model; the others are part of the next one."""
        spans: list[Any] = []
        for message in map(_message, super().written(events)):
            self._newest = None if message["role"] == "assistant" else events[-1]
            spans += [self._span(events[-1], [message])] if self._newest is None else ()
            self._sent.append(message)
        return spans

    def end(self) -> Sequence[Any]:
        spans, newest = super().end(), self._newest
        self._newest = None
        return spans if newest is None else [*spans, self._span(newest, ())]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        span = span_of(record) or {}
        if found := messages_in(span, attributes_of(span)):
            self._sent = [message for name in ("system", "input", "output") for message in found.get(name, ())]
        self._trace = str(span.get("traceId", self._trace))

    def _span(self, event: Event, reply: Sequence[Any]) -> dict[str, Any]:
        time = "0" if event.timestamp is None else str(int(event.timestamp.timestamp() * 1e9))
        told = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(self._sent)}
        told |= {"gen_ai.output.messages": json.dumps(reply)} if reply else {}
        span = {
            **{"traceId": self._trace, "spanId": f"{event.id + 1:016x}", "name": "chat", "kind": 3},
            **{"startTimeUnixNano": time, "endTimeUnixNano": time},
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in told.items()],
        }
        return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}


def _message(chat: dict[str, Any]) -> dict[str, Any]:
    """Return a chat message as the conventions have it."""
    content = chat["content"]
    said = joined_text(tuple(content) if type(content) is list else content or "")
    if chat["role"] == "tool":
        parts = [{"type": "tool_call_response", "id": chat.get("tool_call_id"), "response": said}]
    else:
        parts = [{"type": "text", "content": said}] if said else []
        for call in chat.get("tool_calls", ()):
            parts.append({"type": "tool_call", "id": call.get("id"), **call["function"]})
    return {"role": chat["role"], "parts": parts}


# -- the format --------------------------------------------------------------------------------------------------------


def _matches(record: Any) -> bool:
    span = span_of(record)
    return span is not None and is_ours(attributes_of(span))


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=lambda record: span_of(record) is not None,
    decoder=lambda records, options: _Decoder(options),
    encoder=_Encoder,
    files=SpanFiles(),
    rewritten=True,
    joins=lambda record: nanoseconds((span_of(record) or {}).get("startTimeUnixNano")),
    source_id=lambda record: (span_of(record) or {}).get("spanId"),
    marks_errors=False,
)
