"""Messages of Strands Agents, in the format of a session repository's ``SessionMessage``. A message
has a list of contents.

    {"message": {"role": "user", "content": [{"text": "hi"}]}, "message_id": 0,
     "redact_message": null, …}

Each content becomes one event, as in ``parts.py``:

    text                 Message from the user or the agent
    toolUse              Action; all calls of a message have the same ``response_id``
    toolResult           Observation
    image, document      Message, if its bytes are present
    reasoningContent     Annotation that stays with the next content of its message
    any other content    Annotation
    no contents          Annotation

Bytes are ``{"__bytes_encoded__": true, "data": base64}``, as in the SDK.
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
from foldlog.eventstore import Action, Message, Observation
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    data_in,
    parts_as,
    role_of,
    text_part,
)
from foldlog.formats.messages import drop_empty
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    first_of,
    has,
    member,
    read_time,
    text_or_none,
    time_text,
    usage_meta,
    within,
)

_USAGE = {
    "prompt_tokens": "inputTokens",
    "cached_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheWriteInputTokens",
    "completion_tokens": "outputTokens",
    "total_tokens": "totalTokens",  # the total includes cached tokens, the input does not
}
_is_numbered = has(message=dict, message_id=int)
_is_message = has(content=list)


def _accepts(record: Any) -> bool:
    if not _is_numbered(record) or not _is_message(record["message"]):
        return False
    contents = record["message"]["content"]
    return record["message"].get("role") in ("user", "assistant") and all(
        type(content) is dict and content for content in contents
    )


def _read(content: Fields | None, record: Fields) -> Made:
    content = content or {"message": None}
    name, inside = next(iter(content.items()))
    if name == "text" and type(inside) is str:
        return Message, {"content": inside}
    fields = dict_or_empty(inside)
    call_id = fields.get("toolUseId")
    if name == "toolUse" and type(fields.get("name")) is str:
        return call_of(fields["name"], fields.get("input"), call_id)
    if name == "toolResult" and type(call_id) is str:
        items = dicts_in(fields, "content")
        values = (first_of(item, "text", "json") for item in items)
        texts = [
            text_of(item if value is None else value)
            for item, value in zip(items, values, strict=True)
        ]
        result_parts = [
            _file(item) or text_part(text) for item, text in zip(items, texts, strict=True)
        ]
        return result_of(
            call_id,
            "\n\n".join(texts),
            is_error=fields.get("status") == "error",
            parts=result_parts,
        )
    if (file := _file(content)) is not None:
        return Message, {"content": (file,)}
    if name == "reasoningContent" and (block := dict_or_empty(fields, "reasoningText")):
        return thought(block.get("text"), block.get("signature"))
    if name == "reasoningContent" and (data := text_or_none(fields, "redactedContent", "data")):
        return thought("", data, is_redacted=True)
    return annotation(name, content)


def _file(content: Fields) -> Fields | None:
    name, inside = next(iter(content.items()), ("", None))
    fields = dict_or_empty(inside)
    kinds = {"image": "image", "document": "application"}
    data = within(fields, "source", "bytes", "data")
    if name in kinds:
        return file_of({"data": data, "media_type": f"{kinds[name]}/{fields.get('format')}"})
    return None


def _written(event: Any, parts: list[Any]) -> Fields:
    time = time_text(event.timestamp, event.origin) or ""
    role = "assistant" if role_of(event) == "assistant" else "user"
    message = {"role": role, "content": parts, **record_id("tracking_id", event)}
    identity = {"message_id": max(event.id, 0), "redact_message": None}
    return {"message": message, **identity, "created_at": time, "updated_at": time}


def _contents(event: Any) -> list[Fields]:
    if isinstance(event, Action):
        return [
            {
                "toolUse": {
                    "toolUseId": call_id_of(event),
                    "name": event.tool,
                    "input": arguments_of(event),
                }
            }
        ]
    contents = [
        part for part in parts_as(event.content, lambda text: {"text": text}, _written_file) if part
    ]
    if not isinstance(event, Observation):
        return contents
    status = "error" if event.is_error else "success"
    return [{"toolResult": {"toolUseId": call_id_of(event), "status": status, "content": contents}}]


def _written_file(url: str, _name: str) -> Fields:
    media_type, data = data_in(url)
    if not data:  # a file of Strands always has its bytes
        return {}
    kind, _, name = media_type.partition("/")
    file = {"format": name, "source": {"bytes": {"__bytes_encoded__": True, "data": data}}}
    if kind == "image":
        return {"image": file}
    return {"document": {"name": "file", **file}}


def _thought(text: str, signed: str) -> Fields:
    if text:
        return {
            "reasoningContent": {"reasoningText": drop_empty({"text": text, "signature": signed})}
        }
    return {"reasoningContent": {"redactedContent": {"__bytes_encoded__": True, "data": signed}}}


FORMAT = PartsFormat(
    name="strands",
    accepts=_accepts,
    matches=lambda record: _accepts(record) and "redact_message" in record,
    source_id=member("message", "tracking_id"),
    time=lambda record: read_time(record.get("created_at")),
    expected="a message with a message_id, a role and contents",
    noun="message",
    parts=("message", "content"),
    source=lambda record: "user" if record["message"]["role"] == "user" else "agent",
    read=_read,
    part=_contents,
    thought=_thought,
    written=_written,
    usage=lambda record: usage_meta(within(record["message"], "metadata", "usage"), _USAGE),
)
