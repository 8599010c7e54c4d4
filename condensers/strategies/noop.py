"""A condenser that forgets nothing."""

from __future__ import annotations

from condensers.base import AgentModel, Condenser, Step
from projections import View


class NoOpCondenser(Condenser):
    """Return the very View that it is given."""

    type = "noop"

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        return Step(view)
