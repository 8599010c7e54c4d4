"""Answer a hook of a program: import the transcript. After a compaction, tell the model what it can
ask foldlog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from foldlog._app.coding_agents.programs import PROGRAMS
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._imports.compacting import note_compaction
from foldlog._imports.importing import Failed, Import
from foldlog.eventstore import Store

FIRED = "hooks"
"""The folder with a file for each program that called a hook. The file contains the name of the
program's last hook event.
"""

_AGENT_TRANSCRIPT = "agent_transcript_path"
"""When a sub-agent of Codex stops, this field names its transcript, and other fields name the
session and the transcript of the agent that began it.
"""
_IS_PLAIN = re.compile(r"[\w.:@/-]{1,100}", re.ASCII)
"""Matches an id that no model reads as an instruction."""


def answer_hook(
    store: Store,
    payload: JsonMap,
    fired: Path | None = None,
    is_secret: Callable[[bytes], bool] | None = None,
) -> JsonObject:
    """Import the transcript that a hook names in its JSON and the transcripts of its sub-agents,
    and return what the hook prints.

    The event SessionStart after a compaction prints a text of about 100 tokens for the model. It
    imports no sub-agents, because a damaged file of a sub-agent would end the hook without this
    text; the next event imports them. The hook prints nothing for any other event, not even for
    PostCompact. The hook notes the event in the folder ``fired``. If ``is_secret`` is true for a
    record, the record is imported without its content. OpenCode's plugin names no transcript, so
    OpenCode's database is imported. If a conversation cannot be imported, the hook imports all
    others, then raises the first error.
    """
    event = str(payload.get("hook_event_name") or "")
    session = _session_in(payload)
    cwd = str(payload.get("cwd") or "").encode("utf-8", "replace").decode()
    where = {"cwd": cwd} if cwd else {}
    program = ""
    conversation = ""
    errors = list[Exception]()
    paths = _transcripts(payload)
    # Copilot writes the transcript after its first turn.
    written = [path for path in paths if path.exists()]
    importing = Import(store, written, only=session or None, where=where, is_secret=is_secret)
    for outcome in importing:
        if isinstance(outcome, Failed):
            errors.append(outcome.error)
            continue
        program = outcome.format
        conversation = outcome.conversation
    if written and not program and not errors:
        raise importing.nothing()
    if program and fired is not None:
        _note_time(fired, program, event)
    starts_after_compaction = event == "SessionStart" and payload.get("source") == "compact"
    is_compacted = event == "PostCompact" or starts_after_compaction
    is_claude_code = program == PROGRAMS["claude-code"].format
    # The note says that the transcript lacks a compaction. Before a compaction, that is true for
    # every program. After a compaction, it is true only for Claude Code, which runs its hooks
    # before it writes the compaction.
    if conversation and (event == "PreCompact" or (is_compacted and is_claude_code)):
        note_compaction(store, conversation)
    if conversation and starts_after_compaction:
        return {
            "hookSpecificOutput": {
                "hookEventName": event,
                "additionalContext": _advice(conversation),
            }
        }
    folders = [*_sub_agent_folders(paths, session)]
    for outcome in Import(store, folders, where=where, is_secret=is_secret):
        if isinstance(outcome, Failed):
            errors.append(outcome.error)
    if errors:
        raise errors[0]
    return {}


def _session_in(payload: JsonMap) -> str:
    """Return the session that the hook is about, or an empty text for a sub-agent's own one."""
    if _AGENT_TRANSCRIPT in payload:
        return ""
    return str(payload.get("session_id") or payload.get("sessionId") or "")


def _transcripts(payload: JsonMap) -> list[Path]:
    """Return the transcripts that the hook is about."""
    if payload.get("program") == "opencode":
        return [*PROGRAMS["opencode"].transcripts()]
    names = (_AGENT_TRANSCRIPT, "transcript_path", "transcriptPath")
    transcript = next(filter(None, map(payload.get, names)), None)
    return [Path(transcript)] if isinstance(transcript, str) else []


def _note_time(fired: Path, program: str, event: str) -> None:
    """Note that the hook of a program fired now, for ``foldlog doctor``."""
    fired.mkdir(mode=0o700, parents=True, exist_ok=True)
    (fired / program).write_bytes(event.encode("utf-8", "replace"))


def _advice(conversation: str) -> str:
    """Return the text for the model. The conversation's id comes from the transcript. An id that a
    model could read as an instruction is left out.
    """
    named = f" (conversation {conversation})" if _IS_PLAIN.fullmatch(conversation) else ""
    return (
        "foldlog: earlier events left your context in this compaction, but foldlog still has them."
        " Before you ask the user again about something, use the foldlog tools `dropped` and"
        f" `recall`{named}."
    )


def _sub_agent_folders(transcripts: Sequence[Path], session: str) -> Iterator[Path]:
    """Yield the folders with the transcripts of sub-agents. Programs delete these too."""
    for transcript in transcripts:
        folder = transcript.with_suffix("") / "subagents"
        if session and transcript.parent.name == "chats":  # of Gemini CLI
            folder = transcript.parent / session
        if os.path.isdir(folder):  # a name that is too long is no folder either
            yield folder
