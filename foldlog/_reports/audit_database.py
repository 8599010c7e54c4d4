"""This module writes a store as an ordinary SQLite database for auditors. The database has tables
and a full-text index, and can be opened in Datasette.

A second run continues after the first run, and adds only new events. ``docs/AUDIT.md`` has example
queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlite_utils import Database

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._reports.answers.files import AddedDocument, DamagedDocument
from foldlog._reports.audit_file import (
    RULE_OF_MARKS,
    WHOLE_STORE,
    followed_up_to,
    open_database,
    table_of,
    written,
)
from foldlog._reports.audit_tables import REFUSED_BY_SQLITE, Changes, Derived, add_each
from foldlog._reports.figures.overview import (
    changes_of_counts,
    copies_before,
    counted_in,
    is_placed,
)
from foldlog._reports.v0_ids import in_own_ids
from foldlog._reports.words.texts import storable, text_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    Event,
    Observation,
    Recorded,
    Retraction,
    Store,
    StoreDamaged,
    StoreUnavailable,
    confirm,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.usage import PLACED_FROM
from foldlog.formats.repeated_events import is_replacing
from foldlog.projections import as_json
from foldlog.projections.conversations.labels import label
from foldlog.projections.conversations.unreadable import iter_log
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision_codec import PROJECTION

_CHUNK = 1_000
_NAME = "audit database "
_SOME = "some conversations"
"""The scope, in the table ``followed``, of runs that export only named conversations."""
_REMAINS = "bytes of removed rows"
"""While the table ``followed`` has a row with this scope, the file may still contain bytes of
deleted rows. Each deletion writes the row, so the next run can complete an interrupted deletion.
"""
_CONVERSATION_TABLES = ("events", "condensations", "revisions", "damaged")
_SQLITE_BITS = 64


def update(
    store: Store,
    path: Path,
    conversations: Sequence[str] | None = None,
    on_events: Callable[[int], object] = lambda added: None,
) -> AddedDocument:
    """Add new events to an audit database, and erase content that the store has erased or redacted.

    The function uses several transactions, so the next run can continue an interrupted run. An
    event that cannot be read is left out. The result and the table ``damaged`` list the events that
    cannot be read. Raises ``NoAuditDatabase`` if the file cannot be used. Also raises the errors of
    the store. Cost: the function reads the new events.
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
    return f"{_NAME}{path.absolute()}"


class AuditRow(NamedTuple):
    """A recorded event, with its rows in the tables ``events`` and, if it forgot something,
    ``condensations``.
    """

    recorded: Recorded
    event: JsonObject
    condensation: JsonObject | None


class AuditTables(Derived[AuditRow]):
    """The tables of an audit database, which follow the store. First call ``apply`` with recorded
    events, then ``describe``.

    Since the audit database was opened, ``events`` and ``condensations`` rows were added, and the
    ``damaged`` events could not be read. ``touched`` are the conversations to describe.
    """

    batch_size = _CHUNK

    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store)
        self.events = 0
        self.condensations = 0
        self.damaged: list[DamagedDocument] = []
        self.touched: set[str] = set()
        self.was_rebuilt = False
        self._name = name_of(path)
        self._own_ids: dict[str, Callable[[Event], Event]] = {}
        self._states: dict[str, str] = {}
        """Maps a conversation to its state before its events were read. If an event is redacted
        during the reading, the state changes, and the next run adds the conversation again.
        """
        self._to_confirm = True
        """Whether this run must confirm to the store that erased content was removed. An earlier
        run may have ended before it confirmed the removal.
        """
        self._database = open_database(store, path)
        try:
            self._begin_again_after_a_restore()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        return followed_up_to(self._database.conn)

    def row_of(self, recorded: Recorded) -> AuditRow:
        """Return the rows of an event. Only a condensation that was made also has a row in the
        table of condensations.
        """
        event = _event_row(*recorded[1:])
        condensation = None
        is_condensation = isinstance(recorded.event, CondensationAction)
        if is_condensation and label(recorded.event) == "condensation":
            name = recorded.conversation
            # These functions are cached only while one batch of events is added, because a new
            # conversation may later get the id of an erased conversation.
            in_ids = self._own_ids.setdefault(name, in_own_ids(self.store, name))
            condensation = _condensation_row(name, recorded.recorded_at, in_ids(recorded.event))
        return AuditRow(recorded, event, condensation)

    def write(self, changes: Changes[AuditRow], position: int, *, after: int) -> int | None:
        events = self.events
        condensations = self.condensations
        try:
            with self._transaction():
                if self.position != after:
                    return None
                for name, _, ids in changes.removals:
                    if ids is None:
                        self._remove(name)
                    else:
                        self._replace(name, sorted(ids))
                self._add(changes)
                self.touched |= changes.conversations - {""}
                self._follow(WHOLE_STORE, position)
        except BaseException:
            # Ctrl-C may end a batch, which then adds nothing.
            self.events = events
            self.condensations = condensations
            raise
        return self.events - events

    def add(
        self, conversations: Iterable[str], on_events: Callable[[int], object] = lambda added: None
    ) -> None:
        """Add the events of named conversations that the tables do not have yet. If events of a
        conversation were redacted since they were added, all its events are added again.
        """
        for name in dict.fromkeys(conversations):
            query = "SELECT state FROM conversations WHERE id = ?"
            row = self._database.execute(query, [storable(name)]).fetchone()
            state = None if row is None else row[0]
            with suppress(CorruptEvent, StoreDamaged):  # ``_missing`` yields this error.
                state = self._states[name] = self._state(name)
            with self._transaction():
                if row is not None and row[0] != state:
                    self._remove(name)
                self._follow(_SOME, self.store.database.last_position)
            entries = _missing(self.store, self._database, name)
            while chunk := list(islice(entries, _CHUNK)):
                changes = self.changes_of(chunk)
                with self._transaction():
                    self._add(changes)
                on_events(len(chunk))
            self.touched.add(name)

    def describe(self) -> int:
        """Write the rows of the touched conversations into the table ``conversations``, and remove
        the bytes of deleted rows. For an erased conversation, only its tombstone is described.
        Return the number of conversations.
        """
        self._renew_marks()
        touched = self.touched
        self.touched = set()
        touched |= {name for (name,) in self._database.execute("SELECT conversation FROM damaged")}
        for name in sorted(touched):
            try:
                # If the conversation was just erased, the entry of the erasure follows and
                # removes it.
                with suppress(ConversationErased, ConversationNotFound), self._transaction():
                    self._describe(name)
                continue
            except CorruptEvent as error:
                lost = DamagedDocument.of(error, event=error.event_id)
            except StoreDamaged as error:
                lost = DamagedDocument(conversation=name, event=0, problem=str(error))
            # Erased content of this conversation may still be in the database.
            self._to_confirm = True
            self.touched.add(name)
            if lost not in self.damaged:
                self.damaged.append(lost)
        self._purge()
        return len(touched)

    def confirm(self) -> None:
        """Tell the store that the tables no longer contain what it has erased, unless a
        conversation could not be described.
        """
        if self.touched or not (self._to_confirm and self.store.database.recorder.writable):
            return
        confirm(self.store, self._name, self.position)
        self._to_confirm = False

    def refresh(self) -> None:
        self.describe()
        self.confirm()

    def close(self) -> None:
        self._database.close()

    # -- steps ------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._database.conn as connection:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            yield

    def _follow(self, scope: str, position: int) -> None:
        """Note up to which position the events of a scope are in the tables."""
        self._database.execute("INSERT OR REPLACE INTO followed VALUES (?, ?)", [scope, position])

    def _mark_remains(self) -> None:
        """Note that rows were deleted, whose bytes ``_purge`` has to remove: see ``_REMAINS``."""
        self._follow(_REMAINS, 0)

    def _begin_again_after_a_restore(self) -> None:
        """Empty the tables if the store was restored, and no event was appended since then."""
        (newest,) = self._database.execute(
            "SELECT coalesce(max(position), 0) FROM followed"
        ).fetchone()
        if newest > self.store.database.last_position:
            self.begin_again()

    def begin_again(self) -> None:
        """Empty the tables, so that the next run adds all events again."""
        with self._transaction():
            for table in (*_CONVERSATION_TABLES, "conversations", "followed"):
                self._database.execute(f"DELETE FROM {table}")
            self._mark_remains()
            self._follow(RULE_OF_MARKS, 0)
        self.was_rebuilt = self._to_confirm = True

    def _add(self, changes: Changes[AuditRow]) -> None:
        """Insert rows, and note the events that could not be read or that SQLite refuses."""
        left_out = [
            *changes.left_out,
            *add_each(changes.rows, self._insert, self._database.atomic, REFUSED_BY_SQLITE),
        ]
        for problem in left_out:
            row = {
                "conversation": storable(problem.conversation),
                "id": problem.event,
                "problem": problem.problem,
            }
            table_of(self._database, "damaged").insert(row, replace=True)
            self.damaged.append(DamagedDocument.of(problem))
        self._own_ids.clear()

    def _insert(self, rows: Sequence[AuditRow]) -> None:
        """Insert rows, mark the events that they take back or repeat, and count what was added.
        Cost: if an import takes back or repeats events, the method reads these events again.
        """
        condensations = [row.condensation for row in rows if row.condensation is not None]
        _insert_rows(self._database, "events", [row.event for row in rows])
        _insert_rows(self._database, "condensations", condensations)
        changed = {
            row.recorded.conversation
            for row in rows
            if isinstance(row.recorded.event, Retraction) or copies_before(row.recorded.event)
        }
        for name in changed:
            ids = [row.recorded.event.id for row in rows if row.recorded.conversation == name]
            self._mark_uncounted(name, min(ids))
        self.events += len(rows)
        self.condensations += len(condensations)

    def _renew_marks(self) -> None:
        """If an earlier version of foldlog marked the events by another rule, mark them again."""
        query = "SELECT 1 FROM followed WHERE scope = ?"
        if self._database.execute(query, [RULE_OF_MARKS]).fetchone():
            return
        query = (
            "SELECT DISTINCT conversation FROM events"
            " WHERE taken_back OR kind IN ('retraction', 'condensation')"
            f" OR body LIKE '%\"{PLACED_FROM}\"%'"
        )
        for (name,) in self._database.execute(query).fetchall():
            # The marks of a conversation that cannot be read stay.
            with suppress(StoreDamaged), self._transaction():
                self._mark_uncounted(name, 0)
        with self._transaction():
            self._follow(RULE_OF_MARKS, 0)

    def _mark_uncounted(self, conversation: str, first_new: int) -> None:
        """Mark the events that figures do not count, by ``counted_in``. ``first_new`` is the first
        event whose mark is missing or may be wrong. Cost: the method reads the events from there
        on, and the earlier events that their retractions reach.
        """
        query = "SELECT max(id) + 1 FROM events WHERE conversation = ?"
        (version,) = self._database.execute(query, [storable(conversation)]).fetchone()
        structural = list[Event]()
        # The figures of a conversation whose structural events cannot be read count all events.
        # If the conversation was just erased, the entry of the erasure follows.
        with suppress(ConversationErased, ConversationNotFound, CorruptEvent):
            structural = self.store.query(
                conversation, lambda reading: [*reading.structural_events(0, version)]
            )
        changes = changes_of_counts(structural)
        # Without such events, only marks that were made by an earlier rule can be wrong.
        if first_new and not any(is_replacing(event) or copies_before(event) for event in changes):
            return
        start = _first_reached(changes, first_new)
        counts_event = counted_in(changes, version)
        uncounted_ids = set[int]()
        with suppress(ConversationErased, ConversationNotFound):
            uncounted_ids = {
                item.event.id
                for item in _iter_recorded(self.store, conversation, start, version)
                if isinstance(item, Recorded) and not counts_event(item.event)
            }
        query = "SELECT id FROM events WHERE conversation = ? AND id >= ? AND taken_back"
        marked = self._database.execute(query, [storable(conversation), start])
        marked_ids = {event_id for (event_id,) in marked}
        # Each update also writes the index of texts, so only differences are written.
        for event_id in sorted(marked_ids ^ uncounted_ids):
            self._mark_taken_back(conversation, event_id, event_id in uncounted_ids)

    def _mark_taken_back(self, conversation: str, event_id: int, is_taken_back: bool) -> None:
        for table in ("events", "condensations"):
            self._database.execute(
                f"UPDATE {table} SET taken_back = ? WHERE conversation = ? AND id = ?",
                [int(is_taken_back), storable(conversation), event_id],
            )

    def _remove(self, conversation: str) -> None:
        """Delete all rows about the events of a conversation."""
        for table in _CONVERSATION_TABLES:
            deletion = self._database.execute(
                f"DELETE FROM {table} WHERE conversation = ?", [storable(conversation)]
            )
            if deletion.rowcount:
                self._mark_remains()
        self._to_confirm = True

    def _replace(self, conversation: str, event_ids: Sequence[int]) -> None:
        """Write redacted events again, in the conversation and in the forks that share them."""
        self._to_confirm = True
        query = "SELECT taken_back FROM events WHERE conversation = ? AND id = ?"
        forks = list[str]()
        # If the conversation was just erased, the entry of the erasure follows.
        with suppress(ConversationErased, ConversationNotFound):
            forks = self.store.forks_sharing(conversation, min(event_ids, default=0))
        for name in (conversation, *forks):
            for event_id in event_ids:
                if row := self._database.execute(query, [storable(name), event_id]).fetchone():
                    self._mark_remains()
                    for table in ("events", "condensations"):
                        self._database.execute(
                            f"DELETE FROM {table} WHERE conversation = ? AND id = ?",
                            [storable(name), event_id],
                        )
                    with suppress(ConversationErased):  # The entry of the erasure comes later.
                        self._add(
                            self.changes_of(
                                _iter_recorded(self.store, name, event_id, event_id + 1)
                            )
                        )
                    if row[0]:
                        self._mark_taken_back(name, event_id, True)

    def _purge(self) -> None:
        """Remove the bytes of deleted rows from the file. Raises ``StoreUnavailable`` if another
        program reads the file, because its log then keeps the bytes.
        """
        database = self._database
        if not database.execute("SELECT 1 FROM followed WHERE scope = ?", [_REMAINS]).fetchone():
            return
        for table in ("events", "condensations"):
            table_of(database, table).rebuild_fts()
        database.vacuum()
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreUnavailable(
                f"the {self._name} has open readers, so deleted rows stay in its log; try again "
                f"when they are closed",
                kind="read",
            )
        with self._transaction():
            database.execute("DELETE FROM followed WHERE scope = ?", [_REMAINS])

    def _state(self, conversation: str) -> str:
        """Return a text that changes with a redaction, and when a new conversation gets the id of
        an erased conversation.
        """
        with suppress(ConversationErased):
            return self.store.query(
                conversation, lambda reading: f"{reading.key} {reading.redactions}"
            )
        return "erased"

    def _describe(self, conversation: str) -> None:
        """Write the row of a conversation, and the rows of its new revisions."""
        row = self.store.conversation(conversation)
        name = storable(conversation)
        if row.erased_at is not None:
            self._remove(conversation)
        else:
            newest = self._database.execute(
                "SELECT max(version) FROM revisions WHERE conversation = ?", [name]
            )
            after = newest.fetchone()[0] or 0
            stored_revisions = self.store.query(
                conversation, lambda reading: list(reading.records(PROJECTION, after))
            )
            revisions = [
                {
                    "conversation": name,
                    "version": revision.version,
                    "code": revision.code,
                    "bytes": len(revision.body),
                }
                for revision in stored_revisions
            ]
            _insert_rows(self._database, "revisions", revisions)
        described = {
            "id": name,
            "version": row.version,
            "created_at": row.created_at.isoformat(),
            "updated_at": row.updated_at.isoformat(),
            "head": row.head,
            "erased_at": None if row.erased_at is None else row.erased_at.isoformat(),
            "erased_reason": row.erased_reason,
            "state": self._states.pop(conversation, None) or self._state(conversation),
        }
        table_of(self._database, "conversations").insert(described, replace=True)


def _first_reached(changes: Sequence[Event], first_new: int) -> int:
    """Return the first event whose mark may differ after the events from ``first_new`` on. A
    retraction may bring back what an earlier retraction after its target took back, so the targets
    of these earlier retractions are reached too. ``changes`` are in the order of their ids.
    """
    first = first_new
    for event in reversed(changes):
        if event.id < first:
            break
        reached = (
            target(event) if isinstance(event, Retraction) else event.id - copies_before(event)
        )
        first = min(first, reached)
    return max(first, 0)


def _missing(
    store: Store, database: Database, conversation: str
) -> Iterator[Recorded | CorruptEvent]:
    """Yield the events that the database does not have yet. For an event that cannot be read, yield
    an error. In a detached fork, the first events may be missing too, not only the newest.
    """
    query = (
        "SELECT id FROM events WHERE conversation = ? UNION SELECT id FROM damaged WHERE"
        " conversation = ? ORDER BY 1"
    )
    known_ids = [row[0] for row in database.execute(query, [storable(conversation)] * 2)]
    try:
        row = store.conversation(conversation)
    except CorruptEvent as error:
        yield error
        return
    if row.erased_at is not None:
        return
    # The database may have the shared events of a fork as events of its parent. So the first id to
    # look for is the first id that the database has of the fork.
    first_id = known_ids[0] if known_ids and row.parent is not None else 0
    # Read from the first missing id on, and leave out the events that the database already has.
    gap = first_id
    for known_id in known_ids:
        if known_id != gap:
            break
        gap += 1
    known_after_gap = set(known_ids[gap - first_id :])
    for item in _iter_recorded(store, conversation, gap):
        event_id = item.event_id if isinstance(item, CorruptEvent) else item.event.id
        if event_id not in known_after_gap:
            yield item


def _iter_recorded(
    store: Store, conversation: str, start: int, stop: int | None = None
) -> Iterator[Recorded | CorruptEvent]:
    for entry in iter_log(store, conversation, start, stop):
        yield entry if isinstance(entry, CorruptEvent) else Recorded(0, conversation, *entry)


def _event_row(conversation: str, recorded_at: datetime, event: Event) -> JsonObject:
    """Return the row of an event."""
    stored = encode(event, ours=True)
    tool: str | None = None
    call_id: str | None = None
    if isinstance(event, Action | Observation):
        tool = storable(event.tool)
        call_id = storable(event.call_id) if event.call_id else None
    return {
        "conversation": storable(conversation),
        "id": event.id,
        "kind": stored.kind,
        "source": event.source,
        "shown": stored.shown,
        "recorded_at": recorded_at.isoformat(),
        "timestamp": None if event.timestamp is None else event.timestamp.isoformat(),
        "tool": tool,
        "call_id": call_id,
        "cause": _number(event.cause),
        "is_error": label(event) == "error" if isinstance(event, Observation) else None,
        "taken_back": int(is_placed(event)),
        "text": storable(text_of(event)),
        "body": stored.body.decode(errors="replace"),
    }


def _condensation_row(conversation: str, recorded_at: datetime, event: Any) -> JsonObject:
    """Return the row of a condensation."""
    intervals, summaries = event.forgotten
    metadata = event.metadata
    return {
        "conversation": storable(conversation),
        "id": event.id,
        "recorded_at": recorded_at.isoformat(),
        "reason": _plain(metadata.get("reason")),
        "outcome": _plain(metadata.get("outcome")),
        "forgotten": msgspec.json.encode([*intervals, *((i, i) for i in summaries)]).decode(),
        "forgotten_count": _number(
            sum(last - first + 1 for first, last in intervals) + len(summaries)
        ),
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
    """Return a value of metadata, which may have any type, as a text for a column."""
    return None if value is None else storable(as_json(value))


def _number(value: Any) -> int | float | str | None:
    """Return a value as a number, or as a text if it is none, or too large for SQLite."""
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _SQLITE_BITS):
        return value
    return _plain(value)


def _insert_rows(database: Database, table: str, rows: Sequence[JsonMap]) -> None:
    """Insert rows that all have the columns of the first row, in the same order. ``insert_all`` of
    sqlite-utils takes five times as long.
    """
    if not rows:
        return
    names = [*rows[0]]
    columns = ", ".join(f'"{name}"' for name in names)
    placeholders = f"({', '.join('?' * len(names))})"
    # SQLite writes a part of the index of texts after each statement, and later joins these parts,
    # so one statement for each row would take twice as long. A chunk of 1,000 rows has at most
    # 15,000 values, and SQLite accepts 32,766.
    for start in range(0, len(rows), _CHUNK):
        page = rows[start : start + _CHUNK]
        database.execute(
            f'INSERT OR REPLACE INTO "{table}" ({columns})'
            f" VALUES {', '.join([placeholders] * len(page))}",
            list(chain.from_iterable(row.values() for row in page)),
        )
