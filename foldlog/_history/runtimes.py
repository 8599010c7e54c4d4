"""Run tools at most once inside another agent runtime: it decides when a tool runs, and when a call
is stored.

The adapter of the runtime says in ``CURRENT`` which call is made, around the tool. A tool that
``foldlog.effect`` marks asks here before it runs. Where the runtime has not stored the call yet,
its intent and its beginning are one append.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from foldlog._history import effects
from foldlog.eventstore import (
    Action,
    Annotation,
    ConversationErased,
    IdempotencyConflict,
    InvalidArgument,
    VersionConflict,
)
from foldlog.projections.effects import MARK, CallTrace, key_of, key_of_intent, key_of_mark

if TYPE_CHECKING:
    from foldlog._history.histories import Histories
    from foldlog._history.history import History
    from foldlog._threads import ThreadPool

F = TypeVar("F", bound=Callable[..., Any])

_PROCESS: Final = secrets.token_hex(8)
_REMEMBERED: Final = 1_000
"""The number of calls of this process that are known again, if their runtime tries them again."""

CURRENT: ContextVar[RuntimeCall | None] = ContextVar("foldlog.tool_call", default=None)
"""The call whose tool runs now, in the context of the tool."""


@dataclass(frozen=True)
class RuntimeCall:
    """A call that a runtime makes. ``begin`` says whether its tool may run, and under which key."""

    histories: Histories
    conversation: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any] | str
    pool: ThreadPool
    """The threads in which an async tool asks."""
    attributes: Mapping[str, Any]
    """Those of the conversation, if this call begins it."""

    def begin(self, rule: effects.EffectRule) -> tuple[str, Any]:
        """Record that the tool begins. Return its key, and None; or with another value: the answer
        to the model in the place of the tool, which must not run.

        The first call in this process also reads which effects other processes left: of these the
        model is told once, before any other tool with effects runs.
        """
        if rule.repeat == "safe":
            return "", None
        history = self.histories[self.conversation]
        begun: dict[tuple[str, str], int] = vars(self.histories).setdefault("_begun_tools", {})
        if (here := begun.get((history.id, self.call_id))) is not None:
            traces, keys = effects.read_traces(history, here)
            if traces[here].observation is None:  # the runtime tries the same call again
                return self._repeat(history, rule, keys[here], traces[here])
        # maybe of a process that died since they were read
        if history.recorded(key_of_intent(self.call_id)):
            vars(self.histories).setdefault("_left_behind", {}).pop(history.id, None)
        left = _left_behind(self.histories, history)
        same = next(
            (key for key, trace in left.items() if trace.call.call_id == self.call_id), None
        )
        if same is not None:
            return self._repeat(history, rule, same, left.pop(same))
        if left:
            return "", self._told(history, left)
        stored = next(
            (call for call in reversed(history.open_calls()) if call.call_id == self.call_id), None
        )
        begun[history.id, self.call_id], key = self._mark(history, stored, 1)
        if len(begun) > _REMEMBERED:
            del begun[next(iter(begun))]
        return key, None

    def _repeat(
        self, history: History, rule: effects.EffectRule, key: str, trace: CallTrace
    ) -> tuple[str, Any]:
        """Return what becomes of a call that another process began."""
        if rule.check is not None:
            outcome = rule.check(key, trace.call)
        else:
            outcome = None
        if outcome is not None:
            return key, outcome
        if rule == effects.EffectRule("never"):
            return key, self._told(history, {key: trace})
        self._mark(history, trace.call, len(trace.marks) + 1)
        return key, None

    def _told(self, history: History, left: dict[str, CallTrace]) -> str:
        """Record that the model is told of effects that are in doubt. Return the words."""
        _note(history, left)
        told = [effects.in_doubt_words(trace.call, key) for key, trace in left.items()]
        left.clear()
        return "\n".join(told)

    def _mark(self, history: History, stored: Action | None, attempt: int) -> tuple[int, str]:
        """Record that the tool begins, with the call where it is not stored. Return the id of the
        call, and its key.
        """
        data = {"attempt": attempt, "run": secrets.token_hex(8), "lease": _this_process()}
        if stored is not None:
            key = _key(history, stored.id)
            mark = Annotation(name=MARK, data=data, cause=stored.id)
            history.append(mark, idempotency_key=key_of_mark(key, attempt))
            return stored.id, key
        if self.attributes and not history.version():
            with suppress(VersionConflict):
                self.histories.create(history.id, self.attributes)
        intent = {"tool": self.tool, "arguments": self.arguments, "call_id": self.call_id}
        mark = Annotation(name=MARK, data={**data, "intent": intent})
        try:
            (recorded,) = history.append(mark, idempotency_key=key_of_intent(self.call_id))
        except (
            IdempotencyConflict
        ):  # the id names several calls: the first intent leads to all of them
            (recorded,) = history.append(mark)
        return recorded.id, _key(history, recorded.id)


def effect(
    *, repeat: effects.Repeat = "never", check: effects.Check | None = None
) -> Callable[[F], F]:
    """Mark a tool as one with effects outside: ``@foldlog.effect(repeat="same key")``.
    ``History.run`` and the adapters for agent runtimes then run it by this rule. See
    ``History.run`` for ``repeat`` and ``check``.

    Its argument ``key`` is for the outside system: neither a model nor a runtime sees it. Write the
    mark below the decorator of a runtime. Called in another way, the tool raises
    ``InvalidArgument``.
    """
    rule = effects.EffectRule(repeat, check)

    def marked(tool: F) -> F:
        signature = inspect.signature(tool)
        takes_key = "key" in signature.parameters

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            call = _current(tool)
            key, answer = await call.pool.run(partial(call.begin, rule))
            more = {"key": key} if takes_key else {}
            if answer is None:
                return await tool(*args, **kwargs, **more)
            return answer

        def run_here(*args: Any, **kwargs: Any) -> Any:
            key, answer = _current(tool).begin(rule)
            more = {"key": key} if takes_key else {}
            return tool(*args, **kwargs, **more) if answer is None else answer

        guarded: Any = wraps(tool)(run_async if inspect.iscoroutinefunction(tool) else run_here)
        shown = [each for name, each in signature.parameters.items() if name != "key"]
        guarded.__signature__ = signature.replace(parameters=shown)
        guarded.__annotations__ = {
            name: of for name, of in tool.__annotations__.items() if name != "key"
        }
        setattr(guarded, effects.RULE, rule)
        return cast("F", guarded)

    return marked


def _current(tool: Callable[..., Any]) -> RuntimeCall:
    """Return the call that is made now. Raises ``InvalidArgument`` outside of an adapter's tool."""
    call = CURRENT.get()
    if call is None:
        raise InvalidArgument(
            f"{tool.__name__!r} is marked by foldlog.effect, and no call of it is known here; run"
            " it by history.run, or through the adapter of your runtime (docs/ADAPTERS.md)"
        )
    return call


def _key(history: History, call_id: int) -> str:
    return key_of(
        history._store.query(history.id, lambda reading: reading.head_at(call_id + 1)) or b""
    )


def _this_process() -> str:
    return f"{_PROCESS} {os.getpid()}"


def note_left_behind(histories: Histories, conversation: str) -> None:
    """Record which effects another process left in doubt, before a runtime gives their calls
    results of its own. Of these the model is told before the next tool with effects runs in this
    process.
    """
    history = histories[conversation]
    with suppress(ConversationErased):
        if left := _left_behind(histories, history):
            _note(history, left)


def _note(history: History, left: Mapping[str, CallTrace]) -> None:
    history.append(
        [Annotation(name=MARK, data={"told": True}, cause=trace.call.id) for trace in left.values()]
    )


def _left_behind(histories: Histories, history: History) -> dict[str, CallTrace]:
    """Return the effects that other processes began and of which neither an outcome is known nor
    the model was told, by their keys. They are read once in a process.
    """
    known: dict[str, dict[str, CallTrace]] = vars(histories).setdefault("_left_behind", {})
    if history.id not in known:
        traces, keys = effects.read_traces(history) if _has_effects(history) else ({}, {})
        known[history.id] = {
            keys[number]: trace
            for number, trace in traces.items()
            if number == trace.call.id and trace.is_left_by(_this_process())
        }
    return known[history.id]


def _has_effects(history: History) -> bool:
    """Return whether a tool of this history is marked. Cost: the events that came of no record of a
    runtime.
    """
    added = history._all_records().added(history.events)
    return any(isinstance(event, Annotation) and event.name == MARK for event in added)
