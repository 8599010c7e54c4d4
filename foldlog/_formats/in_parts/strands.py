"""Messages of Strands Agents, as the ``SessionMessage`` of a session repository writes them, made of contents.

    {"message": {"role": "user", "content": [{"text": "hi"}]}, "message_id": 0, "redact_message": null, …}

The contents, and the events that they become:

    text                 Message, from the user or the agent
    toolUse              Action; the calls of a message share their ``response_id``
    toolResult           Observation
    image                Message, where its bytes are there
    reasoningContent     Annotation that stays with the next content of its message
    every other content  Annotation; so is a message without contents

Each content is one event: see ``parts.py``. Bytes are ``{"__bytes_encoded__": true, "data": base64}``, as in the SDK.
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.in_parts.parts import PartsDecoder, in_parts, text_of
from foldlog._formats.record import NotAnEvent, count_in, described, joined_text, read_time, time_text, usage_told
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    Event,
    Message,
    Observation,
    Origin,
    SystemMessage,
)

NAME = "strands"

_NO_CONTENTS = "message"
"""The name of the annotation for a message without contents."""
_REASONING = "reasoningContent"


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a message with a role and contents, and its number."""
    message = record.get("message") if type(record) is dict else None
    return (
        type(message) is dict
        and type(record.get("message_id")) is int
        and message.get("role") in ("user", "assistant")
        and type(message.get("content")) is list
        and all(type(each) is dict and each for each in message["content"])
    )


def _events(record: Any, first_id: int) -> list[Event]:
    if not accepts(record):
        found = "this object does not" if type(record) is dict else f"found {described(record)}"
        raise NotAnEvent(f"a message has a message_id, a role and contents, {found}")
    message = record["message"]
    time, naive = read_time(record.get("created_at"))
    tracking_id, contents = message.get("tracking_id"), message["content"]
    response_id = tracking_id if type(tracking_id) is str and tracking_id else f"message-{first_id}"
    return [
        _event(
            content,
            {"id": first_id + place, "timestamp": time, "origin": Origin(format=NAME, time=naive)},
            message["role"],
            response_id,
            is_last=place + 1 >= len(contents),
        )
        for place, content in enumerate(contents or [{_NO_CONTENTS: None}])
    ]


def _event(content: dict[str, Any], common: dict[str, Any], role: str, response_id: str, *, is_last: bool) -> Event:
    name, inside = next(iter(content.items()))
    source: Any = "user" if role == "user" else "agent"
    if name == "text" and type(inside) is str:
        return Message(content=inside, source=source, **common)
    if type(inside) is dict:
        call_id = inside.get("toolUseId")
        call_id = call_id if type(call_id) is str else None
        if name == "toolUse" and type(inside.get("name")) is str:
            arguments = inside.get("input")
            return Action(
                tool=inside["name"],
                arguments=arguments if type(arguments) in (dict, str) else None,
                call_id=call_id,
                response_id=response_id,
                **common,
            )
        if name == "toolResult" and call_id is not None:
            failed = inside.get("status") == "error"
            return Observation(content=_told(inside.get("content")), call_id=call_id, is_error=failed, **common)
        if name == "image" and (image := _image(inside)) is not None:
            return Message(content=(image,), source=source, **common)
    stays = name == _REASONING and not is_last
    return Annotation(name=name, data=content, source=source, shown=True, stays_with_next=stays, **common)


def _told(contents: Any) -> str:
    """Return what a result says: its texts, and its JSON as text."""
    items = [item for item in contents if type(item) is dict] if type(contents) is list else []
    return "\n".join(text_of(item.get("text", item.get("json"))) for item in items)


def _image(image: dict[str, Any]) -> dict[str, Any] | None:
    source = image.get("source")
    data = source.get("bytes") if type(source) is dict else None
    if type(data) is not dict or type(data.get("data")) is not str:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:image/{image.get('format')};base64,{data['data']}"}}


def _written(event: Event) -> dict[str, Any]:
    is_agent = getattr(event, "source", None) == "agent" and not isinstance(event, SystemMessage)
    time = time_text(event.timestamp, event.origin) or ""
    message = {"role": "assistant" if is_agent else "user", "content": _contents(event)}
    told = {"message_id": max(event.id, 0), "redact_message": None}
    return {"message": message, **told, "created_at": time, "updated_at": time}


def _contents(event: Event) -> list[dict[str, Any]]:
    match event:
        case SystemMessage():
            return [{"text": joined_text(event.content)}]
        case Message() | CondensationSummary():
            content = event.content
            return [_content(part) for part in ([content] if isinstance(content, str) else content)]
        case Action():
            call_id = event.call_id or f"call_{event.id}"
            return [{"toolUse": {"toolUseId": call_id, "name": event.tool, "input": event.arguments or {}}}]
        case Observation():
            call_id = event.call_id or f"call_{event.cause}"
            status = "error" if event.is_error else "success"
            told = [{"text": joined_text(event.content)}]
            return [{"toolResult": {"toolUseId": call_id, "status": status, "content": told}}]
        case Annotation() if isinstance(event.data, dict) and event.name in event.data:
            return [event.data]
    return []


def _content(part: Any) -> dict[str, Any]:
    if isinstance(part, str) or part.get("type") != "image_url":
        return {"text": part if isinstance(part, str) else part.get("text", "")}
    kind, _, data = str(part["image_url"].get("url")).removeprefix("data:image/").partition(";base64,")
    return {"image": {"format": kind, "source": {"bytes": {"__bytes_encoded__": True, "data": data}}}}


def _source_id(record: Any) -> Any:
    message = record.get("message") if type(record) is dict else None
    return message.get("tracking_id") if type(message) is dict else None


def _usage_in(record: dict[str, Any]) -> dict[str, Any]:
    about = record["message"].get("metadata")
    usage = about.get("usage") if type(about) is dict else None
    names = {"prompt_tokens": "inputTokens", "cached_tokens": "cacheReadInputTokens"}
    names |= {"cache_write_tokens": "cacheWriteInputTokens", "completion_tokens": "outputTokens"}
    return usage_told({ours: count_in(usage, theirs) for ours, theirs in names.items()})


FORMAT = in_parts(
    NAME,
    accepts=accepts,
    matches=lambda record: accepts(record) and "redact_message" in record,
    decoder=lambda options: PartsDecoder(options, _events, _source_id, _usage_in),
    written=_written,
    source_id=_source_id,
)
