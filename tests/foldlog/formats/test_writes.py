"""What is written of events: a case has the events, and for each format the records, a line each,
and the notes on what the format has no place for.

    python -m tests.foldlog.formats.test_writes

writes the records anew, after a change that is meant to change them.
"""

import json

import pytest

from foldlog.formats import decode, encode
from foldlog.projections import View
from tests.foldlog.formats.writing import WRITTEN, written
from tests.golden.cases import cases_in, write_anew

CASES_OF = {path.stem: cases for path, cases in cases_in("writes").items()}
CASES = [
    pytest.param(case, format, id=f"{case.rule}: {format}")
    for cases in CASES_OF.values()
    for case in cases
    for format in case.outputs
]


def records_in(case, format):
    notes = []
    if format in WRITTEN:
        records = list(encode(case.events(), format, notes=notes.append))
    else:
        records = written(case.events(), format)
    return "\n".join([*map(json.dumps, records), *notes])


@pytest.mark.parametrize("case, format", CASES)
def test_events_are_written_as_these_records(case, format):
    assert records_in(case, format) == case.outputs[format]


@pytest.mark.parametrize("case", CASES_OF["condensations"], ids=lambda case: case.rule)
def test_a_condensation_that_was_written_is_read_again(case):
    for format in case.outputs:
        again = View.from_events(decode(encode(case.events(), format), format))
        assert again.to_messages() == View.from_events(case.events()).to_messages()


if __name__ == "__main__":
    write_anew("writes", records_in)
