"""The names of the commands, and the modules that define the commands."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

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
        "export",
        "attributes",
    ),
    "Write": ("append", "retract", "condense"),
    "Coding agents": ("setup", "doctor", "mcp", "hook", "secrets"),
    "Administration": (
        *(
            "store info",
            "store backup",
            "store restore",
            "store copy",
            "store vacuum",
            "store verify",
            "store checkpoint",
            "store rekey",
        ),
        *("store erase", "store redact", "store expire", "store archive"),
    ),
}
"""Maps each heading in the help to the commands below it, in the order of the help."""
FIRST_DAY = COMMANDS["Begin here"]
"""The commands that a new user needs first, which ``foldlog`` without a command shows."""
GROUP = "store"


def module_of(name: str) -> str:
    """Return the full name of a command's module. If the command's name is a Python keyword, the
    module's name ends with an underscore.
    """
    path = name.replace(" ", ".")
    if keyword.iskeyword(name):
        return f"foldlog._cli.commands.{path}_"
    return f"foldlog._cli.commands.{path}"
