"""``foldlog store copy``: copy conversations from one store to another store."""

from __future__ import annotations

from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import use_store
from foldlog._app.cli.options import (
    WholeNumber,
    argument,
    flag,
    force_option,
    json_option,
    name_store,
    new_file,
    option,
    output_option,
)
from foldlog._app.cli.outcome import Refused
from foldlog._app.cli.stores import events_total, iter_rows, open_existing, open_or_create, resolve
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.store import CopiedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore.recorders.urls import without_password
from foldlog.maintenance import Maintenance, Moved, UnequalConversation


@argument("source", "FROM", "The store to copy: sqlite:///… or postgresql://…", callback=name_store)
@argument(
    "target", "TO", "The target store, which is created if it does not exist.", callback=new_file
)
@argument("conversations", "ID", "The conversations to copy.", nargs=-1, show_default="all of them")
@option(
    "--jobs", "N", "Conversations to copy in parallel.", type=WholeNumber(min=1, max=64), default=4
)
@output_option(
    "--damaged",
    help="Copy damaged conversations up to their first damaged event, and write their "
    "later events to FILE.",
)
@flag("--again", "Also copy records that TO redacted or erased in other conversations.")
@force_option
@json_option
def run(
    source: str,
    target: str,
    conversations: tuple[str, ...],
    jobs: int,
    damaged: Path | None,
    again: bool,
    force: bool,
) -> None:
    """Copy conversations from one store to another store, for example from SQLite to PostgreSQL.

    Events keep their ids, times and heads. Every head is computed again during the copy. Programs
    can use the source during the copy. Run the command again to resume after an interruption, or to
    copy newer events. At the end the command compares the heads of the two stores. The exit status
    is 1 if a head differs, or if a conversation is damaged. A damaged conversation is copied only
    with --damaged.

    Example: foldlog store copy history.db postgresql://agent@db/foldlog
    """
    if source == target:
        raise Refused(
            f"{without_password(target)} cannot be copied to itself; name another store as TO"
        )
    copied = list[Moved]()
    failed = list[Moved]()
    with (
        open_existing(source, "name the store to copy as FROM") as ours,
        open_or_create(target, may_be_empty=True) as theirs,
    ):
        use_store(source)
        care = Maintenance(theirs)
        names = [resolve(ours, name) for name in conversations]
        with terminal.working("copying", "events", events_total(ours, names)) as update:

            def show(moved: Moved) -> None:
                update(
                    advance=moved.version,
                    description=f"copying, {count(len(copied), 'conversation')}",
                )
                (copied if moved.problem is None else failed).append(moved)

            care.copy_from(ours, *names, jobs=jobs, damaged=damaged, again=again, on_result=show)
        failed_names = {outcome.conversation for outcome in failed}
        unequal = [
            outcome
            for outcome in care.differences_from(ours, *names)
            if outcome.conversation not in failed_names
        ]
        partly = [each for each in failed if each.added or each.tombstones or each.records]
        there = {outcome.conversation for outcome in (*copied, *partly)}
        forks = sum(
            row.parent is not None and row.erased_at is None and row.id in there
            for row in iter_rows(ours)
        )
    behind = [outcome.conversation for outcome in unequal if outcome.behind]
    problems: list[Moved | UnequalConversation] = [
        *failed,
        *(outcome for outcome in unequal if not outcome.behind),
    ]
    document = CopiedDocument(
        conversations=len(there),
        already_there=sum(
            outcome.added == outcome.tombstones == outcome.records == 0 for outcome in copied
        ),
        events=sum(outcome.added for outcome in (*copied, *failed)),
        tombstones=sum(outcome.tombstones for outcome in (*copied, *failed)),
        records=sum(outcome.records for outcome in (*copied, *failed)),
        grown_since=tuple(behind),
        findings=tuple(map(ProblemDocument.of, problems)),
    )
    more = {"tombstone": document.tombstones, "record": document.records}
    counted = (count(number, word) for word, number in more.items() if number)
    added = " and ".join((count(document.events, "event"), *counted))
    sentence = (
        f"copied {added} of {count(len(there), 'conversation')} ({document.already_there:,} had"
        " nothing new)"
    )
    lines = [sentence if problems or behind else f"{sentence}; heads are equal"]
    if behind:
        grown = count(len(behind), "conversation")
        lines.append(f"{grown} got events during the copy: run the command again")
    terminal.answer(document, lines)
    if forks:
        terminal.note(f"copied as separate conversations, with all events: {count(forks, 'fork')}")
    for outcome in problems:
        terminal.warn(terminal.about(outcome.conversation, outcome.problem or ""))
