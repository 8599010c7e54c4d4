"""Search in the conversations that a token may see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final

import msgspec

from foldlog._app.server.parameters import Text
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._reports.answers.document import Document
from foldlog._reports.search.searching import (
    Hit,
    Searched,
    SearchPlace,
    load_modules,
    search,
)
from foldlog.projections.conversations.labels import KINDS

_SECONDS_MAX: Final = 10.0
"""A search ends after this time, and its cursor goes on."""
_Cursor = Annotated[str, msgspec.Meta(pattern=r"^([01]\.[0-9]{1,19}\.[0-9]{1,15}\.[\s\S]+)?$")]
"""The last activity of a conversation, an event, and the conversation: a ``SearchPlace``."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=100)]
Kind = Annotated[str, msgspec.Meta(extra_json_schema={"enum": [*KINDS]})]
load_modules()  # else the first search waits for them


class FoundEvent(Document, frozen=True):
    """An event with all the words. ``highlights`` are the places of the words in ``snippet``: pairs
    of start and end, counted in code points. ``timestamp`` is when the event happened, or null.
    """

    conversation: str
    event: int
    kind: str
    recorded_at: str
    timestamp: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]

    @classmethod
    def of_hit(cls, hit: Hit) -> FoundEvent:
        return cls(
            conversation=hit.conversation,
            event=hit.id,
            kind=hit.kind,
            recorded_at=hit.recorded_at.isoformat(),
            timestamp=None if hit.timestamp is None else hit.timestamp.isoformat(),
            snippet=hit.snippet,
            highlights=hit.highlights,
        )


class FoundEvents(Document, frozen=True):
    """The conversation that was active last comes first, and within it the last event. ``next`` is
    null at the end. If ``complete`` is false, the search ran out of time, so the page may have few
    hits or none, and ``next`` goes on. ``unread`` are the problems of conversations that could not
    be read.
    """

    hits: list[FoundEvent]
    next: str | None
    complete: bool
    unread: list[str]


@operation("GET", "/search", is_long=True)
def search_events(
    request: AdmittedRequest,
    *,
    words: Text,
    within: Text | None = None,
    kind: Kind | None = None,
    tool: Text | None = None,
    limit: Limit = 20,
    after: _Cursor = "",
) -> FoundEvents:
    """Find the events that contain all the words, in the conversations that the token may see.

    A word matches the beginning of words; words in double quotes follow each other. ``within`` is
    the id of one conversation. ``kind`` is user, agent, system, action, observation or another
    kind, and ``tool`` the tool of a call and its result. ``after`` is ``next`` of the page before.
    A conversation that becomes active meanwhile is not found again in later pages. Without an
    index (``foldlog store index``), the search reads about 400 MB a second, at most 10 seconds.
    """
    histories = request.histories
    where = request.principal.where
    history = None if within is None else histories[within]
    if history is not None:
        request.check_visible(history)
        history._store.conversation(history.id, as_stored=True)
    among = frozenset(request.visible_ids({})) if where and within is None else None
    found = search(
        histories.store,
        words,
        conversation=within,
        among=among,
        kinds=() if kind is None else (kind,),
        tool=tool,
        limit=limit + 1,
        seconds=_SECONDS_MAX,
        behind=_place_of(after),
    )
    has_more = len(found.hits) > limit
    following = found.places[limit - 1] if has_more else found.searched_to
    hits = found.hits[:limit]
    if history is not None:
        request.check_again(history)
        # A fork has the events that it shares too. The token may not see the other conversation.
        hits = tuple(hit._replace(conversation=history.id) for hit in hits)
        following = following and following._replace(conversation=history.id)
    elif where:
        hits = _still_visible(request, hits)
    return FoundEvents(
        hits=list(map(FoundEvent.of_hit, hits)),
        next=None if following is None else _cursor_of(following),
        complete=has_more or following is None,
        unread=_problems_to_tell(found, among, within if where else None),
    )


def _still_visible(request: AdmittedRequest, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits without those in conversations that the token may not see: another
    conversation may have begun during the search with the id of an erased one.
    """
    hidden = set[str]()
    for name in {hit.conversation for hit in hits}:
        row = request.histories.store.conversation(name, as_stored=True)
        if row.generation and not request.is_visible(request.histories[name]):
            hidden.add(name)
    return tuple(hit for hit in hits if hit.conversation not in hidden)


def _problems_to_tell(
    found: Searched, among: Collection[str] | None, within: str | None
) -> list[str]:
    """Return the problems of conversations ``among`` these. If ``within`` is not None, return the
    problems of this conversation, and name no other that has events which it shares.
    """
    problems = []
    for problem, conversation in zip(found.unread, found.unread_in, strict=True):
        if within is not None and conversation != within:
            problems.append(f"{within}: an event that it shares could not be read")
        elif among is None or conversation in among:
            problems.append(problem)
    return problems


def _cursor_of(place: SearchPlace) -> str:
    """Return a place in the hits as a cursor. The conversation comes last, because its id may have
    dots.
    """
    return f"{place.is_timed:d}.{place.at}.{place.event}.{place.conversation}"


def _place_of(cursor: str) -> SearchPlace | None:
    """Return the place of a cursor, or None for the beginning."""
    if not cursor:
        return None
    is_timed, at, event, conversation = cursor.split(".", 3)
    return SearchPlace(is_timed == "1", min(int(at), 2**62), conversation, int(event))
