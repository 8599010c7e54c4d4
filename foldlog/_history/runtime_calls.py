"""Run tools at most once inside another agent runtime. The runtime decides when a tool runs and
when a call is stored.

The adapter of the runtime sets ``CURRENT`` to the call whose tool it runs. A tool that
``foldlog.effect`` marks asks this module before it runs. If the runtime has not stored the call
yet, one event records both the call (as an *intent*) and the beginning of the tool.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import structs

from foldlog._base.json_types import JsonMap
from foldlog._history import effects
from foldlog._history.started_calls import BoundConversation
from foldlog.eventstore import (
    Action,
    Annotation,
    ConversationErased,
    IdempotencyConflict,
    InvalidArgument,
    VersionConflict,
)
from foldlog.projections.call_states import MARK, CallTrace, key_of, key_of_intent, key_of_mark

if TYPE_CHECKING:
    from foldlog._history.histories import Histories
    from foldlog._history.history import History
    from foldlog._history.threads import ThreadPool

F = TypeVar("F", bound=Callable[..., Any])

CURRENT: ContextVar[RuntimeCall | None] = ContextVar("foldlog.tool_call", default=None)
"""The call whose tool runs now, in the context of the tool."""


class CheckIsAsync(TypeError):
    """The check of a call is async, so no thread can call it. ``trace`` is what the log says about
    the call.
    """

    def __init__(self, trace: CallTrace) -> None:
        super().__init__(
            "the check is async and did not run, because its tool is not async; define both with"
            " 'async def', or neither"
        )
        self.trace = trace


@dataclass(frozen=True)
class RuntimeCall:
    """A call that another runtime runs. ``pool`` runs the appends of an async tool."""

    histories: Histories
    conversation: str
    call_id: str
    tool: str
    arguments: JsonMap | str
    pool: ThreadPool
    attributes: JsonMap
    """The attributes that the conversation gets if this call is its first event."""

    def begin(self, rule: effects.EffectRule, *, is_repeated: bool = False) -> tuple[str, Any]:
        """Record that the tool begins, and return the key of the call. If the tool must not run,
        also return an answer for the model.

        The first call of this method with a ``Histories`` also reads the effects of other workers
        that have no outcome. Before the tool runs, the model gets a message about these effects.

        Raises ``CheckIsAsync`` if an async check has to run first. Then call ``begin_again`` unless
        the check finds an outcome.
        """
        if rule.repeat == "safe":
            return "", None
        history = self.histories[self.conversation]
        started = self.histories._started_calls
        bound = _bound(history)
        intent_id = started.intent_of(bound, self.call_id)
        if intent_id is not None:
            trace = effects.read_traces(history, intent_id)[intent_id]
            if trace.observation is None:  # The runtime tries this call again.
                return self._repeat(history, rule, trace)
        if is_repeated:
            # Another worker began this call, perhaps after this worker read the effects of other
            # workers. So read them again.
            started.forget_left_behind(bound)
        started.load_left_behind(bound, partial(_read_left_behind, history, started.worker))
        left = started.take_left_behind(bound, self.call_id)
        if left is not None:
            started.remember(bound, self.call_id, left.call.id)
            return self._repeat(history, rule, left)
        if untold_traces := started.untold(bound):
            return "", self._tell_model(history, untold_traces)
        stored_call = next(
            (call for call in reversed(history.open_calls()) if call.call_id == self.call_id), None
        )
        try:
            intent_id, key = self._mark(history, stored_call, 1, is_repeated)
        except IdempotencyConflict:
            if is_repeated:
                raise
            # Another worker began this call after this worker looked for the call.
            return self.begin(rule, is_repeated=True)
        started.remember(_bound(history), self.call_id, intent_id)
        return key, None

    def _repeat(
        self, history: History, rule: effects.EffectRule, trace: CallTrace
    ) -> tuple[str, Any]:
        """Do as ``begin`` for a call that has begun before, and may have run."""
        if inspect.iscoroutinefunction(rule.check):
            raise CheckIsAsync(trace)
        if rule.check is not None:
            outcome = effects.look_up(rule.check, trace.key, trace.call)
            if outcome is not None:
                return trace.key, outcome
        if rule.is_run_once:
            return trace.key, self._tell_model(history, [trace])
        self.begin_again(trace)
        return trace.key, None

    def begin_again(self, trace: CallTrace) -> None:
        """Record that the tool of a call that may have run begins again. Raises
        ``IdempotencyConflict`` if another worker has begun it since ``trace`` was read.
        """
        history = self.histories[self.conversation]
        self._mark(history, trace.call, len(trace.marks) + 1)

    def _tell_model(self, history: History, traces: Sequence[CallTrace]) -> str:
        """Return the message for the model that these calls may have run, and record that the model
        gets it.
        """
        _mark_as_told(history, traces)
        lines = [
            effects.in_doubt_words(effects.without_redacted(history, trace.call), trace.key)
            for trace in traces
        ]
        for trace in traces:
            trace.is_told = True
        return "\n".join(lines)

    def _mark(
        self, history: History, stored: Action | None, attempt: int, is_repeated: bool = True
    ) -> tuple[int, str]:
        """Record that the tool begins. ``stored`` is the call, if the runtime has stored it.
        Return the id of the event that stands for the call, and the key of the call.
        """
        data = {
            "attempt": attempt,
            "run": secrets.token_hex(8),
            "lease": self.histories._started_calls.worker,
        }
        if stored is not None:
            key = _read_key(history, stored.id)
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
        except IdempotencyConflict:
            if not is_repeated:
                raise
            # In this runtime, several calls may have the same id. The first intent already has this
            # key, so this intent is appended without a key.
            (recorded,) = history.append(mark)
        return recorded.id, _read_key(history, recorded.id)


def effect(
    *,
    repeat: effects.Repeat = "never",
    check: effects.Check | None = None,
    needs_approval: bool = False,
) -> Callable[[F], F]:
    """Mark a tool that has effects outside the store: ``@foldlog.effect(repeat="same key")``.
    ``History.run`` and the adapters for agent runtimes run the tool. ``repeat`` and ``check``
    decide what happens after a crash, and ``needs_approval`` whether ``History.run`` needs a
    decision of a person: see ``History.run``. In an agent runtime, let the runtime ask.

    If the tool has an argument ``key``, foldlog passes it the key of the call, with which the
    outside system can recognize a repeated call. In an agent runtime, a tool under the rule
    ``"safe"`` gets an empty text, because its call is not recorded before it runs. A model or a
    runtime never sees ``key``. Write this decorator below the decorator of a runtime. A marked tool
    raises ``InvalidArgument`` if it is not called by ``History.run`` or by an adapter.
    """
    rule = effects.EffectRule(repeat, check, needs_approval)

    def mark_tool(tool: F) -> F:
        signature = inspect.signature(tool)
        takes_key = "key" in signature.parameters

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            call = _current(tool)
            key, answer = await _begin_async(call, rule)
            key_argument = {"key": key} if takes_key else {}
            if answer is None:
                return await tool(*args, **kwargs, **key_argument)
            return answer

        def run_here(*args: Any, **kwargs: Any) -> Any:
            key, answer = _current(tool).begin(rule)
            key_argument = {"key": key} if takes_key else {}
            return tool(*args, **kwargs, **key_argument) if answer is None else answer

        guarded: Any = wraps(tool)(run_async if inspect.iscoroutinefunction(tool) else run_here)
        shown_parameters = [
            parameter for name, parameter in signature.parameters.items() if name != "key"
        ]
        guarded.__signature__ = signature.replace(parameters=shown_parameters)
        guarded.__annotations__ = {
            name: of for name, of in getattr(tool, "__annotations__", {}).items() if name != "key"
        }
        setattr(guarded, effects.RULE, rule)
        return cast("F", guarded)

    return mark_tool


async def _begin_async(call: RuntimeCall, rule: effects.EffectRule) -> tuple[str, Any]:
    """Do as ``RuntimeCall.begin`` in a thread. An async check runs in the event loop of the caller
    instead, and holds no thread while it runs.
    """
    try:
        return await call.pool.run(partial(call.begin, rule))
    except CheckIsAsync as needed:
        trace = needed.trace
    outcome = await cast("Any", rule.check)(trace.key, trace.call)
    if outcome is None:
        await call.pool.run(partial(call.begin_again, trace))
    return trace.key, outcome


def _current(tool: Callable[..., Any]) -> RuntimeCall:
    """Return the call whose tool runs now. Raises ``InvalidArgument`` outside of a runtime."""
    call = CURRENT.get()
    if call is None:
        raise InvalidArgument(
            f"{getattr(tool, '__name__', tool)!r} is marked with foldlog.effect, but was called"
            " without a runtime; run it with history.run, or through the adapter of your runtime"
            " (docs/ADAPTERS.md)"
        )
    return call


def _read_key(history: History, call_id: int) -> str:
    """Return the key of the call that the event ``call_id`` records."""
    head = history._store.query(history.id, lambda reading: reading.head_at(call_id + 1))
    return key_of(head or b"")


def _bound(history: History) -> BoundConversation:
    return history.id, history._conversation_key()


def note_left_behind(histories: Histories, conversation: str) -> None:
    """Call this function before a runtime appends its own results for calls whose outcome is
    unknown. Before the next tool with effects runs in this process, the model gets a message that
    names these calls.
    """
    history = histories[conversation]
    with suppress(ConversationErased):
        started = histories._started_calls
        bound = _bound(history)
        started.load_left_behind(bound, partial(_read_left_behind, history, started.worker))
        if untold_traces := started.untold(bound):
            _mark_as_told(history, untold_traces)


def _mark_as_told(history: History, traces: Sequence[CallTrace]) -> None:
    history.append(
        [Annotation(name=MARK, data={"told": True}, cause=trace.call.id) for trace in traces]
    )


def _read_left_behind(history: History, worker: str) -> list[CallTrace]:
    """Return the calls that other workers began and left without an outcome. A call still counts if
    the model already got a message about it: its runtime may repeat the call, for example if the
    program was killed before the runtime stored the answer.
    """
    if not _has_effects(history):
        return []
    return [
        trace
        for trace in effects.each_once(effects.read_traces(history))
        if structs.replace(trace, is_told=False).is_left_by_another(worker)
    ]


def _has_effects(history: History) -> bool:
    added = history._all_records().added(history.events)
    return any(isinstance(event, Annotation) and event.name == MARK for event in added)
