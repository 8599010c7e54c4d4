"""Items of OpenAI's Responses API: what a client sends as ``input``, in the order of the list.

The items, and the events that they become:

    message of the system, a developer      SystemMessage
    message of any other role               Message, from the user, the agent or the environment
    function_call, custom_tool_call, and every other call that the client answers   Action
    function_call_output, and every other such output                               Observation
    reasoning                               Annotation that stays with the next item: a server refuses one without it
    every other type, such as the server's own tools, and an encrypted item   Annotation

Each item is one event, read and written without the other items, so any part of a history can be written. Items do not
tell which calls are of one response, so each call stands alone. Every annotation is shown: it keeps its place in the
View.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foldlog._formats.calls import OpenCalls
from foldlog._formats.codex.parts import content_of
from foldlog._formats.format import EachAlone, Format, Options, RecordDecoder
from foldlog._formats.record import NotAnEvent, described, joined_text
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
)
from foldlog.projections.messages.turns import arguments_of

NAME = "openai-responses"

_SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}
_ROLES = {"user": "user", "agent": "assistant", "environment": "user"}
_CALLS = frozenset(
    (
        *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"),
        *("tool_search_call", "mcp_approval_request"),
    )
)
"""Calls that a client answers. Calls of the server's own tools contain their results."""
_OUTPUTS = frozenset(
    (
        *("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output"),
        *("apply_patch_call_output", "computer_call_output", "tool_search_output", "mcp_approval_response"),
    )
)
_OTHERS = frozenset(
    (
        *("reasoning", "item_reference", "compaction", "web_search_call", "file_search_call", "image_generation_call"),
        *("code_interpreter_call", "mcp_call", "mcp_list_tools", "program", "program_output"),
    )
)
_ANSWERED = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
"""The field that holds the id of an item's call, if it is not ``call_id``."""
_IDS = frozenset(("id", "call_id", "approval_request_id"))
_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file", "refusal"))


def _is_message(item: dict[str, Any]) -> bool:
    return item.get("type", "message") == "message" and type(item.get("role")) is str


def matches(record: Any) -> bool:
    """Return whether ``record`` is an item and nothing else: a typed call, an output, or a message of typed parts."""
    if type(record) is not dict or "payload" in record:
        return False
    kind = record.get("type")
    if kind == "reasoning":
        return type(record.get("summary")) is list
    if kind == "compaction":
        return type(record.get("encrypted_content")) is str
    if type(kind) is str and kind in _CALLS | _OUTPUTS | _OTHERS:
        return not _IDS.isdisjoint(record)
    content = record.get("content") if _is_message(record) else None
    parts = [part.get("type") for part in content if type(part) is dict] if type(content) is list else []
    return any(type(part) is str and part in _PARTS for part in parts)


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a type or a role, or is an item that the SDK's ``EncryptedSession`` wrote."""
    if type(record) is not dict:
        return False
    return type(record.get("type")) is str or type(record.get("role")) is str or record.get("__enc__") == 1


class ResponsesDecoder(RecordDecoder):
    """Items to events, one item after the other."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls = OpenCalls(options.past)

    def events(self, record: Any) -> list[Event]:
        """Return the event of the next item. Raises ``NotAnEvent`` where it is not an item."""
        if not accepts(record):
            found = "this object has neither" if type(record) is dict else f"found {described(record)}"
            raise NotAnEvent(f"an item is an object with a text under 'type' or 'role', {found}")
        event = self._event(record)
        self.next_id += 1
        return [event]

    def _event(self, item: dict[str, Any]) -> Event:
        named = item.get("type")
        kind = named if type(named) is str else "item"
        fields: dict[str, Any] = {"id": self.next_id, "origin": Origin(format=NAME, id=item.get("id"))}
        if _is_message(item):
            return _message(item, fields)
        if kind in _CALLS:
            return self._action(kind, item, fields)
        if kind in _OUTPUTS:
            return self._observation(kind, item, fields)
        data = {key: value for key, value in item.items() if key not in ("type", "id")}
        stays = kind == "reasoning"
        return Annotation(name=kind, data=data, source="agent", shown=True, stays_with_next=stays, **fields)

    def _action(self, kind: str, item: dict[str, Any], fields: dict[str, Any]) -> Action:
        call_id, name = item.get(_ANSWERED.get(kind, "call_id")), item.get("name")
        arguments = item.get("arguments")
        if kind == "custom_tool_call":
            arguments, fields["meta"] = {"input": item.get("input")}, {"custom_tool": True}
        elif kind == "function_call":
            arguments = arguments if type(arguments) is str else None
        elif type(arguments) is not str:
            known = ("type", "id", "call_id", "name", "status")
            arguments = {key: value for key, value in item.items() if key not in known}
        action = Action(
            tool=name if type(name) is str else kind.removesuffix("_call"),
            arguments=arguments,
            call_id=call_id if type(call_id) is str else None,
            **fields,
        )
        self._calls.open(action)
        return action

    def _observation(self, kind: str, item: dict[str, Any], fields: dict[str, Any]) -> Observation:
        output = item.get("output")
        call_id, cause, tool = self._calls.close(item.get(_ANSWERED.get(kind, "call_id")))
        content: Content = content_of(output)
        if not content and type(output) is not str:
            content = _as_text(output)
        return Observation(content=content, tool=tool, call_id=call_id, cause=cause, **fields)


def _message(item: dict[str, Any], fields: dict[str, Any]) -> Event:
    content, role = item.get("content"), item["role"]
    said = content_of(content)
    if role in ("system", "developer"):
        return SystemMessage(content=said, **fields)
    return Message(content=said, source=_SPEAKERS.get(role, "environment"), **fields)


def _as_text(output: Any) -> str:
    """Return an output that is neither a text nor parts as JSON; empty where JSON cannot hold it."""
    try:
        return "" if output is None else msgspec.json.encode(output).decode()
    except (ValueError, RecursionError):
        return ""


def _written(event: Event) -> list[Any]:
    """Return the items of an event as a client would write them; a summary is a user's message."""
    match event:
        case Message() | SystemMessage() | CondensationSummary():
            role = "system" if isinstance(event, SystemMessage) else _ROLES[event.source]
            said = _message_of(event.content, "user" if isinstance(event, CondensationSummary) else role)
            return [*_reasoning(event), said]
        case Action():
            thought = [_message_of(event.thought, "assistant")] if event.thought else []
            return [*_reasoning(event), *thought, _call(event)]
        case Observation():
            call_id = event.call_id or (None if event.cause is None else f"call_{event.cause}")
            return [_whole({"call_id": call_id, "output": joined_text(event.content)}, "function_call_output")]
    return []


def _reasoning(event: Event) -> list[Any]:
    thinking = event.thinking if isinstance(event, Action | Message) else ()
    return [dict(item) for item in thinking if item.get("type") == "reasoning"]


def _message_of(content: Content, role: str) -> dict[str, Any]:
    return {"content": content if isinstance(content, str) else _parts(content, role), "role": role}


def _call(event: Action) -> dict[str, Any]:
    call = {"arguments": arguments_of(event), "call_id": event.call_id or f"call_{event.id}", "name": event.tool}
    return {**_whole(call, "function_call"), "status": "completed"}


def _whole(item: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**{key: value for key, value in item.items() if value is not None}, "type": kind}


def _parts(parts: Sequence[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    said = role == "assistant"
    return [
        {"type": "input_image", "image_url": _url(part)}
        if part.get("type") == "image_url"
        else {"annotations": [], "text": part.get("text", ""), "type": "output_text"}
        if said
        else {"text": part.get("text", ""), "type": "input_text"}
        for part in parts
    ]


def _url(part: dict[str, Any]) -> Any:
    image = part["image_url"]
    return image.get("url") if isinstance(image, dict) else image


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=lambda records, options: ResponsesDecoder(options),
    encoder=lambda: EachAlone(_written),
    live=True,
    source_id=lambda record: record.get("id") if type(record) is dict else None,
    times=False,
    marks_errors=False,
)
