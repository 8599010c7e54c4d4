"""Record the result of an open tool call, or close the calls that will never get a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Content,
    InvalidEvent,
    Observation,
    ReadTransaction,
    Recorded,
    Retraction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log.appending import ExpectedVersion, Seen
from foldlog.eventstore.log.finding import Fence
from foldlog.projections.view import View
from foldlog.projections.views import Views

_NAMED_MAX = 5
"""An error names at most so many open calls."""
UNKNOWN_OUTCOME = (
    "the program stopped before it recorded a result; the call may have run, in part or whole"
)
"""The default reason for closing a call. A model that reads the default reason can check the
effects of the call before it repeats the call.
"""


def append_tool_result(
    store: Store,
    current: Callable[[], View],
    conversation: str,
    call_id: str | Action,
    content: Content,
    *,
    is_error: bool = False,
    extras: JsonObject | None = None,
    idempotency_key: str | None = None,
    fence: Fence | None = None,
    seen: Seen | None = None,
) -> Recorded:
    """Append the observation of an open call. If another writer answers the call first, the call
    gets no second observation.

    Args:
        store: The store.
        current: Returns the newest View, in which the call must be open.
        conversation: The id of the conversation.
        call_id: The id of the call, or the call itself, from ``View.open_calls``. If several open
            calls have this id, the observation answers the first such call of the newest reply.
        content: The result of the call.
        is_error: Whether the call failed.
        extras: Stored and not shown.
        idempotency_key: If the key was used before with an equal result, nothing is appended, and
            the recorded event is returned.
        fence: As in ``Store.append``.
        seen: Pass it if ``content`` repeats text of an event. ``VersionConflict`` is raised if an
            event was redacted since. The versions are not compared.

    Returns:
        The recorded observation.

    Raises:
        InvalidEvent: No call with the id ``call_id`` is open. Also raises the errors of
            ``Store.append``.

    Durability: the observation is on disk when the function returns.

    Cost: loading the View, and one pass over the open calls.
    """
    if not isinstance(call_id, str | Action):
        raise TypeError(f"call_id is {call_id!r}; give the call id as a text, or the action itself")
    expected: ExpectedVersion = ANY_VERSION if seen is None else seen.at_any_version()
    while True:
        view = current()
        called = _find_open_call(view.open_calls, call_id)
        guard = partial(check_still_open, view)
        if called is None:
            refusal = InvalidEvent(why_no_result(conversation, call_id, view))
            if idempotency_key is None:
                raise refusal
            if isinstance(call_id, Action):
                called = call_id
            else:
                called = Action(tool="", call_id=call_id)
            # If the key was used before, the guard is not called, and the recorded event is
            # returned.
            guard = partial(_raise, refusal)
        observation = answer_to(called, content, is_error=is_error, extras=extras or {})
        try:
            (recorded,) = store.append(
                conversation,
                observation,
                expected_version=expected,
                idempotency_key=idempotency_key,
                guard=guard,
                fence=fence,
            )
        except VersionConflict as conflict:
            if conflict.is_redaction:
                raise
        else:
            return recorded


def close_open_calls(
    store: Store,
    views: Views,
    conversation: str,
    answers: Callable[[Sequence[Action]], Sequence[Observation]],
    fence: Fence,
    is_chosen: Callable[[Action], bool],
) -> tuple[Recorded, ...]:
    """Close open calls in one append. Other writers may append at the same time. If another writer
    answers a call first, the call gets no second observation.

    Args:
        store: The store.
        views: Its Views.
        conversation: The id of the conversation.
        answers: Gets the calls to close, and returns their observations.
        fence: As in ``Store.append``.
        is_chosen: Returns whether to close a call.

    Returns:
        The recorded observations in the order of the calls.

    Raises:
        ConversationNotFound: The conversation does not exist; nothing is appended. Also raises the
            errors of ``Store.append`` and ``Views.current``.

    Durability: the answers are on disk when the function returns.

    Cost: loading the View, and one pass over the open calls.
    """
    while True:
        view = views.current(conversation)
        calls = list(filter(is_chosen, view.open_calls))
        if not calls:
            return ()
        guard = partial(check_still_open, view)
        with suppress(VersionConflict):
            return store.append(
                conversation,
                answers(calls),
                expected_version=ANY_VERSION,
                guard=guard,
                fence=fence,
            )


def answer_to(call: Action, content: Content, **more: Any) -> Observation:
    """Return the observation that answers a call. ``more`` contains its further fields."""
    return Observation(tool=call.tool, call_id=call.call_id, cause=call.id, content=content, **more)


def _find_open_call(open_calls: Sequence[Action], call: str | Action) -> Action | None:
    """Return the open call that ``call`` is, or that has ``call`` as its call id. If several calls
    have this call id, return the first of them in the newest response with such a call.
    """
    if isinstance(call, Action):
        return next((open_call for open_call in open_calls if open_call.id == call.id), None)
    with_id = [open_call for open_call in open_calls if open_call.call_id == call]
    if not with_id:
        return None
    newest = with_id[-1]
    if newest.response_id is None:
        return newest
    return next(open_call for open_call in with_id if open_call.response_id == newest.response_id)


def check_still_open(view: View, reading: ReadTransaction) -> None:
    """Raise ``VersionConflict`` if the open calls are no longer those of ``view``."""
    newer = tuple(reading.events(view.version))
    # After a retraction, the View would have to be read from the store, but the write that called
    # this guard locks the store.
    has_retraction = any(isinstance(event, Retraction) for event in newer)
    if has_retraction or view.then(newer).open_calls != view.open_calls:
        raise VersionConflict(reading.conversation, view.version, reading.version)


def _raise(refusal: InvalidEvent, reading: ReadTransaction) -> None:
    raise refusal


def why_no_result(conversation: str, call: str | Action, view: View) -> str:
    """Return why a call cannot get a result, and which calls can, for the user."""
    call_id = call.call_id if isinstance(call, Action) else call
    if isinstance(call, Action) and call_id is None:
        name = f"call of event {call.id}"
    else:
        name = f"call {call_id!r}"
    waiting = [
        f"event {open_call.id}" if open_call.call_id is None else repr(open_call.call_id)
        for open_call in view.open_calls
    ]
    listed = ", ".join(waiting[:_NAMED_MAX]) + (", …" if len(waiting) > _NAMED_MAX else "")
    results = (event for event in reversed(view.events) if isinstance(event, Observation))
    answered = next((result for result in results if _answers(result, call)), None)
    if answered is not None:
        problem = f"{name} already has a result, event {answered.id}"
    else:
        problem = f"the View shows no open {name}"
    remedy = f"the open calls are {listed}" if waiting else "no call is open"
    return f"conversation {conversation!r}: {problem}; {remedy}; nothing was appended"


def _answers(result: Observation, call: str | Action) -> bool:
    if isinstance(call, Action):
        has_its_id = call.call_id is not None and result.call_id == call.call_id
        return has_its_id or result.cause == call.id
    return result.call_id == call
