"""Counting only the new events gives the figures of all events, and reads no earlier event."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

import foldlog
from foldlog._reports.figures import counting, keeping_up
from foldlog._reports.figures.checking import find_wrong_figures
from foldlog._reports.figures.counting import figures_of
from foldlog._reports.figures.settled_replies import EarlierChanged, StateIncomplete
from foldlog._reports.figures.spending import Spending
from foldlog.eventstore import Action, Annotation, Event, Logged, Message, Observation, Origin
from foldlog.projections import Views
from tests.foldlog.formats.test_resuming import Growth, damaged, rounds
from tests.foldlog.records import records_of, write_lines
from tests.how_many import some

NAMES = ("codex", "copilot-cli", "claude-code", "pi", "qwen-code")
AT = datetime(2026, 2, 3, tzinfo=UTC)


def taken(spending: Spending, events: list[Event], start: int) -> Spending:
    spending.take(
        [Logged(AT, event) for event in events[start:]], start=start, recorded_in=lambda _: "c"
    )
    return spending


def state_of(spending: Spending) -> Any:
    """Return the state as it is stored, without the hashes, which are only a cache."""
    plain = to_builtins(spending, str_keys=True)
    return {name: value for name, value in plain.items() if name != "hashes"}


def as_stored(spending: Spending) -> Spending:
    return msgspec.json.decode(msgspec.json.encode(spending), type=Spending)


def grown(events: list[Event], stops: list[int]) -> None:
    """Count ``events`` in steps that end at ``stops``, and compare each state with one count."""
    spending = Spending()
    start = 0
    for stop in stops:
        try:
            spending = taken(as_stored(spending), events[:stop], start)
        except EarlierChanged:
            spending = taken(Spending(), events[:stop], 0)
        assert spending.counts_on
        assert state_of(spending) == state_of(taken(Spending(), events[:stop], 0)), stop
        start = stop


def some_stops(chosen: random.Random, count: int) -> list[int]:
    stops = sorted({chosen.randrange(1, count + 1) for _ in range(count // 2)})
    return [*stops, count] if stops[-1:] != [count] else stops


@pytest.mark.parametrize("seed", some(range(40), 3))
@pytest.mark.parametrize("name", NAMES)
def test_calls_of_a_damaged_log_grow(name: str, seed: int) -> None:
    chosen = random.Random(f"{name} {seed}")
    log = [*rounds(name, records_of(name))]
    first = chosen.randrange(max(len(log) - 200, 1))
    records = damaged(log[first : first + 200], chosen)
    events = [event for made in Growth(name, records).events for event in made or ()]
    grown(events, some_stops(chosen, len(events)))


def session(name: str, chosen: random.Random) -> list[Event]:
    """Return the events of a session with calls of tools, whose results may be late or missing, and
    with all records of usage that its format has.
    """
    events = list[Event]()
    waiting = list[str]()
    total = 0

    def add(kind: Any, **fields: Any) -> None:
        origin = Origin(format=name, id=f"e{len(events)}")
        events.append(kind(id=len(events), origin=origin, **fields))

    for number in range(60):
        choice = chosen.random()
        if choice < 0.1:
            add(Message, content="go on", source="user")
        elif choice < 0.4:
            waiting.append(f"call-{number}")
            add(Action, tool=chosen.choice(["ls", "cat"]), call_id=waiting[-1])
        elif choice < 0.6 and waiting:
            call_id = waiting.pop(chosen.randrange(len(waiting)))
            add(Observation, content="", tool="", call_id=call_id, is_error=chosen.random() < 0.5)
        elif choice < 0.7:
            meta = {"usage": {"completion_tokens": number}, "model": "m"}
            add(Message, content="so", source="agent", meta=meta)
        else:
            total = 0 if chosen.random() < 0.05 else total + chosen.randrange(20)
            kind, data = usage_record(name, total, chosen)
            add(Annotation, name=kind, data=data)
    return events


def usage_record(name: str, total: int, chosen: random.Random) -> tuple[str, Any]:
    """Return the name and the data of a record of usage, or of what it depends on."""
    choice = chosen.random()
    model = chosen.choice(["large", "small"])
    if name == "codex":
        if choice < 0.1:
            return "session_meta", {"forked_from_id": chosen.choice(["s1", None])}
        if choice < 0.2:
            return "turn_context", {"model": model}
        info = {
            "last_token_usage": {"input_tokens": 3, "output_tokens": 1},
            "total_token_usage": {"input_tokens": total, "output_tokens": total // 2},
        }
        return "token_count", {"info": info}
    usage = {"inputTokens": 3, "outputTokens": 2}
    if choice < 0.3:
        metrics = {model: {"requests": {"count": 2}, "usage": usage}}
        return "session.shutdown", {"modelMetrics": metrics}
    if choice < 0.4 and total > 150:
        return "session.usage_record", {"usage": {**usage, "model": model}}
    return "assistant.turn_end", {}


@pytest.mark.parametrize("seed", some(range(400), 20))
@pytest.mark.parametrize("name", ["codex", "copilot-cli", "pi"])
def test_calls_of_a_session_grow(name: str, seed: int) -> None:
    chosen = random.Random(f"{name} {seed}")
    events = session(name, chosen)
    grown(events, [*range(1, len(events) + 1)])


def with_replies(events: list[Event], chosen: random.Random) -> list[Event]:
    """Return the events with replies between them that foldlog recorded itself."""
    mixed = list[Event]()
    for event in events:
        mixed.append(event)
        if chosen.random() < 0.15:
            usage = {"prompt_tokens": chosen.randrange(1, 10), "completion_tokens": 2}
            meta = {"model": "own", "usage": usage}
            mixed.append(Message(content="so", source="agent", meta=meta))
    return [replace(event, id=number) for number, event in enumerate(mixed)]


@pytest.mark.parametrize("seed", some(range(100), 8))
@pytest.mark.parametrize("name", ["codex", "copilot-cli", "pi", "claude-code"])
def test_calls_of_a_session_that_goes_on_in_foldlog_grow(name: str, seed: int) -> None:
    chosen = random.Random(f"{name} {seed}")
    events = with_replies(session(name, chosen), chosen)
    grown(events, [*range(1, len(events) + 1)])
    replies = taken(Spending(), events, 0).replies
    one_by_one = Spending()
    for stop in range(1, len(events) + 1):
        try:
            one_by_one = taken(one_by_one, events[:stop], stop - 1)
        except EarlierChanged:
            one_by_one = taken(Spending(), events[:stop], 0)
    assert [*one_by_one.replies] == [*replies]  # in the same order: the last one is the present


def usage_of_codex(total: int) -> Annotation:
    info = {
        "last_token_usage": {"input_tokens": 3, "output_tokens": 1},
        "total_token_usage": {"input_tokens": total, "output_tokens": 1},
    }
    origin = Origin(format="codex", id=f"e{total}")
    return Annotation(name="token_count", data={"info": info}, origin=origin)


def test_replies_of_a_fork_stay_when_imported_events_come(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "store.db") as histories:
        history = histories.create("c")
        history.append(Message(content="hi", source="user"))
        fork = history.fork()
        meta = {"model": "own", "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
        fork.append(Message(content="a", source="agent", meta=meta))
        assert [model for _, model in fork.stats().models] == ["own"]
        for total in (3, 6):
            fork.append(usage_of_codex(total))
            assert {model for _, model in fork.stats().models} == {"own", "(not named)"}
        wrong = find_wrong_figures(histories.store, Views(histories.store), fork.id)
        assert [*wrong] == []


def test_a_reader_of_another_form_is_made_again() -> None:
    events = [usage_of_codex(3), usage_of_codex(6)]
    spending = taken(Spending(), [replace(events[0], id=0)], 0)
    assert spending.reader is not None
    spending.reader[1]["totals"] = "other"
    with pytest.raises(StateIncomplete):
        taken(spending, [replace(event, id=number) for number, event in enumerate(events)], 1)


@pytest.mark.parametrize("name", ["codex", "copilot-cli"])
def test_figures_of_a_growth_read_only_new_events(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()
    compared = 0
    original = counting.read_in_steps

    def read_in_steps(events: Any, first: int, stop: int) -> Any:
        read.append(stop - first)
        return original(events, first, stop)

    monkeypatch.setattr(counting, "read_in_steps", read_in_steps)
    records = records_of(name)
    path = tmp_path / "log.jsonl"
    with foldlog.open(tmp_path / "store.db") as histories:
        for stop in range(2, len(records) + 1):
            write_lines(path, records[:stop])
            (history,) = histories.import_(path, format=name)
            before = keeping_up.read_state(histories.store, history.id)
            read.clear()
            history.view()
            history.stats()
            # The totals of a session of Copilot CLI take the place of its replies so far.
            if before is not None and records[stop - 1]["type"] != "session.shutdown":
                assert sum(read) == history.version() - before.version
                compared += 1
            row = histories.store.conversation(history.id)
            expected, _ = figures_of(histories.store, Views(histories.store), row).to_count_on()
            state = keeping_up.read_state(histories.store, history.id)
            assert to_builtins(state, str_keys=True) == to_builtins(expected, str_keys=True)
        wrong = find_wrong_figures(histories.store, Views(histories.store), history.id)
        assert [*wrong] == []
        assert compared
