"""Read a source, a few blocks in each read transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from foldlog.eventstore.log.database import Database
from foldlog.eventstore.sources.blocks import Block
from foldlog.eventstore.sources.tables import Source, Sources

IMPORTED_AT: Final = "imported_at"
"""An import that adds records stores its time in ``Source.about`` under this key. The time is in
microseconds since 1970.
"""
_BLOCKS: Final = 8
"""The number of blocks that are read at once, about a megabyte."""


def blocks_of(database: Database, source: Source, start: int = 0) -> Iterator[Block]:
    while start < source.records:

        def read(reader: Any, start: int = start) -> list[Block]:
            return list(islice(Sources(database, reader).blocks(source, start), _BLOCKS))

        blocks = database.recorder.query(read)
        if not blocks:
            return
        yield from blocks
        start = blocks[-1].stop


def own_blocks_with(
    database: Database, source: Source, is_wanted: Callable[[bytes], bool]
) -> Iterator[Block]:
    start = source.from_record
    while start < source.records:

        def read(reader: Any, start: int = start) -> list[Block]:
            blocks = Sources(database, reader).own_blocks(source, start, is_wanted)
            return list(islice(blocks, _BLOCKS))

        blocks = database.recorder.query(read)
        yield from blocks
        start = blocks[-1].stop if len(blocks) == _BLOCKS else source.records


def about(source: Source) -> dict[str, Any]:
    return dict(msgspec.json.decode(source.about)) if source.about else {}
