"""A model that plays a script, and refuses a prompt that a server would; and events of every
form.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from tests.adapters import contract
from tests.adapters.model_server import Refused


def check(contents):
    """Raise ``Refused`` for a malformed prompt."""
    if not contents or contents[-1].role != "user":
        raise Refused("a prompt ends with a turn of the user")

    def ids(content, kind):
        parts = [getattr(part, kind) for part in content.parts or ()]
        return [part.id or part.name for part in parts if part]

    contract.check_prompt(
        [(ids(each, "function_call"), ids(each, "function_response")) for each in contents]
    )


def said(text):
    return types.Content(role="model", parts=[types.Part(text=text)])


def call(name, call_id, **args):
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))


def reply(answer):
    """Return the content of a reply of ``contract.Script``."""
    if isinstance(answer, str):
        return said(answer)
    return types.Content(
        role="model", parts=[call(tool, name, **arguments) for tool, name, arguments in answer]
    )


USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=10, candidates_token_count=2, cached_content_token_count=4
)


class ScriptedModel(BaseLlm):
    """``script(contents, number)`` gives the content of a response; ``prompts`` are what came."""

    model: str = "scripted"
    script: Any = None
    prompts: Any = None
    usage: Any = None
    """The usage of each response. Without it, ADK counts the tokens itself, for its compaction."""

    async def generate_content_async(
        self, llm_request, stream=False
    ) -> AsyncGenerator[LlmResponse, None]:
        check(llm_request.contents)
        self.prompts.append(list(llm_request.contents))
        content = self.script(llm_request.contents, len(self.prompts) - 1)
        yield LlmResponse(content=content, usage_metadata=self.usage)


def scripted(script, **settings):
    """Return a model that plays a ``contract.Script``."""
    return ScriptedModel(
        script=lambda contents, number: reply(script(number)), prompts=[], **settings
    )


_TEXTS = ["", "hi", "a\x00b", "\ud800", "é" * 3, '{"a": 1}', "$bytes"]
_JSON = [None, True, 0, 1.5, 2**62, "", "é", [], {}, [{"a": [None, 1]}], {"$bytes": "AA=="}]
_VALUES = [*_JSON, 2**70, "a\x00b", "\ud800", b"\x00\xff", (), (1, (b"q",)), {"": {"$tuple": 1}}]
_KEYS = ["a", "b", "$bytes", "temp:t", "app:a", "app:b", "user:a", "user:$x", "user:temp:x"]


def any_state(choice, values=_JSON):
    return {choice.choice(_KEYS): choice.choice(values) for _ in range(choice.randrange(4))}


def any_event(choice, number, *, plain=False):
    """Return an event of any form; a plain one holds what the SDK's own JSON can hold."""
    values = _JSON if plain else _VALUES
    text = choice.choice(["hi", "é"] if plain else _TEXTS)
    value = choice.choice(values)
    result = types.FunctionResponse(id="c0", name="f", response={"result": value, "n": None})
    error = types.FunctionResponse(name="f", response={"error": text})
    blob = types.Blob(data=b"\x00\xff", mime_type=choice.choice(["image/png", "audio/wav"]))
    parts = [
        types.Part(text=text),
        types.Part(text=text, thought=True, thought_signature=b"\xfe\x00"),
        call("f", choice.choice([None, "c0"]), a=value),
        types.Part(function_response=result),
        types.Part(function_response=error),
        types.Part(inline_data=blob),
        types.Part(file_data=types.FileData(file_uri="gs://x/y", mime_type="image/png")),
    ]
    content = types.Content(
        role=choice.choice(["user", "model"]),
        parts=[choice.choice(parts) for _ in range(choice.randrange(4))],
    )
    return Event(
        id=f"e{number}",
        invocation_id=choice.choice(["", "i1"]),
        author=choice.choice(["user", "agent"]),
        timestamp=choice.choice([1000.0, 1000.25, 1e9]) + number * choice.choice([0.1, 1.0]),
        content=choice.choice([None, content, content]),
        actions=EventActions(state_delta=any_state(choice, values)),
        long_running_tool_ids=choice.choice([None, {"b", "a"}]),
        custom_metadata=choice.choice([None, {"x": value}]),
    )
