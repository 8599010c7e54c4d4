"""Make the JSON document that the page shows for one event, with all texts of the event."""

from __future__ import annotations

import re

from foldlog._base.json_types import JsonObject
from foldlog._base.values import replace_texts, values_in
from foldlog._reports.words.event_json import event_document
from foldlog._reports.words.texts import SIGNATURES
from foldlog.eventstore import CorruptEvent, Event, Logged
from foldlog.projections.conversations.unreadable import DAMAGED

LONG = 256
"""Data of at least this many characters, such as an image, is replaced by its size."""

_LEFT_OUT = ("origin", "extra")
_DATA_URL = re.compile(r"data:(?:[\w.+-]+/[\w.+-]+)?[;,]")
"""The beginning of a URL that holds data. A server-sent event also begins with ``data:``."""
_DATA_KEYS = SIGNATURES | {"data", "b64_json"}
"""The names of members that hold data, and no text for people."""


def text_document(event: Event) -> JsonObject:
    """Return the JSON of an event that ``--json`` prints, without the source record. An image is
    replaced by its size.
    """
    document = {key: value for key, value in event_document(event).items() if key not in _LEFT_OUT}
    sizes = {
        text: f"[{len(text):,} characters of data]"
        for name, text in values_in(document)
        if isinstance(text, str) and len(text) >= LONG and _is_data(name, text)
    }
    if sizes:
        document = dict(replace_texts(document, sizes))
    if event.origin is not None:
        document["source_id"] = event.origin.id
        document["format"] = event.origin.format
        if event.origin.time:
            document["timestamp"] = event.origin.time
    return document


def shown_document(entry: Logged | CorruptEvent) -> JsonObject:
    """Return the document of an event, or of one that cannot be read."""
    if isinstance(entry, CorruptEvent):
        return {"id": entry.event_id, "kind": DAMAGED, "problem": str(entry)}
    return text_document(entry.event)


def _is_data(name: str, text: str) -> bool:
    """Return whether a long text is data, such as an image."""
    if _DATA_URL.match(text):
        return True
    return name in _DATA_KEYS and " " not in text and "\n" not in text
