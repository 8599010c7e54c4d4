"""Open tool calls, and their effects: a tool that began is not run twice.

A worker that holds the lease begins the effect of an open call, runs the tool, and sends the
outcome. If the answer to a begin is lost, the worker sends the same ``Idempotency-Key`` again.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foldlog._history import effects
from foldlog._web.service.call import Call
from foldlog._web.service.events import Appended, RecordedEvent
from foldlog._web.service.operations import operation
from foldlog._web.service.problems import Problem
from foldlog._web.service.tokens import Scope
from foldlog._words.event_json import event_document
from foldlog.eventstore import Action

State = Literal["intended", "begun", "done", "failed", "unknown"]


class OpenCalls(msgspec.Struct, kw_only=True):
    """The actions that wait for their result, in order."""

    calls: list[dict[str, Any]]


class CloseBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str = ""


class EffectsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    state: State | None = None


class EffectDocument(msgspec.Struct, kw_only=True):
    """``key`` names the effect in all systems. ``outcome`` is null if the call has none."""

    call: dict[str, Any]
    key: str
    state: State
    attempts: int
    outcome: Any = None


class Effects(msgspec.Struct, kw_only=True):
    effects: list[EffectDocument]


class BeginBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``repeat`` says what to do if an earlier worker began the tool and recorded no outcome:
    ``never`` closes the call as unknown, ``same key`` runs the tool again with the same key, and
    ``check`` asks the client to look up the outcome: send the outcome, or begin again with
    ``checked``. ``by`` and ``reason`` say who approved the run, and why.
    """

    repeat: Literal["never", "same key", "check"] = "never"
    checked: bool = False
    by: str | None = None
    reason: str = ""


class BeginDocument(msgspec.Struct, kw_only=True):
    """``next`` is ``run`` (run the tool with these arguments, and send its outcome), ``check``
    (look up the outcome of the key outside), or ``done`` (the log has an outcome, ``recorded``).
    """

    next: Literal["run", "check", "done"]
    key: str
    arguments: dict[str, Any] = {}
    recorded: RecordedEvent | None = None


class OutcomeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    outcome: Any
    is_error: bool = False
    by: str | None = None
    reason: str = ""


@operation("GET", "/conversations/{conversation}/open-calls", Scope.READ)
def read_open_calls(call: Call) -> OpenCalls:
    """Return the tool calls that wait for their result."""
    return OpenCalls(calls=[event_document(each) for each in call.history.open_calls()])


@operation("POST", "/conversations/{conversation}/open-calls/close", Scope.APPEND, writes=True)
def close_open_calls(call: Call, body: CloseBody) -> Appended:
    """Close every open call with a result that says why it has none."""
    history = call.history
    recorded = history.close_open_calls(body.reason)
    return Appended.of(recorded, history.version() if not recorded else 0)


@operation("GET", "/conversations/{conversation}/effects", Scope.READ)
def read_effects(call: Call, query: EffectsQuery) -> Effects:
    """Return the calls with the state of their effects."""
    return Effects(
        effects=[
            EffectDocument(
                call=event_document(effect.call),
                key=effect.key,
                state=effect.state,
                attempts=effect.attempts,
                outcome=effect.outcome,
            )
            for effect in call.history.effects(query.state)
        ]
    )


@operation("POST", "/conversations/{conversation}/effects/{event}/begin", Scope.APPEND, writes=True)
def begin_effect(call: Call, body: BeginBody) -> BeginDocument:
    """Record that the tool of the open call with this event id begins. Needs the lease."""
    _ = call.lease
    history = call.history
    begun = effects.begin_elsewhere(
        history,
        _open_call(call),
        effects.EffectRule("never" if body.repeat == "never" else "same key"),
        asks_first=body.repeat == "check" and not body.checked,
        run=call.idempotency_key,
        by=body.by,
        reason=body.reason,
    )
    return BeginDocument(
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
    writes=True,
)
def end_effect(call: Call, body: OutcomeBody) -> RecordedEvent:
    """Record the outcome of the tool of a call, even if the lease was lost in between."""
    recorded = effects.end_elsewhere(
        call.history, _call_id(call), body.outcome, body.is_error, call.idempotency_key
    )
    return RecordedEvent.of(recorded)


@operation("POST", "/conversations/{conversation}/settlements/{key}", Scope.APPEND, status=201)
def settle_effect(call: Call, body: OutcomeBody) -> RecordedEvent:
    """Record the outcome that a person or the outside system reported for an effect."""
    recorded = call.history.settle(
        call.parameters["key"],
        body.outcome,
        is_error=body.is_error,
        by=body.by,
        reason=body.reason,
    )
    return RecordedEvent.of(recorded)


def _call_id(call: Call) -> int:
    text = call.parameters["event"]
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Problem(400, f"{text!r} is no id of an event; ids are whole numbers")
    return int(text)


def _open_call(call: Call) -> Action:
    event_id = _call_id(call)
    found = next((each for each in call.history.open_calls() if each.id == event_id), None)
    if found is None:
        raise Problem(409, f"event {event_id} is no open call of {call.history.id!r}")
    return found
