"""What an erasure chooses by attributes, and what it says of conversations that stay."""

from datetime import timedelta

import pytest

import foldlog as api
from foldlog import KeyRing
from tests.foldlog.records import write_lines
from tests.said import said


def user_line(number):
    parent = f"u{number - 1}" if number else None
    message = {"role": "user", "content": f"line {number}"}
    place = {"parentUuid": parent, "sessionId": "s", "cwd": "/old"}
    return {"type": "user", "uuid": f"u{number}", **place, "message": message}


@pytest.mark.parametrize("keys", [None, KeyRing("00" * 32)], ids=["plain", "encrypted"])
def test_archived_conversation_has_the_attributes_that_were_set_last(keys, tmp_path):
    path = write_lines(tmp_path / "s.jsonl", map(user_line, range(4)))
    with api.open(tmp_path / "foldlog.db", keys=keys) as histories:
        (moved,) = histories.import_(path)
        moved.set_attributes(cwd="/new")
        histories.maintenance.archive(timedelta(0), f"file://{tmp_path}/objects")

        def chosen(**attributes):
            expired = histories.maintenance.expire(timedelta(0), attributes, dry_run=True)
            return [row.id for row in expired.conversations]

        assert chosen(cwd="/old") == []
        assert chosen(cwd="/new", program="claude-code") == [moved.id]
        assert histories.store.conversation(moved.id).archived, "the choice restored no events"


def test_archived_import_without_set_attributes_has_those_of_its_source(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", map(user_line, range(4)))
    with api.open(tmp_path / "foldlog.db") as histories:
        (imported,) = histories.import_(path)
        imported.append(said("on"))
        histories.maintenance.archive(timedelta(0), f"file://{tmp_path}/objects")
        expired = histories.maintenance.expire(timedelta(0), {"cwd": "/old"}, dry_run=True)
        assert [row.archived for row in expired.conversations] == [4]


def test_a_conversation_below_another_is_a_sub_agent_only_if_it_names_a_parent(histories):
    histories.create("school", {})
    histories.create("school/talk", {"title": "a talk with a parent"})
    histories.create("school/agent", {"parent": "school"})
    assert histories.erase("school", reason="old").unconfirmed == ("sub-agent school/agent",)
