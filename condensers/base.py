"""The interface of a condenser. A condenser reads a View. The condenser returns the View that the
agent uses next, or a condensation to append.

The functional core is ``step``: it reads a View and returns a ``Step``, and never changes the View.
``condense`` returns only the result of a step. Condensers use models through two small protocols,
``Summarizer`` (writes a text) and ``AgentModel`` (counts tokens and knows its limits).
``condensers/models/client.py`` implements both protocols.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    TypeVar,
    cast,
    runtime_checkable,
)

from foldlog import condensers
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.reports import Report as Report, is_standing, reports_of, with_reports
from foldlog.condensers.selection import without_kept
from foldlog.condensers.states import HistoryState, State, view_of, write_reports
from foldlog.eventstore import CondensationAction, InvalidEvent
from foldlog.projections import View

if TYPE_CHECKING:
    from pydantic import BaseModel


class Reason(StrEnum):
    """A reason for which a condensation is due."""

    REQUEST = "request"
    TOKENS = "tokens"
    EVENTS = "events"


class Requirement(StrEnum):
    """The urgency of a condensation. Without a hard condensation the agent's next call may fail; a
    soft condensation can wait.
    """

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True, init=False)
class Condensation:
    """A condenser's decision to forget. ``action`` is the event to append. If a handler returned
    the condensation, ``action`` is the appended event.

    ``Condensation(forgotten_event_ids=…, summary=…, summary_offset=…)`` makes an action with the
    fields in the parentheses. Raises ``InvalidEvent`` if both an action and fields of an action are
    given.
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

    ``reports`` lists the reports that no condensation stores in its metadata: reports on a mask, on
    a failed model call, or on the cost of a call.
    """

    result: View | Condensation
    reports: tuple[Report, ...] = ()


# --- the models behind condensers ---


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a model's reply. ``arguments`` is the JSON text as the model wrote it; the
    text may be malformed.
    """

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of a model. A reply may be empty or cut off: the strategy judges whether the reply
    is usable.

    ``finish_reason`` is one of OpenAI's values: ``stop``, ``length`` (cut off), ``tool_calls``,
    ``content_filter`` (refused). ``usage`` counts tokens (``prompt_tokens``, ``completion_tokens``,
    ``total_tokens`` and other counts of the server); ``cost`` is in US dollars, and None if the
    price is unknown. ``attempts`` is 1 + the number of retries.
    """

    text: str | None
    model: str
    tool_calls: tuple[ToolCall, ...] = ()
    response_id: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    latency_s: float | None = None
    attempts: int = 1


@runtime_checkable
class Summarizer(Protocol):
    """A model that a condenser asks for a text."""

    @property
    def model(self) -> str: ...

    @property
    def supports_function_calling(self) -> bool: ...

    @property
    def supports_response_schema(self) -> bool: ...

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        response_schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return one answer to ``messages`` (OpenAI chat format). A failed call is retried as the
        model's configuration says.

        ``tool_choice`` names the one tool that must be called; ``response_schema`` is the JSON
        schema of the text. This method raises only ``ModelCallFailed``: if there is no reply, and
        in some models if the reply is truncated, filtered or empty.
        """
        ...


@runtime_checkable
class AgentModel(Protocol):
    """The methods of the agent's model that a token budget needs.

    The model may also have an attribute ``dialect``, the form of messages that its server accepts:
    see ``foldlog.projections.View.to_messages``.
    """

    @property
    def model(self) -> str: ...

    @property
    def max_input_tokens(self) -> int | None:
        """The input limit of the model; None if the limit is unknown."""
        ...

    @property
    def max_output_tokens(self) -> int | None: ...

    def token_sums(self, view: View) -> Sequence[int]:
        """Return the token counts of the prompts of ``view[:0]``, ``view[:1]`` and so on, in
        ascending order.

        The result has ``len(view) + 1`` counts. ``sums[0]`` counts the prompt without any event
        (its tools, for example), and ``sums[i]`` the prompt of ``view[:i]``. So ``sums[-1]`` is the
        tokenizer's own count of the whole prompt. Only rendered messages that were not counted
        before cost time. Raises ``TokensUnknown`` if the model cannot count the tokens.
        """
        ...


@dataclass(frozen=True, slots=True)
class Overrun:
    """The token counts of a prompt that has more tokens than ``limit``. ``sums`` are the token
    counts that ``counter.token_sums`` returned.
    """

    sums: Sequence[int]
    limit: int
    counter: AgentModel

    def tail(self, head: int, part: float) -> int:
        """Return how many of the newest events may stay, so that the newest events and the first
        ``head`` events together have fewer tokens than ``part`` (0 to 1) of the limit. Returns 0 if
        the first ``head`` events alone have more tokens. The time grows with the logarithm of the
        View's length.
        """
        length = len(self.sums) - 1
        room = int(self.limit * part) - 1
        head = min(head, length)
        return length - bisect_left(
            self.sums, self.sums[-1] + self.sums[head] - room, lo=head, hi=length
        )


def setting(default: Any, description: str, **bounds: float) -> Any:
    """Return a field for a condenser that is a dataclass. The field is a parameter of the
    condenser's constructor and of its configuration.

    ``bounds`` are arguments of ``pydantic.Field``: ``ge``, ``gt``, ``lt``. Configurations and
    constructors check the bounds. If you define a ``__post_init__``, call
    ``Condenser.__post_init__`` in your method. If a constructor accepts smaller values than
    configurations do, ``in_tables`` is the ``ge`` of configurations.
    """
    return field(default=default, metadata={"description": description, **bounds})


_BOUNDS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "more than"),
    "lt": (operator.lt, "less than"),
}


class _Batches(threading.local):
    """The metadata that condensers set with ``add_metadata`` in this thread, by the ``id`` of the
    condenser. The metadata is not an attribute of the condenser, so that the condenser can be
    copied and pickled.
    """

    def __init__(self) -> None:
        self.by_condenser: dict[int, dict[str, Any]] = {}


_batches = _Batches()

_Self = TypeVar("_Self")
_Result = TypeVar("_Result")

_WITH_OPTIONAL_MODEL = set[str]()
"""The methods that foldlog calls with a View and the agent's model. A strategy may define each of
these methods with a View as the only argument.
"""


def model_is_optional(
    method: Callable[[_Self, View, AgentModel | None], _Result],
) -> Callable[Concatenate[_Self, View, ...], _Result]:
    """Let strategies define the decorated method with or without the argument ``agent_llm``. Type
    checkers accept both forms, and callers always pass the argument.
    """
    _WITH_OPTIONAL_MODEL.add(method.__name__)
    return method


def _taking_a_model(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that accepts the agent's model. If ``method`` accepts only a View, the
    returned method calls it without the model.
    """
    if not inspect.isfunction(method) or len(inspect.signature(method).parameters) != 2:
        return method

    @functools.wraps(method)
    def call_without_model(self: Any, view: View, agent_llm: AgentModel | None = None) -> Any:
        return method(self, view)

    return call_without_model


class _NameOfClass:
    def __get__(self, condenser: object, owner: type) -> str:
        return owner.__name__


class Condenser:
    """Reads a View and decides which View the agent uses next.

    A strategy defines ``condense``. A strategy that also makes reports defines ``step`` instead.
    ``condense`` and ``step`` leave the View unchanged. A condenser holds no state of a
    conversation: one object may serve many conversations in many threads. Methods of a strategy may
    leave the argument ``agent_llm`` out.
    """

    type: ClassVar[str] = cast(str, _NameOfClass())
    """The name of this strategy in configurations and in the metadata of its condensations. The
    default is the name of the class.
    """

    config_type: ClassVar[Any] = None
    """The class of this strategy's configurations, a ``CondenserConfig``. ``register_config`` sets
    this attribute.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & _WITH_OPTIONAL_MODEL:
            setattr(cls, name, _taking_a_model(vars(cls)[name]))

    @classmethod
    def register_config(cls, config_type: builtins.type[BaseModel]) -> None:
        """Register this class as the condenser of a configuration: see
        ``foldlog.condensers.register_config``.
        """
        condensers.register_config(config_type, cls)

    @classmethod
    def from_config(cls, config: Any) -> Condenser:
        """Return the condenser that a configuration describes, a table or a pydantic model: see
        ``foldlog.condensers.condenser_from_config``. If a registered class defines this method, the
        method is called with the class's configuration, and makes the condenser.
        """
        return condensers.condenser_from_config(config)

    def __post_init__(self) -> None:
        """Raise ``InvalidCondenser`` if a setting that has bounds is not a number, or is out of
        bounds.
        """
        fields = getattr(self, "__dataclass_fields__", {}).values()
        bounded = [
            (setting, getattr(self, setting.name))
            for setting in fields
            if setting.metadata.keys() & _BOUNDS.keys()
        ]
        # A setting whose default is None may be None.
        bounded = [
            (setting, value)
            for setting, value in bounded
            if value is not None or setting.default is not None
        ]
        for setting, value in bounded:
            if not isinstance(value, int | float):
                raise InvalidCondenser(f"{setting.name} must be a number, not {value!r}")
            if isinstance(value, float) and "float" not in str(setting.type):
                raise InvalidCondenser(f"{setting.name} must be a whole number, not {value!r}")
        self.check_sizes()
        for setting, value in bounded:
            for bound, (holds, words) in _BOUNDS.items():
                if bound in setting.metadata and not holds(value, setting.metadata[bound]):
                    raise InvalidCondenser(
                        f"{setting.name} ({value}) must be {words} {setting.metadata[bound]}"
                    )

    def check_sizes(self) -> None:
        """Raise ``InvalidCondenser`` if settings contradict each other. The default method never
        raises.
        """

    @property
    def config(self) -> BaseModel:
        """The configuration of this condenser. ``condenser_from_config(config.model_dump())`` makes
        a condenser with an equal configuration.

        API keys are ``SecretStr``: their text is not printed. Raises ``InvalidCondenser`` if the
        class is not registered, or if the condenser holds an object that no configuration can name,
        such as your own model class.
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
        """Return this condenser, with the agent's model for each strategy that names no model. By
        default the method returns this condenser itself.

        Raises ``InvalidCondenser`` if the condenser needs a model and ``agent_llm`` is None or
        cannot be asked.
        """
        return self

    def handles_condensation_requests(self) -> bool:
        """Return whether this condenser fulfils a ``CondensationRequest``. If a prompt is too long,
        the agent calls this method before it appends a request.
        """
        return False

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        """Return the token counts and the limit if the prompt of ``view`` exceeds this condenser's
        limit of tokens; None if the prompt is within the limit. By default a condenser has no limit
        of tokens, and this method returns None.
        """
        return None

    @model_is_optional
    def condense(self, view: View, agent_llm: AgentModel | None = None) -> View | Condensation:
        """Return the View that the agent uses next, or a condensation. Append the condensation,
        then call this method again.

        Raises ``NoCondensationAvailable`` if a condensation is required (by a request or by too
        many tokens) and impossible. Raises ``TypeError`` if ``view`` is not a View, such as a list
        of events.
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
        """Condense the View of a ``History``, or of an object with ``history`` (a list of events)
        and ``extra_data``.

        A condensation is returned, not appended: the caller appends its ``action``. Reports and the
        metadata from ``add_metadata`` are written to ``state``, also if an error is raised. Raises
        the errors of ``condense``. The call costs the read of the View (for a list, one pass over
        all its events) and the condenser's work.
        """
        with self.metadata_batch(state):
            try:
                result, reports = stepped(self, view_of(state), agent_llm)
            except NoCondensationAvailable as error:
                write_reports(state, error.reports)
                raise
        if isinstance(result, Condensation) and isinstance(state, HistoryState):
            reports += tuple(reports_of(result.action))
        write_reports(state, reports)
        return result

    def add_metadata(self, key: str, value: Any) -> None:
        """Set ``key`` in the report that this condenser makes in this thread. ``value`` must be a
        JSON value.
        """
        _batches.by_condenser.setdefault(id(self), {})[key] = value

    def write_metadata(self, state: State) -> None:
        """Write the report to ``state`` unless the report is empty, and begin a new report."""
        write_reports(state, self.take_metadata())

    def take_metadata(self) -> tuple[Report, ...]:
        """Return the report unless the report is empty, and begin a new report."""
        batch = _batches.by_condenser.pop(id(self), None)
        return (batch,) if batch else ()

    @contextmanager
    def metadata_batch(self, state: State) -> Iterator[None]:
        """Write the report when the block ends, also if the block ends by an error."""
        try:
            yield
        finally:
            self.write_metadata(state)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        """Condense as ``condense`` does, and return the reports too. If ``NoCondensationAvailable``
        is raised, the error's attribute ``reports`` has the reports.
        """
        if inspect.unwrap(builtins.type(self).condense) is Condenser.condense:
            raise TypeError(f"{builtins.type(self).__name__} must define 'condense' or 'step'")
        return Step(self.condense(view, agent_llm))


CondenserBase = PipelinableCondenserBase = Condenser


def stepped(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of a condenser, with its metadata as a report.

    If the condenser returns a View with other events and reports no rule, a report with the rule
    ``None`` is added: foldlog cannot make the same View again without a rule. Events that must stay
    according to ``view`` are removed from the condensation. If the condensation then forgets no
    event, the View stays larger, or ``NoCondensationAvailable`` is raised if condensing cannot
    wait. Raises ``TypeError`` if the condenser returned neither a View nor a condensation, or a
    View that was not made from ``view``.
    """
    condenser.take_metadata()  # drop the metadata of an earlier step that failed
    try:
        step = _checked_step(condenser, view, agent_llm)
    except NoCondensationAvailable as error:
        error.reports = (*error.reports, *condenser.take_metadata())
        raise
    batch = condenser.take_metadata()
    return reported(step.result, (*step.reports, *batch)) if batch else step


def _checked_step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    step: Any = condenser.step(view, agent_llm)
    result = step.result if isinstance(step, Step) else step
    advice = "return the View to continue with, or a Condensation"
    if isinstance(result, View) and (result.version, result.kept_from) != (
        view.version,
        view.kept_from,
    ):
        advice = "return view.with_events(events): another View does not know the conversation"
    elif isinstance(step, Step) and isinstance(result, View | Condensation):
        # Events are compared last: a View with masks makes its events only when they are read.
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
    """Return the step with a condensation that forgets no event from ``view.kept_from`` on."""
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


def reported(result: View | Condensation, reports: tuple[Report, ...]) -> Step:
    """Return a step with ``reports``. A condensation has the reports in its metadata. For a View,
    the reports are in ``Step.reports``.
    """
    if isinstance(result, Condensation):
        return Step(Condensation(with_reports(result.action, reports)))
    return Step(result, reports)
