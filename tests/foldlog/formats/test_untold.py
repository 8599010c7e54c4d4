"""What a figure says of replies that a source does not tell, in every format: a new one fills its row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import foldlog
from foldlog._formats.registry import FORMATS
from foldlog._reports.prices import Prices
from foldlog._reports.spending import spent_by
from foldlog._reports.sums import KeptSums

USED = {"prompt_tokens": 10, "completion_tokens": 2}
CLAUDE = {"input_tokens": 10, "output_tokens": 2}
SAID = {"role": "assistant", "content": "hm"}
TEXT = [{"type": "text", "text": "hm"}]


class Row(NamedTuple):
    """The records of a reply by its number, which tell its usage or not; what stands ``before`` all; a document or a
    folder with records and a ``total``; the marks where all replies, all but the last and none tell theirs.
    """

    reply: Callable[[int, bool], list[Any]]
    before: tuple[Any, ...] = ()
    total: Callable[[list[Any], int], Any] | None = None
    marks: tuple[str, str, str] = ("", "+", "unknown")


def chat(n, told):
    return [{**SAID, "usage": USED if told else None}]


def claude(n, told, **more):
    message = {"id": f"m{n}", "model": "m", "stop_reason": "end_turn", **SAID, "content": TEXT, **more}
    line = {"type": "assistant", "uuid": f"a{n}", "parentUuid": f"a{n - 1}" if n else None, "sessionId": "s"}
    return [{**line, "message": message | ({"usage": CLAUDE} if told else {})}]


def codex(n, told, *, count_first=False):
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hm"}]}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    info = {"total_token_usage": {"total_tokens": 12 * n + 12}, "last_token_usage": CLAUDE}
    count = [{"type": "event_msg", "payload": {"type": "token_count", "info": info}}] * told
    items = [{"type": "response_item", "payload": each} for each in (asked, said)]
    return [items[0], *count, items[1]] if count_first else [*items, *count]


def v0(n, told):
    used = {"accumulated_token_usage": {name: count * (n + 1) for name, count in USED.items()}, "accumulated_cost": 0.0}
    said = {"id": n, "source": "agent", "action": "message", "args": {"content": "hm"}}
    return [said | ({"llm_metrics": used} if told else {})]


def v1(n, told):
    said = {"kind": "MessageEvent", "id": f"e{n}", "source": "agent", "llm_message": {**SAID, "content": TEXT}}
    uses = {"agent": {"accumulated_token_usage": {name: count * (n + 1) for name, count in USED.items()}}}
    stats = {"kind": "ConversationStateUpdateEvent", "id": f"s{n}", "key": "stats", "source": "environment"}
    return [*[{**stats, "value": {"usage_to_metrics": uses}}] * told, said]


def copilot(n, told):
    said = {"type": "assistant.message", "data": {"messageId": f"m{n}", "content": "hm", "model": "m"}}
    used = {"m": {"usage": {"inputTokens": 10, "outputTokens": 2}, "requests": {"count": 1}}}
    end = [{"type": "session.shutdown", "data": {"modelMetrics": used}}] * told
    return [{"id": f"e{n}{at}", "parentId": None, **each} for at, each in enumerate((said, *end))]


def span(n, told):
    said = [{"role": "assistant", "parts": [{"type": "text", "content": f"hm {n}"}]}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
    given = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, "gen_ai.output.messages": said}
    keys = [
        {"key": key, "value": {"stringValue": each if type(each) is str else json.dumps(each)}}
        for key, each in given.items()
    ]
    counts = {"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "2"} if told else {}
    keys += [{"key": key, "value": {"intValue": each}} for key, each in counts.items()]
    one = {"traceId": "t", "spanId": f"s{n}", "name": "chat", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return [{"resourceSpans": [{"scopeSpans": [{"spans": [{**one, "attributes": keys}]}]}]}]


def sample(n, told):
    used = {"id": n, "epoch": 1, "model_usage": {"m": {**CLAUDE, "total_tokens": 12}}}
    return [{"id": f"m{n}", **SAID, "source": "generate"}, *[used] * told]


def run(prompt):
    return {"info": {"model_stats": {"tokens_sent": prompt, "api_calls": prompt // 10}}}


NEVER = ("unknown", "unknown", "unknown")
"""The marks of a format whose records tell nothing."""
ROWS = {
    "agent-framework": Row(lambda n, told: [{"type": "message", "role": "assistant", "contents": TEXT}], marks=NEVER),
    "aider": Row(lambda n, told: [
        *({"aider": kind, "text": "hm"} for kind in ("user", "assistant")),
        *[{"aider": "tool", "text": "Tokens: 10 sent, 2 received."}] * told,
    ]),
    "anthropic-messages": Row(lambda n, told: [{**SAID, "content": TEXT, "usage": CLAUDE if told else None}]),
    "atif": Row(
        lambda n, told: [{"step_id": n, "source": "agent", "message": "hm", "metrics": USED if told else None}],
        total=lambda steps, prompt: {
            **{"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a", "version": "1"}},
            **{"steps": steps, "final_metrics": {"total_prompt_tokens": prompt}},
        },
    ),
    "chatgpt": Row(lambda n, told: [
        {"id": f"m{n}", "parent": f"m{n - 1}" if n else None, "message": {
            "id": f"m{n}", "author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["hm"]}
        }}
    ], marks=NEVER),
    "claude-ai": Row(lambda n, told: [{"uuid": f"u{n}", "sender": "assistant", "content": TEXT}], marks=NEVER),
    "claude-code": Row(claude),
    "codex": Row(codex, before=({"type": "turn_context", "payload": {"model": "m"}},)),
    "copilot-cli": Row(copilot),
    "gemini-cli": Row(lambda n, told: [{"id": f"g{n}", "type": "gemini", **SAID, "tokens": {"input": 10 * told}}]),
    "cursor": Row(lambda n, told: [
        {"bubbleId": f"b{n}", "type": 2, "text": "hm", "tokenCount": {"inputTokens": 10} if told else None}
    ]),
    "qwen-code": Row(lambda n, told: [
        {"sessionId": "s", "uuid": f"q{n}", "parentUuid": f"q{n - 1}" if n else None, "type": "assistant",
         "message": {"role": "model", "parts": [{"text": "hm"}]},
         "usageMetadata": {"promptTokenCount": 10} if told else None}
    ]),
    "google-adk": Row(lambda n, told: [
        {"content": {"parts": [{"text": "hm"}]}, "invocation_id": "i", "author": "a", "id": f"e{n}",
         "usage_metadata": {"prompt_token_count": 10} if told else None}
    ]),
    "inspect-eval": Row(sample),
    "langchain": Row(lambda n, told: [{"type": "ai", "data": {**SAID, "usage_metadata": CLAUDE if told else None}}]),
    "openai-chat": Row(chat, total=lambda records, prompt: {"messages": records, **run(prompt)}),
    "openai-responses": Row(lambda n, told: [{"type": "message", **SAID}], marks=NEVER),
    "opencode": Row(lambda n, told: [
        {"info": {"id": f"m{n}", "sessionID": "s", "role": "assistant", "tokens": {"input": 10 * told}}, "parts": TEXT}
    ]),
    "openhands-v0": Row(v0, total=lambda records, prompt: {
        "history": records, "metrics": {"accumulated_token_usage": {"prompt_tokens": prompt}}
    }),
    "openhands-v1": Row(v1, total=lambda *told: told, marks=("", "", "unknown")),  # no order says which replies are in
    "otlp-genai": Row(span),
    "pi": Row(lambda n, told: [
        {"type": "message", "id": f"a{n}", "parentId": f"a{n - 1}" if n else "s",
         "message": {"role": "assistant", "content": TEXT, "usage": {"input": 10 * told, "output": 2 * told}}}
    ], before=({"type": "session", "version": 3, "id": "s", "cwd": "/"},)),
    "pydantic-ai": Row(lambda n, told: [
        {"parts": [{"content": "hm", "part_kind": "text"}], "kind": "response", "usage": CLAUDE if told else None}
    ]),
    "strands": Row(lambda n, told: [
        {"message": {"role": "assistant", "content": [{"text": "hm"}],
                     "metadata": {"usage": {"inputTokens": 10 * told}}},
         "message_id": n, "redact_message": None, "created_at": "2026-03-01T10:00:00Z"}
    ]),
    "swe-agent": Row(
        lambda n, told: [{**SAID, "agent": "main"}],
        total=lambda records, prompt: {"history": records, "trajectory": [], **run(prompt)},
        marks=NEVER,
    ),
}  # fmt: skip


def stats(tmp_path, format, held):
    """The figures of an imported source: a document, records on lines, or a folder of OpenHands with its state."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / ("a.traj" if format == "swe-agent" else "a.json" if type(held) is dict else "a.jsonl")
    if type(held) is tuple:
        path, uses = tmp_path / "run", {"agent": {"accumulated_token_usage": {"prompt_tokens": held[1]}}}
        (path / "events").mkdir(parents=True, exist_ok=True)
        for n, each in enumerate(held[0]):
            (path / "events" / f"event-{n:05d}-{each['id']}.json").write_text(json.dumps(each))
        (path / "base_state.json").write_text(json.dumps({"id": "s", "stats": {"usage_to_metrics": uses}}))
    else:
        path.write_text(json.dumps(held) if type(held) is dict else "".join(f"{json.dumps(each)}\n" for each in held))
    with foldlog.open("memory:") as histories:
        (history,) = histories.import_(path, format=format, findings=print)
        return history.stats().document()


def mark(*given):
    """The mark of the tokens of an imported source."""
    told = stats(*given).spent
    if told.prompt_tokens is None and told.completion_tokens is None:
        return "unknown"
    return "+" if told.tokens_recorded < told.calls else ""


@pytest.mark.parametrize("format", FORMATS)
def test_a_sum_has_a_mark_where_a_reply_is_not_told_and_where_its_source_tells_more_of_all(tmp_path, format):
    row = ROWS[format]

    def records(*told):
        return [*row.before, *(each for n, tells in enumerate(told) for each in row.reply(n, tells))]

    asked = ((True, True, True), (True, True, False), (False, False, False))
    assert tuple(mark(tmp_path, format, records(*told)) for told in asked) == row.marks
    if row.total is not None:
        given = [(told, prompt) for told in asked for prompt in (30, 40)]
        found = [
            mark(tmp_path / f"{n}", format, row.total(records(*each), prompt)) for n, (each, prompt) in enumerate(given)
        ]
        assert found == (["", "+", "+", "+", "", ""] if row.marks != NEVER else [""] * 6)


@pytest.mark.parametrize("middle", [True, False])
@pytest.mark.parametrize("format", [format for format in FORMATS if ROWS[format].marks != NEVER])
def test_figures_that_count_on_say_the_same_as_those_of_the_whole(tmp_path, format, middle):
    row = ROWS[format]
    records = [*row.before, *(each for n in range(3) for each in row.reply(n, middle or n != 1))]
    counted, ends = [], range(len(row.before) + 1, len(records) + 1)
    for pieces in ([len(records)], [*ends], *([end, len(records)] for end in ends)):
        with foldlog.open("memory:") as histories:
            for end in pieces:
                (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records[:end]))
                list(histories.import_(tmp_path / "a.jsonl", format=format, findings=print))
                ((_, one),) = KeptSums(histories.store).of(histories.store.iter_conversations())
            counted.append(spent_by(one.calls, Prices()))
    assert counted == counted[:1] * len(counted)


@pytest.mark.parametrize(
    "format, records, marked",
    [
        ("codex", [each for n in range(3) for each in codex(n, True, count_first=True)], ""),  # as of September 2025
        ("codex", [*codex(0, True), *codex(1, False), *codex(2, True)], "+"),
        ("claude-code", [*claude(0, True), *claude(1, False, model="<synthetic>")], ""),
        ("claude-code", [*claude(0, True), *claude(1, True, id="m0")], ""),
        ("openhands-v0", [*v0(0, False), *v0(1, True)], ""),  # the total has both
        ("openai-chat", [*chat(0, False), *chat(1, True)], "+"),
    ],
)  # fmt: skip
def test_a_reply_is_told_by_one_record_of_it_and_by_any_total_that_has_it(tmp_path, format, records, marked):
    assert mark(tmp_path, format, records) == marked


def test_a_cost_that_only_the_total_tells_is_that_of_its_calls(tmp_path):
    run = {"instance_cost": 0.5, "api_calls": 2}
    for told, calls in ((True, 2), (False, 1)):
        held = {"messages": [*chat(0, True), *chat(1, told)], "info": {"model_stats": run}}
        one = stats(tmp_path, "openai-chat", held).spent
        assert (one.cost, one.prompt_tokens, one.calls) == (0.5, 10 * calls, calls)
        assert one.tokens_recorded == (2 if told else 0)


def test_what_mini_swe_agent_tells_in_extra_is_read(tmp_path):
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    told = {"response": {"model": "m", "usage": USED}, "cost": 0.25, "actions": []}
    reply = {**SAID, "tool_calls": [call], "extra": told}
    for code, errors in ((127, 1), (0, 0), (None, None)):
        result = {"role": "tool", "tool_call_id": "c", "content": "gone", "extra": {"returncode": code}}
        one = stats(tmp_path, "openai-chat", [{"role": "user", "content": "go"}, reply, result])
        assert (one.errors, one.spent.prompt_tokens, one.spent.cost, one.models[0].model) == (errors, 10, 0.25, "m")
