"""Reads what a program wrote, and holds what was read to give it back as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foldlog._formats.registry import FORMATS
from foldlog.eventstore import Event
from foldlog.formats import Source, decode, detect, encode, open_sources


def reader_of(format: str) -> Callable[..., list[Event]]:
    """``read(record, ...)``: the events of records of a format, which are written again as they were."""

    def read(*records: Any, **how: Any) -> list[Event]:
        events = list(decode(records, format, **how))
        assert list(encode(events, format)) == list(records)
        return events

    return read


def opened(folder: Path, *conversations: Any) -> list[Source]:
    """The histories of an export: a document with conversations."""
    path = folder / "conversations.json"
    path.write_text(json.dumps(list(conversations)))
    return list(open_sources([path]))


def read_export(format: str, folder: Path, conversation: Any) -> list[Event]:
    """The events of the one conversation of an export."""
    (source,) = opened(folder, conversation)
    events, records = list(source.events()), list(source.records())
    assert source.findings == []
    assert FORMATS[format].document(records) == [conversation]
    assert list(encode(decode(records, format), format)) == records
    assert detect(records) == format
    return events
