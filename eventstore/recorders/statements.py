"""Load SQL from files: statements and numbered migrations are files beside the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

__all__ = ["migrations", "statements"]

_BLOCK = re.compile(r"^-- (name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL)


def statements(dialect: str) -> Mapping[str, str]:
    """Return the named blocks of ``sql/<dialect>/queries.sql``, each part inserted at its name in braces."""
    text = (files("eventstore.recorders") / "sql" / dialect / "queries.sql").read_text()
    blocks = [(what, name, sql.strip()) for what, name, sql in _BLOCK.findall(text)]
    parts = {f"{{{name}}}": sql for what, name, sql in blocks if what == "part"}
    return {name: _with(parts, sql) for what, name, sql in blocks if what == "name"}


def _with(parts: Mapping[str, str], sql: str) -> str:
    for place, part in parts.items():
        sql = sql.replace(place, part)
    return sql


def migrations(dialect: str) -> Mapping[int, str]:
    """Return the scripts that change a database from schema n-1 to schema n, by n, ascending."""
    scripts = (files("eventstore.recorders") / "sql" / dialect).iterdir()
    numbered = {int(path.name[:4]): path.read_text() for path in scripts if path.name[:4].isdigit()}
    return dict(sorted(numbered.items()))
