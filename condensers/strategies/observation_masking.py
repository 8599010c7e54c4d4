"""Mask the contents of old observations."""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.condensers.base import AgentModel, ReportingCondenser, Step, setting
from foldlog.condensers.strategies.masking import check_window, masked
from foldlog.eventstore import Observation
from foldlog.projections import View


@dataclass(frozen=True, eq=False)
class ObservationMaskingCondenser(ReportingCondenser):
    """Masks the content of all but the newest observations.

    With a window of 0 it masks all.
    """

    type = "observation_masking"

    attention_window: int = setting(5, "how many of the last events are shown in full", ge=1)

    def __post_init__(self) -> None:
        check_window(self.attention_window)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        older = view[: max(0, len(view) - self.attention_window)]
        masks = {index: "<MASKED>" for index, event in enumerate(older) if isinstance(event, Observation)}
        return masked(view, masks, self.type, self.attention_window)
