"""Completion of words in a shell, by Click."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.quick_completion import COMPLETE

_RC_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}
"""The settings of the shells that do not load a script from a folder, as fish does."""
_FISH_FILE = ".config/fish/completions/foldlog.fish"


def show(command: click.Command) -> None:
    """Print the completion script of the user's shell."""
    for line in _script(command, _shell()).splitlines():
        terminal.say(line)


def install(command: click.Command) -> None:
    """Write the completion script into the home folder of the user. For bash and zsh, add a line
    that loads the script to the settings of the shell, unless the line is there.
    """
    shell = _shell()
    home = Path.home()
    path = home / (_FISH_FILE if shell == "fish" else f".foldlog-complete.{shell}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{_script(command, shell)}\n")
    if shell in _RC_FILES:
        settings = home / _RC_FILES[shell]
        line = f". ~/{path.name}".encode()
        before = settings.read_bytes() if settings.exists() else b""
        if line not in before.splitlines():
            begin = b"" if before.endswith(b"\n") or not before else b"\n"
            with settings.open("ab") as file:
                file.write(b"%b%b\n" % (begin, line))
    terminal.say(f"completion for {shell} is in {path}; it begins in a new shell")


def _shell() -> str:
    """Return the name of the user's shell. Raises ``Refused`` for a shell without completion."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in (*_RC_FILES, "fish"):
        raise Refused(
            f"there is completion for bash, zsh and fish, but the shell is {shell or 'unknown'};"
            " name your shell in the variable SHELL"
        )
    return shell


def _script(command: click.Command, shell: str) -> str:
    """Return the script with which a shell completes words."""
    completion = get_completion_class(shell)
    if completion is None:
        raise Refused(f"this release of Click has no completion for {shell}")
    return completion(command, {}, "foldlog", COMPLETE).source().rstrip()
