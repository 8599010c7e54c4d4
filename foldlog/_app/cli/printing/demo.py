"""Print the demo."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command
from foldlog._app.cli.tables import Column, print_rows
from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog._reports.replays import replay
from foldlog._reports.words.gist import gist
from foldlog._reports.words.reasons import because, requests_before
from foldlog.condensers import ESTIMATE, NoOpCondenser
from foldlog.eventstore import CondensationAction, Event, Observation
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.recorders.urls import without_password
from foldlog.projections import Lifetimes, Why
from foldlog.projections.conversations.labels import label

IMPORTED = "tidewatch"
"""The conversation of the demo as its program wrote it."""
LIVE = "tidewatch-live"
"""The conversation of the demo, which foldlog condenses."""
_SUMMARY_MAX = 160
"""The number of characters of a summary that are shown."""


def _round(estimate: float) -> str:
    """Return an estimate with two digits that say something."""
    return f"{float(f'{estimate:.2g}'):,.0f}"


class _Told(NamedTuple):
    """A condensation of the demo, and why it was made."""

    action: CondensationAction
    why: str


def show_demo(db: str, histories: Histories, *, added: bool) -> None:
    """Print what was recorded, what condensing saved, what was forgotten, and what to try next."""
    history = histories[LIVE]
    store = histories.store
    view = history.view()
    events = list(history.events())
    condensations = [
        _Told(action, because(action, requests_before(store, LIVE, action.id)))
        for action in view.condensations
    ]
    imported = list(store.events(IMPORTED))
    # Imported condensations and requests are not recorded again.
    replaced = sum(map(is_structural, imported))
    what = "imported into" if added else "already in"
    terminal.print_heading("A history")
    terminal.say_wrapped(
        f"{len(imported):,} events {what} {without_password(db)}: an agent fixes a flaky test of an"
        " invented project, then adds one feature after another. Below, foldlog records the same"
        f" work again as {LIVE} and condenses every View of more than 80 events. This log has"
        f" {len(events):,} events: {len(condensations)} condensations of foldlog take the place of"
        f" {replaced} imported condensations and requests."
    )
    _show_sizes(history.lifetimes(), len(view), events)
    answer = _show_forgotten(history, condensations, events)
    _show_commands(before=condensations[-1].action.id, event=answer.event.id)


def _show_sizes(lifetimes: Lifetimes, view_events: int, events: Sequence[Event]) -> None:
    """Print the tokens of the log, of the View, and of all prompts with and without condensing."""
    logged = sum(event.tokens for event in lifetimes.events)
    without = replay(events, NoOpCondenser(), ESTIMATE)
    with_it = replay(events, None, ESTIMATE)
    terminal.print_heading("Before and after")
    print_rows(
        (Column(""), Column("events", "right"), Column("≈ tokens", "right")),
        [
            ("the log, where nothing is lost", f"{len(events):,}", _round(logged)),
            (
                "the View: what the model is shown now",
                f"{view_events:,}",
                _round(lifetimes.sizes[-1]),
            ),
            *(
                (f"sent in {len(sent.turns):,} calls {how}", "", _round(sent.tokens_sent or 0))
                for how, sent in (("without condensing", without), ("with condensing", with_it))
            ),
        ],
    )


def _show_forgotten(
    history: History, condensations: Sequence[_Told], events: Sequence[Event]
) -> Why:
    """Print what each condensation forgot, and what became of one event, which is returned."""
    terminal.print_heading("What was forgotten, and why")
    for action, why in condensations:
        forgotten = sum(last - first + 1 for first, last in action.forgotten.intervals)
        terminal.say_wrapped(f"  {action.id:>4}  forgot {forgotten} events: {why}")
    first, last = condensations[0].action.forgotten.intervals[-1]
    results = (event for event in events[first : last + 1] if isinstance(event, Observation))
    answer = history.why(next(results).id)
    terminal.say()
    terminal.say_wrapped(
        (f"event {answer.event.id} ({label(answer.event)}: {gist(answer.event, 60)})", "cyan")
    )
    terminal.say_wrapped(f"is {answer.fate} at version {answer.version:,}: {answer.reason}")
    if answer.summary is not None:
        summary_text = " ".join(answer.summary.content.split())
        terminal.say_wrapped((f"In its place: {summary_text[:_SUMMARY_MAX]}…", "magenta"))
    return answer


def _show_commands(*, before: int, event: int) -> None:
    """Print commands to try, below each other if the terminal is narrow. ``before`` is the version
    before the last condensation.
    """
    terminal.print_heading("Try next")
    commands = [
        (("list",), "all conversations"),
        (("view", LIVE), "what the model is shown now"),
        (("view", LIVE, "--at", str(before)), "what it was shown before"),
        (("why", LIVE, str(event)), "what became of one event"),
        (("search", "flaky test"), "events with these words"),
        (("compare", IMPORTED), "what a condenser would save"),
        (("stats", LIVE), "figures"),
    ]
    if find_spec("starlette"):
        commands.append((("serve",), "the page: open the link that it prints"))
    program = "foldlog"
    if not shutil.which("foldlog"):  # the shell of the user finds the command by this path
        program = shlex.quote(os.path.relpath(sys.argv[0]))
    typed = [f"{program}{command(*words).removeprefix('foldlog')}" for words, _ in commands]
    room = max(map(len, typed))
    longest = max(len(what) for _, what in commands)
    is_narrow = terminal.has_edge() and terminal.columns() < 2 + room + 2 + longest
    for shown, (_, what) in zip(typed, commands, strict=True):
        if is_narrow:
            terminal.say(f"  {shown}")
            terminal.say(f"      {what}")
        else:
            terminal.say(f"  {shown:<{room}}  {what}")
