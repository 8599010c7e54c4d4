"""What a store keeps of sources, on each recorder: blocks of records, the events of records, places
in files, and what an erasure leaves.
"""

from array import array
from contextlib import contextmanager

import pytest

from foldlog import Histories
from foldlog._imports import recording
from foldlog.eventstore import (
    ConversationErased,
    CorruptEvent,
    EventsNotMade,
    KeyUnavailable,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    SIZE,
    DamagedBlock,
    chain_head,
    hash_of,
    join,
    of_records,
    pack,
    unpacked_index,
)
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.eventstore.sources.tables import MADE, Place, Source, Sources, SourcesToWrite
from tests.conformance.conftest import ENCRYPTS
from tests.privacy import erased
from tests.said import said, say
from tests.sound import assert_sound

RECORDS = [b'{"n": %d, "text": "%b"}' % (number, b"x" * 50) for number in range(9)]
NAMES = "abc", "\x00é", "名"


@pytest.fixture
def store(recorder, settings):
    return Store(recorder, settings)


@contextmanager
def sources_of(store):
    with store.database.recorder.read() as reader:
        yield Sources(store.database, reader)


def begun(store, name, **fields):
    """Begin a conversation with the records as its source, in three blocks."""

    def work(transaction):
        beginning = Conversation(0, name, store.database.now(), bytes(16))
        writing = WriteTransaction(
            transaction, begin_new(transaction, store.database, beginning), store.database
        )
        writing.begin()
        sources = SourcesToWrite.beside(writing)
        blocks = [of_records(first, RECORDS[first : first + 3]) for first in (0, 3, 6)]
        head = chain_head(GENESIS, b"".join(block.hashes for block in blocks))
        source = Source(
            writing.key, writing.key, None, 0, 9, 0, "codex", 1, head, hash_of(RECORDS[0])
        )
        source = source._replace(about=b'{"a": 1}', sums=b"sums", **fields)
        sources.put(source)
        sources.put_blocks(source, blocks)
        writing.set_unmade(9)
        writing.end()
        return source

    return store.database.recorder.transact(work)


def write(store, method, *arguments):
    """Call a method of the sources in a transaction, and return what it returns."""

    def work(transaction):
        return method(SourcesToWrite(store.database, transaction), *arguments)

    return store.database.recorder.transact(work)


def records_of(store, source, start=0):
    with sources_of(store) as sources:
        return [record for block in sources.blocks(source, start) for record in block.records()]


def firsts_of(store, source):
    with sources_of(store) as sources:
        return [block.first for block in sources.own_blocks(source)]


def source_of(store, name):
    with sources_of(store) as sources:
        return sources.of(name)


def check_made(store, source, spans):
    """Check that the store knows the events of each record, and finds the record of each event in a
    few rows. ``spans`` maps a record to its first event and the number of its events.
    """
    end = max(first + count for first, count in spans.values())
    with sources_of(store) as sources:
        assert sources.made(source) == spans
        for event_id in range(end + 9):
            near = sources.made_near(source, event_id)
            assert near.start <= event_id < near.stop
            assert near.made.items() <= spans.items()
            inside = {n for n, (first, _) in spans.items() if near.start <= first < near.stop}
            assert inside <= set(near.made)
            before = [n for n, (first, count) in spans.items() if first + count <= event_id]
            assert sources.records_before(source, event_id) == max(before, default=-1) + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_source_is_read_as_written(store, name):
    source = begun(store, name, redacted=(1, 7))
    with sources_of(store) as sources:
        assert sources.of(name) == source
        assert sources.find_by_key(source.conversation) == source
        assert sources.find_by_key(source.conversation + 1) is None
        assert sources.all() == [source]
        assert sources.hashes(source) == b"".join(map(hash_of, RECORDS))
        redacted = {hash_of(RECORDS[1]), hash_of(RECORDS[7])}
        assert sources.redacted_hashes(source.root) == redacted
    assert records_of(store, source) == RECORDS
    assert records_of(store, source, 4) == RECORDS[3:]


def test_blocks_are_replaced_and_joined(store):
    source = begun(store, "c1")
    with sources_of(store) as sources:
        blocks = [*sources.own_blocks(source)]
    changed = blocks[1].with_record(4, b"{}")
    expected = [*RECORDS[:4], b"{}", *RECORDS[5:]]
    write(store, SourcesToWrite.put_blocks, source, [changed])
    assert records_of(store, source) == expected
    parts = [blocks[0], changed]
    write(store, SourcesToWrite.join_blocks, source, parts, join(parts))
    assert firsts_of(store, source) == [0, 6]
    assert records_of(store, source) == expected


@pytest.mark.usefixtures("one_order")
def test_a_fork_shares_records_with_its_parent(store):
    parent = begun(store, "c1")
    other = begun(store, "c2")
    write(store, SourcesToWrite.put_made, parent, {0: (0, 2), 3: (2, 1), 8: (3, 1)})
    fork = other._replace(root=parent.root, parent=parent.conversation, from_record=4, records=7)
    own = [of_records(4, [b"[4]", b"[5]"]), of_records(6, [b"[6]"])]

    def share(sources):
        sources.delete_blocks(fork.conversation, 0, 9)
        sources.put_blocks(fork, own)
        sources.put(fork)
        sources.put_made(fork, {5: (9, 2)})

    def read_back(source, number, count):
        with sources_of(store) as sources:
            return [[*block.records()] for block in sources.blocks_back(source, number, count)]

    write(store, share)
    assert read_back(parent, 4, 9) == [RECORDS[:3], RECORDS[3:6]]
    assert read_back(parent, 8, 1) == [RECORDS[6:]]
    assert read_back(fork, 6, 9) == [[b"[4]", b"[5]"], [b"[6]"]]
    assert read_back(fork, 3, 9) == [RECORDS[:3], RECORDS[3:4]]
    with sources_of(store) as sources:
        family = [member.conversation for member in sources.family(parent.root)]
    assert family == [parent.conversation, fork.conversation]

    def check():
        source = source_of(store, "c2")
        assert records_of(store, source) == [*RECORDS[:4], b"[4]", b"[5]", b"[6]"]
        with sources_of(store) as sources:
            assert sources.made(source) == {0: (0, 2), 3: (2, 1), 5: (9, 2)}

    check()
    write(store, SourcesToWrite.leave_parent, source_of(store, "c2"))
    check()
    assert source_of(store, "c2").parent is None


def test_the_record_of_an_event_is_found(store):
    parent = begun(store, "c1")
    other = begun(store, "c2")
    fork = other._replace(root=parent.root, parent=parent.conversation, from_record=6)
    write(store, SourcesToWrite.put, fork)
    spans = {number: (3 * number, 3 if number % 2 else 2) for number in range(9)}
    for number, events in spans.items():
        write(store, SourcesToWrite.put_made, parent, {number: events})
    own = {number: (first + 100, count) for number, (first, count) in spans.items() if number >= 6}
    write(store, SourcesToWrite.put_made, fork, own)
    check_made(store, parent, spans)
    check_made(store, fork, spans | own)


def test_appended_blocks_name_their_events(store):
    source = begun(store, "c1", made=9)
    start = MADE + 9
    head = b"h" * 32
    spans = {number: (2 * number, 2) for number in range(start)}
    write(store, SourcesToWrite.put_made, source, {**spans})
    write(store, SourcesToWrite.set_progress, source, start, start, head)
    for first in range(start, start + 6, 2):
        block = of_records(first, [b"[%d]" % first, b"{}"])
        some = {first: (2 * first + 5, 1), first + 1: (2 * first + 6, 2)}
        head = chain_head(head, block.hashes)
        spans |= some
        write(store, SourcesToWrite.append_block, source.conversation, block, some, head)

    def check():
        source = source_of(store, "c1")
        assert (source.records, source.made, source.head) == (start + 6, start + 6, head)
        check_made(store, source, spans)
        assert records_of(store, source, start + 4)[-2:] == [b"[%d]" % (start + 4), b"{}"]
        return source

    before = check()
    assert write(store, SourcesToWrite.settle, source.conversation) == before
    write(store, SourcesToWrite.join_last, before, start + 2)
    # ``settle`` wrote the progress into the row of the source, so the joined block needs none.
    assert check() == before
    assert firsts_of(store, source) == [0, 3, 6, start, start + 2]


class Noting:
    """A reader that adds each statement to ``noted``, with its parameters and the rows."""

    def __init__(self, reader, noted):
        self.reader = reader
        self.noted = noted

    def __getattr__(self, name):
        method = getattr(self.reader, name)
        if name not in ("ask", "ask_all", "write"):
            return method

        def call(statement, *parameters):
            answer = method(statement, *parameters)
            self.noted.append((statement, parameters, answer if name != "write" else []))
            return answer

        return call


@pytest.fixture
def questions(monkeypatch):
    """The statements about the tables of sources from now on, each with its parameters and the rows
    that it returned.
    """
    noted = []
    begin = Sources.__init__
    monkeypatch.setattr(
        Sources,
        "__init__",
        lambda sources, database, reader, keys=None: begin(
            sources, database, Noting(reader, noted), keys
        ),
    )
    return noted


def record_of(text):
    return {"role": "user", "content": text}


def test_appended_records_write_one_row(store, questions):
    history = Histories(store)["c1"]

    def turn():
        questions.clear()
        history.append_records([record_of("x" * 50)], format="openai-chat")
        return sorted(statement for statement, _, _ in questions)

    turn()
    turns = [turn() for _ in range(4 * recording._SHORT_BLOCKS)]
    joining = 4  # one turn of so many joins the short blocks
    assert turns.count(["put_block"]) == len(turns) - joining
    history.append(said("no record"))
    # Another program may have appended records in between, so the source is read again.
    assert turn() == ["put_block", "source"]


def test_a_turn_costs_the_same_at_any_length(store, questions):
    history = Histories(store)["c1"]

    def turn():
        questions.clear()
        record = record_of(f"turn {history.version():4}")
        (recorded,) = history.append_records([record], format="openai-chat")
        stored = history._stored_records()
        assert (stored.count(recorded.event), stored.record([recorded.event])) == (1, record)
        columns = [row for _, parameters, rows in questions for row in (parameters, *rows)]
        values = [value for row in columns for value in row]
        return len(columns), sum(len(value) if isinstance(value, bytes) else 8 for value in values)

    turn()
    short = [turn() for _ in range(MADE)]
    for _ in range(30):
        history.append_records([record_of("x" * 50)] * 30, format="openai-chat")
    long = [turn() for _ in range(MADE)]
    most_rows, most_bytes = (max(column) for column in zip(*short, strict=True))
    for rows, size in long:
        assert rows <= most_rows + 2, "two blocks are joined"
        assert size <= most_bytes + SIZE // 8


def test_index_of_a_block_fits_its_records():
    block = of_records(5, [b"{}", b'{"a": 1}', b"[2]"])
    index, _ = block.packed()
    assert unpacked_index(3, index) == (block.places, block.hashes)
    steps = pack(array("I", [1, 2, 3, 4]).tobytes())
    for count, damaged in ((2, index), (4, index), (3, index[:-1]), (3, steps + block.hashes)):
        with pytest.raises(DamagedBlock):
            unpacked_index(count, damaged)


def test_places_by_name_and_conversation(store):
    of_c1 = begun(store, "c1")
    of_c2 = begun(store, "c2")
    name = b"p" * 16
    first = Place(of_c1.conversation, 5, 9, 100, b"state", b"digest")
    second = first._replace(conversation=of_c2.conversation, seen=6)
    for place in (first._replace(seen=7), first, second):
        write(store, SourcesToWrite.put_place, name, place)
    with sources_of(store) as sources:
        assert sources.places(name) == [first, second]
        assert sources.places(b"q" * 16) == []
        assert sources.places_of(of_c2.conversation) == [(name, second)]


def test_places_are_found_among_many(store):
    of_c1 = begun(store, "c1")
    of_c2 = begun(store, "c2")
    many = [number.to_bytes(16) for number in range(2_500)]
    expected = {
        many[number]: [Place(of_c1.conversation, number, 9, 1, b"state", b"digest")]
        for number in (0, 999, 1_000, 2_499)
    }
    earlier = Place(of_c2.conversation, 998, 3, 0, b"", b"")
    expected[many[999]].insert(0, earlier)
    with_other = {**expected, b"q" * 16: [earlier]}
    for name, places in with_other.items():
        for place in reversed(places):
            write(store, SourcesToWrite.put_place, name, place)
    with sources_of(store) as sources:
        assert sources.places_among(many) == expected
        assert sources.places_among(iter(many[1:999])) == {}
        assert sources.places_among([]) == {}


PLACE_NAME = b"p" * 16


@pytest.fixture
def erased_source(store):
    """A source that was erased with its conversation, after it had events and a place."""
    source = begun(store, "c1")
    write(store, SourcesToWrite.put_made, source, {0: (0, 2)})
    place = Place(source.conversation, 1, 9, 1, b"", b"")
    write(store, SourcesToWrite.put_place, PLACE_NAME, place)
    erased(store, "c1")
    return source


def test_nothing_stays_of_an_erased_source(store, erased_source):
    with sources_of(store) as sources:
        assert sources.of("c1") is None
        assert sources.find_by_key(erased_source.conversation) is None
        assert sources.made(erased_source) == {}
        assert sources.places(PLACE_NAME) == []
    assert records_of(store, erased_source) == []


def test_an_erased_source_is_refused_until_it_is_allowed(store, erased_source):
    key = erased_source.conversation
    with sources_of(store) as sources:
        assert {*sources.refused_of(key)} == {PLACE_NAME, erased_source.fingerprint}
        assert sources.is_refused(PLACE_NAME)
    write(store, SourcesToWrite.allow, PLACE_NAME)
    with sources_of(store) as sources:
        assert {*sources.refused_of(key)} == {erased_source.fingerprint}
        assert not sources.is_refused(PLACE_NAME)


def test_refused_names_are_found_among_many(store, erased_source):
    key = erased_source.conversation
    many = [number.to_bytes(16) for number in range(2_500)]
    more = [many[0], many[999], many[1_000], many[-1]]
    write(store, lambda sources: sources.refuse(key, more, own=False))
    with sources_of(store) as sources:
        assert {*sources.refused_of(key)} == {*more, PLACE_NAME, erased_source.fingerprint}
        assert sources.refused_among(many) == dict.fromkeys(more, False)
    write(store, lambda sources: sources.refuse(key, more[:2], own=True))
    with sources_of(store) as sources:
        assert sources.refused_among(more[:3]) == {more[0]: True, more[1]: True, more[2]: False}


def test_a_name_that_was_refused_as_its_own_stays_so(store, erased_source):
    fingerprint = erased_source.fingerprint
    write(
        store, lambda sources: sources.refuse(erased_source.conversation, [fingerprint], own=False)
    )
    with sources_of(store) as sources:
        assert sources.refused_among([fingerprint]) == {fingerprint: True}


def test_records_without_events_are_noticed(store):
    source = begun(store, "c1")
    for work in (
        lambda: store.version("c1"),
        lambda: say(store, "c1", "hi"),
        lambda: store.fork("c1", 0, "fork"),
        lambda: [*store.events("c1")],
    ):
        with pytest.raises(EventsNotMade, match="c1") as refused:
            work()
        error = refused.value
        assert (error.conversation, error.unmade, error.archived) == ("c1", 9, 0)
    assert store.conversation("c1", as_stored=True).unmade == 9

    def make_events(writing):
        sources = SourcesToWrite.beside(writing)
        sources.set_progress(source, 9, 9, source.head)
        sources.put_made(source, {number: (number, 1) for number in range(9)})
        writing.set_unmade(0)

    events = [said(record.decode()) for record in RECORDS]
    assert store.extend("c1", events, expected_version=0, also=make_events) == 9
    assert store.version("c1") == 9
    assert_sound(store)


def test_made_events_need_the_expected_version(store):
    say(store, "c", "x")
    for version in (0, 2):
        with pytest.raises(VersionConflict, match="version 1"):
            store.extend("c", [said("y")], expected_version=version, also=lambda writing: None)
    assert store.version("c") == 1


def test_a_source_needs_its_key(recorder):
    source = begun(Store(recorder, ENCRYPTS), "c1")
    without = Store(recorder)
    with pytest.raises(KeyUnavailable):
        source_of(without, "c1")
    with pytest.raises(KeyUnavailable):
        records_of(without, source)
    with recorder.read() as reader:
        stored = [
            *reader.ask("blocks", source.conversation, 0, 10),
            *reader.ask("block_indexes", source.conversation),
        ]
    assert b"x" * 9 not in repr(stored).encode()


def test_page_of_blocks_begins_with_the_block_of_the_record(store):
    source = begun(store, "a")

    def firsts(record, most):
        with store.database.recorder.read() as reader:
            return [row[0] for row in reader.ask("blocks", source.conversation, record, most)]

    assert [firsts(record, 2) for record in (0, 2, 3, 8)] == [[0, 3], [0, 3], [3, 6], [6]]
    assert firsts(9, 2) == []


def test_what_a_fork_shares_has_only_the_redactions_before_its_version(store):
    parent = begun(store, "c1", redacted=(1, 7))
    write(store, SourcesToWrite.put_made, parent, {n: (n, 1) for n in range(9)})
    fork = Conversation(
        99, "f", 5, bytes(16), parent=parent.conversation, parent_version=3, version=3
    )
    with sources_of(store) as sources:
        shared = sources.of_state(fork)
        assert shared == parent._replace(
            conversation=99,
            parent=parent.conversation,
            from_record=3,
            records=3,
            made=3,
            head=b"",
            redacted=(),
        )
        assert sources.all_redacted(shared) == {1}
        row = sources.as_row(shared)
        head = chain_head(GENESIS, b"".join(map(hash_of, RECORDS[:3])))
        assert row == shared._replace(head=head, about=b"", sums=b"")


@pytest.mark.parametrize("start, missing, problem", [(0, 0, 0), (0, 3, 3), (4, 6, 6), (8, 6, 8)])
def test_a_missing_record_is_named(store, start, missing, problem):
    source = begun(store, "c1")
    write(store, SourcesToWrite.delete_blocks, source.conversation, missing, missing + 3)
    with pytest.raises(CorruptEvent, match=f"'c1', event 0: record {problem} of its source is"):
        list(blocks_of(store.database, source, start))


def test_the_records_of_an_erased_conversation_are_not_called_missing(store):
    source = begun(store, "c1")
    erase(store, "c1", reason="a test")
    with pytest.raises(ConversationErased):
        list(blocks_of(store.database, source))


@pytest.mark.parametrize(
    "places", [b"abc", array("I", [7]).tobytes(), array("I", [9] * 4).tobytes()]
)
def test_a_list_of_events_that_no_version_wrote_is_named(store, places):
    source = begun(store, "c1")
    store.database.recorder.transact(
        lambda transaction: transaction.write("put_made", source.conversation, 0, pack(places))
    )
    with pytest.raises(CorruptEvent, match="'c1'"), sources_of(store) as sources:
        sources.made(source)


@pytest.mark.parametrize("steps", [b"abc", array("I", [2**32 - 1] * 6).tobytes(), b""])
def test_an_index_that_no_version_wrote_is_refused(steps):
    with pytest.raises(DamagedBlock, match="does not fit the block's 3 records"):
        unpacked_index(3, pack(steps) + bytes(3 * 16))


def test_a_source_whose_facts_cannot_be_read_is_left_out(store):
    source = begun(store, "c1")
    begun(store, "c2")
    row = (*source[:8], 1, source.head, source.fingerprint, b"", b"no deflate", pack(b""))
    store.database.recorder.transact(lambda transaction: transaction.write("put_source", *row))
    with sources_of(store) as sources:
        damaged = {}
        assert list(sources.abouts(bytes, damaged)) == [("c2", "codex", b'{"a": 1}')]
        assert damaged.keys() == {"c1"}
        assert "cannot be read" in damaged["c1"].problem
        with pytest.raises(CorruptEvent, match="'c1'"):
            sources.of("c1")


def test_records_copied_from_an_erased_parent_are_read_once(store):
    parent = begun(store, "parent")
    fork = begun(store, "fork")._replace(parent=parent.conversation, from_record=3)
    # The fork has copied the shared records since ``fork`` was read, and the parent is still there.
    assert records_of(store, fork) == RECORDS
