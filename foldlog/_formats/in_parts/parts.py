"""Convert records that are made of parts: one event for each part, and back.

A record is read and written without the records before it, so any part of a history that begins with a record can be
written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import force_setattr, replace

from foldlog._formats.format import EachAlone, Format, Options, RecordDecoder
from foldlog.eventstore import Event

Made = Callable[[Any, int], list[Event]]
"""The events of a record, with ids from the second argument on. Raises ``NotAnEvent``."""


def in_parts(
    name: str,
    *,
    accepts: Callable[[Any], bool],
    matches: Callable[[Any], bool],
    decoder: Callable[[Options], RecordDecoder],
    written: Callable[[Event], dict[str, Any]],
    source_id: Callable[[Any], Any],
) -> Format:
    """Return the format ``name``. ``written`` is the record of an event that was not imported."""
    return Format(
        name=name,
        matches=matches,
        accepts=accepts,
        decoder=lambda records, options: decoder(options),
        encoder=lambda: EachAlone(lambda event: [written(event)]),
        live=True,
        source_id=source_id,
    )


class PartsDecoder(RecordDecoder):
    """Reads records: their parts by ``made``, their ids by ``source_id``, and ``meta`` with usage by ``usage``."""

    def __init__(
        self,
        options: Options,
        made: Made,
        source_id: Callable[[Any], Any],
        usage: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        super().__init__(options)
        self._made, self._source_id, self._usage = made, source_id, usage

    def events(self, record: Any) -> list[Event]:
        events = self._made(record, self.next_id)
        begins = events[0]  # no other code has it before it is returned
        if begins.origin is not None:
            force_setattr(begins, "origin", replace(begins.origin, id=self._source_id(record)))
        if told := self._usage(record):
            force_setattr(begins, "meta", told)
        self.next_id += len(events)
        return events


# -- values in events -------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a text, or a value as JSON; empty for None, and for what JSON cannot hold."""
    if type(value) is str:
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


def image_of_bytes(data: Any, media_type: Any) -> dict[str, Any] | None:
    """Return a part with an image whose bytes a record has as ``{"$bytes": base64}``; None where it is not an image."""
    if type(data) is not dict or type(data.get("$bytes")) is not str or not str(media_type).startswith("image/"):
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data['$bytes']}"}}


def bytes_of_image(url: str) -> tuple[dict[str, str], str] | None:
    """Return the bytes of such an image and their type; None for any other URL."""
    if not url.startswith("data:") or ";base64," not in url:
        return None
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"$bytes": data}, media_type
