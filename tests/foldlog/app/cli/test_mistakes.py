"""What the command answers to the mistakes of a first day, where the answer differs by machine or is
cut. The session ``mistakes`` has the others.
"""

import pytest

from foldlog import EventStoreError
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
