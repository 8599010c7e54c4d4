"""Anthropic's content blocks and content: a text is a text, a list of blocks is parts in OpenAI's
shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.event_fields import (
    arguments_of,
    call_id_of,
    data_in,
    data_url,
    file_at,
    file_in,
    image_at,
    parts_in,
)
from foldlog._formats.json_text import json_of
from foldlog._formats.record import dict_or_empty, dicts_in, text_or_empty
from foldlog.eventstore import Action, Content, Observation

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that a model has to get back unchanged before the calls that followed them."""

_TEXTS = frozenset(("text", "input_text", "output_text"))
_IMAGES = ("input_image", "computer_screenshot")
_FILES = frozenset(("file", "audio", "video", "text-plain"))
_WHERE = (
    ("media_type", "mime_type", "mimeType", "mediaType", "mime"),
    ("data", "base64"),
    ("url", "image"),
)
HELD = frozenset(("source", "image_url", *_WHERE[0], *_WHERE[1], *_WHERE[2]))
"""The fields with the place of an image."""
_Block = dict[str, Any]


def kind_of(block: Any) -> str | None:
    """Return the type of a content block, or None if the value is not a block."""
    kind = block.get("type") if type(block) is dict else None
    return kind if type(kind) is str else None


def part_of(block: Any) -> _Block | None:
    """Return a text, an image or a file as a part, in whichever of their forms; None for any other
    block.
    """
    part = _part_of(block)
    if part is not None and block.get("cache_control"):
        marked = {"cache_control": block["cache_control"]}
    else:
        marked = {}
    return part and {**part, **marked}


def _part_of(block: Any) -> _Block | None:
    kind = kind_of(block)
    text = block.get("text") if kind in _TEXTS else None
    # as OpenAI's threads have it
    if type(text) is dict:
        text = text.get("value")
    else:
        text = text
    if type(text) is str:
        return {"type": "text", "text": text}
    if kind in _IMAGES:
        return image_at(block["image_url"]) if type(block.get("image_url")) is str else None
    if kind != "image" and kind not in _FILES:
        return None
    held = {**block, **dict_or_empty(block.get("source"))}
    media_type, data, url = (
        next((held[key] for key in keys if type(held.get(key)) is str), "") for keys in _WHERE
    )
    if data and media_type:
        url = data_url(media_type, data)
    elif data:
        url = ""
    else:
        url = url
    name = text_or_empty(held.get("filename"))
    if not url:
        return None
    if kind == "image":
        media_type = "image/"
    return file_at(url, media_type, name)


def shown_of(block: Any) -> _Block | None:
    """Return a text or an image as a part, and a block that is neither as it is, or in a text: none
    is lost. An empty text says nothing.
    """
    part = {"type": "text", "text": block} if type(block) is str else part_of(block)
    if part is not None:
        return part if part.get("text", True) else None
    if kind_of(block) in _TEXTS and not any(block[key] for key in block if key != "type"):
        return None
    match block:
        case {"type": "image", "source": {"path": str(path)}}:
            return {"type": "text", "text": f"[image: {path}]"}
    is_part = kind_of(block) is not None and type(block.get("text", "")) is str
    return block if is_part else {"type": "text", "text": json_of(block).decode()}


def is_of_anthropic(block: _Block) -> bool:
    """Return whether only Anthropic's server knows such a block: its type is in lower case, none of
    those with a meaning for each server, and not the name of the field with its content, as in
    OpenAI's parts.
    """
    kind = kind_of(block)
    if kind is None or kind in _KNOWN or kind in block:
        return False
    return kind.isidentifier() and kind.islower() and not kind.startswith(("input_", "output_"))


def is_of_server(block: _Block) -> bool:
    """Return whether a block is a call that Anthropic's server answers itself, or the result of
    one.
    """
    return is_of_anthropic(block) and ("tool_use_id" in block or block.keys() >= _CALL)


_CALL = frozenset(("id", "name", "input"))
_AS_THEY_ARE = frozenset(("document", "search_result", "server_tool", "anthropic"))
"""Types of parts that the dialects know in the form that Anthropic's messages have."""

_KNOWN = _AS_THEY_ARE | THINKING | {"text", "image", "tool_use", "tool_result", "reasoning"}


def known_of(block: Any) -> _Block | None:
    """Return a block of Anthropic's as an import takes it: see ``shown_of``."""
    kind = kind_of(block)
    return (
        block
        if kind in (*THINKING, "tool_use") or (kind and is_of_server(block))
        else shown_of(block)
    )


def with_results(blocks: Iterable[_Block], *, singles: bool = False) -> list[_Block]:
    """Return the blocks of a model's message, with one part for each call that Anthropic's server
    answered itself and its results: the server takes them all back, or none. With ``singles`` each
    other block of its own is such a part.
    """
    found: dict[Any, _Block] = {}
    for place, block in enumerate(blocks):
        answered = str(block.get("tool_use_id"))
        is_own = is_of_anthropic(block)
        if is_own and block.keys() >= _CALL:
            found[str(block["id"])] = block
        elif is_own and answered in found:
            both = [*found[answered].get("blocks", [found[answered]]), block]
            result_blocks = [
                {key: value for key, value in each.items() if value is not None} for each in both
            ]
            found[answered] = {"type": "server_tool", "blocks": result_blocks}
        else:
            is_single = singles and is_own and "tool_use_id" not in block
            found[place, None] = {"type": "server_tool", "blocks": [block]} if is_single else block
    return list(found.values())


def returned(block: Any) -> Any:
    """Return a block of the user that only Anthropic's server knows as a part that goes back to it
    as it came.
    """
    is_own = isinstance(block, dict) and is_of_anthropic(block)
    return {"type": "anthropic", "block": block} if is_own else block


def content_of(blocks: Any) -> Content:
    """Return the content of a user or a tool: a text unchanged, blocks as parts."""
    if type(blocks) is list:
        return tuple(said_in(blocks))
    return blocks if type(blocks) is str else ""


def said_in(content: Any) -> list[_Block]:
    """Return the parts of a content, or of one block of it."""
    if type(content) is list:
        blocks = content
    elif content is None:
        blocks = []
    else:
        blocks = [content]
    return [part for block in blocks if (part := shown_of(block)) is not None]


def thinking_of(text: str, signature: Any = None, redacted: Any = None) -> _Block:
    """Return what a model thought as a block, with its signature if that is a text; the block that
    only its server can read if ``redacted`` is one.
    """
    if type(redacted) is str:
        return {"type": "redacted_thinking", "data": redacted}
    signed = {"signature": signature} if type(signature) is str else {}
    return {"type": "thinking", "thinking": text, **signed}


def thought_in(block: _Block) -> tuple[str, str]:
    """Return the text of a thinking block or a reasoning item, and its signature; empty texts where
    it has none. A redacted block has only its data, which is returned as a signature.
    """
    if kind_of(block) == "redacted_thinking":
        return "", text_or_empty(block.get("data"))
    texts = (
        text_or_empty(each.get("thinking", each.get("text")))
        for each in (block, *dicts_in(block.get("summary")))
    )
    text = "\n".join(filter(None, texts))
    return text, text_or_empty(block.get("signature")) if text else ""


def said(parts: list[_Block]) -> Content:
    """Return the content of a model's message, which always has blocks: for a single text block, a
    text.
    """
    if len(parts) == 1 and parts[0].keys() <= {"type", "text"} and "text" in parts[0]:
        text: str = parts[0]["text"]
        return text
    return tuple(parts) if parts else ""


def texts_of(content: Content) -> list[str]:
    found = [content] if isinstance(content, str) else [part.get("text") for part in content]
    return [text for text in found if isinstance(text, str)]


def given(content: Content) -> str | list[_Block]:
    """Return the content of a user or a tool: a text unchanged, parts as blocks."""
    return content if isinstance(content, str) else blocks_of(content)


def blocks_of(content: Content) -> list[_Block]:
    return [block for part in parts_in(content) for block in _blocks_in(part)]


def _blocks_in(part: _Block) -> list[_Block]:
    match part:
        case {"type": "server_tool", "blocks": list(blocks)}:
            return blocks
        case {"type": "anthropic", "block": dict(block)}:
            return [block]
    return [_file_at(url) if (url := file_in(part)) else dict(part)]


def _file_at(url: str) -> _Block:
    media_type, data = data_in(url)
    if media_type:
        held = {"type": "base64", "media_type": media_type, "data": data}
    else:
        held = {"type": "url", "url": url}
    return {
        "type": "image" if media_type.startswith("image/") or not media_type else "document",
        "source": held,
    }


def is_blank(content: Content) -> bool:
    """Return whether a model would get no content: Anthropic's models refuse a text of white
    space.
    """
    if isinstance(content, str):
        return not content.strip()
    return all(
        part.get("type") == "text" and "text" in part and not str(part["text"]).strip()
        for part in content
    )


def use_of(action: Action) -> _Block:
    """Return a call as a block."""
    return {
        "type": "tool_use",
        "name": action.tool,
        "input": arguments_of(action),
        "id": call_id_of(action),
    }


def result_of(observation: Observation) -> _Block:
    """Return a result as a block."""
    result = {
        "type": "tool_result",
        "content": given(observation.content),
        "tool_use_id": call_id_of(observation),
    }
    return {**result, "is_error": True} if observation.is_error else result
