"""Detect the format of a history by its first records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from foldlog._formats.format import LOOK_AT, Format, Lookalike, Recognize
from foldlog._formats.registry import AUTO, format_named, formats


def recognize(format: str = AUTO) -> Recognize:
    """Return how to recognize a history: of any format, or one whose records may be those of ``format``.

    Raises ``UnknownFormat``.
    """
    if format == AUTO:
        return format_of
    named = format_named(format)
    return lambda records: _settled(records, lambda record: _accepted(record, named))


def format_of(records: Iterable[Any]) -> Format | Lookalike | None:
    """Return the format of the first of ``records`` that has one; only the first few are examined.

    A record of a lookalike among them decides against the format that it looks like, because the messages of a chat and
    of its lookalikes are the same until the first call of a tool.
    """
    return _settled(records, _of_one)


def _settled(records: Iterable[Any], of_one: Any) -> Format | Lookalike | None:
    found = [format for record in islice(records, LOOK_AT) if (format := of_one(record)) is not None]
    lookalikes = [format for format in found if isinstance(format, Lookalike)]
    first = next((format for format in found if isinstance(format, Format)), None)
    theirs = {lookalike.format for lookalike in first.lookalikes} if first is not None else set()
    other = next((format for format in found if isinstance(format, Format) and format.name in theirs), None)
    if other is not None:
        return other
    if first is not None and not any(lookalike in first.lookalikes for lookalike in lookalikes):
        return first
    return lookalikes[0] if lookalikes else None


def _of_one(record: Any) -> Format | Lookalike | None:
    format = next((format for format in formats().values() if format.matches(record)), None)
    others = formats().values() if format is None else (format,)
    lookalikes = (lookalike for each in others for lookalike in each.lookalikes)
    return next((lookalike for lookalike in lookalikes if lookalike.matches(record)), format)


def _accepted(record: Any, named: Format) -> Format | Lookalike | None:
    lookalike = next((each for each in named.lookalikes if each.matches(record)), None)
    return lookalike or (named if named.accepts(record) else None)
