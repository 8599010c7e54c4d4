"""Collect the counts and findings of ``foldlog store verify``, and make its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.verification import (
    CheckedDocument,
    LaterDocument,
    LossDocument,
    RevisionDocument,
    VerdictDocument,
    ViewsDocument,
)
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.lists.checking import find_wrong_attributes
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.maintenance.verify import Later
from foldlog.eventstore.recorders.base import Transaction
from foldlog.maintenance import Verdict
from foldlog.projections import Views, audit


class Checks:
    """The counts and the findings of the checks so far.

    ``records``    the number of imported records without events
    ``unchecked``  conversations whose keys are missing
    ``damaged``    whether there is damage; a missing key and unfinished work are not damage
    ``newest``     the conversation that was checked last
    ``later``      what came after the checkpoint, if the store was compared with one
    ``findings``   pairs of a conversation and a finding; for a finding about the whole database,
                   the conversation is None
    ``not_checked``  pairs as in ``findings``: what could not be checked
    """

    def __init__(self) -> None:
        self.conversations = 0
        self.events = 0
        self.records = 0
        self.erased = 0
        self.unchecked = 0
        self.revisions = 0
        self.damaged = False
        self.newest: str | None = None
        self.later: Later | None = None
        self.findings: list[tuple[str | None, str]] = []
        self.not_checked: list[tuple[str | None, str]] = []

    def count(
        self, verdicts: Iterator[Verdict], update: Callable[..., object]
    ) -> Iterator[Verdict]:
        """Count all verdicts, and yield only the verdicts about conversations."""
        for verdict in verdicts:
            for finding in verdict.findings:
                if finding.needs_key or finding.unproved:
                    self.not_checked.append((verdict.conversation, str(finding)))
                else:
                    self.findings.append((verdict.conversation, str(finding)))
            self.damaged |= _is_damaged(verdict)
            if verdict.conversation is None:
                self.later = verdict.later or self.later
                continue
            self.newest = verdict.conversation
            if any(finding.needs_key for finding in verdict.findings):
                self.unchecked += 1
            elif verdict.erasure is None:
                self.conversations += 1
                self.events += verdict.events
                self.records += verdict.unmade
                update(advance=verdict.events)
            else:
                self.erased += 1
            yield verdict

    def with_views(
        self, store: Store, verdicts: Iterator[Verdict], *, repair: bool
    ) -> Iterator[tuple[Verdict, ViewsDocument | msgspec.UnsetType]]:
        """Yield each verdict with what ``check_views`` returns, then check the stored totals."""
        from foldlog._reports.figures.checking import find_wrong_totals  # loads all figures

        for verdict in verdicts:
            yield verdict, self.check_views(store, verdict, repair=repair)
        self.findings.extend((None, problem) for problem in find_wrong_totals(store))

    def check_views(
        self, store: Store, verdict: Verdict, *, repair: bool
    ) -> ViewsDocument | msgspec.UnsetType:
        """Compare the stored revisions and figures of an undamaged conversation with its events.
        Differences become findings. With ``repair``, first build the revisions again, and delete
        the figures, which the next reader counts again.
        """
        name = verdict.conversation
        is_present = verdict.erasure is None and not verdict.archived
        # What a checkpoint does not prove can be compared with the events all the same.
        is_sound = all(finding.unproved for finding in verdict.findings)
        if name is None or not (is_sound and is_present):
            return msgspec.UNSET
        try:
            if repair:
                Views(store).rebuild(name)
            self._check_figures(store, name, repair=repair)
            self._check_cached(store, name, repair=repair)
            if not verdict.version:
                return msgspec.UNSET
            report = audit(store, name)
        except EventStoreError as error:
            self.findings.append((name, str(error)))
            return msgspec.UNSET
        self.revisions += report.revisions
        for finding in report.findings:
            self.findings.append(
                (name, f"revision of version {finding.version}: {finding.problem}")
            )
        return ViewsDocument.of(report, findings=tuple(map(RevisionDocument.of, report.findings)))

    def _check_figures(self, store: Store, name: str, *, repair: bool) -> None:
        """Compare the figures, the attributes and the events of records of a conversation."""
        from foldlog._reports.figures.checking import find_wrong_figures, forget_figures
        from foldlog._reports.records.compared_exports import find_other_records_in_document
        from foldlog._reports.records.compared_imports import find_wrong_events_of_records

        if repair:
            forget_figures(store, name)
        problems = chain(
            find_wrong_attributes(store.database, name),
            find_wrong_figures(store, Views(store), name),
            find_wrong_events_of_records(store, name),
            find_other_records_in_document(store, name),
        )
        self.findings.extend((name, problem) for problem in problems)

    def _check_cached(self, store: Store, name: str, *, repair: bool) -> None:
        """Compare what readers cache beside the events of a conversation. With ``repair``, delete
        it first: the next reader makes it again.
        """
        from foldlog._app.server.pages import (
            NEEDED_AGAIN,
            find_wrong_documents,
            names_of_cached_pages,
        )
        from foldlog._history.to_resume import OPEN_CALLS, find_wrong_open_calls
        from foldlog._reports.figures.view_tokens import VIEW_SIZES, find_wrong_sizes

        def forget(transaction: Transaction) -> None:
            state = store.database.find(transaction, name, as_stored=True)
            if state is None:
                return
            pages = names_of_cached_pages(transaction, state.key)
            for projection in (OPEN_CALLS, VIEW_SIZES, NEEDED_AGAIN, *pages):
                transaction.put_records(state.key, projection, (), replace_all=True)

        if repair:
            store.database.recorder.transact(forget)
        views = Views(store)
        row = store.conversation(name, as_stored=True)
        problems = chain(
            find_wrong_open_calls(store, views, row),
            find_wrong_sizes(store, views, row),
            find_wrong_documents(store, row),
        )
        self.findings.extend((name, problem) for problem in problems)

    def summary(self) -> JsonObject:
        """Return the fields of the document that are final only after the last verdict."""
        summary: JsonObject = {
            "checked": CheckedDocument.of(self),
            "unchecked": self.unchecked,
            "database": tuple(finding for name, finding in self.findings if name is None),
            "sound": not (self.findings or self.not_checked),
        }
        if self.later is not None:
            summary["later"] = LaterDocument(**self.later._asdict())
        return summary


def verdict_document(verdict: Verdict, views: ViewsDocument | msgspec.UnsetType) -> VerdictDocument:
    """Return the document of a verdict."""
    erasure = verdict.erasure
    redacted = [event for receipt in verdict.redactions for event in receipt.event_ids]
    redacted += verdict.redacted_unread
    erased_at: str | msgspec.UnsetType = msgspec.UNSET
    if erasure is not None:
        erased_at = from_microseconds(erasure.erased_at).isoformat()
    return VerdictDocument(
        conversation=verdict.conversation,
        version=verdict.version,
        head=None if verdict.head is None else verdict.head.hex(),
        status=_status(verdict),
        findings=tuple(map(LossDocument.of, verdict.findings)),
        generation=verdict.generation or msgspec.UNSET,
        erased_at=erased_at,
        erased_reason=msgspec.UNSET if erasure is None else erasure.reason,
        redacted=tuple(redacted) or msgspec.UNSET,
        redacted_records=verdict.redacted_records or msgspec.UNSET,
        views=views,
    )


def _status(verdict: Verdict) -> str:
    """Return a verdict in one word. A conversation whose erasure is unfinished is erased."""
    if _is_damaged(verdict):
        return "damaged"
    if any(finding.needs_key or finding.unproved for finding in verdict.findings):
        return "unchecked"
    return "sound" if verdict.erasure is None else "erased"


def _is_damaged(verdict: Verdict) -> bool:
    """Return whether a finding is damage. A missing key, unfinished work, and what a checkpoint
    does not prove are not damage.
    """
    return not all(
        finding.needs_key or finding.unfinished or finding.unproved for finding in verdict.findings
    )
