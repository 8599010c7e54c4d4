"""Convert the values of a graph's channels into JSON. Small values are stored in the checkpoint's
document. Each larger value has its own document.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Container, Iterable
from math import isfinite
from random import random
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.adapters._langgraph.branches import Checkpoint, copy_value
from foldlog.eventstore import DELETED
from foldlog.runtimes import REDACTED, Fields

_CHANNEL = "channel:"
"""The beginning of the name of a document with the value of a channel."""
_SHORT = 64
"""A longer text is not small."""


class ChannelValues:
    """Converts values into JSON and back. All types of LangGraph's serializer are preserved.

    With ``readable``, a value is stored as JSON if JSON can represent it. All other values are
    stored in the form that the serializer writes, which may be encrypted.
    """

    def __init__(self, serde: Any, *, readable: bool) -> None:
        self.serde = serde
        self.readable = readable

    def packed(self, value: Any) -> Fields:
        """Return a value in its stored form, as the class describes."""
        if self.readable and is_json(value):
            return {"json": value}
        kind, written = self.serde.dumps_typed(value)
        return {"type": kind, "base64": b64encode(written).decode()}

    def unpacked(self, packed: JsonMap) -> Any:
        """Return the value that ``packed`` has stored. The caller must not change it."""
        if "json" in packed:
            return packed["json"]
        return self.serde.loads_typed((packed["type"], b64decode(packed["base64"])))

    def fresh(self, packed: JsonMap) -> Any:
        """Return a copy of the value in ``packed``, so that the caller may change the value."""
        return self.unpacked(copy_value(packed) if "json" in packed else packed)

    def metadata(self, checkpoint: Checkpoint) -> Fields:
        """Return the metadata of a checkpoint."""
        if checkpoint.value:
            return dict(self.unpacked(checkpoint.value["metadata"]))
        return {}

    def channels(self, documents: JsonMap) -> Fields:
        """Return the values of the channels of a checkpoint, in order. Redacted ones are
        missing.
        """
        value = documents["checkpoint"]
        small = value["small"]
        large = {
            name: documents[_CHANNEL + name] for name in value["channels"] if name not in small
        }
        values = small | {
            name: self.unpacked(packed) for name, packed in large.items() if packed != REDACTED
        }
        return {name: values[name] for name in value["channels"] if name in values}

    def changed(
        self,
        values: JsonMap,
        versions: JsonMap,
        new: Container[str],
        before: Checkpoint,
    ) -> tuple[Fields, Fields]:
        """Return the fields ``channels`` and ``small`` of a new checkpoint's document, and the
        documents of the changed channels.

        A channel is unchanged if it is not in ``new`` and has the same version as in the checkpoint
        ``before``.
        """
        old = before.value or {"channels": (), "small": {}}
        old_versions = {}
        if before.value:
            old_versions = self.unpacked(old["rest"])["channel_versions"]
        old_small = old["small"]
        small = Fields()
        changed = Fields()
        for name, value in values.items():
            is_unchanged = (
                name in old["channels"]
                and name not in new
                and name in old_versions
                and old_versions[name] == versions.get(name)
            )
            if is_unchanged:
                # An unchanged large value stays in its document.
                if name in old_small:
                    small[name] = old_small[name]
            elif self.readable and _is_small(value):
                small[name] = value
            else:
                changed[_CHANNEL + name] = self.packed(value)
        for name in old["channels"]:
            if name not in old_small and (name not in values or name in small):
                changed[_CHANNEL + name] = DELETED
        return {"channels": list(values), "small": small}, changed


def next_version(current: Any) -> Any:
    """Return the channel version that follows ``current``. The version is a number, or a text if
    ``current`` is a text, as in some other savers.
    """
    if isinstance(current, str):
        return f"{int(current.split('.')[0]) + 1:032}.{random():016}"
    return 1 if current is None else int(current) + 1


def pending_writes(notes: Iterable[JsonMap]) -> list[tuple[str, str, Any]]:
    """Return the writes of a checkpoint in LangGraph's order. Each write consists of a task, a
    channel and a packed value.

    If a task has several writes with the same index, the first write counts. For an index below 0,
    such as the index of an error, the last write counts.
    """
    writes: dict[tuple[str, int], tuple[str, str, Any]] = {}
    for note in notes:
        for place, name, packed in note["writes"]:
            if place < 0 or (note["task"], place) not in writes:
                writes[note["task"], place] = note["path"], name, packed
    in_order = sorted(writes.items(), key=lambda write: (write[1][0], *write[0]))
    return [(task, name, packed) for (task, _), (_, name, packed) in in_order]


def is_json(value: Any) -> bool:
    """Return whether JSON represents a value exactly, with its types."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and is_json(inner) for key, inner in value.items())
    if kind is list:
        return all(map(is_json, value))
    return value is None or kind in (str, int, bool) or (kind is float and isfinite(value))


def _is_small(value: Any) -> bool:
    """Return whether a value is a short text, a number, a bool or None."""
    if type(value) is str:
        return len(value) <= _SHORT
    return type(value) not in (list, dict) and is_json(value)
