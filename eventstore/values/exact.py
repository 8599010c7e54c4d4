"""The exact form of a body: fields that JSON in UTF-8 cannot hold, such as a lone surrogate or an infinity. Pure.

    {"$exact":"<base64 of ASCII JSON>","kind":"message","content":"a form that any tool can read"}

The first field of every other body is ``kind``, so a field that a user names ``$exact`` is not mistaken for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

import msgspec

EXACT = "$exact"
BEGINS_EXACT = b'{"$exact":'

_encode = msgspec.json.encode


def is_json(fields: dict[str, Any]) -> bool:
    """Return whether these fields can be written as JSON in UTF-8 and read back as the same values."""
    return _readable(fields) == fields and not _has_non_finite(fields)


def with_exact(fields: dict[str, Any]) -> bytes:
    """Return a body that any tool can read. Its first field holds the exact fields, as ASCII JSON in base64.

    A body that holds a field ``$exact`` of a user is stored in this form too.
    """
    exact = json.dumps(fields, separators=(",", ":")).encode("ascii")
    readable = _readable({name: value for name, value in fields.items() if name != EXACT})
    return _encode({EXACT: base64.b64encode(exact).decode("ascii"), **readable})


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_non_finite, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_non_finite, value))


def exact_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object that ``$exact`` holds, or None."""
    try:
        exact = json.loads(base64.b64decode(value[EXACT], validate=True))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        return None
    return exact if isinstance(exact, dict) else None
