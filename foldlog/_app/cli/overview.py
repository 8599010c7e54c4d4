"""``foldlog`` without a command: show what is in the store, and what needs attention."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import (
    DEMO_DB,
    command,
    default_db,
    home_folder,
    store_name,
    use_store,
)
from foldlog._app.cli.stores import ShortIds, open_existing
from foldlog._reports.answers.conversations import AttentionDocument, HomeDocument
from foldlog._reports.words.gist import count
from foldlog._reports.words.times import time_words
from foldlog.eventstore import Store
from foldlog.eventstore.recorders.urls import as_url, parse_url

_NEW = 20
"""The overview counts the figures of at most this number of new conversations."""
_RECENT = 5
"""The number of conversations in the overview."""
_WIDTH = 79
"""The columns of a row: the usual width of a terminal."""
_TITLE_MIN = 20
"""A title has at least this number of columns, also behind a long id."""


def show_overview(commands: Mapping[str, str]) -> None:
    """Print what is in the default store. Without a store, print ``commands`` with the first words
    of each help.
    """
    chosen = default_db()
    db = next((db for db in (chosen, DEMO_DB) if _is_there(db)), None)
    if db is None:
        terminal.answer(HomeDocument(db=None), lambda: _show_commands(commands))
        return
    use_store(db)
    with open_existing(db) as store:
        document = _overview(db, store)
        terminal.answer(document, lambda: _show(document, ShortIds(store)))


def _is_there(db: str) -> bool:
    """Return whether a store may be at ``db``. Only files are looked at."""
    location = parse_url(as_url(db))
    return location.scheme != "memory" and (
        location.scheme != "sqlite" or os.path.exists(location.path)
    )


def _overview(db: str, store: Store) -> HomeDocument:
    """Return what is in a store."""
    from foldlog._reports.figures.documents import document_of
    from foldlog._reports.figures.of_store import FiguresOfStore
    from foldlog._reports.figures.prices import Prices
    from foldlog._reports.figures.tables import Where

    figures = FiguresOfStore(store, is_quick=True)
    prices = Prices()
    uncounted = figures.refresh(_NEW)
    totals = figures.counts(whats=("kind",))
    facets = figures.facets(whats=("state",))
    recent = figures.first(Where(companions=False), sort="activity", reverse=True, limit=_RECENT)
    states = {facet.name: facet.conversations for facet in facets}
    return HomeDocument(
        db=db,
        conversations=totals.conversations + figures.missing,
        uncounted=uncounted,
        events=sum(totals.events.values()),
        errors=totals.errors,
        recent=tuple(document_of(row, counted, prices) for row, counted in recent),
        attention=(*_store_problems(store, states, figures.needs_key()), *_program_problems(store)),
        behind=figures.behind().document(),
    )


def _store_problems(
    store: Store, states: Mapping[str, int], locked: int
) -> Iterator[AttentionDocument]:
    """Yield the problems of a store and of its conversations. A problem names the command that
    solves it.
    """
    if number := states.get("error", 0):
        problem = f"{count(number, 'conversation')} ended with an error"
        yield AttentionDocument(
            problem=problem, command=command("list", "--sort", "state", "--reverse")
        )
    if number := states.get("open_call", 0):
        problem = f"{count(number, 'conversation')} ended with a call that has no result"
        yield AttentionDocument(problem=problem, command=command("list", "--to-resume"))
    if locked:
        yield AttentionDocument(
            problem=f"{count(locked, 'conversation')} cannot be read without a key"
        )
    unfinished = store.database.recorder.query(lambda reader: reader.unfinished())
    if unfinished:
        problem = f"{count(len(unfinished), 'operation was', 'operations were')} not completed"
        yield AttentionDocument(problem=problem, command=command("store vacuum"))
    if store.database.bytes_pending:
        problem = "the files may still contain erased bytes"
        yield AttentionDocument(problem=problem, command=command("store vacuum"))


def _program_problems(store: Store) -> Iterator[AttentionDocument]:
    """Yield the programs that soon delete transcripts which the store lacks."""
    from foldlog._app.coding_agents.programs import PROGRAMS, settings_at

    here = [program for program in PROGRAMS.values() if settings_at(program.home).is_dir()]
    for program in here:
        from foldlog._app.coding_agents.doctor import look_at

        status = look_at(store, program, Path(home_folder()))
        if status.soon and status.not_here:
            missing = f"{len(status.not_here):,} of its {count(status.transcripts, 'transcript')}"
            problem = (
                f"{status.program} deletes {count(status.soon, 'transcript')} within a week, and "
                f"this store lacks {missing}"
            )
            yield AttentionDocument(
                problem=problem, command=command("import", "--from", status.format)
            )


# -- for people ------------------------------------------------------------------------------------


def _show_commands(commands: Mapping[str, str]) -> None:
    """Print the first commands of a new user."""
    for name, described in commands.items():
        terminal.say(f"  foldlog {name:<8}{re.split('[,:.]', described)[0]}")
    terminal.say("  foldlog --help  All commands")
    terminal.say()
    terminal.say_wrapped(
        f"There is no store yet: '{command('demo')}' creates an example, 'foldlog import PATH' "
        f"imports your histories."
    )


def _show(document: HomeDocument, short: ShortIds) -> None:
    """Print the overview for a person."""
    parts = [f"{count(document.conversations, 'conversation')}", count(document.events, "event")]
    parts.append("errors unknown" if document.errors is None else count(document.errors, "error"))
    if document.uncounted:
        parts.append(f"{document.uncounted:,} not counted yet")
    terminal.say(f"{store_name(document.db or '')}: {', '.join(parts)}")
    for row in document.recent:
        at = time_words(row.last_event_at or "")
        begin = f"  {at:<19}  {terminal.typed_id(short(row.conversation))}  "
        title = " ".join((row.title or "").split())
        terminal.say(f"{begin}{title[: max(_TITLE_MIN, _WIDTH - len(begin))]}".rstrip())
    if document.attention:
        terminal.say()
        terminal.say("needs attention:")
    for attention in document.attention:
        remedy = f": {attention.command}" if attention.command else ""
        terminal.say(f"  {attention.problem}{remedy}")
    terminal.say()
    terminal.say_wrapped(
        f"{command('list')}, view ID, why ID EVENT, search WORDS, serve; all commands: foldlog"
        " --help"
    )
