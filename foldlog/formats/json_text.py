"""Parse JSON text exactly, and describe the problem of a text that is not JSON.

msgspec parses strict JSON. If msgspec fails, the standard library parses the text. The standard
library also accepts and preserves lone surrogates, ``NaN``, numbers that are too large for a
double, and a byte order mark. Bytes that are not UTF-8 are read as U+FFFD. If a key occurs twice,
the last value counts.
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import blake2b
from typing import Any, Final

import msgspec

from foldlog.eventstore.codec_json import brackets, plain
from foldlog.eventstore.errors import InvalidEvent
from foldlog.formats.record import NotAnEvent

DEPTH_MAX = 480
"""The largest number of nested levels in a record. The store accepts 500 levels, and an event adds
some levels around its content.
"""
RECORD_SIZE_MAX = 16 * 2**20
"""The largest size of one record in bytes or characters. By default, a store refuses a larger
event.
"""
TOO_LONG = f"longer than {RECORD_SIZE_MAX:,} bytes, the limit for one record"
TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels, the limit for one record"
DIGITS_MAX = sys.get_int_max_str_digits()
"""The limit that Python sets for the digits of a number, 4,300 by default. 0 is no limit."""
TOO_MANY_DIGITS = f"holds a number with more than {DIGITS_MAX:,} digits, the limit for one number"
WITHIN_LIMITS = min(2 * DEPTH_MAX, DIGITS_MAX or 2 * DEPTH_MAX)
"""No value in a JSON text of so many bytes is nested too deep, or a number with too many digits."""
_SAMPLES = 10
"""The number of bytes that are looked at in a number with too many digits."""
_STEP = max(1, DIGITS_MAX // _SAMPLES)
_DIGITS_AT_STEPS = re.compile(rb"\d{%d}" % _SAMPLES)
"""Matches every ``_STEP``-th byte of a text that contains a number with too many digits."""
_KEY_BYTES: Final = 8

_SPACE = re.compile(r"\s*")
_JOINED = re.compile(rb"\}\s*\{")

_strict = msgspec.json.Decoder()
_lenient = json.JSONDecoder(strict=False)
_encode = msgspec.json.Encoder(enc_hook=plain).encode


class UnreadableJson(ValueError):
    """The text is not JSON, or a store cannot hold its value. An import reports the problem as a
    finding.
    """


def parse(text: bytes) -> Any:
    """Return the value of a JSON text. Raises ``UnreadableJson``. Strict JSON is parsed once. JSON
    that is not strict is parsed twice.
    """
    try:
        value = parse_stored(text)
    except RecursionError:
        raise UnreadableJson(TOO_DEEP) from None
    if _may_be_deep(text):
        check_depth(value)
    return value


def in_utf8(text: bytes) -> bytes:
    """Return a text in which bytes that are not UTF-8 are replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.decode()
        return text
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()


def parse_utf8(text: bytes) -> Any:
    """Return the value of a JSON text as ``parse`` does. Also raises ``UnreadableJson`` for bytes
    that are not UTF-8.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise UnreadableJson(f"not UTF-8 at byte {error.start:,}") from error
    return parse(text)


def check_limits(text: bytes) -> None:
    """Raise ``UnreadableJson`` for valid JSON that ``parse`` refuses: a value that is nested too
    deep, or a number with too many digits. A text is parsed only if it may have such a value.
    """
    if _may_be_deep(text) or _may_have_long_number(text):
        parse(text)


def _may_be_deep(text: bytes) -> bool:
    """Return whether a text has brackets enough for a value that is nested too deep."""
    return len(text) > 2 * DEPTH_MAX and brackets(text) > DEPTH_MAX


def _may_have_long_number(text: bytes) -> bool:
    """Return whether a text may have a number with too many digits. A search in all bytes would
    double the time of an import (``benchmarks.importing``).
    """
    if DIGITS_MAX == 0 or len(text) <= DIGITS_MAX:
        return False
    return _DIGITS_AT_STEPS.search(text[::_STEP]) is not None


def parse_stored(text: bytes) -> Any:
    """Return the value of a text that ``parse`` accepted before it was stored. ``parse_stored``
    takes half of the time of ``parse``, because the depth is not checked.
    """
    try:
        return _strict.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_leniently(text)


def joined_objects(text: bytes) -> list[bytes]:
    """Return the JSON texts of the objects that one line contains one after the other, without the
    space between them. Return no texts for a single object, an empty object or any other content.

    Two programs that append to one file, or a program that was killed before the end of its line,
    leave such lines.
    """
    if not _JOINED.search(text):
        return []
    objects = list[bytes]()
    try:
        rest = text.decode().strip()
        end = 0
        while end < len(rest):
            start = _end_of_space(rest, end)
            value, end = _lenient.raw_decode(rest, start)
            if type(value) is not dict or not value:
                return []
            objects.append(rest[start:end].encode())
    except (ValueError, RecursionError):  # the line is damaged in another way
        return []
    return objects if len(objects) > 1 else []


def _end_of_space(text: str, start: int) -> int:
    """Return the offset behind white space."""
    space = _SPACE.match(text, start)
    return start if space is None else space.end()


def parse_text(value: Any) -> Any:
    """Return the value of a JSON text, or None for a text that is not JSON. Return a ``value`` that
    is not a text unchanged.
    """
    try:
        return parse(value.encode()) if type(value) is str else value
    except (UnreadableJson, UnicodeEncodeError):
        return None


def _parse_leniently(text: bytes) -> Any:
    """Return the value of a text that is not strict JSON. Raises ``UnreadableJson``."""
    try:
        # strict=False accepts a tab in a text
        return json.loads(text.decode("utf-8-sig", "replace"), strict=False)
    except json.JSONDecodeError as error:
        raise UnreadableJson(f"not JSON at character {error.pos:,}: {fault(error)}") from error
    except RecursionError:
        raise UnreadableJson(TOO_DEEP) from None
    except ValueError as error:  # Python limits the digits of a number
        raise UnreadableJson(TOO_MANY_DIGITS) from error


def fault(error: json.JSONDecodeError) -> str:
    """Return the standard library's message about an invalid JSON text, without the position."""
    return error.msg.removesuffix(" starting at").removesuffix(" at")


def check_depth(value: Any) -> None:
    """Raise ``UnreadableJson`` if ``value`` is nested deeper than ``DEPTH_MAX``. The cost is one
    pass over ``value``.
    """
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(DEPTH_MAX):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise UnreadableJson(TOO_DEEP)


def value_of(text: str) -> Any:
    """Return the value of a JSON text, or the text if it is not strict JSON."""
    try:
        return _strict.decode(text)
    except (ValueError, RecursionError):
        return text


def bytes_of(value: Any) -> bytes:
    """Return a value as JSON, with the keys in their order. A value that strict JSON cannot
    represent (a lone surrogate, a long number) is written in ASCII, and NaN becomes null.
    """
    try:
        return _encode(value)
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, or a long number
        text = json.dumps(value, separators=(",", ":"), default=str)
    if "NaN" in text or "Infinity" in text:
        finite = json.loads(text, parse_constant=lambda constant: None)
        text = json.dumps(finite, separators=(",", ":"))
    return text.encode("ascii")


def key_of(value: Any) -> int:
    """Return a number that is equal for values with equal JSON text, in every process. Raises
    ``NotAnEvent`` for a record that is nested too deep.
    """
    try:
        digest = blake2b(bytes_of(value), digest_size=_KEY_BYTES).digest()
    except RecursionError:
        raise NotAnEvent(TOO_DEEP) from None
    return int.from_bytes(digest, signed=True)


def json_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json_of(value).decode()


def json_of(value: Any) -> bytes:
    """Return the JSON text of a record. A record that strict JSON cannot represent is written in
    ASCII. Raises ``InvalidEvent``.
    """
    try:
        text = _encode(value)
        # msgspec writes null or a text for a value that JSON does not have
        if _strict.decode(text) == value:
            return text
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"the record is not JSON: {error}; write such values as text") from error
