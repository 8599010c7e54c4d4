"""Show the beginnings of forks in the commands that show a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._cli import terminal
from foldlog._cli.stores import listed
from foldlog._documents import BorderDocument
from foldlog._words.gist import count
from foldlog.eventstore import Border, Store


def borders_of(store: Store, conversation: str) -> list[Border]:
    """Return the borders in the past of a conversation, the oldest first. The last one is its own."""
    return list(store.query(conversation, lambda read: read.lineage))


def tell_of_forks(store: Store, conversations: Iterable[str] | None = None) -> None:
    """Say that a copy of a fork, of all of them unless some are named, is not a fork."""
    rows = listed(store) if conversations is None else map(store.conversation, conversations)
    forks = sum(row.parent is not None and row.erased_at is None for row in rows)
    if forks:
        became = "is copied as a conversation of its own" if forks == 1 else "are copied as conversations of their own"
        terminal.note(f"{count(forks, 'fork')} {became}, with all events")


def border_words(border: Border) -> str:
    return f"fork of {terminal.printable(border.parent, one_line=True)} at version {border.version:,}"


def borders_document(borders: list[Border]) -> dict[str, Any]:
    """Return the field ``borders`` of a document; nothing for a conversation that is not a fork."""
    found = tuple(BorderDocument(parent=border.parent, parent_version=border.version) for border in borders)
    return {"borders": found} if found else {}


class Borders:
    """The borders that are not printed yet, while events are printed in order."""

    def __init__(self, borders: list[Border], start: int = 0) -> None:
        self._left = [border for border in borders if border.version >= start]

    def up_to(self, version: int) -> list[str]:
        """Return the lines before event ``version``, each once."""
        if not self._left or self._left[0].version > version:
            return []
        passed = [border for border in self._left if border.version <= version]
        self._left = self._left[len(passed) :]
        return [border_words(border) for border in passed]
