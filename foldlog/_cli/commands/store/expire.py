"""``foldlog store expire``: erase the conversations that are older than a span."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli.erasing import Erasing, ask, erase_rows, report
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, NoVacuum, Yes
from foldlog._cli.selection import DryRun, Where, given_moment, pairs
from foldlog._cli.stores import open_existing
from foldlog._maintenance import conversations_with
from foldlog.eventstore.inside import check_reason


def run(
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Erase conversations without an event since then: 90d (or s, m: minutes, h, w), 2026-03-01. "
            "An imported conversation is as old as the last import that added records.",
        ),
    ],
    where: Where = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, which each tombstone keeps.")
    ] = "retention",
    detach: Annotated[
        bool, typer.Option("--detach", help="First give each of their forks a copy of the shared events.")
    ] = False,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the conversations that are older than a span, as 'foldlog store erase' does.

    A conversation stays, with a note, that gets a new event before its turn, has a younger fork, or has a worker with
    its lease.

    Example: foldlog store expire --older-than 90d --dry-run
    """
    check_reason(reason, "tombstone")
    before = given_moment("--older-than", older_than)
    how = Erasing(reason, detach=detach, for_age=True, dry_run=dry_run, no_vacuum=no_vacuum)
    with open_existing(db) as store:
        rows = conversations_with(store, pairs(list(where or ())), before)
        if not (yes or dry_run):
            ask(store, rows)
        outcome = erase_rows(store, rows, how)
    report(outcome, how)
