"""``foldlog salvage``: copy the sound events of a damaged store to a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from eventstore import Store, open_store
from eventstore.maintenance.losses import losses_of
from eventstore.maintenance.row_checks import VerifyFinding
from eventstore.maintenance.salvage import LOST_MAX, Salvaged, salvage
from eventstore.recorders.sqlite.damaged.carving import Carved, carve
from eventstore.recorders.urls import as_url, parse
from eventstore.stored.database import translated
from foldlog.cli import terminal
from foldlog.cli.hints import command, store_name, use_store
from foldlog.cli.options import AsJson
from foldlog.cli.outcome import DONE, FINDINGS, Refused
from foldlog.cli.outputs import new_file
from foldlog.cli.stores import events_total, open_existing, open_or_create
from foldlog.words.gist import count

_ROW_BYTES_MIN = 64
_LOST_MIN = 10_000
"""A file that was cut off may have held more events than the rest of it has room for."""


def run(
    source: Annotated[
        str, typer.Argument(metavar="FROM", callback=use_store, help="The damaged store: a file, or its URL.")
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TO", callback=new_file, help="The new store: a file that does not exist, or a URL."),
    ],
    as_json: AsJson = False,
) -> int:
    """Copy the sound events of a damaged store to a new store, and report what is lost.

    The file is read page by page, so events on pages that SQLite refuses are found too. The file is not changed. An
    event that says so replaces each lost event. Undamaged conversations keep their heads. If the end of a conversation
    may be lost too, the report says so. Exit status 1 if an event is lost or may be, or if the file is cut off; 2 if
    nothing can be copied, and then no file is left.

    Example: foldlog salvage damaged.db rescued.db
    """
    to = _url(target)
    if os.path.exists(_path(to) or ""):
        raise Refused(f"{target} exists already; salvage into a new store")
    done: list[Salvaged] = []
    with (
        translated(),
        _readable(_url(source), to) as (old, carved),
        open_or_create(to) as new,
        terminal.progress() as bars,
    ):
        use_store(source)
        bar = bars.add_task("salvaging", unit="events", total=events_total(old))
        ends = {} if carved is None else {key: VerifyFinding(*end) for key, end in carved.ends.items()}
        earlier = losses_of(old.database.recorder)
        of_file = _of_file(source, carved)
        for each in salvage(old, new, lost_max=_lost_max(_path(_url(source))), ends=ends, of_file=of_file):
            bars.advance(bar, each.events)
            done.append(each)
    if all(each.problem is not None for each in done):
        _warn(done, source, target, of_file, carved)
        raise Refused(f"nothing of {store_name(source)} could be copied")
    there, recorded = (0, 0) if carved is None else carved.pages
    read, not_read = (0, 0) if carved is None else carved.frames
    nameless = 0 if carved is None else carved.nameless
    if as_json:
        conversations = [_document(each) for each in done]
        document: dict[str, Any] = {"from": source, "to": target, "conversations": conversations, "nameless": nameless}
        document["pages"] = None if carved is None else {"there": there, "recorded": recorded}
        terminal.emit(document | {"frames": None if carved is None else {"read": read, "not_read": not_read}})
    else:
        _sum_up(done, target)
    _warn(done, source, target, of_file, carved)
    for loss in earlier:
        where = "" if loss.conversation is None else f"conversation {loss.conversation!r}, "
        terminal.note(f"{where}{loss.finding()}; nothing more of it can be had here")
    is_sound = not nameless and there == recorded and not not_read
    return DONE if all(each.whole for each in done) and is_sound else FINDINGS


def _of_file(source: str, carved: Carved | None) -> list[str]:
    """Return what is lost of the file as a whole."""
    lost = []
    if carved is not None and carved.nameless:
        named = count(carved.nameless, "conversation")
        lost.append(f"{named} without a name, which is lost: nothing of it was copied")
    if carved is not None and carved.pages[0] < carved.pages[1]:
        there, recorded = carved.pages
        lost.append(
            f"{source} is cut off: {there:,} of {recorded:,} pages are there; conversations, idempotency keys and the "
            f"ends of conversations may be lost"
        )
    return lost


def _warn(done: list[Salvaged], source: str, target: str, of_file: Sequence[str], carved: Carved | None) -> None:
    """Print what is lost of each conversation, and of the file as a whole."""
    for each in done:
        if each.problem is not None:
            terminal.warn(f"conversation {each.conversation!r}: nothing of it was copied: {each.problem}")
        for finding in each.lost if each.problem is None else ():
            terminal.warn(f"conversation {each.conversation!r}, {finding}")
        if each.view_ends is not None:
            fork = command("fork", each.conversation, "NEW", "--at", each.view_ends, "--db", target)
            terminal.warn(
                f"conversation {each.conversation!r}: event {each.view_ends} is lost and changed the View, so there is "
                f"no View from there on; '{fork}' makes a conversation that ends before it"
            )
    for problem in of_file:
        terminal.warn(problem)
    read, not_read = (0, 0) if carved is None else carved.frames
    if not_read:
        terminal.warn(
            f"{source}-wal is damaged: SQLite reads {read:,} of its frames, and not the {not_read:,} after them; the "
            f"sound ones of these were copied too"
        )


@contextmanager
def _readable(source: str, target: str) -> Iterator[tuple[Store, Carved | None]]:
    """Yield the source as a readable store. The rows of a damaged file are first written to a file beside the target;
    for a file, yield also the numbers of what was found in it.
    """
    path = _path(source)
    if path is None:
        with open_existing(source) as store:
            yield store, None
        return
    if not os.path.exists(path):
        raise Refused(f"{path} does not exist")
    carved = f"{_path(target) or path}.rows-{os.getpid()}"
    try:
        found = carve(path, carved)
        if found.conversations == 0:
            raise Refused(f"{path} has no readable conversation; nothing was written")
        with open_store(f"sqlite:///{carved}") as store:
            yield store, found
    finally:
        for suffix in ("", "-wal", "-shm", "-queue"):
            if os.path.exists(carved + suffix):
                os.unlink(carved + suffix)


def _lost_max(path: str | None) -> int:
    """Return how many consecutive events can be missing: a file held only what fits into it."""
    return LOST_MAX if path is None else min(max(_LOST_MIN, os.path.getsize(path) // _ROW_BYTES_MIN), LOST_MAX)


def _url(named: str) -> str:
    return named if "://" in named or named == "memory:" else f"sqlite:///{named}"


def _path(url: str) -> str | None:
    location = parse(as_url(url))
    return location.path if location.scheme == "sqlite" else None


def _document(each: Salvaged) -> dict[str, Any]:
    return {
        "conversation": each.conversation,
        "events": each.events,
        "whole": each.whole,
        "lost": [{"first": f.first, "last": f.last, "problem": f.problem} for f in each.lost],
        "problem": each.problem,
        "view_ends": each.view_ends,
    }


def _sum_up(done: list[Salvaged], target: str) -> None:
    whole = sum(each.whole for each in done)
    parts = sum(not each.whole and each.problem is None for each in done)
    lost = sum(each.problem is not None for each in done)
    events = count(sum(each.events for each in done), "event")
    words = f"{count(whole, 'conversation')} whole, {parts:,} in part, {lost:,} not at all"
    terminal.console().print(f"{words}; {events} in {terminal.printable(target)}.")
