"""Make the document of one event for the page: all of its texts."""

from __future__ import annotations

from typing import Any

from foldlog._words.event_json import event_document
from foldlog.eventstore import Event

LONG = 256
"""A value without spaces that calls itself data is replaced by its size from this number of characters on."""

_LEFT_OUT = ("origin", "extra")
_DATA_KEYS = frozenset({"data", "url", "image_url", "b64_json"})


def text_document(event: Event) -> dict[str, Any]:
    """Return the event as ``--json`` has it, without its source's record, and with the size of each image in
    its place.
    """
    document = {key: value for key, value in event_document(event).items() if key not in _LEFT_OUT}
    document = {key: _told(value) for key, value in document.items()}
    if event.origin is not None:
        document["source_id"], document["format"] = event.origin.id, event.origin.format
        if event.origin.time:
            document["timestamp"] = event.origin.time
    return document


def _told(value: Any, key: str = "", depth: int = 0) -> Any:
    if isinstance(value, str):
        is_data = value.startswith("data:") or (key in _DATA_KEYS and " " not in value and "\n" not in value)
        return f"[{len(value):,} characters of data]" if is_data and len(value) >= LONG else value
    if depth > 100:
        return "[nested too deeply to be shown]"
    if isinstance(value, dict):
        return {name: _told(each, name, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_told(each, key, depth + 1) for each in value]
    return value
