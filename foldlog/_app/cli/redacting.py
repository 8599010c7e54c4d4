"""The work of ``foldlog store redact``: choose the events, redact them, and report the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.selection import pairs
from foldlog._app.cli.stores import require_id
from foldlog._app.cli.vacuuming import vacuum_pending
from foldlog._privacy.erasing import conversations_with, not_searched_words
from foldlog._privacy.matching import Holds, holding
from foldlog._privacy.redacting import Chosen, Problem, Redacting
from foldlog._reports.words.gist import count
from foldlog.eventstore import CannotRedact, ConversationRow, CorruptEvent, Store
from foldlog.eventstore.arguments import check_reason
from foldlog.eventstore.maintenance.redact import RedactionReceipt
from foldlog.projections.conversations.companions import with_companions


def holds_of(matching: str | None, *, secrets: bool) -> Holds | None:
    """Return a function that checks whether a text contains ``matching``, or a secret if
    ``secrets`` is true. Return None without a text and without ``secrets``. Raises ``Refused`` for
    both together, and ``InvalidOption`` if the extra for secrets is not installed.
    """
    if not secrets:
        return None if matching is None else holding(matching)
    if matching is not None:
        raise Refused("use --secrets or --matching, not both")
    from foldlog._reports.search.secrets import holds_secret

    holds_secret("")  # raises InvalidOption without the extra, before anything is read
    return holds_secret


class Search(NamedTuple):
    """A search for events to redact. The criteria are a text or secrets, the age of events, and
    attributes of conversations.
    """

    holds: Holds | None
    before: datetime | None
    where: Sequence[str]

    @property
    def is_asked_for(self) -> bool:
        return self.holds is not None or self.before is not None or bool(self.where)


def check_request(
    search: Search,
    conversation: str | None,
    events: Sequence[int],
    reason: str,
    by: str | None,
) -> None:
    """Raise ``Refused`` if the receipt would contain the text to redact, or if the user neither
    named events nor searched for them, or did both.
    """
    check_reason(reason, "receipt")
    matches = search.holds
    if matches is not None and (matches(reason) or matches(by or "")):
        raise Refused(
            "the reason, or the name after --by, contains the text to redact, and the receipt "
            "would store it; use other words"
        )
    names_events = bool(events)
    is_one_of_both = names_events != search.is_asked_for
    if not is_one_of_both or (names_events and conversation is None):
        raise Refused(
            "either name events by their ids, or search for them by --matching, --older-than or "
            "--where"
        )


def redacting_of(store: Store, conversation: str | None, search: Search) -> Redacting:
    """Return a ``Redacting`` for the events of a search, or for the events that the user named."""
    rows = []
    damaged = dict[str, CorruptEvent]()
    if search.is_asked_for:
        rows = _conversations_of(store, conversation, search.where, damaged)
    everywhere = conversation is None and not search.where
    named = None if conversation is None else require_id(store, conversation)
    redacting = Redacting(
        store, rows, search.holds, search.before, everywhere=everywhere, conversation=named
    )
    redacting.problems |= not_searched_words(damaged)
    return redacting


class RedactionResult(NamedTuple):
    """The result of a redaction.

    ``receipt_by_event``  the redacted events with their first receipts
    ``stay``              places that still hold the content
    ``sentence``          a sentence with the number of redacted events; empty for a dry run
    ``pending``           a sentence about remaining bytes, and how to remove them; empty if no
                          bytes remain
    """

    receipts: Sequence[RedactionReceipt] = ()
    receipt_by_event: Mapping[tuple[str, int], RedactionReceipt] = MappingProxyType({})
    stay: Sequence[Problem] = ()
    sentence: str = ""
    pending: str = ""


def redact_chosen(
    redacting: Redacting,
    chosen: Chosen,
    reason: str,
    by: str | None,
    named: Mapping[str, Sequence[int]],
    *,
    with_summaries: bool,
    no_vacuum: bool,
) -> RedactionResult:
    """Redact the chosen events, and vacuum the store. After a search for a text, search again,
    because some places may still contain the text.
    """
    total = sum(map(len, chosen.events.values()))
    try:
        with terminal.working("redacting", "events", total) as update:
            receipts, stay = redacting.redact(
                chosen,
                reason=reason,
                by=by,
                with_summaries=with_summaries,
                asked=named,
                on_events=lambda advance: update(advance=advance),
            )
    except CannotRedact as error:
        raise Refused(str(error)) from error
    if redacting.holds is not None:
        stay += redacting.find_remaining()
    receipt_by_event = _taken_by(receipts, with_summaries=with_summaries)
    sentence = f"{what_words(len(receipt_by_event), chosen)} redacted"
    pending = ""
    if receipts or chosen.beside or chosen.streams:
        pending = vacuum_pending(
            redacting.store, sentence, "the redacted content", no_vacuum=no_vacuum
        )
    return RedactionResult(receipts, receipt_by_event, stay, sentence, pending)


def _conversations_of(
    store: Store,
    conversation: str | None,
    where: Sequence[str],
    damaged: dict[str, CorruptEvent],
) -> list[ConversationRow]:
    """Return the conversations of a search. ``damaged`` is as in ``conversations_with``. Raises
    ``Refused``.
    """
    if conversation is None:
        return conversations_with(store, pairs(list(where)), and_shared=True, damaged=damaged)
    if where:
        raise Refused("use ID or --where, not both")
    return with_companions(store, [store.conversation(require_id(store, conversation))])


def what_words(events: int, chosen: Chosen) -> str:
    """Say what is redacted, such as ``3 events and 1 stream``, or ``0 events`` for nothing."""
    words = [count(events, "event")] if events or not (chosen.streams or chosen.beside) else []
    if chosen.streams:
        words.append(count(sum(map(len, chosen.streams.values())), "stream"))
    if chosen.beside:
        sources = count(len(chosen.beside), "source")
        words.append(f"everything outside the records of {sources}")
    return " and ".join(words)


def _taken_by(
    receipts: Sequence[RedactionReceipt], *, with_summaries: bool
) -> dict[tuple[str, int], RedactionReceipt]:
    """Return the first receipt of each redacted event and of each redacted summary."""
    receipt_by_event: dict[tuple[str, int], RedactionReceipt] = {}
    for receipt in receipts:
        events = [(receipt.conversation, event_id) for event_id in receipt.event_ids]
        summaries = [
            (quote.conversation, quote.event_id) for quote in receipt.quotes if with_summaries
        ]
        for key in (*events, *summaries):
            receipt_by_event.setdefault(key, receipt)
    return receipt_by_event
