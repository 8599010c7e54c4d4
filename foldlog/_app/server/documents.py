"""The documents below ``/api/``, and the text for monitoring. Each method answers one path: its
parameters are the parameters of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from foldlog._app.server.conversations import LIMIT, ServedConversations
from foldlog._app.server.metrics import metrics
from foldlog._app.server.notes import Notes
from foldlog._app.server.pages import Pages
from foldlog._app.server.parameters import Count, Text
from foldlog._app.server.problems import refusal_of
from foldlog._app.server.server_sent_events import (
    Followed,
    FramedPage,
    StoreChanges,
    event_stream,
    keys_of,
    stream,
)
from foldlog._reports.answers.conversations import OverviewDocument, ServedPageDocument
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.events import HitsDocument
from foldlog._reports.answers.page import FollowedDocument, RefusedDocument
from foldlog._reports.answers.runs import RunsDocument
from foldlog._reports.answers.views import HandOversDocument
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.tokens import CountsTokens
from foldlog._reports.hand_overs import hand_overs
from foldlog._reports.runs import compared_runs
from foldlog._reports.search.searching import hits_document, search
from foldlog._reports.words.safe_text import json_text
from foldlog.eventstore import EventStoreError, ReadTransaction, Store
from foldlog.eventstore.store import bind
from foldlog.projections import Views
from foldlog.projections.conversations.companions import ids_beginning_with

_SEARCH_S = 5.0
"""The number of seconds after which a search ends. The result says how much was read."""
_SEARCHED_MAX = 1_000
"""A search returns at most this number of events, whatever number a request asks for."""
_IMPORT = "'foldlog import PATH'"

Make = Callable[..., Document | Response]


class Shown(NamedTuple):
    """What the pages need besides the store.

    ``limit``      the number of tokens at which the pages draw a line
    ``model``      counts tokens
    ``prices``     the prices of calls that record no cost
    ``completed``  adds the store's name to a command in a message
    """

    limit: int | None = None
    model: CountsTokens | None = None
    prices: Prices | None = None
    completed: Callable[[str], str] = str


BY_DEFAULT: Final = Shown()


class Documents:
    """Makes the documents of a store. Several threads may call the methods at the same time."""

    def __init__(self, store: Store, shown: Shown, changes: StoreChanges) -> None:
        self._store = store
        self._changes = changes
        self._prices = shown.prices
        self._import_command = shown.completed(_IMPORT)[1:-1]
        self._pages = Pages(store, shown.limit, shown.model, shown.prices)
        self._conversations = ServedConversations(store, shown.prices)
        self.notes = Notes(store)

    def by_path(self) -> dict[str, Make]:
        """Return what answers each path."""
        pages = self._pages
        conversations = self._conversations
        return {
            "/metrics": self.measure,
            "/api/conversations": self.list_conversations,
            "/api/overview": self.overview,
            "/api/fleet": lambda: conversations.fleet(self._import_command),
            "/api/events": pages.events,
            "/api/dropped": pages.dropped,
            "/api/models": pages.models,
            "/api/progress": pages.progress,
            "/api/notes": self.notes.of,
            "/api/report": self.report,
            "/api/history": pages.history,
            "/api/compare": self.compare,
            "/api/task": conversations.task,
            "/api/hand-overs": self.ask_agents,
            "/api/event": pages.event,
            "/api/find": pages.find,
            "/api/search": self.find_everywhere,
            "/api/follow": self.follow,
        }

    def close(self) -> None:
        """End the thread that counts conversations."""
        self._conversations.close()

    def find_everywhere(
        self, request: Request, words: Text, line: str = "", limit: Count = 50
    ) -> HitsDocument:
        """Return the events with the words, in the conversations that a search line selects."""
        limit = min(limit, _SEARCHED_MAX)
        where = self._conversations.where(line)
        kinds = request.query_params.getlist("kind") or (["error"] if where.has_error else [])
        results = search(
            self._store,
            words,
            among=self._conversations.ids(where),
            kinds=kinds,
            tool=where.tool,
            limit=limit + 1,
            seconds=_SEARCH_S,
        )
        document = hits_document(self._store, words, results, limit)
        return replace(document, is_partial=where.is_partial or UNSET)

    def list_conversations(
        self, start: Count = 0, limit: Count = LIMIT, sort: str = "-recorded", line: str = ""
    ) -> ServedPageDocument:
        """Return a part of the list. A ``sort`` that begins with a minus is descending."""
        return self._conversations.list(
            start,
            limit,
            sort=sort.removeprefix("-"),
            reverse=sort.startswith("-"),
            where=self._conversations.where(line),
        )

    def overview(self, line: str = "") -> OverviewDocument:
        return self._conversations.overview(line, self._import_command)

    def measure(self) -> Response:
        """Return the figures for Prometheus."""
        text = metrics(
            self._store, self._conversations.fleet(""), complete=self._conversations.complete
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def compare(self, conversation: Text, other: Text) -> RunsDocument:
        return compared_runs(
            self._store, conversation, whole_id(self._store, other), self._prices or Prices()
        )

    def ask_agents(
        self, conversation: Text, words: Text = "", call: Count | None = None
    ) -> HandOversDocument:
        about = words if call is None else call
        return hand_overs(
            self._store, Views(self._store), self._conversations.figures.trees, conversation, about
        )

    def report(self, conversation: Text) -> Response:
        """Return the page of a conversation as one file, with its notes."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            self._pages.write_report(conversation, path, self.notes.of(conversation).notes)
            content = path.read_bytes()
        headers = {"content-disposition": 'attachment; filename="foldlog.html"'}
        return Response(content, media_type="text/html", headers=headers)

    def follow(self, request: Request, conversation: Text | None = None) -> Response:
        """Send server-sent events. With an id, send every new version of the conversation. Without
        an id, send every change of the store.
        """
        store = self._store
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
        return event_stream(stream(self._changes, followed, "", problem))


def whole_id(store: Store, typed_id: str) -> str:
    """Return the only id that begins with the text, or else the text itself."""
    try:
        matching_ids = list(islice(ids_beginning_with(store, typed_id), 2))
    except EventStoreError:  # the documents of the page report the error
        return typed_id
    return matching_ids[0] if len(matching_ids) == 1 else typed_id


def _present(reading: ReadTransaction) -> FollowedDocument:
    """Return a value that changes whenever a page of the conversation has to change.

    The page of a fork also changes if a parent is redacted or erased.
    """
    return FollowedDocument(
        version=reading.version, redactions=reading.redactions, borders=len(reading.lineage)
    )
