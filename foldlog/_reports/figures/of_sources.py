"""This module counts the figures of a source from its records, before its events are made.

When all events are made, the conversation is counted from its events.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from foldlog._base.json_types import JsonMap
from foldlog._reports.answers.figures import CondensationsDocument, SavingsDocument, ToolDocument
from foldlog._reports.figures.counting import Figures, figures_of
from foldlog._reports.figures.counts import Counts
from foldlog._reports.figures.overview import LINK, PARENT, TITLE_MAX, Overview, parent_in
from foldlog._reports.figures.source_places import where_written
from foldlog._reports.figures.tools_of_replies import CountedReply
from foldlog.eventstore import DocumentChanges, Event, Store
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.recorders.types import NOT_BEGUN, Conversation
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, blocks_of
from foldlog.eventstore.sources.tables import TITLE, WHERE, Source, Sources, query_sources
from foldlog.eventstore.usage import IMPORTED
from foldlog.formats.forking import lacking
from foldlog.formats.format import Format
from foldlog.formats.record import INCOMPLETE, NotAnEvent, pick, time_in
from foldlog.formats.record_decoding import decoder_of, values_of
from foldlog.formats.record_events import events_of
from foldlog.formats.registry import format_named
from foldlog.formats.skeleton import Skeleton, count_block, state_with_calls
from foldlog.projections import Views

_COPY = "source"


def pending_figures(store: Store, conversation: str, *, again: bool = False) -> Figures:
    """Return the figures of a source, counted from its records. Cost: the function reads the stored
    counts of the source, and the records that these counts do not include, or all records if
    ``again`` is true. If the format's ``skeleton`` is None, the function decodes all records.
    Raises ``KeyUnavailable`` if the key of the conversation is missing.
    """
    source = _source(store, conversation)
    format = format_named(source.format)
    if format.skeleton is None:
        return _add_facts(_count_decoded(store, source, format), format, about(source))
    sums = b"" if again else source.sums
    counter = format.skeleton(sums)
    start = counter.state.records
    if start < source.records:
        # The next records may repeat records that are counted already.
        counter = format.skeleton(sums, query_sources(store.database, Sources.hashes, source))
        for block in blocks_of(store.database, source, start):
            count_block(counter, block.since(max(start, block.first)))
    return figures_in(counter, format, source.records, about(source))


def replies_of_source(store: Store, conversation: str) -> dict[int, CountedReply]:
    """Return the usage and the tools of all replies. Cost: the function makes the events of all
    records, in memory.
    """
    source = _source(store, conversation)
    return _count_decoded(store, source, format_named(source.format)).replies


def _source(store: Store, conversation: str) -> Source:
    """Return the source of a conversation, which must have one. Raises ``ConversationErased`` if
    the conversation was erased since it was listed.
    """
    source = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).of(conversation)
    )
    if source is None:
        store.version(conversation)  # raises ``ConversationErased``
    assert source is not None
    return source


def figures_in(skeleton: Skeleton, format: Format, records: int, about_source: JsonMap) -> Figures:
    """Return the figures of a source from its counted records. ``about_source`` has what the store
    keeps about the source, such as its title and its place.
    """
    return _add_facts(_make_from_skeleton(skeleton, format, records), format, about_source)


def _count_decoded(store: Store, source: Source, format: Format) -> Figures:
    """Make the events of the records in memory, and count them."""
    facts = about(source)
    decoder = decoder_of(format, str(facts.get("prefix", "")))
    events = list[Event]()
    for block in blocks_of(store.database, source):
        for value in values_of(block.records()):
            with suppress(NotAnEvent):  # the import has reported this record
                events += events_of(decoder, format, value)
    if facts.get("usage"):
        changed = {IMPORTED: {"value": facts["usage"]}}
        events.append(DocumentChanges(id=len(events), changed=changed))
    with Store(MemoryRecorder()) as copy:
        copy.database.recorder.transact(partial(_begin_copy, copy.database))
        copy.extend(
            _COPY,
            events,
            expected_version=0,
            also=lambda writing: writing.set_unmade(0),
            recorded_at=facts.get(IMPORTED_AT),
        )
        return figures_of(copy, Views(copy), copy.conversation(_COPY))


def _begin_copy(database: Database, transaction: Transaction) -> None:
    """Begin a conversation that still has records without events, as an import does."""
    begun = begin_new(
        transaction, database, Conversation(NOT_BEGUN, _COPY, database.now(), new_salt())
    )
    writing = WriteTransaction(transaction, begun, database)
    writing.begin()
    writing.set_unmade(1)
    writing.end()


def _add_facts(figures: Figures, format: Format, about_source: JsonMap) -> Figures:
    """Add the parent, the title and the place that are stored beside the records."""
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


def _make_from_skeleton(skeleton: Skeleton, format: Format, records: int) -> Figures:
    """Return the figures of a source that its skeleton counted. What a condensation forgot is
    unknown, because no event was made.
    """
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
        last=state_with_calls(state.waiting, state.left, state.last),
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
        version=records,
        counted=records,
        overview=overview,
        reasons=savings if state.compactions else {},
        counts=counts,
        calls=replies.calls,
        hashes=replies.hashes,
        context=replies.context.points,
        last_prompt_tokens=replies.last_prompt,
    )
