"""The tasks of an administrator as methods: the functions of ``foldlog.eventstore.maintenance``."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from foldlog.eventstore import ConversationRow, EventStoreError, Store
from foldlog.eventstore.maintenance import backup, copy_store, erase, redact, rekey, status, verify
from foldlog.eventstore.recorders.server import Status
from foldlog.search import erase_from_index

BackedUp = backup.BackedUp
Vacuumed = backup.Vacuumed
Moved = copy_store.Moved
UnequalConversation = copy_store.UnequalConversation
RedactionReceipt = redact.RedactionReceipt
Rekeyed = rekey.Rekeyed
Published = verify.Published
Verdict = verify.Verdict


def _user() -> str:
    """Return the name of the user that this process runs as; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else ""


class Maintenance:
    """The maintenance of one store. Each method is the function of the same name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def erase(
        self,
        conversation: str,
        *,
        reason: str,
        complete: bool = True,
        with_forks: bool = False,
        detach_forks: bool = False,
        expected: ConversationRow | None = None,
    ) -> ConversationRow:
        """Erase a history for good, from the search index too. Return its tombstone. See ``maintenance.erase.erase``.

        Raises ``SearchRefused`` where the file of the index is another program's: the erasure stands.
        """
        tombstone = erase.erase(
            self._store,
            conversation,
            reason=reason,
            complete=complete,
            with_forks=with_forks,
            detach_forks=detach_forks,
            expected=expected,
        )
        erase_from_index(self._store)
        return tombstone

    def redact(
        self,
        conversation: str,
        event_id: int,
        *,
        reason: str,
        by: str | None = None,
        with_summaries: bool = False,
        complete: bool = True,
    ) -> RedactionReceipt:
        """Erase the content of one event for good, from the search index too. Return the receipt.

        ``by`` is the user of the operating system if it is not given. See ``maintenance.redact.redact``.
        """
        receipt = redact.redact(
            self._store,
            conversation,
            event_id,
            reason=reason,
            by=_user() if by is None else by,
            with_summaries=with_summaries,
            complete=complete,
        )
        try:
            erase_from_index(self._store)
        except (EventStoreError, OSError) as error:
            return receipt._replace(unconfirmed=(*receipt.unconfirmed, f"search index: {error}"))
        return receipt

    def verify(
        self, conversation: str | None = None, published: Mapping[str, Sequence[Published]] | None = None
    ) -> Iterator[Verdict]:
        """Check that every event is unchanged. Yield a verdict for each history. See ``maintenance.verify.verify``."""
        return verify.verify(self._store, conversation, published)

    def rekey(self, *conversations: str, decrypt: bool = False) -> Iterator[Rekeyed]:
        """Re-encrypt and re-compress stored events with the settings of this store. See ``maintenance.rekey.rekey``."""
        return rekey.rekey(self._store, *conversations, decrypt=decrypt)

    def back_up(self, path: str, on_progress: Callable[[int, int], object] = lambda done, of: None) -> BackedUp:
        """Copy the store to a new file and verify the copy. See ``maintenance.backup.back_up``."""
        return backup.back_up(self._store, path, on_progress)

    def vacuum(self) -> Vacuumed:
        """Reclaim disk space, and remove the remains of interrupted imports. See ``maintenance.backup.vacuum``."""
        return backup.vacuum(self._store)

    def copy_from(self, source: Store, *, jobs: int = 4) -> Iterator[Moved]:
        """Copy every history of another store into this one. See ``maintenance.copy_store.copy_store``."""
        return copy_store.copy_store(source, self._store, jobs=jobs)

    def differences_from(self, source: Store) -> Iterator[UnequalConversation]:
        """Yield the histories of another store that do not have the same head here."""
        return copy_store.compare_stores(source, self._store)

    def confirm(self, read_model: str, position: int | None) -> None:
        """Record that a read model has come to a position: see ``maintenance.status.confirm``."""
        status.confirm(self._store, read_model, position)

    def follower_status(self) -> Status:
        """Return which session holds the followers of a store on a server back. See
        ``maintenance.status.follower_status``.
        """
        return status.follower_status(self._store)
