"""Words on a terminal, and documents for programs."""

import contextlib
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldlog.cli.terminal import emit_list, json_text, printable

STEERING = [
    *map(chr, range(0x00, 0x09)),
    *map(chr, range(0x0B, 0x20)),
    *map(chr, range(0x7F, 0xA0)),
    "\u200e",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ud800",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)


@given(st.text(st.characters()))
def test_no_text_steers_a_terminal(text):
    assert not set(printable(text)) & set(STEERING)
    assert not set(printable(text, one_line=True)) & {*STEERING, "\n", "\t"}


def test_other_text_stays_as_it_is():
    text = "Grüße, 世界 🌍\n\tand so on"
    assert printable(text) == text
    assert printable(text, one_line=True) == "Grüße, 世界 🌍\\n\\tand so on"


@given(values)
@example([float("inf"), {"-": float("-inf")}])
def test_json_says_the_value_and_steers_no_terminal(value):
    text = json_text(value)
    assert json.loads(text, parse_constant=pytest.fail) == value
    assert not set(text) & set(STEERING)


def test_a_text_that_says_infinity_is_left_alone():
    assert json.loads(json_text(["Infinity", '-Infinity, "Infinity"', float("-inf")])) == [
        "Infinity",
        '-Infinity, "Infinity"',
        float("-inf"),
    ]


@given(st.lists(values, max_size=3), st.dictionaries(st.text(), values, max_size=2))
def test_a_long_list_is_one_document(items, head):
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        emit_list({f"h{key}": value for key, value in head.items()}, "items", iter(items), lambda: {"end": 1})
    expected = {**{f"h{key}": value for key, value in head.items()}, "items": items, "end": 1}
    assert json.loads(written.getvalue()) == expected
