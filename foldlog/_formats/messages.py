"""Read a message of a provider to events: of OpenAI's chat, of Anthropic, or an item of OpenAI's
Responses.

``append`` and imports read by it, so the same message becomes the same events: text beside calls is
the thought of the first call, with the model's thinking, and parts that no event has a field for
are annotations. The events have no ids and no origins yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any, Final

from msgspec.structs import replace

from foldlog._formats.blocks import (
    HELD,
    THINKING,
    is_of_anthropic,
    is_of_server,
    kind_of,
    part_of,
    returned,
    with_results,
)
from foldlog._formats.event_fields import parts_in
from foldlog._formats.json_text import json_text
from foldlog._formats.record import (
    NotAnEvent,
    dict_or_empty,
    dicts_in,
    text_or_empty,
    text_or_none,
    within,
)
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

Part = dict[str, Any]

SPEAKERS: Mapping[str, Source] = {"user": "user", "assistant": "agent"}
ROLES = frozenset((*SPEAKERS, "system", "developer", "tool", "function"))
_OF_NO_MODEL = ("environment", "exit")
"""Roles that formats of agents have besides."""
_THINKING = (*THINKING, "reasoning")
_BLOCKS_OF_ANTHROPIC = THINKING | {
    "tool_use",
    "tool_result",
    "document",
    "image",
    "search_result",
    "container_upload",
}
_TEXTS = ("text", "input_text", "output_text")
_OF_TEXTS = frozenset(("type", "text", "cache_control"))

_TYPES = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
)
CALLS: Final = frozenset((*_TYPES, "tool_search_call", "mcp_approval_request"))
"""Items that a client answers. Calls of the server's own tools contain their results."""
OUTPUTS: Final = frozenset(
    (*(f"{each}_output" for each in _TYPES), "tool_search_output", "mcp_approval_response")
)
IDS: Final = ("call_id", "approval_request_id", "id")
"""The fields that may hold the id of an item's call."""
_ARGUMENTS = ("arguments", "action", "operation")
_OF_PLAIN = dict.fromkeys(("function_call_output", "custom_tool_call_output"), ("type",))
_OF_ITEMS = ("type", "id", "name", "status")
_OF_ANTHROPIC = (
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


def is_message_of_anthropic(message: Part) -> bool:
    """Return whether a message of the user or the assistant has blocks of Anthropic's. A user may
    give any server a part that is not known here: of these a name tells.
    """
    role = message.get("role")
    if role not in ("user", "assistant"):
        return False
    is_own = is_of_anthropic if role == "assistant" else is_of_server
    return "stop_reason" in message or any(
        kind_of(block) in _BLOCKS_OF_ANTHROPIC or is_own(block)
        for block in dicts_in(message.get("content"))
    )


def is_message_item(item: Part) -> bool:
    """Return whether an item of OpenAI's Responses is a message."""
    return item.get("type", "message") == "message" and type(item.get("role")) is str


def unknown(role: str) -> str:
    """Return what is wrong with a message whose role is not one of ``ROLES``."""
    return f"the role {short(role)} is not known; use assistant, user, system, developer or tool"


def with_exit_code(event: Event, record: dict[str, Any]) -> Event:
    """Return a result with the exit code of its command, where mini-SWE-agent wrote that beside
    it.
    """
    code = within(record, "extra", "returncode")
    if code is None or not isinstance(event, Observation):
        return event
    return replace(event, is_error=code != 0, extras={"exit_code": code})


COMPACTED_BY_PROVIDER = "the model's provider compacted the context"
"""The reason of a condensation before a compaction that a provider made."""


def compaction_in(item: Any) -> Message | None:
    """Return what an item of OpenAI's Responses is that stands for all before it: only its server
    can read it, and gets it back as it was.
    """
    if kind_of(item) != "compaction" or not text_or_empty(item.get("encrypted_content")):
        return None
    part = {key: item[key] for key in ("type", "id", "encrypted_content") if item.get(key)}
    return Message(source="agent", content=(part,))


def compacts(event: Event) -> bool:
    """Return whether an event holds the compaction of a provider: it stands for all that came
    before. An Anthropic block without content is a compaction that failed.
    """
    if not isinstance(event, Message | Action):
        return False
    parts = parts_in(event.thought if isinstance(event, Action) else event.content)
    blocks = [block for part in parts for block in (part, *dicts_in(part.get("blocks")))]
    return any(kind_of(each) == "compaction" and any(map(each.get, _SUMMARIES)) for each in blocks)


_SUMMARIES = ("content", "encrypted_content")


def spoken(role: str, content: Content) -> Event:
    """Return what somebody said who neither calls nor answers. Raises ``NotAnEvent`` for a role
    that is not known.
    """
    if role in ("system", "developer"):
        return SystemMessage(content=content)
    if role not in ROLES and role not in _OF_NO_MODEL:
        raise NotAnEvent(unknown(role))
    return Message(source=SPEAKERS.get(role, "environment"), content=content)


class MessageReader:
    """Reads messages as an import does, which keeps them: odd values are read as far as that goes,
    and blocks that only Anthropic's server knows are passed over, since other programs keep blocks
    of their own in this form.
    """

    of_replies = False
    """Whether a model may ask for a condensation, and each block that only Anthropic's server knows
    goes back to it.
    """

    def refuse(self, problem: str) -> None:
        """Take notice of a value of another form, which is then read as its JSON text."""

    def arguments(self, arguments: Part | str | None) -> Part | str | None:
        """Return the arguments of a call as an event holds them."""
        return arguments

    def rest(self, name: str, fields: Part, *taken: str) -> Part:
        """Return the ``meta`` that holds, under this name, the fields that no event has ``taken``.
        A content is taken, unless its texts have other fields.
        """
        return {}

    # --- OpenAI's chat ---

    def chat(
        self, message: Part, response_id: str | None = None, meta: Part | None = None
    ) -> list[Event]:
        """Return the events of a chat message; none of one of the assistant that has no content and
        no call.
        """
        role = message["role"]
        if is_message_of_anthropic(message):
            return self.anthropic(message, response_id, meta)
        if message.get("content") is None and role in ("user", "system", "developer"):
            self.refuse(
                f"the content of the {role} message is missing; give a text or a list of parts"
            )
        content = self.content(message.get("content"), f"the {role} message")
        if role == "assistant":
            return self._assistant(message, content, response_id, meta or {})
        if role in ("tool", "function"):
            tool = text_or_empty(message.get("name")) or text_or_empty(message.get("tool_name"))
            return [
                Observation(
                    content=content, call_id=text_or_none(message.get("tool_call_id")), tool=tool
                )
            ]
        if role not in ROLES:
            self.refuse(unknown(role))
        return [spoken(role, content)]

    def _assistant(
        self, message: Part, content: Content, response_id: str | None, meta: Part
    ) -> list[Event]:
        # litellm tells some twice
        if own := dict_or_empty(message.get("provider_specific_fields")):
            message = {**own, **message}
        called = [self.call(call) for call in calls_in(message)]
        spoken = dict_or_empty(message.get("audio")).get("transcript")
        content = content or text_or_empty(message.get("refusal")) or text_or_empty(spoken)
        thinking = dicts_in(message.get("thinking_blocks"))
        # two names of one text
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if not thinking and isinstance(reasoning, str) and reasoning:
            thinking = [{"type": "thinking", "thinking": reasoning}]
        return self.said(content, called, thinking, response_id, meta)

    def call(self, call: Any, name: str = "call", id_key: str = "id") -> Action:
        """Return the call of a chat message, an item or a block. Its other fields are in ``meta``
        under this name.
        """
        fields = dict(dict_or_empty(call))
        fields |= dict_or_empty(fields.pop("function", None) or fields.pop("custom", None))
        tool, call_id, text = (text_or_none(fields.get(key)) for key in ("name", id_key, "input"))
        if tool is None:
            self.refuse(
                f"the call {short(call)} does not name its tool; a call of a chat message is a map,"
                " such as {'id': 'call-1', 'type': 'function', 'function': {'name': 'terminal',"
                " 'arguments': '{}'}}"
            )
        arguments = {"input": text} if text is not None else fields.get("arguments")
        if not isinstance(arguments, dict | str | None):
            self.refuse(
                f"the arguments of a call are {short(arguments)}; give a map, or its JSON text"
            )
            arguments = json_text(arguments)
        taken = ("type", "name", id_key, "arguments" if text is None else "input")
        return Action(
            tool=tool or "",
            arguments=self.arguments(arguments),
            call_id=tool if call_id is None else call_id,  # its result names the tool
            meta=({} if text is None else {"custom_tool": True}) | self.rest(name, fields, *taken),
        )

    def said(
        self,
        content: Content,
        called: Sequence[Action],
        thinking: Sequence[Part],
        response_id: str | None,
        meta: Part,
    ) -> list[Event]:
        """Return the events of one response: a message, or actions with the text as the thought of
        the first one. Thinking alone is an annotation.
        """
        actions = [
            call for call in called if not self.of_replies or call.tool != "request_condensation"
        ]
        events: list[Event] = []
        if actions:
            actions[0] = replace(
                actions[0], thought=content, thinking=tuple(thinking), meta=meta | actions[0].meta
            )
            together = response_id or f"response-{actions[0].call_id}"
            events += [replace(action, response_id=together) for action in actions]
        elif content:
            events.append(
                Message(source="agent", content=content, thinking=tuple(thinking), meta=meta)
            )
        elif thinking and not called:
            events.append(Annotation(name="reasoning", data=list(thinking), meta=meta))
        if len(actions) < len(called):
            events.append(
                CondensationRequest(reason="the model asked for it", meta={} if events else meta)
            )
        return events

    # --- OpenAI's Responses ---

    def item(self, item: Part) -> Event | None:
        """Return the event of an item; None for one that neither says, calls nor answers, such as
        what a server did.
        """
        kind = kind_of(item) or ""
        role = item.get("role")
        if kind in ("function_call", "custom_tool_call"):
            return self.call(item, "item", "call_id")
        if is_message_item(item):
            if role not in ROLES:
                self.refuse(unknown(str(role)))
            return spoken(str(role), self.content(item.get("content"), f"the {role} message"))
        if (kind not in CALLS and kind not in OUTPUTS) or item.get("execution") == "server":
            return None
        id_key = next((key for key in IDS if item.get(key) is not None), "call_id")
        others = {key: value for key, value in item.items() if key not in (*_OF_ITEMS, id_key)}
        call_id = text_or_none(item.get(id_key))
        if kind in CALLS:
            told = next((key for key in _ARGUMENTS if isinstance(item.get(key), dict | str)), None)
            tool = text_or_none(item.get("name")) or kind.removesuffix("_call")
            return Action(
                tool=tool,
                arguments=self.arguments(item[told] if told else others),
                call_id=call_id or tool,
                meta=self.rest("item", item, "name", id_key, *([told] if told else others)),
            )
        output = others.pop("output", None)
        used = list[str]()
        if output is None:
            output = others or ""
            used = list(others)
        parts = [output] if isinstance(output, dict) else output
        has_parts = isinstance(parts, list) and all(map(kind_of, parts))
        return Observation(
            content=self.content(parts, "an output") if has_parts else json_text(output),
            call_id=call_id,
            is_error=item.get("status") == "failed",
            meta=self.rest("item", item, id_key, *used, *_OF_PLAIN.get(kind, ())),
        )

    # --- Anthropic's messages ---

    def anthropic(
        self, message: Part, response_id: str | None = None, meta: Part | None = None
    ) -> list[Event]:
        """Return the events of a message: of the user first the results, of the model none if it
        has only thinking.
        """
        is_agent = message["role"] == "assistant"
        of = f"the {message['role']} message"
        blocks = self.parts(message.get("content") or [], of)
        if is_agent:
            blocks = with_results(blocks, singles=self.of_replies)
        else:
            blocks = self._returned(blocks)
        paused = [
            block for block in blocks if is_agent and "input" in block and is_of_server(block)
        ]
        if is_agent:
            own = ("tool_use", "tool_result", *_THINKING)
        else:
            own = ("tool_result",)
        said = [block for block in blocks if block.get("type") not in own and block not in paused]
        content = _content(said)
        results = [self._result(block) for block in _of(blocks, "tool_result")]
        meta = (meta or {}) | self.rest("message", message, *_OF_ANTHROPIC)
        meta |= self.rest("blocks", {"content": said})
        if not is_agent:
            return [
                *results,
                *([Message(source="user", content=content, meta=meta)] if content else ()),
            ]
        used = [
            {**block, "arguments": block.get("input"), "input": None}
            for block in _of(blocks, "tool_use")
        ]
        called = [self.call(block, "block") for block in used] + [
            self.call(call) for call in calls_in(message)
        ]
        events = self.said(content, called, _of(blocks, *_THINKING), response_id, meta)
        return [
            *events,
            *(Annotation(name=block["type"], data=block) for block in paused),
            *results,
        ]

    def _result(self, block: Part) -> Observation:
        given = block.get("content")
        return Observation(
            call_id=text_or_none(block.get("tool_use_id")),
            content=self.content(self._returned(given), "a tool_result"),
            is_error=block.get("is_error") is True,
            meta=self.rest("block", block, "type", "tool_use_id", "is_error"),
        )

    def _returned(self, blocks: Any) -> Any:
        if self.of_replies and isinstance(blocks, list):
            return list(map(returned, blocks))
        return blocks

    # --- content ---

    def content(self, given: Any, of: str) -> Content:
        """Return a content: a text, or parts in the shape of OpenAI's chat; a single text part
        becomes a text.
        """
        if given is None or isinstance(given, str):
            return given or ""
        return _content(self.parts(given, of))

    def parts(self, given: Any, of: str) -> list[Part]:
        """Return the parts of a content. A part that is neither a text nor a map is refused, and a
        text without one.
        """
        if not isinstance(given, str | list):
            self.refuse(f"the content of {of} is {short(given)}; give a text or a list of parts")
            given = json_text(given)
        parts: list[Any] = given if isinstance(given, list) else list(parts_in(given))
        for place, part in enumerate(parts):
            if isinstance(part, dict) and part.get("type") in _TEXTS:
                text = part.get("text")
            else:
                text = ""
            if not isinstance(part, dict | str) or not isinstance(text, str):
                self.refuse(
                    f"part {place} of {of} is {short(part)}; a part is a map: {{'type': 'text',"
                    " 'text': 'hi'}"
                )
        return [
            part if isinstance(part, dict) else {"type": "text", "text": json_text(part)}
            for part in parts
        ]


READER: Final = MessageReader()


def calls_in(message: Part) -> list[Any]:
    """Return the calls of a chat message: in the time before there were tools, the call of a
    function.
    """
    calls = message.get("tool_calls")
    function = message.get("function_call")
    if not calls and function:
        return [{"function": function}]
    if isinstance(calls, list):
        return calls
    return [calls] if calls else []


def _of(blocks: Sequence[Part], *kinds: str) -> list[Part]:
    return [block for block in blocks if block.get("type") in kinds]


def _content(parts: Sequence[Part]) -> Content:
    made = tuple(map(_part, parts))
    is_text = (
        len(made) == 1 and made[0].keys() == {"type", "text"} and isinstance(made[0]["text"], str)
    )
    return str(made[0]["text"]) if is_text else made or ""


def _part(part: Part) -> Part:
    """Return a text or an image as OpenAI's chat has it, and any other part as it is."""
    if part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    known = part_of(part)
    if known is None or known == part:
        return part
    if image := known.get("image_url"):
        kept = {key: value for key, value in filled(part).items() if key not in (*HELD, "detail")}
        # the default
        if part.get("detail") == "auto":
            told = {}
        else:
            told = {"detail": part.get("detail")}
        return {**kept, "type": "image_url", "image_url": filled(image | told)}
    return known


def is_odd(given: Any) -> bool:
    """Return whether texts in a content have fields that no event has."""
    texts = (block for block in dicts_in(given) if block.get("type") in (*_TEXTS, "refusal"))
    return any(not filled(block).keys() <= _OF_TEXTS for block in texts)


def filled(fields: Part) -> Part:
    """Return the fields that are neither null nor empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}
