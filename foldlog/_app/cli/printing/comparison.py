"""Print a comparison of condensers for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import counted_words
from foldlog._app.cli.tables import Column, print_rows
from foldlog._reports.answers.comparison import (
    ComparisonDocument,
    CurvePointDocument,
    StrategyFiguresDocument,
)
from foldlog._reports.words.dropped import dropped_words
from foldlog._reports.words.gist import cost_words, count
from foldlog.eventstore.errors import install_command

if TYPE_CHECKING:
    from foldlog.condensers import LLM


def show_curve(path: Path, points: list[CurvePointDocument]) -> None:
    """Print the points of a plot, and where it is."""
    heads = ("size", "tokens a prompt", "terms", "facts")
    rows = [
        [
            point.strategy,
            str(point.size or ""),
            f"{point.tokens:,}",
            f"{point.terms:.1f} %",
            "–" if point.facts is None else f"{point.facts:.1f} %",
        ]
        for point in points
    ]
    terminal.say()
    print_rows((Column("strategy"), *(Column(head, "right") for head in heads)), rows)
    terminal.say(f"Recall at retained tokens: {path}")


RECORDED = "as recorded"
"""The name of the column with the condensations of the log."""
_MISSING_SHOWN = 3
"""The number of terms that are named for a strategy that did not show them."""
_COSTS = {"cost", "condenser_cost"}
_FIGURES = (
    ("condenser", "condenser", "{}"),
    ("  condenses above, events", "events_max", "{:,}"),
    ("  condenses above, tokens", "tokens_max", "{:,}"),
    ("needed again and shown", "needed_shown", "{:.1f} %"),
    ("  seen more than 60 events before", "old_names_shown", "{:.1f} %"),
    ("  shown, or named by its event's id", "needed_named", "{:.1f} %"),
    ("  shown beside a word of its text", "facts_shown", "{:.1f} %"),
    ("small numbers needed and shown", "numbers_shown", "{:.1f} %"),
    ("  seen more than 60 events before", "old_numbers_shown", "{:.1f} %"),
    ("plain words needed and shown", "words_shown", "{:.1f} %"),
    ("  seen more than 60 events before", "old_words_shown", "{:.1f} %"),
    ("condensations", "condensations", "{:,}"),
    ("  for 100 calls", "condensations_per_100_calls", "{:.1f}"),
    ("  requested, but declined", "declined", "{:,}"),
    ("largest View, events", "view_events_peak", "{:,}"),
    ("last View, events", "view_events_last", "{:,}"),
    ("  hidden by a mask in this View", "events_hidden_last", "{:,}"),
    ("largest prompt, tokens", "tokens_peak", "{:,}"),
    ("cost of prompts and condenser together", "cost", cost_words),
    ("sent in total, tokens", "tokens_sent", "{:,}"),
    ("  repeated from the previous prompt", "tokens_repeated", "{:,}"),
    ("    read from the provider's cache", "tokens_cached", "{:,}"),
    ("  new", "tokens_new", "{:,}"),
    ("for the condenser's own model, tokens", "condenser_tokens", "{:,}"),
    ("cost of the condenser's own model", "condenser_cost", cost_words),
    ("summaries from own prompts, tokens", "summary_tokens", "{:,}"),
    ("  cost", "summary_cost", cost_words),
    ("summaries from next prompts, tokens", "continued_tokens", "{:,}"),
    ("  read from the provider's cache", "continued_cached", "{:,}"),
    ("  cost", "continued_cost", cost_words),
    ("unusable replies", "condenser_failures", "{:,}"),
    ("events in a summary", "events_summarized", "{:,}"),
    ("events masked at a call", "events_masked", "{:,}"),
    ("events lost", "events_lost", "{:,}"),
    ("  of them messages of the user", "user_messages_lost", "{:,}"),
)
"""The rows of the table, each with its heading, a field of the document, and the format of the
value. A tuple of ids is shown as a count.
"""

_ALWAYS = {
    "cost",
    "condensations",
    "view_events_peak",
    "view_events_last",
    "tokens_sent",
    "events_summarized",
    "events_lost",
}
"""Rows that the table always shows."""


def show_comparison(document: ComparisonDocument, model: LLM | None, counter: LLM | None) -> None:
    """Print the figures of all condensers as a table, and what each dropped."""
    name = terminal.typed_id(document.conversation)
    rows = document.strategies
    calls = count(rows[0].turns, "call")
    terminal.say_wrapped(
        (f"{name}: {count(document.version, 'event')}, {calls} of the agent's model", "bold")
    )
    for line in document.verdict:
        terminal.say_wrapped(line)
    terminal.say()
    names = (row.strategy for row in rows)
    columns = (
        Column(name, "right", least=12, may_go=place > 0) for place, name in enumerate(names)
    )
    print_rows((Column(""), *columns), figure_rows(rows, counter)[1:])
    for row in rows:
        if row.missing:
            terminal.say_wrapped(f"{row.strategy} did not show {_missing(row)}")
    for drop in document.dropped:
        terminal.say_wrapped(f"{RECORDED}, {dropped_words(drop)}")
    if counter is None:
        terminal.say_wrapped(f"Tokens are estimated: ≈. To count them: {install_command('llm')}")
        return
    terminal.say_wrapped(f"Tokens {counted_words(counter)}. No history was changed.")
    if model is None:
        terminal.say_wrapped(
            "Condensers compare estimated tokens with their limits, as in an agent without "
            "agent_llm."
        )
    else:
        terminal.say_wrapped(
            f"To make your agent count tokens as this comparison does, open its store with "
            f"agent_llm=LLM(LLMConfig(model={model.model!r}))."
        )


def figure_rows(rows: Sequence[StrategyFiguresDocument], counter: LLM | None) -> list[list[str]]:
    """Return the figures as a table of texts: first the headings, then one column for every
    strategy. Without a ``counter``, tokens are estimated.
    """
    table = [["", *(row.strategy for row in rows)]]
    for heading, key, form in _FIGURES:
        missing = "unknown" if key in _COSTS else "–"
        values = [getattr(row, key) for row in rows]
        values = [len(value) if isinstance(value, tuple) else value for value in values]
        words = form if callable(form) else form.format
        is_estimate = counter is None and (key.startswith("tokens_") or key == "cost")
        about = "≈ " if is_estimate else ""
        if key in _ALWAYS or any(values) or (key in _COSTS and None in values):
            table.append(
                [heading, *(missing if value is None else about + words(value) for value in values)]
            )
    return table


def _missing(row: StrategyFiguresDocument) -> str:
    """Return the terms that the prompts of a strategy lacked most often, and the number of the
    other terms. For each term, name the last event that used it, and an event that has it.
    """
    often = Counter(term.term for term in row.missing).most_common(_MISSING_SHOWN)
    last = {term.term: term for term in row.missing}
    named = "; ".join(
        f"{term} ({count(times, 'time')}; event {last[term].used} used it, event"
        f" {last[term].occurred[0]} has it)"
        for term, times in often
    )
    left_out = len(last) - len(often)
    return f"{named}; and {count(left_out, 'other term')}: see --json" if left_out else named
