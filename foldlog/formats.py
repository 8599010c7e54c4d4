"""Import and export histories of other agents.

    events = decode(records, format="openhands-v0")     # ids 0, 1, 2, …; event.origin.id is the source's own
    records == list(encode(events, format="openhands-v0"))

    for source in open_sources(["runs/"]):              # every history in files and folders
        store.ingest(source.name, source.events())      # source.findings: what could not be read, and where

    decoder = Decoder("openai-chat", history)           # one record in, events out: for a history that goes on
    history.append(decoder.events(record), expected_version=history.version())

A record is what the source wrote for one step: a JSON object (in V0's oldest files an array of two). It is kept beside
the events that are made of it, so an export gives the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog._formats.conversion import decode, encode
from foldlog._formats.files.found import NotAHistory
from foldlog._formats.format import Format, Options, RecordDecoder, RecordEncoder, UnusableFormat
from foldlog._formats.live import Decoder, Encoder, NotLive
from foldlog._formats.record import ImportFinding, NotAnEvent
from foldlog._formats.registry import UnknownFormat, formats, register
from foldlog._formats.sources import Source, Sources, detect, open_sources

if TYPE_CHECKING:
    FORMATS: tuple[str, ...]
    """The names of the formats that can be imported and exported."""

__all__ = [
    "FORMATS",
    "Decoder",
    "Encoder",
    "Format",
    "ImportFinding",
    "NotAHistory",
    "NotAnEvent",
    "NotLive",
    "Options",
    "RecordDecoder",
    "RecordEncoder",
    "Source",
    "Sources",
    "UnknownFormat",
    "UnusableFormat",
    "decode",
    "detect",
    "encode",
    "open_sources",
    "register",
]


def __getattr__(name: str) -> Any:
    if name == "FORMATS":
        return tuple(formats())
    raise AttributeError(f"module 'foldlog.formats' has no attribute {name!r}")
