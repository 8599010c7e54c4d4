"""Condensers made of none, and of several."""

from __future__ import annotations

from collections.abc import Iterable

from condensers.base import AgentModel, Batch, Condensation, Condenser, Step, reported
from condensers.errors import NoCondensationAvailable
from projections import View

__all__ = ["NoOpCondenser", "PipelineCondenser"]


class NoOpCondenser(Condenser):
    """Goes on with the very View that it is given."""

    type = "noop"

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        return Step(view)


class PipelineCondenser(Condenser):
    """Its parts in order, each on the View that the one before it gave, up to the first condensation.

    Parts may be pipelines. Every part's report is kept, however deep. One that masks belongs before one that summarizes
    only where the summarizer shall not see what is masked.
    """

    type = "pipeline"

    def __init__(self, condensers: Iterable[Condenser] = ()) -> None:
        self.condensers = tuple(condensers)

    def handles_condensation_requests(self) -> bool:
        return any(condenser.handles_condensation_requests() for condenser in self.condensers)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        batches: tuple[Batch, ...] = ()
        for condenser in self.condensers:
            try:
                result, more = condenser.step(view, agent_llm)
            except NoCondensationAvailable as error:
                error.batches = (*batches, *error.batches)
                raise
            if isinstance(result, Condensation):
                return reported(result, (*batches, *more))
            view, batches = result, (*batches, *more)
        return Step(view, batches)
