"""Ids of a source come back as they were, and take few bytes."""

import sys
import uuid

from hypothesis import given
from hypothesis import strategies as st

from foldlog._formats.source_ids import SourceIds

ids = (
    st.uuids().map(str)
    | st.uuids().map(lambda made: str(made).upper())
    | st.integers()
    | st.text(max_size=40)
    | st.from_regex(r"[0-9a-f-]{36}", fullmatch=True)
    | st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
)


@given(st.lists(ids, max_size=20))
def test_each_id_comes_back_with_its_type(given_ids):
    kept = SourceIds()
    for number, source_id in enumerate(given_ids, 7):
        kept.add(number, source_id)
    assert kept[6] is None
    back = [kept[number] for number in range(7, 7 + len(given_ids))]
    assert back == given_ids
    assert list(map(type, back)) == list(map(type, given_ids))


def test_a_uuid_takes_seventeen_bytes():
    kept = SourceIds()
    for number in range(10_000):
        kept.add(number, str(uuid.uuid4()))
    assert kept._others == {}
    assert sys.getsizeof(kept._slots) < 20 * 10_000
