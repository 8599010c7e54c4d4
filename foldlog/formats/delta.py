"""The difference between a source record and its prediction from an event, as small JSON. An importer predicts the
record from the event that it made of it; the difference is kept in ``origin.rest``.

So an export is exact by construction: ``apply(predicted, delta(predicted, record))`` is ``record``, with the types of
JSON (``1``, ``1.0`` and ``true`` differ, and so do null and a missing key).

A difference is JSON itself:

    None                               they are the same
    {"=": value}                       it is another value
    {"set": {…}, "del": […], "in": {…}}  two objects: keys with another value, keys that are absent, differences inside
    [difference, …]                    two arrays of one length, element by element

Values that an importer shares by reference are recognized by identity. So the cost of a difference is the size of the
prediction, not of the record.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["apply", "apply_what_fits", "delta", "object_delta"]

Delta = dict[str, Any] | list[Any] | None


_LEVELS = 6
"""Deeper differences are kept as whole values, so that a difference nests little deeper than its record."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def delta(predicted: Any, record: Any, levels: int = _LEVELS) -> Delta:
    """Return how ``record`` differs from ``predicted``. Neither is changed; the result shares values with
    ``record``.
    """
    if predicted is record:
        return None
    kind = type(record)
    if kind is not type(predicted):
        return {"=": record}
    if kind is dict or kind is list:
        if not levels:
            return None if _same(predicted, record) else {"=": record}
        return (object_delta if kind is dict else _array_delta)(predicted, record, levels - 1)
    if kind is float:  # -0.0 is not 0.0, and NaN equals itself here
        return None if repr(predicted) == repr(record) else {"=": record}
    return None if predicted == record else {"=": record}


def object_delta(predicted: dict[str, Any], record: dict[str, Any], levels: int = _LEVELS) -> dict[str, Any] | None:
    """Return how one object differs from another."""
    changed: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    common = 0
    for key, value in record.items():
        if key not in predicted:
            changed[key] = value
            continue
        common += 1
        expected = predicted[key]
        if expected is value:
            continue
        difference = delta(expected, value, levels)
        if difference is None:
            continue
        if type(difference) is dict and "=" in difference:
            changed[key] = value
        else:
            inside[key] = difference
    answer: dict[str, Any] = {}
    if changed:
        answer["set"] = changed
    if common != len(predicted):
        answer["del"] = [key for key in predicted if key not in record]
    if inside:
        answer["in"] = inside
    return answer or None


def _array_delta(predicted: list[Any], record: list[Any], levels: int) -> Delta:
    if len(predicted) != len(record):
        return {"=": record}
    differences = [delta(*pair, levels) for pair in zip(predicted, record, strict=True)]
    return differences if any(difference is not None for difference in differences) else None


def _same(a: Any, b: Any) -> bool:
    """Return whether both are equal as JSON. For Python 1, 1.0 and True are equal, and infinities are numbers; JSON
    differs in both.
    """
    try:
        return bool(a == b) and _encode(a) == _encode(b)
    except (ValueError, RecursionError):  # text that is not Unicode, nesting that is too deep to compare
        return False


def apply(predicted: Any, difference: Delta) -> Any:
    """Return the record that ``difference`` was taken from. ``predicted`` stays unchanged; values are shared."""
    if difference is None:
        return predicted
    if isinstance(difference, list):
        return [apply(*pair) for pair in zip(predicted, difference, strict=True)]
    if "=" in difference:
        return difference["="]
    record = dict(predicted)
    for key in difference.get("del", ()):
        del record[key]
    record.update(difference.get("set", {}))
    for key, inside in difference.get("in", {}).items():
        record[key] = apply(predicted[key], inside)
    return record


def apply_what_fits(predicted: Any, difference: Delta) -> Any:
    """Do what ``apply`` does, with a ``predicted`` that was made of redacted events: a change inside a missing value is
    left out.
    """
    if difference is None:
        return predicted
    if isinstance(difference, list):
        if type(predicted) is not list or len(predicted) != len(difference):
            return predicted
        return [apply_what_fits(*pair) for pair in zip(predicted, difference, strict=True)]
    if "=" in difference:
        return difference["="]
    if type(predicted) is not dict:
        return predicted
    gone = frozenset(difference.get("del", ()))
    record = {key: value for key, value in predicted.items() if key not in gone}
    record.update(difference.get("set", {}))
    for key, inside in difference.get("in", {}).items():
        if key in predicted:
            record[key] = apply_what_fits(predicted[key], inside)
    return record
