"""The page ``docs/CLI.md``, made of the help of every command."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

from foldlog.cli.application import COMMANDS

PAGE = Path(__file__).parent.parent / "docs" / "CLI.md"

_HEAD = """\
# The command foldlog

Made by `scripts/cli-reference` of what `foldlog COMMAND --help` prints. Exit status: 0 done; 1 there are findings, and
the rest was done; 2 bad input or usage, and nothing was done. Errors are one line on stderr. With `--json`, stdout holds
one JSON document and nothing else.
"""


def _help_of(*arguments: str) -> str:
    foldlog = os.path.join(sysconfig.get_path("scripts"), "foldlog")
    plain = {"PATH": os.environ["PATH"], "TERMINAL_WIDTH": "100", "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    done = subprocess.run([foldlog, *arguments, "--help"], capture_output=True, text=True, check=True, env=plain)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def page() -> str:
    """The text that the page should have."""
    sections = [("foldlog", ())] + [(f"foldlog {name}", (name,)) for names in COMMANDS.values() for name in names]
    return _HEAD + "".join(f"\n## {title}\n\n```text\n{_help_of(*arguments)}\n```\n" for title, arguments in sections)


if __name__ == "__main__":
    PAGE.write_text(page())
