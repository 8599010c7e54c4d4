"""An export has the keys of each object in the order of the source, and that costs little."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.eventstore import codec
from foldlog.formats import decode, encode
from foldlog.formats.delta import apply
from foldlog.formats.key_order import KeyOrder


def text(records):
    return [json.dumps(record, separators=(",", ":")) for record in records]


def stored_bytes(events):
    return sum(len(codec.encode(event).body) for event in events)


def turned(value):
    """The same value with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


def v1(number):
    part = {"type": "text", "text": f"message {number}"}
    return {
        "kind": "MessageEvent",
        "id": f"e{number}",
        "llm_message": {"role": "user", "content": [part], "more": {"a": 1, "b": [{"c": 1, "d": 2}]}},
        "source": "user",
        "deep": {"x": {"y": 1, "z": {"p": 1, "q": {"r": 1, "s": 2}}}},
    }


def chat(number):
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [call]}


def claude(number):
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls", "timeout": 5}}
    message = {"id": f"m{number}", "role": "assistant", "content": [use]}
    return {"uuid": f"u{number}", "type": "assistant", "message": message, "cwd": "/", "sessionId": "s"}


def codex(number):
    item = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": f"c{number}"}
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}, item]
    payload = {"message": "x", "replacement_history": history}
    return {"timestamp": "2026-02-17T09:00:00.000Z", "type": "compacted", "payload": payload}


def v0(number):
    call = {"function": {"arguments": '{"command":"ls","n":1}', "name": "bash"}, "id": f"c{number}", "type": "function"}
    response = {"id": f"r{number}", "choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    metadata = {"function_name": "bash", "tool_call_id": f"c{number}", "model_response": response}
    return {"id": number, "action": "run", "args": {"command": "ls", "n": 1}, "tool_call_metadata": metadata}


MAKERS = {"openhands-v0": v0, "openhands-v1": v1, "openai-chat": chat, "claude-code": claude, "codex": codex}


@pytest.mark.parametrize("format", MAKERS)
def test_keys_come_back_in_their_order_however_it_changes(format):
    records = [MAKERS[format](number) for number in range(3)]
    mixed = json.loads(json.dumps([records[0], turned(records[1]), records[2], turned(records[0]), *records]))
    assert text(encode(list(decode(mixed, format)), format)) == text(mixed)


@pytest.mark.parametrize("format", MAKERS)
def test_an_order_that_stays_is_kept_once(format):
    records = [turned(MAKERS[format](number)) for number in range(200)]
    events = list(decode(records, format))
    orders = [event.origin.rest for event in events if event.origin.rest and "order" in event.origin.rest]
    assert len(orders) <= 3
    assert stored_bytes(events) <= 1.02 * stored_bytes(decode([turned(record) for record in records], format))


def test_keys_of_any_text_have_their_order():
    record = {**v1(0), "a/b": {"~1": 1, "~0": 2, "": {"/": 1, "~": 2}}, "": 1}
    records = [record, turned(record), {**record, "a/b": turned(record["a/b"])}]
    assert text(encode(list(decode(records, "openhands-v1")), "openhands-v1")) == text(records)


def test_nesting_without_end_is_no_error():
    deep = {}
    for _ in range(300):
        deep = {"b": deep, "a": [deep]} if len(json.dumps(deep)) < 1_000 else {"b": deep, "a": 1}
    records = [{**v1(0), "llm_message": {"role": "user", "content": [], "more": deep}}]
    assert list(encode(list(decode(records, "openhands-v1")), "openhands-v1")) == records


small = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, -0.0, "", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["role", "a", "b/", "~"]), inner),
    max_leaves=8,
)
objects_in_some_order = st.dictionaries(st.sampled_from(["type", "a", "b", "c/d"]), small, min_size=1).flatmap(
    lambda made: st.permutations(list(made)).map(lambda keys: {key: made[key] for key in keys})
)


class InTwoPasses:
    """The orders of a record, by a walk through the record that a difference gives back."""

    def __init__(self) -> None:
        self.last = {}

    def orders(self, made, given, path=""):
        if made is given or not isinstance(given, dict | list):
            return {}
        found = {}
        if isinstance(given, dict):
            own, kind = tuple(made), made.get("role") or made.get("type")
            shape = own, kind if type(kind) is str else ""
            expected = self.last.get(shape, own)
            if tuple(given) != expected:
                found[path] = [expected.index(key) for key in given]
                self.last[shape] = tuple(given)
        inside = given.items() if isinstance(given, dict) else enumerate(given)
        for key, value in inside:
            escaped = str(key).replace("~", "~0").replace("/", "~1")
            found.update(self.orders(made[key], value, f"{path}/{escaped}"))
        return found


@given(st.lists(st.tuples(objects_in_some_order, objects_in_some_order, st.booleans()), max_size=6))
def test_one_pass_finds_the_orders_that_two_would_find(pairs):
    together, apart = KeyOrder(), InTwoPasses()
    for predicted, other, equal in pairs:
        record = turned(predicted) if equal else other
        difference = together.difference(predicted, record)
        order = difference.pop("order", {})
        made = apply(predicted, difference or None)
        assert json.dumps(made, sort_keys=True) == json.dumps(record, sort_keys=True)
        assert order == apart.orders(made, record)
