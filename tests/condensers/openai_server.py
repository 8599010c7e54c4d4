"""A server on this machine that speaks OpenAI's chat protocol, for tests that drive the real
litellm over HTTP.

A test scripts what is answered; the last answer repeats. What was asked is in ``server.requests``.

    with OpenAIServer(Text("a summary")) as server:
        llm = server.llm("openai/gpt-4o-mini")
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from foldlog.condensers import LLM, LLMConfig

CHARACTERS_PER_TOKEN = 4

ANTHROPICS_OK = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
).encode()
"""What is answered to a request in the form of Anthropic's messages, whatever is scripted."""


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def tokens(self) -> int:
        """The size of its messages, by a rule simple enough to write an expectation with."""
        return (
            len(json.dumps(self.body.get("messages", []), ensure_ascii=False))
            // CHARACTERS_PER_TOKEN
        )


@dataclass(frozen=True)
class Text:
    """A message with text, or without any."""

    content: str | None
    finish_reason: str = "stop"
    refusal: str | None = None

    def message(self) -> dict[str, Any]:
        return {"role": "assistant", "content": self.content, "refusal": self.refusal}


@dataclass(frozen=True)
class ToolCall:
    """A message that calls one tool. ``arguments`` given as text are sent unchanged, also if they
    are invalid JSON.
    """

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    content: str | None = None
    finish_reason: str = "tool_calls"

    def message(self) -> dict[str, Any]:
        arguments = (
            self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        )
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        }
        return {"role": "assistant", "content": self.content, "tool_calls": [call]}


@dataclass(frozen=True)
class Failure:
    """An HTTP error in OpenAI's shape."""

    status: int
    message: str = "no"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """These very bytes with status 200."""

    body: bytes


@dataclass(frozen=True)
class CutOff:
    """A sound answer whose connection breaks in the middle of the body."""

    answer: Text | ToolCall


@dataclass(frozen=True)
class Late:
    """An answer that comes only after so many seconds, or when the server stops."""

    seconds: float
    answer: Text | ToolCall


@dataclass(frozen=True)
class Trickling:
    """An answer that comes behind so many blanks, one each so many seconds, as from a server whose
    queue is long.
    """

    blanks: int
    seconds: float
    answer: Text | ToolCall


Answer = Text | ToolCall | Failure | Raw | CutOff | Late | Trickling
Responder = Callable[[Request], Answer]


def context_length_exceeded(limit: int, actual: int) -> Failure:
    """Return what OpenAI answers to a prompt that is too long."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in"
        f" {actual} tokens. Please reduce the length of the messages."
    )
    return Failure(400, message, "context_length_exceeded")


def up_to(limit: int, respond: Responder) -> Responder:
    """Return a model that refuses more than ``limit`` tokens, and otherwise calls ``respond``."""

    def responder(request: Request) -> Answer:
        return (
            context_length_exceeded(limit, request.tokens)
            if request.tokens > limit
            else respond(request)
        )

    return responder


def _close_litellms_clients(*, lost: bool) -> None:
    """Close the clients that litellm keeps. If threads race for a client, litellm drops the others
    without closing them: with ``lost``, the warnings about these clients are ignored.
    """
    litellm = sys.modules.get("litellm")
    if litellm is None:
        return
    for client in list(litellm.in_memory_llm_clients_cache.cache_dict.values()):
        if isinstance(client, sys.modules["openai"].OpenAI):
            client.close()
    litellm.in_memory_llm_clients_cache.flush_cache()
    if lost:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        _leave_litellm_out()


@cache
def _leave_litellm_out() -> None:
    """Leave litellm itself, once it is imported, out of later collections of garbage: it is most of
    this process.
    """
    gc.freeze()


class OpenAIServer:
    """Serves ``/v1/chat/completions`` on 127.0.0.1 from its own threads, between ``__enter__`` and
    ``__exit__``.
    """

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._connections = 0
        self._stopping = threading.Event()
        self._responder: Responder = lambda _: Text("ok")
        if answers:
            self.script(*answers)

    def script(self, *answers: Answer) -> None:
        """Give these answers from now on, one a request; the last repeats."""
        waiting = list(answers)

        def next_answer(_: Request) -> Answer:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]

        self._responder = next_answer

    def respond(self, responder: Responder) -> None:
        """Answer each request from now on with what this function gives."""
        self._responder = responder

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def llm(self, model: str, **settings: Any) -> LLM:
        """Return litellm's client for a model at this server."""
        base_url = self.url if model.startswith("openai/") else self.url.removesuffix("/v1")
        return LLM(LLMConfig(model=model, base_url=base_url, api_key="key", **settings))

    def __enter__(self) -> OpenAIServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        _close_litellms_clients(lost=self._connections > 1)

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            return (
                Raw(ANTHROPICS_OK) if request.path == "/v1/messages" else self._responder(request)
            )

    def _completion(self, request: Request, answer: Text | ToolCall) -> bytes:
        reply = answer.message()
        prompt_tokens = request.tokens
        completion_tokens = len(json.dumps(reply)) // CHARACTERS_PER_TOKEN
        return json.dumps(
            {
                "id": f"chatcmpl-{len(self.requests)}",
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": request.body.get("model", "").split("/")[-1],
                "choices": [{"index": 0, "message": reply, "finish_reason": answer.finish_reason}],
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                    "total_tokens": prompt_tokens + completion_tokens,
                },
            }
        ).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with server._lock:
                    server._connections += 1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                # versions of litellm write the names of headers in different cases
                headers = {name.title(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, body)
                if self.path not in ("/v1/chat/completions", "/v1/messages"):
                    self._send(404, b'{"error": {"message": "no such path"}}')
                    return
                answer = server._answer(request)
                if isinstance(answer, Late):
                    server._stopping.wait(answer.seconds)
                    answer = answer.answer
                match answer:
                    case Failure(status, message, code, headers):
                        kind = "server_error" if status > 429 else "invalid_request_error"
                        error = {"message": message, "type": kind, "param": None, "code": code}
                        self._send(status, json.dumps({"error": error}).encode(), headers)
                    case Raw(raw):
                        self._send(200, raw)
                    case CutOff(whole):
                        self._send_half(server._completion(request, whole))
                    case Trickling(blanks, seconds, whole):
                        self._trickle(blanks, seconds, server._completion(request, whole))
                    case Text() | ToolCall():
                        self._send(200, server._completion(request, answer))

            def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(length))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _send(
                self, status: int, body: bytes, headers: dict[str, str] | None = None
            ) -> None:
                self._begin(status, len(body), headers or {})
                try:
                    self.wfile.write(body)
                except ConnectionError:
                    self.close_connection = True  # the client gave up on a late answer

            def _send_half(self, body: bytes) -> None:
                self._begin(200, len(body), {})
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True

            def _trickle(self, blanks: int, seconds: float, body: bytes) -> None:
                self._begin(200, blanks + len(body), {})
                try:
                    for _ in range(blanks):
                        server._stopping.wait(seconds)
                        self.wfile.write(b" ")
                    self.wfile.write(body)
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Silence: what was asked is in ``server.requests``."""

        return Handler
