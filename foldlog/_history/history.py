"""The face of one history of a store for the author of a runtime. No rule of the domain is here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import structs

from foldlog._bound_store import bound_store, views_of
from foldlog._telemetry import SHOWN, span
from foldlog._words.tables import Table, show_as_table, view_table
from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    Action,
    AnyVersion,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    ConversationNotFound,
    Documents,
    Event,
    EventStoreError,
    InvalidArgument,
    InvalidEvent,
    Observation,
    Recorded,
    Retraction,
    UnknownEvent,
    VersionConflict,
)
from foldlog.eventstore.arguments import check_map, check_text
from foldlog.eventstore.inside import Generation, check_whole, from_microseconds, has_content
from foldlog.eventstore.maintenance.redact import RedactionReceipt
from foldlog.projections import (
    Difference,
    NoSuchEvent,
    NoSuchVersion,
    View,
    Why,
    append_tool_result,
    as_json,
    begins_reply,
    close_open_calls,
)

if TYPE_CHECKING:
    from foldlog._archive.recording import HistoryRecorder
    from foldlog._archive.stored import HistoryRecords, Query, Records
    from foldlog._figures.stats import Stats
    from foldlog._history.facts import Fact
    from foldlog._history.histories import Histories
    from foldlog._history.lease import Lease
    from foldlog._history.recall import RecallTool
    from foldlog._reports.dropped import Dropped
    from foldlog.condensers import AgentModel, Condensation
    from foldlog.eventstore import ReadTransaction
    from foldlog.projections import Effect, Lifetimes, Views

T = TypeVar("T")

ExpectedVersion = int | Literal[AnyVersion.ANY_VERSION]
Appended: TypeAlias = (
    "Event | Mapping[str, Any] | Condensation | Iterable[Event | Mapping[str, Any]]"
)


class History:
    """One conversation: append to it, and read what the model is shown. Of its own it holds only
    the version that ``step`` returned last, for ``append_reply``.

    A history that has no events yet is empty, in every method: its View, its events and its tail
    are empty, and its version is 0. Its first append makes the conversation. Every method raises
    ``ConversationErased`` where the conversation was erased; once this object read or wrote it,
    also where another conversation has the id now.
    """

    def __init__(self, histories: Histories, conversation: str) -> None:
        self._histories = histories
        self.id = conversation
        self._bound, self._store = bound_store(histories.store, conversation)
        self._asked_at: int | None = None
        self._shown_at: int | None = None

    @cached_property
    def _views(self) -> Views:
        return views_of(self._store, self._histories.views)

    @property
    def _generation(self) -> Generation:
        return self._bound.generation

    @_generation.setter
    def _generation(self, generation: Generation) -> None:
        self._bound.generation = generation

    def version(self) -> int:
        """Return the number of its events; 0 before the first."""
        return self._store.version(self.id)

    def __len__(self) -> int:
        """Return ``version``, the number of its events, forgotten ones too."""
        return self.version()

    def __bool__(self) -> bool:
        return True

    def view(self) -> View:
        """Return the View now; empty before the first event. It is what the model is shown, unless
        a condenser hides or masks a part of it: see ``sent``.

        Cost: the events since the last call; the first call of a program reads the events that it
        shows. For the last events of the log alone, call ``tail``.
        """
        try:
            return self._views.current(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def at(self, version: int) -> View:
        """Return the View when the history had ``version`` events: see ``view``. Cost: the size of
        that View.

        Raises ``NoSuchVersion`` for a version that the history never had.
        """
        if check_whole("version", version) == 0 and self.version() >= 0:
            return View.from_events(())
        try:
            return self._views.at(self.id, version=version)
        except ConversationNotFound:
            raise NoSuchVersion(self.id, version, 0) from None

    def sent(self, version: int | None = None) -> View:
        """Return the View as a model is sent it, now or at a version: without the events that
        ``recent`` hides, with the masks of ``observation_masking`` and the like, and with texts
        that ``max_tokens`` shortened.

        The steps record these rules in the log. What a condenser of your own hides cannot be
        applied again: the result has it, and ``why`` says that what a model was sent is not known.
        Raises what ``at`` raises. Cost: the View, and the last 100 events.
        """
        from foldlog._reports.as_sent import sent

        view = self.view() if version is None else self.at(version)
        return sent(self._store, self.id, view).sent if view.version else view

    def events(
        self, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Event]:
        """Yield all events with ``start <= id < stop``, forgotten ones too, in order; with
        ``reverse`` the newest first. Raises ``InvalidArgument`` for a negative number.
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
        """Yield the records of the history in a format: by default that of its source, and
        ``openhands-v1`` for one that was not imported. Imported records are as they were; other
        events are written as records of the format. Forgotten events are written, retracted ones
        are not.

        With ``view``, the records are what a model would be sent now, as ``sent`` returns it; by
        default as ``openai-chat``, which has its messages, as ``anthropic-messages`` and
        ``openai-responses`` do.

        ``notes`` is called with what was left out, and of a history that lacks records of its
        source that the export does not say so. Any history can be written as ``openai-chat``.
        Raises ``formats.UnknownFormat``, also where the history was imported from another format.
        Cost: its events; with ``view`` those of the View.
        """
        from foldlog._formats.conversion import (
            ANY_HISTORY,
            check_told,
            encode_standing,
            encode_view,
            format_of_history,
        )
        from foldlog._formats.record import INCOMPLETE

        check_told("notes", notes)
        if notes is not None and (lacks := self.attributes().get(INCOMPLETE)):
            notes(
                f"incomplete: {lacks}; the export does not say so, and an import of it will not be"
                " marked"
            )
        if view:
            return encode_view(self.sent(), format or ANY_HISTORY, notes)

        def known(read: ReadTransaction) -> tuple[int, list[Retraction]]:
            return read.version, [
                each for each in read.structural_events() if isinstance(each, Retraction)
            ]

        if not self.version():
            return iter(())
        version, retractions = self._store.query(self.id, known)
        chosen = format or format_of_history(self._store, self.id)
        stored = self._stored_records()
        return encode_standing(self.events(0, version), version, retractions, chosen, notes, stored)

    def _all_records(self, start: int = 0) -> HistoryRecords:
        """Return the records of this history from the event ``start`` on: see
        ``HistoryRecords``.
        """
        from foldlog._archive.stored import HistoryRecords

        return HistoryRecords(self._store, self.id, start)

    def _stored_records(self, query: Query | None = None) -> Records:
        """Return the records of the source of this history, by the events that they became: see
        ``Records``.
        """
        from foldlog._archive.stored import Records

        return Records(self._store, self.id, query)

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events of the log, forgotten ones too, in order; all, where
        there are fewer.

        ``history.view().tail(count)`` are the last events that the model is shown. Raises
        ``InvalidArgument`` for a negative number. Cost: these events.
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
        """Append one event, or several, all or none. Return them as recorded, with their ids.

        A chat message, ``{"role": "user", "content": "hi"}``, stands for its events: see
        ``foldlog.from_openai``. A ``Condensation``, as a condenser returns it, stands for its
        action.

        ``expected_version`` is the version on which the decision was made, 0 for a new history, or
        ``ANY_VERSION``. A repeated ``idempotency_key`` with the same events appends nothing and
        returns the recorded events. ``documents`` are new values of documents by name, JSON and
        bytes, or ``DELETED``, in the same transaction as the events. With them, the events may be
        empty: see ``foldlog.eventstore.Documents.append``. ``dedupe="origin"`` leaves out imported
        events whose source id the history already has: see ``foldlog.eventstore.Store.append``. If
        others appended since the last ``prepare`` or ``step`` of this object, the ``meta`` of a
        model's reply notes which View it answers, so that no condenser forgets what came while the
        model answered. Where another event follows that View, its ``meta`` notes the View: what it
        showed may be forgotten, although no reply followed.

        Raises ``VersionConflict`` (read again, decide again), ``InvalidEvent`` (the message says
        which rule is broken), ``IdempotencyConflict`` (the key stands for other events),
        ``ConversationErased``, ``StoreUnavailable``; ``TypeError`` for an argument of a wrong type.
        Durability: on disk when it returns. Cost: the events appended, for any length of the
        history; for a chat message with calls or results also that of ``view``.
        """
        appended = self._appendable(events, idempotency_key)
        how: dict[str, Any] = {
            "generation": self._generation,
            "idempotency_key": idempotency_key,
            "dedupe": dedupe,
        }
        return self._append(appended, expected_version, how, documents)

    def _append_recorded(
        self,
        events: Sequence[Event],
        recorder: HistoryRecorder,
        expected_version: ExpectedVersion,
        *,
        idempotency_key: str | None = None,
        documents: Mapping[str, Any] | None = None,
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events as ``append`` does, with the records that ``recorder`` made some of them
        of.
        """
        how: dict[str, Any] = {
            "generation": self._generation,
            "idempotency_key": idempotency_key,
            "dedupe": dedupe,
            "also": partial(recorder.write, conversation=self.id),
        }
        recorded = self._append(list(events), expected_version, how, documents)
        self._histories._recording.keep(self, recorder)
        return recorded

    def _recorder(self, format: str, version: int | None = None) -> HistoryRecorder:
        """Return the decoder of the next records, at a version, by default that of the history now.
        Raises ``ConversationErased``.
        """
        from foldlog._formats.registry import format_named

        return self._histories._recording.recorder(self, format_named(format), version)

    def _append(
        self,
        appended: Event | list[Event],
        expected_version: ExpectedVersion,
        how: dict[str, Any],
        documents: Mapping[str, Any] | None,
    ) -> tuple[Recorded, ...]:
        """Append events; a reply to a View that is not the newest notes which View it answers."""

        def append(
            events: Event | Sequence[Event], version: ExpectedVersion
        ) -> tuple[Recorded, ...]:
            if documents is None:
                return self._store.append(self.id, events, expected_version=version, **how)
            return Documents(self._histories.store).append(
                self.id, events, documents, expected_version=version, **how
            )

        asked_at = self._asked_at
        given = [appended] if isinstance(appended, Event) else appended
        if asked_at is None or not any(map(begins_reply, given)):
            if self._shown_at is None:
                noted = None
            else:
                noted = _noting(given, self._shown_at)
            if noted is None:
                return append(appended, expected_version)
            recorded = append(noted, expected_version)
            self._shown_at = None
            return recorded
        if expected_version is ANY_VERSION:
            version = asked_at
        else:
            version = expected_version
        try:
            recorded = append(_answering(given, asked_at, version), version)
        except VersionConflict:
            if expected_version is not ANY_VERSION:
                raise
            recorded = append(_answering(given, asked_at, None), ANY_VERSION)
        self._asked_at = self._shown_at = None
        return recorded

    def _appendable(self, events: Appended, idempotency_key: str | None) -> Event | list[Event]:
        """Return the events to append: for a ``Condensation`` its action, for chat messages their
        events. Raises ``TypeError`` for another object.
        """
        if isinstance(events, Event):
            return events
        # condensers is imported only if a program condenses
        action = getattr(events, "action", None)
        if isinstance(action, CondensationAction):
            return action
        if isinstance(events, Mapping) and "role" in events:
            events = (events,)
        if isinstance(events, str | bytes | type | Mapping) or not isinstance(events, Iterable):
            raise _not_appended(events)
        appended: list[Event] = []
        one: Any  # whatever a caller gives
        for one in events:
            if isinstance(one, Event):
                appended.append(one)
            elif isinstance(one, Mapping) and "role" in one:
                appended += self._apart(_of_chat(one), appended, idempotency_key)
            else:
                raise _not_appended(one)
        return appended

    def _apart(
        self, reply: tuple[Event, ...], before: Sequence[Event], key: str | None
    ) -> tuple[Event, ...]:
        """Return the events of a chat message to append behind the View and ``before``; a reply
        under a response id of its own: ``set_apart``. Under a repeated key the View is that of the
        first time. Raises ``InvalidEvent`` for the result of a call that no event made.
        """
        from foldlog._history.replies import (
            answered,
            behind_compaction,
            compacts,
            result_of,
            set_apart,
        )

        is_compacted = any(map(compacts, reply))
        if not is_compacted and not any(isinstance(event, Action | Observation) for event in reply):
            return reply
        view = self._behind(key)
        if is_compacted:
            reply = behind_compaction(view, before, reply)
        reply = answered(view, before, reply)
        results = {event.call_id for event in reply if isinstance(event, Observation)}
        calls: dict[str | None, Action] = {}

        def newest_first() -> Iterator[Event]:
            return chain(
                (structs.replace(event, id=-1) for event in reversed(before)), reversed(view.events)
            )

        forgotten = self.events(0, view.version, reverse=True)
        for event in chain(reply, newest_first(), forgotten):
            if results <= calls.keys():
                break
            if isinstance(event, Action) and event.call_id is not None:
                calls.setdefault(event.call_id, event)
        if results - calls.keys():
            missing = "a call without tool_call_id, and no such call of the newest reply is open"
            named = " and ".join(
                missing if call is None else f"{call!r}, a call that no reply made"
                for call in results - calls.keys()
            )
            raise InvalidEvent(
                f"conversation {self.id!r}: this is the result of {named}; nothing was appended."
                " Append the reply that made the call first"
            )
        reply = tuple(
            result_of(event, calls) if isinstance(event, Observation) else event for event in reply
        )
        if not any(isinstance(event, Action) for event in reply):
            return reply
        return set_apart(reply, newest_first, view.version + len(before))

    def _behind(self, key: str | None) -> View:
        """Return the View behind which an append under this idempotency key goes: now, or when it
        was appended.
        """
        view = self.view()
        recalled = None
        # asked after the View is read: another writer may append under this key
        if isinstance(key, str):
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
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append ``records`` of a format as events, all or none, as an import would. Return the
        events as recorded.

        The records are stored with them, and ``export`` gives them back. With ``dedupe="origin"``
        records whose source id the history has already are left out; those without an id are
        appended. Other writers, also those of other processes, may append at the same time.

        Raises ``formats.UnknownFormat``; ``InvalidEvent`` if a record is not one of the format; and
        what ``append`` raises. Durability: on disk when it returns. Cost: the records; at the first
        call of a process all records that are there, at some 40 MB a second.
        """
        return self._histories._recording.append(self, records, format, expected_version, dedupe)

    def document(self, name: str, default: Any = None, *, version: int | None = None) -> Any:
        """Return a document, now or when the history had ``version`` events; ``default`` where
        there is none.

        Raises what ``foldlog.eventstore.Documents.get`` raises, except ``ConversationNotFound``.
        Cost: one event and at most 64 differences.
        """
        return _or_empty(
            partial(Documents(self._store).get, self.id, name, default, version=version), default
        )

    def documents(self, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, now or when the history had ``version`` events. Cost: as
        ``document``, each.
        """
        return _or_empty(partial(Documents(self._store).all, self.id, version=version), {})

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the history, which may be none: see ``Histories.create``. An
        imported one has also ``program``, ``cwd``, ``branch``, ``model`` and ``title`` of its
        source, as far as this says them. Cost: two events.
        """
        from foldlog._figures.places import place_of

        place: dict[str, Any] = _or_empty(
            lambda: dict[str, Any](place_of(self._store, self.id)), {}
        )
        return {**place, **self.document(ATTRIBUTES, {})}

    def set_attributes(self, /, **changed: Any) -> dict[str, Any]:
        """Change attributes by name; None removes one. The others stay. Return all of them. The
        newest event holds all of them: redacting it removes all.

        Other writers may append at the same time. Raises what ``append`` raises. Durability: on
        disk when it returns.
        """
        while True:
            version = self.version()
            attributes = {
                **(self.document(ATTRIBUTES, {}, version=version) if version else {}),
                **changed,
            }
            attributes = {name: value for name, value in attributes.items() if value is not None}
            try:
                self.append((), expected_version=version, documents={ATTRIBUTES: attributes})
            except VersionConflict:
                continue
            return attributes

    def _met(self) -> int | None:
        """Return the key of the conversation that this object means, which it reads first if it
        means none yet; None before the first append.
        """
        if self._generation.key is None:
            self.version()
        return self._generation.key

    def open_calls(self) -> tuple[Action, ...]:
        """Return the actions that wait for their observation, in order: see ``View.open_calls``.
        After a crash these are the calls whose outcome is unknown; ``docs/RESUMING.md`` says what
        to do. A redacted call is left out: it has no arguments to run with, and
        ``close_open_calls`` closes it. Cost: that of ``view``.
        """
        return tuple(filter(has_content, self.view().open_calls))

    def close_open_calls(
        self, reason: str = "", *, older_than: timedelta | None = None
    ) -> tuple[Recorded, ...]:
        """Append an observation with the reason for each open call: for all of them or none. Return
        these observations in the order of the calls; an empty tuple if no call is open.

        It says "unknown: this call may have run" and the key of a call that ``run`` began; "not
        begun" where ``run`` began other calls of the same tool since, but not this one; and else
        "interrupted".

        Call it when no program works on these calls any more: a later result belongs to no open
        call. ``older_than`` leaves out calls that were made since. Other writers may append at the
        same time. Raises ``LeaseTaken`` while another worker drives the history (``lease``), and
        what ``append`` raises. Durability: on disk when it returns. Cost: that of ``view``, and the
        open calls.
        """
        from foldlog._history.effects import closing
        from foldlog._history.lease import check_free

        database = self._store.database
        generation = self._generation
        if generation.fence is None:
            generation = replace(generation, fence=partial(check_free, database, self.id))
        if not isinstance(older_than, timedelta | None):
            raise TypeError(f"older_than is a datetime.timedelta, not {older_than!r:.60}")
        if older_than is not None and older_than < timedelta():
            raise InvalidArgument(
                f"older_than is {older_than}; give a timedelta that is not negative"
            )
        if older_than is None:
            before = None
        else:
            before = from_microseconds(database.now()) - older_than
        answers = partial(closing, self, check_text("reason", reason).strip())
        work = partial(
            close_open_calls, self._store, self._views, self.id, answers, generation, before
        )
        closed: tuple[Recorded, ...] = _or_empty(work, ())
        self._generation.key = self._generation.key or generation.key
        return closed

    def lease(
        self, *, ttl_s: float = 30.0, wait_s: float = 60.0, worker: str | None = None
    ) -> AbstractContextManager[Lease]:
        """Return a block in which no other worker drives this history: ``with history.lease() as
        lease``.

        The block waits for the lease up to ``wait_s`` seconds; with 0 it refuses at once. Waiting
        has no order: a worker that takes the lease again at once keeps others out, so pause between
        turns. The lease is renewed while the block runs. Where that stops for ``ttl_s`` seconds,
        because the process died or stood still, another worker takes it over. From then on
        everything that this ``History`` appends in the block is refused with ``LeaseTaken``; a
        redaction and the outcome of a tool are not. Programs without a lease may still append, such
        as messages of the user. ``worker`` is the name that others are told, by default the machine
        and the number of the process; it is stored as plain text.

        Raises ``LeaseTaken`` where another worker has the lease, ``InvalidArgument`` inside another
        block of the same ``History``, ``ConversationErased``, ``StoreUnavailable``. No connection
        and no lock is held. Cost: a commit to take it, one to give it back and three within
        ``ttl_s``; each append of the block reads a row.
        """
        from foldlog._history.lease import LeaseBlock

        return LeaseBlock(self, ttl_s, wait_s, worker)

    def current_lease(self) -> Lease | None:
        """Return the lease of the worker that drives this history now (``lease``); None where there
        is none. An erased history has one until its worker leaves; another one with its id has its
        own.
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
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append the reply of a model: a chat completion, a response of OpenAI, an Anthropic
        message, or one of their messages. Return the events as recorded: the ``Action`` of each
        tool call, or the agent's ``Message``; before them the condensation that they bring where
        the provider compacted the context.

        ``cost`` is what the call cost in US dollars; a reply of litellm tells it itself. ``meta``
        is kept with the first of the events beside model, usage and cost, and prevails;
        ``timestamp`` is when they happened.

        A user's message that another program appended while the model answered stands before the
        reply, and the next prompt ends with the assistant. With ``view.version`` as
        ``expected_version`` this raises ``VersionConflict`` instead: prepare, and ask again. Where
        each program takes the lease to append, such a message comes later.

        See ``foldlog.from_openai`` for the conversion. Raises ``InvalidEvent`` for a reply with
        neither a text nor a call, and for a message of the user or the system, ``InvalidArgument``
        for another object, and what ``append`` raises; then nothing is appended.
        """
        from foldlog._history.replies import events_of_reply

        events = events_of_reply(self.id, reply, cost, check_map("meta", meta or {}), timestamp)
        events = self._apart(events, (), idempotency_key)
        return self.append(
            events, expected_version=expected_version, idempotency_key=idempotency_key
        )

    def append_tool_result(
        self,
        call_id: str | Action,
        content: Any,
        is_error: bool = False,
        *,
        extras: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Recorded:
        """Append the observation of the open call with this id; of several such calls, the first of
        the newest reply. ``call_id`` may be the call itself, as ``open_calls`` has it.

        ``content`` is a text, parts in OpenAI's form (each has a ``type``), or other JSON, which is
        shown as its text, NaN and infinities in it as texts. ``extras`` are kept and not shown. A
        repeated key with the same result appends nothing, and returns the event.

        Raises ``InvalidEvent`` if no action opened a call with this id, or if it already has its
        result (``append`` accepts such an observation, as imports do), ``InvalidArgument`` for a
        part that is a text without its text, and what ``append`` raises. Where the lease of this
        history was lost, the result is recorded all the same, beside that of the other worker where
        there is one, and then ``LeaseTaken`` is raised. Durability: on disk when it returns. Cost:
        that of ``view``, and the open calls; after a lost lease the events.
        """
        try:
            return self._append_result(
                call_id, content, is_error, extras, idempotency_key, self._generation
            )
        except EventStoreError:  # the lease was lost, or who took it over has closed the call
            from foldlog._history.effects import record_overtaken

            record_overtaken(self, call_id, content, is_error, extras)
            raise

    def _append_result(
        self,
        call_id: str | Action,
        content: Any,
        is_error: bool,
        extras: dict[str, Any] | None,
        idempotency_key: str | None,
        generation: Generation,
    ) -> Recorded:
        if isinstance(content, list | tuple) and all(
            isinstance(each, Mapping) and "type" in each for each in content
        ):
            _of_chat({"role": "tool", "content": [*content]})
        elif content is None or isinstance(content, Mapping | list | tuple | int | float):
            content = as_json(content)
        return append_tool_result(
            self._store,
            lambda: self._behind(idempotency_key),
            self.id,
            call_id,
            content,
            is_error=is_error,
            extras=extras,
            idempotency_key=idempotency_key,
            generation=generation,
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
    ) -> Recorded:
        """Run the tool of an open call with the call's arguments, and record how it ends. Return
        the outcome as it is recorded: an observation, or a late outcome where the call was closed
        before it ended.

        Before the tool, an event marks that it begins, under the lease of this history. ``repeat``
        says what to do where an earlier worker began it and recorded no outcome:

        - ``"never"``, the default: the tool does not run, and the call is closed as unknown. At
          most once, always.
        - ``"same key"``: it runs again with the same ``key``, an argument of the tool that it hands
          to the outside system. Once, if that system keeps keys longer than you retry.
        - ``"safe"``: it runs again, without a mark and without a lease: for tools that only read.

        ``check(key, call)`` asks the outside system first: it returns the outcome, or None where
        the key is not known there and the tool runs. Once, if the former worker is dead. Where it
        raises, nothing is recorded. ``@foldlog.effect`` marks a tool with both. ``by`` and
        ``reason`` say who approved this attempt, and are stored with its mark.

        A tool that raises has failed; after a ``TimeoutError`` it is unknown whether it ran. Of a
        fork, a call that its parent made too counts as begun. An outcome is recorded also where the
        lease was lost: ``LeaseTaken`` comes after that. Raises ``InvalidEvent`` where the call is
        not open, ``InvalidArgument`` outside of ``history.lease()``, and what ``append`` raises.
        Durability: the mark is on disk before the tool runs. Cost: one more append than
        ``append_tool_result``, the View, and the events since the call.
        """
        from foldlog._history import effects

        return effects.run(self, call, *effects.rule_for(tool, repeat, check), by, reason)

    def effects(
        self, state: Literal["intended", "begun", "done", "failed", "unknown"] | None = None
    ) -> tuple[Effect, ...]:
        """Return each call of the log with the state of its effect, in order: those that were
        forgotten or taken back too; with ``state`` only these, such as ``"unknown"``.

        The states are ``intended`` (not begun), ``begun`` (it runs now), ``done``, ``failed`` and
        ``unknown`` (it began, and its outcome was never recorded). Cost: the events.
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
        """Record the outcome of an effect by its key: what the outside system or a person knows of
        it.

        An open call gets it as its observation. Else it stands beside the observation, in one line
        that the model is shown. It needs no lease. Raises ``InvalidArgument`` where no call has
        this key, and what ``append`` raises. Durability: on disk when it returns. Cost: the events.
        """
        from foldlog._history import effects

        return effects.settle(self, key, outcome, is_error, by, reason)

    def recorded(self, idempotency_key: str) -> tuple[Recorded, ...]:
        """Return the events that were appended under an idempotency key; an empty tuple where there
        are none. Cost: these events.
        """
        return _or_empty(lambda: self._store.recorded(self.id, idempotency_key), ())

    def once(self, idempotency_key: str, work: Callable[[], Any]) -> tuple[Recorded, ...]:
        """Return what is recorded under the key; else do ``work``, append what it returns under the
        key, and return that. ``work`` returns the reply of a model, or events to append.

        A step of a durable engine that runs again finds what it recorded, also where the model
        would now answer otherwise. ``work`` may be done again after a crash before the append, or
        by two workers at once: one of the results is recorded, and both get it. Raises what
        ``work``, ``append`` and ``append_reply`` raise. Cost: that of ``append``.
        """
        from foldlog._history.once import append_once

        return self.recorded(idempotency_key) or append_once(self, idempotency_key, work())

    def recall_tool(self, *, max_tokens: int = 2_000) -> RecallTool:
        """Return a tool with which the agent reads what was forgotten: ``recall(query | ids |
        path)``.

        Offer ``tool.schema()`` to the model, and answer a call with ``append_tool_result(call,
        tool(call))``. A result has at most ``max_tokens`` tokens, estimated, and at least 300.
        Nothing is read before a call. Cost of a call: the events of the conversation; by ids only
        these events, and the calls of results.
        """
        from foldlog._history.recall import RecallTool

        return RecallTool(self._store, self._views, self.id, max_tokens)

    def prepare(self, llm: AgentModel | None = None) -> View:
        """Take steps until a View can be sent, and return it. Condensations that are due are made
        and appended.

        ``llm`` is the model that is sent the View, if it is not ``agent_llm`` of the store: the
        View is within its limit, under any condenser, and in its dialect. A request for a
        condensation that is impossible is declined in the log, and the View is returned. Where the
        agent requests one again without a turn in between, its prompt is too long, and
        ``NoCondensationAvailable`` is raised. Raises what ``step`` raises, mainly that error, if a
        condensation is required and impossible. Cost: the View, and the condenser's work, perhaps a
        call of a model.
        """
        from foldlog.condensers import NoCondensationAvailable

        with span("foldlog.prepare", conversation=self.id) as more:
            while True:
                try:
                    prepared = self.step(llm)
                except NoCondensationAvailable as error:
                    if not error.may_go_on:
                        raise
                else:
                    if isinstance(prepared, View):
                        more["view"] = prepared
                        return prepared

    def step(self, llm: AgentModel | None = None) -> View | Condensation:
        """Prepare the call of the agent's model: return the View to go on with, or a condensation
        that was due and has been appended; then step again.

        Any number of threads may step while others append: see
        ``foldlog.condensers.CondenseHandler.handle``, also for its errors; mainly
        ``NoCondensationAvailable``, if a condensation is required and impossible. ``llm`` is that
        of ``prepare``. Cost: the View, and the condenser's work, which may be a call of a model.
        """
        handler = self._histories._handler.reading(self._store, self._views)
        try:
            made = (handler if llm is None else handler.with_agent(llm)).handle(
                self.id, self._generation
            )
        except ConversationNotFound:
            made = View.from_events(())
        self._asked_at = self._shown_at = made.version if isinstance(made, View) else None
        if llm is None or not isinstance(made, View):
            return made
        return View(
            made.state, made.condensations, getattr(llm, "dialect", "litellm"), made.kept_from
        )

    def request_condensation(self, reason: str = "") -> Recorded:
        """Request a condensation: the View's ``unhandled_condensation_request`` is set until the
        next condensation.
        """
        (recorded,) = self.append(CondensationRequest(reason=check_text("reason", reason)))
        return recorded

    def condense(self, reason: str = "") -> View | Condensation:
        """Request a condensation, and take the step that fulfils it.

        Raises ``InvalidCondenser``, a ``ValueError``, if the condenser does not handle requests,
        and ``NoCondensationAvailable`` if the history is empty: nothing is appended then. Raises
        what ``step`` raises.
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
        self, version: int, reason: str = "", *, expected_version: ExpectedVersion = ANY_VERSION
    ) -> Recorded:
        """Take back all events since ``version``: the View is again that of ``version``. The log
        keeps the events.

        Of effects among them that happened, or may have, the model is told in one line each, behind
        the retraction. Documents and attributes stay as they are; a fork at ``version`` has those
        of then. ``history.retract(recorded.id)`` reverses a retraction. A requested condensation
        stays requested. Raises ``InvalidEvent`` if there are no events since ``version``, and what
        ``append`` raises. Durability: on disk when it returns. Cost: the events that it takes back,
        and copying the View in memory; where none is, or ``version`` is before a condensation,
        reading the View now and that at ``version``.
        """
        from foldlog._history.effects import taken_back

        taken: list[Event] = [Retraction(version=version, reason=check_text("reason", reason))]
        while True:
            stop = self.version()
            told = taken_back(self, version) if version < stop else None
            if told is None:
                return self.append(taken, expected_version=expected_version)[0]
            try:
                if expected_version is ANY_VERSION:
                    at = stop
                else:
                    at = expected_version
                return self.append([*taken, told], expected_version=at)[0]
            except VersionConflict:
                if expected_version is not ANY_VERSION:
                    raise

    def pop(self, count: int = 1, reason: str = "") -> tuple[Event, ...]:
        """Take back the newest ``count`` events that the View shows. Return them, in order.

        It is a retraction: the View is again what it was before the first of them, so a later
        condensation is taken back too; the log keeps all events. Fewer events are taken back if the
        View has fewer or if a summary stands before them; none if the View is empty. Raises
        ``InvalidArgument`` for a negative number, and what ``append`` raises. Durability: on disk
        when it returns. Cost: that of ``view`` and ``retract``.
        """
        while True:
            view = self.view()
            events = view.tail(count)
            summaries = [
                place
                for place, event in enumerate(events)
                if isinstance(event, CondensationSummary)
            ]
            popped = events[summaries[-1] + 1 :] if summaries else events
            if not popped:
                return ()
            try:
                self.retract(popped[0].id, reason, expected_version=view.version)
            except VersionConflict:
                continue  # other writers appended: the newest events are theirs
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
        """Erase the content of one event for good, or of several, all or none. Each is given
        by its id or itself. Return the receipt.

        Its id, kind, place, times, size and head stay: published heads still verify. Readers and
        the model see ``[redacted]``. The receipt is the next event of the history. It names the
        condensations whose summaries may quote the event; ``with_summaries`` redacts these too. It
        also names copies of the content in companions of the conversation, which are redacted with
        it. ``by`` says who does it, by default the user of the operating system. In a SQLite file
        the bytes stay until ``maintenance.vacuum`` (``bytes_pending``): call it once for many
        redactions. On PostgreSQL the call vacuums all tables, unless ``complete`` is False. Calling
        it again finishes an interrupted redaction. Of an event that set attributes, all attributes
        go, of one that set a document its newest value: set ``documents_lost`` again.

        Raises ``CannotRedact`` for a receipt of a redaction, ``InvalidArgument`` where the history
        has no such event of its own, ``ConversationNotFound``, and ``StoreUnavailable`` where, on
        PostgreSQL, a transaction that began before does not end. Cost: the condensations and the
        idempotency keys of the history, its companions; of an imported event, all events, those of
        its forks too: records that repeat its content go with it. One that cannot be read is named
        in ``unconfirmed``. What others append during the call, before the events are redacted, is
        redacted as if it were there before.
        """
        from foldlog._maintenance import cleared
        from foldlog._redacting import redacted

        given = [event] if isinstance(event, int | Event) else event
        event_ids = [
            each.id if isinstance(each, Event) else check_whole("event", each) for each in given
        ]
        if not event_ids:
            raise InvalidArgument("there is no event to redact: name one or several")
        options: Any = {"reason": reason, "by": by, "with_summaries": with_summaries}
        receipt = redacted(self._store, self.id, event_ids, **options)
        if complete:
            return receipt._replace(bytes_pending=cleared(self._store))
        return receipt

    def why(self, event_id: int, at: int | None = None) -> Why:
        """Return why the View, now or at a version, shows an event, or the summary with this id, or
        does not; and whether a model is sent it, by ``sent``. Raises ``NoSuchEvent``, and what
        ``at`` raises.
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
        """Return whether the agent knows some words, now or at a version: by which event or summary
        that a model is sent; or since when it does not, what forgot them, and whether the summary
        has them.

        Words are searched for as ``Histories.search`` does: all of them, in one event. Raises
        ``InvalidArgument`` where there is no word, ``ConversationNotFound``, and what ``at``
        raises. Cost: the View, and the stored bytes.
        """
        from foldlog._history.facts import fact

        return fact(
            self._store, self._views, self.id, words, at if at is None else check_whole("at", at, 0)
        )

    def dropped(self, condensation: int | None = None) -> Dropped | None:
        """Return what a condensation took out of the View: events, their estimated tokens, the
        terms that no shown event has any more, and which of these the agent wrote again later, with
        the event.

        Without an id it is the newest condensation; None if there is none. Raises
        ``InvalidArgument`` for the id of another event. Cost: two Views, and the events after the
        condensation.
        """
        from foldlog._reports.dropped import dropped_by

        try:
            return dropped_by(self._store, self._views, self.id, condensation)
        except ConversationNotFound:
            return None

    def stats(self, *, prices: str | os.PathLike[str] | None = None) -> Stats:
        """Return the figures of this history: events by kind and tool, errors, tokens and cost by
        model and day, condensations by strategy. Cost: the events, once; the structural ones once
        more.

        A call that does not tell its cost is counted at the prices of a file, else of litellm or
        genai-prices where one is installed: ``docs/COMMAND.md`` says how the file looks. Raises
        ``InvalidArgument`` for one that cannot be read.
        """
        from foldlog._figures.prices import Prices
        from foldlog._figures.shown import collect_stats
        from foldlog._figures.stats import Stats

        priced = Prices(None if prices is None else Path(prices))
        collected = partial(collect_stats, self._store, [self.id], views=self._views, prices=priced)
        return _or_empty(collected, Stats(conversations=1))

    def lifetimes(self) -> Lifetimes:
        """Return for each event and summary at which versions the View shows it, when a model is
        sent it, why it left, and its estimated tokens. Cost: the events, once.
        """
        from foldlog._figures.sizes import event_tokens
        from foldlog.projections import Lifetimes

        return _or_empty(
            partial(self._views.lifetimes, self.id, event_tokens), Lifetimes(self.id, 0, (), {}, ())
        )

    def fork(
        self, at: int | None = None, id: str | None = None, *, at_source: str | int | None = None
    ) -> History:
        """Begin a history that shares the events of this one up to version ``at``, by default the
        present one.

        ``id`` names it; by default it is the name of this one with a random ending. ``at_source``
        names the version by an id of the imported source instead, such as a ``uuid`` of Claude
        Code: the fork begins after this record, also if it ends a branch that the source left.
        Later events of one history are not in the other.

        Raises ``InvalidArgument`` where this history does not have that version or that source id,
        ``VersionConflict`` where ``id`` exists, and ``ConversationNotFound`` where this history has
        no events. Durability: on disk when it returns. Cost: one row; with ``at_source`` also the
        events from that one to the end. The fork of an import that lacks records begins with an
        event that says so, and so is at version ``at + 1``.
        """
        self._met()
        if at is not None and at_source is not None:
            raise InvalidArgument(
                "a fork begins at a version or after a source id: give 'at' or 'at_source', not"
                " both"
            )
        from foldlog._formats.forking import begin_fork, version_of_tip

        if at_source is not None:
            version = version_of_tip(self._store, self.id, at_source)
        else:
            version = self._store.version(self.id) if at is None else at
        if id is None:
            name = f"{self.id}@{version}-{secrets.token_hex(4)}"
        else:
            name = id
        begin_fork(self._store, self.id, version, name)
        return self._histories[name]

    def difference(self, before: int, after: int) -> Difference:
        """Return what entered the View and what left it between two versions, and what was
        summarized. Raises ``NoSuchVersion``.
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
    """Return the View of a history as a table, or why it cannot be read."""
    try:
        table = view_table(history.view())
    except EventStoreError as error:
        return Table(f"{history!r}: {error}")
    return table._replace(heading=f"{history.id}: {table.heading}")


show_as_table(History, _table)


def _or_empty(read: Callable[[], T], empty: T) -> T:
    """Return what ``read`` returns; ``empty`` where the history has no events yet."""
    try:
        return read()
    except ConversationNotFound:
        return empty


def _not_appended(value: object) -> TypeError:
    if isinstance(value, Mapping):
        given = "a dict without a role"
    else:
        given = described(value)
    return TypeError(
        f"append takes one event or chat message, or several, not {given}; write for example"
        " history.append(Message(source='user', content='hi')) or history.append({'role': 'user',"
        " 'content': 'hi'}); a model's reply goes to append_reply, and messages of other forms to"
        " foldlog.from_openai or append_records"
    )


def _of_chat(message: Mapping[str, Any]) -> tuple[Event, ...]:
    from foldlog._history.replies import from_openai

    if not (events := from_openai(message)):
        raise InvalidEvent("a message has neither a text nor a tool call; nothing was appended")
    return events


def _noting(events: Sequence[Event], shown_at: int) -> list[Event] | None:
    """Return events of which the first shown one notes the View that a step returned before them;
    None without one. An unknown event is stored as its writer wrote it.
    """
    for place, event in enumerate(events):
        if event.shown and not isinstance(event, UnknownEvent):
            noted = structs.replace(event, meta={**event.meta, SHOWN: shown_at})
            return [*events[:place], noted, *events[place + 1 :]]
    return None


def _answering(events: Sequence[Event], asked_at: int, version: int | None) -> list[Event]:
    """Return events to append at a version. Replies of a model note which View they answer, if it
    is not the one at this version: the model was not shown what others appended since.
    """
    noted = [*events]
    said = None
    for place, event in enumerate(events if asked_at != version else ()):
        if begins_reply(event, said):
            noted[place] = structs.replace(event, meta={**event.meta, SHOWN: asked_at})
        said = event if begins_reply(event) else said
    return noted


def described(value: object) -> str:
    """Describe a value, for an error that refuses it."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"
