"""Convert contents between OpenHands V1 and events. V1 has content blocks. An event has a text or
OpenAI's parts.

The content of an observation is the text that the model gets: the text of ``to_llm_content`` in the
OpenHands SDK.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foldlog.eventstore import Content
from foldlog.formats.blocks import content_of_parts, kind_of, shown_blocks
from foldlog.formats.event_fields import image_at, parts_in, text_part, url_in
from foldlog.formats.openhands_v0.memory import text_of_ending
from foldlog.formats.record import Fields, dicts_in, joined_text, omit, text_or_empty

_TEXT_KEYS = ("content", "output", "stdout", "message")
"""The fields of an observation that may have the text for the model."""
_TERMINALS = frozenset(("TerminalObservation", "ExecuteBashObservation"))
_FAILED = "[An error occurred during execution.]\n"
"""What the SDK puts in front of a failed result."""
_COMMAND_FAILED = "[There was an error during command execution.]\n"
"""The first releases put this text in front of a result with ``error``."""


def content_of(blocks: Any) -> Content:
    """Return blocks as the content of an event."""
    if type(blocks) is not list:
        return blocks if type(blocks) is str else ""
    parts: list[Fields] = []
    for block in dicts_in(blocks):
        if block.get("type") == "image" and type(block.get("image_urls")) is list:
            parts.extend(image_at(url) for url in block["image_urls"] if type(url) is str)
        else:
            parts += shown_blocks(block)
    return content_of_parts(parts)


def blocks_of(content: Content) -> list[Fields]:
    """Return content as blocks. Consecutive images become one block, because V1 writes several
    images into one block.
    """
    blocks: list[Fields] = []
    for part in parts_in(content):
        url = url_in(part)
        if not url:
            blocks.append(dict(part))
        elif blocks and "image_urls" in blocks[-1]:
            blocks[-1]["image_urls"].append(url)
        else:
            blocks.append({"type": "image", "image_urls": [url]})
    return blocks


def observation_content(observation: Fields) -> tuple[Content, Fields, bool]:
    """Return the content of an observation, its further fields, and whether the observation is an
    error.

    The first releases of V1 mark an error with ``error``, either a text or true. Later releases
    mark an error with ``is_error``.
    """
    content, rest = _said(observation)
    metadata = observation.get("metadata")
    error = observation.get("error")
    is_error = observation.get("is_error") is True
    if type(error) is str and error and not content:
        return error, rest, True
    if type(metadata) is dict and text_or_empty(observation, "kind") in _TERMINALS:
        marker = _COMMAND_FAILED if error is True else ""
        prefix = text_or_empty(metadata, "prefix")
        suffix = text_or_empty(metadata, "suffix")
        output = joined_text(content)
        # the prefix belongs to the output, so the SDK writes its error marker before the prefix
        content = f"{marker}{prefix}{output}{suffix}{text_of_ending(metadata)}"
    if is_error:
        content = (text_part(_FAILED), *parts_in(content))
    return content, rest, is_error or error is True


def _said(observation: Fields) -> tuple[Content, Fields]:
    """Return what an observation tells the model, and its further fields. Without a field for the
    model, the model gets the whole observation.
    """
    for key in _TEXT_KEYS:
        value = observation.get(key)
        if type(value) is str or (type(value) is list and None not in map(kind_of, value)):
            content = value if type(value) is str else content_of(value)
            return content, omit(observation, key)
    try:
        content = msgspec.json.encode(observation).decode()
    except (ValueError, RecursionError):
        return "", observation  # strict JSON cannot hold a lone surrogate
    return content, {}
