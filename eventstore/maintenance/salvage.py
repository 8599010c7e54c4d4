"""Copy the sound part of a damaged store into another store, with every event in its place.

A sound conversation is copied unchanged, with its head. In a damaged conversation each lost event is replaced by an
event that says so, because later events name earlier ones by their ids; from the first replacement on, the heads are
new. The neighbours of lost events tell how many of them were shown or structural. A message replaces a shown event, so
that a model is told too. An event of an unknown kind replaces a structural event: its change of the View is unknown, so
a View that needs it raises an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from foldlog.eventstore.arguments import YEAR_10000
from foldlog.eventstore.codec import encode
from foldlog.eventstore.errors import EventStoreError, KeyUnavailable, VersionConflict
from foldlog.eventstore.events import LOST, Annotation, Event, Message, UnknownEvent
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.importing import chunked
from foldlog.eventstore.log.row import PLAIN, first_head, link_of, new_salt
from foldlog.eventstore.log.writing import check_plain
from foldlog.eventstore.maintenance.copy import CopyWriter, copy_tombstones, keys_of
from foldlog.eventstore.maintenance.verify import (
    Check,
    Unlisted,
    VerifyFinding,
    checks_of_past,
    findings_beside,
    readable_conversations,
)
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import HEAD_BYTES, Conversation, Row
from foldlog.eventstore.store import Store

_LOST_MAX = 1_000_000
"""The largest number of consecutive lost events that are replaced. More cannot have been lost: an id is damaged."""


class Salvaged(NamedTuple):
    """The outcome for one conversation: how many events it has now, and which of them replace lost ones.

    ``whole``: it is unchanged, with the same head. ``problem``: why nothing of it could be copied. ``view_ends`` is the
    first lost event that changed the View: there is no View after it, and a fork before it can go on.
    """

    conversation: str
    events: int
    whole: bool
    lost: tuple[VerifyFinding, ...] = ()
    problem: str | None = None
    view_ends: int | None = None


def salvage(source: Store, target: Store, *, ends: Mapping[int, int | None] | None = None) -> Iterator[Salvaged]:
    """Copy every conversation of ``source``, as far as it is sound, to ``target``, which should be new.

    ``ends`` are, by key, conversations whose last events are lost: the last one that is known of, or None where that is
    not known.

    Raises what ``target`` raises where it cannot be written, and ``KeyUnavailable`` for no key but its own. Cost: each
    conversation is read once; memory for one page.
    """
    for found in readable_conversations(source.database.recorder):
        if isinstance(found, Unlisted):
            yield Salvaged(found.id or "", 0, False, problem=found.problem)
            continue
        if found.erasure is None:
            target.database.recorder.query(partial(check_plain, database=target.database, conversation=found.id))
        end = _lost_end(found, ends[found.key]) if ends and found.key in ends else ()
        try:
            yield _salvaged(source.database, target.database, found, end)
        except EventStoreError as error:
            if isinstance(error, FAILURES) and not isinstance(error, KeyUnavailable):
                raise
            yield Salvaged(found.id, 0, False, problem=str(error))


def _lost_end(found: Conversation, last: int | None) -> tuple[VerifyFinding]:
    if last is None or last < found.version:
        return (VerifyFinding(None, None, "its end may be lost: the index of its events cannot be read"),)
    return (VerifyFinding(found.version, last, "lost: only an index names the last of them"),)


def _salvaged(source: Database, target: Database, found: Conversation, end: tuple[VerifyFinding, ...]) -> Salvaged:
    earlier = source.recorder.query(lambda reader: tombstones_before(reader, found))
    copy_tombstones(target, earlier if found.erasure is None else (*earlier, found))
    if found.erasure is not None:
        return Salvaged(found.id, 0, True)
    if found.version == 0:
        return Salvaged(found.id, 0, False, problem="all of its events are lost")
    parts = [*checks_of_past(source, found, {})]
    own = Check(source, found, found.version, {})
    filling = _Filling([*(part for part in parts if isinstance(part, Check)), own], found.version)
    rows = filling.rows()
    first = next(rows, None)
    if first is None:
        return Salvaged(found.id, 0, False, tuple(own.findings), "all of its events are lost")
    began = found.created_at if found.created_at in range(1, YEAR_10000) else first.recorded_at
    new = found._replace(created_at=began, salt=own.salt or new_salt(), version=0, head=None)
    with CopyWriter(target, new, earlier) as writer:
        if writer.there is not None:
            raise VersionConflict(found.id, 0, writer.there.version)
        for chunk in chunked(_linked(new, chain([first], rows))):
            writer.copy(chunk)
        writer.finish(keys_of(source, found, sound_by=own.codec), found.redactions)
    of_past = [finding for part in parts for finding in (part.findings if isinstance(part, Check) else [part])]
    findings = [*of_past, *own.findings, *findings_beside(source, found, own.codec), *end]
    lost = tuple(finding for finding in findings if not finding.sound)
    is_whole = not lost and writer.end.head == found.head
    return Salvaged(found.id, writer.end.version, is_whole, lost, view_ends=filling.view_ends)


class _Filling:
    """The rows of a damaged conversation, one for every id: sound rows, and rows that replace lost ones."""

    def __init__(self, parts: Sequence[Check], version: int) -> None:
        self._parts, self._version = parts, version
        self.view_ends: int | None = None
        """The first lost event that is replaced by a structural one."""
        self._next = 0
        self._moment = 0
        self._counts = (0, 0)
        """The numbers of shown and structural events before the next one."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows. They end before more lost rows than a conversation can have lost. None, if none is sound."""
        for part in self._parts:
            for row in part.rows():
                if row.id - self._next > _LOST_MAX:
                    continue
                counts = (row.shown_before, row.structural_before)
                yield from self._stand_ins(row.id, counts, self._moment or row.recorded_at)
                yield row
                self._counts = (counts[0] + row.shown, counts[1] + row.structural)
                self._next, self._moment = row.id + 1, row.recorded_at
        if self._next and self._version - self._next <= _LOST_MAX:
            yield from self._stand_ins(self._version, None, self._moment)

    def _stand_ins(self, stop: int, counts: tuple[int, int] | None, moment: int) -> Iterator[Row]:
        """Yield rows for the ids up to the next sound row; ``counts`` are those of that row. If only some of the lost
        rows were shown or structural, it is unknown which: the first ones are taken as structural, and all as shown.
        """
        for n, event_id in enumerate(range(self._next, stop)):
            if counts is None:
                shown, structural = True, event_id in self._parts[-1].lost_structural
            else:
                shown, structural = counts[0] > self._counts[0], n < counts[1] - self._counts[1]
            if structural and self.view_ends is None:
                self.view_ends = event_id
            event = _stand_in(event_id, shown=shown, structural=structural)
            kind, schema, shown, structural, body, _ = encode(event)
            unlinked = bytes(HEAD_BYTES) + new_salt()
            yield Row(event_id, kind, schema, shown, structural, moment, PLAIN, body, unlinked)


def _stand_in(event_id: int, *, shown: bool, structural: bool) -> Event:
    if structural:
        return UnknownEvent(stored_kind=LOST, stored_schema=1, body=b"{}", is_structural=True)
    told, meta = f"[Event {event_id} of this history was damaged, and is lost.]", {LOST: True}
    return Message(source="environment", content=told, meta=meta) if shown else Annotation(name=LOST, meta=meta)


def _linked(new: Conversation, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows with heads that form a chain. Up to the first changed head they are the original rows."""
    head = first_head(new, new.salt)
    for row in rows:
        head = link_of(head, new.salt, row)
        yield row._replace(proof=head + row.proof[HEAD_BYTES:])
