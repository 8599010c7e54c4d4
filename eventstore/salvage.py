"""Copying what is sound of a damaged store into another one, with every event in its place.

A conversation that is sound is copied as it is, with its head. In one that is not, each lost event is replaced by one
that says so, since later events name earlier ones by their ids; from the first of them on the heads are new. How many
of the lost were shown, or structural, their neighbours know. One that was shown is replaced by a message, so that a
model is told too. In the place of a structural one stands an event of an unknown kind: what it changed in the View is
not known, so a View cannot be folded over it, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from eventstore import integrity
from eventstore.codec import encode
from eventstore.copying import Arrival, Carried, chunked, copy_conversation, remembered_keys
from eventstore.errors import EventStoreError
from eventstore.events import Annotation, Event, Message, UnknownEvent
from eventstore.guard import Guard
from eventstore.reading import Unreadable, readable_conversations, readable_rows
from eventstore.recorders.base import Conversation, Row
from eventstore.sealing import PLAIN
from eventstore.vault import Known
from eventstore.verification import Finding, verify

__all__ = ["LOST", "Salvaged", "salvage"]

LOST = "foldlog.lost"
"""The name of an annotation that stands for a lost event, and the kind of what stands for a lost structural one."""


class Salvaged(NamedTuple):
    """What became of one conversation: how many events it has now, and which of them stand for lost ones.

    ``whole``: it is what it was, with the same head. ``problem``: nothing of it could be copied, and why.
    """

    conversation: str
    events: int
    whole: bool
    lost: tuple[Finding, ...] = ()
    problem: str | None = None


def salvage(source: Guard, target: Guard) -> Iterator[Salvaged]:
    """Copy every conversation of ``source``, as far as it is sound, to ``target``, which should be new.

    Raises what ``target`` raises where it cannot be written, and ``KeyUnavailable`` for no key but its own. Cost: each
    conversation is read twice; memory for one page.
    """
    for found in readable_conversations(source.unguarded):
        if isinstance(found, str):
            yield Salvaged("", 0, False, problem=found)
            continue
        try:
            yield _salvaged(source, target, found)
        except EventStoreError as error:
            yield Salvaged(found.id, 0, False, problem=str(error))


def _salvaged(source: Guard, target: Guard, found: Conversation) -> Salvaged:
    findings = next(verify(source, found.id)).findings
    if found.erasure is not None or not findings:
        copy_conversation(source, target, found.id)
        return Salvaged(found.id, found.version, True)
    unsound = tuple(finding for finding in findings if not finding.sound)
    if found.version == 0:
        return Salvaged(found.id, 0, False, unsound, "none of its events is left")
    known = source.vault.known(found)
    salt = found.salt if known.data_key is None else known.data_key.salt
    rows = _Filling(source, found, known, unsound).rows()
    first = next(rows)
    what = Carried(found.id, found.created_at or first.recorded_at, salt or integrity.new_salt(), 0, None, None)
    with Arrival(target, what) as arrival:
        for chunk in chunked(_linked(what, chain([first], rows))):
            arrival.add(chunk)
            arrival.expect(chunk[-1].id + 1, chunk[-1].head)
        arrival.remember(remembered_keys(source, found))
        arrived = arrival.end()
    return Salvaged(found.id, arrived.version, False, unsound)


class _Filling:
    """The rows of a damaged conversation, with one for every id: what is sound, and what stands for the rest."""

    def __init__(self, source: Guard, found: Conversation, known: Known, unsound: Iterable[Finding]) -> None:
        self._source = source
        self._found = found
        self._known = known
        self._unsound = [(f.first, f.last) for f in unsound if f.first is not None and f.last is not None]
        self._before: Row | None = None
        self._structural: set[int] = set()
        """Damaged rows behind the last sound one that say they were structural; of others a sound row behind knows."""

    def rows(self) -> Iterator[Row]:
        for part in readable_rows(self._source.unguarded, self._found.key, 0, self._found.version):
            if isinstance(part, Unreadable):
                continue
            for stored, row in zip(part, self._source.vault.opened(self._known, part), strict=True):
                if row.encoding != PLAIN or self._is_unsound(row.id):
                    if stored.structural:
                        self._structural.add(row.id)
                elif row.id >= self._next():
                    yield from self._stand_ins(row)
                    yield row
                    self._before = row
                    self._structural.clear()
        yield from self._stand_ins(None)

    def _next(self) -> int:
        return 0 if self._before is None else self._before.id + 1

    def _is_unsound(self, event_id: int) -> bool:
        return any(first <= event_id <= last for first, last in self._unsound)

    def _stand_ins(self, after: Row | None) -> Iterator[Row]:
        """Rows for the ids up to the next sound one. Where fewer than all of these were shown, or structural, which of
        them is not known: then the first are taken to be structural, and all to be shown.
        """
        before = self._before
        start, stop = self._next(), self._found.version if after is None else after.id
        moment = before.recorded_at if before is not None else after.recorded_at if after is not None else 0
        shown, structural = stop - start, len(self._structural)
        if after is not None:
            shown = after.shown_before - (before.shown_before + before.shown if before is not None else 0)
            structural = after.structural_before - (
                before.structural_before + before.structural if before is not None else 0
            )
        for n, event_id in enumerate(range(start, stop)):
            was_structural = n < structural if after is not None else event_id in self._structural
            encoded = encode(_stand_in(event_id, shown=shown > 0, structural=was_structural))
            kind, schema, is_shown, is_structural, body, _ = encoded
            yield Row(event_id, kind, schema, is_shown, is_structural, moment, PLAIN, body, b"")


def _stand_in(event_id: int, *, shown: bool, structural: bool) -> Event:
    if structural:
        return UnknownEvent(stored_kind=LOST, stored_schema=1, body=b"{}", is_structural=True)
    if shown:
        return Message(source="environment", content=f"[Event {event_id} of this history was damaged, and is lost.]")
    return Annotation(name=LOST, data={"event": event_id})


def _linked(what: Carried, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows with heads that follow one another; up to the first that is another one, they are what they were."""
    head = integrity.seed(what.id, what.salt)
    for row in rows:
        head = integrity.link(
            head, what.salt, row.id, row.kind, row.schema, row.shown, row.structural, row.recorded_at, row.body
        )
        yield row._replace(head=head)
