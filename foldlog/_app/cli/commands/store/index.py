"""``foldlog store index``: make, refresh or drop the search index of a store."""

from __future__ import annotations

import time
from contextlib import suppress

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import WholeNumber, flag, option, store_options
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.store import IndexDocument


@flag("--drop", "Remove the index; searches read all events again.")
@flag("--again", "Make the index again.")
@flag(
    "--encrypted",
    "Also index encrypted conversations. Hashes of their words are then in the store unencrypted.",
)
@option(
    "--every",
    "SECONDS",
    "Go on: add new events every SECONDS seconds, until Ctrl-C.",
    type=WholeNumber(min=1),
)
@store_options
def run(drop: bool, again: bool, encrypted: bool, every: int | None, db: str) -> None:
    """Make an index of words, or add new events to the index. With it, a search in a large store
    takes milliseconds. The results are the same with and without an index.

    Appends do not write the index, so run this command regularly, or run it with --every. 'foldlog
    serve' adds new events every second. A search also reads the events that the index lacks. When
    text is redacted or erased, its words leave the index in the same transaction. Encrypted
    conversations are not in the index without --encrypted: a search reads them. An index needs
    about a third of the store's size. On PostgreSQL, run the command as the owner of the tables.

    Example: foldlog store index
    """
    from foldlog._reports.search import index

    if drop and (again or encrypted or every):
        raise Refused("--drop removes the index, so leave out the other options")
    with open_existing(db) as store, terminal.working("indexing"):
        if drop:
            index.drop(store)
            terminal.answer(IndexDocument(added=0, dropped=True), "the index is removed")
            return
        state = store.database.recorder.query(index.state_of)
        if again or not state.is_made or (encrypted and not state.with_encrypted):
            index.make(store, with_encrypted=encrypted or state.with_encrypted)
        added = index.refresh(store)
        terminal.answer(
            IndexDocument(added=added, dropped=False),
            f"{added:,} events and records were added to the index",
        )
        with suppress(KeyboardInterrupt):  # the usual end
            while every is not None:
                time.sleep(every)
                index.refresh(store)
