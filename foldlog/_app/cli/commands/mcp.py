"""``foldlog mcp``: tell a coding agent what its compactions dropped."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import program_db_option, redact_secrets_option
from foldlog._app.cli.stores import open_or_create
from foldlog.eventstore.errors import install_command


@redact_secrets_option
@program_db_option
def run(
    redact_secrets: bool,
    db: str,
) -> None:
    """Serve five tools over stdio for a coding agent: dropped, why, recall, sessions, knew. The
    tools themselves only read the store.

    A program starts this command: see 'foldlog setup'. Every call of a tool first imports the new
    records of the agent's transcript. Needs the extra 'mcp'.

    Example: foldlog mcp --db agents.db
    """
    check_installed()
    from foldlog._app.coding_agents.asked_conversation import Asking
    from foldlog._app.coding_agents.mcp_server import serve_stdio
    from foldlog._app.coding_agents.mcp_tools import Answers
    from foldlog._reports.search.secrets import secret_finder

    is_secret = secret_finder() if redact_secrets else None
    with open_or_create(db, may_be_empty=True) as store:
        folder = os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()
        answers = Answers(
            store, Asking(store, os.environ, folder, may_import=True, is_secret=is_secret)
        )
        serve_stdio(answers, sys.stdin.buffer)


def check_installed() -> None:
    """Raise ``Refused`` if the server cannot start, because a package is not installed."""
    try:
        import_module("foldlog._app.coding_agents.mcp_server")
    except ImportError as error:
        raise Refused(
            f"the tools need {error.name}, which is not installed: {install_command('mcp')}"
        ) from error
