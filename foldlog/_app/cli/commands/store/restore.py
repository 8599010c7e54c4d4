"""``foldlog store restore``: replace a store with a backup."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command, use_store
from foldlog._app.cli.options import argument, db_to_replace_option, json_option, yes_option
from foldlog._app.cli.stores import open_existing, path_of
from foldlog._reports.answers.store import RestoredDocument
from foldlog._reports.words.gist import content, count
from foldlog.eventstore import (
    ConversationRow,
    EventStoreError,
    Store,
    StoreRefused,
    confirm,
    open_store,
    restore_store,
)
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.recorders.urls import as_url
from foldlog.maintenance import files_to_note, holds_plain_events
from foldlog.projections.conversations.unreadable import sound


@argument("backup", "BACKUP", "The backup, made by 'foldlog store backup'.")
@yes_option
@db_to_replace_option
@json_option
def run(
    backup: Path,
    yes: bool,
    db: str,
) -> None:
    """Verify a backup and replace a store with a copy of the backup. The store may be in use,
    damaged, or missing.

    If the store exists, the command asks first in a terminal. The command prints the new name of
    the old file. If a program has the store open, its next append fails, and the program must open
    the store again. If content was erased or redacted after the backup, the restored store has it
    again. Then the command names these conversations, and the exit status is 1. A damaged backup is
    refused, and nothing is replaced.

    Example: foldlog store restore monday.db --yes
    """
    path = path_of(db)
    if path is not None and os.path.exists(path) and not yes:
        question = (
            f"Replace it with a copy of {backup}? The store will lack all events newer than the "
            "backup. The present file, which has them, gets another name."
        )
        terminal.confirm("restore", "restored", [f"{path} exists"], question, f"the store {path}")
    try:
        result = restore_store(db, str(backup), read_models=files_to_note(str(backup), path))
    except StoreRefused as error:  # the error is about the backup: nothing was replaced
        use_store(str(backup))  # the messages name this store in their commands
        raise Refused(str(error)) from error
    with open_existing(db) as store:
        for name in files_to_note(str(backup), result.former_file):
            confirm(store, name, 0)  # another process may have noted the file before
        shown_again: dict[str, set[int]] = {}
        if result.former_file is not None:
            shown_again = _shown_again(store, result.former_file)
        others = (row for row in store.iter_conversations() if row.id not in result.erased_since)
        is_plain = store.database.settings.keys is not None and holds_plain_events(store)
        have_forks = any(
            row.parent in result.erased_since and row.erased_at is None for row in others
        )
    sentence = (
        f"{result.path}: restored {content(result.events, result.records)} of "
        f"{count(result.conversations, 'conversation')}, every event verified"
        f"{_former_file(result.former_file)}"
    )
    terminal.answer(
        RestoredDocument.of(result, file=result.path, redacted_since=tuple(sorted(shown_again))),
        sentence,
    )
    if is_plain:
        terminal.note(
            f"conversations of this backup are not encrypted; '{command('store rekey')}' encrypts"
            " them"
        )
    _warn_of_return(shown_again, result.erased_since, have_forks=have_forks)


def _former_file(path: str | None) -> str:
    """Say where the replaced file is, and its logs."""
    files = [] if path is None else sorted(glob.glob(f"{glob.escape(path)}*"))
    if not files:
        return ""
    former, *logs = files
    named_logs = f", with {' and '.join(logs)}" if logs else ""
    return f"; the former file is {former}{named_logs}"


def _warn_of_return(
    shown_again: Mapping[str, Set[int]], erased: Sequence[str], *, have_forks: bool
) -> None:
    """Print which redacted events and erased conversations the restored store has again. The user
    has to redact before an erasure with --detach copies events into forks.
    """
    for name, ids in sorted(shown_again.items()):
        again = command("store redact", name, *sorted(ids, reverse=True), "--reason", "TEXT")
        terminal.warn(
            f"events of conversation {name!r} that were redacted have their content again;"
            f" '{again}' redacts them again"
        )
    if erased:
        detach = ["--detach"] if have_forks else []
        again = command("store erase", *erased, "--reason", "TEXT", *detach)
        terminal.warn(
            "conversations that were erased exist again:"
            f" {', '.join(map(repr, erased))}; '{again}' erases them again"
        )


def _shown_again(store: Store, former: str) -> dict[str, set[int]]:
    """Map each conversation to the events that were redacted after the backup was made.

    Compare the events, because the receipt of a redaction may have been erased.
    """
    shown_ids: dict[str, set[int]] = {}
    unread: list[str] = []
    try:
        with open_store(f"{as_url(former)}?mode=ro") as earlier:
            for owner, event_id in _iter_shown_again(store, earlier, unread):
                shown_ids.setdefault(owner, set()).add(event_id)
    except EventStoreError as error:
        unread.append(str(error))
    if unread:
        terminal.note(
            f"some events of the former file {former} cannot be read, so the command may not name "
            f"all events and conversations to redact or erase again: {unread[0]}"
        )
    return shown_ids


def _iter_shown_again(store: Store, earlier: Store, unread: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each event of ``store`` whose content is redacted in ``earlier``, with the conversation
    that it belongs to. Add the problems of events that cannot be read to ``unread``.
    """
    rows = {row.id: row for row in store.iter_conversations()}
    for then in earlier.iter_conversations():
        now = rows.get(then.id)
        if not then.redactions or then.erased_at is not None or now is None:
            continue
        if (now.created_at, now.erased_at) != (then.created_at, None):
            continue  # another conversation has this id
        past = sound(earlier, then.id, 0, min(then.version, now.version), unread)
        blank_ids = {entry.event.id for entry in past if not has_content(entry.event)}
        for event in store.events(now.id, 0, max(blank_ids, default=-1) + 1):
            if event.id in blank_ids and has_content(event):
                yield _owner_of(event.id, now, rows), event.id


def _owner_of(event_id: int, row: ConversationRow, rows: Mapping[str, ConversationRow]) -> str:
    """Return the id of the conversation that an event belongs to: a fork shares the events of its
    ancestors.
    """
    while event_id < (row.parent_version or 0):
        row = rows[row.parent or ""]
    return row.id
