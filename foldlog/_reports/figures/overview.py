"""This module reads the title, the format, and the sizes of a conversation and its View from
events. Lists of conversations show the values of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._reports.words.times import read_with_format, time_text
from foldlog.eventstore import (
    ATTRIBUTES,
    Annotation,
    CondensationAction,
    CondensationSummary,
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    DocumentChanges,
    Event,
    EventStoreError,
    KeyUnavailable,
    Logged,
    Message,
    ReadTransaction,
    Redaction,
    Retraction,
    Store,
)
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.store import iter_logged
from foldlog.eventstore.usage import IMPORTED, PLACED_FROM
from foldlog.formats.model_calls import is_copy
from foldlog.formats.record import UNREAD
from foldlog.formats.repeated_events import is_replacing, standing_in
from foldlog.formats.user_requests import READ_MAX, request_in
from foldlog.projections import contains
from foldlog.projections.units import has_no_message

if TYPE_CHECKING:
    from foldlog.projections import Views

NATIVE = "foldlog"
_Log = Callable[[int, int], Iterable[Logged]]
"""Returns the events from one id to another, with their times."""

_ABOUT_THE_HISTORY = {ATTRIBUTES, IMPORTED, UNREAD}
PARENT = "parent"
PARENT_CALL = "parent_call"
SUB_AGENT = "sub_agent"
"""The name of the annotation with which a conversation records that it began a sub-agent."""
LINK = (PARENT, PARENT_CALL)
"""The attributes of a sub-agent: the id of the conversation that began it, and the id of the call
in that conversation. An import has them in the ``meta`` of the first event.
"""
_WITHIN = 30
"""The number of events at each end in which titles and times are sought. If the last events are no
activity, so many earlier ones are read, again and again.
"""
FIRST: Final = 2
"""How many events are read before it is known whether they are long: see ``read_in_steps``."""
AT_ONCE: Final = 1_000
"""How many short events are read together."""
_LONG_CHARS: Final = 200_000
"""An event with a longer text is read alone, so that not many of them are in memory."""
TITLE_MAX = 300
"""The number of characters of a title in a list."""


class Overview(NamedTuple):
    """The overview of a conversation in a list. A figure is None if it cannot be read because the
    conversation is damaged or encrypted.

    ``attributes``     the attributes of the conversation: see ``Histories.create``
    ``title``          the attribute ``title``, else the source's own title, else the user's first
                       request
    ``format``         the format of the source; ``foldlog`` if no source was imported
    ``events``         the number of events that figures count: see ``counted_in``; before they are
                       counted, placed results are among them
    ``sent_events``    the number of events of the View that are sent to a model, without summaries,
                       and before a condenser hides or masks any event
    ``sent_summaries`` the number of summaries of the View that are sent to a model
    ``tokens``         a high estimate of the tokens of the View: see ``view_tokens``
    ``last_event_at``  the time of the last event that has a time, as ISO 8601 in UTC, or without a
                       zone if the source names no zone. Only activity counts: see ``is_activity``
    ``problem``        why figures are missing
    ``needs_key``      whether figures are missing because the key is missing
    """

    attributes: JsonMap | None = None
    title: str | None = None
    format: str | None = None
    events: int | None = None
    sent_events: int | None = None
    sent_summaries: int | None = None
    tokens: int | None = None
    last_event_at: str | None = None
    problem: str | None = None
    needs_key: bool = False


def overview_of(
    store: Store, views: Views, row: ConversationRow, counted: dict[int, int] | None = None
) -> Overview:
    """Return the overview of a conversation. If an event cannot be read, its ``problem`` contains
    the reason. ``counted`` has the tokens of events that need not be counted again. Raises
    ``ConversationErased`` if the conversation was erased.

    Cost: the function reads some events at both ends of the conversation, the events of its View,
    and its structural events.
    """
    from foldlog._reports.figures.tokens import view_tokens

    overview = Overview()
    try:
        overview = near_the_ends(store, row)
        view = views.current(row.id)
        events = view.events
        fit = (events[position] for position in view.fit_positions)
        sent = [event for event in fit if not has_no_message(event)]
        summaries = sum(isinstance(event, CondensationSummary) for event in sent)
        tokens = view_tokens(view, counted)
        return overview._replace(
            sent_events=len(sent) - summaries, sent_summaries=summaries, tokens=tokens
        )
    except ConversationErased:
        raise
    except EventStoreError as error:
        return overview._replace(problem=str(error), needs_key=isinstance(error, KeyUnavailable))


def near_the_ends(store: Store, row: ConversationRow) -> Overview:
    """Return the title, the format and the times of a conversation, without its View. Raises
    ``EventStoreError`` if an event that the function reads is damaged.

    Cost: the function reads some events at both ends of the conversation, and the structural
    events. If an import took events back, the function reads every event.
    """

    def read(reader: Reader) -> Overview:
        return read_ends(store.database, reader, find_existing(store.database, reader, row.id))

    if row.id:
        return store.database.recorder.query(read)
    # A history in memory has no id and no database.
    return store.query(row.id, lambda reading: _ends_in(reading, {}, partial(store.log, row.id)))


def read_ends(
    database: Database, reader: Reader, state: Conversation, *, has_sources: bool = True
) -> Overview:
    """Read the overview of a conversation in the transaction of ``reader``. ``has_sources`` says
    whether the store contains imported sources.
    """
    reading = ReadTransaction(reader, state, database)
    if not has_sources:
        return _ends_in(reading, {}, partial(iter_logged, reading))
    from foldlog._reports.figures.source_places import place_in, program_in

    place = place_in(database, reader, state)
    overview = _ends_in(reading, place, partial(iter_logged, reading))
    program = program_in(database, reader, state) if state.parent_version else None
    return overview if program is None else overview._replace(format=program)


def _ends_in(reading: ReadTransaction, place: Mapping[str, str], log: _Log) -> Overview:
    """Return the overview from both ends of ``log``. ``place`` has the attributes of the source:
    see ``where_written``.
    """
    version = reading.version
    changes = changes_of_counts(reading.structural_events(0, version))
    counts_event = in_force_in(changes, version)
    count = version - sum(map(copies_before, changes))
    if any(map(is_replacing, changes)):
        count = sum(map(counts_event, reading.events(0, version)))
    logged = _ends(version, log, counts_event)
    set_attributes: JsonObject = {}
    # The events of a short conversation are all here, so they show whether it has documents.
    if version > _WITHIN or any(isinstance(event, DocumentChanges) for _, event in logged):
        set_attributes = newest_value(reading, ATTRIBUTES, version, default={})
    times = (
        time_text(event, recorded_at)
        for recorded_at, event in reversed(logged)
        if is_activity(event) and counts_event(event)
    )
    events = [event for _, event in logged]
    titles = (title for event in reversed(events) if (title := _title_in(event.meta)))
    title = _title_in(set_attributes) or next(titles, None) or _title_from_requests(events)
    return Overview(
        {**_begun_by(events), **place, **set_attributes},
        title[:TITLE_MAX] if title else None,
        _format_of(filter(counts_event, events)),
        count,
        last_event_at=next(filter(None, times), None),
    )


def _begun_by(events: Iterable[Event]) -> JsonObject:
    """Return the link to the parent, from the first event that names it."""
    linked = (event.meta for event in events if PARENT in event.meta)
    meta = next(linked, {})
    return {name: meta[name] for name in LINK if name in meta}


def _title_from_requests(events: Iterable[Event]) -> str:
    """Return the first request of the user, or else the first words of the user."""
    first_words = ""
    for event in events:
        if isinstance(event, Message) and event.source == "user" and event.shown:
            request, words = _request_in(event)
            if request:
                return request
            first_words = first_words or words
    return first_words


def _format_of(counted: Iterable[Event]) -> str | None:
    """Return the format of the first record. A runtime may change documents before its first
    record, and then this record decides the format.
    """
    format: str | None = None
    for event in counted:
        format = NATIVE if event.origin is None else event.origin.format
        if not isinstance(event, DocumentChanges):
            break
    return format


def begun_in(event: Event) -> str | None:
    """Return the id of the sub-agent that a conversation began, as an annotation recorded it.
    Return None for other events, such as an annotation of an application with the same name.
    """
    if type(event) is not Annotation or event.name != SUB_AGENT:
        return None
    child = event.data.get("conversation") if isinstance(event.data, dict) else None
    return child if isinstance(child, str) else None


def parent_in(attributes: JsonMap) -> str:
    """Return the conversation that began a sub-agent with these attributes, or an empty text."""
    parent = attributes.get(PARENT)
    return parent if isinstance(parent, str) else ""


def parent_of(store: Store, row: ConversationRow) -> ConversationRow | None:
    """Return the conversation that began a sub-agent. Return None if the store has it no more, or
    if another conversation has its id now. Cost: the function reads some events at both ends.
    """
    name = parent_in(near_the_ends(store, row).attributes or {})
    if not name:
        return None
    with suppress(ConversationNotFound):
        parent = store.conversation(name)
        if parent.erased_at is None and not is_another(parent, row):
            return parent
    return None


def is_another(parent: ConversationRow, child: ConversationRow) -> bool:
    """Return whether a conversation has the id of a parent that was erased."""
    return parent.generation > 0 and parent.created_at > child.created_at


def around_damage(store: Store, row: ConversationRow) -> Overview:
    """Return what ``near_the_ends`` returns, or only the problem if an event is damaged."""
    try:
        return near_the_ends(store, row)
    except CorruptEvent as error:
        return Overview(events=row.version, problem=str(error))


def _title_in(values: JsonMap) -> str | None:
    """Return the title in some attributes or fields, or None if they have no title with words."""
    title = values.get("title")
    return title if isinstance(title, str) and title.strip() else None


def _ends(version: int, log: _Log, counts_event: Callable[[Event], bool]) -> list[Logged]:
    """Return the first events, and the last events from the last activity on."""
    first_page = _shortened(log, 0, min(_WITHIN, version))
    last_page = list[Logged]()
    stop = version
    while stop > _WITHIN and not any(
        is_activity(event) and counts_event(event) for _, event in last_page
    ):
        start = max(_WITHIN, stop - _WITHIN)
        stop, last_page = start, _shortened(log, start, stop)
    return first_page + last_page


def _shortened(log: _Log, start: int, stop: int) -> list[Logged]:
    """Return events whose long texts are cut off behind what titles need."""
    return [
        Logged(recorded_at, _cut_content(event) if is_long(event) else event)
        for recorded_at, event in read_in_steps(log, start, stop)
    ]


def _cut_content(event: Event) -> Event:
    """Return an event with the beginnings of the texts in its content."""
    content = _cut(getattr(event, "content", None))
    return replace(event, content=content)


def _cut(content: Any) -> Any:
    """Return the beginnings of the texts in a value of JSON, and other values unchanged."""
    if isinstance(content, str):
        return content[:READ_MAX]
    if isinstance(content, dict):
        return {name: _cut(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return list(map(_cut, content))
    return content


def read_in_steps(log: _Log, start: int, stop: int) -> Iterator[Logged]:
    """Yield the events of a log. Long events are read one by one: a thousand have gigabytes."""
    count = FIRST
    while start < stop:
        end = min(stop, start + count)
        count = AT_ONCE
        for logged in log(start, end):
            if is_long(logged.event):
                count = 1
            yield logged
        start = end


def is_long(event: Event) -> bool:
    """Return whether the content of an event has a text of more than 200,000 characters."""
    return _has_long_text(getattr(event, "content", None))


def _has_long_text(content: object) -> bool:
    """Return whether a value of JSON has a text of more than ``_LONG_CHARS`` characters."""
    if isinstance(content, str):
        return len(content) > _LONG_CHARS
    if isinstance(content, dict):
        return any(map(_has_long_text, content.values()))
    return isinstance(content, list | tuple) and any(map(_has_long_text, content))


def copies_before(event: Event) -> int:
    """Return how many events before a condensation are copies: in some formats, the record of a
    condensation repeats the events that stay (see ``Format.says_again``). Return 0 for other
    events.
    """
    if not isinstance(event, CondensationAction) or event.origin is None:
        return 0
    # In the origin of a condensation, ``rest`` is the number of earlier events from the same
    # record.
    other_events = event.origin.rest
    if type(other_events) is not int:
        return 0
    repeats = read_with_format(event.origin.format, lambda format: format.says_again)
    return other_events if repeats else 0


def changes_of_counts(structural: Iterable[Event]) -> list[Event]:
    """Return the events that exclude other events from the figures: retractions, and condensations
    whose records repeat earlier events. Even a long history has few retractions and condensations.
    """
    return [event for event in structural if isinstance(event, Retraction) or copies_before(event)]


def is_placed(event: Event) -> bool:
    """Return whether an import put the event where a prompt needs it: see ``PLACED_FROM``."""
    return event.origin is not None and PLACED_FROM in event.meta


def counted_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return a function that says whether figures count an event: they count all events except
    copies, events that an import took back, and placed results. ``structural`` has the structural
    events before ``version``.
    """
    is_in_force = in_force_in(structural, version)
    return lambda event: is_in_force(event) and not is_placed(event)


def in_force_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return a function that says whether an event is neither a copy nor taken back by an import.
    ``structural`` has the structural events before ``version``.
    """
    changes = changes_of_counts(structural)
    is_in_force = standing_in(changes, version)
    copies = tuple(
        (event.id - copy_count, event.id - 1)
        for event in changes
        if (copy_count := copies_before(event))
    )
    if not copies:
        return is_in_force
    return lambda event: is_in_force(event) and not contains(copies, event.id)


def changes_of_documents(store: Store, conversation: str, start: int, stop: int) -> int:
    """Return the number of events from ``start`` to ``stop`` that changed documents or attributes.
    Cost: the function reads these events.
    """

    def count(reading: ReadTransaction) -> int:
        changes = 0
        change = reading.documents_before(stop)
        while change is not None and change.id >= start:
            changes += 1
            change = reading.documents_before(change.id)
        return changes

    return store.query(conversation, count)


def is_about_it(event: Event) -> bool:
    """Return whether an event is about the history itself: the receipt of a redaction, a change of
    attributes, or a note of an import.
    """
    return type(event) is Redaction or (
        type(event) is DocumentChanges and {*event.changed} <= _ABOUT_THE_HISTORY
    )


def is_request(event: Event) -> TypeGuard[Message]:
    """Return whether an event is a request of the user. Commands for the program alone, the answers
    to such commands, messages that the agent was not shown, and copies are not.
    """
    if not isinstance(event, Message) or is_copy(event):
        return False
    if event.source != "user" or not event.shown:
        return False
    parts = [] if isinstance(event.content, str) else event.content
    return bool(_request_in(event)[0]) or any(part.get("type") != "text" for part in parts)


def is_activity(event: Event) -> bool:
    """Return whether an event is activity. A condensation, a retraction and an event about the
    history are not.
    """
    return not (is_structural(event) or is_about_it(event))


def _request_in(event: Message) -> tuple[str, str]:
    """Return the request in a message, and its first words: see ``request_in``."""
    content = event.content
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    return request_in("\n".join(text[:READ_MAX] for text in texts if isinstance(text, str)))
