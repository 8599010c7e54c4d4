"""How fast could foldlog be where a target is missed? ``python -m benchmarks.floors``: the necessary steps by hand.

Each floor does what foldlog cannot leave out, in the shortest Python, beside the baseline of the question. It checks no
version, tells no error and looks nothing up. What a floor misses, no change of foldlog's code around it reaches. Each
step does what the one before it does, and one thing more: the difference is its share of foldlog's time. CPU time,
medians of rounds by turns; those of a cold open in new processes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count, repeat
from os import urandom
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import force_setattr

from benchmarks import cold
from benchmarks.__main__ import RESULTS, questions
from benchmarks.folding import by_hand
from benchmarks.frame import in_new_process, provenance
from benchmarks.importing import _by_hand as imported
from benchmarks.prepared import Prepared, prepared
from benchmarks.raw import RawStore, body_of
from benchmarks.trust import KEYS, make_small, without_id
from benchmarks.workload import HEAD, history
from foldlog._formats.packing import keep
from foldlog._importing import import_source
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    Origin,
    SystemMessage,
    open_store,
    summary_id,
)
from foldlog.eventstore.events import MAY_BE_STRUCTURAL
from foldlog.eventstore.log.keys import KEY
from foldlog.eventstore.log.row import crc32
from foldlog.eventstore.maintenance.verify import verify
from foldlog.formats import encode, open_sources
from foldlog.projections import View, Views, well_formed

Work = Callable[[int], float]
"""Do it for the round of this number. Return the seconds of CPU time that it took."""

EVENTS = 10_000
ROUNDS = 9
BATCH = 500
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(SystemMessage | Message | Action | Observation | CondensationAction)
_CIPHER = AESGCM(cold.SECRET)
_COMPRESSOR = zstandard.ZstdCompressor(level=1)
_COLUMNS = (
    "id, kind, schema, shown, structural, recorded_at, encoding, body, head, shown_before, structural_before, checksum"
)


class Floor(NamedTuple):
    """A question of ``python -m benchmarks``: its baseline, foldlog, and the steps, each with all before it."""

    question: str
    raw: Work
    ours: Work
    steps: Mapping[str, Work]


def _columns(path: Path) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Yield the bodies and the heads of each 1,000 events; all columns are read."""
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    asked = db.execute(f"SELECT {_COLUMNS} FROM events WHERE conversation = 1 ORDER BY id")
    while rows := asked.fetchmany(1_000):
        columns = list(zip(*rows, strict=True))
        yield columns[7], columns[8]
    db.close()


def _checked(path: Path) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Do the same, with a checksum of each body."""
    for bodies, heads in _columns(path):
        deque(map(crc32, bodies), maxlen=0)
        yield bodies, heads


def verified(stores: Prepared) -> None:
    """Read the columns, compare a checksum of each body and its two hashes."""
    head = b""
    for bodies, heads in _checked(stores.ours):
        for body, proof in zip(bodies, heads, strict=True):
            head = hashlib.sha256(head + hashlib.sha256(proof + body).digest()).digest()


def decoded(stores: Prepared) -> list[Event]:
    """Read the columns, compare a checksum of each body, decode it."""
    events: list[Event] = [_DECODER.decode(body) for bodies, _ in _checked(stores.ours) for body in bodies]
    deque(map(force_setattr, events, repeat("id"), count()), maxlen=0)
    return events


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
    return nonce + _CIPHER.encrypt(nonce, _COMPRESSOR.compress(body), b"")


def seal_all(path: Path) -> None:
    """Encrypt and compress every body of the baseline."""
    with closing(sqlite3.connect(path)) as db:
        db.create_function("sealed", 1, sealed)
        db.execute("UPDATE events SET body = sealed(CAST(body AS BLOB))")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


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
        origin=Origin(format="openhands-v1", id=record["id"]),
    )
    keep(record, [action], "openhands-v1")
    return action


def _observation(record: dict[str, Any]) -> Observation:
    text = record["observation"]["content"][0]["text"]
    observation = Observation(
        tool=record["tool_name"],
        content=text,
        call_id=record["tool_call_id"],
        origin=Origin(format="openhands-v1", id=record["id"]),
    )
    keep(record, [observation], "openhands-v1")
    return observation


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    return record


_MADE: dict[str, Callable[[dict[str, Any]], Any]] = {"ActionEvent": _action, "ObservationEvent": _observation}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="foldlog-floors-") as name:
        found = [_measured(floor) for floor in floors(Path(name))]
    for each in found:
        steps = ", ".join(f"{step} {max(share, 0):.0%}" for step, share in each["shares"].items())
        sys.stdout.write(
            f"{each['question']}: {each['now']:.2f}, floor {each['floor']:.2f}, wanted {each['target']:.3g}; {steps}\n"
        )
    RESULTS.mkdir(parents=True, exist_ok=True)
    saved = {**provenance(["python", "-m", "benchmarks.floors"]), "floors": found}
    (RESULTS / "floors.json").write_text(json.dumps(saved, indent=1))


def _measured(floor: Floor) -> dict[str, Any]:
    (question,) = [each for each in questions(floor.question) if each.name == floor.question]
    sides = [floor.raw, floor.ours, *floor.steps.values()]
    rounds = [[work(n) for work in sides] for n in range(ROUNDS)]

    def ratio(seconds: float, raw: float) -> float:
        return seconds / raw if question.better == "at most" else raw / seconds

    def share(place: int) -> float:
        before = (each[place - 1] if place > 2 else 0.0 for each in rounds)
        return statistics.median((each[place] - less) / each[1] for each, less in zip(rounds, before, strict=True))

    return {
        "question": floor.question,
        "now": statistics.median(ratio(each[1], each[0]) for each in rounds),
        "floor": statistics.median(ratio(each[-1], each[0]) for each in rounds),
        "target": question.target,
        "better": question.better,
        "shares": {step: share(place) for place, step in enumerate(floor.steps, 2)},
    }


def floors(folder: Path) -> Iterator[Floor]:
    stores = prepared(folder, EVENTS)
    yield _opening(stores)
    yield _opening_sealed(stores, folder)
    yield _batches_sealed(folder)
    yield _importing(folder)
    yield _rebuilding(stores)
    yield _verifying(stores)
    yield _folding()


def _opening(stores: Prepared) -> Floor:
    return Floor(
        f"cold open of a View, {EVENTS:,} events",
        raw=_cold("raw", stores.raw),
        ours=_cold("ours", stores.ours),
        steps={
            "a connection, which reads the schema": _cold("connected", stores.ours),
            "the conversation and its last revision": _cold("found", stores.ours),
            "its events, with checksums, decoded": _cold("shown", stores.ours),
        },
    )


def _opening_sealed(stores: Prepared, folder: Path) -> Floor:
    sealed_raw, small = folder / "sealed-raw.db", folder / "small.db"
    shutil.copy(stores.raw, sealed_raw)
    seal_all(sealed_raw)
    make_small(small, EVENTS)
    return Floor(
        "cold open of a View, encrypted and compressed",
        raw=_cold("raw", stores.raw),
        ours=_cold("ours", small, sealed=True),
        steps={
            "OpenSSL's first cipher in a process": _cold("ciphered", stores.raw, sealed=True),
            "the baseline, which decrypts and decompresses": _cold("opened", sealed_raw, sealed=True),
        },
    )


def _cold(side: str, path: Path, *, sealed: bool = False) -> Work:
    environment = {KEY: cold.SECRET.hex()} if sealed else {}
    return lambda _: in_new_process("benchmarks.cold", side, str(path), environment=environment)["cpu"]


def _batches_sealed(folder: Path) -> Floor:
    events = list(map(without_id, history(4_000)))

    def ours(n: int) -> None:
        with open_store(f"sqlite:///{folder}/sealed-{n}.db", keys=KEYS, compression="zstd") as store:
            for first in range(0, len(events), BATCH):
                store.append("c1", events[first : first + BATCH], expected_version=first)

    def by_hand(name: str, stored: Callable[[bytes], bytes]) -> Work:
        return _cpu(lambda n: batches(folder / f"{name}-{n}.db", events, stored))

    return Floor(
        "batches of 500, encrypted and compressed",
        raw=by_hand("raw", bytes),
        ours=_cpu(ours),
        steps={
            "the baseline": by_hand("again", bytes),
            "zstd": by_hand("compressed", _COMPRESSOR.compress),
            "AES-GCM": by_hand("both", sealed),
        },
    )


def _importing(folder: Path) -> Floor:
    source = folder / "history.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in encode(history(EVENTS), "openhands-v1")))

    def raw(n: int) -> None:
        store = RawStore(folder / f"imported-raw-{n}.db")
        imported(store, source)
        store.close()

    def ours(n: int) -> None:
        with open_store(f"sqlite:///{folder}/imported-{n}.db") as store:
            deque((import_source(store, found) for found in open_sources([source])), maxlen=0)

    return Floor(
        "import a history",
        raw=_cpu(raw),
        ours=_cpu(ours),
        steps={
            "parse": _cpu(lambda _: _parsed(source)),
            "make and compare events": _cpu(lambda _: _made(source)),
            "encode, hash, insert": _cpu(lambda n: imported_floor(source, folder / f"imported-floor-{n}.db")),
        },
    )


def _parsed(source: Path) -> None:
    with source.open("rb") as lines:
        deque(map(json.loads, lines), maxlen=0)


def _made(source: Path) -> None:
    with source.open("rb") as lines:
        for record in map(json.loads, lines):
            _MADE.get(record["kind"], _kept)(record)


def _rebuilding(stores: Prepared) -> Floor:
    def raw(_: int) -> None:
        store = RawStore(stores.raw)
        by_hand([_DECODER.decode(body) for _, body in store.bodies("c1", 0, EVENTS)])
        store.close()

    def ours(_: int) -> None:
        with open_store(f"sqlite:///{stores.ours}") as store:
            Views(store).rebuild("c1")

    return Floor(
        "full rebuild from disk",
        raw=_cpu(raw),
        ours=_cpu(ours),
        steps={
            "read the columns": _cpu(lambda _: deque(_columns(stores.ours), maxlen=0)),
            "checksums": _cpu(lambda _: deque(_checked(stores.ours), maxlen=0)),
            "decode": _cpu(lambda _: decoded(stores)),
            "fold by hand": _cpu(lambda _: by_hand(decoded(stores))),
        },
    )


def _verifying(stores: Prepared) -> Floor:
    def ours(_: int) -> None:
        with open_store(f"sqlite:///{stores.ours}") as store:
            list(verify(store, "c1"))

    return Floor(
        "verify every event",
        raw=_cpu(lambda _: verified_raw(stores)),
        ours=_cpu(ours),
        steps={
            "read the columns": _cpu(lambda _: deque(_columns(stores.ours), maxlen=0)),
            "checksums": _cpu(lambda _: deque(_checked(stores.ours), maxlen=0)),
            "two hashes": _cpu(lambda _: verified(stores)),
        },
    )


def _folding() -> Floor:
    events = list(history(10 * EVENTS))

    def looked_at() -> list[Event]:
        head = {event.response_id for event in events[:HEAD] if type(event) is Action}
        found = [
            event
            for event in events
            if (event.response_id in head if type(event) is Action else type(event) in MAY_BE_STRUCTURAL)
            or not event.shown
        ]
        changes = [event for event in found if type(event) is not Action]
        assert all(event.id < HEAD for event in found if type(event) is Action)
        return changes

    def removed() -> None:
        ids: list[int] = []
        begin = 0
        for action in looked_at():
            assert isinstance(action, CondensationAction)
            place = action.id
            ids += range(begin, place)
            begin = place + 1
            named = action.given_ids or ()
            assert list(named) == ids[HEAD : HEAD + len(named)]
            del ids[HEAD : HEAD + len(named)]
            ids.insert(HEAD, summary_id(place))

    return Floor(
        "fold in memory, made fit for a model",
        raw=_cpu(lambda _: by_hand(events)),
        ours=_cpu(lambda _: well_formed(View.from_events(events))),
        steps={
            "look at each event and its response": _cpu(lambda _: looked_at()),
            "remove the ids that condensations name": _cpu(lambda _: removed()),
        },
    )


def _cpu(work: Callable[[int], object]) -> Work:
    def timed(n: int) -> float:
        begun = time.process_time()
        work(n)
        return time.process_time() - begun

    return timed


if __name__ == "__main__":
    main()
