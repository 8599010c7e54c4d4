"""Threads of LangGraph's own savers, moved into foldlog without loss; and messages of LangChain as JSON."""

import itertools
import json
from contextlib import nullcontext

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from foldlog.adapters.langgraph import FoldlogSaver
from tests.adapters.contract import check_import
from tests.adapters.langgraph.scripted import ScriptedModel, agent, call, steps

THREADS = [{"configurable": {"thread_id": name}} for name in ("one", "tw o/2")]


@tool
def measure() -> str:
    """Measure."""
    return "9 km"


def run(saver):
    """Run two threads, one with a fork, and leave one in the middle of a step."""
    graph = agent(ScriptedModel(script=steps(3)), [measure], saver)
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
def test_threads_of_another_saver_are_copied_whole(tmp_path, kind):
    other = nullcontext(InMemorySaver())
    if kind == "sqlite":
        other = SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite"))
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
        graph = agent(ScriptedModel(script=steps(0)), [measure], ours)
        ended = graph.invoke({"messages": [HumanMessage("more")]}, THREADS[0], durability="sync")
        assert ended["messages"][-1].content == "finished", (
            "a thread continues with the versions of the other saver"
        )
        history = ours.history(THREADS[0])
        assert history.id.startswith("langgraph/one/@")
        assert len(history.view()) == len(ended["messages"])


def test_an_interrupted_copy_goes_on(monkeypatch):
    theirs = InMemorySaver()
    calls = itertools.count()
    with FoldlogSaver("memory:") as ours:
        run(theirs)
        put_rows = FoldlogSaver._put_rows

        def failing(*args):
            if next(calls) == 5:
                raise KeyboardInterrupt
            put_rows(*args)

        with monkeypatch.context() as patch:
            patch.setattr(FoldlogSaver, "_put_rows", failing)
            with pytest.raises(KeyboardInterrupt):
                ours.copy_from(theirs)
        ours.copy_from(theirs)
        assert contents_of(ours) == contents_of(theirs)


IMAGE = {"type": "image", "base64": "//77AA==", "mime_type": "image/png"}
BAD = {"name": "f", "args": '{"a": ', "id": "c2", "error": "", "type": "invalid_tool_call"}


def test_a_view_shows_images_and_invalid_calls(histories):
    called = call("look", "c1")
    called.invalid_tool_calls = [BAD]
    messages = [
        HumanMessage(["see", IMAGE]),
        called,
        ToolMessage([IMAGE], tool_call_id="c1"),
        AIMessage([BAD]),
        AIMessage([BAD], invalid_tool_calls=[BAD]),
    ]
    check_import(histories, "langchain", json.dumps([*map(message_to_dict, messages)]), 2)
    _, action, _, *replies = histories["theirs"].view()
    assert action.thought == ({"type": "text", "text": "I call look"}, BAD)
    assert [message.content for message in replies] == [(BAD,), (BAD,)]
