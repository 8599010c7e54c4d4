"""The values that a process assumes to be in its store, because its last transactions read or wrote
them: the records of leases, and the streams to which it appends.

Without assumptions, a chunk of a streamed reply takes three round trips: one to read the lease, one
to read the stream, and one to write. With assumptions, it takes only the last one, because the
server compares the assumptions before it writes (``check_record``, ``check_stream``). If an
assumption is wrong, the transaction fails, and the work runs again without assumptions. An outdated
assumption therefore only costs time. ``python -m benchmarks.streams chunk --db URL`` measures the
time of a chunk.
"""

from __future__ import annotations

from typing import Final

from foldlog.eventstore.recorders.types import Record, Stream

_ASSUMED_MAX: Final = 256
"""The number of assumptions that a process remembers. With more, it forgets them all."""

Name = str | tuple[int, int]
"""The name of a record of the store, or the conversation and the number of a stream."""


class Assumptions:
    """The assumptions of one store. Threads share them without a lock, because each method makes
    only single steps on a dict.
    """

    def __init__(self) -> None:
        self._assumed: dict[Name, Record | Stream] = {}

    def record(self, name: str) -> Record | None:
        assumed = self._assumed.get(name)
        return assumed if isinstance(assumed, Record) else None

    def stream(self, key: int, number: int) -> Stream | None:
        assumed = self._assumed.get((key, number))
        return assumed if isinstance(assumed, Stream) else None

    def learn(self, learned: dict[Name, Record | Stream | None]) -> None:
        """Replace assumptions by the values that a committed transaction has left. The value None
        means that the assumption is forgotten.
        """
        if len(self._assumed) > _ASSUMED_MAX:
            self._assumed = {}
        for name, value in learned.items():
            if value is None:
                self._assumed.pop(name, None)
            else:
                self._assumed[name] = value
