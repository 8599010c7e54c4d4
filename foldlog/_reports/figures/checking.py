"""Compare stored figures with figures that are counted again from the events and records.

Figures are not under the heads of events, so who can write the store can change them. Lists, totals
and reports then show numbers and titles that the events do not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from foldlog._reports.figures.blocks import find_wrong_sums
from foldlog._reports.figures.counting import Figures, figures_of
from foldlog._reports.figures.keeping_up import FigureCounter, read_state
from foldlog._reports.figures.settled_replies import EarlierChanged, StateIncomplete, read_blocks
from foldlog._reports.figures.tables import UNREADABLE, FigureTables, StoredFigures, text_of
from foldlog._reports.figures.writing import CODE, as_unsigned, put_figures, put_replies
from foldlog._reports.words.gist import count
from foldlog.eventstore import ConversationRow, Store
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.recorders.types import Conversation
from foldlog.projections import Views

_CHANGED = "its stored figures differ from its events in {}; lists and totals may be wrong"
_STATE_CHANGED = (
    "the stored state of its figures differs from its events; lists and totals may be wrong"
)
_UNREADABLE = f"{UNREADABLE}; lists and totals may be wrong"
_ROUNDED = 1e-9
"""Sums of costs differ by this share at most, because they were added up in another order."""


def find_wrong_figures(store: Store, views: Views, conversation: str) -> Iterator[str]:
    """Yield what is wrong with the stored figures of a conversation, and with the state from which
    a reader counts on. Figures that are missing or outdated are not compared, see
    ``find_wrong_totals``; nor are the figures of an archived conversation.

    Raises ``KeyUnavailable`` and the errors of reading. Cost: counting the conversation, and its
    events since the stored state from which the next reader counts on.
    """
    database = store.database
    state = database.recorder.query(
        lambda reader: database.find(reader, conversation, as_stored=True)
    )
    if state is None or state.erasure is not None or state.archived:
        return
    tables = FigureTables(database)
    try:
        stored = _fields(tables, database.recorder, state)
    except ValueError:  # a name that is not UTF-8
        yield _UNREADABLE
        return
    if stored.get("texts", {}).get("problem") == UNREADABLE:
        yield _UNREADABLE
        return
    row = store.conversation(conversation, as_stored=True)
    if row.version != state.version:
        return  # another process has appended since
    counted = _counted_again(store, views, row)
    if not counted.is_sound:
        return  # a damaged event is a finding of its own
    earlier = None if row.unmade else read_state(store, conversation)
    if earlier is not None and not _is_state_of(store, views, row, earlier, counted):
        yield _STATE_CHANGED
    if stored.pop("code", None) != CODE or stored["version"] != state.version:
        return
    with closing(MemoryRecorder()) as memory:
        memory.transact(partial(_put, tables=tables, state=state, figures=counted, stored=stored))
        expected = _fields(FigureTables(database), memory, state)
    different = [name for name in stored if not _is_same(stored[name], expected.get(name))]
    if different:
        yield _CHANGED.format(", ".join(sorted(different)))


def forget_figures(store: Store, conversation: str) -> None:
    """Delete the stored figures of a conversation. The next reader counts them again."""

    def forget(transaction: Transaction) -> None:
        state = store.database.find(transaction, conversation, as_stored=True)
        if state is not None:
            transaction.forget_figures(state.key)

    store.database.recorder.transact(forget)


def find_wrong_totals(store: Store) -> Iterator[str]:
    """Yield what is wrong with the figures of the whole store: sums of blocks of conversations,
    figures of conversations that are not there, and figures that are missing or outdated although
    the next reader does not count them.
    """
    recorder = store.database.recorder
    orphans = sum(
        number for (number,) in recorder.query(lambda reader: reader.ask_all("figures_of_none"))
    )
    if orphans:
        yield (
            f"the store has the figures of {count(orphans, 'conversation')} that it does not have;"
            " totals may be wrong"
        )
    counter = FigureCounter(store, FigureTables(store.database), None, lambda events: None)
    overlooked = counter.overlooked()
    if overlooked:
        yield (
            f"the figures of {count(overlooked, 'conversation')} are missing or outdated, and no"
            " later change says so; totals may be wrong"
        )
    blocks = recorder.query(find_wrong_sums)
    if blocks:
        yield (
            f"the stored sums of {count(len(blocks), 'block')} of conversations differ from their"
            " figures; totals may be wrong"
        )


def _counted_again(store: Store, views: Views, row: ConversationRow) -> Figures:
    """Count a conversation from its first event or record on, without stored counts."""
    from foldlog._reports.figures.of_sources import pending_figures  # loads all formats

    if not row.unmade:
        return figures_of(store, views, row)
    figures = pending_figures(store, row.id, again=True)
    figures.version = row.version
    return figures


def _is_state_of(
    store: Store, views: Views, row: ConversationRow, state: Figures, counted: Figures
) -> bool:
    """Return whether a stored state and its blocks lead to the figures that were counted."""
    try:
        blocks = read_blocks(store, row.id, state.spending.settled.count)
        counted_on = figures_of(store, views, row, state)
    except EarlierChanged:
        return True  # the next reader counts all events again
    except StateIncomplete:
        return False
    expected, all_blocks = counted.to_count_on()
    present, _ = counted_on.to_count_on()
    return _is_same(_plain_of(present), _plain_of(expected)) and all(
        _is_same(_plain_of(block), _plain_of(expected_block))
        for block, expected_block in zip(blocks, all_blocks, strict=False)
    )


def _plain_of(value: Any) -> Any:
    return to_builtins(value, str_keys=True)


def _put(
    transaction: Transaction,
    tables: FigureTables,
    state: Conversation,
    figures: Figures,
    stored: Mapping[str, Any],
) -> None:
    """Write figures as the store would, with the repeated replies that ``stored`` has."""
    database = tables.database
    data_key = database.codec_of(state).data_key
    keys = database.settings.keys
    put_figures(transaction, state, data_key, keys, figures)
    replies = {
        reply: figures.replies[reply]
        for reply in stored["repeated replies"]
        if reply in figures.replies
    }
    put_replies(transaction, state, data_key, keys, replies)


def _fields(tables: FigureTables, recorder: Recorder, state: Conversation) -> dict[str, Any]:
    """Return the figures of a conversation by the names of their columns."""

    def read(reader: Reader) -> tuple[Any, ...]:
        chosen = json.dumps([state.key])
        statements = ("figures_of", "hashes_of_replies", "figure_calls_of", "figure_counts_of")
        return *(reader.ask_all(name, chosen) for name in statements), reader.ask_all(
            "figure_replies_among", chosen
        )

    rows, hashes, calls, counts, replies = recorder.query(read)
    if not rows:
        return {}
    figures: StoredFigures = tables.read_rows(rows)[state.key]
    columns = figures.columns._asdict()
    for name in ("format", "state"):
        columns[name] = None if columns[name] is None else text_of(columns[name])
    return {
        **columns,
        "id": figures.id,
        "texts": asdict(figures.texts),
        "replies": [bytes(packed) for _, packed in hashes],
        "calls": sorted(([*map(_plain, row[1:])] for row in calls), key=repr),
        "counts": {(text_of(what), text_of(name)): number for what, name, number in counts},
        "repeated replies": {
            as_unsigned(reply): [*map(_plain, columns)] for reply, _, *columns in replies
        },
    }


def _plain(column: Any) -> Any:
    return text_of(column) if isinstance(column, bytes) else column


def _is_same(stored: Any, expected: Any) -> bool:
    """Return whether values are equal. Numbers may differ by rounding."""
    match stored, expected:
        case (bool() | int() | float(), bool() | int() | float()):
            try:
                return math.isclose(stored, expected, rel_tol=_ROUNDED, abs_tol=_ROUNDED)
            except OverflowError:  # a whole number that is larger than any float
                return bool(stored == expected)
        case dict(), dict():
            return stored.keys() == expected.keys() and all(
                _is_same(value, expected[name]) for name, value in stored.items()
            )
        case (list() | tuple(), list() | tuple()):
            return len(stored) == len(expected) and all(map(_is_same, stored, expected))
    return bool(stored == expected)
