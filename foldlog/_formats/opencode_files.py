"""Where OpenCode keeps its sessions, and the messages of OpenCode 2 as those that ``opencode.py`` reads.

    storage/        a file for each session, message and part
    opencode.db     tables of these; OpenCode 2 leaves them as they are, and goes on in ``session_v2`` and
                    ``session_message``, which begins with copies of what it found, in other words

So of a session that is in both, the older tables have its past, and the newer ones what came then.
"""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

from foldlog._formats.files.readers import Placed, opened, parsed, record_in, rows_in
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.json_text import parsed as parsed_text
from foldlog._formats.record import Located, at, dict_or_empty, dicts_in, text_or_empty, within

_Part = dict[str, Any]

_SESSIONS = (
    """SELECT id, time_created, (SELECT total(length(data)) FROM part WHERE session_id = session.id) AS size
FROM session""",
    """SELECT id, time_created, (SELECT total(length(data)) FROM session_message WHERE session_id = newer.id) AS size
FROM session_v2 AS newer""",
)
_SELECT = {
    "session": "SELECT * FROM session WHERE id = ?",
    "message": "SELECT id, session_id, data FROM message WHERE session_id = ? ORDER BY time_created, id",
    "part": "SELECT id, session_id, message_id, data FROM part WHERE message_id = ? ORDER BY id",
    "session_v2": "SELECT * FROM session_v2 WHERE id = ?",
    "session_message": """SELECT id, session_id, type, data FROM session_message
WHERE session_id = ? AND session_id IN (SELECT id FROM session_v2) ORDER BY seq""",
}
_JSON = frozenset(("revert", "permission", "model", "metadata", "summary_diffs", "fork_boundary"))
_UNREAD = "OpenCode has not yet moved this into its database, so it is not read; quit OpenCode and import again"
_ID = 16
"""How many characters of an id tell which message it is: a copy of what OpenCode itself said there has others then."""


class Sessions(FileReader):
    """Finds sessions in databases and in storage folders, there without those that moved to the database beside it."""

    def holds(self, path: Path, begin: bytes) -> bool:
        if not begin:
            return (path / "session").is_dir() and (path / "message").is_dir()
        is_database = begin.startswith(b"SQLite")
        return is_database and (path.name == "opencode.db" or rows_in(path, f"EXPLAIN {_sessions_in(path)}") != [])

    def histories(self, path: Path) -> Iterator[Contained]:
        return _in_storage(path) if path.is_dir() else _in_database(path)


def _sessions_in(path: Path) -> str:
    """Return the query for all sessions in a database; one that fails where it has no table of them."""
    kept = [query for query in _SESSIONS if rows_in(path, f"EXPLAIN {query}")]
    tables = " UNION ALL ".join(kept or _SESSIONS)
    return f"SELECT id, total(size) FROM ({tables}) GROUP BY id ORDER BY min(time_created), id"


def _in_storage(storage: Path) -> Iterator[Contained]:
    """Yield the sessions of a storage. Messages of one that is gone are not read, as OpenCode reads none."""
    database = storage.absolute().parent / "opencode.db"
    moved = {name for name, _ in rows_in(database, _sessions_in(database))}
    for session in sorted((storage / "session").glob("*/*.json")):
        if (name := session.stem) not in moved:
            yield Contained(name, Placed(0, partial(_records, partial(_files, storage, session), name)))


def _files(storage: Path, session: Path, table: str, of: str) -> Iterator[Located]:
    return map(record_in, [session] if table == "session" else sorted((storage / table / of).glob("*.json")))


def _in_database(path: Path) -> Iterator[Contained]:
    log = path.with_name(f"{path.name}-wal")
    unread = [at(str(log), None, _UNREAD)] if log.is_file() and log.stat().st_size else []
    with opened(path) as database:
        for session, size in database.execute(_sessions_in(path)):
            yield Contained(session, Placed(int(size), partial(_in_tables, path, session, unread)))
            unread = []


def _in_tables(path: Path, session: str, unread: list[Located]) -> Iterator[Located]:
    yield from unread
    with opened(path) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        database.row_factory = sqlite3.Row
        select = {table: query for table, query in _SELECT.items() if table in tables}
        if "session_v2" not in tables:
            select.pop("session_message", None)
        yield from _records(partial(_rows, path, database, select), session)


def _rows(path: Path, database: sqlite3.Connection, select: _Part, table: str, of: str) -> Iterator[Located]:
    """Yield rows as an export has them: ``parent_id`` is ``parentID``, and ``time_created`` in ``time``."""
    for row in map(dict, database.execute(select[table], (of,)) if table in select else ()):
        told: _Part = {}
        data = parsed(str(row.pop("data", "{}")).encode(), 0, 0, f"{path}, {table} {row['id']}")
        for column, value in row.items():
            *names, last = column.replace("_id", "ID").split("_")
            if value is not None:
                holder = reduce(lambda held, name: held.setdefault(name, {}), names, told)
                known = parsed_text(value) if column in _JSON else None
                holder[last] = value if known is None else known
        yield data._replace(value={**dict_or_empty(data.value), **told})


def _records(read: Callable[[str, str], Iterator[Located]], session: str) -> Iterator[Located]:
    """Yield the messages of a session, each with the parts that can be read, and the session."""
    known = set[str]()
    for message in read("message", session):
        name = text_or_empty(within(message.value, "id"))
        known.add(name[:_ID])
        parts = [] if message.problem else [*read("part", name)]
        whole = {"info": message.value, "parts": [part.value for part in parts if not part.problem]}
        *others, last = [part for part in parts if part.problem] or [message]
        yield from (each._replace(value=None) for each in others)
        yield last._replace(value=None if message.problem else whole)
    for message in read("session_message", session):
        if text_or_empty(message.value.get("id"))[:_ID] not in known:
            yield message._replace(value=None if message.problem else _message(message.value))
    for told in [*read("session_v2", session), *read("session", session)][:1]:
        yield told if told.problem else told._replace(value={"info": told.value})


# -- OpenCode 2 -------------------------------------------------------------------------------------------------------

IN_WORDS = ("text/plain", "application/x-directory")
"""Types of files whose words are texts beside them."""


def _message(info: _Part) -> _Part:
    """Return a message of OpenCode 2 with its contents as parts; what it has beside these stays in ``info``. What is
    said in the place of a user is ``synthetic``. An answer is told also if it failed, as one that the user stopped.
    """
    role, parts, words = text_or_empty(info.get("type")), list[_Part](), None
    match info:
        case {"type": "user"}:
            texts = [each.get("text") for each in dicts_in(info.get("skills"))]
            parts = [*map(_text, (*texts, info.pop("text", ""))), *map(_file, _taken(info, "files"))]
        case {"type": "assistant"}:
            parts = [*map(_answer, _taken(info, "content"))]
            info |= {"error": {"name": "MessageAbortedError", "data": info["error"]}} if info.get("error") else {}
        case {"type": "compaction", "status": "completed"}:
            parts = [_text(info.pop(key, "")) for key in ("summary", "recent")]
            parts.append({"type": "compaction", "auto": info.get("reason") == "auto"})
            role, info = "assistant", {**info, "parentID": info.get("id"), "summary": True, "finish": "stop"}
        case {"type": "synthetic" | "system" | "skill", "text": str()}:
            words = info.pop("text")
        case {"type": "shell", "command": str(command)} if within(info, "metadata", "background") is not True:
            words = f"$ {command}\n{text_or_empty(within(info, 'output', 'output'))}"
        case {"type": "location-switched", "location": {"directory": str(folder)}}:
            words = f"The working directory is {folder}"
    if role == "assistant":
        info["modelID"] = within(info, "model", "id")
    if words is not None:
        role, parts = "user", [{**_text(words), "synthetic": True}]
    return {"info": {**info, "role": role}, "parts": parts}


def _taken(holder: _Part, key: str) -> list[_Part]:
    """Return the objects in an array, and take it out if it has nothing else."""
    found = dicts_in(holder.get(key))
    if holder.get(key) == found:
        del holder[key]
    return found


def _text(text: Any) -> _Part:
    return {"type": "text", "text": text}


def _answer(part: _Part) -> _Part:
    """Return a part of an answer: a text, thinking, or a call with its result."""
    if part.get("type") == "reasoning":
        return {**part, "metadata": {"anthropic": part.get("native", part.get("state"))}}
    if part.get("type") != "tool":
        return part
    state = {**dict_or_empty(part.get("state"))}
    state["output"] = [*map(_file, _taken(state, "content"))]
    if (error := state.get("error")) is not None:
        texts = [*(each.get("text") for each in state["output"]), within(error, "message")]
        state |= {"error": "\n".join(filter(None, map(text_or_empty, texts))), "data": error}
    return {**part, "callID": part.get("id"), "tool": part.get("name"), "state": state}


def _file(file: _Part) -> _Part:
    """Return a file as a part, and one of words as a text; a text as it is."""
    kind, data, name = (text_or_empty(file.get(key)) for key in ("mime", "data", "name"))
    if file.get("type") == "text":
        return file
    if kind in IN_WORDS and data:
        with suppress(ValueError):
            return {**_text(f"{name}\n\n{b64decode(data).decode('utf-8', 'replace')}"), "file": file}
    url = text_or_empty(file.get("uri")) or f"data:{kind};base64,{data}"
    return {**{key: file[key] for key in file if key != "data"}, "type": "file", "filename": name, "url": url}
