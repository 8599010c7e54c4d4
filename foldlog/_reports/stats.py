"""Figures of conversations: events by kind and tool, errors, tokens and cost by model and day, condensations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType, field
from msgspec.structs import asdict, replace

from foldlog._documents import ModelDocument, StatsDocument, ToolDocument
from foldlog._reports.counts import Counts
from foldlog._reports.of_one import Counting, counted_on
from foldlog._reports.prices import Prices
from foldlog._reports.spending import priced, spent, summed
from foldlog._reports.sums import KeptSums
from foldlog.eventstore import ConversationRow, Store
from foldlog.projections import Views


class Stats(Counts):
    """Figures of some conversations.

    ``models`` are the calls by day and model. ``view_tokens`` are the tokens that the View of each version sends to a
    model, an estimate that errs high; of one conversation, and empty for several.
    """

    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    view_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.tools = {name: replace(one, errors=self._errors_of(one)) for name, one in self.tools.items()}

    def _errors_of(self, tool: ToolDocument) -> int | None:
        is_untold = not tool.errors and 0 < tool.calls <= tool.unmarked
        return None if self.errors is None or is_untold else tool.errors

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures for programs; ``conversation`` is the only one, if there is only one."""
        return StatsDocument.of(
            self,
            conversation=conversation,
            events={"total": sum(self.events.values()), **self.events},
            first_at=None if self.first_at is None else self.first_at.isoformat(),
            last_at=None if self.last_at is None else self.last_at.isoformat(),
            models=tuple(figures for _, figures in sorted(self.models.items())),
            spent=spent(self.models.values()),
            days=dict(sorted(self.days.items())),
            findings=tuple(self.findings),
        )


def collect_stats(
    store: Store,
    conversations: Sequence[str] | None,
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
    prices: Prices | None = None,
) -> Stats:
    """Return the figures of conversations, None for all. An event that cannot be read is a finding, and the rest is
    counted.

    Calls that tell no cost are counted at ``prices``, else at litellm's. The figures of several conversations are kept
    beside them, and the sums of all. Raises ``ConversationNotFound``, ``ConversationErased``, ``KeyUnavailable``. Cost:
    a record of each conversation; of one alone, and of what was appended since others were counted, every event once,
    and the structural ones once more; of all conversations, what has changed.
    """
    table = prices or Prices()
    if conversations is not None and len(conversations) == 1:
        row = _row(store, conversations[0])
        if row.pending:
            ((_, sums_of_it),) = KeptSums(store, views).of([row])
            return Stats(**asdict(sums_of_it.counts), models=priced(sums_of_it.calls, table))
        one, sizes = counted_on(store, views, row, Counting(), alone=True, on_events=on_events)
        return Stats(**asdict(one.counts), models=priced(one.calls, table), view_tokens=sizes)
    sums, total = KeptSums(store, views, on_events=on_events), Counts()
    blocks = sums.blocks(None if conversations is None else [_row(store, each) for each in conversations])
    for block in blocks:
        for locked in (line.conversation for line in block.lines if line.needs_key):
            list(store.events(locked, 0, 1))  # raises: without its key nothing is counted
        total.add(block.total.counts)
    return Stats(**asdict(total), models=priced(summed(sums.calls(blocks)), table))


def _row(store: Store, conversation: str) -> ConversationRow:
    row = store.conversation(conversation, pending=True)
    if row.erased_at is not None:
        store.version(conversation)  # raises: of an erased one nothing is counted
    return row
