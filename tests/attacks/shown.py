"""What a reader of a store sees: lists, events, Views, documents, exports, and the order of all
events.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import foldlog
from foldlog._app.cli.record_files import choose_export
from foldlog._reports.words.event_json import event_document
from foldlog.errors import EventStoreError
from foldlog.eventstore import Store
from foldlog.eventstore.events import StoreRestored

Shown = dict[tuple[str, str], str]
"""Maps what is shown, and of which conversation, to its text."""


def shown(store: Store) -> Shown:
    all_ = foldlog.Histories(store, condenser="digest")
    names = {row.id: row.erased_at is None for row in store.iter_conversations()}
    pages: dict[tuple[str, str], Callable[[], object]] = {
        ("conversations", ""): lambda: [_row(row) for row in store.iter_conversations()],
        ("list", ""): lambda: [*map(repr, all_.list(age_max_s=0).conversations)],
        # A copy of a file begins with an entry that says so.
        ("order", ""): lambda: [
            (each.conversation, each.event)
            for each in store.follow()
            if not isinstance(each.event, StoreRestored)
        ],
    }
    for name in (name for name, lives in names.items() if lives):
        history = all_[name]
        pages |= {
            ("events", name): lambda name=name: [
                (event_document(each)) for each in store.events(name)
            ],
            ("view", name): lambda history=history: history.view().to_messages(),
            ("documents", name): lambda history=history: history.documents(),
            ("attributes", name): lambda history=history: history.attributes(),
            ("effects", name): lambda history=history: history.effects(),
            ("export", name): lambda name=name: _exported(store, name),
        }
    return {page: _text(read) for page, read in pages.items()}


def _row(row: Any) -> Any:
    return row._replace(bytes_pending=False, unconfirmed=())


def _exported(store: Store, name: str) -> bytes:
    written = BytesIO()
    choose_export(store, name, None, view=False, as_records=False).write(written)
    return written.getvalue()


def _text(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except (EventStoreError, ValueError, KeyError) as error:
        return f"refused: {type(error).__name__}"


def differences(before: Shown, now: Shown) -> list[str]:
    """Return the names of what is shown otherwise."""
    return sorted(
        {page for page, _ in before.keys() | now.keys()}
        & {
            page
            for page, name in before.keys() | now.keys()
            if before.get((page, name)) != now.get((page, name))
        }
    )
