"""A model that plays a script, and refuses a prompt that OpenAI's server would."""

import json

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

from tests.adapters.model_server import Refused

_CACHED = Usage().input_tokens_details.model_copy(update={"cached_tokens": 4})
USAGE = Usage(requests=1, input_tokens=10, output_tokens=2, input_tokens_details=_CACHED)


def said(text, number=0):
    part = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(
        id=f"msg_{number}", content=[part], role="assistant", status="completed", type="message"
    )


def call(tool, arguments="{}", call_id="c"):
    about = {"id": f"fc_{call_id}", "status": "completed", "type": "function_call"}
    return ResponseFunctionToolCall(arguments=arguments, call_id=call_id, name=tool, **about)


def replies(reply):
    """Return the output of a reply of ``contract.Script``."""
    return (
        [said(reply)]
        if isinstance(reply, str)
        else [call(tool, json.dumps(arguments), name) for tool, name, arguments in reply]
    )


def reasoning(number):
    return ResponseReasoningItem(
        id=f"rs_{number}", summary=[Summary(text="hm", type="summary_text")], type="reasoning"
    )


def check(items, items_max=None):
    """Raise ``Refused`` for a prompt that OpenAI's server refuses."""
    if items_max is not None and len(items) > items_max:
        raise Refused(f"{len(items)} items, the context takes {items_max}")
    waiting: dict[str, int] = {}
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            following = items[place + 1] if place + 1 < len(items) else {}
            if (
                following.get("type") not in ("reasoning", "function_call")
                and following.get("role") != "assistant"
            ):
                raise Refused(f"reasoning {place} was provided without the item that must follow")
        elif kind == "function_call":
            follows = items[place - 1] if place else {}
            if item.get("id", "").endswith("-r") and follows.get("type") not in (
                "reasoning",
                "function_call",
            ):
                raise Refused(f"item {place} was provided without its required 'reasoning' item")
            waiting[item["call_id"]] = place
        elif kind == "function_call_output" and waiting.pop(item["call_id"], None) is None:
            raise Refused(f"no tool call found for function call output {item['call_id']}")
        elif kind == "message" and waiting:
            break
    if waiting:
        raise Refused(f"no tool output found for function call {next(iter(waiting))}")


class ScriptedModel(Model):
    """``script(items, number)`` returns the output of a call; ``prompts`` are what came."""

    def __init__(self, script, items_max=None):
        self.script = script
        self.items_max = items_max
        self.prompts = []

    async def get_response(self, system_instructions, input, *args, **kwargs):
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        check(items, self.items_max)
        self.prompts.append(items)
        return ModelResponse(
            output=self.script(items, len(self.prompts) - 1), usage=USAGE, response_id=None
        )

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError
