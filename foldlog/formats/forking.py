"""Fork an imported history at a record of its source, and mark a fork that lacks records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import (
    ATTRIBUTES,
    Action,
    ConversationNotFound,
    ConversationRow,
    Documents,
    Event,
    InvalidArgument,
    Observation,
    ReadTransaction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import count
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.log.appending import Seen
from foldlog.formats.event_places import place_of
from foldlog.formats.record import FINDINGS_MAX, INCOMPLETE, UNREAD, Fields
from foldlog.projections import Views
from foldlog.projections.units import WaitingCalls


def begin_fork(store: Store, conversation: str, at: int, new: str) -> ConversationRow:
    """Fork a conversation at a version: see ``Store.fork``. If some records before ``at`` could not
    be imported, the fork adds an event that says how many, because the import may have recorded
    this only after ``at``.
    """

    def read_attributes(reading: ReadTransaction) -> tuple[Fields, Seen]:
        attributes = newest_value(reading, ATTRIBUTES, at, default={})
        return attributes, Seen.of(reading)

    documents = Documents(store)
    unread = [
        change for change in documents.get(conversation, UNREAD, default=()) if change[1] < at
    ]
    if not unread or documents.get(conversation, UNREAD, version=at):
        return store.fork(conversation, at, new)
    while True:
        attributes, seen = store.query(conversation, read_attributes)
        try:
            documents.fork(conversation, at, new, mark_unread(attributes, unread), seen)
        except VersionConflict as conflict:
            # if an event was redacted, the versions are equal
            if not conflict.is_redaction:
                raise
        else:
            return store.conversation(new)


def mark_unread(attributes: JsonMap, unread: Sequence[Sequence[int]]) -> Fields:
    """Return the documents that say that a history lacks the records ``unread``. ``attributes`` are
    the other attributes of the history.
    """
    return {
        ATTRIBUTES: {**attributes, INCOMPLETE: incomplete(unread)},
        UNREAD: [*map(list, unread)],
    }


def incomplete(unread: Sequence[Sequence[int]]) -> str:
    """Return the attribute ``INCOMPLETE`` of a history that lacks the records ``unread``: see
    ``UNREAD``.
    """
    return lacking(len(unread), "event", unread[0][1])


def lacking(number: int, what: str, before: int) -> str:
    """Return a text that says how many records are unreadable, and where the first unreadable
    record is.
    """
    where = f"after {what} {before - 1}" if before else f"before {what} 0"
    if number == 1:
        return f"1 record of its source could not be read, {where}"
    lacks = f"{number:,} or more records" if number >= FINDINGS_MAX else f"{number:,} records"
    return f"{lacks} of its source could not be read, the first {where}"


def version_of_tip(store: Store, conversation: str, source_id: str | int) -> int:
    """Return the version after the last event whose id in the imported source is ``source_id``. The
    View at this version shows the branch of this event, even if the source switched to another
    branch later. The text ``"7"`` also finds the number 7 as an id.

    The events of one record, the actions of one response and their observations are one group. The
    version comes after all events of the group, so that no call stays open. If a record has both a
    result and the model's next text, the version is before this record.

    Raises ``InvalidArgument`` if no event has this id, and ``ConversationNotFound``. The function
    reads the events from the last event with this id to the end. For a call or a result, the
    function also makes the View at the version.
    """
    if type(source_id) not in (str, int):
        raise TypeError(
            "at_source must be an id of the imported source (a text or a whole number), not"
            f" {source_id!r}"
        )
    version = store.conversation(conversation).version
    if version == 0:
        raise ConversationNotFound(conversation)
    for event in store.events(conversation, 0, version, reverse=True):
        if _is_named(event, source_id):
            return _after_its_group(store, conversation, event)
    raise InvalidArgument(
        f"conversation {conversation!r} has no event with the source id {source_id!r} among its"
        f" {count(version, 'event')}; 'foldlog log ID --json' prints the source id of each event as"
        " origin.id"
    )


def _is_named(event: Event, source_id: str | int) -> bool:
    """Return whether an event has this id in its source."""
    if event.origin is None or event.origin.id is None:
        return False
    own_id = event.origin.id
    return bool(own_id == source_id) or (isinstance(own_id, int) and str(own_id) == source_id)


def _after_its_group(store: Store, conversation: str, event: Event) -> int:
    """Return the version after all events of the group of ``event``. The group has the events of
    one record, the calls of one response, and the results of these calls.

    The version is at the end of a record. Bookkeeping is the only kind of record that may come
    between two records of the group.
    """
    record = [event, *takewhile(place_of, store.events(conversation, event.id + 1))]
    version = record[-1].id + 1
    if not any(isinstance(of_record, Action | Observation) for of_record in record):
        return version
    view = Views(store).at(conversation, version)
    waiting = WaitingCalls()
    for call in view.open_calls:
        waiting.add(call, call.id)
    calls = (shown for shown in reversed(view) if isinstance(shown, Action))
    newest = next((call.response_id for call in calls), None)
    following = store.events(conversation, version)
    for _, next_record in groupby(following, lambda later: later.id - place_of(later)):
        events = [*next_record]
        goes_on = False
        for later in events:
            if isinstance(later, Action) and newest is not None and later.response_id == newest:
                waiting.add(later, later.id)
                goes_on = True
            elif isinstance(later, Observation) and waiting.take(later) is not None:
                goes_on = True
            elif later.shown or is_structural(later):
                return version
        if goes_on:
            version = events[-1].id + 1
    return version
