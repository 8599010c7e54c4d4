"""Anthropic's content blocks and content: a text is a text, a list of blocks is parts in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.told import data_in, data_url, image_at, parts_in, url_in
from foldlog.eventstore import Content

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that a model has to get back unchanged before the calls that followed them."""

_TEXTS = frozenset(("text", "input_text", "output_text"))
_IMAGES = ("input_image", "computer_screenshot")
_Block = dict[str, Any]


def kind_of(block: Any) -> str | None:
    """Return the type of a content block, or None if the value is not a block."""
    kind = block.get("type") if type(block) is dict else None
    return kind if type(kind) is str else None


def part_of(block: Any) -> _Block | None:
    """Return a text or an image as a part, also one of OpenAI's Responses API; None for any other block."""
    kind = kind_of(block)
    if kind in _TEXTS and type(block.get("text")) is str:
        return {"type": "text", "text": block["text"]}
    source = block.get("source") if kind == "image" else None
    url = block.get("image_url") if kind in _IMAGES else _url_of(source) if type(source) is dict else None
    return None if type(url) is not str else image_at(url)


def is_of_anthropic(block: _Block) -> bool:
    """Return whether only Anthropic's server knows such a block: its type is in lower case, none of those with a
    meaning for each server, and not the name of the field with its content, as in OpenAI's parts.
    """
    kind = kind_of(block)
    if kind is None or kind in _KNOWN or kind in block:
        return False
    return kind.isidentifier() and kind.islower() and not kind.startswith(("input_", "output_"))


def is_of_server(block: _Block) -> bool:
    """Return whether a block is a call that Anthropic's server answers itself, or the result of one."""
    return is_of_anthropic(block) and ("tool_use_id" in block or block.keys() >= _CALL)


_CALL = frozenset(("id", "name", "input"))
_AS_THEY_ARE = frozenset(("document", "search_result", "server_tool", "anthropic"))
"""Types of parts that the dialects know in the form that Anthropic's messages have."""

_KNOWN = _AS_THEY_ARE | THINKING | {"image", "tool_use", "tool_result", "reasoning"}


def known_of(block: Any) -> _Block | None:
    """Return a block that an import knows, a text or an image as a part; None for another one."""
    kind = kind_of(block)
    is_sound = kind in _AS_THEY_ARE and isinstance(block.get("text", ""), str)
    return block if is_sound or kind in (*THINKING, "tool_use") or (kind and is_of_server(block)) else part_of(block)


def with_results(blocks: Iterable[_Block], *, singles: bool = False) -> list[_Block]:
    """Return the blocks of a model's message, with one part for each call that Anthropic's server answered itself and
    its results: the server takes them all back, or none. With ``singles`` each other block of its own is such a part.
    """
    found: dict[Any, _Block] = {}
    for place, block in enumerate(blocks):
        answered, is_own = str(block.get("tool_use_id")), is_of_anthropic(block)
        if is_own and block.keys() >= _CALL:
            found[str(block["id"])] = block
        elif is_own and answered in found:
            both = [*found[answered].get("blocks", [found[answered]]), block]
            told = [{key: value for key, value in each.items() if value is not None} for each in both]
            found[answered] = {"type": "server_tool", "blocks": told}
        else:
            is_single = singles and is_own and "tool_use_id" not in block
            found[place, None] = {"type": "server_tool", "blocks": [block]} if is_single else block
    return list(found.values())


def returned(block: Any) -> Any:
    """Return a block of the user that only Anthropic's server knows as a part that goes back to it as it came."""
    is_own = isinstance(block, dict) and is_of_anthropic(block)
    return {"type": "anthropic", "block": block} if is_own else block


def _url_of(source: dict[str, Any]) -> str | None:
    if source.get("type") == "url":
        url = source.get("url")
        return url if type(url) is str else None
    media_type, data = source.get("media_type"), source.get("data")
    return data_url(media_type, data) if type(media_type) is str and type(data) is str else None


def content_of(blocks: Any) -> Content:
    """Return the content of a user or a tool: a text unchanged; for blocks, their texts and images."""
    if type(blocks) is list:
        return tuple(part for block in blocks if (part := part_of(block)) is not None)
    return blocks if type(blocks) is str else ""


def said_in(content: Any) -> list[_Block]:
    """Return the texts and images of a content, or of one block of it, in the forms that agents keep them in. An empty
    text says nothing; of an image in a file beside the log, its path is a text.
    """
    parts: list[_Block] = []
    for block in content if type(content) is list else [content]:
        match block:
            case str(text) | {"type": "text", "text": str(text)} if text:
                parts.append({"type": "text", "text": text})
            case {"type": "image", "data": str(data)}:
                parts.append(image_at(data_url(block.get("mimeType", block.get("mediaType")), data)))
            case {"type": "image", "image": str(url)}:
                parts.append(image_at(url))
            case {"type": "image", "source": {"path": str(path)}}:
                parts.append({"type": "text", "text": f"[image: {path}]"})
    return parts


def thinking_of(text: str, signature: Any = None) -> _Block:
    """Return what a model thought as a block, with its signature if that is a text."""
    signed = {"signature": signature} if type(signature) is str else {}
    return {"type": "thinking", "thinking": text, **signed}


def said(parts: list[_Block]) -> Content:
    """Return the content of a model's message, which always has blocks: for a single text block, a text."""
    if len(parts) == 1 and "text" in parts[0]:
        text: str = parts[0]["text"]
        return text
    return tuple(parts) if parts else ""


def texts_of(content: Content) -> list[str]:
    """Return the texts of a content."""
    found = [content] if isinstance(content, str) else [part.get("text") for part in content]
    return [text for text in found if isinstance(text, str)]


def given(content: Content) -> str | list[_Block]:
    """Return the content of a user or a tool: a text unchanged, parts as blocks."""
    return content if isinstance(content, str) else blocks_of(content)


def blocks_of(content: Content) -> list[_Block]:
    """Return content as blocks."""
    return [block for part in parts_in(content) for block in _blocks_in(part)]


def _blocks_in(part: _Block) -> list[_Block]:
    match part:
        case {"type": "server_tool", "blocks": list(blocks)}:
            return blocks
        case {"type": "anthropic", "block": dict(block)}:
            return [block]
    return [_image_at(url) if (url := url_in(part)) else dict(part)]


def _image_at(url: str) -> _Block:
    media_type, data = data_in(url)
    held = {"type": "base64", "media_type": media_type, "data": data} if media_type else {"type": "url", "url": url}
    return {"type": "image", "source": held}


def is_blank(content: Content) -> bool:
    """Return whether a model would get no content: Anthropic's models refuse a text of white space."""
    if isinstance(content, str):
        return not content.strip()
    return all(part.get("type") == "text" and not str(part.get("text", "")).strip() for part in content)
