"""Read events from messages of OpenAI's chat and Anthropic, and from items of OpenAI's Responses.

``append`` and imports both use this module, so equal messages always become equal events. If a
message has text and calls, the text is the thought of the first call. The first call also gets the
model's thinking. A part that no field can hold becomes an annotation. The events have no ids and no
origins yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any, Final

from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationRequest,
    Content,
    Event,
    Message,
    Observation,
    Source,
    SystemMessage,
)
from foldlog.formats.blocks import (
    FILE_FIELDS,
    THINKING,
    is_of_anthropic,
    is_of_server,
    kind_of,
    part_of,
    with_results,
    wrap_server_block,
)
from foldlog.formats.event_fields import parts_in, text_part
from foldlog.formats.json_text import json_text
from foldlog.formats.record import (
    Fields,
    NotAnEvent,
    dict_or_empty,
    dicts_in,
    omit,
    text_or_empty,
    text_or_none,
    within,
)

SPEAKERS: Mapping[str, Source] = {"user": "user", "assistant": "agent"}
"""Maps a role to the source of its messages. The messages of other roles are the environment's."""
ROLES = frozenset((*SPEAKERS, "system", "developer", "tool", "function"))
_AGENT_ROLES = ("environment", "exit")
"""Roles that some agents write, but that no model's API has."""
_THINKING = (*THINKING, "reasoning")
_ANTHROPIC_BLOCKS = THINKING | {
    "tool_use",
    "tool_result",
    "document",
    "image",
    "search_result",
    "container_upload",
}
"""The types of blocks that prove Anthropic's format."""
_TEXTS = ("text", "input_text", "output_text")
"""The types of parts with a text."""
_TEXT_KEYS = frozenset(("type", "text", "cache_control"))

_TYPES = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
)
CALLS: Final = frozenset((*_TYPES, "tool_search_call", "mcp_approval_request"))
"""The types of calls that a client answers. A call of the server's own tools already contains its
result.
"""
OUTPUTS: Final = frozenset(
    (*(f"{kind}_output" for kind in _TYPES), "tool_search_output", "mcp_approval_response")
)
"""The types of items with the results of these calls."""
IDS: Final = ("call_id", "approval_request_id", "id")
"""The fields of an item that may have the id of a call."""
_ARGUMENTS = ("arguments", "action", "operation")
"""The fields of an item that may have the arguments of a call."""
# Fields of results that need not be stored, because the event says the same.
_PLAIN_KEYS = dict.fromkeys(("function_call_output", "custom_tool_call_output"), ("type",))
_ITEM_KEYS = ("type", "id", "name", "status")
_ANTHROPIC_KEYS = (
    "role",
    "type",
    "id",
    "model",
    "content",
    "tool_calls",
    "stop_reason",
    "usage",
    "cost",
)


def is_message_of_anthropic(message: Fields) -> bool:
    """Return whether a message of the user or the assistant is in Anthropic's format. In a user's
    message, only some types of blocks prove Anthropic's format, because a program may send the
    other types to any server.
    """
    role = message.get("role")
    if role not in ("user", "assistant"):
        return False
    is_own = is_of_anthropic if role == "assistant" else is_of_server
    return "stop_reason" in message or any(
        kind_of(block) in _ANTHROPIC_BLOCKS or is_own(block)
        for block in dicts_in(message, "content")
    )


def is_message_item(item: Fields) -> bool:
    """Return whether an item of OpenAI's Responses is a message."""
    return item.get("type", "message") == "message" and type(item.get("role")) is str


def unknown_role(role: str) -> str:
    """Return the text of an error about a role that is not one of ``ROLES``."""
    return f"the role {short(role)} is not known; use assistant, user, system, developer or tool"


def with_exit_code(event: Event, record: Fields) -> Event:
    """Add the exit code of the command to a result of mini-SWE-agent: the number
    ``extra.returncode`` of its record, which a record of any program may have. The result is an
    error if the code is not 0, whatever mark or ``extras`` it had before. Return other events
    unchanged.
    """
    code = within(record, "extra", "returncode")
    if type(code) is not int or not isinstance(event, Observation):
        return event
    return replace(event, is_error=code != 0, extras={"exit_code": code})


COMPACTED_BY_PROVIDER = "the model's provider compacted the context"
"""The reason in a condensation that foldlog makes for a compaction by the provider."""


def compaction_in(item: Any) -> Message | None:
    """Return a compaction of OpenAI's Responses API as a message, and None for any other item.

    A compaction replaces all earlier items. Only OpenAI's server can read the compaction, so the
    message stores it unchanged, to be sent back.
    """
    if kind_of(item) != "compaction" or not text_or_empty(item, "encrypted_content"):
        return None
    return Message(source="agent", content=(dict(item),))


def compacts(event: Event) -> bool:
    """Return whether an event contains a provider's compaction. A compaction replaces all earlier
    events of the prompt. Return False for an Anthropic compaction without content, because it has
    failed.
    """
    if not isinstance(event, Message | Action):
        return False
    parts = parts_in(event.thought if isinstance(event, Action) else event.content)
    blocks = [block for part in parts for block in (part, *dicts_in(part, "blocks"))]
    return any(
        kind_of(block) == "compaction" and any(map(block.get, _SUMMARIES)) for block in blocks
    )


_SUMMARIES = ("content", "encrypted_content")
"""The fields of a compaction with its summary, one of Anthropic and one of OpenAI."""


def spoken(role: str, content: Content) -> Event:
    """Return the event of a message that is neither a call nor a result. Raises ``NotAnEvent`` for
    an unknown role.
    """
    if role in ("system", "developer"):
        return SystemMessage(content=content)
    if role not in ROLES and role not in _AGENT_ROLES:
        raise NotAnEvent(unknown_role(role))
    return Message(source=SPEAKERS.get(role, "environment"), content=content)


class MessageReader:
    """Reads messages for an import. The reader reads malformed values as far as possible, and
    raises ``NotAnEvent`` only for an unknown role. In an import, a block of an unknown type may
    come from any program. Blocks of unknown types are therefore never sent back to Anthropic's
    server.
    """

    of_replies = False
    """Whether the messages are live replies that a program appends. In a live reply, a model may
    request a condensation. A block that only Anthropic's server knows goes back to this server
    unchanged.
    """

    def refuse(self, problem: str) -> None:
        """Handle a malformed value. A subclass may raise an error. In this class the method does
        nothing, and the reader goes on with a substitute, such as the JSON text of the value.
        """

    def arguments(self, arguments: Fields | str | None) -> Fields | str | None:
        """Return the arguments of a call in the form of an ``Action``."""
        return arguments

    def other_fields(self, name: str, fields: Fields, *keys: str) -> Fields:
        """Return the ``meta`` of an event, with all ``fields`` except ``keys`` under the key
        ``name``. This class returns an empty ``meta``, because an import does not store further
        fields.
        """
        return {}

    # --- OpenAI's chat ---

    def chat(self, message: Fields, response_id: str | None) -> list[Event]:
        """Return the events of a chat message. An assistant message without content and calls has
        no events.
        """
        if is_message_of_anthropic(message):
            return self.anthropic(message, response_id)
        return self.openai(message, response_id)

    def openai(
        self, message: Fields, response_id: str | None = None, meta: Fields | None = None
    ) -> list[Event]:
        """Return the events of a message in the format of OpenAI's chat."""
        role = message["role"]
        if role not in ROLES:
            self.refuse(unknown_role(role))
        if message.get("content") is None and role in ("user", "system", "developer"):
            self.refuse(
                f"the content of the {role} message is missing; give a text or a list of parts"
            )
        content = self.content(message.get("content"), f"the {role} message")
        if role == "assistant":
            return self._assistant(message, content, response_id, meta or {})
        if role in ("tool", "function"):
            tool = text_or_empty(message, "name") or text_or_empty(message, "tool_name")
            return [
                Observation(
                    content=content, call_id=text_or_none(message, "tool_call_id"), tool=tool
                )
            ]
        return [spoken(role, content)]

    def _assistant(
        self, message: Fields, content: Content, response_id: str | None, meta: Fields
    ) -> list[Event]:
        """Return the events of a message of the assistant."""
        # litellm stores some fields of a provider only in "provider_specific_fields"
        if specific_fields := dict_or_empty(message, "provider_specific_fields"):
            message = {**specific_fields, **message}
        calls = [self.call(call) for call in calls_in(message)]
        transcript = within(message, "audio", "transcript")
        content = content or text_or_empty(message, "refusal") or text_or_empty(transcript)
        thinking = dicts_in(message, "thinking_blocks")
        # servers use two names for the reasoning
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if not thinking and isinstance(reasoning, str) and reasoning:
            thinking = [{"type": "thinking", "thinking": reasoning}]
        return self.response_events(content, calls, thinking, response_id, meta)

    def call(self, call: Any, name: str = "call", id_key: str = "id") -> Action:
        """Return the action for a call in a chat message, an item or a block. Fields for which an
        action has no place are stored in ``meta``, under the key ``name``. ``id_key`` is the field
        with the id of the call.
        """
        fields = dict(dict_or_empty(call))
        fields |= dict_or_empty(fields.pop("function", None) or fields.pop("custom", None))
        tool = text_or_none(fields, "name")
        call_id = text_or_none(fields.get(id_key))
        custom_input = text_or_none(fields, "input")
        if tool is None:
            self.refuse(
                f"the call {short(call)} does not name its tool; a call of a chat message is a map,"
                " such as {'id': 'call-1', 'type': 'function', 'function': {'name': 'terminal',"
                " 'arguments': '{}'}}"
            )
        arguments = {"input": custom_input} if custom_input is not None else fields.get("arguments")
        if not isinstance(arguments, dict | str | None):
            self.refuse(
                f"the arguments of a call are {short(arguments)}; give a map, or its JSON text"
            )
            arguments = json_text(arguments)
        own_keys = ("type", "name", id_key, "arguments" if custom_input is None else "input")
        meta: Fields = {} if custom_input is None else {"custom_tool": True}
        return Action(
            tool=tool or "",
            arguments=self.arguments(arguments),
            # the result of a call without an id names the tool
            call_id=tool if call_id is None else call_id,
            meta=meta | self.other_fields(name, fields, *own_keys),
        )

    def response_events(
        self,
        content: Content,
        calls: Sequence[Action],
        thinking: Sequence[Fields],
        response_id: str | None,
        meta: Fields,
    ) -> list[Event]:
        """Return the events of one response: a message, or an action for each call. The text is the
        thought of the first action. The thinking of a response without both is an annotation. A
        call of ``request_condensation`` is a request.
        """
        actions = list(calls)
        if self.of_replies:
            actions = [call for call in calls if call.tool != "request_condensation"]
        events: list[Event] = []
        if actions:
            actions[0] = replace(
                actions[0], thought=content, thinking=tuple(thinking), meta=meta | actions[0].meta
            )
            response = response_id or f"response-{actions[0].call_id}"
            events += [replace(action, response_id=response) for action in actions]
        elif content:
            events.append(
                Message(source="agent", content=content, thinking=tuple(thinking), meta=meta)
            )
        elif thinking:
            events.append(Annotation(name="reasoning", data=list(thinking), meta=meta))
        if len(actions) < len(calls):
            events.append(
                CondensationRequest(reason="the model asked for it", meta={} if events else meta)
            )
        return events

    # --- OpenAI's Responses ---

    def item(self, item: Fields) -> Event | None:
        """Return the event of an item that is a message, a call or a result. Return None for any
        other item, such as a call that the server answered.
        """
        kind = kind_of(item) or ""
        role = item.get("role")
        if kind in ("function_call", "custom_tool_call"):
            return self.call(item, "item", "call_id")
        if is_message_item(item):
            if role not in ROLES:
                self.refuse(unknown_role(str(role)))
            return spoken(str(role), self.content(item.get("content"), f"the {role} message"))
        if (kind not in CALLS and kind not in OUTPUTS) or item.get("execution") == "server":
            return None
        id_key = next((key for key in IDS if item.get(key) is not None), "call_id")
        other_fields = omit(item, *_ITEM_KEYS, id_key)
        call_id = text_or_none(item.get(id_key))
        if kind in CALLS:
            arguments_key = next(
                (key for key in _ARGUMENTS if isinstance(item.get(key), dict | str)), None
            )
            tool = text_or_none(item, "name") or kind.removesuffix("_call")
            return Action(
                tool=tool,
                arguments=self.arguments(item[arguments_key] if arguments_key else other_fields),
                call_id=call_id or tool,
                meta=self.other_fields(
                    "item",
                    item,
                    "name",
                    id_key,
                    *([arguments_key] if arguments_key else other_fields),
                ),
            )
        output = other_fields.pop("output", None)
        used_fields = list[str]()
        if output is None:
            output = other_fields or ""
            used_fields = list(other_fields)
        parts = [output] if isinstance(output, dict) else output
        has_parts = isinstance(parts, list) and all(map(kind_of, parts))
        return Observation(
            content=self.content(parts, "an output") if has_parts else json_text(output),
            call_id=call_id,
            is_error=item.get("status") == "failed",
            meta=self.other_fields("item", item, id_key, *used_fields, *_PLAIN_KEYS.get(kind, ())),
        )

    # --- Anthropic's messages ---

    def anthropic(
        self, message: Fields, response_id: str | None = None, meta: Fields | None = None
    ) -> list[Event]:
        """Return the events of a message in Anthropic's format. In a user's message the results
        come first.
        """
        description = f"the {message['role']} message"
        blocks = self.parts(message.get("content") or [], description)
        meta = (meta or {}) | self.other_fields("message", message, *_ANTHROPIC_KEYS)
        if message["role"] == "assistant":
            return self._agent_events(message, blocks, response_id, meta)
        blocks = self._blocks_returned(blocks)
        content_blocks = [block for block in blocks if block.get("type") != "tool_result"]
        content = _content(content_blocks)
        meta |= self.other_fields("blocks", {"content": content_blocks})
        events: list[Event] = self._results_in(blocks)
        if content:
            events.append(Message(source="user", content=content, meta=meta))
        return events

    def _agent_events(
        self, message: Fields, blocks: list[Fields], response_id: str | None, meta: Fields
    ) -> list[Event]:
        """Return the events of a message of the assistant in Anthropic's format."""
        blocks = with_results(blocks, singles=self.of_replies)
        # The server called its own tool and paused. A later message has the result.
        unfinished = [block for block in blocks if "input" in block and is_of_server(block)]
        own_kinds = ("tool_use", "tool_result", *_THINKING)
        content_blocks = [
            block
            for block in blocks
            if block.get("type") not in own_kinds and block not in unfinished
        ]
        meta |= self.other_fields("blocks", {"content": content_blocks})
        calls = [
            self.call({**block, "arguments": block.get("input"), "input": None}, "block")
            for block in _of_kinds(blocks, "tool_use")
        ]
        calls += [self.call(call) for call in calls_in(message)]
        thinking = _of_kinds(blocks, *_THINKING)
        return [
            *self.response_events(_content(content_blocks), calls, thinking, response_id, meta),
            *(Annotation(name=block["type"], data=block) for block in unfinished),
            *self._results_in(blocks),
        ]

    def _results_in(self, blocks: Sequence[Fields]) -> list[Event]:
        return [self._result(block) for block in _of_kinds(blocks, "tool_result")]

    def _result(self, block: Fields) -> Observation:
        """Return the result in a block of the type ``tool_result``."""
        content = block.get("content")
        return Observation(
            call_id=text_or_none(block, "tool_use_id"),
            content=self.content(self._blocks_returned(content), "a tool_result"),
            is_error=block.get("is_error") is True,
            meta=self.other_fields("block", block, "type", "tool_use_id", "is_error"),
        )

    def _blocks_returned(self, blocks: Any) -> Any:
        """Return blocks that a program sends to a server. In a live reply, blocks that only
        Anthropic's server knows are wrapped, so that they go back unchanged.
        """
        if self.of_replies and isinstance(blocks, list):
            return list(map(wrap_server_block, blocks))
        return blocks

    # --- content ---

    def content(self, value: Any, description: str) -> Content:
        """Return the content for an event: a text, or parts in the format of OpenAI's chat. A
        single text part becomes a text. ``description`` names the content in errors.
        """
        if value is None or isinstance(value, str):
            return value or ""
        return _content(self.parts(value, description))

    def parts(self, value: Any, description: str) -> list[Fields]:
        """Return content as parts. Calls ``refuse`` for a part that is neither a text nor a map,
        and for a text part that has no text.
        """
        if not isinstance(value, str | list):
            self.refuse(
                f"the content of {description} is {short(value)}; give a text or a list of parts"
            )
            value = json_text(value)
        parts: list[Any] = value if isinstance(value, list) else list(parts_in(value))
        for index, part in enumerate(parts):
            if isinstance(part, dict) and part.get("type") in _TEXTS:
                text = part.get("text")
            else:
                text = ""
            if not isinstance(part, dict | str) or not isinstance(text, str):
                self.refuse(
                    f"part {index} of {description} is {short(part)}; a part is a map:"
                    " {'type': 'text', 'text': 'hi'}"
                )
        return [part if isinstance(part, dict) else text_part(json_text(part)) for part in parts]


READER: Final = MessageReader()


def calls_in(message: Fields) -> list[Any]:
    """Return the calls of a chat message. In OpenAI's earlier format, a message had a single call,
    its ``function_call``.
    """
    calls = message.get("tool_calls")
    function = message.get("function_call")
    if not calls and function:
        return [{"function": function}]
    if isinstance(calls, list):
        return calls
    return [calls] if calls else []


def _of_kinds(blocks: Sequence[Fields], *kinds: str) -> list[Fields]:
    return [block for block in blocks if block.get("type") in kinds]


def _content(parts: Sequence[Fields]) -> Content:
    """Return parts in the format of OpenAI's chat. A single text part becomes a text."""
    converted = tuple(map(_part, parts))
    is_text = (
        len(converted) == 1
        and converted[0].keys() == {"type", "text"}
        and isinstance(converted[0]["text"], str)
    )
    return str(converted[0]["text"]) if is_text else converted or ""


def _part(part: Fields) -> Fields:
    """Return a part in the format of OpenAI's chat. Unknown parts stay unchanged."""
    if part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
        return text_part(part["refusal"])
    converted = part_of(part)
    if converted is None or converted == part:
        return part
    image = converted.get("image_url")
    if not image:
        return converted
    other_fields = omit(drop_empty(part), *FILE_FIELDS, "detail")
    if part.get("detail") != "auto":  # "auto" is the default
        image = image | {"detail": part.get("detail")}
    return {**other_fields, "type": "image_url", "image_url": drop_empty(image)}


def is_odd(content: Any) -> bool:
    """Return whether a text part of the content has fields besides type, text and cache mark."""
    texts = (block for block in dicts_in(content) if block.get("type") in (*_TEXTS, "refusal"))
    return any(not drop_empty(block).keys() <= _TEXT_KEYS for block in texts)


def drop_empty(fields: Fields) -> Fields:
    """Return the fields without those that are None or empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}
