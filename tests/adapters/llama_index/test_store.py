"""``FoldlogChatStore``: equal to the SDK's own in memory, killed at any moment, and what the View
follows.
"""

import random
from pathlib import Path

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
from foldlog.eventstore import (
    Action,
    CondensationAction,
    ConversationErased,
    Message,
    Observation,
    Retraction,
)
from foldlog.formats import decode
from tests.adapters.contract import Keeps, holding
from tests.adapters.killed import check_killed_while_it_adds

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"
CALL = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"x": 1})
OF_OPENAI = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
MESSAGES = [
    lambda: ChatMessage("hi", role="user"),
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


@pytest.mark.parametrize("seed", range(3))
async def test_random_operations_are_what_the_sdks_store_in_memory_does(histories, seed):
    choice, theirs = random.Random(seed), SimpleChatStore()
    for _ in range(120):
        ours, key, what = FoldlogChatStore(histories), choice.choice(["k", "a/b"]), choice.random()
        there = list(theirs.get_messages(key))
        if what < 0.5:
            message = choice.choice(MESSAGES)()
            theirs.add_message(key, message)
            await ours.async_add_message(key, message)
        elif what < 0.65:
            begins = there[: choice.randrange(len(there) + 1)]
            messages = [*begins, *(choice.choice(MESSAGES)() for _ in range(choice.randrange(3)))]
            theirs.set_messages(key, messages)
            ours.set_messages(key, messages)
        elif what < 0.75 and there:
            place = choice.randrange(len(there) + 2)
            assert ours.delete_message(key, place) == theirs.delete_message(key, place)
        elif what < 0.85 and there:
            assert ours.delete_last_message(key) == theirs.delete_last_message(key)
        elif what < 0.88 and there:
            assert await ours.adelete_messages(key) == theirs.delete_messages(key)
        assert ours.get_messages(key) == theirs.get_messages(key)
        assert ours.get_keys() == sorted(
            each for each in theirs.get_keys() if theirs.get_messages(each)
        )


async def test_what_leaves_the_list_is_taken_back_at_its_end_and_else_forgotten(histories):
    store = FoldlogChatStore(histories)
    first, second, third = (ChatMessage(text, role="user") for text in ("one", "two", "three"))
    store.set_messages("k", [first, second, third])
    store.delete_last_message("k")
    store.set_messages("k", [second])
    changes = [
        event
        for event in store.history("k").events()
        if isinstance(event, Retraction | CondensationAction)
    ]
    assert [type(each) for each in changes] == [Retraction, CondensationAction]
    assert [event.content for event in store.history("k").view()] == ["two"]
    assert len([event for event in store.history("k").events() if isinstance(event, Message)]) == 3


async def test_messages_become_events_and_events_become_messages(histories):
    records = [each().model_dump(mode="json") for each in MESSAGES]
    events = list(decode(records, format=NAME))
    called = [event.tool for event in events if isinstance(event, Action)]
    assert called == ["f", "g"]
    assert [(event.tool, event.call_id) for event in events if isinstance(event, Observation)] == [
        ("f", "c")
    ]
    assert next(event for event in events if isinstance(event, Action)).thinking
    store = FoldlogChatStore(histories)
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


async def test_a_memory_keeps_its_messages_in_the_store(histories):
    memory = ChatMemoryBuffer.from_defaults(
        chat_store=FoldlogChatStore(histories), chat_store_key="user-7"
    )
    memory.put(ChatMessage("hi", role="user"))
    assert [each.content for each in memory.get()] == ["hi"]
    assert histories["llama-index/user-7"].version() == 1


async def test_it_condenses_where_its_histories_say_so():
    with foldlog.open(
        "memory:", condenser={"type": "amortized_forgetting", "max_size": 6}
    ) as histories:
        store = FoldlogChatStore(histories, condense=True)
        for number in range(9):
            messages = [ChatMessage(f"{number}", role="user"), ChatMessage("yes", role="assistant")]
            store.set_messages("k", [*store.get_messages("k"), *messages])
        assert len(store.get_messages("k")) <= 6


def test_what_was_added_before_a_kill_is_there(tmp_path: Path) -> None:
    check_killed_while_it_adds(TestKeeps(), tmp_path)


class TestKeeps(Keeps):
    runtime = "llama-index"

    def opened(self, url, **options):
        return FoldlogChatStore(url, **options)

    async def add(self, store, *names):
        there = await store.aget_messages("k") if len(names) > 1 else []
        messages = [ChatMessage(name, role="user") for name in names]
        if len(names) == 1:
            await store.async_add_message("k", messages[0])
        else:
            await store.aset_messages("k", [*there, *messages])

    async def names(self, store):
        return [message.content for message in await store.aget_messages("k")]


def test_a_key_that_is_erased_as_keys_are_listed_is_left_out(histories, monkeypatch):
    store = FoldlogChatStore(histories)
    for key in ("a", "b"):
        store.add_message(key, ChatMessage("one", role="user"))
    erased = store.history("a").id

    def then_erased(*args):
        rows = below(*args)
        histories.erase(erased, reason="asked to")
        return rows

    monkeypatch.setattr(llama_index, "below", then_erased)
    assert store.get_keys() == ["b"]


@pytest.mark.parametrize("clear", [None, "retract", "erase"])
def test_a_message_that_is_redacted_before_its_list_is_set_again_stays_redacted(histories, clear):
    """``ChatSummaryMemoryBuffer`` reads all messages, resets the memory, and sets some of them."""
    store = FoldlogChatStore(histories, clear=clear or "retract")
    for text in ("marigold", "two", "two"):
        store.add_message("k", ChatMessage(text, role="user"))
    messages = store.get_messages("k")
    store.history("k").redact(0, reason="asked to")
    if clear:
        store.delete_messages("k")
    store.set_messages("k", [*messages, ChatMessage("three", role="user")])
    assert "marigold" not in repr(list(store.history("k").events()))
    texts = [message.content for message in store.get_messages("k")]
    assert texts == ["[redacted]", "two", "two", "three"]


def test_messages_that_are_erased_by_another_program_are_not_set_again(histories):
    store = FoldlogChatStore(histories)
    new = ChatMessage("two", role="user")
    store.set_messages("k", [ChatMessage("marigold", role="user")])
    messages = store.get_messages("k")
    histories.erase(store.history("k").id, reason="asked to")
    with pytest.raises(ConversationErased):
        store.set_messages("k", [*messages, new])
    assert store.get_messages("k") == []
    store.set_messages("k", [new])
    assert store.get_messages("k") == [new]


def test_a_redacted_message_stays_redacted_although_the_condenser_hid_other_messages():
    condenser = {"type": "recent_events", "max_events": 2, "keep_first": 0}
    with foldlog.open("memory:", condenser=condenser) as histories:
        store = FoldlogChatStore(histories, condense=True)
        for text in ("one", "marigold"):
            store.add_message("k", ChatMessage(text, role="user"))
            store.get_messages("k")
            store.add_message("k", ChatMessage(f"re {text}", role="assistant"))
        messages = store.get_messages("k")
        assert [message.content for message in messages] == ["marigold", "re marigold"]
        history = store.history("k")
        history.redact(holding(history, "marigold"), reason="asked to")
        store.set_messages("k", messages)
        assert "marigold" not in repr(list(history.events()))
        texts = [message.content for message in store.get_messages("k")]
        assert texts == ["[redacted]", "[redacted]"]
