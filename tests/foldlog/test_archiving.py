"""Archiving from Python. The commands are in ``tests/golden/sessions/archive.txt``."""

from datetime import datetime, timedelta

import pytest

import foldlog as api
from foldlog.eventstore.maintenance import archive
from tests.between import before_next_call
from tests.said import all_said, ids


@pytest.fixture
def histories(tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["old"].append(all_said("1", "2"))
        yield histories


@pytest.fixture
def objects(tmp_path):
    """The URL of a folder for objects."""
    return f"file://{tmp_path}/objects"


def test_age_is_a_span_or_a_time(histories, objects):
    archive = histories.maintenance.archive
    assert archive(timedelta(days=1), objects) == ()
    with pytest.raises(ValueError, match="older_than must be a timedelta"):
        archive(timedelta(days=-1), objects)
    with pytest.raises(TypeError, match="older_than is 2026-01-01T00:00:00 and has no time zone"):
        archive(datetime(2026, 1, 1), objects)
    [archived] = archive(histories.store.conversation("old").updated_at + timedelta(1), objects)
    # The store keeps the last of the two events.
    assert (archived.conversation, archived.events) == ("old", 1)


def test_erasure_meanwhile_is_no_damage(histories, objects, monkeypatch):
    before_next_call(
        monkeypatch, archive, "_find_damage", lambda: histories.erase("old", reason="asked to")
    )
    [outcome] = histories.maintenance.archive(timedelta(0), objects)
    assert outcome.stays == "it was changed at the same time; archive it again"


def test_an_expiry_restores_no_archive(histories, objects):
    histories.create("old/agent", {"parent": "old"})
    histories["old/agent"].append(all_said("1", "2"))
    histories.maintenance.archive(timedelta(0), objects)
    before = [*histories.store.iter_conversations()]
    assert all(row.archived for row in before)
    expired = histories.maintenance.expire(timedelta(0), dry_run=True)
    assert ids(expired.conversations) == ["old/agent", "old"]
    assert [*histories.store.iter_conversations()] == before
    expired = histories.maintenance.expire(timedelta(0))
    assert [row.archived for row in expired.conversations] == [2, 1]
