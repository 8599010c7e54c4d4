"""The code that all adapters share."""

import pytest

from foldlog.adapters._shared import to_plain, unmark_bytes


def test_marked_bytes_become_base64_text():
    fields = to_plain({"data": b"\x00\xff"})
    unmark_bytes(fields, "data")
    assert fields == {"data": "AP8="}


@pytest.mark.parametrize(
    "fields",
    [None, "data", {}, {"data": "AP8="}, {"data": {"rows": 1}}, {"data": {"$tuple": [1]}}],
)
def test_a_value_without_marked_bytes_is_unchanged(fields):
    before = repr(fields)
    unmark_bytes(fields, "data")
    assert repr(fields) == before
