"""Convert a model's reply to events: chat completions, OpenAI's Responses, litellm's objects,
Anthropic's messages.

``foldlog._formats.messages`` reads the messages, as for an import. What is particular here: a value
of another form is refused, arguments are maps, and the fields that no event has go to ``meta``, so
that no part of a message is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from reprlib import repr as short
from typing import Any, NoReturn

from msgspec.structs import replace

from foldlog._formats.blocks import kind_of
from foldlog._formats.calls import OpenCalls, is_of_reply
from foldlog._formats.json_text import check_depth
from foldlog._formats.messages import (
    COMPACTED_BY_PROVIDER,
    OUTPUTS,
    MessageReader,
    Part,
    compaction_in,
    compacts as compacts,
    filled,
    is_message_of_anthropic,
    is_odd,
)
from foldlog._formats.openai_chat import message_of, time_of_message
from foldlog._formats.record import dict_or_empty, dicts_in, text_or_none
from foldlog._formats.reply_encoders import joined
from foldlog._prompt_changes import change_of_prompt
from foldlog._usage import cost_of, usage_of
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
from foldlog.eventstore.inside import said
from foldlog.projections import View


def from_openai(message_or_response: Any) -> tuple[Event, ...]:
    """Return the events of a model's reply, or of messages: to be appended in this order, all
    together.

    Takes the objects of the SDKs and plain dicts: a chat completion (OpenAI's or litellm's) or a
    chat message, a response of OpenAI's Responses API or its items, an Anthropic message, a
    ``foldlog.condensers.Reply``; or a list of messages or items. The text is a ``Message`` of the
    agent. Each tool call is an ``Action``, with its arguments as a map where they are a JSON
    object, else as the text that the model wrote; one without an id has the name of its tool as its
    id. A call of ``request_condensation_tool()`` is a ``CondensationRequest``. Model, finish reason
    and usage are in ``meta`` of the first message or action; a message alone may tell them and its
    time too. The fields of a message, its items, blocks or calls that no event has are in ``meta``
    too, under ``message``, ``items``, ``item``, ``blocks``, ``block`` or ``call``;
    ``History.export`` writes those of chat messages back.

    A reply without text and calls is an annotation, with its model and usage if it tells them.
    Raises ``InvalidArgument`` for other objects, such as a stream: collect its chunks first, and
    for content, parts and calls of another form; and ``InvalidEvent`` for what is nested too deep
    to be stored.
    """
    try:
        reply = _plain(message_or_response)
        hidden = getattr(message_or_response, "_hidden_params", None)
    except RecursionError:
        raise InvalidEvent("this message is nested too deep to be stored") from None
    if (
        isinstance(reply, dict)
        and isinstance(hidden, Mapping)
        and usage_of(reply.get("usage")).get("prompt_tokens")
    ):
        # litellm has its cost beside the data; of a stream without usage, that of no prompt
        reply = {"cost": hidden.get("response_cost"), **reply}
    return answered(View.from_events(()), (), tuple(_events(reply)))


def answered(view: View, before: Sequence[Event], events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events to append behind ``view`` and ``before``. A result gets the tool of its
    call, and one without an id the id of its call, and its ``cause`` if that is recorded: see
    ``OpenCalls.of_result``.
    """
    reply: list[Action] = []
    first = len(before)
    for place, event in zip(range(first - 1, -1, -1), reversed(before), strict=True):
        if isinstance(event, Action):
            if reply and not is_of_reply(event, reply):
                break
            reply.append(event)
        first = place
    calls = OpenCalls(lambda: view)
    found = list[Event]()
    for event_id, event in enumerate((*before[first:], *events), view.version + first):
        if isinstance(event, Action):
            calls.open(replace(event, id=event_id))
        elif isinstance(event, Observation):
            is_new = event_id >= view.version + len(before)
            if is_new:
                call = calls.of_result(event.call_id, event.tool)
            else:
                call = event.call_id
            call_id, _, tool = calls.close(call)
            if isinstance(call, Action) and call.id < view.version:
                cause = call.id
            else:
                cause = None
            event = replace(event, call_id=call_id, tool=tool or event.tool, cause=cause)
        found.append(event)
    return tuple(found[len(found) - len(events) :])


def behind_compaction(
    view: View, before: Sequence[Event], events: tuple[Event, ...]
) -> tuple[Event, ...]:
    """Return the events of a reply, the newest compaction in them behind a condensation of what it
    stands for: all but the system prompts, and where the program asked for it alone
    (``responses.compact``), but the user's messages too.
    """
    place = max(place for place, event in enumerate(events) if compacts(event))
    is_asked = events[place].meta.get("object") == "response.compaction"
    appended = enumerate((*before, *events[:place]), view.version)
    prompt = [*view, *(replace(event, id=event_id) for event_id, event in appended if event.shown)]
    after = [
        event.id
        for event in prompt
        if isinstance(event, SystemMessage)
        or (is_asked and isinstance(event, Message) and event.source == "user")
    ]
    metadata = {"reason": COMPACTED_BY_PROVIDER}
    change = change_of_prompt(
        [event.id for event in prompt], after, "compaction", metadata=metadata
    )
    if change is None:
        return events
    return (*events[:place], change, *events[place:])


def result_of(event: Observation, calls: Mapping[str | None, Action]) -> Observation:
    """Return a result with the tool and the event id of its call, which is a recorded one or has no
    id yet.
    """
    call = calls[event.call_id]
    return replace(
        event,
        tool=call.tool,
        cause=call.id if event.cause is None and call.id >= 0 else event.cause,
    )


def events_of_reply(
    conversation: str,
    reply: Any,
    cost: float | None = None,
    meta: Mapping[str, Any] | None = None,
    timestamp: datetime | None = None,
) -> tuple[Event, ...]:
    """Return the events of a model's reply, of this cost, ``meta`` and time. Raises what
    ``from_openai`` raises, and ``InvalidEvent`` for a message of the user or the system, and for a
    reply with neither a text nor a call.
    """
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost < float("inf")):
        raise InvalidArgument(
            f"cost is {short(cost)}; give US dollars, such as 0.0123, or leave it out"
        )
    if not isinstance(timestamp, datetime | None):
        raise TypeError(f"timestamp is a datetime with a time zone, not {short(timestamp)}")
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
        raise InvalidEvent(
            f"conversation {conversation!r}: the reply has neither a text nor a tool call; nothing"
            " was appended; it has"
            f" {names or 'nothing'};"
            " look at its finish reason, and ask the model again;"
            " history.append(foldlog.from_openai(reply)) keeps its usage"
        )
    told = {**({} if cost is None else {"cost": cost}), **(meta or {})}
    return tuple(
        replace(
            event,
            timestamp=timestamp or event.timestamp,
            meta={**event.meta, **told} if event is first else event.meta,
        )
        for event in events
    )


def set_apart(
    events: tuple[Event, ...], newest_first: Callable[[], Iterable[Event]], version: int
) -> tuple[Event, ...]:
    """Return the events of a reply under a response id of their own, where the last calls before
    them have its id.

    A stub, and a few servers, give the same id to each reply: all its calls would be one message,
    and one unit that no View is cut in.
    """
    calls = [
        event for event in events if isinstance(event, Action) and event.response_id is not None
    ]
    if calls:
        last = next((event for event in newest_first() if isinstance(event, Action)), None)
    else:
        last = None
    if last is None or last.response_id is None:
        return events
    given = calls[-1].response_id
    if given not in (last.response_id, last.response_id.rpartition("~")[0]):
        return events
    own = f"{given}~{version}"
    return tuple(
        replace(event, response_id=own) if isinstance(event, Action) else event for event in events
    )


def _events(value: Any) -> Iterator[Event]:
    if isinstance(value, list):
        yield from _several(value)
    elif not isinstance(value, dict):
        raise _not_a_reply(value)
    elif "choices" in value:
        yield from _completion(value)
    elif (
        value.get("object") == "response.compaction"
    ):  # its other items are the user's messages, which stay
        meta = _account(value, None) | {"object": "response.compaction"}
        yield from (
            replace(each, meta=meta)
            for each in map(compaction_in, dicts_in(value.get("output")))
            if each
        )
    elif (items := dicts_in(value.get("output"))) == value.get("output") and "call_id" not in value:
        done = {str(item.get("call_id")) for item in items if kind_of(item) in OUTPUTS}
        yield from _response(
            items, text_or_none(value.get("id")), _account(value, value.get("status")), done
        )
    elif "tool_calls" in value and "latency_s" in value:
        said = {"role": "assistant", "content": value["text"], "tool_calls": value["tool_calls"]}
        yield from _chat(said, value["response_id"], _account(value, value["finish_reason"]))
    elif "role" in value and value.get("type") in (None, "message"):
        of_anthropic = is_message_of_anthropic(value)
        response_id = text_or_none(value.get("id")) if of_anthropic else None
        if value["role"] == "assistant":
            meta = _account(value, value.get("stop_reason"))
        else:
            meta = {}
        timestamp, _ = time_of_message(value)
        yield from (
            replace(event, timestamp=timestamp) for event in _chat(value, response_id, meta)
        )
    elif "type" in value:
        yield from _response([value], None, {})
    else:
        keys = ", ".join(sorted(map(str, value))) or "no keys"
        raise _not_a_reply(value, f"an object with {keys}")


def _several(values: list[Any]) -> Iterator[Event]:
    """Yield the events of messages or items, in their order. A response ends where results of its
    calls come.
    """
    items = list[Part]()
    earlier = list[Event]()
    for value in values:
        of_a_response = isinstance(value, dict) and _is_of_a_response(value)
        answered = bool(items) and items[-1].get("type") in OUTPUTS
        if not of_a_response or (answered and value.get("type") not in OUTPUTS):
            yield from _response(items, None, {})
            items = []
        if of_a_response:
            items.append(value)
        else:
            made = set_apart(tuple(_events(value)), partial(reversed, earlier), len(earlier))
            earlier += made
            yield from made
    yield from _response(items, None, {})


def _is_of_a_response(value: Part) -> bool:
    """Return whether this is an item of a response: one without a role, such as a call, or a
    message of its output.
    """
    if "role" not in value:
        return "type" in value and "choices" not in value
    is_output = (
        value["role"] == "assistant" and value.get("type") == "message" and "choices" not in value
    )
    return is_output and not is_message_of_anthropic(value)


# --- chat completions ---


def _completion(completion: Part) -> Iterator[Event]:
    choices = completion["choices"]
    if not isinstance(choices, list) or len(choices) != 1:
        many = len(choices) if isinstance(choices, list) else "no list of"
        raise InvalidArgument(
            f"this completion has {many} choices; give the message of one: choices[0].message"
        )
    if isinstance(choices[0], dict):
        message = choices[0].get("message")
    else:
        message = None
    if not isinstance(message, dict):
        raise InvalidArgument(
            "this is a chunk of a stream; collect the chunks into one completion, then give that"
        )
    account = _account(completion, choices[0].get("finish_reason"))
    yield from _chat({"role": "assistant", **message}, text_or_none(completion.get("id")), account)


def _chat(message: Part, response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of a message. Where what an export makes of them differs from it, ``meta``
    says how.
    """
    events = _reader.chat(message, response_id, meta)
    told = next(
        (event for event in events if not isinstance(event, Annotation)),
        events[0] if events else None,
    )
    rest = {} if is_message_of_anthropic(message) else _unlike(message, told)
    yield from (
        replace(event, meta=event.meta | rest) if event is told else event for event in events
    )
    if told is None and (rest or meta):
        yield Annotation(name="reply", data=rest.get("message"), meta=meta)


def _unlike(message: Part, event: Event | None) -> dict[str, Any]:
    """Return the ``meta`` with the fields of a chat message that its export lacks, or has in
    another form; None for one that only the export has. Calls have theirs.
    """
    if own := dict_or_empty(message.get("provider_specific_fields")):  # litellm tells some twice
        own = {key: value for key, value in own.items() if message.get(key) != value}
        message = {**message, "provider_specific_fields": own}
    given = filled(message)
    written = filled((event and message_of([event])) or {"role": message["role"]})
    same = {
        "type",
        "tool_calls",
        *(("role", "tool_call_id") if isinstance(event, Observation) else ()),
    }
    same |= set() if given.get("tool_calls") else {"function_call"}
    thought = "".join(
        str(block.get("thinking", "")) for block in written.get("thinking_blocks", ())
    )
    same |= {"reasoning_content"} if given.get("reasoning_content") == thought else set()
    same |= (
        {"content"}
        if isinstance(given.get("content"), list) and not is_odd(given["content"])
        else set()
    )
    both = dict.fromkeys(written) | given
    rest = {
        key: value for key, value in both.items() if key not in same and value != written.get(key)
    }
    return {"message": rest} if rest else {}


# --- OpenAI's Responses ---


def _response(
    items: Sequence[Part], response_id: str | None, meta: dict[str, Any], done: Container[str] = ()
) -> Iterator[Event]:
    """Yield the events of one response: before the others, what the server did itself, also these
    calls.
    """
    said = list[Content]()
    called = list[Action]()
    reasoning = list[Part]()
    results = list[Event]()
    rest = list[Part]()
    for item in items:
        if text_or_none(item.get("call_id")) in done:
            event = None
        else:
            event = _reader.item(item)
        if isinstance(event, Action):
            called.append(event)
        elif isinstance(event, Message) and event.source == "agent":
            said.append(event.content)
            rest += _reader.rest("items", item, "type", "role").values()
        elif event is not None:
            results.append(event)
        elif item.get("type") == "reasoning":
            reasoning.append(item)
        elif compacted := compaction_in(item):
            yield compacted
        else:
            yield Annotation(name=text_or_none(item.get("type")) or "reply", data=item)
    if not (called or any(said)):
        yield from (Annotation(name="reasoning", data=item) for item in reasoning)
        if meta:
            yield Annotation(name="reply", meta=meta)
        reasoning = []
    meta = meta | ({"items": rest} if rest else {})
    yield from _reader.said(joined(said), called, reasoning, response_id, meta)
    yield from results


# --- what differs from an import ---


class _Reader(MessageReader):
    of_replies = True

    def refuse(self, problem: str) -> NoReturn:
        raise InvalidArgument(problem)

    def rest(self, name: str, fields: Part, *taken: str) -> Part:
        taken += tuple(key for key in ("content", "output") if not is_odd(fields.get(key)))
        rest = filled({key: value for key, value in fields.items() if key not in taken})
        return {name: rest} if rest else {}

    def arguments(self, arguments: Part | str | None) -> Part | str | None:
        """Return a map, or a text as it is; the text of a JSON object as a map, if every parser
        reads the same map. A map that the store cannot hold, with an infinity or of too many
        levels, is its text.
        """
        read = arguments
        try:
            if isinstance(arguments, str):
                read = json.loads(
                    arguments, parse_constant=_refuse, object_pairs_hook=_without_repeated_keys
                )
            json.dumps(read, allow_nan=False, default=said)
            check_depth(read)
        except (ValueError, RecursionError):
            if isinstance(arguments, str):
                return arguments
            return json.dumps(arguments, ensure_ascii=False, default=said)
        return read if isinstance(read, dict) else arguments


_reader = _Reader()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _account(reply: Part, finish_reason: Any) -> dict[str, Any]:
    """Return model, finish reason, usage and cost of a reply, as far as it tells them. Some servers
    tell the cost with the usage.
    """
    usage = reply.get("usage")
    if isinstance(usage, dict) and "service_tier" in reply:
        usage = {**usage, "service_tier": reply["service_tier"]}
    cost = reply.get("cost", usage.get("cost") if isinstance(usage, dict) else None)
    told = {"model": text_or_none(reply.get("model")), "finish_reason": text_or_none(finish_reason)}
    known = {key: value for key, value in {**told, "usage": usage_of(usage)}.items() if value}
    paid = cost_of(cost)
    return known if paid is None else {**known, "cost": paid}


# --- values of SDKs ---


def _plain(value: Any) -> Any:
    """Return the value as dicts, lists, texts, bytes and numbers. None in the objects of SDKs is
    left out. An object that holds no data, such as a stream, is returned as it is.
    """
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if callable(dump):
        return _plain(dump(mode="json", warnings=False, exclude_none=True, by_alias=True))
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__dict__", {})
    public = [name for name in fields if not name.startswith("_")]
    if not public or isinstance(value, type | Iterator) or hasattr(value, "__aiter__"):
        return value
    return {name: _plain(getattr(value, name)) for name in public}


def _not_a_reply(value: object, found: str = "") -> InvalidArgument:
    """Return the error for an object that is not the reply of a model."""
    found = found or f"an object of type {type(value).__name__}"
    return InvalidArgument(
        f"{found} is not the reply of a model; give a chat completion or one of its messages, a"
        " response of OpenAI or its items, or an Anthropic message; of a stream, collect the"
        " chunks first"
    )
