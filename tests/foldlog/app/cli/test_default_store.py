"""The store of a command without ``--db`` and ``FOLDLOG_DB``."""

import stat

import pytest

from foldlog._app.cli import quick_hook
from tests.commands import NAMES, command_named
from tests.foldlog.records import said


@pytest.fixture
def users_store(foldlog, tmp_path, monkeypatch):
    """The path of the user's store, which does not exist yet."""
    monkeypatch.delenv("FOLDLOG_DB")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / ".data/foldlog/foldlog.db"


def test_import_adds_to_the_users_store(foldlog, users_store, five_messages, tmp_path, completed):
    advice = foldlog("setup claude-code").err
    assert f"and its hooks will write to {users_store}; to import" in advice
    assert ": foldlog import --from claude-code\n" in advice
    assert quick_hook.options_in([]) == (str(users_store), False)
    assert stat.S_IMODE(users_store.parent.stat().st_mode) == 0o700
    assert f"added to {users_store}." in foldlog("import", five_messages).out
    assert not [*tmp_path.glob("foldlog.db*")]
    document = foldlog("list --json").document
    assert document["db"] == foldlog("--json").document["db"] == str(users_store)
    assert foldlog("append five hello").status == 0
    problem = f"the store {users_store} has no conversation 'qqq'; 'foldlog list' shows"
    assert problem in foldlog("view qqq").err
    assert completed("foldlog view fi").split() == ["plain,five"]


def test_store_in_the_folder_comes_first(foldlog, users_store, write):
    foldlog("import", write("c1.jsonl", [said(0, "hello")]))
    foldlog("import c1.jsonl --db", users_store, "--as", "other")
    assert foldlog("list --json").rows() == ["c1"]
    assert foldlog("list --json").document["db"] == "foldlog.db"
    assert quick_hook.options_in([]) == (str(users_store), False)


def test_restore_leaves_the_users_store(foldlog, users_store, write, tmp_path):
    path = write("c1.jsonl", [said(0, "hello")])
    foldlog("import", path, "--db", users_store)
    foldlog("store backup monday.db")
    foldlog("append c1 later")
    assert foldlog("store restore monday.db").status == 0
    assert (tmp_path / "foldlog.db").exists()
    assert len(foldlog("log c1 --json --db", users_store).document["events"]) == 2


def test_a_doctor_without_a_store_leaves_none(foldlog, users_store):
    assert foldlog("doctor").status == 0
    assert not users_store.exists()


def test_help_shows_the_default_store():
    stores = {
        name: option.default
        for name in NAMES
        for option in command_named(name).params
        if option.name == "db"
    }
    assert stores.pop("demo") == "foldlog-demo.db"
    of_programs = {stores.pop(name) for name in ("setup", "hook", "mcp", "doctor")}
    assert of_programs == {"~/.local/share/foldlog/foldlog.db"}
    assert set(stores.values()) == {"foldlog.db"}
