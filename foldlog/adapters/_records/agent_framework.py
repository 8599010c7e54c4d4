"""Messages of Microsoft's Agent Framework, in the format of ``message.to_dict()``. A message has a
list of contents.

    {"type": "message", "role": "user", "contents": [{"type": "text", "text": "hi", …}],
     "additional_properties": {}}

Each content becomes one event, as in ``parts.py``:

    text                 Message from the user or the agent; a SystemMessage if the role is system
                         or developer
    function_call        Action; all calls of a message have the same ``response_id``
    function_result      Observation
    data, uri            Message with the image, or with another file if its bytes are present
    text_reasoning       Annotation that stays with the next content of its message
    any other content    Annotation
    no contents          Annotation
"""

from __future__ import annotations

from typing import Any

from foldlog.adapters._records.parts import (
    Made,
    PartsFormat,
    annotation,
    call_of,
    record_id,
    result_of,
    text_of,
    thought,
)
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats.event_fields import call_id_of, data_in, file_at, parts_as, role_of, text_part
from foldlog.formats.messages import SPEAKERS, drop_empty
from foldlog.formats.record import (
    Fields,
    dicts_in,
    has,
    joined_text,
    member,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.projections import arguments_of

_KINDS = ("message", "chat_message")


_is_message = has(contents=list)
_is_content = has(type=str)


def _role(record: Fields) -> str | None:
    """Return the role of a message. In 2025, the SDK wrote the role as an object."""
    return text_or_none(within(record, "role", "value") or record.get("role"))


def _accepts(record: Any) -> bool:
    is_message = _is_message(record) and _role(record) is not None and record.get("type") in _KINDS
    return is_message and all(map(_is_content, record["contents"]))


def _read(content: Fields | None, record: Fields) -> Made:
    content = content or {"type": "message"}
    name = content["type"]
    text = content.get("text")
    if name == "text" and type(text) is str:
        return SystemMessage if _role(record) in ("system", "developer") else Message, {
            "content": text
        }
    if name == "function_call" and type(content.get("name")) is str:
        return call_of(content["name"], content.get("arguments"), content.get("call_id"))
    if name == "function_result" and type(content.get("call_id")) is str:
        failed = content.get("exception") is not None
        items = dicts_in(content, "items")
        result_parts = [
            _file(item) or {"type": "text", "text": text_of(item.get("text"))} for item in items
        ]
        return result_of(
            content["call_id"], content.get("result"), is_error=failed, parts=result_parts
        )
    if (file := _file(content)) is not None:
        return Message, {"content": (file,)}
    signature = text_or_empty(content, "protected_data")
    # OpenAI's server writes this value as JSON text.
    signed = None if signature.startswith(("{", "[")) else signature or None
    if name == "text_reasoning":
        return thought(text, signed)
    return annotation(name, content)


def _file(content: Fields) -> Fields | None:
    url = text_or_empty(content, "uri")
    kind = text_or_empty(content, "media_type")
    if data_in(url)[1] or (url and kind.startswith("image/")):
        return file_at(url, kind)
    return None


def _written(event: Any, parts: list[Any]) -> Fields:
    contents = [{**content, "additional_properties": {}} for content in parts]
    record: Fields = {
        "type": "message",
        "role": role_of(event),
        "contents": contents,
        "additional_properties": {},
    }
    return record | record_id("message_id", event)


def _contents(event: Any) -> list[Fields]:
    if isinstance(event, Action):
        call = {"call_id": call_id_of(event), "name": event.tool, "arguments": arguments_of(event)}
        return [{"type": "function_call", **call}]
    if isinstance(event, SystemMessage):
        content = joined_text(event.content)
    else:
        content = event.content
    parts = parts_as(content, lambda text: text_part(text), _written_file)
    if not isinstance(event, Observation):
        return parts
    failed = {"exception": "FunctionInvocationError"} if event.is_error else {}
    items = {"items": parts} if any("uri" in part for part in parts) else {}
    result = {"call_id": call_id_of(event), **failed, "result": joined_text(event.content), **items}
    return [{"type": "function_result", **result}]


def _written_file(url: str, _name: str) -> Fields:
    media_type = data_in(url)[0]
    return {
        "type": "data" if media_type else "uri",
        "uri": url,
        "media_type": media_type or "image/*",
    }


FORMAT = PartsFormat(
    name="agent-framework",
    accepts=_accepts,
    matches=lambda record: _accepts(record) and bool(record["contents"]),
    source_id=member("message_id"),
    time=lambda record: (None, None),
    expected="a message with a role, and contents that name their types",
    noun="message",
    parts=("contents",),
    source=lambda record: SPEAKERS.get(str(_role(record)), "environment"),
    read=_read,
    part=_contents,
    thought=lambda text, signed: (
        drop_empty({"type": "text_reasoning", "text": text, "protected_data": signed})
        if text
        else {}  # the format has no redacted thinking
    ),
    written=_written,
)
