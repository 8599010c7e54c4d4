"""``foldlog store archive``: move the events of old conversations to an object store."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.options import older_than_option, option, store_options
from foldlog._app.cli.selection import moment_of_option, pairs, where_option
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.store import ArchivedConversationDocument, ArchivedDocument
from foldlog._reports.words.gist import count
from foldlog.maintenance import Maintenance


@older_than_option(required=True)
@option("--to", "URL", "s3://bucket/prefix, gs://…, az://… or file:///mnt/archive.", required=True)
@where_option
@store_options
def run(
    older_than: str,
    to: str,
    where: tuple[str, ...],
    db: str,
) -> None:
    """Move the events of old conversations to an object store, one object for every conversation. A
    conversation is old if no event was appended since the time of --older-than.

    A sub-agent is archived when it is old itself. Lists and statistics do not change. The first use
    of an archived conversation restores the conversation. 'foldlog store vacuum' frees the disk
    space, and deletes the remains of an interrupted run.

    Example: foldlog store archive --older-than 90d --to s3://bucket/prefix
    """
    before = moment_of_option("--older-than", older_than)
    assert before is not None  # the option is required
    with open_existing(db) as store, terminal.working("archiving", "conversations") as update:
        outcomes = Maintenance(store).archive(
            before, to, pairs(where), on_result=lambda archived: update(advance=1)
        )
    archived_rows = [outcome for outcome in outcomes if outcome.stays is None]
    document = ArchivedDocument(
        conversations=tuple(map(ArchivedConversationDocument.of, archived_rows)),
        stay=tuple(
            ProblemDocument(conversation=outcome.conversation, problem=outcome.stays)
            for outcome in outcomes
            if outcome.stays is not None
        ),
    )
    events = count(sum(row.events for row in archived_rows), "event")
    size = f"{sum(row.bytes for row in archived_rows):,} bytes"
    terminal.answer(
        document, f"{count(len(archived_rows), 'conversation')} archived: {events}, {size}"
    )
    for problem in document.stay:
        terminal.note(f"conversation {problem.conversation!r} stays: {problem.problem}")
