"""Convert objects of SDKs to dicts and texts, and contents to the shape of OpenAI's chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foldlog.eventstore import Content, InvalidArgument

Part = dict[str, Any]


def content_of(value: Any) -> Content:
    """Return a text, or parts in the shape of OpenAI's chat; a single text part becomes a text."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    parts = [_part(part) for part in blocks_of(value)]
    if len(parts) == 1 and parts[0].get("type") == "text":
        return text_or_none(parts[0].get("text")) or ""
    return tuple(parts)


def _part(part: Part) -> Part:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            kept = {key: part[key] for key in ("cache_control",) if part.get(key)}
            return {"type": "text", "text": text_or_none(part.get("text")) or "", **kept}
        case "refusal":
            return {"type": "text", "text": text_or_none(part.get("refusal")) or ""}
        case "input_image" if isinstance(part.get("image_url"), str):
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case "image" if isinstance(source := part.get("source"), dict):
            url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
            return {"type": "image_url", "image_url": {"url": url}}
    return part


def joined_contents(contents: Sequence[Content]) -> Content:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents if content)
    parts: list[Part] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return tuple(parts)


def blocks_of(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        part if isinstance(part, dict) else {"type": "text", "text": str(part)}
        for part in (content if isinstance(content, list) else ())
    ]


def dicts_of(values: Any) -> list[Part]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def plain(value: Any) -> Any:
    """Return the value as dicts, lists, texts and numbers. None in the objects of SDKs is left out.

    Raises ``InvalidArgument`` for an object that holds no data, such as a stream.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [plain(each) for each in value]
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if callable(dump):
        return plain(dump(mode="json", warnings=False, exclude_none=True))
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__dict__", None)
    if not fields or isinstance(value, type | Iterator) or hasattr(value, "__aiter__"):
        raise not_a_reply(value)
    return {name: plain(getattr(value, name)) for name in fields if not name.startswith("_")}


def not_a_reply(value: object, found: str = "") -> InvalidArgument:
    """Return the error for an object that is not the reply of a model."""
    found = found or f"an object of type {type(value).__name__}"
    return InvalidArgument(
        f"{found} is not the reply of a model; give a chat completion or one of its messages, a response of OpenAI or "
        f"its items, or an Anthropic message; of a stream, collect the chunks first"
    )
