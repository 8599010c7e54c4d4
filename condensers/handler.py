"""The command handler: reads a View, has a condenser decide, appends what it decided. It never holds up a writer.

A condenser may take a minute to ask a model, and others may append meanwhile. Its plan is then checked against the
newer View, and not paid for twice: it holds if no other condensation came, what it forgets is still shown, and no
call is parted from an answer that came since. A plan that does not hold is dropped, reported, and made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from condensers.base import AgentModel, Batch, Condensation, Condenser
from condensers.errors import NoCondensationAvailable
from condensers.metadata import CONDENSER_METADATA_KEY, annotation, with_batches
from eventstore import ANY_VERSION, CondensationAction, Event, Store, VersionConflict
from projections import View

__all__ = ["CondenseHandler", "outdated"]


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
        self._reports: dict[str, tuple[Batch, ...]] = {}

    def handle(self, conversation: str) -> View | Condensation:
        """One step: the View to go on with, or a condensation that has been appended; ask again for the View after it.

        What a step has to report without a condensation is appended as an ``Annotation``, unless it says what the last
        one said.

        Raises ``NoCondensationAvailable`` where one is required and impossible, having appended one that is declined:
        the request is answered by it, and the next step goes on. Raises what the store raises, too. Durability: what it
        appended is on disk. Cost: the View, and the condenser's work.
        """
        while True:
            view = self._views.current(conversation)
            try:
                result, batches = self._condenser.step(view, self._agent_llm)
            except NoCondensationAvailable as error:
                if self._decline(conversation, view, error):
                    raise
                continue
            if isinstance(result, View):
                return self._reported(conversation, result, batches)
            appended = self._append(conversation, view, result.action)
            if appended is not None:
                return Condensation(appended)

    def _append(self, conversation: str, view: View, plan: CondensationAction) -> CondensationAction | None:
        """The plan as it was appended; None where it was dropped."""
        planned_at = view.version
        while True:
            try:
                (recorded,) = self._store.append(conversation, plan, expected_version=view.version)
            except VersionConflict:
                meanwhile, view = self._caught_up(conversation, view)
                problem = outdated(plan, meanwhile, view)
                if problem is not None:
                    self._drop(conversation, plan, planned_at, problem)
                    return None
                plan = replace(plan, metadata={**plan.metadata, "planned_at": planned_at})
            else:
                assert isinstance(recorded.event, CondensationAction)
                return recorded.event

    def _drop(self, conversation: str, plan: CondensationAction, planned_at: int, problem: str) -> None:
        batch = {**plan.metadata, "outcome": "dropped", "problem": problem, "planned_at": planned_at}
        before = batch.pop(CONDENSER_METADATA_KEY, [])
        self._store.append(conversation, annotation([*before, batch]), expected_version=ANY_VERSION)

    def _decline(self, conversation: str, view: View, error: NoCondensationAvailable) -> bool:
        """Answers what could not be met. False where another condensation came first, and it may be met after all.

        What the newest event says already is not said again.
        """
        declined = with_batches(
            CondensationAction(
                forgotten_event_ids=(),
                metadata={"condenser": self._condenser.type, "outcome": "declined", "reason": str(error)},
            ),
            error.batches,
        )
        while True:
            (newest,) = self._store.events(conversation, view.version - 1, view.version)
            if isinstance(newest, CondensationAction) and newest.metadata == declined.metadata:
                return True
            try:
                self._store.append(conversation, declined, expected_version=view.version)
            except VersionConflict:
                meanwhile, view = self._caught_up(conversation, view)
                if _condensed(meanwhile):
                    return False
            else:
                return True

    def _reported(self, conversation: str, view: View, batches: tuple[Batch, ...]) -> View:
        """``view`` as it is with the report that belongs to it."""
        if not batches or self._reports.get(conversation) == batches:
            return view
        self._store.append(conversation, annotation(batches), expected_version=ANY_VERSION)
        if len(self._reports) >= _REPORTS_KEPT:
            self._reports.clear()
        self._reports[conversation] = batches
        _, view = self._caught_up(conversation, view)
        return view

    def _caught_up(self, conversation: str, view: View) -> tuple[tuple[Event, ...], View]:
        """What was appended since, and the View with it. Cost: the new events, and once the items of the View."""
        meanwhile = tuple(self._store.events(conversation, start=view.version))
        return meanwhile, view.then(meanwhile)


_REPORTS_KEPT = 1_000
"""Of so many conversations a handler knows what it reported last. One it has forgotten is reported once more."""


def outdated(plan: CondensationAction, meanwhile: Sequence[Event], view: View) -> str | None:
    """Why a plan made before ``meanwhile`` does not hold for ``view``, the View after it; None where it does.

    A request in between, or one that was declined, changes nothing that a plan is made of.
    """
    if condensed := _condensed(meanwhile):
        return f"condensation {condensed[0].id} came first"
    intervals, summaries = plan.forgotten
    ids = {*summaries, *(event_id for first, last in intervals for event_id in range(first, last + 1))}
    gone = ids.difference(event.id for event in view.events)
    if gone:
        return f"{len(gone)} of the {len(ids)} events that it forgets are not shown any more, such as {min(gone)}"
    sent = {view[place].id for place in view.fit_positions}
    parted = sent & (view.then((plan,)).left_behind - view.left_behind)
    if parted:
        return f"it would part {len(parted)} events from their calls or answers, such as {min(parted)}"
    return None


def _condensed(events: Sequence[Event]) -> list[CondensationAction]:
    """The condensations among ``events``, without those that were declined."""
    return [
        event
        for event in events
        if isinstance(event, CondensationAction) and event.metadata.get("outcome") != "declined"
    ]
