"""The list of conversations with their figures, and totals over all conversations.

A request does not wait until all new conversations are counted: a thread counts them in the
background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from foldlog._app.server.metrics import size_of
from foldlog._app.server.notes import conversations_with_notes
from foldlog._app.server.parameters import Text
from foldlog._reports.answers.conversations import (
    ChosenDocument,
    ConversationDocument,
    DayDocument,
    FacetDocument,
    OverviewDocument,
    ServedPageDocument,
)
from foldlog._reports.answers.figures import (
    AgentDocument,
    ErasedAgentDocument,
    FleetDocument,
    ReasonDocument,
    ReceiptDocument,
    SavingsDocument,
    TaskDocument,
)
from foldlog._reports.figures.documents import document_of
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.search_line import chosen_by
from foldlog._reports.figures.spending import total_of
from foldlog._reports.figures.stats import FACETS
from foldlog._reports.figures.tables import Where
from foldlog._reports.figures.tasks import Agent, Task
from foldlog._reports.search.searching import SearchPlace, search
from foldlog._reports.sub_agents import BeginningCall, calls_of_children
from foldlog.eventstore import (
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    Redaction,
    Store,
    StoreDamaged,
)
from foldlog.eventstore.lists.pages import check_no_key_is_missing
from foldlog.projections.conversations.unreadable import sound

LIMIT = 500
"""The number of conversations in an answer, unless the request has another ``limit``."""
LIMIT_MAX = 10_000
_ANSWER_S = 0.1
"""How long the thread rests after a request, so that it does not slow down the answer."""
_AT_ONCE = 20
"""The maximum number of conversations that a request counts before its answer. The background
thread counts all further conversations.
"""
_SEARCH_S = 5.0
"""The search for the words of a search line ends after this time. The next request goes on."""
_LINES = 8
"""The number of search lines whose conversations are kept."""
_RECEIPTS_OF = 20
"""The maximum number of agents whose receipts of redactions are read."""
LISTED = Where(companions=False)
"""The filter of the list, which leaves out conversations that runtimes use internally."""


class _Known(NamedTuple):
    """Conversations that were found in the state ``of`` of the store."""

    of: Hashable = None
    ids: frozenset[str] = frozenset()


class _Searched(NamedTuple):
    """The conversations with the words of a search line. The store is searched from its
    conversation that was active last to the first, perhaps by several requests. After a write, it
    is searched anew.

    ``of``           the state of the store when this search began
    ``ids``          the conversations that were found, also by the search before
    ``new``          those that this search found
    ``searched_to``  where the next request goes on, or None
    ``lacks``        whether this search left conversations out: they are archived or damaged, or
                     they were perhaps active after it began, which moved them to its beginning
    """

    of: Hashable = None
    ids: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    searched_to: SearchPlace | None = None
    lacks: bool = False

    @property
    def is_partial(self) -> bool:
        return self.lacks or self.searched_to is not None


class _Line:
    """The words of a search line, and what was found. One request searches at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.searched = _Searched()


class ServedConversations:
    """The list of conversations, made from the figures in the store. The list is thread-safe, and
    ``close`` ends its thread.
    """

    def __init__(self, store: Store, prices: Prices | None = None) -> None:
        """``prices`` are for calls that record no cost."""
        self._store = store
        self._prices = prices or Prices()
        self.figures = FiguresOfStore(store, prices=self._prices, is_quick=True)
        self._sums = FiguresOfStore(store, prices=self._prices)
        """The sums that the thread makes, apart from those that requests read."""
        self.complete = False
        """Whether every conversation was counted at least once. Until every conversation was
        counted, the sums over all conversations are too low.
        """
        self._lines = dict[str, _Line]()
        """The last search lines by their words, the newest last."""
        self._lines_lock = threading.Lock()
        self._with_notes = _Known()
        """The conversations with notes."""
        self._asked = False
        """Whether a request came since the thread last counted."""
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._count, name="foldlog-figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._wanted.set()
        self._thread.join()

    def refresh(self) -> int:
        """Count some conversations that have changed. Return the number of conversations that the
        thread still has to count.
        """
        self._asked = True
        return self._refresh()

    def _refresh(self) -> int:
        rest_count = self.figures.refresh(_AT_ONCE)
        self.complete = self.complete or not rest_count
        if rest_count:
            self._wanted.set()
        return rest_count

    def _count(self) -> None:
        """Count what requests left over, until the list is closed. The thread runs this."""
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            if self._asked:  # the answer comes first
                self._asked = False
                time.sleep(_ANSWER_S)
            with suppress(EventStoreError):  # the next answer names the problem
                if not self._refresh() and self._sums.sum_up():
                    self.figures.note_complete()

    def where(self, line: str) -> Where:
        """Return the filter that a search line describes. Raises ``InvalidArgument`` if the line
        cannot be read, and ``KeyUnavailable`` if a missing key prevents the comparison.
        """
        is_partial = False

        def find_ids(words: str) -> Collection[str]:
            nonlocal is_partial
            found = self._having(words)
            is_partial = is_partial or found.is_partial
            return found.ids

        where = chosen_by(line, find_ids, self._noted)
        if where.conditions():
            check_no_key_is_missing(self._store.database, "more conversations may match")
        return where._replace(is_partial=is_partial)

    def ids(self, where: Where) -> Collection[str] | None:
        """Return the ids of the conversations that a filter selects. None stands for all
        conversations.
        """
        if where == LISTED:
            return None
        self.refresh()
        return self.figures.ids(where)

    def _having(self, words: str) -> _Searched:
        """Return the conversations whose events or ids contain all the words. If the last search
        for the words had not enough time, it goes on.
        """
        with self._lines_lock:
            line = self._lines.pop(words, None) or _Line()
            self._lines[words] = line
            if len(self._lines) > _LINES:
                del self._lines[next(iter(self._lines))]
        has_waited = line.lock.locked()
        with line.lock:
            if not has_waited or line.searched.searched_to is None:
                line.searched = self._search_on(words, line.searched)
            return line.searched

    def _search_on(self, words: str, last_search: _Searched) -> _Searched:
        """Return what is found from the place to which the last search came. If that search was
        complete, and the store was written since, the search begins anew.
        """
        version = self._store.database.data_version()
        if last_search.searched_to is not None:
            begun = last_search._replace(lacks=last_search.lacks or last_search.of != version)
        elif last_search.of == version:
            return last_search
        else:
            begun = _Searched(version, last_search.ids, frozenset(self._ids_with(words)))
        result = search(
            self._store,
            words,
            limit=None,
            limit_each=1,
            seconds=_SEARCH_S,
            behind=begun.searched_to,
        )
        new = begun.new | {hit.conversation for hit in result.hits}
        ids = begun.ids | new
        lacks = begun.lacks or bool(result.unread)
        if result.searched_to is None:
            is_sound, again = self._found_again(words, ids - new)
            ids = new | again
            lacks = lacks or not is_sound
        return _Searched(begun.of, ids, new, result.searched_to, lacks)

    def _found_again(self, words: str, ids: Collection[str]) -> tuple[bool, frozenset[str]]:
        """Return whether all of these conversations could be read, and those with the words. The
        search before had found all of them. Since then, they were active, redacted or erased. They
        are few, so no time limits the search.
        """
        if not ids:
            return True, frozenset()
        try:
            result = search(self._store, words, among=ids, limit=None, limit_each=1)
        except (CorruptEvent, StoreDamaged):  # none of them can be read
            return False, frozenset()
        return not result.unread, frozenset(hit.conversation for hit in result.hits)

    def _noted(self) -> Collection[str]:
        """Return the conversations with notes."""
        version = self._store.database.data_version()
        if self._with_notes.of != version:
            self._with_notes = _Known(version, frozenset(conversations_with_notes(self._store)))
        return self._with_notes.ids

    def _count_noted(self, where: Where) -> int:
        """Return the number of selected conversations with notes."""
        ids = self._noted()
        if where.only is not None:
            ids = {*ids} & {*where.only}
        return self.figures.count(where._replace(only=ids)) if ids else 0

    def _ids_with(self, words: str) -> Iterator[str]:
        """Yield the ids that contain all the words. A shortened id ends with ``…``. Cost: the
        method reads the row of each conversation.
        """
        parts = [part.removesuffix("…") for part in words.lower().replace('"', " ").split()]
        for row in self._store.iter_conversations():
            name = row.id.lower()
            if row.erased_at is None and all(part in name for part in parts):
                yield row.id

    def overview(self, line: str, import_command: str) -> OverviewDocument:
        """Return the sums, facets and days of the conversations that a search line selects. The
        days also cover the time outside the period in the search line, so that the reader can
        choose another period.
        """
        rest_count = self.refresh()
        where = self.where(line)
        chosen = self.figures.totals(where)
        everything = chosen if where == LISTED else self.figures.totals(LISTED)
        facets = self.figures.facets(where, (*FACETS, "errors"))
        states = {facet.name: facet.conversations for facet in facets if facet.what == "state"}
        total = everything.conversations + self.figures.missing
        return OverviewDocument(
            conversations=total,
            counted=max(0, total - rest_count),
            spent=everything.spent,
            chosen=ChosenDocument(
                conversations=chosen.conversations,
                unmarked=chosen.unmarked,
                ended_with_error=states.get("error", 0),
                with_notes=self._count_noted(where),
                with_errors=sum(facet.conversations for facet in facets if facet.what == "errors"),
                spent=chosen.spent,
                models=chosen.calls_by("model"),
                days=chosen.calls_by("day"),
                without_usage=chosen.without_usage,
                without_cost=chosen.without_cost,
            ),
            facets=tuple(FacetDocument(*facet) for facet in facets if facet.what != "errors"),
            days=tuple(
                DayDocument(*day)
                for day in self.figures.days(where._replace(since=None, until=None))
            ),
            import_command=import_command,
            behind=self.figures.behind().document(),
            is_partial=where.is_partial or UNSET,
        )

    def fleet(self, import_command: str) -> FleetDocument:
        """Return the figures of the whole store, and what condensations saved, by their reasons."""
        rest_count = self.refresh()
        stats = self.figures.totals(LISTED)
        self.figures.add_sub_agents(stats, LISTED)
        reasons = self.figures.reasons(LISTED)
        by_saving = sorted(
            reasons.items(), key=lambda item: item[1].tokens_saved or 0, reverse=True
        )
        reason_documents = [
            ReasonDocument.of(saved, reason=reason)
            for reason, saved in by_saving
            if saved.condensations
        ]
        total = stats.conversations + self.figures.missing
        path = self._store.path
        return FleetDocument.of(
            total_of(SavingsDocument(), reasons.values()),
            conversations=total,
            counted=max(0, total - rest_count),
            needs_key=self.figures.needs_key(LISTED),
            events=sum(stats.events.values()),
            bytes=None if path is None else size_of(path) + size_of(f"{path}-wal"),
            view_tokens=stats.in_views,
            reasons=tuple(reason_documents),
            spent=stats.spent,
            sub_agents=stats.sub_agents,
            spent_alone=stats.spent_alone or stats.spent,
            without_usage=stats.without_usage,
            without_cost=stats.without_cost,
            import_command=import_command,
            behind=self.figures.behind().document(),
        )

    def task(self, conversation: Text) -> TaskDocument:
        """Return the task that contains a conversation, with all agents. Cost: the method reads the
        events of the conversation and of the agents above it, a row of each agent, and the events
        of at most 20 agents with redacted events.
        """
        self._store.conversation(conversation, as_stored=True).check_not_erased()
        self.refresh()
        top = self.figures.trees.task_of(conversation)
        ((_, figures),) = self.figures.of([self._store.conversation(top, as_stored=True)])
        document = self.figures.tasks([figures], has_agents=True).get(top)
        if document is None:
            alone = Task([Agent(figures, 0)], figures.calls)
            document = alone.document(self._prices, has_agents=True)
        agents = {agent.conversation: agent for agent in document.agents or ()}
        calls = dict[str, BeginningCall]()
        erased = list[ErasedAgentDocument]()
        for above in _with_agents_above(conversation, agents):
            children = [name for name, agent in agents.items() if agent.parent == above]
            begun = calls_of_children(self._store, above, children)
            if above == conversation:
                calls = begun
            erased += self._erased(above, begun, agents)
        receipts_left = _RECEIPTS_OF
        for name, agent in agents.items():
            row = self._store.conversation(name, as_stored=True)
            call = calls[name].call if name in calls else UNSET
            agents[name] = replace(agent, call_event=call, redactions=row.redactions)
            if row.redactions and receipts_left:
                receipts_left -= 1
                agents[name] = replace(agents[name], receipts=(*self._receipts(row),))
        return replace(document, agents=tuple(agents.values()), erased=tuple(erased))

    def _erased(
        self, parent: str, begun: Mapping[str, BeginningCall], agents: Collection[str]
    ) -> Iterator[ErasedAgentDocument]:
        """Yield the erased agents that the calls of a conversation began."""
        for name, (call, _) in sorted(begun.items(), key=itemgetter(1)):
            if name in agents:
                continue
            with suppress(ConversationNotFound):  # its worker was killed before it began
                row = self._store.conversation(name, as_stored=True)
                if row.erased_at is not None:
                    yield ErasedAgentDocument(
                        conversation=name,
                        parent=parent,
                        call_event=call,
                        at=row.erased_at.isoformat(),
                        reason=row.erased_reason or "",
                    )

    def _receipts(self, row: ConversationRow) -> Iterator[ReceiptDocument]:
        """Yield the receipts of the redactions in a conversation."""
        for _, event in sound(self._store, row.id, 0, row.version, []):
            if type(event) is Redaction:
                yield ReceiptDocument(event_ids=event.event_ids, by=event.by, reason=event.reason)

    def list(
        self,
        start: int = 0,
        limit: int = LIMIT,
        *,
        sort: str = "recorded",
        reverse: bool = True,
        where: Where = LISTED,
    ) -> ServedPageDocument:
        """Return at most ``limit`` selected conversations, from the index ``start`` on. Without a
        search line, sub-agents are left out: their tasks have their figures. Raises
        ``InvalidArgument`` for an unknown sort.
        """
        rest_count = self.refresh()
        if where == LISTED:
            where = where._replace(sub_agents=False)
        page = self.figures.page(
            where, sort=sort, reverse=reverse, start=start, limit=min(limit, LIMIT_MAX)
        )
        tasks = self.figures.tasks(figures for _, figures in page.rows)
        shown: tuple[ConversationDocument, ...] = tuple(
            document_of(row, figures, self._prices, tasks.get(row.id, UNSET))
            for row, figures in page.rows
        )
        total = page.total + self.figures.missing
        return ServedPageDocument(
            conversations=shown,
            total=total,
            counted=max(0, total - rest_count),
            behind=self.figures.behind().document(),
            is_partial=where.is_partial or UNSET,
        )


def _with_agents_above(conversation: str, agents: dict[str, AgentDocument]) -> list[str]:
    """Return a conversation, and the agents above it up to the first. Parents may form a circle, or
    name a conversation that is not in the store.
    """
    names = [conversation]
    parent = agents[conversation].parent
    while parent in agents and parent not in names:
        names.append(parent)
        parent = agents[parent].parent
    return names
