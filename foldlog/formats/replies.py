"""Convert a model's reply to events: chat completions, OpenAI's Responses, litellm's objects, and
Anthropic's messages.

``foldlog.formats.messages`` reads the messages, as it does for imports. Unlike an import, this
module refuses malformed values, parses arguments, and stores unknown fields in ``meta``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from reprlib import repr as short
from typing import Any, NoReturn

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap
from foldlog._base.values import values_in
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationRequest,
    Content,
    Event,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.codec_json import describe_value as to_text
from foldlog.eventstore.usage import cost_of, usage_of
from foldlog.formats.blocks import kind_of
from foldlog.formats.json_text import check_depth
from foldlog.formats.messages import (
    COMPACTED_BY_PROVIDER,
    OUTPUTS,
    MessageReader,
    compaction_in,
    compacts as compacts,
    drop_empty,
    is_message_of_anthropic,
    is_odd,
    unknown_role,
)
from foldlog.formats.open_calls import OpenCalls, is_of_reply
from foldlog.formats.openai_chat import message_of, time_of_message
from foldlog.formats.prompt_changes import change_of_prompt
from foldlog.formats.record import Fields, dict_or_empty, dicts_in, name_of_type, text_or_none
from foldlog.formats.reply_encoders import join_contents
from foldlog.projections import View

_REPLY_KEYS = {"text", "tool_calls", "response_id", "finish_reason", "latency_s"}
"""The fields by which a ``foldlog.condensers.Reply`` is recognized."""


def from_openai(message_or_response: Any) -> tuple[Event, ...]:
    """Return the events of a model's reply or of messages. Append all returned events, in their
    order.

    The argument is an object of an SDK, a plain dict or a list. A dict or an object may be a chat
    completion (of OpenAI or litellm), a chat message, or an Anthropic message. A response of
    OpenAI's Responses API, the items of such a response, and a ``foldlog.condensers.Reply`` are
    accepted too. A list contains messages or items.

    The text becomes a ``Message`` of the agent. A tool call becomes an ``Action``. The arguments of
    an action are a map if they are a JSON object, and otherwise the text that the model wrote. A
    call without an id gets the name of its tool as its id. A call of
    ``request_condensation_tool()`` becomes a ``CondensationRequest``. The model, finish reason and
    usage are in ``meta`` of the first message or action. Unknown fields are in ``meta`` too, under
    ``message``, ``items``, ``item``, ``blocks``, ``block`` or ``call``. ``History.export`` restores
    the unknown fields of chat messages. NaN and infinities become texts.

    A reply without text and calls becomes an annotation with its model and usage. Raises
    ``InvalidArgument`` for malformed content, parts and calls, and for other objects. A stream is
    refused too, so collect the chunks of a stream first. Raises ``InvalidEvent`` for a value that
    is nested too deep to be stored.
    """
    try:
        reply = plain_data(message_or_response)
        hidden = getattr(message_or_response, "_hidden_params", None)
        if (
            isinstance(reply, dict)
            and isinstance(hidden, Mapping)
            and usage_of(reply.get("usage")).get("prompt_tokens")
        ):
            # Litellm stores the cost beside the data. Without usage, as in some streams, this cost
            # is for an empty prompt and would be wrong.
            reply = {"cost": hidden.get("response_cost"), **reply}
        events = tuple(map(_with_finite_numbers, _events(reply)))
    except RecursionError:
        raise InvalidEvent(
            "this message is nested too deep to be stored; pass the inner values as text"
        ) from None
    if not any(isinstance(event, Observation) for event in events):
        return events
    return add_missing_results(View.from_events(()), (), events)


def add_missing_results(
    view: View, before: Sequence[Event], events: tuple[Event, ...]
) -> tuple[Event, ...]:
    """Link results in ``events`` to their calls, which may be in ``view``, in the events ``before``
    them that are appended too, or in ``events``. The ``cause`` of a result is the event of its
    call, if this event is recorded: see ``OpenCalls.of_result``.
    """
    # Among the events before, only the newest reply and later events may have the calls.
    reply_calls: list[Action] = []
    start = len(before)
    for index, event in zip(range(start - 1, -1, -1), reversed(before), strict=True):
        if isinstance(event, Action):
            if reply_calls and not is_of_reply(event, reply_calls):
                break
            reply_calls.append(event)
        start = index
    calls = OpenCalls(lambda: view)
    linked_events = list[Event]()
    for event_id, event in enumerate((*before[start:], *events), view.version + start):
        if isinstance(event, Action):
            calls.open(replace(event, id=event_id))
        elif isinstance(event, Observation):
            is_new = event_id >= view.version + len(before)
            call = calls.of_result(event.call_id, event.tool) if is_new else event.call_id
            call_id, _, tool = calls.close(call)
            cause = None
            if isinstance(call, Action) and call.id < view.version:
                cause = call.id
            event = replace(event, call_id=call_id, tool=tool or event.tool, cause=cause)
        linked_events.append(event)
    return tuple(linked_events[len(linked_events) - len(events) :])


def behind_compaction(
    view: View, before: Sequence[Event], events: tuple[Event, ...]
) -> tuple[Event, ...]:
    """Add a condensation before the newest compaction in the reply ``events``. The condensation
    forgets the events that the compaction replaces: all earlier events except system prompts. If
    the program requested the compaction with ``responses.compact``, the condensation does not
    forget the user's messages. The events ``before`` the reply are appended with it.
    """
    index = max(index for index, event in enumerate(events) if compacts(event))
    is_asked = events[index].meta.get("object") == "response.compaction"
    appended = enumerate((*before, *events[:index]), view.version)
    prompt = [*view, *(replace(event, id=event_id) for event_id, event in appended if event.shown)]
    kept_ids = [
        event.id
        for event in prompt
        if isinstance(event, SystemMessage)
        or (is_asked and isinstance(event, Message) and event.source == "user")
    ]
    metadata = {"reason": COMPACTED_BY_PROVIDER}
    change = change_of_prompt(
        [event.id for event in prompt], kept_ids, "compaction", metadata=metadata
    )
    if change is None:
        return events
    return (*events[:index], change, *events[index:])


def result_of(event: Observation, calls: Mapping[str | None, Action]) -> Observation:
    """Return a result with the tool of its call, and with the event of the call as its cause. A
    call that is appended together with its result has no id yet, so it is no cause.
    """
    call = calls[event.call_id]
    is_recorded = call.id >= 0
    cause = call.id if event.cause is None and is_recorded else event.cause
    return replace(event, tool=call.tool, cause=cause)


def events_of_reply(
    conversation: str,
    reply: Any,
    cost: float | None = None,
    meta: JsonMap | None = None,
    timestamp: datetime | None = None,
) -> tuple[Event, ...]:
    """Return the events of a model's reply. ``cost`` and ``meta`` are added to the ``meta`` of the
    first message, call or request for a compaction, and ``timestamp`` is the time of all. Raises
    ``InvalidEvent`` for a message of the user or the system, and for a reply with neither a text
    nor a call. Raises ``InvalidArgument`` for a cost that is no number of US dollars, and
    ``TypeError`` for a ``timestamp`` that is no time.
    """
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost < float("inf")):
        raise InvalidArgument(
            f"cost is {short(cost)}; use a number of US dollars, such as 0.0123, or leave it out"
        )
    if not isinstance(timestamp, datetime | None):
        raise TypeError(f"timestamp must be a datetime with a time zone, not {short(timestamp)}")
    events = from_openai(reply)
    for event in events:
        if isinstance(event, SystemMessage) or (
            isinstance(event, Message) and event.source != "agent"
        ):
            raise InvalidEvent(
                f"conversation {conversation!r}: a message of the {event.source} is not the reply"
                " of a model; append it with history.append(message); nothing was appended"
            )
    first = next(
        (event for event in events if isinstance(event, Message | Action | CondensationRequest)),
        None,
    )
    if first is None:
        names = ", ".join(event.name for event in events if isinstance(event, Annotation))
        rest = f", only {names}" if names else ""
        raise InvalidEvent(
            f"conversation {conversation!r}: the reply has neither a text nor a tool call{rest};"
            " nothing was appended. Look at the finish reason of the reply, and ask the model"
            " again. To record the usage of the reply, call"
            " history.append(foldlog.from_openai(reply))"
        )
    added_meta = {} if cost is None else {"cost": cost}
    added_meta.update(meta or {})
    with_meta = replace(first, meta={**first.meta, **added_meta})
    return tuple(
        replace(
            with_meta if event is first else event,
            timestamp=timestamp or event.timestamp,
        )
        for event in events
    )


def set_apart(
    events: tuple[Event, ...], newest_first: Iterable[Event], version: int
) -> tuple[Event, ...]:
    """If a reply has the same response id as the previous reply, give its calls a unique response
    id.

    Stubs and a few servers return a single response id for all replies. Without unique ids, the
    calls of all replies would form a single message, and a condenser cannot forget a part of a
    message.
    """
    response_ids = [
        event.response_id
        for event in events
        if isinstance(event, Action) and event.response_id is not None
    ]
    if not response_ids:
        return events
    previous_call = next((event for event in newest_first if isinstance(event, Action)), None)
    if previous_call is None or previous_call.response_id is None:
        return events
    response_id = response_ids[-1]
    # An id that was made unique before ends with "~" and a version.
    if response_id not in (previous_call.response_id, previous_call.response_id.rpartition("~")[0]):
        return events
    unique_id = f"{response_id}~{version}"
    return tuple(
        replace(event, response_id=unique_id) if isinstance(event, Action) else event
        for event in events
    )


def _events(value: Any) -> Iterator[Event]:
    """Yield the events of plain data that has one of the forms of ``from_openai``."""
    if isinstance(value, list):
        yield from _events_of_list(value)
    elif not isinstance(value, dict):
        raise _not_a_reply(value)
    elif "choices" in value:
        yield from _completion_events(value)
    elif value.get("object") == "response.compaction":
        # The other items of its output are the user's messages, which stay in the View.
        meta = _reply_meta(value, None) | {"object": "response.compaction"}
        compactions = map(compaction_in, dicts_in(value.get("output")))
        yield from (replace(event, meta=meta) for event in compactions if event)
    elif (items := dicts_in(value.get("output"))) == value.get("output") and "call_id" not in value:
        answered_call_ids = {str(item.get("call_id")) for item in items if kind_of(item) in OUTPUTS}
        yield from _response_events(
            items,
            text_or_none(value.get("id")),
            _reply_meta(value, value.get("status")),
            answered_call_ids,
        )
    elif value.keys() >= _REPLY_KEYS:
        message = {"role": "assistant", "content": value["text"], "tool_calls": value["tool_calls"]}
        yield from _chat_events(
            message, value["response_id"], _reply_meta(value, value["finish_reason"])
        )
    elif "role" in value and value.get("type") in (None, "message"):
        if value["role"] == "assistant":
            meta = _reply_meta(value, value.get("stop_reason"))
        else:
            meta = {}
        timestamp, _ = time_of_message(value)
        for event in _chat_events(value, None, meta):
            yield replace(event, timestamp=timestamp)
    elif "type" in value:
        yield from _response_events([value], None, {})
    else:
        keys = ", ".join(sorted(map(str, value))) or "no keys"
        raise _not_a_reply(value, f"an object with {keys}")


def _events_of_list(values: list[Any]) -> Iterator[Event]:
    """Yield the events of messages and of items. Items up to the results of their calls belong to a
    single response.
    """
    items = list[Fields]()
    earlier_events = list[Event]()
    for value in values:
        is_response_item = isinstance(value, dict) and _is_of_a_response(value)
        has_results = bool(items) and kind_of(items[-1]) in OUTPUTS
        if not is_response_item or (has_results and kind_of(value) not in OUTPUTS):
            yield from _response_events(items, None, {})
            items = []
        if is_response_item:
            items.append(value)
        else:
            message_events = set_apart(
                tuple(_events(value)), reversed(earlier_events), len(earlier_events)
            )
            earlier_events += message_events
            yield from message_events
    yield from _response_events(items, None, {})


def _is_of_a_response(value: Fields) -> bool:
    """Return whether an object in a list is an item of OpenAI's Responses that a model wrote, or a
    result.
    """
    if "role" not in value:
        return "type" in value and "choices" not in value
    is_output = (
        value["role"] == "assistant" and value.get("type") == "message" and "choices" not in value
    )
    return is_output and not is_message_of_anthropic(value)


# --- chat completions ---


def _completion_events(completion: Fields) -> Iterator[Event]:
    """Yield the events of a chat completion. Raises ``InvalidArgument`` if it has not exactly one
    choice, or is a chunk.
    """
    choices = completion["choices"]
    if not isinstance(choices, list) or len(choices) != 1:
        count = len(choices) if isinstance(choices, list) else "no list of"
        raise InvalidArgument(
            f"this completion has {count} choices; pass the message of one choice: "
            f"choices[0].message"
        )
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise InvalidArgument(
            "this is a chunk of a stream; collect the chunks into one completion, and pass it"
        )
    meta = _reply_meta(completion, choices[0].get("finish_reason"))
    yield from _chat_events(
        {"role": "assistant", **message}, text_or_none(completion.get("id")), meta
    )


def _chat_events(message: Fields, response_id: str | None, meta: Fields) -> Iterator[Event]:
    """Yield the events of a message. The first event that is not an annotation gets a ``meta`` with
    the fields of the message that an export would lose or change. A message of Anthropic has its
    own id.
    """
    if not isinstance(message["role"], str):
        _reader.refuse(unknown_role(message["role"]))
    is_anthropic = is_message_of_anthropic(message)
    if is_anthropic:
        events = _reader.anthropic(message, response_id or text_or_none(message.get("id")), meta)
    else:
        events = _reader.openai(message, response_id, meta)
    main_event = next(
        (event for event in events if not isinstance(event, Annotation)),
        events[0] if events else None,
    )
    unexported = {}
    if not is_anthropic:
        unexported = _fields_not_exported(message, main_event)
    for event in events:
        yield replace(event, meta=event.meta | unexported) if event is main_event else event
    if main_event is None and (unexported or meta):
        yield Annotation(name="reply", data=unexported.get("message"), meta=meta)


def _fields_not_exported(message: Fields, event: Event | None) -> Fields:
    """Return, under ``message``, the fields of a message that an export of its main ``event`` would
    lose or change. If an export would add a field, the result has the field with the value None.
    The unknown fields of calls are left out, because they are stored with the calls.
    """
    if specific_fields := dict_or_empty(message.get("provider_specific_fields")):
        # Litellm repeats some of these fields in the message itself.
        specific_fields = {
            key: value for key, value in specific_fields.items() if message.get(key) != value
        }
        message = {**message, "provider_specific_fields": specific_fields}
    fields = drop_empty(message)
    if isinstance(event, Action):
        event = Message(
            source="agent", content=event.thought, thinking=event.thinking, meta=event.meta
        )
    exported_message = None if event is None else message_of([event])
    exported = drop_empty(exported_message or {"role": message["role"]})
    equal_keys = {"type", "tool_calls"}
    if isinstance(event, Observation):
        equal_keys |= {"role", "tool_call_id"}
    if not fields.get("tool_calls"):
        equal_keys.add("function_call")
    exported_thoughts = "".join(
        str(block.get("thinking", "")) for block in exported.get("thinking_blocks", ())
    )
    if fields.get("reasoning_content") == exported_thoughts:
        equal_keys.add("reasoning_content")
    if isinstance(fields.get("content"), list) and not is_odd(fields["content"]):
        equal_keys.add("content")
    unexported = {
        key: value
        for key, value in (dict.fromkeys(exported) | fields).items()
        if key not in equal_keys and value != exported.get(key)
    }
    return {"message": unexported} if unexported else {}


# --- OpenAI's Responses ---


def _response_events(
    items: Sequence[Fields],
    response_id: str | None,
    meta: Fields,
    answered_call_ids: Container[str] = (),
) -> Iterator[Event]:
    """Yield the events of the items of one response. The annotations of unknown items, and of calls
    that the server itself ran, come first. Calls in ``answered_call_ids`` were run by the server.
    """
    texts = list[Content]()
    calls = list[Action]()
    reasoning = list[Fields]()
    results = list[Event]()
    unread_fields = list[Fields]()
    for item in items:
        if text_or_none(item.get("call_id")) in answered_call_ids:
            event = None
        else:
            event = _reader.item(item)
        if isinstance(event, Action):
            calls.append(event)
        elif isinstance(event, Message) and event.source == "agent":
            texts.append(event.content)
            unread_fields += _reader.other_fields("items", item, "type", "role").values()
        elif event is not None:
            results.append(event)
        elif item.get("type") == "reasoning":
            reasoning.append(item)
        elif compacted := compaction_in(item):
            yield compacted
        else:
            name = name_of_type(text_or_none(item.get("type")) or "reply")
            yield Annotation(name=name, data=item)
    if not (calls or any(texts)):
        yield from (Annotation(name="reasoning", data=item) for item in reasoning)
        if meta:
            yield Annotation(name="reply", meta=meta)
        reasoning = []
    if unread_fields:
        meta = meta | {"items": unread_fields}
    yield from _reader.response_events(join_contents(texts), calls, reasoning, response_id, meta)
    yield from results


# --- what differs from an import ---


class _Reader(MessageReader):
    """Reads live replies: refuses malformed values, parses arguments, and keeps unknown fields."""

    of_replies = True

    def refuse(self, problem: str) -> NoReturn:
        raise InvalidArgument(problem)

    def other_fields(self, name: str, fields: Fields, *keys: str) -> Fields:
        keys += tuple(
            key for key in ("content", "output") if key in fields and not is_odd(fields[key])
        )
        rest = drop_empty({key: value for key, value in fields.items() if key not in keys})
        return {name: rest} if rest else {}

    def arguments(self, arguments: Fields | str | None) -> Fields | str | None:
        """Return the text of a JSON object as a map if all parsers would read equal maps from it.
        Return a map that the store cannot contain, because of an infinity or too many levels, as
        its text.
        """
        value = arguments
        try:
            if isinstance(arguments, str):
                value = json.loads(
                    arguments, parse_constant=_refuse, object_pairs_hook=_without_repeated_keys
                )
            json.dumps(value, allow_nan=False, default=to_text)
            check_depth(value)
        except (ValueError, RecursionError):
            if isinstance(arguments, str):
                return arguments
            return json.dumps(arguments, ensure_ascii=False, default=to_text)
        return value if isinstance(value, dict) else arguments


_reader = _Reader()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> Fields:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _reply_meta(reply: Fields, finish_reason: Any) -> Fields:
    """Return the ``meta`` with the model, the finish reason, the usage and the cost of a reply."""
    usage = reply.get("usage")
    if isinstance(usage, dict) and "service_tier" in reply:
        usage = {**usage, "service_tier": reply["service_tier"]}
    # Some servers put the cost into the usage.
    cost_in_usage = usage.get("cost") if isinstance(usage, dict) else None
    cost = reply.get("cost")
    cost_usd = cost_of(cost_in_usage if cost is None else cost)
    counts = usage_of(usage)
    fields = {
        "model": text_or_none(reply.get("model")),
        "finish_reason": text_or_none(finish_reason),
        "usage": counts,
    }
    meta: Fields = {key: value for key, value in fields.items() if value}
    if cost_usd is not None:
        meta["cost"] = cost_usd
    return meta


# --- values of SDKs ---


def plain_data(value: Any) -> Any:
    """Return an object of an SDK as plain dicts, lists and values, without the fields that are
    None. An object without data, such as a stream, is returned unchanged.
    """
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [plain_data(item) for item in value]
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if callable(dump):
        return plain_data(dump(mode="json", warnings=False, exclude_none=True, by_alias=True))
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__dict__", {})
    public = [name for name in fields if not name.startswith("_")]
    if not public or isinstance(value, type | Iterator) or hasattr(value, "__aiter__"):
        return value
    return {name: plain_data(getattr(value, name)) for name in public}


def _with_finite_numbers(event: Event) -> Event:
    """Return an event in which texts replace infinities and NaN: a server may return any number,
    and an event holds only finite numbers.
    """
    names = [name for name in _FIELDS_OF_SERVER if name in event.__struct_fields__]
    fields = {name: getattr(event, name) for name in names}
    numbers = (value for _, value in values_in(fields) if type(value) is float)
    return event if all(map(isfinite, numbers)) else replace(event, **_finite(fields))


def _finite(value: Any) -> Any:
    """Return a value with texts in place of its infinities and NaN."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_finite, value))
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    return value


_FIELDS_OF_SERVER = ("content", "thought", "thinking", "data", "meta")
"""The fields of an event that contain values of a server. The arguments of a call with an infinity
become a text in ``_Reader.arguments``.
"""


def _not_a_reply(value: object, description: str = "") -> InvalidArgument:
    description = description or f"an object of type {type(value).__name__}"
    return InvalidArgument(
        f"{description} is not the reply of a model; pass a chat completion or one of its messages,"
        " a response of OpenAI or its items, or an Anthropic message; collect the chunks of a"
        " stream first"
    )
