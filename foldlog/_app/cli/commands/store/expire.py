"""``foldlog store expire``: erase old conversations."""

from __future__ import annotations

from functools import partial

from foldlog._app.cli import terminal
from foldlog._app.cli.erasing import ask, erase_rows, report
from foldlog._app.cli.options import (
    detach_option,
    no_vacuum_option,
    older_than_option,
    reason_option,
    store_options,
    with_children_option,
    yes_option,
)
from foldlog._app.cli.selection import dry_run_option, moment_of_option, pairs, where_option
from foldlog._app.cli.stores import open_existing
from foldlog._history.lease import lease_that_keeps
from foldlog._privacy.erasing import Erasure, conversations_with, not_erased_words, old_tasks
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.figures.documents import trees_of
from foldlog.eventstore import CorruptEvent
from foldlog.eventstore.arguments import check_reason


@older_than_option(required=True)
@where_option
@reason_option(default="retention")
@with_children_option
@detach_option
@dry_run_option
@no_vacuum_option
@yes_option
@store_options
def run(
    older_than: str,
    where: tuple[str, ...],
    reason: str,
    with_children: bool,
    detach: bool,
    dry_run: bool,
    no_vacuum: bool,
    yes: bool,
    db: str,
) -> None:
    """Erase conversations that got no event since a time, as 'foldlog store erase' does.

    A conversation stays if it gets a new event during the command, or if a worker has a lease on
    it. Without --detach, a conversation also stays if it has a fork that is not old. The command
    prints a note about each conversation that stays. With --with-children, a task is erased as a
    whole, as soon as it and all its sub-agents are old.

    Example: foldlog store expire --older-than 90d --dry-run
    """
    check_reason(reason, "tombstone")
    before = moment_of_option("--older-than", older_than)
    with open_existing(db) as store:
        damaged = dict[str, CorruptEvent]()
        rows = conversations_with(store, pairs(where), before, damaged=damaged)
        with terminal.working("counting"):
            trees = trees_of(store, is_complete=with_children)
        if with_children:
            rows = old_tasks(store, rows, before, trees, damaged)
        options = Erasure(
            reason,
            detach_forks=detach,
            expected={row.id: row for row in rows},
            stays=partial(lease_that_keeps, store),
            complete=False,
            dry_run=dry_run,
            trees=trees,
            whole_tasks=with_children,
        )
        if not (yes or dry_run):
            ask(store, db, rows)
        outcome = erase_rows(store, rows, options, for_age=True, no_vacuum=no_vacuum)
    staying = [
        ProblemDocument(conversation=name, problem=problem)
        for name, problem in not_erased_words(damaged).items()
    ]
    outcome = outcome._replace(stay=[*staying, *outcome.stay])
    report(outcome, options, for_age=True)
