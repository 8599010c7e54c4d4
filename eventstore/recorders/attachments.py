"""Rows joined with the bytes that stand beside their bodies, which a database keeps in tables of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from eventstore.recorders.types import BareRow
from eventstore.values.bodies import Attachment, Body

_WITH_BYTES = 16
"""The bit that the encoding of a row has where bytes stand beside its body; see the row codec."""

encoding_of: Final = itemgetter(6)
have_no_bytes: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint
"""Return whether no bytes stand beside the bodies of rows with these encodings. No bytecode is executed for a row."""


def keyed(rows: Iterable[BareRow], key: int, intervals: Sequence[tuple[int, ...]]) -> list[tuple[int, BareRow]]:
    """Return each row with the key that it is stored under: that of the interval that holds its id, else ``key``."""
    others = [(first, last, its_key[0]) for first, last, *its_key in intervals if its_key]
    if not others:
        return [(key, row) for row in rows]
    # In a damaged row the id may be of any type.
    return [(next((k for a, b, k in others if type(row[0]) is int and a <= row[0] <= b), key), row) for row in rows]


def with_attachments(
    rows: Sequence[tuple[int, BareRow]],
    attached: Callable[[int, Sequence[int]], Iterable[tuple[int, bytes, int]]],
    attachment: Callable[[int, bytes, int], bytes | None],
) -> list[BareRow]:
    """Return rows with the attachments of their bodies. A missing attachment is left out: the row codec finds that.

    ``attached`` returns the ids, names and encodings of the attachments of a conversation's events, ``attachment`` the
    bytes of one. Each attachment is read once, and rows share it.
    """
    wanted: dict[int, list[int]] = {}
    for key, row in rows:
        if _has_attachments(row):
            wanted.setdefault(key, []).append(row[0])
    known: dict[tuple[int, bytes, int], Attachment | None] = {}
    of_row: dict[tuple[int, int], list[Attachment]] = {}
    for key, ids in wanted.items():
        for event_id, name, encoding in attached(key, ids):
            place = (key, name, encoding)
            if place not in known:
                body = attachment(*place)
                known[place] = None if body is None else Attachment(name, encoding, body)
            found = known[place]
            if found is not None:
                of_row.setdefault((key, event_id), []).append(found)
    return [
        (*row[:7], Body.of(row[7], of_row.get((key, row[0]), ())), *row[8:]) if _has_attachments(row) else row
        for key, row in rows
    ]


def _has_attachments(row: BareRow) -> bool:
    event_id, encoding, body = row[0], row[6], row[7]
    return (
        type(encoding) is int
        and encoding > 0
        and encoding & _WITH_BYTES != 0
        and type(event_id) is int
        and type(body) is bytes
    )
