"""Several stores behind one address: where a conversation is, which questions go to one store, and
which to all.
"""

import itertools
import threading
import time
from collections import Counter
from functools import partial
from itertools import islice
from types import SimpleNamespace

import psycopg
import pytest
from eventsourcing.persistence import ProgrammingError, Tracking
from psycopg import conninfo

import foldlog
from foldlog._reports.store_info import store_info
from foldlog.eventstore import (
    InvalidArgument,
    InvalidOption,
    KeyRing,
    KeyUnavailable,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.cached_values import CachedValues
from foldlog.eventstore.integrations.eventsourcing import Factory
from foldlog.eventstore.maintenance import verify as verifying
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.followers import confirm, follower_status
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.recorders.postgres.stores import Stores, _at_address
from foldlog.eventstore.recorders.postgres.wire import TryAgain, Wire
from foldlog.eventstore.recorders.types import Position, Unfinished
from tests.at_once import at_once
from tests.conformance.conftest import noted
from tests.figures import FiguresOfStore, FigureTables
from tests.foldlog.reports.test_figure_tables import calls_of, check_runs, filled, write_logs
from tests.privacy import erased
from tests.reading import reading
from tests.said import ids, said, say
from tests.sound import changes

from .conftest import CUTS
from .servers import Server, new_primary
from .test_positions import Follower

COUNT = 4


@pytest.fixture(scope="module")
def many(postgres_server):
    """The URL of four stores, made once: the tests use other conversations."""
    url = postgres_server.url(schema="many", stores=str(COUNT), patience_s="60")
    open_store(url).close()
    return url


def counted(postgres_server, table, where="true"):
    """Return how many rows each store has."""
    query = " UNION ALL ".join(
        f"SELECT count(*) FROM many_{n:02d}.{table} WHERE {where}" for n in range(COUNT)
    )
    return [int(count) for count in postgres_server.sql(query).split()]


def elsewhere(store, conversation):
    """Return an id that belongs to another store than the id of a conversation."""
    home = store.database.recorder.home
    return next(
        name for n in range(99) if home(name := f"{conversation} {n}") != home(conversation)
    )


def in_store(store, number, words):
    """Return an id that belongs to the store with this number, with these words at its beginning."""
    home = store.database.recorder.home
    return next(name for n in range(99) if home(name := f"{words} {n}") == number)


def after(store):
    """Return the position at the end of the store."""
    return str(store.database.last_position)


def test_keys_say_which_store_has_a_conversation(many, postgres_server):
    names = [f"spread {n}" for n in range(32)]
    with open_store(many) as store:
        for name in names:
            say(store, name, "0", "1")
        for number in range(COUNT):
            rows = postgres_server.sql(
                f"SELECT key, convert_from(id, 'UTF8') FROM many_{number:02d}.conversations"
                " WHERE starts_with(convert_from(id, 'UTF8'), 'spread ')"
            )
            pairs = [row.split("|") for row in rows.splitlines()]
            assert pairs
            assert {int(key) % COUNT for key, _ in pairs} == {number}
            assert {store.database.recorder.home(name) for _, name in pairs} == {number}
        with pytest.raises(VersionConflict):
            say(store, names[0], "no", expected_version=0)
    with open_store(many) as again:
        assert [again.version(name) for name in names] == [2] * 32
        listed = [row.id for row in again.iter_conversations() if row.id.startswith("spread")]
        assert listed == sorted(names)
        page = again.conversations(after="spread 2", limit=3)
        assert [row.id for row in page] == ["spread 20", "spread 21", "spread 22"]


def test_followers_of_all_stores_miss_nothing(many):
    with open_store(many) as store:
        written = []

        def write(writer):
            name = f"followed {writer}"
            written.extend(
                (name, say(store, name, "x", expected_version=n)[0].id) for n in range(20)
            )

        follower = Follower(store, after(store))
        at_once(write, range(8))
        followed = [(entry.conversation, entry.id) for entry in follower.finish()]
        assert sorted(followed) == sorted(written)
        for writer in range(8):
            own = [event_id for name, event_id in followed if name == f"followed {writer}"]
            assert own == [*range(20)]


@pytest.mark.parametrize("place", [5, "5", "0.0.0", "0.0.0.0x", "-1.0.0.0", f"{'f' * 16}.0.0.0"])
def test_a_place_that_several_stores_cannot_have_is_refused(many, place):
    with open_store(many) as store, pytest.raises(InvalidArgument, match="position"):
        list(store.follow(place))


def test_followers_of_one_process_are_independent(many):
    with open_store(many) as store:
        for name in ("near", elsewhere(store, "near")):
            say(store, name, "x")
        *_, last = store.follow()
        assert [*store.follow("0")] == [*store.follow()]
        assert list(store.follow(last.position)) == []
        number = store.database.recorder.home("near")
        [ahead] = [entry for entry in store.follow() if entry.conversation == "near"][-1:]
        behind = Position.of(
            int(last.position), last.position.moved(number, ahead.position - 1).parts
        )
        assert [entry.conversation for entry in store.follow(behind)] == ["near"]


def test_ids_are_found_by_their_beginning(many):
    with open_store(many) as store:
        say(store, "begun \U0010ffff/+x", "x")
        long = "begun " + "y" * 300
        say(store, long + "1", "x")
        with store.database.recorder.read() as reader:
            for start in ("begun ", "begun \U0010ffff/+x", long):
                assert reader.has_beginning(start)
            for start in ("begun \U0010ffff/+x ", "begun x", "beguo", long + "2"):
                assert not reader.has_beginning(start)


def test_a_fork_lives_with_its_parent(many):
    with open_store(many) as ours, open_store(many) as other:
        say(ours, "parent", "0", "1")
        name = elsewhere(ours, "parent")
        assert other.version(name) == 0
        ours.fork("parent", 1, name)
        for version, store in enumerate((ours, other), 1):
            assert ids(store.events(name)) == [*range(version)]
            say(store, name, "own")
        assert other.version(name) == 3
        assert [row.id for row in other.conversations(after="parent", limit=1)] == [name]
        with pytest.raises(VersionConflict):
            other.fork("parent", 1, name)
        occupied = elsewhere(ours, "taken")
        say(ours, occupied, "0")
        say(ours, "taken", "0")
        with pytest.raises(VersionConflict):
            ours.fork("taken", 1, occupied)
        assert not any(
            verdict.findings
            for verdict in verify(other)
            if verdict.conversation in (name, "parent", occupied)
        )


def test_one_of_a_fork_and_a_conversation_wins(many):
    won = []

    def begin(name, is_fork):
        try:
            if is_fork:
                ours.fork("forked", 1, name)
            else:
                say(other, name, "x", expected_version=0)
        except VersionConflict:
            won.append(False)
        else:
            won.append(True)

    with open_store(many) as ours, open_store(many) as other:
        say(ours, "forked", "0")
        home = ours.database.recorder.home("forked")
        names = [
            name for n in range(40) if ours.database.recorder.home(name := f"rival {n}") != home
        ]
        for name in islice(names, 10):
            won.clear()
            at_once(lambda is_fork, name=name: begin(name, is_fork), (False, True))
            assert sorted(won) == [False, True]
            assert [row.id for row in other.iter_conversations()].count(name) == 1


def test_companions_and_leases_are_in_one_store(many, postgres_server):
    def conversations():
        return counted(postgres_server, "conversations")

    def leases():
        return counted(postgres_server, "records", "conversation = 0")

    expected_conversations = conversations()
    expected_leases = leases()
    with foldlog.open(many) as histories:
        history = histories["with companions"]
        history.append(said("0"))
        for name in ("writes", "state"):
            say(histories.store, f"with companions/+{name}", "x")
        with history.lease():
            history.append(said("1"))
            home = histories.store.database.recorder.home(history.id)
            expected_conversations[home] += 3
            expected_leases[home] += 1
            assert conversations() == expected_conversations
            assert leases() == expected_leases


def test_lists_cover_all_stores(many):
    with foldlog.open(many) as histories:
        for n in range(12):
            histories.create(f"listed {n}", {"user": "ann" if n % 2 else "bob"}).append(said("x"))
        names = []
        place = None
        while True:
            page = histories.list({"user": "ann"}, limit=4, after=place)
            names += [row.id for row in page.conversations]
            place = page.after
            if place is None:
                break
        assert names == [f"listed {n}" for n in range(11, 0, -2)]


def test_a_list_takes_the_changes_of_all_stores(many):
    with foldlog.open(many) as histories:
        for n in range(6):
            histories.create(f"changed {n}", {"user": "eve"}).append(said("x"))
        for n in (4, 1):
            histories.list({"user": "eve"}, age_max_s=0)
            histories[f"changed {n}"].append(said("y"))
        # The lists of this process have what it wrote in any case, so another one reads.
        with foldlog.open(many) as other:
            page = other.list({"user": "eve"}, age_max_s=0)
        names = [row.id for row in page.conversations]
        assert names == [f"changed {n}" for n in (1, 4, 5, 3, 2, 0)]


def test_round_trips_of_an_open_and_an_append(many, postgres_server, proxy):
    with open_store(many.replace(f":{postgres_server.port}/", f":{proxy.port}/")) as store:
        assert proxy.turns <= 4
        say(store, "counted", "0")

        def cost(work):
            before = proxy.turns
            work()
            return proxy.turns - before

        assert cost(lambda: say(store, "counted", "1", expected_version=1)) == 1
        assert (
            cost(lambda: say(store, "counted", "1", expected_version=2, idempotency_key="k")) == 1
        )
        assert cost(lambda: store.version("counted")) <= 2
        # A page with erased conversations, which other tests leave here, costs more.
        assert cost(lambda: store.conversations(after="counte", limit=1)) <= 3
        place = after(store)
        assert cost(lambda: list(store.follow(place))) <= 3


def test_followers_confirm_erasures(many):
    with open_store(many) as store:
        for name in ("erased 1", "erased 2"):
            say(store, name, "x")
        confirm(store, "reader", store.database.last_position)
        try:
            assert erased(store, "erased 1").unconfirmed == ("reader",)
            *_, last = store.follow()
            confirm(store, "reader", last.position)
            assert store.conversation("erased 1").unconfirmed == ()
            assert erased(store, "erased 2").unconfirmed == ("reader",)
        finally:
            confirm(store, "reader", None)
        assert erased(store, "erased 2").unconfirmed == ()


def test_position_of_a_projection_only_grows(many):
    with open_store(many) as store:

        def track(position):
            store._recorder.transact(
                lambda transaction: transaction.set_value("tracking growing", position)
            )

        track("7")
        problem = "projection 'growing' has already reached this position"
        with pytest.raises(StoreUnavailable, match=problem) as refused:
            track("7")
        assert refused.value.kind == "taken"
        track("8")
        track("")


def test_the_number_of_stores_is_fixed(many):
    with pytest.raises(
        StoreRefused, match=r"many_00 and others; set the number of stores in the URL \(\?stores=\)"
    ):
        open_store(many.replace(f"&stores={COUNT}", ""))
    with pytest.raises(StoreRefused, match=r"'many_00' has store 0 of 4, not 0 of 8"):
        open_store(many.replace(f"stores={COUNT}", "stores=8"))


@pytest.mark.parametrize(
    "options, problem",
    [
        ("stores=3", "sets stores to '3'; it can be 2, 4, 8, 16, 32, 64"),
        ("stores=4&part=1/4", "remove one of these options"),
        ("part=4/4", "sets part to '4/4'; give the number of a store"),
        ("stores=4&moved=4@elsewhere", "17@host:port"),
        ("stores=4&moved=1@elsewhere,1@another", "name the server of store 1 once"),
    ],
)
def test_wrong_options_of_several_stores_are_refused(options, problem):
    with pytest.raises(InvalidOption, match=problem):
        open_store(f"postgresql://someone@nowhere.invalid/db?{options}")


@pytest.mark.parametrize(
    "address, host, port",
    [
        ("", "here", "5432"),
        ("there", "there", "5432"),
        ("there:5433", "there", "5433"),
        ("[::1]", "::1", "5432"),
        ("[fe80::2]:5433", "fe80::2", "5433"),
    ],
)
def test_an_address_names_the_server_of_a_moved_store(address, host, port):
    dsn = conninfo.conninfo_to_dict(_at_address("host=here port=5432", address))
    assert (dsn["host"], dsn["port"]) == (host, port)


@pytest.fixture
def few(postgres_server):
    """A function that runs SQL on a database with two stores. Each test undoes what it changed."""
    with open_store(postgres_server.url(schema="few", stores="2")) as store:
        for n in range(8):
            say(store, f"c{n}", "x")
    return postgres_server.sql


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_store_is_not_made_again(few, postgres_server, number):
    few(f"ALTER SCHEMA few_{number:02d} RENAME TO few_lost")
    try:
        for mode in ("rwc", "rw", "ro"):
            with pytest.raises(StoreRefused, match=f"lacks the stores few_{number:02d}, so their"):
                open_store(postgres_server.url(schema="few", stores="2", mode=mode))
        moved = f"{number}@127.0.0.1:{postgres_server.port}"
        with pytest.raises(StoreRefused, match=r"lacks the stores few_.*, so their"):
            open_store(postgres_server.url(schema="few", stores="2", moved=moved))
    finally:
        few(f"ALTER SCHEMA few_lost RENAME TO few_{number:02d}")


def test_stores_that_changed_places_are_refused(few, postgres_server):
    swap = """ALTER SCHEMA few_00 RENAME TO few_lost; ALTER SCHEMA few_01 RENAME TO few_00;
        ALTER SCHEMA few_lost RENAME TO few_01"""
    few(swap)
    try:
        with pytest.raises(StoreRefused, match=r"has store . of 2, not . of 2"):
            open_store(postgres_server.url(schema="few", stores="2"))
    finally:
        few(swap)


def test_a_killed_creation_is_completed(postgres_server):
    url = postgres_server.url(schema="killed", stores="2")
    open_store(url).close()
    # The first store is made last, so a killed creation lacks it.
    postgres_server.sql("DROP SCHEMA killed_00 CASCADE")
    with open_store(url) as store:
        say(store, "c1", "x")
        assert store.version("c1") == 1


def test_one_store_opens_alone(many):
    with open_store(many) as store:
        name = in_store(store, 2, "alone")
    alone = many.replace(f"&stores={COUNT}", "").replace("schema=many", "schema=many_02")
    with open_store(alone) as part:
        say(part, name, "0")
    with open_store(many) as store:
        say(store, name, "1")
        assert store.version(name) == 2


MOVED = 1
"""The number of the store that is moved."""


@pytest.fixture(scope="module")
def moved(postgres_server, other_server):
    """The URL of four stores, one of which was copied to another server while no writer used it. The
    tests use other conversations.
    """
    url = postgres_server.url(schema="moved", stores=str(COUNT), patience_s="60")
    with open_store(url) as store:
        for number in range(COUNT):
            say(store, in_store(store, number, "before"), "0")
        # A fork is in the store of its parent, also if its id belongs to the store that moves.
        store.fork(in_store(store, 0, "before"), 1, in_store(store, MOVED, "stays"))
    options = {"schema": f"moved_{MOVED:02d}", "part": f"{MOVED}/{COUNT}", "patience_s": "60"}
    with (
        open_store(postgres_server.url(**options)) as source,
        open_store(other_server.url(**options)) as target,
    ):
        assert [copied.problem for copied in copy_store(source, target)] == [None]
        assert list(compare_stores(source, target)) == []
        assert min(entry.position for entry in target.follow()) > source.database.last_position
    postgres_server.sql(f"DROP SCHEMA moved_{MOVED:02d} CASCADE")
    yield f"{url}&moved={MOVED}@127.0.0.1:{other_server.port}"
    other_server.sql(f"DROP SCHEMA moved_{MOVED:02d} CASCADE")
    for number in {*range(COUNT)} - {MOVED}:
        postgres_server.sql(f"DROP SCHEMA moved_{number:02d} CASCADE")


def test_a_moved_store_has_its_conversations(moved):
    with open_store(moved) as store:
        names = [in_store(store, number, "before") for number in range(COUNT)]
        versions = [store.version(name) for name in [*names, in_store(store, MOVED, "stays")]]
        assert versions == [1] * (COUNT + 1)


def test_a_moved_store_is_written_and_followed(moved):
    with open_store(moved) as store:
        names = [in_store(store, number, "later") for number in range(COUNT)]
        for text in "01":
            for name in names:
                say(store, name, text)
        followed = [entry.conversation for entry in store.follow() if entry.conversation in names]
        assert Counter(followed) == dict.fromkeys(names, 2)


@pytest.mark.parametrize("number", [MOVED, MOVED + 1])
def test_work_beside_a_moved_store_runs_again(moved, number):
    with open_store(moved) as store:
        name = in_store(store, number, "again")
        say(store, name, "0")
        versions = []

        def work(transaction):
            versions.append(transaction.conversation(name).version)
            if len(versions) == 1:
                raise TryAgain("another transaction was in the way")

        store.database.recorder.transact(work)
        assert versions == [1, 1]


@pytest.mark.parametrize(
    "of_parent, of_fork", [(MOVED, MOVED + 1), (MOVED - 1, MOVED), (MOVED + 2, MOVED)]
)
def test_a_fork_is_found_beside_a_moved_store(moved, of_parent, of_fork):
    with open_store(moved) as store:
        parent = in_store(store, of_parent, "parent")
        fork = in_store(store, of_fork, f"fork of {of_parent}")
        say(store, parent, "0")
        store.fork(parent, 1, fork)
        assert store.version(fork) == 1
    with open_store(moved) as store:
        assert store.version(fork) == 1


def test_lists_and_figures_are_kept_beside_a_moved_store(moved):
    with open_store(moved) as store:
        names = {in_store(store, number, "listed") for number in range(COUNT)}
        for name in names:
            say(store, name, "0")
        listed = {row.id for row in foldlog.Histories(store).list(limit=COUNT).conversations}
        assert listed == names
        FiguresOfStore(store).refresh()
        assert FigureTables(store.database).to_count() == {}


def test_a_cached_value_is_written_beside_a_moved_store(moved):
    with open_store(moved) as store:
        names = [in_store(store, number, "cached") for number in range(COUNT)]
        for name in names:
            say(store, name, "0")
        rows = [store.conversation(name) for name in names]
        with CachedValues(store, "lengths", 1) as written:
            for row in rows:
                written.keep(row, len(row.id))
        values = CachedValues(store, "lengths", 1).load(rows)
        assert values == {name: len(name) for name in names}


@pytest.fixture
def pair(postgres_server):
    """The URL of two stores. The tests use other conversations."""
    return postgres_server.url(schema="pair", stores="2", patience_s="60")


def in_both(store, names):
    """Return two ids that belong to different stores, with these words at their beginning."""
    return names, elsewhere(store, names)


def test_checkpoints_cover_all_stores(pair):
    with open_store(pair) as store:
        first_name, second_name = in_both(store, "proved")
        for name in (first_name, second_name):
            say(store, name, "0", "1")
        first = make_checkpoint(store)
        assert make_checkpoint(store) == first
        say(store, second_name, "2")
        second = make_checkpoint(store)
        assert second.size == first.size + 1
        erased(store, first_name)
        third = make_checkpoint(store)
        assert third.size == second.size + 1
        assert make_checkpoint(store) == third
        assert changes(store, first) == changes(store, second) == changes(store, third) == {}


def test_an_index_searches_all_stores(pair):
    with foldlog.open(pair) as histories:
        names = in_both(histories.store, "searched")
        for name in names:
            histories.create(name).append(said(f"wombat in {name}"))
        assert histories.maintenance.index()
        for name in names:
            histories[name].append(said("another wombat"))
        found = [hit.conversation for hit in histories.search("wombat", limit=10)]
        assert sorted(found) == sorted([*names, *names])
        best = next(iter(histories.search(f"wombat in {names[1]}")))
        assert best.conversation == names[1]


def test_an_erasure_in_one_store_waits_for_its_readers(pair):
    with open_store(pair) as store:
        names = in_both(store, "removed")
        for name in names:
            say(store, name, "x")
        with reading(store, names[1]):
            for name in names:
                assert erased(store, name).bytes_pending
            with pytest.raises(StoreUnavailable, match="deleted") as refused:
                store.database.recorder.compact(0)
            assert refused.value.kind == "read"
        vacuum(store)
        assert not store_info(store).bytes_pending


def test_what_is_wrong_names_its_store(postgres_server):
    with open_store(postgres_server.url(schema="wrong", stores="2")) as store:
        postgres_server.sql("DROP INDEX wrong_01.conversations_erased")
        *_, of_database = verify(store)
    [problem] = map(str, of_database.findings)
    assert problem.startswith("store 1: the index conversations_erased is missing")


def test_pages_of_several_stores_have_each_conversation_once(pair, monkeypatch):
    monkeypatch.setattr(verifying._readable, "__defaults__", (2,))
    with open_store(pair) as store:
        for number in range(7):
            say(store, f"paged {number}", "x")
        names = [state.id for state in verifying.readable_conversations(store.database.recorder)]
        assert names == [row.id for row in store.iter_conversations()]


def test_the_status_of_several_stores(pair, postgres_server):
    with open_store(pair) as store:
        names = in_both(store, "held")
        assert follower_status(store).held_back == 0
        with psycopg.connect(postgres_server.url(application_name="reports")) as other:
            other.execute("SELECT pg_current_xact_id()")
            for name in names:
                say(store, name, "0", "1")
            status = follower_status(store)
            assert status.held_back == 4
            assert status.held_by.application == "reports"


def test_the_followers_of_several_stores_have_their_lag(postgres_server):
    with open_store(postgres_server.url(schema="lagging", stores="2", patience_s="60")) as store:
        names = in_both(store, "lagging")
        for name in names:
            say(store, name, "0", "1")
        read = [str(recorded.position) for recorded in store.follow()]
        confirm(store, "early", read[0])
        confirm(store, "late", read[-1])
        status = follower_status(store)
        behind = {lag.follower: (str(lag.position), lag.events) for lag in status.followers}
        assert behind == {"early": (read[0], 3), "late": (read[-1], 0)}
        assert [lag.seconds > 0 for lag in status.followers] == [True, False]
        assert str(status.last_position) == read[-1]


def test_a_chunk_of_a_reply_is_one_transaction_in_each_store(pair, monkeypatch):
    """It waits for no standby, whichever store has the conversation."""
    with foldlog.open(pair) as histories:
        for name in in_both(histories.store, "streamed"):
            history = histories[name]
            history.append(said("what is a kite?"))
            reply = history.stream_reply()
            reply.begin()
            reply.feed("A toy")
            with monkeypatch.context() as patch:
                calls = noted(patch, Wire, "queue")
                reply.feed(" that flies.")
            reply.end()
            begin = ["begin_writing", "begin_local", "lock", "number_if_unchanged", "check_stream"]
            sent = [statement for _, statement, *_ in calls]
            assert sent == [*begin, "put_stream_chunk", "commit"]


def test_a_lease_is_seen_in_the_store_of_its_conversation(pair):
    with foldlog.open(pair) as histories, foldlog.open(pair) as others:
        for name in in_both(histories.store, "leased"):
            say(histories.store, name, "0")
            with histories[name].lease(worker="the worker"):
                assert others[name].current_lease().worker == "the worker"
            assert others[name].current_lease() is None


def test_the_durability_of_several_stores(pair):
    def probe(transaction):
        store = transaction._transaction_of(1)
        store._wire._statements["probe"] = b"SELECT current_setting('synchronous_commit')::bytea"
        return store.ask("probe")[0][0].decode()

    for durability, expected in (("full", "on"), ("relaxed", "off")):
        with open_store(f"{pair}&durability={durability}") as store:
            assert store.database.recorder.transact(probe) == expected


def test_work_in_several_stores_runs_again_with_its_locks(pair):
    with open_store(pair) as store:
        names = in_both(store, "again")
        for name in names:
            say(store, name, "0")
        locks = []

        def work(transaction):
            found = [transaction.conversation(name).version for name in names]
            locks.append({*transaction.locks})
            if len(locks) == 1:
                raise TryAgain("another transaction was in the way")
            return found

        assert store.database.recorder.transact(work) == [1, 1]
        assert len(locks[0]) == 2
        assert locks == [locks[0]] * 2


def test_a_key_in_one_store_is_needed_for_all(postgres_server):
    url = postgres_server.url(schema="sealed", stores="2")
    keys = KeyRing(["22" * 32])
    with open_store(url, keys=keys) as store:
        names = in_both(store, "sealed")
        say(store, names[1], "x")
        recorder = store.database.recorder
        assert recorder.value("key_ids").split() == [keys.current]
        assert recorder.transact(lambda transaction: transaction.value("key_ids")).split() == [
            keys.current
        ]
    with open_store(url) as store, pytest.raises(KeyUnavailable, match="plain=allowed"):
        say(store, names[0], "x")
    with open_store(f"{url}&plain=allowed") as store:
        say(store, names[0], "x")
        assert store.version(names[0]) == 1


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_append_to_several_stores_is_stored_once(pair, postgres_server, proxy, cut):
    through = pair.replace(f":{postgres_server.port}/", f":{proxy.port}/")
    with open_store(through) as store:
        names = in_both(store, f"cut {cut}")
        for name in names:
            proxy.order(cut, mark=b":commit\0")
            say(store, name, "0", expected_version=0)
            proxy.order(cut, mark=b":commit\0")
            say(store, name, "1", "2", expected_version=1, idempotency_key="k")
            assert [event.content for event in store.events(name)] == ["0", "1", "2"]
        proxy.order(cut, mark=b":commit\0")
        fork = store.fork(names[0], 1, f"{names[1]} fork")
        assert fork.version == 1
        assert proxy.cuts == 5


@pytest.mark.long  # a server with a standby, which is promoted, and another one
def test_a_move_and_a_failover_lose_nothing(other_server, folder):
    """16 writers and a follower of all stores go on. The follower may get the events of the store
    that moves again, in order.
    """
    primary = new_primary(folder / "primary", {"wal_level": "replica"})
    standby = Server(folder / "standby")
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{hosts}/postgres?schema=moving&stores=8&patience_s=60"
    opened = [open_store(url)]
    standby.follow(primary, "standby")
    standby.start()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.reload()
    home = opened[0].database.recorder.home
    gates = [threading.Lock() for _ in range(8)]
    acknowledged = []
    followed = []
    is_over = threading.Event()

    def write(writer):
        for turn in itertools.count():
            name = f"agent {writer} {turn % 3}"
            text = f"{writer} {turn}"
            with gates[home(name)]:
                [entry] = say(opened[-1], name, text, idempotency_key=text)
            acknowledged.append((name, entry.id, text))
            if is_over.is_set():
                return

    def follow():
        place = 0
        while True:
            is_last = is_over.is_set() and not any(writer.is_alive() for writer in writers)
            store = opened[-1]
            try:
                page = list(store.follow(place, limit=50))
            except (StoreUnavailable, StoreRefused):
                if store is opened[-1]:
                    time.sleep(0.05)
                continue
            followed.extend((entry.conversation, entry.id, entry.event.content) for entry in page)
            if page:
                place = str(page[-1].position)
            if is_last and not page:
                return

    def wait_for_more(events=200):
        until = len(acknowledged) + events
        while len(acknowledged) < until:
            assert any(writer.is_alive() for writer in writers)
            time.sleep(0.02)

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(16)]
    following = threading.Thread(target=follow)
    for thread in (*writers, following):
        thread.start()
    try:
        wait_for_more()
        number = home("agent 0 0")
        alone = f"postgresql://postgres@127.0.0.1:{primary.port}/postgres?schema=moving_{number:02d}&part={number}/8"
        there = alone.replace(f":{primary.port}/", f":{other_server.port}/")
        with open_store(alone) as source, open_store(there) as target:
            list(copy_store(source, target))
            with gates[number]:
                list(copy_store(source, target))
                assert list(compare_stores(source, target)) == []
                primary.sql(f"ALTER SCHEMA moving_{number:02d} RENAME TO moved")
                opened.append(open_store(f"{url}&moved={number}@127.0.0.1:{other_server.port}"))
        wait_for_more()
        primary.kill()
        standby.promote()
        standby.sql("ALTER SYSTEM RESET synchronous_standby_names")
        standby.reload()
        wait_for_more()
    finally:
        is_over.set()
        for thread in (*writers, following):
            thread.join()
    names = {name for name, *_ in acknowledged}
    stored = {
        (name, event.id, event.content) for name in names for event in opened[-1].events(name)
    }
    assert len(acknowledged) == len(set(acknowledged)) == len(stored)
    assert set(acknowledged) == stored == set(followed)
    first_seen = [*dict.fromkeys(followed)]
    for name in names:
        ids = [event_id for conversation, event_id, _ in first_seen if conversation == name]
        assert ids == [*range(len(ids))]
    assert {home(name) for name, *_ in Counter(followed) - Counter(first_seen)} <= {number}
    for store in opened:
        store.close()
    standby.remove()


def test_figures_of_several_stores(postgres_server, tmp_path):
    with open_store(postgres_server.url(schema="figured", stores="4")) as store:
        check_runs(filled(store), tmp_path)
        assert len({store.database.recorder.home(row.id) for row in store.iter_conversations()}) > 1


def test_a_reply_in_two_stores_counts_once(postgres_server, tmp_path):
    url = postgres_server.url(schema="replies", stores=str(COUNT), patience_s="60")
    with open_store(url) as store:
        other = elsewhere(store, "first")
        write_logs(tmp_path / "logs", {"first": [1, 2, 3], other: [2, 3, 4]})
        foldlog.Histories(store).import_(tmp_path / "logs")
        figures = FiguresOfStore(store)
        assert calls_of(figures) == 4
        assert calls_of(FiguresOfStore(store)) == 4


def test_the_library_reads_from_the_beginning(many):
    factory = Factory({"FOLDLOG_URL": many})
    try:
        recorder = factory.application_recorder()
        assert recorder.select_notifications(None, 3) == recorder.select_notifications(0, 3)
    finally:
        factory.close()


def test_reading_of_several_stores_goes_on_after_each_position(postgres_server):
    url = postgres_server.url(schema="after_each", stores=str(COUNT))
    with open_store(url) as store:
        for number in range(12):
            say(store, f"c{number}", "zero", "one")
        store.ingest("imported", [said(str(number)) for number in range(5)])
        with store.database.recorder.read() as reader:
            rows = [*reader.placed_rows(0, 100)]
            places = [(row.conversation, row.row.id) for row in rows]
            assert len({*places}) == len(places) == 29
            homes = {row.conversation: reader.conversation(row.conversation).key for row in rows}
            numbers = {name: store.database.recorder.store_of(key) for name, key in homes.items()}
            assert len({*numbers.values()}) == COUNT - 1  # one store has nothing
            for index, row in enumerate(rows):
                later = places[index + 1 :]
                for limit in (1, 4, 100):
                    page = reader.placed_rows(row.position, limit)
                    assert [(entry.conversation, entry.row.id) for entry in page] == later[:limit]
                next_place = reader.place_after(row.position)
                if not later:
                    assert next_place is None
                    continue
                position, *place = next_place
                first_store = min(numbers[name] for name, _ in later)
                in_store = [other for other in later if numbers[other[0]] == first_store]
                assert tuple(place) == in_store[0]
                rest = [
                    (after.conversation, after.row.id)
                    for after in reader.placed_rows(position, 100)
                ]
                assert rest == [other for other in later if other != in_store[0]]


def test_values_and_operations_of_several_stores_are_read_whole(pair):
    with open_store(pair) as store:
        recorder = store.database.recorder
        names = in_both(store, "valued")
        for name in names:
            say(store, name, "0")
        with recorder.read() as reader:
            keys = [reader.conversation(name).key for name in names]

        def note(transaction):
            for key in keys:
                transaction.leave_unfinished(key, "noted", f"state {key}")
            return [transaction.value(name) for name in ("uuid", "last_position")]

        expected = sorted(
            Unfinished(key, name, "noted", f"state {key}")
            for key, name in zip(keys, names, strict=True)
        )
        values = recorder.transact(note)
        try:
            assert values[0] == recorder.value("uuid") == store.database.uuid
            assert int(values[1]) > 0
            found = recorder.query(lambda reader: [*reader.unfinished()])
            assert sorted(operation for operation in found if operation.key in keys) == expected
            for operation in expected:
                with recorder.read() as reader:
                    assert [*reader.unfinished(operation.key)] == [operation]
        finally:
            recorder.transact(lambda transaction: [transaction.finish(key) for key in keys])
        assert not recorder.query(lambda reader: [*reader.unfinished(keys[0])])


def test_a_reader_of_several_stores_cannot_vacuum(pair):
    open_store(pair).close()
    with open_store(f"{pair}&mode=ro") as store:
        with pytest.raises(StoreRefused) as refused:
            vacuum(store)
        assert refused.value.kind == "read_only"


def test_every_server_is_closed_even_if_one_refuses():
    closed = []

    def close(number):
        closed.append(number)
        if number == 1:
            raise StoreUnavailable("server 1 is away", kind="away")

    stores = Stores.__new__(Stores)
    stores.servers = [SimpleNamespace(close=partial(close, number)) for number in range(3)]
    with pytest.raises(StoreUnavailable, match="server 1 is away"):
        stores.close()
    assert sorted(closed) == [0, 1, 2]


def test_positions_in_several_stores_are_no_numbers_of_the_library(many):
    factory = Factory({"FOLDLOG_URL": many})
    try:
        recorder = factory.application_recorder()
        with pytest.raises(ProgrammingError, match="have no one order of notifications; follow"):
            recorder.max_notification_id()
        recorder.insert_tracking(Tracking("several", Position.of(3, (3, 0, 0, 1))))
        with pytest.raises(ProgrammingError, match="have no one order of notifications; follow"):
            recorder.max_tracking_id("several")
    finally:
        factory.close()
        with open_store(many) as store:
            confirm(store, "several", None)
