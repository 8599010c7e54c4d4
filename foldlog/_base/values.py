"""Read and replace values at any depth inside a JSON value. Models and sources may nest values very
deeply, so no function here is recursive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

_ARRAYS: Final = (list, tuple)
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def values_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value and all values inside it, each with its name. A value comes before the values
    inside it.

    The name of a value is its key in the innermost map that contains it. The outermost value has an
    empty name. The fields of a msgspec object count as keys. Cost: a step for every value.
    """
    remaining: list[tuple[str, Any]] = [("", value)]
    while remaining:
        pair = remaining.pop()
        yield pair
        name, value = pair
        if isinstance(value, dict):
            remaining += reversed(value.items())
        elif isinstance(value, _ARRAYS):
            remaining += zip(repeat(name), reversed(value))
        elif type(value) not in _PLAIN and isinstance(value, Struct):
            # The test for a Struct is slow, so plain values are tested before.
            remaining += reversed(asdict(value).items())


def texts_in(value: Any, length_min: int = 0) -> list[str]:
    """Return the texts in a value that have at least ``length_min`` characters, in order. Keys of
    maps are left out.
    """
    return [
        text for _, text in values_in(value) if isinstance(text, str) and len(text) >= length_min
    ]


def named_in(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts and whole numbers in a value, each with its name, like ``values_in``. A word
    under the key ``type``, such as ``text``, is left out, because it is not content.
    """
    for name, item in values_in(value):
        if type(item) in (str, int) and not (name == "type" and str(item).isidentifier()):
            yield name, str(item)


def parse(value: Any) -> Any:
    """Return the value of a JSON text. If ``value`` is not a JSON text, return it unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def replace_texts(value: Any, replacements: Mapping[str, Any], *, names: bool = False) -> Any:
    """Return a copy of a value in which texts are replaced. ``replacements`` maps a text to its new
    text. With ``names``, keys of maps are replaced too. Cost: a step for every value.
    """
    # The box lets the outermost value be replaced like any other value. Level by level, a container
    # is copied, and its parts are replaced in the copy.
    box: list[Any] = [value]
    level: list[Any] = [box]
    tuple_places: list[tuple[Any, Any]] = []
    while level:
        next_level: list[Any] = []
        for holder in level:
            for key, part in holder.items() if type(holder) is dict else enumerate(holder):
                kind = type(part)
                if kind is str:
                    holder[key] = replacements.get(part, part)
                elif kind in (dict, list, tuple):
                    holder[key] = _copy_with_names(part, replacements if names else {})
                    next_level.append(holder[key])
                if kind is tuple:
                    tuple_places.append((holder, key))
        level = next_level
    # The copies of tuples are lists until now, so that their parts could be replaced. Inner tuples
    # were found last, and become tuples first.
    for holder, key in reversed(tuple_places):
        holder[key] = tuple(holder[key])
    return box[0]


def _copy_with_names(value: Any, names: Mapping[str, Any]) -> Any:
    if type(value) is dict:
        return {names.get(name, name): part for name, part in value.items()}
    return [*value]


def count_equal_beginning(values: Sequence[object], other_values: Sequence[object]) -> int:
    """Return how many values at the beginning of two sequences are equal."""
    equal = 0
    for value, other_value in zip(values, other_values, strict=False):
        if value != other_value:
            break
        equal += 1
    return equal
