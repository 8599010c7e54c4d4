"""A server on this machine that answers for a model by a script: Anthropic's messages, OpenAI's chat
completions and responses, and Gemini's contents.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import foldlog
from foldlog._testing import server
from foldlog._testing.answers import answer_of


class Refused(Exception):
    """The refusal of a model's server for messages that are malformed, or too many."""


class Reply(NamedTuple):
    """A reply of a model: a text, calls (each with a tool, an id and arguments), or both."""

    text: str = ""
    calls: Sequence[tuple[str, str, dict[str, Any]]] = ()
    prompt_tokens: int = 10
    completion_tokens: int = 5


class ModelServer(server.ModelServer):
    """``problems`` are what was wrong with the requests that were refused."""

    def __init__(self):
        super().__init__(self._answer_to)
        self._server.RequestHandlerClass = partial(_Handler, self._answer_to)
        self.problems = []

    def reply_to(self, request):
        """Return the reply of the model to a request. Raises ``Refused``."""
        raise NotImplementedError

    def _answer_to(self, request, dialect):
        try:
            reply = self.reply_to(request)
        except Refused as refused:
            self.problems.append(str(refused))
            raise
        if dialect == "gemini":
            return _gemini(reply)
        answer = _chat(reply, request["model"])
        if dialect != "openai":
            answer = answer_of(foldlog.from_openai(answer), dialect, uuid4().int)
        if dialect == "responses":
            spaces = namespaces(request)
            for item in answer["output"]:
                if item.get("name") in spaces:
                    item["namespace"] = spaces[item["name"]]
        return answer


class _Handler(server._Handler):
    def do_POST(self):
        if "enerateContent" not in self.path:
            super().do_POST()
            return
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = json.dumps(self._answer(body, "gemini"))
        kind = "application/json"
        if "stream" in self.path:
            text = f"data: {text}\n\n"
            kind = "text/event-stream"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def _chat(reply, model):
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for tool, call_id, arguments in reply.calls
    ]
    message = {"role": "assistant", "content": reply.text}
    if calls:
        message["tool_calls"] = calls
    usage = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 4},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    finish = "tool_calls" if calls else "stop"
    return {
        # Claude Code takes replies with one id for one reply, and then has too few to compact
        "id": f"r-{uuid4().hex}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


def namespaces(request):
    """Return the namespace of each tool that has one, by the tool's name."""
    spaces = [tool for tool in request["tools"] if tool.get("type") == "namespace"]
    return {tool["name"]: space["name"] for space in spaces for tool in space["tools"]}


def _gemini(reply):
    parts = [{"text": reply.text}] if reply.text else []
    for tool, _, arguments in reply.calls:
        parts.append({"functionCall": {"name": tool, "args": arguments}})
    usage = {
        "promptTokenCount": reply.prompt_tokens,
        "candidatesTokenCount": reply.completion_tokens,
        "totalTokenCount": reply.prompt_tokens + reply.completion_tokens,
    }
    content = {"role": "model", "parts": parts}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}
