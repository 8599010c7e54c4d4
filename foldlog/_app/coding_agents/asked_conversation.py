"""Find the conversation that a tool call asks about, and import its new records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from foldlog._app.coding_agents.refreshing import import_again
from foldlog._imports.compacting import compacting
from foldlog._imports.importing import Failed, Import
from foldlog._imports.redacting import source_files
from foldlog._reports.figures.source_places import in_folder, places
from foldlog.eventstore import CorruptEvent, EventStoreError, Store
from foldlog.projections.conversations.companions import ids_beginning_with

_SESSION = "CLAUDE_CODE_SESSION_ID"
"""The variable with which Claude Code names the session that started a server."""
_CHOICES = 10
"""The maximum number of conversations that the caller may choose from."""
_IS_NAME = re.compile(r"[\w-]{1,200}", re.ASCII)
"""Matches an id that can be a file name, because it has no slash and no wildcard."""


class Unclear(EventStoreError):
    """The caller may mean several conversations. ``choices`` are the possible conversations, or
    None if the caller may mean any conversation.
    """

    def __init__(self, problem: str, choices: Collection[str] | None) -> None:
        super().__init__(problem)
        self.choices = choices


class Asked(NamedTuple):
    """The conversation that a tool call asks about.

    problem  why the stored state of the conversation may be old; empty if it is not old
    missing  the time of a compaction that is not yet in the transcript
    agents   the sub-agents at work; a sub-agent may be asking
    """

    conversation: str
    problem: str
    missing: str | None
    agents: Sequence[str] = ()


class Asking:
    """Finds the conversation that a program means: the conversation with an id, or the session that
    started this server.

    ``Asking`` never guesses. A program that names no session gets a list of the conversations of
    the ``folder``.
    """

    def __init__(
        self,
        store: Store,
        environ: Mapping[str, str],
        folder: str | None,
        *,
        may_import: bool,
        is_secret: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._store = store
        self._environ = environ
        self._may_import = may_import
        self._is_secret = is_secret
        self._folder = os.path.realpath(folder) if folder else None

    def find(self, conversation: str) -> Asked:
        """Return the conversation, after its file was imported again. Raises ``Unclear``."""
        name = self._by_id(conversation) if conversation else self._of_session()
        problem = "the store is read-only"
        if self._may_import:
            name, problem = import_again(self._store, name, self._is_secret)
        agents = () if conversation else self._agents_of(name)
        return Asked(name, problem, compacting(self._store, name), agents)

    def _agents_of(self, session: str) -> list[str]:
        """Return the sub-agents whose transcripts are newer than the session's transcript.

        A session and its sub-agents use the same server, so the call may come from a sub-agent.
        """
        transcripts: list[Path] = []
        for path in map(Path, source_files(self._store, [session]).get(session, ())):
            agents = path.with_suffix("").glob("subagents/*.jsonl")
            transcripts += [
                agent
                for agent in agents
                if path.is_file() and _written_at(agent) >= _written_at(path)
            ]
        return self._import(transcripts) if transcripts else []

    def _by_id(self, given_id: str) -> str:
        """Return the only conversation whose id begins so. Raises ``Unclear``."""
        names = [*islice(ids_beginning_with(self._store, given_id), _CHOICES)]
        # ``/clear`` may have begun the newest session, and no hook has imported it yet.
        if not names and self._may_import and self._environ.get(_SESSION):
            self._import(self._transcripts(given_id))
            names = [*ids_beginning_with(self._store, given_id)]
        if len(names) != 1:
            raise Unclear(f"the id {given_id[:80]!r} does not name exactly one conversation", names)
        return names[0]

    def _of_session(self) -> str:
        """Import the session that started this server, and return its conversation.

        ``/clear`` and ``/resume`` begin another session in another file of the same folder, without
        notice. So the session is certain only if its transcript is the newest file in the folder.
        """
        session = self._environ.get(_SESSION)
        if not session:
            raise self._unclear("this program does not say which session asks")
        imported = map(Path, source_files(self._store, [session]).get(session, ()))
        files = filter(Path.is_file, (*imported, *self._transcripts(session)))
        file = max(files, key=_written_at, default=None)
        if file is None:
            raise self._unclear(f"session {session} has no transcript yet")
        other_files = (
            path
            for path in file.parent.glob("*.jsonl")
            if path != file and not path.name.startswith("agent-")
        )
        later_files = [path for path in other_files if _written_at(path) >= _written_at(file)]
        if later_files:
            problem = f"another session was written after {session}, and it may be asking"
            newest = nlargest(_CHOICES - 1, later_files, key=_written_at)
            raise self._unclear(problem, self._import([file, *newest]))
        imported_ids = self._import([file])
        return imported_ids[0] if imported_ids else self._by_id(session)

    def _transcripts(self, session: str) -> list[Path]:
        """Return the transcripts of Claude Code that have the name of a session."""
        home = Path(self._environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"))
        if _IS_NAME.fullmatch(session):
            return [*home.glob(f"projects/*/{session}.jsonl")]
        return []

    def _import(self, files: Sequence[Path]) -> list[str]:
        """Import files, and return their conversations. Without permission, return none."""
        if not self._may_import:
            return []
        outcomes = Import(self._store, files, is_secret=self._is_secret)
        return [outcome.conversation for outcome in outcomes if not isinstance(outcome, Failed)]

    def _unclear(self, problem: str, choices: Collection[str] = ()) -> Unclear:
        """Return the error for a program that may mean several conversations: ``choices``, or by
        default those of the folder.
        """
        if choices:
            return Unclear(problem, choices)
        if self._folder is None:
            return Unclear(problem, None)
        damaged = dict[str, CorruptEvent]()
        in_this_folder = in_folder(places(self._store, damaged), self._folder)
        # a damaged source may have been written in this folder too
        return Unclear(problem, [*in_this_folder, *damaged])


def _written_at(path: Path) -> int:
    """Return when a file was written last, in nanoseconds.

    A file that was removed after it was listed is the oldest: then return 0.
    """
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
