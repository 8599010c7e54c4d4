"""Write conversations as a SQLite database, for SQL and Datasette: ``foldlog export --to
FILE.db``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.stores import chosen, events_total, open_existing
from foldlog._imports.making_events import make_events
from foldlog._reports.answers.files import DamagedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore import EventStoreError, Store

_DESCRIBED_EVERY_S = 2.0
"""The rows that describe conversations are written again after this time."""


def write_database(db: str, conversations: Sequence[str] | None, file: Path) -> None:
    """Add the new events of the named conversations, or of all, to a database."""
    from foldlog._reports.audit_database import update as add_to
    from foldlog._reports.audit_file import check_target

    with open_existing(db) as store, terminal.working(str(file), "events") as update:
        names = list(chosen(store, conversations)) if conversations else None
        check_target(store, file, names)
        _make_all_events(store, names)
        # An existing file gets only the new events, and their number is unknown.
        update(total=None if file.exists() else events_total(store, names))
        added = add_to(store, file, names, lambda events: update(advance=events))
    events = count(added.events, "event")
    condensations = count(added.condensations, "condensation")
    of = count(added.conversations, "conversation")
    terminal.answer(added, f"{file}: {events} and {condensations} of {of} added")
    if added.rebuilt:
        terminal.note(
            f"{file} was made again: the store was restored from a backup, and {file} had events "
            f"that the store no longer has"
        )
    _warn_of_damaged(file, added.damaged)


def follow_with_database(db: str, file: Path) -> None:
    """Update the database of a store until Ctrl-C."""
    from foldlog._reports.audit_database import AuditTables
    from foldlog._reports.audit_file import check_target, written
    from foldlog._reports.audit_follower import Follower

    with open_existing(db) as store, written(file):
        check_target(store, file)
        _make_all_events(store, None)
        with closing(AuditTables(store, file)) as tables:
            terminal.note(f"{file} follows the store until Ctrl-C")
            # Ctrl-C is the usual end.
            with suppress(KeyboardInterrupt), terminal.working(str(file), "events") as update:
                follower = Follower(store, tables)
                follower.run(_DESCRIBED_EVERY_S, lambda: update(completed=tables.events))
            tables.refresh()
            _warn_of_damaged(file, tables.damaged)
            terminal.note(f"{count(tables.events, 'event')} added to {file}")


def _make_all_events(store: Store, names: Sequence[str] | None) -> None:
    """Make the events of imported conversations that have none yet."""
    for name in names or chosen(store, None):
        try:
            make_events(store, name)
        except EventStoreError as error:
            terminal.unread(terminal.about(name, str(error)))


def check_options(
    file: Path | None,
    *,
    follow: bool,
    others: Sequence[str],
    conversations: Sequence[str],
) -> None:
    """Raise ``Refused`` if the options exclude one another. ``others`` are options that ``--to``
    does not allow.
    """
    if follow and (file is None or conversations or terminal.prints_json()):
        raise Refused(
            "--follow needs --to FILE and exports the whole store; leave out conversations and "
            "--json"
        )
    if file is not None and others:
        raise Refused(f"--to writes a database; leave out {', '.join(others)}")
    if file is None and len(conversations) != 1:
        raise Refused(
            "name one conversation; to export several, write a database with --to FILE.db"
        )


def _warn_of_damaged(file: Path, damaged: Iterable[DamagedDocument]) -> None:
    """Print the events that cannot be read, as findings."""
    for lost in damaged:
        terminal.warn(
            f"left out of {file}: event {lost.event} of conversation {lost.conversation!r}:"
            f" {lost.problem}"
        )
