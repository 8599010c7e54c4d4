"""Spans of models as histories: what was sent is read once, and what a later span no longer sends
is taken back.
"""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog import open as open_histories
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog.formats import NotAHistory, SourceRefused, decode, detect, encode
from foldlog.projections import View
from tests.foldlog.archive.imports import bytes_of, new_store
from tests.foldlog.formats.reading import histories_at

NAME = "otlp-genai"


def wrapped(value):
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [wrapped(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def pairs(attributes):
    return [{"key": key, "value": wrapped(value)} for key, value in attributes.items()]


def span(name, at, parent=None, trace="5b8e", events=(), ends=None, **attributes):
    told = {
        f"gen_ai.{key.replace('__', '.')}": value
        for key, value in attributes.items()
        if value is not None
    }
    return {
        **{"traceId": trace, "spanId": name, "name": name, "kind": 3, "flags": 1},
        **({} if parent is None else {"parentSpanId": parent}),
        **{
            "startTimeUnixNano": str(at * 10**9),
            "endTimeUnixNano": str(int((ends or at + 0.5) * 10**9)),
        },
        "attributes": pairs(told),
        "events": [
            {"name": "gen_ai.client.inference.operation.details", "attributes": pairs(each)}
            for each in events
        ],
        "status": {},
    }


def request(*spans, service="kites"):
    resource = {"attributes": pairs({"service.name": service})}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}
        ]
    }


def said(role, *parts):
    return {
        "role": role,
        "parts": [
            {"type": "text", "content": each} if isinstance(each, str) else each for each in parts
        ],
    }


def call(call_id, **given):
    return {"type": "tool_call", "id": call_id, "name": "measure", "arguments": given}


def answer(call_id, response):
    return {"type": "tool_call_response", "id": call_id, "response": response}


def chat(name, at, told, reply, **more):
    return span(
        name,
        at,
        operation__name="chat",
        input__messages=json.dumps(told),
        output__messages=json.dumps(reply),
        **more,
    )


ASKED = said("user", "how far?", {"type": "uri", "modality": "image", "uri": "https://a/b.png"})
CALLED = said(
    "assistant",
    {"type": "reasoning", "content": "hm"},
    "I look.",
    call("k1", what="sea"),
    call("k2", what="sky"),
)
AGAIN = {**CALLED, "parts": CALLED["parts"][1:], "finish_reason": None}
RESULTS = [said("tool", answer("k1", {"km": 9})), said("tool", answer("k2", "high"))]
DONE = said("assistant", "9 km")
USAGE = {"usage__input_tokens": 20, "usage__output_tokens": 3, "usage__cache_read__input_tokens": 5}
INSTRUCTIONS = [{"type": "text", "content": "Be brief."}]
SPANS = [
    chat(
        "c1",
        2,
        [ASKED],
        [{**CALLED, "finish_reason": "tool_call"}],
        parent="agent",
        response__model="m-1",
        response__id="r1",
        system_instructions=INSTRUCTIONS,
        **USAGE,
    ),
    span("t1", 3, parent="agent", operation__name="execute_tool", tool__call__id="k1"),
    chat(
        "c2",
        4,
        [ASKED, AGAIN, *RESULTS],
        [DONE],
        parent="agent",
        system_instructions=INSTRUCTIONS,
        **USAGE,
    ),
    span(
        "agent",
        1,
        ends=5,
        operation__name="invoke_agent",
        input__messages=json.dumps([ASKED]),
        usage__input_tokens=50,
    ),
]


def opened(folder, *requests, name="traces.jsonl", store=None):
    path = folder / name
    path.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
    return histories_at(path, store=store)


def read(folder, *requests):
    (history,) = opened(folder, *requests)
    assert history.findings == []
    assert detect(history.records) == NAME
    (again,) = opened(folder, *history.records)
    assert again.records == history.records
    return history.events


def texts(events):
    return [message["content"] for message in View.from_events(events).to_messages()]


def test_what_was_sent_is_read_once(tmp_path):
    events = read(tmp_path, request(*SPANS[::-1]))
    assert [type(each) for each in events] == [
        *(
            SystemMessage,
            Message,
            Action,
            Action,
            Annotation,
            Observation,
            Observation,
            Message,
            Annotation,
        )
    ]
    assert events[1].content == (
        {"type": "text", "text": "how far?"},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
    )
    one, two = events[2:4]
    assert (one.thought, one.arguments, one.response_id == two.response_id) == (
        "I look.",
        {"what": "sea"},
        True,
    )
    assert [(each.cause, each.content) for each in events[5:7]] == [
        (one.id, '{"km":9}'),
        (two.id, "high"),
    ]
    assert one.meta == {
        "model": "m-1",
        "reply": "r1",
        "usage": {"prompt_tokens": 20, "completion_tokens": 3, "cached_tokens": 5},
    }
    assert [bool(each.meta) for each in events] == [
        False,
        False,
        True,
        False,
        False,
        False,
        False,
        True,
        False,
    ]
    assert one.timestamp.isoformat() == "1970-01-01T00:00:02.500000+00:00"


def test_an_image_that_is_written_is_read_again():
    content = (
        {"type": "text", "text": "so?"},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
    )
    asked, _ = decode(encode([Message(id=0, source="user", content=content)], NAME), NAME)
    assert asked.content == content


def test_what_a_span_no_longer_sends_is_taken_back(tmp_path):
    less = chat("c3", 6, [said("user", "sum: 9 km")], [said("assistant", "18 km")])
    events = read(tmp_path, request(*SPANS, less))
    assert [type(each) for each in events[-3:]] == [Retraction, Message, Message]
    assert texts(events) == ["sum: 9 km", "18 km"]
    assert texts(events[:9])[-1] == "9 km"


def compaction(content="9 km far."):
    return {"type": "compaction", **({} if content is None else {"content": content})}


BEGUN = [
    chat(
        "c1",
        1,
        [said("user", "how far?")],
        [said("assistant", "9 km")],
        system_instructions=INSTRUCTIONS,
    ),
    chat(
        "c2",
        2,
        [said("user", "how far?"), said("assistant", "9 km"), said("user", "sure?")],
        [said("assistant", "yes")],
        system_instructions=INSTRUCTIONS,
    ),
]
SUM, ON = said("assistant", compaction()), said("user", "and back?")
LAST = [said("user", "sure?"), said("assistant", "yes")]


def later(told, reply=None, at=3, **more):
    reply = reply or [said("assistant", "18 km")]
    return chat(f"c{at}", at, told, reply, system_instructions=INSTRUCTIONS, **more)


@pytest.mark.parametrize(
    "spans, shown, kinds",
    [
        ([later([SUM, ON])], ["9 km far.", "and back?", "18 km"], [CondensationAction]),
        (
            [later([SUM, *LAST, ON])],
            ["9 km far.", "sure?", "yes", "and back?", "18 km"],
            [CondensationAction],
        ),
        ([later([*LAST, SUM, ON])], ["9 km far.", "and back?", "18 km"], [CondensationAction]),
        ([later([*LAST, ON])], ["sure?", "yes", "and back?", "18 km"], [CondensationAction]),
        ([later([said("user", "how far?"), ON])], ["how far?", "and back?", "18 km"], [Retraction]),
        (
            [later([said("user", "how far?"), ON], conversation__compacted=True)],
            ["how far?", "and back?", "18 km"],
            [CondensationAction],
        ),
        (
            [later([ON], [said("assistant", compaction(), "18 km")])],
            ["9 km far.", "18 km"],
            [Retraction, CondensationAction],
        ),
        (
            [later([SUM, ON]), later([SUM, ON, said("assistant", "18 km"), LAST[0]], [LAST[1]], 4)],
            ["9 km far.", "and back?", "18 km", "sure?", "yes"],
            [CondensationAction],
        ),
        (
            [
                later([SUM, ON]),
                later([said("assistant", compaction("27 in all.")), LAST[0]], [LAST[1]], 4),
            ],
            ["27 in all.", "sure?", "yes"],
            [CondensationAction, CondensationAction],
        ),
    ],
    ids=[
        *(
            "all",
            "but the last",
            "with what it stands for",
            "without a word",
            "taken back",
            "by the attribute",
        ),
        *("in a reply", "sent again", "twice"),
    ],
)
def test_a_compaction_is_a_condensation(tmp_path, spans, shown, kinds):
    events = read(tmp_path, request(*BEGUN, *spans))
    assert [event.content for event in View.from_events(events)] == ["Be brief.", *shown]
    assert [type(each) for each in events if each.structural] == kinds


def test_a_compaction_that_only_its_server_can_read_has_a_text_in_its_place(tmp_path):
    events = read(tmp_path, request(*BEGUN, later([said("assistant", compaction(None)), ON])))
    _, stands, *_ = View.from_events(events)
    assert "only the server" in stands.content


CONDENSED = [
    SystemMessage(id=0, content="Be brief."),
    Message(id=1, source="user", content="how far?"),
    Message(id=2, source="agent", content="9 km"),
    Message(id=3, source="user", content="sure?"),
    CondensationAction(id=4, forgotten_event_ids=(2,), summary="9 km far.", summary_offset=2),
    Message(id=5, source="agent", content="yes"),
    CondensationAction(
        id=6, forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "short"}
    ),
    Message(id=7, source="user", content="and back?"),
    CondensationAction(id=8, forgotten_event_ids=(-6, 3)),
    Message(id=9, source="agent", content="18 km"),
]


def test_a_condensation_is_written_as_a_compaction():
    records = list(encode(CONDENSED, NAME))
    attributes = [
        {
            each["key"]: each["value"]
            for each in record["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
        }
        for record in records
    ]
    assert ["gen_ai.conversation.compacted" in each for each in attributes] == [False, True, True]
    told = json.loads(attributes[1]["gen_ai.input.messages"]["stringValue"])
    assert [part["type"] for message in told for part in message["parts"]] == [
        "text",
        "text",
        "compaction",
        "text",
    ]
    again = list(decode(records, NAME))
    assert [type(each) for each in again if each.structural] == [CondensationAction] * 2
    told = json.loads(attributes[2]["gen_ai.input.messages"]["stringValue"])
    assert [part.get("content") for message in told for part in message["parts"]] == [
        *("Be brief.", "how far?", "yes", "and back?")
    ]
    assert [event.content for event in View.from_events(again)] == [
        event.content for event in View.from_events(CONDENSED)
    ]


def test_a_condensation_behind_imported_spans_is_written_as_a_compaction(foldlog, tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps(request(*BEGUN)))
    assert foldlog("import", tmp_path / "t.jsonl", "--conversation", "c").status == 0
    with open_histories("foldlog.db") as histories:
        history = histories["c"]
        ids = [event.id for event in history.view()]
        history.append(
            CondensationAction(forgotten_event_ids=ids[1:3], summary="9 km far.", summary_offset=1)
        )
        history.append(
            [Message(source="user", content="and back?"), Message(source="agent", content="18 km")]
        )
        shown = [event.content for event in history.view()]
        records = list(history.export(NAME))
    assert [event.content for event in View.from_events(decode(records, NAME))] == shown


def test_a_line_that_is_cut_is_a_finding_of_each_conversation_of_its_file(tmp_path):
    other = chat("d1", 1, [said("user", "x")], [said("assistant", "y")], trace="77")
    rows = [json.dumps(request(each)) for each in (*SPANS, other)]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join([rows[0], rows[1][:-9], *rows[2:]]))
    one, two = histories_at(path)
    assert (one.records, two.records) == (
        [request(SPANS[number]) for number in (0, 2, 3)],
        [request(other)],
    )
    assert [len(each.findings) for each in (one, two)] == [1, 1]
    assert f"{path}:2" in one.findings[0]


def test_a_file_that_grows_adds_its_new_spans_and_the_span_of_an_agent_comes_when_it_ended(
    tmp_path,
):
    early = [SPANS[0], SPANS[2]]
    with new_store() as store:
        (before,) = opened(tmp_path, request(*early), store=store)
        (grown,) = opened(tmp_path, request(*early), request(SPANS[3]), store=store)
        assert (before.added, grown.added, grown.name) == (2, 1, before.name)
        assert grown.events[: len(before.events)] == before.events
        # a span between those that are here
        (late,) = opened(tmp_path, request(*SPANS), store=store)
        assert late.name == f"{before.name}@1"
        assert texts(late.events) == texts(read(tmp_path, request(*SPANS)))


def test_no_span_is_imported_that_repeats_what_was_redacted(tmp_path):
    secret = "the key is under the third stone"
    first = chat("c1", 2, [said("user", secret)], [said("assistant", "I will not tell.")])
    path = tmp_path / "traces.jsonl"
    with foldlog.open("memory:") as histories:
        path.write_text(f"{json.dumps(request(first))}\n")
        (history,) = histories.import_(path)
        history.redact(0, reason="asked to")
        told = [said("user", secret), said("assistant", "I will not tell."), said("user", "so?")]
        with path.open("a") as file:
            file.write(f"{json.dumps(request(chat('c2', 4, told, [])))}\n")
        with pytest.raises(SourceRefused, match="its records repeat the texts of earlier records"):
            histories.import_(path)
        assert secret not in repr([*history.events()])
        assert secret.encode() not in bytes_of(histories.store, history.id)


def test_a_conversation_has_its_traces_and_an_agent_that_was_called_is_apart(tmp_path):
    nested = [
        span("sub", 5, parent="t1", operation__name="invoke_agent"),
        chat("s1", 6, [said("user", "deep")], [said("assistant", "very")], parent="sub"),
    ]
    later = chat(
        "d1",
        9,
        [ASKED, AGAIN, *RESULTS, DONE, said("user", "so?")],
        [said("assistant", "so.")],
        trace="77",
        conversation__id="conv",
        system_instructions=INSTRUCTIONS,
    )
    first = [
        {**each, "attributes": [*each["attributes"], *pairs({"gen_ai.conversation.id": "conv"})]}
        for each in SPANS
    ]
    other = span("http", 1, trace="99")
    main, sub = opened(tmp_path, request(*first, *nested, other), request(later))
    assert (main.name, sub.name) == ("conv", "conv/sub")
    assert texts(main.events)[-2:] == ["so?", "so."]
    assert texts(sub.events) == ["deep", "very"]


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "prompt__0__role": "user",
            "prompt__0__content": "far?",
            "completion__0__role": "assistant",
            "completion__0__tool_calls__0__id": "k",
            "completion__0__tool_calls__0__name": "measure",
            "completion__0__tool_calls__0__arguments": "{}",
        },
        {
            "events": [
                {
                    "gen_ai.input.messages": [said("user", "far?")],
                    "gen_ai.output.messages": [said("assistant", {**call("k"), "arguments": "{}"})],
                }
            ]
        },
    ],
)
def test_messages_are_found_wherever_instrumentations_write_them(tmp_path, attributes):
    events = read(tmp_path, request(span("a", 1, operation__name="chat", **attributes)))
    assert [(type(each), getattr(each, "tool", "")) for each in events] == [
        (Message, ""),
        (Action, "measure"),
    ]
    assert (events[1].arguments, events[1].call_id) == ("{}", "k")


def in_events(*events, does="chat"):
    told = [
        {"name": f"gen_ai.{name}", "attributes": pairs(attributes)} for name, attributes in events
    ]
    return request({**span("a", 1, operation__name=does), "events": told})


USED = {"toolUse": {"toolUseId": "k", "name": "measure", "input": {}}}
RESULT = {"toolResult": {"toolUseId": "k", "status": "success", "content": [{"text": "9 km"}]}}
CHAT = [
    {"role": "user", "content": "far?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "k", "function": {"name": "measure", "arguments": {}}}],
    },
    {"role": "tool", "tool_call_id": "k", "content": "9 km"},
    {"role": "assistant", "content": "9 km"},
]


@pytest.mark.parametrize(
    "events",
    [
        [  # Strands
            ("user.message", {"content": '[{"text": "far?"}]'}),
            ("assistant.message", {"content": json.dumps([USED])}),
            ("tool.message", {"content": json.dumps([RESULT])}),
            ("choice", {"finish_reason": "end_turn", "message": '[{"text": "9 km"}]'}),
        ],
        [  # Azure
            *(
                (f"{each['role']}.message", {"gen_ai.event.content": json.dumps(each)})
                for each in CHAT[:2]
            ),
            ("tool.message", {"id": "k", "content": "9 km"}),
            ("choice", {"gen_ai.event.content": json.dumps({"index": 0, "message": CHAT[3]})}),
        ],
        [  # version 1.27 of the conventions
            ("content.prompt", {"gen_ai.prompt": json.dumps(CHAT[:3])}),
            ("content.completion", {"gen_ai.completion": json.dumps(CHAT[3:])}),
        ],
    ],
)
def test_messages_that_are_an_event_each_are_read(tmp_path, events):
    asked, called, answered, reply = read(tmp_path, in_events(*events))
    assert (asked.content, reply.content, reply.source) == ("far?", "9 km", "agent")
    assert (called.tool, called.arguments, answered.call_id) == ("measure", {}, "k")
    assert "9 km" in str(answered.content)
    # of a tool they are its arguments and its result
    with pytest.raises(NotAHistory, match="none has messages"):
        opened(tmp_path, in_events(("choice", {"message": "9 km"}), does="execute_tool"))


AT = "2026-03-01T10:00:00.000Z"
GENERATION = {
    **{
        "id": "g",
        "traceId": "t",
        "type": "GENERATION",
        "name": "chat",
        "startTime": AT,
        "parentObservationId": None,
    },
    **{
        "model": "m-2",
        "input": {"messages": CHAT[:3], "tools": []},
        "output": CHAT[3],
        "level": "DEFAULT",
    },
    "usageDetails": {"input": 5, "input_cached_tokens": 2, "output": 3, "total": 10},
    "costDetails": {"total": 0.5},
}
TOOL = {
    "id": "s",
    "traceId": "t",
    "type": "SPAN",
    "name": "measure",
    "startTime": AT,
    "input": {"a": 1},
}
LLM = {
    **{
        "name": "chat",
        "context": {"trace_id": "0xt", "span_id": "g"},
        "span_kind": "LLM",
        "parent_id": None,
    },
    **{
        "start_time": AT,
        "end_time": "2026-03-01T10:00:01+00:00",
        "events": [{"name": "e", "attributes": {"x": [1]}}],
    },
    "attributes": {
        **{
            "llm": {
                "model_name": "m-2",
                "token_count": {"prompt": 7, "completion": 3},
                "cost": {"total": 0.5},
            }
        },
        **{f"llm.input_messages.{n}.message.role": each["role"] for n, each in enumerate(CHAT[:3])},
        **{
            "llm.input_messages.0.message.content": "far?",
            "llm.input_messages.2.message.content": "9 km",
        },
        "llm.input_messages.2.message.tool_call_id": "k",
        "llm.input_messages.1.message.tool_calls": [
            {"tool_call": {"id": "k", "function": USED["toolUse"]}}
        ],
        "llm.output_messages": [{"message": CHAT[3]}],
    },
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([GENERATION, TOOL], indent=1),
        json.dumps({"data": [GENERATION, TOOL], "meta": {"page": 1}}),
        f"{json.dumps(GENERATION)}\n{json.dumps(TOOL)}\n",
        json.dumps(
            {"id": "t", "projectId": "p", "sessionId": "s-1", "observations": [GENERATION, TOOL]}
        ),
        json.dumps({"data": [LLM], "next_cursor": None}),
        f"{json.dumps(LLM)}\n",
    ],
)
def test_exports_of_langfuse_and_phoenix_are_spans(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (history,) = histories_at(tmp_path / "a.json")
    assert (history.format, history.name) == (NAME, "s-1" if "s-1" in text else "t")
    asked, called, answered, reply, *_ = history.events
    assert [each.content for each in (asked, answered, reply)] == ["far?", "9 km", "9 km"]
    assert (called.tool, called.call_id, answered.cause) == ("measure", "k", 1)
    assert (reply.meta["model"], reply.meta["cost"]) == ("m-2", 0.5)
    assert reply.meta["usage"]["prompt_tokens"] + reply.meta["usage"]["completion_tokens"] == 10
    assert (history.findings, asked.timestamp.isoformat()) == ([], "2026-03-01T10:00:00+00:00")
    (again,) = opened(tmp_path, *history.records)
    assert again.records == history.records


def test_spans_of_phoenix_are_read(tmp_path):
    attributes = {
        "llm.model_name": "m-2",
        "llm.token_count.prompt": 7,
        "llm.input_messages.0.message.role": "assistant",
        "llm.input_messages.0.message.tool_calls.0.tool_call.id": "k",
        "llm.input_messages.0.message.tool_calls.0.tool_call.function.name": "measure",
        "llm.input_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
        "llm.input_messages.1.message.role": "tool",
        "llm.input_messages.1.message.tool_call_id": "k",
        "llm.input_messages.1.message.content": "9",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "9 km",
    }
    events = read(tmp_path, request({**span("a", 1), "attributes": pairs(attributes)}))
    assert [type(each) for each in events] == [Action, Observation, Message]
    assert (events[1].cause, events[2].content) == (0, "9 km")
    assert events[2].meta == {"model": "m-2", "reply": "a", "usage": {"prompt_tokens": 7}}


def test_spans_of_one_trace_are_of_the_conversations_that_they_or_those_above_them_name(tmp_path):
    def named(name, at, conversation, parent="root", **more):
        told = [said("user", f"asked of {name}")], [said("assistant", f"told by {name}")]
        return chat(name, at, *told, parent=parent, conversation__id=conversation, **more)

    below = span("tool", 4, parent="ann", operation__name="execute_tool")
    spans = [
        span("root", 1, ends=9),
        named("ann", 2, "a"),
        below,
        named("deep", 5, None, "tool"),
        named("bob", 6, "b"),
    ]
    called = [
        span("outer", 11, ends=19, trace="2", operation__name="invoke_agent", conversation__id="c"),
        *(
            span(
                f"inner-{own}",
                12,
                "outer",
                "2",
                ends=18,
                operation__name="invoke_agent",
                conversation__id=own,
            )
            for own in "cd"
        ),
        *(named(f"of-{own}", 13, None, f"inner-{own}", trace="2") for own in "cd"),
    ]
    found = {
        each.name: texts(each.events)
        for each in opened(tmp_path, request(*spans, *called, named("none", 20, None)))
    }
    of = {
        name: [f"asked of {name}", f"told by {name}"]
        for name in ("bob", "deep", "none", "of-c", "of-d")
    }
    assert found == {
        "a": of["deep"],
        "b": of["bob"],
        "5b8e": of["none"],
        "c/inner-c": of["of-c"],
        "d": of["of-d"],
    }


AGENT = {"operation__name": "invoke_agent", "usage__input_tokens": 50, "response__model": "m-2"}
TOLD = {
    "input__messages": json.dumps([said("user", "how far?")]),
    "output__messages": json.dumps([said("assistant", "9 km")]),
}


@pytest.mark.parametrize(
    "below, shown, tokens",
    [
        ([], ["how far?", "9 km"], [50]),
        (
            [span("t", 2, parent="agent", operation__name="execute_tool")],
            ["how far?", "9 km"],
            [50],
        ),
        (
            [chat("c", 2, [said("user", "so?")], [], parent="agent", response__model="m-1")],
            ["so?"],
            [50],
        ),
        (
            [span("c", 2, parent="agent", operation__name="chat", **USAGE)],
            ["how far?", "9 km"],
            [20],
        ),
        ([chat("c", 2, [said("user", "so?")], [], parent="web", **USAGE)], ["so?"], [20]),
        (
            [chat("c", 0, [said("user", "so?")], [], parent="web", **USAGE)],
            ["how far?", "9 km"],
            [20, 50],
        ),
        ([chat("c", 6, [said("user", "so?")], [], parent="agent", **USAGE)], ["so?"], [20]),
    ],
)
def test_an_agents_span_tells_what_those_below_it_do_not(tmp_path, below, shown, tokens):
    events = read(tmp_path, request(span("agent", 1, ends=5, **AGENT, **TOLD), *below))
    assert texts(events) == shown
    assert [
        each.meta["usage"]["prompt_tokens"] for each in events if "usage" in each.meta
    ] == tokens


def of_phoenix(**attributes):
    pair = [{"key": "llm.cost.total", "value": {"doubleValue": 0.5}}]
    return {
        **span("a", 1),
        "attributes": (
            pair + pairs({key.replace("__", "."): value for key, value in attributes.items()})
        ),
    }


def phoenix(number, kind="input", **fields):
    return {
        f"llm__{kind}_messages__{number}__message__{key}": value for key, value in fields.items()
    }


def contents(number, *parts, **fields):
    named = {
        f"contents__{n}__message_content__{key}": part[key]
        for n, part in enumerate(parts)
        for key in part
    }
    return phoenix(number, **named, **fields)


def test_contents_of_phoenix_become_parts_and_its_cost_that_of_the_reply(tmp_path):
    events = read(
        tmp_path,
        request(
            of_phoenix(
                **contents(
                    0,
                    {"type": "text", "text": "which?"},
                    {"type": "image", "image__image__url": "https://x/a.png"},
                    {"type": "document", "document__document__content": "a map"},
                    role="user",
                ),
                **phoenix(
                    1,
                    role="assistant",
                    function_call_name="look",
                    function_call_arguments_json="{}",
                ),
                **contents(
                    2,
                    {"type": "text", "text": "a gull"},
                    {"type": "image", "image__image__url": "https://x/b.png"},
                    role="tool",
                    tool_call_id="k",
                ),
                **phoenix(0, "output", role="assistant", content="A gull.", finish_reason="stop"),
            )
        ),
    )
    asked, called, answered, reply = events
    assert [each.get("text") or each["image_url"]["url"] for each in asked.content] == [
        "which?",
        "https://x/a.png",
        "a map",
    ]
    assert (called.tool, called.arguments) == ("look", "{}")
    assert [each["type"] for each in answered.content] == ["text", "image_url"]
    assert (reply.content, reply.meta["cost"]) == ("A gull.", 0.5)


@pytest.mark.parametrize(
    "key", ["gen_ai.usage.cost", "operation.cost", "langfuse.observation.cost_details"]
)
def test_the_cost_of_a_reply_has_several_names(tmp_path, key):
    one = chat("c", 1, [ASKED], [DONE])
    value = (
        {"stringValue": '{"input": 0.1, "total": 0.25}'}
        if "details" in key
        else {"doubleValue": 0.25}
    )
    one["attributes"].append({"key": key, "value": value})
    assert read(tmp_path, request(one))[-1].meta["cost"] == 0.25


def test_what_no_rule_reads_of_a_message_is_a_finding():
    asked = phoenix(0, role="user", content="which?", mood="odd")
    replied = phoenix(0, "output", role="assistant", content="That.")
    told = [
        {"role": "user", "content": [{"type": "text", "text": "so?"}]},
        {**said("assistant", "so."), "tool_calls": [1]},
        said("critic", "no."),
    ]
    found = []
    odd = [request(of_phoenix(**asked, **replied))]
    list(decode(odd, NAME, findings=found.append))
    events = list(decode([request(chat("c", 1, told, []))], NAME, findings=found.append))
    assert texts(events) == ["so?", "so.", "no."]
    assert [event.source for event in events][:3] == ["user", "agent", "environment"]
    assert [each.problem for each in found] == [
        f"has a message with {what!r}, which foldlog does not read"
        for what in ("mood", "tool_calls", "role")
    ]


@pytest.mark.parametrize(
    "text, what",
    [
        (
            json.dumps(request(span("t", 1, operation__name="execute_tool"))),
            "none has messages of a model",
        ),
        (
            json.dumps([{"context": {"trace_id": "a"}, "attributes": {"llm.model_name": "m"}}]),
            "none has messages",
        ),
        (json.dumps({"resourceSpans": 1}), "expected a span, found a number"),
        (json.dumps({"resourceLogs": []}), "no event"),
        (json.dumps({"resourceSpans": []})[:-3], "not JSON"),
    ],
)
def test_spans_without_messages_and_other_telemetry_are_refused(tmp_path, text, what):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(NotAHistory, match=what):
        histories_at(path)
