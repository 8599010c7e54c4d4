"""What a process assumes of its store because its last transactions read or wrote it: the records
of leases, and the streams to which it appends.

A chunk of a streamed reply would need a round trip to read its lease, another one to read its
stream, and a third to write. With assumptions it needs the third only: the server compares them
before it writes (``check_record``, ``check_stream``). If one is wrong, the transaction fails, and
the work runs again without assumptions. So an outdated assumption costs time and nothing else.
``python -m benchmarks.streams chunk --db URL`` measures it.
"""

from __future__ import annotations

from typing import Final

from foldlog.eventstore.recorders.types import Record, Stream

_ASSUMED_MAX: Final = 256

Name = str | tuple[int, int]
"""The name of a record of the store, or the conversation and the number of a stream."""


class Assumptions:
    """Thread-safe, because each method makes one step on a dict."""

    def __init__(self) -> None:
        self._assumed: dict[Name, Record | Stream] = {}

    def record(self, name: str) -> Record | None:
        assumed = self._assumed.get(name)
        return assumed if isinstance(assumed, Record) else None

    def stream(self, key: int, number: int) -> Stream | None:
        assumed = self._assumed.get((key, number))
        return assumed if isinstance(assumed, Stream) else None

    def learn(self, learned: dict[Name, Record | Stream | None]) -> None:
        """Replace assumptions by what a committed transaction knows, or forget them."""
        if len(self._assumed) > _ASSUMED_MAX:
            self._assumed = {}
        for name, value in learned.items():
            if value is None:
                self._assumed.pop(name, None)
            else:
                self._assumed[name] = value
