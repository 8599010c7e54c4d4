"""What is sound of a damaged store, in a new one, every event in its place, and what is lost by name."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from foldlog.eventstore import (
    ANY_VERSION,
    Annotation,
    CondensationAction,
    Event,
    KeyRing,
    KeyUnavailable,
    Message,
    Observation,
    Store,
    UnknownEvent,
    UnknownEventType,
    open_store,
)
from foldlog.eventstore.errors import StoreDamaged
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.salvage import Salvaged, salvage
from foldlog.eventstore.maintenance.status import confirm
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite.readable import _Rows, copy_readable
from foldlog.projections import Views

NAMES = ("a", "ümlaut ✓", "c")
LENGTH = 60
PAGE = 4_096
KEYS = KeyRing([SecretStr("33" * 32)])


def event(n: int) -> Event:
    if n == 20:
        return CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=9, summary="s", summary_offset=1)
    if n % 7 == 3:
        return Annotation(name="note", data=n)
    if n == 33:
        return Observation(content="long " * 4_000)
    return Message(source="user", content=f"message {n} " + "x" * (n * 97 % 900))


def fill(path: Path, **how: Any) -> None:
    with open_store(f"sqlite:///{path}", **how) as store:
        store.register(Views(store))
        for name in NAMES[:2]:
            for n in range(LENGTH):
                store.append(name, event(n), expected_version=n, idempotency_key=f"turn-{n}")
        store.ingest(NAMES[2], (event(n) for n in range(1_100)))
        store.append("erased", event(0), expected_version=0)
        erase(store, "erased", reason="asked to")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("once") / "sound.db"
    fill(path)
    return path


@pytest.fixture
def path(tmp_path: Path, made_once: Path) -> Path:
    return Path(shutil.copy(made_once, tmp_path / "history.db"))


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def salvaged(path: Path, keys: KeyRing | None = None) -> tuple[dict[str, Salvaged], Store]:
    """What became of each conversation, and the new store."""
    copied = path.with_name("copied.db")
    found = copy_readable(str(path), str(copied))
    target = open_store(f"sqlite:///{path.with_name('salvaged.db')}", keys=keys)
    with open_store(f"sqlite:///{copied}", keys=keys) as source:
        done = {each.conversation: each for each in salvage(source, target, ends=found.ends)}
    return done, target


def state(store: Store) -> dict[str, Any]:
    return {row.id: (row.version, row.head, row.created_at, row.erased_at) for row in store.conversations()}


def assert_nothing_else_than_was_written(store: Store, done: dict[str, Salvaged]) -> None:
    """Every event is what it was, or says that it is lost; and the new store is sound."""
    for verdict in verify(store):
        assert verdict.findings == ()
    for name, each in done.items():
        if name not in NAMES or each.problem is not None:
            continue
        for n, found in enumerate(store.events(name)):
            expected = event(n)
            same = replace(found, timestamp=None) == replace(expected, id=n)
            assert same or is_lost(found), (name, n, found)


def is_lost(found: Event) -> bool:
    match found:
        case Message(source="environment", content=str(text)):
            return "was damaged, and is lost" in text
        case Annotation(name="foldlog.lost") | UnknownEvent(stored_kind="foldlog.lost"):
            return True
    return False


def lost_ids(store: Store, name: str) -> list[int]:
    return [each.id for each in store.events(name) if is_lost(each)]


def test_a_sound_store_comes_over_whole_with_its_heads(path: Path):
    with open_store(f"sqlite:///{path}") as store:
        before = state(store)
    done, target = salvaged(path)
    with target:
        assert state(target) == before
        assert all(each.whole and each.lost == () for each in done.values())
        assert_nothing_else_than_was_written(target, done)
        assert target.append("a", event(7), expected_version=ANY_VERSION, idempotency_key="turn-7")[0].id == 7


def test_one_bad_event_is_replaced_by_one_that_says_so_and_the_rest_keeps_its_place(path: Path):
    execute(path, "UPDATE events SET body = CAST('{\"kind\":' AS TEXT) WHERE conversation = 1 AND id IN (7, 40)")
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == [7, 40]
        assert (done["a"].events, done["a"].whole) == (LENGTH, False)
        assert [finding.first for finding in done["a"].lost] == [7, 40]
        assert all(each.whole for name, each in done.items() if name != "a")
        assert_nothing_else_than_was_written(target, done)
        shown = Views(target).current("a").events
        assert any(is_lost(each) for each in shown)


FAR = 2**62


@pytest.mark.parametrize("is_careful", [False, True], ids=["changed", "changed with its checksum"])
def test_a_row_with_a_far_id_brings_no_lost_events_without_number(path: Path, is_careful: bool):
    last = LENGTH - 1
    execute(path, f"UPDATE events SET id = {FAR} WHERE conversation = 1 AND id = {last}")
    if is_careful:
        give_checksum(path, FAR)
    with open_store(f"sqlite:///{path}") as store:
        [verdict] = verify(store, "a")
        assert verdict.events == LENGTH
    done, target = salvaged(path)
    with target:
        assert done["a"].events == last
        assert done["a"].lost[0][:2] == (last, FAR - 1)
        assert lost_ids(target, "a") == []
        assert [verdict.findings for verdict in verify(target) if verdict.findings] == []


def give_checksum(path: Path, event_id: int) -> None:
    """Make the checksum of a row of conversation a right again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.text_factory = bytes
        columns = "kind, schema, shown, structural, recorded_at, encoding, body, head, shown_before, structural_before"
        row = connection.execute(f"SELECT {columns} FROM events WHERE conversation = 1 AND id = {event_id}").fetchone()
        checksum = hash_chain.checksums(hash_chain.checksum_seed("a"), [(event_id, row[0].decode(), *row[1:], 0)])[0]
        connection.execute(f"UPDATE events SET checksum = ? WHERE conversation = 1 AND id = {event_id}", (checksum,))


def test_an_event_that_was_changed_with_care_is_not_taken_for_what_was_written(path: Path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.text_factory = bytes
        body = '{"kind":"message","content":"I never said that","source":"user"}'
        connection.execute("UPDATE events SET body = ? WHERE conversation = 1 AND id = 7", (body,))
    give_checksum(path, 7)
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == [7]
        assert_nothing_else_than_was_written(target, done)


def test_heads_up_to_the_first_lost_event_are_those_of_before(path: Path):
    def heads(database: Path) -> list[bytes]:
        with closing(sqlite3.connect(database)) as connection:
            key = connection.execute("SELECT key FROM conversations WHERE id = 'a'").fetchone()
            return [
                head
                for (head,) in connection.execute("SELECT head FROM events WHERE conversation = ? ORDER BY id", key)
            ]

    before = heads(path)
    execute(path, "UPDATE events SET recorded_at = 0 WHERE conversation = 1 AND id = 40")
    _, target = salvaged(path)
    target.close()
    after = heads(path.with_name("salvaged.db"))
    assert after[:40] == before[:40]
    assert all(one != other for one, other in zip(after[40:], before[40:], strict=True))


def test_a_lost_condensation_stops_a_view_rather_than_make_it_wrong(path: Path):
    execute(path, "UPDATE events SET body = CAST('{}' AS TEXT) WHERE conversation = 1 AND id = 20")
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == [20]
        assert len(list(target.events("a"))) == LENGTH
        assert len(Views(target).at("a", version=20)) > 0
        with pytest.raises(
            UnknownEventType, match=r"event 20 was damaged, and is lost: .* at version 20: 'foldlog fork ID NEW --at V'"
        ):
            Views(target).current("a")
        assert done["a"].view_ends == 20
        target.fork("a", 20, "goes on")
        assert Views(target).current("goes on").events == Views(target).at("a", version=20).events


def test_an_unknown_name_is_no_damage(path: Path):
    """A kind that this version does not know is carried; a name that was changed is damage."""
    with open_store(f"sqlite:///{path}") as store:
        later = UnknownEvent(stored_kind="later", stored_schema=9, body=b'{"of":"a later version"}')
        store.append("a", later, expected_version=LENGTH)
    execute(path, "UPDATE events SET kind = 'massage' WHERE conversation = 1 AND id = 8")
    _, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == [8]
        *_, last = target.events("a")
        assert isinstance(last, UnknownEvent)
        assert last.body == b'{"of":"a later version"}'


def test_a_missing_last_event_that_a_key_knows_of_is_named(path: Path):
    execute(path, "DELETE FROM events WHERE conversation = 1 AND id = 59")
    done, target = salvaged(path)
    with target:
        assert done["a"].events == LENGTH - 1
        assert any("its end may be cut off" in str(finding) for finding in done["a"].lost)


def assert_what_is_whole_is_complete(target: Store, done: dict[str, Salvaged]) -> None:
    for name, length in zip(NAMES, (LENGTH, LENGTH, 1_100), strict=True):
        if name in done and done[name].whole:
            assert (done[name].events, lost_ids(target, name)) == (length, [])


@pytest.mark.parametrize("part, is_vacuumed", [(0.25, False), (0.5, True), (0.75, False), (0.9, True), (0.95, False)])
def test_a_truncated_file_gives_what_it_still_has(path: Path, part: float, is_vacuumed: bool):
    if is_vacuumed:  # then other pages are the last ones
        execute(path, "VACUUM")
    sound = path.read_bytes()
    path.write_bytes(sound[: int(len(sound) * part)])
    done, target = salvaged(path)
    with target:
        assert_nothing_else_than_was_written(target, done)
        assert_what_is_whole_is_complete(target, done)
        kept = sum(each.events for each in done.values())
        assert kept > 0.4 * part * (2 * LENGTH + 1_100)
        assert not all(each.whole for each in done.values())


def test_every_page_can_be_lost_and_the_others_are_kept(path: Path, whole: bool):
    """Six of them, and each with ``scripts/test --all``; but SQLite reads nothing without the schema, and nothing of a
    table without its first page.
    """
    sound = path.read_bytes()
    needed = {sound[:PAGE], root(path, "conversations"), root(path, "events")}
    each_page = [sound[at : at + PAGE] for at in range(0, len(sound), PAGE)]
    pages = [n for n, page in enumerate(each_page) if page not in needed and b"CREATE " not in page]
    for page in pages if whole else random.Random(3).sample(pages, 6):
        for file in path.parent.glob("[cs]*.db*"):
            file.unlink()
        path.write_bytes(sound[: page * PAGE] + b"\xff" * PAGE + sound[(page + 1) * PAGE :])
        done, target = salvaged(path)
        with target:
            assert_nothing_else_than_was_written(target, done)
            lost = sum(len(lost_ids(target, name)) for name in done if name in NAMES)
            assert lost + (2 * LENGTH + 1_100 - sum(done[n].events for n in NAMES if n in done)) < 250
            assert_what_is_whole_is_complete(target, done)


def without_page(path: Path, is_that: Callable[[bytes], bool]) -> None:
    """Overwrite the pages that this is true of."""
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), PAGE) if is_that(bytes(content[at : at + PAGE]))]
    assert pages
    for at in pages:
        content[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)


def root(path: Path, name: str) -> bytes:
    """The first page of a table or an index."""
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    return path.read_bytes()[(number - 1) * PAGE : number * PAGE]


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A store with one conversation of 200 events over many pages."""
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        events = [Message(source="user", content=f"number {n} " + "x" * 300) for n in range(200)]
        store.append("a", events, expected_version=0)
    return path


def test_events_between_unreadable_pages_are_copied(long: Path):
    without_page(long, lambda page: any(b"number %d " % n in page for n in (0, 50, 70, 120)))
    done, target = salvaged(long)
    with target:
        assert done["a"].events == 200
        lost = lost_ids(target, "a")
        assert len(lost) < 50
        assert {0, 50, 70, 120} <= set(lost)
        assert {60, 100, 199}.isdisjoint(lost)


@pytest.mark.parametrize("is_index_lost", [False, True], ids=["an index names it", "no_index_shows it"])
def test_an_end_that_an_index_still_names_is_lost_with_numbers_and_else_may_be_lost(long: Path, is_index_lost: bool):
    with open_store(f"sqlite:///{long}") as store:
        store.fork("a", 200, "ends with a lost event of its parent")
    index = root(long, "events_by_id") if is_index_lost else b""
    without_page(long, lambda page: b"number 199 " in page or page == index)
    done, target = salvaged(long)
    with target:
        found = done["a"]
        assert 100 < found.events < 200
        assert not found.whole
        if is_index_lost:
            assert any("its end may be lost" in str(each) for each in found.lost)
        else:
            assert [each[:2] for each in found.lost] == [(found.events, 199)]
        fork = done["ends with a lost event of its parent"]
        assert (fork.events, lost_ids(target, fork.conversation)) == (200, [*range(found.events, 200)])


@pytest.mark.parametrize("index", ["events_by_id", "conversations_by_id", "attachments_by_name"])
def test_an_index_that_is_lost_costs_nothing(path: Path, index: str):
    page_of_index = root(path, index)
    with open_store(f"sqlite:///{path}") as store:
        before = state(store)
    without_page(path, lambda page: page == page_of_index)
    done, target = salvaged(path)
    with target:
        assert all(each.whole for each in done.values())
        assert state(target) == before


def test_idempotency_keys_on_both_sides_of_an_unreadable_page_are_copied(tmp_path: Path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        for n in range(300):
            store.append("a", event(0), expected_version=n, idempotency_key=f"turn {n}")
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT key FROM idempotency_keys ORDER BY key")]
    without_page(path, lambda page: names[150].encode() in page)
    copied = copy_readable(str(path), str(tmp_path / "copied.db"))
    assert copied.tables == ["idempotency_keys"]
    with closing(sqlite3.connect(tmp_path / "copied.db")) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM idempotency_keys ORDER BY key")]
    assert 150 < len(keys) < 300
    assert (keys[0], keys[-1]) == (names[0], names[-1])


def test_what_sqlite_cannot_open_is_an_error_that_names_the_way(tmp_path: Path):
    for n, content in enumerate((b"nothing" * 5_000, b"SQLite format 3\0" + bytes(5_000))):
        path = tmp_path / f"{n}.bin"
        path.write_bytes(content)
        with pytest.raises(StoreDamaged):
            copy_readable(str(path), str(tmp_path / f"{n}.db"))


def test_the_newest_state_is_taken_from_the_log(path: Path):
    with open_store(f"sqlite:///{path}") as store:
        store.append("a", Message(source="user", content="only in the log"), expected_version=LENGTH)
        folder = path.with_name("crashed")
        folder.mkdir()
        for file in path.parent.glob("history.db*"):
            shutil.copy(file, folder)
    crashed = folder / "history.db"
    assert (folder / "history.db-wal").stat().st_size > 0
    done, target = salvaged(crashed)
    with target:
        assert done["a"] == Salvaged("a", LENGTH + 1, True)
        assert all(each.whole for each in done.values())


def test_conversations_whose_own_rows_are_lost_are_found_by_their_names_in_an_index(path: Path):
    rows = root(path, "conversations")
    without_page(path, lambda page: page == rows)
    done, target = salvaged(path)
    with target:
        assert [str(finding) for finding in done["a"].lost] == ["its salt is lost, so nothing proves its heads"]
        assert [done[name].events for name in NAMES] == [LENGTH, LENGTH, 1_100]
        assert_nothing_else_than_was_written(target, done)
        assert done["erased"].problem == "all of its events are lost"


def test_a_lost_salt_gives_new_heads_and_the_same_events(path: Path):
    execute(path, "UPDATE conversations SET salt = x'' WHERE id = 'a'")
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == []
        assert [str(finding) for finding in done["a"].lost] == ["its salt is lost, so nothing proves its heads"]
        assert_nothing_else_than_was_written(target, done)


def test_a_sealed_store_is_salvaged_with_its_key_and_named_without(tmp_path: Path):
    path = tmp_path / "history.db"
    fill(path, keys=KEYS, compression="zlib")
    execute(path, "UPDATE events SET body = zeroblob(50) WHERE conversation = 1 AND id = 5")
    done, target = salvaged(path, KEYS)
    with target:
        assert lost_ids(target, "a") == [5]
        assert_nothing_else_than_was_written(target, done)
    for file in tmp_path.glob("[cs]*.db*"):
        file.unlink()
    done, target = salvaged(path)
    with target:
        assert "set FOLDLOG_KEY" in (done["a"].problem or "")
        assert done["erased"].whole


def test_a_target_that_takes_no_plain_text_is_no_loss_of_the_source(path: Path, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'encrypted.db'}"
    with open_store(url, keys=KEYS) as target:
        target.append("other", event(0), expected_version=0)
    with (
        open_store(f"sqlite:///{path}") as source,
        open_store(url) as target,
        pytest.raises(KeyUnavailable, match="'a' would be stored as plain text"),
    ):
        list(salvage(source, target))
    with open_store(f"sqlite:///{path}") as source, open_store(f"{url}?plain=allowed") as target:
        assert all(each.whole for each in salvage(source, target))


@pytest.mark.parametrize("keys", [None, KEYS])
def test_bytes_beside_events_are_copied_with_them_and_their_loss_is_said(tmp_path: Path, keys: KeyRing | None):
    path, image = tmp_path / "store.db", random.Random(1).randbytes(30_000)
    with open_store(f"sqlite:///{path}", keys=keys) as store:
        for n in range(4):
            data = image if n % 2 else b"%d" % n * 9_000
            store.append("c", Annotation(name="raw", data=data), expected_version=n)
        expected = [event.data for event in store.events("c") if isinstance(event, Annotation)]
    done, target = salvaged(path, keys)
    with target:
        assert done["c"].whole
        assert [event.data for event in target.events("c") if isinstance(event, Annotation)] == expected
        assert findings_of(target) == []
    for name in ("copied.db", "salvaged.db"):
        path.with_name(name).unlink()
    execute(path, "DELETE FROM attachments WHERE length(body) < 29000")
    done, target = salvaged(path, keys)
    with target:
        assert [(lost.first, lost.last) for lost in done["c"].lost] == [(0, 0), (2, 2)]
        assert [event.data for event in target.events("c") if isinstance(event, Annotation)][1::2] == expected[1::2]
        assert findings_of(target) == []


def findings_of(store: Store) -> list[Any]:
    return [finding for verdict in verify(store) for finding in verdict.findings]


def test_an_encrypted_event_whose_head_was_changed_is_lost_and_the_others_are_kept(tmp_path: Path):
    path = tmp_path / "history.db"
    fill(path, keys=KEYS)
    execute(
        path,
        "UPDATE events SET head = CAST(zeroblob(32) || substr(head, 33) AS BLOB) WHERE conversation = 1 AND id = 30",
    )
    done, target = salvaged(path, KEYS)
    with target:
        assert [(lost.first, lost.last) for lost in done["a"].lost] == [(30, 30)]
        assert target.version("a") == LENGTH


def test_a_damaged_event_behind_a_missing_one_is_lost_too(path: Path):
    execute(path, "DELETE FROM events WHERE conversation = 1 AND id = 11")
    execute(path, "UPDATE events SET body = CAST(body || ' ' AS TEXT) WHERE conversation = 1 AND id = 12")
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == [11, 12]
        assert [finding.first for finding in done["a"].lost] == [11, 12]
        assert_nothing_else_than_was_written(target, done)


def test_a_read_model_is_no_conversation_and_an_erased_fork_has_no_events(tmp_path: Path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("a", event(0), expected_version=0)
        for number in range(200):  # more than one page
            confirm(store, f"read model {number}", 10_000 + number)
        store.fork("a", 1, "fork")
        erase(store, "fork", reason="asked to")
    done, target = salvaged(path)
    with target:
        assert {name: (each.events, each.problem) for name, each in done.items()} == {"a": (1, None), "fork": (0, None)}


def test_what_is_impossible_beside_the_events_does_not_come_over(path: Path):
    execute(path, "UPDATE conversations SET created_at = -7 WHERE id = 'a'", "UPDATE idempotency_keys SET events = -3")
    done, target = salvaged(path)
    with target:
        assert lost_ids(target, "a") == []
        assert_nothing_else_than_was_written(target, done)
        assert target.conversation("a").created_at == next(target.log("a")).recorded_at
    assert "the record of an idempotency key is damaged" in {str(finding) for finding in done["a"].lost}


def test_events_whose_conversation_has_no_name_any_more_are_counted(path: Path):
    execute(path, "DELETE FROM conversations WHERE id = 'a'")
    assert copy_readable(str(path), str(path.with_name("copied.db"))).nameless == 1


def test_a_damaged_tree_that_leads_back_is_read_once():
    class Rows(list):
        def fetchone(self):
            return self[0]

    source = SimpleNamespace(execute=lambda _, at: Rows((number,) for number in [*range(at[0], 10), 1]))
    rows = _Rows(source, "SELECT", "id")
    assert list(islice(rows.read(2, 1), 1_000)) == [(number,) for number in range(2, 10)]
    assert not rows.are_all
