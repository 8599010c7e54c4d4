"""Idempotency keys: those of callers, and those of the store, which callers may not give.

A key of the store stands for an event that a source gave an id, or says that a conversation has the index of these
(``origins``); or it is the keyed hash that a redaction left of a key. Pure.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any, Final

from foldlog.eventstore.errors import InvalidArgument
from foldlog.eventstore.recorders.types import utf8

_SOURCE_KEYS: Final = "foldlog:source:"
"""The beginning of keys that are found over all conversations: a database has an index for these."""
_RESERVED: Final = _SOURCE_KEYS[:-1]
INDEXED: Final = _RESERVED + "s"
"""The key that says that a conversation is indexed."""
HIDDEN_KEYS: Final = "foldlog:redacted:"
"""The beginning of idempotency keys that a redaction replaced by a keyed hash."""
_HIDDEN_KEY_BYTES: Final = 24


def check_own_key(idempotency_key: str) -> None:
    """Raise ``InvalidArgument`` for a caller's key that begins like those of the store, ``TypeError`` for no text."""
    if type(idempotency_key) is not str:
        raise TypeError(f"an idempotency key is a text, not {idempotency_key!r}")
    for reserved in (_RESERVED, HIDDEN_KEYS):
        if idempotency_key.startswith(reserved):
            raise InvalidArgument(f"idempotency key {idempotency_key!r} begins with {reserved!r}; use another one")


def source_key(format: str, source_id: Any) -> str | None:
    """Return the key for a source's id; None for an id that is null, because such events cannot be told apart."""
    if source_id is None:
        return None
    text = utf8(f"{format}\0{source_id!r}")
    return _SOURCE_KEYS + urlsafe_b64encode(blake2b(text, digest_size=18).digest()).decode()


def is_source_key(idempotency_key: str) -> bool:
    """Return whether it is the key of an id that a source gave an event."""
    return idempotency_key.startswith(_SOURCE_KEYS)


def hidden_key(salt: bytes, idempotency_key: str) -> str:
    """Return the keyed hash that replaces an idempotency key once an event that it stands for is redacted."""
    if idempotency_key.startswith(HIDDEN_KEYS):
        return idempotency_key
    digest = blake2b(utf8(idempotency_key), digest_size=_HIDDEN_KEY_BYTES, key=salt, person=b"foldlog key").digest()
    return HIDDEN_KEYS + urlsafe_b64encode(digest).decode()
