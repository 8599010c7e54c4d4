"""Items of OpenAI's Responses API, in the order in which a client sends them as ``input``.

The items, and the events that they become:

    message of the system, a developer      SystemMessage
    message of the user or the assistant    Message; a message with an unknown role is not read
    message of the role exit                Message from the environment, in which mini-SWE-agent
                                            says how a run ended
    function_call, custom_tool_call, and every other call that the client answers   Action
    function_call_output, and every other output of a call                          Observation
    reasoning                               Annotation that stays with the next item: a server
                                            refuses either item without the other
    compaction                              CondensationAction of all events except messages of the
                                            system and the user; the item is a part of a Message,
                                            and goes back to the server unchanged
    every other type, such as the server's own tools, and an encrypted item   Annotation
    a whole response, as mini-SWE-agent stores it   the events of its ``output``, with its usage

Items do not say which calls belong to one response. foldlog therefore ends a response at the first
result, or at the first message that is not from the model. A text of the model in the phase
"commentary" belongs to the same response as the calls after it. An item_reference has no id of its
own: its ``id`` is the id of another item. A View also shows the annotations of this format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats.blocks import kind_of
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    file_in,
    input_at,
    parts_as,
    parts_in,
    role_of,
)
from foldlog.formats.format import Format
from foldlog.formats.messages import (
    CALLS,
    COMPACTED_BY_PROVIDER,
    IDS,
    OUTPUTS,
    READER,
    ROLES,
    compaction_in,
    is_message_item,
    unknown_role,
    with_exit_code,
)
from foldlog.formats.openai_chat import beside
from foldlog.formats.record import Fields, NotAnEvent, dicts_in, has, joined_text, within
from foldlog.formats.record_events import COMMENTARY, FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder
from foldlog.projections import arguments_of as arguments_shown

NAME = "openai-responses"

_OTHERS = frozenset(
    (
        "reasoning",
        "item_reference",
        "compaction",
        "web_search_call",
        "file_search_call",
        "image_generation_call",
        "code_interpreter_call",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
    )
)
_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file", "refusal"))
"""The types of parts that only messages of this API have."""


def matches(record: Any) -> bool:
    """Return whether ``record`` is certainly an item: a typed call, an output, or a message with
    typed parts.
    """
    if type(record) is not dict or "payload" in record:
        return False
    if _is_response(record):
        return bool(record["object"] == "response")
    kind = record.get("type")
    if kind == "reasoning":
        return type(record.get("summary")) is list
    if kind == "compaction":
        return type(record.get("encrypted_content")) is str
    if type(kind) is str and kind in CALLS | OUTPUTS | _OTHERS:
        return any(key in record for key in IDS)
    content = record.get("content") if is_message_item(record) else None
    return any(kind_of(part) in _PARTS for part in dicts_in(content))


_is_typed = has(type=str)
_has_role = has(role=str)
_is_response = has(object=str, output=list, type=type(None))


def accepts(record: Any) -> bool:
    """Return whether ``record`` may be an item. An item has a type or a role, and a message has a
    known role. A whole response and an item of the SDK's ``EncryptedSession`` are accepted too.
    """
    is_item = _is_typed(record) or _has_role(record)
    return (
        (is_item and not _is_of_unknown(record))
        or _is_response(record)
        or within(record, "__enc__") == 1
    )


def _is_of_unknown(record: Any) -> bool:
    """Return whether a record is a message with an unknown role."""
    return (
        type(record) is dict and is_message_item(record) and record["role"] not in (*ROLES, "exit")
    )


class ResponsesDecoder(FollowingDecoder):
    """Makes events of items, one after another."""

    def tag(self, event: Event, collected: RecordEvents) -> bool:
        """Return whether an event stays after a compaction by the server: system prompts and the
        user's messages stay. A compaction that the client did not request drops the user's messages
        too, but an item does not say who requested the compaction.
        """
        return isinstance(event, SystemMessage) or (
            isinstance(event, Message) and event.source == "user"
        )

    def check(self, record: Any) -> None:
        if _is_of_unknown(record):
            raise NotAnEvent(unknown_role(record["role"]))
        super().check(record)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        if _is_response(record):
            self._response = None  # this record begins a new response
            collected.tell(
                record.get("model"), within(record, "extra", "cost"), record.get("usage")
            )
            for item in dicts_in(record["output"]):
                self._read_item(collected, item, COMMENTARY)
            collected.close("response", None)
        else:
            self._read_item(collected, record, record.get("phase"))

    def _read_item(self, collected: RecordEvents, record: Fields, phase: Any) -> None:
        """Add the events of an item."""
        compacted = compaction_in(record)
        if compacted is not None:
            collected.condense(bool, metadata={"reason": COMPACTED_BY_PROVIDER})
        event = compacted or READER.item(record)
        if event is not None:
            collected.take(with_exit_code(event, record), phase)
            return
        kind = record["type"] if type(record.get("type")) is str else "item"
        is_own = collected.origin.id is not None and collected.origin.id == record.get("id")
        data = {
            key: value
            for key, value in record.items()
            if key != "type" and not (key == "id" and is_own)
        }
        collected.add(
            Annotation,
            name=kind,
            data=data,
            source="agent",
            shown=True,
            stays_with_next=kind == "reasoning",
        )


def _is_custom(call: Action) -> bool:
    """Return whether a call is of a custom tool, which accepts a text."""
    return (
        "custom_tool" in call.meta
        and isinstance(call.arguments, dict)
        and call.arguments.keys() == {"input"}
    )


class _Encoder(RepliesEncoder):
    """Writes events as items. A summary becomes a message of the user. Calls and results of custom
    tools, which accept a text, are items of other types. A server refuses an output whose type does
    not match its call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._custom: set[str] = set()

    def follow(self, events: Sequence[Event], record: Any) -> None:
        for event in events:
            if not isinstance(event, Action):
                continue
            if _is_custom(event):
                self._custom.add(call_id_of(event))
            else:
                self._custom.discard(call_id_of(event))

    def records_of(self, events: Sequence[Any]) -> list[Any]:
        return [item for event in events for item in self._items(event)]

    def _items(self, event: Any) -> list[Any]:
        """Return the items of an event."""
        match event:
            case Action():
                thought_items = []
                if event.thought:
                    thought = _message_of(event.thought, "assistant")
                    thought_items.append({**thought, "phase": COMMENTARY})
                return [
                    *_reasoning(event),
                    *thought_items,
                    {**self._item_of_call(event), "status": "completed"},
                ]
            case Observation():
                output = joined_text(event.content)
                if any(map(file_in, parts_in(event.content))):
                    output = _message_of(event.content, "tool")["content"]
                is_custom = call_id_of(event) in self._custom
                kind = "custom_tool_call_output" if is_custom else "function_call_output"
                return [{"type": kind, "call_id": call_id_of(event), "output": output}]
        compacted = [part for part in parts_in(event.content) if compaction_in(part)]
        return compacted or [*_reasoning(event), _message_of(event.content, role_of(event))]

    def _item_of_call(self, call: Action) -> Fields:
        """Return the item of a call."""
        self.follow([call], None)
        item = {"type": "function_call", "call_id": call_id_of(call), "name": call.tool}
        if _is_custom(call):
            return item | {"type": "custom_tool_call", **arguments_of(call)}
        return item | {"arguments": arguments_shown(call)}


def _reasoning(event: Event) -> list[Any]:
    """Return the items of reasoning that a server gave with an event."""
    thinking = event.thinking if isinstance(event, Action | Message) else ()
    return [dict(item) for item in thinking if item.get("type") == "reasoning"]


def _message_of(content: Content, role: str) -> Fields:
    """Return the item of a message."""

    def text(content: str) -> Fields:
        if role == "assistant":
            return {"annotations": [], "text": content, "type": "output_text"}
        return {"text": content, "type": "input_text"}

    return {
        "content": content if isinstance(content, str) else parts_as(content, text, input_at),
        "role": role,
    }


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    expected="an item with a text under 'type' or 'role'",
    decoder=ResponsesDecoder,
    encoder=_Encoder,
    looks_like="openai-chat",
    beside=beside,
    source_id=lambda record: None if kind_of(record) == "item_reference" else within(record, "id"),
    time=None,
    marks_errors=False,
)
