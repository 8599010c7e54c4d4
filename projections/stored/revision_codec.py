"""The stored form of a revision, the structure of a View after a structural event: ids, no texts.

A revision is one record of the projection ``PROJECTION``, numbered by the version that the structural event brought.
Its body is a JSON object of flat lists of integers; an empty list is left out:

    kept         ids at which the kept intervals begin and end, in turn (``[0, 4, 40]``: 0 to 3, and all from 40 on).
                 The View holds every *shown* event in these intervals that the tomb does not hold, so events that are
                 not shown cost nothing. After a retraction the last interval ends at the version that it returns to
    summaries    after, c, nth, d, mth, …: after event ``after`` (-1: before all) stand, in the order of the View, the
                 summaries of the condensations from ``c`` to ``d``, which are the nth to mth structural events, from 0,
                 and all those between; backwards where ``d`` is the smaller. A single one is from ``c`` to ``c``
    register     c, nth, offset: the newest summary, in the V0 dialect
    tomb         source ids, written like ``kept``, that are forgotten for good, in the V0 dialect
    left_behind  ids of events whose unit lost another member
    requested    true: a condensation was requested and none came since
    structural, condensations    the number of such events so far

The integers of a list ascend, and each is written as its difference to the one before it. Those of ``summaries`` need
not ascend, and are written as the difference to the one five before it.

A record with a ``base`` is a *delta* against the full one of that version. Of each ascending list it has the integers
that are in one of the two and not in the other. Of ``summaries``, where they differ, it has the number of integers that
both begin with, the number that both end with, and then those between. All else is whole. ``spent`` is the number of
bytes of all deltas on this base up to this one. So a reader needs two records at most. Which records are full follows
from the log alone: rebuilt, they are the same bytes. The reasons: ``docs/internals/decisions/0030-revisions.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple, TypeVar

import msgspec

from foldlog.eventstore.inside import VIEWS, Record

PROJECTION = VIEWS
CODE = 3
"""Version of the fold and of this form. Increase it with every change of the result of a fold, or of this form:
records of another version are rebuilt, not trusted."""

RUN = 5
"""The number of integers that place the summaries of neighbouring condensations."""

_DELTA_RATIO = 4
"""A delta must be this many times smaller than its base to be worth a second read."""

Ints = tuple[int, ...]
R = TypeVar("R", bound="Revision")


class Revision(msgspec.Struct, frozen=True):
    """The structure of a View in plain integers. The module docstring explains each field."""

    kept: Ints = ()
    summaries: Ints = ()
    register: Ints = ()
    tomb: Ints = ()
    left_behind: Ints = ()
    requested: bool = False
    structural: int = 0
    condensations: int = 0


class Base(NamedTuple):
    """The last full record: its version, its revision, its size, and how many bytes of deltas build on it."""

    version: int
    revision: Revision
    size: int
    spent: int


class UnreadableRevision(ValueError):
    """The record cannot be read. The log holds everything that it says: rebuild it from the log."""


class _Body(Revision, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The stored JSON object, full or a delta: the fields of a revision, with lists in their stored form."""

    spent: int = 0


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(_Body)


def encode_revision(version: int, revision: Revision, base: Base | None) -> tuple[Record, Base]:
    """Return the record for a revision, and the base for the next one. Cost: the revision."""
    if base is not None:
        whole = base.revision
        differences = map(_gaps, map(_either, _ascending(whole), _ascending(revision)))
        delta = _with_lists(_Body, revision, _splice(whole.summaries, revision.summaries), differences)
        size = len(_encode(delta))
        if base.spent + size <= base.size and size * _DELTA_RATIO <= base.size:
            spent = base.spent + size
            delta = msgspec.structs.replace(delta, spent=spent)
            return Record(version, CODE, base.version, _encode(delta)), base._replace(spent=spent)
    body = _encode(_with_lists(_Body, revision, _gaps(revision.summaries, RUN), map(_gaps, _ascending(revision))))
    return Record(version, CODE, None, body), Base(version, revision, len(body), 0)


def decode_revision(record: Record, base: Record | None) -> tuple[Revision, Base]:
    """Return the revision of a record, given the record that it builds on, and the base for the next one.

    Raises ``UnreadableRevision``. Cost: both records.
    """
    if record.base is None:
        revision = _full(record)
        return revision, Base(record.version, revision, len(record.body), 0)
    if base is None or (base.version, base.base, base.code) != (record.base, None, record.code):
        raise UnreadableRevision(
            f"the revision of version {record.version} builds on that of version {record.base}, which is missing"
        )
    whole, delta = _full(base), _body(record)
    lists = map(_either, _ascending(whole), map(_sums, _ascending(delta)))
    summaries = _unspliced(record, whole.summaries, delta.summaries)
    revision = _checked(record, _with_lists(Revision, delta, summaries, lists))
    return revision, Base(base.version, whole, len(base.body), delta.spent)


def _full(record: Record) -> Revision:
    body = _body(record)
    return _checked(record, _with_lists(Revision, body, _sums(body.summaries, RUN), map(_sums, _ascending(body))))


def _ascending(revision: Revision) -> tuple[Ints, Ints, Ints]:
    return revision.kept, revision.tomb, revision.left_behind


def _with_lists(form: type[R], other: Revision, summaries: Ints, ascending: Iterable[Ints]) -> R:
    """Return a revision, or its stored form, with these lists; all other fields are unchanged."""
    kept, tomb, left_behind = ascending
    return form(
        kept, summaries, other.register, tomb, left_behind, other.requested, other.structural, other.condensations
    )


def _checked(record: Record, revision: Revision) -> Revision:
    if (
        any(before >= after for values in _ascending(revision) for before, after in pairwise(values))
        or (revision.kept and not 0 <= revision.kept[0] <= revision.kept[-1] <= record.version)
        or len(revision.summaries) % RUN
        or len(revision.register) not in (0, 3)
    ):
        raise UnreadableRevision(f"the revision of version {record.version} holds lists that no View has")
    return revision


def _body(record: Record) -> _Body:
    try:
        return _decoder.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRevision(f"the revision of version {record.version} cannot be read: {error}") from error


# --- lists of integers ---


def _gaps(values: Ints, step: int = 1) -> Ints:
    """Return each value's difference to the one ``step`` before it."""
    return (*values[:step], *map(sub, values[step:], values))


def _sums(gaps: Ints, step: int = 1) -> Ints:
    """Return the values of which these are the differences."""
    if step == 1:
        return tuple(accumulate(gaps))
    values = list(gaps)
    for place in range(step, len(values)):
        values[place] += values[place - step]
    return tuple(values)


def _either(some: Ints, others: Ints) -> Ints:
    """Return the integers in one of two ascending lists and not in the other, ascending. Its own inverse."""
    return tuple(sorted(set(some) ^ set(others)))


def _splice(before: Ints, after: Ints) -> Ints:
    """Return the lengths of the common beginning and the common end, and the integers between them; empty where both
    are equal.
    """
    if before == after:
        return ()
    prefix = _shared(before, after)
    rest = min(len(before), len(after)) - prefix
    suffix = _shared(before[::-1][:rest], after[::-1][:rest])
    return (prefix, suffix, *_gaps(after[prefix : len(after) - suffix], RUN))


def _unspliced(record: Record, before: Ints, splice: Ints) -> Ints:
    if not splice:
        return before
    if len(splice) < 2 or min(splice[:2]) < 0 or sum(splice[:2]) > len(before):
        raise UnreadableRevision(f"the revision of version {record.version} does not fit the one it builds on")
    prefix, suffix = splice[:2]
    return (*before[:prefix], *_sums(splice[2:], RUN), *before[len(before) - suffix :])


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    """Return how many integers both begin with, by bisection: Python compares slices fast."""
    low, high = 0, min(len(some), len(others))
    while low < high:
        middle = (low + high + 1) // 2
        if some[low:middle] == others[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
