"""One figure for one thing: every command, the page and their JSON say the same of the same
history.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import asdict

import foldlog as library
from foldlog import Action, CondensationAction, Message
from foldlog._figures.prices import Prices
from foldlog._figures.shown import collect_stats
from foldlog._formats.registry import OURS as FORMATS, format_named
from foldlog._formats.summed_calls import PRICED_FROM
from foldlog._usage import whole
from foldlog.formats import decode
from foldlog.projections import Views
from tests.foldlog.records import CORPUS, records_of, v1
from tests.foldlog.test_report import Elements, data
from tests.foldlog.test_stats import CODEX, USUAL, V0, V1
from tests.how_many import some

SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"
PAGE = re.compile(r'class="history"[^>]*>(.*?)</script>')
WRITTEN = {
    "input_tokens": 3,
    "output_tokens": 5,
    "cache_creation_input_tokens": 1_000,
    "cache_read_input_tokens": 20,
}
AN_HOUR = {
    **WRITTEN,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 900},
}
ENTRY = {
    "input_cost_per_token": 5e-06,
    "output_cost_per_token": 2.5e-05,
    "cache_read_input_token_cost": 5e-07,
    "cache_creation_input_token_cost": 6.25e-06,
    "cache_creation_input_token_cost_above_1hr": 1e-05,
}
OF_AN_HOUR = 3 * 5e-06 + 20 * 5e-07 + 100 * 6.25e-06 + 900 * 1e-05 + 5 * 2.5e-05


def reply(usage, message="m1", request="r1", said="yes", model="m", **more):
    told = {
        "id": message,
        "role": "assistant",
        "model": model,
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": said}],
    }
    return {
        **{
            "type": "assistant",
            "uuid": f"{message}{request}",
            "parentUuid": "u",
            "timestamp": "2026-03-01T10:00:01Z",
        },
        **{"sessionId": "s", "requestId": request, "message": {**told, "usage": usage}, **more},
    }


def asked(text, line="u"):
    said = {"role": "user", "content": text}
    return {"type": "user", "uuid": line, "parentUuid": None, "sessionId": "s", "message": said}


def left_of_page(page):
    """How many events and summaries a page says that each change took out of the View."""
    events = page.events
    spans = dict(page.spans)
    by = [each for event, each in enumerate(events.by) if event not in spans and each >= 0]
    by += [span[2] for each in spans.values() for span in each if span[2] >= 0]
    of_summaries = [span[2] for one in page.summaries for span in one.spans if span[2] >= 0]
    return {
        change.id: (by.count(change.id), of_summaries.count(change.id)) for change in page.changes
    }


def copies_of(name):
    """What is imported of a history one after the other, and its format."""
    if name == "tidewatch":
        return [SAMPLE.read_text()], "openhands-v1"
    told, format = name.split() if " " in name else ("", name)
    lines = (CORPUS / f"{format}.jsonl").read_text().splitlines(keepends=True)
    if not told:
        return ["".join(lines)], format
    lines = [line for line in lines if line.strip() and '"problem"' not in line]
    first = lines[:5] if told == "rewritten" else [*lines[:5], lines[5][:9] + "\n"]
    return ["".join(first + lines[6:]), "".join(lines)], format


def imported_copies(foldlog, name):
    copies, format = copies_of(name)
    for copy in copies:
        Path("c.jsonl").write_text(copy)
        assert foldlog("import", "c.jsonl", "--format", format, "--conversation", "c").status == 0
    return copies, format


@pytest.mark.parametrize("name", [*some(FORMATS, 8), "tidewatch"])
def test_every_place_says_the_same_of_a_history_of_every_format(foldlog, name):
    from foldlog._cli.stores import open_existing
    from foldlog._web.conversations import ServedConversations
    from foldlog._web.pages import Pages
    from foldlog.projections import Views

    copies, format = imported_copies(foldlog, name)
    with library.open("foldlog.db") as histories:
        histories["other"].append(Message(source="user", content="something else"))
        histories["c"].view()
        in_python = histories["c"].stats()
    stats = foldlog("stats", "c", "--json").document
    assert stats["tools"] == {tool: asdict(one) for tool, one in in_python.tools.items()}
    (listed,) = foldlog("list", "--long", "--match", "c", "--json").document["conversations"]
    run, _ = foldlog("diff", "c", "other", "--json").document["runs"]
    total, of_all = stats["events"]["total"], foldlog("stats", "--json").document["events"]["total"]
    assert foldlog("export", "--to", "audit.db").status == 0
    logged = foldlog("log", "c", "--json").document["events"]
    standing = [event for event in logged if "uncounted" not in event]
    assert (listed["version"], len(standing)) == (len(logged), total)
    # which say some again
    assert (len(standing) < len(logged)) is (len(copies) > 1 or name in ("gemini-cli", "codex"))
    shown = foldlog("log", "c", "--all").out
    assert shown.count("(not counted)") == len(logged) - total
    with closing(sqlite3.connect("audit.db")) as audited:
        asked = (
            "SELECT count(*), sum(kind = 'observation' AND is_error) FROM events WHERE NOT"
            " taken_back"
        )
        assert audited.execute(f"{asked} AND conversation = 'c'").fetchone() == (
            total,
            stats["errors"] or 0,
        )
        (made,) = audited.execute(
            "SELECT count(*) FROM condensations WHERE NOT taken_back"
        ).fetchone()
        assert made == stats["events"].get("condensation", 0)
    with open_existing("foldlog.db") as store:
        with closing(ServedConversations(store)) as served:
            assert (served.fleet("").events, of_all) == (total + 1, total + 1)
        pages = Pages(store, prices=Prices())
        page = pages.history("c")
        models = pages.models("c").models
        assert total == page.events_counted == listed["events"]
        events = [
            event for event, one in zip(store.events("c"), logged, strict=True) if one in standing
        ]
        views, log = Views(store), {e.id: e for e in events if isinstance(e, CondensationAction)}
        left = {each: views.difference("c", each, each + 1).left for each in log}
    assert listed["spent"] == run["spent"] == stats["spent"]
    for field in ("calls", "condenser_calls", "prompt_tokens", "completion_tokens"):
        of_models = sum(getattr(model, field) or 0 for model in models)
        assert of_models == (stats["spent"][field] or 0), field
    tools = {tool: one["calls"] for tool, one in stats["tools"].items() if one["calls"]}
    assert (run["tools"], run["calls"]) == (tools, sum(tools.values()))
    assert run["errors"] == listed["errors"] == stats["errors"]
    may_fail = not stats["events"].keys().isdisjoint(("observation", "environment", "user"))
    is_unknown = may_fail and format_named(format).marks_errors is False
    assert stats["errors"] == stats["events"].get("error", None if is_unknown else 0)
    replies = run["replies"] + (name == "opencode")  # of which an answer failed
    assert (
        stats["spent"]["calls"] - stats["spent"]["condenser_calls"] <= replies or not run["replies"]
    )
    made = sum(one["made"] for one in stats["condensations"].values())
    assert made == listed["condensations"] == page.condensations
    counted = [
        (one["events_forgotten"], one["summaries_forgotten"])
        for one in stats["condensations"].values()
    ]
    of_page = left_of_page(page)
    for ways in (
        of_page,
        {
            each: (sum(e.id >= 0 for e in gone), sum(e.id < 0 for e in gone))
            for each, gone in left.items()
        },
    ):
        sums = [
            sum(
                ways[each][place] for each in log if log[each].metadata.get("outcome") != "replaced"
            )
            for place in (0, 1)
        ]
        assert sums == [sum(one[place] for one in counted) for place in (0, 1)]


@pytest.mark.parametrize("is_redacted", [False, True])
def test_the_copies_in_a_compaction_of_codex_are_shown_and_count_as_nothing_new(
    foldlog, is_redacted
):
    said = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "list the files"}],
    }
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "k"}
    result = {
        "type": "function_call_output",
        "call_id": "k",
        "output": {"content": "no", "success": False},
    }
    items = [said, call, result]
    lines = [("session_meta", {"id": "c"}), *(("response_item", each) for each in items)]
    lines += [
        (
            "compacted",
            {"message": "So far", "replacement_history": [*items, {**said, "role": "assistant"}]},
        )
    ]
    rows = [
        json.dumps({"timestamp": "2026-03-05T10:00:00Z", "type": kind, "payload": told})
        for kind, told in lines
    ]
    Path("c.jsonl").write_text("\n".join(rows) + "\n")
    assert foldlog("import", "c.jsonl", "--format", "codex").status == 0
    with library.open("foldlog.db") as histories:
        assert [event.id for event in histories["c"].view()] == [4, 5, 6, 7]
    if is_redacted:
        Path("c.jsonl").unlink()
        assert foldlog("store", "redact", "c", 4, "--reason", "asked to", "--yes").status == 0
    stats = foldlog("stats", "c", "--json").document
    told = {name: count for name, count in stats["events"].items() if name != "redaction"}
    assert told == {
        "total": 5 + is_redacted,
        "annotation": 1,
        "user": 1,
        "action": 1,
        "error": 1,
        "condensation": 1,
    }
    assert stats["tools"] == {"shell": {"calls": 1, "errors": 1}}
    (listed,) = foldlog("list", "--long", "--json").document["conversations"]
    assert (listed["events"], listed["errors"]) == (5 + is_redacted, 1)
    with library.open("foldlog.db") as histories:
        histories["other"].append(Message(source="user", content="something else"))
    run, _ = foldlog("diff", "c", "other", "--json").document["runs"]
    assert (run["requests"], run["calls"], run["errors"]) == (1, 1, 1)


def test_a_reply_of_the_program_is_no_call_and_what_a_user_types_for_it_no_request(foldlog, write):
    silent = dict.fromkeys(WRITTEN, 0)
    records = [
        asked("fix it"),
        reply(WRITTEN),
        {
            **asked("<command-name>/exit</command-name>\n<command-args></command-args>", "v"),
            "parentUuid": "m1r1",
        },
        {**asked("<local-command-stdout>Goodbye!</local-command-stdout>", "w"), "parentUuid": "v"},
        {**asked("<local-command-stdout></local-command-stdout>", "e"), "parentUuid": "w"},
        reply(silent, "m2", "r2", model="<synthetic>", parentUuid="e"),
        {**asked("push", "x"), "parentUuid": "m2r2"},
        # the agent wrote it for a sub-agent
        {**asked("look for it", "s"), "parentUuid": None, "isSidechain": True},
        reply(WRITTEN, "m3", "r3", said="no", parentUuid="x"),
    ]
    write("c.jsonl", records)
    assert foldlog("import", "c.jsonl", "--conversation", "c").status == 0
    assert "look for it" not in foldlog("log", "c", "--kind", "user").out
    message = {"action": "message", "source": "user"}
    delegated = [
        {**message, "id": 1, "args": {"content": "find it"}},
        {
            "id": 2,
            "source": "agent",
            "action": "delegate",
            "args": {"agent": "BrowsingAgent", "inputs": {}},
        },
        # as OpenHands V0 tells a delegate what to do
        {**message, "id": 3, "args": {"content": "TASK: look for it"}},
        {
            "id": 4,
            "source": "agent",
            "observation": "delegate",
            "cause": 2,
            "content": "",
            "extras": {"outputs": {}},
        },
    ]
    write("d.jsonl", delegated)
    assert foldlog("import", "d.jsonl", "--conversation", "d").status == 0
    run, other = foldlog("diff", "c", "d", "--json").document["runs"]
    assert (run["requests"], run["replies"], run["spent"]["calls"]) == (2, 2, 2)
    assert other["requests"] == 1
    said = {"role": "assistant", "content": [{"type": "text", "text": "I look"}]}
    called = {
        "tool_call_id": "c",
        "tool_name": "ls",
        "thought": said["content"],
        "llm_response_id": "r",
    }
    kinds = [
        ("MessageEvent", {"llm_message": {**said, "tool_calls": [{"id": "c"}]}}),
        ("ActionEvent", called),
    ]
    kinds += [
        ("AgentErrorEvent", {"tool_call_id": "c", "error": "gone"}),
        ("MessageEvent", {"llm_message": said}),
    ]
    words = []
    for kind, more in kinds:  # as OpenHands-Tab writes them
        with library.open("foldlog.db") as histories:
            record = {"kind": kind, "id": str(more), "source": "agent", **more}
            histories["t"].append_records([record], format="openhands-v1")
            words.append(json.dumps(histories["t"].view().to_messages()).count("I look"))
    assert words == [1, 1, 1, 2]
    assert foldlog("diff", "c", "t", "--json").document["runs"][1]["replies"] == 2
    assert foldlog("view", "t").out.startswith("t at version 4: the model is sent 4 events")
    strategies = foldlog("compare", "c", "--json").document["strategies"]
    assert {row["turns"] for row in strategies} == {2}


def test_calls_of_condensers_are_counted_apart(foldlog):
    metrics = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}, "cost": 0.25, "attempts": 2}
    report = {"condenser": "llm", "response": {"id": "r", "model": "m"}, "metrics": metrics}
    with library.open("foldlog.db") as histories:
        history = histories["c"]
        history.append([Message(source="user", content=f"I am {n}") for n in range(4)])
        history.append(Message(source="agent", content="yes", meta={"model": "m", "cost": 0.5}))
        history.append(
            CondensationAction(forgotten_event_ids=[1], metadata={"condenser_meta": [report]})
        )
        history.append(Action(tool="ls", source="user"))
    document = foldlog("stats", "c", "--json").document
    assert (
        document["spent"]["calls"],
        document["spent"]["condenser_calls"],
        document["tools"],
    ) == (3, 2, {})
    assert "in all" not in (out := foldlog("stats", "c").out)
    assert ("  1 + 2  " in out, "calls + those of condensers" in out) == (True, True)


def test_tokens_that_stay_in_the_cache_for_an_hour_have_their_price(foldlog, write):
    write("c.jsonl", [asked("fix it"), reply(AN_HOUR)])
    Path("prices.json").write_text(json.dumps({"m": ENTRY}))
    assert foldlog("import", "c.jsonl", "--conversation", "c").status == 0
    with library.open("foldlog.db") as histories:
        answered = {"type": "message", **reply(AN_HOUR)["message"]}
        histories["live"].append_reply(answered)
    for name in ("c", "live"):
        (model,) = foldlog("stats", name, "--prices", "prices.json", "--json").document["models"]
        assert (model["cache_write_tokens"], model["cache_write_1h_tokens"]) == (1_000, 900)
        assert model["cost"] == pytest.approx(OF_AN_HOUR)
        assert foldlog("report", name, "--prices", "prices.json", "-o", f"{name}.html").status == 0
        (history,) = data(Elements(Path(f"{name}.html").read_text()), "history")
        assert history["models"] == [{**model, "day": ""}]


def test_each_key_of_a_price_is_used(tmp_path):
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "reasoning_tokens": 3}
    long = {
        "input_cost_per_token_above_200k_tokens": 2.0,
        "output_cost_per_token_above_200k_tokens": 3.0,
    }
    tiers = [
        {"range": [0, 32_000], "input_cost_per_token": 1.0, "output_cost_per_token": 1.0},
        {"range": [32_000, 128_000], "input_cost_per_token": 5.0, "output_cost_per_token": 1.0},
    ]
    path = tmp_path / "prices.json"
    plain = {"input_cost_per_token": 1.0, "output_cost_per_token": 1.0}
    entries = {
        "long": {**plain, **long},
        "think": {**plain, "output_cost_per_reasoning_token": 9.0},
    }
    path.write_text(json.dumps({**entries, "tiers": {"tiered_pricing": tiers}}))
    prices = Prices(path)
    for model, above, cost in [
        *(("long", 0, 14.0), ("long", 128_000, 14.0), ("long", 200_000, 32.0), ("long", -1, 14.0)),
        *(("think", 0, 38.0), ("tiers", 0, 14.0), ("tiers", 32_000, 54.0)),
    ]:
        assert prices.cost(model, usage, above) == cost, (model, above)


def test_the_borders_of_prices_are_those_of_the_table():
    found = find_spec("litellm")
    table = json.loads(
        Path(found.origin).with_name("model_prices_and_context_window_backup.json").read_text()
    )
    borders = {
        int(size) * 1_000
        for each in table.values()
        for size in re.findall(r"_above_(\d+)k_tokens", " ".join(each))
    }
    ranges = {
        tier.get("range", [0])[0]
        for each in table.values()
        for tier in each.get("tiered_pricing", ())
    }
    assert {1_000, *borders, *ranges} - {*PRICED_FROM} == {1_000}
    prices = Prices()
    for model in table:
        prices.of(model)


def test_a_prompt_has_no_fewer_tokens_than_its_parts():
    assert whole({"prompt_tokens": 13, "cached_tokens": 10, "cache_write_tokens": 7}) == {
        **{"prompt_tokens": 20, "cached_tokens": 10, "cache_write_tokens": 7}
    }
    assert whole({"prompt_tokens": 5, "cached_tokens": 6})["prompt_tokens"] == 6
    for usage in ({}, {"cached_tokens": 3}, {"prompt_tokens": 9, "cached_tokens": 9}):
        assert whole(usage) == usage


def test_replies_of_one_id_are_one_reply_whatever_model_and_tokens_a_copy_has(foldlog, write):
    others = {"b": {"model": "n"}, "c": {"usage": {**WRITTEN, "output_tokens": 6}}, "d": {}}
    write("a.jsonl", [asked("fix it"), reply(WRITTEN)])
    for name, other in others.items():
        write(f"{name}.jsonl", [asked(f"do {name}"), reply(**{"usage": WRITTEN, **other})])
    for name in "abcd":
        assert foldlog("import", f"{name}.jsonl", "--conversation", name).status == 0
    assert foldlog("stats", "--json").document["spent"]["calls"] == 1


TELLS_CALLS = {format: records_of(format) for format in FORMATS} | {
    "codex": [{**USUAL["codex"], **record} for record in CODEX],
    "openhands-v0": [{**USUAL["openhands-v0"], **record} for record in V0],
    "openhands-v1": [v1("ConversationStateUpdateEvent", n, **told) for n, told in enumerate(V1)],
}
"""Records that tell the usage of calls."""
TELLS_NO_CALLS = {
    "openai-responses",
    "openai-chat",
    "swe-agent",
    "agent-framework",
    "chatgpt",
    "claude-ai",
}
OF_NO_REPLY = {"aider": 1, "anthropic-messages": 1, "pydantic-ai": 1}
"""How many replies of these records have no id."""


@pytest.mark.parametrize("format", sorted({*FORMATS} - TELLS_NO_CALLS))
def test_copies_of_a_history_count_each_reply_once(format):
    records = TELLS_CALLS[format]
    # which ends with a sum
    growing = records[: len(records) * 2 // 3] if format != "copilot-cli" else records
    with library.open("memory:") as histories:
        for name, told in (("whole", records), ("copy", records), ("growing", growing)):
            histories.store.ingest(name, decode(told, format))
        spent = [
            {
                (model.model, model.day): (model.calls, model.prompt_tokens, model.cost)
                for model in figures.values()
            }
            for names in (["whole"], ["whole", "copy"], ["whole", "copy", "growing"])
            for figures in [
                collect_stats(histories.store, names, views=Views(histories.store)).models
            ]
        ]
    calls = [sum(figures[0] for figures in each.values()) for each in spent]
    assert calls[0] > 0
    if format in OF_NO_REPLY:
        assert calls[1] == calls[0] + OF_NO_REPLY[format]
    else:
        assert spent[1:] == [spent[0]] * 2


def opencode_steps(**message):
    """A message of OpenCode that is five calls, and the session."""
    used = {"input": 50_000, "output": 100, "cache": {"read": 10_000}}
    told = {"tool": "ls", "type": "tool", "state": {"status": "completed", "output": "a.py"}}
    parts = [{"type": "step-start"}, told, {"type": "step-finish", "tokens": used}]
    info = {
        "id": "msg_1",
        "sessionID": "c",
        "role": "assistant",
        "modelID": "m",
        "tokens": used,
        **message,
    }
    return [{"info": info, "parts": parts * 5}, {"info": {"id": "c", "projectID": "p"}}]


def atif_steps(**step):
    """A trajectory with a step of five calls."""
    used = {"prompt_tokens": 300_000, "completion_tokens": 500, **step}
    about = {
        "schema_version": "ATIF-v1.7",
        "session_id": "c",
        "agent": {"name": "a", "version": "1"},
    }
    told = {"step_id": 1, "source": "agent", "model_name": "m", "message": "yes", "metrics": used}
    return [about, {**told, "llm_call_count": 5}]


def inspect_sample(**used):
    """A sample of Inspect of several calls."""
    usage = {"m": {"input_tokens": 300_000, "output_tokens": 500, **used}}
    said = [{"role": "assistant", "content": "yes", "source": "generate"}] * 5
    return [*said, {"id": 1, "epoch": 1, "target": "", "model_usage": usage}]


def agent_span():
    """The span of an agent, which called its model several times."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 300_000,
        "gen_ai.usage.output_tokens": 500,
    }
    pairs = [
        {"key": key, "value": {"stringValue" if type(value) is str else "intValue": value}}
        for key, value in attributes.items()
    ]
    span = {
        "traceId": "t",
        "spanId": "s",
        "name": "a",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
    }
    return [{"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": pairs}]}]}]}]


@pytest.mark.parametrize(
    "format, records, calls, cost",
    [
        ("opencode", opencode_steps(cost=0), 5, 0.9075),
        ("opencode", opencode_steps(cost=0, error={"name": "APIError"}), 5, 0.9075),
        ("opencode", opencode_steps(cost=0.5), 5, 0.5),
        ("atif", atif_steps(), 5, 0.9075),
        ("atif", atif_steps(cost_usd=0.5), 5, 0.5),
        ("inspect-eval", inspect_sample(), 1, 0.9075),
        ("inspect-eval", inspect_sample(total_cost=0.5), 1, 0.5),
        ("otlp-genai", agent_span(), 1, 0.9075),
    ],
)
def test_several_calls_of_one_record_are_not_one_long_prompt(foldlog, format, records, calls, cost):
    prices = {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}
    long = {f"{name}_above_200k_tokens": price * 2 for name, price in prices.items()}
    Path("prices.json").write_text(json.dumps({"m": prices | long}))
    with library.open("foldlog.db") as histories:
        for name in "cd":
            histories.store.ingest(name, decode(records, format))
    for options in ((), ("c",)):
        spent = foldlog("stats", *options, "--prices", "prices.json", "--json").document["spent"]
        assert (spent["calls"], spent["prompt_tokens"], spent["completion_tokens"]) == (
            calls,
            300_000,
            500,
        )
        assert spent["cost"] == pytest.approx(cost)


def test_what_a_source_names_and_no_view_had_is_not_forgotten(foldlog, write):
    time = {"timestamp": "2026-03-01T10:00:00"}
    records = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "hello"}, **time},
        *(
            {
                "id": n,
                "source": "environment",
                "observation": "agent_state_changed",
                "extras": {},
                **time,
            }
            for n in (1, 2)
        ),
        {"id": 3, "source": "agent", "action": "message", "args": {"content": "yes"}, **time},
        {
            **{"id": 4, "source": "agent", "action": "condensation", **time},
            "args": {
                "forgotten_events_start_id": 0,
                "forgotten_events_end_id": 2,
                "summary": "s",
                "summary_offset": 0,
            },
        },
        {"id": 5, "source": "user", "action": "message", "args": {"content": "more"}, **time},
    ]
    Path("c.json").write_text(json.dumps(records))
    assert (
        foldlog("import", "c.json", "--conversation", "c", "--format", "openhands-v0").status == 0
    )
    (one,) = foldlog("stats", "c", "--json").document["condensations"].values()
    with library.open("foldlog.db") as histories:
        (made,) = (e for e in histories["c"].events() if isinstance(e, CondensationAction))
    assert (
        sum(last - first + 1 for first, last in made.forgotten.intervals),
        one["events_forgotten"],
    ) == (3, 1)
