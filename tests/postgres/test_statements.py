"""Which statements need only the rows of one conversation, because Citus distributes the rows by
conversation.

The tests read the texts of the statements. The use of a table with rows of conversations is *bound*
if the key of a conversation stands beside it: a parameter, or a key in a row that the statement has
found by its key.
"""

import re
from pathlib import Path

import psycopg
import pytest

import foldlog
from foldlog.eventstore import CondensationAction, KeyRing
from foldlog.eventstore.opening import open_store
from foldlog.eventstore.recorders.postgres.recorder import ON_CITUS
from foldlog.eventstore.recorders.postgres.wire import Wire
from foldlog.eventstore.recorders.statements import commands, migrations, statements
from tests.conformance.conftest import noted
from tests.said import said

STATEMENTS = statements("postgresql")
TABLES = re.findall(
    r"^CREATE TABLE \{schema\}\.(\w+) \((.*?)^\)",
    "\n".join(migrations("postgresql").values()),
    re.MULTILINE | re.DOTALL,
)
KEYS = {"conversations": "key"} | {
    table: "conversation" for table, columns in TABLES if "    conversation " in columns
}
"""The tables that have rows of conversations, and the column that says whose."""
_NO_ALIAS = "UNION|JOIN|AS|ON|WHERE|SET|LEFT|CROSS|ORDER|USING"
USE = re.compile(
    rf"(FROM|JOIN|INTO|UPDATE) \{{schema\}}\.({'|'.join(KEYS)})\b(?: (?:AS )?(?!{_NO_ALIAS})(\w+))?"
)
GIVEN = (
    r"(\$\d+::bigint|coalesce\(i\.key, \$1::bigint\)|-?\w+\.(key|conversation|parent)\b|\(SELECT"
    r" replaces FROM)"
)
"""A parameter, or a key in a row that was found by its key: of the conversation, its ledger, parent
or tombstone.
"""

UNBOUND = dict(
    re.findall(
        r"^(\w+)(: each)?$", Path(__file__).with_name("unbound.txt").read_text(), re.MULTILINE
    )
)
"""The statements that ask for more than one conversation: see the file."""


def unbound(statement):
    """Yield the tables that a statement uses without the key of a conversation."""
    for use in USE.finditer(statement):
        what, table, alias = use.groups()
        if what == "INTO":
            columns, _, rest = statement[use.end() :].partition("(")[2].partition(")")
            place = re.split(r",\s+", columns).index(KEYS[table])
            values = re.split(r",\s+", re.split(r"VALUES \(|SELECT ", rest, maxsplit=1)[1])
            is_bound = re.match(GIVEN, values[place])
        else:
            key = rf"(?<![\w.])(?<!OR )(?:{alias}\.)?{KEYS[table]}"
            is_bound = re.search(rf"{key} = {GIVEN}", beside(statement, use.end()))
        if not is_bound:
            yield table


def beside(statement, place):
    """Return what stands behind a place, to the end of its parentheses or of its SELECT."""
    depth = 0
    for end, character in enumerate(statement[place:], place):
        depth += (character == "(") - (character == ")")
        if depth < 0 or (depth == 0 and statement.startswith("UNION", end)):
            return statement[place:end]
    return statement[place:]


def test_each_statement_is_bound_or_listed():
    names = {name for name, statement in STATEMENTS.items() if any(unbound(statement))}
    assert names == {*UNBOUND}


def test_each_table_is_named_with_its_schema():
    names = "|".join(table for table, _ in TABLES)
    without = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE) (?:{names})\b")
    assert [name for name, statement in STATEMENTS.items() if without.search(statement)] == []


# -- what Citus asks of them
# ------------------------------------------------------------------------------------------

OF_A_SERVER = re.compile(
    r"(?:\bpg_control_system|\bpg_advisory_xact_lock|\bpg_current_xact_id|\bpg_current_snapshot|\bpg_is_in_recovery|\bpg_logical_emit_message"
    r"|\{schema\}\.(?:here|timeline))\("
)
"""What another server answers differently, or does elsewhere."""
SUBSELECT = re.compile(r"\(\s*SELECT\b")
CATALOG = re.compile(r"\b(?:FROM|JOIN) pg_\w+(?!\w*\()")
COMMANDS = {
    " ".join(command.replace("OR REPLACE ", "").split()[:3]): command
    for script in migrations("postgresql").values()
    for command in commands(script)
}
ASKING = {**STATEMENTS, "begin_epoch": COMMANDS["CREATE FUNCTION {schema}.begin_epoch()"]}


def asked_elsewhere(statement):
    """Yield what a statement asks of a server, where it does not ask it of the one that has the
    tables.
    """
    for use in OF_A_SERVER.finditer(statement):
        if "FROM {schema}.epoch" not in own_select(statement, use.start()):
            yield use[0][:-1]


def own_select(statement, place):
    """Return the SELECT that a place is in, or the whole statement, without what stands in its
    parentheses.
    """
    depth = 0
    begin = place
    while begin > 0 and not (depth == 0 and SUBSELECT.match(statement, begin - 1)):
        begin -= 1
        depth = max(depth + (statement[begin] == ")") - (statement[begin] == "("), 0)
    outside = beside(statement, begin)
    while True:  # the innermost brackets go first
        flat = re.sub(r"\([^()]*\)", "", outside)
        if flat == outside:
            return outside
        outside = flat


def test_server_functions_run_beside_the_tables():
    """Otherwise Citus asks the server to which a client is connected. Then followers miss all
    events after a move of the tables, and two writers hold the lock of one conversation.
    ``deleted_rows.Tables`` sends the statements of a node to that server itself.
    """
    asking = {name: ASKING[name] for name in ASKING if not name.startswith("node_")}
    assert [name for name, statement in asking.items() if [*asked_elsewhere(statement)]] == []


@pytest.mark.parametrize(
    "statement, found",
    [
        ("SELECT pg_advisory_xact_lock($1::bigint)", ["pg_advisory_xact_lock"]),
        ("SELECT pg_advisory_xact_lock($1::bigint) FROM {schema}.epoch", []),
        (
            (
                "SELECT a, (SELECT ((pg_current_xact_id()) + e) FROM {schema}.epoch) FROM"
                " {schema}.events"
            ),
            [],
        ),
        ("SELECT a, ((pg_current_xact_id()) + e) FROM {schema}.events", ["pg_current_xact_id"]),
        (
            "SELECT (SELECT 1 FROM {schema}.epoch), {schema}.here() FROM {schema}.events",
            ["{schema}.here"],
        ),
        ("INSERT INTO {schema}.facts VALUES (pg_current_xact_id())", ["pg_current_xact_id"]),
    ],
)
def test_calls_elsewhere_are_found(statement, found):
    assert list(asked_elsewhere(statement)) == found


BESIDE_VALUES = re.compile(r"\bINSERT INTO [^;]*?\bVALUES\b(.*)", re.DOTALL)
DO_UPDATE = re.compile(r"\bDO UPDATE\s+SET\b(.*)", re.DOTALL)
CHANGES_ROWS = re.compile(r"\b(?:(?<!DO )UPDATE|DELETE FROM) \{schema\}(.*)", re.DOTALL)
VOLATILE = re.compile(
    r"\b(?:gen_random_uuid|random|clock_timestamp|nextval|pg_advisory_xact_lock|pg_current_xact_id)\("
)
STABLE = re.compile(r"\b(?:now|current_setting|pg_current_snapshot|statement_timestamp)\(")
REFUSED_BY_CITUS = {
    "a subquery beside VALUES": [
        # as put_listing was, which attributes, documents and imports need
        """INSERT INTO {schema}.listing (conversation, at, version, digests)
        VALUES (1, 2, 3, coalesce(NULL,
                (SELECT digests FROM {schema}.listing WHERE conversation = 1), ''))
        ON CONFLICT (conversation) DO UPDATE SET at = excluded.at, digests = excluded.digests""",
        """INSERT INTO {schema}.store (name, value)
        VALUES ('a', 'b'), ('c', (SELECT min(name) FROM {schema}.facts))""",
    ],
    "a subquery in DO UPDATE": [
        """INSERT INTO {schema}.facts (name, value) VALUES ('a', 'b') ON CONFLICT (name) DO UPDATE
        SET value = (SELECT value FROM {schema}.store WHERE name = 'schema')"""
    ],
    "a function in DO UPDATE that is not immutable": [
        """INSERT INTO {schema}.facts SELECT name, value FROM {schema}.store
        ON CONFLICT (name) DO UPDATE SET value = gen_random_uuid()::text""",
        """INSERT INTO {schema}.facts (name, value) VALUES ('a', 'b')
        ON CONFLICT (name) DO UPDATE SET value = now()::text""",
    ],
    "a volatile function in UPDATE or DELETE": [
        "UPDATE {schema}.facts SET value = gen_random_uuid()::text WHERE name = 'a'",
        "DELETE FROM {schema}.facts WHERE value < clock_timestamp()::text",
    ],
}
"""Statements that Citus cannot plan: ``test_citus`` asks it."""


def refused_by_citus(statement):
    """Yield what Citus would refuse in a statement."""
    values = BESIDE_VALUES.search(statement)
    do_update = DO_UPDATE.search(statement)
    changes = CHANGES_ROWS.search(statement)
    if values and SUBSELECT.search(values[1].partition("DO UPDATE")[0]):
        yield "a subquery beside VALUES"
    if do_update and SUBSELECT.search(do_update[1]):
        yield "a subquery in DO UPDATE"
    if do_update and (VOLATILE.search(do_update[1]) or STABLE.search(do_update[1])):
        yield "a function in DO UPDATE that is not immutable"
    if changes and VOLATILE.search(changes[1]):
        yield "a volatile function in UPDATE or DELETE"


def test_citus_can_plan_each_statement():
    refused = {
        name: reasons
        for name, statement in statements("postgresql", ON_CITUS).items()
        if (reasons := [*refused_by_citus(statement)])
    }
    assert refused == {}


@pytest.mark.parametrize("reason", REFUSED_BY_CITUS)
def test_statements_without_a_plan_are_found(reason):
    found = [[*refused_by_citus(statement)] for statement in REFUSED_BY_CITUS[reason]]
    assert found == [[reason]] * len(found)


def test_events_are_inserted_beside_the_tables():
    """Citus copies the rows of an INSERT that reads no table of the store, and commits them in two
    phases.
    """
    for name in ("insert_event", "insert_events"):
        assert "FROM {schema}." in statements("postgresql", ON_CITUS)[name]


def test_no_statement_joins_a_catalog():
    table = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE) (?:ONLY )?\{schema\}\.\w+(?!\w*\()")
    joining = [
        name
        for name, statement in {**COMMANDS, **STATEMENTS}.items()
        if CATALOG.search(statement) and table.search(statement)
    ]
    assert joining == []


def test_a_store_is_made_in_single_commands(url, monkeypatch):
    calls = noted(monkeypatch, psycopg.Connection, "execute")
    open_store(url).close()
    sent = [query.decode() if isinstance(query, bytes) else str(query) for _, query, *_ in calls]
    assert sum("CREATE TABLE" in query for query in sent) > 10
    for query in sent:
        assert (
            re.sub(r"\$(\w*)\$.*\$\1\$", "", query, flags=re.DOTALL).strip().rstrip(";").count(";")
            == 0
        )
        assert "ALTER TABLE" not in query


@pytest.mark.parametrize("keys", [None, KeyRing("ab" * 32)], ids=["plain", "encrypted"])
def test_daily_work_asks_for_one_conversation(url, monkeypatch, keys):
    """An append, a View, a past View, a record, a document and a fork find the conversation by its
    id once, and from then on name its key.
    """
    calls = noted(monkeypatch, Wire, "queue")
    with foldlog.open(url, keys=keys) as ours, foldlog.open(url, keys=keys) as other:
        history = ours.create("c1", {"user": "ann"})
        calls.clear()  # From here on, the connections are open.
        history.append([said(str(n)) for n in range(9)])
        history.append(said("known"), idempotency_key="turn-1")
        other["c1"].append(said("turn by turn"))
        history.append(said(({"type": "image_url", "image_url": {"url": b"GIF89a"}},)))
        history.append(CondensationAction(forgotten_event_ids=[2, 3]))
        history.set_attributes(user="bob")
        history.retract(14)
        assert len(other["c1"].at(12).events) == 11
        assert other["c1"].attributes() == {"user": "bob"}
        assert len(other["c1"].view().events) == 10
        fork = other["c1"].fork(5)
        fork.append(said("elsewhere"))
        assert ours[fork.id].view().events
    sent = {name for _, name, *_ in calls}
    of_lists = {"put_listed", "key_ids"}  # attributes; whether a plain fork may begin
    assert sent & {*UNBOUND} - of_lists == {"conversation"}
    assert {"insert_event", "put_record", "flagged_rows", "attach"} < sent


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        (
            "leave_listed",
            "7",
            r"Index Cond: .*digest = ANY.* AND \(at = .* AND \(conversation = \$1",
        ),
        (
            "live_rows",
            "0, 9e18::bigint, 1000",
            r"using conversations_erased on conversations c ",
        ),
        ("blocks", "7, 14000, 8", r"Index Cond: .*conversation = \$1\) AND \(first >= COALESCE"),
    ],
)
def test_large_tables_are_read_by_index(url, schema, postgres_server, name, arguments, expected):
    """To leave lists, and to follow past what is erased: other plans read an entry of each
    conversation. To read a page of the blocks of a source: other plans read all earlier blocks.
    """
    open_store(url).close()
    plan = postgres_server.sql(
        f"INSERT INTO {schema}.listed SELECT decode(repeat('00', 16), 'hex'), n, n FROM"
        f" generate_series(1, 2000) n;INSERT INTO {schema}.conversations (key, id, visible,"
        " created_at, erased_at) SELECT n, n::text::bytea, true, 1, CASE WHEN n = 7 THEN 1 END"
        f" FROM generate_series(1, 5000) n;INSERT INTO {schema}.events SELECT n, m, n * 3 + m,"
        " true, false, 'message', '', '' FROM generate_series(1, 5000) n, generate_series(0, 2)"
        f" m;INSERT INTO {schema}.blocks SELECT 7, n * 3, 3, 0, '', '' FROM generate_series(0, 5000)"
        f" n;ANALYZE; SET plan_cache_mode = force_generic_plan;PREPARE q AS"
        f" {STATEMENTS[name].replace('{schema}', schema)}; EXPLAIN EXECUTE q ({arguments})"
    )
    assert re.search(expected, plan), plan


# -- statements of several stores behind one connection
# --------------------------------------------------------------------------------------------------

OF_ONE_OF_SEVERAL = {
    "put_source",
    "set_progress",
    "put_block",
    "delete_blocks_between",
    "put_made",
    "put_place",
    "put_refused",
}


JOINED_BY_ASK = {"unfinished", "to_list_again", "figure_replies_chosen"}
"""The statements for which ``ask`` itself joins the answers of several stores: ``ask`` of the reader
of several stores, and ``ask`` of ``FigureTables``.
"""


def test_whole_stores_are_asked_one_by_one():
    """Each ``ask`` with the name of its statement in the call. Names in variables are not seen."""
    folder = Path(foldlog.__file__).parent
    files = [*folder.glob("eventstore/**/*.py"), *folder.glob("_*/**/*.py")]
    call = re.compile(
        r'\b(?:reader|transaction|self|_transaction_of\(\w+\))\.ask\(\s*"(\w+)"',
    )
    asked = {name for file in files for name in call.findall(file.read_text())}
    assert {"positions", "store_value", "streams"} <= asked
    asked_together = {name for name, is_each in UNBOUND.items() if not is_each}
    assert asked & asked_together == JOINED_BY_ASK


def place_of_key(name):
    """Return the index of the parameter that is the key of a conversation, or None."""
    statement = STATEMENTS[name]
    if name in OF_ONE_OF_SEVERAL and statement.startswith("INSERT"):
        columns = re.split(r",\s+", statement.partition("(")[2].partition(")")[0])
        return columns.index("conversation")
    if statement.startswith(("SELECT", "WITH RECURSIVE past")) or name in OF_ONE_OF_SEVERAL:
        match = re.search(
            r"(?:\b(?:conversation|key|parent) = |^    SELECT )\$(\d)::bigint",
            statement,
            re.MULTILINE,
        )
        return None if match is None else int(match[1]) - 1
    return None


def test_keys_in_statements_choose_the_store():
    """The first parameter of a statement about one conversation is the conversation's key, which
    tells the store that is asked.
    """
    places = {name: place_of_key(name) for name in STATEMENTS if not name.startswith("stands")}
    recognized = [name for name, place in places.items() if place is not None]
    # A lower number means that a statement is written in a form that ``place_of_key`` does not know.
    assert len(recognized) >= 47
    assert {*recognized} >= OF_ONE_OF_SEVERAL | {"rows", "state", "stream", "lineage", "forks"}
    assert [name for name in recognized if places[name] != 0] == []
