"""Idempotency keys: those of callers, stored as keyed hashes, and those of the store.

A key of the store stands for an event that a source gave an id, or says that a conversation has the index of these
(``origins``). Pure.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any, Final

from foldlog.eventstore.errors import InvalidArgument
from foldlog.eventstore.recorders.types import utf8

SOURCE_KEYS: Final = "foldlog:source:"
"""The beginning of keys that are found over all conversations: a database has an index for these."""
_RESERVED: Final = SOURCE_KEYS[:-1]
INDEXED: Final = _RESERVED + "s"
"""The key that says that a conversation is indexed."""


def check_own_key(idempotency_key: str) -> None:
    """Raise ``InvalidArgument`` for a caller's key that begins like those of the store, ``TypeError`` for no text."""
    if type(idempotency_key) is not str:
        raise TypeError(f"an idempotency key is a text, not {idempotency_key!r}")
    if idempotency_key.startswith(_RESERVED):
        raise InvalidArgument(f"idempotency key {idempotency_key!r} begins with {_RESERVED!r}; use another one")


def stored_key(salt: bytes, idempotency_key: str) -> str:
    """Return what a conversation with this salt stores of a caller's key: a keyed hash, which reveals no text."""
    digest = blake2b(utf8(idempotency_key), digest_size=24, key=salt, person=b"foldlog key").digest()
    return urlsafe_b64encode(digest).decode()


def source_key(format: str, source_id: Any) -> str | None:
    """Return the key for a source's id; None for an id that is null, because such events cannot be told apart."""
    if source_id is None:
        return None
    text = utf8(f"{format}\0{source_id!r}")
    return SOURCE_KEYS + urlsafe_b64encode(blake2b(text, digest_size=18).digest()).decode()
