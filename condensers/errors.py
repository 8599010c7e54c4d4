"""The errors of condensers.

EventStoreError
└── CondenserError
    ├── InvalidCondenser          the parameters contradict each other: correct the configuration
    ├── NoCondensationAvailable   nothing can be forgotten now: go on with the View, or tell the
                                  user
    ├── ModelCallFailed           the model behind a condenser gave no usable answer: nothing was
                                  forgotten
    └── TokensUnknown             this model's tokens cannot be counted: they are estimated
                                  instead
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import EventStoreError

if TYPE_CHECKING:
    from foldlog.condensers.reply import Reply

Failure = Literal[
    "timeout", "rate_limited", "context_window", "refused", "rejected", "unavailable", "bad_reply"
]
"""The reason why a model call failed. ``refused`` means that the model refused. ``rejected`` means
that its server rejected the request (a bad key, for example). ``bad_reply`` means that the reply
was empty, cut off or malformed.
"""

OUT_OF_REACH: frozenset[Failure] = frozenset({"timeout", "rate_limited", "rejected", "unavailable"})
"""The failures after which a call with a different prompt would fail too."""


class CondenserError(EventStoreError):
    """The base of all errors that ``condensers`` raises on purpose."""


class InvalidCondenser(CondenserError, ValueError):
    """The parameters of a condenser are not allowed. The message names the parameter, its value and
    the allowed values.
    """


class NoCondensationAvailable(CondenserError):
    """A condenser found no event that it may forget, or could not summarize the events to forget.

    The error leaves the View unchanged. ``reports`` lists the reports of the failed step, including
    its cost: see ``Step``. ``may_go_on`` is true if only a request required the condensation, and
    foldlog declined the request. The agent can then go on with the View. In a pipeline,
    ``condenser`` is the type of the part that raised the error. If the prompt is too long even with
    its shortest texts, ``limit`` is how many tokens it may have, and ``last_resort`` is the
    ``Step`` that also shortens summaries, if this is enough.
    """

    may_go_on = False
    condenser = ""
    limit: int | None = None
    last_resort: Any = None

    def __init__(self, message: str, reports: tuple[JsonMap, ...] = ()) -> None:
        super().__init__(message)
        self.reports = reports

    @property
    def model_failed(self) -> bool:
        """Whether a call of a model failed in the step."""
        return any("failure" in report for report in self.reports)


class ModelCallFailed(CondenserError):
    """The model gave no usable answer, after all retries that its configuration allows.

    ``report`` contains the model, the failure and the problem. ``report["metrics"]`` contains the
    attempts, the latency, the usage and the cost. ``reports`` contains the report on this call and
    the reports on earlier calls of the step. If the reply was cut off at the model's output limit,
    ``partial`` is the ``Reply`` so far.
    """

    partial: Reply | None = None

    def __init__(
        self, model: str, failure: Failure, problem: str, details: JsonMap | None = None
    ) -> None:
        super().__init__(f"model {model!r} gave no usable answer ({failure}): {problem}")
        self.model = model
        self.failure = failure
        self.problem = problem
        call = {"model": model, "failure": failure, "problem": problem}
        self.report: JsonMap = {**call, "metrics": {}, **(details or {})}
        self.reports: tuple[JsonMap, ...] = (self.report,)


class TokensUnknown(CondenserError):
    """The tokens of a View cannot be counted for this model. A token budget then estimates the
    tokens, and reports that it estimated them.
    """
