"""``foldlog audit``: compare stored revisions of Views with the log, and make a database of the histories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Annotated

import typer
from msgspec import UNSET

from foldlog._cli import terminal
from foldlog._cli.hints import command
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, From, SomeConversations, new_file
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import chosen, events_total, open_existing, whole
from foldlog._documents import (
    AddedDocument,
    AuditDocument,
    AuditedDocument,
    DamagedDocument,
    ProblemDocument,
    RevisionDocument,
)
from foldlog._words.gist import count
from foldlog.eventstore import EventStoreError, Store
from foldlog.projections import Views, audit

_DESCRIBED_EVERY_S = 2.0


def run(
    conversations: SomeConversations = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Make or update an audit database, for SQL and Datasette.",
            callback=new_file,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --to: keep the audit database up to date until Ctrl-C.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First rebuild the stored revisions from the events, also while others read."),
    ] = False,
    start: From = "",
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Fold conversations again from their first event, and compare every stored revision.

    Exit status 1 if a revision differs from the log (--repair replaces it) or an event cannot be read. The audit
    database has all events and condensations; 'foldlog log ID --kind condensation' lists the condensations of one
    conversation.

    Example: foldlog audit --to audit.db
    """
    if start and (conversations or follow):
        raise Refused("--from goes on with an audit of all conversations; leave out the names and --follow")
    if follow:
        _follow(db, to, alone=not (conversations or repair or as_json))
        return
    from foldlog._reports.audit_file import check_target

    results: dict[str, AuditedDocument | EventStoreError] = {}
    last = ""
    with open_existing(db) as store, terminal.working("auditing", "events") as update:
        conversations = list(chosen(store, conversations, whole if repair else None)) if conversations else None
        if to is not None:
            check_target(store, to, conversations)
        views = Views(store) if repair else None
        try:
            for last in conversations or dropwhile(lambda name: name < start, chosen(store, None)):
                update(description=terminal.typed_id(last))
                results[last] = _audited(store, views, last, lambda done, of: update(completed=done, total=of))
        except BaseException:
            if last and not conversations:
                goes_on = ("--repair",) * repair
                terminal.note(f"it ended early; '{command('audit', *goes_on, '--from', last)}' goes on")
            _warn_of(results)
            raise
        added = None
        if to is not None:
            from foldlog._reports.audit_database import update as add_to

            total = None if to.exists() else events_total(store, conversations)  # only new events are added to a file
            update(description=str(to), completed=0, total=total)
            added = add_to(store, to, conversations, lambda events: update(advance=events))
    audits = tuple(one for one in results.values() if isinstance(one, AuditedDocument))
    unread = {name: str(one) for name, one in results.items() if isinstance(one, EventStoreError)}
    problems = tuple(ProblemDocument(conversation=name, problem=problem) for name, problem in unread.items())
    document = AuditDocument(conversations=audits, unread=problems, added=added or UNSET)
    terminal.answer(document, _summary(audits, len(problems), added))
    _warn_of(results)
    if added is not None and added.rebuilt:
        terminal.note(f"{to} is made again: the store was restored from a backup, and {to} held what the store lost")
    _warn_of_damaged(to, () if added is None else added.damaged)


def _audited(
    store: Store, views: Views | None, name: str, on_progress: Callable[[int, int], None]
) -> AuditedDocument | EventStoreError:
    """Compare the revisions of a conversation with its log, after ``views`` has rebuilt them. Return the error if it
    cannot be read to the end.
    """
    try:
        if views is not None:
            views.rebuild(name)
        done = audit(store, name, on_progress)
    except EventStoreError as error:
        return error
    return AuditedDocument.of(done, conversation=name, findings=tuple(map(RevisionDocument.of, done.findings)))


def _summary(audits: Sequence[AuditedDocument], unread: int, added: AddedDocument | None) -> list[str]:
    revisions, wrong = sum(one.revisions for one in audits), sum(len(one.findings) for one in audits)
    verdict = f"{wrong:,} differ from the log" if wrong else "all equal to the log"
    if unread:
        of = f"{count(unread, 'conversation')} not read to the end, named below"
        verdict = f"{verdict if revisions else 'none compared'}; {of}"
    told = f"{count(len(audits), 'conversation')}, {count(revisions, 'revision')}: {verdict}"
    if added is None:
        return [told]
    events, condensations = count(added.events, "event"), count(added.condensations, "condensation")
    of = count(added.conversations, "conversation")
    return [told, f"audit database: {events} and {condensations} added, of {of}"]


def _warn_of(results: Mapping[str, AuditedDocument | EventStoreError]) -> None:
    for name, one in results.items():
        if isinstance(one, EventStoreError):
            terminal.warn(terminal.about(name, str(one)))
            continue
        for each in one.findings:
            terminal.warn(f"conversation {name!r}, revision of version {each.version}: {each.problem}")


def _follow(db: str, to: Path | None, *, alone: bool) -> None:
    """Keep the audit database up to date until Ctrl-C, with the eventsourcing library's runner."""
    if to is None or not alone:
        raise Refused("--follow needs --to FILE, and follows the store; leave out conversations, --repair and --json")
    from foldlog._follower import Follower
    from foldlog._reports.audit_database import AuditTables
    from foldlog._reports.audit_file import check_target, written

    with open_existing(db) as store, written(to):
        check_target(store, to)
        with Follower(store, AuditTables(store, to)) as follower:
            terminal.note(f"{to} follows the store until Ctrl-C")
            with suppress(KeyboardInterrupt), terminal.working(str(to), "events") as update:  # it ends so
                follower.run(_DESCRIBED_EVERY_S, lambda events: update(completed=events))
            follower.view.derived.describe()
            _warn_of_damaged(to, follower.view.derived.damaged)
        terminal.note(f"{count(follower.view.events, 'event')} added to {to}")


def _warn_of_damaged(to: Path | None, damaged: Iterable[DamagedDocument]) -> None:
    for lost in damaged:
        terminal.warn(f"left out of {to}: event {lost.event} of conversation {lost.conversation!r}: {lost.problem}")
