"""``foldlog search``: find events by words in their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import WholeNumber, argument, complete_id, flag, option, store_options
from foldlog._app.cli.printing.events import STYLES
from foldlog._app.cli.selection import (
    kinds_option,
    program_option,
    selection,
    since_option,
    tool_option,
    until_option,
)
from foldlog._app.cli.stores import ShortIds, open_existing, resolve
from foldlog._reports.search.searching import Hit, Searched, hits_document, search
from foldlog._reports.words.gist import count, id_words
from foldlog._reports.words.times import time_words

_SECONDS = 5.0
"""The number of seconds after which a search without ``--all`` ends."""


@argument(
    "words",
    "WORDS",
    'Words that must all be in an event; words "in quotes" must follow each other.',
    nargs=-1,
)
@option("--in within", "ID", "Only in this conversation.", shell_complete=complete_id)
@kinds_option
@tool_option
@program_option
@since_option
@until_option
@option("--limit -n", "N", "Show at most N events.", type=WholeNumber(min=1), default=20)
@flag("--all every", "Read the whole store, without a time limit.")
@store_options
def run(
    words: tuple[str, ...],
    within: str | None,
    kinds: tuple[str, ...],
    tool: str | None,
    program: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    every: bool,
    db: str,
) -> None:
    """Search the texts of all conversations. The conversation with the newest event comes first.
    Within a conversation, the newest event comes first. An import whose source has no times comes
    last.

    A searched word finds all words that begin with it, in upper or lower case: 'run' finds 'Runs',
    but not 'prune'. The search on a conversation's page finds any part of a word. Without words,
    --kind error finds all errors, and --tool Bash finds all calls of a tool and their results. The
    exit status is 1 if no event is found.

    The search reads stored records and events, about 400 MB a second, until it has enough hits.
    Without --all, the search ends after five seconds. 'foldlog store index' makes an index, which
    names the events to read.

    Example: foldlog search "No such file" --kind error --tool Bash
    """
    filters = selection(kinds, since=since, until=until)
    if not words and not kinds and tool is None:
        raise Refused(
            "name the words to search for, such as 'foldlog search \"flaky test\"', or a kind:"
            " --kind error"
        )
    line = _as_query(words)
    with open_existing(db) as store, terminal.working("searching"):
        conversation = None if within is None else resolve(store, within)
        try:
            results = search(
                store,
                line,
                conversation=conversation,
                kinds=filters.kinds,
                tool=tool,
                program=program,
                since=filters.since,
                until=filters.until,
                limit=limit + 1,
                seconds=None if every else _SECONDS,
            )
        except ValueError as error:
            raise Refused(str(error)) from error
        short = ShortIds(store)
        names = {hit.conversation: short(hit.conversation) for hit in results.hits[:limit]}
        document = hits_document(store, line, results, limit)
        tasks = {hit.conversation: short(hit.task) for hit in document.hits if hit.task}
    terminal.answer(document, lambda: _show(line, results.hits[:limit], names, tasks))
    if not results.hits:
        terminal.matched_nothing()
    if not terminal.prints_json():
        _note_omissions(results, line, words, limit)
    terminal.warn(*results.unread)


def _note_omissions(results: Searched, line: str, words: Sequence[str], limit: int) -> None:
    """Print how the words were read, and what the hits lack."""
    if line != " ".join(words):
        terminal.note(f"searched {line}, with the words in quotes as one phrase")
    if len(results.hits) > limit:
        terminal.note(f"the first {limit:,} are shown, and there are more: -n N shows more")
    elif results.read < results.conversations:
        terminal.note(
            f"the search ended early: it read {results.read:,} of"
            f" {count(results.conversations, 'conversation')}; --all reads all of them"
        )


def _as_query(words: Sequence[str]) -> str:
    """Join the words of the command line, and put an argument of several words into quotes."""
    return " ".join(
        f'"{word}"' if " " in word and not {*word} & {*'"“”'} else word for word in words
    )


def _show(
    line: str, hits: Sequence[Hit], names: Mapping[str, str], tasks: Mapping[str, str]
) -> None:
    """Print the hits of a search for ``line``. ``names`` and ``tasks`` map conversations to shown
    ids.
    """
    if not hits:
        terminal.say("No event has all these words." if line else "There is no such event.")
    for hit in hits:
        name = terminal.typed_id(names[hit.conversation])
        at = "" if hit.timestamp is None else f"  {time_words(hit.timestamp)}"
        if hit.conversation in tasks:
            at += f"  sub-agent in the task {terminal.typed_id(tasks[hit.conversation])}"
        terminal.say(
            (name, "bold"), f" {id_words(hit.id)}  ", (hit.kind, STYLES[hit.kind]), (at, "dim")
        )
        terminal.print_indented(4, *_highlight(hit))


def _highlight(hit: Hit) -> Iterator[terminal.Span]:
    """Yield the snippet of a hit, with the searched words in colour."""
    end = 0
    for start, stop in hit.highlights:
        yield hit.snippet[end:start]
        yield hit.snippet[start:stop], "bold yellow"
        end = stop
    yield hit.snippet[end:]
