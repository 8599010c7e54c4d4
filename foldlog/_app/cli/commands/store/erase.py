"""``foldlog store erase``: erase conversations for good."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog._app.cli import terminal
from foldlog._app.cli.erasing import ask, erase_rows, report
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import (
    conversations_argument,
    detach_option,
    flag,
    no_vacuum_option,
    reason_option,
    store_options,
    with_children_option,
    yes_option,
)
from foldlog._app.cli.selection import dry_run_option, pairs, where_option
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._privacy.erasing import Erasure, and_children, conversations_with
from foldlog._reports.figures.documents import trees_of
from foldlog.eventstore import ConversationRow, Store
from foldlog.eventstore.arguments import check_reason


@reason_option(required=True)
@conversations_argument
@where_option
@flag("--with-forks", "Also erase the forks of the conversations, and the forks of these forks.")
@with_children_option
@detach_option
@dry_run_option
@no_vacuum_option
@yes_option
@store_options
def run(
    reason: str,
    conversations: tuple[str, ...],
    where: tuple[str, ...],
    with_forks: bool,
    with_children: bool,
    detach: bool,
    dry_run: bool,
    no_vacuum: bool,
    yes: bool,
    db: str,
) -> None:
    """Erase conversations for good: their events and all derived data, from tables, free pages and
    logs.

    In a terminal the command shows the conversations and asks first. As soon as the command begins,
    the conversations cannot be read. At the end the store is vacuumed: a SQLite file is rewritten
    as a whole, and other writers wait. The exit status is 1 if no conversation has the attributes
    of --where.

    A tombstone stays, with the id, the time, the reason, the number of events and the last head.
    Appends under the erased id fail. Earlier copies and backups still contain the conversations.
    Later copies contain the tombstones. The command names backups, exports, reports, read models
    and imported files that may still contain the conversations. To check the named files again, run
    the command again.

    Example: foldlog store erase tidewatch --reason "asked to"
    """
    if with_forks and detach:
        raise Refused(
            "--with-forks erases the forks, and --detach keeps them; use only one of the two"
        )
    check_reason(reason, "tombstone")
    with open_existing(db) as store:
        rows = select_rows(store, conversations, where)
        with terminal.working("counting"):
            trees = trees_of(store, is_complete=with_children)
        options = Erasure(
            reason,
            with_forks=with_forks,
            detach_forks=detach,
            complete=False,
            dry_run=dry_run,
            trees=trees,
            whole_tasks=with_children,
        )
        if with_children:
            rows = and_children(store, rows, trees)
        if not (yes or dry_run):
            ask(store, db, rows, with_forks=with_forks)
        outcome = erase_rows(store, rows, options, no_vacuum=no_vacuum)
    if not outcome.rows and outcome.stay:
        raise Refused("; ".join(dict.fromkeys(row.problem for row in outcome.stay)))
    nothing = ""
    if where and not (rows or conversations):
        nothing = f"No conversation has {', '.join(where)}"
    report(outcome, options, nothing=nothing)


def select_rows(
    store: Store, conversations: Sequence[str], where: Sequence[str]
) -> list[ConversationRow]:
    """Return the named conversations and the conversations with the attributes. Raises ``Refused``
    if there are neither names nor attributes, or if an id is unknown.
    """
    if not (conversations or where):
        raise Refused(
            "name the conversations with ID or --where NAME=VALUE;"
            " 'foldlog store expire --older-than TIME' erases by age"
        )
    names = [require_id(store, name) for name in dict.fromkeys(conversations)]
    rows = [store.conversation(name, as_stored=True) for name in names]
    if where:
        matching_rows = conversations_with(store, pairs(where), None)
        rows += [row for row in matching_rows if row.id not in names]
    return rows
