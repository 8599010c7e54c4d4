"""The base of a projection's view in the same store, and our recorder as the library expects it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from eventsourcing import persistence
from eventsourcing.persistence import Tracking, TrackingRecorder

from eventstore.log.database import Database
from eventstore.log.seal import RowCodec
from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.changes import NewRecords
from eventstore.recorders.errors import RecorderError
from eventstore.recorders.types import Record

T = TypeVar("T")

_OF_VIEWS = 0
"""The key that records of views are kept under; no conversation has it."""
_VIEW_CODEC = RowCodec("")


class StoreRecorder:
    """One of our recorders, whose errors are those of the library."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._recorder = database.recorder

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a write transaction and return its result once that is durable.

        Raises the library's ``IntegrityError`` where a version or a tracking position is taken.
        """
        with errors_of_the_library():
            return self._recorder.transact(work)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Open a read transaction."""
        with errors_of_the_library(), self._recorder.read() as reader:
            yield reader

    def value(self, name: str) -> str:
        """Return a fact about the store; see ``eventstore.recorders.base.Recorder.value``."""
        with errors_of_the_library():
            return self._recorder.value(name)

    def close(self) -> None:
        """Close the database."""
        with errors_of_the_library():
            self._recorder.close()


@contextmanager
def errors_of_the_library() -> Iterator[None]:
    try:
        yield
    except RecorderError as error:
        kind = getattr(persistence, type(error).__name__, persistence.OperationalError)
        raise kind(str(error)) from error


class StoreTracking(TrackingRecorder):
    """Keeps the positions of projections in a store."""

    def __init__(self, recorder: StoreRecorder) -> None:
        self.recorder = recorder

    def track(self, transaction: Transaction, tracking: Tracking) -> None:
        """Record the position of a projection, within the caller's transaction. Raises ``IntegrityError`` where that
        notification was processed already.
        """
        transaction.set_value(f"tracking {tracking.application_name}", str(tracking.notification_id))

    def insert_tracking(self, tracking: Tracking) -> None:
        self.recorder.transact(lambda transaction: self.track(transaction, tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        found = self.recorder.value(f"tracking {application_name}")
        return int(found) if found else None


class TrackingView(StoreTracking):
    """The base of a projection's view. The view writes its records and its position in one transaction.

    class Counts(TrackingView):
        def count(self, kind: str, tracking: Tracking) -> None:
            def work(transaction: Transaction) -> None:
                self.put_records(transaction, "counts", [...])
                self.track(transaction, tracking)
            self.recorder.transact(work)
    """

    def record_at(self, reader: Reader, name: str, version: int) -> Record | None:
        """Return the newest record of this view at or before a version; records belong to no conversation."""
        found = reader.records(_OF_VIEWS, name, version, 1, backwards=True)
        return _VIEW_CODEC.decoded_record(name, found[0]) if found else None

    def put_records(self, transaction: Transaction, name: str, records: Iterable[Record]) -> None:
        """Keep records of this view, within a transaction; one of the same version is replaced."""
        encoded = [_VIEW_CODEC.encoded_record(name, record) for record in records]
        transaction.change(_OF_VIEWS, NewRecords(name, encoded))
