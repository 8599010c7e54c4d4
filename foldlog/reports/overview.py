"""Make the columns of a list that need events: title, format, and the sizes of a conversation and its View."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from eventstore import ConversationRow, Event, EventStoreError, Logged, Message, Store

if TYPE_CHECKING:
    from projections import Views

__all__ = ["NATIVE", "Overview", "overview_of"]

NATIVE = "foldlog"
"""The format of a conversation that no source was imported into."""

_WITHIN = 30
"""The number of events at both ends of a conversation in which its title and its last time are searched."""
_TITLE_MAX = 300


class Overview(NamedTuple):
    """One conversation for a list. A figure that cannot be read, because the conversation is damaged or encrypted, is
    None.

    ``title``          the source's own title, or the first request of the user
    ``format``         what it was imported from; ``foldlog`` where it was not imported
    ``view_events``    the size of its View
    ``tokens``         an estimate of the tokens of that View, which errs high
    ``last_event_at``  the time of its last event that has one, as ISO 8601 in UTC; an imported time that names no
                       zone as its source wrote it
    ``problem``        why figures are missing
    """

    title: str | None = None
    format: str | None = None
    view_events: int | None = None
    tokens: int | None = None
    condensations: int | None = None
    last_event_at: str | None = None
    problem: str | None = None


def overview_of(store: Store, views: Views, row: ConversationRow) -> Overview:
    """Return the overview of a conversation. An event that cannot be read does not raise: see ``problem``.

    Cost: the events of its View, and some at either end of the conversation.
    """
    from condensers.models.estimate import ESTIMATE

    if row.erased_at is not None:
        return Overview()
    found = Overview()
    try:
        found = _near_the_ends(store, row)
        view = views.current(row.id)
        sums = ESTIMATE.token_sums(view)
        return found._replace(
            view_events=len(view), tokens=sums[-1] if sums else 0, condensations=len(view.condensations)
        )
    except EventStoreError as error:
        return found._replace(problem=str(error))


def _near_the_ends(store: Store, row: ConversationRow) -> Overview:
    """Return title, format and times from the first and last events. A later title replaces an earlier one."""
    title = request = form = last = None
    for recorded_at, event in _ends(store, row):
        given = event.meta.get("title")
        title = given if isinstance(given, str) and given.strip() else title
        if request is None and isinstance(event, Message) and event.source == "user" and event.shown:
            request = _said(event)
        if form is None:
            form = NATIVE if event.origin is None else event.origin.format
        last = _time_of(event, recorded_at) or last
    told = title or request
    return Overview(None if told is None else told[:_TITLE_MAX], form, last_event_at=last)


def _time_of(event: Event, recorded_at: datetime) -> str | None:
    if event.timestamp is not None:
        return event.timestamp.isoformat()
    return recorded_at.isoformat() if event.origin is None else event.origin.time


def _ends(store: Store, row: ConversationRow) -> Iterator[Logged]:
    yield from store.log(row.id, 0, _WITHIN)
    yield from store.log(row.id, max(_WITHIN, row.version - _WITHIN), row.version)


def _said(event: Event) -> str | None:
    """Return the first words of a message, or None where it has no text."""
    assert isinstance(event, Message)
    content = event.content
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    words = " ".join(" ".join(text[: 4 * _TITLE_MAX].split()) for text in texts if isinstance(text, str))
    return words or None
