"""What an operator of several stores behind one address changes in one of them since a checkpoint."""

import pytest

from foldlog.eventstore import ConversationNotFound, open_store
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from tests.said import said, say
from tests.sound import changes

COUNT = 2


@pytest.fixture
def many(postgres_server):
    """Return the URL of joined stores with a fork that is in another store than its id says, a
    checkpoint, the name of the fork, and a function that changes each store.
    """
    schema = "attacked"
    url = postgres_server.url(schema=schema, stores=str(COUNT), patience_s="10")
    with open_store(url) as store:
        for name in ("a", "b", "c"):
            store.append(name, [said("one"), said("two")], expected_version=0)
        home = store.database.recorder.home
        fork = next(name for n in range(99) if home(name := f"fork {n}") != home("a"))
        store.fork("a", 1, fork)
        say(store, fork, "own")
        note = make_checkpoint(store)
        assert changes(store, note) == {}

    def run(statement):
        for number in range(COUNT):
            postgres_server.sql(statement.format(schema=f"{schema}_{number:02d}"))

    yield url, note, fork, run
    postgres_server.sql(
        "".join(f"DROP SCHEMA {schema}_{number:02d} CASCADE;" for number in range(COUNT))
    )


def test_fork_that_no_reader_finds_is_named(many):
    """A fork is in the store of its parent, and the store of its id says where it is."""
    url, note, fork, run = many
    run("DELETE FROM {schema}.facts WHERE starts_with(name, 'home ')")
    with open_store(url) as store:
        with pytest.raises(ConversationNotFound):
            store.conversation(fork)
        [found] = changes(store, note)[fork]
    assert found.startswith("no reader finds it by its id")


def test_conversation_in_a_second_store_is_named(many, postgres_server):
    """Lists and totals show the second conversation too, with what it says of itself."""
    url, note, *_ = many
    with open_store(url) as store:
        number = store.database.recorder.home("a")
    own, other = f"attacked_{number:02d}", f"attacked_{1 - number:02d}"
    key = 1_000 + 1 - number  # the remainder of a key says which store has it
    found = postgres_server.sql(
        "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_name ="
        f" 'conversations' AND table_schema = '{own}' AND column_name <> 'key'"
    )
    columns = found.strip()
    postgres_server.sql(
        f"INSERT INTO {other}.conversations (key, {columns}) OVERRIDING SYSTEM VALUE SELECT {key},"
        f" {columns} FROM {own}.conversations WHERE convert_from(id, 'UTF8') = 'a'"
    )
    columns = "id, kind, shown, structural, meta, body"
    postgres_server.sql(
        f"INSERT INTO {other}.events (position, conversation, {columns}) SELECT"
        f" (SELECT max(position) FROM {other}.events) + id + 1, {key}, {columns} FROM {own}.events"
        f" WHERE conversation = (SELECT key FROM {own}.conversations"
        " WHERE convert_from(id, 'UTF8') = 'a')"
    )
    with open_store(url) as store:
        assert [row.id for row in store.iter_conversations()].count("a") == 2
        [found] = changes(store, note)["a"]
    assert found.startswith("two of the joined stores have a conversation with this id")
