"""``foldlog log``: everything that happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from foldlog.cli import terminal
from foldlog.cli.documents import event_document
from foldlog.cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog.cli.outcome import DONE, FINDINGS
from foldlog.cli.stores import open_existing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventstore import Event, Store

__all__ = ["run"]


def run(
    conversation: ConversationId,
    start: Annotated[int, typer.Option("--start", metavar="N", min=0, help="First event to show.")] = 0,
    stop: Annotated[
        int | None, typer.Option("--stop", metavar="N", min=0, help="Event to stop before.", show_default="the end")
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Show all events of a conversation in order, forgotten events too."""
    with open_existing(db) as store:
        findings: list[str] = []
        head = {"conversation": conversation, "version": _version(store, conversation)}
        events = _sound(store, conversation, start, stop, findings)
        if as_json:
            terminal.emit_list(head, "events", map(event_document, events), lambda: {"findings": findings})
        else:
            _show(events)
    for finding in findings:
        terminal.warn(finding)
    return FINDINGS if findings else DONE


def _version(store: Store, conversation: str) -> int:
    """How many events it has. Raises ``ConversationNotFound`` before anything is printed."""
    store.events(conversation, stop=0)
    return store.version(conversation)


def _sound(store: Store, conversation: str, start: int, stop: int | None, findings: list[str]) -> Iterator[Event]:
    """Yield the readable events. An unreadable one is a finding, and the events after it are read all the same."""
    from eventstore import CorruptEvent

    end = store.version(conversation) if stop is None else min(stop, store.version(conversation))
    while True:
        try:
            yield from store.events(conversation, start, stop)
        except CorruptEvent as error:
            findings.append(str(error))
            start = error.event_id + 1
            if start >= end:
                return
        else:
            return


def _show(events: Iterable[Event]) -> None:
    from eventstore import is_structural
    from foldlog.cli.gist import STYLES, gist, label

    lines = terminal.PrintedLines()
    write, width = lines.write, lines.width
    for event in events:
        kind = label(event)
        style = "" if event.shown or is_structural(event) else "dim "
        write((f"{event.id:>6}  ", "dim"), (f"{kind:<8}", f"{style}{STYLES[kind]}"), (gist(event, width), style))
