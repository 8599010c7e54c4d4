"""Copy the sound part of a damaged store into another store, with every event in its place.

A sound conversation is copied unchanged, with its head. In a damaged conversation each lost event is replaced by an
event that says so, because later events name earlier ones by their ids; from the first replacement on, the heads are
new. The neighbours of lost events tell how many of them were shown or structural. A message replaces a shown event, so
that a model is told too. An event of an unknown kind replaces a structural event: its change of the View is unknown, so
a View that needs it raises an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from foldlog.eventstore.arguments import YEAR_10000
from foldlog.eventstore.codec import encode
from foldlog.eventstore.errors import EventStoreError
from foldlog.eventstore.events import LOST, Annotation, Event, Message, UnknownEvent
from foldlog.eventstore.log.database import Database, translated
from foldlog.eventstore.log.importing import chunked
from foldlog.eventstore.log.past import Link, Segment, follows, links_of, past_of
from foldlog.eventstore.log.row import PLAIN, link_of, new_salt
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import check_plain
from foldlog.eventstore.maintenance.copy import CopiedConversation, CopyTarget, copy_conversation, remembered_keys
from foldlog.eventstore.maintenance.damage import Unlisted, Unreadable, readable_conversations, readable_rows
from foldlog.eventstore.maintenance.row_checks import VerifyFinding, salt_of
from foldlog.eventstore.maintenance.verify import verdicts
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
    conversation is read twice; memory for one page.
    """
    with translated():
        for found in readable_conversations(source.database.recorder):
            if isinstance(found, Unlisted):
                yield Salvaged(found.id or "", 0, False, problem=found.problem)
                continue
            if found.erasure is None:
                target.database.query(partial(check_plain, database=target.database, conversation=found.id))
            end = _lost_end(found, ends[found.key]) if ends and found.key in ends else ()
            try:
                yield _salvaged(source.database, target.database, found, end)
            except EventStoreError as error:
                yield Salvaged(found.id, 0, False, problem=str(error))


def _lost_end(found: Conversation, last: int | None) -> tuple[VerifyFinding]:
    if last is None or last < found.version:
        return (VerifyFinding(None, None, "its end may be lost: the index of its events cannot be read"),)
    return (VerifyFinding(found.version, last, "lost: only an index names the last of them"),)


def _salvaged(source: Database, target: Database, found: Conversation, end: tuple[VerifyFinding, ...]) -> Salvaged:
    findings = next(verdicts(source, found.id)).findings  # for a fork, also in the events that it shares
    if found.erasure is not None:
        copy_conversation(source, target, found.id)
        return Salvaged(found.id, 0, True)
    if not findings:
        copy_conversation(source, target, found.id)
        return Salvaged(found.id, found.version, not end, end)
    lost = tuple(finding for finding in findings if not finding.sound) + end
    if found.version == 0:
        return Salvaged(found.id, 0, False, lost, "all of its events are lost")
    codec = source.codec_of_damaged(found)
    salt = salt_of(found, codec)
    past, links = _past(source, found)
    filling = _Filling(source, found, codec, lost, past)
    rows = filling.rows()
    first = next(rows, None)
    if first is None:
        return Salvaged(found.id, 0, False, lost, "all of its events are lost")
    began = found.created_at if found.created_at in range(1, YEAR_10000) else first.recorded_at
    what = CopiedConversation(found.id, began, salt or new_salt(), 0, None, None, links)
    with CopyTarget(target, what) as copying:
        head = b""
        for chunk in chunked(_linked(what, chain([first], rows))):
            copying.copy(chunk)
            head = chunk[-1].head
        copying.remember(remembered_keys(source, found, sound_by=codec))
        copied = copying.end(is_end_known=False)
    return Salvaged(found.id, copied.version, not lost and head == found.head, lost, view_ends=filling.view_ends)


def _past(source: Database, found: Conversation) -> tuple[tuple[Segment, ...], tuple[Link, ...]]:
    """Return the parts of a fork's past, and its names and salts, as far as known: an ancestor may be damaged."""
    try:
        with source.recorder.read() as reader:
            whole = source.find_key(reader, found.key)
            if whole is None:
                return (), ()
            past = past_of(source, reader, whole)
            try:
                return past, links_of(source, reader, whole)
            except EventStoreError:
                return past, ()
    except EventStoreError:
        return (), ()


class _Filling:
    """The rows of a damaged conversation, one for every id: sound rows, and rows that replace lost ones."""

    def __init__(
        self,
        source: Database,
        found: Conversation,
        codec: RowCodec,
        lost: Sequence[VerifyFinding],
        past: Sequence[Segment],
    ) -> None:
        self._source, self._found = source, found
        own = Segment(found.key, found.id, codec, found.begins, found.version)
        self._parts = (*past, own)
        self._lost = deque(sorted((f.first, f.last) for f in lost if f.first is not None and f.last is not None))
        self.view_ends: int | None = None
        """The first lost event that is replaced by a structural one."""
        self._next = 0
        self._moment = 0
        self._counts = (0, 0)
        """The numbers of shown and structural events before the next one."""
        self._structural: set[int] = set()
        """The lost rows since the last sound row that are structural by their own columns."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows. They end before more lost rows than a conversation can have lost."""
        for row in self._sound():
            if row.id - self._next > _LOST_MAX:
                return
            counts = (row.shown_before, row.structural_before)
            yield from self._stand_ins(row.id, counts, self._moment or row.recorded_at)
            yield row
            self._counts = (counts[0] + row.shown, counts[1] + row.structural)
            self._next, self._moment = row.id + 1, row.recorded_at
            self._structural.clear()
        if self._found.version - self._next <= _LOST_MAX:
            yield from self._stand_ins(self._found.version, None, self._moment)

    def _sound(self) -> Iterator[Row]:
        for part in self._parts:
            for stored_rows in readable_rows(self._source.recorder, part.key, part.start, part.stop):
                if isinstance(stored_rows, Unreadable):
                    continue
                for stored, row in zip(stored_rows, part.codec.decoded(stored_rows), strict=True):
                    if row.encoding == PLAIN and row.id >= self._next and not self._is_lost(row.id):
                        yield row
                    elif stored.structural:
                        self._structural.add(stored.id)

    def _is_lost(self, event_id: int) -> bool:
        """Return whether a finding names the event. Events are asked for in the order of their ids."""
        while self._lost and self._lost[0][1] < event_id:
            self._lost.popleft()
        return bool(self._lost) and self._lost[0][0] <= event_id

    def _stand_ins(self, stop: int, counts: tuple[int, int] | None, moment: int) -> Iterator[Row]:
        """Yield rows for the ids up to the next sound row; ``counts`` are those of that row. If only some of the lost
        rows were shown or structural, it is unknown which: the first ones are taken as structural, and all as shown.
        """
        for n, event_id in enumerate(range(self._next, stop)):
            if counts is None:
                shown, structural = True, event_id in self._structural
            else:
                shown, structural = counts[0] > self._counts[0], n < counts[1] - self._counts[1]
            if structural and self.view_ends is None:
                self.view_ends = event_id
            yield _row(event_id, _stand_in(event_id, shown=shown, structural=structural), moment)


def _row(event_id: int, event: Event, moment: int) -> Row:
    kind, schema, shown, structural, body, _ = encode(event)
    unlinked = bytes(HEAD_BYTES) + new_salt()
    return Row(event_id, kind, schema, shown, structural, moment, PLAIN, body, unlinked)


def _stand_in(event_id: int, *, shown: bool, structural: bool) -> Event:
    if structural:
        return UnknownEvent(stored_kind=LOST, stored_schema=1, body=b"{}", is_structural=True)
    if shown:
        return Message(source="environment", content=f"[Event {event_id} of this history was damaged, and is lost.]")
    return Annotation(name=LOST, data={"event": event_id})


def _linked(what: CopiedConversation, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows with heads that form a chain. Up to the first changed head they are the original rows."""
    head: bytes | None = None
    for row in rows:
        before, salt = follows(what.id, what.salt, what.past, row.id, head)
        head = link_of(before, salt, row)
        yield row._replace(proof=head + row.proof[HEAD_BYTES:])
