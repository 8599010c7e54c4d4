"""``FoldlogChatMessageHistory``: equal to the SDK's own in memory, killed at any moment, and what
the log keeps.
"""

import random
import warnings
from functools import partial

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import foldlog
from foldlog import History
from foldlog.adapters.langchain import FoldlogChatMessageHistory, FoldlogRequests
from foldlog.eventstore import CondensationAction
from tests.adapters import contract
from tests.adapters.contract import Survives, check_requests
from tests.between import before_next_call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:The class `InMemoryChatMessageHistory`"),
    pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated"),
]

VALUES = [*contract.VALUES, (1, (2,)), b"\x00\xff"]


@pytest.fixture
def ours(histories):
    return FoldlogChatMessageHistory("s", histories)


def any_message(choice: random.Random) -> BaseMessage:
    value = choice.choice(VALUES)
    call = {"name": "f", "args": {"x": value}, "id": f"c{choice.random()}"}
    return choice.choice(
        [
            HumanMessage(
                choice.choice(["hi", "", "a\x00b"]), id="m1", additional_kwargs={"x": value}
            ),
            HumanMessage(
                [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "https://x/y"}},
                ]
            ),
            AIMessage("", tool_calls=[call], response_metadata={"model_name": "m", "x": value}),
            AIMessage(
                "yes", usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
            ),
            ToolMessage("12", tool_call_id="c", artifact=value, status="error"),
            SystemMessage("be brief"),
            ChatMessage("no", role="critic"),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
async def test_random_operations_equal_the_sdks_history(histories, seed):
    choice = random.Random(seed)
    theirs = InMemoryChatMessageHistory()
    ours = FoldlogChatMessageHistory("s/1", histories)
    for _ in range(60):
        what = choice.random()
        if what < 0.7:
            messages = [any_message(choice) for _ in range(choice.choice([0, 1, 1, 3]))]
            theirs.add_messages(messages)
            if choice.random() < 0.5:
                await ours.aadd_messages(messages)
            else:
                ours.add_messages(messages)
        elif what < 0.72:
            theirs.clear()
            if choice.random() < 0.5:
                await ours.aclear()
            else:
                ours.clear()
        else:
            again = choice.choice([ours, FoldlogChatMessageHistory("s/1", histories)])
            assert again.messages == await again.aget_messages() == theirs.messages
    assert histories["langchain/s%2F1"].version() == ours.history.version()


async def test_a_condensation_is_a_message_with_its_summary(ours):
    ours.add_messages([HumanMessage("one"), AIMessage("two"), HumanMessage("three")])
    ours.history.append(
        CondensationAction(forgotten_event_ids=[0, 1], summary="1, 2", summary_offset=0)
    )
    assert [(message.type, message.content) for message in ours.messages] == [
        ("human", "1, 2"),
        ("human", "three"),
    ]
    assert [event.content for event in ours.history.events(0, 3)] == ["one", "two", "three"]


async def test_a_history_condenses_as_configured():
    with foldlog.open(
        "memory:", condenser={"type": "amortized_forgetting", "max_size": 6}
    ) as histories:
        ours = FoldlogChatMessageHistory("s", histories, condense=True)
        for number in range(9):
            ours.add_messages([HumanMessage(f"{number}"), AIMessage("yes")])
        assert len(ours.messages) <= 6
        assert len(FoldlogChatMessageHistory("s", histories).messages) <= 6


@pytest.mark.parametrize("how", ["retract", "erase"])
async def test_clearing_retracts_or_erases(histories, how):
    ours = FoldlogChatMessageHistory("s", histories, clear=how)
    ours.add_messages([HumanMessage("secret")])
    ours.clear()
    assert ours.messages == []
    ours.add_messages([HumanMessage("new")])
    assert [message.content for message in ours.messages] == ["new"]
    assert ("secret" in str(list(ours.history.events()))) == (how == "retract")


async def test_a_repeated_copy_adds_only_new_messages(ours):
    theirs = InMemoryChatMessageHistory()
    theirs.add_messages([HumanMessage("one"), AIMessage("two")])
    assert (ours.copy_from(theirs), ours.copy_from(theirs)) == (2, 0)
    theirs.add_messages([HumanMessage("three")])
    assert ours.copy_from(theirs) == 1
    assert ours.messages == theirs.messages
    ours.add_messages([HumanMessage("four")])
    with pytest.raises(ValueError, match="nothing was added"):
        ours.copy_from(theirs)


@pytest.mark.parametrize("copied_first, added", [(2, 1), (3, 0)])
async def test_two_copies_at_once_add_each_message_once(
    ours, histories, monkeypatch, copied_first, added
):
    messages = [HumanMessage(str(number)) for number in range(3)]
    theirs = InMemoryChatMessageHistory(messages=messages)
    earlier = InMemoryChatMessageHistory(messages=messages[:copied_first])
    other_copy = partial(FoldlogChatMessageHistory("s", histories).copy_from, earlier)
    before_next_call(monkeypatch, History, "append_records", other_copy)
    assert ours.copy_from(theirs) == added
    assert ours.messages == messages


async def test_a_copy_of_no_messages_begins_no_conversation(histories):
    ours = FoldlogChatMessageHistory("s", histories, attributes={"user": "u7"})
    assert ours.copy_from(InMemoryChatMessageHistory()) == 0
    assert ours.history.id not in histories


async def test_an_erased_session_is_copied_again(ours, histories):
    theirs = InMemoryChatMessageHistory(messages=[HumanMessage("one")])
    assert ours.copy_from(theirs) == 1
    histories.erase(ours.history.id, reason="asked to")
    assert ours.copy_from(theirs) == 1
    ours.add_messages([HumanMessage("two")])
    assert [message.content for message in ours.messages] == ["one", "two"]


class TestKeeps(Survives):
    runtime = "langchain"

    def opened(self, url, **options):
        return FoldlogChatMessageHistory("s", url, **options)

    async def add(self, store, *names):
        await store.aadd_messages([HumanMessage(name) for name in names])

    async def names(self, store):
        return [message.content for message in await store.aget_messages()]


async def test_a_reply_names_its_request(histories):
    requests = FoldlogRequests()
    tool = {"type": "function", "function": {"name": "measure", "parameters": {}}}
    model = GenericFakeChatModel(messages=iter([AIMessage("9 m"), AIMessage("1 m")]))
    prompt = RunnableLambda(lambda messages: [SystemMessage("You measure."), *messages])
    chain = RunnableWithMessageHistory(
        prompt | model.bind(tools=[tool]),
        lambda name: FoldlogChatMessageHistory(name, histories, requests=requests),
    )
    config = {"configurable": {"session_id": "s"}, "callbacks": [requests]}
    for turn in ("measure", "again"):
        await chain.ainvoke([HumanMessage(turn)], config)
    sent = check_requests(histories["langchain/s"])
    assert [len(each.request.messages) for each in sent] == [1, 3]


def test_a_prompt_without_messages_is_noted(caplog):
    requests = FoldlogRequests()
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
    reply = model.invoke([], {"callbacks": [requests]})
    assert caplog.messages == [], "LangChain only logs the error of a callback"
    assert requests.of_replies([reply.id]).parameters == {}


def test_the_example_of_the_page_is_not_deprecated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = (contract.ROOT / "docs/ADAPTERS.md").read_text().split("\n## LangChain\n")[1]
    example = section.split("```py\n")[1].split("```")[0]
    model = GenericFakeChatModel(messages=iter([AIMessage("hello, you")]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(example, "ADAPTERS.md", "exec"), {"model": model})
    with foldlog.open("history.db") as histories:
        shown = [event.content for event in histories["langchain/user-7"].view()]
    assert shown == ["hello", "hello, you"]
