"""The ids that a history's source gave its events, in few bytes each. An export of a long history needs all of them,
because a condensation may name events of any age.
"""

from __future__ import annotations

from typing import Any

_SLOT = 17
"""Bytes for each event: the type of its id, and the id."""
_OTHER, _UUID, _INTEGER = range(3)
_INTEGER_MAX = 2**127


class SourceIds:
    """Ids by the id of the event, added in order. A UUID or an integer takes 17 bytes; another id is kept as it is."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._slots = bytearray()
        self._others: dict[int, Any] = {}

    def add(self, event_id: int, source_id: Any) -> None:
        """Add the id of the next event."""
        if self._first is None:
            self._first = event_id
        packed = _packed(source_id)
        if packed is None:
            self._others[event_id] = source_id
            packed = bytes(_SLOT)
        self._slots += packed

    def __getitem__(self, event_id: int) -> Any:
        """Return the id that the source gave an event; None for an event before the first one that was added."""
        place = event_id - (self._first or 0)
        if not 0 <= place < len(self._slots) // _SLOT:
            return None
        kind, *_ = slot = self._slots[place * _SLOT : (place + 1) * _SLOT]
        if kind == _OTHER:
            return self._others[event_id]
        if kind == _INTEGER:
            return int.from_bytes(slot[1:], "big", signed=True)
        return _uuid_text(slot[1:].hex())


def _packed(source_id: Any) -> bytes | None:
    """Return the id as a slot; None if it is neither a UUID in its usual form nor an integer."""
    if type(source_id) is int and abs(source_id) < _INTEGER_MAX:
        return bytes((_INTEGER,)) + source_id.to_bytes(16, "big", signed=True)
    if type(source_id) is not str or len(source_id) != 36:
        return None
    digits = source_id.replace("-", "")
    if len(digits) != 32 or source_id[8:24:5] != "----":
        return None
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return None
    return b"%c%b" % (_UUID, packed) if packed.hex() == digits else None


def _uuid_text(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
