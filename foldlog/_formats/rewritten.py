"""Grow with a source that its program writes again, such as a document or a database: ``Format.rewritten``.

Each record that differs from the stored one is taken back with all records after it, by one retraction, and those of
the source come in their place. So an import compares a source with the records that stand, and an export writes these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile, zip_longest
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from foldlog._formats.packing import events_of, is_declined, is_step_aside, unpack
from foldlog._formats.record import Located
from foldlog.eventstore import CondensationRequest, DocumentChanges, Event, Origin, Redaction, Retraction
from foldlog.projections import contains, intervals_kept

_REASON = "the source was rewritten"
WRITTEN_AGAIN = "the source has this again"
"""The reason of a retraction before records that a source has twice."""
FILLED, OF_OTHERS = object(), object()


class StoredRecord(NamedTuple):
    """A stored record that no rewriting took back: the id of its first event, the version after its last one, and how
    many of its events are not bookkeeping.
    """

    record: Any
    first_id: int
    version: int
    shown: int


class Growth:
    """The difference of the records of a source from the stored ones that stand, of a history at ``version``: from the
    first record on that is not the stored one in its place, those that are ``gone``, and others in their place.

    ``same`` is the number of records before; none if they are ``read_again``, in another format. ``starts`` are the ids
    of the first events of these, and of the next one.
    """

    def __init__(
        self,
        standing: Sequence[StoredRecord],
        records: Sequence[Any],
        version: int,
        changed_at: Callable[[Any], Any],
        *,
        read_again: bool = False,
    ) -> None:
        equal = map(is_same, (each.record for each in standing), records)
        self._records, self._standing, self._changed_at, self._version = records, standing, changed_at, version
        self._begin_at(0 if read_again else sum(takewhile(bool, equal)))

    def _begin_at(self, place: int) -> None:
        self.same, self.gone = place, self._standing[place:]
        self.starts = [*(each.first_id for each in self._standing[:place]), self._version + bool(self.gone)]

    def is_read_otherwise(self, place: int, events: Sequence[Event]) -> bool:
        """Return whether a stored record is now, with later ones that are new, read into more or fewer events: they may
        tell what it told. Then the difference begins with it.
        """
        if self.same == len(self._records) or sum(each.shown for each in events) == self._standing[place].shown:
            return False
        self._begin_at(place)
        return True

    @property
    def shrinks(self) -> bool:
        """Whether it takes more records back than it adds."""
        return len(self._standing) > len(self._records)

    @property
    def is_older(self) -> bool:
        """Whether the source was changed before the stored one was, as both tell. A time to come says nothing."""
        changes = [*filter(None, map(self._changed_at, self._records))]
        times, now = (self._changed_at(each.record) for each in self._standing), datetime.now(UTC)
        stored = [time for time in times if time is not None and time <= now]
        return bool(stored and changes) and max(changes) < max(stored)

    @property
    def lost(self) -> list[StoredRecord]:
        """The records that the source has in no place after those that both have."""
        new = set(map(text_of, self._records[self.same :]))
        return [each for each in self.gone if text_of(each.record) not in new]

    def taking_back(self, format: str) -> list[Event]:
        """Return the event that takes back the records that are gone, if there are any."""
        version = self._standing[self.same - 1].version if self.same else 0
        origin = Origin(format=format)
        return [Retraction(id=self.starts[-1] - 1, version=version, reason=_REASON, origin=origin)] if self.gone else []


def mended(
    records: Sequence[Located], standing: Sequence[StoredRecord], source_id: Callable[[Any], Any], *, is_log: bool
) -> Iterator[Located]:
    """Yield the records of a source, and before those that cannot be read as many stored ones, of those that the source
    no longer has in their place: what was imported before it was damaged does not vanish. One that follows its stored
    record has the value ``FILLED``. In a log that was edited after them, they may be others: there none is yielded.
    """

    key = partial(_key, source_id)
    keys = [key(each.record) for each in standing]
    sound = Counter(key(each.value) for each in records if each.problem is None)
    gone = Counter(keys) - sound
    places: dict[str, list[int]] = {}
    for at, each in enumerate(keys):
        places.setdefault(each, []).append(at)
    place, unread = 0, list[Located]()
    for number, located in enumerate((*records, None)):
        if located is not None and located.problem is not None:
            unread.append(located)
            continue
        again = [] if located is None else [each for each in places.get(key(located.value), ()) if each >= place]
        next_place = next((each for each in again if each >= place + len(unread)), again[0] if again else None)
        stop = place + len(unread) if next_place is None else next_place
        later = (at for each in records[number:] if each.problem is None for at in places.get(key(each.value), ()))
        border = next((at for at in later if at >= place), len(keys)) if unread and located is not None else place
        is_edited = is_log and sum(gone[keys[at]] > 0 for at in range(place, border)) > len(unread)
        lost = [standing[at].record for at in range(place, min(stop, len(keys))) if gone[keys[at]] and not is_edited]
        for each, problem in zip_longest(lost[: len(unread)], unread):
            is_filled = each is not None and not is_same(each, problem.value)  # more is stored than can be read
            if is_filled:
                yield Located(problem.line, problem.offset, each)
            yield problem._replace(value=FILLED) if is_filled else problem
        place = next_place + 1 if next_place is not None else stop
        unread.clear()
        if located is not None:
            yield located


def joined(
    records: Sequence[Located],
    standing: Sequence[StoredRecord],
    source_id: Callable[[Any], Any],
    joins: Callable[[Iterable[Any]], Iterable[Any]],
) -> list[Located]:
    """Return the records of a source with those that stand and that it lacks, in the order of their places: those of
    other files. What cannot be read is at the end.
    """
    stored = [each.record for each in standing]
    rows = [(place, Located(0, 0, record)) for place, record in zip(joins(stored), stored, strict=True)]
    known: dict[str, list[int]] = {}
    for number in reversed(range(len(rows))):
        known.setdefault(_key(source_id, stored[number]), []).append(number)
    sound, unread = [each for each in records if each.problem is None], [each for each in records if each.problem]
    for row in zip(joins(each.value for each in sound), sound, strict=True):
        if there := known.get(_key(source_id, row[1].value)):
            rows[there.pop()] = row
        else:
            rows.append(row)
    return [*(located for _, located in sorted(rows, key=itemgetter(0))), *unread]


def healed_by(
    records: Iterable[Any], standing: list[StoredRecord], unread: Sequence[int]
) -> list[StoredRecord] | Literal[False] | None:
    """Return the last records that a source lacks of those that stand, if beside them it has only the records that
    could not be read, in their places, and later ones; None where it is another one. An older one of which some of them
    are missing too heals nothing: False.
    """
    found: list[int] = []
    same = 0
    for record in records:
        if same < len(standing) and is_same(standing[same].record, record):
            same += 1
            continue
        place = same  # of two equal records in a row, either may be the one that was missing
        while place and place not in unread and is_same(standing[place - 1].record, record):
            place -= 1
        found.append(place if place in unread else same)
    if same == len(standing):
        return [] if -1 in unread or {*found} <= {*unread, same} else None
    if Counter(found) - Counter(unread):
        return None
    return standing[same:] if found == unread else False


def _key(source_id: Callable[[Any], Any], record: Any) -> str:
    known = source_id(record)
    return text_of(record) if known is None else repr(("id", known))


_encode = msgspec.json.Encoder(order="deterministic").encode


def is_same(one: Any, other: Any) -> bool:
    """Return whether two records are equal as JSON. For Python 1, 1.0 and True are equal; JSON differs."""
    try:
        return bool(one == other) and text_of(one) == text_of(other)
    except RecursionError:
        return text_of(one) == text_of(other)


def text_of(value: Any) -> str:
    """Return a text that equal records have, and no others."""
    try:
        return _encode(value).decode()
    except (ValueError, RecursionError):  # text that is not Unicode
        return repr(value)


def is_rewriting(event: Event) -> bool:
    """Return whether an event takes back records that the source no longer has."""
    return isinstance(event, Retraction) and event.reason == _REASON and event.origin is not None


def is_replacing(event: Event) -> bool:
    """Return whether an event takes back what its source no longer has, or has again."""
    return isinstance(event, Retraction) and event.reason in (_REASON, WRITTEN_AGAIN) and event.origin is not None


def standing_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return whether an event stands: no import took it back because its source no longer has it, or has it again. What
    its program had taken back before it wrote the rest again stands: it happened.
    """
    retractions = [each for each in structural if isinstance(each, Retraction) and each.id < version]
    kept, of_source = (intervals_kept(filter(of, retractions), version) for of in (is_replacing, is_rewriting))
    in_source = [each for each in retractions if is_rewriting(each) or contains(of_source, each.id)]

    def stands(event: Event) -> bool:
        if event.origin is None or contains(kept, event.id):
            return True
        later = islice(in_source, bisect_left(in_source, event.id, key=lambda each: each.id), None)
        first = islice((each for each in later if each.version <= event.id), 1)
        return contains(of_source, event.id) and not any(map(is_replacing, first))

    return stands


def standing_records(events: Iterable[Event], format: str, *, shown: bool = False) -> Iterator[StoredRecord]:
    """Yield the records of the events of a stored history that no rewriting took back, up to one that is redacted, or
    that another hand made; with ``shown``, that it made to be shown. For that yield ``OF_OTHERS``, and end. Raises
    ``InvalidEvent``. Cost: the events, and unpacking their records.
    """
    group: list[Event] = []
    begun = None
    for event in events:
        is_request = isinstance(event, CondensationRequest) or is_declined(event) or (shown and not event.shown)
        if (event.origin is None and is_request) or isinstance(event, DocumentChanges | Redaction):
            continue
        is_aside = is_step_aside(event)  # before the record that it belongs to
        has_record = is_aside or group or events_of(event)
        if event.redacted is not None or event.origin is None or event.origin.format != format or not has_record:
            yield StoredRecord(OF_OTHERS, event.id, event.id, 0)
            return
        begun = event.id if begun is None else begun
        if is_aside:
            continue
        group.append(event)
        if len(group) == events_of(group[0]):
            yield StoredRecord(unpack(group), begun, event.id + 1, sum(each.shown for each in group))
            group, begun = [], None
