"""Back up a store in a file while it is in use, and reclaim its space.

A PostgreSQL server has its own tools for both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore.errors import InvalidOption, StoreUnavailable
from foldlog.eventstore.log.database import Database, translated
from foldlog.eventstore.log.staging import delete_rows
from foldlog.eventstore.maintenance.damage import staged_conversations
from foldlog.eventstore.maintenance.new_file import new_beside, sync
from foldlog.eventstore.maintenance.verify import Verdict, verdicts
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.errors import StillRead
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
    recorder, _ = _of_file(database, "backed up", "pg_dump does it")
    target = Path(path)
    if target.exists():
        raise InvalidOption(f"{path} exists already; give the backup a name of its own")
    part = None
    try:
        part = new_beside(target)
        with translated(), contextlib.closing(recorder.copy_to(str(part), on_progress)) as copy:
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


def vacuum(store: Store, *, patience_s: float = 60.0) -> Vacuumed:
    """Remove the remains of killed imports, complete interrupted erasures, and return the space of deleted rows to the
    file system. Where bytes of erased, redacted or re-encrypted events were pending, none is left in the file and its
    log.

    Positions stay. Readers go on; writers wait until the end. Where bytes of an erasure are pending, the call waits up
    to ``patience_s`` seconds for readers that were open before, then raises ``StoreUnavailable``. Cost: the whole
    store, rewritten.
    """
    database = store.database
    with translated():
        recorder, path = _of_file(database, "vacuumed", "VACUUM does it")
        before = _size(path)
        stale = _stale(recorder, database.now() - _STALE_US)
        for key in (*map(int, recorder.value("left_of_erased").split()), *stale):
            delete_rows(recorder, key)
        pending = recorder.value("bytes_pending") != ""
        returned = True
        try:
            recorder.compact(patience_s if pending else 0)
        except StillRead as error:
            if pending:
                still_read = StoreUnavailable(f"{error}; end it and run 'foldlog vacuum' again")
                still_read.unfinished = True
                raise still_read from error
            returned = False
        return Vacuumed(len(stale), before, _size(path), recorder.value("bytes_pending") != "", returned)


def _stale(recorder: Recorder, before: int) -> list[int]:
    """Return the keys of staged conversations to which nothing was added after a moment."""
    return [found.key for found in staged_conversations(recorder) if (found.updated_at or found.created_at) < before]


def _of_file(database: Database, done: str, instead: str) -> tuple[Recorder, str]:
    """Return the recorder and its file."""
    recorder = database.recorder
    if recorder.path is None:
        raise InvalidOption(f"only a store in a SQLite file can be {done}; on a PostgreSQL server {instead}")
    return recorder, recorder.path


def _size(path: str) -> int:
    """Return the size of the database with its log, in bytes."""
    return sum(Path(file).stat().st_size for file in (path, f"{path}-wal") if Path(file).exists())
