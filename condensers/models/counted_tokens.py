"""Count the tokens of one event by itself with a model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from foldlog.condensers.errors import TokensUnknown
from foldlog.condensers.models.estimate import event_tokens
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Observation, SystemMessage
from foldlog.projections import rendered


class CountsTokens(Protocol):
    """A model whose tokenizer counts prompts, such as ``foldlog.condensers.LLM``."""

    @property
    def model(self) -> str: ...

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int: ...


class CountedTokens:
    """Counts the tokens that an event adds to a prompt of ``model``; call it with an event.

    The sum over the events of a View is close to its prompt: a prompt has a few tokens of its own, and joined messages
    take a few less. An event that the tokenizer cannot count is estimated, and its id is in ``estimated``. The
    constructor raises ``TokensUnknown`` if the model's tokenizer is missing.
    """

    def __init__(self, model: CountsTokens) -> None:
        self.model = model.model
        self.estimated: set[int] = set()
        self._count = model.count_tokens
        self._frame = self._count([])

    def __call__(self, event: Event) -> int:
        tools = event.tools if isinstance(event, SystemMessage) else ()
        try:
            return sum(self._count([message], tools) - self._frame for message in _messages_of(event))
        except TokensUnknown:
            self.estimated.add(event.id)
            return event_tokens(event)


def _messages_of(event: Event) -> list[dict[str, Any]]:
    """Return the messages of one event. A call is never sent without its result, so an empty counterpart is added."""
    shown: list[Event]
    match event:
        case Action():
            answer = Observation(id=1, content="", call_id=event.call_id, tool=event.tool, cause=0)
            shown, place = [replace(event, id=0, cause=None), answer], 0
        case Observation():
            call = Action(id=0, tool=event.tool, arguments={}, call_id=event.call_id, source="agent")
            shown, place = [call, replace(event, id=1, cause=0)], 1
        case SystemMessage() | Message() | CondensationSummary():
            shown, place = [event], 0
        case _:
            return []
    messages = rendered(shown, range(len(shown)), opening=False)
    return [each.message for each in messages if place in each.positions]
