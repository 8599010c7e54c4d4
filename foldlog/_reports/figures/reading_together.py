"""Read several conversations in one transaction, with few round trips to a server.

A report asks about ten questions for each conversation. On a server, each question is a round trip.
The questions that a report will surely ask are therefore sent together (``Reader.ask_ahead``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar, cast

from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.store import Store

T = TypeVar("T")

Question = tuple[str, Sequence[Any]]


def read_together(store: Store, ahead: Callable[[Reader], object], work: Callable[[Store], T]) -> T:
    """Run ``work`` on a copy of ``store`` that reads in one transaction, after ``ahead``, which may
    call ``Reader.ask_ahead``. If the connection to a server breaks, both run again, so ``work``
    must have no effects. Everything that ``work`` writes is written in other transactions.
    """
    recorder = store.database.recorder

    def read(reader: Reader) -> T:
        ahead(reader)
        one_transaction = _OneTransaction(recorder, reader)
        own = copy(store)
        own.database = copy(store.database)
        own._recorder = own.database.recorder = cast(Recorder, one_transaction)
        result = work(own)
        if one_transaction.lost is not None:
            raise one_transaction.lost
        return result

    return recorder.query(read)


class _OneTransaction:
    """A recorder whose queries are all in one transaction.

    ``lost``  the error with which the connection broke, or None. ``work`` may have caught this
              error as a problem of one conversation, so the caller raises it again
    """

    def __init__(self, recorder: Recorder, reader: Reader) -> None:
        self._recorder = recorder
        self._reader = reader
        self.lost: StoreUnavailable | None = None

    def query(self, work: Callable[[Any], T]) -> T:
        try:
            return work(self._reader)
        except StoreUnavailable as error:
            self.lost = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)
