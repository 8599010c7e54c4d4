"""Find what condensations saved and cost: as they recorded it, or else as the View before and after them tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from eventstore import CondensationAction

__all__ = ["Saving", "Savings", "recorded_cost", "recorded_saving", "saving_of", "total_of", "without_record"]


class Saving(NamedTuple):
    """What one condensation saved and cost.

    ``tokens``   the tokens of the View before it, less those after it; None if they are not known
    ``derived``  whether ``tokens`` are counted from the Views, since the condensation did not record them
    ``cost``     the cost that it recorded; None if it recorded none
    """

    tokens: int | None
    derived: bool
    cost: float | None


class Savings(NamedTuple):
    """What some condensations saved and cost. A declined condensation saves nothing.

    ``tokens_saved``          None if they are not known of any of them
    ``tokens_saved_derived``  the part of ``tokens_saved`` that is counted from the Views, and is not recorded
    ``cost``                  None if no condensation recorded a cost
    ``costs_recorded``        how many recorded one
    """

    tokens_saved: int | None = None
    tokens_saved_derived: int = 0
    cost: float | None = None
    costs_recorded: int = 0


def recorded_saving(told: Mapping[str, Any]) -> int | None:
    """Return the tokens that the metadata of a condensation say it saved; None if they lack the size before or after
    it.
    """
    before, after = told.get("tokens_before"), told.get("tokens_after")
    return before - after if type(before) is int and type(after) is int else None


def recorded_cost(told: Mapping[str, Any]) -> float | None:
    """Return the cost that the metadata of a condensation name; None if they name none."""
    cost: Any = told.get("cost")
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and isfinite(cost)
    return float(cost) if known else None


def saving_of(event: CondensationAction, sizes: Sequence[int] | Mapping[int, int] = ()) -> Saving:
    """Return what a condensation saved and cost. ``sizes`` are the tokens of the View of each version, or at least of
    the versions before and after it: see ``Lifetimes.sizes``.
    """
    cost = recorded_cost(event.metadata)
    if event.metadata.get("outcome") == "declined":
        return Saving(0, False, cost)
    recorded = recorded_saving(event.metadata)
    if recorded is not None:
        return Saving(recorded, False, cost)
    if event.id in sizes if isinstance(sizes, Mapping) else event.id + 1 < len(sizes):
        return Saving(sizes[event.id] - sizes[event.id + 1], True, cost)
    return Saving(None, False, cost)


def without_record(events: Iterable[CondensationAction]) -> list[CondensationAction]:
    """Return the condensations whose savings only the Views tell."""
    return [event for event in events if saving_of(event).tokens is None]


def total_of(savings: Iterable[Saving]) -> Savings:
    """Return the sums of what condensations saved and cost."""
    known, derived, costs = list[int](), 0, list[float]()
    for one in savings:
        if one.tokens is not None:
            known.append(one.tokens)
            derived += one.tokens if one.derived else 0
        if one.cost is not None:
            costs.append(one.cost)
    return Savings(sum(known) if known else None, derived, sum(costs) if costs else None, len(costs))
