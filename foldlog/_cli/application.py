"""The commands, and how their errors are reported."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from foldlog._cli import terminal
from foldlog._cli.catalog import COMMANDS, FIRST_DAY, GROUP, module_of
from foldlog._cli.hints import use_store
from foldlog._cli.outcome import (
    DONE,
    FINDINGS,
    INTERRUPTED,
    INTERRUPTED_WORDS,
    REFUSED,
    Refused,
    is_of_damage,
)
from foldlog._cli.suggestions import suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_ABOUT = (
    "Show and manage the histories of agents: all their events, and what the model saw at any "
    "moment."
)
_ABOUT_STORE = "Look after a store: back it up, check it, copy it, erase data."
_SETTINGS: Mapping[str, Any] = {"help_option_names": ["--help", "-h"], "max_content_width": 100}
_WrongUsage: Any = typer.BadParameter.__mro__[-4]
"""The base class of typer's usage errors. Before typer 0.27, this base class came from Click."""
_NO_NUMBER = "Input should be a valid integer, unable to parse string as an integer"
_TOO_SMALL = "Input should be greater than or equal to "
_TOO_LARGE = "Input should be less than or equal to "
_WRONG_VALUE = "Value error, "
_PIPE_CLOSED = 141  # the status that a shell reports for a program that SIGPIPE ended
_ONLY_SHOW = {"list", "log", "show", "search", "view", "stats", "why", "diff"}
"""Commands that succeed even if ``head`` closes the pipe before they have written everything."""


_MADE_OF_TEXT: dict[Any, Callable[[str], object]] = {
    str: str,
    list[str]: str,
    Path: Path,
    list[Path]: Path,
}
"""Maps the type of a parameter to the function that converts its argument."""


class _ReaderLeft(Exception):
    """The reader of stdout has closed the pipe. This error replaces ``BrokenPipeError``, because
    typer turns ``BrokenPipeError`` into exit status 1.
    """


class _ValuesAsGiven:
    """Converts arguments without pydantic. A path becomes a ``Path``. Texts and default values stay
    unchanged. Typer itself would import pydantic, which takes as long as a whole short command.
    """

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = param.type_descriptor
        values = value if isinstance(value, list | tuple) else (value,)
        make = _MADE_OF_TEXT.get(kind.annotation)
        texts = [each for each in values if isinstance(each, str)]
        is_plain = kind.parameter_info.parser is None and all(map(str.isprintable, texts))
        if is_plain and (make is not None or not texts):
            coerced = [
                make(each) if make is not None and isinstance(each, str) else each
                for each in values
            ]
            if kind.is_list:
                return coerced
            if isinstance(value, list | tuple):
                return type(value)(coerced)
            return coerced[0]
        return type(param).get_runtime_param(param).coerce(value, param=param, ctx=ctx)


def _as_given(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        parameter.get_runtime_param = _ValuesAsGiven  # typer before 0.27 does not call this
    return parameters


class _Command(TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderLeft from error

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = _as_given(super().get_params(ctx))
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # a type of Python
        return parameters


class _Commands(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _as_given(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        headings: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            headings.setdefault(getattr(command, "rich_help_panel", ""), []).append(
                (name, command.get_short_help_str(300))
            )
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing, because ``format_options`` writes the commands."""


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        terminal.say(f"foldlog {version('foldlog')}")
        raise typer.Exit


def build(only: str | None = None) -> typer.Typer:
    """Return the application with all its commands.

    If ``only`` is the name of a command, the application has only this command. If ``only`` is
    empty, the application has no command. For any other text, the application has all commands, but
    the commands have no parameters, because their modules are not imported.
    """
    application = typer.Typer(
        name="foldlog", help=_ABOUT, no_args_is_help=False, rich_markup_mode=None
    )
    application.callback(
        cls=_Commands, context_settings=dict(_SETTINGS), invoke_without_command=True
    )(_foldlog)
    if only == "":
        return application
    group = typer.Typer(rich_markup_mode=None)
    group.callback(cls=_Commands, help=_ABOUT_STORE, invoke_without_command=True)(_show_help)
    commands = {name: heading for heading, names in COMMANDS.items() for name in names}
    is_known = only in commands
    for name, heading in commands.items():
        if only == name or not is_known:
            into = group if name.startswith(f"{GROUP} ") else application
            _add(into, name, heading, described=only not in (None, name))
    if group.registered_commands:
        application.add_typer(
            group, name=GROUP, rich_help_panel="Administration", context_settings=dict(_SETTINGS)
        )
    if not is_known:
        from importlib.metadata import entry_points

        for brought in entry_points(group="foldlog.commands"):
            if brought.name not in (*commands, GROUP):
                _add_installed(application, brought, described=only not in (None, brought.name))
    return application


def _add(application: typer.Typer, name: str, heading: str, *, described: bool) -> None:
    module = None if described else importlib.import_module(module_of(name))
    run = _description_of(name) if module is None else module.run
    command = application.command(
        name.removeprefix(f"{GROUP} "),
        cls=_Command,
        help=_one_line_paragraphs(inspect.getdoc(run) or ""),
        rich_help_panel=heading,
        context_settings={**_SETTINGS, **getattr(module, "SETTINGS", {})},
    )
    command(run)


def _add_installed(application: typer.Typer, brought: EntryPoint, *, described: bool) -> None:
    """Add the command of an installed package. If ``described`` is true, the command is only listed
    in the help, and the package is not loaded.
    """
    from_package = "" if brought.dist is None else brought.dist.name

    def command() -> None: ...

    try:
        run = command if described else brought.load()
    except Exception as error:  # whatever the code of a package raises
        raise Refused(
            f"the command {brought.name!r} of {from_package or brought.value} cannot be loaded:"
            f" {error}; correct or uninstall the package"
        ) from error
    if described:
        about = f"A command of {from_package}."
    else:
        about = _one_line_paragraphs(inspect.getdoc(run) or "")
    command_of = application.command(
        brought.name,
        cls=_Command,
        help=about,
        rich_help_panel="Installed",
        context_settings=dict(_SETTINGS),
    )
    command_of(run)


def _description_of(name: str) -> Callable[[], None]:
    """Return a function with the docstring of a command. The docstring is read from the source of
    the command's module, so the module is not imported.
    """
    path = Path(__file__).parent.joinpath(*module_of(name).split(".")[2:]).with_suffix(".py")

    def command() -> None: ...

    _, _, run = path.read_text("utf-8").partition("\ndef run(")
    command.__doc__ = run.split('"""')[1]
    return command


def _foldlog(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_tell_version
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Without a command: print one JSON document.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        from foldlog._cli.overview import show_overview

        show_overview({name: _description_of(name).__doc__ or "" for name in FIRST_DAY})
    elif as_json:
        raise Refused(f"--json follows the command: foldlog {ctx.invoked_subcommand} … --json")


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        for line in ctx.get_help().splitlines():
            terminal.say(line)


def _one_line_paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def run(arguments: Sequence[str]) -> int:
    # Events are many objects without cycles. With Python's thresholds, the search for cycles took
    # half of the time, so it runs rarely.
    gc.set_threshold(100_000, 20, 100)
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    use_store(None)
    try:
        terminal.prepare(as_json=as_json)
        command = typer.main.get_command(build(_command_in(_words(arguments))))
        status = command.main(list(arguments), prog_name="foldlog", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except _WrongUsage as error:  # usage: an unknown option, a missing argument
        problem = error.format_message().replace(_NO_NUMBER, "use a whole number")
        problem = problem.replace(_TOO_SMALL, "give at least ").replace(_WRONG_VALUE, "")
        return _refuse(suggest(problem.replace(_TOO_LARGE, "give at most "), arguments))
    except (Refused, typer.Abort) as error:
        return _refuse(str(error) or "stopped")
    except (BrokenPipeError, _ReaderLeft):
        _drop_stdout()
        return DONE if _command_in(arguments) in _ONLY_SHOW else _PIPE_CLOSED
    except terminal.StdoutFailed as error:
        _drop_stdout()
        terminal.complain(f"{_explain(error)}; the output is incomplete")
        return FINDINGS
    except SystemExit as error:  # raised if the reader of the help closed the pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return DONE
    except Exception as error:  # noqa: BLE001 - every other error is printed as one line, too
        problem = _explain(error)
        unfinished = getattr(error, "unfinished", False)
        if as_json and unfinished:
            from foldlog._documents import UnfinishedDocument

            terminal.emit(UnfinishedDocument(outcome="unfinished", problem=problem))
        terminal.complain(problem)
        return FINDINGS if unfinished or is_of_damage(error) else REFUSED
    if status == INTERRUPTED:
        terminal.complain(INTERRUPTED_WORDS)
    if terminal.print_problems() and status in (None, DONE):
        return FINDINGS
    return DONE if status is None else int(status)


def _words(arguments: Sequence[str]) -> Sequence[str]:
    """Return the words of the command line, or the words that a shell asks to complete."""
    completed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    if "_FOLDLOG_COMPLETE" in os.environ:
        return completed.split()[1:]
    return arguments


def _command_in(words: Sequence[str]) -> str:
    """Return the name of the command in the command line: one word, or two words for the group
    ``store``. Return an empty text if the command line has no command.
    """
    if [*words] == ["--json"]:
        return ""
    return " ".join(words[: 2 if words[:1] == [GROUP] else 1])


def _refuse(message: str) -> int:
    terminal.complain(message)
    return REFUSED


def _drop_stdout() -> None:
    """Drop the unwritten output of stdout, because flushing it at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> str:
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
