"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import existing_db
from foldlog._cli.options import DEFAULT_DB, LISTED_MAX, AsJson, Db, PricesFile
from foldlog._cli.outcome import Refused
from foldlog._cli.printing.conversations import print_conversations, show_none
from foldlog._cli.printing.followers import list_followers
from foldlog._cli.selection import given_moment
from foldlog._cli.stores import open_existing
from foldlog._documents import ListDocument, streamed
from foldlog._figures.orders import SORTS


def run(
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Your attributes to have: see foldlog attributes.",
            show_default="any",
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="TEXT",
            help="Only those whose id, title or format contains it, in any case.",
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="Only those that a program wrote in this folder, or below it."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only those whose last event happened since: 2026-03-01, 2h. None without a time.",
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option("--sort", metavar="COLUMN", help=f"{', '.join(SORTS)}.", show_default="id"),
    ] = "id",
    reverse: Annotated[
        bool, typer.Option("--reverse", "-r", help="The largest or newest first.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="Only the first N.",
            show_default=f"{LISTED_MAX}; with --json all",
        ),
    ] = None,
    long: Annotated[
        bool | None,
        typer.Option(
            "--long/--short",
            "-l/-s",
            help=(
                "With or without errors, tokens, condensations and cost: they take reading what is"
                " new."
            ),
            show_default="long where the list is short",
        ),
    ] = None,
    to_be_resumed: Annotated[
        bool,
        typer.Option(
            "--to-resume",
            help="Only those that a worker left: open calls and no lease, or a lease that ended.",
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            "-a",
            help="Also those that runtimes keep for themselves, such as shared states.",
        ),
    ] = False,
    followers: Annotated[
        bool,
        typer.Option(
            "--followers", help="Of a PostgreSQL store: how far its followers are behind, and why."
        ),
    ] = False,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """List the conversations of a store, or some of them: id, number of events, time of the last
    event, format and title. Before the first use of an import, it shows the number of records, and
    what the model is sent is unknown.

    Times are in UTC, or without a zone. sent+sum. and ≈ tokens are the events and summaries that
    the model is sent now; errors, results that their source marks so. Tokens and cost are what the
    model calls reported; without a reported cost, the price of the tokens. A fork counts only what
    it did itself. A terminal shows forks below their parents. Piped, rows are in order of ids, with
    tabs.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    # the help needs no figures
    from foldlog._cli.listing import Aside, Filters, ListOptions, read_list
    from foldlog._figures.prices import Prices

    if followers:
        return list_followers(db)
    if sort not in SORTS:
        raise Refused(f"--sort {sort!r} is not a column; give one of {', '.join(SORTS)}")
    filters = Filters(
        attributes or (),
        match,
        here,
        given_moment("--since", since),
        to_be_resumed=to_be_resumed,
        every=every,
    )
    if long is None and prices is not None:
        long = True
    options = ListOptions(sort, reverse, limit, long, as_json)
    aside = Aside()
    with open_existing(db) as store:
        found = read_list(store, filters, options, Prices(prices), aside)
        if as_json:
            documents = streamed(found.documents)
            terminal.emit_list(ListDocument(db=existing_db(db), conversations=documents))
            return
        if not print_conversations(store, found.documents, options, in_full=found.is_long):
            show_none(db, store, filters, limit)
        if options.is_cut:
            aside.say_cut(found.rows)
    aside.say(sort, with_costs=found.is_long or sort == "cost")
