"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

from pathlib import Path

import click

from foldlog._answers.conversations import ListDocument
from foldlog._answers.document import stream
from foldlog._cli import terminal
from foldlog._cli.command_line import WholeNumber, argument
from foldlog._cli.options import LISTED_MAX, db_option, json_option, prices_option
from foldlog._cli.outcome import Refused
from foldlog._cli.printing.conversations import print_conversations, show_none
from foldlog._cli.printing.followers import list_followers
from foldlog._cli.selection import moment_of_option
from foldlog._cli.stores import open_existing
from foldlog._figures.orders import SORTS


@argument(
    "attributes",
    metavar="FILTER",
    nargs=-1,
    show_default="any",
    help="Only conversations that match every FILTER. A FILTER is an attribute NAME=VALUE "
    "(see 'foldlog attributes'), or one of these: has:error, has:note, tool:NAME, "
    "program:NAME, model:NAME, state:STATE, until:TIME. tool:NAME has:error selects "
    "conversations in which this tool failed.",
)
@click.option(
    "--match",
    metavar="TEXT",
    help="Only conversations with this text in id, title or format, in any case.",
)
@click.option(
    "--here",
    is_flag=True,
    help="Only conversations written in this folder, or below it.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only conversations with an event since this time, such as 2026-03-01 or 2h.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    default="id",
    show_default="id",
    help=f"{', '.join(SORTS)}.",
)
@click.option(
    "--reverse",
    "-r",
    is_flag=True,
    help="The largest or newest first.",
)
@click.option(
    "--limit",
    "-n",
    metavar="N",
    type=WholeNumber(min=0),
    show_default=f"{LISTED_MAX}; with --json all",
    help="Only the first N conversations.",
)
@click.option(
    "--long/--short",
    "-l/-s",
    default=None,
    show_default="--long for few conversations with few events",
    help="Show errors, tokens, condensations and cost. This counts all new events.",
)
@click.option(
    "--to-resume",
    "to_be_resumed",
    is_flag=True,
    help="Only conversations that a worker left unfinished: with open calls and no lease, "
    "or with an expired lease.",
)
@click.option(
    "--all",
    "-a",
    "every",
    is_flag=True,
    help="Also conversations that runtimes use internally, such as shared states.",
)
@click.option(
    "--followers",
    is_flag=True,
    help="For a PostgreSQL store: how far its followers are behind, and why.",
)
@prices_option
@db_option
@json_option
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
    followers: bool,
    prices: Path | None,
    db: str,
    as_json: bool,
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
        attributes,
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
