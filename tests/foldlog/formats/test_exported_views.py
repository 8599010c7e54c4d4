"""What foldlog recorded is exported and imported again: a model is sent the same, but for what the note names."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog.formats import FORMATS, decode
from foldlog.projections import View, contains, intervals_kept
from foldlog.projections.messages import DIALECTS, Dialect
from tests.how_many import examples

Step = Callable[[foldlog.History, int], Any]

IN_WORDS = ("aider", "chatgpt")
"""Formats that tell of calls in their own words, or of each alone."""
OTHER_ORDER = ("openhands-v0", "codex", "openai-responses")
"""A summary is elsewhere among what is kept, or calls and results are, whose reply no item tells."""
PLACES = ("place of a summary among what is kept", "place of an image")
ROLE = "role of a system prompt"
SERVED = "call of a server's tool"
OTHERWISE = (
    SERVED,
    "form of a call",
    "form of a call of a server's tool",
    "end of a reply",
    "lack of a result",
    "argument",
    "tool name",
    "text",
)
"""Notes after which other messages are sent."""
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
UNSIGNED = {"type": "thinking", "thinking": "hm"}
REDACTED = {"type": "redacted_thinking", "data": "d4ta"}
ITEM = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
THINKING = ((SIGNED,), (SIGNED, REDACTED), (UNSIGNED,), (ITEM,))
TOOLS = ("run", "finish", "think", "message", "condensation", "delegate", "null", "recall", "system")
SENT_AS: dict[str, Dialect] = {
    "openai-chat": "openai",
    "anthropic-messages": "anthropic",
    "openai-responses": "responses",
}
_KEEP_PARTS = "openai-chat swe-agent langchain inspect-eval claude-ai otlp-genai"
_KEEP_FILES = f"{_KEEP_PARTS} openai-responses codex google-adk"


def _of(names: str) -> set[str]:
    return {*names.split()}


def _all_but(names: str) -> set[str]:
    return {*FORMATS} - _of(names)


NOTED = {
    SERVED: _all_but(f"{_KEEP_PARTS} openhands-v0 openhands-v1 pi anthropic-messages claude-code") | {"openai-chat"},
    "form of a call of a server's tool": {"pi", "claude-code"},
    "image": _all_but(f"{_KEEP_FILES} pi"),
    "file": _all_but(f"{_KEEP_FILES} strands"),
    "value of filename": _all_but(f"{_KEEP_PARTS} openhands-v0 openhands-v1 openai-responses codex opencode pi atif")
    | {"claude-ai"},
    PLACES[0]: {"claude-code"},
    PLACES[1]: _of("openhands-v0 openai-responses anthropic-messages openai-chat copilot-cli google-adk"),
    "place of words among calls": _all_but(
        "openhands-v0 openhands-v1 pi claude-code codex pydantic-ai google-adk agent-framework strands aider chatgpt"
    ),
    ROLE: _of("pi atif anthropic-messages opencode gemini-cli google-adk strands claude-ai"),
    "form of a call": {*IN_WORDS},
    "form of a custom tool's call": _all_but("openai-responses codex aider chatgpt"),
    "error mark": _of("openhands-v0 openai-responses atif inspect-eval openai-chat swe-agent otlp-genai"),
    "thinking block": _all_but("langchain openai-chat swe-agent pydantic-ai google-adk strands"),
    "value of id": _all_but(f"{_KEEP_PARTS} openai-responses codex") | {"inspect-eval"},
    "value of signature": {"openai-responses", "atif"},
    "text": {"aider"},
    "condensation": _all_but("openhands-v0 openhands-v1 codex"),
    "request": _all_but("openhands-v0 openhands-v1 codex claude-code"),
    "change of attributes": {*FORMATS},
    "count of tokens and cost": {*FORMATS},
}
"""What notes name, and of which formats."""
WORD = re.compile(r"word\d{4}x\w*")
NAMES = ("state", "message", "user", "finish", "compacted")


def _text(n: int) -> str:
    """A text that is found alone."""
    return f"word{n:04}x"


def _content(text: str, kinds: str) -> Any:
    """A text, or parts: texts, images and files, each by a letter."""
    urls = {"i": "image/png", "l": "https://example.com/", "f": "application/pdf"}
    parts: list[dict[str, Any]] = []
    for place, kind in enumerate(kinds):
        part = f"{text}{place}"
        data = f"data:{urls.get(kind)};base64,{b64encode(part.encode() * 3).decode()}"
        made = {
            "t": {"type": "text", "text": part},
            "f": {"type": "file", "file": {"filename": f"{part}.pdf", "file_data": data}},
        }
        url = f"{urls[kind]}{part}.png" if kind == "l" else data
        parts.append(made.get(kind) or {"type": "image_url", "image_url": {"url": url}})
    return tuple(parts) or text


def _say(source: Any, kinds: str) -> Step:
    def say(history: foldlog.History, n: int) -> None:
        content = _content(_text(n), kinds)
        history.append(Message(source=source, content=content) if source else SystemMessage(content=content))

    return say


def _call(
    tools: list[str],
    thought: str,
    failed: bool,
    ids: bool | None,
    kinds: str = "",
    custom: bool = False,
    thinking: tuple[dict[str, Any], ...] = (SIGNED,),
) -> Step:
    """The calls of one reply with their results. Without ``ids`` the results name the events; None: ids are empty. The
    model says and thinks something before those of ``thought``.
    """

    def call(history: foldlog.History, n: int) -> None:
        calls = [
            Action(
                tool=tool,
                call_id=f"call {n} {place}" if ids else "" if ids is None else None,
                response_id=f"reply {n}",
                arguments={"input": f"{_text(n)}{place}"}
                if custom
                else {("message", "thought", "hidden")[place % 3]: f"{_text(n)}{place}", "n": n, "hidden": True},
                thought=f"{_text(n)}t{place}" if str(place) in thought else "",
                thinking=thinking if str(place) in thought else (),
                meta={"custom_tool": True} if custom else {},
            )
            for place, tool in enumerate(tools)
        ]
        for place, made in enumerate(history.append(calls)):
            history.append(
                Observation(
                    tool=made.event.tool,
                    call_id=made.event.call_id,
                    cause=None if ids is None else made.event.id,
                    content=_content(f"{_text(n)}r{place}", kinds),
                    is_error=failed,
                )
            )

    return call


def _reply(history: foldlog.History, n: int) -> None:
    """A reply as a client has it, and its result."""
    function = {"name": "finish", "arguments": json.dumps({"message": f"{_text(n)}m"})}
    call = {"id": f"call {n}", "type": "function", "function": function}
    said = {"role": "assistant", "content": f"{_text(n)}s", "tool_calls": [call]}
    history.append_reply(said | {"usage": {"prompt_tokens": 12, "completion_tokens": 7}})
    history.append_tool_result(f"call {n}", f"{_text(n)}r")


def _searched(history: foldlog.History, n: int) -> None:
    """A reply with a call that the server answered."""
    call, result = {"id": f"s{n}", "name": "web", "input": {"query": f"{_text(n)}q"}}, {"title": f"{_text(n)}f"}
    searched = [
        {"type": "text", "text": f"{_text(n)}s"},
        {"type": "server_tool_use", **call},
        {"type": "web_result", "tool_use_id": f"s{n}", "content": [result]},
        {"type": "tool_use", **call, "id": f"u{n}"},
    ]
    history.append_reply({"role": "assistant", "content": searched, "stop_reason": "tool_use"})
    history.append_tool_result(f"u{n}", f"{_text(n)}r")


def _note(name: str) -> Step:
    data = {"id": "x", "source": "y", "type": "user", "action": "run", "args": {"command": "z"}}
    return lambda history, n: history.append(Annotation(name=name, data=data))


def _condense(first: int, size: int, summarized: bool, as_range: bool) -> Step:
    """Forget some of the View, summaries too, as condensers do."""

    def condense(history: foldlog.History, n: int) -> None:
        cuts = history.view().cut_points[first : first + size + 1]  # no reply is cut in two
        gone = [event.id for event in history.view()[cuts[0] : cuts[-1]]] if cuts else []
        told: dict[str, Any] = {"summary": _text(n), "summary_offset": cuts[0]} if summarized and cuts else {}
        if as_range and gone and min(gone) >= 0:
            ends = {"forgotten_events_start_id": min(gone), "forgotten_events_end_id": max(gone)}
            history.append(CondensationAction(**ends, **told))
        elif gone:
            history.append(CondensationAction(forgotten_event_ids=tuple(gone), **told))

    return condense


def _retract(back: int) -> Step:
    """Take back what came since a message, or the retraction before."""

    def retract(history: foldlog.History, n: int) -> None:
        ids = [each.id for each in history.events() if isinstance(each, Message | Retraction)]
        if len(ids) >= back:
            history.retract(ids[-back])

    return retract


CALLS = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
KINDS = st.sampled_from(["", "", "ti", "it", "tit", "tt", "tf", "tl", "ii"])
SAY = st.builds(_say, st.sampled_from(["user", "agent", "environment"]), KINDS)
IDS = st.sampled_from([True, False, None])
THOUGHTS = st.sampled_from(["", "0", "1", "01"])
CALL = st.builds(_call, CALLS, THOUGHTS, st.booleans(), IDS, KINDS, st.booleans(), st.sampled_from(THINKING))
CONDENSE = st.builds(
    _condense, st.integers(0, 3), st.integers(1, 4), st.sampled_from([True, True, False]), st.booleans()
)
OTHER = st.one_of(
    st.builds(_note, st.sampled_from(NAMES)),
    st.builds(_retract, st.integers(1, 6)),
    st.just(lambda history, n: history.set_attributes(title=_text(n))),
    st.just(lambda history, n: history.append(Annotation(name="told", data={"text": _text(n)}, shown=True))),
    st.just(_say("", "")),
    st.just(lambda history, n: history.request_condensation("for room")),
)
HELLO = _say("user", "")
CONDENSED_TWICE = [HELLO, HELLO, HELLO, _condense(1, 1, True, False), HELLO, _condense(1, 2, True, False)]
EMPTY_IDS = [HELLO, _call(["run", "think"], thought="", failed=False, ids=None)]
FINISHED = [HELLO, _note("state"), _call(["finish"], thought="", failed=False, ids=True)]
BEGUN_AGAIN = [HELLO, _retract(1), HELLO, HELLO, _condense(0, 1, True, False), _condense(1, 1, True, True)]
AROUND_ATTRIBUTES = [HELLO, lambda history, n: history.set_attributes(a=1), HELLO, HELLO, _condense(0, 2, True, True)]
IMAGES = [_say("agent", "it"), _call(["run"], "", failed=False, ids=True, kinds="it")]
STEPS = st.lists(
    st.one_of(SAY, CALL, CONDENSE, SAY, CONDENSE, OTHER, st.just(_reply), st.just(_searched)), min_size=1, max_size=14
)


def told(view: View) -> list[tuple[str, ...]]:
    """What a model is told, in order: each text by who says it, and the calls. Words that a format puts around a text
    do not count.
    """
    lines: list[tuple[str, ...]] = []
    for message in view.to_messages():
        role = message["role"]
        content = message.get("content") or ()
        for part in [{"text": content}] if isinstance(content, str) else content:
            lines += [(role, text) for text in WORD.findall(part.get("text", "")) + ["image"] * ("image_url" in part)]
        for call in message.get("tool_calls", ()):
            lines.append((role, call["function"]["name"], json.dumps(json.loads(call["function"]["arguments"]))))
    return lines


def sent(events: Iterable[Event], left_out: dict[str, int]) -> dict[str, Any]:
    """The messages of each dialect for a model, without what a note names."""
    view = View.from_events(_without(event, left_out) for event in events)
    is_placed = not left_out.get(PLACES[1])
    return {dialect: _plain(view.to_messages(dialect), {}, is_placed) for dialect in DIALECTS}


def _alone(view: View) -> list[Event]:
    """The events of a View as a history of their own."""
    ids = {event.id: number for number, event in enumerate(view)}
    return [
        Message(id=ids[event.id], source="environment", content=event.content)
        if isinstance(event, CondensationSummary)
        else replace(event, id=ids[event.id], cause=ids.get(-1 if event.cause is None else event.cause))
        for event in view
    ]


def _as_sent(view: View, format: str) -> list[dict[str, Any]]:
    """The messages of a View in the dialect of a format, of which the first ones hold the system prompt."""
    prompt, messages = view.system_prompt, view.to_messages(SENT_AS[format])
    if format != "anthropic-messages" or not prompt:
        return messages
    said = messages.pop(0)["content"] if messages else []
    parts = [{"type": "text", "text": each} for each in (prompt, said) if isinstance(each, str)]
    return [{"role": "user", "content": parts + [each for each in said if isinstance(each, dict)]}, *messages]


def _without(event: Event, left_out: dict[str, int]) -> Event:
    lost = {kind for kind, noun in {"image_url": "image", "file": "file"}.items() if left_out.get(noun)}
    if isinstance(event, SystemMessage) and left_out.get(ROLE):
        event = Message(id=event.id, source="user", content=event.content)
    if isinstance(event, Message | Observation) and isinstance(event.content, tuple):
        parts = [part for part in event.content if part["type"] not in lost]
        if left_out.get(PLACES[1]):
            parts.sort(key=lambda part: "text" not in part)
        if left_out.get("value of filename"):
            parts = [{**part, "file": {**part["file"], "filename": ""}} if "file" in part else part for part in parts]
        event = replace(event, content=tuple(parts))
    if isinstance(event, Observation) and left_out.get("error mark"):
        event = replace(event, is_error=False)
    if any(
        left_out.get(noun) for noun in ("thinking block", "signature of thinking", "value of signature", "value of id")
    ):
        if isinstance(event, Action | Message):
            event = replace(event, thinking=())
        elif isinstance(event, Annotation) and event.origin:
            event = replace(event, shown=False)
    if isinstance(event, Action) and left_out.get("form of a custom tool's call"):
        event = replace(event, meta={})
    return event


def _plain(value: Any, ids: dict[str, str], is_placed: bool) -> Any:
    """A message with its texts together, first unless ``is_placed``, ids by their order, and arguments as values."""
    if isinstance(value, dict):
        plain = {key: _plain(each, ids, is_placed) for key, each in value.items() if key != "cache_control"}
        for key in {"tool_call_id", "tool_use_id", "call_id", "id"} & plain.keys():
            plain[key] = ids.setdefault(plain[key], str(len(ids)))
        return plain | ({"arguments": json.loads(plain["arguments"])} if "arguments" in plain else {})
    if isinstance(value, str) and not is_placed:  # the words that stand for an image of the agent have no place either
        return "\n\n".join(sorted(value.split("\n\n")))
    if not isinstance(value, list):
        return value
    plain = list[Any]()
    if not is_placed and all("type" in each and "call_id" not in each for each in value):
        value = sorted(value, key=lambda part: "text" not in part)
    for each in (_plain(each, ids, is_placed) for each in value):
        is_text = [set(part) == {"type", "text"} for part in (*plain[-1:], each)]
        if is_text == [True, True]:
            each = {**each, "text": _plain(f"{plain.pop()['text']}\n\n{each['text']}", ids, is_placed)}
        plain.append(each)
    return plain[0]["text"] if len(plain) == 1 and set(plain[0]) == {"type", "text"} else plain


@pytest.mark.parametrize("format", FORMATS)
@examples(100)
@example(steps=CONDENSED_TWICE, prompted=False, forked=True, of_view=False)
@example(steps=[HELLO, HELLO, HELLO, _condense(1, 1, True, False)], prompted=True, forked=False, of_view=False)
@example(steps=EMPTY_IDS, prompted=False, forked=False, of_view=False)
@example(steps=FINISHED, prompted=True, forked=False, of_view=False)
@example(steps=BEGUN_AGAIN, prompted=False, forked=False, of_view=False)
@example(steps=AROUND_ATTRIBUTES, prompted=False, forked=False, of_view=False)
@example(steps=[HELLO, _say("", ""), HELLO, _condense(0, 1, True, False)], prompted=False, forked=False, of_view=False)
@example(steps=[HELLO, _searched, _reply], prompted=True, forked=False, of_view=True)
@example(steps=IMAGES, prompted=False, forked=False, of_view=False)
@given(steps=STEPS, prompted=st.booleans(), forked=st.booleans(), of_view=st.booleans())
def test_what_foldlog_recorded_is_the_same_after_an_export(
    format: str, steps: list[Step], prompted: bool, forked: bool, of_view: bool
) -> None:
    notes: list[str] = []
    with foldlog.open("memory:") as histories:
        history = histories["a"]
        if prompted:
            history.append(SystemMessage(content=_text(9999)))
        for n, step in enumerate(steps):
            if forked and n == len(steps) // 2 and len(history):
                history = history.fork(id="b")
            step(history, n)
        records = json.loads(json.dumps(list(history.export(format, view=of_view, notes=notes.append))))
        view = history.view()
        events = _alone(view) if of_view else list(history.events())
    if format == "openhands-v1":
        assert None not in [each for record in records for each in record.get("forgotten_event_ids", ())]
    kept = intervals_kept(events, len(events))
    standing = [each for each in events if contains(kept, each.id)]
    forgets = [each for each in standing if isinstance(each, CondensationAction)]
    said = [each for each in standing if not isinstance(each, CondensationAction | Retraction)]
    counts = ", ".join(note.split(";")[0] for note in notes if "taken back" not in note)
    found = re.findall(r"(\d+) ([a-z ]+?)s?( of [a-z' ]+)?(?= \(|,|$)", counts)
    left_out = {noun + of: int(n) for n, noun, of in found}
    assert [noun for noun in left_out if format not in NOTED[noun]] == []
    assert of_view or format != "openai-chat" or "count of tokens and cost" not in left_out
    alone = [each if each in said else Annotation(id=each.id, name="gone") for each in events]
    uncondensed = View.from_events(alone)
    if left_out.get("condensation"):
        view = uncondensed
    summaries = [] if left_out.get("condensation") else [each.summary for each in forgets if each.summary]
    with foldlog.open("memory:") as histories:
        if records:
            histories.store.ingest("back", decode(records, format))
        assert format in IN_WORDS or not left_out.get("form of a call")
        if of_view and format in SENT_AS:
            after, before = (
                _plain(each, {}, True)
                for each in (histories["back"].view().to_messages(SENT_AS[format]), _as_sent(view, format))
            )
            order = partial(sorted, key=repr) if left_out.get("place of words among calls") else list
            assert order(after) == order(before)
            return
        if not forgets and not left_out.keys() & {*OTHERWISE}:
            by_dialect = [sent(each, left_out) for each in (alone, histories["back"].events() if records else ())]
            for each in by_dialect if left_out.get("place of words among calls") else ():
                del each["responses"]
            assert by_dialect[1] == by_dialect[0]
        back, expected = told(histories["back"].view()), told(view)
        if left_out.get(ROLE):
            back, expected = (
                [(line[0].replace("system", "user"), *line[1:]) for line in each] for each in (back, expected)
            )
        if format == "openhands-v0":  # shows the newest summary alone, and no condensation forgets it
            older = {*summaries[:-1], *(summaries if forgets and not forgets[-1].summary else ())}
            back, expected = ([line for line in lines if line[-1] not in older] for lines in (back, expected))
        if left_out.get(SERVED):
            back, expected = (
                [line for line in lines if line[-1][-2:] not in ("xq", "xf")] for lines in (back, expected)
            )
        if left_out.get("image"):
            back, expected = ([line for line in lines if line[-1] != "image"] for lines in (back, expected))
        if format not in IN_WORDS and left_out.get("condensation") in (None, len(forgets)):
            is_moved = format in OTHER_ORDER or left_out.keys() & {*PLACES}
            order = sorted if is_moved else list
            assert order(back) == order(expected)
        texts = {*WORD.findall(repr(told(uncondensed))), *summaries}
        assert sum(not histories.search(text) for text in texts) <= left_out.get("text", 0) + 2 * left_out.get(
            SERVED, 0
        )


@pytest.mark.parametrize("format", FORMATS)
def test_an_exported_view_is_what_a_model_is_sent_with_failed_results_marked(format: str) -> None:
    notes: list[str] = []
    with foldlog.open("memory:") as histories:
        history = histories["a"]
        history.append(SystemMessage(content="prompt"))
        _say("user", "tf")(history, 0)
        _call(["run"], thought="", failed=True, ids=True, kinds="ti", custom=True)(history, 1)
        unsigned = ({"type": "thinking", "thinking": "unsigned"},)
        spent = {"usage": {"prompt_tokens": 10}}
        history.append(Message(source="agent", content="so", thinking=unsigned, meta=spent))
        _searched(history, 2)
        records = json.loads(json.dumps(list(history.export(format, view=True, notes=notes.append))))
        view = history.view()
    if format == "openai-chat":
        assert [record.pop("reasoning_content") for record in records if record["content"] == "so"] == ["unsigned"]
    if format == "openai-responses":  # words and their call are one reply for an import
        assert [record.pop("phase") for record in records if "phase" in record] == ["commentary"]
    if format in SENT_AS:
        beside = [{"role": "user", "content": "prompt"}] * (format == "anthropic-messages")
        assert records == [*beside, *view.to_messages(SENT_AS[format])]
        assert (ROLE in notes[0]) == bool(beside)
        assert ("1 thinking block" in notes[0]) == (format != "openai-chat")
    assert sum("1 count of tokens and cost" in note for note in notes) == 1
    results = [event.is_error for event in decode(records, format) if isinstance(event, Observation)]
    if format not in IN_WORDS:
        assert results == [all("1 error mark" not in note for note in notes), False]
