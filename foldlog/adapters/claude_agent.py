"""Sessions of the Claude Agent SDK in foldlog: a ``SessionStore`` with all its methods.

    options = ClaudeAgentOptions(session_store=FoldlogSessionStore("sqlite:///history.db"))

The transcript of a session is a conversation of the format ``claude-code``, and that of a sub-agent is another one. So
``foldlog view``, ``why`` and ``export`` work on them while the session runs. What Claude Code shows its model is Claude
Code's decision: a condensation that foldlog adds does not change what a session is resumed from.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from eventstore import ConversationErased, ConversationNotFound, ConversationRow, Event
from foldlog.adapters.opening import HistoriesGiven, histories_of
from foldlog.formats import Encoder
from foldlog.history import History

__all__ = ["FoldlogSessionStore"]

_FORMAT = "claude-code"


class FoldlogSessionStore:
    """Keeps the transcripts of sessions. ``histories``: the URL of a store, or open histories of either face.

    The conversation of a session is ``PREFIX/PROJECT/SESSION``, that of a sub-agent ``PREFIX/PROJECT/SESSION/SUBPATH``,
    each part quoted as in a URL. Any number of tasks, processes and stores may write to one session. What is opened by
    its URL is closed by ``close``, or by ``async with``.
    """

    def __init__(self, histories: HistoriesGiven, *, prefix: str = "claude") -> None:
        self.histories, self._owned = histories_of(histories)
        self._prefix = prefix
        self._summaries: dict[str, tuple[int, SessionSummaryEntry | None]] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries, all or none; those whose ``uuid`` the session has already are left out.

        Durability: on disk when it returns. Raises ``ConversationErased`` for a deleted session.
        """
        history = self.histories[self.conversation(key)]
        await history.append_records(entries, format=_FORMAT, dedupe="origin")

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries in their order, as they were given; None for a session that has none."""
        history = self.histories.sync[self.conversation(key)]
        return await self.histories.pool.run(lambda: _entries(history), finish=False)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, each with the time of its last entry by the store's clock."""
        rows = await self._rows(self._below(project_key))
        return [{"session_id": self._session(row.id), "mtime": _mtime(row)} for row in rows if self._is_main(row.id)]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what the SDK tells of each session of a project.

        Cost: the sessions, and all entries of those that have grown since this store told of them before.
        """
        rows = [row for row in await self._rows(self._below(project_key)) if self._is_main(row.id)]

        def tell() -> list[SessionSummaryEntry]:
            told = (self._summary(row, project_key) for row in rows)
            return [summary for summary in told if summary is not None]

        return await self.histories.pool.run(tell, finish=False)

    async def delete(self, key: SessionKey) -> None:
        """Erase a session with its sub-agents, or one sub-agent: its bytes are gone when this returns."""
        conversation = self.conversation(key)
        below = [] if "subpath" in key else [row.id for row in await self._rows(f"{conversation}/")]
        await self.histories.pool.run(lambda: self._erase([*below, conversation]), finish=True)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's sub-agents."""
        start = f"{self.conversation({**key})}/"
        return [unquote(row.id.removeprefix(start)) for row in await self._rows(start)]

    def conversation(self, key: SessionKey) -> str:
        """Return the id of the conversation that holds a transcript: ``histories[store.conversation(key)]``."""
        name = f"{self._below(key['project_key'])}{quote(key['session_id'], safe='')}"
        return f"{name}/{quote(key['subpath'], safe='')}" if "subpath" in key else name

    async def close(self) -> None:
        """Close the store, if it was opened by its URL."""
        if self._owned:
            await self.histories.close()

    async def __aenter__(self) -> FoldlogSessionStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- names --------------------------------------------------------------------------------------------------------

    def _below(self, project_key: str) -> str:
        return f"{self._prefix}/{quote(project_key, safe='')}/"

    def _is_main(self, conversation: str) -> bool:
        return conversation.count("/") == self._prefix.count("/") + 2

    def _session(self, conversation: str) -> str:
        return unquote(conversation.rpartition("/")[2])

    # -- in threads ---------------------------------------------------------------------------------------------------

    async def _rows(self, start: str) -> list[ConversationRow]:
        """Return the conversations whose ids begin with ``start`` and that are not erased."""
        return await self.histories.pool.run(lambda: list(self._found(start)), finish=False)

    def _found(self, start: str) -> Iterator[ConversationRow]:
        for row in self.histories.sync.store.iter_conversations(after=start):
            if not row.id.startswith(start):
                return
            if row.erased_at is None:
                yield row

    def _summary(self, row: ConversationRow, project_key: str) -> SessionSummaryEntry | None:
        version, summary = self._summaries.get(row.id, (0, None))
        if version < row.version:
            key: SessionKey = {"project_key": project_key, "session_id": self._session(row.id)}
            history = self.histories.sync[row.id]
            entries = _entries(history)
            summary = fold_session_summary(None, key, entries) if entries else None
            self._summaries[row.id] = row.version, summary
        return None if summary is None else {**summary, "mtime": _mtime(row)}

    def _erase(self, conversations: list[str]) -> None:
        for conversation in conversations:
            last = conversation == conversations[-1]
            try:
                self.histories.sync.erase(conversation, reason="the session was deleted", complete=last)
            except (ConversationNotFound, ConversationErased):
                continue  # there is nothing to delete, which the SDK's contract allows


def _entries(history: History) -> list[Any] | None:
    try:
        return list(_decoded(history.events())) or None
    except ConversationErased:
        return None


def _decoded(events: Iterator[Event]) -> Iterator[Any]:
    """Yield the entries that events were made of; those that foldlog added have none."""
    encoder = Encoder(_FORMAT)
    for event in events:
        if event.origin is not None and event.origin.format == _FORMAT:
            yield from encoder.records(event)
    yield from encoder.end()


def _mtime(row: ConversationRow) -> int:
    return int(row.updated_at.timestamp() * 1000)
