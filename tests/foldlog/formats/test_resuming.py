"""A decoder that continues from its state makes the events of a decoder that read every record."""

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foldlog.eventstore import CondensationAction, Event, Retraction
from foldlog.formats import resuming
from foldlog.formats.format import Format
from foldlog.formats.record import NotAnEvent
from foldlog.formats.record_decoding import decoder_of
from foldlog.formats.record_events import FollowingDecoder, events_of
from foldlog.formats.registry import format_named
from foldlog.formats.resuming import DecoderState, NeedsAll
from tests.beside import SAMPLES
from tests.foldlog.records import GOLDEN, read_lines, records_of
from tests.how_many import WHOLE, some

NAMES = ("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "pi", "qwen-code")
REAL_LOGS = [
    pytest.param(name, path, id=path.name)
    for name, folder in (("claude-code", "claude_code"), ("codex", "codex_rollout"))
    for path in sorted((SAMPLES / folder).glob("*.jsonl"))
] or [pytest.param("", Path(), marks=pytest.mark.skip(f"{SAMPLES} has no logs"))]
"""Real logs, which some machines have."""
IDS = {"uuid", "id", "parentUuid", "parentId", "parentID", "messageID", "callID", "call_id"}
IDS |= {"logicalParentUuid", "toolCallId", "tool_use_id", "messageId", "$rewindTo", "leafUuid"}
PARENTS = {"parentUuid", "parentId"}
TIMES = {"timestamp", "startTime", "lastUpdated"}
HEADERS = {"session", "session_meta", "session.start", "summary"}
"""The types of records that stand only at the beginning of a source."""
ROUNDS = 12
WHOLE_EVERY = 4
"""Each fourth round has all records. The other rounds have only records of ordinary turns."""
AFTER = 3
"""A source grows by so many records at once."""


def decoder_for(format: Format) -> FollowingDecoder:
    decoder = decoder_of(format)
    assert isinstance(decoder, FollowingDecoder)
    return decoder


def decoded(decoder: FollowingDecoder, record: Any) -> list[Event] | None:
    try:
        return events_of(decoder, decoder.format, record)
    except NotAnEvent:
        return None


class Growth:
    """The events and states of a decoder that reads all records."""

    def __init__(self, name: str, records: list[Any]) -> None:
        self.format = format_named(name)
        self.records = records
        self.events = list[list[Event] | None]()
        self.first_ids = list[int]()
        self.states = list[bytes]()
        decoder = decoder_for(self.format)
        for record in records:
            state = decoder.state()
            self.states.append(b"" if state is None else msgspec.msgpack.encode(state))
            self.first_ids.append(decoder.next_id)
            self.events.append(decoded(decoder, record))

    def grown_at(self, number: int) -> str:
        """Continue from the state before record ``number``. Return whether the events are equal,
        whether there is no state, or whether the decoder needs all records.
        """
        if not self.states[number]:
            return "no state"
        state = msgspec.msgpack.decode(self.states[number], type=DecoderState)
        decoder = decoder_for(self.format)
        decoder.continue_from(state)
        try:
            for before in range(number - state.window, number):
                decoder.skip_to(self.first_ids[before])
                events = decoded(decoder, self.records[before])
                if len(events or ()) != len(self.events[before] or ()):
                    return "decodes all"
            decoder.end_window()
            decoder.skip_to(self.first_ids[number])
            for after in range(number, min(number + AFTER, len(self.records))):
                assert decoded(decoder, self.records[after]) == self.events[after], (number, after)
        except NeedsAll:
            return "decodes all"
        return "equal"


def renamed(value: Any, round: int, key: str = "") -> Any:
    """Return a value of a record with the ids and times of another round."""
    if type(value) is dict:
        return {name: renamed(held, round, name) for name, held in value.items()}
    if type(value) is list:
        return [renamed(held, round, key) for held in value]
    if key in IDS and type(value) is str and round:
        return f"{value}-{round}"
    if key in TIMES and type(value) is str:
        try:
            time = datetime.fromisoformat(value).astimezone(UTC) + timedelta(days=round)
        except ValueError:
            return value
        return time.isoformat().replace("+00:00", "Z")
    return value


def plain(name: str, records: list[Any]) -> list[Any]:
    """Return the records that change no earlier record, without the headers."""
    events = Growth(name, records).events
    return [
        record
        for record, made in zip(records, events, strict=True)
        if type(record) is dict
        and record.get("type") not in HEADERS
        and "projectHash" not in record
        and not any(isinstance(event, CondensationAction | Retraction) for event in made or ())
    ]


def rounds(name: str, records: list[Any]) -> Iterator[Any]:
    """Yield the records ``ROUNDS`` times. Each round continues from the last record of the round
    before it.
    """
    turns = plain(name, records)
    last = ""
    for round in range(ROUNDS):
        is_whole = round % WHOLE_EVERY == 0
        for record in records if is_whole else turns:
            new = renamed(record, round)
            if type(new) is dict and round:
                for parent in PARENTS & new.keys():
                    new[parent] = new[parent] if is_whole and new[parent] is not None else last
            yield new
            if type(new) is dict:
                last = str(new.get("uuid", new.get("id", last)))


def long_logs(name: str) -> Iterator[list[Any]]:
    yield [*rounds(name, records_of(name))]
    examples = read_lines(GOLDEN / "reads" / f"{name}.jsonl")
    held = [example["records"] for example in examples if type(example.get("records")) is list]
    for records in some(held, 4):
        yield [*rounds(name, records)]


def damaged(records: list[Any], chance: random.Random) -> list[Any]:
    """Return records of which some are repeated, exchanged, missing, or have earlier values."""
    records = copy.deepcopy(records)
    for _ in range(chance.randrange(12)):
        if len(records) < 4:
            break
        place = chance.randrange(len(records))
        earlier = max(0, place - chance.choice((1, 2, 3, 5, 20, 60, 150)))
        record = records[place]
        other = records[earlier]
        if type(record) is not dict or type(other) is not dict or not (record and other):
            continue
        damage = chance.randrange(8)
        if damage == 0:
            records.insert(place, copy.deepcopy(other))
        elif damage == 1:
            records[place], records[earlier] = other, record
        elif damage == 2:
            del records[place]
        elif damage == 3:
            again = records[earlier : earlier + chance.randrange(2, 6)]
            records[place:place] = copy.deepcopy(again)
        elif damage == 4:
            record.pop(chance.choice([*record]), None)
        else:
            key = chance.choice([*other])
            record[key] = copy.deepcopy(other[key])
    return records


@pytest.mark.parametrize("name, path", REAL_LOGS)
def test_real_logs_grow_at_each_record(name, path):
    lines = path.read_bytes().splitlines()
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    growth = Growth(name, records)
    for number in some(range(1, len(records)), 60):
        growth.grown_at(number)


@pytest.mark.parametrize("window", [3, 16])
@pytest.mark.parametrize("name", NAMES)
def test_logs_grow_at_each_record(name, window, monkeypatch):
    monkeypatch.setattr(resuming, "WINDOW_MAX", window)
    outcomes = Counter[str]()
    for records in long_logs(name):
        growth = Growth(name, records)
        outcomes.update(map(growth.grown_at, some(range(1, len(records)), 25)))
    assert outcomes["equal"] > outcomes["decodes all"] / 8


@pytest.mark.parametrize("name", NAMES)
def test_damaged_logs_grow(name, monkeypatch):
    """``scripts/test --all`` damages 3,000 places of each format."""
    chance = random.Random(name)
    logs = [*long_logs(name)]
    outcomes = Counter[str]()
    while outcomes.total() < (3_000 if WHOLE in os.environ else 150):
        monkeypatch.setattr(resuming, "WINDOW_MAX", chance.choice((2, 7, 16)))
        records = damaged(chance.choice(logs), chance)
        if len(records) > 1:
            growth = Growth(name, records)
            places = chance.sample(range(1, len(records)), min(40, len(records) - 1))
            outcomes.update(map(growth.grown_at, places))
    assert outcomes["equal"] > outcomes.total() / 20
