"""Sessions of the Claude Agent SDK in foldlog: a ``SessionStore`` with all its methods.

    options = ClaudeAgentOptions(session_store=FoldlogSessionStore("sqlite:///history.db"))

The transcript of a session or a sub-agent is a conversation in the format ``claude-code``, so
``foldlog view`` shows a session while it runs. Claude Code itself decides what its model is shown,
so condensing in foldlog does not change its sessions.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from claude_agent_sdk import (
    CanUseTool,
    HookMatcher,
    PermissionResult,
    PermissionResultAllow,
    SdkMcpTool,
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    ToolPermissionContext,
    fold_session_summary,
    project_key_for_directory,
)

from foldlog import History
from foldlog.adapters._shared import (
    Approval,
    Attributes,
    OpenHistories,
    StoreOrUrl,
    below,
    cached_values,
    effect_of,
    erase_all,
    in_thread,
    quote_id,
    record_approvals,
    records_of,
    to_its_end,
    unquote_id,
    with_those_below,
)
from foldlog.eventstore import ConversationErased, ConversationRow, InvalidArgument
from foldlog.runtimes import (
    Fields,
    JsonLines,
    Recent,
    dicts_in,
    note_left_behind,
    record_in,
    text_or_none,
)

_FORMAT = "claude-code"
_SUMMARY = "session summary"
"""The name under which the SDK's summaries of sessions are cached."""
_LINES_OF_A_TRANSACTION = 1_000
"""The number of lines that an import appends together."""
_CALLS_IN_MEMORY = 1_000
"""The maximum number of calls whose conversations stay in memory, and of approvals that wait for
their calls.
"""
_SESSION_FILE_NAME = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ImportedSessions(NamedTuple):
    """The result of an import: the number of sessions, the number of new entries (``items``), and a
    finding for each line that was left out.
    """

    sessions: int
    items: int
    findings: tuple[str, ...]


class FoldlogSessionStore(OpenHistories):
    """Stores the transcripts of Claude Code's sessions.

        histories   the URL of a store, or open histories, sync or async
        attributes  attributes of each new conversation, such as ``{"user": "u7"}``

    If ``histories`` is a URL, ``close`` or ``async with`` closes the store. A session's
    conversation has the id ``PREFIX/PROJECT/SESSION``. A sub-agent's conversation has the id
    ``PREFIX/PROJECT/SESSION/SUBPATH``. The parts of an id are quoted as in a URL. Many tasks,
    processes and stores may write to the same session.
    """

    def __init__(
        self, histories: StoreOrUrl, *, prefix: str = "claude", attributes: Attributes = None
    ) -> None:
        super().__init__(histories, attributes)
        self._prefix = prefix
        self._written: dict[str, History] = {}
        self._calls: dict[str, list[tuple[str, str, str, Fields]]] = {}
        """Maps the name of a tool to the calls that the hook has announced and that have not begun
        yet.
        """
        self._called = Recent[str, str](_CALLS_IN_MEMORY)
        """Maps a call to its conversation."""
        self._approvals = deque[Approval](maxlen=_CALLS_IN_MEMORY)
        """The approvals of calls that the SDK has not handed over yet."""
        self._recording = Lock()
        self._unfinished: dict[str, list[Any]] = {}
        """Maps a conversation to entries that are stored, but whose approvals are not."""

    @to_its_end
    def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append all entries, or none if an error is raised. An entry is left out if the session
        already has an entry with its ``uuid``.

        The entries are on disk when the method returns. Raises ``ConversationErased`` if other code
        deleted the session after this store wrote to it. If the session was deleted earlier, it
        begins again.
        """
        if entries:
            self._append(key, entries, self._sync[self.conversation(key)])

    @to_its_end
    def import_folder(self, folder: str | os.PathLike[str]) -> ImportedSessions:
        """Import the transcripts that Claude Code has written. ``folder`` is
        ``~/.claude/projects``, or the folder of a single project.

        Each session is imported with its sub-agents, under the key that Claude Code uses for it.
        Every import reads all lines, and adds only new entries. A line that is not an entry is left
        out and reported as a finding.
        """
        findings: list[str] = []
        sessions = 0
        items = 0
        for key, path in _transcripts(Path(folder).expanduser()):
            entries = list(_entries_of_transcript(path, findings))
            # If the session is deleted after it was read, the append fails, and stores no part.
            history = self._sync[self.conversation(key)]
            stored = _entries(history) or []
            new = entries[len(stored) :]
            # The SDK mirrored this session, and a mirror leaves out lines without a uuid.
            if entries[: len(stored)] != stored:
                uuids = {_uuid(entry) for entry in stored} | {None}
                new = [entry for entry in entries if _uuid(entry) not in uuids]
            for start in range(0, len(new), _LINES_OF_A_TRANSACTION):
                self._append(key, new[start : start + _LINES_OF_A_TRANSACTION], history)
            if "subpath" not in key:
                sessions += 1
            items += len(new)
        return ImportedSessions(sessions, items, tuple(findings))

    @in_thread
    def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a session as they were appended, or None if the session has no
        entries.
        """
        conversation = self.conversation(key)
        # Claude Code itself closes open calls as interrupted.
        note_left_behind(self._sync, conversation)
        return _entries(self._sync[conversation])

    @in_thread
    def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project. ``mtime`` is the time when a session last changed: when
        an entry, an approval or another event of foldlog was stored.
        """
        rows = below(self._sync, self._below(project_key))
        return [
            {"session_id": self._session(row.id), "mtime": _mtime(row)}
            for row in rows
            if self._is_main(row.id)
        ]

    @in_thread
    def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of every session of a project. Only entries that were appended
        since the last call are read.
        """
        start = self._below(project_key)
        summarize = partial(self._update_summary, project_key)
        return [
            {
                "session_id": self._session(conversation),
                "mtime": summary["mtime"],
                "data": summary["data"],
            }
            for conversation, summary in cached_values(
                self._sync, _SUMMARY, start, summarize, self._is_main
            )
        ]

    @to_its_end
    def delete(self, key: SessionKey) -> None:
        """Erase a session with its sub-agents, or a single sub-agent. ``maintenance.vacuum``
        removes the erased bytes from a SQLite file.
        """
        conversation = self.conversation(key)
        rows = with_those_below(self._sync, conversation)
        for name in (conversation, *(row.id for row in rows)):
            self._written.pop(name, None)
        erase_all(self._sync, rows, "the session was deleted")

    @in_thread
    def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's sub-agents."""
        start = f"{self.conversation({**key})}/"
        return [unquote_id(row.id.removeprefix(start)) for row in below(self._sync, start)]

    def conversation(self, key: SessionKey) -> str:
        """Return the id of a transcript's conversation. ``histories[store.conversation(key)]`` is
        its history.
        """
        name = f"{self._below(key['project_key'])}{quote_id(key['session_id'])}"
        if key.get("subpath"):
            return f"{name}/{quote_id(key['subpath'])}"
        return name

    def _attributes_of(self, conversation: str) -> Mapping[str, Any]:
        if self._is_main(conversation):
            return self._attributes
        return {**self._attributes, "parent": conversation.rpartition("/")[0]}

    # -- effects -----------------------------------------------------------------------------------

    def effect_hooks(self) -> dict[str, list[HookMatcher]]:
        """Return ``hooks`` for ``ClaudeAgentOptions``. Before a tool that ``with_effects`` has
        wrapped is called, the hooks announce the call, because the tool itself does not get the id
        of its call.
        """
        return {"PreToolUse": [HookMatcher(hooks=[self._before_tool])]}

    def with_effects(self, tool: SdkMcpTool[Any]) -> SdkMcpTool[Any]:
        """Return a copy of a tool for ``create_sdk_mcp_server``. If ``foldlog.effect`` marks the
        handler of the tool, each call runs at most once.
        """

        async def handler(args: Any) -> Fields:
            announced = self._calls[tool.name]
            # An earlier call with the same arguments was refused, so that it never began.
            call = next((call for call in reversed(announced) if call[3] == args), None)
            if call is None:
                raise InvalidArgument(
                    f"the call of the tool {tool.name!r} was not announced with these arguments, so"
                    " it is not known whether it has run; pass hooks=store.effect_hooks() to"
                    " ClaudeAgentOptions, and let store.with_approvals wrap a can_use_tool that"
                    " edits arguments"
                )
            announced.remove(call)
            with effect_of(self, *call):
                result = await tool.handler(args)
            if isinstance(result, dict):
                return result
            return {"content": [{"type": "text", "text": str(result)}], "is_error": True}

        self._calls[tool.name] = []
        return replace(tool, handler=handler)

    async def _before_tool(self, hook_input: Any, tool_use_id: str | None, context: Any) -> Fields:
        """Announce the call of a tool, if ``with_effects`` has wrapped the tool."""
        key: SessionKey = {
            "project_key": project_key_for_directory(hook_input["cwd"]),
            "session_id": hook_input["session_id"],
        }
        # Claude Code calls the tool ``mcp__SERVER__NAME``, and each part may have underscores too.
        called = hook_input["tool_name"]
        names = (name for name in self._calls if called.endswith(f"__{name}"))
        name = max(names, key=len, default=None)
        if name is not None:
            self._calls[name].append(
                (self.conversation(key), hook_input["tool_use_id"], name, hook_input["tool_input"])
            )
        return {}

    # -- approvals ---------------------------------------------------------------------------------

    def with_approvals(self, can_use_tool: CanUseTool, *, by: str | None = None) -> CanUseTool:
        """Return ``can_use_tool`` for ``ClaudeAgentOptions``, which also records that ``by`` was
        asked to approve a call, and what ``by`` decided. An approval is recorded when the SDK has
        handed over the line with the call.
        """

        async def ask(
            tool: str, arguments: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResult:
            call_id = context.tool_use_id
            shown = {"tool": tool, "arguments": arguments}
            await self._record(Approval.asked(call_id, shown, to=by))
            result = await can_use_tool(tool, arguments, context)
            if isinstance(result, PermissionResultAllow):
                edited = result.updated_input
                if edited == arguments:
                    edited = None
                if edited is not None:
                    self._announce_edited(call_id, edited)
                await self._record(Approval.decided(call_id, True, by=by, edited=edited))
            else:
                await self._record(Approval.decided(call_id, False, by=by, reason=result.message))
            return result

        return ask

    def _announce_edited(self, call_id: str | None, arguments: Fields) -> None:
        """Let an announced call have the arguments that a person edited, with which it begins."""
        for announced in self._calls.values():
            for place, (conversation, announced_id, name, _) in enumerate(announced):
                if announced_id == call_id:
                    announced[place] = conversation, announced_id, name, arguments

    @to_its_end
    def _record(self, approval: Approval) -> None:
        with self._recording:
            self._approvals.append(approval)
        self._record_approvals()

    def _record_approvals(self) -> None:
        """Record the approvals of the calls that the SDK has handed over."""
        with self._recording:
            for approval in [*self._approvals]:
                if conversation := self._called.get(approval.call_id or ""):
                    with suppress(ConversationErased):
                        record_approvals(self._sync[conversation], [approval])
                    self._approvals.remove(approval)

    # -- names -------------------------------------------------------------------------------------

    def _below(self, project_key: str) -> str:
        """Return the beginning of the ids of a project's conversations."""
        return f"{self._prefix}/{quote_id(project_key)}/"

    def _is_main(self, conversation: str) -> bool:
        """Return whether a conversation is a session, and not a sub-agent."""
        return conversation.count("/") == self._prefix.count("/") + 2

    def _session(self, conversation: str) -> str:
        """Return the SDK's id of a session."""
        return unquote_id(conversation.rpartition("/")[2])

    # -- in threads --------------------------------------------------------------------------------

    def _append(self, key: SessionKey, entries: list[Any], history: History) -> None:
        conversation = self.conversation(key)

        def append(history: History) -> None:
            history.append_records(entries, format=_FORMAT, dedupe="origin")

        # If recording an approval failed, the SDK repeats the call. Not all entries have a uuid.
        if self._unfinished.get(conversation) != entries:
            history = self._written.get(conversation, history)
            self._written[conversation], _ = self._append_or_begin(history, append)
            self._unfinished[conversation] = entries
        for entry in entries:
            for block in dicts_in(entry, "message", "content"):
                if block.get("type") == "tool_use":
                    self._called[str(block.get("id"))] = conversation
        self._record_approvals()
        self._unfinished.pop(conversation, None)

    def _update_summary(self, project_key: str, row: ConversationRow, before: Any) -> Any:
        """Return a session's summary, its time and its version, or None if the session has no
        entries.

        ``before`` is an earlier summary, or None. Only later entries are read.
        """
        key: SessionKey = {"project_key": project_key, "session_id": self._session(row.id)}
        history = self._sync[row.id]
        try:
            version = history.version()
            entries = list(
                records_of(history, _FORMAT, before["version"] if before else 0, version)
            )
        except ConversationErased:
            return None
        summary: SessionSummaryEntry | None = None
        if before is not None:
            summary = {"session_id": key["session_id"], "mtime": 0, "data": before["data"]}
        if entries:
            summary = fold_session_summary(summary, key, entries)
        if summary is None:
            return None
        return {"version": version, "mtime": _mtime(row), "data": summary["data"]}


def _entries(history: History) -> list[Any] | None:
    """Return all entries of a transcript, or None if there are none."""
    try:
        return list(records_of(history, _FORMAT)) or None
    except ConversationErased:
        return None


def _uuid(entry: Any) -> str | None:
    """Return the SDK's id of an entry, or None for an entry without one."""
    return text_or_none(entry, "uuid")


def _mtime(row: ConversationRow) -> int:
    """Return when a conversation last changed, in milliseconds as the SDK wants it."""
    return int(row.updated_at.timestamp() * 1000)


def _transcripts(folder: Path) -> Iterator[tuple[SessionKey, Path]]:
    """Yield the key and the file of each session, and then those of its sub-agents."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; give Claude Code's projects, such as ~/.claude/projects"
        )
    if any(folder.glob("*.jsonl")):
        projects = [folder]
    else:
        projects = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    for project in projects:
        for path in sorted(project.glob("*.jsonl")):
            if not _SESSION_FILE_NAME.fullmatch(path.stem):
                continue
            key: SessionKey = {"project_key": project.name, "session_id": path.stem}
            yield key, path
            for transcript in sorted((project / path.stem).glob("subagents/**/*.jsonl")):
                subpath = transcript.relative_to(project / path.stem).with_suffix("").as_posix()
                yield {**key, "subpath": subpath}, transcript


def _entries_of_transcript(path: Path, findings: list[str]) -> Iterator[Any]:
    """Yield the entries of a transcript. For a sub-agent, also yield the content of the file next
    to the transcript, which describes the sub-agent.
    """
    beside = path.with_name(f"{path.stem}.meta.json")
    about = [record_in(beside)] if beside.is_file() else []
    for located in chain(JsonLines(path), about):
        if type(located.value) is dict and located.line:
            yield {**located.value}
        elif type(located.value) is dict:  # the file next to the transcript
            yield {**located.value, "type": "agent_metadata"}
        else:
            problem = located.problem or "it is not a JSON object"
            findings.append(f"{located.place}: {problem}; the line was left out")
