"""What the calls of models in conversations used and cost: as they tell it, else by a table of prices."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as copied
from datetime import UTC
from itertools import chain
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import asdict, astuple, replace

from foldlog._documents import ModelDocument, SpentDocument
from foldlog._reports.kept import KeptBeside
from foldlog._reports.of_all import KeptOfAll
from foldlog._reports.prices import Prices
from foldlog._reports.unreadable import sound
from foldlog._reports.usage import ModelCall, calls_of_event, calls_of_imported, counts_on
from foldlog._words.times import happened_at
from foldlog.eventstore import ConversationRow, Event, KeyUnavailable, Logged, Store

SPENDING, SPENT = ("spending", 1), ("spent", 1)
"""Where calls are kept, and their sums; with the version of what is counted: see ``KeptBeside``."""
COSTS = "costs", 1
"""Where the costs of all conversations are: see ``KeptOfAll``."""
NO_DAY = "(no time)"

_DIGITS = 12
"""Digits of a cost after the point: those beyond come of adding binary fractions."""

_Key = tuple[str, str]
"""A day and a model."""


@dataclass
class Spending:
    """The calls of models in some conversations.

    ``models`` are those that no other history repeats; ``unpriced`` those of them that tell their tokens and no cost;
    ``replies`` are calls by the id of the reply, each to be counted once. ``version``: the events that were read of the
    one conversation; ``counts_on``: whether later events of it can be counted without these.
    """

    models: dict[_Key, ModelDocument] = field(default_factory=dict)
    unpriced: dict[_Key, ModelDocument] = field(default_factory=dict)
    replies: dict[str, Sequence[Any]] = field(default_factory=dict)
    version: int = 0
    counts_on: bool = True

    def take(self, logged: Iterable[Logged]) -> None:
        """Count the calls in the next events, and read them all."""
        events = self._of_our_own(logged)
        for event in events:
            if event.origin is not None:
                self.counts_on = self.counts_on and counts_on(event.origin.format)
                for call in calls_of_imported(chain((event,), events), event.origin.format):
                    self._take(call)

    def _of_our_own(self, logged: Iterable[Logged]) -> Iterator[Event]:
        """Count the calls of native events. Yield all events; a live one without a time has that of its recording."""
        for recorded_at, event in logged:
            self.version = event.id + 1
            if event.origin is None:
                for call in calls_of_event(recorded_at, event):
                    self._take(call)
            elif event.meta and event.timestamp is None:
                event = replace(event, timestamp=happened_at(event, recorded_at))
            yield event

    def _take(self, call: ModelCall) -> None:
        day = NO_DAY if call.at is None else call.at.astimezone(UTC).date().isoformat()
        told = day, call.model, dict(call.usage), call.cost, call.calls
        if call.reply is None:
            self._enter(*told)
        else:
            self.replies[call.reply] = told

    def _enter(self, day: str, model: str, usage: Mapping[str, int], cost: float | None, calls: int) -> None:
        known = 0 if cost is None else calls
        one = {(day, model): ModelDocument(day=day, model=model, calls=calls, cost=cost, costs_recorded=known, **usage)}
        sum_up(self.models, one)
        if cost is None and {"prompt_tokens", "completion_tokens"} <= usage.keys():
            sum_up(self.unpriced, one)

    def add(self, other: Spending) -> None:
        """Add the calls of other conversations."""
        sum_up(self.models, other.models)
        sum_up(self.unpriced, other.unpriced)
        counted = {reply: self.replies[reply] for reply in self.replies.keys() & other.replies.keys()}
        self.replies |= {**other.replies, **counted}

    def summed(self) -> Spending:
        """Return the same with each reply among the others. Cost: the replies."""
        total = Spending(dict(self.models), dict(self.unpriced), {}, self.version, self.counts_on)
        sums: dict[tuple[Any, ...], list[Any]] = {}
        for day, model, usage, cost, calls in self.replies.values():
            alike = day, model, cost is None, *usage
            if (so_far := sums.get(alike)) is None:
                sums[alike] = [day, model, dict(usage), cost, calls]
                continue
            for name, number in usage.items():
                so_far[2][name] += number
            so_far[3] = cost if cost is None else so_far[3] + cost
            so_far[4] += calls
        for each in sums.values():
            total._enter(*each)
        return total

    def priced(self, prices: Prices) -> dict[_Key, ModelDocument]:
        """Return the calls by day and model, each reply once; where no cost is told, at these prices."""
        total = self.summed()
        for key, calls in total.unpriced.items():
            cost = prices.cost(calls.model, _usage(calls))
            if cost is not None:
                number = calls.calls
                priced = replace(_NOTHING, cost=cost, costs_recorded=number, costs_estimated=number)
                sum_up(total.models, {key: priced})
        return total.models

    def kept(self) -> dict[str, Any]:
        """Return the calls as JSON values."""
        models, unpriced = (list(map(to_builtins, each.values())) for each in (self.models, self.unpriced))
        return {**vars(self), "models": models, "unpriced": unpriced}

    @staticmethod
    def of_kept(kept: dict[str, Any]) -> Spending:
        """Return the calls that ``kept`` returned."""
        read: Any = {name: convert(kept[name], list[ModelDocument]) for name in ("models", "unpriced")}
        return Spending(**kept | {name: {(one.day, one.model): one for one in each} for name, each in read.items()})


def _usage(calls: ModelDocument) -> dict[str, int]:
    return {name: number for name, number in asdict(calls).items() if type(number) is int}


_NOTHING = ModelDocument(day="", model="")


def sum_up(figures: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add figures to those of the same key, number by number; one that is not known adds nothing."""
    for key, other in more.items():
        one = figures.get(key)
        if one is None:
            figures[key] = other
            continue
        values = zip(one.__struct_fields__, astuple(other), strict=True)
        numbers = {name: (getattr(one, name) or 0) + value for name, value in values if type(value) in (int, float)}
        figures[key] = replace(one, **{name: n if type(n) is int else round(n, _DIGITS) for name, n in numbers.items()})


def spent(models: Iterable[ModelDocument | SpentDocument]) -> SpentDocument:
    """Return what all of these calls cost."""
    total = {"": SpentDocument()}
    for one in models:
        sum_up(total, {"": SpentDocument.of(one)})
    return total[""]


def own_spending(store: Store, row: ConversationRow, beside: Container[str] | None) -> Spending | None:
    """Return the calls of a fork since it left the last of those ``beside`` it, None for all, whose past it shares, so
    that a sum over all of them counts each call once. None where there is no such past, and for formats whose usage
    adds up over events. Cost: the events since.
    """
    borders = () if row.parent is None else store.query(row.id, lambda read: read.lineage)
    start = max((border.version for border in borders if beside is None or border.parent in beside), default=0)
    own = Spending()
    own.take(sound(store, row.id, start, row.version, []) if start else ())
    return own if start and own.counts_on else None


class Spendings:
    """What each conversation of a store spent. It is kept beside the conversation, and counted on from there."""

    def __init__(self, store: Store, prices: Prices) -> None:
        self._store, self._prices = store, prices
        self._kept, self._sums = KeptBeside(store, *SPENDING), KeptBeside(store, *SPENT)

    def of(self, rows: Sequence[ConversationRow]) -> list[SpentDocument | None]:
        """Return what each of these conversations spent; None if it is erased, or an event cannot be read.

        Cost: a record of each, and the events since it was kept; all of them for formats in which usage adds up over
        events.
        """
        return [None if one is None else self._priced(one) for one in self._summed(rows)]

    def costs(self, rows: Iterable[ConversationRow] | None = None) -> dict[str, float | None]:
        """Return what each conversation of the store, or each of these, cost, by its id; None where that is not known.
        Cost: what has changed, and a line for each conversation.
        """
        blocks = KeptOfAll(self._store, *COSTS, self._lines).load(rows)
        return {name: self._cost(known, unpriced) for block in blocks for name, known, *unpriced in block}

    def _lines(self, rows: Sequence[ConversationRow]) -> tuple[Any, bool]:
        """Return the id of each conversation, what its calls tell of their cost, and the others by model."""
        lines: list[Any] = []
        summed = self._summed(rows)
        for row, one in zip(rows, summed, strict=True):
            told = Spending() if one is None else one
            unpriced = ((calls.model, _usage(calls)) for calls in told.unpriced.values())
            lines.append((row.id, spent(told.models.values()).cost, *unpriced))
        return lines, None not in summed

    def _cost(self, known: float | None, unpriced: Iterable[tuple[str, Mapping[str, int]]]) -> float | None:
        priced = (self._prices.cost(model, usage) for model, usage in unpriced)
        costs = [cost for cost in (known, *priced) if cost is not None]
        return sum(costs) if costs else None

    def models(self, row: ConversationRow) -> tuple[ModelDocument, ...]:
        """Return the calls of one conversation by model, those of most tokens first; nothing where an event cannot be
        read. Costs what ``of`` does.
        """
        (one,) = self._summed([row])
        by_model: dict[str, ModelDocument] = {}
        for calls in () if one is None else one.priced(self._prices).values():
            sum_up(by_model, {calls.model: replace(calls, day="")})
        return tuple(sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model)))

    def _summed(self, rows: Sequence[ConversationRow]) -> list[Spending | None]:
        there = self._sums.load(rows)
        missing = [row for row in rows if row.id not in there and row.erased_at is None]
        before = self._kept.load(missing, of_any_version=True)
        read = {row.id: self._read(row, before.get(row.id)) for row in missing}
        self._kept.flush()
        self._sums.flush()
        return [Spending.of_kept(there[row.id]) if row.id in there else read.get(row.id) for row in rows]

    def kept(self, rows: Sequence[ConversationRow]) -> dict[str, SpentDocument]:
        """Return what those of these conversations spent that were read, by their ids. Cost: a record of each."""
        return {name: self._priced(Spending.of_kept(kept)) for name, kept in self._sums.load(rows).items()}

    def _priced(self, one: Spending) -> SpentDocument:
        return spent(one.priced(self._prices).values())

    def own(
        self, rows: Sequence[ConversationRow], beside: Container[str], owners: dict[str, str]
    ) -> dict[str, SpentDocument]:
        """Return what each of these conversations spent by itself, by their ids, so that a sum over all counts each
        call once: of a fork see ``own_spending``; of others that were read, without the replies of which ``owners``
        names another conversation. A reply that is new there becomes the conversation's own.
        """
        kept, found = self._kept.load(rows), dict[str, SpentDocument]()
        for row in rows:
            one = own_spending(self._store, row, beside)
            if one is None and row.id not in kept:
                continue
            one = one or Spending.of_kept(kept[row.id])
            own = {reply: told for reply, told in one.replies.items() if owners.setdefault(reply, row.id) == row.id}
            found[row.id] = self._priced(copied(one, replies=own))
        return found

    def _read(self, row: ConversationRow, before: dict[str, Any] | None) -> Spending | None:
        one = Spending() if before is None else Spending.of_kept(before)
        if one.version > row.version or not (one.counts_on or one.version == row.version):
            one = Spending()
        if one.version < row.version:
            findings: list[str] = []
            with suppress(KeyUnavailable):
                one.take(sound(self._store, row.id, one.version, row.version, findings))
            if findings or one.version < row.version:
                return None
            self._kept.keep(row, one.kept())
        summed = one.summed()
        self._sums.keep(row, summed.kept())
        return summed
