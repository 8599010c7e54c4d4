"""Messages of LlamaIndex: the JSON of a ``ChatMessage``, an object with its ``role`` and its
``blocks``.

    {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "hi"}]}

    user                           Message of the user
    assistant, chatbot, model      an Action for every call, all of the same response; a Message of
                                   the agent if there are no calls
    tool, function                 Observation; the call's id is in ``additional_kwargs``
    system, developer              SystemMessage

Calls are blocks of the type ``tool_call``, or ``tool_calls`` in ``additional_kwargs`` in OpenAI's
format. Reading or writing a message needs no other message. This module imports no SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog.adapters._records.parts import file_of
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats.blocks import content_of_parts, thinking_of, thought_in
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    data_in,
    parts_as,
    role_of,
    text_part,
)
from foldlog.formats.format import Format
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    has,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder, thinking_before, thoughts_before

NAME = "llama-index"

_ASSISTANT = ("assistant", "chatbot", "model")
_TOOL = ("tool", "function")
_SYSTEM = ("system", "developer")
_ROLES = frozenset(("user", *_ASSISTANT, *_TOOL, *_SYSTEM))
_has_blocks = has(role=str, blocks=list)


def _accepts(record: Any) -> bool:
    return _has_blocks(record) and record["role"] in _ROLES


class _Decoder(FollowingDecoder):
    keeps_shown = False
    repeat = "events"  # a message has no id, and may be sent twice

    def read(self, collected: RecordEvents, record: Fields) -> None:
        role = record["role"]
        blocks = dicts_in(record["blocks"])
        extra = dict_or_empty(record, "additional_kwargs")
        parts = [part for block in blocks if (part := _part_of(block)) is not None]
        if role in _TOOL:
            collected.answer(
                extra.get("tool_call_id"), content_of_parts(parts), tool=extra.get("name")
            )
        elif role in _SYSTEM:
            collected.add(SystemMessage, content=content_of_parts(parts))
        elif role == "user":
            collected.add(Message, content=content_of_parts(parts), source="user")
        else:
            collected.parts = parts
            collected.thinking = [
                _thought(block) for block in blocks if block.get("block_type") == "thinking"
            ]
            calls = [_call_in(block) for block in blocks if block.get("block_type") == "tool_call"]
            for call in calls or map(_call_of_openai, dicts_in(extra, "tool_calls")):
                collected.call(*call)
            if collected.parts or not collected.events:
                collected.add(
                    Message,
                    content=content_of_parts(collected.parts),
                    source="agent",
                    thinking=tuple(collected.thinking),
                )


def _call_in(block: Fields) -> tuple[Any, Any, Any]:
    """Return the tool, the arguments and the id of the call in a block."""
    return block.get("tool_name"), block.get("tool_kwargs"), block.get("tool_call_id")


def _call_of_openai(call: Fields) -> tuple[Any, Any, Any]:
    """Do as ``_call_in``, for a call in OpenAI's format."""
    function = dict_or_empty(call, "function")
    return function.get("name"), function.get("arguments"), call.get("id")


def _thought(block: Fields) -> Fields:
    signature = within(block, "additional_information", "signature")
    return thinking_of(text_or_empty(block, "content"), signature)


def _part_of(block: Fields) -> Fields | None:
    """Return a block as a content part, or None if it is a thought, a call, or a mark for the
    prompt cache.
    """
    match block:
        case {"block_type": "thinking" | "tool_call" | "cache"}:
            return None
        case {"block_type": "text", "text": str(text)}:
            return text_part(text) if text else None
        case {"block_type": "image", "url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"block_type": "image", "image": str(data)}:
            kind = text_or_none(block, "image_mimetype") or "image/png"
            return file_of({"data": data, "media_type": kind})
        case {"block_type": "document", "data": str(data), "document_mimetype": str(kind)}:
            return file_of({"data": data, "media_type": kind})
    return {**block, "type": text_or_empty(block, "block_type") or "block"}


class _Encoder(RepliesEncoder):
    def records_of(self, events: Sequence[Any]) -> list[Fields]:
        """Return the messages that an application would write for events. A summary becomes a
        message of the user.
        """
        event = events[0]
        calls = [call for call in events if isinstance(call, Action)]
        if isinstance(event, Message):
            thinking = event.thinking
        else:
            thinking = thinking_before(calls)
        blocks = [_thinking_block(*thought_in(thought)) for thought in thinking]
        blocks += parts_as(
            thoughts_before(calls) if calls else event.content, _text_block, _file_block
        )
        for call in calls:
            named = {"tool_call_id": call_id_of(call), "tool_name": call.tool}
            blocks.append({"block_type": "tool_call", **named, "tool_kwargs": arguments_of(call)})
        extra: Fields = {}
        if isinstance(event, Observation):
            extra["tool_call_id"] = call_id_of(event)
            if event.tool:
                extra["name"] = event.tool
        return [{"role": role_of(event), "additional_kwargs": extra, "blocks": blocks}]


def _text_block(text: str) -> Fields:
    return {"block_type": "text", "text": text}


def _file_block(url: str, name: str) -> Fields:
    kind, data = data_in(url)
    if not data:
        return {"block_type": "image", "url": url}
    if kind.startswith("image/"):
        return {"block_type": "image", "image": data, "image_mimetype": kind}
    return {
        "block_type": "document",
        "data": data,
        "document_mimetype": kind,
        "title": name or None,
    }


def _thinking_block(text: str, signature: str) -> Fields:
    extra = {"signature": signature} if signature else {}
    return {"block_type": "thinking", "content": text, "additional_information": extra}


FORMAT = Format(
    name=NAME,
    matches=lambda record: (
        _accepts(record) and all("block_type" in block for block in dicts_in(record["blocks"]))
    ),
    accepts=_accepts,
    expected="a message with a role of LlamaIndex and its blocks",
    decoder=_Decoder,
    encoder=_Encoder,
    source_id=lambda record: None,
    time=None,
)
