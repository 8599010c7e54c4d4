"""What is stored of sources: blocks, the events of records, places, and what an erasure leaves; on
each recorder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from foldlog._history.histories import Histories
from foldlog.eventstore import EventsNotMade, KeyRing, KeyUnavailable, Message, Store
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import GENESIS, SIZE, chained, hash_of, joined, of_records
from foldlog.eventstore.sources.tables import MADE, Place, Source, Sources, SourcesToWrite

T = TypeVar("T")
KEYS = KeyRing(["11" * 32])
RECORDS = [b'{"n": %d, "text": "%b"}' % (number, b"x" * 50) for number in range(9)]
NAMES = "abc", "\x00é", "名"


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def store(recorder: Recorder, request: pytest.FixtureRequest) -> Store:
    return Store(recorder, WriteSettings(keys=request.param))


def asked(store: Store, work: Callable[[Sources], T]) -> T:
    return store.database.recorder.query(lambda reader: work(Sources(store.database, reader)))


def begun(store: Store, name: str, **fields: Any) -> Source:
    """Begin a conversation with the records as its source, in three blocks."""

    def work(transaction: Transaction) -> Source:
        beginning = Conversation(0, name, store.database.now(), bytes(16))
        writing = WriteTransaction(
            transaction, begin_new(transaction, store.database, beginning), store.database
        )
        writing.begin()
        sources = SourcesToWrite.beside(writing)
        blocks = [of_records(first, RECORDS[first : first + 3]) for first in (0, 3, 6)]
        head = chained(GENESIS, b"".join(block.hashes for block in blocks))
        source = Source(
            writing.key, writing.key, None, 0, 9, 0, "codex", 1, head, hash_of(RECORDS[0])
        )
        source = source._replace(about=b'{"a": 1}', sums=b"sums", **fields)
        sources.put(source)
        sources.put_blocks(source, blocks)
        writing.set_pending(9)
        writing.end()
        return source

    return store.database.recorder.transact(work)


def written(store: Store, work: Callable[[SourcesToWrite], object]) -> None:
    store.database.recorder.transact(
        lambda transaction: work(SourcesToWrite(store.database, transaction))
    )


def records_of(store: Store, source: Source, start: int = 0) -> list[bytes]:
    return asked(
        store,
        lambda sources: [
            each for block in sources.blocks(source, start) for each in block.records()
        ],
    )


def firsts_of(store: Store, source: Source) -> list[int]:
    return asked(store, lambda sources: [block.first for block in sources.own_blocks(source)])


@pytest.mark.parametrize("name", NAMES)
def test_a_source_is_read_as_it_was_written(store: Store, name: str) -> None:
    source = begun(store, name, redacted=(1, 7))
    assert asked(store, lambda sources: sources.of(name)) == source
    assert asked(store, lambda sources: sources.find_by_key(source.conversation)) == source
    assert asked(store, lambda sources: sources.find_by_key(source.conversation + 1)) is None
    assert asked(store, lambda sources: sources.all()) == [source]
    assert records_of(store, source) == RECORDS
    assert records_of(store, source, 4) == RECORDS[3:]
    assert asked(store, lambda sources: sources.record(source, 8)) == RECORDS[8]
    assert asked(store, lambda sources: sources.hashes(source)) == b"".join(map(hash_of, RECORDS))
    gone = {hash_of(RECORDS[1]), hash_of(RECORDS[7])}
    assert asked(store, lambda sources: sources.redacted_hashes(source.root)) == gone


def test_blocks_are_replaced_and_joined(store: Store) -> None:
    source = begun(store, "c1")
    blocks = asked(store, lambda sources: [*sources.own_blocks(source)])
    changed = blocks[1].with_record(4, b"{}")
    written(store, lambda sources: sources.put_blocks(source, [changed]))
    assert records_of(store, source) == [*RECORDS[:4], b"{}", *RECORDS[5:]]
    whole = joined([blocks[0], changed])
    written(store, lambda sources: sources.join_blocks(source, [blocks[0], changed], whole))
    assert firsts_of(store, source) == [0, 6]
    assert records_of(store, source) == [*RECORDS[:4], b"{}", *RECORDS[5:]]
    assert asked(store, lambda sources: sources.hashes(source)) == b"".join(map(hash_of, RECORDS))


def test_a_fork_shares_the_records_before_it_until_it_is_left_alone(store: Store) -> None:
    parent = begun(store, "c1")
    written(store, lambda sources: sources.put_made(parent, {0: (0, 2), 3: (2, 1), 8: (3, 1)}))
    other = begun(store, "c2")
    fork = other._replace(root=parent.root, parent=parent.conversation, from_record=4)

    def share(sources: SourcesToWrite) -> None:
        sources.delete_blocks(fork.conversation, 0, 9)
        sources.put_blocks(fork, [of_records(4, [b"[]", b"[1]"])])
        sources.put(fork._replace(records=6))
        sources.put_made(fork, {5: (9, 2)})

    written(store, share)
    source = asked(store, lambda sources: sources.of("c2"))
    assert source is not None
    expected = [*RECORDS[:4], b"[]", b"[1]"]
    assert records_of(store, source) == expected
    assert asked(store, lambda sources: sources.made(source)) == {0: (0, 2), 3: (2, 1), 5: (9, 2)}
    assert [
        each.conversation for each in asked(store, lambda sources: sources.family(parent.root))
    ] == [
        parent.conversation,
        fork.conversation,
    ]
    written(store, lambda sources: sources.leave_parent(source))
    alone = asked(store, lambda sources: sources.of("c2"))
    assert alone is not None
    assert (alone.parent, alone.from_record) == (None, 0)
    assert records_of(store, alone) == expected
    assert asked(store, lambda sources: sources.made(alone)) == {0: (0, 2), 3: (2, 1), 5: (9, 2)}


def test_the_record_of_an_event_is_found_in_a_few_rows(store: Store) -> None:
    parent, other = begun(store, "c1"), begun(store, "c2")
    fork = other._replace(root=parent.root, parent=parent.conversation, from_record=6)
    written(store, lambda sources: sources.put(fork))
    made = {number: (3 * number, 3 if number % 2 else 2) for number in range(9)}
    for number in made:
        written(
            store, lambda sources, number=number: sources.put_made(parent, {number: made[number]})
        )
    own = {number: (first + 100, count) for number, (first, count) in made.items() if number >= 6}
    written(store, lambda sources: sources.put_made(fork, own))

    for source, of_source in (parent, made), (fork, {**made, **own}):
        for event_id in range(150):
            near = asked(store, lambda sources, id=event_id, of=source: sources.made_near(of, id))
            assert near.start <= event_id < near.stop
            inside = {
                number
                for number, (first, _) in of_source.items()
                if near.start <= first < near.stop
            }
            assert inside <= set(near.made)
            assert near.made.items() <= of_source.items()
            before = [
                number for number, (first, count) in of_source.items() if first + count <= event_id
            ]
            asked_before = asked(
                store, lambda sources, id=event_id, of=source: sources.records_before(of, id)
            )
            assert asked_before == max(before, default=-1) + 1


def test_an_appended_block_says_what_its_records_became_until_its_source_is_changed(
    store: Store,
) -> None:
    source = begun(store, "c1", made=9)
    of_rows = {number: (2 * number, 2) for number in range(MADE + 9)}
    written(store, lambda sources: sources.put_made(source, {**of_rows}))
    written(store, lambda sources: sources.set_progress(source, MADE + 9, MADE + 9, b"h" * 32))
    made, head = dict(of_rows), b"h" * 32
    first_appended = MADE + 9
    for first in range(first_appended, first_appended + 6, 2):
        block = of_records(first, [b"[%d]" % first, b"{}"])
        some = {first: (2 * first + 5, 1), first + 1: (2 * first + 6, 2)}
        head = chained(head, block.hashes)
        made |= some
        written(
            store,
            lambda sources, block=block, some=some, head=head: sources.append_block(
                source.conversation, block, some, head
            ),
        )

    def check() -> Source:
        found = asked(store, lambda sources: sources.of("c1"))
        assert found is not None
        assert (found.records, found.made, found.head) == (MADE + 15, MADE + 15, head)
        assert asked(store, lambda sources: sources.made(found)) == made
        hashes = asked(store, lambda sources: sources.hashes(found))
        assert hashes[-16:] == hash_of(b"{}")
        assert records_of(store, found, MADE + 13)[-2:] == [b"[%d]" % (MADE + 13), b"{}"]
        for event_id in range(2 * MADE + 45):
            near = asked(store, lambda sources, id=event_id: sources.made_near(found, id))
            assert near.start <= event_id < near.stop
            inside = {n for n, (first, _) in made.items() if near.start <= first < near.stop}
            assert inside <= set(near.made)
            assert near.made.items() <= made.items()
        return found

    before = check()
    changed = list[Source | None]()
    written(store, lambda sources: changed.append(sources.settle(source.conversation)))
    assert changed[-1] == before
    written(store, lambda sources: sources.join_last(before, first_appended + 2))
    assert check() == before  # the rows have it: the joined block does not
    assert firsts_of(store, source) == [0, 3, 6, first_appended, first_appended + 2]


def test_an_append_of_records_asks_nothing_and_writes_one_row_of_their_source(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = Histories(store)["c1"]
    statements = list[str]()
    asked_of = Reader.ask_sources
    written_to = Transaction.write_sources

    def ask_sources(self: Reader, statement: str, *parameters: Any) -> Any:
        statements.append(statement)
        return asked_of(self, statement, *parameters)

    def write_sources(self: Transaction, statement: str, *parameters: Any) -> None:
        statements.append(statement)
        written_to(self, statement, *parameters)

    def turn() -> list[str]:
        statements.clear()
        record = {"role": "user", "content": "x" * 50}
        history.append_records([record], format="openai-chat")
        return sorted(statements)

    monkeypatch.setattr(Reader, "ask_sources", ask_sources)
    monkeypatch.setattr(Transaction, "write_sources", write_sources)
    turn()
    turns = [turn() for _ in range(32)]
    assert turns.count(["put_block"]) == 28
    history.append(Message(source="user", content="no record"))
    assert turn() == ["put_block", "source"]  # another program may have appended records


def test_a_turn_reads_and_writes_as_much_of_a_source_whatever_its_length(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories, asked_of, written_to = (
        Histories(store),
        Reader.ask_sources,
        Transaction.write_sources,
    )
    history, counted = histories["c1"], [0, 0]

    def count(columns: Any) -> None:
        counted[0] += 1
        counted[1] += sum(len(value) if isinstance(value, bytes) else 8 for value in columns)

    def ask_sources(self: Reader, statement: str, *parameters: Any) -> Any:
        rows = asked_of(self, statement, *parameters)
        for row in (parameters, *rows):
            count(row)
        return rows

    def write_sources(self: Transaction, statement: str, *parameters: Any) -> None:
        count(parameters)
        written_to(self, statement, *parameters)

    def turn() -> tuple[int, int]:
        counted[:] = 0, 0
        record = {"role": "user", "content": f"turn {history.version():4}"}
        (recorded,) = history.append_records([record], format="openai-chat")
        stored = history._stored_records()
        assert (stored.count(recorded.event), stored.record([recorded.event])) == (1, record)
        return counted[0], counted[1]

    monkeypatch.setattr(Reader, "ask_sources", ask_sources)
    monkeypatch.setattr(Transaction, "write_sources", write_sources)
    turn()
    short = [turn() for _ in range(MADE)]
    for _ in range(30):
        history.append_records([{"role": "user", "content": "x" * 50}] * 30, format="openai-chat")
    assert history.version() > 900
    long = [turn() for _ in range(MADE)]
    most_rows, most_bytes = (max(column) for column in zip(*short, strict=True))
    for rows, size in long:
        assert rows <= most_rows + 2  # the blocks that are put together
        assert size <= most_bytes + SIZE // 8


def test_places_are_found_by_name_and_by_conversation_the_newest_last(store: Store) -> None:
    one, two = begun(store, "c1"), begun(store, "c2")
    first = Place(one.conversation, 5, 9, 100, b"state", b"digest")
    written(store, lambda sources: sources.put_place(b"p" * 16, first._replace(seen=7)))
    written(store, lambda sources: sources.put_place(b"p" * 16, first))
    second = first._replace(conversation=two.conversation, seen=6)
    written(store, lambda sources: sources.put_place(b"p" * 16, second))
    assert asked(store, lambda sources: sources.places(b"p" * 16)) == [first, second]
    assert asked(store, lambda sources: sources.places(b"q" * 16)) == []
    assert asked(store, lambda sources: sources.places_of(two.conversation)) == [
        (b"p" * 16, second)
    ]


def test_an_erasure_deletes_all_of_it_and_refuses_what_it_was(store: Store) -> None:
    source = begun(store, "c1")
    written(store, lambda sources: sources.put_made(source, {0: (0, 2)}))
    written(
        store,
        lambda sources: sources.put_place(b"p" * 16, Place(source.conversation, 1, 9, 1, b"", b"")),
    )
    erase(store, "c1", reason="asked for")
    assert asked(
        store, lambda sources: (sources.of("c1"), sources.find_by_key(source.conversation))
    ) == (None, None)
    assert records_of(store, source) == []
    assert asked(store, lambda sources: (sources.made(source), sources.places(b"p" * 16))) == (
        {},
        [],
    )
    refused = asked(store, lambda sources: sources.refused_of(source.conversation))
    assert sorted(refused) == sorted([b"p" * 16, source.fingerprint])
    assert asked(store, lambda sources: [sources.is_refused(each) for each in refused]) == [
        True,
        True,
    ]
    written(store, lambda sources: sources.allow(b"p" * 16))
    assert asked(store, lambda sources: sources.refused_of(source.conversation)) == [
        source.fingerprint
    ]
    written(
        store, lambda sources: sources.refuse(source.conversation, [b"r" * 16, source.fingerprint])
    )
    assert asked(store, lambda sources: sources.is_refused(b"r" * 16))


def test_records_without_events_are_met_by_each_transaction(store: Store) -> None:
    source = begun(store, "c1")
    for work in (
        lambda: store.version("c1"),
        lambda: store.append("c1", Message(source="user", content="hi"), expected_version=0),
        lambda: store.fork("c1", 0, "fork"),
        lambda: [*store.events("c1")],
    ):
        with pytest.raises(EventsNotMade, match="c1"):
            work()
    assert store.conversation("c1", pending=True).pending == 9

    def made(writing: WriteTransaction) -> None:
        sources = SourcesToWrite.beside(writing)
        sources.set_progress(source, 9, 9, source.head)
        sources.put_made(source, {number: (number, 1) for number in range(9)})
        writing.set_pending(0)

    events = [Message(source="user", content=record.decode()) for record in RECORDS]
    assert store.extend("c1", events, expected_version=0, also=made) == 9
    assert store.version("c1") == 9
    assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


def test_nothing_of_a_source_is_read_without_its_key(recorder: Recorder) -> None:
    source = begun(Store(recorder, WriteSettings(keys=KEYS)), "c1")
    without = Store(recorder)
    with pytest.raises(KeyUnavailable):
        asked(without, lambda sources: sources.of("c1"))
    with pytest.raises(KeyUnavailable):
        records_of(without, source)
    for statement in ("blocks", "block_indexes"):
        with recorder.read() as reader:
            page = (source.conversation, 0, 10) if statement == "blocks" else (source.conversation,)
            assert b"x" * 9 not in repr(reader.ask_sources(statement, *page)).encode()


def test_what_is_refused_among_many_is_asked_in_few_questions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = begun(store, "c1")
    many = [number.to_bytes(16) for number in range(2_500)]
    refused = {many[0], many[999], many[1_000], many[-1]}
    written(store, lambda sources: sources.refuse(source.conversation, [*refused, b"r" * 16]))

    def ask(sources: Sources) -> tuple[set[bytes], list[str]]:
        asked_for = list[str]()
        ask_sources = sources.reader.ask_sources

        def noting(name: str, *parameters: object) -> list[tuple[object, ...]]:
            asked_for.append(name)
            return list(ask_sources(name, *parameters))

        monkeypatch.setattr(sources.reader, "ask_sources", noting)
        return sources.refused_among(many), asked_for

    assert asked(store, ask) == (refused, ["refused_among"] * 3)
    assert asked(store, lambda sources: sources.refused_among([])) == set()


def test_blocks_are_read_backwards_up_to_where_a_source_is_shared(store: Store) -> None:
    parent, other = begun(store, "c1"), begun(store, "c2")
    fork = other._replace(root=parent.root, parent=parent.conversation, from_record=4)

    def share(sources: SourcesToWrite) -> None:
        sources.delete_blocks(fork.conversation, 0, 9)
        sources.put_blocks(fork, [of_records(4, [b"[4]", b"[5]"]), of_records(6, [b"[6]"])])

    def read(source: Source, number: int, count: int) -> list[list[bytes]]:
        blocks = asked(store, lambda sources: sources.blocks_back(source, number, count))
        return [[*block.records()] for block in blocks]

    written(store, share)
    assert read(parent, 4, 9) == [RECORDS[:3], RECORDS[3:6]]
    assert read(parent, 8, 1) == [RECORDS[6:]]
    assert read(fork, 6, 9) == [[b"[4]", b"[5]"], [b"[6]"]]
    assert read(fork, 3, 9) == [RECORDS[:3], RECORDS[3:4]]
