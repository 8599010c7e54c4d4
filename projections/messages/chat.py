"""Render turns as chat completions, for OpenAI's server or for litellm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256

from foldlog.eventstore import Observation
from foldlog.projections.messages.content import (
    File,
    Part,
    image_url_of,
    name_part,
    sendable,
    text_part,
    without_pictures,
)
from foldlog.projections.messages.growing import MessageList
from foldlog.projections.messages.turns import Dialect, MessageTurn, PairedCall, arguments_of

_CALL_ID_MAX = 40
"""The greatest length of a call id that OpenAI's server accepts."""
_NAME_MAX = 64
"""The greatest length of a tool's name that servers accept."""
_CACHE_MARKS_MAX = 4
"""Servers refuse a prompt with more marks for the cache."""
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]+")
_THINKING: Mapping[str, tuple[str, ...]] = {
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}
"""The types of the blocks with thinking, and the fields that each must have. The last field is the
signature, or what takes its place.
"""


def messages_of(turns: Iterable[MessageTurn], dialect: Dialect, *, opening: bool) -> MessageList:
    """Return the messages of the turns. If ``opening``, they open the conversation."""
    plain = dialect != "litellm"
    messages = MessageList(opening=opening and not plain, content_of=partial(_content, plain=plain))
    for turn in turns:
        if turn.role == "user":
            messages.say("user", turn.parts, turn.positions)
            continue
        messages.begin_reply(turn)
        moved: list[Part] = []
        texts = without_pictures(turn.parts, moved, "this message")
        if texts or turn.calls:
            message: Part = {"role": turn.role, "content": texts or None}
            if turn.calls:
                message["tool_calls"] = [_tool_call(call, plain) for call in turn.calls]
            messages.add(message | _thought(turn, dialect), turn.positions)
        moved_from: list[int] = []
        for call in turn.calls:
            before = len(moved)
            messages.add(_result(call, moved, plain), (call.answered,))
            if len(moved) > before:
                moved_from.append(call.answered)
        messages.say("user", moved, tuple(moved_from) or turn.positions)
    return messages


def _content(parts: list[Part] | str | None, plain: bool) -> str | list[Part] | None:
    """Return the content of a message, as one text if possible."""
    # Many simple servers accept parts only in a user's message, so one text is best. The providers
    # of litellm accept marks for the cache only in parts.
    if parts is None or isinstance(parts, str):
        return parts
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    rendered = [_plain_part(part) if plain else _part_of_litellm(part) for part in parts]
    is_text = plain and all(part["type"] == "text" for part in rendered)
    return "\n\n".join(part["text"] for part in rendered) if is_text else rendered


def _tool_call(call: PairedCall, plain: bool) -> Part:
    """Return a call of a chat message. If ``plain``, its id is short enough for every server."""
    function = {
        "name": matching(call.action.tool, _NAME_MAX),
        "arguments": arguments_of(call.action),
    }
    return {
        "id": call_id_of(call, _CALL_ID_MAX if plain else None),
        "type": "function",
        "function": function,
    }


def _thought(turn: MessageTurn, dialect: Dialect) -> Part:
    """Return the fields of a message that hold the model's thinking. Models that think between
    calls must get their thinking back unchanged.
    """
    if dialect == "litellm":
        blocks = signed_blocks(turn.thinking)
        return {"thinking_blocks": blocks} if blocks else {}
    if dialect != "openai-reasoning":
        return {}
    texts = [
        sendable(text)
        for block in turn.thinking
        if isinstance(text := block.get("thinking"), str) and text
    ]
    return {"reasoning_content": "\n".join(texts)} if texts else {}


def _result(call: PairedCall, moved: list[Part], plain: bool) -> Part:
    """Return the message with the result of a call. Images and files that it must not contain are
    added to ``moved``.
    """
    place = f"the result of {sendable(call.action.tool) or 'the call'}"
    holds = "text" if plain else "image_url"
    content = without_pictures(call.result, moved, place, holds) or [
        text_part(text_of_empty_result(call.observation))
    ]
    return {
        "role": "tool",
        "tool_call_id": call_id_of(call, _CALL_ID_MAX if plain else None),
        "content": content,
    }


def text_of_empty_result(observation: Observation) -> str:
    """Return what a message says in place of an empty result. Some servers refuse an empty text,
    and a model would read the empty result of a failed call as a success.
    """
    if observation.is_error:
        return "(it failed and said nothing)"
    return "(no output)"


def call_id_of(call: PairedCall, length_max: int | None) -> str:
    """Return the call id for a server. OpenAI's servers limit the length of ids. litellm puts data
    into some longer ids, which must not change: pass None for litellm.
    """
    call_id = sendable(call.id)
    if length_max is None or len(call_id) <= length_max:
        return call_id
    return _shorten(call_id, length_max)


def matching(name: str, length_max: int) -> str:
    """Return a name or id that servers accept, with only letters, digits, ``_`` and ``-``.
    Different names stay different.
    """
    if _NAME.fullmatch(name) and len(name) <= length_max:
        return name
    if not name:
        return "unnamed"
    return _shorten(_OTHERS.sub("_", name), length_max, name)


def _shorten(text: str, length_max: int, original: str | None = None) -> str:
    """Return the beginning of a text with a hash of ``original``, or of the text itself, so that
    different texts stay different.
    """
    hashed = (text if original is None else original).encode("utf-8", "replace")
    digest = sha256(hashed).hexdigest()[:12]
    return f"{text[: length_max - len(digest) - 1]}_{digest}"


def signed_blocks(thinking: Iterable[Part]) -> list[Part]:
    """Return the blocks with thinking that a model accepts, each with only its own fields."""
    return [
        {key: block[key] for key in keys}
        for block in thinking
        if (keys := _THINKING.get(str(block.get("type")))) and _is_whole(block, keys)
    ]


def _is_whole(block: Part, keys: Sequence[str]) -> bool:
    """Return whether a block has all its fields as texts, and a signature. A model refuses a block
    without its signature.
    """
    values = [block.get(key) for key in keys]
    return bool(values[-1]) and all(
        isinstance(value, str) and sendable(value) == value for value in values
    )


def _plain_part(part: Part) -> Part:
    """Return a part for a server that accepts OpenAI's chat completions."""
    match part["type"]:
        case "text":
            return text_part(part["text"])
        case "image_url" if (url := image_url_of(part)) is not None:
            detail = part["image_url"].get("detail")
            if detail in ("auto", "low", "high"):
                options = {"detail": detail}
            else:
                options = {}
            return {"type": "image_url", "image_url": {"url": url, **options}}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case "file":
            fields = part["file"].of_openai("PDFs, texts and ids of uploaded files")
            if "text" not in fields:
                return {"type": "file", "file": fields}
            return text_part(fields["text"])
    return name_part(part)


def _part_of_litellm(part: Part) -> Part:
    """Return a part for litellm. In litellm's form, a file may have an address instead of an id."""
    if part["type"] != "file":
        if part["type"] in ("text", "image_url", "input_audio", "video_url"):
            return part
        return name_part(part)
    file: File = part["file"]
    if file.data:
        fields = {"file_data": file.data_url}
    else:
        fields = {"file_id": file.url or file.id}
    if file.name:
        fields["filename"] = file.name
    rendered: Part = {"type": "file", "file": fields}
    if "cache_control" in part:
        rendered["cache_control"] = part["cache_control"]
    return rendered


def limit_cache_marks(messages: Iterable[Part]) -> None:
    """Remove the first marks for the prompt cache if there are more than servers accept."""
    contents = (message["content"] for message in messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    for part in [part for part in parts if "cache_control" in part][:-_CACHE_MARKS_MAX]:
        del part["cache_control"]
