"""``foldlog audit``: is what is stored of the Views what the log says, and what was forgotten?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog.cli.outcome import DONE, FINDINGS, Refused
from foldlog.cli.reasons import answered, because
from foldlog.cli.stores import chosen, open_existing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from eventstore import CondensationRequest, Store
    from foldlog.reports.audit_database import Updated
    from projections import Audit, Forgetting

__all__ = ["run"]

_DESCRIBED_EVERY_S = 2.0


def run(
    conversations: SomeConversations = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Bring an audit database up to date, for SQL and Datasette."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --to: keep the audit database up to date until Ctrl-C.")
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Fold histories again from their first event, compare every stored revision, and list what was condensed and why.

    Exit status 1 if a revision is not what the log says, which 'foldlog rebuild' mends, or an event cannot be read.
    """
    from eventstore import EventStoreError

    if follow:
        return _follow(db, to, conversations, as_json)
    audits: list[_Audited] = []
    unread: list[tuple[str, str]] = []
    updated = None
    with open_existing(db) as store, terminal.progress() as bars:
        for conversation in chosen(store, conversations):
            bar = bars.add_task(terminal.printable(conversation, one_line=True), unit="events", total=None)
            try:
                audits.append(_audited(store, conversation, partial(_advance, bars, bar)))
            except EventStoreError as error:  # one damaged history does not keep the others from being looked at
                unread.append((conversation, str(error)))
            bars.remove_task(bar)
        if to is not None:
            updated = _update(store, to, conversations, bars)
    if as_json:
        terminal.emit(_document(audits, unread, updated))
    else:
        _show(terminal.console(), audits, updated)
    for one, _ in audits:
        for finding in one.findings:
            terminal.warn(
                f"conversation {one.conversation!r}, revision of version {finding.version}: {finding.problem}"
            )
    for _, problem in unread:
        terminal.warn(problem)
    left_out = () if updated is None else updated.damaged
    for lost in left_out:
        terminal.warn(f"left out of {to}: event {lost.id} of conversation {lost.conversation!r}: {lost.problem}")
    return FINDINGS if unread or left_out or any(one.findings for one, _ in audits) else DONE


def _follow(db: str, to: Path | None, conversations: list[str] | None, as_json: bool) -> int:
    """Keep the audit database up to date until Ctrl-C, with the eventsourcing library's runner."""
    if to is None or conversations or as_json:
        raise Refused("--follow needs --to FILE and follows the whole store; leave out conversations and --json")
    from foldlog.reports.audit_follow import AuditFollower

    with open_existing(db) as store, AuditFollower(store, db, to) as follower, terminal.progress() as bars:
        bar = bars.add_task(str(to), unit="events", total=None)
        try:
            follower.run(_DESCRIBED_EVERY_S, lambda events: bars.update(bar, completed=events))
        except KeyboardInterrupt:
            follower.describe()
        for lost in follower.damaged:
            terminal.warn(f"left out of {to}: event {lost.id} of conversation {lost.conversation!r}: {lost.problem}")
        return FINDINGS if follower.damaged else DONE


class _Audited(NamedTuple):
    """What an audit found, and by a condensation's id the requests that it answers."""

    audit: Audit
    requests: Mapping[int, Sequence[CondensationRequest]]


def _audited(store: Store, conversation: str, progress: Callable[[int, int], None]) -> _Audited:
    from projections import audit

    found = audit(store, conversation, progress)
    with store.snapshot(conversation) as snapshot:
        return _Audited(found, answered(snapshot.structural_events()))


def _update(store: Store, to: Path, conversations: list[str] | None, bars: Progress) -> Updated:
    from foldlog.reports.audit_database import update

    bar = bars.add_task(str(to), unit="events", total=None)
    return update(store, to, conversations or None, partial(bars.advance, bar))


def _advance(bars: Progress, bar: TaskID, done: int, of: int) -> None:
    bars.update(bar, completed=done, total=of)


def _document(audits: list[_Audited], unread: list[tuple[str, str]], updated: Updated | None) -> dict[str, Any]:
    return {
        "conversations": [
            {
                "conversation": one.conversation,
                "version": one.version,
                "revisions": one.revisions,
                "missing": one.missing,
                "condensations": [_condensation(forgetting, requests) for forgetting in one.forgettings],
                "findings": [{"version": f.version, "problem": f.problem} for f in one.findings],
            }
            for one, requests in audits
        ],
        "unread": [{"conversation": conversation, "problem": problem} for conversation, problem in unread],
        **({} if updated is None else {"added": _added(updated)}),
    }


def _added(updated: Updated) -> dict[str, Any]:
    return {**updated._asdict(), "damaged": [lost._asdict() for lost in updated.damaged]}


def _condensation(forgetting: Forgetting, requests: Mapping[int, Sequence[CondensationRequest]]) -> dict[str, Any]:
    action = forgetting.condensation
    intervals, summaries = action.forgotten
    return {
        "id": action.id,
        "version": forgetting.version,
        "reason": forgetting.said("reason"),
        "requests": [{"id": request.id, "reason": request.reason} for request in requests.get(action.id, ())],
        "outcome": forgetting.said("outcome"),
        "forgotten": forgetting.forgotten,
        "intervals": intervals,
        "summaries_forgotten": summaries,
        "tokens_before": forgetting.said("tokens_before"),
        "tokens_after": forgetting.said("tokens_after"),
        "summary": action.summary,
    }


def _show(console: Console, audits: list[_Audited], updated: Updated | None) -> None:
    from foldlog.cli.gist import count

    for one in audits:
        if one.audit.forgettings:
            _show_one(console, one)
    revisions = sum(one.revisions for one, _ in audits)
    wrong = sum(len(one.findings) for one, _ in audits)
    verdict = f"{wrong:,} not as the log says" if wrong else "each as the log says"
    console.print(f"{count(len(audits), 'conversation')}, {count(revisions, 'revision')}: {verdict}")
    if updated is not None:
        added = f"{count(updated.events, 'event')} and {count(updated.condensations, 'condensation')} added"
        console.print(f"audit database: {added}, of {count(updated.conversations, 'conversation')}")


def _show_one(console: Console, one: _Audited) -> None:
    from rich.text import Text

    from foldlog.cli.gist import count, interval_words, summary_text
    from foldlog.cli.tables import Column, print_rows

    name, forgettings = terminal.printable(one.audit.conversation, one_line=True), one.audit.forgettings
    console.print(Text(f"{name}: {count(len(forgettings), 'condensation')}", style="bold"))
    rows: list[list[str | Text]] = []
    for forgetting in forgettings:
        action = forgetting.condensation
        tokens = [forgetting.said(key) for key in ("tokens_before", "tokens_after")]
        why = because(action, one.requests.get(action.id, ()))
        summary = " ".join(summary_text(action.summary or "(no summary)").split())
        rows.append(
            [
                str(action.id),
                f"{forgetting.forgotten:,}",
                interval_words(action.forgotten.intervals, most=2),
                " → ".join(_tokens(number) for number in tokens if number is not None),
                Text.assemble((f"{why}: " if why else "", "yellow"), summary),
            ]
        )
    columns = (
        Column("id", justify="right"),
        Column("forgot", justify="right"),
        Column("events"),
        Column("tokens", justify="right"),
        Column("why, and summary", least=30),
    )
    print_rows(console, columns, rows)


def _tokens(said: Any) -> str:
    """A number of tokens; a condensation's metadata may say anything."""
    return f"{said:,}" if isinstance(said, int) else terminal.printable(str(said), one_line=True)
