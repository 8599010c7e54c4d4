"""A model that plays a script, and refuses a prompt that a server would; and messages of every
kind.
"""

from datetime import UTC, datetime, timedelta

from pydantic_ai import Conversation
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from tests.adapters import contract
from tests.adapters.model_server import Refused


def check(messages):
    """Raise ``Refused`` for a malformed prompt."""
    if not messages or messages[-1].kind != "request":
        raise Refused("a prompt ends with a request")

    def ids(message, kind):
        return [part.tool_call_id for part in message.parts if isinstance(part, kind)]

    contract.check_prompt(
        [(ids(each, ToolCallPart), ids(each, ToolReturnPart)) for each in messages]
    )


USAGE = RequestUsage(audio_seconds=0.0, input_tokens=10, output_tokens=2, cache_read_tokens=4)


def said(text):
    return ModelResponse(parts=[TextPart(text)], usage=USAGE)


def reply(answer):
    """Return the response of ``contract.Script``."""
    if isinstance(answer, str):
        return said(answer)
    return ModelResponse(
        parts=[ToolCallPart(tool, arguments, name) for tool, name, arguments in answer], usage=USAGE
    )


def parts_of(messages):
    """Return what a model is sent, part by part. A summary of the application is sent as a user's
    words.
    """
    parts = [part for message in messages for part in message.parts]
    return [
        (
            part.part_kind.replace("compaction", "user-prompt"),
            getattr(part, "tool_call_id", None) or part.content,
        )
        for part in parts
    ]


def scripted(script, prompts=None):
    """Return a model: ``script(messages, number)`` gives the response of a call; ``prompts`` are
    what came.
    """
    if prompts is None:
        prompts = []

    def play(messages, info):
        check(messages)
        prompts.append(list(messages))
        return script(messages, len(prompts) - 1)

    model = FunctionModel(play)
    model.prompts = prompts
    return model


_TEXTS = ["", "hi", "a\x00b", "\ud800", "é" * 3, '{"a": 1}', "[1, 2]", "$bytes"]
_VALUES = [
    *contract.VALUES,
    *(float("inf"), b"\x00\xff", (), (1, (b"q", "x")), {"": {"$": 1}}),
    *({"$bytes": "AA=="}, {"$tuple": 1, "x": 2}, {"$dict": {"$float": "nan"}}),
]
# The SDK reads a number of seconds as a float, so zero is written as one here.
_START = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def any_message(choice):
    """Return a message of any form. Its values are those that the SDK's serializer stores, or that
    our markers such as ``$bytes`` must store.
    """
    text = choice.choice(_TEXTS)
    value = choice.choice(_VALUES)
    time = _START + timedelta(microseconds=choice.randrange(10**9))
    call_id = choice.choice(["c0", "c1"])
    if choice.random() < 0.5:
        kinds = [
            SystemPromptPart(text, timestamp=time),
            UserPromptPart(text, timestamp=time),
            UserPromptPart(
                [
                    text,
                    BinaryContent(b"\x00\xff" * 3, media_type="application/pdf"),
                    ImageUrl("https://x/y.png"),
                ],
                timestamp=time,
            ),
            ToolReturnPart("f", value, call_id, metadata={"m": value}, timestamp=time),
            ToolReturnPart("f", text, call_id, timestamp=time, outcome="failed"),
        ]
        parts = [choice.choice(kinds) for _ in range(choice.randrange(4))]
        return ModelRequest(
            parts=parts,
            timestamp=choice.choice([None, time]),
            instructions=choice.choice([None, text]),
        )
    kinds = [
        TextPart(text, provider_details={"d": value}),
        ThinkingPart(text, signature="s"),
        ToolCallPart("f", {"a": value}, call_id),
        ToolCallPart("f", text, call_id),
        ToolCallPart("f", None, call_id),
    ]
    parts = [choice.choice(kinds) for _ in range(choice.randrange(4))]
    usage = RequestUsage(audio_seconds=0.0, input_tokens=choice.randrange(9), details={"x": 1})
    return ModelResponse(
        parts=parts, usage=usage, timestamp=time, model_name=choice.choice([None, "m"])
    )


async def loaded(store, name="c"):
    """Return a stored conversation, or a new one."""
    return await store.load(name) or Conversation(conversation_id=name)


async def messages_of(store):
    return (await store.load("c")).messages
