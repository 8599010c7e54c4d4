"""Which conversation a tool is asked about, and what its file has since the last import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from foldlog._archive.compacting import Compacting, compacting
from foldlog._archive.importing import Failed, Import
from foldlog._archive.refreshing import refreshed
from foldlog._reports.places import in_folder, places
from foldlog.eventstore import EventStoreError, Store

_SESSION = "CLAUDE_CODE_SESSION_ID"
_LISTED = 10


class Unclear(EventStoreError):
    """It is not clear which conversation is meant. The message says what to do."""


class Asked(NamedTuple):
    """A conversation that is asked about. ``notes`` are what to know about every answer; ``missing`` is a compaction
    that its program has not written yet.
    """

    conversation: str
    notes: tuple[str, ...]
    missing: Compacting | None


class Asking:
    """Finds the conversation that a program means: a given id, the session that started this server, or the only one of
    its folder. It is never guessed.
    """

    def __init__(self, store: Store, environ: Mapping[str, str], folder: str | None, *, may_import: bool) -> None:
        self._store, self._environ, self._may_import = store, environ, may_import
        self._folder = folder and os.path.realpath(folder)
        self._places: tuple[int, dict[str, dict[str, str]]] = (-1, {})

    def places(self) -> dict[str, dict[str, str]]:
        """Return where each imported conversation was written. Cost: nothing where the store did not change."""
        moment = self._store.database.data_version()
        if moment != self._places[0]:
            self._places = moment, places(self._store)
        return self._places[1]

    def asked(self, given: str) -> Asked:
        """Return the conversation, after its file was imported again. Raises ``Unclear``."""
        session = self._environ.get(_SESSION, "")
        if given:
            name = self._named(given)
        elif session:
            name = self._of_session(session)
        else:
            name = self._of_folder()
        notes = []
        if self._may_import:
            found = refreshed(self._store, name)
            name = found.conversation
            if found.problem:
                notes.append(f"its file could not be read again ({found.problem}): this is of the last import")
        else:
            notes.append("the store is open for reading only: this is of the last import")
        missing = compacting(self._store, name)
        if missing is not None:
            notes.append(
                f"a compaction began at {missing.at}, and the program has not written it yet: what it dropped is "
                f"missing here, and what follows is how it was before"
            )
        return Asked(name, tuple(notes), missing)

    def _named(self, given: str) -> str:
        try:
            return self._store.conversation(given, pending=True).id
        except EventStoreError:
            names = [
                row.id for row in self._store.iter_conversations() if row.id.startswith(given) and not row.erased_at
            ]
        if len(names) == 1:
            return names[0]
        few = "; ".join(names[:_LISTED])
        raise Unclear(f"{len(names)} conversations begin with {given[:80]!r}: {few}; `sessions` lists all")

    def _of_session(self, session: str) -> str:
        """Return the conversation of a session of Claude Code, whose file is imported if it is not yet."""
        home = Path(self._environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
        for path in home.glob(f"projects/*/{session}.jsonl") if self._may_import else ():
            for outcome in Import(self._store, [path]):
                if not isinstance(outcome, Failed):
                    return outcome.conversation
        try:
            return self._store.conversation(session, pending=True).id
        except EventStoreError:  # it is new, or it goes on with another one of which this process does not know
            others = "; ".join(self._here()[-_LISTED:][::-1])
            listed = f"; if you go on with an earlier one, give its id: {others}" if others else ""
            raise Unclear(f"session {session} has written no transcript yet{listed}") from None

    def _here(self) -> list[str]:
        """Return the conversations of the folder, each without its forks."""
        here = [] if self._folder is None else in_folder(self.places(), self._folder)
        return list(dict.fromkeys(name.partition("@")[0] for name in here))

    def _of_folder(self) -> str:
        bases = self._here()
        if len(bases) == 1:
            return bases[0]
        if not bases:
            raise Unclear("no conversation of this folder is in the store; `sessions` lists others: give an id")
        listed = "\n".join(bases[-_LISTED:][::-1])
        raise Unclear(f"{len(bases)} conversations are of this folder; give the id of one:\n{listed}")
