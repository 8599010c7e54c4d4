"""The names and salts under which copied events of a fork were recorded, so that their heads can be checked. Pure.

A fork that was detached from its parent, or copied to another store, has all of its events under its own key. The heads
of these events do not change. So the fork's row keeps the name and the salt of each conversation that the events come
from.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventstore.log.keys import DataKey
from eventstore.log.row import NotAsWritten, border, seed

_PLAIN: Final = b"\0"
_ENCRYPTED: Final = b"\1"
_PLACE: Final = b"past\0"


class Link(NamedTuple):
    """A conversation that the copied events up to the version ``stop`` were recorded in."""

    id: str
    salt: bytes
    stop: int


def encode_past(links: Sequence[Link], key: DataKey | None) -> bytes:
    """Return the bytes to store, encrypted where the conversation is."""
    text = json.dumps([[link.id, link.salt.hex(), link.stop] for link in links]).encode("ascii")
    return _PLAIN + text if key is None else _ENCRYPTED + key.encrypt(text, _PLACE)


def decode_past(stored: bytes | None, key: DataKey | None) -> tuple[Link, ...]:
    """Return the parts, the oldest first. Raises ``NotAsWritten``."""
    if stored is None:
        return ()
    try:
        form, text = stored[:1], stored[1:]
        if form == _ENCRYPTED and key is not None:
            text = key.decrypt(text, _PLACE)
        return tuple(Link(name, bytes.fromhex(salt), stop) for name, salt, stop in json.loads(text))
    except (ValueError, TypeError) as error:
        raise NotAsWritten("what is known of copied events was changed") from error


def follows(
    conversation: str, salt: bytes, links: Sequence[Link], event_id: int, head: bytes | None
) -> tuple[bytes, bytes]:
    """Return what an event's head is computed from: a head, and a salt. ``head`` is that of the event before it."""
    place = bisect_right([link.stop for link in links], event_id)
    name, its_salt = (links[place].id, links[place].salt) if place < len(links) else (conversation, salt)
    start = links[place - 1].stop if place else 0
    if event_id == 0 or head is None:
        return seed(name, its_salt), its_salt
    return border(name, its_salt, start, head) if event_id == start else head, its_salt
