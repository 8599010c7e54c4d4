"""Spans of models as histories: what was sent is read once, and what a later span no longer sends
is taken back.
"""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog import open as open_histories
from foldlog.eventstore import (
    CondensationAction,
    Message,
)
from foldlog.formats import SourceRefused, decode
from foldlog.projections import View
from tests.foldlog.archive.imports import bytes_of, new_store
from tests.foldlog.formats.reading import histories_at, recorded
from tests.golden.rows import rows

NAME = "otlp-genai"


def pairs(attributes):
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


def span(name, at, parent=None, trace="5b8e", ends=None, **attributes):
    named = {
        f"gen_ai.{key.replace('__', '.')}": value
        for key, value in attributes.items()
        if value is not None
    }
    return {
        "traceId": trace,
        "spanId": name,
        "parentSpanId": parent or "",
        "startTimeUnixNano": str(at * 10**9),
        "endTimeUnixNano": str((ends or at + 1) * 10**9),
        "attributes": pairs(named),
    }


def request(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def said(role, text):
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def chat(name, at, told, reply, parent=None, trace="5b8e", **more):
    return span(
        name,
        at,
        parent,
        trace,
        operation__name="chat",
        input__messages=json.dumps(told),
        output__messages=json.dumps(reply),
        **more,
    )


SPANS = recorded(NAME, "what was sent is read once")
FIRST, _, LAST, AGENT = SPANS


def opened(folder, *requests, name="traces.jsonl", store=None):
    path = folder / name
    path.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
    return histories_at(path, store=store)


def texts(events):
    return [message["content"] for message in View.from_events(events).to_messages()]


def test_a_condensation_behind_imported_spans_is_written_as_a_compaction(foldlog, tmp_path):
    begun = recorded(NAME, "a compaction is a condensation")[:2]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in begun))
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
    other = request(chat("d1", 1, [said("user", "x")], [said("assistant", "y")], trace="77"))
    written = [json.dumps(each) for each in (*SPANS, other)]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join([written[0], written[1][:-9], *written[2:]]))
    one, two = histories_at(path)
    assert (one.records, two.records) == ([FIRST, LAST, AGENT], [other])
    assert [len(each.findings) for each in (one, two)] == [1, 1]
    assert f"{path}:2" in one.findings[0]


def test_a_file_that_grows_adds_its_new_spans_and_the_span_of_an_agent_comes_when_it_ended(
    tmp_path,
):
    with new_store() as store:
        (before,) = opened(tmp_path, FIRST, LAST, store=store)
        (grown,) = opened(tmp_path, FIRST, LAST, AGENT, store=store)
        assert (before.added, grown.added, grown.name) == (2, 1, before.name)
        assert grown.events[: len(before.events)] == before.events
        # a span between those that are here
        (late,) = opened(tmp_path, *SPANS, store=store)
        assert late.name == f"{before.name}@1"
        (whole,) = opened(tmp_path, *SPANS)
        assert texts(late.events) == texts(whole.events)


def test_the_spans_of_a_request_are_records_in_their_order(tmp_path):
    spans = [each["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for each in SPANS]
    (history,) = opened(tmp_path, request(*spans[::-1]))
    assert (history.records, history.findings) == (SPANS, [])


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
    def asked(name, at, text, parent=None, **more):
        return chat(name, at, [said("user", text)], [said("assistant", "so.")], parent, **more)

    agent = span("agent", 1, ends=8, operation__name="invoke_agent", conversation__id="conv")
    tool = span("tool", 3, "agent", operation__name="execute_tool")
    called = span("sub", 4, "tool", operation__name="invoke_agent")
    below = [asked("c1", 2, "how far?", "agent"), tool, called, asked("s1", 5, "deep", "sub")]
    later = asked("d1", 9, "and back?", trace="77", conversation__id="conv")
    other = span("http", 1, trace="99")
    main, sub = opened(tmp_path, request(agent, *below, other), request(later))
    assert (main.name, sub.name) == ("conv", "conv/sub")
    assert (texts(main.events), texts(sub.events)) == (["and back?", "so."], ["deep", "so."])


LANGFUSE, PHOENIX = rows("spans.json", "langfuse"), rows("spans.json", "phoenix")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(LANGFUSE, indent=1),
        json.dumps({"data": LANGFUSE, "meta": {"page": 1}}),
        "\n".join(map(json.dumps, LANGFUSE)),
        json.dumps({"id": "t", "projectId": "p", "sessionId": "s-1", "observations": LANGFUSE}),
        json.dumps({"data": PHOENIX, "next_cursor": None}),
        json.dumps(PHOENIX[0]) + "\n",
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
