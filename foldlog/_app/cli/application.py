"""The commands, and how their errors are reported."""

from __future__ import annotations

import importlib
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from foldlog import __version__
from foldlog._app.cli import terminal
from foldlog._app.cli.catalog import (
    COMMANDS,
    FIRST_DAY,
    GROUP,
    about_installed,
    installed,
    is_ours,
    module_of,
    package_of,
)
from foldlog._app.cli.command_line import SETTINGS, Command, flag
from foldlog._app.cli.exit_status import (
    DONE,
    FINDINGS,
    INTERRUPTED,
    INTERRUPTED_WORDS,
    REFUSED,
    UNPROVED,
    Refused,
)
from foldlog._app.cli.hints import use_store
from foldlog._app.cli.quick_completion import COMPLETE, about_commands

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PIPE_CLOSED = 141  # the status that a shell reports for a program that SIGPIPE ended
_ONLY_SHOW = {"list", "log", "show", "search", "view", "stats", "why", "diff", "--help", "-h"}
"""Commands and options that succeed even if ``head`` closes the pipe before they have written
everything.
"""


class _Commands(click.Group):
    """Commands whose modules are imported only when they are called. The help reads what they do
    from the table of ``quick_completion``.
    """

    def sections(self) -> Mapping[str, Mapping[str, str]]:
        """Return the commands below each heading of the help, with the help of each command."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in self.sections().values() for name in commands]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in self.sections().items():
            if commands:
                with formatter.section(heading):
                    formatter.write_dl([*commands.items()])
        click.Command.format_options(self, ctx, formatter)


class _AllCommands(_Commands):
    """The commands of ``foldlog``, with the group ``store`` and with commands of packages."""

    def sections(self) -> Mapping[str, Mapping[str, str]]:
        about = _about_commands()
        sections = {
            heading: {name: about[name] for name in names if not name.startswith(f"{GROUP} ")}
            for heading, names in COMMANDS.items()
        }
        sections["Administration"][GROUP] = _ABOUT_STORE
        sections["Installed"] = about_installed()
        return sections

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == GROUP:
            return _store
        if is_ours(name):
            return _load(name)
        entry = installed().get(name)
        return None if entry is None else _load_installed(entry)


class _StoreCommands(_Commands):
    """The commands of ``foldlog store``."""

    def sections(self) -> Mapping[str, Mapping[str, str]]:
        about = _about_commands()
        names = COMMANDS["Administration"]
        return {"Administration": {name.removeprefix(f"{GROUP} "): about[name] for name in names}}

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        full_name = f"{GROUP} {name}"
        return _load(full_name) if is_ours(full_name) else None


@cache  # Click takes the decorators of a function once
def _load(name: str) -> click.Command:
    """Return a command of foldlog."""
    module = importlib.import_module(module_of(name))
    # A command remembers the names of its option for help, so it must know them without a group.
    settings = {**SETTINGS, **getattr(module, "SETTINGS", {})}
    return click.command(cls=Command, context_settings=settings)(module.run)


def _about_commands() -> Mapping[str, str]:
    """Return what each command does. A new command has no words before they are written."""
    return defaultdict(str, about_commands())


def _load_installed(entry: EntryPoint) -> click.Command:
    """Return a command of a package. Raises ``Refused``."""
    try:
        command = entry.load()
    except Exception as error:  # whatever the code of a package raises
        raise Refused(
            f"the command {entry.name!r} of {package_of(entry)} cannot be loaded:"
            f" {error}; correct or uninstall the package"
        ) from error
    if not isinstance(command, click.Command):
        raise Refused(
            f"the command {entry.name!r} of {package_of(entry)} is a {type(command).__name__},"
            " not a command of Click; decorate the function with click.command()"
        )
    return command


@click.group(
    cls=_AllCommands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings=SETTINGS,
)
@click.version_option(__version__, message="foldlog %(version)s")
@flag("--json as_json", "Without a command: print one JSON document.")
@flag("--install-completion", "Install completion for the current shell.")
@flag(
    "--show-completion",
    "Show completion for the current shell, to copy it or customize the installation.",
)
@click.pass_context
def application(
    ctx: click.Context, as_json: bool, install_completion: bool, show_completion: bool
) -> None:
    """Show and manage the histories of agents: all their events, and what the model saw at any
    moment.
    """
    if install_completion or show_completion:
        from foldlog._app.cli import completion

        act = completion.install if install_completion else completion.show
        act(application)
        ctx.exit()
    if ctx.invoked_subcommand is None:
        from foldlog._app.cli.overview import show_overview

        about = _about_commands()
        show_overview({name: about[name] for name in FIRST_DAY})
    elif as_json:
        raise Refused(f"--json follows the command: foldlog {ctx.invoked_subcommand} … --json")


_ABOUT_STORE = "Look after a store: back it up, check it, copy it, erase data."


@click.group(
    cls=_StoreCommands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    help=_ABOUT_STORE,
)
@click.pass_context
def _store(ctx: click.Context) -> None:
    # Without a command, the group shows its help.
    if ctx.invoked_subcommand is None:
        for line in ctx.get_help().splitlines():
            terminal.say(line)


def run(arguments: Sequence[str]) -> int:
    """Run a command, print its error as one line, and return the exit status."""
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    use_store(None)
    try:
        terminal.prepare(as_json=as_json)
        status = _invoke(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except click.UsageError as error:  # an unknown option, a missing argument
        from foldlog._app.cli.suggestions import suggest

        return _refuse(suggest(error, arguments))
    except (Refused, click.Abort) as error:
        return _refuse(str(error) or "stopped")
    except BrokenPipeError:
        _drop_stdout()
        return DONE if _ONLY_SHOW.intersection(arguments) else _PIPE_CLOSED
    except terminal.StdoutFailed as error:
        _drop_stdout()
        terminal.complain(f"{_explain(error)}; the output is incomplete")
        return FINDINGS
    except Exception as error:  # noqa: BLE001 - every other error is printed as one line, too
        from foldlog.eventstore import CorruptEvent, StoreDamaged

        problem = _explain(error)
        unfinished = getattr(error, "unfinished", False)
        if as_json and unfinished:
            from foldlog._reports.answers.store import UnfinishedDocument

            terminal.emit(UnfinishedDocument(outcome="unfinished", problem=problem))
        terminal.complain(problem)
        # Other parts of a damaged store may still be readable.
        is_damaged = isinstance(error, CorruptEvent | StoreDamaged)
        return FINDINGS if unfinished or is_damaged else REFUSED
    if status == INTERRUPTED:
        terminal.complain(INTERRUPTED_WORDS)
    if terminal.print_problems() and status in (None, DONE):
        return FINDINGS
    if terminal.left_something_unchecked() and status in (None, DONE):
        return UNPROVED
    return DONE if status is None else int(status)


def _invoke(arguments: Sequence[str]) -> int | None:
    """Call the command, or complete a word for a shell. ``click.Command.main`` would turn a closed
    pipe into exit status 1.
    """
    if completion := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(application, {}, "foldlog", COMPLETE, completion)
    try:
        with application.make_context("foldlog", [*arguments]) as ctx:
            status: int | None = application.invoke(ctx)
            return status
    except click.exceptions.Exit as end:
        return end.exit_code


def _refuse(message: str) -> int:
    """Print why nothing was done, and return the status."""
    terminal.complain(message)
    return REFUSED


def _drop_stdout() -> None:
    """Drop the unwritten output of stdout, because flushing it at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> str:
    """Return an error in words for the user."""
    from foldlog.eventstore import ConversationErased, EventStoreError

    if isinstance(error, ConversationErased):
        return error.problem
    if isinstance(error, EventStoreError):
        return str(error)
    if isinstance(error, OSError):
        where = "" if error.filename is None else f" {error.filename}"
        return f"the system refused{where}: {error.strerror or error}"
    if os.environ.get("FOLDLOG_TRACEBACK"):
        terminal.print_traceback(error)
    return (
        f"an unexpected error, {type(error).__name__}: {error}; please report it with the output of"
        " FOLDLOG_TRACEBACK=1"
    )
