"""The base classes of the JSON answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document, or a part of a document. Unset fields are left out."""

    @classmethod
    def of(cls, source: object, **others: Any) -> Self:
        """Return a document whose fields come from ``others``, or else from the attributes of
        ``source``.
        """
        values = {
            name: getattr(source, name)
            for name in cls.__struct_fields__
            if name not in others and hasattr(source, name)
        }
        return cls(**values, **others)


class OfConversation(Document, frozen=True, kw_only=True):
    """The base class of a document about a conversation."""

    conversation: str


class OfVersion(OfConversation, frozen=True, kw_only=True):
    """The base class of a document about all events of a conversation. ``version`` is the number of
    events.
    """

    version: int


class ProblemDocument(Document, frozen=True, kw_only=True):
    """A finding in a conversation, or in the database if ``conversation`` is null."""

    conversation: str | None
    problem: str


def stream(items: Iterable[Any]) -> Any:
    """Return ``items`` as the value of a list field, so that ``terminal.emit_list`` writes them one
    by one.
    """
    return iter(items)
