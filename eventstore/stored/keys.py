"""Wrapping keys: they seal the data keys of conversations, which seal the events.

A key is 32 random bytes in base64 or hexadecimal, given in the environment (``FOLDLOG_KEY``) or in a file
(``FOLDLOG_KEY_FILE``), one a line. The first seals; the others still open what they sealed. A key is named by a hash
of it, so that a message can say which one is missing without saying the key.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from eventstore.errors import KeyUnavailable

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["KEY_BYTES", "KeyRing", "cipher"]

KEY_BYTES = 32
NONCE_BYTES = 12
KEY, KEY_FILE = "FOLDLOG_KEY", "FOLDLOG_KEY_FILE"

_HOW_TO_MAKE_ONE = "a key is 32 random bytes in base64 or hexadecimal, such as 'openssl rand -base64 32' prints"


class Cipher(Protocol):
    """AES-256-GCM under one key."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class KeyRing:
    """Wrapping keys. Its ``repr`` names them and does not show them.

    Raises ``KeyUnavailable`` where there is none, or a text is no key, or the package ``cryptography`` is missing.
    """

    def __init__(self, secrets: Sequence[SecretStr], *, where: str = "the key given") -> None:
        keys = [_key(secret.get_secret_value(), where) for secret in secrets]
        if not keys:
            raise KeyUnavailable(f"{where} holds no key; {_HOW_TO_MAKE_ONE}")
        self._ciphers = {_name(key): cipher(key) for key in keys}
        self.current = _name(keys[0])

    @classmethod
    def from_file(cls, path: str) -> KeyRing:
        """Keys from a file, one a line, the one that seals first; lines that begin with ``#`` are remarks."""
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise KeyUnavailable(f"the key file {path!r} cannot be read: {error}; {_HOW_TO_MAKE_ONE}") from error
        return cls(_secrets(line for line in lines if line and not line.startswith("#")), where=f"key file {path!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KeyRing | None:
        """Keys from ``FOLDLOG_KEY`` (several are separated by spaces) or ``FOLDLOG_KEY_FILE``; None if neither is
        set.
        """
        text, path = environment.get(KEY), environment.get(KEY_FILE)
        if text and path:
            raise KeyUnavailable(f"both {KEY} and {KEY_FILE} are set; unset one of them")
        if path:
            return cls.from_file(path)
        return cls(_secrets(text.split()), where=KEY) if text else None

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    def seal(self, conversation: str, secret: bytes) -> bytes:
        """``secret`` under the first key, for one conversation."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._ciphers[self.current].encrypt(nonce, secret, _place(conversation))

    def open(self, conversation: str, key_id: str, sealed: bytes) -> bytes:
        """What was sealed under the key with this name. Raises ``KeyUnavailable`` where it is not here, or these bytes
        are not what it sealed for this conversation.
        """
        from cryptography.exceptions import InvalidTag

        wrapping = self._ciphers.get(key_id)
        if wrapping is None:
            raise KeyUnavailable(
                f"conversation {conversation!r} is sealed with key {key_id}, and the keys given are "
                f"{', '.join(self._ciphers)}; give that one too, behind the one that seals"
            )
        try:
            return wrapping.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _place(conversation))
        except (InvalidTag, ValueError) as error:
            raise KeyUnavailable(
                f"the data key of conversation {conversation!r} is damaged, or it is another conversation's: "
                f"key {key_id} does not open it; restore the conversation from a backup"
            ) from error


def cipher(key: bytes) -> Cipher:
    """AES-256-GCM. Raises ``KeyUnavailable`` where the package ``cryptography`` is missing."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeyUnavailable("sealing needs the package 'cryptography'; pip install 'foldlog[crypto]'") from error
    return AESGCM(key)


def _secrets(texts: Iterable[str]) -> Sequence[SecretStr]:
    from pydantic import SecretStr

    return [SecretStr(text) for text in texts]


def _key(text: str, where: str) -> bytes:
    for decode in (bytes.fromhex, lambda t: base64.b64decode(t, validate=True)):
        try:
            key = decode(text.strip())
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    # Neither the text nor the error of a decoder, which may hold it, goes into the message.
    raise KeyUnavailable(f"{where} holds a text of {len(text.strip())} characters that is no key; {_HOW_TO_MAKE_ONE}")


def _name(key: bytes) -> str:
    return sha256(b"foldlog key" + key).hexdigest()[:16]


def _place(conversation: str) -> bytes:
    return b"data key of " + conversation.encode("utf-8", "surrogatepass")
