"""A server on this machine that answers for a model: OpenAI's chat completions and Responses, and
Anthropic's messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from foldlog._testing.answers import stream_of
from foldlog.projections import Dialect

Answer = Callable[[Mapping[str, Any], Dialect], dict[str, Any]]
_DIALECTS: Mapping[str, Dialect] = {
    "completions": "openai",
    "responses": "responses",
    "messages": "anthropic",
}
"""Maps the last part of a path to the dialect of its API."""


class ModelServer:
    """Answers requests with ``answer``, which gets the body of each request. If it raises an error,
    the program gets the error's text with the status 400, after which SDKs do not try again.
    """

    def __init__(self, answer: Answer) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, answer))
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop the server, and wait for its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def __init__(self, answer: Answer, *connection: Any) -> None:
        self._answer = answer
        super().__init__(*connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because a test prints its own failures."""

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        dialect = _DIALECTS.get(self.path.partition("?")[0].rpartition("/")[2])
        # Other paths count tokens or get telemetry.
        status = 200
        answer = json.dumps({"input_tokens": 0})
        kind = "application/json"
        try:
            if dialect is not None:
                body = json.loads(sent)
                reply = self._answer(body, dialect)
                answer = json.dumps(reply)
                if body.get("stream"):
                    answer = "".join(stream_of(reply, dialect))
                    kind = "text/event-stream"
        except Exception as error:  # noqa: BLE001 - the program and the test get the error
            problem = {"type": "invalid_request_error", "message": str(error)}
            status = 400
            answer = json.dumps({"type": "error", "error": problem})
        data = answer.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST
