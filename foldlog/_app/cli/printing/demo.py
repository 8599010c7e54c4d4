"""Print the demo."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command
from foldlog._app.cli.tables import Column, print_rows
from foldlog._history.histories import Histories
from foldlog._reports.replays import replay
from foldlog._reports.words.gist import gist
from foldlog._reports.words.reasons import because, requests_before
from foldlog.condensers import ESTIMATE, NoOpCondenser
from foldlog.eventstore import Observation
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.recorders.urls import without_password
from foldlog.projections.conversations.labels import label

IMPORTED = "tidewatch"
"""The conversation of the demo as its program wrote it."""
LIVE = "tidewatch-live"
"""The conversation of the demo, which foldlog condenses."""


def _round(estimate: float) -> str:
    """Return an estimate with two digits that say something."""
    return f"{float(f'{estimate:.2g}'):,.0f}"


def show_demo(db: str, histories: Histories, *, added: bool) -> None:
    history = histories[LIVE]
    store = histories.store
    view = history.view()
    events = list(history.events())
    imported = list(store.events(IMPORTED))
    condensations = [
        (one, because(one, requests_before(store, LIVE, one.id))) for one in view.condensations
    ]
    # Imported condensations and requests are not recorded again.
    replaced = sum(map(is_structural, imported))
    what = "imported into" if added else "already in"
    where = without_password(db)
    terminal.print_heading("A history")
    terminal.say_wrapped(
        f"{len(imported):,} events {what} {where}: an agent fixes a flaky test of an invented"
        " project, then adds one feature after another. Below, foldlog records the same work again"
        f" as {LIVE} and condenses every View of more than 80 events. This log has {len(events):,}"
        f" events: {len(condensations)} condensations of foldlog take the place of {replaced}"
        " imported condensations and requests."
    )
    lifetimes = history.lifetimes()
    logged = sum(one.tokens for one in lifetimes.events)
    with_it, without = (
        replay(events, condenser, ESTIMATE) for condenser in (None, NoOpCondenser())
    )
    terminal.print_heading("Before and after")
    print_rows(
        (Column(""), Column("events", "right"), Column("≈ tokens", "right")),
        [
            ("the log, where nothing is lost", f"{len(events):,}", _round(logged)),
            (
                "the View: what the model is shown now",
                f"{len(view):,}",
                _round(lifetimes.sizes[-1]),
            ),
            *(
                (f"sent in {len(each.turns):,} calls {how}", "", _round(each.tokens_sent or 0))
                for how, each in (("without condensing", without), ("with condensing", with_it))
            ),
        ],
    )
    terminal.print_heading("What was forgotten, and why")
    for action, why in condensations:
        forgotten = sum(last - first + 1 for first, last in action.forgotten.intervals)
        terminal.say_wrapped(f"  {action.id:>4}  forgot {forgotten} events: {why}")
    first, last = condensations[0][0].forgotten.intervals[-1]
    answer = history.why(
        next(event.id for event in events[first : last + 1] if isinstance(event, Observation))
    )
    terminal.say()
    terminal.say_wrapped(
        (f"event {answer.event.id} ({label(answer.event)}: {gist(answer.event, 60)})", "cyan")
    )
    terminal.say_wrapped(f"is {answer.fate} at version {answer.version:,}: {answer.reason}")
    if answer.summary is not None:
        summary_text = " ".join(answer.summary.content.split())
        terminal.say_wrapped((f"In its place: {summary_text[:160]}…", "magenta"))
    terminal.print_heading("Try next")
    commands = (
        (("list",), "all conversations"),
        (("view", LIVE), "what the model is shown now"),
        (("view", LIVE, "--at", str(condensations[-1][0].id)), "what it was shown before"),
        (("why", LIVE, str(answer.event.id)), "what became of one event"),
        (("search", "flaky test"), "events with these words"),
        (("compare", IMPORTED), "what a condenser would save"),
        (("stats", LIVE), "figures"),
        *(
            [(("serve",), "the page: open the link that it prints")]
            if find_spec("starlette")
            else []
        ),
    )
    # The shell of the user finds the command by this name or path.
    if shutil.which("foldlog"):
        program = "foldlog"
    else:
        program = shlex.quote(os.path.relpath(sys.argv[0]))
    typed = [f"{program}{command(*words).removeprefix('foldlog')}" for words, _ in commands]
    room = max(map(len, typed))
    narrow = terminal.has_edge() and terminal.columns() < 2 + room + 2 + max(
        len(what) for _, what in commands
    )
    for shown, (_, what) in zip(typed, commands, strict=True):
        if narrow:
            terminal.say(f"  {shown}")
            terminal.say(f"      {what}")
        else:
            terminal.say(f"  {shown:<{room}}  {what}")
