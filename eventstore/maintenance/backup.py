"""Back up a store to a file, restore a store from a backup, and vacuum a store. Programs can use
the store during a backup.

A PostgreSQL server has its own tools for backups.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore.arguments import check_path
from foldlog.eventstore.errors import (
    EventStoreError,
    InvalidOption,
    KeyUnavailable,
    StoreDamaged,
    StoreRefused,
    StoreUnavailable,
)
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.importing import ARCHIVE, BACKUP, DELETE_OBJECT, ERASE, IMPORT, REKEY
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.log.streams import sweep_all
from foldlog.eventstore.maintenance.followers import confirm
from foldlog.eventstore.maintenance.rekey import named_or_all
from foldlog.eventstore.maintenance.unfinished import finish, mark_unfinished
from foldlog.eventstore.maintenance.verify import Verdict, verify
from foldlog.eventstore.recorders.base import PATIENCE_S
from foldlog.eventstore.recorders.errors import FAILURES, Failure
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.errors import translate
from foldlog.eventstore.recorders.sqlite.replacing import (
    NEW,
    check_replaceable,
    held,
    is_abandoned,
    made_beside,
    names_of_former,
    new_beside,
    parts_beside,
    replace,
    sync,
)
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.store import Store

_STALE_US = 3_600 * 1_000_000
"""A vacuum or a backup discards an import that has written nothing for this number of microseconds.
If the process of the import still runs, the import fails and has to be run again.
"""


class BackedUp(NamedTuple):
    """A backup that was made and verified. ``findings`` are the verdicts with findings: the damage
    in the backup and in the store, and what was not checked because a key is missing.
    """

    path: str
    size_bytes: int
    conversations: int
    events: int
    records: int
    findings: tuple[Verdict, ...]


class Restored(NamedTuple):
    """A store that was restored from a backup.

    ``path``          the path of the store
    ``former_file``   the new path of the former file, or of its write-ahead log if the store had
                      only a log; None if there was neither
    ``erased_since``  the conversations that were erased after the backup, and that the restore has
                      brought back
    """

    path: str
    former_file: str | None
    conversations: int
    events: int
    records: int
    erased_since: tuple[str, ...]


class Vacuumed(NamedTuple):
    """The result of a vacuum. ``discarded`` is the number of killed imports whose rows the vacuum
    removed. ``bytes_pending`` is true if bytes of erased events may still be in the file.
    ``space_returned`` is False if an older reader is still open after the vacuum. Run the vacuum
    again when the reader has closed. On a server, ``space_returned`` is False if the role may not
    vacuum the tables. If the store is not a file, ``bytes_before`` and ``bytes_after`` are None.
    """

    discarded: int
    bytes_before: int | None
    bytes_after: int | None
    bytes_pending: bool
    space_returned: bool


def back_up(
    store: Store, path: str, on_progress: Callable[[int, int], object] = lambda done, of: None
) -> BackedUp:
    """Copy the newest state of a store to a new file, and verify the copy. Readers and writers can
    use the store during the backup.

    The new file has mode 0600. The new file appears under its name when it is complete and synced
    to disk. ``on_progress(done, of)`` gets the number of copied pages and the number of all pages.
    Raises ``InvalidOption`` if the file exists already or the store is not a SQLite file, and
    ``StoreUnavailable`` if the file cannot be written. Cost: reading the whole store twice.
    """
    database = store.database
    recorder = database.recorder
    if not isinstance(recorder, SQLiteRecorder):
        raise InvalidOption(
            "only a store in a SQLite file can be backed up; back up a PostgreSQL database with"
            " pg_dump"
        )
    target = Path(check_path(path))
    if target.exists():
        raise InvalidOption(f"{target} already exists; choose another name for the backup")
    part = None
    try:
        part = new_beside(target)
        with held(part), _noted_part(database, part):
            with contextlib.closing(recorder.copy_to(str(part), on_progress)) as copy:
                verdicts = list(verify(Store(copy, database.settings)))
            sync(part)
            part.rename(target)
            sync(target.parent)
    except OSError as error:
        raise translate(error, f"write the backup {path}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    findings = tuple(verdict for verdict in verdicts if verdict.findings)
    return BackedUp(path, target.stat().st_size, *_counts(verdicts), findings)


@contextlib.contextmanager
def _noted_part(database: Database, part: Path) -> Iterator[None]:
    """Store the path of the partial file. If this process is killed, a later vacuum removes the
    file. If the store can no longer be written, the path is not stored.
    """
    key = -secrets.randbits(62)
    is_noted = False
    if database.recorder.writable:
        with contextlib.suppress(*FAILURES):
            _finish_operations(database)
            database.recorder.transact(
                lambda transaction: transaction.leave_unfinished(key, BACKUP, os.path.abspath(part))
            )
            is_noted = True
    try:
        yield
    finally:
        if is_noted:
            with contextlib.suppress(*FAILURES):  # the next vacuum deletes the note
                database.recorder.transact(lambda transaction: transaction.finish(key))


def restore(
    backup: str, path: str, settings: WriteSettings, read_models: Iterable[str] = ()
) -> Restored:
    """Replace the store at ``path`` by a verified copy of a backup: see
    ``foldlog.eventstore.restore_store``. ``read_models`` are the read models and files that may
    still contain conversations that were erased after the backup.
    """
    path = os.path.realpath(path)
    check_path(backup)
    if not os.path.exists(backup):
        raise InvalidOption(f"the backup {backup} does not exist; check its path")
    if os.path.isdir(backup):
        raise InvalidOption(f"the backup {backup} is a folder; name the file of the backup")
    if os.path.getsize(backup) == 0:
        raise InvalidOption(f"the backup {backup} is an empty file; name another file")
    if os.path.exists(path) and os.path.samefile(backup, path):
        raise InvalidOption(f"{backup} is the store itself; name a backup of the store")
    former_name = _name_for_former(path)
    try:
        never_placed = (name for name in names_of_former(path) if name.endswith(NEW))
        for abandoned in filter(is_abandoned, (*parts_beside(Path(path)), *never_placed)):
            _remove_part(abandoned)  # an earlier attempt was killed
        descriptor, part = made_beside(Path(path))
        os.close(descriptor)
        try:
            with held(Path(part)):
                counts, living = _copy(backup, part, settings)
                _expect_confirmations(part, settings, read_models)
                check_replaceable(path)
                erased_since = sorted(
                    {
                        tombstone.id
                        for tombstone in _tombstones(path)
                        if (tombstone.id, tombstone.created_at) in living
                    }
                )
                sync(part)
                os.rename(part, f"{former_name}{NEW}")
                former = replace(path, f"{former_name}{NEW}", former_name)
        finally:
            _remove_part(part)
    except (OSError, sqlite3.Error) as error:
        raise translate(error, f"restore {backup} to {path}", "; nothing was replaced") from error
    return Restored(path, former, *counts, tuple(erased_since))


def _copy(
    backup: str, part: str, settings: WriteSettings
) -> tuple[tuple[int, int, int], set[tuple[str, int]]]:
    """Copy a backup, and verify the copy. Return the numbers of conversations, of events and of
    source records without events. Also return the id and creation time of each conversation that is
    not erased.
    """
    with (
        contextlib.closing(SQLiteRecorder(backup, writable=False, to_copy=True)) as source,
        contextlib.closing(source.copy_to(part, lambda done, of: None)) as copy,
    ):
        store = Store(copy, settings)
        verdicts = list(verify(store))
        living = {
            (conversation.id, conversation.created_at)
            for conversation in named_or_all(store.database, ())
            if conversation.erasure is None
        }
    findings = [
        (verdict.conversation, finding)
        for verdict in verdicts
        for finding in verdict.findings
        if not finding.unfinished
    ]
    damage = [
        (conversation, finding) for conversation, finding in findings if not finding.needs_key
    ]
    if findings and not damage:
        raise KeyUnavailable(
            f"{backup} cannot be verified without its keys, and nothing was replaced:"
            f" {findings[0][1].problem}"
        )
    if damage:
        conversation, finding = damage[0]
        if conversation is None:
            place = ""
        else:
            place = f"conversation {conversation!r}: "
        raise StoreDamaged(
            f"{backup} is not sound (findings: {len(damage):,}; the first: {place}{finding}), and"
            " nothing was replaced; restore another backup, or copy the sound events with"
            " 'foldlog store copy --damaged'"
        )
    return _counts(verdicts), living


def _expect_confirmations(part: str, settings: WriteSettings, read_models: Iterable[str]) -> None:
    """Record in the restored store that no read model has confirmed an erasure in it yet."""
    with contextlib.closing(SQLiteRecorder(part, create=False)) as recorder:
        store = Store(recorder, settings)
        for read_model in read_models:
            confirm(store, read_model, 0)


def _counts(verdicts: Sequence[Verdict]) -> tuple[int, int, int]:
    """Return the numbers of conversations, of events, and of source records without events."""
    named = [verdict for verdict in verdicts if verdict.conversation is not None]
    living = [verdict for verdict in named if verdict.erasure is None]
    return (
        len(named),
        sum(verdict.version for verdict in living),
        sum(verdict.unmade for verdict in living),
    )


def _remove_part(part: str) -> None:
    for suffix in ("", "-wal", "-shm", "-queue", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{part}{suffix}")


def _tombstones(path: str) -> Iterator[Conversation]:
    """Yield the erased conversations of the store that will be replaced, up to its damage."""
    # An empty file has no tombstones, and SQLite waits a minute to write to one beside an old log.
    if os.path.exists(path) and os.path.getsize(path):
        with (
            contextlib.suppress(EventStoreError),
            contextlib.closing(_open_former(path)) as old,
        ):
            for conversation in named_or_all(Store(old).database, ()):
                earlier = old.query(lambda reader: tombstones_before(reader, conversation))  # noqa: B023
                for generation in (*earlier, conversation):
                    if generation.erasure is not None:
                        yield generation


def _open_former(path: str) -> SQLiteRecorder:
    try:
        return SQLiteRecorder(path, writable=False)
    except StoreRefused:  # perhaps its schema is older
        return SQLiteRecorder(path, create=False)


def _name_for_former(path: str) -> str:
    """Return the name for the former file. If a killed restore has given it a name, return this
    name.
    """
    for name in names_of_former(path):
        if os.path.exists(path) and os.path.samefile(name, path):
            return name
    return f"{path}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def vacuum(
    store: Store, patience_s: float = PATIENCE_S, *, copied_objects: bool = False
) -> Vacuumed:
    """Complete interrupted erasures, and remove the leftovers of killed imports, of killed backups,
    and of interrupted copies of events into forks. Delete old streams (``sweep_all``). Return the
    space of deleted rows to the file system. After a vacuum, the file and its log contain no bytes
    of erased, redacted or re-encrypted events.

    A vacuum does not change the positions of events. Readers continue, but writers wait until the
    vacuum ends. If an older reader still needs bytes that should be erased, the vacuum waits for at
    most ``patience_s`` seconds, then raises ``StoreUnavailable`` (``read``), which says what the
    vacuum waited for. Cost: rewriting the whole store.

    If this store was copied, moved or restored, another copy may need the objects that were made
    before. After an erasure or a redaction of such an archived conversation, ``vacuum`` raises
    ``StoreRefused``, unless ``copied_objects`` is true: then it deletes the objects. If another
    object, or the file of a killed backup, cannot be deleted, the error is raised after the vacuum.
    """
    database = store.database
    recorder = database.recorder
    path = database.recorder.path
    bytes_before = size_on_disk(path)
    discarded, left = _finish_operations(database, copied_objects=copied_objects)
    sweep_all(database)
    pending = path is None or database.bytes_pending
    try:
        space_returned = recorder.compact(patience_s if pending else 0)
    except StoreUnavailable as error:
        if error.kind != "read":
            raise
        if pending:
            still_read = StoreUnavailable(
                f"{error}; end the readers, then run 'foldlog store vacuum' again", kind="read"
            )
            still_read.unfinished = True
            raise still_read from error
        space_returned = False
    if left is not None and left.unfinished:
        raise left
    if left is not None:
        raise mark_unfinished(
            "the store was vacuumed, but an object or a file could not be deleted", left
        )
    return Vacuumed(
        discarded, bytes_before, size_on_disk(path), database.bytes_pending, space_returned
    )


def _finish_operations(
    database: Database, *, copied_objects: bool = False
) -> tuple[int, Failure | None]:
    """Finish the interrupted operations, except rekeys, which may need a key. Return the number of
    imports that were discarded, and the error if an object or a file could not be deleted.
    """
    discarded = 0
    left = None
    for operation in database.recorder.query(lambda reader: reader.unfinished()):
        if operation.operation == REKEY:
            continue
        if operation.operation == IMPORT:
            if not _is_stale(database, operation.key):
                continue
            discarded += 1
        try:
            finish(database, operation, copied_objects=copied_objects)
        except FAILURES as error:
            if operation.operation not in (ARCHIVE, BACKUP, DELETE_OBJECT, ERASE):
                raise
            left = error
    return discarded, left


def _is_stale(database: Database, key: int) -> bool:
    """Return whether a staged import has written nothing for ``_STALE_US``."""
    staged = database.recorder.query(lambda reader: reader.conversation(key))
    if staged is None:
        return False
    return staged.changed_at < database.now() - _STALE_US


def size_on_disk(path: str | None) -> int | None:
    """Return the size of a store's file and its log, or None if the store is not a file."""
    if path is None:
        return None
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())
