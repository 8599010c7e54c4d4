"""The hash chain: each event's head vouches for it and for every event before it. Pure.

    head(-1) = SHA-256("foldlog" || salt || id of the conversation)
    head(n)  = SHA-256(head(n-1) || id, schema version, recorded_at, kind || body)

It is over the plain text as first written, so encryption, compression, copying and upcasting leave it whole. Publishing
one head makes every change to that history visible to whoever kept it. ``docs/FORMAT.md`` gives the bytes.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

__all__ = ["HEAD_BYTES", "SALT_BYTES", "link", "new_salt", "seed"]

HEAD_BYTES = 32
SALT_BYTES = 16


def new_salt() -> bytes:
    """Random bytes that make the heads of equal histories differ, and, once erased, say nothing of what they
    covered.
    """
    return secrets.token_bytes(SALT_BYTES)


def seed(conversation: str, salt: bytes) -> bytes:
    """The head of an empty conversation."""
    return sha256(b"foldlog" + salt + conversation.encode("utf-8", "surrogatepass")).digest()


def link(head: bytes, event_id: int, kind: str, schema: int, recorded_at: int, body: bytes) -> bytes:
    """The head after one more event. ``recorded_at`` is in microseconds since 1970, UTC. Cost: one pass over the body.

    The fields before the body are separated by spaces and closed by a line feed; only the kind is text, its length
    stands before it, so no two events have the same bytes.
    """
    encoded_kind = kind.encode()
    fields = b"%d %d %d %d %b\n" % (event_id, schema, recorded_at, len(encoded_kind), encoded_kind)
    return sha256(head + fields + body).digest()
