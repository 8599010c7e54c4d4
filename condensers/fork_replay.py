"""Replay a history from a version on with another condenser, as a fork. Every tool can then show it beside the
original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from foldlog.condensers.base import AgentModel, Condensation, Condenser
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.replays import begins_a_turn
from foldlog.eventstore import (
    ANY_VERSION,
    NOT_RECORDED,
    Action,
    CondensationAction,
    DocumentChanges,
    Event,
    InvalidArgument,
    Redaction,
    Retraction,
    Store,
    UnknownEvent,
)
from foldlog.projections import Views
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import effective, intervals_kept, target

_NOT_REPLAYED = (CondensationAction, Retraction, Redaction, DocumentChanges, UnknownEvent)


class ForkReplay(NamedTuple):
    """The outcome of a replay: the fork and its version, its condensations, how often a condensation was required and
    impossible, and the events of the history that the fork leaves out (without condensations and retractions).
    """

    conversation: str
    version: int
    condensations: int
    declined: int
    left_out: tuple[Event, ...]


def replay_as_fork(
    store: Store,
    views: Views,
    conversation: str,
    at: int,
    fork: str,
    condenser: Condenser,
    agent_llm: AgentModel | None = None,
    on_event: Callable[[int], object] = lambda event_id: None,
) -> ForkReplay:
    """Begin the fork ``fork`` of a conversation at version ``at``, and append the later events of the conversation,
    with the condensations of ``condenser`` in the place of the recorded ones.

    The condenser is asked wherever the agent's model was called. Events that a retraction took back, changes of
    documents and events of unknown kinds are left out. Raises ``InvalidArgument`` if a later retraction returns to a
    version before ``at``, and the errors of ``Store.fork`` and of the condenser. If it fails, the fork keeps the events
    appended so far. Durability: each step is on disk. Cost: the events since ``at``, each as an append, and the
    condenser's work.
    """
    version = store.conversation(conversation).version
    kept = store.query(conversation, lambda read: _kept(conversation, list(read.structural_events()), at, version))
    store.fork(conversation, at, fork)
    handler = CondenseHandler(store, views, condenser, agent_llm)
    ids: dict[int, int] = {}
    waiting: list[Event] = []
    condensations = declined = 0
    left_out: list[Event] = []
    response_id: str | None = None

    def append() -> None:
        new = [_moved(event, at, ids) for event in waiting]
        for old, recorded in zip(waiting, store.append(fork, new, expected_version=ANY_VERSION), strict=True):
            ids[old.id] = recorded.id
        waiting.clear()

    for event in store.events(conversation, at, version):
        on_event(event.id)
        if not contains(kept, event.id) or isinstance(event, _NOT_REPLAYED):
            if contains(kept, event.id) and not isinstance(event, CondensationAction | Retraction):
                left_out.append(event)
            continue
        if begins_a_turn(event, response_id):
            if waiting:
                append()
            for made in _condensed(handler, fork):
                condensations += made
                declined += not made
        response_id = event.response_id if isinstance(event, Action) else None
        # A cause is the id of an event that is recorded.
        if waiting and event.cause is not None and event.cause >= waiting[0].id:
            append()
        waiting.append(event)
    if waiting:
        append()
    return ForkReplay(fork, store.version(fork), condensations, declined, tuple(left_out))


def _kept(conversation: str, structural: list[Event], at: int, version: int) -> tuple[tuple[int, int], ...]:
    """Return the intervals of ids that no retraction took back. Raises ``InvalidArgument``, see ``replay_as_fork``."""
    earliest = min((target(each) for each in effective(structural, version) if each.id >= at), default=at)
    if earliest < at:
        raise InvalidArgument(
            f"conversation {conversation!r} later takes back events from {earliest} on, so that a replay from version "
            f"{at} would begin with events that are taken back; replay from version {earliest} or an earlier one"
        )
    return tuple(intervals_kept(structural, version))


def _moved(event: Event, at: int, ids: dict[int, int]) -> Event:
    """Return an event to append to the fork. The cause of an event before the fork stays; others are in ``ids``."""
    cause = event.cause
    if cause is not None and cause >= at:
        cause = ids.get(cause)
    return replace(event, id=NOT_RECORDED, cause=cause)


def _condensed(handler: CondenseHandler, fork: str) -> Iterator[bool]:
    """Yield for each step until the View can be sent: True for a condensation, False if one is required and
    impossible.
    """
    try:
        while isinstance(handler.handle(fork), Condensation):
            yield True
    except NoCondensationAvailable:
        yield False
