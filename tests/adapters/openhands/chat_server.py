"""A server of OpenAI's chat completions."""

from tests.adapters import contract
from tests.adapters.model_server import ModelServer, Refused, Reply


def reply(answer):
    """Return the reply of ``contract.Script``: each call is one of the tool ``work``."""
    if isinstance(answer, str):
        return Reply(answer, completion_tokens=2)
    return Reply(calls=[work(name, tool) for tool, name, _ in answer], completion_tokens=2)


def work(call_id, what):
    """Return a call of the tool ``work``."""
    return "work", call_id, {"what": what}


def parts_of(messages):
    """Return what messages say: roles, words, and ids of calls and of the answers to them."""

    def words(content):
        return (
            content if isinstance(content, str) else "".join(part["text"] for part in content or ())
        )

    return [
        (
            message["role"],
            message.get("tool_call_id") or words(message.get("content")),
            [call["id"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


def check(messages, messages_max=None, *, of_an_agent=True):
    """Raise ``Refused`` for a malformed prompt. Only an agent's must begin with the system's."""
    systems = [place for place, message in enumerate(messages) if message["role"] == "system"]
    if systems != [0] and (of_an_agent or systems):
        raise Refused("the first message is not the system's, or another one is")
    calls = [[each["id"] for each in message.get("tool_calls") or ()] for message in messages]
    results = [
        [message["tool_call_id"]] if message["role"] == "tool" else [] for message in messages
    ]
    contract.check_prompt(zip(calls, results, strict=True), messages_max)


class ChatServer(ModelServer):
    """``script(messages, number)`` returns the reply to messages; ``prompts`` are what came."""

    def __init__(self, script, messages_max=None):
        super().__init__()
        self.script = script
        self.messages_max = messages_max
        self.prompts = []
        self.url += "/v1"

    def reply_to(self, request):
        messages = request["messages"]
        # The SDK 1.37 asks for a summary without a system message; such a request has no tools.
        check(messages, self.messages_max, of_an_agent="tools" in request)
        self.prompts.append(messages)
        return self.script(messages, len(self.prompts) - 1)
