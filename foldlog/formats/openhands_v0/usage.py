"""Find the model calls that the events of OpenHands V0 report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldlog.eventstore import Event
from foldlog.eventstore.usage import cost_of, usage_of
from foldlog.formats.model_calls import UNNAMED, Accumulated, ModelCall, at_total, call_of_event
from foldlog.formats.record import Fields, dict_or_empty


def calls_of_events(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Yield a call each time the metrics rise, because the metrics of V0 are running totals.
    Repeated usage counts once: a trajectory repeats the usage of its session's events, and each
    call of a response repeats the usage of the response.
    """
    model = UNNAMED
    counter = Accumulated()
    last_total = Fields()
    for event in events:
        model = event.meta.get("model", model)
        total = dict_or_empty(event.meta, "accumulated")
        own = {} if total == last_total else usage_of(dict_or_empty(event.meta, "usage"))
        last_total = total or last_total
        calls = counter.added(
            call_of_event(event, model, usage_of(total), cost_of(total.get("cost"))), own
        )
        yield from (at_total(call, total) for call in calls)
