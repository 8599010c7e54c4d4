"""What condensations saved and cost: recorded, derived, or not known."""

from __future__ import annotations

import pytest

from eventstore import CondensationAction
from foldlog.reports.savings import Saving, Savings, recorded_cost, saving_of, total_of, without_record

SIZES = [0, 10, 40, 15, 30]


def condensation(event_id: int = 2, **told: object) -> CondensationAction:
    return CondensationAction(id=event_id, forgotten_event_ids=(1,), metadata=told)


def test_recorded_tokens_come_before_those_of_the_views():
    assert saving_of(condensation(tokens_before=900, tokens_after=300, cost=0.5), SIZES) == Saving(600, False, 0.5)
    assert saving_of(condensation(tokens_before=900), SIZES) == Saving(25, True, None)
    assert saving_of(condensation(), {2: 40, 3: 15}) == Saving(25, True, None)
    assert saving_of(condensation(tokens_before=True, tokens_after=1), SIZES) == Saving(25, True, None)


def test_savings_that_nothing_tells_are_not_known():
    assert saving_of(condensation()) == saving_of(condensation(4), SIZES) == Saving(None, False, None)
    assert [
        event.id for event in without_record([condensation(), condensation(3, tokens_before=2, tokens_after=1)])
    ] == [2]
    assert without_record([condensation(outcome="declined")]) == []


@pytest.mark.parametrize("cost", [None, "0.1", True, float("nan"), float("inf")])
def test_a_cost_that_is_no_number_is_not_recorded(cost):
    assert recorded_cost({"cost": cost}) is None


def test_sums_say_how_much_of_them_is_derived_and_how_many_costs_are_recorded():
    some = [Saving(600, False, 0.5), Saving(25, True, None), Saving(None, False, 0.25)]
    assert total_of(some) == Savings(625, 25, 0.75, 2)
    assert total_of([Saving(None, False, None)]) == Savings(None, 0, None, 0)
