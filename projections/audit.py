"""Fold a conversation from its first event, and compare every stored revision with the result, byte for byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from foldlog.eventstore import (
    CondensationAction,
    CondensationRequest,
    Event,
    ReadTransaction,
    Record,
    Retraction,
    Store,
    is_structural,
)
from foldlog.projections.stored.loading import CHUNK, Progress, StoredPast, read_changes
from foldlog.projections.stored.revision import EMPTY_FOLD, ViewFold, fold_on
from foldlog.projections.stored.revision_codec import CODE, PROJECTION

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """The problem of the revision of one version. ``Views.rebuild`` replaces it."""

    version: int
    problem: str


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One condensation, and the number of events of the log that left the View with it. ``version`` is the version
    after it.

    Its ``metadata`` holds the report of its condenser: ``reason``, ``outcome``, ``tokens_before``, ``tokens_after``, …
    ``requests`` are the requests that it fulfils: those since the condensation before it.
    """

    condensation: CondensationAction
    forgotten: int
    requests: tuple[CondensationRequest, ...] = ()

    @property
    def version(self) -> int:
        return self.condensation.id + 1

    def said(self, key: str) -> Any:
        """Return a value of the metadata, or None if the condenser did not report it."""
        return self.condensation.metadata.get(key)


@dataclass(frozen=True, slots=True)
class Audit:
    """The outcome of the audit of one conversation. ``missing`` counts revisions that are not stored yet: a writer
    without the projection appended their events, or an earlier version of foldlog stored them in its own form. They are
    not findings, because the next reader stores them.
    """

    conversation: str
    version: int
    revisions: int
    missing: int
    forgettings: tuple[Forgetting, ...]
    findings: tuple[Finding, ...]


def audit(store: Store, conversation: str, progress: Progress | None = None) -> Audit:
    """Fold a conversation from its first event, and compare with every stored revision.

    Raises what ``Views.current`` raises. Cost: the log; memory grows with the number of condensations, which are
    returned, and with the View. ``Auditing`` hands them out one by one.
    """
    auditing = Auditing(store, conversation, progress)
    found = list(auditing)
    return Audit(
        conversation,
        auditing.version,
        auditing.revisions,
        auditing.missing,
        tuple(one for one in found if isinstance(one, Forgetting)),
        tuple(sorted((one for one in found if isinstance(one, Finding)), key=lambda finding: finding.version)),
    )


class Auditing:
    """An audit in progress. Iterate over it once, for each condensation and each finding as it is reached.

    ``version`` is the version at which the audit ends. ``revisions`` and ``missing`` are those of ``Audit``, so far.
    Each chunk of the log is read in its own transaction, so no writer waits for the caller that iterates. Raises what
    ``Views.current`` raises. Memory: the View, and a chunk.
    """

    def __init__(self, store: Store, conversation: str, progress: Progress | None = None) -> None:
        self._store, self._conversation, self._progress = store, conversation, progress
        self.version, self._damaged, last = store.query(
            conversation,
            lambda reading: (
                reading.version,
                set(reading.damaged_records(PROJECTION)),
                reading.record_at(PROJECTION, reading.version),
            ),
        )
        self._last_stored = 0 if last is None else last.version
        self.revisions = self.missing = 0
        self._after, self._exhausted = 0, False
        self._page: deque[Record] = deque()

    def __iter__(self) -> Iterator[Forgetting | Finding]:
        for version in sorted(self._damaged):
            yield Finding(version, "its bytes were changed after it was stored")
        requests: list[CondensationRequest] = []
        for step in self._steps():
            yield from self._compared(step.record)
            if isinstance(step.event, CondensationRequest):
                requests.append(step.event)
            elif isinstance(step.event, CondensationAction):
                yield Forgetting(step.event, step.forgotten, tuple(requests))
                requests.clear()
        yield from self._superfluous(self.version)
        beyond = self._store.query(  # other writers may have appended since
            self._conversation, lambda reading: list(reading.records(PROJECTION, after=reading.version))
        )
        self.revisions += len(beyond)
        yield from map(_superfluous, beyond)

    def _compared(self, made: Record) -> Iterator[Finding]:
        """Compare the stored revision of one version with the one that the log gives."""
        yield from self._superfluous(made.version - 1)
        stored = self._next(made.version)
        if stored is not None and stored.code < CODE:
            self.missing += 1  # made by an earlier version of foldlog; the next reader replaces it
        elif stored is not None:
            problem = _problem(stored, made)
            if problem is not None:
                yield Finding(made.version, problem)
        elif made.version not in self._damaged:
            self.missing += 1
            if made.version < self._last_stored:
                yield Finding(made.version, "it is missing, and later ones are stored")

    def _superfluous(self, version: int) -> Iterator[Finding]:
        """Yield a finding for each stored revision up to a version that no event of the log explains."""
        while (stored := self._next(version)) is not None:
            yield _superfluous(stored)

    def _next(self, version: int) -> Record | None:
        """Return the next stored revision, if it is of this version or an earlier one."""
        if not self._page and not self._exhausted:
            self._page.extend(self._store.query(self._conversation, self._read_page))
            self._exhausted = not self._page
        if not self._page or self._page[0].version > version:
            return None
        self.revisions += 1
        stored = self._page.popleft()
        self._after = stored.version
        return stored

    def _read_page(self, reading: ReadTransaction) -> list[Record]:
        return list(islice(reading.records(PROJECTION, self._after), _PAGE))

    def _steps(self) -> Iterator[_Step]:
        folded, made = EMPTY_FOLD, list[Record]()
        while folded.version < self.version:
            stop = min(self.version, folded.version + max(CHUNK, folded.state.count // 2))
            steps, folded = self._store.query(self._conversation, partial(_fold_chunk, folded, stop, made))
            made += [step.record for step in steps]
            yield from steps
            if self._progress is not None:
                self._progress(stop, self.version)


def _fold_chunk(
    folded: ViewFold, stop: int, made: Sequence[Record], reading: ReadTransaction
) -> tuple[list[_Step], ViewFold]:
    """Fold on to ``stop``. Return a step for each structural event, and the fold there. ``made`` are the revisions up
    to here, which only a retraction needs.
    """
    events = read_changes(reading, folded.version, stop)
    returns = any(isinstance(event, Retraction) for event in events)
    past = StoredPast(reading, stored=False, records=made if returns else ())
    steps, done = [], 0
    for place, event in enumerate(events):
        if is_structural(event):
            before, _ = fold_on(folded, events[done:place], event.id, past)
            folded, (record,) = fold_on(before, [event], event.id + 1, past)
            steps.append(_Step(event, record, _count_shown(before) - _count_shown(folded)))
            done = place + 1
    folded, _ = fold_on(folded, events[done:], stop, past)
    return steps, folded


@dataclass(frozen=True, slots=True)
class _Step:
    """A structural event, the revision after it, and how many events it forgot."""

    event: Event
    record: Record
    forgotten: int


def _count_shown(folded: ViewFold) -> int:
    """Return the number of shown events in the log."""
    return sum(event.id >= 0 for event in folded.state.items)


def _superfluous(stored: Record) -> Finding:
    return Finding(stored.version, "the log has no structural event with this version")


def _problem(stored: Record, made: Record) -> str | None:
    if stored.code != CODE:
        return f"it was made by version {stored.code} of the fold; this is version {CODE}"
    if (stored.base, stored.body) != (made.base, made.body):
        return "it differs from the fold of the log"
    return None
