"""The face: a store of histories, and one history, as the author of a runtime uses them. No rule of the domain is
here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from eventstore import (
    ANY_VERSION,
    Action,
    AnyVersion,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    ConversationNotFound,
    Event,
    Recorded,
    Retraction,
    Store,
    VersionConflict,
    open_store,
)
from eventstore.events import summary_id
from projections import Difference, View, Views, Why, interrupt

if TYPE_CHECKING:
    from condensers import AgentModel, Condensation, CondenseHandler, Condenser, CondenserConfig
    from foldlog.maintenance import Maintenance
    from foldlog.recording import Recording
    from projections import Lifetimes

    ChosenCondenser = Condenser | CondenserConfig | Mapping[str, Any] | str | os.PathLike[str]

__all__ = ["Histories", "History", "open"]

_log = logging.getLogger("foldlog")
_warned = False
"""Whether this process was warned that an older summary still stands."""

ExpectedVersion = int | Literal[AnyVersion.ANY_VERSION]


def open(
    url: str,
    *,
    condenser: ChosenCondenser | None = None,
    agent_llm: AgentModel | None = None,
    durability: Literal["full", "relaxed"] = "full",
    clock: Callable[[], datetime] | None = None,
) -> Histories:
    """Open the store at ``url``, such as ``sqlite:///history.db``, ``sqlite:////srv/history.db`` or ``memory:``.

    ``condenser`` and ``agent_llm``: see ``Histories``. A SQLite file is made if it is not there. ``durability``: see
    ``eventstore.open_store``. Close it, or use ``with``. Raises ``InvalidCondenser`` where the condenser's description
    is wrong, before anything is opened; ``StoreUnavailable`` where there is no such store, it is not ours, or a newer
    version made it.
    """
    chosen = None if condenser is None else _made(condenser)
    if agent_llm is not None:
        from condensers.models.estimate import counting

        counting(agent_llm)  # an object that is not a model is refused before anything is opened
    if chosen is not None:
        chosen.for_agent(agent_llm)  # so is a condenser that lacks a model
    return Histories(open_store(url, durability=durability, clock=clock), condenser=chosen, agent_llm=agent_llm)


class Histories:
    """The histories of a store, by id: ``histories["c1"]`` is a history whether it has events yet or not.

    ``in`` and iteration tell which have events. Any number of threads may use it.

    ``condenser``   decides what is forgotten when a history takes a step: a ``Condenser``, or what describes one, the
                    path of a TOML file or a table. None is the one that needs no model: a digest, by size
                    and on request
    ``agent_llm``   the model whose room a View must fit, such as ``condensers.LLM``; without it events are
                    counted, and tokens estimated where the condenser has a limit for them. Its ``dialect``, where it
                    has one, is the form of ``view.to_messages()``
    """

    def __init__(
        self,
        store: Store,
        *,
        condenser: ChosenCondenser | None = None,
        agent_llm: AgentModel | None = None,
    ) -> None:
        self.store = store
        self.views = Views(store, dialect=getattr(agent_llm, "dialect", "litellm"))
        store.register(self.views)  # revisions are stored in the transaction of their events
        self.agent_llm = agent_llm
        if condenser is not None:
            self.condenser = _made(condenser)

    @cached_property
    def condenser(self) -> Condenser:
        """What decides what is forgotten."""
        from condensers.strategies.default import default_condenser

        return default_condenser()

    @cached_property
    def handler(self) -> CondenseHandler:
        """What takes the histories' steps: one for all of them."""
        from condensers import CondenseHandler

        return CondenseHandler(self.store, self.views, self.condenser, self.agent_llm)

    @cached_property
    def recording(self) -> Recording:
        """What appends records: one for all histories."""
        from foldlog.recording import Recording

        return Recording()

    def __getitem__(self, conversation: str) -> History:
        return History(self, conversation)

    def __contains__(self, conversation: str) -> bool:
        return self.store.version(conversation) > 0

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all histories that have events, in the order of their UTF-8 bytes. Read page by page."""
        return (row.id for row in self.store.iter_conversations() if row.erased_at is None)

    @cached_property
    def maintenance(self) -> Maintenance:
        """What an administrator runs: verify, erase, rekey, back up, vacuum, copy."""
        from foldlog.maintenance import Maintenance

        return Maintenance(self.store)

    def close(self) -> None:
        """Close the store. Views that are held and were not read yet are read before."""
        self.views.read_all()
        self.store.close()

    def __enter__(self) -> Histories:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Histories {self.store.database.uuid}>"


class History:
    """One conversation: append to it, and see what the model is shown. It holds no state of its own."""

    def __init__(self, histories: Histories, conversation: str) -> None:
        self._histories, self._store, self._views = histories, histories.store, histories.views
        self.id = conversation

    @property
    def version(self) -> int:
        """How many events it has; 0 before the first."""
        return self._store.version(self.id)

    @property
    def view(self) -> View:
        """What the model is shown now; empty before the first event. Cost: what is new since it was asked for last.

        A long View that is not in memory is read when it is looked at, so that ``history.view.tail(50)`` costs 50
        events. Close the store through ``Histories``: it reads the Views that are held and were not looked at.
        """
        try:
            return self._views.latest(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def at(self, version: int) -> View:
        """Return what the model was shown when the history had ``version`` events. Cost: the size of that View.

        Raises what ``Views.at`` raises for a version that the history never had.
        """
        return self._views.at(self.id, version=version) if version else View.from_events(())

    def events(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[Event]:
        """All events with ``start <= id < stop``, forgotten ones too, in order; with ``reverse`` the newest first.
        Raises ``ConversationNotFound`` before the first append.
        """
        return self._store.events(self.id, start, stop, reverse=reverse)

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events of the log, forgotten ones too, in order; all, where there are fewer.

        ``history.view.tail(count)`` are the last events that the model is shown. Raises ``InvalidArgument`` for a
        negative number, ``ConversationNotFound`` before the first append. Cost: these events.
        """
        return self._store.query(self.id, lambda read: read.tail(count))

    def append(
        self,
        events: Event | Condensation | Iterable[Event],
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one event, or several, all or none. Return them as recorded, with their ids. A ``Condensation``, as a
        condenser returns it, stands for its action.

        ``expected_version``, ``idempotency_key``, what it raises, and durability: as ``eventstore.Store.append``.
        """
        appended = events if isinstance(events, Event | Iterable) else events.action
        recorded = self._store.append(
            self.id, appended, expected_version=expected_version, idempotency_key=idempotency_key
        )
        if any(isinstance(one.event, CondensationAction) for one in recorded):
            self._warn_of_older_summaries(recorded)
        return recorded

    def append_records(
        self, records: Iterable[Any], *, format: str, expected_version: ExpectedVersion = ANY_VERSION
    ) -> tuple[Recorded, ...]:
        """Append what ``records`` of a format say, all or none, as an import would. Return the events as recorded.

        ``foldlog.formats.encode(history.events(), format)`` gives the records back. Other writers, also those of other
        processes, may append at the same time. Raises ``UnknownFormat``; ``NotLive`` for a format whose histories can
        only be imported whole; ``InvalidEvent`` where a record is not one of the format; and what ``append`` raises.
        Durability: on disk when it returns. Cost: the records, and at the first call up to 256 events of the end; some
        records make a format read more, see ``docs/IMPORTING.md``.
        """
        return self._histories.recording.append(self, records, format, expected_version)

    def _warn_of_older_summaries(self, recorded: Sequence[Recorded]) -> None:
        """Log a warning, once in a process, where a condensation brought a summary and an older one still stands."""
        global _warned
        newest = max(one.id for one in recorded if isinstance(one.event, CondensationAction))
        standing = [event.id for event in self.view if isinstance(event, CondensationSummary)]
        older = [summary for summary in standing if summary != summary_id(newest)]
        if _warned or summary_id(newest) not in standing or not older:
            return
        _warned = True
        _log.warning(
            "conversation %r: condensation %d brought a summary, and the View still shows the older summary %d; to "
            "replace it, name its id in forgotten_event_ids (docs/COMING_FROM_OPENHANDS.md)",
            self.id,
            newest,
            older[-1],
        )

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
            return interrupt(self._store, self._views, self.id, reason)
        except ConversationNotFound:
            return ()

    def step(self) -> View | Condensation:
        """Prepare the call of the agent's model: return the View to go on with, or a condensation that was due and has
        been appended; then step again.

        Any number of threads may step while others append: see ``condensers.CondenseHandler.handle`` for that, and for
        what it raises; ``NoCondensationAvailable`` above all, where one is required and impossible. Cost: the View, and
        the condenser's work, which may be a call of a model.
        """
        try:
            return self._histories.handler.handle(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def request_condensation(self, reason: str = "") -> Recorded:
        """Ask for a condensation: the View's ``unhandled_condensation_request`` is set until one comes."""
        (recorded,) = self.append(CondensationRequest(reason=reason))
        return recorded

    def condense(self, reason: str = "") -> View | Condensation:
        """Ask for a condensation, and take the step that answers.

        Raises ``InvalidCondenser``, a ``ValueError``, where the condenser does not handle requests, and
        ``ConversationNotFound`` before the first append: nothing is appended then. Raises what ``step`` raises.
        """
        self._histories.handler.check_handles_requests()
        self._store.conversation(self.id)
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

    def why(self, event_id: int) -> Why:
        """Why an event, or the summary with this id, is in the View now, or is not. Raises ``NoSuchEvent``."""
        return self._views.why(self.id, event_id=event_id)

    def lifetimes(self) -> Lifetimes:
        """For each event and summary: at which versions the View shows it, from when a model is sent it, why it left,
        and its tokens, estimated. Raises ``ConversationNotFound``. Cost: the events, once.
        """
        from condensers import event_tokens

        return self._views.lifetimes(self.id, event_tokens)

    def difference(self, before: int, after: int) -> Difference:
        """Return what entered the View and what left it between two versions, and what was summarized. Raises
        ``NoSuchVersion``.
        """
        return self._views.difference(self.id, before, after)

    def __repr__(self) -> str:
        return f"<History {self.id!r} at version {self.version}>"


def _made(condenser: ChosenCondenser) -> Condenser:
    from condensers import Condenser

    if isinstance(condenser, Condenser):
        return condenser
    from condensers import condenser_from_config, load_condenser

    if isinstance(condenser, str | os.PathLike):
        return load_condenser(condenser)
    return condenser_from_config(condenser)
