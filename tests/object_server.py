"""Servers with the part of S3's protocol that foldlog uses, and their faults. An ``ObjectServer``
stores objects in memory, or stands before another server (``MotoServer``) and fails in its place.
"""

import enum
import http.client
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from tests.ports import free_port, listens
from tests.waiting import until

BUCKET = "bucket"
_CREDENTIALS = {
    "authorization": "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0"
}
_SENT_ON = ("if-none-match", "content-type", "range", "authorization", "x-amz-date")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes = b""


class Backend(Protocol):
    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer: ...


class Fault(enum.Enum):
    SLOW = "slow"  # the answer comes after ``pause_s``
    UNAVAILABLE = "5xx"
    READ_ONLY = "read-only"
    REFUSED = "no right at all"
    CUT_BEFORE = "cut before the request is carried out"
    CUT_AFTER = "cut after the request is carried out"
    HALF_AN_ANSWER = "cut within the answer"
    SILENT = "no answer"
    OTHER_BYTES = "a whole answer with other bytes"


class InMemory:
    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        name = unquote(urlsplit(path).path)
        if method == "POST":
            return self._delete(_keys_in(body))
        if name.rstrip("/") == f"/{BUCKET}":
            return Answer(200, {}, self._list()) if method == "GET" else Answer(200, {})
        if method == "PUT":
            if headers.get("if-none-match") == "*" and name in self._objects:
                return _error(412, "PreconditionFailed")
            self._objects[name] = body
            return Answer(200, {"ETag": _etag(body)})
        if method == "DELETE":
            self._objects.pop(name, None)
            return Answer(204, {})
        if name not in self._objects:
            return _error(404, "NoSuchKey")
        whole = self._objects[name]
        answer_headers = {"ETag": _etag(whole), "Last-Modified": formatdate(usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if asked is None:
            return Answer(200, answer_headers, whole)
        first = int(asked[1])
        part = whole[first : int(asked[2]) + 1 if asked[2] else None]
        place = f"bytes {first}-{first + len(part) - 1}/{len(whole)}"
        return Answer(206, {**answer_headers, "Content-Range": place}, part)

    def _delete(self, keys: list[str]) -> Answer:
        for key in keys:
            self._objects.pop(f"/{BUCKET}/{key}", None)
        entries = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return Answer(200, {}, f"<DeleteResult>{entries}</DeleteResult>".encode())

    def _list(self) -> bytes:
        keys = (name.removeprefix(f"/{BUCKET}/") for name in sorted(self._objects))
        entries = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in keys)
        return f"<ListBucketResult>{entries}</ListBucketResult>".encode()


def _etag(body: bytes) -> str:
    return f'"{md5(body, usedforsecurity=False).hexdigest()}"'


def _keys_in(body: bytes) -> list[str]:
    return re.findall("<Key>([^<]*)</Key>", body.decode())


def _refused(method: str, body: bytes) -> Answer:
    if method != "POST":
        return _error(403, "AccessDenied")
    # S3 answers a deletion of several objects with 200, and names the objects that it refused.
    entries = "".join(
        f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        for key in _keys_in(body)
    )
    return Answer(200, {}, f"<DeleteResult>{entries}</DeleteResult>".encode())


def _error(status: int, code: str) -> Answer:
    return Answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())


class Forwarding:
    def __init__(self, port: int) -> None:
        self._port = port

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            sent = {name: value for name, value in headers.items() if name in _SENT_ON}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            content = response.read()
            kept = {
                name: value
                for name, value in response.getheaders()
                if name.lower() in ("etag", "last-modified", "content-range")
            }
            if method == "HEAD":  # the body is not sent, its length is
                content = bytes(int(response.headers.get("Content-Length", 0)))
            return Answer(response.status, kept, content)
        finally:
            connection.close()


class ObjectServer:
    """Serves one bucket. Clients find it by ``environment``. ``fail`` makes requests fail."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.requests: list[tuple[str, str]] = []
        self._fault: tuple[Fault, frozenset[str], int] | None = None
        self.choose_fault: Callable[[str], Fault | None] | None = None
        """If it is not None, it chooses the fault of each request by its method."""
        self.pause_s = 1.0
        self._silence = threading.Event()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self._server = server
        self.port = server.server_port
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.call("PUT", "")  # makes the bucket

    def close(self) -> None:
        self._silence.set()
        self._server.shutdown()
        self._server.server_close()

    def fail(self, fault: Fault, *methods: str, times: int = 1_000_000) -> None:
        """The next ``times`` requests with one of these methods fail; without methods, any."""
        self._fault = fault, frozenset(methods), times

    def heal(self) -> None:
        self._fault = None

    # -- the bucket, behind the faults

    def call(self, method: str, key: str, body: bytes = b"") -> Answer:
        return self.backend.answer(method, f"/{BUCKET}/{key}", _CREDENTIALS, body)

    def names(self) -> list[str]:
        listed = self.backend.answer("GET", f"/{BUCKET}?list-type=2", _CREDENTIALS, b"").body
        return sorted(_keys_in(listed))

    # -- one request

    def next_fault(self, method: str) -> Fault | None:
        if self.choose_fault is not None:
            return self.choose_fault(method)
        if self._fault is None:
            return None
        fault, methods, times = self._fault
        if times == 0 or (methods and method not in methods):
            return None
        if fault is Fault.READ_ONLY and method in ("GET", "HEAD"):
            return None
        self._fault = fault, methods, times - 1
        return fault

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        method = handler.command
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((method, handler.path))
        fault = self.next_fault(method)
        if fault is Fault.SLOW:
            time.sleep(self.pause_s)
        if fault is Fault.SILENT:
            self._silence.wait(60)
        if fault in (Fault.CUT_BEFORE, Fault.SILENT):
            return _cut(handler)
        if fault is Fault.UNAVAILABLE:
            answer = _error(503, "SlowDown")
        elif fault in (Fault.READ_ONLY, Fault.REFUSED):
            answer = _refused(method, body)
        else:
            headers = {name.lower(): value for name, value in handler.headers.items()}
            answer = self.backend.answer(method, handler.path, headers, body)
        if fault is Fault.CUT_AFTER:
            return _cut(handler)
        if fault is Fault.OTHER_BYTES:
            answer = answer._replace(body=answer.body[:-1] + bytes([answer.body[-1] ^ 1]))
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        if method == "HEAD":
            return None
        if fault is Fault.HALF_AN_ANSWER:
            handler.wfile.write(answer.body[: len(answer.body) // 2])
            return _cut(handler)
        handler.wfile.write(answer.body)
        return None


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def _handler(server: ObjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            server.respond(self)

        do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = respond

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def moto_server(program: Path, log: Path) -> Iterator[Forwarding]:
    """Start ``moto_server`` in its own environment, on a free port."""
    port = free_port()
    with log.open("wb") as output:
        arguments = [program, "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(arguments, stdout=output, stderr=output)
        try:
            until(lambda: listens(port) or process.poll() is not None)
            assert process.poll() is None, f"moto_server ended with status {process.returncode}"
            yield Forwarding(port)
        finally:
            process.kill()
            process.wait()
