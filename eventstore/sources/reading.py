"""Read a source, a few blocks in each read transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.log.database import Database, check_not_erased
from foldlog.eventstore.sources.blocks import Block, cut_at
from foldlog.eventstore.sources.tables import (
    ABOUT,
    CONTINUED,
    FRAME,
    REDACTED,
    TITLE,
    TITLED,
    WHERE,
    Continued,
    Source,
    Sources,
    query_sources,
)

IMPORTED_AT: Final = "imported_at"
"""An import that adds records stores its time in ``Source.about`` under this key. The time is in
microseconds since 1970.
"""
_BLOCKS: Final = 8
"""The number of blocks that are read at once, about a megabyte."""


def source_of(database: Database, conversation: str) -> Source | None:
    return query_sources(database, Sources.of, conversation)


def blocks_of(database: Database, source: Source, start: int = 0) -> Iterator[Block]:
    """Yield the blocks from record ``start`` on. The stored source may have grown since ``source``
    was read, so the new records are left out. Raises ``CorruptEvent`` at a record that is missing.
    """
    next_record = start
    for block in stored_blocks_of(database, source, start):
        if block.first > next_record:
            break
        yield block
        next_record = block.stop
    if next_record < source.records:
        raise query_sources(database, _missing_record, source, next_record)


def _missing_record(sources: Sources, source: Source, number: int) -> CorruptEvent:
    """Return the error for a record that is missing. Raises ``ConversationErased`` if its
    conversation was erased.
    """
    check_not_erased(sources.database.find_key(sources.reader, source.conversation))
    name = sources.name_of(source.conversation)
    return CorruptEvent(name, 0, f"record {number} of its source is missing")


def stored_blocks_of(database: Database, source: Source, start: int = 0) -> Iterator[Block]:
    """Yield the blocks as ``blocks_of`` does, without an error for missing records."""
    return cut_at(_by_pages(database, source, start, Sources.blocks), source.records)


def own_blocks_with(
    database: Database, source: Source, is_wanted: Callable[[bytes], bool]
) -> Iterator[Block]:
    """Yield the source's own blocks whose bytes ``is_wanted`` accepts."""
    read = partial(Sources.own_blocks, is_wanted=is_wanted)
    return _by_pages(database, source, source.from_record, read)


def _by_pages(
    database: Database,
    source: Source,
    start: int,
    read: Callable[[Sources, Source, int], Iterator[Block]],
) -> Iterator[Block]:
    """Yield blocks from record ``start`` on, a few in each transaction."""

    def read_page(sources: Sources, first: int) -> list[Block]:
        return list(islice(read(sources, source, first), _BLOCKS))

    is_first = True
    while start < source.records:
        blocks = query_sources(database, read_page, start)
        count = len(blocks)
        if blocks and not is_first and blocks[0].first < start:
            # A writer has joined this block with blocks that were yielded.
            blocks[0] = blocks[0].since(start)
        yield from blocks
        if count < _BLOCKS:
            return
        start = blocks[-1].stop
        is_first = False


def about(source: Source) -> JsonObject:
    """Return the fields in ``Source.about``."""
    return dict(msgspec.json.decode(source.about)) if source.about else {}


class _About(msgspec.Struct):
    """The types of the fields of ``Source.about`` without which no events can be made."""

    paths: list[str] = []
    prefix: str = ""
    usage: list[dict[str, Any]] = []
    unread: list[int] = []
    imported_at: int = 0
    secret: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})+$")] = "00"
    where: dict[str, Any] = {}
    continued: tuple[int, list[list[int]]] | None = None


def is_about_readable(source: Source) -> bool:
    """Return whether the fields of ``Source.about`` have their types."""
    try:
        msgspec.convert(about(source), _About)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def continued(source: Source) -> Continued | None:
    """Return the records that were handed over to the source, or None."""
    fields = about(source).get(CONTINUED)
    return None if fields is None else Continued(*fields)


def end_of_records(sources: Sources, source: Source) -> int:
    """Return the version after the last event of a record."""
    handed_over = continued(source)
    begin = 0 if handed_over is None else handed_over.version
    return sources.end_of_made(source, default=begin)


def without_texts(source: Source) -> bytes:
    """Return ``Source.about`` without title and place, and with an empty frame, because these texts
    may repeat a redacted record.
    """
    fields = about(source)
    if not fields:  # a source that a runtime recorded has no stored fields
        return source.about
    for name in (TITLE, TITLED, WHERE):
        fields.pop(name, None)
    if FRAME in fields:
        fields[FRAME] = {}
    return msgspec.json.encode({**fields, REDACTED: True})


def is_family_whole(sources: Sources, root: int) -> bool:
    """Return whether no record and no text of a family was redacted."""
    family = sources.family(root, texts=ABOUT)
    return not any(member.redacted or REDACTED in about(member) for member in family)
