"""``foldlog search``: find events by their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.events import STYLES, moment_words
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, completed
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import Kinds, Since, Until, selection
from foldlog._cli.stores import events_total, open_existing, resolved
from foldlog._search import Hit, SearchIndex, hits_document
from foldlog._words.gist import count
from foldlog.eventstore import Store

_FOLLOWED_EVERY_S = 2.0


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help='Words that an event has all of; "in quotes" together; begin*.'),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option("--in", metavar="ID", help="Only in this conversation.", autocompletion=completed),
    ] = None,
    kinds: Kinds = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most N events, best first.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the index up to date until Ctrl-C; search nothing.")
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the index from the log first.")] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Search the texts of all conversations, best first.

    An event is found by whole words in any form: 'run' finds 'runs', not 'prune'. The page of a
    conversation finds parts of words too. Exit status 1 if no event is found.

    The index lies beside the store (STORE.search, readable by its owner only). The first search reads all events to
    build it; later ones add new events. It holds plain text, so the index of an encrypted store is in memory only.
    Erasing a conversation removes its texts from the index too.

    Example: foldlog search "flaky test" --kind observation
    """
    wanted = selection(kinds, since=since, until=until)
    if follow:
        _follow(db, words, as_json=as_json)
        return
    if not words and not rebuild:
        raise Refused("name the words to search for, such as 'foldlog search \"flaky test\"'")
    line = _line(words or ())
    with open_existing(db) as store:
        conversation = None if within is None else resolved(store, within)
        with SearchIndex(store, rebuild=rebuild) as index:
            is_new = index.tables.position() == 0
            added = _catch_up(store, index)
            if rebuild or (is_new and added):
                made = "rebuilt" if rebuild else "made"
                terminal.note(
                    f"the index is {made} from the log: {count(added, 'event')}, {index.tables.size():,} bytes"
                )
            hits: tuple[Hit, ...] = ()
            if words:
                try:
                    hits = index.search(
                        line,
                        conversation=conversation,
                        kinds=wanted.kinds,
                        since=wanted.since,
                        until=wanted.until,
                        limit=limit + 1,  # one more than shown, to know whether there are more
                    )
                except ValueError as error:
                    raise Refused(str(error)) from error
            unread = index.unread
    if as_json or words:
        document = hits_document(line, hits, unread, limit)
        filtered = bool(within or kinds or since or until)
        terminal.answer(document, lambda: _show(hits[:limit], filtered=filtered))
    if words and not hits:
        terminal.matched_nothing()
    if not as_json and line != " ".join(words or ()):
        terminal.note(f"words in quotes are a phrase: {line}")
    if not as_json and len(hits) > limit:
        terminal.note(f"the {limit:,} best are shown, and more events have all these words: -n N shows more")
    if unread:
        terminal.warn(f"not in the index: {count(unread, 'event')}; 'foldlog search --rebuild' names them")


def _line(words: Sequence[str]) -> str:
    """Return the words as one line. An argument of the shell with several words becomes a phrase in quotes."""
    return " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)


def _catch_up(store: Store, index: SearchIndex) -> int:
    """Update the index, with a progress bar if it takes time. Return how many events are new in it."""
    total = events_total(store) if index.tables.position() == 0 else None
    with terminal.working("indexing", "events", total) as update:
        return index.catch_up(lambda events: update(advance=events))


def _follow(db: str, words: Sequence[str] | None, *, as_json: bool) -> None:
    if words or as_json:
        raise Refused("--follow keeps the index up to date and searches nothing; leave out the words and --json")
    from foldlog._follower import Follower

    with open_existing(db) as store, Follower(store, SearchIndex(store)) as follower:
        terminal.note("the index follows the store until Ctrl-C")
        with suppress(KeyboardInterrupt), terminal.working("indexing", "events") as update:
            follower.run(_FOLLOWED_EVERY_S, lambda events: update(completed=events))
    terminal.note(f"{count(follower.view.events, 'event')} added to the index")


def _show(hits: Sequence[Hit], *, filtered: bool) -> None:
    if not hits:
        which = "No event within --in, --kind, --since and --until" if filtered else "No event"
        terminal.say(f"{which} has all these words.", wraps=True)
    for hit in hits:
        name = terminal.typed_id(hit.conversation)
        at = "" if hit.timestamp is None else f"  {moment_words(hit.timestamp)}"
        terminal.say((name, "bold"), f" {hit.id}  ", (hit.kind, STYLES[hit.kind]), (at, "dim"))
        terminal.print_indented(4, *_highlighted(hit))


def _highlighted(hit: Hit) -> Iterator[terminal.Span]:
    end = 0
    for start, stop in hit.highlights:
        yield hit.snippet[end:start]
        yield hit.snippet[start:stop], "bold yellow"
        end = stop
    yield hit.snippet[end:]
