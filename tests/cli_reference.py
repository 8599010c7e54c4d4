"""What the documentation says of the command, made of the command: ``docs/CLI.md`` and a table in ``docs/index.md``."""

from __future__ import annotations

import base64
import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from foldlog._cli.catalog import COMMANDS, module_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "CLI.md"
INDEX = ROOT / "docs" / "index.md"

_NAMES = [name for names in COMMANDS.values() for name in names]
_TABLE = re.compile(r"(<!-- commands: scripts/cli-reference -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """\
# The command foldlog

Made by `scripts/cli-reference` of each command's `--help`, and of what an example prints after
`foldlog import --use tidewatch.jsonl` (the shipped history, in `foldlog/sample`): its first
lines, with … for the rest, and for what each run prints otherwise. Exit status:
0 done; 1 there are findings, or a part could not be done, and the rest was; 2 bad input or usage, and
nothing was done. An error is one line on stderr, `foldlog: …`, and so is each finding, `foldlog: found: …`. A record
that `import` cannot read is a note where the rest was imported. With `--json`, stdout is one JSON document
([json-schema.json](json-schema.json)), and each line on stderr is an object such as
`{"level": "error", "message": "…"}`: an `error`, a thing `found`, or a `note`.

`list` never cuts an id: on a terminal, one that does not fit has a line of its own; piped, each row is one
line, as wide as its id. An id with a character that steers a terminal is shown as bash and
zsh take it, `$'tab\\tx'`; `--json` has it as it is. An id that begins with a dash comes last, after `--`:
`foldlog log -- -x`.

Options of nearly every command, not repeated below: `--db STORE`, a file or a URL (else
`FOLDLOG_DB`, else `foldlog.db`); `--json`; `--help`.
"""
_OPTION = re.compile(r"^  (-\S.*\n(?: {8,}.*\n)*)", re.MULTILINE)
_COMMON = re.compile(r"^  (?:--db STORE|--json|-h, --help) .*\n(?: {10,}.*(?:\n|$))*", re.MULTILINE)
"""Options that every command has, in a help."""

_SAMPLE = ROOT / "foldlog" / "sample" / "tidewatch.jsonl"
_KEY = base64.b64encode(bytes(32)).decode()

_SHOWN = {
    "import": "foldlog import tidewatch.jsonl --db new.db",
    "compare": "foldlog compare tidewatch",
    "store copy": "foldlog store copy foldlog.db copied.db",
    "store erase": 'foldlog store erase tidewatch --reason "asked to" --yes',
    "store redact": 'foldlog store redact tidewatch 17 --reason "asked to" --by ann --yes',
}
"""What is run in place of the example of the help, which asks a person, or needs a server or files of one's own."""
_NOT_SHOWN = {
    "serve": "it runs until Ctrl-C",
    **dict.fromkeys(("mcp", "hook"), "a program runs it"),
    "setup": "it writes settings of the user",
    "doctor": "it reads settings of the user",
}
_BEFORE = {
    "store restore": "foldlog store backup monday.db",
    "store verify": "foldlog store verify --print-heads --json > heads.json",
}
"""What is run first, and not shown."""
_LINES, _COLUMNS = 7, 100
_OF_THE_RUN = re.compile(
    r"\b[0-9a-f]{64}\b|(?<=\"store\": \")[0-9a-f-]{36}"  # a hash, and what a store is called
    r"|(?<!\d)(?!2026-02-17)20\d\d-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+\+\d\d:\d\d)?)?)?"  # a time of now
    r"|20\d{6}T\d{6}\.\d+Z"
    r"|[\d,.]+(?= (?:ms|bytes|×|MB)(?!\w))|[\d,]+(?= +[\d,.]+ ×| now$)"  # how long, how large, how fast
)


def page() -> str:
    """The text that ``docs/CLI.md`` should have."""
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(2) as threads:
        base = Path(made) / "base"
        base.mkdir()
        shutil.copy(_SAMPLE, base)
        (base / "key").write_text(_KEY)
        (base / "key").chmod(0o600)
        _run("foldlog import --use tidewatch.jsonl", base)
        outputs = dict(zip(_NAMES, threads.map(lambda name: _output_of(name, base), _NAMES), strict=True))
    parts = [f"{section}{outputs.get(name, '')}" for name, section in zip(["foldlog", *_NAMES], helps(), strict=True)]
    return _HEAD + "".join(parts)


def index() -> str:
    """The text that ``docs/index.md`` should have: as it is, with the table of commands made anew."""
    rows = "".join(f"| `foldlog {name}` | {_first_sentence(name)} |\n" for name in _NAMES)
    table = f"\n| command | what it does |\n|---|---|\n{rows}\n"
    return _TABLE.sub(lambda found: f"{found[1]}{table}{found[2]}", INDEX.read_text())


_PRINT_HELPS = """
import sys
from foldlog._cli import main
for name in ([], *map(str.split, sys.argv[1:])):
    sys.argv = ["foldlog", *name, "--help"]
    try:
        main()
    except SystemExit:
        print(end="\\f")
"""


def helps() -> list[str]:
    """The beginning of each section, up to its example: what the command and its commands print for ``--help``. Options
    of several commands are told once, after the first of them.
    """
    printed = _run(shlex.join([sys.executable, "-c", _PRINT_HELPS, *_NAMES]), ROOT).removesuffix("\f")
    first, *others = ["\n".join(map(str.rstrip, text.strip("\n").split("\n"))) for text in printed.split("\f")]
    others = [_COMMON.sub("", f"{text}\n") for text in others]
    told = Counter(" ".join(option.split()) for text in others for option in _OPTION.findall(text))
    shared = sorted(option for option, times in told.items() if times > 1)
    parts = [re.match(r"(\S+?),? ((?:[A-Z=]{2,} )?)(.*)", option).groups() for option in shared]  # type: ignore[union-attr]
    listed = "".join(f"- `{f'{name} {value}'.strip()}`: {about}\n" for name, value, about in parts)
    texts = [first, *(_without(shared, text).rstrip().removesuffix("Options:").rstrip() for text in others)]
    titles = ["foldlog", *(f"foldlog {name}" for name in _NAMES)]
    begin, *sections = [f"\n## {title}\n\n```text\n{text}\n```\n" for title, text in zip(titles, texts, strict=True)]
    return [f"{begin}\n## Options of several commands\n\n{listed}", *sections]


def _without(shared: list[str], text: str) -> str:
    """Name shared options in place of their description."""
    names = [
        option.split()[0].rstrip(",")
        for found in _OPTION.findall(text)
        if (option := " ".join(found.split())) in shared
    ]
    rest = _OPTION.sub(lambda found: "" if " ".join(found[1].split()) in shared else found[0], text)
    return f"{rest.rstrip()}\n  {', '.join(names)}: see above" if names else rest


def _output_of(name: str, base: Path) -> str:
    """The example of a command, and the first lines that it prints; nothing for one that does not end by itself."""
    if name in _NOT_SHOWN:
        return ""
    [example] = re.findall(r"Example: (.*)", inspect.getdoc(importlib.import_module(module_of(name)).run) or "")
    command = _SHOWN.get(name, example)
    folder = base.parent / name
    shutil.copytree(base, folder)
    if name in _BEFORE:
        _run(_BEFORE[name], folder)
    printed = _run(command, folder).replace(f"{folder}{os.sep}", "").replace(f"{base}{os.sep}", "")
    lines = [_OF_THE_RUN.sub("…", line).rstrip() for line in printed.strip("\n").splitlines()]
    shown = [line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append("…")
    return "\n" + "\n".join(["```console", f"$ {command}", *shown, "```"]) + "\n"


def _run(command: str, folder: Path) -> str:
    """What a command line prints, to stdout and stderr, for a person without a terminal."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    plain = {"PATH": path, "TERMINAL_WIDTH": "100", "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit status {done.returncode}: {done.stdout}")
    return done.stdout


def _first_sentence(name: str) -> str:
    module = importlib.import_module(module_of(name))
    words = " ".join((inspect.getdoc(module.run) or "").split())
    return re.split(r"(?<=\.)\s", words)[0].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(page())
    INDEX.write_text(index())
