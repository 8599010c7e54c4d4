"""How fast could verifying, importing and encryption be? ``python -m benchmarks.floors``: the necessary steps by hand.

Each floor does what foldlog cannot leave out, in the shortest Python, beside the baseline of the question. It checks no
version, tells no error and looks nothing up. What a floor misses, no change of foldlog's code around it reaches.
Ratios of CPU time, medians of rounds by turns.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from os import urandom
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks import cold
from benchmarks.importing import _by_hand as imported
from benchmarks.prepared import Prepared, prepared
from benchmarks.raw import RawStore, body_of
from benchmarks.trust import KEYS, make_small, without_id
from benchmarks.workload import history
from eventstore import Action, Event, Observation, Origin, open_store
from eventstore.stored.crc import crc32
from foldlog.formats import decode, encode
from projections import Views

Work = Callable[[int], None]

EVENTS = 10_000
ROUNDS = 9
OPENS = 20
BATCH = 500
_ENCODER = msgspec.json.Encoder()
_CIPHER = AESGCM(bytes(32))
_PLACE = bytes(150)
_COMPRESSOR, _DECOMPRESSOR = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
_COLUMNS = (
    "id, kind, schema, shown, structural, recorded_at, encoding, body, head, shown_before, structural_before, checksum"
)


def _pages(path: Path) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Yield the bodies and the heads of each 1,000 events, with a checksum of each body."""
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    asked = db.execute(f"SELECT {_COLUMNS} FROM events WHERE conversation = 1 ORDER BY id")
    while rows := asked.fetchmany(1_000):
        columns = list(zip(*rows, strict=True))
        deque(map(crc32, columns[7]), maxlen=0)
        yield columns[7], columns[8]
    db.close()


def verified(stores: Prepared) -> None:
    """Read the columns, compare a checksum of each body and its two hashes."""
    head = b""
    for bodies, heads in _pages(stores.ours):
        for body, proof in zip(bodies, heads, strict=True):
            head = hashlib.sha256(head + hashlib.sha256(proof + body).digest()).digest()


def verified_raw(stores: Prepared) -> None:
    raw = RawStore(stores.raw)
    head = b""
    for _, body in raw.bodies("c1", 0, EVENTS):
        head = hashlib.sha256(head + body).digest()
    raw.close()


def imported_floor(source: Path, path: Path) -> None:
    """Parse, make an event, compare the record that it would give back, encode, two hashes, a checksum, insert."""
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        db.execute(f"PRAGMA {pragma}")
    db.execute(f"CREATE TABLE events ({_COLUMNS}, PRIMARY KEY (id))")
    head, rows = b"", []
    with source.open("rb") as lines:
        for event_id, line in enumerate(lines):
            record = json.loads(line)
            kind = record["kind"]
            body = _ENCODER.encode(_MADE.get(kind, _kept)(record))
            salt = urandom(16)
            head = hashlib.sha256(b"%b %d %b" % (head, event_id, hashlib.sha256(salt + body).digest())).digest()
            check = crc32(body, crc32(head))
            rows.append((event_id, kind, 1, True, False, 0, 0, body, head + salt, event_id, 0, check))
    db.execute("BEGIN IMMEDIATE")
    db.executemany(f"INSERT INTO events VALUES ({', '.join('?' * 12)})", rows)
    db.execute("COMMIT")
    db.close()


def sealed(body: bytes) -> bytes:
    nonce = urandom(12)
    return nonce + _CIPHER.encrypt(nonce, _COMPRESSOR.compress(body), _PLACE)


def opened(stored: bytes) -> bytes:
    return _DECOMPRESSOR.decompress(_CIPHER.decrypt(stored[:12], stored[12:], _PLACE))


def batches(path: Path, events: Sequence[Event], stored: Callable[[bytes], bytes]) -> None:
    """The baseline's batches of bodies in this form."""
    raw = RawStore(path)
    for first in range(0, len(events), BATCH):
        some = enumerate(events[first : first + BATCH], first)
        raw.append_batch(("c1", n, type(event).__name__, stored(body_of(event))) for n, event in some)
    raw.close()


def _action(record: dict[str, Any]) -> Action:
    thought, call = record["thought"][0]["text"], record["tool_call"]
    action = Action(
        tool=record["tool_name"],
        arguments=call["arguments"],
        call_id=record["tool_call_id"],
        response_id=record["llm_response_id"],
        thought=thought,
        origin=Origin(format="openhands-v1", id=record["id"], rest={"set": {"action": record["action"]}}),
    )
    expected = {
        "source": action.source, "id": action.origin.id, "kind": "ActionEvent", "tool_name": action.tool,
        "thought": [{"type": "text", "text": thought}], "llm_response_id": action.response_id,
        "tool_call_id": action.call_id, "action": action.origin.rest["set"]["action"],
        "tool_call": {"id": action.call_id, "origin": "completion", "name": action.tool, "arguments": action.arguments},
    }  # fmt: skip
    assert expected == record
    return action


def _observation(record: dict[str, Any]) -> Observation:
    text = record["observation"]["content"][0]["text"]
    observation = Observation(
        tool=record["tool_name"],
        content=text,
        call_id=record["tool_call_id"],
        origin=Origin(format="openhands-v1", id=record["id"]),
    )
    expected = {
        "source": observation.source, "id": observation.origin.id, "kind": "ObservationEvent",
        "tool_name": observation.tool, "tool_call_id": observation.call_id, "action_id": record["action_id"],
        "observation": {"content": [{"type": "text", "text": text}]},
    }  # fmt: skip
    assert expected == record
    return observation


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    return record


_MADE: dict[str, Callable[[dict[str, Any]], Any]] = {"ActionEvent": _action, "ObservationEvent": _observation}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="foldlog-floors-") as name:
        folder = Path(name)
        stores = prepared(folder, EVENTS)
        source = folder / "history.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in encode(history(EVENTS), "openhands-v1")))

        def import_raw(n: int) -> None:
            raw = RawStore(folder / f"raw-{n}.db")
            imported(raw, source)
            raw.close()

        def import_ours(n: int) -> None:
            with open_store(f"sqlite:///{folder}/ours-{n}.db") as store, source.open() as lines:
                store.ingest("c1", decode(map(json.loads, lines), "openhands-v1"))

        events = list(map(without_id, history(4_000)))
        bodies = [sealed(body_of(event)) for event in cold.raw(str(stores.raw), None)]
        make_small(folder / "small.db", EVENTS)

        def batches_ours(n: int) -> None:
            with open_store(f"sqlite:///{folder}/sealed-{n}.db", keys=KEYS, compression="zstd") as store:
                for first in range(0, len(events), BATCH):
                    store.append("c1", events[first : first + BATCH], expected_version=first)

        def open_ours(_: int) -> None:
            for _ in range(OPENS):
                with open_store(f"sqlite:///{folder}/small.db", keys=KEYS) as store:
                    len(Views(store).current("c1").events)

        def open_floor(_: int) -> None:
            for _ in range(OPENS):
                cold.raw(str(stores.raw), None)
                deque(map(opened, bodies), maxlen=0)

        def open_raw(_: int) -> None:
            for _ in range(OPENS):
                cold.raw(str(stores.raw), None)

        sides: dict[str, tuple[Work, Work, Work]] = {
            "verify every event": (_verify_ours(stores), lambda _: verified(stores), lambda _: verified_raw(stores)),
            "import a history": (import_ours, lambda n: imported_floor(source, folder / f"floor-{n}.db"), import_raw),
            "batches, encrypted and compressed": (
                batches_ours,
                lambda n: batches(folder / f"sealed-floor-{n}.db", events, sealed),
                lambda n: batches(folder / f"sealed-raw-{n}.db", events, bytes),
            ),
            "open a View, encrypted and compressed": (open_ours, open_floor, open_raw),
        }
        for question, (ours, floor, raw) in sides.items():
            seconds = [(_cpu(raw, n), _cpu(ours, n), _cpu(floor, n)) for n in range(ROUNDS)]
            now, most = (statistics.median(one[0] / one[place] for one in seconds) for place in (1, 2))
            sys.stdout.write(f"{question}: {now:.2f} of the baseline, at most {most:.2f}\n")


def _verify_ours(stores: Prepared) -> Work:
    def verify(_: int) -> None:
        with open_store(f"sqlite:///{stores.ours}") as store:
            list(store.verify())

    return verify


def _cpu(work: Work, n: int) -> float:
    begun = time.process_time()
    work(n)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
