"""Encrypt, re-encrypt, compress or decrypt stored events, each conversation alone.

First a conversation gets its new key, so that new events are encrypted; then it is changed in steps
(``rekey_steps``). The records of projections get their new form too; those of attributes are made
again.
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
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.seal import RowCodec, mark_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.rekey_steps import RekeyState, leave, reform
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished, purge, unfinished
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
    """Store the named conversations, or all, with the settings of the open store: compressed, if a
    compression was chosen, and encrypted, if the store has a key. With ``decrypt`` they are stored
    as plain text. Incomplete imports of these conversations are discarded: a running import fails,
    and has to be run again. Each conversation is stored as its outcome is read from this iterator.

    The last result says whether bytes of the old form may still be in the files
    (``bytes_pending``), as after an erasure; ``vacuum`` removes them. Raises
    ``ConversationNotFound``, and ``KeyUnavailable`` where a conversation is encrypted and its key
    is not given: then nothing is changed; ``StoreUnusable`` where the file cannot be read. Cost:
    reading all rows that may change, and writing the changed ones; memory for one transaction.
    """
    database = store.database
    for found in named_or_all(database, conversations):
        database.data_key(found)
    last: Rekeyed | None = None
    changed = 0
    for found in named_or_all(database, conversations):
        if found.erasure is None:
            if last is not None:
                yield last
            try:
                last = _rekeyed(database, found, decrypt)
            except FAILURES as error:
                if not changed or isinstance(error, StoreDamaged):
                    raise
                done = (
                    f"conversations in their new form: {changed}; {found.id!r} and those after it"
                    " are not"
                )
                raise unfinished(done, error) from error
            changed += last.key or last.rows > 0
    for each in database.recorder.query(lambda reader: reader.unfinished()):
        if each.operation == IMPORT and (not conversations or each.conversation in conversations):
            delete_rows(database.recorder, each.key)
    purge(database.recorder, "all events are stored in their new form")
    if last is not None:
        yield last._replace(bytes_pending=database.bytes_pending)


def named_or_all(database: Database, conversations: Sequence[str]) -> Iterator[Conversation]:
    """Yield these conversations, or all, as their rows say. Raises ``ConversationNotFound``. Cost:
    a page at a time.
    """
    if not conversations:

        def page(after: str | None) -> Sequence[Conversation]:
            return database.recorder.query(
                lambda reader: reader.conversations(start_after(after), _PAGE)
            )

        yield from paged(page, attrgetter("id"), _PAGE)
    for name in conversations:
        found = database.recorder.query(lambda reader, name=name: reader.conversation(name))  # type: ignore[misc]
        if found is None:
            raise ConversationNotFound(name)
        yield found


def _rekeyed(database: Database, found: Conversation, decrypt: bool) -> Rekeyed:
    outcome = Rekeyed(found.id, False, 0, ())
    try:
        if database.settings.compression is None and _has_its_key(database, found, decrypt):
            # with a chosen compression, only reading the rows shows whether something is to do
            return outcome
        while True:
            has_new_key = on_finished(
                database, partial(begin, database=database, key=found.key, decrypt=decrypt)
            )
            done = reform(database, found.key)
            key = outcome.key or has_new_key or done.key
            outcome = outcome._replace(key=key, rows=outcome.rows + done.rows, damaged=done.damaged)
            now = database.recorder.query(lambda reader: reader.conversation(found.key))
            # Another process may have given the conversation another key by now: then begin again.
            if (
                done.damaged
                or now is None
                or now.erasure is not None
                or _has_its_key(database, now, decrypt)
            ):
                return outcome
    except CorruptEvent as error:
        return outcome._replace(problem=str(error))


def _has_its_key(database: Database, found: Conversation, decrypt: bool) -> bool:
    """Return whether the conversation has the wanted key in all its rows, as its key and its mark
    show.
    """
    codec = database.codec_of(found)
    keys = database.settings.keys
    if decrypt or keys is None:
        return codec.data_key is None
    return codec.is_strict and found.key_id == keys.current


def begin(transaction: Transaction, database: Database, key: int, *, decrypt: bool) -> bool:
    """Begin to store a conversation with the settings of this process; with ``decrypt``, as plain
    text. Return whether it got another key. Raises ``CorruptEvent`` if its mark does not fit, and
    ``KeyUnavailable``.
    """
    found = transaction.conversation(key)  # on a server, other writers wait from here on
    check_finished(transaction, key)
    if found is None or found.erasure is not None:
        return False
    codec = database.codec_of(found)
    keys = database.settings.keys
    compression = database.settings.compression
    data_key = codec.data_key
    mark = codec.mark
    changed = False
    if keys is not None and not (decrypt and data_key is None):
        if data_key is None:
            found, data_key, mark = encrypted(found, keys)
            changed = True
        elif found.key_id != keys.current and not decrypt:
            found = found._replace(
                key_id=keys.current, sealed_key=keys.wrap(found.id, data_key.secret)
            )
            changed = True
    if decrypt and data_key is not None:
        mark = mark._replace(pending_from=0, pending_until=found.version)
    if changed:
        transaction.set_key(found.key, b"", found.key_id, found.sealed_key)
        if codec.data_key is None:
            WriteTransaction(transaction, found, database, codec).forget_records(
                RowCodec(found.id, data_key)
            )
        enter(transaction, found, KeyChanged(key_id=found.key_id), database.now())
    if data_key is not None and (codec.data_key is None or mark != codec.mark):
        transaction.set_mark(found.key, mark_of(data_key, found, mark))
    begins = found.begins  # what a fork shares belongs to its parent
    all_rows = decrypt or compression is not None
    first = begins if all_rows else max(mark.pending_from, begins)
    until = found.version if all_rows else max(mark.pending_until, begins)
    if first < until or mark.pending_until:
        start = "" if mark.pending_until else None
        leave(
            transaction,
            key,
            RekeyState(decrypt, compression, until, first, start, encrypted=data_key is not None),
        )
    elif data_key is not None and (
        decrypt or codec.data_key is None
    ):  # at most a source whose events were not made
        seal_again(transaction, database, key, None if decrypt else data_key)
        if decrypt:
            transaction.set_key(key, data_key.salt, None, None)
            transaction.set_mark(key, None)
            enter(transaction, found._replace(key_id=None), KeyChanged(), database.now())
    return changed and not decrypt
