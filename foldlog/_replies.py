"""Convert a model's reply to events: chat completions, OpenAI's Responses, litellm's objects, Anthropic's messages.

Text beside calls is the thought of the first call, with the model's thinking: blocks, reasoning items, or the text of a
``reasoning_content``. Parts that no event has a field for, such as a search by the provider, are annotations, so that
no part of the reply is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._formats.record import dicts_in
from foldlog._usage import usage_of
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

Part = dict[str, Any]

_REQUEST_TOOL = "request_condensation"
_THINKING = ("thinking", "redacted_thinking")
_BLOCKS_OF_ANTHROPIC = frozenset((*_THINKING, "tool_use", "tool_result", "server_tool_use", "document", "image"))
_PARTS = ("text", "image", "document", "server_tool")
_OF_SERVER_TOOLS = ("type", "id", "tool_use_id", "name", "input", "content")
_CALL_ITEMS = ("function_call", "custom_tool_call")
_RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
_FIELDS_OF_A_MESSAGE = frozenset(
    (
        *("role", "content", "tool_calls", "function_call", "refusal", "audio", "thinking_blocks"),
        *("reasoning_content", "reasoning", "name", "id", "type", "provider_specific_fields"),
    )
)


def from_openai(message_or_response: Any) -> tuple[Event, ...]:
    """Return the events of a model's reply, or of messages: to be appended in this order, all together.

    Takes the objects of the SDKs and plain dicts: a chat completion (OpenAI's or litellm's) or a chat message, a
    response of OpenAI's Responses API or its items, an Anthropic message, a ``foldlog.condensers.Reply``; or a list of
    messages or items. The text is a ``Message`` of the agent. Each tool call is an ``Action``, with its arguments as a
    map where they are a JSON object, else as the text that the model wrote. A call of ``request_condensation_tool()``
    is a ``CondensationRequest``. Model, finish reason and usage are in ``meta`` of the first message or action.

    Empty for a reply without text and calls. Raises ``InvalidArgument`` for other objects, such as a stream: collect
    its chunks first; and ``InvalidEvent`` for what is nested too deep to be stored.
    """
    try:
        reply, hidden = _plain(message_or_response), getattr(message_or_response, "_hidden_params", None)
    except RecursionError:
        raise InvalidEvent("this message is nested too deep to be stored") from None
    if isinstance(reply, dict) and isinstance(hidden, Mapping):  # litellm has its cost beside the data
        reply = {"cost": hidden.get("response_cost"), **reply}
    return tuple(_events(reply))


def events_of_reply(
    conversation: str,
    reply: Any,
    cost: float | None = None,
    meta: Mapping[str, Any] | None = None,
    timestamp: datetime | None = None,
) -> tuple[Event, ...]:
    """Return the events of a model's reply, of this cost, ``meta`` and time. Raises what ``from_openai`` raises, and
    ``InvalidEvent`` for a message of the user or the system, and for a reply with neither a text nor a call.
    """
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost < float("inf")):
        raise InvalidArgument(f"cost is {cost!r}; give US dollars, such as 0.0123, or leave it out")
    events = from_openai(reply)
    for event in events:
        if isinstance(event, SystemMessage) or (isinstance(event, Message) and event.source != "agent"):
            raise InvalidEvent(
                f"conversation {conversation!r}: a message of the {event.source} is not the reply of a model; append "
                f"it with history.append(foldlog.from_openai(message)); nothing was appended"
            )
    if not any(isinstance(event, Message | Action | CondensationRequest) for event in events):
        raise InvalidEvent(
            f"conversation {conversation!r}: the reply has neither a text nor a tool call; nothing was appended; look "
            f"at its finish reason, and ask the model again"
        )
    told = {**({} if cost is None else {"cost": cost}), **(meta or {})}
    first = next(event for event in events if isinstance(event, Message | Action | CondensationRequest))
    return tuple(
        replace(event, timestamp=timestamp, meta={**event.meta, **told} if event is first else event.meta)
        for event in events
    )


def set_apart(
    events: tuple[Event, ...], newest_first: Callable[[], Iterable[Event]], version: int, *, may_be_repeated: bool
) -> tuple[Event, ...]:
    """Return the events of a reply under a response id of their own, where the last calls before them have its id.

    A stub, and a few servers, give the same id to each reply: all its calls would be one message, and one unit that no
    View is cut in. A reply that ``may_be_repeated`` keeps the id under which its calls were appended.
    """
    calls = [event for event in events if isinstance(event, Action) and event.response_id is not None]
    last = next((event for event in newest_first() if isinstance(event, Action)), None) if calls else None
    if last is None or last.response_id is None:
        return events
    given = calls[-1]
    if given.response_id not in (last.response_id, last.response_id.rpartition("~")[0]):
        return events
    is_repeated = may_be_repeated and (last.call_id, last.arguments) == (given.call_id, given.arguments)
    own = last.response_id if is_repeated else f"{given.response_id}~{version}"
    return tuple(replace(event, response_id=own) if isinstance(event, Action) else event for event in events)


def _events(value: Any) -> Iterator[Event]:
    if isinstance(value, list):
        yield from _several(value)
    elif not isinstance(value, dict):
        raise _not_a_reply(value)
    elif "choices" in value:
        yield from _completion(value)
    elif isinstance(value.get("output"), list):
        yield from _response(value["output"], _text_or_none(value.get("id")), _account(value, value.get("status")))
    elif "tool_calls" in value and "latency_s" in value:
        yield from _own_reply(value)
    elif _is_of_anthropic(value):
        yield from _anthropic(value)
    elif "role" in value and value.get("type") in (None, "message"):
        yield from _chat(value, None, {})
    elif "type" in value:
        yield from _response([value], None, {})
    else:
        keys = ", ".join(sorted(map(str, value))) or "no keys"
        raise _not_a_reply(value, f"an object with {keys}")


def _several(values: list[Any]) -> Iterator[Event]:
    """Yield the events of messages or items, in their order. A response ends where results of its calls come."""
    items: list[Part] = []
    for value in values:
        of_a_response = isinstance(value, dict) and _is_of_a_response(value)
        answered = bool(items) and items[-1].get("type") in _RESULT_ITEMS
        if not of_a_response or (answered and value.get("type") not in _RESULT_ITEMS):
            yield from _response(items, None, {})
            items = []
        if of_a_response:
            items.append(value)
        else:
            yield from _events(value)
    yield from _response(items, None, {})


def _is_of_a_response(value: Part) -> bool:
    """Return whether this is an item of a response: one without a role, such as a call, or a message of its output."""
    if "role" not in value:
        return "type" in value and "choices" not in value
    is_output = value["role"] == "assistant" and value.get("type") == "message" and "choices" not in value
    return is_output and not _is_of_anthropic(value)


# --- chat completions ---


def _completion(completion: Part) -> Iterator[Event]:
    choices = completion["choices"]
    if not isinstance(choices, list) or len(choices) != 1:
        many = len(choices) if isinstance(choices, list) else "no list of"
        raise InvalidArgument(f"this completion has {many} choices; give the message of one: choices[0].message")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise InvalidArgument("this is a chunk of a stream; collect the chunks into one completion, then give that")
    yield from _chat(
        message, _text_or_none(completion.get("id")), _account(completion, choices[0].get("finish_reason"))
    )


def _chat(message: Part, response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    given = message.get("content")
    if message.get("role") in ("user", "system", "developer") and not isinstance(given, str | list):
        raise InvalidArgument(
            f"the content of a {message['role']} message is {given!r}; give a text or a list of parts"
        )
    content = _content_of(given)
    match message.get("role"):
        case "assistant":
            yield from _assistant(message, content, response_id, meta)
        case "system" | "developer":
            yield SystemMessage(content=content, meta=meta)
        case "tool" | "function":
            call_id, tool = _text_or_none(message.get("tool_call_id")), _text_or_none(message.get("name"))
            yield Observation(content=content, call_id=call_id, tool=tool or "", meta=meta)
        case "user":
            yield Message(source="user", content=content, meta=meta)
        case role:
            raise InvalidArgument(f"a message has the role {role!r}; use assistant, user, system, developer or tool")


def _assistant(message: Part, content: Content, response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    called = []
    for call in dicts_in(message.get("tool_calls")):
        function = call.get("function") or call.get("custom") or {}
        called.append(_Call(function.get("name"), function.get("arguments"), call.get("id"), function.get("input")))
    if not called and isinstance(function := message.get("function_call"), dict):
        called.append(_Call(function.get("name"), function.get("arguments"), None))
    if not content:
        spoken = (message.get("audio") or {}).get("transcript")
        content = _text_or_none(message.get("refusal")) or _text_or_none(spoken) or ""
    thinking = tuple(dicts_in(message.get("thinking_blocks")))
    if reasoning := None if thinking else message.get("reasoning_content") or message.get("reasoning"):
        if isinstance(reasoning, str) and (called or content):
            thinking = ({"type": "thinking", "thinking": reasoning},)
        else:
            yield Annotation(name="reasoning", data=reasoning)
    if rest := {key: value for key, value in message.items() if key not in _FIELDS_OF_A_MESSAGE and value}:
        yield Annotation(name="reply", data=rest)
    yield from _said(content, called, thinking, response_id, meta)


def _own_reply(reply: Part) -> Iterator[Event]:
    called = [_Call(call["name"], call["arguments"], call["id"]) for call in reply["tool_calls"]]
    yield from _said(reply["text"] or "", called, (), reply["response_id"], _account(reply, reply["finish_reason"]))


# --- OpenAI's Responses ---


def _response(items: Sequence[Part], response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    texts: list[Content] = []
    called: list[_Call] = []
    reasoning: list[Part] = []
    later: list[Event] = []
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            reasoning.append(item)
        elif kind in _CALL_ITEMS:
            called.append(_Call(item.get("name"), item.get("arguments"), item.get("call_id"), item.get("input")))
        elif kind in _RESULT_ITEMS:
            later.append(
                Observation(call_id=_text_or_none(item.get("call_id")), content=_content_of(item.get("output")))
            )
        elif "role" not in item:
            yield Annotation(name=_text_or_none(kind) or "reply", data=item)
        elif item.get("role") == "assistant":
            texts.append(_content_of(item.get("content")))
        else:
            later += _chat(item, None, {})
    if reasoning and not (called or any(texts)):
        yield from (Annotation(name="reasoning", data=item) for item in reasoning)
        reasoning = []
    yield from _said(_joined_contents(texts), called, tuple(reasoning), response_id, meta)
    yield from later


# --- Anthropic's messages ---


def _is_of_anthropic(message: Part) -> bool:
    kinds = {block.get("type") for block in dicts_in(message.get("content"))}
    return "role" in message and ("stop_reason" in message or not kinds.isdisjoint(_BLOCKS_OF_ANTHROPIC))


def _anthropic(message: Part) -> Iterator[Event]:
    meta = _account(message, message.get("stop_reason"))
    blocks = _with_results(_blocks_of(message.get("content")))
    said = _of(blocks, *_PARTS)
    if message["role"] != "assistant":
        for block in blocks:
            if block.get("type") == "tool_result":
                content, failed = _content_of(block.get("content")), bool(block.get("is_error"))
                yield Observation(call_id=_text_or_none(block.get("tool_use_id")), content=content, is_error=failed)
        if said:
            yield Message(source="user", content=_content_of(said), meta=meta)
        return
    called = [_Call(block.get("name"), block.get("input"), block.get("id")) for block in _of(blocks, "tool_use")]
    thinking = tuple(_of(blocks, *_THINKING))
    known = (*_PARTS, "tool_use", *_THINKING)
    for block in blocks:
        if block.get("type") not in known:
            yield Annotation(name=_text_or_none(block.get("type")) or "reply", data=block)
    yield from _said(_content_of(said), called, thinking, _text_or_none(message.get("id")), meta)


def _with_results(blocks: Iterable[Part]) -> list[Part]:
    """Return the blocks with one part for each call that the server answered itself, such as a search, and its result:
    the server takes both back, or neither.
    """
    found: dict[Any, Part] = {}
    for place, block in enumerate(blocks):
        kind, answered = str(block.get("type")), str(block.get("tool_use_id"))
        call = found.get(answered)
        if kind == "server_tool_use":
            found[str(block.get("id"))] = block
        elif call is not None and kind.endswith("_tool_result"):
            both = [{name: each[name] for name in _OF_SERVER_TOOLS if name in each} for each in (call, block)]
            found[answered] = {"type": "server_tool", "blocks": both}
        else:
            found[place, kind] = block
    return list(found.values())


def _of(blocks: Iterable[Part], *kinds: str) -> list[Part]:
    return [block for block in blocks if block.get("type") in kinds]


# --- common parts ---


class _Call(NamedTuple):
    tool: Any
    arguments: Any
    id: Any
    input: Any = None
    """What the model wrote for a custom tool."""


def _said(
    content: Content,
    called: Sequence[_Call],
    thinking: tuple[Part, ...],
    response_id: str | None,
    meta: dict[str, Any],
) -> Iterator[Event]:
    """Yield the events of one response: a message, or actions with the text as the thought of the first one."""
    actions = [call for call in called if call.tool != _REQUEST_TOOL]
    if actions:
        together = response_id or f"response-{actions[0].id}"
        for place, call in enumerate(actions):
            yield Action(
                tool=_text_or_none(call.tool) or "",
                arguments=_arguments(call.arguments) if call.input is None else {"input": call.input},
                call_id=_text_or_none(call.id),
                response_id=together,
                thought="" if place else content,
                thinking=() if place else thinking,
                meta=({} if place else meta) | ({} if call.input is None else {"custom_tool": True}),
            )
    elif content:
        yield Message(source="agent", content=content, thinking=thinking, meta=meta)
    if len(actions) < len(called):
        yield CondensationRequest(reason="the model asked for it", meta={} if actions or content else meta)


def _arguments(arguments: Any) -> dict[str, Any] | str | None:
    """Return a map, or a text as it is; the text of a JSON object as a map, if every parser reads the same map."""
    if not isinstance(arguments, str):
        return arguments if isinstance(arguments, dict) else None
    try:
        read = json.loads(arguments, parse_constant=_refuse, object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _account(reply: Part, finish_reason: Any) -> dict[str, Any]:
    """Return model, finish reason, usage and cost of a reply, as far as it tells them. Some servers tell the cost with
    the usage.
    """
    usage = reply.get("usage")
    cost = reply.get("cost", usage.get("cost") if isinstance(usage, dict) else None)
    told = {"model": _text_or_none(reply.get("model")), "finish_reason": _text_or_none(finish_reason)}
    known = {key: value for key, value in {**told, "usage": usage_of(usage)}.items() if value}
    return known if type(cost) not in (int, float) else {**known, "cost": cost}


# --- values of SDKs ---


def _content_of(value: Any) -> Content:
    """Return a text, or parts in the shape of OpenAI's chat; a single text part becomes a text."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    parts = [_part(part) for part in _blocks_of(value)]
    if len(parts) == 1 and parts[0].get("type") == "text":
        return _text_or_none(parts[0].get("text")) or ""
    return tuple(parts)


def _part(part: Part) -> Part:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            kept = {key: part[key] for key in ("cache_control",) if part.get(key)}
            return {"type": "text", "text": _text_or_none(part.get("text")) or "", **kept}
        case "refusal":
            return {"type": "text", "text": _text_or_none(part.get("refusal")) or ""}
        case "input_image" if isinstance(part.get("image_url"), str):
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case "image" if isinstance(source := part.get("source"), dict):
            url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
            return {"type": "image_url", "image_url": {"url": url}}
    return part


def _joined_contents(contents: Sequence[Content]) -> Content:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents if content)
    parts: list[Part] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return tuple(parts)


def _blocks_of(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        part if isinstance(part, dict) else {"type": "text", "text": str(part)}
        for part in (content if isinstance(content, list) else ())
    ]


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _plain(value: Any) -> Any:
    """Return the value as dicts, lists, texts and numbers. None in the objects of SDKs is left out.

    Raises ``InvalidArgument`` for an object that holds no data, such as a stream.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if callable(dump):
        return _plain(dump(mode="json", warnings=False, exclude_none=True))
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__dict__", None)
    if not fields or isinstance(value, type | Iterator) or hasattr(value, "__aiter__"):
        raise _not_a_reply(value)
    return {name: _plain(getattr(value, name)) for name in fields if not name.startswith("_")}


def _not_a_reply(value: object, found: str = "") -> InvalidArgument:
    """Return the error for an object that is not the reply of a model."""
    found = found or f"an object of type {type(value).__name__}"
    return InvalidArgument(
        f"{found} is not the reply of a model; give a chat completion or one of its messages, a response of OpenAI or "
        f"its items, or an Anthropic message; of a stream, collect the chunks first"
    )
