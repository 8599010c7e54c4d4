"""The formats in which adapters store what their SDKs write: an event for each part of a message,
and back.
"""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

import foldlog
from foldlog._figures.shown import collect_stats
from foldlog._formats.imported_calls import calls_of_imported
from foldlog._formats.record import within
from foldlog._formats.registry import format_named
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage, codec
from foldlog.formats import Encoder, decode, detect
from foldlog.projections import View, well_formed
from tests.foldlog.formats.writing import written
from tests.foldlog.records import records_of, used

FORMATS = (
    "langchain",
    "openai-responses",
    "pydantic-ai",
    "google-adk",
    "agent-framework",
    "strands",
)
RECORDS = {name: records_of(name) for name in FORMATS}


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


BLOCKS_OF_LANGCHAIN = [
    ({"type": "image", "url": "https://x/a.png", "id": "i"}, "https://x/a.png"),
    ({"type": "image", "base64": "AA==", "mime_type": "image/png"}, "data:image/png;base64,AA=="),
    (
        {"type": "image", "source_type": "base64", "data": "AA==", "mime_type": "image/png"},
        "data:image/png;base64,AA==",
    ),
    ({"type": "text-plain", "text": "kite"}, "kite"),
    (
        {"type": "file", "base64": "AA==", "mime_type": "application/pdf"},
        "data:application/pdf;base64,AA==",
    ),
    ({"type": "audio", "url": "https://x/a.wav", "mime_type": "audio/wav"}, "https://x/a.wav"),
    ({"type": "file", "file_id": "file-7"}, "file-7"),
    ({"type": "non_standard", "value": {"type": "gull", "text": "far"}}, "far"),
]


@pytest.mark.parametrize("block, told", BLOCKS_OF_LANGCHAIN)
def test_standard_blocks_of_langchain_are_sent_in_messages_and_results(block, told):
    given = [
        ("human", {}),
        ("ai", {"tool_calls": [{"name": "f", "args": {}, "id": "k", "extras": {}}]}),
    ]
    given += [("tool", {"tool_call_id": "k"})]
    said = [
        {"type": "tool_call", "name": "f", "args": {}, "id": "k"},
        {"type": "reasoning", "reasoning": "hm"},
    ]
    records = [
        {"type": kind, "data": {"content": [block], "type": kind, **more}} for kind, more in given
    ]
    records[1]["data"]["content"] = said
    asked, called, answered = events = list(decode(records, "langchain"))
    assert (called.thought, called.thinking[0]["thinking"]) == ("", "hm")
    assert answered.content == asked.content
    for event in (asked, answered):
        assert told in json.dumps(event.content)
    sent = View.from_events(events).to_messages("responses")
    assert [told in json.dumps(each) for each in sent] == [True, False, True]


def test_messages_of_langchain_are_recognized_without_what_most_have():
    bare = {"type": "human", "data": {"content": "hi", "type": "human"}}
    assert (
        detect([bare, {"type": "ai", "data": {"content": "", "type": "ai", "tool_calls": []}}])
        == "langchain"
    )
    others = (
        {"type": "user.message", "data": {"content": "hi", "type": "user.message"}},
        {**bare, "type": "ai"},
    )
    for other in others:
        with pytest.raises(ValueError, match="format"):
            detect([other])


PARTS = [
    Annotation,
    Message,
    Action,
    Action,
    Observation,
    Observation,
    Annotation,
    Annotation,
    Message,
]


@pytest.mark.parametrize(
    "format, first, ids, response",
    [("pydantic-ai", SystemMessage, "01a1-", "01a1-1"), ("google-adk", Message, "e", "e1")],
)
def test_each_part_is_one_event_of_its_kind(format, first, ids, response):
    events = list(decode(RECORDS[format][:6], format))
    assert [type(event) for event in events] == [first, Message, *PARTS, Annotation, Annotation]
    assert [event.shown for event in events].index(False) == (12 if format == "pydantic-ai" else 11)
    assert sum(event.shown for event in events) == 12
    assert [event.origin.id for event in events if event.origin.id is not None] == [
        f"{ids}{n}" for n in range(6)
    ]
    assert {event.response_id for event in of(Action, events)} == {response}
    assert [event.stays_with_next for event in events] == [place == 2 for place in range(13)]
    image = events[1].content[1 if format == "pydantic-ai" else 0]
    assert image["image_url"]["url"] == "data:image/png;base64,AP8="


@pytest.mark.parametrize(
    "format, of_image, of_file, of_link",
    [
        (
            "pydantic-ai",
            {"data": "//8=", "media_type": "image/png", "vendor_metadata": None, "kind": "binary"},
            {
                "data": "JQ==",
                "media_type": "application/pdf",
                "vendor_metadata": None,
                "kind": "binary",
            },
            {
                "url": "https://a/b.png",
                "force_download": False,
                "vendor_metadata": None,
                "kind": "image-url",
            },
        ),
        (
            "google-adk",
            {"inline_data": {"data": "//8=", "mime_type": "image/png"}},
            {"inline_data": {"data": "JQ==", "mime_type": "application/pdf"}},
            {"file_data": {"file_uri": "https://a/b.png", "mime_type": "image/*"}},
        ),
        (
            "strands",
            {
                "image": {
                    "format": "png",
                    "source": {"bytes": {"__bytes_encoded__": True, "data": "//8="}},
                }
            },
            {
                "document": {
                    **{"name": "file", "format": "pdf"},
                    "source": {"bytes": {"__bytes_encoded__": True, "data": "JQ=="}},
                }
            },
            None,
        ),
        (
            "agent-framework",
            {"type": "data", "uri": "data:image/png;base64,//8=", "media_type": "image/png"},
            {
                "type": "data",
                "uri": "data:application/pdf;base64,JQ==",
                "media_type": "application/pdf",
            },
            {"type": "uri", "uri": "https://a/b.png", "media_type": "image/*"},
        ),
        (
            "openai-responses",
            {"type": "input_image", "image_url": "data:image/png;base64,//8="},
            {
                "type": "input_file",
                "filename": "file",
                "file_data": "data:application/pdf;base64,JQ==",
            },
            {"type": "input_image", "image_url": "https://a/b.png"},
        ),
        (
            "anthropic-messages",
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "//8="},
            },
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JQ=="},
            },
            {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        ),
    ],
)
def test_files_of_a_result_are_written_as_files_of_the_format_and_read_as_files(
    format, of_image, of_file, of_link
):
    urls = ("data:image/png;base64,//8=", "https://a/b.png")
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JQ=="}}
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    call = Action(id=0, tool="look", arguments={}, call_id="c1")
    told = ({"type": "text", "text": "see"}, *images, pdf)
    records = [
        *written(
            [call, Observation(id=1, tool="look", call_id="c1", cause=0, content=told)], format
        )
    ]
    texts = json.dumps(records[1])
    assert all(json.dumps(each) in texts for each in (of_image, of_file, of_link) if each)
    assert '"image_url": {' not in texts
    (result,) = of(Observation, decode(records, format))
    assert [each for each in result.content if each in images] == images[: 2 if of_link else 1]


@pytest.mark.parametrize("format", ["openai-responses", "openai-chat"])
def test_a_file_keeps_its_name(format):
    held = "data:application/pdf;base64,JQ=="
    for file, named in (
        ({"filename": "report.pdf", "file_data": held}, True),
        ({"file_data": held}, False),
    ):
        said = Message(id=0, source="user", content=({"type": "file", "file": file},))
        assert ('"filename": "report.pdf"' in json.dumps([*written([said], format)])) is named


def test_events_of_the_adk_have_their_times_and_errors():
    events = list(decode(RECORDS["google-adk"][:6], "google-adk"))
    assert [event.is_error for event in of(Observation, events)] == [False, True]
    assert events[0].timestamp.timestamp() == RECORDS["google-adk"][0]["timestamp"]


def adk(number, text=None, **actions):
    """An event of the ADK in the invocation ``i`` + its number."""
    event = {
        "author": "user",
        "invocation_id": f"i{number}",
        "id": f"e{number}",
        "timestamp": 1_000.5 + number,
    }
    return (
        event
        | {"actions": actions}
        | ({} if text is None else {"content": {"parts": [{"text": text}]}})
    )


def compacted(number, first, last):
    times = {"start_timestamp": 1_000.5 + first, "end_timestamp": 1_000.5 + last}
    content = {
        "parts": [{"text": "hm", "thought": True}, {"text": f"{first} to {last}"}],
        "role": "model",
    }
    return adk(number, compaction={**times, "compacted_content": content})


@pytest.mark.parametrize("actions", [{}, {"actions": None}, {"actions": {}}])
@pytest.mark.parametrize("invocation", ["invocation_id", "invocationId"])
def test_events_of_the_adk_are_recognized_without_actions(actions, invocation):
    records = [
        {"author": "user", invocation: "i", "content": {"parts": [{"text": "hi"}]}, **actions}
    ] * 2
    assert detect(records) == "google-adk"


@pytest.mark.parametrize("together", [1, 2, 100])
def test_compactions_and_rewinds_of_the_adk_change_the_view(together):
    records = [
        *(adk(number, f"turn {number}") for number in range(4)),
        compacted(4, 0, 2),
        adk(5, "turn 5"),
    ]
    rewinds = [
        adk(6, rewind_before_invocation_id="i3"),
        adk(7, "turn 7"),
        adk(8, rewind_before_invocation_id="i6"),
    ]
    later = [compacted(9, 1, 1), compacted(10, 2, 3), compacted(11, 0, 5), compacted(12, 11, 12)]
    shown = [
        "0 to 2, turn 3, turn 5",
        "turn 0, turn 1, turn 2",
        "0 to 2, turn 3, turn 5",
        "0 to 5, 11 to 12",
    ]
    records = [*records, *rewinds, *later]
    with foldlog.open("memory:") as histories:
        for count, expected in zip((6, 7, 9, 13), shown, strict=True):
            history = histories[f"c{count}"]
            for start in range(0, count, together):
                history.append_records(
                    records[start : min(start + together, count)], format="google-adk"
                )
            assert ", ".join(event.content for event in history.view()) == expected
            assert (
                written(history.events(), "google-adk", history._stored_records())
                == records[:count]
            )


@pytest.mark.parametrize(
    "compaction", [None, 1, {}, {"start_timestamp": 1.0, "end_timestamp": "x"}]
)
def test_a_compaction_of_the_adk_that_is_none_is_an_annotation(compaction):
    (event,) = decode([adk(1, compaction=compaction)], "google-adk")
    assert isinstance(event, Annotation)


WITH_USAGE = {
    "strands": (
        "inputTokens outputTokens",
        lambda used: {
            "message": {
                "role": "assistant",
                "content": [{"text": "hi"}],
                "metadata": {"usage": used},
            },
            "message_id": 1,
        },
    ),
    "google-adk": (
        "prompt_token_count candidates_token_count",
        lambda used: adk(1, "hi") | {"usage_metadata": used},
    ),
    "pydantic-ai": (
        "input_tokens output_tokens",
        lambda used: {
            "kind": "response",
            "parts": [{"part_kind": "text", "content": "hi"}],
            "usage": used,
        },
    ),
    "langchain": (
        "input_tokens output_tokens",
        lambda used: {
            "type": "ai",
            "data": {"content": "hi", "type": "ai", "usage_metadata": used},
        },
    ),
    "anthropic-messages": (
        "input_tokens output_tokens",
        lambda used: {
            "role": "assistant",
            "content": [{"type": "text", "text": "hi"}],
            "usage": used,
        },
    ),
    "gemini-cli": (
        "input output",
        lambda used: {
            "id": "g1",
            "timestamp": "",
            "type": "gemini",
            "content": "hi",
            "tokens": used,
        },
    ),
    "pi": (
        "input output",
        lambda used: {
            "type": "message",
            "id": "a",
            "message": {"role": "assistant", "content": [], "usage": used},
        },
    ),
    "opencode": (
        "input output",
        lambda used: {
            "info": {"id": "m", "sessionID": "s", "role": "assistant", "tokens": used},
            "parts": [],
        },
    ),
    "inspect-eval": (
        "input_tokens output_tokens",
        lambda used: {"id": "s-1", "epoch": 1, "model_usage": {"m": used}},
    ),
}
"""The names that a format has for the tokens of a prompt and a reply, and a record with such
counts.
"""


@pytest.mark.parametrize(
    "format, counts, usage",
    [
        ("strands", {"cacheReadInputTokens": 30, "totalTokens": 43}, (40, 30, None, 3, None)),
        ("strands", {"cacheReadInputTokens": 30, "totalTokens": 73}, (70, 30, None, 3, None)),
        (
            "strands",
            {"cacheReadInputTokens": 30, "cacheWriteInputTokens": 2, "totalTokens": 75},
            (72, 30, 2, 3, None),
        ),
        (
            "google-adk",
            {"tool_use_prompt_token_count": 5, "thoughts_token_count": 2},
            (45, None, None, 5, 2),
        ),
        (
            "pydantic-ai",
            {"cache_read_tokens": 30, "details": {"output_reasoning_tokens": 2}},
            (40, 30, None, 3, 2),
        ),
        (
            "pydantic-ai",
            {"details": {"reasoning_tokens": 2, "input_tokens": 1}},
            (40, None, None, 3, 2),
        ),
        (
            "langchain",
            {"input_token_details": {"cache_read": 30}, "total_tokens": 43},
            (40, 30, None, 3, None),
        ),
        (
            "anthropic-messages",
            {"cache_read_input_tokens": 30, "cache_creation_input_tokens": 2},
            (72, 30, 2, 3, None),
        ),
        ("gemini-cli", {"tool": 5, "thoughts": 2, "cached": 30}, (45, 30, None, 5, 2)),
        ("pi", {"cacheRead": 30, "cacheWrite": 2}, (72, 30, 2, 3, None)),
        ("opencode", {"reasoning": 2, "cache": {"read": 30, "write": 2}}, (72, 30, 2, 5, 2)),
        (
            "inspect-eval",
            {"input_tokens_cache_read": 30, "reasoning_tokens": 2, "total_tokens": 75},
            (70, 30, None, 5, 2),
        ),
        (
            "inspect-eval",
            {"input_tokens_cache_read": 30, "total_tokens": 43},
            (40, 30, None, 3, None),
        ),
        (
            "inspect-eval",
            {"input_tokens_cache_read": 30, "reasoning_tokens": 2, "total_tokens": 45},
            (40, 30, None, 5, 2),
        ),
        (
            "inspect-eval",
            {"input_tokens_cache_read": 30, "total_tokens": 78},
            (70, 30, None, 3, None),
        ),
    ],
)
def test_a_prompt_and_a_reply_are_whole_however_a_source_counts_their_parts(format, counts, usage):
    names, record = WITH_USAGE[format]
    prompt, reply = names.split()
    events = decode([record({prompt: 40, reply: 3, **counts})], format)
    kinds = ("prompt", "cached", "cache_write", "completion", "reasoning")
    told = {
        f"{kind}_tokens": count
        for kind, count in zip(kinds, usage, strict=True)
        if count is not None
    }
    assert [event.meta["usage"] for event in events if "usage" in event.meta] == [told]


def test_usage_is_that_of_the_response():
    usage = {"prompt_token_count": 40, "candidates_token_count": 9, "thoughts_token_count": 2}
    record = adk(1, "hi") | {
        "usage_metadata": {**usage, "cached_content_token_count": 7},
        "model_version": "m",
    }
    (event,) = decode([record], "google-adk")
    counts = {"prompt_tokens": 40, "completion_tokens": 11, "cached_tokens": 7}
    assert event.meta == {"usage": {**counts, "reasoning_tokens": 2}, "model": "m"}
    usage = {"input_tokens": 40, "output_tokens": 11, "cache_read_tokens": 7, "cost": "0.25"}
    record = {
        "kind": "response",
        "parts": [{"part_kind": "text", "content": "hi"}],
        "usage": usage,
        "model_name": "m",
    }
    with foldlog.open("memory:") as histories:
        (recorded,) = histories["c1"].append_records([record], format="pydantic-ai")
        assert recorded.event.meta == {"usage": counts, "model": "m", "cost": 0.25}
        (call,) = calls_of_imported([recorded.event], "pydantic-ai")
        assert used(call) == (40, 7, 11, 0.25)


def test_the_usage_of_a_live_event_without_a_time_is_of_the_day_of_its_recording():
    usage = {"input_tokens": 40, "output_tokens": 9, "total_tokens": 49}
    record = {
        "type": "ai",
        "data": {"content": "hi", "type": "ai", "usage_metadata": usage, "id": "r1"},
    }
    with foldlog.open("memory:") as histories:
        (recorded,) = histories["c1"].append_records([record], format="langchain")
        ((day, _),) = collect_stats(histories.store, ["c1"], views=histories.views).models
        assert day == recorded.recorded_at.date().isoformat()


@pytest.mark.parametrize(
    "format, count, roles",
    [
        ("openai-responses", 8, "user assistant tool assistant tool assistant"),
        ("pydantic-ai", 4, "system user assistant tool tool assistant"),
        ("google-adk", 4, "user assistant tool tool assistant"),
        ("strands", 4, "user assistant tool tool assistant"),
        ("agent-framework", 5, "system user assistant tool tool assistant"),
    ],
)
def test_a_view_is_sendable_and_pairs_calls_across_appends(format, count, roles):
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        for record in RECORDS[format][:count]:
            history.append_records([record], format=format)
        view = history.view()
        assert [message["role"] for message in view.to_messages()] == roles.split()
        assert list(well_formed(view)) == list(view)
        (thought,) = [event.id for event in view if event.stays_with_next]
        assert thought + 1 not in view.cut_points


@pytest.mark.parametrize("together", [1, 3, 10])
def test_calls_of_one_response_are_together_in_items_as_from_openai_has_them(together):
    asked, called, answered = "message:", "function_call:", "function_call_output:"
    told = [
        asked,
        "reasoning:",
        f"{called}a",
        f"{called}b",
        f"{answered}a",
        f"{answered}b",
        f"{called}c",
    ]
    told += [f"{answered}c", asked, f"{called}d", f"{answered}d"]
    fields = {
        "message": {"role": "user", "content": "go"},
        "reasoning": {"id": "rs_1", "summary": []},
        "function_call": {"name": "f", "arguments": "{}"},
        "function_call_output": {"output": "x"},
    }
    items = [
        {"type": kind, "call_id": of, **fields[kind]}
        for kind, _, of in (each.partition(":") for each in told)
    ]
    with foldlog.open("memory:") as histories:
        for start in range(0, len(items), together):
            histories["c"].append_records(
                items[start : start + together], format="openai-responses"
            )
        histories["d"].append(foldlog.from_openai(items))
        for name in "cd":
            sent = histories[name].view().to_messages("responses")
            assert [
                f"{item.get('type', 'message')}:{item.get('call_id') or ''}" for item in sent
            ] == told


def longer(value):
    """A value in which each text that says something is long."""
    if isinstance(value, list):
        return [longer(each) for each in value]
    if isinstance(value, dict):
        said = ("content", "text", "output", "result", "arguments")
        return {
            key: "word " * 160 if key in said and isinstance(each, str) else longer(each)
            for key, each in value.items()
        }
    return value


@pytest.mark.parametrize("format", FORMATS)
def test_what_agents_write_takes_little_more_than_it_took(format):
    records = longer(RECORDS[format][:8])
    stored = sum(len(codec.encode(event).body) for event in decode(records, format))
    assert stored <= 1.16 * sum(len(json.dumps(one, separators=(",", ":"))) for one in records)


def test_a_part_of_a_history_is_written_and_a_part_of_a_message_is_not():
    messages = RECORDS["pydantic-ai"]
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append_records(messages, format="pydantic-ai")
        events, stored = list(history.events()), history._stored_records()
        starts = [event.id for event in events if event.origin.id is not None]
        for number, start in enumerate(starts):
            part = written(events[start:], "pydantic-ai", stored)
            assert part[: len(starts) - number] == messages[number : len(starts)]
        with pytest.raises(ValueError, match="record of 4 events, but only 2 of them are exported"):
            written(events[:4], "pydantic-ai", stored)


def of_langchain(message):
    data = message["data"]
    return message["type"], data.get("tool_calls") or None, data.get("tool_call_id"), data["name"]


def of_pydantic(message):
    (part,) = message["parts"]
    return message["kind"], part["part_kind"], part.get("tool_call_id"), part.get("outcome")


def of_the_adk(event):
    (part,) = event["content"]["parts"]
    return (
        event["author"],
        event["content"]["role"],
        part.get("function_call"),
        part.get("function_response"),
    )


def of_the_agent_framework(message):
    (content,) = message["contents"]
    return message["role"], content["type"], content.get("call_id"), content.get("arguments")


LANGCHAINS_CALL = {"name": "run", "args": {"a": 1}, "id": "call_2", "type": "tool_call"}
WRITTEN = {
    "langchain": (
        of_langchain,
        [
            ("system", None, None, None),
            ("human", None, None, None),
            ("ai", [LANGCHAINS_CALL], None, None),
            ("tool", None, "call_2", "run"),
            ("ai", None, None, None),
        ],
    ),
    "openai-responses": (
        dict,
        [
            {"content": "be brief", "role": "system"},
            {"content": [{"type": "input_image", "image_url": "https://x/y.png"}], "role": "user"},
            {"content": "let me see", "role": "assistant", "phase": "commentary"},
            {
                "arguments": '{"a": 1}',
                "call_id": "call_2",
                "name": "run",
                "type": "function_call",
                "status": "completed",
            },
            {"call_id": "call_2", "output": "done", "type": "function_call_output"},
            {"content": "fine", "role": "assistant"},
        ],
    ),
    "pydantic-ai": (
        of_pydantic,
        [
            ("request", "system-prompt", None, None),
            ("request", "user-prompt", None, None),
            ("response", "tool-call", "call_2", None),
            ("request", "tool-return", "call_2", "failed"),
            ("response", "text", None, None),
        ],
    ),
    "google-adk": (
        of_the_adk,
        [
            ("user", "user", None, None),
            ("user", "user", None, None),
            ("agent", "model", {"id": "call_2", "args": {"a": 1}, "name": "run"}, None),
            ("agent", "user", None, {"id": "call_2", "name": "run", "response": {"error": "done"}}),
            ("agent", "model", None, None),
        ],
    ),
    "agent-framework": (
        of_the_agent_framework,
        [
            ("system", "text", None, None),
            ("user", "uri", None, None),
            ("assistant", "function_call", "call_2", '{"a": 1}'),
            ("tool", "function_result", "call_2", None),
            ("assistant", "text", None, None),
        ],
    ),
    "strands": (
        lambda each: (each["message"]["role"], next(iter(each["message"]["content"][0].values()))),
        [
            ("user", "be brief"),
            ("assistant", {"toolUseId": "call_2", "name": "run", "input": {"a": 1}}),
            ("user", {"toolUseId": "call_2", "status": "error", "content": [{"text": "done"}]}),
            ("assistant", "fine"),
        ],
    ),
}
"""What is looked at in a record of events of ours, and what it is."""


@pytest.mark.parametrize("format", WRITTEN)
def test_events_of_ours_are_written_as_the_sdk_would(format):
    thought = {"thought": "let me see"} if format in ("langchain", "openai-responses") else {}
    events = [
        SystemMessage(id=0, content="be brief"),
        Message(
            id=1,
            source="user",
            content=({"type": "image_url", "image_url": {"url": "https://x/y.png"}},),
        ),
        Action(id=2, tool="run", arguments={"a": 1}, **thought),
        Observation(id=3, content="done", cause=2, tool="run", is_error=True),
        Message(id=4, source="agent", content="fine"),
    ]
    seen, expected = WRITTEN[format]
    assert list(map(seen, written(events, format))) == expected


SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
THINKING = [SIGNED, {"type": "thinking", "thinking": "so"}]
THINKING += [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "in short"}]}
]
NO_PROVIDER = {"id": None, "provider_name": None, "provider_details": None, "signature": None}
TEXTS = ("hm", "so", "in short")
OF_STRANDS = [{"text": "hm", "signature": "c2ln"}, *({"text": text} for text in TEXTS[1:])]
OF_PYDANTIC = (
    {**NO_PROVIDER, "signature": "c2ln", "provider_name": "anthropic"},
    NO_PROVIDER,
    NO_PROVIDER,
)
THOUGHT = {
    "langchain": (lambda record: record["data"]["content"], THINKING),
    "pydantic-ai": (
        lambda record: record["parts"],
        [
            {"content": text, "part_kind": "thinking", **more}
            for text, more in zip(TEXTS, OF_PYDANTIC, strict=True)
        ],
    ),
    "google-adk": (
        lambda record: record["content"]["parts"],
        [
            {"text": "hm", "thought": True, "thought_signature": "YzJsbg=="},
            *({"text": text, "thought": True} for text in TEXTS[1:]),
        ],
    ),
    "agent-framework": (
        lambda record: [{**each, "additional_properties": {}} for each in record["contents"]],
        [
            {"type": "text_reasoning", "text": text, **signed, "additional_properties": {}}
            for text, signed in zip(TEXTS, [{"protected_data": "c2ln"}, {}, {}], strict=True)
        ],
    ),
    "strands": (
        lambda record: record["message"]["content"],
        [{"reasoningContent": {"reasoningText": each}} for each in OF_STRANDS],
    ),
}
"""Where a record has what the model thought, what stands there of these blocks."""


@pytest.mark.parametrize("format", THOUGHT)
@pytest.mark.parametrize("calls", [True, False])
def test_the_thinking_before_a_message_or_a_call_of_ours_is_written(format, calls):
    told = {"thinking": tuple(THINKING)}
    event = (
        Action(tool="run", thought="I look", **told)
        if calls
        else Message(source="agent", content="I look", **told)
    )
    parts, expected = THOUGHT[format]
    (record,) = written([replace(event, id=0)], format)
    assert parts(record)[: len(expected)] == expected
    assert "I look" in str(parts(record)[len(expected)])
    again = list(decode([record], format))
    again += [Observation(id=len(again), cause=again[-1].id, content="so")] if calls else []
    sent = [
        each
        for each in View.from_events(again).to_messages("anthropic")
        if each["role"] == "assistant"
    ]
    kinds = ["thinking", "text", *["tool_use"] * calls]
    assert [
        ([block["type"] for block in each["content"]], each["content"][0]) for each in sent
    ] == [(kinds, SIGNED)]


@pytest.mark.parametrize("format", ["pydantic-ai", "google-adk", "agent-framework", "strands"])
def test_what_stays_of_a_redacted_message_is_one_message_without_its_words(format):
    parts, _ = THOUGHT[format]
    call = Action(id=0, tool="run", arguments={"of": "kite"}, call_id="k", thinking=(SIGNED,))
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append_records(written([call], format), format=format)
        history.redact(1, reason="asked to")
        (left,) = written(history.events(), format, history._stored_records())
    assert len(parts(left)) == 2
    assert re.search("hm|kite|c2ln", json.dumps(left)) is None
    assert '"k"' in json.dumps(left)


OF_OTHERS = [
    (
        "pydantic-ai",
        {"content": "hm", "part_kind": "thinking", "signature": "c2ln", "provider_name": "openai"},
    ),
    (
        "pydantic-ai",
        {"content": "hm", "part_kind": "thinking", "signature": "c2ln", "provider_name": "bedrock"},
    ),
    ("google-adk", {"text": "hm", "thought": True, "thought_signature": "_gA="}),
    (
        "agent-framework",
        {"type": "text_reasoning", "text": "hm", "protected_data": '[{"data": "c2ln"}]'},
    ),
]


REDACTED = {"type": "redacted_thinking", "data": "c2ln"}
CLAUDE_ON_BEDROCK = {"provider_name": "bedrock", "model_name": "us.anthropic.claude-sonnet-4"}
OF_CLAUDE = [
    (
        "strands",
        {"reasoningContent": {"redactedContent": {"__bytes_encoded__": True, "data": "c2ln"}}},
        REDACTED,
        {},
    ),
    ("google-adk", {"thought": True, "thought_signature": "YzJsbg=="}, REDACTED, {}),
    *(
        (
            "pydantic-ai",
            {"content": text, "part_kind": "thinking", "signature": "c2ln", **of},
            block,
            record,
        )
        for text, block, name in (("hm", SIGNED, None), ("", REDACTED, "redacted_content"))
        for of, record in (
            ({"id": name, "provider_name": "bedrock"}, {"canonical_system": "anthropic"}),
            ({"id": name, "provider_name": "bedrock"}, CLAUDE_ON_BEDROCK),
        )
    ),
    (
        "pydantic-ai",
        {**OF_PYDANTIC[0], "content": "", "id": "redacted_thinking", "part_kind": "thinking"},
        REDACTED,
        {},
    ),
]


@pytest.mark.parametrize("format, part, block, more", OF_CLAUDE)
def test_what_claude_thought_goes_back_and_starts_a_tool_loop(format, part, block, more):
    (record,) = written([Action(id=0, tool="run", thought="I look", thinking=(block,))], format)
    parts = within(record, *format_named(format).parts)
    assert len(parts) == 3
    if not more:
        assert parts[0] == part
    parts[0] = part
    asked = Message(id=0, source="user", content="look")
    events = [asked, *[replace(each, id=each.id + 1) for each in decode([record | more], format)]]
    events += [
        Observation(id=4, cause=3, content="so"),
        Action(id=5, tool="run"),
        Observation(id=6, cause=5, content="x"),
    ]
    view = View.from_events(events)
    assert view.to_messages("anthropic")[1]["content"][0] == block
    assert view.cut_points == (0, 1, 7)


@pytest.mark.parametrize("format, part", OF_OTHERS)
def test_the_signature_of_another_provider_is_not_sent_to_anthropic(format, part):
    (record,) = written([Action(id=0, tool="run", thinking=(SIGNED,))], format)
    within(record, *format_named(format).parts)[0] = part
    events = [*decode([record], format), Observation(id=2, cause=1, content="so")]
    assert [each.data for each in of(Annotation, events)] == [
        {"type": "thinking", "thinking": "hm"}
    ]
    assert "c2ln" not in json.dumps(View.from_events(events).to_messages("anthropic"))


def in_camel_case(record):
    """Return a record of the ADK as its server writes it."""
    if isinstance(record, list):
        return list(map(in_camel_case, record))
    if not isinstance(record, dict):
        return record
    named = {re.sub("_([a-z])", lambda found: found[1].upper(), key): key for key in record}
    return {
        new: (
            record[old]
            if old in ("args", "response", "state_delta")
            else in_camel_case(record[old])
        )
        for new, old in named.items()
    }


def test_events_of_the_adk_are_read_as_its_server_writes_them():
    records = [*RECORDS["google-adk"], adk(1, "turn 1"), adk(2, "turn 2"), compacted(3, 1, 1)]
    answered = {
        "function_response": {
            "name": "f",
            "response": {"aB": 1},
            "parts": [{"inline_data": IN_LINE}],
        }
    }
    records += [
        adk(4) | {"content": {"parts": [answered]}},
        adk(5, rewind_before_invocation_id="i2"),
    ]
    records[0]["usage_metadata"] = {"prompt_token_count": 7}
    written = [in_camel_case(record) for record in records]
    assert written[1]["content"]["parts"][2]["functionCall"]["args"] == {"unit": "km"}
    assert detect(written) == "google-adk"
    assert [as_read(event) for event in decode(written, "google-adk")] == [
        as_read(event) for event in decode(records, "google-adk")
    ]
    with foldlog.open("memory:") as histories:
        for record in written:
            histories["c1"].append_records([record], format="google-adk")
        events = [as_read(event) for event in histories["c1"].events()]
    assert events == [as_read(event) for event in decode(records, "google-adk")]


IN_LINE = {"mime_type": "image/png", "data": "_9j_"}


def as_read(event):
    """Return an event without its record."""
    return replace(event, origin=None, meta=dict(event.meta))


def test_the_tokens_of_messages_are_counted():
    usage = {
        "input_tokens": 10,
        "output_tokens": 2,
        "total_tokens": 12,
        "input_token_details": {"cache_read": 4},
    }
    data = {
        "content": "fine",
        "type": "ai",
        "usage_metadata": usage,
        "response_metadata": {"model_name": "m"},
    }
    said = {"type": "ai", "data": data}
    silent = {"type": "ai", "data": {**data, "usage_metadata": None}}
    with foldlog.open("memory:") as histories:
        histories["c1"].append_records([said, silent, said], format="langchain")
        (figures,) = histories["c1"].stats().models.items()
    (_, model), counted = figures
    assert (model, counted.calls) == ("m", 2)
    assert (counted.prompt_tokens, counted.cached_tokens, counted.completion_tokens) == (20, 8, 4)


def test_whole_responses_as_mini_swe_agent_keeps_them_are_their_items_and_what_they_cost():
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look"}],
    }
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "bash", "arguments": "{}"}
    used_up = {
        "model": "m",
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "extra": {"cost": 0.5},
    }
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "z"}
    response = {"object": "response", "id": "resp", "output": [thought, said, call], **used_up}
    output = {"object": "item", "output": [{"type": "input_text", "text": "a.py"}]}
    result = {"type": "function_call_output", "call_id": "c", **output, "extra": {"returncode": 1}}
    records = [
        {"role": "user", "content": "fix"},
        response,
        result,
        {"role": "exit", "content": "done"},
    ]
    assert detect(records) == "openai-responses"
    events = list(decode(records, "openai-responses"))
    sources = [
        getattr(event, "source", None) for event in events if not isinstance(event, Annotation)
    ]
    assert sources == ["user", "agent", "agent", "environment", "environment"]
    roles = [message["role"] for message in View.from_events(events).to_messages()]
    assert roles == ["user", "assistant", "tool", "user"]
    assert thought in View.from_events(events).to_messages("responses")
    assert [event.is_error for event in events if isinstance(event, Observation)] == [True]
    assert list(map(used, calls_of_imported(events, "openai-responses"))) == [(10, None, 5, 0.5)]
    info = {"model_stats": {"instance_cost": 0.7, "api_calls": 2}}
    assert format_named("openai-responses").beside({"info": info}, records) == (
        (),
        [{"cost": 0.7, "calls": 2}],
    )
    twice = decode(
        [response, {**response, "output": [said, {**call, "call_id": "d"}]}], "openai-responses"
    )
    assert len({event.response_id for event in twice if isinstance(event, Action)}) == 2


def test_a_result_whose_content_a_condenser_changed_is_an_output_item():
    asked = {
        "type": "function_call",
        "id": "f",
        "call_id": "c",
        "name": "measure",
        "arguments": "{}",
    }
    output = [{"type": "input_text", "text": "9 km"}]
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append_records(
            [asked, {"type": "function_call_output", "call_id": "c", "output": output}],
            format="openai-responses",
        )
        call, result = history.events()
        encoder = Encoder("openai-responses", stored=history._stored_records())
        assert encoder.shown([call], [call]) == [asked]
        (shown,) = encoder.shown([replace(result, content="cleared")], [result])
    assert (shown["type"], shown["call_id"], shown["output"]) == (
        "function_call_output",
        "c",
        "cleared",
    )
