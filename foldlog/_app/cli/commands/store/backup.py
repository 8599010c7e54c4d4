"""``foldlog store backup``: copy a store that is in use."""

from __future__ import annotations

from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.options import argument, new_file, store_options
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.store import BackedUpDocument
from foldlog._reports.words.gist import content, count
from foldlog.maintenance import Maintenance


@argument("file", "FILE", "The copy; the file must not exist yet.", callback=new_file)
@store_options
def run(
    file: Path,
    db: str,
) -> None:
    """Copy a store to a new file while the store is in use, and verify every event of the copy.

    The copy is a complete store. 'foldlog store restore' replaces a store with the copy. The exit
    status is 1 if the copy is damaged. A damaged copy means that the store has the same damage. If
    the key of a conversation is missing, the conversation is copied unchecked, with a note.

    Example: foldlog store backup monday.db
    """
    with open_existing(db) as store, terminal.working("copying", "pages") as update:
        # To verify the copied pages takes about as long as to copy them.
        def advance(done: int, of: int) -> None:
            update(description="verifying" if done == of else "copying", completed=done, total=of)

        result = Maintenance(store).back_up(str(file), advance)
    findings = [
        (verdict.conversation, finding)
        for verdict in result.findings
        for finding in verdict.findings
    ]
    problems = tuple(
        ProblemDocument(conversation=name, problem=str(finding)) for name, finding in findings
    )
    sentence = (
        f"{result.path}: {content(result.events, result.records)} of "
        f"{count(result.conversations, 'conversation')}, {result.size_bytes:,} bytes"
        f"{'' if findings else ', every event verified'}"
    )
    terminal.answer(
        BackedUpDocument.of(result, file=result.path, bytes=result.size_bytes, findings=problems),
        sentence,
    )
    for name, finding in findings:
        if finding.needs_key or finding.unfinished:
            tell = terminal.note
        else:
            tell = terminal.warn
        tell(str(finding) if name is None else f"conversation {name!r}, {finding}")
