"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, LISTED_MAX, AsJson, Db, PricesFile
from foldlog._cli.outcome import Refused
from foldlog._cli.printing.conversations import print_conversations, show_none
from foldlog._cli.printing.followers import list_followers
from foldlog._cli.selection import moment_of_option
from foldlog._cli.stores import open_existing
from foldlog._documents import ListDocument, stream
from foldlog._figures.orders import SORTS


def run(
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILTER",
            help=(
                "Only conversations that match every FILTER. A FILTER is an attribute NAME=VALUE "
                "(see 'foldlog attributes'), or one of these: has:error, has:note, tool:NAME, "
                "program:NAME, model:NAME, state:STATE, until:TIME. tool:NAME has:error selects "
                "conversations in which this tool failed."
            ),
            show_default="any",
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="TEXT",
            help="Only conversations with this text in id, title or format, in any case.",
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="Only conversations written in this folder, or below it."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only conversations with an event since this time, such as 2026-03-01 or 2h.",
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
            help="Only the first N conversations.",
            show_default=f"{LISTED_MAX}; with --json all",
        ),
    ] = None,
    long: Annotated[
        bool | None,
        typer.Option(
            "--long/--short",
            "-l/-s",
            help="Show errors, tokens, condensations and cost. This counts all new events.",
            show_default="--long for few conversations with few events",
        ),
    ] = None,
    to_be_resumed: Annotated[
        bool,
        typer.Option(
            "--to-resume",
            help="Only conversations that a worker left unfinished: with open calls and no lease, "
            "or with an expired lease.",
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            "-a",
            help="Also conversations that runtimes use internally, such as shared states.",
        ),
    ] = False,
    followers: Annotated[
        bool,
        typer.Option(
            "--followers",
            help="For a PostgreSQL store: how far its followers are behind, and why.",
        ),
    ] = False,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """List the conversations of a store: id, number of events, time of the last event, format and
    title. For an imported conversation that was never used, the list shows the number of records.

    Times are in UTC, unless the source has no time zone. The column sent+sum. counts the events and
    summaries of the next prompt. The column ≈ tokens estimates the tokens of the next prompt.
    Errors are results that a source marks as errors. The tokens and the cost are sums over all
    model calls. If a call reported no cost, its cost is the price of its tokens. A fork's figures
    count only its own events. A terminal shows forks below their parents. In a pipe, rows are
    sorted by id, and cells are separated by tabs.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    # imported here, because the help needs no figures
    from foldlog._cli.listing import Aside, Filters, ListOptions, read_list
    from foldlog._figures.prices import Prices

    if followers:
        return list_followers(db)
    if sort not in SORTS:
        raise Refused(f"--sort {sort!r} is not a column; use one of {', '.join(SORTS)}")
    filters = Filters(
        attributes or (),
        match,
        here,
        moment_of_option("--since", since),
        to_be_resumed=to_be_resumed,
        every=every,
    )
    if long is None and prices is not None:
        long = True
    options = ListOptions(sort, reverse, limit, long, as_json)
    aside = Aside()
    with open_existing(db) as store:
        listing = read_list(store, filters, options, Prices(prices), aside)
        if as_json:
            documents = stream(listing.documents)
            terminal.emit_list(ListDocument(db=db, conversations=documents))
            return
        if not print_conversations(store, listing.documents, options, in_full=listing.is_long):
            show_none(db, store, filters, limit)
        if options.is_cut:
            aside.say_cut(listing.rows)
    aside.say(sort, with_costs=listing.is_long or sort == "cost")
