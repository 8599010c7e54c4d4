"""What lists, figures and the page keep of conversations: one record of sums for each, and their sums over all."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import asdict, replace

from foldlog._documents import ConversationDocument, ModelDocument, SpentDocument
from foldlog._reports.kept import KeptBeside, value_of
from foldlog._reports.of_all import KeptOfAll
from foldlog._reports.of_one import Counting, Sums, own_sums, sums_of
from foldlog._reports.pending import pending_counting, pending_sums
from foldlog._reports.prices import Prices
from foldlog._reports.sizes import CountedTokens, CountsTokens, event_tokens
from foldlog._reports.spending import Calls, Spending, priced, spent_by, sum_up, summed, tokens_of
from foldlog.eventstore import ConversationErased, ConversationRow, Store
from foldlog.projections import Views

SUMS = "sums", 30
"""Where sums are kept, and the version of what they hold and of how tokens are estimated: see ``KeptBeside``."""

_BLOCKS = 102
"""Is added to that version for the sums of all: the version of what only they hold."""
_PAGE = 1_000


class ListedLine(Struct, array_like=True, gc=False):
    """A conversation in the list of all: what lists are sorted by and figures add up, and the rest as a text, which is
    read of those that are shown. ``replies`` has a hash of each reply in its own calls.
    """

    conversation: str
    last_recorded_at: str
    last_event_at: str | None
    events: int
    tokens: int
    errors: int | None
    open_ms: float
    is_counted: bool
    needs_key: bool
    replies: tuple[int, ...]
    rest: str

    @property
    def document(self) -> ConversationDocument:
        """The document of the conversation, without what it spent."""
        return self._rest.document

    @property
    def calls(self) -> list[Calls] | None:
        """All of its calls; None where they cannot be read."""
        return self._rest.calls

    @property
    def own(self) -> list[Calls]:
        """Its calls that it does not share with its parent."""
        _, calls, own = self._rest
        return calls or [] if own is None else own

    @property
    def _rest(self) -> _Rest:
        rest: _Rest = value_of(self.rest.encode(), _Rest)
        return rest

    def priced(self, prices: Prices) -> ConversationDocument:
        """Return the document with what the conversation spent, if it was counted."""
        document, calls, _ = self._rest
        if document.format is UNSET:
            return document
        return replace(document, spent=None if calls is None else spent_by(calls, prices))

    def spent(self, prices: Prices) -> SpentDocument:
        """Return what the calls of the conversation used and cost, as far as that is known."""
        return spent_by(self.calls or (), prices)


class _Rest(NamedTuple):
    """What only lines that are shown need; ``own`` is None where it is all calls."""

    document: ConversationDocument
    calls: list[Calls] | None
    own: list[Calls] | None


class SumsBlock(Struct):
    """The sums of several conversations, with their calls, each once, and a line for each."""

    total: Sums
    lines: list[ListedLine]


class KeptSums:
    """The sums of the conversations of a store, kept beside them and over all of them, and counted on from there."""

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        model: CountsTokens | None = None,
        *,
        read: bool = True,
        on_events: Callable[[int], object] = lambda count: None,
    ) -> None:
        """``model`` counts tokens; without one they are estimated. Unless ``read``, the sums of all leave out
        conversations of which none are kept. Raises what ``CountedTokens`` raises.
        """
        name, code = SUMS if model is None else (f"{SUMS[0]} {model.model}", SUMS[1])
        self._store, self._views, self._read, self._on_events = store, views or Views(store), read, on_events
        self._count = event_tokens if model is None else CountedTokens(model)
        self._kept = KeptBeside(store, name, code)
        self._unsound: dict[str, tuple[ConversationRow, Sums]] = {}
        self._of_all = KeptOfAll(store, name, code + _BLOCKS, self._block_of_events, SumsBlock)
        self._lines: dict[str, Sums] | None = None
        """The sums of conversations that have records without events."""

    def of(
        self, rows: Iterable[ConversationRow], *, whole: bool = True, read: bool = True
    ) -> Iterator[tuple[ConversationRow, Sums]]:
        """Yield each conversation with its sums, in this order; unless ``whole``, those that are not kept have an
        overview without the figures of its View alone, and unless ``read``, nothing. One that was erased since it was
        listed is yielded as an erased one.

        Cost: a record of each; of those that have changed since, what ``sums_of`` costs, once.
        """
        ahead = iter(rows)
        with self._kept:
            while page := list(islice(ahead, _PAGE)):
                there = self._kept.load(page, Sums, of_any_version=True)
                for row in page:
                    try:
                        one = self._one(row, there.get(row.id), whole=whole, read=read)
                    except ConversationErased:
                        row, one = self._store.conversation(row.id), Sums()
                    yield row, one

    def _one(self, row: ConversationRow, before: Sums | None, *, whole: bool, read: bool) -> Sums:
        if row.pending:
            return self._of_source(row)
        then, unsound = self._unsound.get(row.id, (None, None))
        one: Sums | None = before if unsound is None or then != row else unsound
        if one is not None and (one.is_at(row.version) if whole else one.version == row.version):
            self._on_events(row.version)
            return one
        if not read or row.erased_at is not None:
            return before or Sums()
        counting = self._kept.load([row], Counting, of_any_version=True).get(row.id)
        one = sums_of(
            self._store, self._views, row, counting, count=self._count, whole=whole, on_events=self._on_events
        )
        if one.is_sound:
            self._kept.keep(row, one)
        else:
            self._unsound[row.id] = row, one
        return one

    def _of_source(self, row: ConversationRow) -> Sums:
        """Return the sums of a conversation that has records without events: of all its records."""
        if self._lines is None or row.id not in self._lines:
            self._lines = pending_sums(self._store)
        one = self._lines.get(row.id) or Sums()
        one.version = one.counted = row.version
        return one

    def flush(self) -> None:
        self._kept.flush()

    def put_back(self) -> AbstractContextManager[None]:
        """Keep the sums of all through erasures and redactions: see ``KeptOfAll``."""
        return self._of_all.put_back()

    def blocks(self, rows: Sequence[ConversationRow] | None = None, again: Collection[str] = ()) -> list[SumsBlock]:
        """Return the sums of all conversations of the store, or of these. For cost and ``again`` see ``KeptOfAll``; and
        a line of each conversation that has records without events.
        """
        if rows is not None:
            return [self._block(rows, {row.id for row in rows})[0]]
        self._lines = pending_sums(self._store)
        names = self._lines if self._lines else ()
        pending = [row for row in self._store.iter_conversations() if row.pending] if names else []
        blocks: list[SumsBlock] = self._of_all.load([*again, *(row.id for row in pending if row.version)])
        return [*blocks, self._block(pending)[0]] if pending else blocks

    def calls(self, blocks: Iterable[SumsBlock]) -> list[Calls]:
        """Return all calls, each once, also if conversations repeat a reply. Cost: the replies; a record of each
        conversation in a block that repeats one.
        """
        calls: list[Calls] = []
        seen: set[int] = set()
        for block in blocks:
            replies = {reply for line in block.lines for reply in line.replies}
            if seen.isdisjoint(replies):
                calls += block.total.calls
                seen |= replies
            else:
                calls += self._each_once(block.lines, seen)
        return calls

    def _each_once(
        self, lines: Iterable[ListedLine], seen: set[int], chosen: Container[str] | None = None
    ) -> list[Calls]:
        """Return the calls of these lines without replies that were ``seen``, and add theirs to these. The line of most
        tokens is first: a copy of it may have been cut short in the middle of a reply.
        """
        calls: list[Calls] = []
        with_calls = [(line, line.own) for line in lines]
        for line, own_calls in sorted(with_calls, key=lambda each: sum(map(tokens_of, each[1])), reverse=True):
            if seen.isdisjoint(line.replies):
                calls += own_calls
                seen.update(line.replies)
            else:
                row = self._store.conversation(line.conversation, pending=True)
                with suppress(ConversationErased):
                    one = self._counting(row)
                    own = None if row.pending else own_sums(self._store, row, one, chosen)
                    calls += (own or one).spending.summed(seen)
                    seen.update(line.replies)
        return summed(calls)

    def _counting(self, row: ConversationRow) -> Counting:
        if row.pending:
            return pending_counting(self._store, row.id)
        kept = self._kept.load([row], Counting, of_any_version=True).get(row.id)
        return sums_of(self._store, self._views, row) if kept is None else kept

    def _block_of_events(self, rows: Sequence[ConversationRow]) -> tuple[SumsBlock, bool]:
        """Return the sums of those of these conversations that are events."""
        return self._block([row for row in rows if not row.pending])

    def _block(self, rows: Sequence[ConversationRow], chosen: Container[str] | None = None) -> tuple[SumsBlock, bool]:
        block, is_sound = SumsBlock(Sums(), []), True
        for row, one in self.of(rows, read=self._read):
            try:
                own = own_sums(self._store, row, one, chosen) if one.counted and not row.pending else None
            except ConversationErased:
                continue
            if row.erased_at is not None:
                continue
            is_counted = one.is_at(row.version)
            is_sound = is_sound and is_counted and one.is_sound
            block.total.add(own or one)
            block.lines.append(_line(row, one, own.spending if own else None, is_counted=is_counted))
        block.total.calls = self._each_once(block.lines, set(), chosen)
        return block, is_sound


def document_of(row: ConversationRow, one: Sums) -> ConversationDocument:
    """Return a conversation with its figures as lists have it, but what it spent. Of an erased one they are None."""
    told: dict[str, Any] = {**one.overview._asdict(), "errors": None, "condensations": None}
    if row.erased_at is None:
        saved = asdict(one.saved()) | ({} if one.is_sound else {"condensations": None})
        told |= saved | {"errors": one.errors, "unmarked": one.counts.unmarked, "open_ms": one.open_ms}
    return ConversationDocument.of_row(row, **told)


def _line(row: ConversationRow, one: Sums, of_fork: Spending | None, *, is_counted: bool) -> ListedLine:
    is_known = one.counted or is_counted
    document = document_of(row, one) if is_known else ConversationDocument.of_row(row, title=one.overview.title)
    own = None if of_fork is None else of_fork.summed()
    if own is None and not one.is_sound:
        own = one.calls
    return ListedLine(
        row.id,
        document.last_recorded_at,
        document.last_event_at or None,
        row.version if one.overview.events is None else one.overview.events,
        document.tokens or 0,
        one.errors if is_known else None,
        document.open_ms or 0.0,
        is_counted,
        one.overview.needs_key,
        tuple(one.replies if of_fork is None else of_fork.hashes()),
        json.dumps(to_builtins(_Rest(document, one.calls if one.is_sound else None, own), str_keys=True)),
    )


def models_of(store: Store, conversation: str, prices: Prices) -> tuple[ModelDocument, ...]:
    """Return the calls of one conversation by model, those of most tokens first; nothing where an event cannot be read.
    Cost: see ``KeptSums.of``.
    """
    ((_, one),) = KeptSums(store).of([store.conversation(conversation, pending=True)])
    by_model: dict[str, ModelDocument] = {}
    for calls in priced(one.calls, prices).values() if one.is_sound else ():
        sum_up(by_model, {calls.model: replace(calls, day="")})
    return tuple(sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model)))
