"""A single history of a store, for the author of a runtime: look back, export, redact and fork. The
rules of the log are in ``foldlog.eventstore`` and ``foldlog.projections``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foldlog._history.log import ExpectedVersion as ExpectedVersion, describe as describe, or_empty
from foldlog._history.run import HistoryRun
from foldlog._history.sent_requests import sent_request
from foldlog._reports.words.tables import Table, show_as_table, view_table
from foldlog.eventstore import (
    Action,
    ConversationNotFound,
    Event,
    EventStoreError,
    InvalidArgument,
    Retraction,
)
from foldlog.eventstore.arguments import check_whole
from foldlog.formats.record import INCOMPLETE
from foldlog.projections import (
    Difference,
    Lifetimes,
    NoSuchEvent,
    NoSuchVersion,
    Why,
)

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._history.continuing import Continuation
    from foldlog._history.request_names import SentRequest
    from foldlog._reports.answers.views import HandOverDocument
    from foldlog._reports.dropped import Dropped
    from foldlog._reports.facts import Fact
    from foldlog._reports.figures.stats import Stats
    from foldlog.eventstore import ReadTransaction
    from foldlog.eventstore.maintenance.redact import RedactionReceipt


class History(HistoryRun):
    """A conversation: append events, and read the View that is shown to the model. The object keeps
    no events in memory. It remembers only the version of the View that ``step`` returned last,
    because ``append_reply`` needs this version.

    A history without events is empty: its View, its events and its tail are empty, and its version
    is 0. The first append makes the conversation. Every method raises ``ConversationErased`` if the
    conversation was erased. An object that has read or written a conversation stays bound to this
    conversation, even if another conversation has the id later.

    The methods of this class look back. ``HistoryRun`` has the methods of a running agent, and
    ``HistoryLog`` the methods that append and read.
    """

    def begin_child(
        self,
        call: Action,
        id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> History:
        """Begin the history of a sub-agent for an open call, and return the history. If the call
        began this history earlier, return it unchanged, so that a sub-agent goes on after a crash.

        The attributes ``parent`` and ``parent_call`` of the new history name this history and the
        call. Figures, lists and erasures can so include the sub-agents of a task. Append the result
        of the sub-agent with ``append_tool_result``. ``id`` is the name of the new history. The
        default is made from the name of this history and the call. Raises ``InvalidEvent`` if the
        call is not open, ``InvalidArgument`` if another call began the history ``id``, and the
        errors of ``append``. Durability: both histories are on disk when the method returns. Cost:
        two appends.
        """
        from foldlog._history.sub_agents import begin_child

        return cast(History, begin_child(self, call, id, attributes or {}))

    def sent_request(self, event_id: int) -> SentRequest:
        """Make the request again that the reply with this event answered, and say whether it has
        *the same bytes*. If not, the result names what has changed since: a redaction, or the rules
        by which foldlog renders messages. If ``append_reply`` got no request, the result says "not
        recorded". Raises ``InvalidArgument`` if the event is not a reply. Cost: the method reads
        the View of the reply, and renders it.
        """
        return sent_request(self, check_whole("event_id", event_id, 0))

    def export(
        self,
        format: str | None = None,
        *,
        view: bool = False,
        notes: Callable[[str], None] | None = None,
    ) -> Iterator[Any]:
        """Yield the records of the history in a format. The default is the format of its source,
        and ``openhands-v1`` for a history that was not imported. The source of a history that went
        on in another program is the session of that program. Imported records are yielded
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
        from foldlog._reports.records.stored import session_records
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
                event for event in read.structural_events() if isinstance(event, Retraction)
            ]

        if not self.version():
            return iter(())
        session = session_records(self._store, self.id, format)
        if session is not None:
            return session
        version, retractions = self._store.query(self.id, read_version_and_retractions)
        chosen = format or format_of_history(self._store, self.id)
        stored = self._stored_records()
        return encode_standing(self.events(0, version), version, retractions, chosen, notes, stored)

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
            CannotRedact: An event is the receipt of a redaction, was written by a later version of
                foldlog, or is the base from which a later event stores a document as a difference.
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
        from foldlog._reports.facts import fact

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
        from foldlog._reports.figures.documents import trees_of
        from foldlog._reports.hand_overs import hand_overs

        if not isinstance(about, str):
            check_whole("about", about)
        return hand_overs(self._store, self._views, trees_of(self._store), self.id, about).agents

    def stats(
        self, *, prices: str | os.PathLike[str] | None = None, with_children: bool = False
    ) -> Stats:
        """Return the figures of this history: events by kind and tool, errors, tokens and cost by
        model and day, and condensations by strategy. Cost: the first call reads all events, and the
        condensations, requests and retractions once more. Later calls read the stored figures, some
        bytes for each event, and the new events. After a condensation or a retraction, a call reads
        all events.

        The cost of a call that records no cost is computed with the file ``prices``. Without
        ``prices``, the prices of litellm or genai-prices are used if one of these packages is
        installed. ``docs/COMMAND.md`` describes the file. Raises ``InvalidArgument`` if the file
        cannot be read. With ``with_children``, the figures are sums over this history and its
        sub-agents, and the method counts all histories of the store that have changed. A finding
        says how many sub-agents were erased.
        """
        from foldlog._reports.figures.documents import (
            collect_stats,
            unreached_agents,
            with_sub_agents,
        )
        from foldlog._reports.figures.prices import Prices
        from foldlog._reports.figures.stats import Stats

        priced = Prices(None if prices is None else Path(prices))
        names = with_sub_agents(self._store, [self.id]) if with_children else [self.id]
        collected = partial(collect_stats, self._store, names, views=self._views, prices=priced)
        stats = or_empty(collected, Stats(conversations=1))
        if with_children:
            stats.findings += or_empty(partial(unreached_agents, self._store, [self.id]), [])
        return stats

    def lifetimes(self) -> Lifetimes:
        """Return the lifetimes of the events and summaries. A lifetime has the versions at which
        the View shows the event, the reason why the event left the View, and its estimated tokens.
        A lifetime also says when the event is sent to a model. Cost: the method reads all events
        once.
        """
        from foldlog._reports.figures.tokens import event_tokens

        return or_empty(
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
        return cast(History, self._histories[fork_id])

    def continue_in(
        self,
        program: str,
        at: int | None = None,
        cwd: str | os.PathLike[str] | None = None,
        *,
        condense: bool = False,
    ) -> Continuation:
        """Go on with this history in another program: write its View as a session file of
        ``"claude-code"`` or ``"codex"``, and fork the history under the id of the session. The
        command in the result resumes the session.

        Later imports of the session file, and the program's hook, append the new records to the
        fork, so the history stays one history. A second call makes another session and fork.

        The session has the messages, calls and results of the View, with their times. The system
        prompt and thinking are left out, and counted in ``left_out``. Each open call gets a result
        that says that its outcome is unknown, and a note tells the model that the program changed.
        The fork contains the results and the note too. The file has the mode 0600, and no file is
        overwritten. It is not encrypted.

        Args:
            program: The program, ``"claude-code"`` or ``"codex"``.
            at: The version to hand over. The default is the present version.
            cwd: The folder in which the program is to work. The default is the attribute ``cwd``,
                or the present folder. ``CLAUDE_CONFIG_DIR`` and ``CODEX_HOME`` say where the
                sessions of the programs are.
            condense: Whether the condenser of the histories condenses the View on the way. The
                condensation is in the fork only, and this history stays as it is.

        Raises:
            InvalidArgument: The program is unknown, the folder does not exist, the View shows
                nothing or has more than a million tokens, the condenser did not condense it, or the
                program's newest session is not in the form that foldlog writes.
            NoCondensationAvailable: With ``condense``, no event can be forgotten.
            ConversationNotFound: This history has no events. Also raises the errors of ``at``, and
                those of the file system if the file cannot be written. The store is then unchanged.

        Durability: the file is written, and the fork is on disk, when the method returns. Cost: the
        method renders the View, and writes it once as a file and once into the store.
        """
        from foldlog._history.continuing import continue_in

        return continue_in(self, program, at, cwd, condense=condense)

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
    """Return the View of a history as the table that a notebook shows."""
    try:
        table = view_table(history.view())
    except EventStoreError as error:
        return Table(f"{history!r}: {error}")
    return table._replace(heading=f"{history.id}: {table.heading}")


show_as_table(History, _table)
