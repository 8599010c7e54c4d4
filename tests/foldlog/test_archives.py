"""Archives: a round trip equal by heads; what is damaged is named, and nothing of it is copied."""

from __future__ import annotations

import base64
import gzip
import json
import os
import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pydantic import SecretStr

from foldlog.archives import LeftOut, NotAnArchive, Problem, is_archive, read_archive, write_archive
from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    ConversationErased,
    Event,
    KeyRing,
    Message,
    Store,
    StoreUnusable,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.staging import staged_keys
from foldlog.eventstore.maintenance.copy import Copied, read_for_copy
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.types import Beginning

NAMES = ["c1", " ", "ümlaut ✓", "lone \udcff", "nul \0 and\nline"]


def said(n: int) -> Message:
    return Message(source="user", content=f"message {n}")


def fill(store: Store) -> None:
    for name in NAMES:
        for n in range(4):
            store.append(name, said(n), expected_version=n, idempotency_key=f"turn-{n}")
    store.ingest("long", (said(n) for n in range(2_500)))
    odd: list[Event] = [
        Message(source="user", content="lone \udcff", meta={"huge": 1e400}),
        UnknownEvent(stored_kind="later", stored_schema=3, body=b'{"a":\n1}', shown=True, is_structural=True),
        UnknownEvent(stored_kind="later\n", stored_schema=3, body=b"no JSON \xff"),
        CondensationRequest(),
    ]
    store.ingest("odd", odd)
    store.append("erased", said(0), expected_version=0)
    erase(store, "erased", reason="asked to")


def names(store: Store) -> list[str]:
    return [row.id for row in store.conversations(limit=1_000)]


def state(store: Store) -> dict[str, Any]:
    rows = {row.id: (row.version, row.head, row.created_at, row.erased_at) for row in store.conversations(limit=1_000)}
    logs = {name: list(store.log(name)) for name, row in rows.items() if row[3] is None}
    return {"rows": rows, "logs": logs}


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The source's file, and its archive."""
    folder = tmp_path_factory.mktemp("once")
    with open_store(f"sqlite:///{folder / 'source.db'}") as store:
        fill(store)
        assert write_archive(store, folder / "all.foldlog", names(store)).problems == ()
    return (folder / "source.db").read_bytes(), (folder / "all.foldlog").read_bytes()


@pytest.fixture
def source(tmp_path: Path, made_once: tuple[bytes, bytes]) -> Iterator[Store]:
    (tmp_path / "source.db").write_bytes(made_once[0])
    with open_store(f"sqlite:///{tmp_path / 'source.db'}") as store:
        yield store


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'target.db'}") as store:
        yield store


@pytest.fixture
def archive(tmp_path: Path, made_once: tuple[bytes, bytes]) -> Path:
    path = tmp_path / "all.foldlog"
    path.write_bytes(made_once[1])
    return path


def assert_sound(store: Store) -> None:
    assert [(v.conversation, v.findings) for v in verify(store) if v.findings] == []


def problems(store: Store, path: Path) -> list[Problem]:
    return [outcome for outcome in read_archive(store, path, tombstones=True) if isinstance(outcome, Problem)]


def lines_of(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read().splitlines(keepends=True)


def rewrite(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(gzip.compress(b"".join(lines)))
    return path


def test_a_round_trip_is_equal_by_heads_times_keys_and_receipts(source: Store, target: Store, archive: Path):
    assert problems(target, archive) == []
    assert state(target) == state(source)
    assert_sound(target)
    recorded = target.append("c1", said(2), expected_version=ANY_VERSION, idempotency_key="turn-2")
    assert [each.id for each in recorded] == [2]
    assert target.version("c1") == 4


def test_an_archive_says_how_much_it_holds_and_is_its_owners_only(source: Store, tmp_path: Path):
    path = tmp_path / "a.foldlog"
    assert write_archive(source, path, ["c1", "long"])[:2] == (2, 2_504)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob("*.partial")) == []
    assert is_archive(path)


def test_its_lines_are_json_whose_bodies_are_those_of_the_store(archive: Path):
    lines = [json.loads(line) for line in lines_of(archive)]
    assert lines[0]["foldlog_archive"] == 1
    event = next(line for line in lines if line.get("event") == 3)
    assert event["body"] == {"kind": "message", "content": "message 3", "source": "user"}
    assert lines[-1] == {"end": True, "conversations": 8, "events": 2_524}


def test_bringing_it_in_again_adds_nothing(source: Store, target: Store, archive: Path):
    list(read_archive(target, archive, tombstones=True))
    before = state(target)
    assert [outcome.added for outcome in read_archive(target, archive, tombstones=True)] == [0] * 8  # type: ignore[union-attr]
    assert state(target) == before


def test_a_later_archive_adds_the_tail(source: Store, target: Store, archive: Path, tmp_path: Path):
    list(read_archive(target, archive, tombstones=True))
    source.append("c1", [said(4), said(5)], expected_version=4, idempotency_key="turn-4")
    later = tmp_path / "later.foldlog"
    write_archive(source, later, ["c1"])
    assert [tuple(outcome) for outcome in read_archive(target, later, tombstones=True)] == [("c1", 2, 6, 0, False)]
    assert state(target) == state(source)
    assert_sound(target)


def test_an_earlier_archive_adds_nothing_to_a_history_that_went_on(source: Store, target: Store, archive: Path):
    list(read_archive(target, archive, tombstones=True))
    target.append("c1", said(4), expected_version=4)
    assert problems(target, archive) == []
    assert target.version("c1") == 5


def test_another_history_under_the_same_id_is_a_problem_and_the_rest_comes(source: Store, target: Store, archive: Path):
    target.append("c1", said(0), expected_version=0)
    list(read_archive(target, archive, tombstones=True))
    (problem,) = problems(target, archive)
    assert problem.conversation == "c1"
    assert "import it as another conversation" in problem.problem
    assert len(names(target)) == 8


def test_two_histories_that_went_apart_are_a_problem(source: Store, target: Store, archive: Path, tmp_path: Path):
    list(read_archive(target, archive, tombstones=True))
    source.append("c1", said(4), expected_version=4)
    target.append("c1", said(5), expected_version=4)
    source.append("c1", said(6), expected_version=5)
    later = tmp_path / "later.foldlog"
    write_archive(source, later, ["c1"])
    (problem,) = problems(target, later)
    assert "differs" in problem.problem
    assert target.version("c1") == 5


def test_what_was_erased_here_does_not_come_back(source: Store, target: Store, archive: Path):
    list(read_archive(target, archive, tombstones=True))
    erase(target, "c1", reason="asked to")
    (problem,) = problems(target, archive)
    assert "was erased" in problem.problem


def test_receipts_come_only_where_they_are_asked_for(source: Store, target: Store, archive: Path):
    assert [outcome for outcome in read_archive(target, archive) if isinstance(outcome, LeftOut)] == [LeftOut("erased")]
    assert "erased" not in names(target)
    assert target.append("erased", said(0), expected_version=0)[0].id == 0
    assert_sound(target)


@pytest.mark.parametrize("days, comes", [(0.9, True), (2, False), (365 * 7_000, False)])
def test_an_archive_cannot_set_a_clock_to_a_time_to_come(target: Store, tmp_path: Path, days: float, comes: bool):
    later = datetime.now(UTC) + timedelta(days=days)
    path = tmp_path / "later.foldlog"
    with open_store("memory:", clock=lambda: later) as source:
        source.append("c", said(0), expected_version=0)
        source.append("gone", said(0), expected_version=0)
        erase(source, "gone", reason="asked to")
        write_archive(source, path, ["c", "gone"])
    outcomes = list(read_archive(target, path, tombstones=True))
    assert names(target) == (["c", "gone"] if comes else [])
    if not comes:
        assert all(isinstance(outcome, Problem) and "later than this machine's clock" in outcome.problem
                   for outcome in outcomes)  # fmt: skip
    assert_sound(target)


def test_a_receipt_does_not_erase_what_is_here(source: Store, target: Store, archive: Path):
    target.append("erased", said(0), expected_version=0)
    (problem,) = problems(target, archive)
    assert "erase it in the target too" in problem.problem
    assert target.version("erased") == 1


def test_a_sealed_store_is_archived_plain_and_sealed_again(tmp_path: Path):
    keys = KeyRing([SecretStr("22" * 32)])
    with open_store(f"sqlite:///{tmp_path / 'one.db'}", keys=keys, compression="zlib") as one:
        fill(one)
        write_archive(one, tmp_path / "a", names(one))
        with open_store(f"sqlite:///{tmp_path / 'two.db'}", keys=keys) as two:
            assert problems(two, tmp_path / "a") == []
            assert state(two) == state(one)
            assert_sound(two)
    assert b"message 3" not in (tmp_path / "two.db").read_bytes()


def test_a_damaged_conversation_is_left_out_and_named_and_the_rest_is_whole(
    source: Store, target: Store, tmp_path: Path
):
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection, connection:
        connection.execute("UPDATE events SET body = CAST('{}' AS TEXT) WHERE id = 1700")
    written = write_archive(source, tmp_path / "a", names(source))
    assert [problem.conversation for problem in written.problems] == ["long"]
    assert "conversation 'long', event 1700: its checksum" in written.problems[0].problem
    (problem,) = problems(target, tmp_path / "a")
    assert problem.problem.startswith("it was damaged when it was archived: event 1700: its checksum")
    assert "foldlog" not in problem.problem
    assert set(names(target)) == set(names(source)) - {"long"}
    assert_sound(target)


def test_what_is_erased_while_it_is_carried_is_not_read_on(source: Store):
    _, rows, _ = read_for_copy(source.database, "long")
    next(rows)
    erase(source, "long", reason="asked to")
    with pytest.raises(ConversationErased):
        list(rows)


def test_what_is_erased_while_it_is_written_comes_as_its_tombstone(
    tmp_path: Path, target: Store, source: Store, monkeypatch: pytest.MonkeyPatch
):
    def carried_while_it_is_erased(database: Database, conversation: str) -> Any:
        what, rows, keys = read_for_copy(database, conversation)
        if what.erasure is None and conversation == "long":
            next(rows)
            erase(source, "long", reason="asked to")
        return what, rows, keys

    monkeypatch.setattr("foldlog.archives.writing.read_for_copy", carried_while_it_is_erased)
    assert write_archive(source, tmp_path / "a", ["long", "c1"]) == (1, 4, 1, ())
    assert [type(outcome) for outcome in read_archive(target, tmp_path / "a", tombstones=True)] == [
        Problem,
        Copied,
        Copied,
    ]
    with pytest.raises(ConversationErased):
        target.version("long")
    assert target.version("c1") == 4


def test_a_missing_event_in_the_source_is_named(tmp_path: Path, source: Store):
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE id = 1700")
    (problem,) = write_archive(source, tmp_path / "a", ["c1", "long"]).problems
    assert "conversation 'long', event 1700: it is missing" in problem.problem


@pytest.mark.parametrize("place", [0.01, 0.3, 0.6, 0.999])
def test_an_archive_that_was_cut_off_brings_in_what_is_whole_and_says_so(
    target: Store, source: Store, archive: Path, place: float
):
    lines = lines_of(archive)
    rewrite(archive, lines[: max(1, int(len(lines) * place))])
    with pytest.raises(NotAnArchive, match=r"line \d+: .*it was cut off"):
        list(read_archive(target, archive, tombstones=True))
    whole = state(source)
    assert all(whole["rows"][name] == row for name, row in state(target)["rows"].items())
    assert_sound(target)


@pytest.mark.parametrize("pack", ["zstd", "gzip"])
def test_an_archive_that_was_cut_off_in_its_first_block_is_told_so(foldlog, five_messages, monkeypatch, pack: str):
    if pack == "zstd":
        pytest.importorskip("zstandard")
    else:
        monkeypatch.setitem(sys.modules, "zstandard", None)
    foldlog("import", five_messages)
    foldlog("export", "--all", "all.foldlog")
    packed = Path("all.foldlog").read_bytes()
    Path("cut.foldlog").write_bytes(packed[: len(packed) // 2])
    refused = foldlog("import", "cut.foldlog", "--db", "new.db")
    assert refused.status == 2
    assert "cut.foldlog" in refused.err
    assert "it was cut off" in refused.err
    assert "decompress it" not in refused.err
    assert not list(Path.cwd().glob("new.db*"))


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_flipped_bits_never_bring_in_something_else(target: Store, source: Store, archive: Path, at: float):
    spoilt = bytearray(archive.read_bytes())
    spoilt[int(len(spoilt) * at)] ^= 0x10
    archive.write_bytes(spoilt)
    with pytest.raises(
        NotAnArchive,
        match=r"; copy or export the archive again; (the conversations before it were|nothing was) copied",
    ):
        list(read_archive(target, archive, tombstones=True))
    whole = state(source)
    assert all(whole["rows"][name] == row for name, row in state(target)["rows"].items())


def edited(archive: Path, which: bytes, old: bytes, new: bytes) -> Path:
    lines = lines_of(archive)
    place = next(n for n, line in enumerate(lines) if line.startswith(b'{"event":2,') and which in line)
    assert old in lines[place]
    lines[place] = lines[place].replace(old, new)
    return rewrite(archive, lines)


@pytest.mark.parametrize(
    "old, new",
    [
        (b"message 2", b"message x"),
        (b'"recorded_at":1', b'"recorded_at":'),
        (b'"shown":true', b'"shown":false'),
        (b'"event":2', b'"event":3'),
        (b'"kind":"message","schema"', b'"kind":"action","schema"'),
        (b'"kind":"message","content"', b'"kind":"massage","content"'),
    ],
)
def test_an_edited_event_is_a_problem_of_its_conversation_alone(
    target: Store, source: Store, archive: Path, old: bytes, new: bytes
):
    (problem,) = problems(target, edited(archive, b"message 2", old, new))
    assert problem.problem.startswith(f"conversation {problem.conversation!r}, event ")
    assert problem.problem.endswith("; the archive was damaged or edited: copy or export the archive again")
    assert problem.conversation not in names(target)
    assert len(names(target)) == 7
    assert_sound(target)


@pytest.mark.parametrize(
    "changes",
    [
        {"shown": False},
        {"structural": True},
        {"kind": "action"},
        {"body": {"kind": "message", "content": "no source"}},
        {"body": []},
    ],
)
def test_an_archive_that_somebody_made_up_is_looked_through_though_its_heads_are_right(
    target: Store, archive: Path, changes: dict[str, Any]
):
    (problem,) = problems(target, forged(archive, "c1", changes))
    assert problem.conversation == "c1"
    assert "conversation 'c1', event 2:" in problem.problem


def test_an_archive_that_somebody_made_up_brings_in_no_conversation_without_an_id(target: Store, archive: Path):
    (problem,) = problems(target, forged(archive, "", {}))
    assert (problem.conversation, "is empty" in problem.problem) == ("", True)
    assert len(names(target)) == 7


def test_what_a_killed_import_left_of_a_conversation_is_discarded(target: Store, archive: Path):
    recorder = target.database.recorder
    killed = Beginning("long", 5, bytes(32), staged=True)
    recorder.transact(lambda transaction: transaction.begin(killed))
    assert problems(target, archive) == []
    assert recorder.query(lambda reader: staged_keys(reader, "long")) == []
    assert target.version("long") == 2_500


def forged(archive: Path, name: str, changes: dict[str, Any]) -> Path:
    """The archive with a history that somebody made up: event 2 is changed, and all heads are right."""
    lines = lines_of(archive)
    start = next(n for n, line in enumerate(lines) if line.startswith(b'{"conversation":"c1"'))
    made_up = [json.loads(line) for line in lines[start : start + 5]]
    salt = bytes.fromhex(made_up[0]["salt"])
    head = hash_chain.seed(name, salt)
    made_up[0]["conversation"] = name
    for line in made_up[1:]:
        line.update(changes if line["event"] == 2 else {})
        body = json.dumps(line["body"]).encode()
        line["body64"] = base64.b64encode(body).decode()
        del line["body"]
        columns = (line["event"], line["kind"], line["schema"], line["shown"], line["structural"], line["recorded_at"])
        head = hash_chain.link(head, salt, columns, hash_chain.commitment(bytes.fromhex(line["salt"]), body))
        line["head"] = head.hex()
    made_up[0]["head"] = head.hex()
    lines[start : start + 5] = [json.dumps(line).encode() + b"\n" for line in made_up]
    return rewrite(archive, lines)


@pytest.mark.parametrize(
    "old, new",
    [
        (b'"event":2', b'"event":-2'),
        (b'"event":2', b'"event":99999999999999999999'),
        (b'"head":"', b'"head":"zz'),
        (b'"recorded_at":', b'"recorded_at":9999999999'),
        (b'"schema":1', b'"schema":"1"'),
        (b',"body"', b',"surprise":1,"body"'),
        (b',"body"', b',"body64":"***","body"'),
        (b"}", b""),
    ],
)
def test_a_line_that_is_none_ends_the_reading_with_its_number(target: Store, archive: Path, old: bytes, new: bytes):
    with pytest.raises(NotAnArchive, match=r"line \d+: .*; nothing was copied"):
        list(read_archive(target, edited(archive, b"message 2", old, new)))
    assert_sound(target)


def test_a_missing_conversation_is_missed_at_the_end(target: Store, archive: Path):
    lines = lines_of(archive)
    starts = [n for n, line in enumerate(lines) if line.startswith(b'{"conversation"')]
    rewrite(archive, lines[: starts[1]] + lines[starts[2] :])
    with pytest.raises(NotAnArchive, match="the archive had 8 conversations"):
        list(read_archive(target, archive, tombstones=True))


def test_a_line_without_an_end_is_refused_before_memory_is_given_to_it(target: Store, tmp_path: Path):
    bomb = tmp_path / "bomb"
    with gzip.open(bomb, "wb") as file:
        file.write(b'{"foldlog_archive":1,"store":"x"}\n{"conversation":"')
        for _ in range(200):
            file.write(b"a" * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(NotAnArchive, match="is longer than"):
            list(read_archive(target, bomb, tombstones=True))
        assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
    finally:
        tracemalloc.stop()


def test_an_archive_is_told_from_other_files(tmp_path: Path, archive: Path):
    assert is_archive(archive)
    path = tmp_path / "other"
    for content in (b"", b"{}", b"PK" + os.urandom(100)):
        path.write_bytes(content)
        assert not is_archive(path)


def test_what_is_compressed_and_no_archive_is_told_so(tmp_path: Path, target: Store):
    path = tmp_path / "other"
    for content in (b"\x1f\x8b", gzip.compress(b"{}\n"), gzip.compress(b""), b"\x28\xb5\x2f\xfdxxxx"):
        path.write_bytes(content)
        with pytest.raises(NotAnArchive, match="line 1"):
            list(read_archive(target, path, tombstones=True))


def test_without_zstandard_it_is_gzip(source: Store, target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    write_archive(source, tmp_path / "a", names(source))
    assert (tmp_path / "a").read_bytes()[:2] == b"\x1f\x8b"
    assert problems(target, tmp_path / "a") == []
    assert state(target) == state(source)


def test_its_memory_does_not_grow_with_the_archive(tmp_path: Path):
    def peak(count: int) -> int:
        with open_store("memory:") as store:
            store.ingest("c1", (Message(source="user", content=os.urandom(500).hex()) for _ in range(count)))
            path = tmp_path / str(count)
            tracemalloc.start()
            write_archive(store, path, ["c1"])
            written = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        with open_store(f"sqlite:///{tmp_path / 'target'}-{count}.db") as store:
            tracemalloc.start()
            list(read_archive(store, path, tombstones=True))
            read = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return max(written, read)

    peak(1_000)
    assert peak(8_000) < 1.5 * peak(2_000)


def test_a_page_that_cannot_be_read_costs_its_conversation_and_no_other(tmp_path: Path, target: Store):
    path = tmp_path / "source.db"
    with open_store(f"sqlite:///{path}") as store:
        fill(store)
    content = bytearray(path.read_bytes())
    pages = [n for n in range(0, len(content), 4_096) if b"message 2222" in content[n : n + 4_096]]
    content[pages[0] : pages[0] + 4_096] = b"\xff" * 4_096
    path.write_bytes(content)
    archive = tmp_path / "all.foldlog"
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        written = write_archive(store, archive, [*NAMES, "long", "odd", "erased"])
    assert [problem.conversation for problem in written.problems] == ["long"]
    brought = list(read_archive(target, archive, tombstones=True))
    assert {each.conversation for each in brought if isinstance(each, Copied)} == {*NAMES, "odd", "erased"}


def test_what_lies_where_an_archive_is_written_does_not_make_it_readable_for_others(source: Store, tmp_path: Path):
    path = tmp_path / "all.foldlog"
    left = tmp_path / "all.foldlog.partial"
    left.write_bytes(b"of somebody else")
    left.chmod(0o666)
    write_archive(source, path, ["c1"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert left.read_bytes() == b"of somebody else"


def test_a_store_that_cannot_be_written_ends_an_import_with_a_clear_error(archive: Path, target: Store):
    target._recorder.close()
    with pytest.raises(StoreUnusable, match="closed"):
        list(read_archive(target, archive, tombstones=True))
