"""A task is a conversation with the conversations of its sub-agents: its figures, its ends and its
erasure.
"""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import pytest

import foldlog as api
from foldlog import Action, Message
from foldlog._privacy import erasing
from foldlog._programs.answers import Answers
from foldlog._programs.asking import Asking
from foldlog._web.conversations import ServedConversations
from foldlog._web.metrics import metrics
from foldlog.errors import ConversationErased, ConversationHasForks, InvalidArgument, InvalidEvent
from tests.said import said

PROMPTS = {"top": 1_000, "a": 200, "b": 300, "c": 40}
"""The tokens of the one prompt of each agent."""
BEGUN_BY = {"a": "top", "b": "top", "c": "a"}
AT = "2026-11-01T00:00:0{}.000Z"


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def claude_code(folder):
    """A sub-agent of a sub-agent names only the session."""
    for name, prompt in PROMPTS.items():
        agent = {} if name == "top" else {"agentId": name, "isSidechain": True}
        path = folder / ("top.jsonl" if name == "top" else f"top/subagents/agent-{name}.jsonl")
        usage = {"input_tokens": prompt, "output_tokens": 10}
        reply = {"role": "assistant", "model": "m", "id": f"m{name}", "usage": usage}
        lines = [
            {"type": "user", "message": {"role": "user", "content": "go"}},
            {
                "type": "assistant",
                "message": {**reply, "content": [{"type": "text", "text": "ok"}]},
            },
        ]
        above = [None, f"{name}0"]
        write_lines(
            path,
            [
                {**line, **agent, "uuid": f"{name}{n}", "parentUuid": above[n], "sessionId": "top"}
                | {"timestamp": AT.format(n), "cwd": "/x"}
                for n, line in enumerate(lines)
            ],
        )
    return {f"top/agent-{name}": "top" for name in BEGUN_BY}


def codex(folder):
    for name, prompt in PROMPTS.items():
        spawned = {"subagent": {"thread_spawn": {"parent_thread_id": BEGUN_BY.get(name)}}}
        source = {"source": spawned} if name in BEGUN_BY else {}
        usage = {"input_tokens": prompt, "output_tokens": 10, "total_tokens": prompt + 10}
        info = {"total_token_usage": usage, "last_token_usage": usage}
        lines = [
            ("session_meta", {"id": name, "cwd": "/x", **source}),
            ("turn_context", {"model": "m"}),
            (
                "response_item",
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "go"}],
                },
            ),
            ("event_msg", {"type": "token_count", "info": info}),
        ]
        write_lines(
            folder / f"rollout-2026-11-01T00-00-00-{name}.jsonl",
            [
                {"timestamp": AT.format(n), "type": kind, "payload": payload}
                for n, (kind, payload) in enumerate(lines)
            ],
        )
    return BEGUN_BY


def opencode(folder):
    for name, prompt in PROMPTS.items():
        parent = {"parentID": BEGUN_BY[name]} if name in BEGUN_BY else {}
        about = {"id": f"m{name}", "sessionID": name, "modelID": "m"}
        tokens = {"input": prompt, "output": 10, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        document = {
            "info": {"id": name, "projectID": "p", "title": "t", "time": {"created": 1}, **parent},
            "messages": [
                {
                    "info": {
                        **about,
                        "role": "assistant",
                        "tokens": tokens,
                        "time": {"created": 2},
                    },
                    "parts": [{"type": "text", "text": "ok"}],
                }
            ],
        }
        (folder / f"{name}.json").write_text(json.dumps(document))
    return BEGUN_BY


def atif(folder):
    def trajectory(name):
        step = {"step_id": 1, "source": "agent", "message": "ok", "model_name": "m"}
        metrics = {"prompt_tokens": PROMPTS[name], "completion_tokens": 10}
        below = [trajectory(child) for child, parent in BEGUN_BY.items() if parent == name]
        return {
            "schema_version": "ATIF-v1.8",
            "session_id": "top",
            "trajectory_id": name,
            "agent": {"name": "x", "version": "1"},
            "steps": [{**step, "metrics": metrics}],
            "subagent_trajectories": below,
        }

    (folder / "run.json").write_text(json.dumps(trajectory("top")))
    return {"top/a": "top", "top/b": "top", "top/a/c": "top/a"}


def gemini_cli(folder):
    for name, prompt in PROMPTS.items():
        path = folder / "chats" / BEGUN_BY.get(name, "") / f"{name}.jsonl"
        kind = "subagent" if name in BEGUN_BY else "main"
        about = {"sessionId": name, "projectHash": "p", "startTime": AT.format(0), "kind": kind}
        tokens = {"input": prompt, "output": 10, "total": prompt + 10}
        reply = {
            "id": f"m{name}",
            "type": "gemini",
            "content": "ok",
            "model": "m",
            "tokens": tokens,
        }
        asked = {"id": f"u{name}", "timestamp": AT.format(0), "type": "user", "content": "go"}
        write_lines(path, [about, asked, {**reply, "timestamp": AT.format(1)}])
    return BEGUN_BY


def qwen_code(folder):
    for name, prompt in PROMPTS.items():
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": 10}
        text = {"role": "model", "parts": [{"text": "ok"}]}
        lines = [{"type": "assistant", "model": "m", "message": text, "usageMetadata": usage}]
        if name in BEGUN_BY:
            payload = {"parentSessionId": BEGUN_BY[name]}
            begun = {"type": "system", "subtype": "parent_session", "systemPayload": payload}
            lines.insert(0, begun)
        write_lines(
            folder / "chats" / f"{name}.jsonl",
            [
                {**line, "uuid": f"{name}{n}", "parentUuid": f"{name}{n - 1}" if n else None}
                | {"sessionId": name, "timestamp": AT.format(n), "cwd": "/x"}
                for n, line in enumerate(lines)
            ],
        )
    return BEGUN_BY


def otlp_genai(folder):
    """The span of an agent is below the span of the tool that called it."""

    def span(name, above, does, **more):
        attributes = {"gen_ai.operation.name": does, "gen_ai.conversation.id": "top", **more}
        numbers = [
            {"key": key, "value": {"intValue" if type(value) is int else "stringValue": str(value)}}
            for key, value in attributes.items()
        ]
        ids = {"traceId": "t", "spanId": name, "parentSpanId": above}
        times = {
            "startTimeUnixNano": "1793491200000000000",
            "endTimeUnixNano": "1793491201000000000",
        }
        return {**ids, **times, "name": name, "attributes": numbers}

    reply = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "ok"}]}])
    spans = []
    for name, prompt in PROMPTS.items():
        if name in BEGUN_BY:
            call = {"gen_ai.tool.call.id": f"call {name}"}
            spans.append(span(f"{name}-tool", BEGUN_BY[name], "execute_tool", **call))
        usage = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": 10}
        said = {"gen_ai.request.model": "m", "gen_ai.output.messages": reply, **usage}
        spans.append(span(name, f"{name}-tool" if name in BEGUN_BY else "", "invoke_agent"))
        spans.append(span(f"{name}-chat", name, "chat", **said))
    (folder / "spans.json").write_text(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    )
    return {"top/a": "top", "top/b": "top", "top/c": "top/a"}


def openhands_v1(folder):
    """The state of an agent has the usage of its sub-agents too."""
    homes = {"top": folder / "top"}
    for name, parent in BEGUN_BY.items():
        homes[name] = homes[parent] / "subagents" / name

    def metrics(name):
        usage = {"prompt_tokens": PROMPTS[name], "completion_tokens": 10}
        return {"model_name": "m", "accumulated_token_usage": usage, "token_usages": [usage]}

    for name, home in homes.items():
        (home / "events").mkdir(parents=True)
        below = {
            f"delegate:{child}": metrics(child) for child in BEGUN_BY if BEGUN_BY[child] == name
        }
        state = {"id": name, "stats": {"usage_to_metrics": {"agent": metrics(name), **below}}}
        (home / "base_state.json").write_text(json.dumps(state))
        said = {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
        event = {"kind": "MessageEvent", "id": f"m{name}", "source": "agent", "llm_message": said}
        path = home / "events" / f"event-00000-m{name}.json"
        path.write_text(json.dumps({**event, "timestamp": "2026-11-01T00:00:00"}))
    return BEGUN_BY


@pytest.mark.parametrize("is_made", [False, True], ids=["as stored", "as made"])
@pytest.mark.parametrize(
    "write",
    [claude_code, codex, opencode, atif, gemini_cli, qwen_code, otlp_genai, openhands_v1],
)
def test_a_task_adds_up_its_sub_agents(foldlog, tmp_path, write, is_made):
    (tmp_path / "in").mkdir()
    begun_by = write(tmp_path / "in")
    assert foldlog("import --prefix p/ in").status == 0
    if is_made:
        for name in ["top", *begun_by]:
            assert foldlog(f"view p/{name}").status == 0

    stats = foldlog("stats p/top --json").document
    task = stats["task"]

    assert stats["spent"]["prompt_tokens"] == 1_000
    assert task["spent"]["prompt_tokens"] == sum(PROMPTS.values())
    assert task["spent"]["calls"] == task["sub_agents"] + 1 == 4
    agents = {agent["conversation"]: agent["parent"] for agent in task["agents"][1:]}
    assert agents == {f"p/{name}": f"p/{parent}" for name, parent in begun_by.items()}
    listed = foldlog("list --long --json").document["conversations"]
    sums = {row["conversation"]: row.get("task") for row in listed}
    assert sums["p/top"]["spent"] == task["spent"]
    whole = foldlog("stats p/top --with-children --json").document
    assert whole["spent"]["prompt_tokens"] == sum(PROMPTS.values())
    assert foldlog("stats --json").document["spent_alone"]["prompt_tokens"] == 1_000


@pytest.fixture
def histories():
    with api.open("memory:") as histories:
        yield histories


def call_agent(history, call_id="c", **arguments):
    history.append(Action(tool="agent", call_id=call_id, arguments=arguments))
    return history.open_calls()[-1]


def test_a_call_begins_one_sub_agent(histories):
    top = histories["top"]
    call = call_agent(top)
    child = top.begin_child(call, attributes={"user": "ann"})

    assert top.begin_child(call).id == child.id == "top/agent-0"
    assert child.attributes() == {"user": "ann", "parent": "top", "parent_call": "c"}
    assert histories["top"].version() == 2
    with pytest.raises(InvalidArgument, match="did not begin it"):
        top.begin_child(call_agent(top, "d"), child.id)
    top.append_tool_result(call, "done")
    with pytest.raises(InvalidEvent, match="already has a result"):
        top.begin_child(call, "another")


def test_a_sub_agent_whose_begin_was_killed_begins_again(histories, monkeypatch):
    top = histories["top"]
    call = call_agent(top)
    with monkeypatch.context() as killed:
        killed.setattr(histories, "create", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            top.begin_child(call)
    assert "top/agent-0" not in histories
    assert top.begin_child(call).version() == 1
    assert top.version() == 2


def test_an_interrupted_task_is_resumed_and_closed_as_one(histories):
    """A call of a sub-agent's sub-agent may have run: the answer of the outermost call says so."""
    top = histories["top"]
    middle = top.begin_child(call_agent(top))
    inner = middle.begin_child(call_agent(middle))
    inner.append(Action(tool="pay", call_id="p"))
    with pytest.raises(KeyboardInterrupt), inner.lease():
        inner.run(*inner.open_calls(), lambda: histories_interrupted())

    assert list(histories.to_resume()) == ["top"]
    (closed,) = top.close_open_calls("killed")
    assert closed.event.content.startswith(
        "interrupted: killed\nin top/agent-0/agent-1, unknown: pay"
    )
    assert list(histories.to_resume()) == []
    assert not middle.open_calls()
    assert not inner.open_calls()


def test_a_fork_does_not_close_the_calls_of_its_parents_sub_agents(histories):
    top = histories["top"]
    child = top.begin_child(call_agent(top))
    child.append(Action(tool="pay", call_id="p"))
    fork = top.fork()
    assert len(fork.close_open_calls("stopped")) == 1
    assert [call.tool for call in child.open_calls()] == ["pay"]
    assert len(top.close_open_calls("stopped")) == 1
    assert not child.open_calls()


def test_an_interrupted_task_is_closed_at_any_depth(histories):
    """Each agent is read once, and the outermost call names what may have run far below it."""
    agents = [histories["top"]]
    for number in range(250):
        agents.append(agents[-1].begin_child(call_agent(agents[-1]), f"agent {number}"))
    agents[-1].append(Action(tool="pay", call_id="p"))
    with pytest.raises(KeyboardInterrupt), agents[-1].lease():
        agents[-1].run(*agents[-1].open_calls(), lambda: histories_interrupted())

    assert list(histories.to_resume()) == ["top"]
    (closed,) = agents[0].close_open_calls("killed")
    assert "in agent 249, unknown: pay" in closed.event.content
    assert not any(agent.open_calls() for agent in agents)


def test_histories_that_began_each_other_are_both_resumed(histories):
    for name, parent in (("one", "other"), ("other", "one"), ("below", "one")):
        call_agent(histories.create(name, {"parent": parent}))
    assert list(histories.to_resume()) == ["one", "other"]


def test_a_history_that_has_the_id_of_an_erased_parent_has_no_sub_agents(histories):
    child = histories["top"].begin_child(call_agent(histories["top"]))
    call_agent(child)
    histories.erase("top", reason="x")
    top = histories.create("top", replace_erased=True)
    call = call_agent(top)

    assert top.stats(with_children=True).conversations == 1
    assert list(histories.to_resume()) == ["top", child.id]
    with pytest.raises(InvalidArgument, match="did not begin it"):
        top.begin_child(call, child.id)
    new = top.begin_child(call)
    assert top.stats(with_children=True).conversations == 2
    assert [agent.id for agent in (child, new)] == ["top/agent-0", "top/agent-1"]


def test_an_erased_sub_agent_is_refused_before_its_begin_is_recorded(histories):
    top = histories["top"]
    call = call_agent(top)
    histories.erase(top.begin_child(call).id, reason="x")
    version = top.version()
    with pytest.raises(ConversationErased):
        top.begin_child(call)
    with pytest.raises(ConversationErased):
        top.begin_child(call_agent(top, "d"), "top/agent-0")
    assert top.version() == version + 1
    assert len(top.close_open_calls("stopped")) == 2


def histories_interrupted():
    raise KeyboardInterrupt


def test_a_fork_and_an_orphan_are_no_sub_agents(histories):
    top = histories["top"]
    child = top.begin_child(call_agent(top))
    child.append(said("one"))
    child.fork(1, "fork")
    histories.create("orphan", {"parent": "gone"})
    histories.create("circle", {"parent": "circle"})

    assert top.stats(with_children=True).conversations == 2
    assert histories["orphan"].stats(with_children=True).conversations == 1
    assert histories["circle"].stats(with_children=True).conversations == 1


def make_task(histories, depth=2):
    """Begin ``task``, two sub-agents of it, and a sub-agent of each."""
    agents = [histories["task"]]
    agents[0].append(said("go"))
    for agent in agents:
        if agent.id.count("/") < depth:
            agents += [agent.begin_child(call_agent(agent, name)) for name in "ab"]
    return [agent.id for agent in agents]


def test_an_erasure_says_how_many_sub_agents_it_leaves_or_erases_them(foldlog):
    with api.open("foldlog.db") as histories:
        ids = make_task(histories)
    left = foldlog("store erase task --reason x --yes --dry-run")
    assert "6 conversations of sub-agents are not erased" in left.err
    erased = foldlog("store erase task --with-children --reason x --yes --json")
    assert {row["conversation"] for row in erased.document["conversations"]} == {*ids}
    assert erased.document["conversations"][-1]["conversation"] == "task"
    assert "sub-agent" not in erased.err


@pytest.mark.parametrize("forked", [0, 1, -1], ids=["task", "sub-agent", "innermost"])
def test_a_task_stays_as_a_whole_if_an_agent_has_a_fork(histories, forked):
    ids = make_task(histories)
    histories[ids[forked]].fork(1, "fork")
    with pytest.raises(ConversationHasForks):
        histories.erase("task", reason="x", with_children=True)
    assert all(name in histories for name in ids)
    histories.erase("task", reason="x", with_children=True, with_forks=True)
    assert not any(name in histories for name in (*ids, "fork"))


def test_a_task_expires_when_its_last_agent_is_old():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with api.open("memory:", clock=lambda: now[0]) as histories:
        ids = make_task(histories, depth=1)
        expire = partial(histories.maintenance.expire, timedelta(days=5), with_children=True)
        now[0] += timedelta(days=10)
        histories[ids[-1]].append(said("still at work"))
        assert expire().conversations == ()
        now[0] += timedelta(days=10)
        with histories["task"].lease():
            assert expire().conversations == ()
        assert {row.id for row in expire().conversations} == {*ids}


@pytest.mark.parametrize("killed_at", range(4))
def test_a_killed_erasure_of_a_task_leaves_no_orphan(histories, monkeypatch, killed_at):
    ids = make_task(histories)
    erase = erasing.erase.erase
    calls = iter(range(9))

    def erase_or_die(*given, **options):
        if next(calls) == killed_at:
            raise KeyboardInterrupt
        return erase(*given, **options)

    with monkeypatch.context() as killed:
        killed.setattr(erasing.erase, "erase", erase_or_die)
        with pytest.raises(KeyboardInterrupt):
            histories.erase("task", reason="x", with_children=True)
    left = {name for name in ids if name in histories}
    assert len(left) == len(ids) - killed_at
    assert all(name.rpartition("/")[0] in {"", *left} for name in left)
    histories.erase("task", reason="x", with_children=True)
    assert not any(name in histories for name in ids)


def test_an_export_writes_sub_agents_beside_their_parent(foldlog, tmp_path):
    (tmp_path / "in").mkdir()
    claude_code(tmp_path / "in")
    assert foldlog("import in").status == 0
    assert "3 sub-agents not exported" in foldlog("export top").err
    assert foldlog("export top --with-children --output out/top.jsonl").status == 2
    (tmp_path / "out").mkdir()
    assert foldlog("export top --with-children --output out/top.jsonl").status == 0
    assert foldlog("import out --db again.db").status == 0
    again = foldlog("stats top --json --db again.db").document["task"]
    assert again == foldlog("stats top --json").document["task"]


def test_sub_agents_are_exported_into_files_of_their_own(foldlog, tmp_path):
    """Ids may give the same name, or a long one. Other files are not replaced."""
    names = ["task/x", "x", "日本" * 40, "日本" * 40 + "!"]
    with api.open("foldlog.db") as histories:
        call = call_agent(histories["task"])
        for name in names:
            histories["task"].begin_child(call, name).append(said(name))
    export = "export task --format openai-chat --with-children"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "x.json").write_text("mine")

    assert "name a file such as plain.json" in foldlog(f"{export} --output plain").err
    assert "run/x.json exists" in foldlog(f"{export} --output run.json").err
    assert not (tmp_path / "run.json").exists()
    assert foldlog(f"{export} --force --output run.json").status == 0
    texts = {json.loads(path.read_text())["content"] for path in (tmp_path / "run").iterdir()}
    assert texts == {*names}


def test_a_random_forest_has_no_orphans_and_counts_each_reply_once(histories):
    """An independent count of random trees, whose agents record some replies twice."""
    random = Random(11)
    parents: dict[str, str | None] = {}
    replies: dict[str, dict[str, int]] = {}
    for number in range(60):
        name = f"agent {number}"
        parents[name] = random.choice([None, *parents]) if parents else None
        link = {"parent": parents[name]} if parents[name] else {}
        history = histories.create(name, link)
        replies[name] = {f"r{random.randrange(90)}": 7 for _ in range(random.randrange(4))}
        for reply, tokens in replies[name].items():
            usage = {"prompt_tokens": tokens, "completion_tokens": 1}
            meta = {"model": "m", "usage": usage, "reply": reply}
            history.append(Message(source="agent", content="ok", meta=meta))
        if random.random() < 0.2:
            gone = random.choice([*parents])
            histories.erase(gone, reason="x", with_children=True)
            below = {gone}
            for child, parent in parents.items():  # a parent is older than its sub-agents
                below |= {child} if parent in below else set()
            for each in below:
                parents.pop(each), replies.pop(each)

    assert {*parents} == set(histories)
    for name in parents:
        task = [name]
        for child, parent in parents.items():
            task += [child] if parent in task else []
        counted = {reply: tokens for each in task for reply, tokens in replies[each].items()}
        stats = histories[name].stats(with_children=True)
        assert stats.conversations == len(task)
        assert (stats.spent.prompt_tokens or 0) == sum(counted.values())


def test_a_comparison_of_two_runs_shows_their_tasks(foldlog):
    with api.open("foldlog.db") as histories:
        for name in ("one", "other"):
            child = histories[name].begin_child(call_agent(histories[name]))
            child.append(Message(source="agent", content="ok", meta={"model": "m", "cost": 0.5}))
    assert foldlog("list --long").status == 0
    compared = foldlog("diff one other --json").document
    assert [run["task"]["spent"]["cost"] for run in compared["runs"]] == [0.5, 0.5]
    assert "cost with sub-agents" in foldlog("diff one other").out


def hand_down(histories):
    """The library is found by a sub-agent of a sub-agent, and the first result does not name it.
    The key, which the user gave, is given to nobody.
    """
    top = histories["top"]
    top.append(said("release it with key_0042"))
    middle = top.begin_child(call_agent(top, "m", prompt="repair lib_build"), "middle")
    middle.append(said("repair lib_build"))
    inner = middle.begin_child(call_agent(middle, "i", prompt="read the log"), "inner")
    inner.append([said("read the log"), Message(source="agent", content="libexpat_2 is old")])
    middle.append_tool_result(*middle.open_calls(), "libexpat_2 is old")
    middle.append(Message(source="agent", content="repaired"))
    top.append_tool_result(*top.open_calls(), "repaired")
    top.append(Message(source="agent", content="which one? libexpat_2?"))


WORDS = {
    "libexpat_2": [
        ("top", True, "top", None, None),
        ("middle", True, "inner", False, False),
        ("inner", True, "inner", False, True),
    ],
    "lib_build": [
        ("top", True, "top", None, None),
        ("middle", True, "top", True, False),
        ("inner", False, None, False, False),
    ],
    "key_0042": [
        ("top", True, "top", None, None),
        ("middle", False, None, False, False),
        ("inner", False, None, False, False),
    ],
}


@pytest.mark.parametrize("words", WORDS)
def test_a_task_says_from_whom_each_agent_has_a_text_and_where_it_was_lost(foldlog, words):
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        answers = histories["top"].hand_overs(words)
    assert [
        (each.conversation, each.fact is not None, each.came_from, each.is_given, each.is_returned)
        for each in answers
    ] == WORDS[words]
    shown = foldlog(f"why top {words} --with-children")
    assert ("lost: result 3 of top" in shown.out) == (words != "key_0042")
    assert ("call 1 of top did not give it" in shown.out) == (words == "key_0042")
    document = foldlog(f"why top {words} --with-children --json").document
    assert [agent["reason"] for agent in document["agents"]] == [each.reason for each in answers]


def test_a_call_did_not_give_what_a_user_told_the_sub_agent_later(histories):
    hand_down(histories)
    histories["middle"].append([Message(source="agent", content="which?"), said("key_0042")])
    _, middle, _ = histories["top"].hand_overs("key_0042")
    assert "the user wrote it in event" in middle.reason
    assert "call 1 of top did not give it, although event 0 of top has it" in middle.reason


def test_a_call_says_what_it_did_not_give_and_its_result_did_not_return(foldlog):
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        (answer,) = histories["top"].hand_overs(1)
        with pytest.raises(InvalidArgument, match=r"event 0 of 'top' began no sub-agent.*did: 1$"):
            histories["top"].hand_overs(0)
    assert [(each.term, each.needed_in) for each in answer.not_given] == [("key_0042", None)]
    assert [(each.term, each.event, each.needed_in) for each in answer.not_returned] == [
        ("libexpat_2", 4, 4)
    ]
    assert answer.reason in foldlog("why top 1 --with-children").out.replace("\n", " ")


def test_a_hit_in_a_sub_agent_names_its_task(foldlog):
    """No figures are counted yet, and the search does not count them."""
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        histories.create("orphan", {"parent": "gone"}).append(said("libexpat_2"))
    hits = foldlog("search libexpat_2 --json").document["hits"]
    tasks = {hit["conversation"]: hit.get("task") for hit in hits}
    assert tasks == {"top": None, "middle": "top", "inner": "top", "orphan": None}
    assert foldlog("search libexpat_2").out.count("sub-agent in the task top") == 2


def test_metrics_and_a_comparison_say_what_a_task_costs(foldlog):
    with api.open("foldlog.db") as histories:
        child = histories["one"].begin_child(call_agent(histories["one"]))
        for history, cost in ((histories["one"], 0.5), (child, 2)):
            meta = {"model": "m", "cost": cost}
            history.append(Message(source="agent", content="ok", meta=meta))
        served = ServedConversations(histories.store)
        try:
            page = metrics(histories.store, served.fleet(""))
        finally:
            served.close()
    assert "\nfoldlog_sub_agents 1\n" in page
    assert "\nfoldlog_model_cost_without_sub_agents_usd 0.5\n" in page
    assert "\nfoldlog_model_cost_usd 2.5\n" in page
    compared = foldlog("compare one --json")
    assert compared.document["task"]["spent"]["cost"] == 2.5
    assert "the replays leave out the sub-agents" in compared.err


def test_the_tools_of_a_coding_agent_answer_about_a_task(histories):
    hand_down(histories)
    histories["top"].stats()
    tools = Answers(histories.store, Asking(histories.store, {}, None, may_import=False))
    assert "with 2 sub-agents: " in tools.sessions()
    assert "lost: result 3 of top does not have it" in tools.why("libexpat_2", "top")
    everywhere = tools.recall("libexpat_2", conversation="*")
    assert "conversation inner in the task of conversation top, event 2" in everywhere
