"""How a store on PostgreSQL is made and migrated, which rights its roles need, and what is
refused.
"""

import re
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import foldlog
from foldlog import EventStoreError
from foldlog.eventstore import (
    InvalidOption,
    KeyRing,
    StoreDamaged,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders import statements as sql_files
from foldlog.eventstore.recorders.postgres import recorder, refusals, setup, wire
from foldlog.eventstore.recorders.postgres.deleted_rows import Tables
from foldlog.eventstore.recorders.urls import parse_url, without_password
from tests.at_once import at_once
from tests.between import before_next_call
from tests.privacy import erased
from tests.reading import reading
from tests.said import said, say
from tests.waiting import in_thread, until

NEWEST = max(sql_files.migrations("postgresql"))


def test_a_role_without_synchronous_commit_is_refused(url, schema, postgres_server):
    """The store is refused before a table is made."""
    postgres_server.sql(
        "CREATE ROLE hasty SUPERUSER LOGIN; ALTER ROLE hasty SET synchronous_commit = off"
    )
    hasty = url.replace("postgres@", "hasty@")
    try:
        with pytest.raises(
            StoreUnavailable, match=r"synchronous_commit is off on this server.*durability=relaxed"
        ):
            open_store(hasty)
        assert postgres_server.sql(f"SELECT to_regnamespace('{schema}')") == ""
        with open_store(hasty + "&durability=relaxed") as store:
            say(store, "c1", "0")
            assert store.version("c1") == 1
        with open_store(hasty + "&mode=ro") as store:
            assert store.version("c1") == 1
    finally:
        postgres_server.sql("DROP OWNED BY hasty CASCADE; DROP ROLE hasty")


def ask_in(transaction, query):
    transaction._wire._statements["probe"] = query.encode()
    return transaction.ask("probe")[0][0].decode()


def ask(store, query):
    """Return the value of a query, as a transaction of the store sees it."""
    return store._recorder.transact(lambda transaction: ask_in(transaction, query))


def test_durability_sets_synchronous_commit(url):
    for durability, expected in (("full", "on"), ("relaxed", "off")):
        with open_store(f"{url}&durability={durability}") as store:
            assert ask(store, "SELECT current_setting('synchronous_commit')::bytea") == expected


def test_concurrent_processes_make_a_store_once(url):
    uuids = set()
    barrier = threading.Barrier(8)

    def open_one(_):
        barrier.wait()
        with open_store(url) as store:
            uuids.add(store.database.uuid)

    at_once(open_one, range(8))
    assert len(uuids) == 1


@pytest.fixture
def newer(monkeypatch):
    """A function that makes this program a newer version of itself, with one migration more."""

    def become(script):
        scripts = {**sql_files.migrations("postgresql"), NEWEST + 1: script}
        monkeypatch.setattr(setup, "migrations", lambda _dialect: scripts)

    return become


def test_a_migration_while_old_clients_write(url, newer):
    with open_store(url) as old:
        stop = threading.Event()
        written = [0]

        def write():
            while not stop.is_set():
                say(old, "c1", "x", expected_version=written[0])
                written[0] += 1

        with in_thread(write, stop.set):
            newer(
                "ALTER TABLE {schema}.events ADD COLUMN colour text; CREATE INDEX by_colour ON"
                " {schema}.events (colour);"
            )
            with open_store(url) as new:
                say(new, "c2", "x")
            enough = written[0] + 20
            until(lambda: written[0] > enough)
        assert old.version("c1") == written[0]
    with open_store(url) as again:
        assert again.version("c2") == 1


def test_concurrent_programs_migrate_once(url, newer):
    with open_store(url) as store:
        say(store, "c1", "0")
    newer("CREATE TABLE {schema}.colours (name text);")
    barrier = threading.Barrier(4)

    def open_one(name):
        barrier.wait()
        with open_store(url) as store:
            say(store, name, "0")

    at_once(open_one, ["c2", "c3", "c4", "c5"])
    with open_store(url) as store:
        assert sorted(row.id for row in store.conversations()) == ["c1", "c2", "c3", "c4", "c5"]


def test_a_migration_may_refuse_older_programs(url, newer, monkeypatch):
    open_store(url).close()
    newer(f"UPDATE {{schema}}.store SET value = '{NEWEST + 1}' WHERE name = 'readable_by';")
    open_store(url).close()
    monkeypatch.undo()
    with pytest.raises(StoreRefused, match=f"has schema {NEWEST + 1}.* up to {NEWEST}; upgrade"):
        open_store(url)


def test_a_migration_retries_its_lock(url, schema, newer, monkeypatch):
    open_store(url).close()
    monkeypatch.setattr(setup, "_LOCK_WAIT", "100ms")
    newer("ALTER TABLE {schema}.events ADD COLUMN colour text;")
    with psycopg.connect(url.partition("?")[0]) as reading:
        reading.execute(f"SELECT * FROM {schema}.events")
        with in_thread(lambda: open_store(url).close(), reading.rollback) as opening:
            opening.join(0.5)
            assert opening.is_alive()


def test_a_failed_migration_changes_nothing(url, schema, newer, postgres_server):
    open_store(url).close()
    newer("ALTER TABLE {schema}.events ADD COLUMN colour text; SELECT 1 / 0;")
    with pytest.raises(StoreRefused, match="division by zero"):
        open_store(url)
    facts = postgres_server.sql(f"SELECT value FROM {schema}.store WHERE name = 'schema'")
    assert facts == str(NEWEST)
    assert "colour" not in postgres_server.sql(
        "SELECT string_agg(attname, ',') FROM pg_attribute WHERE attrelid ="
        f" '{schema}.events'::regclass"
    )


def test_a_newer_store_is_refused_unless_readable(url, schema, postgres_server):
    open_store(url).close()
    postgres_server.sql(f"UPDATE {schema}.store SET value = '{NEWEST + 3}' WHERE name = 'schema'")
    open_store(url).close()
    postgres_server.sql(
        f"UPDATE {schema}.store SET value = '{NEWEST + 1}' WHERE name = 'readable_by'"
    )
    with pytest.raises(StoreRefused, match=f"has schema {NEWEST + 3}.*upgrade foldlog"):
        open_store(url)


@pytest.mark.parametrize("stores", [1, 2])
def test_parts_of_a_newer_store_are_named_as_not_checked(url, schema, postgres_server, stores):
    """Who sets the number turns off the comparison of triggers, but not unseen."""
    several = f"{url}&stores={stores}" if stores > 1 else url
    with open_store(several) as store:
        say(store, "c", "0")
        *_, sound = verify(store)
        first = f"{schema}_00" if stores > 1 else schema
        postgres_server.sql(
            f"UPDATE {first}.store SET value = '{NEWEST + 3}' WHERE name = 'schema'"
        )
        *_, verdict = verify(store)
    assert sound.findings == ()
    [finding] = verdict.findings
    assert finding.unproved
    assert f"has schema {NEWEST + 3}, and this version" in finding.problem
    assert finding.problem.startswith("store 0: its tables" if stores > 1 else "its tables")


@pytest.mark.parametrize("name, lacking", [("part", "part"), ("schema", "version")])
def test_a_damaged_fact_is_a_damaged_store(url, schema, postgres_server, name, lacking):
    open_store(url).close()
    postgres_server.sql(f"UPDATE {schema}.store SET value = '1x' WHERE name = '{name}'")
    with pytest.raises(StoreDamaged, match=f"has no valid {lacking}; restore a backup"):
        open_store(url)


@pytest.mark.parametrize("without", ["made_by", "%"], ids=["the version", "all facts"])
def test_a_development_store_is_refused_unchanged(url, schema, postgres_server, without):
    with open_store(url) as store:
        say(store, "c1", "0")
    postgres_server.sql(f"DELETE FROM {schema}.store WHERE name LIKE '{without}'")
    state = f"SELECT string_agg(t::text, ',') FROM {schema}.%s t"
    before = [postgres_server.sql(state % table) for table in ("store", "events", "epoch")]
    for mode in ("rwc", "rw", "ro"):
        with pytest.raises(
            StoreRefused, match=r"in schema '.*' was written by a development version .*not damaged"
        ):
            open_store(f"{url}&mode={mode}")
    assert before == [postgres_server.sql(state % table) for table in ("store", "events", "epoch")]


def test_a_foreign_schema_is_left_alone(url, schema, postgres_server):
    postgres_server.sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.accounts (id int)")
    with pytest.raises(StoreRefused, match="is not a foldlog store; choose another schema"):
        open_store(url)


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_only_mode_rwc_makes_a_store(url, mode):
    with pytest.raises(StoreRefused, match="of this database has no store"):
        open_store(f"{url}&mode={mode}")
    open_store(url).close()
    open_store(f"{url}&mode={mode}").close()


def script_of_page(mark, schema):
    """Return the SQL of the page for operators that has a mark in it, for the schema of a test."""
    page = (Path(__file__).parents[2] / "docs" / "POSTGRESQL.md").read_text()
    blocks = page.split("```")
    [block] = [block for block in blocks if block.startswith("sql") and mark in block]
    lines = block.removeprefix("sql").splitlines()
    script = "\n".join(line for line in lines if not line.startswith("--"))
    return script.replace("SCHEMA foldlog", f"SCHEMA {schema}").replace("foldlog.", f"{schema}.")


@pytest.fixture
def role(url, schema, postgres_server):
    """A role with the rights that the page for operators says, made by the very statements that
    stand there.
    """
    open_store(url).close()
    script = script_of_page("-- then, as the owner", schema).replace("foldlog", "worker")
    postgres_server.sql(f"CREATE ROLE worker LOGIN;{script}")
    yield "worker"
    postgres_server.sql("DROP OWNED BY worker; DROP ROLE worker")


def test_a_worker_role_does_all_daily_work_and_changes_no_table(url, schema, role):
    with open_store(url.replace("postgres@", f"{role}@")) as store:
        say(store, "c1", "0", idempotency_key="k")
        store.ingest("c2", [said("x")] * 1_100)
        assert say(store, "c1", "0", expected_version=0, idempotency_key="k")[0].id == 0
        assert len(list(store.follow())) == 1_101
        with psycopg.connect(url.partition("?")[0].replace("postgres@", f"{role}@")) as connection:
            for statement in (
                "DROP TABLE {}.events",
                "TRUNCATE {}.events",
                "CREATE TABLE {}.mine (id int)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.format(schema))
                connection.rollback()


def test_a_role_without_vacuum_erases(url, schema, role, postgres_server):
    with open_store(url.replace("postgres@", f"{role}@")) as store:
        say(store, "c1", "secret")
        assert erased(store, "c1").bytes_pending
        if int(postgres_server.sql("SHOW server_version_num")) >= 170_000:
            postgres_server.sql(f"GRANT MAINTAIN ON ALL TABLES IN SCHEMA {schema} TO {role}")
            assert not erased(store, "c1").bytes_pending
    with open_store(url) as store:
        assert not erased(store, "c1").bytes_pending
        assert (
            postgres_server.sql(f"SELECT count(*) FROM {schema}.events WHERE conversation > 0")
            == "0"
        )


@pytest.mark.parametrize(
    "removal",
    [
        "store erase c1 --reason gdpr --yes",
        "store redact c1 0 --reason gdpr --yes",
        "store redact c1 --matching zebra --reason gdpr --yes",
        "store rekey c1",
    ],
)
def test_bytes_stay_pending_until_a_vacuum(url, role, foldlog, removal, monkeypatch):
    of_role = url.replace("postgres@", f"{role}@")
    with open_store(url) as store:
        say(store, "c1", "a zebra in the text", "and another one")
        assert not store.database.bytes_pending
    if "rekey" in removal:
        monkeypatch.setenv("FOLDLOG_KEY", "ab" * 32)
    advice = "run as the owner of the tables: foldlog store vacuum"
    assert foldlog(removal, "--db", of_role).err.count(advice) == 1

    def check(db, pending):
        if "erase" in removal:
            assert foldlog("list --json", "--db", db).rows("bytes_pending") == [pending]
        with open_store(db) as store:
            assert store.database.bytes_pending is pending

    check(of_role, True)
    check(url, True)
    refused = foldlog("store vacuum --json", "--db", of_role)
    document = refused.document
    assert (refused.status, document["bytes_pending"], document["bytes_before"]) == (1, True, None)
    assert advice in refused.err
    vacuumed = foldlog("store vacuum --json", "--db", url)
    assert (vacuumed.status, vacuumed.err) == (0, "")
    assert vacuumed.document == document | {"bytes_pending": False, "space_returned": True}
    check(of_role, False)


def test_an_erasure_during_a_vacuum_stays_pending(url, monkeypatch):
    with foldlog.open(url) as histories:
        for name in ("c1", "c2"):
            histories[name].append([said("0"), said("1")])
        histories.erase("c1", reason="asked for", complete=False)

        erase_another = partial(histories.erase, "c2", reason="asked for", complete=False)
        before_next_call(monkeypatch, Tables, "vacuum", erase_another)
        assert histories.maintenance.vacuum().bytes_pending
        assert not histories.maintenance.vacuum().bytes_pending


def test_an_encrypted_conversation_leaves_no_bytes(url):
    with open_store(url, keys=KeyRing("ab" * 32)) as store:
        say(store, "c1", "0")
        assert not store.database.bytes_pending


@pytest.fixture
def restored(url, schema, role, postgres_server, other_server):
    """The URL of the same role on another server, on which a dump of the store was restored."""
    with open_store(url.replace("postgres@", f"{role}@")) as store:
        say(store, "c1", "0")
    dump = postgres_server.run("pg_dump", "-d", "postgres", "-n", schema)
    other_server.sql(
        f"CREATE ROLE {role} LOGIN; CREATE ROLE the_owner LOGIN; GRANT CREATE ON DATABASE postgres"
        " TO the_owner"
    )
    script = other_server.folder / "dump.sql"
    script.write_text(dump.replace("OWNER TO postgres", "OWNER TO the_owner"))
    script.chmod(0o644)
    other_server.run("psql", "-q", "-X", "-d", "postgres", "-f", script)
    yield other_server.url(user=role, schema=schema, patience_s="60")
    other_server.sql(
        "".join(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name};" for name in (role, "the_owner"))
    )


def test_a_worker_role_continues_after_a_restore(url, role, restored):
    with open_store(url.replace("postgres@", f"{role}@")) as store:
        place = list(store.follow())[-1].position
    with open_store(restored) as store:
        [recorded] = say(store, "c1", "1")
        assert list(store.follow(place)) == [recorded]


def test_a_role_that_may_not_begin_epochs(schema, role, restored, foldlog):
    as_owner = restored.replace(f"{role}@", "the_owner@")
    with psycopg.connect(as_owner.partition("?")[0], autocommit=True) as connection:
        connection.execute(f"REVOKE EXECUTE ON FUNCTION {schema}.begin_epoch FROM PUBLIC")
        connection.execute(f"REVOKE EXECUTE ON FUNCTION {schema}.begin_epoch FROM {role}")
    with pytest.raises(
        StoreRefused, match=r"may not begin its new epoch.*as 'the_owner', the owner"
    ) as refused:
        open_store(restored)
    assert "tried for" not in str(refused.value)
    advice = re.search(r"foldlog list --db '([^']+)'", str(refused.value))
    assert foldlog("list --db", advice[1]).status == 0
    with open_store(restored) as store:
        say(store, "c1", "1")


def test_a_role_that_may_not_migrate(url, role, newer):
    newer("ALTER TABLE {schema}.events ADD COLUMN colour text;")
    with pytest.raises(
        StoreRefused,
        match=rf"needs {NEWEST + 1}; as 'postgres', the owner of its tables, run: foldlog list",
    ):
        open_store(url.replace("postgres@", f"{role}@"))


SOUND = setup.ServerSettings(17, False, False, False)


@pytest.mark.parametrize(
    "settings, how, error, words",
    [
        (SOUND._replace(version=13), {}, StoreUnavailable, "PostgreSQL 13; foldlog needs 14 or"),
        (SOUND._replace(version=14), {}, None, ""),
        (SOUND._replace(is_standby=True), {}, wire.IsStandby, "this server is a standby"),
        (SOUND._replace(is_standby=True), {"writable": False}, None, ""),
        (SOUND._replace(commit_is_off=True), {}, StoreUnavailable, "synchronous_commit is off"),
        (
            SOUND._replace(fsync_is_off=True),
            {},
            StoreUnavailable,
            "fsync is off on .* set fsync to",
        ),
        (SOUND._replace(fsync_is_off=True), {"durable": False}, None, ""),
        (SOUND._replace(fsync_is_off=True), {"writable": False}, None, ""),
    ],
)
def test_settings_that_could_lose_events_are_refused(settings, how, error, words):
    def check():
        setup._check_settings(settings, **{"writable": True, "durable": True, **how})

    if error is None:
        check()
    else:
        with pytest.raises(error, match=words):
            check()


def test_a_store_without_its_epoch_is_damaged(url, schema, postgres_server):
    open_store(url).close()
    postgres_server.sql(f"DELETE FROM {schema}.epoch")
    with pytest.raises(StoreDamaged, match=f"store in schema '{schema}' is damaged: it has no"):
        open_store(url)


def test_work_that_ignores_an_error_writes_nothing(url):
    def work(transaction):
        transaction.set_value("fact", "x")
        with suppress(EventStoreError):
            ask_in(transaction, "SELECT (1 / 0)::text::bytea")

    with open_store(url) as store:
        say(store, "c1", "0")
        with pytest.raises(StoreRefused, match="the work ignored the error; nothing was written"):
            store.database.recorder.transact(work)
        assert store.database.recorder.value("fact") == ""


def test_a_reader_migrates_nothing(url, newer, schema, postgres_server):
    open_store(url).close()
    newer("ALTER TABLE {schema}.events ADD COLUMN colour text;")
    with pytest.raises(StoreRefused, match=f"but this version of foldlog needs {NEWEST + 1}") as e:
        open_store(f"{url}&mode=ro")
    assert e.value.kind == "schema"
    version = f"SELECT value FROM {schema}.store WHERE name = 'schema'"
    assert postgres_server.sql(version) == str(NEWEST)


def test_a_role_that_may_not_make_stores(url, postgres_server):
    postgres_server.sql("CREATE ROLE nobody_much LOGIN")
    try:
        with pytest.raises(
            StoreRefused,
            match=r"permission denied for database .*has to grant this role its rights",
        ):
            open_store(url.replace("postgres@", "nobody_much@"))
        open_store(url).close()
        with pytest.raises(
            StoreRefused, match=r"permission denied for schema .*; the owner of the store"
        ) as refused:
            open_store(url.replace("postgres@", "nobody_much@"))
        assert "SELECT" not in str(refused.value)
    finally:
        postgres_server.sql("DROP ROLE nobody_much")


@pytest.mark.parametrize(
    "change, message",
    [
        (("?", "?colour=red&"), 'invalid URI query parameter: "colour"'),
        (("?", "?partitions=4&"), 'invalid URI query parameter: "partitions"'),
        (("?", "?mode=append&"), "sets mode to 'append'; it can be rwc, rw, ro"),
        (("?", "?pooler=session&"), "sets pooler to 'session'; it can be none, transaction"),
        (
            ("?", "?connections_max=0&"),
            "sets connections_max to '0'; use a whole number from 1 to 999999",
        ),
        (("?", "?stores=3&"), "sets stores to '3'; it can be 2, 4, 8, 16, 32, 64"),
        (
            ("?", "?patience_s=soon&"),
            "sets patience_s to 'soon'; use a whole number from 1 to 999999",
        ),
        (("127.0.0.1:", "127.0.0.1:1"), "invalid port number|onnection"),
        (("/postgres?", "/nothing?"), 'database "nothing" does not exist'),
        (("postgres:", "nobody_here:"), 'role "nobody_here" does not exist'),
    ],
)
def test_wrong_urls_are_refused_without_passwords(url, change, message):
    scheme, _, rest = url.replace("postgres@", "postgres:secret@").partition("//")
    wrong = f"{scheme}//{rest.replace(*change, 1)}"
    with pytest.raises((InvalidOption, StoreUnavailable), match=message) as refused:
        open_store(wrong)
    assert not any(part in str(refused.value) for part in ("secret", "\n", "tried for"))


def test_connections_are_bounded_and_waited_for(url, postgres_server):
    with open_store(url + "&connections_max=3&application_name=bounded") as store:
        at_once(lambda n: say(store, f"c{n % 7}", "x"), range(60))
        assert len(list(store.follow())) == 60
        open_now = postgres_server.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bounded'"
        )
        assert 1 <= int(open_now) <= 3


def test_a_long_wait_for_a_connection(url):
    with open_store(url.replace("patience_s=60", "patience_s=1") + "&connections_max=1") as store:
        say(store, "c1", "x")
        with (
            reading(store, "c1"),
            pytest.raises(StoreUnavailable, match="all 1 connections were in use for 1 s"),
        ):
            store.version("c1")
        assert store.version("c1") == 1


PREPARED = "SELECT count(*)::text::bytea FROM pg_prepared_statements"


def test_a_store_without_prepared_statements(url):
    """A pooler may give every transaction another connection to the server."""
    with open_store(url + "&pooler=transaction") as store:
        say(store, "c1", "0", "1", idempotency_key="k")
        assert say(store, "c1", "0", "1", expected_version=0, idempotency_key="k")[0].id == 0
        assert [event.content for event in store.events("c1")] == ["0", "1"]
        assert ask(store, PREPARED) == "0"
    with open_store(url) as store:
        say(store, "c1", "2")
        assert ask(store, PREPARED) != "0"


def test_a_pooler_that_shares_prepared_statements_is_refused(url, monkeypatch):
    """Such a pooler gives the client another number of a session, and the server has the client's
    names. Another pooler gives the statements names of its own.
    """
    with open_store(url) as store, store.database.recorder.read() as reader:
        assert reader.ask("passes_names_through", b"greet", 0) == [(True,)]
        assert reader.ask("passes_names_through", b"a name of the pooler", 0) == [(False,)]
    open_store(url + "&pooler=prepared").close()
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 0)
    with pytest.raises(StoreRefused, match="does not keep the prepared statements of its clients"):
        open_store(url + "&pooler=prepared")


def test_ids_and_keys_longer_than_index_entries(url):
    """An index entry has at most 8,191 bytes. Longer ids that differ only at their ends are listed
    in the order of their bytes.
    """
    names = [f"{'x' * 9_000}{n}" for n in range(5)]
    with open_store(url) as store:
        for name in reversed(names):
            say(store, name, name[-1], idempotency_key=name)
        assert [row.id for row in store.conversations(limit=3)] == names[:3]
        assert [row.id for row in store.conversations(after=names[2])] == names[3:]
        assert say(store, names[0], "0", expected_version=0, idempotency_key=names[0])[0].id == 0
        assert store.version(names[4]) == 1


@pytest.mark.parametrize(
    "url, shown",
    [
        (
            "postgresql://me:se@c:ret@h1:5432,h2/db?schema=a",
            "postgresql://me:***@h1:5432,h2/db?schema=a",
        ),
        (
            "postgresql://h/db?user=me&password=secret&schema=a",
            "postgresql://h/db?user=me&password=***&schema=a",
        ),
        ("postgresql://me@h:5432/db", "postgresql://me@h:5432/db"),
        ("sqlite:////srv/a@b.db", "sqlite:////srv/a@b.db"),
        ("mysql://me:secret@h/db", "mysql://me:***@h/db"),
        ("postgresql+psycopg://me:secret@h/db", "postgresql+psycopg://me:***@h/db"),
        ("postgresql://h/db?sslpassword=secret", "postgresql://h/db?sslpassword=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert without_password(url) == shown


@pytest.fixture
def roles(url, schema, postgres_server):
    """The URLs of the roles that the page for operators makes, by the very statements that stand
    there.
    """
    open_store(url).close()
    postgres_server.sql(script_of_page("foldlog_reader", schema))
    yield lambda role: url.replace("postgres@", f"{role}@")
    names = ["reports", "agent", "officer", "foldlog_reader", "foldlog_writer", "foldlog_admin"]
    postgres_server.sql("".join(f"DROP OWNED BY {role}; DROP ROLE {role};" for role in names))


@pytest.fixture
def worked(roles):
    """The URLs of the roles, after the agent has done all its work."""
    url = f"data:image/png;base64,{'aGVsbG8h' * 1_000}"
    picture = {"type": "image_url", "image_url": {"url": url}}
    with foldlog.open(roles("agent")) as histories:
        history = histories.create("c1", {"user": "ann"})
        with history.lease():
            history.append([said("secret"), said((picture,))], idempotency_key="k")
            history.append([said("x")] * 130, documents={"state": {"a": 1}})
            history.prepare()
        history.fork(3, "f").append(said("on"))
        histories.store.ingest("imported", [said("x")] * 1_100)
        assert len(histories.list({"user": "ann"}).conversations) == 2
    return roles


def test_an_agent_removes_nothing(worked):
    with foldlog.open(worked("agent")) as histories:
        with pytest.raises(EventStoreError, match="permission denied"):
            histories.erase("imported", reason="x")
        with pytest.raises(EventStoreError, match="permission denied"):
            histories["c1"].redact(1, reason="x")
        assert histories["imported"].version() == 1_100
        assert histories["c1"].view()[0].redacted is None


def test_a_reader_reads_everything(worked):
    with foldlog.open(worked("reports") + "&mode=ro") as histories:
        assert histories["c1"].view()
        assert len(list(histories.store.follow())) > 1_200
        assert {hit.conversation for hit in histories.search("secret")} == {"c1"}
        assert not [verdict for verdict in histories.maintenance.verify() if verdict.findings]


def test_a_reader_writes_nothing(worked):
    with (
        foldlog.open(worked("reports") + "&mode=ro") as histories,
        pytest.raises(StoreRefused, match="open for reading only"),
    ):
        histories["c1"].append(said("no"))
    with (
        pytest.raises(EventStoreError, match="permission denied"),
        foldlog.open(worked("reports")) as histories,
    ):
        histories["c1"].append(said("no"))


def test_an_officer_redacts_and_erases(worked):
    with foldlog.open(worked("officer")) as histories:
        histories["c1"].redact(1, reason="asked to")
        assert histories["c1"].view()[0].content != "secret"
        assert histories.erase("imported", reason="asked to").version == 1_100
        expired = histories.maintenance.expire(timedelta(), {"user": "ann"}).conversations
        # The fork has the attributes too, and is erased before its parent.
        assert [row.id for row in expired] == ["f", "c1"]


def test_a_refusal_in_another_language_is_known_by_its_code(url, monkeypatch):
    monkeypatch.setattr(wire, "_REFUSALS", re.compile("no text of another language matches"))
    scheme, rest = url.split("//", 1)
    place = rest.partition("@")[2] or rest
    with pytest.raises(StoreUnavailable, match=r"28000|28P01") as denied:
        open_store(f"{scheme}//nobody_here@{place}")
    assert denied.value.kind == "denied"
    parameters = conninfo_to_dict(without_options(url))
    assert refusals.states_of_refusals({**parameters, "dbname": "nothing_here"}) == ["3D000"]
    assert refusals.states_of_refusals(parameters) == []


@pytest.mark.parametrize("server", ["nowhere.invalid/db", "/db?host=/no/such/folder"])
def test_a_server_without_an_address_or_a_socket_is_away(server):
    parameters = conninfo_to_dict(f"postgresql://someone@{server}")
    assert refusals.states_of_refusals(parameters) == []
    url = f"postgresql://someone@{server}{'&' if '?' in server else '?'}patience_s=1"
    with pytest.raises(StoreUnavailable, match=r"tried for 1 s, the store was not opened") as away:
        open_store(url)
    assert away.value.kind == "away"


@pytest.mark.parametrize(
    "name, more, problem",
    [
        ("", "", "has 0 bytes"),
        ("x" * 64, "", "has 64 bytes; a name of PostgreSQL has 1 to 63"),
        ("\u00e9" * 32, "", "has 64 bytes"),
        ("x" * 61, "&stores=2", "has 64 bytes"),  # the name of each store ends with its number
        ("a%b", "", "printable characters other than %"),
        ("a\0b", "", "printable characters other than %"),
    ],
)
def test_names_that_cannot_be_schemas_are_refused(name, more, problem):
    with pytest.raises(InvalidOption, match=problem):
        open_store(f"postgresql://someone@nowhere.invalid/db?schema={quote(name)}{more}")


def test_the_command_of_the_owner_names_the_folder_of_a_socket():
    info = SimpleNamespace(host="/run/a folder", port=5433, dbname="a/b")
    command = setup._as_owner("the owner", info, "of ann")
    url = re.search("'(postgresql:[^']*)'", command)[1]
    assert parse_url(url).options == {"mode": "rwc", "schema": "of ann"}
    parameters = conninfo_to_dict(parse_url(url).path)
    assert parameters == {
        "user": "the owner",
        "host": "/run/a folder",
        "port": "5433",
        "dbname": "a/b",
    }


def without_options(url):
    return url.partition("?")[0]


@pytest.mark.parametrize(
    "where, sought",
    [
        ("/db", "primary"),
        ("a/db", "primary"),
        ("a,b/db", "read-write"),
        ("a:1,b:2/db", "read-write"),
        ("/db?hostaddr=192.0.2.1", "primary"),
        ("/db?hostaddr=192.0.2.1,192.0.2.2", "read-write"),
        ("/db?host=a,b&hostaddr=192.0.2.1,192.0.2.2", "read-write"),
        ("a,b/db?target_session_attrs=prefer-standby", "prefer-standby"),
    ],
)
def test_a_writer_seeks_a_server_that_takes_writes(where, sought):
    url = f"postgresql://{where}"
    assert recorder._parameters(url, writable=True)["target_session_attrs"] == sought
    readers = "prefer-standby" if sought == "prefer-standby" else "any"
    assert recorder._parameters(url, writable=False)["target_session_attrs"] == readers
