"""Encrypt, re-encrypt, compress or decrypt stored events, one conversation after another.

A conversation first gets its new key, and all new events use this key. The existing rows change
afterwards, in several transactions (``rekey_steps``). The records of projections are encrypted
again, and the records of attributes are made again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, StoreDamaged
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, give_data_key, iter_pages, start_after
from foldlog.eventstore.log.importing import IMPORT, delete_rows
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.seal import Mark, RowCodec, mark_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.rekey_steps import (
    RekeyState,
    become_plain,
    change_all,
    leave_unfinished,
)
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
    """The result of rekeying one conversation.

    ``key``: whether the conversation got a data key, its data key was encrypted under another key,
    or its data key was removed.
    ``rows``: the number of rows whose stored form changed.
    ``damaged``: the ids of damaged rows, which stay unchanged.
    ``problem``: the reason why the conversation could not be rewritten to its end, or None.
    ``bytes_pending``: whether bytes of an old form may still be in the file.
    ``plain``: the files and tables outside of the store that contain plain text of the
    conversation.

    Only the last result has ``bytes_pending`` and ``plain``.
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
    """Rewrite stored conversations with the settings of the open store. Compress the events if a
    compression was chosen, and encrypt the events if the store has a key. If no conversation is
    named, rewrite all conversations. If ``decrypt`` is true, store the conversations as plain text.
    Incomplete imports of the conversations are discarded, so a running import fails and has to be
    run again. The work is done while the caller iterates: each conversation is stored when its
    result is read.

    ``bytes_pending`` of the last result says whether bytes of the old form may still be in the
    files. ``vacuum`` removes the bytes of the old form. Raises ``ConversationNotFound``. Raises
    ``KeyUnavailable``, before anything is changed, if the key of an encrypted conversation is
    missing. Raises ``StoreRefused`` if the file cannot be read. Cost: reading all rows that may
    change, and writing the changed rows. Only the rows of one transaction are in memory.
    """
    database = store.database
    for conversation in named_or_all(database, conversations):
        database.data_key(conversation)  # raises ``KeyUnavailable`` before anything is changed
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
                sentence = (
                    f"conversations in the new form: {changed}; {conversation.id!r} and later"
                    " conversations still have the old form"
                )
                raise mark_unfinished(sentence, error) from error
            changed += last.key or last.rows > 0
    for operation in database.recorder.query(lambda reader: reader.unfinished()):
        is_named = not conversations or operation.conversation in conversations
        if operation.operation == IMPORT and is_named:
            delete_rows(database.recorder, operation.key)
    purge(database.recorder, "all events are stored in the new form")
    if last is not None:
        yield last._replace(bytes_pending=database.bytes_pending)


def named_or_all(database: Database, conversations: Sequence[str]) -> Iterator[Conversation]:
    """Yield the named conversations, or all conversations if none is named."""
    if not conversations:

        def page(after: str | None) -> Sequence[Conversation]:
            return database.recorder.query(
                lambda reader: reader.conversations(start_after(after), _PAGE)
            )

        yield from iter_pages(page, attrgetter("id"), _PAGE)
    for name in conversations:
        conversation = database.recorder.query(lambda reader, name=name: reader.conversation(name))  # type: ignore[misc]
        if conversation is None:
            raise ConversationNotFound(name)
        yield conversation


def _rekey_conversation(database: Database, conversation: Conversation, decrypt: bool) -> Rekeyed:
    """Change the key of a conversation and then all its rows, until it has the wanted key or rows
    turn out damaged.
    """
    outcome = Rekeyed(conversation.id, False, 0, ())
    try:
        # If a compression was chosen, only the rows themselves show whether they must change.
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
            # If another process has given the conversation another key in the meantime, begin
            # again.
            if _has_wanted_key(database, present, decrypt):
                return outcome
    except CorruptEvent as error:
        return outcome._replace(problem=str(error))


def _has_wanted_key(database: Database, conversation: Conversation, decrypt: bool) -> bool:
    """Return whether a conversation is encrypted as this process would encrypt it."""
    codec = database.codec_of(conversation)
    keys = database.settings.keys
    if decrypt or keys is None:
        return codec.data_key is None
    return codec.is_strict and conversation.key_id == keys.current


class _Start(NamedTuple):
    """A conversation at the beginning of its rekey: the data key and the mark that it gets, and
    whether its data key is encrypted in a new way, which is never so if it is decrypted.
    """

    conversation: Conversation
    data_key: DataKey | None
    mark: Mark
    has_new_key: bool = False


def begin(transaction: Transaction, database: Database, key: int, *, decrypt: bool) -> bool:
    """Begin to rewrite a conversation with the settings of this process. If ``decrypt`` is true,
    store the conversation as plain text. Return whether the conversation got a new key.

    This transaction changes the key and the mark of the conversation, and stores an unfinished
    operation ``rekey``. ``change_all`` later changes the rows and completes the operation. Raises
    ``CorruptEvent`` if the conversation contradicts its mark, and ``KeyUnavailable`` if the key is
    missing.
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
        # The sealed key contains the salt too.
        transaction.set_key(conversation)
        if not was_encrypted:
            writing = WriteTransaction(transaction, conversation, database, codec)
            writing.forget_records(RowCodec(conversation.id, data_key))
        changed = KeyChanged(key_id=conversation.key_id)
        enter(transaction, conversation, changed, database.now())
    if data_key is not None and (not was_encrypted or mark != codec.mark):
        transaction.set_mark(conversation.key, mark_of(data_key, conversation, mark))
    if _leave_rows_to_change(transaction, database, start, decrypt=decrypt):
        return has_new_key
    # The conversation has no rows, but may have source records without events.
    if data_key is not None and (decrypt or not was_encrypted):
        seal_again(transaction, database, key, None if decrypt else data_key)
        if decrypt:
            writing = WriteTransaction(transaction, conversation, database, codec)
            writing.seal_streams(RowCodec(conversation.id))
            become_plain(transaction, database, conversation, data_key)
    return has_new_key


def _choose_key(
    database: Database, conversation: Conversation, codec: RowCodec, *, decrypt: bool
) -> _Start:
    """Choose the key of a conversation: a new data key, no key, or its data key encrypted with the
    current wrapping key.
    """
    keys = database.settings.keys
    data_key = codec.data_key
    if data_key is None:
        if keys is None or decrypt:
            return _Start(conversation, None, codec.mark)
        return _Start(*give_data_key(conversation, keys), has_new_key=True)
    if decrypt:
        # The key stays until all rows are plain, and the mark allows plain rows from now on. Each
        # step raises ``pending_until``, because events may be appended in the meantime.
        mark = codec.mark._replace(pending_from=0, pending_until=conversation.version)
        return _Start(conversation, data_key, mark)
    assert keys is not None  # without it, ``codec_of`` has raised ``KeyUnavailable``
    if conversation.key_id == keys.current:
        return _Start(conversation, data_key, codec.mark)
    # Only the wrapping key changes, and the data key stays the same, so the rows need no change.
    wrapped = keys.wrap(conversation.id, data_key.secret)
    renewed = conversation._replace(key_id=keys.current, sealed_key=wrapped)
    return _Start(renewed, data_key, codec.mark, has_new_key=True)


def _leave_rows_to_change(
    transaction: Transaction, database: Database, start: _Start, *, decrypt: bool
) -> bool:
    """Return whether rows or idempotency keys may have to change. If so, store an unfinished
    operation that changes them.
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
