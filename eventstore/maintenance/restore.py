"""Restore a store from a backup, also while processes have the store open."""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore.errors import EventStoreError, InvalidOption, KeyUnavailable, StoreUnavailable, StoreUnusable
from foldlog.eventstore.log.database import Database, translated
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.new_file import held, is_abandoned, made_beside, parts_beside, sync
from foldlog.eventstore.maintenance.verify import verdicts
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.replacing import check_replaceable, copy_of, replace
from foldlog.eventstore.recorders.types import PlacedRow

_PAGE = 1_000
_GONE = ("erased", "redaction", "redaction_copied")


class Restored(NamedTuple):
    """A store that was restored from a backup. ``kept`` is the new path of the former file, or of its log where only
    that was there. ``erased_since`` are the conversations that were erased in the former file after the backup and
    exist again. ``redacted_since`` are those in which events were redacted after the backup.
    """

    path: str
    kept: str | None
    conversations: int
    events: int
    erased_since: tuple[str, ...]
    redacted_since: tuple[str, ...] = ()


def restore(backup: str, path: str, settings: WriteSettings) -> Restored:
    """Verify the backup, and put a copy of it at ``path``. It replaces the store there, if there is one.

    A process that has the store open writes nothing more to it: its next append raises ``StoreUnavailable``. The former
    file is kept beside the new one, with its log. The restored store begins a new epoch of positions at its first
    write. Raises ``StoreUnavailable`` if a file cannot be read or written now; ``StoreUnusable`` if the backup is not a
    store or is damaged, or if the file at ``path`` is of another program; and ``KeyUnavailable`` if the backup needs a
    key to be verified; then nothing was changed. Cost: the backup, read three times.
    """
    path = os.path.realpath(path)
    if not os.path.exists(backup):
        raise InvalidOption(f"the backup {backup} does not exist; check its path")
    if os.path.isdir(backup):
        raise InvalidOption(f"the backup {backup} is a folder; name the file of the backup")
    if os.path.exists(path) and os.path.samefile(backup, path):
        raise InvalidOption(f"{backup} is the store itself; name a backup of it")
    kept = _name_for_the_old(path)
    with _errors_named(backup, path):
        for left in filter(is_abandoned, parts_beside(Path(path))):
            _remove(left)  # by an attempt that was killed
        opened, part = made_beside(Path(path))
        os.close(opened)
    try:
        with _errors_named(backup, path), held(Path(part)):
            copy_of(backup, part)
            conversations, events, names, last = _verified(part, backup, settings)
            check_replaceable(path)
            since = [(each.conversation, each.row.kind) for each in _entered_since(path, last)]
            erased_since = sorted({name for name, kind in since if kind == "erased" and name in names})
            redacted_since = sorted({name for name, kind in since if kind != "erased" and name in names})
            sync(part)
            former = replace(path, part, kept)
    finally:
        _remove(part)
    return Restored(path, former, conversations, events, tuple(erased_since), tuple(redacted_since))


def _remove(part: str) -> None:
    for suffix in ("", "-wal", "-shm", "-queue", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{part}{suffix}")


def _verified(part: str, backup: str, settings: WriteSettings) -> tuple[int, int, set[str], int]:
    """Return the number of conversations and of events in a copy, the ids of conversations that are not erased, and the
    last position. Migrate a copy of an older schema.
    """
    SQLiteRecorder(part, create=False).close()
    with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with contextlib.closing(SQLiteRecorder(part, writable=False)) as copy:
        made = list(verdicts(Database(copy, settings)))
        last = int(copy.value("last_position"))
    findings = [(verdict.conversation, finding) for verdict in made for finding in verdict.findings]
    damage = [(conversation, finding) for conversation, finding in findings if not finding.needs_key]
    if findings and not damage:
        raise KeyUnavailable(
            f"{backup} cannot be verified without its keys, and nothing was replaced: {findings[0][1].problem}"
        )
    if damage:
        conversation, finding = damage[0]
        where = "" if conversation is None else f"conversation {conversation!r}: "
        raise StoreUnusable(
            f"{backup} is not sound (findings: {len(damage):,}; the first: {where}{finding}), and nothing was "
            f"replaced; restore another backup, or copy what is sound with 'foldlog salvage'"
        )
    named = [verdict for verdict in made if verdict.conversation is not None]
    living = [verdict for verdict in named if verdict.erasure is None]
    names = {str(verdict.conversation) for verdict in living}
    return len(named), sum(verdict.version for verdict in living), names, last


def _entered_since(path: str, position: int) -> Iterator[PlacedRow]:
    """Yield the erasures and receipts of redactions after a position of a store, as far as it can be read."""
    if not os.path.exists(path):
        return
    with suppress(EventStoreError), translated(), contextlib.closing(SQLiteRecorder(path, writable=False)) as old:
        while page := old.query(lambda reader: reader.placed_rows(position, _PAGE)):  # noqa: B023
            yield from (each for each in page if each.row.kind in _GONE)
            position = page[-1].position


def _name_for_the_old(path: str) -> str:
    """Return a new name for the former file, or the name from an earlier attempt that was killed."""
    for name in glob.glob(f"{glob.escape(path)}.replaced-*"):
        if os.path.exists(path) and os.path.samefile(name, path):
            return name
    return f"{path}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


@contextlib.contextmanager
def _errors_named(backup: str, path: str) -> Iterator[None]:
    try:
        with translated():
            yield
    except (OSError, sqlite3.Error) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreUnavailable(f"cannot restore {backup} to {path}: {problem}; nothing was replaced") from error
