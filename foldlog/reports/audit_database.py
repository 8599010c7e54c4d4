"""Write a store as an ordinary SQLite database for auditors: tables to query, a full-text index, for Datasette too.

A second run resumes where the first ended and adds only new events. ``docs/AUDIT.md`` has example queries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlite_utils import Database

from foldlog.eventstore import (
    Action,
    CondensationAction,
    ConversationRow,
    CorruptEvent,
    Entry,
    Event,
    Observation,
    Recorded,
    Redaction,
    Store,
    StoreUnusable,
    confirm,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.maintenance import damage, erase
from foldlog.projections.stored.revision_codec import PROJECTION
from foldlog.reports.audit_file import WHOLE_STORE, followed_up_to, open_database, table_of, written
from foldlog.reports.unreadable import followed, logged
from foldlog.words.texts import as_json, storable, text_of

_CHUNK = 1_000
_NAME = "audit database "
_SQLITE_BITS = 64


class Damaged(NamedTuple):
    """An event that could not be read, and why."""

    conversation: str
    id: int
    problem: str


class Updated(NamedTuple):
    """The outcome of one run: what it added, and which events it had to leave out."""

    events: int
    condensations: int
    conversations: int
    damaged: tuple[Damaged, ...] = ()


def update(
    store: Store,
    path: Path,
    conversations: Sequence[str] | None = None,
    on_events: Callable[[int], None] = lambda added: None,
) -> Updated:
    """Update the audit database at ``path``, for some conversations, or for the whole store; make it first if it does
    not exist. Content that was erased or redacted in the store is erased there too.

    Each step is one transaction, so the next run resumes an interrupted one. An event that cannot be read is left out,
    and is named in the result and in the table ``damaged``. Raises ``NoAuditDatabase``, ``AuditDatabaseMismatch``,
    ``AuditDatabaseAhead``, and what reading the store raises. Cost: what is new, and the list of the store's
    conversations.
    """
    is_whole = False
    with closing(open_database(store, path)) as database:
        with written(path):
            if conversations is None:
                entries = followed(store, followed_up_to(database.conn))
                added, touched, gone = _add_all(store, database, entries, on_events, follows=True)
                erased, is_whole = erased_in(store)
                touched |= erased
            else:
                named = dict.fromkeys(conversations)
                entries = (one for name in named for one in _missing(store, database, name))
                added, touched, gone = _add_all(store, database, entries, on_events, follows=False)
                added, touched = added._replace(conversations=len(named)), {*named}
            more, lost = describe(store, database, touched)
            gone |= more
        if gone:
            purge(database)
        if is_whole and not lost and store.database.recorder.writable:
            confirm(store, name_of(path), followed_up_to(database.conn))
        return added._replace(damaged=tuple(dict.fromkeys((*added.damaged, *lost))))


def name_of(path: Path) -> str:
    """Return the name under which an audit database confirms erasures and redactions."""
    return f"{_NAME}{path.absolute()}"


def path_of(name: str) -> Path | None:
    """Return the path of the audit database that confirms under a name; None for another read model."""
    return Path(name.removeprefix(_NAME)) if name.startswith(_NAME) else None


def _add_all(
    store: Store,
    database: Database,
    entries: Iterator[Recorded | CorruptEvent],
    on_events: Callable[[int], None],
    *,
    follows: bool,
) -> tuple[Updated, set[str], bool]:
    """Add new events. ``follows``: they are those of the whole store, by position. Return what was added, the
    conversations of these events, and whether anything was erased.
    """
    gone = False
    events = condensations = 0
    damaged: list[Damaged] = []
    touched: set[str] = set()
    while chunk := list(islice(entries, _CHUNK)):
        lost, rows = damaged_among(chunk), events_among(chunk)
        with database.conn:
            condensations += add_events(database, rows, lost)
            gone |= replace_redacted(store, database, rows)
            if follows:
                present = {"scope": WHOLE_STORE, "position": chunk[-1].position}
                table_of(database, "followed").upsert(present, pk="scope")
        events += len(rows)
        damaged += lost
        touched.update(one.conversation for one in chunk if one.conversation)
        on_events(len(chunk))
    return Updated(events, condensations, len(touched), tuple(damaged)), touched, gone


def damaged_among(entries: Iterable[Recorded | CorruptEvent]) -> list[Damaged]:
    """Return the events among the entries that cannot be read."""
    return [Damaged(e.conversation, e.event_id, e.problem) for e in entries if isinstance(e, CorruptEvent)]


def events_among(entries: Iterable[Recorded | CorruptEvent]) -> list[tuple[str, datetime, Event]]:
    """Return the events among the entries that a follower met. ``describe`` removes erased conversations."""
    return [
        (one.conversation, one.recorded_at, one.event)
        for one in entries
        if isinstance(one, Recorded) and not isinstance(one.event, Entry)
    ]


def replace_redacted(store: Store, database: Database, rows: Sequence[tuple[str, datetime, Event]]) -> bool:
    """Replace the events that these rows say were redacted, in forks too. Return whether there were any."""
    gone = False
    for conversation, _, event in rows:
        if isinstance(event, Redaction):
            for name in (conversation, *erase.forks_of(store, conversation)):
                for event_id in event.event_ids:
                    known = "conversation = ? AND id = ?"
                    if table_of(database, "events").count_where(known, [storable(name), event_id]):
                        again = [(name, *one) for one in store.log(name, event_id, event_id + 1)]
                        add_events(database, again, ())
                        gone = True
    return gone


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


def add_events(database: Database, recorded: Sequence[tuple[str, datetime, Event]], lost: Sequence[Damaged]) -> int:
    # In a conversation with the id of an erased one, the same ids name other events.
    table_of(database, "events").insert_all((_event_row(*one) for one in recorded), replace=True)
    table_of(database, "damaged").upsert_all(
        ({**one._asdict(), "conversation": storable(one.conversation)} for one in lost), pk=("conversation", "id")
    )
    condensations = [
        _condensation_row(conversation, at, event)
        for conversation, at, event in recorded
        if isinstance(event, CondensationAction)
    ]
    table_of(database, "condensations").insert_all(condensations, replace=True)
    return len(condensations)


def erased_in(store: Store) -> tuple[set[str], bool]:
    """Return the erased conversations of the store, and whether these are all: an unreadable row may be of one."""
    erased, is_whole = set(), True
    for row in damage.listed(store):
        if not isinstance(row, ConversationRow):
            is_whole = False
        elif row.erased_at is not None:
            erased.add(row.id)
    return erased, is_whole


def describe(store: Store, database: Database, conversations: Iterable[str]) -> tuple[bool, list[Damaged]]:
    """Write the rows of the conversations themselves and their revisions; for an erased one only the tombstone.

    Return whether anything was erased, and what could not be read.
    """
    gone, lost = False, []
    for conversation in sorted(conversations):
        try:
            gone |= _describe(store, database, conversation)
        except CorruptEvent as error:
            lost.append(Damaged(conversation, error.event_id, error.problem))
        except StoreUnusable as error:
            if not error.is_damage:
                raise
            lost.append(Damaged(conversation, 0, str(error)))
    return gone, lost


def _describe(store: Store, database: Database, conversation: str) -> bool:
    """Write the conversation's own row and its revisions; for an erased conversation only the tombstone.

    Return whether anything was erased.
    """
    row, name = store.conversation(conversation), storable(conversation)
    gone = False
    with database.conn:
        if row.erased_at is not None:
            gone = table_of(database, "events").count_where("conversation = ?", [name]) > 0
            for table in ("events", "condensations", "revisions", "damaged"):
                table_of(database, table).delete_where("conversation = ?", [name])
        else:
            if row.generation:
                gone = _remove_before(database, name, row.created_at.isoformat())
            known = database.execute("SELECT max(version) FROM revisions WHERE conversation = ?", [name]).fetchone()[0]
            made = store.query(conversation, lambda reading: list(reading.records(PROJECTION, known or 0)))
            revisions = [
                {"conversation": name, "version": r.version, "code": r.code, "base": r.base, "bytes": len(r.body)}
                for r in made
            ]
            table_of(database, "revisions").insert_all(revisions, ignore=True)
        table_of(database, "conversations").upsert(
            {
                "id": name,
                "version": row.version,
                "created_at": row.created_at.isoformat(),
                "updated_at": row.updated_at.isoformat(),
                "head": row.head,
                "erased_at": row.erased_at and row.erased_at.isoformat(),
                "erased_reason": row.erased_reason,
            },
            pk="id",
        )
    return gone


def _remove_before(database: Database, name: str, created_at: str) -> bool:
    """Remove the rows of the erased conversation that had this id before. Return whether there were any."""
    earlier = "conversation = ? AND recorded_at < ?"
    gone: bool = table_of(database, "events").count_where(earlier, [name, created_at]) > 0
    for table in ("events", "condensations"):
        table_of(database, table).delete_where(earlier, [name, created_at])
    if gone:
        for table in ("revisions", "damaged"):
            table_of(database, table).delete_where("conversation = ?", [name])
    return gone


def purge(database: Database) -> None:
    """Remove the bytes of deleted rows from the index and from free pages."""
    for table in ("events", "condensations"):
        table_of(database, table).rebuild_fts()
    database.vacuum()
    (busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("it is being read, so deleted rows stay in its log until its readers have ended")


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
        "text": storable(text_of(event)),
        "body": stored.body.decode(),
    }


def _condensation_row(conversation: str, recorded_at: datetime, event: CondensationAction) -> dict[str, Any]:
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
        "model": _plain(metadata.get("model")),
        "cost": _number(metadata.get("cost")),
        "metadata": storable(as_json(metadata)),
    }


def _plain(value: Any) -> str | None:
    return None if value is None else storable(value if isinstance(value, str) else as_json(value))


def _number(value: Any) -> int | float | str | None:
    """Return a number that SQLite can hold; any other value as text."""
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _SQLITE_BITS):
        return value
    return _plain(value)
