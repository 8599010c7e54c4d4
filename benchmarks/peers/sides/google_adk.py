"""Google ADK: this side calls ``append_event`` and ``get_session`` of ``SqliteSessionService``,
which ``adk web`` uses for local files.

A condensation is an event with ``EventCompaction``. ``get_session`` returns every event. Later, ADK
chooses the events for the model in memory, which is not timed. ``--newest 60`` reads by
``GetSessionConfig(num_recent_events=60)``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.peers.side import Item, Store, arguments_of, serve

_KEY: Any = {"app_name": "peers", "user_id": "u", "session_id": "c1"}


class Services:
    packages = ("google-adk",)

    def __init__(self, newest: int | None) -> None:
        self.shows = "log" if newest is None else "newest"
        self._config = None if newest is None else GetSessionConfig(num_recent_events=newest)
        self._runner: asyncio.Runner | None = None

    def prepare(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.get_loop()

    def open(self, path: str) -> Store:
        assert self._runner is not None
        return Opened(self._runner, f"{path}.db", self._config)


class Opened:
    def __init__(self, runner: asyncio.Runner, path: str, config: GetSessionConfig | None) -> None:
        self._run = runner.run
        self._runner = runner
        self._config = config
        self._service = SqliteSessionService(path)
        self._session: Session | None = None

    def _opened(self) -> Session:
        if self._session is None:
            newest = GetSessionConfig(num_recent_events=1)
            self._session = self._run(self._service.get_session(**_KEY, config=newest))
        if self._session is None:
            self._session = self._run(self._service.create_session(**_KEY))
        return self._session

    def add(self, items: Sequence[Item]) -> None:
        session = self._opened()
        for item in items:
            self._run(self._service.append_event(session, _event(item)))

    def condense(self, item: Item) -> None:
        self.add([item])

    def read(self) -> Session:
        session = self._run(self._service.get_session(**_KEY, config=self._config))
        self._session = session
        return session or self._opened()

    def fill(self, items: Sequence[Item]) -> None:
        session = self._opened()

        async def append_all() -> None:
            for item in items:
                await self._service.append_event(session, _event(item))

        self._run(append_all())
        session.events.clear()

    def said(self, answer: Session) -> Iterable[Sequence[str]]:
        for event in answer.events:
            if event.actions.compaction is not None:
                continue
            (part,) = event.content.parts
            if part.function_call is not None:
                yield ("call", part.function_call.id, arguments_of(part.function_call.args))
            elif part.function_response is not None:
                yield (
                    "result",
                    part.function_response.id,
                    part.function_response.response["output"],
                )
            else:
                yield ("user" if event.author == "user" else "system", part.text)

    def close(self) -> None:
        self._runner.close()


def _event(item: Item) -> Event:
    match item["kind"]:
        case "system" | "user":
            part = types.Part(text=item["text"])
            author = "user" if item["kind"] == "user" else "agent"
        case "call":
            arguments = json.loads(item["arguments"])
            call = types.FunctionCall(id=item["call_id"], name="terminal", args=arguments)
            part = types.Part(function_call=call)
            author = "agent"
        case "result":
            response = {"output": item["text"]}
            result = types.FunctionResponse(id=item["call_id"], name="terminal", response=response)
            part = types.Part(function_response=result)
            author = "agent"
        case _:
            summary = types.Content(role="model", parts=[types.Part(text=item["text"])])
            compaction = EventCompaction(
                start_timestamp=0.0, end_timestamp=time.time(), compacted_content=summary
            )
            return Event(
                author="user", invocation_id="i", actions=EventActions(compaction=compaction)
            )
    role = "user" if item["kind"] in ("user", "result") else "model"
    return Event(author=author, invocation_id="i", content=types.Content(role=role, parts=[part]))


if __name__ == "__main__":
    serve(Services(int(sys.argv[2]) if sys.argv[1:2] == ["--newest"] else None))
