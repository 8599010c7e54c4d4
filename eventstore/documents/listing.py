"""Conversations by attribute and by last activity.

Attributes are the document ``attributes`` of a conversation: texts, numbers or lists of texts by
name, such as app, user, project, title, parent and tags. A read model finds conversations by them.
The last activity changes with each append, so it is written only when conversations are listed. So
a list may be some seconds old; it says of which moment it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument, KeyUnavailable, StoreDamaged
from foldlog.eventstore.events import ATTRIBUTES
from foldlog.eventstore.log.database import Database, Late
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
"""The name of the store's fact that says up to which position, and when, conversations were
listed.
"""
_AT_ONCE: Final = 200
"""The number of conversations that are listed in one transaction."""
_AGAIN: Final = -1
_WITH_KEY: Final = -2


class RecentConversation(NamedTuple):
    """A conversation in a list. ``version`` and ``updated_at``, the time of its last event, may be
    some seconds old. ``attributes`` are None if the conversation is encrypted and its key is not
    given.
    """

    id: str
    version: int
    created_at: datetime
    updated_at: datetime
    attributes: Mapping[str, Any] | None


class RecentConversations(NamedTuple):
    """A page of conversations, the last active first. ``as_of`` is the moment of the list: it
    includes later changes of attributes, but no other later events. ``after`` continues the list;
    it is None on the last page.
    """

    conversations: tuple[RecentConversation, ...]
    as_of: datetime
    after: tuple[int, int] | None


def recent_conversations(
    database: Database,
    attributes: Mapping[str, Any],
    *,
    limit: int,
    after: tuple[int, int] | None,
    age_max_s: float,
) -> RecentConversations:
    """Return the conversations that have all of these attributes, the last active first; see
    ``Histories.recent``.
    """
    check_whole("limit", limit, 0)
    given: object = after
    if given is not None and not (
        isinstance(given, tuple) and all(isinstance(number, int) for number in given)
    ):
        raise TypeError(f"after is the 'after' of an earlier page, not {after!r}")
    if not isinstance(age_max_s, int | float):
        raise TypeError(f"age_max_s is a number of seconds, not {age_max_s!r}")
    wanted = pairs_of(attributes)
    keys = database.settings.keys
    as_of, late = _up_to_date(database, age_max_s)

    def page(reader: Reader) -> RecentConversations:
        ours = (one for one in late.values() if after is None or (one.at, one.key) < after)
        if wanted:
            ours = (
                one
                for one in ours
                if {*pairs_of(_attributes(database, reader, one) or {})} >= {*wanted}
            )
        found = [*islice(ours, limit)]
        for key_id in [None] if keys is None or not wanted else [None, *keys.names]:
            listed = reader.listed(digests_of(wanted, keys, key_id), after, limit + len(late))
            found += [one for one in listed if one.key not in late]
        found = sorted(found, key=attrgetter("at", "key"), reverse=True)[:limit]
        last = found[-1] if limit and len(found) == limit else None
        shown = tuple([_shown(database, reader, one) for one in found])
        return RecentConversations(
            shown, from_microseconds(as_of), None if last is None else (last.at, last.key)
        )

    listed = database.recorder.query(page)
    if wanted and listed.after is None:
        used = database.recorder.value("key_ids").split()
        if lost := ", ".join(name for name in used if keys is None or name not in keys.names):
            raise key_missing(
                "conversations that may have these attributes too are encrypted", lost, keys
            )
    return listed


# --- the read model ---


def _up_to_date(
    database: Database, age_max_s: float
) -> tuple[int, Mapping[int, ListedConversation]]:
    """Bring the list up to date if it is too old. Return its moment, and the conversations that it
    could not write.
    """
    now = database.now()
    recorder = database.recorder
    try:
        followed, _, listed_at = (recorder.value(_FACT) or "0 0").partition(" ")
        after = 0 if followed == "0" else recorder.position(followed)
        at = int(listed_at)
    except (ValueError, InvalidArgument):  # it is damaged, and made again
        after = at = 0
    is_young = 0 <= now - at < age_max_s * 1_000_000  # a clock may have run back
    if is_young and not recorder.query(lambda reader: reader.to_list_again(_AGAIN)):
        return at, {}
    moment = database.data_version()
    least = _AGAIN if database.settings.keys is None else _WITH_KEY
    told, until, left, late = database.late
    if told != moment:
        until, left = recorder.query(lambda reader: reader.touched(after, least))
        left = sorted(left)
    touched = left
    while left and recorder.offer(partial(_list_some, database=database, touched=left[:_AT_ONCE])):
        left = left[_AT_ONCE:]
    if left and told != moment:
        newest = recorder.query(
            lambda reader: [_newest(database, reader, key, 0) for key, _ in left]
        )
        ours = [_as_listed(*each) for each in newest if each is not None]
        late = {one.key: one for one in sorted(ours, key=attrgetter("at", "key"), reverse=True)}
    if left:
        database.late = Late(moment, until, left, late)
    else:
        database.late = Late(None, 0, (), {})
    if not left and (touched or until != after or not at):
        recorder.offer(lambda transaction: transaction.set_value(_FACT, f"{until} {now}"))
    return now, late if left else {}


def _list_some(
    transaction: Transaction, database: Database, touched: Iterable[tuple[int, int]]
) -> None:
    for found, version, attributes in filter(
        None, (_newest(database, transaction, *each) for each in touched)
    ):
        writing = WriteTransaction(transaction, found, database)
        if isinstance(attributes, dict):
            list_again(writing, attributes)
            writing.end()
        else:
            writing.list_as(version, None if attributes is ... else [EVERY])


def _newest(
    database: Database, reader: Reader, key: int, listed_at: int
) -> tuple[Conversation, int, Any] | None:
    """Return a conversation, its version for the list, and its attributes: dots where these are
    listed, None where they cannot be read. Return None for one that is not listed.
    """
    # ``verify`` reports it; the list keeps its earlier state
    with suppress(CorruptEvent, StoreDamaged):
        found = database.find_key(reader, key)
        if found is None or found.erasure is not None or not found.visible or found.version == 0:
            return None
        reading = ReadTransaction(reader, found, database)
        try:
            changed = reading.documents_before(found.version)
            if changed is not None and changed.id < listed_at:
                return found, found.version, ...
            pairs_of(attributes := newest_value(reading, ATTRIBUTES) or {})
            return found, found.version, attributes
        except (
            CorruptEvent,
            InvalidArgument,
            KeyUnavailable,
        ) as error:  # of an import, they may have another form
            return found, _WITH_KEY if isinstance(error, KeyUnavailable) else found.version, None
    return None


def _as_listed(found: Conversation, version: int, attributes: Any) -> ListedConversation:
    at = found.updated_at or found.created_at
    is_encrypted = found.key_id is not None
    return ListedConversation(
        found.key, found.id, found.created_at, is_encrypted, at, version, attributes
    )


def _shown(database: Database, reader: Reader, one: ListedConversation) -> RecentConversation:
    version = one.version
    if version <= 0:  # it was listed without its key; ``verify`` tells whether it is damaged
        found = reader.conversation(one.key)
        version = 0 if found is None else found.version
    times = from_microseconds(one.created_at), from_microseconds(one.at)
    return RecentConversation(one.id, version, *times, _attributes(database, reader, one))


def _attributes(
    database: Database, reader: Reader, one: ListedConversation
) -> Mapping[str, Any] | None:
    """Return the attributes of a conversation; those in its events where their record is gone or
    damaged. None where they are encrypted and the key is missing.
    """
    record = one.attributes
    if not isinstance(record, Record) and not one.is_record_missing:
        return record if record or one.version == _WITH_KEY else {}
    with suppress(KeyUnavailable):
        found = database.find_key(reader, one.key) if one.is_encrypted else None
        if found is None:
            codec = RowCodec(one.id, None, NOTHING_PENDING)
        else:
            codec = database.codec_of(found)
        if isinstance(record, Record):
            decoded = codec.decoded_record(ATTRIBUTES, record)
        else:
            decoded = None
        if decoded is not None:
            return decode_attributes(decoded.body)
        found = found or database.find_key(reader, one.key)
        if found is None:
            return None
        return newest_value(ReadTransaction(reader, found, database), ATTRIBUTES) or {}
    return None
