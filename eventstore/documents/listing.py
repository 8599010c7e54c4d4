"""List conversations by attribute and by last activity.

Attributes are the document ``attributes`` of a conversation. An attribute is a named text, number
or list of texts, such as user, project, title or tags. A read model finds conversations by their
attributes. Every append changes the last activity, but the new value is written only when
conversations are listed. Appends therefore stay fast. A list of conversations may be some seconds
old, and contains the time at which it was made.

See docs/internals/decisions/0035-lists.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument, KeyUnavailable, StoreDamaged
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
from foldlog.eventstore.recorders.types import Conversation, ListedConversation, Record

_FACT: Final = "listed"
"""The store records the position and the time of the newest list under this name."""
_AT_ONCE: Final = 200

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
    the time at which the list was made. The attributes may be newer than ``as_of``, but ``version``
    and ``updated_at`` are not. Pass ``after`` to get the next page; it is None on the last page.
    """

    conversations: tuple[RecentConversation, ...]
    as_of: datetime
    after: tuple[int, int] | None


def recent_conversations(
    database: Database,
    attributes: JsonMap,
    *,
    limit: int,
    after: tuple[int, int] | None,
    age_max_s: float,
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

    Returns:
        A page of conversations.

    Raises:
        InvalidArgument, TypeError: An argument is wrong.
        KeyUnavailable: A conversation that may have the attributes is encrypted under a missing
            key.

    Cost: reading the rows of the page. If the list is older than ``age_max_s`` seconds, the
    conversations with newer events are read too.
    """
    check_whole("limit", limit, 0)
    former_end: object = after
    if former_end is not None:
        if not isinstance(former_end, tuple) or len(former_end) != 2:
            raise TypeError(f"'after' must be the 'after' value of an earlier page, not {after!r}")
        for number in former_end:
            check_whole("after", number)
    if not isinstance(age_max_s, int | float):
        raise TypeError(f"age_max_s must be a number of seconds, not {age_max_s!r}")
    pairs = pairs_of(attributes)
    keys = database.settings.keys
    as_of, unwritten = _bring_up_to_date(database, age_max_s)

    least = min(limit + len(unwritten), NUMBER_MAX)

    def read_page(reader: Reader) -> RecentConversations:
        # ``unwritten`` contains entries that the stored list lacks. Take these entries first, then
        # the entries of the stored list.
        candidates = (
            listing
            for listing in unwritten.values()
            if after is None or (listing.at, listing.key) < after
        )
        if pairs:
            candidates = (
                listing
                for listing in candidates
                if {*pairs_of(_attributes(database, reader, listing) or {})} >= {*pairs}
            )
        listings = [*islice(candidates, limit)]
        # Each key makes other digests of an attribute, so query for plain digests and for the
        # digests of each key.
        for key_id in [None] if keys is None or not pairs else [None, *keys.names]:
            stored = reader.listed(digests_of(pairs, keys, key_id), after, least)
            listings += [listing for listing in stored if listing.key not in unwritten]
        listings = sorted(listings, key=attrgetter("at", "key"), reverse=True)[:limit]
        is_full = limit > 0 and len(listings) == limit
        return RecentConversations(
            tuple([_recent(database, reader, listing) for listing in listings]),
            from_microseconds(as_of),
            (listings[-1].at, listings[-1].key) if is_full else None,
        )

    page = database.recorder.query(read_page)
    if pairs and page.after is None:
        check_no_key_is_missing(database, "more conversations may have these attributes too")
    return page


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


def _bring_up_to_date(
    database: Database, age_max_s: float
) -> tuple[int, Mapping[int, ListedConversation]]:
    """Update the list of conversations if it is older than ``age_max_s`` seconds. Return the time
    of the list, in microseconds since 1970. If the list cannot be written now, its missing
    entries are returned too, as a map from the key of each conversation to its entry.
    """
    now = database.now()
    recorder = database.recorder
    try:
        followed, _, listed_at = (recorder.value(_FACT) or "0 0").partition(" ")
        after = 0 if followed == "0" else recorder.position(followed)
        as_of = int(listed_at)
    except (ValueError, InvalidArgument):  # the stored value is damaged, so make the list again
        after = as_of = 0
    is_young = 0 <= now - as_of < age_max_s * 1_000_000  # the clock may have been set back
    if is_young and not recorder.query(lambda reader: reader.to_list_again(_NOT_LISTED)):
        return as_of, {}
    data_version = database.data_version()
    min_version = _NOT_LISTED if database.settings.keys is None else _NEEDS_KEY
    late = database.late
    # If no process has committed since the last update of the list, the list lacks only the entries
    # that this update could not write.
    is_current = late.data_version == data_version
    if is_current:
        until = late.until
        unlisted = [*late.unlisted]
    else:
        until, touched = recorder.query(lambda reader: reader.touched(after, min_version))
        unlisted = sorted(touched)
    has_changes = bool(unlisted) or until != after or not as_of
    while unlisted and recorder.offer(
        partial(_list_some, database=database, touched=unlisted[:_AT_ONCE])
    ):
        unlisted = unlisted[_AT_ONCE:]
    if not unlisted:
        database.late = NOTHING_LATE
        if has_changes:
            recorder.offer(lambda transaction: transaction.set_value(_FACT, f"{until} {now}"))
        return now, {}
    listings = late.listings
    if not is_current:
        listings = recorder.query(lambda reader: _read_listings(database, reader, unlisted))
    database.late = Late(data_version, until, unlisted, listings)
    return now, listings


def _read_listings(
    database: Database, reader: Reader, unlisted: Iterable[tuple[int, int]]
) -> Mapping[int, ListedConversation]:
    states = [_newest(database, reader, key, 0) for key, _ in unlisted]
    listings = [_as_listed(newest) for newest in states if newest is not None]
    listings.sort(key=attrgetter("at", "key"), reverse=True)
    return {listing.key: listing for listing in listings}


def _list_some(
    transaction: Transaction, database: Database, touched: Iterable[tuple[int, int]]
) -> None:
    # ``touched`` pairs the key of a conversation with the version of its entry in the list.
    for key, listed_at in touched:
        newest = _newest(database, transaction, key, listed_at)
        if newest is None:
            continue
        conversation = newest.conversation
        attributes = newest.attributes
        if conversation.archived or isinstance(attributes, Record):
            # the list keeps the attributes of an archived conversation
            at = conversation.updated_at or conversation.created_at
            transaction.put_listing(key, at, newest.version, None)
            continue
        writing = WriteTransaction(transaction, conversation, database)
        if newest.are_listed:
            writing.list_as(newest.version, None)
        elif attributes is None:
            writing.list_as(newest.version, [EVERY])
        else:
            list_again(writing, attributes)
            writing.end()


def _newest(database: Database, reader: Reader, key: int, listed_at: int) -> _Newest | None:
    # None means that the list must not contain the conversation.
    # A damaged conversation keeps its earlier entry, and ``verify`` reports the damage.
    with suppress(CorruptEvent, StoreDamaged):
        conversation = database.find_key(reader, key)
        if (
            conversation is None
            or conversation.erasure is not None
            or not conversation.visible
            or conversation.version == 0
        ):
            return None
        version = conversation.version
        if conversation.archived:
            stored = reader.records(key, ATTRIBUTES, version, 1, backwards=True)
            return _Newest(conversation, version, stored[0] if stored else {})
        reading = ReadTransaction(reader, conversation, database)
        try:
            last_change = reading.documents_before(version)
            if last_change is not None and last_change.id < listed_at:
                return _Newest(conversation, version, None, are_listed=True)
            attributes = newest_value(reading, ATTRIBUTES) or {}
            pairs_of(attributes)  # raises an error if the attributes have a wrong form
            return _Newest(conversation, version, attributes)
        except KeyUnavailable:
            return _Newest(conversation, _NEEDS_KEY, None)
        except (CorruptEvent, InvalidArgument):
            return _Newest(conversation, version, None)
    return None


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
    attributes = listing.attributes
    if not isinstance(attributes, Record) and not listing.is_record_missing:
        return attributes if attributes or listing.version == _NEEDS_KEY else {}
    with suppress(KeyUnavailable):
        conversation = database.find_key(reader, listing.key) if listing.is_encrypted else None
        if conversation is None:
            codec = RowCodec(listing.id, None, NOTHING_PENDING)
        else:
            codec = database.codec_of(conversation)
        if isinstance(attributes, Record):
            record = codec.decoded_record(ATTRIBUTES, attributes)
            if record is not None:
                return decode_attributes(record.body)
        conversation = conversation or database.find_key(reader, listing.key)
        if conversation is None:
            return None
        return newest_value(ReadTransaction(reader, conversation, database), ATTRIBUTES) or {}
    return None
