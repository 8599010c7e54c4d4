"""Print figures of conversations for people."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import prices_hint
from foldlog._app.cli.tables import COST, Column, print_rows
from foldlog._reports.answers.figures import (
    AgentDocument,
    GroupedDocument,
    ModelDocument,
    ToolDocument,
)
from foldlog._reports.figures.spending import spent
from foldlog._reports.figures.stats import Stats
from foldlog._reports.words.gist import (
    calls_words,
    cost_words,
    count,
    number_words,
    spent_words,
    task_words,
)
from foldlog._reports.words.times import time_words

_EIGHTHS = " ▏▎▍▌▋▊▉█"
"""The parts of a column, from left to right, by eighths."""
_STEPS = " ▁▂▃▄▅▆▇█"
"""The parts of a row, from the bottom up, by eighths."""
_TOKENS = ("prompt", "cached", "cache_write", "completion", "reasoning")
_SAVED = (
    "tokens saved: tokens of the View before each condensation minus tokens after it (≈ estimated)"
)
_TOOLS = _DAYS = 15
"""The maximum number of lines in a table of tools, and in a table of days."""


class By(StrEnum):
    """What figures are grouped by."""

    DAY = "day"
    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"


def show_grouped(grouped: GroupedDocument, stats: Stats, first_day: str) -> None:
    """Print figures that are grouped by a tool, an agent, a model or a day."""
    if grouped.by == By.TOOL:
        rows = sorted(grouped.tools.items(), key=lambda item: item[1].calls, reverse=True)
        columns = (Column("tool", least=12), Column("calls", "right"), Column("errors", "right"))
        print_rows(
            columns,
            [(tool, f"{figures.calls:,}", number_words(figures.errors)) for tool, figures in rows],
        )
        return
    if grouped.by == By.AGENT:
        _show_agents(grouped.agents)
        return
    if not grouped.models:
        since = f" since {first_day}" if first_day else ""
        terminal.say(f"no recorded call{since} has a model, usage or cost")
        return
    _show_calls(
        [((figures.day or figures.model,), figures) for figures in grouped.models],
        (Column(grouped.by, least=30),),
    )
    _show_unknown(stats)


def show_stats(stats: Stats, title: str) -> None:
    """Print all figures of one or more conversations."""
    when = ""
    if stats.first_at is not None and stats.last_at is not None:
        when = f", {time_words(stats.first_at)} to {time_words(stats.last_at)}"
    errors = _errors(stats)
    events = count(sum(stats.events.values()), "event")
    counted = f"{events}, {errors}" if errors else events
    terminal.say_wrapped((f"{title}: {counted}{when}", "bold"))
    kinds = sorted(stats.events.items(), key=lambda item: item[1], reverse=True)
    _show_bars("events by kind", kinds)
    tools = sorted(stats.tools.items(), key=lambda item: item[1].calls, reverse=True)
    _show_bars(
        "calls by tool",
        [(tool, figures.calls, _errors(figures)) for tool, figures in tools[:_TOOLS]],
        left_out=len(tools) - _TOOLS,
    )
    if len(stats.days) > 1:
        days = sorted(stats.days.items())
        _show_bars("events by day", days[-_DAYS:], len(days) - _DAYS, "earlier")
    _show_models(stats)
    if stats.task is not None:
        task = stats.task
        terminal.say_wrapped(task_words(task))
        if task.first_error_in is not None:
            terminal.say_wrapped(f"first error in {task.first_error_in}: {task.first_error}")
    elif stats.sub_agents and stats.spent_alone is not None:
        alone = f"{number_words(stats.spent_alone.tokens)} tokens, {spent_words(stats.spent_alone)}"
        terminal.say_wrapped(
            f"{count(stats.sub_agents, 'conversation')} of sub-agents; the others alone: {alone}"
        )
    _show_condensations(stats)
    _show_view(stats)


def _show_agents(agents: Sequence[AgentDocument]) -> None:
    """Print the agents of a task, each below its parent."""
    columns = (
        Column("agent", least=24),
        *(Column(name, "right") for name in ("events", "errors", "tokens")),
        COST,
        Column("ends with", may_go=True),
        Column("title", least=16),
    )
    rows = [
        (
            "  " * agent.depth + terminal.typed_id(agent.conversation),
            number_words(agent.events),
            number_words(agent.errors),
            number_words(None if agent.spent is None else agent.spent.tokens),
            spent_words(agent.spent) if agent.spent else "",
            (agent.state or "").replace("_", " "),
            agent.title or "",
        )
        for agent in agents
    ]
    print_rows(columns, rows)
    if not rows:
        terminal.say("the conversation has no sub-agents")


def _show_unknown(stats: Stats) -> None:
    """Print how many conversations lack a figure."""
    of_them = {
        "without usage": stats.without_usage,
        "with calls that have no price": stats.without_cost,
        "from sources that do not mark errors": stats.unmarked,
    }
    unknown = ", ".join(f"{number:,} {what}" for what, number in of_them.items() if number)
    if unknown and stats.conversations > 1:
        terminal.note(f"of {count(stats.conversations, 'conversation')}, {unknown}")
    if stats.unpriced:
        terminal.note(f"no price of {', '.join(sorted(stats.unpriced))}: {prices_hint()}")


def _errors(figures: Stats | ToolDocument) -> str:
    """Return the number of errors as text, or nothing for none."""
    if figures.errors is None:
        return "errors unknown"
    return count(figures.errors, "error") if figures.errors else ""


def _show_bars(
    heading: str,
    rows: Sequence[tuple[str, int] | tuple[str, int, str]],
    left_out: int = 0,
    which: str = "more",
) -> None:
    """Print numbers with bars. A row may have a text behind its bar. ``which`` describes the rows
    that are left out.
    """
    if not rows:
        return
    terminal.say()
    largest = max(number for _, number, *_ in rows)
    room = max(4, min(50, terminal.columns() // 2))
    columns = (Column(heading, least=20), Column("", "right"), Column("", least=4), Column(""))
    print_rows(
        columns,
        [
            (f"  {name}", f"{number:,}", bar(number, largest, room), *(more or [""]))
            for name, number, *more in rows
        ],
    )
    if left_out > 0:
        terminal.PrintedLines().write((f"  and {left_out:,} {which}; --json has all", "dim"))


def _show_models(stats: Stats) -> None:
    """Print tokens and cost by model and day."""
    if not stats.models:
        terminal.print_heading("no cost: no recorded call has a model, usage or cost")
    else:
        terminal.print_heading("tokens and cost by model and day")
        _show_calls(sorted(stats.models.items()), (Column("day"), Column("model", least=12)))
    if stats.peak_prompt_tokens:
        terminal.say(_largest_prompt(stats, stats.peak_prompt_tokens))
    _show_unknown(stats)


def _largest_prompt(stats: Stats, tokens: int) -> str:
    """Return the size of the largest prompt as text, beside the limit of its model."""
    at_version = ""
    if stats.peak_prompt_version is not None:
        at_version = f", at version {stats.peak_prompt_version:,}"
    limit = stats.max_input_tokens
    if limit is None:
        return f"largest prompt: {tokens:,} tokens{at_version}; no limit known"
    percent = f"{100 * tokens / limit:.0f} %"
    used = f"largest prompt: {tokens:,} of {limit:,} tokens ({percent}){at_version}"
    return used if stats.window_of is None else f"{used}; window of {stats.window_of}"


def _show_calls(
    groups: Sequence[tuple[tuple[str, ...], ModelDocument]], named: Sequence[Column]
) -> None:
    """Print calls, tokens and cost of groups, and their sum. ``named`` are the columns of the names
    of a group.
    """
    rows = [
        (
            *names,
            calls_words(figures),
            *(number_words(getattr(figures, f"{name}_tokens")) for name in _TOKENS),
            spent_words(figures),
        )
        for names, figures in groups
    ]
    columns = (
        *named,
        Column(
            "calls", "right", marks={"+": "calls of the agent + calls of condensers"}, may_go=True
        ),
        *(Column(name, "right", may_go=True) for name in _TOKENS),
        COST,
    )
    if len(rows) > 1:
        total = spent(figures for _, figures in groups)
        empty = [""] * (len(named) - 1)
        rows.append(
            ("in all", *empty, calls_words(total), *[""] * len(_TOKENS), spent_words(total))
        )
    print_rows(columns, rows)
    cached = [
        figures for _, figures in groups if figures.cached_tokens and figures.cost_without_cache
    ]
    if any(figures.cost != figures.cost_without_cache for figures in cached):
        models = ", ".join(sorted({figures.model for figures in cached}))
        without = sum(figures.cost_without_cache or 0.0 for figures in cached)
        cost = sum(figures.cost or 0.0 for figures in cached)
        terminal.say_wrapped(
            f"without the provider's cache, the calls of {models} would have cost ≈"
            f" {cost_words(without)} instead of {cost_words(cost)}"
        )


def _show_condensations(stats: Stats) -> None:
    """Print what each strategy condensed."""
    if not stats.condensations:
        return
    terminal.print_heading("condensations by strategy, and what they forgot")
    rows = [
        (
            terminal.typed_id(name),
            f"{figures.made:,}",
            f"{figures.declined:,}" if figures.declined else "",
            f"{figures.failed:,}" if figures.failed else "",
            "" if figures.events_forgotten is None else f"{figures.events_forgotten:,}",
            f"{figures.summaries_forgotten:,}" if figures.summaries_forgotten else "",
            "" if figures.tokens_saved is None else f"≈ {figures.tokens_saved:,}",
            cost_words(figures.cost),
        )
        for name, figures in stats.condensations.items()
    ]
    headings = ("made", "declined", "failed", "events", "summaries")
    counted = (Column(heading, "right", may_go=True) for heading in headings)
    saved = Column("tokens saved", "right", marks={"≈": _SAVED}, may_go=True)
    print_rows((Column("strategy", least=12), *counted, saved, COST), rows)


def _show_view(stats: Stats) -> None:
    """Draw the size of the View over time."""
    if not stats.view_tokens or not max(stats.view_tokens):
        return
    sizes = stats.view_tokens
    terminal.print_heading(f"tokens of the View: ≈ {sizes[-1]:,} now, ≈ {max(sizes):,} at its peak")
    out = terminal.PrintedLines()
    for line in curve(sizes, min(100, terminal.columns() - 4)):
        out.write((f"  {line}", "magenta"))
    out.write((f"  version 0 to {len(sizes) - 1:,}", "dim"))


def bar(value: float, largest: float, columns: int) -> str:
    """Return a bar that shows a value relative to the largest value. A value above 0 is always
    visible.
    """
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(8 * columns * value / largest))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def curve(values: Sequence[float], columns: int, rows: int = 6) -> list[str]:
    """Return lines that draw a series of values from left to right. If several values share a
    column, the column shows the largest value.
    """
    if not values or columns < 1:
        return []
    columns = min(columns, len(values))
    peaks = [
        max(values[n * len(values) // columns : (n + 1) * len(values) // columns])
        for n in range(columns)
    ]
    largest = max(peaks)
    heights = [0] * len(peaks)
    if largest > 0:
        heights = [max(round(8 * rows * peak / largest), int(peak > 0)) for peak in peaks]
    steps = [
        [_STEPS[max(0, min(8, height - 8 * row))] for height in heights]
        for row in reversed(range(rows))
    ]
    return ["".join(row).rstrip() for row in steps]
