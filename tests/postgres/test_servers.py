"""A store on each server that its users may have: other encodings, settings, roles, languages,
poolers and versions.
"""

import os
import shutil
import subprocess

import psycopg
import pytest

from foldlog.eventstore import StoreRefused, StoreUnavailable, open_store
from foldlog.eventstore.maintenance.erase import erase
from tests.said import say, texts
from tests.sound import assert_sound

from .every_operation import TEXT, run
from .pooler import Pooler
from .servers import Server, installed_programs

ROLE = """
CREATE ROLE odd SUPERUSER LOGIN;
ALTER ROLE odd SET client_encoding = 'LATIN1';
ALTER ROLE odd SET standard_conforming_strings = off;
ALTER ROLE odd SET DateStyle = 'German, DMY';
ALTER ROLE odd SET IntervalStyle = 'sql_standard';
ALTER ROLE odd SET TimeZone = 'Asia/Kolkata';
ALTER ROLE odd SET bytea_output = 'escape';
ALTER ROLE odd SET extra_float_digits = -15;
ALTER ROLE odd SET search_path = '';
ALTER ROLE odd SET quote_all_identifiers = on;
ALTER ROLE odd SET transform_null_equals = on;
ALTER ROLE odd SET array_nulls = off;
ALTER ROLE odd SET client_min_messages = 'debug1';
ALTER ROLE odd SET default_transaction_isolation = 'serializable';
ALTER ROLE odd SET default_transaction_read_only = on;
ALTER ROLE odd SET default_transaction_deferrable = on;
ALTER ROLE odd SET statement_timeout = '20ms';
ALTER ROLE odd SET idle_session_timeout = '1s';
"""
"""Every setting that changes how a client reads, writes or commits, at a value that few have."""

DATABASES = {
    "SQL_ASCII": "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'",
    "LATIN1": "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
}
ICU = """CREATE DATABASE of_icu ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de'
    LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"""
LOCALE = "de_DE.UTF-8"
PATIENCE_S = 60


@pytest.fixture
def database(postgres_server):
    """Return a function that makes a database and returns its URL."""
    names = []

    def make(kind):
        name = f"of_{kind.lower()}"
        postgres_server.sql(f"CREATE DATABASE {name} {DATABASES[kind]} TEMPLATE template0")
        names.append(name)
        return postgres_server.url(name, patience_s=str(PATIENCE_S))

    yield make
    for name in names:
        postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def odd_role(postgres_server, url):
    postgres_server.sql(ROLE)
    yield url.replace("postgres@", "odd@")
    postgres_server.sql("DROP OWNED BY odd CASCADE; DROP ROLE odd")


@pytest.fixture(params=["SQL_ASCII", "odd settings"])
def odd_url(request):
    if request.param == "odd settings":
        return request.getfixturevalue("odd_role")
    return request.getfixturevalue("database")(request.param)


def failures(url):
    return {outcome.operation: outcome.error for outcome in run(url) if outcome.error}


def check_all(server, database="postgres"):
    """Check that every operation works, and that no erasure waits as long as it may."""
    outcomes = list(run(server.url(database, patience_s=str(PATIENCE_S))))
    assert [outcome for outcome in outcomes if outcome.error] == []
    removals = ("erase", "redact", "vacuum")
    removing = [outcome for outcome in outcomes if outcome.operation.startswith(removals)]
    assert max(outcome.seconds for outcome in removing) < PATIENCE_S / 2


def test_a_store_on_an_odd_server_keeps_any_text(odd_url):
    for times in (1, 2):
        with open_store(odd_url) as store:
            say(store, "ä", TEXT)
            assert texts(store, "ä") == [TEXT] * times
    with open_store(odd_url) as store:
        assert_sound(store)
        assert not erase(store, "ä", reason=TEXT).bytes_pending
        assert store.conversation("ä").erased_reason == TEXT


@pytest.mark.long
def test_every_operation_works_on_an_odd_server(odd_url):
    assert failures(odd_url) == {}


def schemas(url):
    with psycopg.connect(url.partition("?")[0]) as connection:
        query = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'foldlog%'"
        return [name for (name,) in connection.execute(query)]


def test_a_narrow_encoding_is_refused(database):
    url = database("LATIN1")
    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"has the encoding LATIN1.*ENCODING 'UTF8'"):
            open_store(url)
    assert schemas(url) == []


# -- servers of other programs
# ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def german_locale(postgres_server):
    """A folder with the locale of German messages, which need not be installed."""
    folder = postgres_server.folder.parent / "locales"
    folder.mkdir()
    folder.chmod(0o755)
    if not shutil.which("localedef"):
        pytest.skip("the program localedef makes the German locale, and is not installed")
    made = subprocess.run(
        ["localedef", "-c", "-i", "de_DE", "-f", "UTF-8", folder / LOCALE],
        capture_output=True,
        text=True,
        check=False,
    )
    if not (folder / LOCALE).exists():
        pytest.skip(f"localedef makes no German locale: {made.stderr}")
    return folder


@pytest.fixture(
    params=installed_programs() or [None], ids=lambda folder: str(folder).replace("/", " ").strip()
)
def programs(request):
    if request.param is None:
        pytest.skip("there is no other PostgreSQL: install Debian's, or the wheel pgserver")
    return request.param


@pytest.fixture
def started(folder):
    """Return a function that starts a server in a new folder."""
    servers = []

    def start(settings=None, **options):
        server = Server(folder / f"server{len(servers)}", **options)
        server.initialize(settings or {})
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop("immediate")


@pytest.mark.long
@pytest.mark.parametrize("collation", ["C", "ICU"])
def test_every_operation_works_on_another_version(programs, started, collation):
    server = started(programs=programs)
    database = "postgres"
    if collation == "ICU":
        database = "of_icu"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            try:
                connection.execute(ICU)
            except psycopg.errors.SyntaxError:
                pytest.skip("a database has an ICU collation from PostgreSQL 15 on")
            except psycopg.errors.FeatureNotSupported as error:
                pytest.skip(f"{programs}: {error}")
    check_all(server, database)


@pytest.mark.long
def test_every_operation_works_in_german(programs, started, german_locale):
    server = started(
        {"lc_messages": LOCALE},
        programs=programs,
        environment={"LOCPATH": str(german_locale), "LC_ALL": LOCALE},
    )
    with psycopg.connect(server.url()) as connection, pytest.raises(psycopg.Error) as error:
        connection.execute("SELECT * FROM nowhere")
    if "existiert nicht" not in str(error.value):
        pytest.skip(f"{programs} has no German messages")
    check_all(server)


# -- pgbouncer
# ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pooled(postgres_server, schema):
    """Return a function that starts pgbouncer and returns the URL of the store through it."""
    program = os.environ.get("FOLDLOG_PGBOUNCER") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("pgbouncer is not installed, and FOLDLOG_PGBOUNCER does not name it")
    poolers = []

    def start(pool_mode):
        poolers.append(Pooler(program, postgres_server, pool_mode))
        return poolers[-1].url(schema=schema, patience_s="5")

    yield start
    for pooler in poolers:
        pooler.stop()
        shutil.rmtree(pooler.folder)


@pytest.mark.long
@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
def test_every_operation_works_through_pgbouncer(pooled, pool_mode):
    assert failures(pooled(pool_mode)) == {}


@pytest.mark.long
def test_pgbouncer_needs_transactions(pooled):
    url = pooled("statement")
    with (
        pytest.raises(StoreRefused, match="pool_mode of PgBouncer to transaction"),
        open_store(url) as store,
    ):
        say(store, "c1", TEXT)


@pytest.mark.long
def test_pgbouncer_needs_the_option_pooler(pooled):
    url = pooled("transaction")
    for mode in ("transaction", "prepared"):
        url = url.replace(f"&pooler={mode}", "")
    with pytest.raises((StoreUnavailable, StoreRefused), match="the URL needs pooler=prepared"):
        open_store(url)


@pytest.mark.long
def test_pgbouncer_keeps_statements_or_is_refused(pooled):
    """Otherwise a client could run a statement that another client has prepared for another store."""
    url = pooled("transaction")
    prepared = url.replace("pooler=transaction", "pooler=prepared")
    for _ in range(2):
        if url == prepared:
            with open_store(prepared) as store:
                say(store, "c1", TEXT)
        else:
            with pytest.raises(StoreRefused, match=r"set pooler=transaction|pooler=transaction if"):
                open_store(prepared)
