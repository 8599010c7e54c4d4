"""The reports of a condenser's steps, which are stored in events. A report describes what a
condenser did in a step, besides its decision.

A caller gets reports from a ``Step``, from the metadata of a condensation, or from an error. If a
step made a condensation, the condensation stores its reports. Without a condensation, an
``Annotation`` with the name ``CONDENSER_METADATA_KEY`` stores the reports of the step.

See docs/internals/decisions/0056-masks-are-recorded-once.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.telemetry import tell
from foldlog.eventstore import NOT_RECORDED, Annotation, CondensationAction, Event, Store
from foldlog.eventstore.usage import CONDENSER_META

CONDENSER_METADATA_KEY = CONDENSER_META
"""The key of reports in the metadata of a condensation, and the name of annotations with reports.
"""

Report = Mapping[str, Any]
"""The report of a condenser on a step, as JSON. It has, for example, the model, the usage, the cost
or the reason of a failure.
"""

ASK_AGAIN_AT = "ask_again_at"
"""The key of the version at which a model that failed is asked again: a handler adds it to the last
report of a step in which a model failed, or wrote a text that is ``DOUBTFUL``.
"""

NOT_JUDGED = "not_judged"
DOUBTFUL = "doubtful"
"""Keys in the metadata of a condensation whose text may be no summary: the events say too little to
tell, or the text says little of the events (see ``strategies/summary_check.py``). A digest stands
below such a text.
"""

RULES_COUNT_FOR = 100
"""A *rule* says which events a condenser masks or hides in every step. A recorded rule applies to
the next ``RULES_COUNT_FOR`` events, and a handler records it again after half of these events.
"""


def is_standing(report: Report) -> bool:
    """Return whether a report describes a rule. Such a report is the same in every step, so a
    handler records it only if the rule is new.
    """
    return "rule" in report


def newest_rules(
    store: Store, conversation: str, version: int, since: int = 0
) -> tuple[int, list[Report]]:
    """Find the newest annotation with rules among the events before ``version``. Return its id and
    its reports on rules.

    An annotation without reports counts too, because a handler appends it to end the earlier rules.
    If the last ``RULES_COUNT_FOR`` events have no such annotation, returns ``NOT_RECORDED`` and no
    reports. Cost: the function reads at most ``RULES_COUNT_FOR`` events.
    """
    for event in store.events(
        conversation, max(since, version - RULES_COUNT_FOR), version, reverse=True
    ):
        if isinstance(event, Annotation) and event.name == CONDENSER_METADATA_KEY:
            reports = reports_of(event)
            standing = [
                report for report in reports if isinstance(report, Mapping) and is_standing(report)
            ]
            if standing or not reports:
                return event.id, standing
    return NOT_RECORDED, []


def cost_something(report: Report) -> bool:
    """Return whether a report is on a model call that used tokens or money."""
    metrics = report.get("metrics", {})
    return bool(metrics.get("usage")) or metrics.get("cost", 0.0) != 0.0


def annotation(reports: Iterable[Report], condenser: str = "") -> Annotation:
    """Return an annotation with these reports. A report that names no condenser gets the name
    ``condenser``.
    """
    named = {"condenser": condenser} if condenser else {}
    return Annotation(name=CONDENSER_METADATA_KEY, data=[{**named, **report} for report in reports])


def with_reports(action: CondensationAction, reports: Iterable[Report]) -> CondensationAction:
    """Return a condensation with these reports before its own reports."""
    reports = [dict(report) for report in reports]
    if not reports:
        return action
    own = action.metadata.get(CONDENSER_METADATA_KEY, [])
    return replace(action, metadata={**action.metadata, CONDENSER_METADATA_KEY: [*reports, *own]})


def reports_of(event: Event) -> list[Any]:
    """Return the reports in ``event``, in order. Most events have no reports."""
    reports: Any = None
    if isinstance(event, CondensationAction):
        reports = event.metadata.get(CONDENSER_METADATA_KEY)
    elif isinstance(event, Annotation) and event.name == CONDENSER_METADATA_KEY:
        reports = event.data
    if not isinstance(reports, list):
        return []
    return reports if event.redacted is None else [*map(_with_cost, reports)]


def _with_cost(report: Any) -> Any:
    """Return a report of a redacted event with its cost. A redaction leaves numbers only, so an
    unknown cost, which is None, is missing there.
    """
    metrics = report.get("metrics") if isinstance(report, dict) else None
    if not isinstance(metrics, dict) or "cost" in metrics:
        return report
    return {**report, "metrics": {**metrics, "cost": None}}


def outcomes_in(reports: Iterable[Report]) -> tuple[Report, ...]:
    """Return only the reports that are no standing rules."""
    return tuple(report for report in reports if not is_standing(report))


def failures_in(reports: Iterable[Report]) -> list[Report]:
    """Return only the reports on failed model calls."""
    return [report for report in reports if "failure" in report]


def tell_of_failures(
    conversation: str, condenser: str, reports: Iterable[Report], outcome: str = "forgot nothing"
) -> None:
    """Log each failed model call in ``reports``. ``outcome`` says what the condenser did without
    the reply.
    """
    for report in failures_in(reports):
        usage = Usage.of([report])
        tell(
            "foldlog.condensation.failed",
            conversation=conversation,
            condenser=report.get("condenser", condenser),
            outcome=outcome,
            model=model_of(report),
            failure=report["failure"],
            error=report.get("error", "ModelCallFailed"),
            attempts=usage.attempts,
            cost=usage.cost,
            tokens=dict(usage.usage),
        )


def ask_again_in(event: Event) -> int | None:
    """Return the version at which a failing model is asked again, if ``event`` records one."""
    versions = [
        report[ASK_AGAIN_AT]
        for report in reports_of(event)
        if isinstance(report, Mapping) and type(report.get(ASK_AGAIN_AT)) is int
    ]
    return versions[-1] if versions else None


def on_a_model(reports: Iterable[Report]) -> list[Report]:
    """Return only the reports on model calls."""
    return [report for report in reports if "metrics" in report]


def without_failure(report: Report) -> Report:
    """Return the report on a failed call whose reply is used all the same."""
    return {key: value for key, value in report.items() if key not in ("failure", "problem")}


def model_of(report: Report) -> str:
    """Return the name of the model in a report. The name is empty if the report names no model."""
    return str(report.get("response", report).get("model") or "")


class Usage(Struct):
    """The sums over model calls: attempts, seconds, tokens of each kind, and US dollars.

    ``cost`` is None if a price is unknown. A call without a reply counts as free.
    """

    attempts: int = 0
    latency_s: float = 0.0
    usage: Counter[str] = field(default_factory=Counter)
    cost: float | None = 0.0

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Usage:
        """Return the sum of the metrics in ``reports``."""
        total = cls()
        for report in on_a_model(reports):
            total.add(report["metrics"])
        return total

    def add(self, metrics: JsonMap) -> None:
        """Add the metrics of a model call, in the format of a report."""
        cost = metrics.get("cost", 0.0)
        self.attempts += metrics.get("attempts", 1)
        self.latency_s += metrics.get("latency_s") or 0.0
        self.usage.update(metrics.get("usage"))
        if self.cost is None or cost is None:
            self.cost = None
        else:
            self.cost = self.cost + cost

    def metrics(self) -> JsonObject:
        """Return the sums in the format of a report."""
        return {
            "usage": dict(self.usage),
            "cost": self.cost,
            "latency_s": self.latency_s,
            "attempts": self.attempts,
        }
