"""Find the checkpoints of a LangGraph thread.

A *thread* has the id of its first conversation. All other branches of the thread are forks with the
id ``THREAD/@CHECKPOINT``, where ``CHECKPOINT`` is the first checkpoint that the fork does not
share. A checkpoint is a version of a branch. The events of a checkpoint are appended with an
idempotency key, which consists of the checkpoint's id and a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import chain, groupby, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import to_builtins

from foldlog import Histories
from foldlog._base.json_types import JsonMap
from foldlog.adapters._shared import begin, standing_version
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ReadTransaction,
    VersionConflict,
)
from foldlog.eventstore.documents.values import newest_value, newest_values
from foldlog.eventstore.log.finding import Moment, query_all
from foldlog.eventstore.recorders.types import Conversation, RecalledKey
from foldlog.runtimes import REDACTED, Fields, Recent

CHECKPOINT = "checkpoint"
"""The name of the document with which a branch stores a checkpoint."""

HIDDEN = "hidden"
"""The name of the document that lists the hidden checkpoints of a thread."""

_FORKS = "/@"
"""What is between the id of a thread and the id of a checkpoint in the id of a fork."""
KEPT = 64
"""How many threads and how many branches may stay in memory."""

_id_of = attrgetter("id")


class Checkpoint(NamedTuple):
    """A version of a branch. ``value`` is the checkpoint's document, or None if the branch has no
    checkpoint yet.
    """

    branch: str
    version: int
    value: Fields | None

    @property
    def id(self) -> str:
        """The id of the checkpoint, or an empty text if the branch has no checkpoint yet."""
        return "" if self.value is None else str(self.value["id"])

    @property
    def parent(self) -> str | None:
        return None if self.value is None else self.value["parent"]

    @property
    def before(self) -> int:
        """The version of the checkpoint before this one in its branch."""
        return self.version if self.value is None else int(self.value["before"])

    @property
    def ranges(self) -> list[int] | None:
        """The ids of the records' events as joined ranges: start, stop, start, stop, and so on. A
        stop is the id after the last event of its range. The value is None if the checkpoint has
        no list of records.
        """
        return None if self.value is None else self.value["records"]

    @property
    def delta(self) -> str:
        """``WRITES`` or ``SNAPSHOT`` if the list is stored as differences, and otherwise empty."""
        return "" if self.value is None else self.value.get("delta", "")

    @property
    def removed(self) -> int:
        """The id of the last condensation that forgot records of the list, or -1."""
        return -1 if self.value is None else self.value.get("removed", -1)

    def precedes(self, parent: str | None, checkpoint_id: str) -> bool:
        """Return whether the checkpoint ``checkpoint_id`` can follow this checkpoint in a branch:
        its parent must be this checkpoint, and its id must be greater than the id of this
        checkpoint.
        """
        return self.value is not None and self.id == parent and parent < checkpoint_id


class ThreadBranch(NamedTuple):
    """A branch: its newest checkpoint, the version at which its own events begin, and the hidden
    checkpoints.

    ``documents`` are all documents of the branch, or None if only the checkpoint was read. The
    caller may change ``documents``.
    """

    tip: Checkpoint
    begins: int
    hidden: Fields | None
    documents: Fields | None = None

    @property
    def has_own(self) -> bool:
        """Whether the newest checkpoint is the branch's own, and not one that a fork shares."""
        return self.tip.value is not None and self.tip.version > self.begins


class ThreadBranches:
    """Finds and begins the branches of all threads of a store. ``attributes`` returns the
    attributes with which a conversation begins.
    """

    def __init__(self, histories: Histories, attributes: Callable[[str], JsonMap]) -> None:
        self._histories = histories
        self._store = histories.store
        self._attributes = attributes
        self._known = Recent[str, tuple[bytes | None, int, ThreadBranch]](KEPT)
        """Maps a branch to its head, its number of redactions, and its newest state. If the head or
        the number has changed, the branch is read again.
        """

    def of(self, thread: str) -> list[ThreadBranch]:
        """Return the branches of a thread, all read at one moment. A branch is taken from memory if
        it was among the last ``KEPT`` branches that were read, and has not changed since.
        """
        return query_all(self._store.database, partial(self.at_moment, thread))

    def at_moment(self, thread: str, moment: Moment) -> list[ThreadBranch]:
        """Return the branches of a thread at a moment: see ``of``."""
        branches: list[ThreadBranch] = []
        with suppress(ConversationErased, ConversationNotFound):
            first = moment.conversation(thread)
            branches.append(self._known_branch(first.state) or self._branch(first))
        forks = [fork for fork in moment.beginning_with(thread + _FORKS) if fork.erasure is None]
        branches += [
            self._known_branch(fork) or self._branch(moment.conversation(fork.id)) for fork in forks
        ]
        return branches

    def at(self, branch: str, version: int) -> Checkpoint:
        """Return the newest checkpoint of a branch at a version."""
        if not version:
            return Checkpoint(branch, 0, None)
        return self._store.query(branch, lambda reading: _tip_at(reading, version))

    def led_to(self, checkpoint: Checkpoint, limit: int) -> list[Checkpoint]:
        """Return at most ``limit`` ancestors of a checkpoint, the nearest first. All ancestors are
        read in one transaction.

        The list ends at a checkpoint whose parent is not in the branch.
        """

        def read(reading: ReadTransaction) -> list[Checkpoint]:
            line = [checkpoint]
            while len(line) <= limit and line[-1].parent is not None and line[-1].before:
                before = _tip_at(reading, line[-1].before)
                if before.id != line[-1].parent:
                    break
                line.append(before)
            return line[1:]

        return self._store.query(checkpoint.branch, read)

    def walk(self, branches: list[ThreadBranch]) -> Iterator[Checkpoint]:
        """Yield the checkpoints of branches, the newest checkpoint first. Only the yielded
        checkpoints are read.

        A checkpoint that is in two branches is yielded once.
        """
        lines = [self._line(branch) for branch in branches]
        return (next(same) for _, same in groupby(merge(*lines, key=_id_of, reverse=True), _id_of))

    def locate(self, branches: list[ThreadBranch], checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint with this id, or None if the thread does not have it.

        For a redacted checkpoint, return the last checkpoint before it that is not redacted, but
        without its channels. Return None if all earlier checkpoints are redacted too. Cost: all
        newer branches are read, unless the checkpoint is the newest of its branch.
        """
        for branch in branches:
            if branch.tip.value is not None and branch.tip.id == checkpoint_id:
                return branch.tip
        for name in sorted((branch.tip.branch for branch in branches), reverse=True):
            if appended := self.appended_for(name, checkpoint_id):
                last = appended[-1]
                checkpoint = self.at(name, last.first_id + last.events)
                return checkpoint if checkpoint.value is not None else None
        # A detached or copied fork has copies of the events that it shared, but no keys of these
        # events. So no key finds a checkpoint in such a fork. Walk back through the fork to the
        # first id that is smaller than ``checkpoint_id``.
        copies = (
            self._line(branch)
            for branch in branches
            if _FORKS in branch.tip.branch and not branch.begins
        )
        candidates = (
            takewhile(lambda checkpoint: checkpoint.id >= checkpoint_id, line) for line in copies
        )
        return next(
            (checkpoint for checkpoint in chain(*candidates) if checkpoint.id == checkpoint_id),
            None,
        )

    def appended_for(self, branch: str, checkpoint_id: str) -> list[RecalledKey]:
        """Return the appends to a branch for a checkpoint, the oldest first."""
        return query_all(
            self._store.database, lambda moment: appended_for(moment, branch, checkpoint_id)
        )

    def to_continue(self, thread: str, checkpoint_id: str, parent: str | None) -> Checkpoint:
        """Return the newest checkpoint of the branch in which a new checkpoint belongs.

        The new checkpoint belongs in a branch that ends in ``parent``, that already has the new
        checkpoint, or that was begun for it. If there is no such branch, the method begins a fork
        of the parent, or an empty branch if the parent is not stored.
        """
        branches = self.of(thread)
        name = f"{thread}{_FORKS}{checkpoint_id}"
        for tip in (branch.tip for branch in branches):
            if tip.precedes(parent, checkpoint_id) or tip.id == checkpoint_id or tip.branch == name:
                return tip
        origin = None if parent is None else self.locate(branches, parent)
        if origin is not None:
            with suppress(VersionConflict):  # another writer began the fork
                self._store.fork(origin.branch, origin.version, name, replace_erased=True)
            return self._newest_or_begin(name)
        is_thread_begun = any(
            branch.tip.branch == thread and branch.tip.value is not None for branch in branches
        )
        return self._newest_or_begin(name if is_thread_begun else thread)

    def begin(self, conversation: str) -> None:
        """Begin a conversation. If a conversation with the same id was erased, the new conversation
        replaces it.
        """
        begin(self._histories, conversation, self._attributes(conversation))

    def begin_new(self, conversation: str) -> None:
        """If there are attributes, begin the conversation with them, unless it has events."""
        with suppress(ConversationErased):
            if self._attributes(conversation) and not self._histories[conversation].version():
                self.begin(conversation)

    def _newest_or_begin(self, branch: str) -> Checkpoint:
        """Return the newest checkpoint of a branch. If the branch was erased, begin it again."""
        self.begin_new(branch)
        try:
            return self.at(branch, self._histories[branch].version())
        except ConversationErased:
            self.begin(branch)
            return self.at(branch, self._histories[branch].version())

    def _known_branch(self, conversation: Conversation) -> ThreadBranch | None:
        """Return a branch from memory, or None if it has changed since it was read."""
        cached = self._known.get(conversation.id)
        if cached is not None and cached[:2] == (conversation.head, conversation.redactions):
            # A fork that was detached in the meantime has copies of the events that it shared.
            return cached[2] if cached[2].begins == conversation.begins else None
        return None

    def _branch(self, reading: ReadTransaction) -> ThreadBranch:
        """Read a branch, and keep it in memory without its documents."""
        state = reading.state
        documents = newest_values(reading)
        value = copy_value(documents.get(CHECKPOINT))
        hidden = documents.get(HIDDEN)
        if value == REDACTED:
            documents = standing_documents(reading)
            value = _before_redacted(documents)
        if hidden == REDACTED:
            hidden = newest_values(reading, standing_version(reading, HIDDEN)).get(HIDDEN)
        branch = ThreadBranch(Checkpoint(state.id, state.version, value), state.begins, hidden)
        self._known[state.id] = state.head, state.redactions, branch
        return branch._replace(documents=documents)

    def _line(self, branch: ThreadBranch) -> Iterator[Checkpoint]:
        """Yield the branch's own checkpoints, the newest first."""
        checkpoint = branch.tip
        while checkpoint.value is not None and checkpoint.version > branch.begins:
            yield checkpoint
            if checkpoint.before <= branch.begins:
                return
            try:
                checkpoint = self.at(checkpoint.branch, checkpoint.before)
            except ConversationErased:  # The thread was deleted after its branches were read.
                return


def _tip_at(reading: ReadTransaction, version: int) -> Checkpoint:
    """Return the newest checkpoint at a version. If it is redacted, return the last checkpoint
    before it that is not, without its channels.
    """
    value = newest_value(reading, CHECKPOINT, version)
    if value == REDACTED:
        value = _before_redacted(standing_documents(reading, version))
    return Checkpoint(reading.conversation, version, value)


def standing_documents(reading: ReadTransaction, version: int | None = None) -> Fields:
    """Return the documents of a checkpoint. If the checkpoint is redacted, return the documents of
    the last earlier checkpoint that is not redacted.
    """
    documents = newest_values(reading, version)
    if documents.get(CHECKPOINT) != REDACTED:
        return documents
    return newest_values(reading, standing_version(reading, CHECKPOINT, version))


def _before_redacted(documents: Fields) -> Fields | None:
    """Return the document of the last checkpoint before a redacted checkpoint, without its
    channels, because the channels may have had other values in the redacted checkpoint.
    """
    if CHECKPOINT in documents:
        return {**copy_value(documents[CHECKPOINT]), "channels": [], "small": {}}
    return None


def appended_for(moment: Moment, conversation: str, checkpoint_id: str) -> list[RecalledKey]:
    """Return the events that were appended for a checkpoint, in order."""
    appended: list[RecalledKey] = []
    with suppress(ConversationErased, ConversationNotFound):
        reading = moment.conversation(conversation)
        while (recalled := reading.recall(note_key(checkpoint_id, len(appended)))) is not None:
            appended.append(recalled)
    return appended


def copy_value(value: Any) -> Any:
    """Return a deep copy of a JSON value, which may contain bytes."""
    return to_builtins(value, builtin_types=(bytes,))


def note_key(checkpoint_id: str, number: int) -> str:
    """Return the idempotency key of an append for a checkpoint. Notes on it are numbered too."""
    return f"{checkpoint_id} {number}"
