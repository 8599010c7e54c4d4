"""Find the sessions of OpenCode: in exports, in its database, in its storage folder."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from foldlog._formats.files.readers import Placed, in_document, opened, parsed, record_in
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.json_text import UnreadableJson, parse
from foldlog._formats.record import Located, at, dict_or_empty, text_or_empty, within

_Part = dict[str, Any]

_EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"id"\s*:\s*"ses_')
_SQLITE = b"SQLite format 3\0"
_SELECT = {
    "session": "SELECT * FROM session WHERE id = ?",
    "message": "SELECT id, session_id AS sessionID, data FROM message WHERE session_id = ? ORDER BY time_created, id",
    "part": "SELECT id, session_id AS sessionID, message_id AS messageID, data FROM part"
    " WHERE message_id = ? ORDER BY id",
}
_SESSIONS = """SELECT id, (SELECT total(length(data)) FROM part WHERE session_id = session.id)
FROM session ORDER BY time_created, id"""
_NAMES = {"project_id": "projectID", "workspace_id": "workspaceID", "parent_id": "parentID"}
_GROUPS = frozenset(("time", "summary", "share", "tokens"))
"""Columns of a session that begin so are the fields of an object of that name."""
_JSON = frozenset(("revert", "permission", "model", "metadata", "summary_diffs"))
_UNREAD = (
    "OpenCode has not yet moved this into its database, and what is in it is not read; "
    "quit OpenCode and import the database again"
)

_Rows = Callable[[str, str], Iterator[tuple[str, Located]]]
"""Reads a session, its messages, or the parts of a message, with their ids."""


def info_of(record: Any) -> _Part:
    """Return what a record says about its message or session; empty for any other value."""
    return dict_or_empty(within(record, "info"))


def session_in(record: Any) -> str | None:
    """Return the session that a record names."""
    info = info_of(record)
    return text_or_empty(info.get("sessionID", None if "parts" in record else info.get("id"))) or None if info else None


class SessionFiles(FileReader):
    """Finds sessions in exports, databases and storage folders. OpenCode leaves its storage behind when it moves to a
    database: a session that the database beside a storage has is not read from the storage.
    """

    def holds(self, path: Path, begin: bytes) -> bool:
        if not begin:
            return (path / "session").is_dir() and (path / "message").is_dir()
        return _EXPORT.match(begin) is not None or (begin.startswith(_SQLITE) and _is_database(path))

    def histories(self, path: Path) -> Iterator[Contained]:
        database = path if path.is_file() else path.absolute().parent / "opencode.db"
        moved = list(_in_database(database)) if _is_database(database) else None
        if path.is_dir():
            yield from _in_storage(path, {each.name for each in moved or ()})
        elif moved is None:
            yield from in_document(path, "messages", session_in)
        else:
            yield from moved


def _in_storage(storage: Path, moved: set[str | None]) -> Iterator[Contained]:
    sessions = {path.stem: path for path in (storage / "session").glob("*/*.json")}
    for folder in sorted((storage / "message").iterdir()):
        session = sessions.get(name := folder.name, storage / "session" / f"{name}.json")
        if folder.is_dir() and name not in moved and (name in sessions or any(folder.iterdir())):
            size = sum(each.stat().st_size for each in folder.iterdir())
            read = partial(_records, partial(_files, storage, session), name)
            yield Contained(name, Placed(size, read))


def _files(storage: Path, session: Path, table: str, of: str) -> Iterator[tuple[str, Located]]:
    files = [session] if table == "session" else sorted((storage / table / of).glob("*.json"))
    return ((file.stem, record_in(file)) for file in files)


def _records(rows: _Rows, session: str) -> Iterator[Located]:
    """Yield the messages of a session with their parts, and the session."""
    for name, message in rows("message", session):
        parts = list(rows("part", name))
        yield from (each._replace(value={"id": part}) for part, each in parts if each.problem is not None)
        read = [each.value for _, each in parts if each.problem is None]
        yield message._replace(value={"info": message.value, "parts": read})
    yield from (each._replace(value={"info": each.value}) for _, each in rows("session", session))


def _is_database(path: Path) -> bool:
    """Return whether a file has OpenCode's tables, or its name where they cannot be read."""
    try:
        with opened(path) as database:
            database.execute("SELECT part.message_id, part.session_id, part.data FROM part, message, session LIMIT 0")
    except sqlite3.Error:
        return path.name == "opencode.db" and path.is_file()
    return True


def _in_database(path: Path) -> Iterator[Contained]:
    log = path.with_name(f"{path.name}-wal")
    unread = [at(str(log), None, _UNREAD)] if log.is_file() and log.stat().st_size else []
    try:
        with opened(path) as database:
            sessions = database.execute(_SESSIONS).fetchall()
    except sqlite3.Error as error:
        unread.append(at(str(path), None, f"cannot be read: {error}"))
        yield Contained(None, Placed(path.stat().st_size, partial(iter, unread)))
        return
    for session, size in sessions:
        yield Contained(str(session), Placed(int(size), partial(_in_tables, path, session, unread)))
        unread = []


def _in_tables(path: Path, session: str, unread: list[Located]) -> Iterator[Located]:
    yield from unread
    try:
        with opened(path) as database:
            database.row_factory = sqlite3.Row
            yield from _records(partial(_rows, path, database), session)
    except (sqlite3.Error, UnreadableJson) as error:
        yield at(str(path), None, f"cannot be read any further: {error}")


def _rows(path: Path, database: sqlite3.Connection, table: str, of: str) -> Iterator[tuple[str, Located]]:
    for row in database.execute(_SELECT[table], (of,)):
        place, value = f"{path}, {table} {row['id']}", dict(row)
        if table == "session":
            yield row["id"], at(place, _exported(value))
        else:
            told = parsed(str(value.pop("data")).encode(), 0, 0, place)
            yield row["id"], told._replace(value={**told.value, **value}) if type(told.value) is dict else told


def _exported(row: _Part) -> _Part:
    """Return a session as an export has it."""
    session: _Part = {}
    for column, value in row.items():
        if value is not None:
            names = column.split("_") if column.partition("_")[0] in _GROUPS else [_NAMES.get(column, column)]
            place = session
            for name in names[:-1]:
                place = place.setdefault(name, {})
            place[names[-1]] = parse(value.encode()) if column in _JSON and type(value) is str else value
    return session
