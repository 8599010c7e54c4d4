"""Rows of parametrized tests that stand in a JSON file of this folder."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from foldlog import eventstore
from foldlog.eventstore import Event, Origin


def rows(file: str, part: str) -> list[Any]:
    part_rows: list[Any] = json.loads((Path(__file__).parent / file).read_text("utf-8"))[part]
    return part_rows


def with_bytes(value: dict[str, Any]) -> Any:
    """Return the bytes that a map ``{"bytes": text}`` describes, as an ``object_hook`` of JSON."""
    return value["bytes"].encode("latin1") if value.keys() == {"bytes"} else value


def made_events(written: Iterable[dict[str, dict[str, Any]]]) -> Iterator[Event]:
    """Make events of maps, each from the name of a class to the fields of the event."""
    for event in written:
        ((kind, fields),) = event.items()
        values = dict(fields)
        if "timestamp" in values:
            values["timestamp"] = datetime.fromisoformat(values["timestamp"])
        if "origin" in values:
            values["origin"] = Origin(**values["origin"])
        yield getattr(eventstore, kind)(**values)
