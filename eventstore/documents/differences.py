"""Compute the difference between two JSON values, as JSON. A difference is small if lists grow at
their end and objects change in few places.

    {"=": value}                                          replaces any value
    {"set": {…}, "del": […], "in": {key: difference}}     changes an object
    {"keep": n, "in": {"index": difference}, "add": […]}  changes an array: keeps n elements,
                                                          changes some of them, and adds others
                                                          at the end

For any two different JSON values, ``apply_change(before, difference(before, after))`` equals
``after``. The comparison distinguishes the JSON types, so ``1``, ``1.0`` and ``true`` differ.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from foldlog._base.json_types import JsonObject

Difference = dict[str, Any]

_encode = msgspec.json.Encoder(order="deterministic").encode


def difference(before: Any, after: Any) -> Difference | None:
    """Return the difference between two values, or None if the values are equal. The difference
    contains parts of ``after`` itself, not copies, so do not change ``after`` or the difference.
    """
    if _same(before, after):
        return None
    if type(before) is dict and type(after) is dict:
        return _of_objects(before, after)
    if type(before) is list and type(after) is list:
        return _of_arrays(before, after)
    return {"=": after}


def _of_objects(before: JsonObject, after: JsonObject) -> Difference:
    """Return the difference between two unequal objects. A key whose value is replaced whole is
    listed under ``set``.
    """
    changed: JsonObject = {}
    inside: dict[str, Difference] = {}
    for key, value in after.items():
        if key not in before:
            changed[key] = value
        elif (change := difference(before[key], value)) is not None:
            if "=" in change:
                changed[key] = value
            else:
                inside[key] = change
    removed = [key for key in before if key not in after]
    parts = {"set": changed, "del": removed, "in": inside}
    return {name: part for name, part in parts.items() if part}


def _of_arrays(before: list[Any], after: list[Any]) -> Difference:
    """Return the difference between two unequal arrays, compared index by index."""
    count = min(len(before), len(after))
    inside: dict[str, Difference] = {}
    for index in range(count):
        if (change := difference(before[index], after[index])) is not None:
            inside[str(index)] = change
    parts = {"in": inside, "add": after[count:]}
    return {"keep": count, **{name: part for name, part in parts.items() if part}}


def _same(before: Any, after: Any) -> bool:
    """Return whether two values have the same JSON text. In Python, 1, 1.0 and True are equal, but
    their JSON texts differ.
    """
    return before is after or bool(before == after and json_text(before) == json_text(after))


def json_text(value: Any) -> bytes:
    """Return the JSON text of a value, with sorted keys. Bytes are written as base64, and lone
    surrogates are escaped.
    """
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        plain = json.dumps(
            value, sort_keys=True, default=lambda data: base64.b64encode(data).decode("ascii")
        )
        return plain.encode()


def apply_change(before: Any, change: Difference) -> Any:
    """Return the value after the change. The returned value shares parts with ``before``, which
    stays unchanged.
    """
    if "=" in change:
        return change["="]
    inside = change.get("in", {})
    if "keep" in change:
        count = change["keep"]
        if count > len(before):
            raise LookupError(
                f"a difference cannot keep {count} elements of a list of {len(before)} elements"
            )
        array = list(before[:count])
        for index, inner in inside.items():
            array[int(index)] = apply_change(array[int(index)], inner)
        return [*array, *change.get("add", ())]
    record = dict(before)
    for key in change.get("del", ()):
        del record[key]
    record.update(change.get("set", {}))
    for key, inner in inside.items():
        record[key] = apply_change(before[key], inner)
    return record
