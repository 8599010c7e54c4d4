"""The figures of a source whose records are no events yet, as its import stores them.

Once all records are events, the conversation is counted from these, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from foldlog._documents import CondensationsDocument, SavingsDocument, ToolDocument
from foldlog._figures.counting import Figures, figures_of
from foldlog._figures.counts import Counts
from foldlog._figures.overview import TITLE_MAX, Overview
from foldlog._figures.places import where_written
from foldlog._formats.decoded import DecodedRecords, values_of
from foldlog._formats.files.frames import TITLE
from foldlog._formats.forking import lacking
from foldlog._formats.format import Format
from foldlog._formats.record import INCOMPLETE, time_in
from foldlog._formats.registry import format_named
from foldlog._formats.skeleton import Skeleton
from foldlog._formats.summed_calls import Calls
from foldlog._usage import IMPORTED
from foldlog.eventstore import DocumentChanges, Event, Store
from foldlog.eventstore.inside import MAY_BE_STRUCTURAL, is_structural
from foldlog.eventstore.sources.blocks import Block, each_hash
from foldlog.eventstore.sources.reading import about, blocks_of
from foldlog.eventstore.sources.tables import Source, Sources
from foldlog.projections import View


def count_block(counted: Skeleton | DecodedRecords, block: Block) -> None:
    """Count the stored records of a block."""
    if isinstance(counted, DecodedRecords):
        for value in values_of(block.records()):
            counted.take(value)
        return
    for record, hashed in zip(block.records(), each_hash(block.hashes), strict=True):
        counted.add(record, hashed)


def pending_figures(store: Store, conversation: str) -> Figures:
    """Return the figures of a conversation that has records without events. Cost: what was counted
    of its source, and the records since; of a format without a skeleton all of them. Raises
    ``KeyUnavailable``.
    """
    source = _source(store, conversation)
    format = format_named(source.format)
    start = 0
    counted: Skeleton | DecodedRecords = DecodedRecords(format)
    if format.skeleton is not None:
        counted = format.skeleton(source.sums)
        start = counted.state.records
    for block in blocks_of(store.database, source, start) if start < source.records else ():
        count_block(counted, block.since(max(start, block.first)))
    return figures_in(counted, format, source.records, about(source))


def replies_of_source(store: Store, conversation: str, hashes: Collection[int]) -> dict[int, Calls]:
    """Return what these replies used, by their hashes. Cost: the records of the source."""
    source = _source(store, conversation)
    format = format_named(source.format)
    if format.skeleton is None:
        return pending_figures(store, conversation).replies
    counted = format.skeleton(left_out=hashes)
    for block in blocks_of(store.database, source):
        count_block(counted, block)
    counted.replies.total()
    return counted.replies.others


def _source(store: Store, conversation: str) -> Source:
    source = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).of(conversation)
    )
    assert source is not None
    return source


def figures_in(
    skeleton: Skeleton | DecodedRecords, format: Format, records: int, told: Mapping[str, Any]
) -> Figures:
    """Return the figures of a source. ``told`` is what is stored about the source."""
    figures: Figures
    if isinstance(skeleton, DecodedRecords):
        figures = of_events(skeleton.events, told)
    else:
        figures = _of_skeleton(skeleton, format, records)
    overview = figures.overview
    if title := told.get(TITLE):
        overview = overview._replace(title=title[:TITLE_MAX])
    if where := where_written(format, told, overview.title):
        overview = overview._replace(attributes={**where, **(overview.attributes or {})})
    if unread := told.get("unread"):
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
    condensed = CondensationsDocument(
        made=state.compactions, events_forgotten=None, summaries_forgotten=None
    )
    made = {f"{format.name} (not named)": condensed}
    counts = Counts(
        conversations=1,
        events=state.kinds,
        tools=tools,
        condensations=made if state.compactions else {},
        days=state.days,
        first_at=time_in(state.first_at),
        last_at=time_in(state.last_at),
        longest_wait_s=state.longest_wait_s,
        unmarked=0 if skeleton.marks_errors else 1,
        last="open_call" if state.waiting else state.last,
        first_error=state.first_error or None,
    )
    title = state.title or state.asked or state.said
    overview = Overview(
        attributes={} if state.parent is None else {"parent": state.parent},
        title=None if title is None else title[:TITLE_MAX],
        format=format.name,
        events=records,
        last_event_at=None if counts.last_at is None else counts.last_at.isoformat(),
    )
    saved = {"no reason given": SavingsDocument(condensations=state.compactions)}
    return Figures(
        records,
        records,
        overview=overview,
        reasons=saved if state.compactions else {},
        counts=counts,
        calls=replies.calls,
        hashes=replies.hashes,
        context=replies.context.points,
        last_prompt_tokens=replies.last_prompt,
    )


def of_events(events: Sequence[Event], told: Mapping[str, Any]) -> Figures:
    """Return the figures of events in memory, with the calls that the source tells beside the
    records.
    """
    if told.get("usage"):
        change = {IMPORTED: {"value": told["usage"]}}
        events = [*events, DocumentChanges(id=len(events), changed=change)]
    held: Any = _Held(events)
    row: Any = SimpleNamespace(id="", version=len(events), parent=None)
    return figures_of(held, held, row)


class _Held:
    """A history in memory, in the place of a store and its Views: what reports ask these of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events, self.version = events, len(events)

    @cached_property
    def _view(self) -> View:
        return View.from_events(self._events)

    def current(self, conversation: str) -> View:
        return self._view

    def at(self, conversation: str, version: int) -> View:
        return View.from_events(self._events[:version])

    def query(self, conversation: str, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def log(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[None, Event]]:
        return ((None, event) for event in self._events[start:stop])

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        return (
            e for e in self._events[start:stop] if type(e) in MAY_BE_STRUCTURAL and is_structural(e)
        )

    def events(self, start: int, stop: int) -> Sequence[Event]:
        return self._events[start:stop]

    def documents_before(self, stop: int) -> DocumentChanges | None:
        last = self._events[stop - 1] if stop else None
        return last if isinstance(last, DocumentChanges) else None
