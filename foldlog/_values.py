"""Read and replace what is in a value of JSON, at any depth: what a model or a source wrote may be nested as deep as a
parser can read. So nothing here calls itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import repeat
from math import isfinite
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

_ARRAYS: Final = (list, tuple)
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def values_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value and all values in it, in their order, each before those in it and after the name of its part. The
    items of a list have the name of the list. A value in no part has an empty name. The parts of an object of msgspec
    are its fields. Cost: a step for each value.
    """
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        name, value = each = left.pop()
        yield each
        if isinstance(value, dict):
            left += reversed(value.items())
        elif isinstance(value, _ARRAYS):
            left += zip(repeat(name), reversed(value))
        elif type(value) not in _PLAIN and isinstance(value, Struct):  # which takes long to ask
            left += reversed(asdict(value).items())


def texts_in(value: Any, length_min: int = 0) -> list[str]:
    """Return the texts in a value that have this length, in their order, without the names of parts."""
    return [each for _, each in values_in(value) if isinstance(each, str) and len(each) >= length_min]


def named_in(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts and the whole numbers in a value, each after the name of its part. The type of a part says
    nothing.
    """
    for name, each in values_in(value):
        if type(each) in (str, int) and not (name == "type" and str(each).isidentifier()):
            yield name, str(each)


def parsed(value: Any) -> Any:
    """Return a text of JSON as its value: a model mostly wrote JSON. Any other text and value is returned unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def replaced(value: Any, instead: Mapping[str, Any], *, names: bool = False, levels: int | None = None) -> Any:
    """Return a copy of a value with other values for the texts that ``instead`` has; with ``names`` also for such names
    of parts. With ``levels``, raise ``ValueError`` for a value that is nested deeper, and for a
    number that strict JSON lacks. Cost: a step for each value.
    """
    level: list[Any] = [whole := [value]]
    tuples: list[tuple[Any, Any]] = []
    copy: Any
    while level:
        inner: list[Any] = []
        for held in level:
            for key, each in held.items() if type(held) is dict else enumerate(held):
                kind = type(each)
                if kind is str:
                    if each in instead:
                        held[key] = instead[each]
                elif kind is dict:
                    held[key] = copy = {instead.get(n, n): part for n, part in each.items()} if names else each.copy()
                    inner.append(copy)
                elif kind is list or kind is tuple:
                    held[key] = copy = [*each]
                    inner.append(copy)
                    if kind is tuple:
                        tuples.append((held, key))
                elif kind is float and levels is not None and not isfinite(each):
                    raise ValueError(f"{each} is not JSON")
        if levels is not None and inner:
            if not levels:
                raise ValueError("it is nested deeper")
            levels -= 1
        level = inner
    for held, key in reversed(tuples):
        held[key] = tuple(held[key])
    return whole[0]
