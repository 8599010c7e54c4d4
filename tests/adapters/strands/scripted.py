"""A model that plays a script, and refuses messages that a model's server would."""

import copy
import json

from strands.models.model import Model
from strands.types.exceptions import ContextWindowOverflowException

from tests.adapters import contract


def said(text):
    return {"text": text}


def call(tool, arguments=None, call_id="c"):
    return {"toolUse": {"toolUseId": call_id, "name": tool, "input": arguments or {}}}


def replies(reply):
    """Return the contents of a reply of ``contract.Script``."""
    parts = [reply] if isinstance(reply, str) else reply
    return [
        said(part) if isinstance(part, str) else call(part[0], part[2], part[1]) for part in parts
    ]


def parts(messages):
    """Return the messages as a server gets them."""
    return [(message["role"], content) for message in messages for content in message["content"]]


def check(messages):
    """Raise ``Refused`` for malformed messages."""

    def ids(message, kind):
        return [content[kind]["toolUseId"] for content in message["content"] if kind in content]

    contract.check_prompt(
        [(ids(message, "toolUse"), ids(message, "toolResult")) for message in messages]
    )


class ScriptedModel(Model):
    """``script(messages, number)`` returns the contents of a reply; ``prompts`` are the messages
    that came. A guardrail replaces what the user says of a secret.
    """

    summary = staticmethod(lambda messages, number: f"summary {number}")

    def __init__(self, script, messages_max=None):
        self.script = script
        self.messages_max = messages_max
        self.prompts = []

    def update_config(self, **config):
        raise NotImplementedError

    def get_config(self):
        return {"model_id": "scripted"}

    def structured_output(self, *args, **kwargs):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **kwargs):
        if "summar" in (system_prompt or "").lower():
            contents = [said(self.summary(messages, len(self.prompts) - 1))]
        else:
            contents = self._replied(messages)
        if "secret" in str(messages[-1]):
            yield {"redactContent": {"redactUserContentMessage": "taken out"}}
        yield {"messageStart": {"role": "assistant"}}
        for content in contents:
            start = {}
            delta = content
            if "toolUse" in content:
                named = dict(content["toolUse"])
                delta = {"toolUse": {"input": json.dumps(named.pop("input"))}}
                start = {"toolUse": named}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        yield {
            "messageStop": {"stopReason": "tool_use" if "toolUse" in contents[-1] else "end_turn"}
        }
        usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "cacheReadInputTokens": 4}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}

    def _replied(self, messages):
        check(messages)
        if self.messages_max is not None and len(messages) > self.messages_max:
            raise ContextWindowOverflowException(
                f"{len(messages)} messages, the context takes {self.messages_max}"
            )
        self.prompts.append(copy.deepcopy(list(messages)))
        return self.script(messages, len(self.prompts) - 1)
