"""Copy the sound part of a damaged store into another store, with every event in its place.

A sound conversation is copied unchanged, with its head. In a damaged conversation each lost event is replaced by an
event that says so, because later events name earlier ones by their ids; from the first replacement on, the heads are
new. The neighbours of lost events tell how many of them were shown or structural. A message replaces a shown event, so
that a model is told too. An event of an unknown kind replaces a structural event: its change of the View is unknown, so
a View that needs it raises an error.

A damaged id may be far beyond the last event. If more events seem to be missing than can have been lost, the copy ends
there, with one event that stands for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import NamedTuple

from eventstore.arguments import YEAR_10000
from eventstore.codec import encode
from eventstore.errors import EventStoreError
from eventstore.events import LOST, Annotation, Event, Message, UnknownEvent
from eventstore.maintenance.copy import CopiedConversation, CopyTarget, chunked, copy_conversation, remembered_keys
from eventstore.maintenance.damage import Unlisted, Unreadable, readable_conversations, readable_rows
from eventstore.maintenance.losses import Loss, add_losses, losses_of
from eventstore.maintenance.row_checks import VerifyFinding
from eventstore.maintenance.verify import verdicts
from eventstore.recorders.types import HEAD_BYTES, Conversation, Row
from eventstore.store import Store
from eventstore.stored import hash_chain
from eventstore.stored.database import Database, Segment, translated
from eventstore.stored.past import Link, follows
from eventstore.stored.row_codec import PLAIN, RowCodec
from eventstore.stored.write_transaction import check_plain

LOST_MAX = 1_000_000
"""The largest number of consecutive lost events that are replaced one by one."""


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


def salvage(
    source: Store,
    target: Store,
    *,
    lost_max: int = LOST_MAX,
    ends: Mapping[int, VerifyFinding] | None = None,
    of_file: Sequence[str] = (),
) -> Iterator[Salvaged]:
    """Copy every conversation of ``source``, as far as it is sound, to ``target``, which should be new.

    ``ends`` are the findings, by key, that the end of a conversation is lost, or may be. If more than ``lost_max``
    consecutive events are missing, the copy of a conversation ends before them. ``of_file`` is what is lost of the file
    as a whole. At the end all losses are recorded in ``target``, with those of earlier salvages.

    Raises what ``target`` raises where it cannot be written, and ``KeyUnavailable`` for no key but its own. Cost: each
    conversation is read twice; memory for one page.
    """
    at = target.database.now()
    lost = [Loss(at, None, None, None, problem) for problem in of_file]
    for each in _all_salvaged(source, target, lost_max, ends or {}):
        name = each.conversation or None
        problems = each.lost if each.problem is None else (VerifyFinding(None, None, each.problem),)
        lost += [Loss(at, name, one.first, one.last, one.problem) for one in problems]
        yield each
    with translated():
        add_losses(target.database.recorder, [*losses_of(source.database.recorder), *lost])


def _all_salvaged(source: Store, target: Store, lost_max: int, ends: Mapping[int, VerifyFinding]) -> Iterator[Salvaged]:
    with translated():
        for found in readable_conversations(source.database.recorder):
            if isinstance(found, Unlisted):
                yield Salvaged(found.id or "", 0, False, problem=found.problem)
                continue
            if found.erasure is None:
                target.database.query(partial(check_plain, database=target.database, conversation=found.id))
            try:
                yield _salvaged(source.database, target.database, found, lost_max, ends.get(found.key))
            except EventStoreError as error:
                yield Salvaged(found.id, 0, False, problem=str(error))


def _salvaged(
    source: Database, target: Database, found: Conversation, lost_max: int, end: VerifyFinding | None
) -> Salvaged:
    findings = next(verdicts(source, found.id)).findings  # for a fork, also in the events that it shares
    ends = () if end is None else (end,)
    if found.erasure is not None:
        copy_conversation(source, target, found.id)
        return Salvaged(found.id, 0, True)
    if not findings:
        copy_conversation(source, target, found.id)
        return Salvaged(found.id, found.version, not ends, ends)
    unsound = (*(finding for finding in findings if not finding.sound), *ends)
    if found.version == 0:
        return Salvaged(found.id, 0, False, unsound, "all of its events are lost")
    codec = source.codec_of_damaged(found)
    salt = found.salt if codec.data_key is None else codec.data_key.salt
    past, links = _past(source, found)
    filling = _Filling(source, found, codec, findings, lost_max, past)
    rows = filling.rows()
    first = next(rows)
    began = found.created_at if found.created_at in range(1, YEAR_10000) else first.recorded_at
    what = CopiedConversation(found.id, began, salt or hash_chain.new_salt(), 0, None, None, links)
    with CopyTarget(target, what) as copying:
        head = b""
        for chunk in chunked(_linked(what, chain([first], rows))):
            copying.add(chunk)
            head = chunk[-1].head
            copying.expect(chunk[-1].id + 1, head)
        copying.remember(remembered_keys(source, found, sound_by=codec))
        copied = copying.end()
    cut_off = filling.cut_off
    if cut_off is not None:
        unsound = (*(each for each in unsound if each.first is None or each.first < copied.version - 1), cut_off)
    is_whole = not unsound and head == found.head
    return Salvaged(found.id, copied.version, is_whole, unsound, view_ends=filling.view_ends)


def _past(source: Database, found: Conversation) -> tuple[tuple[Segment, ...], tuple[Link, ...]]:
    """Return the parts of a fork's past, and its names and salts, as far as known: an ancestor may be damaged."""
    try:
        with source.recorder.read() as reader:
            whole = source.find_key(reader, found.key)
            if whole is None:
                return (), ()
            past = source.past(reader, whole)
            try:
                return past, source.links(reader, whole)
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
        findings: Sequence[VerifyFinding],
        lost_max: int,
        past: Sequence[Segment] = (),
    ) -> None:
        self._source = source
        self._found = found
        self._past = past
        self._codec = self._own_codec = codec
        self._unsound = _Ids(finding for finding in findings if not finding.sound)
        self._proved = _Ids(finding for finding in findings if finding.sound)
        self._lost_max = lost_max
        self.cut_off: VerifyFinding | None = None
        """The finding that the copy ends before the conversation does."""
        self.view_ends: int | None = None
        """The first lost event that is replaced by a structural one."""
        self._next = 0
        self._moment = 0
        self._counts: tuple[int, int] | None = (0, 0)
        """The numbers of shown and structural events before the next one; None if unknown."""
        self._structural: set[int] = set()
        """The number of lost rows since the last sound row that were structural by their own columns. The next sound
        row counts the others.
        """

    def rows(self) -> Iterator[Row]:
        for codec, part in self._readable():
            if isinstance(part, Unreadable):
                continue
            self._codec = codec
            for stored, opened in zip(part, codec.decoded(part, self._source), strict=True):
                row = self._as_written(stored, opened)
                if row is None:
                    if stored.structural:
                        self._structural.add(stored.id)
                elif row.id - self._next > self._lost_max:
                    yield self._end()
                    return
                elif row.id >= self._next:
                    yield from self._upto(row, counted=opened.encoding == PLAIN)
        if self._found.version - self._next > self._lost_max:
            yield self._end()
            return
        yield from self._stand_ins(self._found.version, None, self._moment)

    def _readable(self) -> Iterator[tuple[RowCodec, Sequence[Row] | Unreadable]]:
        """Yield the rows page by page, each page with its codec; the shared rows of a fork come first."""
        found = self._found
        for part in self._past:
            for some in readable_rows(self._source.recorder, part.key, part.start, part.stop):
                yield part.codec, some
        for some in readable_rows(self._source.recorder, found.key, found.begins, found.version):
            yield self._own_codec, some

    def _end(self) -> Row:
        """Return the row that stands for all lost rows up to the end, and keep the finding that says so."""
        first, last = self._next, self._found.version - 1
        problem = f"more than {self._lost_max:,} events cannot have been lost here, so an id is damaged; the copy ends"
        self.cut_off = VerifyFinding(first, last, f"{problem} with event {first}, which stands for all of them")
        said = f"[Events {first} to {last} of this history are lost, if all of them existed: an id was damaged.]"
        return _row(first, Message(source="environment", content=said), self._moment or self._found.created_at)

    def _as_written(self, stored: Row, opened: Row) -> Row | None:
        """Return the row if its checksum and its head prove it, or its head alone."""
        if stored.id in self._unsound:
            return None
        if opened.encoding == PLAIN:
            return opened
        if stored.id not in self._proved:
            return None
        unchecked = self._codec.unchecked(stored, self._source, self._counts)
        return unchecked if unchecked.encoding == PLAIN else None

    def _upto(self, row: Row, *, counted: bool) -> Iterator[Row]:
        """Yield rows that replace the lost rows before a row, then the row. Its counts of earlier rows are trusted."""
        told = (row.shown_before, row.structural_before) if counted else None
        yield from self._stand_ins(row.id, told, self._moment or row.recorded_at)
        yield row
        before = told or self._counts
        self._counts = None if before is None else (before[0] + row.shown, before[1] + row.structural)
        self._next, self._moment = row.id + 1, row.recorded_at
        self._structural.clear()

    def _stand_ins(self, stop: int, told: tuple[int, int] | None, moment: int) -> Iterator[Row]:
        """Yield rows for the ids up to the next sound row; ``told`` are the counts of that row. If only some of the
        lost rows were shown or structural, it is unknown which: the first ones are taken as structural, and all as
        shown.
        """
        if stop == self._next:
            return
        shown: int = stop - self._next
        structural = None
        if told is not None and self._counts is not None:
            shown, structural = told[0] - self._counts[0], told[1] - self._counts[1]
        for n, event_id in enumerate(range(self._next, stop)):
            was_structural = event_id in self._structural if structural is None else n < structural
            if was_structural and self.view_ends is None:
                self.view_ends = event_id
            yield _row(event_id, _stand_in(event_id, shown=shown > 0, structural=was_structural), moment)
        self._counts = None


class _Ids:
    """The ids that findings name. Cost of a look-up: the logarithm of the number of findings."""

    def __init__(self, findings: Iterable[VerifyFinding]) -> None:
        ranges = sorted((f.first, f.last) for f in findings if f.first is not None and f.last is not None)
        self._firsts = [first for first, _ in ranges]
        self._lasts = list(accumulate((last for _, last in ranges), max))

    def __contains__(self, event_id: int) -> bool:
        at = bisect_right(self._firsts, event_id) - 1
        return at >= 0 and event_id <= self._lasts[at]


def _row(event_id: int, event: Event, moment: int) -> Row:
    kind, schema, shown, structural, body, _ = encode(event)
    unlinked = bytes(HEAD_BYTES) + hash_chain.new_salt()
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
        head = hash_chain.link_of(before, salt, row)
        yield row._replace(proof=head + row.proof[HEAD_BYTES:])
