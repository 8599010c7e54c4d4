"""Real histories, where they lie beside the project: each comes back as it was, and takes little more than it took."""

from __future__ import annotations

import json

import pytest

from foldlog.eventstore import codec
from foldlog.formats import encode, open_sources
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
