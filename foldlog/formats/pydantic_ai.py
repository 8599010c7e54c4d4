"""Messages of pydantic-ai, as its ``ModelMessagesTypeAdapter`` writes them: requests and responses, made of parts.

    {"parts": [{"content": "hi", …, "part_kind": "user-prompt"}], …, "kind": "request"}

What a part says, and where it goes:

    system-prompt                   SystemMessage
    user-prompt                     Message from the user
    text                            Message from the agent
    tool-call                       Action; the calls of a response share their ``response_id``
    tool-return, retry-prompt       Observation; a retry that answers no call is a Message from the environment
    thinking                        Annotation that stays with the next part of its response
    every other part                Annotation; so is a message without parts

Each part is one event; the first has what the message says beside its parts. A message is read and written without a
look at the others, so any part of a history that begins with a message can be written. An adapter adds ``entry_id`` and
``parent_id``, the places of a message in a conversation store, and keeps bytes as ``{"$bytes": base64}``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec.structs import force_setattr

from eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Content,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    SystemMessage,
)
from foldlog.formats.format import Format, Options
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.record import NotAnEvent, described, read_time, rest_of, time_text
from projections.messages.turns import arguments_of

__all__ = ["FORMAT"]

NAME = "pydantic-ai"

_COUNT, _LATER = "events", "later"
"""Marks in ``origin.rest``: of the first event of several, how many the message has; of the others, that they are."""

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
"""What messages most often say beside their parts, in the SDK's order."""
_UNSAID = dict.fromkeys(("id", "provider_name", "provider_details"), None)


def accepts(record: Any) -> bool:
    """Return whether ``record`` is a request or a response with parts."""
    return (
        type(record) is dict
        and record.get("kind") in ("request", "response")
        and type(record.get("parts")) is list
        and all(type(part) is dict and type(part.get("part_kind")) is str for part in record["parts"])
    )


class _Decoder:
    """Messages to events."""

    def __init__(self, first_id: int = 0) -> None:
        self._next_id = first_id

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next message. Raises ``NotAnEvent`` where it is not a message."""
        if not accepts(record):
            found = "this object is neither" if type(record) is dict else f"found {described(record)}"
            raise NotAnEvent(f"a message is a request or a response with parts that name their part_kind, {found}")
        parts = record["parts"]
        entry_id = record.get("entry_id")
        marks = {_COUNT: len(parts)} if len(parts) > 1 else {}
        response_id = next(
            (each for name in ("entry_id", "provider_response_id") if type(each := record.get(name)) is str),
            f"response-{self._next_id}",
        )
        events: list[Event] = []
        for place, part in enumerate(parts or [{"part_kind": record["kind"]}]):
            time, naive = read_time(part.get("timestamp"))
            if not place and time is None and record["kind"] == "response":
                time, naive = read_time(record.get("timestamp"))
            origin = Origin(format=NAME, time=naive, rest={_LATER: True})
            common = {"id": self._next_id + place, "timestamp": time, "origin": origin}
            events.append(_event(part, common, record["kind"], response_id, is_last=place + 1 >= len(parts)))
        first = events[0].origin
        assert first is not None
        difference = KeyOrder("content").difference(_predicted(events, entry_id), record)
        rest = {**marks, **difference} or None
        events[0] = _with_origin(events[0], Origin(format=NAME, id=entry_id, time=first.time, rest=rest))
        self._next_id += len(events)
        return events

    def restart(self, next_id: int) -> None:
        self._next_id = next_id


def _with_origin(event: Event, origin: Origin) -> Event:
    force_setattr(event, "origin", origin)  # it is ours alone until it is returned
    return event


def _event(part: dict[str, Any], common: dict[str, Any], kind: str, response_id: str, *, is_last: bool) -> Event:
    name, content = part["part_kind"], part.get("content")
    if kind == "request":
        call_id, tool = part.get("tool_call_id"), part.get("tool_name")
        if name == "system-prompt" and type(content) is str:
            return SystemMessage(content=content, **common)
        if name == "user-prompt":
            return Message(content=_shown(content), source="user", **common)
        if name in ("tool-return", "retry-prompt") and type(tool) is str and type(call_id) is str:
            failed = name == "retry-prompt" or part.get("outcome", "success") != "success"
            return Observation(content=_text(content), tool=tool, call_id=call_id, is_error=failed, **common)
        if name == "retry-prompt":
            return Message(content=_text(content), source="environment", **common)
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
    """Return what a user said: a text, or texts and images; other items by their kind."""
    if type(content) is not list:
        return _text(content)
    return tuple(_shown_item(item) for item in content)


def _shown_item(item: Any) -> dict[str, Any]:
    if type(item) is dict:
        if item.get("kind") == "image-url" and type(item.get("url")) is str:
            return {"type": "image_url", "image_url": {"url": item["url"]}}
        data, media_type = item.get("data"), str(item.get("media_type"))
        if type(data) is dict and type(data.get("$bytes")) is str and media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data['$bytes']}"}}
        if type(item.get("kind")) is str and item["kind"] != "text":
            return {"type": "text", "text": f"({item['kind']} {item.get('media_type', '')})"}
    return {"type": "text", "text": _text(item)}


def _text(content: Any) -> str:
    """Return a text, or a value as JSON; empty for None, and for what JSON cannot hold."""
    if type(content) is str:
        return content
    try:
        return "" if content is None else json.dumps(content, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


class _Encoder:
    """Events to messages. An event that was added since is a message of its own, and so is a summary in a View."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._group: list[Event] = []

    def restart(self, next_id: int) -> None:
        """Nothing is remembered."""

    def records(self, event: Event) -> list[Any]:
        """Return the message that is complete with ``event``; bookkeeping that was added since has none."""
        if event.origin is not None and event.origin.format == NAME:
            rest = rest_of(event, NAME)
            if self._group or _LATER not in rest:
                self._group.append(event)
                if len(self._group) < rest_of(self._group[0], NAME).get(_COUNT, 1):
                    return []
                group, self._group = self._group, []
                rest = rest_of(group[0], NAME)
                return [KeyOrder("content").record(_predicted(group, _id_of(group[0])), rest, group)]
        if isinstance(event, CondensationAction | Retraction | DocumentChanges):
            declined = isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined"
            self.left_out[_LEFT_OUT[type(event)]] += not declined
            return []
        if isinstance(event, Message | SystemMessage | CondensationSummary | Action | Observation):
            return [_predicted([event], None)]
        return []

    def end(self) -> list[Any]:
        """Return nothing. Raises ``ValueError`` where the last message is not whole."""
        if self._group:
            wanted = rest_of(self._group[0], NAME).get(_COUNT, 1)
            raise ValueError(f"the last message has {wanted} parts, and {len(self._group)} of them are here")
        return []


_LEFT_OUT = {CondensationAction: "condensation", Retraction: "retraction", DocumentChanges: "change of documents"}


def _id_of(event: Event) -> Any:
    return None if event.origin is None else event.origin.id


def _predicted(events: list[Event], entry_id: Any) -> dict[str, Any]:
    """Return the message that these events seem to come from, as far as their fields tell."""
    first = events[0]
    is_response = getattr(first, "source", None) == "agent" and not isinstance(first, SystemMessage)
    record: dict[str, Any] = {} if entry_id is None else {"entry_id": entry_id, "parent_id": None}
    is_empty = isinstance(first, Annotation) and not first.shown
    record["parts"] = [] if is_empty else [_part(event) for event in events]
    record |= _AFTER_PARTS["response" if is_response else "request"]
    if is_response:
        record["timestamp"] = time_text(first.timestamp, first.origin)
    return record


def _part(event: Event) -> dict[str, Any]:
    time = {"timestamp": time_text(event.timestamp, event.origin)}
    match event:
        case SystemMessage():
            other = {"dynamic_ref": None, "context_id": None, "scope": "conversation", "metadata": None}
            return {"content": _joined(event.content), **time, **other, "part_kind": "system-prompt"}
        case Message(source="agent"):
            return {"content": _joined(event.content), **_UNSAID, "citations": None, "part_kind": "text"}
        case Message(source="environment") if event.origin is not None:
            return {"content": event.content, "tool_name": None, **time, "part_kind": "retry-prompt"}
        case Message() | CondensationSummary():
            content = event.content if isinstance(event.content, str) else [_item(part) for part in event.content]
            return {"content": content, **time, "part_kind": "user-prompt"}
        case Action():
            arguments = event.arguments if event.origin is not None else arguments_of(event)
            call = {"tool_name": event.tool, "args": arguments, "tool_call_id": event.call_id or f"call_{event.id}"}
            return {**call, "tool_kind": None, **_UNSAID, "part_kind": "tool-call"}
        case Observation():
            call_id = event.call_id or (None if event.cause is None else f"call_{event.cause}")
            call = {"tool_name": event.tool, "content": _returned(event), "tool_call_id": call_id, "tool_kind": None}
            outcome = {"outcome": "failed" if event.is_error else "success", "retry": None}
            return {**call, "metadata": None, **time, **outcome, "part_kind": "tool-return", "content_file_digests": []}
        case Annotation():
            data = event.data if isinstance(event.data, dict) else {}
            return {**data, "part_kind": event.name}
    return {}


def _returned(event: Observation) -> Any:
    """Return what a tool returned: its text, or the value that the text is the JSON of."""
    if not isinstance(event.content, str) or event.content[:1] not in ("{", "[") or event.origin is None:
        return event.content if isinstance(event.content, str) else list(event.content)
    try:
        return json.loads(event.content)
    except (ValueError, RecursionError):
        return event.content


def _joined(content: Content) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _item(part: dict[str, Any]) -> Any:
    if part.get("type") != "image_url":
        return part.get("text", "")
    url = str(part["image_url"].get("url"))
    if url.startswith("data:") and ";base64," in url:
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"data": {"$bytes": data}, "media_type": media_type, "vendor_metadata": None, "kind": "binary"}
    return {"url": url, "force_download": False, "vendor_metadata": None, "kind": "image-url"}


def _decoder(records: Iterable[Any], options: Options) -> _Decoder:
    return _Decoder(options.first_id)


def _source_id(record: Any) -> Any:
    return record.get("entry_id") if type(record) is dict else None


FORMAT = Format(
    name=NAME,
    matches=lambda record: accepts(record) and bool(record["parts"]),
    accepts=accepts,
    decoder=_decoder,
    encoder=_Encoder,
    live=True,
    standalone=True,
    source_id=_source_id,
)
