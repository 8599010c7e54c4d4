"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import (
    LISTED_MAX,
    WholeNumber,
    argument,
    flag,
    option,
    prices_option,
    store_options,
    wait_option,
)
from foldlog._app.cli.printing.conversations import print_conversations, show_none
from foldlog._app.cli.printing.figures_behind import say_behind
from foldlog._app.cli.printing.followers import list_followers
from foldlog._app.cli.selection import moment_of_option
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.conversations import ListDocument
from foldlog._reports.answers.document import stream
from foldlog._reports.figures.sort_keys import SORTS


@argument(
    "attributes",
    "FILTER",
    "Only conversations that match every FILTER. A FILTER is an attribute NAME=VALUE "
    "(see 'foldlog attributes'), or one of these: has:error, has:note, tool:NAME, "
    "program:NAME, model:NAME, state:STATE, until:TIME. tool:NAME has:error selects "
    "conversations in which this tool failed.",
    nargs=-1,
    show_default="any",
)
@option("--match", "TEXT", "Only conversations with this text in id, title or format, in any case.")
@flag("--here", "Only conversations written in this folder, or below it.")
@option(
    "--since", "TIME", "Only conversations with an event since this time, such as 2026-03-01 or 2h."
)
@option(
    "--sort",
    "COLUMN",
    f"{', '.join(SORTS)}.",
    default="id",
    show_default="id",
    type=click.Choice([*SORTS]),
)
@flag("--reverse -r", "The largest or newest first.")
@option(
    "--limit -n",
    "N",
    "Only the first N conversations.",
    type=WholeNumber(min=0, max=sys.maxsize),
    show_default=f"{LISTED_MAX}; in a pipe and with --json all",
)
@flag(
    "--long/--short -l/-s",
    "Show errors, tokens, condensations and cost.",
    default=None,
    show_default="--long on a terminal, for few conversations with few events",
)
@flag(
    "--to-resume to_be_resumed",
    "Only conversations that a worker left unfinished: with open calls, or a reply that nobody "
    "writes any more, and no lease, or with an expired lease.",
)
@flag("--all -a every", "Also conversations that runtimes use internally, such as shared states.")
@wait_option
@flag("--followers", "For a PostgreSQL store: how far its followers are behind, and why.")
@prices_option
@store_options
def run(
    attributes: tuple[str, ...],
    match: str | None,
    here: bool,
    since: str | None,
    sort: str,
    reverse: bool,
    limit: int | None,
    long: bool | None,
    to_be_resumed: bool,
    every: bool,
    wait: bool,
    followers: bool,
    prices: Path | None,
    db: str,
) -> None:
    """List the conversations of a store: id, number of events, time of the last event, format and
    title. For an imported conversation that was never used, the list shows the number of records.

    Times are in UTC, unless the source has no time zone. The column sent+sum. counts the events and
    summaries of the next prompt. The column ≈ tokens estimates the tokens of the next prompt.
    Errors are results that a source marks as errors. The tokens and the cost are sums over all
    model calls. If a call reported no cost, its cost is the price of its tokens. A fork's figures
    count only its own events. A terminal shows forks below their parents. A pipe gets all
    conversations, with tabs between the cells: conversation, events, last activity, title, and last
    the figure that --sort names. With --long, all figures of this option come before the title.
    If many events are not counted yet, a list does not wait for their figures: a note says what it
    lacks. 'foldlog store keep-up' counts new events.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    # imported here, because the help needs no figures
    from foldlog._app.cli.listing import Filters, ListNotes, ListOptions, read_list
    from foldlog._reports.figures.prices import Prices

    if followers:
        if attributes or match or here or since or to_be_resumed:
            raise Refused(
                "--followers lists followers, not conversations; leave out FILTER, --match, --here,"
                " --since and --to-resume"
            )
        list_followers(db)
        return
    filters = Filters(
        attributes,
        match,
        here,
        moment_of_option("--since", since),
        to_be_resumed=to_be_resumed,
        every=every,
        is_complete=wait,
    )
    if long is None and prices is not None:
        long = True
    options = ListOptions(sort, reverse, limit, long, is_complete=wait)
    notes = ListNotes()
    with open_existing(db) as store:
        listing = read_list(store, filters, options, Prices(prices), notes)
        if terminal.prints_json():
            documents = stream(listing.documents)
            terminal.emit_list(
                ListDocument(db=db, conversations=documents),
                lambda: {"behind": listing.behind(notes).document()},
            )
            return
        if not print_conversations(store, listing.documents, options, in_full=listing.is_long):
            show_none(db, store, filters, limit)
        if options.is_cut:
            notes.say_cut(listing.rows)
        say_behind(listing.behind(notes))
    notes.say(sort, with_costs=listing.is_long or sort == "cost")
