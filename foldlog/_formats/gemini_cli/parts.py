"""The content of Gemini's parts, and the usage of a message."""

from __future__ import annotations

import json
from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.record import count_in, dicts_in, text_or_empty, usage_told
from foldlog.eventstore import Content

_Part = dict[str, Any]


def parts_of(content: Any) -> list[_Part]:
    """Return content as parts: it may be a text, a part, or texts and parts."""
    several = content if type(content) is list else [content]
    return dicts_in([{"text": each} if type(each) is str else each for each in several])


def content_of(content: Any) -> Content:
    return said(shown_parts(content))


def shown_parts(content: Any) -> list[_Part]:
    return [shown for part in parts_of(content) if (shown := _shown(part)) is not None]


def _shown(part: _Part) -> _Part | None:
    if type(part.get("text")) is str and part["text"]:
        return {"type": "text", "text": part["text"]}
    held: Any = next((part[key] for key in ("inlineData", "fileData") if type(part.get(key)) is dict), {})
    kind = text_or_empty(held.get("mimeType"))
    if type(held.get("data")) is str:
        url, name = f"data:{kind};base64,{held['data']}", "file_data"
    elif type(held.get("fileUri")) is str:
        url, name = held["fileUri"], "file_url"
    else:
        return None
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "", name: url}}


def thought_of(thought: _Part) -> str:
    subject, description = (text_or_empty(thought.get(key)) for key in ("subject", "description"))
    return f"**{subject}** {description}" if subject else description


def result_of(result: Any) -> tuple[Content, bool]:
    """Return what a model is told of a result, and whether that is an error."""
    told: list[Any] = []
    failed = False
    for part in parts_of(result):
        response = part.get("functionResponse")
        if type(response) is not dict:
            told.append(part)
            continue
        given = response.get("response")
        fields = given if type(given) is dict else {"output": given}
        failed = failed or "error" in fields
        one = next(iter(fields.values())) if len(fields) == 1 and next(iter(fields)) in ("output", "error") else fields
        told += [one if type(one) is str else json.dumps(one, ensure_ascii=False), *dicts_in(response.get("parts"))]
    return content_of(told), failed


def usage_of(record: _Part) -> _Part:
    counts = {ours: count_in(record.get("tokens"), *theirs) for ours, theirs in _USAGE.items()}
    return usage_told(counts, model=record.get("model"), reply=record.get("id"))


_USAGE = {
    "prompt_tokens": ("input", "tool"), "cached_tokens": ("cached",),
    "completion_tokens": ("output", "thoughts"), "reasoning_tokens": ("thoughts",),
}  # fmt: skip
