"""Which conversation a tool is asked about, and what its file has since the last import."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from foldlog._archive.compacting import Compacting, compacting
from foldlog._archive.importing import Failed, Import
from foldlog._archive.redacting import source_files
from foldlog._archive.refreshing import refreshed
from foldlog._companions import ids_meant
from foldlog._figures.places import in_folder, places
from foldlog.eventstore import EventStoreError, Store

_SESSION = "CLAUDE_CODE_SESSION_ID"
_CHOICES = 10
_IS_NAME = re.compile(r"[\w-]{1,200}", re.ASCII)
"""An id that can name a file: it leads to no other folder, and is not a pattern."""


class Unclear(EventStoreError):
    """It is not clear which conversation is meant: one of ``choices``, or of all where it is
    None.
    """

    def __init__(self, problem: str, choices: Collection[str] | None) -> None:
        super().__init__(problem)
        self.choices = choices


class Asked(NamedTuple):
    """A conversation that is asked about. ``problem`` says why this may be an older state of it;
    ``missing`` is a compaction that its program has not written yet. ``agents`` are sub-agents at
    work, of which one may be who asks.
    """

    conversation: str
    problem: str
    missing: Compacting | None
    agents: Sequence[str] = ()


class Asking:
    """Finds the conversation that a program means: a given id, or that of the session that started
    this server. It is never guessed: programs that name no session are given a list of those of the
    ``folder``.
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
        self._folder = folder and os.path.realpath(folder)

    def asked(self, given: str) -> Asked:
        """Return the conversation, after its file was imported again. Raises ``Unclear``."""
        name = self._named(given) if given else self._of_session()
        problem = "the store is open for reading only"
        if self._may_import:
            name, problem = refreshed(self._store, name, self._is_secret)
        return Asked(
            name, problem, compacting(self._store, name), () if given else self._agents_of(name)
        )

    def _agents_of(self, session: str) -> list[str]:
        """Return the sub-agents whose transcripts were written after that of their session: one of
        them may be who asks, since they have its server.
        """
        found: list[Path] = []
        for path in map(Path, source_files(self._store, [session]).get(session, ())):
            agents = path.with_suffix("").glob("subagents/*.jsonl")
            found += [
                agent
                for agent in agents
                if path.is_file() and _written_at(agent) >= _written_at(path)
            ]
        return self._import(found) if found else []

    def _named(self, given: str) -> str:
        names = [*islice(ids_meant(self._store, given), _CHOICES)]
        # /clear began it, and no hook told yet
        if not names and self._may_import and self._environ.get(_SESSION):
            self._import(self._transcripts(given))
            names = [*ids_meant(self._store, given)]
        if len(names) != 1:
            raise Unclear(f"the id {given[:80]!r} is not that of one conversation", names)
        return names[0]

    def _of_session(self) -> str:
        """Return the conversation of the session of Claude Code that started this server, after an
        import of its file.

        ``/clear`` and ``/resume`` begin another session, and the server is not told: it goes on in
        another file of the same folder. So the session is known only while its file is the one that
        was written last.
        """
        session = self._environ.get(_SESSION)
        if not session:
            raise self._unclear("this program does not say which session asks")
        imported = map(Path, source_files(self._store, [session]).get(session, ()))
        files = filter(Path.is_file, (*imported, *self._transcripts(session)))
        file = max(files, key=_written_at, default=None)
        if file is None:
            raise self._unclear(f"session {session} has no transcript yet")
        others = (
            path
            for path in file.parent.glob("*.jsonl")
            if path != file and not path.name.startswith("agent-")
        )
        later = [path for path in others if _written_at(path) >= _written_at(file)]
        if later:
            problem = f"another session was written after {session}, and may be the one that asks"
            raise self._unclear(
                problem, self._import([file, *nlargest(_CHOICES - 1, later, key=_written_at)])
            )
        return next(iter(self._import([file])), None) or self._named(session)

    def _transcripts(self, session: str) -> list[Path]:
        """Return the transcripts of a session of Claude Code."""
        home = Path(self._environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"))
        if _IS_NAME.fullmatch(session):
            return [*home.glob(f"projects/*/{session}.jsonl")]
        return []

    def _import(self, files: Sequence[Path]) -> list[str]:
        """Import transcripts, and return the conversations that they are."""
        outcomes = Import(self._store, files, is_secret=self._is_secret) if self._may_import else ()
        return [outcome.conversation for outcome in outcomes if not isinstance(outcome, Failed)]

    def _unclear(self, problem: str, choices: Collection[str] = ()) -> Unclear:
        return Unclear(
            problem, choices or (self._folder and in_folder(places(self._store), self._folder))
        )


def _written_at(path: Path) -> int:
    return path.stat().st_mtime_ns
