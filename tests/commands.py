"""The commands of ``foldlog`` as objects of Click."""

import click

from foldlog._cli.application import application
from foldlog._cli.catalog import COMMANDS

NAMES = [name for names in COMMANDS.values() for name in names]
"""The names of all commands, such as ``list`` and ``store verify``, in the order of the help."""


def command_named(name: str) -> click.Command:
    """Return the command of a name, such as ``list`` or ``store verify``."""
    command: click.Command = application
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command
