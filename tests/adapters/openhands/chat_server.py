"""A server that speaks enough of OpenAI's chat completions for an agent. It refuses malformed prompts.

It answers by a script, in a thread of the test, so that it outlives the agents.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.adapters import contract

__all__ = ["ChatServer", "call", "problem_of", "reply", "said", "told"]


USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}, "total_tokens": 12}


def said(text):
    return {"role": "assistant", "content": text}


def call(call_id, tool="work", **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def reply(given):
    """The message of a reply of ``contract.Script``."""
    if isinstance(given, str):
        return said(given)
    calls = [call(name, what=tool, **arguments) for tool, name, arguments in given]
    return {**calls[0], "tool_calls": [each["tool_calls"][0] for each in calls]}


def told(messages):
    """What messages say: roles, words, and ids of calls and of the answers to them."""

    def words(content):
        return content if isinstance(content, str) else "".join(part["text"] for part in content or ())

    return [
        (
            message["role"],
            message.get("tool_call_id") or words(message.get("content")),
            [call["id"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


def problem_of(messages, messages_max=None):
    """Return what is wrong with a prompt, or None."""
    if [message["role"] == "system" for message in messages] != [True] + [False] * (len(messages) - 1):
        return "the first message is not the system's, or another one is"
    calls = [[each["id"] for each in message.get("tool_calls") or ()] for message in messages]
    results = [[message["tool_call_id"]] if message["role"] == "tool" else [] for message in messages]
    return contract.problem_of(zip(calls, results, strict=True), messages_max)


class ChatServer:
    """``script(messages, number)`` returns the message to answer. ``prompts`` and ``problems`` are what came."""

    def __init__(self, script, messages_max=None):
        self.script = script
        self.prompts, self.problems = [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                prompt = json.loads(self.rfile.read(int(self.headers["content-length"])))
                problem = problem_of(prompt["messages"], messages_max)
                if problem is not None:
                    server.problems.append(problem)
                    self._reply({"error": {"message": problem, "type": "invalid_request_error"}}, 400)
                    return
                server.prompts.append(prompt["messages"])
                message = server.script(prompt["messages"], len(server.prompts) - 1)
                stops = "tool_calls" if message.get("tool_calls") else "stop"
                self._reply(
                    {
                        "id": f"r{len(server.prompts)}",
                        "object": "chat.completion",
                        "created": 0,
                        "model": prompt["model"],
                        "choices": [{"index": 0, "message": message, "finish_reason": stops}],
                        "usage": USAGE,
                    }
                )

            def _reply(self, answer, status=200):
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
