"""An operator learns who holds the followers back, how far behind they are, and what is wrong with
the tables.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import foldlog
from foldlog.eventstore import InvalidOption, StoreUnavailable, confirm, open_store
from foldlog.eventstore.log.writing import EVERY
from foldlog.eventstore.maintenance.followers import follower_status
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.types import Erasure
from tests.golden.postgres import PARTS, described_parts
from tests.said import said, say
from tests.waiting import until
from tests.web_client import asking_store

from .test_faults import give_up_soon


@pytest.fixture
def store(url):
    with open_store(url) as store:
        say(store, "c1", "0", "1")
        yield store


def test_an_idle_store_holds_nothing_back(store):
    status = follower_status(store)
    assert (status.held_back, status.horizon_age) == (0, 0)
    assert (status.held_by, status.followers) == (None, ())
    assert status.last_position == list(store.follow())[-1].position < status.horizon
    assert (status.synchronous_commit, status.standbys) == ("on", "")


def test_a_transaction_of_another_database_holds_events_back(store, postgres_server):
    postgres_server.sql("CREATE DATABASE elsewhere")
    try:
        with psycopg.connect(postgres_server.url("elsewhere", application_name="reports")) as other:
            other.execute("SELECT pg_current_xact_id()")
            for n in range(3):
                say(store, "c1", str(n))
            status = follower_status(store)
            assert (status.held_back, status.horizon_age) == (3, 4)
            holder = status.held_by
            assert (holder.application, holder.state) == ("reports", "idle in transaction")
            assert len(list(store.follow())) == 2
        assert len(list(store.follow())) == 5
    finally:
        postgres_server.sql("DROP DATABASE elsewhere")


def test_a_prepared_transaction_is_named_and_holds_events_back(store, postgres_server):
    postgres_server.sql("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'")
    try:
        say(store, "c1", "2")
        status = follower_status(store)
        holder = status.held_by
        assert (holder.pid, holder.application, holder.state) == (None, "forgotten", "prepared")
        assert status.held_back == 1
    finally:
        postgres_server.sql("ROLLBACK PREPARED 'forgotten'")


def test_followers_and_their_lag(store):
    first = next(iter(store.follow()))
    confirm(store, "reports \udcff", first.position)
    confirm(store, "audit", follower_status(store).last_position)
    say(store, "c1", *["2"] * 3)
    behind = {lag.follower: (lag.position, lag.events) for lag in follower_status(store).followers}
    assert behind["reports \udcff"] == (first.position, 4)
    assert behind["audit"][1] == 3
    assert all(0 <= lag.seconds < 60 for lag in follower_status(store).followers)


def test_metrics_tell_of_followers(store):
    say(store, "c1", "3")
    confirm(store, "reader \udcff", 0)
    with asking_store(store) as client:
        until(lambda: "foldlog_events 3" in client.get("/metrics").text)
        page = client.get("/metrics").text
    assert re.search(r'^foldlog_follower_lag_events\{follower="reader .+"\} 3$', page, re.MULTILINE)
    assert re.search(r'^foldlog_follower_lag_seconds\{follower="reader .+"\} ', page, re.MULTILINE)
    page.encode()  # This raises an error if the name of the follower is not escaped.
    assert "foldlog_events_held_back 0\n" in page
    assert "foldlog_bytes_pending 0\n" in page
    assert "foldlog_events 3\n" in page
    assert "_cost_usd gauge\n" in page
    assert not re.search(r"^foldlog_\w+_cost_usd ", page, re.MULTILINE), (
        "no cost is known, which is not 0"
    )


def test_the_command_shows_followers(url, store, foldlog):
    confirm(store, "audit", 1)
    ran = foldlog("list", "--followers", "--db", url)
    assert ran.status == 0
    assert "a commit waits for: no standby (synchronous_commit on)" in ran.out
    assert "nothing is held back" in ran.out
    assert "follower audit: 2 events behind" in ran.out
    document = foldlog("list", "--followers", "--db", url, "--json").document
    assert document["followers"][0]["position"] == "1"
    assert document["horizon_age"] == 0
    assert int(document["last_position"]) > 2**20


def test_a_file_has_no_status():
    with (
        open_store("memory:") as store,
        pytest.raises(InvalidOption, match="follower status exists only for PostgreSQL stores"),
    ):
        follower_status(store)


@pytest.mark.parametrize(
    "statement, problem",
    [
        ("DELETE FROM {}.conversations", "2 events belong to conversation number"),
        (
            "DROP INDEX {}.events_structural",
            "the index events_structural is missing, so reading is slow or fails",
        ),
        ("DROP TABLE {}.figure_blocks", "the table figure_blocks is missing, so calls that"),
        ("DROP FUNCTION {}.begin_epoch()", "the function begin_epoch is missing, so calls that"),
    ],
)
def test_what_is_missing_is_a_finding(statement, problem, schema, store, postgres_server):
    assert list(store._recorder.check()) == []
    postgres_server.sql(statement.format(schema))
    [finding] = store._recorder.check()
    assert finding.startswith(problem)


CHANGED = {
    "table idempotency_keys": "ALTER TABLE {0}.idempotency_keys ALTER key DROP NOT NULL",
    "table conversations": "ALTER TABLE {0}.conversations ADD CHECK (created_at > 0)",
    "table events": "ALTER TABLE {0}.events DROP CONSTRAINT events_pkey",
    "table facts": "ALTER TABLE {0}.facts ENABLE ROW LEVEL SECURITY",
    "table figures": "ALTER TABLE {0}.figures ALTER replies_compared SET DEFAULT 1",
    "table made": "ALTER TABLE {0}.made SET UNLOGGED",
    "table places": "ALTER TABLE {0}.places ADD COLUMN more bigint",
    "index events_shown": (
        "DROP INDEX {0}.events_shown; CREATE INDEX events_shown ON {0}.events (conversation, id)"
        " WHERE shown AND id < 9"
    ),
    "index conversations_by_id": (
        "DROP INDEX {0}.conversations_by_id; CREATE INDEX conversations_by_id"
        " ON {0}.conversations (sha256(id)) WHERE visible"
    ),
    "function here": (
        "CREATE OR REPLACE FUNCTION {0}.here() RETURNS bigint LANGUAGE sql STABLE"
        " SET search_path = pg_catalog, pg_temp AS 'SELECT 1::bigint'"
    ),
}
ADDED = {
    "trigger t on events": (
        "CREATE TRIGGER t BEFORE INSERT ON {0}.events FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
    "rule r on events": "CREATE RULE r AS ON DELETE TO {0}.events DO INSTEAD NOTHING",
    "policy p on events": "CREATE POLICY p ON {0}.events USING (id < 1)",
    "child table {0}.c of events": "CREATE TABLE {0}.c () INHERITS ({0}.events)",
    "child table {0}.c of store": (
        "CREATE TABLE {0}.c () INHERITS ({0}.store); INSERT INTO {0}.c SELECT * FROM ONLY {0}.store"
    ),
}


@pytest.mark.parametrize("part", CHANGED)
def test_changed_part_of_the_schema_is_a_finding(part, schema, store, postgres_server):
    postgres_server.sql(CHANGED[part].format(schema))
    found = f"the {part} was changed: it is not as foldlog makes it"
    assert any(finding.startswith(found) for finding in store._recorder.check())


def test_parts_of_a_newer_schema_are_no_findings(schema, store, postgres_server):
    """A newer version may replace a function without keeping this version away."""
    postgres_server.sql(CHANGED["function here"].format(schema))
    postgres_server.sql(f"UPDATE {schema}.store SET value = '99' WHERE name = 'schema'")
    assert list(store._recorder.check()) == []


@pytest.mark.parametrize("part", ADDED)
def test_added_part_of_the_schema_is_a_finding(part, schema, store, postgres_server):
    postgres_server.sql(ADDED[part].format(schema))
    [finding] = store._recorder.check()
    assert finding.startswith(f"somebody added the {part.format(schema)}, which may change")


LISTED = "WHERE conversation = (SELECT key FROM {0}.conversations WHERE id = 'c1')"
CONTRADICT = "the lists of conversations by attribute and activity contradict the events of 1"
LACK = "the lists of conversations by attribute and activity lack 1 conversation"


@pytest.mark.parametrize(
    "change, problem",
    [
        (f"UPDATE {{0}}.listing SET at = at + 1 {LISTED}", CONTRADICT),
        (
            f"UPDATE {{0}}.listing SET at = at + 1 {LISTED};"
            f"UPDATE {{0}}.listed SET at = at + 1 {LISTED}",
            CONTRADICT,
        ),
        (f"UPDATE {{0}}.listing SET version = version + 1 {LISTED}", CONTRADICT),
        (f"UPDATE {{0}}.listing SET digests = '\\x00' {LISTED}", CONTRADICT),
        (f"UPDATE {{0}}.listed SET at = at + 1 {LISTED}", CONTRADICT),
        (f"DELETE FROM {{0}}.listed {LISTED}", CONTRADICT),
        (
            f"UPDATE {{0}}.listed SET digest = sha256('') {LISTED} AND digest <> '\\x{'00' * 16}'",
            CONTRADICT,
        ),
        ("INSERT INTO {0}.listed VALUES ('0123456789abcdef', 1, 99)", CONTRADICT),
        ("INSERT INTO {0}.listing VALUES (99, 1, 1, '')", CONTRADICT),
        (f"DELETE FROM {{0}}.listed {LISTED}; DELETE FROM {{0}}.listing {LISTED}", LACK),
        (
            "UPDATE {0}.facts SET value = '9223372036854775807 1' WHERE name = 'listed'",
            "the lists of conversations by attribute and activity say that they have events which",
        ),
        (
            "UPDATE {0}.conversations SET visible = false WHERE id = 'c1'",
            "conversation 'c1' is hidden, as if it were still being imported",
        ),
        (
            "UPDATE {0}.conversations SET visible = false WHERE id = 'imported'",
            "conversation 'imported' is hidden, as if it were still being imported",
        ),
        (
            f"UPDATE {{0}}.events SET position = NULL {LISTED} AND id = 0",
            "1 event has no position in conversation 'c1', so no follower reads them",
        ),
        (
            "INSERT INTO {0}.publications SELECT 1, conversation, 0, 3 FROM {0}.events WHERE id = 2",
            "3 events have two positions in conversation 'c1', so followers read them twice",
        ),
        (
            "INSERT INTO {0}.publications SELECT 1, conversation, 1, 1 FROM {0}.publications",
            "2 events have two positions in conversation 'imported', so followers read them twice",
        ),
        ("DELETE FROM {0}.publications", "2 events have no position in conversation 'imported'"),
        ("UPDATE {0}.publications SET size = 1", "1 event has no position in conversation 'import"),
    ],
)
def test_what_lists_or_followers_lack_is_a_finding(change, problem, schema, store, postgres_server):
    histories = foldlog.Histories(store)
    histories["c1"].set_attributes(user="ann")
    histories["c1"].fork(at=1, id="fork without events")
    store.ingest("imported", [said("0"), said("1")])
    histories.list(age_max_s=0)
    say(store, "not listed yet", "0")
    say(store, "c1", "later")
    assert findings_of_database(store) == []
    postgres_server.sql(change.format(schema))
    assert any(finding.startswith(problem) for finding in findings_of_database(store))


def test_lists_of_several_stores_that_lack_a_conversation_are_a_finding(postgres_server):
    with open_store(postgres_server.url(schema="listed", stores="4", patience_s="60")) as store:
        for number in range(9):
            say(store, f"c{number}", "0")
        histories = foldlog.Histories(store)
        histories.list(age_max_s=0)
        say(store, "not listed yet", "0")
        assert findings_of_database(store) == []
        home = f"listed_{store.database.recorder.home('c1'):02d}"
        for table in ("listing", "listed"):
            postgres_server.sql(f"DELETE FROM {home}.{table} {LISTED.format(home)}")
        [finding] = findings_of_database(store)
        assert finding.startswith(LACK)


@pytest.mark.parametrize("writes", [("list", "list"), ("list", "erase"), ("erase", "list")])
def test_two_writers_of_a_list_entry_leave_no_former_entry(
    url, schema, store, postgres_server, writes
):
    """The second writer waits for the first one, which has not committed yet."""
    histories = foldlog.Histories(store)
    histories["c1"].set_attributes(user="ann")
    key = store.database.recorder.query(lambda reader: reader.conversation("c1")).key

    def write(transaction, what, number):
        if what == "erase":
            transaction.erase(key, Erasure(9, "asked", 3, b"9" * 32, None))
        else:
            transaction.put_listing(key, number, number, [EVERY, bytes([number]) * 16])
        transaction.ask("now")

    with open_store(url) as other, ThreadPoolExecutor(1) as beside:

        def write_first(transaction):
            write(transaction, writes[0], 1)
            second = beside.submit(
                other.database.recorder.transact,
                lambda transaction: write(transaction, writes[1], 2),
            )
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
            until(lambda: postgres_server.sql(waits) == "1")
            return second

        store.database.recorder.transact(write_first).result()
    with psycopg.connect(url.partition("?")[0]) as connection:
        listed = connection.execute(f"SELECT at FROM {schema}.listed").fetchall()
        entries = connection.execute(f"SELECT at FROM {schema}.listing").fetchall()
    assert (listed, entries) == (([], []) if "erase" in writes else ([(2,)] * 2, [(2,)]))


def findings_of_database(store):
    return [
        str(finding)
        for verdict in verify(store)
        if verdict.conversation is None
        for finding in verdict.findings
    ]


def test_function_in_place_of_one_of_the_server_is_a_finding(url, store, schema, postgres_server):
    foldlog.Histories(store).list(age_max_s=0)
    others = f"{schema}_of_others"
    postgres_server.sql(
        f"CREATE SCHEMA {others}; CREATE FUNCTION {others}.int8send(bigint) RETURNS bytea"
        f" LANGUAGE sql AS 'SELECT ''x''::bytea'; UPDATE {schema}.listing SET at = 1"
    )
    try:
        with open_store(f"{url}&options=-csearch_path%3D{others},pg_catalog") as other:
            assert findings_of_database(other)[0].startswith(
                f"the setting search_path puts the schema {others} before pg_catalog"
            )
    finally:
        postgres_server.sql(f"DROP SCHEMA {others} CASCADE")


def test_foreign_table_or_index_is_no_harm(schema, store, postgres_server):
    postgres_server.sql(f"CREATE INDEX by_kind ON {schema}.events (kind)")
    postgres_server.sql(f"CREATE TABLE {schema}.notes (text text)")
    assert list(store._recorder.check()) == []


def test_known_parts_are_those_of_a_new_store(url, schema, store):
    """``python -m tests.golden.postgres`` writes them again."""
    assert json.loads(PARTS.read_text()) == described_parts(url.partition("?")[0], schema)


def test_what_amcheck_finds_is_a_finding(schema, store, postgres_server):
    """Not every server has the extension, so a function with its name and its arguments stands for
    it.
    """
    postgres_server.sql(
        "CREATE FUNCTION public.bt_index_check(index regclass, heapallindexed boolean) RETURNS void"
        " AS $$ BEGIN IF index::text LIKE '%by_position' OR (SELECT relam FROM pg_class WHERE oid ="
        " index) <> 403 THEN RAISE 'item order invariant violated for index'; END IF; END $$"
        " LANGUAGE plpgsql"
    )
    postgres_server.sql(f"CREATE INDEX not_a_b_tree ON {schema}.facts USING hash (value)")
    try:
        [finding] = store._recorder.check()
        assert (
            finding
            == "index events_by_position: item order invariant violated for index CONTEXT: PL/pgSQL"
            " function bt_index_check(regclass,boolean) line 1 at RAISE"
        )
        postgres_server.sql("ALTER FUNCTION public.bt_index_check RENAME TO not_there")
        assert list(store._recorder.check()) == []
    finally:
        postgres_server.sql("DROP FUNCTION IF EXISTS public.bt_index_check, public.not_there")


def test_indexes_that_this_role_may_not_check_are_named(url, store, postgres_server):
    with open_store(url) as other:
        postgres_server.sql(
            "CREATE FUNCTION public.bt_index_check(index regclass, heapallindexed boolean) RETURNS"
            " void AS '' LANGUAGE sql; REVOKE EXECUTE ON FUNCTION public.bt_index_check FROM"
            " PUBLIC; CREATE ROLE checker LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA"
            f" {store._recorder.schema} TO checker; GRANT USAGE ON SCHEMA {store._recorder.schema}"
            " TO checker"
        )
        try:
            assert list(other._recorder.unchecked()) == []
            with open_store(url.replace("postgres@", "checker@")) as of_role:
                assert list(of_role._recorder.check()) == []
                [unchecked] = of_role._recorder.unchecked()
                assert unchecked.startswith("its indexes were not checked: this role may not call")
        finally:
            postgres_server.sql(
                "DROP FUNCTION public.bt_index_check; DROP OWNED BY checker; DROP ROLE checker"
            )


@pytest.mark.parametrize(
    "code, is_finding", [("58030", True), ("XX002", True), ("55P03", False), ("57P01", False)]
)
def test_only_lasting_damage_of_an_index_is_a_finding(url, postgres_server, code, is_finding):
    """Another error says that the index could not be read now."""
    with open_store(url) as store:
        give_up_soon(store)
        postgres_server.sql(
            "CREATE FUNCTION public.bt_index_check(index regclass, heapallindexed boolean) RETURNS"
            " void AS $$ BEGIN IF index::text LIKE '%by_position' THEN RAISE 'not now' USING"
            f" ERRCODE = '{code}'; END IF; END $$ LANGUAGE plpgsql"
        )
        try:
            if is_finding:
                [finding] = store._recorder.check()
                assert finding.startswith("index events_by_position: not now")
            else:
                with pytest.raises(StoreUnavailable, match="not now"):
                    list(store._recorder.check())
        finally:
            postgres_server.sql("DROP FUNCTION public.bt_index_check")


def test_nobody_holds_the_locks_of_an_idle_store(store):
    assert store._recorder._holder([]) == ""
    assert store._recorder._holder([123_456_789]) == ""
