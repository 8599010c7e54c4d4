"""A stand-in for the servers of models: it answers as it is told, in the four dialects that the
programs speak.

An answer is a text, or a call ``(tool, arguments)`` of a tool of foldlog, whose name each program
writes in its own way. A request that asks for a summary gets one that says nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

__all__ = ["StandIn", "running"]

SUMMARY = "The user greeted, and work goes on."
_MARKS = (
    "<analysis>",
    "CONTEXT CHECKPOINT",
    "state_snapshot",
    "anchored summary",
    "detailed prompt for continuing",
)
"""What the programs write when they ask for a summary."""
_TOKENS = 100
_WAIT = "WaitForMcpServers"
"""The tool of Claude Code that waits for servers of tools."""


class StandIn:
    """What the server is to answer, and what it was asked. ``tokens_once`` is the size that it says
    the next prompt of the agent has.
    """

    def __init__(self, url: str) -> None:
        self.url, self.tokens_once = url, _TOKENS
        self.answers: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.summaries: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def take(self, request: dict[str, Any]) -> tuple[Any, int]:
        """Return the answer to a request, and the tokens of its prompt."""
        with self._lock:
            before = len(self.requests)
            answer = self._answer(request)
            tokens = _TOKENS if len(self.requests) == before else self.tokens_once
            if len(self.requests) > before:
                self.tokens_once = _TOKENS
            return answer, tokens

    def _answer(self, request: dict[str, Any]) -> Any:
        if _asks_for_summary(request):
            self.summaries.append(request)
            # Gemini's, and that of the others
            name = "state_snapshot" if "contents" in request else "summary"
            return f"<{name}>{SUMMARY}</{name}>"
        if not request.get("tools"):  # a title, a check of quota
            return "hello"
        self.requests.append(request)
        if (
            self.answers
            and isinstance(self.answers[0], tuple)
            and not _tools(request, self.answers[0][0])
        ):
            return (_WAIT, {})  # the program has not started the server of foldlog yet
        return self.answers.pop(0) if self.answers else "done"


def _asks_for_summary(request: dict[str, Any]) -> bool:
    last = json.dumps(
        [_last_asked(request.get(key) or []) for key in ("messages", "input", "contents")]
    )
    system = json.dumps([request.get(key) for key in ("systemInstruction", "system")])
    if request.get("messages") and request["messages"][0].get("role") == "system":
        system += json.dumps(request["messages"][0])
    in_system = not request.get("tools") and any(mark in system for mark in _MARKS)
    return in_system or any(mark in last for mark in _MARKS)


def _last_asked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last message that is no instruction: Claude Code may put those of servers of tools
    behind it.
    """
    return [message for message in messages if message.get("role") != "system"][-1:]


def _tool(request: dict[str, Any], name: str) -> tuple[str, str | None]:
    """Return how a request names a tool of foldlog, and its namespace."""
    if name == _WAIT:
        return name, None
    fitting = _tools(request, name)
    if not fitting:
        raise LookupError(f"no tool of foldlog is called {name}: {request['tools']}"[:5_000])
    return fitting[0]


def _tools(request: dict[str, Any], name: str) -> list[tuple[str, str | None]]:
    names: list[tuple[str, str | None]] = []
    for tool in request["tools"]:
        inner = tool.get("functionDeclarations", [tool])
        names += [
            (one.get("name") or one.get("function", {}).get("name", ""), None) for one in inner
        ]
        if tool.get("type") == "namespace":
            names += [(inner["name"], tool["name"]) for inner in tool["tools"]]
    return [
        (each, space)
        for each, space in names
        if each.endswith(name) and "foldlog" in f"{space}{each}"
    ]


def _anthropic(request: dict[str, Any], answer: Any, tokens: int) -> Any:
    if isinstance(answer, tuple):
        name, _ = _tool(request, answer[0])
        block = {
            "type": "tool_use",
            "id": f"toolu_{len(request['messages']):06}",
            "name": name,
            "input": {},
        }
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer}
    stop = "tool_use" if isinstance(answer, tuple) else "end_turn"
    usage = {
        "input_tokens": tokens,
        "output_tokens": 5,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
    }
    # Claude Code takes replies with one id for one reply, and then has too few messages to compact
    message = {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": request.get("model", "claude"),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    if not request.get("stream"):
        content = (
            {**block, "input": answer[1]}
            if isinstance(answer, tuple)
            else {"type": "text", "text": answer}
        )
        return {**message, "content": [content], "stop_reason": stop}
    return [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}},
        ),
        ("message_stop", {}),
    ]


def _responses(request: dict[str, Any], answer: Any, tokens: int) -> Any:
    number = len(request["input"])
    if isinstance(answer, tuple):
        name, space = _tool(request, answer[0])
        item = {
            "type": "function_call",
            "name": name,
            "arguments": json.dumps(answer[1]),
            "call_id": f"call_{number}",
        }
        item |= {} if space is None else {"namespace": space}
    else:
        content = [{"type": "output_text", "text": answer}]
        item = {"type": "message", "role": "assistant", "id": f"m{number}", "content": content}
    used = {
        "input_tokens": tokens,
        "input_tokens_details": None,
        "output_tokens": 5,
        "output_tokens_details": None,
    }
    return [
        ("response.created", {"response": {"id": f"r{number}"}}),
        ("response.output_item.done", {"item": item}),
        (
            "response.completed",
            {"response": {"id": f"r{number}", "usage": {**used, "total_tokens": tokens + 5}}},
        ),
    ]


def _gemini(request: dict[str, Any], answer: Any, tokens: int) -> Any:
    part: dict[str, Any] = {"text": answer}
    if isinstance(answer, tuple):
        part = {"functionCall": {"name": _tool(request, answer[0])[0], "args": answer[1]}}
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    content = {"role": "model", "parts": [part]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}


def _chat(request: dict[str, Any], answer: Any, tokens: int) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if isinstance(answer, tuple):
        function = {"name": _tool(request, answer[0])[0], "arguments": json.dumps(answer[1])}
        number = len(request["messages"])
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    finish = "tool_calls" if isinstance(answer, tuple) else "stop"
    usage = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**chunk, "object": "chat.completion", "choices": [choice], "usage": usage}
    return [
        ("", {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        ("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        ("", {**chunk, "choices": [], "usage": usage}),
    ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def do_GET(self) -> None:
        self._send(b'{"models": [], "data": []}', "application/json")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if "count" in self.path.rpartition("/")[2]:
            self._send(
                json.dumps({"input_tokens": _TOKENS, "totalTokens": _TOKENS}).encode(),
                "application/json",
            )
            return
        dialects = {
            "messages": _anthropic,
            "responses": _responses,
            "GenerateContent": _gemini,
            "generateContent": _gemini,
        }
        dialect = next((made for name, made in dialects.items() if name in self.path), _chat)
        taken, tokens = self.stand_in.take(request)
        answer = dialect(request, taken, tokens)
        if isinstance(answer, list):
            self._send(_events(answer, with_end=dialect is _chat), "text/event-stream")
        elif "stream" in self.path:
            self._send(f"data: {json.dumps(answer)}\n\n".encode(), "text/event-stream")
        else:
            self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(events: list[tuple[str, dict[str, Any]]], *, with_end: bool) -> bytes:
    lines = []
    for name, data in events:
        lines.append(
            f"event: {name}\ndata: {json.dumps({'type': name, **data})}"
            if name
            else f"data: {json.dumps(data)}"
        )
    return ("\n\n".join([*lines, *(["data: [DONE]"] if with_end else [])]) + "\n\n").encode()


@contextmanager
def running() -> Iterator[StandIn]:
    """Run a stand-in."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.stand_in = StandIn(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield handler.stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
