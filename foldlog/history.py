"""One history of a store, as the author of a runtime uses it. No rule of the domain is here."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from eventstore import (
    ANY_VERSION,
    Action,
    AnyVersion,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Content,
    ConversationNotFound,
    Event,
    EventStoreError,
    InvalidArgument,
    InvalidEvent,
    Message,
    Recorded,
    Retraction,
    VersionConflict,
)
from eventstore.events import ATTRIBUTES
from eventstore.values.arguments import whole
from eventstore.writing.generation import Generation
from foldlog.older_summaries import warn_of_older_summaries
from projections import Difference, NoSuchEvent, NoSuchVersion, View, Why, append_tool_result, interrupt
from projections.notebook import Table, rows_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from condensers import Condensation
    from eventstore.maintenance.redact import RedactionReceipt
    from foldlog.histories import Histories
    from foldlog.reports.stats import Stats
    from projections import Lifetimes
    from projections.messages import Dialect

__all__ = ["ExpectedVersion", "History", "described"]

ExpectedVersion = int | Literal[AnyVersion.ANY_VERSION]


class _How(TypedDict):
    generation: Generation
    expected_version: ExpectedVersion
    idempotency_key: str | None


class History:
    """One conversation: append to it, and see what the model is shown. It holds no state of its own.

    A history that has no events yet is empty, in every method: its View, its events and its tail are empty, and it has
    no event and no version but 0. Its first append makes the conversation. Every method raises ``ConversationErased``
    where the conversation was erased.
    """

    def __init__(self, histories: Histories, conversation: str) -> None:
        self._histories, self._store, self._views = histories, histories.store, histories.views
        self.id = conversation
        self._generation = Generation()

    @property
    def version(self) -> int:
        """How many events it has; 0 before the first."""
        self._meet()
        return self._store.version(self.id)

    def __len__(self) -> int:
        """Return ``version``, the number of its events, forgotten ones too."""
        return self.version

    @property
    def view(self) -> View:
        """What the model is shown now; empty before the first event. Cost: what is new since it was asked for last.

        A long View that is not in memory is read when it is looked at, so that ``history.view.tail(50)`` costs 50
        events. Close the store through ``Histories``: it reads the Views that are held and were not looked at.
        """
        try:
            self._meet()
            return self._views.latest(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def at(self, version: int) -> View:
        """Return what the model was shown when the history had ``version`` events. Cost: the size of that View.

        Raises ``NoSuchVersion`` for a version that the history never had.
        """
        if whole("version", version) == 0 and self.version >= 0:
            return View.from_events(())
        try:
            return self._views.at(self.id, version=version)
        except ConversationNotFound:
            raise NoSuchVersion(self.id, version, 0) from None

    def events(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[Event]:
        """Yield all events with ``start <= id < stop``, forgotten ones too, in order; with ``reverse`` the newest
        first.
        """
        try:
            return self._store.events(self.id, start, stop, reverse=reverse)
        except ConversationNotFound:
            return iter(())

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events of the log, forgotten ones too, in order; all, where there are fewer.

        ``history.view.tail(count)`` are the last events that the model is shown. Raises ``InvalidArgument`` for a
        negative number. Cost: these events.
        """
        try:
            return self._store.query(self.id, lambda read: read.tail(count))
        except ConversationNotFound:
            return ()

    def append(
        self,
        events: Event | Condensation | Iterable[Event],
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
        documents: Mapping[str, Any] | None = None,
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one event, or several, all or none. Return them as recorded, with their ids. A ``Condensation``, as a
        condenser returns it, stands for its action.

        ``expected_version`` is the version that the decision was made on, 0 for a new history, or ``ANY_VERSION``. The
        same ``idempotency_key`` and events again: nothing is appended, and what was recorded then is returned.
        ``documents`` are new values of documents by name, JSON or ``DELETED``, in the same transaction as the events.
        There may be no events then: see ``eventstore.Documents.append``. ``dedupe="origin"`` leaves out the imported
        events whose source id the history has already: see ``eventstore.Store.append``.

        Raises ``VersionConflict`` (read again, decide again), ``InvalidEvent`` (the message says which rule is broken),
        ``IdempotencyConflict`` (the key stands for other events), ``ConversationErased``, ``StoreUnavailable``;
        ``TypeError`` where an argument is not what it must be. Durability: on disk when it returns. Cost: the events
        appended, whatever the length of the history.
        """
        appended = _appendable(events)
        how: _How = {
            "generation": self._generation,
            "expected_version": expected_version,
            "idempotency_key": idempotency_key,
        }
        if documents is None:
            recorded = self._store.append(self.id, appended, dedupe=dedupe, **how)
        else:
            recorded = self._histories._documents.append(self.id, appended, documents, dedupe=dedupe, **how)
        for one in recorded:
            if isinstance(one.event, CondensationAction):
                warn_of_older_summaries(self.id, recorded, self.view)
                break
        return recorded

    def append_records(
        self,
        records: Iterable[Any],
        *,
        format: str,
        expected_version: ExpectedVersion = ANY_VERSION,
        dedupe: Literal["origin"] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append what ``records`` of a format say, all or none, as an import would. Return the events as recorded.

        ``foldlog.formats.encode(history.events(), format)`` gives the records back. With ``dedupe="origin"`` records
        whose source id the history has already are left out; those without an id are appended. Other writers, also
        those of other processes, may append at the same time.

        Raises ``UnknownFormat``; ``NotLive`` for a format whose histories can only be imported whole; ``InvalidEvent``
        where a record is not one of the format; and what ``append`` raises. Durability: on disk when it returns. Cost:
        the records, and at the first call up to 256 events of the end; ``docs/IMPORTING.md`` says which records make a
        format read more.
        """
        return self._histories._recording.append(self, records, format, expected_version, dedupe)

    def document(self, name: str, default: Any = None, *, version: int | None = None) -> Any:
        """Return a document, now or when the history had ``version`` events; ``default`` where there is none.

        Raises what ``eventstore.Documents.get`` raises but for ``ConversationNotFound``. Cost: one event and at most 64
        differences.
        """
        try:
            return self._histories._documents.get(self.id, name, default, version=version)
        except ConversationNotFound:
            return default

    def documents(self, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, now or when the history had ``version`` events. Cost: as ``document``, each."""
        try:
            return self._histories._documents.all(self.id, version=version)
        except ConversationNotFound:
            return {}

    @property
    def attributes(self) -> dict[str, Any]:
        """What is said about the history: see ``Histories.create``; empty where nothing is said. Cost: two events."""
        attributes: dict[str, Any] = self.document(ATTRIBUTES, {})
        return attributes

    def set_attributes(self, /, **changed: Any) -> dict[str, Any]:
        """Change attributes by name; None removes one. The others stay. Return all of them.

        Others may append at the same time. Raises what ``append`` raises. Durability: on disk when it returns.
        """
        while True:
            version = self.version
            attributes = {**(self.document(ATTRIBUTES, {}, version=version) if version else {}), **changed}
            attributes = {name: value for name, value in attributes.items() if value is not None}
            try:
                self.append((), expected_version=version, documents={ATTRIBUTES: attributes})
            except VersionConflict:
                continue
            return attributes

    def _meet(self) -> int | None:
        """Note which conversation has the id now, if none was met yet: see ``Histories.create``. Return its key, None
        before the first append.
        """
        if self._generation.key is None:
            with contextlib.suppress(ConversationNotFound):
                self._generation.key = self._store.query(self.id, lambda read: read.key)
        return self._generation.key

    @property
    def open_calls(self) -> tuple[Action, ...]:
        """The actions that wait for their observation, in order: see ``View.open_calls``. After a crash these are the
        calls whose outcome is unknown; ``docs/RESUMING.md`` says what to do. Cost: that of ``view``.
        """
        return self.view.open_calls

    def interrupt(self, reason: str = "") -> tuple[Recorded, ...]:
        """Append an observation "interrupted: …" with the reason for each open call, all or none. Returns them, in the
        order of the calls; empty where no call is open.

        Call it when no program works on these calls any more: a result that comes later answers nothing. Others may
        append at the same time. Raises what ``append`` raises. Durability: on disk when it returns. Cost: that of
        ``view``, and the open calls.
        """
        try:
            return interrupt(self._store, self._views, self.id, reason, generation=self._generation)
        except ConversationNotFound:
            return ()

    def append_reply(
        self, reply: Any, *, expected_version: ExpectedVersion = ANY_VERSION, idempotency_key: str | None = None
    ) -> tuple[Recorded, ...]:
        """Append what a model answered: a chat completion, a response of OpenAI, an Anthropic message, or one of their
        messages. Returns the events as recorded: the ``Action`` of each tool call, or the agent's ``Message``.

        See ``foldlog.from_openai`` for what becomes of it. Raises ``InvalidEvent`` where the reply neither says nor
        calls anything, ``InvalidArgument`` where it is something else, and what ``append`` raises; then nothing is
        appended.
        """
        from foldlog.replies import from_openai

        events = from_openai(reply)
        if not any(isinstance(event, Message | Action | CondensationRequest) for event in events):
            raise InvalidEvent(
                f"conversation {self.id!r}: the reply has neither a text nor a tool call; nothing was appended; look "
                f"at its finish reason, and ask the model again"
            )
        return self.append(events, expected_version=expected_version, idempotency_key=idempotency_key)

    def append_tool_result(
        self,
        call_id: str,
        content: Content,
        is_error: bool = False,
        *,
        extras: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Recorded:
        """Append the observation of the open call with this id; of several, that of the newest one.

        ``content`` is a text, or parts in the shape of OpenAI's chat; ``extras`` are kept and not shown to the model.
        The same ``idempotency_key`` and result again: nothing is appended, and what was recorded then is returned.

        Raises ``InvalidEvent`` where no action opened a call with this id, or it has its result already (``append``
        takes such an observation, as imports do), and what ``append`` raises. Durability: on disk when it returns.
        Cost: that of ``view``, and the open calls.
        """
        return append_tool_result(
            self._store,
            lambda: self.view,
            self.id,
            call_id,
            content,
            is_error=is_error,
            extras=extras,
            idempotency_key=idempotency_key,
            generation=self._generation,
        )

    def messages(self, dialect: Dialect | None = None) -> list[dict[str, Any]]:
        """Return the messages of the present View, as ``view.to_messages()`` does. It condenses nothing: in an agent's
        loop, use ``prepare().to_messages()``.
        """
        return self.view.to_messages(dialect)

    def prepare(self) -> View:
        """Take steps until a View can be sent, and return it: condensations that are due are made and appended.

        Raises what ``step`` raises, ``NoCondensationAvailable`` above all, where one is required and impossible. Cost:
        the View, and the condenser's work, which may be a call of a model.
        """
        while not isinstance(prepared := self.step(), View):
            pass
        return prepared

    def step(self) -> View | Condensation:
        """Prepare the call of the agent's model: return the View to go on with, or a condensation that was due and has
        been appended; then step again.

        Any number of threads may step while others append: see ``condensers.CondenseHandler.handle`` for that, and for
        what it raises; ``NoCondensationAvailable`` above all, where one is required and impossible. Cost: the View, and
        the condenser's work, which may be a call of a model.
        """
        try:
            self._meet()
            return self._histories.handler.handle(self.id, self._generation)
        except ConversationNotFound:
            return View.from_events(())

    def request_condensation(self, reason: str = "") -> Recorded:
        """Ask for a condensation: the View's ``unhandled_condensation_request`` is set until one comes."""
        (recorded,) = self.append(CondensationRequest(reason=reason))
        return recorded

    def condense(self, reason: str = "") -> View | Condensation:
        """Ask for a condensation, and take the step that answers.

        Raises ``InvalidCondenser``, a ``ValueError``, where the condenser does not handle requests, and
        ``NoCondensationAvailable`` where the history is empty: nothing is appended then. Raises what ``step`` raises.
        """
        self._histories.handler.check_handles_requests()
        if self.version == 0:
            from condensers import NoCondensationAvailable

            raise NoCondensationAvailable(f"conversation {self.id!r} has no events, so there is nothing to condense")
        self.request_condensation(reason)
        return self.step()

    def condensed_history(self) -> View | Condensation:
        """``step`` as the reference has it: the condensation is not appended, its action is for the caller to append.

        Raises ``NoCondensationAvailable`` where one is required and impossible. What there is to report without a
        condensation is appended as an ``Annotation``.
        """
        from condensers.models.estimate import counting

        return self._histories.condenser.condensed_history(self, counting(self._histories.agent_llm))

    def retract(self, version: int, reason: str = "", *, expected_version: ExpectedVersion = ANY_VERSION) -> Recorded:
        """Take back all events since ``version``: the View is again what it was then. The log keeps them.

        ``history.retract(recorded.id)`` reverses a retraction. A condensation that is asked for stays asked for. Raises
        ``InvalidEvent`` where there are no events since ``version``, and what ``append`` raises. Durability: on disk
        when it returns. Cost: the same for any length of the history; for one imported from V0 the View at ``version``.
        """
        (recorded,) = self.append(Retraction(version=version, reason=reason), expected_version=expected_version)
        return recorded

    def pop(self, count: int = 1, reason: str = "") -> tuple[Event, ...]:
        """Take back the newest ``count`` events that the View shows. Return them, in order.

        It is a retraction: the View is again what it was before the first of them, so a condensation that came since is
        taken back too, and the log keeps all. Fewer events where the View has fewer or a summary comes before; none
        where the View is empty. Raises ``InvalidArgument`` for a negative number, and what ``append`` raises.
        Durability: on disk when it returns. Cost: these events.
        """
        while True:
            try:
                version, events = self._views.tail(self.id, count)
            except ConversationNotFound:
                return ()
            summaries = [place for place, event in enumerate(events) if isinstance(event, CondensationSummary)]
            popped = events[summaries[-1] + 1 :] if summaries else events
            if not popped:
                return ()
            try:
                self.retract(popped[0].id, reason, expected_version=version)
            except VersionConflict:
                continue  # others appended: the newest events are theirs
            return popped

    def redact(
        self,
        event: int | Event,
        *,
        reason: str,
        by: str | None = None,
        with_summaries: bool = False,
        complete: bool = True,
    ) -> RedactionReceipt:
        """Erase the content of one event for good, given by its id or itself. Return the receipt, once its bytes are
        gone from the store's files.

        Its id, kind, place, times and size stay, and so does its head: published heads still verify. Readers and the
        model see ``[redacted]``. The receipt is the next event of the history. It names the condensations whose
        summaries may quote the event; ``with_summaries`` redacts these too. ``by`` says who does it, by default the
        user of the operating system. Without ``complete`` the bytes go with the next redaction, or with a vacuum.
        Called again, it finishes what was begun.

        Raises ``CannotRedact`` for an event that an earlier version of foldlog recorded, ``InvalidArgument`` where the
        history has no such event of its own, ``ConversationNotFound``, and ``StoreUnavailable`` where a reader that
        was open before stays open. Cost: the condensations and the idempotency keys of the history, and reading the
        file once.
        """
        self._meet()
        event_id = event if isinstance(event, int) else event.id
        maintenance = self._histories.maintenance
        return maintenance.redact(
            self.id, event_id, reason=reason, by=by, with_summaries=with_summaries, complete=complete
        )

    def why(self, event_id: int) -> Why:
        """Return why an event, or the summary with this id, is in the View now, or is not. Raises ``NoSuchEvent``."""
        try:
            return self._views.why(self.id, event_id=whole("event_id", event_id))
        except ConversationNotFound:
            raise NoSuchEvent(self.id, event_id, 0) from None

    def stats(self) -> Stats:
        """Return the figures of this history: events by kind and tool, errors, tokens and cost by model and day,
        condensations by strategy. Cost: the events, up to three times.
        """
        from foldlog.reports.stats import Stats, collect_stats

        try:
            return collect_stats(self._store, [self.id], views=self._views)
        except ConversationNotFound:
            return Stats(conversations=1)

    def lifetimes(self) -> Lifetimes:
        """For each event and summary: at which versions the View shows it, from when a model is sent it, why it left,
        and its tokens, estimated. Cost: the events, once.
        """
        from condensers import event_tokens
        from projections import Lifetimes

        try:
            return self._views.lifetimes(self.id, event_tokens)
        except ConversationNotFound:
            return Lifetimes(self.id, 0, (), {}, ())

    def fork(self, at: int | None = None, id: str | None = None, *, at_source: str | int | None = None) -> History:
        """Begin a history that shares the events of this one up to version ``at``, by default the present one.

        ``id`` names it; by default it is the name of this one with a random ending. ``at_source`` names the version by
        an id of the imported source instead, such as a ``uuid`` of Claude Code: the fork begins after this record, also
        where it ends a branch that the source left. Both histories go on by themselves.

        Raises ``InvalidArgument`` where this history does not have that version or that source id,
        ``VersionConflict`` where ``id`` exists, and ``ConversationNotFound`` where this history has no events.
        Durability: on disk when it returns. Cost: one row; with ``at_source`` also the events from that one to the end.
        """
        if at is not None and at_source is not None:
            raise InvalidArgument("a fork begins at a version or after a source id: give 'at' or 'at_source', not both")
        if at_source is not None:
            from foldlog.formats.tips import version_of_tip

            version = version_of_tip(self._store, self.id, at_source)
        else:
            version = self._store.version(self.id) if at is None else at
        name = f"{self.id}@{version}-{secrets.token_hex(4)}" if id is None else id
        self._store.fork(self.id, version, name)
        return self._histories[name]

    def difference(self, before: int, after: int) -> Difference:
        """Return what entered the View and what left it between two versions, and what was summarized. Raises
        ``NoSuchVersion``.
        """
        try:
            return self._views.difference(self.id, whole("before", before), whole("after", after))
        except ConversationNotFound:
            if before == after == 0:
                return Difference(0, 0, (), (), ())
            raise NoSuchVersion(self.id, after or before, 0) from None

    def __repr__(self) -> str:
        return f"<History {self.id!r}>"

    def _repr_html_(self) -> str:
        """Return its View as a table, for notebooks; the reason where that cannot be read."""
        return self._table().html()

    def __rich__(self) -> RenderableType:
        return self._table().rich()

    def _table(self) -> Table:
        try:
            view = self.view
        except EventStoreError as error:
            return Table(f"{self!r}: {error}")
        return Table(f"{self.id}: {repr(view)[1:-1]}", ("id", "kind", "text"), rows_of(view.events))


def _appendable(events: Event | Condensation | Iterable[Event]) -> Event | Iterable[Event]:
    """Return what is to be appended: of a ``Condensation`` its action. Raises ``TypeError`` for another object."""
    if isinstance(events, Event):
        return events
    action = getattr(events, "action", None)  # condensers is imported only by those who condense
    if isinstance(action, CondensationAction):
        return action
    if isinstance(events, str | bytes | Mapping | type) or not isinstance(events, Iterable):
        remedy = "a chat message or a reply goes to append_reply" if isinstance(events, Mapping) else ""
        raise TypeError(
            f"append takes an event, or several; what it was given is {described(events)}; write for example "
            f"history.append(Message(source='user', content='hi')){remedy and '; '}{remedy}"
        )
    return events


def described(value: object) -> str:
    """Return what a value is, for an error that refuses it."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
