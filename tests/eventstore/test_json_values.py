"""A value that a store accepts comes back equal and of the same types. A value that it cannot keep
so is refused, and the error names its place.
"""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Documents,
    InvalidEvent,
    Message,
    Observation,
    Origin,
    SystemMessage,
    open_store,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.documents.differences import apply_change, difference
from tests.how_many import examples
from tests.said import said, say, texts


class Colour(Enum):
    RED = "red"


class Name(str):
    def __str__(self):
        return "another text"


class Count(int):
    def __int__(self):
        return -1


class Score(float):
    """A number of a class of its own, like NumPy's ``float64``."""

    def __float__(self):
        return -1.0


class Blob(bytes):
    """Bytes of a class of their own."""


@pytest.fixture
def store():
    with open_store("memory:") as store:
        yield store


keys = (
    st.text(max_size=4)
    | st.integers(-1, 2)
    | st.booleans()
    | st.none()
    | st.floats()
    | st.binary(max_size=2)
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [2**64, -(2**70), 2**200, Colour.RED, Decimal("1.50"), UUID(int=7), date(2026, 1, 2)]
    )
    | st.floats()
    | st.text(st.characters(codec=None), max_size=4)
    | st.binary(max_size=3)
    | st.binary(max_size=3).map(bytearray)
    | st.sets(st.integers(), max_size=2)
    | st.frozensets(st.text(max_size=2), max_size=2)
    | st.datetimes(timezones=st.just(UTC))
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=1)
    ),
    max_leaves=5,
)

FIELDS = {
    "content": said("x"),
    "thinking": Message(source="agent", content="x"),
    "tools": SystemMessage(content="x"),
    "arguments": Action(tool="t"),
    "extras": Observation(content="x"),
    "data": Annotation(name="n"),
    "metadata": CondensationAction(forgotten_event_ids=(0,)),
    "meta": said("x"),
    "extra": said("x"),
    "origin.rest": said("x"),
}
"""Every field that takes values of the writer's own, with an event that has the field."""


def with_value(field, value):
    data = {"type": "image", "data": value}
    if field == "origin.rest":
        return said("x", origin=Origin(format="f", rest=data))
    is_list = field in ("content", "thinking", "tools")
    return replace(FIELDS[field], **{field: (data,) if is_list else data})


def held(value):
    """Return whether a store can keep the value in some event."""
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(map(held, value.values()))
    if isinstance(value, list | tuple):
        return all(map(held, value))
    return value is None or type(value) in (str, int, float, bool, bytes)


def finite(value):
    """Return whether JSON can hold all numbers in the value."""
    if isinstance(value, dict | list | tuple):
        return all(map(finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def with_types(value):
    """Return the value with the types of all of its parts. Tuples become lists, because they are
    read as lists.
    """
    if isinstance(value, dict):
        return {name: with_types(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_types(item) for item in value]
    return type(value), repr(value)


def data_of(event, field):
    owner, name = (event.origin, "rest") if field == "origin.rest" else (event, field)
    value = getattr(owner, name)
    return value[0]["data"] if isinstance(value, tuple) else value["data"]


@pytest.mark.parametrize("field", FIELDS)
@examples(25)
@given(value=values)
@example(value=b"\x00\xff")
@example(value=[{"\ud800": {1: "a"}}])
@example(value={"n": float("nan"), "big": 2**200, "t": (1, (True, -0.0))})
def test_values_round_trip_or_change_nothing(field, value):
    with open_store("memory:") as store:
        say(store, "c1", "first")
        event = with_value(field, value)
        if held(value):
            store.ingest("imported", [event])
            assert with_types(data_of(next(store.events("imported")), field)) == with_types(value)
        if held(value) and (finite(value) or event.origin is not None):
            store.append("c1", [said("second"), event], expected_version=1)
            assert with_types(data_of(next(store.events("c1", 2)), field)) == with_types(value)
            json.loads(encode(event).body, parse_constant=pytest.fail)  # as other tools read it
        else:
            problem = r"event 1 of this append: .* field [a-z.]+(\[0\])?(\.data)?"
            with pytest.raises(InvalidEvent, match=problem):
                store.append("c1", [said("second"), event], expected_version=1)
            assert texts(store, "c1") == ["first"]


DERIVED = [
    (Name("text"), "text"),
    (Name("\ud800"), "\ud800"),
    (Count(7), 7),
    (Count(2**70), 2**70),
    (Score(0.1), 0.1),
    ([{"a": (Score(1.5), Count(2))}, b"x"], [{"a": [1.5, 2]}, b"x"]),
]


@pytest.mark.parametrize("field", FIELDS)
def test_derived_classes_are_stored_as_plain_ones(store, field):
    events = [with_value(field, value) for value, _ in DERIVED]
    expected = [with_types(plain) for _, plain in DERIVED]
    say(store, "c1", "first")
    recorded = [appended.event for appended in store.append("c1", events, expected_version=1)]
    store.ingest("imported", events)
    for stored in (recorded, store.events("c1", 1), store.events("imported")):
        assert [with_types(data_of(event, field)) for event in stored] == expected
    with pytest.raises(InvalidEvent, match=r"field meta\.x is nan"):
        store.append("c2", said("x", meta={"x": Score("nan")}), expected_version=0)


def test_derived_classes_in_fields_and_documents(store):
    event = Action(tool=Name("t"), call_id=Name("c"), source=Name("agent"))
    store.append("c1", event, expected_version=0)
    stored = next(store.events("c1"))
    assert [type(text) for text in (stored.tool, stored.call_id, stored.source)] == [str] * 3
    documents = Documents(store)
    documents.append("c1", (), {"state": {"x": Score(2.0), "n": Count(3)}})
    assert with_types(documents.get("c1", "state")) == with_types({"x": 2.0, "n": 3})


@pytest.mark.parametrize(
    "data, problem",
    [
        ({"x": [1, Blob(b"x")]}, r"data\.x\[1\] has .* Blob.*bytes\(value\)"),
        ({"a": {1, 2}}, r"data\.a has a value of type set.*write a list"),
        ([{1: "a"}], r"data\[0\] has the key 1 of type int.*write it as text"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, r"data\.at .* datetime.*isoformat"),
        (
            {"a": object()},
            r"data\.a has a value of type object.*write it as text, a number, a list or a map",
        ),
        ([{"x": math.nan}], r"data\[0\]\.x is nan, .* write it as text, or None"),
        ({"x": -math.inf, "b": b""}, r"data\.x is -inf, which JSON cannot hold"),
    ],
)
def test_refused_value_names_place_and_remedy(store, data, problem):
    with pytest.raises(InvalidEvent, match=problem):
        store.append("c1", Annotation(name="n", data=data), expected_version=0)


@pytest.mark.parametrize(
    "event, problem",
    [
        (said("\ud800", meta={"x": math.inf}), r"field meta\.x is inf"),
        (said(b"\x00\xff"), "field content has a value of type bytes"),
        (
            said([{"a": {1}}]),
            r"field content\[0\]\.a has a value of type set",
        ),
        (said(["hi"]), r"field content\[0\] is 'hi'; a part is a map"),
        (said(None), "Expected `str | array`, got `null`"),
        (
            Message(source="nobody", content="hi"),
            "its source is 'nobody'; use 'user', 'agent', 'environment'",
        ),
        (Action(tool="t", call_id=UUID(int=7)), "field call_id has a value of type UUID"),
        (
            said("x", origin=Origin(format="f", id=b"x")),
            r"origin\.id has .* bytes",
        ),
    ],
)
def test_refused_event_names_its_field(store, event, problem):
    with pytest.raises(InvalidEvent, match=problem):
        store.append("c1", event, expected_version=0)


def test_value_that_holds_itself_is_refused(store):
    circle = [b"x"]
    circle.append(circle)
    for event in (
        Annotation(name="n", data=circle),
        Annotation(name="n", data=circle[1:], extra={"a": 1}),
    ):
        with pytest.raises(InvalidEvent, match="nested too deep"):
            store.append("c1", event, expected_version=0)


def test_refused_document_names_the_place(store):
    for value in ({"image": [{b"x"}]}, {"image": [{"\ud800": 1, 2: 3}]}):
        with pytest.raises(InvalidEvent, match=r"document 'state' .* field state\.image\[0\] has"):
            Documents(store).append("c1", (), {"state": value})


def test_refused_import_names_the_event(store):
    with pytest.raises(InvalidEvent, match=r"event 1 of the history: .* type set"):
        store.ingest("c1", [Annotation(name="a"), Annotation(name="b", data={1})])
    assert not list(store.conversations())


@pytest.mark.parametrize("text", ["a", "\ud800"])
def test_the_order_of_names_is_no_difference(text):
    before = {"a": text, "b": [1, {"d": b"\xff", "c": 2**70}]}
    after = {"b": [1, {"c": 2**70, "d": b"\xff"}], "a": text}
    assert difference(before, after) is None
    for other in ({**after, "b": [True, after["b"][1]]}, {**after, "a": text + text}):
        change = difference(before, other)
        assert change is not None
        assert with_types(apply_change(before, change)) == with_types(other)


def test_difference_may_keep_a_whole_list():
    assert apply_change([1, 2], {"keep": 2, "add": [3]}) == [1, 2, 3]


@pytest.mark.parametrize("value", [[1], []])
def test_difference_to_a_longer_list_is_refused(value):
    words = f"cannot keep 2 elements of a list of {len(value)} elements"
    with pytest.raises(LookupError, match=words):
        apply_change(value, {"keep": 2, "add": [3]})
