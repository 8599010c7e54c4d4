"""Find values in an event or a document that JSON cannot hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time
from hashlib import sha256
from math import isfinite
from typing import Any, Final

_Path = tuple[Any, str] | None
"""The path before a step, and the step. Only the path that an error names becomes text."""

_BASE64: Final = 'write base64.b64encode(value).decode("ascii")'
_BYTES: Final = "write bytes(value)"
_AS_IT_IS: Final = (str, int, float)


def not_json(fields: Mapping[str, Any], *, or_bytes: bool = False, finite: bool = False) -> str | None:
    """Return the first value in these named fields that JSON would not give back as it is: its path, its type and what
    to write instead. None where all are None, texts, numbers, flags, lists, tuples, and maps with texts as names.

    With ``or_bytes``, bytes are allowed too: an event can hold them within a field. With ``finite``, NaN and infinities
    are not. A tuple is read back as a list. A value of a derived class is read back as an equal value of the plain
    type. Cost: one visit of each list and map, even if one contains itself.
    """
    waiting: deque[tuple[_Path, Any]] = deque([((None, name), value) for name, value in fields.items()])
    seen: set[int] = set()
    while waiting:
        path, value = waiting.popleft()
        if finite and isinstance(value, float) and not isfinite(value):
            return f"its field {_text(path)} is {value}, which JSON cannot hold; write it as text, or None"
        if value is None or isinstance(value, _AS_IT_IS) or (or_bytes and type(value) is bytes):
            continue
        if isinstance(value, dict | list | tuple):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, dict):
                for name, item in value.items():
                    if not isinstance(name, str):
                        return (
                            f"its field {_text(path)} has the key {name!r:.60} of type {type(name).__name__}, and keys "
                            f"in JSON are texts; write it as text, such as {str(name)!r:.60}, or write a list of pairs"
                        )
                    waiting.append(((path, f".{name}"), item))
            else:
                waiting.extend([((path, f"[{place}]"), item) for place, item in enumerate(value)])
            continue
        kind = type(value).__name__
        return f"its field {_text(path)} has a value of type {kind}, which JSON cannot hold; {_remedy(value, or_bytes)}"
    return None


def plain(value: object) -> object:
    """Return a text or number of a derived class, such as NumPy's ``float64``, as an equal value of the plain class.

    Raises ``TypeError`` for any other object.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"an object of type {type(value).__name__} cannot be stored")


def said(value: object) -> str:
    """Return the text that people or models read in the place of a value that JSON cannot hold."""
    if isinstance(value, bytes):
        return f"[{len(value):,} bytes, sha256 {sha256(value).hexdigest()[:12]}…]"
    return str(value)


def _remedy(value: object, or_bytes: bool) -> str:
    if isinstance(value, bytes) and not or_bytes:
        return _BASE64
    if isinstance(value, bytes | bytearray | memoryview):
        return _BYTES
    if isinstance(value, AbstractSet):
        return "write a list, such as sorted(value)"
    if isinstance(value, date | time):
        return "write value.isoformat()"
    return "write it as text, a number, a list or a map"


def _text(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    text = "".join(reversed(steps)).encode(errors="backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:100]}…{text[-100:]}"
