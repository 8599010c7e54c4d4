"""foldlog's public interface: ``foldlog.open(path)["c1"]``, ``append`` and ``view``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import foldlog
from benchmarks.peers.side import Item, Store, arguments_of, serve
from foldlog.eventstore import summary_id


class Histories:
    packages = ("foldlog",)
    shows = "view"

    def prepare(self) -> None: ...

    def open(self, path: str) -> Store:
        return History(path)


class History:
    def __init__(self, path: str) -> None:
        self._histories = foldlog.open(f"{path}.db")
        self._history = self._histories["c1"]

    def add(self, items: Sequence[Item]) -> None:
        self._history.append([_event(item) for item in items])

    def condense(self, item: Item) -> None:
        self._history.append(_event(item))

    def read(self) -> foldlog.View:
        return self._history.view()

    def fill(self, items: Sequence[Item]) -> None:
        self._history.append([_event(item) for item in items])

    def said(self, answer: foldlog.View) -> Iterable[Sequence[str]]:
        return map(_said, answer.events)

    def close(self) -> None:
        self._histories.close()


def _event(item: Item) -> foldlog.Event:
    match item["kind"]:
        case "system":
            return foldlog.SystemMessage(content=item["text"])
        case "user":
            return foldlog.Message(source="user", content=item["text"])
        case "call":
            return foldlog.Action(
                tool="terminal", arguments=json.loads(item["arguments"]), call_id=item["call_id"]
            )
        case "result":
            return foldlog.Observation(
                tool="terminal", content=item["text"], call_id=item["call_id"], cause=item["n"] - 1
            )
    replaced = [] if item["replaces"] is None else [summary_id(item["replaces"])]
    return foldlog.CondensationAction(
        forgotten_event_ids=[*replaced, *item["forgotten"]], summary=item["text"], summary_offset=4
    )


def _said(event: Any) -> Sequence[str]:
    match event:
        case foldlog.SystemMessage():
            return ("system", event.content)
        case foldlog.Message():
            return ("user", event.content)
        case foldlog.Action():
            return ("call", event.call_id, arguments_of(event.arguments))
        case foldlog.Observation():
            return ("result", event.call_id, event.content)
    return ("summary", event.content)


if __name__ == "__main__":
    serve(Histories())
