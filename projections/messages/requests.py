"""The request that a View becomes, and the fingerprint by which the request is recognized later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore import InvalidArgument
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections.messages.turns import Dialect

REQUEST: Final = "request"
"""The field of ``meta`` with the fingerprint of a request, and the document with its tools and
parameters.
"""
RENDERING = 1
"""Raise this number when equal events are rendered as other messages than before."""
_DIGEST_BYTES = 16
"""The length of a hash."""
_SECRET_WORDS = frozenset(
    {"authorization", "credentials", "headers", "key", "password", "secret", "token"}
)
"""A parameter whose name ends with one of these words may hold a secret."""
_NOT_SECRET = frozenset({"prompt_cache_key"})
"""Parameters that hold no secret although their names end with such a word."""
_encode = msgspec.json.Encoder(enc_hook=describe_value).encode


def digest(value: Any, before: bytes = b"") -> bytes:
    """Return a hash of a JSON value and of the digest of all values ``before`` it. The order of
    keys counts, because it changes the bytes of a prompt.
    """
    try:
        text = _encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which Python's own encoder escapes
        text = json.dumps(value, default=describe_value).encode()
    return blake2b(before + text, digest_size=_DIGEST_BYTES).digest()


class SentBeside(NamedTuple):
    """What an agent runtime sends beside the messages of a View: the schemas of its tools, and
    parameters such as the ``instructions``. ``dialect`` is the form of the messages.
    """

    dialect: Dialect
    tools: Sequence[JsonMap]
    parameters: JsonMap

    @property
    def document(self) -> JsonObject:
        """The JSON value of the tools and the parameters, if there are any."""
        values = {"tools": [*self.tools], "parameters": dict(self.parameters)}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class ModelRequest:
    """What a model is asked: the messages of a View, and what is sent beside them.

    ``messages``         the messages of the View, in the form of ``dialect``
    ``dialect``          the kind of server that the messages are for
    ``version``          the version of the View
    ``messages_digest``  a hash of the messages, in hexadecimal digits
    ``system``           the system prompt that Anthropic's server gets beside the messages; empty
                         in all other dialects
    ``tools``            the schemas of the tools, as they are sent
    ``parameters``       other parameters of the call that matter, such as the model
    ``conversation``     the conversation of the View, or an empty text if it is of no store
    ``rendering``        foldlog's rules by which the messages were written

    Raises ``InvalidArgument`` if the name of a parameter says that it holds a secret, such as
    ``api_key``. The check knows the names of keyword arguments in Python, and no headers.
    """

    messages: list[JsonObject]
    dialect: Dialect
    version: int
    messages_digest: str = field(repr=False)
    system: str = ""
    tools: Sequence[JsonMap] = ()
    parameters: JsonMap = field(default_factory=dict)
    conversation: str = ""
    rendering: int = RENDERING

    def __post_init__(self) -> None:
        # The log keeps the parameters, and what is in the log stays there.
        for name in self.parameters:
            if name.lower().rpartition("_")[2] in _SECRET_WORDS and name not in _NOT_SECRET:
                raise InvalidArgument(
                    f"the parameter {name!r} of a request may hold a secret, and a request is"
                    " recorded with its reply; pass it to the model's client alone"
                )

    @property
    def beside(self) -> JsonObject:
        """What the log does not have: the tools and the parameters, if there are any."""
        return SentBeside(self.dialect, self.tools, self.parameters).document

    @property
    def fingerprint(self) -> JsonObject:
        """The JSON value that ``append_reply`` records with the reply, of about 150 bytes. If two
        fingerprints of one View are equal, the requests have the same bytes.
        """
        return {
            "view": self.version,
            "dialect": self.dialect,
            "rendering": self.rendering,
            "messages": self.messages_digest,
            "beside": digest(self.beside).hex(),
        }
