"""Suggest a similar command for a mistyped command, and point to the help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from foldlog._cli.catalog import COMMANDS, GROUP

_NO_COMMAND = re.compile(r"No such command '(.*?)'")


def suggest(problem: str, arguments: Sequence[str]) -> str:
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
    # Typer itself may add a question to a problem: "No such option: --dbb. Did you mean --db?"
    separator = " " if problem.endswith("?") else "; "
    help_command = f"foldlog {command} --help" if command else "foldlog --help"
    return f"{problem.removesuffix('.')}{separator}'{help_command}' shows all {what}"
