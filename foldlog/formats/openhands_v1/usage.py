"""Find the model calls that the events of OpenHands V1 report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Annotation, Event
from foldlog.eventstore.usage import cost_of, usage_of
from foldlog.formats.model_calls import (
    OF_CONDENSER,
    UNNAMED,
    Accumulated,
    ModelCall,
    call_of_event,
)
from foldlog.formats.record import dict_or_empty


def calls_of_events(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Yield a call each time the ``stats`` rise. The ``stats`` are running totals, one for each
    purpose of a model, such as the condenser.
    """
    counters: dict[str, Accumulated] = defaultdict(Accumulated)
    for event in events:
        if not isinstance(event, Annotation) or not isinstance(event.data, dict):
            continue
        for use, metrics in dict_or_empty(_stats_in(event.data), "usage_to_metrics").items():
            total = dict_or_empty(metrics)
            model = str(total.get("model_name") or UNNAMED)
            usage = usage_of(total.get("accumulated_token_usage"))
            call = call_of_event(
                event, model, usage, cost_of(total.get("accumulated_cost")), use=use
            )
            yield from counters[use].added(call._replace(by_condenser=use == OF_CONDENSER))


def _stats_in(data: JsonMap) -> Any:
    """Return the ``stats`` in an update of the state, or nothing for another one."""
    value = data.get("value")
    match data.get("key"):
        case "stats":
            return value
        case "full_state":
            return dict_or_empty(value, "stats")
    return {}
