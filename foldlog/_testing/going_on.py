"""Go on with a recorded run in a fork, with another model or another condenser."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from foldlog._history.history import History
from foldlog._history.sent_requests import beside_of
from foldlog._testing.answers import answer_of
from foldlog._testing.calls import recorded_calls, recorded_results, standing_events, take_result
from foldlog.eventstore import Message
from foldlog.projections import ModelRequest, as_json

Ask = Callable[[ModelRequest], object]
"""Asks a model, and returns its reply as ``append_reply`` accepts it."""


def go_on(history: History, fork: History, at: int, ask: Ask | None = None) -> str:
    """Continue ``fork``, a fork of ``history`` at the version ``at``, and return why it ended.

    ``ask`` gets each request, in place of the recorded replies. The results of tools, and the
    messages of the user, come from the record. No tool runs: the fork ends at a call that the run
    does not have. Raises the errors of ``prepare``, ``ask`` and ``append_reply``.
    """
    calls = deque(call for call in recorded_calls(history) if call.version >= at)
    messages = deque(
        event
        for event in standing_events(history)
        if event.id >= at and isinstance(event, Message) and event.source != "agent"
    )
    results = recorded_results(history, at)
    tools = beside_of(history, calls[0].reply).get("tools", ()) if calls else ()
    user_is_next = False
    while calls or ask is not None:
        if ask is None:
            while messages and messages[0].id < calls[0].version:
                _append_message(fork, messages.popleft())
        elif user_is_next:
            if not messages:
                break
            _append_message(fork, messages.popleft())
        request = fork.prepare().request("openai", tools=tools)
        if ask is None:
            call = calls.popleft()
            reply: object = answer_of(call.reply, "openai", call.number)
        else:
            reply = ask(request)
        fork.append_reply(reply, request=request)
        open_calls = fork.open_calls()
        for action in open_calls:
            result = take_result(results, action.tool, action.arguments)
            if result is None:
                return (
                    f"the recorded run has no result for event {action.id}:"
                    f" {action.tool}({as_json(action.arguments)})"
                )
            fork.append_tool_result(action, result.content, result.is_error)
        user_is_next = not open_calls
    return f"the recorded run has no further {'reply' if ask is None else 'message of the user'}"


def _append_message(fork: History, message: Message) -> None:
    fork.append(replace(message, id=-1, cause=None))
