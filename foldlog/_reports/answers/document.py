"""The base classes of the JSON answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Document(msgspec.Struct, frozen=True):
    """A JSON document, or a part of a document. Unset fields are left out. Its classes are frozen
    as this class is.
    """

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


class OfConversation(Document):
    """The base class of a document about a conversation."""

    conversation: str


class OfVersion(OfConversation):
    """The base class of a document about all events of a conversation. ``version`` is the number of
    events.
    """

    version: int


class ProblemDocument(Document):
    """A finding in a conversation, or in the database if ``conversation`` is null."""

    conversation: str | None
    problem: str


def stream(items: Iterable[Any]) -> Any:
    """Return ``items`` as the value of a list field, so that ``terminal.emit_list`` writes them one
    by one.
    """
    return iter(items)
