"""The interface of condensers. A condenser reads a View, and returns either the View that the agent
uses next or a condensation to append.

The method ``step`` of a condenser returns a ``Step`` and never changes the View. The method
``condense`` returns only the result of ``step``, without the reports. A condenser uses models
through two small protocols: a ``Summarizer`` writes a text, and an ``AgentModel`` counts tokens.
``condensers/models/client.py`` implements both protocols.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
    cast,
    runtime_checkable,
)

from foldlog import condensers
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.reply import Reply
from foldlog.condensers.reports import Report as Report, is_standing, reports_of, with_reports
from foldlog.condensers.selection import without_kept
from foldlog.condensers.states import HistoryState, State, view_of, write_reports
from foldlog.eventstore import CondensationAction, InvalidEvent
from foldlog.projections import View

if TYPE_CHECKING:
    from pydantic import BaseModel


class Reason(StrEnum):
    """Why a condensation is due."""

    REQUEST = "request"
    TOKENS = "tokens"
    EVENTS = "events"
    COST = "cost"


class Requirement(StrEnum):
    """How urgent a condensation is. A hard condensation is needed now, because the agent's next
    call may fail without it. A soft condensation can wait.
    """

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True, init=False)
class Condensation:
    """A condenser's decision to forget events. ``action`` is the event to append. If
    ``CondenseHandler`` returned the condensation, ``action`` is already in the log.

    ``Condensation(forgotten_event_ids=…, summary=…, summary_offset=…)`` makes the action from these
    three fields. Raises ``InvalidEvent`` if you pass ``action`` together with one of these fields.
    """

    action: CondensationAction

    def __init__(
        self,
        action: CondensationAction | None = None,
        *,
        forgotten_event_ids: Iterable[int] = (),
        summary: str | None = None,
        summary_offset: int | None = None,
    ) -> None:
        if action is not None and (
            tuple(forgotten_event_ids) or (summary, summary_offset) != (None, None)
        ):
            raise InvalidEvent(
                "a Condensation with an action cannot also have forgotten_event_ids, a summary or"
                " a summary_offset; give either the action or these fields"
            )
        if action is None:
            ids = tuple(sorted(forgotten_event_ids))
            action = CondensationAction(
                forgotten_event_ids=ids, summary=summary, summary_offset=summary_offset
            )
        object.__setattr__(self, "action", action)


class Step(NamedTuple):
    """The result of a condenser for one View, with its reports.

    If the result is a condensation, its metadata contains the reports, and ``reports`` is empty.
    """

    result: View | Condensation
    reports: tuple[Report, ...] = ()


# --- the models behind condensers ---


class CompletionOptions(TypedDict, total=False):
    """What ``Summarizer.complete`` accepts besides the messages."""

    tools: Sequence[JsonMap]
    tool_choice: str | None
    response_schema: JsonMap | None


@runtime_checkable
class Summarizer(Protocol):
    """A model that a condenser asks for a text."""

    @property
    def model(self) -> str:
        """The name of the model, with which condensations and reports name it."""
        ...

    @property
    def supports_function_calling(self) -> bool:
        """Whether ``complete`` may be called with ``tools`` and ``tool_choice``."""
        ...

    @property
    def supports_response_schema(self) -> bool:
        """Whether ``complete`` may be called with ``response_schema``."""
        ...

    def complete(
        self,
        messages: Sequence[JsonMap],
        *,
        tools: Sequence[JsonMap] = (),
        tool_choice: str | None = None,
        response_schema: JsonMap | None = None,
    ) -> Reply:
        """Return the model's answer to ``messages`` in OpenAI's chat format. The model's
        configuration sets how often a failed call is retried.

        With ``tool_choice``, the model must call the tool of this name, or no tool if the name is
        ``none``. With ``response_schema``, the answer must follow this JSON schema. If the model
        does not answer, raises ``ModelCallFailed`` and no other error. Some models also raise
        ``ModelCallFailed`` if the answer is truncated, filtered or empty.
        """
        ...


@runtime_checkable
class AgentModel(Protocol):
    """The agent's model, for a condenser with a token limit: the model's limits, and the token
    counts of prompts.

    The model may also have an attribute ``dialect``, the name of the message format that the
    model's server accepts: see ``foldlog.projections.View.to_messages``.
    """

    @property
    def model(self) -> str:
        """The name of the model."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """The maximum number of tokens of a prompt, or None if it is unknown."""
        ...

    @property
    def max_output_tokens(self) -> int | None:
        """The maximum number of tokens of a reply, or None if it is unknown."""
        ...

    def token_sums(self, view: View) -> Sequence[int]:
        """Return the token counts of the prompts of ``view[:0]``, ``view[:1]``, …,
        ``view[:len(view)]``.

        The token counts are in ascending order. The first count covers the parts of a prompt that
        are not events, such as the tools. The last count is the tokenizer's count of the whole
        prompt. A repeated call tokenizes only the messages that are new since the last call. Raises
        ``TokensUnknown`` if the tokens of this model cannot be counted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Overrun:
    """The token counts of a View whose prompt has more tokens than ``limit``: see
    ``AgentModel.token_sums``.
    """

    sums: Sequence[int]
    limit: int
    counter: AgentModel

    def has_room(self, head: int, part: float) -> bool:
        """Return whether the first ``head`` events have fewer tokens than ``part`` of the limit."""
        return self.sums[head] < int(self.limit * part)

    def tail(self, head: int, part: float) -> int:
        """Return how many of the newest events fit into a prompt after the first ``head`` events.
        The prompt must have fewer tokens than ``part`` (0 to 1) of the limit. Returns 0 if the
        first ``head`` events alone have too many tokens. The cost grows with the logarithm of the
        View's length.
        """
        length = len(self.sums) - 1
        room = int(self.limit * part) - 1
        head = min(head, length)
        return length - bisect_left(
            self.sums, self.sums[-1] + self.sums[head] - room, lo=head, hi=length
        )


def setting(default: Any, description: str, **bounds: float) -> Any:
    """Return a dataclass field for a parameter of a condenser. The condenser's constructor and its
    configuration both accept the parameter.

    ``bounds`` are the arguments ``ge``, ``gt``, ``le`` and ``lt`` of ``pydantic.Field``. Both the
    configuration and the constructor check the bounds. A condenser with a method ``__post_init__``
    must call ``Condenser.__post_init__`` there, because this call checks the bounds. If
    configurations must check another minimum than the constructor, pass it as ``in_tables``, in
    addition to ``ge``.
    """
    return field(default=default, metadata={"description": description, **bounds})


BOUNDS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "more than"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "less than"),
}


class _Batches(threading.local):
    """Maps the ``id`` of a condenser to the metadata that this thread added with ``add_metadata``.
    The metadata is not an attribute of the condenser, because an attribute would be copied and
    pickled with the condenser.
    """

    def __init__(self) -> None:
        self.by_condenser: dict[int, JsonObject] = {}


_batches = _Batches()

_Self = TypeVar("_Self")
_Result = TypeVar("_Result")


def model_is_optional(
    method: Callable[[_Self, View, AgentModel | None], _Result],
) -> Callable[Concatenate[_Self, View, ...], _Result]:
    """Allow strategies to define the decorated method without the argument ``agent_llm``. Call such
    a method with ``call_with_model``.
    """
    return method


def call_with_model(
    method: Callable[..., _Result], view: View, agent_llm: AgentModel | None
) -> _Result:
    """Call a method of a strategy: see ``model_is_optional``."""
    function = getattr(method, "__func__", None)
    if function is not None and _lacks_model(function):
        return method(view)
    return method(view, agent_llm)


@functools.lru_cache(maxsize=256)
def _lacks_model(function: Callable[..., object]) -> bool:
    return len(inspect.signature(function).parameters) == 2


class _NameOfClass:
    def __get__(self, condenser: object, owner: type) -> str:
        return owner.__name__


class Condenser:
    """A condenser reads a View and decides which View the agent uses next.

    A subclass defines ``condense``, or ``step`` if it also makes reports. ``condense`` and ``step``
    must not change the View. A condenser has no state. Many threads may use a condenser for many
    conversations. A subclass may define its methods without the argument ``agent_llm``.
    """

    type: ClassVar[str] = cast(str, _NameOfClass())
    """The name of this condenser in configurations and in the metadata of its condensations. The
    default is the name of the class.
    """

    fallback = True
    """Whether a digest takes the place of a summary that a model should have written, if the model
    fails and the condensation is required.
    """

    asks_a_model = False
    """Whether a condensation needs the reply of a model. A model call may fail and costs money."""

    config_type: ClassVar[Any] = None
    """The configuration class of this condenser, a subclass of ``CondenserConfig``.
    ``register_config`` sets this attribute.
    """

    @classmethod
    def register_config(cls, config_type: builtins.type[BaseModel]) -> None:
        """Register this class for the configuration ``config_type``: see
        ``foldlog.condensers.register_config``.
        """
        condensers.register_config(config_type, cls)

    @classmethod
    def from_config(cls, config: Any) -> Condenser:
        """Return the condenser that a table or a pydantic model describes: see
        ``foldlog.condensers.condenser_from_config``. A subclass may override this method to make
        its condensers from its own configuration. Also raises ``InvalidCondenser`` if the
        configuration describes a condenser that is not of this class.
        """
        condenser = condensers.condenser_from_config(config)
        if not isinstance(condenser, cls):
            raise InvalidCondenser(
                f"the configuration describes the condenser {condenser.type!r}, which is no"
                f" {cls.__name__}; use Condenser.from_config"
            )
        return condenser

    def __post_init__(self) -> None:
        """Raise ``InvalidCondenser`` if a setting with bounds is not a number or is out of its
        bounds.
        """
        fields = getattr(self, "__dataclass_fields__", {}).values()
        bounded = [
            (setting, getattr(self, setting.name))
            for setting in fields
            if setting.metadata.keys() & BOUNDS.keys()
        ]
        # A setting whose default is None may be None.
        bounded = [
            (setting, value)
            for setting, value in bounded
            if value is not None or setting.default is not None
        ]
        for setting, value in bounded:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidCondenser(f"{setting.name} must be a number, not {value!r}")
            if isinstance(value, float) and "float" not in str(setting.type):
                raise InvalidCondenser(f"{setting.name} must be a whole number, not {value!r}")
        self.check_sizes()
        for setting, value in bounded:
            for bound, (holds, words) in BOUNDS.items():
                if bound in setting.metadata and not holds(value, setting.metadata[bound]):
                    raise InvalidCondenser(
                        f"{setting.name} ({value}) must be {words} {setting.metadata[bound]}"
                    )

    def check_sizes(self) -> None:
        """Raise ``InvalidCondenser`` if two settings of this condenser contradict each other. A
        subclass overrides this method. The default method raises nothing.
        """

    @property
    def config(self) -> BaseModel:
        """The configuration of this condenser. If you pass ``config.model_dump()`` to
        ``condenser_from_config``, you get a condenser with an equal configuration.

        API keys are of the type ``SecretStr``, so printing the configuration does not print an API
        key. Raises ``InvalidCondenser`` if the class is not registered. Also raises
        ``InvalidCondenser`` if the condenser contains an object that a configuration cannot name,
        such as a model class of your own.
        """
        config_type = vars(builtins.type(self)).get("config_type")
        if config_type is None:
            raise InvalidCondenser(
                f"the class {builtins.type(self).__name__} has no configuration; register a"
                " configuration with register_config"
            )
        if hasattr(config_type, "of"):
            config: BaseModel = config_type.of(self)
        else:
            names = config_type.model_fields.keys() - {"type"}
            config = config_type(**{name: getattr(self, name) for name in names})
        return config

    def for_agent(self, agent_llm: AgentModel | None) -> Condenser:
        """Return this condenser, with ``agent_llm`` as the model of strategies that name no model.
        The default method returns this condenser unchanged.

        Raises ``InvalidCondenser`` if the condenser needs a model, and ``agent_llm`` is None or has
        no method ``complete``.
        """
        return self

    def handles_condensation_requests(self) -> bool:
        """Return whether this condenser can fulfil a ``CondensationRequest``. Call this method
        before you request a condensation for a prompt that is too long.
        """
        return False

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        """Return the token counts of ``view`` if its prompt exceeds this condenser's token limit.
        Returns None if the prompt is within the limit. This method returns None; a condenser with
        a token limit overrides it.
        """
        return None

    @model_is_optional
    def condense(self, view: View, agent_llm: AgentModel | None = None) -> View | Condensation:
        """Return the View that the agent uses next, or a condensation. If the result is a
        condensation, append its action, and call ``condense`` again with the new View.

        Raises ``NoCondensationAvailable`` if a request or a token limit requires a condensation and
        no condensation is possible. Raises ``TypeError`` if ``view`` is not a ``View``, but a list
        of events, for example.
        """
        if not isinstance(view, View):
            raise TypeError(
                f"condense takes a View, not a {builtins.type(view).__name__}; "
                "write condenser.condense(View.from_events(events))"
            )
        return self.step(view, agent_llm).result

    def condensed_history(
        self, state: State, agent_llm: AgentModel | None = None
    ) -> View | Condensation:
        """Condense the View of ``state``. ``state`` is a ``History``, or an object with ``history``
        (a list of events) and ``extra_data``.

        The caller appends the ``action`` of a returned condensation. The method writes the reports
        and the metadata from ``add_metadata`` to ``state``, even if it raises an error. Raises the
        errors of ``condense``. Cost: the method reads the View (or the whole list of events) and
        runs the condenser.
        """
        with self.metadata_batch(state):
            try:
                result, reports = run_step(self, view_of(state), agent_llm)
            except NoCondensationAvailable as error:
                write_reports(state, error.reports)
                raise
        if isinstance(result, Condensation) and isinstance(state, HistoryState):
            reports += tuple(reports_of(result.action))
        write_reports(state, reports)
        return result

    def add_metadata(self, key: str, value: Any) -> None:
        """Set ``key`` in the report that this condenser is making in the current thread. ``value``
        must be a JSON value.
        """
        _batches.by_condenser.setdefault(id(self), {})[key] = value

    def write_metadata(self, state: State) -> None:
        """Write this condenser's report to ``state`` and begin a new report. An empty report is not
        written.
        """
        write_reports(state, self.take_metadata())

    def take_metadata(self) -> tuple[Report, ...]:
        """Return this condenser's report and begin a new report. An empty report is left out."""
        batch = _batches.by_condenser.pop(id(self), None)
        return (batch,) if batch else ()

    @contextmanager
    def metadata_batch(self, state: State) -> Iterator[None]:
        """Write this condenser's report to ``state`` at the end of the block, even if the block
        raises an error.
        """
        try:
            yield
        finally:
            self.write_metadata(state)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        """Return the result of ``condense`` together with its reports. If the method raises
        ``NoCondensationAvailable``, the attribute ``reports`` of the error has the reports.
        """
        if builtins.type(self).condense is Condenser.condense:
            raise TypeError(f"{builtins.type(self).__name__} must define 'condense' or 'step'")
        return Step(call_with_model(self.condense, view, agent_llm))


CondenserBase = PipelinableCondenserBase = Condenser


def run_step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Run a step of a condenser, and check its result. The metadata from ``add_metadata`` becomes a
    report of the step.

    A condenser that changes the events of the View must report the rule by which it changes them.
    Without this report, foldlog cannot rebuild the changed View from the log, and adds a report
    with the rule ``None``. A returned condensation never forgets an event that ``view`` must keep.
    If no event is left to forget, the step returns the View unchanged. Raises
    ``NoCondensationAvailable`` if a condensation is required and no event may be forgotten. Raises
    ``TypeError`` if the condenser returned neither a condensation nor a View that was made from
    ``view``.
    """
    condenser.take_metadata()  # The metadata may come from an earlier step that failed.
    try:
        step = _checked_step(condenser, view, agent_llm)
    except NoCondensationAvailable as error:
        error.reports = (*error.reports, *condenser.take_metadata())
        raise
    batch = condenser.take_metadata()
    return with_step_reports(step.result, (*step.reports, *batch)) if batch else step


def _checked_step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of a condenser: its result is a condensation without the events that must
    stay, or a View that was made from ``view``. Raises ``TypeError`` for another result.
    """
    step: Any = condenser.step(view, agent_llm)
    result = step.result if isinstance(step, Step) else step
    advice = "return the View to continue with, or a Condensation"
    if isinstance(result, View) and (result.version, result.kept_from) != (
        view.version,
        view.kept_from,
    ):
        advice = (
            "return view.with_events(events), since a new View does not belong to the conversation"
        )
    elif isinstance(step, Step) and isinstance(result, View | Condensation):
        # A View with masks makes its events only when they are read, so the events are compared
        # last.
        is_reported = result is view or any(map(is_standing, step.reports))
        if is_reported or isinstance(result, Condensation) or result.events == view.events:
            return _without_kept_events(condenser, view, agent_llm, step)
        return Step(result, (*step.reports, {"condenser": condenser.type, "rule": None}))
    elif inspect.iscoroutine(result):
        result.close()
        advice = "define it with 'def', not 'async def': foldlog.aio runs a step in a thread"
    elif isinstance(result, CondensationAction):
        advice = "return Condensation(action)"
    raise TypeError(
        f"the condenser {type(condenser).__name__} returned"
        f" {'None' if result is None else f'a {type(result).__name__}'}; {advice}"
    )


def _without_kept_events(
    condenser: Condenser, view: View, agent_llm: AgentModel | None, step: Step
) -> Step:
    """Return a step whose condensation forgets no event that ``view`` must keep. If then no event
    is left to forget, return the View with a report, or raise ``NoCondensationAvailable`` if a
    condensation is required.
    """
    if view.kept_from is None or isinstance(step.result, View):
        return step
    try:
        return step._replace(result=Condensation(without_kept(view, step.result.action)))
    except NoCondensationAvailable as error:
        error.reports = (*step.reports, *reports_of(step.result.action))
        if view.unhandled_condensation_request or condenser.overrun(view, agent_llm):
            raise
        declined = {"rule": {}, "outcome": "above size", "events": len(view), "problem": str(error)}
        return Step(view, (*error.reports, {"condenser": condenser.type, **declined}))


def with_step_reports(result: View | Condensation, reports: tuple[Report, ...]) -> Step:
    # A condensation stores its reports in its metadata; a View has no place for reports.
    if isinstance(result, Condensation):
        return Step(Condensation(with_reports(result.action, reports)))
    return Step(result, reports)
