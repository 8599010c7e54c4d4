"""``foldlog bench``: measure how fast your own histories open and rebuild."""

from __future__ import annotations

import heapq
import statistics
import timeit
from collections.abc import Callable
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog._cli.outcome import is_of_damage
from foldlog._cli.stores import chosen, listed, open_existing
from foldlog._cli.tables import Column, print_rows
from foldlog._documents import BenchDocument, MeasuredDocument
from foldlog.eventstore import EventStoreError, Store, UnknownEventType
from foldlog.projections import View, Views

_LONGEST = 10
"""The number of conversations that are measured if none are named."""


def run(
    conversations: SomeConversations = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="How often to measure each conversation; the median is shown.")
    ] = 5,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Measure how fast Views of your own conversations open, now and in the past, compared with folding all events.

    The Views are compared first: exit status 1 if one differs from the fold of its events. Only the events of
    an import at its first use are written.

    Example: foldlog bench --rounds 9
    """
    with open_existing(db) as store, terminal.working("measuring", "conversations") as update:
        names = list(chosen(store, conversations)) if conversations else []
        if not names:
            rows = heapq.nlargest(_LONGEST, listed(store), key=lambda row: row.version)
            names = [row.id for row in rows if row.erased_at is None]
        update(total=len(names))
        measured = []
        for name in names:
            try:
                measured.append(_measured(store, name, rounds))
            except EventStoreError as error:
                if not (is_of_damage(error) or isinstance(error, UnknownEventType)):
                    raise
                terminal.unread(terminal.about(name, str(error)))
            update(advance=1)
    terminal.answer(BenchDocument(rounds=rounds, conversations=tuple(measured)), lambda: _show(measured))
    for one in measured:
        if not one.agrees:
            named = f"conversation {one.conversation!r}"
            terminal.warn(f"{named}: its View differs from the fold of its events; run 'foldlog audit'")


def _measured(store: Store, conversation: str, rounds: int) -> MeasuredDocument:
    version = store.version(conversation)
    view = Views(store).current(conversation)
    folded = View.from_events(store.events(conversation, 0, view.version))
    open_s = _median(lambda: Views(store).current(conversation).events, rounds)
    past_s = _median(lambda: Views(store).at(conversation, version // 2).events, rounds)
    fold_s = _median(lambda: View.from_events(store.events(conversation)), rounds)
    return MeasuredDocument(
        conversation=conversation,
        version=version,
        view=len(view),
        open_ms=1_000 * open_s,
        past_ms=1_000 * past_s,
        rebuild_ms=1_000 * fold_s,
        rebuild_events_per_s=version / fold_s,
        times_faster=fold_s / open_s,
        agrees=view == folded,
    )


def _median(work: Callable[[], object], rounds: int) -> float:
    return statistics.median(timeit.repeat(work, number=1, repeat=rounds))


def _show(measured: list[MeasuredDocument]) -> None:
    if not measured:
        terminal.say("No conversations to measure.")
    headings = ("events", "View", "open", "past", "fold all", "events/s", "faster")
    columns = (Column("conversation", least=24), *(Column(heading, "right", may_go=True) for heading in headings))
    rows = [
        (
            terminal.typed_id(one.conversation),
            f"{one.version:,}",
            f"{one.view:,}",
            f"{one.open_ms:.2f} ms",
            f"{one.past_ms:.2f} ms",
            f"{one.rebuild_ms:.1f} ms",
            f"{one.rebuild_events_per_s:,.0f}",
            f"{one.times_faster:.1f} ×",
        )
        for one in measured
    ]
    print_rows(columns, rows)
