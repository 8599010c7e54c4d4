"""Figures count on without decoding the replies that are settled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, to_builtins
from msgspec.structs import replace

import foldlog
from foldlog._reports.figures import keeping_up, settled_replies
from foldlog._reports.figures.checking import find_wrong_figures, find_wrong_totals
from foldlog._reports.figures.documents import collect_stats
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog.eventstore import Action, Message, Observation, Origin, open_store
from foldlog.projections import Views
from tests.attacks.made_store import KEYS
from tests.attacks.operators import SQLiteOperator


@pytest.fixture(autouse=True)
def blocks_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled_replies, "_IN_BLOCK", 2)
    monkeypatch.setattr(settled_replies, "_OPEN", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def histories(path: Path) -> Iterator[foldlog.Histories]:
    with foldlog.open(path) as histories:
        yield histories


def reply(number: int, tokens: int) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "model": f"model-{number % 2}",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": f"reply {number}"}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 8},
    }


def fill(history: foldlog.History, start: int, stop: int) -> None:
    for number in range(start, stop):
        history.append_reply(reply(number, tokens=100 + number), cost=0.1 * number)
        history.stats()


def problems(histories: foldlog.Histories) -> list[str]:
    store = histories.store
    names = [row.id for row in store.iter_conversations()]
    found = [text for name in names for text in find_wrong_figures(store, Views(store), name)]
    return [*found, *find_wrong_totals(store)]


def state_of(histories: foldlog.Histories, name: str) -> Any:
    state = keeping_up.read_state(histories.store, name)
    assert state is not None
    return state.spending


def records(path: Path) -> list[dict[str, Any]]:
    operator = SQLiteOperator(path)
    rows = operator.rows("records")
    operator.close()
    return [row for row in rows if row["projection"] == settled_replies.PROJECTION]


def test_a_growth_reads_no_settled_reply(
    histories: foldlog.Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = histories["c"]
    with monkeypatch.context() as patched:
        patched.setattr("foldlog._reports.figures.counting.read_blocks", _fail)
        fill(history, 0, 12)
    spending = state_of(histories, "c")
    assert (spending.settled.count, len(spending.replies)) == (8, 4)
    assert problems(histories) == []
    spent = history.stats().spent
    assert (spent.calls, spent.prompt_tokens) == (12, sum(range(100, 112)))
    assert spent.cost == pytest.approx(6.6)


def _fail(*arguments: object) -> None:
    raise AssertionError(arguments)


def line(number: int, tokens: int, *, call: bool = False) -> Any:
    """Return a line of an imported reply, which has so many tokens."""
    usage = {"prompt_tokens": 40, "completion_tokens": tokens}
    meta = {"usage": usage, "model": "m", "reply": f"r{number}"}
    origin = Origin(format="claude-code", id=f"r{number}-{tokens}")
    if call:
        return Action(tool="ls", call_id=f"call-{number}", meta=meta, origin=origin)
    return Message(source="agent", content="x", meta=meta, origin=origin)


def result(number: int, text: str) -> Any:
    origin = Origin(format="claude-code", id=f"result-{number}-{text}")
    return Observation(
        content=text, tool="ls", call_id=f"call-{number}", is_error=text == "no", origin=origin
    )


@pytest.mark.parametrize("seed", range(4))
def test_settled_replies_change_no_figure(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(seed)
    events = some_events(chosen)
    with (
        foldlog.open(tmp_path / "settled.db") as settled,
        foldlog.open(tmp_path / "open.db") as unsettled,
    ):
        while events:
            count = chosen.randrange(1, 8)
            found = []
            for histories, open_replies in ((settled, 3), (unsettled, 1_000)):
                monkeypatch.setattr(settled_replies, "_OPEN", open_replies)
                for name in ("c", "the same replies"):
                    histories[name].append(events[:count])
                    histories[name].stats()
                FiguresOfStore(histories.store).keep_up()
                totals = collect_stats(histories.store, None, views=Views(histories.store))
                documents = [
                    histories["c"].stats().document(),
                    replace(totals.document(), behind=UNSET),
                ]
                found.append([to_builtins(document) for document in documents])
            first, second = found
            assert _without_times(first) == _without_times(second)
            del events[:count]
        state = keeping_up.read_state(settled.store, "c")
        expected = keeping_up.read_state(unsettled.store, "c")
        assert state is not None
        assert expected is not None
        assert state.spending.settled.count
        state.unsettle(
            settled_replies.read_blocks(settled.store, "c", state.spending.settled.count)
        )
        expected.sum_calls()
        assert [*state.spending.replies.items()] == [*expected.spending.replies.items()]
        assert state.spending.tools.by_reply == expected.spending.tools.by_reply
        assert (state.hashes, state.calls) == (expected.hashes, expected.calls)


def some_events(chosen: random.Random) -> list[Any]:
    """Return replies with late lines and late results of tools, and copies of replies."""
    events: list[Any] = []
    waiting: list[int] = []
    for number in range(30):
        has_call = chosen.random() < 0.5
        events.append(line(number, chosen.randrange(10, 99), call=has_call))
        if has_call:
            waiting.append(number)
        if chosen.random() < 0.2:
            events.append(line(chosen.randrange(number + 1), chosen.randrange(10, 99)))
        if waiting and chosen.random() < 0.5:
            place = chosen.randrange(len(waiting))
            events.append(result(waiting.pop(place), chosen.choice(["ok", "no"])))
        if chosen.random() < 0.1:
            events.append(Message(source="user", content="go on"))
    return events


def _without_times(documents: list[Any]) -> list[Any]:
    times = ("first_at", "last_at", "longest_wait_s", "first_error_at")
    return [
        {name: value for name, value in document.items() if name not in times}
        for document in documents
    ]


def test_a_later_line_of_a_settled_reply_is_counted(histories: foldlog.Histories) -> None:
    history = histories["c"]
    for number in range(10):
        history.append([line(number, 40)])
        history.stats()
    assert state_of(histories, "c").settled.has("r1")
    history.append([line(1, 90)])
    assert history.stats().spent.completion_tokens == 9 * 40 + 90
    assert problems(histories) == []


@pytest.mark.parametrize("change", ["lost", "damaged", "no JSON"])
def test_a_missing_block_is_counted_again(
    change: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with foldlog.open(path) as histories:
        for number in range(10):
            histories["c"].append([line(number, 40)])
            histories["c"].stats()
    operator = SQLiteOperator(path)
    [record] = [row for row in records(path) if row["version"] == 2]
    if change == "lost":
        operator.execute(
            "DELETE FROM records WHERE projection = ? AND version = 2", settled_replies.PROJECTION
        )
    elif change == "damaged":
        operator.update("records", record, checksum=record["checksum"] ^ 1)
    else:
        changed = operator.with_right_checksum({**record, "body": b"{"})
        operator.update("records", record, body=b"{", checksum=changed["checksum"])
    operator.close()
    monkeypatch.setattr(settled_replies, "_OPEN", 5)
    with foldlog.open(path) as histories:
        assert any(
            "the stored state of its figures differs" in text for text in problems(histories)
        )
        histories["c"].append([line(1, 90)])
        assert histories["c"].stats().spent.completion_tokens == 9 * 40 + 90
        assert problems(histories) == []
        assert len(records(path)) == state_of(histories, "c").settled.blocks == 2


def test_a_changed_block_is_named(path: Path) -> None:
    with foldlog.open(path) as histories:
        fill(histories["c"], 0, 10)
    operator = SQLiteOperator(path)
    record = records(path)[0]
    body = bytes(record["body"]).replace(b"100", b"900")
    assert body != record["body"]
    changed = operator.with_right_checksum({**record, "body": body})
    operator.update("records", record, body=body, checksum=changed["checksum"])
    operator.close()
    with foldlog.open(path) as histories:
        assert problems(histories) == [
            "the stored state of its figures differs from its events; lists and totals may be wrong"
        ]


def rows_of_replies(path: Path) -> list[tuple[int, int]]:
    operator = SQLiteOperator(path)
    rows = operator.rows("figure_replies")
    operator.close()
    return sorted((row["conversation"], row["reply"]) for row in rows)


def test_a_total_counts_a_repeated_settled_reply_once(
    histories: foldlog.Histories, path: Path
) -> None:
    fill(histories["c"], 0, 10)
    lines = [line(number, 40) for number in range(10)]
    for name in ("first", "second"):
        for entry in lines:
            histories[name].append([entry])
            histories[name].stats()
    FiguresOfStore(histories.store).keep_up()
    total = collect_stats(histories.store, None, views=Views(histories.store)).spent
    assert total.prompt_tokens == sum(range(100, 110)) + 10 * 40
    repeated = rows_of_replies(path)
    assert len(repeated) == 20
    histories["first"].append([line(20, 7)])
    histories["first"].stats()
    assert rows_of_replies(path) == repeated
    FiguresOfStore(histories.store).keep_up()
    total = collect_stats(histories.store, None, views=Views(histories.store)).spent
    assert total.prompt_tokens == sum(range(100, 110)) + 11 * 40
    assert problems(histories) == []


def test_blocks_are_encrypted_and_go_with_an_erasure(path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.db"
    with foldlog.open(plain) as histories:
        fill(histories["c"], 0, 10)
    assert any(b"model-0" in row["body"] for row in records(plain))
    with foldlog.open(path, keys=KEYS) as histories:
        fill(histories["c"], 0, 10)
    assert records(path)
    assert all(b"model-0" not in row["body"] for row in records(path))
    with foldlog.open(path, keys=KEYS) as histories:
        histories["c"].append([line(50, 40)])
        assert histories["c"].stats().spent.prompt_tokens == sum(range(100, 110)) + 40
        assert problems(histories) == []
        histories.erase("c", reason="asked for")
    assert records(path) == []


def test_a_state_of_earlier_code_is_not_counted_on(
    histories: foldlog.Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(settled_replies, "_OPEN", 1_000)
        patched.setattr(keeping_up, "_STATE_CODE", 7)
        fill(histories["c"], 0, 10)
    assert keeping_up.read_state(histories.store, "c") is None
    assert problems(histories) == []
    fill(histories["c"], 10, 11)
    assert state_of(histories, "c").settled.count == 8
    assert problems(histories) == []


def test_a_reader_cannot_write_blocks(path: Path) -> None:
    with foldlog.open(path) as histories:
        for number in range(10):
            histories["c"].append([line(number, 40)])
            histories["c"].stats()
        histories["c"].append([line(1, 90), line(50, 7)])
    with foldlog.Histories(open_store(f"sqlite:///{path}?mode=ro")) as histories:
        assert histories["c"].stats().spent.completion_tokens == 9 * 40 + 90 + 7
