"""The figures of conversations: what is counted, and from where."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

import foldlog
from foldlog import open as open_histories
from foldlog._cli.printing.statistics import bar, curve
from foldlog._documents import CondensationsDocument, ModelDocument
from foldlog._figures.shown import collect_stats
from foldlog._formats.imported_calls import calls_of_imported
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Origin,
    codec,
    open_store,
)
from foldlog.formats import decode
from foldlog.projections import Views

SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"
DAY = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


def test_events_are_counted_by_kind_tool_model_and_day():
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": None}
    events = [
        Message(source="user", content="hi", timestamp=DAY),
        Action(
            tool="run",
            call_id="a",
            timestamp=DAY,
            meta={"model": "m1", "usage": usage, "cost": 0.25},
        ),
        # of Strands, for one
        Observation(content="no", call_id="a", cause=1, is_error=True, timestamp=DAY),
        *[Action(tool=tool, timestamp=DAY) for tool in ("one", "two")],
        *[
            Observation(content=said, is_error=said == "no", timestamp=DAY)
            for said in ("no", "yes")
        ],
        Message(
            source="agent",
            content="hm",
            timestamp=DAY,
            meta={"model": "m1", "total_tokens": 7, "cost": 0.5},
        ),
        Annotation(
            name="note",
            timestamp=DAY.replace(day=2),
            meta={"model": "m2", "usage": {"input_tokens": "7"}},
        ),
    ]
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        # empty, as in every method
        assert (history.stats().conversations, dict(history.stats().events)) == (1, {})
        history.append(events)
        stats = history.stats()
    assert dict(stats.events) == {
        "user": 1,
        "action": 3,
        "observation": 1,
        "error": 2,
        "agent": 1,
        "annotation": 1,
    }
    tools = {name: (tool.calls, tool.errors) for name, tool in stats.tools.items()}
    assert tools == {"run": (1, 1), "one": (1, 1), "two": (1, 0)}
    assert dict(stats.days) == {"2026-03-01": 8, "2026-03-02": 1}
    assert stats.models == {
        ("2026-03-01", "m1"): ModelDocument(
            **{"day": "2026-03-01", "model": "m1", "calls": 2, "cost": 0.75},
            **{"prompt_tokens": 107, "completion_tokens": 20},
        ),
        ("2026-03-02", "m2"): ModelDocument(day="2026-03-02", model="m2", calls=1, prompt_tokens=7),
    }
    assert (stats.first_at, stats.last_at) == (DAY, DAY.replace(day=2))
    assert len(stats.view_tokens) == 10
    assert stats.view_tokens[0] == 0 < stats.view_tokens[-1]


def test_errors_are_unknown_where_no_source_marks_them(foldlog):
    said = Observation(tool="run", content="no such file")
    with open_histories("foldlog.db") as histories:
        for name in ("swe-agent", "codex", "none of ours"):
            histories[name].append(
                [Action(tool="run", call_id="a"), replace(said, origin=Origin(format=name))]
            )
        histories["text"].append(
            Message(source="environment", content="", origin=Origin(format="swe-agent"))
        )
        histories["asked"].append(Message(source="user", content="", origin=Origin(format="codex")))
        histories["pasted"].append(
            Message(source="user", content="127", origin=Origin(format="openai-chat"))
        )
        histories["told"].append(
            [replace(said, origin=Origin(format="swe-agent")), replace(said, is_error=True)]
        )
        task = Message(source="user", content="do", origin=Origin(format="swe-agent"))
        histories["mini"].append(
            [task, replace(said, is_error=True, origin=Origin(format="swe-agent"))]
        )
        stats = {row.id: histories[row.id].stats() for row in histories.store.iter_conversations()}
    assert {name: each.errors for name, each in stats.items()} == {
        **dict.fromkeys(("swe-agent", "text", "pasted")),
        **dict.fromkeys(("codex", "none of ours", "asked"), 0),
        **dict.fromkeys(("told", "mini"), 1),
    }
    document = foldlog("stats swe-agent --json").document
    assert (document["errors"], document["tools"]["run"]["errors"]) == (None, None)
    assert foldlog("stats text").out.startswith("text: 1 event, errors unknown, ")
    for several, errors in (
        ("told", "1 error, "),
        ("mini codex", "1 error, "),
        ("mini text", "1 error, "),
        ("codex pasted", ""),
    ):
        assert f" events, {errors}20" in foldlog("stats", *several.split()).out
    told = foldlog("stats mini text pasted")
    assert "of 3 conversations, 3 without usage, 2 of sources that mark no errors" in told.err
    cells = [line.split("\t") for line in foldlog("list --long").out.splitlines()]
    assert [(cell[0], cell[3]) for cell in cells if cell[0] in ("told", "mini")] == [
        ("mini", "1"),
        ("told", "1"),
    ]
    assert [run["errors"] for run in foldlog("diff text told --json").document["runs"]] == [None, 1]
    assert re.search(r"^errors +unknown +1$", foldlog("diff text told").out, re.MULTILINE)
    listed = foldlog("list --long --json").document["conversations"]
    assert {row["conversation"]: row["errors"] for row in listed} == {
        name: one.errors for name, one in stats.items()
    }
    # its errors, and its cost
    assert foldlog("list --long --match text").out.count("unknown") == 2
    ordered = foldlog("list --sort errors --json").document["conversations"]
    assert [row["errors"] for row in ordered] == [0, 0, 0, 1, 1, None, None, None]


def test_errors_of_a_tool_are_known_where_its_own_results_are_marked(foldlog):
    with open_histories("foldlog.db") as histories:
        for name, tool in (("swe-agent", "run"), ("codex", "edit")):
            result = Observation(
                content="no", call_id="a", is_error=tool == "edit", origin=Origin(format=name)
            )
            histories[name].append([Action(tool=tool, call_id="a"), result])
        pasted = Message(source="user", content="127", origin=Origin(format="swe-agent"))
        histories["pasted"].append([Action(tool="bash", call_id="a"), pasted])
    tools = foldlog("stats --json").document["tools"]
    assert {name: each["errors"] for name, each in tools.items()} == {
        "run": None,
        "edit": 1,
        "bash": None,
    }
    shown = foldlog("stats").out
    assert sorted(re.findall(r"errors unknown|\d errors?", shown)) == [
        "1 error",
        "1 error",
        *["errors unknown"] * 2,
    ]


def test_condensations_are_counted_by_strategy():
    told = {"condenser": "digest", "tokens_before": 900, "tokens_after": 300, "cost": 0.1}
    declined = {"outcome": "declined", "reason": "nothing to spare"}
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append([Message(source="user", content="word " * 100) for _ in range(8)])
        history.append(CondensationAction(forgotten_event_ids=(1, 2), metadata=told))
        history.append(CondensationAction(forgotten_events_start_id=3, forgotten_events_end_id=5))
        history.append(CondensationAction(forgotten_event_ids=(), metadata=declined))
        failure = {
            "condenser": "digest",
            "failure": "timeout",
            "metrics": {"attempts": 3, "cost": 0.2},
        }
        history.append(
            Annotation(name="condenser_meta", data=[failure, {"condenser": "mask", "rule": 1}, "?"])
        )
        stats = history.stats()
        history.redact([8, 11], reason="asked to")
        after = history.stats().condensations
    sizes = stats.view_tokens
    assert (after["digest"].made, after["digest"].failed, after["digest"].cost) == (1, 1, 0.3)
    assert stats.condensations["digest"] == CondensationsDocument(
        made=1, failed=1, events_forgotten=2, tokens_saved=sizes[8] - sizes[9], cost=0.3
    )
    unnamed = stats.condensations["(not named)"]
    assert (unnamed.made, unnamed.declined, unnamed.events_forgotten) == (1, 1, 3)
    assert unnamed.tokens_saved == sizes[9] - sizes[10] > 100
    assert unnamed.cost is None


def test_a_report_without_a_model_is_on_that_of_its_condensation():
    metadata = {
        "condenser": "llm_attention",
        "model": "m",
        "condenser_meta": [{"metrics": {"cost": 0.5}}],
    }
    with foldlog.open("memory:") as histories:
        histories["c"].append(Message(source="user", content="hi"))
        histories["c"].append(CondensationAction(forgotten_event_ids=(0,), metadata=metadata))
        (figures,) = histories["c"].stats().models.values()
    assert (figures.model, figures.cost) == ("m", 0.5)


CLAUDE = [
    {
        "timestamp": "2026-03-01T10:00:00Z",
        "message": {"id": "m1", "model": "opus", "usage": {"output_tokens": 1}},
    },
    {
        "timestamp": "2026-03-01T10:00:01Z",
        "message": {
            "id": "m1",
            "model": "opus",
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 5},
        },
    },
]
CODEX = [
    {"type": "turn_context", "payload": {"model": "gpt-5-codex"}},
    *[
        {
            "timestamp": "2026-03-01T10:00:00Z",
            "payload": {
                "type": "token_count",
                "info": {
                    "total_token_usage": {"total_tokens": total},
                    "last_token_usage": {
                        "input_tokens": 30,
                        "cached_input_tokens": 20,
                        "output_tokens": 5,
                    },
                },
            },
        }
        for total in (35, 35, 70)
    ],
]
V0 = [
    {
        "timestamp": "2026-03-01T10:00:00",
        "tool_call_metadata": {"model_response": {"model": "sonnet"}},
        "llm_metrics": {
            "accumulated_cost": cost,
            "accumulated_token_usage": {
                "prompt_tokens": prompt,
                "completion_tokens": 5,
                "cache_read_tokens": 1,
            },
        },
    }
    for cost, prompt in ((0.5, 10), (0.5, 10), (0.75, 30))
]
V0_RESTARTED = [
    {
        **V0[0],
        "tool_call_metadata": {
            "model_response": {"model": "sonnet", "usage": {"prompt_tokens": own}}
        },
        "llm_metrics": {
            "accumulated_cost": cost,
            "accumulated_token_usage": {"prompt_tokens": total, "completion_tokens": 5},
        },
    }
    for total, cost, own in ((30, 3.0, 10), (30, 3.0, 10), (28, 2.5, 18), (33, 3.25, None))
]
"""The first total has a call of 20 that no record tells; after the restart it lacks that, and the
cost of the next.
"""
V1 = [
    {
        "timestamp": "2026-03-01T10:00:00",
        "key": "stats",
        "value": {
            "usage_to_metrics": {
                "agent": {
                    "model_name": "sonnet",
                    "accumulated_cost": cost,
                    "accumulated_token_usage": {"prompt_tokens": prompt, "completion_tokens": 0},
                }
            }
        },
    }
    for cost, prompt in ((0.5, 10), (1.0, 30))
]


USUAL = {
    "claude-code": {"type": "assistant"},
    "codex": {"type": "event_msg"},
    "openhands-v0": {"action": "run", "args": {}},
    "openhands-v1": {"kind": "ConversationStateUpdateEvent"},
    "swe-agent": {"role": "user", "agent": "main"},
}


def test_the_usage_of_imported_records_is_counted_once():
    for format, records, calls, prompt, cached, completion, cost in [
        ("claude-code", CLAUDE, 1, 43, 40, 5, None),
        ("codex", CODEX, 2, 60, 40, 10, None),
        ("openhands-v0", V0, 2, 30, 1, 5, 0.75),
        ("openhands-v0", V0_RESTARTED, 3, 53, None, 5, 3.25),
        ("openhands-v1", V1, 2, 30, None, 0, 1.0),
        ("swe-agent", CLAUDE, 0, None, None, None, None),
    ]:
        hostile = [
            7,
            None,
            {"message": 3},
            {"message": {"usage": {"input_tokens": -3}}},
            {"payload": {"info": "x"}},
        ]
        hostile += [
            {"llm_metrics": {"accumulated_token_usage": []}},
            {"key": "stats", "value": {"usage_to_metrics": 3}},
        ]
        events = decode(
            [
                {**USUAL[format], **record} if isinstance(record, dict) else record
                for record in [*records, *hostile]
            ],
            format,
            findings=lambda finding: None,
        )
        found = [call for call in calls_of_imported(events, format) if call.model != "(not named)"]
        assert sum(call.calls for call in found) == calls
        tokens = Counter()
        for call in found:
            tokens.update(call.usage)
        assert [tokens.get(f"{name}_tokens") for name in ("prompt", "cached", "completion")] == [
            prompt,
            cached,
            completion,
        ]
        costs = [call.cost for call in found if call.cost is not None]
        assert (sum(costs) if costs else None) == (None if cost is None else pytest.approx(cost))
        assert all(call.at is not None and call.at.date() == DAY.date() for call in found)


def test_the_copied_past_of_forks_of_codex_counts_once(foldlog, write):
    """Codex writes the copies at the time of the fork, after the line of the fork itself; a fork
    may be forked.
    """

    def line(at, kind, **payload):
        return {"timestamp": f"2026-03-0{at}T10:00:00Z", "type": kind, "payload": payload}

    def called(at, total):
        info = {
            "total_token_usage": {"total_tokens": total},
            "last_token_usage": {"input_tokens": 35, "output_tokens": 0},
        }
        return line(at, "event_msg", type="token_count", info=info)

    def begun(at, name, **more):
        return line(at, "session_meta", id=name, base_instructions={"text": "You act."}, **more)

    first = [begun(1, "a"), called(1, 35), called(1, 70)]
    second = [
        begun(2, "b", forked_from_id="a"),
        *({**each, "timestamp": "2026-03-02T10:00:00Z"} for each in first),
        called(2, 105),
    ]
    third = [
        begun(3, "c", forked_from_id="b"),
        *({**each, "timestamp": "2026-03-03T10:00:00Z"} for each in second),
        called(3, 140),
    ]
    alone = [begun(1, "d"), called(1, 35)]
    for name, records in zip("abcd", (first, second, third, alone), strict=True):
        write(f"{name}.jsonl", records)
        assert foldlog("import", f"{name}.jsonl").status == 0
    spent = foldlog("stats --json").document["spent"]
    assert (spent["calls"], spent["prompt_tokens"]) == (5, 5 * 35)
    assert foldlog("stats c --json").document["spent"]["calls"] == 4


@pytest.mark.parametrize(
    "figures, cost, prompt, completion",
    [
        # The agent goes on with another model, and a part of its tokens is no longer counted.
        ([(1.0, 90_000, 700), (1.4, 89_900, 650), (1.5, 95_000, 800)], 1.5, 95_000, 800),
        ([(1.0, 90_000, 700), (0.9, 99_000, 800), (1.1, 105_000, 900)], 1.1, 105_000, 900),
        ([(0, 90_000, 700), (0, 89_900, 700)], None, 90_000, 700),
        # The agent began again at 0, or only its tokens or its cost did.
        ([(1.0, 90_000, 700), (0.1, 9_000, 600), (0.3, 20_000, 650)], 1.3, 110_000, 1_350),
        ([(1.0, 90_000, 700), (1.1, 9_000, 100)], 1.1, 99_000, 800),
        ([(1.0, 90_000, 700), (0.1, 99_000, 800)], 1.1, 99_000, 800),
    ],
)
@pytest.mark.parametrize("format", ["openhands-v0", "openhands-v1"])
def test_a_small_fall_of_an_accumulated_count_is_not_a_new_count(
    format, figures, cost, prompt, completion
):
    records = [
        {
            "accumulated_cost": paid,
            "accumulated_token_usage": {"prompt_tokens": tokens, "completion_tokens": written},
        }
        for paid, tokens, written in figures
    ]
    if format == "openhands-v0":
        records = [{**USUAL[format], "llm_metrics": metrics} for metrics in records]
    else:
        records = [
            {**USUAL[format], "key": "stats", "value": {"usage_to_metrics": {"agent": metrics}}}
            for metrics in records
        ]
    found = list(calls_of_imported(decode(records, format), format))
    costs = [call.cost for call in found if call.cost is not None]
    assert (sum(costs) if costs else None) == (None if cost is None else pytest.approx(cost))
    assert sum(call.usage["prompt_tokens"] for call in found) == prompt
    assert sum(call.usage["completion_tokens"] for call in found) == completion


def a_log(format, text, last):
    """A log that tells 10 tokens for 1.0 before a text, and ``last`` tokens after it, 10 for each
    call.
    """
    says, counts = [*"abc", text], [10, 10, *last]
    if format == "swe-agent":  # has only the sum of the run
        stats = {
            "instance_cost": last[-1] / 10,
            "tokens_sent": last[-1],
            "api_calls": last[-1] // 10,
        }
        history = [{"role": "user", "content": each, "agent": "main"} for each in says]
        return [{"history": history, "trajectory": [], "info": {"model_stats": stats}}]
    metrics = [
        {"accumulated_cost": n / 10, "accumulated_token_usage": {"prompt_tokens": n}}
        for n in counts
    ]
    if format == "codex":
        said = [
            {"payload": {"type": "message", "role": "user", "content": [{"text": each}]}}
            for each in says
        ]
        said = [{"type": "response_item", **each} for each in said]
        last_call = {"last_token_usage": {"input_tokens": 10}}
        infos = [{"total_token_usage": {"total_tokens": n}, **last_call} for n in counts]
        told = [
            {**USUAL[format], "payload": {"type": "token_count", "info": info}} for info in infos
        ]
    elif format == "openhands-v0":
        said = [{"action": "message", "source": "user", "args": {"content": each}} for each in says]
        told = [{**USUAL[format], "llm_metrics": each} for each in metrics]
    else:
        parts = [[{"type": "text", "text": each}] for each in says]
        said = [
            {"kind": "MessageEvent", "llm_message": {"role": "user", "content": each}}
            for each in parts
        ]
        told = [
            {**USUAL[format], "key": "stats", "value": {"usage_to_metrics": {"agent": each}}}
            for each in metrics
        ]
    return [*said[:-1], *told[:2], said[-1], *told[2:]]


@pytest.mark.parametrize(
    "format, shared",
    [("codex", 10), ("openhands-v0", 10), ("openhands-v1", 10)],
)
def test_the_past_that_an_edited_log_shares_with_what_was_imported_before_counts_once(
    foldlog, write, format, shared
):
    def prompts(text, last, *names):
        write("c.jsonl", a_log(format, text, last))
        assert foldlog("import c.jsonl --format", format).status == 0
        told = [json.loads(foldlog("stats", *name, "--json").out)["spent"] for name in ((), *names)]
        for one in told:
            assert one["calls"] * 10 == one["prompt_tokens"]
            assert one["cost"] == (None if format == "codex" else one["prompt_tokens"] / 10)
        return [one["prompt_tokens"] for one in told]

    assert prompts("said", [10, 20]) == [20]
    for _ in range(2):
        assert prompts("edited", [10, 20]) == [20 + 20 - shared]
    first, fork = [
        one["conversation"] for one in json.loads(foldlog("list --json").out)["conversations"]
    ]
    first, fork = sorted((first, fork), key=len)
    assert prompts("edited", [10, 20, 30], [first], [fork]) == [20 + 30 - shared, 20, 30 - shared]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_narrow_terminal_keeps_ids_and_costs_whole_and_says_which_columns_it_leaves_out(
    foldlog, monkeypatch, columns
):
    name, usage = (
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        {"prompt_tokens": 123_456, "completion_tokens": 12_345},
    )
    with open_store("sqlite:///foldlog.db") as store:
        said = [
            Message(
                source="agent", content=each, meta={"model": "m", "usage": usage, "cost": 35.25}
            )
            for each in "ab"
        ]
        store.append(name, said, expected_version=0)
    monkeypatch.setenv("COLUMNS", str(columns))
    for typed in ("stats", "list", "list --sort cost", "list --sort events"):
        ran = foldlog(*typed.split(), *["--long"] * typed.startswith("list"))
        assert "$70.5000" in ran.out, ran.out
        assert "stats" in typed or name[:8] in ran.out
        assert max(map(len, ran.out.splitlines())) <= columns
        assert ("a wider terminal, or --json, also shows: " in ran.out) is (columns < 200)
        assert " 2 " in ran.out, "events are not left out where they sort the list"


def test_plots_of_characters_show_every_value_and_fit():
    assert [len(bar(value, 80, 10)) for value in (0, 0.001, 40, 80)] == [0, 1, 5, 10]
    assert curve([], 10) == []
    assert curve([0, 0], 10, rows=1) == [""]
    lines = curve([1, *[0] * 997, 100, 0], 10, rows=2)
    assert lines == ["         █", "▁        █"]


def test_each_event_is_decoded_a_few_times_and_damage_costs_only_what_it_touches(
    foldlog, tmp_path, monkeypatch
):
    def record(number):
        usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
        return {
            "type": "ai",
            "data": {"content": f"m{number}", "type": "ai", "usage_metadata": usage},
        }

    with open_histories("foldlog.db") as histories:
        histories.create("ours", {"app": "x"})
        for number in range(600):
            histories["ours"].append_records([record(number)], format="langchain")
        histories["ours"].append(CondensationAction(forgotten_event_ids=[1, 2]))
        decoded: list[int] = []
        decode_all = codec.decode_all

        def counting(kinds, schemas, bodies, ids):
            decoded.extend(ids)
            return decode_all(kinds, schemas, bodies, ids)

        monkeypatch.setattr(codec, "decode_all", counting)
        stats = histories["ours"].stats()
        # counted, for the curve, and for the Views at the condensation
        assert max(map(decoded.count, range(600))) <= 6
    assert (stats.findings, sum(one.calls for one in stats.models.values())) == ([], 600)
    assert len(stats.view_tokens) == 603
    with contextlib.closing(sqlite3.connect("foldlog.db")) as connection, connection:
        connection.execute("UPDATE events SET body = 'x' WHERE id = 590")
    ran = foldlog("stats --json")
    assert (ran.status, ran.document["events"]["total"], ran.document["view_tokens"]) == (
        1,
        602,
        [],
    )
    (finding,) = ran.document["findings"]
    assert finding.startswith("conversation 'ours': the sizes of its View are not counted: ")
    assert "event 590" in finding
    with open_histories("foldlog.db") as histories:
        histories["ours"].append(Message(source="user", content="more"))
    assert foldlog("stats --json").document["events"]["total"] == 603, (
        "what was counted before is not read again"
    )


def test_a_reply_that_several_logs_repeat_is_counted_once():
    def line(number, **more):
        usage = {"input_tokens": 1_000, "output_tokens": 50}
        said = {
            "role": "assistant",
            "content": [{"type": "text", "text": "hi"}],
            "id": "msg_1",
            "usage": usage,
        }
        named = {"uuid": f"u{number}", "sessionId": "s", "timestamp": DAY.isoformat()}
        return {**named, "type": "assistant", "message": {**said, "model": "m"}, **more}

    with open_store("memory:") as store:
        store.ingest("s", decode([line(0)], "claude-code"))
        store.ingest("s/agent-1", decode([line(1, isSidechain=True, agentId="1")], "claude-code"))
        # counted, then kept
        for names, calls in ((["s"], 1), (["s/agent-1"], 1), *[(["s", "s/agent-1"], 1)] * 2):
            (figures,) = collect_stats(store, names, views=Views(store)).models.values()
            assert (figures.calls, figures.prompt_tokens) == (calls, 1_000)
        # a server that gives each reply one id
        for number, request in enumerate(("req_1", "req_1", "req_2"), 2):
            store.ingest(
                request + str(number), decode([line(number, requestId=request)], "claude-code")
            )
        names = [row.id for row in store.iter_conversations()]
        (figures,) = collect_stats(store, names, views=Views(store)).models.values()
        assert figures.calls == 3


def test_a_run_of_openhands_v0_in_a_trajectory_and_in_its_session_is_counted_once():
    run = [{**USUAL["openhands-v0"], **record} for record in V0]
    later = [{**record, "timestamp": "2026-03-01T12:00:00"} for record in run]
    with open_store("memory:") as store:
        for name, records in (("trajectory", run), ("session", run), ("other", later)):
            store.ingest(name, decode(records, "openhands-v0"))
        for names, calls in (
            (["session"], 2),
            (["trajectory", "session"], 2),
            (["session", "other"], 4),
        ):
            (figures,) = collect_stats(store, names, views=Views(store)).models.values()
            assert (figures.calls, figures.prompt_tokens, figures.cost) == (
                calls,
                15 * calls,
                0.375 * calls,
            )


def test_days_without_a_call_are_said_to_have_none(foldlog):
    with open_histories("foldlog.db") as histories:
        histories["c"].append(Message(source="user", content="hi"))
    assert (
        foldlog("stats --by model --since 2026-01-01").out
        == "no call of a model since 2026-01-01\n"
    )
    assert foldlog("stats --by day").out == "no call of a model\n"
