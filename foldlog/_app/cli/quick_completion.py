"""Complete commands and options in a shell without Click, whose import takes longer than the rest.

``words.tsv`` has the commands and their options; ``python -m tests.golden.words`` writes it. Click
completes all other words, and a quick answer has the form that the script of Click reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from foldlog._app.cli.catalog import GROUP, about_installed

COMPLETE = "_FOLDLOG_COMPLETE"
"""The variable by which a shell asks to complete a word."""
_FORMS = {
    "bash_complete": "plain,{name}\n",
    "fish_complete": "plain,{name}\t{about}\n",
    "zsh_complete": "plain\n{name}\n{about}\n",
}
"""The answers that the scripts of Click read: a word, and what it does."""


def words() -> list[tuple[str, list[str], bool, str]]:
    """Return the commands of foldlog in the order of the help, each with its options. A row has
    the name of the command, which is empty for an option of ``foldlog`` itself; the option and its
    short form, which a command does not have; whether the option may be repeated; and its help.
    """
    path = os.path.join(os.path.dirname(__file__), "words.tsv")
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(command, names.split(), mark == "*", about) for command, names, mark, about in rows]


def about_commands() -> dict[str, str]:
    """Return the help of each command."""
    return {command: about for command, names, _, about in words() if command and not names}


def complete_quickly(shell: str) -> bool:
    """Print the commands or options that complete a word. Return False if Click must complete it,
    for example the value of an option.
    """
    if shell not in _FORMS:
        return False
    typed = os.environ["COMP_WORDS"]
    if set("'\"\\").intersection(typed):
        return False
    arguments, incomplete = _split(shell, typed.split()[1:], os.environ["COMP_CWORD"])
    if "--" in arguments:
        return False
    depth = 2 if arguments[:1] == [GROUP] else 1  # the number of words of a command
    if incomplete.startswith("-"):
        answers = _options(" ".join(arguments[:depth]), arguments, incomplete)
    elif len(arguments) < depth:
        answers = _commands(f"{GROUP} " if arguments else "", incomplete)
    else:
        return False
    rows = [_FORMS[shell].format(name=name, about=about) for name, about in answers.items()]
    sys.stdout.write("".join(rows))
    return bool(answers)


def _split(shell: str, arguments: Sequence[str], place: str) -> tuple[Sequence[str], str]:
    """Return the arguments before the incomplete word, and that word. ``place`` is the word in
    fish, and its number in other shells.
    """
    if shell == "fish_complete":
        return (arguments[:-1] if place else arguments), place
    before = int(place) - 1
    return arguments[:before], "".join(arguments[before : before + 1])


def _options(command: str, arguments: Sequence[str], incomplete: str) -> dict[str, str]:
    """Return the options of a command that complete a word, without those that are there."""
    return {
        name: about
        for of, names, is_repeatable, about in words()
        if of == command and (is_repeatable or not set(names).intersection(arguments))
        for name in names
        if name.startswith(incomplete)
    }


def _commands(group: str, incomplete: str) -> dict[str, str]:
    """Return the commands of a group that complete a word. ``group`` ends with a space, or is
    empty.
    """
    names = about_commands()
    if not group:
        names.update(about_installed())
    matching = {
        name.removeprefix(group): about
        for name, about in names.items()
        if name.startswith(f"{group}{incomplete}")
    }
    return {name: about for name, about in matching.items() if " " not in name}
