"""The figures of a source whose records are no events yet, as its import stores them.

Once all records are events, the conversation is counted from these, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import msgspec

from foldlog._documents import CondensationsDocument, SavingsDocument, ToolDocument
from foldlog._formats.decoded import DecodedRecords, values_of
from foldlog._formats.files.frames import TITLE
from foldlog._formats.format import Format
from foldlog._formats.record import INCOMPLETE, time_in
from foldlog._formats.registry import format_named
from foldlog._formats.skeleton import Skeleton
from foldlog._formats.summed_calls import Calls
from foldlog._formats.tips import lacking
from foldlog._reports.counts import Counts
from foldlog._reports.figures import Counting, Figures, figures_of
from foldlog._reports.overview import TITLE_MAX, Overview
from foldlog._reports.places import where_written
from foldlog._usage import IMPORTED
from foldlog.eventstore import DocumentChanges, Event, Store
from foldlog.eventstore.inside import MAY_BE_STRUCTURAL, is_structural
from foldlog.eventstore.sources.blocks import Block, each_hash
from foldlog.eventstore.sources.reading import about, blocks_of
from foldlog.eventstore.sources.tables import Sources
from foldlog.projections import View

_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Figures).decode


def _encode(figures: Figures) -> bytes:
    """Encode figures; half a surrogate pair in a title becomes a question mark."""
    try:
        return _pack(figures)
    except UnicodeEncodeError:
        return _pack(_sound(msgspec.to_builtins(figures)))


def _sound(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_sound(name): _sound(each) for name, each in value.items()}
        case list() | tuple():
            return [*map(_sound, value)]
    return value


def line_of(skeleton: Skeleton | DecodedRecords, format: Format, records: int, told: Mapping[str, Any]) -> bytes:
    """Return the figures of a source, as they are stored. ``told`` is what is stored about the source."""
    figures = figures_in(skeleton, format, records, told)
    fields = {name: getattr(figures, name) for name in Figures.__struct_fields__}
    return _encode(Figures(**fields))


def entitled(line: bytes, told: Mapping[str, Any]) -> bytes:
    """Return the stored figures of a source with the title that is now stored about it."""
    if not line or TITLE not in told:
        return line
    figures = _decode(line)
    figures.overview = figures.overview._replace(title=told[TITLE][:TITLE_MAX])
    return _encode(figures)


def count_block(counted: Skeleton | DecodedRecords, block: Block) -> None:
    """Count the stored records of a block."""
    if isinstance(counted, DecodedRecords):
        for value in values_of(block.records()):
            counted.take(value)
        return
    for record, hashed in zip(block.records(), each_hash(block.hashes), strict=True):
        counted.add(record, hashed)


def pending_figures(store: Store) -> dict[str, Figures]:
    """Return the figures of the conversations that have records without events, by their ids. Cost: a row of each."""
    lines = store.database.recorder.query(lambda reader: Sources(store.database, reader).pending_lines())
    return {name: _decode(line) if line else _without_key() for name, line in lines.items()}


def pending_calls(store: Store, conversation: str, seen: Collection[int]) -> list[Calls]:
    """Return the calls of one of these, without the replies with hashes that were seen. Cost: its records."""
    source = store.database.recorder.query(lambda reader: Sources(store.database, reader).of(conversation))
    assert source is not None
    format = format_named(source.format)
    records = DecodedRecords(format) if format.skeleton is None else format.skeleton(left_out=seen)
    for block in blocks_of(store.database, source):
        count_block(records, block)
    if isinstance(records, DecodedRecords):
        return of_events(records.events, about(source)).spending.summed(seen)
    return records.replies.total().calls


def _without_key() -> Figures:
    problem = "it is encrypted, and its key is not given"
    return Figures(overview=Overview(problem=problem, needs_key=True))


def figures_in(skeleton: Skeleton | DecodedRecords, format: Format, records: int, told: Mapping[str, Any]) -> Figures:
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
    state, replies = skeleton.state, skeleton.replies.total()
    tools = {name: ToolDocument(calls=calls) for name, calls in state.tools.items()}
    for name, errors in state.tool_errors.items():
        tools[name] = ToolDocument(calls=state.tools.get(name, 0), errors=errors)
    condensed = CondensationsDocument(made=state.compactions, events_forgotten=None, summaries_forgotten=None)
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
        replies=replies.hashes,
        last_prompt_tokens=replies.last_prompt,
    )


def of_events(events: Sequence[Event], told: Mapping[str, Any]) -> Counting:
    """Return the figures of events in memory, with the calls that the source tells beside the records."""
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

    def log(self, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[None, Event]]:
        return ((None, event) for event in self._events[start:stop])

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        return (e for e in self._events[start:stop] if type(e) in MAY_BE_STRUCTURAL and is_structural(e))

    def events(self, start: int, stop: int) -> Sequence[Event]:
        return self._events[start:stop]

    def documents_before(self, stop: int) -> DocumentChanges | None:
        last = self._events[stop - 1] if stop else None
        return last if isinstance(last, DocumentChanges) else None
