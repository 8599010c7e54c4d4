"""This module compares the prompts of a conversation with the context limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from foldlog.condensers.models.limits import window_of
from foldlog.eventstore import Action, Annotation, CondensationAction, Event, Message
from foldlog.eventstore.usage import SYNTHETIC_MODEL, count_of, usage_of
from foldlog.formats.event_fields import note_of
from foldlog.formats.record import within


class ContextLimit(NamedTuple):
    """The maximum number of tokens of a prompt. If the limit is the window of a model in litellm's
    table, ``model`` is the name of this model. If the source or a condensation recorded the limit,
    ``model`` is None.
    """

    tokens: int
    model: str | None


class ContextUse(Struct, array_like=True):
    """The tokens of the prompts of a conversation, and the limits that its events name. Call
    ``note`` with the events of the conversation in order.

    ``prompts``          for each prompt, the id of the event that the model wrote, and the prompt's
                         tokens
    ``recorded_window``  the window of the model that the source recorded
    ``condensed_at``     the limit that a condensation recorded
    ``models``           the models that wrote the events
    ``since``            the event since which the present program has run
    """

    prompts: list[tuple[int, int]] = []
    recorded_window: int | None = None
    condensed_at: int | None = None
    models: list[str] = []
    since: int = 0

    def note(self, event: Event) -> None:
        """Note the prompt, the model or the limit that an event names."""
        if isinstance(event, CondensationAction):
            limit = _tokens(event.metadata.get("tokens_max"))
            if limit is not None:
                self.condensed_at = limit
            return
        if note_of(event) is not None:
            # Another program goes on, with a window of its own.
            self.since = event.id
            self.recorded_window = None
            self.condensed_at = None
            self.models = []
            return
        usage: Any = None
        if isinstance(event, Action | Message) and event.shown:
            usage = event.meta.get("usage")
            model = event.meta.get("model")
            if isinstance(model, str):
                model = model.encode(errors="replace").decode()  # UTF-8 holds no lone surrogate
                if model not in (SYNTHETIC_MODEL, *self.models):
                    self.models.append(model)
        elif isinstance(event, Annotation) and event.name == "token_count":
            info = within(event.data, "info")
            usage = within(info, "last_token_usage")
            window = _tokens(within(info, "model_context_window"))
            if window is not None:
                self.recorded_window = window
        tokens = usage_of(usage).get("prompt_tokens", 0)
        if tokens:
            self.prompts.append((event.id, tokens))

    def largest(self) -> tuple[int, int] | None:
        """Return the largest prompt of the present program: the id of the event that the model
        wrote, and the tokens of the prompt. The id is also the version of the View that the model
        saw. Return None if no prompt is recorded.
        """
        prompts = (prompt for prompt in self.prompts if prompt[0] >= self.since)
        return max(prompts, key=lambda prompt: prompt[1], default=None)

    def without_small_prompts(self) -> ContextUse:
        """Return the use with its largest prompt only."""
        largest = self.largest()
        return replace(self, prompts=[] if largest is None else [largest])

    def window(self) -> ContextLimit | None:
        """Return the window that the source recorded, or else the window of the models."""
        if self.recorded_window is not None:
            return ContextLimit(self.recorded_window, None)
        largest = self.largest()
        return limit_of_models(self.models, 0 if largest is None else largest[1])

    def limit(self) -> ContextLimit | None:
        """Return the window that the source recorded, or else the limit of a condensation, or else
        the window of the models.
        """
        if self.recorded_window is None and self.condensed_at is not None:
            return ContextLimit(self.condensed_at, None)
        return self.window()


def _tokens(value: Any) -> int | None:
    """Return a recorded value as a number of tokens, or None if it is no positive whole number, or
    larger than any count.
    """
    return value if type(value) is int and count_of(value) else None


def limit_of_models(models: Iterable[str], largest_prompt: int) -> ContextLimit | None:
    """Return the window of ``models`` if all of them have the same window. Return None if a window
    is unknown, if the windows differ, or if a prompt was larger than the window.
    """
    names = list(models)
    windows = [window_of(model) for model in names]
    limits = {None if window is None else window.max_input_tokens for window in windows}
    limit = limits.pop() if len(limits) == 1 else None
    return ContextLimit(limit, names[0]) if limit and limit >= largest_prompt else None
