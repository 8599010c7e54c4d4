"""Providers accept the messages of any log, and no text is lost."""

import json
from functools import cache
from pathlib import Path

from hypothesis import example, given, strategies as st
from msgspec.structs import replace
from pydantic import TypeAdapter

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationSummary,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View
from foldlog.projections.messages.turns import DIALECTS
from tests.how_many import examples
from tests.projections.chat_rules import PROBLEMS
from tests.projections.parts import (
    FOUND,
    MCP,
    PDF,
    SEARCHED,
    SIGNED,
    UPLOADED,
    document,
    image,
)
from tests.properties.histories import histories

odd_texts = st.sampled_from(["", " ", "\n", "hello", "x\ud800", "é", "more "])
FOLDER = Path(__file__).parent
PARTS = [
    *map(json.loads, (FOLDER / "odd_parts.jsonl").read_text().splitlines()),
    document(b"%PDF-1.4"),
    {"type": "input_file", "filename": "notes.txt", "file_data": b"kept too"},
    PDF,
    FOUND,
    UPLOADED,
    MCP,
    SEARCHED,
]
CUSTOM = {"custom_tool": True}
REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
THINKING = [
    SIGNED,
    {"type": "thinking"},
    {"type": "redacted_thinking", "data": "d"},
    {},
    REASONED,
    {"type": "reasoning"},
]
ARGUMENTS = json.loads((FOLDER / "odd_arguments.json").read_text())
SUMMARY = CondensationSummary(content="in short")
odd_contents = st.one_of(odd_texts, st.lists(st.sampled_from(PARTS), max_size=4).map(tuple))
call_ids = st.sampled_from([None, "", "a", "b", "a b", "a/b", "c" * 50, "\ud800"])
odd_events = st.one_of(
    st.builds(SystemMessage, content=odd_contents),
    st.builds(
        Message, source=st.sampled_from(["user", "agent", "environment"]), content=odd_contents
    ),
    st.builds(
        Action,
        tool=st.sampled_from(["run", "run it", "", "r" * 70]),
        call_id=call_ids,
        response_id=st.sampled_from([None, "r", "s"]),
        arguments=st.sampled_from(ARGUMENTS),
        thought=odd_contents,
        thinking=st.lists(st.sampled_from(THINKING), max_size=2).map(tuple),
        meta=st.sampled_from([{}, {}, CUSTOM]),
    ),
    st.builds(
        Observation,
        content=odd_contents,
        call_id=call_ids,
        is_error=st.booleans(),
        cause=st.one_of(st.none(), st.integers(0, 12)),
    ),
    st.just(SUMMARY),
    st.just(
        Annotation(
            name="reasoning", data=REASONED, source="agent", shown=True, stays_with_next=True
        )
    ),
)


def view_of(events):
    return View.from_events([replace(event, id=n) for n, event in enumerate(events)])


odd_views = st.lists(odd_events, max_size=14).map(view_of)
CALLED = [Action(tool="run", call_id="a", response_id="r"), Observation(content="", call_id="a")]


@examples(600)
@given(st.one_of(odd_views, histories.map(View.from_events)))
def test_servers_accept_the_messages_of_any_view(view):
    for dialect in DIALECTS:
        assert PROBLEMS[dialect](view.to_messages(dialect)) == [], dialect


@example(view_of([*CALLED, *CALLED]))
@example(
    view_of([*CALLED, SUMMARY, replace(CALLED[0], call_id="b"), replace(CALLED[1], call_id="b")])
)
@examples(200)
@given(odd_views)
def test_a_replys_calls_are_one_message(view):
    response_of = {
        place: calls.members for calls in view.units.parallel_calls for place in calls.members
    }
    replies = []
    for place in view.fit_positions:
        event = view[place]
        if isinstance(event, Action):
            if not replies or replies[-1][0] is not response_of[place]:
                replies.append([response_of[place]])
            replies[-1].append(event.call_id)
        elif isinstance(event, Message) and event.source == "agent":
            replies.append([None])
    messages = view.to_messages("litellm")
    tool_calls = [
        (n, [call["id"] for call in message["tool_calls"]])
        for n, message in enumerate(messages)
        if "tool_calls" in message
    ]
    assert [len(ids) for _, ids in tool_calls] == [len(calls) for _, *calls in replies if calls]
    for n, ids in tool_calls:
        results = messages[n + 1 : n + 1 + len(ids)]
        assert [message["tool_call_id"] for message in results] == ids


def text_of(part):
    return {repr(FOUND): "4 m", repr(MCP): "ebb"}.get(
        repr(part), part.get("text", part.get("refusal"))
    )


@examples(200)
@given(odd_views, st.sampled_from(DIALECTS))
def test_no_text_or_picture_is_lost(view, dialect):
    pictures = 0
    sent = json.dumps([view.system_prompt, view.to_messages(dialect)], ensure_ascii=False)
    for event in [view[place] for place in view.fit_positions]:
        if isinstance(event, Annotation):
            continue
        content = event.thought if isinstance(event, Action) else event.content
        texts = [content] if isinstance(content, str) else [text_of(part) for part in content]
        for text in texts:
            if isinstance(text, str) and text.strip():
                sent_text = text.encode("utf-8", "replace").decode().rstrip()
                assert json.dumps(sent_text, ensure_ascii=False)[1:-1] in sent
        if isinstance(event, Message | Observation):
            pictures += sum(part == image() for part in content)
    assert sent.count("iVBORw0KGgo=") >= pictures


@cache
def openais_types():
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam

    return {
        "openai": TypeAdapter(list[ChatCompletionMessageParam]),
        "responses": TypeAdapter(list[ResponseInputItemParam]),
    }


@examples(200)
@given(odd_views)
def test_messages_have_the_types_of_openais_client(view):
    for dialect, types in openais_types().items():
        types.validate_python(view.to_messages(dialect))
