"""Clear what is old out of the prompt, by the published rules of Anthropic's context editing. No
event is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from foldlog.condensers.base import AgentModel, Condenser, Step, setting
from foldlog.condensers.models.estimate import event_size
from foldlog.condensers.strategies.showing import masked
from foldlog.eventstore import Action, Annotation, Event, Message, Observation
from foldlog.projections import View, begins_reply

_OF_A_MARK = 40
"""Tokens that a cleared result or call still takes, at most: what is not larger stays."""


@dataclass(frozen=True, eq=False)
class ClearToolUsesCondenser(Condenser):
    """Clears old tool results, many at once, from a prompt that has grown too large: a line with
    their ids stays.

    Tokens are estimated. What is cleared follows from the View alone: the View is read from its
    beginning, and at each prompt that was larger than ``trigger`` all results but the newest were
    cleared. So the same stays cleared at the next step, and a provider's cache is of no use only
    where more was cleared.
    """

    type = "clear_tool_uses"

    trigger: int = setting(100_000, "results are cleared from a prompt of more tokens", ge=1)
    keep: int = setting(3, "how many of the newest results are not cleared", ge=0)
    clear_at_least: int = setting(
        0, "how many tokens are cleared at once, at least; with fewer, none", ge=0
    )
    exclude_tools: tuple[str, ...] = setting((), "tools whose results are never cleared")
    clear_tool_inputs: bool = setting(
        False, "whether the arguments of their calls are cleared, too"
    )

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        masks: dict[int, tuple[str, Any]] = {}
        for place in self._cleared(view):
            event = view[place]
            cleared = ("arguments", {"cleared": f"[{event.id}]"})
            masks[place] = (
                cleared
                if isinstance(event, Action)
                else ("content", f"Old tool result cleared [{event.id}]")
            )
        return masked(self, view, masks)

    def _cleared(self, view: View) -> Iterator[int]:
        """Yield the index of each result to clear, and that of its call if this is cleared, too."""
        answers = view.units.answers if self.clear_tool_inputs else {}
        calls = {result: call for call, result in answers.items()}
        sizes = [_size(event, view.state.items.masks) for event in view.events]
        whole: list[list[int]] = []
        tokens = 0
        said: Event | None = None
        for place, event in enumerate((*view.events, None)):
            if event is None or begins_reply(event, said):
                if tokens > self.trigger:
                    count = max(0, len(whole) - self.keep)
                else:
                    count = 0
                old = [*chain(*whole[:count])]
                gain = sum(sizes[each] - _OF_A_MARK for each in old)
                if gain >= self.clear_at_least:
                    tokens = tokens - gain
                    whole = whole[count:]
                    yield from old
            if event is None:
                return
            tokens += sizes[place]
            if begins_reply(event):
                said = event
            elif isinstance(event, Observation) and event.tool not in self.exclude_tools:
                large = [
                    each for each in {place, calls.get(place, place)} if sizes[each] > _OF_A_MARK
                ]
                whole += [large] if large else []


def _size(event: Event, known: dict[tuple[str, int], tuple[Event, Any]]) -> int:
    """Return the tokens of an event, which are counted once: each step asks for those of the whole
    View.
    """
    counted = known.get(("tokens", event.id))
    if counted is None or counted[0] is not event:
        counted = known["tokens", event.id] = event, event_size(event)
    size: int = counted[1]
    return size


_CLEARED = ({"type": "cleared"},)
"""In the place of thinking: no model is sent it, and the tool loop that it began stays whole."""


@dataclass(frozen=True, eq=False)
class ClearThinkingCondenser(Condenser):
    """Clears the model's thinking, but for that of the newest turns. A turn is all that the agent
    says and does between two messages of the user: servers want the thinking of a turn that goes
    on.
    """

    type = "clear_thinking"

    keep: int = setting(1, "how many of the newest turns with thinking keep it", ge=1)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        turns: list[dict[int, tuple[str, Any]]] = [{}]
        for place, event in enumerate(view.events):
            match event:
                case Message(source="user") if turns[-1]:
                    turns.append({})
                case Action(thinking=blocks) | Message(thinking=blocks) if blocks:
                    turns[-1][place] = ("thinking", _CLEARED)
                case Annotation(name="reasoning", stays_with_next=True):
                    turns[-1][place] = ("data", None)
        with_thinking = [turn for turn in turns if turn]
        masks = {
            place: mask for turn in with_thinking[: -self.keep] for place, mask in turn.items()
        }
        return masked(self, view, masks)
