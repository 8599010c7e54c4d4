"""Appends of many tasks: those that wait at the same time are committed together, by one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, Literal

from foldlog import _observed
from foldlog._history import ExpectedVersion, History
from foldlog.eventstore import ANY_VERSION, Appending, Event, Outcome, Recorded, Store
from foldlog.eventstore.log import appending

_EVENTS_MAX: Final = 100
"""The most events of an append that other appends wait for: encoding them takes a millisecond."""


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """An append to a history, with the arguments of ``History.append``."""

    history: History
    events: Any
    _: KW_ONLY
    expected_version: ExpectedVersion = ANY_VERSION
    idempotency_key: str | None = None
    documents: Mapping[str, Any] | None = None
    dedupe: Literal["origin"] | None = None

    def __call__(self) -> tuple[Recorded, ...]:
        return self.history.append(
            self.events,
            expected_version=self.expected_version,
            idempotency_key=self.idempotency_key,
            documents=self.documents,
            dedupe=self.dedupe,
        )

    @property
    def is_short(self) -> bool:
        """Whether it reads nothing first and runs only foldlog's code, so that other appends may wait for it."""
        events = self.events
        few = type(events) in (list, tuple) and len(events) <= _EVENTS_MAX
        few = few and not any(isinstance(each, Mapping) for each in events)  # a chat message may need the View
        if _observed.telemetry is not None:  # it has a span of its own
            return False
        return self.documents is None and self.dedupe is None and (few or isinstance(events, Event))

    def prepare(self) -> Appending:
        return self.history._prepare_append(self.events, self.expected_version, self.idempotency_key)

    def finish(self, appended: Outcome[tuple[Recorded, ...]]) -> tuple[Recorded, ...]:
        return self.history._checked(appended.unwrap())


def append_all(store: Store, appends: Sequence[PendingAppend]) -> list[Outcome[tuple[Recorded, ...]]]:
    """Make short appends to histories of a store, in their order. Return the outcome of each, as if it were alone."""
    prepared = [Outcome.of(append.prepare) for append in appends]
    works = [outcome.unwrap() for outcome in prepared if outcome.error is None]
    appended = iter(appending.append_all(store.database, works))
    return [
        Outcome(error=before.error) if before.error is not None else Outcome.of(partial(append.finish, next(appended)))
        for append, before in zip(appends, prepared, strict=True)
    ]
