"""The View: the events that the model is shown now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

from foldlog.eventstore import Action, CondensationAction, CondensationSummary, Event
from foldlog.eventstore.inside import check_whole
from foldlog.projections.condensations import StoredCondensations
from foldlog.projections.fold import ViewState, fold
from foldlog.projections.items import Items
from foldlog.projections.messages import (
    Dialect,
    Rendered,
    copy_messages,
    rendering,
    system_prompt,
    with_positions,
)
from foldlog.projections.messages.turns import checked
from foldlog.projections.units import Units, cut_positions, fit_positions, open_positions, units


@dataclass(frozen=True)
class View:
    """The ordered events that a model is shown, with the request flag and the condensations that
    made the View.

    A View is immutable, except for the maps inside its events. Do not change these maps: Python
    cannot freeze them, and other Views share them.

    A sequence of events: ``len(view)``, ``view[-1]``, ``view[2:5]`` (a tuple), iteration. Summaries
    are ``CondensationSummary`` events with ids below -1. Two Views are equal if they show equal
    events, and stay equal after equal further events.

    ``state``          the fold's state, from which further events continue
    ``condensations``  all condensations, oldest first
    ``dialect``        the form of ``to_messages()`` if no other is named
    ``kept_from``      a condenser must keep every event with this id or a later one; None: it may
                       forget every event
    ``kept``           the ids of further events that it must keep
    """

    state: ViewState
    condensations: Sequence[CondensationAction] = field(default=(), compare=False, repr=False)
    """All condensations, the oldest first. In a View from a store, an iteration reads the
    condensations from the log.
    """
    dialect: Dialect = field(default="litellm", compare=False, repr=False)
    """The form of the messages if ``to_messages`` names no other form. If the store knows the
    agent's model, its Views have the form for this model.
    """
    kept_from: int | None = field(default=None, compare=False, repr=False)
    kept: frozenset[int] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> View:
        """Return the View of a conversation: the fold of all its events, from the first on. The
        events are not checked against the rules of an append. A ``Condensation`` among the events
        stands for its action.

        Raises the errors of ``foldlog.projections.fold``.
        """
        state, condensations, _ = fold(events)
        return cls(state, condensations)

    def then(self, events: Iterable[Event]) -> View:
        """Return the View after the next events of the conversation. Cost: one pass over the next
        events; for a condensation also one pass over this View; for a retraction also one over the
        View to which it returns.
        """
        state, condensations, older = fold(events, self.state)
        return View(
            state,
            _joined(self.condensations if older is None else older, condensations),
            self.dialect,
        )

    def with_events(self, events: Iterable[Event]) -> View:
        """Return a View with other events, for example with some events masked or left out. Its
        other fields equal the fields of this View.
        """
        items = Items(list(events), self.state.items)
        left_behind = self.left_behind and self.left_behind.intersection(
            event.id for event in items
        )
        state = ViewState(
            self.version,
            items,
            self.unhandled_condensation_request,
            left_behind,
            past=self.state.past,
        )
        return View(state, self.condensations, self.dialect, self.kept_from, self.kept)

    def with_masks(self, masks: Mapping[int, Event]) -> View:
        """Return a View with other events at these indices. Each new event must have the id of the
        event that it masks, and belong to the masked event's unit.
        """
        events = list(self.events)
        for index, event in masks.items():
            events[index] = event
        view = self.with_events(events)
        vars(view)["units"] = self.units
        return view

    @cached_property
    def events(self) -> tuple[Event, ...]:
        return self.state.events

    @property
    def version(self) -> int:
        """The number of events of the conversation that were folded."""
        return self.state.version

    @property
    def unhandled_condensation_request(self) -> bool:
        """Whether a condensation was requested and no condensation was made since."""
        return self.state.unhandled_condensation_request

    @property
    def left_behind(self) -> frozenset[int]:
        """The ids of events that stay although a condensation forgot another part of their unit. No
        model is sent these events.
        """
        return self.state.left_behind

    @property
    def summary_event(self) -> CondensationSummary | None:
        """The newest summary of a condensation that the View shows; None if the View shows no
        summary.
        """
        shown = (
            event
            for event in self.events
            if isinstance(event, CondensationSummary) and event.id < 0
        )
        return min(shown, key=lambda event: event.id, default=None)

    @property
    def forgotten_event_ids(self) -> frozenset[int]:
        """The ids of all events and summaries that the View's condensations forgot. Cost: reading
        the condensations, and one pass over the forgotten ids.
        """
        return frozenset(
            event_id
            for action in self.condensations
            for event_id in action.forgotten_event_ids or ()
        )

    @cached_property
    def cut_points(self) -> tuple[int, ...]:
        """The indices, from 0 to ``len(view)``, at which the View may be cut: if ``view[i:j]`` is
        forgotten for two of these indices, all other events can still be sent. Cost: one pass over
        the events of the View.
        """
        return cut_positions(len(self.events), self.units)

    @cached_property
    def fit_positions(self) -> tuple[int, ...]:
        """Indices of the events that can be sent to a model: see ``well_formed``."""
        return tuple(fit_positions(self.units))

    @property
    def open_calls(self) -> tuple[Action, ...]:
        """The actions in the View that no observation answers, in order. The actions are copies, so
        a tool may change their arguments.

        A model is shown neither an open call nor the other calls of its response until all calls of
        the response have observations.
        """
        return deepcopy(self._open_calls)

    @cached_property
    def _open_calls(self) -> tuple[Action, ...]:
        return tuple(
            action
            for position in open_positions(self.events, self.units)
            if isinstance(action := self[position], Action) and action.source == "agent"
        )

    @cached_property
    def units(self) -> Units:
        """The positions of the events that belong together: calls with their observations, tool
        loops.
        """
        if self.state.register is not None:
            return units(self.events, self.left_behind)
        return self.state.items.units(self.left_behind)

    @property
    def system_prompt(self) -> str:
        """The text of the system prompts in the View; empty if the View has no system prompt. For
        Anthropic's server this text is a separate field beside the messages.
        """
        return system_prompt(self.events)

    def rendered(self, dialect: Dialect | None = None) -> list[Rendered]:
        """Return the messages of ``to_messages``, each with the indices of the events from which it
        was made.
        """
        dialect = self.dialect if dialect is None else checked(dialect)
        shared = self.shared_messages(dialect)
        return with_positions(copy_messages(shared, self.events, dialect), shared)

    def shared_messages(self, dialect: Dialect) -> list[Rendered]:
        """Return the messages of a dialect without marks for a prompt cache. Do not change the
        messages: the next View shares them. Cost: rendering the events that were not rendered yet,
        and the events since the last reply before these events.
        """
        renderings = self.state.items.renderings
        # ``pop`` is atomic: of several threads only one gets the cached rendering.
        cached = renderings.pop(dialect, None) or rendering(dialect)
        cached.follow(self.events, self.fit_positions)
        messages = cached.messages.copy()
        if messages:  # all empty Views share their items, so nothing is cached there
            renderings[dialect] = cached
        return messages

    def to_messages(self, dialect: Dialect | None = None) -> list[dict[str, Any]]:
        """Return the messages to send to a model, made of the events that a model's server accepts.

        ``dialect`` is the form that the model's server accepts: ``openai``, ``openai-reasoning``,
        ``litellm``, ``anthropic``, ``anthropic-cached`` or ``responses``; by default
        ``view.dialect``. Every tool call is answered right after the message that makes it. The
        messages are copies, which the caller may change. Messages for Anthropic do not have the
        system prompt: send ``view.system_prompt`` beside them. Messages in the dialect
        ``responses`` are the items for the API's ``input``. Raises ``ValueError`` for another
        dialect. The beginning of a prompt is made only once: the next View repeats this beginning
        byte for byte. Cost: copying the messages, and rendering the events since the last reply
        that was rendered before.
        """
        dialect = self.dialect if dialect is None else checked(dialect)
        return copy_messages(self.shared_messages(dialect), self.events, dialect)

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events, in order; all events if the View has fewer. Cost:
        reading the returned events.

        Raises ``InvalidArgument`` for a negative number.
        """
        check_whole("count", count, 0)
        state = self.state
        if state.register is None:
            return state.items[max(state.count - count, 0) :]
        return self.events[-count or len(self) :]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View):
            return self.state == other.state
        return NotImplemented

    def __len__(self) -> int:
        return self.state.count

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        return self.events[index]

    def __repr__(self) -> str:
        if self.unhandled_condensation_request:
            request = ", condensation requested"
        else:
            request = ""
        return f"<View of {len(self)} events at version {self.version}{request}>"


def well_formed(view: View) -> View:
    """Return the View without the events that a model would refuse: actions without observations,
    observations without actions, incomplete parallel calls, broken tool loops. ``well_formed`` of
    the returned View changes nothing. Cost: one pass over the events of the View.
    """
    positions = view.fit_positions
    if len(positions) == len(view):
        return view
    return view.with_events(view.events[position] for position in positions)


def _joined(
    older: Sequence[CondensationAction], newer: Sequence[CondensationAction]
) -> Sequence[CondensationAction]:
    if not newer:
        return older
    if isinstance(older, StoredCondensations):
        return replace(older, newer=(*older.newer, *newer))
    return (*older, *newer)
