"""What is counted of one conversation: all of it, or of a fork only what it does not share."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from foldlog._documents import CondensationsDocument, SavingsDocument
from foldlog._formats.replacing import is_replacing
from foldlog._reports.counts import Counts, strategy_of
from foldlog._reports.overview import Overview, counted_in, overview_of
from foldlog._reports.savings import forgotten_by, is_made, saving_of
from foldlog._reports.sizes import event_tokens
from foldlog._reports.spending import Calls, Spending, sum_up, told_beside, total_of
from foldlog._reports.unreadable import sound
from foldlog._words.reasons import because
from foldlog.eventstore import (
    CondensationAction,
    CondensationRequest,
    ConversationRow,
    Event,
    EventStoreError,
    Logged,
    Store,
)
from foldlog.projections import Lifetimes, LifetimesFold, Views

_TELL_EVERY = 500


class Sums(Struct):
    """The sums of one conversation, or of several.

    ``version``   of one conversation: the version of its ``overview``
    ``counted``   how many of its events the others count
    ``open_ms``   how long its View took to open
    ``reasons``   what condensations saved and cost, by their reasons
    ``sizes``     the tokens of the Views before and after each condensation that was made, by their versions
    ``removed``   how many events and how many summaries each of these removed from the View
    ``calls``     all calls of models, and ``replies`` a hash of each reply that other histories may repeat
    """

    version: int = -1
    counted: int = 0
    overview: Overview = Overview()
    open_ms: float | UnsetType = UNSET
    reasons: dict[str, SavingsDocument] = {}
    sizes: dict[int, int] = {}
    removed: dict[int, tuple[int, int]] = {}
    counts: Counts = field(default_factory=Counts)
    calls: list[Calls] = []
    replies: list[int] = []

    @property
    def is_sound(self) -> bool:
        """Whether every event could be read."""
        return self.overview.problem is None and not self.counts.findings

    @property
    def errors(self) -> int | None:
        """Observations that are errors; None if not every event could be read."""
        return self.counts.errors if self.is_sound else None

    def is_at(self, version: int) -> bool:
        """Return whether they are those of this version, as far as it can be read."""
        return self.version == version and (self.counted == version or self.overview.needs_key)

    def add(self, other: Sums) -> None:
        """Add those of other conversations, without their calls, some of which may be the same."""
        sum_up(self.reasons, other.reasons)
        self.counts.add(other.counts)

    def saved(self) -> SavingsDocument:
        """Return what all condensations saved and cost."""
        return total_of(SavingsDocument(), self.reasons.values())


class Counting(Sums):
    """The sums of one conversation, with what only counting on needs: its calls, each reply by itself."""

    spending: Spending = field(default_factory=Spending)


def sums_of(
    store: Store,
    views: Views,
    row: ConversationRow,
    before: Counting | None = None,
    *,
    count: Callable[[Event], int] = event_tokens,
    whole: bool = True,
    on_events: Callable[[int], object] = lambda count: None,
) -> Counting:
    """Return the sums of a conversation. ``before`` are those of an earlier version, which become the new ones. Unless
    ``whole``, only the overview is new, without the figures of the View.

    Cost: some events at its ends; if ``whole``, its View, its structural events, and the events since ``before``: all
    of them for formats in which usage adds up over events, after a condensation, and where an import took some back.
    """
    found = before or Counting()
    if whole:
        began = time.perf_counter()
        with suppress(EventStoreError):  # the overview names it as the problem
            views.current(row.id)
        found.open_ms = round(1_000 * (time.perf_counter() - began), 2)
    found.version, found.overview = row.version, overview_of(store, views, row, count, sizes=whole)
    if not whole or found.overview.needs_key:
        return found
    found, _ = counted_on(store, views, row, found, count=count, on_events=on_events)
    if found.counts.findings:
        found.overview = found.overview._replace(problem=found.overview.problem or found.counts.findings[0])
    elif found.is_sound and found.counts.last_at is not None:
        found.overview = found.overview._replace(last_event_at=found.counts.last_at.isoformat())
    return found


def counted_on(
    store: Store,
    views: Views,
    row: ConversationRow,
    found: Counting,
    *,
    alone: bool = False,
    count: Callable[[Event], int] = event_tokens,
    on_events: Callable[[int], object] = lambda count: None,
) -> tuple[Counting, tuple[int, ...]]:
    """Return the sums with the events that they do not count yet. ``alone``: also the sizes of the Views of all
    versions. Raises ``KeyUnavailable``.
    """
    fold = _ViewFold()
    structural: list[Event] = []
    made: list[CondensationAction] = []
    beside: list[Any] = []
    counts_event = counted_in((), row.version)
    try:
        structural = store.query(row.id, lambda reading: list(reading.structural_events(0, row.version)))
        beside = store.query(row.id, lambda reading: told_beside(reading, row.version))
        counts_event = counted_in(structural, row.version)
        is_same = not any(is_replacing(each) and each.id >= found.counted for each in structural)
        structural = [*filter(counts_event, structural)]
        made = [each for each in structural if isinstance(each, CondensationAction) and is_made(each)]
        if not (is_same and found.spending.counts_on and all(each.id + 1 in found.sizes for each in made)):
            found = Counting(found.version, overview=found.overview, open_ms=found.open_ms)
        if alone or (made and not found.counted):
            fold.lifetimes = views.lifetimes_fold(row.id, row.version, count)
    except EventStoreError as error:
        fold.problem = str(error)
    counts = found.counts

    def logged() -> Iterator[Logged]:
        """Count events, some at a time, and yield them."""
        log = sound(store, row.id, found.counted, row.version, counts.findings)
        while some := list(islice(log, _TELL_EVERY)):
            counted = [each for each in some if counts_event(each[1])]
            for recorded_at, event in counted:
                counts.count(recorded_at, event)
            fold.take([event for _, event in some])
            on_events(len(some))
            yield from counted

    found.spending.take(logged(), beside)
    sizes: tuple[int, ...] = ()
    lives = fold.result(row.version)
    if fold.problem is not None:
        counts.findings.append(f"conversation {row.id!r}: the sizes of its View are not counted: {fold.problem}")
    elif lives is not None:
        sizes, removed = lives.sizes, forgotten_by(lives)
        found.sizes = {version: sizes[version] for each in made for version in (each.id, each.id + 1)}
        found.removed = {each.id: removed.get(each.id, (0, 0)) for each in made}
        _count_removed(found, made)
    found.reasons = _reasons(structural, found.sizes)
    found.calls, found.replies = found.spending.summed(), found.spending.hashes()
    found.counted, counts.conversations = row.version, 1
    return found, sizes if alone else ()


class _ViewFold:
    """The lifetimes of events, if they are asked for, folded while the events are counted, up to a ``problem``."""

    lifetimes: LifetimesFold | None = None
    problem: str | None = None

    def take(self, events: Sequence[Event]) -> None:
        """Take the next events, unless one before them could not be read."""
        try:
            if self.lifetimes is not None and self.lifetimes.version == events[-1].id + 1 - len(events):
                self.lifetimes.take(events)
        except EventStoreError as error:
            self.lifetimes, self.problem = None, str(error)

    def result(self, version: int) -> Lifetimes | None:
        if self.lifetimes is not None and self.lifetimes.version < version:
            self.problem = f"not every event from {self.lifetimes.version} on can be read"
        return None if self.lifetimes is None or self.problem is not None else self.lifetimes.result()


def own_sums(store: Store, row: ConversationRow, one: Sums, beside: Container[str] | None) -> Counting | None:
    """Return the sums of a fork since it left the last of those ``beside`` it, None for all, whose past it shares, so
    that a sum over all of them counts each event and call once. None where there is no such past. ``one`` are all of
    its sums. Of a run whose source tells only the usage of all its calls, they have what the parent's does not tell.
    Cost: the events since, and the structural ones; for formats whose usage adds up over events, all events.
    """
    borders = () if row.parent is None else store.query(row.id, lambda read: read.lineage)
    shared = [border for border in borders if beside is None or border.parent in beside]
    start = max((border.version for border in shared), default=0)
    if not start:
        return None
    own = Counting(sizes=one.sizes, removed=one.removed)
    told, past = list[Any](), list[Any]()
    structural: list[Event] = []
    with suppress(EventStoreError):  # the sums of the conversation name the problem
        structural = store.query(row.id, lambda read: list(read.structural_events(0, one.counted)))
        told = store.query(row.id, lambda read: told_beside(read, one.counted))
        for border in shared:
            past += store.query(border.parent, lambda read: told_beside(read, read.version))
    counts_event = counted_in(structural, one.counted)
    structural = [*filter(counts_event, structural)]
    own.reasons = _reasons(structural, one.sizes, start)
    _count_removed(own, (each for each in structural if isinstance(each, CondensationAction) and each.id >= start))

    def logged(first: int) -> Iterator[Logged]:
        return (each for each in sound(store, row.id, first, one.counted, []) if counts_event(each.event))

    def counted() -> Iterator[Logged]:
        for each in logged(start):
            own.counts.count(*each)
            yield each

    told = [each for each in told if each not in past]
    own.spending.take(counted(), told, start, past)
    if told or not own.spending.counts_on:
        own.spending = Spending()
        own.spending.take(logged(0), told, start, past)
    own.counts.conversations, own.counts.findings = 1, one.counts.findings
    return own


def _count_removed(found: Sums, made: Iterable[CondensationAction]) -> None:
    """Count what these condensations removed from the View, as far as that is known."""
    for each in made:
        if each.id in found.removed:
            (events, summaries), saved = found.removed[each.id], saving_of(each, found.sizes).tokens_saved
            what = CondensationsDocument(events_forgotten=events, summaries_forgotten=summaries, tokens_saved=saved)
            sum_up(found.counts.condensations, {strategy_of(each): what})


def _reasons(structural: Iterable[Event], sizes: Mapping[int, int], start: int = 0) -> dict[str, SavingsDocument]:
    """Return what condensations from the version ``start`` on saved and cost, by their reasons."""
    reasons: dict[str, SavingsDocument] = {}
    requests: list[CondensationRequest] = []
    for event in structural:
        if isinstance(event, CondensationRequest):
            requests.append(event)
        elif isinstance(event, CondensationAction):
            because_of = because(event, requests, brief=True) or "no reason given"
            if event.id >= start:
                sum_up(reasons, {because_of: saving_of(event, sizes)})
            requests = []
    return reasons
