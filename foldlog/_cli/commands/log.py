"""``foldlog log``: show all events of a conversation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Annotated

import typer
from msgspec import UNSET

from foldlog._cli import terminal
from foldlog._cli.events import LABEL_COLUMNS, STYLES, event_moment, show_event
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.outcome import Refused
from foldlog._cli.pager import paged
from foldlog._cli.selection import Kinds, Selection, Since, Until, selection
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import BorderDocument, LogDocument, streamed
from foldlog._kinds import KINDS, label
from foldlog._reports.overview import counted_in
from foldlog._reports.own_ids import in_own_ids
from foldlog._reports.unreadable import sound
from foldlog._words.event_json import event_document
from foldlog._words.gist import count, gist
from foldlog.eventstore import Border, CorruptEvent, DocumentChanges, Event, Logged, Store
from foldlog.eventstore.inside import is_structural

_POLL_S = 0.2
_SAID = frozenset(KINDS) - {"documents"}
_UNCOUNTED = "(not counted) "
_SPAN = 500
"""The number of events that are read at a time, from the end, to find the last selected ones."""


def run(
    conversation: ConversationId,
    start: Annotated[int, typer.Option("--start", metavar="N", min=0, help="First event to show.")] = 0,
    stop: Annotated[
        int | None, typer.Option("--stop", metavar="N", min=0, help="Event to stop before.", show_default="the end")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N events.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new events as they come, until Ctrl-C.")] = False,
    kinds: Kinds = None,
    since: Since = None,
    until: Until = None,
    full: Annotated[bool, typer.Option("--full", help="Each event in full, as 'foldlog show' shows it.")] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also changes of documents and attributes, as with --kind and --json.")
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show all events of a conversation in order, forgotten events too.

    Example: foldlog log tidewatch --tail 20 --kind action
    """
    if stop is not None and stop < start:
        raise Refused(f"--stop {stop} is before --start {start}; --stop is the event after the last one to show")
    wanted = selection(kinds, since=since, until=until)
    if not (kinds or every or as_json):
        wanted = wanted._replace(kinds=_SAID)
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        reading = _Reading(store, conversation, wanted)
        if start >= reading.version > 0 and not follow:
            terminal.note(f"no events from {start:,} on: the conversation has {reading.version:,}")
        lineage = store.query(conversation, lambda read: read.lineage)
        if tail is None:
            events = reading.events(start, stop)
        else:
            last = reading.last(tail, start, stop)
            start = last[0].event.id if last else reading.version + 1
            events = iter(last)
        if follow:
            events = chain(events, reading.coming(stop))
        if as_json:
            borders = tuple(BorderDocument(parent=one.parent, parent_version=one.version) for one in lineage)
            documents = streamed(
                event_document(event, recorded_at) | ({"uncounted": True} if reading.is_uncounted(event) else {})
                for recorded_at, event in events
            )
            document = LogDocument(
                conversation=conversation, version=reading.version, borders=borders or UNSET, events=documents
            )
            terminal.emit_list(document, lambda: {"findings": tuple(reading.findings)})
        else:
            with suppress(KeyboardInterrupt) if follow else paged():
                _show(events, [each for each in lineage if each.version >= start], reading, stop, full=full)
    if reading.documents:
        terminal.note(f"{count(reading.documents, 'change')} of documents and attributes: --all shows them")
    for finding in reading.findings:
        terminal.warn(finding)


class _Reading:
    """The selected events of one conversation. An event that cannot be read is a finding; the events after it are still
    read.

    Its constructor raises ``ConversationNotFound``, before any line is printed.
    """

    def __init__(self, store: Store, conversation: str, wanted: Selection) -> None:
        self._store, self._conversation, self._wanted = store, conversation, wanted
        store.events(conversation, stop=0)
        self.in_own_ids = in_own_ids(store, conversation)
        self.version = store.version(conversation)
        self.findings: list[str] = []
        self.documents = 0
        """Changes of documents that are left out."""
        self._counted: tuple[int, Callable[[Event], bool]] | None = None

    def is_uncounted(self, event: Event) -> bool:
        """Return whether figures do not count an event, up to the newest version: see ``counted_in``."""
        if self._counted is None or self._counted[0] != self.version:
            with suppress(CorruptEvent):  # it is a finding
                structural = self._store.query(self._conversation, lambda read: [*read.structural_events()])
                self._counted = self.version, counted_in(structural, self.version)
        return self._counted is not None and not self._counted[1](event)

    def end(self, stop: int | None) -> int:
        return self.version if stop is None else min(stop, self.version)

    def events(self, start: int, stop: int | None) -> Iterator[Logged]:
        end = self.end(stop)
        takes, everything = self._wanted.takes, self._wanted.everything
        for one in sound(self._store, self._conversation, start, end, self.findings):
            if everything or takes(one.event, one.recorded_at):
                yield one
            elif self._wanted.kinds is _SAID and isinstance(one.event, DocumentChanges):
                self.documents += 1

    def last(self, number: int, start: int, stop: int | None) -> list[Logged]:
        """Return the last ``number`` of these events. Cost: the events from the first of them on."""
        found: list[Logged] = []
        end = self.end(stop)
        while len(found) < number and end > start:
            begin = max(start, end - max(number, _SPAN))
            found[:0] = self.events(begin, end)
            end = begin
        return found[-number:] if number else []

    def coming(self, stop: int | None) -> Iterator[Logged]:
        """Yield events as they are appended, until Ctrl-C or up to ``stop``."""
        seen, done = -1, self.version
        try:
            while stop is None or done < stop:
                changed = self._store.database.data_version()
                if changed != seen:
                    seen, self.version = changed, self._store.version(self._conversation)
                    yield from self.events(done, stop)
                    done = max(done, self.version)
                sys.stdout.flush()
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return


def _show(events: Iterable[Logged], borders: list[Border], reading: _Reading, stop: int | None, *, full: bool) -> None:
    """Print the events, with a line where each fork begins: before its first event, or after the last shared one."""
    lines = terminal.PrintedLines()
    write, width = lines.write, lines.width

    def pass_borders(version: int) -> None:
        while borders and borders[0].version <= version:
            border = borders.pop(0)
            write((f"{'':>8}fork of {border.parent} at version {border.version:,}", "bold"))

    for recorded_at, event in ((at, reading.in_own_ids(each)) for at, each in events):
        pass_borders(event.id)
        uncounted = reading.is_uncounted(event)
        if full:
            show_event(event, recorded_at, is_uncounted=uncounted)
            continue
        kind = label(event)
        style = "" if (event.shown or is_structural(event)) and not uncounted else "dim "
        back = _UNCOUNTED if uncounted else ""
        write(
            (f"{event.id:>6}  {event_moment(event, recorded_at):<19}  ", "dim"),
            (f"{kind:<{LABEL_COLUMNS}}", f"{style}{STYLES[kind]}"),
            (f"{back}{gist(event, max(0, width - len(back)))}", style),
        )
    pass_borders(reading.end(stop))
