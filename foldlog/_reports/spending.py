"""What the calls of models in conversations used and cost: as they tell it, else by a table of prices."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as copied
from datetime import UTC
from itertools import chain
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import asdict, replace

from foldlog._documents import ModelDocument, SpentDocument
from foldlog._reports.kept import KeptBeside
from foldlog._reports.prices import Prices
from foldlog._reports.unreadable import sound
from foldlog._reports.usage import ModelCall, calls_of_event, calls_of_imported, counts_on
from foldlog._words.times import happened_at
from foldlog.eventstore import ConversationRow, Event, Logged, Store

SPENDING, SPENT = ("spending", 1), ("spent", 1)
"""Where calls are kept, and their sums; with the version of what is counted: see ``KeptBeside``."""
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
            cost = prices.cost(calls.model, {name: n for name, n in asdict(calls).items() if type(n) is int})
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


_NOTHING = ModelDocument(day="", model="")


def sum_up(figures: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add figures to those of the same key, number by number; one that is not known adds nothing."""
    for key, other in more.items():
        one = figures.get(key)
        if one is None:
            figures[key] = other
            continue
        numbers = {name: value for name, value in asdict(other).items() if isinstance(value, int | float)}
        figures[key] = replace(
            one, **{name: round((getattr(one, name) or 0) + value, _DIGITS) for name, value in numbers.items()}
        )


def spent(models: Iterable[ModelDocument | SpentDocument]) -> SpentDocument:
    """Return what all of these calls cost."""
    total = {"": SpentDocument()}
    for one in models:
        sum_up(total, {"": SpentDocument.of(one)})
    return total[""]


def own_spending(store: Store, row: ConversationRow, beside: Container[str]) -> Spending | None:
    """Return the calls of a fork since it left the last of those ``beside`` it whose past it shares, so that a sum over
    all of them counts each call once. None where there is no such past, and for formats whose usage adds up over
    events. Cost: the events since.
    """
    borders = () if row.parent is None else store.query(row.id, lambda read: read.lineage)
    start = max((border.version for border in borders if border.parent in beside), default=0)
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
        events. Raises ``KeyUnavailable``.
        """
        known = self.kept(rows)
        read = self._all_read([row for row in rows if row.id not in known and row.erased_at is None])
        known |= {name: self._priced(one) for name, one in read.items() if one is not None}
        return [known.get(row.id) for row in rows]

    def models(self, row: ConversationRow) -> tuple[ModelDocument, ...]:
        """Return the calls of one conversation by model, those of most tokens first; nothing where an event cannot be
        read. Raises and costs what ``of`` does.
        """
        kept = self._sums.load([row])
        one = Spending.of_kept(kept[row.id]) if kept else self._all_read([row])[row.id]
        by_model: dict[str, ModelDocument] = {}
        for calls in () if one is None else one.priced(self._prices).values():
            sum_up(by_model, {calls.model: replace(calls, day="")})
        return tuple(sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model)))

    def _all_read(self, rows: Sequence[ConversationRow]) -> dict[str, Spending | None]:
        there = self._kept.load(rows, of_any_version=True)
        read = {row.id: self._read(row, there.get(row.id)) for row in rows}
        self._kept.flush()
        self._sums.flush()
        return read

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
            one.take(sound(self._store, row.id, one.version, row.version, findings))
            if findings:
                return None
            self._kept.keep(row, one.kept())
        summed = one.summed()
        self._sums.keep(row, summed.kept())
        return summed
