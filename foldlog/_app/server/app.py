"""The paths of the server: the page, the two files of the page, the JSON documents below ``/api/``,
and the paths for monitoring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from anyio import create_task_group
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from foldlog._app.page import assets
from foldlog._app.server.access import Access
from foldlog._app.server.conversations import LIMIT, ServedConversations
from foldlog._app.server.following import (
    Followed,
    FramedPage,
    StoreChanges,
    event_stream,
    keys_of,
    stream,
)
from foldlog._app.server.metrics import metrics
from foldlog._app.server.notes import NoteChange, Notes
from foldlog._app.server.pages import Pages
from foldlog._app.server.parameters import (
    Count,
    Text,
    convert,
    fields_of,
    read_body,
    signature_fields,
)
from foldlog._app.server.problems import refusal_of
from foldlog._app.server.threads import Threads
from foldlog._app.server.tools import ToolsOnDemand
from foldlog._history.hand_overs import hand_overs
from foldlog._reports.answers.conversations import OverviewDocument, ServedPageDocument
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.events import HitsDocument, NotesDocument
from foldlog._reports.answers.page import FollowedDocument, RefusedDocument
from foldlog._reports.answers.runs import RunsDocument
from foldlog._reports.answers.views import HandOversDocument
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.sizes import CountsTokens
from foldlog._reports.runs import compared_runs
from foldlog._reports.words.safe_text import json_text
from foldlog._search.searching import hits_document, search
from foldlog.eventstore import EventStoreError, ReadTransaction, Store, StoreRefused
from foldlog.eventstore.recorders.sqlite.process_forks import identity
from foldlog.eventstore.store import bind
from foldlog.projections import Views
from foldlog.projections.conversations.companions import ids_beginning_with

if TYPE_CHECKING:
    from foldlog._app.coding_agents.server import MountedTools
    from foldlog._app.server.service.service import Service

_SEARCH_S = 5.0
"""The number of seconds after which a search ends. The result says how much was read."""
_SEARCHED_MAX = 1_000
_NOTE_MAX = 200_000
"""The maximum number of bytes of a request with a note. The longest note needs fewer bytes."""
_IMPORT = "'foldlog import PATH'"
_decode_note = msgspec.json.Decoder(NoteChange).decode
_NAMES = {"conversation": "id", "line": "q"}
"""Maps parameters of functions to the parameters of requests."""


def application(
    store: Store,
    *,
    token: str | None,
    names: Collection[str] = (),
    port: int = 0,
    limit: int | None = None,
    model: CountsTokens | None = None,
    prices: Prices | None = None,
    completed: Callable[[str], str] = str,
    is_ending: Callable[[], bool] = lambda: False,
    tools: Callable[[], MountedTools] | None = None,
    service: Service | None = None,
) -> Access:
    """Return the ASGI application of an open store. The caller closes the store.

    token, names, port    see ``Access``
    limit                 the number of tokens at which the pages draw a line
    model                 counts tokens
    prices                the prices of calls that record no cost
    completed             adds the store's name to a command in a message
    is_ending             returns true to end the open streams
    tools                 loads the tools of ``foldlog mcp``, for the first request to ``/mcp``
    service               the operations below ``/v1``
    """
    pages = Pages(store, limit, model, prices)
    conversations = ServedConversations(store, prices)
    notes = Notes(store)
    changes = StoreChanges(store, is_ending) if service is None else service.changes
    import_command = completed(_IMPORT)[1:-1]
    threads = changes.threads
    check = standing(store)
    mounted = None if tools is None else ToolsOnDemand(tools, threads)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with create_task_group() as tasks:
            tasks.start_soon(changes.run)
            if mounted is not None:
                tasks.start_soon(mounted.run)
            yield
            tasks.cancel_scope.cancel()
        threads.close()
        conversations.close()

    def find_everywhere(
        request: Request, words: Text, line: str = "", limit: Count = 50
    ) -> HitsDocument:
        limit = min(limit, _SEARCHED_MAX)
        where = conversations.where(line)
        kinds = request.query_params.getlist("kind") or (["error"] if where.has_error else [])
        results = search(
            store,
            words,
            among=conversations.ids(line),
            kinds=kinds,
            tool=where.tool,
            limit=limit + 1,
            seconds=_SEARCH_S,
        )
        return hits_document(store, words, results, limit)

    def list_conversations(
        start: Count = 0, limit: Count = LIMIT, sort: str = "-recorded", line: str = ""
    ) -> ServedPageDocument:
        return conversations.list(
            start,
            limit,
            sort=sort.removeprefix("-"),
            reverse=sort.startswith("-"),
            where=conversations.where(line),
        )

    def overview(line: str = "") -> OverviewDocument:
        return conversations.overview(line, import_command)

    def measure() -> Response:
        text = metrics(store, conversations.fleet(""), complete=conversations.complete)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def compare(conversation: Text, other: Text) -> RunsDocument:
        return compared_runs(store, conversation, _whole_id(store, other), prices or Prices())

    def ask_agents(
        conversation: Text, words: Text = "", call: Count | None = None
    ) -> HandOversDocument:
        about = words if call is None else call
        return hand_overs(store, Views(store), conversations.figures.trees, conversation, about)

    made: dict[str, Callable[..., Document | Response]] = {
        "/metrics": measure,
        "/api/conversations": list_conversations,
        "/api/overview": overview,
        "/api/fleet": lambda: conversations.fleet(import_command),
        "/api/events": pages.events,
        "/api/dropped": pages.dropped,
        "/api/models": pages.models,
        "/api/progress": pages.progress,
        "/api/notes": notes.of,
        "/api/report": partial(_report, pages, notes),
        "/api/history": pages.history,
        "/api/compare": compare,
        "/api/task": conversations.task,
        "/api/hand-overs": ask_agents,
        "/api/event": pages.event,
        "/api/find": pages.find,
        "/api/search": find_everywhere,
        "/api/follow": partial(_follow, store, changes),
    }
    routes: list[BaseRoute] = [
        Route("/", partial(_page, store)),
        Route("/page.js", lambda request: Response(assets.script(), media_type="text/javascript")),
        Route("/page.css", lambda request: Response(assets.style(), media_type="text/css")),
        Route("/healthz", partial(_healthz, threads, store, check)),
        *(Route(path, _answering(threads, check, make)) for path, make in made.items()),
        Route("/api/notes", partial(_change_note, threads, check, notes), methods=["POST"]),
    ]
    if mounted is not None:
        routes.append(Route("/mcp", mounted))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _no_such_path, 500: _answer_failure},
    )
    app.router.redirect_slashes = False
    return Access(app, token, names, port, service)


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
    first = store.path and identity(store.path)

    def check() -> None:
        if store.path is not None and identity(store.path) != first:
            raise StoreRefused(
                f"{store.path} was moved, or replaced by another file; start the server again",
                kind="replaced",
            )

    return check


def _page(store: Store, request: Request) -> Response:
    """Return the page of a conversation. A request may give only the beginning of the id, if no
    other id begins with it.
    """
    typed_id = request.query_params.get("id", "")
    meant = _whole_id(store, typed_id)
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
    threads: Threads, check: Callable[[], object], make: Callable[..., Document | Response]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a path. The parameters of ``make`` are the parameters of the query. A
    thread makes the document. The response is the document as JSON, or an error as JSON.
    """
    takes_request = "request" in signature(make).parameters
    query = msgspec.defstruct("Query", signature_fields(make), kw_only=True, rename=_NAMES)

    def answer(request: Request) -> Response:
        check()
        arguments = fields_of(convert("the parameters", dict(request.query_params), query))
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


def _report(pages: Pages, notes: Notes, conversation: Text) -> Response:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        pages.write_report(conversation, path, notes.of(conversation).notes)
        content = path.read_bytes()
    headers = {"content-disposition": 'attachment; filename="foldlog.html"'}
    return Response(content, media_type="text/html", headers=headers)


async def _change_note(
    threads: Threads, check: Callable[[], object], notes: Notes, request: Request
) -> Response:
    def change(conversation: Text) -> NotesDocument:
        return notes.change(conversation, note.event, note.text)

    try:
        note = await read_body(request.headers, request.stream(), _NOTE_MAX, _decode_note)
    except EventStoreError as error:
        return _refuse(error)
    return await _answering(threads, check, change)(request)


def _whole_id(store: Store, typed_id: str) -> str:
    """Return the only id that begins with the text, or else the text itself."""
    try:
        matching_ids = list(islice(ids_beginning_with(store, typed_id), 2))
    except EventStoreError:  # the documents of the page report the error
        return typed_id
    return matching_ids[0] if len(matching_ids) == 1 else typed_id


def _follow(
    store: Store, changes: StoreChanges, request: Request, conversation: Text | None = None
) -> Response:
    """Send server-sent events. With an id, send every new version of the conversation. Without an
    id, send every change of the store.
    """
    keys = None
    if conversation is not None:
        keys = keys_of(store, conversation)
        # If another conversation gets the id, the page must not mix the two conversations.
        _, store = bind(store, conversation)

    def present() -> FollowedDocument:
        if conversation is not None:
            return store.query(conversation, _present)
        return FollowedDocument(version=store.database.data_version())

    def read(before: str) -> FramedPage:
        now = present()
        place = json_text(now)
        return FramedPage.of("version", [] if place == before else [(place, now)])

    def problem(error: Exception) -> bytes:
        refusal = refusal_of(error)
        document = RefusedDocument(error=refusal.detail, status=refusal.status)
        return json_text(document).encode()

    present()  # an unknown id raises an error at once
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    followed = Followed(lambda: (conversation, json_text(present())), read, keys)
    return event_stream(stream(changes, followed, "", problem))


def _present(reading: ReadTransaction) -> FollowedDocument:
    """Return a value that changes whenever a page of the conversation has to change.

    The page of a fork also changes if a parent is redacted or erased.
    """
    return FollowedDocument(
        version=reading.version, redactions=reading.redactions, borders=len(reading.lineage)
    )
