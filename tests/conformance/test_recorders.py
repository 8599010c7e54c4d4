"""One suite for all recorders: uniqueness, atomicity, positions, staging, records, for any
bytes.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

import pytest

from foldlog.eventstore.errors import StoreUnavailable, StoreUnusable
from foldlog.eventstore.log.database import start_after
from foldlog.eventstore.log.importing import staged_keys
from foldlog.eventstore.maintenance.backup import _stale
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.types import (
    Conversation,
    Erasure,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    as_rows,
    row_of,
)
from tests.conformance.conftest import OpenRecorder
from tests.stored_rows import with_fields

SALT = bytes(16)


def is_taken(error: StoreUnavailable) -> bool:
    return error.kind == "taken"


def row(event_id: int, body: bytes = b"{}", *, shown: bool = True, structural: bool = False) -> Row:
    return row_of(
        event_id,
        "message",
        1,
        shown,
        structural,
        1_000 + event_id,
        0,
        body,
        bytes([event_id % 256]) * 32,
    )


def begin(recorder: Recorder, conversation: str, rows: Sequence[Row] = ()) -> int:
    def work(transaction: Transaction) -> int:
        key = transaction.begin(Conversation(0, conversation, 5, SALT)).key
        if rows:
            transaction.insert(key, rows)
        return key

    return recorder.transact(work)


def placed(recorder: Recorder, after: int = 0, limit: int = 100) -> list[PlacedRow]:
    with recorder.read() as reader:
        found = reader.placed_rows(after, limit)
    return [each._replace(row=as_rows([each.row])[0]) for each in found]


def recall(reader: Reader, key: int, name: str) -> RecalledKey | None:
    """What is stored under an idempotency key, without its position."""
    found = reader.recalled(key, name, 1, exactly=True)
    return found[0][1]._replace(position=None) if found else None


def remembered(
    reader: Reader, key: int, after: str | None, limit: int
) -> list[tuple[str, RecalledKey]]:
    return list(reader.recalled(key, start_after(after), limit))


def record_at(reader: Reader, projection: str, key: int, version: int) -> Record | None:
    found = reader.records(key, projection, version, 1, backwards=True)
    return found[0] if found else None


def position_of(recorder: Recorder, key: int, event_id: int) -> int | None:
    """The position of an event, as an idempotency key tells it."""

    def work(transaction: Transaction) -> int | None:
        transaction.remember(key, f"position {event_id}", RecalledKey(event_id, 1))
        return transaction.recalled(key, f"position {event_id}", 1, exactly=True)[0][1].position

    return recorder.transact(work)


def test_a_new_store_gets_its_own_identity_without_a_call_of_uuid4(
    open_recorder: OpenRecorder, monkeypatch: pytest.MonkeyPatch
):
    def refuse() -> None:
        raise AssertionError(
            "a program may have replaced uuid4 by a list of known ids, and none is for the store"
        )

    monkeypatch.setattr(uuid, "uuid4", refuse)
    names = {open_recorder().value("uuid") for _ in range(2)}
    assert len(names) == 2
    assert [uuid.UUID(name).version for name in names] == [4, 4]


def test_rows_come_back_as_they_were_written(recorder: Recorder):
    texts, others = (b"{}", b"", "ü✓".encode(), b"x" * 100_000), (b"\x00\xff", bytes(range(256)))
    written = [(0, body) for body in texts] + [
        (encoding, body) for encoding in (1, 7) for body in others
    ]
    rows = [
        row_of(n, "é", n, n % 3 > 0, n % 5 == 2, 1_000 + n, encoding, body, bytes([n]) * 32)
        for n, (encoding, body) in enumerate(written * 6)
    ]
    key = begin(recorder, "c", rows[:1])
    recorder.transact(lambda transaction: transaction.insert(key, rows[1:2]))
    recorder.transact(lambda transaction: transaction.insert(key, rows[2:]))
    with recorder.read() as reader:
        assert as_rows(reader.rows(key, 0, 100, 100)) == rows
        assert as_rows(reader.rows(key, 1, 40, 2)) == rows[1:3]
        assert as_rows(reader.rows(key, 2, 5, 100)) == rows[2:5]


@pytest.mark.parametrize(
    "name", ["c1", "", "ümlaut ✓", "a/b\\c'; DROP TABLE events; --", "nul \0 inside", "lone \udcff"]
)
def test_any_text_names_a_conversation(recorder: Recorder, name: str):
    begin(recorder, name, [row(0)])
    with recorder.read() as reader:
        assert [p.conversation for p in reader.placed_rows(0, 10)] == [name]
        found = reader.conversation(name)
        assert found is not None
        assert (found.id, found.version, found.salt, found.created_at) == (name, 1, SALT, 5)
        assert [c.id for c in reader.conversations("", 10)] == [name]


def test_structural_and_flagged_rows_are_found_without_the_others(recorder: Recorder):
    rows = [row(n, shown=n % 2 == 0, structural=n % 3 == 0) for n in range(12)]
    key = begin(recorder, "c1", rows)
    with recorder.read() as reader:
        assert [r.id for r in as_rows(reader.rows(key, 1, 12, 2, "structural"))] == [3, 6]
        assert [r.id for r in as_rows(reader.flagged_rows(key, [(0, 3), (7, 8), (11, 40)]))] == [
            0,
            2,
            3,
            8,
        ]
        assert as_rows(reader.flagged_rows(key, [])) == []


def test_a_conversation_counts_its_shown_and_structural_rows_by_its_last(recorder: Recorder):
    last = with_fields(row(1, shown=True), shown_before=7, structural_before=3)
    key = begin(recorder, "c1", [row(0), last])
    with recorder.read() as reader:
        assert as_rows(reader.rows(key, 1, 2, 1)) == [last]
        found = reader.conversation("c1")
        assert found is not None
        assert (found.shown, found.structural) == (8, 3)
        assert reader.conversation(key) == found
        assert reader.conversation(key + 1) is None


@pytest.mark.parametrize("shown", [True, False])
def test_an_id_is_taken_once(recorder: Recorder, shown: bool):
    key = begin(recorder, "c1", [with_fields(row(0), shown=True)])
    with pytest.raises(StoreUnavailable, check=is_taken):
        recorder.transact(
            lambda transaction: transaction.insert(key, [with_fields(row(0), shown=shown)])
        )


def test_what_work_wrote_before_it_raised_is_taken_back(recorder: Recorder):
    rows = [row(0), row(1, structural=True)]
    key = begin(recorder, "c1", rows)

    def work(transaction: Transaction) -> None:
        transaction.insert(key, [row(2)])
        transaction.begin(Conversation(0, "c2", 1, SALT))
        transaction.remember(key, "turn-1", RecalledKey(0, 1))
        transaction.put_records(key, "views", [Record(1, 1, b"x")])
        transaction.set_value("tracking app", str(1))
        transaction.replace_rows(key, [with_fields(rows[1], structural=False, body=b"other")])
        transaction.erase(key, Erasure(7, "", 2, b""))
        transaction.delete(key, 10)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        recorder.transact(work)
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        assert found.erasure is None
        assert as_rows(reader.rows(key, 0, 10, 10)) == rows
        assert as_rows(reader.rows(key, 0, 10, 10, "structural")) == rows[1:]
        assert reader.conversation("c2") is None
        assert recall(reader, key, "turn-1") is None
        assert record_at(reader, "views", key, 9) is None
        assert recorder.value("tracking app") == ""
    assert [p.row for p in placed(recorder)] == rows


def test_the_next_id_is_that_of_the_next_published_conversation(recorder: Recorder):
    names = ["b", "é", "aa", "日", "b/@1", "\ud800", "x" * 300 + "1", "x" * 300 + "2"]
    for name in names:
        begin(recorder, name, [row(0)])
    stage(recorder, "b/0", [[row(0)]])
    in_order = sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))
    found, start = [], ""
    with recorder.read() as reader:
        while (name := reader.id_from(start)) is not None:
            found.append(name)
            start = start_after(name)
    assert found == in_order
    with recorder.read() as reader:
        assert [each.id for each in reader.conversations("", 100)] == in_order
        assert reader.id_from("b") == "b"
        assert reader.id_from("b/") == "b/@1"
        assert reader.id_from("x" * 300 + "11") == "x" * 300 + "2"
        assert reader.id_from("\U0010ffff") is None


def test_positions_rise_over_all_conversations(recorder: Recorder):
    one, two = begin(recorder, "one", [row(0), row(1)]), begin(recorder, "two", [row(0)])
    recorder.transact(lambda transaction: transaction.insert(one, [row(2)]))
    recorder.transact(lambda transaction: transaction.insert(two, [row(1)]))
    followed = placed(recorder)
    assert [(p.conversation, p.row.id) for p in followed] == [
        ("one", 0),
        ("one", 1),
        ("two", 0),
        ("one", 2),
        ("two", 1),
    ]
    positions = [p.position for p in followed]
    assert positions == sorted(set(positions))
    assert placed(recorder, positions[2]) == followed[3:]
    assert placed(recorder, 0, 2) == followed[:2]
    with recorder.read():
        assert int(recorder.position(recorder.value("last_position"))) == positions[-1]
    assert position_of(recorder, one, 2) == positions[3]


def stage(recorder: Recorder, conversation: str, chunks: Sequence[Sequence[Row]]) -> int:
    key = recorder.transact(
        lambda transaction: transaction.begin(Conversation(0, conversation, 5, SALT, visible=False))
    ).key
    for chunk in chunks:
        recorder.transact(
            lambda transaction, chunk=chunk: transaction.insert(key, chunk, staged=True)
        )  # type: ignore[misc]
    return key


def test_a_staged_conversation_is_seen_by_nobody(recorder: Recorder):
    key = stage(recorder, "import", [[row(0), row(1)], [row(2)]])
    begin(recorder, "live", [row(0)])
    with recorder.read() as reader:
        assert reader.conversation("import") is None
        assert [c.id for c in reader.conversations("", 10)] == ["live"]
        assert staged_keys(reader, "import") == [key]
    assert [p.conversation for p in placed(recorder)] == ["live"]


def test_a_published_conversation_appears_whole_behind_what_was_there(recorder: Recorder):
    key = stage(recorder, "import", [[row(0), row(1)], [row(2)]])
    live = begin(recorder, "live", [row(0)])
    recorder.transact(lambda transaction: transaction.publish(key, 3))
    first = int(recorder.position(recorder.value("last_position"))) - 2
    recorder.transact(lambda transaction: transaction.insert(live, [row(1)]))
    followed = placed(recorder)
    assert [(p.conversation, p.row.id) for p in followed] == [
        ("live", 0), ("import", 0), ("import", 1), ("import", 2), ("live", 1),
    ]  # fmt: skip
    assert followed[1].position == first
    positions = [p.position for p in followed]
    assert positions == sorted(set(positions))
    for limit in range(1, 6):
        for start, position in enumerate([0, *positions]):
            assert placed(recorder, position, limit) == followed[start : start + limit]
    with recorder.read() as reader:
        found = reader.conversation("import")
        assert found is not None
        assert found.version == 3
        assert staged_keys(reader, "import") == []
    assert position_of(recorder, key, 2) == followed[3].position


def test_publishing_under_a_name_that_is_taken_is_refused(recorder: Recorder):
    key = stage(recorder, "c1", [[row(0)]])
    begin(recorder, "c1", [row(0)])
    with pytest.raises(StoreUnavailable, check=is_taken):
        recorder.transact(lambda transaction: transaction.publish(key, 1))


def test_a_discarded_staging_leaves_nothing(recorder: Recorder):
    key = stage(recorder, "import", [[row(0), row(1), row(2)]])
    recorder.transact(lambda transaction: transaction.remember(key, "turn-1", RecalledKey(0, 1)))
    recorder.transact(
        lambda transaction: transaction.put_records(key, "views", [Record(1, 1, b"x")])
    )
    while not recorder.transact(lambda transaction: transaction.delete(key, 2)):
        pass
    with recorder.read() as reader:
        assert staged_keys(reader, "import") == []
        assert as_rows(reader.rows(key, 0, 10, 10)) == []
        assert remembered(reader, key, None, 10) == []
        assert [each.projection for each in reader.records(key, None, 0, 99)] == []


def test_a_discarded_staging_takes_nothing_more(recorder: Recorder):
    key = stage(recorder, "import", [[row(0)]])
    assert recorder.transact(lambda transaction: transaction.delete(key, 10))
    other = begin(recorder, "other", [row(0)])
    assert other != key
    with pytest.raises(StoreUnavailable, match="no longer staged"):
        recorder.transact(lambda transaction: transaction.insert(key, [row(1)], staged=True))
    with pytest.raises(StoreUnavailable, match="no longer staged"):
        recorder.transact(lambda transaction: transaction.publish(key, 1))
    assert [p.conversation for p in placed(recorder)] == ["other"]


def test_what_is_published_cannot_be_discarded_or_published_again(recorder: Recorder):
    key = stage(recorder, "import", [[row(0)]])
    recorder.transact(lambda transaction: transaction.publish(key, 1))
    assert recorder.transact(lambda transaction: transaction.delete(key, 10))
    with pytest.raises(StoreUnavailable, match="no longer staged"):
        recorder.transact(lambda transaction: transaction.publish(key, 1))
    with pytest.raises(StoreUnavailable, match="no longer staged"):
        recorder.transact(lambda transaction: transaction.insert(key, [row(1)], staged=True))
    assert [p.conversation for p in placed(recorder)] == ["import"]


def test_records_are_found_at_or_before_a_version(recorder: Recorder):
    key = begin(recorder, "c1", [row(0)])
    records = [Record(version, 1, b"%d" % version) for version in (3, 7, 9)]
    recorder.transact(lambda transaction: transaction.put_records(key, "views", records))
    with recorder.read() as reader:
        assert record_at(reader, "views", key, 2) is None
        assert record_at(reader, "views", key, 3) == records[0]
        assert record_at(reader, "views", key, 8) == records[1]
        assert record_at(reader, "views", key, 1_000) == records[2]
        assert record_at(reader, "other", key, 1_000) is None
        assert list(reader.records(key, "views", 3, 10)) == records[1:]
        assert list(reader.records(key, "views", 0, 2)) == records[:2]
    replaced = Record(7, 2, b"new")
    recorder.transact(lambda transaction: transaction.put_records(key, "views", [replaced]))
    with recorder.read() as reader:
        assert record_at(reader, "views", key, 8) == replaced
    recorder.transact(
        lambda transaction: transaction.put_records(key, "views", (), replace_all=True)
    )
    with recorder.read() as reader:
        assert record_at(reader, "views", key, 1_000) is None


def test_idempotency_keys_are_listed_a_page_at_a_time(recorder: Recorder):
    key = begin(recorder, "c1", [row(0)])
    name, recalled = strange = ("turn-\udcff\0", RecalledKey(3, 2, b"proof"))
    recorder.transact(lambda transaction: transaction.remember(key, name, recalled))
    for other in ("b", "a", "é", ""):
        recorder.transact(lambda transaction: transaction.remember(key, other, RecalledKey(0, 1)))  # noqa: B023
    with recorder.read() as reader:
        assert list(remembered(reader, key, None, 3)) == [
            ("", RecalledKey(0, 1)),
            ("a", RecalledKey(0, 1)),
            ("b", RecalledKey(0, 1)),
        ]
        assert list(remembered(reader, key, "", 1)) == [("a", RecalledKey(0, 1))]
        assert list(remembered(reader, key, "b", 2)) == [strange, ("é", RecalledKey(0, 1))]
        assert recall(reader, key, name) == recalled
        assert recall(reader, key + 1, name) is None
        assert list(remembered(reader, key + 1, None, 2)) == []


def test_a_conversation_gets_another_key_and_its_rows_another_form(recorder: Recorder):
    rows = [row(n, shown=n > 0, structural=n == 1) for n in range(3)]
    key = begin(recorder, "c1", rows)
    changed = [with_fields(r, encoding=6, body=bytes(range(256))) for r in rows[:2]]

    def work(transaction: Transaction) -> None:
        transaction.set_key(key, b"new salt", "k1", b"sealed")
        transaction.replace_rows(key, changed)

    recorder.transact(work)
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        assert (found.salt, found.key_id, found.sealed_key) == (b"new salt", "k1", b"sealed")
        assert as_rows(reader.rows(key, 0, 9, 9)) == [*changed, rows[2]]
        assert as_rows(reader.rows(key, 0, 9, 9, "structural")) == [changed[1]]
    plain = with_fields(changed[1], encoding=0, body=b"{}")
    recorder.transact(lambda transaction: transaction.replace_rows(key, [plain]))
    with recorder.read() as reader:
        assert as_rows(reader.flagged_rows(key, [(0, 9)])) == [plain, rows[2]]


def test_staged_conversations_that_nothing_was_added_to_are_named(recorder: Recorder):
    begin(recorder, "visible", [row(0)])
    empty = recorder.transact(
        lambda transaction: transaction.begin(Conversation(0, "empty", 5, SALT, visible=False))
    ).key
    filled = stage(recorder, "filled", [[row(0), row(1)]])
    newest = row(1).recorded_at
    assert list(_stale(recorder, newest)) == [empty]
    assert sorted(_stale(recorder, newest + 1)) == sorted([empty, filled])
    assert list(_stale(recorder, 5)) == []


def erase(recorder: Recorder, key: int) -> Erasure:
    receipt = Erasure(7, "asked to", 2, b"h" * 32)

    def work(transaction: Transaction) -> None:
        transaction.erase(key, receipt)
        transaction.insert(-key, [row(0)])  # its entry in the ledger

    recorder.transact(work)
    return receipt


@pytest.mark.parametrize("staged_first", [False, True])
def test_an_erased_conversation_is_a_receipt_and_its_rows_are_followed_by_nobody(
    recorder: Recorder, staged_first: bool
):
    if staged_first:
        key = stage(recorder, "c1", [[row(0), row(1)]])
        recorder.transact(lambda transaction: transaction.publish(key, 2))
    else:
        key = begin(recorder, "c1", [row(0), row(1)])
    other = begin(recorder, "c2", [row(0)])
    before = placed(recorder)
    receipt = erase(recorder, key)
    with recorder.read() as reader:
        own, entry = reader.placed_rows(0, 9)
        assert (own.conversation, entry.conversation) == ("c2", "c1")
        assert (own.is_entry, entry.is_entry) == (False, True)
        assert entry.position > before[-1].position
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        assert found.erasure is not None
        assert found.erasure._replace(position=None) == receipt
        assert (found.salt, found.key_id, found.sealed_key) == (b"", None, None)
        assert [c.id for c in reader.conversations("", 9)] == ["c1", "c2"]
    recorder.transact(lambda transaction: transaction.insert(other, [row(1)]))
    with recorder.read() as reader:
        assert [one.conversation for one in reader.placed_rows(0, 9)] == ["c2", "c1", "c2"]


def test_rows_of_an_erased_conversation_go_in_small_parts_with_all_that_is_beside_them(
    recorder: Recorder,
):
    key, other = begin(recorder, "c1", [row(n) for n in range(5)]), begin(recorder, "c2", [row(0)])

    def beside(transaction: Transaction) -> None:
        for k in (key, other):
            transaction.remember(k, "turn-1", RecalledKey(0, 1))
            transaction.put_records(k, "views", [Record(1, 1, b"x")])

    recorder.transact(beside)
    receipt = erase(recorder, key)
    while not recorder.transact(lambda transaction: transaction.delete(key, 2)):
        pass
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        assert found.erasure is not None
        assert found.erasure._replace(position=None) == receipt
        for k, left in ((key, 0), (other, 1)):
            assert len(as_rows(reader.rows(k, 0, 9, 9))) == left
            assert len(remembered(reader, k, None, 9)) == left
            assert len([each.projection for each in reader.records(k, None, 0, 99)]) == left
            assert (record_at(reader, "views", k, 9) is not None) == bool(left)


def test_what_is_sound_is_purged_and_checked_without_a_finding(recorder: Recorder):
    begin(recorder, "c1", [row(0)])
    assert recorder.compact(0) in (True, False)
    assert list(recorder.check()) == []


def test_tracking_only_goes_forward(recorder: Recorder):
    recorder.transact(lambda transaction: transaction.set_value("tracking app", str(5)))
    for late in (5, 4):
        with pytest.raises(StoreUnavailable, check=is_taken):
            recorder.transact(
                lambda transaction, late=late: transaction.set_value("tracking app", str(late))
            )  # type: ignore[misc]
    assert recorder.value("tracking app") == "5"


def test_the_data_version_tells_of_commits(recorder: Recorder):
    before = recorder.value("data_version")
    begin(recorder, "c1", [row(0)])
    assert recorder.value("data_version") != before


def test_a_closed_recorder_says_so(recorder: Recorder):
    recorder.close()
    with pytest.raises(StoreUnusable, match="closed"):
        begin(recorder, "c1", [row(0)])
    with pytest.raises(StoreUnusable, match="closed"), recorder.read():
        pass


def test_a_follower_never_sees_a_smaller_position_later(recorder: Recorder):
    keys = [begin(recorder, f"c{n}", [row(0)]) for n in range(4)]
    done = threading.Event()

    def write(key: int) -> None:
        for event_id in range(1, 101):
            recorder.transact(lambda transaction, n=event_id: transaction.insert(key, [row(n)]))  # type: ignore[misc]

    threads = [threading.Thread(target=write, args=(key,)) for key in keys]

    def wait() -> None:
        for thread in threads:
            thread.join()
        done.set()

    for thread in threads:
        thread.start()
    waiter = threading.Thread(target=wait)
    waiter.start()
    seen: list[int] = []
    while True:
        finished = done.is_set()
        page = placed(recorder, seen[-1] if seen else 0, 7)
        seen += [p.position for p in page]
        if finished and not page:
            break
    waiter.join()
    assert len(seen) == 4 * 101
    assert seen == sorted(set(seen))
