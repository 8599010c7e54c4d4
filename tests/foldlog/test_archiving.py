"""``foldlog store archive``, and what the other commands say of an archived conversation."""

import json
from datetime import timedelta

import pytest

import foldlog as api
from tests.said import said


@pytest.fixture
def archived(foldlog, tmp_path):
    """A store with two conversations of four messages, ``old`` and ``young``; ``old`` is in an
    archive.
    """
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in ("old", "young"):
            histories.create(name, {"name": name}).append([said(f"{name} {n}") for n in range(4)])
    ran = foldlog("store", "archive", "--older-than", "0s", "--to", f"file://{tmp_path}/objects",
                  "--where", "name=old", "--json")  # fmt: skip
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    [one] = document["conversations"]
    assert (one["conversation"], one["events"], document["stay"]) == ("old", 4, [])
    return tmp_path / "objects"


def test_the_command_says_what_it_moved_and_what_stays(foldlog, tmp_path, archived):
    to = f"file://{tmp_path}/objects"
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["young"].fork(3, "fork")
    ran = foldlog("store", "archive", "--older-than", "0s", "--to", to)
    assert ran.out.startswith("0 conversations archived: 0 events")
    assert "'young' stays: forks need its events: 'fork'" in ran.err
    wrong = foldlog("store", "archive", "--older-than", "0s", "--to", "/mnt/archive")
    assert "'/mnt/archive' is not the URL of an object store; use one such as" in wrong.err


def test_lists_say_that_it_is_archived_and_need_no_object(foldlog, archived):
    [path] = archived.iterdir()
    path.unlink()
    listed = json.loads(foldlog("list", "--json").out)["conversations"]
    assert {each["conversation"]: each.get("archived", 0) for each in listed} == {
        "old": 4,
        "young": 0,
    }
    for command in (
        ["list"],
        ["list", "--long"],
        ["stats"],
        ["list", "--db", "sqlite:///foldlog.db?mode=ro"],
    ):
        ran = foldlog(*command)
        assert ran.status == 0, ran.err
        assert "archive" not in ran.err
        assert "old" in ran.out or command == ["stats"]


def test_a_search_of_all_leaves_it_out_and_says_so(foldlog, archived):
    ran = foldlog("search", "old")
    assert ran.status == 1
    assert "1 conversation in an archive; a search in one of them restores it" in ran.err
    assert len(list(archived.iterdir())) == 1
    ran = foldlog("search", "old", "--in", "old")
    assert ran.out.count("old") >= 4
    assert "archive" not in foldlog("search", "old").err


def test_verify_names_a_changed_object_and_views_need_none(foldlog, archived):
    ran = foldlog("store", "verify", "--views")
    assert ran.out.startswith(
        "2 conversations with 6 events checked, 0 stored Views compared: no changes"
    )
    assert json.loads(foldlog("list", "--json").out)["conversations"][0]["archived"] == 4
    [path] = archived.iterdir()
    path.write_bytes(b"changed")
    ran = foldlog("store", "verify")
    assert ran.status == 1
    assert (
        f"{path} of the archived conversation 'old' was changed or exchanged" in ran.out + ran.err
    )
    ran = foldlog("view", "old")
    assert f"the object file://{path} of the archived conversation 'old' was changed" in ran.err


def test_a_store_that_is_only_read_says_how_to_restore(foldlog, archived):
    ran = foldlog("view", "old", "--db", "sqlite:///foldlog.db?mode=ro")
    assert "'old' is archived, and its first use restores it; open the store for writing" in ran.err


def test_a_text_is_redacted_in_an_archive_too(foldlog, archived):
    ran = foldlog("store", "redact", "--matching", "old 2", "--reason", "asked to", "--yes")
    assert ran.status == 0, ran.err
    assert [*archived.iterdir()] == []
    assert "old 2" not in foldlog("log", "old").out


def test_what_expires_is_erased_with_its_object(foldlog, archived):
    ran = foldlog("store", "expire", "--older-than", "0s", "--yes")
    assert "2 conversations erased, 10 events" in ran.out
    assert [*archived.iterdir()] == []


def test_a_backup_has_no_object_and_finds_it(foldlog, archived):
    assert foldlog("store", "backup", "copy.db").status == 0
    for name in ("foldlog.db", "copy.db"):
        assert foldlog("view", "old", "--db", name).out.count("old") >= 4
        assert foldlog("store", "vacuum", "--db", name).status == 0
    assert len([*archived.iterdir()]) == 1
    assert "not completed" not in foldlog().out


def test_a_span_or_a_moment(tmp_path):
    to = f"file://{tmp_path}/objects"
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["old"].append([said("1"), said("2")])
        archive = histories.maintenance.archive
        assert archive(timedelta(days=1), to) == ()
        with pytest.raises(ValueError, match="older_than must be a timedelta"):
            archive(timedelta(days=-1), to)
        [done] = archive(histories.store.conversation("old").updated_at + timedelta(1), to)
        assert (done.conversation, done.events) == ("old", 1)
