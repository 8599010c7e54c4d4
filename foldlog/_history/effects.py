"""Run the tool of a call at most once, or under the same key, and record what became of it.

The state of each call is a fold of the log: ``foldlog.projections.effects``. Here the lease fences
each beginning, and no outcome is refused: it is a fact, also where another worker has the lease by
then.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from foldlog._history.lease import LeaseTaken, token_of
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    Event,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
    ReadTransaction,
    Recorded,
)
from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.inside import Generation
from foldlog.eventstore.log.finding import pages
from foldlog.eventstore.log.row import dense_events
from foldlog.projections import Effect, EffectState, arguments_of, as_json
from foldlog.projections.effects import (
    MARK,
    STATES,
    CallTrace,
    first_own,
    key_of,
    key_of_intent,
    key_of_mark,
    trace,
)
from foldlog.projections.tool_results import UNKNOWN_OUTCOME, answer_to, refused

if TYPE_CHECKING:
    from foldlog._history.history import History

Repeat = Literal["never", "same key", "safe"]
Check = Callable[[str, Action], Any]
_REPEATS = ("never", "same key", "safe")
RULE = "__foldlog_effect__"
"""The attribute of a tool that ``foldlog.effect`` marks."""
_QUOTED_MAX = 200
_RECORDED = "the outcome was recorded all the same; begin again with history.lease()"


@dataclass(frozen=True)
class EffectRule:
    """How the tool of an effect may be repeated: see ``History.run``."""

    repeat: Repeat = "never"
    check: Check | None = None

    def __post_init__(self) -> None:
        if self.repeat not in _REPEATS:
            raise InvalidArgument(
                f"repeat is {self.repeat!r}; use {', '.join(map(repr, _REPEATS))}"
            )
        if self.check is not None and not callable(self.check):
            raise TypeError(f"check is a function of the key and the call, not {self.check!r:.60}")


def rule_for(
    tool: Callable[..., Any], repeat: Repeat | None, check: Check | None
) -> tuple[Callable[..., Any], EffectRule]:
    """Return the tool without its mark, and the rule for one run: that of the caller, else the
    mark, else ``never``.
    """
    marked = getattr(tool, RULE, None)
    if not isinstance(marked, EffectRule):
        return tool, EffectRule(repeat or "never", check)
    return vars(tool)["__wrapped__"], EffectRule(repeat or marked.repeat, check or marked.check)


def run(
    history: History,
    call: Action,
    tool: Callable[..., Any],
    rule: EffectRule,
    by: str | None,
    reason: str,
) -> Recorded:
    """Do what ``History.run`` says."""
    if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(rule.check):
        raise TypeError(f"{tool!r} or its check is async; run it with the history of foldlog.aio")
    with alone(history, call):
        attempt = Attempt(history, call, tool, rule, by, reason)
        ended = attempt.ended_before()
        if ended is None and rule.check is not None and attempt.is_in_doubt:
            ended = attempt.checked(rule.check(attempt.key, call))
        ended = ended or attempt.begin()
        if ended is not None:
            return ended
        try:
            content = tool(**attempt.arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is how the call ended
            return attempt.failed(error)
        if inspect.iscoroutine(content):
            content.close()
            return attempt.failed(
                TypeError(
                    "the tool returned a coroutine, and did not run; define it by 'async def'"
                )
            )
        return attempt.end(content)


@contextmanager
def alone(history: History, call: Action) -> Iterator[None]:
    """Run one call in one thread at a time: a lease keeps out other workers, and not the threads of
    this one.
    """
    if not isinstance(call, Action):
        raise TypeError(f"run takes a call, as history.open_calls() has it, not {call!r:.60}")
    running: dict[int, object] = vars(history).setdefault("_running", {})
    thread = object()
    if running.setdefault(call.id, thread) is not thread:
        raise InvalidEvent(
            f"conversation {history.id!r}: another thread runs call {call.id}; nothing was"
            " appended; leave the call to it"
        )
    try:
        yield
    finally:
        del running[call.id]


class Attempt:
    """One attempt to run the tool of an open call: ``ended_before``, then where it ``is_in_doubt``
    a check, then ``begin``, the tool, and ``end`` or ``failed``. Making it reads the events since
    the call, and raises ``InvalidEvent`` where the call is not open.
    """

    def __init__(
        self,
        history: History,
        call: Action,
        tool: Callable[..., Any],
        rule: EffectRule,
        by: str | None = None,
        reason: str = "",
    ) -> None:
        self._history = history
        self.call = call
        self._tool = tool
        self._rule = rule
        self._hands_key_on = "key" in inspect.signature(tool).parameters
        if rule.repeat == "same key" and not self._hands_key_on:
            raise InvalidArgument(
                f"{tool!r} takes no argument 'key', so it cannot hand the key to the outside system"
            )
        self._approval = {name: value for name, value in (("by", by), ("reason", reason)) if value}
        if all(call.id != each.id for each in history.open_calls()):
            raise InvalidEvent(refused(history.id, call, history.view()))
        traces, keys = read_traces(history, _start_of(history, call))
        self._trace = traces[call.id]
        self.key = keys[call.id]
        self._is_shared = call.id < history._store.query(history.id, first_own)
        self.arguments: dict[str, Any] = {}

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have run before. A fork cannot know what others did with a call that it
        shares.
        """
        return bool(self._trace.marks) or self._is_shared

    def ended_before(self) -> Recorded | None:
        """Record its outcome where it must not run: it is known, or it is in doubt and must never
        be repeated.
        """
        state = self._trace.state(None)
        # taken back, and happened all the same
        if state == "done" or (state == "failed" and self._trace.marks):
            return self.end(self._trace.outcome, is_error=state == "failed")
        if self.is_in_doubt and self._rule == EffectRule("never"):
            return self._observe(*_doubt(self.key))
        return None

    def checked(self, outcome: Any) -> Recorded | None:
        """Record the outcome that a look outside found; None stands for: it has not run."""
        return None if outcome is None else self.end(outcome)

    def begin(self) -> Recorded | None:
        """Record that the tool begins now; return None. Return the outcome where it cannot run with
        its arguments.

        Raises ``LeaseTaken`` where the lease is over, and ``InvalidArgument`` outside of
        ``history.lease()``.
        """
        try:
            self.arguments = self._bound()
        except (TypeError, ValueError) as error:
            return self._observe(f"not begun: {error}", {})
        if self._rule.repeat == "safe":
            return None
        block = vars(self._history).get("_lease_block")
        if block is None:
            raise InvalidArgument(
                f"conversation {self._history.id!r}: no lease is held, and an effect begins under"
                " one; write 'with history.lease(): history.run(…)', or repeat='safe' for a tool"
                " that only reads"
            )
        attempt = len(self._trace.marks) + 1
        data = {"attempt": attempt, "run": secrets.token_hex(8), "worker": block.lease.worker}
        mark = Annotation(
            name=MARK, data={**data, "lease": block.token, **self._approval}, cause=self.call.id
        )
        self._history.append(mark, idempotency_key=key_of_mark(self.key, attempt))
        if not block.lease.held:
            block.check_held(
                "the call counts as begun; the next worker asks, or closes it as unknown"
            )
        return None

    def end(self, content: Any, *, is_error: bool = False) -> Recorded:
        """Record the outcome, also where the lease is over by now: a call that was closed gets it
        as a late outcome. Raises ``LeaseTaken`` then, after it is recorded.
        """
        block = vars(self._history).get("_lease_block")
        recorded = record_outcome(self._history, self.call, self.key, _storable(content), is_error)
        if block is not None and not block.lease.held:
            block.check_held(_RECORDED)
        return recorded

    def failed(self, error: Exception) -> Recorded:
        """Record that the tool raised. A timeout does not say whether it ran."""
        problem = f"{type(error).__name__}: {_storable(error)}"
        if isinstance(error, TimeoutError):
            return self._observe(*_doubt(self.key, problem))
        return self.end(f"{problem} (key {self.key})", is_error=True)

    def _bound(self) -> dict[str, Any]:
        """Return the arguments for the tool, with its key where it takes one."""
        given = self.call.arguments
        if isinstance(given, str):
            raise ValueError("the arguments are not a JSON object")  # noqa: TRY004 - of the model, not of the caller
        arguments = dict(given or {})
        if self._hands_key_on and (self._rule != EffectRule("never") or "key" not in arguments):
            arguments["key"] = self.key
        inspect.signature(self._tool).bind(**arguments)
        return arguments

    def _observe(self, content: str, said: dict[str, Any]) -> Recorded:
        extras = {MARK: {"key": self.key, **said}}
        return self._history.append_tool_result(self.call, content, is_error=True, extras=extras)


def record_outcome(
    history: History,
    call: Action,
    key: str,
    content: Any,
    is_error: bool,
    said: Mapping[str, Any] | None = None,
    extras: Mapping[str, Any] | None = None,
) -> Recorded:
    """Record the outcome of a call: as its observation while it is open, else beside it, in one
    line that the model is shown. No lease is asked for.
    """
    extras = {**(extras or {}), MARK: {"key": key, **(said or {})}}
    generation = _unfenced(history)
    try:
        return history._append_result(call, content, is_error, extras, None, generation)
    except InvalidArgument:  # a list that only looks like the parts of a message
        if isinstance(content, str):
            raise
        return record_outcome(history, call, key, as_json(content), is_error, said, extras)
    except InvalidEvent as error:
        # what it says cannot be stored
        if any(call.id == each.id for each in history.open_calls()):
            lost = f"the tool returned, and its result cannot be stored: {error}"
            return history._append_result(call, lost, is_error, extras, None, generation)
    text = as_json(content)
    ended = "failed" if is_error else "ended"
    line = f"Late outcome: {_quoted(call)} (event {call.id}, key {key}) {ended}: {text}"
    outcome = {"outcome": content if isinstance(content, str) else text, "is_error": is_error}
    meta = {**extras, MARK: {**extras[MARK], **outcome}}
    late = Message(source="environment", content=line, cause=call.id, meta=meta)
    (recorded,) = history._store.append(
        history.id, late, expected_version=ANY_VERSION, generation=generation
    )
    return recorded


def record_overtaken(
    history: History,
    call_id: str | Action,
    content: Any,
    is_error: bool,
    extras: Mapping[str, Any] | None,
) -> None:
    """Record the result of a call, and raise ``LeaseTaken``, where the lease of this history was
    lost. Do nothing where it was not, or where no call has this id.
    """
    block = vars(history).get("_lease_block")
    if block is None:
        return
    try:
        block.check_held(_RECORDED)
    except LeaseTaken:
        traces, keys = read_traces(history)
        wanted = call_id.id if isinstance(call_id, Action) else call_id
        for number, one in reversed(traces.items()):
            if wanted in (number, one.call.call_id):
                record_outcome(history, one.call, keys[number], content, is_error, extras=extras)
                raise


def settle(
    history: History, key: str, outcome: Any, is_error: bool, by: str | None, reason: str
) -> Recorded:
    """Do what ``History.settle`` says."""
    traces, keys = read_traces(history)
    found = next((one for number, one in traces.items() if keys[number] == key), None)
    if found is None:
        raise InvalidArgument(
            f"conversation {history.id!r} has no effect with key {key!r}; history.effects() has"
            " them all"
        )
    said = {name: value for name, value in (("by", by), ("reason", reason)) if value}
    return record_outcome(history, found.call, key, outcome, is_error, said)


def effects(history: History, state: EffectState | None) -> tuple[Effect, ...]:
    """Do what ``History.effects`` says."""
    if state is not None and state not in STATES:
        raise InvalidArgument(
            f"the state of an effect is {', '.join(sorted(STATES))}, not {state!r:.60}"
        )
    traces, keys = read_traces(history)
    living = token_of(history._store, history.id)
    found = (
        Effect(one.call, keys[number], one.state(living), len(one.marks), one.outcome)
        for number, one in traces.items()
        if number == one.call.id
    )
    return tuple(one for one in found if state in (None, one.state))


def closing(history: History, reason: str, calls: Sequence[Action]) -> list[Observation]:
    """Return the observations that close open calls: what the log says of each."""
    traces, keys = read_traces(history, min(_start_of(history, call) for call in calls))
    marked = {one.call.tool for one in traces.values() if one.marks}
    observations = []
    for call in calls:
        extras: dict[str, Any] = {}
        if traces[call.id].marks:
            content, extras = _doubt(keys[call.id], reason)
            extras = {MARK: {"key": keys[call.id], **extras}}
        elif call.tool in marked:
            content = f"not begun: {reason or 'the program stopped before it ran'}"
        else:
            content = f"interrupted: {reason or UNKNOWN_OUTCOME}"
        observations.append(answer_to(call, content, is_error=True, extras=extras))
    return observations


def taken_back(history: History, version: int) -> Message | None:
    """Return what the model is told of the effects that a retraction takes back and that happened;
    None without any.
    """
    lines = []
    named = []
    traces, keys = read_traces(history, version)
    for number, one in traces.items():
        state = one.state(None)
        if not one.marks or state not in ("done", "unknown") or one.call.id != number:
            continue
        named.append(keys[number])
        what = "it had run" if state == "done" else "it may have run"
        outcome = as_json(one.outcome)[:_QUOTED_MAX]
        lines.append(f"Taken back, but {what}: {_quoted(one.call)} (key {keys[number]}): {outcome}")
    meta = {MARK: {"taken_back": named}}
    return Message(source="environment", content="\n".join(lines), meta=meta) if lines else None


def read_traces(history: History, start: int = 0) -> tuple[dict[int, CallTrace], dict[int, str]]:
    """Return the traces of the calls from ``start`` on, and their keys, by the ids of the actions.
    Cost: these events.
    """
    keys = dict[int, str]()

    def read(reading: ReadTransaction, first: int, stop: int) -> Iterator[tuple[Event, bytes]]:
        rows = reading.rows(first, stop, stop - first)
        events = dense_events(reading.conversation, rows, first, stop)
        return ((event, row.head) for event, row in zip(events, rows, strict=True))

    def events() -> Iterator[Event]:
        store = history._store
        if not history.version():
            return
        for event, head in chain.from_iterable(
            pages(store.database, history.id, start, NUMBER_MAX, read)
        ):
            if isinstance(event, Action | Annotation):
                keys[event.id] = key_of(head)
            yield event

    traces = trace(events())
    for number, one in traces.items():
        keys[number] = keys[one.call.id]
    return traces, keys


def _start_of(history: History, call: Action) -> int:
    """Return the id of the first event that concerns a call: a runtime may store its intent before
    it.
    """
    intent = () if call.call_id is None else history.recorded(key_of_intent(call.call_id))
    return min(call.id, intent[0].id) if intent else call.id


def _storable(content: Any) -> Any:
    """Return what a tool returned if it has a form as JSON, else its text: the tool has run,
    whatever it returned.
    """
    if content is None or isinstance(content, str | int | float | Mapping | list | tuple):
        # such as keys of a map that JSON has not: then its text is stored
        with suppress(Exception):
            as_json(content)
            return content
    with suppress(Exception):  # it comes from the code of the tool
        return str(content)
    return f"a {type(content).__name__} that has no text"


def _unfenced(history: History) -> Generation:
    return replace(history._generation, fence=None)


def _doubt(key: str, problem: str = "") -> tuple[str, dict[str, Any]]:
    """Return what the model is told of a call that may have run, and the extras of its
    observation.
    """
    told = f"unknown: this call may have run, key {key}: look before you repeat it"
    return f"{told} ({problem})" if problem else told, {"state": "unknown"}


def in_doubt_words(call: Action, key: str) -> str:
    """Return what a model is told, in the place of a result, of a call that may have run before."""
    return f"unknown: {_quoted(call)} may have run, key {key}: look before you repeat it"


def _quoted(call: Action) -> str:
    return f"{call.tool} {arguments_of(call)[:_QUOTED_MAX]}"
