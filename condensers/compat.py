"""Names and habits of OpenHands' condensers, for code that comes from there. No other module of this package uses them.

from foldlog.condensers.compat import Condenser, RollingCondenser    # in the place of OpenHands' classes
"""

from __future__ import annotations

import builtins
import functools
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from foldlog.condensers import base, rolling
from foldlog.condensers.base import AgentModel, Condensation, Reason, Step, reported
from foldlog.condensers.config.registry import (
    CONDENSER_REGISTRY,
    CondenserConfig,
    condenser_from_config,
    register_config,
)
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.reports import Report, annotation, reports_of
from foldlog.eventstore import Event
from foldlog.projections import View

__all__ = [
    "CONDENSER_REGISTRY",
    "Condenser",
    "CondenserBase",
    "PipelinableCondenserBase",
    "RollingCondenser",
    "condensed_history",
    "from_config",
    "get_condensation_metadata",
]

from_config = condenser_from_config
"""OpenHands' name of ``condenser_from_config``."""


class WithView(Protocol):
    """The methods that these functions need of a conversation, such as ``foldlog.History``."""

    def view(self) -> View: ...

    def append(self, event: Event) -> Any: ...

    def events(self) -> Iterable[Event]: ...


_TAKE_A_VIEW = ("condense", "should_condense", "get_condensation", "hard_context_reset")


def _takes_a_second(method: Callable[..., Any]) -> bool:
    """Return whether ``method(self, view, agent_llm)`` can be called."""
    try:
        inspect.signature(method).bind(None, None, None)
    except TypeError:
        return False
    return True


def _without_agent_llm(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, view: Any, agent_llm: Any = None) -> Any:
        return method(self, view)

    return called


class PortedCondenser(base.Condenser):
    """A condenser as in OpenHands: its methods may leave out ``agent_llm``, and it may add metadata to its report."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if name in _TAKE_A_VIEW and inspect.isfunction(method) and not _takes_a_second(method):
                setattr(cls, name, _without_agent_llm(method))

    @property
    def kind(self) -> str:
        """The strategy's name, as ``type``."""
        return self.type

    @classmethod
    def from_config(cls, config: CondenserConfig | Mapping[str, Any]) -> base.Condenser:
        """Return the condenser that a configuration describes: see ``condenser_from_config``."""
        return condenser_from_config(config)

    @classmethod
    def register_config(cls, config_type: builtins.type[CondenserConfig]) -> None:
        """Register this class as the condenser of ``config_type``: see ``foldlog.condensers.register_config``."""
        register_config(config_type, cls)

    def add_metadata(self, key: str, value: Any) -> None:
        """Set ``key`` in the report that this condenser makes in this thread. ``value`` is JSON."""
        self._open_report()[key] = value

    def write_metadata(self, history: WithView) -> None:
        """Append the report to ``history`` unless it is empty, and start a new one."""
        if reports := self._take_report():
            history.append(annotation(reports))

    @contextmanager
    def metadata_batch(self, history: WithView) -> Iterator[None]:
        """Write the report when the block ends, even by an error."""
        try:
            yield
        finally:
            self.write_metadata(history)

    def condensed_history(self, history: WithView, agent_llm: AgentModel | None = None) -> View | Condensation:
        """Condense the history's View: see the function ``condensed_history``."""
        with self.metadata_batch(history):
            return condensed_history(self, history, agent_llm)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        self._take_report()  # a step that failed may have left one
        try:
            result, reports = super().step(view, agent_llm)
        except NoCondensationAvailable as error:
            error.reports += self._take_report()
            raise
        return reported(result, (*reports, *self._take_report()))

    def _open_report(self) -> dict[str, Any]:
        of_this_thread = vars(self).setdefault("_reports", threading.local())
        report: dict[str, Any] = vars(of_this_thread).setdefault("report", {})
        return report

    def _take_report(self) -> tuple[Report, ...]:
        report = self._open_report()
        taken = dict(report)
        report.clear()
        return (taken,) if taken else ()


class PortedRollingCondenser(PortedCondenser, rolling.RollingCondenser):
    """A rolling condenser as in OpenHands: it defines ``should_condense`` and ``get_condensation``."""

    @abstractmethod
    def should_condense(self, view: View, agent_llm: AgentModel | None = None) -> bool:
        """Return whether a condensation is due now."""

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        if not self.should_condense(view, agent_llm):
            return frozenset()
        return frozenset({Reason.REQUEST if view.unhandled_condensation_request else Reason.EVENTS})


Condenser = PortedCondenser
CondenserBase = PortedCondenser
RollingCondenser = PortedRollingCondenser
PipelinableCondenserBase = PortedRollingCondenser


def condensed_history(
    condenser: base.Condenser, history: WithView, agent_llm: AgentModel | None = None
) -> View | Condensation:
    """Condense the history's View. Reports without a condensation are appended; a condensation is not.

    Raises ``NoCondensationAvailable`` if a condensation is required and impossible.
    """
    try:
        result, reports = condenser.step(history.view(), agent_llm)
    except NoCondensationAvailable as error:
        if error.reports:
            history.append(annotation(error.reports))
        raise
    if reports:
        history.append(annotation(reports))
    return result


def get_condensation_metadata(history: WithView) -> list[Any]:
    """Return every report in a history, in order. Cost: one pass over its events."""
    return [report for event in history.events() for report in reports_of(event)]
