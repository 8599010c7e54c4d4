"""A single history of a store, for the author of a runtime. The rules of the log are in
``foldlog.eventstore`` and ``foldlog.projections``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import structs

from foldlog._base.telemetry import SHOWN, span
from foldlog._history.requests import REQUEST, name_request, name_requests, sent_request
from foldlog._reports.words.tables import Table, show_as_table, view_table
from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    DELETED,
    Action,
    AnyVersion,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    ConversationNotFound,
    Documents,
    Event,
    EventStoreError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Observation,
    Recorded,
    Retraction,
    UnknownEvent,
    VersionConflict,
)
from foldlog.eventstore.arguments import check_map, check_text, check_whole
from foldlog.eventstore.log.appending import Appending, NothingRedacted
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.row import time_before
from foldlog.eventstore.store import bind
from foldlog.formats.record import INCOMPLETE
from foldlog.projections import (
    Difference,
    Lifetimes,
    NoSuchEvent,
    NoSuchVersion,
    View,
    Why,
    append_tool_result,
    as_json,
    begins_reply,
    close_open_calls,
)

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._history.facts import Fact
    from foldlog._history.histories import Histories
    from foldlog._history.lease import Lease, LeaseBlock
    from foldlog._history.recall import RecallTool
    from foldlog._history.requests import SentRequest
    from foldlog._imports.recording import HistoryRecorder
    from foldlog._imports.stored import HistoryRecords, Query, Records
    from foldlog._reports.answers.views import HandOverDocument
    from foldlog._reports.dropped import Dropped
    from foldlog._reports.figures.stats import Stats
    from foldlog.condensers import AgentModel, Condensation
    from foldlog.eventstore import ReadTransaction
    from foldlog.eventstore.log.finding import Fence
    from foldlog.eventstore.log.writing import WriteTransaction
    from foldlog.eventstore.maintenance.redact import RedactionReceipt
    from foldlog.projections import Effect, ModelRequest, Views
    from foldlog.projections.messages.requests import SentBeside

T = TypeVar("T")

ExpectedVersion = int | Literal[AnyVersion.ANY_VERSION]
Appended: TypeAlias = (
    "Event | Mapping[str, Any] | Condensation | Iterable[Event | Mapping[str, Any]]"
)


class History:
    """A conversation: append events, and read the View that is shown to the model. The object keeps
    no events in memory. It remembers only the version of the View that ``step`` returned last,
    because ``append_reply`` needs this version.

    A history without events is empty: its View, its events and its tail are empty, and its version
    is 0. The first append makes the conversation. Every method raises ``ConversationErased`` if the
    conversation was erased. An object that has read or written a conversation stays bound to this
    conversation, even if another conversation has the id later.
    """

    def __init__(self, histories: Histories, conversation: str) -> None:
        self._histories = histories
        self.id = conversation
        self._binding, self._store = bind(histories.store, conversation)
        self._fence: Fence | None = None
        """Raises ``LeaseTaken`` in an append if the lease of ``_lease_block`` is lost."""
        self._running_calls: dict[int, object] = {}
        """Maps the event id of a call to the thread that runs the call now."""
        self._lease_block: LeaseBlock | None = None
        """The block of ``lease`` that this object is in. Only a thread that has ``_lease_lock``
        sets it.
        """
        self._lease_lock = Lock()
        self._asked_at: int | None = None
        """The version of the View from the last ``step``, or None if a reply was appended after the
        step.
        """
        self._sent_beside: SentBeside | None = None
        """What a runtime sent beside the View of ``_asked_at``. If it is set, the next replies name
        their requests.
        """
        self._shown_at: int | None = None
        """The version of the View from the last ``step``, or None if an event was appended after
        the step.
        """

    @cached_property
    def _views(self) -> Views:
        return self._histories.views.reading(self._store)

    def version(self) -> int:
        """Return the number of events of the history, which is 0 before the first event."""
        return self._store.version(self.id)

    def __len__(self) -> int:
        """Return the number of events of the history, including forgotten events."""
        return self.version()

    def __bool__(self) -> bool:
        return True

    def view(self) -> View:
        """Return the present View. The View is empty before the first event. The View is shown to
        the model, unless a condenser hides or masks a part of the View: see ``sent``.

        Cost: the method reads the events since the last call. The first call of a program reads the
        events that the View shows. If you need only the last events of the log, call ``tail``.
        """
        try:
            return self._views.current(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def at(self, version: int) -> View:
        """Return the View at the time when the history had ``version`` events: see ``view``. Cost:
        the method reads the events that this View shows.

        Raises ``NoSuchVersion`` if the history never had this version.
        """
        if check_whole("version", version) == 0 and self.version() >= 0:
            return View.from_events(())
        try:
            return self._views.at(self.id, version=version)
        except ConversationNotFound:
            raise NoSuchVersion(self.id, version, 0) from None

    def sent(self, version: int | None = None) -> View:
        """Return the View as it is sent to a model, now or at a version. Events that a condenser
        hides are left out, and texts are masked or shortened.

        The log records the rules by which a step hid, masked or shortened events. The rules of your
        own condensers cannot be applied again, so the result contains the events that they hide. If
        your own condenser hid events, ``why`` says that it is unknown which events were sent to the
        model. Raises the errors of ``at``. Cost: the method reads the View and the last 100 events.
        """
        from foldlog._reports.as_sent import sent

        view = self.view() if version is None else self.at(version)
        return sent(self._store, self.id, view).sent if view.version else view

    def sent_request(self, event_id: int) -> SentRequest:
        """Make the request again that the reply with this event answered, and say whether it has
        *the same bytes*. If not, the result names what has changed since: a redaction, or the rules
        by which foldlog renders messages. If ``append_reply`` got no request, the result says "not
        recorded". Raises ``InvalidArgument`` if the event is not a reply. Cost: the method reads
        the View of the reply, and renders it.
        """
        return sent_request(self, check_whole("event_id", event_id, 0))

    def events(
        self, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Event]:
        """Yield all events with ``start <= id < stop`` in order, including forgotten events. With
        ``reverse``, the newest event comes first. Raises ``InvalidArgument`` for a negative number.
        """
        check_whole("start", start, 0)
        if stop is not None:
            check_whole("stop", stop, 0)
        return _or_empty(
            partial(self._store.events, self.id, start, stop, reverse=reverse), iter(())
        )

    def export(
        self,
        format: str | None = None,
        *,
        view: bool = False,
        notes: Callable[[str], None] | None = None,
    ) -> Iterator[Any]:
        """Yield the records of the history in a format. The default is the format of its source,
        and ``openhands-v1`` for a history that was not imported. Imported records are yielded
        unchanged, and other events become records of the format. Forgotten events are written, and
        retracted events are left out.

        With ``view``, yield the messages of the next prompt (see ``sent``), by default as
        ``openai-chat``. ``anthropic-messages`` can represent a prompt too.

        ``notes`` is called with a text for each kind of content that the export leaves out.
        ``notes`` is also called for a history that lacks records of its source. Any history can be
        written as ``openai-chat``. Raises ``formats.UnknownFormat`` for an unknown format, or if
        this history cannot be written in the format. Cost: the method reads the events of the
        history, or with ``view`` the events of its View.
        """
        from foldlog.formats.conversion import (
            ANY_HISTORY,
            check_callable,
            encode_standing,
            encode_view,
            format_of_history,
        )

        check_callable("notes", notes)
        if notes is not None and (lacks := self.attributes().get(INCOMPLETE)):
            notes(
                f"incomplete: {lacks}; the exported records do not show this, so an import of them"
                " is not marked as incomplete"
            )
        if view:
            return encode_view(self.sent(), format or ANY_HISTORY, notes)

        def read_version_and_retractions(read: ReadTransaction) -> tuple[int, list[Retraction]]:
            return read.version, [
                each for each in read.structural_events() if isinstance(each, Retraction)
            ]

        if not self.version():
            return iter(())
        version, retractions = self._store.query(self.id, read_version_and_retractions)
        chosen = format or format_of_history(self._store, self.id)
        stored = self._stored_records()
        return encode_standing(self.events(0, version), version, retractions, chosen, notes, stored)

    def _all_records(self, start: int = 0) -> HistoryRecords:
        from foldlog._imports.stored import HistoryRecords

        return HistoryRecords(self._store, self.id, start)

    def _stored_records(self, query: Query | None = None) -> Records:
        from foldlog._imports.stored import Records

        return Records(self._store, self.id, query)

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events of the log in order, including forgotten events. If the
        log has fewer events, return all events.

        For the last events that are shown to the model, use ``history.view().tail(count)``. Raises
        ``InvalidArgument`` for a negative number. Cost: the method reads the events that it
        returns.
        """
        return _or_empty(lambda: self._store.query(self.id, lambda read: read.tail(count)), ())

    def append(
        self,
        events: Appended,
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
        documents: Mapping[str, Any] | None = None,
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one or several events. Either all events are appended or none.

        If other programs append while a model answers, the ``meta`` of the reply records the
        version of the View that was sent. Condensers therefore do not forget events that the model
        has not seen. An event that is appended after ``step`` and before the reply also records the
        version of the View from ``step`` in its ``meta``.

        Args:
            events: One event or several. A chat message, such as ``{"role": "user", "content":
                "hi"}``, is appended as its events: see ``foldlog.from_openai``. A ``Condensation``
                is appended as a ``CondensationAction``.
            expected_version: The version that the history must have, 0 for a new history, or
                ``ANY_VERSION``.
            idempotency_key: If the key was used before with these events, nothing is appended, and
                the recorded events are returned.
            documents: Maps the names of documents to their new values: JSON, bytes or ``DELETED``.
                Documents are written in the transaction of the events, and an append may have
                documents without events: see ``foldlog.eventstore.Documents.append``.
            dedupe: With ``"origin"``, imported events whose source id the history already has are
                left out: see ``foldlog.eventstore.Store.append``.

        Returns:
            The recorded events with their ids.

        Raises:
            VersionConflict: The history does not have ``expected_version``. Read and decide again.
            InvalidEvent: An event breaks a rule, which the message names.
            IdempotencyConflict: The key belongs to other events.
            ConversationErased, StoreUnavailable: As everywhere in a store.
            TypeError: An argument has a wrong type.

        Durability: the events are on disk when the method returns.

        Cost: the method writes the appended events, whatever the length of the history. For a chat
        message with calls or results, the method also reads the View.
        """
        appended = self._appendable(events, idempotency_key)
        write = partial(self._write, idempotency_key=idempotency_key, dedupe=dedupe)
        return self._append(appended, expected_version, write, documents)

    def _append_recorded(
        self,
        events: Sequence[Event],
        recorder: HistoryRecorder,
        expected_version: ExpectedVersion,
        *,
        idempotency_key: str | None = None,
        documents: Mapping[str, Any] | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: NothingRedacted | None = None,
        together: Sequence[Appending] = (),
    ) -> tuple[Recorded, ...]:
        write = partial(
            self._write,
            idempotency_key=idempotency_key,
            dedupe=dedupe,
            guard=guard,
            together=together,
            also=partial(recorder.write, conversation=self.id),
        )
        recorded = self._append(list(events), expected_version, write, documents)
        self._histories._recording.keep(self, recorder)
        return recorded

    def _recorder(self, format: str, version: int | None = None) -> HistoryRecorder:
        from foldlog.formats.registry import format_named

        return self._histories._recording.recorder(self, format_named(format), version)

    def _write(
        self,
        events: Event | Sequence[Event],
        version: ExpectedVersion,
        documents: Mapping[str, Any] | None,
        *,
        idempotency_key: str | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: NothingRedacted | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        if documents is None:
            append = self._store.append
        else:
            append = partial(Documents(self._store).append, changed=documents)
        return append(
            self.id,
            events,
            expected_version=version,
            idempotency_key=idempotency_key,
            dedupe=dedupe,
            guard=guard,
            fence=self._fence,
            together=together,
            also=also,
        )

    def _append(
        self,
        appended: Event | list[Event],
        expected_version: ExpectedVersion,
        append: Callable[
            [Event | Sequence[Event], ExpectedVersion, Mapping[str, Any] | None],
            tuple[Recorded, ...],
        ],
        documents: Mapping[str, Any] | None,
    ) -> tuple[Recorded, ...]:
        asked_at = self._asked_at
        if asked_at is not None and expected_version is not ANY_VERSION:
            # After a later View, the append conflicts, unless the conversation was begun again.
            asked_at = asked_at if asked_at <= expected_version else None
        events = [appended] if isinstance(appended, Event) else appended
        if asked_at is None or not any(map(begins_reply, events)):
            noted_events = None
            if self._shown_at is not None:
                noted_events = _note_shown_view(events, self._shown_at)
            if noted_events is None:
                return append(appended, expected_version, documents)
            recorded = append(noted_events, expected_version, documents)
            self._shown_at = None
            return recorded
        # First try to append right after the View that was answered. If this succeeds, no note is
        # needed.
        version = asked_at if expected_version is ANY_VERSION else expected_version
        named_events: Sequence[Event] = events
        if self._sent_beside is not None:
            beside = self._sent_beside
            follows = version == asked_at
            named_events = name_requests(events, self.sent(asked_at), beside, follows=follows)
            documents = {**(documents or {}), REQUEST: beside.document or DELETED}
        try:
            noted_events = _note_answered_view(named_events, asked_at, version)
            recorded = append(noted_events, version, documents)
        except VersionConflict as conflict:
            if expected_version is not ANY_VERSION:
                raise
            if asked_at > conflict.actual:  # the conversation was begun again
                noted_events = events
            else:
                noted_events = _note_answered_view(events, asked_at, None)
            recorded = append(noted_events, ANY_VERSION, documents)
        self._asked_at = None
        self._sent_beside = None
        self._shown_at = None
        return recorded

    def _version_and_guard(self) -> tuple[int, NothingRedacted | None]:
        """Return the version, and a guard for an append that repeats content of earlier events. The
        guard refuses the append if an event was redacted after this read. Without events, the guard
        is None.
        """

        def read(reading: ReadTransaction) -> tuple[int, NothingRedacted | None]:
            return reading.version, NothingRedacted.since(reading)

        try:
            return self._store.query(self.id, read)
        except ConversationNotFound:
            return 0, None

    def _append_guarded(
        self,
        events: list[Event],
        expected_version: int,
        guard: NothingRedacted | None,
        documents: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events that were made from the events before ``expected_version``. Raises
        ``VersionConflict`` if another event was appended before them, or if an event was redacted
        after it was read.
        """
        write = partial(self._write, guard=guard, idempotency_key=idempotency_key)
        return self._append(events, expected_version, write, documents)

    def _appendable(self, events: Appended, idempotency_key: str | None) -> Event | list[Event]:
        if isinstance(events, Event):
            return events
        # The class Condensation is not imported here, because most programs that append do not
        # condense.
        action = getattr(events, "action", None)
        if isinstance(action, CondensationAction):
            return action
        if isinstance(events, Mapping) and "role" in events:
            events = (events,)
        if isinstance(events, str | bytes | type | Mapping) or not isinstance(events, Iterable):
            raise _not_appended(events)
        result: list[Event] = []
        item: Any  # A caller may pass an object of any type.
        for item in events:
            if isinstance(item, Event):
                result.append(item)
            elif isinstance(item, Mapping) and "role" in item:
                result += self._set_reply_apart(_chat_events(item), result, idempotency_key)
            else:
                raise _not_appended(item)
        return result

    def _set_reply_apart(
        self, reply: tuple[Event, ...], before: Sequence[Event], key: str | None
    ) -> tuple[Event, ...]:
        # A reply gets a response id of its own if its server repeats response ids: see
        # ``set_apart``.
        from foldlog._history.replies import behind_compaction, compacts, set_apart

        is_compacted = any(map(compacts, reply))
        if not is_compacted and not any(isinstance(event, Action | Observation) for event in reply):
            return reply
        view = self._view_before(key)
        if is_compacted:
            reply = behind_compaction(view, before, reply)

        def newest_first() -> Iterator[Event]:
            return chain(
                (structs.replace(event, id=-1) for event in reversed(before)), reversed(view.events)
            )

        if any(isinstance(event, Observation) for event in reply):
            reply = self._link_results(reply, view, before, newest_first())
        if not any(isinstance(event, Action) for event in reply):
            return reply
        return set_apart(reply, newest_first, view.version + len(before))

    def _link_results(
        self,
        reply: tuple[Event, ...],
        view: View,
        before: Sequence[Event],
        newest_first: Iterator[Event],
    ) -> tuple[Event, ...]:
        # The call of a result may be in the reply, in an earlier event, or forgotten.
        from foldlog._history.replies import add_missing_results, result_of

        reply = add_missing_results(view, before, reply)
        results = {event.call_id for event in reply if isinstance(event, Observation)}
        calls: dict[str | None, Action] = {}
        forgotten = self.events(0, view.version, reverse=True)
        for event in chain(reply, newest_first, forgotten):
            if results <= calls.keys():
                break
            if isinstance(event, Action) and event.call_id is not None:
                calls.setdefault(event.call_id, event)
        if results - calls.keys():
            without_id = "a call without tool_call_id, and no open call of the newest reply fits"
            named = " and ".join(
                without_id if call_id is None else f"{call_id!r}, a call that no reply made"
                for call_id in results - calls.keys()
            )
            raise InvalidEvent(
                f"conversation {self.id!r}: the message is the result of {named}; nothing was"
                " appended; first append the reply that made the call"
            )
        return tuple(
            result_of(event, calls) if isinstance(event, Observation) else event for event in reply
        )

    def _view_before(self, key: str | None) -> View:
        # With the View at the time when the key was first used, a repeated append makes the events
        # of the first append again.
        # The View is read before the key is looked up, since another writer may append under the
        # key in between.
        view = self.view()
        if not isinstance(key, str):
            return view
        recalled = _or_empty(
            lambda: self._store.query(self.id, lambda reading: reading.recall(key)), None
        )
        return view if recalled is None else self.at(recalled.first_id)

    def append_records(
        self,
        records: Iterable[Any],
        *,
        format: str,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append records of a format as events, as an import would: either all records or none. The
        records are stored with the events, and ``export`` returns them.

        Other writers and other processes may append at the same time.

        Args:
            records: The records.
            format: The name of their format.
            expected_version: As in ``append``.
            idempotency_key: A call that is repeated with its key appends only once.
            dedupe: With ``"origin"``, records whose source id the history already has are left out.
                Records without an id are always appended.

        Returns:
            The recorded events.

        Raises:
            formats.UnknownFormat: There is no such format.
            InvalidEvent: A record is not in the format. Also raises the errors of ``append``.

        Durability: the records are on disk when the method returns.

        Cost: the method decodes and writes the records. The first call of a process also reads all
        earlier records, about 40 MB a second.
        """
        return self._histories._recording.append(
            self, records, format, expected_version, dedupe, idempotency_key
        )

    def document(self, name: str, default: Any = None, *, version: int | None = None) -> Any:
        """Return the value of a document, now or at the time when the history had ``version``
        events. Return ``default`` if the history has no document with this name.

        Raises the errors of ``foldlog.eventstore.Documents.get``, except ``ConversationNotFound``.
        Cost: the method reads an event and at most 64 differences.
        """
        return _or_empty(
            partial(Documents(self._store).get, self.id, name, default, version=version), default
        )

    def documents(self, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, now or at the time when the history had ``version`` events.
        Cost: for each document, the method reads an event and at most 64 differences.
        """
        return _or_empty(partial(Documents(self._store).all, self.id, version=version), {})

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the history: see ``Histories.create``. The dictionary may be
        empty. An imported history also has the attributes ``program``, ``cwd``, ``branch``,
        ``model`` and ``title``, if its source contains them. Cost: the method reads two events.
        """
        return {**self._place(), **self.document(ATTRIBUTES, {})}

    def _place(self) -> dict[str, Any]:
        from foldlog._reports.figures.places import place_of

        nowhere: dict[str, Any] = {}
        return _or_empty(lambda: dict[str, Any](place_of(self._store, self.id)), nowhere)

    def set_attributes(self, /, **changed: Any) -> dict[str, Any]:
        """Change attributes by name. The value None removes an attribute. Attributes that you do
        not name stay unchanged. Return all attributes. The event of the newest change contains all
        attributes, so redacting this event removes all attributes.

        Other writers may append during the call. Raises the errors of ``append``. Durability: the
        attributes are on disk when the method returns.
        """
        while True:
            version, guard = self._version_and_guard()
            attributes = {
                **(self.document(ATTRIBUTES, {}, version=version) if version else {}),
                **changed,
            }
            attributes = {name: value for name, value in attributes.items() if value is not None}
            try:
                self._append_guarded([], version, guard, {ATTRIBUTES: attributes})
            except VersionConflict:
                continue
            return {**self._place(), **attributes}

    def _conversation_key(self) -> int | None:
        """Bind this object to a conversation if it is not bound yet. Return None before the first
        append.
        """
        if self._binding.key is None:
            self.version()
        return self._binding.key

    def open_calls(self) -> tuple[Action, ...]:
        """Return the actions that have no observation yet, in order: see ``View.open_calls``. After
        a crash, the outcome of the open calls is unknown: see ``docs/RESUMING.md``. A redacted call
        is left out, because its arguments were erased. ``lease`` and ``close_open_calls`` close
        redacted calls. Cost: the method reads the View.
        """
        return tuple(filter(has_content, self.view().open_calls))

    def close_open_calls(
        self, reason: str = "", *, older_than: timedelta | None = None
    ) -> tuple[Recorded, ...]:
        """Close every open call with an observation that has the ``reason``. If an error is raised,
        no call of this history is closed. Return the observations in the order of the calls. The
        tuple is empty if no call is open.

        For a call that ``run`` began, the observation says "unknown: this call may have run", with
        the key of the call. If ``run`` did not begin the call but began other calls of the same
        tool, the observation says "not begun". In all other cases, the observation says
        "interrupted". The open calls of sub-agents that such a call began are closed first, and the
        observation names their calls that may have run.

        Call this method only when no program works on the calls any more, because a later result
        would no longer match an open call. With ``older_than``, younger calls are left out. Other
        writers may append at the same time. Raises ``LeaseTaken`` while another worker drives the
        history (see ``lease``), and the errors of ``append``. Durability: the observations are on
        disk when the method returns. Cost: the method reads the View, and writes an observation for
        each open call.
        """
        from foldlog._history.children import close_below

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

    def begin_child(
        self,
        call: Action,
        conversation: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> History:
        """Begin the history of a sub-agent for an open call, and return the history. If the call
        began this history earlier, return it unchanged, so that a sub-agent goes on after a crash.

        The attributes ``parent`` and ``parent_call`` of the new history name this history and the
        call. Figures, lists and erasures can so include the sub-agents of a task. Append the result
        of the sub-agent with ``append_tool_result``. ``conversation`` is the id of the new history.
        The default is made from this id and the call. Raises ``InvalidEvent`` if the call is not
        open, ``InvalidArgument`` if another call began ``conversation``, and the errors of
        ``append``. Durability: both histories are on disk when the method returns. Cost: two
        appends.
        """
        from foldlog._history.children import begin_child

        return begin_child(self, call, conversation, attributes or {})

    def _close_redacted_calls(self) -> None:
        """Close the open calls that were redacted. No worker can run such a call. While such a call
        is open, a model is not shown the other calls of the reply.
        """
        from foldlog._history.children import close_below

        reason = "the call was redacted before it had a result"
        self._close_calls(partial(close_below, self, reason), lambda call: not has_content(call))

    def _close_calls(
        self,
        answers: Callable[[Sequence[Action]], Sequence[Observation]],
        is_chosen: Callable[[Action], bool] = lambda call: True,
    ) -> tuple[Recorded, ...]:
        from foldlog._history.lease import check_free

        fence = self._fence or partial(check_free, self._store.database, self.id)
        work = partial(
            close_open_calls, self._store, self._views, self.id, answers, fence, is_chosen
        )
        return _or_empty(work, ())

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

    def append_reply(
        self,
        reply: Any,
        *,
        cost: float | None = None,
        meta: Mapping[str, Any] | None = None,
        timestamp: datetime | None = None,
        request: ModelRequest | None = None,
        view_version: int | None = None,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append the reply of a model, or nothing if an error is raised.

        If another program appends a user's message while the model answers, the message comes
        before the reply, and the next prompt ends with the reply. To prevent this, pass
        ``view.version`` as ``expected_version``: ``append_reply`` then raises ``VersionConflict``.
        After a ``VersionConflict``, call ``prepare`` and ask the model again. If every program
        takes the lease before it appends, a user's message never comes between the View and the
        reply.

        Args:
            reply: A chat completion or one of its messages, a response of OpenAI, or an Anthropic
                message. See ``foldlog.from_openai`` for the conversion.
            cost: The cost of the call in US dollars. A reply of litellm contains its cost.
            meta: Stored with the first event. ``meta`` overrides the model, usage and cost of the
                reply.
            timestamp: The time at which the events happened.
            request: What the model was asked (``view.request()``). Its fingerprint is stored in
                ``meta``, and its tools and parameters in the document ``request`` when they change,
                for ``sent_request``.
            view_version: The version of the View that the model answered. The default is the View
                of the request, or from the last ``step`` or ``prepare`` of this object.
            expected_version, idempotency_key: As in ``append``.

        Returns:
            The recorded events: an ``Action`` for each tool call, or the agent's ``Message``. If
            the provider compacted the context, a condensation comes before these events.

        Raises:
            InvalidEvent: The reply has neither a text nor a call, or is a message of the user or
                the system.
            InvalidArgument: ``reply`` is another object. Also raises the errors of ``append``.

        Durability: the events are on disk when the method returns.

        Cost: as in ``append`` for a chat message.
        """
        from foldlog._history.replies import events_of_reply

        if request is not None:
            if request.conversation not in ("", self.id):
                raise InvalidArgument(
                    f"the request was made from a View of {request.conversation!r}, and this"
                    f" history is {self.id!r}; make it from a View of this history"
                )
            view_version = request.version if view_version is None else view_version
        converted = events_of_reply(self.id, reply, cost, check_map("meta", meta or {}), timestamp)
        converted = self._set_reply_apart(converted, (), idempotency_key)
        if view_version is not None:
            version = self.version()
            if check_whole("view_version", view_version) > version:
                raise InvalidArgument(
                    f"conversation {self.id!r}: the reply answers a View of version {view_version},"
                    f" but the conversation is at version {version}; nothing was appended; pass the"
                    " version of the View that the model was sent"
                )
            self._asked_at = view_version
        documents = None
        if request is not None:
            converted = name_request(converted, request)
            documents = {REQUEST: request.beside or DELETED}
        recorded = self.append(
            converted,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
            documents=documents,
        )
        return recorded[: len(converted)]

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
        try:
            return self._append_result(
                call_id, content, is_error, extras, idempotency_key, fence=self._fence
            )
        except EventStoreError as error:
            # Another worker may have the lease, and may have closed the call.
            from foldlog._history.effects import Outcome, find_outcome, record_overtaken

            outcome = Outcome(content, is_error, extras or {}, idempotency_key)
            record_overtaken(self, call_id, outcome)
            if not isinstance(error, IdempotencyConflict):
                raise
            # The outcome may have been recorded after the lease was lost.
            recorded = find_outcome(self, call_id, outcome)
            if recorded is None:
                raise
            return recorded

    def _append_result(
        self,
        call_id: str | Action,
        content: Any,
        is_error: bool,
        extras: dict[str, Any] | None,
        idempotency_key: str | None,
        *,
        fence: Fence | None = None,
        unredacted: NothingRedacted | None = None,
    ) -> Recorded:
        if isinstance(content, list | tuple) and all(
            isinstance(part, Mapping) and "type" in part for part in content
        ):
            # This raises ``InvalidArgument`` if the parts have a wrong form.
            _chat_events({"role": "tool", "content": [*content]})
        elif content is None or isinstance(content, Mapping | list | tuple | int | float):
            content = as_json(content)
        return append_tool_result(
            self._store,
            lambda: self._view_before(idempotency_key),
            self.id,
            call_id,
            content,
            is_error=is_error,
            extras=extras,
            idempotency_key=idempotency_key,
            fence=fence,
            unredacted=unredacted,
        )

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
            by: The person who decided.
            reason: Why.
            until: The end of an approval, by the clock of the store. By default, an approval does
                not end.
            idempotency_key: A call that is repeated with its key records nothing more.

        Returns:
            The recorded event with the decision.

        Raises:
            InvalidEvent: The call is not open. Also raises the errors of ``append``.

        Durability: the decision is on disk when the method returns.

        Cost: the method reads the View and the open calls, and appends an event.
        """
        from foldlog._history import effects

        try:
            end = None if until is None else until.astimezone(UTC).isoformat()
        except OverflowError:
            raise InvalidArgument(f"until {until} is not from year 1 to 9999 in UTC") from None
        decision = {"approved": approved, "by": by, "reason": reason, "until": end}
        return effects.record_approval(self, call, decision, idempotency_key)

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

    def recorded(self, idempotency_key: str) -> tuple[Recorded, ...]:
        """Return the events that were appended under an idempotency key. The tuple is empty if the
        key was never used. Cost: the method reads the events that it returns.
        """
        return _or_empty(lambda: self._store.recorded(self.id, idempotency_key), ())

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

    def recall_tool(self, *, max_tokens: int = 2_000) -> RecallTool:
        """Return a tool with which the agent reads forgotten events: ``recall(query | ids |
        path)``.

        Offer ``tool.schema()`` to the model, and answer a call with ``append_tool_result(call,
        tool(call))``. A result has at most ``max_tokens`` estimated tokens. ``max_tokens`` must be
        at least 300. Nothing is read before the model calls the tool. Cost: a call of the tool
        reads the events of the conversation. If the model passes ids, the tool reads only these
        events, and for each result also its call.
        """
        from foldlog._history.recall import RecallTool

        return RecallTool(self._store, self._views, self.id, max_tokens)

    def prepare(self, llm: AgentModel | None = None) -> View:
        """Take steps until a View can be sent, and return this View. A step appends a condensation
        if a condensation is due.

        ``llm`` is the model to which the View is sent. The default is ``agent_llm`` of the store.
        Whatever the condenser, the View fits into the limit of this model. The messages of the View
        have the dialect of this model. If a requested condensation is impossible, the request is
        declined in the log, and the View is returned. If the agent requests a condensation again
        before its next turn, the prompt is assumed to be too long, and ``NoCondensationAvailable``
        is raised. Raises the errors of ``step``, mainly ``NoCondensationAvailable`` if a
        condensation is required and impossible. Cost: the method reads the View, and the condenser
        may call a model.
        """
        from foldlog.condensers import NoCondensationAvailable

        with span("foldlog.prepare", conversation=self.id) as attributes:
            while True:
                try:
                    prepared = self.step(llm)
                except NoCondensationAvailable as error:
                    if not error.may_go_on:
                        raise
                else:
                    if isinstance(prepared, View):
                        attributes["view"] = prepared
                        return prepared

    def step(self, llm: AgentModel | None = None) -> View | Condensation:
        """Return the View to send to the agent's model, or a condensation that was due and is
        already appended. After a condensation, call ``step`` again.

        Many threads may step while other threads append. Raises the errors of
        ``foldlog.condensers.CondenseHandler.handle``, mainly ``NoCondensationAvailable`` if a
        condensation is required and impossible. ``llm`` is the model to which the View is sent: see
        ``prepare``. Cost: the method reads the View, and the condenser may call a model.
        """
        handler = self._histories._handler.reading(self._store, self._views)
        try:
            prepared = (handler if llm is None else handler.with_agent(llm)).handle(
                self.id, self._fence
            )
        except ConversationNotFound:
            prepared = View.from_events(())
        self._asked_at = self._shown_at = prepared.version if isinstance(prepared, View) else None
        if llm is None or not isinstance(prepared, View):
            return prepared
        return replace(prepared, dialect=getattr(llm, "dialect", "litellm"))

    def request_condensation(
        self, reason: str = "", *, idempotency_key: str | None = None
    ) -> Recorded:
        """Request a condensation. The attribute ``unhandled_condensation_request`` of the View is
        true until the next condensation. A call that is repeated with its ``idempotency_key``
        appends nothing more.
        """
        request = CondensationRequest(reason=check_text("reason", reason))
        (recorded,) = self.append(request, idempotency_key=idempotency_key)
        return recorded

    def condense(self, reason: str = "") -> View | Condensation:
        """Request a condensation, and take the step that fulfils the request.

        Raises ``InvalidCondenser`` (a ``ValueError``) if the condenser does not handle requests,
        and ``NoCondensationAvailable`` if the history is empty. In both cases, nothing is appended.
        Also raises the errors of ``step``.
        """
        self._histories._handler.check_handles_requests()
        if self.version() == 0:
            from foldlog.condensers import NoCondensationAvailable

            raise NoCondensationAvailable(
                f"conversation {self.id!r} has no events to condense; append its events first"
            )
        self.request_condensation(reason)
        return self.step()

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
        for first in self.recorded(idempotency_key)[:1] if idempotency_key else ():
            # The events of this call changed what a repeated call would append.
            before = first.event
            if (version, reason) != (
                getattr(before, "version", None),
                getattr(before, "reason", 0),
            ):
                raise IdempotencyConflict(self.id, str(idempotency_key), first.id)
            return first
        events: list[Event] = [retraction]
        while True:
            stop, guard = self._version_and_guard()
            notice = taken_back(self, version) if version < stop else None
            if notice is None:
                return self.append(
                    events, expected_version=expected_version, idempotency_key=idempotency_key
                )[0]
            # The notice is about the events up to ``stop``, so no other event may come before it.
            expected = stop if expected_version is ANY_VERSION else expected_version
            try:
                return self._append_guarded(
                    [*events, notice], expected, guard, idempotency_key=idempotency_key
                )[0]
            except VersionConflict as conflict:
                is_of_guard = conflict.expected == conflict.actual
                if expected_version is not ANY_VERSION and not is_of_guard:
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

    def redact(
        self,
        event: int | Event | Iterable[int | Event],
        *,
        reason: str,
        by: str | None = None,
        with_summaries: bool = False,
        complete: bool = True,
    ) -> RedactionReceipt:
        """Erase the content of one or several events for good. Either all events are redacted or
        none.

        The id, kind, position, times, size and head of the event stay, so an earlier checkpoint
        still matches. Readers and the model see ``[redacted]``. The receipt is the next event of
        the history. Copies of the content in companions of the conversation are redacted too.
        Source records that repeat the content of an imported event are redacted too. The redaction
        also covers events that other programs append during the call. A second call of ``redact``
        finishes an interrupted redaction.

        In a SQLite file, the redacted bytes (``bytes_pending``) stay until you call
        ``maintenance.vacuum``. Call ``maintenance.vacuum`` once for many redactions. On PostgreSQL,
        ``redact`` vacuums all tables once. If an earlier transaction is still open, the bytes stay
        pending until a later vacuum. Redacting an event that set attributes removes all attributes.
        Redacting an event that set a document removes the newest value of the document, so set the
        documents in the receipt's ``documents_lost`` again.

        Args:
            event: An event, the id of an event, or several events or ids.
            reason: The reason, which the receipt stores.
            by: The person who redacts, by default the user of the operating system.
            with_summaries: Also redact the condensations whose summaries may quote the event.
            complete: Whether ``redact`` vacuums the tables of a PostgreSQL store.

        Returns:
            The receipt. It lists the condensations whose summaries may quote the event, and the
            copies in companions. ``unconfirmed`` lists the records that cannot be read, and the
            read models and files that may still contain the content.

        Raises:
            CannotRedact: The event is the receipt of a redaction.
            InvalidArgument: The event does not belong to this history.
            ConversationNotFound: This history has no events.

        Durability: the receipt is on disk when the method returns.

        Cost: the method reads the condensations, the idempotency keys and the companions of the
        history. For an imported event, the method reads all events of the history and its forks.
        """
        from foldlog._privacy.erasing import clear
        from foldlog._privacy.redacting import redact_events

        items = event if isinstance(event, Iterable) else [event]
        event_ids = [
            item.id if isinstance(item, Event) else check_whole("event", item) for item in items
        ]
        if not event_ids:
            raise InvalidArgument("there is no event to redact: name at least one")
        receipt = redact_events(
            self._store, self.id, event_ids, reason=reason, by=by, with_summaries=with_summaries
        )
        if complete and self._store.database.recorder.on_server:
            return receipt._replace(bytes_pending=clear(self._store))
        return receipt

    def why(self, event_id: int, at: int | None = None) -> Why:
        """Return why the View shows or does not show the event or summary with this id, now or at a
        version. The result also says whether the event or summary is sent to a model: see ``sent``.
        Raises ``NoSuchEvent`` if the history has no such event, and the errors of ``at``.
        """
        from foldlog._reports.as_sent import why_sent

        check_whole("event_id", event_id)
        try:
            return why_sent(
                self._store,
                self._views,
                self.id,
                event_id,
                at if at is None else check_whole("at", at, 0),
            )
        except ConversationNotFound:
            raise NoSuchEvent(self.id, event_id, 0) from None

    def fact(self, words: str, at: int | None = None) -> Fact:
        """Return whether the agent knows some words, now or at a version. If the agent knows the
        words, the result names an event or summary that contains the words and is sent to the
        model. If the agent does not know the words, the result names the version at which they were
        forgotten, and the event that forgot them. If a condensation forgot the words, the result
        also says whether its summary contains the words.

        The words are searched as in ``Histories.search``: a single event must contain all the
        words. Raises ``InvalidArgument`` if ``words`` has no word, ``ConversationNotFound`` if the
        history has no events, and the errors of ``at``. Cost: the method reads the View, and all
        stored bytes of the history.
        """
        from foldlog._history.facts import fact

        return fact(
            self._store, self._views, self.id, words, at if at is None else check_whole("at", at, 0)
        )

    def dropped(self, condensation: int | None = None) -> Dropped | None:
        """Return the events that a condensation removed from the View, with their estimated tokens
        and the lost terms. The View after the condensation contains none of the lost terms. If the
        agent wrote a lost term again later, the result names the event.

        ``condensation`` is the id of a condensation. The default is the newest condensation. Return
        None if the history has no condensation. Raises ``InvalidArgument`` if the event with this
        id is not a condensation. Cost: the method reads two Views, and at most 10,000 events after
        the condensation.
        """
        from foldlog._reports.dropped import dropped_by

        if condensation is not None:
            check_whole("condensation", condensation)
        try:
            return dropped_by(self._store, self._views, self.id, condensation)
        except ConversationNotFound:
            return None

    def hand_overs(self, about: str | int) -> tuple[HandOverDocument, ...]:
        """Return what the calls that began sub-agents gave, and what came back.

        With words, return an answer for this history and for each of its sub-agents: whether the
        agent knows the words, from whom, and whether its result has them. The words are searched as
        in ``fact``. With the id of a call, return an answer for each sub-agent that the call began:
        the terms that the sub-agent was not given, and those that it did not return. Raises
        ``InvalidArgument`` if there is no word, or if the call began no sub-agent. Cost: the method
        counts all histories of the store that have changed. It reads the stored bytes of all
        agents, or the events of this history and of the sub-agents that the call began.
        """
        from foldlog._history.hand_overs import hand_overs
        from foldlog._reports.figures.shown import trees_of

        return hand_overs(self._store, self._views, trees_of(self._store), self.id, about).agents

    def stats(
        self, *, prices: str | os.PathLike[str] | None = None, with_children: bool = False
    ) -> Stats:
        """Return the figures of this history: events by kind and tool, errors, tokens and cost by
        model and day, and condensations by strategy. Cost: the method reads all events once, and
        the condensations, requests and retractions once more.

        The cost of a call that records no cost is computed with the file ``prices``. Without
        ``prices``, the prices of litellm or genai-prices are used if one of these packages is
        installed. ``docs/COMMAND.md`` describes the file. Raises ``InvalidArgument`` if the file
        cannot be read. With ``with_children``, the figures are sums over this history and its
        sub-agents, and the method counts all histories of the store that have changed.
        """
        from foldlog._reports.figures.prices import Prices
        from foldlog._reports.figures.shown import collect_stats, with_sub_agents
        from foldlog._reports.figures.stats import Stats

        priced = Prices(None if prices is None else Path(prices))
        names = with_sub_agents(self._store, [self.id]) if with_children else [self.id]
        collected = partial(collect_stats, self._store, names, views=self._views, prices=priced)
        return _or_empty(collected, Stats(conversations=1))

    def lifetimes(self) -> Lifetimes:
        """Return the lifetimes of the events and summaries. A lifetime has the versions at which
        the View shows the event, the reason why the event left the View, and its estimated tokens.
        A lifetime also says when the event is sent to a model. Cost: the method reads all events
        once.
        """
        from foldlog._reports.figures.sizes import event_tokens

        return _or_empty(
            partial(self._views.lifetimes, self.id, event_tokens), Lifetimes(self.id, 0, (), {}, ())
        )

    def fork(
        self, at: int | None = None, id: str | None = None, *, at_source: str | int | None = None
    ) -> History:
        """Begin a history that shares the events of this history up to version ``at``. The default
        is the present version.

        ``id`` is the name of the fork. The default is the name of this history with a random
        ending. ``at_source`` is an id of the imported source, such as a ``uuid`` of Claude Code.
        With ``at_source``, the fork begins after the record with this id, even if the source was
        later rewound to an earlier record. The fork and this history do not share later events.

        Raises ``InvalidArgument`` if this history does not have the version ``at`` or the source id
        ``at_source``. Raises ``VersionConflict`` if ``id`` exists, and ``ConversationNotFound`` if
        this history has no events. Durability: the fork is on disk when the method returns. Cost:
        the method writes a row. With ``at_source``, the method also reads all events from the
        record with this id on. If this history is an import with missing records, the first own
        event of the fork names the missing records. Because of this event, the version of the fork
        is ``at + 1``.
        """
        self._conversation_key()
        if at is not None and at_source is not None:
            raise InvalidArgument(
                "a fork begins at a version or after a source id: use 'at' or 'at_source', not both"
            )
        from foldlog.formats.forking import begin_fork, version_of_tip

        if at_source is not None:
            version = version_of_tip(self._store, self.id, at_source)
        else:
            version = self._store.version(self.id) if at is None else at
        if id is None:
            fork_id = f"{self.id}@{version}-{os.urandom(4).hex()}"
        else:
            fork_id = id
        begin_fork(self._store, self.id, version, fork_id)
        return self._histories[fork_id]

    def difference(self, before: int, after: int) -> Difference:
        """Return the events that entered the View between two versions, the events that left
        the View, and the events that were summarized. Raises ``NoSuchVersion`` if the history never
        had one of the versions.
        """
        try:
            return self._views.difference(
                self.id, check_whole("before", before), check_whole("after", after)
            )
        except ConversationNotFound:
            if before == after == 0:
                return Difference(0, 0, (), (), ())
            raise NoSuchVersion(self.id, after or before, 0) from None

    def __repr__(self) -> str:
        return f"<History {self.id!r}>"


def _table(history: History) -> Table:
    try:
        table = view_table(history.view())
    except EventStoreError as error:
        return Table(f"{history!r}: {error}")
    return table._replace(heading=f"{history.id}: {table.heading}")


show_as_table(History, _table)


def _or_empty(read: Callable[[], T], empty: T) -> T:
    try:
        return read()
    except ConversationNotFound:
        return empty


def _not_appended(value: object) -> TypeError:
    if isinstance(value, Mapping):
        description = "a dict without a role"
    else:
        description = describe(value)
    return TypeError(
        f"append takes one event or chat message, or several, not {description}; write for example"
        " history.append(Message(source='user', content='hi')) or history.append({'role': 'user',"
        " 'content': 'hi'}); a model's reply goes to append_reply, and messages of other forms to"
        " foldlog.from_openai or append_records"
    )


def _chat_events(message: Mapping[str, Any]) -> tuple[Event, ...]:
    from foldlog._history.replies import from_openai

    if not (events := from_openai(message)):
        raise InvalidEvent("a message has neither a text nor a tool call; nothing was appended")
    return events


def _note_shown_view(events: Sequence[Event], shown_at: int) -> list[Event] | None:
    # An unknown event is stored as its writer wrote it, so it gets no note.
    for index, event in enumerate(events):
        if event.shown and not isinstance(event, UnknownEvent):
            noted_event = structs.replace(event, meta={**event.meta, SHOWN: shown_at})
            return [*events[:index], noted_event, *events[index + 1 :]]
    return None


def _note_answered_view(events: Sequence[Event], asked_at: int, version: int | None) -> list[Event]:
    # If a model's reply answers an earlier View, the model was not shown the events in between, so
    # the reply notes this View.
    noted_events = [*events]
    if asked_at == version:
        return noted_events
    previous_reply = None
    for index, event in enumerate(events):
        if begins_reply(event, previous_reply):
            noted_events[index] = structs.replace(event, meta={**event.meta, SHOWN: asked_at})
        if begins_reply(event):
            previous_reply = event
    return noted_events


def describe(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"
