"""Render turns as Anthropic's messages: blocks, results in the user's messages, the system prompt apart."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from foldlog.eventstore import CondensationSummary, Event, SystemMessage
from foldlog.projections.messages.chat import limited_cache_marks, matching, signed, unsaid
from foldlog.projections.messages.content import (
    IMAGE_TYPES,
    PDF,
    File,
    Part,
    data_of,
    image_url_of,
    is_blank,
    named,
    parts_of,
    sendable,
    text_part,
    without_pictures,
)
from foldlog.projections.messages.turns import MessageTurn, PairedCall, Rendered, arguments_of, say

_NAME_MAX = 64


def system_prompt(events: Sequence[Event]) -> str:
    """Return the text of all system prompts among ``events``, in order; empty where there is none."""
    parts = [part for event in events if isinstance(event, SystemMessage) for part in parts_of(event.content)]
    return "\n\n".join((part if part["type"] == "text" else named(part))["text"] for part in parts)


def messages_of(turns: Iterable[MessageTurn]) -> list[Rendered]:
    """Return the messages of ``turns``: user and assistant by turns, the user first."""
    messages: list[Rendered] = []
    for turn in turns:
        if turn.role == "user":
            say(messages, "user", [_block(part) for part in turn.parts], turn.positions)
        if turn.role != "assistant":
            continue
        moved: list[Part] = []
        parts = without_pictures(turn.parts, moved, "what came before", "server_tool")
        blocks = [
            block for part in parts for block in (part["type"] != "text" and part.get("blocks")) or [_block(part)]
        ]
        blocks += map(_tool_use, turn.calls)
        say(messages, "assistant", [*signed(turn), *blocks] if blocks else [], turn.positions)
        for call in turn.calls:
            say(messages, "user", [_tool_result(call, moved)], (call.answered,))
        say(messages, "user", [_block(part) for part in moved], turn.positions)
    return limited_cache_marks(_without_trailing_space(messages))


def cached(messages: list[Rendered], events: Sequence[Event]) -> list[Rendered]:
    """Mark up to where the server is to keep the prompt: the first part and the last summary, which stay where the rest
    is forgotten, the end of the prompt before, and the end.
    """
    answers = [place for place, each in enumerate(messages) if each.message["role"] == "assistant"]
    told = [n for n, (_, of) in enumerate(messages) if any(isinstance(events[at], CondensationSummary) for at in of)]
    before = [max(0, place - 1) for place in answers[-1:]]
    for n, place in enumerate([0, *told[-1:], *before, len(messages) - 1] if messages else ()):
        content = messages[place].message["content"]
        if isinstance(content, list):  # not the words that open a conversation without a beginning
            content[-1 if n else 0]["cache_control"] = {"type": "ephemeral"}
    return limited_cache_marks(messages)


def _without_trailing_space(messages: list[Rendered]) -> list[Rendered]:
    """Cut the white space at the end of a last message of the assistant, which the server refuses."""
    if messages and messages[-1].message["role"] == "assistant":
        last = messages[-1].message["content"][-1]
        last |= {"text": last["text"].rstrip()} if last["type"] == "text" else {}
    return messages


def _block(part: Part) -> Part:
    mark = {"cache_control": part["cache_control"]} if "cache_control" in part else {}
    if part["type"] == "text":
        return {**text_part(part["text"]), **mark}
    if part["type"] == "file":
        return _document(part, mark)
    if part["type"] == "search_result" and isinstance(part.get("content"), list):
        return part
    if part["type"] == "anthropic" and isinstance(part.get("block"), dict):
        return {**part["block"]}  # as it came
    url = image_url_of(part)
    if url is None:
        return named(part)
    media_type, data = data_of(url)
    if not data:
        return {"type": "image", "source": {"type": "url", "url": url}, **mark}
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}, **mark}


def _document(part: Part, mark: Part) -> Part:
    """Return a file as a document. Its server takes PDFs and texts."""
    file: File = part["file"]
    source: Part
    if (text := file.text) is not None and not is_blank(text):
        source = {"type": "text", "media_type": "text/plain", "data": sendable(text)}
    elif file.data and file.media_type == PDF:
        source = {"type": "base64", "media_type": PDF, "data": file.data}
    elif file.data and file.media_type in IMAGE_TYPES:
        return {"type": "image", "source": {"type": "base64", "media_type": file.media_type, "data": file.data}, **mark}
    elif file.url.startswith(("https://", "http://")):
        source = {"type": "url", "url": file.url}
    elif file.id.startswith("file_"):  # other servers give other ids
        source = {"type": "file", "file_id": file.id}
    else:
        return file.named("PDFs, texts, and ids of uploaded files")
    told: Part = {name: part[name] for name in ("context", "citations") if name in part}
    return {"type": "document", "source": source, **({"title": file.name} if file.name else {}), **told, **mark}


def _tool_use(call: PairedCall) -> Part:
    arguments = json.loads(arguments_of(call.action), parse_float=_number, parse_int=_number)
    named_as = {"id": matching(call.id, _NAME_MAX), "name": matching(call.action.tool, _NAME_MAX)}
    return {"type": "tool_use", **named_as, "input": arguments}


def _number(text: str) -> float | str:
    value = float(text)
    return text if math.isinf(value) else value if "." in text or "e" in text.lower() else int(text)


def _tool_result(call: PairedCall, moved: list[Part]) -> Part:
    """Return the result of a call. The result of a failed call may hold only texts: its images and files are moved."""
    failed = call.observation.is_error
    held = without_pictures(call.result, moved, "the failed call") if failed else call.result
    # A result may not put a file into a container: it names the file.
    said = [named(part) if (block := _block(part))["type"] == "container_upload" else block for part in held]
    content = said[0]["text"] if len(said) == 1 and said[0].keys() == {"type", "text"} else said
    result = {"type": "tool_result", "tool_use_id": matching(call.id, _NAME_MAX)}
    return {**result, "content": content or unsaid(call.observation), **({"is_error": True} if failed else {})}
