"""``python -m benchmarks``: ask the questions, print the table, write JSON and a plot."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.counts import TARGETS, count_all, python_version
from benchmarks.frame import SCALES, Answer, Question, as_json, ask
from benchmarks.plot import plot

MODULES = (
    "append",
    "aio",
    "reading",
    "importing",
    "folding",
    "opening",
    "tail",
    "listing",
    "cliffs",
    "erasing",
    "rebuilding",
    "stepping",
    "size",
    "tokens",
    "trust",
    "commands",
    "page",
    "forks",
    "searching",
)
RESULTS = Path(__file__).parent / "results"


def questions(matching: str) -> list[Question]:
    modules = [importlib.import_module(f"benchmarks.{name}") for name in MODULES]
    return [question for module in modules for question in module.QUESTIONS if matching in question.name]


def table(answers: list[Answer]) -> Table:
    shown = Table(title="ours against raw, median of rounds", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("question", "unit", "ours", "raw", "ratio", "target", ""):
        left, question = column in ("question", "unit"), column == "question"
        shown.add_column(column, justify="left" if left else "right", no_wrap=not question)
    for a in answers:
        limit = f"{'≤' if a.better == 'at most' else '≥'} {a.target:.3g}"
        verdict = "[green]holds[/]" if a.holds else "[red]missed[/]"
        shown.add_row(a.question, a.unit, _figure(a.ours), _figure(a.raw), f"{a.ratio:.2f}", limit, verdict)
    return shown


def _figure(value: float) -> str:
    """Four digits at least, and never a power of ten, which takes room and is read by few."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.4g}"


def missed(answers: list[Answer]) -> list[str]:
    """Return a line for each missed target: where its limit is shown."""
    return [
        f'missed: {a.question}, {a.ratio:.2f}, wanted {a.target:.3g}: docs/SPEED.md, "{a.explained}"'
        for a in answers
        if not a.holds
    ]


def counts_table() -> Table:
    """Return the counts of operations, and what is wanted of CPython 3.12: others execute more or fewer bytecodes."""
    shown = Table(
        title=f"counts at 10,000 events, CPython {python_version()}", box=None, pad_edge=False, padding=(0, 1)
    )
    for column in ("operation", "bytecodes", "wanted of 3.12", "statements", "wanted"):
        shown.add_column(column, justify="left" if column == "operation" else "right")
    for operation, count in count_all().items():
        cells = zip(count, TARGETS[operation], strict=True)
        shown.add_row(
            operation, *chain.from_iterable((f"{n:,}", "" if most is None else f"≤ {most:,}") for n, most in cells)
        )
    return shown


def main(
    matching: Annotated[str, typer.Argument(help="Only questions whose name has this in it.")] = "",
    scale: Annotated[str, typer.Option(help="full, or smoke: small, to see that everything works.")] = "full",
    results: Annotated[Path, typer.Option(help="Folder for the JSON and the plot.")] = RESULTS,
) -> None:
    """Ask the questions that have targets. Exit status 1 where a target of a full run is missed."""
    console = Console(stderr=True)
    chosen = SCALES[scale]
    asked = questions(matching)
    answers: list[Answer] = []
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
        for number, question in enumerate(asked):
            task = progress.add_task(question.name, total=chosen.rounds)
            folder = Path(shared) / str(number)
            folder.mkdir()
            answers.append(ask(question, chosen, folder, lambda task=task: progress.advance(task)))
            shutil.rmtree(folder)
            progress.update(task, completed=chosen.rounds)
    Console().print(table(answers))
    for line in missed(answers):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    if not matching:
        Console().print(counts_table())
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{scale}.json").write_text(as_json(answers, ["python", "-m", "benchmarks", *sys.argv[1:]]))
    plot(answers, results / f"{scale}.png")
    if scale == "full" and not all(answer.holds for answer in answers):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
