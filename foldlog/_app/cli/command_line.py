"""Decorators for the function of a command. They make the parameters of Click: an argument has a
help text, and the word for a value in the help says what kind of value it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from foldlog._base.json_types import JsonMap

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

SETTINGS: JsonMap = {
    "help_option_names": ["--help", "-h"],
    "max_content_width": 100,
    "show_default": True,
}
EVENT_SETTINGS: JsonMap = {"ignore_unknown_options": True}
"""Accepts an argument that begins with a minus, such as the id of a summary."""


class Command(click.Command):
    """A command whose help explains its arguments too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parameters = self.get_params(ctx)
        rows = [parameter.help_row() for parameter in parameters if isinstance(parameter, Argument)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)


class Argument(click.Argument):
    """An argument with a text for the help."""

    def __init__(
        self,
        declarations: list[str],
        *,
        about: str,
        default_words: str,
        **settings: Any,
    ) -> None:
        super().__init__(declarations, **settings)
        self._about = about
        self._default_words = default_words

    def make_metavar(self, ctx: click.Context) -> str:
        name = self.human_readable_name if self.required else f"[{self.human_readable_name}]"
        return name if self.nargs == 1 else f"{name}..."

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.human_readable_name}'"

    def help_row(self) -> tuple[str, str]:
        """Return the name and the text of the argument in the help."""
        marks = []
        if self._default_words:
            marks.append(f"default: ({self._default_words})")
        if self.required:
            marks.append("required")
        about = f"{self._about}  [{'; '.join(marks)}]" if marks else self._about
        return self.human_readable_name, about


class WholeNumber(click.IntRange):
    """A whole number. Its errors say what to type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail("use a whole number", param, ctx)
        if self.min is not None and number < self.min:
            self.fail(f"give at least {self.min:,}", param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"give at most {self.max:,}", param, ctx)
        return number


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("FILE", "DIR", "PATH", "BACKUP"), Path),
    **dict.fromkeys(("N", "V"), WholeNumber(min=0)),
}
"""The types of values whose word in the help says what they are. Other values are texts."""


def argument(
    name: str,
    metavar: str,
    help: str,
    *,
    type: Any = None,
    show_default: str = "",
    **settings: Any,
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds an argument. ``show_default`` is the text that the help shows
    as the default value.
    """
    return click.argument(
        name,
        cls=Argument,
        metavar=metavar,
        type=type or _TYPES.get(metavar),
        about=help,
        default_words=show_default,
        **settings,
    )


def option(
    names: str, metavar: str, help: str, *, type: Any = None, **settings: Any
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds an option with a value. ``names`` has spaces between the option,
    its short form and the name of the function's parameter, if it has these.
    """
    return click.option(
        *names.split(), metavar=metavar, type=type or _TYPES.get(metavar), help=help, **settings
    )


def flag(names: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help, **settings)


def complete_from(
    values: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem | str]]:
    """Return a function that completes a word in a shell to one of ``values``."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem | str]:
        return [value for value in values() if value.startswith(incomplete)]

    return complete
