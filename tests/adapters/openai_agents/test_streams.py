"""Replies that are stored while the model writes them: ``stream=True``."""

import pytest
from agents import Agent, Model, Runner, SQLiteSession, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
)

from foldlog._history.streamed_reply import write_offset
from foldlog.adapters.openai_agents import FoldlogSession
from foldlog.types import CallDelta
from tests.adapters.killed import killed_in_reply
from tests.adapters.openai_agents.scripted import call, check, said

pytestmark = pytest.mark.anyio
WORDS = ["Kites ", "are ", "toys ", "that fly."]
WORKER = """
import asyncio, sys
from agents import Agent, Runner
from foldlog.adapters.openai_agents import FoldlogSession
from tests.adapters.openai_agents.test_streams import WritingModel

async def main():
    words = (f"{number} " for number in range(10_000))
    async with FoldlogSession("7", sys.argv[1], stream=True) as session:
        agent = session.with_streams(Agent("a", model=WritingModel(lambda items: words)))
        run = Runner.run_streamed(agent, "go", session=session)
        async for event in run.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                print(event.data.delta, flush=True)
                await asyncio.sleep(0.001)

asyncio.run(main())
"""


class WritingModel(Model):
    """``write(items)`` yields the words of a reply, or is a call."""

    def __init__(self, write):
        self.write = write
        self.prompts = []

    async def get_response(self, *args, **kwargs):
        raise NotImplementedError

    async def stream_response(self, instructions, input, *args, **kwargs):
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        check(items)
        self.prompts.append([item.get("content", "") for item in items])
        written = self.write(items)
        if isinstance(written, ResponseFunctionToolCall):
            begun = written.model_copy(update={"arguments": ""})
            about = {"output_index": 0, "sequence_number": 0}
            yield ResponseOutputItemAddedEvent(
                item=begun, type="response.output_item.added", **about
            )
            yield ResponseFunctionCallArgumentsDeltaEvent(
                delta=written.arguments,
                item_id="fc_c",
                type="response.function_call_arguments.delta",
                **about,
            )
            yield ResponseOutputItemDoneEvent(
                item=written, type="response.output_item.done", **about
            )
            yield completed(written)
            return
        text = ""
        for word in written:
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=word,
                item_id="msg_0",
                logprobs=[],
                output_index=0,
                sequence_number=0,
                type="response.output_text.delta",
            )
            text += word
        yield completed(said(text))


def completed(item):
    response = Response(
        id="r",
        created_at=0,
        model="m",
        object="response",
        output=[item],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=response, sequence_number=1, type="response.completed")


def streams_of(session):
    history = session.history.sync
    return history._store.query(history.id, lambda reading: reading.streams())


async def run(session, model, prompt, **options):
    """Run an agent. Return the texts of the stream when the program got each word."""
    agent = session.with_streams(Agent("a", model=model, **options))
    streamed = Runner.run_streamed(agent, prompt, session=session)
    stored = []
    async for event in streamed.stream_events():
        if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
            unfinished = session.history.sync.unfinished_reply()
            stored.append(unfinished and unfinished.text)
    return stored


async def test_each_piece_is_stored_before_the_program_gets_it(histories):
    session = FoldlogSession("7", histories, stream=True)
    stored = await run(session, WritingModel(lambda items: WORDS), "go")
    assert len(stored) == len(WORDS)
    for number, text in enumerate(stored, 1):
        # The SDK may be ahead of the program.
        assert text is None or text.startswith("".join(WORDS[:number]))
    history = session.history.sync
    assert history.unfinished_reply() is None
    (reply,) = [event for event in history.events() if getattr(event, "source", "") == "agent"]
    (stream,) = streams_of(session)
    assert (reply.content, stream.event) == ("".join(WORDS), reply.id)


async def test_a_reader_gets_the_pieces_of_a_call(histories):
    session = FoldlogSession("7", histories, stream=True)
    read = []

    @function_tool
    def measure(unit: str) -> str:
        """Measure."""
        newest = streams_of(session)[0]
        parts = session.history.sync.follow_reply(after=write_offset(newest.number, 0))
        read.extend(delta for _, delta in [next(parts) for _ in range(3)])
        return "1"

    def call_once(items):
        return WORDS if len(items) > 1 else call("measure", '{"unit": "m"}')

    await run(session, WritingModel(call_once), "go", tools=[measure])
    assert read == [
        CallDelta(0, "c", "measure"),
        CallDelta(0, arguments='{"unit": "m"}'),
        CallDelta(0, ends=True),
    ]
    streams = streams_of(session)
    assert [stream.closed_at is not None for stream in streams] == [True, True]
    assert (await session.get_items())[-1]["content"][0]["text"] == "".join(WORDS)


async def test_the_next_run_takes_up_what_a_killed_worker_left(file_url):
    printed = killed_in_reply(WORKER, file_url)
    async with FoldlogSession("7", file_url) as reader:
        assert len(await reader.get_items()) == 1
        assert reader.history.sync.unfinished_reply().text.startswith(printed)
    async with FoldlogSession("7", file_url, stream=True) as session:
        model = WritingModel(lambda items: WORDS)
        await run(session, model, "go on")
        ((go, cut, again),) = model.prompts
        assert (go, again) == ("go", "go on")
        assert cut.startswith(printed)
        assert session.history.sync.unfinished_reply() is None
        assert [item["role"] for item in await session.get_items()] == ["user", "assistant"] * 2


async def test_the_next_run_takes_up_a_reply_whose_model_failed(histories):
    session = FoldlogSession("7", histories, stream=True)

    def break_off(items):
        yield "Kites "
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await run(session, WritingModel(break_off), "go")
    assert session.history.sync.unfinished_reply().text == "Kites "
    model = WritingModel(lambda items: WORDS)
    await run(session, model, "go on")
    assert model.prompts == [["go", "Kites ", "go on"]]


async def test_a_copy_takes_up_a_reply_whose_model_failed(histories):
    session = FoldlogSession("7", histories, stream=True)

    def break_off(items):
        yield "Kites "
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await run(session, WritingModel(break_off), "go")
    theirs = SQLiteSession("7")
    texts = ["go", "Kites ", "go on"]
    roles = ["user", "assistant", "user"]
    await theirs.add_items(
        [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    )
    assert await session.copy_from(theirs) == 1
    assert [item["content"] for item in await session.get_items()] == texts
    theirs.close()


async def test_without_the_option_nothing_is_streamed(histories):
    session = FoldlogSession("7", histories)
    await run(session, WritingModel(lambda items: WORDS), "go")
    assert not streams_of(session)
