"""``foldlog log``: show all events of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.log_reading import KINDS_BY_DEFAULT, LogReading
from foldlog._app.cli.options import conversation_argument, flag, option, store_options
from foldlog._app.cli.pager import page_output
from foldlog._app.cli.printing.log import show_log
from foldlog._app.cli.selection import kinds_option, selection, since_option, until_option
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import stream
from foldlog._reports.answers.events import BorderDocument, LogDocument
from foldlog._reports.words.event_json import shown_document
from foldlog._reports.words.gist import count
from foldlog.eventstore import Border, Event, Logged

_SLOW = 10
"""The number of slow events, unless ``--tail`` sets it."""


@conversation_argument
@option("--start", "N", "First event to show.", default=0)
@option("--stop", "N", "Event to stop before.", show_default="the end")
@option("--tail -n", "N", "Only the last N events.")
@flag("--slow", f"The {_SLOW} events with the longest waits for a model or a tool.")
@flag("--follow -f", "Show new events when they are appended, until Ctrl-C.")
@kinds_option
@since_option
@until_option
@flag("--full", "Show each event in full, like 'foldlog show'.")
@flag(
    "--all -a every",
    "Also show changes of documents and attributes. --kind and --json always show them.",
)
@store_options
def run(
    conversation: str,
    start: int,
    stop: int | None,
    tail: int | None,
    slow: bool,
    follow: bool,
    kinds: tuple[str, ...],
    since: str | None,
    until: str | None,
    full: bool,
    every: bool,
    db: str,
) -> None:
    """Show all events of a conversation in order, including forgotten events.

    Example: foldlog log tidewatch --tail 20 --kind action
    """
    _check_options(start, stop, slow=slow, prints_lines=follow or full)
    filters = selection(kinds, since=since, until=until)
    if not (kinds or every or terminal.prints_json()):
        filters = filters._replace(kinds=KINDS_BY_DEFAULT)
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        reading = LogReading(store, conversation, filters)
        if start >= reading.version > 0 and not follow:
            terminal.note(f"no events from {start:,} on: the conversation has {reading.version:,}")
        if slow:
            chosen = _slowest(reading, _SLOW if tail is None else tail, start, stop)
        else:
            lineage = store.query(conversation, lambda read: read.lineage)
            chosen = _in_order(reading, lineage, start, stop, tail)
        if follow:
            chosen = chosen._replace(events=chain(chosen.events, reading.coming(stop)))
        if terminal.prints_json():
            _emit(conversation, reading, chosen)
        else:
            with suppress(KeyboardInterrupt) if follow else page_output():
                borders = [border for border in chosen.lineage if border.version >= chosen.start]
                show_log(chosen.events, borders, reading, stop, chosen.waits, full=full)
    if reading.documents:
        terminal.note(
            f"{count(len(reading.documents), 'change')} of documents and attributes: --all shows"
            " them"
        )
    terminal.warn(*reading.findings)


class _Chosen(NamedTuple):
    """What the command prints of a conversation.

    ``start``    the first event
    ``lineage``  the borders of a fork
    ``waits``    maps an event's id to the seconds that it was waited for
    """

    events: Iterator[Logged]
    start: int
    lineage: Sequence[Border] = ()
    waits: Mapping[int, float] = {}


def _check_options(start: int, stop: int | None, *, slow: bool, prints_lines: bool) -> None:
    """Raise ``Refused`` if options exclude one another."""
    if slow and prints_lines:
        raise Refused("--slow prints one line for each slow event; leave out --follow and --full")
    if stop is not None and stop < start:
        raise Refused(
            f"--stop {stop} is before --start {start}; --stop is the event after the last"
            " event to show"
        )


def _slowest(reading: LogReading, number: int, start: int, stop: int | None) -> _Chosen:
    """Return the events with the longest waits."""
    slowest = reading.slowest(number, start, stop)
    waits = {logged.event.id: seconds for seconds, logged in slowest}
    return _Chosen(iter([logged for _, logged in slowest]), start, waits=waits)


def _in_order(
    reading: LogReading,
    lineage: Sequence[Border],
    start: int,
    stop: int | None,
    tail: int | None,
) -> _Chosen:
    """Return the events in their order, or the last of them."""
    if tail is None:
        return _Chosen(reading.events(start, stop), start, lineage)
    last = reading.last(tail, start, stop)
    first = last[0].event.id if last else reading.version + 1
    return _Chosen(iter(last), first, lineage)


def _emit(conversation: str, reading: LogReading, chosen: _Chosen) -> None:
    """Print the events as one document, while they are read."""
    borders = tuple(
        BorderDocument(parent=border.parent, parent_version=border.version)
        for border in chosen.lineage
    )
    documents = stream(
        shown_document(event, recorded_at) | _added_fields(event, reading, chosen.waits)
        for recorded_at, event in chosen.events
    )
    document = LogDocument(
        conversation=conversation,
        version=reading.version,
        borders=borders or UNSET,
        events=documents,
    )
    terminal.emit_list(document, lambda: {"findings": tuple(reading.findings)})


def _added_fields(event: Event, reading: LogReading, waits: Mapping[int, float]) -> JsonObject:
    """Return the fields that an event's JSON document has in addition to the event's own fields."""
    beside: JsonObject = {"uncounted": True} if reading.is_uncounted(event) else {}
    return beside | ({"waited_s": waits[event.id]} if event.id in waits else {})
