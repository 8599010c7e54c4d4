"""Who may do what: each request below ``/v1`` needs a token.

A file of tokens is TOML. The file contains a hash of each token, or the token itself:

    [worker]
    sha256 = "9f86…"            # printf %s TOKEN | sha256sum
    scope = "append"            # read, append (and read), or administer (everything)
    where = { user = "ann" }    # only conversations with these attributes
    requests_per_s = 50
    connections = 20
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

import msgspec

from foldlog.eventstore import InvalidOption


class Scope(enum.IntEnum):
    """A scope includes the scopes before it."""

    READ = 1
    APPEND = 2
    ADMINISTER = 3


class TokenEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    scope: str
    sha256: str | None = None
    token: str | None = None
    where: dict[str, str | int | bool] = {}
    requests_per_s: Annotated[float, msgspec.Meta(gt=0)] = 200.0
    connections: Annotated[int, msgspec.Meta(ge=1)] = 100
    body_bytes_max: int = 64 * 1024 * 1024


class Principal:
    """The holder of a token, with the limits of the token. One object serves all requests of the
    token in this process.
    """

    def __init__(self, name: str, entry: TokenEntry) -> None:
        self.name = name
        self.scope = Scope[entry.scope.upper()]
        self.where: Mapping[str, str | int | bool] = entry.where
        self.body_bytes_max = entry.body_bytes_max
        self._requests_per_s = entry.requests_per_s
        self._connections_max = entry.connections
        self._connections = 0
        self._allowance = max(1.0, entry.requests_per_s)
        self._counted_at = time.monotonic()
        self._lock = Lock()

    def sees(self, attributes: Mapping[str, Any]) -> bool:
        """Return whether a conversation with these attributes belongs to the token."""
        return all(
            type(attributes.get(name)) is type(value) and attributes[name] == value
            for name, value in self.where.items()
        )

    def wait_s(self) -> float:
        """Count a request. Return the number of seconds after which the next request may come, or
        0 if this request may be answered.
        """
        with self._lock:
            now = time.monotonic()
            elapsed_s = now - self._counted_at
            self._counted_at = now
            self._allowance = min(
                max(1.0, self._requests_per_s), self._allowance + elapsed_s * self._requests_per_s
            )
            if self._allowance < 1:
                return (1 - self._allowance) / self._requests_per_s
            self._allowance -= 1
            return 0.0

    def enter(self) -> bool:
        """Count an open request. Return False if the token has too many; then do not ``leave``."""
        with self._lock:
            if self._connections >= self._connections_max:
                return False
            self._connections += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._connections -= 1


class Tokens:
    """The tokens of a service. The tokens are kept as hashes, so no comparison and no dump of
    memory shows a token.
    """

    def __init__(self, entries: Iterable[tuple[str, TokenEntry]]) -> None:
        self._principals = [
            (_digest(name, entry), Principal(name, entry)) for name, entry in entries
        ]

    @classmethod
    def of_one(cls, token: str) -> Tokens:
        """Return a single token that may do everything."""
        return cls([("server", TokenEntry(scope="administer", token=token))])

    @classmethod
    def from_file(cls, path: Path) -> Tokens:
        """Read the tokens of a file. Raises ``InvalidOption`` if the file cannot be read, if others
        may read it, or if an entry is wrong.
        """
        try:
            mode = path.stat().st_mode
            text = path.read_bytes()
        except OSError as error:
            raise InvalidOption(f"the file of tokens {path}: {error.strerror}") from error
        if mode & 0o077 and os.name == "posix":
            raise InvalidOption(
                f"the file of tokens {path} may be read by other users; run 'chmod 600 {path}'"
            )
        try:
            entries = msgspec.toml.decode(text, type=dict[str, TokenEntry])
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InvalidOption(f"the file of tokens {path}: {error}") from error
        if not entries:
            raise InvalidOption(f"the file of tokens {path} has no token; add a table [NAME]")
        return cls(entries.items())

    def principal(self, token: str | None) -> Principal | None:
        """Return the holder of a token, or None. All tokens are compared, so the time says nothing
        about them.
        """
        digest = sha256((token or "").encode("utf-8", "surrogatepass")).digest()
        holder = None
        for known, principal in self._principals:
            if compare_digest(known, digest):
                holder = principal
        return holder if token else None


def _digest(name: str, entry: TokenEntry) -> bytes:
    if entry.scope.upper() not in Scope.__members__:
        scopes = ", ".join(scope.name.lower() for scope in Scope)
        raise InvalidOption(
            f"the token {name!r} has the scope {entry.scope!r}; use one of {scopes}"
        )
    if (entry.sha256 is None) == (entry.token is None):
        raise InvalidOption(f"the token {name!r} needs either 'sha256' or 'token'")
    if entry.token is not None:
        return sha256(entry.token.encode()).digest()
    try:
        digest = bytes.fromhex(entry.sha256 or "")
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise InvalidOption(f"the token {name!r}: 'sha256' must be 64 hexadecimal digits")
    return digest
