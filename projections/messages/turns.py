"""The turns of a conversation, before they are rendered for a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    InvalidArgument,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.inside import said
from foldlog.projections.messages.content import Part, as_json, is_blank, parts_of, sendable
from foldlog.projections.units import ParallelCalls, begins_reply, is_unseen, units

Dialect = Literal[
    "openai", "openai-reasoning", "litellm", "anthropic", "anthropic-cached", "responses"
]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
Role = Literal["system", "user", "assistant"]


class PairedCall(NamedTuple):
    """An action under the id that its message has, the thinking and the words before it, its
    result, and the indices of all.
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
    """One message: the parts of one event, or what the model said and thought in one reply, with
    its calls.

    ``start`` is the index of the first event of a reply, or of the reasoning before it, if the
    turns from there on are the same without all events before; else None.
    """

    role: Role
    parts: list[Part]
    positions: tuple[int, ...]
    calls: tuple[PairedCall, ...] = ()
    thinking: tuple[Part, ...] = ()
    start: int | None = None


def checked(dialect: str) -> Dialect:
    """Return the dialect of that name. Raises ``ValueError`` for any other name."""
    if dialect not in DIALECTS:
        raise InvalidArgument(f"unknown dialect {dialect!r}; use {', '.join(map(repr, DIALECTS))}")
    return dialect


def turns(
    events: Sequence[Event], positions: Sequence[int], call_ids: dict[str, int] | None = None
) -> Iterator[MessageTurn]:
    """Yield the turns of the ``events`` at the ascending ``positions``, which must be fit for a
    model.

    ``call_ids`` are the ids of earlier calls, with their indices; the ids of these turns are added.
    """
    shown = [events[position] for position in positions]
    found = units(shown)
    told = {answer for place, answer in found.answers.items() if not begins_reply(shown[place])}
    reasoning = _reasoning(shown)
    used = {} if call_ids is None else call_ids
    reached = -1
    for group in _groups(shown, found.parallel_calls):
        if isinstance(shown[group[0]], Observation) and group[0] not in told:
            continue  # it is in the turn of its call
        where = tuple(positions[place] for place in group)
        calls = list[PairedCall]()
        parts = list[Part]()
        thinking = tuple[Part, ...]()
        first = shown[group[0]]
        before = (0, 0, 0)
        role: Role = "user"
        if begins_reply(first):
            role = "assistant"
        elif isinstance(first, SystemMessage):
            role = "system"
        if role == "assistant" and group[0] > reached:
            start = _start(shown, group[0])
        else:
            start = None
        for number, place in enumerate(group, 1):
            event: Any = shown[place]
            parts += parts_of(words_of(event))
            if role == "assistant":
                thoughts = (*reasoning.get(place, ()), *event.thinking)
            else:
                thoughts = ()
            # what stands for thinking
            thinking += tuple(block for block in thoughts if block.get("type") != "cleared")
            answer = found.answers.get(place, place)
            observation = shown[answer]
            if role == "assistant" and isinstance(observation, Observation):
                own = where[before[0] : number], thinking[before[1] :], parts[before[2] :]
                result = parts_of(observation.content)
                call_id = _call_id(event, used, positions[place])
                calls.append(
                    PairedCall(call_id, event, *own, observation, result, positions[answer])
                )
                before = number, len(thinking), len(parts)
            reached = max(reached, place, answer)
        if not is_unseen(first):
            yield MessageTurn(
                role,
                parts,
                where,
                tuple(calls),
                thinking,
                None if start is None else positions[start],
            )


def _start(shown: Sequence[Event], place: int) -> int | None:
    """Return the place of the reasoning before a reply, or its own; None if it stays with another
    event before it.
    """
    while place and is_unseen(shown[place - 1]):
        place -= 1
    return None if place and shown[place - 1].stays_with_next else place


def words_of(event: Any) -> Content:
    """Return the text or parts of an event that a model is sent."""
    if isinstance(event, Annotation):
        return f"{event.name}:\n{as_json(event.data)}"
    told: Content = event.thought if isinstance(event, Action) else getattr(event, "content", "")
    return told


def _reasoning(shown: Sequence[Event]) -> dict[int, tuple[dict[str, Any], ...]]:
    """Return the reasoning items that stay with the event after them, by the place of that
    event.
    """
    found: dict[int, tuple[dict[str, Any], ...]] = {}
    items: tuple[dict[str, Any], ...] = ()
    for place, event in enumerate(shown):
        if isinstance(event, Annotation) and event.name == "reasoning" and event.stays_with_next:
            named = {"id": event.origin.id} if event.origin is not None else {}
            items += (
                ({"type": "reasoning", **named, **event.data},)
                if isinstance(event.data, dict)
                else ()
            )
        elif items:
            found[place], items = items, ()
    return found


def _groups(shown: Sequence[Event], responses: Sequence[ParallelCalls]) -> list[list[int]]:
    """Return the places, by the message that they go into: the words and calls of one reply
    together, all else alone.

    They stay one message even if results, or words of the user, stand between them: the model said
    them at once, so no call had a result when it made the next one, and a model that thought
    refuses a second message without its thinking.
    """
    groups: list[list[int]] = []
    reply: list[int] = []
    calls: int | None = None
    number_of = {
        place: number for number, response in enumerate(responses) for place in response.members
    }
    for place, event in enumerate(shown):
        if not begins_reply(event):
            groups.append([place])
            continue
        number = number_of.get(place)
        if not reply or (
            number != calls
            if None not in (number, calls)
            else begins_reply(event, shown[reply[-1]])
        ):
            reply = []
            calls = None
            groups.append(reply)
        reply.append(place)
        calls = calls if number is None else number
    return groups


def arguments_of(action: Action) -> str:
    """Return the arguments as the JSON text of an object: unchanged, if the model wrote such a
    text.

    Servers read the text, and refuse a conversation in which a model once wrote broken JSON. Such a
    text goes under the name ``invalid_arguments``.
    """
    arguments = action.arguments
    try:
        if not isinstance(arguments, str):
            return sendable(_STRICT.encode(arguments or {}))
        text = "{}" if is_blank(arguments) else sendable(arguments)
        _OBJECT.decode(text)
        return text
    except (ValueError, RecursionError):  # ValueError: also a number that JSON has no word for
        return json.dumps({"invalid_arguments": sendable(as_json(arguments))}, ensure_ascii=False)


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRICT = json.JSONEncoder(ensure_ascii=False, default=said, allow_nan=False)


def _call_id(action: Action, used: dict[str, int], position: int) -> str:
    """Return the action's own call id, or a new one if it has none or if the id is ``used``. It is
    used from now on.
    """
    call_id = action.call_id or f"call_{action.id}"
    while call_id in used:
        if call_id == action.call_id:
            call_id = f"call_{action.id}"
        else:
            call_id = f"{call_id}_"
    used[call_id] = position
    return call_id
