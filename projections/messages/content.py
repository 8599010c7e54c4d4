"""The content of a message: a text, or parts, each a text, an image or something else, in OpenAI's shape."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from foldlog.eventstore import Content, said

Part = dict[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The media types that both OpenAI's and Anthropic's servers take as images."""


_BEGINNINGS = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def sendable(text: str) -> str:
    """Return the text as it can be sent: half a surrogate pair, which some logs hold, becomes a question mark."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def is_blank(text: str) -> bool:
    """Return whether a text is empty or white space alone. Cost: the white space at its beginning."""
    return not text or text.isspace()


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def named(part: Mapping[str, Any], why: str = "it cannot be sent to this server") -> Part:
    """Return a text in the place of a part that cannot be sent."""
    return text_part(f"[{part.get('type') or 'part'}: {why}]")


def parts_of(content: Content) -> list[Part]:
    """Return copies of the parts of a content, without texts that are only white space."""
    if isinstance(content, str):
        return [] if is_blank(content) else [text_part(sendable(content))]
    parts: list[Part] = []
    for part in content:
        text = part.get("text")
        if part.get("type") == "text" or (isinstance(text, str) and "type" not in part):
            if isinstance(text, str) and not is_blank(text):
                parts.append({**_copied(part), "type": "text", "text": sendable(text)})
        elif part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
            parts += parts_of(part["refusal"])
        elif part.get("type") in ("image", "image_url"):
            parts.append(_image(part))
        elif isinstance(part.get("type"), str):
            parts.append(_copied(part))
        else:
            parts.append(named({}))
    return parts


def words_of(content: Content, between: str = " ") -> str:
    """Return the text of a content. Parts without a text are named."""
    if isinstance(content, str):
        return content
    texts = ((part.get("text"), part.get("type", "part")) for part in content)
    return between.join(text if isinstance(text, str) else f"[{kind}]" for text, kind in texts)


def says_something(content: Content) -> bool:
    """Return whether a message with this content is sent: an empty one is left out."""
    return not is_blank(content) if isinstance(content, str) else bool(parts_of(content))


def _image(part: Mapping[str, Any]) -> Part:
    """Return an image in OpenAI's shape. One in Anthropic's shape is put into it."""
    source = part.get("source")
    if isinstance(source, Mapping):
        url, data = source.get("url"), source.get("data")
        if isinstance(data, bytes) and not isinstance(source.get("media_type"), str):
            url = data
        elif isinstance(data, str | bytes):
            url = f"data:{source.get('media_type')};base64,{_base64(data)}"
        part = {"image_url": {"url": url}}
    image = part.get("image_url")
    image = {"url": image} if isinstance(image, str | bytes) else image
    if isinstance(image, Mapping) and isinstance(image.get("url"), bytes):
        image = {**image, "url": data_url(image["url"])}
    if not isinstance(image, Mapping) or not isinstance(image.get("url"), str) or is_blank(image["url"]):
        return named({"type": "image"}, "the history does not hold it")
    return {"type": "image_url", "image_url": _copied(image)}


def data_url(image: bytes) -> str:
    """Return an image as a URL, its type read from its first bytes."""
    return f"data:{_image_type(image)};base64,{_base64(image)}"


def _copied(part: Mapping[str, Any]) -> Part:
    """Return a copy that JSON can hold: ``data`` that is bytes in base64, as servers take it, other bytes named."""
    return {
        name: _base64(value) if name == "data" and isinstance(value, bytes) else _copied_value(value)
        for name, value in part.items()
    }


def _copied_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _copied(value)
    if isinstance(value, list | tuple):
        return list(map(_copied_value, value))
    return said(value) if isinstance(value, bytes) else value


def _base64(data: str | bytes) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode("ascii")


def _image_type(image: bytes) -> str:
    """Return the media type that the bytes show, of those that servers take; else one that says nothing."""
    if image.startswith(b"RIFF") and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in _BEGINNINGS if image.startswith(begins)), "application/octet-stream")


def image_url_of(part: Mapping[str, Any]) -> str | None:
    """Return the address of an image that a server can read by itself: a web address, or data of a type that it
    accepts.

    None for any other part.
    """
    if part.get("type") != "image_url":
        return None
    url: str = part["image_url"]["url"]
    if url.startswith(("https://", "http://")):
        return url
    return url if data_of(url)[0] in IMAGE_TYPES else None


def data_of(url: str) -> tuple[str, str]:
    """Return the media type and the base64 text of a data URL; two empty texts for any other."""
    head, comma, data = url.partition(";base64,")
    return (head[5:].lower(), data) if comma and head.startswith("data:") and data else ("", "")


def joined(contents: Iterable[str | list[Part]]) -> str | list[Part]:
    """Return several contents as one: parts, unless there is only one."""
    several = list(contents)
    if len(several) == 1:
        return several[0]
    parts: list[Part] = []
    for content in several:
        parts += [text_part(content)] if isinstance(content, str) else content
    return parts
