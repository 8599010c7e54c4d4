"""The argument ``state`` of a condenser: a ``History``, or an object with a list of events.

``write_reports`` writes the reports of a condenser into the state, and
``get_condensation_metadata`` reads them from the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from foldlog._base.json_types import JsonObject
from foldlog.condensers.reports import (
    CONDENSER_METADATA_KEY,
    RULES_COUNT_FOR,
    Report,
    annotation,
    is_standing,
    reports_of,
)
from foldlog.eventstore import Event
from foldlog.projections import View


@runtime_checkable
class HistoryState(Protocol):
    """A conversation in memory. ``history`` is the list of the conversation's events in order, and
    ``extra_data`` is a dict for other data.
    """

    history: Any
    extra_data: JsonObject


class StoredHistory(Protocol):
    """The methods of ``foldlog.History`` that this module calls."""

    def view(self) -> View: ...

    def append(self, events: Event, /) -> Any: ...

    def events(self) -> Iterable[Event]: ...

    def tail(self, count: int, /) -> Sequence[Event]: ...


State = HistoryState | StoredHistory


def view_of(state: State) -> View:
    """Return the View of a state. Raises ``TypeError`` for an object that is no state."""
    if isinstance(state, HistoryState):
        return View.from_events(state.history)
    if not hasattr(state, "view"):
        if hasattr(state, "history"):
            has = "has no 'extra_data'"
        else:
            has = "is neither"
        raise TypeError(
            "condensed_history accepts a History, or an object with 'history', a list of events,"
            f" and 'extra_data', a dict; a {type(state).__name__} {has}. For events alone write"
            " condenser.condense(View.from_events(events))"
        )
    return state.view()


def write_reports(state: State, reports: Sequence[Report]) -> None:
    """Write reports to a state. A log gets a report on a rule only if the last ``RULES_COUNT_FOR //
    2`` events have no equal one; a state with ``extra_data`` gets none.
    """
    to_write = [report for report in reports if not is_standing(report)]
    if isinstance(state, HistoryState):
        if to_write:
            state.extra_data.setdefault(CONDENSER_METADATA_KEY, []).extend(map(dict, to_write))
        return
    rules = [report for report in reports if is_standing(report)]
    if rules:
        recorded = [
            report for event in state.tail(RULES_COUNT_FOR // 2) for report in reports_of(event)
        ]
        to_write += [
            rule for rule in rules if not any(_same_rule(rule, former) for former in recorded)
        ]
    if to_write:
        state.append(annotation(to_write))


def _same_rule(some: Report, other: Report) -> bool:
    return all(some.get(key) == other.get(key) for key in ("condenser", "rule"))


def get_condensation_metadata(state: State) -> list[Any]:
    """Return all reports of a state in order. Cost: for a stored history, the function reads all
    its events.
    """
    if isinstance(state, HistoryState):
        return list(state.extra_data.get(CONDENSER_METADATA_KEY, ()))
    return [report for event in state.events() for report in reports_of(event)]
