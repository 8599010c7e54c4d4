"""Who may do what: each request below ``/v1`` needs a token.

A file of tokens is TOML. The file contains a hash of each token, or the token itself:

    [worker]
    sha256 = "9f86…"            # printf %s TOKEN | sha256sum
    scope = "append"            # read; append (and read); approve (decide on calls, and read);
                                # administer (everything)
    where = { user = "ann" }    # only conversations with these attributes
    requests_per_s = 50
    connections = 20
    reads_at_once = 4
    body_bytes_max = 1_000_000
"""

from __future__ import annotations

import asyncio
import enum
import hmac
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from foldlog._app.server.problems import Refusal
from foldlog._base.json_types import JsonMap
from foldlog.eventstore import InvalidOption
from foldlog.formats.open_calls import Recent

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum number of bytes of the answers that wait in memory for the clients of a token."""
_LARGE_KEPT: Final = 1_000
"""The number of conversations with a large answer that a token remembers."""
_READ: Final = "read."
"""The beginning of a token that reads one conversation for some minutes."""
_ENDED: Final = "the read token has ended, or is not ours; ask for a new one"


class Scope(enum.Enum):
    """What a token allows."""

    READ = "read"
    APPEND = "append"
    APPROVE = "approve"
    ADMINISTER = "administer"

    def includes(self, other: Scope) -> bool:
        """Return whether a token with this scope may do what ``other`` allows. A worker that
        appends does not approve its own calls.
        """
        return other in (Scope.READ, self) or self is Scope.ADMINISTER


class TokenEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A token in a file of tokens."""

    scope: Literal["read", "append", "approve", "administer"]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")] | None = None
    token: str | None = None
    where: dict[str, str | int | bool] = {}
    requests_per_s: Annotated[float, msgspec.Meta(gt=0)] = 200.0
    connections: Annotated[int, msgspec.Meta(ge=1)] = 100
    reads_at_once: Annotated[int, msgspec.Meta(ge=1)] = 4
    body_bytes_max: Annotated[int, msgspec.Meta(ge=1)] = 32 * 1024 * 1024


class TooFast(Refusal):
    """The token sends more requests than its rate allows."""


class Principal:
    """The holder of a token, with the limits of the token. One object serves all requests of the
    token in this process.
    """

    conversation: str | None = None
    """The only conversation that the holder may read, or None."""
    conversation_key: int | None = None
    """The key of this conversation. Another one may have its id after an erasure."""
    ends_at: int | None = None
    """The time, in seconds since 1970, from which on the token is refused, or None."""

    def __init__(self, name: str, entry: TokenEntry, digest: bytes) -> None:
        self.name = name
        self._digest = digest
        self.scope = Scope(entry.scope)
        self.where: Mapping[str, str | int | bool] = entry.where
        self.body_bytes_max = entry.body_bytes_max
        self._rate = entry.requests_per_s
        self._connections_max = entry.connections
        self._connections = 0
        self._body_bytes = 0
        self._answer_bytes = 0
        self._allowance = max(1.0, self._rate)
        self._counted_at = time.monotonic()
        # Requests of the token wait for each other, so that those of other tokens run meanwhile:
        # each thread that computes makes the others wait for the interpreter's lock.
        self.reads = asyncio.Semaphore(entry.reads_at_once)
        self.long_reads = asyncio.Semaphore(1)
        self.large_writes = asyncio.Semaphore(1)
        self.large = Recent[str, None](_LARGE_KEPT)
        """Conversations that had a large answer, so that the token reads one at a time."""

    def sees(self, attributes: JsonMap) -> bool:
        """Return whether a conversation with these attributes belongs to the token."""
        return all(
            type(attributes.get(name)) is type(value) and attributes[name] == value
            for name, value in self.where.items()
        )

    @property
    def sees_all(self) -> bool:
        """Whether the holder may read every conversation."""
        return not self.where and self.conversation is None

    def require(self, scope: Scope) -> None:
        """Refuse what the scope of the token does not allow."""
        if not self.scope.includes(scope):
            raise Refusal(
                403,
                f"this token has the scope {self.scope.value!r}, and the request needs"
                f" {scope.value!r}",
            )

    def has_ended(self) -> bool:
        """Return whether the time of the token is over."""
        return self.ends_at is not None and time.time() >= self.ends_at

    def check_valid(self) -> None:
        """Refuse a token whose time is over. An answer that is a stream asks again and again."""
        if self.has_ended():
            raise Refusal(401, _ENDED)

    def check_conversation(self, conversation: str) -> None:
        """Refuse a path that is not of the only conversation that the holder may read."""
        if self.conversation not in (None, conversation):
            raise Refusal(403, "this token reads another conversation only")

    def check_conversation_key(self, key: int | None) -> None:
        """Refuse a conversation that began with the same id after an erasure."""
        if self.conversation_key not in (None, key):
            raise Refusal(401, _ENDED)

    def read_token(self, conversation: str, key: int, ends_at: int) -> str:
        """Return a token that reads the conversation with this id and key until a time, in seconds
        since 1970. Each server that knows the holder's token accepts it.
        """
        body = msgspec.json.encode([self.name, conversation, key, ends_at])
        return f"{_READ}{_as_text(body)}.{_as_text(self._signed(body))}"

    def signs(self, body: bytes, signature: bytes) -> bool:
        """Return whether the signature of a read token was made with this token."""
        return compare_digest(self._signed(body), signature)

    def _signed(self, body: bytes) -> bytes:
        return hmac.digest(self._digest, b"foldlog read token " + body, "sha256")

    def enter(self) -> OpenRequest:
        """Count an open request, until it leaves. Raises a ``Refusal`` if the token sends too many
        requests, or has too many open. Call it in the event loop.
        """
        now = time.monotonic()
        earned = (now - self._counted_at) * self._rate
        self._counted_at = now
        self._allowance = min(max(1.0, self._rate), self._allowance + earned)
        if self._allowance < 1:
            wait_s = (1 - self._allowance) / self._rate
            raise TooFast(
                429, f"the token sends too many requests; wait {wait_s:.1f} s", retry_after_s=wait_s
            )
        self._allowance -= 1
        if self._connections >= self._connections_max:
            raise Refusal(429, "the token has too many open requests; end some of them")
        self._connections += 1
        return OpenRequest(self)

    def _leave(self, body_bytes: int, answer_bytes: int) -> None:
        self._connections -= 1
        self._body_bytes -= body_bytes
        self._answer_bytes -= answer_bytes

    def _take_body(self, size: int) -> None:
        if self._body_bytes + size > self.body_bytes_max:
            raise Refusal(
                429,
                f"the bodies that this token sends at once have more than {self.body_bytes_max:,}"
                " bytes; send them one after the other",
            )
        self._body_bytes += size

    def _check_answer(self, size: int) -> None:
        if self._answer_bytes and self._answer_bytes + size > _ANSWER_BYTES_MAX:
            raise Refusal(
                429,
                f"the answers that this token has not read have more than {_ANSWER_BYTES_MAX:,}"
                " bytes; read them first",
            )

    def _take_answer(self, size: int) -> None:
        self._answer_bytes += size


class OpenRequest:
    """An open request, and what it holds in memory. All methods are called in the event loop."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._body_bytes = 0
        self._answer_bytes = 0

    def take_body(self, size: int) -> None:
        """Count bytes of the body. Raises a ``Refusal`` if the bodies of all open requests of the
        token together have more than ``body_bytes_max``.
        """
        self.principal._take_body(size)
        self._body_bytes += size

    def check_answer(self, size: int) -> None:
        """Raise a ``Refusal`` if an answer of this size would be too much beside the answers that
        the client leaves unread. A write is checked before its work, with the size of its body,
        because a client repeats a request that was refused so. A read, and a write that changes
        nothing when it is repeated, is checked after its work.
        """
        self.principal._check_answer(size)

    def take_answer(self, size: int) -> None:
        """Count bytes of the answer."""
        self.principal._take_answer(size)
        self._answer_bytes += size

    def leave(self) -> None:
        """Give back what the request holds. Its answer was sent."""
        self.principal._leave(self._body_bytes, self._answer_bytes)


class PageReader(Principal):
    """The holder of a read token, such as a page in a browser. It shares the limits of the token
    that made its own.
    """

    def __init__(self, maker: Principal, conversation: str, key: int, ends_at: int) -> None:
        self.name = maker.name
        self.scope = Scope.READ
        self.where = maker.where
        self.body_bytes_max = maker.body_bytes_max
        self.conversation = conversation
        self.conversation_key = key
        self.ends_at = ends_at
        self.reads = maker.reads
        self.large = maker.large
        self.long_reads = maker.long_reads
        self.large_writes = maker.large_writes
        self._maker = maker

    def enter(self) -> OpenRequest:
        self._maker.enter()  # it counts the request, and ``_leave`` gives it back there
        return OpenRequest(self)

    def _leave(self, body_bytes: int, answer_bytes: int) -> None:
        self._maker._leave(body_bytes, answer_bytes)

    def _take_body(self, size: int) -> None:
        self._maker._take_body(size)

    def _check_answer(self, size: int) -> None:
        self._maker._check_answer(size)

    def _take_answer(self, size: int) -> None:
        self._maker._take_answer(size)


class Tokens:
    """The tokens of a service. The tokens are kept as hashes, so no comparison and no dump of
    memory shows a token.
    """

    def __init__(self, entries: Iterable[tuple[str, TokenEntry]]) -> None:
        digests = [(_digest(name, entry), name, entry) for name, entry in entries]
        self._principals = [
            (digest, Principal(name, entry, digest)) for digest, name, entry in digests
        ]

    @classmethod
    def of_one(cls, token: str) -> Tokens:
        """Return a single token that may do everything."""
        return cls([("server", TokenEntry(scope="administer", token=token))])

    @classmethod
    def from_file(cls, path: Path) -> Tokens:
        """Read the tokens of a file. Raises ``InvalidOption`` if the file cannot be read, if others
        may read it, if an entry is wrong, or if two entries have the same token.
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
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidOption(f"the file of tokens {path}: {error}") from error
        if not entries:
            raise InvalidOption(f"the file of tokens {path} has no token; add a table [NAME]")
        _check_entries(path, entries)
        return cls(entries.items())

    def principal(self, authorization: str) -> Principal:
        """Return the holder of the token in a header ``Authorization``. Raises a ``Refusal``. All
        tokens are compared, so the time says nothing about them.
        """
        scheme, _, rest = authorization.partition(" ")
        token = rest.strip()
        if scheme.lower() != "bearer" or not token:
            raise Refusal(401, "send a token: Authorization: Bearer TOKEN")
        if token.startswith(_READ):
            return self._page_reader(token.removeprefix(_READ))
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        holders = [
            principal for stored, principal in self._principals if compare_digest(stored, digest)
        ]
        if not holders:
            raise Refusal(
                401, "the server does not know this token; send one that it was started with"
            )
        return holders[0]

    def _page_reader(self, token: str) -> PageReader:
        """Return the holder of a read token, without its beginning. Raises a ``Refusal``."""
        try:
            body, signature = map(_as_bytes, token.split("."))
            name, conversation, key, ends_at = msgspec.json.decode(
                body, type=tuple[str, str, int, int]
            )
        except (ValueError, msgspec.MsgspecError):
            raise Refusal(401, "the read token is not complete; ask for a new one") from None
        makers = [
            principal
            for _, principal in self._principals
            if principal.name == name and principal.signs(body, signature)
        ]
        if not makers:
            raise Refusal(401, _ENDED)
        reader = PageReader(makers[0], conversation, key, ends_at)
        reader.check_valid()
        return reader


def _check_entries(path: Path, entries: Mapping[str, TokenEntry]) -> None:
    """Raise ``InvalidOption`` if no request can have one of the tokens, or two holders have the
    same token: their requests would have the scope of the first.
    """
    names: dict[bytes, str] = {}
    for name, entry in entries.items():
        token = entry.token
        if token is not None and (not token or token.strip() != token or token.startswith(_READ)):
            raise InvalidOption(
                f"the file of tokens {path}: the token {name!r} is empty, begins or ends with a"
                f" blank, or begins with {_READ!r}; choose another token"
            )
        other = names.setdefault(_digest(name, entry), name)
        if other != name:
            raise InvalidOption(
                f"the file of tokens {path}: {other!r} and {name!r} have the same token; give each"
                " of them its own"
            )


def _as_text(data: bytes) -> str:
    """Return data in base64 for a URL, without its padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _as_bytes(text: str) -> bytes:
    """Return the data of ``_as_text``. Raises ``ValueError``."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _digest(name: str, entry: TokenEntry) -> bytes:
    """Return the hash of a token. Raises ``InvalidOption``."""
    if (entry.sha256 is None) == (entry.token is None):
        raise InvalidOption(f"the token {name!r} needs either 'sha256' or 'token'")
    if entry.token is not None:
        return sha256(entry.token.encode()).digest()
    return bytes.fromhex(entry.sha256 or "")
