"""What a step costs does not grow with the history. SQLite's own instructions are counted, so no
clock is needed.
"""

import sqlite3
import threading
from functools import partial

import pytest

from foldlog.eventstore import (
    CondensationAction,
    KeyChanged,
    open_store,
    summary_id,
)
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.row import checksum_seed, with_checksums
from foldlog.eventstore.recorders.sqlite import store_file
from foldlog.eventstore.recorders.types import row_of
from foldlog.projections import Views
from tests.reading import reading
from tests.said import said, say

SHORT = 200
LONG = 6_000
SOURCE = 1_000
"""The key of a conversation whose source has as many blocks as a history has events."""
TOLERANCE = 1.25


class Counting(store_file.Connection):
    """Counts the instructions of SQLite's virtual machine that the tests' own thread runs. The
    thread that copies the log into the file works for all commits since its last turn, so what
    it runs beside a step is no cost of that step.
    """

    steps = 0

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.set_progress_handler(self._count, 1)

    def _count(self):
        if threading.current_thread() is threading.main_thread():
            Counting.steps += 1
        return 0


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store with a short history, and one with a long one."""
    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sqlite3,
            "connect",
            lambda *args, **kwargs: connect(*args, **{**kwargs, "factory": Counting}),
        )
        with (
            filled_store(tmp_path_factory.mktemp("short"), SHORT) as short,
            filled_store(tmp_path_factory.mktemp("long"), LONG) as long,
        ):
            yield [short, long]


def filled_store(tmp_path, length):
    """A store with a conversation of messages with a condensation every 60 events, and others
    around it.
    """
    store = open_store(f"sqlite:///{tmp_path}/s.db", durability="relaxed")
    store.register(Views(store))
    say(store, "a", "before")
    events = []
    for n in range(length):
        if n % 60 == 59:
            events.append(
                CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=n - 4)
            )
        else:
            events.append(said(str(n)))
    for start in range(0, length, 500):
        store.append("c1", events[start : start + 500], expected_version=start)
    store.append("chain", chain(length), expected_version=0)
    say(store, "z", "behind")
    store.database.recorder.transact(partial(put_blocks, count=length))
    store.database.recorder.transact(partial(put_entries, store=store, count=length))
    return store


def put_entries(transaction, store, count):
    """Write entries into the ledger of a conversation, all at once."""
    key = transaction.conversation("a").key
    rows = [
        row_of(number, "key_changed", 1, False, False, 5, 0, b"{}", b"")
        for number in range(1, count + 1)
    ]
    transaction.insert(-key, with_checksums(checksum_seed("a"), rows))


def change_ledger(store):
    """Write another entry into the ledger of a conversation."""

    def write(transaction):
        state = transaction.conversation("a")
        enter(transaction, state, KeyChanged(), store.database.now())

    store.database.recorder.transact(write)


def put_blocks(transaction, count):
    """Write blocks of a source, of three records each."""
    for number in range(count):
        transaction.write("put_block", SOURCE, 3 * number, 3, 0, b"", b"")


def last_blocks(store):
    def read(reader):
        (first,) = reader.ask("blocks_back", SOURCE, 3 * LONG, 1)
        return reader.ask("blocks", SOURCE, first[0] - 2, 8)

    rows = store.database.recorder.query(read)
    assert len(rows) == 2


def chain(length):
    """Return messages. After every four messages comes a condensation that forgets them and the
    previous summary.
    """
    events = []
    while len(events) + 5 <= length:
        start = len(events)
        before = [summary_id(start - 1)] if start else []
        events += [said(str(n)) for n in range(start, start + 4)]
        ids = [*before, *range(start, start + 4)]
        events.append(
            CondensationAction(forgotten_event_ids=ids, summary="so far", summary_offset=0)
        )
    return events


def condense(store):
    store.register(Views(store))
    version = store.version("c1")
    condensation = CondensationAction(forgotten_event_ids=[version - 1])
    return store.append("c1", condensation, expected_version=version)


def late_difference(store):
    version = store.version("chain")
    return Views(store).difference("chain", version - 15, version)


STEPS = {
    "append": lambda store: say(store, "c1", "x"),
    "append with a key": lambda store: say(store, "c1", "x", idempotency_key=str(Counting.steps)),
    "condense": condense,
    "open a View": lambda store: len(Views(store).current("c1")),
    "a past View": lambda store: len(Views(store).at("c1", store.version("c1") - 60)),
    "version": lambda store: store.version("chain"),
    "newest events": lambda store: list(store.events("c1", store.version("c1") - 5)),
    "list": lambda store: store.conversations(limit=3),
    "why shown": lambda store: Views(store).why("c1", 0),
    "why forgotten lately": lambda store: Views(store).why("chain", store.version("chain") - 9),
    "late difference": late_difference,
    "last blocks of a source": last_blocks,
    "ledger": change_ledger,
}


@pytest.mark.parametrize("step", STEPS)
def test_step_cost_does_not_grow(stores, step):
    costs = []
    for store in stores:
        # The first call prepares statements and reads pages.
        STEPS[step](store)
        before = Counting.steps
        STEPS[step](store)
        costs.append(Counting.steps - before)
    assert costs[0] > 0
    assert costs[1] <= TOLERANCE * costs[0], (
        f"{costs[0]} instructions at {SHORT} events, {costs[1]} at {LONG}"
    )


def test_why_reads_later_condensations_once(stores):
    """Each condensation of the chain forgets the previous summary, down to the newest condensation."""
    _, store = stores
    views = Views(store)
    views.current("chain")
    version = store.version("chain")
    with reading(store, "chain") as snapshot:
        before = Counting.steps
        condensations = sum(1 for _ in snapshot.structural_events())
        once = Counting.steps - before
        answer = views.why("chain", 1)
        spent = Counting.steps - before - once
        before = Counting.steps
        last = views.why("chain", version - 2)
        of_the_last = Counting.steps - before
    assert condensations == LONG // 5
    assert answer.by.id == 4
    assert answer.stands_in.summary_of == version - 1
    assert answer.stands_in == last.stands_in
    assert spent - of_the_last <= TOLERANCE * once, (
        f"{once} to read the condensations, {spent} to follow the event"
    )
