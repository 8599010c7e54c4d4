"""Two conversations beside each other, as people read them."""

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


def show_divergence(store: Store, found: DivergenceDocument) -> None:
    """Print the divergence for people, and the events of each conversation from the first divergent
    one on.
    """
    first = found.first_divergent_event
    names = (found.conversation, found.other)
    one, other = map(terminal.typed_id, names)
    said = (
        f"{one} and {other} share"
        f" {count(found.common_past, 'event') if found.common_past else 'no stored event'}"
    )
    if first is None:
        equal = found.version - found.common_past
        end = "neither has another event"
    else:
        equal = first - found.common_past
        end = f"the first divergent event is {first:,}"
    if equal:
        word = "then" if found.common_past else "but"
        said += f", {word} have {count(equal, 'equal event')} each"
    terminal.say((f"{said}; {end}", "bold"))
    if first is None:
        return
    _print_table(found.runs)
    terminal.print_heading("the events that differ")
    lines = terminal.PrintedLines()
    for sign, name, shown, stop, colour in zip(
        "-+",
        names,
        (one, other),
        (found.version, found.other_version),
        ("red", "green"),
        strict=True,
    ):
        lines.write((f"{sign} {shown}: {count(stop - first, 'event')} from there on", "bold"))
        for _, event in store.log(name, first, stop):
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))


def show_runs(found: RunsDocument) -> None:
    """Print two runs side by side, then the first difference, what each model was shown then, and
    the steps from there on.
    """
    one, other = (terminal.typed_id(run.conversation) for run in found.runs)
    terminal.say((f"{one} and {other} share no past; {_same_words(found)}", "bold"))
    _print_table(found.runs, ("requests and calls in both", f"{found.same:,}", f"{found.same:,}"))
    lines = terminal.PrintedLines()
    if found.first_difference is None:
        lines.write(("no request and no call differs", ""))
        _write_knew(found)
        return
    terminal.print_heading("the first difference")
    for sign, name, line, colour in zip(
        "-+", (one, other), found.first_difference, _COLOURS, strict=True
    ):
        told = f" {name} ends" if line is None else _line(line)
        lines.write((f"{sign}{told}", colour))
    _write_knew(found)
    terminal.print_heading("requests and calls from there on")
    firsts = [
        run.version if line is None else line.event
        for run, line in zip(found.runs, found.first_difference, strict=True)
    ]
    same = 0
    for step in found.steps:
        ids = step.event, step.other_event
        if not any(
            each is not None and each >= first for each, first in zip(ids, firsts, strict=True)
        ):
            continue
        if None not in ids:
            same += 1
            continue
        _write_same(lines, same)
        same = 0
        sign, colour = ("-", "red") if ids[1] is None else ("+", "green")
        numbers = "".join(f"{'' if each is None else each:>7}" for each in ids)
        lines.write((f"{sign}{numbers}  {step.kind:<{LABEL_COLUMNS}}{step.gist}", colour))
    _write_same(lines, same)


def _write_knew(found: RunsDocument) -> None:
    """Print what only one of two runs was shown."""
    one, other = (terminal.typed_id(run.conversation) for run in found.runs)
    lines = terminal.PrintedLines()
    for sign, name, without, knew, colour in zip(
        "-+", (one, other), (other, one), found.knew, _COLOURS, strict=True
    ):
        if not knew.events or (found.first_difference is None and not knew.alone):
            continue
        if knew.alone:
            alone = f", {without} was not shown {len(knew.alone):,} of these:"
        else:
            alone = ""
        shown = f"{count(knew.events, 'event')}, ≈ {knew.tokens:,} tokens"
        terminal.print_heading(f"{name} was shown {shown} at version {knew.version:,}{alone}")
        for line in knew.alone:
            lines.write((f"{sign}{_line(line)}", colour))


def _print_table(runs: Sequence[RunDocument], *in_both: tuple[str, str, str]) -> None:
    """Print what each of two runs has side by side, and the answers to their last requests."""
    rows = [
        (name, *(number_words(getattr(run, name)) for run in runs))
        for name in ("requests", "replies", "calls", "errors")
    ]
    rows += in_both
    for tool in list(dict.fromkeys(chain(*(run.tools for run in runs))))[:_TOOLS_MAX]:
        called = (f"{run.tools.get(tool, 0):,}" for run in runs)
        rows.append((f"calls of {tool}", *called))
    for name in ("prompt_tokens", "completion_tokens"):
        tokens = (number_words(getattr(run.spent, name, None)) for run in runs)
        rows.append((name.replace("_", " "), *tokens))
    costs = [run.spent or SpentDocument() for run in runs]
    if any(each.condenser_calls for each in costs):
        rows.insert(
            2, ("replies of condensers' models", *(f"{each.condenser_calls:,}" for each in costs))
        )
    rows.append(("cost", *map(spent_words, costs)))
    names = (terminal.typed_id(run.conversation) for run in runs)
    print_rows((Column(""), *(Column(name, "right", 12, COST.marks) for name in names)), rows)
    lines = terminal.PrintedLines()
    terminal.print_heading("the answers to the last requests")
    for sign, run, colour in zip("-+", runs, _COLOURS, strict=True):
        lines.write((f"{sign}{' none' if run.answer is None else _line(run.answer)}", colour))


def _same_words(found: RunsDocument) -> str:
    """Say how many of the first requests and calls of two runs say the same, and of how many
    nothing is known.
    """
    same = found.same_first
    redacted = found.redacted_first
    if not same:
        return (
            "their first requests differ;"
            f" {count(found.same, 'request or call', 'requests and calls')} in both"
        )
    if redacted:
        first = f"{same - redacted:,} of their first {same:,} requests and calls say the same"
        return f"{first}; nothing is known of those that are redacted: {redacted:,}"
    return (
        f"their first {f'{same:,} requests and calls say' if same > 1 else 'request or call says'}"
        " the same"
    )


def _write_same(lines: terminal.PrintedLines, number: int) -> None:
    if number:
        lines.write(
            (f"{'':>17}{count(number, 'request or call', 'requests and calls')} in both", "dim")
        )


def _line(line: LineDocument) -> str:
    return f"{line.event:>7}  {line.kind:<{LABEL_COLUMNS}}{line.gist}"
