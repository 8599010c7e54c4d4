"""The commands of ``foldlog`` as objects of Click."""

import click

from foldlog._cli.application import application


def command_named(name: str) -> click.Command:
    """Return the command of a name, such as ``list`` or ``store verify``."""
    command: click.Command = application
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command
