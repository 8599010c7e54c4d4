"""Compute the messages of a ``DeltaChannel`` of LangGraph. A checkpoint with this channel stores no
list of messages. The writes that change the list are stored with the parent of the checkpoint.

The writes have the same effect as in LangGraph's ``_messages_delta_reducer``. A message replaces
the message with the same id. A ``RemoveMessage`` removes the message with its id. Only foldlog's
history uses the computed list; a graph computes its own list. If a checkpoint has a snapshot of the
whole list, the snapshot is used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages

from foldlog.adapters._langgraph.record_lists import Listed, RecordList

try:
    from langgraph.checkpoint.serde import types as _types

    DeltaSnapshot = _types._DeltaSnapshot
except AttributeError:  # LangGraph before 1.2 has no such channels

    class _Never(NamedTuple):
        """A class of which no value is an instance."""

        value: Any

    DeltaSnapshot = _Never


def messages_in(written: Any) -> list[BaseMessage] | None:
    """Return the messages of a write, or None if the write cannot be read as messages."""
    try:
        messages: list[BaseMessage] = convert_to_messages(
            written if type(written) is list else [written]
        )
    except (ValueError, NotImplementedError, TypeError, KeyError):
        return None
    return messages


def after_writes(
    before: RecordList,
    writes: Sequence[Sequence[BaseMessage]],
    key: Callable[[BaseMessage], bytes],
    record: Callable[[BaseMessage], Any],
    record_before: Callable[[int], Any],
) -> Listed:
    """Apply ``writes`` to the list ``before``, and return the new list. ``record_before(n)``
    returns the record at the index ``n`` of ``before``.
    """
    # A member is the index of an old record, a new message, or None if the member was removed.
    order: list[int | BaseMessage | None] = [*range(len(before.keys))]
    places = {name: place for place, name in enumerate(before.ids) if name is not None}
    for message in (message for messages in writes for message in messages):
        place = None if message.id is None else places.get(message.id)
        if isinstance(message, RemoveMessage):
            if place is not None:
                order[place] = None
                del places[message.id]
        elif place is not None:
            order[place] = message
        else:
            if message.id is not None:
                places[message.id] = len(order)
            order.append(message)
    remaining = [member for member in order if member is not None]

    def record_at(place: int) -> Any:
        member = remaining[place]
        return record_before(member) if isinstance(member, int) else record(member)

    return Listed(
        [before.keys[member] if isinstance(member, int) else key(member) for member in remaining],
        [before.ids[member] if isinstance(member, int) else member.id for member in remaining],
        record_at,
    )
