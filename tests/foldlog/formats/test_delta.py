"""A record is its prediction and the difference, exactly."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.formats.delta import apply, delta

scalars = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, -0.0, 1.0, math.inf, "", "a", "\ud800"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc="), inner, max_size=3),
    max_leaves=12,
)


def text(value):
    """1, 1.0 and true are three things, as they are in JSON."""
    return json.dumps(value, sort_keys=True)


@given(values, values)
def test_what_is_predicted_and_the_difference_give_the_record(predicted, record):
    before = text([predicted, record])
    assert text(apply(predicted, json.loads(text(delta(predicted, record))))) == text(record)
    assert text([predicted, record]) == before


@given(values)
def test_there_is_no_difference_to_an_equal_value(value):
    assert delta(value, value) is None
    assert delta(json.loads(text(value)), value) is None


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), (None, False), ("", None), ([], {})])
def test_what_python_takes_for_equal_may_differ(pair):
    predicted, record = pair
    assert delta({"a": predicted}, {"a": record}) == {"set": {"a": record}}


def test_null_is_not_absence():
    assert delta({"a": 1}, {}) == {"del": ["a"]}
    assert delta({}, {"a": None}) == {"set": {"a": None}}


def test_only_what_differs_is_held():
    predicted = {"same": [1, 2], "blocks": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    record = {"same": [1, 2], "blocks": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cached": True}]}
    assert delta(predicted, record) == {"in": {"blocks": [None, {"set": {"cached": True}}]}}


def nested(levels, innermost):
    for _ in range(levels):
        innermost = {"a": [innermost]}
    return innermost


@pytest.mark.parametrize("innermost", [1, True, math.inf, None, "\ud800"])
def test_however_deep_a_record_a_difference_is_not_much_deeper(innermost):
    predicted, record = nested(200, 1), nested(200, innermost)
    difference = delta(predicted, record)
    assert text(apply(predicted, difference)) == text(record)
    assert text(difference).count("{") <= text(record).count("{") + 8
    assert (difference is None) is (innermost is not True and innermost == 1)
