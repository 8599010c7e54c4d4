"""Encodes answers in steps.

msgspec holds the interpreter while it encodes a value: a View of 140 MB would stop all other
requests for half a second (``python -m benchmarks.tenants views-of-giants``). Between two steps
other threads go on. The parts are not joined, because that would take as long again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

_STEP_CHARS: Final = 256 * 1024
"""The C library takes larger blocks from the system each time, which costs more than the step: see
``return_large_blocks``.
"""
_PART_BYTES: Final = 1024 * 1024
"""Shorter parts are joined, so that an answer is not sent in very many."""
_STEP_ITEMS: Final = 64
"""At most this many short items of a list are encoded in one step."""
_encode: Final = msgspec.json.Encoder().encode


def encoded_parts(document: Any) -> list[bytes]:
    """Return the JSON of a document in parts: each item of its lists by itself, and long texts in
    pieces.
    """
    if not isinstance(document, msgspec.Struct):
        return [_encode(document)]
    fields = {name: getattr(document, name) for name in document.__struct_fields__}
    if not any(isinstance(value, list) and value for value in fields.values()):
        return [_encode(document)]
    members = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
    return list(_joined(_object_parts(members)))


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join short parts."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _PART_BYTES:
            yield b"".join(waiting)
            waiting = []
            size = 0
    yield b"".join(waiting)


def _parts(value: Any) -> Iterator[bytes]:
    """Yield the JSON of a value in steps."""
    if isinstance(value, str) and len(value) > _STEP_CHARS:
        yield b'"'
        for begin in range(0, len(value), _STEP_CHARS):
            yield _encode(value[begin : begin + _STEP_CHARS])[1:-1]  # without its quotes
        yield b'"'
    elif isinstance(value, list) and value:
        yield from _list_parts(value)
    elif isinstance(value, dict) and _has_long_text(value.values()):
        yield from _object_parts(value)
    else:
        yield _encode(value)


def _list_parts(items: list[Any]) -> Iterator[bytes]:
    """Yield the JSON of a list. Short items are encoded together. Only the first item, and each
    item behind a long one, is searched for long texts.
    """
    separator = b"["
    begin = 0
    count = 1
    while begin < len(items):
        together = items[begin : begin + count]
        # the JSON of a list without its brackets
        parts = _parts(together[0]) if count == 1 else [_encode(together)[1:-1]]
        yield separator
        size = 0
        for part in parts:
            size += len(part)
            yield part
        separator = b","
        begin += count
        count = 1 if size > _STEP_CHARS else min(2 * count, _STEP_ITEMS)
    yield b"]"


def _object_parts(members: dict[str, Any]) -> Iterator[bytes]:
    """Yield the JSON of an object."""
    separator = b"{"
    for name, value in members.items():
        yield separator + _encode(name) + b":"
        yield from _parts(value)
        separator = b","
    yield b"}"


def _has_long_text(values: Iterable[Any]) -> bool:
    """Return whether a text in the values, or inside of them, needs more than one step."""
    for value in values:
        if isinstance(value, str):
            if len(value) > _STEP_CHARS:
                return True
        elif isinstance(value, dict):
            if _has_long_text(value.values()):
                return True
        elif isinstance(value, list) and _has_long_text(value):
            return True
    return False
