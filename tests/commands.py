"""The commands of ``foldlog``, run in this process or as objects of Click."""

import sys
from unittest.mock import patch

import click

from foldlog._app.cli import main
from foldlog._app.cli.application import application
from foldlog._app.cli.catalog import COMMANDS, module_of

NAMES = [name for names in COMMANDS.values() for name in names]
"""The names of all commands, such as ``list`` and ``store verify``, in the order of the help."""
MODULES = {name: module_of(name) for name in NAMES}
"""Maps the name of each command to the module that has it."""


def run_foldlog(*arguments: str) -> int:
    """Run the command in this process. Return its exit status."""
    with patch.object(sys, "argv", ["foldlog", *arguments]):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def command_named(name: str) -> click.Command:
    """Return the command of a name, such as ``list`` or ``store verify``."""
    command: click.Command = application
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command
