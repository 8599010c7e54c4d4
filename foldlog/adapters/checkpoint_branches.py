"""Find the checkpoints of a thread: the newest one of each branch, and each one by its id.

A *thread* is named by the id of its first conversation. Its other branches are forks, ``THREAD/@CHECKPOINT``, named
after their first own checkpoint. A checkpoint is a version of a branch. Its events are found by an idempotency key,
which is made of its id and a number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from itertools import count
from typing import Any, TypeVar

from eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    Event,
    ReadTransaction,
    VersionConflict,
)
from eventstore.documents.values import newest_values
from eventstore.recorders.base import Reader
from eventstore.recorders.types import Conversation, RecalledKey
from eventstore.stored.database import translated
from eventstore.stored.read_transaction import find_begun, read_existing
from foldlog.histories import Histories

__all__ = ["CHECKPOINT", "HIDDEN", "Checkpoint", "ThreadBranch", "ThreadBranches", "keep", "numbered"]

CHECKPOINT = "checkpoint"
"""The name of the document that marks a version of a branch as a checkpoint."""

HIDDEN = "hidden"
"""The name of the document of a thread's first conversation that says which checkpoints are left out."""

_FORKS = "/@"
_KEPT = 64

_PAGE = 1_000

T = TypeVar("T")
Listed = TypeVar("Listed", ConversationRow, Conversation)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A version of a branch. ``value`` is its document, None where the branch has no checkpoint yet.

    ``documents`` are all documents, if they were read with it; they belong to the caller.
    """

    branch: str
    version: int
    value: dict[str, Any] | None
    documents: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """Its id; empty where there is no checkpoint yet."""
        return "" if self.value is None else str(self.value["id"])

    @property
    def parent(self) -> str | None:
        return None if self.value is None else self.value["parent"]

    @property
    def before(self) -> int:
        """The version of the branch at which it was put."""
        return self.version if self.value is None else int(self.value["before"])

    @property
    def ranges(self) -> list[int] | None:
        """The ids of the events of its records; None if it has no list of records."""
        return None if self.value is None else self.value["records"]

    @property
    def removed(self) -> int:
        """The id of the last event that forgot records before the end of the list; -1 without one."""
        return -1 if self.value is None else self.value.get("removed", -1)

    def precedes(self, parent: str | None, checkpoint_id: str) -> bool:
        """Return whether this is the parent of a checkpoint and has a smaller id: ids ascend in a branch."""
        return self.value is not None and self.id == parent and parent < checkpoint_id


@dataclass(frozen=True, slots=True)
class ThreadBranch:
    """A branch: its newest checkpoint, the version at which its own events begin, and which checkpoints are hidden."""

    tip: Checkpoint
    begins: int
    hidden: dict[str, Any] | None


class ThreadBranches:
    """The branches of all threads of a store."""

    def __init__(self, histories: Histories) -> None:
        self._histories, self._store = histories, histories.store
        self._known: OrderedDict[str, tuple[bytes | None, ThreadBranch]] = OrderedDict()

    def of(self, thread: str) -> list[ThreadBranch]:
        """Return the branches of a thread at one moment. Cost: the branches, one read each where they have grown."""
        with translated():
            return self._store.database.recorder.query(partial(self._read, thread))

    def conversations(self, name: str) -> Iterator[ConversationRow]:
        """Yield the conversation of this name and those below it, without erased ones."""
        with suppress(ConversationNotFound):
            if (row := self._store.conversation(name)).erased_at is None:
                yield row
        for row in _beginning_with(f"{name}/", self._store.conversations):
            if row.erased_at is None:
                yield row

    def at(self, branch: str, version: int) -> Checkpoint:
        """Return the tip at a version of a branch."""
        return Checkpoint(branch, version, self._histories[branch].document(CHECKPOINT, version=version))

    def walk(self, branches: list[ThreadBranch]) -> Iterator[Checkpoint]:
        """Yield the checkpoints of these branches, the newest first. Cost: those that are yielded."""
        lines = [self._line(branch) for branch in branches]
        return lines[0] if len(lines) == 1 else merge(*lines, key=lambda each: each.id, reverse=True)

    def locate(self, branches: list[ThreadBranch], checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint by its id. Cost: for one that is not the newest of a branch, the later branches."""
        for branch in branches:
            if branch.tip.value is not None and branch.tip.id == checkpoint_id:
                return branch.tip
        for name in sorted((branch.tip.branch for branch in branches), reverse=True):
            if put := self.appended_for(name, checkpoint_id):
                return self.at(name, put[-1].first_id + put[-1].events)
        return None

    def appended_for(self, branch: str, checkpoint_id: str) -> list[RecalledKey]:
        """Return the events that were appended to a conversation for a checkpoint, in order."""
        return self._asked(branch, lambda reading: list(_appended(reading, checkpoint_id)))

    def events_for(self, branch: str, checkpoint_id: str) -> list[Event]:
        """Return the first event of each append to a conversation for a checkpoint, in order."""

        def read(reading: ReadTransaction) -> list[Event]:
            ids = [each.first_id for each in _appended(reading, checkpoint_id)]
            return [event for event_id in ids for event in reading.events(event_id, event_id + 1)]

        return self._asked(branch, read)

    def _asked(self, branch: str, read: Callable[[ReadTransaction], list[T]]) -> list[T]:
        try:
            return self._store.query(branch, read)
        except (ConversationNotFound, ConversationErased):
            return []

    def to_continue(self, thread: str, checkpoint_id: str, parent: str | None) -> Checkpoint:
        """Return the tip of the branch for a new checkpoint. Begin a fork first if it needs one."""
        branches = self.of(thread)
        name = f"{thread}{_FORKS}{checkpoint_id}"
        for tip in (branch.tip for branch in branches):
            if tip.precedes(parent, checkpoint_id) or tip.id == checkpoint_id or tip.branch == name:
                return tip
        origin = None if parent is None else self.locate(branches, parent)
        if origin is not None:
            with suppress(VersionConflict):  # another writer began it
                self._store.fork(origin.branch, origin.version, name)
            return self._begun(name)
        if any(each.tip.branch == thread and each.tip.value is not None for each in branches):
            return self._begun(name)
        return self._begun(thread)

    def begin_again(self, branch: str) -> None:
        """Begin a new conversation with the id of an erased one."""
        with suppress(VersionConflict):  # another writer did
            self._histories.create(branch, replace_erased=True)

    def _begun(self, branch: str) -> Checkpoint:
        """Return the tip of a branch; if it was erased, the tip of the new conversation with its id."""
        try:
            return self.at(branch, self._histories[branch].version)
        except ConversationErased:
            self.begin_again(branch)
            return self.at(branch, self._histories[branch].version)

    def _read(self, thread: str, reader: Reader) -> list[ThreadBranch]:
        database = self._store.database
        branches: list[ThreadBranch] = []
        with suppress(ConversationErased):
            if (first := find_begun(database, reader, thread)) is not None:
                branches.append(self._known_branch(first) or self._branch(ReadTransaction(reader, first, database)))
        for fork in _beginning_with(thread + _FORKS, partial(database.listed, reader)):
            if fork.erasure is None:
                branch = self._known_branch(fork)
                branches.append(branch or read_existing(database, fork.id, self._branch, reader))
        return branches

    def _known_branch(self, found: Conversation) -> ThreadBranch | None:
        known = self._known.get(found.id)
        return known[1] if known is not None and known[0] == found.head else None

    def _branch(self, reading: ReadTransaction) -> ThreadBranch:
        found = reading.found
        documents = newest_values(reading)
        tip = Checkpoint(found.id, reading.version, deepcopy(documents.get(CHECKPOINT)), documents)
        branch = ThreadBranch(tip, found.begins, documents.get(HIDDEN))
        keep(self._known, found.id, (reading.head, replace(branch, tip=replace(tip, documents=None))))
        return branch

    def _line(self, branch: ThreadBranch) -> Iterator[Checkpoint]:
        each = branch.tip
        while each.value is not None and each.version > branch.begins:
            yield each
            each = self.at(each.branch, each.before)


def _appended(reading: ReadTransaction, checkpoint_id: str) -> Iterator[RecalledKey]:
    for number in count():
        recalled = reading.recall(numbered(checkpoint_id, number))
        if recalled is None:
            return
        yield recalled


def _beginning_with(start: str, listed: Callable[[str, int], Sequence[Listed]]) -> Iterator[Listed]:
    """Yield the conversations whose ids are longer than ``start`` and begin with it, from pages that grow: most threads
    have no fork, and the next page holds other threads.
    """
    after, size = start, 2
    while True:
        page = listed(after, size)
        for each in page:
            if not each.id.startswith(start):
                return
            yield each
        if len(page) < size:
            return
        after, size = page[-1].id, min(8 * size, _PAGE)


def numbered(checkpoint_id: str, number: int) -> str:
    """Return the idempotency key of an append for a checkpoint."""
    return f"{checkpoint_id} {number}"


def keep(kept: OrderedDict[str, T], name: str, value: T) -> None:
    """Keep a value in memory, with the last 63 others."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
