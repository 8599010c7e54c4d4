"""``foldlog hook``: import the transcript of a coding agent when the agent calls the hook."""

from __future__ import annotations

from foldlog._app.cli.options import program_db_option, redact_secrets_option
from foldlog._app.cli.quick_hook import answer


@redact_secrets_option
@program_db_option
def run(redact_secrets: bool, db: str) -> None:
    """Import the transcript that a program names in JSON on stdin. After a compaction, tell the
    program's model which questions foldlog can answer.

    A program runs this command: see 'foldlog setup'. The exit status of this command is always 0,
    so the hook never stops the program. Errors are on stderr.

    Example: foldlog hook --db agents.db
    """
    answer(["--db", db, *(["--redact-secrets"] if redact_secrets else [])])
