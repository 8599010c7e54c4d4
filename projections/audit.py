"""Fold a conversation from its first event, and compare every stored revision with the result, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventstore import Store
from eventstore.events import CondensationAction, Event, is_structural
from eventstore.transaction import Record, Snapshot
from projections.loading import CHUNK, Progress, StoredPast, read_changes
from projections.revision import EMPTY_FOLD, ViewFold, fold_on
from projections.revision_codec import CODE, PROJECTION

__all__ = ["Audit", "Finding", "Forgetting", "audit"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with the revision of one version. ``Views.rebuild`` replaces it."""

    version: int
    problem: str


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One condensation, and the number of events of the log that left the View with it. It brought ``version``.

    Its ``metadata`` holds what its condenser reported: ``reason``, ``outcome``, ``tokens_before``, ``tokens_after``, …
    """

    condensation: CondensationAction
    forgotten: int

    @property
    def version(self) -> int:
        return self.condensation.id + 1

    def said(self, key: str) -> Any:
        """Return a value of the metadata, None where the condenser did not report it."""
        return self.condensation.metadata.get(key)


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit of one conversation found. ``missing`` counts revisions that are not stored yet: a writer without
    the projection appended their events. They are not a finding, since the next reader stores them.
    """

    conversation: str
    version: int
    revisions: int
    missing: int
    forgettings: tuple[Forgetting, ...]
    findings: tuple[Finding, ...]


def audit(store: Store, conversation: str, progress: Progress | None = None) -> Audit:
    """Fold a conversation from its first event, and compare with every stored revision.

    Raises what ``Views.current`` raises. Cost: the log; memory grows with the number of condensations alone.
    """
    with store.snapshot(conversation) as snapshot:
        stored = {record.version: record for record in snapshot.records(PROJECTION)}
        damaged = set(snapshot.damaged_records(PROJECTION))
        forgettings: list[Forgetting] = []
        findings: list[Finding] = []
        made: list[int] = []
        for step in _steps(snapshot, progress):
            made.append(step.record.version)
            problem = _problem(stored.get(step.record.version), step.record)
            if problem:
                findings.append(Finding(step.record.version, problem))
            if isinstance(step.event, CondensationAction):
                forgettings.append(Forgetting(step.event, step.forgotten))
        findings += [Finding(version, "its bytes were changed after it was stored") for version in damaged]
        findings += [
            Finding(version, "the log has no condensation or request that brought this version")
            for version in stored.keys() - set(made)
        ]
        last_stored = max(stored, default=0)
        holes = [version for version in made if version < last_stored and version not in stored.keys() | damaged]
        findings += [Finding(version, "it is missing, and later ones are stored") for version in holes]
        missing = sum(version not in stored.keys() | damaged for version in made)
        return Audit(
            conversation,
            snapshot.version,
            len(stored),
            missing,
            tuple(forgettings),
            tuple(sorted(findings, key=lambda finding: finding.version)),
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """A structural event, the revision that it brings, and how many events it forgot."""

    event: Event
    record: Record
    forgotten: int


def _steps(snapshot: Snapshot, progress: Progress | None) -> Iterator[_Step]:
    folded, past = EMPTY_FOLD, StoredPast(snapshot, stored=False)
    while folded.version < snapshot.version:
        stop = min(snapshot.version, folded.version + CHUNK)
        events = read_changes(snapshot, folded.version, stop)
        done = 0
        for place, event in enumerate(events):
            if is_structural(event):
                before, _ = fold_on(folded, events[done:place], event.id, past)
                folded, (record,) = fold_on(before, [event], event.id + 1, past)
                yield _Step(event, record, _count_shown(before) - _count_shown(folded))
                done = place + 1
        folded, _ = fold_on(folded, events[done:], stop, past)
        if progress is not None:
            progress(stop, snapshot.version)


def _count_shown(folded: ViewFold) -> int:
    """Return how many events of the log are shown."""
    return sum(event.id >= 0 for event in folded.state.items)


def _problem(stored: Record | None, made: Record) -> str | None:
    if stored is None:
        return None
    if stored.code != CODE:
        return f"it was made by version {stored.code} of the fold; this is version {CODE}"
    if (stored.base, stored.body) != (made.base, made.body):
        return "it differs from the fold of the log"
    return None
