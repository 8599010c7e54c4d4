"""Spans of OpenTelemetry's GenAI conventions, as a collector writes them: ``{"resourceSpans": […]}``, also in lines.

A record is such an object with one span, so an export is again a file that a collector reads. docs/IMPORTING.md says
which spans are a history, where their messages are, and what of them is read. The messages that are new, and the reply:

    system, user        SystemMessage, Message
    assistant           Message; an Action for each call
    tool                an Observation for each result
    any other span      Annotation: of a tool, of an agent, of a model without messages

``spans.py`` finds the spans of a history and their messages, ``exports.py`` makes those of Langfuse and Phoenix such.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from itertools import takewhile
from operator import eq
from typing import Any

from foldlog._formats.blocks import kind_of, said, said_in
from foldlog._formats.format import Format, Options
from foldlog._formats.json_text import json_of, parsed
from foldlog._formats.messages import ROLES, spoken
from foldlog._formats.openai_chat import OpenAIChatEncoder
from foldlog._formats.otlp_genai.spans import NAME, SpanFiles, Trace, TracedSpan, message_of, span_of
from foldlog._formats.record import dict_or_empty, dicts_in, text_or_empty, time_at, usage_told
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.told import data_url, image_at, session_of
from foldlog.eventstore import Annotation, Content, Event, Retraction

_USAGE = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "cache_write_tokens": ("gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total"),
}
_COST, _COSTS = ("gen_ai.usage.cost", "llm.cost.total", "operation.cost"), "langfuse.observation.cost_details"
_KNOWN = ("text", "tool_call", "tool_call_response", "blob", "uri", "file")
_READ_ELSEWHERE = ("tool_call", "tool_call_response", "reasoning")
_IN_WORDS = ("text", "document", "blob", "uri", "file")
_OF_MESSAGES = ("role", "parts", "content", "name", "id", "type", "index", "tool_call_id", "finish_reason")
"""Fields of messages that are read, or say nothing to a model."""


# -- spans to events ---------------------------------------------------------------------------------------------------


class _Decoder(FollowingDecoder):
    """Spans of one history to events."""

    keeps_shown = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._traces: dict[str, Trace] = {}
        self._said: list[tuple[bytes, int]] = []
        """What was said on the branch that is shown: the gist of each message, and the version after it."""

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        span, began = TracedSpan(record), read.timestamp
        found, usage = span.messages(), _told(span.attributes)
        tells = {"messages": found, "usage": usage.keys() & {"usage", "cost"}}
        trace = self._traces.setdefault(span.trace, Trace(span.trace))
        trace.add(span, [kind for kind in tells if tells[kind]])
        below = trace.told_below(span) if span.is_agent else ()
        found = {} if "messages" in below else found
        told = [*found.get("system", ()), *found.get("input", ())]
        same = sum(takewhile(bool, map(eq, map(_gist, told), (gist for gist, _ in self._said))))
        if told and same < len(self._said):
            version = self._said[same - 1][1] if same else 0
            read.add(Retraction, version=version, timestamp=None)
            self._said = self._said[:same]
        for message in told[same:]:
            self._read_message(read, message)
        sent = len(read.events)
        several = {"calls": 0} if span.is_agent else {}
        read.meta = {"reply": read.origin.id, **usage, **several} if usage and "usage" not in below else {}
        read.timestamp = time_at(span.ended / 1e9)
        for message in found.get("output", ()):
            self._read_message(read, message)
        if len(read.events) == sent:
            read.add(Annotation, name="span", data=text_or_empty(span.told.get("name")), timestamp=began)

    def _read_message(self, read: RecordEvents, message: dict[str, Any]) -> None:
        """Add the events of a message: none if it tells nothing."""
        role, parts = text_or_empty(message.get("role")), _parts(message)
        unread = [key for key in message if key not in _OF_MESSAGES and message[key] not in (None, "", [], {})]
        role = "assistant" if role == "model" else role
        if role not in ROLES:
            role, unread = "environment", ["role", *unread]
        if unread:
            self.options.findings.append(f"has a message of which nothing reads {', '.join(map(repr, unread))}")
        read.response = f"message-{read.version}"
        read.parts = _contents(parts)
        for part in parts:
            if part.get("type") == "tool_call":
                read.call(part.get("name"), part.get("arguments"), part.get("id"))
            elif part.get("type") == "tool_call_response":
                read.answer(part.get("id"), _result(part.get("response", part.get("result"))))
        if read.parts:
            content, read.parts = said(read.parts), []
            read.take(spoken(role, content))
        self._said.append((_gist(message), read.version))


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts_in([{"type": "text", "content": each} if type(each) is str else each for each in message["parts"]])


def _contents(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return said_in([_block(part) for part in parts if part.get("type") not in _READ_ELSEWHERE])


def _result(answer: Any) -> Content:
    """Return a result: of parts their contents, of another value its JSON text."""
    if type(answer) is list and answer and all(map(kind_of, answer)):
        return said(_contents(answer))
    return answer if type(answer) is str else "" if answer is None else json_of(answer).decode()


def _block(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as a block: a text, an image, the place of another file in words, any other part as it is."""
    kind, modality = text_or_empty(part.get("type")), text_or_empty(part.get("modality"))
    held = part | dict_or_empty(part.get(kind))  # OpenInference has an image under "image"
    text, place = held.get("content", held.get("text")), text_or_empty(held.get("uri", held.get("url")))
    if kind == "blob":
        place = data_url(text_or_empty(part.get("mime_type")), text_or_empty(text))
    if place and kind in ("blob", "uri", "image") and "image" in (kind, modality):
        return image_at(place)
    if kind in ("blob", "uri", "file") and "file" not in part:
        text = f"[{modality or 'file'} {text_or_empty(part.get('uri', part.get('file_id')))}]"
    return {"type": "text", "text": text} if kind in _IN_WORDS and text else part


def _gist(message: dict[str, Any]) -> bytes:
    """Return what two messages have in common that say the same. Reasoning is not sent again."""
    keys = ("type", "content", "text", "id", "name", "arguments", "response", "result", "uri", "file_id")
    parts = [
        [part.get(key) for key in keys] if part.get("type") in _KNOWN else part
        for part in _parts(message)
        if part.get("type") != "reasoning"
    ]
    return blake2b(json_of([message.get("role"), parts]), digest_size=16).digest()


def _told(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the model and the tokens of a reply as events have them."""

    def first(keys: tuple[str, ...], *kinds: type) -> Any:
        return next((attributes[key] for key in keys if type(attributes.get(key)) in kinds), None)

    model = first(("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"), str)
    told = {"model": model, "reply": first(("gen_ai.response.id",), str)}
    cost = first(_COST, int, float, str)
    cost = dict_or_empty(parsed(attributes.get(_COSTS))).get("total") if cost is None else cost
    used = usage_told({name: first(keys, int, float, str) for name, keys in _USAGE.items()}, cost=cost)
    return {name: value for name, value in {**told, **used}.items() if value is not None}


# -- events to spans ---------------------------------------------------------------------------------------------------


_OF_CHAT = ("role", "content", "tool_calls", "tool_call_id")


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
        for chat in super().written(events):
            message = message_of({key: chat[key] for key in _OF_CHAT if key in chat})
            self._newest = None if message["role"] == "assistant" else events[-1]
            spans += [self._span(events[-1], [message])] if self._newest is None else ()
            self._sent.append(message)
        return spans

    def end(self) -> Sequence[Any]:
        spans, newest = super().end(), self._newest
        self._newest = None
        return spans if newest is None else [*spans, self._span(newest, ())]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        span = TracedSpan(record)
        if found := span.messages():
            self._sent = [message for name in ("system", "input", "output") for message in found.get(name, ())]
        self._trace = str(span.told.get("traceId", self._trace))

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


# -- the format --------------------------------------------------------------------------------------------------------


FORMAT = Format(
    name=NAME,
    matches=lambda record: TracedSpan(record).is_ours,
    accepts=lambda record: span_of(record) is not None,
    expected="an object of OpenTelemetry with one span: {'resourceSpans': […]}",
    time=lambda record: (time_at(TracedSpan(record).began / 1e9), None),
    decoder=_Decoder,
    encoder=_Encoder,
    lacks=frozenset(
        (
            *("error mark", "block of thinking of a message", "block of thinking of a call", "count of tokens"),
            *("form of a custom tool's call", "field of a chat message", "field of a chat call"),
        )
    ),
    files=SpanFiles(),
    source_id=lambda record: (span_of(record) or {}).get("spanId"),
    marks_errors=False,
    repeats=True,
)
