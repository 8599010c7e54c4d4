"""Histories in few words, for tests of condensers."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from msgspec.structs import replace

import foldlog
from foldlog._reports.words.reasons import because
from foldlog.condensers.base import Condensation
from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    CondensationRequest,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View

SYSTEM = SystemMessage(content="You are an agent.")
REQUEST = CondensationRequest()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Run a command.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string", "description": "what to run"}},
                "required": ["command"],
            },
        },
    }
]


@contextmanager
def new_history(condenser: Any = None, **options: Any) -> Iterator[foldlog.History]:
    """Open an empty history in memory with this condenser."""
    with foldlog.open("memory:", condenser=condenser, **options) as histories:
        yield histories["c1"]


def message(text: str = "hello", source: Any = "user") -> Message:
    return Message(source=source, content=text)


def messages(count: int, start: int = 0) -> list[Event]:
    """Return messages of the user, and of the agent at odd numbers."""
    return [message(f"m{n}", "agent" if n % 2 else "user") for n in range(start, start + count)]


def call(
    tool: str = "run", call_id: str = "c1", response_id: str | None = None, **arguments: Any
) -> Action:
    return Action(tool=tool, arguments=arguments, call_id=call_id, response_id=response_id)


def answer(
    content: str = "done", call_id: str = "c1", tool: str = "run", **fields: Any
) -> Observation:
    return Observation(content=content, call_id=call_id, tool=tool, **fields)


def pair(number: int, tool: str = "run", content: str = "done", **arguments: Any) -> list[Event]:
    return [call(tool, f"call {number}", **arguments), answer(content, f"call {number}", tool)]


def condensed(
    *ids: int, summary: str | None = None, offset: int | None = None
) -> CondensationAction:
    return CondensationAction(forgotten_event_ids=ids, summary=summary, summary_offset=offset)


Events: TypeAlias = "Event | Iterable[Events]"
"""Events, and lists of them at any depth."""


def flat(*events: Events) -> Iterator[Event]:
    """Yield each event, also from lists within lists."""
    for part in events:
        if isinstance(part, Event):
            yield part
        else:
            yield from flat(*part)


def later(version: int, *events: Events) -> list[Event]:
    """Return events with the ids that follow a version."""
    return [replace(event, id=version + place) for place, event in enumerate(flat(*events))]


def history(*events: Events) -> list[Event]:
    return later(0, *events)


def viewed(*events: Events) -> View:
    return View.from_events(history(*events))


def plan(result: View | Condensation) -> CondensationAction:
    assert isinstance(result, Condensation), f"expected a condensation, got {result}"
    return result.action


def reason_of(action: CondensationAction) -> str:
    """Return why a condensation was made, in the words of the commands."""
    return because(action)


def after(view: View, result: View | Condensation) -> View:
    """The View once the condensation is stored."""
    return view.then([plan(result)])


def shown(result: View | Condensation) -> View:
    assert isinstance(result, View), f"expected a View, got {result}"
    return result


def parts_with(text: str) -> dict[str, dict[str, Any]]:
    """Return parts of a content of each type that holds a text, at any depth."""
    of_text = {"type": "text", "text": text}
    data = b64encode(text.encode()).decode()
    plain = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": text},
    }
    answered = {
        "tool_use_id": "s1",
        "type": "web_fetch_tool_result",
        "content": {"content": plain, "url": "https://x"},
    }
    return {
        "text": of_text,
        "refusal": {"type": "refusal", "refusal": text},
        "search_result": {
            "type": "search_result",
            "source": "https://x",
            "title": "T",
            "content": [of_text],
        },
        "document": plain,
        "document of blocks": {
            "type": "document",
            "source": {"type": "content", "content": [of_text]},
        },
        "document in base64": {
            "type": "document",
            "source": {"type": "base64", "media_type": "text/plain", "data": data},
        },
        "file of bytes": {
            "type": "file",
            "file": {"filename": "a.txt", "file_data": text.encode()},
        },
        "file of a URL": {
            "type": "input_file",
            "filename": "a",
            "file_data": f"data:text/csv;base64,{data}",
        },
        "input of a server's tool": {
            "type": "server_tool",
            "blocks": [
                {
                    "type": "server_tool_use",
                    "id": "s1",
                    "name": "run",
                    "input": {"lines": [{"code": text}]},
                }
            ],
        },
        "result of a server's tool": {"type": "server_tool", "blocks": [answered]},
    }
