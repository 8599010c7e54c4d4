"""The totals of some conversations: events by kind and tool, tokens and cost by model and day, and
condensations.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from foldlog._reports.answers.figures import (
    BehindDocument,
    CondensationsDocument,
    ModelDocument,
    SpentDocument,
    StatsDocument,
    TaskDocument,
    ToolDocument,
)
from foldlog._reports.figures.counts import Counts
from foldlog._reports.figures.spending import spent, sum_up
from foldlog._reports.figures.tools_of_replies import ToolCalls
from foldlog._reports.figures.writing import FIRST_IS_LOCAL, LAST_IS_LOCAL
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.times import EventTime
from foldlog.formats.summed_calls import DIGITS

_CONDENSED = "condensations "
TOTALS = (
    "kind",
    "day",
    "tool",
    "tool errors",
    *(f"{_CONDENSED}{name}" for name in CondensationsDocument.__struct_fields__),
)
"""The kinds of counts that a total adds up: see ``Stats.add_count``."""
FACETS = ("state", "program", "tool", "tool errors", "model", "attribute")
"""The kinds of names by which a list can be filtered."""


class Behind(NamedTuple):
    """What figures lack.

    ``conversations``  how many conversations have changes that are not counted, at most
    ``as_of``          all changes before this time are counted; None if that is not known
    """

    conversations: int
    as_of: datetime | None

    def document(self) -> BehindDocument | UnsetType:
        """Return what JSON shows, which is nothing if the figures lack nothing."""
        if not self.conversations:
            return UNSET
        at = None if self.as_of is None else self.as_of.isoformat()
        return BehindDocument(conversations=self.conversations, as_of=at)


class Stats(Counts):
    """The figures of some conversations.

    ``models``         the calls by day and model
    ``without_usage``  the number of conversations without recorded tokens
    ``without_cost``   the number of conversations with calls of models without a known price
    ``unpriced``       the models without a known price
    ``in_views``       the tokens of all current Views
    ``sub_agents``     the number of conversations that another conversation began
    ``repeated_errors``  how often ``events`` counts an error that another conversation has too
    ``spent_alone``    the usage and cost of the other conversations, if there are sub-agents
    ``behind``         what the figures lack; None if ``FiguresOfStore.counts`` made these totals

    The following figures exist only for a single conversation, and are empty or None for several
    conversations:

    ``view_tokens``         for each version, a high estimate of the tokens that its View sends
    ``peak_prompt_tokens``  the tokens of the largest prompt of the agent's calls
    ``peak_prompt_version``  the version of the largest prompt; None if the events of an import are
                            not made yet
    ``max_input_tokens``    the limit of a prompt: see ``ContextLimit``
    ``window_of``           the model that has this limit as its window
    ``task``                the conversation with its sub-agents, if it has sub-agents
    """

    models: dict[tuple[str, str], ModelDocument] = field(default_factory=dict)
    without_usage: int = 0
    without_cost: int = 0
    unpriced: set[str] = field(default_factory=set)
    view_tokens: tuple[int, ...] = ()
    peak_prompt_tokens: int | None = None
    peak_prompt_version: int | None = None
    max_input_tokens: int | None = None
    window_of: str | None = None
    in_views: int = 0
    sub_agents: int = 0
    repeated_errors: int = 0
    spent_alone: SpentDocument | None = None
    behind: Behind | None = None
    task: TaskDocument | None = None

    @property
    def spent(self) -> SpentDocument:
        """The usage and cost. The cost is None if every conversation has calls without a known
        price.
        """
        total = spent(self.models.values())
        if 0 < self.conversations == self.without_cost:
            return replace(total, cost=None)
        return total

    def calls_by(self, name: str, first_day: str = "") -> tuple[ModelDocument, ...]:
        """Group the calls by ``name``, which is ``day`` or ``model``. With ``first_day``, such as
        ``2026-03-01``, leave out earlier calls and calls without a day.
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
        local_times: int,
        conversations: int,
        unmarked: int,
        without_usage: int,
        first_at: int | None,
        last_at: int | None,
        longest_wait_s: float | None,
        view_tokens: int | None,
    ) -> None:
        """Add the sums of some conversations, which have the same ``local_times``: see
        ``FigureColumns``.
        """
        self.conversations += conversations
        self.unmarked += unmarked
        self.without_usage += without_usage
        self.in_views += view_tokens or 0
        for microseconds, local_bit in ((first_at, FIRST_IS_LOCAL), (last_at, LAST_IS_LOCAL)):
            if microseconds is not None:
                at = from_microseconds(microseconds)
                self._note_time(
                    EventTime(at.replace(tzinfo=None) if local_times & local_bit else at)
                )
        waits = [wait for wait in (self.longest_wait_s, longest_wait_s) if wait is not None]
        self.longest_wait_s = max(waits, default=None)

    def add_count(self, what: str, name: str, number: float | None) -> None:
        """Add the count of a name of the kind ``what``, which is one of ``TOTALS``."""
        if what == "kind":
            self.events[name] = self.events.get(name, 0) + int(number or 0)
        elif what == "day":
            self.days[name] = self.days.get(name, 0) + int(number or 0)
        elif what in ("tool", "tool errors"):
            tool = self.tools.get(name, ToolDocument(errors=None))
            field = "calls" if what == "tool" else "errors"
            self.tools[name] = replace(tool, **{field: _sum(getattr(tool, field), number)})
        elif what.startswith(_CONDENSED):
            condensations = self.condensations.get(name, _NONE_KNOWN)
            field = what.removeprefix(_CONDENSED)
            self.condensations[name] = replace(
                condensations, **{field: _sum(getattr(condensations, field), number, field)}
            )

    def leave_out(self, repeated: Mapping[str, ToolCalls]) -> None:
        """Leave out calls of tools that several conversations count, and their errors."""
        for name, (calls, errors) in repeated.items():
            tool = self.tools.get(name)
            if tool is not None:
                self.tools[name] = replace(
                    tool,
                    calls=tool.calls - calls,
                    errors=None if tool.errors is None else tool.errors - errors,
                )
            self.repeated_errors += errors

    @property
    def errors(self) -> int | None:
        """The number of errors. An error that several conversations have counts once."""
        errors = super().errors
        return None if errors is None else errors - self.repeated_errors

    def document(self, conversation: str | UnsetType = UNSET) -> StatsDocument:
        """Return the figures as JSON shows them. ``conversation`` is the only one they are of."""
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
            task=self.task or UNSET,
            sub_agents=self.sub_agents or UNSET,
            spent_alone=self.spent_alone or UNSET,
            behind=UNSET if self.behind is None else self.behind.document(),
        )


_NONE_KNOWN = CondensationsDocument(events_forgotten=None, summaries_forgotten=None)


def _sum(before: Any, number: float | None, name: str = "") -> Any:
    """Add a number to the field ``name`` of a document. None stands for an unknown number, which
    adds nothing.
    """
    if number is None:
        return before
    added = round(number, DIGITS) if name == "cost" else int(number)
    return (before or 0) + added
