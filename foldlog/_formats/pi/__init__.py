"""Sessions of pi and OpenClaw: JSON Lines, a ``session`` first, then entries that make a tree.

The entries, and the events that they become:

    message of a user, an assistant   Message; of an assistant with calls an Action, one a call
    message of a toolResult           Observation
    message of a bashExecution        Message from the environment, in the words that pi's model is told
    custom_message, branch_summary, and the same as a message   Message from the environment
    compaction                        CondensationAction: its model is sent the summary and what comes from
                                      ``firstKeptEntryId`` on, which may be before an earlier compaction
    every other type                  Annotation; the name in ``session_info`` is the title

The View is the branch that ends in the last entry: where an entry does not follow the one before it, a Retraction takes
the branch back that it leaves. An entry whose parent is missing follows the one before it, as all do before version 2:
there they have no ids, and ``firstKeptEntryIndex`` counts lines. pi writes a session again to bring it to version 3.

``reading.py`` and ``writing.py`` are the two directions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from foldlog._formats.format import LOOK_AT, Format
from foldlog._formats.pi.reading import PiDecoder
from foldlog._formats.pi.writing import NAME, PiEncoder
from foldlog._formats.record import member

__all__ = ["FORMAT"]

_FIELDS = {
    "session": "cwd", "compaction": "tokensBefore", "branch_summary": "fromId", "model_change": "modelId",
    "thinking_level_change": "thinkingLevel", "custom": "customType", "custom_message": "customType",
    "label": "targetId", "session_info": "parentId",
}  # fmt: skip
"""A field of each type of entries that others with such a type do not have."""
_ONLY_MESSAGES = ("timestamp", "provider", "toolCallId", "command", "customType")


def _accepts(record: Any) -> bool:
    return type(record) is dict and type(record.get("type")) is str


def _matches(record: Any) -> bool:
    """Return whether ``record`` is an entry with fields that only pi has."""
    if not _accepts(record) or type(record.get("timestamp")) is not str:
        return False
    message = record.get("message")
    if record["type"] == "message":
        return type(message) is dict and "role" in message and any(key in message for key in _ONLY_MESSAGES)
    return _FIELDS.get(record["type"], "") in record


def _conversation(records: Iterable[Any]) -> str | None:
    heads = (record for record in islice(records, LOOK_AT) if _accepts(record) and record["type"] == "session")
    return next((head["id"] for head in heads if type(head.get("id")) is str), None)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    decoder=lambda records, options: PiDecoder(options),
    encoder=PiEncoder,
    conversation=_conversation,
    rewritten=True,
    kept_in=("~/.pi/agent/sessions", "~/.openclaw/agents"),
    source_id=member("id"),
)
