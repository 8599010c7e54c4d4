"""Values of LangGraph's channels as JSON, and messages of LangChain as records of the format ``langchain``."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from random import random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from langchain_core.messages import BaseMessage, HumanMessage, message_to_dict, messages_from_dict
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from eventstore import DELETED, CondensationSummary
from foldlog.adapters.without_sdk.checkpoint_branches import Checkpoint
from projections import View, well_formed

__all__ = [
    "Placed",
    "Values",
    "config_of",
    "conversation_of",
    "model_input",
    "namespace_of",
    "next_version",
    "pending_writes",
]

_CHANNEL = "channel:"

_SHOWN = frozenset(("human", "ai", "system", "tool", "chat", "function"))


class Placed(NamedTuple):
    """A checkpoint with its thread and namespace."""

    thread_id: str
    namespace: str
    checkpoint: Checkpoint


class Values:
    """Values as JSON and back, with the types that the serializer keeps.

    ``readable``: JSON is kept as it is. Another serializer than LangGraph's, such as one that encrypts, writes every
    value.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.readable = isinstance(serde, JsonPlusSerializer)

    def are_messages(self, value: Any) -> bool:
        """Return whether a value is a list of messages that can be records."""
        return self.readable and type(value) is list and all(map(_is_message, value))

    def packed(self, value: Any) -> dict[str, Any]:
        """Return a value as JSON: unchanged if JSON can hold it, otherwise as the serializer writes it."""
        if self.readable and _is_json(value):
            return {"json": value}
        kind, written = self.serde.dumps_typed(value)
        return {"type": kind, "base64": b64encode(written).decode()}

    def unpacked(self, packed: Mapping[str, Any]) -> Any:
        if "json" in packed:
            return packed["json"]
        return self.serde.loads_typed((packed["type"], b64decode(packed["base64"])))

    def metadata(self, found: Checkpoint) -> dict[str, Any]:
        """Return the metadata of a checkpoint."""
        return dict(self.unpacked(found.value["metadata"])) if found.value else {}

    def channels(self, documents: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Return the values of channels."""
        return {name: self.unpacked(documents[_CHANNEL + name]) for name in names}

    def changed(
        self, values: Mapping[str, Any], versions: Mapping[str, Any], new: Container[str], before: Checkpoint
    ) -> dict[str, Any]:
        """Return the documents of channels that differ from those of the checkpoint before.

        A channel with the same version there, which is not ``new``, has the same value.
        """
        known = frozenset(before.value["channels"]) if before.value else frozenset[str]()
        older = self.unpacked(before.value["rest"])["channel_versions"] if before.value else {}
        changed: dict[str, Any] = {_CHANNEL + name: DELETED for name in known if name not in values}
        for name, value in values.items():
            if name not in known or name in new or name not in older or older[name] != versions.get(name):
                changed[_CHANNEL + name] = self.packed(value)
        return changed

    def key(self, message: BaseMessage) -> bytes:
        kind, written = self.serde.dumps_typed(message)
        return blake2b(kind.encode() + written, digest_size=16).digest()

    def record(self, messages: Sequence[BaseMessage], place: int) -> dict[str, Any]:
        """Return the record of a message. If the record alone gives another message, add the form of the serializer."""
        message = messages[place]
        record = message_to_dict(message)
        if _is_json(record) and self.key(messages_from_dict([record])[0]) == self.key(message):
            return dict(record)
        data = {key: value for key, value in record["data"].items() if _is_json(value)}
        return {"type": record["type"], "data": data, "typed": self.packed(message)}

    def message(self, record: Mapping[str, Any]) -> BaseMessage:
        message: BaseMessage = self.unpacked(record["typed"]) if "typed" in record else messages_from_dict([record])[0]
        return message


def conversation_of(prefix: str, conf: Mapping[str, Any]) -> str:
    """Return the first conversation of a thread's namespace."""
    name = f"{prefix}/{_quoted(str(conf['thread_id']))}"
    namespace = conf.get("checkpoint_ns", "")
    return f"{name}/{_quoted(namespace)}" if namespace else name


def namespace_of(prefix: str, conversation: str) -> tuple[str, str] | None:
    """Return the thread and the namespace whose first conversation this is; None for any other conversation."""
    names = conversation.removeprefix(f"{prefix}/").split("/")
    if conversation == prefix or len(names) > 2 or names[-1].startswith(("@", "+")):
        return None
    return _unquoted(names[0]), _unquoted(names[1]) if len(names) == 2 else ""


def config_of(thread_id: Any, namespace: str, checkpoint_id: str | None) -> dict[str, Any]:
    """Return the config of a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def next_version(current: Any) -> Any:
    """Return the version of a channel after ``current``, of the same type: ``int``, or the text of other savers."""
    if isinstance(current, str):
        return f"{int(current.split('.')[0]) + 1:032}.{random():016}"
    return 1 if current is None else int(current) + 1


def pending_writes(notes: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    """Return the writes of a checkpoint in LangGraph's order, each as task, channel and packed value.

    For one task and index the first write counts; for an index below 0, such as that of an error, the last.
    """
    writes: dict[tuple[str, int], tuple[str, str, Any]] = {}
    for note in notes:
        for place, name, packed in note["writes"]:
            if place < 0 or (note["task"], place) not in writes:
                writes[note["task"], place] = note["path"], name, packed
    in_order = sorted(writes.items(), key=lambda write: (write[1][0], *write[0]))
    return [(task, name, packed) for (task, _), (_, name, packed) in in_order]


def model_input(
    messages: list[BaseMessage], recorded: Sequence[tuple[tuple[int, int], bytes]], view: View, values: Values
) -> list[BaseMessage]:
    """Return the messages that a View shows, with its summaries in their places.

    ``recorded`` are the event ids and the keys of the messages in the View's conversation. Messages after these stay;
    if the messages begin otherwise, all stay.
    """
    count = len(recorded)
    if not 0 < count <= len(messages) or not any(event.id < 0 for event in view):
        return messages
    if recorded[-1][1] != values.key(messages[count - 1]):
        return messages
    places = {event_id: place for place, (span, _) in enumerate(recorded) for event_id in range(*span)}
    sendable = {event.id for event in (*well_formed(view), *view.open_calls)}
    shown: dict[int, BaseMessage] = {}
    for event in view:
        if isinstance(event, CondensationSummary):
            shown[event.id] = HumanMessage(event.content)
        elif event.id in places and event.id in sendable:
            shown.setdefault(places[event.id], messages[places[event.id]])
    return [*shown.values(), *messages[count:]]


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _unquoted(name: str) -> str:
    return unquote(name, errors="surrogatepass")


def _is_message(value: Any) -> bool:
    return isinstance(value, BaseMessage) and value.type.removesuffix("MessageChunk").lower() in _SHOWN


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_json(each) for key, each in value.items())
    if kind is list:
        return all(map(_is_json, value))
    return value is None or kind in (str, int, bool) or (kind is float and isfinite(value))
