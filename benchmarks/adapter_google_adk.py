"""The two stores of Google ADK that ``benchmarks.adapters`` compares: foldlog's session service,
and the SDK's session service with SQLite.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from foldlog.adapters.google_adk import FoldlogSessionService

NAMES = {"app_name": "a", "user_id": "u", "session_id": "s"}


class Talk:
    """A session of a service. ``add`` appends the events one by one, as a runner of ADK does."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.session: Any = None

    async def add(self, events: list[Any]) -> None:
        if self.session is None:
            recent = GetSessionConfig(num_recent_events=1)
            self.session = await self.service.get_session(**NAMES, config=recent)
        if self.session is None:
            self.session = await self.service.create_session(**NAMES)
        for event in events:
            event.timestamp = max(event.timestamp, self.session.last_update_time)
            await self.service.append_event(self.session, event)

    async def read(self) -> Any:
        return await self.service.get_session(**NAMES)

    async def close(self) -> None:
        await self.service.close()


def ours(path: str) -> Talk:
    return Talk(FoldlogSessionService(f"sqlite:///{path}"))


def theirs(path: str) -> Talk:
    return Talk(SqliteSessionService(path))


def one(number: int) -> Event:
    """Return an event of a few hundred bytes: a call, the result of a call, or a text."""
    text = f"{number} " + "word " * 60
    call = types.FunctionCall(id=f"c{number}", name="f", args={"text": text})
    result = types.FunctionResponse(id=f"c{number - 1}", name="f", response={"result": text})
    parts = (
        types.Part(function_call=call),
        types.Part(function_response=result),
        types.Part(text=text),
    )
    content = types.Content(role="model", parts=[parts[number % 3]])
    return Event(id=str(uuid4()), invocation_id="i", author="agent", content=content)
