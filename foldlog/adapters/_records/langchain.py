"""Messages of LangChain, in the format of ``message_to_dict``: an object with the ``type`` and the
``data`` of a message.

    human, ai, chat, function             Message from the user, the agent or the environment
    a chunk of these types                Message
    system, and chat with role system     SystemMessage
    ai with tool calls                    an Action for every call, all of the same response; the
                                          text is the thought
    tool                                  Observation
    any other type, such as remove        Annotation that no View shows

LangChain accepts any role in a chat message. A message with an unknown role, such as ``critic``,
comes from the environment. In an export to another format, such a message has the role of the user.

To read or write a message, no other message is needed, so any part of a history can be written.
Unknown keys of a message are stored too. ``foldlog.adapters.langgraph`` adds a key for values that
JSON cannot represent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from foldlog.eventstore import Action, Annotation, Content, Message, Observation, SystemMessage
from foldlog.formats.blocks import shown_blocks, thinking_of
from foldlog.formats.event_fields import arguments_of, call_id_of, id_of_source, parts_in, role_of
from foldlog.formats.format import Format
from foldlog.formats.messages import ROLES, spoken
from foldlog.formats.record import (
    Fields,
    NotAnEvent,
    describe_type,
    dicts_in,
    has,
    member,
    text_or_empty,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder, thinking_before, thoughts_before

NAME = "langchain"

_CHUNK = "MessageChunk"
_KINDS = {
    "AI": "ai",
    "Human": "human",
    "System": "system",
    "Tool": "tool",
    "Chat": "chat",
    "Function": "function",
}
_SPOKEN = ("human", "ai", "chat", "function")
_ROLES = {"human": "user", "ai": "assistant"}
_TYPES = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
_CALLS = frozenset(("tool_call", "tool_call_chunk", "tool_use", "function_call"))
"""The types of blocks that only repeat the calls in ``tool_calls``."""


def _kind(named: str) -> str:
    """Return the type of a message. For a chunk, return the type of the whole message."""
    if named.endswith(_CHUNK):
        return _KINDS.get(named.removesuffix(_CHUNK), named)
    return named


_accepts = has(type=str, data=dict)
_names_tool = has(name=str, args=dict)


def _matches(record: Any) -> bool:
    """Return whether ``record`` is certainly a message of LangChain."""
    if not _accepts(record):
        return False
    data = record["data"]
    is_known = _kind(record["type"]) in (*_TYPES.values(), *_SPOKEN) or "additional_kwargs" in data
    return "content" in data and is_known and data.get("type") == record["type"]


class _Decoder(FollowingDecoder):
    """Reads a message, in which each call becomes an event of its own."""

    keeps_shown = False

    def read(self, collected: RecordEvents, record: Fields) -> None:
        kind = _kind(record["type"])
        data = record["data"]
        model = within(data, "response_metadata", "model_name")
        collected.meta = usage_meta(data.get("usage_metadata"), model=model)
        if kind not in (*_SPOKEN, "system", "tool"):
            collected.add(Annotation, name=record["type"], data=data)
            return
        calls = data.get("tool_calls") if kind == "ai" else None
        if type(calls) is not list or not all(map(_is_call, calls)):
            calls = []
        content = data.get("content")
        invalid = dicts_in(data, "invalid_tool_calls")
        if invalid:
            # LangChain could not parse the arguments of these calls, so no tool runs and no result
            # comes. An Action would wait for an Observation forever. So these calls become parts of
            # the content.
            blocks = content if type(content) is list else [content]
            content = [*blocks, *(call for call in invalid if call not in blocks)]
        content, thinking = _content_and_thinking(
            content, _CALLS if calls else (), thinks=kind == "ai"
        )
        if calls:
            collected.response = None
            if len(calls) > 1:
                collected.response = text_or_empty(data, "id") or f"response-{self.next_id}"
            for call in calls:
                collected.thinking = list(thinking)
                collected.call(call["name"], call["args"], call["id"], content)
                # Only the first call has the thinking and the text of the message.
                thinking = ()
                content = ""
        elif kind == "tool":
            failed = data.get("status") == "error"
            collected.answer(
                data.get("tool_call_id"), content, is_error=failed, tool=data.get("name")
            )
        elif kind == "system":
            collected.add(SystemMessage, content=content)
        else:
            role = data.get("role") if kind == "chat" else kind
            if type(role) is not str:
                raise NotAnEvent(
                    f"expected a message with a text under 'role', found {describe_type(role)}"
                )
            role = _ROLES.get(role, role)
            event = spoken(role if role in ROLES else "environment", content)
            collected.take(
                replace(event, thinking=thinking) if isinstance(event, Message) else event
            )


def _is_call(call: Any) -> bool:
    return _names_tool(call) and "id" in call and (call["id"] is None or type(call["id"]) is str)


def _content_and_thinking(
    content: Any, kinds: Collection[str], *, thinks: bool
) -> tuple[Content, tuple[Fields, ...]]:
    """Return the content and the thinking blocks of a message. Blocks of the types ``kinds`` are
    removed from the content.
    """
    if type(content) is not list:
        return text_or_empty(content), ()
    parts: list[Fields] = []
    thinking: list[Fields] = []
    for block in content:
        match block:
            case {"type": str(kind)} if kind in kinds:
                pass
            case {"type": "reasoning", "reasoning": str(text)} if thinks:
                thinking.append(thinking_of(text, within(block, "extras", "signature")))
            case {"type": "thinking" | "redacted_thinking" | "reasoning"} if thinks:
                thinking.append(block)
            case {"type": "image_url", "image_url": {"url": str()} as image}:
                parts.append({"type": "image_url", "image_url": image})
            case _:
                parts += shown_blocks(block)
    return tuple(parts) or "", tuple(thinking)


class _Encoder(RepliesEncoder):
    def records_of(self, events: Sequence[Any]) -> list[Fields]:
        """Convert events into the messages that a LangChain application would store for them. A
        summary becomes a message of the user.
        """
        event = events[0]
        calls = [call for call in events if isinstance(call, Action)]
        content = thoughts_before(calls) if calls else event.content
        if isinstance(event, Message):
            thinking = event.thinking
        else:
            thinking = thinking_before(calls)
        kind = _TYPES[role_of(event)]
        if isinstance(event, Message) and event.source == "environment":
            kind = "chat"
        data: Fields = {
            "content": [*thinking, *parts_in(content)]
            if thinking or not isinstance(content, str)
            else content,
            "additional_kwargs": {},
            "response_metadata": {},
            "type": kind,
            "name": (event.tool or None) if isinstance(event, Observation) else None,
            "id": id_of_source(event),
        }
        if kind == "ai":
            data |= {"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None}
        if calls:
            named = ((call, {"name": call.tool, "args": arguments_of(call)}) for call in calls)
            data["tool_calls"] = [
                {**fields, "id": call_id_of(call), "type": "tool_call"} for call, fields in named
            ]
        elif isinstance(event, Observation):
            status = "error" if event.is_error else "success"
            data |= {"tool_call_id": call_id_of(event), "artifact": None, "status": status}
        elif kind == "chat":
            data["role"] = "environment"
        return [{"type": kind, "data": data}]


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a message with a text under 'type' and an object under 'data'",
    decoder=_Decoder,
    encoder=_Encoder,
    source_id=member("data", "id"),
    time=None,
)
