"""``foldlog list``: list the conversations of a store."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import existing_db
from foldlog._cli.listing import FIGURES, SORTS, Aside, Filters, describe_rows, is_short, select_rows, sorted_by_figure
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, PricesFile
from foldlog._cli.outcome import Refused
from foldlog._cli.printing.conversations import print_conversations, show_none
from foldlog._cli.printing.followers import list_followers
from foldlog._cli.selection import given_moment, pairs
from foldlog._cli.stores import open_existing
from foldlog._history.lease import ends_of_leases

_SHOWN = 100
"""A list for people has this many conversations by default, and says how many there are."""


_COLUMNS = (*SORTS, *FIGURES)
_MORE = "-n N shows more, --sort last --reverse the newest first"


def run(
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE", help="Your attributes to have: see foldlog attributes.", show_default="any"
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="TEXT", help="Only those whose id, title or format contains it, in any case."),
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Only those that a program wrote in this folder, or below it.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only those with events recorded, or imported, since: 2026-03-01, 2h.",
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help=f"{', '.join(_COLUMNS)}.", show_default="id")
    ] = "id",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The largest or newest first.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="Only the first N.",
            show_default=f"{_SHOWN}; with --json all",
        ),
    ] = None,
    long: Annotated[
        bool | None,
        typer.Option(
            "--long/--short",
            "-l/-s",
            help="With or without errors, tokens, condensations and cost: they take reading what is new.",
            show_default="long where the list is short",
        ),
    ] = None,
    to_be_resumed: Annotated[
        bool,
        typer.Option(
            "--to-resume", help="Only those that a worker left: open calls and no lease, or a lease that ended."
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that runtimes keep for themselves, such as shared states.")
    ] = False,
    followers: Annotated[
        bool,
        typer.Option("--followers", help="Of a PostgreSQL store: how far its followers are behind, and why."),
    ] = False,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """List the conversations of a store, or some of them: id, number of events, time of the last event, format and
    title. Before the first use of an import, it shows the number of records, and what the model is sent is unknown.

    sent+sum. and ≈ tokens are the events and summaries that the model is sent now; errors, results that their source
    marks so. Tokens spent and cost are what calls of models tell, or the price of their tokens. A fork counts only
    what it did itself.

    Example: foldlog list --long --sort activity --reverse --limit 20
    """
    if followers:
        return list_followers(db)
    if sort not in _COLUMNS:
        raise Refused(f"--sort {sort!r} is not a column; give one of {', '.join(_COLUMNS)}")
    filters = Filters(
        attributes or (), match, here, given_moment("--since", since), to_be_resumed=to_be_resumed, every=every
    )
    aside = Aside()
    with open_existing(db) as store:
        rows = select_rows(store, filters, aside)
        long = True if long is None and prices is not None else long
        if long is None and not as_json:
            rows, long = is_short(rows, limit)
        sizes = bool(long or sort in FIGURES)
        in_full = sizes and long is not False
        if sort in FIGURES:
            rows = sorted_by_figure(store, aside, prices, rows, sort, reverse=reverse)
        elif sort != "id" or reverse:
            rows = iter(sorted(rows, key=SORTS[sort], reverse=reverse))
        is_cut = limit is None and not as_json
        shown = islice(rows, _SHOWN if is_cut else limit)
        described = (one for _, one in describe_rows(store, aside, prices, shown, sizes=sizes))
        if as_json:
            from foldlog._documents import ListDocument, streamed

            terminal.emit_list(ListDocument(db=existing_db(db), conversations=streamed(described)))
            return
        if not print_conversations(described, sort, is_tree=sort == "id" and not reverse, in_full=in_full):
            show_none(db, store, limit, ends_of_leases(store) if to_be_resumed else None, pairs(attributes or ()))
        if is_cut and (left := sum(1 for _ in rows)):
            terminal.note(f"{_SHOWN:,} of {_SHOWN + left:,} are shown: {_MORE}")
    aside.say(sort, with_costs=in_full or sort == "cost")
