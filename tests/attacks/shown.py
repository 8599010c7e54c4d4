"""What a reader of a store sees: the library, the page and its API, the service, the commands, and
the exports.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import foldlog
from foldlog._app.cli import stores
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.record_files import choose_export
from foldlog._app.server.access import Gate
from foldlog._app.server.app import application
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog._reports.words.event_json import event_document
from foldlog.errors import EventStoreError
from foldlog.eventstore import Store
from foldlog.eventstore.events import StoreRestored
from foldlog.eventstore.log.seal import WriteSettings
from tests.commands import run_foldlog
from tests.how_many import WHOLE
from tests.web_client import Client

Shown = dict[tuple[str, str], str]
"""Maps what is shown, and of which conversation, to its text."""

API = (
    "history",
    "events",
    "dropped",
    "models",
    "task",
    "hand-overs?call=1",
    "report",
    "event?event=1",
)
"""Paths of the page below ``/api/``, each of one conversation."""
SERVICE = (
    "",
    "/events",
    "/attributes",
    "/documents",
    "/view",
    "/why/1",
    "/open-calls",
    "/effects",
    "/follow?after=0",
    "/records?format=openai-chat",
)
"""Paths of the service below ``/v1/conversations/ID``."""
FORMATS = ("openai-chat", "anthropic-messages", "openhands-v1", "otlp-genai", "atif")
COMMANDS = (
    "list --all --long --limit 99",
    "stats",
    "stats --by model",
    "stats --by tool",
    "search grain",
    "log {} --all --full",
    "show {} --documents",
    "view {}",
    "why {} 1",
    "diff {}",
    "export {}",
)
"""Commands that read: of the store, or of the conversation in place of ``{}``."""
TOKEN = "a-token-of-the-test"


def shown(store: Store, url: str, key_file: Path) -> Shown:
    """Return what a reader sees. ``key_file`` has the keys, for commands. The commands take most of
    the time, so only ``scripts/test --all`` runs them.
    """
    names = [row.id for row in store.iter_conversations() if row.erased_at is None]
    pages = [*_by_library(store, names), *_by_server(store, names)]
    if WHOLE in os.environ:
        pages += _by_commands(store, url, key_file, names)
    return {page: _text(read) for page, read in pages}


Page = tuple[tuple[str, str], Callable[[], object]]


def _by_library(store: Store, names: list[str]) -> Iterator[Page]:
    all_ = foldlog.Histories(store, condenser="digest")
    yield ("conversations", ""), lambda: [_row(row) for row in store.iter_conversations()]
    yield ("list", ""), lambda: [*map(repr, all_.list(age_max_s=0).conversations)]
    # A copy of a file begins with an entry that says so.
    yield (
        ("order", ""),
        lambda: [
            (each.conversation, each.event)
            for each in store.follow()
            if not isinstance(each.event, StoreRestored)
        ],
    )
    for name in names:
        history = all_[name]
        yield ("events", name), lambda name=name: [*map(event_document, store.events(name))]
        yield ("view", name), lambda history=history: history.view().to_messages()
        yield ("documents", name), lambda history=history: history.documents()
        yield ("attributes", name), lambda history=history: history.attributes()
        yield ("effects", name), lambda history=history: history.effects()
        for form in (None, *FORMATS):
            yield (f"export as {form}", name), partial(_exported, store, name, form)


def _row(row: Any) -> Any:
    return row._replace(bytes_pending=False, unconfirmed=())


def _exported(store: Store, name: str, form: str | None) -> bytes:
    written = BytesIO()
    choose_export(store, name, form, view=form is not None, as_records=False).write(written)
    return written.getvalue()


def _by_server(store: Store, names: list[str]) -> Iterator[Page]:
    tokens = Tokens([("reader", TokenEntry(scope="administer", token=TOKEN))])
    service = Service(foldlog.Histories(store), tokens, check=lambda: None)
    client = Client(
        application(store, gate=Gate(None), service=service), {"authorization": f"Bearer {TOKEN}"}
    )

    def get(path: str) -> Callable[[], object]:
        return lambda: _answer(client, path)

    yield ("/api/conversations", ""), get("/api/conversations?q=&limit=99")
    yield ("/api/overview", ""), get("/api/overview?q=")
    yield ("/api/fleet", ""), get("/api/fleet")
    yield ("/api/search", ""), get("/api/search?words=grain")
    yield ("/v1/conversations", ""), get("/v1/conversations?limit=99")
    yield ("/v1/follow", ""), get("/v1/follow?after=0&limit=1000")
    yield ("/v1/search", ""), get("/v1/search?words=grain")
    for name in names:
        conversation = quote(name, safe="")
        for path in API:
            joined = "&" if "?" in path else "?"
            yield (f"/api/{path}", name), get(f"/api/{path}{joined}id={conversation}")
        yield ("/api/notes", name), get(f"/api/notes?id={conversation}")
        for path in SERVICE:
            yield (f"/v1{path}", name), get(f"/v1/conversations/{conversation}{path}")
        yield ("/v1/stream", name), get(f"/v1/stream/{conversation}/reply?offset=-1")


def _answer(client: Client, path: str) -> str:
    answer = client.get(path)
    if path.startswith("/v1/follow") and answer.status == 200:
        return repr([*_followed(answer.json())])
    return f"{answer.status} {_timeless(answer.body.decode())}"


def _followed(page: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield what a follower reads, in its order. What reading made of an import has a new time."""
    for entry in page["events"]:
        if entry["event"]["kind"] != "store_restored":
            at = "" if entry["conversation"] == "unopened" else entry["recorded_at"]
            yield entry["conversation"], entry["event"], at


def _by_commands(store: Store, url: str, key_file: Path, names: list[str]) -> Iterator[Page]:
    read = partial(_output, store, url, key_file)
    for command in COMMANDS:
        if "{}" not in command:
            yield (command, ""), partial(read, command.split())
            continue
        for name in names:
            words = [name if word == "{}" else word for word in command.split()]
            yield (command, name), partial(read, words)


def _output(store: Store, url: str, key_file: Path, words: list[str]) -> str:
    """Return what a command prints. All commands share the connection of the store, because to
    connect takes most of the time of a command.
    """

    def opened(url: str) -> Store:
        own = Store(store.database.recorder, WriteSettings.chosen(None, None))
        patch.setattr(own, "close", lambda: None)
        return own

    said = io.StringIO()
    complained = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLDLOG_KEY_FILE", str(key_file))
        patch.setattr(stores, "open_store", opened)
        with redirect_stdout(said), redirect_stderr(complained):
            status = run_foldlog(*words, "--db", url)
    return _timeless(f"{status} {said.getvalue()} {complained.getvalue()}")


def _timeless(text: str) -> str:
    """Leave out the size of the files, and until when a list is complete, which differ between two
    readings of one store.
    """
    return re.sub(r'"bytes":\d+|"as_of":"[^"]*"', "", text)


def _text(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except (EventStoreError, Refused, ValueError, KeyError) as error:
        return f"refused: {type(error).__name__}"


def differences(before: Shown, now: Shown) -> list[str]:
    """Return the names of what is shown otherwise."""
    return sorted(
        {
            page
            for page, name in before.keys() | now.keys()
            if before.get((page, name)) != now.get((page, name))
        }
    )
