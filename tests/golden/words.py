"""Write the words that complete in a shell, which are also those of the help of the commands.

python -m tests.golden.words
"""

from collections.abc import Iterator
from pathlib import Path

import click

from foldlog._app.cli import quick_completion
from foldlog._app.cli.command_line import SETTINGS
from tests.commands import application

FILE = Path(quick_completion.__file__).with_name("words.tsv")


def lines() -> str:
    context = click.Context(application, help_option_names=SETTINGS["help_option_names"])
    with context:
        return "".join("\t".join(row) + "\n" for row in _rows(application, "", context))


def _rows(command: click.Command, name: str, context: click.Context) -> Iterator[tuple[str, ...]]:
    if name:
        yield name, "", "", command.get_short_help_str(300)
    for option in command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            names = " ".join([*option.opts, *option.secondary_opts])
            yield name, names, "*" if option.multiple else "", " ".join((option.help or "").split())
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            subcommand = command.get_command(context, word)
            assert subcommand is not None
            yield from _rows(subcommand, f"{name} {word}".strip(), context)


if __name__ == "__main__":
    FILE.write_text(lines(), "utf-8")
