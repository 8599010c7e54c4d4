"""A store of histories, for the author of a runtime. ``history.py`` has the class of a single
history. The rules of the log are in ``foldlog.eventstore`` and ``foldlog.projections``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from foldlog._base.telemetry import tell
from foldlog._history.history import History, describe
from foldlog._history.started_calls import StartedCalls
from foldlog._imports import makes_events
from foldlog.eventstore import (
    ATTRIBUTES,
    EVENT_BYTES_MAX,
    Compression,
    ConversationErased,
    ConversationRow,
    Documents,
    FoundEvent,
    KeyRing,
    RecentConversations,
    Store,
    find,
    open_store,
    recent_conversations,
)
from foldlog.eventstore.arguments import check_map, check_text
from foldlog.projections import Views

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._history.recording import Recording
    from foldlog._reports.search.searching import Hit
    from foldlog.condensers import AgentModel, CondenseHandler, Condenser
    from foldlog.maintenance import Maintenance

ChosenCondenser: TypeAlias = "Condenser | Mapping[str, Any] | str | os.PathLike[str]"


def open(
    url: str | os.PathLike[str],
    *,
    condenser: ChosenCondenser | None = None,
    agent_llm: AgentModel | None = None,
    durability: Literal["full", "relaxed"] = "full",
    clock: Callable[[], datetime] | None = None,
    keys: KeyRing | None = None,
    compression: Compression | None = None,
    event_bytes_max: int = EVENT_BYTES_MAX,
    search_index: bool = False,
) -> Histories:
    """Open a store in a SQLite file, a PostgreSQL database, or memory. A SQLite file that does not
    exist is created.

    Close the store when you have finished, or open it in a ``with`` statement. All arguments are
    checked before the store is opened.

    Args:
        url: The path of a file or a URL. A path is a ``Path``, or a text with a dot or a slash,
            such as ``"history.db"``. The URLs are ``sqlite:///history.db``,
            ``postgresql://user@host/database`` and ``memory:``.
        condenser: Decides which events are forgotten: see ``Histories``.
        agent_llm: The model whose limit a View must fit: see ``Histories``.
        durability: With ``"full"``, events are on disk when ``append`` returns. With ``"relaxed"``,
            a power cut may lose the newest commits, but never a part of a commit.
        clock: Returns the present time with its time zone. Tests pass a clock of their own.
        keys: Encrypt the events. The first key encrypts new events, and the other keys only
            decrypt. The default is ``FOLDLOG_KEY`` or ``FOLDLOG_KEY_FILE`` of the environment.
        compression: ``"zstd"``, ``"zlib"`` or ``"none"``. The default is ``FOLDLOG_COMPRESSION`` of
            the environment.
        event_bytes_max: The largest number of bytes of an event.
        search_index: Make a search index if the store has none. The store records that it has an
            index. ``histories.maintenance.index()``, ``foldlog store index`` and ``foldlog serve``
            add new events to the index.

    Raises:
        InvalidCondenser: The condenser's description is wrong.
        InvalidOption: Another argument is wrong.
        StoreUnavailable: The store cannot be opened now.
        KeyUnavailable: A key is missing or malformed.
    """
    made_condenser = None if condenser is None else _make_condenser(condenser)
    if agent_llm is not None:
        from foldlog.condensers.models.estimate import counting

        counting(agent_llm)  # Refuse an object that is not a model before the store is opened.
    if made_condenser is not None:
        made_condenser.for_agent(agent_llm)  # Refuse a condenser that lacks a model, too.
    store = open_store(
        url,
        durability=durability,
        clock=clock,
        keys=keys,
        compression=compression,
        event_bytes_max=event_bytes_max,
    )
    if search_index:
        from foldlog._reports.search.index import make_if_missing

        try:
            make_if_missing(store)
        except BaseException:
            store.close()
            raise
    return Histories(store, condenser=made_condenser, agent_llm=agent_llm)


class Histories:
    """The histories of a store by id. ``histories["c1"]`` is a history even if it has no events
    yet.

    The operator ``in`` and the iteration include only histories with events. Many threads may use a
    single ``Histories``.

    ``condenser``   decides which events are forgotten in a step. Pass a ``Condenser``, the name of
                    a strategy (such as ``"digest"``), the path of a TOML file that ends in
                    ``.toml``, or a table. The default is a digest, which condenses by size and on
                    request and needs no model.
    ``agent_llm``   is the model whose context a View must fit, such as ``foldlog.condensers.LLM``.
                    Without a model, events are counted, and tokens are estimated if the condenser
                    has a token limit. If the model has a ``dialect``, ``view.to_messages()``
                    returns messages in this dialect.
    """

    def __init__(
        self,
        store: Store,
        *,
        condenser: ChosenCondenser | None = None,
        agent_llm: AgentModel | None = None,
    ) -> None:
        self.store = makes_events(store)
        self.views = Views(store, dialect=getattr(agent_llm, "dialect", "litellm"))
        store.register(self.views)  # Revisions are stored in the transaction of their events.
        self.agent_llm = agent_llm
        self._started_calls = StartedCalls()
        self._async_face: Any = None
        """The ``foldlog.aio`` interface of this store, which sets this attribute. Its type is Any,
        because ``foldlog.aio`` imports this module.
        """
        if condenser is not None:
            self.condenser = _make_condenser(condenser)

    @cached_property
    def condenser(self) -> Condenser:
        """The condenser that was passed to ``Histories``, or the default condenser."""
        from foldlog.condensers import default_condenser

        return default_condenser()

    def create(
        self,
        conversation: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        replace_erased: bool = False,
    ) -> History:
        """Begin a history with attributes, and return the history. Each attribute has a name and a
        value: a text, a whole number, a boolean or a list of texts. Usual names are app, user,
        project, title, parent and tags.

        The attributes are stored in an event that no View shows. With ``replace_erased``, the new
        history may use the id of an erased history again. The tombstone of the erased history
        stays. A ``History`` object that read or wrote the erased history still raises
        ``ConversationErased``. Raises ``VersionConflict`` if the history has events already, and
        the errors of ``History.append``. Durability: the history is on disk when the method
        returns.
        """
        history = self[conversation]
        documents = {ATTRIBUTES: dict(check_map("attributes", attributes or {}))}
        history._binding.replaces_erased = replace_erased
        try:
            Documents(history._store).append(conversation, (), documents, expected_version=0)
        finally:
            history._binding.replaces_erased = False
        return history

    def list(
        self,
        attributes: Mapping[str, Any] | None = None,
        *,
        limit: int = 100,
        after: tuple[int, int] | None = None,
        age_max_s: float = 2.0,
    ) -> RecentConversations:
        """Return the histories that have all the given attributes. The history with the newest
        event comes first. The default is all histories. For an attribute that is a list, such as
        tags, pass the texts that the list must contain.

        The list may be up to ``age_max_s`` seconds old, and says when it was made. Attributes are
        always up to date. To get the next page, pass ``after`` of the last page.

        If hundreds of histories have changed since the last list, the list is older, as its
        ``as_of`` and ``is_complete`` say. It still has the newest histories, and those that this
        program wrote last.

        Raises ``InvalidArgument`` or ``StoreUnavailable``. Raises ``KeyUnavailable`` if a history
        that may have the attributes is encrypted under a missing key. Cost: the method reads the
        rows of the histories that it returns. If the list is older than ``age_max_s`` seconds, the
        method also reads up to 200 histories with newer events.
        """
        return recent_conversations(
            self.store.database, attributes or {}, limit=limit, after=after, age_max_s=age_max_s
        )

    def to_resume(self) -> Iterator[str]:
        """Yield the ids of the histories that a worker did not finish, for example because it died.
        Such a history has open calls and no later reply of the model, a lease that was not
        released, or a streamed reply that has not ended and whose last chunk is ten minutes old,
        and no worker drives it now: see ``History.lease``. The ids come in the order of their UTF-8
        bytes.

        A history that cannot be read is left out, and a log message names the history. Cost: the
        method reads a cached row of every history, and the View of each history with new events
        since the last call.
        """
        from foldlog._history.to_resume import to_resume

        unread = partial(tell, "foldlog.resume.finding")
        return (
            row.id
            for row in to_resume(self.store, self.views, self.store.iter_conversations(), unread)
        )

    @cached_property
    def _handler(self) -> CondenseHandler:
        from foldlog.condensers import CondenseHandler

        return CondenseHandler(self.store, self.views, self.condenser, self.agent_llm)

    @cached_property
    def _recording(self) -> Recording:
        from foldlog._history.recording import Recording

        return Recording()

    def search(
        self,
        words: str,
        *,
        conversation: str | None = None,
        kinds: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 20,
    ) -> tuple[Hit, ...]:
        """Return the events that contain all the words. The conversation with the latest event
        comes first. Within a conversation, the latest event comes first. Imports whose source has
        no times come last.

        The search reads the stored records and events. In a store with a search index, it reads
        only events that may have hits (``search_index`` of ``foldlog.open``), and finds the same
        events. A conversation whose key is missing is left out.

        Args:
            words: A word matches the beginning of words. Words in double quotes must follow each
                other in the text.
            conversation: The conversation to search. The default is all conversations.
            kinds: The kinds of events to search, such as ``user``, ``agent``, ``action`` and
                ``observation``. The default is all kinds.
            since, until: The times between which the events happened.
            limit: The maximal number of events, or None for all events that contain the words.

        Raises:
            InvalidArgument: ``words`` has no word to search for.
            ConversationNotFound: ``conversation`` does not exist.
            KeyUnavailable, CorruptEvent: None of the conversations can be read.

        Cost: without an index, the search reads about 400 MB a second, up to the last hit. With an
        index, it reads some of the events that have the words, and the events that the index lacks.
        """
        from foldlog._reports.search.searching import search

        if conversation is not None:
            self.store.conversation(check_text("conversation", conversation), as_stored=True)
        return search(
            self.store,
            words,
            conversation=conversation,
            kinds=kinds,
            since=since,
            until=until,
            limit=limit,
        ).hits

    def __getitem__(self, conversation: str) -> History:
        return History(self, check_text("conversation", conversation))

    def __contains__(self, conversation: str) -> bool:
        try:
            return self.store.version(conversation) > 0
        except ConversationErased:
            return False

    def __len__(self) -> int:
        """Return the number of histories with events. Cost: the method reads the list of
        conversations.
        """
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all histories with events, in the order of their UTF-8 bytes. The list
        of conversations is read page by page.
        """
        return (row.id for row in self.store.iter_conversations() if row.erased_at is None)

    @cached_property
    def maintenance(self) -> Maintenance:
        """The methods of an administrator, which verify, rekey, back up, vacuum and copy the
        store.
        """
        from foldlog._history.lease import lease_that_keeps
        from foldlog.maintenance import Maintenance

        return Maintenance(self.store, partial(lease_that_keeps, self.store))

    def import_(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "auto",
        conversation: str | None = None,
        prefix: str = "",
        findings: Callable[[str], object] | None = None,
    ) -> tuple[History, ...]:
        """Import the histories of other agents from a file, or from a folder and the folders below
        it.

        The sources are stored unchanged. The events of an imported history are made at its first
        use. A second import of a source adds only new records. If the source was rewritten, the new
        text becomes a fork at the first record that differs.

        Args:
            path: The file or the folder.
            format: The format of the sources. ``docs/IMPORTING.md`` lists the formats. By default,
                foldlog recognizes the format.
            conversation: The name of the imported history. Only for a path with a single history.
            prefix: The name of a history is ``prefix`` followed by the name of its source.
            findings: Called with the problem of each record that cannot be read. Such a record is
                left out. By default, the problems are logged.

        Returns:
            The imported histories.

        Raises:
            formats.UnknownFormat: There is no such format.
            ValueError: The path contains no history, or several although ``conversation`` is set.
            formats.SourceRefused: A source cannot be imported, for example because the import would
                bring redacted content back. This error and other errors of sources are raised after
                all other sources are imported.

        Durability: the sources are on disk when the method returns.

        Cost: the method reads the bytes of the sources.
        """
        from foldlog._imports.importing import Failed, Import
        from foldlog.formats.conversion import check_callable

        format = check_text("format", format)
        prefix = check_text("prefix", prefix)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"import_ needs the path of a file or a folder, not {path!r}")
        check_callable("findings", findings)
        if conversation is not None:
            check_text("conversation", conversation)
        report = findings or (
            lambda text: tell("foldlog.import.finding", of=f"import of {path}", finding=text)
        )
        imported = dict[str, None]()
        failed: Exception | None = None
        sources = Import(self.store, [Path(path)], format, prefix=prefix, conversation=conversation)
        for result in sources:
            if isinstance(result, Failed):
                report(f"{result.path}: {result.error}")
                failed = failed or result.error
                continue
            imported[result.conversation] = None
            for finding in result.findings:
                report(str(finding))
        for finding in sources.findings:
            report(str(finding))
        if failed is not None:
            raise failed
        if not imported:
            raise sources.nothing()
        return tuple(self[name] for name in imported)

    def find(self, source_id: Any, *, format: str) -> tuple[FoundEvent, ...]:
        """Return the events with this source id in any history. The method finds the events that
        were appended with ``dedupe="origin"``, and all that a history had before its first such
        append. ``format`` is the ``origin.format`` of the events. Events of your own may name any
        format, so a format without events is no error.

        Cost: a query, and another one for each returned event, whatever the size of the store.
        """
        return find(self.store.database, format, source_id)

    def erase(
        self,
        conversation: str,
        *,
        reason: str,
        complete: bool = True,
        with_forks: bool = False,
        with_children: bool = False,
        detach_forks: bool = False,
        expected: ConversationRow | None = None,
    ) -> ConversationRow:
        """Erase a conversation for good, together with its companions (``ID/+NAME``).

        From the beginning of the call on, the conversation cannot be read, and appends under its id
        fail. A second call finishes an interrupted erasure.

        In a SQLite file, the erased bytes (``bytes_pending``) stay until ``maintenance.vacuum``
        rewrites the file and its log. Call ``maintenance.vacuum`` once for many erasures. On
        PostgreSQL, ``erase`` vacuums all tables once, at most ten times a minute. After more calls
        in a minute, or while an earlier transaction is open, the erased bytes stay until the next
        vacuum. To erase many conversations, use ``maintenance.expire``, or pass ``complete=False``
        and call ``maintenance.vacuum`` at the end.

        Args:
            conversation: The id of the conversation.
            reason: The reason, which the tombstone stores.
            complete: Whether ``erase`` vacuums the tables of a PostgreSQL store.
            with_forks: Erase the forks too.
            with_children: First erase the sub-agents, for which the method counts all changed
                conversations. Sub-agents that stay are tasks of their own; ``unconfirmed`` names
                them.
            detach_forks: First copy the shared events into the forks.
            expected: A row of the conversation that you read earlier. The conversation is then
                erased only if it has no newer events.

        Returns:
            The tombstone of the conversation. ``unconfirmed`` lists the files that may still
            contain the conversation.

        Raises:
            ConversationNotFound: The conversation does not exist.
            InvalidArgument: ``with_forks`` and ``detach_forks`` are both set.
            ConversationHasForks: The conversation has forks, and neither argument is set.
            VersionConflict: The conversation has a newer event than ``expected``.

        Durability: a finished erasure is permanent.

        Cost: the method deletes the events of the conversation, and its figures.
        """
        from foldlog._privacy.erasing import Erasure, and_children, erase_conversations
        from foldlog._reports.figures.agent_trees import NO_TREES

        trees = NO_TREES
        if with_children:
            from foldlog._reports.figures.documents import trees_of

            trees = trees_of(self.store)
        tombstones = erase_conversations(
            self.store,
            and_children(self.store, [self.store.conversation(conversation)], trees),
            Erasure(
                reason,
                trees=trees,
                whole_tasks=with_children,
                with_forks=with_forks,
                detach_forks=detach_forks,
                expected={} if expected is None else {conversation: expected},
                complete=complete,
            ),
        )
        rows = {row.id: row for row in tombstones}
        names = dict.fromkeys(name for row in rows.values() for name in row.unconfirmed)
        pending = self.store.database.bytes_pending
        return rows[conversation]._replace(unconfirmed=(*names,), bytes_pending=pending)

    def close(self) -> None:
        """Close the store. This method may interrupt running calls of the async interface, so close
        a store of ``foldlog.aio`` with its own ``close``.
        """
        if self._async_face is not None:
            self._async_face._end_threads(wait=False)
        self.store.close()

    def __enter__(self) -> Histories:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Histories in {self.store.path or type(self.store.database.recorder).__name__}>"


def _make_condenser(condenser: ChosenCondenser) -> Condenser:
    """Return the condenser that the argument of ``Histories`` describes. Raises
    ``InvalidCondenser``.
    """
    from foldlog.condensers import Condenser
    from foldlog.condensers.strategies.by_name import condenser_named

    if isinstance(condenser, Condenser):
        return condenser
    strategy = condenser_named(condenser) if isinstance(condenser, str) else None
    if strategy is not None:
        return strategy
    from foldlog.condensers import InvalidCondenser, condenser_from_config, load_condenser

    if isinstance(condenser, os.PathLike) or (
        isinstance(condenser, str) and condenser.endswith(".toml")
    ):
        return load_condenser(condenser)
    if isinstance(condenser, str):
        try:
            return condenser_from_config({"type": condenser})
        except InvalidCondenser as error:
            raise InvalidCondenser(
                f"{error}; if you meant a file, its path must end in .toml"
            ) from None
    if not isinstance(condenser, Mapping):
        raise InvalidCondenser(
            f"condenser is {describe(condenser)}; use the name of a strategy ('digest'), the "
            "path of a file that ends in .toml, a table ({'type': 'digest'}), or a Condenser"
        )
    return condenser_from_config(condenser)
