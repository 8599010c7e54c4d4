"""Exports of Claude.ai: ``conversations.json``. A conversation holds its messages in
``chat_messages``.

A record is a message: see ``chat_exports.py``.

    human               Message: the text of the user, the texts of attached files, the names of
                        other files
    assistant           the events of Anthropic's blocks: texts, thinking, calls with their results
    the conversation    Annotation with its title

Since 2025 a message names the message before it (``parent_message_uuid``). A conversation may name
its newest message (``current_leaf_message_uuid``). If a conversation does not name its newest
message, the View shows the branch whose last message has the newest time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from foldlog.eventstore import Origin
from foldlog.formats.anthropic_messages import read_blocks
from foldlog.formats.blocks import kind_of
from foldlog.formats.chat_exports import Exports, TreeDecoder, in_order
from foldlog.formats.event_fields import text_part
from foldlog.formats.format import Format, first_named
from foldlog.formats.record import (
    Fields,
    dicts_in,
    member,
    pick,
    read_time,
    text_or_empty,
    text_or_none,
)
from foldlog.formats.record_events import RecordEvents

NAME = "claude-ai"

_SENDERS = {"human": "user", "assistant": "assistant"}


# -- the file --------------------------------------------------------------------------------------


class _Files(Exports):
    begins = (frozenset((b"uuid", b"chat_messages")), frozenset((b"uuid", b"name", b"summary")))
    named = ("uuid",)
    held = "chat_messages"
    id = "uuid"
    parent = "parent_message_uuid"
    title = "name"
    newest = "current_leaf_message_uuid"
    about: Mapping[str, Any] = {"name": ""}

    def is_about(self, record: Any) -> bool:
        return type(record) is dict and "sender" not in record and {"uuid", "name"} <= record.keys()

    def has(self, value: Any) -> bool:
        if type(value) is not dict or type(value.get("uuid")) is not str:
            return False
        return type(value.get("chat_messages")) is list or {"chat_messages", "name"} <= value.keys()

    def messages(self, conversation: Fields) -> list[Any]:
        items: Any = conversation["chat_messages"]
        if type(items) is not list:
            items = [items]
        messages: dict[str | None, Any] = {text_or_none(item, "uuid"): item for item in items}
        if None in messages or len(messages) < len(items):
            return list(items)
        parents: dict[str, str | None] = {}
        before: str | None = None
        for name, message in messages.items():
            parents[str(name)] = text_or_none(message.get("parent_message_uuid", before))
            before = name
        ordered = in_order(
            parents, {name: read_time(messages[name].get("created_at"))[0] for name in parents}
        )
        return [messages[name] for name in ordered]


_FILES = _Files()


# -- records to events -----------------------------------------------------------------------------


def _is_message(record: Any) -> bool:
    """Return whether a record is a message of a known sender."""
    has_id = text_or_none(record, "uuid") is not None
    return has_id and text_or_none(record, "sender") in _SENDERS


class _Decoder(TreeDecoder):
    exports = _FILES

    def repeated_fields(self, record: Fields) -> Collection[str]:
        return ("text",) if record.get("content") else ()

    def say(self, collected: RecordEvents, record: Fields) -> None:
        timestamp, time = read_time(record.get("created_at"))
        collected.begin(Origin(format=NAME, id=record["uuid"], time=time), timestamp)
        for response in _responses(_message_blocks(record), record["uuid"]):
            collected.response = f"message-{collected.version}"
            read_blocks(collected, {"role": _SENDERS[record["sender"]], "content": response})
        if collected.is_empty:
            collected.begin(Origin(format=NAME, id=record["uuid"]), None)


def _message_blocks(record: Fields) -> list[Fields]:
    """Return the attached files of a message as texts, and its blocks."""
    content = record.get("content")
    blocks = [block for block in content if kind_of(block)] if type(content) is list else []
    blocks = blocks or [text_part(text_or_empty(record, "text"))]
    attached: list[str] = []
    for attachment in dicts_in(record, "attachments"):
        text = text_or_empty(attachment, "extracted_content")
        name = text_or_empty(attachment, "file_name")
        attached.append(f"{name}\n{text}" if name and text else text or f"[file {name}]")
    attached += (f"[file {text_or_empty(file, 'file_name')}]" for file in dicts_in(record, "files"))
    return [*map(text_part, attached), *blocks]


def _responses(blocks: list[Fields], name: str) -> list[list[Fields]]:
    """Split the blocks into groups: a response of the model, the results of its calls, the next
    response, and so on. A call without an id gets a new id.
    """
    responses: list[list[Fields]] = [[]]
    last = ""
    for place, block in enumerate(blocks):
        match block["type"]:
            case "tool_use":
                last = text_or_empty(block, "id") or f"{name}:{place}"
                block = {**block, "id": last}
            case "tool_result":
                result = block.get("content")
                if type(result) is list:
                    result = list(map(_sayable, dicts_in(result)))
                block = {
                    **block,
                    "tool_use_id": text_or_empty(block, "tool_use_id") or last,
                    "content": result,
                }
            case "thinking":
                block = pick(block, ("type", "thinking", "signature"))
            case "text":
                block = text_part(text_or_empty(block, "text"))
            case "voice_note":
                block = _sayable(block)
            case "token_budget" | "flag":
                continue
        group = responses[-1]
        if group and _is_result(group[-1]) != _is_result(block):
            group = []
            responses.append(group)
        group.append(block)
    return responses


def _is_result(block: Fields) -> bool:
    return bool(block["type"] == "tool_result")


def _sayable(part: Fields) -> Fields:
    """Return the title, the address and the text of a part as one text. If the part has no title,
    address or text, return the part unchanged.
    """
    if kind_of(part) == "image" and type(part.get("source")) is dict:
        return part
    if kind_of(part) == "text":
        return text_part(text_or_empty(part, "text"))
    keys = ("title", "url", "file_path", "text", "file_name", "file_uuid")
    text = "\n".join(part[key] for key in keys if type(part.get(key)) is str and part[key])
    return text_part(text) if text else part


# -- the format ------------------------------------------------------------------------------------


def _matches(record: Any) -> bool:
    if _FILES.is_about(record):
        return "updated_at" in record and "account" in record
    return _is_message(record) and ("content" in record or "text" in record)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=lambda record: _FILES.is_about(record) or _is_message(record),
    expected="a message of Claude.ai with a text under 'uuid', and the 'sender' human or assistant",
    decoder=_Decoder,
    conversation=first_named(_FILES.name_in),
    files=_FILES,
    source_id=member("uuid"),
)
