"""``foldlog demo``: show the main job on the history that foldlog ships."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from msgspec.structs import replace
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.hints import command, use_store
from foldlog._cli.histories.import_ import import_sources
from foldlog._cli.options import AsJson
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.stores import open_or_create
from foldlog._cli.tables import Column, print_rows
from foldlog._histories import Histories
from foldlog._history import History
from foldlog._kinds import label
from foldlog._words.gist import gist
from foldlog._words.reasons import because, requests_before
from foldlog.condensers import Condensation
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    CondensationAction,
    Event,
    Observation,
    Store,
    UnknownEvent,
    is_structural,
    without_password,
)
from foldlog.formats import open_sources
from foldlog.projections import Why

SAMPLE = Path(__file__).parent.parent / "sample" / "tidewatch.jsonl"
_IMPORTED = "tidewatch"
LIVE = "tidewatch-live"
"""The name of the same work, condensed by foldlog while it is appended."""
_CONDENSER = {"type": "digest", "max_size": 80}
_DEMO_DB = "foldlog-demo.db"


class _Shown(NamedTuple):
    """The figures of the demo, and the fate of one event."""

    added: int
    imported: int
    replaced: int
    """Imported condensations and requests, which are not recorded again."""
    events: int
    view_events: int
    log_tokens: int
    view_tokens: int
    calls: int
    sent: int
    sent_whole: int
    condensations: tuple[tuple[CondensationAction, str], ...]
    why: Why


def run(
    db: Annotated[
        str,
        typer.Option(
            "--db",
            metavar="STORE",
            callback=use_store,
            help="The store to make; it stays, so that you can try commands on it.",
        ),
    ] = _DEMO_DB,
    as_json: AsJson = False,
) -> int:
    """Show the main job on the shipped history: an agent's work of 286 events, condensed while it goes on.

    Example: foldlog demo --db try.db
    """
    with open_or_create(db) as store:
        added = _import_sample(store)
        histories = Histories(store, condenser=_CONDENSER)
        with terminal.progress() as bars:
            bar = bars.add_task("working", unit="events", total=store.version(_IMPORTED))
            for _ in _work_again(store, histories[LIVE]):
                bars.advance(bar)
        shown = _figures(histories, added)
    if as_json:
        terminal.emit(_as_json(db, shown))
    else:
        _show(db, shown)
    return DONE


def _import_sample(store: Store) -> int:
    (imported,) = import_sources(store, open_sources([SAMPLE]), _IMPORTED, quiet=True)
    if not imported.version:
        raise Refused(f"{imported.findings[0]}; give the demo a store of its own with --db STORE")
    return imported.added


def _work_again(store: Store, history: History) -> Iterator[Event]:
    """Append what the imported agent and its user did, as a runtime does: a step before each call of the model.

    Yields each event. Events that an interrupted demo appended are not appended again.
    """
    ids: dict[int | None, int] = {}
    response: str | None = None
    for event in store.events(_IMPORTED):
        yield event
        if is_structural(event) or isinstance(event, UnknownEvent):
            continue
        if isinstance(event, Action) and event.response_id != response:
            response = event.response_id
            while not _is_done(store, history) and isinstance(history.step(), Condensation):
                pass
        again = replace(event, id=-1, cause=ids.get(event.cause), origin=None)
        key = f"demo-{event.id}"
        [recorded] = store.append(history.id, again, expected_version=ANY_VERSION, idempotency_key=key)
        ids[event.id] = recorded.id


def _is_done(store: Store, history: History) -> bool:
    """Return whether all of the work was appended before: it ends with an annotation."""
    last = store.version(_IMPORTED) - 1
    wanted = next(iter(store.events(_IMPORTED, last)))
    return any(
        isinstance(event, Annotation) and isinstance(wanted, Annotation) and event.data == wanted.data
        for event in (history.events(history.version() - 1) if history.version() else ())
    )


def _figures(histories: Histories, added: int) -> _Shown:
    history = histories[LIVE]
    view, lifetimes = history.view(), history.lifetimes()
    sizes = lifetimes.sizes
    whole = 0
    sums = [0]
    for one in lifetimes.events:
        whole += one.tokens
        sums.append(whole)
    responses: dict[str | None, int] = {}
    for event in history.events():
        if isinstance(event, Action):
            responses.setdefault(event.response_id, event.id)
    condensations = tuple(
        (one, because(one, requests_before(histories.store, LIVE, one.id))) for one in view.condensations
    )
    (first, last), *_ = condensations[0][0].forgotten.intervals[-1:]
    forgotten = next(event.id for event in history.events(first, last + 1) if isinstance(event, Observation))
    return _Shown(
        added=added,
        imported=histories.store.version(_IMPORTED),
        replaced=sum(1 for event in histories.store.events(_IMPORTED) if is_structural(event)),
        events=history.version(),
        view_events=len(view),
        log_tokens=sums[-1],
        view_tokens=sizes[-1],
        calls=len(responses),
        sent=sum(sizes[version] for version in responses.values()),
        sent_whole=sum(sums[version] for version in responses.values()),
        condensations=condensations,
        why=history.why(forgotten),
    )


def _show(db: str, shown: _Shown) -> None:
    console = terminal.console()
    where = terminal.printable(without_password(db))
    what = "imported into" if shown.added else "already in"
    terminal.print_heading("A history")
    console.print(
        f"{shown.imported:,} events {what} {where}: an agent fixes a flaky test of an invented project, then adds one "
        f"feature after another. Below, foldlog records the same work again as {LIVE} and condenses every View of more "
        f"than 80 events. This log has {shown.events:,} events: {len(shown.condensations)} condensations of foldlog "
        f"take the place of {shown.replaced} imported condensations and requests."
    )
    terminal.print_heading("Before and after")
    columns = (Column(""), Column("events", justify="right"), Column("≈ tokens", justify="right"))
    rows = [
        ("the log, where nothing is lost", f"{shown.events:,}", f"{shown.log_tokens:,}"),
        ("the View: what the model is shown now", f"{shown.view_events:,}", f"{shown.view_tokens:,}"),
        (f"sent in {shown.calls:,} calls without condensing", "", f"{shown.sent_whole:,}"),
        (f"sent in {shown.calls:,} calls with it", "", f"{shown.sent:,}"),
    ]
    print_rows(columns, rows)
    terminal.print_heading("What was forgotten, and why")
    for action, why in shown.condensations:
        forgotten = sum(last - first + 1 for first, last in action.forgotten.intervals)
        console.print(f"  {action.id:>4}  forgot {forgotten} events: {why}")
    answer = shown.why
    event = f"event {answer.event.id} ({label(answer.event)}: {gist(answer.event, 60)})"
    line = Text.assemble("\n", (event, "cyan"), f"\nis {answer.fate} at version {answer.version:,}: ")
    console.print(line.append(terminal.printable(f"{answer.reason}, {shown.condensations[0][1]}", one_line=True)))
    if answer.summary is not None:
        told = terminal.printable(" ".join(answer.summary.content.split()), one_line=True)
        console.print(Text(f"In its place: {told[:160]}…", style="magenta"))
    terminal.print_heading("Try next")
    commands = [(terminal.printable(typed), what) for typed, what in _commands(shown)]
    room = max(len(typed) for typed, _ in commands)
    narrow = terminal.has_edge() and console.width < 2 + room + 2 + max(len(what) for _, what in commands)
    for typed, what in commands:
        between = "\n      " if narrow else " " * (room - len(typed) + 2)
        console.print(f"  {typed}{between}{what}", soft_wrap=True)


def _commands(shown: _Shown) -> list[tuple[str, str]]:
    last = shown.condensations[-1][0].id
    return [
        (f"{_program()}{command(*typed).removeprefix('foldlog')}", what)
        for typed, what in (
            (("list",), "all conversations"),
            (("view", LIVE), "what the model is shown now"),
            (("view", LIVE, "--at", last), "what it was shown before"),
            (("why", LIVE, shown.why.event.id), "what became of one event"),
            (("search", "flaky test"), "who mentioned it"),
            (("compare", _IMPORTED), "what a condenser would save"),
            (("stats", LIVE), "figures"),
        )
    ]


def _program() -> str:
    """Return the command as the shell that this was started from finds it."""
    return "foldlog" if shutil.which("foldlog") else shlex.quote(os.path.relpath(sys.argv[0]))


def _as_json(db: str, shown: _Shown) -> dict[str, Any]:
    return {
        "db": db,
        "added": shown.added,
        "conversations": [_IMPORTED, LIVE],
        "events": shown.events,
        "view_events": shown.view_events,
        "log_tokens": shown.log_tokens,
        "view_tokens": shown.view_tokens,
        "calls": shown.calls,
        "tokens_sent": shown.sent,
        "tokens_sent_without_condensing": shown.sent_whole,
        "condensations": [
            {
                "id": action.id,
                "why": why,
                "forgotten": [list(interval) for interval in action.forgotten.intervals],
                "summary": action.summary,
            }
            for action, why in shown.condensations
        ],
        "why": {"event": shown.why.event.id, "fate": shown.why.fate, "reason": shown.why.reason},
        "try": [typed for typed, _ in _commands(shown)],
    }
