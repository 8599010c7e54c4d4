"""What an object or a folder tells beside the records of a history: the answer, and what calls of
models used.
"""

from __future__ import annotations

import json

import pytest

import foldlog as package
from foldlog._cli.stores import open_existing
from foldlog._figures.prices import Prices
from foldlog._figures.spending import spent_by
from foldlog._figures.stored import FiguresOfStore

ASKED = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Which files are here?"},
]
ANSWER = {"content": "Only a.py.", "role": "assistant", "tool_calls": None, "refusal": None}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
}


def one_call(messages=ASKED, answer=ANSWER, reply="r1", tokens=(90, 10), cost=0.5, **more):
    """A log of one call of a model."""
    prompt, completion = tokens
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    response = {
        "id": reply,
        "model": "m",
        "choices": [{"message": answer}, {"message": "no"}],
        "usage": usage,
    }
    return {
        **more,
        "response": response,
        "messages": messages,
        "cost": cost,
        "timestamp": 1_767_225_600.5,
    }


def spent(prices=None):
    """What each conversation spent: tokens in and out, cost, calls; and all of them together."""
    with open_existing("sqlite:///foldlog.db") as store:
        for row in list(store.iter_conversations()):
            store.version(row.id)  # which makes its events
        stored = FiguresOfStore(store)
        rows = [*stored.of(store.iter_conversations())]
        each = {row.id: spent_by(figures.calls, prices or Prices()) for row, figures in rows}
        stored.refresh()
        calls = [*stored.totals().models.values()]
        day = {one.day for one in calls}
        total = sum(one.cost or 0 for one in calls), sum(one.calls for one in calls)
    told = {
        name: (one.prompt_tokens, one.completion_tokens, one.cost, one.calls)
        for name, one in each.items()
    }
    return told, total, day


def view_of(name):
    with package.open("sqlite:///foldlog.db") as histories:
        return [getattr(event, "content", None) or event.tool for event in histories[name].view()]


def exported(name):
    """The records of a conversation."""
    with package.open("sqlite:///foldlog.db") as histories:
        return list(histories[name].export())


def test_the_answer_of_a_log_of_one_call_is_its_last_message(foldlog, write):
    many = [{"role": "user", "content": str(n)} for n in range(60)]
    write("one.json", [one_call()])
    write("lines.jsonl", [one_call(reply="r1"), one_call(answer=CALL, reply="r2", session_id="s")])
    write("repeats.json", [one_call([*many, {**ANSWER, "tool_calls": []}], reply="r3")])
    write("text.json", [{"messages": ASKED, "response": "Only a.py."}])
    write("failed.json", [{"messages": ASKED, "response": {"error": "overloaded"}, "cost": 0}])
    names = ["one.json", "lines.jsonl", "repeats.json", "text.json", "failed.json"]
    assert foldlog("import", *names, "--strict").status == 0
    assert exported("one") == [*ASKED, ANSWER]
    assert exported("s") == [*ASKED, CALL]
    assert exported("repeats")[-1] == {**ANSWER, "tool_calls": []}
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
    assert "0 records" in foldlog("import", "--check", *names).out


PLAIN = {"role": "assistant", "content": "Only a.py."}
MORE = {"role": "user", "content": "more"}


@pytest.mark.parametrize("given_back", [ANSWER, PLAIN, {**PLAIN, "tool_calls": []}])
def test_each_log_of_a_session_adds_to_it(foldlog, write, given_back):
    write("1.json", [one_call(session_id="s")])
    write("2.json", [one_call([*ASKED, given_back, MORE], reply="r2", session_id="s")])
    for _ in range(2):
        foldlog("import", "--check", "1.json")
        foldlog("import", "--check", "2.json")
        assert spent()[0] == {"s": (180, 20, 1.0, 2)}
    assert len(view_of("s")) == 5
    assert exported("s")[2] == given_back


def test_an_answer_that_is_given_back_as_another_one_is_not_the_same(foldlog, write):
    for number, other in enumerate(
        ({"content": "b.py"}, {"tool_calls": CALL["tool_calls"]}, {"refusal": "no"})
    ):
        first = [{"role": "user", "content": f"question {number}"}, *ASKED]
        write("s.json", [one_call(first, {**ANSWER, "refusal": "none"}, session_id=f"s{number}")])
        assert foldlog("import", "s.json").status == 0
        assert len(view_of(f"s{number}")) == 4  # used: what was its last record stays
        write(
            "s.json",
            [one_call([*first, {**PLAIN, **other}, MORE], reply="r2", session_id=f"s{number}")],
        )
        assert foldlog("import", "s.json").status == 0
        assert [len(view_of(name)) for name in (f"s{number}", f"s{number}@3")] == [4, 6]


def test_a_log_that_was_edited_is_a_fork_at_the_edit_and_what_it_tells_is_in_every_sum(
    foldlog, write
):
    write("s.json", [one_call(ASKED[1:])])
    foldlog("import", "s.json")
    write("s.json", [one_call([ASKED[1], PLAIN, MORE], reply="r2", tokens=(120, 5))])
    foldlog("import", "s.json")
    write(
        "s.json",
        [
            one_call(
                [ASKED[1], PLAIN, MORE, PLAIN, {"role": "user", "content": "b"}],
                reply="r3",
                cost=0.7,
            )
        ],
    )
    foldlog("import", "s.json")
    write(
        "s.json",
        [
            one_call(
                [ASKED[1], PLAIN, MORE, PLAIN, {"role": "user", "content": "c"}],
                reply="r4",
                cost=2.0,
            )
        ],
    )
    for _ in range(2):
        assert foldlog("import", "s.json").status == 0
        each, total, _ = spent()
        assert each["s"] == (300, 25, 1.7, 3)
        (fork,) = each.keys() - {"s"}
        assert each[fork][2:] == (2.0, 1), "the calls before it are those of the other"
        assert total == (3.7, 4)
        figures = json.loads(foldlog("stats", "--json").out)["models"]
        assert (sum(one["cost"] for one in figures), sum(one["calls"] for one in figures)) == (
            3.7,
            4,
        )
    assert len(view_of(fork)) == 6


def test_two_runs_that_share_a_reply_both_count(foldlog, write):
    for name, cost, calls in (("x", 9.0, 7), ("y", 20.0, 9)):
        stats = {
            "tokens_sent": 1_000,
            "tokens_received": 100,
            "instance_cost": cost,
            "api_calls": calls,
        }
        write(
            f"{name}.json",
            [one_call([*ASKED, {"role": "user", "content": name}], info={"model_stats": stats})],
        )
    foldlog("import", "x.json", "y.json")
    each, total, _ = spent()
    assert (each, total) == ({"x": (1_000, 100, 9.0, 7), "y": (1_000, 100, 20.0, 9)}, (29.0, 16))
    write("z.json", [one_call()])
    foldlog("import", "z.json", "x.json")
    with package.open("sqlite:///foldlog.db") as histories:
        histories["x"].fork(id="z2")
    assert spent()[1] == (29.5, 17)


def test_an_answer_of_anthropic_is_a_message(foldlog, write):
    blocks = [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}]
    told = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.py"}],
    }
    messages = [ASKED[1], {"role": "assistant", "content": blocks}, told]
    usage = {"input_tokens": 4, "cache_read_input_tokens": 86, "output_tokens": 10}
    response = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "a.py"}],
    }
    response |= {"model": "m", "usage": usage}
    write("one.json", [{"messages": messages, "response": response, "cost": 0.5}])
    assert foldlog("import", "one.json").status == 0
    assert exported("one") == [*messages, response]
    assert spent()[0] == {"one": (90, 10, 0.5, 1)}
    grown = [*messages, {"role": "assistant", "content": response["content"]}, MORE]
    write("one.json", [{"messages": grown, "response": {**response, "id": "m2"}, "cost": 0.5}])
    assert foldlog("import", "one.json").status == 0
    assert exported("one@3") == [*grown, {**response, "id": "m2"}]
    assert spent()[0] == {"one": (90, 10, 0.5, 1), "one@3": (90, 10, 0.5, 1)}


def said(n, **more):
    message = {"role": "user", "content": [{"type": "text", "text": f"said {n}"}]}
    return {
        "kind": "MessageEvent",
        "id": f"e{n}",
        "timestamp": f"2026-01-01T10:00:0{n}",
        "source": "user",
    } | {
        "llm_message": message,
        **more,
    }


def metrics(prompt, completion, cost, calls=1, model="m"):
    usage = {
        "model": model,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cache_read_tokens": 0,
    }
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
    return {
        "kind": "ConversationStateUpdateEvent",
        "id": f"e{n}",
        "key": "stats",
        "value": value,
        "source": "agent",
    }


def test_the_state_beside_the_events_of_v1_counts_until_the_events_tell(foldlog, write):
    first = [said(0), said(1)]
    write_v1(
        write, first, agent=metrics(300, 30, 0.75, 3), condenser=metrics(50, 5, 0.0, model="small")
    )
    assert foldlog("import", "run").status == 0
    assert spent()[0] == {"v1": (350, 35, None, 4)}
    assert exported("v1") == first
    models = json.loads(foldlog("stats", "v1", "--json").out)["models"]
    assert {one["cached_tokens"] for one in models} == {0}, "a zero that is told is known"
    assert "0 records" in foldlog("import", "run", "--check").out
    assert "2026-01-01 10:00" in foldlog("list", "--long").out, "an import is no activity"
    write_v1(
        write, [*first, told_stats(2, agent=metrics(100, 10, 0.25))], agent=metrics(900, 90, 9.0)
    )
    assert foldlog("import", "run").status == 0
    assert spent()[0] == {"v1": (100, 10, 0.25, 1)}


def test_a_use_whose_model_changes_is_counted_once(foldlog, write):
    before, after = metrics(100, 10, 1.0), metrics(220, 21, 2.1, 2, "m2")
    events = [said(0), told_stats(1, agent=before), said(2), told_stats(3, agent=after)]
    for name, its in (("untold", [said(0), said(1), said(2)]), ("told", events)):
        for state in (before, after):
            write_v1(write, its, agent=state)
            assert foldlog("import", "run", "--conversation", name).status == 0
    assert spent()[0] == {"told": (220, 21, 2.1, 2), "untold": (220, 21, 2.1, 2)}


def test_a_run_of_v1_grows_with_its_state_also_after_a_redaction(foldlog, write):
    write_v1(write, [said(0), said(1)], key="service_to_metrics", default=metrics(100, 10, 0.25))
    assert foldlog("import", "run").status == 0
    assert (
        foldlog("store", "redact", "v1", "0", "--by", "me", "--reason", "secret", "--yes").status
        == 0
    )
    write_v1(write, [said(0), said(1), said(2)], default=metrics(300, 30, 0.75, 2))
    grown = foldlog("import", "run", "--strict")
    assert (grown.status, spent()[0]) == (0, {"v1": (300, 30, 0.75, 2)})
    assert len(view_of("v1")) == 3
    write_v1(write, [], default=metrics(200, 20, 0.5, 1))
    assert "0 records" in foldlog("import", "run").out, "an older copy tells nothing new"
    assert spent()[0] == {"v1": (300, 30, 0.75, 2)}


def test_a_document_of_this_name_that_another_hand_wrote_is_no_usage(foldlog, write):
    odd = [
        7,
        {"reply": [], "at": 5, "cost": "x", "usage": 3, "calls": -2},
        {"use": {}, "cost": -1.0, "model": 8},
    ]
    write_v1(write, [said(0)], agent=metrics(100, 10, 0.25))
    assert foldlog("import", "run").status == 0
    for written in ("text", odd):
        with package.open("sqlite:///foldlog.db") as histories:
            histories["v1"].append((), documents={"imported usage": written})
        assert spent()[0]["v1"][:3] == (None, None, None)


def test_a_price_is_estimated_for_no_call_of_which_the_whole_cost_is_told(foldlog, write, tmp_path):
    (tmp_path / "prices.json").write_text(
        '{"m": {"input_cost_per_token": 1, "output_cost_per_token": 1}}'
    )
    prices = Prices(tmp_path / "prices.json")
    events = [said(0), said(1)]
    write_v1(write, events, agent=metrics(100, 10, 0.0))
    foldlog("import", "run")
    assert spent(prices)[0] == {"v1": (100, 10, 110.0, 1)}
    write_v1(write, events, agent=metrics(100, 10, 0.75))
    foldlog("import", "run")
    assert spent(prices)[0] == {"v1": (100, 10, 0.75, 1)}


def test_the_info_of_swe_agent_tells_what_its_run_used(foldlog, write):
    history = [
        {**message, "agent": "main"} for message in (*ASKED, {"role": "assistant", "content": "ls"})
    ]

    def run(**stats):
        return {
            "history": history,
            "trajectory": [],
            "info": {"submission": "diff\n" * 300, "model_stats": stats},
        }

    write(
        "a.traj",
        [run(total_cost=9.0, instance_cost=0.5, tokens_sent=300, tokens_received=30, api_calls=4)],
    )
    write(
        "zero.traj",
        [run(total_cost=0, instance_cost=0, tokens_sent=0, tokens_received=0, api_calls=0)],
    )
    write(
        "mini.json",
        [{"messages": ASKED, "info": {"model_stats": {"instance_cost": 0.25, "api_calls": 2}}}],
    )
    write("none.traj", [{"history": history, "info": None}])
    assert foldlog("import", "a.traj", "zero.traj", "mini.json", "none.traj").status == 0
    assert spent()[0] == {
        "a": (300, 30, 0.5, 4),
        "zero": (None, None, None, 0),
        "mini": (None, None, 0.25, 2),
        "none": (None, None, None, 0),
    }
    assert exported("a") == history


def test_the_metrics_of_a_run_of_v0_count_where_its_events_tell_nothing(foldlog, write):
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    metrics = {"accumulated_cost": 0.25, "accumulated_token_usage": usage}
    message = {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}}
    say = {
        "id": 1,
        "source": "agent",
        "action": "message",
        "args": {"content": "done"},
        "llm_metrics": metrics,
    }
    run = {
        "instance_id": "i",
        "history": [message, say],
        "metrics": {"accumulated_cost": 0.75, "costs": []},
    }
    several = {**metrics, "token_usages": [{"prompt_tokens": 50}] * 2}
    priced = {"accumulated_cost": 0.25, "costs": [0.125, 0.125]}
    others = [
        {"instance_id": each, "history": [message], "metrics": {"j": several, "k": priced}[each]}
        for each in "jk"
    ]
    write("runs.jsonl", [run, *others])
    write("s/metadata.json", [{"conversation_id": "s", "accumulated_cost": 0.5, **usage}])
    write("s/events/0.json", [message])
    write("s/events/1.json", [{**say, "llm_metrics": None}])
    assert foldlog("import", "runs.jsonl", "s").status == 0
    assert spent()[0] == {
        "runs:i": (100, 10, 0.25, 1),
        "runs:j": (100, 10, 0.25, 2),
        "runs:k": (None, None, 0.25, 2),
        "s": (100, 10, 0.5, 1),
    }


def test_the_share_of_the_condenser_in_a_run_of_v0_is_counted_once(foldlog, write):
    def used(cost, prompt):
        tokens = {"prompt_tokens": prompt, "completion_tokens": prompt // 10}
        return {"accumulated_cost": cost, "accumulated_token_usage": tokens}

    def act(n, action, told, **args):
        return {"id": n, "source": "agent", "action": action, "args": args, "llm_metrics": told}

    forgets = {
        "forgotten_events_start_id": 0,
        "forgotten_events_end_id": 0,
        "summary": "s",
        "summary_offset": 0,
    }
    history = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}},
        act(1, "message", used(0.25, 100), content="a"),
        act(2, "condensation", used(0.40, 300), **forgets),
        act(3, "message", used(0.75, 500), content="b"),
    ]
    write("runs.jsonl", [{"instance_id": "i", "history": history, "metrics": used(0.75, 500)}])
    assert foldlog("import", "runs.jsonl").status == 0
    assert spent()[0] == {"runs:i": (500, 50, 0.75, 3)}
