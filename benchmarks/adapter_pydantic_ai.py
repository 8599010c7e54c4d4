"""The two stores of pydantic-ai that ``benchmarks.adapters`` compares: foldlog's conversation
store, and a hand-written store with two tables.

The SDK itself has only a store in memory, so it is not compared.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord, ConversationStore
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)

from foldlog.adapters.pydantic_ai import FoldlogConversationStore

_records = TypeAdapter(ConversationRecord)


class TablesByHand(ConversationStore):
    """A conversation store with a table of records and a table of entries, as JSON. It uses
    threads, so that the event loop never waits for the disk.
    """

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(
            "CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, body TEXT);"
            "CREATE TABLE IF NOT EXISTS entries (id TEXT PRIMARY KEY, parent TEXT, body TEXT)"
        )

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await asyncio.to_thread(self._record, conversation_id)

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        row = self._connection.execute(
            "SELECT body FROM records WHERE id = ?", (conversation_id,)
        ).fetchone()
        return None if row is None else _records.validate_json(row[0])

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        rows = [
            _records.validate_json(body)
            for (body,) in self._connection.execute("SELECT body FROM records")
        ]
        return [record for record in rows if scope is None or record.scope == scope][:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await asyncio.to_thread(self._write, record, new_entries)

    def _write(self, record: ConversationRecord, new_entries: Sequence[ConversationEntry]) -> None:
        rows = [
            (
                entry.id,
                entry.parent_id,
                ModelMessagesTypeAdapter.dump_json([entry.message]).decode(),
            )
            for entry in new_entries
        ]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
        body = _records.dump_json(record).decode()
        self._connection.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?)", (record.conversation_id, body)
        )
        self._connection.execute("COMMIT")

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        self._connection.execute("DELETE FROM records WHERE id = ?", (conversation_id,))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return await asyncio.to_thread(self._entry, entry_id)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        return await asyncio.to_thread(self._history, head_id, limit)

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        entries = list[ConversationEntry]()
        while head_id is not None and len(entries) != limit:
            entries.append(self._entry(head_id))
            head_id = entries[-1].parent_id
        return entries[::-1]

    def _entry(self, entry_id: str) -> ConversationEntry:
        parent, body = self._connection.execute(
            "SELECT parent, body FROM entries WHERE id = ?", (entry_id,)
        ).fetchone()
        (message,) = ModelMessagesTypeAdapter.validate_json(body)
        return ConversationEntry(id=entry_id, parent_id=parent, message=message)

    async def close(self) -> None:
        self._connection.close()


class Talk:
    """A conversation that saves itself in a store after each turn."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.conversation: Conversation | None = None

    async def add(self, messages: list[Any]) -> None:
        if self.conversation is None:
            self.conversation = await self.store.load("c", limit=1) or Conversation(
                conversation_id="c"
            )
        self.conversation.messages = [*self.conversation.messages, *messages]
        await self.store.save(self.conversation)

    async def read(self, count: int | None = None) -> Any:
        return await self.store.load("c", limit=count)

    async def close(self) -> None:
        await self.store.close()


def ours(path: str) -> Talk:
    return Talk(FoldlogConversationStore(f"sqlite:///{path}"))


def theirs(path: str) -> Talk:
    return Talk(TablesByHand(path))


def one(number: int) -> ModelRequest | ModelResponse:
    """Return a message of a few hundred bytes: a call, the result of a call, or a text."""
    text = f"{number} " + "word " * 60
    match number % 4:
        case 0:
            return ModelResponse(
                parts=[ToolCallPart("f", {"text": text}, f"c{number}")], model_name="m"
            )
        case 1:
            return ModelRequest(parts=[ToolReturnPart("f", text, f"c{number - 1}")])
        case 2:
            return ModelResponse(parts=[TextPart(text)], model_name="m")
    return ModelRequest.user_text_prompt(text)
