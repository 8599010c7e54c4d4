"""The View: the events of a conversation that are shown to a model at one version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, overload

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
)
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import count
from foldlog.eventstore.log.appending import NOTHING_SEEN, Seen
from foldlog.projections.condensations import StoredCondensations
from foldlog.projections.fold import ViewState, fold
from foldlog.projections.items import Items
from foldlog.projections.messages.growing import Rendered, Rendering
from foldlog.projections.messages.rendering import (
    copy_messages,
    rendering,
    system_prompt,
    with_positions,
)
from foldlog.projections.messages.requests import ModelRequest, digest
from foldlog.projections.messages.turns import Dialect, check_dialect
from foldlog.projections.units import Units, cut_positions, fit_positions, open_positions

T = TypeVar("T")


@dataclass(frozen=True)
class View:
    """The events of a conversation that are shown to a model at one version, in their order. A View
    also contains the condensations that made it, and a flag that says whether a condensation was
    requested.

    A View is immutable, except for the maps inside its events. Do not change these maps: Python
    cannot freeze maps, and other Views share these maps.

    A View is a sequence of events: ``len(view)``, ``view[-1]``, ``view[2:5]`` (a tuple), and
    iteration. Summaries are ``CondensationSummary`` events with ids below -1. Two Views are equal
    if they show equal events. If the same events are added to two equal Views, they stay equal.

    ``state``          the fold's state, from which further events continue
    ``condensations``  all condensations, from the oldest to the newest
    ``dialect``        the default form of ``to_messages()``
    ``kept_from``      a condenser must keep the event with this id and all later events; if None,
                       a condenser may forget every event
    ``kept``           the ids of further events that a condenser must keep
    ``units_before_masks``  the units of the View whose events ``with_masks`` replaced, since masks
                       do not change units; None if there are no masks
    """

    state: ViewState
    condensations: Sequence[CondensationAction] = field(default=(), compare=False, repr=False)
    """In a View from a store, the condensations are read from the log when they are used."""
    dialect: Dialect = field(default="litellm", compare=False, repr=False)
    """The form of the messages if ``to_messages`` gets no dialect. If the store was opened with the
    agent's model, its Views have the model's dialect.
    """
    kept_from: int | None = field(default=None, compare=False, repr=False)
    kept: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    units_before_masks: Units | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> View:
        """Return the View of a conversation: the fold of all its events, from the first event on.
        The events are not checked against the rules of an append. A ``Condensation`` among the
        events is replaced by its action.

        Raises the errors of ``foldlog.projections.fold``.
        """
        state, condensations, _ = fold(events)
        return cls(state, condensations)

    def then(self, events: Iterable[Event]) -> View:
        """Return the View after the next events of the conversation. Cost: one pass over the next
        events. A condensation also costs one pass over the View, and a retraction one pass over the
        restored View.
        """
        state, condensations, older = fold(events, self.state)
        return View(
            state,
            _join(self.condensations if older is None else older, condensations),
            self.dialect,
        )

    def with_events(self, events: Iterable[Event]) -> View:
        """Return a View with other events, for example with some events masked or left out. The
        other fields of the View stay the same.
        """
        items = Items(list(events), self.state.items)
        left_behind = self.left_behind
        if left_behind:
            left_behind = left_behind.intersection(event.id for event in items)
        state = ViewState(
            self.version,
            items,
            self.unhandled_condensation_request,
            left_behind,
            past=self.state.past,
        )
        return View(state, self.condensations, self.dialect, self.kept_from, self.kept)

    def with_masks(self, masks: Mapping[int, Event]) -> View:
        """Return a View with other events at the indices in ``masks``. A masking event must have
        the id of the masked event, and must belong to the same unit.
        """
        events = list(self.events)
        for index, event in masks.items():
            events[index] = event
        return replace(self.with_events(events), units_before_masks=self.units)

    @property
    def events(self) -> tuple[Event, ...]:
        """The shown events, in their order. Repeated reads return the same tuple."""
        return self.state.events

    @property
    def version(self) -> int:
        """The number of folded events of the conversation."""
        return self.state.version

    @property
    def seen(self) -> Seen:
        """What this View shows of its conversation. Pass it as ``expected_version`` of an append
        that repeats or answers events of the View: the append is refused if an event was appended,
        or redacted, since the View was read.
        """
        past = self.state.past
        if past is None:
            return NOTHING_SEEN.at(self.version)
        return Seen(past.key, self.version, past.redactions)

    @property
    def unhandled_condensation_request(self) -> bool:
        """True if a condensation was requested and none has followed."""
        return self.state.unhandled_condensation_request

    @property
    def left_behind(self) -> frozenset[int]:
        """The ids of events that stay in the View, although a condensation forgot other events of
        their unit. These events are not sent to a model.
        """
        return self.state.left_behind

    @property
    def summary_event(self) -> CondensationSummary | None:
        """The newest summary of a condensation in the View, or None."""
        shown = (
            event
            for event in self.events
            if isinstance(event, CondensationSummary) and event.id < 0
        )
        return min(shown, key=lambda event: event.id, default=None)

    @property
    def forgotten_event_ids(self) -> frozenset[int]:
        """The ids of all events and summaries that the View's condensations forgot. A condensation
        imported from OpenHands V0 has ids of its source here. Cost: reading the condensations, and
        one pass over the forgotten ids.
        """
        return frozenset(
            event_id
            for action in self.condensations
            for event_id in action.forgotten_event_ids or ()
        )

    @cached_property
    def cut_points(self) -> tuple[int, ...]:
        """The indices, from 0 to ``len(view)``, at which the View may be cut. If ``i`` and ``j``
        are two of these indices and ``view[i:j]`` is forgotten, the other events can still be sent.
        Cost: one pass over the events of the View.
        """
        return cut_positions(len(self.events), self.units)

    @cached_property
    def fit_positions(self) -> tuple[int, ...]:
        """The indices of the events that can be sent to a model: see ``well_formed``."""
        return tuple(fit_positions(self.units))

    @property
    def open_calls(self) -> tuple[Action, ...]:
        """The actions in the View that no observation answers, in their order. The actions are
        copies, so a tool may change their arguments.

        An open call is sent to a model only after all calls of its response have observations.
        """
        return deepcopy(self._open_calls)

    @cached_property
    def _open_calls(self) -> tuple[Action, ...]:
        """The actions of ``open_calls``, without copies."""
        return tuple(
            action
            for position in open_positions(self.events, self.units)
            if isinstance(action := self[position], Action) and action.source == "agent"
        )

    @property
    def reply_due(self) -> bool:
        """Whether the model should be asked next: no call is open, and the newest event that is
        sent is a message to the model, or a result. False if a summary is the newest event, because
        no condenser forgets an event that the model has not seen.

        After a crash, this says whether the reply had been recorded. Cost: as ``open_calls``.
        """
        if self._open_calls:
            return False
        for position in reversed(self.fit_positions):
            match self[position]:
                case Observation():
                    return True
                case Message(source=source):
                    return source != "agent"
                case Action() | CondensationSummary():
                    return False
        return False

    @property
    def units(self) -> Units:
        """The indices of events that belong together, such as a call and its observation."""
        return self.state.units if self.units_before_masks is None else self.units_before_masks

    @property
    def system_prompt(self) -> str:
        """The text of the system prompts in the View, or an empty text. For Anthropic's server, the
        system prompt is a separate field beside the messages.
        """
        return system_prompt(self.events)

    def rendered(self, dialect: Dialect | None = None) -> list[Rendered]:
        """Return the messages of ``to_messages``, each with the indices of the events from which it
        was made.
        """
        dialect = self.dialect if dialect is None else check_dialect(dialect)
        shared = self.shared_messages(dialect)
        return with_positions(copy_messages(shared, self.events, dialect), shared)

    def shared_messages(self, dialect: Dialect) -> list[Rendered]:
        """Return the messages in ``dialect``, without marks for a prompt cache. Do not change the
        returned messages, because the next View shares them. Cost: rendering the new events and the
        last reply before them.
        """
        return self._read_rendering(dialect, lambda cached: cached.messages.copy())

    def _read_rendering(self, dialect: Dialect, read: Callable[[Rendering], T]) -> T:
        """Return what ``read`` returns for the messages of this View in ``dialect``."""
        renderings = self.state.items.renderings
        # ``pop`` is atomic, so only one of several threads gets the cached rendering.
        cached = renderings.pop(dialect, None) or rendering(dialect)
        cached.follow(self.events, self.fit_positions)
        value = read(cached)
        # All empty Views share their items, so nothing is cached there.
        if cached.messages:
            renderings[dialect] = cached
        return value

    def to_messages(self, dialect: Dialect | None = None) -> list[JsonObject]:
        """Return the messages to send to a model, made from the events that a model's server
        accepts.

        ``dialect`` is the form that the model's server accepts: ``openai``, ``openai-reasoning``,
        ``litellm``, ``anthropic``, ``anthropic-cached`` or ``responses``. The default is
        ``view.dialect``. Every tool call is answered right after the message that contains it. The
        messages are copies, so the caller may change them. Messages for Anthropic do not contain
        the system prompt: send ``view.system_prompt`` beside them. Messages in the dialect
        ``responses`` are the items for the API's ``input``. Raises ``InvalidArgument`` if the
        dialect is unknown. The beginning of a prompt is rendered once, and the next View repeats it
        byte for byte. Cost: copying the messages, and rendering the events since the last rendered
        reply.
        """
        dialect = self.dialect if dialect is None else check_dialect(dialect)
        return copy_messages(self.shared_messages(dialect), self.events, dialect)

    def request(
        self,
        dialect: Dialect | None = None,
        *,
        tools: Sequence[JsonMap] = (),
        **parameters: Any,
    ) -> ModelRequest:
        """Return the request to send to a model: ``messages`` as in ``to_messages``, ``system`` for
        Anthropic, ``tools`` and ``parameters``, such as ``model``.

        Pass the request to ``History.append_reply``, which records its fingerprint with the reply.
        ``History.sent_request`` then says later whether the same request can still be made. Raises
        ``InvalidArgument`` for a parameter that may hold a secret, such as ``api_key``. A tool or a
        parameter that is not JSON is refused by ``append_reply``. Cost: as ``to_messages``, and
        hashing the messages since the last request.
        """
        dialect = self.dialect if dialect is None else check_dialect(dialect)
        shared, messages_digest = self._read_rendering(
            dialect, lambda cached: (cached.messages.copy(), cached.digest())
        )
        system = self.system_prompt if dialect.startswith("anthropic") else ""
        return ModelRequest(
            copy_messages(shared, self.events, dialect),
            dialect,
            self.version,
            digest(system, messages_digest).hex(),
            system,
            tools,
            parameters,
            self.state.past.conversation if self.state.past else "",
        )

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events in their order. If the View has fewer events, return all
        events. Cost: reading the returned events.

        Raises ``InvalidArgument`` if ``count`` is negative.
        """
        check_whole("count", count, 0)
        state = self.state
        start = max(state.count - count, 0)
        # Without a summary in the register, no tuple of all events has to be made.
        if state.register is None:
            return state.items[start:]
        return self.events[start:]

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
        return f"<View of {count(len(self), 'event')} at version {self.version}{request}>"


def well_formed(view: View) -> View:
    """Return the View without the events that a model would refuse: actions without observations,
    observations without actions, incomplete parallel calls, and broken tool loops. A second call of
    ``well_formed`` changes nothing. Cost: one pass over the events of the View.
    """
    positions = view.fit_positions
    if len(positions) == len(view):
        return view
    return view.with_events(view.events[position] for position in positions)


def _join(
    older: Sequence[CondensationAction], newer: Sequence[CondensationAction]
) -> Sequence[CondensationAction]:
    """Return all condensations in their order. Stored condensations are not read."""
    if not newer:
        return older
    if isinstance(older, StoredCondensations):
        return replace(older, newer=(*older.newer, *newer))
    return (*older, *newer)
