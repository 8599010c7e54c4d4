"""``foldlog demo``: show the main job on the history that foldlog ships."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from foldlog._cli import terminal
from foldlog._cli.hints import DEMO_DB, command, use_store
from foldlog._cli.stores import open_or_create
from foldlog._cli.tables import Column, print_rows
from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog._kinds import label
from foldlog._reports.replays import replay
from foldlog._words.gist import gist
from foldlog._words.reasons import because, requests_before
from foldlog.condensers import ESTIMATE, Condensation, NoOpCondenser
from foldlog.eventstore import ANY_VERSION, Action, Annotation, Event, Observation, Store, UnknownEvent
from foldlog.eventstore.inside import is_structural, without_password

SAMPLE = Path(__file__).parents[2] / "sample" / "tidewatch.jsonl"
_IMPORTED = "tidewatch"
LIVE = "tidewatch-live"
"""The name of the same work, condensed by foldlog while it is appended."""
_CONDENSER = {"type": "digest", "max_size": 80}


def run(
    db: Annotated[
        str,
        typer.Option(
            "--db",
            metavar="STORE",
            callback=use_store,
            help="The store to make; it stays, so that you can try commands on it.",
        ),
    ] = DEMO_DB,
) -> None:
    """Show the main job on the shipped history: an agent's work of 286 events, condensed while it goes on.

    Example: foldlog demo --db try.db
    """
    with open_or_create(db) as store:
        histories = Histories(store, condenser=_CONDENSER)
        before = histories[_IMPORTED].version()
        histories.import_(SAMPLE, conversation=_IMPORTED)
        with terminal.working("working", "events", store.version(_IMPORTED)) as update:
            for _ in _work_again(store, histories[LIVE]):
                update(advance=1)
        _show(db, histories, added=not before)


def _work_again(store: Store, history: History) -> Iterator[Event]:
    """Append what the imported agent and its user did, as a runtime does: a step before each call of the model.

    Yields each event. Events that an interrupted demo appended are not appended again.
    """
    ids: dict[int | None, int] = {}
    response: str | None = None
    imported = list(store.events(_IMPORTED))
    last = [*history.events(history.version() - 1)] if history.version() else []
    if last and isinstance(last[0], Annotation) and last[0].data == getattr(imported[-1], "data", None):
        return  # all of the work was appended before: it ends with this annotation
    for event in imported:
        yield event
        if is_structural(event) or isinstance(event, UnknownEvent):
            continue
        if isinstance(event, Action) and event.response_id != response:
            response = event.response_id
            while isinstance(history.step(), Condensation):
                pass
        again = replace(event, id=-1, cause=ids.get(event.cause), origin=None)
        key = f"demo-{event.id}"
        [recorded] = store.append(history.id, again, expected_version=ANY_VERSION, idempotency_key=key)
        ids[event.id] = recorded.id


def _rounded(estimate: int) -> str:
    """Return an estimated number with as many digits as it is worth."""
    return f"{float(f'{estimate:.2g}'):,.0f}"


def _show(db: str, histories: Histories, *, added: bool) -> None:
    history, store = histories[LIVE], histories.store
    view, events, imported = history.view(), list(history.events()), list(store.events(_IMPORTED))
    condensations = [(one, because(one, requests_before(store, LIVE, one.id))) for one in view.condensations]
    replaced = sum(map(is_structural, imported))  # imported condensations and requests are not recorded again
    what, where = "imported into" if added else "already in", without_password(db)
    terminal.print_heading("A history")
    terminal.say(
        f"{len(imported):,} events {what} {where}: an agent fixes a flaky test of an invented project, then adds one "
        f"feature after another. Below, foldlog records the same work again as {LIVE} and condenses every View of more "
        f"than 80 events. This log has {len(events):,} events: {len(condensations)} condensations of foldlog take the "
        f"place of {replaced} imported condensations and requests.",
        wraps=True,
    )
    lifetimes = history.lifetimes()
    logged = sum(one.tokens for one in lifetimes.events)
    with_it, without = (replay(events, condenser, ESTIMATE) for condenser in (None, NoOpCondenser()))
    terminal.print_heading("Before and after")
    print_rows(
        (Column(""), Column("events", "right"), Column("≈ tokens", "right")),
        [
            ("the log, where nothing is lost", f"{len(events):,}", _rounded(logged)),
            ("the View: what the model is shown now", f"{len(view):,}", _rounded(lifetimes.sizes[-1])),
            *(
                (f"sent in {len(each.turns):,} calls {how}", "", _rounded(each.tokens_sent or 0))
                for how, each in (("without condensing", without), ("with it", with_it))
            ),
        ],
    )
    terminal.print_heading("What was forgotten, and why")
    for action, why in condensations:
        forgotten = sum(last - first + 1 for first, last in action.forgotten.intervals)
        terminal.say(f"  {action.id:>4}  forgot {forgotten} events: {why}", wraps=True)
    first, last = condensations[0][0].forgotten.intervals[-1]
    answer = history.why(next(event.id for event in events[first : last + 1] if isinstance(event, Observation)))
    terminal.say()
    terminal.say((f"event {answer.event.id} ({label(answer.event)}: {gist(answer.event, 60)})", "cyan"), wraps=True)
    terminal.say(f"is {answer.fate} at version {answer.version:,}: {answer.reason}, {condensations[0][1]}", wraps=True)
    if answer.summary is not None:
        told = " ".join(answer.summary.content.split())
        terminal.say((f"In its place: {told[:160]}…", "magenta"), wraps=True)
    terminal.print_heading("Try next")
    commands = (
        (("list",), "all conversations"),
        (("view", LIVE), "what the model is shown now"),
        (("view", LIVE, "--at", str(condensations[-1][0].id)), "what it was shown before"),
        (("why", LIVE, str(answer.event.id)), "what became of one event"),
        (("search", "flaky test"), "who mentioned it"),
        (("compare", _IMPORTED), "what a condenser would save"),
        (("stats", LIVE), "figures"),
        *([(("serve",), "the page: open the link that it prints")] if find_spec("starlette") else []),
    )
    # the command as the shell that this was started from finds it
    program = "foldlog" if shutil.which("foldlog") else shlex.quote(os.path.relpath(sys.argv[0]))
    typed = [f"{program}{command(*words).removeprefix('foldlog')}" for words, _ in commands]
    room = max(map(len, typed))
    narrow = terminal.has_edge() and terminal.columns() < 2 + room + 2 + max(len(what) for _, what in commands)
    for shown, (_, what) in zip(typed, commands, strict=True):
        if narrow:
            terminal.say(f"  {shown}")
            terminal.say(f"      {what}")
        else:
            terminal.say(f"  {shown:<{room}}  {what}")
