"""What the documentation says of the command, made of the command: ``docs/CLI.md`` and a table in ``docs/index.md``."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sysconfig
from pathlib import Path

from foldlog.cli.application import COMMANDS, module_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "CLI.md"
INDEX = ROOT / "docs" / "index.md"

_NAMES = [name for names in COMMANDS.values() for name in names]
_TABLE = re.compile(r"(<!-- commands: scripts/cli-reference -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """\
# The command foldlog

Made by `scripts/cli-reference` of what `foldlog COMMAND --help` prints. Exit status: 0 done; 1 there are findings, and
the rest was done; 2 bad input or usage, and nothing was done. Errors are one line on stderr. With `--json`, stdout is
one JSON document and nothing else.
"""


def page() -> str:
    """The text that ``docs/CLI.md`` should have."""
    sections = [("foldlog", ())] + [(f"foldlog {name}", (name,)) for name in _NAMES]
    return _HEAD + "".join(f"\n## {title}\n\n```text\n{_help_of(*arguments)}\n```\n" for title, arguments in sections)


def index() -> str:
    """The text that ``docs/index.md`` should have: as it is, with the table of commands made anew."""
    rows = "".join(f"| `foldlog {name}` | {_first_sentence(name)} |\n" for name in _NAMES)
    table = f"\n| command | what it does |\n|---|---|\n{rows}\n"
    return _TABLE.sub(lambda found: f"{found[1]}{table}{found[2]}", INDEX.read_text())


def _help_of(*arguments: str) -> str:
    foldlog = os.path.join(sysconfig.get_path("scripts"), "foldlog")
    plain = {"PATH": os.environ["PATH"], "TERMINAL_WIDTH": "100", "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    done = subprocess.run([foldlog, *arguments, "--help"], capture_output=True, text=True, check=True, env=plain)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def _first_sentence(name: str) -> str:
    module = importlib.import_module(module_of(name))
    words = " ".join((inspect.getdoc(module.run) or "").split())
    return re.split(r"(?<=\.)\s", words)[0].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(page())
    INDEX.write_text(index())
