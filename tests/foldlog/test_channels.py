"""Values of a graph's channels: small ones in the document of a checkpoint, all others as documents of their own."""

from __future__ import annotations

from foldlog.adapters._langgraph.branches import Checkpoint
from foldlog.adapters._langgraph.channels import ChannelValues
from foldlog.eventstore import DELETED


class Reversed:
    """A serializer that hides what it is given."""

    def dumps_typed(self, value):
        return "reversed", repr(value)[::-1].encode()

    def loads_typed(self, written):
        return eval(written[1].decode()[::-1])


class Thread:
    """Checkpoints one after another, as documents."""

    def __init__(self, *, readable=True):
        self.kept = ChannelValues(Reversed(), readable=readable)
        self.documents, self.changed = {}, {}

    def put(self, values, new=None, **versions):
        value = self.documents.get("checkpoint")
        said, self.changed = self.kept.changed(values, versions, new or {}, Checkpoint("t", 1, value))
        self.documents |= {"checkpoint": {**said, "rest": self.kept.packed({"channel_versions": versions})}}
        for name, document in self.changed.items():
            if document is DELETED:
                del self.documents[name]
            else:
                self.documents[name] = document
        return self.kept.channels(self.documents)


def test_a_small_value_is_in_the_document_of_the_checkpoint_and_any_other_one_is_a_document():
    for value in (None, True, 0, 2**70, -0.0, 1.5, "", "x" * 64, "\x00\ud800"):
        thread = Thread()
        assert repr(thread.put({"a": value}, a=1)) == repr({"a": value})
        assert list(thread.documents) == ["checkpoint"]
    for value in ([], {}, "x" * 65, (1,), b"x", float("nan"), [None], {1: 2}):
        thread = Thread()
        thread.kept.serde.loads_typed = lambda written, value=value: value
        assert repr(thread.put({"a": value}, a=1)) == repr({"a": value})
        assert sorted(thread.documents) == ["channel:a", "checkpoint"]


def test_with_a_serializer_of_ones_own_every_value_is_written_by_it():
    thread = Thread(readable=False)
    assert thread.put({"a": None, "b": "secret"}, a=1, b=1) == {"a": None, "b": "secret"}
    assert "secret" not in repr(thread.documents)
    assert {"channel:a", "channel:b"} < set(thread.documents)


def test_a_value_that_becomes_small_or_large_or_leaves_is_in_one_place():
    thread, large = Thread(), "x" * 100
    assert thread.put({"a": 1, "b": large, "c": large}, a=1, b=1, c=1) == {"a": 1, "b": large, "c": large}
    assert thread.put({"a": large, "b": 2, "d": 3}, a=2, b=2, d=1) == {"a": large, "b": 2, "d": 3}
    assert set(thread.documents) == {"checkpoint", "channel:a"}
    assert thread.put({"b": large}, b=3) == {"b": large}
    assert set(thread.documents) == {"checkpoint", "channel:b"}


def test_a_channel_with_the_version_of_the_parent_has_the_value_of_the_parent():
    thread, large = Thread(), "x" * 100
    thread.put({"a": 1, "b": large, "c": 3}, a=1, b=1, c=1)
    assert thread.put({"a": large, "b": 2, "c": 4}, {"c": 1}, a=1, b=1, c=1) == {"a": 1, "b": large, "c": 4}
    assert thread.changed == {}


def test_the_order_of_channels_is_that_of_the_checkpoint():
    thread = Thread()
    values = {"z": "x" * 100, "b": 1, "a": "y" * 100, "c": None}
    assert list(thread.put(values, z=1, b=1, a=1, c=1)) == list(values)
