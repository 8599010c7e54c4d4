"""The limits of JSON texts hold for every setting of Python."""

import json
import os
import subprocess
import sys

import pytest

from foldlog.formats.json_text import bytes_of

CHECK = """
import sys
from pathlib import Path
from foldlog.formats.files.source_reading import LineReading
from foldlog.formats.json_text import UnreadableJson, check_limits, parse
text = b'{"number": %s}' % (b"7" * int(sys.argv[1]))
for function in (check_limits, parse):
    try:
        function(text)
        print("read")
    except UnreadableJson as error:
        print(error)
file = Path(sys.argv[2])
file.write_bytes(text + b"\\n")
reading = LineReading(file)
list(reading.blocks(lambda record, record_hash: None))
print(*[finding.problem for finding in reading.findings] or ["read"])
"""


@pytest.mark.parametrize(
    "limit, digits, outcome",
    [
        ("640", 640, "read"),
        ("640", 700, "holds a number with more than 640 digits, the limit for one number"),
        ("4300", 4_301, "holds a number with more than 4,300 digits, the limit for one number"),
        ("0", 5_000, "read"),
    ],
)
def test_a_check_refuses_the_numbers_that_python_does_not_read(limit, digits, outcome, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", CHECK, str(digits), str(tmp_path / "log.jsonl")],
        env={**os.environ, "PYTHONINTMAXSTRDIGITS": limit},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines() == [outcome] * 3


@pytest.mark.parametrize("other", ["\ud800", 10**30, "a NaN"])
def test_numbers_that_are_not_finite_are_null_beside_other_values(other):
    text = bytes_of({"numbers": [float("nan"), float("-inf"), 1.5], "other": other})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "numbers": [None, None, 1.5],
        "other": other,
    }
