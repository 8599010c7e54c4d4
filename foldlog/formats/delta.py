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
prediction, not of the record. It does not have the order of the keys: ``Orders`` are told of that on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

Delta = dict[str, Any] | list[Any] | None
Path = tuple[Any, str | int] | None
"""The place of a value in a record: that of the object or array around it, and its key or index; None for the record
itself.
"""
Shapes = tuple[tuple[str, ...], tuple[str, ...], str]
"""The keys of a predicted object, those of the object in the record, and its ``role`` or ``type``; "" for no text."""


_LEVELS = 6
"""Deeper differences are kept as whole values, so that a difference nests little deeper than its record."""
_ABSENT = object()
_OTHER: Any = object()
"""The difference to another value, of which nothing is the same."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Orders(Protocol):
    """What is told of the objects of a record in which the order of the keys may differ from the prediction's.

    Of ``as_expected`` it need not be told.
    """

    as_expected: set[Shapes]

    def note(self, shapes: Shapes, path: Path) -> None:
        """Look at the keys of one object. Its values are looked at afterwards."""

    def note_all(self, made: Any, given: Any, path: Path, level: int) -> None:
        """Look at two objects or arrays that are equal as JSON, and at all inside them. ``level`` is their depth."""


def delta(predicted: Any, record: Any) -> Delta:
    """Return how ``record`` differs from ``predicted``. Neither is changed; the result shares values with
    ``record``.
    """
    return _item_delta(predicted, record, _LEVELS, None, None)


def object_delta(predicted: dict[str, Any], record: dict[str, Any], orders: Orders) -> dict[str, Any] | None:
    """Return how one object differs from another, and tell ``orders`` of the objects on the way."""
    difference: dict[str, Any] | None = _object_delta(predicted, record, _LEVELS, orders, None)
    return difference


def _item_delta(predicted: Any, record: Any, levels: int, orders: Orders | None, path: Path) -> Delta:
    if predicted is record:
        return None
    kind = type(record)
    if kind is not type(predicted):
        return {"=": record}
    difference: Delta = _DELTAS.get(kind, _OF_SCALARS)(predicted, record, levels - 1, orders, path)
    return {"=": record} if difference is _OTHER else difference


def _object_delta(
    predicted: dict[str, Any], record: dict[str, Any], levels: int, orders: Orders | None, path: Path
) -> Any:
    if levels < 0:
        return _deep_delta(predicted, record, orders, path)
    if orders is not None:
        role = record.get("role") or record.get("type")
        shapes = (tuple(predicted), tuple(record), role if type(role) is str else "")
        if shapes not in orders.as_expected:
            orders.note(shapes, path)
    changed: dict[str, Any] | None = None
    inside: dict[str, Any] | None = None
    new = 0
    for key, value in record.items():
        expected = predicted.get(key, _ABSENT)
        if expected is value:
            continue
        kind = type(value)
        if kind is not type(expected):
            new += expected is _ABSENT
        elif kind is str:  # as ``_scalar_delta``: most values are texts
            if expected == value:
                continue
        else:
            difference = _DELTAS.get(kind, _OF_SCALARS)(expected, value, levels - 1, orders, (path, key))
            if difference is None:
                continue
            if difference is not _OTHER:
                inside = inside or {}
                inside[key] = difference
                continue
        changed = changed or {}
        changed[key] = value
    if changed is None and inside is None and len(record) == len(predicted):
        return None
    answer: dict[str, Any] = {"set": changed} if changed else {}
    if len(record) - new != len(predicted):
        answer["del"] = [key for key in predicted if key not in record]
    if inside:
        answer["in"] = inside
    return answer


def _array_delta(predicted: list[Any], record: list[Any], levels: int, orders: Orders | None, path: Path) -> Any:
    if levels < 0:
        return _deep_delta(predicted, record, orders, path)
    if len(predicted) != len(record):
        return _OTHER
    differences: list[Delta] = []
    for place, value in enumerate(record):
        differences.append(_item_delta(predicted[place], value, levels, orders, (path, place)))
    return None if differences.count(None) == len(differences) else differences


def _deep_delta(predicted: Any, record: Any, orders: Orders | None, path: Path) -> Any:
    """Do what ``_object_delta`` and ``_array_delta`` do where nothing but the whole value is kept."""
    if not _same(predicted, record):
        return _OTHER
    if orders is not None:
        orders.note_all(predicted, record, path, _LEVELS + 1)
    return None


def _scalar_delta(predicted: Any, record: Any, *_: object) -> Any:
    if type(record) is float:  # -0.0 is not 0.0, and NaN equals itself here
        return None if repr(predicted) == repr(record) else _OTHER
    return None if predicted == record else _OTHER


_DELTAS: Mapping[type, Callable[..., Any]] = {dict: _object_delta, list: _array_delta}
_OF_SCALARS: Callable[..., Any] = _scalar_delta


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
