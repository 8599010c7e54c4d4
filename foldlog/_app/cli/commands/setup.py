"""``foldlog setup``: connect a coding agent, so that its conversations are imported and its model
can ask about them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from urllib.parse import quote

import click

from foldlog._app.cli import terminal
from foldlog._app.cli.commands.mcp import check_installed
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command as command_of, home_db, home_folder
from foldlog._app.cli.options import (
    argument,
    flag,
    program_db_option,
    redact_secrets_option,
)
from foldlog._app.cli.stores import open_or_create
from foldlog._app.coding_agents.programs import PROGRAMS
from foldlog._app.coding_agents.setup import read_record, settings_with, settings_without, write
from foldlog._reports.search.secrets import secret_finder
from foldlog.eventstore.errors import install_command
from foldlog.eventstore.recorders.urls import as_url, parse_url, without_password


@argument("program", "PROGRAM", f"One of {', '.join(PROGRAMS)}.", type=click.Choice([*PROGRAMS]))
@flag("--print show", "Only print the settings.")
@flag("--remove", "Remove the hooks and the server from the settings.")
@redact_secrets_option
@program_db_option
def run(
    program: str,
    show: bool,
    remove: bool,
    redact_secrets: bool,
    db: str,
) -> None:
    """Write hooks and the MCP server into the settings of a coding agent. The hooks import the
    agent's transcripts while they grow. The agent's model can ask what a compaction dropped.

    Other settings stay unchanged. Conversations stay in the store when the agent deletes its
    transcripts. Needs the extra 'mcp'.

    Example: foldlog setup claude-code
    """
    if not (show or remove):
        # Otherwise the program would start a server or a hook that always fails.
        check_installed()
        if redact_secrets:
            secret_finder()
    chosen = PROGRAMS[program]
    folder = Path(home_folder())
    if db != without_password(db) and not remove:
        where = "leave it out of the URL, and write it into ~/.pgpass"
        raise Refused(
            f"the password of {without_password(db)} would be written into the settings of "
            f"{program}; {where}"
        )
    options = [] if db == home_db() else ["--db", _absolute(db)]
    if redact_secrets:
        options.append("--redact-secrets")
    try:
        record = read_record(folder)
        changed = settings_with(chosen, _start_command(), options, record)
        files = [*(settings_without(chosen, record) if remove else changed)]
    except ValueError as error:
        raise Refused(
            f"the settings of {program} were not changed: {error}; correct this file, and"
            " run the command again"
        ) from error
    except ImportError as error:
        raise Refused(
            f"to change the settings of {program}, foldlog needs {error.name}, which is not "
            f"installed: {install_command('mcp')}"
        ) from error
    for written in files:
        if show:
            terminal.say((f"{written.path}:", "bold"))
            for line in (written.text or "(removed)").splitlines():
                terminal.say(line)
            continue
        write(written, folder)
        terminal.say(f"{'removed' if written.text is None else 'wrote'} {written.path}")
    if remove and not show:
        terminal.note(f"the conversations stay in {without_password(db)}")
    elif not show:
        _name_store(program, chosen.format, db)


def _name_store(program: str, format: str, db: str) -> None:
    """Say what the hooks write, and what to do next. The user's store is created, so that commands
    without ``--db`` find it from now on.
    """
    if db == home_db():
        with open_or_create(db, may_be_empty=True):
            pass
    so_far = command_of("import", "--from", format)
    other = "claude-code" if program == "codex" else "codex"
    go_on = command_of("continue", "ID", "--in", other)
    terminal.note(
        f"restart {program}, and its hooks will write to {db}; to import its existing"
        f" transcripts: {so_far}",
        f"to go on with a conversation in another agent: {go_on}",
    )


def _start_command() -> list[str]:
    """Return the full command that starts foldlog in this Python environment, because the program
    may run in a different environment. ``-P`` keeps Python from importing files of its working
    directory.
    """
    script = os.path.join(sysconfig.get_path("scripts"), "foldlog")
    if os.path.isfile(script):
        return [script]
    return [sys.executable, "-P", "-m", "foldlog"]


def _absolute(store: str) -> str:
    """Return the store for a program that may run in another folder: an absolute path, or a URL
    whose path is absolute.
    """
    location = parse_url(as_url(store))
    if location.scheme != "sqlite":
        return store
    path = os.path.abspath(location.path)
    if not store.startswith("sqlite:"):
        return path
    _, mark, options = store.partition("?")
    return f"sqlite:///{quote(os.fsencode(path))}{mark}{options}"
