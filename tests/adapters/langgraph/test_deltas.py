"""Channels that are stored as differences: the values are LangGraph's, and the thread has its
history all the same.
"""

import itertools
import random
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, interrupt

import foldlog
from foldlog import CondensationAction
from foldlog.adapters.langgraph import FoldlogSaver
from tests.adapters.contract import counted

delta = pytest.importorskip(
    "langgraph.channels.delta", reason="this release has no channels of differences"
)
reducer = pytest.importorskip("langgraph.graph.message")._messages_delta_reducer
THREAD = {"configurable": {"thread_id": "t"}}
FREQUENCIES = 1, 3, 100


def last_two(state, writes):
    """Return a reducer of a program's own: only the last two messages stay."""
    return reducer(state, writes)[-2:]


def channel(every=None, reduce=reducer):
    """Return the annotation of the messages: a snapshot ``every`` so many updates, or the whole
    value always.
    """
    if every is None:
        return Annotated[list, add_messages]
    return Annotated[list, delta.DeltaChannel(reduce, snapshot_frequency=every)]


def graph(messages, saver, node):
    builder = StateGraph(TypedDict("State", {"messages": messages}))
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


def answer(state):
    number = state["messages"][-1].id.removeprefix("q")
    return {"messages": [AIMessage(f"answer {number}", id=f"a{number}")]}


def question(number):
    return {"messages": [HumanMessage(f"question {number}", id=f"q{number}")]}


def ask(compiled, number):
    compiled.invoke(question(number), THREAD, durability="sync")


def contents(snapshot):
    messages = snapshot.values.get("messages", ())
    return [(message.id, message.content) for message in messages]


def shown(saver):
    """Return the contents of what the View of the thread's history shows."""
    return [event.content for event in saver.history(THREAD).view()]


def state(compiled):
    return contents(compiled.get_state(THREAD))


def past(compiled):
    return [*map(contents, compiled.get_state_history(THREAD))]


def texts(messages):
    return [text for _, text in messages]


@pytest.mark.parametrize("every", FREQUENCIES)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_thread_of_differences_has_its_history(url, every, durability):
    with SqliteSaver.from_conn_string(":memory:") as other, foldlog.open(url) as histories:
        theirs = graph(channel(every), other, answer)
        saver = FoldlogSaver(histories)
        ours = graph(channel(every), saver, answer)
        for number in range(5):
            for compiled in (theirs, ours):
                compiled.invoke(question(number), THREAD, durability=durability)
            expected = state(theirs)
            assert state(ours) == expected
            assert shown(saver) == texts(expected)
            saver = FoldlogSaver(histories)  # as another process finds it
            ours = graph(channel(every), saver, answer)
            assert state(ours) == expected
        history = saver.history(THREAD)
        assert [hit.conversation for hit in histories.search("question 3")] == [history.id]
        (event_id,) = ids_of(saver, "answer 1")
        assert "the View shows it" in str(history.why(event_id))
        assert past(ours) == past(theirs)


@pytest.mark.parametrize("every", FREQUENCIES)
def test_the_model_is_sent_a_threads_condensation(histories, every):
    saver = FoldlogSaver(histories)
    compiled = graph(channel(every), saver, answer)
    for number in range(3):
        ask(compiled, number)
    forgotten = ids_of(saver, "question 0", "answer 0")
    action = CondensationAction(forgotten_event_ids=forgotten, summary="before", summary_offset=0)
    saver.history(THREAD).append(action)
    sent = saver.pre_model_hook(compiled.get_state(THREAD).values, THREAD)["llm_input_messages"]
    stay = ["question 1", "answer 1", "question 2", "answer 2"]
    assert [message.content for message in sent] == ["before", *stay]
    ask(compiled, 3)
    assert len(state(compiled)) == 8
    assert shown(saver)[0] == "before"


def ids_of(saver, *contents):
    return [
        event.id
        for event in saver.history(THREAD).view()
        if getattr(event, "content", None) in contents
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_are_followed(histories, seed):
    """Messages are added, put in the place of others and removed, and the thread is gone on with
    from its past.
    """
    chosen = random.Random(seed)
    every = chosen.choice(FREQUENCIES)

    def node(state):
        there = [message.id for message in state["messages"]]
        now = random.Random(f"{seed} {there}")
        name = f"{len(there)}-{now.random()}"
        match now.choice(["add", "add", "replace", "remove", "overwrite"]):
            case "replace":
                return {"messages": HumanMessage(f"other {name}", id=now.choice(there))}
            case "remove":
                removed = now.choice(there), "unknown"
                return {"messages": [RemoveMessage(message_id) for message_id in removed]}
            case "overwrite":
                return {"messages": Overwrite([AIMessage(f"alone {name}", id=name)])}
        names = [f"{name} {number}" for number in range(2)]
        return {"messages": [AIMessage(f"new {name}", id=name) for name in names]}

    saver = FoldlogSaver(histories)
    ours = graph(channel(every), saver, node)
    theirs = graph(channel(every), InMemorySaver(), node)
    for number in range(12):
        place = chosen.randrange(3 * number) if number % 4 == 3 else 0
        for compiled in (ours, theirs):
            config = [*compiled.checkpointer.list(THREAD)][place].config if place else THREAD
            compiled.invoke(question(number), config, durability="sync")
        assert state(ours) == state(theirs)
        assert shown(saver) == texts(state(ours))
    assert past(ours) == past(theirs)


def test_a_value_comes_from_the_graphs_reducer(histories):
    """The history has what was written, until a snapshot tells what is left of it."""
    saver = FoldlogSaver(histories)
    lengths = list[int]()
    for number, every in enumerate([100, 100, 1, 100]):
        compiled = graph(channel(every, last_two), saver, answer)
        ask(compiled, number)
        value = state(graph(channel(every, last_two), FoldlogSaver(histories), answer))
        assert value == state(compiled)
        assert len(value) == 2
        lengths.append(len(shown(saver)))
    assert lengths == [2, 4, 2, 4]


def test_writes_become_history_when_their_step_ends(histories):
    def wait(state):
        return {"messages": [AIMessage(interrupt("?"), id="i")]}

    saver = FoldlogSaver(histories)
    compiled = graph(channel(100), saver, wait)
    ask(compiled, 0)
    assert shown(saver) == ["question 0"]
    graph(channel(100), other := FoldlogSaver(histories), wait).invoke(
        Command(resume="said"), THREAD, durability="sync"
    )
    assert shown(other) == ["question 0", "said"]


def test_an_empty_checkpoint_id_means_the_newest_checkpoint(histories):
    """A caller may give no id or an empty id. The SDK's saver answers in the same way."""
    ours = FoldlogSaver(histories)
    theirs = InMemorySaver()
    newest = []
    for saver in (ours, theirs):
        compiled = graph(channel(100), saver, answer)
        for number in range(3):
            ask(compiled, number)
        for names in ({}, {"checkpoint_id": ""}):
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", **names}}
            history = saver.get_delta_channel_history(config=config, channels=["messages"])
            written = [value for _, _, value in history["messages"]["writes"]]
            newest.append([message.content for value in written for message in value])
    assert newest[0][-1] == "answer 2"
    assert newest == [newest[0]] * 4
    unnamed = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ""}}
    assert ours.history(unnamed).id == "langgraph/t"
    compiled = graph(channel(100), ours, answer)
    compiled.invoke(question(3), unnamed)
    assert state(compiled)[-1] == ("a3", "answer 3")


def test_a_copied_thread_has_its_history(histories):
    with SqliteSaver.from_conn_string(":memory:") as other:
        compiled = graph(channel(3), other, answer)
        for number in range(4):
            ask(compiled, number)
        saver = FoldlogSaver(histories)
        assert saver.copy_from(other) == len(list(other.list(THREAD)))
        assert state(graph(channel(3), saver, answer)) == state(compiled)
        assert shown(saver) == texts(state(compiled))


def test_a_channel_whose_annotation_changes_goes_on(histories):
    saver = FoldlogSaver(histories)
    for number, every in enumerate([None, 2, None, 100, 2]):
        compiled = graph(channel(every), saver, answer)
        ask(compiled, number)
        assert texts(state(compiled)) == shown(saver)
    assert len(shown(saver)) == 10


@pytest.mark.parametrize("every", [None, *FREQUENCIES])
def test_a_turn_writes_only_its_own_messages(histories, every):
    saver = FoldlogSaver(histories)
    compiled = graph(channel(every), saver, answer)
    sizes = []
    for number in range(24):
        ask(compiled, number)
        sizes.append(sum(len(str(event)) for event in saver.history(THREAD).events()))
    grown = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(grown[12:]) < 1.5 * max(grown[:12])


def test_the_writes_of_a_checkpoint_need_few_queries(histories):
    compiled = graph(channel(10_000), FoldlogSaver(histories), answer)
    for number in range(24):
        ask(compiled, number)
    saver = FoldlogSaver(histories)
    name = "messages"
    with counted(histories) as queries:
        assert saver.get_delta_channel_history(config=THREAD, channels=[name])[name]["writes"]
    assert len(queries) < 24  # there are 72 checkpoints
