"""Check arguments before they are passed to a database or to ``datetime``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from reprlib import repr as short
from typing import Final

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.errors import InvalidArgument, InvalidOption
from foldlog.eventstore.times import EventTime, event_microseconds

NUMBER_MIN: Final = -(2**63)
NUMBER_MAX: Final = 2**63 - 1
"""``NUMBER_MIN`` and ``NUMBER_MAX`` are the smallest and the largest whole number of 64 bits. A
database stores only numbers in this range.
"""

YEAR_10000: Final = 253_402_300_800_000_000
"""The first moment that a datetime cannot hold, in microseconds since 1970."""


def check_whole(
    name: str, value: object, minimum: int = NUMBER_MIN, maximum: int = NUMBER_MAX
) -> int:
    """Return a whole number in a range. ``name`` names the argument in the messages of the errors.

    Like most functions of this file, it raises ``TypeError`` if the value has a wrong type, and
    ``InvalidArgument`` if the value is not allowed.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {short(value)}")
    if not minimum <= value <= maximum:
        raise InvalidArgument(f"{name} is {value}; use a whole number from {minimum} to {maximum}")
    return value


def check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {short(value)}")
    return value


def check_unicode(name: str, value: object) -> str:
    """Return a text without lone surrogates."""
    text = check_text(name, value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{name} is {short(text)}; remove the half of a surrogate pair, or add the other half"
        ) from None
    return text


def check_path(path: str) -> str:
    """Return a path. Raises ``InvalidOption`` if no file can have it."""
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise InvalidOption(
            f"{path!r} has a character that no file name can have; choose another name"
        )
    return path


def check_time(name: str, value: object) -> EventTime:
    """Return a time with a time zone."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime with a time zone, not {short(value)}")
    if value.utcoffset() is None:
        raise TypeError(
            f"{name} is {value.isoformat()} and has no time zone; give an aware time, such as"
            " datetime.now(UTC)"
        )
    return EventTime(value)


def check_map(name: str, value: object) -> JsonMap:
    """Return a map. Raises ``InvalidArgument`` for any other value."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name} must be a dict of values by name, not {short(value)}")
    return value


def check_reason(value: object, keeper: str) -> str:
    """Return a reason that is not empty. ``keeper`` says in the message where the reason is stored,
    such as "tombstone".
    """
    if not check_text("reason", value).strip():
        raise InvalidArgument(f"the reason is empty; give a reason for the {keeper}")
    return str(value)


def check_moment(microseconds: int) -> int:
    """Return a moment of a clock. A store refuses moments outside of the years 1970 to 9999,
    because it could not read them again.
    """
    if not 0 <= microseconds < YEAR_10000:
        seconds = microseconds // 1_000_000
        raise InvalidArgument(
            f"the clock shows {seconds} seconds since the beginning of 1970, and a store holds"
            " only the years 1970 to 9999; nothing was written. Set the clock of this machine, or"
            " the clock that was passed to open_store"
        )
    return microseconds


def to_microseconds(time: object, name: str) -> int:
    """Return the time of a clock, which has a time zone, in microseconds since 1970."""
    return check_moment(event_microseconds(check_time(name, time)))
