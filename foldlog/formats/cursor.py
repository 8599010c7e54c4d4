"""Conversations of Cursor's editor and command line, and transcripts of its agents.

    state.vscdb                 database of the editor: for each conversation a list of bubbles, and
                                the bubbles
    store.db                    database of the command line: one conversation; its root lists the
                                messages
    agent-transcripts/….jsonl   lines with texts and calls, mostly without the results

The records, and the events that they become:

    {"bubbleId", "type": 1, "text"}     Message of the user
    {"bubbleId", "type": 2, …}          Message, or an Action with its Observation
                                        (``toolFormerData``); a bubble with thinking belongs to the
                                        next bubble
    {"blob", "message"}                 a message of the command line, in the format of the AI SDK
    {"role", "message": {"content"}}    a line of a transcript, with Anthropic's blocks
    {"type": "turn_ended"}              Annotation

The record of a bubble has only its texts, calls and usage, because Cursor changes all other fields
of a bubble later. The title of a conversation is its name in Cursor. No record contains the title.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from foldlog.eventstore import Message
from foldlog.eventstore.files.open_files import SQLITE
from foldlog.formats.blocks import content_of_parts as content_of_parts, shown_blocks, thinking_of
from foldlog.formats.files.readers import (
    Placed,
    open_read_only,
    parse_line,
    row_named,
    rows_in,
    text_in_cell,
)
from foldlog.formats.format import Contained, FileReader, Format
from foldlog.formats.json_text import json_text, parse_text as parsed_text
from foldlog.formats.messages import spoken
from foldlog.formats.record import (
    Fields,
    Located,
    at,
    dict_or_empty,
    dicts_in,
    first_of,
    has,
    pick,
    text_or_empty,
    text_or_none,
    time_under,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

NAME = "cursor"


_USER = 1
_AGENT = 2
"""The types of bubbles."""
_KEPT = (
    "bubbleId",
    "type",
    "text",
    "thinking",
    "toolFormerData",
    "createdAt",
    "tokenCount",
    "modelInfo",
)
"""The fields of a bubble that its record has."""
_ROLES = ("system", "user", "assistant", "tool")
_FAILED = ("error", "cancelled", "rejected")
_TURN_ENDED = "turn_ended"

_is_bubble = has(bubbleId=str, type=int)
_is_message = has(blob=str, message=dict)
_is_line = has(role=str, message=dict)


# -- files -----------------------------------------------------------------------------------------

_CONVERSATIONS = """SELECT key, value FROM cursorDiskKV
WHERE key >= 'composerData:' AND key < 'composerData;' AND value IS NOT NULL"""
_BUBBLE = "SELECT value FROM cursorDiskKV WHERE key = ?"


class _Databases(FileReader):
    """Reads the databases of the editor and of the command line."""

    def holds(self, path: Path, begin: bytes) -> bool:
        if not begin.startswith(SQLITE):
            return False
        return _is_of_command_line(path) or rows_in(path, f"EXPLAIN {_CONVERSATIONS}") != []

    def histories(self, path: Path) -> Iterator[Contained]:
        if _is_of_command_line(path):
            return _conversation_of_store(path)
        return _conversations_of_editor(path)


def _is_of_command_line(path: Path) -> bool:
    """Return whether a database is of the command line, which has one for each conversation."""
    return (
        path.name == "store.db"
        and rows_in(path, "EXPLAIN SELECT id, data, key, value FROM blobs, meta") != []
    )


def _conversations_of_editor(path: Path) -> Iterator[Contained]:
    """Yield the conversations of the editor, the oldest first."""
    conversations = list[tuple[str, float, str, list[str]]]()
    with open_read_only(path) as database:
        for key, value in database.execute(_CONVERSATIONS):
            fields = dict_or_empty(parsed_text(text_in_cell(value)))
            headers = dicts_in(fields, "fullConversationHeadersOnly")
            bubbles = [item["bubbleId"] for item in headers if type(item.get("bubbleId")) is str]
            created_at = fields.get("createdAt")
            began: float = created_at if isinstance(created_at, int | float) else 0
            if bubbles:
                conversations.append(
                    (
                        text_in_cell(key).partition(":")[2],
                        began,
                        text_or_empty(fields, "name"),
                        bubbles,
                    )
                )
    for name, _, title, bubbles in sorted(conversations, key=lambda item: (item[1], item[0])):
        yield Contained(name, Placed(partial(_bubbles, path, name, bubbles)), title=title)


def _bubbles(path: Path, conversation: str, names: list[str]) -> Iterator[Located]:
    """Yield the bubbles of a conversation with these names."""
    with open_read_only(path) as database:
        for name in names:
            place = f"{path}, bubble {name}"
            row = row_named(database, _BUBBLE, f"bubbleId:{conversation}:{name}")
            if row is None or row[0] is None:
                yield at(place, None, "is listed in its conversation, but is missing")
                continue
            located = parse_line(text_in_cell(row[0]).encode(), 0, 0, place)
            bubble = dict_or_empty(located.value)
            yield located._replace(value=pick(bubble, _KEPT))


def _conversation_of_store(path: Path) -> Iterator[Contained]:
    """Yield the conversation of the command line, if it has messages."""
    with open_read_only(path) as database:
        fields = _about(database)
    root = text_or_empty(fields, "latestRootBlobId")
    if root:
        name = text_or_none(fields, "agentId") or path.absolute().parent.name
        title = text_or_empty(fields, "name")
        yield Contained(name, Placed(partial(_messages, path, root)), title=title)


def _about(database: sqlite3.Connection) -> Fields:
    """Return the fields of the conversation in a ``store.db``. Cursor stores the fields as JSON in
    hexadecimal digits.
    """
    row = database.execute("SELECT value FROM meta WHERE key = '0'").fetchone()
    if row is None:
        return {}
    try:
        return dict_or_empty(parsed_text(bytes.fromhex(text_in_cell(row[0])).decode()))
    except ValueError:
        return {}


def _messages(path: Path, root: str) -> Iterator[Located]:
    """Yield the messages that the root of a conversation lists."""
    with open_read_only(path) as database:

        def blob(name: str) -> bytes | None:
            row = row_named(database, "SELECT data FROM blobs WHERE id = ?", name)
            return bytes(row[0]) if row and type(row[0]) is bytes else None

        root_data = blob(root)
        if root_data is None:
            yield at(
                f"{path}, blob {root}", None, "is the root of its conversation, but is missing"
            )
            return
        for name in _names_of_blobs(root_data):
            place = f"{path}, blob {name}"
            data = blob(name)
            if data is None:
                yield at(place, None, "is listed in its conversation, but is missing")
                continue
            located = parse_line(data, 0, 0, place)
            yield located._replace(value={"blob": name, "message": dict_or_empty(located.value)})


def _names_of_blobs(root: bytes) -> Iterator[str]:
    """Yield the names of the blobs in a root. A root is a message of Protocol Buffers. In a root,
    every field with the number 1 and 32 bytes is the name of a blob.
    """
    offset = 0
    while offset < len(root):
        key, offset = _varint(root, offset)
        field = key >> 3
        match key & 7:  # the type of the field
            case 0:
                _, offset = _varint(root, offset)
            case 1:
                offset += 8
            case 2:
                size, offset = _varint(root, offset)
                if field == 1 and size == 32:
                    yield root[offset : offset + size].hex()
                offset += size
            case 5:
                offset += 4
            case _:
                return


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the number at an offset in a message of Protocol Buffers, and the offset behind it. A
    byte has 7 bits of the number, the lowest first, and a bit that says whether a byte follows. If
    the number does not end within 10 bytes, the offset is the end of the data.
    """
    number = 0
    for place, byte in enumerate(data[offset : offset + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, offset + place + 1
    return number, len(data)


# -- records to events -----------------------------------------------------------------------------


def _accepts(record: Any) -> bool:
    is_end = type(record) is dict and record.get("type") == _TURN_ENDED
    return is_end or _is_bubble(record) or _is_message(record) or _is_line(record)


def _matches(record: Any) -> bool:
    if _is_bubble(record):
        return record["type"] in (_USER, _AGENT)
    if _is_message(record):
        return record["message"].get("role") in _ROLES and "content" in record["message"]
    is_line = _is_line(record) and record.keys().isdisjoint(("type", "content", "uuid"))
    return is_line and record["role"] in _ROLES and type(record["message"].get("content")) is list


class _Decoder(FollowingDecoder):
    """Reads bubbles, messages of the command line, and lines of transcripts."""

    keeps_shown = False
    has_own_ids = True
    repeated = ("thinking",)
    """The thinking of a bubble goes into the event of a later bubble."""

    def set_up(self) -> None:
        self._thoughts: list[Fields] = []
        """The thinking for the next message or call."""

    def read(self, collected: RecordEvents, record: Fields) -> None:
        name = str(record.get("type", "message"))
        if text_or_empty(record, "thinking", "text"):
            name = "reasoning"
        elif "bubbleId" in record:
            name = "bubble"  # its type is a number
        if "bubbleId" in record:
            self._read_bubble(collected, record)
        elif "message" in record:
            message = record["message"]
            role = text_or_none(message, "role") or text_or_empty(record, "role")
            self._read_message(collected, role, message.get("content"))
        collected.close(name, None)

    def _read_bubble(self, collected: RecordEvents, bubble: Fields) -> None:
        """Add the events of a bubble of the editor. Thinking waits for the next bubble of the
        agent.
        """
        text = text_or_empty(bubble, "text")
        if bubble["type"] == _USER:
            self._thoughts = []
            if text:
                collected.add(Message, content=text, source="user")
            return
        if thought := text_or_empty(bubble, "thinking", "text"):
            signature = text_or_none(bubble, "thinking", "signature") or None
            self._thoughts.append(thinking_of(thought, signature))
        tool = bubble.get("toolFormerData")
        if not text and type(tool) is not dict:
            return
        collected.thinking = self._thoughts
        self._thoughts = []
        collected.parts = shown_blocks(text)
        counts = dict_or_empty(bubble, "tokenCount")
        names = {"prompt_tokens": "inputTokens", "completion_tokens": "outputTokens"}
        collected.tell(within(bubble, "modelInfo", "modelName"), None, counts, **names)
        if type(tool) is dict:
            self._read_call(collected, tool)
        collected.say("agent")

    def _read_call(self, collected: RecordEvents, tool: Fields) -> None:
        call_id = text_or_none(tool, "toolCallId") or str(collected.origin.id)
        arguments = tool.get("rawArgs") or tool.get("params")
        collected.call(tool.get("name") or str(tool.get("tool") or ""), arguments, call_id)
        result = tool.get("result")
        status = tool.get("status")
        failed = status in _FAILED
        output = result if result is not None else tool.get("error")
        if output is not None or failed:
            collected.answer(call_id, "" if output is None else json_text(output), is_error=failed)

    def _read_message(self, collected: RecordEvents, role: str, content: Any) -> None:
        """Add the events of a message, whose blocks are of the AI SDK or of Anthropic."""
        blocks = content if type(content) is list else [content]
        for block in blocks:
            match block:
                case {"type": "tool-call" | "tool_use"}:
                    arguments = first_of(block, "args", "input")
                    name = first_of(block, "toolName", "name")
                    call_id = first_of(block, "toolCallId", "id")
                    # a call in a transcript has no id
                    collected.call(name, arguments, call_id or f"call-{collected.version}")
                case {"type": "tool-result" | "tool_result"}:
                    self._read_result(collected, block)
                case {"type": "reasoning" | "thinking"}:
                    thought = text_or_empty(first_of(block, "text", "thinking"))
                    collected.thinking.append(thinking_of(thought))
                case _:
                    collected.parts += shown_blocks(block)
        if role in ("system", "user"):
            parts = collected.parts
            collected.parts = []
            if parts:
                collected.take(spoken(role, content_of_parts(parts)))
        else:
            collected.say("agent")

    def _read_result(self, collected: RecordEvents, block: Fields) -> None:
        """Add a result. A result without an id answers the first open call."""
        call_id = text_or_none(first_of(block, "toolCallId", "tool_use_id"))
        tool = text_or_empty(block, "toolName")
        output = first_of(block, "result", "content")
        if type(output) in (str, list):
            content = content_of_parts(shown_blocks(output))
        else:
            content = json_text(output)
        failed = first_of(block, "isError", "is_error") is True
        first = next((call.call_id for call in self.calls.all()), None)
        collected.answer(call_id or first, content, is_error=failed, tool=tool)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a bubble, a message or a line of a transcript of Cursor",
    decoder=_Decoder,
    files=_Databases(),
    time=lambda record: time_under(record, "createdAt", "timestamp"),
    kept_in=(
        "~/.cursor/projects",
        "~/.cursor/chats",
        "~/.config/Cursor/User/globalStorage",
        "~/Library/Application Support/Cursor/User/globalStorage",
    ),
    source_id=lambda record: text_or_none(within(record, "bubbleId") or within(record, "blob")),
)
