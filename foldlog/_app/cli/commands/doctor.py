"""``foldlog doctor``: report which transcripts of coding agents are stored, and which transcripts
will be lost.
"""

from __future__ import annotations

import os
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command, home_folder
from foldlog._app.cli.options import json_option, program_db_option
from foldlog._app.cli.stores import open_or_create
from foldlog._app.coding_agents.doctor import look_at
from foldlog._app.coding_agents.programs import PROGRAMS, settings_at
from foldlog._reports.answers.programs import DoctorDocument
from foldlog._reports.words.gist import count

_NAMED = 5
"""The maximum number of missing transcripts that are named."""


@program_db_option
@json_option
def run(
    db: str,
) -> None:
    """Show which transcripts of coding agents are not in the store. Also show which transcripts an
    agent will delete and when, and whether the agent's hooks fire.

    The exit status is 1 if a transcript is not in the store.

    Example: foldlog doctor
    """
    folder = Path(home_folder())
    # An empty store would become the default store of all commands, so it is removed again.
    with open_or_create(db) as store:
        here = [program for program in PROGRAMS.values() if settings_at(program.home).is_dir()]
        document = DoctorDocument(
            programs=tuple(look_at(store, program, folder) for program in here)
        )
    terminal.answer(document, lambda: _show(document))
    if any(program.not_here for program in document.programs):
        terminal.matched_nothing()


def _show(document: DoctorDocument) -> None:
    """Print what is stored of each program."""
    if not document.programs:
        terminal.say(f"None of {', '.join(PROGRAMS)} has settings on this machine.")
    for program in document.programs:
        terminal.say((program.program, "bold"))
        if program.hook_fired_at is not None:
            fired = f"fired last at {program.hook_fired_at}, for {program.hook_event}"
        elif program.is_set_up:
            fired = f"set up, and not fired yet; start {program.program} again"
        else:
            fired = (
                f"not set up; run 'foldlog setup {program.program}' once, then start"
                f" {program.program} again"
            )
        terminal.say_wrapped(f"  hooks: {fired}")
        if program.problem is not None:
            terminal.say_wrapped(f"  its settings cannot be read: {program.problem}")
        missing = f"{len(program.not_here)} of {count(program.transcripts, 'transcript')}"
        terminal.say_wrapped(f"  missing or outdated in the store: {missing}")
        for path in program.not_here[:_NAMED]:
            terminal.say(f"    {os.path.basename(path)}")
        if program.days_kept is not None:
            lost = f"{count(program.soon, 'transcript')} within the next week"
            terminal.say_wrapped(
                f"  {program.program} deletes transcripts after {program.days_kept:g} days: {lost}"
            )
        if program.not_here:
            terminal.say_wrapped(f"  to keep them: {command('import', '--from', program.format)}")
