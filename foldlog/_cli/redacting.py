"""Find what is to be redacted, and redact it: what foldlog store redact does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from foldlog._cli import terminal
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import pairs
from foldlog._cli.stores import whole
from foldlog._cli.vacuuming import bytes_pending_words, bytes_stay_pending
from foldlog._companions import with_companions
from foldlog._maintenance import conversations_with
from foldlog._matching import Holds, holding
from foldlog._redacting import Chosen, Problem, Redacting, asked_for
from foldlog._words.gist import count
from foldlog.eventstore import CannotRedact, ConversationRow, Store
from foldlog.eventstore.inside import check_reason
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


class Search(NamedTuple):
    """What finds the events to redact: a text or secrets, an age, attributes of conversations."""

    holds: Holds | None
    before: datetime | None
    where: Sequence[str]

    @property
    def is_asked_for(self) -> bool:
        return self.holds is not None or self.before is not None or bool(self.where)


def check_asked(
    search: Search,
    conversation: str | None,
    events: Sequence[int],
    reason: str,
    by: str | None,
) -> None:
    """Raise ``Refused`` where the receipt would hold the text to redact, and unless either events
    are named or a search is asked for.
    """
    check_reason(reason, "receipt")
    holds = search.holds
    if holds is not None and (holds(reason) or holds(by or "")):
        raise Refused(
            "the reason, or the name after --by, holds the text to redact, and the receipt keeps it"
        )
    if bool(events) == search.is_asked_for or (events and conversation is None):
        raise Refused(
            "name events by their ids, or find them by --matching, --older-than or --where: one of"
            " the two"
        )


def redacting_of(store: Store, conversation: str | None, search: Search) -> Redacting:
    """Return what redacts, with the conversations that a search looks into."""
    rows = _conversations_of(store, conversation, search.where) if search.is_asked_for else []
    everywhere = conversation is None and not search.where
    return Redacting(store, rows, search.holds, search.before, everywhere=everywhere)


def choose_events(
    redacting: Redacting, conversation: str | None, events: Sequence[int], *, with_summaries: bool
) -> tuple[Chosen, dict[str, Sequence[int]]]:
    """Return what is to be redacted: the events of a conversation that are named, or those that
    are found; and the ids that are named, by their conversation.
    """
    with terminal.working("searching"):
        if not events:
            return redacting.choose(with_summaries=with_summaries), {}
        name = whole(redacting.store, conversation or "")
        named = {name: asked_for(redacting.store_of(name), name, events)}
        return redacting.choose(named, with_summaries=with_summaries), {name: events}


class RedactionResult(NamedTuple):
    """What a redaction did.

    ``taken``    the events that were redacted, with the first receipt of each
    ``stay``     what still holds the content
    ``done``     says how much was redacted; empty for a dry run
    ``pending``  says where bytes are left, and what removes them; empty where there are none
    """

    receipts: Sequence[RedactionReceipt] = ()
    taken: Mapping[tuple[str, int], RedactionReceipt] = MappingProxyType({})
    stay: Sequence[Problem] = ()
    done: str = ""
    pending: str = ""


def redact_chosen(
    redacting: Redacting,
    chosen: Chosen,
    reason: str,
    by: str | None,
    asked: Mapping[str, Sequence[int]],
    *,
    with_summaries: bool,
    no_vacuum: bool,
) -> RedactionResult:
    """Redact what was chosen, look again where a text was searched, and vacuum the store."""
    total = sum(map(len, chosen.named.values()))
    try:
        with terminal.working("redacting", "events", total) as update:
            receipts, stay = redacting.redact(
                chosen,
                reason=reason,
                by=by,
                with_summaries=with_summaries,
                asked=asked,
                on_events=lambda number: update(advance=number),
            )
    except CannotRedact as error:
        raise Refused(str(error)) from error
    if redacting.holds is not None:
        stay += redacting.look_again()
    taken = _taken_by(receipts, with_summaries=with_summaries)
    done = f"{what_words(len(taken), len(chosen.beside))} redacted"
    pending = ""
    if (receipts or chosen.beside) and bytes_stay_pending(
        redacting.store, done, no_vacuum=no_vacuum
    ):
        pending = bytes_pending_words(redacting.store, "it")
    return RedactionResult(receipts, taken, stay, done, pending)


def _conversations_of(
    store: Store, conversation: str | None, where: Sequence[str]
) -> list[ConversationRow]:
    if conversation is None:
        return conversations_with(store, pairs(list(where)), and_shared=True)
    if where:
        raise Refused("ID and --where: give one of the two")
    return with_companions(store, [store.conversation(whole(store, conversation))])


def what_words(events: int, sources: int) -> str:
    """Return how many events there are, and how many texts beside the records of sources."""
    if sources:
        beside = f" and what {count(sources, 'source')} held beside the records"
    else:
        beside = ""
    return f"{count(events, 'event')}{beside}"


def _taken_by(
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
