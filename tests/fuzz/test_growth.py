"""The short form of ``python -m tests.fuzz.growth``: some places of each format, and the import of an
example log.
"""

import json
import random

import pytest

from foldlog.formats import resuming
from tests.foldlog.formats.test_resuming import NAMES
from tests.foldlog.imports.test_growth import LOGS
from tests.foldlog.records import records_of
from tests.fuzz.growth import damaged_logs, one_log

_PLACES = 40
_RECORDS_MAX = 6


@pytest.mark.parametrize("name", NAMES)
def test_decoder_goes_on_in_damaged_logs(name, monkeypatch):
    monkeypatch.setattr(resuming, "WINDOW_MAX", resuming.WINDOW_MAX)  # the test chooses others
    outcomes = damaged_logs(name, _PLACES, random.Random(name))
    assert outcomes.total() == _PLACES
    assert outcomes["wrong"] == 0


@pytest.mark.parametrize("name", LOGS)
def test_log_that_grows_equals_one_import(name):
    lines = [json.dumps(record).encode() for record in records_of(name)[:_RECORDS_MAX]]
    outcomes = one_log(name, lines, random.Random(name))
    assert outcomes["equal"] > 1
    assert outcomes["wrong"] == 0
