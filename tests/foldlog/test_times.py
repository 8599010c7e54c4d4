"""Every place that shows the time of an event shows the same time. The session ``times`` shows the
commands.
"""

import json
from datetime import UTC, datetime
from importlib.metadata import EntryPoint

import pytest

from foldlog import open as foldlog_open
from foldlog.eventstore import CondensationAction, Origin
from foldlog.formats import registry
from foldlog.formats.record import read_time, time_text
from tests.said import said
from tests.web_client import asking_store

SEPARATORS = ",", ":"
"""``append_records`` stores records with these separators. An import knows a record by its bytes."""
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
    with foldlog_open(tmp_path / "foldlog.db", clock=lambda: now[0]) as histories:
        history = histories["c"]
        for place, now[0] in enumerate(minutes):
            if place == 1:
                history.append(CondensationAction(forgotten_event_ids=[0]))
            else:
                history.append_records([RECORDS[request.param]], format=request.param)


def test_recorded_time_stands_for_missing_time(recorded_live, foldlog):
    times = ["2026-03-01T12:00:00+00:00", "2026-03-01T12:30:00+00:00", "2026-03-01T13:00:00+00:00"]
    stats = foldlog("stats c --json").document
    assert (stats["first_at"], stats["last_at"], stats["days"]) == (
        times[0],
        times[2],
        {"2026-03-01": 3},
    )
    assert foldlog("list --long --json").rows("last_event_at") == [times[2]]
    for options, ids in (
        ("--since 2026-03-01T12:45", [2]),
        ("--until 2026-03-01T12:15", [0]),
        ("--since 2026-03-01", [0, 1, 2]),
    ):
        assert foldlog(f"log c {options} --json").rows("id", of="events") == ids
        ran = foldlog(f"search gauge {options} --json")
        assert sorted(ran.rows("event", of="hits")) == [
            event_id for event_id in ids if event_id != 1
        ]
        assert ran.rows("timestamp", of="hits") == ran.rows("recorded_at", of="hits")
    assert [line[8:27] for line in foldlog("log c").out.splitlines()] == [
        at[:19].replace("T", " ") for at in times
    ]
    assert "2026-03-01 13:00:00" in foldlog("show c 2").out.splitlines()[0]


@pytest.mark.parametrize("format", RECORDS)
def test_imports_and_recordings_continue_each_other(format, tmp_path):
    record = RECORDS[format] | ({"agent": "main"} if format == "swe-agent" else {})
    line = f"{json.dumps(record, separators=SEPARATORS)}\n"
    with foldlog_open(tmp_path / "foldlog.db", clock=lambda: NOON) as histories:
        history = histories["c"]

        def import_lines(count):
            (tmp_path / "c.jsonl").write_text(line * count)
            histories.import_(tmp_path / "c.jsonl", format=format, conversation="c")

        history.append_records([record], format=format)
        import_lines(2)
        import_lines(2)
        history.append_records([record], format=format)
        import_lines(4)
        import_lines(4)
        with asking_store(histories.store) as client:
            times = client.json("history?id=c")["events"]["time"]
    assert times == [NOON.timestamp() * 1_000, None, 0, None]  # each after the one before it


def test_attributes_give_a_page_no_time(histories):
    histories["c"].append(said("the gauge", timestamp=NOON))
    histories["c"].set_attributes(incomplete="1 record")
    with asking_store(histories.store) as client:
        times = client.json("history?id=c")["events"]["time"]
    assert times == [int(NOON.timestamp() * 1_000), None]


def test_broken_format_package_stops_no_reading(foldlog, tmp_path, monkeypatch):
    loaded = []

    def broken(entry_point):
        loaded.append(entry_point.name)
        raise SyntaxError("broken")

    monkeypatch.setattr(registry, "_refused", None)  # no package was loaded yet
    entry_points = [EntryPoint("other", "other:FORMAT", registry.GROUP)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entry_points)
    monkeypatch.setattr(EntryPoint, "load", broken)
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(said("the gauge", origin=Origin(format="of-a-package")))
    assert foldlog("log c").out.count("the gauge") == 1
    assert len(foldlog("search gauge --json").document["hits"]) == 1
    assert loaded == ["other"]


def test_a_time_is_written_as_it_was_read():
    for year in ("0001", "1969", "2026", "9999"):
        for fraction in ("000", "001", "120", "999", "000001", "120500", "859208"):
            text = f"{year}-03-01T12:00:59.{fraction}Z"
            timestamp, _ = read_time(text)
            assert time_text(timestamp, None) == text
            at_noon_elsewhere, _ = read_time(text.replace("T12", "T14").replace("Z", "+02:00"))
            assert time_text(at_noon_elsewhere, None) == text


FAR = "9999-12-31T23:59:59-14:00"


def test_impossible_time_is_no_time(foldlog):
    with foldlog_open("foldlog.db") as histories:
        origin = Origin(format="openai-chat", time=FAR)
        histories["c"].append(said("the gauge", origin=origin))
        [hit] = histories.search("gauge")
        assert hit.timestamp is None
        assert histories["c"].stats().first_at is None
