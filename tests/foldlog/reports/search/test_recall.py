"""The tool with which an agent reads what was forgotten."""

import asyncio
import json
from inspect import signature
from typing import get_type_hints

import pytest
from hypothesis import given, strategies as st

import foldlog
from foldlog import Action, CondensationAction, Observation, Retraction, SystemMessage
from foldlog._reports.search import recall_tool
from foldlog.condensers.models.estimate import estimate
from foldlog.eventstore import ReadTransaction
from tests.condensers.made import parts_with
from tests.how_many import examples
from tests.said import replied, said
from tests.stored_rows import execute


def call(history, tool, result, **arguments):
    [action] = history.append(
        Action(tool=tool, arguments=arguments, call_id=f"c{history.version()}")
    )
    return action, history.append_tool_result(action.event, result)


@pytest.fixture
def history(history):
    history.append([SystemMessage(content="SECRET prompt"), said("find the order number")])
    call(history, "read", "The order is 4711-X.\n" + "filler " * 900, path="/shop/orders.txt")
    call(history, "read", "nothing here", path="/shop/other.txt")
    call(history, "edit", "done", path="/shop/orders.txt", new="4712")
    history.append(
        CondensationAction(forgotten_event_ids=(2, 3, 4, 5), summary="looked", summary_offset=2)
    )
    return history


def ids_in(text):
    return [
        int(line.split()[1].rstrip("]")) for line in text.splitlines() if line.startswith("[event ")
    ]


@pytest.mark.parametrize("question", [{"ids": [2, 3, 4, 5, 6]}, {"path": "orders.txt"}])
def test_structural_events_are_read_once(history, question, monkeypatch):
    reads = []
    read = ReadTransaction.structural_events

    def counted(reading, *interval):
        reads.append(interval)
        return read(reading, *interval)

    tool = history.recall_tool()
    monkeypatch.setattr(ReadTransaction, "structural_events", counted)
    assert len(ids_in(tool.recall(**question))) > 3
    assert len(reads) == 1


def test_only_calls_of_shown_results_are_read(histories, monkeypatch):
    history = histories["long"]
    for number in range(40):
        call(history, "read", f"wish {number} in notes.txt", path="notes.txt")
    tool = history.recall_tool()
    calls_read = []
    find_call = recall_tool.find_call

    def noting(store, conversation, result, unread):
        calls_read.append(result.id)
        return find_call(store, conversation, result, unread)

    monkeypatch.setattr(recall_tool, "find_call", noting)
    text = tool.recall("wish")
    assert text.startswith("up to 40 events found; to be read by their ids: ")
    assert calls_read == list(range(79, 43, -2)), "eight are shown, and ten are named"
    assert "…" in text
    calls_read.clear()
    assert ids_in(tool.recall(path="notes.txt")) == [78, 79, 76, 77, 74, 75, 72, 73]
    assert calls_read == [79, 77, 75, 73]


def test_recall_by_words_ids_and_paths(history):
    recall = history.recall_tool().recall
    text = recall("order 4711-x")
    assert ids_in(text) == [3, 2, 6, 1], "3 has both words; 2 is forgotten; 6 is newer than 1"
    assert "The order is 4711-X." in text
    assert "SECRET" not in text
    assert ids_in(text := recall(ids=[5, 3, 5, 99, 0, 8])) == [5, 3]
    assert text.startswith("cannot be read: 99, 0, 8")
    assert recall(ids=[99]) == "cannot be read: 99"
    assert ids_in(recall(path="orders.txt")) == [6, 7, 2, 3], "the newest first"
    assert recall(path="/no/such") == "no event of this conversation matches"
    history.append(replied("nothing here either"))
    assert ids_in(recall("nothing here")) == [5, history.version() - 1], (
        "of equally good events, forgotten events come first"
    )
    history.append(replied("nothing but filler"))
    assert ids_in(recall("filler nothing"))[:2] == [history.version() - 1, 5], (
        "an event with more words comes first, also if it is shown"
    )


def test_long_text_is_cut_around_the_hit(history):
    call(
        history,
        "read",
        "line of text\n" * 5_000 + "needle_7 lies here\n" + "line of text\n" * 5_000,
    )
    text = history.recall_tool(max_tokens=400).recall("needle_7")
    assert "needle_7 lies here" in text
    assert estimate(text) <= 400
    assert estimate(text) > 300, "the room is used"


def test_hit_after_text_that_folding_lengthens(history):
    history.append(said("ß" * 3_000 + " needle_8 lies here " + "ß" * 3_000))
    assert "needle_8 lies here" in history.recall_tool(max_tokens=400).recall("needle_8")


@pytest.mark.parametrize("call_id", [None, "call_0"], ids=["no id", "the same id"])
def test_results_follow_calls_without_unique_ids(history, call_id):
    named = {"id": call_id} if call_id else {}
    tool = history.recall_tool()
    for name, arguments, result in (
        ("read", {"path": "a.py"}, "SOURCE OF A"),
        ("read", {"path": "data.py"}, "SOURCE OF DATA"),
        ("recall", {"query": "SOURCE"}, "SOURCE OF ALL"),
        ("read", '{"path": "\\u00fcbung.md"}', "SOURCE OF ÜBUNG"),
    ):
        history.append_reply(
            {
                "role": "assistant",
                "tool_calls": [{**named, "function": {"name": name, "arguments": arguments}}],
            }
        )
        history.append_tool_result(history.open_calls()[0], result)
    for path, source in (("a.py", "SOURCE OF A"), ("übung.md", "SOURCE OF ÜBUNG")):
        first, second = tool.recall(path=path).split("\n\n")[1:]
        assert "Calls read" in first
        assert second.endswith(source)
    assert len(ids_in(tool.recall("SOURCE"))) == 3


def test_parts_and_arguments_are_read_and_found(history):
    tool = history.recall_tool(max_tokens=900)
    first = history.version()
    text = 'said "so" in dépôt\\notes'
    parts = parts_with(text)
    history.append([said([part]) for part in parts.values()])
    history.append(Action(tool="read", arguments=json.dumps({"path": text})))
    for event_id, kind in enumerate([*parts, "arguments"], first):
        assert text in tool.recall(ids=[event_id]), kind
    answer = tool.recall("dépôt\\notes")
    in_base64 = {"document in base64", "file of bytes", "file of a URL"}
    assert in_base64 < parts.keys(), "no search of the store looks into these"
    assert answer.startswith(f"{len(parts) + 1 - len(in_base64)} events found")
    assert "[search_result]\n  T\n  https://x" in tool.recall(ids=[first + 2])


def test_further_events_are_named_by_id(history):
    for number in range(30):
        history.append(said(f"wish {number}"))
    text = history.recall_tool().recall("wish")
    last = history.version() - 1
    assert ids_in(text) == list(range(last, last - 8, -1))
    assert text.startswith(
        "30 events found; to be read by their ids: "
        + ", ".join(map(str, range(last - 8, last - 18, -1)))
    )


def test_retracted_and_redacted_events_are_not_found(history):
    history.append(said("word taken_back"))
    history.append(said("word redacted_one"))
    redacted = history.version() - 1
    history.redact(redacted, reason="asked to", by="ann")
    tool = history.recall_tool()
    assert ids_in(tool.recall("word")) == [redacted - 1]
    assert tool.recall(ids=[redacted]) == f"cannot be read: {redacted}"
    history.append(Retraction(version=redacted - 1))
    assert tool.recall("word") == "no event of this conversation matches"
    assert (
        tool.recall(ids=[redacted - 1, redacted]) == f"cannot be read: {redacted - 1}, {redacted}"
    )


def test_results_of_the_tool_are_not_found_again(history):
    tool = history.recall_tool()
    [recorded] = history.append(Action(tool="recall", arguments={"query": "4711"}, call_id="r"))
    history.append_tool_result(recorded.event, tool(recorded.event))
    assert ids_in(tool.recall("4711-X")) == [3]
    (result,) = history.tail(1)
    assert isinstance(result, Observation)
    assert (
        tool.recall(ids=[recorded.id, result.id]) == f"cannot be read: {recorded.id}, {result.id}"
    )


def test_a_damaged_event_hides_no_other_event(stored):
    history = stored["c"]
    history.append([said("find the pear"), said("find the fig")])
    call(history, "read", "a pear tree", path="pear.txt")
    call(history, "read", "a fig tree", path="fig.txt")
    history.append(CondensationAction(forgotten_event_ids=(0, 1, 2, 3, 4, 5)))
    damage = "UPDATE events SET body = replace(body, 'pear', 'PEAR') WHERE id IN (0, 2)"
    execute(stored.store.path, damage)
    with foldlog.open(stored.store.path) as reopened:
        tool = reopened["c"].recall_tool()
        by_ids = tool.recall(ids=[0, 1, 2, 3])
        assert by_ids.startswith("cannot be read: 0, 2\n")
        assert ids_in(by_ids) == [1, 3]
        by_words = tool.recall("tree")
        assert by_words.startswith("2 events found; 2 could not be read\n")
        assert ids_in(by_words) == [5, 3]
        assert tool.recall(ids=[2]) == "cannot be read: 2"


def test_a_damaged_result_hides_no_call(stored):
    history = stored["c"]
    call(history, "read", "a pear tree", path="fig.txt")
    call(history, "edit", "done", path="fig.txt")
    history.append(CondensationAction(forgotten_event_ids=(0, 1, 2, 3)))
    execute(
        stored.store.path, "UPDATE events SET body = replace(body, 'pear', 'PEAR') WHERE id = 1"
    )
    with foldlog.open(stored.store.path) as reopened:
        assert ids_in(reopened["c"].recall_tool().recall(path="fig.txt")) == [2, 3, 0]


def test_a_call_that_cannot_be_used_is_answered(history):
    for arguments, problem in [
        ("{", "as a JSON object"),
        ([], "as a JSON object"),
        ({"queri": "x"}, "as a JSON object"),
        ({}, "use one of"),
        ({"query": "x", "path": "y"}, "use one of"),
        ({"query": " "}, "use one of"),
        ({"query": 5}, "must be texts"),
        ({"path": "\ud83d/x"}, "no event"),
        ({"ids": ["3"]}, "whole numbers"),
        ({"ids": [True]}, "whole numbers"),
    ]:
        assert problem in history.recall_tool()(arguments)
    with pytest.raises(
        foldlog.errors.InvalidArgument, match="max_tokens is 299; use a whole number from 300"
    ):
        history.recall_tool(max_tokens=299)


def test_call_may_be_text_map_or_action(history):
    tool = history.recall_tool()
    want = tool.recall(ids=[5])
    assert "nothing here" in want
    for given_as in (
        '{"ids": [5]}',
        {"ids": [5]},
        {"ids": 5},
        Action(tool="recall", arguments={"ids": [5], "path": None}),
    ):
        assert tool(given_as) == want
    assert tool("a text").endswith("these are not valid arguments: a text")


def test_a_single_id_may_be_the_first_event(histories):
    history = histories["new"]
    history.append(said("find the order number"))
    assert ids_in(history.recall_tool()({"ids": 0})) == [0]


def test_the_schema_has_the_shape_of_each_dialect(history):
    tool = history.recall_tool()
    chat, anthropic, responses = map(tool.schema, ("openai", "anthropic", "responses"))
    assert chat["type"] == responses["type"] == "function"
    assert chat["function"]["name"] == anthropic["name"] == responses["name"] == "recall"
    assert chat["function"]["parameters"] == anthropic["input_schema"] == responses["parameters"]
    assert set(responses["parameters"]["properties"]) == {"query", "ids", "path"}
    assert json.loads(json.dumps(tool.schema("litellm"))) == chat
    chat["function"]["parameters"]["properties"].clear()
    assert tool.schema("openai") != chat
    with pytest.raises(ValueError, match="unknown dialect 'nope'; use 'openai', "):
        tool.schema("nope")


def test_sdks_can_make_a_tool_of_the_function(history):
    """SDKs take names and types from the signature, and descriptions from the docstring."""
    recall = history.recall_tool().recall
    hints = get_type_hints(recall)
    assert hints == {"query": str, "ids": list[int] | None, "path": str, "return": str}
    parameters = signature(recall).parameters.values()
    assert all(parameter.default is not parameter.empty for parameter in parameters)
    assert recall.__name__ == "recall"
    assert all(f"{name}: " in recall.__doc__ for name in ("query", "ids", "path"))


def test_results_of_foldlog_mcp_are_not_found(history):
    for tool in (
        "mcp__foldlog__recall",
        "mcp__plugin_foldlog_foldlog__why",
        "foldlog-dropped",
        "recalling",
    ):
        call(history, tool, f"unique_word from {tool}")
    assert ids_in(history.recall_tool().recall("unique_word")) == [history.version() - 1]


def test_prefixes_of_words_and_quoted_phrases(history):
    recall = history.recall_tool().recall
    assert ids_in(recall("ord")) == [3, 2, 6, 1]
    assert ids_in(recall("der")) == []
    assert ids_in(recall('"order is"')) == [3]
    assert ids_in(recall("?")) == []


def test_a_conversation_without_events_has_nothing(histories):
    tool = histories["new"].recall_tool()
    for given_as in ({"query": "x"}, {"ids": [0]}, {"path": "x"}):
        assert tool(given_as) == "no event of this conversation matches"


@examples(80)
@given(
    st.lists(
        st.text(st.sampled_from("wa b\n漢😀-_/0Z\x01"), max_size=400).map(lambda text: text * 9),
        min_size=1,
        max_size=20,
    ),
    st.integers(300, 1_000),
    st.sampled_from(["w", "漢", "😀 w", "b\n"]),
)
def test_a_result_has_at_most_its_tokens(texts, max_tokens, query):
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append([said(text) for text in texts])
        tool = history.recall_tool(max_tokens=max_tokens)
        for text in (
            tool.recall(query),
            tool.recall(ids=[*range(len(texts)), *range(2**62, 2**62 + 40)]),
        ):
            assert text
            assert estimate(text) <= max_tokens


def test_the_async_tool_gives_the_same(history):
    async def ask():
        async with foldlog.aio.open("memory:") as histories:
            async_history = histories["c1"]
            await async_history.append(said("the order is 4711-X"))
            tool = async_history.recall_tool(max_tokens=500)
            return tool.schema(), await tool({"query": "4711-X"}), await tool.recall(ids=[0])

    schema, answer, read = asyncio.run(ask())
    assert schema == history.recall_tool().schema()
    assert ids_in(answer) == ids_in(read) == [0]
