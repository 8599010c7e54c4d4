"""A condenser that forgets nothing."""

from __future__ import annotations

from foldlog.condensers.base import AgentModel, ReportingCondenser, Step
from foldlog.projections import View


class NoOpCondenser(ReportingCondenser):
    """Shows everything, forgets nothing."""

    type = "noop"

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        return Step(view)
