"""How much an import holds: a transaction of the bytes of a source, and some bytes for each record."""

from __future__ import annotations

import json
import random
import tracemalloc
from array import array
from pathlib import Path

import pytest

from foldlog._archive import importing
from foldlog._formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog._formats.skeleton import Seen, SourceState, _PackedSet
from foldlog.eventstore.sources.blocks import hash_of
from tests.foldlog.archive.imports import imported, new_store

RECORDS = 10_000


def line(number: int, words: str = "so") -> bytes:
    message = {"role": "user", "content": words}
    value = {"type": "user", "uuid": f"u{number}", "sessionId": "s1", "message": message}
    return json.dumps(value).encode()


def test_the_next_bytes_of_a_source_are_read_when_the_last_ones_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2**20
    monkeypatch.setattr(importing, "_TRANSACTION_BYTES", 2 * size)
    words = random.Random(1).randbytes(size // 512).hex()
    path = tmp_path / "session.jsonl"
    first = tmp_path / "first.jsonl"
    first.write_bytes(line(1) + b"\n")
    path.write_bytes(b"\n".join(line(number, words) for number in range(2_000)))
    with new_store() as store:
        imported(store, first, prefix="first-")
        tracemalloc.start()
        try:
            imported(store, path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3.5 * size


def test_a_record_is_recognized_by_some_bytes_of_memory() -> None:
    tracemalloc.start()
    try:
        skeleton = ClaudeCodeSkeleton()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(RECORDS):
            record = line(number)
            skeleton.add(record, hash_of(record))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 50 * RECORDS


def test_a_packed_set_has_the_numbers_that_were_added() -> None:
    draw = random.Random(7)
    few = [draw.randrange(-(2**63), 2**63) & ~0xFF for _ in range(500)]  # many begin at the same place
    numbers = [0, -1, 2**63 - 1, -(2**63), *few]
    packed, known = _PackedSet(), set[int]()
    for number in draw.choices(numbers, k=3_000):
        assert packed.add(number) is (number not in known)
        known.add(number)
    again = _PackedSet(known)
    assert not any(again.add(number) for number in known)


def test_a_record_that_comes_again_is_recognized_after_its_source_was_stored() -> None:
    state = SourceState(order=array("q", [5, -9]).tobytes())
    seen = Seen(state, have_ids=True)
    hashed = (-9).to_bytes(8, "little", signed=True) + bytes(8)
    assert seen.is_again(hashed, "id", None)
    assert not seen.is_again(bytes(16), "id", None)
