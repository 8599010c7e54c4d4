"""A chat client that plays a script, and refuses messages that a model's server would."""

import json

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    UsageDetails,
)

from tests.adapters import contract


def said(text):
    return Content.from_text(text)


def call(tool, arguments="{}", call_id="c"):
    return Content.from_function_call(call_id=call_id, name=tool, arguments=arguments)


def replies(reply):
    """Return the contents of a reply of ``contract.Script``."""
    parts = [reply] if isinstance(reply, str) else reply
    return [
        said(part) if isinstance(part, str) else call(part[0], json.dumps(part[2]), part[1])
        for part in parts
    ]


def parts(messages):
    """Return the messages as a server gets them."""
    fields = ("type", "text", "call_id", "name", "arguments", "result", "uri")
    return [
        (message.role, [{name: each for name, each in content.to_dict().items() if name in fields}])
        for message in messages
        for content in message.contents
    ]


def check(messages, messages_max=None):
    """Raise ``Refused`` for malformed messages."""

    def ids(message, kind):
        return [content.call_id for content in message.contents if content.type == kind]

    pairs = [
        (ids(message, "function_call"), ids(message, "function_result")) for message in messages
    ]
    contract.check_prompt(pairs, messages_max)


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """``script(messages, number)`` returns the contents of a reply; ``prompts`` are the messages
    that came.
    """

    def __init__(self, script, messages_max=None, **settings):
        super().__init__(**settings)
        self.script = script
        self.messages_max = messages_max
        self.prompts = []

    def _inner_get_response(self, *, messages, stream=False, options=None, **kwargs):
        if stream:
            return ResponseStream(self._streamed(messages), finalizer=ChatResponse.from_updates)
        return self._answered(messages)

    async def _answered(self, messages):
        check(messages, self.messages_max)
        self.prompts.append([Message.from_dict(message.to_dict()) for message in messages])
        number = len(self.prompts) - 1
        contents = self.script(messages, number)
        usage = UsageDetails(
            input_token_count=10, output_token_count=2, cache_read_input_token_count=4
        )
        reply = Message("assistant", contents, message_id=f"msg_{id(self)}_{number}")
        return ChatResponse(messages=[reply], usage_details=usage, model="scripted")

    async def _streamed(self, messages):
        response = await self._answered(messages)
        (reply,) = response.messages
        yield ChatResponseUpdate(
            contents=reply.contents, role=reply.role, message_id=reply.message_id
        )
