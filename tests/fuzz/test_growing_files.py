"""The short form of ``python -m tests.fuzz.growing_files``: the records of the corpus."""

import pytest

from tests.foldlog.records import records_of
from tests.fuzz.growing_files import FORMS, grow

_RECORDS_MAX = 8


@pytest.mark.parametrize(
    "name, form", [(name, form) for name, forms in FORMS.items() for form in forms]
)
def test_file_that_grows_equals_one_import(name, form):
    outcomes = grow(name, form, records_of(name), FORMS[name][form], _RECORDS_MAX)
    assert outcomes["equal"] > 1
    assert outcomes["wrong"] == 0
