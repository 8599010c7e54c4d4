"""Convert spans of Phoenix, Langfuse and OpenTelemetry's console exporter into requests to a
collector.

The conversion loses no field: a field that the conventions do not have becomes an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from foldlog._base.usage import count_of
from foldlog.formats.json_text import json_of, parse_text
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    read_time,
    text_or_empty,
    within,
)

_PHOENIX = re.compile(rb'"context"\s*:\s*\{[^{}]*"trace_id"')
_LANGFUSE = re.compile(rb'"type"\s*:\s*"(?:GENERATION|SPAN|EVENT|AGENT|TOOL|CHAIN)"')
_DOES = {"GENERATION": "chat", "AGENT": "invoke_agent", "TOOL": "execute_tool"}
_SEVERAL = ("data", "observations")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_export(begin: bytes) -> bool:
    is_langfuse = b'"traceId"' in begin and _LANGFUSE.search(begin) is not None
    return begin.lstrip()[:1] in (b"[", b"{") and (
        is_langfuse or _PHOENIX.search(begin) is not None
    )


def requests_in(value: Any, **of_trace: Any) -> Iterator[Fields]:
    if type(value) is list:
        for item in value:
            yield from requests_in(item, **of_trace)
    elif type(value) is dict:
        if spans := next((value[key] for key in _SEVERAL if type(value.get(key)) is list), None):
            session = {}
            if "sessionId" in value:
                session["sessionId"] = value["sessionId"]
            yield from requests_in(spans, **session)
        elif type(within(value, "context", "trace_id")) is str:
            yield _request_of_phoenix(dict(value))
        elif type(value.get("traceId")) is str and text_or_empty(value, "type").isupper():
            yield _request_of_langfuse({**of_trace, **value})


def _request_of_phoenix(fields: Fields) -> Fields:
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
    request, reply, kind = (fields.pop(key, None) for key in ("input", "output", "type"))
    usage = dict_or_empty(fields, "usageDetails") or dict_or_empty(fields, "usage")
    counts = {key: count for key, value in usage.items() if (count := count_of(value)) is not None}
    attributes = {
        "gen_ai.operation.name": _DOES.get(kind, str(kind).lower()),
        "gen_ai.request.model": fields.pop("model", None),
        "gen_ai.usage.input_tokens": sum(
            counts[key] for key in counts if key.startswith("input") or "cache" in key
        )
        or None,
        "gen_ai.usage.output_tokens": sum(counts[key] for key in counts if key.startswith("output"))
        or None,
        "gen_ai.usage.cache_read.input_tokens": sum(
            counts[key] for key in counts if "cached" in key or "read" in key
        )
        or None,
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
    # the value may be a list, a message, an object with messages, or a text
    content = parse_text(value) or value
    if type(content) is dict and "role" not in content:
        content = content.get("messages", content.get("choices", content))
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
    if at is None:
        return "0"
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}000"


def attributes_of(attributes: Iterable[tuple[str, Any]]) -> list[Fields]:
    return [
        {"key": key, "value": _value(value)}
        for key, value in attributes
        if value not in (None, "", [], {})
    ]


def _value(value: Any) -> Fields:
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
