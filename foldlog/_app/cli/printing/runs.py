"""Print two conversations side by side for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from foldlog._app.cli import terminal
from foldlog._app.cli.printing.events import LABEL_COLUMNS, event_line
from foldlog._app.cli.tables import COST, Column, print_rows
from foldlog._reports.answers.figures import SpentDocument
from foldlog._reports.answers.runs import (
    DifferingDocument,
    DivergenceDocument,
    LineDocument,
    RunDocument,
    RunsDocument,
)
from foldlog._reports.words.gist import count, events_and_summaries, number_words, spent_words
from foldlog.eventstore import Store

_COLOURS = ("red", "green")
"""The colours of the first and of the second run."""
_TOOLS_MAX = 10
"""The maximum number of tools in the table."""
_NAME_MAX = 36
"""The maximum number of characters of an id in a table, enough for a UUID."""


def show_divergence(store: Store, divergence: DivergenceDocument) -> None:
    """Print where two forks diverge, and the events of each from there on."""
    first = divergence.first_divergent_event
    names = (divergence.conversation, divergence.other)
    id_text, other_id_text = map(terminal.typed_id, names)
    shared = "no stored event"
    if divergence.common_past:
        shared = count(divergence.common_past, "event")
    sentence = f"{id_text} and {other_id_text} share {shared}"
    if first is None:
        equal = divergence.version - divergence.common_past
        end = "neither has any other event"
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
        _COLOURS,
        strict=True,
    ):
        lines.write((f"{sign} {shown_id}: {count(stop - first, 'event')} from there on", "bold"))
        for _, event in store.log(name, first, stop):
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))


def show_runs(runs: RunsDocument) -> None:
    """Print the first difference between two runs, and the figures of both runs side by side. Then
    print the events that each model saw at this difference, and the later steps.
    """
    id_text, other_id_text = (terminal.typed_id(run.conversation) for run in runs.runs)
    terminal.say((f"{id_text} and {other_id_text} share no past; {_beginning_words(runs)}", "bold"))
    names = (_column_name(id_text), _column_name(other_id_text))
    if runs.system_prompts is not None:
        _write_difference(_system_heading(runs.system_prompts), runs.system_prompts, names)
    if runs.first_difference is None:
        if runs.same_first > runs.redacted_first:
            compared = " that was compared" if runs.redacted_first else ""
            terminal.print_heading(f"no request and no {_reply_word(runs)}{compared} differs")
    else:
        heading = f"the first request or {_reply_word(runs)} that differs"
        _write_difference(heading, runs.first_difference, names)
    terminal.say()
    _print_table(
        runs.runs,
        (f"requests and {_reply_words(runs)} in both", f"{runs.same:,}", f"{runs.same:,}"),
    )
    _write_shown(runs)
    if runs.first_difference is not None:
        _write_steps(runs, runs.first_difference)


def _reply_word(runs: RunsDocument) -> str:
    """Return the word for a step: ``call``, or ``reply`` if a run has no calls."""
    return "call" if all(run.calls for run in runs.runs) else "reply"


def _reply_words(runs: RunsDocument) -> str:
    """Return the plural of ``_reply_word``."""
    return {"call": "calls", "reply": "replies"}[_reply_word(runs)]


def _system_heading(difference: DifferingDocument) -> str:
    """Return a heading with the number of lines that differ between two system prompts."""
    if None in difference.events:
        return "only one run has a system prompt"
    apart, other_apart = difference.lines_apart
    lines, other_lines = difference.lines
    return (
        f"the system prompts differ: {apart:,} of {count(lines, 'line')} only in the first,"
        f" {other_apart:,} of {count(other_lines, 'line')} only in the second"
    )


def _write_difference(heading: str, difference: DifferingDocument, names: tuple[str, str]) -> None:
    """Print the places at which two events differ, the words of each run in brackets."""
    terminal.print_heading(heading)
    lines = terminal.PrintedLines()
    if not difference.passages:
        for sign, name, event, colour in zip("-+", names, difference.events, _COLOURS, strict=True):
            text = f" {name} has none" if event is None else _line(event)
            lines.write((f"{sign}{text}", colour))
    for number, passage in enumerate(difference.passages):
        for sign, event, words, brackets, colour in zip(
            "-+",
            difference.events,
            (passage.words, passage.other_words),
            (("[-", "-]"), ("{+", "+}")),
            _COLOURS,
            strict=True,
        ):
            if event is None:
                continue
            begin = f"{event.event:>7}  {event.kind}" if number == 0 else ""
            marked = f"{brackets[0]}{words}{brackets[1]}" if words else ""
            parts = [part for part in (passage.before, marked, passage.after) if part]
            lines.write((f"{sign}{begin:<{9 + LABEL_COLUMNS}}{' '.join(parts)}", colour))
    if difference.more:
        lines.write((f"{'':>10}and {count(difference.more, 'more place')}", "dim"))


def _write_steps(runs: RunsDocument, difference: DifferingDocument) -> None:
    """Print the steps from the first difference on. Equal steps are counted."""
    lines = terminal.PrintedLines()
    terminal.print_heading(f"requests and {_reply_words(runs)} from there on")
    firsts = [
        run.version if line is None else line.event
        for run, line in zip(runs.runs, difference.events, strict=True)
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
        _write_equal_steps(lines, equal_count, runs)
        equal_count = 0
        sign, colour = ("-", "red") if ids[1] is None else ("+", "green")
        numbers = "".join(f"{'' if event_id is None else event_id:>7}" for event_id in ids)
        lines.write((f"{sign}{numbers}  {step.kind:<{LABEL_COLUMNS}}{step.gist}", colour))
    _write_equal_steps(lines, equal_count, runs)


def _write_shown(runs: RunsDocument) -> None:
    """Print what each model was shown at the first difference, and the other was not."""
    id_text, other_id_text = (_column_name(run.conversation) for run in runs.runs)
    lines = terminal.PrintedLines()
    for sign, name, without, knew, colour in zip(
        "-+", (id_text, other_id_text), (other_id_text, id_text), runs.knew, _COLOURS, strict=True
    ):
        if not knew.events or (runs.first_difference is None and not knew.alone):
            continue
        only_text = ""
        if knew.alone:
            only_text = f"; {len(knew.alone):,} of them not shown to {without}:"
        amount = events_and_summaries(knew.events - knew.summaries, knew.summaries)
        shown = f"{amount}, ≈ {count(knew.tokens, 'token')}"
        terminal.print_heading(f"{name} was shown {shown} at version {knew.version:,}{only_text}")
        for line in knew.alone:
            lines.write((f"{sign}{_line(line)}", colour))


def _print_table(runs: Sequence[RunDocument], *in_both: tuple[str, str, str]) -> None:
    """Print the figures of two runs side by side, and their last answers."""
    rows = [
        (name, *(number_words(getattr(run, name)) for run in runs))
        for name in ("requests", "replies", "calls", "errors")
    ]
    rows += in_both
    tools = sorted(
        dict.fromkeys(chain(*(run.tools for run in runs))),
        key=lambda tool: -sum(run.tools.get(tool, 0) for run in runs),
    )
    for tool in tools[:_TOOLS_MAX]:
        rows.append((f"calls of {tool}", *(f"{run.tools.get(tool, 0):,}" for run in runs)))
    if others := tools[_TOOLS_MAX:]:
        calls = (f"{sum(run.tools.get(tool, 0) for tool in others):,}" for run in runs)
        rows.append((f"calls of {count(len(others), 'other tool')}", *calls))
    for name in ("prompt_tokens", "completion_tokens"):
        tokens = (number_words(getattr(run.spent, name, None)) for run in runs)
        rows.append((name.replace("_", " "), *tokens))
    costs = [run.spent or SpentDocument() for run in runs]
    if any(spent.condenser_calls for spent in costs):
        rows.insert(
            2, ("replies of condensers' models", *(f"{spent.condenser_calls:,}" for spent in costs))
        )
    rows.append(("cost", *map(spent_words, costs)))
    if any(run.task for run in runs):
        tasks = [run.task.spent if run.task else run.spent or SpentDocument() for run in runs]
        rows.append(("cost with sub-agents", *map(spent_words, tasks)))
    names = (_column_name(run.conversation) for run in runs)
    print_rows((Column(""), *(Column(name, "right", 12, COST.marks) for name in names)), rows)
    lines = terminal.PrintedLines()
    terminal.print_heading("the answers to the last requests")
    for sign, run, colour in zip("-+", runs, _COLOURS, strict=True):
        lines.write((f"{sign}{' none' if run.answer is None else _line(run.answer)}", colour))


def _beginning_words(runs: RunsDocument) -> str:
    """Return a text that says whether the system prompts of two runs differ, and how many of the
    first steps are equal. The text also says how many of the first steps are redacted, and were not
    compared. The page of two runs has the same words.
    """
    first = runs.same_first
    redacted = runs.redacted_first
    prompts = "" if runs.system_prompts is None else "their system prompts differ; "
    word = _reply_word(runs)
    words = _reply_words(runs)
    if not runs.steps:
        return f"{prompts}neither has a request or a {word}"
    if not first:
        in_both = count(runs.same, f"request or {word}", f"requests and {words}")
        return f"{prompts}their first request or {word} differs; {in_both} in both"
    steps = f"first request or {word}" if first == 1 else f"first {first:,} requests and {words}"
    if redacted == first:
        return f"{prompts}their {steps} {_redacted_words(redacted)}"
    if redacted:
        equal = f"{first - redacted:,} of their {steps} {_is_or_are(first - redacted)} equal"
        return f"{prompts}{equal}; {redacted:,} {_redacted_words(redacted)}"
    return f"{prompts}their {steps} {_is_or_are(first)} equal"


def _is_or_are(number: int) -> str:
    return "is" if number == 1 else "are"


def _redacted_words(number: int) -> str:
    return f"{_is_or_are(number)} redacted, and {'was' if number == 1 else 'were'} not compared"


def _write_equal_steps(lines: terminal.PrintedLines, number: int, runs: RunsDocument) -> None:
    """Print the number of equal steps before another one, if there are some."""
    if number:
        words = count(
            number, f"request or {_reply_word(runs)}", f"requests and {_reply_words(runs)}"
        )
        lines.write((f"{'':>17}{words} in both", "dim"))


def _column_name(conversation: str) -> str:
    """Return an id, or its end, for the heading of a column."""
    name = terminal.typed_id(conversation)
    return name if len(name) <= _NAME_MAX else f"…{name[1 - _NAME_MAX :]}"


def _line(line: LineDocument) -> str:
    """Return an event of a run as a line."""
    return f"{line.event:>7}  {line.kind:<{LABEL_COLUMNS}}{line.gist}"
