"""Find the spans of a history, and the messages in a span."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from foldlog._formats.files.found_sources import NotAHistory
from foldlog._formats.files.readers import JsonLines, Placed, on_lines, record_in
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.json_text import parsed
from foldlog._formats.otlp_genai.exports import is_export, requests_in
from foldlog._formats.record import Located, dict_or_empty, dicts_in, has, refused, text_or_empty

NAME = "otlp-genai"

_KEYS = (
    *(
        ("gen_ai.system_instructions", "system"),
        ("gen_ai.input.messages", "input"),
        ("gen_ai.prompt", "input"),
    ),
    *(("gen_ai.output.messages", "output"), ("gen_ai.completion", "output")),
)
"""The attributes of spans and of their events with JSON: parts, or messages."""
_OF_MODELS = ("", "chat", "text_completion", "generate_content", "invoke_agent")
"""Operations whose events are messages of a model. Those of a tool are its arguments and its
result.
"""
_INDEXED = {
    **{"gen_ai.prompt": "input", "gen_ai.completion": "output"},  # OpenLLMetry
    **{"llm.input_messages": "input", "llm.output_messages": "output"},  # OpenInference
}
_AROUND = frozenset(("message", "message_content", "tool_call", "function"))
"""What OpenInference puts before the names of fields."""
_FUNCTION = {"name": "function_call_name", "arguments": "function_call_arguments_json"}
_CONVERSATIONS = ("gen_ai.conversation.id", "session.id")
_SILENT = (
    "holds spans, and none has messages of a model; let the instrumentation record them, with "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
)
_SENT = ("input", "output")
_has_parts = has(parts=list)
_LEVELS = ("resourceSpans", "scopeSpans", "spans")
_SIGNALS = {"resourceSpans", "resourceMetrics", "resourceLogs"}
"""The keys of what a collector writes, of which one is in each request."""


def span_of(record: Any) -> dict[str, Any] | None:
    """Return the span of a record, which is a request with one span."""
    match record:
        case {"resourceSpans": [{"scopeSpans": [{"spans": [dict(span)]}]}]}:
            return span
    return None


class TracedSpan:
    """The span of a record.

    ``began`` and ``ended`` are in nanoseconds. ``place``: the time at which it comes, which is when
    it began, and for an agent's when it ended, after those below it. ``is_ours``: whether it has
    attributes of models. ``text``: the line that is the record, if there is one.
    """

    def __init__(self, record: Any, text: bytes = b"") -> None:
        self.record = record
        self.text = text
        self.told = span_of(record) or {}
        ids = ("traceId", "spanId", "parentSpanId")
        self.trace, self.id, self.parent = (text_or_empty(self.told.get(key)) for key in ids)
        self.began, self.ended = (
            _nanoseconds(self.told.get(f"{key}TimeUnixNano")) for key in ("start", "end")
        )
        self.attributes = _pairs(self.told.get("attributes"))
        self._does = text_or_empty(self.attributes.get("gen_ai.operation.name"))
        self.is_agent = self._does == "invoke_agent"
        self.place = max(self.began, self.ended if self.is_agent else 0)
        self.is_ours = any(key.startswith(("gen_ai.", "llm.")) for key in self.attributes)

    def messages(self) -> dict[str, list[Any]]:
        """Return its messages as the conventions have them: its instructions, its input and its
        output.
        """
        events = [
            (each.get("name"), _pairs(each.get("attributes")))
            for each in dicts_in(self.told.get("events"))
        ]
        found: dict[str, list[Any]] = {}
        for each in (self.attributes, *(attributes for _, attributes in events)):
            for key, name in _KEYS:
                found[name] = found.get(name) or dicts_in(parsed(each.get(key)))
        for prefix, name in _INDEXED.items():
            found[name] = found[name] or _indexed(self.attributes, f"{prefix}.")
        if self._does in _OF_MODELS and not found["input"] and not found["output"]:
            for of, attributes in events:
                found["output" if of == "gen_ai.choice" else "input"] += _in_event(
                    text_or_empty(of), attributes
                )
        told = {
            name: [each if _has_parts(each) else message_of(dict(each)) for each in found[name]]
            for name in _SENT
        }
        told["system"] = [{"role": "system", "parts": found["system"]}] if found["system"] else []
        return {name: messages for name, messages in told.items() if messages}


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
    return {
        each["key"]: _value(each.get("value"))
        for each in dicts_in(pairs)
        if type(each.get("key")) is str
    }


def _indexed(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Return the messages of attributes such as ``gen_ai.prompt.0.content``."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        number, _, rest = key.removeprefix(prefix).partition(".")
        if key.startswith(prefix):
            held = found.setdefault(number, {})
            *names, last = [
                name for name, _ in groupby(rest.split(".")) if name not in _AROUND
            ] or [rest]
            for name in names:
                if type(held.get(name, {})) is dict:
                    held = held.setdefault(name, {})
                else:
                    held = held
            held[last] = value
    return _in_order(found)


def _in_event(name: str, attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the message that an event is, by the conventions of before 2026."""
    body = dict_or_empty(parsed(attributes.get("gen_ai.event.content"))) or attributes
    if name == "gen_ai.choice":
        reply = body.get("message")
        return [{"role": "assistant", **(dict_or_empty(parsed(reply)) or {"content": reply})}]
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    told = {key: body[key] for key in ("role", "content", "tool_calls", "id") if key in body}
    return [{"role": role} | told] if name == f"gen_ai.{role}.message" else []


def message_of(told: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the conventions have it, with what else it has of its own."""
    text, given, calls = (told.pop(key, None) for key in ("content", "contents", "tool_calls"))
    parts = [*_parts(text), *_in_order(given)]
    if told.get("role") == "tool" and not any(
        each.get("type") == "tool_call_response" for each in parts
    ):
        call_id = told.get("tool_call_id", told.get("id"))
        answer = text if type(text) is str and not given else parts
        parts = [{"type": "tool_call_response", "id": call_id, "response": answer}]
    function = dict_or_empty(told.pop("function_call", None))
    function |= {key: told.pop(name) for key, name in _FUNCTION.items() if name in told}
    called = [*_in_order(parsed(calls)), *([function] if function else ())]
    return {**told, "parts": [*parts, *map(_call, called)]}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    flat = call | dict_or_empty(call.get("function")) | {"type": "tool_call"}
    return {key: value for key, value in flat.items() if key != "function"}


def _parts(content: Any) -> list[dict[str, Any]]:
    """Return content as parts: a text, parts of a chat, or Bedrock's blocks, which may be in
    JSON.
    """
    if type(content) is str and content.startswith("[{"):
        held = parsed(content)
    else:
        held = content
    if type(held) is not list:
        return [{"type": "text", "content": content}] if content else []
    return [_part(each) for each in dicts_in(held)]


def _part(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"toolUse": {"toolUseId": call_id, "name": name, **told}}:
            return {
                "type": "tool_call",
                "id": call_id,
                "name": name,
                "arguments": told.get("input"),
            }
        case {"toolResult": {"toolUseId": call_id, "content": content}}:
            return {"type": "tool_call_response", "id": call_id, "response": _parts(content)}
    if "text" in block and "type" not in block:
        return {"type": "text", "content": block["text"]}
    return block


def _in_order(numbered: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or those under numbers in their order."""
    if type(numbered) is list:
        return dicts_in(numbered)
    held = {
        int(key): value
        for key, value in dict_or_empty(numbered).items()
        if key.isdecimal() and len(key) < 10
    }
    return dicts_in([held[number] for number in sorted(held)])


class SpanFiles(FileReader):
    """Files of a collector."""

    def holds(self, path: Path, begin: bytes) -> bool:
        return (begin.lstrip()[:1] == b"{" and b'"resourceSpans"' in begin[:200]) or is_export(
            begin
        )

    def histories(self, path: Path) -> Iterator[Contained]:
        """Yield the histories by their names. A problem may hide spans of each. Memory: the spans
        of models, tools and agents.
        """
        found: list[TracedSpan] = []
        traces: dict[str, Trace] = {}
        problems: list[Located] = []
        for row in _requests(path):
            span = TracedSpan(row.value, row.text)
            if not span.told:
                problems.append(row)
                continue
            traces.setdefault(span.trace, Trace(span.trace)).add(span)
            found += [span] if span.is_ours else ()
        histories: dict[str, list[TracedSpan]] = {}
        for each in found:
            histories.setdefault(traces[each.trace].history_of(each.id), []).append(each)
        told = {
            name: spans
            for name, spans in histories.items()
            if any(each.messages() for each in spans)
        }
        if not told:
            problem = next(
                (f"{each.place}: {each.problem}" for each in problems if each.problem), _SILENT
            )
            raise NotAHistory(path, problem)
        for name, spans in told.items():
            ordered = _in_order_of_time(spans, traces)
            rows = [
                Located(0, 0, each.record, None, f"{path}, span {each.id}", each.text)
                for each in ordered
            ]
            # whose they are is not known
            yield Contained(name, Placed(0, partial(iter, [*rows, *problems])))


def _in_order_of_time(spans: Sequence[TracedSpan], traces: Mapping[str, Trace]) -> list[TracedSpan]:
    """Return spans in the order of their places, an agent's after all that are below it, also if
    these came later.
    """
    places = {(span.trace, span.id): span.place for span in spans}
    depths = dict[tuple[str, str], int]()
    for span in spans:
        _, *above = traces[span.trace].upwards(span.id)
        depths[span.trace, span.id] = len(above)
        for name in above:
            known = places.get((span.trace, name))
            if known is not None:
                places[span.trace, name] = max(known, span.place)

    def rank(span: TracedSpan) -> tuple[int, int]:
        named = span.trace, span.id
        if span.is_agent:
            return (places[named], -depths[named])
        return (span.place, -depths[named])

    return sorted(spans, key=rank)


def _requests(path: Path) -> Iterator[Located]:
    """Yield a request for each span of a file, which is a request or has one on each line."""
    whole = None if on_lines(path, 1) else record_in(path)
    for located in JsonLines(path) if whole is None or whole.problem else [whole._replace(line=1)]:
        line = located.text.strip()
        located = located._replace(text=b"")
        if exported := [located._replace(value=each) for each in requests_in(located.value)]:
            yield from exported
            continue
        request = dict_or_empty(located.value)
        if located.problem or not _SIGNALS & request.keys():
            yield located
        for record, problem in _single({_LEVELS[0]: request.get(_LEVELS[0], [])}, *_LEVELS):
            text = line if record == request else b""
            yield located._replace(value=record, problem=problem, text=text)


def _single(holder: dict[str, Any], key: str, *below: str) -> Iterator[tuple[Any, str | None]]:
    """Yield an object that holds spans for each of them, with that one alone, or the problem in its
    place.
    """
    array = holder.get(key, [])
    if type(array) is list:
        odd = [each for each in array if type(each) is not dict]
    else:
        odd = [array]
    yield from ((None, str(refused("a span", each))) for each in odd)
    for each in dicts_in(array):
        for one, problem in _single(each, *below) if below else [(each, None)]:
            yield {**holder, key: [one]}, problem


class Trace:
    """The spans of a trace."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._above: dict[str, str] = {}
        self._agents: set[str] = set()
        self._conversations: dict[str, dict[str | None, str]] = {key: {} for key in _CONVERSATIONS}
        """By the attributes that name them: of each span; for None the only one, "" for several."""
        self._told: list[tuple[str, int, Collection[str]]] = []
        """What spans tell, and when they began."""

    def add(self, span: TracedSpan, tells: Collection[str] = ()) -> None:
        self._above[span.id] = span.parent
        self._agents |= {span.id} if span.is_agent else set()
        self._told += [(span.id, span.began, tells)] if tells else ()
        for key, names in self._conversations.items():
            if name := text_or_empty(span.attributes.get(key)):
                names[span.id] = name
                names[None] = name if names.get(None, name) == name else ""

    def upwards(self, span: str) -> list[str]:
        """Return a span and those above it, up to the first that is not known."""
        path = [span]
        while (span := self._above.get(span, span)) not in path:
            path.append(span)
        return path

    def history_of(self, span: str) -> str:
        """Return the conversation of a span, and the agent of which it is a part, if another one
        called that there.
        """
        path = self.upwards(span)
        agents = [place for place, each in enumerate(path) if each in self._agents]
        name, *of_outermost = (
            self._conversation_of(path[place:]) for place in (0, *agents[1:][-1:])
        )
        return f"{name}/{path[agents[0]]}" if of_outermost == [name] else name

    def _conversation_of(self, path: list[str]) -> str:
        """Return the conversation that a span or the nearest one above it names, else the only one
        of the trace.
        """
        found = (
            names.get(each) for names in self._conversations.values() for each in (*path, None)
        )
        return next(filter(None, found), self._name)

    def told_below(self, agent: TracedSpan) -> set[str]:
        """Return what the spans below an agent's tell. A span below one that is not part of the
        history is below the agents that worked when it began.
        """
        below = set[str]()
        for span, began, tells in self._told:
            *path, top = self.upwards(span)
            is_lost = bool(top) and top not in self._above and span not in self._agents
            if agent.id in (*path, top)[1:] or (is_lost and agent.began <= began <= agent.ended):
                below.update(tells)
        return below


def _nanoseconds(value: Any) -> int:
    """Return a time of OTLP, which is a number in a text; 0 for what is not such a number."""
    text = str(value) if type(value) in (int, str) else ""
    return int(text) if text.isdecimal() and len(text) < 20 else 0
