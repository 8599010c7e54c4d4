"""A model chooses which events stay. What it does not choose is forgotten, without a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from condensers.base import AgentModel, Condensation, Reason, Reply, Report, Summarizer
from condensers.errors import InvalidCondenser, ModelCallFailed, NoCondensationAvailable
from condensers.models.ask import ask, made_by, read_json, report_on, usable_text, useless
from condensers.prompts import Prompt, load_prompt
from condensers.prompts.rendering import event_block
from condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from condensers.selection import next_cut, stands_for_forgotten, unkept
from projections import View

__all__ = ["LLMAttentionCondenser"]

_SCHEMA = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
    "required": ["ids"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMAttentionCondenser(RollingCondenser):
    """Keeps the head and, up to half of ``max_size``, what the model behind ``llm`` finds worth keeping most.

    Places that it leaves free go to the newest events. A call stays or goes with its whole unit, and summaries stay:
    what they stand for is nowhere else in the View. The model must follow a schema: else ``InvalidCondenser``.

    A reply that cannot be read chooses nothing, so that the newest stay; where none comes nothing is forgotten, unless
    it must be, and then too the newest stay.
    """

    type = "llm_attention"
    asks_a_model = True

    llm: Summarizer = field(kw_only=False)
    max_size: int = 100
    keep_first: int = 1
    max_event_length: int | None = 10_000

    def __post_init__(self) -> None:
        check_sizes(self.max_size, self.keep_first)
        if not self.llm.supports_response_schema:
            raise InvalidCondenser(
                f"the attention condenser needs a model that follows a response schema, and {self.llm.model!r} does "
                f"not; use the condenser 'llm', or set response_schema for the model if it does after all"
            )

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return reasons_by_size(view, self.max_size)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        head, places = self._room(view)
        if len(_choosable(view, head)) <= places:
            raise NoCondensationAvailable(
                f"nothing can be forgotten: all of a View of {len(view)} events fits half of max_size ({self.max_size})"
            )
        if not places:
            return self._keeping(view, (), {})
        prompt = load_prompt("attention")
        try:
            reply = ask(self.llm, self._messages(view, prompt, places), response_schema=_SCHEMA)
            chosen = _ids(reply)
        except ModelCallFailed as error:
            if error.failure != "bad_reply":
                raise NoCondensationAvailable(f"the model chose nothing: {error.problem}", (error.report,)) from error
            return self._keeping(view, (), {}, error.report)
        return self._keeping(view, chosen, made_by(reply, prompt), {"metrics": report_on(reply)["metrics"]})

    def hard_context_reset(self, view: View, agent_llm: AgentModel | None = None) -> Condensation | None:
        """Keeps the newest events, as if the model had chosen none."""
        return self._keeping(view, (), {})

    def _keeping(self, view: View, ids: Sequence[int], made: Mapping[str, Any], *reports: Report) -> Condensation:
        """Forgets what is neither head nor summary, nor among the first ``ids`` that are in the View, nor newest."""
        head, places = self._room(view)
        choosable = _choosable(view, head)
        wanted = [choosable[event_id] for event_id in dict.fromkeys(ids) if event_id in choosable][:places]
        taken = set(wanted)
        newest = [index for index in reversed(choosable.values()) if index not in taken]
        forgotten = unkept(view, _all_but(view, newest[places - len(wanted) :]))
        action = self.without_summary(view, forgotten, f"all {len(view)} events of the View are kept", reports).action
        return Condensation(replace(action, metadata={**action.metadata, **made}))

    def _room(self, view: View) -> tuple[int, int]:
        """Where the head ends, and how many places are left beside it."""
        head = next_cut(view.cut_points, self.keep_first)
        head = len(view) if head is None else head
        return head, max(0, self.max_size // 2 - head)

    def _messages(self, view: View, prompt: Prompt, places: int) -> list[dict[str, str]]:
        blocks = (event_block(event, self.max_event_length) for event in view.events)
        return [*prompt.messages(places=str(places)), *({"role": "user", "content": block} for block in blocks)]


def _choosable(view: View, head: int) -> dict[int, int]:
    """The events that a model may choose from: index in the View by id, for all behind the head but summaries."""
    return {
        event.id: index for index, event in enumerate(view.events) if index >= head and not stands_for_forgotten(event)
    }


def _all_but(view: View, spared: Sequence[int]) -> set[int]:
    return set(range(len(view))).difference(spared)


def _ids(reply: Reply) -> list[int]:
    """The ids in the reply, in its order. Raises ``ModelCallFailed`` where it is no list of ids."""
    given = read_json(reply, usable_text(reply), "the reply is not")
    ids = given.get("ids") if isinstance(given, dict) else None
    if not isinstance(ids, list) or not all(type(event_id) is int for event_id in ids):
        raise useless(reply, 'the reply is not an object with a list of event ids under "ids"')
    return ids
