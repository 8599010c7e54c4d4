"""Figures of conversations: events by kind and tool, errors, tokens and cost by model and day, condensations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, TypeGuard, TypeVar

from msgspec import UNSET, UnsetType, convert, to_builtins
from msgspec.structs import asdict, replace

from foldlog._documents import CondensationsDocument, Document, ModelDocument, StatsDocument, ToolDocument
from foldlog._kinds import label
from foldlog._reports.kept import KeptBeside
from foldlog._reports.savings import is_declined, recorded_cost, saving_of
from foldlog._reports.unreadable import sound
from foldlog._reports.usage import ModelCall, calls_of_event, calls_of_imported
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

STATS = "stats", 1
"""Where figures are kept, and the version of what is counted and of how tokens are estimated: see ``KeptBeside``."""

_PAGE = 1_000
NO_DAY = "(no time)"
NO_NAME = "(not named)"
_TELL_EVERY = 500


@dataclass
class Stats:
    """Figures of some conversations.

    ``events`` are counted by label, ``days`` by the day that they happened on, ``models`` by day and model.
    ``view_tokens`` are the tokens that the View of each version sends to a model, an estimate that errs high; of one
    conversation, and empty for several.
    ``replies`` are calls that are not among the ``models`` yet, by the ids of the replies: other histories may repeat
    them. ``findings`` name events that could not be read: they are not counted.
    """

    conversations: int = 0
    events: Counter[str] = field(default_factory=Counter)
    tools: dict[str, ToolDocument] = field(default_factory=dict)
    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    condensations: dict[str, CondensationsDocument] = field(default_factory=dict)
    replies: dict[str, tuple[Any, ...]] = field(default_factory=dict)
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
        for reply, call in other.replies.items():
            self.replies.setdefault(reply, call)
        for figures, more in ((self.tools, other.tools), (self.models, other.models)):
            _sum_up(figures, more)
        _sum_up(self.condensations, other.condensations)
        self.first_at = min((at for at in (self.first_at, other.first_at) if at is not None), default=None)
        self.last_at = max((at for at in (self.last_at, other.last_at) if at is not None), default=None)

    def kept(self) -> dict[str, Any]:
        """Return the figures of one conversation as JSON values."""
        models = [[*key, to_builtins(figures)] for key, figures in self.models.items()]
        moments = [None if at is None else at.isoformat() for at in (self.first_at, self.last_at)]
        return {
            "events": self.events,
            "tools": to_builtins(self.tools),
            "models": models,
            "replies": self.replies,
            "condensations": to_builtins(self.condensations),
            "days": self.days,
            "moments": moments,
        }

    @staticmethod
    def of_kept(kept: dict[str, Any]) -> Stats:
        """Return the figures that ``kept`` returned."""
        first_at, last_at = (None if at is None else datetime.fromisoformat(at) for at in kept["moments"])
        return Stats(
            conversations=1,
            events=Counter(kept["events"]),
            tools=convert(kept["tools"], dict[str, ToolDocument]),
            models={(day, model): convert(figures, ModelDocument) for day, model, figures in kept["models"]},
            replies=kept["replies"],
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

    Those of several conversations are kept beside them. Raises ``ConversationNotFound``, ``ConversationErased``. Cost:
    a record of each conversation; of one alone, and of those that have changed since they were counted, every event
    once, and the structural ones once more.
    """
    stats = Stats()
    if len(conversations) == 1:
        stats = stats_of(store, views, _row(store, conversations[0]), on_events, alone=True)
        _count_replies(stats)
        return stats
    with KeptBeside(store, *STATS) as kept:
        for start in range(0, len(conversations), _PAGE):
            rows = [_row(store, conversation) for conversation in conversations[start : start + _PAGE]]
            there = kept.load(rows)
            for row in rows:
                if row.id in there:
                    one = Stats.of_kept(there[row.id])
                    on_events(row.version)
                else:
                    one = stats_of(store, views, row, on_events, alone=False)
                    if not one.findings:
                        kept.keep(row, one.kept())
                stats.add(one)
    _count_replies(stats)
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
    events = _counted(stats, sound(store, row.id, 0, row.version, stats.findings), sizes, on_events)
    _count_imported_calls(stats, events)
    sizes.add_to(stats)
    return stats


def _sum_up(figures: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add figures to those of the same key, number by number; one that is not known adds nothing."""
    for key, other in more.items():
        one = figures.get(key)
        if one is None:
            figures[key] = other
            continue
        numbers = {name: value for name, value in asdict(other).items() if isinstance(value, int | float)}
        figures[key] = replace(one, **{name: (getattr(one, name) or 0) + value for name, value in numbers.items()})


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
) -> Iterator[Event]:
    """Count events, and yield them, some at a time."""
    while some := list(islice(logged, _TELL_EVERY)):
        for recorded_at, event in some:
            _count(stats, recorded_at, event)
        events = [_at_its_time(recorded_at, event) for recorded_at, event in some]
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
            _add(stats.tools, tool or NO_NAME, ToolDocument(), calls=1)
        case Observation(tool=tool, is_error=True):
            _add(stats.tools, tool or NO_NAME, ToolDocument(), errors=1)
        case CondensationAction():
            _count_condensation(stats, event)
    if event.origin is None:
        for call in calls_of_event(recorded_at, event):
            _add_call(stats, call)


def _at_its_time(recorded_at: datetime, event: Event) -> Event:
    """Return a live event with usage at the time of its recording, if its format has no times."""
    if not event.meta or event.timestamp is not None or event.origin is None:
        return event
    return replace(event, timestamp=happened_at(event, recorded_at))


def _add(
    figures: dict[K, D], key: K, none: D, cost: float | None = None, costs_recorded: int = 1, **counted: int
) -> None:
    """Add to the figures of a key, which begin with ``none``."""
    so_far: Any = figures.get(key, none)
    added: dict[str, Any] = {name: getattr(so_far, name) + count for name, count in counted.items()}
    if cost is not None:
        added |= {"cost": (so_far.cost or 0.0) + cost, "costs_recorded": so_far.costs_recorded + costs_recorded}
    figures[key] = replace(so_far, **added)


def _count_condensation(stats: Stats, event: CondensationAction) -> None:
    intervals, summaries = event.forgotten
    counted = {
        "made": 1,
        "events_forgotten": sum(last - first + 1 for first, last in intervals),
        "summaries_forgotten": len(summaries),
    }
    _add(
        stats.condensations,
        _strategy(event),
        CondensationsDocument(),
        recorded_cost(event),
        **({"declined": 1} if is_declined(event) else counted),
    )


def _strategy(event: CondensationAction) -> str:
    """Return the strategy that a condensation names, or the format that it was imported from."""
    named = event.metadata.get("condenser")
    if isinstance(named, str) and named:
        return named
    return NO_NAME if event.origin is None else f"{event.origin.format} ({NO_NAME[1:-1]})"


def _day_of(call: ModelCall) -> str:
    return NO_DAY if call.at is None else call.at.astimezone(UTC).date().isoformat()


def _add_call(stats: Stats, call: ModelCall) -> None:
    day = _day_of(call)
    _add(
        stats.models,
        (day, call.model),
        ModelDocument(day=day, model=call.model),
        call.cost,
        call.calls,
        calls=call.calls,
        prompt_tokens=call.prompt_tokens,
        cached_tokens=call.cached_tokens,
        completion_tokens=call.completion_tokens,
    )


def _count_imported_calls(stats: Stats, events: Iterator[Event]) -> None:
    """Read all events, and count the calls that imported ones record."""
    for event in events:
        if event.origin is not None:
            for call in calls_of_imported(chain((event,), events), event.origin.format):
                if call.reply is None:
                    _add_call(stats, call)
                else:
                    tokens = call.prompt_tokens, call.cached_tokens, call.completion_tokens
                    stats.replies[call.reply] = _day_of(call), call.model, call.calls, *tokens, call.cost


def _count_replies(stats: Stats) -> None:
    """Count the calls of replies, each once."""
    numbers: dict[tuple[str, str], list[Any]] = {}
    for day, model, *counted, cost in stats.replies.values():
        so_far = numbers.setdefault((day, model), [0, 0, 0, 0, None, 0])
        for place, number in enumerate(counted):
            so_far[place] += number
        if cost is not None:
            so_far[4:] = (so_far[4] or 0.0) + cost, so_far[5] + counted[0]
    stats.replies = {}
    for (day, model), (calls, prompt, cached, completion, cost, costs_recorded) in numbers.items():
        _add(
            stats.models,
            (day, model),
            ModelDocument(day=day, model=model),
            cost,
            costs_recorded,
            calls=calls,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
        )
