"""A model chooses which events stay. The others are forgotten without a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from foldlog.condensers.base import AgentModel, Condensation, Report, setting
from foldlog.condensers.errors import ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.replies import ask, made_by, read_json, report_on
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import event_block
from foldlog.condensers.rolling import check_sizes
from foldlog.condensers.selection import stands_for_forgotten
from foldlog.projections import View

_SCHEMA = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
    "required": ["ids"],
    "additionalProperties": False,
}


class _Chosen(Struct):
    """A reply of this shape."""

    ids: list[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMAttentionCondenser(AskingCondenser):
    """A model chooses which events stay. The others are forgotten without a summary.

    The head stays and, up to half of ``max_size``, the events that the model chooses. The newest events take the places
    that it leaves free. A unit stays whole if one of its events is kept. Summaries stay, because the View has nothing
    else of the events that they stand for. The model must follow a schema: else ``InvalidCondenser``.

    A reply that cannot be read chooses no events, so the newest stay. Without a reply no event is forgotten, unless a
    condensation is required; then too the newest stay.
    """

    type = "llm_attention"
    needs = "response_schema"

    max_size: int = setting(100, "a View with more events is condensed, to half of this number", ge=2)
    keep_first: int = setting(1, "how many events at the head are never forgotten", ge=0)
    max_event_length: int | None = setting(
        10_000, "how many characters of an event the model sees; a negative number: all"
    )

    def check_sizes(self) -> None:
        check_sizes(self.max_size, self.keep_first)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        places = self._places(view)
        choosable = self._choosable(view)
        if len(choosable) <= places:
            raise NoCondensationAvailable(
                f"nothing can be forgotten: all of a View of {len(view)} events fits half of max_size ({self.max_size})"
            )
        if not _leaves_a_choice(view, set(choosable.values()), self.keep_first, places):
            return self._keeping(view, (), {})
        prompt = load_prompt("attention")
        blocks = (event_block(event, self.max_event_length) for event in view.events)
        messages = [*prompt.messages(places=str(places)), *({"role": "user", "content": block} for block in blocks)]
        try:
            reply = ask(self.llm, messages, response_schema=_SCHEMA)
            chosen = read_json(reply, reply.text or "", _Chosen, "the reply").ids
        except ModelCallFailed as error:
            if error.failure != "bad_reply":
                raise NoCondensationAvailable(f"the model chose nothing: {error.problem}", (error.report,)) from error
            return self._keeping(view, (), {}, error.report)
        return self._keeping(view, chosen, made_by(reply, prompt), {"metrics": report_on(reply)["metrics"]})

    def hard_context_reset(self, view: View, agent_llm: AgentModel | None = None) -> Condensation | None:
        """Keep the newest events, as if the model had not chosen any."""
        return self._keeping(view, (), {})

    def _keeping(self, view: View, ids: Sequence[int], made: Mapping[str, Any], *reports: Report) -> Condensation:
        """Forget all events except the head, summaries, the first ``ids`` that are in the View, and the newest.

        Head, chosen and newest events are counted one by one; then they are extended to whole units.
        """
        choosable = self._choosable(view)
        chosen = (choosable[event_id] for event_id in ids if event_id in choosable)
        wanted = list(dict.fromkeys((*chosen, *reversed(choosable.values()))))
        kept = {*range(min(self.keep_first, len(view))), *wanted[: self._places(view)]}
        why_not = f"all {len(view)} events of the View are kept"
        action = self.without_summary(view, kept, why_not, reports).action
        return Condensation(replace(action, metadata={**action.metadata, **made}))

    def _places(self, view: View) -> int:
        """Return how many events may stay beside the head."""
        return self.max_size // 2 - min(self.keep_first, len(view))

    def _choosable(self, view: View) -> dict[int, int]:
        """Return the events that the model may choose from: index in the View by id, for all after the head except
        summaries of forgotten events.
        """
        return {
            event.id: index
            for index, event in enumerate(view.events)
            if index >= self.keep_first and not stands_for_forgotten(event)
        }


def _leaves_a_choice(view: View, choosable: Set[int], keep_first: int, places: int) -> bool:
    """Return whether every choice of this many events forgets an event. If not, the model is not asked."""
    units = (range(start, stop) for start, stop in pairwise(view.cut_points) if start >= keep_first)
    sizes = [size for size in (sum(index in choosable for index in unit) for unit in units) if size]
    return bool(sizes) and places <= len(choosable) - min(sizes)
