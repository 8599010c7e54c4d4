"""A View's events as chat messages, in OpenAI's format.

    SystemMessage          system
    Message                user or assistant, after its source; the environment speaks as user, since many models take
                           a system message only at the beginning
    Action                 assistant with tool_calls; adjacent actions of one response are one message
    Observation            tool, right after the message that made the call, where servers insist on it
    CondensationSummary    user
    Annotation, unknown    not sent to a model

Neighbouring user messages become one, with a part for each.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from eventstore.events import Action, CondensationSummary, Content, Event, Message, Observation, SystemMessage
from projections.units import units

__all__ = ["Rendered", "rendered"]

_Message = dict[str, Any]


class Rendered(NamedTuple):
    """A chat message, and the indices of the events that it was made of, in order."""

    message: _Message
    positions: tuple[int, ...]


def rendered(events: Sequence[Event], positions: Sequence[int]) -> list[Rendered]:
    """Return the messages of the ``events`` at the ascending ``positions``, which must be fit for a model.

    Every tool call has one later tool message, also where an id is used twice: the later call then gets an id of its
    own. Equal events give equal messages. Cost: the positions.
    """
    shown = [events[position] for position in positions]
    answer_of = units(shown).answers
    call_ids = _CallIds()
    messages: list[Rendered] = []
    for group in _groups(shown):
        first = shown[group[0]]
        where = tuple(positions[place] for place in group)
        if isinstance(first, Action):
            actions = [action for place in group if isinstance(action := shown[place], Action)]
            named = [(action, call_ids.of(action)) for action in actions]
            messages.append(Rendered(_calls_message(named), where))
            for place, (_, call_id) in zip(group, named, strict=True):
                answer = shown[answer_of[place]]
                if isinstance(answer, Observation):
                    message = {"role": "tool", "tool_call_id": call_id, "content": _content(answer.content)}
                    messages.append(Rendered(message, (positions[answer_of[place]],)))
            continue
        said = _plain_message(first)
        if said is None:
            continue
        if said["role"] == "user" and messages and messages[-1].message["role"] == "user":
            before = messages.pop()
            said["content"] = _joined([before.message["content"], said["content"]])
            where = before.positions + where
        messages.append(Rendered(said, where))
    return messages


def _groups(shown: Sequence[Event]) -> Iterator[list[int]]:
    """Places, by the message that they go into: adjacent actions of one response together, all else alone."""
    group: list[int] = []
    response_id: str | None = None
    for place, event in enumerate(shown):
        following = event.response_id if isinstance(event, Action) else None
        if group and (following is None or following != response_id):
            yield group
            group = []
        group.append(place)
        response_id = following
    if group:
        yield group


def _plain_message(event: Event) -> _Message | None:
    match event:
        case SystemMessage():
            return {"role": "system", "content": _content(event.content)}
        case Message():
            return {"role": "assistant" if event.source == "agent" else "user", "content": _content(event.content)}
        case CondensationSummary():
            return {"role": "user", "content": event.content}
    return None


def _calls_message(calls: Sequence[tuple[Action, str]]) -> _Message:
    thoughts = [_content(action.thought) for action, _ in calls if action.thought]
    message: _Message = {
        "role": "assistant",
        "content": _joined(thoughts) if thoughts else None,
        "tool_calls": [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": action.tool, "arguments": _arguments(action.arguments)},
            }
            for action, call_id in calls
        ],
    }
    thinking = [copy.deepcopy(block) for action, _ in calls for block in action.thinking]
    if thinking:  # models that think between calls want it back as it was
        message["thinking_blocks"] = thinking
    return message


def _arguments(arguments: dict[str, Any] | str | None) -> str:
    """The text that the model wrote, or JSON text that says the same."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False, default=str)


def _content(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else copy.deepcopy(list(content))


def _joined(contents: Iterable[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]]:
    """Several contents as one: parts, unless there is only one."""
    several = list(contents)
    if len(several) == 1:
        return several[0]
    parts: list[dict[str, Any]] = []
    for content in several:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


class _CallIds:
    """Call ids for the messages of one View: those that the events have, made where they have none or repeat one."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def of(self, action: Action) -> str:
        call_id = action.call_id or f"call_{action.id}"
        while call_id in self._used:
            call_id = f"call_{action.id}" if call_id == action.call_id else f"{call_id}_"
        self._used.add(call_id)
        return call_id
