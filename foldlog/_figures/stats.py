"""The totals of some conversations: events by kind and tool, tokens and cost by model and day,
condensations.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from foldlog._documents import (
    CondensationsDocument,
    ModelDocument,
    SpentDocument,
    StatsDocument,
    ToolDocument,
)
from foldlog._figures.counts import Counts
from foldlog._figures.spending import spent, sum_up
from foldlog._figures.writing import FIRST_IS_LOCAL, LAST_IS_LOCAL
from foldlog.eventstore.inside import EventTime
from foldlog.eventstore.log.row import from_microseconds

_CONDENSED = "condensations "
TOTALS = (
    *("kind", "day", "tool", "tool errors"),
    *(f"{_CONDENSED}{name}" for name in CondensationsDocument.__struct_fields__),
)
"""What is added up for totals."""


class Stats(Counts):
    """Figures of some conversations.

    ``models`` are the calls by day and model. Of the conversations, ``without_usage`` have no call
    with its tokens, and ``without_cost`` calls of ``unpriced`` models, whose price is not known.
    ``view_tokens`` are the tokens that the View of each version sends to a model, an estimate that
    errs high, ``peak_prompt_tokens`` those of the largest prompt of the agent's calls, and
    ``max_input_tokens`` what its model takes by litellm's table: of one conversation, and empty or
    None for several. ``in_views`` are the tokens that all
    Views send now, ``made`` and ``tokens_saved`` are of their condensations.
    """

    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    without_usage: int = 0
    without_cost: int = 0
    unpriced: set[str] = field(default_factory=set)
    view_tokens: tuple[int, ...] = ()
    peak_prompt_tokens: int | None = None
    max_input_tokens: int | None = None
    in_views: int = 0

    @property
    def spent(self) -> SpentDocument:
        """What all calls used, and the sum of the known costs; None where no conversation has all
        of its costs.
        """
        total = spent(self.models.values())
        if 0 < self.conversations == self.without_cost:
            return replace(total, cost=None)
        return total

    def calls_by(self, name: str, first_day: str = "") -> tuple[ModelDocument, ...]:
        """Return the calls by ``day`` or by ``model``, in order, with the other one empty; with
        ``first_day`` those from this day on.
        """
        groups: dict[str, ModelDocument] = {}
        for (day, model), calls in self.models.items():
            if first_day and not (day[:1].isdigit() and day >= first_day):
                continue
            if name == "day":
                sum_up(groups, {day: replace(calls, model="")})
            else:
                sum_up(groups, {model: replace(calls, day="")})
        return tuple(calls for _, calls in sorted(groups.items()))

    def add_sums(
        self,
        is_local: int,
        conversations: int,
        unmarked: int,
        without_usage: int,
        first_at: int | None,
        last_at: int | None,
        longest_wait_s: float | None,
        view_tokens: int | None,
    ) -> None:
        """Add the sums of the columns of figures."""
        self.conversations += conversations
        self.unmarked += unmarked
        self.without_usage += without_usage
        self.in_views += view_tokens or 0
        for moment, local in ((first_at, FIRST_IS_LOCAL), (last_at, LAST_IS_LOCAL)):
            if moment is not None:
                at = from_microseconds(moment)
                self.happened(EventTime(at.replace(tzinfo=None) if is_local & local else at))
        waits = [wait for wait in (self.longest_wait_s, longest_wait_s) if wait is not None]
        self.longest_wait_s = max(waits, default=None)

    def add_count(self, what: str, name: str, number: float | None) -> None:
        """Add a number that is counted under a name; None where it is not known."""
        if what == "kind":
            self.events[name] = self.events.get(name, 0) + int(number or 0)
        elif what == "day":
            self.days[name] = self.days.get(name, 0) + int(number or 0)
        elif what in ("tool", "tool errors"):
            tool = self.tools.get(name, ToolDocument(errors=None))
            field = "calls" if what == "tool" else "errors"
            self.tools[name] = replace(tool, **{field: _sum(getattr(tool, field), number)})
        elif what.startswith(_CONDENSED):
            condensed = self.condensations.get(name, _NONE_KNOWN)
            field = what.removeprefix(_CONDENSED)
            self.condensations[name] = replace(
                condensed, **{field: _sum(getattr(condensed, field), number, field)}
            )

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures for programs; ``conversation`` is the only one, if there is only
        one.
        """
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


_NONE_KNOWN = CondensationsDocument(events_forgotten=None, summaries_forgotten=None)


def _sum(before: Any, number: float | None, name: str = "") -> Any:
    """Return the sum of two numbers, of which None is not known; None where neither is."""
    if number is None:
        return before
    return (before or 0) + (round(number, 12) if name == "cost" else int(number))
