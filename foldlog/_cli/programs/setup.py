"""``foldlog setup``: have a coding agent keep its conversations here, and ask about them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command as command_of, home_db, home_folder, use_store
from foldlog._cli.options import DEFAULT_DB, Db
from foldlog._cli.outcome import Refused
from foldlog._cli.programs.quick_hook import program_db
from foldlog._programs.programs import PROGRAMS
from foldlog._programs.setup import settings_with, settings_without, write


def run(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help=f"One of {', '.join(PROGRAMS)}.", autocompletion=lambda: [*PROGRAMS]),
    ],
    show: Annotated[bool, typer.Option("--print", help="Only print the settings.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the hooks and the server out again.")] = False,
    db: Db = DEFAULT_DB,
) -> None:
    """Write hooks and the MCP server into the settings of a coding agent: it then imports its transcripts as they grow,
    and its model can ask what a compaction dropped.

    Other settings stay as they are. The store is ~/.local/share/foldlog/foldlog.db, unless --db or FOLDLOG_DB names
    another. Its conversations stay when the program deletes its transcripts.

    Example: foldlog setup claude-code
    """
    if program not in PROGRAMS:
        raise Refused(f"{program!r} is not a program that foldlog knows; give one of {', '.join(PROGRAMS)}")
    chosen, store = PROGRAMS[program], program_db(db)
    named = None if store == home_db() else _absolute(store)
    # the whole path: the program may be started without the environment in which this command is found
    command = os.path.abspath(shutil.which("foldlog") or sys.argv[0])
    try:
        files = [*(settings_without(chosen) if remove else settings_with(chosen, command, named))]
    except ValueError as error:
        raise Refused(f"settings of {program} cannot be read: {error}; correct them, nothing was written") from error
    for written in files:
        if show:
            terminal.say((f"{written.path}:", "bold"))
            for line in (written.text or "(removed)").splitlines():
                terminal.say(line)
            continue
        write(written)
        terminal.say(f"{'removed' if written.text is None else 'wrote'} {written.path}")
    if remove and not show:
        terminal.note(f"the conversations stay in {store}")
    elif not show:
        if named is None:
            os.makedirs(home_folder(), mode=0o700, exist_ok=True)
        use_store(store)
        so_far = command_of("import", "--from", chosen.format)
        terminal.note(f"start {program} again; to import what it has so far: {so_far}")


def _absolute(store: str) -> str:
    return store if "://" in store else os.path.abspath(store)
