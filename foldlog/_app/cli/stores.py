"""Open the store that ``--db`` names.

See docs/internals/decisions/0098-one-default-store.md.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command, make_folder_of, store_in_use, use_store
from foldlog._imports import makes_events
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    Store,
    StoreRefused,
    open_store,
)
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.files.open_files import is_store
from foldlog.eventstore.log.database import start_after
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.recorders.urls import absolute_hint, as_url, parse_url
from foldlog.projections.conversations.companions import ids_beginning_with, sessions_beginning_with

_NO_STORE = "import histories with 'foldlog import PATH', or name the store with --db STORE"
_SEARCHED = 20_000
"""A mistyped id is compared with at most this number of ids."""
_MADE_ID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_SHORT = (8, 13, 18, 23)
"""The lengths of a short id: the groups of a UUID, one after another."""
_FEW = 5
"""The maximum number of ids that an error names."""


def path_of(db: str) -> str | None:
    """Return the path of a SQLite file, or None for another kind of store. Raises ``Refused`` for a
    folder.
    """
    location = parse_url(f"sqlite:///{quote(db)}" if os.path.isdir(db) else as_url(db))
    path = location.path if location.scheme == "sqlite" else None
    if path is not None and os.path.isdir(path):
        stores = [f"--db {store}" for store in _stores_in(Path(path))]
        if stores:
            remedy = f"name a store in it: {' or '.join(stores)}"
        else:
            remedy = "no file in it is a store"
        raise Refused(f"{path} is a folder, but a store is a file; {remedy}")
    return path


def _stores_in(folder: Path) -> list[str]:
    """Return the paths of some stores in a folder, which the error suggests."""
    stores = (str(path) for path in sorted(folder.glob("*")) if is_store(path))
    return list(islice(stores, _FEW))


@contextmanager
def open_or_create(db: str, *, may_be_empty: bool = False) -> Iterator[Store]:
    """Open the store at ``db``, or create a SQLite file. For commands that add conversations.

    At the end, remove a new file that has no conversation. If ``may_be_empty`` is true, remove an
    empty new file only after an error.
    """
    from foldlog.eventstore.recorders.sqlite.replacing import remove_empty

    use_store(db)
    make_folder_of(db)
    path = path_of(db)
    is_new = path is not None and not os.path.exists(path)
    try:
        with _open(db) as store:
            yield store
            is_new = is_new and not may_be_empty
    finally:
        if is_new and path is not None and os.path.exists(path):
            # If this fails, the empty file stays, since the earlier error is more important.
            with suppress(OSError, *FAILURES):
                remove_empty(path)


def _open(url: str) -> Store:
    """Open a store. Raise ``Refused`` if the store cannot be opened. If the file is a history, the
    error suggests ``foldlog import``.
    """
    try:
        return makes_events(open_store(url))
    except StoreRefused as error:
        from foldlog.formats import NotAHistory, detect

        path = path_of(url)
        problem = str(error)
        with suppress(OSError, NotAHistory):
            if path is not None:
                format = detect(path)
                use_store(None)  # this file is not a store
                remedy = f"'{command('import', path)}' adds it to a store"
                problem = f"{path} is a history ({format}), not a store; {remedy}"
        raise Refused(problem) from error


def open_existing(db: str, remedy: str = _NO_STORE) -> Store:
    """Open the store at ``db``. The store must exist, because a mistyped name must not create an
    empty store. ``remedy`` is the advice in the error.

    A file without write permission is opened only for reading.
    """
    path = path_of(db)
    db = as_url(db)
    location = parse_url(db)
    mode = "rw"
    if path is not None:
        if _is_missing(path):
            stores = _stores_in(Path())
            here = f"; stores in this folder: {', '.join(stores)}" if stores else ""
            raise Refused(f"the store {path} does not exist; {remedy}{here}{absolute_hint(path)}")
        folder = os.path.dirname(os.path.abspath(path))
        if not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
            mode = "ro"
    if location.scheme != "memory" and "mode" not in location.options:
        db = f"{db}{'&' if '?' in db else '?'}mode={mode}"
    return _open(db)


def _is_missing(path: str) -> bool:
    """Return whether nothing is at ``path``. In a folder that this user may not search, a store may
    be.
    """
    try:
        os.stat(path)
    except PermissionError:
        return False
    except (OSError, ValueError):
        return True
    return False


def resolve(store: Store, text: str) -> str:
    """Return the id that is ``text`` or begins with ``text``. Commands that change the store must
    not use this function, because the user may mean another id.

    If only a session and its sub-agents (``session/agent-1``) begin with ``text``, return the
    session. Raises ``Refused`` unless exactly one conversation matches.
    """
    matching_ids = list(islice(ids_beginning_with(store, text), _FEW + 1))
    if len(matching_ids) == 1:
        with suppress(EventStoreError):  # the command itself reports the error
            if mark := _mark_of(store, matching_ids[0]):
                terminal.note(f"{terminal.typed_id(matching_ids[0])} is incomplete: {mark}")
        return matching_ids[0]
    if matching_ids:
        more = ", …" if len(matching_ids) > _FEW else ""
        listed = f"{', '.join(map(repr, matching_ids[:_FEW]))}{more}"
        raise Refused(
            f"more than one conversation begins with {text!r}: {listed}; type more of the id"
        )
    raise Refused(_not_there(store, text))


class ShortIds:
    """Shortens long ids for a terminal, such as ``0199c1b2-6c3e-7a10-b2c8-5d0d3a9f1e42``.

    A short id has the first 8 characters of the id, or more, if another id begins with these
    characters.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._short: dict[str, str] = {}
        self._shortens = terminal.has_edge()

    def __call__(self, conversation: str) -> str:
        session, slash, rest = conversation.partition("/")
        if not self._shortens or not _MADE_ID.fullmatch(session):
            return conversation
        if session not in self._short:
            self._short[session] = self._shorten(session)
        return f"{self._short[session]}{slash}{rest}"

    def _shorten(self, session: str) -> str:
        """Return the shortest beginning of a session that no other session has."""
        for length in _SHORT:
            matching_sessions = islice(sessions_beginning_with(self._store, session[:length]), 2)
            if all(name == session for name in matching_sessions):
                return session[:length]
        return session


def _mark_of(store: Store, conversation: str) -> Any:
    """Return which records a conversation lacks, or None if it is complete. Make no events."""
    from foldlog._reports.records.stored import unread_in
    from foldlog.formats.forking import lacking
    from foldlog.formats.record import INCOMPLETE

    if store.conversation(conversation, as_stored=True).unmade:
        unread = unread_in(store, conversation)
        return lacking(len(unread), "record", unread[0]) if unread else None
    attributes = store.query(
        conversation, lambda reading: newest_value(reading, ATTRIBUTES, default={})
    )
    return attributes.get(INCOMPLETE)


def require_id(store: Store, text: str) -> str:
    """Return ``text`` if a conversation has exactly this id, and otherwise raise ``Refused``.
    Commands that change the store use this function, because the beginning of an id may match the
    wrong conversation.
    """
    try:
        return store.conversation(text, as_stored=True).id
    except ConversationNotFound:
        raise Refused(_not_there(store, text)) from None


def _not_there(store: Store, text: str) -> str:
    """Return the error for an unknown id, with the ids that the user may mean."""
    if text.endswith(".db"):
        return f"{store_in_use()} has no conversation {text!r}; to name a store, use --db {text}"
    ids = [row.id for row in islice(iter_rows(store), _SEARCHED)]
    shorter = text.lower()
    near = [name for name in ids if shorter and shorter in name.lower()][:3]
    if not near:
        from difflib import get_close_matches

        near = get_close_matches(text, ids, n=3, cutoff=0.6)
    if near:
        meant = f"did you mean {' or '.join(map(repr, near))}?"
    else:
        meant = "'foldlog list' shows its conversations"
    return f"{store_in_use()} has no conversation {text!r}; {meant}"


def chosen(store: Store, conversations: Sequence[str] | None) -> Iterator[str]:
    """Yield the ids of the named conversations without repetitions. Without names, yield all
    conversations that are not erased. The beginning of an id is enough as a name.

    Raises ``Refused`` for an unknown name, and ``ConversationErased``, before the first id.
    """
    if conversations:
        named = [resolve(store, name) for name in conversations]
        for name in named:
            if store.conversation(name, as_stored=True).erased_at is not None:
                store.events(name, stop=0)  # raises ConversationErased
        yield from dict.fromkeys(named)
    else:
        yield from (row.id for row in iter_rows(store) if row.erased_at is None)


def events_total(
    store: Store, conversations: Sequence[str] | None = None, start: str = ""
) -> int | None:
    """Return the number of events to read, for a progress bar. Return None if no bar is shown.
    Without ``conversations``, the conversations before ``start`` are not counted.
    """
    # While a bar is shown, an object of rich takes the place of stderr. Only a new one has isatty.
    if not getattr(sys.stderr, "rich_proxied_file", sys.stderr).isatty():
        return None
    if conversations:
        return sum(store.conversation(name).version for name in dict.fromkeys(conversations))
    return sum(row.version for row in iter_rows(store) if row.erased_at is None and row.id >= start)


def iter_rows(store: Store) -> Iterator[ConversationRow]:
    """Yield all conversations of the store. An unreadable conversation becomes a finding of the
    command.
    """
    after = None
    with suppress(StoreRefused):  # conversations are read one by one below
        for row in store.iter_conversations():
            yield row
            after = row.id
        return
    # In a damaged store, conversations are read one by one.
    from foldlog.eventstore.maintenance.verify import readable_conversations

    for found in readable_conversations(store.database.recorder, start_after(after)):
        try:
            problem = "" if isinstance(found, Conversation) else found.problem
            if not problem:
                yield store.conversation(str(found.id))
        except EventStoreError as error:
            problem = str(error)
        if problem:
            named = f"conversation {found.id!r}: " if found.id else ""
            terminal.unread(
                f"{named}{problem}; run 'foldlog store verify', then 'foldlog store copy --damaged'"
            )
