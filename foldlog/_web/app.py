"""The paths of the server: the page, the two files of the page, the JSON documents below ``/api/``,
and the paths for monitoring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from anyio import sleep, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from foldlog._answers.conversations import OverviewDocument, ServedPageDocument
from foldlog._answers.document import Document
from foldlog._answers.events import EventsDocument, FindDocument, HitsDocument, ShownDocument
from foldlog._answers.page import FollowedDocument, RefusedDocument
from foldlog._answers.runs import RunsDocument
from foldlog._conversations.bound_store import bound_store
from foldlog._conversations.companions import ids_beginning_with
from foldlog._figures.prices import Prices
from foldlog._figures.sizes import CountsTokens
from foldlog._page import assets
from foldlog._reports.runs import compared_runs
from foldlog._reports.search import hits_document, search
from foldlog._web.access import Access
from foldlog._web.conversations import LIMIT, ServedConversations
from foldlog._web.metrics import metrics
from foldlog._web.notes import Notes
from foldlog._web.pages import Pages
from foldlog._words.safe_text import json_text
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    EventStoreError,
    InvalidArgument,
    ReadTransaction,
    Store,
    StoreRefused,
    StoreUnavailable,
    UnknownEventType,
)
from foldlog.eventstore.recorders.sqlite.process_forks import identity

if TYPE_CHECKING:
    from foldlog._programs.server import MountedTools
    from foldlog._web.service.service import Service

_POLL_S = 0.3
_BEAT_S = 15.0
_SEARCH_S = 5.0
"""The number of seconds after which a search ends. The result says how much was read."""
_SEARCHED_MAX = 1_000
_NOTE_MAX = 200_000
"""The maximum number of bytes of a request with a note. The longest note needs fewer bytes."""

_STATUS: dict[type[EventStoreError], int] = {
    ConversationNotFound: 404,
    ConversationErased: 410,
    CorruptEvent: 500,
    UnknownEventType: 501,
    StoreUnavailable: 503,
    StoreRefused: 503,
    InvalidArgument: 400,
}

_IMPORT = "'foldlog import PATH'"


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
    tools: MountedTools | None = None,
    service: Service | None = None,
) -> Starlette:
    """Return the ASGI application of an open store. The caller closes the store.

    token, names, port    see ``Access``
    limit                 the number of tokens at which the pages draw a line
    model                 counts tokens
    prices                the prices of calls that record no cost
    completed             adds the store's name to a command in a message
    is_ending             returns true to end the open streams
    tools                 the tools of ``foldlog mcp``, at ``/mcp``
    service               the operations below ``/v1``
    """
    pages = Pages(store, limit, model, prices)
    conversations = ServedConversations(store, prices)
    notes = Notes(store)

    def searched(request: Request) -> HitsDocument:
        words = _words(request)
        limit = min(_number(request, "limit", 50), _SEARCHED_MAX)
        line = request.query_params.get("q", "")
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
        return hits_document(words, results, limit)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            for part in (tools, service):
                if part is not None:
                    await running.enter_async_context(part.running())
            yield
        await to_thread.run_sync(conversations.close)

    def listed(request: Request) -> ServedPageDocument:
        sort = request.query_params.get("sort", "-recorded")
        line = request.query_params.get("q", "")
        return conversations.list(
            _number(request, "start", 0),
            _number(request, "limit", LIMIT),
            sort=sort.removeprefix("-"),
            reverse=sort.startswith("-"),
            where=conversations.where(line),
        )

    def chosen(request: Request) -> OverviewDocument:
        return conversations.overview(request.query_params.get("q", ""), completed(_IMPORT)[1:-1])

    def measured(request: Request) -> Response:
        fleet = conversations.fleet("")
        text = metrics(store, fleet, complete=conversations.complete)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def compared(request: Request) -> RunsDocument:
        other = _text(request, "other", "the id of the conversation to compare with")
        return compared_runs(store, _id(request), _whole_id(store, other), prices or Prices())

    check = standing(store)
    api = partial(_json_route, check)
    routes: list[BaseRoute] = [
        Route("/", partial(_page, store)),
        Route("/page.js", lambda request: Response(assets.script(), media_type="text/javascript")),
        Route("/page.css", lambda request: Response(assets.style(), media_type="text/css")),
        Route("/healthz", partial(_healthz, check)),
        api("metrics", measured, "/metrics"),
        api("conversations", listed),
        api("overview", chosen),
        api("fleet", lambda request: conversations.fleet(completed(_IMPORT)[1:-1])),
        api("events", lambda request: _events(pages, request)),
        api("dropped", lambda request: pages.dropped(_id(request))),
        api("models", lambda request: pages.models(_id(request))),
        api("progress", lambda request: pages.progress(_id(request))),
        Route("/api/notes", partial(_notes, check, notes), methods=["GET", "HEAD", "POST"]),
        Route("/api/report", partial(_report, check, partial(_written, pages, notes))),
        api("history", lambda request: pages.history(_id(request), _number(request, "since", 0))),
        api("compare", compared),
        api("event", lambda request: _event(pages, request)),
        api(
            "find",
            lambda request: FindDocument(hits=tuple(pages.find(_id(request), _words(request)))),
        ),
        api("search", searched),
        api("follow", lambda request: _follow(store, request, is_ending)),
    ]
    if tools is not None:
        routes += tools.routes
    if service is not None:
        routes.append(Mount("/v1", service))
    guard = Middleware(Access, token=token, names=names, port=port)
    app = Starlette(
        routes=routes,
        middleware=[guard],
        lifespan=lifespan,
        exception_handlers={404: _no_such_path, 500: _answer_failure},
    )
    app.router.redirect_slashes = False
    return app


def _no_such_path(request: Request, error: Exception) -> Response:
    return _answer_refusal(
        f"there is no path {request.url.path!r}; docs/PAGE.md lists the paths below /api/", 404
    )


def _answer_failure(request: Request, error: Exception) -> Response:
    """Answer a request after an unexpected error. The server's log has the traceback of the
    error.
    """
    return _answer_refusal(f"the server failed: {type(error).__name__}", 500)


async def _healthz(check: Callable[[], object], request: Request) -> Response:
    try:
        await to_thread.run_sync(check)
    except EventStoreError as error:
        return Response(f"{type(error).__name__}\n", 503, media_type="text/plain")
    return Response("ok\n", media_type="text/plain")


def standing(store: Store) -> Callable[[], object]:
    """Return a check that raises ``StoreRefused`` if the store is closed or its file was replaced.
    Without this check, the server would still read the replaced file after a restore.
    """
    first = store.path and identity(store.path)

    def check() -> None:
        _ = store.database.last_position
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


def _json_route(
    check: Callable[[], object],
    name: str,
    document: Callable[[Request], Document | Response],
    path: str | None = None,
) -> Route:
    """Return the route of a path. A thread makes the document. The response is the document as
    JSON, or an error as JSON.
    """

    def made(request: Request) -> Document | Response:
        check()
        return document(request)

    async def answered(request: Request) -> Response:
        try:
            answer = await to_thread.run_sync(made, request)
        except EventStoreError as error:
            return _answer_refusal(_problem(error), _status(error))
        except ValueError as error:
            return _answer_refusal(str(error), 400)
        return answer if isinstance(answer, Response) else _json(answer)

    return Route(path or f"/api/{name}", answered)


def _status(error: EventStoreError) -> int:
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


def _problem(error: EventStoreError) -> str:
    # The remedy in the error's message is for programs in Python.
    if isinstance(error, ConversationErased):
        return error.problem
    return str(error)


def _json(document: Document, status: int = 200) -> Response:
    return Response(json_text(document), status, media_type="application/json")


def _answer_refusal(problem: str, status: int) -> Response:
    return _json(RefusedDocument(error=problem), status)


def _text(request: Request, name: str, what: str) -> str:
    text = request.query_params.get(name, "")
    if not text.strip():
        raise InvalidArgument(f"the parameter {name!r} is missing: {what}")
    return text


def _id(request: Request) -> str:
    return _text(request, "id", "the id of a conversation")


def _whole_id(store: Store, typed_id: str) -> str:
    """Return the only id that begins with the text, or else the text itself."""
    try:
        matching_ids = list(islice(ids_beginning_with(store, typed_id), 2))
    except EventStoreError:  # the documents of the page report the error
        return typed_id
    return matching_ids[0] if len(matching_ids) == 1 else typed_id


def _words(request: Request) -> str:
    return _text(request, "words", "the words to search for")


def _number(request: Request, name: str, default: int | None = None) -> int:
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise InvalidArgument(f"the parameter {name!r} is missing; send a whole number, at least 0")
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidArgument(
            f"the parameter {name!r} must be a whole number, at least 0, not {text!r}"
        )
    return int(text)


def _events(pages: Pages, request: Request) -> EventsDocument:
    start = _number(request, "start", 0)
    return pages.events(_id(request), start, _number(request, "stop", start + 50))


async def _answer(check: Callable[[], object], make_response: Callable[[], Response]) -> Response:
    """Make a response in a thread. If an error is raised, the response describes the error."""

    def checked() -> Response:
        check()
        return make_response()

    try:
        return await to_thread.run_sync(checked)
    except EventStoreError as error:
        return _answer_refusal(_problem(error), _status(error))
    except ValueError as error:
        return _answer_refusal(str(error), 400)


async def _notes(check: Callable[[], object], notes: Notes, request: Request) -> Response:
    if request.method != "POST":
        return await _answer(check, lambda: _json(notes.of(_id(request))))
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _NOTE_MAX:
            return _answer_refusal(
                f"the request with a note has more than {_NOTE_MAX:,} bytes; shorten the note", 413
            )
    return await _answer(check, lambda: _json(notes.change(_id(request), body)))


async def _report(
    check: Callable[[], object], written: Callable[[str], bytes], request: Request
) -> Response:
    headers = {"content-disposition": 'attachment; filename="foldlog.html"'}
    return await _answer(
        check, lambda: Response(written(_id(request)), media_type="text/html", headers=headers)
    )


def _written(pages: Pages, notes: Notes, conversation: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        pages.write_report(conversation, path, notes.of(conversation).notes)
        return path.read_bytes()


def _event(pages: Pages, request: Request) -> ShownDocument | Response:
    document = pages.event(_id(request), _number(request, "event"))
    if document is None:
        return _answer_refusal(
            f"conversation {_id(request)!r} has no event {_number(request, 'event')};"
            " /api/history lists its events",
            404,
        )
    return document


def _follow(store: Store, request: Request, is_ending: Callable[[], bool]) -> Response:
    """Send server-sent events. With an id, send every new version of the conversation. Without an
    id, send every change of the store.
    """
    conversation = request.query_params.get("id")
    if conversation is not None:
        # If another conversation gets the id, the page must not mix the two conversations.
        _, store = bound_store(store, conversation)
        store.query(conversation, _present)  # an unknown id raises an error at once
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")

    def present() -> FollowedDocument:
        if conversation is not None:
            return store.query(conversation, _present)
        return FollowedDocument(version=store.database.data_version())

    async def stream() -> AsyncIterator[str]:
        before: FollowedDocument | None = None
        waited = 0.0
        yield "retry: 1000\n\n"
        while not is_ending():
            try:
                now = await to_thread.run_sync(present)
            except EventStoreError as error:
                problem = RefusedDocument(error=_problem(error), status=_status(error))
                yield f"event: problem\ndata: {json_text(problem)}\n\n"
                return
            if now != before:
                before = now
                waited = 0.0
                yield f"event: version\ndata: {json_text(now)}\n\n"
            elif waited >= _BEAT_S:
                waited = 0.0
                yield ": still here\n\n"
            await sleep(_POLL_S)
            waited += _POLL_S

    return StreamingResponse(
        stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _present(reading: ReadTransaction) -> FollowedDocument:
    """Return a value that changes whenever a page of the conversation has to change.

    The page of a fork also changes if a parent is redacted or erased.
    """
    return FollowedDocument(
        version=reading.version, redactions=reading.redactions, borders=len(reading.lineage)
    )
