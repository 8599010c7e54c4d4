"""Figures of conversations: events by kind and tool, errors, tokens and cost by model and day, condensations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from foldlog._documents import ModelDocument, SpentDocument, StatsDocument
from foldlog._reports.counts import Counts
from foldlog._reports.prices import Prices
from foldlog._reports.sizes import event_tokens
from foldlog._reports.spending import priced, spent, unpriced
from foldlog._reports.stored_figures import Row, StoredFigures
from foldlog.eventstore import ConversationRow, EventStoreError, Store
from foldlog.projections import Views


class Stats(Counts):
    """Figures of some conversations.

    ``models`` are the calls by day and model. Of the conversations, ``without_usage`` have no call with its tokens, and
    ``without_cost`` calls of ``unpriced`` models, whose price is not known. ``view_tokens`` are the tokens that the
    View of each version sends to a model, an estimate that errs high; of one conversation, and empty for several.
    """

    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    without_usage: int = 0
    without_cost: int = 0
    unpriced: set[str] = field(default_factory=set)
    view_tokens: tuple[int, ...] = ()

    @property
    def spent(self) -> SpentDocument:
        """What all calls used, and the sum of the known costs; None where no conversation has all of its costs."""
        total = spent(self.models.values())
        return replace(total, cost=None) if 0 < self.conversations == self.without_cost else total

    def take(self, rows: Sequence[Row], figures: StoredFigures, prices: Prices) -> None:
        """Add the figures of these conversations."""
        for _, one in rows:
            self.add(one.counts)
            self.without_usage += not any(calls.tokens for calls in one.calls)
            models = unpriced(one.calls, prices)
            self.without_cost += bool(models)
            self.unpriced |= models
        self.models = priced(figures.calls(rows), prices)

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures for programs; ``conversation`` is the only one, if there is only one."""
        return StatsDocument.of(
            self,
            conversation=conversation,
            events={"total": sum(self.events.values()), **self.events},
            first_at=None if self.first_at is None else self.first_at.isoformat(),
            last_at=None if self.last_at is None else self.last_at.isoformat(),
            models=tuple(figures for _, figures in sorted(self.models.items())),
            days=dict(sorted(self.days.items())),
            findings=tuple(self.findings),
            unpriced=tuple(sorted(self.unpriced)),
        )


def collect_stats(
    store: Store,
    conversations: Sequence[str] | None,
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
    prices: Prices | None = None,
) -> Stats:
    """Return the figures of conversations, None for all: the sum of their rows. A fork counts what it did itself. An
    event that cannot be read is a finding, and the rest is counted.

    Calls that tell no cost are counted at ``prices``, else at those of a table that is installed. Raises
    ``ConversationNotFound``, ``ConversationErased``, ``KeyUnavailable``. Cost: a row of each conversation; of one that
    has changed since it was counted, what is new; of one alone also the sizes of its Views, every event once.
    """
    figures = StoredFigures(store, views, on_events=on_events)
    if conversations is None:
        rows = [row for row in store.iter_conversations() if row.erased_at is None]
    else:
        rows = [_row(store, each) for each in conversations]
    counted = [*figures.of(rows)]
    for row, one in counted:
        if one.overview.needs_key:
            list(store.events(row.id, 0, 1))  # raises: without its key nothing is counted
    stats = Stats()
    stats.take(counted, figures, prices or Prices())
    if conversations is not None and len(counted) == 1 and not counted[0][0].pending:
        try:
            stats.view_tokens = views.lifetimes(rows[0].id, event_tokens).sizes
        except EventStoreError as error:
            problem = f"conversation {rows[0].id!r}: the sizes of its View are not counted: {error}"
            stats.findings += [problem] if problem not in stats.findings else []
    return stats


def _row(store: Store, conversation: str) -> ConversationRow:
    row = store.conversation(conversation, pending=True)
    if row.erased_at is not None:
        store.version(conversation)  # raises: of an erased one nothing is counted
    return row
