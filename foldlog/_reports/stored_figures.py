"""The figures of the conversations of a store: a row for each. A total is the sum of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from foldlog._documents import ConversationDocument, ModelDocument
from foldlog._formats.summed_calls import Calls, add_up, hashes_in
from foldlog._reports.figures import Counting, Figures, figures_of
from foldlog._reports.kept import KeptBeside
from foldlog._reports.prices import Prices
from foldlog._reports.sizes import CountedTokens, CountsTokens, event_tokens
from foldlog._reports.source_figures import pending_calls, pending_figures
from foldlog._reports.spending import priced, spent_by, sum_up
from foldlog.eventstore import ConversationErased, ConversationRow, Store
from foldlog.projections import Views

Row = tuple[ConversationRow, Figures]

FIGURES = "figures", 32
"""Where figures are kept, and the version of what they hold and of how tokens are estimated: see ``KeptBeside``."""

_PAGE = 1_000


class StoredFigures:
    """The figures of the conversations of a store, kept beside them and counted on from there."""

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        model: CountsTokens | None = None,
        *,
        on_events: Callable[[int], object] = lambda count: None,
    ) -> None:
        """``model`` counts tokens; without one they are estimated. Raises what ``CountedTokens`` raises."""
        name, code = FIGURES if model is None else (f"{FIGURES[0]} {model.model}", FIGURES[1])
        self._store, self._views, self._on_events = store, views or Views(store), on_events
        self._count = event_tokens if model is None else CountedTokens(model)
        self._kept = KeptBeside(store, name, code)
        self._unsound: dict[str, Row] = {}
        self._pending: dict[str, Figures] | None = None
        """The figures of conversations that have records without events."""

    def of(self, rows: Iterable[ConversationRow], *, whole: bool = True, read: bool = True) -> Iterator[Row]:
        """Yield each conversation with its figures, in this order; unless ``whole``, those that are not kept have an
        overview without the figures of its View alone, and unless ``read``, what is kept, of any version. One that was
        erased since it was listed is yielded as an erased one.

        Cost: a row of each; of those that have changed since, what ``figures_of`` costs, once.
        """
        ahead = iter(rows)
        with self._kept:
            while page := list(islice(ahead, _PAGE)):
                there = self._kept.load(page, Figures, of_any_version=True)
                for row in page:
                    try:
                        figures = self._one(row, there.get(row.id), whole=whole, read=read)
                    except ConversationErased:
                        row, figures = self._store.conversation(row.id), Figures()
                    yield row, figures

    def _one(self, row: ConversationRow, before: Figures | None, *, whole: bool, read: bool) -> Figures:
        if row.pending:
            return self._of_source(row)
        then, unsound = self._unsound.get(row.id, (None, None))
        figures = before if unsound is None or then != row else unsound
        if figures is not None and (figures.is_at(row.version) if whole else figures.version == row.version):
            self._on_events(row.version)
            return figures
        if not read or row.erased_at is not None:
            return before or Figures()
        counting = self._kept.load([row], Counting, of_any_version=True).get(row.id)
        figures = figures_of(
            self._store, self._views, row, counting, count=self._count, whole=whole, on_events=self._on_events
        )
        if figures.is_sound:
            self._kept.keep(row, figures)
        else:
            self._unsound[row.id] = row, figures
        return figures

    def _of_source(self, row: ConversationRow) -> Figures:
        """Return the figures of a conversation that has records without events: of all its records."""
        if self._pending is None or row.id not in self._pending:
            self._pending = pending_figures(self._store)
        figures = self._pending.get(row.id) or Figures()
        figures.version = figures.counted = row.version
        return figures

    def forget_sources(self) -> None:
        """Read the figures of sources again: an import may have changed them."""
        self._pending = None

    def flush(self) -> None:
        self._kept.flush()

    def calls(self, rows: Iterable[Row]) -> list[Calls]:
        """Return the calls of all these conversations, a reply that several of them repeat once: the ids of a reply
        are its identity. Cost: the replies; all calls of a conversation that repeats one.
        """
        calls, seen = list[Calls](), set[int]()
        # A copy may have been cut short in the middle of a reply, so the one with the most tokens counts.
        for row, figures in sorted(rows, key=lambda one: sum(each.tokens for each in one[1].calls), reverse=True):
            replies = hashes_in(figures.replies)
            calls += figures.calls if seen.isdisjoint(replies) else self._calls_without(seen, row)
            seen.update(replies)
        return add_up(calls)

    def _calls_without(self, seen: Collection[int], row: ConversationRow) -> list[Calls]:
        """Return the calls of a conversation without the replies that were seen."""
        if row.pending:
            return pending_calls(self._store, row.id, seen)
        kept = self._kept.load([row], Counting, of_any_version=True).get(row.id)
        counting = figures_of(self._store, self._views, row) if kept is None else kept
        return counting.spending.summed(seen)


def document_of(row: ConversationRow, figures: Figures, prices: Prices) -> ConversationDocument:
    """Return a conversation with its figures. Of an erased one they are None, and unknown ones too."""
    fields: dict[str, Any] = {**figures.overview._asdict(), "errors": None, "condensations": None, "spent": None}
    if row.erased_at is None:
        fields |= {"errors": figures.errors, "last_prompt_tokens": figures.last_prompt_tokens}
        fields |= {"longest_wait_s": figures.counts.longest_wait_s, "tokens_saved": figures.saved().tokens_saved}
        if figures.is_sound:
            fields |= {"condensations": figures.saved().condensations, "spent": spent_by(figures.calls, prices)}
    return ConversationDocument.of_row(row, **fields)


def models_of(store: Store, conversation: str, prices: Prices) -> tuple[ModelDocument, ...]:
    """Return the calls of one conversation by model, those of most tokens first; nothing where an event cannot be read.
    Cost: see ``StoredFigures.of``.
    """
    ((_, figures),) = StoredFigures(store).of([store.conversation(conversation, pending=True)])
    by_model: dict[str, ModelDocument] = {}
    for calls in priced(figures.calls, prices).values() if figures.is_sound else ():
        sum_up(by_model, {calls.model: replace(calls, day="")})
    return tuple(sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model)))
