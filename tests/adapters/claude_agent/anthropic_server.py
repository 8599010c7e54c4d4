"""A server that speaks enough of Anthropic's Messages API for Claude Code. It refuses malformed prompts.

It answers by a script, in a thread of the test, so that it outlives the agents.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from tests.adapters import contract

__all__ = ["AnthropicServer", "problem_of"]


def blocks_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def problem_of(prompt):
    """Return what is wrong with a prompt, or None."""
    messages = prompt["messages"]
    if not messages or messages[0]["role"] != "user":
        return "the first message is not a user's"

    def ids(message, kind, name):
        return [block[name] for block in blocks_of(message) if block["type"] == kind]

    told = [(ids(each, "tool_use", "id"), ids(each, "tool_result", "tool_use_id")) for each in messages]
    return contract.problem_of(told)


class AnthropicServer:
    """``script(prompt, results)`` returns the blocks of a response. ``prompts`` and ``problems`` are what came."""

    def __init__(self, script):
        self.script = script
        self.prompts, self.problems = [], []
        self._numbers = count()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                self._reply(b"{}", "application/json")

            def do_HEAD(self):
                self._reply(b"", "application/json")

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if "/v1/messages" not in self.path or "count_tokens" in self.path:
                    self._reply(b'{"input_tokens": 10}', "application/json")
                    return
                prompt = json.loads(body)
                server.prompts.append(prompt)
                problem = problem_of(prompt)
                if problem is not None:
                    server.problems.append(problem)
                    error = {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}
                    self._reply(json.dumps(error).encode(), "application/json", 400)
                    return
                blocks = server.script(prompt)
                number = next(server._numbers)
                if prompt.get("stream"):
                    self._reply(b"".join(_events(number, prompt, blocks)), "text/event-stream")
                else:
                    self._reply(json.dumps(_message(number, prompt, blocks)).encode(), "application/json")

            def _reply(self, body, kind, status=200):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("request-id", "req_stub")
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def _message(number, prompt, blocks):
    stops = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    usage = {"input_tokens": 10, "output_tokens": 5}
    about = {"id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": prompt["model"]}
    return {**about, "content": blocks, "stop_reason": stops, "stop_sequence": None, "usage": usage}


def _events(number, prompt, blocks):
    message = _message(number, prompt, blocks)
    start = {**message, "content": [], "stop_reason": None}
    yield _event("message_start", message=start)
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": block["text"]})
        else:
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage=message["usage"])
    yield _event("message_stop")


def _event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
