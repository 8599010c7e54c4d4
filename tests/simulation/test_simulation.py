"""The short form of ``python -m tests.simulation``."""

import pytest

from foldlog import eventstore
from foldlog.condensers.reports import annotation
from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.redact import redact
from tests.simulation import model
from tests.simulation.conversion import product_fields, to_model
from tests.simulation.run import play, run_worlds, shorten
from tests.simulation.table import draw_steps
from tests.simulation.world import sped_up

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    "recorder, brief, long",
    [("memory", 1_000, 8_000), ("sqlite", 200, 2_800), ("postgresql", 60, 60)],
)
def test_a_simulation_finds_nothing(recorder, brief, long, whole, request):
    steps = long if whole else brief
    database = request.getfixturevalue("postgres_url") if recorder == "postgresql" else None
    assert run_worlds(1, steps, float("inf"), recorder, database) == (steps, None)


def test_a_world_goes_the_same_way_each_time():
    traces = []
    for _ in range(2):
        with sped_up():
            failure = play("2/0", "memory", [*draw_steps("2/0", 30), ("no such step", 0)])
        assert failure is not None
        traces.append(failure.trace)
    assert traces[0] == traces[1]


def test_redacted_report_is_as_in_the_model():
    with open_store("memory:") as store:
        store.append("c1", annotation([{"why": "a secret word"}], "digest"), expected_version=0)
        (report,) = store.events("c1")
        redact(store, "c1", 0, reason="asked", by="sim")
        redacted = product_fields(next(iter(store.events("c1"))))
    assert redacted["data"] == [{"condenser": "digest"}]
    before = to_model(report)
    data = model.without_content(before | {"at": 0, "tag": 0})["data"]
    assert redacted == before | {"redacted": True, "data": data}


def test_a_failure_is_shortened():
    with sped_up():
        failure = play("2/1", "memory", [*draw_steps("2/1", 30), ("no such step", 0)])
        assert failure is not None
        assert len(failure.steps) == 31
        assert shorten(failure).steps == [("no such step", 0)]


def test_fork_at_a_wrong_event_is_found(monkeypatch):
    fork = eventstore.Store.fork
    monkeypatch.setattr(
        eventstore.Store,
        "fork",
        lambda self, name, at, new, **options: fork(self, name, max(1, at - 1), new, **options),
    )
    _, failure = run_worlds(1, 5_000, float("inf"), "memory")
    assert failure is not None
    assert failure.label.startswith("fork")
