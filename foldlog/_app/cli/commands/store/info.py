"""``foldlog store info``: show what a store contains, its form, and what is pending."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command, store_name
from foldlog._app.cli.options import store_options
from foldlog._app.cli.stores import open_existing
from foldlog._app.cli.tables import Column, print_rows
from foldlog._reports.answers.store import SearchIndexDocument, StoreInfoDocument
from foldlog._reports.store_info import store_info
from foldlog._reports.words.gist import count

_DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "memory": "in memory"}
_COLUMNS = Column("stored"), Column("number", "right"), Column("of these")


@store_options
def run(db: str) -> None:
    """Show what a store contains: the number of its schema, the version of foldlog that made it,
    its size on disk, the encryption keys in use, and what is pending.

    An event that forks share counts once. The size includes indexes and log files. The command
    reads an index of all events.

    Example: foldlog store info
    """
    # This import loads what ``foldlog store info --help`` need not load.
    from foldlog._reports.search import index

    with open_existing(db) as store:
        info = store_info(store)
        index_info = index.info(store)
    search_index = None if index_info is None else SearchIndexDocument.of(index_info)
    document = StoreInfoDocument.of(info, db=db, search_index=search_index)
    terminal.answer(document, lambda: _show(document))


def _show(info: StoreInfoDocument) -> None:
    """Print what a store contains."""
    size = "" if info.bytes is None else f", {info.bytes:,} bytes"
    terminal.say_wrapped(
        f"{store_name(info.db)}: {_DATABASES[info.database]}, schema {info.schema}, made by"
        f" {info.made_by}{size}"
    )
    print_rows(_COLUMNS, [(name, f"{number:,}", parts) for name, number, parts in _rows(info)])
    if info.search_index is not None:
        terminal.say_wrapped(f"search index: {_index_words(info.search_index)}")
    for line in _pending(info):
        terminal.say_wrapped(f"pending: {line}")


def _rows(info: StoreInfoDocument) -> Iterator[tuple[str, int, str]]:
    """Yield what is stored, its number, and how many of these are of another kind."""
    forks = count(info.forks, "fork")
    yield "conversations", info.conversations, f"{forks}, {info.archived:,} archived"
    for key, conversations in info.keys.items():
        yield f"  with key {key}", conversations, ""
    yield "erased conversations", info.erased, ""
    yield "events", info.events, f"{info.document_changes:,} that change documents"
    if info.archived:
        yield "archived events", info.archived_events, ""
    records = f"{count(info.records, 'record')}, {info.records_pending:,} without events"
    yield "imported histories", info.sources, records
    yield "attachments", info.attachments, ""
    yield "refused records and sources", info.refused, ""


def _index_words(index: SearchIndexDocument) -> str:
    """Say how large the search index is, and what it lacks."""
    if not index.is_complete:
        return f"{index.bytes:,} bytes, not complete: '{command('store index')}' completes it"
    left = count(index.events_left, "newer event")
    unread = count(index.unread, "other conversation")
    kinds = ", with encrypted conversations" if index.with_encrypted else ""
    return f"{index.bytes:,} bytes{kinds}; a search also reads {left} and {unread}"


def _pending(info: StoreInfoDocument) -> Iterator[str]:
    """Yield what is pending, with the command that ends it."""
    if info.bytes_pending:
        yield f"erased bytes may still be in the files; '{command('store vacuum')}' removes them"
    for operation, number in info.unfinished.items():
        remedy = command("store rekey" if operation == "rekey" else "store vacuum")
        yield (
            f"{count(number, operation)} not complete; if no program works on it, '{remedy}'"
            " finishes or removes it"
        )
    if info.records_pending:
        yield (
            f"{count(info.records_pending, 'imported record')} without events; the first use of the"
            " conversation makes the events"
        )
