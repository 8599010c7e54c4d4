"""Run the tool of a call at most once, or repeat it with the same key.

The state of a call is computed from the events of the log: see ``foldlog.projections.call_states``.
A worker must have the lease to begin a tool. The outcome is always recorded, even if the lease is
lost before the tool ends.

See docs/internals/decisions/0096-effects.md.
"""

from __future__ import annotations

import inspect
import os
import pwd
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import structs

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history.lease import LeaseTaken, token_of
from foldlog.eventstore import (
    Action,
    Annotation,
    Event,
    EventStoreError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
    Recorded,
    VersionConflict,
)
from foldlog.eventstore.arguments import NUMBER_MAX, check_text, check_time
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import TooManyBytes
from foldlog.eventstore.log.appending import Seen
from foldlog.eventstore.log.finding import pages
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.row import dense_events, from_microseconds
from foldlog.eventstore.recorders.types import Row
from foldlog.projections import Effect, EffectState, arguments_of, as_json
from foldlog.projections.call_states import (
    APPROVAL,
    MARK,
    STATES,
    CallTrace,
    effect_fields,
    first_own,
    key_of_intent,
    key_of_mark,
    trace as trace_calls,
)
from foldlog.projections.refusals import OF_USER, REJECTION_SOURCE
from foldlog.projections.tool_results import UNKNOWN_OUTCOME, answer_to, why_no_result

if TYPE_CHECKING:
    from foldlog._history.log import HistoryLog

Repeat = Literal["never", "same key", "safe"]
MissingApproval = Literal["none", "refused", "ended"]
Check = Callable[[str, Action], Any]
"""Looks for the outcome of a call outside, by its key. Returns the outcome, or None."""
_REPEATS = ("never", "same key", "safe")
RULE = "__foldlog_effect__"
"""The attribute of a tool in which ``foldlog.effect`` stores the rule of the tool."""
_QUOTED_MAX = 200
"""The number of characters of arguments and outcomes that a message quotes."""
_RECORDED = "the outcome was still recorded; begin again with history.lease()"


class Outcome(NamedTuple):
    """What is recorded when a tool has ended. ``extras`` are stored and not shown."""

    content: Any
    is_error: bool
    extras: JsonMap
    idempotency_key: str | None = None
    seen: Seen | None = None
    """What ``content`` repeats, if it is the content of an earlier event."""


class NotApproved(InvalidArgument):
    """The call needs an approval, and its last decision does not allow it now. Nothing was run.
    ``problem`` is the message without the remedy. ``decision`` tells the caller what to do next:
    ``none`` (ask a person), ``refused`` (tell the model), or ``ended`` (ask again).
    """

    def __init__(self, problem: str, decision: MissingApproval) -> None:
        super().__init__(f"{problem}; history.decide(call, True, by=…) approves it")
        self.problem = problem
        self.decision = decision


@dataclass(frozen=True)
class EffectRule:
    """How the tool of an effect may be repeated, and whether each run needs an approval: see
    ``History.run``.
    """

    repeat: Repeat = "never"
    check: Check | None = None
    needs_approval: bool = False

    def __post_init__(self) -> None:
        if self.repeat not in _REPEATS:
            raise InvalidArgument(
                f"repeat is {self.repeat!r}; use {', '.join(map(repr, _REPEATS))}"
            )
        if self.check is not None and not callable(self.check):
            raise TypeError(
                f"check must be a function of the key and the call, not {self.check!r:.60}"
            )

    @property
    def is_run_once(self) -> bool:
        """Whether nothing can tell if a run that was interrupted had its effect, so that the tool
        never runs again.
        """
        return self.repeat == "never" and self.check is None


def rule_for(
    tool: Callable[..., Any],
    repeat: Repeat | None,
    check: Check | None,
    needs_approval: bool = False,
) -> tuple[Callable[..., Any], EffectRule]:
    """Return a tool without its mark (``foldlog.effect``), and its rule. The arguments override the
    rule in the mark.
    """
    marked_rule = getattr(tool, RULE, None)
    if not isinstance(marked_rule, EffectRule):
        return tool, EffectRule(repeat or "never", check, needs_approval)
    rule = EffectRule(
        repeat or marked_rule.repeat,
        check or marked_rule.check,
        needs_approval or marked_rule.needs_approval,
    )
    unmarked = vars(tool)["__wrapped__"]
    if inspect.ismethod(tool):
        unmarked = MethodType(unmarked, tool.__self__)
    return unmarked, rule


def run(
    history: HistoryLog,
    call: Action,
    tool: Callable[..., Any],
    rule: EffectRule,
    by: str | None,
    reason: str,
) -> Recorded:
    """Run the tool of an open call, and record its outcome: see ``History.run``."""
    if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(rule.check):
        raise TypeError(
            f"{tool!r} or its check is async; open the store with foldlog.aio.open, and await"
            " history.run(…)"
        )
    with alone(history, call):
        attempt = Attempt(history, call, tool, rule, by, reason)
        recorded = attempt.ended_before()
        if recorded is None and rule.check is not None and attempt.needs_check:
            recorded = attempt.checked(look_up(rule.check, attempt.key, call))
        return recorded or attempt.begin() or attempt.run_tool()


def look_up(check: Check, key: str, call: Action) -> Any:
    """Return the outcome that a check finds, or None. Raises ``TypeError`` if the check is async,
    because nothing awaits it here.
    """
    outcome = check(key, call)
    if inspect.iscoroutine(outcome):
        outcome.close()
        raise TypeError(
            "the check returned a coroutine and did not run; define the check with 'async def', and"
            " run the tool with the history of foldlog.aio"
        )
    return outcome


@dataclass(frozen=True)
class BegunElsewhere:
    """The next act of a program that runs the tool of a call itself: ``run`` the tool with
    ``arguments``, ``check`` the outcome of ``key`` outside, or nothing (``done``), because the log
    has the outcome ``recorded``.
    """

    next: Literal["run", "check", "done"]
    key: str
    arguments: JsonMap
    recorded: Recorded | None = None


def begin_elsewhere(
    history: HistoryLog,
    call: Action,
    rule: EffectRule,
    *,
    asks_first: bool,
    run: str | None,
    by: str | None,
    reason: str,
) -> BegunElsewhere:
    """Record that a program outside of this process begins the tool of an open call. The program
    records the outcome with ``end_elsewhere``.

    With ``asks_first``, a call that may have run begins only after the program has looked for its
    outcome. ``run`` names this begin: if the begin is repeated with the same name, the tool counts
    as begun once. Raises the errors of ``Attempt``.
    """

    def tool(key: str = "", **arguments: Any) -> None:
        """Take any arguments, because the tool itself is elsewhere."""

    with alone(history, call):
        attempt = Attempt(history, call, tool, rule, by, reason, run)
        if attempt.has_begun:
            return BegunElsewhere("run", attempt.key, arguments_for(call))
        recorded = attempt.ended_before()
        if recorded is None and asks_first and attempt.needs_check:
            return BegunElsewhere("check", attempt.key, {})
        recorded = recorded or attempt.begin()
        if recorded is not None:
            return BegunElsewhere("done", attempt.key, {}, recorded)
        return BegunElsewhere("run", attempt.key, arguments_for(call))


def arguments_for(call: Action) -> JsonMap:
    """Return the arguments of a call. There are none if the model wrote no JSON object."""
    return call.arguments if isinstance(call.arguments, Mapping) else {}


def end_elsewhere(
    history: HistoryLog,
    call_id: int | str,
    content: Any,
    is_error: bool,
    idempotency_key: str | None,
) -> Recorded:
    """Record the outcome of a tool that a program outside of this process ran. ``call_id`` is the
    id of the event of the call, or the id that the model gave the call. The outcome is recorded
    even if the lease has ended, and once for each ``idempotency_key``. Raises ``InvalidEvent``
    unless it is a call.
    """
    found = _find_call(history, call_id)
    if found is None:
        raise InvalidEvent(f"{call_id!r} is not a call of a tool in {history.id!r}")
    call, key = found
    outcome = Outcome(content, is_error, {}, idempotency_key)
    return find_outcome(history, call, outcome) or record_outcome(history, call, key, outcome)


def check_call(method: str, call: object) -> None:
    """Raise ``TypeError`` if the argument ``call`` of a method is not an action."""
    if not isinstance(call, Action):
        raise TypeError(f"{method} needs a call from history.open_calls(), not {call!r:.60}")


@contextmanager
def alone(history: HistoryLog, call: Action) -> Iterator[None]:
    """Let only this thread run the call. A lease keeps other workers away, but not the other
    threads of this worker. Raises ``InvalidEvent`` if another thread runs the call.
    """
    check_call("run", call)
    # If two threads call ``setdefault``, only one of them sets the value, without a lock.
    running = history._running_calls
    thread = object()
    if running.setdefault(call.id, thread) is not thread:
        raise InvalidEvent(
            f"conversation {history.id!r}: another thread runs call {call.id}; nothing was"
            " appended; leave the call to that thread"
        )
    try:
        yield
    finally:
        del running[call.id]


class Attempt:
    """An attempt to run a tool. Call ``ended_before`` first and ``begin`` last. If the call
    ``needs_check`` and its rule has a check, call ``checked`` before ``begin``. If one of the three
    methods returns an outcome, the tool must not run. Otherwise call ``run_tool``, or run the tool,
    and call ``end`` or ``failed``.

    ``by`` and ``reason`` say who approved the call and why, and are stored with the attempt.
    ``run`` is the name of the attempt: if a client repeats its request to begin, the request has
    the same name. By default, the name is random. The constructor raises ``InvalidEvent`` if the
    call is not open.
    """

    def __init__(
        self,
        history: HistoryLog,
        call: Action,
        tool: Callable[..., Any],
        rule: EffectRule,
        by: str | None = None,
        reason: str = "",
        run: str | None = None,
    ) -> None:
        self._history = history
        self.call = call
        self._run = run or secrets.token_hex(8)
        self._tool = tool
        self._rule = rule
        if inspect.isgeneratorfunction(tool) or inspect.isasyncgenfunction(tool):
            raise TypeError(
                f"{tool!r} is a generator, so a call does not run it; return the result instead"
            )
        try:
            self._hands_key_on = "key" in inspect.signature(tool).parameters
        except ValueError as error:
            raise TypeError(
                f"{tool!r} has no signature, so nothing says which arguments it takes; pass a"
                " function that calls it"
            ) from error
        if rule.repeat == "same key" and not self._hands_key_on:
            name = getattr(tool, "__name__", tool)
            raise InvalidArgument(
                f"{name!r} takes no argument 'key', so it cannot pass the key to the outside"
                " system; add a parameter 'key' to the tool"
            )
        self._approval = {name: value for name, value in (("by", by), ("reason", reason)) if value}
        if all(call.id != open_call.id for open_call in history.open_calls()):
            raise InvalidEvent(why_no_result(history.id, call, history.view()))
        self._read_trace()
        self._is_shared = call.id < history._store.query(history.id, first_own)
        self._has_forks = rule.check is not None and bool(
            history._store.forks_sharing(history.id, call.id)
        )
        self.arguments: JsonObject = {}

    def _read_trace(self) -> None:
        self._seen = self._history._seen()
        traces = read_traces(self._history, _start_of(self._history, self.call))
        self._trace = traces[self.call.id]
        self.key = self._trace.key

    @property
    def is_in_doubt(self) -> bool:
        """Whether the tool may have run before. A fork shares calls with its parent, and cannot
        know whether the parent ran the tool.
        """
        return bool(self._trace.marks) or self._is_shared

    @property
    def needs_check(self) -> bool:
        """Whether an outcome may exist outside. A fork that shares the call may have checked it and
        run its tool.
        """
        return self.is_in_doubt or self._has_forks

    def ended_before(self) -> Recorded | None:
        """If the log has an outcome of the call, record this outcome again and return it. If the
        tool may have run and must not be repeated, record and return an outcome that says so.
        """
        while True:
            state = self._trace.state(None)
            # An open call can have an outcome in the log, because a retraction takes the result out
            # of the View, but cannot undo the tool. A failed call without a mark never began, and
            # may run now.
            if state != "done" and not (state == "failed" and self._trace.marks):
                break
            try:
                return self._end(self._trace.outcome, state == "failed", self._seen)
            except VersionConflict:
                self._read_trace()  # The outcome may have been redacted.
        if self.is_in_doubt and self._rule.is_run_once:
            return self._observe(*_doubt(self.key))
        return None

    @property
    def has_begun(self) -> bool:
        """Whether this attempt has its mark already, because its begin is repeated."""
        marks = self._trace.marks
        block = self._history._lease_block
        return (
            block is not None
            and bool(marks)
            and self._trace.state(None) not in ("done", "failed")
            and (marks[-1].data.get("run"), marks[-1].data.get("lease")) == (self._run, block.token)
        )

    def checked(self, outcome: Any) -> Recorded | None:
        """Record the outcome that the check has found, and return it. None means that it has found
        none, so the tool may run.
        """
        return None if outcome is None else self.end(outcome)

    def begin(self) -> Recorded | None:
        """Record that the tool begins, unless its rule is ``safe``, and return None. If the
        arguments do not fit the tool, record and return an observation that says why.

        Raises ``LeaseTaken`` if the lease is over, and ``InvalidArgument`` outside of
        ``history.lease()`` or without the approval that the rule needs.
        """
        try:
            self.arguments = self._bind_arguments()
        except (TypeError, ValueError) as error:
            return self._observe(f"not begun: {error}", {})
        if self._rule.needs_approval:
            self._approval = approval_of(self._history, self._trace)
        if self._rule.repeat == "safe":
            return None
        block = self._history._lease_block
        if block is None:
            raise InvalidArgument(
                f"conversation {self._history.id!r}: an effect needs a lease, and none is held; "
                f"write 'with history.lease(): history.run(…)', or repeat='safe' for a tool"
                " that only reads"
            )
        attempt = len(self._trace.marks) + 1
        data = {
            "attempt": attempt,
            "run": self._run,
            "worker": block.lease.worker,
            "lease": block.token,
            **self._approval,
        }
        mark = Annotation(name=MARK, data=data, cause=self.call.id)
        # The key of the attempt lets only one of two workers begin it.
        self._history.append(mark, idempotency_key=key_of_mark(self.key, attempt))
        if not block.lease.held:
            block.check_held(
                "the call counts as begun; the next worker checks its outcome, or closes it as "
                "unknown"
            )
        return None

    def run_tool(self) -> Recorded:
        """Run the tool, which is not async, and record its outcome."""
        try:
            content = self._tool(**self.arguments)
        except Exception as error:  # noqa: BLE001 - any error of the tool is its outcome
            return self.failed(error)
        if inspect.iscoroutine(content):
            content.close()
            return self.failed(
                TypeError(
                    "the tool returned a coroutine and did not run; define the tool with"
                    " 'async def', and run it with the history of foldlog.aio"
                )
            )
        return self.end(content)

    def end(self, content: Any, *, is_error: bool = False) -> Recorded:
        """Record the outcome of the tool, as a late outcome if the call was closed while the tool
        ran. Then raise ``LeaseTaken`` if the lease was lost while the tool ran.
        """
        return self._end(content, is_error)

    def _end(self, content: Any, is_error: bool, seen: Seen | None = None) -> Recorded:
        block = self._history._lease_block
        outcome = Outcome(_storable(content), is_error, {}, seen=seen)
        recorded = record_outcome(self._history, self.call, self.key, outcome)
        if block is not None and not block.lease.held:
            block.check_held(_RECORDED)
        return recorded

    def failed(self, error: Exception) -> Recorded:
        """Record that the tool has failed. After a timeout, it is unknown whether the tool did its
        work.
        """
        problem = f"{type(error).__name__}: {_storable(error)}"
        if isinstance(error, TimeoutError):
            return self._observe(*_doubt(self.key, problem))
        return self.end(f"{problem} (key {self.key})", is_error=True)

    def _bind_arguments(self) -> JsonObject:
        """Return the arguments with which the tool runs. Raises ``TypeError`` or ``ValueError`` if
        they do not fit the tool.
        """
        if isinstance(self.call.arguments, str):
            # The model's mistake, not the caller's.
            raise ValueError("the arguments are not a JSON object")  # noqa: TRY004
        arguments = dict(self.call.arguments or {})
        # A tool under the rule "never" may have an argument 'key' of its own.
        if self._hands_key_on and (not self._rule.is_run_once or "key" not in arguments):
            arguments["key"] = self.key
        inspect.signature(self._tool).bind(**arguments)
        return arguments

    def _observe(self, content: str, fields: JsonObject) -> Recorded:
        extras = {MARK: {"key": self.key, **fields}}
        return append_result(self._history, self.call, content, True, extras, None)


def _last_decision(trace: CallTrace) -> Annotation | None:
    """Return the last event that decided about the call, or None. A redacted event may have been a
    refusal, so it counts as a decision, of which nothing is known.
    """
    for event in reversed(trace.approvals):
        is_decision = isinstance(event.data, dict) and "approved" in event.data
        if is_decision or not has_content(event):
            return event
    return None


def _is_refused(trace: CallTrace) -> bool:
    """Return whether the last decision about the call was a refusal."""
    decision = _last_decision(trace)
    return decision is not None and has_content(decision) and decision.data["approved"] is False


def approval_of(history: HistoryLog, trace: CallTrace) -> JsonObject:
    """Return who approved a call and why. Raises ``NotApproved`` if the last decision does not
    allow the call now, or was redacted.
    """
    event = _last_decision(trace)
    decision = {} if event is None or not has_content(event) else event.data
    now = from_microseconds(history._store.database.now()).isoformat()
    missing: MissingApproval | None = None
    problem = ""
    if event is None:
        missing = "none"
        problem = "it has no approval"
    elif not has_content(event):
        missing = "none"
        problem = f"its last decision (event {event.id}) was redacted"
    elif decision.get("approved") is not True:
        missing = "refused"
        problem = "a person refused it"
    elif not _lasts(decision.get("until"), now):
        missing = "ended"
        problem = "its approval has ended"
    if missing is not None:
        raise NotApproved(
            f"conversation {history.id!r}: call {trace.call.id} of tool {trace.call.tool!r} needs"
            f" an approval, and {problem}; nothing was run",
            missing,
        )
    assert event is not None  # without a decision, the approval is missing
    # Another program may have written the decision without these fields.
    return {"by": decision.get("by"), "reason": decision.get("reason"), "approval": event.id}


def _lasts(until: object, now: str) -> bool:
    """Return whether an approval has not ended ``now``. ``until`` is None, or the time of its end
    as ``Decision.data`` writes it.
    """
    return until is None or (isinstance(until, str) and until >= now)


class Decision(NamedTuple):
    """A decision about a call. ``by`` is a text that nobody checks. ``token`` is the name of the
    token that made the decision over HTTP; without it, the user of this process made the decision.
    """

    approved: bool
    by: str
    reason: str = ""
    until: datetime | None = None
    token: str | None = None

    @property
    def data(self) -> JsonMap:
        """The data of the annotation. Raises ``TypeError`` if a field has a wrong type, and
        ``InvalidArgument`` if ``until`` is not from year 1 to 9999 in UTC.
        """
        if not isinstance(self.approved, bool):
            raise TypeError(f"approved must be True or False, not {self.approved!r:.60}")
        check_text("by", self.by)
        check_text("reason", self.reason)
        if self.until is not None:
            check_time("until", self.until)
        try:
            end = None if self.until is None else self.until.astimezone(UTC).isoformat()
        except OverflowError:
            raise InvalidArgument(f"until {self.until} is not from year 1 to 9999 in UTC") from None
        if self.token is None:
            maker = {"user": _process_user()}
        else:
            maker = {"token": self.token}
        return {
            "approved": self.approved,
            "by": self.by,
            "reason": self.reason,
            "until": end,
            **maker,
        }


def _process_user() -> str:
    """Return the name of the user that the system runs this process for. Unlike
    ``getpass.getuser``, do not believe the environment.
    """
    user_id = os.geteuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:  # as in many containers
        return str(user_id)


def record_approval(
    history: HistoryLog, call: Action, data: JsonMap, idempotency_key: str | None
) -> Recorded:
    """Record a decision about an open call: see ``History.decide``. ``data`` comes from
    ``Decision.data``.
    """
    check_call("an approval", call)
    is_open = any(call.id == open_call.id for open_call in history.open_calls())
    if not is_open and not (idempotency_key and history.recorded(idempotency_key)):
        raise InvalidEvent(why_no_result(history.id, call, history.view()))
    approval = Annotation(name=APPROVAL, data={**data}, cause=call.id)
    (recorded,) = history.append(approval, idempotency_key=idempotency_key)
    return recorded


def record_outcome(
    history: HistoryLog, call: Action, key: str, outcome: Outcome, fields: JsonMap | None = None
) -> Recorded:
    """Record the outcome of a call, without a check of the lease. The outcome of an open call
    becomes its observation. The outcome of a closed call becomes a message of a single line, which
    the model is shown. ``fields`` are stored with the key.
    """
    extras = {**outcome.extras, MARK: {"key": key, **(fields or {})}}
    append_result = partial(
        history._append_result,
        call,
        is_error=outcome.is_error,
        extras=extras,
        idempotency_key=outcome.idempotency_key,
        seen=outcome.seen,
    )
    try:
        return append_result(outcome.content)
    except InvalidArgument:
        # The tool returned a list that only looks like the parts of a message, so its JSON is
        # stored.
        if isinstance(outcome.content, str):
            raise
        text = outcome._replace(content=as_json(outcome.content))
        return record_outcome(history, call, key, text, fields)
    except InvalidEvent as error:
        # Either the call was closed in between, or this content cannot be stored.
        if any(call.id == open_call.id for open_call in history.open_calls()):
            return append_result(f"the tool returned, but its result cannot be stored: {error}")
    return _append_late(history, call, key, outcome, extras)


def _append_late(
    history: HistoryLog, call: Action, key: str, outcome: Outcome, extras: JsonObject
) -> Recorded:
    """Append the message that a closed call has ended. Unlike other appends of this worker, it
    needs no lease.
    """
    text = as_json(outcome.content)
    ended = "failed" if outcome.is_error else "ended"
    content = outcome.content if isinstance(outcome.content, str) else text
    recorded_outcome = {"outcome": content, "is_error": outcome.is_error}
    meta = {**extras, MARK: {**extras[MARK], **recorded_outcome}}
    while True:
        # The call may have been redacted while its tool ran.
        seen = outcome.seen or history._seen()
        quoted = _quote(without_redacted(history, call))
        line = f"Late outcome: {quoted} (event {call.id}, key {key}) {ended}: {text}"
        late = Message(source="environment", content=line, cause=call.id, meta=meta)
        try:
            (recorded,) = history._store.append(
                history.id,
                late,
                expected_version=seen.at_any_version(),
                idempotency_key=outcome.idempotency_key,
            )
        except VersionConflict:
            if outcome.seen is not None:
                raise
        else:
            return recorded


def without_redacted(history: HistoryLog, call: Action) -> Action:
    """Return the call. If it was redacted after it was read, its arguments are left out."""
    (stored,) = history.events(call.id, call.id + 1)
    return call if has_content(stored) else structs.replace(call, arguments=None)


def append_result(
    history: HistoryLog,
    call: str | Action,
    content: Any,
    is_error: bool,
    extras: dict[str, Any] | None,
    idempotency_key: str | None,
) -> Recorded:
    """Append the observation of an open call: see ``History.append_tool_result``. ``call`` is the
    call, or the id that the model gave to it.
    """
    try:
        return history._append_result(
            call, content, is_error, extras, idempotency_key, fence=history._fence
        )
    except EventStoreError as error:
        # Another worker may have the lease, and may have closed the call.
        outcome = Outcome(content, is_error, extras or {}, idempotency_key)
        record_overtaken(history, call, outcome)
        if not isinstance(error, IdempotencyConflict):
            raise
        # The outcome may have been recorded after the lease was lost.
        recorded = find_outcome(history, call, outcome)
        if recorded is None:
            raise
        return recorded


def record_overtaken(history: HistoryLog, call: str | Action, outcome: Outcome) -> None:
    """If this worker lost its lease, record the outcome that it brings too late, and raise
    ``LeaseTaken``. ``call`` is the call, or the id that the model gave to it.
    """
    block = history._lease_block
    if block is None:
        return
    try:
        block.check_held(_RECORDED)
    except LeaseTaken:
        if find_outcome(history, call, outcome) is None:
            found = _find_call(history, call.id if isinstance(call, Action) else call)
            if found is None:
                return
            record_outcome(history, *found, outcome)
        raise


def _find_call(history: HistoryLog, name: int | str) -> tuple[Action, str] | None:
    """Return the newest call with this event id, or with this id of the model, and its key. If only
    the intent of the call is stored, return the call that the intent describes.
    """
    start = name if isinstance(name, int) else 0
    traces = read_traces(history, start)
    for event_id, trace in reversed(traces.items()):
        if name in (event_id, trace.call.call_id):
            break
    else:
        return None
    first = _start_of(history, trace.call)
    if first < start:  # the earlier intent has the key of the call
        trace = read_traces(history, first)[event_id]
    (stored,) = history.events(event_id, event_id + 1)
    return (stored if isinstance(stored, Action) else trace.call), trace.key


def find_outcome(history: HistoryLog, call: str | Action, outcome: Outcome) -> Recorded | None:
    """Return the outcome that was recorded under the key, or None if the key was never used.
    ``call`` is the call, or the id that the model gave to it. Raises
    ``IdempotencyConflict`` if the key belongs to another outcome, or to the outcome of another
    call.
    """
    key = outcome.idempotency_key
    recorded = None if key is None else next(iter(history.recorded(key)), None)
    if recorded is None:
        return None
    # An outcome is an observation or a late outcome, so the store cannot compare the events.
    event: Any = recorded.event
    late = effect_fields(event.meta) if isinstance(event, Message) else {}
    content = late.get("outcome", getattr(event, "content", None))
    failed = late.get("is_error", getattr(event, "is_error", None))
    is_equal = (as_json(content), failed) == (as_json(outcome.content), outcome.is_error)
    if not _is_of_call(history, event, call) or (has_content(event) and not is_equal):
        raise IdempotencyConflict(history.id, str(key), event.id)
    return recorded


def _is_of_call(history: HistoryLog, outcome: Event, call: str | Action) -> bool:
    """Return whether an observation or a late outcome belongs to a call."""
    if isinstance(call, Action):
        return outcome.cause == call.id
    if outcome.cause is None:
        return getattr(outcome, "call_id", None) == call
    (cause,) = history.events(outcome.cause, outcome.cause + 1)
    return isinstance(cause, Action) and cause.call_id == call


def settle(
    history: HistoryLog, key: str, outcome: Any, is_error: bool, by: str | None, reason: str
) -> Recorded:
    """Record an outcome that was learned after the attempt: see ``History.settle``."""
    traces = each_once(read_traces(history))
    call = next((trace.call for trace in traces if trace.key == key), None)
    if call is None:
        raise InvalidArgument(
            f"conversation {history.id!r} has no effect with key {key!r}; history.effects() "
            f"returns all effects"
        )
    fields = {name: value for name, value in (("by", by), ("reason", reason)) if value}
    return record_outcome(history, call, key, Outcome(outcome, is_error, {}), fields)


def effects(
    history: HistoryLog, state: EffectState | None, *, bytes_max: int | None = None
) -> tuple[Effect, ...]:
    """Return the effects of a history, or only those in a state: see ``History.effects``. Raises
    ``TooManyBytes`` as soon as the calls and their results have more than ``bytes_max`` bytes.
    """
    if state is not None and state not in [*STATES]:  # The caller may pass any type.
        raise InvalidArgument(
            f"the state of an effect is one of {', '.join(sorted(STATES))}, not {state!r:.60}"
        )
    lease_token = token_of(history._store, history.id)
    all_effects = (
        Effect(
            trace.call,
            trace.key,
            trace.state(lease_token),
            len(trace.marks),
            trace.outcome,
        )
        for trace in each_once(read_traces(history, bytes_max=bytes_max))
    )
    return tuple(effect for effect in all_effects if state in (None, effect.state))


def closing_observations(
    history: HistoryLog, reason: str, calls: Sequence[Action]
) -> list[Observation]:
    """Return the observations that close open calls. Each says what the log shows: the call may
    have run, it was not begun, or it was interrupted.
    """
    traces = read_traces(history, min(_start_of(history, call) for call in calls))
    tools_with_marks = {call_trace.call.tool for call_trace in traces.values() if call_trace.marks}
    observations = []
    for call in calls:
        extras: JsonObject = {}
        if traces[call.id].marks:
            key = traces[call.id].key
            content, extras = _doubt(key, reason)
            extras = {MARK: {"key": key, **extras}}
        elif _is_refused(traces[call.id]):
            content = f"not begun: {reason or 'the user rejected this action'}"
            extras = {REJECTION_SOURCE: OF_USER}
        elif call.tool in tools_with_marks:
            # The runtime of this tool marks every beginning, so a call without a mark did not
            # begin.
            content = f"not begun: {reason or 'the program stopped before it ran'}"
        else:
            content = f"interrupted: {reason or UNKNOWN_OUTCOME}"
        observations.append(answer_to(call, content, is_error=True, extras=extras))
    return observations


def taken_back(history: HistoryLog, version: int) -> Message | None:
    """Return the message that names the effects which a retraction to ``version`` takes out of the
    View, but cannot undo. Return None if there are none.
    """
    lines = []
    keys_taken_back = []
    traces = read_traces(history, version)
    # A runtime may have recorded the start of a tool before ``version``, and the call after it.
    starts = [_start_of(history, trace.call) for trace in traces.values() if not trace.marks]
    if min(starts, default=version) < version:
        traces = read_traces(history, min(starts))
    # A call and its earlier intent have the same trace.
    traces_by_call = {
        trace.call.id: trace for event_id, trace in traces.items() if event_id >= version
    }
    for trace in traces_by_call.values():
        state = trace.state(None)
        if not trace.marks or state not in ("done", "unknown"):
            continue
        keys_taken_back.append(trace.key)
        what = "it had run" if state == "done" else "it may have run"
        outcome = as_json(trace.outcome)[:_QUOTED_MAX]
        lines.append(f"Taken back, but {what}: {_quote(trace.call)} (key {trace.key}): {outcome}")
    if not lines:
        return None
    meta = {MARK: {"taken_back": keys_taken_back}}
    return Message(source="environment", content="\n".join(lines), meta=meta)


def each_once(traces: Mapping[int, CallTrace]) -> Iterator[CallTrace]:
    """Yield each trace once. In ``traces``, a call and its earlier intent have the same trace."""
    return (trace for event_id, trace in traces.items() if event_id == trace.call.id)


def read_traces(
    history: HistoryLog, start: int = 0, *, bytes_max: int | None = None
) -> dict[int, CallTrace]:
    """Return the traces of calls by the ids of their actions and intents. Raises ``TooManyBytes``
    as soon as the calls and their results have more than ``bytes_max`` bytes. Cost: the function
    reads the events from ``start`` on.
    """
    held_bytes = 0

    def decode(
        conversation: str, rows: Sequence[Row], first: int, stop: int
    ) -> Iterator[tuple[Event, bytes]]:
        nonlocal held_bytes
        events = dense_events(conversation, rows, first, stop)
        for event, row in zip(events, rows, strict=True):
            if isinstance(event, Action | Observation):
                held_bytes += size_of(row.body)
            if bytes_max is not None and held_bytes > bytes_max:
                raise TooManyBytes(conversation, bytes_max, is_of_calls=True)
            yield event, row.head

    if not history.version():
        return {}
    events = pages(history._store.database, history.id, start, NUMBER_MAX, decode)
    return trace_calls(chain.from_iterable(events))


def _start_of(history: HistoryLog, call: Action) -> int:
    """Return the id of the first event that concerns a call: the call, or its earlier intent."""
    if call.call_id is None:
        return call.id
    intents = history.recorded(key_of_intent(call.call_id))
    return min(call.id, intents[0].id) if intents else call.id


def _storable(content: Any) -> Any:
    """Return the result of a tool in a form that can be stored. The tool has already run, so this
    function must never raise an error.
    """
    if content is None or isinstance(content, str | int | float | Mapping | list | tuple):
        with suppress(Exception):  # The keys of a map may not be texts, for example.
            as_json(content)
            return content
    with suppress(Exception):  # ``__str__`` is code of the tool, and may raise any error.
        return str(content)
    return f"a {type(content).__name__} that has no text"


def _doubt(key: str, problem: str = "") -> tuple[str, JsonObject]:
    """Return the content and the fields of an observation that says that a call may have run."""
    text = f"unknown: this call may have run, key {key}: check before you repeat it"
    if problem:
        text += f" ({problem})"
    return text, {"state": "unknown"}


def in_doubt_words(call: Action, key: str) -> str:
    return f"unknown: {_quote(call)} may have run, key {key}: check before you repeat it"


def _quote(call: Action) -> str:
    return f"{call.tool} {arguments_of(call)[:_QUOTED_MAX]}"
