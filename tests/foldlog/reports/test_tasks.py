"""A task is a conversation with the conversations of its sub-agents: its figures, its ends and its
erasure.
"""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from shutil import copytree

import pytest

import foldlog as api
from foldlog import Action, Observation, Store
from foldlog._app.coding_agents.asked_conversation import Asking
from foldlog._app.coding_agents.mcp_tools import Answers
from foldlog._app.server.conversations import ServedConversations
from foldlog._history.sub_agents import begun_by
from foldlog._reports.answers.figures import SpentDocument, TaskDocument
from foldlog._reports.figures import counting
from foldlog._reports.words.gist import task_words
from foldlog.errors import ConversationErased, ConversationHasForks, InvalidArgument, InvalidEvent
from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.projections import Views
from tests.between import Killed, kill_after
from tests.foldlog.imports.imports import figures_of
from tests.foldlog.records import GOLDEN
from tests.said import replied, said
from tests.stored_rows import execute
from tests.waiting import until
from tests.web_client import asking_store

TASKS = GOLDEN / "tasks"
"""The files of a task, as some programs write them: ``top`` began ``a`` and ``b``, and ``a`` began
``c``. Claude Code names only the session for each agent. In the folders ``…-parents``, a file beside
the log of an agent names its parent and its call. Harbor made ``atif-parents`` of such a task of
Codex: its totals include the sub-agents, and no step has usage. In ``codex-forks``, ``a`` and ``b``
begin with the messages of ``top``, and have as many tokens. The state of an agent of OpenHands has
the usage of its sub-agents too.
"""
BEGUN_BY = json.loads((TASKS / "agents.json").read_text())
"""By format, the parent of each agent."""


@pytest.mark.parametrize("is_made", [False, True], ids=["as stored", "as made"])
@pytest.mark.parametrize("format", BEGUN_BY)
def test_a_task_adds_up_its_sub_agents(foldlog, format, is_made):
    parents = BEGUN_BY[format]
    imported = foldlog("import --prefix p/", TASKS / format)
    assert (imported.status, "left out" in imported.err) == (0, False)
    if is_made:
        for name in ["top", *parents]:
            assert foldlog(f"view p/{name}").status == 0

    stats = foldlog("stats p/top --json").document
    task = stats["task"]

    assert stats["spent"]["prompt_tokens"] == 1_000
    assert task["spent"]["prompt_tokens"] == 1_540
    assert task["spent"]["calls"] == task["sub_agents"] + 1 == 4
    agents = {agent["conversation"]: agent["parent"] for agent in task["agents"][1:]}
    assert agents == {f"p/{name}": f"p/{parent}" for name, parent in parents.items()}
    if format.endswith("-parents"):
        calls = [agent["call"] for agent in task["agents"][1:]]
        assert sorted(calls) == ["call a", "call b", "call c"]
    listed = foldlog("list --long --json").document["conversations"]
    sums = {row["conversation"]: row.get("task") for row in listed}
    assert sums["p/top"]["spent"] == task["spent"]
    whole = foldlog("stats p/top --with-children --json").document
    assert whole["spent"]["prompt_tokens"] == 1_540
    assert foldlog("stats --json").document["spent_alone"]["prompt_tokens"] == 1_000


@pytest.mark.parametrize("is_made", [False, True], ids=["as stored", "as made"])
@pytest.mark.parametrize("format", BEGUN_BY)
def test_the_parent_of_a_sub_agent_is_one_attribute(foldlog, format, is_made):
    foldlog("import --prefix p/", TASKS / format)
    for name, parent in BEGUN_BY[format].items():
        if is_made:
            foldlog(f"view p/{name}")
        shown = foldlog(f"attributes p/{name} --json").document["attributes"]
        assert shown["parent"] == f"p/{parent}"
        found = foldlog(f"list parent=p/{parent} --json").rows()
        assert f"p/{name}" in found
        foldlog(f"attributes p/{name} --set parent=another")
        assert f"p/{name}" not in foldlog(f"list parent=p/{parent} --json").rows()
        assert foldlog("list parent=another --json").rows() == [f"p/{name}"]
        foldlog(f"attributes p/{name} --set parent=p/{parent}")


def two_of_opencode(folder):
    parts = [
        {
            "type": "tool",
            "tool": "task",
            "callID": f"call {name}",
            "state": {"status": "completed", "input": {}, "output": f"<task id={name}>"},
        }
        for name in ("ses_1", "ses_2")
    ]
    for name in ("top", "ses_1", "ses_2"):
        parent = {} if name == "top" else {"parentID": "top"}
        message = {"id": f"m{name}", "sessionID": name, "role": "assistant"}
        info = {"id": name, "projectID": "p", "title": "t", "time": {"created": 1}, **parent}
        spoken = parts if name == "top" else [{"type": "text", "text": "ok"}]
        messages = [{"info": {**message, "time": {"created": 2}}, "parts": spoken}]
        (folder / f"{name}.json").write_text(json.dumps({"info": info, "messages": messages}))


def two_of_gemini_cli(folder):
    """A record has the results of both calls, and of a call that began no sub-agent."""
    calls = [
        {
            "id": f"call {name}",
            "name": "invoke_agent",
            "result": [{"functionResponse": {"id": f"call {name}", "response": {"output": "ok"}}}],
            **({"agentId": name} if name else {}),
        }
        for name in ("", "ses_1", "ses_2")
    ]
    (folder / "chats/top").mkdir(parents=True)
    for name in ("top", "ses_1", "ses_2"):
        time = "2026-11-01T00:00:00.000Z"
        about = {"sessionId": name, "projectHash": "p", "startTime": time}
        reply = {"id": f"m{name}", "type": "gemini", "content": "ok", "timestamp": time}
        more = {"toolCalls": calls} if name == "top" else {}
        path = folder / "chats" / ("" if name == "top" else "top") / f"{name}.jsonl"
        path.write_text(f"{json.dumps(about)}\n{json.dumps({**reply, **more})}\n")


@pytest.mark.parametrize(
    "write, names",
    [
        (two_of_opencode, ("ses_1", "ses_2")),
        (two_of_gemini_cli, ("ses_1", "ses_2")),
        (
            partial(copytree, TASKS / "qwen-code-parents", dirs_exist_ok=True),
            ("top/agent-a", "top/agent-b"),
        ),
    ],
    ids=["opencode", "gemini-cli", "qwen-code"],
)
def test_sub_agents_of_one_reply_have_their_calls(foldlog, tmp_path, write, names):
    write(tmp_path)
    assert foldlog("import .").status == 0
    events = foldlog("view top --json").document["events"]
    calls = {event["call_id"]: event["id"] for event in events if event["kind"] == "action"}
    for name in names:
        call = calls[f"call {name.removeprefix('top/agent-')}"]
        answer = foldlog(f"why top {call} --with-children --json").document
        assert [agent["conversation"] for agent in answer["agents"]] == [name]


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


def test_killed_begin_begins_again(histories, monkeypatch):
    top = histories["top"]
    call = call_agent(top)
    with monkeypatch.context() as killed:
        killed.setattr(histories, "create", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            top.begin_child(call)
    assert "top/agent-0" not in histories
    assert top.begin_child(call).version() == 1
    assert top.version() == 2


def test_fork_closes_no_calls_of_sub_agents(histories):
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
    for number in range(100):
        agents.append(agents[-1].begin_child(call_agent(agents[-1]), f"agent {number}"))
    agents[-1].append(Action(tool="pay", call_id="p"))
    with pytest.raises(KeyboardInterrupt), agents[-1].lease():
        agents[-1].run(*agents[-1].open_calls(), interrupt)

    assert list(histories.to_resume()) == ["top"]
    (closed,) = agents[0].close_open_calls("killed")
    assert closed.event.content.startswith("interrupted: killed\nin agent 99, unknown: pay")
    assert list(histories.to_resume()) == []
    assert not any(agent.open_calls() for agent in agents)


def test_call_that_a_later_reply_left_behind_is_not_resumed(histories):
    history = histories["top"]
    history.append(Action(tool="pay", call_id="p", response_id="r1"))
    history.append(Observation(content="paid", call_id="q"))
    history.append(Action(tool="pay", call_id="s", response_id="r1"))
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.append(said("Are you there?"))
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.append(replied("yes"))
    assert states_and_left(histories) == (["answer"], [])
    assert [call.call_id for call in history.open_calls()] == ["p", "s"]
    history.append(Action(tool="pay", call_id="t", response_id="r2"))
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.append_tool_result("t", "paid")
    assert states_and_left(histories) == (["result"], [])
    history.append_tool_result("p", "late")
    history.append(Action(tool="pay", call_id="s", response_id="r3"))
    assert states_and_left(histories) == (["open_call"], ["top"])


def test_call_that_was_taken_back_is_not_open(histories):
    history = histories["top"]
    history.append([said("pay"), Action(tool="pay", call_id="p"), Action(tool="pay", call_id="q")])
    history.retract(2)
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.retract(1)
    assert states_and_left(histories) == (["request"], [])


def test_call_that_a_retraction_brought_back_is_open(histories):
    history = histories["top"]
    history.append([said("pay"), Action(tool="pay", call_id="p")])
    taken_back = history.retract(1)
    assert states_and_left(histories) == (["request"], [])
    history.retract(taken_back.id)
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.append(Observation(content="paid", call_id="p"))
    assert states_and_left(histories) == (["result"], [])
    history.retract(history.version() - 1)
    assert states_and_left(histories) == (["open_call"], ["top"])
    history.append([said("Are you there?"), replied("yes")])
    assert states_and_left(histories) == (["answer"], [])
    history.retract(history.version() - 1)
    assert states_and_left(histories) == (["open_call"], ["top"])


@pytest.mark.parametrize("call_id", [None, "p"])
def test_one_of_two_calls_with_one_id_is_taken_back(histories, call_id):
    history = histories["top"]
    history.append([said("pay"), Action(tool="pay", call_id=call_id)])
    history.append([said("again"), Action(tool="pay", call_id=call_id)])
    history.retract(3)
    assert states_and_left(histories) == (["open_call"], ["top"])
    assert [call.id for call in history.open_calls()] == [1]


def test_damaged_event_hides_no_open_call(stored):
    stored["top"].append([said("begin"), replied("ok"), Action(tool="pay", call_id="p")])
    execute(stored.store.path, "UPDATE events SET body = replace(body, 'begin', 'BEGIN')")
    with open_store(stored.store.path) as store:
        figures = counting.figures_of(store, Views(store), store.conversation("top"))
        assert "checksum" in figures.overview.problem
        assert figures_of(store, "top")["state"] == "open_call"
        api.Histories(store)["top"].append(Observation(content="paid", call_id="p"))
        assert figures_of(store, "top")["state"] == "result"


def states_and_left(histories):
    """Return the state of ``top``, and the histories that are to be resumed."""
    return [figures_of(histories.store, "top")["state"]], [*histories.to_resume()]


def test_histories_that_began_each_other_are_both_resumed(histories):
    for name, parent in (("one", "other"), ("other", "one"), ("below", "one")):
        call_agent(histories.create(name, {"parent": parent}))
    assert list(histories.to_resume()) == ["one", "other"]


def test_new_history_lacks_sub_agents_of_erased_one(histories):
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


def test_erased_sub_agent_is_refused(histories):
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


def interrupt():
    raise KeyboardInterrupt


def test_forks_and_orphans_are_no_sub_agents(histories):
    top = histories["top"]
    child = top.begin_child(call_agent(top))
    child.append(said("one"))
    child.fork(1, "fork")
    histories.create("orphan", {"parent": "gone"})
    histories.create("circle", {"parent": "circle"})

    assert top.stats(with_children=True).conversations == 2
    assert histories["orphan"].stats(with_children=True).conversations == 1
    assert histories["circle"].stats(with_children=True).conversations == 1


def test_fork_without_its_parent_is_no_sub_agent(histories):
    top = histories["top"]
    child = top.begin_child(call_agent(top))
    child.append(said("one"))
    child.fork(child.version(), "fork").append(said("two"))
    with api.open("memory:") as copies:
        assert not any(row.problem for row in copy_store(histories.store, copies.store))
        assert copies["top"].stats(with_children=True).conversations == 2
    histories.erase(child.id, reason="x", detach_forks=True)
    assert top.stats(with_children=True).conversations == 1


def make_task(histories, depth=2):
    """Begin ``task`` with two sub-agents, each with a sub-agent."""
    agents = [histories["task"]]
    agents[0].append(said("go"))
    for agent in agents:
        if agent.id.count("/") < depth:
            agents += [agent.begin_child(call_agent(agent, name)) for name in "ab"]
    return [agent.id for agent in agents]


def test_erasure_counts_or_erases_sub_agents(foldlog):
    with api.open("foldlog.db") as histories:
        ids = make_task(histories)
    left = foldlog("store erase task --reason x --yes --dry-run")
    assert "not erased, and may contain the content: 6 sub-agents" in left.err
    erased = foldlog("store erase task --with-children --reason x --yes --json")
    assert {row["conversation"] for row in erased.document["conversations"]} == {*ids}
    assert erased.document["conversations"][-1]["conversation"] == "task"
    assert "sub-agent" not in erased.err


def test_a_sum_names_the_sub_agents_that_it_lost(foldlog):
    with api.open("foldlog.db") as histories:
        ids = make_task(histories)
        for name in ids:
            usage = {"prompt_tokens": 10, "completion_tokens": 1}
            histories[name].append(replied("done", meta={"usage": usage}))
        assert histories["task"].stats(with_children=True).findings == []
        histories.erase(ids[4], reason="asked to")
        leaf = histories["task"].stats(with_children=True)
        assert leaf.findings == [
            "conversation 'task': 1 sub-agent erased; the sums do not include them"
        ]
        histories.erase(ids[2], reason="asked to")
        below = histories[ids[1]].stats(with_children=True)
        assert [finding.partition(": ")[2].partition(";")[0] for finding in below.findings] == [
            "1 sub-agent erased"
        ]
    words = "2 sub-agents erased, 2 no longer reached"
    task = foldlog("stats task --json").document["task"]
    numbers = task["sub_agents"], task["sub_agents_erased"], task["sub_agents_unreached"]
    assert numbers == (2, 2, 2)
    assert task["spent"]["calls"] == 3
    assert words in foldlog("stats task").out.replace("\n", " ")
    for options in ("--with-children", "--by agent"):
        assert words in " ".join(foldlog(f"stats task {options}").err.split())
    assert "(2 of 6)" in foldlog("list --long").out


def test_a_task_may_begin_without_a_zone_and_end_with_one(foldlog, tmp_path):
    message = {"role": "user", "content": "hello", "timestamp": "2026-01-01T10:00:00"}
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [message]}))
    foldlog("import chat.json --conversation top")
    with api.open("foldlog.db") as histories:
        histories["top"].append(said("again", timestamp=datetime(2026, 1, 1, 11, tzinfo=UTC)))
        histories["kid"].set_attributes(parent="top")
        histories["kid"].append(said("x", timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC)))
    ran = foldlog("stats top")
    assert "with 1 sub-agent: " in ran.out
    assert " of work in 2 h 00 m" in ran.out


def test_an_application_may_annotate_sub_agents_itself(histories):
    history = histories["own"]
    history.append(said("go"))
    call = call_agent(history, "a")
    for data in ({"name": "mine"}, {"conversation": 7}, "mine", None):
        history.append(api.Annotation(name="sub_agent", data=data, cause=call.id))
    child = history.begin_child(call)
    child.append(said("begin"))
    stats = history.stats(with_children=True)
    assert (stats.findings, stats.sub_agents, stats.events["annotation"]) == ([], 1, 5)
    assert [(begun_at, agent.id) for begun_at, agent in begun_by(history)] == [(call.id, child.id)]


def test_a_table_of_agents_has_the_sub_agents(foldlog):
    with api.open("foldlog.db") as histories:
        make_task(histories)
    table = foldlog("stats task --by agent")
    assert foldlog("stats task --by agent --with-children").out == table.out


def test_a_task_whose_sub_agents_were_all_erased_says_so(foldlog):
    with api.open("foldlog.db") as histories:
        top = histories["top"]
        top.append(said("go"))
        histories.erase(top.begin_child(call_agent(top, "a")).id, reason="asked to")
        histories["alone"].append(said("go"))
    assert "not included: 1 sub-agent erased" in foldlog("stats top").out.replace("\n", " ")
    assert "task" not in foldlog("stats alone --json").document


@pytest.mark.parametrize("forked", [0, 1, -1], ids=["task", "sub-agent", "innermost"])
def test_fork_of_an_agent_keeps_the_task(histories, forked):
    ids = make_task(histories)
    histories[ids[forked]].fork(1, "fork")
    with pytest.raises(ConversationHasForks):
        histories.erase("task", reason="x", with_children=True)
    assert all(name in histories for name in ids)
    histories.erase("task", reason="x", with_children=True, with_forks=True)
    assert not any(name in histories for name in (*ids, "fork"))


def test_task_expires_with_its_last_agent():
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


def test_killed_erasure_leaves_no_orphan():
    for transactions in count():
        with api.open("memory:") as histories:
            ids = make_task(histories)
            store = histories.store
            killed = Store(
                kill_after(store.database.recorder, transactions), store.database.settings
            )
            try:
                api.Histories(killed).erase("task", reason="x", with_children=True)
                break
            except Killed:
                left = {name for name in ids if name in histories}
            assert all(name.rpartition("/")[0] in {"", *left} for name in left)
            histories.erase("task", reason="x", with_children=True)
            assert not any(name in histories for name in ids)
    assert transactions > len(ids)


def test_an_export_writes_sub_agents_beside_their_parent(foldlog, tmp_path):
    assert foldlog("import", TASKS / "claude-code").status == 0
    assert "3 sub-agents not exported" in foldlog("export top").err
    assert foldlog("export top --with-children --output out/top.jsonl").status == 2
    (tmp_path / "out").mkdir()
    assert foldlog("export top --with-children --output out/top.jsonl").status == 0
    assert foldlog("import out --db again.db").status == 0
    again = foldlog("stats top --json --db again.db").document["task"]
    assert again == foldlog("stats top --json").document["task"]


def test_sub_agents_are_exported_into_own_files(foldlog, tmp_path):
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


def test_random_forest_counts_each_reply_once(histories):
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
            history.append(replied("ok", meta=meta))
        if random.random() < 0.2:
            gone = random.choice([*parents])
            histories.erase(gone, reason="x", with_children=True)
            below = {gone}
            for child, parent in parents.items():  # a parent is older than its sub-agents
                below |= {child} if parent in below else set()
            for name in below:
                del parents[name]
                del replies[name]

    assert {*parents} == set(histories)
    for name in parents:
        task = [name]
        for child, parent in parents.items():
            if parent in task:
                task.append(child)
        counted = {reply: tokens for agent in task for reply, tokens in replies[agent].items()}
        stats = histories[name].stats(with_children=True)
        assert stats.conversations == len(task)
        assert (stats.spent.prompt_tokens or 0) == sum(counted.values())


def test_a_comparison_of_two_runs_shows_their_tasks(foldlog):
    with api.open("foldlog.db") as histories:
        for name in ("one", "other"):
            child = histories[name].begin_child(call_agent(histories[name]))
            child.append(replied("ok", meta={"model": "m", "cost": 0.5}))
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
    inner.append([said("read the log"), replied("libexpat_2 is old")])
    middle.append_tool_result(*middle.open_calls(), "libexpat_2 is old")
    middle.append(replied("repaired"))
    top.append_tool_result(*top.open_calls(), "repaired")
    top.append(replied("which one? libexpat_2?"))


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


NOT_THERE = "no event has it"


@pytest.mark.parametrize("words", WORDS)
def test_task_says_who_lost_a_text(foldlog, words):
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        answers = histories["top"].hand_overs(words)
    assert [
        (
            answer.conversation,
            answer.fact is not None,
            answer.came_from,
            answer.is_given,
            answer.is_returned,
        )
        for answer in answers
    ] == WORDS[words]
    silent = [answer.conversation for answer in answers if not answer.is_concerned]
    assert silent == [answer.conversation for answer in answers if answer.reason == NOT_THERE]
    assert silent == (["inner"] if words == "key_0042" else [])
    shown = foldlog(f"why top {words} --with-children")
    assert ("no event of 1 other agent has the words" in shown.err) == bool(silent)
    assert ("lost: result 3 of top" in shown.out) == (words != "key_0042")
    assert ("call 1 of top did not give it" in shown.out) == (words == "key_0042")
    document = foldlog(f"why top {words} --with-children --json").document
    assert [agent["reason"] for agent in document["agents"]] == [
        answer.reason for answer in answers
    ]


@pytest.mark.parametrize("parents", [{"a": "b", "b": "a"}, {"a": "gone", "b": "a"}])
def test_page_shows_circular_and_missing_parents(histories, parents):
    for name, parent in parents.items():
        histories.create(name, {"parent": parent}).append(said("x"))
    with closing(ServedConversations(histories.store)) as served:
        tasks = [served.task(name) for name in parents]
    assert [{agent.conversation for agent in task.agents} for task in tasks] == [{"a", "b"}] * 2


def test_later_words_of_the_user_are_named(histories):
    hand_down(histories)
    histories["middle"].append([replied("which?"), said("key_0042")])
    _, middle, _ = histories["top"].hand_overs("key_0042")
    assert "the user wrote it in event" in middle.reason
    assert "call 1 of top did not give it, although event 0 of top has it" in middle.reason


def test_call_says_what_was_not_handed_over(foldlog):
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        (answer,) = histories["top"].hand_overs(1)
        with pytest.raises(InvalidArgument, match=r"event 0 of 'top' began no sub-agent.*did: 1$"):
            histories["top"].hand_overs(0)
        for about in (None, True):
            with pytest.raises(TypeError, match=f"about must be a whole number, not {about}"):
                histories["top"].hand_overs(about)
    assert [(term.term, term.needed_in) for term in answer.not_given] == [("key_0042", None)]
    assert [(each.term, each.event, each.needed_in) for each in answer.not_returned] == [
        ("libexpat_2", 4, 4)
    ]
    assert answer.reason in foldlog("why top 1 --with-children").out.replace("\n", " ")
    assert """; to ask about the text 4711, type '"4711"'""" in (
        foldlog("why top 4711 --with-children").err.replace("\n", " ")
    )


@pytest.mark.parametrize("kids", [["top/"], ["top/", "kid"]])
def test_a_sub_agent_without_a_name_of_its_own_has_no_call(histories, kids):
    top = histories["top"]
    call_agent(top, "c")
    top.append(Observation(tool="agent", content="kid is back", call_id="c"))
    for name in kids:
        histories[name].set_attributes(parent="top")
        histories[name].append(said("go down"))
    _, *answers = top.hand_overs("down")
    calls = {answer.conversation: answer.call for answer in answers}
    assert calls == {name: 0 if name == "kid" else None for name in kids}


def test_call_without_an_id_began_what_its_own_result_names(histories):
    top = histories["top"]
    top.append(Action(tool="agent", arguments={}))
    top.append(Action(tool="agent", arguments={}))
    top.append(Observation(tool="agent", content="kid is back", cause=0))
    for name in ("kid", "other"):
        histories[name].set_attributes(parent="top")
        histories[name].append(said("go down"))
    _, *answers = top.hand_overs("down")
    calls = {answer.conversation: (answer.call, answer.result) for answer in answers}
    assert calls == {"kid": (0, 2), "other": (None, None)}


def test_a_record_that_is_not_utf_8_ends_no_answer(histories, tmp_path):
    call = {"type": "tool_use", "id": "t1", "name": "Task", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ODD"}
    records = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "go"}},
        {"type": "assistant", "uuid": "a1", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "uuid": "u2", "message": {"role": "user", "content": [result]}},
    ]
    lines = [json.dumps({"sessionId": "top", "version": "2.0.0", **record}) for record in records]
    path = tmp_path / "top.jsonl"
    path.write_bytes("\n".join(lines).encode().replace(b"ODD", b"back from kid \xff") + b"\n")
    (top,) = histories.import_(path)
    histories["kid"].set_attributes(parent="top")
    histories["kid"].append(said("go down"))
    _, kid = top.hand_overs("go")
    assert (kid.call, kid.result, kid.reason.split("; ")[-1]) == (
        1,
        2,
        "lost: result 2 of top does not have it",
    )


def test_events_before_the_first_record_change_no_answer(histories):
    hand_down(histories)
    answers = histories["top"].hand_overs(1)
    histories["top"].append_records([{"role": "user", "content": "more"}], format="openai-chat")
    assert histories["top"].hand_overs(1) == answers


def test_hit_in_sub_agent_names_its_task(foldlog):
    """No figures are counted yet, and the search does not count them."""
    with api.open("foldlog.db") as histories:
        hand_down(histories)
        histories.create("orphan", {"parent": "gone"}).append(said("libexpat_2"))
    hits = foldlog("search libexpat_2 --json").document["hits"]
    tasks = {hit["conversation"]: hit.get("task") for hit in hits}
    assert tasks == {"top": None, "middle": "top", "inner": "top", "orphan": None}
    assert foldlog("search libexpat_2").out.count("sub-agent in the task top") == 2


def test_metrics_and_comparison_have_task_costs(foldlog):
    with api.open("foldlog.db") as histories:
        child = histories["one"].begin_child(call_agent(histories["one"]))
        for history, cost in ((histories["one"], 0.5), (child, 2)):
            meta = {"model": "m", "cost": cost}
            history.append(replied("ok", meta=meta))
        with asking_store(histories.store) as client:
            until(lambda: "foldlog_model_cost_usd" in client.get("/metrics").text)
            page = client.get("/metrics").text
    assert "\nfoldlog_sub_agents 1\n" in page
    assert "\nfoldlog_model_cost_without_sub_agents_usd 0.5\n" in page
    assert "\nfoldlog_model_cost_usd 2.5\n" in page
    compared = foldlog("compare one --json")
    assert compared.document["task"]["spent"]["cost"] == 2.5
    assert "the replays leave out the sub-agents" in compared.err


def test_tools_of_coding_agents_answer_about_tasks(histories):
    hand_down(histories)
    histories["top"].stats()
    tools = Answers(histories.store, Asking(histories.store, {}, None, may_import=False))
    assert "with 2 sub-agents: " in tools.sessions()
    assert "lost: result 3 of top does not have it" in tools.why("libexpat_2", "top")
    everywhere = tools.recall("libexpat_2", conversation="*")
    assert "conversation inner in the task of conversation top, event 2" in everywhere


def test_search_names_no_task_of_erased_parent(foldlog):
    with api.open("foldlog.db") as histories:
        child = histories["top"].begin_child(call_agent(histories["top"]))
        child.append(said("the harbour"))
        histories.erase("top", reason="x")
        call_agent(histories.create("top", replace_erased=True))
    [hit] = foldlog("search harbour --json").document["hits"]
    assert (hit["conversation"], hit.get("task")) == (child.id, None)


def _task(tokens: int | None, errors: int | None) -> TaskDocument:
    return TaskDocument(
        sub_agents=1,
        errors=errors,
        first_error=None,
        first_error_in=None,
        first_event_at=None,
        last_event_at=None,
        seconds=1.0,
        longest_wait_s=None,
        spent=SpentDocument(prompt_tokens=tokens),
    )


def test_a_task_has_one_error_or_several():
    for number, words in ((1, "1 token, unknown, 1 error"), (2, "2 tokens, unknown, 2 errors")):
        assert task_words(_task(number, number)).startswith(f"with 1 sub-agent: {words}, ")
    assert "unknown tokens, unknown, unknown errors" in task_words(_task(None, None))
