"""Keep the messages of a ``DeltaChannel``: its checkpoints have no list of messages, only the
writes of their parents.

The list after the writes is made as ``_messages_delta_reducer`` of LangGraph makes it, which is
what ``deepagents`` uses: a message with a known id takes the place of that one, and a
``RemoveMessage`` takes it out. It is the history, never the value that a graph reads, which
LangGraph makes of the writes with the graph's own reducer. Now and then a checkpoint has the whole
value, a snapshot; then the history follows that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages

from foldlog.adapters._langgraph.record_lists import Listed, RecordList

try:
    from langgraph.checkpoint.serde import types as _types

    DeltaSnapshot = _types._DeltaSnapshot
except AttributeError:  # releases before 1.2 have no such channels

    class _Never(NamedTuple):
        value: Any

    DeltaSnapshot = _Never


def messages_in(written: Any) -> list[BaseMessage] | None:
    """Return the messages of one write to the channel; None where it is something else."""
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
    """Return the list after these writes. ``record_before(n)`` returns a record of the list
    before.
    """
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
            places |= {} if message.id is None else {message.id: len(order)}
            order.append(message)
    left = [each for each in order if each is not None]

    def made(place: int) -> Any:
        each = left[place]
        return record_before(each) if isinstance(each, int) else record(each)

    return Listed(
        [before.keys[each] if isinstance(each, int) else key(each) for each in left],
        [before.ids[each] if isinstance(each, int) else each.id for each in left],
        made,
    )
