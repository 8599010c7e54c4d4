"""The eventsourcing library without changes: an ``Application`` with its SQLite recorder, and an
``Aggregate`` that is a View.

With ``--snapshots``, the library takes a snapshot every 100 events (``snapshotting_intervals``).
The program keeps the aggregate in memory between appends, and reads it from the repository on
opening.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event

from benchmarks.peers.side import Item, Store, entry, serve

_HEAD = 4


class Conversation(Aggregate):
    @event("Begun")
    def __init__(self) -> None:
        self.shown: list[Item] = []

    @staticmethod
    def create_id() -> UUID:
        return uuid5(NAMESPACE_URL, "/conversations/c1")

    @event("Recorded")
    def record(self, item: Item) -> None:
        self.shown.append(item)

    @event("Condensed")
    def condense(self, forgotten: list[int], summary: str) -> None:
        forgotten_ids = set(forgotten)
        self.shown = [
            item
            for item in self.shown
            if item["kind"] != "summary" and item["n"] not in forgotten_ids
        ]
        self.shown.insert(_HEAD, {"kind": "summary", "text": summary})


class Conversations(Application):
    env: ClassVar[dict[str, str]] = {"PERSISTENCE_MODULE": "eventsourcing.sqlite"}


class SnapshottedConversations(Conversations):
    name = "Conversations"
    snapshotting_intervals: ClassVar[dict[Any, int]] = {Conversation: 100}


class Library:
    packages = ("eventsourcing",)
    shows = "view"

    def __init__(self, application: type[Application]) -> None:
        self._application = application

    def prepare(self) -> None: ...

    def open(self, path: str) -> Store:
        return Repository(self._application(env={"SQLITE_DBNAME": f"{path}.db"}))


class Repository:
    def __init__(self, application: Application) -> None:
        self._application = application
        self._held: Conversation | None = None

    def _conversation(self) -> Conversation:
        if self._held is None:
            try:
                self._held = self._application.repository.get(Conversation.create_id())
            except AggregateNotFoundError:
                self._held = Conversation()
        return self._held

    def add(self, items: Sequence[Item]) -> None:
        conversation = self._conversation()
        for item in items:
            conversation.record(item)
        self._application.save(conversation)

    def condense(self, item: Item) -> None:
        conversation = self._conversation()
        conversation.condense(item["forgotten"], item["text"])
        self._application.save(conversation)

    def read(self) -> list[Item]:
        return self._conversation().shown

    def fill(self, items: Sequence[Item]) -> None:
        conversation = self._conversation()
        for start in range(0, len(items), 100):  # an interval of snapshots at a time
            for item in items[start : start + 100]:
                if item["kind"] == "condensation":
                    conversation.condense(item["forgotten"], item["text"])
                else:
                    conversation.record(item)
            self._application.save(conversation)

    def said(self, answer: list[Item]) -> Iterable[Sequence[str]]:
        return map(entry, answer)

    def close(self) -> None:
        self._application.close()


if __name__ == "__main__":
    serve(Library(SnapshottedConversations if sys.argv[1:] == ["--snapshots"] else Conversations))
