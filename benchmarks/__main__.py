"""``python -m benchmarks``: measure questions, print a table, and write JSON; or count statements
and bytecodes, or write the published figures into the pages again.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchmarks import counts, speed_page
from benchmarks.frame import SCALES, Answer, Failed, Question, Scale, as_json, ask, refuse_load
from benchmarks.peers import report

MODULES: Mapping[str, Sequence[str]] = {
    "Append and import": ("append", "folder"),
    "Open": ("opening",),
    "Step of an agent": ("stepping",),
    "Read and verify": ("reading",),
    "Commands and lists": ("commands", "listing"),
    "Size, erasure, page": ("size", "erasing", "page"),
}
"""Maps each heading of the results to the modules that measure its questions."""
RESULTS = Path(__file__).parent / "results"


def questions(matching: str = "") -> list[Question]:
    """Return the questions with ``matching`` in their names, by default all, in their groups."""
    return [
        replace(question, group=group)
        for group, names in MODULES.items()
        for name in names
        for question in importlib.import_module(f"benchmarks.{name}").QUESTIONS
        if matching in question.name
    ]


def measure(selected: Sequence[Question], scale: Scale) -> tuple[list[Answer], list[Failed]]:
    """Answer the questions one after the other. A question that fails loses no other answer."""
    answers: list[Answer] = []
    failed: list[Failed] = []
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as shared:
        for number, question in enumerate(selected, 1):
            print(f"{number} of {len(selected)}: {question.name}", file=sys.stderr, flush=True)
            folder = Path(shared) / str(number)
            folder.mkdir()
            try:
                answers.append(ask(question, scale, folder))
            except Exception as error:  # noqa: BLE001 - the other answers would be lost; the table and the status tell
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                failed.append(Failed(question.name, reason))
            shutil.rmtree(folder)
    return answers, failed


@click.command()
@click.argument("matching", default="")
@click.option("--scale", type=click.Choice([*SCALES]), default="full", show_default=True)
@click.option("--results", type=Path, default=RESULTS, help="Folder for the JSON.")
@click.option(
    "--publish",
    is_flag=True,
    help="Measure everything, and put the figures into docs/internals/speed.json, SPEED.md and the"
    " README. Refused above a load average of 1.",
)
@click.option(
    "--pages", is_flag=True, help="Only write the published figures into the pages again."
)
@click.option(
    "--counts",
    "count",
    is_flag=True,
    help="Measure no times. Compare statements, bytecodes, functions and files with the recorded"
    " counts.",
)
@click.option("--record", is_flag=True, help="Record the counts of --counts.")
def main(
    matching: str,
    scale: str,
    results: Path,
    publish: bool,
    pages: bool,
    count: bool,
    record: bool,
) -> None:
    """Measure the questions that have targets, or only those with MATCHING in their names. The
    scale smoke is a small run to see that everything works. The exit status is 1 if a measurement
    fails, or if a full run misses a target. Nothing is published if a measurement fails.
    """
    if publish and (pages or count or record):
        raise click.UsageError("--publish measures; use it without --pages, --counts and --record")
    if record:
        counts.record()
    if count:
        counts.print_compared()
    if pages:
        speed_page.write(questions())
        report.publish(report.read_published())
    if record or pages or count:
        return
    load = os.getloadavg()[0]
    if publish:
        if matching or scale != "full":
            raise click.UsageError("--publish measures every question of a full run")
        refuse_load(load)
    selected = questions(matching)
    answers, failed = measure(selected, SCALES[scale])
    print("\n".join(speed_page.table(selected, answers)))
    for failure in failed:
        print(f"failed: {failure.question}: {failure.reason}")
    command = ["python", "-m", "benchmarks", *sys.argv[1:]]
    run = as_json(answers, failed, f"{load:.1f} to {os.getloadavg()[0]:.1f}", command)
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{scale}.json").write_text(run)
    if publish and not failed:
        speed_page.PUBLISHED.write_text(f"{run}\n", encoding="utf-8")
        speed_page.write(questions())
    if failed or (scale == "full" and not all(answer.holds for answer in answers)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
