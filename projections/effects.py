"""Effects: whether the tool of a call has run, folded from the log and not from a View, so that
nothing forgets it.

An action is the intent, its observation the outcome. An annotation ``MARK`` between the two says
that the tool began; where a runtime stores the action later, it holds the intent. A late outcome is
a message of the environment, beside the observation.

    intended   not begun: any worker may run it
    begun      it runs now: the lease under which it began is not over
    done, failed   it has an outcome
    unknown    it began, and how it ended was never recorded
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from foldlog.eventstore import (
    Action,
    Annotation,
    Event,
    Message,
    Observation,
    ReadTransaction,
    Store,
)
from foldlog.eventstore.inside import has_content

MARK: Final = "foldlog.effect"
"""The name of the annotation that says that the tool of its ``cause`` begins, and the key of what
later events say.
"""
EffectState = Literal["intended", "begun", "done", "failed", "unknown"]
STATES: Final = frozenset(get_args(EffectState))


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of the effect of one call.

    ``call``      the action
    ``key``       names this effect for ever, also to systems outside: 32 hexadecimal digits
    ``state``     ``intended``, ``begun``, ``done``, ``failed`` or ``unknown``
    ``attempts``  how often its tool began
    ``outcome``   what the tool returned or a person said; of an unknown effect what the model was
                  told, or None
    """

    call: Action
    key: str
    state: EffectState
    attempts: int
    outcome: Any = None


@dataclass(slots=True)
class CallTrace:
    """The events of one call: its marks, its observation, and its late outcomes, the newest
    last.
    """

    call: Action
    marks: list[Annotation] = field(default_factory=list)
    observation: Observation | None = None
    late: list[dict[str, Any]] = field(default_factory=list)
    is_told: bool = False
    """Whether a runtime told its model that the call may have run, in the place of its result."""

    def state(self, living: str | None) -> EffectState:
        """Return the state, where ``living`` names the lease of the worker that drives the
        conversation now.
        """
        if self.late:
            return "failed" if self.late[-1].get("is_error") else "done"
        if self.observation is None:
            said = {}
        else:
            said = said_of(self.observation.extras)
        if said.get("state") == "unknown" or (self.is_told and not said):
            return "unknown"
        if self.observation is None:
            return self._state_without_outcome(living)
        if self.observation.is_error and self.marks and not has_content(self.observation):
            return "unknown"  # it was redacted, and nothing says any more that this was no doubt
        return "failed" if self.observation.is_error else "done"

    def _state_without_outcome(self, living: str | None) -> EffectState:
        if not self.marks:
            return "intended"
        mark = self.marks[-1].data
        lease = mark.get("lease") if isinstance(mark, dict) else None
        return "begun" if lease is not None and lease == living else "unknown"

    def is_left_by(self, process: str) -> bool:
        """Return whether another process began it, and left neither an outcome nor a word to the
        model.
        """
        is_open = self.observation is None and not self.late and not self.is_told
        return bool(self.marks) and is_open and self._state_without_outcome(process) == "unknown"

    @property
    def outcome(self) -> Any:
        """What the newest of its outcomes says; None where it has none."""
        if self.late:
            return self.late[-1].get("outcome")
        return None if self.observation is None else self.observation.content


def trace(events: Iterable[Event]) -> dict[int, CallTrace]:
    """Return the calls among these events by their ids, with what the events say of each. Total, as
    a fold is.

    A mark with an intent is of a runtime that stores the call itself only later: the later action
    with its ``call_id`` is the same call, and has the same trace. Cost: the events.
    """
    traces = dict[int, CallTrace]()
    by_call_id = dict[str, int]()
    for event in events:
        match event:
            case Action(source="agent"):
                earlier = None if event.call_id is None else by_call_id.get(event.call_id)
                if earlier is not None and _is_bare_intent(traces[earlier]):
                    traces[event.id] = traces[earlier]
                else:
                    traces[event.id] = CallTrace(event)
                if event.call_id is not None:
                    by_call_id[event.call_id] = event.id
            case Observation():
                called = event.cause
                if called is None and event.call_id is not None:
                    called = by_call_id.get(event.call_id)
                if called in traces:  # an earlier one was taken back, since the call was open again
                    traces[called].observation = event
            case Annotation(name=name, data={"intent": dict(intent)}) if name == MARK:
                traces[event.id] = CallTrace(_intended(event.id, intent), [event])
                by_call_id[str(intent.get("call_id"))] = event.id
            case Annotation(name=name, cause=int(cause)) if name == MARK and cause in traces:
                if isinstance(event.data, dict) and "told" in event.data:
                    traces[cause].is_told = True
                else:
                    traces[cause].marks.append(event)
            case Message(cause=int(cause)) if cause in traces and "outcome" in said_of(event.meta):
                traces[cause].late.append(said_of(event.meta))
    return traces


def said_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what ``meta``, ``extras`` or a mark say of an effect; empty where they say nothing."""
    said = fields.get(MARK)
    return said if isinstance(said, dict) else {}


def key_of(head: bytes) -> str:
    """Return the key of the call whose event has this head. Retries, copies, forks, condensations,
    redactions and changes of the encryption keep it; no other call has it, not even one of an equal
    conversation.
    """
    return head[:16].hex()


def key_of_mark(key: str, attempt: int) -> str:
    """Return the idempotency key under which the mark of an attempt is appended."""
    return f"{MARK} {key} {attempt}"


def key_of_intent(call_id: str) -> str:
    """Return the idempotency key under which the first intent with this id of a call is
    appended.
    """
    return f"{MARK} intent {call_id}"


def first_own(reading: ReadTransaction) -> int:
    """Return the id of the first event that no other conversation had: of a fork, also of one that
    was detached since and has copies of its past.
    """
    return max((origin.version for origin in reading.origins()), default=0)


def begun_among(store: Store, conversation: str, calls: Sequence[Action]) -> frozenset[int]:
    """Return the ids of these calls whose tools began, or may have begun elsewhere. Cost: two reads
    each.
    """

    def has_begun(reading: ReadTransaction, call: Action) -> bool:
        head = reading.head_at(call.id + 1) or b""
        return (
            call.id < first_own(reading) or reading.recall(key_of_mark(key_of(head), 1)) is not None
        )

    def read(reading: ReadTransaction) -> frozenset[int]:
        return frozenset(call.id for call in calls if has_begun(reading, call))

    return store.query(conversation, read) if calls else frozenset()


def in_doubt(events: Sequence[Event]) -> Iterator[int]:
    """Yield the ids of the calls and results of a View of which is not known whether they ran,
    until a later event of the View settles them.
    """
    settled = {said_of(event.meta).get("key") for event in events if isinstance(event, Message)}
    for event in events:
        said = said_of(event.extras) if isinstance(event, Observation) else {}
        if said.get("state") == "unknown" and said.get("key") not in settled:
            yield event.id
            yield from () if event.cause is None else (event.cause,)


def _intended(event_id: int, intent: dict[str, Any]) -> Action:
    call_id = intent.get("call_id")
    arguments = intent.get("arguments")
    return Action(
        id=event_id,
        tool=str(intent.get("tool")),
        arguments=arguments if isinstance(arguments, dict | str) else None,
        call_id=str(call_id),
        shown=False,
    )


def _is_bare_intent(found: CallTrace) -> bool:
    return not found.call.shown and found.observation is None
