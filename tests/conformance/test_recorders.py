"""What each recorder must do with any bytes: rows come back as they were written, transactions are
whole, values are unique, positions grow, and staged conversations appear whole.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from foldlog.eventstore import Store
from foldlog.eventstore.errors import StoreUnavailable, TooManyBytes
from foldlog.eventstore.log import reading, seal
from foldlog.eventstore.log.database import start_after
from foldlog.eventstore.log.reading import views_up_to
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.recorders.types import UNREADABLE, Conversation, Record, as_rows, row_of
from foldlog.projections import Views
from tests.privacy import erased
from tests.said import all_said, say, texts

SALT = bytes(16)


def row(event_id, *, structural=False):
    head = bytes([event_id]) * 32
    return row_of(event_id, "message", 1, True, structural, 1_000 + event_id, 0, b"{}", head)


def begin(recorder, conversation, rows=()):
    def work(transaction):
        key = transaction.begin(Conversation(0, conversation, 5, SALT)).key
        if rows:
            transaction.insert(key, rows)
        return key

    return recorder.transact(work)


def placed(recorder, after=0, limit=100):
    with recorder.read() as reader:
        entries = reader.placed_rows(after, limit)
    return [entry._replace(row=as_rows([entry.row])[0]) for entry in entries]


def test_a_new_store_does_not_call_uuid4(open_recorder, monkeypatch):
    def refuse():
        raise AssertionError(
            "a program may have replaced uuid4 by a list of known ids, and none is for the store"
        )

    monkeypatch.setattr(uuid, "uuid4", refuse)
    names = {open_recorder().value("uuid") for _ in range(2)}
    assert len(names) == 2
    assert [uuid.UUID(name).version for name in names] == [4, 4]


def test_rows_come_back_as_they_were_written(recorder):
    texts = (b"{}", b"", "ü✓".encode(), b"x" * 100_000)
    others = (b"\x00\xff", bytes(range(256)))
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
    "damaged, expected",
    [
        ((1, row(1).meta[: len(UNREADABLE) - 1], b"{}"), (1, UNREADABLE)),
        ((1, None, b"{}"), (1, UNREADABLE)),
        (("1", row(1).meta, b"{}"), (-1, row(1).meta)),
    ],
    ids=["a meta that was cut off", "no meta", "an id of another type"],
)
def test_a_damaged_row_leaves_a_whole_one_whole(damaged, expected):
    whole = tuple(row(0))
    rows = as_rows([whole, damaged])
    assert [tuple(read_row) for read_row in rows] == [whole, (*expected, b"{}")]


def test_ids_are_walked_in_byte_order(recorder):
    names = ["b", "é", "aa", "日", "b/@1", "\ud800", "x" * 300 + "1", "x" * 300 + "2"]
    names += ["nul \0 inside", "a'; DROP TABLE events; --"]
    for name in names:
        begin(recorder, name, [row(0)])
    stage(recorder, "b/0", [[row(0)]])
    in_order = sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))
    next_ids = []
    start = ""
    with recorder.read() as reader:
        while (name := reader.id_from(start)) is not None:
            next_ids.append(name)
            start = start_after(name)
    assert next_ids == in_order
    with recorder.read() as reader:
        assert [conversation.id for conversation in reader.conversations("", 100)] == in_order
        assert reader.id_from("b") == "b"
        assert reader.id_from("b/") == "b/@1"
        assert reader.id_from("x" * 300 + "11") == "x" * 300 + "2"
        assert reader.id_from("\U0010ffff") is None


def stage(recorder, conversation, chunks):
    """Begin a conversation that is not visible yet, insert its rows, and return its key."""
    key = recorder.transact(
        lambda transaction: transaction.begin(Conversation(0, conversation, 5, SALT, visible=False))
    ).key
    for chunk in chunks:
        recorder.transact(
            lambda transaction, chunk=chunk: transaction.insert(key, chunk, staged=True)
        )
    return key


@pytest.mark.usefixtures("one_order")
def test_only_conversations_with_records_are_found_by_them(recorder):
    first, _, third = (begin(recorder, name, [row(0)]) for name in ("a", "b", "c"))

    def work(transaction):
        transaction.put_records(first, "notes", [Record(1, 1, b"one"), Record(2, 1, b"two")])
        transaction.put_records(third, "others", [Record(1, 1, b"one")])

    recorder.transact(work)
    assert recorder.query(lambda reader: reader.ids_with_records("notes")) == ["a"]


def test_a_published_conversation_appears_whole(recorder):
    key = stage(recorder, "import", [[row(0), row(1)], [row(2)]])
    live = begin(recorder, "live", [row(0)])
    # A staged conversation is not seen.
    assert [entry.conversation for entry in placed(recorder)] == ["live"]
    recorder.transact(lambda transaction: transaction.publish(key, 3))
    first = int(recorder.position(recorder.value("last_position"))) - 2
    recorder.transact(lambda transaction: transaction.insert(live, [row(1)]))
    followed = placed(recorder)
    assert [(placed_row.conversation, placed_row.row.id) for placed_row in followed] == [
        ("live", 0), ("import", 0), ("import", 1), ("import", 2), ("live", 1),
    ]  # fmt: skip
    assert followed[1].position == first
    positions = [placed_row.position for placed_row in followed]
    assert positions == sorted(set(positions))
    for limit in range(1, 6):
        for start, position in enumerate([0, *positions]):
            assert placed(recorder, position, limit) == followed[start : start + limit]


@pytest.mark.usefixtures("one_order")
def test_only_staged_conversations_are_published(recorder):
    published = stage(recorder, "import", [[row(0)]])
    discarded = stage(recorder, "other", [[row(0)]])
    recorder.transact(lambda transaction: transaction.publish(published, 1))
    for key in (published, discarded):
        assert recorder.transact(lambda transaction, key=key: transaction.delete(key, 10))
        for work in (
            lambda transaction, key=key: transaction.insert(key, [row(1)], staged=True),
            lambda transaction, key=key: transaction.publish(key, 1),
        ):
            with pytest.raises(StoreUnavailable, match="no longer staged"):
                recorder.transact(work)
    assert begin(recorder, "another", [row(0)]) != discarded
    assert [entry.conversation for entry in placed(recorder)] == ["import", "another"]


def test_unique_values_are_taken_once(recorder):
    key = begin(recorder, "c1", [row(0)])
    same_name = stage(recorder, "c1", [[row(0)]])
    recorder.transact(lambda transaction: transaction.set_value("tracking app", "5"))
    for work in (
        lambda transaction: transaction.insert(key, [row(0)]),
        lambda transaction: transaction.publish(same_name, 1),
        lambda transaction: transaction.set_value("tracking app", "5"),
        lambda transaction: transaction.set_value("tracking app", "4"),
    ):
        with pytest.raises(StoreUnavailable) as refused:
            recorder.transact(work)
        assert refused.value.kind == "taken"
    assert recorder.value("tracking app") == "5"


def test_the_data_version_tells_of_commits(recorder):
    before = recorder.value("data_version")
    begin(recorder, "c1", [row(0)])
    assert recorder.value("data_version") != before


@pytest.mark.usefixtures("one_order")
def test_positions_of_a_follower_only_grow(recorder):
    keys = [begin(recorder, f"c{n}", [row(0)]) for n in range(4)]

    def write(key):
        for event_id in range(1, 101):
            recorder.transact(lambda transaction, n=event_id: transaction.insert(key, [row(n)]))

    positions = []
    page = []
    finished = False
    with ThreadPoolExecutor() as threads:
        writing = [threads.submit(write, key) for key in keys]
        while page or not finished:
            finished = all(task.done() for task in writing)
            page = placed(recorder, positions[-1] if positions else 0, 7)
            positions += [entry.position for entry in page]
    assert len(positions) == 4 * 101
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("settings", [WriteSettings(), WriteSettings(compression="zlib")])
def test_long_events_are_read_a_few_at_a_time(recorder, settings, monkeypatch):
    store = Store(recorder, settings)
    begun = [str(number) * 300 for number in range(10)]
    say(store, "c", *begun)
    store.fork("c", 7, "fork")
    say(store, "fork", "own" * 100, "last")
    monkeypatch.setattr(reading, "_PAGE_BYTES", 700)
    sizes = []
    first_rows = reading.ReadTransaction.first_rows

    def count(transaction, start, stop):
        rows, end = first_rows(transaction, start, stop)
        sizes.append(len(rows))
        return rows, end

    monkeypatch.setattr(reading.ReadTransaction, "first_rows", count)
    assert texts(store, "c") == begun
    assert max(sizes) == 3
    forked = [*begun[:7], "own" * 100, "last"]
    assert texts(store, "fork") == forked
    assert [logged.event.content for logged in store.log("fork", 2)] == forked[2:]
    assert [event.content for event in store.events("fork", reverse=True)] == forked[::-1]
    assert [event.content for event in store.events("c", 3, 8, reverse=True)] == begun[3:8][::-1]
    within = store.query("fork", lambda transaction: list(transaction.events(1)))
    assert [event.content for event in within] == forked[1:]


def test_a_view_reads_only_the_allowed_bytes(store):
    say(store, "c", *(str(number) * 1_000 for number in range(9)))
    views = Views(store)
    with views_up_to(3_000), pytest.raises(TooManyBytes, match="'c' has more than 3,000 bytes"):
        views.current("c")
    with views_up_to(20_000):
        assert len(list(views.current("c"))) == 9
    say(store, "c", "x" * 4_000)
    with views_up_to(3_000), pytest.raises(TooManyBytes):
        Views(store).current("c")


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_the_bytes_of_a_compressed_view_are_those_that_are_decoded(
    recorder, compression, monkeypatch
):
    store = Store(recorder, WriteSettings(compression=compression))
    say(store, "c", *(str(number) * 1_000 for number in range(9)))
    store.fork("c", 2, "fork")
    say(store, "fork", "own" * 1_000)
    decompressed = []
    decompress = seal.decompress

    def note(number, stored):
        decompressed.append(decompress(number, stored))
        return decompressed[-1]

    monkeypatch.setattr(seal, "decompress", note)
    for name in ("c", "fork"):
        with views_up_to(3_000), pytest.raises(TooManyBytes):
            Views(store).current(name)
        assert len(decompressed) == 3
        decompressed.clear()
    views = Views(store)
    with views_up_to(20_000):
        assert len(list(views.current("c"))) == 9
    say(store, "c", "x" * 4_000)
    with views_up_to(10_000), pytest.raises(TooManyBytes):
        views.current("c")
    with views_up_to(20_000):
        assert len(list(views.current("c"))) == 10
    assert len(list(Views(store).current("c"))) == 10


@pytest.mark.usefixtures("one_order")
def test_reading_goes_on_after_each_position(store):
    say(store, "a", "zero", "one")
    store.ingest("imported", all_said(*map(str, range(7))))
    store.fork("a", 1, "fork")
    say(store, "fork", "own")
    say(store, "erased", "gone")
    store.ingest("imported too", all_said("x", "y"))
    erased(store, "erased")
    with store.database.recorder.read() as reader:
        rows = [
            (placed_row.position, placed_row.conversation, placed_row.row.id)
            for placed_row in reader.placed_rows(0, 100)
        ]
        assert len(rows) > 12
        positions = [position for position, *_ in rows]
        assert positions == sorted({*positions})
        for after in {0, *positions, *(position - 1 for position in positions)}:
            expected = [row for row in rows if row[0] > after]
            assert reader.place_after(after) == next(iter(expected), None)
            for limit in (1, 3, 100):
                page = reader.placed_rows(after, limit)
                assert [(entry.position, entry.conversation, entry.row.id) for entry in page] == (
                    expected[:limit]
                )
