"""Replies that are stored while the model writes them: ``stream=True``."""

import json

import pytest
from strands import Agent, tool
from strands.models.model import Model
from strands.session.repository_session_manager import RepositorySessionManager

from foldlog._history.streamed_reply import write_offset
from foldlog.adapters.strands import FoldlogSessionRepository
from foldlog.types import CallDelta, EndDelta, ReasoningDelta
from tests.adapters.killed import killed_in_reply
from tests.adapters.strands.scripted import check

WORDS = ["Kites ", "are ", "toys ", "that fly."]
WORKER = """
import asyncio, sys
from strands import Agent
from strands.session.repository_session_manager import RepositorySessionManager
from foldlog.adapters.strands import FoldlogSessionRepository
from tests.adapters.strands.test_streams import WritingModel

def numbers(messages):
    for number in range(10_000):
        yield {"text": f"{number} "}

async def main():
    with FoldlogSessionRepository(sys.argv[1], stream=True) as repository:
        manager = RepositorySessionManager("7", repository)
        agent = Agent(
            model=WritingModel(numbers), agent_id="a", session_manager=manager, hooks=[repository],
            callback_handler=repository.callback_handler,
        )
        async for event in agent.stream_async("go"):
            if "data" in event:
                print(event["data"], flush=True)
                await asyncio.sleep(0.001)

asyncio.run(main())
"""


class WritingModel(Model):
    """``write(messages)`` yields the pieces of a reply: a block, or a piece of the last call."""

    def __init__(self, write):
        self.write = write
        self.prompts = []

    def update_config(self, **config):
        raise NotImplementedError

    def get_config(self):
        return {"model_id": "writing"}

    def structured_output(self, *args, **kwargs):
        raise NotImplementedError

    async def stream(self, messages, *args, **kwargs):
        check(messages)
        self.prompts.append(list(messages))
        yield {"messageStart": {"role": "assistant"}}
        block = None
        reason = "end_turn"
        for piece in self.write(messages):
            ((kind, value),) = piece.items()
            is_begun = kind == block and "name" not in value
            if block is not None and not is_begun:
                yield {"contentBlockStop": {}}
            start = {}
            if kind == "toolUse":
                reason = "tool_use"
                call = dict(value)
                piece = {"toolUse": {"input": call.pop("input")}}
                start = {"toolUse": call}
            if not is_begun:
                yield {"contentBlockStart": {"start": start}}
            block = kind
            yield {"contentBlockDelta": {"delta": piece}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def say_words(messages):
    return [{"text": word} for word in WORDS]


@pytest.fixture
def repository(histories):
    return FoldlogSessionRepository(histories, stream=True)


def history_of(repository):
    return repository._sync[repository.conversation("7", "a")]


def agent_of(repository, write, handler=None, **options):
    return Agent(
        model=WritingModel(write),
        agent_id="a",
        session_manager=RepositorySessionManager("7", repository),
        hooks=[repository],
        callback_handler=handler or repository.callback_handler,
        **options,
    )


def texts_of(messages):
    return [message["content"][0].get("text") for message in messages]


def test_each_piece_is_stored_before_the_program_gets_it(repository):
    stored = []

    def handle(**kwargs):
        repository.callback_handler(**kwargs)
        if "data" in kwargs:
            stored.append(history_of(repository).unfinished_reply().text)

    agent_of(repository, say_words, handle)("go")
    assert stored == ["".join(WORDS[: number + 1]) for number in range(len(WORDS))]
    history = history_of(repository)
    assert history.unfinished_reply() is None
    (reply,) = [event for event in history.events() if getattr(event, "source", "") == "agent"]
    (stream,) = history._store.query(history.id, lambda reading: reading.streams())
    assert (reply.content, stream.event) == ("".join(WORDS), reply.id)


def test_a_reader_gets_reasoning_and_calls(repository):
    read = []

    @tool
    def measure(unit: str) -> str:
        """Measure."""
        history = history_of(repository)
        stream = history._store.query(history.id, lambda reading: reading.streams())[0]
        offset = write_offset(stream.number, 0)
        read.extend(delta for _, delta in history.follow_reply(after=offset))
        return "1"

    def call_once(messages):
        if len(messages) > 1:
            return [{"text": "done"}]
        call = {"name": "measure", "toolUseId": "c0"}
        return [
            {"reasoningContent": {"text": "A metre."}},
            {"toolUse": {**call, "input": '{"unit": '}},
            {"toolUse": {"input": json.dumps("m") + "}"}},
        ]

    agent_of(repository, call_once, tools=[measure])("go")
    assert read[:3] == [
        ReasoningDelta("A metre."),
        CallDelta(1, "c0", "measure", '{"unit": '),
        CallDelta(1, arguments='"m"}'),
    ]
    assert isinstance(read[3], EndDelta)
    assert texts_of(repository_messages(repository))[-1] == "done"


def repository_messages(repository):
    return [message.message for message in repository.list_messages("7", "a")]


def test_the_next_run_takes_up_what_a_killed_worker_left(file_url):
    printed = killed_in_reply(WORKER, file_url)
    with FoldlogSessionRepository(file_url) as reader:
        assert len(reader.list_messages("7", "a")) == 1
        assert history_of(reader).unfinished_reply().text.startswith(printed)
    with FoldlogSessionRepository(file_url, stream=True) as repository:
        agent = agent_of(repository, say_words)
        agent("go on")
        (prompt,) = agent.model.prompts
        go, cut, again = texts_of(prompt)
        assert (go, again) == ("go", "go on")
        assert cut.startswith(printed)
        assert history_of(repository).unfinished_reply() is None
        assert texts_of(repository_messages(repository)) == [go, cut, again, "".join(WORDS)]
        assert [message.message_id for message in repository.list_messages("7", "a")] == [*range(4)]


def test_a_reply_whose_model_failed_has_no_message(repository):
    def break_off(messages):
        yield {"text": "Kites "}
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        agent_of(repository, break_off)("go")
    assert history_of(repository).unfinished_reply() is None
    assert texts_of(repository_messages(repository)) == ["go"]


def test_without_the_option_nothing_is_streamed(histories):
    repository = FoldlogSessionRepository(histories)
    agent_of(repository, say_words)("go")
    history = history_of(repository)
    assert not history._store.query(history.id, lambda reading: reading.streams())
