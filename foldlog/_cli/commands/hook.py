"""``foldlog hook``: import the transcript of a coding agent when the agent calls the hook."""

from __future__ import annotations

from foldlog._cli.options import DEFAULT_DB, Db, RedactSecrets
from foldlog._cli.quick_hook import answer


def run(redact_secrets: RedactSecrets = False, db: Db = DEFAULT_DB) -> None:
    """Import the transcript that a program names in JSON on stdin, and say after a compaction what
    its model can ask.

    A program runs it: see 'foldlog setup'. It ends with 0 whatever happens, so that it never stops
    the program; what went wrong is on stderr.

    Example: foldlog hook --db agents.db
    """
    answer(["--db", db, *(["--redact-secrets"] if redact_secrets else [])])
