"""Condensers as people wrote them for OpenHands V0 and V1: their base classes, with methods that ours do not have."""

from __future__ import annotations

import builtins
import functools
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel, ConfigDict
from pydantic.dataclasses import dataclass

from foldlog import projections
from foldlog.condensers import base, rolling
from foldlog.condensers.base import AgentModel, Reason, Requirement, Step, reported
from foldlog.condensers.compat.configs import condenser_of, register
from foldlog.condensers.compat.stand_ins import PortedView, declined_if_empty, instead_of
from foldlog.condensers.config.registry import CondenserConfig
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.models.estimate import ESTIMATE
from foldlog.condensers.reports import Report, annotation, reports_of
from foldlog.condensers.strategies import model_summaries, pipeline
from foldlog.eventstore import CondensationAction, Event


class WithView(Protocol):
    """The methods that these functions need of a conversation, such as ``foldlog.History``."""

    def view(self) -> projections.View: ...

    def append(self, event: Event) -> Any: ...

    def events(self) -> Iterable[Event]: ...


# --- methods as they are written there ---

_ASYNC = {
    "condense": "acondense",
    "get_condensation": "aget_condensation",
    "hard_context_reset": "ahard_context_reset",
}
_TAKE_A_VIEW = (*_ASYNC, "should_condense", "condensation_requirement", "get_condensation_reasons")

_awaiting = threading.local()


def awaiting_with(run: Callable[[Coroutine[Any, Any, Any]], Any], work: Callable[[], Any]) -> Any:
    """Return ``work()``; in it ``run`` has the event loop of another thread await ``acondense`` and its like."""
    _awaiting.run = run
    try:
        return work()
    finally:
        _awaiting.run = None


def _takes_a_second(method: Callable[..., Any]) -> bool:
    """Return whether ``method(self, view, agent_llm)`` can be called."""
    try:
        inspect.signature(method).bind(None, None, None)
    except TypeError:
        return False
    return True


@contextmanager
def _explained() -> Iterator[None]:
    """Raise an error with a sentence that says what to write, where ported code asks for what is not here."""
    try:
        yield
    except AttributeError as error:
        if sentence := instead_of(error):
            raise AttributeError(sentence) from error
        raise
    except NoCondensationAvailable as error:
        if sentence := instead_of(error.__cause__):
            raise AttributeError(sentence) from error
        raise


def _ported(method: Callable[..., Any], awaited: str | None = None) -> Callable[..., Any]:
    """Return ``method`` for our callers: it may leave out ``agent_llm``, gets a View with OpenHands' names, and is
    called as ``awaited`` where a loop can await it.
    """
    takes_a_second = _takes_a_second(method)

    @functools.wraps(method)
    def called(self: Any, view: Any, agent_llm: Any = None) -> Any:
        run = getattr(_awaiting, "run", None) if awaited else None
        agent_llm = None if agent_llm is ESTIMATE else agent_llm
        of_ours = isinstance(view, projections.View) and builtins.type(view) is not PortedView
        ported = PortedView.of(view) if of_ours else view
        with _explained():
            if run is not None:
                result = run(getattr(self, awaited or "")(ported, agent_llm))
            else:
                result = method(self, ported, agent_llm) if takes_a_second else method(self, ported)
        return view if result is ported else result

    return called


def _explaining(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _explained():
            init(self, *args, **kwargs)

    return made


_FIELDS = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


class PortedCondenser(base.Condenser):
    """A condenser as in OpenHands: its methods may leave out ``agent_llm``, and it may add metadata to its report.

    Annotations in the body of a subclass without ``__init__`` are its fields, as in V1, held to their types and bounds.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = dict(vars(cls))
        if inspect.get_annotations(cls) and "__init__" not in own and cls.__module__ != __name__:
            dataclass(cls, config=_FIELDS, kw_only=True, eq=False)
        if "__init__" in vars(cls):
            cls.__init__ = _explaining(cls.__init__)  # type: ignore[method-assign]
        for name in _TAKE_A_VIEW:
            awaited = _ASYNC.get(name)
            own_async = awaited is not None and cls._is_own(awaited)
            method = getattr(cls, name, None)
            if (name in own or (own_async and awaited in own)) and inspect.isfunction(method):
                setattr(cls, name, _ported(method, awaited if own_async else None))

    @classmethod
    def _is_own(cls, name: str) -> bool:
        """Return whether a class outside of this module defines the method."""
        defines = next((each for each in cls.__mro__ if name in vars(each)), None)
        return defines is not None and defines.__module__ != __name__

    @property
    def kind(self) -> str:
        """The strategy's name, as ``type``."""
        return self.type

    @classmethod
    def from_config(cls, config: Any, *llm_registry: Any) -> base.Condenser:
        """Return the condenser that a configuration describes: see ``condenser_from_config``."""
        if llm_registry:
            raise TypeError(
                "there is no registry of models: a condenser's model stands in its configuration; write "
                f"{cls.__name__}.from_config(config)"
            )
        return condenser_of(config)

    @classmethod
    def register_config(cls, config_type: builtins.type[BaseModel]) -> None:
        """Register this class as the condenser of ``config_type``, a ``CondenserConfig`` or a plain pydantic model: see
        ``foldlog.condensers.register_config``. A plain one whose ``type`` is taken is known by its class alone.
        """
        register(config_type, cls)

    def get_llm(self) -> Any:
        """Return the model that this condenser asks, its attribute ``llm``; None without one."""
        return getattr(self, "llm", None)

    async def acondense(
        self, view: projections.View, agent_llm: AgentModel | None = None
    ) -> projections.View | base.Condensation:
        """Do what ``condense`` does. One of your own is awaited where ``foldlog.aio`` takes the step."""
        return self.condense(view, agent_llm)

    def add_metadata(self, key: str, value: Any) -> None:
        """Set ``key`` in the report that this condenser makes in this thread. ``value`` is JSON."""
        self._open_report()[key] = value

    def write_metadata(self, history: WithView) -> None:
        """Append the report to ``history`` unless it is empty, and start a new one."""
        report = self._open_report()
        if report:
            history.append(annotation([dict(report)]))
            report.clear()

    @contextmanager
    def metadata_batch(self, history: WithView) -> Iterator[None]:
        """Write the report when the block ends, even by an error."""
        try:
            yield
        finally:
            self.write_metadata(history)

    def condensed_history(
        self, history: WithView, agent_llm: AgentModel | None = None
    ) -> projections.View | base.Condensation:
        """Condense the history's View: see the function ``condensed_history``."""
        with self.metadata_batch(history):
            return condensed_history(self, history, agent_llm)

    def step(self, view: projections.View, agent_llm: AgentModel | None = None) -> Step:
        self._open_report().clear()  # a step that failed may have left one
        written = _Written(view)
        try:
            with self.metadata_batch(written):
                result, reports = super().step(view, agent_llm)
        except NoCondensationAvailable as error:
            error.reports += tuple(written.reports)
            raise
        except BaseException:  # Ctrl-C too: models that were called are paid for
            for report in written.reports:  # ``metadata_batch`` around this step writes them
                self._open_report().update(report)
            raise
        return reported(result, (*reports, *written.reports))

    def _open_report(self) -> dict[str, Any]:
        of_this_thread = vars(self).setdefault("_reports", threading.local())
        report: dict[str, Any] = vars(of_this_thread).setdefault("report", {})
        return report


class _Written:
    """Keeps the reports of one step: those of parts, too, if ``metadata_batch`` is as in V0's pipeline."""

    def __init__(self, view: projections.View) -> None:
        self._view = view
        self.reports: list[Report] = []

    def view(self) -> projections.View:
        return self._view

    def events(self) -> Iterable[Event]:
        return self._view.events

    def append(self, event: Event) -> None:
        self.reports += reports_of(event)


class PortedRollingCondenser(PortedCondenser, rolling.RollingCondenser):
    """A rolling condenser as in OpenHands: it defines ``get_condensation``, and ``should_condense`` as in V0 or
    ``condensation_requirement`` as in V1.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "condensation_requirement" in vars(cls) and "should_condense" not in vars(cls):
            cls.should_condense = _should_condense  # type: ignore[method-assign]

    @abstractmethod
    def should_condense(self, view: projections.View, agent_llm: AgentModel | None = None) -> bool:
        """Return whether a condensation is due now."""

    def get_condensation_reasons(self, view: projections.View, agent_llm: AgentModel | None = None) -> set[Reason]:
        """Return ``reasons`` as a set."""
        return set(self.reasons(view, agent_llm))

    def reasons(self, view: projections.View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        if not self.should_condense(view, agent_llm):
            return frozenset()
        if self._is_as_in_v1 and self.condensation_requirement(view, agent_llm) is Requirement.SOFT:
            return frozenset({Reason.EVENTS})
        hard = Reason.TOKENS if self._is_as_in_v1 else Reason.EVENTS
        return frozenset({Reason.REQUEST if view.unhandled_condensation_request else hard})

    async def aget_condensation(self, view: projections.View, agent_llm: AgentModel | None = None) -> base.Condensation:
        """Do what ``get_condensation`` does. One of your own is awaited where ``foldlog.aio`` takes the step."""
        return self.get_condensation(view, agent_llm)

    async def ahard_context_reset(
        self, view: projections.View, agent_llm: AgentModel | None = None
    ) -> base.Condensation | None:
        """Do what ``hard_context_reset`` does. One of your own is awaited where ``foldlog.aio`` takes the step."""
        return self.hard_context_reset(view, agent_llm)

    def step(self, view: projections.View, agent_llm: AgentModel | None = None) -> Step:
        made = super().step(view, agent_llm)
        if self._is_as_in_v1 or not isinstance(made.result, base.Condensation):
            return made
        return made._replace(result=base.Condensation(_as_in_v0(made.result.action, view)))

    @property
    def _is_as_in_v1(self) -> bool:
        return builtins.type(self).should_condense is _should_condense


def _should_condense(self: PortedRollingCondenser, view: projections.View, agent_llm: AgentModel | None = None) -> bool:
    return self.condensation_requirement(view, agent_llm) is not None


def _as_in_v0(action: CondensationAction, view: projections.View) -> CondensationAction:
    """Return a condensation as V0 means it: a new summary replaces those that are shown, and they stay without one."""
    given = action.forgotten_event_ids or ()
    ids = [event_id for event_id in given if event_id >= 0]
    if action.summary is not None:
        ids += [event.id for event in view.events if event.id < 0]
    if sorted(ids) == sorted(given):
        return action
    fields = {name: getattr(action, name) for name in ("summary", "summary_offset", "metadata", "source")}
    return msgspec.convert(declined_if_empty({**fields, "forgotten_event_ids": ids}), CondensationAction, strict=False)


# --- strategies under their names there ---


class CondenserPipeline(pipeline.PipelineCondenser):
    """``CondenserPipeline(A(), B())`` as in V0: ``PipelineCondenser`` with its parts as arguments."""

    config_type = pipeline.PipelineCondenser.config_type

    def __init__(self, *condensers: base.Condenser) -> None:
        super().__init__(condensers)


class PortedSummarizingCondenser(model_summaries.LLMSummarizingCondenser):
    """``LLMSummarizingCondenser`` with ``get_condensation_reasons``, which a subclass may define, as in V1."""

    config_type = model_summaries.LLMSummarizingCondenser.config_type

    def get_condensation_reasons(self, view: projections.View, agent_llm: AgentModel | None = None) -> set[Reason]:
        return set(super().reasons(view, agent_llm))

    def reasons(self, view: projections.View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return frozenset(self.get_condensation_reasons(view, agent_llm))


# --- functions ---


def condensed_history(
    condenser: base.Condenser, history: WithView, agent_llm: AgentModel | None = None
) -> projections.View | base.Condensation:
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


def from_config(config: Mapping[str, Any] | CondenserConfig | BaseModel) -> base.Condenser:
    """Return the condenser of a table, of a configuration, or of a plain pydantic model that was registered."""
    return condenser_of(config)
