"""What ``foldlog store verify`` found so far, and its document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from foldlog._documents import (
    CheckedDocument,
    LossDocument,
    RevisionDocument,
    VerdictDocument,
    ViewsDocument,
)
from foldlog._maintenance import Verdict
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.inside import from_microseconds
from foldlog.projections import Views, audit


class Checks:
    """The checks so far, and their findings."""

    def __init__(self) -> None:
        self.conversations = self.events = self.records = self.erased = self.unchecked = (
            self.revisions
        ) = 0
        self.damaged = False
        self.newest: str | None = None
        self.findings: list[tuple[str | None, str]] = []

    def count(
        self, verdicts: Iterator[Verdict], update: Callable[..., object]
    ) -> Iterator[Verdict]:
        """Yield the verdicts on conversations; count the verdict on the database as well."""
        for verdict in verdicts:
            self.findings += [(verdict.conversation, str(finding)) for finding in verdict.findings]
            self.damaged |= not all(
                finding.needs_key or finding.unfinished for finding in verdict.findings
            )
            if verdict.conversation is None:
                continue
            self.newest = verdict.conversation
            if any(finding.needs_key for finding in verdict.findings):
                self.unchecked += 1
            elif verdict.erasure is None:
                self.conversations += 1
                self.events += verdict.events
                self.records += verdict.pending
                update(advance=verdict.events)
            else:
                self.erased += 1
            yield verdict

    def check_views(
        self, store: Store, verdict: Verdict, *, repair: bool
    ) -> ViewsDocument | msgspec.UnsetType:
        """Compare the stored revisions of a sound conversation with its events, after a repair;
        keep what differs.
        """
        name = verdict.conversation
        has_rows = verdict.erasure is None and verdict.version and not verdict.archived
        if name is None or verdict.findings or not has_rows:
            return msgspec.UNSET
        try:
            if repair:
                Views(store).rebuild(name)
            audited = audit(store, name)
        except EventStoreError as error:
            self.findings.append((name, str(error)))
            return msgspec.UNSET
        self.revisions += audited.revisions
        for found in audited.findings:
            self.findings.append((name, f"revision of version {found.version}: {found.problem}"))
        return ViewsDocument.of(audited, findings=tuple(map(RevisionDocument.of, audited.findings)))

    def summary(self) -> dict[str, Any]:
        """Return the fields of the document that are known at the end."""
        return {
            "checked": CheckedDocument.of(self),
            "unchecked": self.unchecked,
            "database": tuple(finding for name, finding in self.findings if name is None),
            "sound": not self.findings,
        }


def verdict_document(verdict: Verdict, views: ViewsDocument | msgspec.UnsetType) -> VerdictDocument:
    """Return the document of a verdict on a conversation."""
    erasure = verdict.erasure
    return VerdictDocument(
        conversation=verdict.conversation,
        version=verdict.version,
        head=None if verdict.head is None else verdict.head.hex(),
        status=_status(verdict),
        findings=tuple(map(LossDocument.of, verdict.findings)),
        generation=verdict.generation or msgspec.UNSET,
        erased_at=msgspec.UNSET
        if erasure is None
        else from_microseconds(erasure.erased_at).isoformat(),
        erased_reason=msgspec.UNSET if erasure is None else erasure.reason,
        views=views,
    )


def _status(verdict: Verdict) -> str:
    if any(finding.needs_key for finding in verdict.findings):
        return "unchecked"
    if verdict.findings:
        return "damaged"
    return "sound" if verdict.erasure is None else "erased"
