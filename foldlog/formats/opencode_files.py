"""Find the sessions of OpenCode in its files, and convert the messages of OpenCode 2 into the
format that ``opencode.py`` reads.

    storage/        a file for each session, message and part
    an export       the output of ``opencode export``: the session under ``info``, its messages
                    under ``messages``
    opencode.db     tables with sessions, messages and parts. OpenCode 2 leaves the older tables
                    unchanged, and writes ``session_v2`` and ``session_message``. The table
                    ``session_message`` begins with copies of the old messages in another format

If both versions of OpenCode stored a session, the older tables have its beginning.

OpenCode changes some fields while a session goes on: the title, the times and the sums of the
session, and the list of changed files in a user's message. The records leave out the fields that
OpenCode changes, because a changed record would make the source look rewritten at each import. If a
session is reverted, the last record says so, until OpenCode continues without the reverted
messages.
"""

from __future__ import annotations

import os
import re
import sqlite3
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldlog.eventstore.files.open_files import SQLITE
from foldlog.formats.event_fields import text_part
from foldlog.formats.files.documents import document_of
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.files.readers import (
    Placed,
    object_in,
    open_read_only,
    parse_line,
    record_in,
    rows_in,
    text_in_cell,
)
from foldlog.formats.format import Contained, FileReader
from foldlog.formats.json_text import parse_text as parsed_text
from foldlog.formats.opencode_rows import NEWEST_MAX, Mark, SessionRows
from foldlog.formats.record import (
    Fields,
    Located,
    MarkedRecords,
    dict_or_empty,
    dicts_in,
    first_of,
    omit,
    pick,
    text_or_empty,
    within,
)

Read = Callable[[str, str], Iterator[Located]]
"""Gets the name of a table and the id of a session, and yields the rows."""


class _Rows(NamedTuple):
    """Functions that read the rows of OpenCode's tables, or the files of a storage folder.

    ``read``        yields the rows of a table that belong to a session
    ``read_parts``  yields the parts of some messages, each with the id of its message
    """

    read: Read
    read_parts: Callable[[Sequence[str]], Iterator[tuple[str, Located]]]


_SESSIONS = (
    "SELECT id, time_created, (SELECT data FROM part WHERE session_id = session.id) FROM session",
    """SELECT id, time_created,
    (SELECT data FROM session_message WHERE session_id = newer.id)
FROM session_v2 AS newer""",
)
"""The queries for the sessions of both versions. The third column is not read: it makes a query
fail in the database of another program that also has a table ``session``.
"""
_SELECT = {
    "session": "SELECT * FROM session WHERE id = ?",
    "message": (
        "SELECT id, session_id, data FROM message WHERE session_id = ? /*newer*/"
        " ORDER BY time_created, id"
    ),
    "session_v2": "SELECT * FROM session_v2 WHERE id = ?",
    "session_message": (
        """SELECT id, session_id, type, data FROM session_message
WHERE session_id = ? AND session_id IN (SELECT id FROM session_v2) ORDER BY seq"""
    ),
}
_PARTS = "SELECT id, session_id, message_id, data FROM part WHERE message_id IN"
_TOGETHER = 64
"""The number of messages whose parts are read by one query."""
_TOGETHER_FIRST = 8
"""The number of messages whose parts are read by the first query."""
_JSON = frozenset(("revert", "permission", "model", "metadata", "summary_diffs", "fork_boundary"))
"""The columns whose texts are JSON."""
# The beginning of an export.
_EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')
_ID = 16
"""The id of a copied message in OpenCode begins with this many characters of the original id."""


class Sessions(FileReader):
    """Finds sessions in databases, in exports and in storage folders. A session of a storage folder
    is left out if OpenCode moved the session to the database next to the folder.
    """

    def holds(self, path: Path, begin: bytes) -> bool:
        if not begin:
            return (path / "session").is_dir() and (path / "message").is_dir()
        if not begin.startswith(SQLITE):
            return _EXPORT.match(begin) is not None and b'"projectID"' in begin
        return path.name == "opencode.db" or rows_in(path, f"EXPLAIN {_sessions_in(path)}") != []

    def histories(self, path: Path) -> Iterator[Contained]:
        if path.is_dir():
            return _in_storage(path)
        with path.open("rb") as file:
            is_database = file.read(len(SQLITE)) == SQLITE
        return _in_database(path) if is_database else _in_export(path)


def _in_export(path: Path) -> Iterator[Contained]:
    """Yield the session in an export."""
    document = object_in(path)
    info = document.value.get("info")
    messages = document.value.get("messages")
    if type(messages) is not list:
        raise NotAHistory(path, "holds no array under 'messages', where a history would be")
    reverted = revert_record(info)
    records = [session_record(info), *messages, *([] if reverted is None else [reverted])]
    name = text_or_empty(info, "id") or None
    yield Contained(name, document_of(document, "messages", records), title=_title_of(info))


_UNNAMED = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT")
"""Matches the title that OpenCode gives to a new session."""


def _title_of(info: Any) -> str:
    """Return the title of a session, or an empty text if it has only the title of a new one."""
    title = text_or_empty(info, "title")
    return "" if _UNNAMED.match(title) else title


def _sessions_in(path: Path) -> str:
    """Return the query for all sessions in a database. The query fails if the database has no table
    of sessions.
    """
    try:
        with open_read_only(path) as database:
            return _query_for_sessions(database)
    except OSError:
        return _query_for_sessions(None)


def _query_for_sessions(database: sqlite3.Connection | None) -> str:
    """Return the query for the ids of all sessions in the tables that a database has. Without a
    database, or without tables of sessions, the query is for both tables, and fails.
    """
    queries = [query for query in _SESSIONS if database is not None and _runs(database, query)]
    tables = " UNION ALL ".join(queries or _SESSIONS)
    return f"""SELECT CAST(id AS TEXT) FROM ({tables})
GROUP BY id ORDER BY min(time_created), id"""


def _runs(database: sqlite3.Connection, query: str) -> bool:
    """Return whether a query fits the tables of a database."""
    with suppress(sqlite3.Error):
        return database.execute(f"EXPLAIN {query}").fetchone() is not None
    return False


def _in_storage(storage: Path) -> Iterator[Contained]:
    """Yield the sessions in a storage folder. Messages of a deleted session are not read, because
    OpenCode does not read them either.
    """
    database = storage.absolute().parent / "opencode.db"
    moved = {name for (name,) in rows_in(database, _sessions_in(database))}
    for session in sorted((storage / "session").glob("*/*.json")):
        if (name := session.stem) not in moved:
            rows = _Rows(partial(_files, storage, session), partial(_part_files, storage))
            records = Placed(partial(_records, rows, name))
            yield Contained(name, records, title=_title_of(record_in(session).value))


def _files(storage: Path, session: Path, table: str, of: str) -> Iterator[Located]:
    """Yield the files of a storage folder that stand for the rows of a table: see ``Read``."""
    return map(
        record_in,
        [session] if table == "session" else sorted((storage / table / of).glob("*.json")),
    )


def _part_files(storage: Path, messages: Sequence[str]) -> Iterator[tuple[str, Located]]:
    """Yield the files with the parts of messages: see ``_Rows.read_parts``. A message whose id is
    not the name of a folder in ``part`` has no parts.
    """
    for name in messages:
        folder = storage / "part" / name
        if folder.name == name != ".." and os.path.isdir(folder):
            for path in sorted(folder.glob("*.json")):
                yield name, record_in(path)


def _in_database(path: Path) -> Iterator[Contained]:
    """Yield the sessions in a database."""
    with open_read_only(path) as database:
        read = _rows_in(path, database).read
        for (session,) in database.execute(_query_for_sessions(database)).fetchall():
            records = _InTables(path, session)
            about = _session(read, session)
            title = "" if about is None else _title_of(about.value)
            yield Contained(session, records, title=title)


class _InTables:
    """Reads the records of a session in a database."""

    def __init__(self, path: Path, session: str) -> None:
        self._path = path
        self._session = session

    def __iter__(self) -> Iterator[Located]:
        with open_read_only(self._path) as database:
            database.execute("BEGIN")
            yield from _records(_rows_in(self._path, database), self._session)

    @contextmanager
    def read_all(self) -> Iterator[MarkedRecords]:
        """Yield all records, with the mark by which a later import finds what is new."""
        with self._opened() as (database, session_rows):
            rows = _rows_in(self._path, database)
            mark = None if session_rows is None else session_rows.new_mark()
            encoded = b"" if mark is None else mark.encode()
            yield MarkedRecords(0, _records(rows, self._session), encoded)

    def read_newest(self, mark: bytes) -> MarkedRecords | None:
        """Return the records after a mark, or None if all records must be read: if a row before the
        mark has changed, or if there are too many new records.
        """
        try:
            before = msgspec.msgpack.decode(mark, type=Mark)
        except msgspec.DecodeError:  # another version of foldlog made this mark
            return None
        with self._opened() as (database, session_rows):
            point = None if session_rows is None else session_rows.holding(before)
            if session_rows is None or point is None:
                return None
            rows = _rows_in(self._path, database, f"AND rowid > {point.message}")
            _, *newest = islice(_records(rows, self._session), NEWEST_MAX + 1)
            if len(newest) == NEWEST_MAX:
                return None
            if newest:
                new = session_rows.new_mark(before)
                mark = b"" if new is None else new.encode()
        return MarkedRecords(point.records, newest, mark)

    @contextmanager
    def _opened(self) -> Iterator[tuple[sqlite3.Connection, SessionRows | None]]:
        """Open the database in one transaction, so that the records and their mark are of one
        moment. The second value is None if the session cannot have a mark.
        """
        with open_read_only(self._path) as database:
            database.execute("BEGIN")
            about = _session(_rows_in(self._path, database).read, self._session)
            # The record of a reverted message comes after all messages, so nothing can follow it.
            if about is None or about.problem or revert_record(about.value) is not None:
                yield database, None
            else:
                record = session_record(about.value)
                yield database, SessionRows(database, self._session, record)


def _rows_in(path: Path, database: sqlite3.Connection, newer: str = "") -> _Rows:
    """Return functions that read rows. ``newer`` is a further condition for messages."""
    tables = {
        name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    database.row_factory = sqlite3.Row
    select = {
        table: query.replace("/*newer*/", newer)
        for table, query in _SELECT.items()
        if table in tables
    }
    if "session_v2" not in tables:
        select.pop("session_message", None)

    def read(table: str, of: str) -> Iterator[Located]:
        if table in select:
            yield from _rows(path, table, database.execute(select[table], (of,)))

    def read_parts(messages: Sequence[str]) -> Iterator[tuple[str, Located]]:
        if "part" in tables:
            query = f"{_PARTS} ({', '.join('?' * len(messages))}) ORDER BY id"
            for part in _rows(path, "part", database.execute(query, messages)):
                yield text_or_empty(part.value, "messageID"), part

    return _Rows(read, read_parts)


def _rows(path: Path, table: str, rows: Iterable[sqlite3.Row]) -> Iterator[Located]:
    """Yield rows in the format of an export."""
    for row in map(dict, rows):
        fields: Fields = {}
        text = text_in_cell(row.pop("data", "{}"))
        data = parse_line(text.encode(), 0, 0, f"{path}, {table} {row['id']}")
        for column, value in row.items():
            *names, last = column.replace("_id", "ID").split("_")
            if value is not None:
                if type(value) is bytes:
                    value = text_in_cell(value)
                json_value = parsed_text(value) if column in _JSON else None
                holder: Any = fields
                for name in names:
                    holder = holder.setdefault(name, {}) if type(holder) is dict else None
                if type(holder) is not dict:  # another column has a value in this place
                    holder, last = fields, column
                holder[last] = value if json_value is None else json_value
        yield data._replace(value={**dict_or_empty(data.value), **fields})


def _session(read: Read, session: str) -> Located | None:
    """Return the row of a session. If both versions of OpenCode stored the session, return the row
    of the newer version.
    """
    return next((row for table in ("session_v2", "session") for row in read(table, session)), None)


def _records(rows: _Rows, session: str) -> Iterator[Located]:
    """Yield the records of a session: the session, its messages with their parts, and at the end
    the message to which it was reverted.
    """
    read = rows.read
    about = _session(read, session)
    if about is not None:
        yield about if about.problem else about._replace(value=session_record(about.value))
    message_ids = set[str]()
    for message, parts in _with_parts(rows, read("message", session)):
        message_ids.add(text_or_empty(message.value, "id")[:_ID])
        whole = {
            "info": _without_summary(message.value),
            "parts": [part.value for part in parts if not part.problem],
        }
        yield from (part._replace(value=None) for part in parts if part.problem)
        yield message._replace(value=None if message.problem else whole)
    for message in read("session_message", session):
        if text_or_empty(message.value, "id")[:_ID] not in message_ids:
            yield message._replace(value=None if message.problem else _message(message.value))
    if about is not None and (reverted := revert_record(about.value)) is not None:
        yield about._replace(value=reverted)


def _with_parts(
    rows: _Rows, messages: Iterator[Located]
) -> Iterator[tuple[Located, list[Located]]]:
    """Yield each message with its parts. A damaged message has no parts."""
    together = _TOGETHER_FIRST  # many readers look only at the first records
    while page := [*islice(messages, together)]:
        together = _TOGETHER
        names = [text_or_empty(message.value, "id") for message in page]
        parts = dict[str, list[Located]]()
        for name, part in rows.read_parts(names):
            parts.setdefault(name, []).append(part)
        for message, name in zip(page, names, strict=True):
            yield message, [] if message.problem else parts.get(name, [])


_STABLE = ("id", "projectID", "parentID")
"""The fields of a session that never change, in both versions of OpenCode."""


def session_record(info: Any) -> Fields:
    """Return the record of a session, which has only fields that never change."""
    fields = dict_or_empty(info)
    stable = pick(fields, _STABLE)
    created = within(fields, "time", "created")
    if created is not None:
        stable["time"] = {"created": created}
    return {"info": stable}


def revert_record(info: Any) -> Fields | None:
    """Return the record that says to which message a session is reverted, or None if it is not."""
    fields = dict_or_empty(info)
    if type(fields.get("revert")) is not dict:
        return None
    return {"info": pick(fields, ("id", "projectID", "revert"))}


def _without_summary(info: Any) -> Fields:
    """Return a message without the list of changed files. OpenCode adds the list of changed files
    to a user's message when the turn ends.
    """
    fields = dict_or_empty(info)
    has_files = fields.get("role") == "user" and type(fields.get("summary")) is dict
    return omit(fields, "summary") if has_files else fields


# -- OpenCode 2 ------------------------------------------------------------------------------------

IN_WORDS = ("text/plain", "application/x-directory")
"""The types of files that OpenCode also sends as text parts."""


def _message(info: Fields) -> Fields:
    """Return a message of OpenCode 2 with its contents as parts. All fields except the contents
    stay in ``info``. A user's text that OpenCode itself wrote is ``synthetic``. Failed answers are
    converted too, for example an answer that the user stopped.
    """
    role = text_or_empty(info, "type")
    parts = list[Fields]()
    words = None
    match info:
        case {"type": "user"}:
            texts = [skill.get("text") for skill in dicts_in(info, "skills")]
            parts = [
                *map(text_part, (*texts, info.pop("text", ""))),
                *map(_file, _take_objects(info, "files")),
            ]
        case {"type": "assistant"}:
            parts = [*map(_answer, _take_objects(info, "content"))]
            if info.get("error"):
                info |= {"error": {"name": "MessageAbortedError", "data": info["error"]}}
        case {"type": "compaction", "status": "completed"}:
            parts = [text_part(info.pop(key, "")) for key in ("summary", "recent")]
            parts.append({"type": "compaction", "auto": info.get("reason") == "auto"})
            role = "assistant"
            info = {**info, "parentID": info.get("id"), "summary": True, "finish": "stop"}
        case {"type": "synthetic" | "system" | "skill", "text": str()}:
            words = info.pop("text")
        case {"type": "shell", "command": str(command)} if (
            within(info, "metadata", "background") is not True
        ):
            words = f"$ {command}\n{text_or_empty(info, 'output', 'output')}"
        case {"type": "location-switched", "location": {"directory": str(folder)}}:
            words = f"The working directory is {folder}"
    if role == "assistant":
        info["modelID"] = within(info, "model", "id")
    if words is not None:
        role = "user"
        parts = [{**text_part(words), "synthetic": True}]
    return {"info": {**info, "role": role}, "parts": parts}


def _take_objects(holder: Fields, key: str) -> list[Fields]:
    """Return the objects in an array of ``holder``. If the array has only objects, remove the array
    from ``holder``.
    """
    objects = dicts_in(holder.get(key))
    if holder.get(key) == objects:
        del holder[key]
    return objects


def _answer(part: Fields) -> Fields:
    """Return a part of an answer of OpenCode 2 in the format of the older version."""
    if part.get("type") == "reasoning":
        return {**part, "metadata": {"anthropic": first_of(part, "native", "state")}}
    if part.get("type") != "tool":
        return part
    state = {**dict_or_empty(part, "state")}
    state["output"] = [*map(_file, _take_objects(state, "content"))]
    if (error := state.get("error")) is not None:
        texts = [*(part.get("text") for part in state["output"]), within(error, "message")]
        state |= {"error": "\n".join(filter(None, map(text_or_empty, texts))), "data": error}
    return {**part, "callID": part.get("id"), "tool": part.get("name"), "state": state}


def _file(file: Fields) -> Fields:
    """Return a file of OpenCode 2 as a part. A file that OpenCode also sends in words becomes a
    text.
    """
    kind, data, name = (text_or_empty(file.get(key)) for key in ("mime", "data", "name"))
    if file.get("type") == "text":
        return file
    if kind in IN_WORDS and data:
        with suppress(ValueError):
            return {
                **text_part(f"{name}\n\n{b64decode(data).decode('utf-8', 'replace')}"),
                "file": file,
            }
    url = text_or_empty(file, "uri") or f"data:{kind};base64,{data}"
    return {
        **omit(file, "data"),
        "type": "file",
        "filename": name,
        "url": url,
    }
