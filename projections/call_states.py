"""The *effect* of a call: whether its tool has run. Effects are computed from the log and not from
a View, because a View may forget events.

An action is the intent to call a tool, and its observation is the outcome. An annotation ``MARK``
between the action and the observation records that the tool began. If a runtime stores the action
after the annotation, the annotation contains the intent. A late outcome is a message of the
environment, in addition to the observation.

    intended   the tool has not begun: any worker may run it
    begun      the tool is running: the lease under which it began is still held
    done, failed   the call has an outcome
    unknown    the tool began, but its outcome was never recorded
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeGuard, get_args

from msgspec import Struct

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    Action,
    Annotation,
    Event,
    Message,
    Observation,
    ReadTransaction,
    Store,
)
from foldlog.eventstore.log.redacted import has_content

MARK: Final = "foldlog.effect"
"""The name of the annotation that marks the start of a tool. The observation and a late outcome
contain the fields of the effect under the same name.
"""
APPROVAL: Final = "foldlog.approval"
"""The name of the annotations that record that an approval of a call was asked or decided."""


EffectState = Literal["intended", "begun", "done", "failed", "unknown"]
STATES: Final = frozenset(get_args(EffectState))


def is_approval(event: Event) -> TypeGuard[Annotation]:
    """Return whether the event records that an approval was asked or decided."""
    return isinstance(event, Annotation) and event.name == APPROVAL


class Effect(Struct, frozen=True):
    """The effect of one call.

    ``call``      the action
    ``key``       the name of the effect in all systems: 32 hexadecimal digits, which never change
    ``state``     ``intended``, ``begun``, ``done``, ``failed`` or ``unknown``
    ``attempts``  the number of times that the tool began
    ``outcome``   the result of the tool, or the outcome that a person recorded. In the state
                  ``unknown``, it is the text that the model got in place of a result. It is
                  None if the call has neither
    """

    call: Action
    key: str
    state: EffectState
    attempts: int
    outcome: Any = None


class CallTrace(Struct):
    """The events of one call: its marks, its observation, and its late outcomes and approvals from
    the oldest to the newest. ``key`` is the key of the call.
    """

    call: Action
    key: str
    marks: list[Annotation] = []
    observation: Observation | None = None
    late: list[JsonObject] = []
    approvals: list[Annotation] = []
    is_told: bool = False
    """True if the model was told only that the call may have run."""

    def note(self, annotation: Annotation) -> None:
        """Add an annotation whose cause is the call. Only marks and approvals count."""
        if annotation.name == APPROVAL:
            self.approvals.append(annotation)
        elif annotation.name == MARK:
            if isinstance(annotation.data, dict) and "told" in annotation.data:
                self.is_told = True
            else:
                self.marks.append(annotation)

    def state(self, living: str | None) -> EffectState:
        """Return the state of the effect. ``living`` is the lease of the worker that runs the
        conversation now, or None if no worker runs it.
        """
        if self.late:
            return "failed" if self.late[-1].get("is_error") else "done"
        fields = {} if self.observation is None else effect_fields(self.observation.extras)
        if fields.get("state") == "unknown" or (self.is_told and not fields):
            return "unknown"
        if self.observation is None:
            return self._state_without_outcome(living)
        if self.observation.is_error and self.marks and not has_content(self.observation):
            # The observation was redacted, so no field tells whether the call failed or its outcome
            # is unknown.
            return "unknown"
        return "failed" if self.observation.is_error else "done"

    def _state_without_outcome(self, living: str | None) -> EffectState:
        """Return the state of a call without an observation."""
        if not self.marks:
            return "intended"
        mark = self.marks[-1].data
        lease = mark.get("lease") if isinstance(mark, dict) else None
        return "begun" if lease is not None and lease == living else "unknown"

    def is_left_by_another(self, worker: str) -> bool:
        """Return whether another worker began the call and left it without an outcome. A runtime
        without leases writes the name of its worker into a mark, in place of a lease.
        """
        is_open = self.observation is None and not self.late and not self.is_told
        return bool(self.marks) and is_open and self._state_without_outcome(worker) == "unknown"

    @property
    def outcome(self) -> Any:
        """The newest outcome of the call, or None: see ``Effect``."""
        if self.late:
            return self.late[-1].get("outcome")
        return None if self.observation is None else self.observation.content


def trace(events: Iterable[tuple[Event, bytes]]) -> dict[int, CallTrace]:
    """Return the traces of the calls among ``events``, which have their heads, by the id of the
    call.

    A runtime may record the start of a tool before it stores the action. The mark then contains the
    intent, and the trace has the id of the mark. A later action with the same ``call_id`` gets the
    same trace.
    """
    traces = dict[int, CallTrace]()
    by_call_id = dict[str | None, int]()
    for event, head in events:
        match event:
            case Action(source="agent"):
                earlier = None if event.call_id is None else by_call_id.get(event.call_id)
                if earlier is not None and _is_bare_intent(traces[earlier]):
                    traces[event.id] = traces[earlier]
                else:
                    traces[event.id] = CallTrace(event, key_of(head))
                if event.call_id is not None:
                    by_call_id[event.call_id] = event.id
            case Observation():
                called = event.cause
                if called is None:
                    called = by_call_id.get(event.call_id)
                if called in traces:
                    # If the call already has an observation, that observation was retracted, and
                    # this one answers the call again.
                    traces[called].observation = event
            case Annotation(name=name, data={"intent": dict(intent)}) if name == MARK:
                call = _call_of_intent(event.id, intent)
                traces[event.id] = CallTrace(call, key_of(head), [event])
                by_call_id[str(intent.get("call_id"))] = event.id
            case Annotation(cause=int(cause)) if cause in traces:
                traces[cause].note(event)
            case Message(cause=int(cause)) if cause in traces and "outcome" in effect_fields(
                event.meta
            ):
                traces[cause].late.append(effect_fields(event.meta))
    return traces


def effect_fields(fields: JsonObject) -> JsonObject:
    """Return the fields of the effect in ``extras`` or ``meta`` of an event, or an empty map."""
    effect = fields.get(MARK)
    return effect if isinstance(effect, dict) else {}


def key_of(head: bytes) -> str:
    """Return the key of the call whose event has the head ``head``. The key stays the same in
    retries, copies and forks, and after condensations, redactions and changes of the encryption. No
    other call has the same key, not even an equal call in an equal conversation.
    """
    return head[:16].hex()


def key_of_mark(key: str, attempt: int) -> str:
    """Return the idempotency key of the mark of an attempt, from 1 on."""
    return f"{MARK} {key} {attempt}"


def key_of_intent(call_id: str) -> str:
    """Return the idempotency key of a mark that contains the intent."""
    return f"{MARK} intent {call_id}"


def first_own(reading: ReadTransaction) -> int:
    """Return the id of the first event that the conversation itself recorded. A fork shares the
    events before this id with its parent, and a detached conversation has copies of them.
    """
    return max((origin.version for origin in reading.origins()), default=0)


def begun_among(store: Store, conversation: str, calls: Sequence[Action]) -> frozenset[int]:
    """Return the ids of the calls whose tools began. A call that a fork shares with its parent
    counts as begun.
    """

    def has_mark(reading: ReadTransaction, call: Action) -> bool:
        head = reading.head_at(call.id + 1) or b""
        return reading.recall(key_of_mark(key_of(head), 1)) is not None

    def read(reading: ReadTransaction) -> frozenset[int]:
        shared_until = first_own(reading)
        return frozenset(
            call.id for call in calls if call.id < shared_until or has_mark(reading, call)
        )

    return store.query(conversation, read) if calls else frozenset()


def in_doubt(events: Sequence[Event]) -> Iterator[int]:
    """Yield the ids of calls with an unknown outcome, and the ids of their results. Leave out a
    call if a message in ``events`` reports how the call ended.
    """
    keys = [effect_fields(event.meta).get("key") for event in events if isinstance(event, Message)]
    # A key is a text, but an event may hold any value in its place.
    settled = {key for key in keys if type(key) is str}
    for event in events:
        if not isinstance(event, Observation):
            continue
        fields = effect_fields(event.extras)
        key = fields.get("key")
        if fields.get("state") == "unknown" and not (type(key) is str and key in settled):
            yield event.id
            if event.cause is not None:
                yield event.cause


def _call_of_intent(event_id: int, intent: JsonObject) -> Action:
    """Return the call that a mark with an intent stands for until its action is stored."""
    call_id = intent.get("call_id")
    arguments = intent.get("arguments")
    return Action(
        id=event_id,
        tool=str(intent.get("tool")),
        arguments=arguments if isinstance(arguments, dict | str) else None,
        call_id=str(call_id),
        shown=False,
    )


def _is_bare_intent(call_trace: CallTrace) -> bool:
    """Return whether the trace was made from a mark with an intent, and has no observation yet."""
    return not call_trace.call.shown and call_trace.observation is None
