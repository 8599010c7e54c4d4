"""``foldlog demo``: the main job, on the history that foldlog ships."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from foldlog.cli import terminal
from foldlog.cli.options import AsJson
from foldlog.cli.outcome import DONE, Refused
from foldlog.cli.reasons import because, requests_before
from foldlog.cli.stores import open_or_create

if TYPE_CHECKING:
    from rich.console import Console

    from eventstore import CondensationAction, CondensationRequest, Store
    from projections import View, Views

__all__ = ["SAMPLE", "run"]

SAMPLE = Path(__file__).parent.parent / "sample" / "tidewatch.jsonl"
_CONVERSATION = "tidewatch"
_DEMO_DB = "sqlite:///foldlog-demo.db"


class _Forgetting(NamedTuple):
    """One condensation, and the View around it."""

    condensation: CondensationAction
    before: View
    after: View
    requests: Sequence[CondensationRequest]

    @property
    def why(self) -> str:
        return because(self.condensation, self.requests) or f"without a reason, at {len(self.before)} events"


def run(
    db: Annotated[
        str, typer.Option("--db", metavar="URL", help="The store to make, which is left behind to try things on.")
    ] = _DEMO_DB,
    as_json: AsJson = False,
) -> int:
    """Show the main job on the shipped history: an agent's work of 286 events, with five condensations."""
    from projections import Views

    with open_or_create(db) as store:
        added = _import_sample(store)
        views = Views(store)
        condensations = views.current(_CONVERSATION).condensations
        forgettings = [_around(store, views, condensation) for condensation in condensations]
        if as_json:
            terminal.emit(_as_json(db, views, forgettings, added))
        else:
            _show(db, store, views, forgettings, added)
    return DONE


def _import_sample(store: Store) -> int:
    from foldlog.cli.histories.import_ import bring_in
    from foldlog.formats import open_sources

    (brought,) = bring_in(store, open_sources([SAMPLE]), _CONVERSATION, quiet=True)
    if not brought.version:
        raise Refused(f"{brought.findings[0]}; give the demo a store of its own with --db URL")
    return brought.added


def _around(store: Store, views: Views, condensation: CondensationAction) -> _Forgetting:
    requests = requests_before(store, _CONVERSATION, condensation.id)
    before = views.at(_CONVERSATION, version=condensation.id)
    return _Forgetting(condensation, before, views.at(_CONVERSATION, version=condensation.id + 1), requests)


def _show(db: str, store: Store, views: Views, forgettings: list[_Forgetting], added: int) -> None:
    from eventstore.urls import without_password
    from foldlog.cli.gist import count
    from foldlog.cli.histories.view import show

    console = terminal.console()
    view, version = views.current(_CONVERSATION), store.version(_CONVERSATION)
    last = forgettings[-1]
    name = terminal.printable(without_password(db))
    imported = f"{count(version, 'event')} imported into" if added else f"{count(version, 'event')}, already in"
    _heading(console, f"1. A history: {imported} {name}")
    console.print(
        "An agent fixes a flaky test of an invented project, then adds one feature after another. "
        "Five times its history grew too long for its model, and a part of it was condensed."
    )
    _heading(console, "2. The View: what the model is shown now")
    show(console, _CONVERSATION, view)
    _heading(console, "3. What was forgotten, and why")
    for forgetting in forgettings:
        _show_forgetting(console, forgetting)
    console.print(
        f"All {version:,} events are still in the log: {_program()} log {_CONVERSATION} --db {name}", soft_wrap=True
    )
    _heading(console, "4. The View before the last condensation")
    show(console, _CONVERSATION, last.before)
    _heading(console, "5. Go on from here")
    for command in map(terminal.printable, _commands(db, last)):
        console.print(f"  {command}", soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(text, style="bold reverse"))
    console.print()


def _show_forgetting(console: Console, forgetting: _Forgetting) -> None:
    from rich.text import Text

    from foldlog.cli.gist import count, interval_words

    condensation, _, after, _ = forgetting
    intervals, summaries = condensation.forgotten
    forgotten = sum(last - first + 1 for first, last in intervals)
    also = f" and {count(len(summaries), 'earlier summary', 'earlier summaries')}" if summaries else ""
    console.print(
        Text.assemble(
            (f"{condensation.id:>6}  ", "dim"),
            (f"forgot {count(forgotten, 'event')}{also}", "bold yellow"),
            f" ({interval_words(intervals)})",
        )
    )
    console.print(f"        why: {forgetting.why}; {len(after)} are shown after it")
    if condensation.summary is not None:
        instead = f"        instead: {terminal.printable(condensation.summary, one_line=True)}"
        terminal.print_line(console, Text(instead, style="magenta"))


def _commands(db: str, last: _Forgetting) -> list[str]:
    here, last_id = f"--db {shlex.quote(db)}", last.condensation.id
    return [
        f"{_program()} {rest}"
        for rest in (
            f"list {here}",
            f"view {_CONVERSATION} {here} --at {last_id}",
            f"log {_CONVERSATION} {here} --start {last_id - 5} --stop {last_id + 2}",
            f"view {_CONVERSATION} {here} --json",
            f"export {_CONVERSATION} {here} --output {_CONVERSATION}.jsonl",
        )
    ]


def _program() -> str:
    """Return the command that started this process, as the shell finds it."""
    return "foldlog" if shutil.which("foldlog") else shlex.quote(os.path.relpath(sys.argv[0]))


def _as_json(db: str, views: Views, forgettings: list[_Forgetting], added: int) -> dict[str, Any]:
    from foldlog.cli.histories.view import document

    return {
        "db": db,
        "added": added,
        "view": document(_CONVERSATION, views.current(_CONVERSATION)),
        "condensations": [
            {
                "id": condensation.id,
                "why": forgetting.why,
                "forgotten": [list(interval) for interval in condensation.forgotten.intervals],
                "forgotten_summaries": list(condensation.forgotten.summaries),
                "shown_before": len(forgetting.before),
                "shown_after": len(forgetting.after),
                "summary": condensation.summary,
            }
            for forgetting in forgettings
            for condensation in [forgetting.condensation]
        ],
        "view_before_the_last": document(_CONVERSATION, forgettings[-1].before),
        "try": _commands(db, forgettings[-1]),
    }
