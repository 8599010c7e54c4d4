"""Write a store as an ordinary SQLite database for auditors: tables to query, a full-text index, for Datasette too.

A second run resumes where the first ended and adds only new events. ``docs/AUDIT.md`` has example queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from sqlite_utils import Database

from foldlog._documents import AddedDocument, DamagedDocument
from foldlog._formats.rewritten import is_replacing
from foldlog._kinds import label
from foldlog._reports.audit_file import WHOLE_STORE, followed_up_to, open_database, table_of, written
from foldlog._reports.overview import copies_before
from foldlog._reports.own_ids import in_own_ids
from foldlog._reports.unreadable import caught_up, logged
from foldlog._words.texts import storable, text_of
from foldlog.eventstore import (
    Action,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    Entry,
    Erased,
    Event,
    Observation,
    Recorded,
    Redaction,
    RedactionCopied,
    Retraction,
    Store,
    StoreDamaged,
    StoreRestored,
    StoreUnavailable,
    confirm,
)
from foldlog.eventstore.codec import encode
from foldlog.projections import as_json
from foldlog.projections.stored.revision_codec import PROJECTION

_CHUNK = 1_000
_NAME = "audit database "
_SOME = "some conversations"
"""Where a file holds conversations that were named: the position that the store had when these were added."""
_REMAINS = "bytes of removed rows"
"""Named where bytes of deleted rows may be in the file."""
_OF_CONVERSATIONS = ("events", "condensations", "revisions", "damaged")
_SQLITE_BITS = 64


def update(
    store: Store,
    path: Path,
    conversations: Sequence[str] | None = None,
    on_events: Callable[[int], object] = lambda added: None,
) -> AddedDocument:
    """Update the audit database at ``path``, for some conversations, or for the whole store; make it first if it does
    not exist. Content that was erased or redacted in the store is erased there too.

    Each step is one transaction, so the next run resumes an interrupted one. An event that cannot be read is left out,
    and is named in the result and in the table ``damaged``. Raises ``NoAuditDatabase``, and
    what reading the store raises. Cost: what is new.
    """
    with closing(AuditTables(store, path)) as tables, written(path):
        if conversations is None:
            tables.catch_up(on_events)
        else:
            tables.add(conversations, on_events)
        named = len(tables.touched if conversations is None else {*conversations})
        tables.describe()
        if conversations is None:
            tables.confirm()
        return AddedDocument(
            events=tables.events,
            condensations=tables.condensations,
            conversations=named,
            damaged=tuple(dict.fromkeys(tables.damaged)),
            rebuilt=tables.was_rebuilt,
        )


def name_of(path: Path) -> str:
    """Return the name under which an audit database confirms erasures and redactions."""
    return f"{_NAME}{path.absolute()}"


class AuditTables:
    """The tables of an audit database, which apply what the store has recorded: ``apply``, then ``describe``.

    ``events``, ``condensations`` and ``damaged`` are what was met since it was opened; ``touched`` are the
    conversations to describe. One thread may apply while another one describes.
    """

    def __init__(self, store: Store, path: Path) -> None:
        self.events = self.condensations = 0
        self.damaged: list[DamagedDocument] = []
        self.touched: set[str] = set()
        self.was_rebuilt = False
        self._store, self._name = store, name_of(path)
        self._writing = threading.RLock()
        self._to_confirm = True
        """Whether something was removed from the store before the present position, and that is not confirmed."""
        self._database = open_database(store, path)
        (newest,) = self._database.execute("SELECT coalesce(max(position), 0) FROM followed").fetchone()
        if newest > store.database.last_position:  # the store was restored, and not written to since
            self._begin_again()

    @property
    def position(self) -> int:
        """The position in the store up to which it is complete."""
        with self._writing:
            return followed_up_to(self._database.conn)

    def catch_up(self, on_events: Callable[[int], object] = lambda added: None) -> int:
        """Apply what is new in the store. Return the number of added events."""
        return caught_up(self, self._store, _CHUNK, on_events)

    def apply(self, batch: Iterable[Recorded | CorruptEvent], position: int, *, after: int) -> int | None:
        """Apply what the store has between two positions, in one transaction. Return the number of added events; None
        where the file is not complete up to ``after``, because another process has changed it, or it was emptied here:
        then ``catch_up``.
        """
        before = self.events
        with self._transaction():
            if self.position != after:
                return None
            rows: list[Recorded] = []
            for one in batch:
                self.touched.add(one.conversation)
                if isinstance(one, CorruptEvent):
                    self._leave_out(DamagedDocument.of(one, event=one.event_id))
                    continue
                match one.event:
                    case Erased():
                        self._add(rows)
                        self._remove(one.conversation)
                    case StoreRestored(after=kept) if after > kept:  # it holds what the store lost
                        self._begin_again()
                        return None
                    case RedactionCopied(event_ids=ids):
                        self._add(rows)
                        self._replace(one.conversation, ids)
                    case Entry():
                        pass  # the row of the conversation says it
                    case event:
                        rows.append(one)
                        if isinstance(event, Redaction):
                            self._add(rows)
                            self._replace(one.conversation, event.event_ids)
            self._add(rows)
            self.touched.discard("")
            self._follow(WHOLE_STORE, position)
        return self.events - before

    def add(self, conversations: Iterable[str], on_events: Callable[[int], object] = lambda added: None) -> None:
        """Add the events of some conversations that it does not have, whatever the position is."""
        for name in dict.fromkeys(conversations):
            known = "SELECT state FROM conversations WHERE id = ?"
            row = self._database.execute(known, [storable(name)]).fetchone()
            with self._transaction():
                if row is not None and row[0] != self._state(name):
                    self._remove(name)
                self._follow(_SOME, self._store.database.last_position)
            entries = _missing(self._store, self._database, name)
            while chunk := list(islice(entries, _CHUNK)):
                with self._transaction():
                    for one in chunk:
                        if isinstance(one, CorruptEvent):
                            self._leave_out(DamagedDocument.of(one, event=one.event_id))
                    self._add([one for one in chunk if isinstance(one, Recorded)])
                on_events(len(chunk))
            self.touched.add(name)

    def describe(self) -> int:
        """Write the rows of the conversations that were touched, and their revisions; for an erased one only its
        tombstone. Remove the bytes of what was removed. Return the number of these conversations.
        """
        with self._writing:
            touched, self.touched = self.touched, set()
            touched |= {name for (name,) in self._database.execute("SELECT conversation FROM damaged")}
            for name in sorted(touched):
                try:
                    with self._transaction(), suppress(ConversationNotFound):
                        self._describe(name)
                    continue
                except CorruptEvent as error:
                    lost = DamagedDocument.of(error, event=error.event_id)
                except StoreDamaged as error:
                    lost = DamagedDocument(conversation=name, event=0, problem=str(error))
                self._to_confirm = True  # what was erased of it may still be here
                self.touched.add(name)
                if lost not in self.damaged:
                    self.damaged.append(lost)
            self._purge()
            return len(touched)

    def confirm(self) -> None:
        """Record in the store that what was removed before the present position is removed here, if it is."""
        with self._writing:
            due, position = self._to_confirm and not self.touched, followed_up_to(self._database.conn)
            self._to_confirm = self._to_confirm and not due
        if due and self._store.database.recorder.writable:
            confirm(self._store, self._name, position)

    def refresh(self) -> None:
        """Describe the conversations that have new events, and confirm what was removed."""
        self.describe()
        self.confirm()

    def close(self) -> None:
        with self._writing:
            self._database.close()

    # -- steps --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._writing, self._database.conn as connection:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            yield

    def _follow(self, scope: str, position: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO followed VALUES (?, ?)", [scope, position])

    def _begin_again(self) -> None:
        with self._transaction():
            for table in (*_OF_CONVERSATIONS, "conversations", "followed"):
                self._database.execute(f"DELETE FROM {table}")
            self._follow(_REMAINS, 0)
        self.was_rebuilt = self._to_confirm = True

    def _add(self, rows: list[Recorded]) -> None:
        self.condensations += add_events(self._store, self._database, rows)
        self.events += len(rows)
        rows.clear()

    def _leave_out(self, lost: DamagedDocument) -> None:
        row = {"conversation": storable(lost.conversation), "id": lost.event, "problem": lost.problem}
        table_of(self._database, "damaged").insert(row, replace=True)
        self.damaged.append(lost)

    def _remove(self, conversation: str) -> None:
        for table in _OF_CONVERSATIONS:
            done = self._database.execute(f"DELETE FROM {table} WHERE conversation = ?", [storable(conversation)])
            if done.rowcount:
                self._follow(_REMAINS, 0)
        self._to_confirm = True

    def _replace(self, conversation: str, event_ids: Sequence[int]) -> None:
        """Replace redacted events, in forks too."""
        self._to_confirm = True
        known = "SELECT taken_back FROM events WHERE conversation = ? AND id = ?"
        forks = list[str]()
        with suppress(ConversationErased, ConversationNotFound):  # that entry comes later
            forks = self._store.forks_sharing(conversation, min(event_ids, default=0))
        for name in (conversation, *forks):
            for event_id in event_ids:
                if row := self._database.execute(known, [storable(name), event_id]).fetchone():
                    with suppress(ConversationErased):  # that entry comes later
                        again = [Recorded(0, name, *one) for one in self._store.log(name, event_id, event_id + 1)]
                        add_events(self._store, self._database, again)
                    if row[0]:
                        _take_back(self._database, name, event_id, event_id)
                    self._follow(_REMAINS, 0)

    def _purge(self) -> None:
        """Remove the bytes of deleted rows from the index and from free pages, unless that was done."""
        database = self._database
        if not database.execute("SELECT 1 FROM followed WHERE scope = ?", [_REMAINS]).fetchone():
            return
        for table in ("events", "condensations"):
            table_of(database, table).rebuild_fts()
        database.vacuum()
        (busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreUnavailable(
                f"the {self._name} is being read, so deleted rows stay in its log; try again when its readers end",
                kind="read",
            )
        with self._transaction():
            database.execute("DELETE FROM followed WHERE scope = ?", [_REMAINS])

    def _state(self, conversation: str) -> str:
        """Return a text that changes where rows that are here may be wrong: with each redaction, and where the id of an
        erased conversation is used again.
        """
        with suppress(ConversationErased):
            return self._store.query(conversation, lambda reading: f"{reading.key} {reading.redactions}")
        return "erased"

    def _describe(self, conversation: str) -> None:
        row, name = self._store.conversation(conversation), storable(conversation)
        if row.erased_at is not None:
            self._remove(conversation)
        else:
            known = self._database.execute("SELECT max(version) FROM revisions WHERE conversation = ?", [name])
            after = known.fetchone()[0] or 0
            made = self._store.query(conversation, lambda reading: list(reading.records(PROJECTION, after)))
            revisions = [
                {"conversation": name, "version": r.version, "code": r.code, "base": r.base, "bytes": len(r.body)}
                for r in made
            ]
            table_of(self._database, "revisions").insert_all(revisions, replace=True)
        described = {
            "id": name,
            "version": row.version,
            "created_at": row.created_at.isoformat(),
            "updated_at": row.updated_at.isoformat(),
            "head": row.head,
            "erased_at": row.erased_at and row.erased_at.isoformat(),
            "erased_reason": row.erased_reason,
            "state": self._state(conversation),
        }
        table_of(self._database, "conversations").insert(described, replace=True)


def _missing(store: Store, database: Database, conversation: str) -> Iterator[Recorded | CorruptEvent]:
    """Yield the events of one conversation that the database does not have, and an error in the place of an event that
    cannot be read. A fork that was detached may lack its first events. Yield nothing for an erased conversation.
    """
    known = (
        "SELECT id FROM events WHERE conversation = ? UNION SELECT id FROM damaged WHERE conversation = ? ORDER BY 1"
    )
    ids = [each for (each,) in database.execute(known, [storable(conversation)] * 2)]
    try:
        row = store.conversation(conversation)
    except CorruptEvent as error:
        yield error
        return
    first = ids[0] if ids and row.parent is not None else 0  # shared events may be there as those of its parent
    start = next((wanted for wanted, each in enumerate(ids, first) if each != wanted), first + len(ids))
    there = set(ids[start - first :])
    for one in logged(store, conversation, start) if row.erased_at is None else ():
        if isinstance(one, CorruptEvent):
            if one.event_id not in there:
                yield one
        elif one.event.id not in there:
            yield Recorded(0, conversation, *one)


def add_events(store: Store, database: Database, recorded: Sequence[Recorded]) -> int:
    """Add events. Return how many of them are condensations."""
    # In a conversation with the id of an erased one, the same ids name other events.
    condensations = [one for one in recorded if label(one.event) == "condensation"]
    in_ids = {name: in_own_ids(store, name) for name in {one.conversation for one in condensations}}
    table_of(database, "events").insert_all([_event_row(*one[1:]) for one in recorded], replace=True)
    rows = [_condensation_row(name, at, in_ids[name](event)) for _, name, at, event in condensations]
    table_of(database, "condensations").insert_all(rows, replace=True)
    for one in recorded:
        if isinstance(one.event, Retraction) and is_replacing(one.event):
            _take_back(database, one.conversation, one.event.version, one.event.id)
        elif copies := copies_before(one.event):
            _take_back(database, one.conversation, one.event.id - copies, one.event.id - 1)
    return len(condensations)


def _take_back(database: Database, conversation: str, first: int, last: int) -> None:
    """Mark events that an import took back, and copies: figures count neither, see ``counted_in``."""
    imported = "SELECT id FROM events WHERE conversation = ? AND id BETWEEN ? AND ? AND body ->> 'origin' IS NOT NULL"
    for table in ("events", "condensations"):
        marked = f"UPDATE {table} SET taken_back = 1 WHERE conversation = ? AND id IN ({imported})"
        database.execute(marked, [storable(conversation), storable(conversation), first, last])


def _event_row(conversation: str, recorded_at: datetime, event: Event) -> dict[str, Any]:
    stored = encode(event, ours=True)
    return {
        "conversation": storable(conversation),
        "id": event.id,
        "kind": stored.kind,
        "source": event.source,
        "shown": stored.shown,
        "recorded_at": recorded_at.isoformat(),
        "timestamp": event.timestamp and event.timestamp.isoformat(),
        "tool": storable(event.tool) if isinstance(event, Action | Observation) else None,
        "call_id": storable(event.call_id) if isinstance(event, Action | Observation) and event.call_id else None,
        "cause": _number(event.cause),
        "is_error": event.is_error if isinstance(event, Observation) else None,
        "taken_back": 0,
        "text": storable(text_of(event)),
        "body": stored.body.decode(),
    }


def _condensation_row(conversation: str, recorded_at: datetime, event: Any) -> dict[str, Any]:
    intervals, summaries = event.forgotten
    metadata = event.metadata
    return {
        "conversation": storable(conversation),
        "id": event.id,
        "recorded_at": recorded_at.isoformat(),
        "reason": _plain(metadata.get("reason")),
        "outcome": _plain(metadata.get("outcome")),
        "forgotten": msgspec.json.encode([*intervals, *((i, i) for i in summaries)]).decode(),
        "forgotten_count": _number(sum(last - first + 1 for first, last in intervals) + len(summaries)),
        "summary": None if event.summary is None else storable(event.summary),
        "summary_offset": _number(event.summary_offset),
        "tokens_before": _number(metadata.get("tokens_before")),
        "tokens_after": _number(metadata.get("tokens_after")),
        "model": _plain(metadata.get("model", event.meta.get("model"))),
        "cost": _number(metadata.get("cost", event.meta.get("cost"))),
        "taken_back": 0,
        "metadata": storable(as_json(metadata)),
    }


def _plain(value: Any) -> str | None:
    return None if value is None else storable(as_json(value))


def _number(value: Any) -> int | float | str | None:
    """Return a number that SQLite can hold; any other value as text."""
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _SQLITE_BITS):
        return value
    return _plain(value)
