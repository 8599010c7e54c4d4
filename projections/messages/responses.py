"""Render turns as the ``input`` of OpenAI's Responses API. The items of the ``input`` are messages,
calls, results and the model's reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.eventstore import Action
from foldlog.projections.messages.chat import call_id_of, matching, text_of_empty_result
from foldlog.projections.messages.content import (
    Part,
    copy_part,
    image_url_of,
    name_part,
    sendable,
    without_pictures,
)
from foldlog.projections.messages.growing import MessageList
from foldlog.projections.messages.turns import MessageTurn, PairedCall, arguments_of

_CALL_ID_MAX = 64
_NAME_MAX = 64
"""The greatest lengths of a call id and of a tool's name that the server accepts."""
_COMPACTION = ("type", "id", "encrypted_content")
"""The fields of a compaction that are sent."""
_REASONING = ("type", "id", "summary", "content", "encrypted_content")
"""The fields of an item with reasoning that are sent."""


def messages_of(turns: Iterable[MessageTurn]) -> MessageList:
    """Return the items of the turns. All items of a response come before the results of its
    calls.
    """
    items = MessageList()
    for turn in turns:
        if turn.role == "user":
            items.say("user", [_input(part) for part in turn.parts], turn.positions)
            continue
        items.begin_reply(turn)
        moved: list[Part] = []
        for part in turn.parts:
            if part["type"] == "compaction":
                items.add(
                    {key: part[key] for key in _COMPACTION if part.get(key) is not None},
                    turn.positions,
                )
        for call in turn.calls:
            for item in (
                *_reasoning(call.thinking),
                *_message_of("assistant", call.thought, moved),
                _call(call),
            ):
                items.add(item, call.positions)
        thought = [block for call in turn.calls for block in call.thinking]
        words_of_calls = [part for call in turn.calls for part in call.thought]
        if words := _message_of(turn.role, turn.parts[len(words_of_calls) :], moved):
            for item in (*_reasoning(turn.thinking[len(thought) :]), *words):
                items.add(item, turn.positions)
        for call in turn.calls:
            items.add(_result(call), (call.answered,))
        items.say("user", [_input(part) for part in moved], turn.positions)
    return items


def _message_of(role: str, parts: list[Part], moved: list[Part]) -> list[Part]:
    """Return the message with the parts as its only item, or no item if there are no texts. A
    message of the model may contain only texts, so its images and files are added to ``moved``. A
    compaction is a separate item.
    """
    own = [part for part in parts if part["type"] != "compaction"]
    texts = [part["text"] for part in without_pictures(own, moved, "this message")]
    return [{"role": role, "content": "\n\n".join(texts)}] if texts else []


def _reasoning(thinking: Iterable[Part]) -> list[Part]:
    """Return the items with reasoning. The server accepts them only with an id and a summary."""
    return [
        copy_part({key: item[key] for key in _REASONING if item.get(key) is not None})
        for item in thinking
        if item.get("type") == "reasoning"
        and isinstance(item.get("id"), str)
        and isinstance(item.get("summary"), list)
    ]


def _input_of_custom_tool(action: Action) -> str | None:
    """Return the text that is the input of a custom tool. Return None for a call of a function."""
    arguments = action.arguments if "custom_tool" in action.meta else None
    if isinstance(arguments, dict) and isinstance(arguments.get("input"), str):
        return sendable(arguments["input"])
    return None


def _call(call: PairedCall) -> Part:
    """Return the item with a call."""
    id_and_name = {
        "call_id": call_id_of(call, _CALL_ID_MAX),
        "name": matching(call.action.tool, _NAME_MAX),
    }
    if (text := _input_of_custom_tool(call.action)) is not None:
        return {"type": "custom_tool_call", **id_and_name, "input": text}
    return {"type": "function_call", **id_and_name, "arguments": arguments_of(call.action)}


def _result(call: PairedCall) -> Part:
    """Return the item with the result of a call, as one text if possible."""
    parts = [_input(part) for part in call.result] or [
        {"type": "input_text", "text": text_of_empty_result(call.observation)}
    ]
    output = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
    if _input_of_custom_tool(call.action) is None:
        kind = "function_call_output"
    else:
        kind = "custom_tool_call_output"
    return {"type": kind, "call_id": call_id_of(call, _CALL_ID_MAX), "output": output}


def _input(part: Part) -> Part:
    """Return a part of a user's message or of a result."""
    if part["type"] == "image_url" and (url := image_url_of(part)) is not None:
        detail = part["image_url"].get("detail")
        return {
            "type": "input_image",
            "image_url": url,
            "detail": detail if detail in ("low", "high") else "auto",
        }
    if part["type"] == "file":
        fields = part["file"].of_openai(
            "documents, web addresses and ids of its own", any_type=True
        )
        return {"type": "input_text" if "text" in fields else "input_file", **fields}
    shown = part if part["type"] == "text" else name_part(part)
    return {"type": "input_text", "text": shown["text"]}
