"""One View opened in a process of its own: ``python -m benchmarks.cold SIDE FILE [VERSION]``, SIDE is ours or raw, or a
step of ``benchmarks.floors``.

The clock runs from after the imports to the View's last event; memory is how much the process grew meanwhile. Prints
JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from benchmarks.raw import timeless
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
    open_store,
    summary_id,
)
from foldlog.eventstore.log.row import crc32
from foldlog.eventstore.recorders import sqlite as _recorder  # noqa: F401 - the clock runs from after the imports
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.sqlite.reader import _flagged_rows as flagged_rows
from foldlog.eventstore.recorders.types import Record
from foldlog.projections import Views
from foldlog.projections.stored.revision import intervals_of, spanned
from foldlog.projections.stored.revision_codec import PROJECTION, decode_revision

if "FOLDLOG_KEY" in os.environ:  # of an encrypted store these are imported too
    import zstandard
    from cryptography.hazmat.primitives.ciphers import aead

SECRET = b"\x11" * 32

_SHOWN = (
    "FROM json_each(?) j CROSS JOIN events e ON e.conversation = ? AND e.id BETWEEN j.value ->> 0 AND j.value ->> 1"
)


def ours(path: str, version: int | None) -> Sequence[Event]:
    store = open_store(f"sqlite:///{path}")
    views = Views(store)
    view = views.current("c1") if version is None else views.at("c1", version)
    return view.events


def raw(path: str, _version: int | None, body_of: Callable[[bytes], bytes] = bytes) -> Sequence[Event]:
    """A hand-kept row with the View's intervals, and one ranged SELECT."""
    decoder = msgspec.json.Decoder(SystemMessage | Message | Action | Observation | CondensationAction)
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    intervals, place, summary = db.execute(
        "SELECT intervals, place, summary FROM views WHERE conversation = 'c1'"
    ).fetchone()
    events: list[Event] = [
        decoder.decode(body_of(body))
        for (body,) in db.execute(f"SELECT e.body {_SHOWN} ORDER BY j.id", (intervals, "c1"))
    ]
    if summary is not None:
        (body,) = db.execute("SELECT body FROM events WHERE conversation = 'c1' AND id = ?", (summary,)).fetchone()
        text = decoder.decode(body_of(body)).summary
        events.insert(place, CondensationSummary(id=summary_id(summary), content=text, summary_of=summary))
    return events


_DECODERS = {
    kind.__struct_config__.tag.encode(): msgspec.json.Decoder(kind)
    for kind in (SystemMessage, Message, Action, Observation, CondensationAction)
}


def connected(path: str, _version: int | None) -> Sequence[Event]:
    """A step: connect, and check the schema."""
    _connection(path)
    return ()


def _connection(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    db.execute("PRAGMA user_version").fetchone()
    db.execute("PRAGMA application_id").fetchone()
    return db


def found(path: str, _version: int | None) -> Sequence[Event]:
    """The next step: ask for the conversation and its last revision."""
    _conversation(path)
    return ()


def _conversation(path: str) -> tuple[sqlite3.Connection, int, int, Record]:
    db = _connection(path)
    db.execute("BEGIN")
    db.execute("PRAGMA user_version").fetchone()
    key, _, _, _, last, *_ = db.execute(SQL["conversation"], (b"c1",)).fetchone()
    (record,) = db.execute(SQL["records_back"], (PROJECTION.encode(), key, last + 1, 1)).fetchall()
    return db, key, last + 1, Record(*record)


def shown(path: str, _version: int | None) -> Sequence[Event]:
    """The last step: read the events, compare a checksum of each body, decode it."""
    db, key, version, record = _conversation(path)
    revision, _ = decode_revision(record, None)
    condensation = record.version - 1
    intervals = [*intervals_of(spanned(revision.kept, version, version)), (condensation, condensation)]
    bindings = [number for interval in intervals for number in (*interval, key)]
    rows = db.execute(flagged_rows(len(intervals)), bindings).fetchall()
    events: list[Event] = []
    for event_id, kind, _, _, _, _, _, body, head, *_ in sorted(rows):
        crc32(body, crc32(head))
        event = _DECODERS[kind].decode(body)
        if event_id != condensation:
            force_setattr(event, "id", event_id)
            events.append(event)
        else:
            summary = CondensationSummary(id=summary_id(event_id), content=event.summary, summary_of=event_id)
    events.insert(1 + [event.id for event in events].index(revision.summaries[0]), summary)
    return events


def ciphered(path: str, _version: int | None) -> Sequence[Event]:
    """A step: make a cipher, the first one of the process."""
    aead.AESGCM(SECRET)
    return ()


def opened(path: str, version: int | None) -> Sequence[Event]:
    """The baseline, whose bodies are compressed and encrypted."""
    cipher, decompressor = aead.AESGCM(SECRET), zstandard.ZstdDecompressor()
    return raw(path, version, lambda stored: decompressor.decompress(cipher.decrypt(stored[:12], stored[12:], b"")))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measured(opened: Callable[[str, int | None], Sequence[Event]], path: str, version: int | None) -> dict[str, object]:
    memory = resident_bytes()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    events = opened(path, version)
    count = len(events)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    grown = resident_bytes() - memory
    answer = hashlib.sha256(b"".join(b"%d " % e.id + msgspec.json.encode(e) for e in timeless(events))).hexdigest()
    return {"seconds": seconds, "cpu": cpu, "bytes": max(grown, 1), "events": count, "answer": answer}


if __name__ == "__main__":
    side, path, *rest = sys.argv[1:]
    chosen = {each.__name__: each for each in (ours, raw, connected, found, shown, ciphered, opened)}[side]
    sys.stdout.write(json.dumps(measured(chosen, path, int(rest[0]) if rest else None)))
