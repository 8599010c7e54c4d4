"""The command handler: reads a View, has a condenser decide, appends what it decided. It never holds up a writer.

A condenser may take a minute to ask a model, and others may append meanwhile. Its plan is then checked against the
newer View, and not paid for twice: it holds if no other condensation came, what it forgets is still shown, and no
call is parted from an answer that came since. A plan that does not hold is dropped, reported, and made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from condensers.base import AgentModel, Batch, Condensation, Condenser
from condensers.errors import CondenserError, NoCondensationAvailable
from condensers.metadata import CONDENSER_METADATA_KEY, annotation, with_batches
from eventstore import ANY_VERSION, CondensationAction, Event, Recorded, Snapshot, Store, VersionConflict
from projections import View

__all__ = ["CondenseHandler", "Outdated"]


class CurrentViews(Protocol):
    """Where the handler gets a conversation's View: ``projections.Views``."""

    def current(self, conversation: str) -> View: ...


class CondenseHandler:
    """Condenses conversations of one store. Any number of threads, and of handlers, may do so at once.

    ``agent_llm`` is the model whose room the View must fit; without it only events are counted.
    """

    def __init__(
        self, store: Store, views: CurrentViews, condenser: Condenser, agent_llm: AgentModel | None = None
    ) -> None:
        self._store, self._views, self._condenser, self._agent_llm = store, views, condenser, agent_llm
        self._masks: dict[str, tuple[Batch, ...]] = {}

    def handle(self, conversation: str) -> View | Condensation:
        """One step: the View to go on with, or a condensation that has been appended; ask again for the View after it.

        What a step has to report without a condensation is appended as an ``Annotation``; a mask only where it differs
        from the one before.

        Raises ``NoCondensationAvailable`` where one is required and impossible, having appended one that is declined:
        the request is answered by it, and the next step goes on. Raises what the store raises, too. Durability: what it
        appended is on disk. Cost: the View, and the condenser's work.
        """
        while True:
            view = self._views.current(conversation)
            try:
                result, batches = self._condenser.step(view, self._agent_llm)
            except NoCondensationAvailable as error:
                if self._declined(conversation, view, error):
                    raise
                continue
            if isinstance(result, View):
                return self._reported(conversation, result, batches)
            try:
                return Condensation(self._append(conversation, view, result.action, check_plan))
            except Outdated as error:
                self._drop(conversation, result.action, view.version, str(error))

    def _append(self, conversation: str, view: View, action: CondensationAction, check: _Check) -> CondensationAction:
        """The condensation as it was appended. Raises ``Outdated`` where others came first and ``check`` says so.

        Where others are always quicker it is checked in the transaction that appends it.
        """
        planned_at = view.version
        for _ in range(_CONFLICTS_MAX):
            try:
                return _condensation(self._store.append(conversation, action, expected_version=view.version))
            except VersionConflict:
                meanwhile = tuple(self._store.events(conversation, start=view.version))
                view = view.then(meanwhile)
                check(action, meanwhile, view)
                action = replace(action, metadata={**action.metadata, "planned_at": planned_at})

        def guard(snapshot: Snapshot) -> None:
            meanwhile = tuple(snapshot.events(view.version))
            check(action, meanwhile, view.then(meanwhile))

        return _condensation(self._store.append(conversation, action, expected_version=ANY_VERSION, guard=guard))

    def _drop(self, conversation: str, plan: CondensationAction, planned_at: int, problem: str) -> None:
        batch = {**plan.metadata, "outcome": "dropped", "problem": problem, "planned_at": planned_at}
        before = batch.pop(CONDENSER_METADATA_KEY, [])
        self._store.append(conversation, annotation([*before, batch]), expected_version=ANY_VERSION)

    def _declined(self, conversation: str, view: View, error: NoCondensationAvailable) -> bool:
        """Answers what could not be met. False where another condensation came first, and it may be met after all.

        What the newest event says already is not said again.
        """
        metadata = {"condenser": self._condenser.type, "outcome": "declined", "reason": str(error)}
        declined = with_batches(CondensationAction(forgotten_event_ids=(), metadata=metadata), error.batches)
        (newest,) = self._store.events(conversation, view.version - 1, view.version)
        if isinstance(newest, CondensationAction) and newest.metadata == declined.metadata:
            return True
        try:
            self._append(conversation, view, declined, check_nothing_else_condensed)
        except Outdated:
            return False
        return True

    def _reported(self, conversation: str, view: View, batches: tuple[Batch, ...]) -> View:
        """``view`` as it is with the report that belongs to it."""
        if not batches:
            return view
        if all("masked" in batch for batch in batches):  # the same at every step, until another event is masked
            if self._masks.get(conversation) == batches:
                return view
            if len(self._masks) >= _MASKS_KEPT:
                self._masks.clear()
            self._masks[conversation] = batches
        self._store.append(conversation, annotation(batches), expected_version=ANY_VERSION)
        return view.then(self._store.events(conversation, start=view.version))


_CONFLICTS_MAX = 5

_MASKS_KEPT = 1_000
"""Of so many conversations a handler knows which mask it reported last. One it has forgotten is reported once more."""

_Check = Callable[[CondensationAction, Sequence[Event], View], None]
"""Raises ``Outdated`` where a condensation does not hold any more, given what came meanwhile and the View after it."""


class Outdated(CondenserError):
    """What was planned does not fit what others did meanwhile. It was not appended; plan anew."""


def check_plan(plan: CondensationAction, meanwhile: Sequence[Event], view: View) -> None:
    """Raises ``Outdated`` unless ``plan``, made before ``meanwhile``, holds for ``view``, the View after it.

    A request in between, or a condensation that was declined, changes nothing that a plan is made of.
    """
    check_nothing_else_condensed(plan, meanwhile, view)
    intervals, summaries = plan.forgotten
    ids = {*summaries, *(event_id for first, last in intervals for event_id in range(first, last + 1))}
    gone = ids.difference(event.id for event in view.events)
    if gone:
        raise Outdated(f"{len(gone)} of the {len(ids)} events that it forgets are not shown now, such as {min(gone)}")
    sent = {view[place].id for place in view.fit_positions}
    parted = sent & (view.then((plan,)).left_behind - view.left_behind)
    if parted:
        raise Outdated(f"it would part {len(parted)} events from their calls or answers, such as {min(parted)}")


def check_nothing_else_condensed(_: CondensationAction, meanwhile: Sequence[Event], __: View) -> None:
    """Raises ``Outdated`` where a condensation came meanwhile that was not declined."""
    for event in meanwhile:
        if isinstance(event, CondensationAction) and event.metadata.get("outcome") != "declined":
            raise Outdated(f"condensation {event.id} came first")


def _condensation(recorded: Sequence[Recorded]) -> CondensationAction:
    (only,) = recorded
    assert isinstance(only.event, CondensationAction)
    return only.event
