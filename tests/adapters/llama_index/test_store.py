"""``FoldlogChatStore``: equal to the SDK's own in memory, killed at any moment, and what the View
follows.
"""

import random

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore

import foldlog
from foldlog.adapters import llama_index
from foldlog.adapters._records.llama_index import NAME
from foldlog.adapters._shared import below
from foldlog.adapters.llama_index import FoldlogChatStore
from foldlog.eventstore import Action, ConversationErased, Observation
from foldlog.formats import decode
from tests.adapters.contract import Survives, holding

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"
CALL = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"x": 1})
OF_OPENAI = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
MESSAGES = [
    lambda: user("hi"),
    lambda: ChatMessage("", role="assistant"),
    lambda: ChatMessage("a\x00é", role="user", additional_kwargs={"x": [None, {"$y": 1}]}),
    lambda: ChatMessage(
        role="user",
        blocks=[TextBlock(text="see"), ImageBlock(image=PNG, image_mimetype="image/png")],
    ),
    lambda: ChatMessage(
        role="assistant", blocks=[ThinkingBlock(content="hm"), TextBlock(text="so"), CALL]
    ),
    lambda: ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": [OF_OPENAI]}),
    lambda: ChatMessage("12", role="tool", additional_kwargs={"tool_call_id": "c", "name": "f"}),
    lambda: ChatMessage("be brief", role="system"),
]


@pytest.fixture
def store(histories):
    return FoldlogChatStore(histories)


def user(text):
    return ChatMessage(text, role="user")


def contents(store):
    return [message.content for message in store.get_messages("k")]


@pytest.mark.parametrize("seed", range(3))
async def test_random_operations_equal_the_sdks_store(histories, seed):
    choice = random.Random(seed)
    theirs = SimpleChatStore()
    for _ in range(120):
        ours = FoldlogChatStore(histories)
        key = choice.choice(["k", "a/b"])
        draw = choice.random()
        their_messages = list(theirs.get_messages(key))
        if draw < 0.5:
            message = choice.choice(MESSAGES)()
            theirs.add_message(key, message)
            await ours.async_add_message(key, message)
        elif draw < 0.65:
            prefix = their_messages[: choice.randrange(len(their_messages) + 1)]
            messages = [*prefix, *(choice.choice(MESSAGES)() for _ in range(choice.randrange(3)))]
            theirs.set_messages(key, messages)
            ours.set_messages(key, messages)
        elif draw < 0.75 and their_messages:
            place = choice.randrange(len(their_messages) + 2)
            assert ours.delete_message(key, place) == theirs.delete_message(key, place)
        elif draw < 0.85 and their_messages:
            assert ours.delete_last_message(key) == theirs.delete_last_message(key)
        elif draw < 0.88 and their_messages:
            assert await ours.adelete_messages(key) == theirs.delete_messages(key)
        assert ours.get_messages(key) == theirs.get_messages(key)
        assert ours.get_keys() == sorted(
            their_key for their_key in theirs.get_keys() if theirs.get_messages(their_key)
        )


async def test_removed_messages_are_retracted_or_forgotten(store):
    messages = [user(text) for text in ("one", "two", "three")]
    store.set_messages("k", messages)
    store.delete_last_message("k")
    store.set_messages("k", messages[1:2])
    history = store.history("k")
    kinds = [type(event).__name__ for event in history.events()]
    assert kinds == ["Message"] * 3 + ["Retraction", "CondensationAction"]
    assert [event.content for event in history.view()] == ["two"]


async def test_messages_become_events_and_events_become_messages(store):
    events = list(decode([each().model_dump(mode="json") for each in MESSAGES], format=NAME))
    calls = [event for event in events if isinstance(event, Action)]
    assert [event.tool for event in calls] == ["f", "g"]
    (result,) = (event for event in events if isinstance(event, Observation))
    assert (result.tool, result.call_id) == ("f", "c")
    assert calls[0].thinking
    history = store.history("k")
    history.append({"role": "user", "content": "go"})
    history.append(
        {"role": "assistant", "content": "so", "tool_calls": [{**OF_OPENAI, "id": "c9"}]}
    )
    history.append({"role": "tool", "tool_call_id": "c9", "content": "12"})
    written = store.get_messages("k")
    assert [each.role.value for each in written] == ["user", "assistant", "tool"]
    assert [type(block) for block in written[1].blocks] == [TextBlock, ToolCallBlock]
    assert written[2].additional_kwargs["tool_call_id"] == "c9"


async def test_a_memory_keeps_its_messages_in_the_store(store, histories):
    memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="k")
    memory.put(user("hi"))
    assert memory.get() == store.get_messages("k") == [user("hi")]
    assert histories["llama-index/k"].version() == 1


async def test_a_store_condenses_as_configured():
    with foldlog.open(
        "memory:", condenser={"type": "amortized_forgetting", "max_size": 6}
    ) as histories:
        store = FoldlogChatStore(histories, condense=True)
        for number in range(9):
            messages = [user(f"{number}"), ChatMessage("yes", role="assistant")]
            store.set_messages("k", [*store.get_messages("k"), *messages])
        assert len(store.get_messages("k")) <= 6


class TestKeeps(Survives):
    runtime = "llama-index"

    def opened(self, url, **options):
        return FoldlogChatStore(url, **options)

    async def add(self, store, *names):
        messages = [user(name) for name in names]
        if len(names) == 1:
            await store.async_add_message("k", messages[0])
        else:
            await store.aset_messages("k", [*await store.aget_messages("k"), *messages])

    async def names(self, store):
        return [message.content for message in await store.aget_messages("k")]


def test_keys_are_in_alphabetical_order(store):
    keys = ["A0", "A:z", "a", "b", "\u00e9"]
    for key in reversed(keys):
        store.add_message(key, user("one"))
    assert store.get_keys() == keys


def test_a_list_omits_a_key_erased_meanwhile(store, histories, monkeypatch):
    for key in ("a", "b"):
        store.add_message(key, user("one"))
    erased = store.history("a").id

    def then_erased(*args):
        rows = below(*args)
        histories.erase(erased, reason="asked to")
        return rows

    monkeypatch.setattr(llama_index, "below", then_erased)
    assert store.get_keys() == ["b"]


@pytest.mark.parametrize("clear", [None, "retract", "erase"])
def test_a_list_set_again_restores_no_redacted_text(histories, clear):
    """``ChatSummaryMemoryBuffer`` reads all messages, resets the memory, and sets some of them."""
    store = FoldlogChatStore(histories, clear=clear or "retract")
    for text in ("marigold", "two", "two"):
        store.add_message("k", user(text))
    messages = store.get_messages("k")
    store.history("k").redact(0, reason="asked to")
    if clear:
        store.delete_messages("k")
    store.set_messages("k", [*messages, user("three")])
    assert holding(store.history("k"), "marigold") == []
    assert contents(store) == ["[redacted]", "two", "two", "three"]


def test_erased_messages_are_not_set_again(store, histories):
    new = user("two")
    store.set_messages("k", [user("marigold")])
    messages = store.get_messages("k")
    histories.erase(store.history("k").id, reason="asked to")
    with pytest.raises(ConversationErased):
        store.set_messages("k", [*messages, new])
    assert store.get_messages("k") == []
    store.set_messages("k", [new])
    assert store.get_messages("k") == [new]


def test_condensed_lists_restore_no_redacted_text():
    condenser = {"type": "recent_events", "max_events": 2, "keep_first": 0}
    with foldlog.open("memory:", condenser=condenser) as histories:
        store = FoldlogChatStore(histories, condense=True)
        for text in ("one", "marigold"):
            store.add_message("k", user(text))
            store.get_messages("k")
            store.add_message("k", ChatMessage(f"re {text}", role="assistant"))
        messages = store.get_messages("k")
        history = store.history("k")
        assert contents(store) == ["marigold", "re marigold"]
        history.redact(holding(history, "marigold"), reason="asked to")
        store.set_messages("k", messages)
        assert holding(history, "marigold") == []
        assert contents(store) == ["[redacted]", "[redacted]"]
