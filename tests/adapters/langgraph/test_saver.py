"""``FoldlogSaver``: the conformance suite, equal to LangGraph's own savers, and what becomes of
runs.
"""

import copy
import operator
import os
import random
import sqlite3
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated
from uuid import UUID

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import foldlog
from foldlog.adapters.langgraph import FoldlogSaver
from foldlog.eventstore import CondensationAction, Retraction
from foldlog.projections import well_formed
from tests.adapters.contract import (
    STRATEGIES,
    Condenses,
    approvals_of,
    check_requests,
    counted,
    decided,
    own_events,
    redacted_one_by_one,
    requests_of,
    work,
)
from tests.adapters.langgraph.scripted import ScriptedModel, agent, call, check, reply, steps
from tests.sound import assert_sound

pytestmark = pytest.mark.anyio
THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture
def saver(histories):
    return FoldlogSaver(histories)


@tool
def measure() -> str:
    """Measure."""
    return "9 km"


def said(*texts):
    return {"messages": [*map(HumanMessage, texts)]}


def checkpoint_of(values, versions):
    """Return a checkpoint with a new id."""
    return {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=0)),
        "channel_values": values,
        "channel_versions": versions,
    }


def put_messages(saver, messages, parent=None):
    return put(saver, {"messages": messages}, parent)


def put(saver, values, parent=None):
    """Put a checkpoint in which these channels are new. Return its config."""
    versions = {} if parent is None else saver.get_tuple(parent).checkpoint["channel_versions"]
    new = {name: saver.get_next_version(versions.get(name), None) for name in values}
    metadata = {"source": "loop", "step": 1, "parents": {}}
    return saver.put(parent or THREAD, checkpoint_of(values, {**versions, **new}), metadata, new)


def channels(saver, config):
    return saver.get_tuple(config).checkpoint["channel_values"]


def messages_of(saver, config):
    return channels(saver, config)["messages"]


def numbered(count):
    """Return so many messages, whose ids are their texts."""
    return [HumanMessage(str(number), id=str(number)) for number in range(count)]


def calling(text, *call_ids):
    """Return a message with calls of a tool. The id of the message is its text."""
    calls = [{"name": "f", "args": {}, "id": call_id} for call_id in call_ids]
    return AIMessage(text, id=text, tool_calls=calls)


def texts(messages):
    return [message.content for message in messages]


def hooked(model, tools, saver):
    """Return a graph whose model is sent what the View of a saver shows."""
    return agent(model, tools, saver, saver.pre_model_hook)


def prompt_of(saver, messages):
    """Return the messages that the model is sent for these."""
    return saver.pre_model_hook({"messages": messages}, THREAD)["llm_input_messages"]


async def test_the_whole_conformance_suite_passes(url):
    @checkpointer_test(name="FoldlogSaver")
    async def open_saver():
        async with FoldlogSaver(url) as opened:
            yield opened

    report = await validate(open_saver)
    assert report.conformance_level() == "FULL"
    results = report.results.values()
    assert [failure for result in results for failure in result.failures] == []
    assert sum(result.tests_passed for result in results) == 81
    assert all(result.detected for result in results)


EXACT = {
    "none": None,
    "text": "a\x00b",
    "surrogate": "\ud800",
    "bytes": b"\x00\xff",
    "tuples": {"in": (1, ("x", None))},
    "keys": {1: "one", "1": "text"},
    "numbers": [0, -0.0, 1.0, True, 2**62],
    "set": {1, 2},
    "id": UUID(int=5),
    "deep": {"a": {"b": [{"c": []}, {}]}},
    "messages": [
        SystemMessage(
            [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}], id="s"
        ),
        HumanMessage(["see", {"type": "image_url", "image_url": {"url": "u"}}], id="h", name="me"),
        AIMessage(
            [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "I look\x00"},
            ],
            id="a",
            tool_calls=[
                {"name": "f", "args": {"n": [1, 1.0, None]}, "id": f"c{n}"} for n in range(3)
            ],
            invalid_tool_calls=[
                {"name": "g", "args": "{", "id": "i", "error": "bad", "type": "invalid_tool_call"}
            ],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            response_metadata={"raw": b"\x00", "pair": (1, 2)},
        ),
        ToolMessage(
            "done",
            tool_call_id="c0",
            artifact={"raw": b"\xff", "pair": (1,)},
            status="error",
            id="t0",
        ),
        ToolMessage(["a", {"type": "text", "text": "b"}], tool_call_id="c1", name="f"),
        ToolMessage("", tool_call_id="c2"),
        AIMessage("", id=None, additional_kwargs={"refusal": None}),
    ],
}


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_checkpoint_survives_a_reopen(url):
    def round_trip(saver, value):
        """Return what LangGraph's serializer keeps of a value. It makes lists of the tuples in
        artifacts.
        """
        return saver.serde.loads_typed(saver.serde.dumps_typed(value))

    with FoldlogSaver(url) as saver:
        config = put(saver, EXACT)
        expected = {
            name: round_trip(saver, value) for name, value in EXACT.items() if name != "surrogate"
        }
        saver.put_writes(
            config, [("a", (1, b"\x00")), ("__error__", "first"), ("b", "\ud800")], "task", "path"
        )
        saver.put_writes(config, [("ignored", 1), ("__error__", "second")], "task", "path")
    with FoldlogSaver(url) as saver:
        values = channels(saver, config)
        assert values.pop("surrogate") == "\ud800"
        assert list(map(type, values["messages"])) == list(map(type, EXACT["messages"]))
        assert {name: repr(value) for name, value in values.items()} == {
            name: repr(value) for name, value in expected.items()
        }
        writes = saver.get_tuple(config).pending_writes
        assert writes == [
            ("task", "__error__", "second"),
            ("task", "a", round_trip(saver, (1, b"\x00"))),
            ("task", "b", "\ud800"),
        ]


def test_an_encrypting_serializer_leaves_no_plain_text(tmp_path):
    class Backwards:
        def encrypt(self, plain):
            return "backwards", plain[::-1]

        def decrypt(self, name, written):
            return written[::-1]

    path = tmp_path / "h.db"
    values = {"messages": [HumanMessage("attack at dawn")], "plan": "attack at dawn"}
    with FoldlogSaver(f"sqlite:///{path}", serde=EncryptedSerializer(Backwards())) as saver:
        config = put(saver, values)
        assert channels(saver, config) == values
        assert not saver.history(config).view()
    assert b"attack" not in path.read_bytes()


def test_removed_messages_are_forgotten_or_retracted(saver):
    messages = numbered(6)
    config = put_messages(saver, messages)
    last_messages = [*messages[2:5], HumanMessage("new", id="n")]
    history = saver.history(config)
    for later, kinds in (
        (messages[:5], {Retraction}),
        (messages[2:5], {CondensationAction}),
        (last_messages, set()),
        (last_messages[:2], {CondensationAction}),  # what was removed does not come back
        ([], {CondensationAction}),
    ):
        before = history.version()
        config = put_messages(saver, later, config)
        assert messages_of(saver, config) == later
        assert texts(history.view()) == texts(later)
        assert {type(event) for event in history.events(before) if event.structural} == kinds


def test_stored_values_do_not_change_in_place(histories):
    def values():
        return {"a": {"n": [1]}, "messages": numbered(1)}

    versions = {"a": 1, "messages": 1}
    changed = {"a": {"n": [3]}, "messages": []}
    saver = FoldlogSaver(histories)
    other = FoldlogSaver(histories)
    checkpoint = checkpoint_of(values(), {**versions})
    config = saver.put(THREAD, checkpoint, {}, versions)
    for each in (checkpoint, *(reader.get_tuple(THREAD).checkpoint for reader in (saver, other))):
        each["channel_versions"]["a"] = 2
        each["channel_values"]["a"]["n"].append(2)
        each["channel_values"]["messages"][0].content = "y"
    for putting in (other, saver):
        two = putting.put(config, checkpoint_of(changed, {"a": 2, "messages": 2}), {}, {})
        for reader in (saver, other, FoldlogSaver(histories)):
            assert channels(reader, config) == values()
            assert channels(reader, two) == changed


def test_values_that_are_no_messages_are_stored(saver):
    config = None
    values = [[["user", "hi"]], numbered(1), "text", [RemoveMessage(id="0")], [], [{"role": "x"}]]
    for value in values:
        config = put_messages(saver, value, config)
        assert messages_of(saver, config) == value
    listed = [entry.checkpoint["channel_values"]["messages"] for entry in saver.list(THREAD)]
    assert listed == values[::-1]


def test_a_list_of_all_threads_equals_langgraphs(histories, tmp_path):
    choice = random.Random(3)
    newest = {}
    counts = []
    ours = FoldlogSaver(histories)
    theirs = SqliteSaver(sqlite3.connect(tmp_path / "theirs.db"))

    for threads in (8, 60):
        for step in range(4 * threads):
            names = f"t{choice.randrange(threads)}", choice.choice(["", "", "in|ner"])
            checkpoint = checkpoint_of({"a": step}, {"a": step})
            parent = newest.get(names)
            thread = {"thread_id": names[0], "checkpoint_ns": names[1], "checkpoint_id": parent}
            put_at = {"configurable": thread}
            for saver in (ours, theirs):
                put = saver.put(
                    put_at, checkpoint, {"source": "loop", "step": step % 3}, {"a": step}
                )
                saver.put_writes(put, [("a", step)], "task")
            newest[names] = checkpoint["id"]
        before = {"configurable": {"thread_id": "t0", "checkpoint_id": ids(theirs, None)[7]}}
        for limit in (0, 1, 5, 50, None):
            for options in ({}, {"before": before}, {"filter": {"step": 1}}):
                every = ids(theirs, None, **options)
                assert ids(ours, None, limit=limit, **options) == every[:limit]
        inner = [
            id_of(entry.config)
            for entry in theirs.list(None)
            if entry.config["configurable"]["checkpoint_ns"]
        ]
        assert ids(ours, {"configurable": {"checkpoint_ns": "in|ner"}}, limit=9) == inner[:9]
        with counted(histories) as queries:
            ids(ours, None, limit=5)
        counts.append(len(queries))
    assert counts[1] <= counts[0] + 5, "it does not depend on the number of threads"


def test_the_newest_checkpoint_needs_one_query(histories):
    """The figure of 5,000 checkpoints is in the benchmark; what it rests on is that nothing is
    walked.
    """
    saver = FoldlogSaver(histories)
    config = None
    for number in range(40):
        config = put(saver, {"a": number, "messages": numbered(1)}, config)
        if number in (5, 39):
            fresh = FoldlogSaver(histories)
            with counted(histories) as queries:
                assert fresh.get_tuple(THREAD).config == config
            assert len(queries) == 1, "it is read in one transaction"


class MoodMessage(HumanMessage):
    mood: str = "calm"


@pytest.mark.skipif(
    not hasattr(BaseCheckpointSaver, "with_allowlist"),
    reason="this release has no lists of allowed classes",
)
def test_a_copy_with_an_allowlist_reads_its_classes(histories):
    strict = FoldlogSaver(histories, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    saver = strict.with_allowlist([(MoodMessage.__module__, "MoodMessage")])
    put_messages(saver, [MoodMessage("x", id="x")])
    (message,) = messages_of(saver, THREAD)
    assert type(message) is MoodMessage


@pytest.mark.skipif(
    not hasattr(BaseCheckpointSaver, "get_delta_channel_history"),
    reason="this release has no channels of differences",
)
def test_pruning_leaves_the_writes_of_differences(saver):
    one = put(saver, {"a": 1})
    saver.put_writes(one, [("d", "first")], "task")
    two = put(saver, {"a": 2}, one)
    saver.put_writes(two, [("d", "second")], "task")
    put(saver, {"a": 3}, two)
    saver.prune(["t"])
    assert len(list(saver.list(THREAD))) == 1
    history = saver.get_delta_channel_history(config=saver.get_tuple(THREAD).config, channels=["d"])
    assert [write[2] for write in history["d"]["writes"]] == ["first", "second"]


def test_a_call_with_an_unstored_result_is_sent(saver):
    """With ``durability="async"`` the result is in the state and in no checkpoint when the model is
    called.
    """
    messages = [*numbered(6), calling("f", "c")]
    config = put_messages(saver, messages)
    saver.history(config).append(
        CondensationAction(forgotten_event_ids=[0, 1, 2, 3], summary="before", summary_offset=0)
    )
    sent = prompt_of(saver, [*messages, ToolMessage("done", tool_call_id="c", id="t")])
    assert texts(sent) == ["before", "4", "5", "f", "done"]
    check(sent)
    elsewhere = [HumanMessage("other", id="other")] * 9
    assert prompt_of(saver, elsewhere) == elsewhere


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("comes", [None, "before", "after", "fork"])
def test_a_call_without_a_result_is_not_sent(monkeypatch, count, comes):
    """Its run was killed in a tool, or a user went on before its result came. The first
    ``count`` messages are stored; all of them are while the prompt is made, or in a fork.
    """

    def meanwhile(*which):
        records = newest(*which) if comes == "after" else None
        put_messages(saver, state, config)
        return newest(*which) if records is None else records

    def result(text, call_id):
        return ToolMessage(text, tool_call_id=call_id, id=text)

    state = [
        *numbered(1),
        calling("dead", "c0", "c1"),
        result("late", "c0"),
        HumanMessage("go on", id="on"),
        calling("again", "c0", "c1"),
        result("new 0", "c0"),
        result("new 1", "c1"),
    ]
    with FoldlogSaver("memory:", condense=True) as saver:
        config = put_messages(saver, state[:count]) if count else None
        if comes == "fork":
            put_messages(saver, [*state[:count], *(HumanMessage("left") for _ in state)], config)
        newest = saver._checkpoints.newest_records
        if comes is not None:
            monkeypatch.setattr(saver._checkpoints, "newest_records", meanwhile)
        sent = texts(prompt_of(saver, state))
        assert sent == ["0", "go on", "again", "new 0", "new 1"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_call_is_sent_without_its_result(strategy, durability):
    """With tools that fail, time travel, and calls of one id: the model refuses what a server
    would.
    """
    failing = cycle((False, False, False, True, False))

    @tool
    def measure() -> str:
        """Measure."""
        if next(failing):
            raise OSError
        return "9 km " * 200

    def script(messages, number):
        calls = call("measure", *("c0", "c1")[: 1 + number % 2])
        return AIMessage("done") if number % 5 == 4 else calls

    with foldlog.open("memory:", condenser=STRATEGIES[strategy]) as histories:
        saver = FoldlogSaver(histories, condense=True)
        model = ScriptedModel(script=script)
        graph = hooked(model, [measure], saver)
        for turn in range(12):
            config = THREAD
            if turn % 3 == 2:
                past = list(graph.get_state_history(THREAD))
                config = past[len(past) // 2].config
            with suppress(OSError):
                graph.invoke(said(str(turn)), config, durability=durability)
        assert len(model.prompts) > 20
        assert min(map(len, model.prompts[-3:])) < len(messages_of(saver, THREAD))


def test_a_deleted_threads_messages_are_all_sent(histories):
    saver = FoldlogSaver(histories, condense=True)
    messages = numbered(6)
    put_messages(saver, messages)
    saver.delete_thread("t")
    assert prompt_of(saver, messages) == messages


def test_a_copied_saver_has_the_same_store(saver):
    clone = copy.copy(saver)
    config = put(clone, {"a": (1,)})
    assert channels(saver, config) == channels(clone, config)
    assert isinstance(saver, BaseCheckpointSaver)


def forked(saver):
    """Put a thread with two branches, each with a write. Return the configs: of both, the first
    branch, the fork.
    """
    one = put(saver, said("secret one"))
    two, three = (put(saver, said("secret one", text), one) for text in ("secret two", "three"))
    for config, text in ((one, "secret two"), (two, "reply"), (three, "another reply")):
        saver.put_writes(config, [("messages", [HumanMessage(text)])], "task")
    return one, two, three


def ids(saver, config=THREAD, **options):
    return [id_of(checkpoint.config) for checkpoint in saver.list(config, **options)]


def id_of(config):
    return config["configurable"]["checkpoint_id"]


def test_a_branch_outlives_an_erased_first_branch(saver, histories):
    one, _, three = forked(saver)
    histories.erase("langgraph/t", reason="asked to", detach_forks=True)
    assert "langgraph/t/+writes" not in histories, "it holds what was erased"
    assert ids(saver) == ids(saver, None, limit=9) == [id_of(three), id_of(one)]
    assert channels(saver, one) == said("secret one")
    four = put(saver, said("four"), three)
    saver.put_writes(four, [("a", 1)], "task")
    assert saver.get_tuple(THREAD).pending_writes == [("task", "a", 1)]
    five = put(saver, said("five"), one)
    assert ids(saver) == [*map(id_of, (five, four, three, one))]
    saver.prune(["t"])
    assert ids(saver) == [id_of(five)]
    saver.delete_thread("t")
    assert list(histories) == []


def test_pruned_checkpoints_stay_hidden_after_an_erasure(saver, histories):
    one, _, three = forked(saver)
    saver.prune(["t"])
    assert ids(saver) == [id_of(three)]
    histories.erase("langgraph/t", reason="asked to", detach_forks=True)
    assert ids(saver) == [id_of(three)]
    assert saver.get_tuple(one) is None


def test_a_copied_store_lists_each_checkpoint_once(saver, histories, tmp_path):
    forked(saver)
    with foldlog.open(tmp_path / "copy.db") as copied:
        copied.maintenance.copy_from(histories)
        other = FoldlogSaver(copied)
        assert list(other.list(THREAD)) == list(saver.list(THREAD))
        assert list(other.list(THREAD, limit=2)) == list(saver.list(THREAD, limit=2))


def test_a_redaction_covers_pending_writes(saver, histories):
    one, two, _ = forked(saver)
    receipt = histories["langgraph/t"].redact(2, reason="asked to")
    assert [quote.conversation for quote in receipt.quotes] == ["langgraph/t/+writes"]
    assert [len(saver.get_tuple(each).pending_writes) for each in (one, two)] == [0, 1]
    assert "secret two" not in str([*saver.list(THREAD)])
    saver.put_writes(one, [("a", 1)], "task")
    assert saver.get_tuple(one).pending_writes == [("task", "a", 1)]


class Noted(MessagesState):
    notes: Annotated[list, operator.add]


def test_a_thread_goes_on_after_any_redaction(file_url, tmp_path):
    def graph_of(saver):
        def answer(state):
            return {"messages": [AIMessage("fine")], "notes": [state["messages"][-1].content]}

        builder = StateGraph(Noted).add_node("a", answer).add_edge(START, "a")
        return builder.compile(checkpointer=saver)

    def copies():
        yield from (path for path, _, _ in redacted_one_by_one(file_url, tmp_path))
        for text in secrets:
            path = tmp_path / "copy.db"
            path.write_bytes(Path(file_url.removeprefix("sqlite:///")).read_bytes())
            with foldlog.open(path) as histories:
                for name, event in reversed(own_events(histories)):
                    if text in repr(histories[name].events(event.id, event.id + 1)):
                        histories[name].redact(event.id, reason="asked to")
            yield f"sqlite:///{path}"

    secrets = ("secret one", "secret two", "secret three")
    with FoldlogSaver(file_url) as saver:
        graph = graph_of(saver)
        for text in secrets[:2]:
            graph.invoke(said(text), THREAD, durability="sync")
        past = list(graph.get_state_history(THREAD))
        graph.invoke(said(secrets[2]), past[2].config, durability="sync")
    for path in copies():
        with FoldlogSaver(path) as saver:
            graph = graph_of(saver)
            for newest in islice(graph.get_state_history(THREAD), 1):
                assert newest.config == graph.get_state(THREAD).config
            for snapshot in past:
                graph.get_state(snapshot.config)
            ended = graph.invoke(said("go on"), THREAD)["messages"]
            assert texts(ended[-2:]) == ["go on", "fine"]


async def test_a_deleted_thread_is_erased_and_begins_again(tmp_path):
    path = tmp_path / "h.db"
    async with FoldlogSaver(f"sqlite:///{path}") as saver:
        forked(saver)
        await saver.adelete_thread("t")
        assert not list(saver.list(None))
        await saver.aput_writes(put(saver, said("another")), [("a", 1)], "task")
        assert saver.get_tuple(THREAD).pending_writes == [("task", "a", 1)]
    assert b"secret" not in path.read_bytes()


def deleting_tool(saver):
    """Return a tool that deletes the thread in its second and its fourth call, and a list with an
    item for each call.
    """
    calls = []

    @tool("measure")
    def deleting() -> str:
        """Measure."""
        calls.append(1)
        if len(calls) in (2, 4):
            saver.delete_thread("t")
        return "9 km"

    return deleting, calls


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("deleter", ["the run's own saver", "another saver"])
def test_a_run_outlives_the_deletion_of_its_thread(tmp_path, durability, deleter):
    """The thread is deleted twice, each time in the middle of a step. What the run puts afterwards
    is a new thread with the same id.
    """
    url = f"sqlite:///{tmp_path / 'h.db'}"
    with foldlog.open(
        url, condenser={"type": "digest", "max_size": 8, "keep_first": 1}
    ) as histories:
        ours = FoldlogSaver(histories, condense=True)
        theirs = InMemorySaver()
        ended = []
        with FoldlogSaver(url) as other:
            for saver, deletes, graph_of in (
                (ours, other if deleter == "another saver" else ours, hooked),
                (theirs, theirs, agent),
            ):
                deleting, calls = deleting_tool(deletes)
                graph = graph_of(ScriptedModel(script=steps(5)), [deleting], saver)
                messages = graph.invoke(said("go"), THREAD, durability=durability)["messages"]
                assert len(calls) == 7
                ended.append(texts(messages))
                assert texts(messages_of(saver, THREAD)) == ended[-1]
            assert ended[0] == ended[1]
            if durability == "sync":
                assert len(ids(ours)) == len(ids(theirs))
        assert_sound(histories.store)
        ours.delete_thread("t")
        assert ours.get_tuple(THREAD) is None
    assert b"9 km" not in (tmp_path / "h.db").read_bytes()


class TestKeeps(Condenses):
    runtime = "langgraph"
    prints = "6 checkpoints, 4 messages for the model"

    def opened(self, url, **options):
        return FoldlogSaver(url, condense=self.condense, **options)

    async def add(self, store, *names):
        newest = await store.aget_tuple(THREAD)
        before = newest.checkpoint["channel_values"]["messages"] if newest else []
        messages = [*before, *(HumanMessage(name, id=name) for name in names)]
        versions = dict.fromkeys(("messages", "a"), len(before) + 1)
        checkpoint = checkpoint_of({"messages": messages, "a": names[-1]}, versions)
        config = newest.config if newest else THREAD
        put = await store.aput(config, checkpoint, {"step": len(before)}, versions)
        await store.aput_writes(put, [("w", names[-1])], "task")

    async def names(self, store):
        """Return what is new in each checkpoint: two writers may begin with one."""
        names = []
        for entry in [entry async for entry in store.alist(THREAD)][::-1]:
            values = entry.checkpoint["channel_values"]
            names += texts(values["messages"][entry.metadata["step"] :])
            assert values["a"] == names[-1]
            assert entry.pending_writes in ([], [("task", "w", names[-1])])
        return names

    def model(self, script):
        return ScriptedModel(script=lambda messages, number: reply(script(number)))

    async def hold(self, store):
        return {"before": (await store.aget_tuple(THREAD)).checkpoint["channel_values"]["messages"]}

    async def run(self, store, model, prompt, *tools, before=()):
        graph = (hooked if self.condense else agent)(model, [*map(tool, tools)], store)
        # ``next`` leaves out those whose writes are there already
        pending = (await graph.aget_state(THREAD)).tasks
        durability = os.environ.get("DURABILITY", "sync")
        state = None if pending else {"messages": [*before, *said(prompt)["messages"]]}
        await graph.ainvoke(state, THREAD, durability=durability)

    def texts(self, prompt):
        def texts_of(message):
            arguments = [asked["args"] for asked in getattr(message, "tool_calls", ())]
            return arguments or [message.content]

        return [text for message in prompt for text in texts_of(message)]

    def parts(self, prompt):
        return list(parts_of(prompt))

    async def stored_parts(self, store):
        newest = await store.aget_tuple(THREAD)
        values = newest.checkpoint["channel_values"] if newest else {}
        return list(parts_of(values.get("messages", ())))

    def test_exit_durability_repeats_no_killed_tool(self, tmp_path, monkeypatch):
        monkeypatch.setenv("DURABILITY", "exit")
        self.test_a_tool_killed_midway_does_not_run_again(tmp_path)

    async def test_a_kill_leaves_a_prefix_of_asynchronous_checkpoints(self, file_url, monkeypatch):
        monkeypatch.setenv("DURABILITY", "async")
        sent = self.killed(file_url)
        async with self.opened(file_url) as store:
            stored = await self.stored_parts(store)
            assert stored[: len(sent)] == sent[: len(stored)]
            await self.run(store, self.model(lambda number: "finished"), "go on", work)
            assert (await self.stored_parts(store))[-1] == ("ai", "finished")


# -- runs


def parts_of(messages):
    """Return what messages say, part by part: calls and answers by their ids."""
    for message in messages:
        calls = [("call", asked["id"]) for asked in getattr(message, "tool_calls", ())]
        kind = message.type
        words = getattr(message, "tool_call_id", message.content)
        yield from calls or [("answer" if kind == "tool" else kind, words)]


def shown(view):
    """Return what a View shows, in the form of ``parts_of``."""
    kinds = {"Action": "call", "Observation": "answer"}
    names = {"agent": "ai", "user": "human", "environment": "human"}
    for event in well_formed(view):
        kind = kinds.get(type(event).__name__)
        yield (kind, event.call_id) if kind else (names[event.source], event.content)


@pytest.mark.parametrize("file_url", ["sqlite"], indirect=True)
def test_the_view_equals_the_prompt_of_random_steps(file_url):
    """The steps have parallel calls, time travel, messages that the graph removes, and
    condensations.
    """
    choice = random.Random(5)
    compared = []
    forks = 0
    removed = 0
    with foldlog.open(
        file_url, condenser={"type": "digest", "max_size": 24, "keep_first": 1}
    ) as histories:
        saver = FoldlogSaver(histories, condense=True)

        def script(messages, number):
            compared.append((list(shown(saver.history(THREAD).view())), list(parts_of(messages))))
            if choice.random() < 0.35:
                return AIMessage(f"answer {number}")
            return call("measure", *(f"c{number}-{n}" for n in range(choice.choice([1, 1, 2]))))

        graph = agent(
            ScriptedModel(script=script, messages_max=40, prompts=[]),
            [measure],
            saver,
            saver.pre_model_hook,
        )
        run = {**THREAD, "recursion_limit": 500}
        while len(compared) < 200:
            config = run
            how = choice.random()
            past = islice(graph.get_state_history(THREAD), 12) if compared and how < 0.3 else ()
            ends = [snapshot for snapshot in past if not snapshot.next]
            if how < 0.15 and ends:
                config = {**choice.choice(ends).config, "recursion_limit": 500}
                forks += 1
            elif ends:
                first = choice.choice(range(len(ends[0].values["messages"]) - 1))
                users = [
                    message
                    for message in ends[0].values["messages"][first:]
                    if isinstance(message, HumanMessage)
                ][:1]
                graph.update_state(
                    THREAD,
                    {"messages": [RemoveMessage(message.id) for message in users]},
                    as_node="agent",
                )
                removed += len(users)
            graph.invoke(said(f"turn {len(compared)}"), config, durability="sync")
        for view, messages in compared:
            assert view == messages
        assert min(forks, removed) > 3
        assert len(channels(saver, THREAD)["messages"]) > 40, (
            "the state keeps messages that the model is not sent"
        )
        events = [
            event
            for row in histories.store.iter_conversations()
            for event in histories[row.id].events()
        ]
        assert (
            sum(isinstance(event, CondensationAction) and bool(event.summary) for event in events)
            > 5
        )
        assert_sound(histories.store)


def test_a_list_omits_a_thread_deleted_meanwhile(saver):
    for thread_id in ("a", "b"):
        parent = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        for number in range(3):
            versions = {"messages": f"{number}"}
            values = {"messages": [HumanMessage(f"{number}", id=f"{number}")]}
            parent = saver.put(parent, checkpoint_of(values, versions), {}, versions)
    listed = saver.list(None)
    assert next(listed).config["configurable"]["thread_id"] == "b"
    saver.delete_thread("b")
    assert [checkpoint.config["configurable"]["thread_id"] for checkpoint in listed] == ["a"] * 3


@pytest.mark.parametrize("place", ["walk", "hide"])
def test_hiding_runs_survives_a_threads_deletion(place, saver, monkeypatch):
    config = put(saver, {"n": 1})
    config["configurable"]["run_id"] = "r"
    saver.put(config, checkpoint_of({"n": 2}, {"n": 2}), {"run_id": "r"}, {"n": 2})
    owner = saver._checkpoints if place == "walk" else saver._checkpoints.branches
    name = "walk" if place == "walk" else "of"
    original = getattr(owner, name)

    def then_deleted(*args, **options):
        checkpoint = original(*args, **options)
        saver.delete_thread("t")
        return checkpoint

    monkeypatch.setattr(owner, name, then_deleted)
    saver.delete_for_runs(["r"])
    monkeypatch.undo()
    assert saver.get_tuple(THREAD) is None


PAY = [{"name": "pay", "args": {"euros": n}, "id": f"c{n}"} for n in (1, 2)]


def asking(saver, ask):
    """Return a graph whose node ``ask`` interrupts between a message with two calls and its
    results.
    """
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [AIMessage("", tool_calls=PAY, id="m")]})
    builder.add_node("ask", ask)
    builder.add_edge(START, "model")
    builder.add_edge("model", "ask")
    return builder.compile(checkpointer=saver)


REVIEWS = [{"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize(
    "request_of, answers_in",
    [
        # HumanInTheLoopMiddleware, the older HumanInterrupt, and a node that shows the calls
        (
            lambda call: {"name": call["name"], "args": call["args"], "description": "Pay?"},
            lambda answers: {"decisions": answers},
        ),
        (
            lambda call: {"action_request": {"action": call["name"], "args": call["args"]}},
            lambda answers: answers,
        ),
        (lambda call: call, lambda answers: answers),
    ],
)
def test_an_interrupt_is_an_approval_of_its_calls(histories, durability, request_of, answers_in):
    def ask(state):
        answers = interrupt(
            {"action_requests": [request_of(asked) for asked in PAY], "review_configs": REVIEWS}
        )
        assert answers == answers_in(said)
        return {"messages": [ToolMessage("refused", tool_call_id="c2")]}

    said = [{"type": "approve"}, {"type": "reject", "message": "too much"}]
    config = {"configurable": {"thread_id": "t"}, "metadata": {"by": "ann"}}
    asking(saver := FoldlogSaver(histories), ask).invoke(
        {"messages": [HumanMessage("pay")]}, THREAD, durability=durability
    )
    shown = {
        call_id: dict(data[0]["shown"])
        for call_id, data in approvals_of(saver.history(THREAD)).items()
    }
    assert [shown[n]["args"] for n in ("c1", "c2")] == [{"euros": 1}, {"euros": 2}]
    other = FoldlogSaver(histories)  # as in another process
    asking(other, ask).invoke(Command(resume=answers_in(said)), config, durability=durability)
    assert {name: data[1:] for name, data in approvals_of(other.history(THREAD)).items()} == {
        "c1": [decided(True, by="ann")],
        "c2": [decided(False, by="ann", reason="too much")],
    }


@pytest.mark.parametrize(
    "answer, decision",
    [
        (True, decided(True)),
        ("reject", decided(False)),
        ({"type": "response", "args": "later"}, decided(False, reason="later")),
        (
            {"type": "edit", "edited_action": {"name": "pay", "args": {"euros": 3}}},
            decided(True, reason='edited: {"name": "pay", "args": {"euros": 3}}'),
        ),
        ("perhaps", None),
        ([True, False], None),
    ],
)
async def test_an_interrupt_in_a_tool_is_an_approval(saver, answer, decision):
    @tool
    async def pay(euros: int) -> str:
        """Pay."""
        return str(interrupt("Pay?"))

    def script(messages, number):
        return AIMessage("done") if number else call("pay", "c", euros=5)

    graph = agent(ScriptedModel(script=script, prompts=[]), [pay], saver)
    await graph.ainvoke({"messages": [HumanMessage("pay")]}, THREAD)
    await graph.ainvoke(Command(resume=answer), THREAD)
    (recorded,) = approvals_of(saver.history(THREAD)).values()
    assert recorded == [{"asked": None, "shown": "Pay?"}, *([decision] if decision else [])]


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_reply_names_its_request(saver, durability):
    def hook(state, config):
        return {"llm_input_messages": [SystemMessage("You measure."), *state["messages"]]}

    model = ScriptedModel(script=steps(1), prompts=[])
    graph = agent(model.bind(tools=[convert_to_openai_tool(measure)]), [measure], saver, hook)
    graph.invoke(said("go"), {**THREAD, "callbacks": [saver.requests]}, durability=durability)
    lengths = [len(sent.request.messages) for sent in check_requests(saver.history(THREAD))]
    assert lengths == [len(prompt) - 1 for prompt in model.prompts]


def test_a_reply_beside_a_removal_names_no_request(saver):
    """The model was shown what the same step takes out of the state."""
    model = ScriptedModel(script=lambda *_: AIMessage("short"), prompts=[])

    def ask(state):
        removed = [RemoveMessage(message.id) for message in state["messages"][:-1]]
        return {"messages": [*removed, model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    for turn in ("one", "two"):
        graph.invoke(said(turn), {**THREAD, "callbacks": [saver.requests]}, durability="sync")
    sent = [*map(str, requests_of(saver.history(THREAD)))]
    assert sent == ["the same bytes", "not recorded"]
