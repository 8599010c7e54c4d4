"""What the calls of models in conversations used and cost: as they tell it, else by a table of prices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from foldlog._documents import Document, ModelDocument, SpentDocument
from foldlog._formats.imported_calls import calls_of_imported, counts_on
from foldlog._formats.record import UNREAD, dicts_in
from foldlog._formats.usage import ModelCall, Untold, calls_beside, calls_of_event
from foldlog._reports.prices import PRICED_FROM, Prices
from foldlog._usage import IMPORTED, LACKING, whole
from foldlog._words.times import happened_at
from foldlog.eventstore import Event, Logged, ReadTransaction
from foldlog.eventstore.inside import newest_value

D = TypeVar("D", bound=Document)

NO_DAY = "(no time)"

_DIGITS = 12
"""Digits of a cost after the point: those beyond come of adding binary fractions."""
_PRICED = ("prompt_tokens", "completion_tokens")
_LEAST = 5e-05
"""By how much a total must be higher than a sum: a source may round costs."""


class Calls(NamedTuple):
    """Some calls of one model on one day; ``cost`` is None where they tell none. The prompt of each has more tokens
    than ``above``, which is the same for prompts of one price; -1 where each prompt is not known.
    """

    day: str
    model: str
    usage: dict[str, int]
    cost: float | None
    calls: int
    above: int = -1
    by_condenser: bool = False


class Spending(Struct):
    """The calls of models in some conversations.

    ``calls`` are those that no other history repeats; ``replies`` are calls by the id of the reply, each to be counted
    once; ``runs`` are those of which a source tells only together. ``told`` is the sum of what imported events tell,
    and ``untold`` are the replies beside these; ``paid`` is their cost, where only a total tells it. ``lacks``: the
    source has calls that are not told, or records that could not be read, which may be calls of any day and model.
    ``counts_on``: whether later events of the one conversation can be counted without these.
    """

    calls: list[Calls] = []
    replies: dict[str, Calls] = {}
    runs: list[Calls] = []
    told: dict[str, float] = {}
    paid: float | None = None
    untold: Untold = field(default_factory=Untold)
    lacks: bool = False
    counts_on: bool = True

    def take(
        self, logged: Iterable[Logged], beside: Iterable[Any] = (), start: int = 0, before: Iterable[Any] = ()
    ) -> None:
        """Count the calls that the next events from ``start`` on tell, and read them all: usage may add up over the
        events before. Count those that the source tells of ``beside`` its records, as of now, and not ``before``.
        """
        events, given = self._of_our_own(logged, start), list[ModelCall]()
        for event in events:
            if event.origin is not None:
                self.counts_on = self.counts_on and counts_on(event.origin.format)
                for call in calls_of_imported(chain((event,), events), event.origin.format, self.untold, start):
                    if call.is_total:
                        given.append(call)
                        continue
                    _add(self.told, call)
                    if call.event_id >= start:
                        self._take(call, self.calls)
        run, self.calls, self.runs = dict[str, float](), summed(self.calls), []
        for call in (*given, *calls_beside(beside)):
            if call.is_total:
                _add(run, call)
        given += calls_beside(beside, before)
        for call in given:
            if not (call.is_total and self.told):
                self._take(call, self.runs)
        replies = sum(not call.is_total for call in given)
        self.lacks = any(number > self.told.get(name, number) + _LEAST for name, number in run.items())
        if (self.told or replies) and run.keys().isdisjoint(_PRICED) and run.get("calls", 1) == 1:  # no total tells it
            self.lacks = self.lacks or self.untold.count > replies
        self.lacks = self.lacks or any(UNREAD in each for each in dicts_in(beside))
        self.paid = run.get("cost") if self.told and "cost" not in self.told else None

    def _of_our_own(self, logged: Iterable[Logged], start: int) -> Iterator[Event]:
        """Count the calls of native events. Yield all events; a live one without a time has that of its recording."""
        for recorded_at, event in logged:
            if event.origin is None and event.id >= start:
                for call in calls_of_event(recorded_at, event):
                    self._take(call, self.calls)
            elif event.meta and event.timestamp is None:
                event = replace(event, timestamp=happened_at(event, recorded_at))
            yield event

    def _take(self, call: ModelCall, others: list[Calls]) -> None:
        day = NO_DAY if call.at is None else call.at.astimezone(UTC).date().isoformat()
        usage = whole(call.usage)
        above = PRICED_FROM[bisect_left(PRICED_FROM, max(1, usage.get("prompt_tokens", 0))) - 1]
        above = above if call.calls == 1 and others is not self.runs else -1
        told = Calls(day, call.model, usage, call.cost, max(1, call.calls), above, call.by_condenser)
        if call.reply is None:
            others.append(told)
        elif tokens_of(told) >= tokens_of(self.replies.get(call.reply)):  # a copy may be cut short
            self.replies[call.reply] = told

    def count(self, calls: Iterable[ModelCall]) -> None:
        """Count calls that a source tells, each by itself."""
        for call in calls:
            self._take(call, self.calls)

    def hashes(self) -> list[int]:
        """Return a hash of each reply, equal for all its copies: see ``_hash``."""
        return [_hash(reply, told) for reply, told in self.replies.items()]

    def summed(self, seen: Collection[int] = ()) -> list[Calls]:
        """Return all calls together, without replies whose hashes were ``seen``. If the source ``lacks`` some, these
        stay as no calls: they have the mark.
        """
        replies = (_no_call(it) if seen and _hash(reply, it) in seen else it for reply, it in self.replies.items())
        calls = summed(chain(self.calls, self.runs, (told for told in replies if told.calls or self.lacks)))
        if self.paid is not None and not seen and len({one[:2] for one in calls}) == 1:
            calls = [one._replace(cost=0.0 if place else self.paid) for place, one in enumerate(calls)]
        return [one._replace(usage={**LACKING, **one.usage}) for one in calls] if self.lacks else calls


def _add(sums: dict[str, float], call: ModelCall) -> None:
    """Add the figures of a call to sums. A total that tells tokens may count calls in another way."""
    usage = whole(call.usage)
    told: dict[str, float] = {name: usage[name] for name in _PRICED if name in usage}
    told |= {} if call.cost is None else {"cost": call.cost}
    told |= {} if call.is_total and told.keys() & _PRICED else {"calls": call.calls}
    sums |= {name: round(sums.get(name, 0) + number, _DIGITS) for name, number in told.items()}


def _no_call(told: Calls) -> Calls:
    return told._replace(usage={name: 0 for name in _PRICED if name in told.usage}, cost=told.cost and 0.0, calls=0)


def tokens_of(told: Calls | None) -> float:
    """Return the tokens of calls; -1 of none, so that a call without usage is more."""
    return -1 if told is None else sum(told.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))


def _hash(reply: str, told: Calls) -> int:
    """Return a hash of a reply: of its id, if that has several parts, such as a message and its request. Some servers
    give one id alone to many replies, which then differ in their model or tokens.
    """
    text = repr(reply if " " in reply else (reply, told.model, sorted(told.usage.items())))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def summed(each: Iterable[Calls]) -> list[Calls]:
    """Return calls, those of one day and model that tell the same together. Cost: the calls."""
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for day, model, usage, cost, calls, *which in each:
        alike = day, model, cost is None, *[name in usage for name in _PRICED], *which
        if (so_far := sums.get(alike)) is None:
            sums[alike] = [dict(usage), cost, calls]
            continue
        for name, number in usage.items():
            so_far[0][name] = so_far[0].get(name, 0) + number
        so_far[1] = None if cost is None else round(cost + (so_far[1] or 0.0), _DIGITS)
        so_far[2] += calls
    return [Calls(day, model, *so_far, *which) for (day, model, _, _, _, *which), so_far in sums.items()]


def priced(each: Iterable[Calls], prices: Prices) -> dict[tuple[str, str], ModelDocument]:
    """Return calls by day and model; where no cost is told, at these prices."""
    models: dict[tuple[str, str], ModelDocument] = {}
    for day, model, usage, cost, calls, above, by_condenser in each:
        tokens = {name: count for name, count in usage.items() if name not in ("dearer", "lacking")}
        there = calls - usage.get("lacking", 0)
        told, known, estimated = there * ("prompt_tokens" in usage), there * (cost is not None), 0
        if cost is None and (price := prices.cost(model, usage, above)) is not None:
            cost, estimated = round(price, _DIGITS), calls
            known = 0 if prices.may_be_more(model, usage, above) else calls - usage.get("dearer", 0)
        counts = {"costs_recorded": known, "costs_estimated": estimated, "tokens_recorded": told}
        counts["condenser_calls"] = calls * by_condenser
        sum_up(models, {(day, model): ModelDocument(day=day, model=model, calls=calls, cost=cost, **counts, **tokens)})
    return models


def sum_up(figures: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add numbers, or the numbers of documents, to those of the same key; one that is not known adds nothing."""
    for key, other in more.items():
        one = figures.get(key)
        if one is None:
            figures[key] = other
        elif isinstance(other, int):
            figures[key] = one + other
        else:
            values = zip(one.__struct_fields__, astuple(other), strict=True)
            numbers = {name: (getattr(one, name) or 0) + value for name, value in values if type(value) in (int, float)}
            rounded = {name: n if type(n) is int else round(n, _DIGITS) for name, n in numbers.items()}
            figures[key] = replace(one, **rounded)


def total_of(empty: D, documents: Iterable[D]) -> D:
    """Return the sum of documents of one class, to an ``empty`` one: see ``sum_up``."""
    total = {"": empty}
    for one in documents:
        sum_up(total, {"": one})
    return total[""]


def spent(models: Iterable[SpentDocument]) -> SpentDocument:
    """Return what all of these calls cost."""
    return total_of(SpentDocument(), map(SpentDocument.of, models))


def spent_by(calls: Iterable[Calls], prices: Prices) -> SpentDocument:
    """Return what these calls cost; where none is told, at these prices."""
    return spent(priced(calls, prices).values())


def told_beside(read: ReadTransaction, version: int) -> list[Any]:
    """Return what is known of calls beside the events, as of a version: what the source tells beside its records, and
    which of these could not be read.
    """
    told, unread = newest_value(read, IMPORTED, version), newest_value(read, UNREAD, version)
    return [*(told if type(told) is list else []), *([{UNREAD: unread}] if unread else [])]
