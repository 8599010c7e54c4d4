"""The face: a store of histories, and one history, as the author of a runtime uses them. No rule of the domain is
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Literal

from eventstore import (
    ANY_VERSION,
    AnyVersion,
    CondensationRequest,
    ConversationNotFound,
    Event,
    Recorded,
    Store,
    open_store,
)
from projections import View, Views

__all__ = ["Histories", "History", "open"]

ExpectedVersion = int | Literal[AnyVersion.ANY_VERSION]


def open(
    url: str,
    *,
    durability: Literal["full", "relaxed"] = "full",
    clock: Callable[[], datetime] | None = None,
) -> Histories:
    """Open the store at ``url``, such as ``sqlite:///history.db``, ``sqlite:////srv/history.db`` or ``memory:``.

    A SQLite file is made if it is not there. ``durability``: see ``eventstore.open_store``. Close it, or use ``with``.
    Raises ``StoreUnavailable`` where there is no such store, it is not ours, or a newer version made it.
    """
    return Histories(open_store(url, durability=durability, clock=clock))


class Histories:
    """The histories of a store, by id: ``histories["c1"]`` is a history whether it has events yet or not.

    ``in`` and iteration tell which have events. Any number of threads may use it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.views = Views(store)

    def __getitem__(self, conversation: str) -> History:
        return History(self.store, self.views, conversation)

    def __contains__(self, conversation: str) -> bool:
        return self.store.version(conversation) > 0

    def __iter__(self) -> Iterator[str]:
        """The ids of all histories that have events, in the order of their UTF-8 bytes. Cost: one page at a time."""
        after: str | None = None
        while page := self.store.conversations(after=after):
            for row in page:
                if row.erased_at is None:
                    yield row.id
            after = page[-1].id

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Histories:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Histories {self.store.uuid}>"


class History:
    """One conversation: append to it, and see what the model is shown. It holds no state of its own."""

    def __init__(self, store: Store, views: Views, conversation: str) -> None:
        self._store, self._views = store, views
        self.id = conversation

    @property
    def version(self) -> int:
        """How many events it has; 0 before the first."""
        return self._store.version(self.id)

    @property
    def view(self) -> View:
        """What the model is shown now; empty before the first event. Cost: what is new since it was asked for last."""
        try:
            return self._views.current(self.id)
        except ConversationNotFound:
            return View.from_events(())

    def at(self, version: int) -> View:
        """What the model was shown when the history had ``version`` events. Cost: the size of that View.

        Raises what ``Views.at`` raises for a version that the history never had.
        """
        return self._views.at(self.id, version=version) if version else View.from_events(())

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """All events with ``start <= id < stop``, forgotten ones too, in order. Raises ``ConversationNotFound`` before
        the first append.
        """
        return self._store.events(self.id, start, stop)

    def append(
        self,
        events: Event | Iterable[Event],
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append one event, or several, all or none. Returns them as recorded, with their ids.

        ``expected_version``, ``idempotency_key``, what it raises, and durability: as ``eventstore.Store.append``.
        """
        return self._store.append(self.id, events, expected_version=expected_version, idempotency_key=idempotency_key)

    def request_condensation(self, reason: str = "") -> Recorded:
        """Ask for a condensation: the View's ``unhandled_condensation_request`` is set until one comes."""
        (recorded,) = self.append(CondensationRequest(reason=reason))
        return recorded

    def __repr__(self) -> str:
        return f"<History {self.id!r} at version {self.version}>"
