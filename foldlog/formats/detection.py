"""Which format a JSON value is a record of."""

from __future__ import annotations

from typing import Any

from foldlog.formats.format import Format, Recognize
from foldlog.formats.registry import FORMATS, format_named

__all__ = ["format_of", "recognize"]


def recognize(format: str = "auto") -> Recognize:
    """Return how to recognize records: of any format, or all that can pass for a record of ``format``.

    Raises ``UnknownFormat``.
    """
    if format == "auto":
        return format_of
    named = format_named(format)
    return lambda record: named if named.accepts(record) else None


def format_of(record: Any) -> Format | None:
    """Return the format that ``record`` is most likely a record of, or None."""
    return next((format for format in FORMATS.values() if format.matches(record)), None)
