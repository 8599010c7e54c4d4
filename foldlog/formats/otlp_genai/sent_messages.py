"""The messages that were sent to a model. A part of the type ``compaction`` replaces all earlier
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

from foldlog.eventstore import CondensationAction, summary_id
from foldlog.formats.blocks import kind_of
from foldlog.formats.json_text import json_of
from foldlog.formats.record import Fields, dicts_in, text_or_empty

COMPACTED = "gen_ai.conversation.compacted"
"""The attribute that says that the messages of a span are a compacted form of the conversation."""
UNREADABLE = "[what came before was compacted; only the server of the model can read the summary]"
_KNOWN = ("text", "tool_call", "tool_call_response", "blob", "uri", "file", "compaction")
_SYSTEM_ROLES = ("system", "developer")


class SentMessage(NamedTuple):
    """A message, its hash (see ``gist``), and the ids of its shown events."""

    gist: bytes
    message: Fields
    ids: tuple[int, ...]


def parts_of(message: Fields) -> list[Fields]:
    """Return the parts of a message. A text becomes a part."""
    parts = [
        {"type": "text", "content": part} if type(part) is str else part
        for part in message["parts"]
    ]
    return dicts_in(parts)


def gist(message: Fields) -> bytes:
    """Return a hash of the content of a message. Equal contents have equal hashes. Reasoning is not
    hashed, because a program does not send reasoning again.
    """
    keys = (
        "type",
        "content",
        "text",
        "id",
        "name",
        "arguments",
        "response",
        "result",
        "uri",
        "file_id",
    )
    parts = [
        [part.get(key) for key in keys] if part.get("type") in _KNOWN else part
        for part in parts_of(message)
        if part.get("type") != "reasoning"
    ]
    return blake2b(json_of([message.get("role"), parts]), digest_size=16).digest()


def is_compaction(message: Fields) -> bool:
    """Return whether a message replaces all earlier ones."""
    return kind_of(next(iter(message["parts"]), None)) == "compaction"


def alone(messages: Iterable[Fields]) -> list[Fields]:
    """Split the messages so that no message has a compaction and other parts. A message without
    parts is left out.
    """
    return [
        {**message, "parts": list(parts)}
        for message in messages
        for _, parts in groupby(message["parts"], lambda part: kind_of(part) == "compaction")
    ]


def effective(messages: Iterable[Fields]) -> list[Fields]:
    """Return the messages that a model reads: the system messages before the newest compaction, and
    all messages from the newest compaction on.
    """
    split = alone(messages)
    newest = max(
        (place for place, message in enumerate(split) if is_compaction(message)), default=0
    )
    return [
        *(message for message in split[:newest] if message.get("role") in _SYSTEM_ROLES),
        *split[newest:],
    ]


def summary_in(compaction: Fields) -> str:
    """Return the summary of a compaction. If only the provider's server can read the summary,
    return a text that says so.
    """
    texts = [text_or_empty(part, "content") for part in parts_of(compaction)]
    return "\n\n".join(filter(None, texts)) or UNREADABLE


def compact(sent: Sequence[SentMessage], event: CondensationAction) -> list[SentMessage]:
    """Return the messages that are sent after a condensation, with its summary."""
    forgotten = frozenset(event.forgotten_event_ids or ())
    messages = [
        message for message in sent if not message.ids or not forgotten.issuperset(message.ids)
    ]
    if not event.summary:
        return messages
    place = 0
    before = event.summary_offset or 0
    while place < len(messages) and before > 0:
        before -= len(messages[place].ids)
        place += 1
    message = {"role": "assistant", "parts": [{"type": "compaction", "content": event.summary}]}
    return [
        *messages[:place],
        SentMessage(b"", message, (summary_id(event.id),)),
        *messages[place:],
    ]
