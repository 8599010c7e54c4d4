"""Remember in a store what was lost before a salvage made it.

A salvaged store is sound: each lost event is replaced, and a lost conversation is missing. So the store itself does
not show what it once had. The salvage records it as a fact about the store, which copies and later salvages keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from eventstore.maintenance.row_checks import VerifyFinding
from eventstore.recorders.base import Recorder
from eventstore.stored.rows import from_microseconds

_FACT: Final = "salvaged"


class Loss(NamedTuple):
    """Something that was lost before the salvage ``at`` a moment: events ``first`` to ``last``, or without them what
    ``problem`` says, of a conversation, or of the whole file where that is None.
    """

    at: int
    conversation: str | None
    first: int | None
    last: int | None
    problem: str

    @property
    def when(self) -> str:
        return f"{from_microseconds(self.at):%Y-%m-%d %H:%M} UTC"

    def finding(self) -> VerifyFinding:
        return VerifyFinding(self.first, self.last, f"lost before the salvage of {self.when} ({self.problem})")


def losses_of(recorder: Recorder) -> Sequence[Loss]:
    """Return everything that was lost before the salvages that the store comes from, the oldest first."""
    recorded = recorder.value(_FACT)
    try:
        return [Loss(*each) for each in json.loads(recorded or "[]")]
    except (ValueError, TypeError):
        return [Loss(0, None, None, None, "the record of what was lost is damaged")]


def add_losses(recorder: Recorder, losses: Iterable[Loss]) -> None:
    """Record losses beside those that the store has recorded already."""
    known = losses_of(recorder)
    together = list(dict.fromkeys([*known, *losses]))
    if len(together) > len(known):
        recorder.transact(lambda transaction: transaction.set_value(_FACT, json.dumps(together)))
