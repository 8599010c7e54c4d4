"""Real histories, where they lie beside the project: each comes back as it was, and takes little more than it took."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from foldlog.eventstore import Store, codec
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.formats import decode, encode, open_sources
from foldlog.projections import View, Views, well_formed
from tests.beside import FOLDERS, SAMPLES, needs_samples
from tests.how_many import some

pytestmark = needs_samples


def compact(record):
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def records_in(value):
    """The records in a parsed file of the samples, history by history."""
    for key in ("events", "history", "trajectory", "messages", "traj"):
        if isinstance(value, dict) and isinstance(value.get(key), list):
            response = value.get("response", {"choices": []})
            return [[*value[key], *(choice["message"] for choice in response["choices"])]]
    if isinstance(value, list) and value and isinstance(value[0], dict) and "traj" in value[0]:
        return [history["traj"] for history in value]
    return [value]


def parsed(path):
    """The histories of one sample, read in the plainest way there is."""
    if path.is_dir():
        files = [file for file in path.rglob("*.json") if file.name not in ("base_state.json", "metadata.json")]
        ordered = sorted(files, key=lambda file: int(file.stem.removeprefix("event-").split("-")[0]))
        return [[json.loads(file.read_text()) for file in ordered]]
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [lines] if "history" not in lines[0] else [line["history"] for line in lines]
    return records_in(json.loads(path.read_text()))


@pytest.mark.parametrize("format", FOLDERS)
def test_every_sample_comes_back_from_the_store_as_it_was(format, record_testsuite_property):
    samples = records = events = source_bytes = stored_bytes = 0
    for sample in some(sorted((SAMPLES / FOLDERS[format]).iterdir()), 4):
        expected = parsed(sample)
        sources = open_sources([sample])
        for source, history in zip(sources, expected, strict=True):
            assert source.format == format
            encoded = [codec.encode(event) for event in source.events()]
            assert [each for each in source.findings if "forgets an id of no record" not in each.problem] == []
            kept = (codec.decode(one.kind, one.schema, one.body, place) for place, one in enumerate(encoded))
            assert list(map(compact, encode(kept, format))) == list(map(compact, history)), "keys in their order"
            events += len(encoded)
            records += len(history)
            source_bytes += sum(map(len, map(compact, history)))
            stored_bytes += sum(len(one.body) for one in encoded)
        assert sources.findings == []
        samples += 1
    ratio = stored_bytes / source_bytes
    told = f"{samples} samples, {records:,} records, {events:,} events, {ratio:.3f} of the compact source"
    record_testsuite_property(f"formats_{format}", told)
    print(f"{format}: {told}")  # noqa: T201 - the count is part of the proof
    assert samples > 0
    assert ratio <= 1.15


@pytest.mark.parametrize("format", FOLDERS)
def test_the_view_of_every_sample_is_a_chat_in_which_each_call_is_answered_once(format):
    shown = dropped = 0
    for source in some(open_sources([SAMPLES / FOLDERS[format]]), 4):
        view = View.from_events(source.events())
        shown += len(view)
        dropped += len(view) - len(well_formed(view))
        open_calls = set()
        for message in view.to_messages():
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert open_calls == set()
                open_calls = {call["id"] for call in message.get("tool_calls", ())}
                assert len(open_calls) == len(message.get("tool_calls", ()))
        assert open_calls == set()
    print(f"{format}: {dropped:,} of {shown:,} events shown are not fit for a model")  # noqa: T201 - to be looked at
    assert shown > 0
    assert dropped == 0 or format not in ("codex", "swe-agent")


@pytest.mark.parametrize("format", FOLDERS)
def test_a_sample_goes_on_growing_after_a_redaction(format):
    """Everything but the receipt's place is as if the whole sample had been imported, and the event redacted then."""
    compared = 0
    for source in some(open_sources([SAMPLES / FOLDERS[format]]), 4):
        whole = list(source.events())
        records = list(encode(whole, format))
        half = list(decode(records[: len(records) // 2], format))
        ids = Counter(str(event.origin.id) for event in whole)
        texts = [
            event.id
            for event in half
            if getattr(event, "content", "")
            and event.shown
            and (event.origin.id is None or ids[str(event.origin.id)] == 1)
        ]
        if not texts:
            continue
        redacted = texts[len(texts) // 2]
        grown, reference = Store(MemoryRecorder()), Store(MemoryRecorder())
        grown.ingest("c", half)
        reference.ingest("c", whole)
        for store in (grown, reference):
            redact(store, "c", redacted, reason="asked to", by="me")
        assert grown.ingest("c", whole) == (len(whole) - len(half), len(whole) + 1), source.path
        assert grown.ingest("c", whole) == (0, len(whole) + 1)
        assert encoded(grown, format) == encoded(reference, format), source.path
        mine, theirs = (gist(Views(store).current("c")) for store in (grown, reference))
        assert mine == theirs
        assert problems(grown) == []
        compared += 1
    assert compared > 0


def encoded(store, format):
    return [json.dumps(record) for record in encode(store.events("c"), format)]


def gist(view):
    return [(type(event), getattr(event, "content", None), getattr(event, "call_id", None)) for event in view]


def problems(store):
    return [finding for each in verify(store) for finding in each.findings]
