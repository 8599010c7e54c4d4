"""A checkpoint covers the records of an import that nobody had opened. An operator makes its events
after the checkpoint, as the first reader does, and changes them.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import foldlog
from foldlog._imports import making_events
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog.eventstore import open_store
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from tests.attacks.arenas import Arena
from tests.attacks.made_store import KEYS, user
from tests.attacks.operators import Operator
from tests.commands import run_foldlog
from tests.stored_rows import with_fields

NAME = "unopened"
OTHER = "since the checkpoint, record 1 of its source became other events than it has"
ADDED = "since the checkpoint, it was put before the events of record"
CONTINUES = "its source says that it continues another conversation"


def without_key(arena: Arena) -> foldlog.Histories:
    """Open the store so that new events are not encrypted, and the operator can write them."""
    joined = "&" if "?" in arena.url else "?"
    return foldlog.open(f"{arena.url}{joined}plain=allowed")


def opened(arena: Arena) -> None:
    arena.restore()
    with without_key(arena) as all_:
        all_[NAME].view()


def say_otherwise(op: Operator) -> None:
    key = op.conversation(NAME)["key"]
    [row] = [row for row in op.events(key) if row.id == 1]
    op.rewrite(key, with_fields(row, body=row.body.replace(b"12 tons", b"99 tons")))


def drop_an_event(op: Operator) -> None:
    state = op.conversation(NAME)
    key = state["key"]
    first, _, last = op.events(key)
    op.execute("DELETE FROM events WHERE conversation = ? AND id = 1", key)
    op.execute("UPDATE events SET id = 1 WHERE conversation = ? AND id = 2", key)
    op.relink(state, [first, with_fields(last, event_id=1, shown_before=1)], 0)
    for row in op.rows("made"):
        if row["conversation"] == key:
            made = array("I", [0, 0, 1, 2, 1, 1])
            op.update("made", row, places=zlib.compress(made.tobytes()))


def put_between(op: Operator) -> None:
    """Put an event that no record became between the events of two records."""
    state = op.conversation(NAME)
    key = state["key"]
    first, second, third, appended = op.events(key)
    rows = [
        with_fields(row, event_id=number, shown_before=number, recorded_at=first.recorded_at)
        for number, row in enumerate((first, appended, second, third))
    ]
    op.relink(state, rows, 0)
    for row in op.rows("made"):
        if row["conversation"] == key:
            made = array("I", [0, 0, 1, 1, 2, 1, 2, 3, 1])
            op.update("made", row, places=zlib.compress(made.tobytes()))


def change_made(op: Operator, *made: int, of_source: int = 3) -> None:
    """Change of which records the events are, and how many records have become events."""
    key = op.conversation(NAME)["key"]
    for row in op.rows("made"):
        if row["conversation"] == key:
            op.update("made", row, places=zlib.compress(array("I", made).tobytes()))
    for row in op.rows("sources"):
        if row["conversation"] == key:
            op.update("sources", row, made=of_source)
    op.execute("UPDATE conversations SET pending = ? WHERE key = ?", 3 - of_source, key)


def give_a_record_to_covered_events(op: Operator) -> None:
    say_otherwise(op)
    change_made(op, 0, 0, 1, 1, 1, 1, 2, 0, 1)


def lose_the_last_record(op: Operator) -> None:
    """The last two records became no events, so no reader makes their events."""
    key = op.conversation(NAME)["key"]
    op.execute("DELETE FROM events WHERE conversation = ? AND id > 0", key)
    change_made(op, 0, 0, 1)


def put_before_the_last_record(op: Operator) -> None:
    """The last record has no events yet, but the forged event has its id."""
    key = op.conversation(NAME)["key"]
    *_, last = op.events(key)
    op.rewrite(key, with_fields(last, body=last.body.replace(b"unopened", b"burn it")))
    change_made(op, 0, 0, 1, 1, 1, 1, of_source=2)


def make_again(op: Operator) -> None:
    """The next reader makes the events of the first record again."""
    change_made(op, of_source=0)


@pytest.mark.parametrize(
    "change, problem",
    [
        (give_a_record_to_covered_events, OTHER),
        (lose_the_last_record, OTHER),
        (put_before_the_last_record, f"event 2: {ADDED} 2 of its source"),
        (make_again, "1 records of its source had become events at the checkpoint, and 0 have now"),
    ],
)
def test_events_of_records_that_had_none_at_the_checkpoint_are_compared(
    arena: Arena,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Operator], None],
    problem: str,
) -> None:
    """At the checkpoint, the import has events of its first record only. The list which says this
    is the owner's.
    """
    arena.restore()
    later = interrupted(arena, monkeypatch)
    assert later.judge_without_views() == []
    with without_key(arena) as all_:
        all_[NAME].view()
    assert later.judge(keys=KEYS) == []
    operator = arena.operator()
    change(operator)
    operator.close()
    assert f"{NAME}: {problem}" in later.judge_without_views(keys=KEYS)


def interrupted(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Arena:
    """Make the events of the first record, and then a checkpoint."""
    write = making_events._Making._write

    def write_first(self: Any, first: int, *arguments: Any, **named: Any) -> None:
        if first > 0:
            raise KeyboardInterrupt
        write(self, first, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(making_events, "_EVENTS", 1)
        patch.setattr(making_events._Making, "_write", write_first)
        with without_key(arena) as all_, pytest.raises(KeyboardInterrupt):
            all_[NAME].view()
    with open_store(arena.url) as store:
        row = store.conversation(NAME, as_stored=True)
        assert (row.version, row.unmade) == (1, 2)
        return replace(arena, note=make_checkpoint(store))


def say_that_records_were_handed_over(op: Operator) -> None:
    """Records of a conversation that went on in another program have no events of their own."""
    say_otherwise(op)
    for row in op.rows("sources"):
        if op.name_of(row["conversation"]) == NAME:
            about = json.loads(zlib.decompress(bytes(row["about"])))
            about["continued"] = [2, [[0], [1]]]
            op.update("sources", row, about=zlib.compress(json.dumps(about).encode()))


@pytest.mark.parametrize(
    "change, problem",
    [
        (say_otherwise, OTHER),
        (drop_an_event, OTHER),
        (say_that_records_were_handed_over, CONTINUES),
    ],
)
def test_events_that_records_became_since_the_checkpoint_are_compared(
    arena: Arena, change: Callable[[Operator], None], problem: str
) -> None:
    opened(arena)
    assert arena.judge(keys=KEYS) == []
    operator = arena.operator()
    change(operator)
    operator.close()
    found = arena.judge(keys=KEYS)
    assert any(text.startswith(f"{NAME}: {problem}") for text in found)


def test_proof_that_the_list_was_continued_compares_them(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(arena)
    monkeypatch.setenv("FOLDLOG_KEY_FILE", str(arena.folder / "keys.txt"))
    since = arena.folder / "since.txt"
    since.write_text(str(arena.note))
    words = ("store", "checkpoint", "--since", str(since), "--db", arena.url)
    assert run_foldlog(*words) == 0
    operator = arena.operator()
    say_otherwise(operator)
    operator.close()
    assert run_foldlog(*words) != 0
    assert OTHER in capsys.readouterr().err


def test_events_after_a_redacted_record_are_not_compared(arena: Arena) -> None:
    """A redacted record may have had names to which later records refer, so only a difference after
    it is no proof of a change.
    """
    opened(arena)
    with without_key(arena) as all_:
        all_[NAME].redact(0, reason="asked", by="legal")
    assert arena.judge(keys=KEYS) == []
    operator = arena.operator()
    say_otherwise(operator)
    operator.close()
    [found] = arena.judge(keys=KEYS)
    assert found.startswith(f"{NAME}: the events that record 1 of its source became since the")


def test_figures_are_compared_although_events_are_not(arena: Arena) -> None:
    """An operator who makes a check say that it could not compare an event hides nothing else."""
    opened(arena)
    with without_key(arena) as all_:
        all_[NAME].redact(0, reason="asked", by="legal")
    operator = arena.operator()
    say_otherwise(operator)
    with without_key(arena) as all_:
        FiguresOfStore(all_.store).keep_up()
    assert len(arena.judge(keys=KEYS)) == 1
    key = operator.conversation(NAME)["key"]
    operator.execute("UPDATE figures SET errors = 7 WHERE conversation = ?", key)
    operator.close()
    found = arena.judge(keys=KEYS)
    assert any(text.startswith(f"{NAME}: its stored figures differ") for text in found)


def test_event_between_the_events_of_records_is_named(arena: Arena) -> None:
    opened(arena)
    with without_key(arena) as all_:
        all_[NAME].append(user("burn it"))
        all_.list(age_max_s=0)
    assert arena.judge(keys=KEYS) == []
    operator = arena.operator()
    put_between(operator)
    operator.close()
    found = arena.judge(keys=KEYS)
    assert f"{NAME}: event 1: {ADDED} 1 of its source" in found


def test_appended_events_are_not_taken_for_records(arena: Arena) -> None:
    opened(arena)
    with foldlog.open(arena.url, keys=KEYS) as all_:
        all_[NAME].append(user("mine"))
    assert arena.judge(keys=KEYS) == []
    with open_store(arena.url, keys=KEYS) as store:
        assert store.version(NAME) == 4
