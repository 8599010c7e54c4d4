"""This module counts the figures of a source from its records, before its events are made.

When all events are made, the conversation is counted from its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog._base.usage import IMPORTED
from foldlog._reports.answers.figures import CondensationsDocument, SavingsDocument, ToolDocument
from foldlog._reports.figures.counting import Figures, figures_of
from foldlog._reports.figures.counts import Counts
from foldlog._reports.figures.overview import LINK, PARENT, TITLE_MAX, Overview, parent_in
from foldlog._reports.figures.places import where_written
from foldlog._reports.figures.tools_of_replies import CountedReply
from foldlog.eventstore import DocumentChanges, Event, Store
from foldlog.eventstore.events import MAY_BE_STRUCTURAL, is_structural
from foldlog.eventstore.sources.blocks import Block, each_hash
from foldlog.eventstore.sources.reading import about, blocks_of
from foldlog.eventstore.sources.tables import TITLE, WHERE, Source, Sources
from foldlog.formats.decoded import DecodedRecords, values_of
from foldlog.formats.forking import lacking
from foldlog.formats.format import Format
from foldlog.formats.record import INCOMPLETE, pick, time_in
from foldlog.formats.registry import format_named
from foldlog.formats.skeleton import Skeleton
from foldlog.projections import View


def count_block(counter: Skeleton | DecodedRecords, block: Block) -> None:
    if isinstance(counter, DecodedRecords):
        for value in values_of(block.records()):
            counter.take(value)
        return
    for record, record_hash in zip(block.records(), each_hash(block.hashes), strict=True):
        counter.add(record, record_hash)


def pending_figures(store: Store, conversation: str) -> Figures:
    """Return the figures of a source, counted from its records. Cost: the function reads the stored
    counts of the source, and the records that these counts do not include. If the format's
    ``skeleton`` is None, the function reads all records. Raises ``KeyUnavailable`` if the key of
    the conversation is missing.
    """
    source = _source(store, conversation)
    format = format_named(source.format)
    start = 0
    counter: Skeleton | DecodedRecords = DecodedRecords(format)
    if format.skeleton is not None:
        counter = format.skeleton(source.sums)
        start = counter.state.records
    for block in blocks_of(store.database, source, start) if start < source.records else ():
        count_block(counter, block.since(max(start, block.first)))
    return figures_in(counter, format, source.records, about(source))


def replies_of_source(store: Store, conversation: str) -> dict[int, CountedReply]:
    """Return the usage and the tools of all replies. Cost: the function makes the events of all
    records, in memory.
    """
    source = _source(store, conversation)
    decoded = DecodedRecords(format_named(source.format))
    for block in blocks_of(store.database, source):
        count_block(decoded, block)
    return of_events(decoded.events, about(source)).replies


def _source(store: Store, conversation: str) -> Source:
    source = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).of(conversation)
    )
    assert source is not None
    return source


def figures_in(
    skeleton: Skeleton | DecodedRecords,
    format: Format,
    records: int,
    about_source: JsonMap,
) -> Figures:
    figures: Figures
    if isinstance(skeleton, DecodedRecords):
        figures = of_events(skeleton.events, about_source)
    else:
        figures = _of_skeleton(skeleton, format, records)
    overview = figures.overview
    if parent := parent_in(overview.attributes or {}):
        # what a file beside the source says is more exact than its records
        link = pick(about_source.get(WHERE, {}), LINK) or {
            PARENT: f"{about_source.get('prefix', '')}{parent}"
        }
        overview = overview._replace(attributes={**(overview.attributes or {}), **link})
    if title := about_source.get(TITLE):
        overview = overview._replace(title=title[:TITLE_MAX])
    if place := where_written(format, about_source, overview.title):
        overview = overview._replace(attributes={**place, **(overview.attributes or {})})
    if unread := about_source.get("unread"):
        lacks = {INCOMPLETE: lacking(len(unread), "record", unread[0])}
        overview = overview._replace(attributes={**(overview.attributes or {}), **lacks})
    figures.overview = overview
    return figures


def _of_skeleton(skeleton: Skeleton, format: Format, records: int) -> Figures:
    state = skeleton.state
    replies = skeleton.replies.total()
    tools = {name: ToolDocument(calls=calls) for name, calls in state.tools.items()}
    for name, errors in state.tool_errors.items():
        tools[name] = ToolDocument(calls=state.tools.get(name, 0), errors=errors)
    condensations = CondensationsDocument(
        made=state.compactions, events_forgotten=None, summaries_forgotten=None
    )
    by_strategy = {f"{format.name} (not named)": condensations}
    counts = Counts(
        conversations=1,
        events=state.kinds,
        tools=tools,
        condensations=by_strategy if state.compactions else {},
        days=state.days,
        first_at=time_in(state.first_at),
        last_at=time_in(state.last_at),
        longest_wait_s=state.longest_wait_s,
        unmarked=0 if format.marks_errors else 1,
        last="open_call" if state.waiting else state.last,
        first_error=state.first_error or None,
        first_error_at=time_in(state.first_error_at),
    )
    title = state.title or state.asked or state.said
    overview = Overview(
        attributes={} if state.parent is None else {PARENT: state.parent},
        title=None if title is None else title[:TITLE_MAX],
        format=format.name,
        events=records,
        last_event_at=None if counts.last_at is None else counts.last_at.isoformat(),
    )
    savings = {"no reason given": SavingsDocument(condensations=state.compactions)}
    return Figures(
        records,
        records,
        overview=overview,
        reasons=savings if state.compactions else {},
        counts=counts,
        calls=replies.calls,
        hashes=replies.hashes,
        context=replies.context.points,
        last_prompt_tokens=replies.last_prompt,
    )


def of_events(events: Sequence[Event], about_source: JsonMap) -> Figures:
    if about_source.get("usage"):
        change = {IMPORTED: {"value": about_source["usage"]}}
        events = [*events, DocumentChanges(id=len(events), changed=change)]
    history: Any = _EventsInMemory(events)
    row: Any = SimpleNamespace(id="", version=len(events), parent=None)
    return figures_of(history, history, row)


class _EventsInMemory:
    """A history in memory, with the methods of ``Store`` and ``Views`` that ``figures_of``
    calls.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.version = len(events)
        self._earlier = View.from_events(())
        """The last View that ``at`` returned. If the next call is for a later version, ``at`` only
        adds the events in between.
        """

    @cached_property
    def _view(self) -> View:
        return View.from_events(self._events)

    def current(self, conversation: str) -> View:
        return self._view

    def at(self, conversation: str, version: int) -> View:
        if version < self._earlier.version:
            self._earlier = View.from_events(())
        self._earlier = self._earlier.then(self._events[self._earlier.version : version])
        return self._earlier

    def query(self, conversation: str, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def log(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[None, Event]]:
        return ((None, event) for event in self._events[start:stop])

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        return (
            event
            for event in self._events[start:stop]
            if type(event) in MAY_BE_STRUCTURAL and is_structural(event)
        )

    def events(self, start: int, stop: int) -> Sequence[Event]:
        return self._events[start:stop]

    def documents_before(self, stop: int) -> DocumentChanges | None:
        last = self._events[stop - 1] if stop else None
        return last if isinstance(last, DocumentChanges) else None
