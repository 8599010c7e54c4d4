"""Import histories of other agents, and export histories in their formats.

    events = decode(records, format="openhands-v0")     # with the ids 0, 1, 2, …; event.origin.id
                                                        # is the id in the source
    records = encode(events, format="openhands-v0")

    histories.import_("runs/")                          # every history in files and folders
    history.append_records([record], format="openai-chat")

A record is a JSON object that the source wrote for one step. In the oldest files of OpenHands V0, a
record is an array of two objects. The store keeps the records too, so an export returns the same
bytes that the source had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog._formats.conversion import decode, encode
from foldlog._formats.detection import detect
from foldlog._formats.encoding import Encoder, StoredRecords
from foldlog._formats.files.found_sources import NotAHistory, SourceRefused
from foldlog._formats.format import Format, Options, RecordDecoder, RecordEncoder, UnusableFormat
from foldlog._formats.record import ImportFinding, NotAnEvent
from foldlog._formats.registry import UnknownFormat, formats, register

if TYPE_CHECKING:
    FORMATS: tuple[str, ...]
    """The names of all formats, for imports and exports."""

__all__ = [
    "FORMATS",
    "Encoder",
    "Format",
    "ImportFinding",
    "NotAHistory",
    "NotAnEvent",
    "Options",
    "RecordDecoder",
    "RecordEncoder",
    "SourceRefused",
    "StoredRecords",
    "UnknownFormat",
    "UnusableFormat",
    "decode",
    "detect",
    "encode",
    "register",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "FORMATS":
            return tuple(formats())
        raise AttributeError(f"module 'foldlog.formats' has no attribute {name!r}")
