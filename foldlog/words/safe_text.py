"""Text and JSON that steer no terminal.

Control characters, and those that turn the direction of writing, are shown as escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["json_bytes", "json_text", "printable"]

_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_STEERS = re.compile(f"[{_STEERING}]")
_STEERS_OR_BREAKS = re.compile(f"[{_STEERING}\\t\\n]")
_NON_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity')


def printable(text: str, *, one_line: bool = False) -> str:
    """Return ``text`` with escapes in place of characters that would steer a terminal; with ``one_line``, in place of
    line breaks and tabs as well.
    """
    if text.isprintable():  # which none of these characters is
        return text
    return (_STEERS_OR_BREAKS if one_line else _STEERS).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(match[0]) or (
        f"\\x{ord(match[0]):02x}" if ord(match[0]) < 0x100 else f"\\u{ord(match[0]):04x}"
    )


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON that every parser takes and that steers no terminal: such characters, and lone
    surrogates, are escaped, and a number beyond all doubles is written as one (``1e999``), not as ``Infinity``.
    """
    if indent is None:
        encoded = _encoded(value)
        if encoded is not None:
            if encoded.isascii() and b"\x7f" not in encoded:
                return encoded.decode("ascii")
            text = encoded.decode()
            return text if text.isprintable() else _STEERS.sub(_escaped, text)
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)
    if "Infinity" in text:
        text = _NON_FINITE.sub(
            lambda found: found[0].replace("Infinity", "1e999") if found[0][0] != '"' else found[0], text
        )
    return _STEERS.sub(_escaped, text)


def json_bytes(value: Any) -> bytes:
    """Return ``json_text(value)`` in UTF-8."""
    encoded = _encoded(value)
    if encoded is not None and encoded.isascii() and b"\x7f" not in encoded:
        return encoded  # as most are: no text is made of it
    return json_text(value).encode()


def _encoded(value: Any) -> bytes | None:
    """Return ``value`` as msgspec writes it; None where that may say something else."""
    try:
        encoded = _encoder()(value)
    except (ValueError, TypeError, OverflowError, RecursionError):  # lone surrogates, integers beyond 64 bits
        return None
    # msgspec also writes null for a number that is not finite.
    if encoded == b"null" or b":null" in encoded or b",null" in encoded or b"[null" in encoded:
        return None
    return encoded


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@cache
def _encoder() -> Callable[[Any], bytes]:
    """Return msgspec's encoder, imported when the first document is written: the help does without it."""
    import msgspec

    return msgspec.json.Encoder().encode
