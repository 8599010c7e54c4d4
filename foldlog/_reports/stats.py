"""Figures of conversations: events by kind and tool, errors, tokens and cost by model and day, condensations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TypeGuard

from msgspec import UNSET, UnsetType

from foldlog._documents import CondensationsDocument, ModelDocument, StatsDocument, ToolDocument
from foldlog._kinds import label
from foldlog._reports.savings import is_declined, recorded_cost, saving_of
from foldlog._reports.unreadable import sound
from foldlog._reports.usage import ModelCall, calls_of_event, calls_of_imported
from foldlog._words.times import happened_at
from foldlog.condensers import event_tokens
from foldlog.eventstore import Action, CondensationAction, Event, EventStoreError, Logged, Observation, Store
from foldlog.projections import LifetimesFold, Views

NO_DAY = "(no time)"
NO_NAME = "(not named)"
_TELL_EVERY = 500


@dataclass
class ToolFigures:
    """Calls of one tool, and how many observations of it are errors."""

    calls: int = 0
    errors: int = 0


@dataclass
class ModelFigures:
    """Calls of one model on one day, in UTC. ``cached_tokens`` are part of ``prompt_tokens``. ``cost`` is None if it is
    known for no call; ``costs_recorded`` counts the calls for which it is known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    costs_recorded: int = 0


@dataclass
class CondensationFigures:
    """Condensations by one strategy. Summaries that were forgotten are not counted as events.

    ``tokens_saved``: the tokens of the View before each of them less those after it, estimated event by event; None if
    they are not known of any. ``cost`` is None if no condensation recorded one; ``costs_recorded``: how many did.
    """

    made: int = 0
    declined: int = 0
    events_forgotten: int = 0
    summaries_forgotten: int = 0
    tokens_saved: int | None = None
    cost: float | None = None
    costs_recorded: int = 0


@dataclass
class Stats:
    """Figures of some conversations.

    ``events`` are counted by label, ``days`` by the day that they happened on, ``models`` by day and model.
    ``view_tokens`` are the tokens that the View of each version sends to a model, an estimate that errs high; of one
    conversation, and empty for several.
    ``findings`` name events that could not be read: they are not counted.
    """

    conversations: int = 0
    events: Counter[str] = field(default_factory=Counter)
    tools: dict[str, ToolFigures] = field(default_factory=dict)
    models: dict[tuple[str, str], ModelFigures] = field(default_factory=dict)
    condensations: dict[str, CondensationFigures] = field(default_factory=dict)
    days: Counter[str] = field(default_factory=Counter)
    first_at: datetime | None = None
    last_at: datetime | None = None
    view_tokens: tuple[int, ...] = ()
    findings: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Observations that are errors."""
        return self.events["error"]

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures for programs; ``conversation`` is the only one, if there is only one."""
        return StatsDocument.of(
            self,
            conversation=conversation,
            events={"total": self.events.total(), **self.events},
            first_at=None if self.first_at is None else self.first_at.isoformat(),
            last_at=None if self.last_at is None else self.last_at.isoformat(),
            tools={tool: ToolDocument.of(figures) for tool, figures in self.tools.items()},
            models=tuple(
                ModelDocument.of(figures, day=day, model=model) for (day, model), figures in sorted(self.models.items())
            ),
            condensations={name: CondensationsDocument.of(figures) for name, figures in self.condensations.items()},
            days=dict(sorted(self.days.items())),
            findings=tuple(self.findings),
        )


def collect_stats(
    store: Store,
    conversations: Sequence[str],
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
) -> Stats:
    """Return the figures of conversations. An event that cannot be read is a finding, and the rest is counted.

    Raises ``ConversationNotFound``, ``ConversationErased``. Cost: every event, once; the structural ones once more.
    """
    stats = Stats()
    for conversation in conversations:
        stats.conversations += 1
        end = store.conversation(conversation).version
        store.version(conversation)  # of an erased one nothing is counted
        sizes = _Sizes(store, views, conversation, end, wanted=len(conversations) == 1)
        events = _counted(stats, sound(store, conversation, 0, end, stats.findings), sizes, on_events)
        _count_imported_calls(stats, events)
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
                figures = stats.condensations[_strategy(condensation)]
                figures.tokens_saved = (figures.tokens_saved or 0) + (saving_of(condensation, sizes).tokens or 0)
            stats.view_tokens = sizes if self._wanted else ()


def _is_made(event: Event) -> TypeGuard[CondensationAction]:
    return isinstance(event, CondensationAction) and not is_declined(event)


def _counted(
    stats: Stats, logged: Iterator[Logged], sizes: _Sizes, on_events: Callable[[int], object]
) -> Iterator[Event]:
    """Count events, and yield them, some at a time."""
    while some := list(islice(logged, _TELL_EVERY)):
        for recorded_at, event in some:
            _count(stats, recorded_at, event)
        events = [event for _, event in some]
        sizes.take(events)
        on_events(len(some))
        yield from events


def _count(stats: Stats, recorded_at: datetime, event: Event) -> None:
    stats.events[label(event)] += 1
    at = happened_at(event, recorded_at)
    stats.days[NO_DAY if at is None else at.date().isoformat()] += 1
    if at is not None:
        stats.first_at = at if stats.first_at is None else min(stats.first_at, at)
        stats.last_at = at if stats.last_at is None else max(stats.last_at, at)
    match event:
        case Action(tool=tool):
            _tool(stats, tool).calls += 1
        case Observation(tool=tool, is_error=True):
            _tool(stats, tool).errors += 1
        case CondensationAction():
            _count_condensation(stats, event)
    if event.origin is None:
        for call in calls_of_event(recorded_at, event):
            _add_call(stats, call)


def _tool(stats: Stats, tool: str) -> ToolFigures:
    return stats.tools.setdefault(tool or NO_NAME, ToolFigures())


def _count_condensation(stats: Stats, event: CondensationAction) -> None:
    figures = stats.condensations.setdefault(_strategy(event), CondensationFigures())
    if (cost := recorded_cost(event)) is not None:
        figures.cost = (figures.cost or 0.0) + cost
        figures.costs_recorded += 1
    if is_declined(event):
        figures.declined += 1
        return
    intervals, summaries = event.forgotten
    figures.made += 1
    figures.events_forgotten += sum(last - first + 1 for first, last in intervals)
    figures.summaries_forgotten += len(summaries)


def _strategy(event: CondensationAction) -> str:
    """Return the strategy that a condensation names, or the format that it was imported from."""
    named = event.metadata.get("condenser")
    if isinstance(named, str) and named:
        return named
    return NO_NAME if event.origin is None else f"{event.origin.format} ({NO_NAME[1:-1]})"


def _add_call(stats: Stats, call: ModelCall) -> None:
    day = NO_DAY if call.at is None else call.at.astimezone(UTC).date().isoformat()
    figures = stats.models.setdefault((day, call.model), ModelFigures())
    figures.calls += call.calls
    figures.prompt_tokens += call.prompt_tokens
    figures.cached_tokens += call.cached_tokens
    figures.completion_tokens += call.completion_tokens
    if call.cost is not None:
        figures.cost = (figures.cost or 0.0) + call.cost
        figures.costs_recorded += call.calls


def _count_imported_calls(stats: Stats, events: Iterator[Event]) -> None:
    """Read all events, and count the calls that imported ones record."""
    for event in events:
        if event.origin is not None:
            for call in calls_of_imported(chain((event,), events), event.origin.format):
                _add_call(stats, call)
