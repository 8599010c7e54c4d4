"""What a data officer asks for: erase and redact many at once, find a secret, keep what is
young.
"""

import json
import os
import re
import subprocess
import sys
import threading
from base64 import b64encode, encodebytes
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from zlib import compress

import pytest

import foldlog as api
from foldlog import Annotation, CondensationAction, KeyRing, Message, Observation, _written_files
from foldlog._maintenance import holds_plain_events
from foldlog._reports.audit_database import update
from foldlog.errors import InvalidArgument
from foldlog.eventstore.maintenance.rekey import named_or_all
from foldlog.formats import decode
from tests.crash.bytes_left import bytes_left
from tests.said import said

SECRET = "sk-4111222233334444"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAYS = timedelta(days=1)


KEY = b64encode(bytes(range(32))).decode()


@pytest.fixture(params=["plain", "encrypted"])
def opened(request, tmp_path):
    """A store of conversations by age in days: ``old`` with the fork ``young``, ``ann/1`` and
    ``ann/2``.
    """
    age = [0]
    histories = api.open(
        tmp_path / "foldlog.db",
        clock=lambda: NOW - age[0] * DAYS,
        keys=KeyRing(KEY) if request.param == "encrypted" else None,
    )
    with histories:
        for name, days in {"old": 100, "ann/1": 95, "ann/2": 5}.items():
            age[0] = days
            histories.create(name, {"user": name[:3]}).append(said(f"{name} says hello"))
        age[0] = 3
        histories["old"].fork(1, "young").append(said("younger"))
        age[0] = 0
        yield histories


def living(histories):
    return sorted(histories)


# -- retention
# --------------------------------------------------------------------------------------------------


def test_retention_erases_what_is_older_and_leaves_what_a_younger_fork_shares(opened):
    expire = opened.maintenance.expire
    would = expire(90 * DAYS, dry_run=True)
    assert (ids_of(would), would.bytes_pending) == (["ann/1"], False)
    assert "'young'" in would.stay[0]
    assert ids_of(expire(90 * DAYS, dry_run=True, detach_forks=True)) == ["ann/1", "old"]
    assert living(opened) == ["ann/1", "ann/2", "old", "young"]
    did = expire(90 * DAYS, reason="policy")
    assert (ids_of(did), did.bytes_pending, did.conversations[0].erased_reason) == (
        ["ann/1"],
        False,
        "policy",
    )
    assert not opened.store.database.bytes_pending, "one vacuum follows"
    assert living(opened) == ["ann/2", "old", "young"], "the others are erased"
    again = expire(90 * DAYS)
    assert ids_of(again) == []
    assert "young" in again.stay[0]
    assert ids_of(expire(90 * DAYS, detach_forks=True)) == ["old"]
    assert [event.content for event in opened["young"].view()] == ["younger"]
    assert ids_of(expire(timedelta(), {"user": "ann"})) == ["ann/2"]


def ids_of(expired):
    return [row.id for row in expired.conversations]


def test_the_command_tells_what_is_too_old_and_stays_and_ends_with_status_0(
    opened, foldlog, monkeypatch
):
    if opened.store.database.settings.keys is not None:
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    when = (NOW - 90 * DAYS).date().isoformat()
    for erased in (["ann/1"], []):
        ran = foldlog("store expire --reason policy --yes --json --older-than", when)
        assert (ran.status, [one["conversation"] for one in ran.document["conversations"]]) == (
            0,
            erased,
        )
        assert [one["conversation"] for one in ran.document["stay"]] == ["old"]
        assert "conversation 'old' has a fork that needs its events ('young')" in ran.err
    assert foldlog("store erase old --reason 'asked to' --yes").status == 2, "what is named must go"


def test_forks_that_are_old_too_go_before_their_parents(opened):
    assert ids_of(opened.maintenance.expire(DAYS)) == ["young", "ann/2", "ann/1", "old"]
    assert living(opened) == []


def test_a_conversation_that_is_used_again_meanwhile_stays(opened, monkeypatch):
    maintenance = opened.maintenance

    def used_again(name):
        if name == "old":
            opened["old"].append(said("I am back"))

    monkeypatch.setattr(maintenance, "_stays", used_again)
    did = maintenance.expire(4 * DAYS)
    assert ids_of(did) == ["ann/2", "ann/1"]
    assert living(opened) == ["old", "young"]
    assert "'old' is at version 3" in did.stay[0]


def test_a_conversation_that_a_worker_drives_stays(opened):
    with opened["ann/1"].lease(worker="w1"):
        assert ids_of(opened.maintenance.expire(90 * DAYS, dry_run=True)) == []
        did = opened.maintenance.expire(90 * DAYS)
        assert ids_of(did) == []
        assert "conversation 'ann/1': a worker drives it: 'w1' has it until" in str(did.stay)
    assert ids_of(opened.maintenance.expire(90 * DAYS)) == ["ann/1"]


def test_the_command_leaves_what_a_worker_drives_unless_it_is_named(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in ("driven", "free"):
            histories[name].append(said("hello"))
        with histories["driven"].lease(worker="w1"):
            ran = foldlog("store expire --older-than 0s --reason policy --yes --json")
            assert [one["conversation"] for one in ran.document["conversations"]] == ["free"]
            assert [one["conversation"] for one in ran.document["stay"]] == ["driven"]
            assert (ran.status, "a worker drives it: 'w1' has it until" in ran.err) == (0, True)
            assert foldlog("store erase driven --reason 'asked to' --yes").status == 0


def test_an_age_is_a_span(opened):
    for age in (90, -DAYS, "90d"):
        with pytest.raises(InvalidArgument, match="timedelta"):
            opened.maintenance.expire(age, reason="policy")


@pytest.fixture
def two(tmp_path):
    """A store with two conversations of one event."""
    with api.open(tmp_path / "two.db") as histories:
        for name in ("a", "b"):
            histories[name].append({"role": "user", "content": "hi"})
        yield histories


def test_maintenance_runs_when_it_is_called(tmp_path, two):
    with api.open(tmp_path / "copy.db") as copy:
        copy.maintenance.copy_from(two)
        assert [*copy] == ["a", "b"]
    with api.open(tmp_path / "two.db", keys=KeyRing("11" * 32)) as histories:
        histories.maintenance.rekey()
        assert not holds_plain_events(histories.store)


def test_results_are_also_handed_over_as_they_come(tmp_path, two):
    come = []
    with api.open("memory:") as empty:
        results = [
            two.maintenance.verify(on_result=come.append),
            empty.maintenance.differences_from(two, on_result=come.append),
            empty.maintenance.copy_from(two, on_result=come.append),
            empty.maintenance.rekey(on_result=come.append),
        ]
    assert come == [*chain.from_iterable(results)]
    assert [len(each) for each in results] == [3, 2, 2, 2]


class Stop(Exception):
    """What ``stop`` raises."""


def stop(result):
    """End a task at its first result."""
    raise Stop(result.conversation)


def test_a_function_that_raises_ends_the_rekey_and_what_is_done_stays(tmp_path, two):
    with api.open(tmp_path / "two.db", keys=KeyRing("11" * 32)) as histories:
        with pytest.raises(Stop, match="a"):
            histories.maintenance.rekey(on_result=stop)
        store = histories.store
        marks = [
            store.database.codec_of(found).is_strict for found in named_or_all(store.database, ())
        ]
        assert marks == [True, False]


def test_a_function_that_raises_ends_the_threads_of_a_copy(tmp_path, two):
    with api.open("memory:") as copy:
        before = threading.active_count()
        with pytest.raises(Stop) as raised:
            copy.maintenance.copy_from(two, jobs=2, on_result=stop)
        # while the error, and so every frame that it passed, is still there
        assert threading.active_count() == before, raised.value


# -- the command: erase
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, foldlog):
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in ("ann/1", "ann/2", "ben"):
            histories.create(name, {"user": name[:3]}).append(said(f"{name} says marigold"))
        histories["ann/1"].fork(2, "fork")
    return tmp_path / "foldlog.db"


ERASED = [
    (["ann/2", "ben"], ["ann/2", "ben"], ["ann/1", "fork"]),
    (["--where", "user=ann"], ["ann/1", "ann/2", "fork"], ["ben"]),
    (["ben", "--where", "user=ann"], ["ann/1", "ann/2", "ben", "fork"], []),
]
EXPIRED = [
    (["--older-than", "2000-01-01"], [], ["ann/1", "ann/2", "ben", "fork"]),
    (["--older-than", "0s"], ["ann/1", "ann/2", "ben", "fork"], []),
    (["--older-than", "0s", "--where", "user=ben"], ["ben"], ["ann/1", "ann/2", "fork"]),
]
CASES = [*(("erase", *case) for case in ERASED), *(("expire", *case) for case in EXPIRED)]


@pytest.mark.parametrize(
    "command, which, erased, stay", CASES, ids=[" ".join(case[1]) for case in CASES]
)
def test_erase_takes_ids_and_attributes_and_expire_an_age(
    foldlog, store, command, which, erased, stay
):
    tried = foldlog(
        "store", command, *which, "--reason", "asked to", "--dry-run", "--json"
    ).document
    assert sorted(one["conversation"] for one in tried["conversations"]) == erased
    assert foldlog("log ben").status == 0, "a dry run erases nothing"
    ran = foldlog("store", command, *which, "--reason", "asked to", "--yes", "--json")
    assert ran.status == (0 if erased or command == "expire" else 1), ran.err
    told = ran.document
    assert sorted(one["conversation"] for one in told["conversations"]) == erased
    assert (told["stay"], told["holders"]) == ([], [])
    assert all(
        one["erased_reason"] == "asked to" and not one["bytes_pending"]
        for one in told["conversations"]
    )
    with api.open(store) as histories:
        assert living(histories) == stay
    assert (bytes_left(store.parent, ["marigold"]) == []) == (not stay)


def test_erase_reports_what_stays_and_refuses_what_says_nothing(foldlog, store):
    assert "nothing was erased" in foldlog("store erase ann/2 ben --reason x").err
    ran = foldlog("store erase ann/1 ben --reason x --yes --json")
    assert (ran.status, [one["conversation"] for one in ran.document["conversations"]]) == (
        1,
        ["ben"],
    )
    assert [one["conversation"] for one in ran.document["stay"]] == ["ann/1"]
    assert "nothing was erased; --with-forks erases them too, --detach first gives" in ran.err
    ran = foldlog("store erase ann/1 ann/2 --with-forks --reason x --yes")
    assert (ran.status, "3 conversations erased, 6 events" in ran.out) == (0, True)
    for wrong in ([], ["nobody"], ["ben", "--with-forks", "--detach"], ["--where", "user"]):
        assert foldlog("store erase", *wrong, "--reason", "x", "--yes").status == 2


def test_the_forks_that_go_too_are_named_before_and_after(foldlog, store, monkeypatch):
    with api.open(store) as histories:
        histories["fork"].fork(1, "fork's")
    asked = []
    monkeypatch.setattr("foldlog._cli.terminal.confirm", lambda *given: asked.append(given))
    given = ("store", "erase", "ann/1", "--with-forks", "--reason", "x", "--json")
    tried, ran = foldlog(*given, "--dry-run").document, foldlog(*given).document
    for told in (tried, ran):
        assert [one["conversation"] for one in told["conversations"]] == ["fork's", "fork", "ann/1"]
        assert told["stay"] == []
    assert ("fork: 2 events" in "\n".join(asked[0][2]), asked[0][-1]) == (
        True,
        "each of 3 conversations",
    )
    with api.open(store) as histories:
        assert living(histories) == ["ann/2", "ben"]


def test_the_files_of_forks_that_go_too_are_named(foldlog, tmp_path):
    records = [{"role": "user", "content": f"marigold {number}"} for number in range(5)]
    files = {
        "a/m.jsonl": records,
        "b/m.jsonl": [*records[:4], {"role": "user", "content": "other"}],
    }
    paths = written(
        {path: "".join(f"{json.dumps(each)}\n" for each in told) for path, told in files.items()}
    )
    for path in paths:
        assert foldlog("import", str(path)).status == 0
    with api.open(tmp_path / "foldlog.db") as histories:
        for _ in range(2):  # the same call asks again
            tombstone = histories.erase("m", reason="asked to", with_forks=True)
            assert {*tombstone.unconfirmed} == {f"imported file {path}" for path in paths}
        assert living(histories) == []


def test_a_file_is_named_of_a_fork_that_was_detached_from_what_was_imported(foldlog, tmp_path):
    records = ({"role": "user", "content": f"marigold {number}"} for number in range(3))
    (path,) = written({"m.jsonl": "".join(f"{json.dumps(each)}\n" for each in records)})
    foldlog("import", str(path))
    with api.open(tmp_path / "foldlog.db") as histories:
        fork = histories["m"].fork(2)
        histories.erase("m", reason="asked to", detach_forks=True)
        assert fork.redact(1, reason="asked to").unconfirmed == (f"imported file {path}",)


@pytest.fixture
def few_frames():
    """Leave so many frames to calls within calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    yield 200
    sys.setrecursionlimit(limit)


def test_forks_of_forks_are_erased_however_many_there_are(few_frames):
    with api.open("memory:") as histories:
        history = histories["c"]
        for number in range(few_frames):
            history.append({"role": "user", "content": "x"})
            history = history.fork(number + 1, id=f"fork {number}")
        assert len(histories.maintenance.expire(timedelta()).conversations) == few_frames + 1


def test_a_conversation_stays_in_a_dry_run_where_it_stays(foldlog, store):
    with api.open(store) as histories:
        histories["fork"].append(said("more"))
        histories["fork"].fork(3, "fork's")
    given = ("store", "erase", "ann/1", "fork", "ben", "--reason", "x", "--json")
    tried, ran = foldlog(*given, "--dry-run").document, foldlog(*given, "--yes").document
    assert tried["stay"] == ran["stay"]
    assert [one["conversation"] for one in tried["stay"]] == ["fork", "ann/1"]
    assert [one["conversation"] for one in tried["conversations"]] == ["ben"]


def test_the_report_names_the_backups_and_files_that_may_hold_it(foldlog, store):
    folder = store.parent
    assert (
        foldlog("store backup monday.db").status == foldlog("store backup tuesday.db").status == 0
    )
    assert foldlog("store restore monday.db --yes").status == 0
    (folder / "monday.db").unlink()
    assert foldlog("store backup wednesday.db").status == 0
    with api.open(store) as histories:
        update(histories.store, folder / "audit.db")
    ran = foldlog("store erase ben --reason x --yes --json")
    told = ran.document["holders"]
    names = [
        name.split("/")[0].strip() + " " + Path(name).name.partition(".replaced")[0]
        for name in told[:3]
    ]
    assert names == [
        "audit database audit.db",
        "backup tuesday.db",
        "backup wednesday.db",
    ], "monday.db is deleted"
    assert told[3].startswith(f"former file {store}.replaced-")
    assert "a file may still hold the content, until it is deleted" in ran.err
    assert foldlog("report ann/1 -o ann.html").status == 0
    foldlog("store erase ann/2 --reason x --yes")
    rows = {
        row["conversation"]: row for row in foldlog("list --all --json").document["conversations"]
    }
    assert not any("ann.html" in name for name in rows["ann/2"]["unconfirmed"]), (
        "it holds another conversation"
    )


# -- the command: redact
# -----------------------------------------------------------------------------------------------


def span(*texts):
    told = json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": each}]} for each in texts]
    )
    attributes = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]
    attributes.append({"key": "gen_ai.input.messages", "value": {"stringValue": told}})
    times = {"startTimeUnixNano": f"{len(texts)}", "endTimeUnixNano": f"{len(texts)}"}
    one = {
        "traceId": "t",
        "spanId": f"s{len(texts)}",
        "name": "chat",
        **times,
        "attributes": attributes,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}


STEP = {
    **{"step_id": 1, "source": "agent", "message": "I look."},
    "tool_calls": [
        {"tool_call_id": each, "function_name": "cat", "arguments": {"file": each}} for each in "ab"
    ],
    "observation": {
        "results": [
            {"source_call_id": "a", "content": ""},
            {"source_call_id": "b", "content": SECRET},
        ]
    },
}
AGENT = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "kite", "version": "1"},
}
IMPORTED = {
    "atif": [AGENT, STEP],
    "otlp-genai": [span("hello", SECRET), span("hello", SECRET, "and then?")],
}
"""One event of several of a record holds the secret; so does a record whose own events do not hold
it.
"""


def hidden(name, folder):
    """Put the secret somewhere into conversation ``c``; return how many events hold it."""
    with api.open(folder / "foldlog.db") as histories:
        history = histories["c"]
        history.append([said("hello"), said("there")])
        if name == "message":
            history.append(said(f"the key is {SECRET}, keep it"))
        elif name == "summary":
            history.append(
                CondensationAction(
                    forgotten_event_ids=[0], summary=f"uses {SECRET}", summary_offset=0
                )
            )
        elif name == "arguments, extras and meta":
            history.append(api.Action(tool="t", arguments={"a": [{SECRET: 1}]}, call_id="x"))
            history.append(
                api.Observation(content="ok", extras={"k": SECRET}, call_id="x", meta={"k": SECRET})
            )
            return 2
        elif name == "document":
            long = {"notes": [f"line {n}" for n in range(200)], "key": SECRET}
            history.append((), documents={"state": long, "other": "stays"})
            history.append((), documents={"state": {**long, "more": 1}})  # stored as a difference
            history.fork(history.version(), "f").append(
                (), documents={"state": {**long, "key": "fork"}}
            )
            history.append((), documents={"state": {**long, "key": "none"}})  # builds on the others
            return 4
        elif name == "record of an import":
            record = {"role": "user", "content": "hi", "unknown_field": SECRET}
            history.append_records([record], format="openai-chat")
        elif name in IMPORTED:
            histories.store.ingest("imported", list(decode(IMPORTED[name], name)))
        elif name == "shared by a fork":
            history.append(said(SECRET))
            history.fork(3, "f").append(said("on"))
        elif name == "a fork's own":
            history.fork(2, "f").append(said(SECRET))
        elif name == "erased from a View":
            history.append(said(SECRET))
            history.retract(2)
    return 1


PLACES = [
    "message",
    "summary",
    "arguments, extras and meta",
    "document",
    "record of an import",
    *IMPORTED,
    "shared by a fork",
    "a fork's own",
    "erased from a View",
]


@pytest.mark.parametrize(
    "place, encrypted",
    [
        *((place, n % 2 == 0) for n, place in enumerate(PLACES)),
        ("message", False),
        ("document", True),
    ],
)
def test_a_secret_is_found_and_redacted_wherever_it_is(
    foldlog, tmp_path, monkeypatch, place, encrypted
):
    if encrypted:
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    count = hidden(place, tmp_path)
    foldlog("search hello")
    found = foldlog("store redact --reason leaked --dry-run --json --matching", SECRET).document
    assert sum(len(one["event_ids"]) for one in found["found"]) == count
    # that one is packed
    assert encrypted or place == "record of an import" or bytes_left(tmp_path, [SECRET]) != []
    ran = foldlog("store redact --reason leaked --yes --matching", SECRET)
    assert ran.status == 0, ran.err
    assert bytes_left(tmp_path, [SECRET]) == []
    assert SECRET not in ran.out + ran.err
    with api.open(tmp_path / "foldlog.db") as histories:
        for name in histories:
            assert SECRET not in repr(list(histories[name].events())) + repr(
                histories[name].documents()
            )
        if place == "document":
            assert histories["c"].document("other") == "stays"
            assert histories["f"].document("other") == "stays", (
                "it stood in a shared event beside the secret"
            )
            assert histories["c"].document("state")["key"] == "none", (
                "a newest value without the secret stays"
            )
            assert histories["f"].document("state")["key"] == "fork"
    assert foldlog("store verify").status == 0


@pytest.mark.parametrize("pattern", ["4111222233334444", "päss\nwörd"])
def test_a_secret_is_found_in_numbers_and_in_escaped_json(foldlog, tmp_path, pattern):
    once = json.dumps({"out": "Päss päss\nwörd"})
    with api.open(tmp_path / "foldlog.db") as histories:
        card = 4111222233334444
        if pattern == str(card):
            histories["c"].append(
                [api.Action(tool="t", arguments={"card": card}, call_id="x"), said("hi")]
            )
            histories["c"].append(
                api.Observation(content="ok", extras={"cards": [card]}, call_id="x")
            )
        else:
            histories["c"].append([said(once), said("hi"), said(json.dumps([once]))])
    given = ("store", "redact", "--matching", pattern, "--reason", "x", "--json")
    ran = foldlog(*given, "--yes")
    assert ran.status == 0, ran.err
    assert ran.document["found"] == [{"conversation": "c", "event_ids": [0, 2]}]


def test_a_secret_in_the_shared_past_of_chosen_forks_is_named(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["parent"].append(said(SECRET))
        for fork in "fg":
            histories["parent"].fork(1, fork).set_attributes(user="ann")
    ran = foldlog(
        "store redact --where user=ann --reason x --yes --no-vacuum --matching",
        SECRET,
    )
    assert ran.status == 1
    assert ran.err.count("belongs to conversation 'parent'") == 2


NAMED = [
    "NADIA Ünal",
    "Na\u00addia\u200b Ünal",
    "nadia u\u0308nal",
    "Nadia Unal",
    "ask: Na\u0301dia ÜNAL.",
    "Nadia  Ünal",
    "nadia\n\u00a0 unal",
]


def test_of_a_younger_import_nothing_is_redacted_with_what_is_older(foldlog, tmp_path):
    texts = [{"role": "user", "content": f"{SECRET} {n}"} for n in range(2)]
    for year in (1, 2):
        with api.open(
            tmp_path / "foldlog.db", clock=lambda year=year: datetime(2020 + year, 1, 1, tzinfo=UTC)
        ) as opened:
            opened.store.ingest("c", list(decode(texts[:year], "openai-chat")))
    given = (
        "store",
        "redact",
        "--matching",
        SECRET,
        "--older-than",
        "2021-06-01",
        "--reason",
        "x",
        "--dry-run",
        "--json",
    )
    assert foldlog(*given).document["found"] == [{"conversation": "c", "event_ids": [0]}]


@pytest.mark.parametrize("matching", NAMED[:3])
def test_a_name_is_found_in_each_case_and_form_as_by_a_search(foldlog, tmp_path, matching):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([*map(said, [*NAMED, "Nadine Ünal"])])
    given = ("store", "redact", "--matching", matching, "--reason", "x", "--yes", "--json")
    ran = foldlog(*given)
    assert (ran.status, ran.document["found"]) == (
        0,
        [{"conversation": "c", "event_ids": [*range(7)]}],
    ), ran.err


def mail(foldlog, name="m"):
    """Import a call to mail Nadia, and its result."""
    call = {"name": "mail", "arguments": '{"to": "Nadia"}'}
    records = [
        {"role": "user", "content": "mail it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "x", "content": "sent to nadia"},
    ]
    Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert foldlog("import", f"{name}.jsonl").status == 0


def test_ids_tombstones_and_imported_files_that_hold_the_text_are_named_with_what_to_do(foldlog):
    mail(foldlog, "nadia-1")
    given = ("store", "redact", "--matching", "Nadia", "--reason", "r", "--yes", "--json")
    for found in (2, 0):  # also where nothing is left to redact
        ran = foldlog(*given)
        assert (ran.status, sum(len(one["event_ids"]) for one in ran.document["found"])) == (
            1,
            found,
        )
        name, path = (one["problem"] for one in ran.document["stay"])
        assert name.startswith(
            "the id of conversation 'nadia-1' holds the text; erase it, and import its source under"
        )
        assert path.endswith(
            "/nadia-1.jsonl, and the path holds the text; rename the file, and import or erase it again"
        )
        assert ran.document["holders"] == [f"imported file {Path('nadia-1.jsonl').absolute()}"]
    assert foldlog("store redact nadia-1 0 --reason r --yes --json").document["holders"]
    assert foldlog("import nadia-1.jsonl --json").document["imported"][0]["added"] == 0
    (holder,) = foldlog("store erase nadia-1 --reason r --yes --json").document["holders"]
    assert holder == f"imported file {Path('nadia-1.jsonl').absolute()}"
    other_name = ("import", "nadia-1.jsonl", "--conversation", "n")
    assert "this source was erased; to import it again, use --again" in foldlog(*other_name).err
    assert foldlog(*other_name, "--again").status == 0
    assert (
        "the tombstone of the erased conversation 'nadia-1'" in foldlog(*given, "--no-vacuum").err
    )
    assert foldlog("store copy foldlog.db new.db n").status == 0
    clean = foldlog(*given, "--db", "new.db")
    assert (clean.status, clean.document["found"]) == (1, [])
    (path,) = (one["problem"] for one in clean.document["stay"])  # the copy knows its source
    assert path.startswith("the store has the path from which conversation 'n' was imported, ")


def test_each_summary_that_may_quote_what_is_redacted_is_named_once(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([said("marigold 1"), said("marigold 2"), said("hi")])
        histories["c"].append(
            CondensationAction(forgotten_event_ids=[0, 1], summary="flowers", summary_offset=0)
        )
        histories["c"].append(
            CondensationAction(forgotten_event_ids=[2], summary="Marigold", summary_offset=0)
        )
        histories["c"].fork(2, "f")
    ran = foldlog("store redact --matching marigold --reason r --yes")
    assert "c: 3 events: 0, 1, summary S4\n" in ran.out
    quote = "summary S3 replaces redacted events and may quote them; --with-summaries redacts it"
    assert (ran.out.count(quote), ran.out.count("may quote"), ran.out.count("redacted too: f")) == (
        1,
        1,
        1,
    )


def written(files):
    """Write files with JSON values, in folders. Return their paths."""
    for path, value in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(value if type(value) is str else json.dumps(value))
    return [Path(path).absolute() for path in files]


ASKED = {"role": "user", "content": [{"type": "text", "text": "I am Nadia"}]}
V1 = {
    "timestamp": "2026-03-01T10:00:00",
    "source": "user",
    "llm_message": ASKED,
    "kind": "MessageEvent",
}
SESSION = {
    "id": "ses_1",
    "projectID": "p",
    "title": "Nadia",
    "version": "1.0",
    "time": {"created": 1, "updated": 1},
}
ASKING = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}}
PART = {
    "id": "prt_1",
    "sessionID": "ses_1",
    "messageID": "msg_1",
    "type": "text",
    "text": "I am Nadia",
}
CLINE = {f"task/{name}.json": [ASKED] for name in ("api_conversation_history", "ui_messages")}
LINES = '{"role": "user", "content": "I am Nadia"}\n'
FROM_SEVERAL = {
    "OpenCode's storage": (
        ["storage"],
        {
            "storage/session/p/ses_1.json": SESSION,
            "storage/message/ses_1/msg_1.json": ASKING,
            "storage/part/msg_1/prt_1.json": PART,
        },
        ["storage"],
    ),
    "events of OpenHands": (
        ["run"],
        {
            "run/events/event-00000-a.json": {"id": "a", **V1},
            "run/base_state.json": {"id": "c", "of": "Nadia"},
        },
        ["run/events", "run/base_state.json"],
    ),
    "a task of Cline": (["task"], CLINE, ["task", "task/ui_messages.json"]),
    "the messages of a task of Cline": (["task/api_conversation_history.json"], CLINE, [*CLINE]),
    "two copies": (
        ["a/m.jsonl", "b/m.jsonl"],
        {"a/m.jsonl": LINES, "b/m.jsonl": LINES},
        ["a/m.jsonl", "b/m.jsonl"],
    ),
    "a log that was copied and has grown": (
        ["a/m.jsonl", "b/m.jsonl"],
        {"a/m.jsonl": LINES, "b/m.jsonl": LINES + LINES},
        ["a/m.jsonl", "b/m.jsonl"],
    ),
}


@pytest.mark.parametrize("kind", FROM_SEVERAL)
def test_all_files_from_which_a_conversation_was_read_are_named(foldlog, tmp_path, kind):
    imported, files, sources = FROM_SEVERAL[kind]
    paths = written(files)
    for each in imported:
        ran = foldlog(
            "import", each, "--json", *(["--conversation", "m"] if len(imported) > 1 else [])
        )
        assert ran.status == 0, ran.err
    (name,) = {one["conversation"] for one in ran.document["imported"]}
    places = [tmp_path / source for source in sources]
    named = {f"imported {'folder' if place.is_dir() else 'file'} {place}" for place in places}
    for found in (True, False):  # also where nothing is left to redact
        ran = foldlog("store redact --matching nadia --reason r --yes --json")
        assert (ran.status, bool(ran.document["receipts"]), ran.document["stay"]) == (
            int(not found),
            found,
            [],
        ), ran.err
        assert named <= {*ran.document["holders"]}
        assert {
            *foldlog("store redact", name, 0, "--reason", "r", "--yes", "--json").document[
                "holders"
            ]
        } == named
    assert foldlog("store erase --reason r --yes --dry-run --json", name).document["holders"] == []
    for again in (False, True):  # the same command asks again, and so does the other one
        ran = foldlog("store erase --reason r --yes --json", name)
        assert {*ran.document["holders"]} == named, again
        assert ran.err.count("a file in this folder may still hold") == sum(
            place.is_dir() for place in places
        )
        ran = foldlog("store redact --matching nadia --reason r --yes --json")
        assert named <= {*ran.document["holders"]}
    for path in paths:
        path.unlink()
    ran = foldlog("store erase --reason r --yes --json", name)
    assert {*ran.document["holders"]} == {one for one in named if one.startswith("imported folder")}


def test_a_file_is_named_of_the_conversation_that_was_erased_until_it_is_moved(foldlog, tmp_path):
    """Not of another one, nor where a redaction looks for a text that it does not hold."""
    for name in ("m", "n"):
        written({f"{name}.jsonl": json.dumps({"role": "user", "content": f"marigold {name}"})})
        foldlog("import", f"{name}.jsonl")
    given = ("--reason", "r", "--yes", "--json")
    first, other, again = (
        f"imported file {tmp_path / name}" for name in ("m.jsonl", "n.jsonl", "again/m.jsonl")
    )
    assert foldlog("store erase m", *given).document["holders"] == [first]
    assert {*foldlog("store redact n --matching 'marigold n'", *given).document["holders"]} == {
        other
    }
    written({"again/m.jsonl": json.dumps({"role": "user", "content": "marigold again"})})
    foldlog("import again/m.jsonl --conversation k")
    assert foldlog("store erase n", *given).document["holders"] == [other]
    for _ in range(2):
        assert foldlog("store erase k", *given).document["holders"] == [again]
    assert foldlog("store erase m", *given).document["holders"] == [first]
    told = [
        one["problem"]
        for one in foldlog("store redact --matching again/m", *given).document["stay"]
    ]
    assert told[0].endswith(
        "again/m.jsonl, and the path holds the text; rename the file, and import or erase it again"
    )
    Path("again").rename("moved")
    assert foldlog("store erase k", *given).document["holders"] == []
    assert foldlog("store redact --matching again/m", *given).document["stay"] == []


FILES_OF_M = {"export": "e.jsonl", "report": "r.html"}


@pytest.mark.parametrize("encrypted", [False, True])
def test_each_file_that_holds_the_text_is_named_until_it_is_gone(
    foldlog, tmp_path, monkeypatch, encrypted
):
    if encrypted:
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    mail(foldlog)
    with api.open("foldlog.db") as histories:
        histories["other"].append(said("hello"))
    wrote = ["export m -o e.jsonl", "export other -o other.jsonl", "report m -o r.html"]
    for made in ("store backup b.db", "export --to audit.db", *wrote, "store restore b.db --yes"):
        assert foldlog(*made.split()).status == 0
    former = min(tmp_path.glob("foldlog.db.replaced-*"))  # others are its log
    Path("m.jsonl").unlink()
    assert foldlog("export --to audit.db").status == 0
    given = ("store", "redact", "m", "--matching", "nadia", "--reason", "r", "--yes", "--json")
    for found in (2, 0, 0):  # also where nothing is left to redact
        ran = foldlog(*given)
        assert (ran.status, sum(len(each["event_ids"]) for each in ran.document["receipts"])) == (
            1,
            found,
        )
        assert "other.jsonl" not in str(ran.document["holders"]), "it holds another conversation"
        holders = {f'{kind} of ["m"] {tmp_path}/{name}' for kind, name in FILES_OF_M.items()}
        assert holders | {f"backup {tmp_path}/b.db", f"former file {former}"} <= {
            *ran.document["holders"]
        }
    assert foldlog("export --to audit.db").status == 0
    Path("r.html").rename("moved.html")
    for path in map(Path, ("b.db", "e.jsonl", *tmp_path.glob("foldlog.db.replaced-*"))):
        path.unlink()
    moved = [
        f"not in its place any more, {name}"
        for name in sorted({*holders, f"backup {tmp_path}/b.db"})
    ]
    for named in (moved, []):
        ran = foldlog(*given)
        assert (ran.status, ran.document["stay"], sorted(ran.document["holders"])) == (
            1,
            [],
            named,
        ), ran.err


@pytest.mark.parametrize(
    "named, encrypted",
    [(["--matching", "marigold"], True), (["c", "1", "0", "1"], False)],
    ids=["found", "named"],
)
def test_all_that_will_go_with_summaries_is_named_and_asked_about(
    foldlog, tmp_path, monkeypatch, named, encrypted
):
    def summarizes(event_id, **also):
        return CondensationAction(
            forgotten_event_ids=[event_id], summary="flowers", summary_offset=0, **also
        )

    if encrypted:
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([said("marigold 1"), said("Marigold 2"), said("hi"), summarizes(0)])
        fork = histories["c"].fork(3, "f")
        fork.append(summarizes(1))
        fork.fork(4, "g").append(summarizes(-5))
        histories["c"].fork(1, "other").append(summarizes(0))
    asked = []
    monkeypatch.setattr("foldlog._cli.terminal.confirm", lambda *given: asked.append(given))
    given = ("store", "redact", *named, "--reason", "r", "--with-summaries")
    listed = foldlog(*given, "--dry-run").out
    for line in (
        "c: 3 events: 0, 1, summary S3, which may quote it",
        "f: 1 event: summary S3, which may quote it",
        "g: 1 event: summary S4, which may quote it",
        "other: 1 event: summary S1, which may quote it",
        "6 events of 4 conversations to redact",
    ):
        assert f"{line}\n" in listed.replace("events: 1, 0", "events: 0, 1")
    told = foldlog(*given).out
    assert asked[0][-1] == "each of 6 events"
    assert named[0] != "c" or "f, summary S3, which may quote it: " in "\n".join(asked[0][2])
    gone = re.findall(r"^(\w+): event (\d) redacted at ", told, re.MULTILINE)
    assert sorted(gone) == [
        (name, i)
        for name, ids in (("c", "013"), ("f", "3"), ("g", "4"), ("other", "1"))
        for i in ids
    ]
    with api.open(tmp_path / "foldlog.db") as histories:
        left = [e for name in histories for e in histories[name].events() if "flowers" in repr(e)]
    assert left == []
    assert (foldlog("store verify").status, foldlog(*given).status, len(asked)) == (
        0,
        int("--matching" in named),
        1,
    )


def test_what_a_redaction_cannot_remove_is_named(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(
            [api.Action(tool=SECRET, call_id="x"), Annotation(name="n", data=SECRET)]
        )
    assert foldlog("store backup b.db").status == 0
    ran = foldlog("store redact --reason leaked --yes --json --matching", SECRET)
    assert ran.status == 1
    assert sum(len(one["event_ids"]) for one in ran.document["receipts"]) == 2
    problems = [one["problem"] for one in ran.document["stay"]]
    assert "conversation 'c', event 0 still holds the text" in problems[0]
    assert f"backup {tmp_path}/b.db" in ran.document["holders"]
    refused = foldlog("store redact --yes --matching", SECRET, "--reason", f"{SECRET} leaked")
    assert (refused.status, "the receipt keeps it" in refused.err) == (2, True)


def test_an_age_finds_only_old_events(foldlog, tmp_path):
    age = [100]
    with api.open(
        tmp_path / "foldlog.db", clock=lambda: datetime.now(UTC) - age[0] * DAYS
    ) as histories:
        histories["c"].append(
            [api.SystemMessage(content="be kind"), said("card 4111-2222"), said("no card")]
        )
        age[0] = 1
        histories["c"].append([said("card 4333 4444")])
    card = ("store", "redact", "--matching", "card 4", "--reason", "x", "--json")
    assert foldlog(*card, "--dry-run").document["found"] == [
        {"conversation": "c", "event_ids": [1, 3]}
    ]
    assert foldlog(*card, "--older-than", "90d", "--yes").document["found"][0]["event_ids"] == [1]
    old = foldlog("store redact c --older-than 90d --reason x --yes --json").document
    assert old["found"][0]["event_ids"] == [2], "the system prompt stays"


def test_redact_refuses_what_is_not_one_way_to_name_events(foldlog, store):
    both = ["c", 0, "--matching", "x"]
    for wrong in (["c"], both, ["--where", "a=b", "c", "--matching", "x"], ["--matching", ""], []):
        ran = foldlog("store redact", *wrong, "--reason", "x", "--yes")
        assert ran.status == 2, (wrong, ran.err)


def test_restore_asks_before_it_replaces_a_store(foldlog, store):
    assert foldlog("store backup b.db").status == 0
    ran = foldlog("store restore b.db")
    assert (ran.status, "nothing was restored. Add --yes" in ran.err) == (2, True)
    assert foldlog("store restore b.db --yes").status == 0
    assert foldlog("store restore b.db --db new.db").status == 0, "there is nothing to replace"


def test_the_nightly_script_of_the_page_on_production_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/how-to/production.md").read_text()
    [script] = re.findall(r"^```sh\n(# nightly\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    age = [100]
    with api.open(
        tmp_path / "history.db", clock=lambda: datetime.now(UTC) - age[0] * DAYS
    ) as histories:
        histories["old"].append(said("marigold"))
        histories["forked"].append(said("lily"))
        age[0] = 1
        histories["new"].append(said("tulip"))
        histories["forked"].fork(1, "young").append(said("rose"))
    there = tmp_path / "bin"
    there.mkdir()
    (there / "foldlog").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m foldlog "$@"\n')
    (there / "foldlog").chmod(0o755)
    monkeypatch.setenv("PATH", f"{there}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOLDLOG_DB", str(tmp_path / "history.db"))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with api.open(tmp_path / "history.db") as histories:
        assert living(histories) == ["forked", "new", "young"]
    assert b"marigold" not in (tmp_path / "history.db").read_bytes()
    (backup,) = (tmp_path / "backups").glob("*.db")
    assert b"marigold" in backup.read_bytes(), "it was made before"


def test_a_redaction_says_what_it_searched_and_what_not(foldlog, tmp_path):
    parts = [{"type": "text", "text": "I am Nadia "}, {"type": "text", "text": "Unal"}]
    with api.open("foldlog.db") as histories:
        histories["c"].append(
            [Message(source="user", content=each) for each in ("nadia alone", parts)]
        )
        histories["c"].append(said(b64encode(b"Nadia Unal").decode()))
        histories["c"].set_attributes(user="Nadia Unal")
    redact = ("store", "redact", "--matching", "nadia unal", "--reason", "asked to")
    searched = (
        "Searched: events, summaries, documents, attributes and the records of imports of 1"
        " conversation; "
    )
    ran = foldlog(*redact, "--dry-run")
    assert f"{searched}the places named above hold the text" in " ".join(ran.err.split())
    ran = foldlog(*redact, "--yes")
    told = " ".join(ran.err.split())
    assert (
        f"2 events redacted. {searched}none of these holds the text now. Not searched: other files"
        " and stores;" in told
    )
    assert (
        "encoded (base64, URLs, HTML, bytes other than UTF-8), compressed or in a picture; text"
        " that is" in told
    )
    assert f"{searched}none of these holds the text. Not searched:" in " ".join(
        foldlog(*redact, "--dry-run").err.split()
    )
    document = foldlog(*redact, "--yes", "--json").document
    assert (document["found"], document["receipts"]) == ([], [])
    assert document["not_searched"].startswith("other files and stores;")


NAME = "Nadia Unal"
WRAPPED = encodebytes(b"Dear Sir, " * 9 + NAME.encode()).decode()
ENCODED, PRESSED = (
    "text that is encoded (base64, URLs, HTML, bytes other than UTF-8)",
    "compressed or in a picture",
)
DIVIDED, SPELLED = (
    "divided between fields or events",
    "has markup in it or is spelled in another way",
)
NOT_FOUND = {
    "base64 in an argument": (ENCODED, {"body": b64encode(f"<{NAME}>".encode()).decode()}),
    "base64 in lines": (ENCODED, {"file": WRAPPED}),
    "base64 behind a path": (
        ENCODED,
        {"url": "https://h.example/f/" + b64encode(NAME.encode()).decode()},
    ),
    "a URL": (ENCODED, {"url": "https://h.example/Nadia%20Unal"}),
    "a form": (ENCODED, {"body": "name=Nadia+Unal&age=4"}),
    "entities": (ENCODED, {"page": "<b>Nadia&#32;Unal</b>"}),
    "quoted-printable": (ENCODED, {"mail": "Nadia=20Unal"}),
    "escapes of a shell": (ENCODED, {"out": r"Nadia\x20Unal"}),
    "bytes of UTF-16": (ENCODED, {"data": NAME.encode("utf-16")}),
    "compressed bytes": (PRESSED, {"data": compress(NAME.encode())}),
    "two fields": (DIVIDED, {"first": "Nadia", "last": "Unal"}),
    "markup": (SPELLED, {"text": "**Nadia** Unal"}),
    "a hyphen": (SPELLED, {"text": "Nadia-Unal"}),
}
"""What no search finds, each with its class in the report."""
FOUND = {
    "a list in a map": {"people": [{"who": ["x", NAME]}]},
    "lines of a list": {"lines": ["I am Nadia", "Unal"]},
    "a name of a part": {NAME: None},
    "bytes": {"data": f"x{NAME}".encode()},
    "JSON in JSON in JSON in JSON": {
        "out": json.dumps(json.dumps(json.dumps(json.dumps({"a": "N\u00e4dia Unal"}))))
    },
    "no-break space and capitals": {"out": "NADIA\u00a0UNAL"},
    "characters without width": {"out": "Na\u200bdia \u2066Unal"},
    "wide letters": {"out": "\uff2e\uff41dia Unal"},
}


def test_each_place_of_a_text_is_redacted_or_listed_or_of_a_class_that_was_not_searched(
    foldlog, tmp_path
):
    with api.open("foldlog.db") as histories:
        for place, data in {
            **FOUND,
            **{place: data for place, (_, data) in NOT_FOUND.items()},
        }.items():
            histories[place].append([said("hello"), Annotation(name="note", data=data)])
        histories["two events"].append([said("I am Nadia "), said("Unal")])
        histories["key of a retry"].append(said("hello"), idempotency_key=NAME)
        histories["a tool"].append(api.Action(tool=NAME, call_id="1", arguments={}))
        histories["of Nadia Unal"].append(said("hello"))
    ran = foldlog("store redact --reason 'asked to' --yes --json --matching", NAME.lower())
    report = ran.document
    assert {one["conversation"] for one in report["found"]} == {*FOUND, "a tool"}
    assert {one["conversation"] for one in report["stay"]} == {"a tool", "of Nadia Unal"}
    classes = {*(name for name, _ in NOT_FOUND.values()), "idempotency keys"}
    assert {name for name in classes if name not in report["not_searched"]} == set()
    with api.open("foldlog.db") as histories:
        stay = {
            name
            for name in histories
            for event in histories[name].events()
            if event.redacted is None
        }
        held = {name: repr([*histories[name].events()]) for name in FOUND}
    assert stay >= {*NOT_FOUND, "two events", "key of a retry"}
    assert {name for name, text in held.items() if "Unal" in text} == set()


@pytest.mark.parametrize("number", [4111222233334444, 49301234567.0])
def test_a_number_is_found_by_its_digits(opened, number):
    opened["ann/1"].append(Annotation(name="card", data={"number": number}))
    assert {*opened.maintenance.redact_matching(f"{number:.0f}", reason="asked").events} == {
        "ann/1"
    }


def test_from_python_what_holds_a_text_is_redacted(opened):
    opened["ann/1"].append(
        [said("call Nadia Ünal"), said("a card")], documents={"notes": {"who": "NADIA unal"}}
    )
    with pytest.raises(InvalidArgument, match="the receipt keeps it"):
        opened.maintenance.redact_matching("nadia", reason="Nadia asked")
    would = opened.maintenance.redact_matching("nadia unal", reason="asked", dry_run=True)
    ids = opened.maintenance.redact_matching("nadia unal", {"user": "ann"}, reason="asked", by="me")
    assert (would.receipts, would.events) == ((), ids.events)
    assert {*ids.events} == {"ann/1"}
    assert len(ids.events["ann/1"]) == 2
    assert (ids.receipts[0].by, ids.stay) == ("me", ())
    assert "Nadia" not in repr([*opened["ann/1"].events()])
    assert opened.maintenance.redact_matching("nadia", reason="asked").events == {}


def test_a_search_says_that_more_events_have_the_words(foldlog):
    with api.open("foldlog.db") as histories:
        histories["c"].append([Message(source="user", content="passed") for _ in range(3)])
    for limit, more in ((2, True), (3, False)):
        ran = foldlog("search passed -n", limit)
        assert (f"the first {limit} are shown, and there are more" in ran.err) is more
        found = foldlog("search passed --json -n", limit).document
        assert (len(found["hits"]), found["more"]) == (limit, more)


def test_a_search_without_words_finds_all_events_of_a_kind(foldlog):
    failed = [
        Observation(content=text, call_id=text, is_error=True)
        for text in ("no such file", "", "denied")
    ]
    with api.open("foldlog.db") as histories:
        histories["c"].append([Message(source="user", content="passed"), *failed])
    found = foldlog("search --kind error --json").document
    assert [(hit["event"], hit["snippet"]) for hit in found["hits"]] == [
        (3, "denied"),
        (2, ""),
        (1, "no such file"),
    ]
    assert "name the words to search for" in foldlog("search").err


_KILLED = """
import os
from foldlog._cli import main

def replaced(source, target, really=os.replace):
    really(source, target)
    os._exit(9)

os.replace = replaced
main()
"""


def test_a_file_of_a_command_that_was_killed_after_writing_it_is_named(foldlog, tmp_path):
    mail(foldlog)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "export", "m", "-o", "e.jsonl"], check=False
    )
    assert (killed.returncode, (tmp_path / "e.jsonl").exists()) == (9, True)
    ran = foldlog("store redact m --matching nadia --reason r --yes --json")
    assert any(name.endswith(f"{tmp_path}/e.jsonl") for name in ran.document["holders"]), (
        ran.document
    )


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_file_is_named_whichever_commit_of_its_note_was_the_last(tmp_path, monkeypatch, commit):
    confirmed, really = [], _written_files.confirm

    def confirm(*given):
        confirmed.append(given)
        if len(confirmed) == commit:
            raise KeyboardInterrupt
        really(*given)

    monkeypatch.setattr(_written_files, "confirm", confirm)
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["m"].append(said("nadia"))
        with suppress(KeyboardInterrupt):
            histories.maintenance.back_up(tmp_path / "b.db")
        named = any(
            _written_files.path_in(name) == str(tmp_path / "b.db")
            for name in _written_files.read_models(histories.store)
        )
        assert named or not (tmp_path / "b.db").exists()


def test_a_file_that_was_not_written_is_not_named_and_one_that_stays_keeps_its_position(
    foldlog, tmp_path, monkeypatch
):
    mail(foldlog)
    given = ("store", "redact", "m", "--matching", "nadia", "--reason", "r", "--yes", "--json")
    assert foldlog("export m -o e.jsonl").status == 0
    foldlog(*given)

    def refused(*each):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "replace", refused)
        assert foldlog("export m -o e.jsonl --force").status == 2
        assert foldlog("export m -o new.jsonl").status == 2
        Path("mine.db").write_text("another program's")
        assert foldlog("store backup mine.db").status == 2
    holders = " ".join(foldlog(*given).document["holders"])
    assert [file in holders for file in ("e.jsonl", "new.jsonl", "mine.db")] == [True, False, False]


def test_a_backup_that_is_used_as_a_store_does_not_name_itself(foldlog, store):
    assert foldlog("store backup monday.db").status == 0
    ran = foldlog("store erase ben --reason x --yes --json --db monday.db")
    assert (ran.status, ran.document["holders"]) == (0, [])


@pytest.mark.parametrize(
    "command",
    [
        ("store", "erase", "--where", "user=u7", "--reason", "asked to", "--yes"),
        ("store", "erase", "--where", "user=u7", "--reason", "asked to", "--dry-run"),
        (
            "store",
            "redact",
            "--where",
            "user=u7",
            "--matching",
            "said",
            "--reason",
            "asked to",
            "--yes",
        ),
        ("store", "redact", "--matching", "no such text", "--reason", "asked to", "--yes"),
        ("store", "redact", "c", "--older-than", "90d", "--reason", "policy", "--dry-run"),
        ("search", "nowhere"),
        ("search", "words", "--kind", "error"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_filter_that_matches_nothing_ends_with_1(
    foldlog, command: tuple[str, ...], as_json: bool
):
    with api.open("sqlite:///foldlog.db") as histories:
        histories["c"].append(said("words"))
    ran = foldlog(*command, *(["--json"] if as_json else []))
    assert ran.status == 1
    if as_json:
        assert isinstance(ran.document, dict)
        lists = [ran.document.get(name) for name in ("conversations", "receipts", "hits")]
        assert not any(found for found in lists if type(found) is list)


def test_a_filter_that_matches_something_ends_with_0(foldlog):
    with api.open("sqlite:///foldlog.db") as histories:
        for name in "ab":
            histories[name].append(said("marigolds"))
            histories[name].set_attributes(user="u7")
    assert foldlog("search marigolds").status == 0
    assert (
        foldlog(
            "store redact a --where user=u7 --reason 'asked to' --yes --dry-run",
        ).status
        == 2
    )
    given = ("--matching", "marigolds", "--reason", "asked to", "--yes")
    assert foldlog("store redact", *given).status == 0
    assert foldlog("store redact", *given).status == 1, "nothing is left to redact"
    assert foldlog("store erase --where user=u7 --reason 'asked to' --yes").status == 0
