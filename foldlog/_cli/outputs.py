"""Options that name a file to write. One rule for all of them: a file that exists is replaced only with ``--force``, a
store never, and ``-`` is not a name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from foldlog._cli.outcome import Refused
from foldlog._whole_file import check_target

Named = TypeVar("Named", Path, str)

Force = Annotated[
    bool, typer.Option("--force", help="Replace the file if it exists.", is_eager=True)  # read before the file is
]


def output_option(*names: str, help: str, show_default: bool | str = True) -> Any:
    """Return an option that names a file to write. Its command takes ``Force`` too."""
    return typer.Option(*names, metavar="FILE", help=help, show_default=show_default, callback=_output)


def _output(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check the file that an option names, before the work. Return it."""
    if path is not None and not ctx.resilient_parsing:
        new_file(param, path)
        check_output(path, force=ctx.params["force"])
    return path


def new_file(param: typer.CallbackParam, path: Named | None) -> Named | None:
    """Check that an option or argument names a file or a store, which the command itself makes or knows. Return it."""
    if str(path).startswith("-"):
        option = f"{param.opts[0]} FILE" if param.opts[0].startswith("-") else param.metavar
        raise Refused(f"{path} is not the name of a file, and no name stands for stdout; name a file: {option}")
    return path


def check_output(path: Path, *, force: bool) -> None:
    """Raise ``Refused`` if ``path`` exists, unless it is a device or a pipe, or ``force`` is given; and
    ``InvalidOption`` if it is a folder, a database or its log.
    """
    check_target(path)
    if not force and (path.is_file() or (path.is_symlink() and not path.exists())):
        raise Refused(f"{path} exists; choose another name, or replace the file with --force")
