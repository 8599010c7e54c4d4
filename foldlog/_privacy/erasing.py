"""Erase whole conversations, with what is stored beside them."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from datetime import datetime
from itertools import accumulate, chain
from typing import NamedTuple, TypeAlias

from foldlog._base.json_types import JsonMap
from foldlog._imports.redacting import imported_at, source_files
from foldlog._privacy.redacting import holders, unread_source_name
from foldlog._reports.figures.agent_trees import NO_TREES, Trees
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.overview import PARENT, parent_in
from foldlog._reports.figures.source_places import places
from foldlog.eventstore import (
    ATTRIBUTES,
    NOT_RECORDED,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    DocumentChanges,
    Event,
    EventStoreError,
    InvalidArgument,
    Store,
    VersionConflict,
    confirm,
    recent_conversations,
)
from foldlog.eventstore.files.written_files import note_sources
from foldlog.eventstore.lists.pages import newest_attributes
from foldlog.eventstore.maintenance import erase
from foldlog.eventstore.maintenance.unfinished import purge
from foldlog.formats.record import dict_or_empty
from foldlog.projections.conversations.companions import (
    companion_of,
    companions,
    forked_from,
    rows_beginning_with,
)


class Erasure(NamedTuple):
    """The options of an erasure.

    ``expected``     a conversation with newer events than its row here is not erased
    ``stays``        returns an error if a conversation is not to be erased
    ``complete``     on PostgreSQL, vacuum the tables at the end
    ``dry_run``      erase nothing, and return rows instead of tombstones
    ``trees``        a sub-agent is erased before the conversation that began it, so that a killed
                     erasure leaves no sub-agent without its parent
    ``whole_tasks``  no agent of a task is erased if ``stays`` or a fork prevents the erasure of one
                     of them, unless that reason arises only during the erasure
    """

    reason: str
    with_forks: bool = False
    detach_forks: bool = False
    expected: Mapping[str, ConversationRow] = {}
    stays: Callable[[str], EventStoreError | None] = lambda conversation: None
    complete: bool = True
    dry_run: bool = False
    trees: Trees = NO_TREES
    whole_tasks: bool = False


def conversations_with(
    store: Store,
    attributes: JsonMap | None = None,
    before: datetime | None = None,
    *,
    and_shared: bool = False,
    damaged: dict[str, CorruptEvent] | None = None,
) -> list[ConversationRow]:
    """Return the conversations with these attributes, and their companions. With ``before``, a
    conversation is left out if it, or one of its companions, has a later event or imported record.

    The source of a conversation may be damaged, so that its attributes or the time of its last
    import are unknown. This conversation is left out, and the error is added to ``damaged`` under
    its id. Without ``damaged``, the error is raised.

    A companion can belong to a path, such as ``app/user``, and so to all conversations below the
    path. Such a companion is returned only if all these conversations are returned. Unless
    ``and_shared`` is set, the companion must also have the attributes.
    """
    errors = dict[str, CorruptEvent]()
    ids = ids_with(store, attributes, errors) if attributes else None
    rows = [row for row in store.iter_conversations() if row.erased_at is None]
    young_ids = set[str]()
    if before is not None:
        imports = imported_at(store, errors)
        for row in rows:
            is_young = max(row.updated_at, imports.get(row.id, row.updated_at)) >= before
            if row.updated_at >= before:
                errors.pop(row.id, None)  # Its events are young, whatever its source says.
            if is_young or row.id in errors:
                young_ids |= {row.id, companion_of(row.id)}
    if damaged is None and errors:
        raise next(iter(errors.values()))
    if damaged is not None:
        damaged |= errors
    chosen_ids = {
        row.id for row in rows if row.id not in young_ids and (ids is None or row.id in ids)
    }
    staying_ids = {row.id for row in rows if row.id not in chosen_ids and not companion_of(row.id)}
    used_paths = _paths_of(staying_ids)
    owners = {row.id: companion_of(row.id) for row in rows}
    if and_shared:
        chosen_paths = _paths_of(chosen_ids)
        chosen_ids |= {name for name, owner in owners.items() if owner in chosen_paths}
    return [
        row
        for row in rows
        if owners[row.id] in chosen_ids
        or (row.id in chosen_ids and owners[row.id] not in used_paths)
    ]


def not_erased_words(damaged: Mapping[str, CorruptEvent]) -> dict[str, str]:
    """Return why an erasure by age leaves out each conversation in ``damaged``."""
    return {
        name: f"conversation {name!r} is not erased, because the time of its last import or its"
        f" attributes cannot be read; erase it by its id ({error.problem})"
        for name, error in damaged.items()
    }


def not_searched_words(damaged: Mapping[str, CorruptEvent]) -> dict[str, str]:
    """Return why a search by attributes leaves out each conversation in ``damaged``."""
    return {
        name: f"conversation {name!r} was not searched, because its source is damaged and it may"
        f" have the attributes; redact or erase it by its id ({error.problem})"
        for name, error in damaged.items()
    }


def _paths_of(ids: Iterable[str]) -> set[str]:
    """Return the ids and all paths above them. For ``a/b/c``, these are ``a/b`` and ``a``."""
    paths = {path for name in ids for path in accumulate(name.split("/"), "{}/{}".format)}
    return paths - {""}


def ids_with(
    store: Store, attributes: JsonMap, damaged: dict[str, CorruptEvent] | None = None
) -> set[str]:
    """Return the conversations that have all the attributes, also those that an import brought. If
    the source of another conversation is damaged, the conversation may have the attributes: its
    error is added to ``damaged`` under its id, or raised without ``damaged``. Cost: the function
    reads the index of attributes, and the stored fields about all sources.
    """
    errors = dict[str, CorruptEvent]()
    ids = {
        conversation
        for conversation, place in places(store, errors).items()
        if any(place.get(name) == value for name, value in attributes.items())
        and _has(store, conversation, place, attributes)
    }
    after = None
    while True:
        page = recent_conversations(
            store.database, attributes, limit=1_000, after=after, age_max_s=0, is_complete=True
        )
        ids |= {row.id for row in page.conversations}
        if (after := page.after) is None:
            break
    unknown = {name: error for name, error in errors.items() if name not in ids}
    if damaged is None and unknown:
        raise next(iter(unknown.values()))
    if damaged is not None:
        damaged |= unknown
    return ids


def _has(store: Store, conversation: str, place: Mapping[str, str], attributes: JsonMap) -> bool:
    """Return whether the conversation has all the attributes. ``place`` has the attributes that its
    import brought. Attributes that were set later replace them.
    """
    row = store.conversation(conversation, as_stored=True)
    set_attributes: JsonMap = {}
    if row.version and row.erased_at is None:
        set_attributes = newest_attributes(store.database, conversation)
    return attributes.items() <= {**place, **set_attributes}.items()


def and_forks(
    store: Store, rows: Iterable[ConversationRow], except_ids: Container[str] = frozenset()
) -> list[ConversationRow]:
    """Return the rows, followed by the rows of all forks that share events with them, except
    ``except_ids``.
    """
    rows_by_id = {row.id: row for row in rows}
    for name in [row.id for row in rows_by_id.values() if row.erased_at is None]:
        with suppress(ConversationErased):  # The conversation was erased after it was listed.
            forks = store.forks_sharing(name, NOT_RECORDED)
            rows_by_id |= {
                fork: store.conversation(fork, as_stored=True)
                for fork in forks
                if fork not in rows_by_id and fork not in except_ids
            }
    return [*rows_by_id.values()]


def and_children(
    store: Store, rows: Iterable[ConversationRow], trees: Trees
) -> list[ConversationRow]:
    """Return the rows, followed by the rows of all sub-agents below them."""
    rows_by_id = {row.id: row for row in rows}
    for top in [*rows_by_id]:
        for name, _ in trees.below(top):
            if name not in rows_by_id:
                # A sub-agent that figures know may no longer be in the store.
                with suppress(ConversationNotFound):
                    rows_by_id[name] = store.conversation(name, as_stored=True)
    return [*rows_by_id.values()]


def old_tasks(
    store: Store,
    rows: Sequence[ConversationRow],
    before: datetime | None,
    trees: Trees,
    damaged: dict[str, CorruptEvent],
) -> list[ConversationRow]:
    """Return the rows with their sub-agents, but only whole tasks, of which every agent is old.
    ``damaged`` is as in ``conversations_with``.
    """
    old_ids = {row.id for row in conversations_with(store, None, before, damaged=damaged)}
    rows = [row for row in and_children(store, rows, trees) if row.id in old_ids]
    ids = {row.id for row in rows}
    tops = {row.id: trees.task_of(companion_of(row.id) or row.id) for row in rows}
    whole = {
        top
        for top in {*tops.values()}
        if ids.issuperset((top, *(name for name, _ in trees.below(top))))
    }
    return [row for row in rows if tops[row.id] in whole]


def erase_conversations(
    store: Store,
    rows: Iterable[ConversationRow],
    options: Erasure,
    on_stay: Callable[[str], object] | None = None,
) -> tuple[ConversationRow, ...]:
    """Erase all conversations that can be erased, and return them. If a conversation cannot be
    erased, go on with the next conversation, and pass the text of the error to ``on_stay``.
    Without ``on_stay``, raise the last error at the end.
    """
    erased: list[ConversationRow] = []
    last_error: EventStoreError | None = None
    for row, error in iter_erased(store, rows, options):
        if error is None:
            erased.append(row)
        elif on_stay is not None:
            on_stay(str(error))
        else:
            last_error = error
    if last_error is not None:
        raise last_error
    return tuple(erased)


Outcome: TypeAlias = tuple[ConversationRow, EventStoreError | None]


def iter_erased(
    store: Store, rows: Iterable[ConversationRow], options: Erasure
) -> Iterator[Outcome]:
    """Erase conversations. A fork is erased before the conversation whose events it shares. For
    each erased conversation, yield its tombstone and None. For each other conversation, yield its
    row and the error. A conversation also stays if one of its sub-agents in ``rows`` stays.
    """
    if options.with_forks and options.detach_forks:
        raise InvalidArgument(
            "with_forks erases the forks, and detach_forks keeps them; use only one of the two"
        )
    erasing = _Erasing(store, {row.id: row for row in rows}, options)
    yield from erasing.outcomes()
    if options.complete and erasing.erased_ids and not options.dry_run:
        clear(store)


class _Erasing:
    """The state of one call of ``iter_erased``.

    ``remaining``   conversations to erase, the next one last
    ``erased_ids``  the conversations that were erased
    ``staying``     the conversations that were not erased, each with the reason
    """

    def __init__(self, store: Store, rows: Mapping[str, ConversationRow], options: Erasure) -> None:
        self.store = store
        self.options = options
        self.erased_ids = set[str]()
        self.staying = dict[str, EventStoreError]()
        if options.whole_tasks:
            self.staying |= _staying_tasks(store, rows, options)
        # A companion is erased after the conversation that it belongs to.
        top_rows = (row for row in rows.values() if companion_of(row.id) not in rows)
        self.remaining = sorted(
            top_rows, key=lambda row: (len(_above(row, rows, options.trees)), row.created_at)
        )

    def outcomes(self) -> Iterator[Outcome]:
        """Erase the conversations, and yield what ``iter_erased`` yields."""
        while self.remaining:
            row = self.remaining.pop()
            if row.id in self.erased_ids:
                continue
            error = self._reason_to_stay(row)
            members = list[_Member]()
            if error is None:
                try:
                    members = self._erase(row)
                except (ConversationHasForks, VersionConflict) as refusal:
                    error = refusal
            if error is not None:
                self.staying[row.id] = error
                yield row, error
            for member in members:
                yield member.with_holders(self.store, self.options), None

    def _reason_to_stay(self, row: ConversationRow) -> EventStoreError | None:
        """Return why the conversation must not be erased, or None if it may be tried."""
        reason = self.staying.get(row.id) or self.options.stays(row.id)
        if reason is not None:
            return reason
        # A conversation stays with its sub-agents.
        return next(
            (self.staying[name] for name in self._agents_below(row) if name in self.staying), None
        )

    def _agents_below(self, row: ConversationRow) -> list[str]:
        return [name for name, _ in self.options.trees.below(row.id)]

    def _erase(self, row: ConversationRow) -> list[_Member]:
        """Erase a conversation, and its forks if the options say so. Return the erased
        conversations, the forks first.
        """
        forks = and_forks(self.store, [row], self.erased_ids)[1:]
        forks.reverse()  # A fork of a fork comes first.
        unread = set[str]()
        sources = source_files(self.store, [member.id for member in (row, *forks)], unread)
        origins = forked_from(self.store, row.id)
        if self.options.dry_run:
            erased_rows = self._rows_to_erase(row, forks)
        else:
            erased_rows = self._erase_rows(row, forks, sources)
        self.erased_ids |= {member.id for member in erased_rows}
        self.remaining += self._companions_to_erase(row, erased_rows)
        names = (*self._left_beside(row, origins), *erased_rows[-1].unconfirmed)
        erased_rows[-1] = erased_rows[-1]._replace(unconfirmed=names)
        return [
            _Member(member, sources.get(member.id, ()), member.id in unread)
            for member in erased_rows
        ]

    def _rows_to_erase(
        self, row: ConversationRow, forks: Sequence[ConversationRow]
    ) -> list[ConversationRow]:
        """Return what a dry run reports as erased. Raises ``ConversationHasForks`` as an erasure
        does.
        """
        if self.options.with_forks:
            return [*forks, row]
        if forks and not self.options.detach_forks:
            raise _has_forks(row, forks)
        return [row]

    def _erase_rows(
        self,
        row: ConversationRow,
        forks: Sequence[ConversationRow],
        sources: Mapping[str, Sequence[str]],
    ) -> list[ConversationRow]:
        """Return the tombstones. If the conversation stays, no note of its files stays."""
        paths = chain.from_iterable(sources.values())
        noted_names = note_sources(self.store, paths, [member.id for member in (row, *forks)])
        try:
            tombstone = erase.erase(
                self.store,
                row.id,
                reason=self.options.reason,
                with_forks=self.options.with_forks,
                detach_forks=self.options.detach_forks,
                expected=self.options.expected.get(row.id),
                complete=False,
            )
        except (ConversationHasForks, VersionConflict):
            for name in noted_names:
                confirm(self.store, name, None)
            raise
        if not self.options.with_forks:
            return [tombstone]
        fork_rows = (self.store.conversation(fork.id, as_stored=True) for fork in forks)
        # Forks without a tombstone were detached before.
        return [*(fork for fork in fork_rows if fork.erased_at is not None), tombstone]

    def _companions_to_erase(
        self, row: ConversationRow, erased_rows: Iterable[ConversationRow]
    ) -> list[ConversationRow]:
        """Return the companions of the erased conversations that are to be erased next. Erased
        companions are erased again only to finish an interrupted erasure.
        """
        is_again = row.erased_at is not None
        return [
            companion
            for companion in companions(self.store, *(member.id for member in erased_rows))
            if is_again or companion.erased_at is None
        ]

    def _left_beside(self, row: ConversationRow, origins: Iterable[str]) -> list[str]:
        """Return what belongs to an erased conversation and was not erased with it."""
        companion_names = [
            f"companion {companion.id}"
            for companion in companions(self.store, *origins)
            if companion.erased_at is None
        ]
        agents = dict.fromkeys([*self._agents_below(row), *_sub_agents(self.store, row.id)])
        return [
            *companion_names,
            *(f"sub-agent {name}" for name in agents if name not in self.erased_ids),
        ]


class _Member(NamedTuple):
    """An erased conversation, and the files from which it was imported. ``is_unread`` says that
    the paths of these files could not be read.
    """

    row: ConversationRow
    sources: Sequence[str]
    is_unread: bool

    def with_holders(self, store: Store, options: Erasure) -> ConversationRow:
        """Return the row with what may still hold the data. Unlike a dry run, an erasure looks."""
        names = self.row.unconfirmed
        if not options.dry_run:
            names = holders(store, names, {self.row.id}, self.sources)
            if self.is_unread:
                names = (*names, unread_source_name(self.row.id))
        return self.row._replace(unconfirmed=names)


def _staying_tasks(
    store: Store, rows: Mapping[str, ConversationRow], options: Erasure
) -> dict[str, EventStoreError]:
    """Return the conversations in ``rows`` whose task has an agent that cannot be erased, each with
    the reason.
    """
    reasons = dict[str, EventStoreError]()
    tops = dict[str, str]()
    for name, row in rows.items():
        tops[name] = _above(row, rows, options.trees)[-1]
        reason = options.stays(name)
        may_have_forks = options.with_forks or options.detach_forks
        if reason is None and not may_have_forks and row.erased_at is None:
            forks = and_forks(store, [row], rows)[1:]
            reason = _has_forks(row, forks) if forks else None
        if reason is not None:
            reasons.setdefault(tops[name], reason)
    return {name: reasons[top] for name, top in tops.items() if top in reasons}


def _has_forks(row: ConversationRow, forks: Iterable[ConversationRow]) -> ConversationHasForks:
    """Return the error that names the direct forks of the conversation."""
    return ConversationHasForks(row.id, tuple(fork.id for fork in forks if fork.parent == row.id))


def _above(row: ConversationRow, rows: Mapping[str, ConversationRow], trees: Trees) -> list[str]:
    """Return the conversation and the conversations in ``rows`` that must be erased after it."""
    above = [row.id]
    while (name := row.parent or trees.parents.get(row.id, "")) in rows and name not in above:
        above.append(name)
        row = rows[name]
    return above


def _sub_agents(store: Store, conversation: str) -> list[str]:
    """Return the conversations below ``conversation`` whose first event names a parent, as in
    Claude Code, or cannot be read. Figures know more sub-agents, but may not be counted yet.
    """
    return [
        row.id
        for row in rows_beginning_with(store, f"{conversation}/")
        if row.erased_at is None and not companion_of(row.id) and _is_begun_by_another(store, row)
    ]


def _is_begun_by_another(store: Store, row: ConversationRow) -> bool:
    """Return whether the first event names a parent, or cannot be read."""
    if row.unmade or row.archived:
        # Figures are read here, because reading an event would make or restore all events.
        ((_, figures),) = FiguresOfStore(store).of([row])
        overview = figures.overview
        return overview.problem is not None or parent_in(overview.attributes or {}) != ""
    try:
        return any(map(_names_parent, store.events(row.id, 0, 1)))
    except ConversationErased:  # The conversation was erased after it was listed.
        return False
    except EventStoreError:  # The key of the conversation may be missing.
        return True


def _names_parent(first: Event) -> bool:
    """Return whether the first event of a conversation has the attribute ``parent``."""
    attributes: JsonMap = {}
    if type(first) is DocumentChanges:
        attributes = dict_or_empty(first.changed.get(ATTRIBUTES), "value")
    return PARENT in first.meta or PARENT in attributes


def clear(store: Store) -> bool:
    """Remove the bytes of erased data from the store's files. Return whether some of these bytes
    stay for now.
    """
    purge(store.database.recorder, "no reader sees the erased data any more")
    return store.database.bytes_pending
