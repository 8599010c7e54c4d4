"""Figures of new conversations are read together, because each question is a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import foldlog
from foldlog._reports.figures.checking import find_wrong_figures, find_wrong_totals
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog.eventstore import CondensationAction
from foldlog.eventstore.recorders.postgres.reading import PostgresReader
from foldlog.eventstore.recorders.postgres.wire import ConnectionLost, Wire
from foldlog.projections import Views
from tests.attacks.made_store import KEYS, reply, user


@pytest.fixture
def histories(url: str) -> Iterator[foldlog.Histories]:
    with foldlog.open(url) as histories:
        yield histories


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The round trips to the server."""
    trips: list[int] = []
    ask = Wire.ask

    def counted(wire: Wire) -> Any:
        trips.append(1)
        return ask(wire)

    monkeypatch.setattr(Wire, "ask", counted)
    return trips


def fill(histories: foldlog.Histories, count: int) -> None:
    for number in range(count):
        history = histories[f"c{number}"]
        history.append([user("hi")])
        for turn in range(number % 5):
            history.append_reply(reply(f"{number} {turn}", (f"call {turn}", "pay")), cost=0.25)
            history.append([{"role": "tool", "tool_call_id": f"call {turn}", "content": "paid"}])


def figures(histories: foldlog.Histories) -> list[Any]:
    rows = FiguresOfStore(histories.store).of(histories.store.iter_conversations())
    return [stored for _, stored in rows]


def problems(histories: foldlog.Histories) -> list[str]:
    store = histories.store
    names = [row.id for row in store.iter_conversations() if row.erased_at is None]
    found = [text for name in names for text in find_wrong_figures(store, Views(store), name)]
    return [*found, *find_wrong_totals(store)]


def test_new_conversations_need_few_round_trips(
    histories: foldlog.Histories, trips: list[int]
) -> None:
    fill(histories, 32)
    trips.clear()
    FiguresOfStore(histories.store).refresh()
    assert len(trips) < 5 * 32
    assert problems(histories) == []


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_figures_read_together_equal_those_of_each_conversation(keys: Any, url: str) -> None:
    with foldlog.open(url, keys=keys) as histories:
        fill(histories, 20)
        histories["c4"].fork(at=3, id="fork").append([user("other")])
        histories["c9"].append(CondensationAction(forgotten_event_ids=[0]))
        histories["long"].append([user(f"{number}") for number in range(40)])
        histories["c3"].set_attributes(title="three", user="ann")
        histories.erase("c2", reason="asked for")
        FiguresOfStore(histories.store).refresh()
        assert problems(histories) == []
        assert all(stored.overview.problem is None for stored in figures(histories))


@pytest.mark.parametrize("place", range(9, 99, 30))
def test_a_lost_connection_is_no_problem_of_a_conversation(
    place: int, histories: foldlog.Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(histories, 20)
    remaining = [place]
    ask = PostgresReader.ask

    def lose(reader: PostgresReader, statement: str, *parameters: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise ConnectionLost("the server went away")
        return ask(reader, statement, *parameters)

    monkeypatch.setattr(PostgresReader, "ask", lose)
    counted = FiguresOfStore(histories.store)
    counted.refresh()
    monkeypatch.undo()
    assert remaining[0] < 0, "the connection was lost, and the reading went on"
    assert counted.missing == 0
    rows = counted.of(histories.store.iter_conversations())
    assert [stored.overview.problem for _, stored in rows] == [None] * 20
    assert problems(histories) == []


def test_a_role_with_one_connection_counts(
    histories: foldlog.Histories, url: str, postgres_server: Any, schema: str
) -> None:
    fill(histories, 20)
    histories.close()
    postgres_server.sql(
        "CREATE ROLE one LOGIN CONNECTION LIMIT 1;"
        f"GRANT USAGE ON SCHEMA {schema} TO one;"
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO one"
    )
    try:
        with foldlog.open(url.replace("postgres@", "one@")) as of_one:
            FiguresOfStore(of_one.store).refresh()
            assert problems(of_one) == []
    finally:
        postgres_server.sql("DROP OWNED BY one; DROP ROLE one")
