"""A server on this machine that speaks enough of a model's protocol for an agent. It refuses
malformed prompts.

It answers by a script, in a thread of the test, so that it outlives the agents.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ModelServer:
    """``prompts`` are what came, and ``problems`` what was wrong with those that were refused."""

    def __init__(self):
        self.prompts, self.problems = [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                self._reply(b"{}")

            def do_HEAD(self):
                self._reply(b"")

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                status, answer = server.answer_to(self.path, body)
                self._reply(
                    answer if isinstance(answer, bytes) else json.dumps(answer).encode(), status
                )

            def _reply(self, body, status=200):
                is_stream = body.startswith(b"event:")
                self.send_response(status)
                self.send_header(
                    "content-type", "text/event-stream" if is_stream else "application/json"
                )
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer_to(self, path, body):
        """Return the status and the answer to a request."""
        prompt = json.loads(body)
        problem = self.problem_of(prompt)
        if problem is not None:
            self.problems.append(problem)
            return 400, {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": problem},
            }
        self.prompts.append(prompt["messages"])
        return 200, self.reply_to(prompt, len(self.prompts) - 1)

    def problem_of(self, prompt):
        """Return what is wrong with a prompt, or None."""
        raise NotImplementedError

    def reply_to(self, prompt, number):
        """Return the reply of the model: JSON, or the bytes of a stream of events."""
        raise NotImplementedError

    def close(self):
        self._server.shutdown()
        self._server.server_close()
