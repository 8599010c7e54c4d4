"""This module counts the tokens of Views for figures. Each event is counted alone, with the
tokenizer of a model or with an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers import TokensUnknown
from foldlog.condensers.models.estimate import (
    CALL_TOKENS,
    MESSAGE_TOKENS,
    estimate_by_samples,
    of_message,
    of_thinking,
    of_tools,
)
from foldlog.eventstore import Action, Annotation, Event, Message, Observation, SystemMessage
from foldlog.projections import View, arguments_of, as_json, render_events, says_something
from foldlog.projections.messages.chat import signed_blocks


class CountsTokens(Protocol):
    """A model whose tokenizer counts prompts, such as ``foldlog.condensers.LLM``."""

    @property
    def model(self) -> str: ...

    def count_tokens(self, messages: Sequence[JsonMap], tools: Sequence[Any] = ()) -> int: ...


class CountedTokens:
    """Counts the tokens that an event adds to a prompt of ``model``. Call the object with the
    event.

    An event that the tokenizer cannot count is estimated, and its id is in ``estimated``. The
    constructor raises ``TokensUnknown`` if the model's tokenizer is missing.
    """

    def __init__(self, model: CountsTokens) -> None:
        self.model = model.model
        self.estimated: set[int] = set()
        self._count = model.count_tokens
        self._frame = self._count([])

    def __call__(self, event: Event) -> int:
        try:
            return sum(
                self._count([message], tools_of(event)) - self._frame
                for message in messages_of(event)
            )
        except TokensUnknown:
            self.estimated.add(event.id)
            return event_tokens(event)


def view_tokens(view: View, counted: dict[int, int] | None = None) -> int:
    """Return the estimated tokens of the events that ``view`` sends to a model.

    ``counted`` caches the tokens of events by their ids.
    """
    # The sum is equal to the last value of ``Lifetimes.sizes`` at the version of the View.
    tokens = {} if counted is None else counted
    total = 0
    events = view.events
    for position in view.fit_positions:
        event = events[position]
        if event.id not in tokens:
            tokens[event.id] = event_tokens(event)
        total += tokens[event.id]
    return total


class ShortContent(str):
    """The beginning of the content of an event, with the tokens of the whole event."""

    tokens: int


def event_tokens(event: Event) -> int:
    """Return a high estimate of the tokens that an event adds to a prompt: see ``Estimate``.

    The sum over the events of a View is close to the estimate of its prompt. Cost: the function
    reads at most 2,048 characters of a text.
    """
    match event:
        case Observation(content=ShortContent(tokens=tokens)):
            return tokens
        case Message(content=ShortContent(tokens=tokens)):
            return tokens
        case Observation(content=str(text)) | Message(content=str(text), thinking=()) if (
            says_something(text)
        ):
            # Most events are of these two kinds. An estimate of the text is faster than one of the
            # message.
            return MESSAGE_TOKENS + estimate_by_samples(text)
        case Action(source="agent", thought=str() | None as text):
            function = {"name": event.tool, "arguments": arguments_of(event)}
            thought = estimate_by_samples(text) if text and says_something(text) else 0
            thinking = sum(
                of_thinking(block, estimate_by_samples) for block in signed_blocks(event.thinking)
            )
            return (
                MESSAGE_TOKENS
                + thought
                + CALL_TOKENS
                + estimate_by_samples(as_json(function))
                + thinking
            )
    return sum(
        of_message(message, estimate_by_samples) for message in messages_of(event)
    ) + of_tools(tools_of(event), estimate_by_samples)


def tools_of(event: Event) -> Sequence[Any]:
    """Return the definitions of tools that an event adds to a prompt."""
    return event.tools if isinstance(event, SystemMessage) else ()


def messages_of(event: Event) -> list[JsonObject]:
    """Return the messages that an event adds to a prompt.

    Only a call together with its result is rendered. So a call gets an empty result here, and a
    result gets an empty call. The message of the added event is not returned.
    """
    events: list[Event] = [event] if event.shown or not isinstance(event, Annotation) else []
    position = 0
    if isinstance(event, Action):
        answer = Observation(id=1, content="", call_id=event.call_id, tool=event.tool, cause=0)
        events = [replace(event, id=0, cause=None), answer]
    elif isinstance(event, Observation):
        call = Action(id=0, tool=event.tool, arguments={}, call_id=event.call_id, source="agent")
        events = [call, replace(event, id=1, cause=0)]
        position = 1
    messages = render_events(events, range(len(events)), opening=False)
    return [message.message for message in messages if position in message.positions]
