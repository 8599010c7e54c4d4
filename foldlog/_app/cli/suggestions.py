"""Suggest a similar command for a mistyped command, and point to the help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

import click

from foldlog._app.cli.catalog import COMMANDS, GROUP

_NO_COMMAND = re.compile(r"No such command '(.*?)'")


def suggest(error: click.UsageError, arguments: Sequence[str]) -> str:
    """Return a wrong usage in words, with the command that the user may mean or the help."""
    problem = _problem_of(error)
    names = [name for names in COMMANDS.values() for name in names]
    if unknown := _NO_COMMAND.search(problem):
        by_word = {name.removeprefix(f"{GROUP} "): name for name in names}
        near = get_close_matches(unknown[1], by_word, n=1, cutoff=0.7)
        problem = unknown[0]
        if near:
            return (
                f"{problem}; did you mean 'foldlog {by_word[near[0]]}'? 'foldlog --help' shows all"
                " commands"
            )
    typed = " ".join(arguments[:2])
    command = next((name for name in (*names, GROUP) if f"{typed} ".startswith(f"{name} ")), "")
    if not command and typed.startswith("--db"):
        return "options follow the command: 'foldlog list --db STORE'"
    what = "options" if command in names else "commands"
    help_command = f"foldlog {command} --help" if command else "foldlog --help"
    return f"{problem.removesuffix('.')}; '{help_command}' shows all {what}"


def _problem_of(error: click.UsageError) -> str:
    """Return what is wrong. Releases of Click describe an unknown option in different words, so
    these are ours.
    """
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    problem = f"No such option: {error.option_name}"
    if not error.possibilities:
        return problem
    return f"{problem} (Possible options: {', '.join(sorted(error.possibilities))})"
