"""The rules of an append to a conversation. This module reads no clock and no database.

Ids are dense: every id below the version belongs to an event. ``State`` therefore holds little more
than the version, even for a long conversation. If an append forgets a summary, the caller also
reads the condensation that made the summary.

An imported event (``origin`` is set) stays as its source recorded it. An imported event may be a
summary, and the ids in an imported condensation are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

from msgspec import Struct, structs

from foldlog.eventstore.errors import (
    DocumentsChanged,
    InvalidArgument,
    InvalidEvent,
    VersionConflict,
)
from foldlog.eventstore.events import (
    ATTRIBUTES,
    NOT_RECORDED,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Retraction,
    summary_id,
    summary_of,
)


class AnyVersion(Enum):
    """The type of ``ANY_VERSION``."""

    ANY_VERSION = "any version"


ANY_VERSION: Final = AnyVersion.ANY_VERSION
"""Pass ``ANY_VERSION`` as ``expected_version`` to append without a check of the version."""


_ATTRIBUTES_MAX: Final = 1_000
"""Each attribute is an entry of the index, which an append writes under the store's lock."""
_RULED: Final = frozenset({CondensationAction, CondensationSummary, DocumentChanges, Retraction})
"""The kinds of events for which ``decide`` has special rules."""


class State(Struct, frozen=True):
    """The part of a conversation's state that ``decide`` needs.

    ``summaries`` contains the ids of existing summaries that the append forgets. ``documents`` maps
    each document to the id of the event with its newest value. ``documents`` is None if the append
    changes no documents.
    """

    conversation: str
    version: int = 0
    summaries: frozenset[int] = frozenset()
    documents: Mapping[str, int] | None = None


class Append(Struct, frozen=True):
    """A request to append events, for ``decide``."""

    events: Sequence[Event]
    expected_version: int | Literal[AnyVersion.ANY_VERSION]


def evolve(state: State, event: Event) -> State:
    """Return the state after a recorded event. ``evolve`` accepts every event that the log holds,
    because it checks no rules.
    """
    version = state.version
    summaries = state.summaries
    documents = state.documents
    if isinstance(event, CondensationAction) and event.summary is not None:
        summaries |= {summary_id(version)}
    elif isinstance(event, DocumentChanges) and documents is not None:
        documents = event.newest()
    return State(state.conversation, version + 1, summaries, documents)


def summaries_named(events: Iterable[Event]) -> frozenset[int]:
    """Return the ids of the summaries that condensations among the events forget."""
    forgetting = (
        event for event in events if isinstance(event, CondensationAction) and not event.origin
    )
    return frozenset(i for event in forgetting for i in event.forgotten.summaries)


def check_version(state: State, expected: int | Literal[AnyVersion.ANY_VERSION]) -> None:
    """Raise ``VersionConflict`` if the conversation has another version than the expected one.
    Raises ``TypeError`` or ``InvalidArgument`` if ``expected`` is not a version.
    """
    if expected is ANY_VERSION:
        return
    if type(expected) is not int:
        raise TypeError(
            f"expected_version is {expected!r}; give a number of events, or ANY_VERSION"
        )
    if expected < 0:
        raise InvalidArgument(f"expected_version is {expected}; a new conversation has version 0")
    if expected != state.version:
        raise VersionConflict(state.conversation, expected, state.version)


def decide(state: State, command: Append) -> tuple[Event, ...]:
    """Return the events to record, with their ids. Raises ``InvalidEvent`` if an event breaks a
    rule, and ``VersionConflict`` if the conversation has another version. Raises
    ``DocumentsChanged`` if another writer has changed a document since the caller read the
    documents.
    """
    expected = command.expected_version
    if type(expected) is not int or expected != state.version:
        check_version(state, expected)
    if not command.events:
        raise InvalidEvent(
            f"nothing to append to conversation {state.conversation!r}: give at least one event"
        )
    first = state.version
    decided = []
    for version, event in enumerate(command.events, first):
        recorded = structs.replace(event, id=version)
        has_wrong_cause = event.cause is not None and not 0 <= event.cause < version
        # Most events need no check, and change only the version.
        if has_wrong_cause or event.id != NOT_RECORDED or type(event) in _RULED:
            state = structs.replace(state, version=version)
            _check(state, event, version - first)
            # ``recorded`` has an id, so a later change of documents in this command may build on
            # it.
            state = evolve(state, recorded)
        decided.append(recorded)
    return tuple(decided)


def number_events(events: Iterable[Event], first: int) -> tuple[Event, ...]:
    """Return copies of the events with ids from ``first`` on."""
    return tuple(
        [structs.replace(event, id=version) for version, event in enumerate(events, first)]
    )


def _check(state: State, event: Event, index: int) -> None:
    """Check the rules for one event. ``index`` is its place in the append."""
    if event.id != NOT_RECORDED and event.id != state.version:
        raise InvalidEvent(
            f"{_name_event(state, index)} already has id {event.id}, but its id would"
            f" be {state.version}; append a copy with id {NOT_RECORDED}"
        )
    if event.cause is not None and not 0 <= event.cause < state.version:
        raise InvalidEvent(
            f"{_name_event(state, index)} names cause {event.cause}; a cause is an earlier event,"
            f" {_ids_before(state)}"
        )
    if isinstance(event, CondensationSummary) and event.origin is None:
        raise InvalidEvent(
            f"{_name_event(state, index)} is a summary, which only a View makes; append the"
            " condensation with this summary"
        )
    if isinstance(event, Retraction) and event.version >= state.version:
        if state.version:
            newest = f"its newest event is {state.version - 1}; give 0 to {state.version - 1}"
        else:
            newest = "it is empty"
        raise InvalidEvent(
            f"conversation {state.conversation!r} has no event {event.version} to take back:"
            f" {newest}"
        )
    if isinstance(event, CondensationAction) and event.origin is None:
        _check_condensation(state, event, _name_event(state, index))
    if isinstance(event, DocumentChanges) and state.documents is not None:
        _check_documents(state, event, state.documents)


def _ids_before(state: State) -> str:
    return f"0 to {state.version - 1}" if state.version else "and the conversation has none yet"


def _name_event(state: State, index: int) -> str:
    return f"event {index} of this append to conversation {state.conversation!r}"


def _check_condensation(state: State, event: CondensationAction, name: str) -> None:
    """Raise ``InvalidEvent`` if a condensation forgets events or summaries that its conversation
    does not have, or if its summary or offset cannot be used.
    """
    ids = event.given_ids or ()
    if NOT_RECORDED in ids:
        raise InvalidEvent(
            f"{name} forgets id {NOT_RECORDED}, which no event has; name events by their ids"
        )
    forgotten = event.forgotten
    for first, last in forgotten.intervals:
        if first < 0 or last >= state.version:
            unknown_id = first if first < 0 or first >= state.version else last
            raise InvalidEvent(
                f"{name} forgets event {unknown_id}; it may forget earlier events,"
                f" {_ids_before(state)}"
            )
    for synthetic in forgotten.summaries:
        if synthetic not in state.summaries:
            raise InvalidEvent(
                f"{name} forgets summary {synthetic}, but event {summary_of(synthetic)} is not a"
                " condensation with a summary"
            )
    if event.summary is not None and not event.summary.strip():
        raise InvalidEvent(
            f"{name} has an empty summary; leave the summary out, or describe the forgotten events"
        )
    if event.summary_offset is not None and event.summary_offset < 0:
        raise InvalidEvent(
            f"{name} has summary_offset {event.summary_offset}; give an index of the View, 0 or"
            " more"
        )


def _check_documents(state: State, event: DocumentChanges, newest: Mapping[str, int]) -> None:
    """Check that a change of documents builds on the newest values. ``newest`` maps each document
    to the id of the event with its newest value. ``others`` maps each unchanged document to the id
    of the event with its value. A difference changes an earlier value, and ``base`` is the id of
    the event with that value.
    """
    bases = {name: change["base"] for name, change in event.changed.items() if "base" in change}
    expected = {**bases, **event.others}
    # A whole value or a deletion builds on no earlier value.
    replaced = event.changed.keys() - expected.keys()
    for name in {*newest, *expected} - replaced:
        if expected.get(name) != newest.get(name):
            raise DocumentsChanged(state.conversation, name, state.version)
    change = event.changed.get(ATTRIBUTES, {"deleted": True})
    if "deleted" not in change and (problem := _not_attributes(change.get("value"))):
        raise InvalidEvent(
            f"conversation {state.conversation!r}: {problem}; attributes are a map of names to"
            " texts, whole numbers, booleans or lists of texts, and each change sets the whole map"
        )


def _not_attributes(value: object) -> str:
    """Return why a value cannot be the attributes of a conversation, or an empty text."""
    if not isinstance(value, dict):
        return f"{value!r:.60} is not a map"
    count = sum(len(item) if isinstance(item, list) else 1 for item in value.values())
    if count > _ATTRIBUTES_MAX:
        return (
            f"{count:,} attributes and texts in lists are more than {_ATTRIBUTES_MAX:,}; keep what"
            " no list of conversations needs in a document"
        )
    for name, attribute in value.items():
        if isinstance(attribute, list):
            is_valid = all(isinstance(text, str) for text in attribute)
        else:
            is_valid = isinstance(attribute, str | int)
        if not is_valid:
            return f"attribute {name!r} is {attribute!r:.60}"
    return ""
