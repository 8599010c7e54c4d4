"""When a condensation costs less than it saves. All costs are in new tokens: a cost of 1 is the
price of a token that the provider's cache does not have.

Each call pays for the tokens that a condensation would remove. A condensation pays for its summary,
and for writing the events after the summary to the cache again. The sum of both is smallest if a
condensation comes as soon as the calls since the last one have paid as much for the removed tokens
as a condensation costs. These tokens grew from call to call, so each call paid for half of them on
average.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.condensers.models.caches import CacheRule
from foldlog.eventstore import NOT_RECORDED, CondensationSummary, summary_of
from foldlog.eventstore.usage import usage_of
from foldlog.projections import View, begins_reply

REPLY = 5
"""The price of a token of a reply. At most providers, it costs five to eight times as much as a new
token of a prompt.
"""

SUMMARY = 1 / 8
"""The expected size of a summary, as a part of the tokens of the forgotten events."""


def saves(
    view: View, sums: Sequence[int], span: slice, summary_cost: float, rule: CacheRule
) -> bool:
    """Return whether a condensation that forgets the events in ``span`` saves more than it costs.

    ``sums`` are the counts of ``AgentModel.token_sums``, and ``summary_cost`` is the cost of the
    model's call for the summary. The usage that the agent's replies record says how much of their
    prompts the cache reads. Without usage, the cache reads whatever ``rule`` allows.
    """
    forgotten: int = sums[span.stop] - sums[span.start]
    after_head: int = sums[-1] - sums[span.start]
    removed = forgotten * (1 - SUMMARY)
    price = _price_of_repeated(view, rule)
    paid = _calls_since_summary(view) / 2 * price * removed
    return paid > summary_cost + max(0.0, rule.write - price) * (after_head - removed)


def _price_of_repeated(view: View, rule: CacheRule) -> float:
    usages = [usage_of(event.meta.get("usage")) for event in view if event.source == "agent"]
    usages = [usage for usage in usages if {"prompt_tokens", "cached_tokens"} <= usage.keys()]
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    if not prompt:
        return rule.read
    share = min(1.0, sum(usage["cached_tokens"] for usage in usages) / prompt)
    return share * rule.read + (1 - share) * rule.write


def _calls_since_summary(view: View) -> int:
    """Return how many replies the agent's model wrote since the newest summary."""
    summaries = [event.id for event in view if isinstance(event, CondensationSummary)]
    condensed_at = max(map(summary_of, summaries), default=NOT_RECORDED)
    calls = 0
    reply = None
    for event in view:
        if event.id > condensed_at and begins_reply(event):
            calls += begins_reply(event, reply)
            reply = event
    return calls
