"""This module measures the Views of a conversation: the tokens of the View at each version, and the
largest prompt. The measures are stored, so that a later call counts only the new events.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from foldlog._reports.figures.context_limit import ContextUse
from foldlog._reports.figures.tokens import event_tokens
from foldlog._reports.figures.unchanged import is_as_in
from foldlog.eventstore import ConversationRow, Event, EventStoreError, Store
from foldlog.eventstore.cached_values import cached_records
from foldlog.eventstore.events import MAY_BE_STRUCTURAL, is_structural
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Record
from foldlog.projections import Views
from foldlog.projections.conversations.unreadable import sound
from foldlog.projections.units import Units, UnitsSoFar, fit_positions

VIEW_SIZES: Final = "view_sizes"
_CODE: Final = 1
"""The version of the code that counts tokens. Measures of another version are counted again."""
_FEW: Final = 8
"""After so many new events, the sizes of all Views are computed again from the counted tokens,
which is faster than to look at a View for each new event.
"""


class Measures(msgspec.Struct, array_like=True):
    """The measures of a conversation up to a version.

    ``tokens``  the tokens of each event; an event with 0 tokens is counted again
    ``sizes``   the tokens of the View at each version, from version 0 on
    """

    version: int = 0
    tokens: bytes = b""
    sizes: bytes = b""
    use: ContextUse = msgspec.field(default_factory=ContextUse)

    @property
    def is_whole(self) -> bool:
        """Whether no event and no version lacks its number, as in a record that was changed."""
        size = array("I").itemsize
        lengths = (len(self.tokens), len(self.sizes))
        return lengths == (size * self.version, size * (self.version + 1))


def counted_tokens(store: Store, row: ConversationRow) -> dict[int, int]:
    """Return the tokens of the events that were counted before, by the ids of the events."""
    return _by_id(_stored(store, row))


class ViewMeasuring:
    """Reads the stored measures of a conversation, and the events since then.

    ``use``  the prompts of the conversation, of which only the largest is known
    """

    def __init__(self, store: Store, row: ConversationRow) -> None:
        self._store = store
        self._row = row
        self._earlier = _stored(store, row)
        self._tokens = _by_id(self._earlier)
        self._findings = list[str]()
        log = sound(store, row.id, self._earlier.version, row.version, self._findings)
        self._new = [logged.event for logged in log]
        self.use = self._earlier.use
        for event in self._new:
            self.use.note(event)

    def sizes(self, views: Views) -> tuple[int, ...]:
        """Return the tokens of the View at each version, and store the measures. Raises
        ``EventStoreError`` if an event cannot be read. Cost: about 8 bytes for each event are read
        and written. If one of the new events condenses the View or takes events back, or if there
        are many new events, all events are read.
        """
        sizes = self._sizes_after(views)
        if sizes is None:
            sizes = array("I", views.lifetimes(self._row.id, self._count).sizes)
        version = self._row.version
        if len(sizes) == version + 1 and not self._findings:
            tokens = array("I", (self._tokens.get(event_id, 0) for event_id in range(version)))
            use = self.use.without_small_prompts()
            _write(self._store, self._row, Measures(version, bytes(tokens), bytes(sizes), use))
        return tuple(sizes)

    def _count(self, event: Event) -> int:
        if event.id not in self._tokens:
            self._tokens[event.id] = event_tokens(event)
        return self._tokens[event.id]

    def _sizes_after(self, views: Views) -> array[int] | None:
        """Return the sizes of all Views, or None if the sizes of the new Views do not follow from
        the present View. Cost: the new events, and the units that they extend, such as a reply
        whose calls they answer.
        """
        new = self._new
        count_shown = sum(event.shown for event in new)
        if not self._earlier.version or count_shown > _FEW:
            return None
        if any(type(event) in MAY_BE_STRUCTURAL and is_structural(event) for event in new):
            return None
        view = views.current(self._row.id)
        if view.version != self._row.version or view.state.register is not None:
            return None
        sizes = _numbers(self._earlier.sizes)
        # Without structural events, new events only join the end of the View.
        end = len(view.events) - count_shown
        begin = _begin_of_units_across(view.units, end)
        so_far = UnitsSoFar(view.left_behind)
        last = view.events[begin:]
        so_far.read(last[: end - begin])
        before = sizes[-1] - self._fit_tokens(last, so_far)
        for event in new:
            if event.shown:
                so_far.read([event])
                sizes.append(before + self._fit_tokens(last, so_far))
            else:
                sizes.append(sizes[-1])
        return sizes

    def _fit_tokens(self, events: Sequence[Event], so_far: UnitsSoFar) -> int:
        return sum(self._count(events[position]) for position in fit_positions(so_far.units()))


def find_wrong_sizes(store: Store, views: Views, row: ConversationRow) -> Iterator[str]:
    """Yield a problem if the stored measures of a conversation differ from its events. Raises the
    errors of reading. Cost: without stored measures, a look at their row; else reading all events.
    """
    measures = _stored(store, row)
    if row.unmade or not measures.version:
        return  # no reader uses the measures before all events are made
    use = ContextUse()
    tokens = array("I")
    for _, event in sound(store, row.id, 0, measures.version, []):
        use.note(event)
        tokens.append(event_tokens(event))
    stored_tokens = _numbers(measures.tokens)
    sizes = views.lifetimes(row.id, event_tokens).sizes[: measures.version + 1]
    has_tokens = len(stored_tokens) == len(tokens) and all(
        stored in (0, counted) for stored, counted in zip(stored_tokens, tokens, strict=True)
    )
    has_sizes = [*_numbers(measures.sizes)] == [*sizes]
    if not (has_tokens and has_sizes and measures.use == use.without_small_prompts()):
        yield "the stored sizes of its Views differ from its events; statistics may be wrong"


def _begin_of_units_across(units: Units, position: int) -> int:
    """Return the last position up to ``position`` at which no unit of a View goes on."""
    # The events of a bond begin a loop, so they are in it.
    parts = [*(calls.members for calls in units.parallel_calls), *units.loops]
    while across := [part for part in parts if part[0] < position <= part[-1]]:
        position = min(part[0] for part in across)
    return position


def _stored(store: Store, row: ConversationRow) -> Measures:
    """Return the stored measures of a conversation. Return empty measures if there are none, if
    another version of the code counted them, if they are of a later version than ``row``, or if
    they are damaged.
    """
    _, record = cached_records(store, VIEW_SIZES, row.id, row.id).get(row.id, (0, None))
    if record is None or record.code != _CODE:
        return Measures()
    with suppress(ValueError):
        measures = msgspec.msgpack.decode(record.body, type=Measures)
        if measures.is_whole and measures.version <= row.version:
            return measures
    return Measures()


def _write(store: Store, row: ConversationRow, measures: Measures) -> None:
    """Store measures, unless another process is writing, the store is read-only, or the
    conversation has changed.
    """
    database = store.database

    def write(transaction: Transaction) -> None:
        conversation = database.find(transaction, row.id, as_stored=True)
        if conversation is None or not is_as_in(row, conversation):
            return
        if database.settings.keys is not None and conversation.sealed_key is None:
            return  # the conversation must be encrypted first
        writing = WriteTransaction(transaction, conversation, database)
        record = Record(row.version, _CODE, msgspec.msgpack.encode(measures))
        writing.put_records(VIEW_SIZES, [record], replace_all=True)
        writing.end()

    with suppress(EventStoreError):
        database.recorder.offer(write)


def _by_id(measures: Measures) -> dict[int, int]:
    """Return the counted tokens by the ids of their events."""
    tokens = enumerate(_numbers(measures.tokens))
    return {event_id: count for event_id, count in tokens if count}


def _numbers(packed: bytes) -> array[int]:
    """Return the numbers that ``Measures`` has as bytes."""
    numbers = array("I")
    numbers.frombytes(packed)
    return numbers
