"""OpenHands SDK: this side uses ``EventLog`` on ``LocalFileStore`` and ``View.from_events``, as
``ConversationState`` does.

On opening, the View is made from the path to the root, as ``rebuild_view`` does. After an append,
the View takes the new events, as ``ConversationState.view`` does. This side does not write
``base_state.json``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from uuid import NAMESPACE_URL, uuid5

from openhands.sdk import LocalFileStore, Message, TextContent
from openhands.sdk.context.condenser import CondenserBase  # noqa: F401 - a program with a condenser has imported it
from openhands.sdk.context.view import View
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import (
    ActionEvent,
    Condensation,
    CondensationSummaryEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
)
from openhands.sdk.llm import MessageToolCall, content_to_str
from openhands.sdk.tool import Action, Observation

from benchmarks.peers.side import Item, Store, arguments_of, serve

logging.getLogger("openhands").setLevel(logging.ERROR)


class TerminalAction(Action):
    command: str


class TerminalObservation(Observation): ...


class Logs:
    packages = ("openhands-sdk",)
    shows = "view"

    def prepare(self) -> None: ...

    def open(self, path: str) -> Store:
        return Folder(path)


class Folder:
    def __init__(self, path: str) -> None:
        self._log = EventLog(LocalFileStore(path))
        self._view: View | None = None

    def add(self, items: Sequence[Item]) -> None:
        for item in items:
            self._append(_event(item))

    def condense(self, item: Item) -> None:
        self._append(_event(item))

    def _append(self, event: Event) -> None:
        last = self._log.get_id(-1) if len(self._log) else None
        event = event.model_copy(update={"parent_id": last})
        self._log.append(event)
        if self._view is not None:
            self._view.append_event(event)

    def read(self) -> View:
        if self._view is None:
            leaf = self._log.get_id(-1) if len(self._log) else None
            self._view = View.from_events(self._log.path_to_root(leaf))
        return self._view

    def fill(self, items: Sequence[Item]) -> None:
        self._view = None
        for item in items:
            self._append(_event(item))

    def said(self, answer: View) -> Iterable[Sequence[str]]:
        return map(_said, answer.events)

    def close(self) -> None: ...


def _id(n: int) -> str:
    return str(uuid5(NAMESPACE_URL, f"/events/{n}"))


def _event(item: Item) -> Event:
    name = _id(item["n"])
    match item["kind"]:
        case "system":
            return SystemPromptEvent(
                id=name, system_prompt=TextContent(text=item["text"]), tools=[]
            )
        case "user":
            message = Message(role="user", content=[TextContent(text=item["text"])])
            return MessageEvent(id=name, source="user", llm_message=message)
        case "call":
            call = MessageToolCall(
                id=item["call_id"],
                name="terminal",
                arguments=item["arguments"],
                origin="completion",
            )
            return ActionEvent(
                id=name,
                thought=[],
                action=TerminalAction(command=json.loads(item["arguments"])["command"]),
                tool_name="terminal",
                tool_call_id=item["call_id"],
                tool_call=call,
                llm_response_id=f"resp_{item['n']}",
            )
        case "result":
            return ObservationEvent(
                id=name,
                tool_name="terminal",
                tool_call_id=item["call_id"],
                observation=TerminalObservation.from_text(item["text"]),
                action_id=_id(item["n"] - 1),
            )
    forgotten = {_id(n) for n in item["forgotten"]}
    if item["replaces"] is not None:
        forgotten.add(f"{_id(item['replaces'])}-summary")
    return Condensation(
        id=name,
        forgotten_event_ids=forgotten,
        summary=item["text"],
        summary_offset=4,
        llm_response_id=f"c_{item['n']}",
    )


def _said(event: Event) -> Sequence[str]:
    match event:
        case SystemPromptEvent():
            return ("system", event.system_prompt.text)
        case MessageEvent():
            return ("user", "".join(content_to_str(event.llm_message.content)))
        case ActionEvent():
            return ("call", event.tool_call_id, arguments_of(json.loads(event.tool_call.arguments)))
        case ObservationEvent():
            return (
                "result",
                event.tool_call_id,
                "".join(content_to_str(event.observation.to_llm_content)),
            )
        case CondensationSummaryEvent():
            return ("summary", event.summary)
    return (type(event).__name__, "")


if __name__ == "__main__":
    serve(Logs())
