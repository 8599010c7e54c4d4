"""Baselines for the benchmarks of commands: ``python -m benchmarks.by_hand WHAT FILE [OUT]``.

``list`` reads the rows of a store with sqlite3 and prints a line for each conversation, with the
number of its events and two times. ``lines`` reads every event of the conversation ``c1``, and
prints it as a line of JSON. ``tables`` reads every event, and inserts it into the new database OUT,
with a full-text index of its text.
``find WORD`` inflates each block of the imported sources, and prints how many contain the word.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from datetime import UTC, datetime, timedelta

import msgspec

_BATCH = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIST = """
    SELECT c.id, c.created_at, e.id + 1, substr(e.meta, 17, 8) FROM conversations c JOIN events e
        ON e.conversation = c.key AND e.id = (SELECT max(id) FROM events WHERE conversation = c.key)
    WHERE c.visible ORDER BY c.id
"""


def print_list(path: str) -> None:
    print(f"{'conversation':<21}  events  first recorded (UTC)  last recorded (UTC)")
    for name, created_at, version, recorded_at in sqlite3.connect(path).execute(_LIST):
        first = _moment(created_at)
        last = _moment(int.from_bytes(recorded_at))
        print(f"{name:<21}  {version:>6,}  {first:<20}  {last}")


def _moment(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(" ", "seconds")[:19]


def print_lines(path: str) -> None:
    from foldlog.eventstore import open_store

    encode = msgspec.json.Encoder().encode
    with open_store(f"sqlite:///{path}") as store:
        for event in store.events("c1"):
            sys.stdout.write(encode(event).decode() + "\n")


def make_tables(path: str, out: str) -> None:
    """Write each batch of events, and the id of its last event, in a transaction with a write-ahead
    log, because ``foldlog export --to`` promises that: a killed run continues where it ended, and
    readers do not block it. As in foldlog's database, each text is stored only once: the full-text
    index finds the text in the table of events.
    """
    from foldlog.eventstore import open_store

    encode = msgspec.json.Encoder().encode
    database = sqlite3.connect(out)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, kind TEXT, at TEXT, body TEXT);"
        "CREATE TABLE followed (id INTEGER);"
        "CREATE VIRTUAL TABLE texts USING fts5(body, tokenize='porter', content='events');"
    )
    with open_store(f"sqlite:///{path}") as store:
        for event in store.events("c1"):
            body = encode(event).decode()
            row = event.id, type(event).__name__, str(event.timestamp), body
            database.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
            database.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", (event.id, body))
            if event.id % _BATCH == _BATCH - 1:
                database.execute("INSERT INTO followed VALUES (?)", (event.id,))
                database.commit()
    database.commit()
    database.close()


def find(path: str, word: str) -> None:
    needle = json.dumps(word)[1:-1].encode()
    blocks = sqlite3.connect(path).execute("SELECT body FROM blocks")
    print(sum(needle in zlib.decompress(body) for (body,) in blocks))


if __name__ == "__main__":
    {"list": print_list, "lines": print_lines, "tables": make_tables, "find": find}[sys.argv[1]](
        *sys.argv[2:]
    )
