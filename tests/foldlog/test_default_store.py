"""The store of a command without ``--db`` and ``FOLDLOG_DB``."""

import stat

import pytest

import foldlog as api
from foldlog._cli import quick_hook
from foldlog._cli.catalog import COMMANDS
from foldlog._cli.options import completed
from tests.commands import command_named
from tests.foldlog.records import said

NAMES = [name for names in COMMANDS.values() for name in names]


@pytest.fixture
def users_store(foldlog, tmp_path, monkeypatch):
    """The path of the user's store, which does not exist yet."""
    monkeypatch.delenv("FOLDLOG_DB")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / ".data/foldlog/foldlog.db"


def test_an_import_adds_to_the_store_of_the_hooks(foldlog, users_store, five_messages, tmp_path):
    advice = foldlog("setup claude-code").err
    assert f"whose hooks will write to {users_store}; to import" in advice
    assert advice.endswith(": foldlog import --from claude-code\n")
    assert quick_hook.options_in([]) == (str(users_store), False)
    assert f"added to {users_store}." in foldlog("import", five_messages).out
    assert stat.S_IMODE(users_store.parent.stat().st_mode) == 0o700
    assert not [*tmp_path.glob("foldlog.db*")]


def test_each_command_reads_the_store_that_an_import_wrote(foldlog, users_store, five_messages):
    foldlog("import", five_messages)
    document = foldlog("list --json").document
    assert document["db"] == str(users_store)
    assert foldlog("--json").document["db"] == str(users_store)
    assert foldlog("append five hello").status == 0
    assert "this store has no conversation 'qqq'; 'foldlog list' shows" in foldlog("view qqq").err


def test_a_shell_completes_ids_of_the_users_store(foldlog, users_store, five_messages):
    foldlog("import", five_messages)
    context = command_named("view").make_context("view", [], resilient_parsing=True)
    assert completed(context, "fi") == ["five"]


def test_the_first_append_says_which_store_it_created(foldlog, users_store):
    assert foldlog("append notes hello --new").err == (
        f"foldlog: note: created the store {users_store}; --db names another store\n"
    )
    assert foldlog("append others hello --new").err == ""


def test_a_store_in_the_folder_is_used_only_if_it_is_named(foldlog, users_store):
    with api.open("foldlog.db") as histories:
        histories["c1"].append(api.Message(source="user", content="here"))
    refused = foldlog("view c1").err
    assert f"the store {users_store} does not exist" in refused
    assert refused.endswith("; stores in this folder: foldlog.db\n")
    assert foldlog("view c1 --db foldlog.db").status == 0


def test_a_restore_makes_the_folder_of_the_users_store(foldlog, users_store, write):
    foldlog("import", write("c1.jsonl", [said(0, "hello")]), "--db", "other.db")
    foldlog("store backup monday.db --db other.db")
    assert foldlog("store restore monday.db").status == 0
    assert foldlog("list --json").rows() == ["c1"]


def test_the_helps_of_all_commands_show_one_default_store():
    stores = {
        name: option.default
        for name in NAMES
        for option in command_named(name).params
        if option.name == "db"
    }
    assert stores.pop("demo") == "foldlog-demo.db"
    assert set(stores.values()) == {"~/.local/share/foldlog/foldlog.db"}
