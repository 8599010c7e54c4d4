"""What is read of records of each format: a row says it in a sentence, and holds the records and
what is made of them.

    python -m tests.foldlog.formats.test_reads

reads the records of all rows anew, after a change that is meant to change events; ``git diff``
shows what has changed. A new row needs its ``format``, its ``name`` and its ``records``.
"""

import json

import pytest

import foldlog as api
from foldlog.eventstore import codec, open_store
from foldlog.formats import decode
from foldlog.formats.imported_calls import calls_of_imported
from foldlog.projections import View
from tests.foldlog.formats.reading import GOLDEN_READS
from tests.foldlog.records import read_lines, write_lines
from tests.how_many import some

FILES = sorted(GOLDEN_READS.glob("*.jsonl"))
ROWS = [row for path in FILES for row in read_lines(path)]


def stored(event):
    """Return what a store keeps of an event. Deflated bytes are left out, because another version
    of the library makes other bytes.
    """
    body = json.loads(codec.encode(event).body)
    return {
        **body,
        "origin": {name: value for name, value in body["origin"].items() if name != "rest"},
    }


def fields_of(call):
    """Return the fields of a call that are not as usual, and its time in words."""
    usual = call._field_defaults
    fields = {
        name: value
        for name, value in call._asdict().items()
        if name not in usual or value != usual[name]
    }
    return {**fields, "at": str(call.at)}


def read(row):
    """Return a row with the events of its records, as they are stored, and the ids of those that a
    View shows; with the findings, and with the calls of models and what these used, if there are
    any.
    """
    findings = []
    events = list(
        decode(row["records"], row["format"], findings=lambda it: findings.append(str(it)))
    )
    result = {name: row[name] for name in ("format", "name", "records")}
    result["events"] = [stored(event) for event in events]
    result["view"] = [event.id for event in View.from_events(events)]
    if findings:
        result["findings"] = findings
    calls = [*map(fields_of, calls_of_imported(events, row["format"]))]
    if calls:
        result["calls"] = calls
    return result


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['format']}: {row['name']}")
def test_records_are_read_as_these_events(row):
    assert read(row) == row


@pytest.mark.parametrize(
    "row", [row for row in ROWS if len(row["records"]) > 1], ids=lambda row: row["name"]
)
def test_records_in_two_parts_have_the_same_view(row):
    records = row["records"]
    format = row["format"]
    with open_store("memory:") as store:
        whole = api.Histories(store)["whole"]
        whole.append_records(records, format=format)
        for cut in some(range(1, len(records)), 2):
            for part in (records[:cut], records[cut:]):  # each by a process of its own
                api.Histories(store)[f"{cut}"].append_records(part, format=format)
            assert (
                api.Histories(store)[f"{cut}"].view().to_messages() == whole.view().to_messages()
            ), cut


if __name__ == "__main__":
    for path in FILES:
        write_lines(path, [*map(read, read_lines(path))])
