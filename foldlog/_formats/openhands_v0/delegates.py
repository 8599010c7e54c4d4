"""Find the records of a delegate: they are in its parent's stream, but not in the parent's history.

Of a whole stream, only the records between a delegation and its result are known to be a delegate's. Where records come
one by one, all records after a delegation are, until its result comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from foldlog._formats.packing import events_of, unpack

if TYPE_CHECKING:
    from foldlog.projections import View


def members_of(record: Any) -> Sequence[Any]:
    """Return the objects of a record: the oldest files have an action and its observation in an array."""
    return record if type(record) is list else (record,)


def outside_history(records: Iterable[Any]) -> set[int]:
    """Return the numbers of the records of a delegate in its parent's stream.

    They are strictly between a ``delegate`` action and its ``delegate`` observation, the innermost first; a delegation
    without an observation has none. Cost: one pass over the records.
    """
    open_at: list[int] = []
    outside: set[int] = set()
    for number, record in enumerate(records):
        for member in members_of(record):
            if type(member) is not dict:
                continue
            if member.get("action") == "delegate":
                open_at.append(number)
            elif type(member.get("action")) is not str and member.get("observation") == "delegate" and open_at:
                outside.update(range(open_at.pop() + 1, number))
    return outside


class OpenDelegations:
    """Tells of records that come one by one which are a delegate's. ``count`` is the number of delegations without a
    result before the first record.
    """

    def __init__(self, count: int) -> None:
        self._open = count

    def takes(self, record: Any) -> bool:
        """Return whether the next record is a delegate's."""
        for member in members_of(record):
            if type(member.get("action")) is not str:
                self._open -= member.get("observation") == "delegate" and self._open > 0
        outside = self._open > 0
        self._open += sum(member.get("action") == "delegate" for member in members_of(record))
        return outside


def open_delegations(view: View) -> int:
    """Return the number of delegations in a View that have no result."""
    records = [unpack([call]) for call in view.open_calls if events_of(call) == 1]
    return sum(member.get("action") == "delegate" for record in records for member in members_of(record))
