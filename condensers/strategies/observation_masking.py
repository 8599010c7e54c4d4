"""Mask the contents of old observations."""

from __future__ import annotations

from condensers.base import AgentModel, ReportingCondenser, Step
from condensers.strategies.masking import checked_window, masked
from eventstore import Observation
from projections import View


class ObservationMaskingCondenser(ReportingCondenser):
    """Mask every observation except those among the last ``attention_window`` events. 0 masks them all."""

    type = "observation_masking"

    def __init__(self, attention_window: int = 5) -> None:
        self.attention_window = checked_window(attention_window)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        older = view[: max(0, len(view) - self.attention_window)]
        masks = {index: "<MASKED>" for index, event in enumerate(older) if isinstance(event, Observation)}
        return masked(view, masks, self.type, self.attention_window)
