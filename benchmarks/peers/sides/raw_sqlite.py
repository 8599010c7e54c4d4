"""A hand-written program with ``sqlite3``, as fast as anyone could write it for this benchmark
alone: two tables, WAL, synchronous=FULL.

The program stores the View in one row: the end of the head, the start of the tail, and the summary.
The program checks nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.peers.side import Item, Store, entry, serve

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode
_HEAD = 4
_SHOWN = """
    SELECT e.body FROM json_each(?) j
        CROSS JOIN events e ON e.conversation = 'c1' AND e.id BETWEEN j.value ->> 0 AND j.value ->> 1
        ORDER BY j.id, e.id
"""
_INSERT = "INSERT INTO events VALUES ('c1', ?, ?, ?)"
_END = 1 << 62


class ByHand:
    packages = ("msgspec",)
    shows = "view"

    def prepare(self) -> None: ...

    def open(self, path: str) -> Store:
        return Tables(path)


class Tables:
    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(f"{path}.db", isolation_level=None)
        self._db.text_factory = bytes
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS events "
            "(conversation TEXT, id INTEGER, kind TEXT, body BLOB, PRIMARY KEY (conversation, id))"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS views (conversation TEXT PRIMARY KEY, intervals TEXT,"
            " summary INTEGER)"
        )
        self._shown: list[Item] | None = None

    def add(self, items: Sequence[Item]) -> None:
        if len(items) == 1:
            self._db.execute(_INSERT, (items[0]["n"], items[0]["kind"], _ENCODE(items[0])))
        else:
            self.fill(items)
        if self._shown is not None:
            self._shown.extend(items)

    def condense(self, item: Item) -> None:
        self.fill([item])
        self._shown = None

    def read(self) -> list[Item]:
        """Return the View, which the program keeps in memory."""
        if self._shown is None:
            row = self._db.execute(
                "SELECT intervals, summary FROM views WHERE conversation = 'c1'"
            ).fetchone()
            intervals, summary = row or (json.dumps([[0, _END]]), None)
            self._shown = [_DECODE(body) for (body,) in self._db.execute(_SHOWN, (intervals,))]
            if summary is not None:
                summary_row = self._db.execute(
                    "SELECT body FROM events WHERE conversation = 'c1' AND id = ?", (summary,)
                )
                self._shown.insert(
                    _HEAD, {"kind": "summary", "text": _DECODE(summary_row.fetchone()[0])["text"]}
                )
                self._shown = [item for item in self._shown if item["kind"] != "condensation"]
        return self._shown

    def fill(self, items: Sequence[Item]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(_INSERT, [(item["n"], item["kind"], _ENCODE(item)) for item in items])
        condensations = [item for item in items if item["kind"] == "condensation"]
        if condensations:
            last = condensations[-1]
            intervals = json.dumps([[0, _HEAD - 1], [last["forgotten"][-1] + 1, _END]])
            self._db.execute(
                "INSERT OR REPLACE INTO views VALUES ('c1', ?, ?)", (intervals, last["n"])
            )
        self._db.execute("COMMIT")

    def said(self, answer: list[Item]) -> Iterable[Sequence[str]]:
        return map(entry, answer)

    def close(self) -> None:
        self._db.close()


if __name__ == "__main__":
    serve(ByHand())
