"""Store entries, such as messages of pydantic-ai, that name their predecessor. Linked entries form
a tree. The entries that a program adds one after the other are consecutive in the log.

An entry is a record of a format with the fields ``entry_id`` and ``parent_id``. If a program
continues after an earlier entry, a retraction removes the later entries from the View. So directly
after an entry, the View is the chain from the root to this entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, structs

from foldlog import Histories, History
from foldlog.adapters._shared import SeenConversations
from foldlog.eventstore import (
    NOT_RECORDED,
    CondensationAction,
    ConversationNotFound,
    Event,
    FoundEvent,
    Retraction,
)
from foldlog.formats import Encoder
from foldlog.runtimes import HistoryRecorder, change_of_prompt, json_of, parse

Entry = dict[str, Any]

_FEW = 8
"""The number of events that are read first to find those of an entry."""
_RETURNS = "version"
"""The key in a condensation's metadata for the version whose View the condensation restores."""


class _Link(msgspec.Struct):
    """The fields of an entry's record that link it. A redacted record has no ``parent_id``."""

    entry_id: str
    parent_id: str | UnsetType | None = UNSET


_decode_link = msgspec.json.Decoder(_Link).decode


def _link_in(text: bytes) -> _Link:
    """Return the link in the JSON of an entry."""
    try:
        return _decode_link(text)
    except msgspec.DecodeError:  # the text has NaN, or half a surrogate pair
        return msgspec.convert(parse(text), _Link)


class StoredEntry(NamedTuple):
    """An entry that the store has: its id, the id of its parent, and the JSON of its record."""

    entry_id: str
    parent_id: str | None
    text: bytes


class LinkedEntries:
    """Finds the entries of a format in all conversations of a store, and their predecessors."""

    def __init__(self, histories: Histories, format: str) -> None:
        self._histories = histories
        self.format = format

    def history(self, conversation: str) -> History:
        """Return the history of a conversation."""
        return self._histories[conversation]

    def find_event(self, entry_id: str) -> FoundEvent | None:
        """Return the first event of an entry, or None if no conversation has the entry."""
        return next(iter(self._histories.find(entry_id, format=self.format)), None)

    def chain(
        self,
        entry_id: str | None,
        limit: int | None = None,
        guard: SeenConversations | None = None,
    ) -> list[Entry]:
        """Return the chain of entries from the root of the tree to the entry ``entry_id``. With
        ``limit``, return only its last ``limit`` entries. ``guard`` notes each conversation that is
        read.

        Raises ``LookupError`` if an entry of the chain is missing in the store. Only the returned
        entries are read. If the parent of an entry is not directly before the entry in the log, the
        parent is found by a search.
        """
        return [parse(entry.text) for entry in self.back(entry_id, limit, guard)][::-1]

    def back(
        self,
        entry_id: str | None,
        limit: int | None = None,
        guard: SeenConversations | None = None,
    ) -> Iterator[StoredEntry]:
        """Yield the entries of ``chain`` in reverse order: the entry ``entry_id`` comes first."""
        next_id = entry_id
        count = 0
        while next_id is not None and count != limit:
            stored_event = self.find_event(next_id)
            if stored_event is None:
                raise KeyError(next_id)
            if guard is not None:
                guard.reads(self._histories[stored_event.conversation])
            for entry in self._back_from(stored_event):
                if entry.entry_id != next_id:
                    break  # an entry was retracted, so the wanted entry is elsewhere
                yield entry
                next_id = entry.parent_id
                count += 1
                if next_id is None or count == limit:
                    break

    def version_after(self, conversation: str, version: int, entry_id: str) -> int | None:
        """Return the version directly after an entry, or None if the conversation did not have the
        entry at ``version``.
        """
        event_ids = {
            entry.conversation: entry.event_id
            for entry in self._histories.find(entry_id, format=self.format)
        }
        name: str | None = conversation
        while event_ids and name is not None:
            if event_ids.get(name, version) < version:
                return self.read(self._histories[name], event_ids[name])[1]
            row = self._histories.store.conversation(name)
            name = row.parent
            version = min(version, row.parent_version or 0)
        return None

    def missing(
        self, conversation: str, version: int, entry_id: str, guard: SeenConversations
    ) -> list[Entry]:
        """Return the entries of a chain that the conversation did not have at ``version``.
        ``guard`` notes the conversations from which they are read. Raises ``LookupError`` if an
        entry is missing in the store.
        """
        if self.version_after(conversation, version, entry_id) is not None:
            return []
        chain = self.chain(entry_id, guard=guard)
        for index in range(len(chain) - 1, -1, -1):
            if self.version_after(conversation, version, chain[index]["entry_id"]) is not None:
                return chain[index + 1 :]
        return chain

    def fork(self, entry_id: str, conversation: str) -> int:
        """Begin a conversation as a fork after an entry. Return the version of the fork. Raises
        ``ConversationNotFound`` if the entry was erased, and the errors of ``History.fork``.
        """
        stored_event = self.find_event(entry_id)
        if stored_event is None:
            raise ConversationNotFound(conversation)
        parent = self._histories[stored_event.conversation]
        _, version = self.read(parent, stored_event.event_id)
        parent.fork(version, conversation)
        return version

    def read(self, history: History, event_id: int) -> tuple[Entry, int]:
        """Return the entry whose first event is ``event_id``, and the version directly after it.
        Raises ``LookupError`` if not all its events are there.
        """
        encoder = Encoder(self.format, stored=history._stored_records())
        for event in _from(history, event_id):
            for entry in encoder.records(event):
                return parse(self._link(json_of(entry)).text), event.id + 1
        raise LookupError(
            f"conversation {history.id!r}: the entry that begins with event {event_id} is"
            " incomplete"
        )

    def _back_from(self, stored_event: FoundEvent) -> Iterator[StoredEntry]:
        """Yield an entry and its predecessors in the log, the newest entry first."""
        history = self._histories[stored_event.conversation]
        stored = history._stored_records()
        text = stored.text_of(stored_event.event_id)
        if text is None:
            text = json_of(self.read(history, stored_event.event_id)[0])
        yield self._link(text)
        yield from map(self._link, stored.before(stored_event.event_id))

    def _link(self, text: bytes) -> StoredEntry:
        """Return an entry with the id of its parent. A redacted entry no longer has the id of its
        parent, so the parent is searched in the log.
        """
        link = _link_in(text)
        if link.parent_id is not UNSET:
            return StoredEntry(link.entry_id, link.parent_id, text)
        stored_event = self.find_event(link.entry_id)
        if stored_event is None:
            parent = None
        else:
            parent = self.tip(self._histories[stored_event.conversation], stored_event.event_id)
        return StoredEntry(link.entry_id, parent, json_of({**parse(text), "parent_id": parent}))

    def begins_at(self, conversation: str, version: int) -> int:
        """Return the version directly before the first entry. Events of other programs may be
        before it, such as the attributes and the link with which a conversation began.
        """
        for event in self._histories[conversation].events(0, version):
            if event.origin is not None and event.origin.format == self.format:
                return event.id
        return version

    def tip(self, history: History, version: int) -> str | None:
        """Return the id of the last entry at a version. Only the events after the last entry are
        read.
        """
        while version:
            (event,) = history.events(version - 1, version)
            origin = event.origin
            if origin is not None and origin.format == self.format and origin.id is not None:
                return str(origin.id)
            if isinstance(event, CondensationAction) and _RETURNS in event.metadata:
                version = event.metadata[_RETURNS]
            elif isinstance(event, Retraction):
                version = event.version
            else:
                version -= 1
        return None


def _from(history: History, event_id: int) -> Iterator[Event]:
    """Yield the events from an event on. Most entries have one or two events, so the first page is
    short.
    """
    size = _FEW
    while page := list(history.events(event_id, event_id + size)):
        yield from page
        event_id += size
        size *= 4


class Moves:
    """Collects the events that must be appended to add entries to a conversation, each after its
    parent.

    ``recorder`` must have the version of the conversation. ``tip`` is the last entry of the
    conversation's View. With ``compacts``, entries that leave the View are condensed and not
    retracted.
    """

    def __init__(
        self,
        entries: LinkedEntries,
        conversation: str,
        recorder: HistoryRecorder,
        tip: str | None,
        *,
        compacts: bool = False,
    ) -> None:
        self._compacts = compacts
        self.events: list[Event] = []
        self._entries = entries
        self._conversation = conversation
        self._recorder = recorder
        self._stored = recorder.version
        self._version = recorder.version
        self._tip = tip
        self._added: dict[str, int] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the events of entries, each after its parent. Raises ``LookupError`` if the
        conversation does not have a parent.
        """
        for entry in entries:
            self.go_to(entry["parent_id"])
            for event in self._recorder.decode(entry):
                self.events.append(structs.replace(event, id=NOT_RECORDED))
            self._tip = entry["entry_id"]
            self._version = self._stored + len(self.events)
            self._added[entry["entry_id"]] = self._version

    def go_to(self, entry_id: str | None) -> None:
        """Make an entry the last entry of the View. If the View ends with another entry, add a
        retraction. Raises ``LookupError`` if the conversation does not have the entry.
        """
        if entry_id == self._tip:
            return
        version: int | None
        if entry_id is None:
            version = self._entries.begins_at(self._conversation, self._stored)
        else:
            version = self._added.get(entry_id) or self._entries.version_after(
                self._conversation, self._stored, entry_id
            )
        if version is None:
            raise LookupError(
                f"conversation {self._conversation!r} does not have the entry {entry_id!r}"
            )
        if version != self._version:
            self.events.append(self._return_to(version))
            self._recorder.skip(1)
            self._version = self._stored + len(self.events)
        self._tip = entry_id

    def _return_to(self, version: int) -> Event:
        """Return the event after which the View is again the View of ``version``."""
        retraction = Retraction(
            version=version, reason="the conversation went on from an earlier message"
        )
        if not self._compacts or self.events:
            return retraction
        history = self._entries.history(self._conversation)
        before = [event.id for event in history.at(self._stored)]
        after = [event.id for event in history.at(version)]
        metadata = {"reason": "the runtime compacted these messages", _RETURNS: version}
        change = change_of_prompt(before, after, "compaction", metadata=metadata)
        if change is not None and set(after) <= set(before):
            return change
        return retraction
