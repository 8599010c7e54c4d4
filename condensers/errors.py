"""The errors of condensers, a branch of foldlog's tree of errors.

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

from collections.abc import Mapping
from typing import Any, Literal

from foldlog.eventstore import EventStoreError

Failure = Literal[
    "timeout", "rate_limited", "context_window", "refused", "rejected", "unavailable", "bad_reply"
]
"""Why a model call failed: ``refused`` by the model, ``rejected`` by its server (a bad key, a bad
request), ``bad_reply`` if the reply was empty, cut off or malformed.
"""

OUT_OF_REACH: frozenset[Failure] = frozenset({"timeout", "rate_limited", "rejected", "unavailable"})
"""Failures that do not depend on the prompt: the same model would not answer another prompt
either.
"""


class CondenserError(EventStoreError):
    """The base of all errors that ``condensers`` raises on purpose."""


class InvalidCondenser(CondenserError, ValueError):
    """The parameters of a condenser are not allowed. The message names the parameter, its value and
    the allowed values.
    """


class NoCondensationAvailable(CondenserError):
    """No event may be forgotten, or the events to forget could not be summarized.

    The View is unchanged. ``reports`` are the reports of the failed step, also on the cost of the
    step (see ``Step``). If ``may_go_on`` is true, no limit of tokens requires the condensation,
    only a request, and foldlog declines the request: go on with the View. If a part of a pipeline
    raised the error, ``condenser`` is the type of this part; otherwise it is empty.
    """

    may_go_on = False
    condenser = ""

    def __init__(self, message: str, reports: tuple[Mapping[str, Any], ...] = ()) -> None:
        super().__init__(message)
        self.reports = reports


class ModelCallFailed(CondenserError):
    """The model gave no usable answer, after every retry that its configuration allows. ``failure``
    is the kind of the failure.

    ``report`` contains the model, the failure, the problem and, under ``metrics``, attempts,
    latency, usage and cost. ``reports`` contains the reports on earlier calls of the same step and
    on this call.
    """

    def __init__(
        self, model: str, failure: Failure, problem: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"model {model!r} gave no usable answer ({failure}): {problem}")
        self.model = model
        self.failure = failure
        self.problem = problem
        call = {"model": model, "failure": failure, "problem": problem}
        self.report: Mapping[str, Any] = {**call, "metrics": {}, **(details or {})}
        self.reports: tuple[Mapping[str, Any], ...] = (self.report,)


class TokensUnknown(CondenserError):
    """The tokens of a View cannot be counted for this model. Budgets then estimate the tokens, and
    report the estimate.
    """
