"""An import holds in memory the bytes of one transaction, and some bytes for each record."""

import gc
import json
import random
import sys
import tracemalloc
import zlib
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from foldlog._reports.figures import of_sources
from foldlog.eventstore.sources.blocks import hash_of
from foldlog.formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog.formats.detection import recognize
from foldlog.formats.files.found_sources import FoundHistory
from foldlog.formats.files.histories import histories
from foldlog.formats.hash_set import HashSet
from foldlog.formats.resuming import checksum
from foldlog.formats.skeleton import Seen, SourceState
from foldlog.formats.summed_calls import HASH_BYTES
from tests.foldlog.imports.imports import figures_of, imported, new_store, set_sizes

RECORDS = 5_000


def line(number, words="so"):
    message = {"role": "user", "content": words}
    value = {"type": "user", "uuid": f"u{number}", "sessionId": "s1", "message": message}
    return json.dumps(value).encode()


def test_import_uses_little_memory(tmp_path, monkeypatch):
    size = 2**20
    set_sizes(monkeypatch, transaction=2 * size)
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


def size_of(held):
    """Return the bytes of an object and of all that it alone holds."""
    size = 0
    counted_ids = set()
    pending = [held]
    while pending:
        each = pending.pop()
        is_shared = isinstance(each, type | ModuleType | FunctionType | BuiltinFunctionType)
        if is_shared or id(each) in counted_ids:
            continue
        counted_ids.add(id(each))
        size += sys.getsizeof(each)
        pending += gc.get_referents(each)
    return size


def held_for_each(record):
    """Return the skeleton of twice ``RECORDS`` records, and how many bytes it holds for each record
    of the second half.
    """
    skeleton = ClaudeCodeSkeleton()
    size_of_half = 0
    for number in range(2 * RECORDS):
        if number == RECORDS:
            size_of_half = size_of(skeleton)
        counted = record(number)
        skeleton.add(counted, hash_of(counted))
    return skeleton, (size_of(skeleton) - size_of_half) / RECORDS


def test_record_takes_few_bytes():
    assert held_for_each(line)[1] < 12


def reply(number):
    usage = {"input_tokens": number, "output_tokens": 7}
    message = {
        "role": "assistant",
        "id": f"msg_{number}",
        "model": "m-1",
        "content": "so",
        "usage": usage,
    }
    value = {
        "type": "assistant",
        "uuid": f"u{number}",
        "requestId": f"req_{number}",
        "message": message,
    }
    return json.dumps({**value, "timestamp": "2026-03-01T08:00:00Z"}).encode()


def test_counted_reply_takes_few_bytes():
    skeleton, held = held_for_each(reply)
    assert held < 20
    total = skeleton.replies.total()
    assert sum(calls.calls for calls in total.calls) == 2 * RECORDS
    assert sum(calls.usage["prompt_tokens"] for calls in total.calls) == sum(range(2 * RECORDS))


def test_figures_of_a_long_source_are_made_once(tmp_path, monkeypatch, store):
    set_sizes(monkeypatch, transaction=2**16, short=2**16)
    record_counts = []
    figures_in = of_sources.figures_in

    def counted(skeleton, format, records, facts):
        record_counts.append(records)
        return figures_in(skeleton, format, records, facts)

    monkeypatch.setattr(of_sources, "figures_in", counted)
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join([line(0), *map(reply, range(4_000)), b""]))
    imported(store, path)
    assert record_counts == [4_001]
    assert figures_of(store, "s1")["calls"] != []


def test_first_records_are_freed_after_detection(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join(line(number, "w" * 2**19) for number in range(60)))
    tracemalloc.start()
    try:
        (history,) = histories(path, recognize())
        assert isinstance(history, FoundHistory)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", [500, 3_000])
def test_set_and_its_pages_have_the_added_hashes(number):
    draw = random.Random(7)
    # many in one bucket, some of which differ in few bytes
    hashes = [bytes(2) + bytes(draw.choices((0, 1), k=6)) for _ in range(30)]
    hashes += [bytes(2) + draw.randbytes(6) for _ in range(200)]
    hashes += [draw.randbytes(HASH_BYTES) for _ in range(number)]
    ours = HashSet(slice(0, HASH_BYTES))
    added = set()
    for digest in draw.choices(hashes, k=4 * number):
        assert ours.add(digest) is (digest not in added)
        added.add(digest)
    assert all(digest in ours for digest in added)
    assert draw.randbytes(HASH_BYTES) not in ours
    pages = b"".join(ours.pages())
    stored = [pages[place : place + HASH_BYTES] for place in range(0, len(pages), HASH_BYTES)]
    assert sorted(stored) == sorted(added)
    again = HashSet(slice(0, HASH_BYTES))
    assert all(map(again.add, stored))
    assert b"".join(again.pages()) == pages == b"".join(ours.copy().pages())


def test_few_hashes_are_stored_in_the_order_of_many():
    draw = random.Random(8)
    hashes = [draw.randbytes(HASH_BYTES) for _ in range(900)]
    few = HashSet(slice(0, HASH_BYTES))
    many = HashSet(slice(0, HASH_BYTES))
    for digest in hashes:
        few.add(digest)
        many.add(digest)
    for _ in range(900):
        many.add(draw.randbytes(HASH_BYTES))
    pages = b"".join(many.pages())
    stored = [pages[place : place + HASH_BYTES] for place in range(0, len(pages), HASH_BYTES)]
    in_few = set(hashes)
    assert b"".join(digest for digest in stored if digest in in_few) == b"".join(few.pages())


def test_short_source_makes_few_objects():
    """The garbage collector visits each list, and an import of many short sources would make a list
    for each record.
    """
    draw = random.Random(9)
    hashes = [draw.randbytes(HASH_BYTES) for _ in range(1_000)]
    hash_set = HashSet()
    before = len(gc.get_objects())
    for digest in hashes:
        hash_set.add(digest)
    assert len(gc.get_objects()) - before < 20


def test_repeated_record_is_recognized_after_storing():
    hashes = b"a" * 16 + b"b" * 16
    by_id = Seen(SourceState(records=2), hashes, have_ids=True)
    assert by_id.is_again(b"b" * 16, "id", None)
    assert not by_id.is_again(b"c" * 16, "id", None)
    in_order = Seen(SourceState(records=2, is_timed=True, newest="2"), hashes, have_ids=False)
    assert in_order.is_again(b"a" * 16, None, "1")
    assert in_order.is_again(b"b" * 16, None, "3")
    assert not in_order.is_again(b"c" * 16, None, "3")
    assert in_order.is_again(b"b" * 16, None, "1")


def test_late_repetition_counts_no_reply_again():
    skeleton = ClaudeCodeSkeleton()
    for number in [*range(40), 0, 39]:
        record = reply(number).replace(b'"uuid": "u', b'"uuid": "v%d' % skeleton.state.records)
        skeleton.add(record, hash_of(record))
    again = ClaudeCodeSkeleton(skeleton.encode())
    for counted in (skeleton, again):
        total = counted.replies.total()
        assert sum(calls.calls for calls in total.calls) == 40
        assert len(total.hashes) == 40 * HASH_BYTES
        assert total.last_prompt == 39


def test_a_total_in_between_changes_no_later_total():
    watched = ClaudeCodeSkeleton()
    unwatched = ClaudeCodeSkeleton()
    for number in range(100):
        record = reply(number)
        for skeleton in (watched, unwatched):
            skeleton.add(record, hash_of(record))
        total = watched.replies.total()
        assert sum(calls.calls for calls in total.calls) == number + 1
        assert len(total.hashes) == (number + 1) * HASH_BYTES
    assert watched.replies.total() == unwatched.replies.total()
    assert watched.encode() == unwatched.encode()


def test_checksum_is_that_of_zlib():
    for number in range(64):
        text = "\ud800kite" * number
        assert checksum(text) == zlib.crc32(text.encode(errors="surrogatepass"))
