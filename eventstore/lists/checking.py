"""Find what the stored list of conversations lacks, and what in it differs from the events."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import InvalidArgument, count
from foldlog.eventstore.events import ATTRIBUTES
from foldlog.eventstore.lists.keeping_up import Progress
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.writing import EVERY, decode_attributes, digests_of, pairs_of
from foldlog.eventstore.recorders.base import Reader


def find_unlisted(database: Database) -> Iterator[str]:
    """Yield the problem of lists that lack conversations which they had once, or that have lost
    their place in the store. Cost: a look at the row of each conversation.
    """
    progress = Progress.read(database)
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
        if state is None or state.erasure or state.archived:
            return
        attributes = newest_value(ReadTransaction(reader, state, database), ATTRIBUTES) or {}
        codec = database.codec_of(state)
        stored_attributes = reader.records(state.key, ATTRIBUTES, -NUMBER_MAX, 2)
        if len(stored_attributes) > 1:
            yield "it has the attributes of several versions, so lists show it several times"
        for stored in stored_attributes:
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
                # An import without events is listed by the time when it began.
                is_wrong = at != state.changed_at
            if is_wrong:
                yield "its version or time in lists differs from its events"
            raw = bytes(digests)
            size = len(EVERY)
            listed = {raw[start : start + size] for start in range(0, len(raw), size)}
            if listed and listed != {EVERY, *expected}:
                yield "lists find it by attributes that differ from its events"

    yield from database.recorder.query(lambda reader: [*read(reader)])
