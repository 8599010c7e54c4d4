"""The figures of tasks: of conversations with their sub-agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import UNSET

from foldlog._reports.answers.figures import AgentDocument, TaskDocument
from foldlog._reports.figures.overview import PARENT_CALL, parent_in
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.spending import spent_by
from foldlog._reports.figures.tables import FigureTables, StoredFigures
from foldlog.eventstore.times import EventTime, in_utc, parse_event_time
from foldlog.formats.summed_calls import Calls, add_up

_AT_THE_END = EventTime(datetime.max)  # errors without a time come after all others


class Agent(NamedTuple):
    """An agent of a task, and the number of agents above it."""

    figures: StoredFigures
    depth: int

    def document(self, prices: Prices) -> AgentDocument:
        figures = self.figures
        attributes = figures.overview.attributes or {}
        return AgentDocument.of(
            figures,
            conversation=figures.id,
            depth=self.depth,
            parent=parent_in(attributes) or None,
            call=attributes.get(PARENT_CALL),
            title=figures.overview.title,
            events=figures.overview.events,
            errors=figures.columns.errors,
            longest_wait_s=figures.columns.longest_wait_s,
            first_event_at=time_text(figures.first_at),
            last_event_at=time_text(figures.last_at),
            models=tuple(dict.fromkeys(call.model for call in figures.calls)),
            spent=spent_by(figures.calls, prices) if figures.is_sound else None,
        )


class Task(NamedTuple):
    """A conversation with its sub-agents. ``agents`` begins with the conversation itself. In
    ``calls``, a reply that several agents recorded counts once.
    """

    agents: Sequence[Agent]
    calls: Sequence[Calls]
    erased: int = 0
    """The number of sub-agents that were erased. ``calls`` does not include them."""
    unreached: int = 0
    """The number of sub-agents below erased ones. ``calls`` does not include them either."""
    repeated_errors: int = 0
    """How often the agents count an error that another agent of the task has too."""

    def document(self, prices: Prices, *, has_agents: bool = False) -> TaskDocument:
        all_figures = [agent.figures for agent in self.agents]
        first_failed = min(
            (figures for figures in all_figures if figures.first_error is not None),
            key=_time_of_first_error,
            default=None,
        )
        first_times = [figures.first_at for figures in all_figures if figures.first_at is not None]
        last_times = [figures.last_at for figures in all_figures if figures.last_at is not None]
        waits = [figures.columns.longest_wait_s for figures in all_figures]
        errors = _sum(figures.columns.errors for figures in all_figures)
        return TaskDocument(
            sub_agents=len(self.agents) - 1,
            sub_agents_erased=self.erased,
            sub_agents_unreached=self.unreached,
            errors=None if errors is None else errors - self.repeated_errors,
            first_error=None if first_failed is None else first_failed.first_error,
            first_error_in=None if first_failed is None else first_failed.id,
            first_event_at=time_text(min(first_times, key=in_utc, default=None)),
            last_event_at=time_text(max(last_times, key=in_utc, default=None)),
            seconds=sum(map(_seconds, all_figures)),
            longest_wait_s=max([wait for wait in waits if wait is not None], default=None),
            spent=spent_by(self.calls, prices),
            agents=tuple(agent.document(prices) for agent in self.agents) if has_agents else UNSET,
        )


def read_tasks(tables: FigureTables, conversations: Iterable[StoredFigures]) -> Iterator[Task]:
    """Yield a task for each conversation that has or had sub-agents. Cost: the function reads the
    figures of the sub-agents, and a row of each erased one.
    """
    trees = tables.trees()
    tops = {figures.id: figures for figures in conversations}
    below = {name: [*trees.below(name)] for name in tops}
    keys = {trees.keys[agent] for agents in below.values() for agent, _ in agents}
    figures_by_key = tables.of_keys([*keys])
    for name, agents_below in below.items():
        agents = [
            Agent(figures_by_key[trees.keys[agent]], depth)
            for agent, depth in agents_below
            if trees.keys[agent] in figures_by_key
        ]
        agents = [Agent(tops[name], 0), *agents]
        reached = {agent.figures.id for agent in agents}
        begun = {child for agent in agents for child in agent.figures.begun}
        erased = tables.erased_among(begun - reached)
        if len(agents) > 1 or erased:
            unreached = {left for child in erased for left in trees.left_by(child)}
            repeated = tables.repeated_among([agent.figures.key for agent in agents])
            calls = [call for agent in agents for call in agent.figures.calls]
            sums = add_up([*calls, *(call.negative() for call in repeated.calls)])
            counted = [call for call in sums if call.calls > 0]
            yield Task(agents, counted, len(erased), len(unreached - reached), repeated.errors)


def time_text(time: EventTime | None) -> str | None:
    """Return a time as ISO 8601, or None for an unknown time."""
    return None if time is None else time.isoformat()


def _time_of_first_error(figures: StoredFigures) -> datetime:
    """Return the time of the first error of a conversation, for the order of errors. An error
    without a time comes last.
    """
    return in_utc(parse_event_time(figures.texts.first_error_at) or _AT_THE_END)


def _seconds(figures: StoredFigures) -> float:
    """Return the time between the first and the last event of a conversation."""
    if figures.first_at is None or figures.last_at is None:
        return 0.0
    return (in_utc(figures.last_at) - in_utc(figures.first_at)).total_seconds()


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Add up the known numbers. Return None if all are unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
