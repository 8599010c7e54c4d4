"""Histories of other agents, in and out.

    events = decode(records, format="openhands-v0")     # ids 0, 1, 2, …; event.origin.id is the source's own
    records == list(encode(events, format="openhands-v0"))

    for source in open_sources(["runs/"]):              # every history in files and folders
        store.ingest(source.name, source.events())      # source.findings: what could not be read, and where

A record is what the source wrote for one step: a JSON object (in V0's oldest files an array of two). Every format is
lossless: an export gives the records back as they were, parsed.
"""

from __future__ import annotations

from foldlog.formats.containers import NotAHistory
from foldlog.formats.registry import FORMATS, Finding, UnknownFormat, decode, encode
from foldlog.formats.source import Source
from foldlog.formats.sources import Sources, detect, open_sources

__all__ = [
    "FORMATS",
    "Finding",
    "NotAHistory",
    "Source",
    "Sources",
    "UnknownFormat",
    "decode",
    "detect",
    "encode",
    "open_sources",
]
