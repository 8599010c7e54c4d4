"""``foldlog store copy``: copy conversations from one store to another store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
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
from foldlog._app.cli.stores import events_total, iter_rows, open_existing, open_or_create, resolve
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.store import CopiedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore import Store
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
    with (
        open_existing(source, "name the store to copy as FROM") as ours,
        open_or_create(target, may_be_empty=True) as theirs,
    ):
        use_store(source)
        names = [resolve(ours, name) for name in conversations]
        outcome = _copy(ours, theirs, names, jobs=jobs, damaged=damaged, again=again)
    document = outcome.document()
    terminal.answer(document, _sentences(document, are_equal=outcome.are_equal))
    if outcome.forks:
        forks = count(outcome.forks, "fork")
        terminal.note(f"copied as separate conversations, with all events: {forks}")
    for problem in outcome.problems:
        terminal.warn(terminal.about(problem.conversation, problem.problem or ""))


class _Outcome(NamedTuple):
    """The results of a copy.

    ``copied``   conversations that were copied whole
    ``failed``   conversations that were not copied, or only in part
    ``unequal``  other conversations whose heads differ in the two stores
    ``forks``    the number of forks among the copied conversations
    """

    copied: Sequence[Moved]
    failed: Sequence[Moved]
    unequal: Sequence[UnequalConversation]
    forks: int

    @property
    def problems(self) -> list[Moved | UnequalConversation]:
        """Return the findings. A conversation that grew meanwhile is none."""
        return [*self.failed, *(unequal for unequal in self.unequal if not unequal.behind)]

    @property
    def are_equal(self) -> bool:
        """Return whether the two stores have the same heads now."""
        return not (self.failed or self.unequal)

    def document(self) -> CopiedDocument:
        """Return the document of the copy."""
        moved = [*self.copied, *self.failed]
        nothing_new = [
            outcome
            for outcome in self.copied
            if outcome.added == outcome.tombstones == outcome.records == 0
        ]
        return CopiedDocument(
            conversations=len(_ids_there(self.copied, self.failed)),
            already_there=len(nothing_new),
            events=sum(outcome.added for outcome in moved),
            tombstones=sum(outcome.tombstones for outcome in moved),
            records=sum(outcome.records for outcome in moved),
            grown_since=tuple(unequal.conversation for unequal in self.unequal if unequal.behind),
            findings=tuple(map(ProblemDocument.of, self.problems)),
        )


def _copy(
    ours: Store,
    theirs: Store,
    names: Sequence[str],
    *,
    jobs: int,
    damaged: Path | None,
    again: bool,
) -> _Outcome:
    """Copy, with a progress bar, and compare the heads of the two stores."""
    copied = list[Moved]()
    failed = list[Moved]()
    care = Maintenance(theirs)
    with terminal.working("copying", "events", events_total(ours, names)) as update:

        def show(moved: Moved) -> None:
            update(
                advance=moved.version,
                description=f"copying, {count(len(copied), 'conversation')}",
            )
            if moved.problem is None:
                copied.append(moved)
            else:
                failed.append(moved)

        care.copy_from(ours, *names, jobs=jobs, damaged=damaged, again=again, on_result=show)
    failed_ids = {outcome.conversation for outcome in failed}
    unequal = [
        difference
        for difference in care.differences_from(ours, *names)
        if difference.conversation not in failed_ids
    ]
    there = _ids_there(copied, failed)
    forks = sum(
        row.parent is not None and row.erased_at is None and row.id in there
        for row in iter_rows(ours)
    )
    return _Outcome(copied, failed, unequal, forks)


def _ids_there(copied: Sequence[Moved], failed: Sequence[Moved]) -> set[str]:
    """Return the conversations of which the target has at least a part."""
    partly = [
        outcome for outcome in failed if outcome.added or outcome.tombstones or outcome.records
    ]
    return {outcome.conversation for outcome in (*copied, *partly)}


def _sentences(document: CopiedDocument, *, are_equal: bool) -> list[str]:
    """Say what was copied, and whether to copy again."""
    more = {"tombstone": document.tombstones, "record": document.records}
    counted = (count(number, word) for word, number in more.items() if number)
    added = " and ".join((count(document.events, "event"), *counted))
    sentence = (
        f"copied {added} of {count(document.conversations, 'conversation')}"
        f" ({document.already_there:,} had nothing new)"
    )
    lines = [f"{sentence}; heads are equal" if are_equal else sentence]
    if document.grown_since:
        grown = count(len(document.grown_since), "conversation")
        lines.append(f"{grown} got events during the copy: run the command again")
    return lines
