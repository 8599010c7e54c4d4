"""Positions: no event ever appears behind a follower, however many writers there are, however long
their transactions take, and wherever the store moves.
"""

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from foldlog.eventstore import CondensationRequest, StoreRefused, StoreUnavailable, open_store
from foldlog.eventstore.recorders.postgres import positions
from foldlog.eventstore.recorders.postgres.positions import Part, Positions
from foldlog.eventstore.recorders.postgres.setup import epoch_lock
from foldlog.eventstore.recorders.types import Conversation, Position, RecalledKey, Record
from tests.at_once import at_once
from tests.conformance.test_recorders import row
from tests.said import said, say
from tests.waiting import in_thread, until

from .servers import Server, new_primary

# -- the object that knows how positions come about
# ------------------------------------------------------------------


def numbered(number):
    """Return the positions of the transaction with this number."""
    counter = Positions()
    counter.number = number
    return counter


def position_of(store, conversation, event_id):
    """Return the position of an event, as an idempotency key tells it."""

    def work(transaction):
        stored = transaction.conversation(conversation)
        transaction.remember(stored.key, f"position {event_id}", RecalledKey(event_id, 1))
        return transaction.recall(stored.key, f"position {event_id}").position

    return store._recorder.transact(work)


def test_keys_are_numbered_apart_from_positions():
    counter = numbered(7)
    counter.take(10)
    first = counter.key()
    second = counter.key()
    assert first >> 20 == 7
    assert second == first + 1


def test_a_transaction_without_keys_left_begins_no_conversation():
    counter = Positions(Part(63, 64))
    counter.number = 7
    for _ in range(15_360):
        key = counter.key()
    assert key >> 20 == 7
    # The first key is random, so a transaction may have more keys than it promises.
    counter._key = (1 << 20) // 64
    with pytest.raises(StoreRefused, match="at most 15,360 new conversations"):
        counter.key()


def test_keys_of_equal_transactions_rarely_collide():
    """After a promotion, a transaction may have the number of one that was lost."""
    assert len({numbered(7).key() for _ in range(100)}) > 90


# -- followers
# --------------------------------------------------------------------------------------------------


class Follower:
    """Follows a store in another thread, a few events at a time, and keeps the events. It names its
    place in the store in the type of the first ``place``: a number or a text.
    """

    def __init__(self, store, place=0):
        self.seen = []
        self._store = store
        self._place = place
        self._finish = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        """Read the events page by page. After ``finish``, read on to the present end."""
        while True:
            finishing = self._finish.is_set()
            page = list(self._store.follow(self._place, limit=random.randint(1, 40)))
            self.seen += page
            if page:
                self._place = type(self._place)(page[-1].position)
            elif finishing:
                return

    def finish(self):
        """Follow up to the present end, and return all events."""
        self._finish.set()
        self._thread.join()
        return self.seen


def assert_followed(entries, written):
    """Check that all written events were followed once, in the order of their positions."""
    assert [entry.position for entry in entries] == sorted({entry.position for entry in entries})
    assert sorted((entry.position, entry.conversation, entry.id) for entry in written) == [
        (entry.position, entry.conversation, entry.id) for entry in entries
    ]


def write_with(store, writers, appends):
    """Many writers, batches of different sizes, some that are rolled back, all at once."""
    written = []

    def write(name):
        for n in range(appends):
            size = random.choice([1, 1, 1, 2, 7])
            written.extend(say(store, name, *[str(n)] * size))
            if n % 10 == 9:
                with contextlib.suppress(ZeroDivisionError):
                    store._recorder.transact(roll_back)

    at_once(write, [f"c{n}" for n in range(writers)])
    return written


def roll_back(transaction):
    key = transaction.begin(Conversation(0, f"never {random.random()}", 1, b"salt")).key
    transaction.insert(key, [row(0)])
    raise ZeroDivisionError


@pytest.fixture
def url(postgres_url):
    return postgres_url() + "&connections_max=20"


def test_a_follower_of_16_writers_misses_nothing(url):
    with open_store(url) as store:
        follower = Follower(store)
        written = write_with(store, writers=16, appends=20)
        assert_followed(follower.finish(), written)
        assert len(written) > 500


class Holder:
    """An inline projection that keeps its transaction open, behind the insert."""

    name = "holder"

    def __init__(self):
        self.held = threading.Event()
        self.release = threading.Event()

    def project(self, snapshot, events):
        snapshot.put_records("holder", [Record(snapshot.version, 1, b"")])
        # This question sends the server what was written before.
        assert snapshot.record_at("holder", 9) is not None
        self.held.set()
        self.release.wait()


def test_an_open_transaction_holds_followers_back(url):
    with open_store(url) as store:
        before = list(say(store, "before", "0"))
        holder = Holder()
        late = []

        def hold():
            with open_store(url) as other:
                other.register(holder)
                late.extend(
                    other.append("late", [said("0"), CondensationRequest()], expected_version=0)
                )

        with in_thread(hold, holder.release.set):
            assert holder.held.wait(60)
            follower = Follower(store)
            written = write_with(store, writers=4, appends=20)
            store.ingest("import", [said("x")] * 1_100)
            assert [entry.conversation for entry in store.follow()] == ["before"]
            status = store._recorder.status()
            assert status.held_back == len(written)
            assert status.horizon_age > 80
            assert status.held_by.application == "foldlog"
        entries = follower.finish()
        live = [entry for entry in entries if entry.conversation != "import"]
        assert_followed(live, before + late + written)
        assert len(entries) == len(before) + len(late) + len(written) + 1_100
        assert store._recorder.status().held_back == 0


def test_an_import_of_several_transactions(url, monkeypatch):
    """With room for 2,000 positions in each transaction, in place of 2^20, a history of 7,000
    events has the positions of four transactions.
    """
    monkeypatch.setattr(positions, "POSITIONS_MAX", 2_000)
    with open_store(url) as store:
        follower = Follower(store)
        ended = threading.Event()
        written = []

        def write():
            while not ended.is_set():
                written.extend(say(store, "live", "x"))

        with in_thread(write, ended.set):
            store.ingest("import", [said(str(n)) for n in range(7_000)])
            during_import = len(written)
            until(lambda: len(written) > during_import)
        entries = follower.finish()
        imported = [entry for entry in entries if entry.conversation == "import"]
        assert [entry.event.content for entry in imported] == [str(n) for n in range(7_000)]
        assert len({entry.position >> 20 for entry in imported}) == 4
        assert_followed([entry for entry in entries if entry.conversation == "live"], written)
        assert [entry.position for entry in entries] == sorted(
            {entry.position for entry in entries}
        )
        for entry in imported[::1_500]:
            assert position_of(store, "import", entry.id) == entry.position
        for start in (imported[0], imported[1_999], imported[2_000], imported[-1]):
            place = entries.index(start)
            assert list(store.follow(start.position, limit=5)) == entries[place + 1 : place + 6]


# -- other servers
# --------------------------------------------------------------------------------------------------


def test_a_restored_dump_continues_its_positions(url, schema, postgres_server, other_server):
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        # The other server has made far fewer transactions.
        for _ in range(1_000):
            connection.execute("SELECT pg_current_xact_id()")
    with open_store(url) as store:
        written = write_with(store, writers=2, appends=5)
        store.ingest("import", [said("x")] * 1_200)
        followed = list(store.follow())
    dump = postgres_server.folder / "dump.sql"
    postgres_server.run("pg_dump", "-d", "postgres", "-n", schema, "-f", dump)
    other_server.run("psql", "-q", "-X", "-d", "postgres", "-f", dump)
    restored = other_server.url(schema=schema)
    with pytest.raises(StoreUnavailable, match="restored on another server"):
        open_store(restored + "&mode=ro&patience_s=1")
    with open_store(restored) as store:
        assert list(store.follow()) == followed
        new = write_with(store, writers=4, appends=5)
        assert min(entry.position for entry in new) > max(entry.position for entry in followed)
        assert list(store.follow(followed[-1].position)) == sorted(new, key=lambda r: r.position)
        assert len(followed) == len(written) + 1_200
    with open_store(restored) as store:
        assert say(store, "c0", "x")[0].position > new[-1].position


@pytest.fixture
def pair(folder):
    """A primary, and a copy of its present state: a backup, or a standby that is behind."""
    primary = new_primary(folder / "primary")
    copy = Server(folder / "copy")
    yield primary, copy
    for server in (primary, copy):
        with contextlib.suppress(FileNotFoundError):  # The test made no copy.
            server.remove()


def test_a_restored_backup_continues_its_positions(pair):
    """Its server gives the numbers of the lost transactions again."""
    primary, backup = pair
    with open_store(primary.url()) as store:
        say(store, "c0", "kept")
        backup.follow(primary, "backup")
        lost = [say(store, f"lost {n}", "x")[0] for n in range(20)]
        assert list(store.follow())[-1] == lost[-1]
    primary.kill()
    backup.start()
    backup.promote()
    with open_store(backup.url()) as store:
        new = [say(store, f"new {n}", "x")[0] for n in range(5)]
        assert list(store.follow(lost[-1].position)) == new
        assert store.version("lost 0") == 0
    with open_store(backup.url()) as store:  # one epoch for one promotion
        [recorded] = say(store, "c0", "y")
        assert recorded.position - new[-1].position < 1 << 40


def test_an_old_backup_leaves_room(url, schema, postgres_server):
    """The busier the server and the older the backup, the more numbers were given since."""
    long_ago = datetime.now(UTC) - timedelta(days=30)
    with open_store(url, clock=lambda: long_ago) as store:
        [before] = say(store, "c0", "x")
    postgres_server.sql(f"UPDATE {schema}.epoch SET cluster = 0")
    with open_store(url) as store:
        [after] = say(store, "c0", "x")
        assert (after.position - before.position) >> 20 > 30 * 86_400 * 10_000


@pytest.mark.parametrize("is_older", [False, True], ids=["this program", "an older program"])
def test_who_waits_for_an_epoch_begins_no_other(is_older, url, schema, postgres_server):
    """By then others write, and a follower would miss their numbers of the epoch before. An older
    program takes no advisory lock, and only calls the function.
    """
    with open_store(url) as store:
        say(store, "c0", "x")
    postgres_server.sql(f"UPDATE {schema}.epoch SET cluster = 0")
    epoch = f"SELECT epoch FROM {schema}.epoch"
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        psycopg.connect(postgres_server.url()) as first,
        ThreadPoolExecutor() as pool,
    ):
        first.execute("SELECT pg_advisory_xact_lock(%s)", [epoch_lock(schema)])
        first.execute(f"SELECT {schema}.begin_epoch()")
        if is_older:
            call = f"SELECT {schema}.begin_epoch()"
            beginning = pool.submit(postgres_server.sql, call)
        else:
            beginning = pool.submit(lambda: open_store(url).close())
        until(lambda: postgres_server.sql(waiting) == "1")
        number_of_a_writer = postgres_server.sql("SELECT pg_current_xact_id()")
        first.execute(
            f"UPDATE {schema}.events e SET position = ({number_of_a_writer} + epoch) << 20"
            f" FROM {schema}.epoch"
        )
        [begun] = first.execute(epoch).fetchone()
        first.commit()
        beginning.result()
    assert postgres_server.sql(epoch) == str(begun)


@pytest.mark.parametrize("changed", ["timeline = 77", "cluster = 77"], ids=["promoted", "another"])
def test_a_pooled_writer_notices_another_server(url, schema, postgres_server, changed):
    """Its connections lead to the pooler, and stay open if the pooler leads to another server."""
    with open_store(url + "&pooler=transaction") as pooled:
        [before] = say(pooled, "c0", "0")
        say(pooled, "c0", "1")
        for name in ("c0", "c1"):
            postgres_server.sql(f"UPDATE {schema}.epoch SET {changed}")
            [after] = say(pooled, name, "2")
            assert after.position > before.position + (1 << 48)
            assert postgres_server.sql(f"SELECT timeline FROM {schema}.epoch") == "1"
            before = after


@pytest.mark.long  # a standby of its own
def test_a_standby_takes_no_writers(pair):
    """A connection that lives through its promotion would never be asked whether an epoch
    begins.
    """
    primary, standby = pair
    open_store(primary.url()).close()
    standby.follow(primary, "standby")
    standby.start()
    with pytest.raises(
        StoreUnavailable, match="this server is a standby; to read from it, add mode=ro"
    ):
        open_store(standby.url(target_session_attrs="any", patience_s="4"))


@pytest.mark.long  # a standby of its own
def test_a_hot_standby_is_followed_too(url, postgres_server):
    standby = Server(postgres_server.folder.parent / "standby")
    standby.follow(postgres_server, "standby")
    standby.start()
    try:
        with open_store(url) as store:
            say(store, "c0", "first")
            there = url.replace(f":{postgres_server.port}/", f":{standby.port}/")
            with pytest.raises(StoreUnavailable):
                open_store(there.replace("patience_s=60", "patience_s=2"))
            wait_for_standby(postgres_server)
            with open_store(there + "&mode=ro") as followed:
                follower = Follower(followed)
                written = list(store.follow()) + write_with(store, writers=8, appends=20)
                wait_for_standby(postgres_server)
                assert_followed(follower.finish(), written)
                with pytest.raises(StoreRefused, match="reading only"):
                    say(followed, "c0", "no")
    finally:
        standby.remove()


def wait_for_standby(primary):
    # A rollback is not synced, so the standby may not have heard of it yet, and holds its followers
    # back. A transaction that wrote something syncs all that was before it.
    primary.sql("SELECT pg_logical_emit_message(true, 'test', '')")
    replayed = "SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication"
    until(lambda: primary.sql(replayed) == "t")


def test_a_number_is_never_given_twice(url, schema):
    """Should two transactions ever have the same number, the second is refused, and nothing is
    misplaced.
    """
    with open_store(url) as store:
        say(store, "c0", "0", "1")
        with (
            psycopg.connect(url.partition("?")[0], autocommit=True) as connection,
            pytest.raises(psycopg.errors.UniqueViolation),
        ):
            connection.execute(
                f"INSERT INTO {schema}.events SELECT conversation, id + 9, position, shown,"
                f" structural, kind, meta, body FROM {schema}.events LIMIT 1"
            )


def test_too_many_events_in_one_append(url, monkeypatch):
    monkeypatch.setattr(positions, "POSITIONS_MAX", 7_000)
    with open_store(url) as store:
        with pytest.raises(StoreRefused, match="append the events in several batches"):
            say(store, "c0", *["x"] * 7_001)
        assert store.version("c0") == 0


@pytest.mark.parametrize("taken, count", [(0, 3), (0, 25), (7, 23), (10, 20), (10, 1)])
def test_ranges_of_positions_have_all_events(monkeypatch, taken, count):
    monkeypatch.setattr(positions, "POSITIONS_MAX", 10)
    own = positions.Positions()
    own.number = 5
    own.take(taken)
    first = own.of(own._first)
    numbers = iter(range(6, 99))
    ranges = [*own.take_ranges(count, lambda: next(numbers))]
    expected = [(first + taken, min(count, 10 - taken))] if taken < 10 else []
    rest = count - sum(length for _, length in expected)
    sizes = [min(10, rest - placed) for placed in range(0, rest, 10)]
    expected += [(number << 20, size) for number, size in enumerate(sizes, 6)]
    assert ranges == expected


def test_positions_with_equal_numbers_may_differ_in_other_stores():
    here, there = Position.of(3, (3, 0)), Position.of(3, (0, 3))
    assert here != there
    assert here == Position.of(3, (3, 0))
