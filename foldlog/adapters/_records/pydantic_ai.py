"""Messages of pydantic-ai, in the format of its ``ModelMessagesTypeAdapter``: requests and
responses that are made of parts.

    {"parts": [{"content": "hi", …, "part_kind": "user-prompt"}], …, "kind": "request"}

Each part becomes one event, as in ``parts.py``:

    system-prompt                   SystemMessage
    user-prompt                     Message from the user
    a summary in a request          Message from the user, because models get it as the user's
    text                            Message from the agent
    tool-call                       Action; all calls of a response have the same ``response_id``
    tool-return, retry-prompt       Observation; a retry that answers no call is a Message from
                                    the environment
    thinking                        Annotation that stays with the next part of its response
    any other part                  Annotation
    no parts                        Annotation

The adapter adds ``entry_id`` and ``parent_id``, which link the messages of a conversation. Bytes in
arguments and results of tools are ``{"$bytes": base64}``.
"""

from __future__ import annotations

from typing import Any

from foldlog.adapters._records.parts import (
    Made,
    PartsFormat,
    annotation,
    call_of,
    file_of,
    record_id,
    result_of,
    text_of,
    thought,
)
from foldlog.eventstore import Action, Annotation, Content, Message, Observation, SystemMessage
from foldlog.formats.event_fields import (
    REDACTED,
    call_id_of,
    data_in,
    file_in,
    image_at,
    parts_as,
    role_of,
    stamp_of,
    text_part,
)
from foldlog.formats.record import (
    Fields,
    SourceTime,
    has,
    joined_text,
    member,
    omit,
    read_time,
    text_or_empty,
    usage_meta,
    within,
)
from foldlog.projections import arguments_of

_NO_USAGE: Fields = {
    "input_tokens": 0,
    "cache_write_tokens": 0,
    "cache_write_1h_tokens": 0,
    "cache_read_tokens": 0,
    "output_tokens": 0,
    "output_reasoning_tokens": 0,
    "input_audio_tokens": 0,
    "cache_audio_read_tokens": 0,
    "output_audio_tokens": 0,
    "audio_seconds": 0,
    "details": {},
    "cost": None,
}
"""The usage of a response, in the SDK's order, if it is not known."""
_AFTER_PARTS: dict[str, Fields] = {
    "request": {
        "timestamp": None,
        "instructions": None,
        "kind": "request",
        "run_id": None,
        "conversation_id": None,
        "metadata": None,
        "state": "complete",
    },
    "response": {
        "usage": _NO_USAGE,
        "model_name": None,
        "model_id": None,
        "kind": "response",
        "provider_name": None,
        "provider_url": None,
        "canonical_system": None,
        "provider_details": None,
        "provider_response_id": None,
        "finish_reason": None,
        "run_id": None,
        "conversation_id": None,
        "metadata": None,
        "workspace_ref": None,
        "history_digest": None,
        "failed_attempts": None,
        "state": "complete",
    },
}
"""The fields that follow the parts of a message, in the SDK's order and with the SDK's default
values.
"""
_REDACTED = ("redacted_thinking", "redacted_content")
"""The ids of redacted thinking from Anthropic's server and from Bedrock."""
_UNSAID = dict.fromkeys(("id", "provider_name", "provider_details"), None)
"""Fields of a part of a response that foldlog does not know."""


_is_message = has(parts=list)
_is_part = has(part_kind=str)


def _accepts(record: Any) -> bool:
    return (
        _is_message(record)
        and record.get("kind") in ("request", "response")
        and all(map(_is_part, record["parts"]))
    )


def _read(part: Fields | None, record: Fields) -> Made:
    part = part or {"part_kind": record["kind"]}
    name = part["part_kind"]
    kind = record["kind"]
    content = part.get("content")
    tool = part.get("tool_name")
    if kind == "request":
        if name == "system-prompt" and type(content) is str:
            return SystemMessage, {"content": content}
        if name == "user-prompt" or (name == "compaction" and type(content) is str):
            return Message, {"content": _shown(content), "source": "user"}
        if (
            name in ("tool-return", "retry-prompt")
            and type(tool) is str
            and type(part.get("tool_call_id")) is str
        ):
            failed = name == "retry-prompt" or part.get("outcome", "success") != "success"
            items = content if type(content) is list else [content]
            result_parts = [_file(item) or text_part(text_of(item)) for item in items]
            return result_of(
                part["tool_call_id"], content, is_error=failed, tool=tool, parts=result_parts
            )
        if name == "retry-prompt":
            return Message, {"content": text_of(content)}
    elif name == "text" and type(content) is str:
        return Message, {"content": content}
    elif name == "thinking" and (
        content or (part.get("id") in _REDACTED and _is_of_claude(part, record))
    ):
        if _is_of_claude(part, record):
            signature = part.get("signature")
        else:
            signature = None
        return thought(content, signature, is_redacted=not content)
    elif name == "tool-call" and type(tool) is str:
        return call_of(tool, part.get("args"), part.get("tool_call_id"))
    data = omit(part, "part_kind", "timestamp")
    return annotation(name, data, shown=name != kind)


def _is_of_claude(part: Fields, record: Fields) -> bool:
    """Return whether Anthropic's server made the signature of a part, directly or through Bedrock.

    A response of 2025 does not name the server that made its signatures.
    """
    provider = part.get("provider_name")
    system = record.get("canonical_system")
    is_claude = system == "anthropic" or (
        system is None and "claude" in text_or_empty(record, "model_name")
    )
    return bool(part.get("signature")) and (
        provider == "anthropic" or (provider == "bedrock" and is_claude)
    )


def _time(record: Fields, part: Fields | None, place: int) -> SourceTime:
    """Return the time of a part. The first part of a response may have the time of the response."""
    time = read_time(within(part, "timestamp"))
    if not place and time[0] is None and record["kind"] == "response":
        return read_time(record.get("timestamp"))
    return time


def _shown(content: Any) -> Content:
    """Return the content of a user's message: a text, or texts and files. An item that is neither
    text nor file, such as audio, becomes a text with its kind and its media type.
    """
    if type(content) is list:
        return tuple(map(_shown_item, content))
    return text_of(content)


def _shown_item(item: Any) -> Fields:
    if type(item) is dict and type(item.get("kind")) is str and item["kind"] != "text":
        return _file(item) or {
            "type": "text",
            "text": f"({item['kind']} {item.get('media_type', '')})",
        }
    return text_part(text_of(item))


def _file(item: Any) -> Fields | None:
    kind = within(item, "kind")
    url = within(item, "url")
    if kind == "image-url" and type(url) is str:
        return image_at(url)
    return file_of(item) if kind == "binary" else None


def _written(event: Any, parts: list[Any]) -> Fields:
    is_response = role_of(event) == "assistant"
    record = {
        "parts": parts,
        **_AFTER_PARTS["response" if is_response else "request"],
        **record_id("entry_id", event),
    }
    # To a response without a time, the SDK gives the time at which it reads the response.
    return record | stamp_of(event) if is_response else record


def _part(event: Any) -> Fields:
    time = stamp_of(event)
    match event:
        case SystemMessage():
            other = {
                "dynamic_ref": None,
                "context_id": None,
                "scope": "conversation",
                "metadata": None,
            }
            return {
                "content": joined_text(event.content),
                **time,
                **other,
                "part_kind": "system-prompt",
            }
        case Message(source="agent"):
            return {
                "content": joined_text(event.content),
                **_UNSAID,
                "citations": None,
                "part_kind": "text",
            }
        case Action():
            call = {
                "tool_name": event.tool,
                "args": arguments_of(event),
                "tool_call_id": call_id_of(event),
            }
            return {**call, "tool_kind": None, **_UNSAID, "part_kind": "tool-call"}
        case Observation():
            result: Any = joined_text(event.content)
            if not isinstance(event.content, str) and any(map(file_in, event.content)):
                result = [
                    _item(url) if (url := file_in(part)) else part.get("text", part)
                    for part in event.content
                ]
            fields = {
                "tool_name": event.tool,
                "content": result,
                "tool_call_id": call_id_of(event),
                "tool_kind": None,
            }
            outcome = {"outcome": "failed" if event.is_error else "success", "retry": None}
            return {
                **fields,
                "metadata": None,
                **time,
                **outcome,
                "part_kind": "tool-return",
                "content_file_digests": [],
            }
    content = (
        event.content if isinstance(event.content, str) else parts_as(event.content, str, _item)
    )
    return {"content": content, **time, "part_kind": "user-prompt"}


def _thought(text: str, signed: str) -> Fields:
    by = {"signature": signed, "provider_name": "anthropic"} if signed else {"signature": None}
    redacted = {} if text else {"id": _REDACTED[0]}
    return {"content": text, **_UNSAID, **redacted, **by, "part_kind": "thinking"}


def _again(event: Annotation) -> list[Any]:
    """Return the part from which an annotation was made, or a text part if the annotation is
    redacted.
    """
    if isinstance(event.data, dict):
        return [{**event.data, "part_kind": event.name}]
    return [
        {"content": REDACTED, "part_kind": "text" if event.source == "agent" else "user-prompt"}
    ]


def _item(url: str, _name: str = "") -> Any:
    media_type, data = data_in(url)
    if media_type:
        return {"data": data, "media_type": media_type, "vendor_metadata": None, "kind": "binary"}
    return {"url": url, "force_download": False, "vendor_metadata": None, "kind": "image-url"}


def _usage_in(record: Fields) -> Fields:
    """Return the usage of a response. The input tokens of pydantic-ai include cached tokens."""
    usage = record.get("usage")
    reply = record.get("provider_response_id")
    return usage_meta(
        usage, model=record.get("model_name"), reply=reply, cost=within(usage, "cost")
    )


FORMAT = PartsFormat(
    name="pydantic-ai",
    accepts=_accepts,
    matches=lambda record: _accepts(record) and bool(record["parts"]),
    source_id=member("entry_id"),
    expected="a request or a response with parts that name their part_kind",
    noun="response",
    parts=("parts",),
    source=lambda record: "agent" if record["kind"] == "response" else "environment",
    read=_read,
    part=lambda event: [_part(event)],
    thought=_thought,
    written=_written,
    again=_again,
    response=member("provider_response_id"),
    part_time=_time,
    usage=_usage_in,
)
