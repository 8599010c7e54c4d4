"""When events happened, in every place that tells it."""

import json
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint

import pytest
from msgspec.structs import replace

import foldlog
from foldlog import open as foldlog_open
from foldlog._figures.overview import Overview
from foldlog._formats import registry
from foldlog._formats.record import read_time, time_text
from foldlog._page.document import PageFold
from foldlog._words.times import happened_at
from foldlog.eventstore import CondensationAction, Message, Origin, open_store

SEPARATORS = ",", ":"
"""Those of the records that are recorded: a record of an import is the same where its bytes are."""
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECORDS = {
    "openai-responses": {"role": "user", "content": "the gauge"},
    "langchain": {"type": "human", "data": {"content": "the gauge", "type": "human"}},
    "swe-agent": {"role": "user", "content": "the gauge"},
}


@pytest.fixture(params=RECORDS)
def recorded_live(request, tmp_path):
    """A history of a format without times, that is recorded for an hour, and condensed half an hour
    after it began.
    """
    minutes = iter([NOON, NOON.replace(minute=30), NOON.replace(hour=13)])
    now = [NOON]
    with foldlog.open(tmp_path / "foldlog.db", clock=lambda: now[0]) as histories:
        history = histories["c"]
        for place, now[0] in enumerate(minutes):
            if place == 1:
                history.append(CondensationAction(forgotten_event_ids=[0]))
            else:
                history.append_records([RECORDS[request.param]], format=request.param)


def test_an_event_of_a_source_without_times_has_that_of_its_recording(recorded_live, foldlog):
    times = ["2026-03-01T12:00:00+00:00", "2026-03-01T12:30:00+00:00", "2026-03-01T13:00:00+00:00"]
    stats = foldlog("stats c --json").document
    assert (stats["first_at"], stats["last_at"], stats["days"]) == (
        times[0],
        times[2],
        {"2026-03-01": 3},
    )
    [row] = foldlog("list --long --json").document["conversations"]
    assert row["last_event_at"] == times[2]
    for options, ids in (
        (["--since", "2026-03-01T12:45"], [2]),
        (["--until", "2026-03-01T12:15"], [0]),
        (["--since", "2026-03-01"], [0, 1, 2]),
    ):
        assert [
            event["id"] for event in foldlog("log c", *options, "--json").document["events"]
        ] == ids
        found = foldlog("search gauge", *options, "--json").document["hits"]
        assert sorted(hit["event"] for hit in found) == [each for each in ids if each != 1]
        assert [hit["timestamp"] for hit in found] == [hit["recorded_at"] for hit in found]
    assert [line[8:27] for line in foldlog("log c").out.splitlines()] == [
        at[:19].replace("T", " ") for at in times
    ]
    assert "2026-03-01 13:00:00" in foldlog("show c 2").out.splitlines()[0]


@pytest.mark.parametrize("format", RECORDS)
def test_the_time_of_an_import_is_no_time_of_an_event(format, foldlog, tmp_path):
    record = RECORDS[format] | ({"agent": "main"} if format == "swe-agent" else {})
    (tmp_path / "c.jsonl").write_text(f"{json.dumps(record)}\n" * 2)
    assert foldlog("import", tmp_path / "c.jsonl", "--format", format).status == 0
    [row] = foldlog("list --long --json").document["conversations"]
    stats = foldlog("stats --json", row["conversation"]).document
    assert row["last_event_at"] is stats["first_at"] is stats["last_at"] is None
    assert foldlog("log --since 2026-03-01 --json", row["conversation"]).document["events"] == []
    [first, _] = foldlog("search gauge --json").document["hits"]
    assert first["timestamp"] is None
    shown = foldlog("show", row["conversation"], 0).out
    assert "without a zone" not in shown
    assert "202" not in shown.splitlines()[0]


@pytest.mark.parametrize("format", RECORDS)
def test_an_import_goes_on_after_a_live_recording_and_a_recording_after_an_import(
    format, foldlog, tmp_path
):
    record = RECORDS[format] | ({"agent": "main"} if format == "swe-agent" else {})
    with foldlog_open(tmp_path / "foldlog.db", clock=lambda: NOON) as histories:
        (history := histories["c"]).append_records([record], format=format)
        for number in (2, 2, 4, 4):
            if number == 4:
                history.append_records([record] * (3 - history.version()), format=format)
            (tmp_path / "c.jsonl").write_text(
                f"{json.dumps(record, separators=SEPARATORS)}\n" * number
            )
            histories.import_(tmp_path / "c.jsonl", format=format, conversation="c")
        times = [happened_at(event, recorded_at) for recorded_at, event in histories.store.log("c")]
    assert times == [NOON, None, NOON, None]


def test_a_time_without_a_zone_has_none_anywhere_and_is_compared_as_if_in_utc(foldlog, tmp_path):
    """Half an hour each: 11:30 in UTC, noon without a zone, and 12:30 in UTC."""
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        said = Message(source="user", content="the gauge")
        without = replace(said, origin=Origin(format="openhands-v1", time="2026-03-01T12:00:00"))
        early, late = (
            replace(said, timestamp=NOON + each * timedelta(minutes=30)) for each in (-1, 1)
        )
        histories["without"].append([without, without])
        histories["late"].append([without, late])
        histories["early"].append([early, without])

    def told(*names):
        stats = foldlog("stats", *names, "--json").document
        return stats["first_at"], stats["last_at"]

    noon, half_past_eleven, half_past_twelve = (
        "2026-03-01T12:00:00",
        early.timestamp,
        late.timestamp,
    )
    assert told("without") == (noon, noon)
    assert told("late") == (noon, half_past_twelve.isoformat())
    assert told("early") == (half_past_eleven.isoformat(), noon)
    assert told("without", "early") == (half_past_eleven.isoformat(), noon)
    assert told() == (half_past_eleven.isoformat(), half_past_twelve.isoformat())
    assert "2026-03-01 12:00:00 to 2026-03-01 12:00:00" in foldlog("stats without").out
    hits = foldlog("search gauge --json").document["hits"]
    found = {(hit["conversation"], hit["event"]): hit["timestamp"] for hit in hits}
    assert found == {
        **dict.fromkeys([("without", 0), ("without", 1), ("late", 0), ("early", 1)], noon),
        ("late", 1): half_past_twelve.isoformat(),
        ("early", 0): half_past_eleven.isoformat(),
    }
    assert foldlog("search gauge --in without").out.count("2026-03-01 12:00:00") == 2
    rows = foldlog("list --sort activity --json").document["conversations"]
    assert [(row["conversation"], row["last_event_at"]) for row in rows][-1] == (
        "late",
        half_past_twelve.isoformat(),
    )
    assert {row["last_event_at"] for row in rows[:-1]} == {noon}


def test_what_was_done_to_a_history_is_no_activity(foldlog, tmp_path):
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        for name, minute in (("before", 0), ("after", 1)):
            at = NOON.replace(minute=minute)
            said = [
                Message(source=who, content="x" * 99, timestamp=at)
                for _ in range(100)
                for who in ("user", "agent")
            ]
            histories[name].append(said)

    def shown():
        rows = foldlog("list --sort activity --reverse --json").document["conversations"]
        times = {row["conversation"]: row["last_event_at"] for row in rows}
        return times, foldlog("stats before --json").document["last_at"]

    as_it_was = shown()
    assert [*as_it_was[0]] == ["after", "before"]
    assert foldlog("condense before").status == 0
    assert foldlog("retract before --to 199 --reason wrong").status == 0
    assert shown() == as_it_was


def test_what_keeps_attributes_is_no_time_of_a_history(foldlog, tmp_path):
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(Message(source="user", content="the gauge", timestamp=NOON))
        histories["c"].set_attributes(incomplete="1 record")
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        (fold := PageFold(store, "c")).take(store.log("c"))
    assert fold.document(Overview()).events.time == [int(NOON.timestamp() * 1_000), None]
    [row] = foldlog("list --long --json").document["conversations"]
    stats = foldlog("stats c --json").document
    assert row["last_event_at"] == stats["last_at"] == NOON.isoformat()


def test_a_package_with_a_broken_format_stops_no_reading(foldlog, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise SyntaxError("broken")

    monkeypatch.setattr(registry, "_refused", None)
    found = [EntryPoint("other", "other:FORMAT", registry.GROUP)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    monkeypatch.setattr(EntryPoint, "load", broken)
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(
            Message(source="user", content="the gauge", origin=Origin(format="of-a-package"))
        )
    assert foldlog("log c").out.count("the gauge") == 1
    assert len(foldlog("search gauge --json").document["hits"]) == 1


def test_a_time_is_written_as_it_was_read():
    for year in ("0001", "1969", "2026", "9999"):
        for fraction in ("000", "001", "120", "999", "000001", "120500", "859208"):
            text = f"{year}-03-01T12:00:59.{fraction}Z"
            timestamp, _ = read_time(text)
            assert time_text(timestamp, None) == text
            at_noon_elsewhere, _ = read_time(text.replace("T12", "T14").replace("Z", "+02:00"))
            assert time_text(at_noon_elsewhere, None) == text


FAR = "9999-12-31T23:59:59-14:00"


def test_an_event_before_1970_is_found_and_stops_no_other_one(foldlog, tmp_path):
    chat = [
        {"role": "user", "content": f"zebrafinch {n}", "timestamp": time}
        for n, time in enumerate(("0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z"))
    ]
    (tmp_path / "chat.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in chat))
    foldlog("import --conversation c --format openai-chat", tmp_path / "chat.jsonl")
    with foldlog_open("foldlog.db") as histories:
        histories["other"].append(Message(source="user", content="zebrafinch of today"))
        hits = histories.search("zebrafinch")
        assert {hit.timestamp.year for hit in hits} == {1, 1969, datetime.now(UTC).year}
        before = datetime(1969, 12, 31, tzinfo=UTC)
        assert [hit.timestamp.year for hit in histories.search("zebrafinch", until=before)] == [1]
        histories["other"].redact(0, reason="asked for")
        assert len(histories.search("zebrafinch")) == 2
    assert foldlog("search zebrafinch --until 1969-12-31 --json").document["hits"][0]["event"] == 0


def test_a_record_with_a_time_that_cannot_be_is_imported_without_a_time_and_comes_out_as_it_was(
    foldlog, tmp_path
):
    chat = [
        {"role": "user", "content": "the gauge", "timestamp": time}
        for time in (FAR, NOON.isoformat())
    ]
    (tmp_path / "chat.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in chat))
    foldlog("import --conversation c --format openai-chat", tmp_path / "chat.jsonl")
    with foldlog_open("foldlog.db") as histories:
        assert [event.timestamp for event in histories["c"].events()] == [None, NOON]
        assert list(histories["c"].export("openai-chat")) == chat
        assert len(histories.search("gauge")) == 2
        assert histories["c"].stats().first_at == NOON


def test_a_time_without_a_zone_that_cannot_be_is_no_time(foldlog):
    with foldlog_open("foldlog.db") as histories:
        origin = Origin(format="openai-chat", time=FAR)
        histories["c"].append(Message(source="user", content="the gauge", origin=origin))
        [hit] = histories.search("gauge")
        assert hit.timestamp is None
        assert histories["c"].stats().first_at is None
