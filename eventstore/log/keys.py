"""A data key encrypts the events of one conversation. Wrapping keys encrypt the data keys.

A wrapping key is 32 random bytes in base64 or hexadecimal. The keys are in the environment
(``FOLDLOG_KEY``), or in a file with one key per line (``FOLDLOG_KEY_FILE``). The first key
encrypts. All keys decrypt. The name of a key is a hash of the key, so that a message can name a
missing key without showing it.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from itertools import repeat
from operator import add
from struct import Struct
from typing import TYPE_CHECKING

from foldlog.eventstore.errors import InvalidArgument, KeyUnavailable, count, install_command
from foldlog.eventstore.log.row import NotAsWritten
from foldlog.eventstore.recorders.types import utf8

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from pydantic import SecretStr

KEY_BYTES = 32
NONCE_BYTES = 12
_each_nonce = Struct(f"{NONCE_BYTES}s").iter_unpack
_FORM = b"\1"
"""The first byte of an encrypted data key, which is the version of its format."""
_KEY_PLACE = b"data key\0"
KEY = "FOLDLOG_KEY"
KEY_FILE = "FOLDLOG_KEY_FILE"
SET_A_KEY = f"set {KEY} or {KEY_FILE}"

_HOW_TO_MAKE_ONE = (
    "a key is 32 random bytes in base64 or hexadecimal; make a key with 'openssl rand -base64 32'"
)


class KeyRing:
    """Wrapping keys for encrypted conversations. ``secrets`` are the keys as texts or ``SecretStr``
    objects. The first key of the ring encrypts new data keys. The ``repr`` of a ring shows only the
    names of the keys.

    Raises ``KeyUnavailable`` if a key or a key file is missing, if a text is not a key, or if the
    package ``cryptography`` is missing. Raises ``InvalidArgument`` if a value has a wrong type.
    """

    def __init__(
        self, secrets: SecretStr | str | Sequence[SecretStr | str], *, source: str = "the key given"
    ) -> None:
        if isinstance(secrets, str | bytes) or not isinstance(secrets, Iterable):
            secrets = [secrets]
        keys = [_parse_key(secret, source) for secret in secrets]
        if not keys:
            raise KeyUnavailable(f"{source} holds no key; {_HOW_TO_MAKE_ONE}")
        named = {_name_of(key): key for key in keys}
        self._ciphers = {name: cipher(key) for name, key in named.items()}
        self._digest_keys = {
            name: blake2b(key=key, person=b"foldlog lookup").digest() for name, key in named.items()
        }
        self.current = next(iter(named))

    @classmethod
    def from_file(cls, path: str) -> KeyRing:
        """Read keys from a file with one key a line. The first key in the file encrypts new data
        keys. Lines that begin with ``#`` are comments.
        """
        try:
            with open(path, encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                lines = [line.strip() for line in file]
        except (OSError, ValueError) as error:  # not UTF-8, or no file can have the path
            problem = getattr(error, "strerror", None) or error
            raise KeyUnavailable(
                f"the key file {path!r} cannot be read: {problem}; {_HOW_TO_MAKE_ONE}"
            ) from error
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
            raise KeyUnavailable(
                f"the key file {path!r} has mode {status.st_mode & 0o777:04o}, so other users can"
                " read it; let only its owner read it (chmod 600), and run 'foldlog store rekey'"
                " if others may have read it"
            )
        return cls(
            [line for line in lines if line and not line.startswith("#")],
            source=f"key file {path!r}",
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KeyRing | None:
        """Return the keys of ``FOLDLOG_KEY`` (separated by spaces) or ``FOLDLOG_KEY_FILE``, or None
        if neither variable is set.
        """
        text = environment.get(KEY)
        path = environment.get(KEY_FILE)
        for name, value, content in (
            (KEY, text, "a key"),
            (KEY_FILE, path, "the path of a file with keys"),
        ):
            # A deployment may set an empty secret by mistake, and the store must not store plain
            # events because of it.
            if value == "":
                raise KeyUnavailable(
                    f"the variable {name} is set and empty; set {name} to {content}, or unset"
                    f" {name} to use no key"
                )
        if text and path:
            raise KeyUnavailable(f"both {KEY} and {KEY_FILE} are set; unset one of the two")
        if path:
            return cls.from_file(path)
        return cls(text.split(), source=KEY) if text else None

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    @property
    def names(self) -> Sequence[str]:
        """The names of the keys. The key with the first name encrypts new data keys."""
        return list(self._ciphers)

    def digest(self, key_id: str, text: bytes, size: int) -> bytes:
        """Return a digest that only a holder of the key can compute."""
        return blake2b(text, key=self._digest_keys[key_id], digest_size=size).digest()

    def wrap(self, conversation: str, secret: bytes) -> bytes:
        """Encrypt the data key of a conversation with the first key of the ring, and return the
        result.
        """
        nonce = os.urandom(NONCE_BYTES)
        return (
            _FORM
            + nonce
            + self._ciphers[self.current].encrypt(nonce, secret, _KEY_PLACE + utf8(conversation))
        )

    def unwrap(self, conversation: str, key_id: str, wrapped: bytes) -> DataKey:
        """Decrypt the data key of a conversation with the wrapping key ``key_id``.

        Raises ``KeyUnavailable`` if the ring lacks the wrapping key, or if the bytes belong to
        another conversation or key.
        """
        from cryptography.exceptions import InvalidTag

        wrapping = self._ciphers.get(key_id)
        if wrapping is None:
            raise key_missing(f"conversation {conversation!r} is encrypted", key_id, self)
        nonce = wrapped[1 : 1 + NONCE_BYTES]
        encrypted = wrapped[1 + NONCE_BYTES :]
        try:
            if not wrapped.startswith(_FORM):
                raise ValueError("an unknown form of a data key")
            secret = wrapping.decrypt(nonce, encrypted, _KEY_PLACE + utf8(conversation))
        except (InvalidTag, ValueError) as error:
            raise KeyUnavailable(
                f"key {key_id} does not decrypt the data key of conversation {conversation!r}: the"
                " data key is damaged, or it belongs to another conversation; restore the"
                " conversation from a backup"
            ) from error
        return DataKey(conversation, secret)


class DataKey:
    """The data key of one conversation, with the conversation's salt. The mark of the conversation
    says which rows may be unencrypted.
    """

    def __init__(self, conversation: str, secret: bytes) -> None:
        self.secret = secret
        self.salt = secret[KEY_BYTES:]
        self.name = utf8(conversation)
        self._cipher = cipher(secret[:KEY_BYTES])

        from cryptography.exceptions import InvalidTag

        self._refusals = (InvalidTag, ValueError)

    @staticmethod
    def new_secret(salt: bytes) -> bytes:
        return os.urandom(KEY_BYTES) + salt

    def name_of(self, digest: bytes) -> bytes:
        """Return the stored name of an attachment. Unlike the digest of its bytes, the name reveals
        nothing about them without the key.
        """
        return blake2b(
            digest, key=self.secret[:KEY_BYTES], digest_size=32, person=b"foldlog bytes"
        ).digest()

    def encrypt(self, body: bytes, place: bytes) -> bytes:
        """Encrypt ``body``. ``decrypt`` needs the same ``place``."""
        return self.encrypt_all((body,), (place,))[0]

    def encrypt_all(self, bodies: Sequence[bytes], places: Iterable[bytes]) -> list[bytes]:
        nonces = [nonce for (nonce,) in _each_nonce(os.urandom(NONCE_BYTES * len(bodies)))]
        encrypted = map(self._cipher.encrypt, nonces, bodies, map(add, places, repeat(self.name)))
        return list(map(add, nonces, encrypted))

    def decrypt(self, encrypted: bytes, place: bytes) -> bytes:
        """Return the plain text of what was encrypted for ``place``. Raises ``NotAsWritten`` if the
        text, the place or the key is another.
        """
        try:
            return self._cipher.decrypt(
                encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], place + self.name
            )
        except self._refusals as error:
            raise NotAsWritten(
                "the key of the conversation does not decrypt the event: its text or another column"
                " was changed"
            ) from error


def key_missing(problem: str, key_id: str | None, keys: KeyRing | None) -> KeyUnavailable:
    """Return the error for the missing key ``key_id``. ``problem`` ends with "encrypted"."""
    names = "" if keys is None else ", ".join(keys.names)
    if names:
        remedy = f"the keys that are set are {names}; add the missing key after these keys"
    else:
        remedy = SET_A_KEY
    return KeyUnavailable(f"{problem} under key {key_id}; {remedy}")


def cipher(key: bytes) -> AESGCM:
    """Return the cipher with a key. Raises ``KeyUnavailable`` if the package ``cryptography`` is
    not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeyUnavailable(
            f"encryption needs the package 'cryptography'; {install_command('crypto')}"
        ) from error
    return AESGCM(key)


def _parse_key(secret: SecretStr | str, source: str) -> bytes:
    """Return the key that a secret holds as hexadecimal digits or in base64. ``source`` names the
    secret in errors.
    """
    text: object
    if isinstance(secret, str):
        text = secret
    else:
        # Only an object of pydantic has this method, and pydantic need not be installed.
        text = getattr(secret, "get_secret_value", lambda: None)()
    if not isinstance(text, str):
        raise InvalidArgument(
            f"{source} must be a text or a SecretStr, not of type {type(secret)!r};"
            f" {_HOW_TO_MAKE_ONE}"
        )
    for decode in (bytes.fromhex, lambda t: base64.b64decode(t, validate=True)):
        try:
            key = decode(text.strip())
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    # The message must quote neither the text nor the error of a decoder, because a decoder's error
    # may quote the text.
    length = count(len(text.strip()), "character")
    raise KeyUnavailable(f"{source} holds a text of {length}, not a key; {_HOW_TO_MAKE_ONE}")


def _name_of(key: bytes) -> str:
    return sha256(b"foldlog key" + key).hexdigest()[:16]
