"""What a running agent does with its history: call tools, take leases, and store replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from foldlog._history.condensing import HistoryCondensing
from foldlog._history.log import ExpectedVersion
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CondensationSummary,
    Event,
    IdempotencyConflict,
    InvalidArgument,
    Recorded,
    Retraction,
    VersionConflict,
)
from foldlog.eventstore.arguments import check_text
from foldlog.eventstore.log.appending import Seen, version_of
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.row import time_before

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._history.lease import Lease
    from foldlog._history.streamed_reply import ReplyPart, StreamedReply, UnfinishedReply
    from foldlog._reports.search.recall_tool import RecallTool
    from foldlog.projections import Effect, ModelRequest


class HistoryRun(HistoryCondensing):
    """A conversation that an agent runs: it calls tools, takes a lease, asks for approvals, and
    stores replies. ``HistoryCondensing`` has the steps before each call of its model.
    """

    def close_open_calls(
        self, reason: str = "", *, older_than: timedelta | None = None
    ) -> tuple[Recorded, ...]:
        """Close every open call with an observation that has the ``reason``. If an error is raised,
        no call of this history is closed. Return the observations in the order of the calls. The
        tuple is empty if no call is open.

        For a call that ``run`` began, the observation says "unknown: this call may have run", with
        the key of the call. If ``run`` did not begin the call, but began another call of the same
        tool since the first of the closed calls, or if a person refused the call, the observation
        says "not begun". In all other cases, the observation says "interrupted". The open calls of
        sub-agents that such a call began are closed first, and the observation names their calls
        that may have run.

        Call this method only when no program works on the calls any more, because a later result
        would no longer match an open call. With ``older_than``, younger calls are left out. Other
        writers may append at the same time. Raises ``LeaseTaken`` while another worker drives the
        history (see ``lease``), and the errors of ``append``. Durability: the observations are on
        disk when the method returns. Cost: the method reads the View, and writes an observation for
        each open call.
        """
        from foldlog._history.sub_agents import close_below

        if not isinstance(older_than, timedelta | None):
            raise TypeError(f"older_than must be a datetime.timedelta, not {older_than!r:.60}")
        made_before = None
        if older_than is not None:
            if older_than < timedelta():
                raise InvalidArgument(
                    f"older_than is {older_than}; use a timedelta that is not negative"
                )
            made_before = time_before(self._store.database.now(), older_than)

        def is_old(call: Action) -> bool:
            return made_before is None or call.timestamp is None or call.timestamp <= made_before

        reason = check_text("reason", reason).strip()
        return self._close_calls(partial(close_below, self, reason), is_old)

    def _close_redacted_calls(self) -> None:
        """Close the open calls that were redacted. No worker can run such a call. While such a call
        is open, a model is not shown the other calls of the reply.
        """
        from foldlog._history.sub_agents import close_below

        reason = "the call was redacted before it had a result"
        self._close_calls(partial(close_below, self, reason), lambda call: not has_content(call))

    def lease(
        self, *, ttl_s: float = 30.0, wait_s: float = 60.0, worker: str | None = None
    ) -> AbstractContextManager[Lease]:
        """Return a context manager: ``with history.lease() as lease``. While the ``with`` block
        runs, no other worker drives this history.

        If another worker has the lease, the block waits up to ``wait_s`` seconds before it raises
        ``LeaseTaken``. Waiting workers get the lease in any order. If a worker releases the lease
        and takes it again at once, other workers may never get it, so pause between turns. The
        lease is renewed while the block runs. If the process does not renew the lease for ``ttl_s``
        seconds, for example because it died, another worker may take over the lease. After a
        takeover, every append of this ``History`` in the block raises ``LeaseTaken``, except
        redactions and outcomes of tools. Programs without a lease may still append, for example
        messages of the user. ``worker`` is the name that other workers see. The default is the name
        of the machine and the number of the process. The name of the worker is stored as plain
        text. The beginning of the block closes the open calls that were redacted.

        Raises ``LeaseTaken`` if another worker still has the lease, ``InvalidArgument`` inside
        another lease block of this ``History``, ``ConversationErased`` or ``StoreUnavailable``. The
        block holds no connection and no lock. Cost: the View is read. The block makes a commit at
        its beginning, a commit at its end, and three commits in every ``ttl_s`` seconds. Each
        append in the block also reads a row.
        """
        from foldlog._history.lease import LeaseBlock

        return LeaseBlock(self, ttl_s, wait_s, worker)

    def current_lease(self) -> Lease | None:
        """Return the lease of the worker that drives this history now (see ``lease``). Return None
        if no worker drives the history. An erasure of the history does not end the lease of its
        worker. A new history with the id of an erased history has a lease of its own.
        """
        from foldlog._history.lease import lease_of

        return lease_of(self._store, self.id)

    def append_tool_result(
        self,
        call_id: str | Action,
        content: Any,
        is_error: bool = False,
        *,
        extras: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Recorded:
        """Append the observation of an open call.

        If the lease of this history was lost, the method records the result anyway, even if the new
        worker has recorded another result, and then raises ``LeaseTaken``.

        Args:
            call_id: The id of the call, or a call from ``open_calls``. If several open calls have
                this id, the observation answers the first such call in the newest reply.
            content: A text, a list of parts in OpenAI's form (with a ``type``), or other JSON. JSON
                is shown to the model as text. NaN and infinities in JSON become texts.
            is_error: Whether the call failed.
            extras: Stored and not shown.
            idempotency_key: If the key was used before for this result, nothing is appended, and
                the recorded event is returned.

        Returns:
            The recorded observation.

        Raises:
            InvalidEvent: No call has this id, or the call already has its result.
            InvalidArgument: A part of type text has no text. Also raises the errors of ``append``.
            LeaseTaken: The lease was lost.

        Durability: the observation is on disk when the method returns.

        Cost: the method reads the View and the open calls. If the lease was lost, the method reads
        all events.
        """
        from foldlog._history.effects import append_result

        return append_result(self, call_id, content, is_error, extras, idempotency_key)

    def run(
        self,
        call: Action,
        tool: Callable[..., Any],
        *,
        repeat: Literal["never", "same key", "safe"] | None = None,
        check: Callable[[str, Action], Any] | None = None,
        by: str | None = None,
        reason: str = "",
        needs_approval: bool = False,
    ) -> Recorded:
        """Run the tool of an open call with the call's arguments, and record the outcome.

        Before the tool runs, the method appends a *mark* under the lease of this history: an event
        that records that the tool began. If the tool raises an error, the outcome is a failure.
        After a ``TimeoutError``, it is unknown whether the tool ran. A fork treats the calls that
        it shares with its parent as begun. An outcome is recorded even if the lease was lost, and
        then ``LeaseTaken`` is raised. ``@foldlog.effect`` sets ``repeat`` and ``check`` for a tool.

        Args:
            call: The open call.
            tool: Gets the arguments of the call by name.
            repeat: What happens if an earlier worker began the tool and recorded no outcome.
                ``"never"``, the default: the tool does not run, and the call is closed as unknown.
                So the tool never runs twice.
                ``"same key"``: the tool runs again with the same ``key``, an argument that it
                passes to the outside system. If this system remembers keys longer than you retry,
                the tool takes effect once.
                ``"safe"``: the tool runs again, without a mark and without a lease. Use this rule
                for tools that only read.
            check: ``check(key, call)`` asks the outside system whether the tool ran. It returns the
                outcome, or None if the outside system does not know the key; then the tool runs.
                With a check, a tool takes effect once, unless the earlier worker is still running
                it. If ``check`` raises an error, nothing is recorded.
            by, reason: Who approved the run and why. Both are stored in the mark.
            needs_approval: The tool runs only if ``decide`` has approved the call, and the mark
                names this event.

        Returns:
            The recorded outcome: an observation, or a late outcome if the call was closed before
            the tool ended.

        Raises:
            InvalidEvent: The call is not open.
            InvalidArgument: There is no lease (``history.lease()``), or no needed approval. Also
                raises the errors of ``append``.
            LeaseTaken: The lease was lost.

        Durability: the mark is on disk before the tool runs.

        Cost: the method makes one more append than ``append_tool_result``, and reads the View and
        the events since the call.
        """
        from foldlog._history import effects

        rule = effects.rule_for(tool, repeat, check, needs_approval)
        return effects.run(self, call, *rule, by, reason)

    def ask_approval(
        self, call: Action, *, to: str, shown: Any = None, idempotency_key: str | None = None
    ) -> Recorded:
        """Record that a person was asked to approve an open call, and what the person was shown. A
        call that is repeated with its ``idempotency_key`` records nothing more.

        Raises ``InvalidEvent`` if the call is not open, and the errors of ``append``.
        """
        from foldlog._history import effects

        asked = {"asked": to, "shown": shown}
        return effects.record_approval(self, call, asked, idempotency_key)

    def decide(
        self,
        call: Action,
        approved: bool,
        *,
        by: str,
        reason: str = "",
        until: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Recorded:
        """Record that a person approved or refused an open call. ``run`` with ``needs_approval``
        obeys the last decision.

        Args:
            call: The open call.
            approved: Whether the person approved the call.
            by: The person who decided. Nobody checks it, so the decision also records the user of
                the process.
            reason: Why.
            until: The end of an approval, by the clock of the store. By default, an approval does
                not end.
            idempotency_key: A call that is repeated with its key records nothing more.

        Returns:
            The recorded event with the decision.

        Raises:
            InvalidEvent: The call is not open. Also raises the errors of ``append``.
            TypeError: ``approved`` is not a boolean, or ``until`` has no time zone.

        Durability: the decision is on disk when the method returns.

        Cost: the method reads the View and the open calls, and appends an event.
        """
        from foldlog._history import effects

        decision = effects.Decision(approved, by, reason, until)
        return effects.record_approval(self, call, decision.data, idempotency_key)

    def effects(
        self, state: Literal["intended", "begun", "done", "failed", "unknown"] | None = None
    ) -> tuple[Effect, ...]:
        """Return the calls of the log with the state of their effects, in order. Forgotten and
        retracted calls are included. With ``state``, such as ``"unknown"``, return only the calls
        in this state.

        The states are ``intended`` (the call is not begun), ``begun`` (the call runs now),
        ``done``, ``failed`` and ``unknown`` (the call began, and its outcome was never recorded).
        Cost: the method reads all events.
        """
        from foldlog._history import effects

        return effects.effects(self, state)

    def settle(
        self,
        key: str,
        outcome: Any,
        *,
        is_error: bool = False,
        by: str | None = None,
        reason: str = "",
    ) -> Recorded:
        """Record the outcome that the outside system or a person reported for the effect with this
        key. The outcome becomes the observation of an open call. If the call is closed, the outcome
        becomes a one-line message to the model. This method needs no lease.

        Args:
            key: The key of the effect.
            outcome: The content of the observation.
            is_error: Whether the effect failed.
            by, reason: Who reported the outcome and why. Both are stored with the outcome.

        Returns:
            The recorded outcome.

        Raises:
            InvalidArgument: No call has this key. Also raises the errors of ``append``.

        Durability: the outcome is on disk when the method returns.

        Cost: the method reads all events.
        """
        from foldlog._history import effects

        return effects.settle(self, key, outcome, is_error, by, reason)

    def once(self, idempotency_key: str, work: Callable[[], Any]) -> tuple[Recorded, ...]:
        """Return the events that are recorded under the key. If the key was never used, do
        ``work``, append its result under the key, and return the appended events. ``work`` returns
        the reply of a model, or events to append.

        If a durable engine repeats a step, the method returns the recorded events, even if the
        model would answer differently now. ``work`` may run again after a crash before the append.
        If two workers run ``work`` at once, both get the result that was recorded first. Raises the
        errors of ``work``, ``append`` and ``append_reply``. Cost: the call costs as much as
        ``append``.
        """
        from foldlog._history.once import append_once

        return self.recorded(idempotency_key) or append_once(self, idempotency_key, work())

    def stream_reply(
        self,
        source: Iterable[Any] | None = None,
        *,
        cost: float | None = None,
        meta: Mapping[str, Any] | None = None,
        request: ModelRequest | None = None,
        view_version: int | None = None,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> StreamedReply:
        """Record the reply of a model while the model writes it.

        ``for chunk in history.stream_reply(source)`` yields the chunks of ``source``, each after it
        is in the store. ``source`` is what the SDK of OpenAI (chat completions and Responses),
        Anthropic or litellm gives, or texts. Without ``source``, write ``with
        history.stream_reply() as reply``, and call ``reply.feed(chunk)``. If the body of the loop
        may raise, use a ``with`` block around it too. At the end, the complete reply is appended as
        by ``append_reply``, and its stream is closed in the same transaction.

        ``reply.cancel()`` and an error append what was read so far, marked as cut, without calls
        whose arguments are incomplete; so does a source that ends before its provider has said so.
        After the end of the process, ``unfinished_reply`` has what was read.

        The arguments are those of ``append_reply``. If a reply used the idempotency key before,
        nothing is yielded or written, and ``reply.recorded`` has that reply. A reply that was cut
        does not use the key. If the complete reply is refused, its stream is closed without events.

        Raises ``ConversationNotFound`` if the history has no events, ``StreamConflict`` if a reply
        is being written or was left unfinished, ``ReplyFailed`` if a chunk reports an error of the
        provider, and the errors of ``append_reply``. Durability: a chunk that was yielded survives
        the end of the process. In a file, it is on the disk 0.1 s later. Cost: a transaction for
        each chunk, which on SQLite does not wait for the disk.
        """
        from foldlog._history.streamed_reply import StreamedReply

        options = {
            "cost": cost,
            "meta": meta,
            "request": request,
            "view_version": view_version,
            "expected_version": expected_version,
            "idempotency_key": idempotency_key,
        }
        return StreamedReply(self, source, options)

    def unfinished_reply(self) -> UnfinishedReply | None:
        """Return the reply that a worker left unfinished, or that one is writing now, or None. Its
        methods ``append_cut``, ``drop`` and ``continue_with`` end it. Cost: the method reads the
        chunks of the reply.
        """
        from foldlog._history.streamed_reply import find_unfinished

        return find_unfinished(self)

    def follow_reply(self, after: str | None = None) -> Iterator[ReplyPart]:
        """Yield the parts of the reply that is being written, in this process or another, from its
        first delta on, until it ends. Each part has a ``delta`` and the ``offset`` behind it. The
        last delta is an ``EndDelta`` with the id of the first event that the reply became.

        With ``after``, an offset of a part, yield the later parts of that reply, even if it has
        ended in the meantime. Without ``after``, yield nothing if no reply is being written.

        Raises ``StreamNotFound`` if the reply of ``after`` is no longer stored: its stream is
        deleted about a minute after its end, and then only its events have its content. Raises
        ``InvalidArgument`` if ``after`` is not an offset. Cost: the iterator asks the store every
        5 ms (10 ms on PostgreSQL).
        """
        from foldlog._history.streamed_reply import ReplyFollower, follow

        return follow(ReplyFollower(self, after))

    def recall_tool(self, *, max_tokens: int = 2_000) -> RecallTool:
        """Return a tool with which the agent reads forgotten events: ``recall(query | ids |
        path)``.

        Offer ``tool.schema()`` to the model, and answer a call with ``append_tool_result(call,
        tool(call))``. A result has at most ``max_tokens`` estimated tokens. ``max_tokens`` must be
        at least 300. Nothing is read before the model calls the tool. Cost: a call of the tool
        reads the events of the conversation. If the model passes ids, the tool reads only these
        events, for each result also its call, and all condensations, requests and retractions.
        """
        from foldlog._reports.search.recall_tool import RecallTool

        return RecallTool(self._store, self._views, self.id, max_tokens)

    def retract(
        self,
        version: int,
        reason: str = "",
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> Recorded:
        """Take back all events after ``version``. The View becomes the same as at ``version``, and
        the events stay in the log.

        If the events had effects, or may have had effects, a message after the retraction lists
        these effects for the model. Documents and attributes do not change. A fork at ``version``
        has the documents and attributes of that version. ``history.retract(recorded.id)`` reverses
        a retraction. A call that is repeated with its ``idempotency_key`` returns the recorded
        retraction. A requested condensation stays requested. Raises ``InvalidEvent`` if the
        history has no events after ``version``, and the errors of ``append``. Durability: the
        retraction is on disk when the method returns. Cost: the method reads the events that are
        taken back, and copies the View in memory. If no View is in memory, or if ``version`` is
        before a condensation, the method reads both the present View and the View at ``version``.
        """
        from foldlog._history.effects import taken_back

        retraction = Retraction(version=version, reason=check_text("reason", reason))
        recorded = self.recorded(idempotency_key) if idempotency_key else ()
        if recorded:
            # The store cannot compare the events, because the first call changed which message a
            # repeated call would append.
            former = recorded[0].event
            is_equal = isinstance(former, Retraction) and (
                (former.version, former.reason) == (version, reason)
            )
            if not is_equal:
                raise IdempotencyConflict(self.id, str(idempotency_key), recorded[0].id)
            return recorded[0]
        events: list[Event] = [retraction]
        expected = version_of(expected_version)
        while True:
            seen = self._seen()
            if isinstance(expected_version, Seen) and not expected_version.is_unredacted_in(seen):
                raise VersionConflict(self.id, expected_version.version, seen.version)
            notice = taken_back(self, version) if version < seen.version else None
            if notice is None:
                return self.append(
                    events, expected_version=expected_version, idempotency_key=idempotency_key
                )[0]
            # The notice is about the events that were seen, so no other event may come before it.
            if expected is not ANY_VERSION:
                seen = seen.at(expected)
            try:
                recorded = self._append_seen(
                    [*events, notice], seen, idempotency_key=idempotency_key
                )
                return recorded[0]
            except VersionConflict as conflict:
                if expected is not ANY_VERSION and not conflict.is_redaction:
                    raise

    def pop(self, count: int = 1, reason: str = "") -> tuple[Event, ...]:
        """Take back the newest ``count`` events that the View shows. Return the events that were
        taken back, in order.

        The method retracts to the version before the first of these events, so condensations after
        this version are taken back too. All events stay in the log. If a summary is among the
        ``count`` events, only the events after the summary are taken back. If the View has fewer
        events than ``count``, all its events are taken back. Raises ``InvalidArgument`` for a
        negative number, and the errors of ``append``. Durability: the retraction is on disk when
        the method returns. Cost: the method costs as much as ``view`` and ``retract``.
        """
        while True:
            view = self.view()
            events = view.tail(count)
            summary_indexes = [
                index
                for index, event in enumerate(events)
                if isinstance(event, CondensationSummary)
            ]
            popped = events[summary_indexes[-1] + 1 :] if summary_indexes else events
            if not popped:
                return ()
            try:
                self.retract(popped[0].id, reason, expected_version=view.version)
            except VersionConflict:
                continue  # Other writers appended events, which are now the newest events.
            return popped
