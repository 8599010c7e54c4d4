"""Bring the stored list of conversations up to date. Every append changes the last activity of its
conversation, but the new value is written only when conversations are listed, or by ``foldlog store
keep-up``. Appends therefore stay fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from time import monotonic
from typing import Any, Final, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument, KeyUnavailable, StoreDamaged
from foldlog.eventstore.events import ATTRIBUTES
from foldlog.eventstore.log.database import NOTHING_LATE, Database, Late
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, list_again, pairs_of
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, ListedConversation, Record

_FACT: Final = "listed"
"""The store records the position and the time of the newest list under this name."""
_AT_ONCE: Final = 100
"""The number of conversations that a list brings up to date, unless it has to be complete. A list
also reads the same number of conversations with the newest events if more have changed.
"""
_EVENTS_AT_ONCE: Final = 100
_WRITES_S: Final = 0.02
"""A transaction that lists conversations ends after this time, because other writers wait for it:
an entry with 1,000 attributes takes 40 ms (``python -m benchmarks.tenants many-attributes``).
"""

# A list entry may have one of these values instead of a version:
_NOT_LISTED: Final = -1
NEEDS_KEY: Final = -2
"""A process that has the key must list the conversation."""


class _Newest(NamedTuple):
    """The newest state of a conversation, for its list entry. ``attributes`` is None if the
    attributes cannot be read. ``attributes`` is also None if ``are_listed`` is true, because the
    list already contains the attributes. For an archived conversation, ``attributes`` is the stored
    ``Record``, which is not decoded.
    """

    conversation: Conversation
    version: int
    attributes: JsonMap | Record | None
    are_listed: bool = False

    @property
    def at(self) -> int:
        """The time of the last event, or for an import without events the time when it began."""
        return self.conversation.changed_at


class Progress(NamedTuple):
    """How much of the store the stored list contains.

    ``after``  the list contains all events up to this position; 0 while the first list is made
    ``as_of``  the time of these events, in microseconds since 1970; 0 if it is unknown. While the
               first list is made, the time when its making began
    ``key``    while the first list is made, it contains the conversations up to this key
    ``until``  while the first list is made, the last position when its making began
    """

    after: Any = 0
    as_of: int = 0
    key: int = 0
    until: Any = None

    @classmethod
    def read(cls, database: Database) -> Progress:
        """Read the stored progress. Nothing counts as listed if the stored value is damaged."""
        recorder = database.recorder
        try:
            after, as_of, *first = (recorder.value(_FACT) or "0 0").split(" ")
            if after != "0":
                return cls(recorder.position(after), int(as_of))
            if not first:
                return cls(0, int(as_of))
            key, until = first
            return cls(0, int(as_of), int(key), recorder.position(until))
        except (ValueError, InvalidArgument):  # the stored value is damaged, so list all again
            return cls()

    def __str__(self) -> str:
        if self.until is None:
            return f"{self.after} {self.as_of}"
        return f"{self.after} {self.as_of} {self.key} {self.until}"


class _Step(NamedTuple):
    """The next conversations to list, and the progress once they are listed. ``is_last`` says
    whether the list is then complete.
    """

    touched: Sequence[tuple[int, int]]
    progress: Progress
    is_last: bool


class ListState(NamedTuple):
    """The list after an update. ``unwritten`` maps the key of a conversation to its entry, if the
    stored list lacks the entry.
    """

    as_of: int
    is_complete: bool
    unwritten: Mapping[int, ListedConversation]


def bring_up_to_date(database: Database, age_max_s: float, *, is_complete: bool) -> ListState:
    """Update the list of conversations if it is older than ``age_max_s`` seconds.

    Unless ``is_complete`` is set, a call lists about ``_AT_ONCE`` conversations, the oldest changes
    first. If more conversations have changed, the newest changes are read in addition, so that a
    list contains what was just written.
    """
    now = database.now()
    stored = Progress.read(database)
    age = now - stored.as_of  # the clock may have been set back
    is_young = stored.until is None and 0 <= age < age_max_s * 1_000_000
    recorder = database.recorder
    pending = recorder.query(lambda reader: reader.to_list_again(_min_version(database)))
    if is_young and all(version < _NOT_LISTED for _, version in pending):
        return ListState(stored.as_of, True, {})
    leaves_some = not is_complete and len(pending) > _AT_ONCE
    unread = list[tuple[int, int]]()
    if leaves_some:
        import random  # with its own imports, it takes milliseconds that few commands need

        read_before = database.late.listings if database.late.base == stored else {}
        unread = [entry for entry in pending if entry[0] not in read_before]
        candidates = unread or pending
        pending = random.sample(candidates, min(_AT_ONCE, len(candidates)))
    progress = stored
    listings: Mapping[int, ListedConversation] = {}
    can_write = _write_entries(database, pending)
    if not can_write:
        if database.late.base == stored:
            # An earlier call has read more than is written.
            progress = database.late.progress
            listings = database.late.listings
        listings = _with_entries(database, listings, pending)
        leaves_some = any(key not in listings for key, _ in unread)
    leaves_some = leaves_some and _are_some_listed(database, pending, listings, can_write)
    listed = 0
    is_last = False
    while not is_last and (is_complete or listed < _AT_ONCE):
        step = _next_step(database, progress, now)
        if can_write and not _write_step(database, progress, step):
            can_write = False
            if database.late.base == stored:
                progress = database.late.progress
                listings = {**database.late.listings, **listings}
                step = _next_step(database, progress, now)
        if not can_write:
            listings = _with_entries(database, listings, step.touched)
        listed += len(step.touched)
        progress = step.progress
        is_last = step.is_last
    if can_write:
        database.late = NOTHING_LATE
    else:
        database.late = Late(stored, progress, listings)
    if not is_last:
        keys = recorder.query(database.newest_changed)[:_AT_ONCE]
        listings = _with_entries(database, listings, [(key, 0) for key in keys])
    if leaves_some or progress.until is not None:
        return ListState(0, False, listings)
    return ListState(progress.as_of, is_last, listings)


def _are_some_listed(
    database: Database,
    sample: Sequence[tuple[int, int]],
    listings: Mapping[int, ListedConversation],
    can_write: bool,
) -> bool:
    """Return whether some conversations of ``sample`` no longer wait to be listed. Then this
    process may also list others that wait. If not, it lacks their keys, and has nothing to add.
    """
    if can_write:
        waiting_rows = database.recorder.query(
            lambda reader: reader.to_list_again(_min_version(database))
        )
        waiting = {key for key, _ in waiting_rows}
    else:
        waiting = {key for key, listing in listings.items() if listing.version == NEEDS_KEY}
    return any(key not in waiting for key, _ in sample)


def _min_version(database: Database) -> int:
    """Return the least version of list entries that this process has to write again."""
    return _NOT_LISTED if database.settings.keys is None else NEEDS_KEY


def _next_step(database: Database, progress: Progress, now: int) -> _Step:
    """Return the next step: conversations with newer events, or, while the first list is made, the
    conversations with the next keys.
    """
    recorder = database.recorder
    if progress.after != 0:
        until, at, touched = recorder.query(
            lambda reader: reader.next_touched(progress.after, _EVENTS_AT_ONCE)
        )
        if at is None:
            as_of = now
        else:
            as_of = at or progress.as_of
        return _Step(sorted(touched), Progress(until, as_of), at is None)
    begins = progress.until is None
    if begins:
        progress = Progress(0, now, 0, database.last_position)
    touched = recorder.query(lambda reader: reader.visible_behind(progress.key, _AT_ONCE))
    if len(touched) == _AT_ONCE:
        return _Step(touched, progress._replace(key=touched[-1][0]), is_last=False)
    return _Step(touched, Progress(progress.until, progress.as_of), is_last=begins)


def _write_step(database: Database, before: Progress, step: _Step) -> bool:
    """Write the entries of a step and the new progress. Return False if the store cannot be written
    now.
    """
    if not _write_entries(database, step.touched):
        return False
    if not step.touched and before.after == step.progress.after and before.as_of:
        return True  # nothing has changed
    return database.recorder.offer(
        lambda transaction: transaction.set_value(_FACT, str(step.progress))
    )


def _write_entries(database: Database, touched: Sequence[tuple[int, int]]) -> bool:
    """Write list entries. Return False if the store cannot be written now."""
    parts = database.recorder.by_store(touched, itemgetter(0))
    return all(_write_entries_of_store(database, part) for part in parts)


def _write_entries_of_store(database: Database, touched: Sequence[tuple[int, int]]) -> bool:
    begin = 0
    while begin < len(touched):
        some = touched[begin : begin + _AT_ONCE]
        listed = 0

        def write(transaction: Transaction, some: Sequence[tuple[int, int]] = some) -> None:
            nonlocal listed
            listed = _list_some(transaction, database, some)

        if not database.recorder.offer(write):
            return False
        begin += listed
    return True


def _with_entries(
    database: Database,
    listings: Mapping[int, ListedConversation],
    touched: Sequence[tuple[int, int]],
) -> Mapping[int, ListedConversation]:
    """Add the present entries of conversations, and leave out those that were erased."""
    keys = [key for key, _ in touched]
    if not keys:
        return listings
    present = database.recorder.query(lambda reader: _read_entries(database, reader, keys))
    others = {key: listing for key, listing in listings.items() if key not in keys}
    return others | {listing.key: listing for listing in present}


def read_again(
    database: Database, reader: Reader, listings: Iterable[ListedConversation]
) -> Iterator[ListedConversation]:
    """Yield the present entries of the same conversations, without those that were erased."""
    remaining = iter(listings)
    while keys := [listing.key for listing in islice(remaining, _AT_ONCE)]:
        present = {listing.key: listing for listing in _read_entries(database, reader, keys)}
        yield from (present[key] for key in keys if key in present)


def _read_entries(
    database: Database, reader: Reader, keys: Sequence[int]
) -> Sequence[ListedConversation]:
    """Return the present entries of the conversations with these keys, without those that were
    erased.
    """
    stored = {listing.key: listing for listing in reader.listed_among(keys)}
    touched = [(key, stored[key].version if key in stored else _NOT_LISTED) for key in keys]
    entries = list[ListedConversation]()
    for newest in _newest_of(database, reader, touched):
        if newest is None:
            continue
        if newest.are_listed:
            listing = stored[newest.conversation.key]
            entries.append(listing._replace(at=newest.at, version=newest.version))
        else:
            entries.append(_as_listed(newest))
    return entries


def _list_some(
    transaction: Transaction, database: Database, touched: Sequence[tuple[int, int]]
) -> int:
    """List conversations for some time, at least one, and return their number. ``touched`` pairs
    the key of a conversation with the version of its entry in the list.
    """
    until = monotonic() + _WRITES_S
    stored: Mapping[int, ListedConversation] = {}
    with suppress(StoreDamaged):  # a damaged entry is written again
        entries = transaction.listed_among([key for key, _ in touched])
        stored = {entry.key: entry for entry in entries}
    listed = 0
    for newest in _newest_of(database, transaction, touched):
        if newest is not None:
            _list_one(transaction, database, newest, stored.get(newest.conversation.key))
        listed += 1
        if monotonic() > until:
            break
    return listed


def _list_one(
    transaction: Transaction, database: Database, newest: _Newest, stored: ListedConversation | None
) -> None:
    """Write the entry of a conversation into the stored list, or bring its entry up to date."""
    conversation = newest.conversation
    attributes = newest.attributes
    is_there = stored is not None and (stored.at, stored.version) == (newest.at, newest.version)
    if newest.are_listed and is_there:
        return  # the append that set the attributes has written the entry
    if conversation.archived or isinstance(attributes, Record):
        # the list keeps the attributes of an archived conversation
        transaction.put_listing(conversation.key, newest.at, newest.version, None)
        return
    writing = WriteTransaction(transaction, conversation, database)
    if newest.are_listed:
        writing.list_as(newest.version, None)
    elif attributes is None:
        writing.list_as(newest.version, [EVERY])
    else:
        list_again(writing, attributes)
        writing.end()


def _newest_of(
    database: Database, reader: Reader, touched: Sequence[tuple[int, int]]
) -> Iterator[_Newest | None]:
    """Yield what ``_newest`` returns for each conversation. Most conversations are read together,
    because a query for each would take most of the time.
    """
    keys = [key for key, _ in touched]
    states: Mapping[int, Conversation] = {}
    changes: Mapping[int, int] = {}
    with suppress(StoreDamaged):  # the sound conversations are then read one by one
        states = {state.key: state for state in reader.conversations_among(keys)}
        changes = reader.last_changes(keys)
    for key, listed_at in touched:
        state = states.get(key)
        last_change = changes.get(key, -1)
        is_plain = (
            state is not None
            and state.visible
            and state.erasure is None
            and state.sealed_key is None
            and state.version > 0
            and not state.lacks_events
        )
        if state is None or not is_plain or last_change >= max(listed_at, 0):
            yield _newest(database, reader, key, listed_at)
        elif listed_at > 0:
            yield _Newest(state, state.version, None, are_listed=True)
        else:
            yield _Newest(state, state.version, {})


def _newest(database: Database, reader: Reader, key: int, listed_at: int) -> _Newest | None:
    """Return the newest state of a conversation whose list entry has the version ``listed_at``.
    Return None if its entry must not change: the list must not contain the conversation, or the
    conversation is damaged, which ``verify`` reports.
    """
    try:
        conversation = database.find_key(reader, key)
        if (
            conversation is None
            or conversation.erasure is not None
            or not conversation.visible
            or conversation.version == 0
        ):
            return None
        return _read_newest(database, reader, conversation, listed_at)
    except (CorruptEvent, StoreDamaged):
        return None


def _read_newest(
    database: Database, reader: Reader, conversation: Conversation, listed_at: int
) -> _Newest:
    """Read the attributes of a conversation, unless its list entry already has the newest."""
    version = conversation.version
    if conversation.archived:
        stored = reader.records(conversation.key, ATTRIBUTES, version, 1, backwards=True)
        return _Newest(conversation, version, stored[0] if stored else {})
    reading = ReadTransaction(reader, conversation, database)
    try:
        last_change = reading.documents_before(version)
        if last_change is not None and last_change.id < listed_at:
            return _Newest(conversation, version, None, are_listed=True)
        attributes = newest_value(reading, ATTRIBUTES) or {}
        pairs_of(attributes)  # raises an error if the attributes have a wrong form
    except KeyUnavailable:
        return _Newest(conversation, NEEDS_KEY, None)
    except (CorruptEvent, InvalidArgument):
        return _Newest(conversation, version, None)
    return _Newest(conversation, version, attributes)


def _as_listed(newest: _Newest) -> ListedConversation:
    """Return the row of the list for the newest state of a conversation."""
    conversation = newest.conversation
    return ListedConversation(
        conversation.key,
        conversation.id,
        conversation.created_at,
        conversation.key_id is not None,
        newest.at,
        newest.version,
        newest.attributes,
    )
