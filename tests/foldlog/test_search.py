"""Full-text search: what is found, that each event is in the index once, and that erased texts are in it no more."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from pydantic import SecretStr

import foldlog
from foldlog._follower import Follower
from foldlog._history.histories import Histories
from foldlog._maintenance import Maintenance
from foldlog._reports.audit_database import update
from foldlog._search import SearchIndex, SearchRefused
from foldlog._search.hits import Wanted, terms_of
from foldlog._search.index import index_path
from foldlog._search.sqlite_tables import SQLiteTables
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    ConversationNotFound,
    DocumentChanges,
    InvalidArgument,
    Message,
    Observation,
    Store,
    open_store,
)
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from tests.at_once import at_once
from tests.condensers.made import parts_with
from tests.how_many import examples
from tests.postgres.servers import Server

PATIENCE_S = 60.0


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url")())
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/history.db"


def say(store: Store, conversation: str, *texts: str, source: str = "user") -> None:
    events = [Message(source=source, content=text) for text in texts]
    store.append(conversation, events, expected_version=ANY_VERSION)


def found(index: SearchIndex | Histories, words: str, **filters: object) -> list[tuple[str, int]]:
    return sorted((hit.conversation, hit.id) for hit in index.search(words, **filters))


def test_events_of_all_conversations_are_found_by_their_words(url: str):
    with foldlog.open(url) as histories:
        store = histories.store
        say(store, "a", "The gauge at the harbour is broken.", "Nothing here.")
        call = Action(tool="terminal", arguments={"command": "grep -rn Gauge src"}, call_id="k", thought="look")
        store.append("b", [call, Observation(content="no harbour", call_id="k", cause=0)], expected_version=0)
        store.append("b", Annotation(name="note", data={"harbour": 1}), expected_version=2)
        assert found(histories, "gauge") == [("a", 0), ("b", 0)]
        assert found(histories, "GAUGE harbour") == [("a", 0)]
        assert found(histories, '"the harbour"') == [("a", 0)]
        assert found(histories, "harb*") == [("a", 0), ("b", 1), ("b", 2)]
        assert found(histories, "harbour", kinds=["observation", "message"]) == [("a", 0), ("b", 1)]
        assert found(histories, "harbour", conversation="b") == [("b", 1), ("b", 2)]
        assert found(histories, "unheard") == []
        assert [len(histories.search("harbour", limit=each)) for each in (2, None)] == [2, 3]
        say(store, "a", "a harbour that came later")
        [hit, *_] = histories.search("later", since=store.conversation("a").created_at)
        assert hit[:3] == ("a", 2, "user")
        [(start, stop)] = hit.highlights
        assert hit.snippet[start:stop] == "later"
        assert histories.search("later", until=store.conversation("a").created_at) == ()
        with pytest.raises(ConversationNotFound):
            histories.search("harbour", conversation="c")
        say(store, "c", "tide " + "and more words " * 50, "tide tide tide", "no such word")
        assert [hit.id for hit in histories.search("tide")] == [1, 0], "the best comes first"
        with pytest.raises(InvalidArgument, match="no word to search for"):
            histories.search('" -- "')
        with pytest.raises(InvalidArgument, match="not a kind of event"):
            histories.search("harbour", kinds=["call"])


def test_in_a_fork_the_events_that_it_shares_are_found_too(url: str):
    with foldlog.open(url) as histories:
        history = histories["a"]
        say(histories.store, "a", "word one", "word two", "word three")
        fork = history.fork(at=2, id="b")
        say(histories.store, "b", "word four", "word five")
        histories["b"].fork(at=3, id="c")
        assert found(histories, "word", conversation="b") == [("a", 0), ("a", 1), ("b", 2), ("b", 3)]
        assert found(histories, "word", conversation="c") == [("a", 0), ("a", 1), ("b", 2)]
        assert found(histories, "word") == [("a", 0), ("a", 1), ("a", 2), ("b", 2), ("b", 3)]
        assert fork.id == "b"


def test_any_words_can_be_asked_for(url: str):
    with open_store(url) as store, SearchIndex(store) as index:
        hostile = "\x1b[2J\x00 \ud800 <script> 'quoted' \"too\" a\u0301 世界 \x02\x03"
        say(store, hostile, hostile)
        assert found(index, "script", conversation=hostile) == [(hostile, 0)]
        assert found(index, "世界*") == found(index, "世界\ud800") == [(hostile, 0)]

        @examples(60)
        @given(st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(["a' | b*", "NOT", "x:y*"]))
        def asked(words: str) -> None:
            with contextlib.suppress(InvalidArgument):
                index.search(words)

        asked()


def test_a_follower_adds_each_event_once_while_others_write_and_search(url: str):
    batches, size = 30, 20
    with open_store(url) as store:

        def write() -> None:
            for batch in range(batches):
                say(store, f"c{batch % 3}", *[f"word number{batch}x{n}" for n in range(size)])

        say(store, "c0", "word before")
        with Follower(store, SearchIndex(store)) as follower:
            writer = threading.Thread(target=write)
            writer.start()
            writer.join()
            follower.catch_up(PATIENCE_S)
            say(store, "c9", "word last")
            follower.catch_up(PATIENCE_S)
        with SearchIndex(store) as index:
            hits = found(index, "word", limit=10_000)
            # In memory the index ends with the follower; then this one is made again.
            assert len(hits) == len(set(hits)) == batches * size + 2


def test_processes_that_catch_up_at_the_same_time_add_each_event_once(url: str):
    if url == "memory:":
        pytest.skip("an index in memory belongs to one process")
    with open_store(url) as store:
        say(store, "c", *[f"word {n}" for n in range(2_500)])
        indices = [SearchIndex(store) for _ in range(4)]
        at_once(lambda index: index.catch_up(), indices)
        assert len(found(indices[0], "word", limit=10_000)) == 2_500
        for index in indices:
            index.close()


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_forked_child_searches_on_connections_of_its_own(url: str):
    with foldlog.open(url) as histories:
        histories["parent"].append(Message(source="user", content="word 0"))
        assert len(histories.search("word")) == 1
        child = os.fork()
        who = "child" if child == 0 else "parent"
        told = []
        with contextlib.suppress(Exception):
            for n in range(1, 20):
                histories[who].append(Message(source="user", content=f"word of the {who}, {n}"))
                told.append({hit.conversation for hit in histories.search(f"{who} {n}")} <= {who})
        if child == 0:
            os._exit(told != [True] * 19)
        assert os.waitpid(child, 0)[1] == 0
        assert told == [True] * 19
        assert len(histories.search("word", limit=100)) == 39


def test_a_search_waits_for_a_server_that_restarts(postgres_url: Callable[[], str], postgres_server: Server):
    with foldlog.open(postgres_url() + "&application_name=searched") as histories:
        histories["c"].append(Message(source="user", content="a word"))
        assert len(histories.search("word")) == 1
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'searched'"
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            assert connection.execute(ended).fetchall()
        assert len(histories.search("word")) == 1
        assert SearchIndex(histories.store).tables.size() > 8192


def bytes_beside(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}.search*"))


@pytest.mark.parametrize("by", ["the eventstore", "the histories", "the command"])
def test_not_a_byte_of_an_erased_text_is_left_in_the_index_after_a_vacuum(
    tmp_path: Path, by: str, foldlog: Callable[..., object]
):
    path = tmp_path / "foldlog.db"
    secrets = [f"zq{n:04}secret" for n in range(300)]
    with open_store(f"sqlite:///{path}") as store:
        with SearchIndex(store) as index:
            for n in range(0, 300, 3):  # several commits: several segments of the index
                say(store, "gone", *secrets[n : n + 3])
                say(store, "kept", f"another word {n}")
                index.catch_up()
            assert b"zq0003secret" in bytes_beside(path)
            if by == "the eventstore":
                erase(store, "gone", reason="asked for")
                assert found(index, "zq0003secret") == []
        if by == "the histories":
            Histories(store).erase("gone", reason="asked for")
        if by != "the command":
            assert store.database.bytes_pending
            Maintenance(store).vacuum()
    if by == "the command":
        assert foldlog("erase", "gone", "--yes", "--reason", "asked for").status == 0
    left = bytes_beside(path)
    assert b"another word" in left
    assert b"zq0" not in left  # two bytes may stand there by chance: times are numbers
    assert b"secret" not in left  # the index keeps the ends of words that begin alike
    with contextlib.closing(sqlite3.connect(f"{path}.search")) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words, row)")
        assert connection.execute("SELECT term FROM temp.terms WHERE term LIKE 'zq%'").fetchall() == []


@pytest.mark.parametrize(
    "removal", [("redact", "a", "0", "1", "2"), ("erase", "--where", "user=ann"), ("erase", "a", "b", "c")]
)
@pytest.mark.parametrize("defers", [True, False])
def test_the_index_is_rewritten_once_for_all_that_a_command_removes(
    tmp_path: Path,
    foldlog: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    removal: tuple[str, ...],
    defers: bool,
):
    path, purged, really = tmp_path / "foldlog.db", [], SQLiteTables._purge
    with Histories(open_store(f"sqlite:///{path}")) as histories:
        for name in "abc":
            say(histories.store, name, *(f"zq{n}secret" for n in range(3)), "kept")
            histories[name].set_attributes(user="ann")
        assert len(histories.search("zq*")) == 9
    monkeypatch.setattr(SQLiteTables, "_purge", lambda tables: (purged.append(tables), really(tables)))
    options = ("--no-vacuum",) if defers else ()
    assert foldlog(*removal, *options, "--yes", "--reason", "asked for").status == 0
    assert len(purged) == (0 if defers else 1)


def test_calls_of_python_leave_the_rewriting_of_the_index_to_a_vacuum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    purged, really = [], SQLiteTables._purge
    monkeypatch.setattr(SQLiteTables, "_purge", lambda tables: (purged.append(tables), really(tables)))
    with foldlog.open(f"sqlite:///{tmp_path / 'foldlog.db'}") as histories:
        for name in "abcd":
            say(histories.store, name, f"zq{name}secret")
        assert len(histories.search("zq*")) == 4
        del purged[:]
        histories.erase("a", reason="asked for")
        histories["b"].redact(0, reason="asked for")
        assert sorted(hit.conversation for hit in histories.search("zq*")) == ["c", "d"]
        assert [*histories.maintenance.retain(timedelta(0), reason="asked for")]
        assert (histories.search("zq*"), purged) == ((), [])
        histories.maintenance.vacuum()
        assert len(purged) == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("command", [("erase", "a", "b", "c"), ("redact", "--matching", "secret")])
def test_what_went_before_an_interruption_leaves_the_index(
    tmp_path: Path,
    foldlog: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    error: type[BaseException],
):
    path, gone = tmp_path / "foldlog.db", []
    with open_store(f"sqlite:///{path}") as store, SearchIndex(store) as index:
        for name in "abc":
            say(store, name, *(f"zq{name}{n}secret" for n in range(3)))
        index.catch_up()
    really = {"erase": erase, "redact": redact}[command[0]]

    def interrupted(store: Store, conversation: str, *event_id: int, **options: Any) -> object:
        if len(gone) == 2:
            raise error
        gone.append(conversation)
        return really(store, conversation, *event_id, **options)

    monkeypatch.setattr(f"foldlog._maintenance.{command[0]}.{command[0]}", interrupted)
    with contextlib.suppress(error):
        foldlog(*command, "--no-vacuum", "--yes", "--reason", "asked for")
    with open_store(f"sqlite:///{path}") as store, SearchIndex(store) as index:
        left = {hit.conversation for hit in index.tables.find(Wanted(terms_of("zq*")))}  # as the command left it
    assert left == set("abc").difference(gone)
    assert len(left) == 1


def test_a_batch_that_was_read_before_an_erasure_is_not_added_after_it(url: str):
    with open_store(url) as store, SearchIndex(store) as index:
        say(store, "gone", "the secret word")
        batch = list(store.follow())
        erase(store, "gone", reason="asked for")
        told: list[int] = []
        index.catch_up(told.append)
        assert told == [0], "an erasure is no event"
        assert index.apply(batch, batch[-1].position, after=0) is None
        assert found(index, "secret") == []


def test_words_after_an_escape_of_json_and_in_parts_of_any_type_are_found(url: str):
    text = 'import os\nafterline = 1\n\taftertab \\afterbackslash "afterquote" \u00fcnique'
    deep: object = "too deep"
    for _ in range(400):
        deep = {"content": deep}
    events = [
        Action(tool="write", arguments={"text": text}),
        Action(tool="write", arguments=json.dumps({"text": text})),
        Action(tool="write", arguments=json.dumps({"text": text})[:-2]),
        Action(tool="patch", arguments=text),
        Annotation(name="note", data=[text]),
        DocumentChanges(changed={"d": {"value": text}}),
        *(Message(source="user", content=[part]) for part in parts_with(text).values()),
        Message(source="user", content=[{"type": "any", "content": deep}, {"type": "text", "text": text}]),
    ]
    with foldlog.open(url) as histories:
        histories.store.append("c", events, expected_version=0)
        for word in ("os", "afterline", "aftertab", "afterbackslash", "afterquote", "ünique"):
            assert [found(histories, word), word] == [[("c", place) for place in range(len(events))], word]
        assert found(histories, "nafterline") == []


def test_a_thought_is_searched_without_its_signature():
    thought = {"type": "thinking", "thinking": "tides", "signature": "c2lnbmVk"}
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "tides"}]}
    hidden = ({"type": "redacted_thinking", "data": "c2lnbmVk"}, summary | {"encrypted_content": "c2lnbmVk"})
    events = [
        Annotation(name="thinking", data=thought),
        Annotation(name="thinking", data=[thought]),
        Message(source="agent", content="So be it.", thinking=(thought,)),
        Action(tool="look", call_id="k", thinking=hidden),
    ]
    with open_store("memory:") as store, SearchIndex(store) as index:
        store.append("c", events, expected_version=0)
        assert [found(index, word) for word in ("tides", "c2lnbmVk")] == [[("c", place) for place in range(4)], []]


def test_an_encrypted_store_is_searched_in_memory_with_its_keys_and_loses_the_file_it_had(tmp_path: Path):
    pytest.importorskip("cryptography")
    path, keys = tmp_path / "history.db", KeyRing([SecretStr("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")])
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c", "the secret word")
        with SearchIndex(store) as index:
            index.catch_up()
    assert b"secret" in bytes_beside(path)
    with open_store(f"sqlite:///{path}", keys=keys) as store:
        say(store, "new", "another secret")
        with SearchIndex(store) as index:
            for _ in range(2):
                assert [hit.conversation for hit in index.search("secret")] == ["new", "c"]
                list(rekey(store))
            store.fork("new", 1, "f")
            erase(store, "c", reason="asked for")
            redact(store, "new", 0, reason="asked for", by="me")
            assert found(index, "secret") == found(index, "word") == []
        assert bytes_beside(path) == b""
    for ring in (None, KeyRing([SecretStr("MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")])):  # the key is not there
        refused = pytest.raises(SearchRefused, match=r"conversation 'new' is encrypted under key \w+; ")
        with open_store(f"sqlite:///{path}", keys=ring) as store, SearchIndex(store) as index, refused:
            index.search("secret")


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_rekeying_removes_it_and_names_what_else_holds_plain_text(url: str, tmp_path: Path, monkeypatch):
    keys, audit = KeyRing([SecretStr("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")]), tmp_path / "audit.db"
    with foldlog.open(url) as histories:
        histories["c"].append(Message(source="user", content="the secret word"))
        assert len(histories.search("secret")) == 1
        update(histories.store, audit)
        backups = [f"backup {tmp_path}/before.db"] if url.startswith("sqlite") else []
        for name in backups:
            histories.maintenance.back_up(name.removeprefix("backup "))
    with foldlog.open(url, keys=keys) as histories:
        if backups:
            histories["c"].append(Message(source="user", content="encrypted, behind plain text"))
            backups.append(f"backup {tmp_path}/partly.db")
            histories.maintenance.back_up(f"{tmp_path}/partly.db")
        (done,) = histories.maintenance.rekey()
        assert (done.problem, done.plain) == (None, (f"audit database {audit}", *backups))
        if backups:
            histories.maintenance.back_up(str(tmp_path / "encrypted.db"))
        monkeypatch.setenv("FOLDLOG_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")  # as the command has it
        assert [each.plain for each in histories.maintenance.rekey()] == [(f"audit database {audit}", *backups)]
        assert bytes_beside(tmp_path / "history.db") == b""
        assert [each.problem for each in histories.maintenance.rekey(decrypt=True)] == [None]
    with foldlog.open(url) as histories:
        assert len(histories.search("secret")) == 1


def test_an_index_is_private_and_can_be_deleted(tmp_path: Path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c", "a word")
        for _ in range(2):
            with SearchIndex(store) as index:
                assert found(index, "word") == [("c", 0)]
                assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.search*")} == {0o600}
            os.unlink(f"{path}.search")


def test_a_file_of_another_program_is_left_alone(tmp_path: Path):
    path = tmp_path / "history.db"
    with contextlib.closing(sqlite3.connect(f"{path}.search")) as connection:
        connection.execute("CREATE TABLE precious (n)")
    before = Path(f"{path}.search").read_bytes()
    with open_store(f"sqlite:///{path}") as store:
        for rebuild in (False, True):
            with pytest.raises(SearchRefused, match="another program"):
                SearchIndex(store, rebuild=rebuild)
    assert Path(f"{path}.search").read_bytes() == before


@pytest.mark.parametrize("first, last, content", [(0, 1, b"?"), (1, 999, b"\0"), (0, 999, b"?")])
def test_a_damaged_index_is_replaced(foldlog, five_messages, first: int, last: int, content: bytes):
    foldlog("import", five_messages)
    foldlog("search", "message")
    with contextlib.closing(sqlite3.connect("foldlog.db.search")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    index = Path("foldlog.db.search")
    pages = bytearray(index.read_bytes())
    damaged = slice(first * 4096, min(last * 4096, len(pages)))
    pages[damaged] = content * len(pages[damaged])
    index.write_bytes(pages)
    refused = foldlog("search", "message")
    assert (refused.status, refused.out) == (2, "")
    assert "foldlog.db.search is damaged" in refused.err
    assert "'foldlog search --rebuild' replaces it" in refused.err
    rebuilt = foldlog("search", "--rebuild", "message", "3")
    assert rebuilt.status == 0
    assert re.fullmatch(r"foldlog: note: the index is rebuilt from the log: 6 events, \d\d,\d{3} bytes\n", rebuilt.err)
    assert rebuilt.out == foldlog("search", "message", "3").out
    assert index.stat().st_mode & 0o777 == 0o600


def test_an_index_of_another_version_is_made_anew_with_its_tables(url: str):
    if url == "memory:":
        pytest.skip("an index in memory has the version of its process")
    with open_store(url) as store:
        say(store, "c", "a word")
        with SearchIndex(store) as index:
            index.tables.clear({"store": store.database.uuid, "code": "other"})
        path = index_path(store)
        if path is None:
            schema = sql.Identifier(store.database.recorder.schema)
            with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
                connection.execute(sql.SQL("ALTER TABLE {}.search_texts DROP COLUMN kind").format(schema))
        else:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("ALTER TABLE texts DROP COLUMN kind")
        for _ in range(2):
            with SearchIndex(store) as index:
                assert found(index, "word") == [("c", 0)]


def test_texts_go_where_the_entry_of_their_erasure_is_damaged(tmp_path: Path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store, SearchIndex(store) as index:
        say(store, "gone", "the secret word")
        assert found(index, "word") == [("gone", 0)]
        erase(store, "gone", reason="asked for")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("UPDATE events SET body = 'x' WHERE conversation < 0").rowcount == 1
    with open_store(f"sqlite:///{path}") as store, SearchIndex(store) as index:
        assert found(index, "word") == []


def test_the_command_shows_where_words_are(foldlog, five_messages):
    foldlog("import", five_messages)
    ran = foldlog("search", "message", "3")
    size = Path("foldlog.db.search").stat().st_size
    assert (ran.status, ran.err) == (0, f"foldlog: note: the index is made from the log: 6 events, {size:,} bytes\n")
    assert ran.out.startswith("five 3  user")
    assert ran.out.endswith("\n    message 3\n")
    [hit] = foldlog("search", "message 3", "--in", "fi", "--json").document["hits"]
    assert (hit["conversation"], hit["event"], hit["snippet"], hit["highlights"]) == ("five", 3, "message 3", [[0, 9]])
    assert foldlog("search", "three", "--kind", "condensation", "--json").document["hits"][0]["event"] == 5
    assert foldlog("search", "nothing").out == "No event has all these words.\n"
    assert foldlog("search", "3 message", "--in", "fi", "--json").err == ""
    phrase = foldlog("search", "3 message", "user")
    assert phrase.out == "No event has all these words.\n"
    assert phrase.err == 'foldlog: note: words in quotes are a phrase: "3 message" user\n'
    filtered = foldlog("search", "message", "--kind", "user", "--until", "2001-01-01").out
    assert " ".join(filtered.split()) == "No event within --in, --kind, --since and --until has all these words."
    rebuilt = foldlog("search", "--rebuild")
    assert rebuilt[:2] == (0, "")
    assert rebuilt.err.startswith("foldlog: note: the index is rebuilt from the log: 6 events, ")
    assert foldlog("search", "--rebuild", "nothing", "--json").document["hits"] == []
    for arguments in ([], ["'"], ["--follow", "x"]):
        assert foldlog("search", *arguments).status == 2


def test_an_empty_index_that_is_rebuilt_is_told(foldlog):
    open_store("sqlite:///foldlog.db").close()
    assert "the index is rebuilt from the log: 0 events, " in foldlog("search", "--rebuild").err


@pytest.mark.parametrize("command, of", [("search", "the index"), ("audit --to audit.db", "audit.db")])
def test_following_says_that_it_began_and_what_it_added(foldlog, five_messages, monkeypatch, command, of):
    def run(follower: Follower, every_s: float, on_events: object) -> None:
        follower.catch_up(PATIENCE_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "run", run)
    foldlog("import", five_messages)
    ran = foldlog(*command.split(), "--follow")
    assert ran[:2] == (0, "")
    assert ran.err == f"foldlog: note: {of} follows the store until Ctrl-C\nfoldlog: note: 6 events added to {of}\n"


def test_a_setting_that_a_killed_process_did_not_write_is_written_by_the_next(tmp_path: Path):
    path = tmp_path / "index.db"
    SQLiteTables(str(path)).close()
    of_merging = "FROM words_config WHERE k = 'automerge'"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        written = connection.execute(f"SELECT v {of_merging}").fetchone()
        assert connection.execute(f"DELETE {of_merging}").rowcount == 1
    SQLiteTables(str(path)).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT v {of_merging}").fetchone() == written
