"""What the command answers to the mistakes of a first day, where the answer differs by machine or is
cut. The session ``mistakes`` has the others.
"""

from pathlib import Path

import pytest

from foldlog import EventStoreError
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.record_files import _files_of
from foldlog._app.cli.replaying import condensers_of
from foldlog._app.cli.selection import pairs
from tests.stored_rows import execute


@pytest.mark.parametrize("host", ["300.1.1.1", "192.0.2.1"])
def test_host_of_another_machine_is_named(foldlog, host):
    foldlog("append c hi --new")
    ran = foldlog("serve --port 0 --host", host)
    assert (ran.status, f"cannot listen at {host} port 0: " in ran.err) == (2, True)
    assert "use another value of --host" in ran.err


def test_database_of_another_program_is_recognized(foldlog):
    execute("theirs.db", "CREATE TABLE messages (text)")
    is_theirs = "theirs.db: is a SQLite database with the tables messages; docs/how-to/migrating.md"
    assert is_theirs in foldlog("import theirs.db").err


def test_error_cuts_a_long_name(foldlog, histories):
    foldlog("append c hi --new")
    text = '{"role": "user"}' * 5_000
    for line in ("import", "import . --format", "view"):
        ran = foldlog(line, text)
        assert (ran.status, text[:50] in ran.err) == (2, True)
        assert len(ran.err) < 1_200
    for wrong in ({"path": text}, {"path": ".", "format": text}):
        with pytest.raises(EventStoreError) as raised:
            histories.import_(**wrong)
        assert len(str(raised.value)) < 1_200


def test_an_attribute_has_one_value():
    with pytest.raises(Refused, match="the attribute 'user' has two values; give it one value"):
        pairs(["user=ann", "user=bob"])


def test_each_sub_agent_has_a_file_of_its_own():
    children = ["x-2", "c/x", "x", "y"]
    files = _files_of("c", children, Path("o.json"))
    assert [*files] == children
    assert len({*files.values()}) == len(children)


def test_each_condenser_of_a_comparison_has_a_name_of_its_own(tmp_path):
    paths = [tmp_path / "noop.toml", tmp_path / "default.toml"]
    for path in paths:
        path.write_text('[condenser]\ntype = "digest"\nmax_size = 20\n')
    condensers = condensers_of(paths, None, None)
    assert [*condensers] == ["default", *map(str, paths), "noop"]


def test_a_new_conversation_has_no_expected_version(foldlog):
    ran = foldlog("append c hi --new --expected 7")
    assert (ran.status, "leave out --expected" in ran.err) == (2, True)
    assert foldlog("append c hi --new").out == "c: 1 event appended, 0\n"


def test_a_number_of_any_length_is_answered(foldlog):
    foldlog("append c hi --new")
    for digits in (20, 5_000):
        number = "9" * digits
        for line in ("show c", "show c --documents --at", "why c", "list --limit", "log c --tail"):
            assert "unexpected error" not in foldlog(line, number).err
        assert "unexpected error" not in foldlog("diff c", number, "3").err


def test_options_of_a_checkpoint_exclude_each_other(foldlog):
    foldlog("append c hi --new")
    for line in (
        "--sign-command true",
        "--prove c 0 --since note",
        "--time-stamp http://a --in note --prove c 0",
        "--time-stamp http://a --in note --key key.pem",
    ):
        ran = foldlog("store checkpoint", *line.split())
        assert (ran.status, ran.out) == (2, "")
        assert "; leave out " in ran.err or "add --key" in ran.err


@pytest.mark.parametrize("chosen", ["user=ann", "--match x", "--here", "--since 1d", "--to-resume"])
def test_followers_are_not_filtered(foldlog, chosen):
    ran = foldlog("list --followers", *chosen.split())
    assert ran.status == 2
    assert "--followers lists followers, not conversations; leave out FILTER" in ran.err


def test_interrupted_indexing_ends_as_usual(foldlog, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    foldlog("append c hi --new")
    monkeypatch.setattr("time.sleep", interrupt)
    ran = foldlog("store index --every 1")
    assert (ran.status, ran.err) == (0, "")
