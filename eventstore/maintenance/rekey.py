"""Encrypt, re-encrypt, compress or decrypt stored events, one conversation after the other.

First a conversation gets its new key, so that new events are encrypted. Then the conversation's
rows are changed in several transactions (``rekey_steps``). The records of projections get their new
form too, and the records of attributes are made again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, StoreDamaged
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, encrypted, paged, start_after
from foldlog.eventstore.log.importing import IMPORT, delete_rows
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.seal import Mark, RowCodec, mark_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.rekey_steps import RekeyState, change_all, leave_unfinished
from foldlog.eventstore.maintenance.unfinished import (
    check_finished,
    mark_unfinished,
    on_finished,
    purge,
)
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.moving import seal_again
from foldlog.eventstore.store import Store

_PAGE = 1_000


class Rekeyed(NamedTuple):
    """The outcome for one conversation.

    ``key``            whether its data key was encrypted again
    ``rows``           how many rows were stored in another form
    ``damaged``        the ids of damaged rows, which stay as they are
    ``problem``        why the conversation was not changed; None if it was
    ``bytes_pending``  whether bytes of an old form may still be in the file
    ``plain``          the names of files and tables outside of the store that hold its texts as
                       plain text

    The file is cleaned once, after the last conversation, so only the last result has
    ``bytes_pending`` and ``plain``.
    """

    conversation: str
    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None = None
    bytes_pending: bool | None = None
    plain: tuple[str, ...] = ()


def rekey(
    store: Store, *conversations: str, decrypt: bool = False
) -> Generator[Rekeyed, None, None]:
    """Store the named conversations, or all, again with the settings of the open store: compressed,
    if a compression was chosen, and encrypted, if the store has a key. With ``decrypt`` the
    conversations are stored as plain text. Incomplete imports of the conversations are discarded: a
    running import fails, and has to be run again. Each conversation is stored when its outcome is
    read from the returned iterator.

    The last result says whether bytes of the old form may still be in the files
    (``bytes_pending``), as after an erasure; ``vacuum`` removes them. Raises
    ``ConversationNotFound``, and ``KeyUnavailable``, before anything is changed, if a conversation
    is encrypted and its key is missing. Raises ``StoreUnusable`` if the file cannot be read. Cost:
    reading all rows that may change, writing the changed rows, and memory for one transaction.
    """
    database = store.database
    for conversation in named_or_all(database, conversations):
        database.data_key(conversation)  # raises KeyUnavailable before anything is changed
    last: Rekeyed | None = None
    changed = 0
    for conversation in named_or_all(database, conversations):
        if conversation.erasure is None:
            if last is not None:
                yield last
            try:
                last = _rekey_conversation(database, conversation, decrypt)
            except FAILURES as error:
                if not changed or isinstance(error, StoreDamaged):
                    raise
                done = (
                    f"conversations in the new form: {changed}; {conversation.id!r} and later"
                    " conversations still have the old form"
                )
                raise mark_unfinished(done, error) from error
            changed += last.key or last.rows > 0
    for operation in database.recorder.query(lambda reader: reader.unfinished()):
        is_named = not conversations or operation.conversation in conversations
        if operation.operation == IMPORT and is_named:
            delete_rows(database.recorder, operation.key)
    purge(database.recorder, "all events are stored in the new form")
    if last is not None:
        yield last._replace(bytes_pending=database.bytes_pending)


def named_or_all(database: Database, conversations: Sequence[str]) -> Iterator[Conversation]:
    """Yield the rows of these conversations, or of all conversations. Raises
    ``ConversationNotFound``. Cost: reading the yielded rows, a page at a time.
    """
    if not conversations:

        def page(after: str | None) -> Sequence[Conversation]:
            return database.recorder.query(
                lambda reader: reader.conversations(start_after(after), _PAGE)
            )

        yield from paged(page, attrgetter("id"), _PAGE)
    for name in conversations:
        conversation = database.recorder.query(lambda reader, name=name: reader.conversation(name))  # type: ignore[misc]
        if conversation is None:
            raise ConversationNotFound(name)
        yield conversation


def _rekey_conversation(database: Database, conversation: Conversation, decrypt: bool) -> Rekeyed:
    outcome = Rekeyed(conversation.id, False, 0, ())
    try:
        # With a chosen compression, only reading the rows shows whether there is something to do.
        if database.settings.compression is None and _has_wanted_key(
            database, conversation, decrypt
        ):
            return outcome
        while True:
            has_new_key = on_finished(
                database, partial(begin, database=database, key=conversation.key, decrypt=decrypt)
            )
            changes = change_all(database, conversation.key)
            outcome = outcome._replace(
                key=outcome.key or has_new_key or changes.key,
                rows=outcome.rows + changes.rows,
                damaged=changes.damaged,
            )
            present = database.recorder.query(lambda reader: reader.conversation(conversation.key))
            if changes.damaged or present is None or present.erasure is not None:
                return outcome
            # Another process may have given the conversation another key by now: then begin again.
            if _has_wanted_key(database, present, decrypt):
                return outcome
    except CorruptEvent as error:
        return outcome._replace(problem=str(error))


def _has_wanted_key(database: Database, conversation: Conversation, decrypt: bool) -> bool:
    """Return whether all rows of the conversation have the wanted key, according to its key and its
    mark.
    """
    codec = database.codec_of(conversation)
    keys = database.settings.keys
    if decrypt or keys is None:
        return codec.data_key is None
    return codec.is_strict and conversation.key_id == keys.current


class _Start(NamedTuple):
    """The key and the mark of a conversation at the beginning of a change."""

    conversation: Conversation
    data_key: DataKey | None
    mark: Mark
    has_new_key: bool = False


def begin(transaction: Transaction, database: Database, key: int, *, decrypt: bool) -> bool:
    """Begin to store a conversation with the settings of this process; with ``decrypt``, as plain
    text. Return whether the conversation got another key.

    The key and the mark change now, in this transaction. The rows change later: an operation
    ``rekey`` is left unfinished, and ``change_all`` finishes this operation. Raises
    ``CorruptEvent`` if the mark does not fit the conversation, and ``KeyUnavailable``.
    """
    stored = transaction.conversation(key)  # on a server, other writers wait from here on
    check_finished(transaction, key)
    if stored is None or stored.erasure is not None:
        return False
    codec = database.codec_of(stored)
    was_encrypted = codec.data_key is not None
    start = _choose_key(database, stored, codec, decrypt=decrypt)
    conversation, data_key, mark, has_new_key = start
    if has_new_key:
        # The sealed key has the salt, too.
        transaction.set_key(conversation.key, b"", conversation.key_id, conversation.sealed_key)
        if not was_encrypted:
            writing = WriteTransaction(transaction, conversation, database, codec)
            writing.forget_records(RowCodec(conversation.id, data_key))
        changed = KeyChanged(key_id=conversation.key_id)
        enter(transaction, conversation, changed, database.now())
    if data_key is not None and (not was_encrypted or mark != codec.mark):
        transaction.set_mark(conversation.key, mark_of(data_key, conversation, mark))
    if _leave_rows_to_change(transaction, database, start, decrypt=decrypt):
        return has_new_key and not decrypt
    # There are no rows: at most the records of a source whose events were not made.
    if data_key is not None and (decrypt or not was_encrypted):
        seal_again(transaction, database, key, None if decrypt else data_key)
        if decrypt:
            transaction.set_key(key, data_key.salt, None, None)
            transaction.set_mark(key, None)
            enter(transaction, conversation._replace(key_id=None), KeyChanged(), database.now())
    return has_new_key and not decrypt


def _choose_key(
    database: Database, conversation: Conversation, codec: RowCodec, *, decrypt: bool
) -> _Start:
    """Return the conversation with its new key, and with its mark."""
    keys = database.settings.keys
    data_key = codec.data_key
    if data_key is None:
        if keys is None or decrypt:
            return _Start(conversation, None, codec.mark)
        return _Start(*encrypted(conversation, keys), has_new_key=True)
    if decrypt:
        # The key stays until all rows are plain; the mark allows plain rows from now on.
        mark = codec.mark._replace(pending_from=0, pending_until=conversation.version)
        return _Start(conversation, data_key, mark)
    if keys is None or conversation.key_id == keys.current:
        return _Start(conversation, data_key, codec.mark)
    # Another wrapping key encrypts the same data key: rows need no change.
    wrapped = keys.wrap(conversation.id, data_key.secret)
    renewed = conversation._replace(key_id=keys.current, sealed_key=wrapped)
    return _Start(renewed, data_key, codec.mark, has_new_key=True)


def _leave_rows_to_change(
    transaction: Transaction, database: Database, start: _Start, *, decrypt: bool
) -> bool:
    """If rows or idempotency keys may have to change, note the change of the rows as an unfinished
    operation. Return whether the operation was noted.
    """
    compression = database.settings.compression
    conversation, data_key, mark, _ = start
    begins = conversation.begins  # the events that a fork shares belong to its parent
    if decrypt or compression is not None:
        first = begins
        stop = conversation.version
    else:
        first = max(mark.pending_from, begins)
        stop = max(mark.pending_until, begins)
    changes_proofs = bool(mark.pending_until)
    if first >= stop and not changes_proofs:
        return False
    state = RekeyState(
        decrypt=decrypt,
        compression=compression,
        until=stop,
        next=first,
        key="" if changes_proofs else None,
        encrypted=data_key is not None,
    )
    leave_unfinished(transaction, conversation.key, state)
    return True
