"""What the calls of models in conversations used and cost: as they tell it, else by a table of
prices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from foldlog._documents import Document, ModelDocument, SpentDocument
from foldlog._figures.prices import Prices
from foldlog._formats.summed_calls import DIGITS, Calls, Curve, add_up, calls_in, hash_of_reply
from foldlog._formats.usage import ModelCall, calls_beside, calls_of_event
from foldlog._usage import IMPORTED
from foldlog._words.times import happened_at
from foldlog.eventstore import Event, Logged, ReadTransaction
from foldlog.eventstore.inside import newest_value

D = TypeVar("D", bound=Document)


class Spending(Struct):
    """The calls of models in one conversation.

    ``calls``      those that no other conversation repeats
    ``replies``    calls by the ids of the reply, each to be counted once
    ``runs``       those whose source gives only the sum
    ``paid``       the cost of all, where only such a sum has it
    ``last``       the tokens of the prompt of the agent's last call; ``context`` those of all such
                   prompts
    ``is_each``, ``has_cost``  whether imported events give the usage of each call, and its cost
    ``counts_on``  whether later events can be counted without these
    """

    calls: list[Calls] = []
    replies: dict[str, Calls] = {}
    runs: list[Calls] = []
    paid: float | None = None
    last: int | None = None
    context: Curve = field(default_factory=Curve)
    is_each: bool = False
    has_cost: bool = False
    counts_on: bool = True

    def take(
        self,
        logged: Iterable[Logged],
        beside: Iterable[Any] = (),
        start: int = 0,
        before: Iterable[Any] = (),
    ) -> None:
        """Count the calls in the next events from ``start`` on, and read them all: usage may add up
        over the events before. Count those that the source tells ``beside`` its records, as of now,
        and not ``before``.
        """
        # loads all formats
        from foldlog._formats.imported_calls import calls_of_imported, counts_on

        events = self._of_our_own(logged, start)
        sums = list[ModelCall]()
        for event in events:
            if event.origin is None:
                continue
            self.counts_on = self.counts_on and counts_on(event.origin.format)
            for call in calls_of_imported(chain((event,), events), event.origin.format):
                if call.is_total:
                    sums.append(call)
                    continue
                self.is_each = True
                self.has_cost = self.has_cost or call.cost is not None
                if call.event_id >= start:
                    self._take(call, self.calls)
        self.calls = add_up(self.calls)
        self.runs = []
        for call in (*sums, *calls_beside(beside, before)):
            if not call.is_total or not self.is_each:
                self._take(call, self.runs)
        costs = [
            call.cost
            for call in (*sums, *calls_beside(beside))
            if call.is_total and call.cost is not None
        ]
        if costs and self.is_each and not self.has_cost:
            self.paid = sum(costs)
        else:
            self.paid = None

    def _of_our_own(self, logged: Iterable[Logged], start: int) -> Iterator[Event]:
        """Count the calls of native events. Yield all events; a live one without a time has that of
        its recording.
        """
        for recorded_at, event in logged:
            if event.origin is None and event.id >= start:
                for call in calls_of_event(recorded_at, event):
                    self._take(call, self.calls)
            elif event.meta and event.timestamp is None:
                event = replace(event, timestamp=happened_at(event, recorded_at))
            yield event

    def _take(self, call: ModelCall, others: list[Calls]) -> None:
        calls = calls_in(call, is_run=others is self.runs)
        prompt = calls.usage.get("prompt_tokens", 0)
        is_one = call.calls == 1 and others is not self.runs
        if is_one and prompt and not call.by_condenser:
            self.last = prompt
            self.context.add(prompt)
        if call.reply is None:
            others.append(calls)
            return
        before = self.replies.get(call.reply)
        if before is None or calls.tokens >= before.tokens:  # a copy may be cut short
            self.replies[call.reply] = calls

    def by_hash(self) -> dict[int, Calls]:
        """Return each reply by a hash that all its copies have: see ``hash_of_reply``."""
        return {hash_of_reply(reply, calls): calls for reply, calls in self.replies.items()}

    def summed(self) -> list[Calls]:
        """Return all calls added up."""
        calls = add_up(chain(self.calls, self.runs, self.replies.values()))
        if self.paid is not None and len({one[:2] for one in calls}) == 1:
            calls = [
                one._replace(cost=0.0 if place else self.paid) for place, one in enumerate(calls)
            ]
        return calls


def priced(each: Iterable[Calls], prices: Prices) -> dict[tuple[str, str], ModelDocument]:
    """Return calls by day and model; where they tell no cost, at these prices."""
    models: dict[tuple[str, str], ModelDocument] = {}
    for day, model, usage, cost, calls, above, by_condenser in each:
        estimated = 0
        if cost is None and (price := prices.cost(model, usage, above)) is not None:
            cost = round(price, DIGITS)
            estimated = calls
        figures: dict[str, Any] = {
            "condenser_calls": calls * by_condenser,
            "costs_estimated": estimated,
            "cost": cost,
        }
        sum_up(
            models,
            {(day, model): ModelDocument(day=day, model=model, calls=calls, **figures, **usage)},
        )
    return models


def unpriced(each: Iterable[Calls], prices: Prices) -> set[str]:
    """Return the models of calls with tokens that tell no cost and have no price."""
    lacking = (one for one in each if one.cost is None and one.tokens)
    return {one.model for one in lacking if prices.cost(one.model, one.usage, one.above) is None}


def sum_up(figures: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add numbers, or the numbers of documents, to those of the same key; one that is not known
    adds nothing.
    """
    for key, other in more.items():
        one = figures.get(key)
        if one is None:
            figures[key] = other
        elif isinstance(other, int):
            figures[key] = one + other
        else:
            values = zip(one.__struct_fields__, astuple(other), strict=True)
            numbers = {
                name: (getattr(one, name) or 0) + value
                for name, value in values
                if type(value) in (int, float)
            }
            rounded = {
                name: n if type(n) is int else round(n, DIGITS) for name, n in numbers.items()
            }
            figures[key] = replace(one, **rounded)


def total_of(empty: D, documents: Iterable[D]) -> D:
    """Return the sum of documents of one class, to an ``empty`` one: see ``sum_up``."""
    total = {"": empty}
    for one in documents:
        sum_up(total, {"": one})
    return total[""]


def spent(models: Iterable[SpentDocument]) -> SpentDocument:
    """Return what all of these calls used, and the sum of the known costs."""
    return total_of(SpentDocument(), map(SpentDocument.of, models))


def spent_by(calls: Collection[Calls], prices: Prices) -> SpentDocument:
    """Return what the calls of one conversation used and cost; the cost is None where a model has
    no price.
    """
    total = spent(priced(calls, prices).values())
    return replace(total, cost=None) if unpriced(calls, prices) else total


def told_beside(read: ReadTransaction, version: int) -> list[Any]:
    """Return the calls that the source tells beside its records, as of a version."""
    told = newest_value(read, IMPORTED, version)
    return told if type(told) is list else []
