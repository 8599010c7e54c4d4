"""The base classes of the JSON answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Self

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document, or a part of a document. Unset fields are left out."""

    @classmethod
    def of(cls, source: object, **others: Any) -> Self:
        """Return a document whose fields come from ``others``, or else from the attributes of
        ``source``.
        """
        if isinstance(source, tuple | msgspec.Struct):
            names = _shared_names(cls, type(source))
        else:
            names = _names_in(cls, source)
        values = {name: getattr(source, name) for name in names if name not in others}
        return cls(**values, **others)


def _names_in(document: type[Document], source: object) -> Sequence[str]:
    return [name for name in document.__struct_fields__ if hasattr(source, name)]


# A list makes a document of each row. Every struct and named tuple of a class has the same names.
_shared_names = cache(_names_in)


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
