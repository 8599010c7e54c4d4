"""Back up a store in a file while it is in use, and reclaim its space.

A PostgreSQL server has its own tools for both.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore.errors import InvalidOption, StoreUnavailable
from foldlog.eventstore.log.database import Database, translated
from foldlog.eventstore.log.importing import BACKUP, IMPORT, REKEY
from foldlog.eventstore.maintenance.new_file import held, new_beside, sync
from foldlog.eventstore.maintenance.unfinished import finish
from foldlog.eventstore.maintenance.verify import Verdict, verdicts
from foldlog.eventstore.recorders.base import PATIENCE_S, Reader, Recorder
from foldlog.eventstore.recorders.changes import Finished, Left
from foldlog.eventstore.recorders.errors import OperationalError, StillRead
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.store import Store

_STALE_US = 3_600 * 1_000_000
"""An import that has written nothing for this long counts as killed. If its process still runs, it gets an error and
has to be run again.
"""


class BackedUp(NamedTuple):
    """A backup that was made. ``findings`` are verdicts that found damage; the source then has the same damage."""

    path: str
    size_bytes: int
    conversations: int
    events: int
    findings: tuple[Verdict, ...]


class Vacuumed(NamedTuple):
    """The outcome of a vacuum. ``discarded`` is the number of killed imports whose rows were removed. ``bytes_pending``
    says whether bytes of erased events may still be in the file. ``space_returned`` is False if a reader that was
    opened before is still open: the file is rewritten in the log, and shrinks at a vacuum after that reader has ended.
    Of a store that is not a file, the sizes are 0.
    """

    discarded: int
    bytes_before: int
    bytes_after: int
    bytes_pending: bool
    space_returned: bool


def back_up(store: Store, path: str, on_progress: Callable[[int, int], object] = lambda done, of: None) -> BackedUp:
    """Copy the newest state of a store to a new file, and verify the copy. Readers and writers go on.

    The file appears under its name when it is complete and on disk, with mode 0600. ``on_progress(done, of)`` counts
    pages. Raises ``InvalidOption`` where a file of that name exists, ``StoreUnavailable`` where it cannot be written.
    Cost: the whole store, read twice.
    """
    database = store.database
    recorder = database.recorder
    if not isinstance(recorder, SQLiteRecorder):
        raise InvalidOption("only a store in a SQLite file can be backed up; on a PostgreSQL server pg_dump does it")
    target = Path(path)
    if target.exists():
        raise InvalidOption(f"{path} exists already; give the backup a name of its own")
    part = None
    try:
        part = new_beside(target)
        with translated(), held(part), _left(database, part):
            with contextlib.closing(recorder.copy_to(str(part), on_progress)) as copy:
                made = list(verdicts(Database(copy, database.settings)))
            sync(part)
            part.rename(target)
            sync(target.parent)
    except OSError as error:
        raise StoreUnavailable(f"cannot write the backup {path}: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    named = [verdict for verdict in made if verdict.conversation is not None]
    return BackedUp(
        path,
        target.stat().st_size,
        len(named),
        sum(verdict.version for verdict in named if verdict.erasure is None),
        tuple(verdict for verdict in made if verdict.findings),
    )


@contextlib.contextmanager
def _left(database: Database, part: Path) -> Iterator[None]:
    """Note in the store that this file is being written, so that it is found and removed if this process is killed. Of
    a store that cannot be written any more a backup is made without that.
    """
    key = -secrets.randbits(62)
    noted = False
    if database.recorder.writable:
        with contextlib.suppress(OperationalError):
            _finish(database)
            database.recorder.transact(lambda transaction: transaction.change(key, Left(BACKUP, os.path.abspath(part))))
            noted = True
    try:
        yield
    finally:
        if noted:
            with contextlib.suppress(OperationalError):  # the next vacuum finds the note, and no file
                database.recorder.transact(lambda transaction: transaction.change(key, Finished()))


def vacuum(store: Store) -> Vacuumed:
    """Complete interrupted erasures, remove what killed imports, detachments and backups left, and return the space of
    deleted rows to the file system. Where bytes of erased, redacted or re-encrypted events were pending, none is left
    in the file and its log.

    Positions stay. Readers go on; writers wait until the end. Where bytes of an erasure are pending, the call waits for
    a minute for readers that were open before, then raises ``StoreUnavailable``. Cost: the whole store, rewritten.
    """
    database = store.database
    with translated():
        recorder, path = database.recorder, database.recorder.path
        before = _size(path)
        discarded = _finish(database)
        if path is None:
            return Vacuumed(discarded, before, before, not recorder.compact(PATIENCE_S), space_returned=True)
        pending = recorder.value("bytes_pending") != ""
        returned = True
        try:
            recorder.compact(PATIENCE_S if pending else 0)
        except StillRead as error:
            if pending:
                still_read = StoreUnavailable(f"{error}; end it and run 'foldlog vacuum' again")
                still_read.unfinished = True
                raise still_read from error
            returned = False
        return Vacuumed(discarded, before, _size(path), recorder.value("bytes_pending") != "", returned)


def _finish(database: Database) -> int:
    """Finish what is not complete. Return the number of discarded imports. A rekey needs its key: it goes on when it is
    run again, or where an operation meets it.
    """
    recorder = database.recorder
    stale = _stale(recorder, database.now() - _STALE_US)
    for each in recorder.query(lambda reader: reader.unfinished()):
        if each.operation != REKEY and (each.operation != IMPORT or each.key in stale):
            finish(database, each)
    return len(stale)


def _stale(recorder: Recorder, before: int) -> list[int]:
    """Return the keys of staged conversations to which nothing was added after a moment."""

    def stale(reader: Reader) -> list[int]:
        staged = [reader.conversation(each.key) for each in reader.unfinished() if each.operation == IMPORT]
        return [each.key for each in staged if each is not None and (each.updated_at or each.created_at) < before]

    return recorder.query(stale)


def _size(path: str | None) -> int:
    """Return the size of the database with its log, in bytes; 0 where it is not a file."""
    return (
        0 if path is None else sum(Path(file).stat().st_size for file in (path, f"{path}-wal") if Path(file).exists())
    )
