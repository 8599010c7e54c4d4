"""``foldlog audit``: compare stored revisions of Views with the log, and list what was forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.outputs import new_file
from foldlog._cli.stores import chosen, events_total, open_existing, whole
from foldlog._cli.styles import interval_words, summary_text
from foldlog._cli.tables import Column, print_rows
from foldlog._words.gist import count
from foldlog._words.reasons import because
from foldlog.eventstore import EventStoreError, Store
from foldlog.projections import Auditing, Finding, Forgetting, Views

if TYPE_CHECKING:
    from foldlog._reports.audit_database import Updated

_DESCRIBED_EVERY_S = 2.0

_PAGE = 200
"""The number of condensations in one table."""

Update = Callable[[], "Updated"]


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
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Fold conversations again from their first event, compare every stored revision, and list all condensations.

    Exit status 1 if a revision differs from the log (--repair replaces it) or an event cannot be read.

    Example: foldlog audit --to audit.db
    """
    if follow:
        return _follow(db, to, conversations, as_json)
    from foldlog._reports.audit_file import check_target

    with open_existing(db) as store, terminal.progress() as bars:
        conversations = list(chosen(store, conversations, whole if repair else None)) if conversations else None
        if to is not None:
            check_target(store, to, conversations)
        audits = _Audits(store, bars, Views(store) if repair else None)
        update = None if to is None else partial(_update, store, to, conversations, bars)
        names = conversations or chosen(store, None)
        updated = _emit(audits, names, update) if as_json else _show(audits, names, update)
    for finding in audits.findings:
        terminal.warn(finding)
    if updated is not None and updated.rebuilt:
        terminal.note(f"{to} is made again: the store was restored from a backup, and {to} held what the store lost")
    left_out = () if updated is None else updated.damaged
    for lost in left_out:
        terminal.warn(f"left out of {to}: event {lost.id} of conversation {lost.conversation!r}: {lost.problem}")
    return DONE


def _follow(db: str, to: Path | None, conversations: list[str] | None, as_json: bool) -> int:
    """Keep the audit database up to date until Ctrl-C, with the eventsourcing library's runner."""
    if to is None or conversations or as_json:
        raise Refused("--follow needs --to FILE and follows the whole store; leave out conversations and --json")
    from foldlog._reports.audit_file import check_target
    from foldlog._reports.audit_follow import AuditFollower

    with open_existing(db) as store:
        check_target(store, to)
        with AuditFollower(store, to) as follower, terminal.progress() as bars:
            bar = bars.add_task(str(to), unit="events", total=None)
            try:
                follower.run(_DESCRIBED_EVERY_S, lambda events: bars.update(bar, completed=events))
            except KeyboardInterrupt:
                follower.view.tables.describe()
            for lost in follower.view.tables.damaged:
                terminal.warn(
                    f"left out of {to}: event {lost.id} of conversation {lost.conversation!r}: {lost.problem}"
                )
            return DONE


def _update(store: Store, to: Path, conversations: list[str] | None, bars: Progress) -> Updated:
    from foldlog._reports.audit_database import update

    total = None if to.exists() else events_total(store, conversations)  # only new events are added to an existing file
    bar = bars.add_task(str(to), unit="events", total=total)
    return update(store, to, conversations, partial(bars.advance, bar))


class _Audits:
    """The audits of conversations, one after the other, with their findings so far."""

    def __init__(self, store: Store, bars: Progress, repaired: Views | None) -> None:
        self.store, self.bars, self.repaired = store, bars, repaired
        self.conversations = self.revisions = self.wrong = 0
        self.findings: list[str] = []
        self.unread: list[tuple[str, str]] = []

    def audit(self, name: str) -> Auditing | None:
        """Begin the audit of one conversation; None if it cannot be read. Iterate with ``forgettings``."""
        self._bar = self.bars.add_task(terminal.typed_id(name), unit="events", total=None)
        try:
            if self.repaired is not None:
                self.repaired.rebuild(name)
            return Auditing(self.store, name, terminal.completing(self.bars, self._bar))
        except EventStoreError as error:
            self._give_up(name, str(error))
            return None

    def forgettings(self, name: str, auditing: Auditing, found: list[Finding]) -> Iterator[Forgetting]:
        """Yield the condensations of an audit, and put its findings into ``found``. It ends before a damaged event,
        which is a finding; other conversations are still audited.
        """
        try:
            for one in auditing:
                if isinstance(one, Forgetting):
                    yield one
                else:
                    found.append(one)
                    self.findings.append(f"conversation {name!r}, revision of version {one.version}: {one.problem}")
        except EventStoreError as error:
            self._give_up(name, str(error))
        else:
            self.bars.remove_task(self._bar)
            self.conversations += 1
        self.revisions += auditing.revisions
        self.wrong += len(found)

    def _give_up(self, name: str, problem: str) -> None:
        self.bars.remove_task(self._bar)
        self.unread.append((name, problem))
        self.findings.append(terminal.about(name, problem))


# -- for programs -----------------------------------------------------------------------------------------------------


def _emit(audits: _Audits, names: Iterable[str], update: Update | None) -> Updated | None:
    updated: Updated | None = None

    def tail() -> dict[str, Any]:
        nonlocal updated
        updated = None if update is None else update()
        unread = [{"conversation": conversation, "problem": problem} for conversation, problem in audits.unread]
        return {"unread": unread, **({} if updated is None else {"added": _added(updated)})}

    documents = (_document(audits, name, auditing) for name in names if (auditing := audits.audit(name)) is not None)
    terminal.emit_list({}, "conversations", documents, tail)
    return updated


def _document(audits: _Audits, name: str, auditing: Auditing) -> terminal.Listed:
    found: list[Finding] = []

    def tail() -> dict[str, Any]:
        return {
            "version": auditing.version,
            "revisions": auditing.revisions,
            "missing": auditing.missing,
            "findings": [{"version": one.version, "problem": one.problem} for one in found],
        }

    condensations = map(_condensation, audits.forgettings(name, auditing, found))
    return terminal.Listed({"conversation": name}, "condensations", condensations, tail)


def _added(updated: Updated) -> dict[str, Any]:
    return {**updated._asdict(), "damaged": [lost._asdict() for lost in updated.damaged]}


def _condensation(forgetting: Forgetting) -> dict[str, Any]:
    action = forgetting.condensation
    intervals, summaries = action.forgotten
    return {
        "id": action.id,
        "version": forgetting.version,
        "reason": forgetting.said("reason"),
        "requests": [{"id": request.id, "reason": request.reason} for request in forgetting.requests],
        "outcome": forgetting.said("outcome"),
        "forgotten": forgetting.forgotten,
        "intervals": intervals,
        "summaries_forgotten": summaries,
        "tokens_before": forgetting.said("tokens_before"),
        "tokens_after": forgetting.said("tokens_after"),
        "summary": action.summary,
    }


# -- for people -------------------------------------------------------------------------------------------------------


def _show(audits: _Audits, names: Iterable[str], update: Update | None) -> Updated | None:
    for name in names:
        auditing = audits.audit(name)
        if auditing is not None:
            _show_one(audits.bars, name, audits.forgettings(name, auditing, []))
    updated = None if update is None else update()
    verdict = f"{audits.wrong:,} differ from the log" if audits.wrong else "all equal to the log"
    if audits.unread:
        compared = verdict if audits.revisions else "none compared"
        verdict = f"{compared}; {count(len(audits.unread), 'conversation')} not read to the end, named below"
    with terminal.paused(audits.bars):
        console = terminal.console()
        conversations, revisions = count(audits.conversations, "conversation"), count(audits.revisions, "revision")
        console.print(f"{conversations}, {revisions}: {verdict}")
        if updated is not None:
            added = f"{count(updated.events, 'event')} and {count(updated.condensations, 'condensation')} added"
            console.print(f"audit database: {added}, of {count(updated.conversations, 'conversation')}")
    return updated


def _show_one(bars: Progress, name: str, forgettings: Iterator[Forgetting]) -> None:
    """Show the condensations of one conversation, a table for each page of them."""
    columns = (
        Column("id", justify="right"),
        Column("forgot", justify="right"),
        Column("events"),
        Column("tokens", justify="right"),
        Column("why, and summary", least=30),
    )
    shown = 0
    while page := list(islice(forgettings, _PAGE)):
        number = shown + len(page)
        told = f"{number:,} condensations so far" if len(page) == _PAGE else count(number, "condensation")
        with terminal.paused(bars):
            console = terminal.console()
            console.print(Text(f"{terminal.typed_id(name)}: {told}", style="bold"))
            print_rows(console, columns, [_row(forgetting) for forgetting in page])
        shown = number


def _row(forgetting: Forgetting) -> Sequence[str | Text]:
    action = forgetting.condensation
    summaries = action.forgotten.summaries
    tokens = [forgetting.said(key) for key in ("tokens_before", "tokens_after")]
    why = because(action, forgetting.requests)
    summary = " ".join(summary_text(action.summary or "(no summary)").split())
    return [
        str(action.id),
        f"{forgetting.forgotten:,}{f' + {len(summaries):,}' if summaries else ''}",
        interval_words(action.forgotten.intervals, most=2),
        " → ".join(_tokens(number) for number in tokens if number is not None),
        Text.assemble((f"{why}: " if why else "", "yellow"), summary),
    ]


def _tokens(said: Any) -> str:
    """Return a number of tokens as text; a condensation's metadata may hold any value."""
    return f"{said:,}" if isinstance(said, int) else terminal.printable(str(said), one_line=True)
