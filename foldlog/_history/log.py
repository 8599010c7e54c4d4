"""The log of one history: append events, and read events and Views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import structs

from foldlog._base.telemetry import SHOWN
from foldlog._history.request_names import name_request, name_requests
from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    DELETED,
    Action,
    CondensationAction,
    ConversationNotFound,
    Documents,
    Event,
    InvalidArgument,
    InvalidEvent,
    Observation,
    Recorded,
    UnknownEvent,
    VersionConflict,
)
from foldlog.eventstore.arguments import check_map, check_whole
from foldlog.eventstore.log.appending import (
    NOTHING_SEEN,
    Appending,
    ExpectedVersion as ExpectedVersion,
    Seen,
    version_of,
)
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.store import bind
from foldlog.projections import (
    NoSuchVersion,
    View,
    append_tool_result,
    as_json,
    begins_reply,
    close_open_calls,
)
from foldlog.projections.messages.requests import REQUEST

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._history.lease import LeaseBlock
    from foldlog._imports.recording import HistoryRecorder
    from foldlog._reports.records.stored import HistoryRecords, Query, Records
    from foldlog.condensers import Condensation
    from foldlog.condensers.handler import CondenseHandler
    from foldlog.eventstore import Store
    from foldlog.eventstore.documents.changes import Guard
    from foldlog.eventstore.log.finding import Fence
    from foldlog.eventstore.log.writing import WriteTransaction
    from foldlog.formats.format import Format
    from foldlog.projections import ModelRequest, Views
    from foldlog.projections.messages.requests import SentBeside

T = TypeVar("T")

Appended: TypeAlias = (
    "Event | Mapping[str, Any] | Condensation | Iterable[Event | Mapping[str, Any]]"
)
_Append: TypeAlias = Callable[
    [Event | Sequence[Event], ExpectedVersion, Mapping[str, Any] | None], tuple[Recorded, ...]
]
"""Appends events at a version, together with documents."""


class EndingReply(Protocol):
    """A reply that is being written, as a history uses it: see
    ``streamed_reply.StreamedReply``.
    """

    def _end_with(
        self,
        append: Callable[..., tuple[Recorded, ...]],
        also: Callable[[WriteTransaction], object] | None,
    ) -> tuple[Recorded, ...]:
        """Append events that the reply became, and close its stream in the same transaction."""


class Recorders(Protocol):
    """Appends records, as a history uses it: see ``foldlog._history.recording``."""

    def append(
        self,
        history: HistoryLog,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]: ...
    def keep(self, history: HistoryLog, recorder: HistoryRecorder) -> None: ...
    def recorder(
        self, history: HistoryLog, format: Format, version: int | None = None
    ) -> HistoryRecorder: ...


class Siblings(Protocol):
    """The store of histories that a history is in, as the history uses it: see ``Histories``."""

    @property
    def store(self) -> Store: ...
    @property
    def views(self) -> Views: ...
    @property
    def _handler(self) -> CondenseHandler: ...
    @property
    def _recording(self) -> Recorders: ...
    def __getitem__(self, conversation: str) -> HistoryLog: ...
    def create(self, conversation: str, attributes: Mapping[str, Any]) -> HistoryLog: ...


class HistoryLog:
    """The log of a conversation: append events, replies, records and documents, and read events and
    Views. ``HistoryRun`` adds what a running agent needs, and ``History`` adds the past.
    """

    def __init__(self, histories: Siblings, conversation: str) -> None:
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
        self._streamed: EndingReply | None = None
        """The reply whose stream the next append of a reply closes. An adapter sets it."""

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
        if check_whole("version", version) == 0:
            self.version()  # raises ``ConversationErased``
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

    def events(
        self, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Event]:
        """Yield all events with ``start <= id < stop`` in order, including forgotten events. With
        ``reverse``, the newest event comes first. Raises ``InvalidArgument`` for a negative number.
        """
        check_whole("start", start, 0)
        if stop is not None:
            check_whole("stop", stop, 0)
        return or_empty(
            partial(self._store.events, self.id, start, stop, reverse=reverse), iter(())
        )

    def _all_records(self, start: int = 0) -> HistoryRecords:
        from foldlog._reports.records.stored import HistoryRecords

        return HistoryRecords(self._store, self.id, start)

    def _stored_records(self, query: Query | None = None) -> Records:
        from foldlog._reports.records.stored import Records

        return Records(self._store, self.id, query)

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events of the log in order, including forgotten events. If the
        log has fewer events, return all events.

        For the last events that are shown to the model, use ``history.view().tail(count)``. Raises
        ``InvalidArgument`` for a negative number. Cost: the method reads the events that it
        returns.
        """
        check_whole("count", count, 0)
        return or_empty(lambda: self._store.query(self.id, lambda read: read.tail(count)), ())

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
                ``ANY_VERSION``. If the events repeat what a View shows, pass ``view.seen``: the
                append is then refused after a redaction too.
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

    def _append_recorded(
        self,
        events: Sequence[Event],
        recorder: HistoryRecorder,
        expected_version: ExpectedVersion,
        *,
        idempotency_key: str | None = None,
        documents: Mapping[str, Any] | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: Guard | None = None,
        together: Sequence[Appending] = (),
    ) -> tuple[Recorded, ...]:
        """Append events that ``recorder`` has made from records, and store the records with
        them.
        """
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
        guard: Guard | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events and documents under the lease. If the events begin a reply that an adapter
        has streamed, close its stream in the same transaction.
        """
        if documents is None:
            append = self._store.append
        else:
            append = partial(Documents(self._store).append, changed=documents)
        append = partial(
            append,
            self.id,
            events,
            expected_version=version,
            idempotency_key=idempotency_key,
            dedupe=dedupe,
            guard=guard,
            fence=self._fence,
            together=together,
        )
        if self._streamed is not None:
            appended = (events,) if isinstance(events, Event) else events
            if any(map(begins_reply, appended)):
                return self._streamed._end_with(append, also)
        return append(also=also)

    def _append(
        self,
        appended: Event | list[Event],
        expected_version: ExpectedVersion,
        append: _Append,
        documents: Mapping[str, Any] | None,
    ) -> tuple[Recorded, ...]:
        """Append events. If they need it, note the View that the model was shown."""
        events = [appended] if isinstance(appended, Event) else appended
        if self._asked_at is not None and any(map(begins_reply, events)):
            expected = version_of(expected_version)
            version = self._asked_at if expected is ANY_VERSION else expected
            # After a later View, the append conflicts, unless the conversation was begun again.
            if version >= self._asked_at:
                return self._append_reply_to(
                    self._asked_at, version, events, expected_version, append, documents
                )
        noted_events = None
        if self._shown_at is not None:
            noted_events = _note_shown_view(events, self._shown_at)
        if noted_events is None:
            return append(appended, expected_version, documents)
        recorded = append(noted_events, expected_version, documents)
        self._shown_at = None
        return recorded

    def _append_reply_to(
        self,
        asked_at: int,
        version: int,
        events: list[Event],
        expected_version: ExpectedVersion,
        append: _Append,
        documents: Mapping[str, Any] | None,
    ) -> tuple[Recorded, ...]:
        """Append a reply to the View of version ``asked_at``. First try to append at ``version``,
        which is ``asked_at`` unless the caller expects another: right after the View, no note is
        needed.
        """
        at_view: ExpectedVersion = version
        if isinstance(expected_version, Seen):
            at_view = expected_version.at(version)
        named_events: Sequence[Event] = events
        if self._sent_beside is not None:
            beside = self._sent_beside
            follows = version == asked_at
            named_events = name_requests(events, self.sent(asked_at), beside, follows=follows)
            documents = {**(documents or {}), REQUEST: beside.document or DELETED}
        try:
            noted_events = _note_answered_view(named_events, asked_at, version)
            recorded = append(noted_events, at_view, documents)
        except VersionConflict as conflict:
            if version_of(expected_version) is not ANY_VERSION:
                raise
            if asked_at > conflict.actual:  # the conversation was begun again
                noted_events = events
            else:
                noted_events = _note_answered_view(events, asked_at, None)
            recorded = append(noted_events, expected_version, documents)
        self._asked_at = None
        self._sent_beside = None
        self._shown_at = None
        return recorded

    def _seen(self) -> Seen:
        """Return what a caller sees now. Pass it as ``expected_version`` of an append that repeats
        content of earlier events. The append is refused if an event was appended or redacted after
        this read, or if the history was begun or erased.
        """
        try:
            return self._store.query(self.id, Seen.of)
        except ConversationNotFound:
            return NOTHING_SEEN

    def _append_seen(
        self,
        events: list[Event],
        expected_version: int | Seen,
        documents: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        guard: Guard | None = None,
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events that were made from earlier events. ``also`` writes further data in the
        same transaction. Raises ``VersionConflict`` if another event was appended, or if an event
        was redacted after ``expected_version`` was read.
        """
        write = partial(self._write, guard=guard, idempotency_key=idempotency_key, also=also)
        return self._append(events, expected_version, write, documents)

    def _appendable(self, events: Appended, idempotency_key: str | None) -> Event | list[Event]:
        """Return the events that the argument of ``append`` stands for. Raises ``TypeError``."""
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
        """Return the events of a chat message as they are appended: results are linked to their
        calls, and a reply gets a response id of its own if its server repeats response ids
        (``set_apart``). ``before`` are the earlier events of the same append, and ``key`` is its
        idempotency key.
        """
        from foldlog.formats.replies import behind_compaction, compacts, set_apart

        is_compacted = any(map(compacts, reply))
        if not is_compacted and not any(isinstance(event, Action | Observation) for event in reply):
            return reply
        view = self._view_before(key)
        if is_compacted:
            reply = behind_compaction(view, before, reply)
        events = view.events
        version = view.version + len(before)
        pending = [structs.replace(event, id=-1) for event in reversed(before)]
        if any(isinstance(event, Observation) for event in reply):
            newest_first = chain(pending, reversed(events))
            reply = self._link_results(reply, view, before, newest_first)
        if not any(isinstance(event, Action) for event in reply):
            return reply
        return set_apart(reply, chain(pending, reversed(events)), version)

    def _link_results(
        self,
        reply: tuple[Event, ...],
        view: View,
        before: Sequence[Event],
        newest_first: Iterable[Event],
    ) -> tuple[Event, ...]:
        """Return the events with the results linked to their calls. The call of a result may be in
        the reply, in an earlier event (``newest_first``), or forgotten. Raises ``InvalidEvent`` if
        a result has no call.
        """
        from foldlog.formats.replies import add_missing_results, result_of

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
        """Return the View before an append with an idempotency key. If the key was used before,
        return the View of that time, so that a repeated append makes the same events again.
        """
        # The View is read first, because another writer may append under the key in between.
        view = self.view()
        if not isinstance(key, str):
            return view
        recalled = or_empty(
            lambda: self._store.query(self.id, lambda reading: reading.recall(key)), None
        )
        return view if recalled is None else self.at(recalled.first_id)

    def document(self, name: str, default: Any = None, *, version: int | None = None) -> Any:
        """Return the value of a document, now or at the time when the history had ``version``
        events. Return ``default`` if the history has no document with this name.

        Raises the errors of ``foldlog.eventstore.Documents.get``, except ``ConversationNotFound``.
        Cost: the method reads an event and at most 64 differences.
        """
        return or_empty(
            partial(Documents(self._store).get, self.id, name, default, version=version), default
        )

    def documents(self, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, now or at the time when the history had ``version`` events.
        Cost: for each document, the method reads an event and at most 64 differences.
        """
        return or_empty(partial(Documents(self._store).all, self.id, version=version), {})

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the history: see ``Histories.create``. The dictionary may be
        empty. An imported history also has the attributes ``program``, ``cwd``, ``branch``,
        ``model`` and ``title``, if its source contains them. Cost: the method reads two events.
        """
        return {**self._place(), **self.document(ATTRIBUTES, {})}

    def _place(self) -> Mapping[str, str]:
        """Return the attributes that the source of an imported history has: see ``attributes``."""
        from foldlog._reports.figures.source_places import place_of

        return or_empty(partial(place_of, self._store, self.id), {})

    def set_attributes(self, /, **changed: Any) -> dict[str, Any]:
        """Change attributes by name. The value None removes an attribute. Attributes that you do
        not name stay unchanged. Return all attributes. The event of the newest change contains all
        attributes, so redacting this event removes all attributes. Later imports of the
        conversation's source do not change a title that you set.

        Other writers may append during the call. Raises the errors of ``append``. Durability: the
        attributes are on disk when the method returns.
        """
        note_title = None
        if "title" in changed:
            from foldlog._imports.titles import note_chosen_title

            note_title = note_chosen_title
        while True:
            seen = self._seen()
            attributes = {
                **(self.document(ATTRIBUTES, {}, version=seen.version) if seen.version else {}),
                **changed,
            }
            attributes = {name: value for name, value in attributes.items() if value is not None}
            try:
                recorded = self._append_seen([], seen, {ATTRIBUTES: attributes}, also=note_title)
            except VersionConflict:
                continue
            key = self._conversation_key()
            if "title" in changed and not recorded and key is not None:
                from foldlog._imports.titles import note_equal_title

                note_equal_title(self._store, key)
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

    def _close_calls(
        self,
        answers: Callable[[Sequence[Action]], Sequence[Observation]],
        is_chosen: Callable[[Action], bool] = lambda call: True,
    ) -> tuple[Recorded, ...]:
        """Close the open calls that ``is_chosen`` accepts with the observations of ``answers``.
        Raises ``LeaseTaken`` if another worker drives the conversation.
        """
        from foldlog._history.lease import check_free

        fence = self._fence or partial(check_free, self._store.database, self.id)
        work = partial(
            close_open_calls, self._store, self._views, self.id, answers, fence, is_chosen
        )
        return or_empty(work, ())

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
        return self._append_reply(
            reply,
            cost=cost,
            meta=meta,
            timestamp=timestamp,
            request=request,
            view_version=view_version,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )

    def _append_reply(
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
        not_run: str | None = None,
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append a reply as ``append_reply`` does. ``also`` writes further data in its transaction,
        unless the idempotency key was used before. With ``not_run``, the calls of the reply must
        not run: each gets an observation with this text.
        """
        from foldlog.formats.replies import events_of_reply

        if request is not None:
            _check_request(request)
            if request.conversation not in ("", self.id):
                raise InvalidArgument(
                    f"the request was made from a View of {request.conversation!r}, and this"
                    f" history is {self.id!r}; make it from a View of this history"
                )
            if view_version is None:
                view_version = request.version
        converted = events_of_reply(self.id, reply, cost, check_map("meta", meta or {}), timestamp)
        converted = self._set_reply_apart(converted, (), idempotency_key)
        if not_run is not None:
            calls = [event for event in converted if isinstance(event, Action)]
            answers = (
                Observation(tool=call.tool, call_id=call.call_id, content=not_run, is_error=True)
                for call in calls
            )
            converted = (*converted, *answers)
        if view_version is not None:
            version = self.version()
            if check_whole("view_version", view_version, 0) > version:
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
        write = partial(self._write, idempotency_key=idempotency_key, also=also)
        recorded = self._append([*converted], expected_version, write, documents)
        return recorded[: len(converted)]

    def _append_result(
        self,
        call: str | Action,
        content: Any,
        is_error: bool,
        extras: dict[str, Any] | None,
        idempotency_key: str | None,
        *,
        fence: Fence | None = None,
        seen: Seen | None = None,
    ) -> Recorded:
        """Append the observation of an open call. ``call`` is the call, or the id that the model
        gave to it.
        """
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
            call,
            content,
            is_error=is_error,
            extras=extras,
            idempotency_key=idempotency_key,
            fence=fence,
            seen=seen,
        )

    def recorded(self, idempotency_key: str) -> tuple[Recorded, ...]:
        """Return the events that were appended under an idempotency key. The tuple is empty if the
        key was never used. Cost: the method reads the events that it returns.
        """
        return or_empty(lambda: self._store.recorded(self.id, idempotency_key), ())


def or_empty(read: Callable[[], T], empty: T) -> T:
    """Return what ``read`` returns, or ``empty`` before the first event of the history."""
    try:
        return read()
    except ConversationNotFound:
        return empty


def _check_request(request: object) -> None:
    """Raise ``TypeError`` if the argument ``request`` is not a ``ModelRequest``."""
    from foldlog.projections import ModelRequest

    if not isinstance(request, ModelRequest):
        raise TypeError(f"request must be what view.request returned, not {request!r:.60}")


def _not_appended(value: object) -> TypeError:
    """Return the error for a value that is no event."""
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
    from foldlog.formats.replies import from_openai

    if not (events := from_openai(message)):
        raise InvalidEvent("a message has neither a text nor a tool call; nothing was appended")
    return events


def _note_shown_view(events: Sequence[Event], shown_at: int) -> list[Event] | None:
    """Return the events, the first shown one with a note of the View that the model was shown.
    Return None if no event can have the note: an unknown event is stored as its writer wrote it.
    """
    for index, event in enumerate(events):
        if event.shown and not isinstance(event, UnknownEvent):
            noted_event = structs.replace(event, meta={**event.meta, SHOWN: shown_at})
            return [*events[:index], noted_event, *events[index + 1 :]]
    return None


def _note_answered_view(events: Sequence[Event], asked_at: int, version: int | None) -> list[Event]:
    """Return the events, in which each reply notes the View ``asked_at`` that it answers. No note
    is needed if the events are appended at this ``version``. Otherwise, the model was not shown the
    events in between.
    """
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
    """Return what a wrong argument is, for a message: a class, or an object of a type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"
