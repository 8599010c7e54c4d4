"""The size of a View while events arrive, for every rolling condenser: the formula that the reference's tests mean.

The i-th View shown has i + 1 events up to max_size; then its size runs from half of max_size + 1 to max_size, again. A
digest leaves a third of the tail's events less.
"""

from __future__ import annotations

import pytest

from foldlog.condensers.strategies.digest import DigestCondenser
from foldlog.condensers.strategies.forgetting import AmortizedForgettingCondenser
from foldlog.condensers.strategies.llm_attention import LLMAttentionCondenser
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser, StructuredSummaryCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.condensers.strategies.showing import BrowserOutputCondenser
from foldlog.eventstore.events import CondensationSummary
from tests.condensers.made import ids, sizes_while_events_arrive
from tests.condensers.scripted import FULL_STATE, Scripted, called

EVENTS = 120


def formula(view_number: int, max_size: int, least: int) -> int:
    return view_number + 1 if view_number < max_size else (view_number - max_size) % (max_size - least) + least + 1


def condensations(views: int, max_size: int, least: int) -> int:
    """Made before the last of so many Views was shown."""
    return 0 if views <= max_size else (views - 1 - max_size) // (max_size - least) + 1


def attention(ids: object, **parameters: int) -> LLMAttentionCondenser:
    return LLMAttentionCondenser(Scripted(f'{{"ids": {ids}}}'), **parameters)


ALL = list(range(300))

CONDENSERS = {
    "amortized": AmortizedForgettingCondenser(max_size=12, keep_first=0),
    "amortized with a head": AmortizedForgettingCondenser(max_size=12, keep_first=4),
    "attention": attention(ALL, max_size=10, keep_first=0),
    "attention, ids of nothing": attention([*ALL, -1, -2, -3, -4], max_size=2, keep_first=0),
    "attention, ids twice": attention([*ALL, *ALL], max_size=2, keep_first=0),
    "attention, no ids": attention([], max_size=2, keep_first=0),
    "attention, no ids, a head": attention([], max_size=12, keep_first=4),
    "digest": DigestCondenser(max_size=10),
    "llm": LLMSummarizingCondenser(Scripted("S"), max_size=10),
    "llm with a head": LLMSummarizingCondenser(Scripted("S"), max_size=10, keep_first=3),
    "structured": StructuredSummaryCondenser(Scripted(called(FULL_STATE)), max_size=10),
    "structured with a head": StructuredSummaryCondenser(Scripted(called(FULL_STATE)), max_size=10, keep_first=3),
    "pipeline": PipelineCondenser([AmortizedForgettingCondenser(max_size=10), BrowserOutputCondenser(2)]),
}


@pytest.mark.parametrize("name", CONDENSERS)
def test_the_sizes_of_views_follow_the_formula(name):
    condenser = CONDENSERS[name]
    max_size = getattr(condenser, "max_size", 10)
    least = max_size // 2 - (name == "digest")
    sizes, views, made = sizes_while_events_arrive(condenser, EVENTS)
    assert sizes == [formula(number, max_size, least) for number in range(len(sizes))]
    assert len(sizes) + made == EVENTS
    assert made - condensations(len(sizes), max_size, least) in (0, 1), "the last event may have been condensed unseen"
    head = getattr(condenser, "keep_first", 0)
    assert all(ids(view)[:head] == list(range(min(head, len(view)))) for view in views)


@pytest.mark.parametrize("name", ["llm", "llm with a head", "structured with a head", "digest"])
def test_after_the_first_condensation_the_summary_stands_behind_the_head(name):
    condenser = CONDENSERS[name]
    _, views, _ = sizes_while_events_arrive(condenser, EVENTS)
    assert all(isinstance(view[condenser.keep_first], CondensationSummary) for view in views[condenser.max_size :])
    assert all(sum(event.id < 0 for event in view) <= 1 for view in views), "one summary takes up the other"


def test_the_newest_event_is_always_shown():
    _, views, _ = sizes_while_events_arrive(AmortizedForgettingCondenser(max_size=12, keep_first=4), EVENTS)
    assert all(view[-1].id == view.version - 1 for view in views)


def test_a_model_is_asked_once_for_each_condensation():
    llm = Scripted("S")
    _, _, made = sizes_while_events_arrive(LLMSummarizingCondenser(llm, max_size=10, keep_first=3), EVENTS)
    assert len(llm.calls) == made > 0
