"""Load SQL from the files beside the code: statements and numbered migrations.

Reading the files by their paths is faster than importing ``importlib.resources``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache

_SQL = os.path.join(os.path.dirname(__file__), "sql")

_BLOCK = re.compile(
    r"^-- (name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL
)
_COMMAND = re.compile(r"(?:\$\w*\$.*?\$\w*\$|[^;$])+;", re.DOTALL)
_CREATE = re.compile(r"^CREATE (?:UNIQUE )?(\w+) (?:{schema}\.)?(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^ *--(?! (?:name|part): ).*\n", re.MULTILINE)


def statements(dialect: str, instead: Mapping[str, str] = {}) -> Mapping[str, str]:
    """Return the named statements of ``sql/<dialect>/queries.sql``. In a statement, a name in
    braces stands for the part with this name. ``instead`` maps names of parts to other SQL.
    """
    # A comment at the end of a part would hide the text after the part.
    text = _COMMENT.sub("", _read_sql(dialect, "queries.sql"))
    blocks = [(what, name, sql.strip()) for what, name, sql in _BLOCK.findall(text)]
    parts = {f"{{{name}}}": instead.get(name, sql) for what, name, sql in blocks if what == "part"}
    named = ((name, sql) for what, name, sql in blocks if what == "name")
    return {
        name: re.sub(r"{\w+}", lambda place: parts.get(place[0], place[0]), sql)
        for name, sql in named
    }


def commands(script: str) -> Sequence[str]:
    """Return the commands of a script as a list, because Citus accepts only one command at a
    time.
    """
    return [command.strip() for command in _COMMAND.findall(_COMMENT.sub("", script))]


@cache
def migrations(dialect: str) -> Mapping[int, str]:
    """Return the scripts of the migrations. Script n changes a database from schema n-1 to schema
    n.
    """
    names = sorted(os.listdir(os.path.join(_SQL, dialect)))
    return {int(name[:4]): _read_sql(dialect, name) for name in names if name[:4].isdigit()}


def missing_parts(dialect: str, there: Collection[tuple[str, str]]) -> list[str]:
    scripts = migrations(dialect).values()
    parts = {(kind.lower(), name) for script in scripts for kind, name in _CREATE.findall(script)}
    return [_describe_missing(kind, name) for kind, name in sorted(parts.difference(there))]


def _describe_missing(kind: str, name: str) -> str:
    if kind == "index":
        return (
            f"the index {name} is missing, so reading is slow or fails; copy the store, which"
            " makes the index again (see 'foldlog store copy --help'); if copying fails, restore"
            " a backup"
        )
    return (
        f"the {kind} {name} is missing, so calls that need it fail; restore a backup, or copy the"
        " sound events to a new store with 'foldlog store copy --damaged'"
    )


def _read_sql(dialect: str, name: str) -> str:
    with open(os.path.join(_SQL, dialect, name), encoding="utf-8") as file:
        return file.read()
