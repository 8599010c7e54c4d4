"""This module computes the figures of a conversation. The module adds the new events of the
conversation to earlier figures. In a fork, only the fork's own events are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from foldlog._reports.answers.figures import CondensationsDocument, SavingsDocument
from foldlog._reports.figures.counts import Counts, strategy_of
from foldlog._reports.figures.overview import (
    Overview,
    in_force_in,
    is_placed,
    overview_of,
    read_in_steps,
)
from foldlog._reports.figures.savings import is_made, saving_of
from foldlog._reports.figures.settled_replies import Block, read_blocks
from foldlog._reports.figures.spending import Spending, imported_calls, sum_up, total_of
from foldlog._reports.figures.tokens import view_tokens
from foldlog._reports.figures.tools_of_replies import CountedReply
from foldlog._reports.figures.view_tokens import counted_tokens
from foldlog._reports.words.reasons import because
from foldlog.eventstore import (
    Border,
    CondensationAction,
    CondensationRequest,
    ConversationErased,
    ConversationRow,
    CorruptEvent,
    Event,
    EventStoreError,
    Logged,
    Store,
)
from foldlog.eventstore.log.reading import views_up_to
from foldlog.formats.model_calls import is_call
from foldlog.formats.repeated_events import is_replacing
from foldlog.formats.summed_calls import HASH_BYTES, Calls
from foldlog.projections import Views
from foldlog.projections.conversations.unreadable import sound, sound_view
from foldlog.projections.units import awaited_positions

_REPORT_EVERY = 500
"""A caller is told its progress after this number of events."""


class Figures(Struct):
    """The figures of a conversation, with the state that is needed to count later events.

    ``version``   the version of the conversation that ``overview`` describes
    ``counted``   the number of its events or records that the other fields count
    ``start``     the id of the first counted event; in a fork, the id of its first own event
    ``placed``    the number of placed results, which no figure counts: see ``PLACED_FROM``
    ``reasons``   savings and cost of condensations, by reason
    ``spending``  the calls of models, reply by reply; empty if the calls are counted from records
    ``calls``     the calls of models, added up
    ``context``   the tokens of prompts
    ``replies``   maps the hash of a reply that other conversations may repeat to the usage and the
                  tools of the reply; empty if only sums are known, and without settled replies
    ``hashes``    the hashes of the replies that other conversations may repeat, in one byte string
    """

    version: int = -1
    counted: int = 0
    start: int = 0
    placed: int = 0
    overview: Overview = Overview()
    reasons: dict[str, SavingsDocument] = {}
    counts: Counts = field(default_factory=Counts)
    spending: Spending = field(default_factory=Spending)
    calls: list[Calls] = []
    replies: dict[int, CountedReply] = {}
    hashes: bytes = b""
    context: list[int] = []
    last_prompt_tokens: int | None = None

    @property
    def is_sound(self) -> bool:
        return self.overview.problem is None and not self.counts.findings

    @property
    def errors(self) -> int | None:
        """The number of errors, or None if an event could not be read."""
        return self.counts.errors if self.is_sound else None

    def saved(self) -> SavingsDocument:
        """Return the savings of all condensations."""
        return total_of(SavingsDocument(), self.reasons.values())

    def sum_calls(self) -> None:
        """Compute ``calls``, ``replies``, ``hashes``, ``context`` and ``last_prompt_tokens`` from
        ``spending``.
        """
        spending = self.spending
        self.calls = spending.summed()
        self.replies = spending.by_hash()
        own_hashes = b"".join(reply_hash.to_bytes(HASH_BYTES) for reply_hash in self.replies)
        self.hashes = spending.settled.hashes + own_hashes
        self.context = spending.context.points
        self.last_prompt_tokens = spending.last

    def unsettle(self, blocks: Sequence[Block]) -> None:
        """Put the settled replies back, from all their blocks."""
        self.spending.unsettle(blocks)
        self.sum_calls()

    def to_count_on(self) -> tuple[Figures, Sequence[Block]]:
        """Return the figures without the fields that ``sum_calls`` computes, and the blocks of the
        replies that are settled in these figures and not yet in the present ones.
        """
        spending, blocks = self.spending.settle()
        state = replace(self, spending=spending, calls=[], replies={}, hashes=b"", context=[])
        return state, blocks


@views_up_to(None)
def figures_of(
    store: Store,
    views: Views,
    row: ConversationRow,
    earlier: Figures | None = None,
    *,
    on_events: Callable[[int], object] = lambda count: None,
) -> Figures:
    """Add the new events to ``earlier``, which are the figures of an earlier version. Cost: the
    function reads some events at both ends of the conversation, its View, its structural events,
    and the events since ``earlier``. For each new condensation, the function reads two Views. The
    function reads all events again if the source records only sums of usage, or if an import took
    events back. Raises ``StateIncomplete`` if blocks of settled replies are needed and missing.
    The limit of a View's bytes does not hold here: no answer has these Views.
    """
    start = 0 if row.parent is None else row.parent_version or 0
    figures = earlier
    if figures is None or figures.start != start:
        figures = Figures(start=start)
    figures.version = row.version
    # Without earlier figures, count every event, because a check compares the result with them.
    counted = None if earlier is None else counted_tokens(store, row)
    figures.overview = overview_of(store, views, row, counted)
    if figures.overview.needs_key:
        return figures
    figures = _add_later_events(store, views, row, figures, on_events=on_events)
    counts = figures.counts
    counts.is_awaited = _is_awaited(store, views, row, figures)
    overview = figures.overview
    if overview.events is not None:
        overview = overview._replace(events=overview.events - figures.placed)
    if counts.findings:
        overview = overview._replace(problem=overview.problem or counts.findings[0])
    elif overview.problem is None and counts.last_at is not None:
        overview = overview._replace(last_event_at=counts.last_at.isoformat())
    figures.overview = overview
    return figures


class _Beside:
    """What is read of a conversation besides the events that are counted: its structural events,
    the imported calls of models, and where a fork began. If something cannot be read, ``findings``
    says why, and what was to be read later is empty. Raises ``ConversationErased``.
    """

    def __init__(self, store: Store, row: ConversationRow, *, with_parent: bool) -> None:
        """With ``with_parent``, the calls of the parent are read too, because figures of the
        parent count them.
        """
        self.structural = list[Event]()
        self.findings = list[str]()
        self.calls = list[Any]()
        self.calls_of_parent = list[Any]()
        self.origins: tuple[Border, ...] = ()
        try:
            self.origins = store.query(row.id, lambda reading: reading.origins())
            self.structural = store.query(
                row.id, lambda reading: [*reading.structural_events(0, row.version)]
            )
            self.calls = store.query(row.id, lambda reading: imported_calls(reading, row.version))
            if with_parent and row.parent is not None:
                self.calls_of_parent = store.query(
                    row.parent, lambda reading: imported_calls(reading, reading.version)
                )
        except ConversationErased:
            raise
        except EventStoreError as error:
            self.findings.append(str(error))


def _add_later_events(
    store: Store,
    views: Views,
    row: ConversationRow,
    figures: Figures,
    *,
    on_events: Callable[[int], object] = lambda count: None,
) -> Figures:
    """Count the events after those that ``figures`` count. ``on_events`` is told how many events
    are counted. Raises ``KeyUnavailable`` if the conversation's key is missing.
    """
    beside = _Beside(store, row, with_parent=figures.start > 0)
    is_in_force = in_force_in(beside.structural, row.version)
    was_replaced = any(
        is_replacing(event) and event.id >= figures.counted for event in beside.structural
    )
    if was_replaced or not figures.spending.counts_on:
        figures = Figures(figures.version, start=figures.start, overview=figures.overview)
    counts = figures.counts
    start = max(figures.counted, figures.start)
    on_events(start)
    counts.findings += beside.findings

    recorded_in = partial(_find_origin, row.id, beside.origins)

    def read(conversation: str, first: int, stop: int | None) -> Iterator[Logged]:
        return read_in_steps(partial(store.log, conversation), first, stop or row.version)

    def read_log(first: int) -> Iterator[Logged]:
        log = sound(store, row.id, first, row.version, counts.findings, read)
        return (entry for entry in _report_progress(log, on_events) if is_in_force(entry.event))

    def count_log() -> Iterator[Logged]:
        for recorded_at, event in read_log(start):
            counts.count(recorded_at, event)
            figures.placed += is_placed(event)
            yield Logged(recorded_at, event)

    new_calls = [logged for logged in beside.calls if logged not in beside.calls_of_parent]
    lacks_earlier = figures.spending.take(
        count_log(),
        new_calls,
        start,
        beside.calls_of_parent,
        recorded_in=recorded_in,
        read_settled=partial(read_blocks, store, row.id),
    )
    if figures.start and lacks_earlier:
        figures.spending = Spending()
        figures.spending.take(
            read_log(0), new_calls, figures.start, beside.calls_of_parent, recorded_in=recorded_in
        )
    _count_condensations(views, row.id, figures, filter(is_in_force, beside.structural), start)
    figures.sum_calls()
    figures.counted = row.version
    counts.conversations = 1
    return figures


def _is_awaited(store: Store, views: Views, row: ConversationRow, figures: Figures) -> bool:
    """Return whether a call waits for its result, among the own calls of a conversation. Only the
    View knows which calls and results a retraction took back or brought back. An event that cannot
    be read hides no open call. Cost: one pass over the View if a call of it has no result. If an
    event is damaged, all events are read.
    """
    try:
        try:
            view = views.current(row.id)
        except CorruptEvent:
            view = sound_view(store, row.id, row.version, {})
    except ConversationErased:
        raise
    except EventStoreError:  # the overview has the problem
        return bool(figures.counts.waiting)
    calls = (view.events[position] for position in awaited_positions(view.events, view.units))
    return any(is_call(call) and call.id >= figures.start for call in calls)


def _report_progress(log: Iterable[Logged], on_events: Callable[[int], object]) -> Iterator[Logged]:
    """Yield the events of a log, and call ``on_events`` with the number of events since its last
    call from time to time, and at the end.
    """
    unreported = 0
    for entry in log:
        unreported += 1
        if unreported == _REPORT_EVERY:
            on_events(unreported)
            unreported = 0
        yield entry
    on_events(unreported)


def _find_origin(conversation: str, origins: Sequence[Border], event_id: int) -> str:
    """Return the id of the conversation in which an event of ``conversation`` was recorded."""
    copied_from = (origin.parent for origin in origins if event_id < origin.version)
    return next(copied_from, conversation)


def _count_condensations(
    views: Views,
    conversation: str,
    figures: Figures,
    structural: Iterator[Event],
    start: int,
) -> None:
    """Count the condensations from the event ``start`` on, by strategy and by reason. The reason of
    a condensation may be in the requests before it.
    """
    requests: list[CondensationRequest] = []
    for event in structural:
        if isinstance(event, CondensationRequest):
            requests.append(event)
        if not isinstance(event, CondensationAction):
            continue
        if event.id >= start:
            sizes = dict[int, int]()
            removed = CondensationsDocument()
            if is_made(event):
                try:
                    sizes, removed = _view_change(views, conversation, event.id)
                except EventStoreError as error:
                    problem = (
                        f"conversation {conversation!r}: the sizes of its View are not counted:"
                        f" {error}"
                    )
                    figures.counts.findings.append(problem)
                sum_up(figures.counts.condensations, {strategy_of(event): removed})
            reason = because(event, requests, brief=True) or "no reason given"
            sum_up(figures.reasons, {reason: saving_of(event, sizes)})
        requests = []


def _view_change(
    views: Views, conversation: str, condensation: int
) -> tuple[dict[int, int], CondensationsDocument]:
    """Return the tokens of the Views before and after a condensation, by their versions, and what
    the condensation removed.
    """
    view_before = views.at(conversation, condensation)
    view_after = views.at(conversation, condensation + 1)
    # Both Views show mostly the same events.
    counted = dict[int, int]()
    sizes = {
        condensation: view_tokens(view_before, counted),
        condensation + 1: view_tokens(view_after, counted),
    }
    still_shown = {event.id for event in view_after}
    removed_ids: Sequence[int] = [event.id for event in view_before if event.id not in still_shown]
    return sizes, CondensationsDocument(
        events_forgotten=sum(event_id >= 0 for event_id in removed_ids),
        summaries_forgotten=sum(event_id < 0 for event_id in removed_ids),
        tokens_saved=sizes[condensation] - sizes[condensation + 1],
    )
