"""Send requests to an ASGI application in this process, without a server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

from foldlog._app.server.access import Gate as Gate
from foldlog._app.server.app import application as application
from foldlog._app.server.documents import Shown
from foldlog.eventstore import Store


class Answer(NamedTuple):
    """A complete response. If a header comes twice, it has the last value."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests as a browser does that knows one host name. ``headers`` go with every
    request. A client that ``waits`` stays connected until it has its answer.
    """

    def __init__(self, app: Any, headers: Mapping[str, str] = {}, *, waits: bool = False) -> None:
        self._app = app
        self._waits = waits
        self.headers = {"host": "localhost:8765", **headers}

    def get(
        self, path: str, params: Mapping[str, Any] = {}, headers: Mapping[str, str] = {}
    ) -> Answer:
        return self.send("GET", path, params, headers)

    def json(self, path: str, params: Mapping[str, Any] = {}) -> Any:
        """Return the document at a path of the API, such as ``history?id=c1``."""
        return self.get(f"/api/{path}", params).json()

    def send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] = {},
        headers: Mapping[str, str] = {},
        body: bytes = b"",
    ) -> Answer:
        return asyncio.run(self.ask(method, path, params, headers, body))

    async def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] = {},
        headers: Mapping[str, str] = {},
        body: bytes = b"",
    ) -> Answer:
        path, _, query = path.partition("?")
        merged = {**self.headers, **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": "&".join(filter(None, [query, urlencode(params)])).encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in merged.items()],
            "server": ("127.0.0.1", 8765),
            "client": ("127.0.0.1", 1),
        }
        return await self._respond(scope, body)

    async def _respond(self, scope: dict[str, Any], body: bytes) -> Answer:
        messages: list[dict[str, Any]] = []
        requests = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            request = next(requests, None)
            if request is None and self._waits:
                await asyncio.Event().wait()
            return request or {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        await asyncio.wait_for(self._app(scope, receive, send), 60)
        (start,) = (message for message in messages if message["type"] == "http.response.start")
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Answer(
            start["status"], headers, b"".join(message.get("body", b"") for message in messages)
        )


def asking_store(store: Store, **options: Any) -> AbstractContextManager[Client]:
    """Yield a client of the server of a store, which needs no token."""
    shown = Shown(**{name: options.pop(name) for name in Shown._fields if name in options})
    return asking(application(store, gate=Gate(None), shown=shown, **options))


@contextmanager
def asking(app: Any, headers: Mapping[str, str] = {}) -> Iterator[Client]:
    """Yield a client, and shut down the application afterwards."""

    async def shut_down() -> None:
        async with running(app):
            pass

    try:
        yield Client(app, headers)
    finally:
        asyncio.run(shut_down())


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[None]:
    """Run the tasks of an application."""
    steps: asyncio.Queue[Any] = asyncio.Queue()
    answers: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    tasks = asyncio.create_task(app(scope, steps.get, answers.put))
    await steps.put({"type": "lifespan.startup"})
    assert (await answers.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await steps.put({"type": "lifespan.shutdown"})
        await tasks
