"""The names of the commands, and the modules and packages that define the commands. Completion
imports this module, so it imports little.
"""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False  # as type checkers read it; typing itself takes a fifth of a completion
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: Mapping[str, Sequence[str]] = {
    "Begin here": ("demo", "import", "list", "view", "why", "search", "serve"),
    "Read": (
        "log",
        "show",
        "diff",
        "stats",
        "compare",
        "replay",
        "report",
        "fork",
        "continue",
        "export",
        "attributes",
    ),
    "Write": ("append", "retract", "condense"),
    "Coding agents": ("setup", "doctor", "mcp", "hook", "secrets"),
    "Administration": (
        "store info",
        "store index",
        "store keep-up",
        "store backup",
        "store restore",
        "store copy",
        "store vacuum",
        "store verify",
        "store checkpoint",
        "store rekey",
        "store erase",
        "store redact",
        "store expire",
        "store archive",
    ),
}
"""Maps each heading in the help to the commands below it, in the order of the help."""
FIRST_DAY = COMMANDS["Begin here"]
"""The commands that a new user needs first, which ``foldlog`` without a command shows."""
GROUP = "store"
"""The command whose commands are for a whole store."""
_INSTALLED = "foldlog.commands"
"""The entry points by which packages add commands."""


def module_of(name: str) -> str:
    """Return the full name of a command's module. If the command's name is a Python keyword, the
    module's name ends with an underscore.
    """
    path = name.replace(" ", ".").replace("-", "_")
    if keyword.iskeyword(name):
        return f"foldlog._app.cli.commands.{path}_"
    return f"foldlog._app.cli.commands.{path}"


def is_ours(name: str) -> bool:
    """Return whether foldlog itself has a command with this name."""
    return any(name in names for names in COMMANDS.values())


def installed() -> Mapping[str, EntryPoint]:
    """Return the commands of installed packages. They cannot replace a command of foldlog."""
    if not _is_any_installed():
        return {}
    from importlib.metadata import entry_points

    return {
        entry.name: entry
        for entry in entry_points(group=_INSTALLED)
        if entry.name != GROUP and not is_ours(entry.name)
    }


def about_installed() -> dict[str, str]:
    """Return the help of each command of a package."""
    return {name: f"A command of {package_of(entry)}." for name, entry in installed().items()}


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that has a command."""
    return entry.value if entry.dist is None else entry.dist.name


def _is_any_installed() -> bool:
    """Return whether a package has commands. Most users have none, and the import of
    ``importlib.metadata`` takes longer than the answer to a shell.
    """
    packages = [
        os.path.join(folder, name, "entry_points.txt")
        for folder in filter(os.path.isdir, sys.path)
        for name in _names_in(folder)
        if name.endswith("-info")
    ]
    for path in filter(os.path.exists, packages):
        with open(path, encoding="utf-8") as file:
            if f"[{_INSTALLED}]" in file.read():
                return True
    return False


def _names_in(folder: str) -> Sequence[str]:
    """Return the names in a folder. In a folder that cannot be read, Python finds no package."""
    try:
        return os.listdir(folder)
    except OSError:
        return ()
