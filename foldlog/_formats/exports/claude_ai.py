"""Exports of Claude.ai: ``conversations.json``, in which each conversation has ``chat_messages``.

The records are the messages, and at the end the conversation without them; its ``chat_messages`` are their ids, where
these stand in another order.

    human           Message: what was typed, the words of attached files, the names of other files
    assistant       the events of Anthropic's blocks: texts, thinking, calls with their results
    the conversation    Annotation with its title

Since 2025 a message names the one before it (``parent_message_uuid``), and a conversation may name its newest message
(``current_leaf_message_uuid``). Otherwise the branch of the newest message is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.anthropic_messages.reading import AnthropicDecoder
from foldlog._formats.blocks import blocks_of, kind_of
from foldlog._formats.exports.trees import PREVIOUS, Exports, InTree, Kind, Record, TreeDecoder, TreeEncoder, in_order
from foldlog._formats.format import LOOK_AT, Format, Options
from foldlog._formats.record import NotAnEvent, read_time, text_or_empty, time_text
from foldlog.eventstore import Action, Annotation, Event, Message, Observation, Origin

NAME = "claude-ai"

_NEWEST = "current_leaf_message_uuid"
_SENDERS = {"human": "user", "assistant": "assistant"}


# -- the file ---------------------------------------------------------------------------------------------------------


def _is_conversation(value: Any) -> bool:
    messages = value.get("chat_messages") if type(value) is dict else None
    return type(messages) is list and type(value.get("uuid")) is str and all(type(each) is dict for each in messages)


def _records(conversation: Record) -> list[Record]:
    """Return the messages and the conversation; none where it has no message."""
    messages = {_text(each.get("uuid")): each for each in conversation["chat_messages"]}
    about = {key: value for key, value in conversation.items() if key != "chat_messages"}
    if None in messages or len(messages) < len(conversation["chat_messages"]):
        return [*conversation["chat_messages"], about]
    parents: dict[str, str | None] = {}
    before: str | None = None
    for name, message in messages.items():
        parents[str(name)] = _text(message.get("parent_message_uuid", before))
        before = name
    ordered = in_order(parents, {name: read_time(messages[name].get("created_at"))[0] for name in parents})
    other = {} if ordered == list(messages) else {"chat_messages": list(messages)}
    return [*(messages[name] for name in ordered), {**about, **other}] if messages else []


def _document(records: Iterable[Any]) -> list[Record]:
    """Return the content of a file with one conversation. Claude.ai cannot import it; foldlog can."""
    messages: list[Record] = []
    about: Record = {"uuid": "", "name": ""}
    for record in records:
        if _is_about(record):
            about = record
        else:
            messages.append(record)
            about = {**about, **({_NEWEST: record.get("uuid")} if _NEWEST in about else {})}
    order = {name: place for place, name in enumerate(about.get("chat_messages", ()))}
    messages.sort(key=lambda message: order.get(message.get("uuid"), len(order)))
    return [{**about, "chat_messages": messages}]


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


# -- records to events ------------------------------------------------------------------------------------------------


def _is_about(record: Any) -> bool:
    """Return whether a record is that of a conversation."""
    return type(record) is dict and "sender" not in record and {"uuid", "name"} <= record.keys()


def _place(record: Record) -> InTree | None:
    """Return the place of a message, None for the conversation. Raises ``NotAnEvent``."""
    if _is_about(record):
        return None
    if type(record.get("uuid")) is not str or _text(record.get("sender")) not in _SENDERS:
        raise NotAnEvent("a message of Claude.ai has a text under 'uuid', and the 'sender' human or assistant")
    return InTree(record["uuid"], record.get("parent_message_uuid", PREVIOUS))


class _Decoder(TreeDecoder):
    format = NAME

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._blocks = AnthropicDecoder(options)

    def place_of(self, record: Record) -> InTree | None:
        return _place(record)

    def about(self, record: Record) -> tuple[Any, Any]:
        return record.get("name"), record.get(_NEWEST)

    def read(self, record: Record) -> list[Event]:
        events: list[Event] = []
        for response in _responses(_blocks(record), record["uuid"]):
            self._blocks.next_id = self.next_id + len(events)
            read = self._blocks.events({"role": _SENDERS[record["sender"]], "content": response})
            events += (event for event in read if type(event) is not Annotation)
        timestamp, time = read_time(record.get("created_at"))
        for place, event in enumerate(events):
            origin = Origin(format=NAME, id=None if place else record["uuid"], time=time)
            force_setattr(event, "origin", origin)  # no other code has it before it is returned
            force_setattr(event, "timestamp", timestamp)
        return events


def _blocks(record: Record) -> list[Record]:
    """Return what a message says, as Anthropic's blocks."""
    content = record.get("content")
    said = [block for block in content if kind_of(block)] if type(content) is list else []
    said = said or [{"type": "text", "text": text_or_empty(record.get("text"))}]
    attached: list[str] = []
    for each in _dicts(record.get("attachments")):
        text, name = text_or_empty(each.get("extracted_content")), text_or_empty(each.get("file_name"))
        attached.append(f"{name}\n{text}" if name and text else text or f"[file {name}]")
    attached += (f"[file {text_or_empty(each.get('file_name'))}]" for each in _dicts(record.get("files")))
    return [*({"type": "text", "text": text} for text in attached), *said]


def _dicts(value: Any) -> list[Record]:
    return [each for each in value if type(each) is dict] if type(value) is list else []


def _responses(blocks: list[Record], name: str) -> list[list[Record]]:
    """Return the blocks of each response of the model, and of the results after it. A call without an id gets one."""
    responses: list[list[Record]] = [[]]
    last = ""
    for place, block in enumerate(blocks):
        match block["type"]:
            case "tool_use":
                last = text_or_empty(block.get("id")) or f"{name}:{place}"
                block = {**block, "id": last}
            case "tool_result":
                content = block.get("content")
                said = [_sayable(each) for each in _dicts(content)] if type(content) is list else content
                block = {**block, "tool_use_id": text_or_empty(block.get("tool_use_id")) or last, "content": said}
            case "thinking":
                block = {key: block[key] for key in ("type", "thinking", "signature") if key in block}
            case "text":
                block = {"type": "text", "text": text_or_empty(block.get("text"))}
            case "voice_note":
                block = _sayable(block)
            case _:
                continue
        if responses[-1] and (block["type"] == "tool_result") != (responses[-1][-1]["type"] == "tool_result"):
            responses.append([])
        responses[-1].append(block)
    return responses


def _sayable(part: Record) -> Record:
    """Return a part of a result as a text: what it says, with its title and its place."""
    if kind_of(part) == "image" and type(part.get("source")) is dict:
        return part
    keys = ("text",) if kind_of(part) == "text" else ("title", "url", "file_path", "text", "file_name", "file_uuid")
    return {"type": "text", "text": "\n".join(part[key] for key in keys if type(part.get(key)) is str and part[key])}


# -- events to records ------------------------------------------------------------------------------------------------


def _written(event: Any, name: str, parent: str | None) -> list[Record]:
    match event:
        case Action():
            given = event.arguments if isinstance(event.arguments, dict) else {"input": event.arguments}
            call = {"type": "tool_use", "id": event.call_id or name, "name": event.tool, "input": given}
            blocks = [*blocks_of(event.thought), call]
        case Observation():
            call_id = event.call_id or f"event-{event.cause}"
            result = {"type": "tool_result", "tool_use_id": call_id, "name": event.tool, "is_error": event.is_error}
            blocks = [{**result, "content": blocks_of(event.content)}]
        case _:
            blocks = blocks_of(event.content)
    is_agent = isinstance(event, Action | Observation) or (isinstance(event, Message) and event.source == "agent")
    record = {
        "uuid": name,
        "text": "\n".join(block["text"] for block in blocks if type(block.get("text")) is str),
        "content": blocks,
        "sender": "assistant" if is_agent else "human",
        "created_at": time_text(event.timestamp, event.origin),
        "attachments": [],
        "files": [],
    }
    return [record if parent is None else {**record, "parent_message_uuid": parent}]


# -- the format -------------------------------------------------------------------------------------------------------


def _matches(record: Any) -> bool:
    """Return whether a record is a message with what it says, or the conversation with its account."""
    if _is_about(record):
        return "updated_at" in record and "account" in record
    return _accepts(record) and ("content" in record or "text" in record)


def _accepts(record: Any) -> bool:
    try:
        return type(record) is dict and (_place(record) is None or True)
    except NotAnEvent:
        return False


def _conversation(records: Iterable[Any]) -> str | None:
    return next((_text(record["uuid"]) for record in islice(records, LOOK_AT) if _is_about(record)), None)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    decoder=lambda records, options: _Decoder(options),
    encoder=lambda: TreeEncoder(_written, _place),
    conversation=_conversation,
    files=Exports(
        Kind(
            keys=(frozenset(("uuid", "chat_messages")), frozenset(("uuid", "name", "summary"))),
            has=_is_conversation,
            name=lambda conversation: _text(conversation.get("uuid")),
            records=_records,
        )
    ),
    rewritten=True,
    document=_document,
    source_id=lambda record: record.get("uuid") if type(record) is dict else None,
)
