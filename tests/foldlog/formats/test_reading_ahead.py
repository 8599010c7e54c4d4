"""Histories that are read ahead by other processes are those that one process reads."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from multiprocessing import active_children
from pathlib import Path

import pytest

from foldlog._formats import reading_ahead
from foldlog._formats.format import Format
from foldlog._formats.reading_ahead import read_ahead
from foldlog._formats.registry import FORMATS, format_named, register
from foldlog._formats.sources import Source
from foldlog.eventstore import InvalidEvent
from foldlog.formats import open_sources

SAMPLE = Path(__file__).parents[3] / "foldlog" / "sample" / "tidewatch.jsonl"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reading_ahead, "_WORTH_BYTES", 0)
    yield
    assert active_children() == []


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the histories that this process reads itself."""
    names: list[str] = []
    really = Source._read

    def noted(source, *more):
        names.append(source.name)
        return really(source, *more)

    monkeypatch.setattr(Source, "_read", noted)
    return names


def test_other_processes_read_the_same_events_and_findings(tmp_path: Path, read_here: list[str]):
    said = [json.dumps({"role": role, "content": "hi"}) for role in ("user", "assistant")]
    (tmp_path / "a.jsonl").write_text("\n".join([*said, "{broken"]))
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"n": "VALUE"}}}
    text = json.dumps([{"role": "assistant", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}])
    for value in ("NaN", "1.0", "18446744073709551615", "18446744073709551616", r'"\ud800"'):
        (tmp_path / f"{len(list(tmp_path.iterdir()))}.json").write_text(text.replace('"VALUE"', value))
    sources = open_sources([SAMPLE, tmp_path])
    expected = [(source.name, repr([*source.events()]), [*source.findings]) for source in sources]
    read_here.clear()
    taken = list(read_ahead(sources, len, 2))
    read = [(source.name, repr([*source.events()]), [*source.findings]) for source in taken]
    assert read == expected
    assert not read_here, "what JSON lacks crosses too"
    (damaged,) = (source for source in taken if source.findings)
    assert repr([*damaged.events()]) == expected[taken.index(damaged)][1], "read again, when asked for again"
    assert read_here == [damaged.name]


def test_one_process_reads_each_history_once_and_makes_the_same_of_its_events(read_here: list[str]):
    (source,) = read_ahead(open_sources([SAMPLE]), len, 1)
    events = [*source.events()]
    assert source.ahead == len(events) > 0
    assert read_here == [source.name]


def test_what_no_other_process_can_read_is_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_here: list[str]
):
    monkeypatch.setattr("foldlog._formats.registry.FORMATS", dict(FORMATS))
    usual = format_named("openai-chat")
    mine = {name: getattr(usual, name) for name in Format.__dataclass_fields__} | {"name": "mine"}
    register(Format(**mine))
    (tmp_path / "a.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    (source,) = read_ahead(open_sources([tmp_path], "mine"), len, 2)
    assert [event.content for event in source.events()] == ["hi"]
    assert len(read_here) == 1


def test_what_no_process_can_encode_is_read_here(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    (source,) = open_sources([tmp_path])
    reading = Future[reading_ahead._Read]()
    reading.set_exception(InvalidEvent("it is too deep"))
    assert [event.content for event in reading_ahead._taken(source, reading).events()] == ["hi"]


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path):
    for number in range(20):
        (tmp_path / f"{number:02}.json").write_text(json.dumps([{"role": "user", "content": f"hi {number}"}]))
    names = []
    for source in read_ahead(open_sources([tmp_path]), len, 2):
        for child in active_children()[:1] if not names else ():
            os.kill(child.pid, signal.SIGKILL)
        names += [event.content for event in source.events()]
    assert names == [f"hi {number}" for number in range(20)]


def test_the_processes_end_where_the_reader_stops(tmp_path: Path):
    for number in range(20):
        (tmp_path / f"{number:02}.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    reading = read_ahead(open_sources([tmp_path]), len, 2)
    assert [source.path.name for source in islice(reading, 1)] == ["00.json"]
    reading.close()
