"""The reports of a step, which are stored in events. A report tells what one condenser did in one step, besides its
decision.

It is passed as a value: in a ``Step``, in a condensation's metadata under ``CONDENSER_METADATA_KEY``, or on the error
that says why there is no condensation. It is stored in that condensation, or, if the step made none, in an
``Annotation`` of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from eventstore import Annotation, CondensationAction, Event

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


def on_a_model(reports: Iterable[Report]) -> list[Report]:
    """Return those of the reports that are on a model that was asked."""
    return [report for report in reports if "metrics" in report or "attempts" in report]


def metrics_of(report: Report) -> Mapping[str, Any]:
    """Return usage and cost: they are under ``metrics``, or for a failed call in the report itself."""
    metrics: Mapping[str, Any] = report.get("metrics", report)
    return metrics


def model_of(report: Report) -> str:
    """Return the name of the model that a report is on; an empty text if it names none."""
    return str(report.get("response", report).get("model") or "")


def model_tokens(reports: Iterable[Report]) -> int:
    """Return the tokens of the prompts and replies of the condenser's model."""
    return sum(metrics_of(report).get("usage", {}).get("total_tokens", 0) for report in on_a_model(reports))


def model_cost(reports: Iterable[Report]) -> float | None:
    """Return what the condenser's model cost, in US dollars; None if the price of a reply is unknown. It is 0 where no
    model was asked.
    """
    asked = [metrics_of(report) for report in on_a_model(reports)]
    costs = [one.get("cost") for one in asked]
    if any(one.get("usage") and cost is None for one, cost in zip(asked, costs, strict=True)):
        return None
    known = [cost for cost in costs if cost is not None]
    return sum(known, 0.0) if known or not asked else None
