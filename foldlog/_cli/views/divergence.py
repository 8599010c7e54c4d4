"""Compare two forks since their common past: a part of ``foldlog diff``."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, NamedTuple

from msgspec.structs import replace
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.borders import common_past
from foldlog._cli.outcome import Refused
from foldlog._cli.styles import LABEL_COLUMNS
from foldlog._kinds import label
from foldlog._words.event_json import event_document
from foldlog._words.gist import count, gist
from foldlog.eventstore import Event, Logged, Store


class Divergence(NamedTuple):
    """The place where two conversations with a common past diverge. Events below ``shared`` are stored once for both;
    events from there to ``first`` were recorded in each of them and are equal except for their times. ``first`` is None
    if neither has another event.
    """

    conversations: tuple[str, str]
    versions: tuple[int, int]
    shared: int
    first: int | None
    events: tuple[Logged | None, Logged | None]


def divergence(store: Store, one: str, other: str) -> Divergence:
    """Find the first event that differs. Cost: the events from the common past up to it.

    Raises ``Refused`` for conversations without a common past.
    """
    shared = common_past(store, one, other)
    if shared is None:
        raise Refused(
            f"conversations {one!r} and {other!r} share no past; give a conversation and its fork, or two forks of one "
            f"conversation ('foldlog list' shows them)"
        )
    versions = store.version(one), store.version(other)
    logs = (store.log(name, shared, stop) for name, stop in zip((one, other), versions, strict=True))
    for place, (left, right) in enumerate(zip_longest(*logs), start=shared):
        if left is None or right is None or not _equal(left.event, right.event):
            return Divergence((one, other), versions, shared, place, (left, right))
    return Divergence((one, other), versions, shared, None, (None, None))


def _equal(one: Event, other: Event) -> bool:
    """Return whether two events are equal except for their times: a replay has the times of the replay."""
    return replace(one, timestamp=None) == replace(other, timestamp=None)


def divergence_document(found: Divergence) -> dict[str, Any]:
    """Return the divergence for programs."""
    event, other_event = (None if one is None else event_document(one.event, one.recorded_at) for one in found.events)
    return {
        "conversation": found.conversations[0],
        "version": found.versions[0],
        "other": found.conversations[1],
        "other_version": found.versions[1],
        "common_past": found.shared,
        "first_divergent_event": found.first,
        "event": event,
        "other_event": other_event,
    }


def show_divergence(store: Store, found: Divergence) -> None:
    """Print the divergence for people, and the events of each conversation from the first divergent one on."""
    one, other = (terminal.typed_id(name) for name in found.conversations)
    said = f"{one} and {other} share {count(found.shared, 'event')}"
    if found.first is None:
        equal, end = found.versions[0] - found.shared, "neither has another event"
    else:
        equal, end = found.first - found.shared, f"the first divergent event is {found.first:,}"
    said += f", then have {count(equal, 'equal event')} each; {end}" if equal else f"; {end}"
    terminal.console().print(Text(said, style="bold"), soft_wrap=True)
    if found.first is None:
        return
    lines = terminal.PrintedLines()
    for sign, name, shown, stop, colour in zip(
        "-+", found.conversations, (one, other), found.versions, ("red", "green"), strict=True
    ):
        lines.write((f"{sign} {shown}: {count(stop - found.first, 'event')} from there on", "bold"))
        for _, event in store.log(name, found.first, stop):
            lines.write((f"{sign}{event.id:>6}  {label(event):<{LABEL_COLUMNS}}{gist(event, lines.width)}", colour))
