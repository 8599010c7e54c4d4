"""A View's structure after a structural event, as it is stored: ids, no texts.

A revision is one record of the projection ``PROJECTION``, numbered by the version that the structural event brought.
Its body is a JSON object of flat lists of integers; a list that is empty is left out:

    kept         first, last, …     intervals of ids: the View holds every *shown* event in them, so that what is not
                                    shown costs nothing. The last one ends at version - 1 if nothing shown behind it was
                                    forgotten
    summaries    after, c, nth, …   the summary of condensation ``c`` stands behind event ``after`` (-1: before all);
                                    the condensation is the nth structural event, from 0
    register     c, nth, offset     the newest summary, in the dialect ``batch``
    tomb         first, last, …     source ids forgotten for good, in the dialect ``batch``
    left_behind  ids                of events whose unit lost another member
    uncut        ids                of events before which the View must not be cut; -1: at its end
    requested    true               a condensation was asked for and none came since
    structural, condensations       how many such events there were so far

A record with a ``base`` is a *delta* against the full one of that version: of each list that differs
``[prefix, suffix, …]``, how much both begin and end with, and what stands between; ``spent`` says how many bytes of
deltas there are on this base, these among them. So a reader needs two records at most, and which are full follows from
the log alone: made again, they are the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from eventstore.snapshot import Record

T = TypeVar("T")

__all__ = ["CODE", "PROJECTION", "Base", "Revision", "Undecodable", "decoded", "record_of"]

PROJECTION = "views"
CODE = 1
"""Version of the fold and of this form. Whoever changes what a fold gives, or this form, counts it up: records of
another version are made again, not trusted."""

_DELTA_RATIO = 4
"""A delta must be so many times smaller than its base to be worth a second read."""


class Revision(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the body of a full record says."""

    kept: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()
    register: tuple[int, ...] = ()
    tomb: tuple[int, ...] = ()
    left_behind: tuple[int, ...] = ()
    uncut: tuple[int, ...] = ()
    requested: bool = False
    structural: int = 0
    condensations: int = 0


_LISTS = ("kept", "summaries", "register", "tomb", "left_behind", "uncut")


class Base(NamedTuple):
    """The last full record: its version, what it says, its size; and how many bytes of deltas were put on it."""

    version: int
    revision: Revision
    size: int
    spent: int


class Undecodable(ValueError):
    """The record cannot be read. It says nothing that the log does not say: make it again."""


def record_of(version: int, revision: Revision, base: Base | None) -> tuple[Record, Base]:
    """The record for a revision, and the base for the next one. Cost: the revision."""
    if base is not None:
        differences = {
            name: _spliced(getattr(base.revision, name), getattr(revision, name))
            for name in _LISTS
            if getattr(revision, name) != getattr(base.revision, name)
        }
        spent = base.spent + len(msgspec.json.encode(differences))
        if spent <= base.size and (spent - base.spent) * _DELTA_RATIO <= base.size:
            scalars = {name: value for name, value in msgspec.structs.asdict(revision).items() if name not in _LISTS}
            body = msgspec.json.encode({**differences, **scalars, "spent": spent})
            return Record(version, CODE, base.version, body), base._replace(spent=spent)
    body = msgspec.json.encode(revision)
    return Record(version, CODE, None, body), Base(version, revision, len(body), 0)


def decoded(record: Record, base: Record | None) -> tuple[Revision, Base]:
    """What a record says, given the one that it builds on; and the base for the next one.

    Raises ``Undecodable``. Cost: both records.
    """
    if record.base is None:
        revision = _decoded(record, _full)
        return revision, Base(record.version, revision, len(record.body), 0)
    if base is None or base.base is not None or base.code != record.code:
        raise Undecodable(f"the revision of version {record.version} builds on one of {record.base} that is not there")
    whole = _decoded(base, _full)
    delta = _decoded(record, _delta)
    try:
        changes = {
            name: _unspliced(getattr(whole, name), splice)
            for name in _LISTS
            if (splice := getattr(delta, name)) is not None
        }
    except ValueError as error:
        raise Undecodable(f"the revision of version {record.version} does not fit the one it builds on") from error
    scalars = {name: getattr(delta, name) for name in ("requested", "structural", "condensations")}
    revision = msgspec.structs.replace(whole, **changes, **scalars)
    return revision, Base(base.version, whole, len(base.body), delta.spent)


class _Delta(msgspec.Struct, forbid_unknown_fields=True):
    kept: tuple[int, ...] | None = None
    summaries: tuple[int, ...] | None = None
    register: tuple[int, ...] | None = None
    tomb: tuple[int, ...] | None = None
    left_behind: tuple[int, ...] | None = None
    uncut: tuple[int, ...] | None = None
    requested: bool = False
    structural: int = 0
    condensations: int = 0
    spent: int = 0


_full = msgspec.json.Decoder(Revision)
_delta = msgspec.json.Decoder(_Delta)


def _decoded(record: Record, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the revision of version {record.version} cannot be read: {error}") from error


def _spliced(before: Sequence[int], after: Sequence[int]) -> list[int]:
    prefix = _shared(before, after)
    rest = min(len(before), len(after)) - prefix
    suffix = _shared(before[::-1][:rest], after[::-1][:rest])
    return [prefix, suffix, *after[prefix : len(after) - suffix]]


def _unspliced(before: tuple[int, ...], splice: tuple[int, ...]) -> tuple[int, ...]:
    prefix, suffix, *middle = splice
    if min(prefix, suffix) < 0 or prefix + suffix > len(before):
        raise ValueError(f"{prefix} and {suffix} of {len(before)}")
    return (*before[:prefix], *middle, *before[len(before) - suffix :])


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    """How many integers both begin with. By halves: comparing slices is what Python does fast."""
    low, high = 0, min(len(some), len(others))
    while low < high:
        middle = (low + high + 1) // 2
        if some[low:middle] == others[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
