"""Write the View of a history as a session file of a coding agent, so that the agent goes on with
it.

going_over.py   what goes over: which events, the results of open calls, the note for the model
session.py      the interface of a program's writer
claude_code.py  sessions of Claude Code
codex.py        rollouts of Codex

The writers make records and paths. ``foldlog._history.continuing`` writes the file and the store.
"""

from __future__ import annotations

from foldlog.eventstore import InvalidArgument
from foldlog.formats.native_sessions.claude_code import ClaudeCodeSession
from foldlog.formats.native_sessions.codex import CodexSession
from foldlog.formats.native_sessions.session import NativeSession

SESSIONS: tuple[type[NativeSession], ...] = (ClaudeCodeSession, CodexSession)


def session_of(program: str) -> type[NativeSession]:
    """Return the writer for a program. Raises ``InvalidArgument`` for an unknown program."""
    for session in SESSIONS:
        if session.program == program:
            return session
    names = " or ".join(repr(session.program) for session in SESSIONS)
    raise InvalidArgument(
        f"a history cannot go on in {program!r}; use {names}. Other programs can read an export"
        " ('foldlog export ID --format openai-chat')"
    )
