"""Read pages of the list of conversations by attribute and by last activity.

Attributes are the document ``attributes`` of a conversation. An attribute is a named text, whole
number, boolean or list of texts, such as user, project, title or tags. A read model finds
conversations by their attributes. A list of conversations may be some seconds old, and contains the
time at which it was made.

See docs/internals/decisions/0035-lists.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import InvalidArgument, KeyUnavailable
from foldlog.eventstore.events import ATTRIBUTES
from foldlog.eventstore.lists.keeping_up import NEEDS_KEY, ListState, bring_up_to_date, read_again
from foldlog.eventstore.log.database import NOTHING_LATE, Database
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.log.keys import key_missing
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.seal import NOTHING_PENDING, RowCodec
from foldlog.eventstore.log.writing import decode_attributes, digests_of, pairs_of
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import ListedConversation, Record

_PAIRS_MAX: Final = 500
"""A list is made with a condition for each attribute and each text in a list. SQLite refuses a
statement with about 1,000 conditions.
"""


class RecentConversation(NamedTuple):
    """A conversation in a list. ``updated_at`` is the time of the conversation's last event.
    ``version`` and ``updated_at`` may be some seconds old. ``version`` is 0 for an import whose
    events are not made yet (``ConversationRow.unmade``), and stays 0 in a store that was opened for
    reading only. ``attributes`` is None if the conversation is encrypted and the store was opened
    without its key.
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

    If many conversations have changed since the last list, or wait for a program that has their
    key, ``is_complete`` is false, and ``as_of`` is long ago. The list then has the newest changes
    and those before ``as_of``. In between, it may lack a conversation, or have its earlier
    activity. The next lists catch up.
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
            these texts. At most 500 attributes and texts in lists.
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
    if len(pairs) > _PAIRS_MAX:
        raise InvalidArgument(
            f"the list is asked for {len(pairs):,} attributes and texts in lists at once; give at"
            f" most {_PAIRS_MAX:,}"
        )
    keys = database.settings.keys
    state = bring_up_to_date(database, age_max_s, is_complete=is_complete)
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
    if isinstance(age_max_s, bool) or not isinstance(age_max_s, int | float):
        raise TypeError(f"age_max_s must be a number of seconds, not {age_max_s!r}")


def _unwritten_page(
    database: Database,
    reader: Reader,
    state: ListState,
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
        in_order = read_again(database, reader, in_order)
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
        return attributes if attributes or listing.version == NEEDS_KEY else {}
    try:
        return _decode_attributes(database, reader, listing)
    except KeyUnavailable:
        return None


def newest_attributes(database: Database, conversation: str) -> JsonMap:
    """Return the attributes that were set in a conversation. The attributes of an archived
    conversation come from their stored record. If the record is damaged, the events are restored.

    Raises ``ConversationNotFound``, ``ConversationErased``, ``KeyUnavailable`` and the errors of
    reading.
    """

    def read(reader: Reader) -> JsonMap:
        state = find_existing(database, reader, conversation)
        if state.archived:
            stored = reader.records(state.key, ATTRIBUTES, state.version, 1, backwards=True)
            if not stored:
                return {}
            attributes = _attributes_in(stored[0], database.codec_of(state))
            if attributes is not None:
                return attributes
        return newest_value(ReadTransaction(reader, state, database), ATTRIBUTES) or {}

    return database.recorder.query(read)


def _attributes_in(stored: Record, codec: RowCodec) -> JsonMap | None:
    """Return the attributes in their record, or None if the record is damaged."""
    record = codec.decoded_record(ATTRIBUTES, stored)
    return None if record is None else decode_attributes(record.body)


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
        stored = _attributes_in(attributes, codec)
        if stored is not None:
            return stored
    conversation = conversation or database.find_key(reader, listing.key)
    if conversation is None:
        return None
    return newest_value(ReadTransaction(reader, conversation, database), ATTRIBUTES) or {}
