"""The usage and cost of the model calls in conversations. A table of prices gives the cost of a
call that records no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, field, to_builtins
from msgspec.structs import astuple, replace

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.figures import ModelDocument, SpentDocument
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.settled_replies import (
    Block,
    EarlierChanged,
    Settled,
    StateIncomplete,
    blocks_to_settle,
)
from foldlog._reports.figures.tools_of_replies import CountedReply, ToolCalls, ToolsOfReplies
from foldlog._reports.words.times import happened_at
from foldlog.eventstore import Event, Logged, ReadTransaction
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.usage import IMPORTED
from foldlog.formats.model_calls import (
    CallsReader,
    CallsTakenBack,
    ModelCall,
    calls_beside,
    calls_of_event,
)
from foldlog.formats.summed_calls import DIGITS, Calls, Curve, add_up, calls_in, hash_of_reply

D = TypeVar("D", bound=Document)


class _Growth:
    """Reads the replies before the present events.

    ``before``  the calls of each reply that the present events name, as they were before; None for
                a new reply
    """

    def __init__(self, read_settled: Callable[[int], Sequence[Block]]) -> None:
        self.before: dict[str, Calls | None] = {}
        self.read_settled = read_settled


def _read_none(count: int) -> Sequence[Block]:
    return []


class Spending(Struct):
    """The calls of models in a conversation.

    ``calls``      the sums of imported calls that have no reply id
    ``replies``    each reply's id with its call; a total counts each id once. A reply that was
                   recorded without an id is named by the place where it was recorded. Replies that
                   are settled are not here
    ``hashes``     the hash of each reply that was hashed before, and has not changed since
    ``settled``    the first replies, of which only hashes and sums are in memory
    ``runs``       the sums of calls that the source does not record one by one
    ``paid``       the cost of all calls together, if the source records no other cost
    ``last``       the tokens of the prompt of the agent's last call
    ``context``    the tokens of all prompts of the conversation
    ``is_each``    whether imported events record the usage of each call
    ``has_cost``   whether imported events record the cost of calls
    ``counts_on``  whether later events can be counted without reading the earlier events again
    ``tools``      the calls of tools in each reply
    ``reader``     the format of the last imported event, and what its ``CallsReader`` knows of the
                   events so far; None before the first imported event
    """

    calls: list[Calls] = []
    replies: dict[str, Calls] = {}
    hashes: dict[str, int] = {}
    settled: Settled = field(default_factory=Settled)
    runs: list[Calls] = []
    paid: float | None = None
    last: int | None = None
    context: Curve = field(default_factory=Curve)
    is_each: bool = False
    has_cost: bool = False
    counts_on: bool = True
    tools: ToolsOfReplies = field(default_factory=ToolsOfReplies)
    reader: tuple[str, JsonObject] | None = None

    def take(
        self,
        logged: Iterable[Logged],
        beside: Iterable[Any] = (),
        start: int = 0,
        before: Iterable[Any] = (),
        *,
        recorded_in: Callable[[int], str],
        read_settled: Callable[[int], Sequence[Block]] = _read_none,
    ) -> bool:
        """Count the calls in events. Return whether the calls may depend on events before these
        events that were not counted either, such as the events of the parent of a fork. Raises
        ``EarlierChanged`` if the events change a call that was counted before.

        ``beside``        the calls that the source records outside of its events
        ``start``         the calls in events before ``start`` are not counted; these events are
                          read because the usage of a later call may be the difference between two
                          totals
        ``before``        the calls of ``beside`` that belong to the parent of a fork, so that the
                          fork does not count them
        ``recorded_in``   names the conversation in which an event was recorded first, because a
                          detached fork has copies of the events of another conversation
        ``read_settled``  reads the blocks of settled replies
        """
        # This import loads all formats.
        from foldlog.formats.imported_calls import calls_of_imported, counts_on

        lacks_earlier = False
        sums = list[ModelCall]()
        found = list[tuple[ModelCall, bool]]()
        growth = _Growth(read_settled)
        # The loop reads all events, through the generator that counts native calls. A history that
        # went on in another program has events of several formats.
        all_events = self._find_native(logged, start, recorded_in, found)
        for format, events in groupby(_imported(all_events), _format_of):
            self.counts_on = self.counts_on and counts_on(format)
            reader = self._reader_of(format)
            has_begun_to_read = reader is not None and self.reader is None
            lacks_earlier |= has_begun_to_read or not counts_on(format)
            for call in self._calls_in(calls_of_imported(events, format, reader)):
                self.tools.note_call(call)
                if call.is_total:
                    sums.append(call)
                    continue
                self.is_each = True
                self.has_cost = self.has_cost or call.cost is not None
                if call.event_id >= start:
                    found.append((call, reader is None))
            self.reader = format, {} if reader is None else to_builtins(reader)
        # A format may yield its calls only after later events were read.
        for call, may_go_on in sorted(found, key=lambda each: each[0].first_event):
            self._take_call(call, growth, may_go_on=may_go_on)
        if any(self.settled.has(reply) for reply in self.tools.named_replies - self.replies.keys()):
            self._unsettle(growth)
        self.tools.assign(self.replies)
        self.calls = add_up(self.calls)
        self.runs = []
        for call in (*sums, *calls_beside(beside, before)):
            # A sum counts only if its calls are not also recorded singly.
            if not call.is_total or not self.is_each:
                self._take_run(call, growth)
        costs = [
            call.cost
            for call in (*sums, *calls_beside(beside))
            if call.is_total and call.cost is not None
        ]
        self.paid = None
        if costs and self.is_each and not self.has_cost:
            self.paid = sum(costs)
        return lacks_earlier

    def _reader_of(self, format: str) -> CallsReader | None:
        """Return a reader that goes on after the last imported event, if that has the format."""
        from foldlog.formats.imported_calls import reader_of

        last_format, known = self.reader or ("", {})
        try:
            return reader_of(format, known if last_format == format else None)
        except ValidationError:
            raise StateIncomplete from None

    @staticmethod
    def _calls_in(calls: Iterator[ModelCall]) -> Iterator[ModelCall]:
        try:
            yield from calls
        except CallsTakenBack:
            raise EarlierChanged from None

    def _find_native(
        self,
        logged: Iterable[Logged],
        start: int,
        recorded_in: Callable[[int], str],
        found: list[tuple[ModelCall, bool]],
    ) -> Iterator[Event]:
        """Yield all events, and add the calls of those that foldlog recorded itself to ``found``.
        An imported event without a time gets the time at which it was recorded.
        """
        for recorded_at, event in logged:
            if event.id >= start:
                self.tools.note_event(event)
            if event.origin is None and event.id >= start:
                for number, call in enumerate(calls_of_event(recorded_at, event)):
                    if call.reply is None:
                        # Copies of an event keep its id and its time.
                        place = f"{recorded_in(event.id)} {event.id} {recorded_at} {number}"
                        call = call._replace(reply=place, event_id=event.id)
                        self.tools.note_call(call)
                    found.append((call._replace(event_id=event.id), False))
            elif event.meta and event.timestamp is None:
                event = replace(event, timestamp=happened_at(event, recorded_at))
            yield event

    def _take_call(self, call: ModelCall, growth: _Growth, *, may_go_on: bool = False) -> None:
        """Count a call. With ``may_go_on``, the call is of a reply whose lines may be counted one
        after the other. If the reply began before the present events, its prompt is counted
        already. Raises ``EarlierChanged`` if this line has another prompt.
        """
        calls = calls_in(call)
        prompt = calls.usage.get("prompt_tokens", 0)
        began: Calls | None = None
        if may_go_on and call.reply is not None:
            present = self._find(call.reply, growth)
            began = growth.before.get(call.reply, present)
        if call.calls == 1 and prompt and not call.by_condenser:
            if began is None:
                self.last = prompt
                self.context.add(prompt)
            elif began.usage.get("prompt_tokens") != prompt:
                raise EarlierChanged
        if call.reply is None:
            self.calls.append(calls)
        else:
            self._take_reply(call.reply, calls, growth)

    def _take_run(self, call: ModelCall, growth: _Growth) -> None:
        calls = calls_in(call, is_run=True)
        if call.reply is None:
            self.runs.append(calls)
        else:
            self._take_reply(call.reply, calls, growth)

    def _take_reply(self, reply: str, calls: Calls, growth: _Growth) -> None:
        """Store the usage of a reply, unless an earlier copy of the reply has more tokens."""
        earlier = self._find(reply, growth)
        growth.before.setdefault(reply, earlier)
        if earlier is None or calls.tokens >= earlier.tokens:  # A copy of a reply may be cut short.
            self.replies[reply] = calls
            self.hashes.pop(reply, None)

    def _find(self, reply: str, growth: _Growth) -> Calls | None:
        """Return what is counted of a reply. If it is settled, all settled replies are put back."""
        if reply not in self.replies and self.settled.has(reply):
            self._unsettle(growth)
        return self.replies.get(reply)

    def _unsettle(self, growth: _Growth) -> None:
        self.unsettle(growth.read_settled(self.settled.count))

    def unsettle(self, blocks: Iterable[Block]) -> None:
        """Put the settled replies back, from all their blocks."""
        replies = dict[str, Calls]()
        by_reply = dict[str, dict[str, ToolCalls]]()
        for block in blocks:
            replies |= block.replies
            by_reply |= block.tools
        self.replies = replies | self.replies
        self.tools.by_reply = by_reply | self.tools.by_reply
        self.settled = Settled()

    def settle(self) -> tuple[Spending, Sequence[Block]]:
        """Return a copy in which more replies are settled, and the new blocks of these replies."""
        by_reply = self.tools.by_reply
        blocks = blocks_to_settle(self.replies, by_reply)
        if not blocks:
            return self, ()
        self._hash_replies()
        new = {reply for block in blocks for reply in block.replies}
        open_tools = {reply: tools for reply, tools in by_reply.items() if reply not in new}
        settled = replace(
            self,
            replies={reply: calls for reply, calls in self.replies.items() if reply not in new},
            hashes={reply: number for reply, number in self.hashes.items() if reply not in new},
            tools=replace(self.tools, by_reply=open_tools),
            settled=self.settled.with_blocks(blocks, self.hashes),
        )
        return settled, blocks

    def _hash_replies(self) -> None:
        for reply, calls in self.replies.items():
            if reply not in self.hashes:
                self.hashes[reply] = hash_of_reply(reply, calls)

    def by_hash(self) -> dict[int, CountedReply]:
        """Return the replies that are not settled, by their hashes."""
        self._hash_replies()
        return {
            self.hashes[reply]: CountedReply(calls, self.tools.by_reply.get(reply, {}))
            for reply, calls in self.replies.items()
        }

    def summed(self) -> list[Calls]:
        """Return the sums of all calls, by day, model and length of prompts."""
        calls = add_up(chain(self.calls, self.runs, self.settled.calls, self.replies.values()))
        if self.paid is None or len({(entry.day, entry.model) for entry in calls}) != 1:
            return calls
        # The source records only one cost for all calls. All calls have the same day and model, so
        # the first sum can get the whole cost.
        first, *others = calls
        return [first._replace(cost=self.paid), *(other._replace(cost=0.0) for other in others)]


def _imported(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event.origin is not None)


def _format_of(event: Event) -> str:
    assert event.origin is not None
    return event.origin.format


def price_calls(all_calls: Iterable[Calls], prices: Prices) -> dict[tuple[str, str], ModelDocument]:
    """Return the usage and cost by day and model. A call that records no cost gets one from
    ``prices``, and counts as estimated.
    """
    models: dict[tuple[str, str], ModelDocument] = {}
    for day, model, usage, cost, call_count, above, by_condenser in all_calls:
        estimated = 0
        if cost is None:
            price = prices.cost(model, usage, above)
            if price is not None:
                cost = round(price, DIGITS)
                estimated = call_count
        uncached = {name: tokens for name, tokens in usage.items() if "cache" not in name}
        is_cached = any(usage[name] for name in usage.keys() - uncached.keys())
        figures: JsonObject = {
            "cost_without_cache": prices.cost(model, uncached, above) if is_cached else None,
            "condenser_calls": call_count * by_condenser,
            "costs_estimated": estimated,
            "cost": cost,
        }
        document = ModelDocument(day=day, model=model, calls=call_count, **figures, **usage)
        sum_up(models, {(day, model): document})
    return models


def models_without_price(all_calls: Iterable[Calls], prices: Prices) -> set[str]:
    """Return the models with calls whose cost is neither recorded nor follows from ``prices``."""
    without_cost = (calls for calls in all_calls if calls.cost is None and calls.tokens)
    return {
        calls.model
        for calls in without_cost
        if prices.cost(calls.model, calls.usage, calls.above) is None
    }


def sum_up(figures: dict[Any, Any], additions: Mapping[Any, Any]) -> None:
    """Add the numbers of documents to the documents with the same keys in ``figures``. An unknown
    number, which is None, adds nothing.
    """
    for key, added in additions.items():
        total = figures.get(key)
        if total is None:
            figures[key] = added
        else:
            values = zip(total.__struct_fields__, astuple(added), strict=True)
            numbers = {
                name: (getattr(total, name) or 0) + value
                for name, value in values
                if type(value) in (int, float)
            }
            rounded = {
                name: number if type(number) is int else round(number, DIGITS)
                for name, number in numbers.items()
            }
            figures[key] = replace(total, **rounded)


def total_of(empty: D, documents: Iterable[D]) -> D:
    """Return the sum of documents: see ``sum_up``. Without documents, it is ``empty``."""
    total = {"": empty}
    for document in documents:
        sum_up(total, {"": document})
    return total[""]


def spent(models: Iterable[SpentDocument]) -> SpentDocument:
    """Return the total of what models spent."""
    return total_of(SpentDocument(), map(SpentDocument.of, models))


def spent_by(calls: Collection[Calls], prices: Prices) -> SpentDocument:
    """Return the total of calls. Its cost is None if the cost of any call is unknown."""
    total = spent(price_calls(calls, prices).values())
    return replace(total, cost=None) if models_without_price(calls, prices) else total


def imported_calls(read: ReadTransaction, version: int) -> list[Any]:
    """Return the calls that an import recorded outside of the events, as they were at a version."""
    calls = newest_value(read, IMPORTED, version)
    return calls if type(calls) is list else []
