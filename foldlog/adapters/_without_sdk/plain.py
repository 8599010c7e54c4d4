"""Convert the Python values of an SDK to JSON and back with their types: values that JSON does not have are marked.

    bytes {"$bytes": base64}    tuple {"$tuple": […]}    a float that is not finite {"$float": "nan"}

An object with one key that begins with ``$`` is ``{"$dict": object}``. A time is a text, as in the SDKs' own JSON. Any
other type becomes what pydantic makes of it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from pydantic_core import to_jsonable_python


def to_plain(value: Any, *, unknown: bool = False) -> Any:
    """Return a value as JSON. An object that pydantic does not know becomes a text with ``unknown``, else an error."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is dict and all(type(key) is str for key in value):
        plain = {key: to_plain(each, unknown=unknown) for key, each in value.items()}
        return {"$dict": plain} if len(plain) == 1 and next(iter(plain)).startswith("$") else plain
    if kind is list:
        return [to_plain(each, unknown=unknown) for each in value]
    if kind is tuple:
        return {"$tuple": [to_plain(each, unknown=unknown) for each in value]}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if kind is datetime:
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    return to_plain(to_jsonable_python(value, serialize_unknown=unknown))


def from_plain(plain: Any) -> Any:
    """Return the value that was given to ``to_plain``."""
    kind = type(plain)
    if kind is list:
        return [from_plain(each) for each in plain]
    if kind is not dict:
        return plain
    if len(plain) == 1:
        ((key, inside),) = plain.items()
        if key in _MARKED:
            return _MARKED[key](inside)
    return {key: each if type(each) is str else from_plain(each) for key, each in plain.items()}


_MARKED: dict[str, Callable[[Any], Any]] = {
    "$bytes": b64decode,
    "$tuple": lambda inside: tuple(from_plain(each) for each in inside),
    "$float": float,
    "$dict": lambda inside: {key: from_plain(each) for key, each in inside.items()},
}


def time_from(text: Any) -> Any:
    """Return the time in a text; any other value or text unchanged."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if type(text) is str and text.endswith("Z") else text
    except ValueError:
        return text
