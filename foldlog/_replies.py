"""Convert a model's reply to events: chat completions, OpenAI's Responses, litellm's objects, Anthropic's messages.

Text beside calls is the thought of the first call, with the model's thinking: blocks, reasoning items, or the text of a
``reasoning_content``. Parts that no event has a field for, such as a search by the provider, are annotations. What the
events hold is taken from a message; the fields that remain go to ``meta``, so that no part of a message is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from reprlib import repr as short
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._formats.blocks import is_of_anthropic, is_of_server, part_of, returned, with_results
from foldlog._formats.calls import OpenCalls, is_of_reply
from foldlog._formats.json_text import check_depth
from foldlog._formats.record import dict_or_empty, dicts_in, text_or_none
from foldlog._formats.told import parts_in
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
    said,
)
from foldlog.projections import View

Part = dict[str, Any]

_REQUEST_TOOL = "request_condensation"
_THINKING = ("thinking", "redacted_thinking")
_BLOCKS_OF_ANTHROPIC = frozenset(
    (*_THINKING, "tool_use", "tool_result", "document", "image", "search_result", "container_upload")
)
_CALL_ITEMS = ("function_call", "custom_tool_call")
_RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
_TEXTS = ("text", "input_text", "output_text")
_OF_TEXTS = frozenset(("type", "text", "cache_control"))


def from_openai(message_or_response: Any) -> tuple[Event, ...]:
    """Return the events of a model's reply, or of messages: to be appended in this order, all together.

    Takes the objects of the SDKs and plain dicts: a chat completion (OpenAI's or litellm's) or a chat message, a
    response of OpenAI's Responses API or its items, an Anthropic message, a ``foldlog.condensers.Reply``; or a list of
    messages or items. The text is a ``Message`` of the agent. Each tool call is an ``Action``, with its arguments as a
    map where they are a JSON object, else as the text that the model wrote; one without an id has the name of its tool
    as its id. A call of ``request_condensation_tool()`` is a ``CondensationRequest``. Model, finish reason and usage
    are in ``meta`` of the first message or action. The fields of a message, its items, blocks or calls that no event
    has are in ``meta`` too, under ``message``, ``items``, ``item``, ``blocks``, ``block`` or ``call``;
    ``History.export`` writes those of chat messages back.

    Empty for a reply without text and calls. Raises ``InvalidArgument`` for other objects, such as a stream: collect
    its chunks first, and for content, parts and calls of another form; and ``InvalidEvent`` for what is nested too deep
    to be stored.
    """
    try:
        reply, hidden = _plain(message_or_response), getattr(message_or_response, "_hidden_params", None)
    except RecursionError:
        raise InvalidEvent("this message is nested too deep to be stored") from None
    if isinstance(reply, dict) and isinstance(hidden, Mapping):  # litellm has its cost beside the data
        reply = {"cost": hidden.get("response_cost"), **reply}
    return answered(View.from_events(()), (), tuple(_events(reply)))


def answered(view: View, before: Sequence[Event], events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events to append behind ``view`` and ``before``. A result without an id gets that of its call: see
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
    calls, found = OpenCalls(lambda: view), list[Event]()
    for event_id, event in enumerate((*before[first:], *events), view.version + first):
        if isinstance(event, Action):
            calls.open(replace(event, id=event_id))
        elif isinstance(event, Observation):
            call_id, _, _ = calls.close(calls.of_result(event.call_id, event.tool))
            event = replace(event, call_id=call_id)
        found.append(event)
    return tuple(found[len(found) - len(events) :])


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
                f"it with history.append(message); nothing was appended"
            )
    if not any(isinstance(event, Message | Action | CondensationRequest) for event in events):
        raise InvalidEvent(
            f"conversation {conversation!r}: the reply has neither a text nor a tool call; nothing was appended; it "
            f"has {', '.join(event.name for event in events if isinstance(event, Annotation)) or 'nothing'}; look at "
            f"its finish reason, and ask the model again"
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
    elif isinstance(value.get("output"), list) and "call_id" not in value:
        yield from _response(value["output"], text_or_none(value.get("id")), _account(value, value.get("status")))
    elif "tool_calls" in value and "latency_s" in value:
        called, account = [_called(call) for call in value["tool_calls"]], _account(value, value["finish_reason"])
        yield from _said(value["text"] or "", called, (), value["response_id"], account)
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
    items, earlier = list[Part](), list[Event]()
    for value in values:
        of_a_response = isinstance(value, dict) and _is_of_a_response(value)
        answered = bool(items) and items[-1].get("type") in _RESULT_ITEMS
        if not of_a_response or (answered and value.get("type") not in _RESULT_ITEMS):
            yield from _response(items, None, {})
            items = []
        if of_a_response:
            items.append(value)
        else:
            made = set_apart(tuple(_events(value)), partial(reversed, earlier), len(earlier), may_be_repeated=False)
            earlier += made
            yield from made
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
    yield from _chat(message, text_or_none(completion.get("id")), _account(completion, choices[0].get("finish_reason")))


def _chat(message: Part, response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    role = message["role"]
    if message.get("content") is None and role in ("user", "system", "developer"):
        raise InvalidArgument(f"the content of a {role} message is missing; give a text or a list of parts")
    content = _content_of(message, f"a {role} message")
    for known in ("role", "type"):
        message.pop(known, None)
    match role:
        case "assistant":
            yield from _assistant(message, content, response_id, meta)
        case "system" | "developer":
            yield SystemMessage(content=content, meta=_rest("message", message))
        case "tool" | "function":
            call_id, tool = (
                _taken(message, "tool_call_id"),
                _taken(message, "name") or _taken(message, "tool_name") or "",
            )
            yield Observation(content=content, call_id=call_id, tool=tool, meta=_rest("message", message))
        case "user":
            yield Message(source="user", content=content, meta=_rest("message", message))
        case _:
            raise InvalidArgument(f"a message has the role {role!r}; use assistant, user, system, developer or tool")


def _assistant(message: Part, content: Content, response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    message = {**dict_or_empty(message.pop("provider_specific_fields", None)), **message}  # litellm tells some twice
    calls = message.pop("tool_calls", None)
    if not calls and message.get("function_call"):
        calls = [{"function": message.pop("function_call")}]
    called = [_called(call) for call in calls or ()]
    if not content:
        spoken = dict_or_empty(message.get("audio")).get("transcript")
        content = _taken(message, "refusal") or text_or_none(spoken) or ""
    thinking = tuple(dicts_in(message.pop("thinking_blocks", None)))
    told = message.pop("reasoning_content", None), message.pop("reasoning", None)  # two names of one text
    if reasoning := None if thinking else told[0] or told[1]:
        if isinstance(reasoning, str) and (called or content):
            thinking = ({"type": "thinking", "thinking": reasoning},)
        else:
            yield Annotation(name="reasoning", data=reasoning)
    rest = _rest("message", message)
    if rest and not (called or content):
        yield Annotation(name="reply", data=rest["message"])
    yield from _said(content, called, thinking, response_id, meta | rest)


# --- OpenAI's Responses ---


def _response(items: Sequence[Part], response_id: str | None, meta: dict[str, Any]) -> Iterator[Event]:
    texts: list[Content] = []
    called: list[_Call] = []
    reasoning: list[Part] = []
    later: list[Event] = []
    rest: list[Part] = []
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            reasoning.append(item)
        elif kind in _CALL_ITEMS:
            called.append(_called(item, "item", "call_id"))
        elif kind in _RESULT_ITEMS:
            content, call_id = _content_of(item, f"a {kind}", "output"), _taken(item, "call_id")
            del item["type"]
            later.append(Observation(call_id=call_id, content=content, meta=_rest("item", item)))
        elif "role" not in item:
            yield Annotation(name=text_or_none(kind) or "reply", data=item)
        elif item.pop("role") == "assistant":
            del item["type"]
            texts.append(_content_of(item, "an assistant message"))
            rest += [_filled(item)] if _filled(item) else []
    if reasoning and not (called or any(texts)):
        yield from (Annotation(name="reasoning", data=item) for item in reasoning)
        reasoning = []
    meta = meta | ({"items": rest} if rest else {})
    yield from _said(_joined_contents(texts), called, tuple(reasoning), response_id, meta)
    yield from later


# --- Anthropic's messages ---


def _is_of_anthropic(message: Part) -> bool:
    """Return whether a message of the user or the assistant has blocks of Anthropic's. A user may give any server a
    part that is not known here: of these a name tells.
    """
    blocks, role = dicts_in(message.get("content")), message.get("role")
    is_own = is_of_anthropic if role == "assistant" else is_of_server
    has_own = any(block.get("type") in _BLOCKS_OF_ANTHROPIC or is_own(block) for block in blocks)
    return role in ("user", "assistant") and ("stop_reason" in message or has_own)


def _anthropic(message: Part) -> Iterator[Event]:
    meta, response_id = _account(message, message.get("stop_reason")), text_or_none(message.get("id"))
    role, calls = message["role"], message.pop("tool_calls", None) or ()
    is_agent, blocks = role == "assistant", _parts_in(message.pop("content"), f"a {role} message")
    for known in ("role", "type", "id", "model", "stop_reason", "usage", "cost"):
        message.pop(known, None)
    blocks = with_results(blocks, singles=True) if is_agent else list(map(returned, blocks))
    own = ("tool_use", "tool_result", *_THINKING, "reasoning") if is_agent else ("tool_result",)
    open_calls = [block for block in blocks if is_of_server(block) and "input" in block]
    said = {"content": [block for block in blocks if block.get("type") not in own and block not in open_calls]}
    content, results = _content_of(said, f"a {role} message"), _of(blocks, "tool_result")
    meta |= _rest("message", message) | _rest("blocks", said)
    if is_agent:
        used = _of(blocks, "tool_use")
        called = [_called({"arguments": block.pop("input", None), **block}, "block") for block in used]
        for block in (*open_calls, *results):
            yield Annotation(name=block["type"], data=block)
        thinking = tuple(_of(blocks, *_THINKING, "reasoning"))
        yield from _said(content, [*called, *map(_called, calls)], thinking, response_id, meta)
        return
    for block in results:
        call_id, failed = _taken(block, "tool_use_id"), bool(block.pop("is_error", False))
        if isinstance(block.get("content"), list):
            block["content"] = list(map(returned, block["content"]))
        result = _content_of(block, "a tool_result")
        del block["type"]
        yield Observation(call_id=call_id, content=result, is_error=failed, meta=_rest("block", block))
    if content:
        yield Message(source="user", content=content, meta=meta)


def _of(blocks: Iterable[Part], *kinds: str) -> list[Part]:
    return [block for block in blocks if block.get("type") in kinds]


# --- common parts ---


class _Call(NamedTuple):
    tool: str
    arguments: Any
    id: str
    meta: dict[str, Any]


def _called(call: Any, name: str = "call", id_key: str = "id") -> _Call:
    """Return the call of a chat message, an item or a block. Its other fields are in ``meta`` under this name."""
    fields = dict(dict_or_empty(call))
    fields |= dict_or_empty(fields.pop("function", None) or fields.pop("custom", None))
    fields.pop("type", None)
    tool, call_id, text = _taken(fields, "name"), _taken(fields, id_key), _taken(fields, "input")
    if tool is None:
        raise InvalidArgument(
            f"the call {short(call)} does not name its tool; a call of a chat message is a map, such as {{'id': "
            f"'call-1', 'type': 'function', 'function': {{'name': 'terminal', 'arguments': '{{}}'}}}}"
        )
    arguments = _arguments(fields.pop("arguments", None)) if text is None else {"input": text}
    call_id = tool if call_id is None else call_id  # its result names the tool
    return _Call(tool, arguments, call_id, ({} if text is None else {"custom_tool": True}) | _rest(name, fields))


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
                tool=call.tool,
                arguments=call.arguments,
                call_id=call.id,
                response_id=together,
                thought="" if place else content,
                thinking=() if place else thinking,
                meta=call.meta if place else meta | call.meta,
            )
    elif content:
        yield Message(source="agent", content=content, thinking=thinking, meta=meta)
    if len(actions) < len(called):
        yield CondensationRequest(reason="the model asked for it", meta={} if actions or content else meta)


def _arguments(arguments: Any) -> dict[str, Any] | str | None:
    """Return a map, or a text as it is; the text of a JSON object as a map, if every parser reads the same map. A map
    that the store cannot hold, with an infinity or of too many levels, is its text.
    """
    if not isinstance(arguments, dict | str | None):
        raise InvalidArgument(f"the arguments of a call are {short(arguments)}; give a map, or its JSON text")
    read = arguments
    try:
        if isinstance(arguments, str):
            read = json.loads(arguments, parse_constant=_refuse, object_pairs_hook=_without_repeated_keys)
        json.dumps(read, allow_nan=False, default=said)
        check_depth(read)
    except (ValueError, RecursionError):
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=said)
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
    if isinstance(usage, dict) and "service_tier" in reply:
        usage = {**usage, "service_tier": reply["service_tier"]}
    cost = reply.get("cost", usage.get("cost") if isinstance(usage, dict) else None)
    told = {"model": text_or_none(reply.get("model")), "finish_reason": text_or_none(finish_reason)}
    known = {key: value for key, value in {**told, "usage": usage_of(usage)}.items() if value}
    return known if type(cost) not in (int, float) else {**known, "cost": cost}


# --- values of SDKs ---


def _content_of(holder: Part, of: str, key: str = "content") -> Content:
    """Return the content of what holds it, taken from there: a text, or parts in the shape of OpenAI's chat; a single
    text part becomes a text. Where texts have other fields, the content stays there too.
    """
    given = holder.pop(key, None)
    if given is None or isinstance(given, str):
        return given or ""
    blocks = _parts_in(given, of)
    if any(block.get("type") in _TEXTS and not _filled(block).keys() <= _OF_TEXTS for block in blocks):
        holder[key] = given
    parts = [_part(block) for block in blocks]
    match parts:
        case [{"type": "text", "text": str(text), **others}] if not others:
            return text
    return tuple(parts)


def _parts_in(given: Any, of: str) -> list[Part]:
    """Return the parts of a content. Raises ``InvalidArgument`` where one is neither a text nor a map."""
    if not isinstance(given, str | list):
        raise InvalidArgument(f"the content of {of} is {short(given)}; give a text or a list of parts")
    parts: list[Any] = given if isinstance(given, list) else list(parts_in(given))
    for place, part in enumerate(parts):
        if not isinstance(part, str | dict):
            form = "a part is a map, such as {'type': 'text', 'text': 'hi'}"
            raise InvalidArgument(f"part {place} of {of} is {short(part)}; {form}")
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _part(part: Part) -> Part:
    """Return a text or an image as OpenAI's chat has it, and any other part as it is."""
    if part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if (known := part_of(part)) is None:
        return part
    kept = {key: value for key, value in _filled(part).items() if key not in ("source", "image_url", "detail")}
    if image := known.get("image_url"):
        return {**kept, "type": "image_url", "image_url": _filled({**image, "detail": part.get("detail")})}
    return {**known, **{key: kept[key] for key in ("cache_control",) if key in kept}}


def _joined_contents(contents: Sequence[Content]) -> Content:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents if content)
    return tuple(part for content in contents for part in parts_in(content))


def _filled(fields: Part) -> Part:
    """Return the fields that are neither null nor empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _rest(name: str, fields: Part) -> dict[str, Any]:
    """Return the ``meta`` that holds under this name the fields that were not taken."""
    return {name: rest} if (rest := _filled(fields)) else {}


def _taken(fields: Part, key: str) -> str | None:
    """Return a text, and take it from the fields; None where it is not there."""
    return fields.pop(key) if isinstance(fields.get(key), str) else None


def _plain(value: Any) -> Any:
    """Return the value as dicts, lists, texts, bytes and numbers. None in the objects of SDKs is left out. An object
    that holds no data, such as a stream, is returned as it is.
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
        f"{found} is not the reply of a model; give a chat completion or one of its messages, a response of OpenAI or "
        f"its items, or an Anthropic message; of a stream, collect the chunks first"
    )
