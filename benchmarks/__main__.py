"""``python -m benchmarks``: measure all questions, print a table, and write JSON."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from benchmarks import speed_page
from benchmarks.counts import BASELINE_EVENTS, compared, python_version, record
from benchmarks.frame import SCALES, Answer, Failed, Question, as_json, ask, figure, limit

MODULES: Mapping[str, Sequence[str]] = {
    "Append and import": ("append", "aio", "importing"),
    "Open": ("opening", "tail", "cliffs", "forks"),
    "Step of an agent": ("stepping", "tokens"),
    "Read, fold and search": (
        "reading",
        "folding",
        "rebuilding",
        "listing",
        "searching",
        "commands",
    ),
    "Size": ("size",),
    "Safe and private": ("trust", "erasing"),
    "The page": ("page",),
}
"""Maps each heading of the results to the modules that measure its questions."""
RESULTS = Path(__file__).parent / "results"


def questions(matching: str) -> list[Question]:
    return [
        replace(question, group=group)
        for group, names in MODULES.items()
        for name in names
        for question in importlib.import_module(f"benchmarks.{name}").QUESTIONS
        if matching in question.name
    ]


def table(answers: list[Answer]) -> Table:
    shown = Table(
        title="ours against raw, median of rounds", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for column in ("question", "unit", "ours", "raw", "ratio", "target", ""):
        is_left, question = column in ("question", "unit"), column == "question"
        shown.add_column(column, justify="left" if is_left else "right", no_wrap=not question)
    for a in answers:
        verdict = "[green]holds[/]" if a.holds else "[red]missed[/]"
        target = limit(a.better, a.target)
        shown.add_row(
            a.question, a.unit, figure(a.ours), figure(a.raw), f"{a.ratio:.2f}", target, verdict
        )
    return shown


def missed(answers: list[Answer]) -> list[str]:
    """Return a line for each missed target. If a section of SPEED.md explains why the target is
    missed, the line names this section.
    """
    return [
        f"missed: {a.question}, {a.ratio:.2f}, wanted {a.target:.3g}"
        + (f': docs/internals/SPEED.md, "{a.explained}"' if a.explained else "")
        for a in answers
        if not a.holds
    ]


def counts_table() -> Table:
    """Return a table that compares the counts of this run with the recorded counts. For a count
    that grew by more than a fifth, the last column shows the growth. No count makes the run fail.
    """
    shown = Table(
        title=f"counts at {BASELINE_EVENTS:,} events, CPython {python_version()}",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    for column in ("what", "now", "recorded", ""):
        shown.add_column(column, justify="left" if column == "what" else "right")
    for what, now, then, grown in compared():
        shown.add_row(what, f"{now:,}", "" if then is None else f"{then:,}", grown)
    return shown


def main(
    matching: Annotated[
        str, typer.Argument(help="Only questions whose names contain this text.")
    ] = "",
    scale: Annotated[
        str, typer.Option(help="full, or smoke: a small run to see that everything works.")
    ] = "full",
    results: Annotated[Path, typer.Option(help="Folder for the JSON.")] = RESULTS,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help=(
                "Measure nothing. Put the saved full run into docs/internals/speed.json, SPEED.md"
                " and the README."
            ),
        ),
    ] = False,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts",
            help=(
                "Measure no times. Count statements, bytecodes, functions and files, and compare"
                " them with the recorded counts."
            ),
        ),
    ] = False,
    record_counts: Annotated[
        bool, typer.Option("--record", help="Record the counts of --counts.")
    ] = False,
) -> None:
    """Measure the questions that have targets. The exit status is 1 if a measurement fails, or if a
    full run misses a target.
    """
    if publish:
        speed_page.publish(json.loads((results / "full.json").read_text()))
        return
    if counts or record_counts:
        if record_counts:
            record()
        Console().print(counts_table())
        return
    console = Console(stderr=True)
    chosen = SCALES[scale]
    selected = questions(matching)
    answers: list[Answer] = []
    failed: list[Failed] = []
    before = os.getloadavg()[0]
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        tempfile.TemporaryDirectory(prefix="foldlog-bench-") as shared,
    ):
        for number, question in enumerate(selected):
            task = progress.add_task(question.name, total=chosen.rounds)
            folder = Path(shared) / str(number)
            folder.mkdir()
            try:
                answers.append(
                    ask(question, chosen, folder, lambda task=task: progress.advance(task))
                )
            except Exception as error:  # noqa: BLE001 - the other answers would be lost; the table and the status tell
                failed.append(
                    Failed(question.name, f"{type(error).__name__}: {error}".splitlines()[0])
                )
            shutil.rmtree(folder)
            progress.update(task, completed=chosen.rounds)
    Console().print(table(answers))
    for line in [
        *missed(answers),
        *(f"failed: {failure.question}: {failure.reason}" for failure in failed),
    ]:
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    results.mkdir(parents=True, exist_ok=True)
    load = f"{before:.1f} to {os.getloadavg()[0]:.1f}"
    command = ["python", "-m", "benchmarks", *sys.argv[1:]]
    (results / f"{scale}.json").write_text(as_json(answers, failed, load, command))
    if failed or (scale == "full" and not all(answer.holds for answer in answers)):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
