"""Name the conversations of a runtime after its own ids, and find them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from foldlog._histories import Histories
from foldlog.eventstore import RecentConversation

_PAGE = 200


def quoted(name: str) -> str:
    """Return an id of the runtime as a part of the id of a conversation: as in a URL, without slashes."""
    return quote(name, safe="", errors="surrogatepass")


def unquoted(part: str) -> str:
    """Return the id that was given to ``quoted``."""
    return unquote(part, errors="surrogatepass")


def recent(histories: Histories, attributes: Mapping[str, Any]) -> Iterator[RecentConversation]:
    """Yield all conversations that have these attributes, the last active first. Cost: these, page by page."""
    after = None
    while True:
        page = histories.list(attributes, limit=_PAGE, after=after, age_max_s=0)
        yield from page.conversations
        after = page.after
        if after is None:
            return
