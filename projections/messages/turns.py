"""The turns of a conversation, before they are rendered for a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    Action,
    Annotation,
    Event,
    InvalidArgument,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections.messages.content import (
    Part,
    as_json,
    content_of,
    is_blank,
    parts_of,
    sendable,
)
from foldlog.projections.units import ParallelCalls, begins_reply, has_no_message, units

Dialect = Literal[
    "openai", "openai-reasoning", "litellm", "anthropic", "anthropic-cached", "responses"
]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
Role = Literal["system", "user", "assistant"]
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Decodes a JSON object, and raises an error for any other JSON."""
_STRICT = json.JSONEncoder(ensure_ascii=False, default=describe_value, allow_nan=False)
"""Encodes a value, and raises ``ValueError`` for a number that JSON cannot write."""


class PairedCall(NamedTuple):
    """A tool call in a message, with its result. ``id`` is the id of the call in the message.
    ``thinking`` and ``thought`` come before the call. ``positions`` are the indices of the call's
    events.
    """

    id: str
    action: Action
    positions: tuple[int, ...]
    thinking: tuple[Part, ...]
    thought: list[Part]
    observation: Observation
    result: list[Part]
    answered: int


class MessageTurn(NamedTuple):
    """One message: the parts of one event, or the texts, the thinking and the calls of one reply of
    the model.

    ``start`` is the index of the first event of a reply, or of the reasoning before the reply.
    ``start`` is None for other messages, and for a reply that depends on events before it.
    """

    role: Role
    parts: list[Part]
    positions: tuple[int, ...]
    calls: tuple[PairedCall, ...] = ()
    thinking: tuple[Part, ...] = ()
    start: int | None = None


def check_dialect(dialect: str) -> Dialect:
    """Return the dialect. Raises ``InvalidArgument`` if it is unknown."""
    if dialect not in DIALECTS:
        raise InvalidArgument(f"unknown dialect {dialect!r}; use {', '.join(map(repr, DIALECTS))}")
    return dialect


def turns(
    events: Sequence[Event], positions: Sequence[int], call_ids: dict[str, int] | None = None
) -> list[MessageTurn]:
    """Return the turns of the events at ``positions``, in ascending order. A model's server must
    accept the events at ``positions``.

    ``call_ids`` maps the ids of earlier calls to their indices. The ids of the calls in the turns
    are added to ``call_ids``.
    """
    shown = [events[position] for position in positions]
    shown_units = units(shown)
    of_model = list(map(begins_reply, shown))
    without_message = list(map(has_no_message, shown))
    answers = shown_units.answers
    own_turns = {answer for index, answer in answers.items() if not of_model[index]}
    used_ids = {} if call_ids is None else call_ids
    conversation = _Shown(shown, positions, answers, _reasoning(shown), used_ids)
    last_index = -1
    result = list[MessageTurn]()
    for group in _groups(shown, of_model, shown_units.parallel_calls):
        first = group[0]
        if of_model[first]:
            # A reply that begins before the end of another one depends on the events before it.
            start = _start(shown, without_message, first) if first > last_index else None
            result.append(conversation.turn_of_reply(group, start))
            last_index = max(last_index, *(answers.get(index, index) for index in group))
            continue
        # The group is one event.
        event = shown[first]
        if isinstance(event, Observation) and first not in own_turns:
            continue  # The observation is in the turn of its call.
        role: Role = "system" if isinstance(event, SystemMessage) else "user"
        if not without_message[first]:
            parts = parts_of(content_of(event))
            result.append(MessageTurn(role, parts, (positions[first],)))
        last_index = max(last_index, answers.get(first, first))
    return result


class _Shown(NamedTuple):
    """The shown events, from which the turns of replies are made.

    ``positions``  the indices of the events in the conversation
    ``answers``    maps the index of a call in ``events`` to the index of its observation
    ``reasoning``  what ``_reasoning`` returns for the events
    ``used_ids``   maps the ids of the calls so far to their indices in the conversation
    """

    events: Sequence[Event]
    positions: Sequence[int]
    answers: Mapping[int, int]
    reasoning: Mapping[int, tuple[JsonObject, ...]]
    used_ids: dict[str, int]

    def turn_of_reply(self, group: Sequence[int], start: int | None) -> MessageTurn:
        """Return the turn of the reply that consists of the events at the indices in ``group``.
        ``start`` is the index from which the reply can be rendered again, or None.
        """
        group_positions = tuple(self.positions[index] for index in group)
        calls = list[PairedCall]()
        parts = list[Part]()
        thinking = tuple[Part, ...]()
        # What came before the last call belongs to the calls so far.
        positions_before = thinking_before = parts_before = 0
        for number, index in enumerate(group, 1):
            event: Any = self.events[index]
            parts += parts_of(content_of(event))
            # Thinking that a condenser has cleared is not sent.
            thinking += tuple(
                block
                for block in (*self.reasoning.get(index, ()), *event.thinking)
                if block.get("type") != "cleared"
            )
            if index not in self.answers:
                continue
            answer = self.answers[index]
            observation = self.events[answer]
            assert isinstance(observation, Observation)
            calls.append(
                PairedCall(
                    id=_call_id(event, self.used_ids, self.positions[index]),
                    action=event,
                    positions=group_positions[positions_before:number],
                    thinking=thinking[thinking_before:],
                    thought=parts[parts_before:],
                    observation=observation,
                    result=parts_of(observation.content),
                    answered=self.positions[answer],
                )
            )
            positions_before = number
            thinking_before = len(thinking)
            parts_before = len(parts)
        return MessageTurn(
            "assistant",
            parts,
            group_positions,
            tuple(calls),
            thinking,
            None if start is None else self.positions[start],
        )


def _start(shown: Sequence[Event], without_message: Sequence[bool], index: int) -> int | None:
    """Return the index from which a reply that begins at ``index`` can be rendered again. Events
    that no model sees may come before it. Return None if the event before must stay with it.
    """
    while index and without_message[index - 1]:
        index -= 1
    return None if index and shown[index - 1].stays_with_next else index


def _reasoning(shown: Sequence[Event]) -> dict[int, tuple[JsonObject, ...]]:
    """Return the items with reasoning that stay with an event, by the index of the event."""
    items_by_index: dict[int, tuple[JsonObject, ...]] = {}
    items: tuple[JsonObject, ...] = ()
    for index, event in enumerate(shown):
        if isinstance(event, Annotation) and event.name == "reasoning" and event.stays_with_next:
            origin_id = {"id": event.origin.id} if event.origin is not None else {}
            if isinstance(event.data, dict):
                items += ({"type": "reasoning", **origin_id, **event.data},)
        elif items:
            items_by_index[index] = items
            items = ()
    return items_by_index


def _groups(
    shown: Sequence[Event], of_model: Sequence[bool], responses: Sequence[ParallelCalls]
) -> list[list[int]]:
    """Return the indices of the events that become one message, for each message.

    A reply stays one message even if results, or texts of the user, came between its events. The
    model wrote the whole reply before any of its calls had a result. A model that thought in a
    reply refuses a second message without the thinking.
    """
    groups: list[list[int]] = []
    reply: list[int] = []
    calls: int | None = None
    number_of = {
        index: number for number, response in enumerate(responses) for index in response.members
    }
    for index, event in enumerate(shown):
        if not of_model[index]:
            groups.append([index])
            continue
        number = number_of.get(index)
        if not reply:
            is_new = True
        elif number is not None and calls is not None:
            is_new = number != calls  # the call belongs to another response
        else:
            is_new = begins_reply(event, shown[reply[-1]])
        if is_new:
            reply = []
            calls = None
            groups.append(reply)
        reply.append(index)
        if number is not None:
            calls = number
    return groups


def arguments_of(action: Action) -> str:
    """Return the arguments as the JSON text of an object. If the model wrote the JSON text of an
    object, return the text unchanged.

    Servers parse the arguments, and refuse a conversation with a call that has invalid JSON. An
    invalid text is put into a JSON object, as the value of ``invalid_arguments``.
    """
    arguments = action.arguments
    try:
        if not isinstance(arguments, str):
            return sendable(_STRICT.encode(arguments or {}))
        text = "{}" if is_blank(arguments) else sendable(arguments)
        _OBJECT.decode(text)
        return text
    except (ValueError, RecursionError):
        return json.dumps({"invalid_arguments": sendable(as_json(arguments))}, ensure_ascii=False)


def _call_id(action: Action, used: dict[str, int], position: int) -> str:
    """Return an id for a call that no call in ``used`` has, and add it there."""
    call_id = action.call_id or f"call_{action.id}"
    while call_id in used:
        if call_id == action.call_id:
            call_id = f"call_{action.id}"
        else:
            call_id = f"{call_id}_"
    used[call_id] = position
    return call_id
