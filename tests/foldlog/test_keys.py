"""Commands on encrypted conversations without their key: nothing is told that cannot be known, and
the key is named.
"""

from pathlib import Path

import pytest

import foldlog as face
from foldlog._web.conversations import ServedConversations
from foldlog._web.metrics import metrics
from foldlog.eventstore import KeyRing, KeyUnavailable, Message

KEY, OTHER = "ab" * 32, "cd" * 32
SET_IT = "set FOLDLOG_KEY or FOLDLOG_KEY_FILE"


@pytest.fixture(params=[None, OTHER], ids=["no key", "another key"])
def locked(request, foldlog, monkeypatch):
    """The command in a folder with an encrypted store, without its key."""
    for name in ("FOLDLOG_KEY", "FOLDLOG_KEY_FILE", "FOLDLOG_COMPRESSION"):
        monkeypatch.delenv(name, raising=False)
    with face.open("foldlog.db", keys=KeyRing([KEY])) as histories:
        history = histories.create("a-long-name", {"app": "x"})
        history.append(Message(source="user", content="hello"))
    if request.param is not None:
        monkeypatch.setenv("FOLDLOG_KEY", request.param)
    return foldlog


def test_a_list_tells_what_it_cannot_compare(locked):
    for options in ([], ["--json"]):
        ran = locked("list app=x", *options)
        assert (ran.status, ran.out, "may have these attributes too" in ran.err) == (2, "", True)
    with face.open("foldlog.db") as histories, pytest.raises(KeyUnavailable):
        histories.list({"app": "x"})


def test_a_list_has_new_events_of_a_conversation_whose_key_is_missing(locked):
    with face.open("foldlog.db", keys=KeyRing([KEY])) as histories:
        histories["plain"].append(Message(source="user", content="hello"))
    for said in range(3):
        with face.open("foldlog.db") as histories:
            listed = histories.list(age_max_s=0).conversations
        assert listed[0].id == ("a-long-name" if said else "plain")
        one = next(one for one in listed if one.id == "a-long-name")
        assert (one.version, one.attributes) == (2 + said, None)
        with face.open("foldlog.db", keys=KeyRing([KEY])) as histories:
            histories["a-long-name"].append(Message(source="user", content="again"))


def test_list_names_the_key_once_below_the_table(locked, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with face.open("foldlog.db", keys=KeyRing([KEY])) as histories:
        histories["b"].append(Message(source="user", content="hello"))
    ran = locked("list --long")
    assert ran.out.count("(encrypted)") == 2
    assert ran.err.startswith(
        "foldlog: note: the figures of 2 conversations are not shown: conversation 'a-long-name' is"
    )
    assert ran.err.endswith((f"{SET_IT}\n", "add the missing key after the encrypting key\n"))


def test_a_check_of_what_cannot_be_read_compares_nothing(locked):
    ran = locked("store verify --views")
    assert ran.status == 1
    assert "no changes" not in ran.out
    assert "0 stored Views compared, 1 not checked because a key is not given" in ran.out


def test_a_backup_needs_no_key_and_says_what_it_did_not_check(locked):
    ran = locked("store backup copy.db")
    assert (ran.status, "verified" in ran.out) == (0, False)
    assert (
        "note: conversation 'a-long-name', it could not be checked: conversation 'a-long-name' is"
        " encrypted under key" in ran.err
    )


@pytest.mark.parametrize(
    "how, done",
    [
        ("--dry-run", "none of these holds the text."),
        ("--yes", "none of these holds the text now."),
    ],
)
def test_a_redaction_names_what_it_could_not_search(locked, how, done):
    with face.open("foldlog.db", keys=KeyRing([KEY])) as histories:
        histories["b"].append(Message(source="user", content="hello"))
    with face.open("sqlite:///foldlog.db?plain=allowed") as histories:
        histories["plain"].append(Message(source="user", content="bye"))
    command = "store", "redact", "--matching", "hello", "--reason", "x", how
    ran = locked(*command)
    assert (ran.status, ran.err.count("foldlog: found: conversation '")) == (1, 2)
    assert done in ran.err
    assert "of 1 conversation; none" in ran.err
    assert "2 conversations could not be searched" in ran.err
    stay = locked(*command, "--json").document["stay"]
    assert {each["conversation"] for each in stay if "under key" in each["problem"]} == {
        "a-long-name",
        "b",
    }


def test_figures_of_all_tell_how_many_conversations_they_lack(locked):
    with face.open("sqlite:///foldlog.db?plain=allowed") as histories:
        histories["plain"].append(Message(source="user", content="bye"))
        served = ServedConversations(histories.store)
        while (fleet := served.fleet("")).counted < 2:
            pass
        served.close()
        assert (fleet.conversations, fleet.needs_key, fleet.events) == (2, 1, 1)
        assert "\nfoldlog_conversations_counted 1\n" in metrics(histories.store, fleet)


def test_restore_asks_for_the_key_of_a_backup(locked):
    Path("foldlog.db").rename("backup.db")
    ran = locked("store restore backup.db --yes")
    assert ran.status == 2
    assert "cannot be verified without its keys, and nothing was replaced" in ran.err
    assert "--damaged" not in ran.err
    assert not Path("foldlog.db").exists()


def test_a_variable_that_is_set_and_empty_is_refused(foldlog, five_messages, monkeypatch):
    for name in ("FOLDLOG_KEY", "FOLDLOG_KEY_FILE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "")
            ran = foldlog("import", five_messages)
        assert ran.status == 2
        assert f"{name} is set and empty; give it a value, or unset it to use no key" in ran.err
    assert not Path("foldlog.db").exists()


def test_an_import_into_an_encrypted_store_needs_a_key_or_leave_to_store_plain_text(
    foldlog, five_messages, monkeypatch
):
    monkeypatch.setenv("FOLDLOG_KEY", KEY)
    assert foldlog("import --conversation b", five_messages).status == 0
    monkeypatch.delenv("FOLDLOG_KEY")
    ran = foldlog("import --conversation c", five_messages)
    assert (ran.status, "c (openhands-v1): not imported" in ran.out) == (1, True)
    assert (
        f"'c' would be stored as plain text, but others of this store are encrypted; {SET_IT}, or"
        " open" in ran.err
    )
    assert [one["conversation"] for one in foldlog("list --json").document["conversations"]] == [
        "b"
    ]
    plain = "sqlite:///foldlog.db?plain=allowed"
    assert foldlog("import", five_messages, "--conversation", "c", "--db", plain).status == 0
    assert foldlog("import --conversation c", five_messages).status == 0  # it is there
    assert foldlog("import --db plain.db", five_messages).status == 0
    assert foldlog("store copy plain.db foldlog.db").status == 2
    assert foldlog("store copy plain.db", plain).status == 0


def test_a_command_that_can_read_nothing_leaves_no_file_behind(locked, tmp_path):
    before = set(tmp_path.iterdir())
    for arguments in (
        ["store", "copy", "foldlog.db", "new.db"],
        ["export", "--to", "new.db"],
        ["export", "--to", "new.db", "a-long"],
        ["export", "--to", "new.db", "--follow"],
        ["report", "a-long-name", "--output", "new.db"],
        ["export", "a-long-name", "--output", "new.db"],
        ["search", "hello"],
    ):
        ran = locked(*arguments)
        assert (ran.status, ran.out) == (2, ""), arguments
        assert set(tmp_path.iterdir()) == before, arguments
