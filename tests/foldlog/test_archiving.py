"""Archiving from Python. The commands are in ``tests/golden/sessions/archive.txt``."""

from datetime import timedelta

import pytest

import foldlog as api
from foldlog.eventstore.maintenance import archive
from tests.said import said


def test_age_is_a_span_or_a_time(tmp_path):
    to = f"file://{tmp_path}/objects"
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["old"].append([said("1"), said("2")])
        archive = histories.maintenance.archive
        assert archive(timedelta(days=1), to) == ()
        with pytest.raises(ValueError, match="older_than must be a timedelta"):
            archive(timedelta(days=-1), to)
        [archived] = archive(histories.store.conversation("old").updated_at + timedelta(1), to)
        assert (archived.conversation, archived.events) == ("old", 1)


def test_erasure_meanwhile_is_no_damage(tmp_path, monkeypatch):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([said("1"), said("2")])
        find_damage = archive._find_damage

        def after_an_erasure(*args):
            histories.erase("c", reason="asked to")
            return find_damage(*args)

        monkeypatch.setattr(archive, "_find_damage", after_an_erasure)
        [outcome] = histories.maintenance.archive(timedelta(0), f"file://{tmp_path}/objects")
        assert outcome.stays == "it was changed at the same time; archive it again"


def test_an_expiry_restores_no_archive(tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in ("old", "old/agent"):
            histories.create(name, {} if name == "old" else {"parent": "old"})
            histories[name].append([said("1"), said("2")])
        histories.maintenance.archive(timedelta(0), f"file://{tmp_path}/objects")
        before = [*histories.store.iter_conversations()]
        assert all(row.archived for row in before)
        expired = histories.maintenance.expire(timedelta(0), dry_run=True)
        assert [row.id for row in expired.conversations] == ["old/agent", "old"]
        assert [*histories.store.iter_conversations()] == before
        expired = histories.maintenance.expire(timedelta(0))
        assert [row.archived for row in expired.conversations] == [2, 2]
