"""The stored form of a revision. A revision is the structure of a View after a structural event:
ids, and no texts.

A revision is one record of the projection ``PROJECTION``. The number of the record is the version
directly after the structural event. The body of the record is a JSON object with flat lists of
integers, without empty lists:

    kept         the ids at which the shown intervals begin and end, in turn (``[0, 4, 40]``: 0 to
                 3, and from 40 on). The View shows every *shown* event in these intervals, except
                 for events in the tomb. After a retraction, the last interval ends at the version
                 to which the retraction returns
    summaries    the condensations whose summaries the View shows, in the order of the View
    after        for each summary, the event before it (-1 at the beginning)
    register     c, offset: the newest summary, in the V0 dialect
    tomb         forgotten ids of the source, in the form of ``kept``, in the V0 dialect
    left_behind  ids of events whose unit was partly forgotten
    requested    true if a condensation was requested and none followed
    condensations    the number of condensations so far

An integer of a list is stored as its difference from the previous integer, except in ``register``.
Each revision can be read alone (``docs/internals/decisions/0030-revisions.md`` gives the cost).
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from operator import sub

import msgspec

from foldlog.eventstore.events import VIEWS
from foldlog.eventstore.recorders.types import Record

PROJECTION = VIEWS
CODE = 4
"""The version of the fold and of the stored form. Increase ``CODE`` with every change of the fold's
result or of the stored form. Records with another ``CODE`` are replaced.
"""

Ints = tuple[int, ...]


class Revision(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The structure of a View. The docstring of the module explains the fields."""

    kept: Ints = ()
    summaries: Ints = ()
    after: Ints = ()
    register: Ints = ()
    tomb: Ints = ()
    left_behind: Ints = ()
    requested: bool = False
    condensations: int = 0


class UnreadableRevision(ValueError):
    """A stored revision is no JSON, contradicts itself, or does not fit the log."""


_LISTS = ("kept", "summaries", "after", "tomb", "left_behind")
"""The fields whose integers are stored as differences."""
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Revision)


def encode_revision(version: int, revision: Revision) -> Record:
    """Return the record of the revision at ``version``."""
    lists = {name: _differences(getattr(revision, name)) for name in _LISTS}
    return Record(version, CODE, _encode(msgspec.structs.replace(revision, **lists)))


def decode_revision(record: Record) -> Revision:
    """Return the revision in a record. Raises ``UnreadableRevision``."""
    try:
        stored = _decoder.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRevision(
            f"the revision of version {record.version} cannot be read: {error}"
        ) from error
    lists = {name: tuple(accumulate(getattr(stored, name))) for name in _LISTS}
    revision = msgspec.structs.replace(stored, **lists)
    if not _is_possible(revision, record.version):
        raise UnreadableRevision(
            f"the lists in the revision of version {record.version} contradict each other"
        )
    return revision


def _is_possible(revision: Revision, version: int) -> bool:
    """Return whether the lists of a revision agree with each other and with its version."""
    ascending = (revision.kept, revision.tomb, revision.left_behind)
    named = (*revision.summaries, *revision.register[:1])
    return (
        all(before < after for values in ascending for before, after in pairwise(values))
        and all(0 <= end <= version for end in (*revision.kept[:1], *revision.kept[-1:]))
        and all(0 <= condensation < version for condensation in named)
        and len(revision.summaries) == len(revision.after)
        and len(revision.register) in (0, 2)
    )


def _differences(values: Ints) -> Ints:
    """Return the first value, followed by the difference of each value from the one before it."""
    return (*values[:1], *map(sub, values[1:], values))
