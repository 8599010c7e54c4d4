"""``foldlog audit``: is what is stored of the Views what the log says, and what was forgotten?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog.cli.outcome import DONE, FINDINGS
from foldlog.cli.stores import chosen, open_existing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from eventstore import Store
    from foldlog.reports.audit_database import Updated
    from projections import Audit, Forgetting

__all__ = ["run"]


def run(
    conversations: SomeConversations = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Bring an audit database up to date, for SQL and Datasette."),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Fold histories again from their first event, compare every stored revision, and list what was condensed and why.

    Exit status 1 if a revision is not what the log says: 'foldlog rebuild' mends it.
    """
    from eventstore import EventStoreError
    from projections import audit

    audits: list[Audit] = []
    unread: list[tuple[str, str]] = []
    updated = None
    with open_existing(db) as store, terminal.progress() as bars:
        for conversation in chosen(store, conversations):
            bar = bars.add_task(terminal.printable(conversation, one_line=True), unit="events", total=None)
            try:
                audits.append(audit(store, conversation, partial(_advance, bars, bar)))
            except EventStoreError as error:  # one damaged history does not keep the others from being looked at
                unread.append((conversation, str(error)))
            bars.remove_task(bar)
        if to is not None:
            updated = _update(store, to, conversations, bars)
    if as_json:
        terminal.emit(_document(audits, unread, updated))
    else:
        _show(terminal.console(), audits, updated)
    for one in audits:
        for finding in one.findings:
            terminal.warn(
                f"conversation {one.conversation!r}, revision of version {finding.version}: {finding.problem}"
            )
    for _, problem in unread:
        terminal.warn(problem)
    return FINDINGS if unread or any(one.findings for one in audits) else DONE


_COLUMNS = 5
"""With tokens; they are left out where no condenser said how many there were."""


def _update(store: Store, to: Path, conversations: list[str] | None, bars: Progress) -> Updated:
    from foldlog.reports.audit_database import update

    bar = bars.add_task(str(to), unit="events", total=None)
    return update(store, to, conversations or None, partial(bars.advance, bar))


def _advance(bars: Progress, bar: TaskID, done: int, of: int) -> None:
    bars.update(bar, completed=done, total=of)


def _document(audits: list[Audit], unread: list[tuple[str, str]], updated: Updated | None) -> dict[str, Any]:
    return {
        "conversations": [
            {
                "conversation": one.conversation,
                "version": one.version,
                "revisions": one.revisions,
                "missing": one.missing,
                "condensations": [_condensation(forgetting) for forgetting in one.forgettings],
                "findings": [{"version": f.version, "problem": f.problem} for f in one.findings],
            }
            for one in audits
        ],
        "unread": [{"conversation": conversation, "problem": problem} for conversation, problem in unread],
        **({} if updated is None else {"added": updated._asdict()}),
    }


def _condensation(forgetting: Forgetting) -> dict[str, Any]:
    action = forgetting.condensation
    intervals, summaries = action.forgotten
    return {
        "id": action.id,
        "version": forgetting.version,
        "reason": forgetting.said("reason"),
        "outcome": forgetting.said("outcome"),
        "forgotten": forgetting.forgotten,
        "intervals": intervals,
        "summaries_forgotten": summaries,
        "tokens_before": forgetting.said("tokens_before"),
        "tokens_after": forgetting.said("tokens_after"),
        "summary": action.summary,
    }


def _show(console: Console, audits: list[Audit], updated: Updated | None) -> None:
    from foldlog.cli.gist import count

    for one in audits:
        if one.forgettings:
            _show_one(console, one)
    revisions = sum(one.revisions for one in audits)
    wrong = sum(len(one.findings) for one in audits)
    verdict = f"{wrong:,} not as the log says" if wrong else "each as the log says"
    console.print(f"{count(len(audits), 'conversation')}, {count(revisions, 'revision')}: {verdict}")
    if updated is not None:
        added = f"{count(updated.events, 'event')} and {count(updated.condensations, 'condensation')} added"
        console.print(f"audit database: {added}, of {count(updated.conversations, 'conversation')}")


def _show_one(console: Console, one: Audit) -> None:
    from rich.table import Table
    from rich.text import Text

    from foldlog.cli.gist import interval_words, summary_text

    name = terminal.printable(one.conversation, one_line=True)
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    console.print(Text(name, style="bold"))
    table.add_column("at", justify="right", no_wrap=True, min_width=6)
    table.add_column("forgot", justify="right", no_wrap=True, min_width=6)
    table.add_column("events", no_wrap=True, min_width=14)
    if any(forgetting.said("tokens_before") is not None for forgetting in one.forgettings):
        table.add_column("tokens", justify="right", no_wrap=True, min_width=15)
    table.add_column("reason and summary", no_wrap=True, overflow="ellipsis", ratio=1)
    for forgetting in one.forgettings:
        action = forgetting.condensation
        before, after = forgetting.said("tokens_before"), forgetting.said("tokens_after")
        said = " ".join(summary_text(action.summary or "(no summary)").split())
        reason = terminal.printable(str(forgetting.said("reason") or forgetting.said("outcome") or ""), one_line=True)
        tokens = " → ".join(_tokens(number) for number in (before, after) if number is not None)
        table.add_row(
            f"{forgetting.version:,}",
            f"{forgetting.forgotten:,}",
            interval_words(action.forgotten.intervals, most=2),
            *([tokens] if len(table.columns) == _COLUMNS else []),
            Text.assemble((f"{reason}: " if reason else "", "yellow"), said),
        )
    console.print(table)


def _tokens(said: Any) -> str:
    """A number of tokens; a condensation's metadata may say anything."""
    return f"{said:,}" if isinstance(said, int) else terminal.printable(str(said), one_line=True)
