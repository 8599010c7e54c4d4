"""Print two conversations side by side for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from foldlog._cli import terminal
from foldlog._cli.events import LABEL_COLUMNS, event_line
from foldlog._cli.tables import COST, Column, print_rows
from foldlog._documents import (
    DivergenceDocument,
    LineDocument,
    RunDocument,
    RunsDocument,
    SpentDocument,
)
from foldlog._words.gist import count, number_words, spent_words
from foldlog.eventstore import Store

_COLOURS = ("red", "green")
_TOOLS_MAX = 10


def show_divergence(store: Store, divergence: DivergenceDocument) -> None:
    """Print where two conversations diverge, and the events of each from the first different one
    on.
    """
    first = divergence.first_divergent_event
    names = (divergence.conversation, divergence.other)
    id_text, other_id_text = map(terminal.typed_id, names)
    shared = "no stored event"
    if divergence.common_past:
        shared = count(divergence.common_past, "event")
    sentence = f"{id_text} and {other_id_text} share {shared}"
    if first is None:
        equal = divergence.version - divergence.common_past
        end = "neither has another event"
    else:
        equal = first - divergence.common_past
        end = f"the first divergent event is {first:,}"
    if equal:
        word = "then" if divergence.common_past else "but"
        sentence += f", {word} have {count(equal, 'equal event')} each"
    terminal.say((f"{sentence}; {end}", "bold"))
    if first is None:
        return
    _print_table(divergence.runs)
    terminal.print_heading("the events that differ")
    lines = terminal.PrintedLines()
    for sign, name, shown_id, stop, colour in zip(
        "-+",
        names,
        (id_text, other_id_text),
        (divergence.version, divergence.other_version),
        ("red", "green"),
        strict=True,
    ):
        lines.write((f"{sign} {shown_id}: {count(stop - first, 'event')} from there on", "bold"))
        for _, event in store.log(name, first, stop):
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))


def show_runs(runs: RunsDocument) -> None:
    """Print two runs side by side, then the first difference, the events that each model was shown
    then, and the steps from there on.
    """
    id_text, other_id_text = (terminal.typed_id(run.conversation) for run in runs.runs)
    terminal.say((f"{id_text} and {other_id_text} share no past; {_beginning_words(runs)}", "bold"))
    _print_table(runs.runs, ("requests and calls in both", f"{runs.same:,}", f"{runs.same:,}"))
    lines = terminal.PrintedLines()
    if runs.first_difference is None:
        lines.write(("no request and no call differs", ""))
        _write_shown(runs)
        return
    terminal.print_heading("the first difference")
    for sign, name, line, colour in zip(
        "-+", (id_text, other_id_text), runs.first_difference, _COLOURS, strict=True
    ):
        text = f" {name} ends" if line is None else _line(line)
        lines.write((f"{sign}{text}", colour))
    _write_shown(runs)
    terminal.print_heading("requests and calls from there on")
    firsts = [
        run.version if line is None else line.event
        for run, line in zip(runs.runs, runs.first_difference, strict=True)
    ]
    equal_count = 0
    for step in runs.steps:
        ids = step.event, step.other_event
        if not any(
            event_id is not None and event_id >= first
            for event_id, first in zip(ids, firsts, strict=True)
        ):
            continue
        if None not in ids:
            equal_count += 1
            continue
        _write_equal_steps(lines, equal_count)
        equal_count = 0
        sign, colour = ("-", "red") if ids[1] is None else ("+", "green")
        numbers = "".join(f"{'' if event_id is None else event_id:>7}" for event_id in ids)
        lines.write((f"{sign}{numbers}  {step.kind:<{LABEL_COLUMNS}}{step.gist}", colour))
    _write_equal_steps(lines, equal_count)


def _write_shown(runs: RunsDocument) -> None:
    """Print the events that only one of two runs was shown."""
    id_text, other_id_text = (terminal.typed_id(run.conversation) for run in runs.runs)
    lines = terminal.PrintedLines()
    for sign, name, without, knew, colour in zip(
        "-+", (id_text, other_id_text), (other_id_text, id_text), runs.knew, _COLOURS, strict=True
    ):
        if not knew.events or (runs.first_difference is None and not knew.alone):
            continue
        only_text = ""
        if knew.alone:
            only_text = f", {without} was not shown {len(knew.alone):,} of these:"
        shown = f"{count(knew.events, 'event')}, ≈ {knew.tokens:,} tokens"
        terminal.print_heading(f"{name} was shown {shown} at version {knew.version:,}{only_text}")
        for line in knew.alone:
            lines.write((f"{sign}{_line(line)}", colour))


def _print_table(runs: Sequence[RunDocument], *in_both: tuple[str, str, str]) -> None:
    """Print the figures of two runs side by side, and the answers to their last requests."""
    rows = [
        (name, *(number_words(getattr(run, name)) for run in runs))
        for name in ("requests", "replies", "calls", "errors")
    ]
    rows += in_both
    for tool in list(dict.fromkeys(chain(*(run.tools for run in runs))))[:_TOOLS_MAX]:
        calls = (f"{run.tools.get(tool, 0):,}" for run in runs)
        rows.append((f"calls of {tool}", *calls))
    for name in ("prompt_tokens", "completion_tokens"):
        tokens = (number_words(getattr(run.spent, name, None)) for run in runs)
        rows.append((name.replace("_", " "), *tokens))
    costs = [run.spent or SpentDocument() for run in runs]
    if any(spent.condenser_calls for spent in costs):
        rows.insert(
            2, ("replies of condensers' models", *(f"{spent.condenser_calls:,}" for spent in costs))
        )
    rows.append(("cost", *map(spent_words, costs)))
    names = (terminal.typed_id(run.conversation) for run in runs)
    print_rows((Column(""), *(Column(name, "right", 12, COST.marks) for name in names)), rows)
    lines = terminal.PrintedLines()
    terminal.print_heading("the answers to the last requests")
    for sign, run, colour in zip("-+", runs, _COLOURS, strict=True):
        lines.write((f"{sign}{' none' if run.answer is None else _line(run.answer)}", colour))


def _beginning_words(runs: RunsDocument) -> str:
    """Return a text with the number of first requests and calls that are equal in two runs, and the
    number of redacted ones among them.
    """
    equal_count = runs.same_first
    redacted = runs.redacted_first
    if not equal_count:
        return (
            "their first requests differ;"
            f" {count(runs.same, 'request or call', 'requests and calls')} in both"
        )
    if redacted:
        readable = f"{equal_count - redacted:,} of their first {equal_count:,}"
        return (
            f"{readable} requests and calls say the same; nothing is known of those that are"
            f" redacted: {redacted:,}"
        )
    if equal_count == 1:
        return "their first request or call says the same"
    return f"their first {equal_count:,} requests and calls say the same"


def _write_equal_steps(lines: terminal.PrintedLines, number: int) -> None:
    if number:
        lines.write(
            (f"{'':>17}{count(number, 'request or call', 'requests and calls')} in both", "dim")
        )


def _line(line: LineDocument) -> str:
    return f"{line.event:>7}  {line.kind:<{LABEL_COLUMNS}}{line.gist}"
