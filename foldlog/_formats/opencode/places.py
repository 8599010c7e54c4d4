"""Read OpenCode's sessions where it keeps them: a folder ``storage``, a database, or an export."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from foldlog._formats.files.readers import Placed, PlacedRecord, around, with_around
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.json_text import UnreadableJson, parse
from foldlog._formats.record import dict_or_empty, text_or_none

_EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"id"\s*:\s*"ses_')
_SQLITE = b"SQLite format 3\0"
_TABLES = {"session", "message", "part"}
_NAMES = {"project_id": "projectID", "workspace_id": "workspaceID", "parent_id": "parentID"}
_GROUPS = frozenset(("time", "summary", "share", "tokens"))
"""Columns of a session that begin so are the fields of an object of that name."""
_JSON = frozenset(("revert", "permission", "model", "metadata", "summary_diffs"))
_UNREAD = (
    "OpenCode has not yet moved this into its database, and what is in it is not read; "
    "quit OpenCode and import the database again"
)


class OpenCodeFiles(FileReader):
    """Finds sessions in exports, databases and storage folders. OpenCode leaves its storage behind when it moves to a
    database: a session that the database beside a storage has is not read from the storage.
    """

    def holds(self, path: Path, begin: bytes) -> bool:
        if not begin:
            return path.is_dir() and (path / "session").is_dir() and (path / "message").is_dir()
        return _EXPORT.match(begin) is not None or (begin.startswith(_SQLITE) and _is_database(path))

    def histories(self, path: Path) -> Iterator[Contained]:
        if path.is_file():
            yield from _in_database(path) if _is_database(path) else (_in_export(path),)
            return
        database = path.absolute().parent / "opencode.db"
        moved = {each.name for each in _in_database(database)} if _is_database(database) else set()
        yield from (each for each in _in_storage(path) if each.name not in moved)


# -- an export --------------------------------------------------------------------------------------------------------


def _in_export(path: Path) -> Contained:
    name = dict_or_empty(around(path, "messages").get("info")).get("id")
    return Contained(text_or_none(name), Placed(path.stat().st_size, partial(with_around, path, "messages")))


# -- a storage folder -------------------------------------------------------------------------------------------------


def _in_storage(path: Path) -> Iterator[Contained]:
    messages = path / "message"
    for session in sorted((path / "session").glob("*/*.json")):
        folder = messages / session.stem
        if folder.is_dir():
            size = sum(each.stat().st_size for each in folder.iterdir())
            yield Contained(session.stem, Placed(size, partial(_stored, folder, session)))


def _stored(folder: Path, session: Path) -> Iterator[PlacedRecord]:
    for message in sorted(folder.glob("*.json")):
        info, problem = _parsed(message)
        parts = []
        for file in sorted((folder.parent.parent / "part" / message.stem).glob("*.json")):
            part, of_part = _parsed(file)
            if of_part is not None:
                yield str(file), None, of_part
            else:
                parts.append(part)
        yield str(message), {"info": info, "parts": parts}, problem
    info, problem = _parsed(session)
    yield str(session), {"info": info}, problem


def _parsed(path: Path) -> tuple[Any, str | None]:
    try:
        return parse(path.read_bytes()), None
    except OSError as error:
        return None, f"cannot be read: {os.strerror(error.errno or 0)}"
    except UnreadableJson as error:
        return None, str(error)


# -- a database -------------------------------------------------------------------------------------------------------


def _opened(path: Path) -> closing[sqlite3.Connection]:
    """Open a database as it lies there: its program may write to it."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.row_factory = sqlite3.Row
    return closing(database)


def _is_database(path: Path) -> bool:
    """Return whether a file has OpenCode's tables, or its name where they cannot be read."""
    try:
        with _opened(path) as database:
            tables = {str(row[0]) for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            columns = {str(row[1]) for row in database.execute("PRAGMA table_info(part)")}
        return tables >= _TABLES and columns >= {"message_id", "session_id", "data"}
    except sqlite3.Error:
        return path.name == "opencode.db" and path.is_file()


def _in_database(path: Path) -> Iterator[Contained]:
    log = path.with_name(f"{path.name}-wal")
    unread: list[PlacedRecord] = [(str(log), None, _UNREAD)] if log.is_file() and log.stat().st_size else []
    try:
        with _opened(path) as database:
            sessions = [
                (str(row[0]), int(row[1]))
                for row in database.execute(
                    "SELECT id, (SELECT total(length(data)) FROM part WHERE session_id = session.id) FROM session "
                    "ORDER BY time_created, id"
                )
            ]
    except sqlite3.Error as error:
        unread.append((str(path), None, f"cannot be read: {error}"))
        yield Contained(None, Placed(path.stat().st_size, partial(iter, unread)))
        return
    for session, size in sessions:
        yield Contained(session, Placed(size, partial(_rows, path, session, unread)))
        unread = []


def _rows(path: Path, session: str, unread: list[PlacedRecord]) -> Iterator[PlacedRecord]:
    yield from unread
    try:
        with _opened(path) as database:
            messages = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
            for row in database.execute(messages, (session,)):
                held = "SELECT id, data FROM part WHERE message_id = ? ORDER BY id"
                named = {"sessionID": session, "messageID": row["id"]}
                parts = []
                for each in database.execute(held, (row["id"],)):
                    part, of_part = _with_ids(each, named)
                    if of_part is not None:
                        yield f"{path}, part {each['id']}", None, of_part
                    else:
                        parts.append(part)
                info, problem = _with_ids(row, {"sessionID": session})
                yield f"{path}, message {row['id']}", {"info": info, "parts": parts}, problem
            for row in database.execute("SELECT * FROM session WHERE id = ?", (session,)):
                yield f"{path}, session {session}", {"info": _session(row)}, None
    except (sqlite3.Error, UnreadableJson) as error:
        yield str(path), None, f"cannot be read any further: {error}"


def _with_ids(row: sqlite3.Row, named: dict[str, str]) -> tuple[Any, str | None]:
    """Return a message or a part with its ids, which its JSON does not have; or why it cannot be read."""
    try:
        data = parse(str(row["data"]).encode())
    except UnreadableJson as error:
        return None, str(error)
    return {**data, "id": row["id"], **named} if type(data) is dict else data, None


def _session(row: sqlite3.Row) -> dict[str, Any]:
    """Return a session as an export has it."""
    session: dict[str, Any] = {}
    for column in row.keys():  # noqa: SIM118 - iterating a row yields its values
        value = row[column]
        if value is None:
            continue
        names = column.split("_") if column.partition("_")[0] in _GROUPS else [_NAMES.get(column, column)]
        place = session
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = parse(value.encode()) if column in _JSON and type(value) is str else value
    return session
