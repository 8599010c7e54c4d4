"""The tools of ``foldlog mcp`` at the path ``/mcp`` of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio import Event, sleep_forever
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from foldlog._app.server.threads import Threads

if TYPE_CHECKING:
    from foldlog._app.coding_agents.mcp_server import MountedTools


class ToolsOnDemand:
    """Loads the MCP server with ``load`` at the first request. Many servers get no such request,
    and the import takes as long as the rest of their start, and 33 MB of memory.

    The task ``run`` must run while the server runs.
    """

    def __init__(self, load: Callable[[], MountedTools], threads: Threads) -> None:
        self._load = load
        self._threads = threads
        self._is_asked = Event()
        self._is_ready = Event()
        self._app: ASGIApp | None = None
        self._error: Exception | None = None

    async def run(self) -> None:
        """Wait for the first request, load the tools, and keep them until the server ends."""
        await self._is_asked.wait()
        try:
            tools = await self._threads.run(self._load)
        except Exception as error:  # noqa: BLE001 - each request raises the error
            self._error = error
            self._is_ready.set()
            return
        async with tools.running():
            self._app = Router(tools.routes)
            self._is_ready.set()
            await sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_asked.set()
        await self._is_ready.wait()
        if self._app is None:
            raise RuntimeError("the tools cannot be loaded") from self._error
        await self._app(scope, receive, send)
