"""Find what is to be redacted, and redact it: what foldlog store redact does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog._cli import terminal
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import pairs
from foldlog._cli.stores import whole
from foldlog._companions import with_companions
from foldlog._maintenance import conversations_with
from foldlog._matching import Holds, holding
from foldlog._redacting import (
    Chosen,
    Problem,
    Redacting,
)
from foldlog.eventstore import CannotRedact, ConversationRow, Store
from foldlog.eventstore.maintenance.redact import RedactionReceipt


def holds_of(matching: str | None, *, secrets: bool) -> Holds | None:
    """Return what finds the text or the secrets; None where neither is asked for. Raises
    ``InvalidOption`` where the extra that finds secrets is not installed.
    """
    if not secrets:
        return None if matching is None else holding(matching)
    if matching is not None:
        raise Refused("--secrets and --matching: give one of the two")
    from foldlog._secrets import holds_secret

    holds_secret("")
    return holds_secret


def redact_chosen(
    redacting: Redacting,
    chosen: Chosen,
    reason: str,
    by: str | None,
    asked: Mapping[str, Sequence[int]],
    *,
    with_summaries: bool,
) -> tuple[list[RedactionReceipt], list[Problem]]:
    total = sum(map(len, chosen.named.values()))
    try:
        with terminal.working("redacting", "events", total) as update:
            return redacting.redact(
                chosen,
                reason=reason,
                by=by,
                with_summaries=with_summaries,
                asked=asked,
                on_events=lambda number: update(advance=number),
            )
    except CannotRedact as error:
        raise Refused(str(error)) from error


def conversations_of(
    store: Store, conversation: str | None, where: Sequence[str] | None
) -> list[ConversationRow]:
    if conversation is None:
        return conversations_with(store, pairs(list(where or ())), and_shared=True)
    if where:
        raise Refused("ID and --where: give one of the two")
    return with_companions(store, [store.conversation(whole(store, conversation))])


def taken_by(
    receipts: Sequence[RedactionReceipt], *, with_summaries: bool
) -> dict[tuple[str, int], RedactionReceipt]:
    """Return the events that were redacted, with the first receipt of each: summaries of forks
    too.
    """
    taken: dict[tuple[str, int], RedactionReceipt] = {}
    for receipt in receipts:
        own = [(receipt.conversation, event_id) for event_id in receipt.event_ids]
        theirs = [
            (quote.conversation, quote.event_id) for quote in receipt.quotes if with_summaries
        ]
        for key in (*own, *theirs):
            taken.setdefault(key, receipt)
    return taken
