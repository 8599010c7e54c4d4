"""Import and export histories of other agents.

    events = decode(records, format="openhands-v0")     # ids 0, 1, 2, …; event.origin.id is the source's own
    records == list(encode(events, format="openhands-v0"))

    for source in open_sources(["runs/"]):              # every history in files and folders
        store.ingest(source.name, source.events())      # source.findings: what could not be read, and where

    decoder = Decoder("openai-chat", history)           # one record in, events out: for a history that goes on
    history.append(decoder.events(record), expected_version=history.version())

    registry.py    which formats there are; each is a file or a folder beside it, with one ``Format`` object
    format.py      what such an object says
    conversion.py  records to events and back; record.py calls.py recent.py are what the formats share
    packing.py     a record packed beside its events; repeats.py: the records that repeat the content of an event
    live.py        the same, one record after the other
    json_text.py   JSON text to values
    files/         paths to records; sources.py and source.py join the two
    detection.py   the format of a record
    source_ids.py  the ids of records; tips.py: where a fork of a branch begins; samples/: what packing begins with

    claude_code/ codex/ openai_chat/ openhands_v0/ openhands_v1/    one format each, as are
    langchain.py openai_responses.py swe_agent.py
    in_parts/      formats whose records are made of parts: pydantic-ai, google-adk

A record is what the source wrote for one step: a JSON object (in V0's oldest files an array of two). It is kept beside
the events that are made of it, so an export gives the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.formats.conversion import decode, encode
from foldlog.formats.files.found import NotAHistory
from foldlog.formats.format import Format, Options, RecordDecoder, RecordEncoder, UnusableFormat
from foldlog.formats.live import Decoder, Encoder, NotLive
from foldlog.formats.record import ImportFinding, NotAnEvent
from foldlog.formats.registry import UnknownFormat, formats, register
from foldlog.formats.source import Source
from foldlog.formats.sources import Sources, detect, open_sources

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
