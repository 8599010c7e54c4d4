"""Convert Anthropic's content blocks into the content of an event, and back. A text stays a text. A
list of blocks becomes parts in OpenAI's format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from foldlog.eventstore import Action, Content, Observation
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    data_in,
    data_url,
    file_at,
    file_in,
    image_at,
    parts_in,
    text_part,
)
from foldlog.formats.json_text import json_of
from foldlog.formats.record import Fields, dict_or_empty, dicts_in, first_of, text_or_empty

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of thinking blocks. A program must send a thinking block back to the model unchanged,
before the calls that followed the thinking.
"""

_TEXTS = frozenset(("text", "input_text", "output_text"))
"""Types of blocks with a text."""
_IMAGES = ("input_image", "computer_screenshot")
_FILES = frozenset(("file", "audio", "video", "text-plain"))
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType", "mediaType", "mime")
_DATA = ("data", "base64")
_URLS = ("url", "image")
FILE_FIELDS = frozenset(("source", "image_url", *_MEDIA_TYPES, *_DATA, *_URLS))
"""The fields of blocks with the data or the address of a file."""


def kind_of(block: Any) -> str | None:
    """Return the type of a block, or None if it has none."""
    kind = block.get("type") if type(block) is dict else None
    return kind if type(kind) is str else None


def part_of(block: Any) -> Fields | None:
    """Return a text, an image or a file of any provider as a part. Return None if the block has no
    text, image or file.
    """
    part = _part_of(block)
    if part is not None and block.get("cache_control"):
        return {**part, "cache_control": block["cache_control"]}
    return part


def _part_of(block: Any) -> Fields | None:
    """Return a block as a part without the mark of a cache, or None."""
    kind = kind_of(block)
    text = block.get("text") if kind in _TEXTS else None
    # OpenAI's threads hold the text in an object
    if type(text) is dict:
        text = text.get("value")
    if type(text) is str:
        return {"type": "text", "text": text}
    if kind in _IMAGES:
        return image_at(block["image_url"]) if type(block.get("image_url")) is str else None
    if kind != "image" and kind not in _FILES:
        return None
    held = {**block, **dict_or_empty(block, "source")}
    media_type = _first_text(held, _MEDIA_TYPES)
    data = _first_text(held, _DATA)
    url = _first_text(held, _URLS)
    if data and media_type:
        url = data_url(media_type, data)
    elif data:
        url = ""
    name = text_or_empty(held, "filename")
    if not url:
        return None
    if kind == "image":
        media_type = "image/"
    return file_at(url, media_type, name)


def _first_text(fields: Fields, keys: Sequence[str]) -> str:
    """Return the first text under one of the keys, or an empty text."""
    return next((fields[key] for key in keys if type(fields.get(key)) is str), "")


def shown_of(block: Any) -> Fields | None:
    """Return a block as a part. A text, an image or a file becomes a part. A block of another kind
    stays unchanged or becomes a text with its JSON. Return None for an empty text.
    """
    part = text_part(block) if type(block) is str else part_of(block)
    if part is not None:
        return part if part.get("text", True) else None
    if kind_of(block) in _TEXTS and not any(block[key] for key in block if key != "type"):
        return None
    match block:
        case {"type": "image", "source": {"path": str(path)}}:
            return {"type": "text", "text": f"[image: {path}]"}
    is_part = kind_of(block) is not None and type(block.get("text", "")) is str
    return block if is_part else text_part(json_of(block).decode())


def is_of_anthropic(block: Fields) -> bool:
    """Return whether only Anthropic's server knows the type of a block. Anthropic writes the types
    of its blocks in lower case. Unlike OpenAI's parts, a block of Anthropic has no field with the
    name of its type.
    """
    kind = kind_of(block)
    if kind is None or kind in _KNOWN or kind in block:
        return False
    return kind.isidentifier() and kind.islower() and not kind.startswith(("input_", "output_"))


def is_of_server(block: Fields) -> bool:
    """Return whether a block holds a call that Anthropic's server made itself, or the result of
    such a call.
    """
    return is_of_anthropic(block) and ("tool_use_id" in block or block.keys() >= _CALL)


_CALL = frozenset(("id", "name", "input"))
"""The fields of a call."""
_AS_THEY_ARE = frozenset(("document", "search_result", "server_tool", "anthropic"))
"""The types of parts that look the same in an event and in Anthropic's messages."""

_KNOWN = _AS_THEY_ARE | THINKING | {"text", "image", "tool_use", "tool_result", "reasoning"}


def accepted_block(block: Any) -> Fields | None:
    """Return a block in the form that ``MessageReader`` accepts. Blocks with thinking or a call
    stay unchanged. ``shown_of`` converts all other blocks.
    """
    kind = kind_of(block)
    if kind is None:
        return shown_of(block)
    if kind == "tool_use" or kind in THINKING or is_of_server(block):
        accepted: Fields = block
        return accepted
    return shown_of(block)


def with_results(blocks: Iterable[Fields], *, singles: bool = False) -> list[Fields]:
    """Return the blocks of a model's message. A call that Anthropic's server answered becomes one
    part together with all its results, because the server refuses a call if a result is missing. If
    ``singles`` is true, every other block that only Anthropic's server knows becomes a part of its
    own.
    """
    block_by_id: dict[Any, Fields] = {}
    for place, block in enumerate(blocks):
        answered = str(block.get("tool_use_id"))
        is_own = is_of_anthropic(block)
        if is_own and block.keys() >= _CALL:
            block_by_id[str(block["id"])] = block
        elif is_own and answered in block_by_id:
            both = [*block_by_id[answered].get("blocks", [block_by_id[answered]]), block]
            result_blocks = [
                {key: value for key, value in fields.items() if value is not None}
                for fields in both
            ]
            block_by_id[answered] = {"type": "server_tool", "blocks": result_blocks}
        else:
            is_single = singles and is_own and "tool_use_id" not in block
            alone = {"type": "server_tool", "blocks": [block]} if is_single else block
            block_by_id[place, None] = alone  # no id of a call is such a key
    return list(block_by_id.values())


def wrap_server_block(block: Any) -> Any:
    """Wrap a user's block in a part if only Anthropic's server knows the block. An encoder sends
    the wrapped block back unchanged. All other blocks are returned unchanged.
    """
    is_own = isinstance(block, dict) and is_of_anthropic(block)
    return {"type": "anthropic", "block": block} if is_own else block


def content_of(blocks: Any) -> Content:
    """Convert the content of a message or a result for an event. A text stays a text, and blocks
    become parts.
    """
    if type(blocks) is list:
        return tuple(shown_blocks(blocks))
    return blocks if type(blocks) is str else ""


def shown_blocks(content: Any) -> list[Fields]:
    """Return the blocks of a content as parts, without empty texts."""
    if type(content) is list:
        blocks = content
    elif content is None:
        blocks = []
    else:
        blocks = [content]
    return [part for block in blocks if (part := shown_of(block)) is not None]


def thinking_of(text: str, signature: Any = None, redacted: Any = None) -> Fields:
    """Return a model's thinking as a block. The block has ``signature`` only if the signature is a
    text. If ``redacted`` is a text, the block holds only this text: the encrypted thinking.
    """
    if type(redacted) is str:
        return {"type": "redacted_thinking", "data": redacted}
    signed = {"signature": signature} if type(signature) is str else {}
    return {"type": "thinking", "thinking": text, **signed}


def thought_in(block: Fields) -> tuple[str, str]:
    """Return the text and the signature of a thinking block or a reasoning item. The text or the
    signature may be empty. The signature of a redacted block is its encrypted data.
    """
    if kind_of(block) == "redacted_thinking":
        return "", text_or_empty(block, "data")
    texts = (
        text_or_empty(first_of(holder, "thinking", "text"))
        for holder in (block, *dicts_in(block, "summary"))
    )
    text = "\n".join(filter(None, texts))
    return text, text_or_empty(block, "signature") if text else ""


def content_of_parts(parts: list[Fields]) -> Content:
    """Return the parts of a model's message as content. A single text block becomes a text."""
    if len(parts) == 1 and parts[0].keys() <= {"type", "text"} and "text" in parts[0]:
        text: str = parts[0]["text"]
        return text
    return tuple(parts) if parts else ""


def texts_of(content: Content) -> list[str]:
    """Return the texts in a content."""
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    return [text for text in texts if isinstance(text, str)]


def as_anthropic(content: Content) -> str | list[Fields]:
    """Return the content of a message or a result in Anthropic's format. A text stays a text, and
    parts become blocks.
    """
    return content if isinstance(content, str) else blocks_of(content)


def blocks_of(content: Content) -> list[Fields]:
    """Return a content as Anthropic's blocks."""
    return [block for part in parts_in(content) for block in _blocks_in(part)]


def _blocks_in(part: Fields) -> list[Fields]:
    """Return the blocks of a part. A part that wraps blocks of the server has these."""
    match part:
        case {"type": "server_tool", "blocks": list(blocks)}:
            return blocks
        case {"type": "anthropic", "block": dict(block)}:
            return [block]
    url = file_in(part)
    return [_file_at(url)] if url else [dict(part)]


def _file_at(url: str) -> Fields:
    """Return the block of a file. An address without a media type is that of an image."""
    media_type, data = data_in(url)
    if not media_type:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {
        "type": "image" if media_type.startswith("image/") else "document",
        "source": {"type": "base64", "media_type": media_type, "data": data},
    }


def is_blank(content: Content) -> bool:
    """Return whether the content is only white space, which Anthropic's server refuses."""
    if isinstance(content, str):
        return not content.strip()
    return all(
        part.get("type") == "text" and "text" in part and not str(part["text"]).strip()
        for part in content
    )


def use_of(action: Action) -> Fields:
    """Return the block of a call."""
    return {
        "type": "tool_use",
        "name": action.tool,
        "input": arguments_of(action),
        "id": call_id_of(action),
    }


def result_of(observation: Observation) -> Fields:
    """Return the block of a result."""
    result = {
        "type": "tool_result",
        "content": as_anthropic(observation.content),
        "tool_use_id": call_id_of(observation),
    }
    return {**result, "is_error": True} if observation.is_error else result
