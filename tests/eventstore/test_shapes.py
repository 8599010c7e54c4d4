"""Flat events are stored without being read back; nothing else may tell them from those that are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore import Action, Event, InvalidEvent, Message, Observation, Origin, codec
from eventstore.codec import decode, encode


class Tool(StrEnum):
    SHELL = "shell"


ODD = [
    None, True, 0, 1, -1, 2**53, 2**70, 1.5, float("inf"), "x", "user", "nobody", "\ud800", Tool.SHELL, b"x", object(),
    [], ["x"], (), ("x",), ({"a": "b"},), {}, {"a": "b"}, {"a": 1}, {"a": None}, {1: "a"}, {"a": float("nan")},
    {"a": {"b": ["c"]}}, {"a": Tool.SHELL}, {"\ud800": "\ud800"}, "2026-01-01T00:00:00", datetime(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2026, 7, 1, tzinfo=timezone(timedelta(seconds=30))), "2026-01-01T00:00:00Z",
]  # fmt: skip


def almost_flat() -> Iterator[Event]:
    """Flat events, each with something odd in one of its fields, whether it fits there or not."""
    for event in (
        Message(source="user", content="x", meta={"a": "b"}),
        Action(tool="x", arguments={"a": "b"}, call_id="x"),
        Observation(content="x", call_id="x", extras={"a": "b"}),
    ):
        for name, value in product(event.__struct_fields__, ODD):
            yield replace(event, **{name: value})
        for name, value in product(Origin.__struct_fields__, ODD):
            for rest in (None, {"set": {"a": [1, "x", True, None, {}]}}):
                yield replace(event, origin=replace(Origin(format="f", id="x", rest=rest), **{name: value}))


def outcome(event: Event) -> Any:
    try:
        encoded = encode(event)
    except InvalidEvent as error:
        return str(error)
    assert decode(encoded.kind, encoded.schema, encoded.body, event.id) == encoded.event
    return [*encoded, repr(encoded.event)]  # 1 and True are equal, and not the same


def all_shapes() -> Iterator[Event]:
    times, causes, ids = (None, datetime(2026, 1, 1, tzinfo=UTC)), (None, 1), (None, "x")
    for timestamp, cause, first, second in product(times, causes, ids, ids):
        common = {"timestamp": timestamp, "cause": cause}
        yield Message(source="user", content="x", origin=Origin(format="f", id=first), **common)
        yield Message(source="user", content="x", **common)
        yield Observation(content="x", call_id=first, **common)
        yield Observation(content="x", call_id=first, origin=Origin(format="f"), **common)
        for arguments in (None, "x", {"a": "b"}):
            yield Action(tool="x", arguments=arguments, call_id=first, response_id=second, **common)
            yield Action(tool="x", arguments=arguments, call_id=first, origin=Origin(format="f"), **common)


def forget_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, flat in codec._FLAT.items():
        monkeypatch.setitem(codec._FLAT, kind, flat._replace(shapes=set()))


def test_with_shapes_and_without_the_same_is_stored_or_refused(monkeypatch: pytest.MonkeyPatch):
    forget_shapes(monkeypatch)
    assert all(map(encode, all_shapes()))
    known = [(outcome(event), outcome(event)) for event in almost_flat()]  # at the second time also its own shape is
    monkeypatch.setattr(codec, "_own_copy", lambda _: None)
    for event, outcomes in zip(almost_flat(), known, strict=True):
        assert outcomes == (outcome(event), outcome(event)), event


def test_a_flat_event_is_read_back_once_for_its_shape(monkeypatch: pytest.MonkeyPatch):
    forget_shapes(monkeypatch)
    decoded = []
    monkeypatch.setattr(codec, "decode", lambda *columns: decoded.append(columns) or decode(*columns))
    for n in range(5):
        encode(Action(tool="shell", arguments={"command": f"ls {n}"}, call_id=f"call-{n}", meta={"turn": str(n)}))
    assert len(decoded) == 1
    encode(Action(tool="shell", arguments={"command": ["ls"]}, call_id="call-6"))
    assert len(decoded) == 2


def test_who_changes_the_rest_of_an_origin_later_does_not_change_what_was_stored():
    origin = Origin(format="f", rest={"set": {"a": [1]}})
    event = Message(source="user", content="x", origin=origin)
    encode(event)
    stored = encode(event).event
    assert stored == event
    origin.rest["set"]["a"].append(2)
    assert stored.origin == Origin(format="f", rest={"set": {"a": [1]}})


@pytest.mark.parametrize(
    "event, maps",
    [
        (Action(tool="t", arguments={"a": "b"}, meta={"c": "d"}), ["arguments", "meta", "extra"]),
        (Observation(content="x", extras={"a": "b"}, meta={"c": "d"}), ["extras", "meta", "extra"]),
        (Message(source="user", content="x", meta={"c": "d"}), ["meta", "extra"]),
    ],
)
def test_who_changes_the_maps_of_an_event_later_does_not_change_what_was_stored(event: Event, maps: list[str]):
    encode(event)
    stored = encode(event).event
    assert stored == event
    for name in maps:
        getattr(event, name)["new"] = "value"
        assert "new" not in getattr(stored, name)
