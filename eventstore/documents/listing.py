"""List conversations by attribute and by last activity.

Attributes are the document ``attributes`` of a conversation. An attribute is a named text, number
or list of texts, such as user, project, title or tags. A read model finds conversations by their
attributes. Every append changes the last activity, but the new value is written only when
conversations are listed. Appends therefore stay fast. A list of conversations may be some seconds
old, and contains the time at which it was made.

See docs/internals/decisions/0035-lists.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from operator import attrgetter
from time import monotonic
from typing import Any, Final, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import (
    CorruptEvent,
    InvalidArgument,
    KeyUnavailable,
    StoreDamaged,
    count,
)
from foldlog.eventstore.events import ATTRIBUTES
from foldlog.eventstore.log.database import NOTHING_LATE, Database, Late
from foldlog.eventstore.log.keys import key_missing
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.seal import NOTHING_PENDING, RowCodec
from foldlog.eventstore.log.writing import (
    EVERY,
    WriteTransaction,
    decode_attributes,
    digests_of,
    list_again,
    pairs_of,
)
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import (
    Conversation,
    ListedConversation,
    Record,
)

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
_NEEDS_KEY: Final = -2  # a process that has the key must list the conversation


class RecentConversation(NamedTuple):
    """A conversation in a list. ``updated_at`` is the time of the conversation's last event.
    ``version`` and ``updated_at`` may be some seconds old. ``attributes`` is None if the
    conversation is encrypted and the store was opened without its key.
    """

    id: str
    version: int
    created_at: datetime
    updated_at: datetime
    attributes: JsonMap | None


class RecentConversations(NamedTuple):
    """A page of conversations, sorted by last activity from the newest to the oldest. ``as_of`` is
    the time up to which the list has all changes. Newer changes may be in it too. Pass ``after`` to
    get the next page; it is None on the last page.

    If many conversations have changed since the last list, ``is_complete`` is false, and ``as_of``
    is long ago. The list then has the newest changes and those before ``as_of``. In between, it may
    lack a conversation, or have its earlier activity. The next lists catch up.
    """

    conversations: tuple[RecentConversation, ...]
    as_of: datetime
    after: tuple[int, int] | None
    is_complete: bool = True


def recent_conversations(
    database: Database,
    attributes: JsonMap,
    *,
    limit: int,
    after: tuple[int, int] | None,
    age_max_s: float,
    is_complete: bool = False,
) -> RecentConversations:
    """Return the conversations that have all attributes, sorted by last activity from the newest to
    the oldest.

    Args:
        database: The database of a store.
        attributes: The attributes. If an attribute is a list, the conversation's list must contain
            these texts.
        limit: The maximal number of conversations.
        after: The ``after`` of the last page, or None for the first page.
        age_max_s: The maximal age of the list in seconds. Attributes are always up to date.
        is_complete: Whether to list all changes, however many there are.

    Returns:
        A page of conversations.

    Raises:
        InvalidArgument, TypeError: An argument is wrong.
        KeyUnavailable: A conversation that may have the attributes is encrypted under a missing
            key.

    Cost: reading the rows of the page. If the list is older than ``age_max_s`` seconds, up to 200
    conversations with newer events are read too, or all of them if ``is_complete`` is set.
    """
    _check_page(limit, after, age_max_s)
    pairs = pairs_of(attributes)
    keys = database.settings.keys
    state = _bring_up_to_date(database, age_max_s, is_complete=is_complete)
    unwritten = state.unwritten
    least = min(limit + len(unwritten), NUMBER_MAX)

    def read_page(reader: Reader) -> RecentConversations:
        # ``unwritten`` contains entries that the stored list lacks. Take these entries first, then
        # the entries of the stored list.
        listings = [*islice(_unwritten_page(database, reader, state, pairs, after), limit)]
        # Each key makes other digests of an attribute, so query for plain digests and for the
        # digests of each key.
        for key_id in [None] if keys is None or not pairs else [None, *keys.names]:
            stored = reader.listed(digests_of(pairs, keys, key_id), after, least)
            listings += [listing for listing in stored if listing.key not in unwritten]
        listings = sorted(listings, key=attrgetter("at", "key"), reverse=True)[:limit]
        is_full = limit > 0 and len(listings) == limit
        return RecentConversations(
            tuple([_recent(database, reader, listing) for listing in listings]),
            from_microseconds(state.as_of),
            (listings[-1].at, listings[-1].key) if is_full else None,
            state.is_complete,
        )

    page = database.recorder.query(read_page)
    if pairs and page.after is None:
        check_no_key_is_missing(database, "more conversations may have these attributes too")
    return page


def _check_page(limit: object, after: object, age_max_s: object) -> None:
    """Raise ``InvalidArgument`` or ``TypeError`` if an argument of a page is wrong."""
    check_whole("limit", limit, 0)
    if after is not None:
        if not isinstance(after, tuple) or len(after) != 2:
            raise TypeError(f"'after' must be the 'after' value of an earlier page, not {after!r}")
        for number in after:
            check_whole("after", number)
    if not isinstance(age_max_s, int | float):
        raise TypeError(f"age_max_s must be a number of seconds, not {age_max_s!r}")


def _unwritten_page(
    database: Database,
    reader: Reader,
    state: _State,
    pairs: Sequence[bytes],
    after: tuple[int, int] | None,
) -> Iterator[ListedConversation]:
    """Yield the entries behind ``after`` that the stored list lacks and that have all attributes in
    ``pairs``, from the newest to the oldest.
    """
    in_order: Iterable[ListedConversation] = sorted(
        state.unwritten.values(), key=attrgetter("at", "key"), reverse=True
    )
    if database.late is not NOTHING_LATE and not state.is_complete:
        # This process read them in earlier calls, and the update may not have reached a later
        # erasure. What was erased must not be shown.
        in_order = _read_again(database, reader, in_order)
    for listing in in_order:
        if after is not None and (listing.at, listing.key) >= after:
            continue
        if pairs and not {*pairs_of(_attributes(database, reader, listing) or {})} >= {*pairs}:
            continue
        yield listing


def check_no_key_is_missing(database: Database, problem: str) -> None:
    """Raise ``KeyUnavailable`` if a key of the store is missing, so that values of encrypted
    conversations cannot be compared.
    """
    keys = database.settings.keys
    used_keys = database.recorder.value("key_ids").split()
    missing = ", ".join(name for name in used_keys if keys is None or name not in keys.names)
    if missing:
        raise key_missing(f"{problem}, but they are encrypted", missing, keys)


# --- the read model ---


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


class _Progress(NamedTuple):
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
    def read(cls, database: Database) -> _Progress:
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
    progress: _Progress
    is_last: bool


class _State(NamedTuple):
    """The list after an update. ``unwritten`` maps the key of a conversation to its entry, if the
    stored list lacks the entry.
    """

    as_of: int
    is_complete: bool
    unwritten: Mapping[int, ListedConversation]


def _bring_up_to_date(database: Database, age_max_s: float, *, is_complete: bool) -> _State:
    """Update the list of conversations if it is older than ``age_max_s`` seconds.

    Unless ``is_complete`` is set, a call lists about ``_AT_ONCE`` conversations, the oldest changes
    first. If more conversations have changed, the newest changes are read in addition, so that a
    list contains what was just written.
    """
    now = database.now()
    stored = _Progress.read(database)
    age = now - stored.as_of  # the clock may have been set back
    is_young = stored.until is None and 0 <= age < age_max_s * 1_000_000
    recorder = database.recorder
    pending = recorder.query(lambda reader: reader.to_list_again(_min_version(database)))
    if is_young and all(version < _NOT_LISTED for _, version in pending):
        return _State(stored.as_of, True, {})
    if not is_complete and len(pending) > _AT_ONCE:
        import random  # with its own imports, it takes milliseconds that few commands need

        pending = random.sample(pending, _AT_ONCE)
    progress = stored
    listings: Mapping[int, ListedConversation] = {}
    can_write = _write_entries(database, pending)
    if not can_write:
        listings = _with_entries(database, listings, pending)
    listed = 0
    is_last = False
    while not is_last and (is_complete or listed < _AT_ONCE):
        step = _next_step(database, progress, now)
        if can_write and not _write_step(database, progress, step):
            can_write = False
            if database.late.base == stored:
                # An earlier call has read more than is written.
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
    as_of = progress.as_of if progress.until is None else 0
    return _State(as_of, is_last, listings)


def _min_version(database: Database) -> int:
    """Return the least version of list entries that this process has to write again."""
    return _NOT_LISTED if database.settings.keys is None else _NEEDS_KEY


def _next_step(database: Database, progress: _Progress, now: int) -> _Step:
    """Return the next step: conversations with newer events, or, while the first list is made, the
    conversations with the next keys.
    """
    recorder = database.recorder
    if progress.after != 0:
        until, at, touched = recorder.query(
            lambda reader: reader.next_touched(progress.after, _EVENTS_AT_ONCE)
        )
        as_of = now if at is None else at or progress.as_of
        return _Step(sorted(touched), _Progress(until, as_of), at is None)
    begins = progress.until is None
    if begins:
        progress = _Progress(0, now, 0, database.last_position)
    touched = recorder.query(lambda reader: reader.visible_behind(progress.key, _AT_ONCE))
    if len(touched) == _AT_ONCE:
        return _Step(touched, progress._replace(key=touched[-1][0]), is_last=False)
    return _Step(touched, _Progress(progress.until, progress.as_of), is_last=begins)


def _write_step(database: Database, before: _Progress, step: _Step) -> bool:
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


def _read_again(
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
        conversation = newest.conversation
        if newest.are_listed:
            at = conversation.updated_at or conversation.created_at
            entries.append(stored[conversation.key]._replace(at=at, version=newest.version))
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
    transaction: Transaction,
    database: Database,
    newest: _Newest,
    stored: ListedConversation | None,
) -> None:
    """Write the entry of a conversation into the stored list, or bring its entry up to date."""
    conversation = newest.conversation
    attributes = newest.attributes
    at = conversation.updated_at or conversation.created_at
    is_there = stored is not None and (stored.at, stored.version) == (at, newest.version)
    if newest.are_listed and is_there:
        return  # the append that set the attributes has written the entry
    if conversation.archived or isinstance(attributes, Record):
        # the list keeps the attributes of an archived conversation
        transaction.put_listing(conversation.key, at, newest.version, None)
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
        return _Newest(conversation, _NEEDS_KEY, None)
    except (CorruptEvent, InvalidArgument):
        return _Newest(conversation, version, None)
    return _Newest(conversation, version, attributes)


def _as_listed(newest: _Newest) -> ListedConversation:
    conversation = newest.conversation
    return ListedConversation(
        conversation.key,
        conversation.id,
        conversation.created_at,
        conversation.key_id is not None,
        conversation.updated_at or conversation.created_at,
        newest.version,
        newest.attributes,
    )


def _recent(database: Database, reader: Reader, listing: ListedConversation) -> RecentConversation:
    """Return a list entry with its verified version and its decoded attributes."""
    version = listing.version
    if version <= 0:  # this process lacks the key, so the version was not verified
        conversation = reader.conversation(listing.key)
        version = 0 if conversation is None else conversation.version
    return RecentConversation(
        listing.id,
        version,
        from_microseconds(listing.created_at),
        from_microseconds(listing.at),
        _attributes(database, reader, listing),
    )


def _attributes(database: Database, reader: Reader, listing: ListedConversation) -> JsonMap | None:
    """Return the decoded attributes of a list entry. If their record cannot be read, read them from
    the events. Return None if the key is missing.
    """
    attributes = listing.attributes
    if not isinstance(attributes, Record) and not listing.is_record_missing:
        return attributes if attributes or listing.version == _NEEDS_KEY else {}
    try:
        return _decode_attributes(database, reader, listing)
    except KeyUnavailable:
        return None


def _decode_attributes(
    database: Database, reader: Reader, listing: ListedConversation
) -> JsonMap | None:
    """Decode the attributes of a list entry, or read them from the events. Return None if the
    conversation was deleted. Raises ``KeyUnavailable``.
    """
    attributes = listing.attributes
    conversation = database.find_key(reader, listing.key) if listing.is_encrypted else None
    if conversation is None:
        codec = RowCodec(listing.id, None, NOTHING_PENDING)
    else:
        codec = database.codec_of(conversation)
    if isinstance(attributes, Record):
        record = codec.decoded_record(ATTRIBUTES, attributes)
        stored = None if record is None else decode_attributes(record.body)
        if stored is not None:
            return stored
    conversation = conversation or database.find_key(reader, listing.key)
    if conversation is None:
        return None
    return newest_value(ReadTransaction(reader, conversation, database), ATTRIBUTES) or {}


# -- checking


def find_unlisted(database: Database) -> Iterator[str]:
    """Yield what conversations the lists lack that they had once. Cost: a look at the row of each
    conversation.
    """
    progress = _Progress.read(database)
    until, key = progress.after, NUMBER_MAX
    if progress.until is not None:
        until, key = progress.until, progress.key
    if until == 0:
        return
    unlisted, is_given = database.recorder.query(lambda reader: reader.unlisted(key, until))
    if not is_given:
        yield (
            "the lists of conversations by attribute and activity say that they have events which"
            " the store does not have yet, so they leave out new events; a copy of the store has"
            " correct lists (see 'foldlog store copy --help')"
        )
    elif unlisted:
        yield (
            f"the lists of conversations by attribute and activity lack"
            f" {count(unlisted, 'conversation')}; the events are intact, and a copy of the store"
            " has correct lists (see 'foldlog store copy --help')"
        )


def find_wrong_attributes(database: Database, conversation: str) -> Iterator[str]:
    """Yield the problems of a conversation's list entry: its attributes, version or time differ
    from its events, or its digests, by which lists find it, differ from its attributes. The
    attributes of an archived conversation are not compared.

    Raises ``KeyUnavailable`` and the errors of reading. Cost: reading the newest attributes.
    """

    def read(reader: Reader) -> Iterator[str]:
        state = database.find(reader, conversation, as_stored=True)
        if state is None or state.erasure or state.archived or state.lacks_events:
            return
        attributes = newest_value(ReadTransaction(reader, state, database), ATTRIBUTES) or {}
        codec = database.codec_of(state)
        for stored in reader.records(state.key, ATTRIBUTES, state.version, 1, backwards=True):
            record = codec.decoded_record(ATTRIBUTES, stored)
            if record is not None and decode_attributes(record.body) != attributes:
                yield "its attributes in lists differ from its events"
        try:
            pairs = pairs_of(attributes)
        except InvalidArgument:  # attributes of a wrong form are not listed
            return
        expected = digests_of(pairs, database.settings.keys, state.key_id)
        for version, at, digests in reader.ask("listing_of", state.key):
            is_wrong = version > state.version
            if version == state.version:
                is_wrong = at != (state.updated_at or state.created_at)
            if is_wrong:
                yield "its version or time in lists differs from its events"
            raw = bytes(digests)
            size = len(EVERY)
            listed = {raw[start : start + size] for start in range(0, len(raw), size)}
            if listed and listed != {EVERY, *expected}:
                yield "lists find it by attributes that differ from its events"

    yield from database.recorder.query(lambda reader: [*read(reader)])
