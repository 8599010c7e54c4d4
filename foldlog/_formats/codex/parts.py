"""Convert content: Codex has typed parts, an event has a text or OpenAI's parts."""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import part_of, said
from foldlog._formats.record import text_or_empty
from foldlog._formats.told import parts_as
from foldlog.eventstore import Content


def content_of(parts: Any) -> Content:
    """Return parts as content: a single text as text, several as parts. Only texts and images are kept."""
    return (
        said([part for each in parts if (part := part_of(each)) is not None])
        if type(parts) is list
        else text_or_empty(parts)
    )


def parts_of(content: Content, text_type: str) -> list[dict[str, Any]]:
    """Return content as parts of Codex."""
    return parts_as(
        content, lambda text: {"type": text_type, "text": text}, lambda url: {"type": "input_image", "image_url": url}
    )


def texts_in(parts: Any) -> list[str]:
    """Return the texts among the parts of a message, a summary or a content."""
    found = (part.get("text") for part in parts if type(part) is dict) if type(parts) is list else ()
    return [text for text in found if type(text) is str]


def place_of_summary(history: list[Any], message: str) -> int | None:
    """Return the index of the summary in a replacement history: the last message with one text that ends with
    ``message``.
    """
    if not message:
        return None
    for place in range(len(history) - 1, -1, -1):
        item = history[place]
        if type(item) is dict and item.get("type") == "message":
            content = item.get("content")
            if type(content) is list and len(content) == 1 and "".join(texts_in(content)).endswith(message):
                return place
    return None
