"""The paths of the server: the page, the two files of the page, the JSON documents below ``/api/``,
and the paths for monitoring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING

import msgspec
from anyio import create_task_group
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from foldlog._app.page import assets
from foldlog._app.server.access import Access, Gate
from foldlog._app.server.documents import BY_DEFAULT, Documents, Make, Shown, whole_id
from foldlog._app.server.mcp_path import ToolsOnDemand
from foldlog._app.server.notes import NoteChange, Notes
from foldlog._app.server.parameters import (
    Text,
    convert,
    fields_of,
    read_body,
    read_query,
    signature_fields,
)
from foldlog._app.server.problems import refusal_of
from foldlog._app.server.server_sent_events import StoreChanges
from foldlog._app.server.threads import Threads
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.events import NotesDocument
from foldlog._reports.answers.page import RefusedDocument
from foldlog._reports.words.safe_text import json_text
from foldlog.eventstore import EventStoreError, Store, StoreRefused
from foldlog.eventstore.recorders.sqlite.process_forks import identity

if TYPE_CHECKING:
    from foldlog._app.coding_agents.mcp_server import MountedTools
    from foldlog._app.server.service.service import Service

_NOTE_MAX = 200_000
"""The maximum number of bytes of a request with a note. The longest note needs fewer bytes."""
_decode_note = msgspec.json.Decoder(NoteChange).decode
_NAMES = {"conversation": "id", "line": "q"}
"""Maps parameters of functions to the parameters of requests."""


def application(
    store: Store,
    *,
    gate: Gate,
    shown: Shown = BY_DEFAULT,
    is_ending: Callable[[], bool] = lambda: False,
    tools: Callable[[], MountedTools] | None = None,
    service: Service | None = None,
) -> Access:
    """Return the ASGI application of an open store. The caller closes the store.

    gate       the token and the host names that requests must have
    shown      what the pages need besides the store
    is_ending  returns true to end the open streams
    tools      loads the tools of ``foldlog mcp``, for the first request to ``/mcp``
    service    the operations below ``/v1``
    """
    changes = StoreChanges(store, is_ending) if service is None else service.changes
    documents = Documents(store, shown, changes)
    mounted = None if tools is None else ToolsOnDemand(tools, changes.threads)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with create_task_group() as tasks:
            tasks.start_soon(changes.run)
            if mounted is not None:
                tasks.start_soon(mounted.run)
            yield
            tasks.cancel_scope.cancel()
        changes.threads.close()
        changes.long_reads.close()
        documents.close()

    routes = _routes(store, documents, changes.threads)
    if mounted is not None:
        routes.append(Route("/mcp", mounted))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _no_such_path, 500: _answer_failure},
    )
    app.router.redirect_slashes = False
    return Access(app, gate, service)


def _routes(store: Store, documents: Documents, threads: Threads) -> list[BaseRoute]:
    """Return the paths of the page and of its documents, and those for monitoring."""
    check = standing(store)
    return [
        Route("/", partial(_page, store)),
        Route("/page.js", lambda request: Response(assets.script(), media_type="text/javascript")),
        Route("/page.css", lambda request: Response(assets.style(), media_type="text/css")),
        Route("/healthz", partial(_healthz, threads, store, check)),
        *(
            Route(path, _answering(threads, check, make))
            for path, make in documents.by_path().items()
        ),
        Route(
            "/api/notes", partial(_change_note, threads, check, documents.notes), methods=["POST"]
        ),
    ]


def _no_such_path(request: Request, error: Exception) -> Response:
    problem = f"there is no path {request.url.path!r}; docs/PAGE.md lists the paths below /api/"
    return _json(RefusedDocument(error=problem), 404)


def _answer_failure(request: Request, error: Exception) -> Response:
    """Answer a request after an unexpected error. The server's log has the traceback of the
    error.
    """
    return _json(RefusedDocument(error=refusal_of(error).detail), 500)


async def _healthz(
    threads: Threads, store: Store, check: Callable[[], object], request: Request
) -> Response:
    """Say whether the store can be read."""

    def ask() -> None:
        check()
        _ = store.database.last_position  # a closed store raises an error

    try:
        await threads.run(ask)
    except EventStoreError as error:
        return Response(f"{type(error).__name__}\n", 503, media_type="text/plain")
    return Response("ok\n", media_type="text/plain")


def standing(store: Store) -> Callable[[], object]:
    """Return a check that raises ``StoreRefused`` if the store's file was replaced. Without this
    check, the server would still read the replaced file after a restore.
    """
    path = store.path
    if not path:
        return lambda: None
    first = identity(path)

    def check() -> None:
        if identity(path) != first:
            raise StoreRefused(
                f"{path} was moved, or replaced by another file; start the server again",
                kind="replaced",
            )

    return check


def _page(store: Store, request: Request) -> Response:
    """Return the page of a conversation. A request may give only the beginning of the id, if no
    other id begins with it.
    """
    typed_id = request.query_params.get("id", "")
    meant = whole_id(store, typed_id)
    if meant != typed_id:
        address = request.url.include_query_params(id=meant)
        return RedirectResponse(f"?{address.query}")
    head = '<link rel="stylesheet" href="page.css">'
    script = '<script src="page.js"></script>'
    text = assets.page(
        title="foldlog",
        head=head,
        script=script,
        fallback="<p>This page needs script.</p>",
        data="",
    )
    return Response(text, media_type="text/html")


def _answering(
    threads: Threads, check: Callable[[], object], make: Make
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a path. The parameters of ``make`` are the parameters of the query. A
    thread makes the document. The response is the document as JSON, or an error as JSON.
    """
    takes_request = "request" in signature(make).parameters
    query = msgspec.defstruct("Query", signature_fields(make), kw_only=True, rename=_NAMES)

    def answer(request: Request) -> Response:
        check()
        values = read_query(request.query_params.multi_items(), query.__struct_encode_fields__)
        arguments = fields_of(convert("the parameters", values, query))
        if takes_request:
            arguments["request"] = request
        answer = make(**arguments)
        return answer if isinstance(answer, Response) else _json(answer)

    async def respond(request: Request) -> Response:
        try:
            return await threads.run(partial(answer, request))
        except (EventStoreError, ValueError) as error:
            return _refuse(error)

    return respond


def _refuse(error: Exception) -> Response:
    refusal = refusal_of(error)
    return _json(RefusedDocument(error=refusal.detail), refusal.status)


def _json(document: Document, status: int = 200) -> Response:
    return Response(json_text(document), status, media_type="application/json")


async def _change_note(
    threads: Threads, check: Callable[[], object], notes: Notes, request: Request
) -> Response:
    """Write the note in the body of a request, and answer with all notes."""

    def change(conversation: Text) -> NotesDocument:
        return notes.change(conversation, note.event, note.text)

    try:
        note = await read_body(request.headers, request.stream(), _NOTE_MAX, _decode_note)
    except EventStoreError as error:
        return _refuse(error)
    return await _answering(threads, check, change)(request)
