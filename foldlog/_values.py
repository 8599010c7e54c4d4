"""Read and replace what is in a value of JSON, at any depth: what a model or a source wrote may be
nested as deep as a parser can read. So nothing here calls itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

_ARRAYS: Final = (list, tuple)
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def values_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value and all values in it, in their order, each before those in it and after the
    name of its part. The items of a list have the name of the list. A value in no part has an empty
    name. The parts of an object of msgspec are its fields. Cost: a step for each value.
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
    """Return the texts in a value that have this length, in their order, without the names of
    parts.
    """
    return [
        each for _, each in values_in(value) if isinstance(each, str) and len(each) >= length_min
    ]


def named_in(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts and the whole numbers in a value, each after the name of its part. The type
    of a part says nothing.
    """
    for name, each in values_in(value):
        if type(each) in (str, int) and not (name == "type" and str(each).isidentifier()):
            yield name, str(each)


def parsed(value: Any) -> Any:
    """Return a text of JSON as its value: a model mostly wrote JSON. Any other text and value is
    returned unchanged.
    """
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def replaced(value: Any, instead: Mapping[str, Any], *, names: bool = False) -> Any:
    """Return a copy of a value with other values for the texts that ``instead`` has; with ``names``
    also for such names of parts. Cost: a step for each value.
    """
    level: list[Any] = [whole := [value]]
    tuples: list[tuple[Any, Any]] = []
    while level:
        inner: list[Any] = []
        for holder in level:
            for key, part in holder.items() if type(holder) is dict else enumerate(holder):
                kind = type(part)
                if kind is str:
                    holder[key] = instead.get(part, part)
                elif kind in (dict, list, tuple):
                    holder[key] = _copied(part, instead if names else {})
                    inner.append(holder[key])
                if kind is tuple:
                    tuples.append((holder, key))
        level = inner
    for holder, key in reversed(tuples):
        holder[key] = tuple(holder[key])
    return whole[0]


def _copied(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a copy of a map, with other names for those of ``names``, or a list of the parts of a
    list or tuple.
    """
    if type(value) is dict:
        return {names.get(name, name): part for name, part in value.items()}
    return [*value]
