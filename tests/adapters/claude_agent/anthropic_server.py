"""A server of Anthropic's Messages API, for Claude Code."""

from tests.adapters import contract
from tests.adapters.model_server import ModelServer, Refused


def blocks_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def check(messages):
    """Raise ``Refused`` for a malformed prompt."""
    if not messages or messages[0]["role"] != "user":
        raise Refused("the first message is not a user's")

    def ids(message, kind, name):
        return [block[name] for block in blocks_of(message) if block["type"] == kind]

    pairs = [
        (ids(each, "tool_use", "id"), ids(each, "tool_result", "tool_use_id")) for each in messages
    ]
    contract.check_prompt(pairs)


class AnthropicServer(ModelServer):
    """``script(request)`` returns the reply to a request."""

    def __init__(self, script):
        super().__init__()
        self.script = script

    def reply_to(self, request):
        check(request["messages"])
        return self.script(request)
