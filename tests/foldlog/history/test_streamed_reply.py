"""A reply that is recorded while its model writes it."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from msgspec import structs

import foldlog
import foldlog.aio
from foldlog._history import streamed_reply
from foldlog.errors import (
    ConversationNotFound,
    EventStoreError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    LeaseTaken,
    ReplyFailed,
    StoreUnavailable,
    StreamConflict,
    StreamNotFound,
    VersionConflict,
)
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.row import from_microseconds
from foldlog.formats.reply_streams import reader_for
from foldlog.types import (
    AboutDelta,
    CallDelta,
    EndDelta,
    ReasoningDelta,
    StreamedReply,
    TextDelta,
    as_ui_chunks,
)
from tests.waiting import until, until_in_loop


@pytest.fixture
def history(tmp_path):
    with foldlog.open(tmp_path / "s.db") as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "what is a kite?"})
        yield history


def chat(*deltas, finish="stop", **fields):
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    about = {"object": "chat.completion.chunk", "id": "chatcmpl-7", "model": "m-1", **fields}
    return [{**about, **chunk} for chunk in (*chunks, end, usage)]


def call(index, arguments, call_id=None, name=None):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "id": call_id, "function": function}]}


ANTHROPIC = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_5",
            "type": "message",
            "role": "assistant",
            "model": "m-2",
            "content": [],
            "usage": {"input_tokens": 12, "output_tokens": 1},
        },
    },
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Look"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "sig"},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "look"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"at": '},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '"sky"}'},
    },
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}},
    {"type": "message_stop"},
]

_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_3",
    "name": "look",
    "arguments": "",
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "m-3",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look"}],
        },
        {**_CALL, "arguments": '{"at":"sky"}'},
    ],
    "usage": {"input_tokens": 5, "output_tokens": 6},
}
RESPONSES = [
    {"type": "response.created", "response": {"id": "resp_1", "model": "m-3", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "I "},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "look"},
    {"type": "response.output_item.added", "output_index": 1, "item": _CALL},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"at":"sky"}'},
    {"type": "response.output_item.done", "output_index": 1, "item": RESPONSE["output"][1]},
    {"type": "response.completed", "response": RESPONSE},
]


def deltas(history, after=None):
    return [part.delta for part in history.follow_reply(after)]


def parts_while(history, source):
    """Stream a reply, and return the parts that a reader gets who follows it from its first chunk
    on.
    """
    parts = []
    with history.stream_reply(source) as reply:
        chunks = iter(reply)
        next(chunks)
        reader = threading.Thread(target=lambda: parts.extend(history.follow_reply()))
        reader.start()
        until(lambda: parts)
        for _ in chunks:
            pass
    reader.join()
    return parts


def test_each_chunk_is_in_the_store_before_it_is_passed_on(history):
    passed = []
    for chunk in history.stream_reply(["A ", "toy ", "that flies."]):
        passed.append(chunk)
        assert history.unfinished_reply().text == "".join(passed)
        assert history.version() == 1
    assert [event.content for event in history.events()][1:] == ["A toy that flies."]
    assert history.unfinished_reply() is None
    assert history.view().to_messages()[-1]["content"] == "A toy that flies."


def test_a_reader_gets_every_delta_and_then_the_event(history):
    parts = parts_while(history, ["A ", "toy ", "", "that flies."])
    texts = [TextDelta("A "), TextDelta("toy "), TextDelta("that flies.")]
    assert [part.delta for part in parts] == [*texts, EndDelta(event=1)]
    offsets = [part.offset for part in parts]
    assert sorted(offsets) == offsets
    for number, offset in enumerate(offsets[:3]):
        assert deltas(history, offset) == [*texts[number + 1 :], EndDelta(event=1)]
    assert deltas(history) == []  # no reply is being written


def test_a_chat_completion_is_recorded_as_it_would_be_whole(history, tmp_path):
    source = chat(
        {"role": "assistant", "reasoning_content": "Look "},
        {"reasoning_content": "up."},
        {"content": "I "},
        {"content": "look."},
        call(0, "", "call_1", "look"),
        call(0, '{"at": '),
        call(0, '"sky"}'),
        call(1, "{}", "call_2", "wait"),
        finish="tool_calls",
    )
    assert list(history.stream_reply(source, cost=0.25)) == source
    whole = {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "model": "m-1",
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "I look.",
                    "reasoning_content": "Look up.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"at": "sky"}'},
                        },
                        {
                            "id": "call_2",
                            "type": "function",
                            "function": {"name": "wait", "arguments": "{}"},
                        },
                    ],
                },
            }
        ],
    }
    check_same_as_whole(history, whole, tmp_path, cost=0.25)


def with_signature(delta):
    piece = {**delta["tool_calls"][0], "extra_content": {"google": {"thought_signature": "s"}}}
    return {"tool_calls": [piece]}


LOOK, WAIT = (
    {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
    for name, arguments in (("look", '{"at": 1}'), ("wait", "{}"))
)


@pytest.mark.parametrize(
    "deltas, calls",
    [
        (
            [
                with_signature(call(0, '{"at": 1}', "look", "look")),
                call(0, "{", "wait", "wait"),
                call(0, "}"),
            ],
            [{**LOOK, "extra_content": {"google": {"thought_signature": "s"}}}, WAIT],
        ),
        (
            [
                call(0, '{"at"', "look", "look"),
                call(0, ": 1}", "other"),
                call(1, "{}", "wait", "wait"),
            ],
            [LOOK, WAIT],
        ),
        (
            [
                call(0, '{"at"', "look", "look"),
                call(0, "{", "wait", "wait"),
                call(0, ": 1", "look"),
                call(0, "}"),
                call(5, "}", "wait"),
            ],
            [LOOK, WAIT],
        ),
        (
            [
                call(0, '{"at"', "look", "look"),
                call(0, ": ", "other", "look"),
                call(0, "1}", "", "look"),
                call(1, "{}", "wait", "wait"),
            ],
            [LOOK, WAIT],
        ),
        (
            [
                call(0, "", "look", "look"),
                call(0, '{"at": 1}'),
                call(0, "", "wait", "look"),
                call(0, "{}"),
            ],
            [LOOK, {**WAIT, "function": {"name": "look", "arguments": "{}"}}],
        ),
        (
            [
                call(0, '{"at": 1}', "look", "look"),
                call(0, "{}", "wait", "wait"),
                call(1, "{}", None, "wait"),
            ],
            [LOOK, WAIT, {**WAIT, "id": None}],
        ),
    ],
    ids=[
        "one index",
        "ids of pieces",
        "pieces by id",
        "names of pieces",
        "one tool",
        "a call without an id",
    ],
)
def test_calls_are_told_apart_by_their_ids(history, tmp_path, deltas, calls):
    source = chat(*deltas)
    list(history.stream_reply(source))
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"finish_reason": "stop", "message": message}
    whole = {**source[0], "usage": source[-1]["usage"], "choices": [choice]}
    check_same_as_whole(history, whole, tmp_path)
    assert [event.call_id for event in history.events(1)][:2] == ["look", "wait"]


def test_calls_with_one_id_are_told_apart_by_their_indexes(history):
    source = chat(call(0, "{}", "same", "look"), call(1, "{", "same", "wait"), call(1, "}", "same"))
    reader = reader_for(source[0])
    for chunk in source:
        reader.read(chunk)
    calls = reader.reply()["choices"][0]["message"]["tool_calls"]
    assert [tool_call["function"] for tool_call in calls] == [
        {"name": name, "arguments": "{}"} for name in ("look", "wait")
    ]


@pytest.mark.parametrize(
    "deltas, message",
    [
        (
            [
                {"function_call": {"name": "look", "arguments": ""}},
                {"function_call": {"name": None, "arguments": '{"at": '}},
                {"function_call": {"arguments": '"sky"}'}},
            ],
            {"function_call": {"name": "look", "arguments": '{"at": "sky"}'}},
        ),
        (
            [
                {"audio": {"id": "a", "transcript": "I "}},
                {"audio": {"id": "a", "transcript": "look."}},
                {"audio": {"data": "QUJD"}},
                {"audio": {"data": "REVG", "expires_at": 7}},
            ],
            {
                "audio": {
                    "id": "a",
                    "transcript": "I look.",
                    "data": "QUJDREVG",
                    "expires_at": 7,
                }
            },
        ),
    ],
    ids=["function_call", "audio"],
)
def test_texts_in_an_object_of_a_message_grow(history, tmp_path, deltas, message):
    source = chat(*deltas)
    list(history.stream_reply(source))
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
    whole = {**source[0], "usage": source[-1]["usage"], "choices": [choice]}
    check_same_as_whole(history, whole, tmp_path)


def check_same_as_whole(history, whole, tmp_path, **options):
    """Check that the reply was recorded as ``append_reply`` records the whole reply."""
    with foldlog.open(tmp_path / "whole.db") as others:
        other = others["c"]
        other.append({"role": "user", "content": "what is a kite?"})
        other.append_reply(whole, **options)
        assert without_times(history) == without_times(other)


def without_times(history):
    return [structs.replace(event, timestamp=None) for event in history.events(1)]


@pytest.mark.parametrize(
    "source, whole",
    [
        (
            ANTHROPIC,
            {
                "id": "msg_5",
                "type": "message",
                "role": "assistant",
                "model": "m-2",
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 12, "output_tokens": 30},
                "content": [
                    {"type": "thinking", "thinking": "Look", "signature": "sig"},
                    {"type": "text", "text": "I look"},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}},
                ],
            },
        ),
        (RESPONSES, RESPONSE),
    ],
    ids=["anthropic", "responses"],
)
def test_other_providers_are_recorded_as_they_would_be_whole(history, tmp_path, source, whole):
    parts = [part.delta for part in parts_while(history, source)]
    assert "".join(delta.text for delta in parts if isinstance(delta, TextDelta)) == "I look"
    calls = [delta for delta in parts if isinstance(delta, CallDelta)]
    assert (calls[0].tool, calls[-1].ends) == ("look", True)
    assert json.loads("".join(delta.arguments for delta in calls)) == {"at": "sky"}
    check_same_as_whole(history, whole, tmp_path)


def block_of_anthropic(block, *deltas):
    message = {"id": "msg_6", "type": "message", "role": "assistant", "model": "m", "content": []}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]


@pytest.mark.parametrize(
    "block, deltas, grown",
    [
        (
            {"type": "compaction", "content": None},
            [{"type": "compaction_delta", "content": "We talked of kites."}],
            {"type": "compaction", "content": "We talked of kites."},
        ),
        (
            {"type": "of_a_newer_api", "lines": ["a"]},
            [
                {"type": "lines_delta", "lines": ["b"], "note": "half "},
                {"type": "lines_delta", "note": "whole"},
            ],
            {"type": "of_a_newer_api", "lines": ["a", "b"], "note": "half whole"},
        ),
    ],
    ids=["compaction", "unknown"],
)
def test_all_pieces_of_a_block_are_recorded(history, tmp_path, block, deltas, grown):
    list(history.stream_reply(block_of_anthropic(block, *deltas)))
    whole = {"id": "msg_6", "type": "message", "role": "assistant", "model": "m"}
    check_same_as_whole(history, {**whole, "content": [grown], "stop_reason": "end_turn"}, tmp_path)


def test_a_null_at_the_end_of_a_message_replaces_no_count(history):
    usage = {"input_tokens": None, "output_tokens": 4}
    chunks = [
        typed("message_start", message={"role": "assistant", "usage": {"input_tokens": 9}}),
        typed("content_block_start", index=0, content_block={"type": "text", "text": "A toy"}),
        typed("message_delta", delta={"stop_reason": "end_turn"}, usage=usage),
        typed("message_stop"),
    ]
    list(history.stream_reply(chunks))
    (message,) = history.events(1)
    assert message.meta["usage"] == {"prompt_tokens": 9, "completion_tokens": 4}


def test_pieces_of_thinking_are_one_block(history):
    source = chat(
        {"thinking_blocks": [{"type": "thinking", "thinking": "Lo"}], "reasoning_content": "Lo"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "ok"}], "reasoning_content": "ok"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "sig"}]},
        {"content": "I look"},
    )
    list(history.stream_reply(source))
    message = history.view().to_messages()[-1]
    assert message["thinking_blocks"] == [
        {"type": "thinking", "thinking": "Look", "signature": "sig"}
    ]


def test_objects_of_an_sdk_are_read(history):
    def as_object(value):
        if value and isinstance(value, dict):
            return SimpleNamespace(**{key: as_object(item) for key, item in value.items()})
        return [as_object(item) for item in value] if isinstance(value, list) else value

    list(history.stream_reply(as_object(chat({"content": "I look"}))))
    assert history.tail(1)[0].content == "I look"
    assert history.tail(1)[0].meta["usage"]["completion_tokens"] == 4


# -- what is cut

HALF = chat({"content": "I look"}, call(0, "{}", "a", "one"), call(1, '{"at": "s', "b", "two"))[:-2]
"""A reply that breaks off in its second call."""
CUT = [("Action", "one", True), ("Observation", "one", None)]
"""What ``kinds`` returns after ``HALF`` was recorded."""


def kinds(history):
    """Return the kind, the tool and the mark ``cut`` of each event of the reply."""
    return [
        (type(event).__name__, getattr(event, "tool", ""), event.meta.get("cut"))
        for event in history.events(1)
    ]


def test_an_error_records_what_was_read_without_half_a_call(history):
    def source():
        yield from HALF
        raise ConnectionError("the model is gone")

    with pytest.raises(ConnectionError):
        list(history.stream_reply(source()))
    assert kinds(history) == CUT
    (action,) = history.events(1, 2)
    assert (action.thought, action.meta["model"]) == ("I look", "m-1")
    assert "two" not in str(history.view().to_messages())


def test_a_call_of_a_cut_reply_does_not_run(history):
    """Otherwise a loop over the open calls would act on a reply that the user stopped."""
    call_1 = {"id": "a", "type": "function", "function": {"name": "one", "arguments": "{}"}}
    history.append_reply({"role": "assistant", "tool_calls": [call_1]})
    with history.stream_reply() as reply:
        for chunk in HALF:
            reply.feed(chunk)
        assert reply.cancel() == reply.recorded
    assert [entry.id for entry in reply.recorded] == [2, 3]
    # The earlier call has the same call id, and is still open.
    (earlier,) = history.open_calls()
    assert earlier.id == 1
    history.append_tool_result(earlier, "ok")
    prompt = history.view().to_messages()
    assert prompt[-3]["tool_call_id"] == "a"
    assert prompt[-1]["tool_call_id"] != "a"
    assert "not begun: the reply was cut off" in prompt[-1]["content"]
    assert [(effect.state, effect.attempts) for effect in history.effects()][-1] == ("failed", 0)
    assert history.view().reply_due


def half_reply():
    return [TextDelta("I pay"), CallDelta(0, "a", "pay", '{"to": ')]


@pytest.mark.parametrize("end", ["append", "end", "continue_with"])
def test_a_reply_with_half_a_call_is_cut(history, end):
    if end == "end":
        list(history.stream_reply(half_reply()))
    elif end == "append":
        leave(history, *half_reply())
        history.unfinished_reply().append()
    else:
        leave(history, "I ")
        rest = chat({"content": "pay"}, call(0, '{"to": ', "a", "pay"), finish="length")
        list(history.unfinished_reply().continue_with(rest))
    (event,) = history.events(1)
    assert (event.content, event.meta["cut"]) == ("I pay", True)


@pytest.mark.parametrize("form", ["deltas", "anthropic"])
def test_arguments_that_are_nested_too_deep_are_incomplete(history, form):
    arguments = '{"to": ' * 100_000
    if form == "deltas":
        source = [TextDelta("I pay"), CallDelta(0, "a", "pay", arguments)]
    else:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        block = {"type": "tool_use", "id": "a", "name": "pay", "input": {}}
        source = [
            {"type": "message_start", "message": {"role": "assistant", "id": "m", "model": "x"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {"type": "content_block_delta", "index": 0, "delta": text_delta("I pay")},
            {"type": "content_block_start", "index": 1, "content_block": block},
            {"type": "content_block_delta", "index": 1, "delta": delta},
            {"type": "content_block_stop", "index": 1},
        ]
    list(history.stream_reply(source))
    (event,) = history.events(1)
    assert (event.content, event.meta["cut"]) == ("I pay", True)


def text_delta(text):
    return {"type": "text_delta", "text": text}


def test_a_call_without_arguments_is_complete(history):
    leave(history, *chat(call(0, "", "a", "now"), finish="tool_calls"))
    history.unfinished_reply().append()
    assert kinds(history) == [("Action", "now", None)]


def test_a_source_that_ends_before_the_reply_is_cut(history):
    list(history.stream_reply(HALF))
    assert kinds(history) == CUT


@pytest.mark.parametrize(
    "chunks, problem",
    [
        (
            [
                *ANTHROPIC[:8],
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ],
            "overloaded_error: Overloaded",
        ),
        (
            [
                *RESPONSES[:3],
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "server_error", "message": "it broke"}},
                },
            ],
            "server_error: it broke",
        ),
        ([*RESPONSES[:3], {"type": "error", "code": "c", "message": "it broke"}], "c: it broke"),
        (
            [*chat({"content": "I "})[:1], {"error": {"message": "no quota", "code": 429}}],
            "429: no",
        ),
        ([*chat({"content": "I "})[:1], {"error": "gone"}], "gone"),
    ],
    ids=["anthropic", "response failed", "responses", "chat", "text"],
)
def test_an_error_that_the_provider_sends_as_a_chunk_is_raised(history, chunks, problem):
    with pytest.raises(ReplyFailed, match=f"ended the reply with an error: {problem}"):
        list(history.stream_reply(chunks))
    (message,) = history.events(1)
    assert (message.content, message.meta["cut"]) == ("I ", True)


def test_a_providers_error_in_the_first_chunk_fails(history):
    with pytest.raises(ReplyFailed) as caught:
        list(history.stream_reply([{"error": {"message": "no quota"}}]))
    assert caught.value.problem == "no quota"
    assert (history.version(), history.unfinished_reply()) == (1, None)


def test_a_loop_that_breaks_off_is_cut(history):
    for _ in history.stream_reply(["A ", "toy"]):
        break
    gc.collect()
    assert history.tail(1)[0].content == "A "
    assert history.tail(1)[0].meta["cut"]


def test_a_cancelled_reply_is_recorded_as_cut(history):
    with history.stream_reply(meta={"user": "ann"}) as reply:
        reply.feed("A ")
        reply.feed(TextDelta("toy"))
        recorded = reply.cancel()
        assert reply.cancel() == recorded
        with pytest.raises(InvalidArgument, match="this reply has ended"):
            reply.feed("!")
    (event,) = [entry.event for entry in recorded]
    assert (event.content, event.meta) == ("A toy", {"user": "ann", "cut": True})


def test_a_reply_of_which_nothing_was_written_becomes_no_event(history):
    with history.stream_reply() as reply:
        reply.feed(AboutDelta(model="m-1"))
        reply.feed(ReasoningDelta("Hm"))
        assert reply.cancel() == ()
    assert history.version() == 1
    assert history.unfinished_reply() is None


def test_a_refused_reply_closes_its_stream(history):
    with pytest.raises(InvalidEvent, match="neither a text nor a tool call"):
        list(history.stream_reply(chat({"reasoning_content": "Hm"})))
    assert history.unfinished_reply() is None
    assert history.version() == 1


def test_a_cut_reply_that_is_refused_stays_unfinished(history):
    """Its readers have seen its text, which is nowhere else."""
    reply = history.stream_reply(expected_version=1)
    reply.feed("A toy")
    history.append({"role": "user", "content": "and?"})
    with pytest.raises(VersionConflict):
        reply.cancel()
    assert not reply.is_closed
    history.unfinished_reply().append_cut()
    (*_, event) = history.events()
    assert (event.content, event.meta["cut"]) == ("A toy", True)


def test_an_unfinished_reply_that_is_refused_stays_unfinished(history):
    leave(history, "A toy")
    with pytest.raises(VersionConflict):
        history.unfinished_reply().append(expected_version=0)
    (recorded,) = history.unfinished_reply().append()
    assert recorded.event.content == "A toy"


# -- idempotency


def test_a_repeated_reply_is_not_written(history):
    first = history.stream_reply(["A toy"], idempotency_key="step-1")
    list(first)
    second = history.stream_reply(["Another toy"], idempotency_key="step-1")
    assert list(second) == []
    with history.stream_reply(idempotency_key="step-1") as third:
        third.feed("Another toy")
    assert second.recorded == third.recorded == third.cancel() == first.recorded
    fourth = history.stream_reply(idempotency_key="step-1")
    assert fourth.cancel() == first.recorded
    assert history.version() == 2
    assert history.unfinished_reply() is None


@pytest.mark.parametrize("words", ["A toy", "Another toy"])
def test_a_reply_that_another_worker_appended_first_ends_with_its_event(history, words):
    with history.stream_reply(idempotency_key="step-1") as reply:
        reply.feed(words)
        before = next(history.follow_reply()).offset
        first = history.append_reply(
            {"role": "assistant", "content": "A toy"}, idempotency_key="step-1"
        )
    assert reply.recorded == first
    assert deltas(history, before) == [EndDelta(event=1)]
    assert history.version() == 2


def test_a_key_of_other_events_is_refused_before_the_first_chunk(history):
    history.append({"role": "user", "content": "and a toy?"}, idempotency_key="step-1")
    with pytest.raises(IdempotencyConflict):
        next(iter(history.stream_reply(["A toy"], idempotency_key="step-1")))
    assert history.unfinished_reply() is None


def test_a_cut_reply_does_not_use_the_key(history):
    with history.stream_reply(idempotency_key="step-1") as reply:
        reply.feed("A t")
        reply.cancel()
    list(history.stream_reply(["A toy"], idempotency_key="step-1"))
    assert [event.content for event in history.events(1)] == ["A t", "A toy"]


# -- after a kill


def leave(history, *chunks):
    """Write chunks, as a worker that is killed then."""
    reply = history.stream_reply()
    for chunk in chunks:
        reply.feed(chunk)


def test_an_unfinished_reply_refuses_the_next(history):
    leave(history, "A ")
    with pytest.raises(StreamConflict, match="is open already") as caught:
        list(history.stream_reply(["B"]))
    assert "unfinished_reply()" in caught.value.__notes__[0]


def test_an_unfinished_reply_is_appended_as_cut(history):
    before = history._store.database.now()
    leave(history, *HALF)
    after = history._store.database.now()
    unfinished = history.unfinished_reply()
    assert unfinished.text == "I look"
    assert [whole_call["id"] for whole_call in unfinished.calls] == ["a"]
    assert from_microseconds(before) <= unfinished.began_at <= from_microseconds(after)
    unfinished.append_cut(meta={"why": "killed"})
    assert kinds(history) == CUT
    assert next(history.events(1)).meta["why"] == "killed"
    with pytest.raises(StreamConflict, match="is closed"):
        unfinished.append_cut()
    assert history.version() == 3


@pytest.mark.parametrize("end", ["append", "append_cut"])
@pytest.mark.parametrize("chunks", [(), [{"choices": []}]])
def test_an_unfinished_reply_without_a_word_ends_without_an_event(end, chunks, history):
    reply = history.stream_reply()
    reply.begin()
    for chunk in chunks:
        reply.feed(chunk)
    assert getattr(history.unfinished_reply(), end)() == ()
    assert (history.version(), history.unfinished_reply()) == (1, None)


def test_an_unfinished_reply_is_dropped(history):
    leave(history, "A ")
    parts = []
    reader = threading.Thread(target=lambda: parts.extend(history.follow_reply()))
    reader.start()
    until(lambda: parts)
    history.unfinished_reply().drop()
    reader.join()
    assert [part.delta for part in parts] == [TextDelta("A "), EndDelta()]
    assert (history.version(), history.unfinished_reply()) == (1, None)


def test_an_unfinished_reply_goes_on_in_its_stream(history):
    leave(history, *chat({"content": "A toy "})[:1])
    unfinished = history.unfinished_reply()
    assert unfinished.message == {"role": "assistant", "content": "A toy "}
    rest = chat({"content": "that flies."})
    assert list(unfinished.continue_with(rest, cost=0.5)) == rest
    (event,) = history.tail(1)
    assert (event.content, event.meta["cost"]) == ("A toy that flies.", 0.5)
    assert "cut" not in event.meta


def test_a_continued_reply_keeps_its_finish_reason(history):
    leave(history, "A toy ")
    list(
        history.unfinished_reply().continue_with(chat({"content": "that flies."}, finish="length"))
    )
    assert history.tail(1)[0].meta["finish_reason"] == "length"
    leave(history, "A toy ")
    source = [event for event in ANTHROPIC if event.get("index") in (None, 1)]
    list(history.unfinished_reply().continue_with(source))
    assert history.tail(1)[0].meta["finish_reason"] == "tool_use"


@pytest.mark.parametrize("prepares", [True, False])
@pytest.mark.parametrize("end", ["append_cut", "append", "continue_with"])
def test_an_unfinished_reply_notes_the_view_that_its_model_was_sent(history, end, prepares):
    if prepares:
        history.prepare()
    leave(history, "A toy")
    with foldlog.open(history._store.path) as others:
        other = others["c"]
        other.append({"role": "user", "content": "and a ball?"})
        if end == "continue_with":
            list(other.unfinished_reply().continue_with([" that flies"]))
        else:
            other.prepare()
            getattr(other.unfinished_reply(), end)()
    assert history.tail(1)[0].meta["shown_version"] == 1


def test_a_cancelled_reply_notes_the_view_that_its_model_was_sent(history):
    history.prepare()
    with history.stream_reply() as reply:
        reply.feed("A toy")
        with foldlog.open(history._store.path) as others:
            others["c"].append({"role": "user", "content": "and a ball?"})
        reply.cancel()
    assert history.tail(1)[0].meta["shown_version"] == 1


def test_a_call_is_not_continued(history):
    leave(history, *HALF)
    with pytest.raises(InvalidArgument, match="has a tool call, which no model continues"):
        history.unfinished_reply().continue_with([])


def test_a_chunk_after_one_of_another_process_is_refused(history):
    reply = history.stream_reply()
    reply.feed("A ")
    reply.feed("toy")
    with foldlog.open(history._store.path) as others:
        others["c"].unfinished_reply().continue_with().feed(" that")
    with pytest.raises(StreamConflict, match="another writer"):
        reply.feed(" flies")
    assert history.unfinished_reply().text == "A toy that"


def test_the_lease_fences_chunks(history):
    with foldlog.open(history._store.path) as others, history.lease(ttl_s=0.5) as lease:
        other = others["c"]
        history._lease_block._left.set()  # The thread ends and renews it no more.
        history._lease_block._renewing.join()
        reply = history.stream_reply()
        reply.feed("A ")
        until(lambda: not lease.held)
        # The holder counts its lease as over before other workers do, so they wait a little longer.
        with other.lease(wait_s=10), pytest.raises(LeaseTaken), reply:
            reply.feed("toy")
        assert other.unfinished_reply().text == "A "
    assert history.version() == 1


def cut_elsewhere(history):
    history.unfinished_reply().append_cut()


def drop_elsewhere(history):
    history.unfinished_reply().drop()


def continue_elsewhere(history):
    history.unfinished_reply().continue_with().feed("toy")


def redact(history):
    cut_elsewhere(history)
    history.redact(1, reason="a name")


def erase(history):
    history._histories.erase("c", reason="asked")


@pytest.mark.parametrize(
    "act, fate",
    [
        (cut_elsewhere, "became event 1: "),
        (drop_elsewhere, "was closed without an event: "),
        (continue_elsewhere, "stays unfinished, see history.unfinished_reply(): "),
        (redact, "was deleted: "),
        (erase, "was deleted with the conversation: "),
    ],
)
def test_an_error_says_what_became_of_the_reply(history, act, fate):
    def source():
        yield "A "
        with foldlog.open(history._store.path) as others:
            act(others["c"])
        yield "toy"

    with pytest.raises(EventStoreError) as caught:
        list(history.stream_reply(source()))
    (note,) = caught.value.__notes__
    assert note.startswith(f"foldlog: the reply of conversation 'c' {fate}")


def test_a_thinking_block_of_an_unfinished_reply_keeps_its_signature(history):
    leave(history, *ANTHROPIC[:8])
    history.unfinished_reply().append_cut()
    block, text = history.view().to_messages("anthropic")[-1]["content"]
    assert block == {"type": "thinking", "thinking": "Look", "signature": "sig"}
    assert text["text"] == "I"


# -- bad input


def test_a_source_without_a_text_becomes_no_event(history):
    for source in ([], [""]):
        assert list(history.stream_reply(source)) == source
    assert (history.version(), history.unfinished_reply()) == (1, None)


@pytest.mark.parametrize(
    "read",
    [lambda empty: empty.stream_reply(["A"]), lambda empty: empty.follow_reply()],
    ids=["stream_reply", "follow_reply"],
)
def test_a_reply_without_a_message_before_it_is_refused(history, read):
    with pytest.raises(ConversationNotFound) as caught:
        list(read(history._histories["empty"]))
    assert "append the user's message first" in caught.value.__notes__[0]


@pytest.mark.parametrize("whole", ["A toy", b"A toy", {"role": "assistant", "content": "A toy"}])
def test_a_whole_reply_is_no_source(history, whole):
    with pytest.raises(TypeError, match=r"yields its chunks.*goes to history\.append_reply"):
        history.stream_reply(whole)


def test_an_async_source_is_refused_by_a_sync_history(history):
    async def source():
        yield "A"

    with pytest.raises(TypeError, match=r"open the store with foldlog\.aio\.open"):
        history.stream_reply(source())


def test_a_loop_over_a_reply_without_a_source_is_refused(history):
    with pytest.raises(InvalidArgument, match="has no source"):
        list(history.stream_reply())


def test_wrong_chunks_are_refused(history):
    for wrong in (5, {"role": "assistant"}, None):
        with pytest.raises(InvalidArgument, match="a chunk of the reply cannot be read"):
            list(history.stream_reply([wrong]))
    with pytest.raises(InvalidArgument, match="several choices"):
        list(history.stream_reply([{"choices": [{"index": 1, "delta": {}}]}]))
    assert history.version() == 1


def typed(kind, **fields):
    return {"type": kind, **fields}


BLOCK = typed("content_block_start", index=0, content_block={"type": "thinking"})


@pytest.mark.parametrize(
    "chunks",
    [
        [{"choices": [{"delta": {"tool_calls": [{"index": "0", "id": "k"}]}}]}],
        [{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"a": 1}}}]}}]}],
        [typed("content_block_start", index=0, content_block="text")],
        [typed("content_block_start", index="0", content_block={"type": "tool_use"})],
        [typed("content_block_start", content_block={"type": "text"})],
        [BLOCK, typed("content_block_delta", index=0, delta="text")],
        [BLOCK, typed("content_block_delta", delta={"type": "thinking_delta", "thinking": "A"})],
        [BLOCK, typed("content_block_stop", index=None)],
        *(
            [BLOCK, typed("content_block_delta", index=0, delta={"type": f"{name}_delta", key: 5})]
            for name, key in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("signature", "signature"),
                ("input_json", "partial_json"),
            )
        ),
        [typed("response.created", response="r")],
        [typed("response.output_text.delta", delta=["A"], output_index=0)],
        [typed("response.output_text.delta", delta="A", output_index="0")],
        [typed("response.completed", response=None)],
    ],
)
def test_a_piece_of_another_type_is_refused(history, chunks):
    with pytest.raises(InvalidArgument, match="a chunk of the reply cannot be read"):
        list(history.stream_reply(chunks))


@pytest.mark.parametrize("place", ["x", 1.0, None])
def test_an_event_of_responses_that_is_not_read_ends_no_reply(history, place):
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
    text = {"type": "message", "role": "assistant", "content": "A toy"}
    source = [
        typed("response.created", response=whole),
        typed("response.of_tomorrow", output_index=place),
        typed("response.output_item.done", output_index=place, item={"type": "message"}),
        typed("response.completed", response={**whole, "output": [text]}),
    ]
    list(history.stream_reply(source))
    (message,) = history.events(1)
    assert message.content == "A toy"


def test_a_failure_without_an_object_is_raised(history):
    with pytest.raises(ReplyFailed, match="the response failed"):
        list(history.stream_reply([typed("response.failed", response="gone")]))


def texts_so_far(history, source):
    """Stream a reply, and return the text in the store after each chunk."""
    return [history.unfinished_reply().text for _ in history.stream_reply(source)]


@pytest.mark.parametrize("about", [{"id": 5}, {"model": ["m"]}, {"usage": [9]}])
def test_what_a_server_says_of_a_reply_in_another_form_is_in_no_delta(history, about):
    texts = texts_so_far(history, chat({"content": "A "}, {"content": "toy"}, **about))
    assert texts[:2] == ["A ", "A toy"]
    (message,) = history.events(1)
    assert message.content == "A toy"


def test_wrong_offsets_are_refused(history):
    with pytest.raises(TypeError, match="after is 5; pass the offset"):
        history.follow_reply(after=5)
    with pytest.raises(InvalidArgument, match="'17' is not an offset of a reply"):
        history.follow_reply("17")
    with pytest.raises(InvalidArgument, match="is not an offset of a reply"):
        history.follow_reply(f"{2**63}_0")
    with pytest.raises(StreamNotFound):
        list(history.follow_reply(f"{5:019}_{0:019}"))


@pytest.mark.parametrize("is_ended", [False, True])
def test_an_offset_behind_the_end_is_refused(history, is_ended):
    """Otherwise its reader would miss what is written up to there."""
    with history.stream_reply() as reply:
        reply.feed("A ")
        behind = streamed_reply.write_offset(reply.begin(), 2)
        if is_ended:
            reply.cancel()
        with pytest.raises(InvalidArgument, match="the reply has 1 delta so far"):
            streamed_reply.ReplyFollower(history, behind).page()


@pytest.mark.parametrize("stored, text", [(1, "A "), (3, "A toy")])
def test_a_chunk_that_was_not_stored_is_in_no_reply(history, monkeypatch, stored, text):
    def fail(*_, **__):
        raise StoreUnavailable("busy", kind="busy")

    source = chat({"content": "A "}, {"content": "toy"})
    with history.stream_reply() as reply:
        for chunk in source[:stored]:
            reply.feed(chunk)
        with monkeypatch.context() as patch:
            patch.setattr(streamed_reply, "transact", fail)
            with pytest.raises(StoreUnavailable):
                reply.feed(source[stored])
        for chunk in source[stored:]:
            with pytest.raises(InvalidArgument, match="could not be stored"):
                reply.feed(chunk)
    (message,) = history.tail(1)
    assert (message.content, message.meta["cut"]) == (text, True)


@pytest.mark.parametrize("end", ["cancel", "drop", "end"])
def test_a_chunk_that_was_stored_in_spite_of_an_error_is_known(history, monkeypatch, end):
    """The commit is done, and then a signal or the disk raises an error."""
    transact = streamed_reply.transact

    def fail_after(*args, **options):
        transact(*args, **options)
        raise StoreUnavailable("away", kind="away")

    reply = history.stream_reply()
    reply.feed("A ")
    with monkeypatch.context() as patch:
        patch.setattr(streamed_reply, "transact", fail_after)
        with pytest.raises(StoreUnavailable):
            reply.feed("toy ")
    getattr(reply, end)()
    assert history.unfinished_reply() is None
    newest = history.tail(1)[0].content
    assert newest == ("what is a kite?" if end == "drop" else "A toy ")


@pytest.mark.parametrize(
    "chunks",
    [("a \ud83d", "\ude00"), ("a ", "\ud83d\ude00"), ("a ", "\ud83d", "\ude00")],
    ids=ascii,
)
def test_a_surrogate_pair_may_come_in_two_chunks(history, chunks):
    with history.stream_reply() as reply:
        for chunk in chat(*({"content": text} for text in chunks)):
            reply.feed(chunk)
        shown = history.unfinished_reply().text
    assert history.tail(1)[0].content == shown == "a \N{GRINNING FACE}"


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize(
    "chunks, text",
    [
        (("a \ud83d", "\ude00", "b"), "a \N{GRINNING FACE}b"),
        (("a \ud83d", "b"), "a \ufffdb"),
        (("a \ud83d", "\ud83d\ude00"), "a \ufffd\N{GRINNING FACE}"),
        (("a ", "\ude00b"), "a \ufffdb"),
        (("a \ud83d",), "a "),
    ],
    ids=ascii,
)
def test_a_cut_reply_has_whole_characters(history, chunks, text, is_killed):
    """It is the same whether its own worker or another one appends it."""
    reply = history.stream_reply()
    for chunk in chunks:
        reply.feed(chunk)
    # ``ascii``, because pytest-xdist cannot send half of a pair in the report of a failure.
    assert ascii(history.unfinished_reply().text) == ascii(text)
    if is_killed:
        history.unfinished_reply().append_cut()
    else:
        reply.cancel()
    assert ascii(history.tail(1)[0].content) == ascii(text)


def test_each_field_of_a_reply_waits_for_its_own_half(history):
    place = {"index": 0, "id": "c1", "function": {"name": "t", "arguments": '{"a": "\ud83d'}}
    rest = {"index": 0, "function": {"arguments": '\ude01"}'}}
    reply = history.stream_reply()
    for chunk in chat(
        {"content": "\ud83d", "reasoning_content": "\ud83d"},
        {"tool_calls": [place]},
        {"reasoning_content": "\ude02"},
        {"content": "\ude00"},
        {"tool_calls": [rest]},
    ):
        reply.feed(chunk)
    unfinished = history.unfinished_reply()
    assert (unfinished.text, unfinished.reasoning) == ("\U0001f600", "\U0001f602")
    assert unfinished.calls[0]["function"]["arguments"] == '{"a": "\U0001f601"}'
    reply.drop()


def test_a_chunk_that_is_nested_too_deep_is_refused(history):
    deep = {}
    for _ in range(10_000):
        deep = {"a": deep}
    with pytest.raises(InvalidArgument, match="cannot be read: it is nested too deep"):
        list(history.stream_reply([{"choices": [{"delta": deep}]}]))


# -- a reply that is cancelled while it is read


@pytest.mark.parametrize("chunks_read, text", [(1, "A "), (2, "A toy ")])
def test_a_loop_ends_when_its_reply_is_cancelled(history, chunks_read, text):
    reply = history.stream_reply(["A ", "toy "])
    for number, _ in enumerate(reply, 1):
        if number == chunks_read:
            reply.cancel()
    assert history.tail(1)[0].content == text
    assert history.unfinished_reply() is None


def test_a_reply_is_cancelled_by_another_thread(history):
    stopping = threading.Event()

    def source():
        for number in range(100_000):
            if number == 20:
                stopping.set()
            yield f"{number} "

    reply = history.stream_reply(source())

    def cancel():
        assert stopping.wait(60)
        reply.cancel()

    stopper = threading.Thread(target=cancel)
    stopper.start()
    passed_on = list(reply)
    stopper.join()
    (message,) = history.tail(1)
    assert message.meta["cut"]
    assert len(reply.recorded) == 1
    assert len(passed_on) < 100_000
    assert message.content.startswith("".join(passed_on))


# -- other streams, and other forms of a reply


def test_a_stream_of_something_else_is_no_reply(history):
    def write(writing):
        stream = streams.begin(writing, "reply", streams.JSON)
        streams.append(writing, stream.number, 0, 1, b'[{"type": "video"}]')

    history._store.project("c", write)
    with pytest.raises(InvalidArgument, match="has a chunk that is not a delta of a reply"):
        history.unfinished_reply()


def test_the_chunks_of_the_ai_sdk():
    given = [
        AboutDelta(model="m"),
        ReasoningDelta("Hm"),
        TextDelta("I "),
        TextDelta("look"),
        CallDelta(0, "a", "look"),
        CallDelta(0, arguments='{"at":"sky"}'),
        CallDelta(1, "b", "wait", '{"s'),
        EndDelta(1),
    ]
    assert list(as_ui_chunks(given)) == [
        {"type": "start"},
        {"type": "reasoning-start", "id": "reasoning-0"},
        {"type": "reasoning-delta", "id": "reasoning-0", "delta": "Hm"},
        {"type": "text-start", "id": "text-0"},
        {"type": "text-delta", "id": "text-0", "delta": "I "},
        {"type": "text-delta", "id": "text-0", "delta": "look"},
        {"type": "tool-input-start", "toolCallId": "a", "toolName": "look"},
        {"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": '{"at":"sky"}'},
        {"type": "tool-input-start", "toolCallId": "b", "toolName": "wait"},
        {"type": "tool-input-delta", "toolCallId": "b", "inputTextDelta": '{"s'},
        {"type": "reasoning-end", "id": "reasoning-0"},
        {"type": "text-end", "id": "text-0"},
        {
            "type": "tool-input-available",
            "toolCallId": "a",
            "toolName": "look",
            "input": {"at": "sky"},
        },
        {"type": "finish"},
    ]


# -- kills


WORKER = """
import os, sys
import foldlog
history = foldlog.open(sys.argv[1])["c"]
with history.lease(ttl_s=0.2, wait_s=30):
    unfinished = history.unfinished_reply()
    if unfinished is not None:
        unfinished.append_cut()
    number = history.version()
    while True:
        for chunk in history.stream_reply(f"{number}.{word} " for word in range(7)):
            os.write(1, chunk.encode())
        os.write(1, b"\\n")
        number += 1
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")()
    return f"sqlite:///{tmp_path}/s.db"


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.long)])
def test_a_killed_worker_loses_nothing_that_it_passed_on(url, kills):
    passed = b""
    with foldlog.open(url) as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "count"})
        for _ in range(kills):
            arguments = [sys.executable, "-c", WORKER, url]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE) as worker:
                seen = b""
                while seen.count(b"\n") < 2 or seen.endswith(b"\n"):
                    part = os.read(worker.stdout.fileno(), 40)
                    assert part, "the worker ended by itself"
                    seen += part
                worker.send_signal(signal.SIGKILL)
                passed += seen + worker.stdout.read() + b"\n"
        # The server may still store the last chunk of a killed worker, until another worker has the
        # lease.
        with history.lease(ttl_s=0.2, wait_s=30):
            unfinished = history.unfinished_reply()
            if unfinished is not None:
                unfinished.append_cut()
        events = list(history.events(1))
    recorded = {event.content.partition(".")[0]: event for event in events}
    assert len(recorded) == len(events)  # no reply became two events
    for number, event in recorded.items():
        words = event.content.split()
        assert words == [f"{number}.{word}" for word in range(len(words))]
        assert len(words) == 7 or event.meta["cut"]
    for text in filter(None, passed.decode().split("\n")):
        assert recorded[text.partition(".")[0]].content.startswith(text)


# -- async


def run_async(tmp_path, work):
    """Run ``work`` with an async history of one message. Return the contents and the marks ``cut``
    of the events that it appended.
    """

    async def main():
        async with foldlog.aio.open(tmp_path / "s.db") as histories:
            history = histories["c"]
            await history.append({"role": "user", "content": "what is a kite?"})
            await work(history)
            return [(event.content, event.meta.get("cut")) async for event in history.events(1)]

    return asyncio.run(main())


def test_an_async_reply_is_followed_until_it_is_dropped(tmp_path):
    async def work(history):
        await history.stream_reply().feed("A ")
        unfinished = await history.unfinished_reply()
        assert (unfinished.text, unfinished.reasoning, unfinished.calls) == ("A ", "", [])
        assert unfinished.message == {"role": "assistant", "content": "A "}
        assert unfinished.began_at == unfinished.sync.began_at
        parts = []

        async def read():
            async for _, delta in history.follow_reply():
                parts.append(delta)

        reader = asyncio.create_task(read())
        await until_in_loop(lambda: parts)
        await unfinished.drop()
        await reader
        assert parts == [TextDelta("A "), EndDelta()]
        assert [part async for part in history.follow_reply()] == []

    assert run_async(tmp_path, work) == []


def test_an_async_source_is_recorded(tmp_path):
    async def work(history):
        async def source():
            yield "toy"
            yield " that flies."

        reply = history.stream_reply(source())
        assert [chunk async for chunk in reply] == ["toy", " that flies."]
        assert reply.recorded[0].event.content == "toy that flies."

    assert run_async(tmp_path, work) == [("toy that flies.", None)]


@pytest.mark.parametrize(
    "end, recorded",
    [("end", [("One", None)]), ("cancel", [("One", True)]), ("drop", [])],
)
def test_an_async_reply_is_ended(tmp_path, end, recorded):
    async def work(history):
        async with history.stream_reply() as reply:
            await reply.feed("One")
            assert reply.text == "One"
            await getattr(reply, end)()
            assert reply.is_closed

    assert run_async(tmp_path, work) == recorded


@pytest.mark.parametrize("end, cut", [("append", None), ("append_cut", True)])
def test_an_unfinished_async_reply_is_appended(tmp_path, end, cut):
    async def work(history):
        await history.stream_reply().feed("One")
        unfinished = await history.unfinished_reply()
        await getattr(unfinished, end)()

    assert run_async(tmp_path, work) == [("One", cut)]


def test_a_repeated_async_reply_is_not_written(tmp_path):
    async def work(history):
        for words in (["A", "B"], []):
            reply = history.stream_reply(["A", "B"], idempotency_key="step-1")
            assert [chunk async for chunk in reply] == words

    assert run_async(tmp_path, work) == [("AB", None)]


def test_a_cancelled_task_records_what_was_read(tmp_path):
    async def work(history):
        read = asyncio.Event()

        async def source():
            yield "A toy"
            read.set()
            await asyncio.sleep(60)

        async def read_all():
            async for _ in history.stream_reply(source()):
                pass

        task = asyncio.create_task(read_all())
        await read.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert run_async(tmp_path, work) == [("A toy", True)]


# -- names and bytes


def test_a_streamed_reply_has_only_the_names_that_a_program_calls():
    public = {name for name in vars(StreamedReply) if not name.startswith("_")}
    assert public == {"begin", "feed", "end", "cancel", "drop", "text", "is_closed"}


def test_the_chunks_of_an_ended_reply_leave_no_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "KEPT_S", -1)
    pieces = [f"a text of 20 chars {number:05} " for number in range(1_000)]
    message = {"role": "assistant", "content": "".join(pieces)}
    sizes = []
    for name in ("streamed", "whole"):
        path = tmp_path / f"{name}.db"
        with foldlog.open(path) as histories:
            history = histories["c"]
            history.append({"role": "user", "content": "what is a kite?"})
            if name == "streamed":
                with history.stream_reply() as reply:
                    for piece in pieces:
                        reply.feed(piece)
            else:
                history.append_reply({"choices": [{"index": 0, "message": message}]})
            histories.maintenance.vacuum()
            assert history.tail(1)[0].content == message["content"]
        sizes.append(path.stat().st_size)
    assert sizes[0] == sizes[1]
