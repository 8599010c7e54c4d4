"""Messages of pydantic-ai, as its ``ModelMessagesTypeAdapter`` writes them: requests and responses, made of parts.

    {"parts": [{"content": "hi", …, "part_kind": "user-prompt"}], …, "kind": "request"}

The parts, and the events that they become:

    system-prompt                   SystemMessage
    user-prompt                     Message from the user; so is a summary in a request, which models are sent as one
    text                            Message from the agent
    tool-call                       Action; the calls of a response share their ``response_id``
    tool-return, retry-prompt       Observation; a retry that answers no call is a Message from the environment
    thinking                        Annotation that stays with the next part of its response
    every other part                Annotation; so is a message without parts

Each part is one event: see ``parts.py``. An adapter adds ``entry_id`` and
``parent_id``, the places of a message in a conversation store, and keeps bytes as ``{"$bytes": base64}``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from foldlog._formats.in_parts.parts import (
    PartsDecoder,
    bytes_of_image,
    image_of_bytes,
    in_parts,
    text_of,
)
from foldlog._formats.record import NotAnEvent, described, joined_text, read_time, time_text, usage_told
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    SystemMessage,
)
from foldlog.projections.messages.turns import arguments_of

NAME = "pydantic-ai"

_NO_USAGE: dict[str, Any] = {
    **dict.fromkeys(("input_tokens", "cache_write_tokens", "cache_write_1h_tokens", "cache_read_tokens"), 0),
    **dict.fromkeys(("output_tokens", "output_reasoning_tokens", "input_audio_tokens", "cache_audio_read_tokens"), 0),
    **{"output_audio_tokens": 0, "audio_seconds": 0, "details": {}, "cost": None},
}
_AFTER_PARTS: dict[str, dict[str, Any]] = {
    "request": {
        **{"timestamp": None, "instructions": None, "kind": "request", "run_id": None, "conversation_id": None},
        **{"metadata": None, "state": "complete"},
    },
    "response": {
        **{"usage": _NO_USAGE, "model_name": None, "model_id": None, "timestamp": None, "kind": "response"},
        **dict.fromkeys(("provider_name", "provider_url", "canonical_system", "provider_details"), None),
        **dict.fromkeys(("provider_response_id", "finish_reason", "run_id", "conversation_id", "metadata"), None),
        **{"workspace_ref": None, "history_digest": None, "failed_attempts": None, "state": "complete"},
    },
}
"""The most frequent content of messages besides their parts, in the SDK's order."""
_UNSAID = dict.fromkeys(("id", "provider_name", "provider_details"), None)


def accepts(record: Any) -> bool:
    """Return whether ``record`` is a request or a response with parts."""
    return (
        type(record) is dict
        and record.get("kind") in ("request", "response")
        and type(record.get("parts")) is list
        and all(type(part) is dict and type(part.get("part_kind")) is str for part in record["parts"])
    )


def _events(record: Any, first_id: int) -> list[Event]:
    if not accepts(record):
        found = "this object is neither" if type(record) is dict else f"found {described(record)}"
        raise NotAnEvent(f"a message is a request or a response with parts that name their part_kind, {found}")
    response_id = next(
        (each for name in ("entry_id", "provider_response_id") if type(each := record.get(name)) is str),
        f"response-{first_id}",
    )
    parts, events = record["parts"], list[Event]()
    for place, part in enumerate(parts or [{"part_kind": record["kind"]}]):
        time, naive = read_time(part.get("timestamp"))
        if not place and time is None and record["kind"] == "response":
            time, naive = read_time(record.get("timestamp"))
        common = {"id": first_id + place, "timestamp": time, "origin": Origin(format=NAME, time=naive)}
        events.append(_event(part, common, record["kind"], response_id, is_last=place + 1 >= len(parts)))
    return events


def _event(part: dict[str, Any], common: dict[str, Any], kind: str, response_id: str, *, is_last: bool) -> Event:
    name, content = part["part_kind"], part.get("content")
    if kind == "request":
        call_id, tool = part.get("tool_call_id"), part.get("tool_name")
        if name == "system-prompt" and type(content) is str:
            return SystemMessage(content=content, **common)
        if name == "user-prompt" or (name == "compaction" and type(content) is str):
            return Message(content=_shown(content), source="user", **common)
        if name in ("tool-return", "retry-prompt") and type(tool) is str and type(call_id) is str:
            failed = name == "retry-prompt" or part.get("outcome", "success") != "success"
            return Observation(content=text_of(content), tool=tool, call_id=call_id, is_error=failed, **common)
        if name == "retry-prompt":
            return Message(content=text_of(content), source="environment", **common)
    elif name == "text" and type(content) is str:
        return Message(content=content, source="agent", **common)
    elif name == "tool-call" and type(part.get("tool_name")) is str:
        arguments, call_id = part.get("args"), part.get("tool_call_id")
        return Action(
            tool=part["tool_name"],
            arguments=arguments if type(arguments) in (dict, str) else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=response_id,
            **common,
        )
    data = {key: value for key, value in part.items() if key not in ("part_kind", "timestamp")}
    stays = name == "thinking" and kind == "response" and not is_last
    source: Any = "agent" if kind == "response" else "environment"
    return Annotation(name=name, data=data, source=source, shown=name != kind, stays_with_next=stays, **common)


def _shown(content: Any) -> Content:
    """Return what a user said: a text, or texts and images; other items by the name of their kind."""
    if type(content) is not list:
        return text_of(content)
    return tuple(_shown_item(item) for item in content)


def _shown_item(item: Any) -> dict[str, Any]:
    if type(item) is dict:
        if item.get("kind") == "image-url" and type(item.get("url")) is str:
            return {"type": "image_url", "image_url": {"url": item["url"]}}
        if (image := image_of_bytes(item.get("data"), item.get("media_type"))) is not None:
            return image
        if type(item.get("kind")) is str and item["kind"] != "text":
            return {"type": "text", "text": f"({item['kind']} {item.get('media_type', '')})"}
    return {"type": "text", "text": text_of(item)}


def _written(event: Event) -> dict[str, Any]:
    is_response = getattr(event, "source", None) == "agent" and not isinstance(event, SystemMessage)
    record = {"parts": [_part(event)], **_AFTER_PARTS["response" if is_response else "request"]}
    if is_response:
        record["timestamp"] = time_text(event.timestamp, event.origin)
    return record


def _part(event: Event) -> dict[str, Any]:
    time = {"timestamp": time_text(event.timestamp, event.origin)}
    match event:
        case SystemMessage():
            other = {"dynamic_ref": None, "context_id": None, "scope": "conversation", "metadata": None}
            return {"content": joined_text(event.content), **time, **other, "part_kind": "system-prompt"}
        case Message(source="agent"):
            return {"content": joined_text(event.content), **_UNSAID, "citations": None, "part_kind": "text"}
        case Message() | CondensationSummary():
            content = event.content if isinstance(event.content, str) else [_item(part) for part in event.content]
            return {"content": content, **time, "part_kind": "user-prompt"}
        case Action():
            call_id = event.call_id or f"call_{event.id}"
            call = {"tool_name": event.tool, "args": arguments_of(event), "tool_call_id": call_id}
            return {**call, "tool_kind": None, **_UNSAID, "part_kind": "tool-call"}
        case Observation():
            answered = event.call_id or (None if event.cause is None else f"call_{event.cause}")
            result = event.content if isinstance(event.content, str) else list(event.content)
            told = {"tool_name": event.tool, "content": result, "tool_call_id": answered, "tool_kind": None}
            outcome = {"outcome": "failed" if event.is_error else "success", "retry": None}
            return {**told, "metadata": None, **time, **outcome, "part_kind": "tool-return", "content_file_digests": []}
    return {}


def _item(part: dict[str, Any]) -> Any:
    if part.get("type") != "image_url":
        return part.get("text", "")
    url = str(part["image_url"].get("url"))
    if (image := bytes_of_image(url)) is not None:
        return {"data": image[0], "media_type": image[1], "vendor_metadata": None, "kind": "binary"}
    return {"url": url, "force_download": False, "vendor_metadata": None, "kind": "image-url"}


def _source_id(record: Any) -> Any:
    return record.get("entry_id") if type(record) is dict else None


def _usage_in(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a response used: its input includes what a cache had. A price is a number or a text of one."""
    usage = record.get("usage")
    cost: Any = usage.get("cost") if type(usage) is dict else None
    with suppress(TypeError, ValueError):
        cost = float(cost)
    return usage_told(usage, model=record.get("model_name"), cost=cost)


FORMAT = in_parts(
    NAME,
    accepts=accepts,
    matches=lambda record: accepts(record) and bool(record["parts"]),
    decoder=lambda options: PartsDecoder(options, _events, _source_id, _usage_in),
    written=_written,
    source_id=_source_id,
)
