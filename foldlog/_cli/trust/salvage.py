"""``foldlog salvage``: copy the sound events of a damaged store to a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command, store_name, use_store
from foldlog._cli.options import AsJson, new_file
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import events_total, open_existing, open_or_create, path_of
from foldlog._documents import LossDocument, SalvagedDocument, SalvageDocument
from foldlog._formats.tips import mark_lost
from foldlog._words.gist import count
from foldlog.eventstore import Store, StoreUnusable, as_url, open_store
from foldlog.eventstore.maintenance.salvage import Salvaged, salvage
from foldlog.eventstore.recorders.sqlite.readable import Readable, copy_readable


def run(
    source: Annotated[
        str, typer.Argument(metavar="FROM", callback=use_store, help="The damaged store: a file, or its URL.")
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TO", callback=new_file, help="The new store: a file that does not exist, or a URL."),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy the sound events of a damaged store to a new store, and report what is lost.

    Everything that SQLite can still read is copied. The file is not changed; end the programs that use it first. An
    event that says so replaces each lost event. Undamaged conversations keep their heads. If the end of a conversation
    may be lost too, the report says so. Exit status 1 if an event is lost or may be, or if SQLite cannot read the whole
    file; 2 if nothing can be copied, and then no file is left.

    Example: foldlog salvage damaged.db rescued.db
    """
    to = _url(target)
    if os.path.exists(path_of(to) or ""):
        raise Refused(f"{target} exists already; salvage into a new store")
    done: list[Salvaged] = []
    with (
        _readable(_url(source), to) as (old, readable),
        open_or_create(to) as new,
        terminal.working("salvaging", "events", events_total(old)) as update,
    ):
        use_store(source)
        for each in salvage(old, new, ends=readable.ends):
            update(advance=each.events)
            done.append(each if each.problem is not None else _marked(new, each))
    unreadable = _unreadable(source, readable)
    if all(each.problem is not None for each in done):
        _warn(done, target, unreadable)
        raise Refused(f"nothing of {store_name(source)} could be copied")
    document = SalvageDocument(
        source=source,
        target=target,
        conversations=tuple(map(_document, done)),
        nameless=readable.nameless,
        unreadable=tuple(readable.tables),
    )
    terminal.answer(document, _summed_up(done, target))
    _warn(done, target, unreadable)


def _marked(store: Store, done: Salvaged) -> Salvaged:
    """Let a salvaged conversation say what it lacks, in an event of its own."""
    runs = [(each.first, each.last) for each in done.lost]
    lost = [range(first, last + 1) for first, last in runs if first is not None and last is not None]
    if not lost:
        return done
    mark_lost(store, done.conversation, chain.from_iterable(lost))
    return done._replace(events=store.version(done.conversation))


def _unreadable(source: str, readable: Readable) -> list[str]:
    """Return what is lost of the file as a whole."""
    lost = [f"SQLite cannot read all of the table {table!r} of {source}" for table in readable.tables]
    if readable.nameless:
        named = count(readable.nameless, "conversation")
        lost.append(f"{named} without a name, which is lost: nothing of it was copied")
    return lost


def _warn(done: list[Salvaged], target: str, unreadable: Sequence[str]) -> None:
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
    for problem in unreadable:
        terminal.warn(problem)


@contextmanager
def _readable(source: str, target: str) -> Iterator[tuple[Store, Readable]]:
    """Yield the source as a readable store. The readable rows of a file are first copied beside the target."""
    path = path_of(source)
    if path is None:
        with open_existing(source) as store:
            yield store, Readable(0, 0, (), {})
        return
    if not os.path.exists(path):
        raise Refused(f"{path} does not exist")
    copied = f"{path_of(target) or path}.rows-{os.getpid()}"
    try:
        try:
            readable = copy_readable(path, copied)
        except StoreUnusable as error:
            raise Refused(f"{error}; nothing was written") from error
        if readable.conversations == 0:
            raise Refused(
                f"SQLite cannot read a conversation of {path}; nothing was written. Restore a backup, or recover the "
                f"file with SQLite first (docs/how-to/damaged.md)"
            )
        with open_store(as_url(Path(copied))) as store:
            yield store, readable
    finally:
        for suffix in ("", "-wal", "-shm", "-queue"):
            if os.path.exists(copied + suffix):
                os.unlink(copied + suffix)


def _url(named: str) -> str:
    return as_url(named if "://" in named or named == "memory:" else Path(named))


def _document(each: Salvaged) -> SalvagedDocument:
    return SalvagedDocument.of(each, version=each.events, lost=tuple(map(LossDocument.of, each.lost)))


def _summed_up(done: list[Salvaged], target: str) -> str:
    whole = sum(each.whole for each in done)
    parts = sum(not each.whole and each.problem is None for each in done)
    lost = sum(each.problem is not None for each in done)
    events = count(sum(each.events for each in done), "event")
    words = f"{count(whole, 'conversation')} whole, {parts:,} in part, {lost:,} not at all"
    return f"{words}; {events} in {target}."
