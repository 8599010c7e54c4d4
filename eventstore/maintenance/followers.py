"""The status of a whole store: why followers lag, and which read models have confirmed erasures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import InvalidOption, StoreUnavailable
from foldlog.eventstore.store import Store

if TYPE_CHECKING:
    # the package of the server may be missing
    from foldlog.eventstore.recorders.postgres.status import Status


def follower_status(store: Store) -> Status:
    """Return which database session holds the followers back, and how far each follower lags.

    Raises ``InvalidOption`` if the store is not on a server, because in a file no session delays
    followers.
    """
    recorder = store.database.recorder
    if not recorder.on_server:
        raise InvalidOption("follower status exists only for PostgreSQL stores")
    # the package of the server may be missing
    from foldlog.eventstore.recorders.postgres import PostgresRecorder, Stores

    assert isinstance(recorder, PostgresRecorder | Stores)  # because the store is on a server
    return recorder.status()


def confirm(store: Store, read_model: str, position: int | str | None) -> None:
    """Record that a read model has removed all content that was erased or redacted up to a
    position. Later tombstones and receipts name the read model in ``unconfirmed`` until it confirms
    their positions. Pass None as the position to forget the read model. If several stores are
    joined (``?stores=``), pass ``str(recorded.position)`` of the last event or entry that
    ``follow`` yielded: the position that an append returns is a position in one of these stores.

    A position below the recorded position changes nothing. A ``TrackingView`` does not call
    ``confirm``, because its stored position is its confirmation. Raises ``InvalidArgument`` if the
    position is no position, and ``StoreUnavailable`` or ``StoreRefused`` if the store cannot be
    written. Durability: the position is on disk when the function returns. Cost: one commit.
    """
    name = f"tracking {read_model}"
    value = ""
    if position is not None:
        if not isinstance(position, str):
            check_whole("position", position, 0)
        value = str(store.database.recorder.position(position))
    try:
        store.database.recorder.transact(lambda transaction: transaction.set_value(name, value))
    except StoreUnavailable as error:
        if error.kind != "taken":
            raise
