"""A server on this machine that speaks the protocols of models: Anthropic's messages, OpenAI's chat
completions and responses, and Gemini's contents.

It answers by a script, in a thread of the test, so that it outlives the agents.
"""

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from uuid import uuid4

from foldlog._testing.answers import stream_of


class Refused(Exception):
    """What a model's server answers to messages that are malformed, or too many."""


class Reply(NamedTuple):
    """What a model says: a text, calls, each with a tool, an id and arguments, or both."""

    text: str = ""
    calls: Sequence[tuple[str, str, dict[str, Any]]] = ()
    prompt_tokens: int = 10
    completion_tokens: int = 5


class ModelServer:
    """``problems`` are what was wrong with the requests that were refused."""

    def __init__(self):
        self.problems = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                self._send({"models": [], "data": []})

            def do_HEAD(self):
                self._send({})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                request = json.loads(body or b"{}")
                dialect = _dialect_of(self.path)
                if dialect is None:
                    self._send({"input_tokens": 10, "totalTokens": 10})
                    return
                try:
                    answer = dialect(request, server.reply_to(request))
                except Refused as refused:
                    server.problems.append(str(refused))
                    error = {"type": "invalid_request_error", "message": str(refused)}
                    self._send({"type": "error", "error": error}, 400)
                    return
                if "stream" in self.path:
                    answer = [_data(answer)]
                self._send(answer)

            def _send(self, answer, status=200):
                kind = "application/json"
                text = json.dumps(answer)
                if isinstance(answer, list):
                    kind = "text/event-stream"
                    text = "".join(f"{event}\n\n" for event in answer)
                body = b"" if self.command == "HEAD" else text.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def reply_to(self, request):
        """Return the reply of the model to a request. Raises ``Refused``."""
        raise NotImplementedError

    def close(self):
        self._server.shutdown()
        self._server.server_close()


# -- the dialects
# --------------------------------------------------------------------------------------------------


def _data(value):
    return f"data: {json.dumps(value)}"


def _anthropic(request, reply):
    blocks = [{"type": "text", "text": reply.text}] if reply.text else []
    for tool, call_id, arguments in reply.calls:
        blocks.append({"type": "tool_use", "id": call_id, "name": tool, "input": arguments})
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    usage = {
        "input_tokens": reply.prompt_tokens,
        "output_tokens": reply.completion_tokens,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
    }
    message = {
        # Claude Code takes replies with one id for one reply, and then has too few to compact
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "claude"),
        "usage": usage,
    }
    answer = {**message, "content": blocks, **stop}
    return [*stream_of(answer, "anthropic")] if request.get("stream") else answer


def _chat(request, reply):
    calls = []
    for index, (tool, call_id, arguments) in enumerate(reply.calls):
        function = {"name": tool, "arguments": json.dumps(arguments)}
        calls.append({"index": index, "id": call_id, "type": "function", "function": function})
    message = {"role": "assistant", "content": reply.text}
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 4},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    about = {"id": f"r-{uuid4().hex}", "created": 1, "model": request["model"]}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
    about["object"] = "chat.completion.chunk"
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    return [
        _data({**about, "choices": [first]}),
        _data({**about, "choices": [last]}),
        _data({**about, "choices": [], "usage": usage}),
        "data: [DONE]",
    ]


def namespaces(request):
    """Return the namespace of each tool that has one, by the tool's name."""
    spaces = [tool for tool in request["tools"] if tool.get("type") == "namespace"]
    return {tool["name"]: space["name"] for space in spaces for tool in space["tools"]}


def _responses(request, reply):
    items = []
    if reply.text:
        content = [{"type": "output_text", "text": reply.text}]
        message = {"type": "message", "role": "assistant", "content": content}
        items.append({**message, "id": f"m{len(request['input'])}"})
    for tool, call_id, arguments in reply.calls:
        call = {"type": "function_call", "name": tool, "call_id": call_id}
        call["arguments"] = json.dumps(arguments)
        if tool in namespaces(request):
            call["namespace"] = namespaces(request)[tool]
        items.append(call)
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": None,
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": None,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    about = {"id": f"r{len(request['input'])}"}
    events = [
        {"type": "response.created", "response": about},
        *({"type": "response.output_item.done", "item": item} for item in items),
        {"type": "response.completed", "response": {**about, "usage": usage}},
    ]
    return [f"event: {event['type']}\n{_data(event)}" for event in events]


def _gemini(request, reply):
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


_DIALECTS = {
    "chat/completions": _chat,
    "messages": _anthropic,
    "responses": _responses,
    "enerateContent": _gemini,
}


def _dialect_of(path):
    """Return the dialect that is spoken at a path; None if the path is of no prompt."""
    if "count" in path.rpartition("/")[2]:
        return None
    return next((dialect for name, dialect in _DIALECTS.items() if name in path), None)
