"""Forks in the command: where they begin, and their whole history."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import foldlog as foldlog_package
from foldlog._history import histories as face
from foldlog.eventstore import Message, open_store
from foldlog.eventstore.maintenance.erase import erase


def said(*texts):
    return [Message(source="user", content=text) for text in texts]


@pytest.fixture
def forks(tmp_path):
    """``c`` of four events; ``f``, its fork at 3, with events 3 and 4; ``g``, a fork of ``f`` at 4,
    with event 4; and ``empty``, a fork of ``f`` at 5 without events of its own.
    """
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", said("c0", "c1", "c2", "c3"), expected_version=0)
        store.fork("c", 3, "f")
        store.append("f", said("f3", "f4"), expected_version=3)
        store.fork("f", 4, "g")
        store.append("g", said("g4"), expected_version=4)
        store.fork("f", 5, "empty")
        yield store


def borders(ran):
    """The lines of borders, each with the line before it and the line after it, by the last
    word.
    """
    lines = ["", *ran.out.splitlines(), ""]
    found = [place for place, line in enumerate(lines) if line.strip().startswith("fork of")]
    return [
        (
            (lines[at - 1].split() or [""])[-1],
            lines[at].strip(),
            (lines[at + 1].split() or [""])[-1],
        )
        for at in found
    ]


C3, F4, F5 = "fork of c at version 3", "fork of f at version 4", "fork of f at version 5"


def test_a_log_says_where_forks_begin(foldlog, forks):
    assert borders(foldlog("log", "c")) == []
    assert borders(foldlog("log", "f")) == [("c2", C3, "f3")]
    assert borders(foldlog("log", "g")) == [("c2", C3, "f3"), ("f3", F4, "g4")]
    assert borders(foldlog("log", "empty"))[-1] == ("f4", F5, "")
    assert borders(foldlog("log", "g", "--start", 4)) == [("", F4, "g4")]
    assert borders(foldlog("log", "g", "--stop", 2)) == []
    assert borders(foldlog("log", "g", "--stop", 3)) == [("c2", C3, "")]
    assert borders(foldlog("log", "g", "--tail", 1)) == [("", F4, "g4")]
    assert borders(foldlog("log", "empty", "--tail", 1)) == [("f4", F5, "")]
    assert borders(foldlog("log", "empty", "--tail", 0)) == []
    full = foldlog("log", "g", "--full").out
    assert full.index("c2") < full.index(C3) < full.index("f3") < full.index(F4) < full.index("g4")
    assert "borders" not in foldlog("log", "c", "--json").document
    assert foldlog("log", "g", "--json").document["borders"] == [
        {"parent": "c", "parent_version": 3},
        {"parent": "f", "parent_version": 4},
    ]


def test_the_export_of_a_fork_is_its_whole_history(foldlog, forks):
    records = foldlog("export", "g", "--json").document["records"]
    assert [
        text for text in ("c0", "c1", "c2", "c3", "f3", "f4", "g4") if text in str(records)
    ] == ["c0", "c1", "c2", "f3", "g4"]
    foldlog("export", "g", "--output", "g.jsonl")
    assert foldlog("import", "g.jsonl", "--db", "other.db").status == 0
    (name,) = (
        row["conversation"]
        for row in foldlog("list", "--db", "other.db", "--json").document["conversations"]
    )
    again = foldlog("log", name, "--db", "other.db", "--json").document
    assert [event["content"] for event in again["events"]] == ["c0", "c1", "c2", "f3", "g4"]


def divergence(foldlog, one, other):
    document = foldlog("diff", one, other, "--json").document
    events = [document[name] and document[name]["content"] for name in ("event", "other_event")]
    return document["common_past"], document["first_divergent_event"], *events


def test_two_forks_are_compared_since_their_common_past(foldlog, forks):
    assert divergence(foldlog, "f", "g") == (4, 4, "f4", "g4")
    assert divergence(foldlog, "g", "c") == (3, 3, "f3", "c3")
    assert divergence(foldlog, "empty", "g") == (4, 4, "f4", "g4")
    assert divergence(foldlog, "f", "empty") == (5, None, None, None)
    forks.fork("c", 2, "h")
    assert divergence(foldlog, "h", "g") == (2, 2, None, "c2")
    assert (
        foldlog("diff", "g", "c").out.splitlines()[0]
        == "g and c share 3 events; the first divergent event is 3"
    )
    table, differing = foldlog("diff", "g", "c").out.split("the events that differ")
    assert [line.split()[-1] for line in differing.splitlines() if line[1:6].isspace()] == [
        "f3",
        "g4",
        "c3",
    ]
    assert {line.split()[0]: line.split()[1:] for line in table.splitlines()[2:6]} == {
        "requests": ["5", "4"],
        "replies": ["0", "0"],
        "calls": ["0", "0"],
        "errors": ["0", "0"],
    }
    assert [run["requests"] for run in foldlog("diff", "g", "c", "--json").document["runs"]] == [
        5,
        4,
    ]
    assert (
        foldlog("diff", "f", "empty").out
        == "f and empty share 5 events; neither has another event\n"
    )
    forks.append("empty", said("same", "one"), expected_version=5)
    forks.append("f", said("same", "other"), expected_version=5)
    assert divergence(foldlog, "empty", "f") == (5, 6, "one", "other")
    equal = "share 5 events, then have 1 equal event each; the first divergent event is 6"
    assert equal in foldlog("diff", "empty", "f").out
    for wrong, problem in {("f", 3): "'f' is not a version", (3,): "give a second version"}.items():
        ran = foldlog("diff", "c", *wrong)
        assert (ran.status, problem in ran.err) == (2, True)


def test_two_imports_of_one_source_have_equal_events(foldlog):
    sample = Path(foldlog_package.__file__).parent / "sample" / "tidewatch.jsonl"
    Path("part.jsonl").write_text("".join(sample.read_text().splitlines(keepends=True)[:100]))
    for name, path in (("a", sample), ("b", sample), ("c", "part.jsonl")):
        foldlog("import", path, "--conversation", name)
    equal = "a and {} share no stored event, but have {} equal events each; {}\n"
    assert foldlog("diff", "a", "b").out == equal.format("b", 286, "neither has another event")
    assert foldlog("diff", "a", "c").out.startswith(
        equal.format("c", 100, "the first divergent event is 100")
    )


def test_a_list_shows_no_fork_under_another_conversation_with_the_id_of_its_parent(
    foldlog, forks, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "100")
    erase(forks, "c", reason="asked for", with_forks=True)
    face.Histories(forks).create("c", replace_erased=True)
    forks.fork("c", 1, "h")
    lines = foldlog("list", "--short").out.splitlines()[1:]
    assert [re.match(" *[^ ]+", line)[0] for line in lines] == ["c", "  h", "f", "  empty", "  g"]


def test_a_list_in_a_terminal_shows_forks_under_their_parents(foldlog, forks, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    forks.append("d", said("d0"), expected_version=0)
    forks.fork("d", 1, "a")
    forks.fork("c", 1, "b")

    def names(*options):
        return [
            re.match(" *[^ ]+", line)[0]
            for line in foldlog("list", "--short", *options).out.splitlines()[1:]
        ]

    assert names() == ["c", "  b", "  f", "    empty", "    g", "d", "  a"]
    assert names("--reverse") == ["g", "f", "empty", "d", "c", "b", "a"]
    assert not any(name.startswith(" ") for name in names("--sort", "events"))
    assert names("--match", "EMPTY") == ["empty"]
    assert names("--limit", 3) == ["a", "c", "  b"]


def test_a_list_in_a_pipe_has_its_rows_in_order_of_ids(foldlog, forks):
    forks.fork("c", 1, "b")
    ids = ["b", "c", "empty", "f", "g"]
    rows = [line.split("\t") for line in foldlog("list", "--short").out.splitlines()[1:]]
    assert [row[0] for row in rows] == ids
    assert [row[-1] for row in rows if row[0] == "b"] == ["fork of c at 1: foldlog: c0"]
    documents = foldlog("list", "--json").document["conversations"]
    assert [row["conversation"] for row in documents] == ids


def test_a_copy_says_that_forks_become_conversations_of_their_own(foldlog, forks):
    note = "foldlog: note: 3 forks are copied as conversations of their own, with all events\n"
    assert foldlog("store", "copy", "foldlog.db", "copy.db").err == note
    assert foldlog("store", "copy", "foldlog.db", "one.db", "c").err == ""
    assert foldlog("store", "copy", "foldlog.db", "one.db", "c", "f").err.startswith(
        "foldlog: note: 1 fork is copied"
    )


def test_a_fork_was_not_recorded_before_it_was_made(tmp_path):
    times = iter(datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in range(60))
    with face.open(tmp_path / "h.db", clock=lambda: next(times)) as histories:
        histories["c"].append(Message(source="user", content="a"))
        histories["c"].fork(at=1, id="f")
        for _ in range(2):
            row = histories.store.conversation("f")
            assert row.created_at <= row.updated_at
            if row.parent is not None:
                histories.erase("c", reason="asked to", detach_forks=True)
