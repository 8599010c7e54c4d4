"""Make the request again that a reply answered, and say whether it has the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Final

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history.log import HistoryLog
from foldlog._history.request_names import SentRequest, is_of_reply
from foldlog.eventstore import DocumentChanges, Event, InvalidArgument
from foldlog.formats.record import dict_or_empty
from foldlog.projections import RENDERING, View, begins_reply
from foldlog.projections.conversations.labels import label
from foldlog.projections.messages.requests import REQUEST, digest

_FIELDS: Final = frozenset({"view", "dialect", "rendering", "messages", "beside"})
"""The fields of a fingerprint. A program may have stored something else in the field ``request``.
"""


def sent_request(history: HistoryLog, event_id: int) -> SentRequest:
    """Make the request again that a reply answered: see ``History.sent_request``."""
    reply = _reply_of(history, event_id)
    first = reply[0]
    if first.redacted is not None:
        return SentRequest(first.id, None, None, (f"event {first.id} was redacted",))
    recorded = first.meta.get(REQUEST)
    if not isinstance(recorded, Mapping) or not recorded.keys() >= _FIELDS:
        return SentRequest(first.id, None, None)
    view = history.sent(recorded["view"])
    beside = beside_of(history, reply)
    request = view.request(
        recorded["dialect"], tools=beside.get("tools", ()), **beside.get("parameters", {})
    )
    present = request.fingerprint
    if present == recorded:
        return SentRequest(first.id, request, True)
    return SentRequest(first.id, request, False, tuple(_changes(view, reply[0], recorded, present)))


def beside_of(history: HistoryLog, reply: Sequence[Event]) -> JsonObject:
    """Return the tools and parameters of the request that a reply answered, if they were recorded
    with it.
    """
    # ``append_reply`` writes the document directly after the events of the reply. A runtime may
    # write it later, because it appends results and further replies together with the reply.
    recorded = dict_or_empty(reply[0].meta.get(REQUEST)).get("beside")
    newest = history.version()
    beside = _document_at(history, min(reply[-1].id + 2, newest))
    if recorded is None or digest(beside).hex() == recorded:
        return beside
    for event in history.events(reply[-1].id + 1):
        if isinstance(event, DocumentChanges) and REQUEST in event.changed:
            return _document_at(history, event.id + 1)
    return beside


def _document_at(history: HistoryLog, version: int) -> JsonObject:
    return dict_or_empty(history.document(REQUEST, version=version))  # it may be redacted


def _reply_of(history: HistoryLog, event_id: int) -> list[Event]:
    """Return the events of the reply to which an event belongs. Raises ``InvalidArgument`` if it
    belongs to none.
    """
    before = [*takewhile(begins_reply, history.events(0, event_id + 1, reverse=True))]
    if not before:
        raise InvalidArgument(
            f"event {event_id} of {history.id!r} is not the reply of a model; name an event of a"
            " reply, such as one of its calls"
        )
    of_reply = partial(is_of_reply, other=before[0])
    after = takewhile(of_reply, history.events(event_id + 1))
    return [*reversed([before[0], *takewhile(of_reply, before[1:])]), *after]


def _changes(view: View, reply: Event, recorded: JsonMap, present: JsonMap) -> Iterator[str]:
    """Yield the reasons why the ``present`` fingerprint of a request differs from the recorded
    one.
    """
    is_rendered_otherwise = recorded["rendering"] != RENDERING
    if is_rendered_otherwise:
        yield f"rendered by foldlog's rules {recorded['rendering']}, and now by {RENDERING}"
    # An event that was redacted before the reply was redacted in its request too.
    redacted = [(event, event.redacted) for event in view if event.redacted is not None]
    redacted_since = [
        (event, mark)
        for event, mark in redacted
        if reply.timestamp is None or mark.at >= reply.timestamp
    ]
    for event, mark in redacted_since:
        why = f": {mark.reason}" if mark.reason else ""
        yield f"{label(event)} {event.id} ({mark.bytes} bytes) was redacted by {mark.by}{why}"
    if recorded["beside"] != present["beside"]:
        yield "the recorded tools or parameters were redacted or changed"
    has_reason = is_rendered_otherwise or redacted_since
    if recorded["messages"] != present["messages"] and not has_reason:
        yield "the messages differ, and the log does not say why"
