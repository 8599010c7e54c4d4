"""The reports of a step, which are stored in events. A report tells what one condenser did in one step, besides its
decision.

It is passed as a value: in a ``Step``, in a condensation's metadata under ``CONDENSER_METADATA_KEY``, or on the error
that says why there is no condensation. It is stored in that condensation, or, if the step made none, in an
``Annotation`` of that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from foldlog._observed import tell
from foldlog.eventstore import Annotation, CondensationAction, Event

CONDENSER_METADATA_KEY = "condenser_meta"
"""The key of reports in a condensation's metadata, and the name of the annotations that hold them."""

Report = Mapping[str, Any]
"""The report of one condenser on one step, as JSON: for example model, usage, cost, masked events, or why a reply
failed.
"""


def is_standing(report: Report) -> bool:
    """Return whether a report is the same at every step, like the report of a mask, which has a ``rule``. A handler
    records such a report once.
    """
    return "rule" in report


def cost_something(report: Report) -> bool:
    """Return whether the calls of a model that a report is on were paid for, or may have been."""
    metrics = report.get("metrics", {})
    return bool(metrics.get("usage")) or metrics.get("cost", 0.0) != 0.0


def annotation(reports: Iterable[Report]) -> Annotation:
    """Return the event that stores ``reports`` if there is no condensation."""
    return Annotation(name=CONDENSER_METADATA_KEY, data=[dict(report) for report in reports])


def with_reports(action: CondensationAction, reports: Iterable[Report]) -> CondensationAction:
    """Return ``action`` with ``reports`` in its metadata, before its own reports."""
    reports = [dict(report) for report in reports]
    if not reports:
        return action
    own = action.metadata.get(CONDENSER_METADATA_KEY, [])
    return replace(action, metadata={**action.metadata, CONDENSER_METADATA_KEY: [*reports, *own]})


def reports_of(event: Event) -> list[Any]:
    """Return the reports in this event, in order; none for most events."""
    match event:
        case CondensationAction(metadata=metadata):
            reports = metadata.get(CONDENSER_METADATA_KEY)
        case Annotation(name=name, data=reports) if name == CONDENSER_METADATA_KEY:
            pass
        case _:
            reports = None
    return reports if isinstance(reports, list) else []


def tell_of_failures(conversation: str, condenser: str, reports: Iterable[Report]) -> None:
    """Log each failed call of a model among the reports of a step that condensed nothing."""
    for report in reports:
        if "failure" in report:
            used = Usage.of([report])
            tell(
                "foldlog.condensation.failed",
                conversation=conversation,
                condenser=condenser,
                model=model_of(report),
                failure=report["failure"],
                attempts=used.attempts,
                cost=used.cost,
                tokens=dict(used.usage),
            )


def on_a_model(reports: Iterable[Report]) -> list[Report]:
    """Return those of the reports that are on a model that was asked."""
    return [report for report in reports if "metrics" in report]


def model_of(report: Report) -> str:
    """Return the name of the model that a report is on; an empty text if it names none."""
    return str(report.get("response", report).get("model") or "")


@dataclass
class Usage:
    """What calls of models took: attempts, seconds, tokens of each kind, and US dollars.

    ``cost`` is None if the price of a reply is unknown. A call without a reply costs nothing.
    """

    attempts: int = 0
    latency_s: float = 0.0
    usage: Counter[str] = field(default_factory=Counter)
    cost: float | None = 0.0

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Usage:
        """Return the sum of the metrics in these reports."""
        total = cls()
        for report in on_a_model(reports):
            total.add(report["metrics"])
        return total

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add the metrics of one or more calls, as they are in a report."""
        cost = metrics.get("cost", 0.0)
        self.attempts += metrics.get("attempts", 1)
        self.latency_s += metrics.get("latency_s") or 0.0
        self.usage.update(metrics.get("usage") or {})
        self.cost = None if self.cost is None or cost is None else self.cost + cost

    def metrics(self) -> dict[str, Any]:
        """Return the sums as they are in a report."""
        return {"usage": dict(self.usage), "cost": self.cost, "latency_s": self.latency_s, "attempts": self.attempts}


# --- tokens, as servers tell them ---

_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "cached_tokens": (
        *("cached_tokens", "cached_input_tokens", "cache_read_tokens", "cache_read_input_tokens", "cache_read"),
        "prompt_cache_hit_tokens",
    ),
    "cache_write_tokens": (
        "cache_write_tokens",
        "cache_creation_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
    ),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "reasoning_tokens": ("reasoning_tokens", "reasoning_output_tokens", "reasoning"),
}
_OURS = [(theirs, ours) for ours, names in _NAMES.items() for theirs in reversed(names)]
"""Ours for each name, the one that counts if several are told behind the others."""
_BESIDE_THE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's names: its ``input_tokens`` are those that neither come from the cache nor go there."""


def usage_of(told: Any) -> dict[str, int]:
    """Return the tokens of a call as every report has them, from what a server, an SDK or a log tells of it.

    ``prompt_tokens`` are all of the prompt: ``cached_tokens`` of them came from the provider's cache, and
    ``cache_write_tokens`` went there. ``reasoning_tokens`` are part of ``completion_tokens``. A count that is not told
    is left out, never 0. Empty where no token was counted, and where one count is below zero, which no server counts.
    """
    if not told or not isinstance(told, Mapping):
        return {}
    others = [value for name, value in told.items() if type(value) is not int and str(name).endswith("_details")]
    counts: dict[Any, int] = {}
    for each in (*others, told):
        if isinstance(each, Mapping):
            counts |= {name: count for name, count in each.items() if type(count) is int}
    found = {ours: counts[theirs] for theirs, ours in _OURS if theirs in counts}
    if "prompt_tokens" not in counts and "input_tokens" in counts:
        found["prompt_tokens"] += sum(told.get(name) or 0 for name in _BESIDE_THE_INPUT if name in counts)
    if not found.get("prompt_tokens") and not found.get("completion_tokens") and counts.get("total_tokens"):
        found["prompt_tokens"] = counts["total_tokens"]
    return found if any(found.values()) and min(found.values()) >= 0 else {}
