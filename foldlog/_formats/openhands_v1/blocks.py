"""Convert content: V1 has content blocks, an event has a text or OpenAI's parts."""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import Content


def content_of(blocks: Any) -> Content:
    """Return content blocks as content: a single text as text, several as parts. Only texts and images are kept."""
    if type(blocks) is not list:
        return blocks if type(blocks) is str else ""
    if len(blocks) == 1 and type(blocks[0]) is dict and blocks[0].get("type") == "text":  # as most are
        text = blocks[0].get("text")
        return text if type(text) is str else ""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if type(block) is not dict:
            continue
        if block.get("type") == "text" and type(block.get("text")) is str:
            parts.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "image" and type(block.get("image_urls")) is list:
            urls = (url for url in block["image_urls"] if type(url) is str)
            parts.extend({"type": "image_url", "image_url": {"url": url}} for url in urls)
    if len(parts) == 1 and "text" in parts[0]:
        return str(parts[0]["text"])
    return tuple(parts) if parts else ""


def parts_of(content: Content) -> tuple[dict[str, Any], ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    return content


def blocks_of(content: Content) -> list[dict[str, Any]]:
    """Return content as the blocks that it most likely comes from: images side by side were one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = []
    for part in content:
        if part.get("type") == "image_url":
            url = part["image_url"]["url"]
            if blocks and "image_urls" in blocks[-1]:
                blocks[-1]["image_urls"].append(url)
            else:
                blocks.append({"type": "image", "image_urls": [url]})
        else:
            blocks.append(dict(part))
    return blocks
