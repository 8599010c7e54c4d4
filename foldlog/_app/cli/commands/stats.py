"""``foldlog stats``: print the figures of conversations."""

from __future__ import annotations

from datetime import UTC
from functools import partial
from itertools import islice
from pathlib import Path

import click
from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import (
    conversations_argument,
    option,
    prices_option,
    store_options,
    wait_option,
    with_children_option,
)
from foldlog._app.cli.printing.figures_behind import say_behind
from foldlog._app.cli.printing.statistics import By, show_grouped, show_stats
from foldlog._app.cli.selection import moment_of_option
from foldlog._app.cli.stores import chosen, events_total, open_existing
from foldlog._reports.answers.figures import AgentDocument, GroupedDocument
from foldlog._reports.figures.documents import collect_stats, unreached_agents, with_sub_agents
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.stats import Stats
from foldlog._reports.words.gist import count
from foldlog.eventstore import StoreRefused
from foldlog.projections import Views


@conversations_argument
@click.option(
    "--by",
    type=click.Choice([by.value for by in By]),
    help="Tokens and cost by day, model or agent, or calls and errors by tool.",
)
@with_children_option
@option(
    "--since",
    "TIME",
    "With --by day or model: only calls since this day, such as 2026-03-01 or 7d.",
)
@wait_option
@prices_option
@store_options
def run(
    conversations: tuple[str, ...],
    by: str | None,
    with_children: bool,
    since: str | None,
    wait: bool,
    prices: Path | None,
    db: str,
) -> None:
    """Count errors, events by kind and tool, tokens and cost by model and day, and condensations by
    strategy.

    For one conversation, draw the size of its View. Days are in UTC, unless the source has no time
    zone. A total adds only known figures. The output says how many conversations lack a figure. If
    several conversations contain the same reply of a model, the reply counts once. A fork's figures
    count only the fork's own events. In an imported conversation that was never used, records count
    as events, and the savings of condensations are unknown. If a model call reported no cost,
    foldlog shows the price of its tokens, marked with ≈. If many events are not counted yet, the
    sums of all conversations lack them, and a note says so.

    Example: foldlog stats --by model --since 7d
    """
    first_day = _first_day(since, by)
    with open_existing(db) as store, terminal.working("counting", "events") as update:
        # If the store has only one conversation, its figures are shown as if the user had named it.
        # To know that, two ids are enough.
        first_ids = list(islice(chosen(store, conversations), None if conversations else 2))
        names = first_ids if conversations or len(first_ids) == 1 else None
        if by == By.AGENT and (names is None or len(names) != 1):
            raise Refused("--by agent needs one conversation; name the conversation of a task")
        unreached = list[str]()
        if names is not None and (with_children or by == By.AGENT):
            unreached = unreached_agents(store, names)
        # A table of agents has the sub-agents in any case.
        if with_children and names is not None and by != By.AGENT:
            names = with_sub_agents(store, names)
        update(total=None if names is None else events_total(store, names))
        collect = partial(
            collect_stats,
            store,
            on_events=lambda n: update(advance=n),
            views=Views(store),
            prices=Prices(prices),
            has_task=True,
            waits_for="all" if wait else "named",
        )
        try:
            stats = collect(names)
        except StoreRefused:
            if names is not None:
                raise
            # With a list of names, an unreadable conversation becomes a finding, and the others are
            # counted.
            stats = collect(list(chosen(store, None)))
        stats.findings += unreached
    if by is not None:
        grouped = _group(stats, by, first_day)
        terminal.answer(grouped, lambda: show_grouped(grouped, stats, first_day))
    else:
        if names and len(names) == 1:
            title = names[0]
        else:
            title = count(stats.conversations, "conversation")
        document = stats.document(names[0] if names and len(names) == 1 else UNSET)
        terminal.answer(document, lambda: show_stats(stats, title))
    say_behind(stats.behind)
    terminal.warn(*stats.findings)


def _first_day(since: str | None, by: str | None) -> str:
    """Return the first day whose calls are counted, or an empty text for all days."""
    moment = moment_of_option("--since", since)
    if moment is None:
        return ""
    if by not in (By.DAY, By.MODEL):
        raise Refused(
            "--since needs '--by day' or '--by model', because other figures are not stored for "
            "each day"
        )
    return moment.astimezone(UTC).date().isoformat()


def _group(stats: Stats, by: str, first_day: str) -> GroupedDocument:
    """Group calls by day, by model, by tool or by agent."""
    agents: tuple[AgentDocument, ...] = ()
    if stats.task is not None and stats.task.agents:
        agents = stats.task.agents
    return GroupedDocument.of(
        stats,
        by=by,
        models=stats.calls_by(by, first_day) if by in (By.DAY, By.MODEL) else (),
        tools=stats.tools if by == By.TOOL else {},
        agents=agents if by == By.AGENT else (),
        behind=UNSET if stats.behind is None else stats.behind.document(),
    )
