"""Replies that are stored while the model writes them: ``stream=True``."""

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel

import foldlog
from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps
from foldlog.eventstore import StreamConflict
from foldlog.types import CallDelta, EndDelta, ReasoningDelta
from tests.adapters.killed import killed_in_reply
from tests.adapters.pydantic_ai.scripted import check, loaded, messages_of

pytestmark = pytest.mark.anyio
WORDS = ["Kites ", "are ", "toys ", "that fly."]
WORKER = """
import asyncio, sys
from pydantic_ai import Agent, Conversation
from pydantic_ai.models.function import FunctionModel
from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps

async def stream(messages, info):
    for number in range(10_000):
        yield f"{number} "
        await asyncio.sleep(0.001)

async def main():
    async with FoldlogConversationStore(sys.argv[1], stream=True) as store:
        agent = Agent(FunctionModel(stream_function=stream))
        steps = FoldlogSteps(store)
        conversation = Conversation(conversation_id="c")
        async with agent.run_stream("go", conversation=conversation, capabilities=[steps]) as run:
            async for piece in run.stream_text(delta=True, debounce_by=None):
                print(piece, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def store(histories):
    return FoldlogConversationStore(histories, stream=True)


def history_of(store):
    return store.histories.sync[store.conversation("c")]


def agent_of(store, stream, prompts=None, **options):
    async def checked(messages, info):
        check(messages)
        if prompts is not None:
            prompts.append(messages)
        async for piece in stream(messages):
            yield piece

    steps = FoldlogSteps(store)
    return Agent(FunctionModel(stream_function=checked), capabilities=[steps], **options)


async def say_words(messages):
    for word in WORDS:
        yield word


async def test_a_run_that_conflicts_before_its_first_save_says_so(store):
    agent = agent_of(store, say_words)
    await agent.run("go", conversation=await loaded(store))
    with pytest.raises(ConversationConflict) as conflict:
        await agent.run("again", conversation_id="c")
    assert conflict.value.__context__ is None


@pytest.mark.parametrize("way", ["events", "text", "handler", "run"])
async def test_each_piece_is_stored_before_the_program_gets_it(store, way):
    stored = []
    agent = agent_of(store, say_words)
    conversation = await loaded(store)

    def note(text):
        unfinished = history_of(store).unfinished_reply()
        stored.append((text, unfinished and unfinished.text))

    async def handle(context, events):
        async for event in events:
            if isinstance(event, PartStartEvent):
                note(event.part.content)
            elif isinstance(event, PartDeltaEvent):
                note(event.delta.content_delta)

    if way == "events":
        async with agent.run_stream_events("go", conversation=conversation) as events:
            await handle(None, events)
    elif way == "text":
        async with agent.run_stream("go", conversation=conversation) as run:
            async for text in run.stream_text(delta=True, debounce_by=None):
                note(text)
    else:
        options = {"event_stream_handler": handle} if way == "handler" else {}
        await agent.run("go", conversation=conversation, **options)
    assert [text for text, _ in stored] == ([] if way == "run" else WORDS)
    for number, (_, text) in enumerate(stored, 1):
        # The SDK may be ahead of the program.
        assert text is None or text.startswith("".join(WORDS[:number]))
    history = history_of(store)
    assert history.unfinished_reply() is None
    (reply,) = [event for event in history.events() if getattr(event, "source", "") == "agent"]
    assert reply.content == "".join(WORDS)
    (stream,) = history._store.query(history.id, lambda reading: reading.streams())
    assert stream.event == reply.id


async def test_a_reader_gets_reasoning_and_calls(store):
    async def call_once(messages):
        if len(messages) == 1:
            yield {0: DeltaThinkingPart(content="A metre.")}
            yield {1: DeltaToolCall("measure", '{"unit": ', tool_call_id="c0")}
            yield {1: DeltaToolCall(json_args='"m"}')}
        else:
            yield "done"

    read = []

    def measure(unit: str) -> str:
        numbers = history_of(store)._store.query(history_of(store).id, lambda r: r.streams())
        start = foldlog._history.streamed_reply.write_offset(numbers[0].number, 0)
        read.extend(delta for _, delta in history_of(store).follow_reply(after=start))
        return "1"

    agent = agent_of(store, call_once, tools=[measure])
    await agent.run("go", conversation=await loaded(store))
    assert read == [
        ReasoningDelta("A metre."),
        CallDelta(1, "c0", "measure", '{"unit": '),
        CallDelta(1, arguments='"m"}'),
        CallDelta(1, ends=True),
        EndDelta(2),
    ]


async def test_the_next_run_takes_up_what_a_killed_worker_left(file_url):
    printed = killed_in_reply(WORKER, file_url)
    prompts = []
    async with FoldlogConversationStore(file_url, stream=True) as store:
        assert history_of(store).unfinished_reply().text.startswith(printed)
        agent = agent_of(store, say_words, prompts)
        await agent.run("go on", conversation=await loaded(store))
        texts = [[part.content for part in message.parts] for message in prompts[0]]
        assert [texts[0], texts[2]] == [["go"], ["go on"]]
        assert texts[1][0].startswith(printed)
        assert history_of(store).unfinished_reply() is None
        messages = await messages_of(store)
        assert [message.kind for message in messages] == ["request", "response"] * 2
        assert messages[1].state == "interrupted"


async def test_a_store_of_a_reader_leaves_the_reply(file_url):
    killed_in_reply(WORKER, file_url)
    async with FoldlogConversationStore(file_url) as reader:
        assert len((await reader.load("c")).messages) == 1
        assert history_of(reader).unfinished_reply() is not None


async def test_an_error_of_the_model_keeps_what_was_read(store):
    async def break_off(messages):
        yield "Kites "
        yield "are "
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await agent_of(store, break_off).run("go", conversation=await loaded(store))
    history = history_of(store)
    assert history.unfinished_reply() is None
    assert [event.content for event in history.view()] == ["go", "Kites are "]


async def test_a_worker_whose_reply_was_taken_up_ends_with_a_conflict(store):
    async def be_replaced(messages):
        yield "Kites "
        yield "are "
        history_of(store).unfinished_reply().append_cut()
        yield "toys "

    with pytest.raises(StreamConflict):
        await agent_of(store, be_replaced).run("go", conversation=await loaded(store))
    history = history_of(store)
    assert [event.content for event in history.view()][:2] == ["go", "Kites are "]


async def test_without_the_option_nothing_is_streamed(histories):
    store = FoldlogConversationStore(histories)
    async with agent_of(store, say_words).run_stream("go", conversation=await loaded(store)) as run:
        await run.get_output()
    assert not history_of(store)._store.query(history_of(store).id, lambda r: r.streams())
