"""Archiving from Python. The commands are in ``tests/golden/sessions/archive.txt``."""

from datetime import timedelta

import pytest

import foldlog as api
from tests.said import said


def test_what_is_archived_is_older_than_a_span_or_a_moment(tmp_path):
    to = f"file://{tmp_path}/objects"
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["old"].append([said("1"), said("2")])
        archive = histories.maintenance.archive
        assert archive(timedelta(days=1), to) == ()
        with pytest.raises(ValueError, match="older_than must be a timedelta"):
            archive(timedelta(days=-1), to)
        [archived] = archive(histories.store.conversation("old").updated_at + timedelta(1), to)
        assert (archived.conversation, archived.events) == ("old", 1)
