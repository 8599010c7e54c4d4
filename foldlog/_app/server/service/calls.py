"""Open tool calls, their approvals, and their effects: a tool that began is not run twice.

A worker that holds the lease begins the effect of an open call, runs the tool, and sends the
outcome. If the answer to a begin is lost, the worker sends the same ``Idempotency-Key`` again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from foldlog._app.server.parameters import Count
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service.events import AppendedEvents, RecordedEvent
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history import effects
from foldlog._reports.answers.document import Document
from foldlog._reports.words.event_json import event_document
from foldlog.eventstore import Action
from foldlog.eventstore.log.reading import VIEW_LIMIT
from foldlog.projections import EffectState


class OpenToolCalls(Document, frozen=True):
    """The actions that wait for their result, in order."""

    calls: list[JsonObject]


class CallEffect(Document, frozen=True):
    """``key`` names the effect in all systems. ``outcome`` is null if the call has none."""

    call: JsonObject
    key: str
    state: EffectState
    attempts: int
    outcome: Any = None


class CallEffects(Document, frozen=True):
    effects: list[CallEffect]


class BegunEffect(Document, frozen=True):
    """``next`` is ``run`` (run the tool with these arguments, and send its outcome), ``check``
    (look up the outcome of the key outside), or ``done`` (the log has an outcome, ``recorded``).
    """

    next: Literal["run", "check", "done"]
    key: str
    arguments: JsonMap = {}
    recorded: RecordedEvent | None = None


@operation("GET", "/conversations/{conversation}/open-calls")
def read_open_calls(request: AdmittedRequest) -> OpenToolCalls:
    """Return the tool calls that wait for their result."""
    return OpenToolCalls(calls=list(map(event_document, request.history.open_calls())))


@operation("POST", "/conversations/{conversation}/open-calls/close", status=200)
def close_open_calls(request: AdmittedRequest, *, reason: str = "") -> AppendedEvents:
    """Close every open call with a result that says why it has none."""
    history = request.history
    recorded = history.close_open_calls(reason)
    return AppendedEvents.after(history, recorded)


@operation("POST", "/conversations/{conversation}/approvals/{event}/questions")
def ask_approval(
    request: AdmittedRequest,
    event: Count,
    *,
    to: str,
    shown: Any = None,
    idempotency_key: str | None,
) -> RecordedEvent:
    """Record that a person was asked to approve the open call with this event id, and what the
    person was shown.
    """
    call = _call(request, event)
    recorded = request.history.ask_approval(
        call, to=to, shown=shown, idempotency_key=idempotency_key
    )
    return RecordedEvent.of_recorded(recorded)


@operation("POST", "/conversations/{conversation}/approvals/{event}/decisions", Scope.APPROVE)
def decide(
    request: AdmittedRequest,
    event: Count,
    *,
    approved: bool,
    by: str | None = None,
    reason: str = "",
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None,
    idempotency_key: str | None,
) -> RecordedEvent:
    """Record that a person approved or refused the open call with this event id.

    ``by`` names the person, by default by the name of the token; nobody checks it. The decision
    also records the name of the token. An approval ends at ``until``, a time with its zone. A begin
    with ``needs_approval`` obeys the last decision.
    """
    decision = effects.Decision(
        approved=approved,
        by=by or request.principal.name,
        reason=reason,
        until=until,
        token=request.principal.name,
    )
    recorded = effects.record_approval(
        request.history, _call(request, event), decision.data, idempotency_key
    )
    return RecordedEvent.of_recorded(recorded)


@operation("GET", "/conversations/{conversation}/effects", is_long=True)
def read_effects(request: AdmittedRequest, *, state: EffectState | None = None) -> CallEffects:
    """Return the calls with the state of their effects. Calls and results of more than 32 MiB are
    refused; …/events has pages.
    """
    found = effects.effects(request.history, state, bytes_max=VIEW_LIMIT.bytes_max)
    return CallEffects(
        effects=[CallEffect.of(effect, call=event_document(effect.call)) for effect in found]
    )


@operation("POST", "/conversations/{conversation}/effects/{event}/begin", status=200)
def begin_effect(
    request: AdmittedRequest,
    event: Count,
    *,
    repeat: Literal["never", "same key", "check"] = "never",
    checked: bool = False,
    needs_approval: bool = False,
    by: str | None = None,
    reason: str = "",
    idempotency_key: str | None,
) -> BegunEffect:
    """Record that the tool of the open call with this event id begins. Needs the lease.

    ``repeat`` says what to do if an earlier worker began the tool and recorded no outcome:
    ``never`` closes the call as unknown, ``same key`` runs the tool again with the same key, and
    ``check`` asks the client to look up the outcome: send the outcome, or begin again with
    ``checked``. ``by`` and ``reason`` say who approved the run, and why. With ``needs_approval``,
    the tool begins only if the last decision about the call approved it.
    """
    request.require_lease()
    begun = effects.begin_elsewhere(
        request.history,
        _call(request, event),
        effects.EffectRule(
            "never" if repeat == "never" else "same key", needs_approval=needs_approval
        ),
        asks_first=repeat == "check" and not checked,
        run=idempotency_key,
        by=by,
        reason=reason,
    )
    recorded = None if begun.recorded is None else RecordedEvent.of_recorded(begun.recorded)
    return BegunEffect.of(begun, recorded=recorded)


@operation("POST", "/conversations/{conversation}/effects/{event}/outcome")
def end_effect(
    request: AdmittedRequest,
    event: Count,
    *,
    outcome: Any,
    is_error: bool = False,
    idempotency_key: str | None,
) -> RecordedEvent:
    """Record the outcome of the tool of a call, even if the lease was lost in between."""
    recorded = effects.end_elsewhere(
        request.history_without_lease, event, outcome, is_error, idempotency_key
    )
    return RecordedEvent.of_recorded(recorded)


@operation("POST", "/conversations/{conversation}/settlements/{key}")
def settle_effect(
    request: AdmittedRequest,
    key: str,
    *,
    outcome: Any,
    is_error: bool = False,
    by: str | None = None,
    reason: str = "",
) -> RecordedEvent:
    """Record the outcome that a person or the outside system reported for an effect. ``by`` and
    ``reason`` say who reported the outcome, and why.
    """
    recorded = request.history.settle(key, outcome, is_error=is_error, by=by, reason=reason)
    return RecordedEvent.of_recorded(recorded)


def _call(request: AdmittedRequest, event_id: int) -> Action:
    """Return the tool call with an event id. Raises a ``Refusal``."""
    events = list(request.history.events(event_id, event_id + 1))
    if not events or not isinstance(events[0], Action):
        raise Refusal(409, f"event {event_id} is not an open call of {request.conversation!r}")
    return events[0]
