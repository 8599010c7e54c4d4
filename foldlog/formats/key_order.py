"""Keep the order of the keys in a source's records, so that an export has the same order.

Most objects of a history are of a few kinds with a few sets of keys, each in one order. So an object is expected to
have the order of the last similar one, and only differences are kept: ``order`` in ``origin.rest``, by the path of the
object, as places in the expected order. Objects that an event holds unchanged keep their order anyway.

Reading and writing visit equal values in the same way, so both expect the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from foldlog.eventstore import Event
from foldlog.formats.delta import Path, Shapes, apply, apply_what_fits, object_delta

_SHAPES_MAX = 1_000
_KEYS_MAX = 64
"""Objects with more keys are compared again each time, so that wide objects of many shapes take no memory."""
_LEVELS_MAX = 16
"""Objects that are nested deeper in a record keep the order in which foldlog makes them."""
_DEPTH = 3
"""A prediction takes objects from this depth inside a part of an event."""
_CONTAINERS = frozenset((dict, list, tuple))

Orders = dict[str, list[int]]
_Shape = tuple[tuple[str, ...], str]


class KeyOrder:
    """The last order of each kind of object in the records of one history.

    ``held`` names the fields of events that hold objects of a record unchanged. Both methods take the ``events`` of a
    record, and ``parts`` of it that have their order already.

    From the first redacted event on, a record cannot be restored completely: its known parts are written.
    """

    def __init__(self, *held: str) -> None:
        self._fields = ("arguments", "thinking", "extras", "data", "tools", *held)
        self._last: dict[_Shape, tuple[str, ...]] = {}
        self.as_expected: set[Shapes] = set()
        """Those of objects in their expected order."""
        self._orders: Orders = {}
        self._redacted = False

    def difference(self, predicted: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        """Return the part of ``record`` that ``origin.rest`` keeps besides its marks: see ``delta``, and ``order``."""
        orders: Orders = {}
        self._orders = orders
        rest = object_delta(predicted, record, self)
        if not orders:
            return rest or {}
        return {"order": orders} if rest is None else {**rest, "order": orders}

    def record(
        self, predicted: dict[str, Any], rest: dict[str, Any], events: Sequence[Event], parts: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Return the record from its ``rest``, with the marks in it."""
        self._redacted = self._redacted or any(event.redacted is not None for event in events)
        if not self._redacted and not self._last and "order" not in rest:
            return cast(dict[str, Any], apply(predicted, rest))  # no other order is known than that of the prediction
        held: set[int] = set()
        for event in events:
            for field in self._fields:
                _hold(getattr(event, field, None), _DEPTH, held)
        for key, value in rest.items():
            if key not in _DELTA:
                _hold(value, _DEPTH, held)
        for value in (*_values_in(rest), *parts):
            _hold(value, 0, held)
        record = apply_what_fits(predicted, rest) if self._redacted else apply(predicted, rest)
        return self._ordered_object(record, "", 0, rest.get("order", {}), held)

    # -- reading ------------------------------------------------------------------------------------------------------

    def note(self, shapes: Shapes, path: Path) -> None:
        """Keep the order of an object whose keys are not in the expected order."""
        keys, order, kind = shapes
        given, predicted = frozenset(order), frozenset(keys)
        own = (*(key for key in keys if key in given), *(key for key in order if key not in predicted))
        expected = self._last.get((own, kind), own)
        if order == expected:
            if len(self.as_expected) == _SHAPES_MAX:
                self.as_expected.clear()
            if len(order) <= _KEYS_MAX:
                self.as_expected.add(shapes)
            return
        places = {key: place for place, key in enumerate(expected)}
        self._orders[_path_text(path)] = [places[key] for key in order]
        self._remember((own, kind), order)

    def note_all(self, made: Any, given: Any, path: Path, level: int) -> None:
        """Do what ``note`` does for two equal objects or arrays, and for all inside them."""
        if level > _LEVELS_MAX:
            return
        if type(made) is dict:
            shapes = (tuple(made), *_shape(tuple(given), given))
            if shapes not in self.as_expected:
                self.note(shapes, path)
        for key, value in given.items() if type(made) is dict else enumerate(given):
            if type(value) in _CONTAINERS and made[key] is not value:
                self.note_all(made[key], value, (path, key), level + 1)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _ordered_object(
        self, made: dict[str, Any], path: str, level: int, orders: Orders, held: set[int]
    ) -> dict[str, Any]:
        """Return ``made`` with its keys in the recorded or the expected order."""
        own = tuple(made)
        shape = _shape(own, made)
        order = self._last.get(shape, own)
        if self._redacted:
            order = _what_fits(own, order, orders.get(path))
        elif path in orders:
            order = tuple(order[place] for place in orders[path])
            self._remember(shape, order)
        return {
            key: self._ordered(value, f"{path}/{_escaped(key)}", level + 1, orders, held)
            if type(value := made[key]) in _CONTAINERS
            else value
            for key in order
        }

    def _ordered(self, made: Any, path: str, level: int, orders: Orders, held: set[int]) -> Any:
        if level > _LEVELS_MAX or id(made) in held:
            return made
        if type(made) is dict:
            return self._ordered_object(made, path, level, orders, held)
        return [
            self._ordered(item, f"{path}/{place}", level + 1, orders, held) if type(item) in _CONTAINERS else item
            for place, item in enumerate(made)
        ]

    def _remember(self, shape: _Shape, order: tuple[str, ...]) -> None:
        if len(self._last) < _SHAPES_MAX:
            self._last[shape] = order
            self.as_expected.clear()


def _what_fits(own: tuple[str, ...], order: tuple[str, ...], places: Sequence[int] | None) -> tuple[str, ...]:
    """Return the keys of an object in their known order."""
    if places is not None:
        order = tuple(order[place] for place in places if place < len(order))
    known = dict.fromkeys(key for key in order if key in own)
    return (*known, *(key for key in own if key not in known))


def _shape(keys: tuple[str, ...], made: dict[str, Any]) -> _Shape:
    """Return what identifies the most likely order of an object: its keys and its kind."""
    kind = made.get("role") or made.get("type")
    return keys, kind if type(kind) is str else ""


def _path_text(path: Path) -> str:
    """Return a path as ``origin.rest`` has it."""
    places: list[str] = []
    while path is not None:
        path, place = path
        places.append(f"/{_escaped(place) if type(place) is str else place}")
    return "".join(reversed(places))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "/" in key or "~" in key else key


_DELTA = frozenset(("set", "del", "in", "order"))


def _values_in(difference: Any) -> Iterable[Any]:
    """Yield the values that a difference puts into a record."""
    if isinstance(difference, list):
        for inside in difference:
            yield from _values_in(inside)
    elif isinstance(difference, dict):
        if "=" in difference:
            yield difference["="]
        yield from difference.get("set", {}).values()
        for inside in difference.get("in", {}).values():
            yield from _values_in(inside)


def _hold(value: Any, depth: int, held: set[int]) -> None:
    """Add the ids of the objects and arrays in a value, down to some depth."""
    if type(value) not in _CONTAINERS:
        return
    held.add(id(value))
    if depth:
        for item in value.values() if type(value) is dict else value:
            _hold(item, depth - 1, held)
