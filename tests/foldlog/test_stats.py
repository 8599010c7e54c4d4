"""The figures of conversations: what is counted, and from where."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

import foldlog
from foldlog import open as open_histories
from foldlog._cli.printing.statistics import bar, curve
from foldlog._documents import CondensationsDocument, ModelDocument
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Origin,
    codec,
)
from tests.said import said

SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"


def result(**fields):
    return Observation(tool="run", content="no such file", **fields)


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


UNMARKED = Origin(format="swe-agent")
MARKED = Origin(format="codex")


@pytest.mark.parametrize(
    "events, errors",
    [
        ([said("hi", origin=UNMARKED)], None),
        ([result(origin=UNMARKED)], None),
        ([result(origin=UNMARKED), result(is_error=True)], 1),
        ([result(origin=UNMARKED, is_error=True)], 1),
        ([result(origin=UNMARKED, extras={"exit_code": 0})], 0),
        ([result(origin=MARKED)], 0),
        ([result(origin=Origin(format="none of ours"))], 0),
    ],
)
def test_errors_are_unknown_where_no_source_marks_them(events, errors):
    with foldlog.open("memory:") as histories:
        histories["c"].append(events)
        assert histories["c"].stats().errors == errors


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
