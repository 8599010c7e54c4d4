"""``foldlog compare --fork``: replay a history with other condensers, and keep the replays as forks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.progress import Progress, TaskID

from foldlog._cli import terminal
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.stores import open_existing, whole
from foldlog._kinds import label
from foldlog._words.gist import count
from foldlog.condensers import AgentModel, Condenser, ForkReplay, ModelCallFailed, replay_as_fork
from foldlog.eventstore import InvalidArgument
from foldlog.projections import Views

_LISTED_MAX = 5


def make_forks(
    db: str,
    conversation: str,
    at: int,
    condensers: Mapping[str, Condenser],
    model: AgentModel | None,
    *,
    as_json: bool,
) -> int:
    """Replay a conversation from version ``at`` on under each condenser, as a fork. Print what the forks show."""
    with open_existing(db) as store:
        version = store.conversation(whole(store, conversation)).version
        if not 1 <= at <= version:
            raise Refused(f"conversation {conversation!r} has {version} events and cannot be forked at {at}")
        forks = {name: f"{conversation}@{at}-{name}" for name in condensers}
        for fork in forks.values():
            if store.version(fork):
                raise Refused(f"conversation {fork!r} exists already; fork at another version, or rename the file")
        views = Views(store)
        store.register(views)
        rows = []
        for name, fork in forks.items():
            with terminal.progress() as bars:
                replaying = f"replaying, {terminal.printable(name, one_line=True)}"
                bar = bars.add_task(replaying, unit="events", total=version - at)
                show = partial(_show_replayed, bars, bar, at)
                try:
                    done = replay_as_fork(store, views, conversation, at, fork, condensers[name], model, show)
                except InvalidArgument as error:
                    raise Refused(str(error)) from error
                except ModelCallFailed as error:
                    kept = f"fork {fork!r} keeps the events that were replayed before"
                    raise Refused(f"{name} cannot be compared: {error}; {kept}") from error
            rows.append(_document(name, done, len(views.current(fork))))
    if as_json:
        terminal.emit({"conversation": conversation, "version": version, "fork_at": at, "forks": rows})
        return DONE
    for row in rows:
        name = terminal.typed_id(row["conversation"])
        made = count(row["condensations"], "condensation")
        made += f" ({row['declined']:,} more declined)" if row["declined"] else ""
        left = f"; {count(row['left_out'], 'event')} could not be replayed ({_listed(row)})" if row["left_out"] else ""
        view = f"View of {count(row['view_events'], 'event')}"
        terminal.print_line(terminal.console(), f"{name}: {count(row['version'], 'event')}, {made}, {view}{left}")
    return DONE


def _listed(row: Mapping[str, Any]) -> str:
    """Return the ids and kinds of the first events that a fork leaves out."""
    first = [f"{event['kind']} {event['id']}" for event in row["left_out_events"][:_LISTED_MAX]]
    return terminal.printable(", ".join(first + ["…"] * (row["left_out"] > _LISTED_MAX)), one_line=True)


def _show_replayed(bars: Progress, bar: TaskID, at: int, event_id: int) -> None:
    bars.update(bar, completed=event_id - at)


def _document(name: str, done: ForkReplay, view_events: int) -> dict[str, Any]:
    return {
        "strategy": name,
        "conversation": done.conversation,
        "version": done.version,
        "condensations": done.condensations,
        "declined": done.declined,
        "left_out": len(done.left_out),
        "left_out_events": [{"id": event.id, "kind": label(event)} for event in done.left_out],
        "view_events": view_events,
    }
