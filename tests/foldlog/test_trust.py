"""The commands that verify, publish heads, rekey and erase."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from foldlog.eventstore import CondensationAction, Message, StoreUnavailable, open_store
from foldlog.eventstore.maintenance.verify import Published, verify
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.projections import Views

KEY = "ab" * 32
STEERS = "\x1b[31mred\x1b]0;title\x07"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("FOLDLOG_KEY", "FOLDLOG_KEY_FILE", "FOLDLOG_COMPRESSION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path):
    """A store with three short histories, one of which is named so that it would steer a
    terminal.
    """
    with open_store(f"sqlite:///{tmp_path / 'foldlog.db'}") as opened:
        for name in ("one", "two", STEERS):
            opened.append(
                name,
                [Message(source="user", content=f"{n} of {name}") for n in range(5)],
                expected_version=0,
            )
    return tmp_path / "foldlog.db"


def execute(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def heads_of(path):
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        return {row.id: row.head for row in store.conversations()}


def spoil(path, event_id=2):
    execute(
        path,
        f"UPDATE events SET body = CAST('{{}}' AS TEXT) WHERE conversation = 1 AND id = {event_id}",
    )


def test_verify_says_what_is_as_written_and_every_look_names_what_is_damaged(foldlog, store):
    ran = foldlog("store verify")
    assert (ran.status, ran.err) == (0, "")
    assert "3 conversations with 15 events checked: no changes found." in ran.out
    document = foldlog("store verify --json").document
    assert document["sound"]
    assert document["checked"] == {"conversations": 3, "events": 15, "erased": 0}
    assert {entry["status"] for entry in document["conversations"]} == {"sound"}
    head = heads_of(store)["one"]
    assert foldlog("store verify one --print-heads").out == f"{head}  5  one\n"
    heads = foldlog("store verify one --print-heads --json").document["heads"]
    assert heads == [{"conversation": "one", "version": 5, "head": head}]
    assert foldlog("store verify nobody --print-heads").status == 2
    spoil(store)
    ran = foldlog("store verify")
    assert ran.status == 1
    assert "conversation 'one': event 2: its checksum does not match" in ran.err
    document = foldlog("store verify one --json").document
    assert (document["conversations"][0]["findings"][0]["first"], document["sound"]) == (2, False)
    for options in ([], ["--long", "--json"]):
        ran = foldlog("list", *options)
        assert ran.status == 1
        assert "conversation 'one', event 2: its checksum does not match" in ran.err
        assert "'foldlog store copy foldlog.db NEW.db --damaged REST.jsonl'" in ran.err
    assert {entry["conversation"] for entry in ran.document["conversations"]} == {
        "one",
        "two",
        STEERS,
    }
    ran = foldlog("view one")
    assert (ran.status, "conversation 'one', event 2:" in ran.err) == (1, True)
    for sound in ("store verify two", "list --match two", "view two", "log one --stop 2"):
        assert foldlog(*sound.split()).status == 0, sound
    with open_store(f"sqlite:///{store}") as opened:
        assert len(Views(opened).at("one", version=2)) == 2


def test_a_damaged_conversation_is_copied_in_part_and_the_rest_is_in_a_file(
    foldlog, store, tmp_path
):
    ran = foldlog("store copy foldlog.db sound.db --damaged rest.jsonl")
    assert (ran.status, Path("rest.jsonl").read_text()) == (0, "")
    spoil(store)
    # it exists
    assert foldlog("store copy foldlog.db new.db --damaged rest.jsonl").status == 2
    ran = foldlog("store copy foldlog.db new.db --damaged rest.jsonl --force")
    assert ran.status == 1
    assert "conversation 'one': copied up to event 2, 2 later events in rest.jsonl: " in ran.err
    assert Path("rest.jsonl").stat().st_mode & 0o777 == 0o600
    rest = [json.loads(line) for line in Path("rest.jsonl").read_text().splitlines()]
    with open_store("sqlite:///sound.db") as sound, open_store("sqlite:///new.db") as new:
        assert {row.id: row.version for row in new.conversations()} == {
            "one": 2,
            "two": 5,
            STEERS: 5,
        }
        assert [*new.events("one")] == [*sound.events("one", stop=2)]
        texts = [(event.id, event.content) for event in sound.events("one", 3)]
        assert [(line["id"], line["content"]) for line in rest] == texts
    assert {line["conversation"] for line in rest} == {"one"}
    assert foldlog("store verify --db new.db").status == 0
    ran = foldlog("store erase one --yes --reason 'asked to' --db new.db")
    assert "rest.jsonl" in ran.err  # it may hold what is gone


def test_a_published_head_shows_a_cut_end(foldlog, store, tmp_path):
    (tmp_path / "heads.json").write_text(foldlog("store verify --print-heads --json").out)
    execute(store, "DELETE FROM events WHERE conversation = 2 AND id >= 3")
    ran = foldlog("store verify two --heads heads.json")
    assert ran.status == 1
    assert "its end is cut off: it had 5 events when its head was published, and has 3" in ran.err


def test_what_holds_no_heads_is_refused(foldlog, store, tmp_path):
    for content in (
        "",
        "[]",
        "{}",
        '{"heads": [{"conversation": 1}]}',
        '{"heads": 5}',
        "[" * 5_000,
    ):
        (tmp_path / "heads.json").write_text(content)
        ran = foldlog("store verify --heads heads.json")
        assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    absent = foldlog("store verify --heads nowhere.json")
    assert absent.status == 2
    assert "No such file or directory; name the published file" in absent.err
    assert (
        "'foldlog store verify --print-heads --json > heads.json' publishes the present heads"
        in absent.err
    )


def test_where_bytes_are_pending_the_receipt_and_the_list_say_so_and_vacuum_removes_them(
    foldlog, store, tmp_path
):
    head = heads_of(store)["one"]
    ran = foldlog("store erase one --yes --reason 'asked to' --no-vacuum --json")
    assert ran.status == 0
    (receipt,) = ran.document["conversations"]
    assert (receipt["version"], receipt["head"], receipt["bytes_pending"]) == (5, head, True)
    assert (
        "bytes pending: the files of the store may still hold bytes of it; run 'foldlog store"
        " vacuum'" in ran.err
    )
    rows = {row["conversation"]: row for row in foldlog("list --json").document["conversations"]}
    assert rows["one"]["bytes_pending"] is True
    assert rows["two"]["bytes_pending"] is False
    (erased,) = [
        line
        for line in foldlog("store verify").out.splitlines()
        if line.startswith("one: erased at")
    ]
    assert erased.endswith("with 5 events (asked to)")
    assert foldlog("store vacuum --json").document["bytes_pending"] is False
    assert not any(row["bytes_pending"] for row in foldlog("list --json").document["conversations"])


def test_figures_name_a_damaged_event_that_no_view_shows(foldlog, tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'foldlog.db'}") as opened:
        opened.register(Views(opened))  # then only what it shows is read for the View
        opened.append(
            "c", [Message(source="user", content=f"{n}") for n in range(180)], expected_version=0
        )
        opened.append(
            "c", CondensationAction(forgotten_event_ids=tuple(range(60, 120))), expected_version=180
        )
    spoil(tmp_path / "foldlog.db", 90)
    for command in ("list --long", "stats"):
        ran = foldlog(*command.split())
        assert (ran.status, "conversation 'c', event 90: its checksum" in ran.err) == (1, True)


@pytest.fixture
def without_page(tmp_path):
    """A store of twelve histories in which SQLite cannot read a page with events of c04 and c05.
    Gives the number of those of c04.
    """
    path = tmp_path / "foldlog.db"
    with open_store(f"sqlite:///{path}") as opened:
        for n in range(12):
            events = [Message(source="user", content=f"{m} of {n} " + "x" * 300) for m in range(20)]
            opened.append(f"c{n:02}", events, expected_version=0)  # one after another in the file
    content = bytearray(path.read_bytes())
    pages = [slice(at, at + 4_096) for at in range(0, len(content), 4_096)]
    (of_both,) = [
        page for page in pages if b"19 of 4 " in content[page] and b"0 of 5 " in content[page]
    ]
    of_c04 = len(re.findall(rb"\d of 4 x", content[of_both]))
    content[of_both] = b"\xee" * 4_096
    path.write_bytes(content)
    return of_c04


def test_one_unreadable_page_hides_no_other_conversation(foldlog, without_page):
    unread = (
        "conversation 'c04': it cannot be read: database disk image is malformed; run 'foldlog"
        " store verify'"
    )
    ran = foldlog("list --json")
    assert ran.status == 1
    assert unread in ran.err
    assert [entry["conversation"] for entry in ran.document["conversations"]] == [
        f"c{n:02}" for n in range(12) if n != 4
    ]
    ran = foldlog("log c05")
    (unread,) = re.findall(
        r"conversation 'c05', events 0 to (\d+): it cannot be read: .* malformed; run 'foldlog",
        ran.err,
    )
    assert (ran.status, len(ran.out.splitlines()), ran.err.count("\n")) == (1, 19 - int(unread), 1)
    lost = sum(20 - len(foldlog("log", name).out.splitlines()) for name in ("c04", "c05"))
    ran = foldlog("search 'xxx*' --limit 500 --json")
    assert (ran.status, len(ran.document["hits"])) == (1, 240 - lost)
    assert [name for name in ("c04", "c05", "c07") if name in str(ran.document["unread"])] == [
        "c04",
        "c05",
    ]
    ran = foldlog("export --to audit.db")
    up_to_unread = int(unread) + 1  # of c05
    assert f"{240 - without_page - up_to_unread} events and 0 condensations added" in ran.out
    assert "left out of audit.db: event 0 of conversation 'c05': it cannot be read" in ran.err
    ran = foldlog("store verify --print-heads --json")
    assert (ran.status, len(ran.document["heads"])) == (1, 11)
    for command in ("stats", "store verify --views", "store verify --views --repair"):
        ran = foldlog(*command.split())
        assert ran.status == 1
        assert "c05" in ran.err
        assert "c07" not in ran.err
        assert "unexpected" not in ran.err
    ran = foldlog("store verify --json")
    found = {entry["conversation"]: entry["status"] for entry in ran.document["conversations"]}
    assert [name for name in found if found[name] == "damaged"] == ["c04", "c05"]
    assert len(found) == 12


FIND = [
    *(
        "list",
        "list --long",
        "log c05",
        "stats",
        "stats c05",
        "store verify --views",
        "export c05 --to a.db",
        "store verify --views --repair",
    ),
    *("search x*", "store verify", "store verify --print-heads"),
    *("store redact c01 1 --reason x --yes",),
]
DO_NOT = [
    "import torn.jsonl --db new.db",
    "rekey",
    "list app=x",
    "view c00",
    "why c00 1",
    "show c05 --documents",
]


def test_a_command_that_finds_something_says_so_and_ends_with_1(
    foldlog, without_page, five_messages, tmp_path
):
    """The fixture ``foldlog`` holds every command of these tests to that; here each finds something
    that can.
    """
    (tmp_path / "torn.jsonl").write_text((tmp_path / five_messages).read_text() + '{"torn\n')
    found = {command: "found: " in foldlog(*command.split()).err for command in (*FIND, *DO_NOT)}
    assert [command for command in found if found[command]] == FIND


def test_rekey_brings_a_store_to_a_key_and_to_another_and_to_plain_text_where_it_is_asked_to(
    foldlog, store, tmp_path, monkeypatch
):
    before = heads_of(store)
    assert b"3 of one" in store.read_bytes()
    monkeypatch.setenv("FOLDLOG_KEY", KEY)
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "zlib")
    ran = foldlog("store rekey")
    assert ran.out == "3 conversations: 15 events rewritten, 3 keys changed.\n"
    assert all(b"3 of one" not in file.read_bytes() for file in tmp_path.iterdir())
    assert "3 of one" in foldlog("log one").out
    monkeypatch.setenv("FOLDLOG_KEY", f"{'cd' * 32} {KEY}")
    assert "0 events rewritten, 3 keys changed" in foldlog("store rekey").out
    monkeypatch.setenv("FOLDLOG_KEY", "cd" * 32)
    assert foldlog("store verify").status == 0
    monkeypatch.delenv("FOLDLOG_KEY")
    ran = foldlog("log one")
    assert ran.status == 2
    assert "set FOLDLOG_KEY or FOLDLOG_KEY_FILE" in ran.err
    for arguments in (["store", "rekey"], ["store", "rekey", "--decrypt"]):
        ran = foldlog(*arguments)
        assert (ran.status, "is encrypted under key" in ran.err) == (2, True)
    monkeypatch.setenv("FOLDLOG_KEY", "cd" * 32)
    assert (
        foldlog("store rekey --decrypt").out
        == "3 conversations: 15 events rewritten, 3 keys changed.\n"
    )
    monkeypatch.delenv("FOLDLOG_KEY")
    assert "3 of one" in foldlog("log one").out
    assert foldlog("store verify").status == 0
    assert heads_of(store) == before


def test_a_plain_backup_that_is_restored_under_a_key_says_so_once(foldlog, store, monkeypatch):
    assert foldlog("store backup plain.db").status == 0
    monkeypatch.setenv("FOLDLOG_KEY", KEY)
    assert foldlog("store rekey").status == 0
    assert (
        "not encrypted; 'foldlog store rekey' encrypts them"
        in foldlog("store restore plain.db --yes").err
    )
    assert foldlog("store rekey").status == 0
    assert foldlog("store backup coded.db").status == 0
    assert "not encrypted" not in foldlog("store restore coded.db --yes").err


@pytest.mark.parametrize("ways", [[()], [(), ("--decrypt",)]])
def test_the_files_of_an_import_are_known_after_a_rekey(foldlog, tmp_path, monkeypatch, ways):
    (tmp_path / "chat.jsonl").write_text('{"role": "user", "content": "a histogram"}\n')
    assert foldlog("import chat.jsonl").status == 0
    monkeypatch.setenv("FOLDLOG_KEY", KEY)
    for arguments in ways:
        assert foldlog("store rekey", *arguments).status == 0
    ran = foldlog("store redact --matching histogram --reason x --yes")
    assert (ran.status, "chat.jsonl" in ran.err) == (0, True)


def test_verify_without_the_key_names_the_key_and_no_damage(foldlog, store, monkeypatch):
    monkeypatch.setenv("FOLDLOG_KEY", KEY)
    assert foldlog("store rekey").status == 0
    monkeypatch.delenv("FOLDLOG_KEY")
    ran = foldlog("store verify")
    assert ran.status == 1
    assert "not checked because a key is not given" in ran.out
    assert "set FOLDLOG_KEY" in ran.err
    assert "--damaged" not in ran.err
    told = json.loads(foldlog("store verify --json").out)
    assert told["unchecked"] == len(told["conversations"]) > 0
    assert {each["status"] for each in told["conversations"]} == {"unchecked"}


def test_rekey_with_nothing_set_leaves_everything_as_it_is(foldlog, store, monkeypatch):
    assert "bytes" not in foldlog("store rekey").err
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "zlib")
    ran = foldlog("store rekey")
    assert ran.out == "3 conversations: 5 events rewritten, 0 keys changed.\n"
    assert (
        "the files of the store may still hold bytes of the old form; run 'foldlog store vacuum'"
        in ran.err
    )
    assert json.loads(foldlog("store rekey --json").out)["bytes_pending"] is True
    monkeypatch.delenv("FOLDLOG_COMPRESSION")
    ran = foldlog("store rekey")
    assert ran.out == "3 conversations: 0 events rewritten, 0 keys changed.\n"
    assert "to encrypt, set FOLDLOG_KEY or FOLDLOG_KEY_FILE" in ran.err
    assert foldlog("store verify").status == 0
    assert "3 of one" in foldlog("log one").out
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "none")
    assert foldlog("store rekey").out == "3 conversations: 5 events rewritten, 0 keys changed.\n"
    assert "3 of one" in foldlog("log one").out


def test_erase_needs_a_reason_a_history_that_is_there_and_yes_where_there_is_no_terminal(
    foldlog, store
):
    for wrong in (
        ["one"],
        ["one", "--yes", "--reason", "  "],
        ["nobody", "--yes", "--reason", "x"],
    ):
        assert foldlog("store erase", *wrong).status == 2
    ran = foldlog("store erase one --reason 'asked to'")
    assert ran.status == 2
    assert "which needs a terminal; nothing was erased. Add --yes" in ran.err
    assert foldlog("store verify --json").document["checked"]["erased"] == 0
    assert foldlog("store erase one --reason 'asked to' --yes").status == 0
    # it is finished without a question
    assert foldlog("store erase one --reason 'asked to'").status == 0
    assert (
        foldlog("store erase --where user=nobody --reason x").out.strip() == "None has user=nobody"
    )


@pytest.mark.parametrize(
    "args, ended_by, status",
    [
        ((), KeyboardInterrupt, 130),
        ((), StoreUnavailable, 2),
        (("--views",), KeyboardInterrupt, 130),
        (("--views", "--repair"), KeyboardInterrupt, 130),
    ],
)
def test_a_run_that_ended_early_tells_what_it_found_and_where_to_go_on(
    store, foldlog, monkeypatch, args, ended_by, status
):
    with open_store(f"sqlite:///{store}") as opened:
        views = Views(opened)
        opened.register(views)
        for name in ("one", "two"):
            opened.append(name, CondensationAction(forgotten_event_ids=[1]), expected_version=5)
        ends = opened.query("two", lambda read: read.state.key)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE events SET body = 'x' WHERE id = 2 AND conversation <> ?", (ends,)
        )
    with monkeypatch.context() as changed:
        for question in ("rows", "conversation"):
            ask = getattr(SQLiteReader, question)

            def ending(self, key, *rest, ask=ask, **how):
                if key in (ends, "two"):
                    raise ended_by("now")
                return ask(self, key, *rest, **how)

            changed.setattr(SQLiteReader, question, ending)
        ran = foldlog("store verify", *args)
    assert (ran.status, "conversation 'one'" in ran.err) == (status, True), ran
    goes_on = f"foldlog {' '.join(('store', 'verify', *args))} --from"
    assert f"'{goes_on} one' goes on" in ran.err
    again = foldlog("store verify", *args, "--from", "two", "--json")
    assert "conversation 'one'" not in again.err
    assert [each["conversation"] for each in again.document["conversations"]] == ["two"]
    assert {
        foldlog("store verify", *args, each, "--from", "one").status
        for each in ("two", "--print-heads")
    } == {2}


@pytest.mark.parametrize("start, missing", [("", ["gone"]), ("gone", ["gone"]), ("gonf", [])])
def test_a_published_conversation_is_missed_where_the_check_begins_before_it(store, start, missing):
    published = {"gone": [Published(3, b"x" * 32)]}
    with open_store(f"sqlite:///{store}") as opened:
        verdicts = [
            verdict
            for verdict in verify(opened, published=published, start=start)
            if verdict.findings
        ]
    assert [verdict.conversation for verdict in verdicts] == missing
