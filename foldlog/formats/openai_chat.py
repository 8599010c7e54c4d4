"""Read and write OpenAI chat messages: ``{"role", "content", "tool_calls", …}``, in the order of
the list.

The messages, and the events that they become:

    system, developer               SystemMessage
    assistant with tool calls       an Action for each call; the text is the thought of the first
                                    call
    tool, function                  Observation of the call that the message answers
    user, assistant                 Message, from the user or the agent
    exit                            Message from the environment, in which mini-SWE-agent says how a
                                    run ended

A message with an unknown role is not read, because its author is unknown. A call without an id gets
the name of its tool as its id. A result without an id answers the first open call of its tool in
the newest reply. If several open calls have the same id, a result answers the call in the newest
reply. If this reply has two calls with the id, the result answers the first of them.

A message may have a time. An assistant's message may have ``model``, ``usage`` and ``cost``.
mini-SWE-agent writes ``cost``, the whole response, and the exit code of a command into ``extra``.
Messages have no ids, so ``origin.id`` of an event is None.

Some agents store chat messages with further fields. Subclasses of the decoder and the encoder
handle the further fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats.blocks import kind_of
from foldlog.formats.event_fields import call_id_of, role_of
from foldlog.formats.format import Beside, Format
from foldlog.formats.messages import (
    READER,
    ROLES,
    is_message_of_anthropic,
    unknown_role,
    with_exit_code,
)
from foldlog.formats.record import (
    Fields,
    NotAnEvent,
    SourceTime,
    dict_or_empty,
    dicts_in,
    has,
    member,
    time_at,
    time_under,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder, thinking_before, thoughts_before
from foldlog.projections import arguments_of

NAME = "openai-chat"

_COMPARED = ("role", "content", "tool_calls", "function_call", "tool_call_id")
"""``alike`` messages must be equal in these fields."""


def matches(record: Any) -> bool:
    """Return whether ``record`` has a role, and has content or calls. A message with a field
    ``agent`` comes from SWE-agent, and does not match.
    """
    return (
        accepts(record)
        and ("content" in record or "tool_calls" in record)
        and type(record.get("agent")) is not str
    )


_has_role = has(role=str)
EXPECTED = "a chat message with a text under 'role'"
"""The description of a record: see ``Format.expected``."""


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a known role, or the role ``exit``. mini-SWE-agent ends a run
    with a message of the role ``exit``.
    """
    return _has_role(record) and (record["role"] in ROLES or record["role"] == "exit")


_PARTS = frozenset(
    (
        "text",
        "refusal",
        "image_url",
        "image",
        "input_audio",
        "audio_url",
        "video_url",
        "file",
        "document",
        "input_text",
        "output_text",
        "input_image",
        "input_file",
        "thinking",
        "reasoning",
    )
)
"""The types of parts in chat messages, including parts for servers and tools of other providers."""
_FOREIGN_KEYS = frozenset(("messageId", "toolInvocations", "parts"))
"""Fields of the messages of Amp and of Vercel's AI SDK, which hold calls and results there."""


def parts_of_others(record: Any) -> list[str]:
    """Return the types of those parts of ``record`` that no chat message has, such as calls of
    other programs.
    """
    if not _has_role(record) or is_message_of_anthropic(record):
        return []
    kinds = [kind_of(part) for part in dicts_in(record, "content")]
    return sorted({kind or "none" for kind in kinds if kind not in _PARTS})


def _is_of_another(record: Any) -> bool:
    """Return whether a message is of another program with similar messages."""
    is_message = _has_role(record) and "content" in record
    return is_message and (
        not accepts(record) or not _FOREIGN_KEYS.isdisjoint(record) or bool(parts_of_others(record))
    )


def _calls_or_answers(record: Any) -> bool:
    """Return whether a message has calls or a result, as only OpenAI's format has them."""
    has_calls = type(record.get("tool_calls")) is list or type(record.get("function_call")) is dict
    return has_calls or record["role"] in ("tool", "function")


def beside(fields: JsonMap, records: Sequence[Any]) -> Beside:
    """Read the object that holds the messages, for ``Format.beside``: a logged call with its
    ``response``, or a run of SWE-agent with its ``info``. Return the model's answer, and the usage
    of the call or the run.

    If the response has several choices, the first choice is the answer. If the messages already end
    with the answer, the answer is left out.
    """
    response = fields.get("response")
    cost = fields.get("cost")
    if type(response) is str:
        response = {"role": "assistant", "content": response}
    response = dict_or_empty(response)
    answers = list[Any]()
    choices = dicts_in(response, "choices")
    answer = choices[0].get("message") if choices else response
    if accepts(answer) and not (records and alike(records[-1], answer)):
        answers.append(answer)
    stats = dict_or_empty(fields, "info", "model_stats")
    tokens = {
        "prompt_tokens": stats.get("tokens_sent"),
        "completion_tokens": stats.get("tokens_received"),
    }
    meta = usage_meta(tokens, cost=stats.get("instance_cost") or None, calls=stats.get("api_calls"))
    if not meta:
        meta = usage_meta(
            response.get("usage"), model=response.get("model"), reply=response.get("id"), cost=cost
        )
        at = time_at(fields.get("timestamp")) if meta else None
        if at is not None:
            meta |= {"at": at.isoformat()}
    metas = [meta] if meta else []
    return answers, metas


def time_of_message(message: Any) -> SourceTime:
    """Return the time of a message, or ``(None, None)``. OpenAI's format has no field for the time,
    so each program adds a field of its own.
    """
    return time_under(message, "timestamp", "created_at", "created")


def alike(one: Any, other: Any) -> bool:
    """Return whether two messages have equal text and calls. All other fields must be equal too,
    except that a field may be missing or empty in one of the messages.
    """
    if not (accepts(one) and accepts(other)):
        return False
    for key in one.keys() | other.keys():
        values = one.get(key) or None, other.get(key) or None
        may_differ = key not in _COMPARED and None in values
        if not may_differ and _sorted_json(values[0]) != _sorted_json(values[1]):
            return False
    return True


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# -- messages to events ----------------------------------------------------------------------------


class OpenAIChatDecoder(FollowingDecoder):
    """Reads chat messages. A subclass reads the messages of a program with further fields."""

    keeps_shown = False

    def to_openai(self, message: Fields) -> Sequence[Fields]:
        """Convert a message into messages of OpenAI's format. A subclass converts the messages of
        one program.
        """
        return [message]

    def check(self, record: Any) -> None:
        if _has_role(record) and not accepts(record):
            raise NotAnEvent(unknown_role(record["role"]))
        super().check(record)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        if kinds := parts_of_others(record):
            self.report(
                f"has parts of the type {' and '.join(map(repr, kinds))}, which no chat message"
                " has; the message is stored, but calls and results in it are not shown"
            )
        extra = dict_or_empty(record, "extra")
        if record["role"] == "assistant":
            response = {**dict_or_empty(extra, "response"), **record}
            cost = record.get("cost", within(response, "usage", "cost"))
            collected.tell(
                response.get("model"),
                (extra.get("cost") or None) if cost is None else cost,
                response.get("usage"),
            )
        for message in self.to_openai(record):
            for event in READER.chat(message, f"message-{self.next_id}"):
                collected.take(with_exit_code(event, record))
        collected.close("reply", None)


# -- events to messages ----------------------------------------------------------------------------


class OpenAIChatEncoder(RepliesEncoder):
    """Writes chat messages."""

    has_all_fields = False
    """Whether a written message also gets the further fields that the ``meta`` of its event has."""

    def records(self, event: Event) -> Sequence[Any] | None:
        is_reasoning = isinstance(event, Annotation) and event.name == "reasoning"
        if is_reasoning:
            return self.say(event, ends_reply=True)
        return super().records(event)

    def records_of(self, events: Sequence[Any]) -> Sequence[Any]:
        message = message_of(
            events if self.has_all_fields else [replace(event, meta={}) for event in events]
        )
        return [] if message is None else [message]


def message_of(events: Sequence[Event]) -> Fields | None:
    """Return the chat message for ``events``, or None if there is no message for such events.
    Further fields of an imported message come from ``meta``.
    """
    event = events[0]
    role = role_of(events[0])
    calls = [call for call in events if isinstance(call, Action)]
    match event:
        case Action():
            content = thoughts_before(calls)
            thinking = thinking_before(calls)
        case Message(content=content, thinking=thinking):
            pass
        case (
            Observation(content=content)
            | SystemMessage(content=content)
            | CondensationSummary(content=content)
        ):
            thinking = ()
        case Annotation(name="reasoning", data=list(blocks)):
            role = "assistant"
            content = ""
            thinking = tuple(dicts_in(blocks))
        case _:
            return None
    message: Fields = {
        "role": role,
        "content": content if isinstance(content, str) else [*content],
    }
    if isinstance(event, Action | Annotation):
        message["content"] = message["content"] or None
    message |= thought(thinking)
    if isinstance(event, Action):
        message["tool_calls"] = list(map(_call, calls))
    elif isinstance(event, Observation):
        if event.tool:
            message |= {"name": event.tool}
        message["tool_call_id"] = call_id_of(event)
    message |= dict_or_empty(event.meta, "message")
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def thought(thinking: Sequence[Fields]) -> Fields:
    """Return the field of a message with the model's thinking: as a text if that loses nothing."""
    if thinking and all(block.keys() == {"type", "thinking"} for block in thinking):
        return {"reasoning_content": "\n".join(str(block["thinking"]) for block in thinking)}
    return {"thinking_blocks": list(thinking)} if thinking else {}


def _call(action: Action) -> Fields:
    """Return a call in a message."""
    call = {**dict_or_empty(action.meta, "call"), "id": call_id_of(action)}
    arguments = action.arguments
    if "custom_tool" in action.meta and isinstance(arguments, dict):
        return {**call, "type": "custom", "custom": {"name": action.tool, **arguments}}
    if not isinstance(arguments, str):
        arguments = arguments_of(action)
    return {
        **call,
        "type": "function",
        "function": {"name": action.tool, "arguments": arguments},
    }


class _Encoder(OpenAIChatEncoder):
    """Writes chat messages with all fields of replies that were recorded."""

    has_all_fields = True


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    refuses=_is_of_another,
    own=_calls_or_answers,
    expected=EXPECTED,
    dialect="openai",
    decoder=OpenAIChatDecoder,
    encoder=_Encoder,
    lacks=frozenset(("error mark", "count of tokens", "cost")),
    beside=beside,
    source_id=member("id"),
    time=time_of_message,
    marks_errors=False,
)
