"""An imported conversation is as old as the last import that added to it, whenever it is used."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from foldlog import Histories
from tests.foldlog.imports.imports import imported, open_with_imports
from tests.foldlog.records import GOLDEN, write_lines

AGENTS = GOLDEN / "tasks" / "claude-code"
MARCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def clock():
    return SimpleNamespace(now=MARCH)


@pytest.fixture
def store(clock):
    with open_with_imports(clock=lambda: clock.now) as store:
        yield store


@pytest.fixture
def path(store, tmp_path):
    """The file of a session of two records, which was imported in March."""
    path = session(tmp_path / "s1.jsonl", 2)
    imported(store, path)
    return path


def session(path, count):
    lines = (
        {
            "type": "user",
            "uuid": f"u{number}",
            "sessionId": "s1",
            "message": {"role": "user", "content": "so"},
        }
        for number in range(count)
    )
    return write_lines(path, lines)


def older(store, age):
    expired = Histories(store).maintenance.expire(age, dry_run=True)
    return [row.id for row in expired.conversations]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_events_are_as_old_as_the_import(is_repeated, store, clock, path):
    clock.now += 100 * DAY
    if is_repeated:
        imported(store, path, read_all=True)
    assert older(store, 90 * DAY) == ["s1"]
    assert [entry.recorded_at for entry in store.log("s1")] == [MARCH, MARCH]


def test_growing_import_is_not_old(store, clock, path):
    clock.now += 100 * DAY
    imported(store, session(path, 3))
    assert older(store, 90 * DAY) == []
    assert [entry.recorded_at for entry in store.log("s1")] == [clock.now] * 3


def test_later_records_are_younger(store, clock, path):
    assert store.version("s1") == 2
    clock.now += DAY
    imported(store, session(path, 3))
    clock.now += DAY
    assert [entry.recorded_at for entry in store.log("s1")] == [MARCH, MARCH, MARCH + DAY]


@pytest.mark.usefixtures("path")
def test_redaction_by_age_uses_no_young_import(store, clock):
    for days, pending in ((0, 2), (2, 0)):
        clock.now += days * DAY
        would = Histories(store).maintenance.redact_matching(
            "so", reason="asked to", older_than=DAY, dry_run=True
        )
        assert store.conversation("s1", as_stored=True).unmade == pending
    assert would.events == {"s1": (0, 1)}


def test_expiry_makes_no_events(store, clock):
    for path in sorted(AGENTS.rglob("*.jsonl")):
        imported(store, path)
    clock.now += 100 * DAY
    before = [*store.iter_conversations()]
    names = {row.id for row in before}
    assert {row.version for row in before} == {0}

    for with_children in (False, True):
        expired = Histories(store).maintenance.expire(
            90 * DAY, dry_run=True, with_children=with_children
        )
        assert ({row.id for row in expired.conversations}, expired.not_erased) == (names, ())
        assert [*store.iter_conversations()] == before

    expired = Histories(store).maintenance.expire(90 * DAY)
    assert {(row.id, row.version) for row in expired.conversations} == {(name, 0) for name in names}


def test_dry_run_of_an_erasure_names_sub_agents(foldlog):
    assert foldlog("import", AGENTS).status == 0
    before = foldlog("list --json").document["conversations"]
    left = foldlog("store erase top --reason x --dry-run")
    assert "not erased, and may contain the content: 3 sub-agents" in left.err
    assert foldlog("list --json").document["conversations"] == before
    assert all(row["version"] == 0 for row in before)


def test_dry_run_of_an_expiry_makes_no_events(store, clock, path):
    store.fork("s1", 2, "fork")
    imported(store, session(path, 3))
    clock.now += 100 * DAY
    before = [*store.iter_conversations()]
    assert [(row.id, row.version, row.unmade) for row in before] == [("fork", 2, 0), ("s1", 3, 0)]
    assert older(store, 90 * DAY) == ["fork", "s1"]
    assert [*store.iter_conversations()] == before
