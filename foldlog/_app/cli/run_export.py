"""Write a conversation as a recorded run for tests: ``foldlog export --as-test DIR``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.files import ExportedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore.files.written_files import note_file


def export_test(conversations: Sequence[str], db: str, folder: Path, *, is_alone: bool) -> None:
    """Write a conversation into a folder of recorded runs. Raises ``Refused`` unless one
    conversation is named and the option ``is_alone``.
    """
    from foldlog._history.histories import Histories
    from foldlog._testing.run_file import read_run, run_of

    if not is_alone or len(conversations) != 1:
        raise Refused(
            "--as-test writes one conversation in a form of its own; name the conversation, and"
            " leave out the other options"
        )
    with open_existing(db) as store:
        conversation = resolve(store, conversations[0])
        run, replaced = run_of(Histories(store)[conversation]).without_secrets()
        name = re.sub(r"[^\w.-]+", "-", run.id)
        path = folder / f"{name}.jsonl"
        if path.exists():
            other = read_run(path).id
            if other != run.id:
                raise Refused(
                    f"{path} has the run {other!r}; name another folder, or remove the file"
                )
        folder.mkdir(parents=True, exist_ok=True)
        with note_file(store, "export", path, conversation):
            run.write(path)
    document = ExportedDocument(
        conversation=conversation,
        format="recorded run",
        file=str(path),
        records=len(run.bodies),
        notes=tuple(replaced) or UNSET,
    )
    terminal.answer(document, f"{count(len(run.bodies), 'event')} of {conversation} in {path}")
    terminal.note(*replaced)
