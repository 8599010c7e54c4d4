"""What a data officer asks for: erase and redact many at once, find a secret, keep what is
young. The sessions ``erasing``, ``redacting``, ``summaries`` and ``holders`` show the commands.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import pytest

import foldlog as api
from foldlog import Annotation, CondensationAction, KeyRing
from foldlog.errors import InvalidArgument
from foldlog.eventstore import confirm as confirm_position
from foldlog.eventstore.maintenance.rekey import named_or_all
from foldlog.formats import decode
from tests.crash.bytes_left import bytes_left
from tests.foldlog.records import GOLDEN
from tests.golden.rows import made_events, with_bytes
from tests.said import said

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAYS = timedelta(days=1)
KEY = "00" * 32


@pytest.fixture(params=[None, KeyRing(KEY)], ids=["plain", "encrypted"])
def opened(request, tmp_path):
    """A store of conversations by age in days: ``old`` with the fork ``young``, ``ann/1`` and
    ``ann/2``.
    """
    age = [0]
    histories = api.open(
        tmp_path / "foldlog.db", clock=lambda: NOW - age[0] * DAYS, keys=request.param
    )
    with histories:
        for name, days in {"old": 100, "ann/1": 95, "ann/2": 5}.items():
            age[0] = days
            histories.create(name, {"user": name[:3]}).append(said(f"{name} says hello"))
        age[0] = 3
        histories["old"].fork(1, "young").append(said("younger"))
        age[0] = 0
        yield histories


def erased(expired):
    return [row.id for row in expired.conversations]


# -- retention
# --------------------------------------------------------------------------------------------------


def test_retention_leaves_events_of_younger_forks(opened):
    expire = opened.maintenance.expire
    would = expire(90 * DAYS, dry_run=True)
    assert (erased(would), would.bytes_pending) == (["ann/1"], False)
    assert "'young'" in would.not_erased[0]
    assert erased(expire(90 * DAYS, dry_run=True, detach_forks=True)) == ["ann/1", "old"]
    assert sorted(opened) == ["ann/1", "ann/2", "old", "young"]
    did = expire(90 * DAYS, reason="policy")
    assert (erased(did), did.conversations[0].erased_reason) == (["ann/1"], "policy")
    assert not opened.store.database.bytes_pending, "one vacuum follows"
    again = expire(90 * DAYS)
    assert erased(again) == []
    assert "young" in again.not_erased[0]
    assert erased(expire(90 * DAYS, detach_forks=True)) == ["old"]
    assert [event.content for event in opened["young"].view()] == ["younger"]
    assert erased(expire(timedelta(), {"user": "ann"})) == ["ann/2"]


def test_old_forks_go_before_their_parents(opened):
    assert erased(opened.maintenance.expire(DAYS)) == ["young", "ann/2", "ann/1", "old"]
    assert sorted(opened) == []


def test_a_conversation_that_is_used_again_meanwhile_stays(opened, monkeypatch):
    maintenance = opened.maintenance

    def used_again(name):
        if name == "old":
            opened["old"].append(said("I am back"))

    monkeypatch.setattr(maintenance, "_stays", used_again)
    did = maintenance.expire(4 * DAYS)
    assert erased(did) == ["ann/2", "ann/1"]
    assert sorted(opened) == ["old", "young"]
    assert "'old' is at version 3" in did.not_erased[0]


def test_leased_conversation_stays_unless_named(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in ("driven", "free"):
            histories[name].append(said("hello"))
        with histories["driven"].lease(worker="w1"):
            assert erased(histories.maintenance.expire(timedelta(), dry_run=True)) == ["free"]
            ran = foldlog("store expire --older-than 0s --reason policy --yes --json")
            assert (ran.status, ran.rows(), ran.rows(of="stay")) == (0, ["free"], ["driven"])
            assert "conversation 'driven': a worker drives it: 'w1' has it until" in ran.err
            assert foldlog("store erase driven --reason policy --yes").status == 0


def test_an_age_is_a_span(opened):
    for age in (90, -DAYS, "90d"):
        with pytest.raises(InvalidArgument, match="timedelta"):
            opened.maintenance.expire(age, reason="policy")
        with pytest.raises(InvalidArgument, match="timedelta"):
            opened.maintenance.redact_matching("marigold", reason="policy", older_than=age)


def test_who_redacts_is_a_text(opened):
    with pytest.raises(TypeError, match="by must be a text, not 5"):
        opened.maintenance.redact_matching("marigold", reason="policy", by=5)


def test_the_text_of_a_checkpoint_is_no_checkpoint(opened):
    with pytest.raises(TypeError, match="note must be a StoreCheckpoint, not 'foldlog"):
        opened.maintenance.verify_against(str(opened.maintenance.checkpoint()))


def test_many_forks_of_forks_are_erased(few_frames, histories):
    history = histories["c"]
    for number in range(few_frames):
        history.append(said("x"))
        history = history.fork(number + 1, id=f"fork {number}")
    assert len(histories.maintenance.expire(timedelta()).conversations) == few_frames + 1


@pytest.fixture
def few_frames():
    """Leave so many frames to calls within calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 90)
    yield 90
    sys.setrecursionlimit(limit)


def test_nightly_script_of_the_docs_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs/how-to/production.md").read_text()
    [script] = re.findall(r"^```sh\n(# nightly\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    store = tmp_path / "history.db"
    programs = tmp_path / "bin"
    age = [100]
    with api.open(store, clock=lambda: datetime.now(UTC) - age[0] * DAYS) as histories:
        histories["old"].append(said("marigold"))
        histories["forked"].append(said("lily"))
        age[0] = 1
        histories["new"].append(said("tulip"))
        histories["forked"].fork(1, "young").append(said("rose"))
    programs.mkdir()
    (programs / "foldlog").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m foldlog "$@"\n')
    (programs / "foldlog").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOLDLOG_DB", str(store))
    process = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    with api.open(store) as histories:
        assert sorted(histories) == ["forked", "new", "young"]
    assert b"marigold" not in store.read_bytes()
    (backup,) = (tmp_path / "backups").glob("*.db")
    assert b"marigold" in backup.read_bytes(), "the backup is older than the erasure"


# -- maintenance that goes over many conversations
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    """A store with two conversations of one event."""
    with api.open(tmp_path / "two.db") as histories:
        for name in ("a", "b"):
            histories[name].append(said("hi"))
        yield histories


def test_results_are_also_handed_over_as_they_come(two, histories):
    come = []
    results = [
        two.maintenance.verify(on_result=come.append),
        histories.maintenance.differences_from(two, on_result=come.append),
        histories.maintenance.copy_from(two, on_result=come.append),
        histories.maintenance.rekey(on_result=come.append),
    ]
    assert come == [*chain.from_iterable(results)]
    assert [len(result) for result in results] == [3, 2, 2, 2]


class Stop(Exception):
    """The error of ``stop``."""


def stop(result):
    """End a task at its first result."""
    raise Stop(result.conversation)


def test_callback_that_raises_ends_the_rekey(tmp_path, two):
    with api.open(tmp_path / "two.db", keys=KeyRing(KEY)) as histories:
        with pytest.raises(Stop, match="a"):
            histories.maintenance.rekey(on_result=stop)
        database = histories.store.database
        marks = [database.codec_of(name).is_strict for name in named_or_all(database, ())]
        assert marks == [True, False]


def test_callback_that_raises_ends_copying_threads(two, histories):
    before = {*threading.enumerate()}
    with pytest.raises(Stop) as raised:
        histories.maintenance.copy_from(two, jobs=2, on_result=stop)
    # While the error, and so every frame that it passed, is still there. A thread that copies the
    # log into the file ends in its own time.
    copying = [
        thread
        for thread in {*threading.enumerate()} - before
        if thread.name.startswith("ThreadPoolExecutor")
    ]
    assert copying == [], raised.value


# -- where a text is found
# --------------------------------------------------------------------------------------------------

NAME = "Nadia Unal"


def note(value):
    return [Annotation(name="note", data=value)]


PLACES = json.loads((GOLDEN / "places_of_texts.json").read_text("utf-8"), object_hook=with_bytes)
FOUND = {
    place: [*decode(row["records"], row["format"])]
    if "records" in row
    else [*made_events(row["events"])]
    for place, row in PLACES["places that are searched"].items()
}
NOT_FOUND = PLACES["places that are not searched, each with its class in the report"]


@pytest.mark.parametrize("keys", [None, KeyRing(KEY)], ids=["plain", "encrypted"])
def test_every_place_of_a_text_is_treated(tmp_path, keys):
    with api.open(tmp_path / "foldlog.db", keys=keys) as histories:
        for place, events in FOUND.items():
            histories.store.ingest(place, events)
        record = {"role": "user", "content": "hi", "unknown_field": NAME}
        histories["a record"].append_records([record], format="openai-chat")
        for place, (_, data) in NOT_FOUND.items():
            histories[place].append(note(data))
        histories["two events"].append([said("I am Nadia "), said("Unal")])
        histories["key of a retry"].append(said("hello"), idempotency_key=NAME)
        histories["a tool"].append(api.Action(tool=NAME, call_id="1", arguments={}))
        histories["of Nadia Unal"].append(said("hello"))
        histories.search("hello")
        redact = histories.maintenance.redact_matching
        would = redact(NAME.lower(), reason="asked to", dry_run=True)
        report = redact(NAME.lower(), reason="asked to", by="me")
        assert (would.receipts, would.events) == ((), report.events)
        assert {*report.events} == {*FOUND, "a record", "a tool"}
        assert {conversation for conversation, _ in report.stay} == {"a tool", "of Nadia Unal"}
        assert {receipt.by for receipt in report.receipts} == {"me"}
        classes = {*(name for name, _ in NOT_FOUND.values()), "idempotency keys"}
        assert {name for name in classes if name not in report.not_searched} == set()
        held = {name: repr([*histories[name].events()]) for name in (*FOUND, "a record")}
        assert {name for name, text in held.items() if "Unal" in text} == set()
        assert [len(report.events[name]) for name in ("a summary", "arguments")] == [1, 1]
        redacted = {
            name
            for name in histories
            for event in histories[name].events()
            if event.redacted is not None
        }
        assert redacted == {*report.events}
        histories.maintenance.vacuum()
        assert not any(verdict.findings for verdict in histories.maintenance.verify())
    assert bytes_left(tmp_path, [f"I am {NAME}, keep", f"about {NAME}"]) == []


def test_secret_in_documents_goes_with_later_differences(tmp_path):
    lines = {"notes": [f"line {n}" for n in range(200)], "key": NAME}
    with api.open(tmp_path / "foldlog.db") as histories:
        history = histories["c"]
        history.append((), documents={"state": lines, "other": "stays"})
        history.append((), documents={"state": {**lines, "more": 1}})  # stored as a difference
        fork = history.fork(2, "f")
        fork.append((), documents={"state": {**lines, "key": "fork"}})
        history.append((), documents={"state": {**lines, "key": "none"}})  # builds on the others
        report = histories.maintenance.redact_matching(NAME, reason="asked to")
        assert sum(map(len, report.events.values())) == 4
        histories.maintenance.vacuum()
        for each, key in ((history, "none"), (fork, "fork")):
            assert NAME not in repr([*each.events()]) + repr(each.documents())
            assert each.document("other") == "stays", "it stood beside the secret"
            assert each.document("state")["key"] == key, "a newest value without the secret stays"
    assert bytes_left(tmp_path, [NAME]) == []


@pytest.mark.parametrize(
    "text, events, found", PLACES["forms in which a text is found, with the ids of the events"]
)
def test_redaction_finds_what_a_search_finds(text, events, found, histories):
    histories["c"].append([*made_events(events)])
    maintenance = histories.maintenance
    assert maintenance.redact_matching(text, reason="asked to").events == {"c": tuple(found)}
    with pytest.raises(InvalidArgument, match="the receipt would store it"):
        maintenance.redact_matching(text, reason=f"{text} leaked")


def test_an_age_finds_only_old_events(foldlog):
    age = [100]
    with api.open("foldlog.db", clock=lambda: datetime.now(UTC) - age[0] * DAYS) as histories:
        prompt = api.SystemMessage(content="be kind")
        histories["c"].append([prompt, said("card 4111-2222"), said("no card")])
        imported = [{"role": "user", "content": f"card 4 {n}"} for n in range(2)]
        histories.store.ingest("d", decode(imported[:1], "openai-chat"))
        age[0] = 1
        histories["c"].append([said("card 4333 4444")])
        histories.store.ingest("d", decode(imported, "openai-chat"))
    redact = "store redact --reason x --yes --json"
    for older, event_ids in (("", [[0, 1], [1, 3]]), ("--older-than 90d", [[0], [1]])):
        ran = foldlog(f"{redact} --dry-run {older} --matching 'card 4'")
        assert ran.rows("event_ids", of="found") == event_ids
    ran = foldlog(f"{redact} c --older-than 90d")
    assert ran.rows("event_ids", of="found") == [[1, 2]], "the system prompt stays"


# -- what is asked before it is done, and which files are named after it
# --------------------------------------------------------------------------------------------------


def summarizes(event_id):
    return CondensationAction(forgotten_event_ids=[event_id], summary="flowers", summary_offset=0)


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize(
    "line, listed, question",
    [
        ("store erase c --with-forks", "f: 4 events", "each of 4 conversations"),
        (
            "store redact --with-summaries --matching marigold",
            "f: 1 event: summary S3, which may quote it",
            "each of 6 events",
        ),
        (
            "store redact --with-summaries c 1 0 1",
            "f, summary S3, which may quote it: ",
            "each of 6 events",
        ),
    ],
)
def test_question_lists_all_that_will_go(foldlog, monkeypatch, encrypted, line, listed, question):
    if encrypted:
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    with api.open("foldlog.db") as histories:
        history = histories["c"]
        history.append([said("marigold 1"), said("Marigold 2"), said("hi"), summarizes(0)])
        fork = history.fork(3, "f")
        fork.append(summarizes(1))
        fork.fork(4, "g").append(summarizes(-5))
        history.fork(1, "other").append(summarizes(0))
    questions = []
    monkeypatch.setattr(
        "foldlog._app.cli.terminal.confirm", lambda *arguments: questions.append(arguments)
    )
    would = foldlog(f"{line} --reason r --dry-run").out
    output = foldlog(f"{line} --reason r").out
    assert (len(questions), questions[0][-1]) == (1, question)
    assert listed in would + "\n".join(questions[0][2])
    if "redact" in line:
        assert "6 events of 4 conversations to redact\n" in would
        redacted = re.findall(
            r"^(\w+): (?:event |summary S)(\d) redacted at ", output, re.MULTILINE
        )
        ids = {"c": "013", "f": "3", "g": "4", "other": "1"}
        assert sorted(redacted) == [(name, event_id) for name in ids for event_id in ids[name]]
    with api.open("foldlog.db") as histories:
        assert "flowers" not in repr([[*histories[name].events()] for name in histories])
    assert foldlog("store verify").status == 0


_KILLED = """
import os, runpy

def replaced(source, target, really=os.replace):
    really(source, target)
    os._exit(9)

os.replace = replaced
runpy.run_module("foldlog", run_name="__main__")
"""
NAMES = "store redact m --matching nadia --reason r --yes --json"
"""Names the files that may hold the text."""


@pytest.fixture
def mail(foldlog):
    """A conversation ``m`` that holds a name."""
    with api.open("foldlog.db") as histories:
        histories["m"].append(said("sent to nadia"))


def test_file_of_killed_export_is_named(foldlog, mail, tmp_path):
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "export", "m", "-o", "e.jsonl"], check=False
    )
    assert (killed.returncode, (tmp_path / "e.jsonl").exists()) == (9, True)
    (holder,) = foldlog(NAMES).document["holders"]
    assert holder.endswith(f"{tmp_path}/e.jsonl")


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_file_is_named_after_any_commit(foldlog, mail, tmp_path, monkeypatch, commit):
    confirmed = []

    def confirm(*arguments):
        confirmed.append(arguments)
        if len(confirmed) == commit:
            raise KeyboardInterrupt
        confirm_position(*arguments)

    with api.open("foldlog.db") as histories, monkeypatch.context() as patched:
        patched.setattr("foldlog.eventstore.files.written_files.confirm", confirm)
        with suppress(KeyboardInterrupt):
            histories.maintenance.back_up("b.db")
    holders = " ".join(foldlog(NAMES).document["holders"])
    assert f"{tmp_path}/b.db" in holders or not (tmp_path / "b.db").exists()


def test_failed_writes_are_not_named(foldlog, mail, monkeypatch):
    assert foldlog("export m -o e.jsonl").status == 0
    foldlog(NAMES)

    def refused(*each):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "replace", refused)
        assert foldlog("export m -o e.jsonl --force").status == 2
        assert foldlog("export m -o new.jsonl").status == 2
        Path("mine.db").write_text("another program's")
        assert foldlog("store backup mine.db").status == 2
    holders = " ".join(foldlog(NAMES).document["holders"])
    assert [file in holders for file in ("e.jsonl", "new.jsonl", "mine.db")] == [True, False, False]
