"""How a request is compared with the recorded one."""

import pytest

from foldlog._testing.differences import is_same


@pytest.mark.parametrize(
    "recorded, asked",
    [
        ("You are [redacted].", 'You are "Bob"\n\\.'),
        ("[redacted]", 'a "b" \u00e9'),
        ({"b": "[secret: token]", "a": [1, None]}, {"a": [1, None], "b": 'x"y'}),
        (("x", "[redacted] and [redacted]"), ["x", "a and b and c"]),
    ],
)
def test_any_text_stands_for_a_placeholder(recorded, asked):
    assert is_same(recorded, asked)


@pytest.mark.parametrize(
    "recorded, asked",
    [
        ("You are [redacted].", "You are ."),
        ("You are [redacted].", 'You were "Bob".'),
        ({"a": "[redacted]", "b": 1}, {"a": "x", "b": 2}),
        ({"a": "[redacted]"}, {"a": "x", "b": "y"}),
        (["[redacted]"], ["x", "y"]),
        ("[redacted]", ["x"]),
        ("1", 1),
    ],
)
def test_other_values_are_not_the_same(recorded, asked):
    assert not is_same(recorded, asked)
