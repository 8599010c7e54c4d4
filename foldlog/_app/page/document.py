"""Make the document that the page of a history shows.

The server sends the document, a ``HistoryDocument``, at ``/api/history``. One pass over the log
makes the document. Later events can be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict, replace

from foldlog._reports.answers.events import BorderDocument
from foldlog._reports.answers.figures import SavingsDocument
from foldlog._reports.answers.page import (
    ChangeDocument,
    ColumnsDocument,
    HistoryDocument,
    LivedDocument,
    MaskDocument,
    ToldDocument,
)
from foldlog._reports.figures.context_limit import ContextUse
from foldlog._reports.figures.overview import Overview, counted_in, is_about_it, is_placed
from foldlog._reports.figures.savings import saving_of
from foldlog._reports.figures.spending import total_of
from foldlog._reports.figures.tokens import CountedTokens, CountsTokens, event_tokens
from foldlog._reports.words.reasons import because
from foldlog._reports.words.times import time_of_event
from foldlog.condensers import reports_of
from foldlog.eventstore import (
    Action,
    Border,
    CondensationAction,
    CondensationRequest,
    CorruptEvent,
    Event,
    Logged,
    Observation,
    ReadTransaction,
    Retraction,
    Store,
    summary_id,
)
from foldlog.eventstore.times import event_microseconds
from foldlog.formats.repeated_events import is_replacing
from foldlog.projections import Lifetime, LifetimesFold, Span
from foldlog.projections.call_states import is_approval
from foldlog.projections.conversations.labels import KINDS, label
from foldlog.projections.conversations.unreadable import DAMAGED, iter_log, placeholder, problems_of
from foldlog.projections.retractions import target
from foldlog.projections.units import WaitingCalls


class PageFold:
    """The columns of a conversation. Pass the events to ``take`` in order, in one or several calls.

    The page draws a line at ``limit`` tokens. ``model`` counts tokens. Without a model, tokens are
    estimated. If the ``redactions``, ``borders`` or ``key`` of the conversation change, make a new
    ``PageFold``, because this one is out of date.
    """

    def __init__(
        self,
        store: Store,
        conversation: str,
        limit: int | None = None,
        model: CountsTokens | None = None,
    ) -> None:
        def known(read: ReadTransaction) -> tuple[tuple[Border, ...], int, int]:
            return read.lineage, read.redactions, read.key

        targets = _versions_returned_to(store, conversation)
        self.borders, self.redactions, self.key = store.query(conversation, known)
        self.conversation = conversation
        self.problems: dict[int, str] = {}
        """Maps the id of an unreadable event to the reason why it cannot be read."""
        self._limit = limit
        self._counted = None if model is None else CountedTokens(model)
        self._placed = 0
        """The number of results that an import supplied or moved, which no figure counts."""
        self._fold = LifetimesFold(conversation, self._counted or event_tokens, targets)
        self._kinds: list[int] = []
        self._times: list[int | None] = []
        self._without_zone = False
        self._changes: list[ChangeDocument] = []
        self._replacing: list[Retraction] = []
        self._requests: list[CondensationRequest] = []
        self._condensations: dict[int, CondensationAction] = {}
        self._masks: list[MaskDocument] = []
        self._context = ContextUse()
        self._calls = WaitingCalls()
        self._answers: list[int] = []

    @property
    def version(self) -> int:
        """Return the number of events that were taken."""
        return self._fold.version

    def take(self, entries: Iterable[Logged | CorruptEvent]) -> None:
        """Add the next events. If an event cannot be read, pass its error instead. Raises the
        errors of ``LifetimesFold.take``.
        """
        self._fold.take(self._noted(entries))

    def _noted(self, entries: Iterable[Logged | CorruptEvent]) -> Iterator[Event]:
        """Yield the events, and note what the page shows of each."""
        for entry in entries:
            if isinstance(entry, CorruptEvent):
                if entry.event_id != len(self._kinds):  # the conversation itself cannot be read
                    raise entry
                yield self._note_damage(entry)
                continue
            recorded_at, event = entry
            kind = label(event)
            self._kinds.append(_KINDS.index(_APPROVAL if is_approval(event) else kind))
            at = None if is_about_it(event) else time_of_event(event, recorded_at)
            self._times.append(None if at is None else event_microseconds(at) // 1_000)
            self._without_zone |= at is not None and at.tzinfo is None
            answers = self._calls.take(event) if isinstance(event, Observation) else None
            self._answers.append(_NEVER if answers is None else answers)
            if isinstance(event, Action):
                self._calls.add(event, event.id)
            self._note_change(event, kind)
            self._placed += is_placed(event)
            self._context.note(event)
            yield event

    def _note_damage(self, error: CorruptEvent) -> Event:
        """Note that an event cannot be read, and return what stands for it."""
        self._kinds.append(_KINDS.index(DAMAGED))
        self._times.append(None)
        self._answers.append(_NEVER)
        self.problems[error.event_id] = error.problem
        return placeholder(error)

    def _note_change(self, event: Event, kind: str) -> None:
        """Note what an event changes in the View, and the rules by which a View is masked."""
        for report in reports_of(event):
            if (
                isinstance(report, dict)
                and isinstance(report.get("rule"), dict)
                and not report.get("outcome")
            ):
                self._masks.append(
                    MaskDocument(at=event.id, by=report.get("condenser"), rule=report["rule"])
                )
        if isinstance(event, CondensationRequest):
            self._requests.append(event)
            self._changes.append(ChangeDocument(id=event.id, kind=kind, reason=event.reason))
        elif isinstance(event, Retraction):
            if is_replacing(event):
                self._replacing.append(event)
            self._changes.append(
                ChangeDocument(id=event.id, kind=kind, reason=event.reason, version=event.version)
            )
        elif isinstance(event, CondensationAction):
            self._condensations[event.id] = event
            metadata = event.metadata
            fields = {
                key: metadata[key]
                for key in ToldDocument.__struct_fields__
                if metadata.get(key) is not None
            }
            self._changes.append(
                ChangeDocument(
                    id=event.id,
                    kind=kind,
                    reason=because(event, self._requests),
                    requests=tuple(request.id for request in self._requests),
                    summary=None if event.summary is None else summary_id(event.id),
                    **fields,
                )
            )
            self._requests = []

    def document(self, overview: Overview, since: int = 0) -> HistoryDocument:
        """Return the page's document, with the title, attributes and format from ``overview``.

        With ``since``, the document has only the events from this id on, and the older events that
        have changed. Cost: the method reads the lifetimes of all events.
        """
        lives = self._fold.result()
        left_at, by, sent, spans = _columns(lives.events, since)
        for event_id in self.problems:
            if event_id >= since:
                # The event's row stays, because it is unknown whether a View showed the event.
                left_at[event_id - since] = 0
        window = self._context.window()
        sizes = lives.sizes if self._condensations else ()
        counted = filter(counted_in(self._replacing, self.version), self._condensations.values())
        savings = {event.id: saving_of(event, sizes) for event in counted}
        estimated = () if self._counted is None else self._counted.estimated
        changes = []
        for change in self._changes:
            saving = savings.get(change.id)
            if saving is not None:
                change = replace(change, tokens_saved=saving.tokens_saved, cost=saving.cost)
            changes.append(change)
        return HistoryDocument(
            **asdict(total_of(SavingsDocument(), savings.values())),
            conversation=self.conversation,
            title=overview.title,
            attributes=dict(overview.attributes or {}),
            format=overview.format,
            version=self.version,
            events_counted=None if overview.events is None else overview.events - self._placed,
            since=since,
            borders=tuple(
                BorderDocument(parent=border.parent, parent_version=border.version)
                for border in self.borders
            ),
            redactions=self.redactions,
            tokens_are="estimated" if self._counted is None else "counted",
            counted_as=None if self._counted is None else self._counted.model,
            tokens_estimated=tuple(sorted(estimated)),
            limit=self._limit or self._context.condensed_at,
            window=None if window is None else window.tokens,
            window_of=None if window is None else window.model,
            prompts=[prompt for prompt in self._context.prompts if prompt[0] >= since],
            zone="local" if self._without_zone else "UTC",
            kinds=_KINDS,
            events=ColumnsDocument(
                kind=self._kinds[since:],
                tokens=[life.tokens for life in lives.events[since:]],
                time=_steps(self._times[since:]),
                left=left_at,
                by=by,
                sent=sent,
                answers=self._answers[since:],
            ),
            spans=spans,
            summaries=tuple(
                LivedDocument(
                    id=life.id,
                    tokens=life.tokens,
                    spans=_spans(life),
                )
                for life in lives.summaries.values()
            ),
            order=tuple(lives.order),
            changes=tuple(changes),
            masks=tuple(self._masks),
        )


_NEVER = -1
"""Stands for no version, no change and no event in a column."""
_APPROVAL = "approval"
_KINDS = (*KINDS, DAMAGED, _APPROVAL)
"""The kinds of events. A column has their places in this tuple."""


def _versions_returned_to(store: Store, conversation: str) -> list[int]:
    """Return the versions to which retractions go back. Cost: the structural events are read, or
    all events if a structural event is damaged.
    """
    try:
        events = store.query(conversation, lambda read: list(read.structural_events()))
    except CorruptEvent:
        events = list(problems_of(iter_log(store, conversation), {}))
    return [target(event) for event in events if isinstance(event, Retraction)]


def _columns(
    events: Iterable[Lifetime], since: int
) -> tuple[list[int], list[int], list[int], list[Any]]:
    """Return the columns ``left_at``, ``by`` and ``sent`` from the event ``since`` on, and the
    spans.

    ``left_at`` is the version at which an event left the View. ``left_at`` is 0 for an event that
    is still shown, and -1 for an event that was never shown. ``by`` is the id of the condensation
    or retraction that removed the event, or -1. ``sent`` is the first version at which the event is
    sent to a model. ``sent`` is 0 for an event that is never sent. The spans describe
    events that the columns cannot describe: events that were shown twice, for example, and changed
    events before ``since``.
    """
    left_at = []
    by = []
    sent = []
    others: list[Any] = []
    for lifetime in events:
        span = lifetime.spans[0] if lifetime.spans else None
        is_simple = len(lifetime.spans) <= 1 and (
            span is None or (span.start == lifetime.id + 1 and len(span.sent) <= 1)
        )
        if lifetime.id >= since:
            left_at.append(_NEVER if span is None else span.stop or 0)
            by.append(_NEVER if span is None or span.by is None else span.by)
            sent.append(span.sent[0] if span is not None and span.sent else 0)
        has_changed = lifetime.id < since and any(
            _last_change(span) > since for span in lifetime.spans
        )
        if has_changed or not is_simple:
            others.append([lifetime.id, _spans(lifetime)])
    return left_at, by, sent, others


def _last_change(span: Span) -> int:
    """Return the last version at which a span, or what is sent of it, changed."""
    return max(span.start, span.stop or 0, *span.sent[-1:])


def _spans(lifetime: Lifetime) -> list[Any]:
    """Return spans as lists, which the page reads by their places: see ``asSpan`` in
    ``history.js``.
    """
    return [
        [
            span.start,
            span.stop or 0,
            _NEVER if span.by is None else span.by,
            span.sent,
            span.place,
            span.index,
        ]
        for span in lifetime.spans
    ]


def _steps(times: list[int | None]) -> list[int | None]:
    """Return the first time, and the differences between consecutive times, because differences
    compress better than times.
    """
    steps: list[int | None] = []
    before = 0
    for time in times:
        steps.append(None if time is None else time - before)
        if time is not None:
            before = time
    return steps
