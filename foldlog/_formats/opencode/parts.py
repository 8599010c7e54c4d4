"""The content of OpenCode's parts, as its model is shown it."""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.record import count_in, dict_or_empty, dicts_in, text_or_empty, usage_told
from foldlog.eventstore import Content

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
_WORDS = {
    "compaction": "What did we do so far?",
    "subtask": "The following tool was executed by the user",
}
"""What OpenCode tells its model in the place of a part or of a result."""
_IN_WORDS = ("text/plain", "application/x-directory")
"""Types of files whose words are texts beside them."""

_Part = dict[str, Any]


def content_of(parts: list[_Part]) -> Content:
    """Return what a user's parts say: a text, if that is all."""
    return said([part for each in parts for part in parts_of(each)])


def parts_of(part: _Part) -> list[_Part]:
    """Return the parts of a content that a part says: one, or none."""
    kind = part.get("type")
    if kind == "text" and type(part.get("text")) is str and part.get("ignored") is not True:
        return [{"type": "text", "text": part["text"]}]
    if type(kind) is str and kind in _WORDS:
        return [{"type": "text", "text": _WORDS[kind]}]
    return [_file(part)] if kind == "file" and type(part.get("url")) is str else []


def _file(part: _Part) -> _Part:
    mime, url, name = text_or_empty(part.get("mime")), part["url"], text_or_empty(part.get("filename"))
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    held = {"file_data": url} if url.startswith("data:") else {"file_url": url}
    return {"type": "file", "file": {"filename": name, **held}}


def is_in_words(part: _Part) -> bool:
    """Return whether a file is said by the texts beside it."""
    return part.get("type") == "file" and part.get("mime") in _IN_WORDS


def result_of(state: _Part) -> tuple[Content, bool]:
    """Return what a model is told of a call, and whether that is an error."""
    status, metadata = state.get("status"), dict_or_empty(state.get("metadata"))
    if status == "completed":
        if dict_or_empty(state.get("time")).get("compacted"):
            return CLEARED, False
        files = [each for each in dicts_in(state.get("attachments")) if type(each.get("url")) is str]
        output = text_or_empty(state.get("output"))
        return (({"type": "text", "text": output}, *map(_file, files)) if files else output), False
    if status == "error":
        told = metadata.get("output") if metadata.get("interrupted") is True else None
        return (told, False) if type(told) is str else (text_or_empty(state.get("error")), True)
    return INTERRUPTED, True


def thinking_of(part: _Part) -> _Part:
    """Return a reasoning as the block that its provider takes back."""
    text, known = text_or_empty(part.get("text")), dict_or_empty(part.get("metadata"))
    anthropic, openai = dict_or_empty(known.get("anthropic")), dict_or_empty(known.get("openai"))
    if type(anthropic.get("redactedData")) is str:
        return {"type": "redacted_thinking", "data": anthropic["redactedData"]}
    if type(anthropic.get("signature")) is str:
        return {"type": "thinking", "thinking": text, "signature": anthropic["signature"]}
    if type(openai.get("itemId")) is str:
        summary = [{"type": "summary_text", "text": text}] if text else []
        encrypted = openai.get("reasoningEncryptedContent")
        item = {"type": "reasoning", "id": openai["itemId"], "summary": summary}
        return {**item, "encrypted_content": encrypted} if type(encrypted) is str else item
    return {"type": "thinking", "thinking": text}


def usage_of(info: _Part, parts: list[_Part]) -> dict[str, Any]:
    """Return the usage of a response: that of its steps, or if none tells it that of the message."""
    steps = [part["tokens"] for part in parts if part.get("type") == "step-finish" and type(part.get("tokens")) is dict]
    told = steps or dicts_in([info.get("tokens")])
    flat = [{**tokens, **dict_or_empty(tokens.get("cache"))} for tokens in told]
    counts = {ours: sum(count_in(each, *theirs) or 0 for each in flat) for ours, theirs in _USAGE.items()}
    return usage_told(counts, model=info.get("modelID"), reply=info.get("id"), cost=info.get("cost"))


_USAGE = {
    "prompt_tokens": ("input", "read", "write"),
    "cached_tokens": ("read",),
    "cache_write_tokens": ("write",),
    "completion_tokens": ("output", "reasoning"),
    "reasoning_tokens": ("reasoning",),
}
