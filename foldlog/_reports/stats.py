"""Figures of conversations: events by kind and tool, errors, tokens and cost by model and day, condensations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, TypeGuard, TypeVar

from msgspec import UNSET, UnsetType, convert, to_builtins
from msgspec.structs import replace

from foldlog._documents import CondensationsDocument, Document, ModelDocument, StatsDocument, ToolDocument
from foldlog._kinds import label
from foldlog._reports.kept import KeptBeside
from foldlog._reports.of_all import KeptOfAll
from foldlog._reports.overview import is_about_it
from foldlog._reports.prices import Prices
from foldlog._reports.savings import is_declined, recorded_cost, saving_of
from foldlog._reports.spending import NO_DAY, SPENDING, Spending, own_spending, spent, sum_up
from foldlog._reports.unreadable import sound
from foldlog._words.times import happened_at
from foldlog.condensers import event_tokens
from foldlog.eventstore import (
    Action,
    CondensationAction,
    ConversationRow,
    Event,
    EventStoreError,
    Logged,
    Observation,
    Store,
)
from foldlog.projections import LifetimesFold, Views

K = TypeVar("K")
D = TypeVar("D", bound=Document)

STATS = "stats", 4
"""Where figures are kept, and the version of what is counted and of how tokens are estimated: see ``KeptBeside``."""
SUMS = "sums", 2
"""Where their sums over all conversations are: see ``KeptOfAll``."""

_PAGE = 1_000
NO_NAME = "(not named)"
_TELL_EVERY = 500


@dataclass
class Stats:
    """Figures of some conversations.

    ``events`` are counted by label, ``days`` by the day that they happened on, ``models`` by day and model.
    ``view_tokens`` are the tokens that the View of each version sends to a model, an estimate that errs high; of one
    conversation, and empty for several.
    ``spending`` has the calls as they are told, of which ``models`` are made once prices are known. ``findings`` name
    events that could not be read: they are not counted.
    """

    conversations: int = 0
    events: Counter[str] = field(default_factory=Counter)
    tools: dict[str, ToolDocument] = field(default_factory=dict)
    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending, repr=False)
    condensations: dict[str, CondensationsDocument] = field(default_factory=dict)
    days: Counter[str] = field(default_factory=Counter)
    first_at: datetime | None = None
    last_at: datetime | None = None
    view_tokens: tuple[int, ...] = ()
    findings: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Observations that are errors."""
        return self.events["error"]

    def add(self, other: Stats) -> None:
        """Add the figures of other conversations, but not the sizes of their Views."""
        self.conversations += other.conversations
        self.events += other.events
        self.days += other.days
        self.findings += other.findings
        self.spending.add(other.spending)
        sum_up(self.tools, other.tools)
        sum_up(self.condensations, other.condensations)
        self.first_at = min((at for at in (self.first_at, other.first_at) if at is not None), default=None)
        self.last_at = max((at for at in (self.last_at, other.last_at) if at is not None), default=None)

    def kept(self) -> dict[str, Any]:
        """Return the figures of one conversation as JSON values, without its spending."""
        moments = [None if at is None else at.isoformat() for at in (self.first_at, self.last_at)]
        return {
            "events": self.events,
            "tools": to_builtins(self.tools),
            "condensations": to_builtins(self.condensations),
            "days": self.days,
            "moments": moments,
        }

    @staticmethod
    def of_kept(kept: dict[str, Any], spending: Spending) -> Stats:
        """Return the figures that ``kept`` returned, with the spending."""
        first_at, last_at = (None if at is None else datetime.fromisoformat(at) for at in kept["moments"])
        return Stats(
            conversations=1,
            events=Counter(kept["events"]),
            tools=convert(kept["tools"], dict[str, ToolDocument]),
            spending=spending,
            condensations=convert(kept["condensations"], dict[str, CondensationsDocument]),
            days=Counter(kept["days"]),
            first_at=first_at,
            last_at=last_at,
        )

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures for programs; ``conversation`` is the only one, if there is only one."""
        return StatsDocument.of(
            self,
            conversation=conversation,
            events={"total": self.events.total(), **self.events},
            first_at=None if self.first_at is None else self.first_at.isoformat(),
            last_at=None if self.last_at is None else self.last_at.isoformat(),
            models=tuple(figures for _, figures in sorted(self.models.items())),
            spent=spent(self.models.values()),
            days=dict(sorted(self.days.items())),
            findings=tuple(self.findings),
        )


def collect_stats(
    store: Store,
    conversations: Sequence[str] | None,
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
    prices: Prices | None = None,
) -> Stats:
    """Return the figures of conversations, None for all. An event that cannot be read is a finding, and the rest is
    counted.

    Calls that tell no cost are counted at ``prices``, else at litellm's. The figures of several conversations are kept
    beside them, and the sums of all. Raises ``ConversationNotFound``, ``ConversationErased``. Cost: a record of each
    conversation; of one alone, and of those that have changed since they were counted, every event once, and the
    structural ones once more; of all conversations, what has changed.
    """
    stats = Stats()
    if conversations is None:

        def of_a_block(rows: Sequence[ConversationRow]) -> tuple[Any, bool]:
            one = _sum(store, rows, None, on_events, views)
            return (one.conversations, one.kept(), one.spending.kept(), one.findings), not one.findings

        for number, kept, spending, findings in KeptOfAll(store, *SUMS, of_a_block).load():
            one = Stats.of_kept(kept, Spending.of_kept(spending))
            one.conversations, one.findings = number, findings
            stats.add(one)
    elif len(conversations) == 1:
        stats = stats_of(store, views, _row(store, conversations[0]), on_events, alone=True)
    else:
        rows = [_row(store, conversation) for conversation in conversations]
        stats = _sum(store, rows, set(conversations), on_events, views)
    stats.models = stats.spending.priced(prices or Prices())
    return stats


def _sum(
    store: Store,
    rows: Sequence[ConversationRow],
    chosen: Container[str] | None,
    on_events: Callable[[int], object],
    views: Views,
) -> Stats:
    stats = Stats()
    with KeptBeside(store, *STATS) as kept, KeptBeside(store, *SPENDING) as calls:
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE]
            there, spendings = kept.load(page), calls.load(page)
            for row in page:
                if row.id in there and row.id in spendings:
                    one = Stats.of_kept(there[row.id], Spending.of_kept(spendings[row.id]))
                    on_events(row.version)
                else:
                    one = stats_of(store, views, row, on_events, alone=False)
                    if not one.findings:
                        kept.keep(row, one.kept())
                        calls.keep(row, one.spending.kept())
                one.spending = own_spending(store, row, chosen) or one.spending
                stats.add(one)
    return stats


def _row(store: Store, conversation: str) -> ConversationRow:
    row = store.conversation(conversation)
    if row.erased_at is not None:
        store.version(conversation)  # raises: of an erased one nothing is counted
    return row


def stats_of(
    store: Store, views: Views, row: ConversationRow, on_events: Callable[[int], object], *, alone: bool
) -> Stats:
    stats = Stats(conversations=1)
    sizes = _Sizes(store, views, row.id, row.version, wanted=alone)
    stats.spending.take(_counted(stats, sound(store, row.id, 0, row.version, stats.findings), sizes, on_events))
    sizes.add_to(stats)
    return stats


class _Sizes:
    """The sizes of the Views of one conversation, which are folded while its events are counted: if ``wanted``, or if
    it has condensations.
    """

    def __init__(self, store: Store, views: Views, conversation: str, version: int, *, wanted: bool) -> None:
        self._conversation, self._version, self._wanted = conversation, version, wanted
        self._made: list[CondensationAction] = []
        self._fold: LifetimesFold | None = None
        self._problem: str | None = None
        try:
            if wanted or store.query(conversation, lambda log: any(map(_is_made, log.structural_events(0, version)))):
                self._fold = views.lifetimes_fold(conversation, version, event_tokens)
        except EventStoreError as error:
            self._problem = str(error)

    def take(self, events: Sequence[Event]) -> None:
        """Fold the next events, among which one may be missing that cannot be read."""
        self._made += filter(_is_made, events)
        fold = self._fold
        try:
            if fold is not None and fold.version == events[-1].id + 1 - len(events):
                fold.take(events)
        except EventStoreError as error:
            self._fold, self._problem = None, str(error)

    def add_to(self, stats: Stats) -> None:
        """Add the sizes, and what the condensations saved; or a finding."""
        if self._fold is not None and self._fold.version < self._version:
            self._problem = f"not every event from {self._fold.version} on can be read"
        if self._problem is not None:
            stats.findings.append(
                f"conversation {self._conversation!r}: the sizes of its View are not counted: {self._problem}"
            )
        elif self._fold is not None:
            sizes = self._fold.result().sizes
            for condensation in self._made:
                figures = stats.condensations[strategy := _strategy(condensation)]
                saved = (figures.tokens_saved or 0) + (saving_of(condensation, sizes).tokens or 0)
                stats.condensations[strategy] = replace(figures, tokens_saved=saved)
            stats.view_tokens = sizes if self._wanted else ()


def _is_made(event: Event) -> TypeGuard[CondensationAction]:
    return isinstance(event, CondensationAction) and not is_declined(event)


def _counted(
    stats: Stats, logged: Iterator[Logged], sizes: _Sizes, on_events: Callable[[int], object]
) -> Iterator[Logged]:
    """Count events, and yield them, some at a time."""
    while some := list(islice(logged, _TELL_EVERY)):
        for recorded_at, event in some:
            _count(stats, recorded_at, event)
        sizes.take([event for _, event in some])
        on_events(len(some))
        yield from some


def _count(stats: Stats, recorded_at: datetime, event: Event) -> None:
    stats.events[label(event)] += 1
    at = happened_at(event, recorded_at)
    stats.days[NO_DAY if at is None else at.date().isoformat()] += 1
    if at is not None and not is_about_it(event):
        stats.first_at = at if stats.first_at is None else min(stats.first_at, at)
        stats.last_at = at if stats.last_at is None else max(stats.last_at, at)
    match event:
        case Action(tool=tool):
            sum_up(stats.tools, {tool or NO_NAME: ToolDocument(calls=1)})
        case Observation(tool=tool, is_error=True):
            sum_up(stats.tools, {tool or NO_NAME: ToolDocument(errors=1)})
        case CondensationAction():
            _count_condensation(stats, event)


def _count_condensation(stats: Stats, event: CondensationAction) -> None:
    intervals, summaries = event.forgotten
    cost = recorded_cost(event)
    counted = {
        "made": 1,
        "events_forgotten": sum(last - first + 1 for first, last in intervals),
        "summaries_forgotten": len(summaries),
    }
    one = CondensationsDocument(
        cost=cost, costs_recorded=int(cost is not None), **({"declined": 1} if is_declined(event) else counted)
    )
    sum_up(stats.condensations, {_strategy(event): one})


def _strategy(event: CondensationAction) -> str:
    """Return the strategy that a condensation names, or the format that it was imported from."""
    named = event.metadata.get("condenser")
    if isinstance(named, str) and named:
        return named
    return NO_NAME if event.origin is None else f"{event.origin.format} ({NO_NAME[1:-1]})"
