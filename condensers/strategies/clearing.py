"""The condensers of this module clear old results and old thinking from the prompt, by Anthropic's
rules of context editing. Clearing forgets no event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from foldlog.condensers.base import AgentModel, Condenser, Step, setting
from foldlog.condensers.models.estimate import event_size
from foldlog.condensers.strategies.hiding import mask_events
from foldlog.eventstore import Action, Annotation, Event, Message, Observation
from foldlog.projections import View, begins_reply

_MARK_TOKENS = 40
"""A result or a call of at most ``_MARK_TOKENS`` tokens is never cleared."""


@dataclass(frozen=True, eq=False)
class ClearToolUsesCondenser(Condenser):
    """Clears old tool results if a prompt has too many tokens. No event is forgotten. A cleared
    result becomes a line with the id of its event.

    The condenser estimates the tokens. If a prompt has more tokens than ``trigger``, the condenser
    clears all results except the newest ``keep`` results. The cleared results stay cleared in later
    prompts. A provider's prompt cache stays valid until more results are cleared.
    """

    type = "clear_tool_uses"

    trigger: int = setting(100_000, "clear results if a prompt has more tokens than this", ge=1)
    keep: int = setting(3, "how many of the newest results are not cleared", ge=0)
    clear_at_least: int = setting(0, "the fewest tokens that are cleared at once", ge=0)
    exclude_tools: tuple[str, ...] = setting((), "tools whose results are never cleared")
    clear_tool_inputs: bool = setting(False, "whether the arguments of the calls are cleared too")

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        masks: dict[int, tuple[str, Any]] = {}
        for index in self._find_cleared(view):
            event = view[index]
            cleared = ("arguments", {"cleared": f"[{event.id}]"})
            masks[index] = (
                cleared
                if isinstance(event, Action)
                else ("content", f"Old tool result cleared [{event.id}]")
            )
        return mask_events(self, view, masks)

    def _find_cleared(self, view: View) -> Iterator[int]:
        """Yield the indices of the results to clear, and with ``clear_tool_inputs`` of their calls,
        as they would have been cleared before each reply.
        """
        answers = view.units.answers if self.clear_tool_inputs else {}
        calls = {result: call for call, result in answers.items()}
        sizes = [_size(event, view.state.items.masks) for event in view.events]
        clearable: list[list[int]] = []
        tokens = 0
        reply: Event | None = None
        for index, event in enumerate((*view.events, None)):
            # The prompt of a reply contains all events before the reply. None stands for the reply
            # that comes next.
            if event is None or begins_reply(event, reply):
                count = 0
                if tokens > self.trigger:
                    count = max(0, len(clearable) - self.keep)
                old = [*chain(*clearable[:count])]
                gain = sum(sizes[cleared] - _MARK_TOKENS for cleared in old)
                if gain >= self.clear_at_least:
                    tokens = tokens - gain
                    clearable = clearable[count:]
                    yield from old
            if event is None:
                return
            tokens += sizes[index]
            if begins_reply(event):
                reply = event
            elif isinstance(event, Observation) and event.tool not in self.exclude_tools:
                result_and_call = {index, calls.get(index, index)}
                large = [part for part in result_and_call if sizes[part] > _MARK_TOKENS]
                if large:
                    clearable.append(large)


def _size(event: Event, cache: dict[tuple[str, int], tuple[Event, Any]]) -> int:
    """Return the estimated tokens of an event, which are cached, because each step needs them
    all.
    """
    counted = cache.get(("tokens", event.id))
    if counted is None or counted[0] is not event:
        counted = cache["tokens", event.id] = event, event_size(event)
    return int(counted[1])


_CLEARED = ({"type": "cleared"},)
"""The value that replaces thinking. This value is not sent to a model, and only shows where a tool
loop begins.
"""


@dataclass(frozen=True, eq=False)
class ClearThinkingCondenser(Condenser):
    """Clears the model's thinking except in the newest turns. No event is forgotten. A turn
    contains everything that the agent says and does between two messages of the user. The thinking
    of an unfinished turn always stays, because servers require it.
    """

    type = "clear_thinking"

    keep: int = setting(
        1, "how many turns keep their thinking; turns without thinking do not count", ge=1
    )

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        turns: list[dict[int, tuple[str, Any]]] = [{}]
        for index, event in enumerate(view.events):
            match event:
                case Message(source="user") if turns[-1]:
                    turns.append({})
                case Action(thinking=blocks) | Message(thinking=blocks) if blocks:
                    turns[-1][index] = ("thinking", _CLEARED)
                case Annotation(name="reasoning", stays_with_next=True):
                    turns[-1][index] = ("data", None)
        with_thinking = [turn for turn in turns if turn]
        masks = {
            index: mask for turn in with_thinking[: -self.keep] for index, mask in turn.items()
        }
        return mask_events(self, view, masks)
