"""``foldlog erase``: erase histories for good."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command
from foldlog._cli.histories.attributes import pairs
from foldlog._cli.maintenance.vacuum import bytes_stay_pending
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, NoVacuum, SomeConversations, Yes
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import DryRun, Where, given_moment
from foldlog._cli.stores import bytes_pending_words, open_existing, whole
from foldlog._companions import with_companions
from foldlog._copies import is_a_copy, path_in
from foldlog._documents import ConversationDocument, ErasedDocument, ProblemDocument
from foldlog._history.lease import lease_that_keeps
from foldlog._maintenance import and_forks, conversations_with, erased
from foldlog._reports.overview import overview_of
from foldlog._words.gist import count
from foldlog.eventstore import ConversationHasForks, ConversationRow, EventStoreError, Store
from foldlog.eventstore.inside import check_reason
from foldlog.projections import Views

WORDS_MAX = 200
_NAMED_MAX = 20
"""A question names this many conversations."""
_SUB_AGENT = "sub-agent "


def run(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, which the tombstone keeps.")],
    conversations: SomeConversations = None,
    where: Where = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Only conversations of which no event was recorded since: 90d (or s, m: minutes, h, w), "
            "2026-03-01; what was imported is recorded at its first use. Without ids: all such conversations.",
        ),
    ] = None,
    with_forks: Annotated[
        bool, typer.Option("--with-forks", help="Erase their forks too, with their own forks.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="First give each of their forks a copy of the shared events.")
    ] = False,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase conversations for good: their events and all derived data, from tables, free pages and logs.

    In a terminal the command shows the conversations and asks first. No reader sees them from the first moment on. At
    the end the store is vacuumed: a SQLite file is rewritten as a whole, and other writers wait. With --older-than, a
    conversation stays, with a note, that gets a new event before its turn, has a younger fork, or has a worker.

    Exit status 1 if no conversation has the attributes, or none is that old.

    A tombstone stays: the id, when, why, how many events, and the last head. An append does not use its id again.
    Earlier copies and backups still hold the conversations; later ones hold the tombstones. The report names
    backups, exports, reports, read models and imported files that may still hold them; the same command asks again.

    Example: foldlog erase tidewatch --reason "asked to"
    """
    if with_forks and detach:
        raise Refused("--with-forks and --detach: forks are either erased or kept; give one of the two")
    if with_forks and older_than is not None:
        raise Refused("--with-forks and --older-than: a younger fork would be erased too; leave one of the two out")
    check_reason(reason, "tombstone")
    before = given_moment("--older-than", older_than)
    with open_existing(db) as store:
        rows = selected(store, conversations, where, before)
        if not (yes or dry_run):
            _ask(store, with_companions(store, and_forks(store, rows) if with_forks else rows))
        work = erased(
            store,
            rows,
            reason=reason,
            with_forks=with_forks,
            detach_forks=detach,
            expected=None if before is None else {row.id: row for row in rows},
            stays=(lambda name: None) if before is None else partial(lease_that_keeps, store),
            complete=False,
            dry_run=dry_run,
        )
        gone: list[ConversationRow] = []
        stay: list[ProblemDocument] = []
        with terminal.working("looking" if dry_run else "erasing", "conversations", len(rows)) as update:
            for row, error in work:
                if error is None:
                    gone.append(row)
                else:
                    stay.append(ProblemDocument(conversation=row.id, problem=_problem(error)))
                update(advance=1)
        if not gone and stay and before is None:
            raise Refused("; ".join(one.problem for one in stay))
        is_pending = False
        if gone and not dry_run:
            done = f"conversation {gone[0].id!r} is erased" if len(gone) == 1 else f"{len(gone)} are erased"
            is_pending = bytes_stay_pending(store, done, no_vacuum=no_vacuum)
            gone = [row._replace(bytes_pending=is_pending) for row in gone]
        remedy = bytes_pending_words(store, "it")
    document = _document(gone, stay)
    told = list(map(_account, gone))
    if where and not (rows or conversations):
        told.append(f"None has {', '.join(where)}")
    elif len(gone) != 1:
        done = "erased" if gone and gone[0].erased_at is not None else "to erase"
        told.append(f"{count(len(gone), 'conversation')} {done}, {count(document.events, 'event')}")
    terminal.answer(document, told)
    if not (gone or stay):
        terminal.matched_nothing()
    for one in stay:
        (terminal.warn if before is None else terminal.note)(one.problem)
    if is_pending:
        terminal.note(f"bytes pending: {remedy}")
    agents = [name for name in document.holders if name.startswith(_SUB_AGENT)]
    if agents:
        remedy = command("erase", *(name.removeprefix(_SUB_AGENT) for name in agents), "--reason", reason)
        them = "the conversation of a sub-agent stays" if len(agents) == 1 else f"{len(agents)} of sub-agents stay"
        terminal.note(f"{them}, and may hold the content; to erase them too: '{remedy}'")
    if not dry_run:
        warn_of_unconfirmed((name for name in document.holders if name not in agents), "erasure")


def _document(gone: Sequence[ConversationRow], stay: Sequence[ProblemDocument]) -> ErasedDocument:
    went = {f"{what}{row.id}" for row in gone for what in ("companion ", _SUB_AGENT)}  # after those that named them
    return ErasedDocument(
        conversations=tuple(map(ConversationDocument.of_row, gone)),
        events=sum(row.version for row in gone),
        stay=tuple(stay),
        holders=tuple(dict.fromkeys(name for row in gone for name in row.unconfirmed if name not in went)),
    )


def selected(
    store: Store, conversations: Sequence[str] | None, where: Sequence[str] | None, before: datetime | None
) -> list[ConversationRow]:
    """Return the conversations that are named and those with the attributes, and of all these the ones without an event
    since ``before``. Raises ``Refused`` where nothing says which, or an id is unknown.
    """
    if not (conversations or where or before):
        raise Refused("name the conversations: ID, --where NAME=VALUE or --older-than TIME")
    names = [whole(store, name) for name in dict.fromkeys(conversations or ())]
    rows = [store.conversation(name) for name in names]
    if before is not None:
        rows = [row for row in rows if all(each.updated_at < before for each in with_companions(store, [row]))]
    if where or not names:
        rows += [row for row in conversations_with(store, pairs(list(where or ())), before) if row.id not in names]
    return rows


def _problem(error: EventStoreError) -> str:
    """Return why a conversation stays, with the options of the command."""
    if isinstance(error, ConversationHasForks):
        return f"{error.problem}; --with-forks erases them too, --detach first gives each a copy of the shared events"
    return str(error)


def _account(row: ConversationRow) -> str:
    name = terminal.typed_id(row.id)
    if row.erased_at is None:
        return f"{name}: {count(row.version, 'event')}, the last at {row.updated_at.isoformat()}"
    return f"{name}: erased at {row.erased_at.isoformat()}, {count(row.version, 'event')}, head {row.head}"


def warn_of_unconfirmed(unconfirmed: Iterable[str], removal: str) -> None:
    """Name the read models that may still hold what was removed, and the command that updates an audit database; the
    files that can only be deleted; and the imported events that could not be looked into.
    """
    for name in dict.fromkeys(unconfirmed):
        if name.startswith("conversation "):
            terminal.warn(f"the record of an event may still hold the content, because it cannot be read: {name}")
        elif name.startswith("companion "):
            terminal.warn(f"what its runtime keeps beside it may still hold the content, until that is erased: {name}")
        elif is_a_copy(name):
            file = "a file in this folder" if name.startswith("imported folder ") else "a file"
            terminal.note(f"{file} may still hold the content, until it is deleted: {name}")
        else:
            remedy = f"run '{command('audit', '--to', path)}'" if (path := path_in(name)) else "let it follow the store"
            terminal.warn(
                f"a read model may still hold the content, because it has not confirmed the {removal}: {name}; "
                f"{remedy}, then run the same command again to ask again"
            )


def _ask(store: Store, rows: Sequence[ConversationRow]) -> None:
    """Ask a person. An erased conversation is not asked about: its erasure is finished."""
    rows = [row for row in rows if row.erased_at is None]
    shown = [line for row in rows[:_NAMED_MAX] for line in _shown(store, row)]
    more = [f"… and {len(rows) - _NAMED_MAX:,} more"] if len(rows) > _NAMED_MAX else []
    of = f"conversation {rows[0].id!r}" if len(rows) == 1 else f"each of {len(rows):,} conversations"
    if rows:
        it = "it" if len(rows) == 1 else "them"
        question = f"Erase {it} for good? Nothing brings {it} back."
        terminal.confirm("erase", "erased", [*shown, *more], question, of)


def _shown(store: Store, row: ConversationRow) -> tuple[str, str]:
    begun = row.created_at.isoformat(sep=" ", timespec="seconds")
    more = overview_of(store, Views(store), row)
    about = more.title or more.problem or "without words of a user"
    return f"{terminal.typed_id(row.id)}: {count(row.version, 'event')}, begun {begun}", about[:WORDS_MAX]
