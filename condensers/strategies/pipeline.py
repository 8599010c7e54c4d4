"""A pipeline of several condensers.

See docs/internals/decisions/0053-pipelines-go-on.md.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from msgspec.structs import replace

from foldlog.condensers.base import (
    AgentModel,
    Condensation,
    Condenser,
    Overrun,
    Report,
    Step,
    run_step,
    with_step_reports,
)
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.models.deadline import STEP_S, within_s
from foldlog.condensers.reports import is_standing
from foldlog.projections import View


class PipelineCondenser(Condenser):
    """Runs condensers in order until a condenser returns a condensation. The first condenser gets
    the whole View, and each later condenser gets the View of the previous condenser.

    If a condenser must condense and has nothing to forget, the next condenser is run. If no
    condenser condenses, the pipeline raises the first ``NoCondensationAvailable``. If the model of
    a condenser failed, the step ends. A pipeline may contain pipelines. The step contains the
    reports of all condensers that were run.
    """

    type = "pipeline"

    def __init__(
        self, *parts: Condenser | Iterable[Condenser], condensers: Iterable[Condenser] = ()
    ) -> None:
        """Make a pipeline of ``parts``: condensers, or lists of condensers."""
        self.condensers: tuple[Condenser, ...] = ()
        for part in (*parts, condensers):
            self.condensers += (part,) if isinstance(part, Condenser) else tuple(part)
        self.fallback = all(part.fallback for part in self.condensers)
        self.asks_a_model = any(part.asks_a_model for part in self.condensers)

    def handles_condensation_requests(self) -> bool:
        return any(condenser.handles_condensation_requests() for condenser in self.condensers)

    @property
    def timeout_s(self) -> float:
        """The time limit, in seconds, for all model calls of a step together."""
        return max((getattr(part, "timeout_s", STEP_S) for part in self.condensers), default=STEP_S)

    def for_agent(self, agent_llm: AgentModel | None) -> Condenser:
        pipeline = copy.copy(self)  # A copy of the pipeline has the class of a subclass, too.
        pipeline.condensers = tuple(condenser.for_agent(agent_llm) for condenser in self.condensers)
        return pipeline

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        overruns = (condenser.overrun(view, agent_llm) for condenser in self.condensers)
        return next(filter(None, overruns), None)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        full_view = view
        reports: tuple[Report, ...] = ()
        unavailable: NoCondensationAvailable | None = None
        with within_s(self.timeout_s):
            for index, condenser in enumerate(self.condensers):
                try:
                    result, new_reports = run_step(condenser, view, agent_llm)
                except NoCondensationAvailable as error:
                    error.condenser = error.condenser or condenser.type
                    unavailable = unavailable or error
                    reports += _name_failed_part(condenser, error.reports)
                    if not all(map(is_standing, error.reports)):
                        break
                    continue
                except Exception as error:
                    error.add_note(
                        f"raised by the condenser {condenser.type!r}, at index {index} of a"
                        " pipeline"
                    )
                    raise
                reports += _name_failed_part(condenser, new_reports)
                if isinstance(result, Condensation):
                    return with_step_reports(
                        _move_summary(result, seen=view, full_view=full_view), reports
                    )
                view = result
        if unavailable is not None:
            unavailable.reports = reports
            raise unavailable
        return Step(view, reports)


CondenserPipeline = PipelineCondenser


def _name_failed_part(part: Condenser, reports: Iterable[Report]) -> tuple[Report, ...]:
    """Return the reports of a part. Those on failures get the name of the part."""
    return tuple(
        {"condenser": part.type, **report} if "failure" in report else report for report in reports
    )


def _move_summary(condensation: Condensation, *, seen: View, full_view: View) -> Condensation:
    """Return a condensation whose summary has its place in ``full_view``. It was made for the View
    ``seen``, from which earlier parts of the pipeline may have hidden events.
    """
    action = condensation.action
    if action.summary_offset is None or action.summary_offset >= len(seen):
        return condensation
    stands_before = seen[action.summary_offset].id
    offset = next(
        index for index, event in enumerate(full_view.events) if event.id == stands_before
    )
    return Condensation(replace(action, summary_offset=offset))
