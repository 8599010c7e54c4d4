"""Load SQL from files: statements and numbered migrations.

Reading the files by their paths is faster than importing ``importlib.resources``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache

_FOLDERS = {"sqlite": "sqlite/sql", "postgresql": "postgres/sql"}
"""Maps a dialect to the folder of its files."""

_COMMAND = r"(?s)(?:\$\w*\$.*?\$\w*\$|[^;$])+;"


def statements(dialect: str, instead: Mapping[str, str] = {}) -> Mapping[str, str]:
    """Return the named statements of the ``queries.sql`` of a dialect. In a statement, a name in
    braces stands for the part with this name. ``instead`` maps names of parts to other SQL.
    """
    return _statements(dialect, tuple(instead.items()))


@cache
def _statements(dialect: str, instead: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return _named_in(read_sql(dialect, "queries.sql"), instead)


def _named_in(queries: str, instead: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the statements in a file by name, with their parts inserted. ``instead`` replaces
    parts.
    """
    # Every first open of a process reads this file: compiling patterns would take half of the time.
    blocks: dict[tuple[str, str], list[str]] = {}
    lines: list[str] = []
    for line in queries.splitlines():
        if line.startswith(("-- name: ", "-- part: ")):
            what, _, name = line.removeprefix("-- ").partition(": ")
            lines = blocks[what, name] = []
        elif not _is_comment(line):
            lines.append(line)
    others = dict(instead)
    parts = {
        name: others.get(name, "\n".join(lines).strip())
        for (what, name), lines in blocks.items()
        if what == "part"
    }
    return {
        name: _with_parts("\n".join(lines).strip(), parts)
        for (what, name), lines in blocks.items()
        if what == "name"
    }


def _is_comment(line: str) -> bool:
    # A comment at the end of a part would hide the text after the part.
    return line.lstrip(" ").startswith("--")


def _with_parts(sql: str, parts: Mapping[str, str]) -> str:
    text, *pieces = sql.split("{")
    for piece in pieces:
        name, _, rest = piece.partition("}")
        text += f"{parts[name]}{rest}" if name in parts else f"{{{piece}"
    return text


def commands(script: str) -> Sequence[str]:
    """Return the commands of a script as a list, because Citus accepts only one command at a
    time.
    """
    code = "\n".join([line for line in script.splitlines() if not _is_comment(line)])
    return [command.strip() for command in re.findall(_COMMAND, code)]


@cache
def migrations(dialect: str) -> Mapping[int, str]:
    """Return the scripts of the migrations, in the order of their numbers. Script n changes a
    database from the schema before to schema n. A dialect lacks the numbers of the migrations that
    change only the other dialect.
    """
    names = sorted(os.listdir(_folder(dialect)))
    return {int(name[:4]): read_sql(dialect, name) for name in names if name[:4].isdigit()}


def read_sql(dialect: str, name: str) -> str:
    """Return the text of a file of a dialect."""
    with open(os.path.join(_folder(dialect), name), encoding="utf-8") as file:
        return file.read()


def _folder(dialect: str) -> str:
    return os.path.join(os.path.dirname(__file__), _FOLDERS[dialect])
