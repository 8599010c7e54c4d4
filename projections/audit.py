"""Is what is stored of a View what the log says? Fold again from zero, and compare every revision, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventstore import Store
from eventstore.events import CondensationAction, Event, is_structural
from eventstore.transaction import Record, Snapshot
from projections.reading import CHUNK, Progress, changes
from projections.revising import NOTHING, Revised, revise
from projections.revisions import CODE, PROJECTION

__all__ = ["Audit", "Finding", "Forgetting", "audit"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with the revision of one version. ``Views.rebuild`` mends it."""

    version: int
    problem: str


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One condensation, and how many events of the log left the View with it. ``version`` is the one that it brought.

    What it says of itself (``reason``, ``outcome``, ``tokens_before``, ``tokens_after``, …) is in its ``metadata``.
    """

    condensation: CondensationAction
    forgotten: int

    @property
    def version(self) -> int:
        return self.condensation.id + 1

    def said(self, key: str) -> Any:
        """A value of the metadata, None where the condenser did not say."""
        return self.condensation.metadata.get(key)


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit of one conversation found. ``missing`` revisions are no finding: nobody asked for a View since a
    writer without the projection appended, and the next reader makes them.
    """

    conversation: str
    version: int
    revisions: int
    missing: int
    forgettings: tuple[Forgetting, ...]
    findings: tuple[Finding, ...]


def audit(store: Store, conversation: str, progress: Progress | None = None) -> Audit:
    """Fold a conversation again from its first event, and compare with every stored revision.

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
        findings += [Finding(version, "its bytes were changed since it was stored") for version in damaged]
        findings += [
            Finding(version, "there is no condensation or request that brought this version")
            for version in stored.keys() - set(made)
        ]
        last_stored = max(stored, default=0)
        holes = [version for version in made if version < last_stored and version not in stored.keys() | damaged]
        findings += [Finding(version, "it is missing, and later ones are there") for version in holes]
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
    revised = NOTHING
    while revised.version < snapshot.version:
        stop = min(snapshot.version, revised.version + CHUNK)
        events = changes(snapshot, revised.version, stop)
        done = 0
        for place, event in enumerate(events):
            if is_structural(event):
                before, _ = revise(revised, events[done:place], event.id)
                revised, (record,) = revise(before, [event], event.id + 1)
                yield _Step(event, record, _shown(before) - _shown(revised))
                done = place + 1
        revised, _ = revise(revised, events[done:], stop)
        if progress is not None:
            progress(stop, snapshot.version)


def _shown(revised: Revised) -> int:
    """How many events of the log are shown."""
    return sum(event.id >= 0 for event in revised.state.items)


def _problem(stored: Record | None, made: Record) -> str | None:
    if stored is None:
        return None
    if stored.code != CODE:
        return f"it was made by version {stored.code} of the fold, this is {CODE}"
    if (stored.base, stored.body) != (made.base, made.body):
        return "it is not what the log says"
    return None
