"""``foldlog store expire``: erase old conversations."""

from __future__ import annotations

from typing import Annotated

from foldlog._cli.erasing import Erasing, ask, erase_rows, report
from foldlog._cli.options import DEFAULT_DB, OLDER_THAN, REASON, AsJson, Db, Detach, NoVacuum, Yes
from foldlog._cli.selection import DryRun, Where, moment_of_option, pairs
from foldlog._cli.stores import open_existing
from foldlog._maintenance import conversations_with
from foldlog.eventstore.inside import check_reason


def run(
    older_than: Annotated[str, OLDER_THAN],
    where: Where = None,
    reason: Annotated[str, REASON] = "retention",
    detach: Detach = False,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase conversations that got no event since a time, as 'foldlog store erase' does.

    A conversation stays if it gets a new event during the command, or if a worker has a lease on
    it. Without --detach, a conversation also stays if it has a fork that is not old. The command
    prints a note about each conversation that stays.

    Example: foldlog store expire --older-than 90d --dry-run
    """
    check_reason(reason, "tombstone")
    before = moment_of_option("--older-than", older_than)
    how = Erasing(reason, detach=detach, for_age=True, dry_run=dry_run, no_vacuum=no_vacuum)
    with open_existing(db) as store:
        rows = conversations_with(store, pairs(list(where or ())), before)
        if not (yes or dry_run):
            ask(store, db, rows)
        outcome = erase_rows(store, rows, how)
    report(outcome, how)
