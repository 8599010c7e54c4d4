"""Erase conversations and report the erasure, for ``foldlog store erase`` and ``foldlog store
expire``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command, store_name
from foldlog._app.cli.vacuuming import vacuum_pending
from foldlog._privacy.erasing import Erasure, and_forks, iter_erased
from foldlog._reports.answers.conversations import ConversationDocument
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.store import ErasedDocument
from foldlog._reports.figures.overview import Overview, overview_of
from foldlog._reports.words.gist import count
from foldlog._reports.words.times import time_words
from foldlog.eventstore import (
    ConversationErased,
    ConversationHasForks,
    ConversationRow,
    EventStoreError,
    Store,
)
from foldlog.eventstore.files.written_files import file_words, is_a_copy, path_in
from foldlog.projections import Views
from foldlog.projections.conversations.companions import with_companions

WORDS_MAX = 200
"""The maximum number of characters of a title that the confirmation question shows."""
_NAMED_MAX = 20
"""The maximum number of conversations that the confirmation question or a command lists."""
_SUB_AGENT = "sub-agent "


class ErasedRows(NamedTuple):
    """The conversations that were erased or would be erased, and the conversations that stay.

    ``pending`` says where erased bytes are left, and how to remove them; it is empty if no bytes
    are left.
    """

    rows: Sequence[ConversationRow]
    stay: Sequence[ProblemDocument]
    pending: str


def erase_rows(
    store: Store,
    rows: Sequence[ConversationRow],
    options: Erasure,
    *,
    for_age: bool = False,
    no_vacuum: bool,
) -> ErasedRows:
    """Erase conversations, and vacuum the store. ``for_age`` says that the user did not name
    them.
    """
    work = iter_erased(store, rows, options)
    erased_rows: list[ConversationRow] = []
    stay: list[ProblemDocument] = []
    with terminal.working(
        "looking" if options.dry_run else "erasing", "conversations", len(rows)
    ) as update:
        for row, error in work:
            if error is None:
                erased_rows.append(row)
            else:
                problem = _reason_to_stay(error, for_age=for_age)
                stay.append(ProblemDocument(conversation=row.id, problem=problem))
            update(advance=1)
    pending = ""
    if erased_rows and not options.dry_run:
        if len(erased_rows) == 1:
            sentence = f"conversation {erased_rows[0].id!r} is erased"
        else:
            sentence = f"{len(erased_rows)} conversations are erased"
        pending = vacuum_pending(store, sentence, "what was erased", no_vacuum=no_vacuum)
        erased_rows = [row._replace(bytes_pending=bool(pending)) for row in erased_rows]
    return ErasedRows(erased_rows, stay, pending)


def report(
    outcome: ErasedRows, options: Erasure, *, for_age: bool = False, nothing: str = ""
) -> None:
    """Print what was erased, what stays, and which files and stores may still contain the content.
    ``nothing`` is the last line for a command that found nothing to erase. If ``for_age`` is true,
    a command that found no old conversation succeeds.
    """
    rows = outcome.rows
    stay = outcome.stay
    document = _document(rows, stay)
    lines = list(map(_account, rows))
    if nothing:
        lines.append(nothing)
    elif len(rows) != 1:
        verb = "to erase" if options.dry_run else "erased"
        lines.append(
            f"{count(len(rows), 'conversation')} {verb}, {count(document.events, 'event')}"
        )
    terminal.answer(document, lines)
    if not (rows or stay or for_age):
        terminal.matched_nothing()
    for problem in dict.fromkeys(row.problem for row in stay):  # agents of a task share a problem
        (terminal.note if for_age else terminal.warn)(problem)
    if outcome.pending:
        terminal.note(outcome.pending)
    agents = [name for name in document.holders if name.startswith(_SUB_AGENT)]
    if agents:
        names = [name.removeprefix(_SUB_AGENT) for name in agents[:_NAMED_MAX]]
        remedy = command("store erase", *names, "--with-children", "--reason", options.reason)
        first = f" the first {_NAMED_MAX}" if len(agents) > _NAMED_MAX else ""
        terminal.note(
            f"not erased, and may contain the content: {count(len(agents), 'sub-agent')}; to"
            f" erase{first}: '{remedy}'"
        )
    if not options.dry_run:
        warn_of_unconfirmed((name for name in document.holders if name not in agents), "erasure")


def _document(rows: Sequence[ConversationRow], stay: Sequence[ProblemDocument]) -> ErasedDocument:
    """Return the document of an erasure. A holder that was erased after the conversation that named
    it is left out.
    """
    went = {f"{what}{row.id}" for row in rows for what in ("companion ", _SUB_AGENT)}
    return ErasedDocument(
        conversations=tuple(map(ConversationDocument.of_row, rows)),
        events=sum(row.version for row in rows),
        stay=tuple(stay),
        holders=tuple(
            dict.fromkeys(name for row in rows for name in row.unconfirmed if name not in went)
        ),
    )


def _reason_to_stay(error: EventStoreError, *, for_age: bool) -> str:
    """Return why a conversation stays, and which options of the command would erase it."""
    if not isinstance(error, ConversationHasForks):
        return str(error)
    # Other conversations of the command may be erased.
    problem = error.problem.removesuffix("; nothing was erased")
    with_forks = "" if for_age else " --with-forks also erases the forks;"
    return (
        f"{problem}, so it was not erased;{with_forks} --detach first copies the shared events into"
        " each fork"
    )


def _account(row: ConversationRow) -> str:
    """Return the line of a conversation in the report."""
    name = terminal.typed_id(row.id)
    events = count(row.version, "event")
    if row.erased_at is None:
        unused = f", {count(row.unmade, 'record')} without events" if row.unmade else ""
        return f"{name}: {events}{unused}, the last at {time_words(row.updated_at)}"
    return f"{name}: erased at {time_words(row.erased_at)}, {events}, head {row.head}"


def warn_of_unconfirmed(unconfirmed: Iterable[str], removal: str) -> None:
    """Print what may still contain the removed content: read models, files, and imported records
    that could not be read. For an audit database, print the command that updates it.
    """
    for name in dict.fromkeys(unconfirmed):
        if name.startswith("conversation "):
            terminal.warn(
                f"the record of an event cannot be read and may still contain the content: {name}"
            )
        elif name.startswith("companion "):
            terminal.warn(
                "another conversation of the runtime may still contain the content until you erase"
                f" this conversation too: {name}"
            )
        elif is_a_copy(name):
            file = "a file in this folder" if name.startswith("imported folder ") else "a file"
            terminal.note(
                f"{file} may still contain the content until you delete it: {file_words(name)}"
            )
        elif name.startswith("imported "):
            terminal.note(f"a file may still contain the content until you delete it: {name}")
        else:
            if path := path_in(name):
                remedy = f"run '{command('export', '--to', path)}'"
            else:
                remedy = "let it follow the store"
            terminal.warn(
                f"a read model has not confirmed the {removal} and may still contain the content: "
                f"{name}; {remedy}, then run the same command again to check"
            )


def ask(
    store: Store, db: str, rows: Sequence[ConversationRow], *, with_forks: bool = False
) -> None:
    """Ask the user to confirm. Do not ask about conversations whose erasure has already begun."""
    rows = with_companions(store, and_forks(store, rows) if with_forks else rows)
    rows = [row for row in rows if row.erased_at is None]
    shown = [line for row in rows[:_NAMED_MAX] for line in _shown(store, row)]
    if len(rows) > _NAMED_MAX:
        shown.append(f"… and {len(rows) - _NAMED_MAX:,} more")
    if rows:
        of = f"conversation {rows[0].id!r}"
        pronoun = "it"
        if len(rows) > 1:
            of = f"each of {len(rows):,} conversations"
            pronoun = "them"
        question = f"Erase {pronoun} from {store_name(db)} for good? This cannot be undone."
        terminal.confirm("erase", "erased", shown, question, of)


def _shown(store: Store, row: ConversationRow) -> tuple[str, str]:
    """Return the lines of a conversation in the confirmation question."""
    more = Overview()
    with suppress(ConversationErased):  # another process has erased the conversation
        more = overview_of(store, Views(store), row)
    about = more.title or more.problem or "(no message of a user)"
    events = count(row.version, "event")
    return (
        f"{terminal.typed_id(row.id)}: {events}, begun {time_words(row.created_at)}",
        about[:WORDS_MAX],
    )
