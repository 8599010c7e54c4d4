"""Convert content: Codex has typed parts, an event has a text or OpenAI's parts."""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import Content

_TEXTS = ("input_text", "output_text")


def content_of(parts: Any) -> Content:
    """Return parts as content: a single text as text, several as parts. Only texts and images are kept."""
    if type(parts) is not list:
        return parts if type(parts) is str else ""
    content: list[dict[str, Any]] = []
    for part in parts:
        if type(part) is not dict:
            continue
        if part.get("type") in _TEXTS and type(part.get("text")) is str:
            content.append({"type": "text", "text": part["text"]})
        elif part.get("type") == "input_image" and type(part.get("image_url")) is str:
            content.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
    if len(content) == 1 and "text" in content[0]:
        text: str = content[0]["text"]
        return text
    return tuple(content) if content else ""


def parts_of(content: Content, text_type: str) -> list[dict[str, Any]]:
    """Return content as the parts that it most likely comes from."""
    if isinstance(content, str):
        return [{"type": text_type, "text": content}]
    return [
        {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part.get("type") == "image_url"
        else {**part, "type": text_type}
        for part in content
    ]


def texts_in(parts: Any) -> list[str]:
    """Return the texts among the parts of a message, a summary or a content."""
    found = (part.get("text") for part in parts if type(part) is dict) if type(parts) is list else ()
    return [text for text in found if type(text) is str]


def text_of(parts: Any) -> str:
    return "".join(texts_in(parts))


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
            if type(content) is list and len(content) == 1 and text_of(content).endswith(message):
                return place
    return None
