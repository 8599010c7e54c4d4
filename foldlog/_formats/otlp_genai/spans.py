"""Find the spans of a history, and the messages in a span."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.files.found import NotAHistory
from foldlog._formats.files.readers import JsonLines, Placed, PlacedRecord
from foldlog._formats.files.scanner import Scanner
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.json_text import UnreadableJson, parse
from foldlog._formats.record import Located, dict_or_empty, dicts_in, refused, text_or_empty

NAME = "otlp-genai"

_OURS = ("gen_ai.", "llm.")
_KEYS = {
    "gen_ai.system_instructions": "system",
    "gen_ai.input.messages": "input",
    "gen_ai.output.messages": "output",
}
_INDEXED = {
    **{"gen_ai.prompt": "input", "gen_ai.completion": "output"},  # OpenLLMetry
    **{"llm.input_messages": "input", "llm.output_messages": "output"},  # OpenInference
}
AGENT = "invoke_agent"
_CONVERSATIONS = ("gen_ai.conversation.id", "session.id")
_SILENT = (
    "holds spans, and none has messages of a model; let the instrumentation record them, with "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
)


_SIGNALS = {"resourceSpans", "resourceMetrics", "resourceLogs"}
"""The keys of what a collector writes, of which one is in each request."""


def span_of(record: Any) -> dict[str, Any] | None:
    """Return the span of a record, which is a request with one span."""
    match record:
        case {"resourceSpans": [{"scopeSpans": [{"spans": [dict(span)]}]}]}:
            return span
    return None


def _value(value: Any) -> Any:
    """Return the value of an attribute."""
    match value:
        case {"arrayValue": {"values": list(values)}}:
            return [_value(each) for each in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _pairs(values)
        case {"intValue": str(number)} if number.lstrip("-").isdecimal() and len(number) < 20:
            return int(number)
        case dict() if len(value) == 1:
            return next(iter(value.values()))
    return None


def _pairs(pairs: Any) -> dict[str, Any]:
    return {each["key"]: _value(each.get("value")) for each in dicts_in(pairs) if type(each.get("key")) is str}


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span."""
    return _pairs(span.get("attributes"))


def is_ours(attributes: dict[str, Any]) -> bool:
    """Return whether a span has attributes of models."""
    return any(key.startswith(_OURS) for key in attributes)


def messages_in(span: dict[str, Any], attributes: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the messages of a span as the conventions have them: its instructions, its input and its output."""
    found: dict[str, list[Any]] = {}
    events = span.get("events")
    for each in (attributes, *(_pairs(event.get("attributes")) for event in dicts_in(events))):
        for key, name in _KEYS.items():
            if (value := _list(each.get(key))) and name not in found:
                found[name] = value
    for prefix, name in _INDEXED.items():
        if name not in found and (value := _indexed(attributes, f"{prefix}.")):
            found[name] = value
    if "system" in found:
        found["system"] = [{"role": "system", "parts": found["system"]}]
    return found


def _list(value: Any) -> list[Any]:
    try:
        value = parse(value.encode()) if type(value) is str else value
    except (UnreadableJson, UnicodeEncodeError):
        return []
    return dicts_in(value)


def _indexed(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Return the messages of attributes such as ``gen_ai.prompt.0.content``."""
    found: dict[str, dict[str, Any]] = {}
    calls: dict[str, dict[str, dict[str, Any]]] = {}
    for key, value in attributes.items():
        number, _, rest = key.removeprefix(prefix).partition(".")
        if not key.startswith(prefix) or not number.isdecimal() or len(number) > 9:
            continue
        message, rest = found.setdefault(number, {}), rest.removeprefix("message.")
        if rest.startswith("tool_calls."):
            place, _, field = rest.removeprefix("tool_calls.").partition(".")
            name = field.removeprefix("tool_call.").removeprefix("function.")
            calls.setdefault(number, {}).setdefault(place, {"type": "tool_call"})[name] = value
        else:
            message[rest] = value
    messages: list[Any] = []
    for number in sorted(found, key=int):
        message = found[number]
        text, answers = message.get("content"), message.get("tool_call_id")
        said = [{"type": "text", "content": text}] if type(text) is str and text else []
        parts: list[Any] = [*said, *calls.get(number, {}).values()]
        if message.get("role") == "tool":
            parts = [{"type": "tool_call_response", "id": answers, "response": text}]
        messages.append({"role": message.get("role"), "parts": parts})
    return messages


def operation_of(attributes: dict[str, Any]) -> str:
    """Return what a span does: ``chat``, ``execute_tool``, …"""
    return text_or_empty(attributes.get("gen_ai.operation.name"))


class _Found(NamedTuple):
    """A span: its ids, when it began, its record and its attributes."""

    trace: str
    id: str
    began: int
    record: dict[str, Any]
    attributes: dict[str, Any]
    has_messages: bool


class SpanFiles(FileReader):
    """Files of a collector."""

    def holds(self, path: Path, begin: bytes) -> bool:
        return path.suffix in (".json", ".jsonl") and begin.lstrip()[:1] == b"{" and b'"resourceSpans"' in begin[:200]

    def histories(self, path: Path) -> Iterator[Contained]:
        """Yield the histories by their names. A problem may hide spans of each. Memory: the spans of models, tools and
        agents.
        """
        found: list[_Found] = []
        above: dict[tuple[str, str], str] = {}
        problems: list[PlacedRecord] = []
        for located in _requests(path):
            problem = located.problem or (None if _SIGNALS & dict_or_empty(located.value).keys() else "holds no spans")
            if problem is not None:
                problems.append((f"{path}:{located.line}", None, problem))
            lost: list[Any] = []
            for each, parent in _spans(located.value, lost):
                above[each.trace, each.id] = parent
                if is_ours(each.attributes):
                    found.append(each)
            problems += ((f"{path}:{located.line}", None, str(refused("a span", each))) for each in lost)
        histories: dict[str, list[_Found]] = {}
        agents = {(it.trace, it.id) for it in found if operation_of(it.attributes) == AGENT}
        conversations = {it.trace: name for it in reversed(found) if (name := _conversation_in(it.attributes))}
        for each in found:
            called = _agents_above(each, above, agents)[:-1]  # the outermost was not called by another
            name = "/".join((conversations.get(each.trace, each.trace), *called[:1]))
            histories.setdefault(name, []).append(each)
        if not any(each.has_messages for each in found):
            raise NotAHistory(path, f"{problems[0][0]}: {problems[0][2]}" if problems else _SILENT)
        for name, spans in histories.items():
            if any(each.has_messages for each in spans):
                ordered = sorted(spans, key=lambda each: each.began)
                rows = [(f"{path}, span {each.id}", each.record, None) for each in ordered]
                yield Contained(name, Placed(0, partial(iter, [*rows, *problems])))  # whose they are is not known


def _requests(path: Path) -> Iterator[Located]:
    """Yield the requests in a file: a document, or one on each line."""
    with path.open("rb") as file:
        scanner = Scanner(file)
        try:
            whole = [Located(1, 0, scanner.value())]
            yield from whole if scanner.peek() == "" else JsonLines(path)
        except UnreadableJson:
            yield from JsonLines(path)


def _spans(request: Any, lost: list[Any]) -> Iterator[tuple[_Found, str]]:
    """Yield the spans of a request, each as a record of its own, with the ids of their parents. Add to ``lost`` what
    stands in the place of spans.
    """
    for resource in _objects(dict_or_empty(request), "resourceSpans", lost):
        for scope in _objects(resource, "scopeSpans", lost):
            for span in _objects(scope, "spans", lost):
                trace, name, parent = (text_or_empty(span.get(key)) for key in ("traceId", "spanId", "parentSpanId"))
                record = {"resourceSpans": [{**resource, "scopeSpans": [{**scope, "spans": [span]}]}]}
                attributes, began = attributes_of(span), nanoseconds(span.get("startTimeUnixNano"))
                has_messages = bool(messages_in(span, attributes))
                yield _Found(trace, name, began, record, attributes, has_messages), parent


def _objects(holder: dict[str, Any], key: str, lost: list[Any]) -> list[dict[str, Any]]:
    """Return the objects in an array. Add to ``lost`` what is not one."""
    array = holder.get(key, [])
    lost += [each for each in array if type(each) is not dict] if type(array) is list else [array]
    return dicts_in(array)


def _conversation_in(attributes: dict[str, Any]) -> str | None:
    names = (attributes.get(key) for key in _CONVERSATIONS)
    return next((name for name in names if type(name) is str and name), None)


def _agents_above(found: _Found, above: dict[tuple[str, str], str], agents: Container[tuple[str, str]]) -> list[str]:
    """Return the ids of the spans of the agents of which this span is a part, the innermost first."""
    passed: dict[str, None] = {}
    span = found.id
    while (found.trace, span) in above and span not in passed:
        passed[span] = None
        span = above[found.trace, span]
    return [each for each in passed if (found.trace, each) in agents]


def nanoseconds(value: Any) -> int:
    """Return a time of OTLP, which is a number in a text; 0 for what is not such a number."""
    text = str(value) if type(value) in (int, str) else ""
    return int(text) if text.isdecimal() and len(text) < 20 else 0
