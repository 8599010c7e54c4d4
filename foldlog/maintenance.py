"""The tasks of an administrator as methods: the functions of ``eventstore.maintenance``."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eventstore import ConversationRow, EventStoreError, Store

if TYPE_CHECKING:
    from eventstore.maintenance.backup import BackedUp, Vacuumed
    from eventstore.maintenance.copy_store import Moved, UnequalConversation
    from eventstore.maintenance.redact import RedactionReceipt
    from eventstore.maintenance.rekey import Rekeyed
    from eventstore.maintenance.verify import Published, Verdict
    from eventstore.recorders.server import Status


def _user() -> str:
    """Return the name of the user that this process runs as; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else ""


class Maintenance:
    """The maintenance of one store. Each method is the function of the same name, and imports it when it is called."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def erase(
        self,
        conversation: str,
        *,
        reason: str,
        complete: bool = True,
        detach_forks: bool = False,
        expected: ConversationRow | None = None,
    ) -> ConversationRow:
        """Erase a history for good, from the search index too. Return its tombstone. See ``maintenance.erase.erase``.

        Raises ``SearchRefused`` where the file of the index is another program's: the erasure stands.
        """
        from eventstore.maintenance.erase import erase
        from foldlog.search import erase_from_index

        tombstone = erase(
            self._store,
            conversation,
            reason=reason,
            complete=complete,
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
        from eventstore.maintenance.redact import redact
        from foldlog.search import erase_from_index

        receipt = redact(
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
        from eventstore.maintenance.verify import verify

        return verify(self._store, conversation, published)

    def rekey(self, conversation: str | None = None, *, decrypt: bool = False) -> Iterator[Rekeyed]:
        """Re-encrypt and re-compress stored events with the settings of this store. See ``maintenance.rekey.rekey``."""
        from eventstore.maintenance.rekey import rekey

        return rekey(self._store, *(() if conversation is None else (conversation,)), decrypt=decrypt)

    def back_up(self, path: str) -> BackedUp:
        """Copy the store to a new file and verify the copy. See ``maintenance.backup.back_up``."""
        from eventstore.maintenance.backup import back_up

        return back_up(self._store, path)

    def vacuum(self) -> Vacuumed:
        """Reclaim disk space, and remove the remains of interrupted imports. See ``maintenance.backup.vacuum``."""
        from eventstore.maintenance.backup import vacuum

        return vacuum(self._store)

    def copy_from(self, source: Store, *, jobs: int = 4) -> Iterator[Moved]:
        """Copy every history of another store into this one. See ``maintenance.copy_store.copy_store``."""
        from eventstore.maintenance.copy_store import copy_store

        return copy_store(source, self._store, jobs=jobs)

    def differences_from(self, source: Store) -> Iterator[UnequalConversation]:
        """Yield the histories of another store that do not have the same head here."""
        from eventstore.maintenance.copy_store import compare_stores

        return compare_stores(source, self._store)

    def confirm(self, read_model: str, position: int | None) -> None:
        """Record that a read model has come to a position: see ``maintenance.status.confirm``."""
        from eventstore.maintenance.status import confirm

        confirm(self._store, read_model, position)

    def follower_status(self) -> Status:
        """Return which session holds the followers of a store on a server back. See
        ``maintenance.status.follower_status``.
        """
        from eventstore.maintenance.status import follower_status

        return follower_status(self._store)
