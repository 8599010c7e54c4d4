"""``foldlog store verify --views`` compares stored figures and sums with the events."""

from __future__ import annotations

import json
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import foldlog
from foldlog._reports.figures.checking import (
    find_wrong_figures,
    find_wrong_totals,
    forget_figures,
)
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.tables import FigureTables, Where
from foldlog._reports.records.compared_imports import find_wrong_events_of_records
from foldlog.eventstore import Message, Store, open_store
from foldlog.eventstore.lists.checking import find_wrong_attributes
from foldlog.projections import Views
from tests.attacks.made_store import KEYS, RECORDS, reply, user
from tests.attacks.operators import SQLiteOperator
from tests.commands import run_foldlog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    (tmp_path / "import.json").write_text(json.dumps({"messages": RECORDS}))
    with foldlog.open(path) as histories:
        histories["paid"].append([user("pay the mill"), user("now")])
        histories["paid"].append_reply(reply("done"), cost=0.25)
        histories["paid"].fork(at=2, id="fork").append_reply(reply("other"), cost=0.5)
        histories.import_(tmp_path / "import.json", conversation="import")
        FiguresOfStore(histories.store).keep_up()
    with foldlog.open(path, keys=KEYS) as histories:
        histories["sealed"].append_reply(reply("secret"), cost=0.125)
        histories["sealed"].set_attributes(user="ann")
        FiguresOfStore(histories.store).keep_up()
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, keys=KEYS) as store:
        yield store


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement).rowcount
        connection.commit()


def change_record(
    path: Path, name: str, projection: str, change_body: Callable[[bytes], bytes]
) -> None:
    """Change the record of a projection of a conversation. Its checksum is right."""
    operator = SQLiteOperator(path)
    key = operator.conversation(name)["key"]
    [record] = [
        row
        for row in operator.rows("records")
        if (row["conversation"], row["projection"]) == (key, projection)
    ]
    body = change_body(bytes(record["body"]))
    assert body != record["body"]
    changed = operator.with_right_checksum({**record, "body": body})
    operator.update("records", record, body=body, checksum=changed["checksum"])
    operator.close()


def problems(store: Store) -> list[str]:
    views = Views(store)
    names = [row.id for row in store.iter_conversations()]
    found = [f"{name}: {text}" for name in names for text in find_wrong_figures(store, views, name)]
    return [*found, *find_wrong_totals(store)]


def test_right_figures_have_no_findings(store: Store) -> None:
    assert problems(store) == []


def test_numbers_beyond_a_float_are_compared(path: Path) -> None:
    with foldlog.open(path, keys=KEYS) as histories:
        meta = {"usage": {"prompt_tokens": 5}, "parent": 10**400}
        histories["paid"].append(Message(content="now", source="agent", meta=meta))
        FiguresOfStore(histories.store).keep_up()
        assert problems(histories.store) == []


@pytest.mark.parametrize(
    "statement, name, columns",
    [
        ("UPDATE figure_calls SET cost = 9 WHERE cost = 0.25", "paid", "calls"),
        ("UPDATE figure_calls SET cost = 9 WHERE cost = 0.125", "sealed", "calls"),
        ("UPDATE figures SET tokens = 1 WHERE id = 'fork'", "fork", "tokens"),
        ("UPDATE figures SET events = 1 WHERE id = 'import'", "import", "events"),
        ("UPDATE figures SET texts = CAST('{}' AS BLOB) WHERE id = 'paid'", "paid", "texts"),
        ("DELETE FROM figure_counts WHERE what = 'model'", "paid", "counts"),
    ],
)
def test_changed_figures_are_named(
    path: Path, store: Store, statement: str, name: str, columns: str
) -> None:
    change(path, statement)
    [found] = [text for text in problems(store) if text.startswith(f"{name}: ")]
    assert f"its stored figures differ from its events in {columns};" in found


DAMAGED_TEXTS = [
    b"",
    b"\x00\xff",
    b"[" * 100_000,
    b"1" * 5_000,
    b"[]",
    b"1",
    b"null",
    b'"text"',
    b'{"title": 7}',
    b'{"attributes": []}',
    b'{"problem": {}}',
    b'{"needs_key": "x"}',
    b'{"last": 3}',
    b'{"first_error": []}',
    b'{"first_error_at": 5}',
    b'{"context": 3}',
    b'{"context": ["x"]}',
    b'{"begun": 3}',
    b'{"begun": [[]]}',
    b'{"findings": 3}',
    b'{"names": 3}',
    b'{"names": {"a": []}}',
    b'{"\\ud800": 1}',
]


def damage(path: Path, texts: bytes) -> None:
    change(path, f"UPDATE figures SET texts = x'{texts.hex()}' WHERE id = 'paid'")


@pytest.mark.parametrize("texts", DAMAGED_TEXTS, ids=lambda texts: repr(texts[:24]))
def test_figures_that_cannot_be_read_are_named(path: Path, store: Store, texts: bytes) -> None:
    damage(path, texts)
    assert "paid: its stored figures cannot be read; lists and totals may be wrong" in problems(
        store
    )


@pytest.mark.parametrize("texts", DAMAGED_TEXTS, ids=lambda texts: repr(texts[:24]))
def test_figures_that_cannot_be_read_are_counted_again(
    path: Path, store: Store, texts: bytes
) -> None:
    with foldlog.open(path) as histories:
        before = histories["paid"].stats()
    damage(path, texts)
    with foldlog.open(path) as histories:
        figures = FiguresOfStore(histories.store)
        [(row, _)] = figures.page(Where(only=["paid"])).rows
        [(_, overview_only)] = figures.of([row], whole=False)
        assert overview_only.overview.title == "pay the mill"
        assert histories["paid"].stats() == before
    assert problems(store) == []


def test_texts_with_halves_of_surrogate_pairs_and_unknown_fields_are_read(path: Path) -> None:
    texts = {
        "title": "pay \ud83d",
        "attributes": {"\udc00": ["\ud800", 10**400]},
        "begun": ["\udfff"],
        "of a later version": [1],
    }
    damage(path, json.dumps(texts).encode())
    with open_store(path, keys=KEYS) as store:
        [figures] = FigureTables(store.database).between("paid", "paid").values()
        assert figures.overview.problem is None
        assert figures.version == store.conversation("paid").version
        assert figures.overview.title == texts["title"]
        assert figures.overview.attributes == texts["attributes"]
        assert figures.begun == ("\udfff",)


@pytest.mark.parametrize("body", ["x'7b22'", "CAST(replace(body, 'kind', x'6bff') AS BLOB)"])
def test_damaged_sums_of_blocks_end_no_total(path: Path, body: str) -> None:
    with foldlog.open(path, keys=KEYS) as histories:
        before = FiguresOfStore(histories.store).totals().document()
    change(path, f"UPDATE figure_blocks SET body = {body}")
    with foldlog.open(path, keys=KEYS) as histories:
        assert FiguresOfStore(histories.store).totals().document() == before
        [found] = problems(histories.store)
        assert found.startswith("the stored sums of 1 block of conversations differ")


def test_damaged_hashes_of_replies_are_named_and_stop_no_reader(path: Path) -> None:
    change(path, "UPDATE figures SET replies = x'00', replies_compared = 0 WHERE id = 'paid'")
    with foldlog.open(path, keys=KEYS) as histories:
        changed = "paid: its stored figures differ from its events in replies;"
        assert any(text.startswith(changed) for text in problems(histories.store))
        FiguresOfStore(histories.store).keep_up()


def test_changed_sums_of_blocks_are_named(path: Path, store: Store) -> None:
    change(path, "UPDATE figure_blocks SET body = CAST(replace(body, '0.75', '9.75') AS BLOB)")
    [found] = problems(store)
    assert found.startswith("the stored sums of 1 block of conversations differ")


def test_figures_of_no_conversation_are_named(path: Path, store: Store) -> None:
    change(path, "UPDATE figures SET conversation = 99 WHERE id = 'paid'")
    assert any(
        "figures of 1 conversation that it does not have" in text for text in problems(store)
    )


def test_changed_state_of_figures_is_named(path: Path, store: Store) -> None:
    """A reader counts on from the state, so figures that are missing now would be wrong."""
    change_record(path, "paid", "figures", lambda body: body.replace(b"0.25", b"9.25"))
    change(path, "DELETE FROM figures WHERE id = 'paid'")
    change(path, "DELETE FROM figure_blocks")
    changed = "paid: the stored state of its figures differs from its events; lists and totals may"
    assert any(text.startswith(changed) for text in problems(store))


def test_state_of_figures_that_is_no_json_is_counted_again(path: Path, store: Store) -> None:
    change_record(path, "paid", "figures", lambda _: b'{"version')
    assert problems(store) == []
    with foldlog.open(path) as histories:
        histories["paid"].append_reply(reply("more"), cost=0.5)
        FiguresOfStore(histories.store).keep_up()
    assert problems(store) == []


@pytest.mark.parametrize("body", [b'{"user', b"[1]"])
def test_attributes_in_lists_that_are_no_object_are_named(
    path: Path, store: Store, body: bytes
) -> None:
    with foldlog.open(path) as histories:
        histories["paid"].set_attributes(user="ann")
        histories.list(age_max_s=0)
    change_record(path, "paid", "attributes", lambda _: body)
    found = "its attributes in lists differ from its events"
    assert [*find_wrong_attributes(store.database, "paid")] == [found]
    with foldlog.open(path) as histories:
        [paid] = [row for row in histories.list(age_max_s=0).conversations if row.id == "paid"]
    assert paid.attributes == {"user": "ann"}


@pytest.mark.parametrize(
    "change_entries, problem",
    [
        (lambda numbers: numbers[:-3], "lacks event 1, which came from its source"),
        (lambda numbers: [], "lacks 2 events, which came from its source"),
        (lambda numbers: [*numbers[:4], 0, *numbers[5:]], "gives event 0 to two records"),
    ],
)
def test_events_of_records_are_compared(
    path: Path,
    store: Store,
    change_entries: Callable[[Sequence[int]], Sequence[int]],
    problem: str,
) -> None:
    with foldlog.open(path) as histories:
        histories["import"].append(user("mine"))
    assert [*find_wrong_events_of_records(store, "import")] == []
    operator = SQLiteOperator(path)
    [row] = operator.rows("made")
    numbers = array("I", zlib.decompress(row["places"]))
    changed = array("I", change_entries(numbers.tolist()))
    operator.update("made", row, places=zlib.compress(changed.tobytes()))
    operator.close()
    [found] = find_wrong_events_of_records(store, "import")
    assert problem in found
    assert run_foldlog("store", "verify", "import", "--views", "--db", str(path)) == 1


@pytest.mark.parametrize("is_listed", [True, False])
def test_changed_attributes_in_lists_are_named(path: Path, store: Store, is_listed: bool) -> None:
    with foldlog.open(path) as histories:
        histories["paid"].set_attributes(user="ann")
    assert [*find_wrong_attributes(store.database, "paid")] == []
    if is_listed:
        operator = SQLiteOperator(path)
        key = operator.conversation("paid")["key"]
        [listing] = [row for row in operator.rows("listing") if row["conversation"] == key]
        operator.update("listing", listing, digests=listing["digests"][:16] + b"x" * 16)
        operator.close()
        problem = "lists find it by attributes that differ from its events"
    else:
        change_record(path, "paid", "attributes", lambda _: b'{"user":"eve"}')
        problem = "its attributes in lists differ from its events"
    assert [*find_wrong_attributes(store.database, "paid")] == [problem]


def test_outdated_figures_that_no_reader_counts_are_named(path: Path, store: Store) -> None:
    change(path, "UPDATE figures SET version = 1, tokens = 9 WHERE id = 'paid'")
    [overlooked] = [text for text in problems(store) if "missing or outdated" in text]
    assert overlooked.startswith("the figures of 1 conversation are")


def test_outdated_figures_that_the_next_reader_counts_are_not_wrong(path: Path) -> None:
    with foldlog.open(path, keys=KEYS) as histories:
        histories["sealed"].append(user("more"))
        assert problems(histories.store) == []


def test_forgotten_figures_are_counted_again(path: Path, store: Store) -> None:
    change(path, "UPDATE figures SET tokens = 1 WHERE id = 'paid'")
    assert problems(store)
    forget_figures(store, "paid")
    FiguresOfStore(store).keep_up()
    assert problems(store) == []


def test_repair_refuses_a_store_that_is_read_only(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal is no finding about each conversation."""
    read_only = f"sqlite:///{path}?mode=ro"
    assert run_foldlog("store", "verify", "--views", "--repair", "--db", read_only) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "found: " not in printed.err
    assert "the store is open for reading only; leave out --repair" in printed.err


def test_command_names_and_repairs_changed_figures(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, "UPDATE figures SET tokens = 1 WHERE id = 'paid'")
    assert run_foldlog("store", "verify", "--db", str(path)) == 3  # an encrypted conversation
    capsys.readouterr()
    assert run_foldlog("store", "verify", "--views", "--db", str(path)) == 1
    assert "its stored figures differ from its events in tokens" in capsys.readouterr().err
    assert run_foldlog("store", "verify", "--views", "--repair", "--db", str(path)) == 3
