"""Rows joined with the bytes that stand beside their bodies, which a database keeps in tables of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from foldlog.eventstore.codec_json import Attachment, Body
from foldlog.eventstore.recorders.types import Row

_WITH_BYTES = 16
"""The bit that the encoding of a row has where bytes stand beside its body; see the row codec."""

_encoding = itemgetter(6)
_without_bytes: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint


def any_with_bytes(rows: Iterable[Row]) -> bool:
    """Return whether bytes may stand beside the body of one of these rows."""
    return not _without_bytes(map(_encoding, rows))


def keyed(rows: Iterable[Row], key: int, intervals: Sequence[tuple[int, ...]]) -> list[tuple[int, Row]]:
    """Return each row with the key that it is stored under: that of the interval that holds its id, else ``key``."""
    others = [(first, last, its_key[0]) for first, last, *its_key in intervals if its_key]
    if not others:
        return [(key, row) for row in rows]
    return [(next((k for a, b, k in others if a <= row.id <= b), key), row) for row in rows]


def with_attachments(
    rows: Sequence[tuple[int, Row]],
    attached: Callable[[int, Sequence[int]], Iterable[tuple[int, bytes, int]]],
    attachment: Callable[[int, bytes, int], bytes | None],
) -> list[Row]:
    """Return rows with the attachments of their bodies. A missing attachment is left out: the row codec finds that.

    ``attached`` returns the ids, names and encodings of the attachments of a conversation's events, ``attachment`` the
    bytes of one. Each attachment is read once, and rows share it.
    """
    wanted: dict[int, list[int]] = {}
    for key, row in rows:
        if _has_attachments(row):
            wanted.setdefault(key, []).append(row.id)
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
        row._replace(body=Body.of(row.body, of_row.get((key, row.id), ()))) if _has_attachments(row) else row
        for key, row in rows
    ]


def _has_attachments(row: Row) -> bool:
    return not _without_bytes((row.encoding,)) and isinstance(row.body, bytes)
