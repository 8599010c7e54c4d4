"""This module compares the figures of several strategies over the same history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._reports.answers.comparison import RecallDocument, StrategyFiguresDocument
from foldlog._reports.words.gist import cost_words, count

if TYPE_CHECKING:
    from foldlog._reports.figures.prices import Price
    from foldlog._reports.replays import Replay
    from foldlog.condensers import AgentModel, Condenser
    from foldlog.condensers.models.caches import CacheRule

_Scalar = int | float | str | None
_UNNEEDED = (
    "What was needed again cannot be measured: the agent repeated no name or long number of an"
    " earlier event."
)


def describe_condenser(condenser: Condenser, model: AgentModel | None) -> JsonObject:
    """Return the name, the lowest limits and the options of a condenser, as fields of
    ``StrategyFiguresDocument``.
    """
    from foldlog.condensers.models.estimate import counting

    limits = _limits(condenser, counting(model))
    events = min((events for events, _ in limits if events is not None), default=None)
    tokens = min((tokens for _, tokens in limits if tokens is not None), default=None)
    fields = {
        name: getattr(condenser, name) for name in getattr(condenser, "__dataclass_fields__", ())
    }
    parameters = {name: value for name, value in fields.items() if isinstance(value, _Scalar)}
    return {
        "condenser": condenser.type,
        "events_max": events,
        "tokens_max": tokens,
        "parameters": parameters,
    }


def _limits(condenser: Condenser, model: AgentModel) -> list[tuple[int | None, int | None]]:
    """Return the numbers of events and of tokens above which a condenser, or one of its parts,
    condenses a View.
    """
    limits = getattr(condenser, "limits", None)
    if limits is None:
        own_limits = (getattr(condenser, "max_size", None), None)
    else:
        own_limits = limits(model)
    return [
        own_limits,
        *chain.from_iterable(_limits(part, model) for part in getattr(condenser, "condensers", ())),
    ]


def comparison(
    replays: Mapping[str, Replay],
    asks: Collection[int],
    price: Price,
    condensers: Mapping[str, JsonMap],
    rule: CacheRule,
) -> list[StrategyFiguresDocument]:
    """Return the figures of each replay. ``replays`` maps the name of a strategy to its replay.
    ``asks`` are the ids of the user's messages in the history. ``condensers`` are the results of
    ``describe_condenser``. ``rule`` is the rule of the cache of the agent's provider.
    """
    from foldlog._reports.recall_score import AGES

    old = AGES[-1]
    return [
        StrategyFiguresDocument.of(
            replay,
            strategy=name,
            turns=len(replay.turns),
            condensations=len(replay.condensations),
            view_events_peak=max((turn.events for turn in replay.turns), default=0),
            view_events_last=replay.turns[-1].events if replay.turns else 0,
            events_hidden_last=replay.turns[-1].hidden if replay.turns else 0,
            events_summarized=len(replay.summarized),
            events_lost=len(replay.lost),
            events_masked=len(replay.masked),
            cost=replay.cost(price, rule),
            tokens_cached=replay.tokens_cached(rule),
            summary_tokens=sum(prompts.own for prompts in replay.summaries),
            summary_cost=sum(prompts.cost_own(price) for prompts in replay.summaries),
            continued_tokens=sum(prompts.next for prompts in replay.summaries),
            continued_cached=sum(rule.cached(prompts.repeated) for prompts in replay.summaries),
            continued_cost=sum(prompts.cost_next(price, rule) for prompts in replay.summaries),
            user_messages_lost=tuple(sorted(set(asks).intersection(replay.lost))),
            lost=tuple(replay.lost),
            condensations_per_100_calls=100 * len(replay.condensations) / max(1, len(replay.turns)),
            needed_again=len(replay.needed),
            old_names_shown=replay.shown_of("names", least_age=old),
            numbers_shown=replay.shown_of("numbers"),
            old_numbers_shown=replay.shown_of("numbers", least_age=old),
            words_shown=replay.shown_of("words"),
            old_words_shown=replay.shown_of("words", least_age=old),
            recall=tuple(
                RecallDocument(kind, age, *counts)
                for (kind, age), counts in sorted(replay.recall.items())
            ),
            condensed_before=replay.condensations,
            calls=tuple(replay.turns),
            **condensers.get(name, {}),
        )
        for name, replay in replays.items()
    ]


class _Measure(NamedTuple):
    """A figure by which strategies are compared, and the words of a sentence about it.

    ``figure``  the name of the field
    ``unit``    what follows the number
    ``verb``    what a strategy does with the number, as in "they send 12 tokens"
    ``least``   what the strategy with the least number does
    ``about``   what precedes an estimated number
    """

    figure: str
    unit: str
    verb: str
    least: str
    about: str = ""

    def of(self, row: StrategyFiguresDocument) -> float:
        figure = getattr(row, self.figure)
        return inf if figure is None else float(figure)

    def text_for(self, row: StrategyFiguresDocument) -> str:
        if self.figure == "cost":
            return self.about + cost_words(self.of(row))
        return _short(getattr(row, self.figure))


_MEASURES = (
    _Measure("cost", "", "cost", "costs least"),
    _Measure("tokens_sent", " tokens", "send", "sends least"),
    _Measure("view_events_peak", " events in its largest View", "send", "keeps Views smallest"),
)


def verdict_of(
    rows: Sequence[StrategyFiguresDocument], price: Price, priced: str, about: str = ""
) -> list[str]:
    """Return sentences about the cheapest strategy that loses no user message. The recorded
    condensations are left out, because a reader cannot choose them. If a cost is unknown,
    strategies are compared by the tokens that they send. If the tokens are unknown, strategies are
    compared by the sizes of their Views. ``price`` is the price of the model ``priced``. An
    estimated cost is written with the prefix ``about``.
    """
    offered = [row for row in rows if row.condenser is not None]
    measures = (
        measure
        for measure in _MEASURES
        if all(getattr(row, measure.figure) is not None for row in offered)
    )
    measure = next(measures)._replace(about=about)
    noop = next(row for row in offered if row.condenser == "noop")
    are_equal = len({*map(measure.of, offered)}) == 1
    if are_equal:
        first = _words_of_equal(rows, noop, measure)
    else:
        first = _words_of_cheapest(offered, noop, measure)
    new = 1_000_000 * price.of_prompt(fresh=0, cached=0, written=1)
    repeated = 1_000_000 * price.of_prompt(fresh=0, cached=1)
    at = (
        f"At the price of {priced}: ${new:,.2f} for a million new tokens, ${repeated:,.2f} for a "
        f"million repeated tokens."
    )
    sentences = [first, *map(_loss, sorted(rows, key=measure.of))]
    if not any(row.needed_again for row in rows):
        sentences.append(_UNNEEDED)
    return [*sentences, at] if measure.figure == "cost" else sentences


def _words_of_equal(
    rows: Sequence[StrategyFiguresDocument], noop: StrategyFiguresDocument, measure: _Measure
) -> str:
    """Return the sentence of the verdict if all condensers cost the same."""
    figure = f"{measure.text_for(noop)}{measure.unit}"
    offered = [row for row in rows if row.condenser is not None]
    if len(offered) == 1:
        return f"{noop.strategy} {measure.verb}s {figure}."
    if not noop.turns:
        return (
            "Nothing to compare: the history has no call of the agent's model. Compare a history"
            " with replies of a model."
        )
    sentences = f"The condensers all {measure.verb} {figure}"
    if any(row.condensations or row.declined or row.events_masked for row in offered):
        return f"{sentences}."
    sentences += f": none of them condenses {count(noop.view_events_peak, 'event')}."
    for row in rows:
        if row.condenser is None:
            if measure.of(row) < inf:
                figure_text = f" and {measure.verb}s {measure.text_for(row)}{measure.unit}"
            else:
                figure_text = ""
            sentences += (
                f" The history {row.strategy} has"
                f" {count(row.condensations, 'condensation')}{figure_text}."
            )
    return f"{sentences} Compare a longer history, or lower a limit with --config FILE."


def _words_of_cheapest(
    offered: Sequence[StrategyFiguresDocument], noop: StrategyFiguresDocument, measure: _Measure
) -> str:
    """Return the sentence about the cheapest condenser that loses no message of the user."""
    faithful = (
        row for row in offered if measure.of(row) != measure.of(noop) and not row.user_messages_lost
    )
    best = min(faithful, key=measure.of, default=noop)
    base = measure.of(noop)
    least = f"{measure.least} of the condensers that lose no request"
    is_less = measure.of(best) < base
    share = ""
    if base:
        percent = 100 * abs(1 - measure.of(best) / base)
        share = f" ({percent:.0f} % {'less' if is_less else 'more'} than {noop.strategy})"
    if is_less:
        return (
            f"{best.strategy} {least}: {measure.text_for(best)} instead of"
            f" {measure.text_for(noop)}{measure.unit}{share}."
        )
    other_text = ""
    if best is not noop:
        other_text = f"; {best.strategy}: {measure.text_for(best)}{measure.unit}{share}"
    return f"{noop.strategy} {least}: {measure.text_for(noop)}{measure.unit}{other_text}."


def _loss(row: StrategyFiguresDocument) -> str:
    """Return the sentence about what a strategy loses, and what its own model costs."""
    message_count = len(row.user_messages_lost)
    other_count = row.events_lost - message_count
    parts = []
    if message_count:
        parts.append(f"{count(message_count, 'message')} of the user")
    if other_count > 0:
        parts.append(count(other_count, "other event" if message_count else "event"))
    words = f"loses {' and '.join(parts) or 'no event'}"
    if row.events_masked:
        masked = f"; masks {row.events_masked:,} in some prompts"
    else:
        masked = ""
    if row.events_summarized:
        summaries = f"; {row.events_summarized:,} in a summary"
    else:
        summaries = ""
    sent = row.tokens_sent
    repeated = row.tokens_repeated
    if sent and repeated is not None:
        repeated_text = f"; {100 * repeated / sent:.0f} % of its tokens are repeated"
    else:
        repeated_text = ""
    return f"{row.strategy} {words}{masked}{summaries}{repeated_text}; {_price_of_model(row)}."


def _price_of_model(row: StrategyFiguresDocument) -> str:
    """Return in words what the condenser's own model costs."""
    cost = row.condenser_cost
    if cost is None:
        recorded = row.condenser is None
        if recorded:
            return "the cost of its own model is not recorded"
        return "the price of its own model is unknown"
    if cost:
        return f"its own model costs {cost_words(cost)}"
    return "its own model costs nothing"


def _short(number: int) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f} million"
    return f"{round(number, -3):,}" if number >= 10_000 else f"{number:,}"
