"""Open tool calls, and their effects: a tool that began is not run twice.

A worker that holds the lease begins the effect of an open call, runs the tool, and sends the
outcome. If the answer to a begin is lost, the worker sends the same ``Idempotency-Key`` again.
"""

from __future__ import annotations

from typing import Any, Literal

from foldlog._history import effects
from foldlog._web.service.admitted import AdmittedRequest
from foldlog._web.service.events import AppendedEvents, RecordedEvent
from foldlog._web.service.operations import (
    KEYED,
    LEASED,
    OperationAnswer,
    OperationRequest,
    operation,
)
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Scope
from foldlog._words.event_json import event_document
from foldlog.eventstore import Action

State = Literal["intended", "begun", "done", "failed", "unknown"]


class OpenToolCalls(OperationAnswer):
    """The actions that wait for their result, in order."""

    calls: list[dict[str, Any]]


class CloseBody(OperationRequest):
    reason: str = ""


class EffectsQuery(OperationRequest):
    state: State | None = None


class EffectState(OperationAnswer):
    """``key`` names the effect in all systems. ``outcome`` is null if the call has none."""

    call: dict[str, Any]
    key: str
    state: State
    attempts: int
    outcome: Any = None


class EffectStates(OperationAnswer):
    effects: list[EffectState]


class BeginBody(OperationRequest):
    """``repeat`` says what to do if an earlier worker began the tool and recorded no outcome:
    ``never`` closes the call as unknown, ``same key`` runs the tool again with the same key, and
    ``check`` asks the client to look up the outcome: send the outcome, or begin again with
    ``checked``. ``by`` and ``reason`` say who approved the run, and why.
    """

    repeat: Literal["never", "same key", "check"] = "never"
    checked: bool = False
    by: str | None = None
    reason: str = ""


class BegunEffect(OperationAnswer):
    """``next`` is ``run`` (run the tool with these arguments, and send its outcome), ``check``
    (look up the outcome of the key outside), or ``done`` (the log has an outcome, ``recorded``).
    """

    next: Literal["run", "check", "done"]
    key: str
    arguments: dict[str, Any] = {}
    recorded: RecordedEvent | None = None


class OutcomeBody(OperationRequest):
    outcome: Any
    is_error: bool = False


class SettlementBody(OutcomeBody):
    """``by`` and ``reason`` say who reported the outcome, and why."""

    by: str | None = None
    reason: str = ""


@operation("GET", "/conversations/{conversation}/open-calls", Scope.READ)
def read_open_calls(request: AdmittedRequest) -> OpenToolCalls:
    """Return the tool calls that wait for their result."""
    return OpenToolCalls(calls=[event_document(each) for each in request.history.open_calls()])


@operation("POST", "/conversations/{conversation}/open-calls/close", Scope.APPEND, headers=LEASED)
def close_open_calls(request: AdmittedRequest, body: CloseBody) -> AppendedEvents:
    """Close every open call with a result that says why it has none."""
    history = request.history
    recorded = history.close_open_calls(body.reason)
    return AppendedEvents.after(history, recorded)


@operation("GET", "/conversations/{conversation}/effects", Scope.READ)
def read_effects(request: AdmittedRequest, query: EffectsQuery) -> EffectStates:
    """Return the calls with the state of their effects."""
    return EffectStates(
        effects=[
            EffectState(
                call=event_document(effect.call),
                key=effect.key,
                state=effect.state,
                attempts=effect.attempts,
                outcome=effect.outcome,
            )
            for effect in request.history.effects(query.state)
        ]
    )


@operation(
    "POST", "/conversations/{conversation}/effects/{event}/begin", Scope.APPEND, headers=KEYED
)
def begin_effect(request: AdmittedRequest, body: BeginBody) -> BegunEffect:
    """Record that the tool of the open call with this event id begins. Needs the lease."""
    _ = request.lease
    history = request.history
    begun = effects.begin_elsewhere(
        history,
        _open_call(request),
        effects.EffectRule("never" if body.repeat == "never" else "same key"),
        asks_first=body.repeat == "check" and not body.checked,
        run=request.idempotency_key,
        by=body.by,
        reason=body.reason,
    )
    return BegunEffect(
        next=begun.next,
        key=begun.key,
        arguments=dict(begun.arguments),
        recorded=None if begun.recorded is None else RecordedEvent.of(begun.recorded),
    )


@operation(
    "POST",
    "/conversations/{conversation}/effects/{event}/outcome",
    Scope.APPEND,
    status=201,
    headers=KEYED,
)
def end_effect(request: AdmittedRequest, body: OutcomeBody) -> RecordedEvent:
    """Record the outcome of the tool of a call, even if the lease was lost in between."""
    recorded = effects.end_elsewhere(
        request.history_without_lease,
        _call_id(request),
        body.outcome,
        body.is_error,
        request.idempotency_key,
    )
    return RecordedEvent.of(recorded)


@operation("POST", "/conversations/{conversation}/settlements/{key}", Scope.APPEND, status=201)
def settle_effect(request: AdmittedRequest, body: SettlementBody) -> RecordedEvent:
    """Record the outcome that a person or the outside system reported for an effect."""
    recorded = request.history.settle(
        request.parameters["key"],
        body.outcome,
        is_error=body.is_error,
        by=body.by,
        reason=body.reason,
    )
    return RecordedEvent.of(recorded)


def _call_id(request: AdmittedRequest) -> int:
    text = request.parameters["event"]
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal(400, f"{text!r} is not the id of an event; ids are whole numbers")
    return int(text)


def _open_call(request: AdmittedRequest) -> Action:
    event_id = _call_id(request)
    found = next((each for each in request.history.open_calls() if each.id == event_id), None)
    if found is None:
        raise Refusal(409, f"event {event_id} is not an open call of {request.history.id!r}")
    return found
