"""The short form of ``python -m tests.simulation``."""

import pytest

from foldlog import eventstore
from foldlog.condensers.reports import annotation
from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.redact import redact
from tests.simulation import model
from tests.simulation.plain import as_stored, said
from tests.simulation.run import play, shortened, worlds
from tests.simulation.steps import drawn
from tests.simulation.world import sped_up

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    "recorder, brief, of_all", [("memory", 2_000, 8_000), ("sqlite", 200, 2_800)]
)
def test_a_simulation_finds_nothing(recorder, brief, of_all, whole):
    steps = of_all if whole else brief
    assert worlds(1, steps, float("inf"), recorder) == (steps, None)


def test_a_world_goes_the_same_way_each_time():
    told = []
    for _ in range(2):
        with sped_up():
            failed = play("2/0", "memory", [*drawn("2/0", 30), ("no such step", 0)])
        assert failed is not None
        told.append(failed.told)
    assert told[0] == told[1]


def test_of_the_report_of_a_condenser_the_same_stays_as_in_the_model():
    with open_store("memory:") as store:
        store.append("c1", annotation([{"why": "a secret word"}], "digest"), expected_version=0)
        (report,) = store.events("c1")
        redact(store, "c1", 0, reason="asked", by="sim")
        left = said(next(iter(store.events("c1"))))
    assert left["data"] == [{"condenser": "digest"}]
    then = as_stored(report)
    assert left == then | {
        "redacted": True,
        "data": model.without_content(then | {"at": 0, "tag": 0})["data"],
    }


def test_a_failure_is_shortened():
    with sped_up():
        failed = play("2/1", "memory", [*drawn("2/1", 30), ("no such step", 0)])
        assert failed is not None
        assert len(failed.steps) == 31
        assert shortened(failed).steps == [("no such step", 0)]


def test_a_store_that_forks_an_event_too_early_is_found(monkeypatch):
    fork = eventstore.Store.fork
    monkeypatch.setattr(
        eventstore.Store,
        "fork",
        lambda self, name, at, new, **options: fork(self, name, max(1, at - 1), new, **options),
    )
    _, failed = worlds(1, 5_000, float("inf"), "memory")
    assert failed is not None
    assert failed.label == "fork"
