"""Convert content: V1 has content blocks, an event has a text or OpenAI's parts."""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.record import dicts_in
from foldlog._formats.told import parts_in, url_in
from foldlog.eventstore import Content


def content_of(blocks: Any) -> Content:
    """Return content blocks as content: a single text as text, several as parts. Only texts and images are kept."""
    if type(blocks) is not list:
        return blocks if type(blocks) is str else ""
    if len(blocks) == 1 and type(blocks[0]) is dict and blocks[0].get("type") == "text":  # as most are
        text = blocks[0].get("text")
        return text if type(text) is str else ""
    parts: list[dict[str, Any]] = []
    for block in dicts_in(blocks):
        if block.get("type") == "text" and type(block.get("text")) is str:
            parts.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "image" and type(block.get("image_urls")) is list:
            urls = (url for url in block["image_urls"] if type(url) is str)
            parts.extend({"type": "image_url", "image_url": {"url": url}} for url in urls)
    return said(parts)


def blocks_of(content: Content) -> list[dict[str, Any]]:
    """Return content as the blocks that it most likely comes from: images side by side were one block."""
    blocks: list[dict[str, Any]] = []
    for part in parts_in(content):
        if not (url := url_in(part)):
            blocks.append(dict(part))
        elif blocks and "image_urls" in blocks[-1]:
            blocks[-1]["image_urls"].append(url)
        else:
            blocks.append({"type": "image", "image_urls": [url]})
    return blocks
