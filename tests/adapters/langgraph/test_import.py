"""Threads of LangGraph's own savers, moved into foldlog without loss; and messages of LangChain as JSON."""

import json
from contextlib import nullcontext

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from foldlog.adapters.langgraph import FoldlogSaver
from tests.adapters.contract import check_import
from tests.adapters.langgraph.scripted import ScriptedModel, agent, steps

THREADS = [{"configurable": {"thread_id": name}} for name in ("one", "tw o/2")]


@tool
def measure() -> str:
    """Measure."""
    return "9 km"


def run(saver):
    """Run two threads, one with a fork, and leave one in the middle of a step."""
    graph = agent(ScriptedModel(script=steps(3), prompts=[]), [measure], saver)
    for config in THREADS:
        graph.invoke({"messages": [HumanMessage("go", id="go")]}, config, durability="sync")
    early = [state for state in graph.get_state_history(THREADS[0]) if state.next == ("tools",)][-1]
    (waiting,) = early.values["messages"][-1].tool_calls
    other = ToolMessage("other", tool_call_id=waiting["id"], id="other")
    graph.update_state(early.config, {"messages": [other]}, as_node="tools")
    newest = saver.get_tuple(THREADS[1]).config
    saver.put_writes(
        newest, [("a", b"\x00"), ("b", (1,)), ("__error__", "no")], "task-z", "~path-a"
    )
    saver.put_writes(newest, [("a", {"x": 1})], "task-a", "~path-b")


def contents_of(saver):
    """Return all that a saver tells of its threads."""
    listed = sorted(saver.list(None), key=lambda each: each.checkpoint["id"])
    return [
        (
            each.config["configurable"]["thread_id"],
            sorted(each.checkpoint["channel_values"].items()),
            each.checkpoint["channel_versions"],
            each.checkpoint["versions_seen"],
            each.metadata,
            each.parent_config and each.parent_config["configurable"]["checkpoint_id"],
            sorted(map(repr, each.pending_writes)),
        )
        for each in listed
    ]


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_the_threads_of_another_saver_are_copied_without_loss(tmp_path, kind):
    path = str(tmp_path / "checkpoints.sqlite")
    other = SqliteSaver.from_conn_string(path) if kind == "sqlite" else nullcontext(InMemorySaver())
    with other as theirs, FoldlogSaver("memory:") as ours:
        run(theirs)
        assert ours.copy_from(theirs) == len(contents_of(theirs))
        assert contents_of(ours) == contents_of(theirs)
        assert ours.copy_from(theirs) == 0
        for config in THREADS:
            ours.delete_thread(config["configurable"]["thread_id"])
        assert contents_of(ours) == []
        ours.copy_from(theirs)
        assert contents_of(ours) == contents_of(theirs), (
            "with the fork, and with writes in their order"
        )
        graph = agent(ScriptedModel(script=steps(0), prompts=[]), [measure], ours)
        ended = graph.invoke({"messages": [HumanMessage("more")]}, THREADS[0], durability="sync")
        assert ended["messages"][-1].content == "finished", (
            "a thread with the versions of the other saver goes on"
        )
        history = ours.history(THREADS[0])
        assert history.id.startswith("langgraph/one/@")
        assert len(history.view()) == len(ended["messages"])


def test_a_copy_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as theirs, FoldlogSaver("memory:") as ours:
        run(theirs)
        put_rows, remaining = FoldlogSaver._put_rows, [5]

        def failing(*args):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise KeyboardInterrupt
            put_rows(*args)

        with monkeypatch.context() as patch:
            patch.setattr(FoldlogSaver, "_put_rows", failing)
            with pytest.raises(KeyboardInterrupt):
                ours.copy_from(theirs)
        ours.copy_from(theirs)
        assert contents_of(ours) == contents_of(theirs)


IMAGE = {"type": "image", "base64": "//77AA==", "mime_type": "image/png"}


def test_a_view_shows_a_call_that_langchain_could_not_read(histories):
    bad = {
        "name": "f",
        "args": '{"a": ',
        "id": "c2",
        "error": "not JSON",
        "type": "invalid_tool_call",
    }
    called = AIMessage(
        "I try", tool_calls=[{"name": "look", "args": {}, "id": "c1"}], invalid_tool_calls=[bad]
    )
    messages = [
        HumanMessage("see"),
        called,
        ToolMessage("far", tool_call_id="c1"),
        AIMessage([bad]),
    ]
    messages.append(AIMessage([bad], invalid_tool_calls=[bad]))
    check_import(
        histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 0
    )
    _, call, _, *results = histories["theirs"].view()
    assert call.thought == ({"type": "text", "text": "I try"}, bad)
    assert [message.content for message in results] == [(bad,), (bad,)]


def test_a_view_shows_the_images_of_messages_of_langchain(histories):
    called = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    messages = [HumanMessage(["see", IMAGE]), called, ToolMessage([IMAGE], tool_call_id="c1")]
    check_import(
        histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 2
    )
