"""Make the page of the command from its help texts and from the outputs in
``tests/golden/outputs``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

from foldlog._app.cli.catalog import COMMANDS

_ROOT = Path(__file__).parents[2]
_OUTPUTS = _ROOT / "tests/golden/outputs"
_NAMES = [name for names in COMMANDS.values() for name in names]
_HEAD = """\
# The command foldlog

The exit status is 0 if everything was done. It is 1 if there are findings, or if only a part could be done. It is 2 if
the input or the usage is wrong, and nothing was done. An error is one line on stderr, `foldlog: …`. A finding is a line
`foldlog: found: …`. If `import` cannot read a record but imports the others, it prints a note. With `--json`, stdout is
one JSON document ([json-schema.json](json-schema.json)), and each line on stderr is an object such as
`{"level": "error", "message": "…"}`. The level is `error`, `found` or `note`.

If an id contains a control character, the commands print the id in a form that bash and zsh accept, `$'tab\\tx'`. With
`--json`, the id is unchanged. Put an id that begins with a dash after `--`: `foldlog log -- -x`.

Nearly every command has the options `--db STORE`, `--json` and `--help`, which are not repeated below. `STORE` is a file
or a URL. Without `--db`, the command uses the store of `FOLDLOG_DB`, then `foldlog.db`, then the coding agents' store.
"""
_OPTION = re.compile(r"^  (-\S.*\n(?: {8,}.*\n)*)", re.MULTILINE)
_COMMON = re.compile(r"^  (?:--db STORE|--json|-h, --help) .*\n(?: {10,}.*(?:\n|$))*", re.MULTILINE)
"""Matches the options of every command in a help."""


def page() -> str:
    """Return the page as Markdown."""
    sections = helps()
    outputs = ["", *(_output_of(name) for name in _NAMES)]
    return _HEAD + "".join(
        section + output for section, output in zip(sections, outputs, strict=True)
    )


_PRINT_HELPS = """
import sys
from foldlog._app.cli import main
for name in ([], *map(str.split, sys.argv[1:])):
    sys.argv = ["foldlog", *name, "--help"]
    try:
        main()
    except SystemExit:
        print(end="\\f")
"""


def helps() -> list[str]:
    """Return a section for ``foldlog`` and for each command. A section has the help, without
    options that an earlier section describes.
    """
    printed = _run([sys.executable, "-c", _PRINT_HELPS, *_NAMES]).removesuffix("\f")
    first, *others = [
        "\n".join(map(str.rstrip, text.strip("\n").split("\n"))) for text in printed.split("\f")
    ]
    others = [_COMMON.sub("", f"{text}\n") for text in others]
    uses = Counter(" ".join(option.split()) for text in others for option in _OPTION.findall(text))
    shared = sorted(option for option, times in uses.items() if times > 1)
    texts = [_without(shared, text).rstrip().removesuffix("Options:").rstrip() for text in others]
    sections = [_section(f"foldlog {name}", text) for name, text in zip(_NAMES, texts, strict=True)]
    listed = "".join(_listed(option) for option in shared)
    return [f"{_section('foldlog', first)}\n## Options of several commands\n\n{listed}", *sections]


def _section(title: str, text: str) -> str:
    return f"\n## {title}\n\n```text\n{text}\n```\n"


def _listed(option: str) -> str:
    parts = re.match(r"(\S+?),? ((?:[A-Z=]{2,} )?)(.*)", option)
    assert parts is not None
    name, value, description = parts.groups()
    return f"- `{f'{name} {value}'.strip()}`: {description}\n"


def _without(shared: list[str], text: str) -> str:
    """Replace the descriptions of shared options by the names of the options."""
    options = [" ".join(option.split()) for option in _OPTION.findall(text)]
    names = [option.split()[0].rstrip(",") for option in options if option in shared]
    rest = _OPTION.sub(
        lambda option: "" if " ".join(option[1].split()) in shared else option[0], text
    )
    return f"{rest.rstrip()}\n  {', '.join(names)}: see above" if names else rest


def _output_of(name: str) -> str:
    """Return the output of a command for a small history, or an empty text if the output is the
    help.
    """
    printed = (_OUTPUTS / f"{name.replace(' ', '-')}.txt").read_text().rpartition("exit status")[0]
    command, _, lines = printed.partition("\n")
    if shlex.split(command)[-1] == "--help":
        return ""
    return f"\n```console\n{command}\n{lines.rstrip()}\n```\n"


def _run(command: list[str]) -> str:
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout
