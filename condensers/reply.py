"""The reply of a model to a condenser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foldlog.eventstore.usage import cost_of, count_of


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in the reply of a model. ``arguments`` is the JSON text that the model wrote. The
    JSON may be malformed.
    """

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of a model. The reply may be empty or cut off, so the condenser decides whether the
    reply is usable.

    ``finish_reason`` is a value of OpenAI's API: ``stop``, ``length`` (the reply was cut off),
    ``tool_calls`` or ``content_filter`` (the model refused). ``usage`` contains the token counts of
    the server, such as ``prompt_tokens`` and ``completion_tokens``. ``cost`` is in US dollars, and
    None if the price of the model is unknown. A figure that is negative or not finite is unknown
    too. ``attempts`` is the number of calls, including the retries.
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

    def __post_init__(self) -> None:
        # A server may return any figure. An event holds only finite numbers, so an odd figure
        # counts as unknown.
        usage: object = self.usage
        values = usage if isinstance(usage, Mapping) else {}
        counts = {name: count_of(value) for name, value in values.items()}
        attempts = count_of(self.attempts)
        figures = {
            "usage": {name: count for name, count in counts.items() if count is not None},
            "cost": cost_of(self.cost),
            "latency_s": cost_of(self.latency_s),
            "attempts": 1 if attempts is None else attempts,
        }
        for name, figure in figures.items():
            object.__setattr__(self, name, figure)
