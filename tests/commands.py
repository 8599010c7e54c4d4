"""The commands of ``foldlog`` as objects of typer."""

from typing import Any

import typer

from foldlog._cli.application import build


def command_named(name: str) -> Any:
    """Return the command of a name, such as ``list`` or ``store verify``."""
    command: Any = typer.main.get_command(build(name))
    for word in name.split():
        command = command.commands[word]
    return command
