"""Find the spans of a history, and the messages in a span."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from foldlog.formats.files.documents import document_in
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.files.readers import JsonLines, Placed, on_lines
from foldlog.formats.format import Contained, FileReader
from foldlog.formats.json_text import UnreadableJson, parse_text
from foldlog.formats.otlp_genai.exports import is_export, requests_in
from foldlog.formats.record import (
    Fields,
    Located,
    dict_or_empty,
    dicts_in,
    first_of,
    has,
    omit,
    pick,
    refuse,
    text_or_empty,
    within,
)

NAME = "otlp-genai"

_KEYS = (
    ("gen_ai.system_instructions", "system"),
    ("gen_ai.input.messages", "input"),
    ("gen_ai.prompt", "input"),
    ("gen_ai.output.messages", "output"),
    ("gen_ai.completion", "output"),
)
_MODEL_OPERATIONS = ("", "chat", "text_completion", "generate_content", "invoke_agent")
"""Operations of spans with messages of a model. The messages of a tool's span are the arguments and
the result of the tool, and a loop's span repeats the messages of the spans below.
"""
_KINDS = {"LLM": "chat", "AGENT": "invoke_agent"}
"""Maps kinds of spans in OpenInference to operations."""
_INDEXED = {
    **{"gen_ai.prompt": "input", "gen_ai.completion": "output"},  # OpenLLMetry
    **{"llm.input_messages": "input", "llm.output_messages": "output"},  # OpenInference
}
_AROUND = frozenset(("message", "message_content", "tool_call", "function"))
"""The prefixes that OpenInference puts before the names of fields."""
_NAMES_MAX = 32
"""The largest number of names in the key of a numbered attribute whose value is put into objects in
objects. The SDKs write at most ten.
"""
_FUNCTION = {"name": "function_call_name", "arguments": "function_call_arguments_json"}
_CONVERSATIONS = ("gen_ai.conversation.id", "session.id")
_SILENT = (
    "holds spans without messages of a model; set "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true where the spans are recorded"
)
_SENT = ("input", "output")
_FAILED = (2, "STATUS_CODE_ERROR")
"""The codes of a failed span. The standard has numbers, and some exporters write names."""
_has_parts = has(parts=list)
_LEVELS = ("resourceSpans", "scopeSpans", "spans")
"""The keys of the arrays in a request, from the outside in."""
_NEAR = 200
"""The first key of a request is among this number of bytes."""
_SIGNALS = {"resourceSpans", "resourceMetrics", "resourceLogs"}


def span_of(record: Any) -> Fields | None:
    """Return the only span of a record, or None."""
    match record:
        case {"resourceSpans": [{"scopeSpans": [{"spans": [dict(span)]}]}]}:
            return span
    return None


class TracedSpan:
    """The span of a record.

    ``began``    when the span began, in nanoseconds.
    ``ended``    when the span ended, in nanoseconds.
    ``place``    the time by which spans are sorted: the beginning of the span, or for an agent's
                 span its end, so that it comes after the spans below.
    ``is_ours``  whether the span has an attribute about models (``gen_ai.…`` or ``llm.…``).
    ``text``     the line of the record, if the record is a whole line.
    """

    def __init__(self, record: Any, text: bytes = b"") -> None:
        self.record = record
        self.text = text
        self.fields = span_of(record) or {}
        ids = ("traceId", "spanId", "parentSpanId")
        self.trace, self.id, self.parent = (text_or_empty(self.fields.get(key)) for key in ids)
        self.began = _nanoseconds(self.fields.get("startTimeUnixNano"))
        self.ended = _nanoseconds(self.fields.get("endTimeUnixNano"))
        self.attributes = _pairs(self.fields.get("attributes"))
        kind = text_or_empty(self.attributes, "openinference.span.kind")
        operation = text_or_empty(self.attributes, "gen_ai.operation.name")
        self._does = operation or _KINDS.get(kind, kind)
        # LangChain's spans of the kind AGENT are nodes of a graph; they name no agent
        is_named = kind == "AGENT" and "agent.name" in self.attributes
        self.is_agent = operation == "invoke_agent" or (not operation and is_named)
        self.place = max(self.began, self.ended if self.is_agent else 0)
        self.is_ours = any(key.startswith(("gen_ai.", "llm.")) for key in self.attributes)

    @property
    def failed_call(self) -> str:
        """The id of the call of a tool that failed in this span, or an empty text."""
        is_failed = within(self.fields, "status", "code") in _FAILED
        return text_or_empty(self.attributes, "gen_ai.tool.call.id") if is_failed else ""

    def messages(self) -> dict[str, list[Any]]:
        """Return the messages of the span: the ``system`` prompt, the ``input`` and the ``output``.
        They are in attributes, in numbered attributes, or in events of the span.
        """
        if self._does not in _MODEL_OPERATIONS:
            return {}
        events = [
            (event.get("name"), _pairs(event.get("attributes")))
            for event in dicts_in(self.fields, "events")
        ]
        raw: dict[str, list[Any]] = {}
        for attributes in (self.attributes, *(attributes for _, attributes in events)):
            for key, name in _KEYS:
                raw[name] = raw.get(name) or dicts_in(parse_text(attributes.get(key)))
        for prefix, name in _INDEXED.items():
            raw[name] = raw[name] or _messages_by_index(self.attributes, f"{prefix}.")
        if not raw["input"] and not raw["output"]:
            for event_name, attributes in events:
                raw["output" if event_name == "gen_ai.choice" else "input"] += _in_event(
                    text_or_empty(event_name), attributes
                )
        result = {
            name: [
                message if _has_parts(message) else message_of(dict(message))
                for message in raw[name]
            ]
            for name in _SENT
        }
        result["system"] = [{"role": "system", "parts": raw["system"]}] if raw["system"] else []
        return {name: messages for name, messages in result.items() if messages}


def _value_of_attribute(value: Any) -> Any:
    """Return the value of an attribute in OTLP."""
    match value:
        case {"arrayValue": {"values": list(values)}}:
            return [_value_of_attribute(item) for item in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _pairs(values)
        case {"intValue": str(number)} if number.removeprefix("-").isdecimal() and len(number) < 20:
            return int(number)
        case dict() if len(value) == 1:
            return next(iter(value.values()))
    return None


def _pairs(pairs: Any) -> Fields:
    """Return the attributes in OTLP by name."""
    return {
        pair["key"]: _value_of_attribute(pair.get("value"))
        for pair in dicts_in(pairs)
        if type(pair.get("key")) is str
    }


def _messages_by_index(attributes: Fields, prefix: str) -> list[Any]:
    """Return the messages in numbered attributes, for example in ``gen_ai.prompt.0.content``."""
    by_number: Fields = {}
    for key, value in attributes.items():
        number, _, rest = key.removeprefix(prefix).partition(".")
        if key.startswith(prefix):
            fields = by_number.setdefault(number, {})
            names = [name for name, _ in groupby(rest.split(".")) if name not in _AROUND]
            *outer_names, last = names if 0 < len(names) <= _NAMES_MAX else [rest]
            for name in outer_names:
                if type(fields.get(name, {})) is dict:
                    fields = fields.setdefault(name, {})
            fields[last] = value
    return _in_order(by_number)


def _in_event(name: str, attributes: Fields) -> list[Fields]:
    """Return the message in an event of a span. Before 2026, the conventions put messages into
    events.
    """
    body = dict_or_empty(parse_text(attributes.get("gen_ai.event.content"))) or attributes
    if name == "gen_ai.choice":
        reply = body.get("message")
        return [{"role": "assistant", **(dict_or_empty(parse_text(reply)) or {"content": reply})}]
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    fields = pick(body, ("role", "content", "tool_calls", "id"))
    return [{"role": role} | fields] if name == f"gen_ai.{role}.message" else []


def message_of(fields: Fields) -> Fields:
    """Return a message in the format of the GenAI conventions. Fields that the conventions do not
    have stay in the message.
    """
    text = fields.pop("content", None)
    contents = fields.pop("contents", None)
    calls = fields.pop("tool_calls", None)
    parts = [*_parts(text), *_in_order(contents)]
    if fields.get("role") == "tool" and not any(
        part.get("type") == "tool_call_response" for part in parts
    ):
        call_id = first_of(fields, "tool_call_id", "id")
        answer = text if type(text) is str and not contents else parts
        parts = [{"type": "tool_call_response", "id": call_id, "response": answer}]
    function = dict_or_empty(fields.pop("function_call", None))
    function |= {key: fields.pop(name) for key, name in _FUNCTION.items() if name in fields}
    all_calls = [*_in_order(parse_text(calls)), *([function] if function else ())]
    return {**fields, "parts": [*parts, *map(_call, all_calls)]}


def _call(call: Fields) -> Fields:
    """Return a call of a chat as a part."""
    flat = call | dict_or_empty(call, "function") | {"type": "tool_call"}
    return omit(flat, "function")


def _parts(content: Any) -> list[Fields]:
    """Return a content as parts. The content may be a text, parts of a chat, Bedrock's blocks, or
    the JSON text of such parts or blocks.
    """
    is_json = type(content) is str and content.startswith("[{")
    blocks = parse_text(content) if is_json else content
    if type(blocks) is not list:
        return [{"type": "text", "content": content}] if content else []
    return [part_of(block) for block in dicts_in(blocks)]


def part_of(block: Fields) -> Fields:
    """Return a block of a chat or of Bedrock as a part of the GenAI conventions."""
    match block:
        case {"toolUse": {"toolUseId": call_id, "name": name, **other_fields}}:
            return {
                "type": "tool_call",
                "id": call_id,
                "name": name,
                "arguments": other_fields.get("input"),
            }
        case {"toolResult": {"toolUseId": call_id, "content": content}}:
            return {"type": "tool_call_response", "id": call_id, "response": _parts(content)}
    if "text" in block and "type" not in block:
        return {"type": "text", "content": block["text"]}
    return block


def _in_order(numbered: Any) -> list[Fields]:
    """Return the objects of a list, or of an object whose keys are numbers. The numbers give the
    order.
    """
    if type(numbered) is list:
        return dicts_in(numbered)
    by_number = {
        int(key): value
        for key, value in dict_or_empty(numbered).items()
        if key.isdecimal() and len(key) < 10
    }
    return dicts_in([by_number[number] for number in sorted(by_number)])


class SpanFiles(FileReader):
    """Reads files with spans, which may be of several histories."""

    def holds(self, path: Path, begin: bytes) -> bool:
        is_of_collector = begin.lstrip().startswith(b"{") and b'"resourceSpans"' in begin[:_NEAR]
        return is_of_collector or is_export(begin)

    def histories(self, path: Path) -> Iterator[Contained]:
        """Yield the histories in a file. An unreadable record may belong to any history, so each
        history gets all problems. The spans of models, tools and agents stay in memory.
        """
        model_spans: list[TracedSpan] = []
        traces: dict[str, Trace] = {}
        problems: list[Located] = []
        for row in _requests(path):
            span = TracedSpan(row.value, row.text)
            if not span.fields:
                problems.append(row)
                continue
            traces.setdefault(span.trace, Trace(span.trace)).add(span)
            if span.is_ours:
                model_spans.append(span)
        histories: dict[str, list[TracedSpan]] = {}
        for span in model_spans:
            histories.setdefault(traces[span.trace].history_of(span.id), []).append(span)
        with_messages = {
            name: spans
            for name, spans in histories.items()
            if any(span.messages() for span in spans)
        }
        if not with_messages:
            problem = next(
                (f"line {row.line}: {row.problem}" for row in problems if row.problem), _SILENT
            )
            raise NotAHistory(path, problem)
        for name, spans in with_messages.items():
            ordered = _in_order_of_time(spans, traces)
            rows = [
                Located(0, 0, span.record, None, f"{path}, span {span.id}", span.text)
                for span in ordered
            ]
            link = traces[spans[0].trace].link_of(spans[0].id, with_messages)
            yield Contained(name, Placed(partial(iter, [*rows, *problems])), link=link)


def _in_order_of_time(spans: Sequence[TracedSpan], traces: Mapping[str, Trace]) -> list[TracedSpan]:
    """Return spans in the order of their ``place``. The span of an agent comes after all spans
    below it, even after a span with a later place.
    """
    places = {(span.trace, span.id): span.place for span in spans}
    depths = dict[tuple[str, str], int]()
    for span in spans:
        _, *ancestors = traces[span.trace].upwards(span.id)
        depths[span.trace, span.id] = len(ancestors)
        for name in ancestors:
            place = places.get((span.trace, name))
            if place is not None:
                places[span.trace, name] = max(place, span.place)

    def rank(span: TracedSpan) -> tuple[int, int]:
        key = span.trace, span.id
        if span.is_agent:
            return (places[key], -depths[key])
        return (span.place, -depths[key])

    return sorted(spans, key=rank)


def _requests(path: Path) -> Iterator[Located]:
    """Yield a request with a single span for each span of a file. The file itself is one request,
    or has a request on each line.
    """
    rows: Iterable[Located] = JsonLines(path)
    if not on_lines(path, 1):
        with suppress(UnreadableJson):
            rows = [document_in(path.read_bytes(), str(path))._replace(text=b"")]
    for located in rows:
        line = located.text.strip()
        located = located._replace(text=b"")
        exported = [located._replace(value=request) for request in requests_in(located.value)]
        if exported:
            yield from exported
            continue
        request = dict_or_empty(located.value)
        if located.problem or not _SIGNALS & request.keys():
            yield located
        for record, problem in _single({_LEVELS[0]: request.get(_LEVELS[0], [])}, *_LEVELS):
            text = line if record == request else b""
            yield located._replace(value=record, problem=problem, text=text)


def _single(holder: Fields, key: str, *below: str) -> Iterator[tuple[Any, str | None]]:
    """For each span in an object, yield a copy of the object that has no other span. For a value
    that is not a span, yield None and the problem.
    """
    array = holder.get(key, [])
    odd_items = [array]
    if type(array) is list:
        odd_items = [item for item in array if type(item) is not dict]
    yield from ((None, str(refuse("a span", item))) for item in odd_items)
    for item in dicts_in(array):
        for single, problem in _single(item, *below) if below else [(item, None)]:
            yield {**holder, key: [single]}, problem


class Trace:
    """What the spans of a trace say about each other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._above: dict[str, str] = {}
        self._agents: set[str] = set()
        self._calls: dict[str, str] = {}
        """Maps the id of a tool's span to the id of the call."""
        self._conversations: dict[str, dict[str | None, str]] = {key: {} for key in _CONVERSATIONS}
        """For each attribute in ``_CONVERSATIONS``: a map from the id of a span to the conversation
        that the attribute names. The key None has the conversation of the trace, or an empty text
        if the spans of the trace name several conversations.
        """
        self._reports: list[tuple[str, int, Collection[str]]] = []
        """The ids of spans that tell something, when they began, and what they tell."""

    def add(self, span: TracedSpan, tells: Collection[str] = ()) -> None:
        """Add a span, and what it tells: ``messages`` or ``usage``."""
        self._above[span.id] = span.parent
        if span.is_agent:
            self._agents.add(span.id)
        call = text_or_empty(span.attributes, "gen_ai.tool.call.id")
        if call:
            self._calls[span.id] = call
        if tells:
            self._reports.append((span.id, span.began, tells))
        for key, names in self._conversations.items():
            if name := text_or_empty(span.attributes.get(key)):
                names[span.id] = name
                names[None] = name if names.get(None, name) == name else ""

    def upwards(self, span: str) -> list[str]:
        """Return the id of a span, the id of its parent, and so on, up to an unknown span."""
        path = {span: None}
        while (span := self._above.get(span, span)) not in path:
            path[span] = None
        return [*path]

    def history_of(self, span: str) -> str:
        """Return the conversation of a span. If an agent called another agent in the conversation,
        the spans of the called agent are a separate history, whose name ends with the id of the
        called agent's span.
        """
        path = self.upwards(span)
        agents = [index for index, span_id in enumerate(path) if span_id in self._agents]
        name = self._conversation_of(path)
        if len(agents) < 2:
            return name
        innermost = agents[0]
        outermost = agents[-1]
        is_same = self._conversation_of(path[outermost:]) == name
        return f"{name}/{path[innermost]}" if is_same else name

    def link_of(self, span: str, histories: Container[str]) -> dict[str, str]:
        """Return the attributes that name the history of the calling agent and its call, if another
        agent called the agent of a span. They are empty for other spans. An agent without a history
        in ``histories``, such as a workflow, called nobody: its own caller is the caller.
        """
        own_history = self.history_of(span)
        call = ""
        for above in self.upwards(span)[1:]:
            if above not in self._agents:
                call = self._calls.get(above, call)
            elif (caller := self.history_of(above)) == own_history:
                call = ""
            elif caller in histories:
                return {"parent": caller, **({"parent_call": call} if call else {})}
        return {}

    def _conversation_of(self, path: list[str]) -> str:
        """Return the conversation of a span, or of the nearest span above it with a conversation.
        If no span names a conversation, return the only conversation of the trace.
        """
        for names in self._conversations.values():
            for span_id in (*path, None):
                if name := names.get(span_id):
                    return name
        return self._name

    def reports_below(self, agent: TracedSpan) -> set[str]:
        """Return what the spans below an agent's span report: ``messages``, ``usage``, both or
        nothing. A span whose parent is unknown counts as below each agent that was running when the
        span began.
        """
        below = set[str]()
        for span, began, tells in self._reports:
            *path, top = self.upwards(span)
            is_lost = bool(top) and top not in self._above and span not in self._agents
            if agent.id in (*path, top)[1:] or (is_lost and agent.began <= began <= agent.ended):
                below.update(tells)
        return below


def _nanoseconds(value: Any) -> int:
    """Return a time of OTLP in nanoseconds, or 0 for a value that is not a time. OTLP writes a
    number as a text.
    """
    text = str(value) if type(value) in (int, str) else ""
    return int(text) if text.isdecimal() and len(text) < 20 else 0
