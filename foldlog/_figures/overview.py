"""Make the columns of a list that need events: title, format, and the sizes of a conversation and
its View.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from foldlog._figures.places import place_of
from foldlog._figures.sizes import view_tokens
from foldlog._formats.record import UNREAD
from foldlog._formats.replacing import is_replacing, standing_in
from foldlog._formats.usage import is_copy
from foldlog._formats.user_requests import READ_MAX, asked_in
from foldlog._usage import IMPORTED
from foldlog._words.times import known_format, time_text
from foldlog.eventstore import (
    ATTRIBUTES,
    CondensationAction,
    CondensationSummary,
    ConversationErased,
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
    Store,
)
from foldlog.eventstore.inside import is_structural, newest_value
from foldlog.projections import contains
from foldlog.projections.units import is_unseen

if TYPE_CHECKING:
    from foldlog.projections import Views

NATIVE = "foldlog"
"""The format of a conversation that no source was imported into."""

_ABOUT_IT = {ATTRIBUTES, IMPORTED, UNREAD}
_WITHIN = 30
"""The number of events at both ends of a conversation in which its title and its last time are
searched.
"""
TITLE_MAX = 300


class Overview(NamedTuple):
    """One conversation for a list. A figure that cannot be read, because the conversation is
    damaged or encrypted, is None.

    ``attributes``     see ``Histories.create``
    ``title``          its attribute ``title``, else the source's own title, else the first request
                       of the user
    ``format``         what it was imported from; ``foldlog`` where it was not imported
    ``events``         the events that figures count: see ``counted_in``
    ``sent_events``    the events that a model is sent with its View, before a condenser hides or
                       masks any: without
                       pending ones, and without summaries
    ``sent_summaries`` the summaries that a model is sent with it
    ``tokens``         the tokens of that View, as ``view_tokens`` estimates them, rather too high
    ``last_event_at``  the time of its last event that has one, as ISO 8601 in UTC; without a zone
                       where an
                       imported time names none. What was done to the history does not count: see
                       ``is_activity``
    ``problem``        why figures are missing
    ``needs_key``      they are missing because a key is not given, not because of damage
    """

    attributes: Mapping[str, Any] | None = None
    title: str | None = None
    format: str | None = None
    events: int | None = None
    sent_events: int | None = None
    sent_summaries: int | None = None
    tokens: int | None = None
    last_event_at: str | None = None
    problem: str | None = None
    needs_key: bool = False


def overview_of(store: Store, views: Views, row: ConversationRow) -> Overview:
    """Return the overview of a conversation. An event that cannot be read does not raise: see
    ``problem``. Raises ``ConversationErased``.

    Cost: some events at either end of the conversation, the events of its View, and its structural
    ones.
    """
    found = Overview()
    try:
        found = near_the_ends(store, row)
        view = views.current(row.id)
        sent = [view[position] for position in view.fit_positions if not is_unseen(view[position])]
        summaries = sum(isinstance(event, CondensationSummary) for event in sent)
        tokens = view_tokens(view)
        return found._replace(
            sent_events=len(sent) - summaries, sent_summaries=summaries, tokens=tokens
        )
    except ConversationErased:
        raise
    except EventStoreError as error:
        return found._replace(problem=str(error), needs_key=isinstance(error, KeyUnavailable))


def near_the_ends(store: Store, row: ConversationRow) -> Overview:
    """Return title, format and times from the attributes and the first and last events, as lists
    and pages show them. A later title replaces an earlier one. Raises ``EventStoreError`` where one
    of them cannot be read.

    Cost: these events and the structural ones; every event where an import took some back.
    """
    own = store.query(
        row.id, lambda reading: newest_value(reading, ATTRIBUTES, row.version, default={})
    )
    # records in memory have no id
    attributes = {**place_of(store, row.id), **own} if row.id else own
    structural = store.query(row.id, lambda reading: [*reading.structural_events(0, row.version)])
    counts_event = counted_in(structural, row.version)
    number = row.version - sum(map(copies_before, structural))
    if any(map(is_replacing, structural)):
        number = sum(counts_event(event) for _, event in store.log(row.id, 0, row.version))
    title = form = last = None
    is_state = False
    request = said = ""
    for recorded_at, event in _ends(store, row, counts_event):
        title = _title_in(event.meta) or title
        if not request and isinstance(event, Message) and event.source == "user" and event.shown:
            request, words = _asked(event)
            said = said or words  # of the first message
        if (form is None or is_state) and counts_event(event):
            form = NATIVE if event.origin is None else event.origin.format
            # which a runtime may write before its first record
            is_state = isinstance(event, DocumentChanges)
        if is_activity(event) and counts_event(event):
            last = time_text(event, recorded_at) or last
    told = _title_in(own) or title or request or said or None
    return Overview(
        attributes, None if told is None else told[:TITLE_MAX], form, number, last_event_at=last
    )


def around_damage(store: Store, row: ConversationRow) -> Overview:
    """Return what ``near_the_ends`` does; where an event there is damaged, the number of events
    alone.
    """
    try:
        return near_the_ends(store, row)
    except CorruptEvent as error:
        return Overview(events=row.version, problem=str(error))


def _title_in(values: Mapping[str, Any]) -> str | None:
    """Return the title among attributes or in the ``meta`` of an event; None if there is none."""
    title = values.get("title")
    return title if isinstance(title, str) and title.strip() else None


def _ends(
    store: Store, row: ConversationRow, counts_event: Callable[[Event], bool]
) -> list[Logged]:
    """Return the first events, and the last ones with some that are activity and count."""
    first = [*store.log(row.id, 0, _WITHIN)]
    page = list[Logged]()
    stop = row.version
    while stop > _WITHIN and not any(
        is_activity(event) and counts_event(event) for _, event in page
    ):
        start = max(_WITHIN, stop - _WITHIN)
        stop, page = start, [*store.log(row.id, start, stop)]
    return first + page


def copies_before(event: Event) -> int:
    """Return how many events before a condensation are copies: the others of its record, see
    ``Format.says_again``.
    """
    if (
        not isinstance(event, CondensationAction)
        or event.origin is None
        or type(event.origin.rest) is not int
    ):
        return 0
    return event.origin.rest if known_format(event.origin.format, lambda one: one.says_again) else 0


def counted_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return whether figures count an event of a conversation with these structural events, up to
    ``version``: all but copies, and those that an import took back.
    """
    structural = list(structural)
    stands = standing_in(structural, version)
    copies = tuple(
        (each.id - number, each.id - 1) for each in structural if (number := copies_before(each))
    )
    return (lambda event: stands(event) and not contains(copies, event.id)) if copies else stands


def changes_of_documents(store: Store, conversation: str, start: int, stop: int) -> int:
    """Return how many of these events change documents or attributes. Cost: as many events."""

    def ids(reading: ReadTransaction) -> Iterator[int]:
        change = reading.documents_before(stop)
        while change is not None and change.id >= start:
            yield change.id
            change = reading.documents_before(change.id)

    return store.query(conversation, lambda reading: sum(1 for _ in ids(reading)))


def is_about_it(event: Event) -> bool:
    """Return whether an event is about the history: the receipt of a redaction, a change of
    attributes, or what an import knows beside the records.
    """
    return type(event) is Redaction or (
        type(event) is DocumentChanges and {*event.changed} <= _ABOUT_IT
    )


def is_request(event: Event) -> TypeGuard[Message]:
    """Return whether an event is a request of a user to the agent: not a command for the program
    alone, nor what that answered, nor what the agent was not shown, nor a copy.
    """
    if not (isinstance(event, Message) and event.source == "user" and event.shown) or is_copy(
        event
    ):
        return False
    parts = [] if isinstance(event.content, str) else event.content
    return bool(_asked(event)[0]) or any(part.get("type") != "text" for part in parts)


def is_activity(event: Event) -> bool:
    """Return whether the event is what the agent, a tool or a user did, and not what was done to
    the history: a condensation, a retraction, or what ``is_about_it`` says.
    """
    return not (is_structural(event) or is_about_it(event))


def _asked(event: Message) -> tuple[str, str]:
    """Return what a user asks for in a message, without what a runtime added to it, and all that it
    says.
    """
    content = event.content
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    return asked_in("\n".join(text[:READ_MAX] for text in texts if isinstance(text, str)))
