"""What an object or a folder tells beside the records of a history: the answer, and what calls of models used."""

from __future__ import annotations

import json

import pytest

import foldlog as package
from foldlog._cli.stores import open_existing
from foldlog._formats.files import found
from foldlog._reports.prices import Prices
from foldlog._reports.sums import KeptSums

ASKED = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Which files are here?"}]
ANSWER = {"content": "Only a.py.", "role": "assistant", "tool_calls": None, "refusal": None}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
}


def one_call(messages=ASKED, answer=ANSWER, reply="r1", tokens=(90, 10), cost=0.5, **more):
    """A log of one call of a model."""
    prompt, completion = tokens
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    response = {"id": reply, "model": "m", "choices": [{"message": answer}, {"message": "no"}], "usage": usage}
    return {**more, "response": response, "messages": messages, "cost": cost, "timestamp": 1_767_225_600.5}


def spent(prices=None):
    """What each conversation spent: tokens in and out, cost, calls; and all of them together."""
    with open_existing("sqlite:///foldlog.db") as store:
        sums = KeptSums(store)
        blocks = sums.blocks()
        each = {line.document.conversation: line.spent(prices or Prices()) for line in blocks[0].lines}
        day = {calls.day for calls in sums.calls(blocks)}
        total = sum(one.cost or 0 for one in sums.calls(blocks)), sum(one.calls for one in sums.calls(blocks))
    told = {name: (one.prompt_tokens, one.completion_tokens, one.cost, one.calls) for name, one in each.items()}
    return told, total, day


def view_of(name):
    with package.open("sqlite:///foldlog.db") as histories:
        return [getattr(event, "content", None) or event.tool for event in histories[name].view()]


def exported(foldlog, name):
    return [json.loads(line) for line in foldlog("export", name).out.splitlines()]


@pytest.mark.parametrize("held", [found.HELD_BYTES_MAX, 10])
def test_the_answer_of_a_log_of_one_call_is_its_last_message(foldlog, write, monkeypatch, held):
    monkeypatch.setattr(found, "HELD_BYTES_MAX", held)
    many = [{"role": "user", "content": str(n)} for n in range(60)]
    write("one.json", [one_call()])
    write("lines.jsonl", [one_call(reply="r1"), one_call(answer=CALL, reply="r2", session_id="s")])
    write("repeats.json", [one_call([*many, {**ANSWER, "tool_calls": []}], reply="r3")])
    write("text.json", [{"messages": ASKED, "response": "Only a.py."}])
    write("failed.json", [{"messages": ASKED, "response": {"error": "overloaded"}, "cost": 0}])
    names = ["one.json", "lines.jsonl", "repeats.json", "text.json", "failed.json"]
    assert foldlog("import", *names, "--strict").status == 0
    assert exported(foldlog, "one") == [*ASKED, ANSWER]
    assert exported(foldlog, "s") == [*ASKED, CALL]
    assert exported(foldlog, "repeats")[-1] == {**ANSWER, "tool_calls": []}
    assert [len(view_of(name)) for name in ("one", "repeats", "text", "failed")] == [3, 61, 3, 2]
    assert view_of("s")[-1] == "ls"
    each, total, days = spent()
    assert each == {
        "one": (90, 10, 0.5, 1),
        "lines:1": (90, 10, 0.5, 1),
        "s": (90, 10, 0.5, 1),
        "repeats": (90, 10, 0.5, 1),
        "text": (None, None, None, 0),
        "failed": (None, None, None, 0),
    }
    assert (total, days) == ((1.5, 3), {"2026-01-01"}), "a reply that two logs have is counted once"
    assert "0 events" in foldlog("import", "--check", *names).out


def test_each_log_of_a_session_adds_to_it(foldlog, write):
    write("1.json", [one_call(session_id="s")])
    write("2.json", [one_call([*ASKED, ANSWER, {"role": "user", "content": "more"}], reply="r2", session_id="s")])
    for _ in range(2):
        foldlog("import", "--check", "1.json")
        foldlog("import", "--check", "2.json")
        assert spent()[0] == {"s": (180, 20, 1.0, 2)}
    assert len(view_of("s")) == 5


def test_an_answer_of_anthropic_is_a_message(foldlog, write):
    blocks = [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}]
    told = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.py"}]}
    messages = [ASKED[1], {"role": "assistant", "content": blocks}, told]
    usage = {"input_tokens": 4, "cache_read_input_tokens": 86, "output_tokens": 10}
    response = {"id": "m1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "a.py"}]}
    response |= {"model": "m", "usage": usage}
    write("one.json", [{"messages": messages, "response": response, "cost": 0.5}])
    assert foldlog("import", "one.json").status == 0
    assert exported(foldlog, "one") == [[*messages, response]]
    assert spent()[0] == {"one": (90, 10, 0.5, 1)}


def said(n, **more):
    message = {"role": "user", "content": [{"type": "text", "text": f"said {n}"}]}
    return {"kind": "MessageEvent", "id": f"e{n}", "timestamp": f"2026-01-01T10:00:0{n}", "source": "user"} | {
        "llm_message": message,
        **more,
    }


def metrics(prompt, completion, cost, calls=1, model="m"):
    usage = {"model": model, "prompt_tokens": prompt, "completion_tokens": completion, "cache_read_tokens": 0}
    calls = [{"prompt_tokens": 1}] * calls
    return {
        "model_name": model,
        "accumulated_cost": cost,
        "accumulated_token_usage": usage,
        "token_usages": calls,
    }


def write_v1(write, events, *, key="usage_to_metrics", **uses):
    for n, event in enumerate(events):
        write(f"run/events/event-{n:05d}-{event['id']}.json", [event])
    write("run/base_state.json", [{"id": "v1", "stats": {key: uses}}])


def told_stats(n, **uses):
    value = {"usage_to_metrics": uses}
    return {"kind": "ConversationStateUpdateEvent", "id": f"e{n}", "key": "stats", "value": value, "source": "agent"}


def test_the_state_beside_the_events_of_v1_tells_what_the_events_do_not(foldlog, write):
    first = [said(0), told_stats(1, agent=metrics(100, 10, 0.25)), said(2)]
    write_v1(write, first, agent=metrics(300, 30, 0.75, 3), condenser=metrics(50, 5, 0.0, model="small"))
    assert foldlog("import", "run").status == 0
    assert spent()[0] == {"v1": (350, 35, 0.75, 4)}
    assert exported(foldlog, "v1") == first
    models = json.loads(foldlog("stats", "v1", "--json").out)["models"]
    assert {one["cached_tokens"] for one in models} == {0}, "a zero that is told is known"
    assert "0 events" in foldlog("import", "run", "--check").out
    assert "2026-01-01 10:00" in foldlog("list", "--long").out, "an import is no activity"


def test_a_run_of_v1_grows_with_its_state_also_after_a_redaction(foldlog, write):
    write_v1(write, [said(0), said(1)], key="service_to_metrics", default=metrics(100, 10, 0.25))
    assert foldlog("import", "run").status == 0
    assert foldlog("redact", "v1", "0", "--by", "me", "--reason", "secret", "--yes").status == 0
    write_v1(write, [said(0), said(1), said(2)], default=metrics(300, 30, 0.75, 2))
    grown = foldlog("import", "run", "--strict")
    assert (grown.status, spent()[0]) == (0, {"v1": (300, 30, 0.75, 2)})
    assert len(view_of("v1")) == 3
    write_v1(write, [], default=metrics(200, 20, 0.5, 1))
    assert "0 events" in foldlog("import", "run").out, "an older copy tells nothing new"
    assert spent()[0] == {"v1": (300, 30, 0.75, 2)}


def test_a_document_of_this_name_that_another_hand_wrote_is_no_usage(foldlog, write):
    odd = [7, {"reply": [], "at": 5, "cost": "1", "usage": 3, "calls": -2}, {"use": {}, "cost": -1.0, "model": 8}]
    write_v1(write, [said(0)], agent=metrics(100, 10, 0.25))
    assert foldlog("import", "run").status == 0
    for written in ("text", odd):
        with package.open("sqlite:///foldlog.db") as histories:
            histories["v1"].append((), documents={"imported usage": written})
        assert spent()[0]["v1"][:3] == (None, None, None)
        assert foldlog("import", "run").status == 0
        assert spent()[0]["v1"] == (100, 10, 0.25, 1)


def test_a_price_is_estimated_for_no_call_of_which_the_whole_cost_is_told(foldlog, write, tmp_path):
    (tmp_path / "prices.json").write_text('{"m": {"input_cost_per_token": 1, "output_cost_per_token": 1}}')
    prices = Prices(tmp_path / "prices.json")
    events = [said(0), told_stats(1, agent=metrics(100, 10, 0.0))]
    write_v1(write, events, agent=metrics(100, 10, 0.0))
    foldlog("import", "run")
    assert spent(prices)[0] == {"v1": (100, 10, 110.0, 1)}
    write_v1(write, events, agent=metrics(100, 10, 0.75))
    foldlog("import", "run")
    assert spent(prices)[0] == {"v1": (100, 10, 0.75, 1)}


def test_the_info_of_swe_agent_tells_what_its_run_used(foldlog, write):
    history = [{**message, "agent": "main"} for message in (*ASKED, {"role": "assistant", "content": "ls"})]

    def run(**stats):
        return {"history": history, "trajectory": [], "info": {"submission": "diff\n" * 300, "model_stats": stats}}

    write("a.traj", [run(total_cost=9.0, instance_cost=0.5, tokens_sent=300, tokens_received=30, api_calls=4)])
    write("zero.traj", [run(total_cost=0, instance_cost=0, tokens_sent=0, tokens_received=0, api_calls=0)])
    write("mini.json", [{"messages": ASKED, "info": {"model_stats": {"instance_cost": 0.25, "api_calls": 2}}}])
    write("none.traj", [{"history": history, "info": None}])
    assert foldlog("import", "a.traj", "zero.traj", "mini.json", "none.traj").status == 0
    assert spent()[0] == {
        "a": (300, 30, 0.5, 4),
        "zero": (None, None, None, 0),
        "mini": (None, None, 0.25, 2),
        "none": (None, None, None, 0),
    }
    assert exported(foldlog, "a") == history


def test_the_metrics_of_a_run_of_v0_tell_what_its_events_do_not(foldlog, write):
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    metrics = {"accumulated_cost": 0.25, "accumulated_token_usage": usage}
    message = {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}}
    say = {"id": 1, "source": "agent", "action": "message", "args": {"content": "done"}, "llm_metrics": metrics}
    run = {"instance_id": "i", "history": [message, say], "metrics": {"accumulated_cost": 0.75, "costs": []}}
    write("runs.jsonl", [run])
    write("s/metadata.json", [{"conversation_id": "s", "accumulated_cost": 0.5, **usage}])
    write("s/events/0.json", [message])
    write("s/events/1.json", [{**say, "llm_metrics": None}])
    assert foldlog("import", "runs.jsonl", "s").status == 0
    assert spent()[0] == {"runs:i": (100, 10, 0.75, 1), "s": (100, 10, 0.5, 1)}
