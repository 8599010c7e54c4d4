"""Erase whole conversations, with what is stored beside them."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import accumulate, chain
from typing import Any

from foldlog._archive.redacting import imported_at, source_files
from foldlog._conversations.companions import (
    companion_of,
    companions,
    forked_from,
    sub_agents,
)
from foldlog._files.written_files import (
    note_sources,
)
from foldlog._privacy.redacting import holders
from foldlog.eventstore import (
    NOT_RECORDED,
    ConversationErased,
    ConversationHasForks,
    ConversationRow,
    EventStoreError,
    InvalidArgument,
    Store,
    VersionConflict,
    confirm,
    recent_conversations,
)
from foldlog.eventstore.maintenance import (
    erase,
)
from foldlog.eventstore.maintenance.unfinished import purge


def finish_erasing(
    work: Iterable[tuple[ConversationRow, EventStoreError | None]],
    on_stay: Callable[[str], object] | None = None,
) -> tuple[ConversationRow, ...]:
    """Do the erasures in ``work``, and return the erased conversations. The text of each error is
    passed to ``on_stay``. Without ``on_stay``, the last error is raised after all erasures.
    """
    erased: list[ConversationRow] = []
    last_error: EventStoreError | None = None
    for row, error in work:
        if error is None:
            erased.append(row)
        elif on_stay is not None:
            on_stay(str(error))
        else:
            last_error = error
    if last_error is not None:
        raise last_error
    return tuple(erased)


def conversations_with(
    store: Store,
    attributes: Mapping[str, Any] | None = None,
    before: datetime | None = None,
    *,
    and_shared: bool = False,
) -> list[ConversationRow]:
    """Return the conversations with these attributes, and their companions. With ``before``, a
    conversation is left out if it, or one of its companions, has a later event or imported record.

    A companion can belong to a path, such as ``app/user``, and so to all conversations below the
    path. Such a companion is returned only if all these conversations are returned. Unless
    ``and_shared`` is set, the companion must also have the attributes.
    """
    ids = ids_with(store, attributes) if attributes else None
    rows = [row for row in store.iter_conversations() if row.erased_at is None]
    young_ids = set[str]()
    if before is not None:
        imports = imported_at(store)
        for row in rows:
            if max(row.updated_at, imports.get(row.id, row.updated_at)) >= before:
                young_ids |= {row.id, companion_of(row.id)}
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


def _paths_of(ids: Iterable[str]) -> set[str]:
    """Return the ids and all paths above them. For ``a/b/c``, these are ``a/b`` and ``a``."""
    paths = {path for name in ids for path in accumulate(name.split("/"), "{}/{}".format)}
    return paths - {""}


def ids_with(store: Store, attributes: Mapping[str, Any]) -> set[str]:
    ids = set[str]()
    after = None
    while True:
        page = recent_conversations(
            store.database, attributes, limit=1_000, after=after, age_max_s=0
        )
        ids |= {row.id for row in page.conversations}
        if (after := page.after) is None:
            return ids


def and_forks(
    store: Store, rows: Iterable[ConversationRow], except_ids: Container[str] = frozenset()
) -> list[ConversationRow]:
    rows_by_id = {row.id: row for row in rows}
    for name in [row.id for row in rows_by_id.values() if row.erased_at is None]:
        with suppress(ConversationErased):  # The conversation was erased after it was listed.
            forks = store.forks_sharing(name, NOT_RECORDED)
            rows_by_id |= {
                fork: store.conversation(fork)
                for fork in forks
                if fork not in rows_by_id and fork not in except_ids
            }
    return [*rows_by_id.values()]


def erase_conversations(
    store: Store,
    rows: Iterable[ConversationRow],
    *,
    reason: str,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: Mapping[str, ConversationRow] | None = None,
    complete: bool = True,
) -> tuple[ConversationRow, ...]:
    """Erase all conversations that can be erased. If a conversation cannot be erased, go on with
    the next conversation, and raise the last error at the end.
    """
    work = iter_erased(
        store,
        rows,
        reason=reason,
        with_forks=with_forks,
        detach_forks=detach_forks,
        expected=expected,
        complete=complete,
    )
    return finish_erasing(work)


def iter_erased(
    store: Store,
    rows: Iterable[ConversationRow],
    *,
    reason: str,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: Mapping[str, ConversationRow] | None = None,
    stays: Callable[[str], EventStoreError | None] = lambda conversation: None,
    complete: bool = True,
    dry_run: bool = False,
) -> Iterator[tuple[ConversationRow, EventStoreError | None]]:
    """Erase conversations. A fork is erased before the conversation whose events it shares. For
    each erased conversation, yield its tombstone and None. For each other conversation, yield its
    row and the error. A conversation is not erased if it has newer events than its row in
    ``expected``, or if ``stays`` returns an error. With ``dry_run``, erase nothing, and yield rows
    instead of tombstones.
    """
    if with_forks and detach_forks:
        raise InvalidArgument(
            "with_forks erases the forks, and detach_forks keeps them; use only one of the two"
        )
    rows_by_id = {row.id: row for row in rows}
    erased_ids = set[str]()
    top_rows = (row for row in rows_by_id.values() if companion_of(row.id) not in rows_by_id)
    remaining = sorted(top_rows, key=lambda row: (_depth(row, rows_by_id), row.created_at))
    erase_one = partial(
        erase.erase, store, reason=reason, with_forks=with_forks, detach_forks=detach_forks
    )
    while remaining:
        row = remaining.pop()
        if row.id in erased_ids:
            continue
        reason_to_stay = stays(row.id)
        if reason_to_stay is not None:
            yield row, reason_to_stay
            continue
        forks = and_forks(store, [row], erased_ids)[1:]
        forks.reverse()  # A fork of a fork comes first.
        sources = source_files(store, [member.id for member in (row, *forks)])
        origins = forked_from(store, row.id)
        erased_rows = [*forks, row] if with_forks else [row]
        noted_names: list[str] = []
        try:
            if not dry_run:
                paths = chain.from_iterable(sources.values())
                noted_names = note_sources(store, paths, [member.id for member in (row, *forks)])
                tombstone = erase_one(row.id, complete=False, expected=(expected or {}).get(row.id))
                fork_rows = [store.conversation(member.id) for member in erased_rows[:-1]]
                # Forks without a tombstone were detached before.
                erased_rows = [fork for fork in fork_rows if fork.erased_at is not None]
                erased_rows.append(tombstone)
            elif forks and not (with_forks or detach_forks):
                raise ConversationHasForks(
                    row.id, tuple(fork.id for fork in forks if fork.parent == row.id)
                )
        except (ConversationHasForks, VersionConflict) as error:
            for name in noted_names:
                confirm(store, name, None)
            yield row, error
            continue
        erased_ids |= {member.id for member in erased_rows}
        # Erased companions are erased again only to finish an interrupted erasure.
        remaining += [
            companion
            for companion in companions(store, *(member.id for member in erased_rows))
            if row.erased_at is not None or companion.erased_at is None
        ]
        companion_names = [
            f"companion {companion.id}"
            for companion in companions(store, *origins)
            if companion.erased_at is None
        ]
        agents = [f"sub-agent {name}" for name in sub_agents(store, row.id)]
        last_row = erased_rows[-1]
        erased_rows[-1] = last_row._replace(
            unconfirmed=(*companion_names, *agents, *last_row.unconfirmed)
        )
        for member in erased_rows:
            names = member.unconfirmed
            if not dry_run:
                names = holders(store, names, {member.id}, sources.get(member.id, ()))
            yield member._replace(unconfirmed=names), None
    if complete and erased_ids and not dry_run:
        _clear(store)


def _depth(row: ConversationRow, rows: dict[str, ConversationRow]) -> int:
    depth = 0
    while row.parent in rows:
        row = rows[row.parent]
        depth = depth + 1
    return depth


def clear(store: Store) -> bool:
    _clear(store)
    return store.database.bytes_pending


def _clear(store: Store) -> None:
    purge(store.database.recorder, "no reader sees the erased data any more")
