"""Rows joined with the bytes that stand beside their bodies, which a database keeps in tables of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from foldlog.eventstore.codec_json import Attachment, Body
from foldlog.eventstore.recorders.types import Row

_WITH_BYTES = 16
"""The bit that the encoding of a row has where bytes stand beside its body; see the row codec."""

_encoding = itemgetter(6)
_without_bytes: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint


class ReadsAttachments(ABC):
    """The part of a reader that gives rows their attachments; most rows have none."""

    @abstractmethod
    def _attached(self, key: int, ids: Sequence[int]) -> Iterable[tuple[int, bytes, int]]:
        """Return the ids, names and encodings of the attachments of a conversation's events."""

    @abstractmethod
    def _attachment(self, key: int, name: bytes, encoding: int) -> bytes | None:
        """Return the bytes of one attachment, or None if they are missing."""

    def _whole(self, rows: Sequence[Row], key: int, intervals: Sequence[tuple[int, ...]] = ()) -> Sequence[Row]:
        """Return rows of a conversation with their attachments. An interval may name another: see ``flagged_rows``."""
        if _without_bytes(map(_encoding, rows)):
            return rows
        others = [(first, last, its_key[0]) for first, last, *its_key in intervals if its_key]
        keys = [next((k for first, last, k in others if first <= row.id <= last), key) for row in rows]
        return self._whole_of(rows, keys)

    def _whole_of(self, rows: Sequence[Row], keys: Sequence[int]) -> Sequence[Row]:
        """Return rows with their attachments. ``keys`` are those that they are stored under.

        A missing attachment is left out: the row codec finds that. Each one is read once, and rows share it.
        """
        if _without_bytes(map(_encoding, rows)):
            return rows
        wanted: dict[int, list[int]] = {}
        for key, row in zip(keys, rows, strict=True):
            if _has_attachments(row):
                wanted.setdefault(key, []).append(row.id)
        read: dict[tuple[int, bytes, int], bytes | None] = {}
        of_row: dict[tuple[int, int], list[Attachment]] = {}
        for key, ids in wanted.items():
            for event_id, name, encoding in self._attached(key, ids):
                place = (key, name, encoding)
                if place not in read:
                    read[place] = self._attachment(*place)
                body = read[place]
                if body is not None:
                    of_row.setdefault((key, event_id), []).append(Attachment(name, encoding, body))
        return [
            row._replace(body=Body.of(row.body, of_row.get((key, row.id), ()))) if _has_attachments(row) else row
            for key, row in zip(keys, rows, strict=True)
        ]


def _has_attachments(row: Row) -> bool:
    return not _without_bytes((row.encoding,)) and isinstance(row.body, bytes)
