"""Print the result of a check of a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from foldlog._app.cli import terminal
from foldlog._app.cli.verify_findings import Checks
from foldlog._reports.words.gist import count
from foldlog.eventstore.events import Redaction
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.maintenance.verify import Later
from foldlog.maintenance import Verdict


def show_outcome(checks: Checks, stamped_at: datetime | None, *, with_views: bool) -> None:
    """Print what was checked, and whether changes were found."""
    if stamped_at is not None:
        terminal.say(f"The checkpoint existed at {stamped_at:%Y-%m-%d %H:%M:%S} UTC.")
    if checks.findings:
        outcome = f"{count(len(checks.findings), 'finding')}, named above"
    elif checks.not_checked:
        outcome = "no changes found in what could be checked"
    else:
        outcome = "no changes found"
    unmade = ""
    if checks.records:
        unmade = f" and {count(checks.records, 'record')} without events"
    words = (
        f"{count(checks.conversations, 'conversation')} with"
        f" {count(checks.events, 'event')}{unmade} checked"
    )
    if with_views:
        words += f", {count(checks.revisions, 'stored View')} compared"
    if checks.unchecked:
        words += f", {checks.unchecked:,} not checked because a key is missing"
    terminal.say_wrapped(f"{words}: {outcome}.")
    if checks.later is not None:
        terminal.say_wrapped(_later_in_words(checks.later))
        if checks.unchecked:
            terminal.say_wrapped(
                "Without the key of a conversation, the number, order, kinds and times of its"
                " events were compared, if no line above says otherwise, but not their contents."
            )
        if not with_views:
            terminal.say_wrapped(
                "Stored Views, and the figures and attributes in lists, were not compared with the"
                " events: --views compares them."
            )


def show_erased(verdict: Verdict) -> None:
    """Print the erasure of a conversation, if it was erased."""
    if verdict.erasure is not None:
        name = terminal.typed_id(verdict.conversation or "")
        reason = verdict.erasure.reason
        when = from_microseconds(verdict.erasure.erased_at)
        events = count(verdict.erasure.events, "event")
        terminal.say_wrapped(
            f"{name}: erased at {when:%Y-%m-%d %H:%M:%S} UTC, with {events} ({reason})"
        )


def show_redacted(verdict: Verdict) -> None:
    """Print the events of a conversation that were redacted since the checkpoint."""
    name = terminal.typed_id(verdict.conversation or "")
    for receipt in verdict.redactions:
        events = _numbered("event", receipt.event_ids)
        terminal.say_wrapped(
            f"{name}: {events} redacted since the checkpoint by {receipt.by}"
            f" ({receipt.reason}); {_receipt_of(receipt)} is the receipt"
        )
    if verdict.redacted_unread:
        events = _numbered("event", verdict.redacted_unread)
        receipts = _numbered("event", verdict.receipts_unread)
        terminal.say_wrapped(
            f"{name}: {events} redacted since the checkpoint; receipts since then: {receipts};"
            " only the key shows by whom"
        )


def show_redacted_records(verdict: Verdict) -> None:
    """Print the records without events that were redacted since the checkpoint."""
    name = terminal.typed_id(verdict.conversation or "")
    if verdict.redacted_records:
        records = _numbered("record", verdict.redacted_records)
        terminal.say_wrapped(
            f"{name}: {records} of its source redacted since the checkpoint; a record"
            " without events has no receipt"
        )


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return numbers with their noun, such as ``event 3`` or ``events 3, 4``."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _later_in_words(later: Later) -> str:
    """Say what came after the checkpoint."""
    records = f", {count(later.records, 'source record')}" if later.records else ""
    return (
        f"After the checkpoint came {count(later.events, 'event')}{records},"
        f" {count(later.conversations, 'new conversation')} and {count(later.erased, 'erasure')}."
    )


def _receipt_of(redaction: Redaction) -> str:
    """Return the place of a receipt as text."""
    return "an entry of the ledger" if redaction.id < 0 else f"event {redaction.id}"
