"""Sessions of Google's Agent Development Kit in foldlog: a session service.

    service = FoldlogSessionService("sqlite:///history.db")
    runner = Runner(agent=agent, app_name="app", session_service=service)

A session is the conversation ``PREFIX/APP/USER/SESSION`` in the format ``google-adk``. The
conversation's document ``state`` has the state of the session. The conversation
``PREFIX/APP/USER/+state`` has the state of a user, and ``PREFIX/APP/+state`` has the state of an
app.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.platform import time as platform_time, uuid as platform_uuid
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types
from pydantic import PrivateAttr

from foldlog import History
from foldlog.adapters._shared import (
    Approval,
    Attributes,
    OpenHistories,
    StoreOrUrl,
    begin_effect,
    cached_values,
    chat_request,
    document,
    from_plain,
    in_thread,
    merge_attributes,
    newest_records,
    quote_id,
    record_approvals,
    records_of,
    shown_records,
    to_its_end,
    to_plain,
    unmark_bytes,
    unquote_id,
)
from foldlog.condensers import NoCondensationAvailable
from foldlog.condensers.reports import annotation, cost_something, reports_of
from foldlog.eventstore import (
    ATTRIBUTES,
    NOTHING_SEEN,
    Action,
    CondensationAction,
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    Documents,
    Event,
    Seen,
    VersionConflict,
    summary_id,
)
from foldlog.eventstore.log.appending import Appending
from foldlog.projections import View, contains
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import Fields, Recent, companion, dicts_in, parse, within

_Names = tuple[str, str, str]
"""The app, the user and the session id of a session."""

_FORMAT = "google-adk"
_STATE = companion("", "state")
"""The last part of the id of a conversation with the state of a user or an app."""
_CONFIRMATION = "adk_request_confirmation"
"""The SDK's name for the call that asks a user to confirm another call."""
_TIMES = ("start_timestamp", "end_timestamp")
"""The fields of a compaction with the times of its first and last message."""
_CALLS_IN_MEMORY = 1_000
"""The maximum number of model calls whose requests stay in memory until their replies."""


class _Stored(NamedTuple):
    """A session as it was read at ``seen``. ``about`` contains ``created``, the time when the
    session began. If some event is older than the event before it, ``about`` also contains
    ``unordered``.
    """

    history: History
    seen: Seen
    state: Fields
    about: Fields


class FoldlogSessionService(OpenHistories, BaseSessionService):  # type: ignore[misc]
    """Stores sessions of the Agent Development Kit.

        uri         the URL of a store, or open histories, sync or async
        condense    whether a compaction that is due is made before a model call
        attributes  attributes of each new conversation besides ``runtime``, ``app`` and ``user``,
                    such as ``{"tenant": "acme"}``

    If ``uri`` is a URL, ``close`` or ``async with`` closes the store. Many tasks, processes and
    services may use the same store. ``delete_session`` erases a session, and a new session may use
    its id. ``maintenance.vacuum`` removes the erased bytes from a SQLite file. In
    ``services.yaml``, write ``foldlog:///history.db`` for a SQLite file, or ``foldlog+`` and the
    URL of any store.
    """

    def __init__(
        self,
        uri: StoreOrUrl,
        *,
        condense: bool = False,
        prefix: str = "adk",
        agents_dir: str | None = None,
        attributes: Attributes = None,
    ) -> None:
        if isinstance(uri, str) and uri.startswith("foldlog:"):
            uri = f"sqlite:{uri.removeprefix('foldlog:')}"
        elif isinstance(uri, str):
            uri = uri.removeprefix("foldlog+")
        super().__init__(uri, attributes)
        self._condense = condense
        self._prefix = prefix
        self._requests = Recent[tuple[str, str, str], tuple[int, SentBeside]](_CALLS_IN_MEMORY)
        """Maps a conversation, an invocation and an agent to what its model was sent last: the
        version of the View, and what was sent beside it.
        """
        self._appending = WeakValueDictionary[int, Lock]()
        """Maps the Python id of a session to the lock of the task that appends to it."""

    def conversation(self, app_name: str, *names: str) -> str:
        """Return the id of a conversation.

        For a session, pass the app, the user and the session id. For a user's state, pass the app
        and the user. For an app's state, pass only the app.
        """
        name = self._below(app_name, *names).removesuffix("/")
        is_session = len(names) == 2
        return name if is_session else name + _STATE

    def _below(self, *names: str) -> str:
        """Return the beginning of the ids of all conversations of an app or a user."""
        return "/".join((self._prefix, *map(quote_id, names), ""))

    @to_its_end
    def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: Fields | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session. Raises ``AlreadyExistsError`` if the session exists."""
        names = self._session_names(app_name, user_id, session_id or "")
        if not names[2]:
            names = (app_name, user_id, platform_uuid.new_uuid())
        return self._session(
            names, self._begin(platform_time.get_time(), [], names, state or {}), []
        )

    @in_thread
    def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with the events that ``config`` selects, by default all events. Only
        these events are read.
        """
        names = self._session_names(app_name, user_id, session_id)
        stored = self._stored(names)
        if stored is not None:
            with suppress(ConversationErased):  # The session was deleted after it was found.
                events = [*map(_event_of, self._records(stored, config))]
                return self._session(names, stored, events)
        return None

    @in_thread
    def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app or a user, the most recently updated last."""
        start = self._below(app_name)
        below = start if user_id is None else self._below(app_name, user_id)
        app = _with_prefix(State.APP_PREFIX, self._shared_state(app_name))
        users: dict[str, Fields] = {}
        sessions: list[tuple[_Names, Fields]] = []
        listing = partial(self._list_entry, app_name, len(start))
        for conversation, values in cached_values(self._sync, _FORMAT, below, listing):
            user, *session = map(
                unquote_id, conversation[len(start) :].removesuffix(_STATE).split("/")
            )
            if session:
                sessions.append(((app_name, user, session[0]), values))
            else:
                users[user] = _with_prefix(State.USER_PREFIX, _values(values["state"]))
        for user in {names[1] for names, _ in sessions} - users.keys():
            users[user] = _with_prefix(State.USER_PREFIX, self._shared_state(app_name, user))
        ordered = [
            _session(names, values["state"], values["updated"], {**app, **users[names[1]]}, [])
            for names, values in sessions
        ]
        ordered.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=ordered)

    @to_its_end
    def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session, but not the states of its user and its app."""
        conversation = self.conversation(*self._session_names(app_name, user_id, session_id))
        with suppress(ConversationNotFound, ConversationErased):
            self._sync.erase(conversation, reason="the session was deleted", detach_forks=True)

    @in_thread
    def get_user_state(self, *, app_name: str, user_id: str) -> Fields:
        """Return the state of a user."""
        return self._shared_state(app_name, user_id)

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        """Append an event with its changes of state, or nothing if an error is raised. The event is
        on disk when the method returns. A second append of the same event changes nothing.

        Several tasks may append to the same ``session``. Raises ``SessionNotFoundError`` if the
        store does not have the session. Raises ``StaleSessionError`` if other code has appended to
        the stored session. With ``condense``, a required condensation may be impossible; then the
        event is stored, and ``NoCondensationAvailable`` is raised. If an approval cannot be
        recorded, the event is stored too, and a second append records the approval.
        """
        # In a live run, a tool may append its result while the runner appends.
        async with self._appending.setdefault(id(session), Lock()):
            return await self._append_event(session, event)

    async def _append_event(
        self, session: Session, event: AdkEvent, seen: Seen | None = None
    ) -> AdkEvent:
        """Append an event, and then condense if the next step calls a model. With ``seen``, raise
        ``VersionConflict`` if an event was redacted since.
        """
        if event.partial:
            return event
        delta = event.actions.state_delta if event.actions else {}
        session.state.update(
            {key: value for key, value in delta.items() if key.startswith(State.TEMP_PREFIX)}
        )
        names = session.app_name, session.user_id, session.id
        if (
            not await self._append(names, session.last_update_time, event, seen)
            and event in session.events
        ):
            return event
        session.last_update_time = event.timestamp
        appended = await super().append_event(session, event)
        # The next step calls a model.
        if self._condense and (event.author == "user" or event.get_function_responses()):
            prepared, seen = await self._make_compaction(names)
            if isinstance(prepared, EventActions):
                about = {"author": "user", "invocation_id": AdkEvent.new_id(), "actions": prepared}
                compacted = AdkEvent(**about, timestamp=platform_time.get_time())
                # If an event was redacted or appended in between, the next step makes another
                # compaction.
                with suppress(VersionConflict, StaleSessionError):
                    await self._append_event(session, compacted, seen)
            else:
                waiting = {
                    call
                    for past in session.events
                    for call in (
                        *(past.long_running_tool_ids or ()),
                        *past.actions.requested_tool_confirmations,
                    )
                }
                session.events[:] = [_sent(past, prepared, waiting) for past in session.events]
        return appended

    @in_thread
    def before_model_callback(self, callback_context: Any, llm_request: Any) -> None:
        """Note the tools and the instructions of a model call, which are recorded with its reply.
        Use the method as ``LlmAgent(before_model_callback=…)``.

        Tools are noted if all of them are functions.
        """
        session = callback_context.session
        conversation = self.conversation(session.app_name, session.user_id, session.id)
        caller = (conversation, callback_context.invocation_id, callback_context.agent_name)
        self._requests[caller] = (
            self._sync[conversation].version(),
            _sent_beside(llm_request.config),
        )

    async def before_tool_callback(self, tool: Any, args: Fields, tool_context: Any) -> None:
        """Let each tool that ``foldlog.effect`` marks run at most once for each call. Use the
        method as ``LlmAgent(before_tool_callback=…)``.
        """
        session = tool_context.session
        conversation = self.conversation(session.app_name, session.user_id, session.id)
        begin_effect(self, conversation, tool_context.function_call_id, tool.name, args)

    async def copy_from(self, other: BaseSessionService, *, app_name: str) -> int:
        """Copy the sessions of an app from another service, with the states of the app and its
        users. Return the number of new sessions.
        """
        copied = 0
        for listed in (await other.list_sessions(app_name=app_name)).sessions:
            names = {"app_name": app_name, "user_id": listed.user_id, "session_id": listed.id}
            if await self.get_session(**names) is not None:
                session = None
            else:
                session = await other.get_session(**names)
            if session is not None:
                copy = partial(
                    self._begin, session.last_update_time, session.events, tuple(names.values())
                )
                with suppress(AlreadyExistsError):  # another copy began the session meanwhile
                    await self.histories.pool.run(partial(copy, session.state), finish=True)
                    copied += 1
        return copied

    # -- reading, in threads -----------------------------------------------------------------------

    def _stored(self, names: _Names) -> _Stored | None:
        """Return a session at its newest version, or None if the session does not exist or is
        incomplete.
        """
        history = self._sync[self.conversation(*names)]
        try:
            seen = history._seen()
            if seen.version:
                about = history.document("session", version=seen.version)
            else:
                about = None
            if about is None:
                return None
            about = document(history, "session", {"created": 0}, seen.version)
            state = document(history, "state", {}, seen.version)
        except ConversationErased:
            return None
        return _Stored(history, seen, state, about)

    def _session_names(self, app_name: str, user_id: str, session_id: str) -> _Names:
        """Return the app, the user and the session id. Blanks around the session id are removed,
        unless the store has a session whose id contains these blanks.
        """
        names = (app_name, user_id, session_id)
        stripped = (app_name, user_id, session_id.strip())
        if names == stripped or self._stored(names) is not None:
            return names
        return stripped

    def _updated_at(self, stored: _Stored) -> float:
        """Return the time of the newest event of a session, or else when the session began."""
        newest = next(newest_records(stored.history, stored.seen.version, _FORMAT), None)
        return float(stored.about["created"] if newest is None else newest["timestamp"])

    def _records(self, stored: _Stored, config: GetSessionConfig | None) -> list[Fields]:
        """Return the records of the events that ``config`` selects, the oldest first."""
        count = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        if stored.about.get("unordered") or (count is None and not after):
            records = records_of(stored.history, _FORMAT, 0, stored.seen.version)
            oldest_first = sorted(records, key=lambda record: float(record["timestamp"]))
            newest = reversed(oldest_first)
        else:
            newest = newest_records(stored.history, stored.seen.version, _FORMAT)
        newest_first: list[Fields] = []
        for record in islice(newest, count):
            if after and record["timestamp"] < after:
                break
            newest_first.append(record)
        return newest_first[::-1]

    def _session(self, names: _Names, stored: _Stored, events: list[Any]) -> Session:
        app = self._shared_state(names[0])
        user = self._shared_state(*names[:2])
        shared = {**_with_prefix(State.APP_PREFIX, app), **_with_prefix(State.USER_PREFIX, user)}
        return _session(names, stored.state, self._updated_at(stored), shared, events)

    def _shared_state(self, app_name: str, *user: str) -> Fields:
        """Return the state of a user, or of an app if no user is passed."""
        return _values(self._load_shared(self.conversation(app_name, *user))[1])

    def _load_shared(self, conversation: str) -> tuple[Seen, Fields, History]:
        """Return the state of a user or an app as JSON, with its history, and what was read of it.

        If the history was erased, an append begins it again.
        """
        history = self._sync[conversation]
        history._binding.replaces_erased = True
        seen = NOTHING_SEEN
        state = Fields()
        with suppress(ConversationErased):
            seen = history._seen()
            state = document(history, "state", {}, seen.version) if seen.version else {}
        return seen, state, history

    def _list_entry(
        self, app_name: str, start: int, row: ConversationRow, before: object
    ) -> Fields | None:
        """Return the state of a session and the time of its last update, or the state of a user."""
        user, *session = map(unquote_id, row.id[start:].split("/"))
        if row.id.endswith(_STATE):
            return {"state": self._load_shared(row.id)[1]}
        if len(session) == 1:
            stored = self._stored((app_name, user, session[0]))
        else:
            stored = None
        if stored is not None:
            with suppress(ConversationErased):  # The session was deleted after it was found.
                return {"state": stored.state, "updated": self._updated_at(stored)}
        return None

    @in_thread
    def _make_compaction(self, names: _Names) -> tuple[EventActions | Fields, Seen | None]:
        """Return the compaction that the condenser makes now, and what it was made from. The
        summary may quote events, so the append must fail if an event was redacted in between.

        If no compaction is due, return the changes that masks make: a map from the id of a record
        to its masked form. The map has None for a record that is hidden.
        """
        history = self._sync[self.conversation(*names)]
        handler = self._sync._handler.reading(history._store, history._views)
        # The reports belong to the View. If another writer appends before them, the View is old.
        while True:
            view = history.view()
            result, reports = handler.preview(view)
            if not isinstance(result, View):
                break
            remembered = handler.remembered(history.id)
            if (
                handler._append_reports(history.id, history.append, result, reports, remembered)
                is not None
            ):
                break
        if isinstance(result, View):
            if result is view:
                return {}, None
            log = {event.id: event for event in view}
            sent = dict(_records_of(shown_records(result, _FORMAT, history, log)))
            stored = _records_of(shown_records(view, _FORMAT, history))
            masked = {
                record_id: sent.get(record_id)
                for record_id, record in stored
                if sent.get(record_id) != record
            }
            return masked, None
        if paid := [report for report in reports_of(result.action) if cost_something(report)]:
            history.append(annotation(paid, handler._condenser.type))
        compaction = _as_compaction(history, view, result.action)
        return EventActions(compaction=compaction), view.seen

    # -- writing, in threads -----------------------------------------------------------------------

    def _begin(
        self, created: float, events: list[AdkEvent], names: _Names, state: Fields
    ) -> _Stored:
        """Begin a session with events and a state. ``created`` is the time when it began. Raises
        ``AlreadyExistsError`` if it exists.
        """
        own, shared = self._split_by_scope(names, state)
        about: Fields = {"created": created}
        ids = {"runtime": _FORMAT, "app": names[0], "user": names[1]}
        new = {**self._attributes, **ids}
        records = [_record_of(event) for event in events]
        while self._stored(names) is None:
            history = self._sync[self.conversation(*names)]
            with suppress(VersionConflict, ConversationErased):
                try:
                    seen = history._seen()
                except ConversationErased:
                    history = self._sync.create(history.id, new, replace_erased=True)
                    seen = history._seen().at(1)
                attributes = merge_attributes(history, self._attributes, ids)
                documents = {ATTRIBUTES: attributes, "session": about, "state": own}
                self._write(history, seen, records, documents, shared)
                return _Stored(history, history._seen(), own, about)
        raise AlreadyExistsError(f"Session with id {names[2]} already exists.")

    @to_its_end
    def _append(
        self,
        names: _Names,
        last_updated: float,
        event: AdkEvent,
        seen: Seen | None = None,
    ) -> bool:
        """Append an event with its changes of state. Return False if the session has it already.
        ``last_updated`` is the time of the newest event that the caller knows.
        """
        own, shared = self._split_by_scope(
            names, event.actions.state_delta if event.actions else {}
        )
        record = _record_of(event)
        caller = (self.conversation(*names), event.invocation_id, event.author)
        request = self._requests.pop(caller, None)
        while True:
            stored = self._stored(names)
            if stored is None:
                raise SessionNotFoundError(f"Session {names[2]} not found.")
            if seen is not None and not seen.is_unredacted_in(stored.seen):
                raise VersionConflict(stored.history.id, stored.seen.version, stored.seen.version)
            try:
                updated = self._updated_at(stored)
                is_new = event.timestamp > updated or not self._has(stored, event, record)
                if is_new:
                    if updated != last_updated:  # another machine's clock may be late
                        raise StaleSessionError(
                            f"session {names[2]!r} was updated at {updated}, but this object was"
                            f" read at {last_updated}; get the session again"
                        )
                    documents = _changed_documents(stored, own, event.timestamp < updated)
                    if request is not None:
                        stored.history._asked_at, stored.history._sent_beside = request
                    self._write(stored.history, stored.seen, [record], documents, shared)
            except (VersionConflict, ConversationErased):
                continue  # another writer appended, or deleted the session
            with suppress(ConversationErased):  # the session was deleted after the event was stored
                record_approvals(stored.history, _approvals_in(event, stored.history, names[1]))
            return is_new

    def _has(self, stored: _Stored, event: AdkEvent, record: Fields) -> bool:
        """Return whether a session has an event. Only records with the time of the event or a later
        time are read.
        """
        since = GetSessionConfig(after_timestamp=event.timestamp)
        return _event_of(record) in map(_event_of, self._records(stored, since))

    def _write(
        self,
        history: History,
        seen: Seen,
        records: list[Fields],
        documents: Fields,
        shared: Mapping[str, Fields],
    ) -> None:
        """Append records and documents to a session, in one transaction.

        The transaction also changes the states in ``shared``, which maps the conversation of an app
        or a user to the changed values. Raises ``VersionConflict`` and ``ConversationErased``.
        """
        together = list[Appending]()
        for conversation, change in shared.items():
            of_other, state, other = self._load_shared(conversation)
            values: Fields = {"state": {**state, **change}}
            if self._attributes and not of_other.version:
                values[ATTRIBUTES] = self._attributes
            work = Documents(other._store).prepare(other.id, values, of_other)
            if work is not None:
                together.append(work)
        recorder = history._recorder(_FORMAT, seen.version)
        history._append_recorded(
            recorder.decode_all(records),
            recorder,
            seen,
            documents=documents,
            together=together,
        )

    def _split_by_scope(self, names: _Names, state: Fields) -> tuple[Fields, dict[str, Fields]]:
        """Return the values of the session, and a map from the conversations of the app and the
        user to their values. Temporary values are left out.
        """
        scopes: dict[str, Fields] = {
            State.APP_PREFIX: {},
            State.USER_PREFIX: {},
            State.TEMP_PREFIX: {},
            "": {},
        }
        for key, value in state.items():
            scope = next(prefix for prefix in scopes if key.startswith(prefix))
            scopes[scope][key.removeprefix(scope)] = to_plain(value, unknown=True)
        app = self.conversation(names[0])
        user = self.conversation(*names[:2])
        shared = {app: scopes[State.APP_PREFIX], user: scopes[State.USER_PREFIX]}
        return scopes[""], {
            conversation: change for conversation, change in shared.items() if change
        }


def _changed_documents(stored: _Stored, own: Fields, is_late: bool) -> Fields:
    """Return the documents that an event changes. ``own`` are the changed values of the session's
    state, and ``is_late`` says that the event is older than the event before it.
    """
    documents: Fields = {}
    if is_late and not stored.about.get("unordered"):
        documents["session"] = {**stored.about, "unordered": True}
    if own:
        documents["state"] = {**stored.state, **own}
    return documents


def _sent_beside(config: types.GenerateContentConfig) -> SentBeside:
    """Return the tools and the instructions of a model call. If one of the tools is no function,
    no tool is returned.
    """
    declarations = [tool.function_declarations for tool in config.tools or ()]
    # The schemas of the other tools are the provider's.
    functions = chain.from_iterable(declarations) if all(declarations) else ()
    tools = [
        (
            function.name,
            function.description or "",
            function.parameters_json_schema or to_plain(function.parameters),
        )
        for function in functions
    ]
    return chat_request(tools, config.system_instruction)


def _approvals_in(event: AdkEvent, history: History, user: str) -> Iterator[Approval]:
    """Yield the confirmations that an event asks of a user, or that a user gives."""
    for call in event.get_function_calls():
        if call.name == _CONFIRMATION:
            asked = to_plain(call.args)
            original = within(asked, "originalFunctionCall")
            shown = {
                "tool": within(original, "name"),
                "arguments": within(original, "args"),
                "hint": within(asked, "toolConfirmation", "hint"),
            }
            yield Approval.asked(within(original, "id"), shown, to=user)
    answers = {
        answer.id: answer.response
        for answer in event.get_function_responses()
        if answer.name == _CONFIRMATION and answer.id is not None
    }
    if answers:
        for past in history.events(reverse=True):
            if isinstance(past, Action) and past.call_id in answers:
                answer = answers.pop(past.call_id)
                # A web client wraps the answer in a text.
                if isinstance(text := within(answer, "response"), str):
                    with suppress(ValueError):
                        answer = parse(text.encode())
                call_id = within(past.arguments, "originalFunctionCall", "id")
                approved = within(answer, "confirmed") is True
                yield Approval.decided(call_id, approved, by=user)
            if not answers:
                return


def _as_compaction(history: History, view: View, action: CondensationAction) -> EventCompaction:
    """Return a condensation as a compaction of the SDK, which forgets all messages between two
    times.

    If the forgotten messages are not consecutive, only the first group of consecutive messages is
    compacted. If a message has the same time as a neighbour that is not forgotten, the message is
    not compacted. Raises ``NoCondensationAvailable`` if no message can be compacted.
    """
    intervals, summaries = action.forgotten
    earlier = {
        summary_id(condensation.id): condensation.metadata for condensation in view.condensations
    }
    # A summary has two times, the first and the last of its messages; an event has one.
    times: list[tuple[float, float]] = []
    are_forgotten: list[bool] = []
    for events, records in shown_records(view, _FORMAT, history):
        span = earlier.get(events[0].id)
        if not span:
            time = records[0].get("timestamp", 0) if records else 0
            span = dict.fromkeys(_TIMES, time)
        first, last = (float(span.get(name, 0)) for name in _TIMES)
        times.append((first, last))
        are_forgotten.append(
            all(event.id in summaries or contains(intervals, event.id) for event in events)
        )
    start = are_forgotten.index(True) if any(are_forgotten) else 0
    stop = (
        are_forgotten.index(False, start) if False in are_forgotten[start:] else len(are_forgotten)
    )
    while start < stop < len(times) and times[stop - 1][1] >= times[stop][0]:
        stop -= 1
    while 0 < start < stop and times[start][0] <= times[start - 1][1]:
        start += 1
    if start == stop or times != sorted(times):
        raise NoCondensationAvailable(
            f"the condenser would forget {sum(are_forgotten)} of {len(are_forgotten)} messages, but"
            " a compaction of the SDK covers all messages of a time span, and no time span has only"
            " these; choose a condenser that forgets consecutive messages, such as 'digest'"
        )
    content = types.Content(role="model", parts=[types.Part(text=action.summary or "")])
    return EventCompaction(
        start_timestamp=times[start][0], end_timestamp=times[stop - 1][1], compacted_content=content
    )


def _records_of(
    shown: Iterable[tuple[Sequence[Event], Sequence[Any]]],
) -> Iterator[tuple[str, Fields]]:
    """Return the records of shown events with their ids, without those of summaries."""
    records = (record for events, records in shown if events[0].id >= 0 for record in records)
    return ((record["id"], record) for record in records if "id" in record)


class _Sent(AdkEvent):  # type: ignore[misc] # the SDK is not installed where types are checked
    """An event in the form in which it is sent to a model. ``_whole`` is the stored event."""

    _whole: AdkEvent = PrivateAttr()


def _sent(event: AdkEvent, changed: Mapping[str, Fields | None], waiting: set[str]) -> AdkEvent:
    """Return an event in the form in which it is sent to a model. ``changed`` is the map that
    ``_make_compaction`` returns. An event is not changed if ``waiting`` has the id of one of its
    calls or results, because the SDK still waits for the result or confirmation of this call.
    """
    whole = event._whole if isinstance(event, _Sent) else event
    calls = (*whole.get_function_calls(), *whole.get_function_responses())
    if whole.id not in changed or any(call.id in waiting for call in calls):
        return whole
    record = changed[whole.id]
    sent = _Sent.model_construct(
        **{**dict(whole), "content": None if record is None else _event_of(record).content}
    )
    sent._whole = whole
    return sent


def _session(
    names: _Names, state: Fields, updated: float, shared: Fields, events: list[Any]
) -> Session:
    """Return a session of the SDK. ``shared`` are the states of its user and its app."""
    about = {"app_name": names[0], "user_id": names[1], "id": names[2], "last_update_time": updated}
    return Session(state={**_values(state), **shared}, events=events, **about)


def _with_prefix(prefix: str, state: Fields) -> Fields:
    return {prefix + key: value for key, value in state.items()}


def _values(plain: Fields) -> Fields:
    return {key: from_plain(value) for key, value in plain.items()}


def _record_of(event: AdkEvent) -> Fields:
    """Return the record of an event, without its temporary state."""
    dumped = event.model_dump(mode="python", exclude_none=True)
    # Remove temporary values before ``to_plain``, because the number of keys in a map decides how
    # ``to_plain`` marks the map.
    delta = dumped.get("actions", {}).get("state_delta", {})
    for key in [key for key in delta if key.startswith(State.TEMP_PREFIX)]:
        del delta[key]
    record: Fields = to_plain(dumped, unknown=True)
    for content in (
        record.get("content"),
        within(record, "actions", "compaction", "compacted_content"),
    ):
        for part in dicts_in(content, "parts"):
            unmark_bytes(part, "thought_signature")
            for holder in (part, *dicts_in(part, "function_response", "parts")):
                unmark_bytes(holder.get("inline_data"), "data")
    return record


def _event_of(record: Fields) -> AdkEvent:
    return AdkEvent.model_validate(from_plain(record))
