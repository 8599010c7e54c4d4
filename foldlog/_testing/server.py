"""A server on this machine that answers for a model: OpenAI's chat completions and Responses, and
Anthropic's messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from foldlog._testing.answers import stream_of
from foldlog.projections import Dialect

Answer = Callable[[Mapping[str, Any], Dialect], dict[str, Any]]
_DIALECTS: Mapping[str, Dialect] = {
    "/chat/completions": "openai",
    "/responses": "responses",
    "/messages": "anthropic",
}


class ModelServer:
    """``answer`` gets the body of each request. If it raises an error, the program gets the error's
    text with the status 400, after which SDKs do not try again.
    """

    def __init__(self, answer: Answer) -> None:
        class Handler(_Handler):
            answer_request = staticmethod(answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer_request: Answer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because a test prints its own failures."""

    def do_HEAD(self) -> None:
        self._send(200, {})

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        path = self.path.partition("?")[0]
        dialect = next((name for end, name in _DIALECTS.items() if path.endswith(end)), None)
        if dialect is None:
            self._send(200, {"input_tokens": 0})  # a program counts tokens, or sends telemetry
            return
        try:
            body = json.loads(sent)
            answer = self.answer_request(body, dialect)
        except Exception as error:  # noqa: BLE001 - the program and the test get the error
            problem = {"type": "invalid_request_error", "message": str(error)}
            self._send(400, {"type": "error", "error": problem})
            return
        if body.get("stream"):
            self._send(200, "".join(stream_of(answer, dialect)), "text/event-stream")
        else:
            self._send(200, answer)

    def _send(self, status: int, answer: Any, kind: str = "application/json") -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        body = b"" if self.command == "HEAD" else text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
