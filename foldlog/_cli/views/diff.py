"""``foldlog diff``: show what changed between two Views of a conversation, or where two forks diverge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.pager import paged
from foldlog._cli.stores import open_existing, resolved
from foldlog._cli.styles import LABEL_COLUMNS, summary_text
from foldlog._cli.views.divergence import divergence, divergence_document, show_divergence
from foldlog._kinds import label
from foldlog._words.gist import count, gist
from foldlog._words.reasons import because, requests_before
from foldlog.eventstore import CondensationRequest, Event
from foldlog.projections import Difference, Views


def run(
    conversation: ConversationId,
    before: Annotated[
        str, typer.Argument(metavar="A", help="A version; or, without B, another conversation.", show_default=False)
    ],
    after: Annotated[
        int | None, typer.Argument(metavar="B", min=0, help="A later version.", show_default=False)
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Show which events entered the View of a conversation between two versions, which left it, and their summaries.

    With two conversations, show the events of both since their common past, and the first one that differs.

    Example: foldlog diff tidewatch 90 100
    """
    if after is None:
        return _forks(conversation, before, db, as_json=as_json)
    return _versions(conversation, _version(before), after, db, as_json=as_json)


def _version(given: str) -> int:
    if not (given.isascii() and given.isdigit()):
        raise Refused(
            f"{given!r} is not a version; give two versions of a conversation, or two conversations without B"
        )
    return int(given)


def _forks(conversation: str, other: str, db: str, *, as_json: bool) -> int:
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        try:
            other = resolved(store, other)
        except Refused as error:
            if other.isdigit():
                raise Refused(
                    f"{error}; to compare two versions, give a second version: 'foldlog diff ID A B'"
                ) from error
            raise
        found = divergence(store, conversation, other)
        if as_json:
            terminal.emit(divergence_document(found))
        else:
            with paged():
                show_divergence(store, found)
    return DONE


def _versions(conversation: str, before: int, after: int, db: str, *, as_json: bool) -> int:
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        difference = Views(store).difference(conversation, before, after)
        by = [one.condensation.id for one in difference.summarized]
        requests = {one: requests_before(store, conversation, one) for one in by}
    if as_json:
        terminal.emit(_document(conversation, difference))
    else:
        with paged():
            _show(terminal.console(), conversation, difference, requests)
    return DONE


def _document(conversation: str, difference: Difference) -> dict[str, Any]:
    return {
        "conversation": conversation,
        "before": difference.before,
        "after": difference.after,
        "entered": _ids(difference.entered),
        "left": _ids(difference.left),
        "summarized": [
            {
                "condensation": one.condensation.id,
                "summary": {"id": one.summary.id, "text": one.summary.content},
                "events": _ids(one.events),
            }
            for one in difference.summarized
        ],
    }


def _ids(events: Sequence[Event]) -> list[int]:
    return [event.id for event in events]


def _show(
    console: Console,
    conversation: str,
    difference: Difference,
    requests: Mapping[int, Sequence[CondensationRequest]],
) -> None:
    name = terminal.typed_id(conversation)
    entered, left = count(len(difference.entered), "event"), count(len(difference.left), "event")
    versions = f"from version {difference.before:,} to {difference.after:,}"
    console.print(Text(f"{name} {versions}: {entered} entered the View, {left} left it", style="bold"))
    lines = terminal.PrintedLines()
    for sign, events, colour in (("-", difference.left, "red"), ("+", difference.entered, "green")):
        for event in events:
            lines.write((f"{sign}{event.id:>6}  {label(event):<{LABEL_COLUMNS}}{gist(event, lines.width)}", colour))
    for one in difference.summarized:
        gone = count(len(one.events), "event")
        why = because(one.condensation, requests.get(one.condensation.id, ()))
        said = f"condensation {one.condensation.id}{f', {why},' if why else ''} put a summary in the place of {gone}:"
        console.print(Text(said, style="dim"))
        terminal.print_indented(console, Text(summary_text(one.summary.content), style="magenta"), 8)
