"""Convert spans of Phoenix, Langfuse and OpenTelemetry's console exporter into requests to a
collector.

A field of a span that the conventions do not have becomes an attribute, unless the field is empty.
Of the span's events, only names and attributes are converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from foldlog.eventstore.usage import count_of
from foldlog.formats.json_text import json_of, parse_text
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    first_of,
    pick,
    read_time,
    text_or_empty,
    within,
)

_PHOENIX = re.compile(rb'"context"\s*:\s*\{[^{}]*"trace_id"')
_LANGFUSE = re.compile(rb'"type"\s*:\s*"(?:GENERATION|SPAN|EVENT|AGENT|TOOL|CHAIN)"')
_DOES = {"GENERATION": "chat", "AGENT": "invoke_agent", "TOOL": "execute_tool"}
"""Maps kinds of spans in Langfuse to operations."""
_SEVERAL = ("data", "observations")
"""The fields in which Langfuse puts an array of spans."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_export(begin: bytes) -> bool:
    """Return whether a file begins as an export of Langfuse, of Phoenix, or of OpenTelemetry's
    console exporter.
    """
    is_langfuse = b'"traceId"' in begin and _LANGFUSE.search(begin) is not None
    return begin.lstrip()[:1] in (b"[", b"{") and (
        is_langfuse or _PHOENIX.search(begin) is not None
    )


def requests_in(value: Any, **of_trace: Any) -> Iterator[Fields]:
    """Yield a request for each span in a value. ``of_trace`` are fields that all its spans get."""
    if type(value) is list:
        for item in value:
            yield from requests_in(item, **of_trace)
    elif type(value) is dict:
        spans = next((value[key] for key in _SEVERAL if type(value.get(key)) is list), None)
        if spans:
            yield from requests_in(spans, **pick(value, ("sessionId",)))
        elif type(within(value, "context", "trace_id")) is str:
            yield _request_of_phoenix(dict(value))
        elif type(value.get("traceId")) is str and text_or_empty(value, "type").isupper():
            yield _request_of_langfuse({**of_trace, **value})


def _request_of_phoenix(fields: Fields) -> Fields:
    """Return the request for a span of Phoenix, whose fields are taken out."""
    context = fields.pop("context")
    attributes = dict(_flat("", fields.pop("attributes", {})))
    events = [
        {"name": event.get("name"), "attributes": attributes_of(_flat("", event.get("attributes")))}
        for event in dicts_in(fields.pop("events", ()))
    ]
    ids = context["trace_id"], context.get("span_id"), fields.pop("parent_id", "")
    times = fields.pop("start_time", ""), fields.pop("end_time", "")
    return _request(fields.pop("name", ""), ids, times, attributes | fields, events)


def _request_of_langfuse(fields: Fields) -> Fields:
    """Return the request for a span of Langfuse, whose fields are taken out."""
    request = fields.pop("input", None)
    reply = fields.pop("output", None)
    kind = fields.pop("type", None)
    usage = dict_or_empty(fields, "usageDetails") or dict_or_empty(fields, "usage")
    counts = {key: count_of(value) or 0 for key, value in usage.items()}

    def total(keys: Iterable[str]) -> int | None:
        """Return the sum of these counts, or None for 0."""
        return sum(counts[key] for key in keys) or None

    inputs = [key for key in counts if key.startswith("input") or "cache" in key]
    outputs = [key for key in counts if key.startswith("output")]
    from_cache = [key for key in counts if "cached" in key or "read" in key]

    attributes = {
        "gen_ai.operation.name": _DOES.get(kind, str(kind).lower()),
        "gen_ai.request.model": fields.pop("model", None),
        "gen_ai.usage.input_tokens": total(inputs),
        "gen_ai.usage.output_tokens": total(outputs),
        "gen_ai.usage.cache_read.input_tokens": total(from_cache),
        "session.id": fields.pop("sessionId", None),
        "langfuse.observation.cost_details": fields.pop("costDetails", None),
    }
    for name, value, role in (("input", request, "user"), ("output", reply, "assistant")):
        messages = _messages(value, role) if kind == "GENERATION" else []
        attributes[f"gen_ai.{name}.messages"] = messages
        attributes[f"langfuse.observation.{name}"] = (
            None if value in (messages, *messages) else value
        )
    ids = fields.pop("traceId"), fields.pop("id", ""), fields.pop("parentObservationId", "")
    times = fields.pop("startTime", ""), fields.pop("endTime", "")
    return _request(
        fields.pop("name", ""),
        ids,
        times,
        attributes | {f"langfuse.observation.{key}": fields[key] for key in fields},
    )


def _messages(value: Any, role: str) -> list[Any]:
    """Return the messages in the input or output of a span. The value may be a list, a message, an
    object with messages, or a text.
    """
    content = parse_text(value) or value
    if type(content) is dict and "role" not in content:
        nested = first_of(content, "messages", "choices")
        content = content if nested is None else nested
    if type(content) is str:
        return [{"role": role, "content": content}]
    messages = [
        dict_or_empty(item, "message") or item
        for item in dicts_in(content if type(content) is list else [content])
    ]
    return [item for item in messages if type(item.get("role")) is str]


def _request(
    name: Any,
    ids: tuple[Any, ...],
    times: tuple[Any, ...],
    attributes: Fields,
    events: Sequence[Any] = (),
) -> Fields:
    """Return a request with one span. ``ids`` are those of the trace, the span and its parent, and
    ``times`` its beginning and its end.
    """
    began, ended = (read_time(text)[0] for text in times)
    trace, span, parent = (text_or_empty(text).removeprefix("0x") for text in ids)
    span_fields = {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": text_or_empty(name),
        "startTimeUnixNano": nanoseconds(began),
        "endTimeUnixNano": nanoseconds(ended or began),
        "attributes": attributes_of(attributes.items()),
        "events": list(events),
    }
    return request_with(span_fields)


def request_with(span: Fields) -> Fields:
    """Return a record with one span."""
    scopes = [{"scope": {}, "spans": [span]}]
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": scopes}]}


def nanoseconds(at: datetime | None) -> str:
    """Return a time as OTLP writes it. An unknown time is 0."""
    if at is None:
        return "0"
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}000"


def attributes_of(attributes: Iterable[tuple[str, Any]]) -> list[Fields]:
    """Return attributes as OTLP writes them, without empty ones."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in attributes
        if value not in (None, "", [], {})
    ]


def _value(value: Any) -> Fields:
    """Return the value of an attribute as OTLP writes it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": value if type(value) is str else json_of(value).decode()}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in an object or an array of objects. A value comes with its path, such as
    ``llm.input_messages.0.message.role``.
    """
    is_array = type(value) is list and bool(dicts_in(value))
    if type(value) is not dict and not is_array:
        yield name, value
    else:
        for key, part in enumerate(value) if is_array else value.items():
            yield from _flat(f"{name}.{key}".removeprefix("."), part)
