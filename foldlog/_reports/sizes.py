"""The tokens of Views for figures: of each event by itself, by a model's tokenizer or estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from foldlog.condensers import TokensUnknown, event_tokens
from foldlog.condensers.models.estimate import messages_of, tools_of
from foldlog.eventstore import Event
from foldlog.projections import View


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
        try:
            return sum(self._count([message], tools_of(event)) - self._frame for message in messages_of(event))
        except TokensUnknown:
            self.estimated.add(event.id)
            return event_tokens(event)


def view_tokens(view: View, count: Callable[[Event], int] | None = None) -> int:
    """Return the tokens of the events that ``view`` sends to a model, each counted by itself, or estimated without
    ``count``.

    It is the last of ``Lifetimes.sizes`` of the same version and the same ``count``. Cost: the events of the View.
    """
    return sum(map(count or event_tokens, (view[position] for position in view.fit_positions)))
